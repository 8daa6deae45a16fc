//! Usual values for what a seed leaves out: a fresh installation with the virtual router.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::Object;
use crate::catalog;
use crate::state::show::object;

/// Global settings of a fresh installation.
pub(super) fn settings() -> BTreeMap<String, String> {
    [
        ("default.page.size", "500"),
        ("api.throttling.enabled", "false"),
        ("api.throttling.interval", "1"),
        ("api.throttling.max", "25"),
        ("enforce.post.requests.and.timestamps", "false"),
        ("public.ip.address.quarantine.duration", "0"),
        ("allow.user.view.destroyed.vm", "false"),
        ("network.loadbalancer.haproxy.stats.port", "8081"),
    ]
    .into_iter()
    .map(|(name, value)| (name.to_owned(), value.to_owned()))
    .collect()
}

/// The one domain.
pub(super) fn domain() -> Object {
    object(json!({ "name": "ROOT", "path": "ROOT" }))
}

/// The roles of a fresh installation, as far as the simulated commands go.
pub(super) fn roles() -> Vec<Object> {
    let all = json!([["*", "allow"]]);
    let user: Value = catalog::user_commands()
        .map(|name| json!([name, "allow"]))
        .collect();
    let kubernetes: Value = catalog::KUBERNETES_ROLE
        .iter()
        .map(|name| json!([name, "allow"]))
        .collect();
    vec![
        object(json!({ "name": "Root Admin", "type": "Admin", "permissions": all })),
        object(json!({ "name": "Domain Admin", "type": "DomainAdmin", "permissions": user })),
        object(json!({ "name": "User", "type": "User", "permissions": user })),
        object(
            json!({ "name": "Project Kubernetes Service Role", "type": "User", "permissions": kubernetes }),
        ),
    ]
}

/// A zone.
pub(super) fn zone() -> Object {
    object(json!({
        "name": "zone1", "networktype": "Advanced", "securitygroupsenabled": false, "allocationstate": "Enabled",
        "dhcpprovider": "VirtualRouter", "localstorageenabled": false, "tags": [], "type": "Core", "hasannotations": false,
    }))
}

/// An offering of machines.
pub(super) fn service_offering() -> Object {
    object(json!({
        "name": "Small Instance", "displaytext": "Small Instance", "state": "Active", "cpunumber": 1, "cpuspeed": 500, "memory": 512,
        "storagetype": "shared", "issystem": false, "iscustomized": false,
    }))
}

/// Fields of a machine that nothing here depends on.
pub(super) fn machine() -> Object {
    object(json!({
        "haenable": false, "hypervisor": "Simulator", "passwordenabled": false, "isdynamicallyscalable": false, "displayvm": true,
        "rootdeviceid": 0, "rootdevicetype": "ROOT", "securitygroup": [], "affinitygroup": [], "details": {}, "deleteprotection": false,
        "hostcontrolstate": "Enabled", "receivedbytes": 0, "sentbytes": 0, "pooltype": "NetworkFilesystem", "hasannotations": false,
        "cpunumber": 1, "cpuspeed": 500, "memory": 512,
    }))
}

/// A VPC.
pub(super) fn vpc(zone: uuid::Uuid, zone_name: Option<&str>) -> Object {
    let names = [
        "PortForwarding",
        "UserData",
        "Lb",
        "NetworkACL",
        "StaticNat",
        "Vpn",
        "Dhcp",
        "SourceNat",
        "Dns",
    ];
    let services: Value = names
        .iter()
        .map(|name| json!({ "name": name, "provider": [{ "name": "VpcVirtualRouter" }] }))
        .collect();
    object(json!({
        "state": "Enabled", "zoneid": zone, "zonename": zone_name, "service": services, "restartrequired": false, "redundantvpcrouter": false,
        "distributedvpcrouter": false, "regionlevelvpc": false, "tags": [], "fordisplay": true,
    }))
}

/// A network of a type.
pub(super) fn network(kind: &str, tier: bool) -> Object {
    let services: Value = match (kind, tier) {
        ("Isolated", false) => [
            "PortForwarding",
            "UserData",
            "Lb",
            "Firewall",
            "StaticNat",
            "Vpn",
            "Dhcp",
            "SourceNat",
            "Dns",
        ]
        .iter()
        .map(|name| service(name, "VirtualRouter"))
        .collect(),
        ("Isolated", true) => [
            "PortForwarding",
            "UserData",
            "Lb",
            "NetworkACL",
            "StaticNat",
            "Vpn",
            "Dhcp",
            "SourceNat",
            "Dns",
        ]
        .iter()
        .map(|name| service(name, "VpcVirtualRouter"))
        .collect(),
        ("Shared", _) => ["UserData", "Dhcp", "Dns"]
            .iter()
            .map(|name| service(name, "VirtualRouter"))
            .collect(),
        _ => json!([]),
    };
    let acl_type = if kind == "Shared" { "Domain" } else { "Account" };
    object(json!({
        "type": kind, "traffictype": "Guest", "broadcastdomaintype": "Vlan", "acltype": acl_type, "service": services, "issystem": false,
        "networkofferingconservemode": true, "restartrequired": false, "specifyipranges": kind == "Shared", "specifyvlan": kind == "Shared",
        "canusefordeploy": true, "ispersistent": false, "redundantrouter": false, "tags": [], "details": {}, "displaynetwork": true,
        "networkdomain": (kind != "L2").then_some("cs.internal"), "egressdefaultpolicy": (kind == "Isolated" && !tier).then_some(false), "hasannotations": false,
    }))
}

fn service(name: &str, provider: &str) -> Value {
    let capability = |name: &str, value: &str| json!({ "name": name, "value": value, "canchooseservicecapability": false });
    let capabilities = match name {
        "Lb" => vec![
            capability("SupportedProtocols", "tcp, udp, tcp-proxy, ssl"),
            capability("SupportedLbAlgorithms", "roundrobin,leastconn,source"),
            capability("LbSchemes", "Public"),
            capability("SupportedLBIsolation", "dedicated"),
        ],
        "Firewall" => vec![
            capability("SupportedProtocols", "tcp,udp,icmp"),
            capability("MultipleIps", "true"),
        ],
        "NetworkACL" => vec![capability("SupportedProtocols", "tcp,udp,icmp")],
        "SourceNat" => vec![
            capability("SupportedSourceNatTypes", "peraccount"),
            capability("RedundantRouter", "false"),
        ],
        "StaticNat" => vec![capability("ElasticIp", "false")],
        _ => Vec::new(),
    };
    json!({ "name": name, "provider": [{ "name": provider }], "capability": capabilities })
}

/// The two lists that every server has.
pub(super) fn acl_lists() -> Vec<Object> {
    let list = |name: &str, text: &str, action: &str| {
        let item = |number: i64, direction: &str| json!({ "number": number, "protocol": "all", "cidrlist": "0.0.0.0/0", "traffictype": direction, "action": action });
        object(json!({ "name": name, "description": text, "items": [item(1, "Ingress"), item(2, "Egress")] }))
    };
    vec![
        list("default_deny", "Default Network ACL Deny All", "Deny"),
        list("default_allow", "Default Network ACL Allow All", "Allow"),
    ]
}
