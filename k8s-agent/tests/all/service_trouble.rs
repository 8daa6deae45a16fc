//! Trouble is told once, stays visible while it lasts, and keeps nothing from working that works.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use proto::v1::{self, EnsureLoadBalancerRequest};
use proto::{Advice, Fault, FaultKind};
use serde_json::{Value, json};

use crate::fake_apiserver::FakeApiServer;
use crate::fake_broker::{FakeBroker, Heard, address_of, settled};
use crate::service_world::{FINALIZER, PREFIX, World, add_node, served_before, service};

fn condition(api: &FakeApiServer, name: &str) -> Value {
    api.get("services", name)
        .map_or(Value::Null, |service| service["status"]["conditions"][0].clone())
}

async fn has_condition(world: &World, name: &'static str, reason: &'static str) {
    let found = |api: &FakeApiServer| (condition(api, name)["reason"] == json!(reason)).then_some(());
    world
        .api
        .wait_for(&format!("condition {reason} on {name}"), found)
        .await;
}

fn of<'a>(heard: &'a Heard, name: &'a str) -> impl Iterator<Item = &'a EnsureLoadBalancerRequest> {
    heard
        .ensures
        .iter()
        .filter(move |it| it.r#ref.as_ref().is_some_and(|it| it.name == name))
}

/// Waits until the Service was asked for with this many members, and answers that wish.
async fn wish_with_members(world: &World, name: &'static str, members: usize) -> v1::Wish {
    let found = |heard: &Heard| {
        let wishes = of(heard, name).filter_map(|it| it.wish.clone());
        wishes.filter(|wish| wish.members.len() == members).last()
    };
    world
        .broker
        .wait_for(&format!("{name} with {members} members"), found)
        .await
}

fn busy(counter: &AtomicU64) -> Fault {
    let count = counter.fetch_add(1, Ordering::SeqCst);
    let text = format!("the account is throttled, asking again in {count} s");
    Fault::new(FaultKind::Busy, "THROTTLED", text).with_advice(Advice::After(Duration::from_millis(20)))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_throttled_account_costs_one_event_and_leaves_what_is_published_alone() {
    let world = World::new().await;
    world.api.create("services", service("web"));
    world.served("web").await;
    world.told("web", "EnsuredLoadBalancer").await;
    let writes = world.api.writes("services/web").len();
    let counter = AtomicU64::new(1);
    world.broker.on_ensure(move |_| Err(busy(&counter)));
    add_node(&world.api, 3);
    let often = |heard: &Heard| (of(heard, "web").count() >= 12).then_some(());
    world.broker.wait_for("many tries", often).await;
    world
        .broker
        .on_ensure(|request| Ok(settled(&[&address_of(request)])));
    world.told("web", "UpdatedLoadBalancer").await;
    assert_eq!(
        world.api.writes("services/web").len(),
        writes,
        "{:#?}",
        world.api.writes("services/web")
    );
    assert_eq!(world.api.event_texts("web", "UpdateLoadBalancerFailed").len(), 1);
    assert!(world.api.writes("events").is_empty(), "no count was raised");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fault_that_counts_seconds_costs_one_event_and_one_condition() {
    let world = World::new().await;
    let counter = AtomicU64::new(1);
    world.broker.on_ensure(move |_| Err(busy(&counter)));
    world.api.create("services", service("web"));
    let often = |heard: &Heard| (of(heard, "web").count() >= 12).then_some(());
    world.broker.wait_for("many tries", often).await;
    has_condition(&world, "web", "Throttled").await;
    world.told("web", "SyncLoadBalancerFailed").await;
    assert_eq!(
        world.api.writes("services/web").len(),
        2,
        "finalizer and condition"
    );
    assert_eq!(world.api.event_texts("web", "SyncLoadBalancerFailed").len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_load_balancer_that_can_not_be_removed_says_so_in_the_condition() {
    let world = World::new().await;
    world.api.create("services", service("web"));
    world.served("web").await;
    world.broker.on_delete(|_| {
        let text = "the cloud answers nonsense";
        Err(Fault::new(FaultKind::Internal, "ODD", text))
    });
    world.api.delete("services", "web");
    has_condition(&world, "web", "Odd").await;
    let said = condition(&world.api, "web");
    assert_eq!(said["status"], json!("False"));
    let message = said["message"].as_str().unwrap();
    assert!(message.contains("can't be removed yet"), "{message}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_service_that_is_no_load_balancer_any_more_loses_its_condition_once() {
    let world = World::new().await;
    let mut sctp = service("web");
    sctp["spec"]["ports"][0]["protocol"] = json!("SCTP");
    world.api.create("services", sctp);
    has_condition(&world, "web", "InvalidService").await;
    world.api.change("services", "web", |web| {
        web["spec"]["type"] = json!("ClusterIP");
    });
    let forgotten = |api: &FakeApiServer| condition(api, "web").is_null().then_some(());
    world.api.wait_for("no condition", forgotten).await;
    world.settles().await;
    assert_eq!(world.api.writes("services/web").len(), 2, "on and off");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_condition_that_was_left_on_another_type_is_taken_away_at_the_start() {
    let api = FakeApiServer::new();
    let mut web = service("web");
    web["spec"]["type"] = json!("ClusterIP");
    web["status"] = json!({"conditions": [
        {"type": "LoadBalancerReady", "status": "False", "reason": "InvalidService", "message": "m",
         "lastTransitionTime": "2026-01-01T00:00:00Z"}]});
    api.create("services", web);
    let world = World::start(api, FakeBroker::start().await).await;
    let forgotten = |api: &FakeApiServer| condition(api, "web").is_null().then_some(());
    world.api.wait_for("no condition", forgotten).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_finalizer_of_another_class_is_never_taken_off() {
    let api = FakeApiServer::new();
    for name in ["live", "deleted"] {
        let mut other = service(name);
        other["spec"]["loadBalancerClass"] = json!("example.com/lb");
        other["metadata"]["finalizers"] = json!([FINALIZER]);
        other["status"] = json!({"loadBalancer": {"ingress": [{"ip": "198.51.100.1"}]}});
        api.create("services", other);
    }
    api.delete("services", "deleted");
    let world = World::start(api, FakeBroker::start().await).await;
    world.settles().await;
    // Its class goes with its type, before its controller is done with it.
    world.api.change("services", "live", |live| {
        live["spec"] = json!({"type": "ClusterIP", "ports": live["spec"]["ports"]});
    });
    world.settles().await;
    for name in ["live", "deleted"] {
        assert!(world.api.writes(&format!("services/{name}")).is_empty(), "{name}");
        assert!(world.api.events(name).is_empty(), "{name}");
    }
    assert!(world.broker.heard().deletes.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_service_whose_annotation_breaks_goes_on_with_its_last_wish_and_gets_new_nodes() {
    let world = World::new().await;
    world.broker.on_ensure(|request| {
        let mut answer = settled(&[&address_of(request)]);
        if let Some(v1::ensure_load_balancer_response::Outcome::Settled(settled)) = &mut answer.outcome {
            settled.ingress[0].proxy = request.wish.as_ref().unwrap().ports[0].proxy_protocol;
        }
        Ok(answer)
    });
    let (proxy, sources) = (format!("{PREFIX}proxy-protocol"), format!("{PREFIX}source-cidrs"));
    let mut web = service("web");
    web["metadata"]["annotations"][&proxy] = json!("true");
    web["metadata"]["annotations"][&sources] = json!("10.0.0.0/8");
    world.api.create("services", web);
    let ip = world.served("web").await;
    world.told("web", "EnsuredLoadBalancer").await;
    world.api.change("services", "web", |web| {
        web["metadata"]["annotations"][&proxy] = json!("True");
        web["metadata"]["annotations"][&sources] = json!("everybody");
    });
    world.told("web", "SyncLoadBalancerFailed").await;
    has_condition(&world, "web", "InvalidService").await;
    add_node(&world.api, 3);
    let wish = wish_with_members(&world, "web", 3).await;
    assert!(wish.ports[0].proxy_protocol);
    assert_eq!(wish.sources, ["10.0.0.0/8"]);
    world.told("web", "UpdatedLoadBalancer").await;
    world.settles().await;
    assert_eq!(condition(&world.api, "web")["reason"], json!("InvalidService"));
    assert_eq!(world.api.event_texts("web", "SyncLoadBalancerFailed").len(), 1);
    world.shows("web", &ip).await;
    world.api.change("services", "web", |web| {
        web["metadata"]["annotations"][&proxy] = json!("true");
        web["metadata"]["annotations"][&sources] = json!("10.0.0.0/8");
    });
    has_condition(&world, "web", "Ready").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_word_that_the_controller_before_ignored_keeps_no_node_out_after_the_take_over() {
    let api = FakeApiServer::new();
    add_node(&api, 1);
    let mut web = served_before("web", "192.0.2.7");
    web["metadata"]["annotations"] = json!({(format!("{PREFIX}proxy-protocol")): "enabled"});
    web["status"] = json!({"loadBalancer": {"ingress": [{"ip": "192.0.2.7"}]}});
    api.create("services", web);
    let broker = FakeBroker::start().await;
    broker.on_ensure(|request| {
        let published = request.published.first().cloned();
        Ok(settled(&[&published.unwrap_or_else(|| address_of(request))]))
    });
    let world = World::start(api, broker).await;
    world.told("web", "SyncLoadBalancerFailed").await;
    assert!(!wish_with_members(&world, "web", 1).await.ports[0].proxy_protocol);
    add_node(&world.api, 2);
    assert!(!wish_with_members(&world, "web", 2).await.ports[0].proxy_protocol);
    has_condition(&world, "web", "InvalidService").await;
    world.shows("web", "192.0.2.7").await;
    let annotations = world.api.get("services", "web").unwrap()["metadata"]["annotations"].clone();
    assert_eq!(
        annotations,
        json!({(format!("{PREFIX}proxy-protocol")): "enabled"})
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_list_of_sources_that_can_not_be_read_is_never_guessed() {
    let api = FakeApiServer::new();
    add_node(&api, 1);
    let mut web = served_before("web", "192.0.2.7");
    web["metadata"]["annotations"][format!("{PREFIX}source-cidrs")] = json!("10.0.0.0/8,office");
    api.create("services", web);
    let world = World::start(api, FakeBroker::start().await).await;
    world.told("web", "SyncLoadBalancerFailed").await;
    add_node(&world.api, 2);
    world.settles().await;
    assert_eq!(of(&world.broker.heard(), "web").count(), 0);
    world.shows("web", "192.0.2.7").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restriction_is_obeyed_while_another_annotation_can_not_be_read() {
    let world = World::new().await;
    let (algorithm, proxy) = (format!("{PREFIX}algorithm"), format!("{PREFIX}proxy-protocol"));
    let mut web = service("web");
    web["metadata"]["annotations"][&algorithm] = json!("source");
    web["metadata"]["annotations"][&proxy] = json!("true");
    let second = json!({"name": "admin", "port": 8080, "nodePort": 30081, "protocol": "TCP"});
    web["spec"]["ports"][0]["name"] = json!("http");
    web["spec"]["ports"].as_array_mut().unwrap().push(second);
    world.broker.on_ensure(|request| {
        let mut answer = settled(&[&address_of(request)]);
        if let Some(v1::ensure_load_balancer_response::Outcome::Settled(settled)) = &mut answer.outcome {
            settled.ingress[0].proxy = request.wish.as_ref().unwrap().ports[0].proxy_protocol;
        }
        Ok(answer)
    });
    world.api.create("services", web);
    world.served("web").await;
    world.told("web", "EnsuredLoadBalancer").await;
    world.api.change("services", "web", |web| {
        web["metadata"]["annotations"][&algorithm] = json!("random");
        web["metadata"]["annotations"][&proxy] = json!("on");
    });
    has_condition(&world, "web", "InvalidService").await;
    world.settles().await;
    assert_eq!(
        of(&world.broker.heard(), "web").count(),
        1,
        "nothing else is wanted so far"
    );
    world.api.change("services", "web", |web| {
        web["spec"]["loadBalancerSourceRanges"] = json!(["10.0.0.0/8"]);
        web["spec"]["ports"].as_array_mut().unwrap().pop();
    });
    let second = |heard: &Heard| of(heard, "web").nth(1).and_then(|it| it.wish.clone());
    let wish = world.broker.wait_for("the restriction", second).await;
    assert_eq!(wish.sources, ["10.0.0.0/8"]);
    assert_eq!(wish.ports.len(), 1);
    assert_eq!(
        (wish.algorithm(), wish.ports[0].proxy_protocol),
        (v1::wish::Algorithm::Source, true),
        "what can't be read stays as it was"
    );
    world.settles().await;
    assert_eq!(condition(&world.api, "web")["reason"], json!("InvalidService"));
    assert_eq!(of(&world.broker.heard(), "web").count(), 2, "asked once");
}

/// A fault of which the text is another one each time, to be tried again in an hour.
fn in_an_hour(counter: &AtomicU64) -> Fault {
    let reason = if counter.fetch_add(1, Ordering::SeqCst).is_multiple_of(2) {
        "ODD"
    } else {
        "EVEN"
    };
    let text = format!("the cloud answers {reason}");
    Fault::new(FaultKind::Internal, reason, text).with_advice(Advice::After(Duration::from_hours(1)))
}

fn touch(world: &World) {
    world.api.change("services", "web", |web| {
        web["metadata"]["labels"] = json!({"example/touched": uuid::Uuid::new_v4().to_string()});
    });
}

#[tokio::test(flavor = "multi_thread")]
async fn a_removal_that_fails_is_not_woken_before_its_time_by_its_own_condition_or_by_a_label() {
    let world = World::new().await;
    world.api.create("services", service("web"));
    world.served("web").await;
    let counter = AtomicU64::new(0);
    world.broker.on_delete(move |_| Err(in_an_hour(&counter)));
    world.api.change("services", "web", |web| {
        web["spec"]["type"] = json!("ClusterIP");
    });
    has_condition(&world, "web", "Odd").await;
    world.settles().await;
    touch(&world);
    world.settles().await;
    assert_eq!(world.broker.heard().deletes.len(), 1);
    // Another ending is another matter, and so is another order.
    world.api.delete("services", "web");
    has_condition(&world, "web", "Even").await;
    world.settles().await;
    assert_eq!(world.broker.heard().deletes.len(), 2);
    world.api.change("services", "web", |web| {
        web["metadata"]["annotations"][format!("{PREFIX}keep-ip")] = json!("true");
    });
    let third = |heard: &Heard| heard.deletes.get(2).cloned();
    assert!(world.broker.wait_for("the third", third).await.keep_address);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_namesake_does_not_hurry_the_removal_of_the_service_before_it() {
    let world = World::new().await;
    world.api.create("services", service("web"));
    world.served("web").await;
    world.told("web", "EnsuredLoadBalancer").await;
    let counter = AtomicU64::new(0);
    world.broker.on_delete(move |_| Err(in_an_hour(&counter)));
    world.api.change("services", "web", |web| {
        *web = service("web");
        web["metadata"]["uid"] = json!("another-uid");
    });
    world.told("web", "DeleteLoadBalancerFailed").await;
    touch(&world);
    world.settles().await;
    touch(&world);
    world.settles().await;
    assert_eq!(world.broker.heard().deletes.len(), 1);
}
