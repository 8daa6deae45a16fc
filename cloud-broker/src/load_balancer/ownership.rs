//! Whose a rule is, and whose an address is.
//!
//! The only place that decides what may be touched. A rule is *mine* (this Service's), a *sibling's* (another Service of this
//! cluster) or a *stranger's*; an address is the cluster's *own*, or *given* and never released. Marks prove; names only count
//! where a mark is missing, only if they are exactly the Service's, and only inside the tenant's fence; so does a mark that names no
//! cluster, since whoever knows a Service's UID could claim it. Annotations never count, but once, when rules of an older
//! controller are adopted.

use std::collections::BTreeSet;

use uuid::Uuid;

use super::admission::{Admission, Fence, admission, admission_of_nameless};
use super::marks::{AddressWord, Mark};
use super::names::Names;
use super::observation::{JobView, Observation};
use super::wish::{AdoptionHint, Dialect, ServiceRef};
use crate::cloudstack::types::{AddressId, JobId, LoadBalancerRule, PublicIpAddress, RuleId, RuleState, Tag};
use crate::tenant::{ClusterUids, Scope};

/// Key of the tag that addresses of a cluster carry.
pub(crate) const TAG_KEY: &str = "kcs-cluster";

/// Namespace of the ids of our jobs.
const JOBS: Uuid = Uuid::from_u128(0x7b1e_2c9a_54d3_4f0e_9a86_3c5d_70e1_b2f4);

/// Whose a rule is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Claim {
    /// This Service's.
    Mine,
    /// Another Service's of this cluster.
    Sibling,
    /// Another cluster's, by its mark.
    OtherCluster,
    /// Anybody else's.
    Stranger,
}

/// Who asks.
#[derive(Clone, Debug)]
pub(crate) struct Identity {
    /// The Service.
    pub service: ServiceRef,
    /// The names its rules may have.
    pub names: Names,
    /// The cluster.
    pub uids: ClusterUids,
    /// Whether unmarked rules with exactly these names are taken over.
    pub take_over: bool,
    /// Where these have to be for that.
    pub fence: Scope,
}

impl Identity {
    /// Whose an object with this mark is, inside the fence.
    pub(crate) fn of_mark(&self, mark: &Mark) -> Claim {
        let this_service = self.is_of_service(mark);
        match (self.uids.are_ours(&mark.cluster), mark.is_nameless()) {
            (true, _) | (false, true) if this_service => Claim::Mine,
            (true, _) => Claim::Sibling,
            (false, true) => Claim::Stranger,
            (false, false) => Claim::OtherCluster,
        }
    }

    /// Whether a mark names this Service, whatever cluster it names.
    pub(crate) fn is_of_service(&self, mark: &Mark) -> bool {
        mark.service == self.service.uid.as_str()
    }

    /// Whether a mark may be that of another Service of this cluster, which writes such marks itself.
    pub(crate) fn may_be_siblings(&self, mark: &Mark) -> bool {
        self.uids.is_unknown() && mark.is_nameless() && !self.is_of_service(mark)
    }
}

/// A rule with what is known of whose it is.
#[derive(Clone, Debug)]
pub(crate) struct Claimed<'o> {
    /// The rule.
    pub rule: &'o LoadBalancerRule,
    /// Whose it is.
    pub claim: Claim,
    /// Its mark, if it has one.
    pub mark: Option<Mark>,
}

impl Claimed<'_> {
    /// Whether it serves, or will: it is not on its way out.
    pub(crate) fn serves(&self) -> bool {
        self.rule.state != RuleState::Deleting
    }

    /// Whether its mark says that the address is the cluster's own.
    pub(crate) fn says_own(&self) -> bool {
        self.mark
            .as_ref()
            .is_some_and(|mark| mark.address == Some(AddressWord::Own))
    }

    /// Whether it is the cluster's, this Service's or another one's.
    pub(crate) fn is_of_cluster(&self) -> bool {
        matches!(self.claim, Claim::Mine | Claim::Sibling)
    }

    /// Whether it is on this address.
    pub(crate) fn is_on(&self, address: &AddressId) -> bool {
        self.rule.address_id.as_ref() == Some(address)
    }
}

/// Every rule in scope with whose it is.
#[derive(Clone, Debug)]
pub(crate) struct Survey<'o> {
    rules: Vec<Claimed<'o>>,
    unadopted: bool,
    undecided: Vec<RuleId>,
    outside: Vec<(&'o LoadBalancerRule, Fence)>,
}

