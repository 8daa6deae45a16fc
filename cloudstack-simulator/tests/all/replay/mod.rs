//! Replays recorded requests of a real management server and compares the answers.
//!
//! Every step is sent. A step that is not compared stands in [`NOT_COMPARED`] with its reason. The number of compared steps may only grow.

mod compare;
mod router;
mod scenario;

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::timeout;

/// Steps that must agree, at least.
const LEAST: usize = 2591;

/// Jobs whose commands to routers must agree, at least.
const LEAST_ROUTERS: usize = 622;

/// Steps that are sent and not compared: scenario, steps, why.
const NOT_COMPARED: &[(&str, &[u32], &str)] = &[
    (
        "auth",
        &[44, 46],
        "disableUser and enableUser are means of the recording; the seed has no personal data of users",
    ),
    (
        "address-quarantine",
        &[1, 14],
        "updateConfiguration is a means of the recording; descriptions of settings are not simulated",
    ),
    (
        "address-quarantine",
        &[13],
        "the history of quarantine is not simulated",
    ),
    (
        "tags",
        &[44],
        "with two tags the real filter lets rows through whose internal number equals that of another tagged object",
    ),
    (
        "parallel",
        &[31],
        "whether one of two updates at the same time sees the other is a race inside the real server",
    ),
    (
        "machine-states",
        &[34, 37],
        "updateConfiguration is a means of the recording",
    ),
    (
        "discovery",
        &[26, 27],
        "the seed has 8 of the server's 25 network offerings",
    ),
    (
        "small-pages",
        &[14],
        "the seed has 8 of the server's 25 network offerings",
    ),
    (
        "discovery",
        &[28, 29, 30],
        "listApis has the simulated parameters, without the server's descriptions",
    ),
    (
        "roles",
        &[11],
        "listApis has the simulated parameters, without the server's descriptions",
    ),
    (
        "roles",
        &[10, 15],
        "listManagementServersMetrics and listHosts describe the server's machines",
    ),
    (
        "shutdown",
        &[2, 3, 9, 10],
        "listManagementServers and the shutdown commands are means of the recording",
    ),
    (
        "project-lists",
        &[6],
        "listVPCOfferings is a means of the recording",
    ),
    (
        "parallel-locks",
        &[31, 33],
        "which of three ACL items created at the same time is refused for its number is a race inside the real server",
    ),
];

/// Commands whose jobs must still run when the next request comes: scenario, held before their work, held before the router.
const HELD: &[(&str, &[&str], &[&str])] = &[
    (
        "jobs",
        &[],
        &["updateLoadBalancerRule", "assignToLoadBalancerRule"],
    ),
    (
        "jobs-slow",
        &[
            "associateIpAddress",
            "updateLoadBalancerRule",
            "deleteFirewallRule",
        ],
        &[
            "createLoadBalancerRule",
            "assignToLoadBalancerRule",
            "removeFromLoadBalancerRule",
            "createFirewallRule",
            "deleteLoadBalancerRule",
            "disassociateIpAddress",
        ],
    ),
    (
        "machine-states",
        &["stopVirtualMachine", "startVirtualMachine"],
        &[],
    ),
    ("rule-conflicts", &[], &["deleteLoadBalancerRule"]),
    ("rule-delete", &[], &["deleteLoadBalancerRule"]),
    (
        "parallel",
        &[],
        &[
            "assignToLoadBalancerRule",
            "removeFromLoadBalancerRule",
            "updateLoadBalancerRule",
        ],
    ),
    (
        "parallel-locks",
        &[],
        &["assignToLoadBalancerRule", "deleteLoadBalancerRule"],
    ),
    ("firewall-conflicts", &[], &["deleteFirewallRule"]),
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_recorded_step_is_answered_as_recorded() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/transcripts");
    let only = option_env!("REPLAY_ONLY");
    let mut running = JoinSet::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let Some(name) = path
            .file_name()
            .and_then(|name| name.to_str()?.strip_suffix(".jsonl"))
            .map(str::to_owned)
        else {
            continue;
        };
        if only.is_none_or(|only| only.split(',').any(|wanted| wanted == name)) {
            running.spawn(async move {
                let held = HELD
                    .iter()
                    .find(|held| held.0 == name)
                    .map(|held| scenario::holds(held.1, held.2));
                let played = scenario::play(&name, &path, held.unwrap_or_default());
                let result = timeout(Duration::from_mins(2), played)
                    .await
                    .unwrap_or_else(|_| scenario::Outcome::hung());
                (name, result)
            });
        }
    }
    let mut results = BTreeMap::new();
    while let Some(done) = running.join_next().await {
        let (name, result) = done.unwrap();
        results.insert(name, result);
    }
    report(&results);
}

/// Prints what differs at the routers. The number of jobs in which nothing does.
fn report_routers(results: &BTreeMap<String, scenario::Outcome>) -> usize {
    let (mut same, mut all) = (0, 0);
    for (name, outcome) in results {
        for (step, differs) in &outcome.routers {
            all += 1;
            match differs {
                None => same += 1,
                Some(differs) => println!("replay, router of {name} {step}: {differs}"),
            }
        }
    }
    println!("replay: the routers got the same in {same} of {all} jobs");
    same
}

fn report(results: &BTreeMap<String, scenario::Outcome>) {
    let excused = |name: &str, step: u32| {
        NOT_COMPARED
            .iter()
            .any(|(scenario, steps, _)| *scenario == name && steps.contains(&step))
    };
    let (mut agreed, mut failures, mut left_out) = (0, Vec::new(), 0);
    for (name, outcome) in results {
        let mut good = 0;
        for (step, differences) in &outcome.steps {
            if excused(name, *step) {
                left_out += 1;
            } else if differences.is_empty() {
                good += 1;
            } else {
                failures.push(format!(
                    "{name} {step}: {}",
                    differences.iter().take(4).cloned().collect::<Vec<_>>().join("; ")
                ));
            }
        }
        agreed += good;
        println!("replay {name}: {good} of {} steps agree", outcome.steps.len());
    }
    let same = report_routers(results);
    println!(
        "replay: {agreed} steps agree, {} differ, {left_out} are not compared",
        failures.len()
    );
    for (scenario, steps, why) in NOT_COMPARED {
        println!("replay, not compared: {scenario} {steps:?}: {why}");
    }
    assert!(
        failures.is_empty(),
        "{} steps differ:\n{}",
        failures.len(),
        failures.join("\n")
    );
    assert!(
        agreed >= LEAST || option_env!("REPLAY_ONLY").is_some(),
        "{agreed} steps agree, it were {LEAST}"
    );
    assert!(
        same >= LEAST_ROUTERS || option_env!("REPLAY_ONLY").is_some(),
        "the routers got the same in {same} jobs, it were {LEAST_ROUTERS}"
    );
}
