//! The lease: got, kept, lost, given up, with the verbs that the `ClusterRole` grants.

use std::time::Duration;

use http::Method;
use k8s_agent::election::{Election, Ended, Leadership};
use k8s_agent::events::Recorder;
use k8s_agent::lease::{Candidate, Timing};
use k8s_agent::metrics::Metrics;
use kube::Api;
use runtime::host::Host;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::fake_apiserver::FakeApiServer;

const NAME: &str = "cloud-controller-manager";
/// The record knows whole seconds only.
const TIMING: Timing = Timing {
    lease: Duration::from_secs(2),
    renew_deadline: Duration::from_millis(900),
    retry: Duration::from_millis(50),
};

struct Runner {
    leadership: Leadership,
    stop: CancellationToken,
    running: tokio::task::JoinHandle<Ended>,
}

fn start(api: &FakeApiServer, identity: &str) -> Runner {
    start_telling(api, identity, Recorder::discarding())
}

#[expect(clippy::disallowed_methods, reason = "the test ends the task itself")]
fn start_telling(api: &FakeApiServer, identity: &str, events: Recorder) -> Runner {
    let (throne, leadership) = Leadership::contested();
    let election = Election {
        leases: Api::namespaced(api.client(), "kube-system"),
        name: NAME.to_owned(),
        candidate: Candidate::new("kube-system", NAME, identity.to_owned(), TIMING),
        throne,
        events,
        metrics: Metrics::default(),
        host: Host::new(),
    };
    let stop = CancellationToken::new();
    let running = tokio::spawn(election.run(stop.clone()));
    Runner {
        leadership,
        stop,
        running,
    }
}

impl Runner {
    async fn leads(&self) {
        tokio::time::timeout(Duration::from_secs(10), self.leadership.begun())
            .await
            .expect("to lead");
    }

    async fn ended(self) -> Ended {
        tokio::time::timeout(Duration::from_secs(10), self.running)
            .await
            .expect("an end")
            .unwrap()
    }
}

fn spec(api: &FakeApiServer) -> Value {
    api.get("leases", NAME)
        .map_or(Value::Null, |lease| lease["spec"].clone())
}

async fn renewed_by(api: &FakeApiServer, holder: &str) {
    let before = spec(api)["renewTime"].clone();
    let renewed = |api: &FakeApiServer| {
        let spec = spec(api);
        (spec["holderIdentity"] == json!(holder) && spec["renewTime"] != before).then_some(())
    };
    api.wait_for(&format!("a renewal by {holder}"), renewed).await;
}

#[tokio::test]
async fn a_free_lease_is_created_renewed_and_given_up_without_a_patch() {
    let api = FakeApiServer::new();
    let runner = start(&api, "me");
    runner.leads().await;
    assert_eq!(spec(&api)["leaseTransitions"], json!(0));
    renewed_by(&api, "me").await;
    let fence = runner.leadership.fence().unwrap();
    assert_eq!(
        json!(fence.lease_uid),
        api.get("leases", NAME).unwrap()["metadata"]["uid"]
    );
    runner.stop.cancel();
    let leadership = runner.leadership.clone();
    assert_eq!(runner.ended().await, Ended::Stopped);
    assert!(!leadership.may_write());
    assert_eq!(
        (&spec(&api)["holderIdentity"], &spec(&api)["leaseDurationSeconds"]),
        (&json!(""), &json!(1))
    );
    let methods: Vec<Method> = api
        .writes("/leases")
        .into_iter()
        .map(|write| write.method)
        .collect();
    assert!(
        methods
            .iter()
            .all(|method| [Method::POST, Method::PUT].contains(method)),
        "{methods:?}"
    );
}

#[tokio::test]
async fn a_follower_takes_a_released_lease_at_once_and_counts_a_transition() {
    let api = FakeApiServer::new();
    let first = start(&api, "first");
    first.leads().await;
    let second = start(&api, "second");
    renewed_by(&api, "first").await;
    assert!(!second.leadership.may_write(), "there are two leaders");
    let before = first.leadership.fence().unwrap();
    first.stop.cancel();
    second.leads().await;
    let after = second.leadership.fence().unwrap();
    assert_eq!(
        (after.lease_uid, after.transitions),
        (before.lease_uid, before.transitions + 1)
    );
    assert_eq!(first.ended().await, Ended::Stopped);
    second.stop.cancel();
    second.ended().await;
}

