//! The agent's rights in the tests: those of the manifests and no others. The service account, roles and bindings of
//! `deploy/` are applied as they are, and the agent gets a token of that account.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::authentication::v1::TokenRequest;
use k8s_openapi::api::core::v1::ServiceAccount;
use kube::api::{Api, DynamicObject, Patch, PatchParams, PostParams};
use kube::core::GroupVersionKind;
use kube::discovery::ApiResource;
use serde_json::{Value, json};

use crate::cluster::{Cluster, object};
use crate::settings::Settings;

/// What of the manifests is applied: identity and rights. Deployments would wait for a kubelet for ever.
const KINDS: [&str; 6] = [
    "Namespace",
    "ServiceAccount",
    "ClusterRole",
    "ClusterRoleBinding",
    "Role",
    "RoleBinding",
];

/// The base manifests, a kustomization.
const BASE: &str = "deploy/base";

/// The account that the manifests make for the agent.
#[derive(Debug, Clone)]
pub struct Account {
    namespace: String,
    name: String,
}

/// Applies identity and rights of `deploy/base` to a cluster.
pub async fn apply(cluster: &Cluster) -> Result<Account> {
    apply_folder(cluster, BASE).await
}

/// The same of another kustomization of the project.
pub async fn apply_folder(cluster: &Cluster, folder: &str) -> Result<Account> {
    let base = Settings::root().join(folder);
    let text = cluster
        .plane
        .kubectl()
        .args(["create", "--dry-run=client", "-o", "json", "-k"]);
    let text = text
        .arg(&base)
        .output()
        .await
        .context("rendering the manifests")?;
    let mut account = None;
    for item in documents(&text)? {
        let kind = item["kind"].as_str().unwrap_or_default().to_owned();
        if !KINDS.contains(&kind.as_str()) {
            continue;
        }
        let name = item["metadata"]["name"]
            .as_str()
            .context("a manifest without a name")?
            .to_owned();
        let namespace = item["metadata"]["namespace"].as_str().map(str::to_owned);
        if kind == "ServiceAccount" {
            let namespace = namespace
                .clone()
                .context("a ServiceAccount without a namespace")?;
            ensure!(account.is_none(), "{folder} has more than one ServiceAccount");
            account = Some(Account {
                namespace,
                name: name.clone(),
            });
        }
        put(cluster, &kind, namespace.as_deref(), &name, item).await?;
    }
    account.with_context(|| format!("{folder} has no ServiceAccount"))
}

/// kubectl prints one document after the other, or a List.
fn documents(text: &str) -> Result<Vec<Value>> {
    let mut all = Vec::new();
    for document in serde_json::Deserializer::from_str(text).into_iter::<Value>() {
        let document = document?;
        match document["items"].as_array() {
            Some(items) => all.extend(items.iter().cloned()),
            None => all.push(document),
        }
    }
    Ok(all)
}

async fn put(cluster: &Cluster, kind: &str, namespace: Option<&str>, name: &str, item: Value) -> Result<()> {
    let group = item["apiVersion"].as_str().unwrap_or("v1");
    let (group, version) = group.split_once('/').unwrap_or(("", group));
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
    let api: Api<DynamicObject> = match namespace {
        Some(namespace) => Api::namespaced_with(cluster.client(), namespace, &resource),
        None => Api::all_with(cluster.client(), &resource),
    };
    let how = PatchParams::apply("e2e").force();
    api.patch(name, &how, &Patch::Apply(item))
        .await
        .with_context(|| format!("{kind} {name}"))?;
    Ok(())
}

impl Account {
    /// A token of this account, good for two hours.
    pub async fn token(&self, cluster: &Cluster) -> Result<String> {
        let api: Api<ServiceAccount> = Api::namespaced(cluster.client(), &self.namespace);
        let ask: TokenRequest = object(json!({"spec": {"audiences": [], "expirationSeconds": 7200}}))?;
        let answer = api
            .create_token_request(&self.name, &PostParams::default(), &ask)
            .await?;
        Ok(answer.status.context("no token in the answer")?.token)
    }

    /// Writes a kubeconfig with a token of this account. `server` may be another way to the API server.
    pub async fn kubeconfig(&self, cluster: &Cluster, server: &str, file: &Path) -> Result<PathBuf> {
        let token = self.token(cluster).await?;
        let config = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "test",
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": "agent"}}],
            "clusters": [{"name": "test", "cluster": {"server": server,
                "certificate-authority": cluster.plane.ca_file}}],
            "users": [{"name": "agent", "user": {"token": token}}],
        });
        // JSON is YAML.
        std::fs::write(file, serde_json::to_vec_pretty(&config)?)?;
        Ok(file.to_path_buf())
    }
}
