//! What a doctor would say. Pure.
//!
//! From what is known of a tenant's surroundings to findings with a severity, a stable reason, an object and a text that says what
//! to do. What is not known yet is no finding.

mod connection;
mod reasons;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::Known;
use super::rights::{Weight, need};
use crate::cloudstack::types::{Machine, Network, ProjectState, ServiceName};
use crate::cloudstack::{ApiError, BreakerState, Command};
use crate::instances::matching;
use crate::tenant::{ClusterUids, Tenant};

pub use reasons::REASONS;

/// How serious a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// For the record.
    Info,
    /// Something does not work as well as it should, or may stop to.
    Warning,
    /// Something does not work.
    Error,
}

impl Severity {
    /// The word for metrics.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Info => "info",
            Self::Warning => "warning",
            Self::Error => "error",
        }
    }
}

/// Something a person should know or mend.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Finding {
    /// How serious it is.
    pub severity: Severity,
    /// Stable word in capitals.
    pub reason: &'static str,
    /// What it is about.
    pub object: String,
    /// What was seen, and what to do.
    pub text: String,
}

/// A certificate that somebody uses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Certificate {
    /// Whose it is.
    pub of: String,
    /// Its end, in seconds since 1970.
    pub not_after: i64,
}

/// Everything that is known when findings are made.
pub struct Facts<'f> {
    /// The tenant.
    pub tenant: &'f Tenant,
    /// Its API's address, and whether the server's certificate is looked at.
    pub url: &'f url::Url,
    /// The server's certificate is not looked at.
    pub skip_verification: bool,
    /// The UIDs that count; absent while nobody has called.
    pub uids: Option<&'f ClusterUids>,
    /// What was asked of the cloud.
    pub known: &'f Known,
    /// Machines of the newest list; absent if there is none yet.
    pub machines: Option<&'f [Machine]>,
    /// Why the last machine list could not be read.
    pub failure: Option<&'f ApiError>,
    /// Whether calls are held back.
    pub breaker: BreakerState,
    /// How long ago the server refused a call because there were too many.
    pub throttled: Option<Duration>,
    /// Seconds that the server's clock is ahead.
    pub clock_offset: i64,
    /// Certificates in use.
    pub certificates: &'f [Certificate],
    /// Public addresses in use.
    pub used_public_ips: Option<u32>,
    /// Seconds since 1970.
    pub now: i64,
}

/// All findings, the worst first.
pub fn of(facts: &Facts<'_>) -> Vec<Finding> {
    let mut findings = Vec::new();
    connection::of(facts, &mut findings);
    identity(facts, &mut findings);
    if facts.failure.is_none() {
        scope(facts, &mut findings);
        networks(facts, &mut findings);
        rights(facts, &mut findings);
    }
    findings.sort_by(|one, other| other.severity.cmp(&one.severity).then_with(|| one.cmp(other)));
    findings
}

fn finding(
    severity: Severity,
    reason: &'static str,
    object: impl Into<String>,
    text: impl Into<String>,
) -> Finding {
    Finding {
        severity,
        reason,
        object: object.into(),
        text: text.into(),
    }
}

fn identity(facts: &Facts<'_>, findings: &mut Vec<Finding>) {
    let cluster = format!("cluster {}", facts.tenant.cluster);
    if facts.uids.is_some_and(ClusterUids::is_unknown) {
        let text = "nobody says its UID, so its objects are marked cluster=- and can't be told from another cluster's; let the agent read \
                    namespace kube-system, or set cluster-uid";
        findings.push(finding(Severity::Warning, "CLUSTER_UID_MISSING", &cluster, text));
    }
    let limit = facts.tenant.policy.max_public_ips;
    if let Some((used, limit)) = facts.used_public_ips.zip(limit) {
        if used >= limit {
            let text =
                format!("all {limit} public addresses that it may have are in use; raise max-public-ips");
            findings.push(finding(Severity::Warning, "QUOTA_USED", &cluster, text));
        } else if used * 5 >= limit * 4 {
            let text = format!("{used} of {limit} public addresses that it may have are in use");
            findings.push(finding(Severity::Info, "QUOTA_NEARLY_USED", &cluster, text));
        }
    }
}

