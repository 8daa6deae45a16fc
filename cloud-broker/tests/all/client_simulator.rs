//! The client against the simulator: throttling, lost answers, small pages, locks, projects, roles.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use cloud_broker::cloudstack::types::{
    AddressState, Algorithm, CidrList, JobId, Machine, Network, NetworkId, PortRange, ProjectId,
    PublicIpAddress, RuleProtocol, Tag, TaggedResource,
};
use cloud_broker::cloudstack::{
    Account, AddressQuery, Api, ApiError, ApiKeys, Associate, AssociateTarget, Command, CreateFirewallRule,
    CreateRule, FirewallProtocol, JobFate, MachineQuery, Pace, RuleQuery, Settings,
};
use cloudstack_simulator::{CallKind, Effect, Fault, Handle, Seed, Simulator};

use crate::client_support::{Surroundings, done, network_named};

fn seed() -> Seed {
    Seed::builder()
        .account("demo")
        .network("demo", "k8s", "127.101.0.0/24")
        .machines("k8s", "node-", 3)
        .build()
}

async fn simulator(seed: Seed) -> Handle {
    let simulator = Simulator::start_with_seed(seed).await.unwrap();
    simulator.change_options(|options| options.lock_scale = 0.01);
    simulator
}

fn account(simulator: &Handle, caller: &str) -> Arc<Account> {
    let pair = simulator.keys(caller).unwrap();
    let keys = ApiKeys {
        api_key: pair.api_key.as_str().into(),
        secret_key: pair.secret_key.as_str().into(),
    };
    let settings = Settings {
        pace: Pace::scaled(0.05),
        ..Settings::new(simulator.url().parse().unwrap(), keys)
    };
    Account::new("simulated", &settings, Surroundings::new().environment).unwrap()
}

fn demo(simulator: &Handle) -> Api {
    Api::new(account(simulator, "demo"), "tenant", None)
}

async fn take(api: &Api, network: &NetworkId) -> Result<PublicIpAddress, ApiError> {
    let turn = api.turn_to_associate().await;
    let ip = api.free_addresses(None).await?.first().unwrap().ip;
    associate(api, &turn, network, ip).await
}

async fn associate(
    api: &Api,
    turn: &cloud_broker::cloudstack::AssociateTurn,
    network: &NetworkId,
    ip: IpAddr,
) -> Result<PublicIpAddress, ApiError> {
    let job = JobId::from(uuid::Uuid::new_v4());
    let request = Associate {
        target: AssociateTarget::Network(network.clone()),
        ip,
        job,
    };
    api.associate(turn, &request).await?.finished().await
}

fn rule(address: &PublicIpAddress, network: &Network, port: u16) -> CreateRule {
    CreateRule {
        name: format!("a-tcp-{port}"),
        description: "mark".to_owned(),
        address: address.id.clone(),
        network: network.id.clone(),
        public_port: port,
        private_port: 30000 + port,
        algorithm: Algorithm::RoundRobin,
        protocol: RuleProtocol::Tcp,
        sources: None,
    }
}

fn firewall(address: &PublicIpAddress, port: u16) -> CreateFirewallRule {
    CreateFirewallRule {
        address: address.id.clone(),
        protocol: FirewallProtocol::Tcp,
        ports: PortRange::single(port),
        sources: CidrList::parse("0.0.0.0/0"),
    }
}

