//! Requested addresses and forward methods: rows 21 to 34, 35 to 47.

use rstest::rstest;
use serde_json::json;

use super::super::*;
use super::world::{Svc, World};

fn refused(world: &mut World, reason: &str) {
    let before = world.entries();
    world.run();
    assert_eq!(world.entries(), before);
    assert_eq!(world.shown("x"), None);
    assert_eq!(world.reasons("x"), [reason], "{}", world.texts("x"));
}

#[test]
fn case_21_an_unreadable_request_harms_nobody() {
    let mut world = World::new()
        .serving("b", "10.0.0.1")
        .with(Svc::new("x").pinned("not-an-ip"));
    refused(&mut world, "InvalidLoadBalancerIP");
    assert_eq!(world.shown("b").unwrap(), "10.0.0.1");
}

#[test]
fn case_22_an_unreadable_request_leaves_the_address_that_is_there() {
    let mut world = World::new().serving("a", "10.0.0.1");
    world.change("a", |a| a.pinned("nope"));
    world.run();
    assert_eq!(world.entries(), [".1: default/a"]);
    assert_eq!(world.shown("a").unwrap(), "10.0.0.1");
    assert_eq!(world.reasons("a"), ["InvalidLoadBalancerIP"]);
}

#[rstest]
#[case::case_23_ipv6("fd00::5", "UnsupportedIPFamily")]
#[case::case_24_mapped("::ffff:10.0.0.1", "UnsupportedIPFamily")]
#[case::case_26_leading_zero("010.0.0.1", "InvalidLoadBalancerIP")]
#[case::case_27_unspecified("0.0.0.0", "InvalidLoadBalancerIP")]
#[case::case_27_multicast("224.0.0.1", "InvalidLoadBalancerIP")]
#[case::case_27_loopback("127.0.0.1", "InvalidLoadBalancerIP")]
#[case::case_27_broadcast("255.255.255.255", "InvalidLoadBalancerIP")]
#[case::the_network_address_of_the_pool("10.0.0.0", "InvalidLoadBalancerIP")]
fn an_impossible_address_is_refused(#[case] address: &str, #[case] reason: &str) {
    refused(&mut World::new().with(Svc::new("x").pinned(address)), reason);
}

#[test]
fn case_25_blanks_around_a_requested_address_are_ignored() {
    let mut world = World::new().with(Svc::new("x").pinned(" 10.0.0.1 "));
    world.run();
    assert_eq!(world.entries(), [".1: default/x"]);
}

#[test]
fn case_28_the_address_of_a_node_is_refused() {
    let mut world = World::new().with(Svc::new("x").pinned("10.0.0.3"));
    world.nodes.insert("10.0.0.3".parse().unwrap());
    refused(&mut world, "InvalidLoadBalancerIP");
}

#[test]
fn case_29_an_address_in_use_is_refused_and_its_owner_named() {
    let mut world = World::new()
        .serving("auto", "10.0.0.1")
        .with(Svc::new("x").pinned("10.0.0.1"));
    refused(&mut world, "AddressInUse");
    assert!(world.texts("x").contains("default/auto"));
    assert_eq!(world.shown("auto").unwrap(), "10.0.0.1");
}

#[test]
fn an_address_with_an_entry_made_by_hand_is_refused() {
    let mut world = World::new()
        .entry("10.0.0.5", "infra/hand")
        .with(Svc::new("x").pinned("10.0.0.5"));
    refused(&mut world, "AddressInUse");
}

#[test]
fn an_address_in_the_status_of_a_foreign_service_is_refused() {
    let foreign = Svc::new("other")
        .status("10.0.0.5")
        .standing(super::super::super::claim::Standing::Elsewhere);
    let mut world = World::new().with(foreign).with(Svc::new("x").pinned("10.0.0.5"));
    refused(&mut world, "AddressInUse");
    assert!(world.texts("x").contains("default/other"));
}

#[test]
fn case_30_a_new_request_moves_the_service_in_one_write() {
    let mut world = World::new().serving("a", "10.0.0.1");
    world.change("a", |a| a.pinned("10.0.0.4"));
    world.run();
    assert_eq!(world.entries(), [".4: default/a"]);
    assert_eq!(world.shown("a").unwrap(), "10.0.0.4");
}

#[test]
fn case_31_a_request_for_a_used_address_keeps_the_old_one() {
    let mut world = World::new().serving("a", "10.0.0.1").serving("b", "10.0.0.4");
    world.change("a", |a| a.pinned("10.0.0.4"));
    world.run();
    assert_eq!(world.entries(), [".1: default/a", ".4: default/b"]);
    assert_eq!(world.shown("a").unwrap(), "10.0.0.1");
    assert_eq!(world.reasons("a"), ["AddressInUse"]);
}

#[test]
fn case_32_a_removed_request_keeps_the_address() {
    let mut world = World::new().with(Svc::new("a").pinned("10.0.0.4"));
    world.run();
    world.change("a", |a| a.spec("loadBalancerIP", json!("")));
    assert_eq!(world.run().patch, None);
    assert_eq!(world.shown("a").unwrap(), "10.0.0.4");
}

#[test]
fn case_33_a_request_for_the_present_address_writes_nothing() {
    let mut world = World::new().with(Svc::new("a"));
    world.run();
    world.change("a", |a| a.pinned("10.0.0.1"));
    assert_eq!(world.run().patch, None);
}

