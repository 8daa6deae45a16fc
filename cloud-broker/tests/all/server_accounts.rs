//! Which account a cluster has after its configuration changed.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use cloud_broker::cloudstack::Pace;
use cloud_broker::config::{Config, parse};
use cloud_broker::directory::{Directory, Served, Surroundings};
use cloud_broker::metrics::Metrics;
use runtime::host::Host;

/// Clusters with the keys that each has.
fn config(clusters: &[(&str, &str)]) -> Config {
    let section = |(name, key): &(&str, &str)| {
        format!("[Cluster \"{name}\"]\nuid = {name}\nnetworks = {name}\napi-key = {key}\nsecret-key = S\n")
    };
    let text = format!(
        "[Global]\napi-url = http://127.0.0.1:1/client/api\n{}",
        clusters.iter().map(section).collect::<String>()
    );
    let none = |_: &Path| Err(std::io::Error::from(std::io::ErrorKind::NotFound));
    parse(Path::new("cloud.conf"), &text, &none).unwrap()
}

fn directory(config: &Config) -> Directory {
    runtime::host::install_tls_provider();
    let surroundings = Surroundings {
        host: Host::new(),
        metrics: Metrics::default(),
        pace: Pace::scaled(0.01),
        drift_period: Duration::from_mins(10),
        tighten_on_adopt: false,
    };
    Directory::new(surroundings, config).unwrap()
}

fn served(directory: &Directory, name: &str) -> Arc<Served> {
    let all = directory.served();
    let found = all.iter().find(|served| served.tenant.cluster.as_str() == name);
    Arc::clone(found.unwrap())
}

#[tokio::test]
async fn a_cluster_that_gets_keys_of_its_own_leaves_the_account_to_those_who_keep_theirs() {
    // In the order of their names the one that changes comes first.
    let directory = directory(&config(&[("a", "SHARED"), ("b", "SHARED")]));
    let before = served(&directory, "b");
    assert!(Arc::ptr_eq(&before.shared, &served(&directory, "a").shared));
    directory
        .apply(&config(&[("a", "OWN"), ("b", "SHARED")]))
        .unwrap();
    let (a, b) = (served(&directory, "a"), served(&directory, "b"));
    assert!(Arc::ptr_eq(&before.shared, &b.shared));
    assert!(!Arc::ptr_eq(&before.shared, &a.shared));
    assert!(!before.rekeyed.is_cancelled(), "nothing changed for b");
    assert_ne!(a.shared.cloud.name(), b.shared.cloud.name());
}

#[tokio::test]
async fn clusters_that_swap_their_keys_swap_their_accounts() {
    let directory = directory(&config(&[("a", "ONE"), ("b", "TWO")]));
    let (a, b) = (served(&directory, "a"), served(&directory, "b"));
    directory.apply(&config(&[("a", "TWO"), ("b", "ONE")])).unwrap();
    assert!(Arc::ptr_eq(&served(&directory, "a").shared, &b.shared));
    assert!(Arc::ptr_eq(&served(&directory, "b").shared, &a.shared));
}

#[tokio::test]
async fn an_account_outlives_other_keys_and_calls_that_run_are_told() {
    let directory = directory(&config(&[("a", "OLD")]));
    let before = served(&directory, "a");
    directory.apply(&config(&[("a", "NEW")])).unwrap();
    let after = served(&directory, "a");
    assert!(Arc::ptr_eq(&before.shared, &after.shared));
    assert!(before.rekeyed.is_cancelled() && !after.rekeyed.is_cancelled());
    // Whoever has the old keys from now on is not taken for the account that began with them.
    directory.apply(&config(&[("a", "NEW"), ("b", "OLD")])).unwrap();
    let (a, b) = (served(&directory, "a"), served(&directory, "b"));
    assert!(!after.rekeyed.is_cancelled(), "the same keys again are no change");
    assert_ne!(a.shared.cloud.name(), b.shared.cloud.name());
}
