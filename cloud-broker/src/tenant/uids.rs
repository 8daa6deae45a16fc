//! The UIDs that mark a cluster's objects in the cloud. Pure.
//!
//! The configuration may name them: the first is written, all are ours. If it names none, the caller's own word counts (the UID
//! of its namespace `kube-system`), and without that objects are marked `cluster=-`, which is ours for exactly the
//! Service it names, inside the fence.

use std::fmt;

/// One cluster UID: a word that is safe inside a mark.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClusterUid(String);

impl ClusterUid {
    /// Longest UID; a UUID has 36 characters.
    const LONGEST: usize = 64;

    /// Letters, digits, dots and dashes, at most 64, and not only a dash.
    pub fn new(text: &str) -> Option<Self> {
        let legal = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '.';
        let sound = !text.is_empty()
            && text.len() <= Self::LONGEST
            && text.chars().all(legal)
            && text.chars().any(|c| c.is_ascii_alphanumeric());
        sound.then(|| Self(text.to_owned()))
    }

    /// The word itself.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ClusterUid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The UIDs that count for one call. The first is written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClusterUids {
    uids: Vec<ClusterUid>,
    /// Only the caller says them.
    said: bool,
}

/// The caller says a UID that is not one of the configured ones.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the caller says that its cluster has the uid {said}, the configuration names {configured}")]
pub struct OtherUid {
    said: String,
    configured: String,
}

impl ClusterUids {
    /// What marks say instead of a UID that nobody gave.
    pub const NAMELESS: &'static str = "-";

    /// The UIDs that the configuration names.
    pub const fn configured(uids: Vec<ClusterUid>) -> Self {
        Self { uids, said: false }
    }

    /// The UID that new marks carry; without one they say `-`.
    pub fn written(&self) -> Option<&ClusterUid> {
        self.uids.first()
    }

    /// The word that new marks carry.
    pub fn mark(&self) -> &str {
        self.written().map_or(Self::NAMELESS, ClusterUid::as_str)
    }

    /// Whether a mark with this cluster's word is ours whatever Service it names.
    pub fn are_ours(&self, cluster: &str) -> bool {
        self.uids.iter().any(|uid| uid.as_str() == cluster)
    }

    /// All of them, the written one first.
    pub fn iter(&self) -> impl Iterator<Item = &ClusterUid> {
        self.uids.iter()
    }

    /// Nobody gave one.
    pub fn is_unknown(&self) -> bool {
        self.uids.is_empty()
    }

    /// The configuration names none: such a cluster has its keys for itself (`fences`).
    pub fn is_alone(&self) -> bool {
        self.said || self.is_unknown()
    }

    /// What counts for a caller that says it is `said`.
    pub fn for_caller(&self, said: Option<ClusterUid>) -> Result<Self, OtherUid> {
        match said {
            None => Ok(self.clone()),
            Some(said) if self.is_unknown() => Ok(Self {
                uids: vec![said],
                said: true,
            }),
            Some(said) if self.are_ours(said.as_str()) => Ok(self.clone()),
            Some(said) => {
                let configured = self
                    .uids
                    .iter()
                    .map(ClusterUid::as_str)
                    .collect::<Vec<_>>()
                    .join(", ");
                Err(OtherUid {
                    said: said.to_string(),
                    configured,
                })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    fn uids(words: &[&str]) -> ClusterUids {
        ClusterUids::configured(words.iter().filter_map(|word| ClusterUid::new(word)).collect())
    }

    #[rstest]
    #[case::nobody_says_one(&[], None, Some("-"))]
    #[case::only_the_caller(&[], Some("a"), Some("a"))]
    #[case::only_the_configuration(&["b", "c"], None, Some("b"))]
    #[case::the_caller_says_an_older_one(&["b", "c"], Some("c"), Some("b"))]
    #[case::the_caller_says_another(&["b", "c"], Some("a"), None)]
    fn the_configuration_decides_and_the_caller_fills_in(
        #[case] configured: &[&str],
        #[case] said: Option<&str>,
        #[case] mark: Option<&str>,
    ) {
        let result = uids(configured).for_caller(said.and_then(ClusterUid::new));
        assert_eq!(result.as_ref().ok().map(ClusterUids::mark), mark);
    }

    #[rstest]
    #[case::nobody_says_one(&[], None, true)]
    #[case::only_the_caller(&[], Some("a"), true)]
    #[case::the_configuration(&["a"], Some("a"), false)]
    fn a_cluster_without_a_uid_in_the_configuration_has_its_keys_for_itself(
        #[case] configured: &[&str],
        #[case] said: Option<&str>,
        #[case] alone: bool,
    ) {
        let uids = uids(configured).for_caller(said.and_then(ClusterUid::new));
        assert_eq!(uids.unwrap().is_alone(), alone);
    }

    #[rstest]
    #[case("3805e7e9-41d8-462e-88eb-44f01eff3d4f", true)]
    #[case("prod.example", true)]
    #[case("", false)]
    #[case("-", false)]
    #[case("a b", false)]
    #[case("a=b", false)]
    fn a_uid_is_a_word_that_is_safe_in_a_mark(#[case] text: &str, #[case] sound: bool) {
        assert_eq!(ClusterUid::new(text).is_some(), sound);
    }
}
