//! Who may call at all, before anything of a call is read: peers that stand for a tenant of the present configuration, and
//! whoever may open the Unix socket, since tools ask for health there also where no cluster is served.

use std::sync::Arc;
use std::time::Duration;

use proto::{Advice, Fault, FaultKind};
use runtime::link::{Authorizer, Peer};
use tonic::Status;

use crate::directory::Directory;
use crate::metrics::{Metrics, RpcLabels};

/// Name of what is counted for calls that are not let in.
const NOT_LET_IN: &str = "NotLetIn";

/// Lets tenants in.
pub struct Tenants {
    directory: Arc<Directory>,
    metrics: Metrics,
}

impl Tenants {
    /// The tenants of a directory.
    pub fn new(directory: Arc<Directory>, metrics: Metrics) -> Self {
        Self { directory, metrics }
    }

    fn refuse(&self, fault: Fault) -> Status {
        let labels = RpcLabels {
            call: NOT_LET_IN,
            outcome: fault.kind.word(),
        };
        self.metrics.rpc.served(labels, Duration::ZERO);
        tracing::debug!(reason = %fault.reason, %fault, "call not let in");
        fault.into()
    }
}

impl Authorizer for Tenants {
    fn identify(&self, peer: Option<&Peer>) -> Result<Arc<str>, Status> {
        if let Some(Peer::Unix { .. }) = peer {
            return Ok("the Unix socket".into());
        }
        let known = self.directory.identify(peer);
        let (identity, _) = known.map_err(|fault| self.refuse(fault))?;
        Ok(identity.cluster.as_str().into())
    }

    fn too_many_calls(&self, identity: &str) -> Status {
        let text = format!("{identity} has too many calls under way");
        let advice = Advice::After(Duration::from_secs(1));
        self.refuse(Fault::new(FaultKind::Busy, "TOO_MANY_CALLS", text).with_advice(advice))
    }
}
