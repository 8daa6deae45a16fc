//! Reading a wish from a call.
//!
//! Decides which wishes can't be met whatever the cloud looks like, and names the field at fault; all of it before anything is
//! read or written.

use std::net::IpAddr;

use proto::v1;
use proto::{Fault, FaultKind};

use super::outcome::Note;
use super::sources::Sources;
use super::wish::{
    AdoptionHint, Dialect, DialectWish, Protocol, ServiceRef, ServiceUid, Wish, WishMembers, WishPort,
};
use crate::cloudstack::types::{Algorithm, MachineId};
use crate::tenant::{NameOrId, Policy};
use crate::words;

/// Most ports of one Service.
pub(crate) const MOST_PORTS: usize = 200;
/// Most nodes of one Service.
pub(crate) const MOST_MEMBERS: usize = 5000;

impl ServiceRef {
    /// Reads the reference of a call.
    pub fn from_proto(reference: Option<&v1::LoadBalancerRef>) -> Result<Self, Fault> {
        let reference = reference.ok_or_else(|| missing("ref"))?;
        let uid = ServiceUid::parse(&reference.uid).ok_or_else(|| {
            Fault::invalid(
                "BAD_SERVICE_UID",
                "ref.uid",
                "the uid of the service is empty or has characters that no uid has",
            )
        })?;
        words::label("ref.namespace", &reference.namespace)?;
        words::name("ref.name", &reference.name)?;
        Ok(Self {
            uid,
            namespace: reference.namespace.clone(),
            name: reference.name.clone(),
        })
    }
}

impl Wish {
    /// Reads and checks the wish of a call; notes say what of it was left out.
    pub fn from_proto(wish: Option<&v1::Wish>, policy: &Policy) -> Result<(Self, Vec<Note>), Fault> {
        let wish = wish.ok_or_else(|| missing("wish"))?;
        let (network, accept_replace) = (wish.network.trim(), wish.accept_replace.trim());
        words::short("network", network)?;
        words::short("accept_replace", accept_replace)?;
        for source in &wish.sources {
            words::short("sources", source)?;
        }
        let (sources, skipped) = Sources::from_wish(&wish.sources)
            .map_err(|error| Fault::invalid("BAD_SOURCES", "sources", error.to_string()))?;
        let mut notes = Vec::new();
        if skipped > 0 {
            let text = format!(
                "{skipped} IPv6 networks of the source ranges are ignored: the public address is IPv4"
            );
            notes.push(Note::warning("SourcesIgnored", text).about("sources"));
        }
        let read = Self {
            ports: ports(&wish.ports, policy)?,
            members: members(&wish.members)?,
            sources,
            requested: requested(&wish.requested_address, policy)?,
            keep_address: wish.keep_address,
            network: (!network.is_empty()).then(|| NameOrId::new(network)),
            algorithm: algorithm(wish)?,
            dialect: DialectWish::from_proto(wish.dialect.as_ref())?,
            accept_replace: accept_replace.to_owned(),
            adoption: AdoptionHint::from_proto(wish.adoption.as_ref()),
        };
        Ok((read, notes))
    }
}

impl DialectWish {
    /// Reads the dialect of a call; none is Apache's.
    pub fn from_proto(dialect: Option<&v1::Dialect>) -> Result<Self, Fault> {
        let Some(dialect) = dialect else {
            return Ok(Self {
                kind: Dialect::Apache,
                cluster_name: String::new(),
            });
        };
        words::short("dialect.cluster_name", &dialect.cluster_name)?;
        let kind = match v1::dialect::Kind::try_from(dialect.kind) {
            Ok(v1::dialect::Kind::Unspecified | v1::dialect::Kind::Apache) => Dialect::Apache,
            Ok(v1::dialect::Kind::Leaseweb) => Dialect::Leaseweb,
            Err(_) => {
                let text =
                    "this broker does not know the dialect; use an agent of its own version or an older one";
                return Err(Fault::invalid("UNKNOWN_DIALECT", "dialect.kind", text));
            }
        };
        if kind == Dialect::Leaseweb && dialect.cluster_name.is_empty() {
            let text = "the Leaseweb dialect needs a cluster name, since it is part of every rule's name";
            return Err(Fault::invalid("NO_CLUSTER_NAME", "dialect.cluster_name", text));
        }
        Ok(Self {
            kind,
            cluster_name: dialect.cluster_name.clone(),
        })
    }
}

