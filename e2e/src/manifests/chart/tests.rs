//! The chart beside the kustomizations. Where helm or the control plane can't be had, what needs them says so and is skipped.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use serde_json::{Value, json};

use super::*;
use crate::manifests::documents;

mod cluster;
mod objects;
mod values;

/// The programs that the tests run.
struct Tools {
    helm: PathBuf,
    control_plane: PathBuf,
}

/// A program of this package, built if need be; where it can't be had, why.
fn built(name: &str) -> Result<PathBuf, String> {
    let script = Settings::root().join("e2e").join(name).join("build.sh");
    let out = Command::new(script).stdin(Stdio::null()).output().unwrap();
    let said = String::from_utf8(out.stderr).unwrap();
    if out.status.code() == Some(3) {
        return Err(said.trim().to_owned());
    }
    assert!(out.status.success(), "building {name}: {said}");
    let path = String::from_utf8(out.stdout).unwrap();
    Ok(PathBuf::from(path.lines().last().unwrap()))
}

fn tools() -> Option<&'static Tools> {
    static TOOLS: OnceLock<Result<Tools, String>> = OnceLock::new();
    let tools = TOOLS.get_or_init(|| {
        Ok(Tools {
            helm: built("helm")?,
            control_plane: built("control-plane")?,
        })
    });
    let skip = |why: &String| println!("SKIPPED: a test of the Helm chart: {why}");
    tools.as_ref().inspect_err(|why| skip(why)).ok()
}

/// Runs to the end; what it printed, or what it complained of.
fn run(command: &mut Command) -> Result<String, String> {
    let out = command.stdin(Stdio::null()).output().unwrap();
    let [said, complained] = [out.stdout, out.stderr].map(|text| String::from_utf8(text).unwrap());
    if out.status.success() {
        Ok(said)
    } else {
        Err(complained + &said)
    }
}

impl Tools {
    /// helm, which neither reads nor writes what its user has.
    fn helm(&self) -> Command {
        let mut command = Command::new(&self.helm);
        for home in ["HELM_CACHE_HOME", "HELM_CONFIG_HOME", "HELM_DATA_HOME"] {
            command.env(home, Settings::root().join("target/helm"));
        }
        command.env("KUBECONFIG", "/nonexistent");
        command
    }

    /// What the chart makes with these arguments for `helm template`.
    fn rendered(&self, namespace: &str, arguments: &[impl AsRef<str>]) -> Result<String, String> {
        let mut command = self.helm();
        command.args(["template", "release", "--namespace", namespace]);
        run(command.args(arguments.iter().map(AsRef::as_ref)).arg(folder()))
    }

    /// The objects of a kustomization.
    fn kustomized(&self, dir: &Path) -> Objects {
        let mut command = Command::new(&self.control_plane);
        command.args(["kubectl", "kustomize", "--load-restrictor=LoadRestrictionsNone"]);
        let text = run(command.arg(dir)).unwrap();
        let documents: Vec<Value> = serde_saphyr::from_multiple(&text).unwrap();
        documents
            .into_iter()
            .map(|object| (key(&object), sorted(object)))
            .collect()
    }

    /// The objects of the chart. They go through the same parser as the others, which reads 0440 as kube-apiserver does.
    fn chart(&self, namespace: &str, arguments: &[impl AsRef<str>]) -> Objects {
        let dir = scratch();
        let text = self
            .rendered(namespace, arguments)
            .unwrap_or_else(|error| panic!("{error}"));
        std::fs::write(dir.path().join("rendered.yaml"), text).unwrap();
        std::fs::write(
            dir.path().join("kustomization.yaml"),
            "resources: [rendered.yaml]\n",
        )
        .unwrap();
        self.kustomized(dir.path())
    }
}

/// Kind, namespace and name.
type Key = (String, String, String);
type Objects = BTreeMap<Key, Value>;

fn key(object: &Value) -> Key {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let metadata = &object["metadata"];
    (
        text(&object["kind"]),
        text(&metadata["namespace"]),
        text(&metadata["name"]),
    )
}

/// Lists whose order means nothing, in one order.
fn sorted(mut object: Value) -> Value {
    if let Some(fields) = object.as_object_mut() {
        for (name, value) in fields {
            *value = sorted(value.take());
            if let ("env" | "volumes" | "volumeMounts", Some(list)) = (name.as_str(), value.as_array_mut()) {
                list.sort_by_key(|one| one["name"].to_string());
            }
        }
    } else if let Some(list) = object.as_array_mut() {
        for one in list {
            *one = sorted(one.take());
        }
    }
    object
}

/// A folder two below the root, as the kustomizations of the cases expect.
fn scratch() -> tempfile::TempDir {
    let target = Settings::root().join("target");
    std::fs::create_dir_all(&target).unwrap();
    tempfile::tempdir_in(target).unwrap()
}

/// Every value of both halves in one pod, at something else than its default.
fn everything() -> Value {
    json!({
        "cloudProvider": "cloudstack",
        "cluster": {"name": "blue"},
        "secret": {"name": "keys", "key": "cloud.conf"},
        "keepalived": {"enabled": true, "serviceCIDR": "192.0.2.64/26", "serviceReserved": "192.0.2.65",
            "defaultForwardMethod": "DR", "configMap": "addresses"},
        "replicaCount": 3,
        "logVerbosityLevel": 0,
        "agent": {"image": {"repository": "registry.example/agent", "tag": "1", "pullPolicy": "Always"},
            "extraArgs": ["--node-monitor-period=30s"], "extraEnv": [{"name": "A", "value": "1"}],
            "resources": {"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"memory": "2Gi"}}},
        "broker": {"image": {"repository": "registry.example/broker", "tag": "2", "pullPolicy": "Never"},
            "extraArgs": ["--tighten-on-adopt"], "extraEnv": [{"name": "HTTPS_PROXY", "value": "http://proxy:3128"}],
            "resources": {"requests": {"cpu": "2", "memory": "3Gi"}, "limits": {"memory": "4Gi"}}},
        "imagePullSecrets": [{"name": "pull"}],
        "metrics": {"enabled": true, "clientCASecret": "ca"},
        "podAnnotations": {"example/why": "because"},
        "priorityClassName": "system-node-critical",
        "hostNetwork": true,
        "nodeSelector": {"example/on": "yes"},
        "tolerations": [{"key": "example/taint", "operator": "Exists"}],
        "affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": []}},
    })
}

#[test]
fn the_chart_has_the_version_and_the_licence_of_the_programs() {
    let chart = &documents(&folder().join("Chart.yaml")).unwrap()[0];
    assert_eq!(chart["apiVersion"], "v2");
    for field in ["version", "appVersion"] {
        assert_eq!(chart[field], env!("CARGO_PKG_VERSION"), "{field}");
    }
    assert_eq!(
        chart["annotations"]["artifacthub.io/license"],
        env!("CARGO_PKG_LICENSE")
    );
}

#[test]
fn the_rights_of_the_chart_are_made_from_the_manifests() {
    let found = std::fs::read_to_string(rights_path()).unwrap();
    assert!(
        found == rights_template().unwrap(),
        "{} is old: make manifests",
        rights_path().display()
    );
}
