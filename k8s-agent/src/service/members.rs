//! Which nodes are members of a load balancer, and which machine is behind each.
//!
//! Pure. Decides by the stable set: not being deleted, not excluded by label, not about to be removed by the cluster
//! autoscaler. Readiness and cordon don't count: the load balancer finds out itself whether a node answers. A node whose
//! machine is not known is listed as unresolved, so that the broker removes nothing on its account. Which machine is behind
//! a node is told by the caller, see [`Machine`].

use k8s_openapi::api::core::v1::Node;
use proto::v1::WishMember;
use proto::v1::wish_member;

use super::backend::Notice;
use crate::events::Reason;

/// Label that keeps a node out of load balancers.
pub const EXCLUDE_LABEL: &str = "node.kubernetes.io/exclude-from-external-load-balancers";
/// Taint of a node that the cluster autoscaler is about to remove.
pub const AUTOSCALER_TAINT: &str = "ToBeDeletedByClusterAutoscaler";
/// Names in the text of an event; the rest is counted.
const NAMES_IN_TEXT: usize = 20;

/// The machine behind a node.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Machine {
    /// This one.
    Known(String),
    /// It was this one, and it is proved gone.
    Gone(String),
    /// Not known yet, or doubtful.
    Unresolved,
    /// The node belongs to another provider; this is its provider id.
    Foreign(String),
}

/// Members in the order of their names, and what a person should know of them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Members {
    /// For the wish.
    pub wish: Vec<WishMember>,
    /// Nodes that are left out against expectation.
    pub notices: Vec<Notice>,
}

/// Picks the members.
pub fn pick<'a>(nodes: impl IntoIterator<Item = &'a Node>, machine: impl Fn(&Node) -> Machine) -> Members {
    let mut nodes: Vec<_> = nodes.into_iter().filter(|node| is_eligible(node)).collect();
    nodes.sort_by(|one, other| one.metadata.name.cmp(&other.metadata.name));
    let mut members = Members::default();
    let mut foreign = Vec::new();
    for node in nodes {
        let name = node.metadata.name.clone().unwrap_or_default();
        let behind = match machine(node) {
            Machine::Known(id) => wish_member::Machine::MachineId(id),
            Machine::Gone(id) => wish_member::Machine::GoneMachineId(id),
            Machine::Unresolved => wish_member::Machine::Unresolved(true),
            Machine::Foreign(_) => {
                foreign.push(name);
                continue;
            }
        };
        members.wish.push(WishMember {
            node_name: name,
            machine: Some(behind),
        });
    }
    if !foreign.is_empty() {
        members.notices.push(Notice::of(
            &Reason::NODE_NOT_ELIGIBLE,
            "",
            format!(
                "left out, since their provider id is another provider's: {}",
                enumerate(&foreign)
            ),
        ));
    }
    members
}

/// Whether a node is in the stable set.
pub fn is_eligible(node: &Node) -> bool {
    node.metadata.deletion_timestamp.is_none() && !is_excluded(node) && !is_about_to_go(node)
}

/// The label excludes unless its value is a boolean false, in the spellings that Go reads.
fn is_excluded(node: &Node) -> bool {
    node.metadata
        .labels
        .as_ref()
        .and_then(|labels| labels.get(EXCLUDE_LABEL))
        .is_some_and(|value| !matches!(value.as_str(), "0" | "f" | "F" | "false" | "False" | "FALSE"))
}

fn is_about_to_go(node: &Node) -> bool {
    node.spec
        .as_ref()
        .and_then(|spec| spec.taints.as_deref())
        .unwrap_or_default()
        .iter()
        .any(|taint| taint.key == AUTOSCALER_TAINT)
}

/// Names with commas between them, cut after some.
pub fn enumerate<S: AsRef<str>>(names: &[S]) -> String {
    let shown: Vec<_> = names.iter().take(NAMES_IN_TEXT).map(AsRef::as_ref).collect();
    let rest = names.len().saturating_sub(NAMES_IN_TEXT);
    if rest == 0 {
        shown.join(", ")
    } else {
        format!("{} and {rest} more", shown.join(", "))
    }
}

#[cfg(test)]
mod tests;