impl<'o> Survey<'o> {
    /// Looks at every rule.
    pub(crate) fn of(identity: &Identity, observation: &'o Observation) -> Self {
        let (mut any_marked, mut any_named, mut any_to_adopt) = (false, false, false);
        let mut rules: Vec<Claimed<'o>> = Vec::with_capacity(observation.rules.len());
        let (mut undecided, mut outside) = (Vec::new(), Vec::new());
        for rule in &observation.rules {
            let mark = Mark::find(&rule.description);
            let inside = match &mark {
                Some(mark) => identity.of_mark(mark),
                None if identity.names.parse(&rule.name).is_none() => Claim::Stranger,
                None => Claim::Mine,
            };
            let admission = match &mark {
                _ if inside != Claim::Mine => Admission::Inside,
                Some(mark) if !mark.is_nameless() => Admission::Inside,
                Some(_) => admission_of_nameless(&identity.uids, &identity.fence, rule, observation),
                None => admission(&identity.fence, rule, observation),
            };
            let claim = match admission {
                Admission::Inside => inside,
                Admission::Outside(fence) => {
                    outside.push((rule, fence));
                    // Whoever made it before it was known who it was.
                    mark.as_ref().map_or(Claim::Stranger, |_| Claim::OtherCluster)
                }
                Admission::AskMembers => {
                    undecided.push(rule.id.clone());
                    Claim::Stranger
                }
            };
            any_marked |= claim == Claim::Mine && mark.is_some();
            let claimed = Claimed { rule, claim, mark };
            let is_named = claim == Claim::Mine && claimed.mark.is_none();
            any_named |= is_named;
            any_to_adopt |= is_named && claimed.serves();
            rules.push(claimed);
        }
        if any_named && !any_marked && !identity.take_over {
            for claimed in rules.iter_mut().filter(|claimed| claimed.claim == Claim::Mine) {
                claimed.claim = Claim::Stranger;
            }
        }
        Self {
            rules,
            undecided,
            outside,
            unadopted: any_to_adopt && !any_marked && identity.take_over,
        }
    }

    /// Whether an object with this free text is the Service's, where names do not count. A text that names no cluster proves nothing
    /// while another one has rules for the same Service, or somebody outside the fence.
    pub(crate) fn is_mine(&self, identity: &Identity, text: &str) -> bool {
        Mark::find(text).is_some_and(|mark| {
            let is_disputed = || !self.outside.is_empty() || self.under_other_uids(identity).next().is_some();
            identity.of_mark(&mark) == Claim::Mine && !(mark.is_nameless() && is_disputed())
        })
    }

    /// Rules that are marked for this Service under the UID of another cluster, and that UID.
    pub(crate) fn under_other_uids<'a>(
        &'a self,
        identity: &'a Identity,
    ) -> impl Iterator<Item = (&'o LoadBalancerRule, &'a str)> {
        self.rules.iter().filter_map(|claimed| {
            let mark = claimed.mark.as_ref()?;
            let is_one = claimed.claim == Claim::OtherCluster && !mark.is_nameless();
            (is_one && identity.is_of_service(mark)).then_some((claimed.rule, mark.cluster.as_str()))
        })
    }

    /// Rules whose members have to be looked at before it can be said whose they are.
    pub(crate) fn undecided(&self) -> &[RuleId] {
        &self.undecided
    }

    /// Rules that name this Service, by their name or by a mark that names no cluster, and that its fence leaves out.
    pub(crate) fn outside(&self) -> &[(&'o LoadBalancerRule, Fence)] {
        &self.outside
    }

    /// Rules of this Service, those on their way out included: they still prove.
    pub(crate) fn mine(&self) -> impl Iterator<Item = &Claimed<'o>> {
        self.rules.iter().filter(|claimed| claimed.claim == Claim::Mine)
    }

    /// Rules of this Service on an address.
    pub(crate) fn mine_on<'a>(&'a self, address: &'a AddressId) -> impl Iterator<Item = &'a Claimed<'o>> {
        self.mine().filter(move |claimed| claimed.is_on(address))
    }

    /// Rules of everybody else on an address.
    pub(crate) fn others_on<'a>(&'a self, address: &'a AddressId) -> impl Iterator<Item = &'a Claimed<'o>> {
        self.rules
            .iter()
            .filter(move |claimed| claimed.claim != Claim::Mine && claimed.is_on(address))
    }

    /// Whether the Service has rules and none of them is marked: an older controller made them. One that is on its way out
    /// is nothing to take over.
    pub(crate) fn is_unadopted(&self) -> bool {
        self.unadopted
    }

    /// Addresses that rules of this Service are on.
    pub(crate) fn addresses(&self) -> BTreeSet<AddressId> {
        self.mine()
            .filter_map(|claimed| claimed.rule.address_id.clone())
            .collect()
    }

    /// Whose an address is: the cluster's own if a rule on it with the cluster's mark says so, if its tag names the
    /// cluster, if a job of ours took it, or if this process began to release it.
    pub(crate) fn word(
        &self,
        identity: &Identity,
        observation: &Observation,
        address: &AddressId,
    ) -> AddressWord {
        let by_rule = self
            .rules
            .iter()
            .filter(|claimed| claimed.is_on(address))
            .any(|claimed| claimed.is_of_cluster() && claimed.says_own());
        let seen = observation.address(address);
        let by_tag = seen.is_some_and(|seen| is_tagged(identity, &seen.tags));
        let by_job = |seen: &PublicIpAddress| jobs(identity, observation, seen) == Proof::Taken;
        let by_memory = |seen: &PublicIpAddress| is_half_released(identity, observation, seen);
        // Neither proves anything once a rule is on the address: the rules have the word.
        let bare = observation.rules_on(address).next().is_none();
        if by_rule || by_tag || (bare && seen.is_some_and(|seen| by_job(seen) || by_memory(seen))) {
            AddressWord::Own
        } else {
            AddressWord::Given
        }
    }

    /// Whether any rule carries a mark of the cluster.
    pub(crate) fn shows_cluster(&self) -> bool {
        self.rules
            .iter()
            .any(|claimed| claimed.mark.is_some() && claimed.is_of_cluster())
    }

    /// Own addresses of the whole cluster, for its limit: what may be its own counts.
    pub(crate) fn own_addresses(&self, identity: &Identity, observation: &Observation) -> usize {
        let may_be_own = |address: &PublicIpAddress| {
            let marks = self.others_on(&address.id).filter(|other| other.says_own());
            marks
                .filter_map(|other| other.mark.as_ref())
                .any(|mark| identity.may_be_siblings(mark))
        };
        observation
            .addresses
            .iter()
            .filter(|address| {
                self.word(identity, observation, &address.id) == AddressWord::Own || may_be_own(address)
            })
            .count()
    }
}

