//! Replays recorded requests of a real management server and compares the answers.
//!
//! Every step is sent. A step that is not compared stands in [`NOT_COMPARED`] with its reason. The number of compared steps may only grow.

mod compare;
mod scenario;

use std::collections::BTreeMap;

use tokio::task::JoinSet;

/// Steps that must agree, at least.
const LEAST: usize = 2400;

/// Steps that are sent and not compared: scenario, steps, why.
const NOT_COMPARED: &[(&str, &[u32], &str)] = &[];

/// Scenarios in which jobs must still run when the next request comes.
const RACING: &[&str] = &[
    "jobs",
    "jobs-slow",
    "machine-states",
    "rule-conflicts",
    "rule-delete",
    "parallel",
    "parallel-locks",
    "firewall-conflicts",
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
                let result = scenario::play(&name, &path, RACING.contains(&name.as_str())).await;
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
}
