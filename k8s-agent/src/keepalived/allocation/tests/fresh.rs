//! New Services and pools: rows 1 to 20, 53 to 56, 58, 77 to 79.

use serde_json::json;

use super::super::super::claim::Standing;
use super::super::super::pool::{Habits, PoolSpec};
use super::super::*;
use super::world::{Svc, World, pools};

#[test]
fn case_01_the_first_service_gets_the_lowest_address() {
    let mut world = World::with_pool("10.210.38.100/26").with(Svc::new("a"));
    world.run();
    assert_eq!(world.entries(), ["10.210.38.65: default/a"]);
    assert_eq!(world.read()[0].uid, "uid-a");
    assert_eq!(world.shown("a").unwrap(), "10.210.38.65");
    assert_eq!(world.reasons("a"), ["IPAllocated"]);
}

#[test]
fn case_02_the_second_service_gets_the_next() {
    let mut world = World::with_pool("10.210.38.100/26").with(Svc::new("a").created(1));
    world.run();
    world.services.push(Svc::new("b").created(2));
    world.run();
    assert_eq!(
        world.entries(),
        ["10.210.38.65: default/a", "10.210.38.66: default/b"]
    );
}

#[test]
fn case_03_a_resync_writes_nothing_and_says_nothing() {
    let mut world = World::new().with(Svc::new("a"));
    world.run();
    let again = world.run();
    assert_eq!(again.patch, None);
    assert!(again.notes.is_empty() && again.findings.is_empty());
}

#[test]
fn case_04_the_lowest_free_address_is_found_before_a_used_one() {
    let mut world = World::new().serving("b", "10.0.0.2").with(Svc::new("c"));
    world.run();
    assert_eq!(world.shown("c").unwrap(), "10.0.0.1");
}

#[test]
fn case_05_an_exhausted_pool_is_a_warning_with_its_name_size_and_use() {
    let mut world = World::with_pool("10.0.0.0/30")
        .serving("a", "10.0.0.1")
        .serving("b", "10.0.0.2")
        .with(Svc::new("x"));
    let before = world.entries();
    world.run();
    assert_eq!(world.entries(), before);
    assert_eq!(world.shown("x"), None);
    assert_eq!(world.reasons("x"), ["PoolExhausted"]);
    assert!(
        world
            .texts("x")
            .contains("pool default (10.0.0.1-10.0.0.2; 2 usable) has 2 in use"),
        "{}",
        world.texts("x")
    );
}

#[test]
fn case_06_a_released_address_goes_to_the_waiting_service_at_once() {
    let mut world = World::with_pool("10.0.0.0/30")
        .serving("a", "10.0.0.1")
        .serving("b", "10.0.0.2")
        .with(Svc::new("x"));
    world.change("a", |a| a.standing(Standing::Leaving));
    world.run();
    assert_eq!(world.entries(), [".1: default/x", ".2: default/b"]);
    assert_eq!(world.shown("x").unwrap(), "10.0.0.1");
}

#[test]
fn case_07_a_pool_of_31_bits_has_two_addresses() {
    let mut world = World::with_pool("10.0.0.0/31").with(Svc::new("x"));
    world.run();
    assert_eq!(world.shown("x").unwrap(), "10.0.0.0");
}

#[test]
fn case_08_a_pool_of_32_bits_has_one_address() {
    let mut world = World::with_pool("10.0.0.8/32").with(Svc::new("x"));
    world.run();
    assert_eq!(world.entries(), [".8: default/x"]);
}

#[test]
fn case_09_a_wide_pool_gives_its_first_address() {
    let mut world = World::with_pool("10.0.0.0/8").with(Svc::new("x"));
    world.run();
    assert_eq!(world.shown("x").unwrap(), "10.0.0.1");
}

#[test]
fn case_11_without_a_pool_nobody_gets_an_address_by_itself() {
    let mut world = World::with_pool("").with(Svc::new("x"));
    world.run();
    assert_eq!(world.reasons("x"), ["PoolExhausted"]);
    assert!(world.texts("x").contains("KEEPALIVED_SERVICE_CIDR"));
}

