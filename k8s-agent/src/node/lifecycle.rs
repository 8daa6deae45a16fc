//! Which nodes are deleted, tainted or held back. Pure: observations and time come in, verdicts go out.
//!
//! A node is deleted only when it has not been Ready for the grace time *and* its machine is proved gone. The brake holds every deletion back while more
//! nodes than usual stopped being Ready lately, or since the scope that machines are looked for in changed after the node's machine was seen: a wrong key
//! or a wrong project must not empty a cluster. A person releases the brake for one node by an annotation; nothing releases the need for a proof.

use std::collections::{HashMap, VecDeque};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::presence::{Power, Presence, Proof, Why};
use crate::queue::Backoff;

/// A person who is sure sets this to `true` on a node that the brake holds.
pub const CONFIRM_DELETION: &str = "node.beta.kubernetes.io/cloudstack-confirm-deletion";
const MINUTE: Duration = Duration::from_mins(1);

/// When nodes are deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rules {
    /// A node that is not Ready for less is never deleted.
    pub grace: Duration,
    /// Deletions in a minute.
    pub per_minute: usize,
    /// The brake never holds for this many nodes or fewer.
    pub brake_minimum: usize,
    /// Share of all nodes that may go at once, in percent.
    pub brake_percent: usize,
    /// Time in which they are counted.
    pub brake_window: Duration,
    /// When a node whose deletion failed is tried again.
    pub retry: Backoff,
}

impl Default for Rules {
    fn default() -> Self {
        Self {
            grace: Duration::from_secs(30),
            per_minute: 10,
            brake_minimum: 3,
            brake_percent: 33,
            brake_window: Duration::from_mins(10),
            retry: Backoff {
                first: Duration::from_secs(10),
                longest: Duration::from_mins(5),
            },
        }
    }
}

impl Rules {
    /// For `/configz`.
    pub fn describe(&self) -> Value {
        json!({
            "gracePeriodSeconds": self.grace.as_secs_f64(),
            "deletionsPerMinute": self.per_minute,
            "brakeMinimum": self.brake_minimum,
            "brakePercent": self.brake_percent,
            "brakeWindowSeconds": self.brake_window.as_secs_f64(),
        })
    }

    fn limit(&self, nodes: usize) -> usize {
        self.brake_minimum
            .max(nodes.saturating_mul(self.brake_percent) / 100)
    }
}

/// A node as far as it matters here.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sight {
    /// UID of the Node.
    pub uid: String,
    /// Condition Ready is True.
    pub ready: bool,
    /// It carries the taint of a machine that is switched off.
    pub tainted: bool,
    /// Its provider id is another cloud's.
    pub foreign: bool,
    /// It is being deleted already.
    pub deleting: bool,
    /// A person confirmed its deletion.
    pub confirmed: bool,
}

/// What to do about one node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Nothing.
    Leave,
    /// Its machine is switched off: add the taint.
    Taint,
    /// Its machine runs: remove the taint.
    Untaint,
    /// Its machine is gone: delete it.
    Delete(Proof),
    /// Its machine is or seems gone, but it is kept.
    Hold(Held),
}

/// Why a node is kept although its machine is or seems gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Held {
    /// Too many nodes stopped being Ready.
    TooMany {
        /// This many.
        candidates: usize,
        /// At most this many are usual.
        limit: usize,
    },
    /// The scope changed since its machine was seen.
    ScopeChanged,
    /// No other machine is visible, and without one nothing is proved: that is what wrong keys look like, and what the end of a cluster's only
    /// machine looks like.
    NothingVisible,
    /// Enough nodes were deleted in this minute.
    ThisMinute,
}

