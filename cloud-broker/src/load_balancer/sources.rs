//! Source networks: who may reach a balancer.
//!
//! Decides how lists of networks are compared (as sets, host bits cleared), hashed for marks, and spelled for the two layers
//! that filter: the rule's own list, which a server cuts at 255 characters without a word, and firewall rules, where a network
//! spelled the same way in two rules of a port collides.

use std::collections::BTreeSet;
use std::fmt::{self, Write as _};

use ipnet::{IpNet, Ipv4Net};
use sha2::{Digest as _, Sha256};

use crate::cloudstack::types::CidrList;

/// Most characters of a rule's list that survive in a server.
const LONGEST_RULE_LIST: usize = 255;

/// A set of IPv4 networks, never empty; everybody is `0.0.0.0/0` alone.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Sources(BTreeSet<Ipv4Net>);

/// Why a list of sources can't be met.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SourcesError {
    /// An entry is no network.
    #[error("\"{0}\" is no network in CIDR notation, such as 192.0.2.0/24")]
    NotANetwork(String),
    /// Nobody would be let in, since public addresses are IPv4.
    #[error("the list names IPv6 networks only, and the public address is IPv4")]
    OnlyIpv6,
}

impl Sources {
    /// Everybody.
    pub fn everybody() -> Self {
        Self(BTreeSet::from([Ipv4Net::default()]))
    }

    /// Reads the wish's list, empty for everybody, and counts the IPv6 networks that were left out.
    pub fn from_wish(list: &[String]) -> Result<(Self, usize), SourcesError> {
        let mut set = BTreeSet::new();
        let mut skipped = 0;
        for text in list {
            match parse(text).ok_or_else(|| SourcesError::NotANetwork(text.chars().take(60).collect()))? {
                IpNet::V4(net) => {
                    set.insert(net.trunc());
                }
                IpNet::V6(_) => skipped += 1,
            }
        }
        if set.is_empty() && skipped > 0 {
            return Err(SourcesError::OnlyIpv6);
        }
        Ok((Self::of(set), skipped))
    }

    /// Reads a server's list, empty for everybody; `None` if an entry is no IPv4 network, as the last one of a list
    /// that was cut.
    pub fn from_server(list: &CidrList) -> Option<Self> {
        let networks = list.networks()?;
        let v4 = networks.into_iter().map(|net| match net {
            IpNet::V4(net) => Some(net),
            IpNet::V6(_) => None,
        });
        v4.collect::<Option<BTreeSet<_>>>().map(Self::of)
    }

    /// Reads the list of an ACL item, where empty is nobody: `None` then, too.
    pub fn from_server_strict(list: &CidrList) -> Option<Self> {
        if list.is_empty() {
            None
        } else {
            Self::from_server(list)
        }
    }

    /// Whether anybody is let in by both.
    pub fn meets(&self, other: &Self) -> bool {
        let overlap = |ours: &Ipv4Net, theirs: &Ipv4Net| ours.contains(theirs) || theirs.contains(ours);
        self.0
            .iter()
            .any(|ours| other.0.iter().any(|theirs| overlap(ours, theirs)))
    }

    fn of(set: BTreeSet<Ipv4Net>) -> Self {
        if set.is_empty() || set.contains(&Ipv4Net::default()) {
            Self::everybody()
        } else {
            Self(set)
        }
    }

    /// Whether there is no restriction.
    pub fn is_everybody(&self) -> bool {
        self.0.contains(&Ipv4Net::default())
    }

    /// Whether everybody who is let in by `other` is let in here.
    pub fn covers(&self, other: &Self) -> bool {
        other
            .0
            .iter()
            .all(|theirs| self.0.iter().any(|ours| ours.contains(theirs)))
    }

    /// The short hash that marks carry.
    pub fn hash(&self) -> SourcesHash {
        let digest = Sha256::digest(self.joined().as_bytes());
        SourcesHash(hex(&digest, 4))
    }

    /// The list for a balancer's rule; `None` if a server would cut it.
    pub fn rule_list(&self) -> Option<CidrList> {
        (self.joined().len() <= LONGEST_RULE_LIST).then(|| self.list())
    }

    /// The networks as they are usually spelled.
    pub fn list(&self) -> CidrList {
        CidrList::verbatim(self.0.iter().map(ToString::to_string))
    }

    /// A spelling in which no entry is one of `taken`, letter by letter: host bits may be set at will. `None` if a network
    /// has no free spelling left, as single addresses that are taken.
    pub fn spelled_apart_from(&self, taken: &BTreeSet<String>) -> Option<CidrList> {
        let spell = |net: &Ipv4Net| {
            let size = 1_u64 << (32 - u32::from(net.prefix_len()));
            (0..size.min(256))
                .map(|host| {
                    let low = u32::try_from(host).unwrap_or(0);
                    format!(
                        "{}/{}",
                        std::net::Ipv4Addr::from(u32::from(net.network()) | low),
                        net.prefix_len()
                    )
                })
                .find(|text| !taken.contains(text))
        };
        self.0
            .iter()
            .map(spell)
            .collect::<Option<Vec<_>>>()
            .map(CidrList::verbatim)
    }

    fn joined(&self) -> String {
        self.0
            .iter()
            .map(ToString::to_string)
            .collect::<Vec<_>>()
            .join(",")
    }
}

impl fmt::Display for Sources {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.joined())
    }
}

