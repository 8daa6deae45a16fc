//! A Service as the allocation sees it.
//!
//! Decides how a Service's fields and annotations are read: requested address, forward method, pool, sharing key,
//! ports, address family. Nothing here fails; what can't be read is kept as the reason, because a bad wish must never
//! change what is already served. Leaves to the caller whose Service it is ([`Standing`]).

use std::collections::BTreeMap;
use std::fmt::{self, Write as _};
use std::net::Ipv4Addr;

use k8s_openapi::api::core::v1::{Service, ServicePort};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::address::{self, AddressError};
use super::method::{Method, UnknownMethod};
use crate::service::annotations::{ADDRESS, ADDRESS_POOL, FORWARD_METHOD, SHARING_KEY};

/// Whose Service it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// Ours, and to be brought up to date now.
    Asked,
    /// Ours; keeps what it has until it is asked for.
    Held,
    /// Another controller's or backend's, or not yet decided: gets nothing, loses nothing.
    Elsewhere,
    /// Gives up its address: deleted, or no load balancer any more.
    Leaving,
}

/// Where a port leads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// A number.
    Number(i32),
    /// The name of a container port.
    Name(String),
}

/// One port of a Service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Port {
    /// TCP, UDP or SCTP.
    pub protocol: String,
    /// The port itself.
    pub number: i32,
    /// The port's name; empty for none.
    pub name: String,
    /// Where it leads.
    pub target: Target,
}

impl Port {
    fn of(port: &ServicePort) -> Self {
        let target = match &port.target_port {
            Some(IntOrString::Int(number)) => Target::Number(*number),
            Some(IntOrString::String(name)) => Target::Name(name.clone()),
            None => Target::Number(port.port),
        };
        Self {
            protocol: port.protocol.clone().unwrap_or_else(|| "TCP".to_owned()),
            number: port.port,
            name: port.name.clone().unwrap_or_default(),
            target,
        }
    }

    /// What can't be had twice on one address.
    pub fn listener(&self) -> (&str, i32) {
        (&self.protocol, self.number)
    }
}

impl fmt::Display for Port {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.protocol.to_ascii_lowercase(), self.number)
    }
}

/// Which address families a Service asks for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Family {
    /// IPv4 first.
    #[default]
    Ipv4,
    /// IPv6 first: its Endpoints hold no IPv4 address.
    Ipv6First,
    /// Both or nothing.
    RequireDualStack,
}

/// Why a requested address can't be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AddressWish {
    /// Not an address.
    #[error(transparent)]
    Bad(#[from] AddressError),
    /// The annotation and the field ask for two different addresses.
    #[error("the annotation {ADDRESS} asks for {0} and spec.loadBalancerIP for {1}; remove one of them")]
    Two(Ipv4Addr, Ipv4Addr),
}

/// What the Service asks about forwarding.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum MethodWish {
    /// Nothing: the default applies.
    #[default]
    Default,
    /// A method, or explicitly none.
    Of(Method),
    /// A word that names no method.
    Bad(UnknownMethod),
}

/// What a Service asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wish {
    /// The requested address.
    pub address: Result<Option<Ipv4Addr>, AddressWish>,
    /// The forward method.
    pub method: MethodWish,
    /// The pool.
    pub pool: Option<String>,
    /// The sharing key.
    pub sharing_key: Option<String>,
    /// The ports.
    pub ports: Vec<Port>,
    /// The address families.
    pub family: Family,
    /// Whether `externalTrafficPolicy` is `Local`.
    pub local_traffic: bool,
}

/// A Service as the allocation sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    /// UID.
    pub uid: String,
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
    /// Labels, for the pools' selectors.
    pub labels: BTreeMap<String, String>,
    /// Creation time in seconds; the oldest comes first.
    pub created: i64,
    /// Whose it is.
    pub standing: Standing,
    /// What it asks for.
    pub wish: Wish,
    /// The addresses in its status.
    pub status: Vec<Ipv4Addr>,
}

impl Claim {
    /// Reads a Service.
    pub fn of(service: &Service, standing: Standing) -> Self {
        let meta = &service.metadata;
        let status = service
            .status
            .as_ref()
            .and_then(|status| status.load_balancer.as_ref());
        let ingress = status
            .and_then(|balancer| balancer.ingress.as_deref())
            .unwrap_or_default();
        Self {
            uid: meta.uid.clone().unwrap_or_default(),
            namespace: meta.namespace.clone().unwrap_or_default(),
            name: meta.name.clone().unwrap_or_default(),
            labels: meta.labels.clone().unwrap_or_default(),
            created: meta
                .creation_timestamp
                .as_ref()
                .map_or(i64::MAX, |time| time.0.as_second()),
            standing,
            wish: wish(service),
            status: ingress
                .iter()
                .filter_map(|entry| address::parse(entry.ip.as_deref()?).ok())
                .collect(),
        }
    }

    /// Namespace and name, for people and for order.
    pub fn full_name(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }

    /// Whether it is served by this backend.
    pub fn is_ours(&self) -> bool {
        matches!(self.standing, Standing::Asked | Standing::Held)
    }

    /// The ports as a text that changes exactly when the consumer has to look again.
    pub fn ports_text(&self) -> String {
        self.wish.ports.iter().fold(String::new(), |mut text, port| {
            let target = match &port.target {
                Target::Number(number) => number.to_string(),
                Target::Name(name) => name.clone(),
            };
            let _ = write!(text, "{port}:{}:{target};", port.name);
            text
        })
    }
}

fn wish(service: &Service) -> Wish {
    let spec = service.spec.as_ref();
    let annotation = |name: &str| {
        service
            .metadata
            .annotations
            .as_ref()?
            .get(name)
            .map(String::as_str)
    };
    let text = |name: &str| annotation(name).map(str::trim).filter(|text| !text.is_empty());
    let field = spec
        .and_then(|spec| spec.load_balancer_ip.as_deref())
        .map(str::trim);
    let method = annotation(FORWARD_METHOD).map(Method::parse);
    let families = spec
        .and_then(|spec| spec.ip_families.as_deref())
        .unwrap_or_default();
    let family_policy = spec.and_then(|spec| spec.ip_family_policy.as_deref());
    let family = if family_policy == Some("RequireDualStack") {
        Family::RequireDualStack
    } else if families.first().is_some_and(|first| first == "IPv6") {
        Family::Ipv6First
    } else {
        Family::Ipv4
    };
    Wish {
        address: requested(text(ADDRESS), field.filter(|text| !text.is_empty())),
        method: match method {
            None => MethodWish::Default,
            Some(Ok(method)) => MethodWish::Of(method),
            Some(Err(unknown)) => MethodWish::Bad(unknown),
        },
        pool: text(ADDRESS_POOL).map(ToOwned::to_owned),
        sharing_key: text(SHARING_KEY).map(ToOwned::to_owned),
        ports: spec
            .and_then(|spec| spec.ports.as_deref())
            .unwrap_or_default()
            .iter()
            .map(Port::of)
            .collect(),
        family,
        local_traffic: spec.and_then(|spec| spec.external_traffic_policy.as_deref()) == Some("Local"),
    }
}

fn requested(annotation: Option<&str>, field: Option<&str>) -> Result<Option<Ipv4Addr>, AddressWish> {
    let annotation = annotation.map(address::parse).transpose()?;
    let field = field.map(address::parse).transpose()?;
    match (annotation, field) {
        (Some(annotation), Some(field)) if annotation != field => Err(AddressWish::Two(annotation, field)),
        (annotation, field) => Ok(annotation.or(field)),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn claim(service: Value) -> Claim {
        Claim::of(&serde_json::from_value(service).unwrap(), Standing::Asked)
    }

    #[test]
    fn a_service_is_read_with_all_its_wishes() {
        let claim = claim(json!({
            "metadata": {
                "uid": "u", "namespace": "shop", "name": "web", "creationTimestamp": "2026-01-01T00:00:10Z",
                "labels": { "tier": "front" },
                "annotations": { FORWARD_METHOD: " dr ", ADDRESS: " 10.0.0.9 ", ADDRESS_POOL: "public", SHARING_KEY: "k" },
            },
            "spec": {
                "type": "LoadBalancer", "loadBalancerIP": "10.0.0.9", "externalTrafficPolicy": "Local",
                "ports": [
                    { "name": "http", "port": 80, "targetPort": "web", "protocol": "TCP" },
                    { "port": 53, "protocol": "UDP" },
                ],
            },
            "status": { "loadBalancer": { "ingress": [{ "ip": "10.0.0.9" }, { "hostname": "x" }] } },
        }));
        assert_eq!(claim.full_name(), "shop/web");
        assert_eq!(claim.wish.address, Ok(Some(Ipv4Addr::new(10, 0, 0, 9))));
        assert_eq!(claim.wish.method, MethodWish::Of(Method::parse("DR").unwrap()));
        assert_eq!(claim.wish.pool.as_deref(), Some("public"));
        assert_eq!(claim.wish.sharing_key.as_deref(), Some("k"));
        assert_eq!(claim.status, [Ipv4Addr::new(10, 0, 0, 9)]);
        assert_eq!(claim.ports_text(), "tcp/80:http:web;udp/53::53;");
        assert!(claim.wish.local_traffic);
    }

    #[test]
    fn an_empty_forward_method_is_an_explicit_none_and_an_absent_one_the_default() {
        let with = |annotations: Value| {
            claim(json!({ "metadata": { "annotations": annotations } }))
                .wish
                .method
        };
        assert_eq!(with(json!({ FORWARD_METHOD: "" })), MethodWish::Of(Method(None)));
        assert_eq!(with(json!({})), MethodWish::Default);
        assert!(matches!(
            with(json!({ FORWARD_METHOD: "foo" })),
            MethodWish::Bad(_)
        ));
    }
}
