//! How rows look in answers: field names and types as the server writes them.

use serde_json::{Value, json};
use uuid::Uuid;

use crate::clock::Stamp;

use super::{
    AclItem, AclList, Address, FirewallRule, Job, JobStatus, Machine, Network, Object, Owner, Policy,
    RoleKind, Rule, Tag, Vpc, World,
};

/// Turns a `json!` object into a map without null fields: the server leaves those out.
pub(crate) fn object(value: Value) -> Object {
    match value {
        Value::Object(map) => map.into_iter().filter(|(_, value)| !value.is_null()).collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => Object::new(),
    }
}

/// Takes fields out.
pub(crate) fn strip(fields: &mut Object, names: &[&str]) {
    for name in names {
        fields.remove(*name);
    }
}

/// Id of the one management server.
pub(crate) const MANAGEMENT_SERVER: &str = "4ed00000-0000-4000-8000-000000000001";

/// Who reads the answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Reader {
    /// Kind of the caller's role.
    kind: RoleKind,
    now: Stamp,
}

impl Reader {
    /// A caller with a role of this kind, now.
    pub(crate) fn of(kind: RoleKind) -> Self {
        Self {
            kind,
            now: Stamp::now(),
        }
    }

    /// Milliseconds since an earlier moment.
    pub(crate) fn since(self, earlier: Stamp) -> u64 {
        self.now.since(earlier)
    }

    /// Root admins see more fields.
    pub(crate) fn is_root(self) -> bool {
        self.kind == RoleKind::Root
    }
}

impl World {
    /// `account` or `project`, and the domain.
    pub(crate) fn owner_fields(&self, owner: Owner) -> Object {
        let domain = self.domain_of(owner);
        let mut fields = object(json!({
            "domainid": domain.map(|domain| domain.id),
            "domain": domain.map(|domain| domain.name.as_str()),
            "domainpath": domain.map(|domain| domain.path.as_str()),
        }));
        match owner {
            Owner::Account(id) => {
                fields.insert(
                    "account".into(),
                    json!(self.accounts.get(id).map(|account| account.name.as_str())),
                );
            }
            Owner::Project(id) => {
                fields.insert("projectid".into(), json!(id));
                fields.insert(
                    "project".into(),
                    json!(self.projects.get(id).map(|project| project.name.as_str())),
                );
            }
            Owner::Domain(_) => {}
        }
        fields
    }

    fn zone_name(&self, zone: Uuid) -> Option<&str> {
        self.zones.get(zone).map(|zone| zone.name.as_str())
    }

    /// The `tags` array of an object.
    pub(crate) fn show_tags(&self, resource: Uuid) -> Value {
        self.tags_of(resource)
            .map(|tag| json!({ "key": tag.key, "value": tag.value }))
            .collect()
    }

    /// One tag.
    pub(crate) fn show_tag(&self, tag: &Tag) -> Object {
        let mut fields = self.owner_fields(tag.owner);
        fields.extend(object(json!({
            "key": tag.key, "value": tag.value, "resourcetype": tag.kind, "resourceid": tag.resource,
        })));
        fields
    }

    /// A public address.
    pub(crate) fn show_address(&self, address: &Address, reader: Reader) -> Object {
        let network = address.network.and_then(|id| self.networks.get(id));
        let vpc = address.vpc.and_then(|id| self.vpcs.get(id));
        let user = address
            .static_nat
            .or(address.machine)
            .and_then(|id| self.machines.get(id));
        let mut fields = address.shown.clone();
        let network = network.filter(|_| address.for_virtual_network);
        fields.extend(object(json!({
            "id": address.id,
            "ipaddress": address.address,
            "allocated": address.allocated.map(Stamp::text),
            "zoneid": address.zone,
            "zonename": self.zone_name(address.zone),
            "issourcenat": address.source_nat,
            "forvirtualnetwork": address.for_virtual_network,
            "isstaticnat": address.static_nat.is_some(),
            "issystem": address.system,
            "associatednetworkid": network.map(|network| network.id),
            "associatednetworkname": network.map(|network| network.name.as_str()),
            "vpcid": vpc.map(|vpc| vpc.id),
            "vpcname": vpc.map(|vpc| vpc.name.as_str()),
            "networkid": address.public_network,
            "physicalnetworkid": address.physical_network,
            "state": address.state.text(),
            "virtualmachineid": user.map(|machine| machine.id),
            "virtualmachinename": user.map(|machine| machine.name.as_str()),
            "virtualmachinedisplayname": user.and_then(|machine| machine.shown.get("displayname").cloned()),
            "networkname": address.public_network.and_then(|id| self.networks.get(id)).map(|network| network.name.as_str()),
            "tags": self.show_tags(address.id),
            "isportable": false,
            "hasrules": self.rules_on(address.id).next().is_some() || self.firewall_on(address.id).next().is_some(),
            "forsystemvms": false,
            "forprovider": false,
            "hasannotations": false,
        })));
        if let Some(owner) = address.owner {
            fields.extend(self.owner_fields(owner));
        }
        if reader.is_root() {
            fields.insert("fordisplay".into(), json!(true));
        } else {
            for name in ["vlanid", "vlanname", "fordisplay"] {
                fields.remove(name);
            }
        }
        fields
    }

