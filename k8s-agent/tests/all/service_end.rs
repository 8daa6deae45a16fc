//! Load balancers end with their Services, whatever happens meanwhile.

use std::time::Duration;

use k8s_agent::queue::Backoff;
use k8s_agent::service::controller::Pace;
use proto::v1::{self, delete_load_balancer_response};
use proto::{Fault, FaultKind};
use serde_json::json;

use crate::fake_apiserver::FakeApiServer;
use crate::fake_broker::{FakeBroker, Heard, deleted, settled, still_pending};
use crate::service_world::{FINALIZER, PREFIX, World, quick, served_before, service};

fn is_gone(api: &FakeApiServer) -> Option<()> {
    api.get("services", "web").is_none().then_some(())
}

async fn with_a_served_service() -> World {
    let world = World::new().await;
    world.api.create("services", service("web"));
    world.served("web").await;
    world.told("web", "EnsuredLoadBalancer").await;
    world
}

#[tokio::test(flavor = "multi_thread")]
async fn s_07_a_deleted_service_is_let_go_when_its_balancer_is_gone() {
    let world = with_a_served_service().await;
    let ip = world.served("web").await;
    world.api.change("services", "web", |web| {
        web["metadata"]["annotations"][format!("{PREFIX}keep-ip")] = json!("true");
        web["metadata"]["annotations"][format!("{PREFIX}network")] = json!("tier-1");
    });
    world.settles().await;
    let uid = world.api.get("services", "web").unwrap()["metadata"]["uid"].clone();
    world.api.delete("services", "web");
    world.api.wait_for("web is gone", is_gone).await;
    let deletes = world.broker.heard().deletes;
    assert_eq!(deletes.len(), 1);
    let delete = &deletes[0];
    assert_eq!(json!(delete.r#ref.as_ref().unwrap().uid), uid);
    assert!(delete.keep_address);
    assert_eq!(
        (delete.network.as_str(), delete.published.as_slice()),
        ("tier-1", [ip].as_slice())
    );
    assert_eq!(delete.fence.as_ref().unwrap().lease_uid, "lease-1");
    world.told("web", "DeletedLoadBalancer").await;
    assert!(
        world
            .api
            .events("web")
            .contains(&"DeletingLoadBalancer".to_owned())
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn s_06_a_service_that_stops_being_a_load_balancer_keeps_nothing_of_ours() {
    let world = with_a_served_service().await;
    world.api.change("services", "web", |web| {
        web["metadata"]["finalizers"]
            .as_array_mut()
            .unwrap()
            .push(json!("example/other"));
        web["spec"]["type"] = json!("ClusterIP");
    });
    let released = |api: &FakeApiServer| {
        let web = api.get("services", "web")?;
        (web["metadata"]["finalizers"] == json!(["example/other"])).then_some(web)
    };
    let web = world.api.wait_for("the finalizer is off", released).await;
    assert_eq!(web["status"]["loadBalancer"], json!({}));
    assert_eq!(web["status"]["conditions"], json!([]));
    assert_eq!(web["metadata"]["annotations"], json!({"example/a": "b"}));
    assert_eq!(world.broker.heard().deletes.len(), 1);
    world.settles().await;
    assert_eq!(world.broker.heard().deletes.len(), 1);
    assert_eq!(
        world.api.writes("services/web").len(),
        3,
        "finalizer, status, and one patch to let it go"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn s_169_a_service_that_went_to_another_class_while_nobody_watched_keeps_its_new_status() {
    let api = FakeApiServer::new();
    let mut web = served_before("web", "198.51.100.1");
    web["spec"]["loadBalancerClass"] = json!("example.com/lb");
    api.create("services", web);
    let world = World::start(api, FakeBroker::start().await).await;
    let released = |api: &FakeApiServer| {
        let web = api.get("services", "web")?;
        (web["metadata"]["finalizers"] == json!([])).then_some(web)
    };
    let web = world.api.wait_for("the finalizer is off", released).await;
    assert_eq!(
        web["status"]["loadBalancer"]["ingress"],
        json!([{"ip": "198.51.100.1", "ipMode": "VIP"}])
    );
    assert_eq!(world.broker.heard().deletes.len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn deleted_while_nobody_watched_is_cleaned_up_at_the_start() {
    let api = FakeApiServer::new();
    api.create("services", served_before("web", "192.0.2.7"));
    api.delete("services", "web");
    let world = World::start(api, FakeBroker::start().await).await;
    world.api.wait_for("web is gone", is_gone).await;
    assert_eq!(world.broker.heard().deletes.len(), 1);
    assert!(world.broker.heard().ensures.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn s_168_a_deletion_without_our_finalizer_is_nothing_to_us() {
    let api = FakeApiServer::new();
    let mut web = service("web");
    web["metadata"]["finalizers"] = json!(["example/other"]);
    api.create("services", web);
    api.delete("services", "web");
    let world = World::start(api, FakeBroker::start().await).await;
    world.settles().await;
    assert!(world.api.writes("services/web").is_empty());
    assert!(world.broker.heard().deletes.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn s_15_a_service_whose_finalizer_somebody_took_off_does_not_leak_its_balancer() {
    let world = with_a_served_service().await;
    let uid = world.api.get("services", "web").unwrap()["metadata"]["uid"].clone();
    world.api.change("services", "web", |web| {
        web["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        web["metadata"]["finalizers"] = json!([]);
    });
    assert!(world.api.get("services", "web").is_none());
    let delete = world
        .broker
        .wait_for("a delete", |heard| heard.deletes.first().cloned())
        .await;
    assert_eq!(json!(delete.r#ref.unwrap().uid), uid);
    world.told("web", "DeletedLoadBalancer").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn s_164_the_balancer_of_a_service_goes_before_its_namesake_gets_one() {
    let world = with_a_served_service().await;
    let old = world.api.get("services", "web").unwrap()["metadata"]["uid"].clone();
    let broker = world.broker.clone();
    world.broker.on_ensure(move |request| {
        let deletes = broker.heard().deletes;
        if request.r#ref.as_ref().unwrap().name == "web" {
            assert_eq!(
                json!(deletes[0].r#ref.as_ref().unwrap().uid),
                old,
                "the old one goes first"
            );
        }
        Ok(settled(&["192.0.2.99"]))
    });
    // A watch that broke in between shows only the end of it.
    world.api.change("services", "web", |web| {
        *web = service("web");
        web["metadata"]["uid"] = json!("another-uid");
    });
    world.shows("web", "192.0.2.99").await;
    assert_eq!(world.broker.heard().deletes.len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deletion_does_not_wait_for_an_ensure_that_nobody_wants_any_more() {
    let world = with_a_served_service().await;
    world.broker.be_stuck(true);
    world.api.change("services", "web", |web| {
        web["spec"]["ports"][0]["port"] = json!(81);
    });
    world
        .broker
        .wait_for("the second ensure", |heard| heard.ensures.get(1).map(|_| ()))
        .await;
    world.broker.be_stuck(false);
    world.api.delete("services", "web");
    world.api.wait_for("web is gone", is_gone).await;
    world
        .broker
        .wait_for("the ensure is given up", |heard| {
            (heard.abandoned == 1).then_some(())
        })
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_ensure_is_given_up_for_a_newer_wish_of_its_service() {
    let world = with_a_served_service().await;
    world.broker.be_stuck(true);
    world.api.change("services", "web", |web| {
        web["spec"]["ports"][0]["port"] = json!(81);
    });
    world
        .broker
        .wait_for("the second ensure", |heard| heard.ensures.get(1).map(|_| ()))
        .await;
    world.broker.be_stuck(false);
    world.api.change("services", "web", |web| {
        web["spec"]["ports"][0]["port"] = json!(82);
    });
    let third = world
        .broker
        .wait_for("the third ensure", |heard| heard.ensures.get(2).cloned())
        .await;
    assert_eq!(third.wish.unwrap().ports[0].port, 82);
}

#[tokio::test(flavor = "multi_thread")]
async fn s_172_a_failed_removal_keeps_the_finalizer_and_is_tried_again() {
    let world = with_a_served_service().await;
    world.broker.on_delete(|_| {
        Err(Fault::new(
            FaultKind::Internal,
            "ODD",
            "the cloud answers nonsense",
        ))
    });
    world.api.delete("services", "web");
    world.told("web", "SyncLoadBalancerFailed").await;
    world
        .broker
        .wait_for("a second try", |heard| heard.deletes.get(1).map(|_| ()))
        .await;
    assert_eq!(
        world.api.get("services", "web").unwrap()["metadata"]["finalizers"],
        json!([FINALIZER])
    );
    assert_eq!(world.api.event_texts("web", "SyncLoadBalancerFailed").len(), 1);
    world.broker.on_delete(|_| Ok(deleted()));
    world.api.wait_for("web is gone", is_gone).await;
    world.told("web", "DeletedLoadBalancer").await;
    let deleting = world
        .api
        .events("web")
        .iter()
        .filter(|reason| *reason == "DeletingLoadBalancer")
        .count();
    assert_eq!(deleting, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_removal_that_goes_on_is_asked_again_without_a_warning() {
    let world = with_a_served_service().await;
    let calls = std::sync::atomic::AtomicU32::new(0);
    world.broker.on_delete(move |_| {
        if calls.fetch_add(1, std::sync::atomic::Ordering::SeqCst) < 2 {
            let pending = still_pending(
                Duration::from_millis(20),
                "JOB_RUNNING",
                "the address is being released",
            );
            return Ok(v1::DeleteLoadBalancerResponse {
                outcome: Some(delete_load_balancer_response::Outcome::Pending(pending)),
                notes: Vec::new(),
            });
        }
        Ok(deleted())
    });
    world.api.delete("services", "web");
    world.api.wait_for("web is gone", is_gone).await;
    assert_eq!(world.broker.heard().deletes.len(), 3);
    assert!(world.api.event_texts("web", "SyncLoadBalancerFailed").is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_broker_new_services_say_so_and_served_ones_stay_as_they_are() {
    let world = with_a_served_service().await;
    let ip = world.served("web").await;
    world.broker.leave().await;
    world.api.create("services", service("new"));
    let condition = |api: &FakeApiServer| {
        let condition = api.get("services", "new")?["status"]["conditions"][0].clone();
        (condition["status"] == json!("False")).then_some(condition)
    };
    let found = world.api.wait_for("a condition", condition).await;
    assert_eq!(found["reason"], json!("BrokerUnreachable"));
    assert!(
        found["message"].as_str().unwrap().contains("broker.sock"),
        "{found}"
    );
    world.told("new", "SyncLoadBalancerFailed").await;
    let writes = world.api.writes("services/web").len();
    world.api.change("nodes", "node-1", |node| {
        node["metadata"]["labels"] =
            json!({"node.kubernetes.io/exclude-from-external-load-balancers": "true"});
    });
    let failed = |api: &FakeApiServer| (api.writes("services/new").len() >= 2).then_some(());
    world.api.wait_for("the new one was tried", failed).await;
    world.broker.listen().await;
    let members = |heard: &Heard| {
        let of_web =
            |it: &&v1::EnsureLoadBalancerRequest| it.r#ref.as_ref().is_some_and(|it| it.name == "web");
        heard
            .ensures
            .iter()
            .rfind(of_web)
            .filter(|it| it.wish.as_ref().unwrap().members.len() == 1)
            .map(|_| ())
    };
    world.broker.wait_for("the nodes after the outage", members).await;
    world.served("new").await;
    let healed = |api: &FakeApiServer| {
        (api.get("services", "new")?["status"]["conditions"][0]["status"] == json!("True")).then_some(())
    };
    world.api.wait_for("the condition is true", healed).await;
    world.shows("web", &ip).await;
    assert_eq!(
        world.api.writes("services/web").len(),
        writes,
        "an outage writes nothing on what is served"
    );
    assert!(
        !world
            .api
            .events("web")
            .iter()
            .any(|reason| reason.ends_with("Failed")),
        "{:?}",
        world.api.events("web")
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_broker_deletes_wait_and_say_so_after_a_while() {
    let world = with_a_served_service().await;
    world.broker.leave().await;
    world.api.delete("services", "web");
    world.told("web", "SyncLoadBalancerFailed").await;
    let texts = world.api.event_texts("web", "SyncLoadBalancerFailed");
    assert!(
        texts[0].contains("can't be removed yet") && texts[0].contains("broker"),
        "{texts:?}"
    );
    assert_eq!(
        world.api.get("services", "web").unwrap()["metadata"]["finalizers"],
        json!([FINALIZER])
    );
    world.broker.listen().await;
    world.api.wait_for("web is gone", is_gone).await;
}

/// A controller that would try again only after minutes.
fn slow() -> Pace {
    let backoff = Backoff {
        first: Duration::from_mins(5),
        longest: Duration::from_mins(5),
    };
    Pace { backoff, ..quick() }
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_waits_for_the_broker_is_served_when_it_answers_and_not_when_its_back_off_is_over() {
    let world = World::start_at(slow(), FakeApiServer::new(), FakeBroker::start().await).await;
    world.api.create("services", service("old"));
    world.served("old").await;
    world.broker.leave().await;
    world.api.create("services", service("web"));
    world.told("web", "SyncLoadBalancerFailed").await;
    world.broker.listen().await;
    world.served("web").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_waits_for_the_cloud_is_served_when_a_newer_list_shows_that_it_answers() {
    let broker = FakeBroker::start().await;
    let age = |seconds| Some(prost_types::Duration { seconds, nanos: 0 });
    broker.describe(|description| description.data_age = age(100));
    broker.on_ensure(|_| {
        Err(Fault::new(
            FaultKind::Unreachable,
            "CLOUD_UNREACHABLE",
            "the cloud does not answer",
        ))
    });
    let world = World::start_at(slow(), FakeApiServer::new(), broker).await;
    world.api.create("services", service("web"));
    world.told("web", "SyncLoadBalancerFailed").await;
    let condition = |api: &FakeApiServer| {
        let reason = api.get("services", "web")?["status"]["conditions"][0]["reason"].clone();
        (reason == json!("CloudUnreachable")).then_some(())
    };
    world.api.wait_for("the condition", condition).await;
    // An old list, told again, wakes nobody.
    let mut descriptions = world.context.broker.as_ref().unwrap().descriptions();
    for seconds in [101, 102] {
        world
            .broker
            .describe(|description| description.data_age = age(seconds));
        descriptions
            .wait_for(|told| told.as_ref().is_some_and(|told| told.data_age == age(seconds)))
            .await
            .unwrap();
    }
    let asked = world.broker.heard().ensures.len();
    world.broker.on_ensure(|_| Ok(settled(&["192.0.2.7"])));
    world.broker.describe(|description| description.data_age = age(0));
    world.shows("web", "192.0.2.7").await;
    assert!(asked <= 2, "asked {asked} times while the cloud was away");
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_written_or_asked_once_the_lease_could_have_run_out() {
    let world = with_a_served_service().await;
    world.broker.be_stuck(true);
    world.api.change("services", "web", |web| {
        web["spec"]["ports"][0]["port"] = json!(81);
    });
    world
        .broker
        .wait_for("the second ensure", |heard| heard.ensures.get(1).map(|_| ()))
        .await;
    let writes = world.api.writes("").len();
    world.throne.end();
    world
        .broker
        .wait_for("the call is given up", |heard| {
            (heard.abandoned == 1).then_some(())
        })
        .await;
    world.broker.be_stuck(false);
    world.api.delete("services", "web");
    world.api.create("services", service("late"));
    world.stop().await;
    assert_eq!(world.broker.heard().ensures.len(), 2);
    assert!(world.broker.heard().deletes.is_empty());
    assert_eq!(world.api.writes("").len(), writes);
}
