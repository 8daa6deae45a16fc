//! What a tenant may see and use: the fence around its cluster. Pure.
//!
//! Decides whether a network, a zone or a machine is inside, and whether two scopes on one account can be told apart.
//! Leaves to others: reading the configuration, asking the cloud. Networks and zones are named by id or by name, because
//! people know names and CloudStack's lists carry both.

use std::fmt;

use super::pattern::Pattern;
use crate::cloudstack::types::ProjectId;

/// The fence of one cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Scope {
    /// Project that every list is asked for; without one it is the account itself.
    pub project: Option<ProjectId>,
    /// Zones by name or id; empty is every zone.
    pub zones: Vec<NameOrId>,
    /// Networks by name or id; empty is every network of the project or account.
    pub networks: Vec<NameOrId>,
    /// Machines inside those networks.
    pub machines: Machines,
}

impl Scope {
    /// Whether a network with this id and name may be used.
    pub fn admits_network(&self, id: &str, name: &str) -> bool {
        self.networks.is_empty() || self.networks.iter().any(|network| network.is(id, name))
    }

    /// Whether a zone with this id and name may be used.
    pub fn admits_zone(&self, id: &str, name: &str) -> bool {
        self.zones.is_empty() || self.zones.iter().any(|zone| zone.is(id, name))
    }

    /// Whether the tenant is limited to a part of its account.
    pub fn is_limited(&self) -> bool {
        self.project.is_some() || !self.networks.is_empty()
    }

    /// Whether no object can be inside both, as far as the words of the configuration tell.
    pub fn is_apart_from(&self, other: &Self) -> bool {
        let other_project = self.project != other.project;
        let other_networks = !self.networks.is_empty()
            && !other.networks.is_empty()
            && self
                .networks
                .iter()
                .all(|mine| other.networks.iter().all(|theirs| mine.is_apart_from(theirs)));
        other_project || other_networks || self.machines.is_apart_from(&other.machines)
    }
}

/// A thing that the configuration names by its name or its id.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct NameOrId(String);

impl NameOrId {
    /// Takes the word as it stands in the configuration.
    pub fn new(word: impl Into<String>) -> Self {
        Self(word.into())
    }

    /// The word as it stands in the configuration.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether it means the thing with this id and name.
    pub fn is(&self, id: &str, name: &str) -> bool {
        self.0.eq_ignore_ascii_case(id) || self.0 == name
    }

    /// A name and an id may mean the same thing; two different names or two different ids can't.
    fn is_apart_from(&self, other: &Self) -> bool {
        self.looks_like_an_id() == other.looks_like_an_id() && !self.0.eq_ignore_ascii_case(&other.0)
    }

    fn looks_like_an_id(&self) -> bool {
        uuid::Uuid::try_parse(&self.0).is_ok()
    }
}

impl fmt::Display for NameOrId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Which machines of the networks belong to the tenant.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Machines {
    /// All of them.
    #[default]
    Any,
    /// Those whose name fits.
    Named(Pattern),
    /// Those with this tag.
    Tagged {
        /// Key of the tag; compared in any case, as CloudStack does.
        key: String,
        /// Value of the tag.
        value: String,
    },
}

impl Machines {
    /// Whether a machine with this name and these tags is one of them.
    pub fn admit<'t>(&self, name: &str, mut tags: impl Iterator<Item = (&'t str, &'t str)>) -> bool {
        match self {
            Self::Any => true,
            Self::Named(pattern) => pattern.fits(name),
            Self::Tagged { key, value } => tags.any(|(k, v)| k.eq_ignore_ascii_case(key) && v == value),
        }
    }

    fn is_apart_from(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Named(mine), Self::Named(theirs)) => !mine.overlaps(theirs),
            (Self::Tagged { key: k1, value: v1 }, Self::Tagged { key: k2, value: v2 }) => {
                k1.eq_ignore_ascii_case(k2) && v1 != v2
            }
            (Self::Any | Self::Named(_) | Self::Tagged { .. }, _) => false,
        }
    }
}

