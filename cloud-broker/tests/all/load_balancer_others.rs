//! Balancers of controllers that came before, of people, and of other brokers.

use std::net::IpAddr;
use std::time::Duration;

use cloud_broker::cloudstack::types::{Algorithm, CidrList, MachineId, NetworkId, PortRange, RuleProtocol};
use cloud_broker::cloudstack::{
    Associate, AssociateTarget, CreateFirewallRule, CreateRule, FirewallProtocol, RuleChange, RuleQuery,
};
use cloud_broker::load_balancer::{Demand, Outcome};
use cloudstack_simulator::{Handle, MachineSeed, Seed};
use proto::v1;

use super::client_support::network_named;
use super::load_balancer_support::{
    Always, Broker, Endpoint, calls, cloud, cluster, farewell, isolated, picture, port_of, service, wish,
};

pub(crate) const NAME: &str = "a0000000111114111811111111111111";
const LEASEWEB: &str = "K8s_svc_kubernetes_shop_web-1";

/// An address with rules as an older controller, or a person, makes them.
pub(crate) struct Made {
    pub(crate) ip: IpAddr,
    network: NetworkId,
}

#[expect(
    clippy::too_many_lines,
    reason = "what an older controller does, in its order"
)]
pub(crate) async fn by_hand(broker: &Broker, cloud: &Handle, ip: &str, rules: &[(&str, u16, u16)]) -> Made {
    let network = network_named(&broker.api, "k8s").await.id;
    let ip: IpAddr = ip.parse().unwrap();
    let turn = broker.api.turn_to_associate().await;
    let job = uuid::Uuid::new_v4().into();
    let request = Associate {
        target: AssociateTarget::Network(network.clone()),
        ip,
        job,
    };
    let address = broker
        .api
        .associate(&turn, &request)
        .await
        .unwrap()
        .finished()
        .await
        .unwrap()
        .id;
    drop(turn);
    let machines: Vec<MachineId> = cloud
        .dump()
        .machines
        .iter()
        .map(|row| MachineId::parse(&row.id.to_string()).unwrap())
        .collect();
    for (name, public_port, private_port) in rules {
        let rule = CreateRule {
            name: (*name).to_owned(),
            description: String::new(),
            address: address.clone(),
            network: network.clone(),
            public_port: *public_port,
            private_port: *private_port,
            algorithm: Algorithm::RoundRobin,
            protocol: RuleProtocol::Tcp,
            sources: Some(CidrList::parse("0.0.0.0/0")),
        };
        let made = broker
            .api
            .create_rule(&rule)
            .await
            .unwrap()
            .finished()
            .await
            .unwrap();
        broker
            .api
            .assign(&made.id, &machines)
            .await
            .unwrap()
            .finished()
            .await
            .unwrap();
        let firewall = CreateFirewallRule {
            address: address.clone(),
            protocol: FirewallProtocol::Tcp,
            ports: PortRange::single(*public_port),
            sources: CidrList::parse("0.0.0.0/0"),
        };
        broker
            .api
            .create_firewall_rule(&firewall)
            .await
            .unwrap()
            .finished()
            .await
            .unwrap();
    }
    Made { ip, network }
}

fn adoption(ip: &str, ours: bool) -> v1::Adoption {
    v1::Adoption {
        load_balancer_ip: ip.to_owned(),
        ip_associated_by_controller: ours,
    }
}

