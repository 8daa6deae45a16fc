//! Load balancer rules and their members.

use super::params::Params;
use super::{Api, Started};
use crate::cloudstack::types::{
    AddressId, Algorithm, CidrList, LoadBalancerRule, Machine, MachineId, NetworkId, RuleId, RuleProtocol,
};
use crate::cloudstack::{ApiError, Command, Listing, ReleaseTurn};

/// Which rules to list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RuleQuery {
    /// All in scope.
    All,
    /// Those on an address.
    OnAddress(AddressId),
    /// Those with a text anywhere in name or description; `%` and `_` are wildcards, so compare again.
    Mentioning(String),
}

/// A rule to make.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CreateRule {
    /// Its name; at most 255 characters, none outside the basic plane.
    pub name: String,
    /// Free text; at most 4096 characters.
    pub description: String,
    /// The public address.
    pub address: AddressId,
    /// The guest network. A server ignores it once the address has a network: compare the result.
    pub network: NetworkId,
    /// Port on the address.
    pub public_port: u16,
    /// Port of the machines.
    pub private_port: u16,
    /// How members are picked.
    pub algorithm: Algorithm,
    /// What is balanced; always said, since updates of a rule without it fail.
    pub protocol: RuleProtocol,
    /// Sources that the balancer itself lets through. `None` must be given to servers before 4.18.
    pub sources: Option<CidrList>,
}

/// What to change of a rule; `None` leaves a thing as it is. At least one thing must change, and servers from 4.22 on
/// take an algorithm or a protocol that is not repeated for a change: repeat both, unless the router shall be reached.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RuleChange {
    /// New name.
    pub name: Option<String>,
    /// New description.
    pub description: Option<String>,
    /// New algorithm.
    pub algorithm: Option<Algorithm>,
    /// New protocol; servers before 4.22 tell the router only together with another algorithm.
    pub protocol: Option<RuleProtocol>,
    /// New sources, empty for no restriction; IPv4 only, and ignored by servers before 4.22.
    pub sources: Option<CidrList>,
}

impl Api {
    /// Rules in scope.
    pub async fn rules(&self, query: &RuleQuery) -> Result<Listing<LoadBalancerRule>, ApiError> {
        let params = match query {
            RuleQuery::All => Params::new(),
            RuleQuery::OnAddress(id) => Params::new().with("publicipid", id),
            RuleQuery::Mentioning(text) => Params::new().with("keyword", text),
        };
        self.list(Command::ListLoadBalancerRules, params).await
    }

    /// A rule; `None` if it is gone or not in scope.
    pub async fn find_rule(&self, id: &RuleId) -> Result<Option<LoadBalancerRule>, ApiError> {
        self.find(Command::ListLoadBalancerRules, Params::new().with("id", id))
            .await
    }

    /// The members of a rule; `None` if the rule is gone. Destroyed machines are hidden although still mapped.
    pub async fn rule_members(&self, id: &RuleId) -> Result<Option<Vec<Machine>>, ApiError> {
        let listing = self
            .list(
                Command::ListLoadBalancerRuleInstances,
                Params::new().with("id", id),
            )
            .await;
        match listing {
            Ok(listing) => Ok(Some(listing.into_items())),
            Err(ApiError::Gone(_)) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Makes a rule. Nothing reaches the router before the rule has a member. Creates run one after the other per
    /// address, as the server would make them anyway.
    pub async fn create_rule(&self, rule: &CreateRule) -> Result<Started<LoadBalancerRule>, ApiError> {
        let turn = self.account().locks().creating(&rule.address).await;
        let params = Params::new()
            .with("name", &rule.name)
            .with("description", &rule.description)
            .with("publicipid", &rule.address)
            .with("networkid", &rule.network)
            .with("publicport", rule.public_port)
            .with("privateport", rule.private_port)
            .with("algorithm", rule.algorithm.as_str())
            .with("protocol", rule.protocol.as_str())
            .with("openfirewall", false)
            .maybe("cidrlist", rule.sources.as_ref());
        self.start(Command::CreateLoadBalancerRule, params)
            .holding_to_start(turn)
            .send()
            .await
    }

    /// Makes a rule and does not ask for its job: without an implicit firewall rule the job only reads the rule again, and
    /// whatever comes next fails if there is none.
    pub async fn create_rule_at_once(&self, rule: &CreateRule) -> Result<Option<RuleId>, ApiError> {
        let started = self.create_rule(rule).await?;
        self.account().jobs().not_sent(started.job());
        Ok(started.id())
    }

    /// Changes a rule. A failed job is never success, and the list then shows values that the router may not have.
    pub async fn update_rule(&self, id: &RuleId, change: &RuleChange) -> Result<Started<()>, ApiError> {
        if *change == RuleChange::default() {
            return Err(Self::never_sent(
                Command::UpdateLoadBalancerRule,
                "an update must change something",
            ));
        }
        let params = Params::new()
            .with("id", id)
            .maybe("name", change.name.as_ref())
            .maybe("description", change.description.as_ref())
            .maybe("algorithm", change.algorithm.as_ref().map(Algorithm::as_str))
            .maybe("protocol", change.protocol.as_ref().map(RuleProtocol::as_str))
            .maybe("cidrlist", change.sources.as_ref());
        self.start(Command::UpdateLoadBalancerRule, params).send().await
    }

    /// Deletes a rule; `Gone` if there is none.
    pub async fn delete_rule(&self, id: &RuleId) -> Result<Started<()>, ApiError> {
        self.start(Command::DeleteLoadBalancerRule, Params::new().with("id", id))
            .send()
            .await
    }

    /// The same in a turn that lasts until the job is over: nobody else decides about the address before.
    pub async fn delete_rule_in_turn(
        &self,
        turn: &ReleaseTurn,
        id: &RuleId,
    ) -> Result<Started<()>, ApiError> {
        self.start(Command::DeleteLoadBalancerRule, Params::new().with("id", id))
            .holding_to_end(turn.guard.clone())
            .send()
            .await
    }

    /// Adds members: all of them or, if one is a member already, none (the job fails with 530 and no other word).
    pub async fn assign(&self, id: &RuleId, machines: &[MachineId]) -> Result<Started<()>, ApiError> {
        self.members(Command::AssignToLoadBalancerRule, id, machines)
            .await
    }

    /// Removes members; whoever is none is ignored.
    pub async fn remove(&self, id: &RuleId, machines: &[MachineId]) -> Result<Started<()>, ApiError> {
        self.members(Command::RemoveFromLoadBalancerRule, id, machines)
            .await
    }

    async fn members(
        &self,
        command: Command,
        id: &RuleId,
        machines: &[MachineId],
    ) -> Result<Started<()>, ApiError> {
        if machines.is_empty() {
            return Err(Self::never_sent(command, "the list of machines is empty"));
        }
        let list: Vec<&str> = machines.iter().map(MachineId::as_str).collect();
        self.start(
            command,
            Params::new()
                .with("id", id)
                .with("virtualmachineids", list.join(",")),
        )
        .send()
        .await
    }
}
