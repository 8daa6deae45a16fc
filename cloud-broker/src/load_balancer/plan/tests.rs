//! Plans that are carried out on what was seen, step by step: what stays true whoever dies in between. Here rules that are
//! replaced.

mod acl;
mod leaving;
mod outside;
mod unused;

use std::collections::BTreeSet;
use std::net::IpAddr;

use proto::v1;
use rstest::rstest;
use serde_json::{Value, json};

use super::{Answered, End, Farewell, Goal, Plan, Request, Step, plan};
use crate::cloudstack::types::{AddressId, Entity, Fields, Tag, Timestamp};
use crate::load_balancer::features::Features;
use crate::load_balancer::marks::{AddressWord, Mark};
use crate::load_balancer::names::Names;
use crate::load_balancer::observation::{Change, Holders, JobView, Need, Observation};
use crate::load_balancer::ownership::{Identity, TAG_KEY};
use crate::load_balancer::sources::Sources;
use crate::load_balancer::wish::{AdoptionHint, Dialect, DialectWish, ServiceRef, ServiceUid, Wish};
use crate::tenant::{ClusterUid, ClusterUids, Policy, Scope};

const UID: &str = "0f1e2d3c-4b5a-6978-8796-a5b4c3d2e1f0";
const PREFIX: &str = "a0f1e2d3c4b5a69788796a5b4c3d2e1f";
const NOW: &str = "2031-05-02T12:00:00+0000";
/// 26 hours before: no server remembers the job.
const LONG_AGO: &str = "2031-05-01T10:00:00+0000";

fn entity<T: Entity>(value: &Value) -> T {
    T::parse(Fields::of(value)).unwrap()
}

fn mark(service: &str, word: AddressWord) -> String {
    Mark {
        cluster: "c1".to_owned(),
        service: service.to_owned(),
        address: Some(word),
        src: BTreeSet::from([Sources::everybody().hash()]),
        held: None,
        other: Vec::new(),
    }
    .to_string()
}

fn rule(port: u16, description: &str, state: &str) -> Value {
    json!({
        "id": format!("rule-{port}"), "name": format!("{PREFIX}-tcp-{port}"), "description": description,
        "publicipid": "ip", "publicip": "192.0.2.7", "publicport": port.to_string(), "privateport": (30000 + port).to_string(),
        "algorithm": "roundrobin", "protocol": "tcp", "networkid": "net", "cidrlist": "0.0.0.0/0", "state": state,
    })
}

/// A network, an address that was taken long ago, and another one that is free.
fn seen(rules: &[Value], tagged: bool) -> Observation {
    let mut seen = Observation::empty(Timestamp::parse(NOW).unwrap(), Features::NEWEST);
    seen.networks = vec![entity(&json!({
        "id": "net", "name": "k8s", "type": "Isolated", "state": "Implemented",
        "service": [{ "name": "Lb" }, { "name": "Firewall" }],
    }))];
    seen.addresses = vec![entity(&json!({
        "id": "ip", "ipaddress": "192.0.2.7", "state": "Allocated", "allocated": LONG_AGO, "associatednetworkid": "net",
    }))];
    if tagged {
        seen.addresses[0].tags = vec![Tag::new(TAG_KEY, "c1")];
    }
    seen.rules = rules.iter().map(entity).collect();
    let machine: crate::cloudstack::types::Machine = entity(&json!({
        "id": "m1", "name": "m1", "state": "Running", "nic": [{ "networkid": "net", "isdefault": true }],
    }));
    seen.machines = [(machine.id.clone(), machine)].into();
    seen
}

fn request(goal: Goal) -> Request {
    let service = ServiceRef {
        uid: ServiceUid::parse(UID).unwrap(),
        namespace: "shop".to_owned(),
        name: "web".to_owned(),
    };
    Request {
        identity: Identity {
            names: Names::of(&service, "kubernetes"),
            service,
            uids: ClusterUids::configured(vec![ClusterUid::new("c1").unwrap()]),
            take_over: true,
            fence: Scope::default(),
        },
        scope: Scope::default(),
        policy: Policy::default(),
        published: vec![IpAddr::from([192, 0, 2, 7])],
        nodes_visible: false,
        goal,
    }
}

