//! IPv4 addresses and sets of them.
//!
//! Decides what counts as an address that can be announced: canonical dotted IPv4 that names one machine. Everything
//! is interval arithmetic on `u32`, so that a pool of sixteen million addresses costs as much as one of six. Leaves
//! to [`super::pool`] which of the addresses may be given to whom. Fact relied on: a ConfigMap key may hold letters,
//! digits, `-`, `_` and `.` only, so an IPv6 address can't be a key, and keepalived skips keys it can't parse.

use std::collections::BTreeSet;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr};

/// Why a text is no address that can be announced.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AddressError {
    /// Not an IP address in any spelling.
    #[error("\"{0}\" is not an IP address")]
    NotAnAddress(String),
    /// An IPv6 address, or an IPv4 address in IPv6 spelling.
    #[error(
        "\"{0}\" is an IPv6 address; the address is the key of a ConfigMap entry, and such a key can't hold a colon, so only IPv4 is possible"
    )]
    Ipv6(String),
    /// An IPv4 address that names no single machine.
    #[error("{0} is not a unicast address")]
    NotUnicast(Ipv4Addr),
}

/// Reads a canonical dotted unicast IPv4 address; blanks around it are ignored.
pub fn parse(text: &str) -> Result<Ipv4Addr, AddressError> {
    let text = text.trim();
    let address = match text.parse::<IpAddr>() {
        Ok(IpAddr::V4(address)) => address,
        Ok(IpAddr::V6(_)) => return Err(AddressError::Ipv6(text.to_owned())),
        Err(_) => return Err(AddressError::NotAnAddress(text.to_owned())),
    };
    if is_unicast(address) {
        Ok(address)
    } else {
        Err(AddressError::NotUnicast(address))
    }
}

/// Reads a ConfigMap key or recorded text: canonical IPv4 without anything around it, of any class.
pub fn canonical(text: &str) -> Option<Ipv4Addr> {
    let address: Ipv4Addr = text.parse().ok()?;
    (address.to_string() == text).then_some(address)
}

/// Neither "this network", loopback, multicast nor reserved.
pub fn is_unicast(address: Ipv4Addr) -> bool {
    let first = address.octets()[0];
    first != 0 && first != 127 && first < 224
}

/// An inclusive range of addresses, never empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Range {
    first: u32,
    last: u32,
}

impl Range {
    /// The range between two addresses, or nothing when they are in the wrong order.
    pub fn new(first: Ipv4Addr, last: Ipv4Addr) -> Option<Self> {
        let (first, last) = (u32::from(first), u32::from(last));
        (first <= last).then_some(Self { first, last })
    }

    /// How many addresses it has.
    pub fn size(self) -> u64 {
        u64::from(self.last) - u64::from(self.first) + 1
    }

    /// Whether the address is one of them.
    pub fn contains(self, address: Ipv4Addr) -> bool {
        (self.first..=self.last).contains(&u32::from(address))
    }

    /// Whether the two have an address in common.
    pub fn overlaps(self, other: Self) -> bool {
        self.first <= other.last && other.first <= self.last
    }

    /// What is left of it without `other`: at most two pieces.
    fn without(self, other: Self) -> impl Iterator<Item = Self> {
        let (before, after) = if self.overlaps(other) {
            let before = (self.first < other.first).then(|| Self {
                first: self.first,
                last: other.first - 1,
            });
            let after = (self.last > other.last).then(|| Self {
                first: other.last + 1,
                last: self.last,
            });
            (before, after)
        } else {
            (Some(self), None)
        };
        before.into_iter().chain(after)
    }

    /// How many of its addresses end in 0 or 255.
    fn edges(self) -> u64 {
        // Numbers in 0..=n whose last byte is 0 or 255, counted per block of 256.
        let up_to = |n: u64| (n >> 8) * 2 + 1 + u64::from(n & 255 == 255);
        let below = if self.first == 0 {
            0
        } else {
            up_to(u64::from(self.first) - 1)
        };
        up_to(u64::from(self.last)) - below
    }
}

