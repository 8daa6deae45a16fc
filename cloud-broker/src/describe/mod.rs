//! How things stand for a tenant: what the key may do, what is visible, and what a doctor would say.
//!
//! | file | decides |
//! | --- | --- |
//! | `findings` | what is worth telling a person |
//! | `rights` | what every command is needed for |
//! | `survey` | when the cloud is asked about itself |
//! | `version` | what answers tell of the server's version where the key may not ask for it |
//!
//! A description never waits for the cloud: it is made of what is known, which the survey renews now and then. What a right
//! that may not be asked for is worth is learned when a call is refused.

pub mod findings;
pub mod rights;
mod survey;
mod version;

use std::collections::{BTreeMap, BTreeSet};

use parking_lot::Mutex;

use crate::cloudstack::Command;
use crate::cloudstack::types::{Network, Project, Zone};
use crate::directory::Served;
use crate::tenant::ClusterUids;
use findings::{Certificate, Facts, Finding, Severity};
pub use survey::watch;

/// What was asked of the cloud. What is absent is not known.
#[derive(Clone, Debug, Default)]
pub struct Known {
    /// Networks of the project or account.
    pub networks: Option<Vec<Network>>,
    /// Zones.
    pub zones: Option<Vec<Zone>>,
    /// The configured project; `Some(None)` if it is not visible.
    pub project: Option<Option<Project>>,
    /// The server's version as it says it.
    pub version: Option<String>,
    /// Commands that were seen allowed or refused.
    pub rights: BTreeMap<Command, bool>,
}

/// What is known of a tenant's surroundings, and which findings were logged.
#[derive(Default)]
pub struct Survey {
    known: Mutex<Known>,
    due: Mutex<survey::Schedule>,
    version: tokio::sync::Mutex<survey::AskedVersion>,
    told: Mutex<BTreeSet<Finding>>,
}

impl Survey {
    /// What is known at present.
    pub fn known(&self) -> Known {
        self.known.lock().clone()
    }
}

/// What only a call brings.
#[derive(Clone, Debug, Default)]
pub struct CallFacts {
    /// The UIDs that count; absent outside a call.
    pub uids: Option<ClusterUids>,
    /// The certificates in use.
    pub certificates: Vec<Certificate>,
    /// Public addresses in use, where known.
    pub used_public_ips: Option<u32>,
}

/// How things stand.
pub struct Description {
    /// What is known.
    pub known: Known,
    /// What a person should know.
    pub findings: Vec<Finding>,
    /// Networks that the tenant's machines use.
    pub networks: Vec<Network>,
    /// When the newest machine list began to be read.
    pub list_began: Option<std::time::Instant>,
}

/// Describes a tenant, and logs findings that are new or gone.
pub fn describe(served: &Served, call: &CallFacts) -> Description {
    let mut known = served.survey.known();
    known
        .rights
        .extend(served.shared.cloud.rights(served.api.project()));
    let list = served.shared.instances.lists().newest(&served.api);
    let failure = served.shared.instances.lists().failure(&served.api);
    let machines = list.as_ref().map(|list| list.index.machines());
    let findings = findings::of(&Facts {
        tenant: &served.tenant,
        url: &served.access.url,
        skip_verification: served.access.skip_verification,
        uids: call.uids.as_ref(),
        known: &known,
        machines,
        failure: failure.as_ref(),
        breaker: served.shared.cloud.breaker(),
        throttled: served
            .shared
            .cloud
            .throttled_at()
            .map(|at| runtime::clock::now().saturating_duration_since(at)),
        clock_offset: served.shared.cloud.clock_offset(),
        certificates: &call.certificates,
        used_public_ips: call.used_public_ips,
        now: i64::try_from(runtime::clock::unix().as_secs()).unwrap_or(i64::MAX),
    });
    let all = known.networks.as_deref().unwrap_or_default();
    let networks = findings::used(&served.tenant, all, machines.unwrap_or_default())
        .into_iter()
        .cloned()
        .collect();
    tell(served, &findings, call.uids.is_some());
    Description {
        findings,
        networks,
        list_began: list.map(|list| list.began),
        known,
    }
}

/// Logs findings once, and once more when they are gone. What only a call can know is not gone because nobody calls.
fn tell(served: &Served, findings: &[Finding], in_call: bool) {
    const OF_CALLS: [&str; 5] = [
        "CLUSTER_UID_MISSING",
        "QUOTA_USED",
        "QUOTA_NEARLY_USED",
        "CERTIFICATE_OVER",
        "CERTIFICATE_SOON_OVER",
    ];
    let mut told = served.survey.told.lock();
    let cluster = &served.tenant.cluster;
    for finding in findings
        .iter()
        .filter(|finding| !told.iter().any(|old| is_same(old, finding)))
    {
        let Finding {
            severity,
            reason,
            object,
            text,
        } = finding;
        match severity {
            Severity::Error => tracing::error!(tenant = %cluster, %reason, "{object}: {text}"),
            Severity::Warning => tracing::warn!(tenant = %cluster, %reason, "{object}: {text}"),
            Severity::Info => tracing::info!(tenant = %cluster, %reason, "{object}: {text}"),
        }
    }
    let gone = |old: &Finding| !findings.iter().any(|finding| is_same(old, finding));
    let may_go = |old: &Finding| in_call || !OF_CALLS.contains(&old.reason);
    for old in told.iter().filter(|old| gone(old) && may_go(old)) {
        tracing::info!(tenant = %cluster, reason = %old.reason, "{}: this is mended", old.object);
    }
    told.retain(|old| !(gone(old) && may_go(old)));
    for finding in findings {
        told.retain(|old| !is_same(old, finding));
        told.insert(finding.clone());
    }
}

/// Texts carry counts and times that change without anything being new.
fn is_same(one: &Finding, other: &Finding) -> bool {
    (one.severity, one.reason, &one.object) == (other.severity, other.reason, &other.object)
        && (one.reason != "RIGHT_MISSING" || one.text == other.text)
}
