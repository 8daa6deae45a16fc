//! A panic is a fault of the agent; it costs the object that it came from some time, and nobody else anything.

use http::Method;
use proto::v1::instance::Power;
use serde_json::{Value, json};

use crate::fake_apiserver::FakeApiServer;
use crate::fake_broker::FakeBroker;
use crate::node_world::{NodeWorld, Run, UNINITIALIZED, found, gone, initialised, number, waiting};
use crate::process_life::{broker, cluster, is_initialised, start, with_broker};
use crate::service_world::{World, add_node, service};

/// The work that makes such a request panics, this often.
fn panics(api: &FakeApiServer, times: u32, is_meant: impl Fn(&Method, &str) -> bool + Send + 'static) {
    let mut left = times;
    api.refuse(move |method, path, _| {
        if left > 0 && is_meant(method, path) {
            left -= 1;
            panic!("the test wants it");
        }
        None
    });
}

async fn healthy_broker() -> FakeBroker {
    let broker = FakeBroker::start().await;
    broker.on_lookup(|key| found(number(&key.node_name), Power::Running));
    broker
}

#[tokio::test]
async fn a_node_whose_initialisation_panics_is_tried_again_and_the_others_are_initialised() {
    let api = FakeApiServer::new();
    for name in ["node-1", "node-2"] {
        api.create("nodes", waiting(name));
    }
    panics(&api, 2, |method, path| {
        *method == Method::PATCH && path.contains("/nodes/node-1")
    });
    let world = NodeWorld::start(api, healthy_broker().await, Run::Init).await;
    world.tainted("node-2", UNINITIALIZED, false).await;
    world.tainted("node-1", UNINITIALIZED, false).await;
    assert_eq!(world.panics(), 2);
    world.stop().await;
}

#[tokio::test]
async fn a_node_whose_refresh_panics_comes_again_with_the_next_round_and_the_others_are_refreshed() {
    let api = FakeApiServer::new();
    for number in [1, 2] {
        api.create("nodes", initialised(&format!("node-{number}"), number, true));
    }
    panics(&api, 1, |method, path| {
        *method == Method::PATCH && path.contains("/nodes/node-1")
    });
    let world = NodeWorld::start(api, healthy_broker().await, Run::Refresh).await;
    for name in ["node-2", "node-1"] {
        let labelled = |api: &FakeApiServer| {
            let zone = api.get("nodes", name)?["metadata"]["labels"]["topology.kubernetes.io/zone"].clone();
            (zone == json!("zone-1")).then_some(())
        };
        world.api.wait_for(&format!("labels of {name}"), labelled).await;
    }
    assert_eq!(world.panics(), 1);
    world.stop().await;
}

#[tokio::test]
async fn a_node_whose_deletion_panics_rests_and_is_deleted_later_and_the_others_have_their_turn() {
    let api = FakeApiServer::new();
    for number in [1, 2] {
        api.create("nodes", initialised(&format!("node-{number}"), number, false));
    }
    panics(&api, 2, |method, path| {
        *method == Method::DELETE && path.contains("/nodes/node-1")
    });
    let broker = FakeBroker::start().await;
    broker.on_lookup(|_| gone());
    let world = NodeWorld::start(api, broker, Run::Monitor).await;
    world.gone("node-2").await;
    world.gone("node-1").await;
    assert_eq!(world.panics(), 2);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_service_whose_sync_panics_is_tried_again_and_the_others_are_served() {
    let api = FakeApiServer::new();
    add_node(&api, 1);
    panics(&api, 1, |method, path| {
        *method == Method::PATCH && path.contains("/services/web")
    });
    let world = World::start(api, FakeBroker::start().await).await;
    world.api.create("services", service("web"));
    world.api.create("services", service("other"));
    world.served("other").await;
    world.served("web").await;
    let scrape = world.context.host.scrape();
    assert!(scrape.contains("process_contained_panics_total 1"), "{scrape}");
    world.stop().await;
}

#[tokio::test]
async fn a_watch_that_panics_begins_again() {
    let (api, broker) = (cluster(), broker().await);
    panics(&api, 1, |method, path| {
        *method == Method::GET && path.ends_with("/nodes")
    });
    let flags = with_broker(&broker);
    let process = start(&api, &flags.each_ref().map(String::as_str));
    is_initialised(&api, "node-1").await;
    assert_eq!(process.panics(), 1);
    assert_eq!(process.end().await, None);
}

#[tokio::test]
async fn an_event_whose_writing_panics_is_lost_and_the_next_one_is_written() {
    let (api, broker) = (cluster(), broker().await);
    panics(&api, 1, |method, path| {
        *method == Method::POST && path.ends_with("/events")
    });
    let flags = with_broker(&broker);
    let process = start(&api, &flags.each_ref().map(String::as_str));
    let told = |api: &FakeApiServer| api.events("node-1").first().cloned();
    assert_eq!(api.wait_for("an event on the node", told).await, "Synced");
    assert_eq!(process.panics(), 1);
    assert_eq!(process.end().await, None);
}

#[tokio::test]
async fn an_attempt_to_get_or_keep_the_lease_that_panics_is_one_that_failed() {
    let (api, broker) = (cluster(), broker().await);
    panics(&api, 1, |method, path| {
        *method == Method::POST && path.ends_with("/leases")
    });
    panics(&api, 2, |method, path| {
        *method == Method::PUT && path.contains("/leases/")
    });
    let flags = with_broker(&broker);
    let process = start(&api, &flags.each_ref().map(String::as_str));
    is_initialised(&api, "node-1").await;
    let renewed = |api: &FakeApiServer| {
        let spec = api.get("leases", "cloud-controller-manager")?["spec"].clone();
        (spec["renewTime"] != spec["acquireTime"]).then_some(())
    };
    api.wait_for("a renewal", renewed).await;
    assert_eq!(process.panics(), 3);
    assert_eq!(process.end().await, None, "the lease was never lost");
}

#[tokio::test]
async fn a_pass_of_the_keepalived_backend_that_panics_is_made_again() {
    let api = cluster();
    let object = json!({"metadata": {"namespace": "kube-system", "name": "vip-configmap"}});
    api.create("configmaps", object);
    panics(&api, 2, |method, path| {
        *method == Method::GET && path.ends_with("/configmaps/vip-configmap")
    });
    let flags = [
        "--cloud-provider=keepalived",
        "--keepalived-service-cidr=198.51.100.1/32",
        "--keepalived-namespace=kube-system",
        "--keepalived-config-map=vip-configmap",
    ];
    let process = start(&api, &flags);
    api.create("services", service("web"));
    let shows = |api: &FakeApiServer| {
        let web: Value = api.get("services", "web")?;
        (web["status"]["loadBalancer"]["ingress"][0]["ip"] == json!("198.51.100.1")).then_some(())
    };
    api.wait_for("an address of the pool", shows).await;
    assert_eq!(process.panics(), 2);
    assert_eq!(process.end().await, None);
}
