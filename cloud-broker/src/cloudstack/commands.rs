//! The commands that are used, and what is known of each.
//!
//! Decides which command reads, polls or writes, which takes a project, which starts a job and whether that reaches a router.
//! Facts: what reaches a router takes seconds on real hypervisors; associates and creates of rules only touch the database.

/// What a command does, as the rate budget and the repetition rules see it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum CommandClass {
    /// Changes nothing and may be repeated at will.
    Read,
    /// Asks for a job; a read that somebody waits for.
    Poll,
    /// Changes something and is repeated only when it was certainly not executed.
    Write,
}

impl CommandClass {
    /// A constant word for metrics and log fields.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Poll => "poll",
            Self::Write => "write",
        }
    }
}

macro_rules! commands {
    ($($name:ident = $wire:literal, $class:ident $(, $flag:ident)*;)*) => {
        /// A command of the API.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[expect(missing_docs, reason = "the server's own names")]
        pub enum Command { $($name,)* }

        impl Command {
            /// Every command.
            pub const ALL: &'static [Self] = &[$(Self::$name,)*];

            /// The server's name of it.
            pub fn name(self) -> &'static str {
                match self { $(Self::$name => $wire,)* }
            }

            /// What it does.
            pub fn class(self) -> CommandClass {
                match self { $(Self::$name => CommandClass::$class,)* }
            }

            fn flags(self) -> &'static [Flag] {
                match self { $(Self::$name => &[$(Flag::$flag,)*],)* }
            }
        }
    };
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Flag {
    /// Takes `projectid`, and finds nothing of a project without it.
    Scoped,
    /// Starts a job.
    Job,
    /// The job changes a router.
    Router,
}

commands! {
    ListCapabilities = "listCapabilities", Read;
    ListApis = "listApis", Read;
    ListZones = "listZones", Read;
    ListProjects = "listProjects", Read;
    ListVirtualMachines = "listVirtualMachines", Read, Scoped;
    ListNetworks = "listNetworks", Read, Scoped;
    ListVpcs = "listVPCs", Read, Scoped;
    ListPublicIpAddresses = "listPublicIpAddresses", Read, Scoped;
    ListLoadBalancerRules = "listLoadBalancerRules", Read, Scoped;
    ListLoadBalancerRuleInstances = "listLoadBalancerRuleInstances", Read;
    ListFirewallRules = "listFirewallRules", Read, Scoped;
    ListNetworkAclLists = "listNetworkACLLists", Read, Scoped;
    ListNetworkAcls = "listNetworkACLs", Read, Scoped;
    ListPortForwardingRules = "listPortForwardingRules", Read, Scoped;
    ListRemoteAccessVpns = "listRemoteAccessVpns", Read, Scoped;
    ListTags = "listTags", Read, Scoped;
    ListAsyncJobs = "listAsyncJobs", Poll;
    QueryAsyncJobResult = "queryAsyncJobResult", Poll;
    AssociateIpAddress = "associateIpAddress", Write, Job;
    DisassociateIpAddress = "disassociateIpAddress", Write, Job, Router;
    CreateLoadBalancerRule = "createLoadBalancerRule", Write, Job;
    UpdateLoadBalancerRule = "updateLoadBalancerRule", Write, Job, Router;
    DeleteLoadBalancerRule = "deleteLoadBalancerRule", Write, Job, Router;
    AssignToLoadBalancerRule = "assignToLoadBalancerRule", Write, Job, Router;
    RemoveFromLoadBalancerRule = "removeFromLoadBalancerRule", Write, Job, Router;
    CreateFirewallRule = "createFirewallRule", Write, Job, Router;
    DeleteFirewallRule = "deleteFirewallRule", Write, Job, Router;
    CreateNetworkAcl = "createNetworkACL", Write, Job, Router;
    UpdateNetworkAclItem = "updateNetworkACLItem", Write, Job, Router;
    DeleteNetworkAcl = "deleteNetworkACL", Write, Job, Router;
    CreateTags = "createTags", Write, Job;
    DeleteTags = "deleteTags", Write, Job;
}

impl Command {
    /// Whether it changes something.
    pub fn is_write(self) -> bool {
        self.class() == CommandClass::Write
    }

    /// Whether it takes `projectid`, and is blind for a project's objects without it.
    pub fn is_scoped(self) -> bool {
        self.flags().contains(&Flag::Scoped)
    }

    /// Whether it starts a job.
    pub fn starts_job(self) -> bool {
        self.flags().contains(&Flag::Job)
    }

    /// Whether its job changes a router, or only the database.
    pub fn touches_router(self) -> bool {
        self.flags().contains(&Flag::Router)
    }

    /// The lower-case name, as log fields of the server and some answers spell it.
    pub fn by_name(name: &str) -> Option<Self> {
        Self::ALL
            .iter()
            .copied()
            .find(|command| command.name().eq_ignore_ascii_case(name))
    }
}

impl std::fmt::Display for Command {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(self.name())
    }
}
