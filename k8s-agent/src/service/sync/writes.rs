//! Patches of a Service's status, and what kube-apiserver's refusals mean.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Service;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::Api;
use kube::api::{Patch, PatchParams};
use runtime::clock;
use serde_json::Value;

use super::{Look, Looked};
use crate::apiserver::{self, Explained as _, timestamp};
use crate::events::Reason;
use crate::queue::Outcome;
use crate::service::backend::Backend;
use crate::service::intent::is_published;
use crate::service::status::{self, Trouble};
use crate::watch::Watched as _;

/// Name under which the fields that we write are managed.
const FIELD_MANAGER: &str = "k8s-agent";

/// Why a patch was not written.
pub(super) enum Setback {
    /// The Service is gone, which is no fault: there is nothing left to write.
    Gone,
    /// This process may not write any more.
    NotLeading,
    /// kube-apiserver refused or is away.
    Refused(String),
}

impl<C: Backend, K: Backend> Look<'_, C, K> {
    /// Writes a patch, if there is one. Answers the Service as it is then.
    pub(super) async fn write(
        &mut self,
        service: Arc<Service>,
        patch: Option<Value>,
    ) -> Result<Arc<Service>, Setback> {
        let Some(patch) = patch else { return Ok(service) };
        let api: Api<Service> = Api::namespaced(self.syncer.client.clone(), &self.key.namespace);
        let params = PatchParams {
            field_manager: Some(FIELD_MANAGER.to_owned()),
            ..PatchParams::default()
        };
        tracing::trace!(%patch, "writes");
        let patch = Patch::Strategic(patch);
        let written = self
            .syncer
            .leadership
            .hold(api.patch_status(&self.key.name, &params, &patch))
            .await;
        match written {
            Ok(Ok(mut written)) => {
                written.trim();
                self.record.wrote(&written, clock::now());
                Ok(Arc::new(written))
            }
            Ok(Err(error)) if apiserver::is_not_found(&error) => Err(Setback::Gone),
            Ok(Err(error)) => Err(Setback::Refused(error.explain("patch", "services/status"))),
            Err(_) => Err(Setback::NotLeading),
        }
    }

    /// What follows from a patch that was not written.
    pub(super) fn set_back(&mut self, service: &Service, setback: Setback) -> Looked {
        match setback {
            Setback::Gone | Setback::NotLeading => Outcome::Done.into(),
            Setback::Refused(text) => {
                if self.record.is_new_fault(&text, clock::now()) {
                    tracing::warn!(fault = %text, "could not be written");
                    self.tell(service, &Reason::SYNC_LOAD_BALANCER_FAILED, text);
                }
                Outcome::Failed.into()
            }
        }
    }

    /// Says in the status what is wrong, as well as that can be done.
    pub(super) async fn show_trouble(&mut self, service: &Service, trouble: &Trouble) {
        let patch = status::troubled(service, trouble, &now());
        if let Err(Setback::Refused(fault)) = self.write(Arc::new(service.clone()), patch).await {
            tracing::warn!(%fault, "the condition could not be written");
        }
    }

    /// The same, where clients have no address yet. A status that shows one stays: it still serves.
    pub(super) async fn show_trouble_if_new(&mut self, service: &Service, trouble: &Trouble) {
        if !is_published(service) {
            self.show_trouble(service, trouble).await;
        }
    }
}

/// The time, as statuses have it.
pub(super) fn now() -> Time {
    Time(timestamp())
}