    /// A load balancer rule.
    pub(crate) fn show_rule(&self, rule: &Rule, reader: Reader) -> Object {
        let address = self.addresses.get(rule.address);
        let zone = address.map(|address| address.zone);
        let mut fields = self.owner_fields(rule.owner);
        fields.extend(object(json!({
            "id": rule.id,
            "name": rule.name,
            "description": rule.description,
            "publicipid": rule.address,
            "publicip": address.map(|address| address.address.as_str()),
            "publicport": rule.public_port.to_string(),
            "privateport": rule.private_port.to_string(),
            "algorithm": rule.algorithm,
            "protocol": rule.protocol,
            "cidrlist": rule.sources,
            "networkid": rule.network,
            "state": rule.state.text(),
            "zoneid": zone,
            "zonename": zone.and_then(|zone| self.zone_name(zone)),
            "tags": self.show_tags(rule.id),
            "fordisplay": reader.is_root().then_some(true),
        })));
        fields
    }

    /// A firewall rule.
    pub(crate) fn show_firewall(&self, rule: &FirewallRule, reader: Reader) -> Object {
        object(json!({
            "id": rule.id,
            "protocol": rule.protocol,
            "startport": rule.ports.map(|ports| ports.0),
            "endport": rule.ports.map(|ports| ports.1),
            "icmptype": rule.icmp.map(|icmp| icmp.0),
            "icmpcode": rule.icmp.map(|icmp| icmp.1),
            "ipaddressid": rule.address,
            "ipaddress": self.addresses.get(rule.address).map(|address| address.address.as_str()),
            "networkid": rule.network,
            "state": rule.state.text(),
            "cidrlist": rule.sources.join(","),
            "destcidrlist": "",
            "traffictype": "Ingress",
            "tags": self.show_tags(rule.id),
            "fordisplay": reader.is_root().then_some(true),
        }))
    }

    /// An item of an ACL list.
    pub(crate) fn show_acl_item(&self, item: &AclItem, reader: Reader) -> Object {
        object(json!({
            "id": item.id,
            "protocol": item.protocol,
            "startport": item.ports.map(|ports| ports.0.to_string()),
            "endport": item.ports.map(|ports| ports.1.to_string()),
            "icmptype": item.icmp.map(|icmp| icmp.0),
            "icmpcode": item.icmp.map(|icmp| icmp.1),
            "cidrlist": item.sources,
            "traffictype": if item.ingress { "Ingress" } else { "Egress" },
            "action": if item.allow { "Allow" } else { "Deny" },
            "number": item.number,
            "aclid": item.list,
            "aclname": self.acl_lists.get(item.list).map(|list| list.name.as_str()),
            "state": item.state.text(),
            "reason": item.reason,
            "tags": self.show_tags(item.id),
            "fordisplay": reader.is_root().then_some(true),
        }))
    }

    /// An ACL list.
    pub(crate) fn show_acl_list(&self, list: &AclList, reader: Reader) -> Object {
        let vpc = list.vpc.and_then(|id| self.vpcs.get(id));
        object(json!({
            "id": list.id,
            "name": list.name,
            "description": list.description,
            "vpcid": vpc.map(|vpc| vpc.id),
            "vpcname": vpc.map(|vpc| vpc.name.as_str()),
            "fordisplay": reader.is_root().then_some(true),
        }))
    }