impl AdoptionHint {
    /// Reads the hint of a call. Anybody in the namespace can write it, and neither serving nor deleting fails for it: an address
    /// that can't be read is none.
    pub fn from_proto(hint: Option<&v1::Adoption>) -> Self {
        let Some(hint) = hint else {
            return Self::default();
        };
        let asked = words::hint("adoption.load_balancer_ip", &hint.load_balancer_ip);
        Self {
            load_balancer_ip: asked.unwrap_or_default().to_owned(),
            ip_associated_by_controller: hint.ip_associated_by_controller,
        }
    }
}

fn missing(field: &str) -> Fault {
    Fault::invalid("MISSING_FIELD", field, format!("the call has no {field}"))
}

fn algorithm(wish: &v1::Wish) -> Result<Algorithm, Fault> {
    match v1::wish::Algorithm::try_from(wish.algorithm) {
        Ok(v1::wish::Algorithm::Unspecified | v1::wish::Algorithm::RoundRobin) => Ok(Algorithm::RoundRobin),
        Ok(v1::wish::Algorithm::Source) => Ok(Algorithm::Source),
        Ok(v1::wish::Algorithm::LeastConnections) => Ok(Algorithm::LeastConnections),
        Err(_) => {
            let text =
                "this broker does not know the algorithm; use an agent of its own version or an older one";
            Err(Fault::invalid("UNKNOWN_ALGORITHM", "algorithm", text))
        }
    }
}

fn requested(text: &str, policy: &Policy) -> Result<Option<IpAddr>, Fault> {
    let (field, text) = ("requested_address", text.trim());
    words::short(field, text)?;
    if text.is_empty() {
        return Ok(None);
    }
    let ip: IpAddr = text
        .parse()
        .map_err(|_| Fault::invalid("BAD_ADDRESS", field, format!("\"{text}\" is no IP address")))?;
    if ip.is_ipv6() {
        return Err(Fault::invalid(
            "ADDRESS_IS_IPV6",
            field,
            format!("{ip} is IPv6; public addresses are IPv4"),
        ));
    }
    if !policy.allowed_addresses.admit(ip) {
        let text = format!("{ip} is not among the addresses that this cluster may use");
        return Err(Fault::new(FaultKind::Denied, "ADDRESS_NOT_ALLOWED", text).with_field(field));
    }
    Ok(Some(ip))
}

fn ports(list: &[v1::WishPort], policy: &Policy) -> Result<Vec<WishPort>, Fault> {
    if list.is_empty() {
        return Err(Fault::invalid("NO_PORTS", "ports", "the service has no port"));
    }
    if list.len() > MOST_PORTS {
        let text = format!(
            "the service has {} ports; at most {MOST_PORTS} are served",
            list.len()
        );
        return Err(Fault::invalid("TOO_MANY_PORTS", "ports", text));
    }
    let mut read: Vec<WishPort> = Vec::with_capacity(list.len());
    for (index, wish) in list.iter().enumerate() {
        words::label(&format!("ports[{index}].name"), &wish.name)?;
        let label = if wish.name.is_empty() {
            index.to_string()
        } else {
            wish.name.clone()
        };
        let port = port(wish, &label, policy)?;
        if let Some(other) = read.iter().find(|other| other.port == port.port) {
            let same = other.protocol.transport() == port.protocol.transport();
            let reason = if same {
                "PORT_TWICE"
            } else {
                "TCP_AND_UDP_ON_ONE_PORT"
            };
            let text = format!(
                "port {} is wanted twice ({} and {}); CloudStack has one rule per port of an address, whatever the \
                 protocol, so use another port or a second service",
                port.port,
                other.protocol.word(),
                port.protocol.word()
            );
            return Err(Fault::invalid(reason, format!("ports[{label}].port"), text));
        }
        read.push(port);
    }
    Ok(read)
}

