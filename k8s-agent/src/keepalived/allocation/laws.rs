//! The invariants, over histories of Services, people and accidents.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Endpoints, Service};
use proptest::prelude::*;
use serde::Deserialize;
use serde_json::json;

use super::super::claim::Standing;
use super::super::document::{Entry, service_of_entry};
use super::super::render;
use super::tests::world::{Svc, World};
use super::*;

mod history;

use history::{Event, HAND, METHODS, Story, address_of, history, name_of};

fn by_address(world: &World) -> BTreeMap<String, Vec<Record>> {
    let mut found: BTreeMap<String, Vec<Record>> = BTreeMap::new();
    for record in world.read() {
        found.entry(record.ip.clone()).or_default().push(record);
    }
    found
}

fn no_address_twice(world: &World) {
    for (address, records) in by_address(world) {
        let claims: Vec<Claim> = records
            .iter()
            .filter_map(|record| {
                world
                    .services
                    .iter()
                    .map(Svc::claim)
                    .find(|claim| claim.uid == record.uid)
            })
            .collect();
        for (place, one) in claims.iter().enumerate() {
            for other in &claims[place + 1..] {
                assert_eq!(one.wish.sharing_key, other.wish.sharing_key, "{address}");
                assert!(
                    one.wish.sharing_key.is_some(),
                    "{address} twice without an agreement"
                );
                assert!(
                    share::common_port(one, other).is_none(),
                    "{address} has a port twice"
                );
            }
        }
        if records.len() > 1 {
            assert!(
                records.iter().all(|record| record.method == "VIP"),
                "{address} is shared without VIP"
            );
        }
    }
}

fn foreign_of(world: &World) -> BTreeMap<String, String> {
    let owned: BTreeSet<String> = match world
        .config_map
        .records
        .as_deref()
        .map(super::super::document::decode)
    {
        Some(Ok(records)) => records.into_iter().map(|record| record.ip).collect(),
        Some(Err(_)) | None => BTreeSet::new(),
    };
    let live: BTreeSet<(String, String)> = world
        .services
        .iter()
        .map(Svc::claim)
        .map(|claim| (claim.namespace, claim.name))
        .collect();
    let shown: BTreeSet<String> = world
        .services
        .iter()
        .flat_map(|service| service.claim().status)
        .map(|ip| ip.to_string())
        .collect();
    let is_foreign = |key: &String, value: &String| {
        let names_ours = service_of_entry(value)
            .is_some_and(|(namespace, name)| live.contains(&(namespace.into(), name.into())));
        !(owned.contains(key) || names_ours || value.is_empty() && shown.contains(key))
    };
    world
        .config_map
        .data
        .iter()
        .filter(|(key, value)| is_foreign(key, value))
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect()
}