impl fmt::Display for Range {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.first == self.last {
            write!(f, "{}", Ipv4Addr::from(self.first))
        } else {
            write!(f, "{}-{}", Ipv4Addr::from(self.first), Ipv4Addr::from(self.last))
        }
    }
}

/// Disjoint ranges in the order in which they are used.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ranges(Vec<Range>);

impl Ranges {
    /// Takes up a range; what the set has already is not taken twice.
    pub fn add(&mut self, range: Range) {
        let mut pieces = vec![range];
        for known in &self.0 {
            pieces = pieces
                .into_iter()
                .flat_map(|piece| piece.without(*known))
                .collect();
        }
        self.0.extend(pieces);
    }

    /// The set without the addresses of another one, in the same order.
    #[must_use]
    pub fn without(&self, other: &Self) -> Self {
        let mut left = self.0.clone();
        for hole in &other.0 {
            left = left.into_iter().flat_map(|piece| piece.without(*hole)).collect();
        }
        Self(left)
    }

    /// Whether the address is in one of the ranges.
    pub fn contains(&self, address: Ipv4Addr) -> bool {
        self.0.iter().any(|range| range.contains(address))
    }

    /// A range of this set that overlaps one of the other.
    pub fn overlap(&self, other: &Self) -> Option<Range> {
        self.0
            .iter()
            .copied()
            .find(|range| other.0.iter().any(|theirs| theirs.overlaps(*range)))
    }

    /// The ranges.
    pub fn iter(&self) -> impl Iterator<Item = Range> + '_ {
        self.0.iter().copied()
    }

    /// Whether there is no address at all.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// How many addresses there are; `skip_edges` leaves out those that end in 0 or 255.
    pub fn size(&self, skip_edges: bool) -> u64 {
        let edges = |range: &Range| if skip_edges { range.edges() } else { 0 };
        self.0.iter().map(|range| range.size() - edges(range)).sum()
    }

    /// The first address that is not taken. Costs as much as there are taken addresses in the way.
    pub fn first_free(&self, taken: &BTreeSet<Ipv4Addr>, skip_edges: bool) -> Option<Ipv4Addr> {
        self.0
            .iter()
            .find_map(|range| first_free_in(*range, taken, skip_edges))
    }
}

impl fmt::Display for Ranges {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, range) in self.0.iter().enumerate() {
            let comma = if place == 0 { "" } else { ", " };
            write!(f, "{comma}{range}")?;
        }
        Ok(())
    }
}

fn first_free_in(range: Range, taken: &BTreeSet<Ipv4Addr>, skip_edges: bool) -> Option<Ipv4Addr> {
    let mut blocking = taken
        .range(Ipv4Addr::from(range.first)..=Ipv4Addr::from(range.last))
        .peekable();
    let mut candidate = range.first;
    loop {
        let address = Ipv4Addr::from(candidate);
        let is_taken = blocking.next_if_eq(&&address).is_some();
        let is_edge = skip_edges && matches!(address.octets()[3], 0 | 255);
        if !is_taken && !is_edge {
            return Some(address);
        }
        if candidate == range.last {
            return None;
        }
        candidate += 1;
    }
}

/// Why an item of an address list can't be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ItemError {
    /// Neither a CIDR, a range nor an address.
    #[error("\"{0}\" is neither a CIDR (10.0.0.0/24), a range (10.0.0.10-10.0.0.20) nor an address")]
    Malformed(String),
    /// IPv6 in any place.
    #[error(
        "\"{0}\" is IPv6; the address is the key of a ConfigMap entry, and such a key can't hold a colon, so only IPv4 is possible"
    )]
    Ipv6(String),
    /// A range whose end lies before its start.
    #[error("the range \"{0}\" ends before it starts")]
    Reversed(String),
    /// Overlaps 0.0.0.0/8, 127.0.0.0/8 or 224.0.0.0/3.
    #[error("\"{0}\" holds addresses that no machine can have (0.0.0.0/8, 127.0.0.0/8 or 224.0.0.0/3)")]
    NotUnicast(String),
}

