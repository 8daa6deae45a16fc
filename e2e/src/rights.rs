//! The page that says what the agent may do in Kubernetes, made from the roles in `deploy/`, and what each right is for.

use std::fmt::Write as _;
use std::path::PathBuf;

use anyhow::{Context as _, Result};
use serde_json::Value;

use crate::manifests::documents;
use crate::settings::Settings;

/// One use of a right: resource, verb, and what the program does with it.
struct Use(&'static str, &'static str, &'static str);

/// All uses. A right that is granted without one is a fault, and so is a use that no role grants.
const USES: [Use; 19] = [
    Use(
        "nodes",
        "get",
        "reading a Node again that somebody else changed during a write",
    ),
    Use("nodes", "list", "knowing all Nodes"),
    Use("nodes", "watch", "knowing all Nodes"),
    Use(
        "nodes",
        "patch",
        "provider id, labels, and the taints `uninitialized` and `shutdown`",
    ),
    Use("nodes", "delete", "removing a Node whose machine is proved gone"),
    Use("nodes/status", "patch", "addresses"),
    Use("services", "list", "knowing all Services"),
    Use("services", "watch", "knowing all Services"),
    Use(
        "services/status",
        "patch",
        "finalizer, status, condition and output annotations",
    ),
    Use("events", "create", "telling what happens"),
    Use("events", "patch", "counting an event that happens again"),
    Use(
        "namespaces",
        "get",
        "the UID that marks what belongs to the cluster",
    ),
    Use("leases", "create", "the first election"),
    Use("leases", "get", "leader election"),
    Use("leases", "update", "leader election"),
    Use("configmaps", "get", "reading the entries before a write"),
    Use("configmaps", "list", "noticing changes by others"),
    Use("configmaps", "watch", "noticing changes by others"),
    Use("configmaps", "patch", "addresses and their records"),
];

/// The files with roles of the agent, and what is said above them.
const PARTS: [(&str, &str, &str); 3] = [
    (
        "base/rbac.yaml",
        "With a broker",
        "`deploy/base`, and all that is built on it.",
    ),
    (
        "keepalived/rbac.yaml",
        "With addresses from a pool",
        "`deploy/keepalived`.",
    ),
    (
        "keepalived-beside-cloud/config-map-role.yaml",
        "With both",
        "`deploy/keepalived-beside-cloud`: the rights with a broker, and these.",
    ),
];

const HEAD: &str = "# Rights in Kubernetes

What the agent's ServiceAccount may do. The broker has no ServiceAccount and no token. Roles in the whole cluster are ClusterRoles, the others
hold in the one namespace that is named. The end-to-end tests run with exactly these rights. This page is made from the manifests.

What others may do is not changed by it, with one exception: whoever may edit a Service of `type: LoadBalancer` can have an address acquired,
within the limits of the broker's configuration.
";

/// Where the page lies.
pub fn path() -> PathBuf {
    Settings::root().join("docs/reference/kubernetes-rights.md")
}

/// What it should say.
pub fn page() -> Result<String> {
    let mut page = HEAD.to_owned();
    for (file, title, what) in PARTS {
        writeln!(
            page,
            "\n## {title}\n\n{what}\n\n| Resource | Where | Verb | For |\n| --- | --- | --- | --- |"
        )?;
        for right in granted(file)? {
            let what_for = right.what_for().with_context(|| {
                format!(
                    "deploy/{file} grants {} {}, and nobody says what for",
                    right.verb, right.resource
                )
            })?;
            writeln!(
                page,
                "| {} | {} | `{}` | {what_for} |",
                right.object, right.place, right.verb
            )?;
        }
    }
    Ok(page)
}

/// One verb that a role grants.
struct Right {
    resource: String,
    /// The resource as people read it, with the only name where there is one.
    object: String,
    place: String,
    verb: String,
}

impl Right {
    fn what_for(&self) -> Option<&'static str> {
        let mut uses = USES.iter();
        let found = uses.find(|Use(resource, verb, _)| (*resource, *verb) == (&self.resource, &self.verb));
        found.map(|Use(_, _, what_for)| *what_for)
    }
}

fn granted(file: &str) -> Result<Vec<Right>> {
    let path = Settings::root().join("deploy").join(file);
    let mut rights = Vec::new();
    for role in documents(&path)? {
        let place = match role["kind"].as_str() {
            Some("ClusterRole") => "cluster".to_owned(),
            Some("Role") => format!("`{}`", role["metadata"]["namespace"].as_str().unwrap_or_default()),
            _ => continue,
        };
        for rule in words(&role["rules"]) {
            for resource in words(&rule["resources"]).filter_map(Value::as_str) {
                let names = words(&rule["resourceNames"]).filter_map(Value::as_str);
                let names: Vec<_> = names.map(|name| format!(" `{name}`")).collect();
                let names = names.concat();
                rights.extend(words(&rule["verbs"]).filter_map(Value::as_str).map(|verb| Right {
                    resource: resource.to_owned(),
                    object: format!("`{resource}`{names}"),
                    place: place.clone(),
                    verb: verb.to_owned(),
                }));
            }
        }
    }
    Ok(rights)
}

fn words(list: &Value) -> impl Iterator<Item = &Value> {
    list.as_array().into_iter().flatten()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn the_page_of_rights_is_the_roles() {
        let found = std::fs::read_to_string(path()).unwrap_or_default();
        assert!(
            found == page().unwrap(),
            "docs/reference/kubernetes-rights.md is old: make manifests"
        );
    }

    #[test]
    fn every_use_of_a_right_is_granted_by_some_role() {
        let mut granted_somewhere = BTreeSet::new();
        for (file, ..) in PARTS {
            granted_somewhere.extend(
                granted(file)
                    .unwrap()
                    .into_iter()
                    .map(|right| (right.resource, right.verb)),
            );
        }
        for Use(resource, verb, _) in USES {
            assert!(
                granted_somewhere.contains(&(resource.to_owned(), verb.to_owned())),
                "no role grants {verb} {resource}"
            );
        }
    }

    #[test]
    fn in_a_namespace_only_creating_is_allowed_without_a_name() {
        for (file, ..) in PARTS {
            for right in granted(file).unwrap() {
                let is_named = right.object.matches('`').count() > 2;
                assert!(
                    right.place == "cluster" || is_named || right.verb == "create",
                    "deploy/{file}: {} {} in {}",
                    right.verb,
                    right.object,
                    right.place
                );
            }
        }
    }
}
