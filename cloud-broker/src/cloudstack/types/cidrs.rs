//! Lists of source networks, compared as sets.

use std::collections::BTreeSet;
use std::fmt;

use ipnet::{IpNet, Ipv4Net, Ipv6Net};

/// A list of networks as the server spells it: commas after an update, blanks after a create, entries kept as given.
///
/// Absent and empty are one and the same here: which of "everything", "nothing" or "never given" an empty list means
/// depends on the object that carries it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CidrList(Vec<String>);

impl CidrList {
    /// Splits at any run of commas and white space.
    pub fn parse(text: &str) -> Self {
        let separator = |c: char| c == ',' || c.is_whitespace();
        Self(
            text.split(separator)
                .filter(|entry| !entry.is_empty())
                .map(str::to_owned)
                .collect(),
        )
    }

    /// The list that spells these networks.
    pub fn of<'a>(networks: impl IntoIterator<Item = &'a IpNet>) -> Self {
        Self(networks.into_iter().map(ToString::to_string).collect())
    }

    /// A list of entries that are sent exactly as given.
    pub fn verbatim(entries: impl IntoIterator<Item = String>) -> Self {
        Self(entries.into_iter().collect())
    }

    /// The entries as spelled, in the server's order.
    pub fn entries(&self) -> &[String] {
        &self.0
    }

    /// Whether there is no entry.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The networks with host bits cleared; a plain address is a network of one. `None` if an entry is neither, as
    /// the last one of a list that the server has cut.
    pub fn networks(&self) -> Option<BTreeSet<IpNet>> {
        self.0.iter().map(|entry| network(entry)).collect()
    }
}

fn network(entry: &str) -> Option<IpNet> {
    if let Ok(net) = entry.parse::<IpNet>() {
        return Some(net.trunc());
    }
    match entry.parse().ok()? {
        std::net::IpAddr::V4(ip) => Some(Ipv4Net::from(ip).into()),
        std::net::IpAddr::V6(ip) => Some(Ipv6Net::from(ip).into()),
    }
}

impl fmt::Display for CidrList {
    /// Comma separated, as parameters are sent.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0.join(","))
    }
}
