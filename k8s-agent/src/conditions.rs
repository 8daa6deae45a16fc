//! The reasons that the agent itself gives in the condition `LoadBalancerReady`, for the documentation. The broker's are its own.

/// Every reason with what it means.
pub const CONDITIONS: &[(&str, &str)] = &[
    (
        "InvalidService",
        "The Service can't be served as it is written. The message names the field; it is looked at again when it changes.",
    ),
    (
        "BrokerUnreachable",
        "The broker does not answer. The agent goes on by itself when it does.",
    ),
    (
        "WaitingForBroker",
        "Which backend serves the Service depends on its network, and the broker has not told about the networks yet; or the keepalived backend has not read its ConfigMap yet.",
    ),
    (
        "BackendNotRunning",
        "The published address is of a backend that this agent does not run, and nothing is changed. Start the agent with a broker, or with a pool; or delete the Service and create it again.",
    ),
    (
        "IncompleteAnswer",
        "The broker's answer lacks what belongs to it: it is much older or newer than the agent.",
    ),
    (
        "ConfigMapMissing",
        "The ConfigMap of the keepalived backend does not exist, and may not be created.",
    ),
    (
        "ConfigMapForbidden",
        "The ServiceAccount may not read or write the ConfigMap.",
    ),
    (
        "ConfigMapRefused",
        "kube-apiserver refuses the ConfigMap as it would be: it is immutable, or too large.",
    ),
    (
        "ConfigMapConflict",
        "Others write the ConfigMap so often that no write of the agent got through. It is tried again.",
    ),
    (
        "KubeApiserverUnreachable",
        "kube-apiserver does not answer about the ConfigMap.",
    ),
    (
        "ServiceChanged",
        "The Service changed while an address was looked for. It is looked at again.",
    ),
];
