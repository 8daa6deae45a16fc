use std::collections::BTreeSet;

use rstest::rstest;

use super::*;

fn deploy() -> PathBuf {
    Settings::root().join("deploy")
}

fn read(path: impl AsRef<Path>) -> String {
    let path = Settings::root().join(path);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// All files below a folder with this extension.
fn files(folder: &Path, extension: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(files(&path, extension));
        } else if path.extension().is_some_and(|one| one == extension) {
            found.push(path);
        }
    }
    found.sort();
    found
}

/// All objects of all manifests, with the file each is in. Patches are among them. The chart's templates are no YAML before they are
/// rendered; what is true of the manifests is true of them, since they make the same objects.
fn objects() -> Vec<(PathBuf, Value)> {
    let of = |path: PathBuf| {
        let all = documents(&path).unwrap();
        all.into_iter().map(move |object| (path.clone(), object))
    };
    let chart = deploy().join("helm");
    let mut manifests = files(&deploy(), "yaml");
    manifests.retain(|path| !path.starts_with(&chart));
    manifests.into_iter().flat_map(of).collect()
}

fn containers(object: &Value) -> impl Iterator<Item = &Value> {
    object["spec"]["template"]["spec"]["containers"]
        .as_array()
        .into_iter()
        .flatten()
}

#[test]
fn a_one_file_manifest_is_its_parts_joined() {
    for one in &ALL {
        let found = std::fs::read_to_string(one.path()).unwrap();
        assert!(
            found == one.joined().unwrap(),
            "deploy/{} is old: make manifests",
            one.name
        );
    }
}

#[test]
fn the_parts_are_those_of_the_kustomization() {
    for one in &ALL {
        let kustomization = documents(&deploy().join(one.folder).join("kustomization.yaml")).unwrap();
        let listed = kustomization[0]["resources"].as_array().unwrap();
        let listed: Vec<_> = listed.iter().filter_map(Value::as_str).collect();
        assert_eq!(listed, one.parts);
    }
}

/// Applied over one that was made with `kubectl apply`, an empty ConfigMap takes every entry with it, and with that every address.
#[test]
fn no_manifest_brings_a_config_map_that_could_replace_the_one_in_use() {
    for (path, object) in objects() {
        assert_ne!(object["kind"], "ConfigMap", "{}", path.display());
    }
}

#[rstest]
#[case("agent")]
#[case("broker")]
fn the_images_of_the_manifests_are_those_that_make_images_builds(#[case] half: &str) {
    let makefile = read("Makefile");
    let value = |name: &str| {
        let start = format!("{name} ?= ");
        let mut lines = makefile.lines();
        lines
            .find_map(|line| line.strip_prefix(&start))
            .unwrap()
            .to_owned()
    };
    let built = format!("{}-{half}:{}", value("IMAGE_PREFIX"), value("TAG"));
    let mut seen = 0;
    for (path, object) in objects() {
        for container in containers(&object) {
            let Some(image) = container["image"].as_str() else {
                continue;
            };
            if image.contains(&format!("-{half}:")) {
                assert_eq!(image, built, "{}", path.display());
                seen += 1;
            }
        }
    }
    assert!(seen >= 2, "{seen} containers of the {half}");
}

/// The cluster's DNS runs on nodes that are initialised. Who initialises them can't wait for it.
#[test]
fn what_starts_on_uninitialised_nodes_uses_the_resolver_of_the_node() {
    let mut seen = 0;
    for (path, object) in objects() {
        let pod = &object["spec"]["template"]["spec"];
        let mut tolerations = pod["tolerations"].as_array().into_iter().flatten();
        if tolerations.any(|one| one["key"] == "node.cloudprovider.kubernetes.io/uninitialized") {
            assert_eq!(pod["dnsPolicy"], "Default", "{}", path.display());
            seen += 1;
        }
    }
    assert!(seen > 0, "no manifest tolerates the taint");
}

#[test]
fn every_secret_that_a_manifest_mounts_is_made_by_a_command_of_the_guides() {
    let guides: String = files(&Settings::root().join("docs"), "md")
        .iter()
        .map(read)
        .collect();
    let mut seen = BTreeSet::new();
    for (_, object) in objects() {
        for volume in object["spec"]["template"]["spec"]["volumes"]
            .as_array()
            .into_iter()
            .flatten()
        {
            seen.extend(volume["secret"]["secretName"].as_str().map(str::to_owned));
        }
    }
    // The Secret of the Leaseweb chart is there already; the guide says how to keep it.
    for name in &seen {
        assert!(
            guides.contains(&format!("create secret generic {name} ")) || name == "cloud-config",
            "no guide says how to make the Secret {name}"
        );
    }
    assert!(seen.len() >= 4, "{seen:?}");
}

