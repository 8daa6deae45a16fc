//! Several Services on one address: rows 48 to 52, 74.

use super::super::super::claim::Standing;
use super::world::{Svc, World};

fn sharing(name: &str, port: u16) -> Svc {
    Svc::new(name)
        .pinned("10.9.9.9")
        .key("k")
        .method("VIP")
        .port(port)
}

#[test]
fn case_48_without_an_agreement_the_first_owner_keeps_the_address() {
    let mut world = World::new().with(Svc::new("p").pinned("10.9.9.9"));
    world.run();
    world.services.push(Svc::new("other/q").pinned("10.9.9.9"));
    world.run();
    assert_eq!(world.entries(), ["10.9.9.9: default/p"]);
    assert_eq!(world.reasons("q"), ["AddressInUse"]);
    assert!(world.texts("q").contains("default/p"));
}

#[test]
fn case_49_two_services_share_by_key() {
    let mut world = World::new().with(sharing("p", 80)).with(sharing("other/q", 443));
    world.run();
    assert_eq!(world.entries(), ["10.9.9.9: "]);
    assert_eq!(world.read().len(), 2);
    assert_eq!(
        (world.shown("p").unwrap(), world.shown("q").unwrap()),
        ("10.9.9.9".into(), "10.9.9.9".into())
    );
    assert_eq!(world.reasons("q"), ["IPAllocated"]);
}

#[test]
fn case_50_a_port_can_be_served_once_only() {
    let mut world = World::new()
        .with(sharing("p", 80).created(1))
        .with(sharing("q", 80).created(2));
    world.run();
    assert_eq!(world.shown("q"), None);
    assert!(
        world
            .texts("q")
            .contains("default/p, and port tcp/80 is taken there"),
        "{}",
        world.texts("q")
    );
}

#[test]
fn another_key_or_another_method_does_not_share() {
    let mut world = World::new()
        .with(sharing("p", 80).created(1))
        .with(sharing("q", 443).key("other").created(2))
        .with(sharing("r", 444).method("NAT").created(3));
    world.run();
    assert_eq!(world.entries(), ["10.9.9.9: "]);
    assert_eq!(world.read().len(), 1);
    assert_eq!(
        (world.reasons("q"), world.reasons("r")),
        (vec!["AddressInUse"], vec!["AddressInUse"])
    );
}

#[test]
fn a_key_without_an_address_finds_the_shared_one() {
    let auto = |name: &str, port| Svc::new(name).key("k").method("VIP").port(port);
    let mut world = World::new()
        .with(auto("p", 80).created(1))
        .with(auto("q", 443).created(2))
        .with(auto("r", 443).created(3));
    world.run();
    assert_eq!(world.shown("p"), world.shown("q"));
    assert_eq!(
        world.shown("r").unwrap(),
        "10.0.0.2",
        "its port is taken on the shared address"
    );
}

#[test]
fn a_service_that_shares_keeps_the_method_that_makes_it_possible() {
    let mut world = World::new().with(sharing("p", 80)).with(sharing("q", 443));
    world.run();
    world.change("q", |q| q.method("NAT"));
    world.run();
    assert_eq!(world.entries(), ["10.9.9.9: "]);
    assert!(world.texts("q").contains("shared with default/p"));
}

fn grandfathered() -> World {
    World::new()
        .entry("10.0.0.1", "default/q")
        .recorded(&["uid-p 10.0.0.1 default/p", "uid-q 10.0.0.1 default/q"])
        .with(Svc::new("p").status("10.0.0.1").port(80))
        .with(Svc::new("q").status("10.0.0.1").port(443))
}

#[test]
fn case_51_the_entry_is_pointed_to_the_one_that_remains() {
    let mut world = grandfathered();
    world.change("q", |q| q.standing(Standing::Leaving));
    world.run();
    assert_eq!(world.entries(), [".1: default/p"]);
    assert_eq!(world.shown("p").unwrap(), "10.0.0.1");
}

#[test]
fn case_52_the_entry_stays_when_another_one_goes() {
    let mut world = grandfathered();
    world.change("p", |p| p.standing(Standing::Leaving));
    world.run();
    assert_eq!(world.entries(), [".1: default/q"]);
}

#[test]
fn case_74_two_services_on_one_address_both_keep_it() {
    let mut world = grandfathered();
    world.run();
    assert_eq!(world.entries(), [".1: default/q"]);
    assert_eq!(world.read().len(), 2);
    assert_eq!(
        (world.shown("p").unwrap(), world.shown("q").unwrap()),
        ("10.0.0.1".into(), "10.0.0.1".into())
    );
    assert_eq!(
        (world.reasons("p"), world.reasons("q")),
        (vec!["AddressInUse"], vec![])
    );
}

#[test]
fn a_shared_address_is_rebuilt_from_statuses() {
    let mut world = World::new().with(sharing("p", 80)).with(sharing("q", 443));
    world.run();
    world.config_map.records = None;
    world.run();
    assert_eq!(world.entries(), ["10.9.9.9: "]);
    assert_eq!(world.read().len(), 2);
}