/// Public and node ports.
fn serve(ports: &[(u16, u16)], edit: impl FnOnce(&mut v1::Wish)) -> Request {
    let mut wish = v1::Wish {
        ports: ports
            .iter()
            .map(|(port, node_port)| v1::WishPort {
                protocol: v1::wish_port::Protocol::Tcp.into(),
                port: (*port).into(),
                node_port: (*node_port).into(),
                ..v1::WishPort::default()
            })
            .collect(),
        members: vec![v1::WishMember {
            node_name: "m1".to_owned(),
            machine: Some(v1::wish_member::Machine::MachineId("m1".to_owned())),
        }],
        ..v1::Wish::default()
    };
    edit(&mut wish);
    let policy = Policy::default();
    request(Goal::Serve(Box::new(
        Wish::from_proto(Some(&wish), &policy).unwrap().0,
    )))
}

fn leave(keep_address: bool) -> Request {
    request(Goal::Leave(Farewell {
        keep_address,
        network: None,
        dialect: DialectWish {
            kind: Dialect::Apache,
            cluster_name: "kubernetes".to_owned(),
        },
        adoption: AdoptionHint::default(),
    }))
}

/// What a look finds in a cloud where nobody else does anything, and whose jobs are long forgotten.
fn look(need: &Need, seen: &mut Observation) {
    match need {
        Need::SecondLook => seen.looks += 1,
        Need::Firewall => seen.firewall_read = true,
        Need::Acl(list) => {
            seen.acl.entry(list.clone()).or_default();
        }
        Need::AllAcl => seen.acl_read = true,
        Need::Members(rule) => {
            let members = seen.machines.keys().cloned().collect();
            seen.members.insert(rule.clone(), members);
        }
        Need::Address(id) => {
            seen.invisible.insert(id.clone());
        }
        Need::Unsettled => {
            seen.unsettled.get_or_insert_default();
        }
        Need::Free { .. } => {
            seen.free = Some(vec![entity(
                &json!({ "id": "free", "ipaddress": "192.0.2.9", "state": "Free" }),
            )]);
        }
        Need::Digits(ip) => {
            let known = seen.addresses.iter().chain(seen.unsettled.iter().flatten());
            let found = known.clone().find(|address| address.ip == *ip).cloned();
            let free = json!({ "id": "ip", "ipaddress": ip.to_string(), "state": "Free" });
            seen.digits.insert(*ip, found.or_else(|| Some(entity(&free))));
        }
        Need::Job(id) => {
            seen.jobs.insert(id.clone(), JobView::Unknown);
        }
        Need::Holders(id) => {
            seen.holders.insert(id.clone(), Holders::default());
        }
    }
}

/// The next plan on what is seen, once everything is looked at that it needs.
fn next(request: &Request, seen: &mut Observation) -> Plan {
    for _ in 0..20 {
        let plan = plan(request, seen);
        if plan.needs.is_empty() {
            return plan;
        }
        plan.needs.iter().for_each(|need| look(need, seen));
    }
    panic!("there is always something to look at");
}

/// Carries plans out until nothing is left to do; every round begins with nothing remembered, as after a crash. Tells the
/// rounds and the end.
fn carry_out(
    request: &Request,
    seen: &mut Observation,
    mut check: impl FnMut(&Observation, &Step),
) -> (Vec<Vec<Step>>, End) {
    let mut rounds = Vec::new();
    for number in 0..50 {
        let (unsettled, jobs) = (seen.unsettled.take(), std::mem::take(&mut seen.jobs));
        seen.forget_looks();
        (seen.unsettled, seen.jobs) = (unsettled, jobs);
        let plan = next(request, seen);
        let round: Vec<Step> = plan
            .next_round()
            .iter()
            .map(|planned| planned.step.clone())
            .collect();
        if round.is_empty() {
            return (rounds, plan.end);
        }
        for (index, step) in round.iter().enumerate() {
            let answered = Answered {
                id: Some(format!("made-{number}-{index}")),
                ..Answered::default()
            };
            for change in step.effect(&answered, seen) {
                seen.apply(&change);
            }
            check(seen, step);
        }
        rounds.push(round);
    }
    panic!("it does not settle: {rounds:#?}");
}

