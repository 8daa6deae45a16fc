//! Histories: what Services, people and accidents do, one after the other.

use super::*;

#[derive(Clone, Debug)]
pub(super) enum Event {
    Create {
        name: u8,
        pin: Option<u8>,
        method: usize,
        shares: bool,
        port: u16,
    },
    Delete(u8),
    Vanish(u8),
    Recreate(u8),
    Pin(u8, Option<u8>),
    Method(u8, usize),
    Hand(u8, usize),
    Unhand(u8),
    Node(u8),
    LoseRecords,
    BreakRecords,
    LoseConfigMap,
}

pub(super) const METHODS: [&str; 5] = ["", "NAT", "DR", "PROXY", "VIP"];
pub(super) const HAND: [&str; 4] = ["", "infra/hand", "infra/hand:DR", "nonsense"];

fn event() -> impl Strategy<Value = Event> {
    let pin = || prop_oneof![3 => Just(None), 2 => (0_u8..10).prop_map(Some)];
    prop_oneof![
        8 => (0_u8..8, pin(), 0..METHODS.len(), any::<bool>(), 80_u16..83)
            .prop_map(|(name, pin, method, shares, port)| Event::Create { name, pin, method, shares, port }),
        2 => (0_u8..8).prop_map(Event::Delete),
        1 => (0_u8..8).prop_map(Event::Vanish),
        1 => (0_u8..8).prop_map(Event::Recreate),
        2 => (0_u8..8, pin()).prop_map(|(name, pin)| Event::Pin(name, pin)),
        2 => (0_u8..8, 0..METHODS.len()).prop_map(|(name, method)| Event::Method(name, method)),
        2 => (0_u8..10, 0..HAND.len()).prop_map(|(last, value)| Event::Hand(last, value)),
        1 => (0_u8..10).prop_map(Event::Unhand),
        1 => (0_u8..10).prop_map(Event::Node),
        1 => Just(Event::LoseRecords),
        1 => Just(Event::BreakRecords),
        1 => Just(Event::LoseConfigMap),
    ]
}

pub(super) fn history() -> impl Strategy<Value = Vec<Event>> {
    prop::collection::vec(event(), 1..25)
}

pub(super) fn name_of(number: u8) -> String {
    format!("s{number}")
}

pub(super) fn address_of(last: u8) -> String {
    format!("10.0.0.{last}")
}

/// The world with a count of UIDs, since a UID never comes back.
pub(super) struct Story {
    pub(super) world: World,
    born: u32,
}

impl Story {
    pub(super) fn new() -> Self {
        Self {
            world: World::new(),
            born: 0,
        }
    }

    fn has(&self, name: &str) -> bool {
        self.world
            .services
            .iter()
            .any(|service| service.claim().name == name)
    }

    fn born(&mut self, name: &str, service: Svc) -> Svc {
        self.born += 1;
        service
            .uid(&format!("uid-{name}-{}", self.born))
            .created(self.born)
    }

    /// Returns the Service whose request this event changes.
    pub(super) fn happen(&mut self, event: &Event) -> Option<String> {
        match event {
            Event::Create {
                name,
                pin,
                method,
                shares,
                port,
            } => {
                let name = name_of(*name);
                if self.has(&name) {
                    return None;
                }
                let mut service = self.born(&name, Svc::new(&name).method(METHODS[*method]).port(*port));
                if let Some(last) = pin {
                    service = service.pinned(&address_of(*last));
                }
                if *shares {
                    service = service.key("k");
                }
                self.world.services.push(service);
                Some(name)
            }
            Event::Delete(name) | Event::Vanish(name) | Event::Recreate(name) => {
                let name = name_of(*name);
                self.has(&name).then(|| self.end(event, name))
            }
            Event::Pin(name, pin) => {
                let name = name_of(*name);
                let wish = pin.map(address_of).unwrap_or_default();
                self.has(&name).then(|| {
                    self.world.change(&name, |service| service.pinned(&wish));
                    name
                })
            }
            Event::Method(name, method) => {
                let name = name_of(*name);
                if self.has(&name) {
                    self.world
                        .change(&name, |service| service.method(METHODS[*method]));
                }
                None
            }
            Event::Hand(..)
            | Event::Unhand(_)
            | Event::Node(_)
            | Event::LoseRecords
            | Event::BreakRecords
            | Event::LoseConfigMap => {
                self.meddle(event);
                None
            }
        }
    }

    fn end(&mut self, event: &Event, name: String) -> String {
        if matches!(event, Event::Delete(_)) {
            self.world
                .change(&name, |service| service.standing(Standing::Leaving));
            self.world.settle();
        }
        self.world.remove(&name);
        if matches!(event, Event::Recreate(_)) {
            let again = self.born(&name, Svc::new(&name));
            self.world.services.push(again);
        }
        name
    }

    /// People and accidents.
    fn meddle(&mut self, event: &Event) {
        let config_map = &mut self.world.config_map;
        match event {
            Event::Hand(last, value) => {
                config_map.data.insert(address_of(*last), HAND[*value].to_owned());
            }
            Event::Unhand(last) => {
                config_map.data.remove(&address_of(*last));
            }
            // A node that takes an address in use is an accident of the network, not ours to heal.
            Event::Node(last) if !config_map.data.contains_key(&address_of(*last)) => {
                self.world.nodes.insert(address_of(*last).parse().unwrap());
            }
            Event::LoseRecords => config_map.records = None,
            Event::BreakRecords => config_map.records = Some("{\"services\":[".to_owned()),
            // Entries of people are lost with it; what Services show is not.
            Event::LoseConfigMap => *config_map = Observed::default(),
            Event::Node(_)
            | Event::Create { .. }
            | Event::Delete(_)
            | Event::Vanish(_)
            | Event::Recreate(_)
            | Event::Pin(..)
            | Event::Method(..) => {}
        }
    }
}
