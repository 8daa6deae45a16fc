//! Which cluster this is: the UID of the namespace `kube-system`, which marks what belongs to the cluster.
//!
//! Decides when it is asked for. The first definite answer is waited for, since the broker must not hear of no UID while there may be one. A
//! refusal is definite: the work begins without a UID. But roles get mended, and what was marked with the UID is not the cluster's without it:
//! so it is asked for again, ever more seldom, and used from then on.

use std::time::Duration;

use k8s_openapi::api::core::v1::Namespace;
use kube::{Api, ResourceExt as _};
use runtime::health::Gate;

use crate::apiserver::{self, Explained as _};
use crate::queue::Backoff;

/// Wait between two attempts while kube-apiserver is away.
const RETRY: Duration = Duration::from_secs(2);
/// The same after it refused.
const AGAIN: Backoff = Backoff {
    first: Duration::from_secs(1),
    longest: Duration::from_mins(5),
};
/// The namespace whose UID names the cluster.
const NAMESPACE: &str = "kube-system";

/// Why there is no UID.
enum Unknown {
    /// kube-apiserver says so.
    Refused(String),
    /// It is away.
    Away(String),
}

async fn ask(namespaces: &Api<Namespace>) -> Result<String, Unknown> {
    match namespaces.get(NAMESPACE).await {
        Ok(namespace) => namespace
            .uid()
            .filter(|uid| !uid.is_empty())
            .ok_or_else(|| Unknown::Refused("the namespace kube-system has no UID".to_owned())),
        Err(error) => {
            let fault = error.explain("get", "namespaces/kube-system");
            if apiserver::is_forbidden(&error) || apiserver::is_not_found(&error) {
                Err(Unknown::Refused(fault))
            } else {
                Err(Unknown::Away(fault))
            }
        }
    }
}

/// The UID of this cluster; nothing if it may not be read. Waits for kube-apiserver.
pub async fn uid(client: &kube::Client, ready: &Gate) -> Option<String> {
    let namespaces = Api::all(client.clone());
    let mut told = String::new();
    loop {
        let fault = match ask(&namespaces).await {
            Ok(uid) => {
                ready.open();
                return Some(uid);
            }
            Err(Unknown::Refused(fault)) => {
                ready.open();
                tracing::warn!(
                    %fault,
                    "the cluster's UID is unknown, so the broker's configuration should name one; it is asked for again"
                );
                return None;
            }
            Err(Unknown::Away(fault)) => fault,
        };
        ready.close(fault.clone());
        if fault != told {
            tracing::warn!(%fault, "waiting for kube-apiserver");
            told = fault;
        }
        tokio::time::sleep(RETRY).await;
    }
}

/// The UID of a cluster whose [`uid`] was not to be had: asks until it is. What hinders was told by then.
pub async fn late_uid(client: &kube::Client) -> String {
    let namespaces = Api::all(client.clone());
    let mut failures = 0_u32;
    loop {
        failures = failures.saturating_add(1);
        tokio::time::sleep(AGAIN.after(failures)).await;
        if let Ok(uid) = ask(&namespaces).await {
            tracing::info!(%uid, "the cluster's UID is known now");
            return uid;
        }
    }
}
