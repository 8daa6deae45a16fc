//! What may be done beside what.
//!
//! Decides which steps of a plan begin while others are under way. Facts (seen on 4.17 to 4.22): creates of rules and of firewall
//! rules of one address wait for each other on the server, in steps of 5 s; assigns, removes, updates and deletes wait for
//! nothing, also beside a create. So ports are built one by one, and their members are assigned meanwhile.

use super::{Phase, Plan, Planned, Step};

impl Plan {
    /// The steps that are done next where nothing is under way: the first one, with those that may begin with it.
    pub(crate) fn next_round(&self) -> Vec<&Planned> {
        self.next_beside(&[])
    }

    /// The steps that may begin while these of an earlier plan are under way.
    pub(crate) fn next_beside(&self, under_way: &[Planned]) -> Vec<&Planned> {
        let ahead = || self.steps.iter().filter(|planned| !is_among(planned, under_way));
        let Some(first) = ahead().next() else {
            return Vec::new();
        };
        let mut stages = under_way.iter().map(|planned| Stage::of(planned.phase));
        let stage = Stage::of(first.phase);
        if stages.any(|other| other != stage) {
            return Vec::new();
        }
        match stage {
            Stage::Ports => {
                let building = under_way.iter().any(|planned| planned.phase == Phase::Build);
                let next = ahead().find(|planned| planned.phase == Phase::Build);
                let assigns = ahead().filter(|planned| planned.phase == Phase::Assign);
                next.filter(|_| !building).into_iter().chain(assigns).collect()
            }
            // One plan says all that there is to do.
            Stage::Of(_) if !under_way.is_empty() => Vec::new(),
            Stage::Of(phase) => {
                let beside = |planned: &&Planned| planned.phase == phase && may_run_beside_others(planned);
                let many: Vec<_> = ahead().take_while(beside).collect();
                if many.is_empty() { vec![first] } else { many }
            }
        }
    }
}

/// Phases whose steps may run beside each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// Ports are built, and their rules get members.
    Ports,
    /// A phase by itself.
    Of(Phase),
}

impl Stage {
    fn of(phase: Phase) -> Self {
        match phase {
            Phase::Build | Phase::Assign => Self::Ports,
            Phase::Repair
            | Phase::Update
            | Phase::Acquire
            | Phase::Replace
            | Phase::Unassign
            | Phase::Close
            | Phase::Clear
            | Phase::Settle
            | Phase::Leave => Self::Of(phase),
        }
    }
}

/// Whether a step is under way already. A rule has one step of a phase at a time, whatever a later plan makes of it.
fn is_among(planned: &Planned, under_way: &[Planned]) -> bool {
    under_way.iter().any(|other| {
        let same_rule = || planned.step.rule().is_some() && planned.step.rule() == other.step.rule();
        planned.phase == other.phase && (planned.step == other.step || same_rule())
    })
}

/// Whether a step may run beside others of its phase.
fn may_run_beside_others(planned: &Planned) -> bool {
    let is_free = match planned.step {
        Step::UpdateRule { .. }
        | Step::DeleteRule { .. }
        | Step::Assign { .. }
        | Step::Remove { .. }
        | Step::CloseFirewall { .. }
        | Step::DropFromAcl { .. } => true,
        Step::Associate { .. }
        | Step::CreateRule { .. }
        | Step::OpenFirewall { .. }
        | Step::AllowInAcl(_)
        | Step::Tag { .. }
        | Step::Untag { .. }
        | Step::Release { .. } => false,
    };
    is_free && planned.phase != Phase::Replace
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;
    use crate::cloudstack::types::{AddressId, FirewallRuleId, MachineId, RuleId};
    use crate::load_balancer::plan::Impact;

    /// Steps by a word each: `open`, `close`, `release`, or `assign`, `remove`, `update` with a rule.
    fn planned(word: &str) -> Planned {
        let (action, object) = word.split_once(' ').unwrap_or((word, "1"));
        let rule = RuleId::parse(object).unwrap();
        let name = object.to_owned();
        let machines = vec![MachineId::parse("vm").unwrap()];
        let close = Step::CloseFirewall {
            rule: FirewallRuleId::parse(object).unwrap(),
            what: name.clone(),
        };
        let (phase, step) = match action {
            "open" => (Phase::Build, close),
            "close" => (Phase::Close, close),
            "assign" => (Phase::Assign, Step::Assign { rule, name, machines }),
            "remove" => (Phase::Unassign, Step::Remove { rule, name, machines }),
            "replace" => {
                let address = None;
                (Phase::Replace, Step::DeleteRule { rule, name, address })
            }
            "clear" => {
                let address = None;
                (Phase::Clear, Step::DeleteRule { rule, name, address })
            }
            "release" => {
                let (address, ip) = (AddressId::parse(object).unwrap(), "192.0.2.1".parse().unwrap());
                (Phase::Leave, Step::Release { address, ip })
            }
            other => panic!("{other}?"),
        };
        Planned {
            phase,
            step,
            reason: word.to_owned(),
            impact: Impact::None,
        }
    }

    fn all(words: &[&str]) -> Vec<Planned> {
        words.iter().map(|word| planned(word)).collect()
    }

    #[rstest]
    #[case::nothing(&[], &[], &[])]
    #[case::one_port_at_a_time(&["open 1", "open 2"], &[], &["open 1"])]
    #[case::members_meanwhile(&["open 2", "assign 1", "assign 3"], &[], &["open 2", "assign 1", "assign 3"])]
    #[case::the_next_port(&["open 2", "assign 1"], &["assign 1"], &["open 2"])]
    #[case::not_two_ports(&["open 2", "assign 1"], &["open 1"], &["assign 1"])]
    #[case::nothing_twice(&["open 1", "assign 1"], &["open 1", "assign 1"], &[])]
    #[case::no_removal_before_all_serve(&["remove 1"], &["assign 1"], &[])]
    #[case::removals_at_once(&["remove 1", "remove 2", "close 1"], &[], &["remove 1", "remove 2"])]
    #[case::no_second_round_of_removals(&["remove 2"], &["remove 1"], &[])]
    #[case::one_replaced_at_a_time(&["replace 1", "replace 2"], &[], &["replace 1"])]
    #[case::rules_go_at_once(&["clear 1", "clear 2", "release 1"], &[], &["clear 1", "clear 2"])]
    #[case::one_release_at_a_time(&["release 1", "release 2"], &[], &["release 1"])]
    fn what_begins_while_something_is_under_way(
        #[case] steps: &[&str],
        #[case] under_way: &[&str],
        #[case] begins: &[&str],
    ) {
        let plan = Plan {
            steps: all(steps),
            ..Plan::default()
        };
        let next = plan.next_beside(&all(under_way));
        let words: Vec<_> = next.iter().map(|planned| planned.reason.as_str()).collect();
        assert_eq!(words, begins);
    }

    #[test]
    fn a_rule_is_not_assigned_to_twice_at_once_even_if_other_machines_are_missing_meanwhile() {
        let plan = Plan {
            steps: all(&["assign 1"]),
            ..Plan::default()
        };
        let mut under_way = planned("assign 1");
        if let Step::Assign { machines, .. } = &mut under_way.step {
            machines.push(MachineId::parse("another").unwrap());
        }
        assert!(plan.next_beside(&[under_way]).is_empty());
    }
}