#[rstest::rstest]
#[case::any_address(&[format!("{NAME}-tcp-80")], "", false, false, true)]
#[case::pinned_by_the_user(&[format!("{NAME}-tcp-80")], "127.100.0.50", false, false, false)]
#[case::pinned_and_taken_by_the_controller(&[format!("{NAME}-tcp-80")], "127.100.0.50", true, false, true)]
#[case::pinned_elsewhere(&[format!("{NAME}-tcp-80")], "192.0.2.9", false, false, true)]
#[case::name_without_protocol(&[format!("{NAME}-80")], "", false, false, true)]
#[case::leaseweb(&[format!("{LEASEWEB}-tcp-80")], "127.100.0.50", false, false, true)]
#[case::leaseweb_keeps(&[format!("{LEASEWEB}-tcp-80")], "", false, true, false)]
#[tokio::test]
async fn rules_of_an_older_controller_are_marked_and_nothing_else_changes(
    #[case] names: &[String],
    #[case] asked: &str,
    #[case] noted: bool,
    #[case] keep: bool,
    #[case] own: bool,
) {
    let cloud = cloud(isolated()).await;
    let broker = Broker::new(&cloud);
    let rules: Vec<(&str, u16, u16)> = names.iter().map(|name| (name.as_str(), 80, 30080)).collect();
    let made = by_hand(&broker, &cloud, "127.100.0.50", &rules).await;
    let before = cloud.dump();
    let mut wanted = wish(&cloud, &[(80, 30080)]);
    wanted.adoption = Some(adoption(asked, noted));
    wanted.keep_address = keep;
    let (served, changes) = broker.ensure(&service(1), &wanted, &[made.ip]).await.unwrap();
    assert_eq!(
        (served.ingress.ip, served.outputs.address_owned, changes),
        (made.ip, own, 1)
    );
    assert_eq!(served.outputs.network_id, made.network);
    let after = cloud.dump();
    assert_eq!(
        (&after.addresses, &after.firewall_rules),
        (&before.addresses, &before.firewall_rules)
    );
    assert_eq!(after.rules[0].name, before.rules[0].name);
    assert_eq!(
        (after.rules[0].id, &after.rules[0].members),
        (before.rules[0].id, &before.rules[0].members)
    );
    // Later edits of the annotations change nothing.
    wanted.adoption = Some(adoption(if own { "127.100.0.50" } else { "" }, !own));
    wanted.keep_address = false;
    let (again, changes) = broker.ensure(&service(1), &wanted, &[made.ip]).await.unwrap();
    assert_eq!((again.outputs.address_owned, changes), (own, 0));
    let mut farewell = farewell();
    farewell.adoption.load_balancer_ip = if own {
        "127.100.0.50".to_owned()
    } else {
        String::new()
    };
    let departed = broker.delete(&service(1), farewell).await.unwrap();
    assert_eq!(departed.released, if own { vec![made.ip] } else { vec![] });
    assert_eq!(departed.kept, if own { vec![] } else { vec![made.ip] });
    let left = picture(&cloud.dump());
    assert_eq!(left.len(), usize::from(!own), "{left:?}");
}

#[tokio::test]
async fn a_service_that_ends_before_it_was_adopted_ends_as_the_older_controller_would_have_ended_it() {
    let cloud = cloud(isolated()).await;
    let broker = Broker::new(&cloud);
    let name = format!("{NAME}-tcp-80");
    by_hand(&broker, &cloud, "127.100.0.50", &[(&name, 80, 30080)]).await;
    broker.delete(&service(1), farewell()).await.unwrap();
    assert_eq!(picture(&cloud.dump()), Vec::<String>::new());
    by_hand(&broker, &cloud, "127.100.0.50", &[(&name, 80, 30080)]).await;
    let mut farewell = farewell();
    farewell.adoption.load_balancer_ip = "127.100.0.50".to_owned();
    broker.delete(&service(1), farewell).await.unwrap();
    assert_eq!(picture(&cloud.dump()), ["address 127.100.0.50 Allocated"]);
}

