//! The shell against a kube-apiserver in memory that keeps versions, refuses stale writes and can be told to fail.

mod fake;

use std::collections::BTreeSet;

use futures::future::join_all;
use proto::v1::{Adoption, Dialect, LoadBalancerRef, Wish};
use rstest::rstest;
use serde_json::json;

use self::fake::{Answers, Server, service};
use super::super::allocation::Rules;
use super::super::pool::{Habits, PoolSpec, Pools};
use super::*;
use crate::lease::Fence;
use crate::metrics::Metrics;
use crate::service::backend::BackendName;
use crate::service::choice::Running;

fn backend(server: &Server, pool: &str) -> Keepalived {
    let (throne, leadership) = Leadership::contested();
    throne.lead(
        Fence {
            lease_uid: "lease".into(),
            transitions: 1,
        },
        None,
    );
    std::mem::forget(throne);
    let (events, writer) = Recorder::new(Metrics::default());
    std::mem::forget(writer);
    let pools = Pools::build(&[PoolSpec::open("default", pool)], "", Habits::default()).unwrap();
    let services = server.clone();
    Keepalived::new(Parts {
        settings: KeepalivedSettings {
            namespace: "kube-system".into(),
            config_map: "vip-configmap".into(),
            create: true,
            dry_run: false,
            rules: Rules {
                pools,
                ..Rules::default()
            },
        },
        store: Store::new(server.client(), "kube-system", "vip-configmap"),
        sources: Sources {
            services: Box::new(move || services.seen_services()),
            nodes: Box::new(Vec::new),
        },
        owner: Owner {
            running: Running::One(BackendName::Keepalived),
        },
        leadership,
        events,
        meter: Meter::default(),
    })
}

fn reference(name: &str) -> LoadBalancerRef {
    LoadBalancerRef {
        uid: format!("uid-{name}"),
        namespace: "default".into(),
        name: name.into(),
    }
}

async fn ensure(backend: &Keepalived, server: &Server, name: &str) -> Result<String, Fault> {
    let order = EnsureOrder {
        service: server.service(name),
        reference: reference(name),
        wish: Wish::default(),
        published: Vec::new(),
    };
    let answer = backend.ensure(order).await?;
    let Progress::Settled(settled) = answer.outcome else {
        panic!("it never waits")
    };
    Ok(settled.ingress[0].ip.clone())
}

async fn remove(backend: &Keepalived, name: &str) -> Result<Removed, Fault> {
    let order = RemoveOrder {
        reference: reference(name),
        keep_address: false,
        network: String::new(),
        dialect: Dialect::default(),
        adoption: Adoption::default(),
        published: Vec::new(),
    };
    let Progress::Settled(removed) = backend.remove(order).await?.outcome else {
        panic!("it never waits")
    };
    Ok(removed)
}

#[tokio::test]
async fn a_service_gets_its_address_and_gives_it_back() {
    let server = Server::with_config_map().with(service("a"));
    let backend = backend(&server, "10.0.0.0/29");
    assert_eq!(backend.holds(&server.service("a")), Holds::Unknown);
    assert!(!backend.records(&server.service("a")));
    assert_eq!(ensure(&backend, &server, "a").await.unwrap(), "10.0.0.1");
    assert_eq!(server.data(), json!({ "10.0.0.1": "default/a" }));
    assert_eq!(backend.holds(&server.service("a")), Holds::Yes);
    assert!(backend.records(&server.service("a")));
    let mut follower = (*server.service("a")).clone();
    follower.metadata.uid = Some("uid-of-another".into());
    assert_eq!(backend.holds(&follower), Holds::Yes, "one of its name");
    assert!(!backend.records(&follower), "not this very Service");
    let removed = remove(&backend, "a").await.unwrap();
    assert_eq!(
        (removed.released, removed.changes),
        (vec!["10.0.0.1".to_owned()], 1)
    );
    assert_eq!(server.data(), json!({}));
    assert_eq!(backend.holds(&server.service("a")), Holds::No);
}

#[tokio::test]
async fn a_second_order_writes_nothing() {
    let server = Server::with_config_map().with(service("a"));
    let backend = backend(&server, "10.0.0.0/29");
    ensure(&backend, &server, "a").await.unwrap();
    let writes = server.writes();
    ensure(&backend, &server, "a").await.unwrap();
    assert_eq!(server.writes(), writes);
    assert_eq!(remove(&backend, "never-seen").await.unwrap().changes, 0);
    assert_eq!(server.writes(), writes);
}

