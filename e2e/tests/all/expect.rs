//! What scenarios compare: a Service's wish with the objects that CloudStack holds.

use std::collections::BTreeSet;

use anyhow::{Context as _, Result, ensure};
use e2e::cloud::Inventory;
use e2e::service::Handle;
use e2e::wait;
use e2e::world::{SOON, World};
use k8s_openapi::api::core::v1::Service;

/// Node names as a set.
pub(crate) fn members(names: &[&str]) -> BTreeSet<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

/// `port -> node port` of a Service's spec.
pub(crate) fn node_ports(service: &Service) -> Vec<(String, String)> {
    let ports = service
        .spec
        .as_ref()
        .and_then(|spec| spec.ports.clone())
        .unwrap_or_default();
    let pair = |port: k8s_openapi::api::core::v1::ServicePort| {
        (
            port.port.to_string(),
            port.node_port.unwrap_or_default().to_string(),
        )
    };
    ports.into_iter().map(pair).collect()
}

/// Says how CloudStack differs from what a Service wants; nothing if it does not.
pub(crate) fn difference(
    found: &Inventory,
    service: &Service,
    ip: &str,
    members: &BTreeSet<String>,
) -> Option<String> {
    let wanted = node_ports(service);
    let rules = found.rules_on(ip);
    let firewall = found.firewall_on(ip);
    if rules.len() != wanted.len() || firewall.len() != wanted.len() {
        let (rules, firewall) = (rules.keys(), firewall.keys());
        return Some(format!(
            "ports {wanted:?}, rules {rules:?}, firewall {firewall:?}"
        ));
    }
    for (port, node_port) in wanted {
        let Some(rule) = rules.get(&port) else {
            return Some(format!("no rule for port {port}"));
        };
        if rule.private_port != node_port {
            return Some(format!(
                "port {port} goes to {} and not to {node_port}",
                rule.private_port
            ));
        }
        if rule.members != *members {
            return Some(format!(
                "port {port} has members {:?}, wanted {members:?}",
                rule.members
            ));
        }
        let Some(open) = firewall.get(&port) else {
            return Some(format!("no firewall rule for {port}"));
        };
        if open.end != port {
            return Some(format!("firewall rule for {port} ends at {}", open.end));
        }
    }
    None
}

/// Waits until CloudStack serves a Service as it wants, and gives its address and what is there.
pub(crate) async fn served(
    world: &World,
    service: &Handle<'_>,
    names: &[&str],
) -> Result<(String, Inventory)> {
    let ip = service.address(SOON).await?;
    let wanted = members(names);
    wait::until_holds(SOON, format!("{} is served on {ip}", service.name), || async {
        Ok(difference(
            &world.cloud.inventory().await?,
            &service.get().await?,
            &ip,
            &wanted,
        ))
    })
    .await?;
    Ok((ip, world.cloud.inventory().await?))
}

/// Waits until no call is on its way any more: nothing was called for a while.
pub(crate) async fn quiet(world: &World) -> Result<()> {
    let mut last = (world.api.mark(), wait::now());
    wait::until(SOON, "CloudStack is left alone", || {
        let mark = world.api.mark();
        if mark != last.0 {
            last = (mark, wait::now());
        }
        let calm = last.1.elapsed().as_millis() > 700;
        async move { Ok(calm.then_some(())) }
    })
    .await
}

/// Every rule of a load balancer carries a mark that names the Service.
pub(crate) fn marked(found: &Inventory, service: &Handle<'_>) -> Result<()> {
    let rules = found.rules_of(&service.load_balancer_name());
    ensure!(!rules.is_empty(), "no rule named after {}", service.name);
    for rule in rules.values() {
        let mark = rule.description.split("kcs1 ").nth(1);
        let mark = mark.with_context(|| format!("no mark in '{}' of {}", rule.description, rule.name))?;
        ensure!(
            mark.contains(&format!("service={}", service.uid)),
            "mark of {}: {mark}",
            rule.name
        );
    }
    Ok(())
}