#[test]
fn case_12_without_a_pool_requested_addresses_work() {
    let mut world = World::with_pool("").with(Svc::new("y").pinned("10.5.5.5"));
    world.run();
    assert_eq!(world.entries(), ["10.5.5.5: default/y"]);
    assert_eq!(world.last.as_ref().unwrap().outside_pools, 1);
}

#[test]
fn case_13_cidrs_and_ranges_are_used_in_their_order() {
    let mut world = World::with_pool("10.0.0.0/29,10.1.0.10-10.1.0.11");
    for second in 1..=9 {
        world
            .services
            .push(Svc::new(&format!("s{second}")).created(second));
    }
    world.run();
    let shown: Vec<Option<String>> = (1..=9).map(|n| world.shown(&format!("s{n}"))).collect();
    let expected = [
        "10.0.0.1",
        "10.0.0.2",
        "10.0.0.3",
        "10.0.0.4",
        "10.0.0.5",
        "10.0.0.6",
        "10.1.0.10",
        "10.1.0.11",
    ];
    assert_eq!(shown.iter().flatten().collect::<Vec<_>>(), expected);
    assert_eq!(shown[8], None);
    assert_eq!(world.reasons("s9"), ["PoolExhausted"]);
}

#[test]
fn case_14_an_entry_made_by_hand_is_kept_and_its_address_not_given_out() {
    let mut world = World::new().entry("10.0.0.1", "infra/hand").with(Svc::new("a"));
    world.run();
    assert_eq!(world.entries(), [".1: infra/hand", ".2: default/a"]);
}

#[test]
fn case_15_an_address_only_entry_made_by_hand_is_kept_too() {
    let mut world = World::new().entry("10.0.0.1", "").with(Svc::new("a"));
    world.run();
    assert_eq!(world.entries(), [".1: ", ".2: default/a"]);
}

#[test]
fn case_16_node_addresses_and_reserved_ones_are_not_given_out() {
    let mut world = World::new().with(Svc::new("a"));
    world.nodes.insert("10.0.0.1".parse().unwrap());
    world.rules.pools = pools("10.0.0.0/29", "10.0.0.2", Habits::default());
    world.run();
    assert_eq!(world.shown("a").unwrap(), "10.0.0.3");
}

#[test]
fn case_17_the_avoid_switch_skips_0_and_255() {
    let mut world = World::new();
    world.rules.pools = pools(
        "10.0.0.0/23",
        "",
        Habits {
            avoid_edges: true,
            ..Habits::default()
        },
    );
    for last in 1..=254 {
        world = world.serving(&format!("s{last}"), &format!("10.0.0.{last}"));
    }
    world.services.push(Svc::new("x"));
    world.run();
    assert_eq!(world.shown("x").unwrap(), "10.0.1.1");
}

#[test]
fn case_18_a_requested_address_is_given() {
    let mut world = World::new().with(Svc::new("a").pinned("10.0.0.4"));
    world.run();
    assert_eq!(world.entries(), [".4: default/a"]);
}

#[test]
fn case_19_a_used_address_is_skipped() {
    let mut world = World::new().serving("a", "10.0.0.4");
    for (second, name) in ["b", "c", "d", "e"].into_iter().enumerate() {
        world
            .services
            .push(Svc::new(name).created(u32::try_from(second).unwrap()));
    }
    world.run();
    let shown: Vec<String> = ["b", "c", "d", "e"]
        .iter()
        .filter_map(|name| world.shown(name))
        .collect();
    assert_eq!(shown, ["10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.5"]);
}

#[test]
fn case_20_an_address_outside_of_the_pools_is_given_unless_that_is_switched_off() {
    let mut world = World::new().with(Svc::new("a").pinned("192.0.2.7"));
    let mut strict = world.clone();
    world.run();
    assert_eq!(world.shown("a").unwrap(), "192.0.2.7");
    strict.rules.pools = pools(
        "10.0.0.0/29",
        "",
        Habits {
            outside: false,
            ..Habits::default()
        },
    );
    strict.run();
    assert_eq!(strict.shown("a"), None);
    assert_eq!(strict.reasons("a"), ["InvalidLoadBalancerIP"]);
}

