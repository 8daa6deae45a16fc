//! The reasons of findings, for the documentation.

/// Every reason with what it means, for the documentation.
pub const REASONS: &[(&str, &str)] = &[
    (
        "KEYS_REFUSED",
        "The API does not accept the keys or the signature.",
    ),
    (
        "API_UNREACHABLE",
        "The API does not answer, or its certificate is not trusted, or the address is another server's.",
    ),
    (
        "API_REFUSES",
        "The API answers with a refusal that no setting explains.",
    ),
    ("CERTIFICATE_NOT_VERIFIED", "`ssl-no-verify` is set."),
    ("NO_TLS", "The API is spoken to over plain HTTP."),
    (
        "CLOCK_OFF",
        "The clocks of the server and of the broker's machine differ by a minute or more.",
    ),
    (
        "RATE_LIMIT_HIT",
        "The API refused calls of this account within the last ten minutes because there were too many.",
    ),
    ("CERTIFICATE_OVER", "A certificate in use is not valid any more."),
    (
        "CERTIFICATE_SOON_OVER",
        "A certificate in use ends within two weeks.",
    ),
    ("CLUSTER_UID_MISSING", "Nobody says which cluster this is."),
    ("QUOTA_USED", "`max-public-ips` is reached."),
    ("QUOTA_NEARLY_USED", "Four fifths of `max-public-ips` are in use."),
    (
        "PROJECT_NOT_VISIBLE",
        "The keys' user is no member of the configured project.",
    ),
    (
        "PROJECT_NOT_ACTIVE",
        "The configured project is suspended or disabled.",
    ),
    (
        "ZONE_NOT_VISIBLE",
        "No visible zone has the configured name or id.",
    ),
    (
        "NO_MACHINES",
        "No visible machine is in the scope of the cluster.",
    ),
    (
        "NETWORK_NOT_VISIBLE",
        "No visible network has the configured name or id.",
    ),
    (
        "NETWORK_WITHOUT_LOAD_BALANCER",
        "Machines of the cluster are in a network that offers no load balancer.",
    ),
    (
        "RIGHT_MISSING",
        "The keys' role may not call commands that something needs.",
    ),
];
