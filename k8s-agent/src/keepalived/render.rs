//! What kube-keepalived-vip makes of the ConfigMap: the list of virtual servers, and the file for keepalived.
//!
//! For tests and demonstrations: it shows that what we write is understood. Written from the consumer's observed
//! behaviour, which it follows also where that is surprising (a named target port is found by the *Service* port's name;
//! an address without live back ends is not announced). Nothing in the agent's own work depends on it.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use k8s_openapi::api::core::v1::{Endpoints, Service, ServicePort};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::document::Entry;

/// One address and port, and where it leads.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct VirtualServer {
    /// `NAMESPACE-NAME`; empty for an address that is announced only.
    pub name: String,
    /// The address.
    pub address: String,
    /// The port; 0 for an address that is announced only.
    pub port: i32,
    /// TCP, UDP or SCTP.
    pub protocol: String,
    /// `NAT`, `DR` or `PROXY`.
    pub method: String,
    /// Address and port of every back end.
    pub back_ends: Vec<(String, i32)>,
}

/// Where a consumer runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Site {
    /// The interface that carries the addresses.
    pub interface: String,
    /// Address of the consumer's own node.
    pub own: String,
    /// Addresses of all its nodes.
    pub nodes: Vec<String>,
    /// Virtual router id.
    pub router_id: u8,
    /// Speak to the other nodes by unicast.
    pub unicast: bool,
    /// Leave out what Debian's build of keepalived complains about.
    pub plain: bool,
}

/// The virtual servers of a ConfigMap.
pub fn virtual_servers(
    data: &BTreeMap<String, String>,
    services: &[Service],
    endpoints: &[Endpoints],
) -> Vec<VirtualServer> {
    let mut servers = Vec::new();
    for (address, value) in data {
        let (namespace, name, method) = match Entry::parse(value) {
            Entry::AddressOnly => {
                servers.push(announced_only(address));
                continue;
            }
            Entry::Ignored => continue,
            Entry::Service {
                namespace,
                name,
                method,
            } => (namespace, name, method),
        };
        let is_it = |meta: &k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta| {
            meta.namespace.as_deref() == Some(&namespace) && meta.name.as_deref() == Some(&name)
        };
        let Some(service) = services.iter().find(|service| is_it(&service.metadata)) else {
            continue;
        };
        let endpoints = endpoints.iter().find(|endpoints| is_it(&endpoints.metadata));
        let ports = service
            .spec
            .as_ref()
            .and_then(|spec| spec.ports.as_deref())
            .unwrap_or_default();
        for port in ports {
            let back_ends = endpoints
                .map(|endpoints| back_ends(endpoints, port))
                .unwrap_or_default();
            if back_ends.is_empty() {
                continue;
            }
            servers.push(VirtualServer {
                name: format!("{namespace}-{name}"),
                address: address.clone(),
                port: port.port,
                protocol: port.protocol.clone().unwrap_or_else(|| "TCP".to_owned()),
                method: if method.is_empty() {
                    "NAT".to_owned()
                } else {
                    method.clone()
                },
                back_ends,
            });
        }
    }
    servers.sort_by(|a, b| (&a.name, &a.address, a.port).cmp(&(&b.name, &b.address, b.port)));
    servers
}

fn announced_only(address: &str) -> VirtualServer {
    VirtualServer {
        name: String::new(),
        address: address.to_owned(),
        port: 0,
        protocol: "TCP".to_owned(),
        method: "VIP".to_owned(),
        back_ends: Vec::new(),
    }
}

fn back_ends(endpoints: &Endpoints, port: &ServicePort) -> Vec<(String, i32)> {
    let mut found = Vec::new();
    for subset in endpoints.subsets.iter().flatten() {
        for target in subset.ports.iter().flatten() {
            let is_meant = match &port.target_port {
                Some(IntOrString::Int(number)) => target.port == *number,
                Some(IntOrString::String(name)) => target.name.as_deref() == Some(name),
                None => target.port == port.port,
            };
            if is_meant {
                let ready = subset.addresses.iter().flatten();
                found.extend(ready.map(|address| (address.ip.clone(), target.port)));
            }
        }
    }
    found.sort();
    found
}

/// The addresses that are announced, each once.
pub fn announced(servers: &[VirtualServer]) -> Vec<&str> {
    let mut addresses: Vec<&str> = Vec::new();
    for server in servers {
        if !addresses.contains(&server.address.as_str()) {
            addresses.push(&server.address);
        }
    }
    addresses
}

/// The file for keepalived.
pub fn keepalived_conf(servers: &[VirtualServer], site: &Site) -> String {
    let mut text = String::from("global_defs {\n  vrrp_version 3\n");
    text += if site.plain {
        "  dynamic_interfaces\n"
    } else {
        "  vrrp_iptables KUBE-KEEPALIVED-VIP\n"
    };
    text += "  script_user root\n  enable_script_security\n}\n";
    let addresses = announced(servers);
    if addresses.is_empty() {
        return text;
    }
    text += &instance(&addresses, site);
    for server in servers.iter().filter(|server| server.port != 0) {
        text += &virtual_server(server);
    }
    text
}

fn instance(addresses: &[&str], site: &Site) -> String {
    let mut nodes = site.nodes.clone();
    nodes.sort();
    let place = nodes.iter().position(|node| *node == site.own);
    let priority = place.map_or(99, |place| place + 100);
    let mut text = format!(
        "vrrp_instance vips {{\n  state BACKUP\n  interface {}\n  virtual_router_id {}\n  priority {priority}\n  nopreempt\n  advert_int 1\n",
        site.interface, site.router_id
    );
    if !site.plain {
        let _ = write!(text, "  track_interface {{\n    {}\n  }}\n", site.interface);
    }
    if site.unicast {
        let _ = write!(text, "  unicast_src_ip {}\n  unicast_peer {{\n", site.own);
        for peer in nodes.iter().filter(|node| **node != site.own) {
            let _ = writeln!(text, "    {peer}");
        }
        text += "  }\n";
    }
    text += "  virtual_ipaddress {\n";
    for address in addresses {
        let _ = writeln!(text, "    {address}");
    }
    text += "  }\n";
    if !site.plain {
        text += "  notify /keepalived-check.sh\n";
    }
    text + "}\n"
}

fn virtual_server(server: &VirtualServer) -> String {
    let mut text = format!(
        "# {}\nvirtual_server {} {} {{\n  delay_loop 5\n  lvs_sched wlc\n  lvs_method {}\n  persistence_timeout 1800\n  protocol {}\n",
        server.name, server.address, server.port, server.method, server.protocol
    );
    for (address, port) in &server.back_ends {
        let _ = write!(
            text,
            "  real_server {address} {port} {{\n    weight 1\n    TCP_CHECK {{\n      connect_port {port}\n      connect_timeout 3\n    }}\n  }}\n"
        );
    }
    text + "}\n"
}

#[cfg(test)]
pub(in crate::keepalived) mod tests;
