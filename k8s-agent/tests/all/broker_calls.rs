//! What every call to the broker has in common, over a real socket.

use std::time::Duration;

use k8s_agent::broker::Broker;
use k8s_agent::election::{Leadership, Throne};
use k8s_agent::lease::Fence;
use k8s_agent::metrics::Metrics;
use proto::FaultKind;
use proto::v1::{self, DescribeResponse, InstanceKey, Limits};
use runtime::host::Host;
use runtime::link::Link;

use crate::fake_broker::FakeBroker;

struct Line {
    broker: FakeBroker,
    caller: Broker,
    throne: Throne,
    host: Host,
}

async fn caller() -> Line {
    let (broker, host) = (FakeBroker::start().await, Host::new());
    let (throne, leadership) = Leadership::contested();
    let link = Link::connect(&host, vec![broker.address()], None);
    let caller = Broker::new(link, leadership, Metrics::default(), "process-1".to_owned());
    caller.set_cluster_uid("cluster-1".to_owned());
    Line {
        broker,
        caller,
        throne,
        host,
    }
}

fn keys(count: usize) -> Vec<InstanceKey> {
    (0..count)
        .map(|n| InstanceKey {
            node_uid: n.to_string(),
            ..InstanceKey::default()
        })
        .collect()
}

fn ensure(uid: &str) -> v1::EnsureLoadBalancerRequest {
    let reference = v1::LoadBalancerRef {
        uid: uid.to_owned(),
        ..v1::LoadBalancerRef::default()
    };
    v1::EnsureLoadBalancerRequest {
        r#ref: Some(reference),
        ..v1::EnsureLoadBalancerRequest::default()
    }
}

impl Line {
    fn ready(&self) -> String {
        self.host.health().ready(true, &[]).text
    }

    /// Describes until the description is like this.
    async fn described(&self, like: impl Fn(&DescribeResponse) -> bool) {
        let mut descriptions = self.caller.descriptions();
        let seen = descriptions.wait_for(|it| it.as_deref().is_some_and(&like));
        tokio::time::timeout(Duration::from_secs(10), seen)
            .await
            .expect("a description")
            .unwrap();
    }

    fn describe(&self) {
        let (caller, gate, stop) = (
            self.caller.clone(),
            self.host.gate("broker"),
            self.host.shutdown(),
        );
        self.host.spawn(
            "describe",
            async move { caller.keep_describing(gate, stop).await },
        );
    }

    async fn becomes(&self, text: &str) {
        let reached = async {
            while !self.ready().contains(text) {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(15), reached)
            .await
            .unwrap_or_else(|_| panic!("never {text}: {}", self.ready()));
    }
}

#[tokio::test]
async fn more_keys_than_a_call_may_have_are_asked_for_in_several_and_answered_in_order() {
    let world = caller().await;
    world.broker.on_lookup(|key| v1::InstanceResult {
        list_id: key.node_uid.clone(),
        ..v1::InstanceResult::default()
    });
    let results = world.caller.lookup_instances(keys(1201)).await.unwrap();
    assert!(
        results
            .iter()
            .enumerate()
            .all(|(n, result)| result.list_id == n.to_string())
    );
    let sizes: Vec<usize> = world
        .broker
        .heard()
        .lookups
        .iter()
        .map(|lookup| lookup.keys.len())
        .collect();
    assert_eq!(sizes, [500, 500, 201]);
}

#[tokio::test]
async fn a_broker_with_a_lower_limit_is_heeded() {
    let world = caller().await;
    world.broker.describe(|it| {
        it.limits = Some(Limits {
            max_lookup_keys: 2,
            ..Limits::default()
        });
    });
    world.describe();
    world.described(|it| it.limits.is_some()).await;
    assert_eq!(world.caller.lookup_instances(keys(5)).await.unwrap().len(), 5);
    assert!(
        world
            .broker
            .heard()
            .lookups
            .iter()
            .all(|lookup| lookup.keys.len() <= 2)
    );
}

#[tokio::test]
async fn a_writing_call_carries_the_fence_and_every_call_says_who_calls() {
    let world = caller().await;
    world.throne.lead(
        Fence {
            lease_uid: "lease-1".to_owned(),
            transitions: 4,
        },
        None,
    );
    world.caller.ensure_load_balancer(ensure("a")).await.unwrap();
    world.caller.lookup_instances(keys(1)).await.unwrap();
    let heard = world.broker.heard();
    assert_eq!(
        heard.ensures[0].fence,
        Some(v1::Fence {
            lease_uid: "lease-1".to_owned(),
            transitions: 4
        })
    );
    for caller in [heard.ensures[0].caller.clone(), heard.lookups[0].caller.clone()] {
        let caller = caller.unwrap();
        assert_eq!(
            (caller.cluster_uid.as_str(), caller.process_id.as_str()),
            ("cluster-1", "process-1")
        );
    }
}

#[tokio::test]
async fn without_the_lease_no_writing_call_begins_and_a_running_one_is_given_up() {
    let world = caller().await;
    let fault = world.caller.ensure_load_balancer(ensure("a")).await.unwrap_err();
    assert_eq!(fault.reason, "NOT_LEADING");
    assert!(world.broker.heard().ensures.is_empty());
    world.throne.lead(
        Fence {
            lease_uid: "lease-1".to_owned(),
            transitions: 4,
        },
        None,
    );
    world.broker.be_stuck(true);
    let (answer, ()) = tokio::join!(world.caller.ensure_load_balancer(ensure("a")), async {
        world
            .broker
            .wait_for("the call", |heard| (heard.ensures.len() == 1).then_some(()))
            .await;
        world.throne.end();
    });
    assert_eq!(answer.unwrap_err().reason, "NOT_LEADING");
    world
        .broker
        .wait_for("the end of the call", |heard| {
            (heard.abandoned == 1).then_some(())
        })
        .await;
}

#[tokio::test]
async fn readiness_follows_the_broker_and_says_why() {
    let world = caller().await;
    world.describe();
    world.becomes("[+]broker ok").await;
    world.broker.leave().await;
    let fault = world.caller.lookup_instances(keys(1)).await.unwrap_err();
    assert_eq!(fault.kind, FaultKind::Unreachable);
    assert!(
        fault.text.contains("can't be reached") && fault.text.contains("broker.sock"),
        "{}",
        fault.text
    );
    world.becomes("[-]broker failed").await;
    assert!(
        world.host.health().alive(false, &[]).ok,
        "liveness does not depend on the broker"
    );
    world.broker.listen().await;
    world.becomes("[+]broker ok").await;
    world.broker.describe(|it| {
        it.contract_min = 7;
        it.contract_max = 9;
    });
    world.becomes("speaks versions 7 to 9").await;
}

#[tokio::test]
async fn features_are_offered_only_by_their_word() {
    let world = caller().await;
    assert!(!world.caller.offers("plan"));
    world.broker.describe(|it| it.features = vec!["plan".to_owned()]);
    world.describe();
    world.described(|it| !it.features.is_empty()).await;
    assert!(world.caller.offers("plan") && !world.caller.offers("pla"));
}