#[tokio::test]
async fn sources_that_were_found_stay_until_the_wish_changes() {
    let cloud = cloud(isolated()).await;
    let broker = Broker::new(&cloud);
    let name = format!("{NAME}-tcp-80");
    let made = by_hand(&broker, &cloud, "127.100.0.50", &[(&name, 80, 30080)]).await;
    let mut wanted = wish(&cloud, &[(80, 30080)]);
    wanted.sources = vec!["10.0.0.0/8".to_owned()];
    broker.ensure(&service(1), &wanted, &[made.ip]).await.unwrap();
    assert_eq!(cloud.dump().firewall_rules[0].sources, ["0.0.0.0/0"]);
    let (_, changes) = broker.ensure(&service(1), &wanted, &[made.ip]).await.unwrap();
    assert_eq!(changes, 0);
    wanted.sources = vec!["192.0.2.0/24".to_owned()];
    broker.ensure(&service(1), &wanted, &[made.ip]).await.unwrap();
    let dump = cloud.dump();
    assert_eq!(dump.firewall_rules.len(), 1);
    assert_eq!(dump.firewall_rules[0].sources, ["192.0.2.0/24"]);
    assert_eq!(dump.rules[0].sources.as_deref(), Some("192.0.2.0/24"));
    // Told so at the start, the broker tightens at once.
    let mut other = Broker::new(&cloud);
    other.policy.tighten_on_adopt = true;
    let name = "a0000000211114111811111111111111-tcp-81";
    let made = by_hand(&other, &cloud, "127.100.0.51", &[(name, 81, 30081)]).await;
    let mut wanted = wish(&cloud, &[(81, 30081)]);
    wanted.sources = vec!["10.0.0.0/8".to_owned()];
    other.ensure(&service(2), &wanted, &[made.ip]).await.unwrap();
    let open = cloud
        .dump()
        .firewall_rules
        .into_iter()
        .find(|rule| rule.address == "127.100.0.51")
        .unwrap();
    assert_eq!(open.sources, ["10.0.0.0/8"]);
}

#[tokio::test]
async fn new_ports_are_named_as_the_service_is_used_to() {
    let cloud = cloud(isolated()).await;
    let broker = Broker::new(&cloud);
    let name = format!("{LEASEWEB}-tcp-80");
    let made = by_hand(&broker, &cloud, "127.100.0.50", &[(&name, 80, 30080)]).await;
    broker
        .ensure(
            &service(1),
            &wish(&cloud, &[(80, 30080), (443, 30443)]),
            &[made.ip],
        )
        .await
        .unwrap();
    let names: Vec<String> = cloud.dump().rules.into_iter().map(|rule| rule.name).collect();
    assert_eq!(names, [name, format!("{LEASEWEB}-tcp-443")]);
}

#[tokio::test]
#[expect(clippy::too_many_lines, reason = "one story")]
async fn what_people_and_other_clusters_made_is_never_touched() {
    let cloud = cloud(isolated()).await;
    let mut other = Broker::new(&cloud);
    other.uids = cluster("dddddddd-0000-4000-8000-00000000000d");
    let broker = Broker::new(&cloud);
    // Another cluster's rules of a Service with the same UID, names that only begin like ours, a rule and a firewall rule on
    // an address of ours.
    other
        .ensure(&service(1), &wish(&cloud, &[(80, 30080)]), &[])
        .await
        .unwrap();
    by_hand(
        &broker,
        &cloud,
        "127.100.0.50",
        &[(&format!("{NAME}-tcp-80-mine"), 80, 30080), ("shop", 81, 30081)],
    )
    .await;
    let strangers = picture(&cloud.dump());
    let mut wanted = wish(&cloud, &[(80, 30080), (443, 30443)]);
    let (served, _) = broker.ensure(&service(1), &wanted, &[]).await.unwrap();
    let rules = broker.api.rules(&RuleQuery::All).await.unwrap().into_items();
    let address = rules
        .iter()
        .find(|rule| rule.ip == Some(served.ingress.ip))
        .unwrap()
        .address_id
        .clone()
        .unwrap();
    let hand = CreateFirewallRule {
        address: address.clone(),
        protocol: FirewallProtocol::Tcp,
        ports: PortRange { start: 1, end: 1000 },
        sources: CidrList::parse("198.51.100.0/24"),
    };
    broker
        .api
        .create_firewall_rule(&hand)
        .await
        .unwrap()
        .finished()
        .await
        .unwrap();
    let hand_rule = CreateRule {
        name: "by hand".to_owned(),
        description: "ask the network team".to_owned(),
        address,
        network: network_named(&broker.api, "k8s").await.id,
        public_port: 9000,
        private_port: 9000,
        algorithm: Algorithm::RoundRobin,
        protocol: RuleProtocol::Tcp,
        sources: None,
    };
    broker
        .api
        .create_rule(&hand_rule)
        .await
        .unwrap()
        .finished()
        .await
        .unwrap();
    drop(broker);
    let broker = Broker::new(&cloud);
    wanted.ports = vec![port_of(443, 30444)];
    wanted.sources = vec!["10.0.0.0/8".to_owned()];
    broker
        .ensure(&service(1), &wanted, &[served.ingress.ip])
        .await
        .unwrap();
    let departed = broker.delete(&service(1), farewell()).await.unwrap();
    // The address stays, since a rule of somebody else is on it.
    assert_eq!(
        (departed.released, departed.kept),
        (vec![], vec![served.ingress.ip])
    );
    let left = picture(&cloud.dump());
    assert!(strangers.iter().all(|line| left.contains(line)), "{left:#?}");
    let rest: Vec<&String> = left.iter().filter(|line| !strangers.contains(line)).collect();
    assert_eq!(rest.len(), 3, "{rest:#?}");
    assert!(
        rest.iter().any(|line| line.contains("by hand"))
            && rest.iter().any(|line| line.contains("(1, 1000)"))
    );
}

