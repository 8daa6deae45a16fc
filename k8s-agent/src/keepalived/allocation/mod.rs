//! Which Service has which address.
//!
//! Decides, from one look at the ConfigMap, the Services and the nodes, what the ConfigMap should say and what every
//! Service that asks is told. A pure function: the same look gives the same plan, and a second plan after the first was
//! written changes nothing. The steps, each in its own file:
//!
//! 1. `inherit`: what is recorded stays where it is; what is served without a record is taken over;
//! 2. `assign`: Services that ask get, move or keep an address and a forward method;
//! 3. `entries`: the entries that follow from the records; everybody else's entries stay byte for byte;
//! 4. `advice`: what works otherwise than a Service's author may expect.
//!
//! Leaves reading and writing to the shell. Relied on: no address is given out unless the list of Services is
//! complete, and a record is dropped only when a list read *after* the ConfigMap lacks its Service.

mod advice;
mod assign;
mod entries;
mod inherit;
mod share;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::Ipv4Addr;

use super::claim::Claim;
use super::config_map::{Content, Observed, Patch};
use super::document::Record;
use super::method::{Method, Named};
use super::notes::{Note, Reason};
use super::pool::Pools;

/// How kube-proxy treats an address in a Service's status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IpMode {
    /// It rewrites the traffic itself.
    Vip,
    /// It leaves the address alone.
    Proxy,
}

impl IpMode {
    /// The word in the status.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Vip => "VIP",
            Self::Proxy => "Proxy",
        }
    }
}

/// What does not change from look to look.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rules {
    /// The pools.
    pub pools: Pools,
    /// The forward method of Services that say nothing.
    pub default_method: Method,
    /// Methods that Services must not ask for.
    pub forbidden: BTreeSet<Named>,
    /// The `ipMode` of every address, instead of the one that fits the method.
    pub ip_mode: Option<IpMode>,
    /// Remove entries of an earlier program that name a Service which has its address elsewhere.
    pub prune_stale: bool,
}

/// One look at everything.
#[derive(Clone, Copy, Debug)]
pub struct Situation<'a> {
    /// The ConfigMap.
    pub config_map: &'a Observed,
    /// All Services that are load balancers, were one, or show an address.
    pub claims: &'a [Claim],
    /// The addresses of all nodes.
    pub nodes: &'a BTreeSet<Ipv4Addr>,
    /// Whether the Services were listed after the ConfigMap was read.
    pub is_listed_after: bool,
    /// Keys that somebody else changes again and again; they are left alone for now.
    pub contested: &'a BTreeSet<String>,
}

/// What a Service that asks is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It has this address.
    Serve {
        /// The address.
        address: Ipv4Addr,
        /// How kube-proxy should treat it.
        mode: IpMode,
    },
    /// It has none, or one that can't be published; its notes say why.
    Refuse(Note),
}

/// How much of a pool is used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Usage {
    /// Name of the pool.
    pub pool: String,
    /// Addresses that it could give out, were none taken.
    pub size: u64,
    /// Those that are recorded for Services.
    pub in_use: u64,
    /// Those that are taken otherwise: entries of others, nodes, statuses.
    pub blocked: u64,
}

/// What happened to the list of records, for the log and the metrics.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Finding {
    /// The record list could not be read.
    Damaged(String),
    /// A record's Service is gone or no load balancer any more; the address is free.
    Released(Record),
    /// A record moved to a Service of the same name.
    Moved(Record),
    /// A second record of one Service was dropped.
    Duplicate(Record),
    /// An entry without record that names a Service which has its address elsewhere.
    Stale(String, String),
    /// A recorded address that is not in canonical form.
    NotCanonical(Record),
    /// A record whose Service belongs to somebody else now.
    Elsewhere(Record),
    /// An entry was put right.
    Repaired(String),
    /// An entry should be put right, but somebody changes it again and again.
    Contested(String),
}

impl Finding {
    /// Whether it is the usual course of things.
    pub const fn is_usual(&self) -> bool {
        matches!(self, Self::Released(_) | Self::Moved(_) | Self::Repaired(_))
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let who = |record: &Record| format!("{} of {}/{}", record.ip, record.namespace, record.name);
        match self {
            Self::Damaged(error) => write!(f, "the record list can't be read and is rebuilt: {error}"),
            Self::Released(record) => write!(f, "released {}", who(record)),
            Self::Moved(record) => write!(f, "kept {} for the new Service of this name", who(record)),
            Self::Duplicate(record) => write!(f, "dropped a second record, {}", who(record)),
            Self::Stale(key, service) => {
                write!(
                    f,
                    "the entry {key} names {service}, which has another address; remove it or set the prune switch"
                )
            }
            Self::NotCanonical(record) => {
                write!(f, "left alone: {}, not an address in canonical form", who(record))
            }
            Self::Elsewhere(record) => {
                write!(
                    f,
                    "left alone: {}, a Service of another controller or backend",
                    who(record)
                )
            }
            Self::Repaired(key) => write!(f, "put the entry {key} right"),
            Self::Contested(key) => write!(
                f,
                "somebody else changes the entry {key} again and again; left alone"
            ),
        }
    }
}

/// A plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// The ConfigMap has to be created first.
    pub create: bool,
    /// The write that is needed.
    pub patch: Option<Patch>,
    /// What every Service that asks is told, by UID.
    pub outcomes: BTreeMap<String, Outcome>,
    /// What people should know, by UID.
    pub notes: BTreeMap<String, Vec<Note>>,
    /// What else was seen.
    pub findings: Vec<Finding>,
    /// How full the pools are.
    pub usage: Vec<Usage>,
    /// Recorded addresses that lie in no pool.
    pub outside_pools: u64,
    /// Every address that can't be given out now.
    pub taken: BTreeSet<String>,
}

