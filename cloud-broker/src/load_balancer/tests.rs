//! Tables for the pure rules: whose is what, where is balanced, who is a member, what filters.

use std::collections::BTreeSet;

use rstest::rstest;

use super::marks::AddressWord;
use super::members::WantedMembers;
use super::names::Names;
use super::network::{Filter, check, choose, filter, may_use};
use super::observation::{Change, Features, JobView, Observation};
use super::ownership::{Claim, Identity, Proof, Survey, job_id, jobs};
use super::wish::{ServiceRef, ServiceUid, Wish};
use crate::cloudstack::types::Entity;
use crate::cloudstack::types::{
    AddressId, Fields, LoadBalancerRule, Machine, MachineId, Network, PublicIpAddress, RuleState, Timestamp,
};
use crate::tenant::{ClusterUid, ClusterUids, NameOrId, Policy, Scope};
use proto::v1;
use serde_json::{Value, json};

const UID: &str = "0f1e2d3c-4b5a-6978-8796-a5b4c3d2e1f0";
const NAME: &str = "a0f1e2d3c4b5a69788796a5b4c3d2e1f-tcp-80";

fn identity(uids: &[&str], take_over: bool) -> Identity {
    let service = ServiceRef {
        uid: ServiceUid::parse(UID).unwrap(),
        namespace: "shop".to_owned(),
        name: "web".to_owned(),
    };
    Identity {
        names: Names::of(&service, "kubernetes"),
        service,
        uids: ClusterUids::configured(uids.iter().filter_map(|uid| ClusterUid::new(uid)).collect()),
        take_over,
        fence: Scope::default(),
    }
}

fn entity<T: Entity>(value: &Value) -> T {
    T::parse(Fields::of(value)).unwrap()
}

fn rule(id: &str, name: &str, description: &str, address: &str) -> LoadBalancerRule {
    entity(&json!({
        "id": id, "name": name, "description": description, "publicipid": address, "publicip": "192.0.2.7",
        "publicport": "80", "privateport": "30080", "algorithm": "roundrobin", "protocol": "tcp",
        "networkid": "net", "state": "Active",
    }))
}

fn address(id: &str, allocated: Option<&str>) -> PublicIpAddress {
    entity(&json!({
        "id": id, "ipaddress": "192.0.2.7", "state": "Allocated", "allocated": allocated, "associatednetworkid": "net",
    }))
}

fn network(value: &Value) -> Network {
    let mut all = json!({ "id": "net", "name": "k8s", "type": "Isolated", "state": "Implemented" });
    for (key, value) in value.as_object().unwrap() {
        all[key] = value.clone();
    }
    entity(&all)
}

fn machine(id: &str, networks: &[(&str, bool)], state: &str) -> Machine {
    let nics: Vec<Value> = networks
        .iter()
        .map(|(id, default)| json!({ "networkid": id, "isdefault": default }))
        .collect();
    entity(&json!({ "id": id, "name": id, "state": state, "nic": nics }))
}

fn seen() -> Observation {
    Observation::empty(
        Timestamp::parse("2031-05-01T10:20:30+0000").unwrap(),
        Features::NEWEST,
    )
}

fn wish(machines: &[&str], edit: impl FnOnce(&mut v1::Wish)) -> Wish {
    let mut wish = v1::Wish {
        ports: vec![v1::WishPort {
            name: "http".to_owned(),
            protocol: v1::wish_port::Protocol::Tcp.into(),
            port: 80,
            node_port: 30080,
            proxy_protocol: false,
        }],
        members: machines
            .iter()
            .map(|id| v1::WishMember {
                node_name: (*id).to_owned(),
                machine: Some(v1::wish_member::Machine::MachineId((*id).to_owned())),
            })
            .collect(),
        ..v1::Wish::default()
    };
    edit(&mut wish);
    Wish::from_proto(Some(&wish), &Policy::default()).unwrap().0
}

fn mark(cluster: &str, service: &str) -> String {
    format!("kcs1 cluster={cluster} service={service} address=own src=2ac1d1e4")
}

