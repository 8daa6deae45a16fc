//! The reason words that the broker says about load balancers, for the documentation. They are part of the contract: an agent writes
//! them into conditions and events, and people search for them.
//!
//! The words themselves stand where they are said. A test compares these tables with the sources, so that neither lacks one.

/// Notes: they become events of the Service and change nothing about what is done.
pub const NOTES: &[(&str, &str)] = &[
    (
        "AclFull",
        "The network ACL list has no number left before a rule that denies; traffic may be held back. Make room in the list.",
    ),
    (
        "AclKept",
        "Network ACL items stay although the Service leaves their list: they are marked for it under the UID of another cluster, or under none while somebody else has rules for the Service, too. Delete them by hand if they were the Service's.",
    ),
    (
        "AclWider",
        "A network ACL item that is not the cluster's lets in more than the Service wants.",
    ),
    (
        "AddressKept",
        "An address stays allocated although the Service is gone: nothing proves that the cluster acquired it, it was to be kept, somebody else uses it, another Service may be about to use it, or the rules on it are outside the cluster's fence or marked under another cluster's UID. Release it by hand if nobody needs it.",
    ),
    (
        "AddressNotObtained",
        "CloudStack refused several times to give an address. It is tried again.",
    ),
    (
        "AddressNotVisible",
        "The address of the Service's rules can't be seen with the broker's keys.",
    ),
    ("AddressPending", "CloudStack is still at work on the address."),
    (
        "AddressUnavailable",
        "The address that is asked for can't be had now; it is waited for, and what the Service has stays.",
    ),
    (
        "AssociateFailed",
        "CloudStack refused to give a certain address. Another one is tried, unless this one is asked for.",
    ),
    (
        "FirewallWider",
        "A firewall rule that is not the cluster's lets in more than the Service wants.",
    ),
    (
        "MachinesNotVisible",
        "Machines of nodes can't be seen with the broker's keys, or are outside the cluster's scope; they don't serve.",
    ),
    (
        "NetworkNotVisible",
        "The network of the Service's rules can't be seen with the broker's keys.",
    ),
    (
        "NoFreeAddress",
        "The zone has no free public address that the cluster may use. It is tried again.",
    ),
    (
        "NoNetwork",
        "No machine of a node is in a network that the cluster may use.",
    ),
    ("NoNodes", "No node may serve; the members stay as they are."),
    (
        "NodesOutsideNetwork",
        "Nodes have no NIC in the network of the load balancer; they don't serve.",
    ),
    (
        "NodesUnresolved",
        "It is not known yet which machines some nodes are; until it is, nobody is removed.",
    ),
    (
        "NothingVisible",
        "A deletion waits, since nothing of the account or project can be seen: that is what wrong keys look like.",
    ),
    (
        "OtherClusterMark",
        "Rules that serve the Service's address are marked for the Service, but under a UID that is not the cluster's. That is what a lost or changed UID looks like. If the UID was this cluster's, write it into `uid` of the cluster's section, behind the present one; otherwise delete the rules. Until then no other address is taken, and while nobody says a UID for the cluster the end of the Service waits, too.",
    ),
    (
        "OutsideFence",
        "Rules of an older controller, or rules whose mark names no cluster, serve the Service's address, and `networks` or `machines` of the cluster's section leave them out, so they are not taken over. Mend the section, or delete the rules; until then no other address is taken.",
    ),
    (
        "SourcesIgnored",
        "IPv6 networks in a list of sources are left out.",
    ),
    (
        "SourcesInFirewallOnly",
        "The list of sources is longer than a rule can hold, so the firewall alone holds it.",
    ),
];

