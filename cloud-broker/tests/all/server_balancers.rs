//! Calls about load balancers through the socket: answers, fences, turns, callers that leave.

#![expect(clippy::unnecessary_wraps, reason = "fields of messages are optional")]

use std::time::Duration;

use cloudstack_simulator::{Effect, Fault as Script, Handle, Seed};
use proto::v1::{
    DeleteLoadBalancerRequest, EnsureLoadBalancerRequest, Fence, ListLoadBalancersRequest, LoadBalancerRef,
    PlanLoadBalancerRequest, Wish, WishMember, WishPort, delete_load_balancer_response,
    ensure_load_balancer_response, plan_load_balancer_request, wish_member, wish_port,
};
use proto::{Advice, Fault, FaultKind};

use super::client_support::until;
use super::server_support::{Agent, Running, config, named, seed, simulator};

const SERVICE: &str = "5e5e5e5e-0000-4000-8000-000000000001";

fn service() -> Option<LoadBalancerRef> {
    Some(LoadBalancerRef {
        uid: SERVICE.into(),
        namespace: "shop".into(),
        name: "web".into(),
    })
}

fn fence(transitions: u64) -> Option<Fence> {
    Some(Fence {
        lease_uid: "lease-1".into(),
        transitions,
    })
}

fn wait(time: Duration) -> Option<prost_types::Duration> {
    prost_types::Duration::try_from(time).ok()
}

fn port(port: u32) -> WishPort {
    WishPort {
        protocol: wish_port::Protocol::Tcp.into(),
        port,
        node_port: 30000 + port,
        ..WishPort::default()
    }
}

async fn request(agent: &Agent, ports: &[u32]) -> EnsureLoadBalancerRequest {
    let names = ["node-1", "node-2", "node-3"];
    let results = agent
        .look_up(names.iter().map(|name| named(name)).collect())
        .await
        .unwrap();
    let members = names.iter().zip(results).map(|(name, result)| {
        let machine = match result.presence {
            Some(proto::v1::instance_result::Presence::Found(machine)) => {
                wish_member::Machine::MachineId(machine.machine_id)
            }
            _ => wish_member::Machine::Unresolved(true),
        };
        WishMember {
            node_name: (*name).to_owned(),
            machine: Some(machine),
        }
    });
    EnsureLoadBalancerRequest {
        caller: Some(agent.caller.clone()),
        r#ref: service(),
        fence: fence(1),
        wish: Some(Wish {
            ports: ports.iter().copied().map(port).collect(),
            members: members.collect(),
            ..Wish::default()
        }),
        published: vec![],
        wait: wait(Duration::from_secs(20)),
    }
}

fn delete(agent: &Agent) -> DeleteLoadBalancerRequest {
    DeleteLoadBalancerRequest {
        caller: Some(agent.caller.clone()),
        r#ref: service(),
        fence: fence(1),
        wait: wait(Duration::from_secs(20)),
        ..DeleteLoadBalancerRequest::default()
    }
}

async fn ensure(
    agent: &Agent,
    request: EnsureLoadBalancerRequest,
) -> Result<ensure_load_balancer_response::Outcome, Fault> {
    Ok(agent
        .client
        .clone()
        .ensure_load_balancer(request)
        .await?
        .into_inner()
        .outcome
        .unwrap())
}

async fn settle(agent: &Agent, request: &EnsureLoadBalancerRequest) -> (String, u32) {
    for _ in 0..50 {
        match ensure(agent, request.clone()).await.unwrap() {
            ensure_load_balancer_response::Outcome::Settled(settled) => {
                return (settled.ingress[0].ip.clone(), settled.changes);
            }
            ensure_load_balancer_response::Outcome::Pending(_) => {}
        }
    }
    panic!("it does not settle");
}

fn is_empty(cloud: &Handle) -> bool {
    let dump = cloud.dump();
    dump.rules.is_empty()
        && dump.firewall_rules.is_empty()
        && dump.acquired().filter(|row| !row.source_nat).count() == 0
}

