//! Which network serves, and what it can do.

use super::*;

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