#[tokio::test]
async fn case_58_a_missing_config_map_is_created_empty_and_then_filled() {
    let server = Server::empty().with(service("a"));
    let backend = backend(&server, "10.0.0.0/29");
    assert_eq!(ensure(&backend, &server, "a").await.unwrap(), "10.0.0.1");
    let bodies = server.bodies();
    assert_eq!(bodies.len(), 2);
    assert!(
        bodies[0].0 == "POST" && bodies[0].1.get("data").is_none(),
        "{bodies:?}"
    );
    assert!(
        bodies[1].0 == "PATCH" && bodies[1].1["data"]["10.0.0.1"] == "default/a",
        "{bodies:?}"
    );
}

#[tokio::test]
async fn case_69_a_conflict_is_planned_again_at_once() {
    let server = Server::with_config_map().with(service("a"));
    server.answer(Answers::Meddle(vec![
        ("10.0.0.1", "infra/hand"),
        ("10.0.0.2", ""),
    ]));
    let backend = backend(&server, "10.0.0.0/29");
    assert_eq!(ensure(&backend, &server, "a").await.unwrap(), "10.0.0.3");
    assert_eq!(
        server.data(),
        json!({ "10.0.0.1": "infra/hand", "10.0.0.2": "", "10.0.0.3": "default/a" })
    );
}

#[rstest]
#[case::case_70_forbidden(
    403,
    FaultKind::Denied,
    "may not patch configmaps/vip-configmap in kube-system"
)]
#[case::case_70_immutable(422, FaultKind::Invalid, "refused to patch")]
#[case::case_70_too_large(413, FaultKind::Invalid, "refused to patch")]
#[tokio::test]
async fn a_refused_write_tells_its_cause_and_gives_no_address(
    #[case] code: u16,
    #[case] kind: FaultKind,
    #[case] part: &str,
) {
    let server = Server::with_config_map().with(service("a"));
    server.answer(Answers::Refuse(code));
    let backend = backend(&server, "10.0.0.0/29");
    let fault = ensure(&backend, &server, "a").await.unwrap_err();
    assert!(fault.kind == kind && fault.text.contains(part), "{fault:?}");
    assert_eq!(
        fault.advice,
        Advice::BackOff,
        "a person may mend it without touching the Service"
    );
    assert_eq!(server.data(), json!({}));
    server.answer(Answers::Normally);
    assert_eq!(ensure(&backend, &server, "a").await.unwrap(), "10.0.0.1");
}

#[tokio::test]
async fn three_hundred_services_on_254_addresses_in_a_few_writes() {
    let names: Vec<String> = (0..300).map(|n| format!("s{n}")).collect();
    let server = names.iter().fold(Server::with_config_map(), |server, name| {
        server.with(service(name))
    });
    let backend = backend(&server, "10.0.0.0/24");
    let answers = join_all(names.iter().map(|name| ensure(&backend, &server, name))).await;
    let distinct: BTreeSet<String> = answers
        .iter()
        .filter_map(|answer| answer.as_ref().ok())
        .cloned()
        .collect();
    let refused: Vec<&Fault> = answers
        .iter()
        .filter_map(|answer| answer.as_ref().err())
        .collect();
    assert_eq!(
        (distinct.len(), refused.len()),
        (254, 46),
        "no address twice, nobody without a reason"
    );
    assert!(
        refused
            .iter()
            .all(|fault| fault.kind == FaultKind::Quota && fault.text.contains("254 in use"))
    );
    assert!(server.writes() <= 3, "{} writes", server.writes());
}

#[tokio::test]
async fn two_agents_at_once_give_no_address_twice() {
    let names: Vec<String> = (0..40).map(|n| format!("s{n}")).collect();
    let server = names
        .iter()
        .fold(Server::empty(), |server, name| server.with(service(name)));
    let pair = [backend(&server, "10.0.0.0/24"), backend(&server, "10.0.0.0/24")];
    let orders = names.iter().enumerate().map(|(n, name)| {
        let (backend, server) = (&pair[n % 2], &server);
        async move {
            // One after the other per agent would not race.
            for _ in 0..(n % 5) {
                tokio::task::yield_now().await;
            }
            loop {
                match ensure(backend, server, name).await {
                    Ok(address) => return address,
                    Err(fault) => assert_eq!(fault.kind, FaultKind::Conflict),
                }
            }
        }
    });
    let addresses = join_all(orders).await;
    let distinct: BTreeSet<&String> = addresses.iter().collect();
    assert_eq!(distinct.len(), 40);
    assert_eq!(server.data().as_object().unwrap().len(), 40);
    assert_eq!(server.records().len(), 40);
}