#[tokio::test]
async fn a_balancer_of_five_ports_costs_one_poll_for_each_job_or_little_more() {
    let simulator = simulator(seed()).await;
    let api = demo(&simulator);
    let network = network_named(&api, "k8s").await;
    let machines: Vec<Machine> = api.machines(&MachineQuery::default()).await.unwrap().into_items();
    let members: Vec<_> = machines.iter().map(|machine| machine.id.clone()).collect();
    let address = take(&api, &network.id).await.unwrap();
    let ports = (80..85).map(|port| {
        let (api, members, rule, firewall) = (
            &api,
            &members,
            rule(&address, &network, port),
            firewall(&address, port),
        );
        async move {
            let made = done(api.create_rule(&rule)).await.unwrap();
            let opened = async { done(api.create_firewall_rule(&firewall)).await.unwrap() };
            let assigned = async { done(api.assign(&made.id, members)).await.unwrap() };
            tokio::join!(opened, assigned);
        }
    });
    futures::future::join_all(ports).await;
    let calls = simulator.calls();
    assert_eq!(calls.of_kind(CallKind::Write), 16);
    assert!(calls.of_kind(CallKind::Poll) <= 24, "{calls:?}");
    assert!(calls.errors.is_empty(), "{calls:?}");
    let dump = simulator.dump();
    assert!(dump.rules.iter().all(|rule| rule.members.len() == 3) && dump.rules.len() == 5);
    let turn = api.turn_to_release(&address.id).await;
    done(api.release(&turn)).await.unwrap();
    assert_eq!(simulator.dump().rules.len(), 0);
}

#[tokio::test]
async fn no_create_ever_meets_a_lock_of_the_server() {
    let simulator = simulator(seed()).await;
    // A lost lock would be noticed: it is retried after an hour.
    simulator.change_options(|options| {
        options.lock_scale = 1.0;
        options.lock_pause = Duration::from_hours(1);
    });
    let api = demo(&simulator);
    let network = network_named(&api, "k8s").await;
    let (one, two) = tokio::join!(take(&api, &network.id), take(&api, &network.id));
    let (one, two) = (one.unwrap(), two.unwrap());
    assert_ne!(one.id, two.id);
    let creates = (80..90)
        .flat_map(|port| [(port, &one), (port, &two)])
        .map(|(port, address)| {
            let (api, rule, firewall) = (&api, rule(address, &network, port), firewall(address, port));
            async move {
                let rule = async { done(api.create_rule(&rule)).await.unwrap() };
                let firewall = async { done(api.create_firewall_rule(&firewall)).await.unwrap() };
                tokio::join!(rule, firewall)
            }
        });
    let all = futures::future::join_all(creates);
    let made = tokio::time::timeout(Duration::from_secs(30), all)
        .await
        .expect("nobody waits for a lock");
    assert_eq!(made.len(), 20);
}

#[tokio::test]
async fn a_server_that_throttles_is_obeyed_and_everything_gets_done() {
    let seed = Seed::builder()
        .account("demo")
        .network("demo", "k8s", "127.101.0.0/24")
        .setting("api.throttling.enabled", "true")
        .setting("api.throttling.interval", "1")
        .setting("api.throttling.max", "6")
        .build();
    let simulator = simulator(seed).await;
    let api = demo(&simulator);
    let limit = api.capabilities().await.unwrap().api_limit;
    assert_eq!(limit, Some((6, Duration::from_secs(1))));
    let lists = (0..12).map(|_| api.zones());
    assert!(futures::future::join_all(lists).await.iter().all(Result::is_ok));
    let unasked = simulator.calls().errors.get(&429).copied().unwrap_or(0);
    assert!(unasked > 0, "nobody has told the client of the limit yet");
    api.account().server_grants(limit);
    simulator.reset_calls();
    let lists = (0..8).map(|_| api.zones());
    assert!(futures::future::join_all(lists).await.iter().all(Result::is_ok));
    let asked = simulator.calls().errors.get(&429).copied().unwrap_or(0);
    assert!(asked <= 1, "{asked} calls were refused, {unasked} before");
}

