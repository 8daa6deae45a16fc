//! The annotations of a Service: one table of their names, types, defaults and documentation, and the strict reading of
//! them.
//!
//! Pure. Decides what a value means and which values are refused. Leaves to [`super::intent`] how settings and fields of
//! the Service go together, and to [`super::status`] when outputs are written. The names are those of the controllers
//! before this one; a value that they ignored is refused instead of being taken for something, so that no Service
//! changes its meaning when the controller changes.

mod problem;
mod reference;
mod table;

use std::collections::BTreeMap;

use ipnet::IpNet;

pub use self::problem::{Problem, Problems, field};
pub use self::reference::reference;
pub use self::table::{Annotation, Direction, Kind, TABLE};
use super::backend::BackendName;
use super::choice::Running;
use super::texts::quoted;

/// `true` or `false`: send the PROXY protocol header.
pub const PROXY_PROTOCOL: &str = "service.beta.kubernetes.io/cloudstack-load-balancer-proxy-protocol";
/// Host name for the status in place of the address.
pub const HOSTNAME: &str = "service.beta.kubernetes.io/cloudstack-load-balancer-hostname";
/// Networks whose clients are let in.
pub const SOURCE_CIDRS: &str = "service.beta.kubernetes.io/cloudstack-load-balancer-source-cidrs";
/// Address that is asked for.
pub const ADDRESS: &str = "service.beta.kubernetes.io/cloudstack-load-balancer-address";
/// `true` or `false`: never release the address.
pub const KEEP_IP: &str = "service.beta.kubernetes.io/cloudstack-load-balancer-keep-ip";
/// Network to balance in.
pub const NETWORK: &str = "service.beta.kubernetes.io/cloudstack-load-balancer-network";
/// How connections are spread.
pub const ALGORITHM: &str = "service.beta.kubernetes.io/cloudstack-load-balancer-algorithm";
/// Plan that a person accepts.
pub const ACCEPT_REPLACE: &str = "service.beta.kubernetes.io/cloudstack-load-balancer-accept-replace";
/// Backend that is asked for.
pub const BACKEND: &str = "service.beta.kubernetes.io/cloudstack-load-balancer-backend";
/// Output: backend that serves the Service.
pub const SERVED_BY: &str = "service.beta.kubernetes.io/cloudstack-load-balancer-served-by";
/// Output: id of the public address.
pub const ID: &str = "service.beta.kubernetes.io/cloudstack-load-balancer-id";
/// Output: id of the network.
pub const NETWORK_ID: &str = "service.beta.kubernetes.io/cloudstack-load-balancer-network-id";
/// Output: whether the controller owns the address.
pub const IP_ASSOCIATED: &str =
    "service.beta.kubernetes.io/cloudstack-load-balancer-ip-associated-by-controller";
/// Stickiness method of a proposal to the Apache controller; has no effect.
pub const STICKY_METHOD: &str = "service.beta.kubernetes.io/cloudstack-load-balancer-stickyness-method-name";
/// Stickiness parameters of a proposal to the Apache controller; have no effect.
pub const STICKY_PARAM: &str = "service.beta.kubernetes.io/cloudstack-load-balancer-stickyness-method-param";
/// Kubernetes' own annotation for source ranges, read where the field is empty.
pub const SOURCE_RANGES: &str = "service.beta.kubernetes.io/load-balancer-source-ranges";
/// How keepalived forwards; read by that backend.
pub const FORWARD_METHOD: &str = "k8s.co/keepalived-forward-method";
/// Pool that keepalived's address is taken from; read by that backend.
pub const ADDRESS_POOL: &str = "service.beta.kubernetes.io/cloudstack-load-balancer-address-pool";
/// Services with the same key may share an address; read by the keepalived backend.
pub const SHARING_KEY: &str = "service.beta.kubernetes.io/cloudstack-load-balancer-sharing-key";

/// Networks in one list; more are refused unread, as the broker refuses them.
pub const MAX_NETWORKS: usize = 500;

