//! One Service of type LoadBalancer, from a scenario's point of view.

use std::fmt::Write as _;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow};
use k8s_openapi::api::core::v1::{Event, Service};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use crate::cluster::{Cluster, FINALIZER, merge, object};
use crate::wait;

/// What to create.
#[derive(Debug, Clone)]
pub struct Wanted {
    name: String,
    body: Value,
    ports: Vec<Value>,
}

impl Wanted {
    /// A Service of type LoadBalancer without ports.
    pub fn new(name: &str) -> Self {
        let body = json!({"metadata": {"name": name}, "spec": {"type": "LoadBalancer",
            "selector": {"app": name}}});
        Self {
            name: name.to_owned(),
            body,
            ports: Vec::new(),
        }
    }

    /// One more TCP port.
    #[must_use]
    pub fn port(self, port: u16) -> Self {
        self.port_with(port, json!({}))
    }

    /// `n` TCP ports from `first` on.
    #[must_use]
    pub fn ports(self, first: u16, n: u16) -> Self {
        (first..first.saturating_add(n)).fold(self, Self::port)
    }

    /// One more port with more of its fields.
    #[must_use]
    pub fn port_with(mut self, port: u16, more: Value) -> Self {
        let mut entry = json!({"name": format!("p{port}"), "port": port, "protocol": "TCP"});
        merge(&mut entry, more);
        self.ports.push(entry);
        self
    }

    /// Fields of the spec.
    #[must_use]
    pub fn spec(mut self, more: Value) -> Self {
        merge(&mut self.body["spec"], more);
        self
    }

    /// One annotation, by its full name.
    #[must_use]
    pub fn annotation(self, name: &str, value: &str) -> Self {
        self.with(json!({"metadata": {"annotations": {name: value}}}))
    }

    /// Any fields.
    #[must_use]
    pub fn with(mut self, more: Value) -> Self {
        merge(&mut self.body, more);
        self
    }
}

/// A Service that was created.
#[derive(Debug, Clone)]
pub struct Handle<'a> {
    cluster: &'a Cluster,
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its UID.
    pub uid: String,
}

impl<'a> Handle<'a> {
    /// Creates a Service.
    pub async fn create(cluster: &'a Cluster, namespace: &str, wanted: Wanted) -> Result<Self> {
        let Wanted {
            name,
            mut body,
            ports,
        } = wanted;
        merge(&mut body, json!({"spec": {"ports": ports}}));
        let made = cluster
            .services(namespace)
            .create(&PostParams::default(), &object(body)?)
            .await?;
        let uid = made.metadata.uid.context("a Service without a UID")?;
        Ok(Self {
            cluster,
            namespace: namespace.to_owned(),
            name,
            uid,
        })
    }

    /// The load balancer name that the Go controllers derive from the UID.
    pub fn load_balancer_name(&self) -> String {
        let plain = self.uid.replace('-', "");
        format!("a{plain}").chars().take(32).collect()
    }

    /// Its present form.
    pub async fn get(&self) -> Result<Service> {
        Ok(self.cluster.services(&self.namespace).get(&self.name).await?)
    }

    /// All Services of its namespace.
    pub async fn siblings(&self) -> Result<Vec<Service>> {
        Ok(self
            .cluster
            .services(&self.namespace)
            .list(&ListParams::default())
            .await?
            .items)
    }

    /// Lays a merge patch over it.
    pub async fn patch(&self, patch: Value) -> Result<Service> {
        let api = self.cluster.services(&self.namespace);
        Ok(api
            .patch(&self.name, &PatchParams::default(), &Patch::Merge(patch))
            .await?)
    }

    /// Replaces the list of its ports.
    pub async fn set_ports(&self, wanted: Wanted) -> Result<Service> {
        self.patch(json!({"spec": {"ports": wanted.ports}})).await
    }

