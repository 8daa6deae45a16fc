//! The Helm chart in `deploy/helm`. Its rights are not written twice: the template with them is made from the roles of the other
//! manifests by `make manifests`. Its other templates are written by hand, and the tests beside render them with the real helm and compare
//! every object with that of the kustomization for the same set-up.

use std::path::PathBuf;

use anyhow::{Context as _, Result};

use crate::settings::Settings;

const HEAD: &str = "{{- /* Made by `make manifests` from deploy/base, deploy/keepalived and deploy/keepalived-beside-cloud. */ -}}\n";

/// The folder with the chart.
pub fn folder() -> PathBuf {
    Settings::root().join("deploy/helm/cloudstack-ccm")
}

/// Where the template with identity and rights lies.
pub fn rights_path() -> PathBuf {
    folder().join("templates/rbac.yaml")
}

/// What it should say: the roles of each set-up under the values that ask for it.
pub fn rights_template() -> Result<String> {
    let [cloud, pool, both] = [
        "base/rbac.yaml",
        "keepalived/rbac.yaml",
        "keepalived-beside-cloud/config-map-role.yaml",
    ]
    .map(templated);
    Ok(format!(
        "{HEAD}{{{{- if eq .Values.cloudProvider \"keepalived\" }}}}\n{}{{{{- else }}}}\n{}{{{{- if .Values.keepalived.enabled }}}}\n---\n{}\
         {{{{- end }}}}\n{{{{- end }}}}\n",
        pool?, cloud?, both?,
    ))
}

/// A file with roles as a part of a template. The account is in the namespace of the release. Roles stay where they are: lease and
/// `ConfigMap` do not move with the release.
fn templated(part: &str) -> Result<String> {
    let path = Settings::root().join("deploy").join(part);
    let text = std::fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
    let documents = text.split("---\n").map(|document| {
        let of_account = if document.contains("kind: ServiceAccount\nmetadata:") {
            "\n  namespace: "
        } else {
            "\n    namespace: "
        };
        document
            .replace(
                &format!("{of_account}kube-system\n"),
                &format!("{of_account}{{{{ .Release.Namespace }}}}\n"),
            )
            .replace("[vip-configmap]", "[{{ .Values.keepalived.configMap | quote }}]")
    });
    Ok(documents.collect::<Vec<_>>().join("---\n"))
}

#[cfg(test)]
mod tests;
