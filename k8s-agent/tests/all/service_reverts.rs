//! A wish that is taken back while its backend is still at work: what served before is asked for again, and never taken for granted.

use std::time::Duration;

use proto::v1::{self, EnsureLoadBalancerRequest, delete_load_balancer_response};
use serde_json::json;

use crate::fake_broker::{Heard, address_of, deleted, pending, settled, still_pending};
use crate::service_world::{PREFIX, World, service};

const SOON: Duration = Duration::from_millis(50);

async fn with_a_served_service() -> World {
    let world = World::new().await;
    world.api.create("services", service("web"));
    world.served("web").await;
    world.told("web", "EnsuredLoadBalancer").await;
    world
}

/// Waits until this was asked for, and after it that.
async fn asked_in_turn(
    world: &World,
    what: &str,
    is_first: impl Fn(&EnsureLoadBalancerRequest) -> bool,
    is_second: impl Fn(&EnsureLoadBalancerRequest) -> bool,
) {
    let in_turn = |heard: &Heard| {
        let first = heard.ensures.iter().position(&is_first)?;
        heard.ensures[first..].iter().any(&is_second).then_some(())
    };
    world.broker.wait_for(what, in_turn).await;
}

fn asks_for(request: &EnsureLoadBalancerRequest, address: &str) -> bool {
    request.wish.as_ref().unwrap().requested_address == address
}