/// The list of Services is older than the ConfigMap and lacks a recorded Service: list again, then plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListAgain;

/// Where a record of the draft comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Origin {
    /// It stood in the ConfigMap; this is how.
    Read(Record),
    /// It is new.
    New,
}

/// A record of the draft, with its Service.
#[derive(Clone, Debug)]
struct Held<'a> {
    record: Record,
    claim: &'a Claim,
    origin: Origin,
}

impl Held<'_> {
    fn method(&self) -> Option<Method> {
        Method::parse(&self.record.method).ok()
    }
}

/// The working memory of one plan.
struct Draft<'a> {
    situation: Situation<'a>,
    rules: &'a Rules,
    held: Vec<Held<'a>>,
    /// Entries that are not ours, minus those taken over.
    foreign: BTreeMap<&'a str, &'a str>,
    /// Keys of the records as read.
    owned: BTreeSet<String>,
    notes: BTreeMap<String, Vec<Note>>,
    refused: BTreeMap<String, Note>,
    findings: Vec<Finding>,
    damaged: Option<String>,
}

impl<'a> Draft<'a> {
    fn note(&mut self, claim: &Claim, reason: Reason, text: impl Into<String>) {
        self.notes
            .entry(claim.uid.clone())
            .or_default()
            .push(Note::new(reason, text));
    }

    fn refuse(&mut self, claim: &Claim, note: Note) {
        self.notes
            .entry(claim.uid.clone())
            .or_default()
            .push(note.clone());
        self.refused.insert(claim.uid.clone(), note);
    }

    fn of_claim(&self, claim: &Claim) -> Option<usize> {
        self.held.iter().position(|held| held.claim.uid == claim.uid)
    }

    fn at(&self, address: Ipv4Addr) -> impl Iterator<Item = &Held<'a>> + '_ {
        self.held
            .iter()
            .filter(move |held| held.record.address() == Some(address))
    }

    /// Every address that must not be given out.
    fn taken(&self) -> BTreeSet<Ipv4Addr> {
        let recorded = self.held.iter().filter_map(|held| held.record.address());
        recorded.chain(self.blocked()).collect()
    }

    /// Addresses that are taken although they are not recorded.
    fn blocked(&self) -> impl Iterator<Item = Ipv4Addr> + '_ {
        let foreign = self.foreign.keys().filter_map(|key| key.trim().parse().ok());
        let shown = self
            .situation
            .claims
            .iter()
            .filter(|claim| claim.standing != super::claim::Standing::Leaving);
        foreign
            .chain(shown.flat_map(|claim| claim.status.iter().copied()))
            .chain(self.situation.nodes.iter().copied())
    }

    fn usage(&self) -> (Vec<Usage>, u64) {
        let recorded: BTreeSet<Ipv4Addr> = self
            .held
            .iter()
            .filter_map(|held| held.record.address())
            .collect();
        let blocked: BTreeSet<Ipv4Addr> = self
            .blocked()
            .filter(|address| !recorded.contains(address))
            .collect();
        let count = |set: &BTreeSet<Ipv4Addr>, pool: &super::pool::Pool| {
            set.iter()
                .filter(|address| pool.addresses().contains(**address))
                .count() as u64
        };
        let usage = self.rules.pools.iter().map(|pool| Usage {
            pool: pool.name.clone(),
            size: pool.size(),
            in_use: count(&recorded, pool),
            blocked: count(&blocked, pool),
        });
        let outside = recorded
            .iter()
            .filter(|address| self.rules.pools.of_address(**address).is_none())
            .count();
        (usage.collect(), outside as u64)
    }
}

/// Plans.
pub fn plan(situation: Situation<'_>, rules: &Rules) -> Result<Plan, ListAgain> {
    let mut draft = inherit::inherit(situation, rules)?;
    inherit::adopt(&mut draft);
    assign::assign(&mut draft);
    let data = entries::entries(&mut draft);
    advice::advise(&mut draft);
    let content = Content {
        data,
        records: draft.held.iter().map(|held| held.record.clone()).collect(),
        state: entries::state(&draft),
    };
    let (usage, outside_pools) = draft.usage();
    let taken = draft.taken().iter().map(ToString::to_string).collect();
    Ok(Plan {
        create: situation.config_map.version.is_none(),
        patch: Patch::between(situation.config_map, &content),
        outcomes: outcomes(&draft),
        notes: draft.notes,
        findings: draft.findings,
        usage,
        outside_pools,
        taken,
    })
}

fn outcomes(draft: &Draft<'_>) -> BTreeMap<String, Outcome> {
    let served = draft.held.iter().filter_map(|held| {
        let address = held.record.address()?;
        let fitting = match held.method().unwrap_or_default().effective() {
            Named::Proxy => IpMode::Proxy,
            Named::Nat | Named::Dr | Named::Vip => IpMode::Vip,
        };
        let mode = draft.rules.ip_mode.unwrap_or(fitting);
        Some((held.claim.uid.clone(), Outcome::Serve { address, mode }))
    });
    let refused = draft
        .refused
        .iter()
        .map(|(uid, note)| (uid.clone(), Outcome::Refuse(note.clone())));
    refused.chain(served).collect()
}

#[cfg(test)]
mod laws;
#[cfg(test)]
pub(in crate::keepalived) mod tests;
