//! The ConfigMap of kube-keepalived-vip as scenarios see it, what the consumer makes of it, and keepalived's own check.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use crate::cluster::Cluster;
use crate::processes::Program;

/// Namespace of the ConfigMap.
pub const NAMESPACE: &str = "kube-system";
/// Its name.
pub const NAME: &str = "vip-configmap";
/// The annotation with the records.
pub const RECORDS: &str = "k8s.co/cloud-provider-config";
/// The annotation of a Service that names its forward method.
pub const METHOD: &str = "k8s.co/keepalived-forward-method";

/// The ConfigMap of one cluster.
#[derive(Clone)]
pub struct Map {
    api: Api<ConfigMap>,
}

impl std::fmt::Debug for Map {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Map")
    }
}

impl Map {
    /// The one that is there.
    pub fn of(cluster: &Cluster) -> Self {
        Self {
            api: Api::namespaced(cluster.client(), NAMESPACE),
        }
    }

    /// Makes it anew, with this content.
    pub async fn fresh(cluster: &Cluster, content: Value) -> Result<Self> {
        let api: Api<ConfigMap> = Api::namespaced(cluster.client(), NAMESPACE);
        if api.get_opt(NAME).await?.is_some() {
            api.delete(NAME, &DeleteParams::default()).await?;
        }
        let mut object = json!({"metadata": {"name": NAME}});
        crate::cluster::merge(&mut object, content);
        api.create(&PostParams::default(), &serde_json::from_value(object)?)
            .await?;
        Ok(Self { api })
    }

    /// Lays a merge patch over it.
    pub async fn patch(&self, patch: Value) -> Result<()> {
        self.api
            .patch(NAME, &PatchParams::default(), &Patch::Merge(patch))
            .await?;
        Ok(())
    }

    /// Its version, which every write changes.
    pub async fn version(&self) -> Result<String> {
        Ok(self
            .api
            .get(NAME)
            .await?
            .metadata
            .resource_version
            .unwrap_or_default())
    }

    /// Its entries: address to Service.
    pub async fn entries(&self) -> Result<BTreeMap<String, String>> {
        Ok(self.api.get(NAME).await?.data.unwrap_or_default())
    }

    /// Its records: Service UID to address.
    pub async fn records(&self) -> Result<BTreeMap<String, String>> {
        let annotations = self.api.get(NAME).await?.metadata.annotations.unwrap_or_default();
        let Some(text) = annotations.get(RECORDS) else {
            return Ok(BTreeMap::new());
        };
        let records: Value = serde_json::from_str(text).context("the records are no JSON")?;
        let list = records["services"].as_array().cloned().unwrap_or_default();
        let pair = |record: &Value| {
            let field = |name: &str| record[name].as_str().unwrap_or_default().to_owned();
            (field("uid"), field("ip"))
        };
        Ok(list.iter().map(pair).collect())
    }
}

/// Renders what kube-keepalived-vip makes of entries, each with one live endpoint, so that keepalived can check it.
/// Left out is what a check on a machine without these interfaces stumbles over: tracking and firewall rules.
pub fn rendered(entries: &BTreeMap<String, String>) -> String {
    let mut text = String::from("global_defs {\n  vrrp_version 3\n  dynamic_interfaces\n}\n");
    let addresses: Vec<_> = entries.keys().map(|address| format!("    {address}\n")).collect();
    text +=
        "vrrp_instance vips {\n  state BACKUP\n  interface vip0\n  virtual_router_id 50\n  priority 100\n";
    text += "  nopreempt\n  advert_int 1\n  virtual_ipaddress {\n";
    text += &addresses.concat();
    text += "  }\n}\n";
    for (number, (address, value)) in entries.iter().enumerate() {
        // An empty value puts the address on the holder and forwards nothing.
        if value.is_empty() {
            continue;
        }
        let method = value.split_once(':').map_or("NAT", |(_, method)| method);
        let method = if method.is_empty() { "NAT" } else { method };
        let backend = format!("10.244.{}.{}", number / 250, number % 250 + 1);
        text.push_str(&virtual_server(address, method, &backend));
    }
    text
}

/// One Service's block: port 80 to one live endpoint.
fn virtual_server(address: &str, method: &str, backend: &str) -> String {
    let check = "TCP_CHECK {\n      connect_port 80\n      connect_timeout 3\n    }";
    let real = format!("real_server {backend} 80 {{\n    weight 1\n    {check}\n  }}");
    let how = format!("lvs_sched wlc\n  lvs_method {method}\n  persistence_timeout 1800\n  protocol TCP");
    format!("virtual_server {address} 80 {{\n  delay_loop 5\n  {how}\n  {real}\n}}\n")
}

/// keepalived's own check of a rendered file; an error is what it complains about.
pub async fn checked(program: &Path, dir: &Path, entries: &BTreeMap<String, String>) -> Result<()> {
    let (file, log) = (dir.join("keepalived.conf"), dir.join("keepalived-check.log"));
    std::fs::write(&file, rendered(entries))?;
    if log.exists() {
        std::fs::remove_file(&log)?;
    }
    let check = Program::new("keepalived", program).arg(format!("--config-test={}", log.display()));
    let output = check.arg("-f").arg(&file).output().await;
    let complaints = std::fs::read_to_string(&log).unwrap_or_default();
    output.with_context(|| format!("keepalived refuses {}: {complaints}", file.display()))?;
    ensure!(complaints.trim().is_empty(), "keepalived complains: {complaints}");
    Ok(())
}