#[tokio::test]
async fn an_address_is_not_lost_when_the_answer_is() {
    let simulator = simulator(seed()).await;
    let api = demo(&simulator);
    let network = network_named(&api, "k8s").await;
    let before = simulator.dump().acquired().count();
    simulator.add_fault(Fault::at("associateIpAddress", 1, Effect::CutAfter));
    let address = take(&api, &network.id).await.unwrap();
    assert_eq!(address.network_id, Some(network.id.clone()));
    assert_eq!(simulator.dump().acquired().count(), before + 1);
    assert_eq!(simulator.calls().of_command("associateIpAddress"), 1);
}

#[tokio::test]
async fn a_command_that_was_cut_off_before_it_ran_leaves_nothing_and_says_so_carefully() {
    let simulator = simulator(seed()).await;
    let api = demo(&simulator);
    let network = network_named(&api, "k8s").await;
    let before = simulator.dump().acquired().count();
    simulator.add_fault(Fault::at("associateIpAddress", 1, Effect::CutBefore));
    let error = take(&api, &network.id).await.unwrap_err();
    assert!(
        matches!(
            error,
            ApiError::Unreachable {
                maybe_executed: true,
                ..
            }
        ),
        "{error}"
    );
    assert_eq!(simulator.dump().acquired().count(), before);
    take(&api, &network.id).await.unwrap();
    assert_eq!(simulator.dump().acquired().count(), before + 1);
}

#[tokio::test]
async fn every_write_whose_answer_is_lost_is_carried_out_once() {
    let simulator = simulator(seed()).await;
    let api = demo(&simulator);
    let network = network_named(&api, "k8s").await;
    let machines = api.machines(&MachineQuery::default()).await.unwrap().into_items();
    let members: Vec<_> = machines.iter().map(|machine| machine.id.clone()).collect();
    let lost = [
        "associateIpAddress",
        "createLoadBalancerRule",
        "createFirewallRule",
        "assignToLoadBalancerRule",
        "removeFromLoadBalancerRule",
        "deleteFirewallRule",
        "deleteLoadBalancerRule",
        "disassociateIpAddress",
    ];
    for command in lost {
        simulator.add_fault(Fault::at(command, 1, Effect::CutAfter));
    }
    let address = take(&api, &network.id).await.unwrap();
    let made = done(api.create_rule(&rule(&address, &network, 80)))
        .await
        .unwrap();
    let opened = done(api.create_firewall_rule(&firewall(&address, 80)))
        .await
        .unwrap();
    done(api.assign(&made.id, &members)).await.unwrap();
    assert_eq!(simulator.dump().rules[0].members.len(), 3);
    done(api.remove(&made.id, &members[..1])).await.unwrap();
    done(api.delete_firewall_rule(&opened.id)).await.unwrap();
    done(api.delete_rule(&made.id)).await.unwrap();
    let turn = api.turn_to_release(&address.id).await;
    done(api.release(&turn)).await.unwrap();
    assert_eq!(
        api.find_address(&address.id).await.unwrap().unwrap().state,
        AddressState::Free
    );
    for command in lost {
        assert_eq!(simulator.calls().of_command(command), 1, "{command}");
    }
    assert!(simulator.dump().rules.is_empty() && simulator.dump().firewall_rules.is_empty());
}

#[rstest::rstest]
#[case::two(2)]
#[case::four(4)]
#[case::as_usual(500)]
#[tokio::test]
async fn lists_are_whole_whatever_page_size_the_operator_chose(#[case] size: usize) {
    let seed = Seed::builder()
        .account("demo")
        .network("demo", "k8s", "127.101.0.0/24")
        .machines("k8s", "node-", 11)
        .setting("default.page.size", &size.to_string())
        .build();
    let simulator = simulator(seed).await;
    let api = demo(&simulator);
    let machines = api.machines(&MachineQuery::default()).await.unwrap();
    assert!(machines.is_complete());
    assert_eq!(machines.items().len(), 11);
    let calls = simulator.calls().of_command("listVirtualMachines");
    assert_eq!(calls, 11_u64.div_ceil(size as u64), "calls grow by page only");
}

