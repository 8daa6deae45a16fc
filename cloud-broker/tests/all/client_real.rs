//! The client against a real `CloudStack`, if the environment names one.

use std::net::IpAddr;
use std::sync::Arc;

use cloud_broker::cloudstack::types::{
    AddressId, AddressState, JobId, Machine, Network, PortRange, RuleId, ServiceName,
};
use cloud_broker::cloudstack::types::{Algorithm, CidrList, MachineId, RuleProtocol};
use cloud_broker::cloudstack::{
    Account, AddressQuery, Api, ApiError, ApiKeys, Associate, AssociateTarget, CreateFirewallRule,
    CreateRule, FirewallProtocol, JobFate, MachineQuery, NetworkQuery, RuleChange, RuleQuery, Settings,
};

use crate::client_support::{Surroundings, done, log};

#[expect(
    clippy::disallowed_methods,
    reason = "whether there is a server is a fact of the test's environment"
)]
fn variable(name: &str) -> String {
    std::env::var(name).unwrap_or_else(|_| panic!("{name} is not set"))
}

fn account(keys: &str) -> Arc<Account> {
    let url = variable("CLOUDSTACK_API_URL").parse().unwrap();
    let key = |name: &str| variable(&format!("CLOUDSTACK_{keys}{name}")).into();
    let keys = ApiKeys {
        api_key: key("API_KEY"),
        secret_key: key("SECRET_KEY"),
    };
    Account::new("real", &Settings::new(url, keys), Surroundings::new().environment).unwrap()
}

fn user() -> Api {
    Api::new(account(""), "test", None)
}

async fn network_with_machines(api: &Api) -> (Network, Vec<Machine>) {
    let networks = api.networks(&NetworkQuery::default()).await.unwrap();
    assert!(networks.is_complete());
    for network in networks.into_items() {
        let query = MachineQuery {
            network: Some(network.id.clone()),
            ..MachineQuery::default()
        };
        let machines = api.machines(&query).await.unwrap();
        let running: Vec<Machine> = machines
            .into_items()
            .into_iter()
            .filter(|machine| machine.nic_in(&network.id).is_some())
            .collect();
        let fits = network.has(ServiceName::LoadBalancer) && network.has(ServiceName::Firewall);
        if fits && network.vpc_id.is_none() && running.len() >= 2 {
            return (network, running);
        }
    }
    panic!("no isolated network with two machines");
}

#[tokio::test]
#[ignore = "needs a CloudStack: CLOUDSTACK_API_URL and keys"]
async fn what_a_user_may_see_is_seen() {
    let api = user();
    let capabilities = api.capabilities().await.unwrap();
    assert!(capabilities.version.is_some(), "{capabilities:?}");
    assert!(!api.zones().await.unwrap().items().is_empty());
    let machines = api.machines(&MachineQuery::default()).await.unwrap();
    assert!(machines.is_complete() && !machines.items().is_empty());
    let first = &machines.items()[0];
    assert_eq!(api.find_machine(&first.id).await.unwrap().as_ref(), Some(first));
    let nobody = MachineId::parse("00000000-1111-4222-8333-444444444444").unwrap();
    assert_eq!(api.find_machine(&nobody).await.unwrap(), None);
    assert!(!api.free_addresses(None).await.unwrap().is_empty());
    let command = api
        .describe_command(cloud_broker::cloudstack::Command::UpdateLoadBalancerRule)
        .await
        .unwrap();
    assert!(command.unwrap().parameters.contains("algorithm"));
}

#[tokio::test]
#[ignore = "needs a CloudStack: CLOUDSTACK_API_URL and keys"]
async fn a_role_made_for_clusters_sees_its_project_and_little_else() {
    let account = account("CKS_");
    let project = variable("CLOUDSTACK_PROJECT_ID").parse().unwrap();
    let inside = Api::new(Arc::clone(&account), "test", Some(project));
    let outside = Api::new(account, "test", None);
    let machines = inside.machines(&MachineQuery::default()).await.unwrap();
    assert!(machines.is_complete() && !machines.items().is_empty());
    assert_eq!(outside.find_machine(&machines.items()[0].id).await.unwrap(), None);
    assert!(matches!(inside.capabilities().await, Err(ApiError::Denied(_))));
    assert!(matches!(inside.zones().await, Err(ApiError::Denied(_))));
}

#[tokio::test]
#[ignore = "needs a CloudStack: CLOUDSTACK_API_URL and keys"]
async fn wrong_keys_are_told_from_a_missing_right() {
    let url = variable("CLOUDSTACK_API_URL").parse().unwrap();
    let keys = ApiKeys {
        api_key: variable("CLOUDSTACK_API_KEY").into(),
        secret_key: "wrong".into(),
    };
    let account = Account::new("real", &Settings::new(url, keys), Surroundings::new().environment).unwrap();
    let error = Api::new(account, "test", None).zones().await.unwrap_err();
    assert!(matches!(error, ApiError::BadCredentials(_)), "{error}");
}

