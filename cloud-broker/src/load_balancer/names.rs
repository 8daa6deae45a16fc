//! Names of rules: what a Service's rules are called, in every dialect that is read or written.
//!
//! Decides whether a name is exactly one of a Service's. Lists are always compared here: a server's own searches find
//! parts of names. Facts: the Go controller names a balancer `a` + the Service's UID without dashes, cut to 32, and a rule
//! `<balancer>-<protocol>-<port>`; the controller that was part of Kubernetes left the protocol out; the Leaseweb line writes
//! `K8s_svc_<cluster>_<namespace>_<name>-<protocol>-<port>`.

use super::wish::{Dialect, Protocol, ServiceRef};

/// Longest name that a server stores.
const LONGEST: usize = 255;

/// The names that one Service's rules may have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Names {
    apache: String,
    leaseweb: Option<String>,
}

/// What a name says, if it is one of ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Parsed {
    /// Which dialect it is in.
    pub dialect: Dialect,
    /// The protocol; names of the oldest controller have none.
    pub protocol: Option<Protocol>,
    /// The public port.
    pub port: u16,
}

impl Names {
    /// The names of a Service. Those of the Leaseweb dialect hold the configured cluster name, so without one there are none.
    pub(crate) fn of(service: &ServiceRef, cluster_name: &str) -> Self {
        let mut apache = format!("a{}", service.uid.as_str().replace('-', ""));
        apache.truncate(32);
        let leaseweb = (!cluster_name.is_empty())
            .then(|| format!("K8s_svc_{cluster_name}_{}_{}", service.namespace, service.name));
        Self { apache, leaseweb }
    }

    /// The name of the rule for a port; without a cluster name every rule is named the Apache way.
    pub(crate) fn rule(&self, dialect: Dialect, protocol: Protocol, port: u16) -> String {
        let base = match (dialect, &self.leaseweb) {
            (Dialect::Leaseweb, Some(base)) => base,
            (Dialect::Leaseweb, None) | (Dialect::Apache, _) => &self.apache,
        };
        let tail = format!("-{}-{port}", protocol.word());
        let room = LONGEST.saturating_sub(tail.len());
        let base: String = base.chars().take(room).collect();
        base + &tail
    }

    /// Reads a name; `None` if it is not exactly one of this Service's.
    pub(crate) fn parse(&self, name: &str) -> Option<Parsed> {
        let tail_of = |base: &str| name.strip_prefix(base)?.strip_prefix('-').map(str::to_owned);
        if let Some(tail) = tail_of(&self.apache) {
            return parse_tail(&tail, true).map(|(protocol, port)| Parsed {
                dialect: Dialect::Apache,
                protocol,
                port,
            });
        }
        let tail = self.leaseweb.as_deref().and_then(tail_of)?;
        parse_tail(&tail, false).map(|(protocol, port)| Parsed {
            dialect: Dialect::Leaseweb,
            protocol,
            port,
        })
    }
}

fn parse_tail(tail: &str, may_lack_protocol: bool) -> Option<(Option<Protocol>, u16)> {
    let number = |text: &str| {
        let plain =
            !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) && !text.starts_with('0');
        plain.then(|| text.parse::<u16>().ok()).flatten()
    };
    match tail.rsplit_once('-') {
        Some((word, port)) => Some((Some(Protocol::from_word(word)?), number(port)?)),
        None if may_lack_protocol => Some((None, number(tail)?)),
        None => None,
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::super::wish::ServiceUid;
    use super::*;

    fn service() -> ServiceRef {
        ServiceRef {
            uid: ServiceUid::parse("0f1e2d3c-4b5a-6978-8796-a5b4c3d2e1f0").unwrap(),
            namespace: "shop".into(),
            name: "web".into(),
        }
    }

    #[test]
    fn a_rule_is_named_as_the_go_controller_names_it() {
        let names = Names::of(&service(), "prod");
        assert_eq!(
            names.rule(Dialect::Apache, Protocol::TcpProxy, 443),
            "a0f1e2d3c4b5a69788796a5b4c3d2e1f-tcp-proxy-443"
        );
        assert_eq!(
            names.rule(Dialect::Leaseweb, Protocol::Tcp, 80),
            "K8s_svc_prod_shop_web-tcp-80"
        );
    }

    #[rstest]
    #[case::apache("a0f1e2d3c4b5a69788796a5b4c3d2e1f-tcp-80", Some((Dialect::Apache, Some(Protocol::Tcp), 80)))]
    #[case::proxy("a0f1e2d3c4b5a69788796a5b4c3d2e1f-tcp-proxy-443", Some((Dialect::Apache, Some(Protocol::TcpProxy), 443)))]
    #[case::udp("a0f1e2d3c4b5a69788796a5b4c3d2e1f-udp-53", Some((Dialect::Apache, Some(Protocol::Udp), 53)))]
    #[case::in_tree("a0f1e2d3c4b5a69788796a5b4c3d2e1f-80", Some((Dialect::Apache, None, 80)))]
    #[case::leaseweb("K8s_svc_prod_shop_web-tcp-80", Some((Dialect::Leaseweb, Some(Protocol::Tcp), 80)))]
    #[case::another_cluster("K8s_svc_test_shop_web-tcp-80", None)]
    #[case::a_longer_service("K8s_svc_prod_shop_web-2-tcp-80", None)]
    #[case::leaseweb_without_protocol("K8s_svc_prod_shop_web-80", None)]
    #[case::our_prefix("a0f1e2d3c4b5a69788796a5b4c3d2e1f-tcp-80-mine", None)]
    #[case::our_prefix_in_front("xa0f1e2d3c4b5a69788796a5b4c3d2e1f-tcp-80", None)]
    #[case::no_number("a0f1e2d3c4b5a69788796a5b4c3d2e1f-tcp-http", None)]
    #[case::leading_zero("a0f1e2d3c4b5a69788796a5b4c3d2e1f-tcp-080", None)]
    #[case::too_high("a0f1e2d3c4b5a69788796a5b4c3d2e1f-tcp-65536", None)]
    #[case::another_protocol("a0f1e2d3c4b5a69788796a5b4c3d2e1f-ssl-80", None)]
    #[case::only_the_balancer("a0f1e2d3c4b5a69788796a5b4c3d2e1f", None)]
    fn a_name_is_ours_only_if_it_is_exactly_ours(
        #[case] name: &str,
        #[case] parsed: Option<(Dialect, Option<Protocol>, u16)>,
    ) {
        let expected = parsed.map(|(dialect, protocol, port)| Parsed {
            dialect,
            protocol,
            port,
        });
        assert_eq!(Names::of(&service(), "prod").parse(name), expected);
    }

    #[test]
    fn without_a_cluster_name_no_leaseweb_name_is_ours() {
        assert_eq!(Names::of(&service(), "").parse("K8s_svc__shop_web-tcp-80"), None);
    }

    #[test]
    fn a_name_never_outgrows_what_a_server_stores() {
        let mut service = service();
        service.name = "n".repeat(300);
        let name = Names::of(&service, "prod").rule(Dialect::Leaseweb, Protocol::Tcp, 80);
        assert!(name.len() <= LONGEST && name.ends_with("-tcp-80"));
    }
}
