//! Damage and drift: rows 59 to 68.

use super::super::*;
use super::world::{Svc, World};

#[test]
fn case_59_a_lost_config_map_is_rebuilt_from_statuses() {
    let mut world = World::new()
        .with(Svc::new("b").status("10.0.0.2"))
        .with(Svc::new("a").status("10.0.0.5"))
        .with(Svc::new("new"));
    world.config_map = Observed::default();
    let plan = world.run();
    assert!(plan.create);
    assert_eq!(
        world.entries(),
        [".1: default/new", ".2: default/b", ".5: default/a"]
    );
}

#[test]
fn case_60_a_lost_record_list_is_rebuilt() {
    let mut world = World::new()
        .entry("10.0.0.3", "default/a")
        .with(Svc::new("a").status("10.0.0.3"));
    world.run();
    assert_eq!(world.read()[0].ip, "10.0.0.3");
    assert_eq!(world.reasons("a"), ["IPAdopted"]);
}

#[test]
fn case_61_a_removed_entry_comes_back() {
    let mut world = World::new().serving("a", "10.0.0.3");
    world.config_map.data.clear();
    world.run();
    assert_eq!(world.entries(), [".3: default/a"]);
    assert_eq!(world.reasons("a"), ["ConfigMapRepaired"]);
}

#[test]
fn case_62_an_edited_entry_is_put_right_unless_somebody_keeps_fighting() {
    let mut world = World::new().serving("a", "10.0.0.3").entry("10.0.0.3", "x/y");
    let mut fought = world.clone();
    world.run();
    assert_eq!(world.entries(), [".3: default/a"]);
    assert_eq!(world.reasons("a"), ["ConfigMapRepaired"]);
    fought.contested.insert("10.0.0.3".into());
    fought.run();
    assert_eq!(fought.entries(), [".3: x/y"]);
    assert_eq!(fought.reasons("a"), ["ConfigMapContested"]);
}

#[test]
fn case_63_a_broken_record_list_is_rebuilt_and_kept_aside() {
    let mut world = World::new()
        .entry("10.0.0.1", "default/a")
        .records("{")
        .with(Svc::new("a").status("10.0.0.1"))
        .with(Svc::new("b"));
    world.run();
    assert_eq!(world.entries(), [".1: default/a", ".2: default/b"]);
    assert!(matches!(
        world.last.as_ref().unwrap().findings[..],
        [Finding::Damaged(_)]
    ));
    let state = super::super::super::document::State::decode(world.config_map.state.as_deref().unwrap());
    assert_eq!(state.damaged, "{");
    assert!(world.reasons("a").contains(&"ConfigMapDamaged"));
    world.run();
    let state = super::super::super::document::State::decode(world.config_map.state.as_deref().unwrap());
    assert_eq!(state.damaged, "{", "the text stays until a person removes it");
}

#[test]
fn case_64_a_null_list_with_unknown_members_is_empty() {
    let mut world = World::new()
        .records(r#"{"services":null,"x":1}"#)
        .with(Svc::new("x"));
    world.run();
    assert_eq!(world.entries(), [".1: default/x"]);
}

#[test]
fn case_65_unknown_members_of_records_and_other_annotations_do_not_matter() {
    let records = r#"{"services":[{"uid":"uid-a","ip":"10.0.0.1","serviceNamespace":"default","serviceName":"a","color":"red"}]}"#;
    let mut world = World::new()
        .entry("10.0.0.1", "default/a")
        .records(records)
        .with(Svc::new("a").status("10.0.0.1"))
        .with(Svc::new("b"));
    // `run` refuses a patch that touches any annotation that is not ours.
    world.run();
    assert_eq!(world.entries(), [".1: default/a", ".2: default/b"]);
}

#[test]
fn case_66_foreign_entries_are_kept_byte_for_byte() {
    let mut world = World::new()
        .entry("10.0.0.99", "")
        .entry("10.0.0.98", "x/y")
        .entry("some.key", " odd\n")
        .with(Svc::new("a"));
    world.run();
    assert_eq!(
        world.entries(),
        [".1: default/a", ".98: x/y", ".99: ", "some.key:  odd\n"]
    );
}

#[test]
fn case_67_an_entry_that_names_the_service_is_adopted() {
    let mut world = World::new()
        .entry("10.0.0.2", "default/a")
        .entry("10.0.0.9", "x/y")
        .with(Svc::new("a").status("10.0.0.2"));
    world.run();
    assert_eq!(world.entries(), [".2: default/a", ".9: x/y"]);
    assert_eq!(world.read()[0].ip, "10.0.0.2");
}

#[test]
fn an_entry_that_names_a_service_without_status_is_adopted_with_its_method() {
    let mut world = World::new()
        .default_method("NAT")
        .entry("10.0.0.2", "default/a:DR")
        .with(Svc::new("a").method("DR").port(80));
    world.run();
    assert_eq!(world.entries(), [".2: default/a:DR"]);
    assert_eq!(world.shown("a").unwrap(), "10.0.0.2");
}

#[test]
fn the_address_of_a_node_in_a_status_is_not_adopted() {
    let mut world = World::new().with(Svc::new("a").status("10.0.0.3"));
    world.nodes.insert("10.0.0.3".parse().unwrap());
    world.run();
    assert_eq!(world.shown("a").unwrap(), "10.0.0.1");
}

#[test]
fn case_68_of_two_records_the_one_in_the_status_stays() {
    let mut world = World::new()
        .entry("10.0.0.1", "default/a")
        .entry("10.0.0.3", "default/a")
        .recorded(&["uid-a 10.0.0.1 default/a", "uid-a 10.0.0.3 default/a"])
        .with(Svc::new("a").status("10.0.0.3"));
    world.run();
    assert_eq!(world.entries(), [".3: default/a"]);
    assert_eq!(world.read().len(), 1);
}

#[test]
fn a_record_that_is_not_canonical_is_reported_and_left_alone() {
    let mut world = World::new()
        .entry("010.0.0.1", "default/a")
        .recorded(&["uid-a 010.0.0.1 default/a"])
        .with(Svc::new("a"));
    let before = (world.config_map.data.clone(), world.config_map.records.clone());
    world.run();
    assert_eq!(
        (world.config_map.data.clone(), world.config_map.records.clone()),
        before
    );
    assert!(matches!(world.outcome("a"), Outcome::Refuse(_)));
    world.change("a", |a| a.pinned("10.0.0.1"));
    world.run();
    assert_eq!(world.entries(), [".1: default/a"], "a request moves it");
}