#[tokio::test]
async fn objects_of_a_project_are_seen_through_the_project_only() {
    let network = cloudstack_simulator::NetworkSeed::isolated("k8s", "127.101.0.0/24").project("team");
    let seed = Seed::builder()
        .account("demo")
        .project("team", &["demo"])
        .network_seed(network)
        .machines("k8s", "node-", 2)
        .build();
    let simulator = simulator(seed).await;
    let account = account(&simulator, "demo");
    let outside = Api::new(Arc::clone(&account), "tenant", None);
    let projects = outside.projects().await.unwrap();
    let project = projects.items()[0].id.clone();
    let inside = Api::new(account, "tenant", Some(project.clone()));
    let machines = inside
        .machines(&MachineQuery::default())
        .await
        .unwrap()
        .into_items();
    assert_eq!(machines.len(), 2);
    assert!(inside.find_machine(&machines[0].id).await.unwrap().is_some());
    assert_eq!(outside.find_machine(&machines[0].id).await.unwrap(), None);
    assert!(inside.find_project(&project).await.unwrap().is_some());
    let network = network_named(&inside, "k8s").await;
    let address = take(&inside, &network.id).await.unwrap();
    assert_eq!(address.owner.project, Some(project));
    assert!(inside.find_address(&address.id).await.unwrap().is_some());
    done(inside.create_rule(&rule(&address, &network, 80)))
        .await
        .unwrap();
    let on_address = RuleQuery::OnAddress(address.id.clone());
    assert_eq!(inside.rules(&on_address).await.unwrap().items().len(), 1);
    assert_eq!(outside.rules(&on_address).await.unwrap().items().len(), 0);
    let stranger = ProjectId::parse("00000000-1111-4222-8333-444444444444").unwrap();
    let nowhere = Api::new(Arc::clone(inside.account()), "tenant", Some(stranger));
    assert!(nowhere.machines(&MachineQuery::default()).await.is_err());
}

#[tokio::test]
async fn failures_have_the_classes_that_a_caller_decides_by() {
    let simulator = simulator(seed()).await;
    let api = demo(&simulator);
    let network = network_named(&api, "k8s").await;
    let address = take(&api, &network.id).await.unwrap();
    let turn = api.turn_to_associate().await;
    let taken = associate(&api, &turn, &network.id, address.ip).await.unwrap_err();
    assert!(matches!(taken, ApiError::NoCapacity(_)), "{taken}");
    let made = done(api.create_rule(&rule(&address, &network, 80)))
        .await
        .unwrap();
    let conflict = api.create_rule(&rule(&address, &network, 80)).await.unwrap_err();
    assert!(matches!(conflict, ApiError::Conflict(_)), "{conflict}");
    done(api.delete_rule(&made.id)).await.unwrap();
    let gone = api.delete_rule(&made.id).await.unwrap_err();
    assert!(matches!(gone, ApiError::Gone(_)), "{gone}");
    assert_eq!(api.find_rule(&made.id).await.unwrap(), None);
    assert_eq!(api.rule_members(&made.id).await.unwrap(), None);
    let release = api.turn_to_release(&address.id).await;
    done(api.release(&release)).await.unwrap();
    let free = api.release(&release).await.unwrap_err();
    assert!(
        matches!(free, ApiError::Rejected(_)) && free.maybe_executed(),
        "{free}"
    );
    simulator.add_fault(Fault::always(
        "listZones",
        Effect::error(432, "The API [listZones] does not exist"),
    ));
    assert!(matches!(api.zones().await, Err(ApiError::Denied(_))));
}

