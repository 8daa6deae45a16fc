//! What each value does, what is refused, and that schema and guides know the same values.

use rstest::rstest;

use super::*;

/// The chart with every value set.
fn full_chart(tools: &Tools) -> Objects {
    let dir = scratch();
    let file = dir.path().join("values.yaml");
    std::fs::write(&file, everything().to_string()).unwrap();
    tools.chart("kube-system", &[format!("--values={}", file.display())])
}

fn object<'a>(chart: &'a Objects, kind: &str, name: &str) -> &'a Value {
    &chart[&(kind.to_owned(), "kube-system".to_owned(), name.to_owned())]
}

#[test]
fn every_value_has_its_place_in_the_pod() {
    let Some(tools) = tools() else { return };
    let chart = full_chart(tools);
    let deployment = object(&chart, "Deployment", "cloud-controller-manager");
    let expected = [
        ("/spec/replicas", json!(3)),
        ("/spec/strategy/rollingUpdate/maxSurge", json!(0)),
        (
            "/spec/template/metadata/annotations/example~1why",
            json!("because"),
        ),
    ];
    for (at, value) in expected {
        assert_eq!(deployment.pointer(at), Some(&value), "{at}");
    }
    let pod = &deployment["spec"]["template"]["spec"];
    let values = everything();
    for field in [
        "imagePullSecrets",
        "priorityClassName",
        "hostNetwork",
        "nodeSelector",
        "affinity",
    ] {
        assert_eq!(pod[field], values[field], "{field}");
    }
    let tolerations = pod["tolerations"].as_array().unwrap();
    assert_eq!(tolerations.last(), values["tolerations"].get(0));
    assert_eq!(tolerations.len(), 6);
    let text = pod.to_string();
    for word in [
        "192.0.2.64/26",
        "192.0.2.65",
        r#""DR""#,
        r#""addresses""#,
        r#""secretName":"keys""#,
        r#""secretName":"ca""#,
    ] {
        assert!(text.contains(word), "{word} is not in {text}");
    }
    assert_eq!(pod["containers"][0]["args"][1], "--cluster-name=blue");
    let role = object(&chart, "Role", "cloud-controller-manager:keepalived");
    assert_eq!(role["rules"][0]["resourceNames"], json!(["addresses"]));
}

#[test]
fn every_value_of_a_half_has_its_place_in_its_container() {
    let Some(tools) = tools() else { return };
    let chart = full_chart(tools);
    let pod = &object(&chart, "Deployment", "cloud-controller-manager")["spec"]["template"]["spec"];
    let values = everything();
    let ends = [
        json!([
            "--admin-client-ca-file=/metrics-client-ca/ca.crt",
            "--v=0",
            "--node-monitor-period=30s"
        ]),
        json!([
            "--admin-client-ca-file=/metrics-client-ca/ca.crt",
            "--v=0",
            "--tighten-on-adopt"
        ]),
    ];
    for ((index, half), end) in ["agent", "broker"].iter().enumerate().zip(ends) {
        let (container, values) = (&pod["containers"][index], &values[half]);
        let image = &values["image"];
        let name = [&image["repository"], &image["tag"]].map(|it| it.as_str().unwrap());
        assert_eq!(container["image"], name.join(":"));
        assert_eq!(container["imagePullPolicy"], image["pullPolicy"]);
        assert_eq!(container["resources"], values["resources"]);
        let env = container["env"].as_array().unwrap();
        assert!(env.contains(&values["extraEnv"][0]), "{env:?}");
        assert!(
            container["args"]
                .as_array()
                .unwrap()
                .ends_with(end.as_array().unwrap()),
            "{container}"
        );
    }
}