fn on_address(seen: &Observation) -> Vec<(u16, u16)> {
    let id = AddressId::parse("ip").unwrap();
    let mut rules: Vec<(u16, u16)> = seen
        .rules_on(&id)
        .filter(|rule| rule.name.starts_with(PREFIX))
        .map(|rule| (rule.public_port, rule.private_port))
        .collect();
    rules.sort_unstable();
    rules
}

#[derive(Clone, Copy)]
enum Beside {
    Nothing,
    Tag,
    Sibling,
    SiblingAndTag,
}

#[rstest]
#[case::one_rule(&[(80, 31080)])]
#[case::every_port_at_once(&[(80, 31080), (443, 31443), (8080, 31880)])]
fn replaced_rules_never_leave_the_address_without_one(
    #[case] ports: &[(u16, u16)],
    #[values(AddressWord::Own, AddressWord::Given)] word: AddressWord,
    #[values(Beside::Nothing, Beside::Tag, Beside::Sibling, Beside::SiblingAndTag)] beside: Beside,
) {
    let mut rules: Vec<Value> = ports
        .iter()
        .map(|(port, _)| rule(*port, &mark(UID, word), "Active"))
        .collect();
    if matches!(beside, Beside::Sibling | Beside::SiblingAndTag) {
        let mut sibling = rule(9000, &mark("another", word), "Active");
        sibling["name"] = json!("afffffffffffffffffffffffffffffff-tcp-9000");
        rules.push(sibling);
    }
    let mut seen = seen(&rules, matches!(beside, Beside::Tag | Beside::SiblingAndTag));
    let old: BTreeSet<_> = seen.rules.iter().map(|rule| rule.id.clone()).collect();
    let (rounds, end) = carry_out(&serve(ports, |_| {}), &mut seen, |seen, step| {
        assert!(
            !matches!(step, Step::Associate { .. }),
            "another address is taken: {step:?}"
        );
        assert!(
            !on_address(seen).is_empty(),
            "nothing tells whose the address is after {step:?}"
        );
    });
    let End::Served(served) = end else {
        panic!("{end:?}")
    };
    assert_eq!(served.outputs.address_id.as_str(), "ip");
    assert_eq!(on_address(&seen), ports);
    // One at a time, and each successor serves before the next one goes.
    let replaced = |step: &&Step| matches!(step, Step::DeleteRule { rule, .. } if old.contains(rule));
    for round in &rounds {
        assert!(round.iter().filter(replaced).count() <= 1, "{round:#?}");
    }
    let order: Vec<&str> = rounds
        .iter()
        .flatten()
        .filter(|step| replaced(step) || matches!(step, Step::Assign { .. }))
        .map(Step::action)
        .collect();
    assert_eq!(order, ["delete rule", "assign members"].repeat(ports.len()));
}

#[test]
fn sources_that_a_server_takes_only_with_a_new_rule_do_not_cost_the_address() {
    let mut seen = seen(&[rule(80, &mark(UID, AddressWord::Own), "Active")], true);
    seen.features.sources_on_update = false;
    let request = serve(&[(80, 30080)], |wish| {
        wish.sources = vec!["10.0.0.0/8".to_owned()];
    });
    let (_, end) = carry_out(&request, &mut seen, |seen, _| {
        assert!(!on_address(seen).is_empty());
    });
    assert!(matches!(end, End::Served(served) if served.outputs.address_id.as_str() == "ip"));
    assert_eq!(on_address(&seen), [(80, 30080)]);
}

#[test]
fn a_rule_that_stays_makes_room_for_the_others_without_a_placeholder() {
    let rules = [80, 443].map(|port| rule(port, &mark(UID, AddressWord::Own), "Active"));
    let mut seen = seen(&rules, false);
    let (rounds, _) = carry_out(&serve(&[(80, 31080), (443, 30443)], |_| {}), &mut seen, |_, _| {});
    let made = rounds
        .iter()
        .flatten()
        .filter(|step| matches!(step, Step::CreateRule { .. }));
    assert_eq!(made.count(), 1, "{rounds:#?}");
}
