use super::*;
use crate::queue::{Backoff, Queue};

#[test]
fn the_scrape_has_the_names_that_dashboards_read() {
    let metrics = Metrics::default();
    let queue = Queue::new(
        "service",
        Backoff {
            first: Duration::from_secs(5),
            longest: Duration::from_secs(300),
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
    // Buckets are left out: their bounds are asserted by the type, and they would hide the names.
    let shape: String =
        scrape
            .lines()
            .filter(|line| !line.contains("_bucket{"))
            .fold(String::new(), |mut all, line| {
                all.push_str(line);
                all.push('\n');
                all
            });
    insta::assert_snapshot!(shape);
}
