//! Whether the clusters of one account are kept apart. Pure.
//!
//! A broker refuses a configuration in which one cluster could touch what is another's: each must be limited to a project or to
//! networks, and where two share a network, each to its own machines. Each must have a UID of its own in the configuration: what
//! an agent says of itself proves nothing to a broker that has just begun. Clusters on different accounts can't meet.

use super::{ClusterName, Tenant};

/// What keeps a configuration from being safe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entanglement {
    /// The cluster whose section must change.
    pub cluster: ClusterName,
    /// What was seen.
    pub text: String,
    /// What to do.
    pub hint: &'static str,
}

/// What is wrong between two clusters. `one` is the section that must change where either could.
pub fn entanglements(one: &Tenant, other: &Tenant, same_account: bool) -> Vec<Entanglement> {
    let mut found = Vec::new();
    let names = format!("{} and {}", other.cluster, one.cluster);
    if let Some(uid) = one.uids.iter().find(|uid| other.uids.are_ours(uid.as_str())) {
        let text = format!("clusters {names} have one uid, {uid}");
        let hint = "each cluster has its own; it is the UID of its namespace kube-system";
        found.push(Entanglement {
            cluster: one.cluster.clone(),
            text,
            hint,
        });
    }
    if !same_account {
        return found;
    }
    for tenant in [one, other] {
        if tenant.uids.is_unknown() {
            let text = format!(
                "cluster {} shares its keys with others and has no uid, so that another one could say that it is this one",
                tenant.cluster
            );
            let hint = "give it uid = <UID of its namespace kube-system>, or keys of its own";
            found.push(Entanglement {
                cluster: tenant.cluster.clone(),
                text,
                hint,
            });
        }
        if !tenant.scope.is_limited() {
            let text = format!(
                "cluster {} shares its keys with others and is not limited to a project or to networks",
                tenant.cluster
            );
            let hint = "give it networks = ... or project-id = ..., or keys of its own";
            found.push(Entanglement {
                cluster: tenant.cluster.clone(),
                text,
                hint,
            });
        }
    }
    if found.is_empty() && !one.scope.is_apart_from(&other.scope) {
        let text = format!("clusters {names} share keys and are not kept apart");
        let hint = "give them different networks (all by id or all by name), projects, or machines = <pattern or tag> that can't overlap";
        found.push(Entanglement {
            cluster: one.cluster.clone(),
            text,
            hint,
        });
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tenant::{ClusterName, ClusterUid, ClusterUids, NameOrId, Policy, Scope};

    fn tenant(name: &str, network: Option<&str>, uid: Option<&str>) -> Tenant {
        let networks = network.map(NameOrId::new).into_iter().collect();
        Tenant {
            cluster: ClusterName::new(name),
            scope: Scope {
                networks,
                ..Scope::default()
            },
            policy: Policy::default(),
            uids: ClusterUids::configured(uid.and_then(ClusterUid::new).into_iter().collect()),
            region: None,
        }
    }

    #[test]
    fn clusters_on_two_accounts_need_no_fence() {
        assert_eq!(
            entanglements(&tenant("a", None, None), &tenant("b", None, None), false),
            []
        );
    }

    #[test]
    fn clusters_that_share_keys_say_their_uids_in_the_configuration() {
        let (one, other) = (tenant("a", Some("n"), None), tenant("b", Some("m"), Some("v")));
        let found = entanglements(&one, &other, true);
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].cluster.as_str(), "a");
        assert!(found[0].hint.contains("uid = "), "{found:?}");
        assert_eq!(entanglements(&one, &other, false), []);
    }

    #[test]
    fn a_cluster_without_a_limit_is_refused_beside_another() {
        let found = entanglements(
            &tenant("a", None, Some("u")),
            &tenant("b", Some("n"), Some("v")),
            true,
        );
        assert_eq!(found.len(), 1);
        assert!(found[0].text.contains("cluster a "), "{found:?}");
    }

    #[test]
    fn two_clusters_in_one_network_are_refused_unless_machines_tell_them_apart() {
        assert_eq!(
            entanglements(
                &tenant("a", Some("n"), Some("u")),
                &tenant("b", Some("n"), Some("v")),
                true
            )
            .len(),
            1
        );
        assert_eq!(
            entanglements(
                &tenant("a", Some("n"), Some("u")),
                &tenant("b", Some("m"), Some("v")),
                true
            ),
            []
        );
    }

    #[test]
    fn two_clusters_never_have_one_uid() {
        let found = entanglements(
            &tenant("a", None, Some("u")),
            &tenant("b", None, Some("u")),
            false,
        );
        assert!(found[0].text.contains("have one uid, u"), "{found:?}");
    }
}
