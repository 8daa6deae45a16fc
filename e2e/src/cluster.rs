//! A Kubernetes cluster as the scenarios see it: machines that register as Nodes (there is no kubelet), Services,
//! events, and a way back to an empty cluster between two scenarios.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Event, Namespace, Node, Service};
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::control_plane::ControlPlane;
use crate::wait;

/// The taint with which kubelet registers a node that a cloud controller has to initialise.
pub const UNINITIALIZED: &str = "node.cloudprovider.kubernetes.io/uninitialized";
/// The finalizer of cloud load balancers.
pub const FINALIZER: &str = "service.kubernetes.io/load-balancer-cleanup";
/// Prefix of the annotations that both Go controllers know.
pub const ANNOTATION: &str = "service.beta.kubernetes.io/cloudstack-load-balancer-";

/// A control plane and its administrator's client.
pub struct Cluster {
    /// The control plane behind it.
    pub plane: ControlPlane,
    client: kube::Client,
}

impl Debug for Cluster {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Cluster")
            .field("plane", &self.plane)
            .finish_non_exhaustive()
    }
}

impl Cluster {
    /// Starts a control plane in `dir`.
    pub async fn start(dir: &Path) -> Result<Self> {
        let plane = ControlPlane::start(dir).await?;
        let client = plane.admin().await?;
        Ok(Self { plane, client })
    }

    /// The administrator's client.
    pub fn client(&self) -> kube::Client {
        self.client.clone()
    }

    /// All Nodes.
    pub fn nodes(&self) -> Api<Node> {
        Api::all(self.client.clone())
    }

    /// The Services of a namespace.
    pub fn services(&self, namespace: &str) -> Api<Service> {
        Api::namespaced(self.client.clone(), namespace)
    }

    /// UID of the namespace that stands for the cluster's identity.
    pub async fn uid(&self) -> Result<String> {
        let api: Api<Namespace> = Api::all(self.client.clone());
        api.get("kube-system")
            .await?
            .metadata
            .uid
            .context("kube-system without a UID")
    }

    /// Makes a namespace.
    pub async fn namespace(&self, name: &str) -> Result<()> {
        let api: Api<Namespace> = Api::all(self.client.clone());
        api.create(
            &PostParams::default(),
            &object(json!({"metadata": {"name": name}}))?,
        )
        .await?;
        Ok(())
    }

    /// Registers a machine as kubelet does with an external cloud provider: tainted, without provider id, Ready.
    pub async fn register(&self, name: &str) -> Result<Node> {
        self.register_with(name, json!({})).await
    }

    /// The same with more of a Node's fields.
    pub async fn register_with(&self, name: &str, more: Value) -> Result<Node> {
        let mut node = json!({
            "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}},
            "spec": {"taints": [{"key": UNINITIALIZED, "value": "true", "effect": "NoSchedule"}]},
        });
        merge(&mut node, more);
        self.nodes()
            .create(&PostParams::default(), &object(node)?)
            .await?;
        self.set_ready(name, true).await?;
        // Admission taints a new node as not ready; taking that away is the node lifecycle controller's work,
        // which does not run here. The agent may write the node at the same time.
        wait::until(
            Duration::from_secs(10),
            format!("node {name} loses its not-ready taint"),
            || async {
                let node = self.nodes().get(name).await?;
                let taints = node.spec.and_then(|spec| spec.taints).unwrap_or_default();
                let kept: Vec<_> = taints
                    .into_iter()
                    .filter(|t| t.key != "node.kubernetes.io/not-ready")
                    .collect();
                let patch = json!({"metadata": {"resourceVersion": node.metadata.resource_version},
                "spec": {"taints": kept}});
                Ok(Some(
                    self.nodes()
                        .patch(name, &PatchParams::default(), &Patch::Merge(patch))
                        .await?,
                ))
            },
        )
        .await
    }

    /// Sets the condition Ready, kubelet's part.
    pub async fn set_ready(&self, name: &str, ready: bool) -> Result<()> {
        let status = if ready { "True" } else { "Unknown" };
        let now = k8s_openapi::jiff::Timestamp::now();
        let patch = json!({"status": {"conditions": [{"type": "Ready", "status": status,
            "reason": if ready { "KubeletReady" } else { "NodeStatusUnknown" },
            "lastHeartbeatTime": now, "lastTransitionTime": now}]}});
        self.nodes()
            .patch_status(name, &PatchParams::default(), &Patch::Strategic(patch))
            .await?;
        Ok(())
    }

    /// A Node, if there is one.
    pub async fn node(&self, name: &str) -> Result<Option<Node>> {
        Ok(self.nodes().get_opt(name).await?)
    }

