//! What is known of one account or project, shared by all balancers in it.
//!
//! Decides how old a list may be for whom, and keeps the lists true to our own writes: every change is folded into them, and
//! into a list that began to be read before the change was done. Nothing here outlives the process, and nothing that matters
//! is only here.

mod part;

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::features::Features;
use super::marks::Mark;
use super::namespaces::Heard;
use super::observation::{Change, Observation, Taken};
use super::unseen::Unseen;
use super::wish::ServiceRef;
use crate::cloudstack::types::{AddressId, MachineId, PublicIpAddress, RuleId, Timestamp};
use crate::cloudstack::{Api, ApiError, Listing, NetworkQuery, RuleQuery};
pub(super) use part::Part;

/// How long a change is remembered for lists that are being read.
const REMEMBER_CHANGES: Duration = Duration::from_mins(5);
/// How long it is remembered for which Service an address was taken: as long as its job proves it.
const REMEMBER_TAKEN: Duration = super::address::PROVABLE;
/// A list that is not the whole is read this often before it counts as a failure.
const READINGS: usize = 3;
/// How soon after a change of its members a rule's membership is read again.
const CONFIRM_CHANGE: Duration = Duration::from_mins(1);

/// Why a list can't be had.
#[derive(Clone, Debug, thiserror::Error)]
pub(super) enum Unread {
    /// The API refused, or did not answer.
    #[error(transparent)]
    Api(#[from] ApiError),
    /// It changed under the reader every time.
    #[error("{0} changed each time while it was read")]
    Restless(&'static str),
}

/// The lists, and what is remembered beside them.
#[derive(Debug)]
pub(super) struct Board {
    known: Mutex<Known>,
    reading: Mutex<HashMap<Part, std::sync::Arc<tokio::sync::Mutex<()>>>>,
}

#[derive(Debug)]
struct Known {
    seen: Observation,
    began: BTreeMap<Part, Instant>,
    changes: VecDeque<(Instant, Change)>,
    confirmed: BTreeMap<RuleId, Instant>,
    unseen: Unseen,
    loose: BTreeSet<String>,
    heard: Heard,
    taken: BTreeMap<AddressId, (Taken, Instant)>,
}

impl Board {
    /// Nothing is known.
    pub(super) fn new() -> Self {
        let seen = Observation::empty(Timestamp::from_seconds(0), Features::NEWEST);
        let known = Known {
            seen,
            began: BTreeMap::new(),
            changes: VecDeque::new(),
            confirmed: BTreeMap::new(),
            unseen: Unseen::default(),
            loose: BTreeSet::new(),
            heard: Heard::default(),
            taken: BTreeMap::new(),
        };
        Self {
            known: Mutex::new(known),
            reading: Mutex::default(),
        }
    }

    /// Everything that is known, for one call.
    pub(super) fn observation(
        &self,
        now: Timestamp,
        features: Features,
        oldest_membership: Instant,
    ) -> Observation {
        let known = self.known.lock();
        let mut observation = Observation {
            now,
            features,
            ..known.seen.clone()
        };
        observation.forget_looks();
        observation.namespaces = known.heard.namespaces();
        observation.firewall_read = known.began.contains_key(&Part::Firewall);
        observation.acl_read = known.began.contains_key(&Part::AllAcl);
        observation.taken = known.taken();
        observation.members.retain(|rule, _| {
            known
                .confirmed
                .get(rule)
                .is_some_and(|confirmed| *confirmed >= oldest_membership)
        });
        observation
    }

    /// Whether a list is there that began to be read at this time or later.
    pub(super) fn has(&self, part: &Part, oldest: Instant) -> bool {
        self.known
            .lock()
            .began
            .get(part)
            .is_some_and(|began| *began >= oldest)
    }

    /// Whether rules and addresses were read at all.
    pub(super) fn knows_addresses(&self) -> bool {
        let known = self.known.lock();
        [Part::Rules, Part::Addresses]
            .iter()
            .all(|part| known.began.contains_key(part))
    }

    /// Reads a list, unless it is there already or somebody else just reads it.
    pub(super) async fn read(&self, api: &Api, part: &Part, oldest: Instant) -> Result<(), Unread> {
        if self.has(part, oldest) {
            return Ok(());
        }
        let reading = std::sync::Arc::clone(self.reading.lock().entry(part.clone()).or_default());
        let _turn = reading.lock().await;
        if self.has(part, oldest) {
            return Ok(());
        }
        for _ in 0..READINGS {
            let began = runtime::clock::now();
            let installed = match part {
                Part::Networks => {
                    let list = api.networks(&NetworkQuery::default()).await?;
                    self.install(part, began, list, |seen, items| seen.networks = items)
                }
                Part::Rules => {
                    let list = api.rules(&RuleQuery::All).await?;
                    self.install(part, began, list, |seen, items| seen.rules = items)
                }
                Part::Addresses => {
                    let list = api.addresses(&crate::cloudstack::AddressQuery::Allocated).await?;
                    self.install(part, began, list, |seen, items| seen.addresses = items)
                }
                Part::Firewall => {
                    let list = api.all_firewall_rules().await?;
                    self.install(part, began, list, |seen, items| seen.firewall = items)
                }
                Part::Acl(id) => {
                    let list = api.acl_items(id).await?;
                    self.install(part, began, list, |seen, items| {
                        seen.acl.insert(id.clone(), items);
                    })
                }
                Part::AllAcl => {
                    let list = api.all_acl_items().await?;
                    self.install(part, began, list, |seen, items| {
                        seen.acl_read = true;
                        for item in items {
                            seen.apply(&Change::Acl(Box::new(item)));
                        }
                    })
                }
            };
            if installed {
                return Ok(());
            }
        }
        Err(Unread::Restless(part.what()))
    }

    fn install<T>(
        &self,
        part: &Part,
        began: Instant,
        list: Listing<T>,
        put: impl FnOnce(&mut Observation, Vec<T>),
    ) -> bool {
        if !list.is_complete() {
            return false;
        }
        let mut known = self.known.lock();
        let mut read = Observation::empty(known.seen.now, known.seen.features);
        put(&mut read, list.into_items());
        for (_, change) in known
            .changes
            .iter()
            .filter(|(at, change)| *at >= began && part.shows(change))
        {
            read.apply(change);
        }
        part.move_over(read, &mut known.seen);
        let rules: BTreeSet<RuleId> = known.seen.rules.iter().map(|rule| rule.id.clone()).collect();
        if *part == Part::Rules {
            known.seen.members.retain(|rule, _| rules.contains(rule));
            known.confirmed.retain(|rule, _| rules.contains(rule));
            let Known { seen, heard, .. } = &mut *known;
            let marks = seen.rules.iter().filter_map(|rule| Mark::find(&rule.description));
            let served: BTreeSet<String> = marks.map(|mark| mark.service).collect();
            heard.tidy(|service| served.contains(service), runtime::clock::now());
        }
        known.began.insert(part.clone(), began);
        true
    }

    /// Folds in what a step of ours changed.
    pub(super) fn changed(&self, changes: &[Change]) {
        let now = runtime::clock::now();
        let mut known = self.known.lock();
        while known
            .changes
            .front()
            .is_some_and(|(at, _)| at.elapsed() > REMEMBER_CHANGES)
        {
            known.changes.pop_front();
        }
        for change in changes {
            known.no_longer_bare(change);
            // Of a rule whose members nobody knows, what was added or removed says nothing of the whole.
            if !matches!(change, Change::Members(..)) {
                known.seen.apply(change);
            }
            known.changes.push_back((now, change.clone()));
        }
    }

    /// Remembers the members of a rule, as they were read or are after a change of ours that succeeded.
    pub(super) fn members(&self, rule: &RuleId, members: &BTreeSet<MachineId>, read_at: Instant) {
        let mut known = self.known.lock();
        known.seen.members.insert(rule.clone(), members.clone());
        known.confirmed.insert(rule.clone(), read_at);
    }

    /// Remembers the members after a change of ours: sure enough to plan on, and to be read again before long.
    pub(super) fn members_changed(&self, rule: &RuleId, members: &BTreeSet<MachineId>, drift: Duration) {
        let now = runtime::clock::now();
        let soon = now
            .checked_sub(drift.saturating_sub(CONFIRM_CHANGE))
            .unwrap_or(now);
        self.known
            .lock()
            .seen
            .apply(&Change::Members(rule.clone(), members.clone()));
        self.members(rule, members, soon);
    }

    /// Forgets what is known of a rule's members.
    pub(super) fn doubt_members(&self, rule: &RuleId) {
        let mut known = self.known.lock();
        known.confirmed.remove(rule);
        known.seen.members.remove(rule);
    }

    /// Every list has to be read again: something happened that is not folded in.
    pub(super) fn doubt(&self) {
        let mut known = self.known.lock();
        known.began.retain(|part, _| *part == Part::Networks);
    }

    /// Remembers that machines were looked for and not seen; tells whether that is news of one of them.
    pub(super) fn unseen<'m>(&self, machines: impl IntoIterator<Item = &'m MachineId>) -> bool {
        self.known.lock().unseen.is_news(machines, runtime::clock::now())
    }

    /// A call left while jobs of its work ran.
    pub(super) fn left_behind(&self, work: &str, rules: &[RuleId]) {
        self.doubt();
        for rule in rules {
            self.doubt_members(rule);
        }
        self.known.lock().loose.insert(work.to_owned());
    }

    /// A call of this work ended in the middle of a step: nothing that was seen is sure.
    pub(super) fn lost(&self, work: &str) {
        self.left_behind(work, &[]);
        let mut known = self.known.lock();
        known.confirmed.clear();
        known.seen.members.clear();
    }

    /// Whether jobs of this work may run that nobody waits for.
    pub(super) fn may_run(&self, work: &str) -> bool {
        self.known.lock().loose.contains(work)
    }

    /// They have ended.
    pub(super) fn settled(&self, work: &str) {
        self.doubt();
        self.known.lock().loose.remove(work);
    }

    /// An address is about to be taken for a Service.
    pub(super) fn taking(&self, address: &AddressId, taken: Taken) {
        let mut known = self.known.lock();
        known.taken.retain(|_, (_, at)| at.elapsed() < REMEMBER_TAKEN);
        known
            .taken
            .insert(address.clone(), (taken, runtime::clock::now()));
    }

    /// It was not.
    pub(super) fn not_taken(&self, address: &AddressId) {
        self.known.lock().taken.remove(address);
    }

    /// An address was looked at: that its release was begun says something only of the one that it was then.
    pub(super) fn looked_at(&self, id: &AddressId, found: Option<&PublicIpAddress>) {
        let allocated = found.and_then(|address| address.allocated);
        let begun = &mut self.known.lock().seen.begun;
        begun.retain(|other, begun| other != id || begun.is_of(allocated));
    }

    /// Remembers which namespace a Service of a cluster is in.
    pub(super) fn heard_of(&self, cluster: &str, service: &ServiceRef) {
        let (uid, now) = (service.uid.as_str(), runtime::clock::now());
        self.known
            .lock()
            .heard
            .hear(cluster, uid, &service.namespace, now);
    }
}

impl Known {
    /// An address that has a rule is judged by it, and one that is given back is nobody's.
    fn no_longer_bare(&mut self, change: &Change) {
        if let Change::AddressGone(address) = change {
            self.taken.remove(address);
        } else if let Change::Rule(rule) = change
            && let Some(address) = &rule.address_id
        {
            self.taken.remove(address);
        }
    }

    fn taken(&self) -> BTreeMap<AddressId, Taken> {
        let view = |(taken, at): &(Taken, Instant)| Taken {
            lately: at.elapsed() < REMEMBER_CHANGES,
            ..taken.clone()
        };
        let taken = self.taken.iter();
        taken
            .map(|(address, entry)| (address.clone(), view(entry)))
            .collect()
    }
}
