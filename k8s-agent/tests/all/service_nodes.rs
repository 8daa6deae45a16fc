//! Changes of the nodes reach every load balancer, once and side by side.

use std::time::Duration;

use k8s_agent::node::presence::Presence;
use proto::v1::{EnsureLoadBalancerRequest, WishMember, wish_member};
use proto::{Fault, FaultKind};
use serde_json::json;

use crate::fake_apiserver::FakeApiServer;
use crate::fake_broker::{FakeBroker, Heard, address_of, settled};
use crate::service_world::{World, add_node, machine, service};

const EXCLUDE: &str = "node.kubernetes.io/exclude-from-external-load-balancers";

fn members(request: &EnsureLoadBalancerRequest) -> &[WishMember] {
    &request.wish.as_ref().unwrap().members
}

/// Names of members in the newest wish of a Service.
fn newest(heard: &Heard, name: &str) -> Vec<String> {
    heard
        .ensures
        .iter()
        .rfind(|it| it.r#ref.as_ref().is_some_and(|it| it.name == name))
        .map(|it| {
            members(it)
                .iter()
                .map(|member| member.node_name.clone())
                .collect()
        })
        .unwrap_or_default()
}

async fn with_services(count: usize) -> (World, Vec<String>) {
    let world = World::new().await;
    let names: Vec<_> = (0..count).map(|number| format!("web-{number}")).collect();
    for name in &names {
        world.api.create("services", service(name));
    }
    for name in &names {
        world.served(name).await;
        world.told(name, "EnsuredLoadBalancer").await;
    }
    (world, names)
}

/// Waits until the newest wish of every Service has these members.
async fn all_have(world: &World, names: &[String], expected: &[&str]) {
    let all = |heard: &Heard| {
        names
            .iter()
            .all(|name| newest(heard, name) == expected)
            .then_some(())
    };
    world
        .broker
        .wait_for(&format!("all with {expected:?}"), all)
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn s_50_s_51_without_load_balancers_a_change_of_the_nodes_asks_nobody() {
    let world = World::new().await;
    let mut internal = service("internal");
    internal["spec"]["type"] = json!("NodePort");
    world.api.create("services", internal);
    add_node(&world.api, 3);
    world.settles().await;
    let asked = world.broker.heard().ensures;
    assert!(
        !asked
            .iter()
            .any(|it| it.r#ref.as_ref().is_some_and(|it| it.name == "internal")),
        "{asked:#?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn s_56_s_61_s_70_nodes_that_come_together_reach_every_service_in_one_call_each() {
    let (world, names) = with_services(4).await;
    add_node(&world.api, 3);
    add_node(&world.api, 4);
    all_have(&world, &names, &["node-1", "node-2", "node-3", "node-4"]).await;
    world.settles().await;
    let heard = world.broker.heard();
    let calls = heard
        .ensures
        .iter()
        .filter(|it| it.r#ref.as_ref().is_some_and(|it| names.contains(&it.name)))
        .count();
    assert_eq!(calls, 4 + 4, "one each for the first wish and for the nodes");
    for name in &names {
        world.told(name, "UpdatedLoadBalancer").await;
        assert_eq!(
            world.api.writes(&format!("services/{name}")).len(),
            2,
            "a change of the nodes writes nothing"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn s_63_s_69_readiness_and_other_taints_and_labels_ask_nobody() {
    let (world, names) = with_services(2).await;
    world.api.change("nodes", "node-1", |node| {
        node["status"]["conditions"][0]["status"] = json!("False");
    });
    world.api.change("nodes", "node-1", |node| {
        node["metadata"]["labels"] = json!({"a": "b"});
    });
    world.api.change("nodes", "node-2", |node| {
        node["spec"]["taints"] = json!([{"key": "a", "effect": "NoSchedule"}]);
    });
    world.api.change("nodes", "node-2", |node| {
        node["metadata"]["labels"] = json!({EXCLUDE: "true"});
    });
    all_have(&world, &names, &["node-1"]).await;
    world.settles().await;
    let heard = world.broker.heard();
    let calls = heard
        .ensures
        .iter()
        .filter(|it| it.r#ref.as_ref().is_some_and(|it| names.contains(&it.name)))
        .count();
    assert_eq!(calls, 2 + 2, "only the excluded node counted");
}

#[tokio::test(flavor = "multi_thread")]
async fn s_64_s_67_s_68_nodes_that_go_leave_every_balancer() {
    let (world, names) = with_services(3).await;
    add_node(&world.api, 3);
    all_have(&world, &names, &["node-1", "node-2", "node-3"]).await;
    world.api.change("nodes", "node-1", |node| {
        node["spec"]["taints"] = json!([{"key": "ToBeDeletedByClusterAutoscaler", "effect": "NoSchedule"}]);
    });
    all_have(&world, &names, &["node-2", "node-3"]).await;
    world.api.delete("nodes", "node-2");
    all_have(&world, &names, &["node-3"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn s_165_without_nodes_the_balancer_is_asked_for_all_the_same_and_an_event_says_so() {
    let world = World::start(FakeApiServer::new(), FakeBroker::start().await).await;
    world.api.create("services", service("web"));
    world.served("web").await;
    world.told("web", "UnAvailableLoadBalancer").await;
    assert!(members(&world.broker.heard().ensures[0]).is_empty());
    world.settles().await;
    assert_eq!(world.api.event_texts("web", "UnAvailableLoadBalancer").len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn s_75_s_102_a_node_is_unresolved_until_its_provider_id_is_there() {
    let (world, names) = with_services(1).await;
    world.api.create(
        "nodes",
        json!({"metadata": {"name": "node-3"}, "spec": {}, "status": {}}),
    );
    all_have(&world, &names, &["node-1", "node-2", "node-3"]).await;
    let last = world.broker.heard().ensures.last().cloned().unwrap();
    assert_eq!(
        members(&last)[2].machine,
        Some(wish_member::Machine::Unresolved(true))
    );
    world.api.change("nodes", "node-3", |node| {
        node["spec"]["providerID"] = json!(format!("external-cloudstack://{}", machine(3)));
    });
    let resolved = |heard: &Heard| {
        let machine = members(heard.ensures.last()?).get(2)?.machine.clone()?;
        matches!(machine, wish_member::Machine::MachineId(_)).then_some(())
    };
    world.broker.wait_for("the machine", resolved).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_machine_that_is_proved_gone_is_told_although_its_node_did_not_change() {
    let (world, _) = with_services(1).await;
    let uid = world.api.get("nodes", "node-1").unwrap()["metadata"]["uid"]
        .as_str()
        .unwrap()
        .to_owned();
    assert!(world.context.machines.hear(&uid, &Presence::read(gone()), None));
    let gone = |heard: &Heard| {
        let machine = members(heard.ensures.last()?).first()?.machine.clone()?;
        (machine == wish_member::Machine::GoneMachineId(crate::service_world::machine(1))).then_some(())
    };
    world.broker.wait_for("the machine is gone", gone).await;
}

fn gone() -> proto::v1::InstanceResult {
    let proof = proto::v1::GoneProof {
        first_list_id: "list-1".to_owned(),
        second_list_id: "list-2".to_owned(),
        looked_up_at: Some(prost_types::Timestamp { seconds: 1, nanos: 0 }),
        witness_machine_id: machine(2),
    };
    proto::v1::InstanceResult {
        presence: Some(proto::v1::instance_result::Presence::Gone(proof)),
        list_id: "list-2".to_owned(),
        observed_at: None,
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn nodes_of_another_provider_are_left_out_and_named() {
    let (world, names) = with_services(1).await;
    world.api.create(
        "nodes",
        json!({"metadata": {"name": "elsewhere"}, "spec": {"providerID": "aws:///eu/i-1"}}),
    );
    add_node(&world.api, 3);
    all_have(&world, &names, &["node-1", "node-2", "node-3"]).await;
    world.told("web-0", "NodeNotEligible").await;
    assert!(world.api.event_texts("web-0", "NodeNotEligible")[0].ends_with(": elsewhere"));
}

#[tokio::test(flavor = "multi_thread")]
async fn s_62_a_service_whose_nodes_could_not_be_brought_is_tried_again_and_says_so_once() {
    let (world, names) = with_services(3).await;
    let left = std::sync::atomic::AtomicU32::new(6);
    world.broker.on_ensure(move |request| {
        let fails = left.fetch_update(
            std::sync::atomic::Ordering::SeqCst,
            std::sync::atomic::Ordering::SeqCst,
            |left| left.checked_sub(1),
        );
        if fails.is_ok() {
            return Err(Fault::new(FaultKind::Busy, "ROUTER_BUSY", "the router is busy"));
        }
        Ok(settled(&[&address_of(request)]))
    });
    add_node(&world.api, 3);
    all_have(&world, &names, &["node-1", "node-2", "node-3"]).await;
    for name in &names {
        world.told(name, "UpdatedLoadBalancer").await;
        assert!(world.api.event_texts(name, "UpdateLoadBalancerFailed").len() <= 1);
    }
    let failed: usize = names
        .iter()
        .map(|name| world.api.event_texts(name, "UpdateLoadBalancerFailed").len())
        .sum();
    assert!(failed >= 1);
    assert_eq!(world.broker.heard().most_at_once_per_service, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_change_of_the_nodes_reaches_twenty_services_side_by_side() {
    let (world, names) = with_services(20).await;
    world.broker.take_time(Duration::from_millis(400));
    let before = world.broker.heard().most_at_once;
    add_node(&world.api, 3);
    all_have(&world, &names, &["node-1", "node-2", "node-3"]).await;
    for name in &names {
        world.told(name, "UpdatedLoadBalancer").await;
    }
    let heard = world.broker.heard();
    assert_eq!(heard.most_at_once.max(before), 20, "all at the same time");
    assert_eq!(heard.most_at_once_per_service, 1, "and never two of one Service");
    assert!(world.context.metrics.node_set_syncs.get() >= 20);
}

#[tokio::test(flavor = "multi_thread")]
async fn s_90_s_175_a_service_that_changes_while_the_nodes_are_brought_gets_both_in_one_order() {
    let (world, names) = with_services(2).await;
    world.broker.take_time(Duration::from_millis(200));
    add_node(&world.api, 3);
    world
        .broker
        .wait_for("the nodes are brought to both", |heard| {
            heard.ensures.get(3).map(|_| ())
        })
        .await;
    world.api.change("services", "web-1", |web| {
        web["spec"]["ports"][0]["port"] = json!(81);
    });
    add_node(&world.api, 4);
    all_have(&world, &names, &["node-1", "node-2", "node-3", "node-4"]).await;
    world.broker.take_time(Duration::ZERO);
    world.settles().await;
    let heard = world.broker.heard();
    for name in &names {
        let counts: Vec<_> = heard
            .ensures
            .iter()
            .filter(|it| it.r#ref.as_ref().is_some_and(|it| it.name == *name))
            .map(|it| members(it).len())
            .collect();
        assert!(counts.is_sorted(), "no stale list after a newer one: {counts:?}");
    }
}