#[tokio::test]
async fn two_brokers_at_once_on_one_account_make_one_balancer() {
    let cloud = cloud(isolated()).await;
    cloud.change_options(|options| options.delays.job = Duration::from_millis(3));
    let (first, second) = (Broker::new(&cloud), Broker::new(&cloud));
    let wanted = wish(&cloud, &[(80, 30080), (443, 30443)]);
    for round in 0..4 {
        let both = async |broker: &Broker| {
            let mut tries = 0;
            loop {
                tries += 1;
                // Whoever loses a race is told so and asks again.
                match broker.ensure_once(&service(1), &wanted, &[]).await {
                    Ok(answer) => match answer.outcome {
                        Outcome::Settled(served) => return served,
                        Outcome::Pending(_) => {}
                    },
                    Err(fault) => assert!(tries < 20, "{fault:?}"),
                }
                assert!(tries < 20);
            }
        };
        let (one, two) = futures::join!(both(&first), both(&second));
        // Each may have taken an address before it could see the other's rules. What is published then decides: the other one
        // goes, and both brokers see one balancer.
        let published = [one.ingress.ip];
        assert!(two.ingress.ip == published[0] || two.outputs.address_owned);
        let (settled, _) = first.ensure(&service(1), &wanted, &published).await.unwrap();
        // One that has not seen the other's rules has nothing to do; the other one clears away its own then.
        let (same, _) = second.ensure(&service(1), &wanted, &published).await.unwrap();
        assert_eq!(same, settled, "round {round}");
        for broker in [&first, &second] {
            let (same, changes) = broker.ensure(&service(1), &wanted, &published).await.unwrap();
            assert_eq!((&same, changes), (&settled, 0), "round {round}");
        }
        assert_eq!(settled.ingress, one.ingress);
        let dump = cloud.dump();
        assert_eq!(dump.acquired().count(), 1, "{:#?}", picture(&dump));
        assert_eq!(dump.rules.len(), 2, "{:#?}", picture(&dump));
        assert!(dump.rules.iter().all(|rule| rule.members.len() == 3));
        assert_eq!(dump.firewall_rules.len(), 2, "{:#?}", picture(&dump));
        let gone = service(1);
        let (one, two) = futures::join!(
            first.delete_once(&gone, farewell()),
            second.delete_once(&gone, farewell())
        );
        let done = [one, two]
            .into_iter()
            .flatten()
            .filter(|answer| matches!(answer.outcome, Outcome::Settled(_)));
        if done.count() < 2 {
            first.delete(&service(1), farewell()).await.unwrap();
        }
        assert_eq!(picture(&cloud.dump()), Vec::<String>::new(), "round {round}");
    }
}