#[rstest]
#[case::our_mark("any name", &mark("c1", UID), Claim::Mine)]
#[case::an_older_uid_of_ours("any name", &mark("c0", UID), Claim::Mine)]
#[case::no_cluster_but_our_service("any name", &mark("-", UID), Claim::Mine)]
#[case::no_cluster_and_another_service(NAME, &mark("-", "other"), Claim::Stranger)]
#[case::a_sibling(NAME, &mark("c1", "other"), Claim::Sibling)]
#[case::our_name_under_another_mark(NAME, &mark("zz", UID), Claim::OtherCluster)]
#[case::our_name(NAME, "", Claim::Mine)]
#[case::our_name_and_text_of_people(NAME, "ask ops", Claim::Mine)]
#[case::our_prefix("a0f1e2d3c4b5a69788796a5b4c3d2e1f-tcp-80-x", "", Claim::Stranger)]
#[case::our_name_in_a_description("shop", NAME, Claim::Stranger)]
fn whose_a_rule_is(#[case] name: &str, #[case] description: &str, #[case] claim: Claim) {
    let mut seen = seen();
    seen.rules = vec![rule("r", name, description, "ip")];
    let survey = Survey::of(&identity(&["c1", "c0"], true), &seen);
    let id = AddressId::parse("ip").unwrap();
    let found = survey.mine().chain(survey.others_on(&id)).next().unwrap();
    assert_eq!(found.claim, claim);
}

#[test]
fn an_unmarked_name_counts_as_left_by_an_older_controller_only_while_nothing_is_marked() {
    let identity = identity(&["c1"], true);
    let mut seen = seen();
    seen.rules = vec![rule("r1", NAME, "", "ip")];
    assert!(Survey::of(&identity, &seen).is_unadopted());
    seen.rules.push(rule("r2", NAME, &mark("c1", UID), "ip"));
    let survey = Survey::of(&identity, &seen);
    assert!(!survey.is_unadopted());
    assert_eq!(survey.mine().count(), 2);
}

#[test]
fn without_take_over_the_rules_of_an_older_controller_are_a_strangers() {
    let identity = identity(&["c1"], false);
    let mut seen = seen();
    seen.rules = vec![rule("r1", NAME, "", "ip")];
    let survey = Survey::of(&identity, &seen);
    assert_eq!((survey.is_unadopted(), survey.mine().count()), (false, 0));
}

#[rstest]
#[case::own_mark(&["c1/"], false, AddressWord::Own)]
#[case::own_mark_of_a_sibling(&["c1/other"], false, AddressWord::Own)]
#[case::own_mark_of_another_cluster(&["zz/"], false, AddressWord::Given)]
#[case::given(&["kcs1 cluster=c1 service=x address=given"], false, AddressWord::Given)]
#[case::given_beside_own(&["kcs1 cluster=c1 service=x address=given", "c1/"], false, AddressWord::Own)]
#[case::tag(&[], true, AddressWord::Own)]
#[case::nothing(&[], false, AddressWord::Given)]
fn whose_an_address_is(#[case] marks: &[&str], #[case] tagged: bool, #[case] word: AddressWord) {
    let identity = identity(&["c1"], true);
    let mut seen = seen();
    // `cluster/service` is an own mark of these, of our Service if it names none.
    let text = |short: &str| match short.split_once('/') {
        Some((cluster, "")) => mark(cluster, UID),
        Some((cluster, service)) => mark(cluster, service),
        None => short.to_owned(),
    };
    seen.rules = marks
        .iter()
        .enumerate()
        .map(|(i, short)| rule(&format!("r{i}"), "x", &text(short), "ip"))
        .collect();
    let mut ip = address("ip", None);
    if tagged {
        ip.tags = vec![crate::cloudstack::types::Tag::new("KCS-Cluster", "c1")];
    }
    seen.addresses = vec![ip];
    let id = AddressId::parse("ip").unwrap();
    assert_eq!(Survey::of(&identity, &seen).word(&identity, &seen, &id), word);
}

