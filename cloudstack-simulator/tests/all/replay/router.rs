//! Compares what a job sent to routers with what the real server sent.
//!
//! Only load balancer and firewall commands count, in their order. Address commands and the life of routers and machines are not compared.

use std::collections::BTreeSet;

use serde_json::Value;

/// Commands that are compared.
const COMPARED: [&str; 2] = ["LoadBalancerConfigCommand", "SetFirewallRulesCommand"];

/// What differs between the recorded commands of a job and ours.
pub(crate) fn differences(recorded: &[Value], ours: &[Value]) -> Option<String> {
    let (recorded, ours) = (relevant(recorded), relevant(ours));
    (recorded != ours).then(|| format!("router: {recorded:?} became {ours:?}"))
}

fn relevant(commands: &[Value]) -> Vec<(String, BTreeSet<String>)> {
    let name = |command: &Value| command["command"].as_str().unwrap_or_default().to_owned();
    commands
        .iter()
        .filter(|command| COMPARED.contains(&name(command).as_str()))
        .map(|command| (name(command), rules(command)))
        .collect()
}

/// The rules of a command as texts, without public addresses, which differ from run to run.
fn rules(command: &Value) -> BTreeSet<String> {
    let list = command["loadBalancers"]
        .as_array()
        .or(command["rules"].as_array());
    list.into_iter().flatten().map(rule).collect()
}

fn rule(rule: &Value) -> String {
    let mut members: Vec<String> = rule["destinations"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|of| format!("{}:{} {}", machine(&of["destIp"]), of["destPort"], of["revoked"]))
        .collect();
    members.sort();
    let mut sources: Vec<String> = rule["sourceCidrList"]
        .as_array()
        .into_iter()
        .flatten()
        .map(ToString::to_string)
        .collect();
    sources.sort();
    format!(
        "{} {} {} {} {} {} {members:?} {sources:?}",
        rule["srcPort"],
        rule["srcPortRange"],
        rule["lbProtocol"],
        rule["algorithm"],
        rule["revoked"],
        rule["cidrList"]
    )
}

/// Addresses of machines that a scenario deploys differ from run to run; the seed's are these.
fn machine(address: &Value) -> &str {
    const SEED: [&str; 12] = [
        "10.1.1.123",
        "10.1.1.80",
        "10.1.1.83",
        "10.1.1.150",
        "10.1.1.214",
        "10.1.1.69",
        "10.1.1.210",
        "10.1.1.66",
        "10.50.1.249",
        "10.50.1.56",
        "10.50.1.82",
        "10.60.0.10",
    ];
    address
        .as_str()
        .filter(|address| SEED.contains(address))
        .unwrap_or("deployed")
}