#[tokio::test]
async fn invariant_11_a_process_that_dies_at_any_call_changes_no_address() {
    let world = || {
        let server = Server::empty()
            .with(service("a"))
            .with(service("b"))
            .with(service("c"));
        server.publish("b", "10.0.0.4");
        server
    };
    let run = async |server: &Server| {
        let backend = backend(server, "10.0.0.0/29");
        for name in ["a", "b", "c"] {
            if let Ok(address) = ensure(&backend, server, name).await {
                server.publish(name, &address);
            } else {
                return false;
            }
        }
        remove(&backend, "c").await.is_ok()
    };
    let straight = world();
    assert!(run(&straight).await);
    for call in 1..30 {
        for is_carried_out in [false, true] {
            let server = world();
            server.answer(Answers::Die {
                at: call,
                is_carried_out,
            });
            let is_done = run(&server).await;
            server.answer(Answers::Normally);
            assert!(run(&server).await, "after a death at call {call}");
            assert_eq!(
                server.data(),
                straight.data(),
                "after a death at call {call} ({is_carried_out}, {is_done})"
            );
            assert_eq!(
                server.addresses(),
                straight.addresses(),
                "after a death at call {call}"
            );
        }
    }
}

#[tokio::test]
async fn a_record_of_a_service_that_the_watch_does_not_show_yet_is_kept() {
    let server = Server::with_config_map().with(service("a")).with(service("b"));
    ensure(&backend(&server, "10.0.0.0/29"), &server, "a")
        .await
        .unwrap();
    let late = backend(&server, "10.0.0.0/29");
    server.hide("a");
    assert_eq!(ensure(&late, &server, "b").await.unwrap(), "10.0.0.2");
    assert_eq!(
        server.data(),
        json!({ "10.0.0.1": "default/a", "10.0.0.2": "default/b" })
    );
    server.delete("a");
    late.pass_alone().await.unwrap();
    assert_eq!(server.data(), json!({ "10.0.0.2": "default/b" }));
}

#[tokio::test]
async fn a_freed_address_wakes_those_who_wait() {
    let server = Server::with_config_map().with(service("a")).with(service("b"));
    let backend = backend(&server, "10.0.0.8/32");
    let woken: Arc<Mutex<Vec<String>>> = Arc::default();
    let log = Arc::clone(&woken);
    backend.wake_with(Arc::new(move |namespace, name| {
        log.lock().push(format!("{namespace}/{name}"));
    }));
    ensure(&backend, &server, "a").await.unwrap();
    assert_eq!(
        ensure(&backend, &server, "b").await.unwrap_err().kind,
        FaultKind::Quota
    );
    assert!(woken.lock().is_empty());
    remove(&backend, "a").await.unwrap();
    assert_eq!(*woken.lock(), ["default/b"]);
    assert_eq!(ensure(&backend, &server, "b").await.unwrap(), "10.0.0.8");
}

#[tokio::test]
async fn a_service_that_can_never_be_served_as_it_is_is_not_tried_again() {
    let mut bad = service("a");
    bad["spec"]["loadBalancerIP"] = json!("not-an-ip");
    let server = Server::with_config_map().with(bad);
    let fault = ensure(&backend(&server, "10.0.0.0/29"), &server, "a")
        .await
        .unwrap_err();
    assert_eq!(
        (fault.reason.as_ref(), fault.advice),
        ("InvalidLoadBalancerIP", Advice::NeverUntilChanged)
    );
}

#[tokio::test]
async fn damage_is_put_right_without_anybody_asking_until_it_becomes_a_fight() {
    let server = Server::with_config_map().with(service("a"));
    let backend = backend(&server, "10.0.0.0/29");
    ensure(&backend, &server, "a").await.unwrap();
    server.publish("a", "10.0.0.1");
    for _ in 0..5 {
        server.edit("10.0.0.1", Some("x/y"));
        backend.pass_alone().await.unwrap();
        assert_eq!(server.data(), json!({ "10.0.0.1": "default/a" }));
    }
    server.edit("10.0.0.1", Some("x/y"));
    backend.pass_alone().await.unwrap();
    assert_eq!(server.data(), json!({ "10.0.0.1": "x/y" }), "left alone for now");
}

#[tokio::test]
async fn without_the_right_to_create_it_a_missing_config_map_is_an_error_that_says_what_to_do() {
    let server = Server::empty().with(service("a"));
    let mut backend = backend(&server, "10.0.0.0/29");
    Arc::get_mut(&mut backend.shared).unwrap().parts.settings.create = false;
    let fault = ensure(&backend, &server, "a").await.unwrap_err();
    assert!(fault.text.contains("does not exist; create it"), "{}", fault.text);
}
