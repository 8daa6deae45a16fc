//! Looking nodes up, through the socket, with the simulator as the cloud.

use std::time::Duration;

use cloud_broker::instances::{Instances, NodeKey, Presence as Known, View, Why as Reason};
use cloud_broker::tenant::{ClusterName, Scope};
use cloudstack_simulator::{Effect, Fault as Script, MachineSeed, NetworkSeed, Seed};
use proto::FaultKind;
use proto::v1::instance_result::Presence;
use proto::v1::unknown_reason::Why;
use proto::v1::{Instance, InstanceKey, instance, node_address};

use super::client_support::until;
use super::load_balancer_support::{Broker as LoadBalancerBroker, Endpoint};
use super::server_support::{Running, config, named, not_ready, not_ready_for, seed, simulator, with_id};

fn found(presence: Presence) -> Instance {
    match presence {
        Presence::Found(instance) => instance,
        other @ (Presence::Gone(_) | Presence::Unknown(_)) => panic!("not found but {other:?}"),
    }
}

fn why(presence: Presence) -> (Why, String) {
    match presence {
        Presence::Unknown(unknown) => (unknown.why(), unknown.text),
        other @ (Presence::Found(_) | Presence::Gone(_)) => panic!("not unknown but {other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn three_nodes_are_found_by_name_with_one_call() {
    let cloud = simulator(seed()).await;
    let broker = Running::start(&config(&cloud, "demo", "region = north\nvm-cache-ttl = 1m")).await;
    let agent = broker.agent();
    let results = agent
        .look_up(vec![
            named("node-1"),
            named("NODE-2"),
            named("node-3.example.org"),
        ])
        .await
        .unwrap();
    let machines: Vec<Instance> = results
        .iter()
        .map(|result| found(result.presence.clone().unwrap()))
        .collect();
    assert_eq!(
        machines
            .iter()
            .map(|machine| machine.name.as_str())
            .collect::<Vec<_>>(),
        ["node-1", "node-2", "node-3"]
    );
    let first = &machines[0];
    assert_eq!(first.power(), instance::Power::Running);
    assert_eq!(first.region, "north");
    assert!(!first.zone.is_empty() && !first.instance_type.is_empty());
    let kinds: Vec<_> = first
        .addresses
        .iter()
        .map(proto::v1::NodeAddress::r#type)
        .collect();
    assert_eq!(
        kinds,
        [node_address::Type::InternalIp, node_address::Type::Hostname]
    );
    assert!(first.addresses[0].address.starts_with("127.101.0."));
    assert_eq!(
        machines[1].addresses.last().unwrap().address,
        "NODE-2",
        "the host name is the node's"
    );
    assert!(
        results
            .iter()
            .all(|result| result.list_id == results[0].list_id && result.observed_at.is_some())
    );
    assert_eq!(cloud.calls().of_command("listVirtualMachines"), 1);
    broker.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_provider_id_decides_alone() {
    let cloud = simulator(seed()).await;
    let broker = Running::start(&config(&cloud, "demo", "")).await;
    let agent = broker.agent();
    let first = found(agent.look_up_one(named("node-1")).await);
    let second = found(agent.look_up_one(named("node-2")).await);
    let by_id = found(
        agent
            .look_up_one(with_id("another-name", &first.machine_id))
            .await,
    );
    assert_eq!(by_id.name, "node-1");
    assert!(!by_id.system_uuid_mismatch);
    let disagreeing = InstanceKey {
        system_uuid: Some(second.machine_id.to_uppercase()),
        ..with_id("node-1", &first.machine_id)
    };
    assert!(found(agent.look_up_one(disagreeing).await).system_uuid_mismatch);
    let strange = InstanceKey {
        system_uuid: Some("11111111-2222-3333-4444-555555555555".into()),
        ..with_id("node-1", &first.machine_id)
    };
    assert!(!found(agent.look_up_one(strange).await).system_uuid_mismatch);
    let by_uuid = InstanceKey {
        system_uuid: Some(second.machine_id.clone()),
        ..named("node-1")
    };
    assert_eq!(
        found(agent.look_up_one(by_uuid).await).name,
        "node-2",
        "the guest knows better than its name"
    );
    let missing = with_id("node-1", "11111111-2222-3333-4444-555555555555");
    let (reason, text) = why(agent.look_up_one(missing).await);
    assert_eq!(reason, Why::NotFoundYet);
    assert!(text.contains("no machine with id 11111111"), "{text}");
    let odd = with_id("node-1", "no id at all!");
    assert_eq!(why(agent.look_up_one(odd).await).0, Why::NotFoundYet);
    broker.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn two_machines_of_one_name_are_never_guessed_between() {
    let seed = Seed::builder()
        .account("demo")
        .network("demo", "a", "127.101.0.0/24")
        .network("demo", "b", "127.101.1.0/24")
        .machine(MachineSeed::new("twin", "a", None))
        .machine(MachineSeed::new("twin", "b", None).id("bbbbbbbb-0000-4000-8000-000000000001"))
        .build();
    let cloud = simulator(seed).await;
    let broker = Running::start(&config(&cloud, "demo", "")).await;
    assert_eq!(
        why(broker.agent().look_up_one(named("twin")).await).0,
        Why::Ambiguous
    );
    broker.write(
        "cloud.conf",
        &config(&cloud, "demo", "\n[Cluster \"default\"]\nnetworks = b"),
    );
    until(|| broker.metric("cloud_broker_config_reloads_total{outcome=\"applied\"}") == Some(1.0)).await;
    found(broker.agent().look_up_one(named("twin")).await);
    broker.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cache_time_without_measure_does_no_harm() {
    let cloud = simulator(seed()).await;
    let forever = format!("vm-cache-ttl = {}", u64::MAX);
    let broker = Running::start(&config(&cloud, "demo", &forever)).await;
    let agent = broker.agent();
    let id = found(agent.look_up_one(named("node-1")).await).machine_id;
    agent
        .look_up(vec![named("node-2"), named("node-3")])
        .await
        .unwrap();
    cloud.destroy_machine("node-1").unwrap();
    let ask = async || agent.look_up_one(not_ready(with_id("node-1", &id))).await;
    let proved = async { while !matches!(ask().await, Presence::Gone(_)) {} };
    tokio::time::timeout(Duration::from_secs(20), proved)
        .await
        .unwrap();
    assert!(matches!(ask().await, Presence::Gone(_)), "the proof is kept");
    broker.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_destroyed_machine_is_gone_only_after_two_lists_and_a_look_up() {
    let cloud = simulator(seed()).await;
    let broker = Running::start(&config(&cloud, "demo", "")).await;
    let agent = broker.agent();
    let id = found(agent.look_up_one(named("node-1")).await).machine_id;
    let others = || vec![named("node-2"), named("node-3")];
    agent.look_up(others()).await.unwrap();
    cloud.destroy_machine("node-1").unwrap();
    let ask = async |key: InstanceKey| {
        let mut keys = others();
        keys.insert(0, key);
        agent.look_up(keys).await.unwrap().remove(0)
    };
    for _ in 0..4 {
        let ready = ask(with_id("node-1", &id)).await.presence.unwrap();
        assert_eq!(why(ready).0, Why::NotFoundYet, "a Ready node is never gone");
    }
    let soon = Duration::ZERO;
    let first = ask(not_ready_for(with_id("node-1", &id), soon)).await;
    assert_eq!(
        why(first.presence.unwrap()).0,
        Why::NotFoundYet,
        "no list began after the node became not Ready"
    );
    let calls = cloud.calls().of_command("listVirtualMachines");
    let proved = ask(not_ready(with_id("node-1", &id))).await;
    let Some(Presence::Gone(proof)) = proved.presence else {
        panic!("not gone but {:?}", proved.presence)
    };
    assert_ne!(proof.first_list_id, proof.second_list_id);
    assert_ne!(proof.witness_machine_id, id);
    assert!(proof.looked_up_at.is_some());
    assert_eq!(
        cloud.calls().of_command("listVirtualMachines"),
        calls + 3,
        "a list, the machine and its witness"
    );
    broker.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_gone_when_nothing_is_visible() {
    let cloud = simulator(seed()).await;
    let broker = Running::start(&config(&cloud, "demo", "")).await;
    let agent = broker.agent();
    let id = found(agent.look_up_one(named("node-1")).await).machine_id;
    for name in ["node-1", "node-2", "node-3"] {
        cloud.destroy_machine(name).unwrap();
    }
    for _ in 0..4 {
        let presence = agent.look_up_one(not_ready(with_id("node-1", &id))).await;
        assert_eq!(why(presence).0, Why::NothingVisible);
    }
    broker.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn other_keys_do_not_prove_that_the_machines_of_the_old_ones_are_gone() {
    let seed = Seed::builder()
        .account("demo")
        .account("other")
        .network("demo", "k8s", "127.101.0.0/24")
        .machines("k8s", "node-", 3)
        .network("other", "foreign", "127.101.1.0/24")
        .machines("foreign", "stranger-", 3)
        .build();
    let cloud = simulator(seed).await;
    let broker = Running::start(&config(&cloud, "demo", "")).await;
    let agent = broker.agent();
    let names = ["node-1", "node-2", "node-3"];
    let ids: Vec<String> = agent
        .look_up(names.iter().map(|name| named(name)).collect())
        .await
        .unwrap()
        .into_iter()
        .map(|result| found(result.presence.unwrap()).machine_id)
        .collect();
    broker.write("cloud.conf", &config(&cloud, "other", ""));
    until(|| broker.metric("cloud_broker_config_reloads_total{outcome=\"applied\"}") == Some(1.0)).await;
    for _ in 0..4 {
        let keys = names
            .iter()
            .zip(&ids)
            .map(|(name, id)| not_ready(with_id(name, id)))
            .collect();
        for result in agent.look_up(keys).await.unwrap() {
            assert_eq!(why(result.presence.unwrap()).0, Why::NothingVisible);
        }
    }
    broker.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn without_an_answer_of_the_cloud_the_last_list_says_where_machines_are_and_nothing_is_gone() {
    let cloud = simulator(seed()).await;
    let broker = Running::start(&config(&cloud, "demo", "")).await;
    let agent = broker.agent();
    let before = agent.look_up(vec![named("node-1")]).await.unwrap().remove(0);
    let id = found(before.presence.clone().unwrap()).machine_id;
    cloud.add_fault(Script::always("*", Effect::CutBefore));
    let results = agent
        .look_up(vec![
            with_id("node-1", &id),
            not_ready(with_id("x", "11111111-2222-3333-4444-555555555555")),
        ])
        .await
        .unwrap();
    assert_eq!(found(results[0].presence.clone().unwrap()).name, "node-1");
    assert_eq!(why(results[1].presence.clone().unwrap()).0, Why::CloudUnreachable);
    let last = broker
        .agent()
        .look_up(vec![with_id("node-1", &id)])
        .await
        .unwrap()
        .remove(0);
    assert_eq!(last.list_id, results[0].list_id, "the age of what is told shows");
    broker.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn stopped_machines_are_found_and_say_so() {
    let cloud = simulator(seed()).await;
    let broker = Running::start(&config(&cloud, "demo", "")).await;
    cloud.stop_machine("node-1").unwrap();
    assert_eq!(
        found(broker.agent().look_up_one(named("node-1")).await).power(),
        instance::Power::Stopped
    );
    cloud.start_machine("node-1").unwrap();
    assert_eq!(
        found(broker.agent().look_up_one(named("node-1")).await).power(),
        instance::Power::Running
    );
    broker.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_default_interface_comes_first_whatever_its_place() {
    let seed = Seed::builder()
        .account("demo")
        .network("demo", "first", "127.101.0.0/24")
        .network("demo", "second", "127.101.1.0/24")
        .machine(
            MachineSeed::new("node-1", "first", Some("127.101.0.10")).nic("second", Some("127.101.1.10")),
        )
        .network_seed(NetworkSeed::shared("unused", "127.101.2.0/24"))
        .build();
    let cloud = simulator(seed).await;
    let broker = Running::start(&config(&cloud, "demo", "")).await;
    let machine = found(broker.agent().look_up_one(named("node-1")).await);
    let addresses: Vec<&str> = machine
        .addresses
        .iter()
        .map(|address| address.address.as_str())
        .collect();
    assert_eq!(addresses, ["127.101.0.10", "127.101.1.10", "node-1"]);
    broker.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hundred_questions_at_once_are_one_list_and_a_node_refreshes_it_once() {
    let cloud = simulator(seed()).await;
    let broker = Running::start(&config(&cloud, "demo", "vm-cache-ttl = 1h")).await;
    let agent = broker.agent();
    agent.look_up(vec![named("node-1")]).await.unwrap();
    let before = cloud.calls().of_command("listVirtualMachines");
    let asks = (0..100).map(|_| agent.look_up(vec![named("node-1"), named("node-2")]));
    for answer in futures::future::join_all(asks).await {
        found(answer.unwrap().remove(1).presence.unwrap());
    }
    assert_eq!(cloud.calls().of_command("listVirtualMachines"), before);
    cloud.add_machine("node-4", "k8s", None).unwrap();
    found(agent.look_up_one(named("node-4")).await);
    assert_eq!(
        cloud.calls().of_command("listVirtualMachines"),
        before + 1,
        "a new node refreshes the list"
    );
    for _ in 0..5 {
        why(agent.look_up_one(named("node-5")).await);
    }
    assert_eq!(
        cloud.calls().of_command("listVirtualMachines"),
        before + 2,
        "and only once"
    );
    broker.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_that_is_too_long_is_refused_with_its_field() {
    let cloud = simulator(seed()).await;
    let broker = Running::start(&config(&cloud, "demo", "")).await;
    let agent = broker.agent();
    let fault = agent.look_up(vec![named("n"); 501]).await.unwrap_err();
    assert_eq!(
        (fault.kind, fault.field.as_deref()),
        (FaultKind::Invalid, Some("keys"))
    );
    let fault = agent
        .look_up(vec![named("n"), named(&"n".repeat(254))])
        .await
        .unwrap_err();
    assert_eq!(
        (fault.kind, fault.field.as_deref()),
        (FaultKind::Invalid, Some("keys[1].node_name"))
    );
    let huge = vec![InstanceKey {
        node_name: "n".repeat(3 << 20),
        ..InstanceKey::default()
    }];
    assert!(agent.look_up(huge).await.is_err(), "messages have a limit");
    assert_eq!(agent.look_up(vec![]).await.unwrap(), []);
    assert_eq!(
        agent.saying("a b").describe().await.unwrap_err().field.as_deref(),
        Some("caller.cluster_uid")
    );
    broker.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_list_that_takes_long_is_not_waited_for_but_found_by_the_next_question() {
    let cloud = simulator(seed()).await;
    let endpoint = Endpoint::of(&cloud, "demo");
    let broker = LoadBalancerBroker::at(&endpoint);
    let host = runtime::host::Host::new();
    let instances = Instances::new(host.clone()).with_patience(Duration::from_millis(50));
    let (cluster, scope) = (ClusterName::of_the_socket(), Scope::default());
    let view = View {
        api: &broker.api,
        cluster: &cluster,
        scope: &scope,
        ttl: Duration::from_hours(1),
    };
    let key = NodeKey {
        node_uid: "u".into(),
        machine_id: None,
        system_uuid: None,
        node_name: "node-1".into(),
        not_ready_for: None,
    };
    cloud.add_fault(Script::at(
        "listVirtualMachines",
        1,
        Effect::slow(Duration::from_millis(500)),
    ));
    let first = instances
        .look_up(view, std::slice::from_ref(&key))
        .await
        .remove(0);
    let Known::Unknown(reason, text) = first.presence else {
        panic!("{first:?}")
    };
    assert!(
        reason == Reason::Unreachable && text.contains("the read goes on"),
        "{text}"
    );
    until(|| instances.lists().newest(&broker.api).is_some()).await;
    let second = instances
        .look_up(view, std::slice::from_ref(&key))
        .await
        .remove(0);
    assert!(matches!(second.presence, Known::Found { .. }), "{second:?}");
    assert_eq!(cloud.calls().of_command("listVirtualMachines"), 1);
    host.finish(Duration::from_secs(5)).await;
}
