//! The commands that are simulated, and what is known about the others.

use std::sync::Arc;

use serde_json::Value;

use crate::commands;
use crate::dispatch::Call;
use crate::error::ApiError;
use crate::jobs::Started;
use crate::lock::LockKey;
use crate::request::{Entity, Kind, Param, TEXT, may};
use crate::server::Server;
use crate::state::World;

/// The lock that the first phase takes.
pub(crate) type LockOf = fn(&World, &Call) -> Option<LockKey>;
/// A first phase.
pub(crate) type Start = fn(&mut World, &Call) -> Result<Started, ApiError>;

/// How a command runs.
#[derive(Clone, Copy)]
pub(crate) enum Run {
    /// Reads the database.
    Read(fn(&World, &Call) -> Result<Value, ApiError>),
    /// Changes the database at once.
    Change(fn(&mut World, &Call) -> Result<Value, ApiError>),
    /// Needs more than the database.
    Server(fn(&Arc<Server>, &Call) -> Result<Value, ApiError>),
    /// Starts a job.
    Job { lock: Option<LockOf>, start: Start },
}

/// A command.
pub(crate) struct Spec {
    pub(crate) name: &'static str,
    /// Java class below `org.apache.cloudstack.api.command.`, which jobs show.
    pub(crate) class: &'static str,
    /// The class when a root admin calls, where it is another one.
    pub(crate) admin_class: Option<&'static str>,
    /// Key of the answer, where it is not the usual one.
    pub(crate) envelope: Option<&'static str>,
    pub(crate) params: &'static [Param],
    /// Has the parameters that all lists have.
    pub(crate) list: bool,
    /// Root admins only.
    pub(crate) admin: bool,
    pub(crate) run: Run,
}

impl Spec {
    /// A command that reads.
    pub(crate) const fn read(
        name: &'static str,
        params: &'static [Param],
        run: fn(&World, &Call) -> Result<Value, ApiError>,
    ) -> Self {
        Self {
            name,
            class: "",
            admin_class: None,
            envelope: None,
            params,
            list: true,
            admin: false,
            run: Run::Read(run),
        }
    }

    /// A command that changes the database at once.
    pub(crate) const fn change(
        name: &'static str,
        params: &'static [Param],
        run: fn(&mut World, &Call) -> Result<Value, ApiError>,
    ) -> Self {
        Self {
            name,
            class: "",
            admin_class: None,
            envelope: None,
            params,
            list: false,
            admin: false,
            run: Run::Change(run),
        }
    }

    /// A command that starts a job.
    pub(crate) const fn job(
        name: &'static str,
        class: &'static str,
        params: &'static [Param],
        start: Start,
    ) -> Self {
        Self {
            name,
            class,
            admin_class: None,
            envelope: None,
            params,
            list: false,
            admin: false,
            run: Run::Job { lock: None, start },
        }
    }

    /// With the lock that its first phase takes.
    pub(crate) const fn locking(mut self, lock: LockOf) -> Self {
        if let Run::Job { start, .. } = self.run {
            self.run = Run::Job {
                lock: Some(lock),
                start,
            };
        }
        self
    }

    /// With another class for root admins.
    pub(crate) const fn by_admin(mut self, class: &'static str) -> Self {
        self.admin_class = Some(class);
        self
    }

    /// With another key of the answer.
    pub(crate) const fn enveloped(mut self, envelope: &'static str) -> Self {
        self.envelope = Some(envelope);
        self
    }

    /// For root admins only.
    pub(crate) const fn for_admins(mut self) -> Self {
        self.admin = true;
        self
    }

    /// The name that texts about parameters use: that of the answer, without `response`.
    pub(crate) fn text_name(&self) -> String {
        let named = self
            .envelope
            .and_then(|envelope| envelope.strip_suffix("response"));
        named.map_or_else(|| self.name.to_lowercase(), str::to_owned)
    }

    /// Whether the command starts a job.
    pub(crate) fn is_async(&self) -> bool {
        matches!(self.run, Run::Job { .. })
    }

    /// Its parameters, as `listApis` shows them.
    pub(crate) fn shown_params(&self) -> Vec<Value> {
        let common = if self.list { LIST } else { &[] };
        self.params
            .iter()
            .chain(common)
            .map(|param| {
                let kind = match param.kind {
                    Kind::Text(..) => "string",
                    Kind::Int => "integer",
                    Kind::Flag => "boolean",
                    Kind::Id(_) => "uuid",
                    Kind::Ids(_) | Kind::LooseIds(_) | Kind::Names => "list",
                    Kind::Map => "map",
                };
                serde_json::json!({ "name": param.name, "type": kind, "required": param.required })
            })
            .collect()
    }

    /// The Java class that a job of this command shows.
    pub(crate) fn class_for(&self, root: bool) -> String {
        let class = self.admin_class.filter(|_| root).unwrap_or(self.class);
        format!("org.apache.cloudstack.api.command.{class}")
    }
}

/// Parameters of every list.
pub(crate) const LIST: &[Param] = &[
    may("account", TEXT),
    may("domainid", Kind::Id(Entity::Domain)),
    may("projectid", Kind::Id(Entity::Project)),
    may("isrecursive", Kind::Flag),
    may("listall", Kind::Flag),
    may("keyword", TEXT),
    may("page", Kind::Int),
    may("pagesize", Kind::Int),
    may("tags", Kind::Map),
];

/// What the Kubernetes plugin's own role may call.
pub(crate) const KUBERNETES_ROLE: &[&str] = &[
    "queryAsyncJobResult",
    "listVirtualMachines",
    "listNetworks",
    "listPublicIpAddresses",
    "associateIpAddress",
    "disassociateIpAddress",
    "listLoadBalancerRules",
    "createLoadBalancerRule",
    "updateLoadBalancerRule",
    "deleteLoadBalancerRule",
    "assignToLoadBalancerRule",
    "removeFromLoadBalancerRule",
    "listLoadBalancerRuleInstances",
    "listFirewallRules",
    "createFirewallRule",
    "updateFirewallRule",
    "deleteFirewallRule",
    "listNetworkACLs",
    "createNetworkACL",
    "deleteNetworkACL",
];

/// Commands that the server has and the simulator does not: forbidden ones answer 432, allowed ones 530.
const OTHERS: &[&str] = &[
    "listHosts",
    "listRouters",
    "listSystemVms",
    "listConfigurations",
    "createRole",
    "listAccounts",
    "listUsers",
    "listNics",
    "createPortForwardingRule",
    "deleteNetworkOffering",
    "listClusters",
    "listPods",
];

/// All simulated commands.
pub(crate) fn all() -> impl Iterator<Item = &'static Spec> {
    commands::ALL.iter().flat_map(|specs| specs.iter())
}

/// The command with this name, in exactly this case.
pub(crate) fn find(name: &str) -> Option<&'static Spec> {
    all().find(|spec| spec.name == name)
}

/// Whether the server has the command.
pub(crate) fn exists(name: &str) -> bool {
    find(name).is_some() || OTHERS.contains(&name)
}

/// Simulated commands that the role `User` has.
pub(crate) fn user_commands() -> impl Iterator<Item = &'static str> {
    all().filter(|spec| !spec.admin).map(|spec| spec.name)
}
