//! What of a rule is changed in place.
//!
//! Decides the fields of an update, its mark included. Facts: a failed update shows the new protocol although the router has the
//! old one, and only name and state tell; from 4.22 on an update that repeats algorithm and protocol does not touch the router,
//! and one that leaves the algorithm out always does; older servers tell the router of another algorithm only.

use std::collections::BTreeSet;
use std::time::Duration;

use super::rules::{Here, Ports, rule_list};
use super::{Context, Impact, Phase, Plan, Step};
use crate::cloudstack::RuleChange;
use crate::cloudstack::types::{Algorithm, LoadBalancerRule, RuleProtocol, RuleState, Tag};
use crate::load_balancer::marks::{AddressWord, Mark};
use crate::load_balancer::ownership::{Claimed, TAG_KEY};
use crate::load_balancer::sources::{Sources, SourcesHash};
use crate::load_balancer::wish::WishPort;

/// How long an address is proved by its job alone, before it gets a tag.
const TAG_AFTER: Duration = Duration::from_hours(1);

impl Ports<'_, '_> {
    /// What is changed of the rule that serves a port.
    pub(super) fn update(
        &self,
        port: &WishPort,
        claimed: &Claimed<'_>,
        (src, held): (BTreeSet<SourcesHash>, bool),
        plan: &mut Plan,
    ) {
        let rule = claimed.rule;
        let current = claimed.mark.clone();
        let mark = self.wanted_mark(current.as_ref(), src, held);
        let description = mark.written_into(&rule.description);
        let marked = description != rule.description;
        let (mut change, (reason, impact)) = match self.fields(port, rule, held) {
            Some((change, difference)) => (change, difference.reason()),
            None if marked => {
                let change = RuleChange {
                    algorithm: Some(rule.algorithm.clone()),
                    protocol: Some(port.protocol.rule()),
                    ..RuleChange::default()
                };
                (change, ("its mark is not up to date", Impact::None))
            }
            None => return,
        };
        change.description = marked.then_some(description);
        // A mark that only forgets what is closed by now has time until the rest is done.
        let only_forgets = impact == Impact::None
            && current.is_some_and(|old| {
                old.src.is_superset(&mark.src)
                    && Mark {
                        src: old.src.clone(),
                        ..mark
                    } == old
            });
        let phase = if only_forgets {
            Phase::Settle
        } else {
            Phase::Update
        };
        let step = Step::UpdateRule {
            rule: rule.id.clone(),
            name: rule.name.clone(),
            change,
        };
        plan.push(phase, step, reason, impact);
    }

    fn wanted_mark(&self, current: Option<&Mark>, src: BTreeSet<SourcesHash>, held: bool) -> Mark {
        let fresh = self.mark(src);
        match current {
            // Another UID of our own cluster is as good; "-" is replaced once there is a UID.
            Some(mark) if self.cx.identity.uids.are_ours(&mark.cluster) => Mark {
                cluster: mark.cluster.clone(),
                held: mark.held.clone().filter(|_| held),
                other: mark.other.clone(),
                ..fresh
            },
            Some(mark) => Mark {
                held: mark.held.clone().filter(|_| held),
                other: mark.other.clone(),
                ..fresh
            },
            None => fresh,
        }
    }

    /// What of the rule's own fields is to be changed; the description is the caller's.
    fn fields(
        &self,
        port: &WishPort,
        rule: &LoadBalancerRule,
        held: bool,
    ) -> Option<(RuleChange, Difference)> {
        let features = self.cx.observation.features;
        let sources = (!held && features.sources_on_update)
            .then(|| rule_list(self.here.wish, Sources::from_server(&rule.sources).as_ref()))
            .flatten();
        let difference = self.difference(port, rule, sources.is_some())?;
        let name = self.name(port.protocol, port.port);
        let wanted = self.here.wish.algorithm.clone();
        let (name, algorithm) = match (difference, features.protocol_update_applies) {
            // What is left out counts as changed, so that the router hears of what the list already says.
            (Difference::NotApplied, true) => (Some(name), None),
            // Such a server tells the router only together with another algorithm; the right one follows.
            (Difference::Protocol | Difference::NotApplied, false) if rule.algorithm == wanted => {
                (None, Some(another(&wanted)))
            }
            (Difference::Protocol | Difference::NotApplied, _) => (Some(name), Some(wanted)),
            (Difference::Algorithm | Difference::Sources, _) => (None, Some(wanted)),
        };
        let change = RuleChange {
            name,
            algorithm,
            protocol: Some(port.protocol.rule()),
            sources,
            ..RuleChange::default()
        };
        Some((change, difference))
    }

    fn difference(
        &self,
        port: &WishPort,
        rule: &LoadBalancerRule,
        other_sources: bool,
    ) -> Option<Difference> {
        let name = self.cx.identity.names.parse(&rule.name);
        let said = name.and_then(|name| name.protocol);
        let misnamed = said.is_some_and(|said| said != port.protocol);
        let members = self.cx.observation.members.get(&rule.id);
        let stuck = rule.state == RuleState::Add && members.is_some_and(|members| !members.is_empty());
        if rule.protocol.as_ref().unwrap_or(&RuleProtocol::Tcp) != &port.protocol.rule() {
            Some(Difference::Protocol)
        } else if misnamed || stuck {
            Some(Difference::NotApplied)
        } else if rule.algorithm != self.here.wish.algorithm {
            Some(Difference::Algorithm)
        } else {
            other_sources.then_some(Difference::Sources)
        }
    }
}

/// How a rule differs from what is wanted, the first that counts.
#[derive(Clone, Copy, Debug)]
enum Difference {
    /// The PROXY header is switched.
    Protocol,
    /// The list says what is wanted, and the router was not told.
    NotApplied,
    /// Another algorithm.
    Algorithm,
    /// Other sources.
    Sources,
}

impl Difference {
    fn reason(self) -> (&'static str, Impact) {
        match self {
            Self::Protocol => ("the PROXY header is switched", Impact::Brief),
            Self::NotApplied => ("an earlier change did not reach the router", Impact::Brief),
            Self::Algorithm => ("another algorithm is wanted", Impact::Brief),
            Self::Sources => ("other sources are wanted", Impact::None),
        }
    }
}

/// Any other algorithm.
fn another(algorithm: &Algorithm) -> Algorithm {
    match algorithm {
        Algorithm::RoundRobin => Algorithm::LeastConnections,
        Algorithm::LeastConnections | Algorithm::Source | Algorithm::Other(_) => Algorithm::RoundRobin,
    }
}

/// A tag proves an own address for longer than its job does.
pub(super) fn tag(cx: &Context<'_>, here: &Here<'_>, plan: &mut Plan) {
    let Some(address) = cx.observation.address(&here.site.address) else {
        return;
    };
    let old_enough = address
        .allocated
        .is_some_and(|at| at.after(TAG_AFTER) <= cx.observation.now);
    let wanted = cx.observation.features.may_tag
        && here.site.word == AddressWord::Own
        && !cx.identity.uids.is_unknown()
        && old_enough
        && !address
            .tags
            .iter()
            .any(|tag| tag.key.eq_ignore_ascii_case(TAG_KEY));
    if wanted {
        let tag = Tag::new(TAG_KEY, cx.identity.uids.mark());
        let step = Step::Tag {
            address: address.id.clone(),
            ip: address.ip,
            tag,
        };
        plan.push(Phase::Settle, step, "the address is the cluster's", Impact::None);
    }
}
