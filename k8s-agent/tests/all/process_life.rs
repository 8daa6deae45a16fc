//! The whole process, but for its command line: up, standing by, working, and down.

use std::ffi::OsString;
use std::time::Duration;

use k8s_agent::apiserver::Clients;
use k8s_agent::args::{CommandLine, Settings};
use k8s_agent::metrics::Metrics;
use proto::v1::instance::Power;
use runtime::host::Host;
use serde_json::json;

use crate::fake_apiserver::FakeApiServer;
use crate::fake_broker::FakeBroker;
use crate::node_world::{UNINITIALIZED, found, has_taint, number, panics, waiting};

const LEASE: &str = "cloud-controller-manager";

pub(crate) struct Process {
    host: Host,
    running: tokio::task::JoinHandle<anyhow::Result<()>>,
}

#[expect(clippy::disallowed_methods, reason = "the test ends the task itself")]
pub(crate) fn start(api: &FakeApiServer, flags: &[&str]) -> Process {
    let fixed = [
        "k8s-agent",
        "--secure-port=0",
        "--leader-elect-lease-duration=2s",
        "--leader-elect-renew-deadline=1s",
        "--leader-elect-retry-period=50ms",
    ];
    let argv = fixed.iter().chain(flags).map(OsString::from);
    let settings = Settings::try_from(CommandLine::read(argv).unwrap().flags).unwrap();
    let clients = Clients {
        work: api.client(),
        lease: api.client(),
    };
    let host = Host::new();
    let running = tokio::spawn(k8s_agent::process::run_with(
        host.clone(),
        settings,
        clients,
        Metrics::default(),
    ));
    Process { host, running }
}

impl Process {
    /// Ends it as a signal does; answers the failure that it ends with.
    pub(crate) async fn end(self) -> Option<String> {
        self.host.shutdown().cancel();
        self.ended().await
    }

    /// How often it panicked, as its metric says.
    pub(crate) fn panics(&self) -> u32 {
        panics(&self.host)
    }

    async fn ended(self) -> Option<String> {
        tokio::time::timeout(Duration::from_secs(15), self.running)
            .await
            .expect("an end")
            .unwrap()
            .unwrap();
        self.host.finish(Duration::from_secs(5)).await
    }
}

pub(crate) async fn broker() -> FakeBroker {
    let broker = FakeBroker::start().await;
    broker.on_lookup(|key| found(number(&key.node_name), Power::Running));
    broker
}

pub(crate) fn cluster() -> FakeApiServer {
    let api = FakeApiServer::new();
    api.create(
        "namespaces",
        json!({"metadata": {"name": "kube-system", "uid": "cluster-1"}}),
    );
    api.create("nodes", waiting("node-1"));
    api
}

pub(crate) fn with_broker(broker: &FakeBroker) -> [String; 2] {
    [
        "--cloud-provider=external-cloudstack".to_owned(),
        format!("--broker={}", broker.address()),
    ]
}

pub(crate) async fn is_initialised(api: &FakeApiServer, name: &str) {
    let done = |api: &FakeApiServer| {
        api.get("nodes", name)
            .filter(|node| !has_taint(node, UNINITIALIZED))
            .map(drop)
    };
    api.wait_for(&format!("{name} is initialised"), done).await;
}

#[tokio::test]
async fn a_leader_works_and_leaves_the_lease_free_and_its_events_written() {
    let (api, broker) = (cluster(), broker().await);
    let flags = with_broker(&broker);
    let process = start(&api, &flags.each_ref().map(String::as_str));
    is_initialised(&api, "node-1").await;
    assert_eq!(process.end().await, None);
    let spec = api.get("leases", LEASE).unwrap()["spec"].clone();
    assert_eq!(spec["holderIdentity"], json!(""));
    assert!(api.events("node-1").contains(&"Synced".to_owned()));
    assert!(api.events(LEASE).contains(&"LeaderElection".to_owned()));
    let lookup = broker.heard().lookups[0].clone();
    assert_eq!(lookup.caller.unwrap().cluster_uid, "cluster-1");
}