/// Whether this begins a name of our metrics. Names of Prometheus' functions and labels don't.
fn is_metric(word: &str) -> bool {
    let families = [
        "k8s_agent_",
        "cloud_broker_",
        "cloudstack_api_",
        "leader_election_",
        "workqueue_",
        "process_contained_",
    ];
    families.iter().any(|family| word.starts_with(family))
}

#[rstest]
#[case("deploy/monitoring/alerts.yaml")]
#[case("deploy/monitoring/dashboard.json")]
fn what_watches_reads_metrics_that_exist(#[case] file: &str) {
    let known = read("docs/reference/agent-metrics.md") + &read("docs/reference/broker-metrics.md");
    let text = read(file);
    let words: BTreeSet<_> = text
        .split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'))
        .filter(|word| is_metric(word))
        .map(|word| word.trim_end_matches("_bucket"))
        .collect();
    assert!(words.len() >= 8, "{words:?}");
    for word in words {
        assert!(known.contains(&format!("| `{word}` |")), "{file} reads {word}");
    }
}

#[test]
fn every_alert_has_its_paragraph_in_the_guide() {
    let guide = read("docs/guides/monitoring.md");
    let rules = documents(&deploy().join("monitoring/alerts.yaml")).unwrap();
    let mut seen = 0;
    for group in rules[0]["spec"]["groups"].as_array().unwrap() {
        for rule in group["rules"].as_array().unwrap() {
            let name = rule["alert"].as_str().unwrap();
            assert!(
                guide.contains(&format!("| `{name}` |")),
                "{name} is not explained"
            );
            seen += 1;
        }
    }
    assert!(seen >= 10, "{seen} alerts");
}

/// What this alert counts of `k8s_agent_load_balancer_operations_total`: the outcomes behind this operator.
fn outcomes(rule: &Value, operator: &str) -> Option<BTreeSet<String>> {
    let expression = rule["expr"].as_str().unwrap();
    let (_, after) =
        expression.split_once(&format!("load_balancer_operations_total{{outcome{operator}\""))?;
    let (list, _) = after.split_once('"')?;
    Some(list.split('|').map(str::to_owned).collect())
}

#[test]
fn no_alert_that_somebody_must_look_at_is_fired_by_what_one_service_asks_for() {
    let own = ["invalid", "denied", "not_found", "conflict", "quota"];
    let rules = documents(&deploy().join("monitoring/alerts.yaml")).unwrap();
    let groups = rules[0]["spec"]["groups"].as_array().unwrap();
    let rules: Vec<_> = groups
        .iter()
        .flat_map(|group| group["rules"].as_array().unwrap())
        .filter(|rule| {
            rule["expr"]
                .as_str()
                .unwrap()
                .contains("load_balancer_operations_total")
        })
        .collect();
    assert_eq!(rules.len(), 2);
    for rule in rules {
        if rule["labels"]["severity"] == "info" {
            let counted = outcomes(rule, "=~").unwrap();
            assert!(counted.iter().all(|it| own.contains(&it.as_str())), "{counted:?}");
        } else {
            let left_out = outcomes(rule, "!~").unwrap();
            assert!(own.iter().all(|it| left_out.contains(*it)), "{left_out:?}");
            for cloud in ["busy", "unreachable", "internal"] {
                assert!(!left_out.contains(cloud), "{left_out:?}");
            }
        }
    }
}

/// Whether all labels of a selector are on something.
fn selects(selector: &Value, labels: &Value) -> bool {
    let mut wanted = selector["matchLabels"].as_object().unwrap().iter();
    wanted.all(|(key, value)| labels[key] == *value)
}

/// The Deployments of our programs: those with a whole pod, and no patches.
fn our_deployments() -> Vec<Value> {
    let ours = |object: &Value| {
        object["kind"] == "Deployment"
            && !object["spec"]["template"]["metadata"]["labels"].is_null()
            && containers(object).any(|one| {
                let image = one["image"].as_str();
                image.is_some_and(|image| image.starts_with("localhost/cloudstack-ccm"))
            })
    };
    objects()
        .into_iter()
        .map(|(_, object)| object)
        .filter(ours)
        .collect()
}

/// Whether a `NetworkPolicy` lets pods of this namespace reach this port.
fn lets_in(policy: &Value, namespace: &Value, port: &Value) -> bool {
    let mut rules = policy["spec"]["ingress"].as_array().unwrap().iter();
    rules.any(|rule| {
        let from = &rule["from"][0]["namespaceSelector"]["matchLabels"];
        let mut ports = rule["ports"].as_array().unwrap().iter();
        from["kubernetes.io/metadata.name"] == *namespace && ports.any(|it| it["port"] == *port)
    })
}

