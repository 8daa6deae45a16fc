//! What to write to a node, given its machine. Pure.
//!
//! Two patches: the addresses, on the status, and everything else in one patch of the node itself, so that a node is never without its taint before it
//! has provider id, labels and addresses. The second patch is locked by resource version; only fields that change are in it, so fields of newer versions
//! survive.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Node, NodeAddress, Taint};
use kube::ResourceExt as _;
use serde_json::{Value, json};

use super::addresses::{self, AddressFault};
use super::labels::{self, Sanitiser};
use super::presence::Machine;
use super::provider_id::{self, ProviderId};
use crate::args::Provider;

/// The kubelet sets it on a node that waits for its cloud; only the key counts.
pub const UNINITIALIZED: &str = "node.cloudprovider.kubernetes.io/uninitialized";
/// Set on a node whose machine is switched off.
pub const SHUTDOWN: &str = "node.cloudprovider.kubernetes.io/shutdown";
/// Effect of that taint.
const NO_SCHEDULE: &str = "NoSchedule";

/// How names are written.
#[derive(Clone, Copy, Debug)]
pub struct Naming {
    /// Under whose name this process runs.
    pub provider: Provider,
    /// How label values become legal.
    pub sanitiser: Sanitiser,
}

/// What to write to one node; nothing where nothing changes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NodePlan {
    /// The complete list of addresses.
    pub addresses: Option<Vec<NodeAddress>>,
    /// Changes of the node itself.
    pub main: Option<MainPatch>,
    /// Names of zone or region that had to be changed to be legal.
    pub changed_names: Vec<(String, String)>,
}

/// Changes of the node itself.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MainPatch {
    provider_id: Option<String>,
    labels: BTreeMap<String, String>,
    taints: Option<Vec<Taint>>,
}

impl MainPatch {
    /// A merge patch that is refused if the node is not at this version any more.
    pub fn body(&self, resource_version: Option<&str>) -> Value {
        let mut metadata = serde_json::Map::new();
        if let Some(version) = resource_version {
            metadata.insert("resourceVersion".to_owned(), json!(version));
        }
        if !self.labels.is_empty() {
            metadata.insert("labels".to_owned(), json!(self.labels));
        }
        let mut spec = serde_json::Map::new();
        if let Some(id) = &self.provider_id {
            spec.insert("providerID".to_owned(), json!(id));
        }
        if let Some(taints) = &self.taints {
            spec.insert("taints".to_owned(), json!(taints));
        }
        let parts = [("metadata", metadata), ("spec", spec)];
        Value::Object(
            parts
                .into_iter()
                .filter(|(_, part)| !part.is_empty())
                .map(|(key, part)| (key.into(), part.into()))
                .collect(),
        )
    }

    fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// A merge patch of the status with the complete list.
pub fn address_body(addresses: &[NodeAddress]) -> Value {
    json!({ "status": { "addresses": addresses } })
}

/// Whether a node waits to be initialised.
pub fn is_uninitialised(node: &Node) -> bool {
    taints(node).iter().any(|taint| taint.key == UNINITIALIZED)
}

/// The provider id of a node.
pub fn provider_id_of(node: &Node) -> ProviderId {
    ProviderId::parse(node.spec.as_ref().and_then(|spec| spec.provider_id.as_deref()))
}

/// Initialises a node: provider id if it has none, labels, addresses, and no taint any more.
pub fn initialise(node: &Node, machine: &Machine, naming: Naming) -> Result<NodePlan, AddressFault> {
    let mut plan = refresh(node, machine, naming)?;
    let mut main = plan.main.take().unwrap_or_default();
    if provider_id_of(node) == ProviderId::Absent {
        main.provider_id = Some(provider_id::write(naming.provider, &machine.id));
    }
    main.taints = Some(
        taints(node)
            .iter()
            .filter(|taint| taint.key != UNINITIALIZED)
            .cloned()
            .collect(),
    );
    plan.main = Some(main);
    Ok(plan)
}

/// Keeps an initialised node right: addresses and labels follow the machine.
pub fn refresh(node: &Node, machine: &Machine, naming: Naming) -> Result<NodePlan, AddressFault> {
    let wanted = addresses::wanted(&machine.addresses, node)?;
    let addresses = Some(wanted).filter(|wanted| !wanted.is_empty() && wanted != addresses::present(node));
    let labels = labels::wanted(machine, naming.provider, naming.sanitiser);
    let mut changed: BTreeMap<String, String> = labels
        .wanted
        .iter()
        .filter(|(name, value)| node.labels().get(*name) != Some(value))
        .map(owned)
        .collect();
    changed.extend(labels::follow_old(node.labels(), &labels.wanted));
    let main = MainPatch {
        labels: changed,
        ..MainPatch::default()
    };
    Ok(NodePlan {
        addresses,
        main: Some(main).filter(|main| !main.is_empty()),
        changed_names: labels.changed,
    })
}

/// Old labels are followed by present ones where the cloud can't be asked.
pub fn follow_old_labels(node: &Node) -> Option<MainPatch> {
    let labels = labels::follow_old(node.labels(), &BTreeMap::new());
    Some(MainPatch {
        labels,
        ..MainPatch::default()
    })
    .filter(|main| !main.is_empty())
}

fn owned((name, value): (&String, &String)) -> (String, String) {
    (name.clone(), value.clone())
}

/// Adds the taint of a machine that is switched off; nothing if it is there.
pub fn add_shutdown_taint(node: &Node) -> Option<MainPatch> {
    if has_shutdown_taint(node) {
        return None;
    }
    let mut all = taints(node).to_vec();
    all.push(Taint {
        key: SHUTDOWN.to_owned(),
        effect: NO_SCHEDULE.to_owned(),
        ..Taint::default()
    });
    Some(MainPatch {
        taints: Some(all),
        ..MainPatch::default()
    })
}

/// Removes that taint; nothing if it is not there.
pub fn remove_shutdown_taint(node: &Node) -> Option<MainPatch> {
    if !has_shutdown_taint(node) {
        return None;
    }
    let rest = taints(node)
        .iter()
        .filter(|taint| !is_shutdown(taint))
        .cloned()
        .collect();
    Some(MainPatch {
        taints: Some(rest),
        ..MainPatch::default()
    })
}

/// Whether a node carries the taint of a machine that is switched off.
pub fn has_shutdown_taint(node: &Node) -> bool {
    taints(node).iter().any(is_shutdown)
}

fn is_shutdown(taint: &Taint) -> bool {
    taint.key == SHUTDOWN && taint.effect == NO_SCHEDULE
}

fn taints(node: &Node) -> &[Taint] {
    node.spec
        .as_ref()
        .and_then(|spec| spec.taints.as_deref())
        .unwrap_or_default()
}

#[cfg(test)]
mod tests;
