//! The ports of a Service as a wish: protocols that a load balancer has, node ports that are there, and the PROXY protocol
//! where it applies.

use k8s_openapi::api::core::v1::{ServicePort, ServiceSpec};
use proto::v1::WishPort;
use proto::v1::wish_port::Protocol;

use crate::events::Reason;
use crate::service::annotations::{self, Problem, Problems};
use crate::service::backend::{BackendName, Notice};
use crate::service::members::enumerate;

/// What the ports of a Service come to.
pub(super) struct Ports {
    pub(super) wish: Vec<WishPort>,
    pub(super) problems: Problems,
    pub(super) notices: Vec<Notice>,
}

/// Reads them.
pub(super) fn of(spec: &ServiceSpec, proxy_protocol: bool, backend: BackendName) -> Ports {
    let ports = spec.ports.as_deref().unwrap_or_default();
    let mut result = Ports {
        wish: Vec::with_capacity(ports.len()),
        problems: Problems::default(),
        notices: Vec::new(),
    };
    if ports.is_empty() {
        result.problems.push(Problem::new(
            "spec.ports",
            "is empty, and a load balancer needs at least one port",
        ));
    }
    for (index, port) in ports.iter().enumerate() {
        let wish = one(port, index, proxy_protocol);
        if backend == BackendName::Cloud {
            result.problems.extend(problems_of(&wish, index));
        }
        result.wish.push(wish);
    }
    if proxy_protocol && backend == BackendName::Cloud {
        result.notices.extend(without_proxy_protocol(&result.wish));
    }
    result
}

fn one(port: &ServicePort, index: usize, proxy_protocol: bool) -> WishPort {
    let protocol = match port.protocol.as_deref() {
        None | Some("TCP") => Protocol::Tcp,
        Some("UDP") => Protocol::Udp,
        Some("SCTP") => Protocol::Sctp,
        Some(_) => Protocol::Unspecified,
    };
    WishPort {
        name: port.name.clone().unwrap_or_else(|| index.to_string()),
        protocol: protocol as i32,
        port: number(port.port),
        node_port: number(port.node_port.unwrap_or_default()),
        proxy_protocol: proxy_protocol && protocol == Protocol::Tcp,
    }
}

/// A port number; what is none becomes 0, which is refused.
fn number(port: i32) -> u32 {
    u32::try_from(port)
        .ok()
        .filter(|port| u16::try_from(*port).is_ok())
        .unwrap_or_default()
}

fn problems_of(port: &WishPort, index: usize) -> Vec<Problem> {
    let mut problems = Vec::new();
    match port.protocol() {
        Protocol::Tcp | Protocol::Udp => {}
        Protocol::Sctp => problems.push(Problem::new(
            format!("spec.ports[{index}].protocol"),
            "SCTP is not carried by load balancers of the cloud; use TCP or UDP",
        )),
        Protocol::Unspecified => problems.push(Problem::new(
            format!("spec.ports[{index}].protocol"),
            "is not known to load balancers of the cloud; use TCP or UDP",
        )),
    }
    if port.port == 0 {
        problems.push(Problem::new(
            format!("spec.ports[{index}].port"),
            "must be between 1 and 65535",
        ));
    }
    if port.node_port == 0 {
        problems.push(Problem::new(
            format!("spec.ports[{index}].nodePort"),
            "is not allocated, and the load balancer reaches the nodes through it; \
             remove spec.allocateLoadBalancerNodePorts: false or name a node port",
        ));
    }
    problems
}

fn without_proxy_protocol(ports: &[WishPort]) -> Option<Notice> {
    let names: Vec<_> = ports
        .iter()
        .filter(|port| !port.proxy_protocol)
        .map(|port| port.name.as_str())
        .collect();
    (!names.is_empty()).then(|| {
        Notice::of(
            &Reason::PROXY_PROTOCOL_IGNORED,
            annotations::field(annotations::PROXY_PROTOCOL),
            format!("holds for TCP ports only, not for {}", enumerate(&names)),
        )
    })
}
