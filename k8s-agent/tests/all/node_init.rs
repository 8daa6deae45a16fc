//! Nodes that wait to be initialised.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use http::Method;
use proto::v1::instance::Power;
use serde_json::json;

use crate::fake_apiserver::FakeApiServer;
use crate::fake_broker::{FakeBroker, unknown};
use crate::node_world::{NodeWorld, Run, UNINITIALIZED, found, id, initialised, number, waiting};

async fn world(names: &[&str]) -> NodeWorld {
    let (api, broker) = (FakeApiServer::new(), FakeBroker::start().await);
    for name in names {
        api.create("nodes", waiting(name));
    }
    broker.on_lookup(|key| found(number(&key.node_name), Power::Running));
    NodeWorld::start(api, broker, Run::Init).await
}

#[tokio::test]
async fn three_nodes_that_come_together_cost_one_look_up() {
    let world = world(&["node-1", "node-2", "node-3"]).await;
    for name in ["node-1", "node-2", "node-3"] {
        world.tainted(name, UNINITIALIZED, false).await;
        world.told(name, "Synced").await;
    }
    let lookups = world.broker.heard().lookups;
    assert_eq!(
        lookups.iter().map(|lookup| lookup.keys.len()).collect::<Vec<_>>(),
        [3]
    );
    let node = world.api.get("nodes", "node-2").unwrap();
    assert_eq!(
        node["spec"]["providerID"],
        json!(format!("external-cloudstack://{}", id(2)))
    );
    assert_eq!(
        node["spec"]["taints"],
        json!([{"key": "example/other", "effect": "NoExecute"}])
    );
    assert_eq!(
        node["status"]["addresses"],
        json!([{"type": "InternalIP", "address": "10.1.1.2"}, {"type": "Hostname", "address": "node-2"}])
    );
    let labels = &node["metadata"]["labels"];
    for label in [
        "beta.kubernetes.io/instance-type",
        "node.kubernetes.io/instance-type",
    ] {
        assert_eq!(labels[label], json!("SmallInstance"));
    }
    for label in [
        "topology.kubernetes.io/zone",
        "failure-domain.beta.kubernetes.io/region",
    ] {
        assert_eq!(labels[label], json!("zone-1"));
    }
    world.stop().await;
}

#[tokio::test]
async fn addresses_are_there_before_the_taint_goes_and_nothing_else_is_written() {
    let world = world(&["node-1"]).await;
    world.tainted("node-1", UNINITIALIZED, false).await;
    world.stop().await;
    let writes: Vec<String> = world
        .api
        .writes("/nodes/")
        .iter()
        .map(|write| format!("{} {}", write.method, write.path))
        .collect();
    assert_eq!(
        writes,
        ["PATCH /api/v1/nodes/node-1/status", "PATCH /api/v1/nodes/node-1"]
    );
}

#[tokio::test]
async fn a_conflict_is_read_again_and_written_again() {
    // N-60
    let world = {
        let (api, broker) = (FakeApiServer::new(), FakeBroker::start().await);
        api.create("nodes", waiting("node-1"));
        broker.on_lookup(|_| found(1, Power::Running));
        let mut left = 2;
        api.refuse(move |method, path, _| {
            let main = *method == Method::PATCH && path.ends_with("/nodes/node-1");
            (main && {
                left -= 1;
                left >= 0
            })
            .then_some((409, "the object has been modified"))
        });
        NodeWorld::start(api, broker, Run::Init).await
    };
    world.tainted("node-1", UNINITIALIZED, false).await;
    assert_eq!(
        world.broker.heard().lookups.len(),
        1,
        "the machine is asked for once"
    );
    world.stop().await;
}

#[tokio::test]
async fn a_node_deleted_meanwhile_is_no_fault_and_is_not_asked_for_again() {
    // N-61
    let (api, broker) = (FakeApiServer::new(), FakeBroker::start().await);
    api.create("nodes", waiting("node-1"));
    let (deleting, once) = (api.clone(), AtomicBool::new(true));
    broker.on_lookup(move |key| {
        if key.node_name == "node-1" && once.swap(false, Ordering::SeqCst) {
            deleting.delete("nodes", "node-1");
        }
        found(number(&key.node_name), Power::Running)
    });
    let world = NodeWorld::start(api, broker, Run::Init).await;
    world
        .broker
        .wait_for("the first look-up", |heard| {
            (!heard.lookups.is_empty()).then_some(())
        })
        .await;
    world.api.create("nodes", waiting("node-2"));
    world.tainted("node-2", UNINITIALIZED, false).await;
    let asked: Vec<String> = world
        .broker
        .heard()
        .lookups
        .iter()
        .flat_map(|it| &it.keys)
        .map(|key| key.node_name.clone())
        .collect();
    assert_eq!(asked, ["node-1", "node-2"]);
    world.stop().await;
}