/// What the Go program would read.
#[derive(Deserialize)]
struct GoDocument {
    services: Vec<GoRecord>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct GoRecord {
    uid: String,
    ip: String,
    service_namespace: String,
    service_name: String,
    #[serde(default)]
    forward_method: String,
}

fn what_we_wrote_is_sound(plan: &Plan, world: &World) {
    let Some(patch) = &plan.patch else { return };
    let records = by_address(world);
    for change in &patch.changes {
        let Some(value) = &change.to else { continue };
        assert!(
            super::super::address::canonical(&change.key).is_some(),
            "the key {} is not canonical",
            change.key
        );
        let of_key = records.get(&change.key).expect("an entry without a record");
        match Entry::parse(value) {
            Entry::AddressOnly => assert!(of_key.iter().all(|record| record.method == "VIP")),
            Entry::Service {
                namespace,
                name,
                method,
            } => {
                assert!(of_key.iter().any(|record| record.namespace == namespace
                    && record.name == name
                    && record.method == method));
            }
            Entry::Ignored => panic!("the consumer ignores {}: {value}", change.key),
        }
    }
    if let Some(text) = &patch.records {
        let document: GoDocument = serde_json::from_str(text).unwrap();
        for record in document.services {
            assert!(
                !record.uid.is_empty()
                    && !record.service_name.is_empty()
                    && !record.service_namespace.is_empty()
            );
            assert!(super::super::address::canonical(&record.ip).is_some());
            assert!(METHODS.contains(&record.forward_method.as_str()));
        }
    }
}

fn shown(world: &World) -> BTreeMap<String, Option<Ipv4Addr>> {
    world
        .services
        .iter()
        .map(Svc::claim)
        .map(|claim| (claim.name.clone(), claim.status.first().copied()))
        .collect()
}

/// The lowest address of the pool that nobody has, found by looking at each.
fn lowest_free(world: &World) -> Option<Ipv4Addr> {
    let mut taken: BTreeSet<Ipv4Addr> = world.nodes.clone();
    taken.extend(
        world
            .config_map
            .data
            .keys()
            .filter_map(|key| key.parse::<Ipv4Addr>().ok()),
    );
    taken.extend(world.services.iter().flat_map(|service| service.claim().status));
    (1..=6)
        .map(|last| Ipv4Addr::new(10, 0, 0, last))
        .find(|address| !taken.contains(address))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, ..ProptestConfig::default() })]

    #[test]
    fn invariants_1_to_8_hold_over_every_history(events in history()) {
        let mut story = Story::new();
        for event in &events {
            let changed = story.happen(event);
            let (before, foreign) = (shown(&story.world), foreign_of(&story.world));
            // Invariant 3 is checked there: a second plan is empty.
            let plans = story.world.settle();
            let world = &story.world;
            // 1
            no_address_twice(world);
            // 2
            for (key, value) in foreign {
                prop_assert_eq!(world.config_map.data.get(&key), Some(&value), "the foreign entry {} changed", key);
            }
            // 4
            for (name, address) in before {
                let Some(address) = address else { continue };
                // A request that could not be met before is met as soon as its address is free.
                let asked = world.services.iter().map(Svc::claim).find(|claim| claim.name == name).and_then(|claim| claim.wish.address.ok().flatten());
                let moved_as_asked = asked.is_some() && asked == shown(world).get(&name).copied().flatten();
                if changed.as_deref() != Some(name.as_str()) && !moved_as_asked {
                    prop_assert_eq!(shown(world).get(&name).copied().flatten(), Some(address), "{} lost its address by {:?}", name, event);
                }
            }
            // 6 to 8
            what_we_wrote_is_sound(plans.last().unwrap(), world);
        }
    }

    #[test]
    fn invariant_5_a_new_service_gets_the_lowest_free_address(events in history()) {
        let mut story = Story::new();
        for event in &events {
            story.happen(event);
            story.world.settle();
        }
        let waiting = story.world.services.iter().any(|service| service.claim().status.is_empty());
        let expected = lowest_free(&story.world);
        story.world.services.push(Svc::new("new").created(900));
        story.world.settle();
        // Somebody who waits for exactly this address, or for any, comes first.
        if !waiting {
            prop_assert_eq!(story.world.shown("new"), expected.map(|address| address.to_string()));
        }
    }

    #[test]
    fn invariant_10_two_writers_end_as_one_would(wishes in prop::collection::vec((any::<bool>(), prop::option::of(1_u8..7), any::<bool>()), 1..12)) {
        let mut world = World::new();
        // Each writer looks at its own time and writes only on top of what it saw.
        let mut looked: [Option<Plan>; 2] = [None, None];
        for (number, (writer, pin, writes)) in wishes.iter().enumerate() {
            let mut service = Svc::new(&format!("s{number}")).created(u32::try_from(number).unwrap());
            if let Some(last) = pin {
                service = service.pinned(&address_of(*last));
            }
            world.services.push(service);
            let writer = usize::from(*writer);
            let version = world.config_map.version.clone();
            looked[writer] = Some(world.plan(true).unwrap());
            if *writes {
                let other = looked[1 - writer].take();
                let mine = looked[writer].take().unwrap();
                world.write(&mine);
                world.publish(&mine);
                // The other one's look is older now: the server refuses it, and it looks again.
                if let Some(stale) = other {
                    prop_assert!(stale.patch.is_none_or(|patch| patch.body()["metadata"]["resourceVersion"].as_str() != world.config_map.version.as_deref() || version == world.config_map.version));
                }
            }
        }
        world.settle();
        no_address_twice(&world);
        let served: BTreeSet<Ipv4Addr> = shown(&world).into_values().flatten().collect();
        let recorded = world.read();
        prop_assert_eq!(served.len(), recorded.len());
        // No address is left unused while somebody without a wish of his own waits.
        let waits = world.services.iter().any(|service| service.claim().status.is_empty() && service.claim().wish.address == Ok(None));
        prop_assert!(!waits || lowest_free(&world).is_none());
    }

    #[test]
    fn invariant_11_a_crash_between_write_and_status_changes_no_address(events in history(), crash in 0_usize..25) {
        let (mut straight, mut crashing) = (Story::new(), Story::new());
        for (place, event) in events.iter().enumerate() {
            straight.happen(event);
            crashing.happen(event);
            straight.world.settle();
            if place == crash {
                // Written, but the process died before any status was.
                let plan = crashing.world.plan(true).unwrap();
                crashing.world.write(&plan);
            }
            crashing.world.settle();
        }
        prop_assert_eq!(shown(&straight.world), shown(&crashing.world));
        prop_assert_eq!(straight.world.config_map.data, crashing.world.config_map.data);
    }

    #[test]
    fn starting_from_any_config_map_settles_at_once(
        records in prop::collection::vec((0_u8..6, 0_u8..8, 0..METHODS.len(), any::<bool>()), 0..6),
        entries in prop::collection::vec((0_u8..8, 0_usize..7), 0..6),
        statuses in prop::collection::vec(prop::option::of(0_u8..8), 6),
    ) {
        let mut world = World::new();
        for (number, status) in statuses.iter().enumerate() {
            let mut service = Svc::new(&format!("s{number}"));
            if let Some(last) = status {
                service = service.status(&address_of(*last));
            }
            world.services.push(service);
        }
        let records: Vec<_> = records.iter().map(|(owner, last, method, named)| {
            let (namespace, name) = if *named { ("default".to_owned(), name_of(*owner)) } else { Default::default() };
            json!({ "uid": format!("uid-s{owner}"), "ip": address_of(*last), "serviceNamespace": namespace, "serviceName": name, "forwardMethod": METHODS[*method] })
        }).collect();
        world = world.records(&json!({ "services": records }).to_string());
        for (last, value) in entries {
            let value = HAND.get(value).map_or_else(|| format!("default/s{value}"), |value| (*value).to_owned());
            world = world.entry(&address_of(last), &value);
        }
        let foreign = foreign_of(&world);
        // Settling checks that nothing is left to do.
        world.settle();
        for (key, value) in foreign {
            prop_assert_eq!(world.config_map.data.get(&key), Some(&value));
        }
        let uids: Vec<String> = world.read().into_iter().map(|record| record.uid).collect();
        let distinct: BTreeSet<&String> = uids.iter().collect();
        prop_assert_eq!(distinct.len(), uids.len(), "a Service has two records");
    }
}

