//! Initialised nodes: addresses and labels follow the machine.

use proto::v1::instance::Power;
use proto::v1::{InstanceResult, instance_result};
use serde_json::json;

use crate::fake_apiserver::FakeApiServer;
use crate::fake_broker::{FakeBroker, unknown};
use crate::node_world::{NodeWorld, Run, found, initialised, number, waiting};

fn label(world: &NodeWorld, name: &str, label: &str) -> serde_json::Value {
    world.api.get("nodes", name).unwrap()["metadata"]["labels"][label].clone()
}

#[tokio::test]
async fn a_hundred_nodes_are_one_look_up_a_period_and_what_is_right_is_not_written() {
    // N-46 to N-49
    let (api, broker) = (FakeApiServer::new(), FakeBroker::start().await);
    for number in 1..=100 {
        api.create("nodes", initialised(&format!("node-{number}"), number, true));
    }
    broker.on_lookup(|key| found(number(&key.node_name), Power::Running));
    let world = NodeWorld::start(api, broker, Run::Refresh).await;
    world.asked_again(1).await;
    world.asked_again(3).await;
    world.stop().await;
    assert!(
        world
            .broker
            .heard()
            .lookups
            .iter()
            .all(|lookup| lookup.keys.len() == 100)
    );
    assert_eq!(
        world.api.writes("/nodes/").len(),
        200,
        "addresses and labels of each, once"
    );
    assert_eq!(
        label(&world, "node-7", "topology.kubernetes.io/zone"),
        json!("zone-1")
    );
}

#[tokio::test]
async fn a_machine_that_changed_its_offering_changes_the_labels() {
    let (api, broker) = (FakeApiServer::new(), FakeBroker::start().await);
    api.create("nodes", initialised("node-1", 1, true));
    broker.on_lookup(|_| found(1, Power::Running));
    let world = NodeWorld::start(api, broker, Run::Refresh).await;
    let small = |api: &FakeApiServer| {
        let node = api.get("nodes", "node-1").unwrap();
        (node["metadata"]["labels"]["node.kubernetes.io/instance-type"] == json!("SmallInstance"))
            .then_some(())
    };
    world.api.wait_for("the first labels", small).await;
    world.broker.on_lookup(|_| {
        let InstanceResult {
            presence: Some(instance_result::Presence::Found(mut machine)),
            ..
        } = found(1, Power::Running)
        else {
            unreachable!()
        };
        machine.instance_type = "Large Instance".to_owned();
        InstanceResult {
            presence: Some(instance_result::Presence::Found(machine)),
            ..InstanceResult::default()
        }
    });
    let large = |api: &FakeApiServer| {
        let node = api.get("nodes", "node-1").unwrap();
        (node["metadata"]["labels"]["beta.kubernetes.io/instance-type"] == json!("LargeInstance"))
            .then_some(())
    };
    world.api.wait_for("the new labels", large).await;
    world.stop().await;
}

#[tokio::test]
async fn nodes_that_wait_and_nodes_without_a_provider_id_are_left_to_others() {
    // N-38, N-39
    let (api, broker) = (FakeApiServer::new(), FakeBroker::start().await);
    api.create("nodes", waiting("node-1"));
    let mut plain = initialised("node-2", 2, true);
    plain["spec"] = json!({});
    api.create("nodes", plain);
    api.create("nodes", initialised("node-3", 3, true));
    broker.on_lookup(|key| found(number(&key.node_name), Power::Running));
    let world = NodeWorld::start(api, broker, Run::Refresh).await;
    world.asked_again(2).await;
    world.stop().await;
    assert!(world.api.writes("node-1").is_empty() && world.api.writes("node-2").is_empty());
}

#[tokio::test]
async fn while_the_machine_is_unknown_only_present_labels_follow_old_ones() {
    // N-30, N-32
    let (api, broker) = (FakeApiServer::new(), FakeBroker::start().await);
    let mut node = initialised("node-1", 1, true);
    node["metadata"]["labels"] =
        json!({"failure-domain.beta.kubernetes.io/zone": "z", "topology.kubernetes.io/zone": "y"});
    api.create("nodes", node);
    broker.on_lookup(|_| unknown("the cloud is away"));
    let world = NodeWorld::start(api, broker, Run::Refresh).await;
    world.asked_again(3).await;
    world.stop().await;
    assert_eq!(label(&world, "node-1", "topology.kubernetes.io/zone"), json!("z"));
    assert_eq!(world.api.writes("/nodes/").len(), 1);
}

#[tokio::test]
async fn a_node_on_another_machine_than_its_provider_id_says_is_told_and_not_written() {
    let (api, broker) = (FakeApiServer::new(), FakeBroker::start().await);
    api.create("nodes", initialised("node-1", 1, true));
    broker.on_lookup(|_| {
        let mut result = found(1, Power::Running);
        if let Some(instance_result::Presence::Found(machine)) = &mut result.presence {
            machine.system_uuid_mismatch = true;
        }
        result
    });
    let world = NodeWorld::start(api, broker, Run::Refresh).await;
    world.told("node-1", "MachineMismatch").await;
    world.stop().await;
    assert!(world.api.writes("/nodes/").is_empty());
    let node = serde_json::from_value(world.api.get("nodes", "node-1").unwrap()).unwrap();
    assert_eq!(
        world.machines.member(&node),
        k8s_agent::node::machines::Member::Unresolved
    );
}
