//! Which namespace a Service is in, as far as calls have said so. Pure.
//!
//! Decides for how long that is remembered: while the Service has a rule, and else for some minutes after its last call. A cluster only says
//! it of Services of its own.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long a Service without a rule is remembered; a balancer that is being made has one long before.
const KEEP: Duration = Duration::from_mins(5);

/// UID of a cluster, and of a Service of it.
type Key = (String, String);

/// What one look sees of it. Copies share their content.
#[derive(Clone, Debug, Default)]
pub(crate) struct Namespaces(Arc<BTreeMap<Key, Arc<str>>>);

impl Namespaces {
    /// The namespace of a Service of this cluster.
    pub(crate) fn of(&self, cluster: &str, service: &str) -> Option<&str> {
        self.0
            .get(&(cluster.to_owned(), service.to_owned()))
            .map(AsRef::as_ref)
    }
}

/// What is remembered.
#[derive(Debug, Default)]
pub(crate) struct Heard {
    namespaces: Namespaces,
    at: BTreeMap<Key, Instant>,
}

impl Heard {
    /// A call of this cluster says where its Service is.
    pub(crate) fn hear(&mut self, cluster: &str, service: &str, namespace: &str, now: Instant) {
        let key = (cluster.to_owned(), service.to_owned());
        if self.namespaces.of(cluster, service) != Some(namespace) {
            Arc::make_mut(&mut self.namespaces.0).insert(key.clone(), namespace.into());
        }
        self.at.insert(key, now);
    }

    /// Forgets Services that have no rule and were not heard of lately.
    pub(crate) fn tidy(&mut self, has_rule: impl Fn(&str) -> bool, now: Instant) {
        let stays =
            |(_, service): &Key, at: &Instant| now.saturating_duration_since(*at) < KEEP || has_rule(service);
        if self.at.iter().all(|(key, at)| stays(key, at)) {
            return;
        }
        self.at.retain(|key, at| stays(key, at));
        let Self { namespaces, at } = self;
        Arc::make_mut(&mut namespaces.0).retain(|key, _| at.contains_key(key));
    }

    /// For one look.
    pub(crate) fn namespaces(&self) -> Namespaces {
        self.namespaces.clone()
    }
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "any instant will do to start from")]
mod tests {
    use super::*;

    #[test]
    fn a_cluster_says_nothing_of_another_ones_services() {
        let (mut heard, now) = (Heard::default(), Instant::now());
        heard.hear("c1", "s", "shop", now);
        heard.hear("c2", "s", "attic", now);
        let seen = heard.namespaces();
        assert_eq!(
            (seen.of("c1", "s"), seen.of("c2", "s")),
            (Some("shop"), Some("attic"))
        );
    }

    #[test]
    fn services_without_a_rule_are_forgotten_once_nobody_asks_for_them() {
        let (mut heard, now) = (Heard::default(), Instant::now());
        for service in 0..1000 {
            heard.hear("c", &service.to_string(), "shop", now);
        }
        heard.tidy(|_| false, now);
        assert!(
            heard.namespaces().of("c", "0").is_some(),
            "it may be without a rule yet"
        );
        heard.tidy(|service| service == "7", now + KEEP);
        let seen = heard.namespaces();
        assert_eq!((seen.of("c", "7"), seen.of("c", "8")), (Some("shop"), None));
        assert_eq!((heard.at.len(), seen.0.len()), (1, 1));
    }

    #[test]
    fn what_was_seen_is_not_copied_for_every_look() {
        let (mut heard, now) = (Heard::default(), Instant::now());
        heard.hear("c", "s", "shop", now);
        let seen = heard.namespaces();
        heard.hear("c", "s", "shop", now);
        assert!(Arc::ptr_eq(&seen.0, &heard.namespaces().0));
    }
}
