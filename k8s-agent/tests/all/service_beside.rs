//! Two agents in one cluster, each with one backend: every Service without a class is the one's or the other's, and they don't fight over it.

use std::time::Duration;

use k8s_agent::service::controller::Pace;
use serde_json::{Value, json};

use crate::fake_apiserver::FakeApiServer;
use crate::fake_broker::{FakeBroker, Heard, address_of, pending, settled};
use crate::fake_pool::FakePool;
use crate::service_world::{FINALIZER, PREFIX, World, add_node, quick, service};

const POOL_ADDRESS: &str = "198.51.100.1";

fn cluster() -> FakeApiServer {
    let api = FakeApiServer::new();
    add_node(&api, 1);
    api
}

/// An agent with the cloud alone.
async fn cloud(api: &FakeApiServer) -> World {
    World::start(api.clone(), FakeBroker::start().await).await
}

/// An agent with the pool alone.
async fn keepalived(api: &FakeApiServer) -> (World, FakePool) {
    let pool = FakePool::default();
    let pace = Pace {
        patience: Duration::from_secs(3),
        ..quick()
    };
    (
        World::start_pool_alone(pool.clone(), pace, api.clone()).await,
        pool,
    )
}

/// Both agents have looked at everything that was to be seen before.
async fn settle(world: &World) {
    for backend in ["cloud", "keepalived"] {
        let name = format!("last-{}", uuid::Uuid::new_v4().simple());
        let mut last = service(&name);
        last["spec"]["loadBalancerClass"] = json!(format!("cloudstack-load-balancer/{backend}"));
        world.api.create("services", last);
        world.served(&name).await;
        world.told(&name, "EnsuredLoadBalancer").await;
    }
}

async fn is_well(api: &FakeApiServer, name: &str) {
    let well = |api: &FakeApiServer| {
        let found = api.get("services", name)?;
        (found["status"]["conditions"][0]["status"] == json!("True")).then_some(())
    };
    api.wait_for(&format!("{name} is well"), well).await;
}