#[rstest]
#[case::nobody_asked(&[], None)]
#[case::unknown(&[JobView::Unknown], Some(0))]
#[case::failed_then_unknown(&[JobView::Failed("no".to_owned()), JobView::Unknown], Some(1))]
#[case::of_an_earlier_taking(&[succeeded("2031-04-01T00:00:00+0000"), JobView::Unknown], Some(1))]
fn the_first_unknown_job_is_the_next_one(#[case] views: &[JobView], #[case] next: Option<u32>) {
    let identity = identity(&["c1"], true);
    let mut seen = seen();
    let ip = address("ip", Some("2031-05-01T10:00:00+0000"));
    for (n, view) in (0..).zip(views) {
        seen.jobs.insert(job_id(&identity, &ip.id, n), view.clone());
    }
    let expected = match next {
        Some(n) => Proof::NotTaken(job_id(&identity, &ip.id, n)),
        None => Proof::Ask(job_id(&identity, &ip.id, 0)),
    };
    assert_eq!(jobs(&identity, &seen, &ip), expected);
}

fn succeeded(allocated: &str) -> JobView {
    JobView::Succeeded {
        address: AddressId::parse("ip").ok(),
        allocated: Timestamp::parse(allocated),
    }
}

#[test]
fn a_job_proves_an_address_only_as_it_is_taken_now_and_while_no_rule_is_on_it() {
    let identity = identity(&["c1"], true);
    let mut seen = seen();
    let ip = address("ip", Some("2031-05-01T10:00:00+0000"));
    seen.jobs.insert(
        job_id(&identity, &ip.id, 0),
        succeeded("2031-05-01T10:00:00+0000"),
    );
    seen.addresses = vec![ip.clone()];
    assert_eq!(jobs(&identity, &seen, &ip), Proof::Taken);
    assert_eq!(
        Survey::of(&identity, &seen).word(&identity, &seen, &ip.id),
        AddressWord::Own
    );
    seen.rules = vec![rule("r", "by hand", "", "ip")];
    assert_eq!(
        Survey::of(&identity, &seen).word(&identity, &seen, &ip.id),
        AddressWord::Given
    );
}

#[test]
fn jobs_of_other_services_and_clusters_have_other_ids() {
    let ip = AddressId::parse("ip").unwrap();
    let mut other = identity(&["c1"], true);
    other.service.uid = ServiceUid::parse("other").unwrap();
    let ids: BTreeSet<String> = [identity(&["c1"], true), identity(&["c2"], true), other]
        .iter()
        .flat_map(|identity| [job_id(identity, &ip, 0), job_id(identity, &ip, 1)])
        .map(|id| id.to_string())
        .collect();
    assert_eq!(ids.len(), 6);
}

#[rstest]
#[case::isolated(json!({ "service": [{"name": "Firewall"}, {"name": "Lb"}] }), "firewall")]
#[case::custom_list(json!({ "service": [{"name": "NetworkACL"}], "aclid": "l", "aclname": "mine" }), "acl")]
#[case::default_list(json!({ "service": [{"name": "NetworkACL"}], "aclid": "l", "aclname": "default_deny" }), "none")]
#[case::tier_with_firewall(json!({ "service": [{"name": "NetworkACL"}, {"name": "Firewall"}], "aclid": "l" }), "firewall")]
#[case::neither(json!({ "service": [{"name": "Lb"}] }), "none")]
fn what_filters_in_a_network(#[case] value: Value, #[case] expected: &str) {
    let found = match filter(&network(&value)) {
        Filter::Firewall => "firewall",
        Filter::Acl(_) => "acl",
        Filter::None => "none",
    };
    assert_eq!(found, expected);
}

