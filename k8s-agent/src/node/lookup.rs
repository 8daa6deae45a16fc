//! Asks the broker about nodes and remembers what it says.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt as _;
use proto::Fault;
use proto::v1::{DescribeResponse, InstanceKey};

use super::plan::provider_id_of;
use super::presence::{Presence, Why};
use crate::broker::Broker;
use crate::contain;
use crate::context::Context;

/// A node to ask about.
#[derive(Clone, Debug)]
pub struct Asked {
    /// The node.
    pub node: Arc<Node>,
    /// How long it has not been Ready; nothing while it is. Only then the machine can be proved gone.
    pub not_ready_for: Option<Duration>,
}

/// What the broker says of each, in their order. Heard by [`Machines`](super::machines::Machines) as well.
pub async fn lookup(context: &Context, broker: &Broker, asked: &[Asked]) -> Result<Vec<Presence>, Fault> {
    if asked.is_empty() {
        return Ok(Vec::new());
    }
    let answer = async { broker.lookup_instances(asked.iter().map(key).collect()).await };
    let results = context.host.contain("node-lookup", answer).await;
    let results = results.unwrap_or_else(|| Err(contain::fault()))?;
    let scope = scope(broker);
    let read = |result| {
        let read = context.host.contained("node-lookup", || Presence::read(result));
        // What one answer does to this program says nothing of the other machines.
        read.unwrap_or_else(|| Presence::Unknown {
            why: Why::NotYet,
            text: contain::TEXT.to_owned(),
        })
    };
    let presences: Vec<Presence> = results.into_iter().map(read).collect();
    for (asked, presence) in asked.iter().zip(&presences) {
        let uid = asked.node.uid().unwrap_or_default();
        context.machines.hear(&uid, presence, scope.as_deref());
    }
    Ok(presences)
}

/// Where the broker looks for machines, as one text: it differs whenever another key, project or fence is in use.
pub fn scope(broker: &Broker) -> Option<String> {
    broker.description().map(|description| scope_of(&description))
}

fn scope_of(description: &DescribeResponse) -> String {
    let policy = description.policy.clone().unwrap_or_default();
    let parts = [
        &description.cluster,
        &description.identity,
        &policy.project_id,
        &policy.machines,
    ];
    let networks = policy.networks.join(",");
    parts
        .into_iter()
        .chain([&networks])
        .map(|part| format!("{part:?}"))
        .collect::<Vec<_>>()
        .join(" ")
}

fn key(asked: &Asked) -> InstanceKey {
    let node = &asked.node;
    let info = node.status.as_ref().and_then(|status| status.node_info.as_ref());
    InstanceKey {
        node_uid: node.uid().unwrap_or_default(),
        machine_id: provider_id_of(node).machine().map(ToString::to_string),
        system_uuid: info
            .map(|info| info.system_uuid.clone())
            .filter(|uuid| !uuid.is_empty()),
        node_name: node.name_any(),
        node_created: node.creation_timestamp().map(|time| prost_types::Timestamp {
            seconds: time.0.as_second(),
            nanos: time.0.subsec_nanosecond(),
        }),
        not_ready_for: asked.not_ready_for.and_then(|time| time.try_into().ok()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::core::v1::NodeSystemInfo;
    use proto::v1::Policy;

    #[test]
    fn a_key_says_what_is_known_of_the_node() {
        let mut node = Node::default();
        node.metadata.name = Some("Worker-1".into());
        node.metadata.uid = Some("u".into());
        node.spec.get_or_insert_default().provider_id =
            Some("cloudstack:///3A1B2C3D-0000-4000-8000-0123456789AB".into());
        node.status.get_or_insert_default().node_info = Some(NodeSystemInfo {
            system_uuid: "abc".into(),
            ..NodeSystemInfo::default()
        });
        let key = key(&Asked {
            node: Arc::new(node),
            not_ready_for: Some(Duration::from_secs(31)),
        });
        assert_eq!(
            key.machine_id.as_deref(),
            Some("3a1b2c3d-0000-4000-8000-0123456789ab")
        );
        assert_eq!(
            (key.node_name.as_str(), key.system_uuid.as_deref()),
            ("Worker-1", Some("abc"))
        );
        assert_eq!(key.not_ready_for.map(|it| it.seconds), Some(31));
    }

    #[test]
    fn another_project_is_another_scope() {
        let with = |project: &str| DescribeResponse {
            policy: Some(Policy {
                project_id: project.into(),
                used_public_ips: 3,
                ..Policy::default()
            }),
            ..DescribeResponse::default()
        };
        assert_ne!(scope_of(&with("a")), scope_of(&with("b")));
        let mut more = with("a");
        more.policy.as_mut().unwrap().used_public_ips = 4;
        assert_eq!(scope_of(&with("a")), scope_of(&more));
    }
}
