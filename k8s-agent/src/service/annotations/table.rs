//! The table itself.

use super::{
    ACCEPT_REPLACE, ADDRESS, ADDRESS_POOL, ALGORITHM, BACKEND, FORWARD_METHOD, HOSTNAME, ID, IP_ASSOCIATED,
    KEEP_IP, NETWORK, NETWORK_ID, PROXY_PROTOCOL, SERVED_BY, SHARING_KEY, SOURCE_CIDRS, SOURCE_RANGES,
    STICKY_METHOD, STICKY_PARAM,
};

/// Who writes an annotation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// People do.
    Input,
    /// The controller does; what people write there is overwritten and never trusted.
    Output,
    /// It is known from elsewhere and has no effect.
    Ignored,
}

/// What kind of value an annotation takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// `true` or `false`.
    Boolean,
    /// Any text.
    Text,
    /// A host name.
    HostName,
    /// An IPv4 address.
    Address,
    /// Networks in CIDR notation with commas between them.
    Networks,
    /// One of these words.
    Word(&'static [&'static str]),
}

/// One annotation.
#[derive(Clone, Copy, Debug)]
pub struct Annotation {
    /// Its full name.
    pub name: &'static str,
    /// Who writes it.
    pub direction: Direction,
    /// What it takes.
    pub kind: Kind,
    /// What holds without it.
    pub default: &'static str,
    /// The backends that read it.
    pub backends: &'static str,
    /// What it does.
    pub effect: &'static str,
    /// What happens when it changes on a live Service.
    pub change: &'static str,
    /// A value for the example; empty for none.
    pub example: &'static str,
}

impl Annotation {
    /// The words that it takes.
    pub fn words(&self) -> &'static [&'static str] {
        match self.kind {
            Kind::Word(words) => words,
            Kind::Boolean => &["true", "false"],
            Kind::Text | Kind::HostName | Kind::Address | Kind::Networks => &[],
        }
    }
}

const NOT_SET: &str = "not set";
const OUTPUT: &str = "Written after the fact. An edit by hand has no effect and is corrected.";

