//! Pages under docs/reference that are made from the program, so that they can't lie. `UPDATE_GOLDEN=1` writes them anew.

use std::path::Path;
use std::time::Duration;

use clap::CommandFactory as _;
use cloud_broker::args::Args;
use cloud_broker::cloudstack::Command;
use cloud_broker::describe::findings::REASONS;
use cloud_broker::describe::rights::{Weight, need};
use cloud_broker::metrics::{CallLabels, Metrics, RpcLabels};
use runtime::host::Host;

pub(crate) fn check(page: &str, expected: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../docs/reference")
        .join(page);
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, expected).unwrap();
    }
    let found = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        found == expected,
        "docs/reference/{page} is old; run the test with UPDATE_GOLDEN=1"
    );
}

#[test]
fn the_page_of_the_configuration_is_the_table_of_settings() {
    let head = "# Configuration of cloud-broker\n\nThe file that `--cloud-config` names, in the INI dialect of the Go controller: a comment \
                begins with `#` or `;` anywhere\noutside double quotes, a key alone is true, names are read in any case. `[Global]` holds for all \
                clusters, a\n`[Cluster \"name\"]` section overrides it for one; `default` is the cluster of the caller on the Unix socket, and is \
                there by\nitself as long as no other is named. Unknown keys are faults, as they are to the Go controller, which in turn \
                refuses the keys\nthat only the broker knows. The file, and the files that it names, are read again when they change. \
                A change with a\nfault is not used; all faults are logged with their lines. This page is made from the program.\n\n";
    check(
        "broker-config.md",
        &format!("{head}{}", cloud_broker::config::reference()),
    );
}

#[test]
fn the_page_of_flags_is_the_command_line() {
    let head = "# Flags of cloud-broker\n\nGo's way of writing flags is understood: `--flag value` and `--flag=value`, one dash or two, `_` \
                for `-`,\nbooleans only with `=`, durations such as `1m30s`. This page is made from the program.\n\n\
                | Flag | Default | Meaning |\n| --- | --- | --- |\n";
    let command = Args::command();
    let mut args: Vec<_> = command.get_arguments().filter(|arg| !arg.is_hide_set()).collect();
    args.sort_by_key(|arg| arg.get_help_heading().unwrap_or_default().to_owned());
    let rows: String = args.into_iter().map(runtime::flags::reference_row).collect();
    check("broker-flags.md", &format!("{head}{rows}"));
}

#[test]
fn the_page_of_metrics_is_the_registry() {
    let (host, metrics) = (Host::new(), Metrics::default());
    host.metrics(|registry| metrics.register(registry));
    // What never happened is not shown, so everything happens once.
    let call = CallLabels {
        command: "listZones",
        class: "read",
        outcome: "ok",
    };
    metrics.cloudstack.called("a", call, Duration::ZERO);
    metrics.cloudstack.waited("a", "t", "read", Duration::ZERO);
    metrics
        .cloudstack
        .job_ended("a", "associateIpAddress", Duration::ZERO);
    metrics.cloudstack.jobs_running("a", 1);
    metrics.cloudstack.breaker_open("a", true);
    metrics.rpc.served(
        RpcLabels {
            call: "Describe",
            outcome: "ok",
        },
        Duration::ZERO,
    );
    metrics.rpc.looked_up("found");
    metrics.config.reloaded(true);
    metrics.config.findings("t", "error", 1);
    let head = "# Metrics of cloud-broker\n\nServed on `https://:10259/metrics` to callers on the same machine or with a client certificate. \
                Counters end in `_total`.\nThis page is made from the program.\n\n| Metric | Kind | Meaning |\n| --- | --- | --- |\n";
    let scrape = host.scrape();
    let mut lines = scrape
        .lines()
        .filter(|line| line.starts_with("# HELP ") || line.starts_with("# TYPE "));
    let mut rows = String::new();
    while let (Some(help), Some(kind)) = (lines.next(), lines.next()) {
        let (name, help) = help.trim_start_matches("# HELP ").split_once(' ').unwrap();
        let kind = kind.rsplit(' ').next().unwrap();
        let suffix = if kind == "counter" { "_total" } else { "" };
        rows.extend([format!("| `{name}{suffix}` | {kind} | {help} |\n")]);
    }
    assert!(rows.contains("`cloudstack_api_calls_total`") && rows.contains("`cloud_broker_findings`"));
    check("broker-metrics.md", &format!("{head}{rows}"));
}

#[test]
fn the_page_of_findings_is_the_table_of_reasons() {
    let head = "# Findings\n\nWhat the broker sees at its set-up and tells in its log, in `Describe` and, as a number, in the metric \
                `cloud_broker_findings`.\nA finding is logged when it is new and once more when it is mended. Reasons stay as they are; texts \
                are for people and may\nchange. This page is made from the program.\n\n| Reason | What was seen |\n| --- | --- |\n";
    let rows: Vec<String> = REASONS
        .iter()
        .map(|(reason, meaning)| format!("| `{reason}` | {meaning} |\n"))
        .collect();
    check("findings.md", &format!("{head}{}", rows.concat()));
}

#[test]
fn the_page_of_permissions_is_the_table_of_commands() {
    let head = "# Permissions\n\nCommands of CloudStack's API that the broker calls, and what each is needed for. The role `User` has all of them; the \
                role that\nthe Kubernetes service gives to clusters in projects has those of the first two groups. What the agent may do in \
                Kubernetes:\n[rights](kubernetes-rights.md). This page is made from the program.\n";
    let groups = [
        (Weight::Everything, "Needed"),
        (Weight::Part, "Needed in some networks"),
        (Weight::Convenience, "Better with them"),
    ];
    let mut page = head.to_owned();
    for (weight, title) in groups {
        let of_it = Command::ALL
            .iter()
            .filter(|command| need(**command).weight == weight);
        let rows: Vec<String> = of_it
            .map(|command| format!("| `{command}` | {} |\n", need(*command).what))
            .collect();
        page.extend([format!(
            "\n## {title}\n\n| Command | For |\n| --- | --- |\n{}",
            rows.concat()
        )]);
    }
    check("permissions.md", &page);
}

/// Blocks of a page that hold configuration of the broker; pools of the agent have sections of their own.
fn examples(page: &str) -> Vec<String> {
    let blocks = page.split("```ini\n").skip(1);
    let all = blocks.filter_map(|block| block.split("```").next());
    let is_ours = |block: &&str| block.contains("[Global]") || block.contains("[Cluster ");
    all.filter(is_ours).map(str::to_owned).collect()
}

#[test]
fn all_examples_of_the_guides_are_configurations() {
    const KEYS: &str = "[Global]\napi-url = https://c.example/client/api\napi-key = A\nsecret-key = S\n";
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let guides = std::fs::read_dir(root.join("docs/guides"))
        .unwrap()
        .map(|entry| entry.unwrap().path());
    let mut seen = 0;
    for path in guides.chain([root.join("README.md")]) {
        for example in examples(&std::fs::read_to_string(&path).unwrap()) {
            let whole = if example.contains("[Global]") {
                example
            } else {
                format!("{KEYS}{example}")
            };
            let read = |_: &Path| Ok(b"key-from-a-file".to_vec());
            cloud_broker::config::parse(&path, &whole, &read).unwrap();
            seen += 1;
        }
    }
    assert!(seen >= 2, "{seen} examples");
}