    /// Waits until a Node has lost the taint of uninitialised nodes.
    pub async fn initialised(&self, name: &str, within: Duration) -> Result<Node> {
        wait::until(within, format!("node {name} is initialised"), || async {
            Ok(self
                .node(name)
                .await?
                .filter(|node| !has_taint(node, UNINITIALIZED)))
        })
        .await
    }

    /// Events on an object, oldest first.
    pub async fn events(&self, namespace: &str, name: &str) -> Result<Vec<Event>> {
        let api: Api<Event> = Api::namespaced(self.client.clone(), namespace);
        let of = ListParams::default().fields(&format!("involvedObject.name={name}"));
        let mut events = api.list(&of).await?.items;
        events.sort_by_key(|event| event.first_timestamp.as_ref().map(|time| time.0));
        Ok(events)
    }

    /// Waits for an event with this reason on an object.
    pub async fn event(&self, namespace: &str, name: &str, reason: &str, within: Duration) -> Result<Event> {
        wait::until(
            within,
            format!("event {reason} on {namespace}/{name}"),
            || async {
                let events = self.events(namespace, name).await?;
                let seen: Vec<_> = events.iter().filter_map(|event| event.reason.clone()).collect();
                match events
                    .into_iter()
                    .find(|event| event.reason.as_deref() == Some(reason))
                {
                    Some(event) => Ok(Some(event)),
                    None => Err(anyhow::anyhow!("events so far: {seen:?}")),
                }
            },
        )
        .await
    }

    /// Removes Services, Nodes, leases and events, whatever finalizers they carry.
    pub async fn clear(&self) -> Result<()> {
        let now = DeleteParams::default().grace_period(0);
        for service in Api::<Service>::all(self.client.clone())
            .list(&ListParams::default())
            .await?
        {
            let (Some(name), Some(namespace)) = (service.metadata.name, service.metadata.namespace) else {
                continue;
            };
            if name == "kubernetes" {
                continue;
            }
            let api = self.services(&namespace);
            let free = Patch::Merge(json!({"metadata": {"finalizers": null}}));
            let freed = api.patch(&name, &PatchParams::default(), &free).await;
            freed.map(Some).or_else(gone)?;
            api.delete(&name, &now)
                .await
                .map(|_| None)
                .or_else(gone::<Service>)?;
        }
        for node in self.nodes().list(&ListParams::default()).await? {
            let name = node.metadata.name.unwrap_or_default();
            self.nodes()
                .delete(&name, &now)
                .await
                .map(|_| None)
                .or_else(gone::<Node>)?;
        }
        let leases: Api<Lease> = Api::namespaced(self.client.clone(), "kube-system");
        for lease in leases.list(&ListParams::default()).await? {
            let name = lease.metadata.name.unwrap_or_default();
            leases
                .delete(&name, &now)
                .await
                .map(|_| None)
                .or_else(gone::<Lease>)?;
        }
        let events: Api<Event> = Api::namespaced(self.client.clone(), "default");
        events.delete_collection(&now, &ListParams::default()).await?;
        Ok(())
    }
}

/// "Already gone" is what a cleaner wanted.
fn gone<T>(error: kube::Error) -> Result<Option<T>, kube::Error>
where
    T: Debug,
{
    if matches!(&error, kube::Error::Api(status) if status.code == 404) {
        return Ok(None);
    }
    Err(error)
}

/// Whether a Node carries a taint with this key.
pub fn has_taint(node: &Node, key: &str) -> bool {
    let taints = node.spec.as_ref().and_then(|spec| spec.taints.as_ref());
    taints.is_some_and(|taints| taints.iter().any(|taint| taint.key == key))
}

/// Addresses of a Node by type.
pub fn addresses(node: &Node) -> Vec<(String, String)> {
    let status = node.status.clone().unwrap_or_default();
    status
        .addresses
        .unwrap_or_default()
        .into_iter()
        .map(|a| (a.type_, a.address))
        .collect()
}

/// Labels of an object, none if it has none.
pub fn labels(node: &Node) -> BTreeMap<String, String> {
    node.metadata.labels.clone().unwrap_or_default()
}

/// A typed object from its JSON form.
pub fn object<T: DeserializeOwned>(value: Value) -> Result<T> {
    Ok(serde_json::from_value(value)?)
}

/// Lays `more` over `base`: objects are merged, everything else is replaced.
pub fn merge(base: &mut Value, more: Value) {
    match (base, more) {
        (Value::Object(base), Value::Object(more)) => {
            for (key, value) in more {
                merge(base.entry(key).or_insert(Value::Null), value);
            }
        }
        (base, more) => *base = more,
    }
}
