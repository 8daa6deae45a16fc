//! Which commands are needed, and what for. Pure.

use crate::cloudstack::Command;

/// How much is lost without a right.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Weight {
    /// Something is less good, or not checked.
    Convenience,
    /// Balancers in one sort of network can't be made.
    Part,
    /// Nothing works that the broker is for.
    Everything,
}

/// What does not work without a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Need {
    /// How much it is.
    pub weight: Weight,
    /// For people.
    pub what: &'static str,
}

/// What a command is needed for.
pub const fn need(command: Command) -> Need {
    let (weight, what) = match command {
        Command::ListVirtualMachines => (Weight::Everything, "nodes and load balancers"),
        Command::ListNetworks
        | Command::ListPublicIpAddresses
        | Command::ListLoadBalancerRules
        | Command::ListLoadBalancerRuleInstances
        | Command::QueryAsyncJobResult
        | Command::AssociateIpAddress
        | Command::DisassociateIpAddress
        | Command::CreateLoadBalancerRule
        | Command::UpdateLoadBalancerRule
        | Command::DeleteLoadBalancerRule
        | Command::AssignToLoadBalancerRule
        | Command::RemoveFromLoadBalancerRule => (Weight::Everything, "load balancers"),
        Command::ListFirewallRules | Command::CreateFirewallRule | Command::DeleteFirewallRule => {
            (Weight::Part, "load balancers in isolated networks")
        }
        Command::ListNetworkAcls | Command::CreateNetworkAcl | Command::DeleteNetworkAcl => (
            Weight::Part,
            "load balancers in tiers of a VPC with an ACL list of their own",
        ),
        Command::UpdateNetworkAclItem | Command::ListNetworkAclLists | Command::ListVpcs => {
            (Weight::Convenience, "changing source ranges in a VPC in place")
        }
        Command::ListCapabilities => (
            Weight::Convenience,
            "learning the server's version, which is else told from what networks are listed; or set version in the configuration",
        ),
        Command::ListApis => (
            Weight::Convenience,
            "learning what the key may do before it is needed",
        ),
        Command::ListZones => (Weight::Convenience, "checking the configured zone"),
        Command::ListProjects => (Weight::Convenience, "checking the configured project"),
        Command::ListPortForwardingRules | Command::ListRemoteAccessVpns => (
            Weight::Convenience,
            "seeing what else uses an address before it is released",
        ),
        Command::ListAsyncJobs => (Weight::Convenience, "asking for many jobs with one call"),
        Command::CreateTags | Command::DeleteTags | Command::ListTags => (
            Weight::Convenience,
            "tags that tell other tools whose an address is",
        ),
    };
    Need { weight, what }
}
