//! The contract's messages and our own types: the only place that knows both.
//!
//! Requests are checked here against the limits that `Describe` names; unknown enum values have become the zero value by then.

pub(super) mod balancers;

use std::net::IpAddr;
use std::time::{Duration, Instant, SystemTime};

use proto::{CONTRACT_VERSION, Fault, v1};

use super::Call;
use crate::cloudstack::types::{MachineId, Network, ServiceName};
use crate::describe::Description;
use crate::describe::findings::{Finding, Severity};
use crate::describe::rights::{Weight, need};
use crate::instances::describe::{Address, Power, addresses};
use crate::instances::{Answer, NodeKey, Presence, Proof, Why};
use crate::load_balancer::{MOST_MEMBERS, MOST_PORTS};
use crate::tenant::ClusterUid;
use crate::words::short;

/// Most keys of one look-up.
pub(super) const MAX_KEYS: usize = 500;
/// Longest time that a call waits for the cloud.
pub(super) const MAX_WAIT: Duration = Duration::from_secs(25);
/// Most source networks of one balancer.
const MAX_SOURCES: usize = 500;

/// Feature words beyond the first version of the contract.
const FEATURES: [&str; 0] = [];

/// Who the message says is calling.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Said {
    pub(super) uid: Option<ClusterUid>,
    pub(super) process: String,
    pub(super) version: String,
}

/// Reads the caller of a request.
pub(super) fn said(caller: Option<&v1::Caller>) -> Result<Said, Fault> {
    let Some(caller) = caller else {
        return Ok(Said::default());
    };
    let uid = match caller.cluster_uid.as_str() {
        "" => None,
        text => Some(ClusterUid::new(text).ok_or_else(|| {
            Fault::invalid(
                "BAD_CLUSTER_UID",
                "caller.cluster_uid",
                "a cluster uid has letters, digits, dots and dashes, at most 64",
            )
        })?),
    };
    short("caller.process_id", &caller.process_id)?;
    short("caller.version", &caller.version)?;
    Ok(Said {
        uid,
        process: caller.process_id.clone(),
        version: caller.version.clone(),
    })
}

/// The caller inside the request that is to be planned.
pub(super) fn caller_of_plan(request: &v1::PlanLoadBalancerRequest) -> Option<&v1::Caller> {
    use v1::plan_load_balancer_request::Request;
    match request.request.as_ref()? {
        Request::Ensure(ensure) => ensure.caller.as_ref(),
        Request::Delete(delete) => delete.caller.as_ref(),
    }
}

/// A key, or why it can't be looked up: a single odd node must not keep the others from an answer.
pub(super) fn keys(request: &v1::LookupInstancesRequest) -> Result<Vec<Result<NodeKey, String>>, Fault> {
    if request.keys.len() > MAX_KEYS {
        let text = format!(
            "{} keys are too many for one call; at most {MAX_KEYS} are allowed",
            request.keys.len()
        );
        return Err(Fault::invalid("TOO_MANY_KEYS", "keys", text));
    }
    for (at, key) in request.keys.iter().enumerate() {
        short(&format!("keys[{at}].node_name"), &key.node_name)?;
        short(&format!("keys[{at}].node_uid"), &key.node_uid)?;
        short(&format!("keys[{at}].system_uuid"), key.system_uuid())?;
        short(&format!("keys[{at}].machine_id"), key.machine_id())?;
    }
    Ok(request.keys.iter().map(node_key).collect())
}

fn node_key(key: &v1::InstanceKey) -> Result<NodeKey, String> {
    let machine_id = match key.machine_id.as_deref().filter(|id| !id.is_empty()) {
        Some(text) => Some(MachineId::parse(text).map_err(|error| error.to_string())?),
        None => None,
    };
    let not_ready_for = key
        .not_ready_for
        .as_ref()
        .and_then(|ago| Duration::try_from(*ago).ok());
    Ok(NodeKey {
        node_uid: key.node_uid.clone(),
        machine_id,
        system_uuid: key.system_uuid.clone(),
        node_name: key.node_name.clone(),
        not_ready_for,
    })
}

/// One result for every key of the request, in their order. `region` is the configured one.
pub(super) fn lookup_response(
    keys: &[Result<NodeKey, String>],
    answers: Vec<Answer>,
    region: Option<&str>,
) -> v1::LookupInstancesResponse {
    let mut answers = answers.into_iter();
    let results = keys.iter().map(|key| match key {
        Ok(key) => answers
            .next()
            .map(|answer| result(key, answer, region))
            .unwrap_or_default(),
        Err(text) => v1::InstanceResult {
            presence: Some(unknown(v1::unknown_reason::Why::NotFoundYet, text.clone())),
            ..v1::InstanceResult::default()
        },
    });
    v1::LookupInstancesResponse {
        results: results.collect(),
    }
}

fn result(key: &NodeKey, answer: Answer, region: Option<&str>) -> v1::InstanceResult {
    let presence = match answer.presence {
        Presence::Found { machine, is_mismatch } => v1::instance_result::Presence::Found(v1::Instance {
            machine_id: machine.id.to_string(),
            power: power(Power::of(&machine.state)).into(),
            addresses: addresses(&machine, &key.node_name)
                .into_iter()
                .map(address)
                .collect(),
            instance_type: machine.offering.unwrap_or_default(),
            zone: machine.zone_name.unwrap_or_default(),
            region: region.unwrap_or_default().to_owned(),
            system_uuid_mismatch: is_mismatch,
            name: machine.name,
        }),
        Presence::Gone(Proof {
            lists: (first, second),
            looked_up_at,
            witness,
        }) => v1::instance_result::Presence::Gone(v1::GoneProof {
            first_list_id: first,
            second_list_id: second,
            looked_up_at: Some(looked_up_at.into()),
            witness_machine_id: witness.to_string(),
        }),
        Presence::Unknown(why, text) => unknown(reason(why), text),
    };
    v1::InstanceResult {
        presence: Some(presence),
        list_id: answer.list_id,
        observed_at: answer.observed_at.map(Into::into),
    }
}