fn objects(world: &World) -> (Vec<Service>, Vec<Endpoints>) {
    let claims = world.services.iter().map(Svc::claim);
    claims
        .map(|claim| {
            let meta = json!({ "namespace": claim.namespace, "name": claim.name });
            let port = claim.wish.ports[0].number;
            let service = json!({ "metadata": meta, "spec": { "ports": [{ "port": port, "targetPort": port }] } });
            let endpoints = json!({ "metadata": meta, "subsets": [{ "addresses": [{ "ip": "10.1.0.1" }, { "ip": "10.1.0.2" }], "ports": [{ "port": port }] }] });
            (serde_json::from_value::<Service>(service).unwrap(), serde_json::from_value::<Endpoints>(endpoints).unwrap())
        })
        .unzip()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 25, ..ProptestConfig::default() })]

    #[test]
    fn invariant_9_keepalived_accepts_what_the_consumer_renders(events in history()) {
        let mut story = Story::new();
        for event in &events {
            // What people write by hand may be anything; it is not ours to prove. PROXY is for HAProxy.
            if !matches!(event, Event::Hand(..) | Event::Method(_, 3) | Event::Create { method: 3, .. }) {
                story.happen(event);
                story.world.settle();
            }
        }
        let (services, endpoints) = objects(&story.world);
        let servers = render::virtual_servers(&story.world.config_map.data, &services, &endpoints);
        let announced = render::announced(&servers);
        let recorded: BTreeSet<String> = story.world.read().into_iter().map(|record| record.ip).collect();
        prop_assert_eq!(announced.iter().map(|address| (*address).to_owned()).collect::<BTreeSet<String>>(), recorded.clone());
        prop_assert_eq!(announced.len(), recorded.len());
        let site = render::Site {
            interface: "eth0".into(), own: "192.0.2.1".into(), nodes: vec!["192.0.2.1".into()], router_id: 50, unicast: false, plain: true,
        };
        if let Some(verdict) = render::tests::check(&render::keepalived_conf(&servers, &site)) {
            prop_assert!(verdict.is_ok(), "{:?}", verdict);
        }
    }
}