#[tokio::test(flavor = "multi_thread")]
async fn an_address_that_was_asked_for_and_is_no_longer_is_given_up_by_asking_again() {
    let world = with_a_served_service().await;
    let ip = world.served("web").await;
    world.broker.on_ensure(|request| {
        Ok(if asks_for(request, "192.0.2.250") {
            pending(SOON, "JOB_RUNNING", "the address is being taken")
        } else {
            settled(&[&address_of(request)])
        })
    });
    let annotation = format!("{PREFIX}address");
    world.api.change("services", "web", |web| {
        web["metadata"]["annotations"][&annotation] = json!("192.0.2.250");
    });
    let moving = |heard: &Heard| {
        heard
            .ensures
            .iter()
            .any(|it| asks_for(it, "192.0.2.250"))
            .then_some(())
    };
    world.broker.wait_for("the move", moving).await;
    world.api.change("services", "web", |web| {
        web["metadata"]["annotations"]
            .as_object_mut()
            .unwrap()
            .remove(&annotation);
    });
    asked_in_turn(
        &world,
        "the wish before it",
        |it| asks_for(it, "192.0.2.250"),
        |it| asks_for(it, ""),
    )
    .await;
    world.shows("web", &ip).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_address_that_was_left_already_is_not_published_again_without_asking() {
    let world = with_a_served_service().await;
    let old = world.served("web").await;
    // The new address is published, and the old one is on its way out when the change is taken back.
    world.broker.on_ensure(|request| {
        let published = request.published.iter().any(|ip| ip == "192.0.2.250");
        Ok(match (asks_for(request, "192.0.2.250"), published) {
            (true, false) => crate::fake_broker::moving("192.0.2.250", &address_of(request)),
            (true, true) => pending(SOON, "JOB_RUNNING", "the old address is being released"),
            (false, _) => settled(&["192.0.2.251"]),
        })
    });
    let annotation = format!("{PREFIX}address");
    world.api.change("services", "web", |web| {
        web["metadata"]["annotations"][&annotation] = json!("192.0.2.250");
    });
    world.shows("web", "192.0.2.250").await;
    let api = world.api.clone();
    world.api.change("services", "web", |web| {
        web["metadata"]["annotations"]
            .as_object_mut()
            .unwrap()
            .remove(&annotation);
    });
    world.shows("web", "192.0.2.251").await;
    let again = api
        .writes("services/web")
        .into_iter()
        .filter(|write| write.body["status"]["loadBalancer"]["ingress"][0]["ip"] == json!(old))
        .count();
    assert_eq!(again, 1, "only when it was new");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_was_excluded_and_is_no_longer_is_a_member_again() {
    let world = with_a_served_service().await;
    let members = |it: &EnsureLoadBalancerRequest| it.wish.as_ref().unwrap().members.len();
    world.broker.on_ensure(move |request| {
        Ok(if members(request) == 1 {
            pending(SOON, "JOB_RUNNING", "the machine is being removed")
        } else {
            settled(&[&address_of(request)])
        })
    });
    world.api.change("nodes", "node-1", |node| {
        node["metadata"]["labels"] =
            json!({"node.kubernetes.io/exclude-from-external-load-balancers": "true"});
    });
    let excluded = move |heard: &Heard| heard.ensures.iter().any(|it| members(it) == 1).then_some(());
    world.broker.wait_for("the node is excluded", excluded).await;
    world.api.change("nodes", "node-1", |node| {
        node["metadata"]["labels"] = json!({});
    });
    asked_in_turn(
        &world,
        "both nodes again",
        move |it| members(it) == 1,
        move |it| members(it) == 2,
    )
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_service_that_becomes_a_load_balancer_again_while_the_old_one_goes_gets_a_new_one() {
    let world = with_a_served_service().await;
    world.broker.on_delete(|_| {
        Ok(v1::DeleteLoadBalancerResponse {
            outcome: Some(delete_load_balancer_response::Outcome::Pending(still_pending(
                SOON,
                "JOB_RUNNING",
                "the address is being released",
            ))),
            notes: Vec::new(),
        })
    });
    world.api.change("services", "web", |web| {
        web["spec"]["type"] = json!("ClusterIP");
    });
    let going = |heard: &Heard| (!heard.deletes.is_empty()).then_some(());
    world.broker.wait_for("a delete", going).await;
    world.api.change("services", "web", |web| {
        web["spec"]["type"] = json!("LoadBalancer");
    });
    let again = |heard: &Heard| heard.ensures.get(1).map(|_| ());
    world.broker.wait_for("an ensure after the delete", again).await;
    world.served("web").await;
    world.broker.on_delete(|_| Ok(deleted()));
    world.api.delete("services", "web");
    let gone =
        |api: &crate::fake_apiserver::FakeApiServer| api.get("services", "web").is_none().then_some(());
    world.api.wait_for("web is gone", gone).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn behind_a_host_name_the_broker_is_told_which_address_is_published() {
    let world = World::new().await;
    let mut named = service("web");
    named["metadata"]["annotations"][format!("{PREFIX}hostname")] = json!("lb.example.com");
    world.api.create("services", named);
    world.told("web", "EnsuredLoadBalancer").await;
    let first = world.broker.heard().ensures[0].clone();
    assert!(first.published.is_empty());
    let ip = address_of(&first);
    world.broker.on_ensure(|request| {
        let old = address_of(request);
        Ok(if request.published.contains(&old) {
            crate::fake_broker::moving("192.0.2.250", &old)
        } else {
            settled(&["192.0.2.250"])
        })
    });
    world.api.change("services", "web", |web| {
        web["metadata"]["annotations"][format!("{PREFIX}address")] = json!("192.0.2.250");
    });
    let is_told = |request: &EnsureLoadBalancerRequest| request.published == ["192.0.2.250"];
    let moved = |heard: &Heard| heard.ensures.iter().any(is_told).then(|| heard.ensures.clone());
    let ensures = world.broker.wait_for("the move", moved).await;
    // Until the move is told, every call names the address that clients are sent to behind the name.
    let before = ensures.iter().skip(1).take_while(|request| !is_told(request));
    let told: Vec<_> = before.map(|request| request.published.clone()).collect();
    assert!(
        !told.is_empty() && told.iter().all(|published| *published == [ip.clone()]),
        "{told:?}"
    );
    world.api.delete("services", "web");
    let delete = world
        .broker
        .wait_for("a delete", |heard| heard.deletes.first().cloned())
        .await;
    assert_eq!(delete.published, ["192.0.2.250"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn another_address_that_somebody_shows_is_settled_by_the_broker() {
    let world = with_a_served_service().await;
    let ip = world.served("web").await;
    world.broker.on_ensure(|request| {
        // Two controllers made one each: the one that clients are told stays.
        let stays = request.published.first().cloned();
        Ok(settled(&[&stays.unwrap_or_else(|| address_of(request))]))
    });
    world.api.change("services", "web", |web| {
        web["status"]["loadBalancer"]["ingress"] = json!([{"ip": "192.0.2.77"}]);
    });
    let told = |heard: &Heard| {
        heard
            .ensures
            .iter()
            .any(|it| it.published == ["192.0.2.77"])
            .then_some(())
    };
    world.broker.wait_for("the other address", told).await;
    world.shows("web", "192.0.2.77").await;
    assert_ne!(ip, "192.0.2.77");
}