impl fmt::Display for Machines {
    /// As the configuration spells it; empty for all machines.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Any => Ok(()),
            Self::Named(pattern) => write!(f, "{pattern}"),
            Self::Tagged { key, value } => write!(f, "tag:{key}={value}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    const ID: &str = "3805e7e9-41d8-462e-88eb-44f01eff3d4f";
    const ID2: &str = "11111111-41d8-462e-88eb-44f01eff3d4f";

    fn scope(project: Option<&str>, networks: &[&str], machines: &str) -> Scope {
        let machines = match machines.strip_prefix("tag:").and_then(|tag| tag.split_once('=')) {
            Some((key, value)) => Machines::Tagged {
                key: key.into(),
                value: value.into(),
            },
            None if machines.is_empty() => Machines::Any,
            None => Machines::Named(Pattern::new(machines)),
        };
        Scope {
            project: project.map(|id| ProjectId::parse(id).unwrap()),
            zones: vec![],
            networks: networks.iter().copied().map(NameOrId::new).collect(),
            machines,
        }
    }

    #[rstest]
    #[case::nothing_limited(scope(None, &[], ""), scope(None, &[], ""), false)]
    #[case::two_projects(scope(Some("a"), &[], ""), scope(Some("b"), &[], ""), true)]
    #[case::project_and_account(scope(Some("a"), &[], ""), scope(None, &["n"], ""), true)]
    #[case::one_project(scope(Some("a"), &[], ""), scope(Some("a"), &[], ""), false)]
    #[case::two_networks(scope(None, &["a"], ""), scope(None, &["b", "c"], ""), true)]
    #[case::a_shared_network(scope(None, &["a", "b"], ""), scope(None, &["b"], ""), false)]
    #[case::names_in_another_case(scope(None, &["net"], ""), scope(None, &["NET"], ""), false)]
    #[case::one_side_unlimited(scope(None, &["a"], ""), scope(None, &[], ""), false)]
    #[case::a_name_and_an_id_may_be_one(scope(None, &["a"], ""), scope(None, &[ID], ""), false)]
    #[case::two_ids(scope(None, &[ID2], ""), scope(None, &[ID], ""), true)]
    #[case::shared_but_patterns_differ(scope(None, &["n"], "prod-*"), scope(None, &["n"], "test-*"), true)]
    #[case::shared_and_patterns_overlap(scope(None, &["n"], "prod-*"), scope(None, &["n"], "*-1"), false)]
    #[case::shared_but_tag_values_differ(scope(None, &["n"], "tag:k=a"), scope(None, &["n"], "tag:K=b"), true)]
    #[case::shared_and_tag_keys_differ(scope(None, &["n"], "tag:k=a"), scope(None, &["n"], "tag:l=b"), false)]
    #[case::a_tag_and_a_pattern_may_meet(scope(None, &["n"], "tag:k=a"), scope(None, &["n"], "a-*"), false)]
    fn two_scopes_are_apart_only_if_the_words_prove_it(
        #[case] a: Scope,
        #[case] b: Scope,
        #[case] apart: bool,
    ) {
        assert_eq!(a.is_apart_from(&b), apart);
        assert_eq!(b.is_apart_from(&a), apart);
    }

    #[test]
    fn a_network_is_admitted_by_exact_name_or_by_id() {
        let limited = scope(None, &["lab-net", ID], "");
        assert!(limited.admits_network("x", "lab-net"));
        assert!(limited.admits_network(&ID.to_uppercase(), "other"));
        assert!(!limited.admits_network("x", "lab-net2"));
        assert!(scope(None, &[], "").admits_network("x", "whatever"));
    }

    #[test]
    fn a_machine_is_admitted_by_pattern_or_tag() {
        let tags = || [("Cluster", "a")].into_iter();
        assert!(scope(None, &[], "tag:cluster=a").machines.admit("m", tags()));
        assert!(!scope(None, &[], "tag:cluster=b").machines.admit("m", tags()));
        assert!(scope(None, &[], "m*").machines.admit("m1", tags()));
        assert!(!scope(None, &[], "m*").machines.admit("n1", tags()));
    }
}