#[tokio::test]
async fn a_failed_job_is_told_as_one() {
    let simulator = simulator(seed()).await;
    let api = demo(&simulator);
    let network = network_named(&api, "k8s").await;
    let address = take(&api, &network.id).await.unwrap();
    let made = done(api.create_rule(&rule(&address, &network, 80)))
        .await
        .unwrap();
    let fail = Effect::FailJob {
        code: 530,
        text: "Failed to assign load balancer rule".to_owned(),
    };
    simulator.add_fault(Fault::at("assignToLoadBalancerRule", 1, fail));
    let machines = api.machines(&MachineQuery::default()).await.unwrap().into_items();
    let error = done(api.assign(&made.id, &[machines[0].id.clone()]))
        .await
        .unwrap_err();
    let ApiError::JobFailed { refusal, .. } = &error else {
        panic!("{error}")
    };
    assert_eq!(
        (refusal.command, refusal.code),
        (Command::AssignToLoadBalancerRule, Some(530))
    );
}

#[tokio::test]
async fn a_taken_address_is_proved_by_the_job_that_took_it() {
    let simulator = simulator(seed()).await;
    let api = demo(&simulator);
    let network = network_named(&api, "k8s").await;
    let job = JobId::from(uuid::Uuid::new_v4());
    assert_eq!(api.job(&job).await.unwrap(), JobFate::Unknown);
    let turn = api.turn_to_associate().await;
    let free = api.free_addresses(None).await.unwrap().first().unwrap().clone();
    let target = AssociateTarget::Network(network.id.clone());
    let request = Associate {
        target,
        ip: free.ip,
        job: job.clone(),
    };
    let started = api.associate(&turn, &request).await.unwrap();
    assert_eq!((started.job(), started.id()), (&job, Some(free.id.clone())));
    started.finished().await.unwrap();
    let JobFate::Succeeded(proof) = api.await_job(Command::AssociateIpAddress, &job).await.unwrap() else {
        panic!("the job succeeded")
    };
    let address = api.find_address(&free.id).await.unwrap().unwrap();
    assert_eq!(proof.instance_id.as_deref(), Some(free.id.as_str()));
    assert_eq!(proof.address().unwrap().allocated, address.allocated);
    let of_network = api.addresses(&AddressQuery::OfNetwork(network.id)).await.unwrap();
    assert!(
        of_network
            .complete()
            .unwrap()
            .items()
            .iter()
            .any(|listed| listed.id == free.id)
    );
}

#[tokio::test]
async fn tags_are_written_read_and_removed() {
    let simulator = simulator(seed()).await;
    let api = demo(&simulator);
    let network = network_named(&api, "k8s").await;
    let address = TaggedResource::Address(take(&api, &network.id).await.unwrap().id);
    let tags = [Tag::new("kcs-cluster", "c1"), Tag::new("other", "x")];
    done(api.create_tags(&address, &tags)).await.unwrap();
    let twice = done(api.create_tags(&address, &tags[..1])).await.unwrap_err();
    assert!(matches!(twice, ApiError::JobFailed { .. }), "{twice}");
    assert_eq!(api.tags(&address).await.unwrap().items().len(), 2);
    done(api.delete_tags(&address, &tags[..1])).await.unwrap();
    let left = api.tags(&address).await.unwrap().into_items();
    assert_eq!(
        left.iter().map(|tag| tag.key.as_str()).collect::<Vec<_>>(),
        ["other"]
    );
}

#[tokio::test]
async fn slow_jobs_are_learned() {
    let simulator = simulator(seed()).await;
    let api = demo(&simulator);
    let network = network_named(&api, "k8s").await;
    let address = take(&api, &network.id).await.unwrap();
    simulator.change_options(|options| options.delays.job = Duration::from_millis(120));
    let mut polls = Vec::new();
    for port in 1..=6 {
        let before = simulator.calls().of_kind(CallKind::Poll);
        done(api.create_rule(&rule(&address, &network, port)))
            .await
            .unwrap();
        polls.push(simulator.calls().of_kind(CallKind::Poll) - before);
    }
    assert!(polls[0] > 2, "nothing is known of the first: {polls:?}");
    assert!(polls[1..].iter().sum::<u64>() <= 10, "{polls:?}");
}
