//! Two backends in one process: each Service has one of them, for good.

use std::time::Duration;

use proto::v1::{EnsureLoadBalancerRequest, NetworkInfo};
use serde_json::{Value, json};

use crate::fake_apiserver::FakeApiServer;
use crate::fake_broker::{FakeBroker, pending};
use crate::fake_pool::FakePool;
use crate::service_world::{FINALIZER, PREFIX, World, add_node, quick, service};

async fn world() -> (World, FakePool) {
    let (api, pool) = (FakeApiServer::new(), FakePool::default());
    add_node(&api, 1);
    let world = World::start_beside(Some(pool.clone()), quick(), api, FakeBroker::start().await).await;
    (world, pool)
}

fn from_the_pool(name: &str) -> Value {
    let mut wanted = service(name);
    wanted["metadata"]["annotations"][format!("{PREFIX}backend")] = json!("keepalived");
    wanted
}

fn served_by(world: &World, name: &str) -> Value {
    world.api.get("services", name).unwrap()["metadata"]["annotations"][format!("{PREFIX}served-by")].clone()
}

fn is_gone(api: &FakeApiServer) -> Option<()> {
    api.get("services", "web").is_none().then_some(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_service_is_the_cloud_s_where_the_network_has_a_load_balancer_and_that_is_recorded() {
    let (world, pool) = world().await;
    world.api.create("services", service("web"));
    assert!(world.served("web").await.starts_with("192.0."));
    assert_eq!(served_by(&world, "web"), json!("cloud"));
    assert!(pool.asked().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_service_gets_an_address_of_the_pool_where_the_network_has_no_load_balancer() {
    let (api, pool, broker) = (
        FakeApiServer::new(),
        FakePool::default(),
        FakeBroker::start().await,
    );
    broker.describe(|description| {
        description.networks = vec![NetworkInfo {
            id: "net-1".to_owned(),
            name: "shared".to_owned(),
            offers_load_balancer: false,
        }];
    });
    let world = World::start_beside(Some(pool.clone()), quick(), api, broker).await;
    world.api.create("services", service("web"));
    world.shows("web", "198.51.100.1").await;
    assert_eq!(served_by(&world, "web"), json!("keepalived"));
    assert!(world.broker.heard().ensures.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_service_that_asks_for_the_pool_gets_it_and_a_change_of_the_nodes_is_nothing_to_it() {
    let (world, pool) = world().await;
    world.api.create("services", from_the_pool("web"));
    world.shows("web", "198.51.100.1").await;
    world.told("web", "EnsuredLoadBalancer").await;
    world.api.create("services", service("cloud"));
    world.served("cloud").await;
    add_node(&world.api, 2);
    world.told("cloud", "UpdatedLoadBalancer").await;
    world.settles().await;
    assert_eq!(pool.asked(), ["ensure web"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_published_address_keeps_its_backend_and_an_event_says_so() {
    let (world, pool) = world().await;
    world.api.create("services", service("web"));
    let ip = world.served("web").await;
    world.api.change("services", "web", |web| {
        web["metadata"]["annotations"][format!("{PREFIX}backend")] = json!("keepalived");
    });
    world.told("web", "BackendKept").await;
    world.shows("web", &ip).await;
    assert!(pool.asked().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_edit_of_the_record_moves_nobody_and_is_corrected() {
    let (world, pool) = world().await;
    world.api.create("services", service("web"));
    let ip = world.served("web").await;
    world.told("web", "EnsuredLoadBalancer").await;
    let edit = |web: &mut Value| {
        web["metadata"]["annotations"][format!("{PREFIX}served-by")] = json!("keepalived");
    };
    world.api.change("services", "web", edit);
    let corrected = |api: &FakeApiServer| {
        let web = api.get("services", "web")?;
        (web["metadata"]["annotations"][format!("{PREFIX}served-by")] == json!("cloud")).then_some(())
    };
    world.api.wait_for("the record is corrected", corrected).await;
    world.settles().await;
    world.shows("web", &ip).await;
    assert!(pool.asked().is_empty());
    assert!(world.broker.heard().deletes.is_empty());
    world.api.change("services", "web", |web| {
        edit(web);
        web["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    });
    let delete = world
        .broker
        .wait_for("a delete", |heard| heard.deletes.first().cloned())
        .await;
    assert_eq!(delete.published, [ip], "it is the cloud's");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_backend_began_goes_before_another_one_is_asked() {
    let (world, pool) = world().await;
    world.broker.on_ensure(|_| {
        Ok(pending(
            Duration::from_millis(50),
            "JOB_RUNNING",
            "the address is being taken",
        ))
    });
    world.api.create("services", service("web"));
    world
        .broker
        .wait_for("an ensure", |heard| heard.ensures.first().map(|_| ()))
        .await;
    world.api.change("services", "web", |web| {
        web["metadata"]["annotations"][format!("{PREFIX}backend")] = json!("keepalived");
    });
    world.shows("web", "198.51.100.1").await;
    assert_eq!(world.broker.heard().deletes.len(), 1);
    assert_eq!(pool.asked(), ["ensure web"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deletion_asks_every_backend_that_may_have_something() {
    let (world, pool) = world().await;
    world.api.create("services", from_the_pool("web"));
    world.shows("web", "198.51.100.1").await;
    world.api.delete("services", "web");
    world.api.wait_for("web is gone", is_gone).await;
    assert_eq!(pool.asked(), ["ensure web", "remove web"]);
    assert_eq!(
        world.broker.heard().deletes.len(),
        1,
        "the annotation that says who served is no proof"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_service_that_waits_for_the_pool_is_woken_by_it() {
    let (world, pool) = world().await;
    pool.run_dry();
    world.api.create("services", from_the_pool("web"));
    world.told("web", "SyncLoadBalancerFailed").await;
    world.settles().await;
    pool.refill("default", "web");
    world.shows("web", "198.51.100.1").await;
    let web = world.api.get("services", "web").unwrap();
    assert_eq!(web["metadata"]["finalizers"], json!([FINALIZER]));
    assert_eq!(web["status"]["conditions"][0]["status"], json!("True"));
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_word_of_the_broker_a_new_service_waits_and_says_nothing_at_once() {
    let (api, pool, broker) = (
        FakeApiServer::new(),
        FakePool::default(),
        FakeBroker::start().await,
    );
    broker.describe(|description| description.networks.clear());
    let world = World::start_beside(Some(pool.clone()), quick(), api, broker).await;
    world.api.create("services", service("web"));
    world.api.create("services", from_the_pool("other"));
    world.shows("other", "198.51.100.1").await;
    assert!(world.api.writes("services/web").is_empty());
    world.broker.describe(|description| {
        description.networks = vec![NetworkInfo {
            id: "net-1".to_owned(),
            name: "guests".to_owned(),
            offers_load_balancer: true,
        }];
    });
    world.served("web").await;
    assert_eq!(served_by(&world, "web"), json!("cloud"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_published_address_of_a_backend_that_was_taken_away_stays_and_the_condition_says_so() {
    let api = FakeApiServer::new();
    add_node(&api, 1);
    let world = World::start_beside(None, quick(), api, FakeBroker::start().await).await;
    let mut web = service("web");
    web["metadata"]["annotations"][format!("{PREFIX}served-by")] = json!("keepalived");
    web["metadata"]["finalizers"] = json!([FINALIZER]);
    web["status"] = json!({"loadBalancer": {"ingress": [{"ip": "198.51.100.1", "ipMode": "VIP"}]}});
    world.api.create("services", web);
    world.told("web", "SyncLoadBalancerFailed").await;
    let says_why = |api: &FakeApiServer| {
        let web = api.get("services", "web")?;
        (web["status"]["conditions"][0]["reason"] == json!("BackendNotRunning")).then_some(())
    };
    world.api.wait_for("the condition says why", says_why).await;
    world.shows("web", "198.51.100.1").await;
    world.settles().await;
    world.shows("web", "198.51.100.1").await;
    assert_eq!(served_by(&world, "web"), json!("keepalived"));
    let is_web = |it: &EnsureLoadBalancerRequest| it.r#ref.as_ref().is_some_and(|it| it.name == "web");
    assert!(!world.broker.heard().ensures.iter().any(is_web));
    assert!(world.broker.heard().deletes.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_service_that_left_for_a_foreign_class_while_nobody_looked_is_ended_when_the_records_are_read() {
    let (world, pool) = world().await;
    pool.forget();
    let mut web = service("web");
    web["spec"]["loadBalancerClass"] = json!("example.com/lb");
    web["metadata"]["finalizers"] = json!([FINALIZER]);
    world.api.create("services", web);
    let stored = world.api.get("services", "web").unwrap();
    let uid = stored["metadata"]["uid"].as_str().unwrap();
    world.api.create("services", service("later"));
    let waits = |api: &FakeApiServer| {
        let later = api.get("services", "later")?;
        (later["status"]["conditions"][0]["reason"] == json!("WaitingForBroker")).then_some(())
    };
    world
        .api
        .wait_for("a later Service waits for the records", waits)
        .await;
    assert!(pool.asked().is_empty(), "nobody knows yet whose it is");
    pool.read(uid);
    let is_let_go = |api: &FakeApiServer| {
        let web = api.get("services", "web")?;
        let finalizers = web["metadata"]["finalizers"].as_array();
        finalizers.is_none_or(Vec::is_empty).then_some(())
    };
    world.api.wait_for("the finalizer is gone", is_let_go).await;
    assert_eq!(pool.asked(), ["remove web"]);
}
