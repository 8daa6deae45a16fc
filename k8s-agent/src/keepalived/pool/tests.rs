use std::time::{Duration, Instant};

use rstest::rstest;

use super::*;

fn pools(specs: &[PoolSpec]) -> Pools {
    Pools::build(specs, "", Habits::default()).unwrap()
}

fn names(found: Result<Vec<&Pool>, PoolRefusal>) -> Vec<String> {
    found.unwrap().into_iter().map(|pool| pool.name.clone()).collect()
}

fn restricted(name: &str, addresses: &str, namespaces: &str, services: &str) -> PoolSpec {
    PoolSpec {
        namespaces: namespaces.into(),
        services: services.into(),
        ..PoolSpec::open(name, addresses)
    }
}

fn labels(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs
        .iter()
        .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
        .collect()
}

fn ip(text: &str) -> Ipv4Addr {
    text.parse().unwrap()
}

#[test]
fn a_pool_lists_cidrs_and_ranges_in_the_order_of_the_configuration() {
    let pools = pools(&[PoolSpec::open("default", "10.0.0.0/29, 10.1.0.10-10.1.0.11")]);
    let pool = pools.iter().next().unwrap();
    assert_eq!(
        pool.to_string(),
        "default (10.0.0.1-10.0.0.6, 10.1.0.10-10.1.0.11; 8 usable)"
    );
}

#[test]
fn reserved_addresses_are_no_part_of_a_pool() {
    let built = Pools::build(
        &[PoolSpec::open("p", "10.0.0.0/29")],
        "10.0.0.1,10.0.0.4/31",
        Habits::default(),
    )
    .unwrap();
    let pool = built.iter().next().unwrap();
    assert_eq!(pool.addresses().to_string(), "10.0.0.2-10.0.0.3, 10.0.0.6");
    assert_eq!(pool.size(), 3);
}

#[test]
fn restricted_pools_are_tried_before_open_ones_and_low_priorities_first() {
    let ranked = |name: &str, addresses: &str, priority| PoolSpec {
        priority,
        ..PoolSpec::open(name, addresses)
    };
    let pools = pools(&[
        ranked("open", "10.0.0.0/29", None),
        ranked("ten", "10.0.1.0/29", Some(10)),
        ranked("five", "10.0.2.0/29", Some(5)),
        restricted("team", "10.0.3.0/29", "team-a, team-b", ""),
        restricted("front", "10.0.4.0/29", "", "tier=front"),
    ]);
    let front = labels(&[("tier", "front")]);
    let none = labels(&[]);
    let asker = |namespace, labels| Asker {
        namespace,
        labels,
        pool: None,
    };
    assert_eq!(
        names(pools.for_service(asker("team-a", &front))),
        ["team", "front", "five", "ten", "open"]
    );
    assert_eq!(
        names(pools.for_service(asker("other", &none))),
        ["five", "ten", "open"]
    );
}

#[test]
fn an_opt_in_pool_serves_only_those_who_name_it() {
    let pools = pools(&[PoolSpec {
        auto_assign: false,
        ..PoolSpec::open("vip", "10.0.0.0/29")
    }]);
    let none = labels(&[]);
    let asker = |pool| Asker {
        namespace: "default",
        labels: &none,
        pool,
    };
    assert_eq!(pools.for_service(asker(None)).unwrap_err(), PoolRefusal::NoPool);
    assert_eq!(names(pools.for_service(asker(Some("vip")))), ["vip"]);
    assert_eq!(
        pools.for_service(asker(Some("no"))).unwrap_err(),
        PoolRefusal::Unknown("no".into())
    );
    assert_eq!(pools.admit(ip("10.0.0.1"), asker(None)), Ok(()));
}

