//! Taken over from the Go program: rows 57, 71 to 73, 76.

use super::super::*;
use super::world::{Svc, World};

#[test]
fn case_57_a_recreated_service_keeps_the_address_of_its_name() {
    let mut world = World::new()
        .entry("10.0.0.1", "default/w")
        .recorded(&["uid1 10.0.0.1 default/w"]);
    world.services.push(Svc::new("w").uid("uid-w"));
    assert_eq!(
        world.plan(false),
        Err(ListAgain),
        "the list may be older than the record"
    );
    world.run();
    assert_eq!(world.entries(), [".1: default/w"]);
    assert_eq!(world.read()[0].uid, "uid-w");
    assert_eq!(world.shown("w").unwrap(), "10.0.0.1");
}

#[test]
fn case_71_records_of_the_first_version_get_their_names() {
    let mut world = World::new()
        .entry("10.0.0.1", "default/old")
        .records(r#"{"services":[{"uid":"uid-old","ip":"10.0.0.1"}]}"#)
        .with(Svc::new("old").status("10.0.0.1"))
        .with(Svc::new("new"));
    world.run();
    assert_eq!(world.entries(), [".1: default/old", ".2: default/new"]);
    assert_eq!(world.read()[0].name, "old");
    assert_eq!(world.reasons("old"), Vec::<&str>::new());
}

#[test]
fn a_nameless_record_moves_to_the_service_that_its_entry_names() {
    let mut world = World::new()
        .entry("10.0.0.1", "default/old")
        .records(r#"{"services":[{"uid":"gone","ip":"10.0.0.1"}]}"#)
        .with(Svc::new("old"));
    world.run();
    assert_eq!(world.read()[0].uid, "uid-old");
    assert_eq!(world.entries(), [".1: default/old"]);
}

#[test]
fn case_72_an_entry_without_names_is_put_right() {
    let mut world = World::new()
        .entry("10.0.0.1", "/")
        .records(r#"{"services":[{"uid":"uid-old","ip":"10.0.0.1","serviceNamespace":"","serviceName":""}]}"#)
        .with(Svc::new("old").status("10.0.0.1"));
    world.run();
    assert_eq!(world.entries(), [".1: default/old"]);
    assert_eq!(world.reasons("old"), ["ConfigMapRepaired"]);
}

fn stale() -> World {
    World::new()
        .entry("10.0.0.1", "default/a")
        .entry("10.0.0.4", "default/a")
        .records(r#"{"services":[{"uid":"uid-a","ip":"10.0.0.4"}]}"#)
        .with(Svc::new("a").status("10.0.0.4"))
        .with(Svc::new("b"))
}

#[test]
fn case_73_a_stale_entry_is_kept_reported_and_not_given_out() {
    let mut world = stale();
    world.run();
    assert_eq!(
        world.entries(),
        [".1: default/a", ".2: default/b", ".4: default/a"]
    );
    assert_eq!(world.reasons("a"), ["StaleEntry"]);
    assert_eq!(world.read()[0].ip, "10.0.0.4");
}

#[test]
fn the_prune_switch_removes_a_stale_entry() {
    let mut world = stale();
    world.rules.prune_stale = true;
    world.run();
    assert_eq!(
        world.entries(),
        [".2: default/b", ".4: default/a"],
        "the address is free from the next write on"
    );
}

#[test]
fn case_76_a_record_of_no_service_is_released() {
    let mut world = World::new()
        .entry("10.0.0.1", "default/gone")
        .recorded(&["uid-gone 10.0.0.1 default/gone"])
        .entry("10.0.0.2", "x/y");
    world.run();
    assert_eq!(world.entries(), [".2: x/y"]);
    assert!(matches!(
        world.last.as_ref().unwrap().findings[..],
        [Finding::Released(_)]
    ));
}