/// The whole life of a balancer, and what is left afterwards: nothing.
#[tokio::test]
#[ignore = "needs a CloudStack: CLOUDSTACK_API_URL and keys"]
async fn a_rule_lives_and_goes_with_its_address() {
    let api = user().for_work("service");
    let (network, machines) = network_with_machines(&api).await;
    let turn = api.turn_to_associate().await;
    let free = api.free_addresses(network.zone_id.as_ref()).await.unwrap();
    let chosen = free.last().unwrap().clone();
    let job = JobId::from(uuid::Uuid::new_v4());
    let request = Associate {
        target: AssociateTarget::Network(network.id.clone()),
        ip: chosen.ip,
        job: job.clone(),
    };
    let started = api.associate(&turn, &request).await.unwrap();
    assert_eq!((started.id(), started.job()), (Some(chosen.id.clone()), &job));
    let address = started.finished().await.unwrap();
    drop(turn);
    assert_eq!(
        (address.id.clone(), address.network_id.clone()),
        (chosen.id.clone(), Some(network.id.clone()))
    );
    let JobFate::Succeeded(proof) = api.job(&job).await.unwrap() else {
        panic!("the job succeeded")
    };
    assert_eq!(proof.instance_id.as_deref(), Some(chosen.id.as_str()));
    let listed = api.find_address(&chosen.id).await.unwrap().unwrap();
    assert_eq!(listed.state, AddressState::Allocated);
    assert_eq!(proof.address().unwrap().allocated, listed.allocated);
    taken_is_no_capacity(&api, &network, chosen.ip).await;

    let made = balance(&api, &network, &chosen.id, &machines).await;
    let turn = api.turn_to_release(&chosen.id).await;
    done(api.release(&turn)).await.unwrap();
    assert!(
        matches!(api.release(&turn).await, Err(ApiError::Rejected(_))),
        "a free one can't be released"
    );
    assert_eq!(api.find_rule(&made).await.unwrap(), None);
    assert_eq!(
        api.find_address(&chosen.id).await.unwrap().unwrap().state,
        AddressState::Free
    );
    for line in log()
        .lines()
        .filter(|line| line.contains("call answered") || line.contains("job is over"))
    {
        println!("{line}");
    }
    let left = api
        .addresses(&AddressQuery::OfNetwork(network.id.clone()))
        .await
        .unwrap();
    assert!(
        left.complete()
            .unwrap()
            .items()
            .iter()
            .all(|address| address.id != chosen.id)
    );
}

async fn taken_is_no_capacity(api: &Api, network: &Network, ip: IpAddr) {
    let turn = api.turn_to_associate().await;
    let job = JobId::from(uuid::Uuid::new_v4());
    let request = Associate {
        target: AssociateTarget::Network(network.id.clone()),
        ip,
        job,
    };
    let error = api.associate(&turn, &request).await.unwrap_err();
    assert!(matches!(error, ApiError::NoCapacity(_)), "{error}");
}

/// Makes a rule with members and a firewall rule, changes both, and leaves the rule.
async fn balance(api: &Api, network: &Network, address: &AddressId, machines: &[Machine]) -> RuleId {
    let rule = CreateRule {
        name: "client-test-tcp-80".to_owned(),
        description: "made by a test".to_owned(),
        address: address.clone(),
        network: network.id.clone(),
        public_port: 80,
        private_port: 30080,
        algorithm: Algorithm::RoundRobin,
        protocol: RuleProtocol::Tcp,
        sources: None,
    };
    let made = done(api.create_rule(&rule)).await.unwrap();
    assert_eq!(
        (made.network_id.as_ref(), made.public_port),
        (Some(&network.id), 80)
    );
    assert!(matches!(api.create_rule(&rule).await, Err(ApiError::Conflict(_))));
    let ids: Vec<MachineId> = machines
        .iter()
        .take(2)
        .map(|machine| machine.id.clone())
        .collect();
    done(api.assign(&made.id, &ids)).await.unwrap();
    let again = done(api.assign(&made.id, &ids)).await.unwrap_err();
    assert!(
        matches!(again, ApiError::JobFailed { .. }) && again.maybe_executed(),
        "{again}"
    );
    assert_eq!(api.rule_members(&made.id).await.unwrap().unwrap().len(), 2);
    let firewall = CreateFirewallRule {
        address: address.clone(),
        protocol: FirewallProtocol::Tcp,
        ports: PortRange::single(80),
        sources: CidrList::parse("0.0.0.0/0"),
    };
    let opened = done(api.create_firewall_rule(&firewall)).await.unwrap();
    assert!(matches!(
        api.create_firewall_rule(&firewall).await,
        Err(ApiError::Conflict(_))
    ));
    let change = RuleChange {
        protocol: Some(RuleProtocol::TcpProxy),
        algorithm: Some(Algorithm::LeastConnections),
        ..RuleChange::default()
    };
    done(api.update_rule(&made.id, &change)).await.unwrap();
    let rules = api.rules(&RuleQuery::OnAddress(address.clone())).await.unwrap();
    assert_eq!(rules.items()[0].protocol, Some(RuleProtocol::TcpProxy));
    done(api.remove(&made.id, &ids[..1])).await.unwrap();
    done(api.delete_firewall_rule(&opened.id)).await.unwrap();
    assert!(matches!(
        api.delete_firewall_rule(&opened.id).await,
        Err(ApiError::Gone(_))
    ));
    made.id
}