#[tokio::test]
async fn a_lost_mark_takes_the_word_of_its_siblings_and_a_rule_without_protocol_is_repaired() {
    let cloud = cloud(isolated()).await;
    let broker = Broker::new(&cloud);
    let wanted = wish(&cloud, &[(80, 30080), (443, 30443)]);
    let (served, _) = broker.ensure(&service(1), &wanted, &[]).await.unwrap();
    let rules = broker.api.rules(&RuleQuery::All).await.unwrap().into_items();
    let change = RuleChange {
        description: Some("cleaned by ops".to_owned()),
        algorithm: Some(Algorithm::RoundRobin),
        protocol: Some(RuleProtocol::Tcp),
        ..RuleChange::default()
    };
    broker
        .api
        .update_rule(&rules[0].id, &change)
        .await
        .unwrap()
        .finished()
        .await
        .unwrap();
    drop(broker);
    let broker = Broker::new(&cloud);
    let (again, changes) = broker
        .ensure(&service(1), &wanted, &[served.ingress.ip])
        .await
        .unwrap();
    assert_eq!((again, changes), (served, 1));
    let dump = cloud.dump();
    assert!(
        dump.rules
            .iter()
            .all(|rule| rule.description.as_deref().unwrap().contains("address=own"))
    );
    assert!(dump.rules.iter().any(|rule| {
        rule.description
            .as_deref()
            .unwrap()
            .starts_with("cleaned by ops kcs1 ")
    }));
}

#[tokio::test]
async fn members_that_run_and_nobody_claims_are_not_all_replaced_without_consent() {
    let seed = Seed::builder()
        .account("demo")
        .network("demo", "k8s", "127.101.0.0/24")
        .machines("k8s", "node-", 2)
        .machine(MachineSeed::new("clone-1", "k8s", None))
        .build();
    let cloud = cloud(seed).await;
    let broker = Broker::new(&cloud);
    let all = wish(&cloud, &[(80, 30080)]);
    let only = |prefix: &str| v1::Wish {
        members: all
            .members
            .iter()
            .filter(|member| member.node_name.starts_with(prefix))
            .cloned()
            .collect(),
        ..all.clone()
    };
    let (served, _) = broker.ensure(&service(1), &only("node-"), &[]).await.unwrap();
    let mut wanted = only("clone-");
    let fault = broker
        .ensure_once(&service(1), &wanted, &[served.ingress.ip])
        .await
        .unwrap_err();
    assert_eq!(&*fault.reason, "REPLACES_ALL_MEMBERS");
    assert_eq!(cloud.dump().rules[0].members, ["node-1", "node-2"]);
    let preview = broker
        .preview(&service(1), &wanted, &[served.ingress.ip])
        .await
        .unwrap();
    assert!(!preview.refused.is_empty());
    wanted.accept_replace = preview.plan_id;
    broker
        .ensure(&service(1), &wanted, &[served.ingress.ip])
        .await
        .unwrap();
    assert_eq!(cloud.dump().rules[0].members, ["clone-1"]);
}