/// What the events on the lease say, without the identity of the process.
fn told_of_the_lease(api: &FakeApiServer) -> Vec<String> {
    let texts = api.event_texts(LEASE, "LeaderElection");
    texts
        .iter()
        .map(|text| text.split_once(' ').unwrap().1.to_owned())
        .collect()
}

#[tokio::test]
async fn a_leader_that_is_told_to_end_says_on_the_lease_that_it_stopped_leading() {
    let (api, broker) = (cluster(), broker().await);
    let flags = with_broker(&broker);
    let process = start(&api, &flags.each_ref().map(String::as_str));
    is_initialised(&api, "node-1").await;
    let held = api.get("leases", LEASE).unwrap()["spec"]["holderIdentity"].clone();
    assert_eq!(process.end().await, None);
    assert_eq!(told_of_the_lease(&api), ["became leader", "stopped leading"]);
    let last = api.event_texts(LEASE, "LeaderElection").pop().unwrap();
    assert_eq!(json!(last.split_once(' ').unwrap().0), held);
}

#[tokio::test]
async fn a_leader_that_can_not_write_its_last_event_gives_the_lease_up_and_ends_all_the_same() {
    let (api, broker) = (cluster(), broker().await);
    let flags = with_broker(&broker);
    let process = start(&api, &flags.each_ref().map(String::as_str));
    is_initialised(&api, "node-1").await;
    api.refuse(|method, path, _| {
        (*method == http::Method::POST && path.ends_with("/events")).then_some((503, "etcd is away"))
    });
    assert_eq!(process.end().await, None);
    assert_eq!(
        api.get("leases", LEASE).unwrap()["spec"]["holderIdentity"],
        json!("")
    );
}

#[tokio::test]
async fn a_standby_touches_nothing_and_takes_over_when_the_lease_is_free() {
    let (api, broker) = (cluster(), broker().await);
    let now = k8s_agent::apiserver::timestamp();
    let spec = json!({"holderIdentity": "go-controller", "leaseDurationSeconds": 3600, "leaseTransitions": 7,
                      "renewTime": format!("{now:.6}"), "acquireTime": format!("{now:.6}")});
    api.create(
        "leases",
        json!({"metadata": {"name": LEASE, "namespace": "kube-system"}, "spec": spec}),
    );
    let flags = with_broker(&broker);
    let process = start(&api, &flags.each_ref().map(String::as_str));
    api.wait_for("some looks at the lease", |api| {
        (api.requests("/leases") >= 5).then_some(())
    })
    .await;
    assert_eq!(
        api.requests("/nodes") + api.requests("/services"),
        0,
        "a standby watches nothing"
    );
    assert!(api.writes("").is_empty() && broker.heard().lookups.is_empty());
    api.change("leases", LEASE, |lease| {
        lease["spec"]["holderIdentity"] = json!("");
    });
    is_initialised(&api, "node-1").await;
    assert_eq!(
        api.get("leases", LEASE).unwrap()["spec"]["leaseTransitions"],
        json!(8)
    );
    assert_eq!(process.end().await, None);
}

#[tokio::test]
async fn a_standby_that_never_led_says_nothing_when_it_ends() {
    let (api, broker) = (cluster(), broker().await);
    let now = k8s_agent::apiserver::timestamp();
    let spec = json!({"holderIdentity": "another", "leaseDurationSeconds": 3600,
                      "renewTime": format!("{now:.6}"), "acquireTime": format!("{now:.6}")});
    let lease = json!({"metadata": {"name": LEASE, "namespace": "kube-system"}, "spec": spec});
    api.create("leases", lease);
    let flags = with_broker(&broker);
    let process = start(&api, &flags.each_ref().map(String::as_str));
    api.wait_for("a look at the lease", |api| {
        (api.requests("/leases") >= 1).then_some(())
    })
    .await;
    assert_eq!(process.end().await, None);
    assert!(api.events(LEASE).is_empty());
}