#[tokio::test]
async fn a_holder_that_died_is_followed_after_its_time() {
    let api = FakeApiServer::new();
    let dead = json!({"holderIdentity": "dead", "leaseDurationSeconds": 1, "leaseTransitions": 4,
                      "renewTime": "2020-01-01T00:00:00.000000Z", "acquireTime": "2020-01-01T00:00:00.000000Z"});
    api.create(
        "leases",
        json!({"metadata": {"name": NAME, "namespace": "kube-system"}, "spec": dead}),
    );
    let runner = start(&api, "me");
    runner.leads().await;
    assert_eq!(runner.leadership.fence().unwrap().transitions, 5);
    runner.stop.cancel();
    runner.ended().await;
}

#[tokio::test]
async fn a_leader_that_can_not_renew_gives_up_before_another_may_follow() {
    let api = FakeApiServer::new();
    let runner = start(&api, "me");
    runner.leads().await;
    api.refuse(|method, _, _| (*method == Method::PUT).then_some((500, "etcd is away")));
    let leadership = runner.leadership.clone();
    let Ended::Lost(why) = runner.ended().await else {
        panic!("it was not lost")
    };
    assert!(
        why.contains("could not be renewed") && why.contains("etcd is away"),
        "{why}"
    );
    assert!(!leadership.may_write());
}

#[tokio::test]
async fn a_short_outage_is_survived() {
    let api = FakeApiServer::new();
    let runner = start(&api, "me");
    runner.leads().await;
    let mut left = 3;
    api.refuse(move |method, _, _| {
        (*method == Method::PUT && {
            left -= 1;
            left >= 0
        })
        .then_some((500, "etcd is away"))
    });
    renewed_by(&api, "me").await;
    assert!(runner.leadership.may_write());
    runner.stop.cancel();
    assert_eq!(runner.ended().await, Ended::Stopped);
}

#[tokio::test]
async fn a_lease_that_another_one_holds_is_lost() {
    let api = FakeApiServer::new();
    let runner = start(&api, "me");
    runner.leads().await;
    api.change("leases", NAME, |lease| {
        lease["spec"]["holderIdentity"] = json!("thief");
    });
    assert_eq!(runner.ended().await, Ended::Lost("thief holds it now".to_owned()));
    assert_eq!(
        spec(&api)["holderIdentity"],
        json!("thief"),
        "what another one holds is not released"
    );
}

#[tokio::test]
async fn a_deleted_lease_is_made_again_and_orders_writers_anew() {
    let api = FakeApiServer::new();
    let runner = start(&api, "me");
    runner.leads().await;
    let before = runner.leadership.fence().unwrap();
    api.delete("leases", NAME);
    api.wait_for("another lease", |api| api.get("leases", NAME).map(drop))
        .await;
    renewed_by(&api, "me").await;
    assert_ne!(runner.leadership.fence().unwrap().lease_uid, before.lease_uid);
    runner.stop.cancel();
    assert_eq!(runner.ended().await, Ended::Stopped);
}

#[tokio::test]
async fn a_missing_right_is_waited_for() {
    let api = FakeApiServer::new();
    api.refuse(|_, path, _| path.contains("/leases").then_some((403, "leases is forbidden")));
    let runner = start(&api, "me");
    api.wait_for("three attempts", |api| {
        (api.requests("/leases") >= 3).then_some(())
    })
    .await;
    assert!(!runner.leadership.may_write());
    api.refuse_nothing();
    runner.leads().await;
    runner.stop.cancel();
    runner.ended().await;
}

#[tokio::test]
async fn a_lease_that_is_lost_is_told_on_the_lease() {
    let api = FakeApiServer::new();
    let (events, mut writer) = Recorder::new(Metrics::default());
    let runner = start_telling(&api, "me", events);
    runner.leads().await;
    api.change("leases", NAME, |lease| {
        lease["spec"]["holderIdentity"] = json!("thief");
    });
    assert!(matches!(runner.ended().await, Ended::Lost(_)));
    let flush = CancellationToken::new();
    flush.cancel();
    writer.run(&Host::new(), &api.client(), flush).await;
    assert_eq!(
        api.event_texts(NAME, "LeaderElection"),
        ["me became leader", "me stopped leading"]
    );
}
