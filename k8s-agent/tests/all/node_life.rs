//! Nodes that are not Ready: deleted, tainted, or held.

use std::sync::Arc;

use http::Method;
use parking_lot::Mutex;
use proto::v1::instance::Power;
use proto::v1::{self, InstanceResult, instance_result, unknown_reason};
use serde_json::{Value, json};

use crate::fake_apiserver::FakeApiServer;
use crate::fake_broker::{FakeBroker, unknown};
use crate::node_world::{NodeWorld, Run, SHUTDOWN, found, gone, id, initialised, result};

/// What look-ups answer, to be changed while they run.
type Answer = Arc<Mutex<InstanceResult>>;

async fn world(api: FakeApiServer, answer: InstanceResult) -> (NodeWorld, Answer) {
    let (broker, answer) = (FakeBroker::start().await, Arc::new(Mutex::new(answer)));
    let said = Arc::clone(&answer);
    broker.on_lookup(move |_| said.lock().clone());
    (NodeWorld::start(api, broker, Run::Monitor).await, answer)
}

fn one(ready: bool) -> FakeApiServer {
    let api = FakeApiServer::new();
    api.create("nodes", initialised("node-1", 1, ready));
    api
}

#[tokio::test]
async fn a_node_whose_machine_is_proved_gone_is_deleted_exactly_as_it_was_seen() {
    // L-01, L-11, L-49
    let api = one(false);
    let node = api.get("nodes", "node-1").unwrap();
    let (world, _) = world(api, gone()).await;
    world.gone("node-1").await;
    world.told("node-1", "DeletingNode").await;
    world.stop().await;
    let writes = world.api.writes("/nodes/");
    assert_eq!((writes.len(), writes[0].method.clone()), (1, Method::DELETE));
    let expected =
        json!({"uid": node["metadata"]["uid"], "resourceVersion": node["metadata"]["resourceVersion"]});
    assert_eq!(writes[0].body["preconditions"], expected);
    let keys: Vec<_> = world
        .broker
        .heard()
        .lookups
        .into_iter()
        .flat_map(|lookup| lookup.keys)
        .collect();
    assert_eq!(keys[0].machine_id.as_deref(), Some(id(1).as_str()));
    let last = keys.last().unwrap().not_ready_for.unwrap();
    // The grace time of 100 ms may end between the last question and its answer.
    assert!(
        last.nanos >= 50_000_000,
        "it is asked about until the grace time ends: {last:?}"
    );
}

#[tokio::test]
async fn an_unknown_machine_never_costs_a_node() {
    // L-02
    let (world, _) = world(one(false), unknown("the cloud is away")).await;
    world.asked_again(20).await;
    world.stop().await;
    assert!(world.api.writes("").is_empty());
}

#[tokio::test]
async fn a_ready_node_is_not_even_asked_for() {
    // L-06, L-16
    let api = one(true);
    api.create("nodes", initialised("node-2", 2, false));
    let (world, _) = world(api, gone()).await;
    world.gone("node-2").await;
    world.stop().await;
    assert!(world.api.get("nodes", "node-1").is_some());
    let asked = world
        .broker
        .heard()
        .lookups
        .into_iter()
        .flat_map(|lookup| lookup.keys);
    assert!(asked.into_iter().all(|key| key.node_name == "node-2"));
}

#[tokio::test]
async fn a_switched_off_machine_taints_its_node_and_a_started_one_frees_it_before_it_is_ready() {
    // L-20, L-48
    let (world, answer) = world(one(false), found(1, Power::Stopped)).await;
    world.tainted("node-1", SHUTDOWN, true).await;
    world.told("node-1", "NodeShutdown").await;
    world.asked_again(3).await;
    assert_eq!(world.api.writes("/nodes/").len(), 1, "one write is enough");
    *answer.lock() = found(1, Power::Changing);
    world.asked_again(3).await;
    assert_eq!(
        world.api.writes("/nodes/").len(),
        1,
        "a state between tells nothing"
    );
    *answer.lock() = found(1, Power::Running);
    world.tainted("node-1", SHUTDOWN, false).await;
    world.stop().await;
}

#[tokio::test]
async fn a_ready_node_loses_the_taint_without_asking() {
    // L-40
    let api = FakeApiServer::new();
    let mut node = initialised("node-1", 1, true);
    node["spec"]["taints"] = json!([{"key": SHUTDOWN, "effect": "NoSchedule"}]);
    api.create("nodes", node);
    let (world, _) = world(api, gone()).await;
    world.tainted("node-1", SHUTDOWN, false).await;
    world.stop().await;
    assert!(world.broker.heard().lookups.is_empty());
}

#[tokio::test]
async fn a_taint_that_meets_a_conflict_is_written_again() {
    // L-43
    let api = one(false);
    let mut left = 2;
    api.refuse(move |method, _, _| {
        (*method == Method::PATCH && {
            left -= 1;
            left >= 0
        })
        .then_some((409, "the object has been modified"))
    });
    let (world, _) = world(api, found(1, Power::Stopped)).await;
    world.tainted("node-1", SHUTDOWN, true).await;
    world.stop().await;
}

#[tokio::test]
async fn a_right_that_is_missing_is_named_and_the_deletion_is_tried_again() {
    // L-42
    let api = one(false);
    api.refuse(|method, _, _| (*method == Method::DELETE).then_some((403, "nodes \"node-1\" is forbidden")));
    let (world, _) = world(api, gone()).await;
    world.told("node-1", "DeletingNodeFailed").await;
    let texts = world.api.event_texts("node-1", "DeletingNodeFailed");
    assert!(texts[0].contains("may not delete nodes"), "{texts:?}");
    world.api.refuse_nothing();
    world.gone("node-1").await;
    world.stop().await;
}