#[tokio::test]
async fn losing_the_lease_ends_the_process_with_a_failure() {
    let (api, broker) = (cluster(), broker().await);
    let flags = with_broker(&broker);
    let process = start(&api, &flags.each_ref().map(String::as_str));
    is_initialised(&api, "node-1").await;
    api.change("leases", LEASE, |lease| {
        lease["spec"]["holderIdentity"] = json!("thief");
    });
    let failure = process.ended().await.expect("a failure");
    assert!(
        failure.contains("lease is lost") && failure.contains("thief"),
        "{failure}"
    );
    assert_eq!(
        api.get("leases", LEASE).unwrap()["spec"]["holderIdentity"],
        json!("thief")
    );
}

#[tokio::test]
async fn an_api_server_that_is_away_at_the_start_is_waited_for() {
    let (api, broker) = (cluster(), broker().await);
    api.refuse(|_, _, _| Some((503, "starting")));
    let flags = with_broker(&broker);
    let process = start(&api, &flags.each_ref().map(String::as_str));
    api.wait_for("some attempts", |api| {
        (api.requests("/leases") >= 3).then_some(())
    })
    .await;
    api.refuse_nothing();
    is_initialised(&api, "node-1").await;
    assert_eq!(process.end().await, None);
}

#[tokio::test]
async fn without_the_right_to_read_the_namespace_the_cluster_has_no_uid_and_the_rest_works() {
    let (api, broker) = (cluster(), broker().await);
    api.refuse(|_, path, _| {
        path.ends_with("/namespaces/kube-system")
            .then_some((403, "namespaces is forbidden"))
    });
    let flags = with_broker(&broker);
    let process = start(&api, &flags.each_ref().map(String::as_str));
    is_initialised(&api, "node-1").await;
    assert_eq!(process.end().await, None);
    assert_eq!(broker.heard().lookups[0].caller.as_ref().unwrap().cluster_uid, "");
}

#[tokio::test]
async fn a_uid_that_may_be_read_only_later_is_told_to_the_broker_from_then_on() {
    let (api, broker) = (cluster(), broker().await);
    api.refuse(|_, path, _| {
        path.ends_with("/namespaces/kube-system")
            .then_some((403, "namespaces is forbidden"))
    });
    let [provider, address] = with_broker(&broker);
    // The node is not Ready, so it is looked up again and again.
    let flags = [&provider, &address, "--node-monitor-period=20ms"].map(|flag| flag as &str);
    let process = start(&api, &flags);
    is_initialised(&api, "node-1").await;
    let said = |lookup: &proto::v1::LookupInstancesRequest| lookup.caller.clone().unwrap().cluster_uid;
    assert!(
        broker
            .heard()
            .lookups
            .iter()
            .all(|lookup| said(lookup).is_empty())
    );
    api.refuse_nothing();
    broker
        .wait_for("a look-up with the cluster's UID", |heard| {
            heard
                .lookups
                .last()
                .filter(|last| said(last) == "cluster-1")
                .map(drop)
        })
        .await;
    assert_eq!(process.end().await, None);
}

#[tokio::test]
async fn without_election_the_process_works_from_its_start_and_writes_no_lease() {
    let (api, broker) = (cluster(), broker().await);
    let [provider, address] = with_broker(&broker);
    let process = start(&api, &[&provider, &address, "--leader-elect=false"]);
    is_initialised(&api, "node-1").await;
    assert_eq!(process.end().await, None);
    assert!(api.get("leases", LEASE).is_none());
}

#[tokio::test]
async fn controllers_that_are_switched_off_do_nothing() {
    let (api, broker) = (cluster(), broker().await);
    let [provider, address] = with_broker(&broker);
    let process = start(
        &api,
        &[
            &provider,
            &address,
            "--controllers=*,-cloud-node",
            "--node-monitor-period=20ms",
        ],
    );
    broker
        .wait_for("looks at nodes that are not Ready", |heard| {
            (heard.lookups.len() > 3).then_some(())
        })
        .await;
    assert_eq!(process.end().await, None);
    assert!(api.writes("/nodes/").is_empty());
}