/// Faults and waits: they become the reason of the Service's condition. The first words are those that a Service's author can mend.
pub const FAULTS: &[(&str, &str)] = &[
    ("ADDRESS_IS_IPV6", "The address that is asked for is IPv6."),
    (
        "ADDRESS_NOT_ALLOWED",
        "`allowed-addresses` of the broker's configuration leaves out the address that is asked for.",
    ),
    (
        "ADDRESS_NOT_SHARED",
        "Another Service has the address that is asked for, and `address-sharing` does not let them share it.",
    ),
    (
        "ADDRESS_NOT_USABLE",
        "The address that is asked for belongs elsewhere or has another use: another network, static NAT, source NAT of a VPC.",
    ),
    ("BAD_ADDRESS", "What is asked for is no IP address."),
    ("BAD_PORT", "A port is not between 1 and 65535."),
    ("BAD_SOURCES", "A list of sources can't be read."),
    (
        "NETWORK_AMBIGUOUS",
        "Several networks have the name that is asked for; ask for an id.",
    ),
    (
        "NETWORK_NOT_ALLOWED",
        "`networks` of the broker's configuration leaves out the network that is asked for.",
    ),
    (
        "NETWORK_NOT_FOUND",
        "The network that is asked for can't be seen with the broker's keys.",
    ),
    (
        "NODE_PORT_OUT_OF_RANGE",
        "A node port is outside `member-ports` of the broker's configuration.",
    ),
    (
        "NO_LOAD_BALANCER_IN_NETWORK",
        "The network has no load balancing service.",
    ),
    (
        "NO_NODE_PORT",
        "A port has no node port; set `allocateLoadBalancerNodePorts`.",
    ),
    ("NO_PORTS", "The Service has no port."),
    ("PORT_53_TAKEN", "Port 53 of this address is the router's own."),
    (
        "PORT_8081_TAKEN",
        "Port 8081 is that of the router's statistics; no rule can have it.",
    ),
    (
        "PORT_TAKEN",
        "A rule of somebody else has this port of the address.",
    ),
    ("PORT_TWICE", "The Service has the same port twice."),
    (
        "REPLACES_ALL_MEMBERS",
        "All members would be replaced while they run and no node claims them: a restored copy of the cluster may serve here. Stop those machines, or set the annotation `…-accept-replace` to the id in the message.",
    ),
    ("SCTP_NOT_SUPPORTED", "CloudStack has no SCTP."),
    (
        "SOURCES_NOT_ENFORCEABLE",
        "Nothing in the network can hold a list of sources: it has no firewall, and rules hold lists only from CloudStack 4.18 on.",
    ),
    (
        "SOURCES_TOO_LONG",
        "The list of sources is longer than 255 characters, and the network has no firewall to hold it; merge networks.",
    ),
    (
        "TCP_AND_UDP_ON_ONE_PORT",
        "TCP and UDP can't have the same port of one address.",
    ),
    (
        "TOO_MANY_PORTS",
        "The Service has more ports than the broker serves.",
    ),
    (
        "TOO_MANY_SOURCES",
        "The list of sources has more networks than the broker takes.",
    ),
    (
        "UDP_NOT_SUPPORTED",
        "The network's load balancer does not serve UDP.",
    ),
    (
        "UNKNOWN_ALGORITHM",
        "The algorithm is not one that CloudStack has.",
    ),
    ("UNKNOWN_PROTOCOL", "The protocol is none that is known."),
    // Capacity and limits.
    ("ADDRESS_NOT_OBTAINED", "See `AddressNotObtained`."),
    ("ADDRESS_UNAVAILABLE", "See `AddressUnavailable`."),
    (
        "LIMIT_OF_CLOUD",
        "A limit of the CloudStack account or project is reached.",
    ),
    (
        "MAX_PUBLIC_IPS",
        "`max-public-ips` of the broker's configuration is reached.",
    ),
    (
        "NO_FREE_ADDRESS",
        "See `NoFreeAddress`, or CloudStack says that it has no capacity.",
    ),
    // What is seen, or not.
    ("ADDRESS_NOT_VISIBLE", "See `AddressNotVisible`."),
    ("NETWORK_NOT_VISIBLE", "See `NetworkNotVisible`."),
    ("NOTHING_VISIBLE", "See `NothingVisible`."),
    ("NO_NETWORK", "See `NoNetwork`."),
    ("OTHER_CLUSTER_MARK", "See `OtherClusterMark`."),
    ("OUTSIDE_FENCE", "See `OutsideFence`."),
    (
        "SCOPE_CHANGED",
        "A deletion waits: neither the published address nor anything else of the cluster is visible. Check whether keys or project of the broker's configuration were changed.",
    ),
    // CloudStack's answers.
    ("BAD_CREDENTIALS", "CloudStack does not accept the keys."),
    (
        "CLOUD_BUSY",
        "CloudStack is busy or refuses calls because there are too many. It is tried again.",
    ),
    (
        "CLOUD_UNREACHABLE",
        "CloudStack's API does not answer. Nothing is changed meanwhile.",
    ),
    (
        "CONFLICT",
        "CloudStack refuses because of another object, which the message names.",
    ),
    (
        "DENIED_BY_CLOUD",
        "The key's role lacks a command: see the page of permissions.",
    ),
    ("GONE", "An object was removed meanwhile. It is looked again."),
    (
        "LIST_NOT_COMPLETE",
        "A list changed each time that it was read; it is read again.",
    ),
    (
        "REFUSED_BY_CLOUD",
        "CloudStack refuses a value; the message says which.",
    ),
    (
        "STEP_FAILED",
        "A step failed in CloudStack; the message says which and why. It is tried again.",
    ),
    // Work under way.
    ("ADDRESS_PENDING", "See `AddressPending`."),
    ("CALL_RUNNING", "Another call works on the same load balancer."),
    ("JOB_RUNNING", "A job of CloudStack runs; it is waited for."),
    (
        "TIME_UP",
        "The call's time ended between two steps; it goes on with the next.",
    ),
    (
        "TOO_MANY_CALLS",
        "The cluster asks the broker too often; it is asked again a little later.",
    ),
    // Between agent and broker.
    (
        "BAD_CHARACTERS",
        "A name or text of the message has characters that can't be in it.",
    ),
    (
        "BAD_CLUSTER_UID",
        "The agent names its cluster by something that is no UID.",
    ),
    (
        "BAD_MACHINE_ID",
        "A provider id holds no machine id of CloudStack.",
    ),
    (
        "BAD_PAGE_TOKEN",
        "A list is continued with a token that this broker did not give.",
    ),
    ("BAD_SERVICE_UID", "A Service's UID is no UUID."),
    ("CALLER_GONE", "The agent went away during the call."),
    (
        "CALL_LOST",
        "A fault of the broker: the call ended without an answer. It is tried again.",
    ),
    (
        "FENCED",
        "Another agent has the lease by now; this one must not write.",
    ),
    (
        "KEYS_CHANGED",
        "The broker's keys were changed during the call; it is tried again.",
    ),
    ("MISPLACED_END", "A fault of the broker."),
    ("MISSING_FIELD", "A message of the agent lacks a field."),
    (
        "NO_CLUSTER_NAME",
        "The names of the Leaseweb line need `--cluster-name`.",
    ),
    (
        "NO_FENCE",
        "A call that writes does not say which lease it holds.",
    ),
    (
        "OTHER_CLUSTER_UID",
        "The cluster has another UID than the broker's configuration says; list all its UIDs in `uid`, the present one first.",
    ),
    (
        "PLAN_DOES_NOT_SETTLE",
        "A fault of the broker, or somebody else changes the same rules all the time.",
    ),
    ("PLAN_WITHOUT_END", "A fault of the broker."),
    (
        "STRANGER",
        "The broker's configuration has no section for this agent.",
    ),
    (
        "SUPERSEDED",
        "A deletion of the same load balancer took the place of the call.",
    ),
    ("TOO_LONG", "A text of the message is too long."),
    ("TOO_MANY_KEYS", "A look-up asks for too many nodes at once."),
    (
        "TOO_MANY_MEMBERS",
        "The load balancer would have more members than the broker takes.",
    ),
    (
        "TOO_MANY_PUBLISHED",
        "The Service's status shows more addresses than the broker takes.",
    ),
    (
        "UNKNOWN_DIALECT",
        "The agent asks for names of a kind that this broker does not know.",
    ),
];