#[rstest]
#[case::its_own(json!({}), json!({}), true)]
#[case::of_another_network(json!({}), json!({ "associatednetworkid": "other" }), false)]
#[case::static_nat(json!({}), json!({ "isstaticnat": true }), false)]
#[case::source_nat_of_an_isolated_network(json!({}), json!({ "issourcenat": true }), true)]
#[case::of_the_vpc(json!({ "vpcid": "v" }), json!({ "vpcid": "v", "associatednetworkid": null }), true)]
#[case::source_nat_of_the_vpc(json!({ "vpcid": "v" }), json!({ "vpcid": "v", "issourcenat": true }), false)]
#[case::of_another_tier(json!({ "vpcid": "v" }), json!({ "vpcid": "v", "associatednetworkid": "other" }), false)]
#[case::of_another_vpc(json!({ "vpcid": "v" }), json!({ "vpcid": "w", "associatednetworkid": null }), false)]
fn which_addresses_a_network_may_use(#[case] of: Value, #[case] edit: Value, #[case] fine: bool) {
    let mut value =
        json!({ "id": "ip", "ipaddress": "192.0.2.7", "state": "Allocated", "associatednetworkid": "net" });
    for (key, edited) in edit.as_object().unwrap() {
        value[key] = edited.clone();
    }
    assert_eq!(may_use(&network(&of), &entity(&value)).is_ok(), fine);
}

#[rstest]
#[case::no_balancer(json!({ "service": [{"name": "Firewall"}] }), false, false)]
#[case::tcp(json!({ "service": [{"name": "Lb"}] }), false, true)]
#[case::udp_on_a_router(json!({ "service": [lb("VirtualRouter")] }), true, false)]
#[case::udp_on_who_knows_what(json!({ "service": [{"name": "Lb"}] }), true, false)]
#[case::udp_elsewhere(json!({ "service": [lb("Netscaler")] }), true, true)]
fn what_a_network_can_serve(#[case] value: Value, #[case] udp: bool, #[case] fine: bool) {
    let protocol = if udp {
        v1::wish_port::Protocol::Udp
    } else {
        v1::wish_port::Protocol::Tcp
    };
    let wish = wish(&[], |wish| wish.ports[0].protocol = protocol.into());
    let seen = seen();
    let survey = Survey::of(&identity(&["c1"], true), &seen);
    let checked = check(&network(&value), &wish, Features::NEWEST, &survey);
    assert_eq!(checked.is_ok(), fine);
}

#[rstest]
#[case::a_router("VirtualRouter", false, Some("ports[http].port"))]
#[case::the_router_of_a_vpc("VpcVirtualRouter", false, Some("ports[http].port"))]
#[case::an_appliance("Netscaler", false, None)]
#[case::a_router_that_serves_it_already("VirtualRouter", true, None)]
fn the_port_of_the_routers_statistics_is_refused(
    #[case] provider: &str,
    #[case] serves: bool,
    #[case] field: Option<&str>,
) {
    let mut seen = seen();
    if serves {
        let mut present = rule("r", "x", &mark("c1", UID), "ip");
        present.public_port = 8081;
        seen.rules = vec![present];
    }
    let survey = Survey::of(&identity(&["c1"], true), &seen);
    let wish = wish(&[], |wish| wish.ports[0].port = 8081);
    let network = network(&json!({ "service": [lb(provider)] }));
    let fault = check(&network, &wish, Features::NEWEST, &survey).err();
    assert_eq!(fault.and_then(|fault| fault.field).as_deref(), field);
}

