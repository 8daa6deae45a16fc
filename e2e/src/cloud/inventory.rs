//! What an account holds in CloudStack: the ground truth of every scenario, and its leak check.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::Result;
use serde_json::Value;

use super::client::Client;

/// A public address that somebody holds.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Address {
    /// The address itself.
    pub ip: String,
    /// Its id.
    pub id: String,
    /// Allocated, Allocating, Releasing.
    pub state: String,
    /// The network it belongs to, if to one.
    pub network: String,
}

/// A load balancer rule.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rule {
    /// Its id.
    pub id: String,
    /// Its name.
    pub name: String,
    /// The address it serves.
    pub ip: String,
    /// Public port.
    pub port: String,
    /// Port on the members.
    pub private_port: String,
    /// tcp, udp or tcp-proxy.
    pub protocol: String,
    /// Balancing algorithm.
    pub algorithm: String,
    /// Its source list as the server shows it.
    pub cidrs: String,
    /// Its description, where the ownership mark stands.
    pub description: String,
    /// Its state.
    pub state: String,
    /// Names of its members.
    pub members: BTreeSet<String>,
}

/// A firewall rule.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Firewall {
    /// Its id.
    pub id: String,
    /// The address it opens.
    pub ip: String,
    /// First port.
    pub start: String,
    /// Last port.
    pub end: String,
    /// Its protocol.
    pub protocol: String,
    /// Its sources, sorted.
    pub cidrs: BTreeSet<String>,
}

/// Everything a load balancer controller may leave behind.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Inventory {
    /// Public addresses, by address.
    pub addresses: BTreeMap<String, Address>,
    /// Load balancer rules, by id.
    pub rules: BTreeMap<String, Rule>,
    /// Firewall rules, by id.
    pub firewall: BTreeMap<String, Firewall>,
}

impl Inventory {
    /// Reads it all.
    pub async fn read(client: &Client) -> Result<Self> {
        let mut found = Self::default();
        let held = [("allocatedonly", "false"), ("forvirtualnetwork", "true")];
        for item in client
            .list("listPublicIpAddresses", "publicipaddress", &held)
            .await?
        {
            let state = text(&item, "state");
            if state != "Free" {
                let (ip, id) = (text(&item, "ipaddress"), text(&item, "id"));
                let network = text(&item, "associatednetworkid");
                found.addresses.insert(
                    ip.clone(),
                    Address {
                        ip,
                        id,
                        state,
                        network,
                    },
                );
            }
        }
        for item in client
            .list("listLoadBalancerRules", "loadbalancerrule", &[])
            .await?
        {
            let rule = rule(client, &item).await?;
            found.rules.insert(rule.id.clone(), rule);
        }
        for item in client.list("listFirewallRules", "firewallrule", &[]).await? {
            let cidrs = text(&item, "cidrlist");
            let entry = Firewall {
                id: text(&item, "id"),
                ip: text(&item, "ipaddress"),
                start: text(&item, "startport"),
                end: text(&item, "endport"),
                protocol: text(&item, "protocol"),
                cidrs: cidrs.split(',').map(|cidr| cidr.trim().to_owned()).collect(),
            };
            found.firewall.insert(entry.id.clone(), entry);
        }
        Ok(found)
    }

    /// What is here and was not in `before`, and the other way round, one line each.
    pub fn changes_since(&self, before: &Self) -> Vec<String> {
        let mut lines = Vec::new();
        differences("address", &before.addresses, &self.addresses, &mut lines);
        differences("rule", &before.rules, &self.rules, &mut lines);
        differences("firewall rule", &before.firewall, &self.firewall, &mut lines);
        lines
    }

    /// The rules whose name begins with this load balancer name, by public port.
    pub fn rules_of(&self, load_balancer: &str) -> BTreeMap<String, Rule> {
        let of = self
            .rules
            .values()
            .filter(|rule| rule.name.starts_with(load_balancer));
        of.map(|rule| (rule.port.clone(), rule.clone())).collect()
    }

    /// The rules on an address, by public port.
    pub fn rules_on(&self, ip: &str) -> BTreeMap<String, Rule> {
        let on = self.rules.values().filter(|rule| rule.ip == ip);
        on.map(|rule| (rule.port.clone(), rule.clone())).collect()
    }

    /// The firewall rules on an address, by first port.
    pub fn firewall_on(&self, ip: &str) -> BTreeMap<String, Firewall> {
        let on = self.firewall.values().filter(|rule| rule.ip == ip);
        on.map(|rule| (rule.start.clone(), rule.clone())).collect()
    }
}

async fn rule(client: &Client, item: &Value) -> Result<Rule> {
    let id = text(item, "id");
    let of = [("id", id.as_str())];
    let members = client
        .list("listLoadBalancerRuleInstances", "loadbalancerruleinstance", &of)
        .await;
    let members = members?.iter().map(|member| text(member, "name")).collect();
    Ok(Rule {
        name: text(item, "name"),
        ip: text(item, "publicip"),
        port: text(item, "publicport"),
        private_port: text(item, "privateport"),
        protocol: text(item, "protocol"),
        algorithm: text(item, "algorithm"),
        cidrs: text(item, "cidrlist"),
        description: text(item, "description"),
        state: text(item, "state"),
        members,
        id,
    })
}

/// A field as text, whether the server sent a string or a number.
pub fn text(item: &Value, field: &str) -> String {
    let value = &item[field];
    if value.is_null() {
        return String::new();
    }
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

fn differences<T: PartialEq + std::fmt::Debug>(
    kind: &str,
    before: &BTreeMap<String, T>,
    now: &BTreeMap<String, T>,
    lines: &mut Vec<String>,
) {
    for (key, value) in now {
        match before.get(key) {
            None => lines.push(format!("new {kind}: {value:?}")),
            Some(old) if old != value => lines.push(format!("changed {kind}: {old:?} -> {value:?}")),
            Some(_) => {}
        }
    }
    for (key, value) in before {
        if !now.contains_key(key) {
            lines.push(format!("missing {kind}: {value:?}"));
        }
    }
}