/// Every annotation of a Service that the agent knows, in the order of the reference.
pub const TABLE: &[Annotation] = &[
    Annotation {
        name: PROXY_PROTOCOL,
        direction: Direction::Input,
        kind: Kind::Boolean,
        default: "false",
        backends: "cloud",
        effect: "Sends the PROXY protocol header, version 1, to the members of TCP ports, so that they learn the client's \
                 address. The status then says `ipMode: Proxy`. UDP ports of the Service are not touched by it. The \
                 program behind the port must expect the header. Any other word than `true` and `false` is refused.",
        change: "In place: the rule, its address and its firewall rule stay.",
        example: "true",
    },
    Annotation {
        name: HOSTNAME,
        direction: Direction::Input,
        kind: Kind::HostName,
        default: "not set: the status shows the address",
        backends: "cloud, keepalived",
        effect: "The status shows this host name and no address, so that clients inside the cluster don't take a short cut \
                 past the load balancer. Its DNS record is yours to keep.",
        change: "Only the status changes.",
        example: "lb.example.com",
    },
    Annotation {
        name: SOURCE_CIDRS,
        direction: Direction::Input,
        kind: Kind::Networks,
        default: "not set: no restriction by this annotation",
        backends: "cloud",
        effect: "Lets in clients of these networks only, on every layer that filters: firewall and rule in isolated \
                 networks, rule in VPCs. Where `spec.loadBalancerSourceRanges` (or Kubernetes' own annotation) is set too, \
                 a client must be in both; if no client can be, the Service is refused. An empty value means no \
                 restriction, and an event says so. IPv6 networks are left out with an event, since addresses are IPv4. At most \
                 500 networks.",
        change: "In place from CloudStack 4.22 on; below it the rule is replaced, which interrupts the port briefly.",
        example: "192.0.2.0/24,198.51.100.7/32",
    },
    Annotation {
        name: ADDRESS,
        direction: Direction::Input,
        kind: Kind::Address,
        default: "not set: `spec.loadBalancerIP`, else any free address",
        backends: "cloud, keepalived",
        effect: "The address to use. Wins over `spec.loadBalancerIP`; an event says when it hides another one there. The \
                 controller never writes it.",
        change: "The Service moves: the new address serves and is published before the old one goes. Without a new wish \
                 the present address stays.",
        example: "203.0.113.7",
    },
    Annotation {
        name: KEEP_IP,
        direction: Direction::Input,
        kind: Kind::Boolean,
        default: "false",
        backends: "cloud",
        effect: "The address stays allocated when the Service is deleted, stops being a load balancer or takes another address. Any other word \
                 than `true` and `false` is refused; a Service that is deleted with such a word keeps its address.",
        change: "Counts when the Service goes, or takes another address.",
        example: "true",
    },
    Annotation {
        name: NETWORK,
        direction: Direction::Input,
        kind: Kind::Text,
        default: "the network of existing rules, else the one that most nodes share",
        backends: "cloud",
        effect: "Name or id of the network to balance in. Nodes outside it are left out, with an event.",
        change: "The load balancer is made in the new network before the old one goes.",
        example: "backend-tier",
    },
    Annotation {
        name: ALGORITHM,
        direction: Direction::Input,
        kind: Kind::Word(&["roundrobin", "source", "leastconn"]),
        default: "`source` with `spec.sessionAffinity: ClientIP`, else `roundrobin`",
        backends: "cloud",
        effect: "How connections are spread over the nodes. Only `source` goes together with \
                 `spec.sessionAffinity: ClientIP`.",
        change: "In place.",
        example: "leastconn",
    },
    Annotation {
        name: ACCEPT_REPLACE,
        direction: Direction::Input,
        kind: Kind::Text,
        default: NOT_SET,
        backends: "cloud",
        effect: "Id of a plan that would replace all members although they run and no node claims them. Such a plan is \
                 refused, because the cluster may be a restored copy of the one that is served; the event names the id.",
        change: "Counts once, for this plan.",
        example: "",
    },
    Annotation {
        name: BACKEND,
        direction: Direction::Input,
        kind: Kind::Word(&["cloud", "keepalived"]),
        default: "`cloud` where the network has a load balancer, else `keepalived`, if both run",
        backends: "cloud, keepalived",
        effect: "Which backend serves the Service. `spec.loadBalancerClass` (`cloudstack-load-balancer/cloud` or \
                 `cloudstack-load-balancer/keepalived`) wins over it.",
        change: "None while an address is published; an event says so.",
        example: "keepalived",
    },
    Annotation {
        name: SOURCE_RANGES,
        direction: Direction::Input,
        kind: Kind::Networks,
        default: "no restriction by this annotation",
        backends: "cloud",
        effect: "Kubernetes' own annotation, read where `spec.loadBalancerSourceRanges` is empty. At most 500 networks.",
        change: "As with the field.",
        example: "192.0.2.0/24",
    },
    Annotation {
        name: FORWARD_METHOD,
        direction: Direction::Input,
        kind: Kind::Word(&["NAT", "DR", "PROXY", "VIP"]),
        default: "what the process was started with",
        backends: "keepalived",
        effect: "How keepalived forwards. `VIP` announces the address and leaves forwarding to the nodes.",
        change: "The entry of the Service is rewritten.",
        example: "DR",
    },
    Annotation {
        name: ADDRESS_POOL,
        direction: Direction::Input,
        kind: Kind::Text,
        default: "the best pool that serves the Service by itself",
        backends: "keepalived",
        effect: "The pool that the address is taken from; the only way into a pool without automatic assignment.",
        change: "None while the Service has an address.",
        example: "public",
    },
    Annotation {
        name: SHARING_KEY,
        direction: Direction::Input,
        kind: Kind::Text,
        default: "no sharing",
        backends: "keepalived",
        effect: "Services with the same key may share an address, if they have no port in common and all use the \
                 forward method `VIP`.",
        change: "None while the Service has an address.",
        example: "front",
    },
    Annotation {
        name: ID,
        direction: Direction::Output,
        kind: Kind::Text,
        default: NOT_SET,
        backends: "cloud",
        effect: "Id of the public address, in spite of its name. Removed when the Service stops being a load balancer.",
        change: OUTPUT,
        example: "",
    },
    Annotation {
        name: NETWORK_ID,
        direction: Direction::Output,
        kind: Kind::Text,
        default: NOT_SET,
        backends: "cloud",
        effect: "Id of the network. Removed when the Service stops being a load balancer.",
        change: OUTPUT,
        example: "",
    },
    Annotation {
        name: IP_ASSOCIATED,
        direction: Direction::Output,
        kind: Kind::Boolean,
        default: NOT_SET,
        backends: "cloud",
        effect: "`true` while the cluster owns the address and will release it. Kept for the controllers that decide by it; \
                 this one asks the cloud, so a forged value releases nothing. Removed when the Service stops being a load \
                 balancer.",
        change: OUTPUT,
        example: "",
    },
    Annotation {
        name: SERVED_BY,
        direction: Direction::Output,
        kind: Kind::Word(&["cloud", "keepalived"]),
        default: NOT_SET,
        backends: "cloud, keepalived",
        effect: "Which backend serves the Service. Only written where both run, and read only after a restart.",
        change: OUTPUT,
        example: "",
    },
    Annotation {
        name: STICKY_METHOD,
        direction: Direction::Ignored,
        kind: Kind::Text,
        default: NOT_SET,
        backends: "none",
        effect: "Known from a proposal to the Apache controller. Has no effect, and an event says so; \
                 `spec.sessionAffinity: ClientIP` keeps a client with one node.",
        change: "None.",
        example: "",
    },
    Annotation {
        name: STICKY_PARAM,
        direction: Direction::Ignored,
        kind: Kind::Text,
        default: NOT_SET,
        backends: "none",
        effect: "Belongs to the annotation before it. Has no effect, and an event says so.",
        change: "None.",
        example: "",
    },
];
