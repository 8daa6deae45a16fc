//! Load balancers of this cluster that no Service asks for any more: they are told of, never removed. A person decides.

use std::collections::BTreeSet;
use std::time::Duration;

use k8s_openapi::api::core::v1::Service;
use proto::Fault;
use proto::v1::{ListLoadBalancersRequest, LoadBalancerSummary};

use super::members::enumerate;
use crate::broker::Broker;
use crate::watch::Watch;

/// Time until the first list, so that it is no part of the work after a start.
const FIRST: Duration = Duration::from_mins(10);
/// Time between two lists.
const PERIOD: Duration = Duration::from_hours(1);
/// Pages of one list; more than this is no answer that ends.
const MOST_PAGES: usize = 1000;

/// Lists now and then, and logs what is new.
pub async fn keep_listing(broker: Broker, services: Watch<Service>) {
    let mut told = BTreeSet::new();
    let mut wait = FIRST;
    loop {
        tokio::time::sleep(wait).await;
        wait = PERIOD;
        services.synced().await;
        match list(&broker, &services).await {
            Ok(balancers) => told = tell(&balancers, &told),
            Err(fault) if fault.is_unimplemented() => return,
            Err(fault) => tracing::debug!(fault = %fault.text, "orphans could not be listed"),
        }
    }
}

async fn list(broker: &Broker, services: &Watch<Service>) -> Result<Vec<LoadBalancerSummary>, Fault> {
    let live: Vec<_> = services
        .all()
        .iter()
        .filter_map(|service| service.metadata.uid.clone())
        .collect();
    let mut balancers = Vec::new();
    let mut page_token = String::new();
    for _ in 0..MOST_PAGES {
        let request = ListLoadBalancersRequest {
            caller: None,
            page_size: 0,
            page_token: std::mem::take(&mut page_token),
            live_service_uids: live.clone(),
        };
        let page = broker.list_load_balancers(request).await?;
        balancers.extend(page.load_balancers);
        page_token = page.next_page_token;
        if page_token.is_empty() {
            break;
        }
    }
    Ok(balancers)
}

/// Logs what was not told before. Answers all that holds now.
fn tell(balancers: &[LoadBalancerSummary], before: &BTreeSet<String>) -> BTreeSet<String> {
    let mut now = BTreeSet::new();
    for balancer in balancers {
        for line in lines(balancer) {
            if !before.contains(&line) {
                tracing::warn!(uid = %balancer.service_uid, "{line}");
            }
            now.insert(line);
        }
    }
    now
}

fn lines(balancer: &LoadBalancerSummary) -> Vec<String> {
    let addresses = enumerate(&balancer.addresses);
    let mut lines = Vec::new();
    if balancer.orphan {
        lines.push(format!(
            "no Service with the UID {} asks for its load balancer on {addresses} any more (rules {}); it is left as it is, \
             remove it by hand if nobody needs it",
            balancer.service_uid,
            enumerate(&balancer.rules)
        ));
    }
    if !balancer.kept_because.is_empty() {
        lines.push(format!("address {addresses} is kept: {}", balancer.kept_because));
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    fn orphan() -> LoadBalancerSummary {
        LoadBalancerSummary {
            service_uid: "0123".to_owned(),
            addresses: vec!["192.0.2.1".to_owned()],
            rules: vec!["a0123-tcp-80".to_owned()],
            orphan: true,
            ..LoadBalancerSummary::default()
        }
    }

    #[test]
    fn an_orphan_is_named_with_its_address_and_rules() {
        let lines = lines(&orphan());
        assert_eq!(lines.len(), 1);
        assert!(
            lines[0].contains("192.0.2.1") && lines[0].contains("a0123-tcp-80"),
            "{}",
            lines[0]
        );
    }

    #[test]
    fn an_address_that_is_kept_is_named_with_the_reason() {
        let kept = LoadBalancerSummary {
            orphan: false,
            kept_because: "no proof".to_owned(),
            ..orphan()
        };
        assert_eq!(lines(&kept), ["address 192.0.2.1 is kept: no proof"]);
    }

    #[test]
    fn what_serves_is_not_mentioned_and_what_was_told_is_remembered() {
        let serving = LoadBalancerSummary {
            orphan: false,
            ..orphan()
        };
        assert_eq!(tell(&[serving], &BTreeSet::new()), BTreeSet::new());
        let told = tell(&[orphan()], &BTreeSet::new());
        assert_eq!(tell(&[orphan()], &told), told);
    }
}