fn scope(facts: &Facts<'_>, findings: &mut Vec<Finding>) {
    let (scope, cluster) = (&facts.tenant.scope, &facts.tenant.cluster);
    if let Some(project) = &scope.project {
        match &facts.known.project {
            Some(None) => {
                let text = "the keys' user is no member of it, so nothing in it is visible; check project-id, or add the user";
                findings.push(finding(
                    Severity::Error,
                    "PROJECT_NOT_VISIBLE",
                    format!("project {project}"),
                    text,
                ));
            }
            Some(Some(seen)) => {
                if let ProjectState::Other(state) = &seen.state {
                    let object = format!("project {}", seen.name);
                    findings.push(finding(
                        Severity::Warning,
                        "PROJECT_NOT_ACTIVE",
                        object,
                        format!("its state is {state}"),
                    ));
                }
            }
            None => {}
        }
    }
    if let Some(zones) = &facts.known.zones {
        for wanted in scope
            .zones
            .iter()
            .filter(|wanted| !zones.iter().any(|zone| wanted.is(zone.id.as_str(), &zone.name)))
        {
            let text = "no visible zone has this name or id; check zone or zones in the configuration";
            findings.push(finding(
                Severity::Error,
                "ZONE_NOT_VISIBLE",
                format!("zone {wanted}"),
                text,
            ));
        }
    }
    let of_the_cluster = |machine: &&Machine| matching::admits(scope, machine);
    if facts
        .machines
        .is_some_and(|machines| !machines.iter().any(|machine| of_the_cluster(&machine)))
    {
        let all = facts.machines.map_or(0, <[Machine]>::len);
        let text = format!(
            "none of the {all} machines that the keys can see is in its scope; check project-id, zone, networks and machines"
        );
        findings.push(finding(
            Severity::Warning,
            "NO_MACHINES",
            format!("cluster {cluster}"),
            text,
        ));
    }
}

fn networks(facts: &Facts<'_>, findings: &mut Vec<Finding>) {
    let Some(networks) = &facts.known.networks else {
        return;
    };
    for wanted in &facts.tenant.scope.networks {
        let found = networks
            .iter()
            .any(|network| wanted.is(network.id.as_str(), &network.name));
        if !found {
            let text = "no visible network has this name or id; check networks in the configuration";
            findings.push(finding(
                Severity::Error,
                "NETWORK_NOT_VISIBLE",
                format!("network {wanted}"),
                text,
            ));
        }
    }
    for network in used(facts.tenant, networks, facts.machines.unwrap_or_default()) {
        if !network.has(ServiceName::LoadBalancer) {
            let text = "machines of the cluster are in it, and it offers no load balancer: a Service there gets no address";
            let object = format!("network {}", network.name);
            findings.push(finding(
                Severity::Warning,
                "NETWORK_WITHOUT_LOAD_BALANCER",
                object,
                text,
            ));
        }
    }
}

/// Networks of the tenant's scope that its machines use.
pub fn used<'n>(tenant: &Tenant, networks: &'n [Network], machines: &[Machine]) -> Vec<&'n Network> {
    let in_use: BTreeSet<_> = machines
        .iter()
        .filter(|machine| matching::admits(&tenant.scope, machine))
        .flat_map(|machine| &machine.nics)
        .filter_map(|nic| nic.network_id.as_ref())
        .collect();
    let is_used = |network: &&Network| {
        in_use.contains(&network.id) && tenant.scope.admits_network(network.id.as_str(), &network.name)
    };
    networks.iter().filter(is_used).collect()
}

/// One finding for each thing that does not work, with the commands that are missing for it.
fn rights(facts: &Facts<'_>, findings: &mut Vec<Finding>) {
    // A user that is no member of the project may call nothing in it; that is told already.
    if facts.tenant.scope.project.is_some() && matches!(facts.known.project, Some(None)) {
        return;
    }
    let mut missing: BTreeMap<(Weight, &str), Vec<Command>> = BTreeMap::new();
    for (command, _) in facts.known.rights.iter().filter(|(_, allowed)| !**allowed) {
        let need = need(*command);
        missing
            .entry((need.weight, need.what))
            .or_default()
            .push(*command);
    }
    for ((weight, what), commands) in missing {
        let severity = match weight {
            Weight::Everything => Severity::Error,
            Weight::Part => Severity::Warning,
            Weight::Convenience => Severity::Info,
        };
        let names = commands
            .iter()
            .map(|command| command.name())
            .collect::<Vec<_>>()
            .join(", ");
        let text = format!("the keys' role may not call {names}, needed for {what}");
        findings.push(finding(
            severity,
            "RIGHT_MISSING",
            format!("cluster {}", facts.tenant.cluster),
            text,
        ));
    }
}

#[cfg(test)]
mod tests;
