//! Which cluster a proof of identity stands for. Pure.
//!
//! The caller on the Unix socket is the default cluster. A certificate stands for a cluster if it is made for clients and exactly
//! one of its names is configured: its URIs are looked at first, its DNS names only if none of them maps. The common
//! name says nothing, and configured names have no wildcards. A certificate that is over stands for nobody, also on a
//! connection that was made while it was valid.

use std::collections::BTreeMap;

use runtime::link::{Certificate, Peer};

use super::ClusterName;

/// Who a caller turned out to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The cluster that it stands for.
    pub cluster: ClusterName,
    /// What it proved: `unix:uid=0`, or the URI or DNS name that maps.
    pub proof: String,
}

/// Why a caller is nobody.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Stranger {
    /// The connection says nothing about its caller.
    #[error("the connection does not say who is calling")]
    Unknown,
    /// The certificate is not meant for clients.
    #[error("the certificate of {name} is not made for clients: it needs the extended key usage clientAuth")]
    NotForClients {
        /// Its first name.
        name: String,
    },
    /// The certificate is not valid any more.
    #[error("the certificate of {name} is not valid any more: renew it")]
    Over {
        /// Its names.
        name: String,
    },
    /// No section names it.
    #[error("no [Cluster] section of the configuration has identity = {names}")]
    NotConfigured {
        /// The names that were looked for.
        names: String,
    },
    /// Names of several clusters are in one certificate.
    #[error(
        "the certificate stands for several clusters ({clusters}); it must have exactly one configured name"
    )]
    Ambiguous {
        /// Those clusters.
        clusters: String,
    },
    /// There is no section for the caller on the Unix socket.
    #[error(
        "the Unix socket is the default cluster, and the configuration has none beside the named ones: add [Cluster \"default\"]"
    )]
    NoDefault,
}

/// Names of certificates and the clusters they stand for.
#[derive(Clone, Debug, Default)]
pub struct Identities {
    by_name: BTreeMap<String, ClusterName>,
    has_default: bool,
}

impl Identities {
    /// From pairs of a configured name and its cluster, and whether there is a default cluster.
    pub fn new(pairs: impl IntoIterator<Item = (String, ClusterName)>, has_default: bool) -> Self {
        let by_name = pairs
            .into_iter()
            .map(|(name, cluster)| (normal(&name), cluster))
            .collect();
        Self { by_name, has_default }
    }

    /// Who is calling, at this time in seconds since 1970.
    pub fn identify(&self, peer: Option<&Peer>, now: i64) -> Result<Identity, Stranger> {
        match peer {
            None => Err(Stranger::Unknown),
            Some(Peer::Unix { .. }) if !self.has_default => Err(Stranger::NoDefault),
            Some(peer @ Peer::Unix { .. }) => Ok(Identity {
                cluster: ClusterName::of_the_socket(),
                proof: peer.to_string(),
            }),
            Some(Peer::Certificate(certificate)) => self.of_certificate(certificate, now),
        }
    }

    fn of_certificate(&self, certificate: &Certificate, now: i64) -> Result<Identity, Stranger> {
        let names: Vec<&String> = certificate.uris.iter().chain(&certificate.dns).collect();
        let listed = names
            .iter()
            .map(|name| name.as_str())
            .collect::<Vec<_>>()
            .join(" or ");
        if !certificate.for_clients {
            return Err(Stranger::NotForClients { name: listed });
        }
        if now > certificate.not_after {
            return Err(Stranger::Over { name: listed });
        }
        let maps = |names: &[String]| {
            let found = names
                .iter()
                .filter_map(|name| Some((name.clone(), self.by_name.get(&normal(name))?.clone())));
            found.collect::<Vec<_>>()
        };
        let uris = maps(&certificate.uris);
        let found = if uris.is_empty() {
            maps(&certificate.dns)
        } else {
            uris
        };
        match found.as_slice() {
            [] => Err(Stranger::NotConfigured {
                names: if listed.is_empty() {
                    "(it has no names)".into()
                } else {
                    listed
                },
            }),
            [(proof, cluster)] => Ok(Identity {
                cluster: cluster.clone(),
                proof: proof.clone(),
            }),
            several => {
                let clusters = several
                    .iter()
                    .map(|(name, cluster)| format!("{name} is {cluster}"));
                Err(Stranger::Ambiguous {
                    clusters: clusters.collect::<Vec<_>>().join(", "),
                })
            }
        }
    }
}