fn unknown(why: v1::unknown_reason::Why, text: String) -> v1::instance_result::Presence {
    v1::instance_result::Presence::Unknown(v1::UnknownReason {
        why: why.into(),
        text,
    })
}

fn reason(why: Why) -> v1::unknown_reason::Why {
    match why {
        Why::Unreachable => v1::unknown_reason::Why::CloudUnreachable,
        Why::NotFoundYet => v1::unknown_reason::Why::NotFoundYet,
        Why::Ambiguous => v1::unknown_reason::Why::Ambiguous,
        Why::OutOfScope => v1::unknown_reason::Why::OutOfScope,
        Why::NothingVisible => v1::unknown_reason::Why::NothingVisible,
    }
}

fn power(power: Power) -> v1::instance::Power {
    match power {
        Power::Running => v1::instance::Power::Running,
        Power::Stopped => v1::instance::Power::Stopped,
        Power::Changing => v1::instance::Power::Changing,
    }
}

fn address(address: Address) -> v1::NodeAddress {
    let (kind, address) = match address {
        Address::Internal(ip) => (v1::node_address::Type::InternalIp, ip_text(ip)),
        Address::External(ip) => (v1::node_address::Type::ExternalIp, ip_text(ip)),
        Address::Hostname(name) => (v1::node_address::Type::Hostname, name),
    };
    v1::NodeAddress {
        r#type: kind.into(),
        address,
    }
}

fn ip_text(ip: IpAddr) -> String {
    ip.to_string()
}

/// Times that a description needs.
pub(super) struct Moment {
    pub(super) now: Instant,
    pub(super) wall: SystemTime,
    pub(super) drift_period: Duration,
    pub(super) refresh_interval: Duration,
}

/// How things stand for a caller.
pub(super) fn describe_response(
    call: &Call,
    description: Description,
    used_public_ips: Option<u32>,
    moment: &Moment,
) -> v1::DescribeResponse {
    let tenant = &call.served.tenant;
    let seconds = |duration: Duration| prost_types::Duration::try_from(duration).unwrap_or_default();
    let policy = v1::Policy {
        member_port_first: tenant.policy.member_ports.first().into(),
        member_port_last: tenant.policy.member_ports.last().into(),
        max_public_ips: tenant.policy.max_public_ips.unwrap_or_default(),
        used_public_ips: used_public_ips.unwrap_or_default(),
        address_sharing: tenant.policy.address_sharing.word().to_owned(),
        networks: tenant.scope.networks.iter().map(ToString::to_string).collect(),
        project_id: tenant
            .scope
            .project
            .as_ref()
            .map(ToString::to_string)
            .unwrap_or_default(),
        machines: tenant.scope.machines.to_string(),
        take_over: tenant.policy.take_over,
    };
    v1::DescribeResponse {
        cluster: tenant.cluster.to_string(),
        cluster_uid: call.uids.written().map(ToString::to_string).unwrap_or_default(),
        identity: call.identity.proof.clone(),
        contract_min: CONTRACT_VERSION,
        contract_max: CONTRACT_VERSION,
        features: FEATURES.iter().map(ToString::to_string).collect(),
        limits: Some(limits()),
        policy: Some(policy),
        rights: rights(&description),
        findings: description.findings.into_iter().map(finding).collect(),
        networks: description.networks.iter().map(network).collect(),
        refresh_interval: Some(seconds(moment.refresh_interval)),
        data_age: description
            .list_began
            .map(|began| seconds(moment.now.saturating_duration_since(began))),
        drift_period: Some(seconds(moment.drift_period)),
        server_time: Some(moment.wall.into()),
        cloud_version: description.known.version.unwrap_or_default(),
        broker_version: env!("CARGO_PKG_VERSION").to_owned(),
    }
}

fn limits() -> v1::Limits {
    let number = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
    v1::Limits {
        max_lookup_keys: number(MAX_KEYS),
        max_ports: number(MOST_PORTS),
        max_members: number(MOST_MEMBERS),
        max_sources: number(MAX_SOURCES),
        max_wait: prost_types::Duration::try_from(MAX_WAIT).ok(),
    }
}

fn rights(description: &Description) -> Vec<v1::Right> {
    let right = |(command, allowed): (&crate::cloudstack::Command, &bool)| {
        let need = need(*command);
        let needed_for = if need.weight == Weight::Convenience && *allowed {
            ""
        } else {
            need.what
        };
        v1::Right {
            command: command.name().to_owned(),
            allowed: *allowed,
            needed_for: needed_for.to_owned(),
        }
    };
    description.known.rights.iter().map(right).collect()
}

fn finding(finding: Finding) -> v1::Finding {
    let severity = match finding.severity {
        Severity::Info => v1::finding::Severity::Info,
        Severity::Warning => v1::finding::Severity::Warning,
        Severity::Error => v1::finding::Severity::Error,
    };
    v1::Finding {
        severity: severity.into(),
        reason: finding.reason.to_owned(),
        object: finding.object,
        text: finding.text,
    }
}

fn network(network: &Network) -> v1::NetworkInfo {
    v1::NetworkInfo {
        id: network.id.to_string(),
        name: network.name.clone(),
        offers_load_balancer: network.has(ServiceName::LoadBalancer),
    }
}