#[rstest]
#[case::in_the_pool("10.0.0.3", "default", None, None)]
#[case::outside("192.0.2.7", "default", None, None)]
#[case::reserved("10.0.0.2", "default", None, Some("is reserved"))]
#[case::network("10.0.0.0", "default", None, Some("network or broadcast address"))]
#[case::broadcast("10.0.0.7", "default", None, Some("network or broadcast address"))]
#[case::for_another_namespace("10.9.0.1", "default", None, Some("not for this Service"))]
#[case::for_this_namespace("10.9.0.1", "team", None, None)]
#[case::not_in_the_named_pool("10.0.0.3", "team", Some("team"), Some("does not lie in"))]
#[case::named_pool_unknown("10.0.0.3", "team", Some("x"), Some("no address pool of the name"))]
fn a_requested_address_is_admitted_or_refused(
    #[case] address: &str,
    #[case] namespace: &str,
    #[case] pool: Option<&str>,
    #[case] refusal: Option<&str>,
) {
    let specs = [
        PoolSpec::open("open", "10.0.0.0/29"),
        restricted("team", "10.9.0.0/29", "team", ""),
    ];
    let pools = Pools::build(&specs, "10.0.0.2", Habits::default()).unwrap();
    let none = labels(&[]);
    let verdict = pools.admit(
        ip(address),
        Asker {
            namespace,
            labels: &none,
            pool,
        },
    );
    match (verdict, refusal) {
        (Ok(()), None) => {}
        (Err(error), Some(part)) => assert!(error.to_string().contains(part), "{error}"),
        (got, wanted) => panic!("{got:?} instead of {wanted:?}"),
    }
}

#[test]
fn the_strict_switch_refuses_addresses_outside_of_the_pools() {
    let habits = Habits {
        outside: false,
        ..Habits::default()
    };
    let pools = Pools::build(&[PoolSpec::open("p", "10.0.0.0/29")], "", habits).unwrap();
    let none = labels(&[]);
    let asker = Asker {
        namespace: "default",
        labels: &none,
        pool: None,
    };
    assert_eq!(
        pools.admit(ip("192.0.2.7"), asker),
        Err(PoolRefusal::Outside(ip("192.0.2.7")))
    );
}

#[rstest]
#[case::ipv6(&[PoolSpec::open("p", "fd00::/126")], "", "IPv6")]
#[case::all_reserved(&[PoolSpec::open("p", "10.0.0.0/30")], "10.0.0.0/24", "no address that could be given out")]
#[case::no_address(&[PoolSpec::open("p", "")], "", "no address that could be given out")]
#[case::two_of_one_name(&[PoolSpec::open("p", "10.0.0.0/30"), PoolSpec::open("p", "10.1.0.0/30")], "", "two pools of the name p")]
#[case::overlap(&[PoolSpec::open("p", "10.0.0.0/24"), PoolSpec::open("q", "10.0.0.9")], "", "overlap at")]
#[case::bad_reserved(&[], "x", "reserved addresses")]
#[case::bad_selector(&[restricted("p", "10.0.0.0/30", "", "a b")], "", "not a label selector")]
fn a_bad_configuration_is_refused_with_the_reason(
    #[case] specs: &[PoolSpec],
    #[case] reserved: &str,
    #[case] part: &str,
) {
    let errors = Pools::build(specs, reserved, Habits::default()).unwrap_err();
    assert!(
        errors.iter().any(|error| error.to_string().contains(part)),
        "{errors:?}"
    );
}

#[test]
fn invariant_12_the_cost_does_not_depend_on_the_width_of_the_pool() {
    let taken: BTreeSet<Ipv4Addr> = (1..=2000).map(|n| Ipv4Addr::from(0x0a00_0000 + n)).collect();
    let wide = pools(&[PoolSpec::open("wide", "10.0.0.0/8")]);
    #[expect(clippy::disallowed_methods, reason = "the test measures")]
    let start = Instant::now();
    for _ in 0..100 {
        let pool = wide.iter().next().unwrap();
        assert_eq!(wide.first_free(pool, &taken), Some(ip("10.0.7.209")));
    }
    // Counting sixteen million addresses a hundred times would take minutes.
    assert!(start.elapsed() < Duration::from_secs(5), "{:?}", start.elapsed());
}
