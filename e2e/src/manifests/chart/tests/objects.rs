//! The objects of the chart are those of the manifests.

use rstest::rstest;

use super::*;

/// Every place where two values differ.
fn differences(at: &str, ours: &Value, theirs: &Value, found: &mut Vec<String>) {
    let null = Value::Null;
    match (ours, theirs) {
        (Value::Object(one), Value::Object(other)) => {
            for name in one.keys().chain(other.keys()).collect::<BTreeSet<_>>() {
                let [one, other] = [one, other].map(|it| it.get(name).unwrap_or(&null));
                differences(&format!("{at}/{name}"), one, other, found);
            }
        }
        (Value::Array(one), Value::Array(other)) => {
            for index in 0..one.len().max(other.len()) {
                let [one, other] = [one, other].map(|it| it.get(index).unwrap_or(&null));
                differences(&format!("{at}/{index}"), one, other, found);
            }
        }
        _ if ours != theirs => found.push(format!("{at}: {ours} in the chart, {theirs} in the manifests")),
        _ => {}
    }
}

const LEASEWEB: [&str; 4] = [
    "--set=cloudProvider=cloudstack",
    "--set=cluster.name=kubernetes",
    "--set=secret.name=cloud-config",
    "--set=secret.key=cloud.conf",
];
const HIGH_AVAILABILITY: &str = "- ../../deploy/components/high-availability";
const METRICS: &str = "- ../../deploy/components/metrics";
const METRICS_KEEPALIVED: &str = "- ../../deploy/components/metrics-keepalived";

#[rstest]
#[case::of_the_one_file(&[], "cloud-controller-manager.yaml", "")]
#[case::of_the_base(&[], "base", "")]
#[case::of_two_replicas(&["--set=replicaCount=2"], "base", HIGH_AVAILABILITY)]
#[case::of_metrics(&["--set=metrics.enabled=true"], "base", METRICS)]
#[case::of_the_successor_of_the_leaseweb_chart(&LEASEWEB, "from-leaseweb", "")]
#[case::of_a_broker_elsewhere(&["--set=remoteBroker.addresses={https://broker.example:8443}"], "remote-broker/agent", "")]
#[case::of_the_pool_in_one_file(&["--set=cloudProvider=keepalived"], "keepalived-cloud-provider.yaml", "")]
#[case::of_the_pool(&["--set=cloudProvider=keepalived"], "keepalived", "")]
#[case::of_the_pool_with_metrics(&["--set=cloudProvider=keepalived,metrics.enabled=true"], "keepalived", METRICS_KEEPALIVED)]
#[case::of_both_backends(&["--set=keepalived.enabled=true"], "keepalived-beside-cloud", "")]
#[case::of_much_at_once(&["--set=keepalived.enabled=true,replicaCount=2,metrics.enabled=true"], "keepalived-beside-cloud",
    "- ../../deploy/components/high-availability\n- ../../deploy/components/metrics")]
fn the_chart_makes_the_objects(#[case] arguments: &[&str], #[case] resource: &str, #[case] components: &str) {
    let Some(tools) = tools() else { return };
    let dir = scratch();
    let components = components.replace("- ", "  - ");
    let text = format!("resources:\n  - ../../deploy/{resource}\ncomponents:\n{components}\n");
    std::fs::write(dir.path().join("kustomization.yaml"), text).unwrap();
    let manifests = tools.kustomized(dir.path());
    let chart = tools.chart("kube-system", arguments);

    assert!(manifests.len() >= 6, "{:?}", manifests.keys());
    assert_eq!(
        chart.keys().collect::<Vec<_>>(),
        manifests.keys().collect::<Vec<_>>()
    );
    let mut found = Vec::new();
    for (key, object) in &chart {
        differences(
            &format!("{} {}", key.0, key.2),
            object,
            &manifests[key],
            &mut found,
        );
    }
    assert!(found.is_empty(), "{}", found.join("\n"));

    let mut lint = tools.helm();
    lint.args(["lint", "--strict", "--namespace=kube-system"])
        .args(arguments)
        .arg(folder());
    run(&mut lint).unwrap();
}

#[rstest]
#[case::both_halves("cloud-controller-manager", "external-cloudstack")]
#[case::the_agent_with_a_pool("keepalived-cloud-provider", "keepalived")]
fn the_pod_monitor_of_the_chart_is_that_of_the_manifests(#[case] name: &str, #[case] provider: &str) {
    let Some(tools) = tools() else { return };
    let values =
        format!("--set=cloudProvider={provider},metrics.enabled=true,metrics.podMonitor.enabled=true");
    let chart = tools.chart("kube-system", &[values]);
    let key = ("PodMonitor".to_owned(), "monitoring".to_owned(), name.to_owned());
    let all = documents(&Settings::root().join("deploy/monitoring/pod-monitor.yaml")).unwrap();
    let monitor = all.iter().find(|it| it["metadata"]["name"] == name).unwrap();
    assert_eq!(&chart[&key], monitor);
}

#[test]
fn in_another_namespace_the_account_moves_and_the_lease_stays() {
    let Some(tools) = tools() else { return };
    for provider in ["external-cloudstack", "keepalived"] {
        let values = format!("--set=cloudProvider={provider},keepalived.enabled=true,replicaCount=2");
        for ((kind, namespace, name), object) in tools.chart("elsewhere", &[values]) {
            let expected = match kind.as_str() {
                "ClusterRole" | "ClusterRoleBinding" => "",
                "Role" | "RoleBinding" => "kube-system",
                _ => "elsewhere",
            };
            assert_eq!(namespace, expected, "{kind} {name}");
            for subject in object["subjects"].as_array().into_iter().flatten() {
                assert_eq!(subject["namespace"], "elsewhere", "{kind} {name}");
            }
        }
    }
}