#[tokio::test]
async fn a_machine_that_is_not_found_yet_leaves_the_node_as_it_is_until_it_is_found() {
    // N-28, N-29
    let (api, broker) = (FakeApiServer::new(), FakeBroker::start().await);
    api.create("nodes", waiting("node-1"));
    let there = Arc::new(AtomicBool::new(false));
    let seen = Arc::clone(&there);
    broker.on_lookup(move |_| {
        if seen.load(Ordering::SeqCst) {
            found(1, Power::Running)
        } else {
            unknown("not in the list")
        }
    });
    let world = NodeWorld::start(api, broker, Run::Init).await;
    world.asked_again(2).await;
    assert!(world.api.writes("/nodes/").is_empty());
    there.store(true, Ordering::SeqCst);
    world.tainted("node-1", UNINITIALIZED, false).await;
    world.stop().await;
}

#[tokio::test]
async fn a_node_that_fails_for_long_says_why() {
    let (api, broker) = (FakeApiServer::new(), FakeBroker::start().await);
    api.create("nodes", waiting("node-1"));
    broker.on_lookup(|_| unknown("two machines are called node-1"));
    let world = NodeWorld::start(api, broker, Run::Init).await;
    world.told("node-1", "CloudNodeInitFailed").await;
    assert_eq!(
        world.api.event_texts("node-1", "CloudNodeInitFailed"),
        ["two machines are called node-1"]
    );
    world.asked_again(5).await;
    assert_eq!(world.api.events("node-1").len(), 1, "one event, counted");
    world.stop().await;
}

#[tokio::test]
async fn a_refused_address_keeps_the_taint_and_is_tried_again() {
    // N-64
    let (api, broker) = (FakeApiServer::new(), FakeBroker::start().await);
    api.create("nodes", waiting("node-1"));
    broker.on_lookup(|_| found(1, Power::Running));
    api.refuse(|method, path, _| {
        (*method == Method::PATCH && path.ends_with("/status")).then_some((403, "nodes/status is forbidden"))
    });
    let world = NodeWorld::start(api, broker, Run::Init).await;
    world.asked_again(3).await;
    let writes = world.api.writes("/nodes/node-1");
    assert!(
        writes.iter().all(|write| write.path.ends_with("/status")),
        "{writes:?}"
    );
    world.api.refuse_nothing();
    world.tainted("node-1", UNINITIALIZED, false).await;
    world.stop().await;
}

#[tokio::test]
async fn a_node_that_waits_for_another_cloud_is_never_asked_for() {
    let (api, broker) = (FakeApiServer::new(), FakeBroker::start().await);
    let mut foreign = waiting("node-9");
    foreign["spec"]["providerID"] = json!("aws:///eu-central-1a/i-1");
    api.create("nodes", foreign);
    api.create("nodes", initialised("node-8", 8, true));
    api.create("nodes", waiting("node-1"));
    broker.on_lookup(|key| found(number(&key.node_name), Power::Running));
    let world = NodeWorld::start(api, broker, Run::Init).await;
    world.tainted("node-1", UNINITIALIZED, false).await;
    world.stop().await;
    assert_eq!(
        world
            .broker
            .heard()
            .lookups
            .iter()
            .map(|it| it.keys.len())
            .sum::<usize>(),
        1
    );
    assert!(world.api.writes("node-9").is_empty() && world.api.writes("node-8").is_empty());
}

#[tokio::test]
async fn provided_addresses_that_the_machine_lacks_are_told_and_keep_the_taint() {
    // N-10
    let (api, broker) = (FakeApiServer::new(), FakeBroker::start().await);
    let mut node = waiting("node-1");
    node["metadata"]["annotations"] = json!({"alpha.kubernetes.io/provided-node-ip": "10.9.9.9"});
    api.create("nodes", node);
    broker.on_lookup(|_| found(1, Power::Running));
    let world = NodeWorld::start(api, broker, Run::Init).await;
    world.told("node-1", "ProvidedNodeIPNotFound").await;
    assert!(world.api.writes("/nodes/node-1").is_empty());
    world.api.change("nodes", "node-1", |node| {
        node["metadata"]["annotations"] = json!({"alpha.kubernetes.io/provided-node-ip": "10.1.1.1"});
    });
    world.tainted("node-1", UNINITIALIZED, false).await;
    world.stop().await;
}

#[tokio::test]
async fn a_broker_that_comes_back_finds_the_nodes_still_waiting() {
    let (api, broker) = (FakeApiServer::new(), FakeBroker::start().await);
    broker.on_lookup(|_| found(1, Power::Running));
    let world = NodeWorld::start(api, broker, Run::Init).await;
    world.broker.leave().await;
    world.api.create("nodes", waiting("node-1"));
    world.broker.listen().await;
    world.tainted("node-1", UNINITIALIZED, false).await;
    world.stop().await;
}

#[tokio::test]
async fn nothing_is_written_by_a_process_that_does_not_lead_any_more() {
    let (api, broker) = (FakeApiServer::new(), FakeBroker::start().await);
    broker.on_lookup(|_| found(1, Power::Running));
    let world = NodeWorld::start(api, broker, Run::Init).await;
    world.throne.end();
    world.api.create("nodes", waiting("node-1"));
    world.asked_again(2).await;
    world.stop().await;
    assert!(world.api.writes("/nodes/").is_empty());
}
