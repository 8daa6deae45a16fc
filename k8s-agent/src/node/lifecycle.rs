//! Which nodes are deleted, tainted or held back. Pure: observations and time come in, verdicts go out.
//!
//! A node is deleted only when it has not been Ready for the grace time *and* its machine is proved gone. The brake holds every deletion back while more
//! nodes than usual stopped being Ready lately, or since the scope that machines are looked for in changed after the node's machine was seen: a wrong key
//! or a wrong project must not empty a cluster. A person releases the brake for one node by an annotation; nothing releases the need for a proof.

use std::collections::{HashMap, VecDeque};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::presence::{Power, Presence, Proof, Why};

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
}

impl Default for Rules {
    fn default() -> Self {
        Self {
            grace: Duration::from_secs(30),
            per_minute: 10,
            brake_minimum: 3,
            brake_percent: 33,
            brake_window: Duration::from_mins(10),
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
    /// No machine at all is visible.
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
            Self::NothingVisible => {
                "no machine of this cluster is visible to the broker, so the node is kept; check its keys, project and scope".to_owned()
            }
            Self::ThisMinute => "the machine is gone; the node is deleted in a minute, since many are".to_owned(),
        }
    }
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

    /// What to do about each node, in their order. `presences` has what was asked for; `scope` is where the broker looks now.
    pub fn judge(
        &mut self,
        nodes: &[Sight],
        presences: &HashMap<String, Presence>,
        scope: Option<&str>,
        (rules, now): (&Rules, Instant),
    ) -> Vec<Verdict> {
        let brake = self.brake(nodes, rules, now);
        nodes
            .iter()
            .map(|node| {
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
                match presences.get(&node.uid) {
                    Some(Presence::Found(machine)) => {
                        self.found(&node.uid, scope);
                        match (machine.power, node.tainted) {
                            (Power::Stopped, false) => Verdict::Taint,
                            (Power::Running, true) => Verdict::Untaint,
                            (Power::Stopped | Power::Running | Power::Changing, _) => Verdict::Leave,
                        }
                    }
                    Some(Presence::Gone(proof)) => self.gone(node, proof, (brake, scope), (rules, now)),
                    Some(Presence::Unknown {
                        why: Why::NothingVisible,
                        ..
                    }) if self.is_candidate(node, rules, now) => Verdict::Hold(Held::NothingVisible),
                    Some(Presence::Unknown { .. }) | None => Verdict::Leave,
                }
            })
            .collect()
    }

    fn gone(
        &mut self,
        node: &Sight,
        proof: &Proof,
        (brake, scope): (Option<Held>, Option<&str>),
        (rules, now): (&Rules, Instant),
    ) -> Verdict {
        if !self.is_candidate(node, rules, now) {
            return Verdict::Leave;
        }
        let found_in = self
            .nodes
            .get(&node.uid)
            .and_then(|past| past.found_in.as_deref());
        let moved = found_in.is_some() && found_in != scope;
        if !node.confirmed && moved {
            return Verdict::Hold(Held::ScopeChanged);
        }
        if let Some(held) = brake.filter(|_| !node.confirmed) {
            return Verdict::Hold(held);
        }
        while self
            .deletions
            .front()
            .is_some_and(|at| now.saturating_duration_since(*at) >= MINUTE)
        {
            self.deletions.pop_front();
        }
        if self.deletions.len() >= rules.per_minute {
            return Verdict::Hold(Held::ThisMinute);
        }
        self.deletions.push_back(now);
        Verdict::Delete(proof.clone())
    }

    /// Nodes that have not been Ready for the grace time are candidates.
    fn is_candidate(&self, node: &Sight, rules: &Rules, now: Instant) -> bool {
        self.candidate_since(node, rules)
            .is_some_and(|since| since <= now)
    }

    fn candidate_since(&self, node: &Sight, rules: &Rules) -> Option<Instant> {
        let past = self
            .nodes
            .get(&node.uid)
            .filter(|_| !node.ready && !node.foreign)?;
        past.not_ready_since.map(|since| since + rules.grace)
    }

    /// The brake closes when many became candidates within the window, and opens when candidates are few again.
    fn brake(&mut self, nodes: &[Sight], rules: &Rules, now: Instant) -> Option<Held> {
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