    /// A guest network.
    pub(crate) fn show_network(&self, network: &Network, reader: Reader) -> Object {
        let mut fields = network.shown.clone();
        let acl = network.acl.and_then(|id| self.acl_lists.get(id));
        fields.extend(object(json!({
            "id": network.id,
            "name": network.name,
            "aclid": acl.map(|acl| acl.id),
            "aclname": acl.map(|acl| acl.name.as_str()),
            "tags": self.show_tags(network.id),
        })));
        if network.kind != super::NetworkKind::Shared {
            fields.insert(
                "state".into(),
                json!(if network.implemented {
                    "Implemented"
                } else {
                    "Allocated"
                }),
            );
        }
        fields.extend(self.owner_fields(network.owner));
        if !reader.is_root() {
            for name in ["broadcasturi", "vlan", "displaynetwork", "details"] {
                fields.remove(name);
            }
        }
        fields
    }

    /// A VPC with its tiers.
    pub(crate) fn show_vpc(&self, vpc: &Vpc, reader: Reader) -> Object {
        let mut fields = vpc.shown.clone();
        fields.extend(object(
            json!({ "id": vpc.id, "name": vpc.name, "tags": self.show_tags(vpc.id) }),
        ));
        fields.extend(self.owner_fields(vpc.owner));
        let tiers: Vec<Value> = self
            .networks
            .iter()
            .rev()
            .filter(|network| network.vpc == Some(vpc.id))
            .map(|network| Value::Object(self.show_network(network, reader)))
            .collect();
        fields.insert("network".into(), Value::Array(tiers));
        if !reader.is_root() {
            fields.remove("fordisplay");
        }
        fields
    }

    /// A job. While it runs the server names the management server that works on it.
    pub(crate) fn show_job(&self, job: &Job) -> Object {
        let account = self.accounts.get(job.account);
        let domain = account.and_then(|account| self.domains.get(account.domain));
        let (status, code, result) = match &job.status {
            JobStatus::Pending => (0, 0, None),
            JobStatus::Done(result) => (1, 0, Some(result.clone())),
            JobStatus::Failed { code, text } => {
                (2, *code, Some(json!({ "errorcode": code, "errortext": text })))
            }
        };
        object(json!({
            "accountid": job.account,
            "account": account.map(|account| account.name.as_str()),
            "domainid": domain.map(|domain| domain.id),
            "domainpath": domain.map(|domain| domain.path.as_str()),
            "userid": job.user,
            "cmd": job.class,
            "jobprocstatus": 0,
            "jobresultcode": code,
            "jobresulttype": result.is_some().then_some("object"),
            "jobresult": result,
            "jobinstancetype": job.instance.map(|instance| instance.0),
            "jobinstanceid": job.instance.and_then(|instance| instance.1).filter(|id| self.still_there(job, *id)),
            "managementserverid": (status == 0).then_some(MANAGEMENT_SERVER),
            "managementservername": (status == 0).then_some("localhost"),
            "created": job.created.text(),
            "completed": job.completed.map(Stamp::text),
            "jobid": job.id,
            "jobstatus": status,
        }))
    }

    /// Jobs name rules only while they exist.
    fn still_there(&self, job: &Job, id: Uuid) -> bool {
        let rule = job.instance.is_some_and(|(kind, _)| kind == "FirewallRule");
        !rule || self.rules.get(id).is_some() || self.firewall_rules.get(id).is_some()
    }

    /// A stickiness policy.
    pub(crate) fn show_policy(policy: &Policy, reader: Reader) -> Object {
        let params: Object = policy
            .params
            .iter()
            .map(|(name, value)| (name.clone(), json!(value)))
            .collect();
        object(json!({
            "id": policy.id,
            "name": policy.name,
            "description": policy.description,
            "methodname": policy.method,
            "params": params,
            "state": (policy.state == super::RuleState::Deleting).then_some("Revoked"),
            "fordisplay": reader.is_root().then_some(true),
        }))
    }

    /// The job fields of an address that is being worked on, for lists.
    pub(crate) fn busy_address(&self, address: &Address) -> Object {
        let works = |job: &&Job| {
            job.instance == Some(("IpAddress", Some(address.id))) && matches!(job.status, JobStatus::Pending)
        };
        let job = self.jobs.iter().rev().find(works);
        job.map(|job| object(json!({ "jobid": job.id, "jobstatus": 0 })))
            .unwrap_or_default()
    }

    /// The job fields of a machine that is being worked on.
    pub(crate) fn busy_fields(&self, machine: &Machine) -> Object {
        let Some(job) = machine.busy.and_then(|id| self.jobs.get(id)) else {
            return Object::new();
        };
        match job.status {
            JobStatus::Pending => object(json!({ "jobid": job.id, "jobstatus": 0 })),
            JobStatus::Done(_) | JobStatus::Failed { .. } => Object::new(),
        }
    }
}
