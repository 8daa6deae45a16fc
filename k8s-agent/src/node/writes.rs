//! Every write to a Node. None happens unless this process leads.

use k8s_openapi::api::core::v1::{Node, NodeAddress};
use kube::api::{Api, DeleteParams, Patch, PatchParams, Preconditions};
use kube::{Client, ResourceExt as _};
use serde_json::Value;

use super::plan::{MainPatch, address_body};
use crate::apiserver::{self, Explained as _};
use crate::election::Leadership;

/// Attempts to write to a node that others write to as well.
pub const ATTEMPTS: u32 = 20;
/// Wait between two of them, at least; at most twice as long.
const PAUSE: std::time::Duration = std::time::Duration::from_millis(50);

/// Why a write did not happen.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WriteError {
    /// This process does not lead.
    #[error("this process does not lead any more")]
    NotLeading,
    /// The node changed since it was read.
    #[error("the node changed meanwhile")]
    Conflict,
    /// The node does not exist.
    #[error("the node does not exist any more")]
    NoNode,
    /// kube-apiserver refused, or is away; the text says which and what to do.
    #[error("{0}")]
    Failed(String),
}

/// Writes to nodes.
#[derive(Clone)]
pub struct Writes {
    nodes: Api<Node>,
    leadership: Leadership,
}

impl Writes {
    /// Writes with this client.
    pub fn new(client: Client, leadership: Leadership) -> Self {
        Self {
            nodes: Api::all(client),
            leadership,
        }
    }

    /// The node as it is now.
    pub async fn read(&self, name: &str) -> Result<Node, WriteError> {
        self.nodes
            .get(name)
            .await
            .map_err(|error| failed(&error, "get", "nodes"))
    }

    /// Writes the complete list of addresses; nothing else of the status changes.
    pub async fn addresses(&self, name: &str, addresses: &[NodeAddress]) -> Result<Node, WriteError> {
        let body = address_body(addresses);
        let (params, patch) = (PatchParams::default(), Patch::Merge(&body));
        let write = self.nodes.patch_status(name, &params, &patch);
        self.led(write)
            .await?
            .map_err(|error| failed(&error, "patch", "nodes/status"))
    }

    /// Writes labels, taints and provider id. With a version it is refused if the node is not at it any more.
    pub async fn main(
        &self,
        name: &str,
        patch: &MainPatch,
        version: Option<&str>,
    ) -> Result<Node, WriteError> {
        let body: Value = patch.body(version);
        let (params, patch) = (PatchParams::default(), Patch::Merge(&body));
        let write = self.nodes.patch(name, &params, &patch);
        self.led(write)
            .await?
            .map_err(|error| failed(&error, "patch", "nodes"))
    }

    /// Writes what `plan` makes of the node as it is now, again and again while others write too. `plan` answers nothing when there is nothing to write.
    pub async fn main_locked(
        &self,
        node: &Node,
        plan: impl Fn(&Node) -> Option<MainPatch>,
    ) -> Result<(), WriteError> {
        let mut node = node.clone();
        for _ in 0..ATTEMPTS {
            let Some(patch) = plan(&node) else { return Ok(()) };
            match self
                .main(&node.name_any(), &patch, node.resource_version().as_deref())
                .await
            {
                Ok(_) => return Ok(()),
                Err(WriteError::Conflict) => {}
                Err(error) => return Err(error),
            }
            pause().await;
            node = self.read(&node.name_any()).await?;
        }
        Err(WriteError::Conflict)
    }

    /// Deletes exactly this node, as it was seen: same UID, same version.
    pub async fn delete(&self, node: &Node) -> Result<(), WriteError> {
        let preconditions = Preconditions {
            uid: node.uid(),
            resource_version: node.resource_version(),
        };
        let params = DeleteParams {
            preconditions: Some(preconditions),
            ..DeleteParams::default()
        };
        let name = node.name_any();
        let write = self.nodes.delete(&name, &params);
        self.led(write)
            .await?
            .map(|_| ())
            .map_err(|error| failed(&error, "delete", "nodes"))
    }

    async fn led<T>(&self, write: impl Future<Output = T>) -> Result<T, WriteError> {
        self.leadership
            .hold(write)
            .await
            .map_err(|_| WriteError::NotLeading)
    }
}

/// Waits between two attempts.
pub async fn pause() {
    tokio::time::sleep(PAUSE.mul_f64(rand::random_range(1.0..2.0))).await;
}

fn failed(error: &kube::Error, verb: &str, resource: &str) -> WriteError {
    if apiserver::is_conflict(error) {
        WriteError::Conflict
    } else if apiserver::is_not_found(error) {
        WriteError::NoNode
    } else {
        WriteError::Failed(error.explain(verb, resource))
    }
}
