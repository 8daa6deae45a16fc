//! Keeps the ConfigMap right while nobody asks.

use futures::StreamExt as _;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::runtime::{WatchStreamExt as _, watcher};
use tokio_util::sync::CancellationToken;

use super::{Keepalived, PERIOD};
use crate::apiserver::Explained as _;

impl Keepalived {
    /// Keeps the ConfigMap right until `stop`: a pass at once, after every change by others, and once in a while.
    pub async fn keep(&self, stop: CancellationToken) {
        stop.run_until_cancelled(Box::pin(self.keep_for_ever())).await;
    }

    async fn keep_for_ever(&self) {
        let store = &self.shared.parts.store;
        let config = watcher::Config::default().fields(&format!("metadata.name={}", store.name()));
        let mut changes = std::pin::pin!(watcher(store.api(), config).default_backoff());
        let mut told = String::new();
        let mut said = |text: String| {
            if text != told {
                tracing::warn!(fault = %text, "the ConfigMap can't be kept right");
                told = text;
            }
        };
        loop {
            if let Err(fault) = self.pass_alone().await {
                said(fault.text);
            }
            loop {
                tokio::select! {
                    () = tokio::time::sleep(PERIOD) => break,
                    change = changes.next() => match change {
                        Some(Ok(event)) if self.is_news(&event) => break,
                        Some(Ok(_)) => {}
                        Some(Err(error)) => said(error.explain("watch", "configmaps")),
                        None => std::future::pending().await,
                    },
                }
            }
        }
    }

    fn is_news(&self, event: &watcher::Event<ConfigMap>) -> bool {
        let version = match event {
            watcher::Event::Apply(object) | watcher::Event::InitApply(object) => {
                object.metadata.resource_version.clone()
            }
            watcher::Event::Delete(_) => None,
            watcher::Event::Init | watcher::Event::InitDone => return false,
        };
        self.shared
            .known
            .lock()
            .as_ref()
            .is_none_or(|known| known.version != version)
    }
}