#[tokio::test(flavor = "multi_thread")]
#[expect(clippy::too_many_lines, reason = "one story")]
async fn a_balancer_is_made_listed_planned_and_removed() {
    let cloud = simulator(seed()).await;
    let broker = Running::start(&config(&cloud, "demo", "")).await;
    let agent = broker.agent();
    let request = request(&agent, &[80, 443]).await;
    let plan = |request: EnsureLoadBalancerRequest| PlanLoadBalancerRequest {
        request: Some(plan_load_balancer_request::Request::Ensure(request)),
    };
    let planned = agent
        .client
        .clone()
        .plan_load_balancer(plan(request.clone()))
        .await
        .unwrap()
        .into_inner();
    assert!(!planned.steps.is_empty() && planned.refused.is_empty());
    assert!(is_empty(&cloud), "a plan does nothing");
    let (ip, changes) = settle(&agent, &request).await;
    assert!(changes > 0 && ip.starts_with("127.100.0."), "{ip}");
    assert_eq!(cloud.dump().rules.len(), 2);
    assert!(cloud.dump().rules.iter().all(|rule| rule.members.len() == 3));
    let published = EnsureLoadBalancerRequest {
        published: vec![ip.clone()],
        ..request.clone()
    };
    assert_eq!(settle(&agent, &published).await, (ip.clone(), 0));
    let planned = agent
        .client
        .clone()
        .plan_load_balancer(plan(published))
        .await
        .unwrap()
        .into_inner();
    assert_eq!(planned.steps, []);
    assert_eq!(agent.describe().await.unwrap().policy.unwrap().used_public_ips, 1);
    let list = |live: &[&str]| ListLoadBalancersRequest {
        caller: Some(agent.caller.clone()),
        live_service_uids: live.iter().map(ToString::to_string).collect(),
        ..ListLoadBalancersRequest::default()
    };
    let listed = agent
        .client
        .clone()
        .list_load_balancers(list(&[SERVICE]))
        .await
        .unwrap()
        .into_inner();
    assert_eq!(listed.load_balancers.len(), 1);
    assert_eq!(
        (
            listed.load_balancers[0].addresses.clone(),
            listed.load_balancers[0].orphan
        ),
        (vec![ip.clone()], false)
    );
    let listed = agent
        .client
        .clone()
        .list_load_balancers(list(&["another"]))
        .await
        .unwrap()
        .into_inner();
    assert!(listed.load_balancers[0].orphan);
    let answer = agent
        .client
        .clone()
        .delete_load_balancer(delete(&agent))
        .await
        .unwrap()
        .into_inner();
    let Some(delete_load_balancer_response::Outcome::Settled(settled)) = answer.outcome else {
        panic!("{answer:?}")
    };
    assert_eq!(settled.released, [ip]);
    assert!(is_empty(&cloud));
    broker.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_balancer_waits_while_the_server_does_not_say_its_version() {
    let cloud = simulator(seed()).await;
    cloud.add_fault(Script::always(
        "listCapabilities",
        Effect::error(503, "preparing"),
    ));
    let broker = Running::start(&config(&cloud, "demo", "")).await;
    let agent = broker.agent();
    let request = request(&agent, &[80]).await;
    let fault = ensure(&agent, request.clone()).await.unwrap_err();
    assert_eq!(
        (fault.kind, &*fault.reason),
        (FaultKind::Unreachable, "CLOUD_UNREACHABLE")
    );
    assert!(is_empty(&cloud));
    cloud.clear_faults();
    settle(&agent, &request).await;
    assert_eq!(cloud.dump().rules.len(), 1);
    broker.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wish_that_can_not_be_met_names_its_field_before_anything_is_done() {
    let cloud = simulator(seed()).await;
    let section = "[Cluster \"default\"]\nmember-ports = 30000-32767";
    let broker = Running::start(&config(&cloud, "demo", section)).await;
    let agent = broker.agent();
    let good = request(&agent, &[80]).await;
    let with_port = |change: fn(&mut WishPort)| {
        let mut request = good.clone();
        change(&mut request.wish.as_mut().unwrap().ports[0]);
        request
    };
    let mut many_sources = good.clone();
    many_sources.wish.as_mut().unwrap().sources = vec!["192.0.2.0/24".into(); 501];
    for (request, field) in [
        (many_sources, "sources"),
        (with_port(|port| port.node_port = 80), "ports[0].node_port"),
        (with_port(|port| port.node_port = 0), "ports[0].node_port"),
        (
            with_port(|port| port.protocol = wish_port::Protocol::Sctp.into()),
            "ports[0].protocol",
        ),
        (
            EnsureLoadBalancerRequest {
                fence: None,
                ..good.clone()
            },
            "fence",
        ),
        (
            EnsureLoadBalancerRequest {
                r#ref: None,
                ..good.clone()
            },
            "ref",
        ),
        (
            EnsureLoadBalancerRequest {
                wish: None,
                ..good.clone()
            },
            "wish",
        ),
        (
            EnsureLoadBalancerRequest {
                published: vec!["192.0.2.1".into(); 65],
                ..good.clone()
            },
            "published",
        ),
    ] {
        let fault = ensure(&agent, request).await.unwrap_err();
        assert_eq!(
            (fault.kind, fault.field.as_deref()),
            (FaultKind::Invalid, Some(field)),
            "{fault}"
        );
        assert_eq!(fault.advice, Advice::NeverUntilChanged);
    }
    assert!(is_empty(&cloud));
    broker.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_writer_that_was_followed_by_another_is_refused() {
    let cloud = simulator(seed()).await;
    let broker = Running::start(&config(&cloud, "demo", "")).await;
    let agent = broker.agent();
    let request = request(&agent, &[80]).await;
    let newer = EnsureLoadBalancerRequest {
        fence: fence(8),
        ..request.clone()
    };
    settle(&agent, &newer).await;
    let fault = ensure(
        &agent,
        EnsureLoadBalancerRequest {
            fence: fence(7),
            ..request
        },
    )
    .await
    .unwrap_err();
    assert_eq!(
        (fault.kind, fault.reason.as_ref()),
        (FaultKind::Conflict, "FENCED")
    );
    let old = DeleteLoadBalancerRequest {
        fence: fence(7),
        ..delete(&agent)
    };
    let fault = Fault::from(agent.client.clone().delete_load_balancer(old).await.unwrap_err());
    assert_eq!(fault.reason, "FENCED");
    assert_eq!(cloud.dump().rules.len(), 1);
    broker.stop().await;
}

/// Makes the first create of a rule hang, starts an Ensure of two ports, and waits until it hangs.
async fn hanging(cloud: &Handle, agent: &Agent) -> EnsureLoadBalancerRequest {
    let request = request(agent, &[80, 443]).await;
    let slow = Effect::slow(Duration::from_millis(1500));
    cloud.add_fault(Script::at("createLoadBalancerRule", 1, slow));
    request
}

fn spawn<R: Send + 'static>(task: impl Future<Output = R> + Send + 'static) -> tokio::task::JoinHandle<R> {
    tokio_util::task::TaskTracker::new().spawn(task)
}

async fn begun(cloud: &Handle) {
    until(|| cloud.faults().iter().any(|fault| fault.seen > 0)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_newer_writer_stops_the_call_of_the_older_one_before_its_next_step() {
    let cloud = simulator(seed()).await;
    let broker = Running::start(&config(&cloud, "demo", "")).await;
    let agent = broker.agent();
    let request = hanging(&cloud, &agent).await;
    let older = spawn({
        let (agent, request) = (agent.clone(), request.clone());
        async move { ensure(&agent, request).await }
    });
    begun(&cloud).await;
    let other = EnsureLoadBalancerRequest {
        fence: fence(2),
        r#ref: Some(LoadBalancerRef {
            uid: "5e5e5e5e-0000-4000-8000-000000000002".into(),
            ..service().unwrap()
        }),
        wait: wait(Duration::ZERO),
        ..request
    };
    ensure(&agent, other).await.unwrap();
    let stopped = older.await.unwrap();
    let fault = stopped.unwrap_err();
    assert_eq!(fault.reason, "FENCED");
    broker.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_step_is_begun_under_other_keys_for_what_was_seen_through_the_old_ones() {
    let seed = Seed::builder()
        .account("demo")
        .account("second")
        .network("demo", "k8s", "127.101.0.0/24")
        .machines("k8s", "node-", 3)
        .build();
    let cloud = simulator(seed).await;
    let broker = Running::start(&config(&cloud, "demo", "")).await;
    let agent = broker.agent();
    let request = request(&agent, &[80, 443]).await;
    let slow = Effect::slow(Duration::from_secs(5));
    cloud.add_fault(Script::at("createLoadBalancerRule", 1, slow));
    let running = spawn({
        let (agent, request) = (agent.clone(), request.clone());
        async move { ensure(&agent, request).await }
    });
    begun(&cloud).await;
    broker.write("cloud.conf", &config(&cloud, "second", ""));
    until(|| broker.metric("cloud_broker_config_reloads_total{outcome=\"applied\"}") == Some(1.0)).await;
    let fault = running.await.unwrap().unwrap_err();
    assert_eq!(fault.reason, "KEYS_CHANGED");
    assert!(matches!(fault.advice, Advice::After(_)), "{fault:?}");
    // Only what had been sent already was done.
    assert!(cloud.dump().rules.len() <= 1);
    broker.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_delete_stops_a_running_ensure_and_leaves_nothing() {
    let cloud = simulator(seed()).await;
    let broker = Running::start(&config(&cloud, "demo", "")).await;
    let agent = broker.agent();
    let request = hanging(&cloud, &agent).await;
    let running = spawn({
        let agent = agent.clone();
        async move { ensure(&agent, request).await }
    });
    begun(&cloud).await;
    let answer = agent
        .client
        .clone()
        .delete_load_balancer(delete(&agent))
        .await
        .unwrap()
        .into_inner();
    assert!(
        matches!(
            answer.outcome,
            Some(delete_load_balancer_response::Outcome::Settled(_))
        ),
        "{answer:?}"
    );
    let fault = running.await.unwrap().unwrap_err();
    assert_eq!(fault.reason, "SUPERSEDED");
    assert!(is_empty(&cloud));
    broker.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_call_of_a_service_waits_for_its_turn_and_is_told_to_ask_again() {
    let cloud = simulator(seed()).await;
    let broker = Running::start(&config(&cloud, "demo", "")).await;
    let agent = broker.agent();
    let request = hanging(&cloud, &agent).await;
    let running = spawn({
        let (agent, request) = (agent.clone(), request.clone());
        async move { settle(&agent, &request).await }
    });
    begun(&cloud).await;
    let impatient = EnsureLoadBalancerRequest {
        wait: wait(Duration::from_millis(20)),
        ..request.clone()
    };
    let answer = ensure(&agent, impatient).await.unwrap();
    let ensure_load_balancer_response::Outcome::Pending(pending) = answer else {
        panic!("{answer:?}")
    };
    assert_eq!(pending.reason, "CALL_RUNNING");
    let (ip, _) = settle(&agent, &request).await;
    assert_eq!(running.await.unwrap().0, ip);
    assert_eq!(cloud.dump().rules.len(), 2, "nothing is made twice");
    broker.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_step_is_begun_for_a_caller_that_left() {
    let cloud = simulator(seed()).await;
    let broker = Running::start(&config(&cloud, "demo", "")).await;
    let agent = broker.agent();
    let request = hanging(&cloud, &agent).await;
    let running = spawn({
        let (agent, request) = (agent.clone(), request.clone());
        async move { ensure(&agent, request).await }
    });
    begun(&cloud).await;
    running.abort();
    assert!(running.await.unwrap_err().is_cancelled());
    until(|| cloud.dump().rules.len() == 1).await;
    // The next caller has its turn only when the one before is over.
    let planned = DeleteLoadBalancerRequest {
        wait: wait(Duration::from_secs(20)),
        ..delete(&agent)
    };
    let answer = agent
        .client
        .clone()
        .delete_load_balancer(planned)
        .await
        .unwrap()
        .into_inner();
    assert!(
        matches!(
            answer.outcome,
            Some(delete_load_balancer_response::Outcome::Settled(_))
        ),
        "{answer:?}"
    );
    let calls = cloud.calls();
    assert_eq!(
        calls.of_command("createLoadBalancerRule"),
        1,
        "the second rule was never begun"
    );
    assert!(is_empty(&cloud));
    broker.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn two_clusters_on_one_account_never_touch_each_others_balancers() {
    let seed = Seed::builder()
        .account("demo")
        .network("demo", "k8s", "127.101.0.0/24")
        .machines("k8s", "node-", 3)
        .build();
    let cloud = simulator(seed).await;
    let broker = Running::start(&config(&cloud, "demo", "")).await;
    let (agent, other) = (broker.agent(), broker.agent().saying("cluster-2"));
    let (ip, _) = settle(&agent, &request(&agent, &[80]).await).await;
    let foreign = delete(&other);
    let answer = other
        .client
        .clone()
        .delete_load_balancer(foreign)
        .await
        .unwrap()
        .into_inner();
    assert_eq!(cloud.dump().rules.len(), 1, "{answer:?}");
    assert!(cloud.dump().acquired().any(|row| row.address == ip));
    broker.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_address_that_nobody_sees_holds_an_end_only_until_the_clusters_machines_are_seen() {
    let cloud = simulator(seed()).await;
    let broker = Running::start(&config(&cloud, "demo", "")).await;
    let agent = broker.agent();
    let end = async || {
        let request = DeleteLoadBalancerRequest {
            published: vec!["192.0.2.1".to_owned()],
            ..delete(&agent)
        };
        let answer = agent.client.clone().delete_load_balancer(request).await;
        answer.unwrap().into_inner().outcome.unwrap()
    };
    // Keys that were changed for those of another account show machines, too, but none that a node was found to be.
    agent
        .look_up(vec![named("node-of-another-account")])
        .await
        .unwrap();
    let waiting = end().await;
    assert!(
        matches!(&waiting, delete_load_balancer_response::Outcome::Pending(pending) if pending.reason == "SCOPE_CHANGED"),
        "{waiting:?}"
    );
    agent.look_up(vec![named("node-1")]).await.unwrap();
    let done = end().await;
    assert!(
        matches!(done, delete_load_balancer_response::Outcome::Settled(_)),
        "{done:?}"
    );
    broker.stop().await;
}
