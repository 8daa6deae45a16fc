//! What a first pass over everything would do, as a text for people, with nothing written.
//!
//! For the take-over from keepalived-cloud-provider: run beside it with the same variables and read what would change.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::net::Ipv4Addr;

use k8s_openapi::api::core::v1::{Node, Service};
use kube::Client;
use kube::api::{Api, ListParams};
use proto::Fault;

use super::allocation::{Outcome, Plan, Situation, plan};
use super::claim::{Claim, Standing};
use super::config_map::{Observed, Patch};
use super::ownership::Owner;
use super::settings::KeepalivedSettings;
use super::store::Store;

/// Looks at everything and says what would be written.
pub async fn dry_run(client: Client, settings: &KeepalivedSettings, owner: Owner) -> anyhow::Result<String> {
    let store = Store::new(client.clone(), &settings.namespace, &settings.config_map);
    let as_error = |fault: Fault| anyhow::anyhow!(fault.text);
    let observed = store.read().await.map_err(as_error)?;
    let services = store.services().await.map_err(as_error)?;
    let nodes = Api::<Node>::all(client).list(&ListParams::default()).await?;
    let addresses = nodes
        .items
        .iter()
        .filter_map(|node| node.status.as_ref()?.addresses.as_ref())
        .flatten();
    let nodes: BTreeSet<Ipv4Addr> = addresses
        .filter_map(|address| address.address.parse().ok())
        .collect();
    let claims: Vec<Claim> = services
        .iter()
        .map(|service| Claim::of(service, standing(service, owner)))
        .collect();
    Ok(describe(&observed, &claims, &nodes, settings))
}

fn standing(service: &Service, owner: Owner) -> Standing {
    if owner.is_leaving(service) {
        Standing::Leaving
    } else if owner.owns(service) {
        Standing::Asked
    } else {
        Standing::Elsewhere
    }
}

/// The plan of the first pass, in words.
pub fn describe(
    observed: &Observed,
    claims: &[Claim],
    nodes: &BTreeSet<Ipv4Addr>,
    settings: &KeepalivedSettings,
) -> String {
    let contested = BTreeSet::new();
    let situation = Situation {
        config_map: observed,
        claims,
        nodes,
        is_listed_after: true,
        contested: &contested,
    };
    let mut text = format!("ConfigMap {}/{}\n", settings.namespace, settings.config_map);
    match plan(situation, &settings.rules) {
        Err(super::allocation::ListAgain) => text += "  the Services could not be listed completely\n",
        Ok(plan) => {
            config_map_part(&mut text, &plan);
            services_part(&mut text, &plan, claims);
        }
    }
    text
}

fn config_map_part(text: &mut String, plan: &Plan) {
    if plan.create {
        *text += "  would be created\n";
    }
    let Some(patch) = &plan.patch else {
        *text += "  no change\n";
        return;
    };
    entries_part(text, patch);
    if patch.records.is_some() {
        *text += "  the record list would be rewritten\n";
    }
    for finding in &plan.findings {
        let _ = writeln!(text, "  {finding}");
    }
}

fn entries_part(text: &mut String, patch: &Patch) {
    if patch.changes.is_empty() {
        *text += "  no entry would change\n";
    }
    for change in &patch.changes {
        let value = |side: &Option<String>| {
            side.as_ref()
                .map_or_else(|| "(none)".to_owned(), |value| format!("\"{value}\""))
        };
        let _ = writeln!(
            text,
            "  entry {}: {} -> {}",
            change.key,
            value(&change.from),
            value(&change.to)
        );
    }
}

fn services_part(text: &mut String, plan: &Plan, claims: &[Claim]) {
    *text += "Services\n";
    let mut quiet = 0;
    for claim in claims {
        let notes = plan.notes.get(&claim.uid).into_iter().flatten();
        let mut lines: Vec<String> = notes.map(|note| format!("    {note}\n")).collect();
        if let Some(Outcome::Serve { address, .. }) = plan.outcomes.get(&claim.uid)
            && claim.status != [*address]
            && claim.standing == Standing::Asked
        {
            let before: Vec<String> = claim.status.iter().map(ToString::to_string).collect();
            let before = if before.is_empty() {
                "(none)".to_owned()
            } else {
                before.join(", ")
            };
            lines.insert(0, format!("    status: {before} -> {address}\n"));
        }
        if lines.is_empty() {
            quiet += 1;
        } else {
            let _ = writeln!(text, "  {}", claim.full_name());
            text.extend(lines);
        }
    }
    let _ = writeln!(text, "  {quiet} without a change");
}

#[cfg(test)]
mod tests {
    use super::super::allocation::tests::world::{Svc, World};
    use super::*;

    fn settings(world: &World) -> KeepalivedSettings {
        KeepalivedSettings {
            namespace: "kube-system".into(),
            config_map: "vip-configmap".into(),
            create: true,
            dry_run: true,
            rules: world.rules.clone(),
        }
    }

    fn said(world: &World) -> String {
        let claims: Vec<Claim> = world.services.iter().map(Svc::claim).collect();
        describe(&world.config_map, &claims, &world.nodes, &settings(world))
    }

    #[test]
    fn a_take_over_of_a_sound_config_map_changes_no_entry_and_no_status() {
        let text = said(&World::new().serving("a", "10.0.0.1").serving("b", "10.0.0.3"));
        assert!(
            text.contains("no entry would change") && text.contains("2 without a change"),
            "{text}"
        );
        assert!(!text.contains("->"), "{text}");
    }

    #[test]
    fn what_would_change_is_shown() {
        let mut world = World::new()
            .serving("a", "10.0.0.1")
            .with(Svc::new("b"))
            .with(Svc::new("c").pinned("x"));
        world.change("a", |a| a.method("DR"));
        let text = said(&world);
        assert!(
            text.contains("entry 10.0.0.1: \"default/a\" -> \"default/a:DR\""),
            "{text}"
        );
        assert!(
            text.contains("default/b\n    status: (none) -> 10.0.0.2"),
            "{text}"
        );
        assert!(text.contains("default/c\n    InvalidLoadBalancerIP"), "{text}");
    }
}
