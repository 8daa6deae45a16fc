//! What each metric is counted by.

use prometheus_client::encoding::EncodeLabelSet;

/// Label set of everything that belongs to one named thing.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct Named {
    pub(super) name: &'static str,
}

/// Labels of a controller that runs.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct Managed {
    pub(super) name: &'static str,
    pub(super) manager: &'static str,
}

/// Labels of the lease.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct LeaseName {
    pub(super) name: String,
}

/// Labels of a request to kube-apiserver.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct ApiRequest {
    pub(super) code: String,
    pub(super) method: String,
    pub(super) host: String,
}

/// Labels of the time that a request to kube-apiserver took.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct ApiVerb {
    pub(super) verb: String,
    pub(super) host: String,
}

/// Labels of a call to the broker.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct BrokerCall {
    pub(super) call: &'static str,
    pub(super) outcome: &'static str,
}

/// Labels of an operation on a load balancer.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct Operation {
    pub(super) operation: &'static str,
    pub(super) outcome: &'static str,
}

/// Where the answer about a node came from.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct Path {
    pub(super) path: &'static str,
}

/// What is running.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct Build {
    pub(super) git_version: &'static str,
}
