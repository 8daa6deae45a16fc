//! Firewall rules, and other uses of a public address.

use super::params::Params;
use super::{Api, Started};
use crate::cloudstack::types::{
    AddressId, CidrList, FirewallRule, FirewallRuleId, PortForwardingRule, PortRange, RemoteAccessVpn,
};
use crate::cloudstack::{ApiError, Command, Listing};

/// What a firewall rule lets through.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FirewallProtocol {
    /// TCP, with or without a PROXY header.
    Tcp,
    /// UDP.
    Udp,
}

impl FirewallProtocol {
    /// The server's word.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Tcp => "tcp",
            Self::Udp => "udp",
        }
    }
}

/// A firewall rule to make. It can't be changed afterwards.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CreateFirewallRule {
    /// The address to open.
    pub address: AddressId,
    /// What for.
    pub protocol: FirewallProtocol,
    /// Which ports.
    pub ports: PortRange,
    /// For whom; `0.0.0.0/0` for everybody, never empty, no network twice.
    pub sources: CidrList,
}

impl Api {
    /// Firewall rules of an address. One that is not allocated is `Rejected`.
    pub async fn firewall_rules(&self, address: &AddressId) -> Result<Listing<FirewallRule>, ApiError> {
        self.list(
            Command::ListFirewallRules,
            Params::new().with("ipaddressid", address),
        )
        .await
    }

    /// Every firewall rule in scope.
    pub async fn all_firewall_rules(&self) -> Result<Listing<FirewallRule>, ApiError> {
        self.list(Command::ListFirewallRules, Params::new()).await
    }

    /// Makes a firewall rule; `Conflict` if one with the same ports shares a source, letter by letter. One after the
    /// other per address, its job included, since the server's lock lasts as long.
    pub async fn create_firewall_rule(
        &self,
        rule: &CreateFirewallRule,
    ) -> Result<Started<FirewallRule>, ApiError> {
        if rule.sources.is_empty() {
            return Err(Self::never_sent(
                Command::CreateFirewallRule,
                "the list of sources is empty, which servers take for everybody",
            ));
        }
        let turn = self.account().locks().creating(&rule.address).await;
        let params = Params::new()
            .with("ipaddressid", &rule.address)
            .with("protocol", rule.protocol.as_str())
            .with("startport", rule.ports.start)
            .with("endport", rule.ports.end)
            .with("cidrlist", &rule.sources);
        self.start(Command::CreateFirewallRule, params)
            .holding_to_end(turn)
            .send()
            .await
    }

    /// Deletes a firewall rule; `Gone` if there is none.
    pub async fn delete_firewall_rule(&self, id: &FirewallRuleId) -> Result<Started<()>, ApiError> {
        self.start(Command::DeleteFirewallRule, Params::new().with("id", id))
            .send()
            .await
    }

    /// Port forwarding rules of an address, which hold it. May be `Denied`.
    pub async fn port_forwarding_rules(
        &self,
        address: &AddressId,
    ) -> Result<Listing<PortForwardingRule>, ApiError> {
        self.list(
            Command::ListPortForwardingRules,
            Params::new().with("ipaddressid", address),
        )
        .await
    }

    /// Remote access VPNs of an address, which hold it. May be `Denied`.
    pub async fn remote_access_vpns(
        &self,
        address: &AddressId,
    ) -> Result<Listing<RemoteAccessVpn>, ApiError> {
        self.list(
            Command::ListRemoteAccessVpns,
            Params::new().with("publicipid", address),
        )
        .await
    }
}