/// The form in which names are compared. DNS names are the same in any case; of URIs only scheme and host are, which no
/// issuer varies.
pub fn normal(name: &str) -> String {
    if name.contains("://") {
        name.to_owned()
    } else {
        name.to_ascii_lowercase()
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    fn identities() -> Identities {
        let pairs = [
            ("spiffe://prod/agent", "prod"),
            ("agent.prod.example", "prod"),
            ("agent.test.example", "test"),
            ("spiffe://test/agent", "test"),
        ];
        Identities::new(
            pairs.map(|(name, cluster)| (name.to_owned(), ClusterName::new(cluster))),
            true,
        )
    }

    /// The last second of the certificates.
    const NOW: i64 = 1_900_000_000;

    fn certificate(uris: &[&str], dns: &[&str]) -> Peer {
        let owned = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        Peer::Certificate(Certificate {
            uris: owned(uris),
            dns: owned(dns),
            for_clients: true,
            not_after: NOW,
        })
    }

    #[rstest]
    #[case::a_uri(&["spiffe://prod/agent"], &[], Some("prod"))]
    #[case::a_dns_name_in_any_case(&[], &["Agent.Test.Example"], Some("test"))]
    #[case::a_uri_wins_over_a_dns_name(&["spiffe://prod/agent"], &["agent.test.example"], Some("prod"))]
    #[case::an_unknown_uri_leaves_it_to_the_dns_name(&["spiffe://x"], &["agent.test.example"], Some("test"))]
    #[case::unknown_names_beside_a_known_one(&[], &["x", "agent.test.example"], Some("test"))]
    #[case::two_clusters(&["spiffe://prod/agent", "spiffe://test/agent"], &[], None)]
    #[case::two_names_of_one_cluster(&[], &["agent.prod.example", "agent.test.example"], None)]
    #[case::a_uri_in_another_case(&["spiffe://PROD/agent"], &[], None)]
    #[case::only_a_part_of_the_name(&[], &["x.agent.test.example"], None)]
    #[case::a_wildcard(&[], &["*.test.example"], None)]
    #[case::no_names(&[], &[], None)]
    fn a_certificate_stands_for_the_one_cluster_that_names_it(
        #[case] uris: &[&str],
        #[case] dns: &[&str],
        #[case] cluster: Option<&str>,
    ) {
        let known = identities().identify(Some(&certificate(uris, dns)), NOW);
        assert_eq!(
            known
                .ok()
                .map(|known| known.cluster.as_str().to_owned())
                .as_deref(),
            cluster
        );
    }

    #[test]
    fn a_certificate_that_is_not_made_for_clients_is_nobody() {
        let Peer::Certificate(mut server) = certificate(&["spiffe://prod/agent"], &[]) else {
            unreachable!()
        };
        server.for_clients = false;
        let refused = identities()
            .identify(Some(&Peer::Certificate(server)), NOW)
            .unwrap_err();
        assert!(refused.to_string().contains("clientAuth"), "{refused}");
    }

    #[test]
    fn a_certificate_that_is_over_is_nobody_although_its_connection_lives() {
        let known = certificate(&["spiffe://prod/agent"], &[]);
        assert!(identities().identify(Some(&known), NOW).is_ok());
        let refused = identities().identify(Some(&known), NOW + 1).unwrap_err();
        assert_eq!(
            refused.to_string(),
            "the certificate of spiffe://prod/agent is not valid any more: renew it"
        );
    }

    #[test]
    fn the_caller_on_the_socket_is_the_default_cluster_if_there_is_one() {
        let peer = Peer::Unix { uid: 7 };
        let known = identities().identify(Some(&peer), NOW).unwrap();
        assert_eq!(
            (known.cluster.as_str(), known.proof.as_str()),
            ("default", "unix:uid=7")
        );
        assert_eq!(
            Identities::new([], false).identify(Some(&peer), NOW),
            Err(Stranger::NoDefault)
        );
    }

    #[test]
    fn a_connection_without_a_peer_is_nobody() {
        assert_eq!(identities().identify(None, NOW), Err(Stranger::Unknown));
    }
}