    /// The addresses or host names of its status.
    pub async fn ingress(&self) -> Result<Vec<String>> {
        Ok(ingress(&self.get().await?))
    }

    /// Waits for an address in the status.
    pub async fn address(&self, within: Duration) -> Result<String> {
        wait::until(
            within,
            format!("{}/{} gets an address", self.namespace, self.name),
            || async {
                match self.ingress().await?.into_iter().next() {
                    Some(address) => Ok(Some(address)),
                    None => Err(anyhow!("events: {}", self.story().await?)),
                }
            },
        )
        .await
    }

    /// Waits until the status is empty.
    pub async fn no_address(&self, within: Duration) -> Result<()> {
        wait::until_holds(within, format!("{} loses its address", self.name), || async {
            let left = self.ingress().await?;
            Ok((!left.is_empty()).then(|| format!("still {left:?}")))
        })
        .await
    }

    /// Waits for an event.
    pub async fn event(&self, reason: &str, within: Duration) -> Result<Event> {
        self.cluster
            .event(&self.namespace, &self.name, reason, within)
            .await
    }

    /// All events so far.
    pub async fn events(&self) -> Result<Vec<Event>> {
        self.cluster.events(&self.namespace, &self.name).await
    }

    /// All events so far as text.
    pub async fn story(&self) -> Result<String> {
        let mut text = String::new();
        for event in self.events().await? {
            let (reason, message) = (
                event.reason.unwrap_or_default(),
                event.message.unwrap_or_default(),
            );
            write!(text, "[{reason}] {message}; ")?;
        }
        Ok(text)
    }

    /// Waits for a Warning whose text contains all of `parts`.
    pub async fn warning(&self, parts: &[&str], within: Duration) -> Result<Event> {
        let what = format!("warning on {} with {parts:?}", self.name);
        wait::until(within, what, || async {
            let events = self.events().await?;
            let fits = |event: &&Event| {
                let text = event.message.as_deref().unwrap_or_default();
                event.type_.as_deref() == Some("Warning") && parts.iter().all(|part| text.contains(part))
            };
            match events.iter().find(fits) {
                Some(event) => Ok(Some(event.clone())),
                None => Err(anyhow!("events: {}", self.story().await?)),
            }
        })
        .await
    }

    /// Asks for its deletion and returns at once.
    pub async fn ask_delete(&self) -> Result<()> {
        self.cluster
            .services(&self.namespace)
            .delete(&self.name, &DeleteParams::default())
            .await?;
        Ok(())
    }

    /// Waits until it is gone.
    pub async fn gone(&self, within: Duration) -> Result<()> {
        wait::until_holds(within, format!("service {} is gone", self.name), || async {
            let left = self.cluster.services(&self.namespace).get_opt(&self.name).await?;
            let Some(service) = left else { return Ok(None) };
            let finalizers = service.metadata.finalizers.unwrap_or_default();
            Ok(Some(format!(
                "finalizers {finalizers:?}, events: {}",
                self.story().await?
            )))
        })
        .await
    }

    /// Deletes it and waits until it is gone.
    pub async fn delete(&self, within: Duration) -> Result<()> {
        self.ask_delete().await?;
        self.gone(within).await
    }

    /// Whether it carries the finalizer of cloud load balancers.
    pub async fn is_protected(&self) -> Result<bool> {
        let finalizers = self.get().await?.metadata.finalizers.unwrap_or_default();
        Ok(finalizers.iter().any(|finalizer| finalizer == FINALIZER))
    }
}

/// The addresses or host names in a Service's status.
pub fn ingress(service: &Service) -> Vec<String> {
    let balancer = service
        .status
        .as_ref()
        .and_then(|status| status.load_balancer.as_ref());
    let entries = balancer
        .and_then(|balancer| balancer.ingress.clone())
        .unwrap_or_default();
    entries
        .into_iter()
        .filter_map(|entry| entry.ip.or(entry.hostname))
        .collect()
}