#[rstest]
#[case::firewall_on_an_old_server(json!({ "service": [{"name": "Lb"}, {"name": "Firewall"}] }), false, 1, None)]
#[case::firewall_and_a_long_list(json!({ "service": [{"name": "Lb"}, {"name": "Firewall"}] }), true, 60, None)]
#[case::tier_on_a_new_server(json!({ "service": [{"name": "Lb"}, {"name": "NetworkACL"}], "vpcid": "v" }), true, 1, None)]
#[case::tier_on_an_old_server(
    json!({ "service": [{"name": "Lb"}, {"name": "NetworkACL"}], "vpcid": "v" }), false, 1, Some("SOURCES_NOT_ENFORCEABLE")
)]
#[case::tier_on_an_old_server_for_everybody(
    json!({ "service": [{"name": "Lb"}, {"name": "NetworkACL"}], "vpcid": "v" }), false, 0, None
)]
#[case::tier_and_a_long_list(
    json!({ "service": [{"name": "Lb"}, {"name": "NetworkACL"}], "vpcid": "v" }), true, 60, Some("SOURCES_TOO_LONG")
)]
#[case::no_firewall_on_an_old_server(
    json!({ "service": [{"name": "Lb"}] }), false, 1, Some("SOURCES_NOT_ENFORCEABLE")
)]
#[case::no_firewall_and_a_long_list(json!({ "service": [{"name": "Lb"}] }), true, 60, Some("SOURCES_TOO_LONG"))]
fn sources_that_no_layer_would_hold_are_refused(
    #[case] of: Value,
    #[case] sources_on_create: bool,
    #[case] count: u8,
    #[case] reason: Option<&str>,
) {
    let seen = seen();
    let survey = Survey::of(&identity(&["c1"], true), &seen);
    let wish = wish(&[], |wish| {
        wish.sources = (0..count).map(|n| format!("203.0.113.{n}/32")).collect();
    });
    let features = Features {
        sources_on_create,
        ..Features::NEWEST
    };
    let fault = check(&network(&of), &wish, features, &survey).err();
    let found = fault
        .as_ref()
        .map(|fault| (&*fault.reason, fault.field.as_deref()));
    assert_eq!(found, reason.map(|reason| (reason, Some("sources"))));
}

fn lb(provider: &str) -> Value {
    json!({
        "name": "Lb", "provider": [{ "name": provider }],
        "capability": [{ "name": "SupportedProtocols", "value": "tcp, udp" }],
    })
}

#[rstest]
#[case::shared_by_most(&["a b", "B"], "", Some("b"))]
#[case::default_interface_first(&["a B", "a B"], "", Some("b"))]
#[case::named(&["A"], "net-b", Some("b"))]
#[case::no_machine(&[], "", None)]
fn which_network_is_balanced_in(
    // Networks of each machine, the default one in capitals.
    #[case] machines: &[&str],
    #[case] asked: &str,
    #[case] chosen: Option<&str>,
) {
    let identity = identity(&["c1"], true);
    let mut seen = seen();
    let of =
        |id: &str| network(&json!({ "id": id, "name": format!("net-{id}"), "service": [{"name": "Lb"}] }));
    seen.networks = vec![of("a"), of("b")];
    let ids: Vec<String> = (0..machines.len()).map(|number| format!("m{number}")).collect();
    for (id, networks) in ids.iter().zip(machines) {
        let nics: Vec<(String, bool)> = networks
            .split(' ')
            .map(|name| (name.to_lowercase(), name.chars().all(char::is_uppercase)))
            .collect();
        let nics: Vec<(&str, bool)> = nics
            .iter()
            .map(|(name, default)| (name.as_str(), *default))
            .collect();
        let machine = machine(id, &nics, "Running");
        seen.machines.insert(machine.id.clone(), machine);
    }
    let ids: Vec<&str> = ids.iter().map(String::as_str).collect();
    let wish = wish(&ids, |wish| wish.network = asked.to_owned());
    let survey = Survey::of(&identity, &seen);
    let found = choose(&wish, &Scope::default(), &survey, &seen).unwrap();
    assert_eq!(found.map(|network| network.id.as_str()), chosen);
}

#[test]
fn a_network_outside_the_tenant_is_refused() {
    let identity = identity(&["c1"], true);
    let mut seen = seen();
    seen.networks = vec![network(&json!({ "name": "secret" }))];
    let scope = Scope {
        networks: vec![NameOrId::new("public")],
        ..Scope::default()
    };
    let wish = wish(&[], |wish| wish.network = "secret".to_owned());
    let fault = choose(&wish, &scope, &Survey::of(&identity, &seen), &seen).unwrap_err();
    assert_eq!(&*fault.reason, "NETWORK_NOT_ALLOWED");
}