impl Held {
    /// For the event.
    pub fn text(self) -> String {
        let release = format!("delete the node yourself, or annotate it with {CONFIRM_DELETION}=true");
        match self {
            Self::TooMany { candidates, limit } => format!(
                "the machine is gone, but {candidates} nodes are not Ready, more than the {limit} that usually go at once, so the node is kept until they are fewer; if it is to go, {release}"
            ),
            Self::ScopeChanged => format!(
                "the machine is gone, but the broker looks in another scope than when it was seen, so the node is kept; check the broker's configuration; if it is to go, {release}"
            ),
            // Nothing releases the need for a proof, so nobody is sent to the annotation.
            Self::NothingVisible => format!(
                "no other machine of this cluster is visible to the broker, so nothing proves that the node's machine is gone and not only out of sight, and the node is kept; check the broker's keys, project and scope; if the cluster had no other machine and this one is gone for good, delete the node yourself ({CONFIRM_DELETION} is no proof and changes nothing here)"
            ),
            Self::ThisMinute => {
                "the machine is gone; the node is deleted in a minute, since many are".to_owned()
            }
        }
    }
}

/// When and where nodes are judged.
#[derive(Clone, Copy, Debug)]
pub struct Moment<'a> {
    /// When nodes are deleted.
    pub rules: &'a Rules,
    /// Where the broker looks for machines now.
    pub scope: Option<&'a str>,
    /// The time.
    pub now: Instant,
}

/// What was seen before.
#[derive(Clone, Debug, Default)]
pub struct History {
    nodes: HashMap<String, Past>,
    deletions: VecDeque<Instant>,
    braking: bool,
}

#[derive(Clone, Debug, Default)]
struct Past {
    not_ready_since: Option<Instant>,
    found_in: Option<String>,
    failed: Option<Failed>,
}

/// Deletions of one node that did not come about.
#[derive(Clone, Copy, Debug)]
struct Failed {
    times: u32,
    retry_at: Instant,
}

impl History {
    /// Takes in which nodes are Ready. Answers which to ask about, and for how long each has not been Ready, by our clock.
    pub fn observe(&mut self, nodes: &[Sight], now: Instant) -> Vec<(String, Option<Duration>)> {
        let mut present: HashMap<String, Past> = HashMap::with_capacity(nodes.len());
        let mut ask = Vec::new();
        for node in nodes {
            let mut past = self.nodes.remove(&node.uid).unwrap_or_default();
            if node.ready {
                past.not_ready_since = None;
                past.failed = None;
            } else {
                past.not_ready_since.get_or_insert(now);
            }
            if !node.ready && !node.foreign && !node.deleting {
                let since = past
                    .not_ready_since
                    .map(|since| now.saturating_duration_since(since));
                ask.push((node.uid.clone(), since));
            }
            present.insert(node.uid.clone(), past);
        }
        self.nodes = present;
        ask
    }

    /// A machine was seen, maybe by another controller, while the broker looked in this scope.
    pub fn found(&mut self, uid: &str, scope: Option<&str>) {
        if let (Some(past), Some(scope)) = (self.nodes.get_mut(uid), scope) {
            past.found_in = Some(scope.to_owned());
        }
    }

    /// A node was deleted, which counts against the deletions of a minute.
    pub fn deleted(&mut self, now: Instant) {
        self.deletions.push_back(now);
    }

    /// A node was to be deleted, and was not. It is left alone for a while, longer each time.
    pub fn failed(&mut self, uid: &str, retry: Backoff, now: Instant) {
        if let Some(past) = self.nodes.get_mut(uid) {
            let times = past.failed.map_or(1, |failed| failed.times.saturating_add(1));
            let retry_at = now + retry.after(times);
            past.failed = Some(Failed { times, retry_at });
        }
    }

    /// How often in a row a node was not deleted that was to be.
    pub fn failures(&self, uid: &str) -> u32 {
        let failed = self.nodes.get(uid).and_then(|past| past.failed);
        failed.map_or(0, |failed| failed.times)
    }

    /// What to do about each node, in their order. `presences` has what was asked for.
    pub fn judge(
        &mut self,
        nodes: &[Sight],
        presences: &HashMap<String, Presence>,
        moment: Moment<'_>,
    ) -> Vec<Verdict> {
        let brake = self.brake(nodes, moment);
        let mut verdicts: Vec<Verdict> = nodes
            .iter()
            .map(|node| self.judge_one(node, presences.get(&node.uid), brake, moment))
            .collect();
        let mut turns: Vec<_> = nodes
            .iter()
            .zip(&mut verdicts)
            .filter(|(_, verdict)| matches!(verdict, Verdict::Delete(_)))
            .collect();
        // Who was refused comes after all others, whatever its name.
        turns.sort_by_key(|(node, _)| self.failures(&node.uid));
        for (_, verdict) in turns.into_iter().skip(self.deletions_left(moment)) {
            *verdict = Verdict::Hold(Held::ThisMinute);
        }
        verdicts
    }

