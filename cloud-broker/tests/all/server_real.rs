//! The broker through its socket, with a real `CloudStack` behind it, if the environment names one.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use cloud_broker::cloudstack::types::Machine;
use cloud_broker::cloudstack::{Account, Api, ApiKeys, MachineQuery, Settings};
use proto::v1::finding::Severity;
use proto::v1::instance_result::Presence;
use proto::v1::{
    DeleteLoadBalancerRequest, EnsureLoadBalancerRequest, Fence, LoadBalancerRef, Wish, WishMember, WishPort,
    delete_load_balancer_response, ensure_load_balancer_response, wish_member, wish_port,
};

use super::client_support::Surroundings;
use super::server_support::{Agent, Running, named, not_ready, with_id};

#[expect(
    clippy::disallowed_methods,
    reason = "whether there is a server is a fact of the test's environment"
)]
fn variable(name: &str) -> String {
    std::env::var(name).unwrap_or_else(|_| panic!("{name} is not set"))
}

fn config() -> String {
    format!(
        "[Global]\napi-url = {}\napi-key = {}\nsecret-key = {}\nzone = {}\nvm-cache-ttl = 1\n",
        variable("CLOUDSTACK_API_URL"),
        variable("CLOUDSTACK_API_KEY"),
        variable("CLOUDSTACK_SECRET_KEY"),
        variable("CLOUDSTACK_ZONE"),
    )
}

/// Three running machines of one network, as the API itself tells.
async fn machines() -> Vec<Machine> {
    let keys = ApiKeys {
        api_key: variable("CLOUDSTACK_API_KEY").into(),
        secret_key: variable("CLOUDSTACK_SECRET_KEY").into(),
    };
    let settings = Settings::new(variable("CLOUDSTACK_API_URL").parse().unwrap(), keys);
    let account: Arc<Account> = Account::new("real", &settings, Surroundings::new().environment).unwrap();
    let all = Api::new(account, "test", None)
        .machines(&MachineQuery::default())
        .await
        .unwrap()
        .into_items();
    let mut by_network: BTreeMap<String, Vec<Machine>> = BTreeMap::new();
    let unique = |machine: &&Machine| {
        all.iter()
            .filter(|other| other.name.eq_ignore_ascii_case(&machine.name))
            .count()
            == 1
    };
    for machine in all.iter().filter(unique) {
        let network = machine
            .default_nic()
            .and_then(|nic| nic.network_name.clone())
            .unwrap_or_default();
        by_network.entry(network).or_default().push(machine.clone());
    }
    let mut network = by_network
        .remove("lab-net")
        .expect("the lab has a network lab-net");
    network.truncate(3);
    network
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a CloudStack: CLOUDSTACK_API_URL and keys"]
async fn a_real_cloud_is_described_and_its_machines_are_found() {
    let machines = machines().await;
    let broker = Running::start(&config()).await;
    let agent = broker.agent();
    let keys = machines
        .iter()
        .map(|machine| named(&machine.name.to_uppercase()))
        .collect();
    for (machine, result) in machines.iter().zip(agent.look_up(keys).await.unwrap()) {
        let Some(Presence::Found(found)) = result.presence else {
            panic!("{result:?}")
        };
        assert_eq!(found.machine_id, machine.id.as_str());
        assert!(found.addresses.len() >= 2 && !found.zone.is_empty() && !found.instance_type.is_empty());
    }
    let unknown = not_ready(with_id("x", "11111111-2222-4333-8444-555555555555"));
    let proved = async {
        let mut ticks = tokio::time::interval(Duration::from_millis(300));
        loop {
            ticks.tick().await;
            let keys = vec![named(&machines[0].name), unknown.clone()];
            let result = agent.look_up(keys).await.unwrap().remove(1);
            if matches!(result.presence, Some(Presence::Gone(_))) {
                break;
            }
        }
    };
    tokio::time::timeout(Duration::from_mins(1), proved)
        .await
        .expect("an id that no machine has is proved gone");
    let errors = agent.findings(Severity::Error).await;
    assert_eq!(errors, Vec::<String>::new());
    assert!(!agent.describe().await.unwrap().cloud_version.is_empty());
    broker.stop().await;
}

fn ensure_request(agent: &Agent, machines: &[Machine]) -> EnsureLoadBalancerRequest {
    let port = |port: u32| WishPort {
        protocol: wish_port::Protocol::Tcp.into(),
        port,
        node_port: 30000 + port,
        ..WishPort::default()
    };
    let members = machines.iter().map(|machine| WishMember {
        node_name: machine.name.to_lowercase(),
        machine: Some(wish_member::Machine::MachineId(machine.id.to_string())),
    });
    EnsureLoadBalancerRequest {
        caller: Some(agent.caller.clone()),
        r#ref: Some(reference()),
        fence: Some(fence()),
        wish: Some(Wish {
            ports: vec![port(80), port(443)],
            members: members.collect(),
            ..Wish::default()
        }),
        published: vec![],
        wait: prost_types::Duration::try_from(Duration::from_secs(20)).ok(),
    }
}

fn reference() -> LoadBalancerRef {
    LoadBalancerRef {
        uid: "5e5e5e5e-aaaa-4000-8000-00000000beef".into(),
        namespace: "test".into(),
        name: "real".into(),
    }
}

fn fence() -> Fence {
    Fence {
        lease_uid: "lease".into(),
        transitions: 1,
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a CloudStack: CLOUDSTACK_API_URL and keys"]
async fn a_balancer_lives_and_goes_on_a_real_cloud() {
    let machines = machines().await;
    let broker = Running::start(&config()).await;
    let agent = broker.agent().saying("cluster-of-the-socket-test");
    let mut request = ensure_request(&agent, &machines);
    let mut settled = None;
    for _ in 0..20 {
        let answer = agent
            .client
            .clone()
            .ensure_load_balancer(request.clone())
            .await
            .unwrap()
            .into_inner();
        if let Some(ensure_load_balancer_response::Outcome::Settled(done)) = answer.outcome {
            settled = Some(done);
            break;
        }
    }
    let settled = settled.expect("it settles");
    assert!(settled.changes > 0 && settled.outputs.unwrap().address_owned);
    request.published = vec![settled.ingress[0].ip.clone()];
    let again = agent
        .client
        .clone()
        .ensure_load_balancer(request)
        .await
        .unwrap()
        .into_inner();
    let Some(ensure_load_balancer_response::Outcome::Settled(again)) = again.outcome else {
        panic!("{again:?}")
    };
    assert_eq!(again.changes, 0);
    let request = DeleteLoadBalancerRequest {
        caller: Some(agent.caller.clone()),
        r#ref: Some(reference()),
        fence: Some(fence()),
        wait: prost_types::Duration::try_from(Duration::from_secs(20)).ok(),
        ..DeleteLoadBalancerRequest::default()
    };
    let gone = agent
        .client
        .clone()
        .delete_load_balancer(request)
        .await
        .unwrap()
        .into_inner();
    let Some(delete_load_balancer_response::Outcome::Settled(gone)) = gone.outcome else {
        panic!("{gone:?}")
    };
    assert_eq!(gone.released, [settled.ingress[0].ip.clone()]);
    broker.stop().await;
}
