//! Services are served, shown and left in peace.

use std::time::Duration;

use http::Method;
use proto::v1::{self, note, wish_member};
use proto::{Advice, Fault, FaultKind};
use serde_json::json;

use crate::fake_apiserver::FakeApiServer;
use crate::fake_broker::{FakeBroker, address_of, moving, pending, settled};
use crate::service_world::{FINALIZER, PREFIX, World, add_node, machine, served_before, service};

fn without_changes(mut answer: v1::EnsureLoadBalancerResponse) -> v1::EnsureLoadBalancerResponse {
    if let Some(v1::ensure_load_balancer_response::Outcome::Settled(settled)) = &mut answer.outcome {
        settled.changes = 0;
    }
    answer
}

#[tokio::test(flavor = "multi_thread")]
async fn s_02_s_03_a_new_service_gets_its_finalizer_then_its_address_in_two_patches() {
    let world = World::new().await;
    let api = world.api.clone();
    world.broker.on_ensure(move |_| {
        let web = api.get("services", "web").unwrap();
        assert_eq!(
            web["metadata"]["finalizers"],
            json!([FINALIZER]),
            "the finalizer comes first"
        );
        Ok(settled(&["192.0.2.7"]))
    });
    world.api.create("services", service("web"));
    world.shows("web", "192.0.2.7").await;
    world.told("web", "EnsuredLoadBalancer").await;
    let web = world.api.get("services", "web").unwrap();
    assert_eq!(
        web["status"]["loadBalancer"]["ingress"],
        json!([{"ip": "192.0.2.7", "ipMode": "VIP"}])
    );
    assert_eq!(
        web["metadata"]["annotations"][format!("{PREFIX}id")],
        json!("ip-1")
    );
    assert_eq!(
        web["metadata"]["annotations"][format!("{PREFIX}network-id")],
        json!("net-1")
    );
    assert_eq!(
        web["metadata"]["annotations"][format!("{PREFIX}ip-associated-by-controller")],
        json!("true")
    );
    let writes = world.api.writes("services/web");
    assert_eq!(writes.len(), 2, "{writes:#?}");
    for write in &writes {
        assert_eq!(write.path, "/api/v1/namespaces/default/services/web/status");
        assert_eq!(write.body["metadata"]["uid"], web["metadata"]["uid"]);
        assert!(write.body["spec"].is_null());
    }
    assert_eq!(
        world.api.events("web"),
        ["EnsuringLoadBalancer", "EnsuredLoadBalancer"]
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn the_broker_is_told_who_asks_for_what_with_which_fence_and_members() {
    let world = World::new().await;
    let created = world.api.create("services", service("web"));
    world.served("web").await;
    let request = world.broker.heard().ensures[0].clone();
    let reference = request.r#ref.unwrap();
    assert_eq!(
        (reference.namespace.as_str(), reference.name.as_str()),
        ("default", "web")
    );
    assert_eq!(json!(reference.uid), created["metadata"]["uid"]);
    let fence = request.fence.unwrap();
    assert_eq!((fence.lease_uid.as_str(), fence.transitions), ("lease-1", 3));
    assert_eq!(request.caller.unwrap().process_id, "process-1");
    assert_eq!(request.wait.unwrap().seconds, 20);
    let members: Vec<_> = request
        .wish
        .unwrap()
        .members
        .into_iter()
        .map(|member| member.machine.unwrap())
        .collect();
    assert_eq!(
        members,
        [1, 2].map(|number| wish_member::Machine::MachineId(machine(number)))
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn s_08_after_a_restart_an_unchanged_service_costs_one_call_and_no_write_and_no_event() {
    let api = FakeApiServer::new();
    add_node(&api, 1);
    api.create("services", served_before("web", "192.0.2.7"));
    let broker = FakeBroker::start().await;
    broker.on_ensure(|request| {
        let web = request
            .r#ref
            .as_ref()
            .is_some_and(|reference| reference.name == "web");
        Ok(if web {
            without_changes(settled(&["192.0.2.7"]))
        } else {
            settled(&[&address_of(request)])
        })
    });
    let world = World::start(api, broker).await;
    world.settles().await;
    world
        .broker
        .wait_for("web once", |heard| {
            heard.ensures.iter().find(|it| is(it, "web")).map(|_| ())
        })
        .await;
    world.settles().await;
    let asked = world
        .broker
        .heard()
        .ensures
        .into_iter()
        .filter(|it| is(it, "web"))
        .collect::<Vec<_>>();
    assert_eq!(asked.len(), 1);
    assert_eq!(asked[0].published, ["192.0.2.7"]);
    assert!(
        world.api.writes("services/web").is_empty(),
        "{:#?}",
        world.api.writes("services/web")
    );
    assert!(world.api.events("web").is_empty());
}

fn is(request: &v1::EnsureLoadBalancerRequest, name: &str) -> bool {
    request
        .r#ref
        .as_ref()
        .is_some_and(|reference| reference.name == name)
}

#[tokio::test(flavor = "multi_thread")]
async fn looking_for_drift_again_and_again_writes_nothing_and_tells_nothing() {
    let world = World::new().await;
    world.broker.describe(|description| {
        description.drift_period = Some(prost_types::Duration {
            seconds: 0,
            nanos: 200_000_000,
        });
    });
    // The answer of the controller's first Describe holds until the next one, a second later.
    let mut descriptions = world.context.broker.as_ref().unwrap().descriptions();
    descriptions
        .wait_for(|told| {
            told.as_ref()
                .is_some_and(|told| told.drift_period.is_some_and(|period| period.seconds == 0))
        })
        .await
        .unwrap();
    let note = v1::Note {
        severity: note::Severity::Warning as i32,
        reason: "AddressKept".to_owned(),
        field: String::new(),
        text: "192.0.2.9 stays allocated".to_owned(),
    };
    world.broker.on_ensure(move |request| {
        let answer = settled(&["192.0.2.7"]);
        let mut answer = if request.published.is_empty() {
            answer
        } else {
            without_changes(answer)
        };
        answer.notes = vec![note.clone()];
        Ok(answer)
    });
    world.api.create("services", service("web"));
    world
        .broker
        .wait_for("four looks", |heard| (heard.ensures.len() >= 4).then_some(()))
        .await;
    world.told("web", "AddressKept").await;
    assert_eq!(world.api.writes("services/web").len(), 2);
    let mut events = world.api.events("web");
    events.sort();
    assert_eq!(
        events,
        ["AddressKept", "EnsuredLoadBalancer", "EnsuringLoadBalancer"]
    );
    assert!(world.api.writes("events").is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn s_46_s_47_changes_that_don_t_matter_cause_no_call_and_one_that_does_causes_one() {
    let world = World::new().await;
    world.api.create("services", service("web"));
    world.served("web").await;
    world.told("web", "EnsuredLoadBalancer").await;
    let writes = world.api.writes("services/web").len();
    world.api.change("services", "web", |web| {
        web["metadata"]["labels"] = json!({"team": "a"});
    });
    world.api.change("services", "web", |web| {
        web["metadata"]["annotations"]["example/a"] = json!("c");
    });
    world.api.change("services", "web", |web| {
        web["spec"]["selector"] = json!({"app": "web"});
    });
    world.settles().await;
    assert_eq!(
        world
            .broker
            .heard()
            .ensures
            .iter()
            .filter(|it| is(it, "web"))
            .count(),
        1
    );
    assert_eq!(world.api.writes("services/web").len(), writes);
    world.api.change("services", "web", |web| {
        web["spec"]["ports"][0]["port"] = json!(81);
    });
    let asked =
        |heard: &crate::fake_broker::Heard| heard.ensures.iter().filter(|it| is(it, "web")).nth(1).cloned();
    let request = world.broker.wait_for("the new port", asked).await;
    assert_eq!(request.wish.unwrap().ports[0].port, 81);
    world.settles().await;
    assert_eq!(
        world
            .broker
            .heard()
            .ensures
            .iter()
            .filter(|it| is(it, "web"))
            .count(),
        2
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn what_somebody_wrote_over_our_outputs_and_status_is_corrected_without_asking_the_broker() {
    let world = World::new().await;
    world.api.create("services", service("web"));
    let ip = world.served("web").await;
    world.told("web", "EnsuredLoadBalancer").await;
    world.api.change("services", "web", |web| {
        web["metadata"]["annotations"][format!("{PREFIX}id")] = json!("forged");
        web["status"]["loadBalancer"] = json!({});
    });
    world.shows("web", &ip).await;
    let web = world.api.get("services", "web").unwrap();
    assert_eq!(
        web["metadata"]["annotations"][format!("{PREFIX}id")],
        json!("ip-1")
    );
    assert_eq!(world.broker.heard().ensures.len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_proxy_protocol_and_a_host_name_show_in_the_status() {
    let world = World::new().await;
    world.broker.on_ensure(|request| {
        let proxy = request.wish.as_ref().unwrap().ports[0].proxy_protocol;
        let mut answer = settled(&[&address_of(request)]);
        if let Some(v1::ensure_load_balancer_response::Outcome::Settled(settled)) = &mut answer.outcome {
            settled.ingress[0].proxy = proxy;
        }
        Ok(answer)
    });
    let mut proxied = service("proxied");
    proxied["metadata"]["annotations"][format!("{PREFIX}proxy-protocol")] = json!("true");
    let mut named = service("named");
    named["metadata"]["annotations"][format!("{PREFIX}hostname")] = json!("lb.example.com");
    world.api.create("services", proxied);
    world.api.create("services", named);
    world.served("proxied").await;
    let web = world.api.get("services", "proxied").unwrap();
    assert_eq!(
        web["status"]["loadBalancer"]["ingress"][0]["ipMode"],
        json!("Proxy")
    );
    let hostname = |api: &FakeApiServer| {
        let ingress = api.get("services", "named")?["status"]["loadBalancer"]["ingress"].clone();
        (!ingress.is_null()).then_some(ingress)
    };
    assert_eq!(
        world.api.wait_for("the host name", hostname).await,
        json!([{"hostname": "lb.example.com"}])
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_address_is_published_before_the_old_one_may_go() {
    let api = FakeApiServer::new();
    api.create("services", served_before("web", "192.0.2.7"));
    let broker = FakeBroker::start().await;
    broker.on_ensure(|request| {
        let old_is_published = request.published.iter().any(|ip| ip == "192.0.2.7");
        Ok(if old_is_published {
            moving("192.0.2.8", "192.0.2.7")
        } else {
            settled(&["192.0.2.8"])
        })
    });
    let world = World::start(api, broker).await;
    let second = world
        .broker
        .wait_for("the second call", |heard| heard.ensures.get(1).cloned())
        .await;
    assert_eq!(
        second.published,
        ["192.0.2.8"],
        "the status was written in between"
    );
    world.shows("web", "192.0.2.8").await;
    world.settles().await;
    assert_eq!(
        world
            .broker
            .heard()
            .ensures
            .iter()
            .filter(|it| is(it, "web"))
            .count(),
        2
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn pending_is_asked_again_after_its_time_and_is_no_failure() {
    let world = World::new().await;
    let calls = std::sync::atomic::AtomicU32::new(0);
    let wait = Duration::from_millis(150);
    world.broker.on_ensure(move |_| {
        Ok(match calls.fetch_add(1, std::sync::atomic::Ordering::SeqCst) {
            0 => pending(Duration::ZERO, "JOB_RUNNING", "the address is being taken"),
            1 => pending(wait, "JOB_RUNNING", "the address is being taken"),
            _ => settled(&["192.0.2.7"]),
        })
    });
    let began = runtime::clock::now();
    world.api.create("services", service("web"));
    world.shows("web", "192.0.2.7").await;
    let took = runtime::clock::now().duration_since(began);
    assert!(took >= wait, "{took:?}");
    world.told("web", "EnsuredLoadBalancer").await;
    assert_eq!(world.broker.heard().ensures.len(), 3);
    assert_eq!(
        world.api.events("web"),
        ["EnsuringLoadBalancer", "EnsuredLoadBalancer"]
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_pending_for_long_is_said_in_the_status_and_cleared_when_it_is_over() {
    let world = World::new().await;
    world.broker.on_ensure(|_| {
        Ok(pending(
            Duration::from_millis(100),
            "REQUESTED_ADDRESS_BUSY",
            "192.0.2.7 belongs to somebody else",
        ))
    });
    world.api.create("services", service("web"));
    let condition = |status: &'static str| {
        move |api: &FakeApiServer| {
            let condition = api.get("services", "web")?["status"]["conditions"][0].clone();
            (condition["status"] == json!(status)).then_some(condition)
        }
    };
    let found = world.api.wait_for("a condition", condition("False")).await;
    assert_eq!(found["reason"], json!("RequestedAddressBusy"));
    assert_eq!(found["message"], json!("192.0.2.7 belongs to somebody else"));
    world.broker.on_ensure(|_| Ok(settled(&["192.0.2.7"])));
    world.api.wait_for("a true condition", condition("True")).await;
    world.shows("web", "192.0.2.7").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_service_that_can_not_be_served_gets_one_event_with_the_field_and_nothing_is_asked_for() {
    let world = World::new().await;
    let mut sctp = service("web");
    sctp["spec"]["ports"][0]["protocol"] = json!("SCTP");
    world.api.create("services", sctp);
    world.told("web", "SyncLoadBalancerFailed").await;
    world.api.change("services", "web", |web| {
        web["metadata"]["labels"] = json!({"a": "b"});
    });
    world.settles().await;
    assert_eq!(world.api.events("web"), ["SyncLoadBalancerFailed"]);
    let texts = world.api.event_texts("web", "SyncLoadBalancerFailed");
    assert!(texts[0].starts_with("spec.ports[0].protocol: SCTP"), "{texts:?}");
    let web = world.api.get("services", "web").unwrap();
    assert!(
        web["metadata"]["finalizers"].is_null(),
        "nothing is there to clean up"
    );
    assert_eq!(web["status"]["conditions"][0]["reason"], json!("InvalidService"));
    assert!(!world.broker.heard().ensures.iter().any(|it| is(it, "web")));
    world.api.change("services", "web", |web| {
        web["spec"]["ports"][0]["protocol"] = json!("TCP");
    });
    world.served("web").await;
    let web = world.api.get("services", "web").unwrap();
    assert_eq!(web["status"]["conditions"][0]["status"], json!("True"));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_serves_stays_as_it_is_while_its_service_is_refused() {
    let world = World::new().await;
    world.api.create("services", service("web"));
    let ip = world.served("web").await;
    world.told("web", "EnsuredLoadBalancer").await;
    world.api.change("services", "web", |web| {
        web["metadata"]["annotations"][format!("{PREFIX}proxy-protocol")] = json!("enabled");
    });
    world.told("web", "SyncLoadBalancerFailed").await;
    let texts = world.api.event_texts("web", "SyncLoadBalancerFailed");
    assert!(
        texts[0].contains("proxy-protocol") && texts[0].contains("enabled"),
        "{texts:?}"
    );
    world.shows("web", &ip).await;
    world.settles().await;
    assert_eq!(
        world
            .broker
            .heard()
            .ensures
            .iter()
            .filter(|it| is(it, "web"))
            .count(),
        1
    );
    assert!(world.broker.heard().deletes.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refusal_of_the_broker_is_told_once_and_not_tried_again_before_a_change() {
    let world = World::new().await;
    world.broker.on_ensure(|request| {
        if is(request, "web") && request.wish.as_ref().unwrap().ports[0].port == 80 {
            return Err(Fault::invalid(
                "PORT_TAKEN",
                "spec.ports[0].port",
                "port 80 of the address is another Service's",
            ));
        }
        Ok(settled(&[&address_of(request)]))
    });
    world.api.create("services", service("web"));
    world.told("web", "SyncLoadBalancerFailed").await;
    world.settles().await;
    let texts = world.api.event_texts("web", "SyncLoadBalancerFailed");
    assert_eq!(
        texts,
        ["spec.ports[0].port: port 80 of the address is another Service's"]
    );
    assert_eq!(
        world
            .broker
            .heard()
            .ensures
            .iter()
            .filter(|it| is(it, "web"))
            .count(),
        1
    );
    world.api.change("services", "web", |web| {
        web["spec"]["ports"][0]["port"] = json!(81);
    });
    world.served("web").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn s_151_a_fault_is_tried_again_and_told_once() {
    let world = World::new().await;
    let calls = std::sync::atomic::AtomicU32::new(0);
    world.broker.on_ensure(move |_| {
        if calls.fetch_add(1, std::sync::atomic::Ordering::SeqCst) < 3 {
            return Err(Fault::new(
                FaultKind::Quota,
                "ADDRESS_LIMIT",
                "the account has no address left",
            ));
        }
        Ok(settled(&["192.0.2.7"]))
    });
    world.api.create("services", service("web"));
    world.shows("web", "192.0.2.7").await;
    world.told("web", "EnsuredLoadBalancer").await;
    assert_eq!(world.broker.heard().ensures.len(), 4);
    let mut events = world.api.events("web");
    events.sort();
    assert_eq!(
        events,
        [
            "EnsuredLoadBalancer",
            "EnsuringLoadBalancer",
            "SyncLoadBalancerFailed"
        ]
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn s_152_the_broker_s_advice_when_to_ask_again_is_kept() {
    let world = World::new().await;
    let wait = Duration::from_millis(900);
    let calls = std::sync::Arc::new(parking_lot::Mutex::new(Vec::new()));
    let log = std::sync::Arc::clone(&calls);
    world.broker.on_ensure(move |_| {
        let mut calls = log.lock();
        calls.push(runtime::clock::now());
        if calls.len() == 1 {
            let fault = Fault::new(FaultKind::Busy, "THROTTLED", "the cloud asks for patience");
            return Err(fault.with_advice(Advice::After(wait)));
        }
        Ok(settled(&["192.0.2.7"]))
    });
    world.api.create("services", service("web"));
    world.shows("web", "192.0.2.7").await;
    let calls = calls.lock();
    assert_eq!(calls.len(), 2);
    let waited = calls[1].duration_since(calls[0]);
    // The back-off alone would have been 50 ms.
    assert!(waited >= wait, "{waited:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn s_12_a_conflict_on_the_status_is_told_and_tried_again() {
    let world = World::new().await;
    let mut left = 2;
    world.api.refuse(move |method, path, body| {
        let status = *method == Method::PATCH && path.ends_with("/web/status") && !body["status"].is_null();
        if !status || left == 0 {
            return None;
        }
        left -= 1;
        Some((409, "the object has been modified"))
    });
    world.api.create("services", service("web"));
    world.served("web").await;
    world.told("web", "SyncLoadBalancerFailed").await;
    let texts = world.api.event_texts("web", "SyncLoadBalancerFailed");
    assert_eq!(texts.len(), 1);
    assert!(texts[0].contains("the object has been modified"), "{texts:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn s_13_a_service_that_is_gone_when_its_status_is_written_is_no_failure() {
    let world = World::new().await;
    world.api.refuse(|method, path, body| {
        let status = *method == Method::PATCH && path.ends_with("/web/status") && !body["status"].is_null();
        status.then_some((404, "services \"web\" not found"))
    });
    world.api.create("services", service("web"));
    world
        .broker
        .wait_for("web", |heard| {
            heard.ensures.iter().find(|it| is(it, "web")).map(|_| ())
        })
        .await;
    world.settles().await;
    assert_eq!(world.api.events("web"), ["EnsuringLoadBalancer"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_rule_of_the_role_is_named() {
    let world = World::new().await;
    world.api.refuse(|method, path, _| {
        (*method == Method::PATCH && path.ends_with("/web/status")).then_some((403, "forbidden"))
    });
    world.api.create("services", service("web"));
    world.told("web", "SyncLoadBalancerFailed").await;
    let texts = world.api.event_texts("web", "SyncLoadBalancerFailed");
    assert!(texts[0].contains("may not patch services/status"), "{texts:?}");
    assert!(
        world.broker.heard().ensures.is_empty(),
        "nothing is asked for without a finalizer"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn services_of_other_classes_and_types_are_left_alone() {
    let world = World::new().await;
    let mut other = service("other");
    other["spec"]["loadBalancerClass"] = json!("example.com/lb");
    let mut internal = service("internal");
    internal["spec"]["type"] = json!("ClusterIP");
    world.api.create("services", other);
    world.api.create("services", internal);
    world.settles().await;
    for name in ["other", "internal"] {
        assert!(world.api.writes(&format!("services/{name}")).is_empty());
        assert!(world.api.events(name).is_empty());
        assert!(!world.broker.heard().ensures.iter().any(|it| is(it, name)));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn h_76_s_167_what_others_write_meanwhile_survives() {
    let world = World::new().await;
    let api = world.api.clone();
    world.broker.on_ensure(move |request| {
        api.change("services", "web", |web| {
            let finalizers = web["metadata"]["finalizers"].as_array_mut().unwrap();
            if finalizers.len() == 1 {
                finalizers.push(json!("example/other"));
            }
            web["metadata"]["annotations"]["example/late"] = json!("x");
        });
        Ok(settled(&[&address_of(request)]))
    });
    world.api.create("services", service("web"));
    world.served("web").await;
    let web = world.api.get("services", "web").unwrap();
    assert_eq!(web["metadata"]["finalizers"], json!([FINALIZER, "example/other"]));
    assert_eq!(web["metadata"]["annotations"]["example/late"], json!("x"));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_api_server_that_drops_modes_is_patched_once() {
    let world = World::new().await;
    world.broker.describe(|description| {
        description.drift_period = Some(prost_types::Duration {
            seconds: 0,
            nanos: 200_000_000,
        });
    });
    let mut descriptions = world.context.broker.as_ref().unwrap().descriptions();
    descriptions
        .wait_for(|told| {
            told.as_ref()
                .is_some_and(|told| told.drift_period.is_some_and(|period| period.seconds == 0))
        })
        .await
        .unwrap();
    world.broker.on_ensure(|_| {
        let mut answer = settled(&["192.0.2.7"]);
        if let Some(v1::ensure_load_balancer_response::Outcome::Settled(settled)) = &mut answer.outcome {
            settled.ingress[0].proxy = true;
            settled.changes = 0;
        }
        Ok(answer)
    });
    world.api.drop_field("ipMode");
    world.api.create("services", service("web"));
    world
        .broker
        .wait_for("four looks", |heard| (heard.ensures.len() >= 4).then_some(()))
        .await;
    assert_eq!(world.api.writes("services/web").len(), 2);
}