    fn judge_one(
        &mut self,
        node: &Sight,
        presence: Option<&Presence>,
        brake: Option<Held>,
        moment: Moment<'_>,
    ) -> Verdict {
        if node.deleting || node.foreign {
            return Verdict::Leave;
        }
        if node.ready {
            return if node.tainted {
                Verdict::Untaint
            } else {
                Verdict::Leave
            };
        }
        match presence {
            Some(Presence::Found(machine)) => {
                self.found(&node.uid, moment.scope);
                match (machine.power, node.tainted) {
                    (Power::Stopped, false) => Verdict::Taint,
                    (Power::Running, true) => Verdict::Untaint,
                    (Power::Stopped | Power::Running | Power::Changing, _) => Verdict::Leave,
                }
            }
            Some(Presence::Gone(proof)) => self.gone(node, proof, brake, moment),
            Some(Presence::Unknown {
                why: Why::NothingVisible,
                ..
            }) if self.is_candidate(node, moment) => Verdict::Hold(Held::NothingVisible),
            Some(Presence::Unknown { .. }) | None => Verdict::Leave,
        }
    }

    fn gone(&self, node: &Sight, proof: &Proof, brake: Option<Held>, moment: Moment<'_>) -> Verdict {
        if !self.is_candidate(node, moment) {
            return Verdict::Leave;
        }
        let found_in = self
            .nodes
            .get(&node.uid)
            .and_then(|past| past.found_in.as_deref());
        let moved = found_in.is_some() && found_in != moment.scope;
        if !node.confirmed && moved {
            return Verdict::Hold(Held::ScopeChanged);
        }
        if let Some(held) = brake.filter(|_| !node.confirmed) {
            return Verdict::Hold(held);
        }
        if self.is_resting(node, moment.now) {
            return Verdict::Leave;
        }
        Verdict::Delete(proof.clone())
    }

    /// Whether its deletion failed a short time ago.
    fn is_resting(&self, node: &Sight, now: Instant) -> bool {
        let failed = self.nodes.get(&node.uid).and_then(|past| past.failed);
        failed.is_some_and(|failed| failed.retry_at > now)
    }

    /// Deletions that this minute still has. Only those that came about count: one that kube-apiserver refused costs nobody else its turn.
    fn deletions_left(&mut self, moment: Moment<'_>) -> usize {
        self.deletions
            .retain(|at| moment.now.saturating_duration_since(*at) < MINUTE);
        moment.rules.per_minute.saturating_sub(self.deletions.len())
    }

    /// Nodes that have not been Ready for the grace time are candidates.
    fn is_candidate(&self, node: &Sight, moment: Moment<'_>) -> bool {
        self.candidate_since(node, moment.rules)
            .is_some_and(|since| since <= moment.now)
    }

    fn candidate_since(&self, node: &Sight, rules: &Rules) -> Option<Instant> {
        let past = self
            .nodes
            .get(&node.uid)
            .filter(|_| !node.ready && !node.foreign)?;
        past.not_ready_since.map(|since| since + rules.grace)
    }

    /// The brake closes when many became candidates within the window, and opens when candidates are few again.
    fn brake(&mut self, nodes: &[Sight], Moment { rules, now, .. }: Moment<'_>) -> Option<Held> {
        let since: Vec<Instant> = nodes
            .iter()
            .filter_map(|node| self.candidate_since(node, rules))
            .filter(|since| *since <= now)
            .collect();
        let limit = rules.limit(nodes.len());
        let lately = since
            .iter()
            .filter(|since| now.saturating_duration_since(**since) <= rules.brake_window)
            .count();
        self.braking = lately > limit || (self.braking && since.len() > limit);
        self.braking.then_some(Held::TooMany {
            candidates: since.len(),
            limit,
        })
    }
}

#[cfg(test)]
mod tests;