/// How connections are spread, as the annotation spells it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spread {
    /// One after the other.
    RoundRobin,
    /// One client address, one member.
    Source,
    /// To the member with the fewest.
    LeastConnections,
}

/// What a list of networks says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Networks {
    /// Nothing: the annotation is not there.
    #[default]
    Unset,
    /// It is there and empty. The controllers before this one let everybody in then.
    Empty,
    /// Clients of these.
    Listed(Vec<IpNet>),
}

/// What the annotations of a Service say, read strictly.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// Send the PROXY protocol header on TCP ports.
    pub proxy_protocol: bool,
    /// Host name for the status.
    pub hostname: Option<String>,
    /// `...-source-cidrs`.
    pub source_cidrs: Networks,
    /// Kubernetes' own annotation for source ranges.
    pub source_ranges: Networks,
    /// Address asked for, as it stands.
    pub address: Option<String>,
    /// Never release the address.
    pub keep_ip: bool,
    /// Network to balance in.
    pub network: Option<String>,
    /// How connections are spread.
    pub algorithm: Option<Spread>,
    /// Plan that a person accepts.
    pub accept_replace: Option<String>,
    /// Backend asked for.
    pub backend: Option<BackendName>,
    /// Backend recorded as the one that serves.
    pub served_by: Option<BackendName>,
    /// What the Apache controller recorded. A hint for adoption, so a word that it would not have written is no fault.
    pub ip_associated_by_controller: bool,
    /// Annotations that are there and have no effect.
    pub without_effect: Vec<&'static str>,
}

impl Settings {
    /// Reads all annotations; every fault is found at once. What can't be read counts as not set beside its problem.
    pub fn read(annotations: &BTreeMap<String, String>) -> (Self, Problems) {
        let mut reader = Reader::of(annotations);
        let settings = Self {
            proxy_protocol: reader.boolean(PROXY_PROTOCOL),
            hostname: reader.hostname(HOSTNAME),
            source_cidrs: reader.networks(SOURCE_CIDRS),
            source_ranges: reader.networks(SOURCE_RANGES),
            address: reader.text(ADDRESS).map(str::to_owned),
            keep_ip: reader.boolean(KEEP_IP),
            network: reader.text(NETWORK).map(str::to_owned),
            algorithm: reader.word(ALGORITHM, spread),
            accept_replace: reader.text(ACCEPT_REPLACE).map(str::to_owned),
            backend: reader.word(BACKEND, BackendName::from_word),
            served_by: served_by(annotations),
            ip_associated_by_controller: reader.text(IP_ASSOCIATED) == Some("true"),
            without_effect: [STICKY_METHOD, STICKY_PARAM]
                .into_iter()
                .filter(|name| annotations.contains_key(*name))
                .collect(),
        };
        (settings, reader.problems)
    }

    /// Whether the address must stay when the Service goes. A word that can't be read keeps it: the other mistake can't be undone.
    pub fn keeps_address(annotations: &BTreeMap<String, String>) -> bool {
        let mut reader = Reader::of(annotations);
        let keep = reader.boolean(KEEP_IP);
        keep || !reader.problems.is_empty()
    }
}

/// Whether anything is there that only a backend that runs here, and the controllers before it, write. What another backend wrote belongs to the
/// process that runs it.
pub fn has_outputs(annotations: &BTreeMap<String, String>, running: Running) -> bool {
    let has = |name: &&str| annotations.contains_key(*name);
    served_by(annotations).is_some_and(|name| running.has(name))
        || running.has(BackendName::Cloud) && outputs_of(BackendName::Cloud).iter().any(has)
}

/// Who is recorded as the one that serves. A word that nobody here writes is none.
pub fn served_by(annotations: &BTreeMap<String, String>) -> Option<BackendName> {
    annotations
        .get(SERVED_BY)
        .and_then(|word| BackendName::from_word(word.trim()))
}

/// The annotations that the process of this backend writes while it runs alone.
pub const fn outputs_of(backend: BackendName) -> &'static [&'static str] {
    match backend {
        BackendName::Cloud => &[ID, NETWORK_ID, IP_ASSOCIATED],
        BackendName::Keepalived => &[SERVED_BY],
    }
}

