//! Whether a machine that no list shows is proved gone. Pure.
//!
//! One look is never enough: keys, a project or a scope may have changed, a page may have been lost, and a machine that is only invisible
//! must not cost a node. Proof is two complete lists that began after the node became not Ready, then a look-up by id that finds nothing
//! while another machine of the scope is found.

use std::time::Instant;

/// A complete list, as far as a proof needs it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Sighting {
    /// Its id.
    pub list: String,
    /// When it began to be read.
    pub began: Instant,
    /// The machine is in it.
    pub shows_machine: bool,
}

/// What is missing for a proof.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Missing {
    /// The node is Ready, or its condition is not known.
    NotReady,
    /// Nothing says which machine it was.
    MachineId,
    /// A complete list that began after the node became not Ready.
    Lists,
}

/// The two lists of a proof; the look-up is still to come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Absence {
    /// The older list.
    pub first: String,
    /// The newer one.
    pub second: String,
}

/// Whether the two newest complete lists prove an absence. `not_ready_since` is absent for a Ready node.
pub(super) fn absence(
    older: Option<&Sighting>,
    newer: Option<&Sighting>,
    not_ready_since: Option<Instant>,
) -> Result<Absence, Missing> {
    let since = not_ready_since.ok_or(Missing::NotReady)?;
    let (older, newer) = older.zip(newer).ok_or(Missing::Lists)?;
    let counts = |sighting: &Sighting| sighting.began > since && !sighting.shows_machine;
    if counts(older) && counts(newer) && older.list != newer.list {
        Ok(Absence {
            first: older.list.clone(),
            second: newer.list.clone(),
        })
    } else {
        Err(Missing::Lists)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::two_lists_after(Some(10), Some((20, false)), Some((30, false)), Ok(()))]
    #[case::ready(None, Some((20, false)), Some((30, false)), Err(Missing::NotReady))]
    #[case::one_list_before(Some(25), Some((20, false)), Some((30, false)), Err(Missing::Lists))]
    #[case::begun_at_the_same_moment(Some(20), Some((20, false)), Some((30, false)), Err(Missing::Lists))]
    #[case::only_one_list(Some(10), None, Some((30, false)), Err(Missing::Lists))]
    #[case::no_list(Some(10), None, None, Err(Missing::Lists))]
    #[case::shown_by_the_older(Some(10), Some((20, true)), Some((30, false)), Err(Missing::Lists))]
    #[case::shown_by_the_newer(Some(10), Some((20, false)), Some((30, true)), Err(Missing::Lists))]
    fn absence_needs_two_complete_lists_after_the_node_became_not_ready(
        #[case] not_ready_at: Option<u64>,
        #[case] older: Option<(u64, bool)>,
        #[case] newer: Option<(u64, bool)>,
        #[case] expected: Result<(), Missing>,
    ) {
        let start = runtime::clock::now();
        let at = |second: u64| start + Duration::from_secs(second);
        let sighting = |(second, shows_machine): (u64, bool)| Sighting {
            list: second.to_string(),
            began: at(second),
            shows_machine,
        };
        let (older, newer) = (older.map(sighting), newer.map(sighting));
        let found = absence(older.as_ref(), newer.as_ref(), not_ready_at.map(at));
        assert_eq!(found.map(|_| ()), expected);
    }

    #[test]
    fn one_list_seen_twice_is_one_list() {
        let now = runtime::clock::now();
        let sighting = Sighting {
            list: "a".into(),
            began: now + Duration::from_secs(1),
            shows_machine: false,
        };
        assert_eq!(
            absence(Some(&sighting), Some(&sighting), Some(now)),
            Err(Missing::Lists)
        );
    }
}