#[test]
fn case_53_a_deleted_service_leaves_nothing_behind() {
    let mut world = World::new().with(Svc::new("a"));
    world.run();
    world.change("a", |a| a.standing(Standing::Leaving));
    world.run();
    assert!(world.entries().is_empty());
    assert_eq!(world.config_map.records.as_deref(), Some(r#"{"services":[]}"#));
}

#[test]
fn case_54_deleting_a_service_that_was_never_seen_writes_nothing() {
    let mut world = World::new().serving("b", "10.0.0.2");
    world.run();
    world.services.push(Svc::new("a").standing(Standing::Leaving));
    assert_eq!(world.run().patch, None);
}

#[test]
fn case_55_a_service_that_is_no_load_balancer_any_more_releases_its_address() {
    let mut world = World::new().serving("a", "10.0.0.1").with(Svc::new("b"));
    world.change("a", |a| {
        a.spec("type", json!("ClusterIP")).standing(Standing::Leaving)
    });
    world.run();
    assert_eq!(world.entries(), [".1: default/b"]);
}

#[test]
fn case_56_a_service_deleted_while_nobody_looked_is_released() {
    let mut world = World::new().serving("a", "10.0.0.1");
    world.remove("a");
    assert_eq!(world.plan(false), Err(ListAgain), "an old list is no proof");
    world.run();
    assert!(world.entries().is_empty() && world.read().is_empty());
}

#[test]
fn case_58_a_missing_config_map_is_created() {
    let mut world = World::new().with(Svc::new("a"));
    world.config_map = Observed::default();
    let plan = world.plan(true).unwrap();
    assert!(plan.create);
    world.run();
    assert_eq!(world.entries(), [".1: default/a"]);
}

#[test]
fn case_77_udp_with_nat_works_with_a_warning() {
    let udp = json!([{ "port": 53, "targetPort": 53, "protocol": "UDP" }]);
    let mut world = World::new()
        .with(Svc::new("a").ports(udp.clone()))
        .with(Svc::new("v").ports(udp).method("VIP"));
    world.run();
    assert_eq!(world.reasons("a"), ["IPAllocated", "KeepalivedLimitation"]);
    assert!(world.texts("a").contains("udp/53") && world.texts("a").contains("VIP"));
    assert_eq!(world.reasons("v"), ["IPAllocated"]);
}

#[test]
fn case_78_ipv6_services_are_refused_with_the_reason() {
    let mut world = World::new()
        .with(Svc::new("six").spec("ipFamilies", json!(["IPv6"])))
        .with(Svc::new("both").spec("ipFamilyPolicy", json!("RequireDualStack")))
        .with(
            Svc::new("prefer")
                .spec("ipFamilyPolicy", json!("PreferDualStack"))
                .spec("ipFamilies", json!(["IPv4", "IPv6"])),
        );
    world.run();
    assert_eq!(world.reasons("six"), ["UnsupportedIPFamily"]);
    assert_eq!(world.reasons("both"), ["UnsupportedIPFamily"]);
    assert_eq!(world.entries(), [".1: default/prefer"]);
}

#[test]
fn case_79_a_service_of_another_class_is_not_touched() {
    let mut world = World::new()
        .with(Svc::new("a").standing(Standing::Elsewhere))
        .with(Svc::new("b").status("10.0.0.1").standing(Standing::Elsewhere));
    assert_eq!(world.run().patch, None);
    world.services.push(Svc::new("c"));
    world.run();
    assert_eq!(
        world.entries(),
        [".2: default/c"],
        "the address in its status is not given out either"
    );
}

#[test]
fn a_service_of_another_class_keeps_an_old_record() {
    let mut world = World::new().serving("a", "10.0.0.1");
    world.change("a", |a| a.standing(Standing::Elsewhere));
    world.run();
    assert_eq!(world.entries(), [".1: default/a"]);
    assert!(matches!(
        world.last.as_ref().unwrap().findings[..],
        [Finding::Elsewhere(_)]
    ));
}

#[test]
fn a_service_that_is_not_asked_about_gets_nothing() {
    let mut world = World::new().with(Svc::new("a").standing(Standing::Held));
    assert_eq!(world.run().patch, None);
}

#[test]
fn the_256th_address_is_a_warning() {
    let mut world = World::with_pool("10.0.0.0/16");
    for second in 0..256 {
        world
            .services
            .push(Svc::new(&format!("s{second:03}")).created(second));
    }
    world.run();
    assert_eq!(world.reasons("s254"), ["IPAllocated"]);
    assert_eq!(world.reasons("s255"), ["IPAllocated", "KeepalivedLimitation"]);
}

#[test]
fn local_traffic_policy_is_a_warning() {
    let mut world = World::new().with(Svc::new("a").spec("externalTrafficPolicy", json!("Local")));
    world.run();
    assert!(world.texts("a").contains("externalTrafficPolicy Local"));
}

#[test]
fn a_named_target_port_of_another_name_is_a_warning() {
    let ports = json!([{ "port": 80, "name": "http", "targetPort": "web" }, { "port": 81, "name": "web", "targetPort": "web" }]);
    let mut world = World::new().with(Svc::new("a").ports(ports));
    world.run();
    let texts = world.texts("a");
    assert!(texts.contains("tcp/80") && !texts.contains("tcp/81"), "{texts}");
}

#[test]
fn a_changed_port_touches_the_config_map() {
    let mut world = World::new().with(Svc::new("a"));
    world.run();
    let entries = world.entries();
    world.change("a", |a| a.port(81));
    assert!(world.run().patch.is_some());
    assert_eq!(world.entries(), entries);
}

#[test]
fn a_named_pool_is_drawn_from_and_a_full_one_named() {
    let mut world = World::new();
    let vip = PoolSpec {
        auto_assign: false,
        ..PoolSpec::open("vip", "10.9.0.1")
    };
    world.rules.pools = Pools::build(
        &[PoolSpec::open("open", "10.0.0.0/29"), vip],
        "",
        Habits::default(),
    )
    .unwrap();
    let asks = |name: &str| Svc::new(name).pool("vip");
    world = world
        .with(asks("a").created(1))
        .with(asks("b").created(2))
        .with(Svc::new("c").created(3));
    world.run();
    assert_eq!(world.shown("a").unwrap(), "10.9.0.1");
    assert!(
        world
            .texts("b")
            .contains("pool vip (10.9.0.1; 1 usable) has 1 in use")
    );
    assert_eq!(world.shown("c").unwrap(), "10.0.0.1");
    let usage = &world.last.as_ref().unwrap().usage;
    let vip = usage.iter().find(|usage| usage.pool == "vip").unwrap();
    assert_eq!((vip.size, vip.in_use, vip.blocked), (1, 1, 0));
}

#[test]
fn a_record_list_without_room_refuses_new_services_and_keeps_the_rest() {
    let mut world = World::with_pool("10.0.0.0/16");
    let lines: Vec<String> = (0..1300)
        .map(|n| {
            format!(
                "uid-s{n} 10.0.{}.{} default/{}-s{n}",
                100 + n / 200,
                1 + n % 200,
                "n".repeat(200)
            )
        })
        .collect();
    let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
    world = world.recorded(&lines);
    for n in 0..1300 {
        world.services.push(
            Svc::new(&format!("{}-s{n}", "n".repeat(200)))
                .uid(&format!("uid-s{n}"))
                .standing(Standing::Held),
        );
    }
    world.services.push(Svc::new("late"));
    world.run();
    assert_eq!(world.reasons("late"), ["ConfigMapFull"]);
    assert_eq!(world.read().len(), 1300);
}
