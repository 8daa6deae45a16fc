//! The chart in a real kube-apiserver: installed, changed, taken away.

use super::*;
use crate::control_plane::ControlPlane;

/// A cluster, and the programs with its administrator's rights.
struct Cluster {
    plane: ControlPlane,
    tools: &'static Tools,
    dir: tempfile::TempDir,
}

impl Cluster {
    async fn start(tools: &'static Tools) -> Self {
        let dir = scratch();
        let plane = ControlPlane::start(dir.path()).await.unwrap();
        Self { plane, tools, dir }
    }

    fn helm(&self, arguments: &[&str]) -> String {
        let mut command = self.tools.helm();
        command.arg("--kubeconfig").arg(&self.plane.kubeconfig);
        command.args(["--namespace=kube-system"]).args(arguments);
        run(&mut command).unwrap_or_else(|error| panic!("helm {arguments:?}: {error}"))
    }

    fn install(&self, arguments: &[&str]) -> String {
        let chart = folder().display().to_string();
        self.helm(&[&["upgrade", "--install", "ccm", &chart], arguments].concat())
    }

    fn kubectl(&self, arguments: &[&str]) -> String {
        let mut command = Command::new(&self.tools.control_plane);
        command
            .args(["kubectl", "--kubeconfig"])
            .arg(&self.plane.kubeconfig);
        run(command.args(arguments)).unwrap_or_else(|error| panic!("kubectl {arguments:?}: {error}"))
    }

    /// Names of what the chart makes and the cluster has.
    fn ours(&self) -> BTreeSet<String> {
        let kinds = "deployments,poddisruptionbudgets,serviceaccounts,roles,rolebindings,clusterroles,clusterrolebindings,secrets,configmaps";
        let all = self.kubectl(&["-n", "kube-system", "get", kinds, "-o", "name"]);
        all.lines()
            .filter(|name| {
                ["cloud-controller", "keepalived", "helm.release"]
                    .iter()
                    .any(|it| name.contains(it))
            })
            .map(str::to_owned)
            .collect()
    }

    fn rules(&self) -> Value {
        let role = self.kubectl(&[
            "get",
            "clusterrole",
            "system:cloud-controller-manager",
            "-o",
            "json",
        ]);
        let role: Value = serde_json::from_str(&role).unwrap();
        role["rules"].clone()
    }

    async fn stop(mut self) {
        self.plane
            .process
            .stop(std::time::Duration::from_secs(20))
            .await
            .unwrap();
    }
}

#[tokio::test]
async fn a_release_is_installed_changed_and_taken_away_without_a_trace() {
    let Some(tools) = tools() else { return };
    let cluster = Cluster::start(tools).await;
    let before = cluster.ours();

    let notes = cluster.install(&[]);
    assert!(notes.contains("get secret cloudstack-secret"), "{notes}");
    assert!(
        notes.contains("rollout status deployment cloud-controller-manager"),
        "{notes}"
    );
    let few = cluster.ours();

    let file = cluster.dir.path().join("values.yaml");
    std::fs::write(&file, everything().to_string()).unwrap();
    let notes = cluster.install(&[&format!("--values={}", file.display())]);
    assert!(notes.contains("get secret keys"), "{notes}");
    assert!(notes.contains("get configmap addresses"), "{notes}");
    let many = cluster.ours();
    let budget = "poddisruptionbudget.policy/cloud-controller-manager";
    assert!(
        many.contains(budget) && !few.contains(budget),
        "{few:?}\n{many:?}"
    );

    cluster.helm(&["uninstall", "ccm"]);
    assert_eq!(cluster.ours(), before);
    cluster.stop().await;
}

#[tokio::test]
async fn a_release_takes_over_what_kubectl_applied_and_narrows_its_rights() {
    let Some(tools) = tools() else { return };
    let cluster = Cluster::start(tools).await;
    let one_file = Settings::root().join("deploy/cloud-controller-manager.yaml");
    cluster.kubectl(&["apply", "-f", &one_file.display().to_string()]);
    let meant = cluster.rules();
    let wide = r#"[{"op": "replace", "path": "/rules", "value": [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]}]"#;
    cluster.kubectl(&[
        "patch",
        "clusterrole",
        "system:cloud-controller-manager",
        "--type=json",
        "-p",
        wide,
    ]);

    cluster.install(&["--take-ownership"]);
    assert_eq!(cluster.rules(), meant);
    cluster.stop().await;
}