// Nodes: a machine, `?` for an unresolved one, `-` for a machine that is proved gone.
#[rstest]
#[case::one_more("m1 m2", "m1", "m2", "")]
#[case::one_less("m1", "m1 m2", "", "m2")]
#[case::one_unresolved("m1 ?n2", "m1 m2", "", "")]
#[case::one_unresolved_and_one_gone("m1 ?n2 -m3", "m2 m3", "m1", "m3")]
#[case::nobody("", "m1", "", "")]
#[case::only_gone("-m1", "m1 m2", "", "m1")]
#[case::not_visible("m1 m9", "m1 m9", "", "")]
#[case::elsewhere("m1 far", "m1", "", "")]
fn what_is_done_about_members(
    #[case] nodes: &str,
    #[case] present: &str,
    #[case] missing: &str,
    #[case] surplus: &str,
) {
    use v1::wish_member::Machine as Of;
    let mut seen = seen();
    let here = ["m1", "m2", "m3"].map(|id| machine(id, &[("net", true)], "Running"));
    let far = machine("far", &[("other", true)], "Running");
    seen.machines = here
        .into_iter()
        .chain([far])
        .map(|machine| (machine.id.clone(), machine))
        .collect();
    let wish = wish(&[], |wish| {
        wish.members = nodes
            .split_whitespace()
            .map(|node| match (node.strip_prefix('?'), node.strip_prefix('-')) {
                (Some(name), _) => (name, Of::Unresolved(true)),
                (None, Some(id)) => (id, Of::GoneMachineId(id.to_owned())),
                (None, None) => (node, Of::MachineId(node.to_owned())),
            })
            .map(|(name, of)| v1::WishMember {
                node_name: name.to_owned(),
                machine: Some(of),
            })
            .collect();
    });
    let (wanted, _) = WantedMembers::of(&wish, &Scope::default(), &network(&json!({})), &seen);
    let ids = |list: &str| {
        list.split_whitespace()
            .map(|id| MachineId::parse(id).unwrap())
            .collect::<Vec<_>>()
    };
    let difference = wanted.difference(&ids(present).into_iter().collect());
    assert_eq!(
        (difference.missing, difference.surplus),
        (ids(missing), ids(surplus))
    );
}

#[rstest]
#[case::running(&["m1"], "Running", true)]
#[case::stopped(&["m1"], "Stopped", false)]
#[case::one_stays(&["m1", "m2"], "Running", false)]
#[case::empty(&[], "Running", false)]
fn running_members_that_nobody_claims_are_not_all_replaced(
    #[case] present: &[&str],
    #[case] state: &str,
    #[case] held: bool,
) {
    let mut seen = seen();
    let all = [
        machine("m1", &[("net", true)], state),
        machine("m2", &[("net", true)], "Running"),
    ];
    seen.machines = all
        .into_iter()
        .map(|machine| (machine.id.clone(), machine))
        .collect();
    let (wanted, _) = WantedMembers::of(
        &wish(&["m2"], |_| {}),
        &Scope::default(),
        &network(&json!({})),
        &seen,
    );
    let present: BTreeSet<MachineId> = present.iter().map(|id| MachineId::parse(id).unwrap()).collect();
    assert_eq!(wanted.replaced_wholesale(&present, &seen).is_some(), held);
}

#[test]
fn a_release_takes_with_it_what_was_on_the_address_and_nothing_else() {
    let mut seen = seen();
    seen.rules = vec![rule("r1", "x", "", "ip"), rule("r2", "x", "", "other")];
    seen.addresses = vec![address("ip", None), address("other", None)];
    seen.apply(&Change::AddressGone(AddressId::parse("ip").unwrap()));
    assert_eq!(
        seen.rules.iter().map(|rule| rule.id.as_str()).collect::<Vec<_>>(),
        ["r2"]
    );
    assert_eq!(seen.addresses.len(), 1);
}

#[test]
fn members_that_are_read_leave_the_state_of_a_rule_and_members_that_change_set_it() {
    let mut seen = seen();
    seen.rules = vec![rule("r1", "x", "", "ip")];
    let id = seen.rules[0].id.clone();
    seen.apply(&Change::Members(id.clone(), BTreeSet::new()));
    assert_eq!(seen.rules[0].state, RuleState::Add);
    seen.apply(&Change::Members(
        id,
        BTreeSet::from([MachineId::parse("m1").unwrap()]),
    ));
    assert_eq!(seen.rules[0].state, RuleState::Active);
}