fn spread(word: &str) -> Option<Spread> {
    match word {
        "roundrobin" => Some(Spread::RoundRobin),
        "source" => Some(Spread::Source),
        "leastconn" => Some(Spread::LeastConnections),
        _ => None,
    }
}

struct Reader<'a> {
    annotations: &'a BTreeMap<String, String>,
    problems: Problems,
}

impl<'a> Reader<'a> {
    fn of(annotations: &'a BTreeMap<String, String>) -> Self {
        Self {
            annotations,
            problems: Problems::default(),
        }
    }

    /// The value without blanks around it; an empty one counts as not set.
    fn text(&self, name: &str) -> Option<&'a str> {
        self.annotations
            .get(name)
            .map(|value| value.trim())
            .filter(|value| !value.is_empty())
    }

    fn boolean(&mut self, name: &str) -> bool {
        match self.text(name) {
            None | Some("false") => false,
            Some("true") => true,
            Some(other) => {
                self.problems.push(Problem::of(
                    name,
                    format!("must be \"true\" or \"false\", not {}", quoted(other)),
                ));
                false
            }
        }
    }

    fn word<T>(&mut self, name: &str, read: impl Fn(&str) -> Option<T>) -> Option<T> {
        let text = self.text(name)?;
        let value = read(text);
        if value.is_none() {
            let words = TABLE
                .iter()
                .find(|known| known.name == name)
                .map(Annotation::words)
                .unwrap_or_default();
            let words = words
                .iter()
                .map(|word| format!("{word:?}"))
                .collect::<Vec<_>>()
                .join(", ");
            self.problems.push(Problem::of(
                name,
                format!("must be one of {words}, not {}", quoted(text)),
            ));
        }
        value
    }

    fn hostname(&mut self, name: &str) -> Option<String> {
        let text = self.text(name)?.trim_end_matches('.').to_ascii_lowercase();
        if is_hostname(&text) {
            return Some(text);
        }
        self.problems.push(Problem::of(
            name,
            format!(
                "must be a host name such as \"lb.example.com\", not {}",
                quoted(&text)
            ),
        ));
        None
    }

    fn networks(&mut self, name: &str) -> Networks {
        let Some(value) = self.annotations.get(name) else {
            return Networks::Unset;
        };
        if value.trim().is_empty() {
            return Networks::Empty;
        }
        if let Some(text) = too_many(value.split(',').count()) {
            self.problems.push(Problem::of(name, text));
            return Networks::Unset;
        }
        let mut networks = Vec::new();
        let mut unreadable = false;
        for entry in value.split(',') {
            match network(entry) {
                Ok(network) => networks.push(network),
                Err(text) => {
                    unreadable = true;
                    self.problems.push(Problem::of(name, text));
                }
            }
        }
        if unreadable {
            Networks::Unset
        } else {
            Networks::Listed(networks)
        }
    }
}

/// What is wrong with a list of this many networks, if it is too long to be read.
pub fn too_many(networks: usize) -> Option<String> {
    (networks > MAX_NETWORKS).then(|| {
        format!("names {networks} networks, and at most {MAX_NETWORKS} are allowed; join neighbouring ones")
    })
}

/// One network in CIDR notation, with the host bits cleared.
pub fn network(text: &str) -> Result<IpNet, String> {
    let text = text.trim();
    text.parse::<IpNet>()
        .map(|network| network.trunc())
        .map_err(|_unparsable| format!("must be networks such as \"192.0.2.0/24\", not {}", quoted(text)))
}

/// A name as the API server accepts it in a status: labels of letters, digits and inner dashes, not an address.
fn is_hostname(text: &str) -> bool {
    let label = |label: &str| {
        (1..=63).contains(&label.len())
            && label
                .bytes()
                .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-')
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    text.len() <= 253 && text.split('.').all(label) && text.parse::<std::net::IpAddr>().is_err()
}

#[cfg(test)]
mod tests;