#[test]
fn every_value_of_what_runs_elsewhere_has_its_place() {
    let Some(tools) = tools() else { return };
    let arguments = [
        "--set=remoteBroker.addresses={https://one:8443,https://two:8443}",
        "--set=remoteBroker.secretName=mine",
        "--set=metrics.enabled=true,metrics.podMonitor.enabled=true",
        "--set=metrics.podMonitor.namespace=watch",
        "--set=metrics.podMonitor.clientSecret=identity",
        "--set=metrics.podMonitor.labels.release=prometheus",
    ];
    let chart = tools.chart("kube-system", &arguments);
    let pod = &object(&chart, "Deployment", "cloud-controller-manager")["spec"]["template"]["spec"];
    assert_eq!(
        pod["containers"][0]["args"][1],
        "--broker=https://one:8443,https://two:8443"
    );
    let text = pod.to_string();
    assert!(text.contains(r#""secretName":"mine""#), "{text}");
    let monitor = chart.values().find(|it| it["kind"] == "PodMonitor").unwrap();
    assert_eq!(monitor["metadata"]["namespace"], "watch");
    assert_eq!(monitor["metadata"]["labels"]["release"], "prometheus");
    // There is no broker in the pod that could be scraped.
    let endpoints = monitor["spec"]["podMetricsEndpoints"].as_array().unwrap();
    assert_eq!(endpoints.len(), 1);
    assert_eq!(endpoints[0]["port"], "agent");
    for half in ["cert", "keySecret"] {
        let it = &endpoints[0]["tlsConfig"][half];
        let name = it.pointer("/secret/name").unwrap_or(&it["name"]);
        assert_eq!(name, "identity", "{half}");
    }
}

#[rstest]
#[case::a_key_of_the_cloud("cloudConfig.global.api-key=secret", "cloudConfig")]
#[case::an_unknown_key("replicas=2", "replicas")]
#[case::an_unknown_key_further_down("agent.image.name=agent", "/agent/image")]
#[case::another_cloud("cloudProvider=aws", "/cloudProvider")]
#[case::no_secret("secret.name=", "/secret/name")]
#[case::a_number_as_a_word("replicaCount=two", "/replicaCount")]
#[case::a_broker_without_tls("remoteBroker.addresses={http://broker:80}", "/remoteBroker/addresses/0")]
#[case::a_broker_for_a_pool(
    "cloudProvider=keepalived,remoteBroker.addresses={https://broker:8443}",
    "there is no broker"
)]
#[case::a_pool_that_is_off("keepalived.serviceCIDR=192.0.2.0/24", "keepalived.enabled")]
#[case::a_monitor_that_sees_nothing("metrics.podMonitor.enabled=true", "metrics.enabled")]
fn the_chart_refuses(#[case] set: &str, #[case] named: &str) {
    let Some(tools) = tools() else { return };
    let error = tools
        .rendered("kube-system", &[format!("--set={set}")])
        .unwrap_err();
    assert!(error.contains(named), "{error}");
}

/// The leaves of the values are all named, so that a value without a rule, or a rule without a value, is seen.
fn compare_with_schema(at: &str, values: &Value, schema: &Value, root: &Value) {
    let schema = match schema["$ref"].as_str() {
        Some(reference) => root.pointer(reference.trim_start_matches('#')).unwrap(),
        None => schema,
    };
    let (Some(values), Some(properties)) = (values.as_object(), schema["properties"].as_object()) else {
        return;
    };
    assert_eq!(schema["additionalProperties"], false, "{at} takes any key");
    let named: BTreeSet<_> = properties.keys().filter(|name| *name != "global").collect();
    assert_eq!(values.keys().collect::<BTreeSet<_>>(), named, "{at}");
    for (name, value) in values {
        compare_with_schema(&format!("{at}/{name}"), value, &properties[name], root);
    }
}

#[test]
fn the_schema_knows_every_value_and_no_other() {
    let schema = std::fs::read_to_string(folder().join("values.schema.json")).unwrap();
    let schema: Value = serde_json::from_str(&schema).unwrap();
    let values = documents(&folder().join("values.yaml")).unwrap();
    compare_with_schema("", &values[0], &schema, &schema);
}

/// The values that a page shows: blocks that begin with the name of the file. In a list they are indented.
fn shown_values(page: &str) -> impl Iterator<Item = String> {
    page.split("```yaml\n").skip(1).filter_map(|rest| {
        let block = rest.split("```").next()?;
        let indent = &block[..block.find("# values.yaml\n")?];
        let lines = block
            .lines()
            .map(|line| line.strip_prefix(indent).unwrap_or(line));
        indent
            .trim()
            .is_empty()
            .then(|| lines.collect::<Vec<_>>().join("\n"))
    })
}

#[test]
fn the_values_that_the_guides_show_are_understood() {
    let Some(tools) = tools() else { return };
    let dir = scratch();
    let file = dir.path().join("values.yaml");
    let mut seen = 0;
    for guide in std::fs::read_dir(Settings::root().join("docs/guides")).unwrap() {
        let guide = guide.unwrap().path();
        for values in shown_values(&std::fs::read_to_string(&guide).unwrap()) {
            std::fs::write(&file, values).unwrap();
            let rendered = tools.rendered("kube-system", &[format!("--values={}", file.display())]);
            rendered.unwrap_or_else(|error| panic!("{}: {error}", guide.display()));
            seen += 1;
        }
    }
    assert!(seen >= 2, "{seen} blocks");
}

#[test]
fn every_value_that_the_guides_name_is_there() {
    let values = &documents(&folder().join("values.yaml")).unwrap()[0];
    let top = values.as_object().unwrap();
    let mut seen = 0;
    for (guide, from) in [
        ("install.md", "## With Helm\n"),
        ("take-over.md", "| You had | Now |\n"),
    ] {
        let page = std::fs::read_to_string(Settings::root().join("docs/guides").join(guide)).unwrap();
        let (_, section) = page.split_once(from).unwrap();
        let section = section.split("\n## ").next().unwrap();
        for word in section.split('`').skip(1).step_by(2) {
            let path = word.split(':').next().unwrap().replace('.', "/");
            // What the Leaseweb chart has and this one has not stands alone in the first column.
            if path.contains('/')
                && top.contains_key(path.split('/').next().unwrap())
                && word != "secret.create"
            {
                assert!(
                    values.pointer(&format!("/{path}")).is_some(),
                    "{guide} names {word}"
                );
                seen += 1;
            }
        }
    }
    assert!(seen >= 20, "{seen} values");
}
