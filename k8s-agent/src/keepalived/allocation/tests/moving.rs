//! Changed pools: row 75.

use super::super::super::pool::Habits;
use super::world::{Svc, World, pools};

#[test]
fn case_75_a_changed_pool_drops_no_address() {
    let mut world = World::new().serving("x", "10.0.0.1");
    world.rules.pools = pools("10.7.0.0/29", "", Habits::default());
    world.services.push(Svc::new("y"));
    world.run();
    assert_eq!(world.entries(), [".1: default/x", "10.7.0.1: default/y"]);
    assert_eq!(world.last.as_ref().unwrap().outside_pools, 1);
}

#[test]
fn addresses_that_became_reserved_or_a_nodes_stay() {
    let mut world = World::new().serving("x", "10.0.0.1").serving("y", "10.0.0.2");
    world.rules.pools = pools("10.0.0.0/29", "10.0.0.1", Habits::default());
    world.nodes.insert("10.0.0.2".parse().unwrap());
    world.run();
    assert_eq!(world.entries(), [".1: default/x", ".2: default/y"]);
}