/// The first bytes of a digest, in hexadecimal.
pub(super) fn hex(digest: &[u8], bytes: usize) -> String {
    digest.iter().take(bytes).fold(String::new(), |mut text, byte| {
        // Writing into a text does not fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

fn parse(text: &str) -> Option<IpNet> {
    text.trim().parse().ok()
}

/// First eight hexadecimal digits of the SHA-256 over a set of sources.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SourcesHash(String);

impl SourcesHash {
    /// Reads eight lower-case hexadecimal digits.
    pub fn parse(text: &str) -> Option<Self> {
        let sound = text.len() == 8 && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
        sound.then(|| Self(text.to_owned()))
    }

    /// The digits.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rstest::rstest;

    use super::*;

    fn sources(text: &str) -> Sources {
        let list: Vec<String> = text
            .split(' ')
            .filter(|part| !part.is_empty())
            .map(str::to_owned)
            .collect();
        Sources::from_wish(&list).unwrap().0
    }

    #[rstest]
    #[case::order("10.0.0.0/8 192.0.2.0/24", "192.0.2.0/24 10.0.0.0/8", true)]
    #[case::host_bits("10.1.2.3/8", "10.0.0.0/8", true)]
    #[case::twice("10.0.0.0/8 10.0.0.0/8", "10.0.0.0/8", true)]
    #[case::nothing_is_everybody("", "0.0.0.0/0", true)]
    #[case::everybody_swallows("10.0.0.0/8 0.0.0.0/0", "", true)]
    #[case::another("10.0.0.0/8", "11.0.0.0/8", false)]
    fn lists_are_compared_as_sets_of_networks(#[case] one: &str, #[case] other: &str, #[case] same: bool) {
        assert_eq!(sources(one) == sources(other), same);
        assert_eq!(sources(one).hash() == sources(other).hash(), same);
    }

    #[rstest]
    #[case::no_network(&["10.0.0.0/33"], SourcesError::NotANetwork("10.0.0.0/33".into()))]
    #[case::plain_address(&["10.0.0.1"], SourcesError::NotANetwork("10.0.0.1".into()))]
    #[case::only_v6(&["2001:db8::/32"], SourcesError::OnlyIpv6)]
    fn a_list_that_can_not_be_met_is_refused(#[case] list: &[&str], #[case] error: SourcesError) {
        let list: Vec<String> = list.iter().map(|text| (*text).to_owned()).collect();
        assert_eq!(Sources::from_wish(&list), Err(error));
    }

    #[test]
    fn ipv6_networks_beside_others_are_counted_and_left_out() {
        let list = ["2001:db8::/32".to_owned(), "10.0.0.0/8".to_owned()];
        assert_eq!(Sources::from_wish(&list), Ok((sources("10.0.0.0/8"), 1)));
    }

    #[test]
    fn the_hash_is_the_documented_one() {
        // printf '10.0.0.0/8,192.0.2.0/24' | sha256sum
        assert_eq!(sources("192.0.2.0/24 10.0.0.0/8").hash().as_str(), "21ca4f99");
        assert_eq!(Sources::everybody().hash().as_str(), "b42e1836");
    }

    #[rstest]
    #[case::blanks("10.0.0.0/8 192.0.2.0/24", Some("10.0.0.0/8 192.0.2.0/24"))]
    #[case::commas("10.0.0.0/8,192.0.2.0/24", Some("10.0.0.0/8 192.0.2.0/24"))]
    #[case::empty("", Some(""))]
    #[case::plain_address("192.0.2.7", Some("192.0.2.7/32"))]
    #[case::cut("10.0.0.0/8 192.0.2", None)]
    fn a_servers_list_is_read_in_every_spelling(#[case] text: &str, #[case] same_as: Option<&str>) {
        assert_eq!(Sources::from_server(&CidrList::parse(text)), same_as.map(sources));
    }

    #[test]
    fn a_list_that_a_server_would_cut_is_none_for_a_rule() {
        let fits: Vec<String> = (0..14).map(|i| format!("192.168.{i}.0/24")).collect();
        assert!(Sources::from_wish(&fits).unwrap().0.rule_list().is_some());
        let too_long: Vec<String> = (0..40).map(|i| format!("192.168.{i}.0/24")).collect();
        assert!(Sources::from_wish(&too_long).unwrap().0.rule_list().is_none());
    }

    #[rstest]
    #[case::nothing_taken("10.0.0.0/8", &[], Some("10.0.0.0/8"))]
    #[case::next_spelling("10.0.0.0/8", &["10.0.0.0/8"], Some("10.0.0.1/8"))]
    #[case::everybody("", &["0.0.0.0/0", "0.0.0.1/0"], Some("0.0.0.2/0"))]
    #[case::one_of_two("10.0.0.0/8 192.0.2.0/24", &["192.0.2.0/24"], Some("10.0.0.0/8,192.0.2.1/24"))]
    #[case::a_single_address("192.0.2.7/32", &["192.0.2.7/32"], None)]
    fn a_network_is_respelled_where_its_spelling_is_taken(
        #[case] wanted: &str,
        #[case] taken: &[&str],
        #[case] spelled: Option<&str>,
    ) {
        let taken = taken.iter().map(|text| (*text).to_owned()).collect();
        let list = sources(wanted).spelled_apart_from(&taken);
        assert_eq!(list.map(|list| list.to_string()).as_deref(), spelled);
    }

    proptest! {
        #[test]
        fn every_spelling_is_the_same_set(octet in 0_u8..=255, prefix in 1_u8..=31) {
            let wanted = sources(&format!("{octet}.7.7.7/{prefix}"));
            let taken = wanted.list().entries().iter().cloned().collect();
            let respelled = wanted.spelled_apart_from(&taken).unwrap();
            prop_assert_eq!(Sources::from_server(&respelled), Some(wanted));
        }
    }
}