fn port(wish: &v1::WishPort, label: &str, policy: &Policy) -> Result<WishPort, Fault> {
    let field = |name: &str| format!("ports[{label}].{name}");
    let protocol = match (
        v1::wish_port::Protocol::try_from(wish.protocol),
        wish.proxy_protocol,
    ) {
        (Ok(v1::wish_port::Protocol::Unspecified | v1::wish_port::Protocol::Tcp), false) => Protocol::Tcp,
        (Ok(v1::wish_port::Protocol::Unspecified | v1::wish_port::Protocol::Tcp), true) => Protocol::TcpProxy,
        (Ok(v1::wish_port::Protocol::Udp), _) => Protocol::Udp,
        (Ok(v1::wish_port::Protocol::Sctp), _) => {
            let text = "CloudStack balances no SCTP; use TCP or UDP";
            return Err(Fault::invalid("SCTP_NOT_SUPPORTED", field("protocol"), text));
        }
        (Err(_), _) => {
            let text = "this broker does not know the protocol; use TCP or UDP";
            return Err(Fault::invalid("UNKNOWN_PROTOCOL", field("protocol"), text));
        }
    };
    let number = |value: u32| u16::try_from(value).ok().filter(|value| *value > 0);
    let public = number(wish.port).ok_or_else(|| {
        Fault::invalid(
            "BAD_PORT",
            field("port"),
            format!("{} is no port number", wish.port),
        )
    })?;
    let node_port = number(wish.node_port).ok_or_else(|| {
        let text = "the port has no node port; set allocateLoadBalancerNodePorts to true, since the balancer sends to it";
        Fault::invalid("NO_NODE_PORT", field("node_port"), text)
    })?;
    if !policy.member_ports.contains(node_port) {
        let (first, last) = (policy.member_ports.first(), policy.member_ports.last());
        let text =
            format!("node port {node_port} is outside {first}-{last}, the member ports of this cluster");
        return Err(Fault::invalid("NODE_PORT_OUT_OF_RANGE", field("node_port"), text));
    }
    Ok(WishPort {
        name: wish.name.clone(),
        protocol,
        port: public,
        node_port,
    })
}

fn members(list: &[v1::WishMember]) -> Result<WishMembers, Fault> {
    use v1::wish_member::Machine;
    if list.len() > MOST_MEMBERS {
        let text = format!(
            "the service has {} nodes; at most {MOST_MEMBERS} are served",
            list.len()
        );
        return Err(Fault::invalid("TOO_MANY_MEMBERS", "members", text));
    }
    let id = |text: &str, node: &str| {
        MachineId::parse(text)
            .map_err(|error| Fault::invalid("BAD_MACHINE_ID", format!("members[{node}]"), error.to_string()))
    };
    let mut read = WishMembers::default();
    for (index, member) in list.iter().enumerate() {
        let node = &member.node_name;
        words::name(&format!("members[{index}].node_name"), node)?;
        match &member.machine {
            Some(Machine::MachineId(text)) => {
                read.machines.insert(id(text, node)?, node.clone());
            }
            Some(Machine::GoneMachineId(text)) => {
                read.gone.insert(id(text, node)?);
            }
            Some(Machine::Unresolved(_)) | None => read.unresolved.push(node.clone()),
        }
    }
    // A machine that another node claims is there, whatever was said of it elsewhere.
    let WishMembers { machines, gone, .. } = &mut read;
    gone.retain(|machine| !machines.contains_key(machine));
    Ok(read)
}

#[cfg(test)]
#[path = "wish_tests.rs"]
mod tests;