fn asked(world: &World, name: &str) -> usize {
    let heard = world.broker.heard();
    let names = heard.ensures.iter().filter_map(|it| it.r#ref.as_ref());
    names.filter(|it| it.name == name).count()
}

fn with_annotation(name: &str, word: &str) -> Value {
    let mut wanted = service(name);
    wanted["metadata"]["annotations"][format!("{PREFIX}backend")] = json!(word);
    wanted
}

#[tokio::test(flavor = "multi_thread")]
async fn the_first_to_publish_keeps_the_service_and_what_the_other_one_began_goes() {
    let api = cluster();
    let cloud = cloud(&api).await;
    let busy = |_: &_| {
        let soon = Duration::from_millis(50);
        Ok(pending(soon, "JOB_RUNNING", "the address is being taken"))
    };
    cloud.broker.on_ensure(busy);
    api.create("services", service("web"));
    let begun = |heard: &Heard| heard.ensures.first().map(|_| ());
    cloud.broker.wait_for("an ensure", begun).await;
    let (keepalived, _pool) = keepalived(&api).await;
    keepalived.shows("web", POOL_ADDRESS).await;
    let delete = cloud
        .broker
        .wait_for("a delete", |heard| heard.deletes.first().cloned())
        .await;
    assert!(
        delete.published.is_empty(),
        "what the pool published is nothing to the cloud: {delete:?}"
    );
    cloud
        .broker
        .on_ensure(|request| Ok(settled(&[&address_of(request)])));
    is_well(&api, "web").await;
    let before = asked(&cloud, "web");
    settle(&cloud).await;
    cloud.shows("web", POOL_ADDRESS).await;
    is_well(&api, "web").await;
    assert_eq!(asked(&cloud, "web"), before);
    let web = api.get("services", "web").unwrap();
    assert_eq!(
        web["metadata"]["annotations"][format!("{PREFIX}served-by")],
        json!("keepalived")
    );
    assert_eq!(web["metadata"]["finalizers"], json!([FINALIZER]));
}

/// A cloud whose load balancer of `web` is made as long as the gate is there.
async fn slow_cloud(api: &FakeApiServer) -> (World, std::sync::mpsc::Sender<()>) {
    let cloud = cloud(api).await;
    let (gate, opened) = std::sync::mpsc::channel::<()>();
    let opened = parking_lot::Mutex::new(opened);
    cloud.broker.on_ensure(move |request| {
        // Ends with an error, since the gate is never used but dropped.
        let _ = opened.lock().recv_timeout(Duration::from_secs(10));
        Ok(settled(&[&address_of(request)]))
    });
    api.create("services", service("web"));
    let begun = |heard: &Heard| heard.ensures.first().map(|_| ());
    cloud.broker.wait_for("an ensure", begun).await;
    (cloud, gate)
}

/// Addresses that were written on `web`, in their order.
fn written(api: &FakeApiServer) -> Vec<Value> {
    let writes = api.writes("/services/web/").into_iter();
    let addresses = writes.map(|it| it.body["status"]["loadBalancer"]["ingress"][0]["ip"].clone());
    addresses.filter(Value::is_string).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_load_balancer_that_is_ready_too_late_is_never_published() {
    let api = cluster();
    let (cloud, gate) = slow_cloud(&api).await;
    let (saw, mut seen) = tokio::sync::mpsc::unbounded_channel();
    cloud.context.services.listen(move |change| {
        let status = change.new.as_ref().and_then(|new| new.status.as_ref());
        let balancer = status.and_then(|status| status.load_balancer.as_ref());
        if balancer.is_some_and(|balancer| balancer.ingress.is_some()) {
            let _ = saw.send(());
        }
    });
    let (keepalived, _pool) = keepalived(&api).await;
    keepalived.shows("web", POOL_ADDRESS).await;
    let waited = tokio::time::timeout(Duration::from_secs(10), seen.recv()).await;
    assert_eq!(waited, Ok(Some(())), "the cloud's agent sees what was published");
    drop(gate);
    let removed = |heard: &Heard| heard.deletes.first().map(|_| ());
    cloud.broker.wait_for("a delete", removed).await;
    settle(&cloud).await;
    assert_eq!(written(&api), [json!(POOL_ADDRESS)]);
}

#[tokio::test(flavor = "multi_thread")]
async fn two_that_publish_at_the_same_moment_end_with_one_address() {
    let api = cluster();
    let (cloud, gate) = slow_cloud(&api).await;
    let pool_alone = keepalived(&api);
    let open = async {
        let claimed = |api: &FakeApiServer| written(api).first().map(drop);
        api.wait_for("an address", claimed).await;
        drop(gate);
    };
    let ((keepalived, _pool), ()) = tokio::join!(pool_alone, open);
    let removed = |heard: &Heard| heard.deletes.first().map(|_| ());
    cloud.broker.wait_for("a delete", removed).await;
    settle(&cloud).await;
    keepalived.shows("web", POOL_ADDRESS).await;
    is_well(&api, "web").await;
    settle(&cloud).await;
    assert_eq!(written(&api).last(), Some(&json!(POOL_ADDRESS)));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_cloud_serves_stays_the_clouds_and_its_condition_is_not_fought_over() {
    let api = cluster();
    let cloud = cloud(&api).await;
    api.create("services", service("web"));
    let ip = cloud.served("web").await;
    cloud.told("web", "EnsuredLoadBalancer").await;
    let (keepalived, pool) = keepalived(&api).await;
    keepalived.told("web", "SyncLoadBalancerFailed").await;
    is_well(&api, "web").await;
    settle(&cloud).await;
    let before = api.writes("/services/web/").len();
    // A change that both look at.
    api.change("services", "web", |web| {
        web["metadata"]["labels"] = json!({"example/b": "c"});
    });
    settle(&cloud).await;
    assert_eq!(api.writes("/services/web/").len(), before);
    is_well(&api, "web").await;
    cloud.shows("web", &ip).await;
    assert!(!pool.asked().iter().any(|it| it.ends_with(" web")));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_annotation_for_the_other_agents_backend_is_its_business_and_no_mistake() {
    let api = cluster();
    let cloud = cloud(&api).await;
    let (_keepalived, pool) = keepalived(&api).await;
    api.create("services", with_annotation("pooled", "keepalived"));
    api.create("services", with_annotation("balanced", "cloud"));
    assert_eq!(cloud.served("pooled").await, POOL_ADDRESS);
    assert!(cloud.served("balanced").await.starts_with("192.0."));
    for name in ["pooled", "balanced"] {
        is_well(&api, name).await;
    }
    settle(&cloud).await;
    let writes = |name: &str| api.writes(&format!("/services/{name}/")).len();
    for name in ["pooled", "balanced"] {
        let before = writes(name);
        // A change that both look at.
        api.change("services", name, |it| {
            it["metadata"]["labels"] = json!({"example/b": "c"});
        });
        settle(&cloud).await;
        assert_eq!(writes(name), before, "{name} is written again and again");
        is_well(&api, name).await;
    }
    assert_eq!(asked(&cloud, "pooled"), 0);
    assert!(!pool.asked().contains(&"ensure balanced".to_owned()));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_end_of_a_load_balancer_waits_for_the_agent_that_made_it() {
    let api = cluster();
    let cloud = cloud(&api).await;
    api.create("services", service("web"));
    cloud.served("web").await;
    cloud.told("web", "EnsuredLoadBalancer").await;
    cloud.broker.be_stuck(true);
    let (keepalived, _pool) = keepalived(&api).await;
    keepalived.told("web", "SyncLoadBalancerFailed").await;
    api.delete("services", "web");
    let begun = |heard: &Heard| heard.deletes.first().map(|_| ());
    cloud.broker.wait_for("a delete", begun).await;
    let mut pooled = service("last");
    pooled["spec"]["loadBalancerClass"] = json!("cloudstack-load-balancer/keepalived");
    api.create("services", pooled);
    keepalived.told("last", "EnsuredLoadBalancer").await;
    assert_eq!(
        api.get("services", "web").unwrap()["metadata"]["finalizers"],
        json!([FINALIZER]),
        "the cloud's agent is not done"
    );
    // Its agent never comes back: then the Service may go.
    cloud.throne.end();
    let gone = |api: &FakeApiServer| api.get("services", "web").is_none().then_some(());
    api.wait_for("web is let go", gone).await;
}
