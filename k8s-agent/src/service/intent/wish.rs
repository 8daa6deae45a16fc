//! A wish put together from the fields and annotations of a Service.

use std::net::Ipv4Addr;

use k8s_openapi::api::core::v1::{Service, ServiceSpec};
use proto::v1::wish::Algorithm;
use proto::v1::{Wish, WishPort};

use super::Rules;
use crate::events::Reason;
use crate::service::annotations::{self, Problem, Problems, Settings, Spread};
use crate::service::backend::{BackendName, Notice};
use crate::service::members::enumerate;
use crate::service::texts::quoted;

/// Time that the API server puts where a Service with client affinity names none.
const DEFAULT_AFFINITY_SECONDS: i32 = 10_800;

/// Puts a wish together and collects what is wrong and what is worth knowing.
pub(super) struct Composer<'a> {
    pub(super) settings: &'a Settings,
    pub(super) backend: BackendName,
    pub(super) problems: Problems,
    pub(super) notices: Vec<Notice>,
}

impl Composer<'_> {
    /// Everything of a wish but its members.
    pub(super) fn wish(&mut self, service: &Service, spec: &ServiceSpec, rules: &Rules) -> Wish {
        self.check_family(spec);
        self.mention_what_has_no_effect(spec);
        Wish {
            ports: self.ports(spec),
            members: Vec::new(),
            sources: self.sources(spec),
            requested_address: self.requested_address(spec),
            keep_address: self.settings.keep_ip,
            network: self.settings.network.clone().unwrap_or_default(),
            algorithm: self.algorithm(spec) as i32,
            dialect: Some(rules.dialect.clone()),
            accept_replace: self.settings.accept_replace.clone().unwrap_or_default(),
            adoption: Some(super::adoption(
                service,
                self.settings.ip_associated_by_controller,
            )),
        }
    }

    fn ports(&mut self, spec: &ServiceSpec) -> Vec<WishPort> {
        let ports = super::ports::of(spec, self.settings.proxy_protocol, self.backend);
        self.problems.append(ports.problems);
        self.notices.extend(ports.notices);
        ports.wish
    }

    fn sources(&mut self, spec: &ServiceSpec) -> Vec<String> {
        if self.backend != BackendName::Cloud {
            return Vec::new();
        }
        let sources = super::sources::of(spec, self.settings);
        self.notices.extend(sources.notices);
        match sources.networks {
            Ok(networks) => networks.iter().map(ToString::to_string).collect(),
            Err(problems) => {
                self.problems.append(problems);
                Vec::new()
            }
        }
    }

    fn check_family(&mut self, spec: &ServiceSpec) {
        // The keepalived backend reads families and addresses itself: a wrong one must not stop what is served.
        if self.backend != BackendName::Cloud {
            return;
        }
        let families = spec.ip_families.as_deref().unwrap_or_default();
        let only_ipv6 = if families.is_empty() {
            spec.cluster_ip
                .as_deref()
                .is_some_and(|address| address.contains(':'))
        } else {
            !families.iter().any(|family| family == "IPv4")
        };
        if only_ipv6 {
            self.problems.push(Problem::new(
                "spec.ipFamilies",
                "names IPv6 only, and load balancers have IPv4 addresses; add IPv4",
            ));
        }
    }

    fn requested_address(&mut self, spec: &ServiceSpec) -> String {
        if self.backend != BackendName::Cloud {
            return String::new();
        }
        let annotation = self.settings.address.as_deref();
        let field = spec
            .load_balancer_ip
            .as_deref()
            .map(str::trim)
            .filter(|address| !address.is_empty());
        let (place, address) = match (annotation, field) {
            (None, None) => return String::new(),
            (Some(address), hidden) => {
                if let Some(hidden) = hidden.filter(|hidden| *hidden != address) {
                    self.notices.push(Notice::of(
                        &Reason::ADDRESS_HIDDEN,
                        "spec.loadBalancerIP",
                        format!(
                            "{} is not used, since the annotation {} asks for {}",
                            quoted(hidden),
                            annotations::ADDRESS,
                            quoted(address)
                        ),
                    ));
                }
                (annotations::field(annotations::ADDRESS), address)
            }
            (None, Some(address)) => ("spec.loadBalancerIP".to_owned(), address),
        };
        match address.parse::<Ipv4Addr>() {
            Ok(parsed) => parsed.to_string(),
            Err(_unparsable) => {
                self.problems.push(Problem::new(
                    place,
                    format!("must be an IPv4 address, not {}", quoted(address)),
                ));
                String::new()
            }
        }
    }

    fn algorithm(&mut self, spec: &ServiceSpec) -> Algorithm {
        let sticky = spec.session_affinity.as_deref() == Some("ClientIP");
        match (self.settings.algorithm, sticky) {
            (None | Some(Spread::Source), true) | (Some(Spread::Source), false) => Algorithm::Source,
            (None | Some(Spread::RoundRobin), false) => Algorithm::RoundRobin,
            (Some(Spread::LeastConnections), false) => Algorithm::LeastConnections,
            (Some(Spread::RoundRobin | Spread::LeastConnections), true) => {
                self.problems.push(Problem::of(
                    annotations::ALGORITHM,
                    "does not keep a client with one node as spec.sessionAffinity asks; use \"source\" or drop one of them",
                ));
                Algorithm::Source
            }
        }
    }

    fn mention_what_has_no_effect(&mut self, spec: &ServiceSpec) {
        for name in &self.settings.without_effect {
            self.notices.push(Notice::of(
                &Reason::ANNOTATION_IGNORED,
                annotations::field(name),
                "has no effect; spec.sessionAffinity: ClientIP keeps a client with one node",
            ));
        }
        if self.backend == BackendName::Cloud {
            self.mention_ipv6(spec);
            self.mention_unchecked_udp(spec);
        }
        let timeout = spec
            .session_affinity_config
            .as_ref()
            .and_then(|config| config.client_ip.as_ref())
            .and_then(|client| client.timeout_seconds);
        if let Some(seconds) = timeout.filter(|seconds| *seconds != DEFAULT_AFFINITY_SECONDS)
            && self.backend == BackendName::Cloud
        {
            self.notices.push(Notice::of(
                &Reason::AFFINITY_TIMEOUT_IGNORED,
                "spec.sessionAffinityConfig.clientIP.timeoutSeconds",
                format!(
                    "the load balancer keeps a client with its node without a time limit, not for {seconds} s"
                ),
            ));
        }
    }

    fn mention_ipv6(&mut self, spec: &ServiceSpec) {
        let families = spec.ip_families.as_deref().unwrap_or_default();
        let asks_for = |family: &str| families.iter().any(|asked| asked == family);
        if asks_for("IPv4") && asks_for("IPv6") {
            self.notices.push(Notice::of(
                &Reason::IPV6_FAMILY_IGNORED,
                "spec.ipFamilies",
                "asks for IPv6 beside IPv4, and load balancers have IPv4 addresses: clients reach it by IPv4 only",
            ));
        }
    }

    /// A node without a pod of the Service drops what comes in. Connections are not sent there, since opening one fails; for UDP
    /// nothing looks.
    fn mention_unchecked_udp(&mut self, spec: &ServiceSpec) {
        if spec.external_traffic_policy.as_deref() != Some("Local") {
            return;
        }
        let ports: Vec<_> = spec
            .ports
            .iter()
            .flatten()
            .filter(|port| port.protocol.as_deref() == Some("UDP"))
            .map(|port| port.port.to_string())
            .collect();
        if !ports.is_empty() {
            self.notices.push(Notice::of(
                &Reason::LOCAL_TRAFFIC_UNCHECKED,
                "spec.externalTrafficPolicy",
                format!(
                    "Local loses packets of UDP ports ({}) that reach a node without a pod of the Service, since the load balancer does \
                     not check UDP members; use Cluster, or exclude the nodes by label",
                    enumerate(&ports)
                ),
            ));
        }
    }
}