/// One item of a comma list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Item {
    /// Every address that it names, host bits masked.
    pub whole: Range,
    /// Those that can be given out: without network and broadcast address, where a CIDR of /30 or wider has them.
    pub usable: Range,
}

impl Item {
    /// Reads `10.0.0.0/24`, `10.0.0.1-10.0.0.9` or `10.0.0.7`.
    pub fn parse(text: &str) -> Result<Self, ItemError> {
        let text = text.trim();
        if text.contains(':') {
            return Err(ItemError::Ipv6(text.to_owned()));
        }
        let item = if let Some((base, bits)) = text.split_once('/') {
            Self::cidr(text, base, bits)?
        } else {
            Self::range(text)?
        };
        let all_unicast = [
            (0, 0x00ff_ffff),
            (0x7f00_0000, 0x7fff_ffff),
            (0xe000_0000, u32::MAX),
        ]
        .iter()
        .all(|&(first, last)| !item.whole.overlaps(Range { first, last }));
        if all_unicast {
            Ok(item)
        } else {
            Err(ItemError::NotUnicast(text.to_owned()))
        }
    }

    fn cidr(text: &str, base: &str, bits: &str) -> Result<Self, ItemError> {
        let malformed = || ItemError::Malformed(text.to_owned());
        let base: Ipv4Addr = base.trim().parse().map_err(|_| malformed())?;
        let bits: u8 = bits.trim().parse().map_err(|_| malformed())?;
        let net = ipnet::Ipv4Net::new(base, bits).map_err(|_| malformed())?;
        let whole = Range {
            first: u32::from(net.network()),
            last: u32::from(net.broadcast()),
        };
        let usable = if bits <= 30 {
            Range {
                first: whole.first + 1,
                last: whole.last - 1,
            }
        } else {
            whole
        };
        Ok(Self { whole, usable })
    }

    fn range(text: &str) -> Result<Self, ItemError> {
        let (first, last) = text.split_once('-').unwrap_or((text, text));
        let address = |part: &str| {
            part.trim()
                .parse()
                .map_err(|_| ItemError::Malformed(text.to_owned()))
        };
        let range = Range::new(address(first)?, address(last)?)
            .ok_or_else(|| ItemError::Reversed(text.to_owned()))?;
        Ok(Self {
            whole: range,
            usable: range,
        })
    }
}