#[test]
fn case_34_two_different_requests_are_refused() {
    refused(
        &mut World::new().with(Svc::new("x").wants("10.0.0.2").pinned("10.0.0.3")),
        "InvalidLoadBalancerIP",
    );
}

#[test]
fn the_annotation_alone_requests_an_address() {
    let mut world = World::new().with(Svc::new("a").wants("10.0.0.2"));
    world.run();
    assert_eq!(world.entries(), [".2: default/a"]);
}

#[test]
fn case_35_the_default_method_is_written_and_recorded() {
    let mut world = World::new().default_method("DR").with(Svc::new("a").port(80));
    world.run();
    assert_eq!(world.entries(), [".1: default/a:DR"]);
    assert_eq!(world.read()[0].method, "DR");
}

#[rstest]
#[case::case_36_annotation("", "DR", ".1: default/d:DR")]
#[case::case_39_explicit_none("DR", "", ".1: default/d")]
#[case::case_42_small_letters("", "dr", ".1: default/d:DR")]
#[case::explicit_nat("DR", "NAT", ".1: default/d:NAT")]
fn a_method_is_there_with_the_first_write(#[case] default: &str, #[case] method: &str, #[case] entry: &str) {
    let mut world = World::new()
        .default_method(default)
        .with(Svc::new("d").method(method));
    world.run();
    assert_eq!(world.entries(), [entry]);
}

#[test]
fn case_37_a_changed_method_keeps_the_address() {
    let mut world = World::new().serving("d", "10.0.0.3");
    world.change("d", |d| d.method("DR"));
    world.run();
    assert_eq!(world.entries(), [".3: default/d:DR"]);
}

#[test]
fn case_38_a_removed_annotation_removes_the_method() {
    let mut world = World::new()
        .entry("10.0.0.1", "default/d:DR")
        .recorded(&["uid-d 10.0.0.1 default/d:DR"]);
    world.services.push(Svc::new("d").status("10.0.0.1"));
    world.run();
    assert_eq!(world.entries(), [".1: default/d"]);
    assert_eq!(world.reasons("d"), Vec::<&str>::new());
}

#[test]
fn case_40_an_unknown_method_changes_nothing() {
    let mut world = World::new().serving("e", "10.0.0.1");
    world.change("e", |e| e.method("foo/bar"));
    world.run();
    assert_eq!(world.entries(), [".1: default/e"]);
    assert_eq!(world.reasons("e"), ["InvalidForwardMethod"]);
}

#[test]
fn case_41_an_unknown_method_gets_no_address() {
    refused(
        &mut World::new().with(Svc::new("x").method("foo")),
        "InvalidForwardMethod",
    );
}

#[test]
fn a_forbidden_method_gets_no_address() {
    let mut world = World::new().with(Svc::new("x").method("PROXY"));
    world.rules.forbidden.insert(Named::Proxy);
    refused(&mut world, "InvalidForwardMethod");
}

#[test]
fn case_43_proxy_is_published_with_the_mode_proxy() {
    let mut world = World::new().with(Svc::new("e").method("PROXY"));
    world.run();
    assert_eq!(world.entries(), [".1: default/e:PROXY"]);
    assert!(matches!(
        world.outcome("e"),
        Outcome::Serve {
            mode: IpMode::Proxy,
            ..
        }
    ));
}

#[test]
fn case_44_vip_is_an_empty_entry_with_the_mode_vip() {
    let mut world = World::new().with(Svc::new("e").method("VIP"));
    world.run();
    assert_eq!(world.entries(), [".1: "]);
    assert_eq!(world.read()[0].method, "VIP");
    assert!(matches!(
        world.outcome("e"),
        Outcome::Serve {
            mode: IpMode::Vip,
            ..
        }
    ));
}

#[test]
fn the_configured_mode_wins() {
    let mut world = World::new().with(Svc::new("e"));
    world.rules.ip_mode = Some(IpMode::Proxy);
    world.run();
    assert!(matches!(
        world.outcome("e"),
        Outcome::Serve {
            mode: IpMode::Proxy,
            ..
        }
    ));
}

#[test]
fn case_45_a_move_keeps_the_method() {
    let mut world = World::new()
        .entry("10.0.0.1", "default/d:DR")
        .recorded(&["uid-d 10.0.0.1 default/d:DR"]);
    world
        .services
        .push(Svc::new("d").status("10.0.0.1").method("DR").pinned("10.0.0.4"));
    world.run();
    assert_eq!(world.entries(), [".4: default/d:DR"]);
}

#[test]
fn case_46_a_changed_default_reaches_existing_services() {
    let mut world = World::new().default_method("DR").serving("x", "10.0.0.1");
    world.run();
    assert_eq!(world.entries(), [".1: default/x:DR"]);
    assert_eq!(world.shown("x").unwrap(), "10.0.0.1");
}

#[test]
fn case_47_direct_routing_to_another_port_is_a_warning() {
    let mut world = World::new().with(Svc::new("d").method("DR"));
    world.run();
    assert_eq!(world.entries(), [".1: default/d:DR"]);
    assert_eq!(world.reasons("d"), ["IPAllocated", "KeepalivedLimitation"]);
}