#[test]
fn every_program_of_every_manifest_is_scraped_and_can_be_given_the_ca_of_who_scrapes() {
    let (all, deployments) = (objects(), our_deployments());
    let of_kind = |kind: &'static str| {
        all.iter()
            .map(|(_, object)| object)
            .filter(move |it| it["kind"] == kind)
    };
    let mut seen = BTreeSet::new();
    for deployment in &deployments {
        let (name, namespace) = (
            &deployment["metadata"]["name"],
            &deployment["metadata"]["namespace"],
        );
        let labels = &deployment["spec"]["template"]["metadata"]["labels"];
        let monitor = of_kind("PodMonitor").find(|it| {
            let namespaces = it["spec"]["namespaceSelector"]["matchNames"].as_array().unwrap();
            namespaces.contains(namespace) && selects(&it["spec"]["selector"], labels)
        });
        let monitor = monitor.unwrap_or_else(|| panic!("no PodMonitor selects {name}"));
        let scraped: BTreeSet<_> = monitor["spec"]["podMetricsEndpoints"]
            .as_array()
            .unwrap()
            .iter()
            .map(|it| it["port"].as_str().unwrap())
            .collect();
        let components = of_kind("Component").flat_map(|it| it["patches"].as_array().unwrap());
        let patches: Vec<_> = components
            .filter(|it| it["target"]["name"] == *name)
            .filter_map(|it| it["patch"].as_str())
            .collect();
        for (index, container) in containers(deployment).enumerate() {
            let ports = container["ports"].as_array().unwrap();
            let port = ports
                .iter()
                .find(|it| scraped.contains(it["name"].as_str().unwrap()));
            let port = port.unwrap_or_else(|| panic!("no port of {name} {index} is scraped"));
            assert!(
                [10258, 10259].map(Value::from).contains(&port["containerPort"]),
                "{port} of {name} shows no metrics"
            );
            let argument = format!(
                "path: /spec/template/spec/containers/{index}/args/-\n  value: --admin-client-ca-file=/metrics-client-ca/ca.crt"
            );
            assert!(
                patches.iter().any(|patch| patch.contains(&argument)),
                "no component gives {name} {index} a CA"
            );
            for policy in of_kind("NetworkPolicy").filter(|it| selects(&it["spec"]["podSelector"], labels)) {
                assert!(
                    lets_in(policy, &monitor["metadata"]["namespace"], &port["containerPort"]),
                    "the NetworkPolicy of {name} keeps Prometheus out"
                );
            }
        }
        seen.insert(name.as_str().unwrap());
    }
    assert!(seen.len() >= 3, "{seen:?}");
}

/// What a heading is linked by.
fn anchor_of(line: &str) -> Option<String> {
    let heading = line
        .strip_prefix('#')?
        .trim_start_matches('#')
        .strip_prefix(' ')?;
    let kept = |c: char| match c {
        ' ' => Some('-'),
        '-' | '_' => Some(c),
        _ => c.is_alphanumeric().then(|| c.to_ascii_lowercase()),
    };
    Some(heading.chars().filter_map(kept).collect())
}

/// Targets of the links of a page.
fn links(page: &str) -> impl Iterator<Item = &str> {
    page.split("](").skip(1).filter_map(|rest| rest.split(')').next())
}

#[test]
fn every_link_and_every_path_of_deploy_in_the_pages_leads_somewhere() {
    let root = Settings::root();
    let mut pages = files(&root.join("docs"), "md");
    pages.extend([root.join("README.md"), root.join("e2e/README.md")]);
    let mut seen = 0;
    for page in pages {
        let text = read(&page);
        for link in links(&text).filter(|link| !link.starts_with("http")) {
            let target = match link.split('#').next() {
                None | Some("") => page.clone(),
                Some(file) => page.parent().unwrap().join(file),
            };
            assert!(target.exists(), "{} links to {link}", page.display());
            if let Some((_, anchor)) = link.split_once('#') {
                let found = read(&target)
                    .lines()
                    .any(|line| anchor_of(line).as_deref() == Some(anchor));
                assert!(found, "{} links to {link}", page.display());
            }
            seen += 1;
        }
        for word in text.split(|c: char| c.is_whitespace() || "`(),;:|".contains(c)) {
            let word = word.trim_end_matches('.');
            if word.starts_with("deploy/") {
                assert!(root.join(word).exists(), "{} names {word}", page.display());
                seen += 1;
            }
        }
    }
    assert!(seen >= 40, "{seen} links and paths");
}
