use prometheus_client::registry::Registry;

use super::*;
use crate::queue::{Backoff, Queue};

#[test]
fn the_scrape_has_the_names_that_dashboards_read() {
    let metrics = Metrics::default();
    let queue = Queue::new(
        "service",
        Backoff {
            first: Duration::from_secs(5),
            longest: Duration::from_mins(5),
        },
        &metrics,
    );
    queue.add("default/web");
    metrics.set_leader("cloud-controller-manager", true);
    metrics.lease_read("cloud-controller-manager");
    metrics.controller_runs("cloud-node");
    metrics.api_request("127.0.0.1:6443", "GET", "200", Duration::from_millis(3));
    metrics.broker_call("LookupInstances", "ok", Duration::from_millis(3));
    metrics.nodes_looked_at(2, 1);
    metrics.balancer_operation("ensure", "settled", Duration::from_secs(1));
    let mut registry = Registry::default();
    metrics.register(&mut registry);
    let mut scrape = String::new();
    prometheus_client::encoding::text::encode(&mut scrape, &registry).unwrap();
    // Buckets are left out: they would hide the names. Samples of one family come in any order.
    let mut lines: Vec<&str> = scrape.lines().filter(|line| !line.contains("_bucket{")).collect();
    for family in lines.chunk_by_mut(|a, b| a.starts_with('#') == b.starts_with('#')) {
        if family.iter().any(|line| !line.starts_with('#')) {
            family.sort_unstable();
        }
    }
    let shape = lines.join("\n");
    insta::assert_snapshot!(shape);
}