/// Reads a comma list; every bad item is reported, not only the first.
pub fn parse_list(text: &str) -> Result<Vec<Item>, Vec<ItemError>> {
    let mut items = Vec::new();
    let mut errors = Vec::new();
    for part in text.split(',').filter(|part| !part.trim().is_empty()) {
        match Item::parse(part) {
            Ok(item) => items.push(item),
            Err(error) => errors.push(error),
        }
    }
    if errors.is_empty() { Ok(items) } else { Err(errors) }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::plain("10.0.0.1", Ok([10, 0, 0, 1]))]
    #[case::blanks(" 10.0.0.1 ", Ok([10, 0, 0, 1]))]
    #[case::leading_zero("010.0.0.1", Err("not an IP address"))]
    #[case::word("not-an-ip", Err("not an IP address"))]
    #[case::ipv6("fd00::5", Err("IPv6"))]
    #[case::mapped("::ffff:10.0.0.1", Err("IPv6"))]
    #[case::unspecified("0.0.0.0", Err("unicast"))]
    #[case::multicast("224.0.0.1", Err("unicast"))]
    #[case::loopback("127.0.0.1", Err("unicast"))]
    #[case::broadcast("255.255.255.255", Err("unicast"))]
    fn an_address_is_canonical_unicast_ipv4(#[case] text: &str, #[case] expected: Result<[u8; 4], &str>) {
        match (parse(text), expected) {
            (Ok(address), Ok(octets)) => assert_eq!(address, Ipv4Addr::from(octets)),
            (Err(error), Err(part)) => assert!(error.to_string().contains(part), "{error}"),
            (got, wanted) => panic!("{got:?} instead of {wanted:?}"),
        }
    }

    #[rstest]
    #[case::host_bits_are_masked("10.210.38.100/26", "10.210.38.65-10.210.38.126", 62)]
    #[case::thirty("10.0.0.0/30", "10.0.0.1-10.0.0.2", 2)]
    #[case::thirty_one("10.0.0.0/31", "10.0.0.0-10.0.0.1", 2)]
    #[case::thirty_two("10.0.0.8/32", "10.0.0.8", 1)]
    #[case::range("10.1.0.10 - 10.1.0.11", "10.1.0.10-10.1.0.11", 2)]
    #[case::single("10.1.0.10", "10.1.0.10", 1)]
    #[case::wide("10.0.0.0/8", "10.0.0.1-10.255.255.254", (1 << 24) - 2)]
    fn an_item_has_these_usable_addresses(#[case] text: &str, #[case] usable: &str, #[case] size: u64) {
        let item = Item::parse(text).unwrap();
        assert_eq!(item.usable.to_string(), usable);
        assert_eq!(item.usable.size(), size);
    }

    #[rstest]
    #[case::ipv6_cidr("fd00::/126", "is IPv6")]
    #[case::ipv6_range("fd00::1-fd00::9", "is IPv6")]
    #[case::reversed("10.0.0.9-10.0.0.1", "ends before it starts")]
    #[case::word("ten", "neither")]
    #[case::long_prefix("10.0.0.0/33", "neither")]
    #[case::everything("0.0.0.0/0", "no machine can have")]
    #[case::multicast("230.0.0.0/24", "no machine can have")]
    #[case::loopback("126.255.255.0-127.0.0.9", "no machine can have")]
    #[case::reserved("240.0.0.1", "no machine can have")]
    fn a_bad_item_says_why(#[case] text: &str, #[case] part: &str) {
        let error = Item::parse(text).unwrap_err().to_string();
        assert!(error.contains(part), "{error}");
    }

    #[test]
    fn a_list_reports_every_bad_item() {
        let errors = parse_list("10.0.0.0/24,ten,,fd00::1").unwrap_err();
        assert_eq!(errors.len(), 2);
    }

    fn range() -> impl Strategy<Value = Range> {
        (0_u32..600, 0_u32..600).prop_map(|(a, b)| Range {
            first: a.min(b),
            last: a.max(b),
        })
    }

    fn members(ranges: &Ranges) -> BTreeSet<u32> {
        ranges.iter().flat_map(|range| range.first..=range.last).collect()
    }

    proptest! {
        #[test]
        fn ranges_behave_as_sets(mine in prop::collection::vec(range(), 0..5), theirs in prop::collection::vec(range(), 0..5)) {
            let build = |list: &[Range]| {
                let mut ranges = Ranges::default();
                for range in list {
                    ranges.add(*range);
                }
                ranges
            };
            let (a, b) = (build(&mine), build(&theirs));
            prop_assert_eq!(a.size(false), members(&a).len() as u64);
            let left = a.without(&b);
            prop_assert_eq!(members(&left), members(&a).difference(&members(&b)).copied().collect::<BTreeSet<_>>());
            prop_assert_eq!(a.overlap(&b).is_some(), !members(&a).is_disjoint(&members(&b)));
            let inner = members(&a).iter().filter(|n| !matches!(*n & 255, 0 | 255)).count();
            prop_assert_eq!(a.size(true), inner as u64);
        }

        #[test]
        fn the_first_free_address_is_the_lowest_that_is_not_taken(only in range(), taken in prop::collection::btree_set(0_u32..600, 0..300), skip_edges: bool) {
            let mut ranges = Ranges::default();
            ranges.add(only);
            let taken: BTreeSet<Ipv4Addr> = taken.into_iter().map(Ipv4Addr::from).collect();
            let expected = (only.first..=only.last)
                .map(Ipv4Addr::from)
                .find(|a| !(taken.contains(a) || skip_edges && matches!(a.octets()[3], 0 | 255)));
            prop_assert_eq!(ranges.first_free(&taken, skip_edges), expected);
        }
    }
}