/// Whether tags name our cluster.
pub(crate) fn is_tagged(identity: &Identity, tags: &[Tag]) -> bool {
    tags.iter()
        .any(|tag| tag.key.eq_ignore_ascii_case(TAG_KEY) && identity.uids.are_ours(&tag.value))
}

/// The id of the n-th job that takes an address for a Service: anybody who knows the four can ask for it.
pub(crate) fn job_id(identity: &Identity, address: &AddressId, n: u32) -> JobId {
    let name = format!("{}/{}/{address}/{n}", identity.uids.mark(), identity.service.uid);
    Uuid::new_v5(&JOBS, name.as_bytes()).into()
}

/// Whether the release of an address was begun for this Service, and the address is still the one it was then.
pub(crate) fn is_half_released(
    identity: &Identity,
    observation: &Observation,
    address: &PublicIpAddress,
) -> bool {
    observation
        .begun
        .get(&address.id)
        .is_some_and(|begun| begun.service == identity.service.uid.as_str() && begun.is_of(address.allocated))
}

/// What jobs say of an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Proof {
    /// One of ours took it, as it is taken now.
    Taken,
    /// One of ours runs.
    Running(JobId),
    /// None of ours did; the next may have this id.
    NotTaken(JobId),
    /// This job has to be asked first.
    Ask(JobId),
}

/// Asks the jobs that were looked up. The first whose id is unknown ends the row.
pub(crate) fn jobs(identity: &Identity, observation: &Observation, address: &PublicIpAddress) -> Proof {
    let mut n = 0;
    loop {
        let id = job_id(identity, &address.id, n);
        match observation.jobs.get(&id) {
            None => return Proof::Ask(id),
            Some(JobView::Unknown) => return Proof::NotTaken(id),
            Some(JobView::Running) => return Proof::Running(id),
            Some(JobView::Succeeded {
                address: taken,
                allocated,
            }) if taken.as_ref() == Some(&address.id)
                && allocated.is_some()
                && *allocated == address.allocated =>
            {
                return Proof::Taken;
            }
            Some(JobView::Succeeded { .. } | JobView::Failed(_)) => n += 1,
        }
    }
}

/// What became of the tries to take an address, as far as its jobs were looked up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tries<'o> {
    /// Ids that are used up.
    pub used: u32,
    /// The latest ones that failed, in a row.
    pub failed: u32,
    /// What the last of them said.
    pub said: &'o str,
}

/// Counts the jobs of a row up to its end.
pub(crate) fn tries<'o>(
    identity: &Identity,
    observation: &'o Observation,
    address: &PublicIpAddress,
) -> Tries<'o> {
    let mut tries = Tries::default();
    loop {
        match observation.jobs.get(&job_id(identity, &address.id, tries.used)) {
            Some(JobView::Failed(text)) => {
                tries.failed += 1;
                tries.said = text;
            }
            Some(JobView::Succeeded { .. }) => tries.failed = 0,
            Some(JobView::Running | JobView::Unknown) | None => return tries,
        }
        tries.used += 1;
    }
}

/// What the controller that came before would have done with the address when the Service goes.
pub(crate) fn adopted_word(
    dialect: Dialect,
    hint: &AdoptionHint,
    keep_address: bool,
    address: &PublicIpAddress,
) -> AddressWord {
    let asked_for_this = hint.load_balancer_ip.trim() == address.ip.to_string();
    let released = match dialect {
        Dialect::Apache => !asked_for_this || hint.ip_associated_by_controller,
        Dialect::Leaseweb => !keep_address,
    };
    if released {
        AddressWord::Own
    } else {
        AddressWord::Given
    }
}