#[tokio::test]
async fn unresolved_nodes_and_empty_lists_keep_the_members() {
    let cloud = cloud(isolated()).await;
    let broker = Broker::new(&cloud);
    let all = wish(&cloud, &[(80, 30080)]);
    let (served, _) = broker.ensure(&service(1), &all, &[]).await.unwrap();
    let published = [served.ingress.ip];
    let mut unsure = all.clone();
    unsure.members[0].machine = Some(v1::wish_member::Machine::Unresolved(true));
    unsure.members.remove(1);
    broker.ensure(&service(1), &unsure, &published).await.unwrap();
    assert_eq!(cloud.dump().rules[0].members.len(), 3);
    let nobody = v1::Wish {
        members: vec![],
        ..all.clone()
    };
    broker.ensure(&service(1), &nobody, &published).await.unwrap();
    assert_eq!(cloud.dump().rules[0].members.len(), 3);
    // What is proved gone goes even then.
    let v1::WishMember {
        machine: Some(v1::wish_member::Machine::MachineId(gone)),
        ..
    } = &all.members[2]
    else {
        panic!()
    };
    unsure.members[1].machine = Some(v1::wish_member::Machine::GoneMachineId(gone.clone()));
    broker.ensure(&service(1), &unsure, &published).await.unwrap();
    assert_eq!(cloud.dump().rules[0].members.len(), 2);
    let calls_before = calls(&cloud).1;
    broker.ensure(&service(1), &unsure, &published).await.unwrap();
    assert_eq!(calls(&cloud).1, calls_before);
}

#[tokio::test]
async fn a_kept_address_is_handed_over_and_the_next_service_gets_it_as_given() {
    let cloud = cloud(isolated()).await;
    let broker = Broker::new(&cloud);
    let (served, _) = broker
        .ensure(&service(1), &wish(&cloud, &[(80, 30080)]), &[])
        .await
        .unwrap();
    let mut goodbye = farewell();
    goodbye.keep_address = true;
    let departed = broker.delete(&service(1), goodbye).await.unwrap();
    assert_eq!(departed.kept, [served.ingress.ip]);
    assert_eq!(
        picture(&cloud.dump()),
        [format!("address {} Allocated", served.ingress.ip)]
    );
    let mut wanted = wish(&cloud, &[(80, 30080)]);
    wanted.requested_address = served.ingress.ip.to_string();
    let (next, _) = broker.ensure(&service(2), &wanted, &[]).await.unwrap();
    assert!(!next.outputs.address_owned);
    let departed = broker.delete(&service(2), farewell()).await.unwrap();
    assert_eq!(departed.kept, [served.ingress.ip]);
    assert_eq!(cloud.dump().acquired().count(), 1);
}

#[tokio::test]
async fn an_end_that_can_not_see_what_was_made_waits_and_one_that_sees_it_is_gone_is_done() {
    let seed = Seed::builder()
        .account("demo")
        .account("other")
        .network("demo", "k8s", "127.101.0.0/24")
        .network("other", "theirs", "127.102.0.0/24")
        .machines("k8s", "node-", 3)
        .build();
    let cloud = cloud(seed).await;
    let broker = Broker::new(&cloud);
    let (served, _) = broker
        .ensure(&service(1), &wish(&cloud, &[(80, 30080)]), &[])
        .await
        .unwrap();
    let end = |published: Vec<IpAddr>| Demand {
        service: service(1),
        published,
        goal: farewell(),
    };
    let soon = || runtime::clock::now() + Duration::from_secs(20);
    // The keys of another account see another network, and nothing of this cluster.
    let astray = Broker::at(&Endpoint::of(&cloud, "other"));
    let demand = end(vec![served.ingress.ip]);
    let answer = astray
        .balancers
        .delete(&astray.tenancy(), &demand, &Always, soon())
        .await
        .unwrap();
    assert!(matches!(answer.outcome, Outcome::Pending(wait) if wait.reason == "SCOPE_CHANGED"));
    assert_eq!(cloud.dump().rules.len(), 1);
    let answer = broker
        .balancers
        .delete(&broker.tenancy(), &demand, &Always, soon())
        .await
        .unwrap();
    assert!(matches!(answer.outcome, Outcome::Settled(departed) if departed.released == [served.ingress.ip]));
    // Gone is gone: the address is free.
    let answer = broker
        .balancers
        .delete(&broker.tenancy(), &demand, &Always, soon())
        .await
        .unwrap();
    assert!(matches!(answer.outcome, Outcome::Settled(departed) if departed.released.is_empty()));
}