/// How often this was told of any object.
fn count(api: &FakeApiServer, reason: &str) -> u64 {
    let of_reason = |event: &Value| (event["reason"] == json!(reason)).then(|| event["count"].as_u64());
    api.all("events").iter().filter_map(of_reason).flatten().sum()
}

#[tokio::test]
async fn a_deletion_that_is_refused_again_and_again_is_announced_once() {
    let api = one(false);
    api.refuse(|method, _, _| (*method == Method::DELETE).then_some((403, "a webhook refuses")));
    let (world, _) = world(api, gone()).await;
    let tried = |api: &FakeApiServer, times: usize| {
        let deletes = api.writes("/nodes/").into_iter();
        (deletes.filter(|it| it.method == Method::DELETE).count() >= times).then_some(())
    };
    world.api.wait_for("four tries", |api| tried(api, 4)).await;
    let failures = |api: &FakeApiServer| (count(api, "DeletingNodeFailed") >= 4).then_some(());
    world.api.wait_for("four failures are told", failures).await;
    assert_eq!(count(&world.api, "DeletingNode"), 1);
    world.stop().await;
}

#[tokio::test]
async fn a_node_that_changed_since_it_was_judged_is_judged_again() {
    let api = one(false);
    let mut first = true;
    api.refuse(move |method, _, _| {
        (*method == Method::DELETE && std::mem::take(&mut first)).then_some((409, "precondition failed"))
    });
    let (world, _) = world(api, gone()).await;
    world.gone("node-1").await;
    world.stop().await;
    assert_eq!(world.api.writes("/nodes/").len(), 2);
}

#[tokio::test]
async fn when_too_many_go_at_once_all_are_held_until_a_person_confirms() {
    // L-46
    let api = FakeApiServer::new();
    for number in 1..=5 {
        api.create("nodes", initialised(&format!("node-{number}"), number, false));
    }
    let (world, _) = world(api, gone()).await;
    for number in 1..=5 {
        world.told(&format!("node-{number}"), "NodeDeletionHeld").await;
    }
    assert!(world.api.writes("/nodes/").is_empty());
    world.api.change("nodes", "node-3", |node| {
        node["metadata"]["annotations"] =
            json!({"node.beta.kubernetes.io/cloudstack-confirm-deletion": "true"});
    });
    world.gone("node-3").await;
    world.asked_again(5).await;
    world.stop().await;
    assert_eq!(world.api.all("nodes").len(), 4);
    assert_eq!(
        world.api.event_texts("node-1", "NodeDeletionHeld").len(),
        1,
        "told once"
    );
}

#[tokio::test]
async fn when_nothing_is_visible_the_node_is_held_and_people_are_told() {
    let reason = v1::UnknownReason {
        why: unknown_reason::Why::NothingVisible.into(),
        text: "no machine".into(),
    };
    let (world, _) = world(one(false), result(instance_result::Presence::Unknown(reason))).await;
    world.told("node-1", "NodeDeletionHeld").await;
    world.stop().await;
    assert!(world.api.get("nodes", "node-1").is_some());
}

#[tokio::test]
async fn the_only_node_of_a_cluster_stays_although_a_person_confirmed_and_the_event_says_what_to_do() {
    let api = one(false);
    api.change("nodes", "node-1", |node| {
        node["metadata"]["annotations"] =
            json!({"node.beta.kubernetes.io/cloudstack-confirm-deletion": "true"});
    });
    let reason = v1::UnknownReason {
        why: unknown_reason::Why::NothingVisible.into(),
        text: "no machine".into(),
    };
    let (world, _) = world(api, result(instance_result::Presence::Unknown(reason))).await;
    world.told("node-1", "NodeDeletionHeld").await;
    world.asked_again(10).await;
    world.stop().await;
    assert!(
        world.api.writes("/nodes/").is_empty(),
        "a word of a person is no proof"
    );
    let text = world.api.event_texts("node-1", "NodeDeletionHeld").join("; ");
    for part in [
        "no other machine of this cluster is visible",
        "check the broker's keys",
        "delete the node yourself",
        "cloudstack-confirm-deletion is no proof",
    ] {
        assert!(text.contains(part), "{text}");
    }
}

#[tokio::test]
async fn a_scope_that_changed_since_the_machine_was_seen_holds_the_node() {
    let (world, answer) = world(one(false), found(1, Power::Running)).await;
    world.asked_again(2).await;
    *answer.lock() = unknown("being reloaded");
    world.asked_again(2).await;
    world.move_to_project("another").await;
    *answer.lock() = gone();
    world.told("node-1", "NodeDeletionHeld").await;
    world.stop().await;
    assert!(world.api.get("nodes", "node-1").is_some());
}

#[tokio::test]
async fn without_the_lease_nothing_is_deleted() {
    let (world, answer) = world(one(false), unknown("not yet")).await;
    world.throne.end();
    *answer.lock() = gone();
    world.asked_again(20).await;
    world.stop().await;
    assert!(world.api.get("nodes", "node-1").is_some());
    assert!(world.api.writes("/nodes/").is_empty());
}

#[tokio::test]
async fn a_foreign_node_is_never_touched() {
    // L-47
    let api = one(false);
    let mut foreign = initialised("node-2", 2, false);
    foreign["spec"]["providerID"] = json!("openstack:///3a1b2c3d-0000-4000-8000-000000000002");
    api.create("nodes", foreign);
    let (world, _) = world(api, gone()).await;
    world.gone("node-1").await;
    world.stop().await;
    assert!(world.api.get("nodes", "node-2").is_some());
}
