//! Pages under docs/reference that are made from the program, so that they can't lie. `UPDATE_GOLDEN=1` writes them anew.

use std::fmt::Write as _;
use std::path::Path;
use std::time::Duration;

use clap::CommandFactory as _;
use k8s_agent::args::{Flags, without_effect};
use k8s_agent::conditions::CONDITIONS;
use k8s_agent::events::TABLE;
use k8s_agent::keepalived::allocation::Usage;
use k8s_agent::keepalived::meter::Meter;
use k8s_agent::metrics::Metrics;
use k8s_agent::queue::{Backoff, Queue};
use proto::camel;
use runtime::host::Host;

fn check(page: &str, expected: &str) {
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
fn the_page_of_events_is_the_table_of_events() {
    let mut page = String::from(
        "# Events\n\nWhat the agent tells with events. Type and reason stay as they are; the text is for people and may change. Notes of the\n\
         broker become events of their Service under the [broker's own reasons](broker-reasons.md). This page is made from the tables in the program.\n\n\
         | Reason | Type | Component | When |\n| --- | --- | --- | --- |\n",
    );
    let mut entries: Vec<_> = TABLE.iter().collect();
    entries.sort_by_key(|entry| (entry.component.name(), entry.reason.word.clone()));
    for entry in entries {
        let (word, kind, component) = (
            &entry.reason.word,
            entry.reason.kind.word(),
            entry.component.name(),
        );
        writeln!(
            page,
            "| `{word}` | {kind} | `{component}` | {} |",
            entry.when.trim()
        )
        .unwrap();
    }
    page.push_str(
        "\n## Reasons of the condition `LoadBalancerReady`\n\nThose that the agent gives by itself. The keepalived backend gives the reasons \
         of its warnings above, and a broker [its own](broker-reasons.md).\n\n| Reason | Meaning |\n| --- | --- |\n",
    );
    for (word, what) in CONDITIONS {
        writeln!(page, "| `{word}` | {what} |").unwrap();
    }
    check("events.md", &page);
}

/// All sources below a folder, without the table itself.
fn program(folder: &Path) -> String {
    let mut all = String::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            all += &program(&path);
        } else if !path.ends_with("conditions.rs") {
            all += &std::fs::read_to_string(&path).unwrap();
        }
    }
    all
}

#[test]
fn every_condition_of_the_page_is_given_somewhere() {
    let program = program(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"));
    let words: Vec<_> = program.split('"').map(camel).collect();
    for (word, _) in CONDITIONS {
        assert!(words.iter().any(|said| said == word), "{word} is never given");
    }
}

#[test]
fn the_page_of_flags_is_the_command_line() {
    let mut page = String::from(
        "# Flags of k8s-agent\n\nGo's way of writing flags is understood: `--flag value` and `--flag=value`, one dash or two, `_` for `-`,\n\
         booleans only with `=`, durations such as `1m30s`. This page is made from the program.\n\n",
    );
    let command = Flags::command();
    let mut heading = String::new();
    let mut args: Vec<_> = command.get_arguments().filter(|arg| !arg.is_hide_set()).collect();
    args.sort_by_key(|arg| arg.get_help_heading().unwrap_or_default().to_owned());
    for arg in args {
        let own = arg.get_help_heading().unwrap_or("General");
        if own != heading {
            own.clone_into(&mut heading);
            writeln!(
                page,
                "\n## {heading}\n\n| Flag | Default | Meaning |\n| --- | --- | --- |"
            )
            .unwrap();
        }
        page.push_str(&runtime::flags::reference_row(arg));
    }
    page.push_str("\n## Without an effect\n\nAccepted, so that command lines of other cloud controllers keep working, and warned of once at the start:\n\n");
    for name in without_effect() {
        writeln!(page, "- `--{name}`").unwrap();
    }
    check("agent-flags.md", &page);
}

#[test]
fn the_page_of_metrics_is_the_registry() {
    let (host, metrics) = (Host::new(), Metrics::default());
    host.metrics(|registry| metrics.register(registry));
    // What never happened is not shown, so everything happens once.
    let backoff = Backoff {
        first: Duration::from_secs(1),
        longest: Duration::from_secs(1),
    };
    let _queue = Queue::<u8>::new("Nodes", backoff, &metrics);
    metrics.set_leader("lease", true);
    metrics.lease_read("lease");
    metrics.controller_runs("cloud-node");
    metrics.api_request("host", "GET", "200", Duration::ZERO);
    metrics.broker_call("Describe", "ok", Duration::ZERO);
    metrics.nodes_looked_at(1, 1);
    metrics.balancer_operation("ensure", "settled", Duration::ZERO);
    let meter = Meter::default();
    host.metrics(|registry| meter.register(registry));
    let usage = Usage {
        pool: "default".into(),
        size: 1,
        in_use: 1,
        blocked: 0,
    };
    meter.pools(&[usage]);
    let mut page = String::from(
        "# Metrics of k8s-agent\n\nServed on `https://:10258/metrics` to callers on the same machine or with a client certificate. Names of the Go\n\
         controllers are kept. Counters end in `_total`. This page is made from the program.\n\n| Metric | Kind | Meaning |\n| --- | --- | --- |\n",
    );
    let scrape = host.scrape();
    let mut lines = scrape
        .lines()
        .filter(|line| line.starts_with("# HELP ") || line.starts_with("# TYPE "));
    while let (Some(help), Some(kind)) = (lines.next(), lines.next()) {
        let (name, help) = help.trim_start_matches("# HELP ").split_once(' ').unwrap();
        let kind = kind.rsplit(' ').next().unwrap();
        let suffix = if kind == "counter" { "_total" } else { "" };
        writeln!(page, "| `{name}{suffix}` | {kind} | {help} |").unwrap();
    }
    assert!(page.contains("`leader_election_master_status`") && page.contains("`workqueue_depth`"));
    check("agent-metrics.md", &page);
}
