//! Reads and writes of the one ConfigMap, and what kube-apiserver's refusals mean for the Services that wait.
//!
//! Decides nothing about content. A write carries the version that was read; somebody else's write in between comes back
//! as [`StoreError::Stale`], and the caller looks again.

use std::sync::Arc;

use k8s_openapi::api::core::v1::{ConfigMap, Service};
use kube::api::{Api, ListParams, Patch as Body, PatchParams, PostParams};
use kube::{Client, Resource as _};
use proto::{Advice, Fault, FaultKind};

use super::config_map::{Observed, Patch};
use crate::apiserver::{self, Explained as _};
use crate::watch::Watched as _;

/// Name under which the fields that we write are managed.
const FIELD_MANAGER: &str = "k8s-agent";

/// Why a write did not happen.
#[derive(Debug)]
pub enum StoreError {
    /// The ConfigMap is not what was read: changed, deleted or created meanwhile.
    Stale,
    /// It can't be written.
    Refused(Fault),
}

/// The ConfigMap in kube-apiserver.
#[derive(Clone)]
pub struct Store {
    client: Client,
    namespace: String,
    name: String,
}

impl Store {
    /// The ConfigMap of this name.
    pub fn new(client: Client, namespace: &str, name: &str) -> Self {
        Self {
            client,
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        }
    }

    /// Access to the ConfigMap.
    pub fn api(&self) -> Api<ConfigMap> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    fn resource(&self) -> String {
        format!("{}/{} in {}", ConfigMap::plural(&()), self.name, self.namespace)
    }

    /// What stands there now; without a version if there is none.
    pub async fn read(&self) -> Result<Observed, Fault> {
        match self.api().get(&self.name).await {
            Ok(found) => Ok(Observed::of(&found)),
            Err(error) if apiserver::is_not_found(&error) => Ok(Observed::default()),
            Err(error) => Err(self.fault(&error, "get")),
        }
    }

    /// Creates it without content: kube-keepalived-vip notices changes only.
    pub async fn create(&self) -> Result<(), StoreError> {
        let mut object = ConfigMap::default();
        object.metadata.name = Some(self.name.clone());
        object.metadata.namespace = Some(self.namespace.clone());
        let params = PostParams {
            field_manager: Some(FIELD_MANAGER.to_owned()),
            ..PostParams::default()
        };
        match self.api().create(&params, &object).await {
            Ok(_) => Ok(()),
            Err(error) if apiserver::is_conflict(&error) => Err(StoreError::Stale),
            Err(error) => Err(StoreError::Refused(self.fault(&error, "create"))),
        }
    }

    /// Writes a difference on top of what was read.
    pub async fn write(&self, patch: &Patch) -> Result<Observed, StoreError> {
        let params = PatchParams {
            field_manager: Some(FIELD_MANAGER.to_owned()),
            ..PatchParams::default()
        };
        match self
            .api()
            .patch(&self.name, &params, &Body::Merge(patch.body()))
            .await
        {
            Ok(written) => Ok(Observed::of(&written)),
            Err(error) if apiserver::is_conflict(&error) || apiserver::is_not_found(&error) => {
                Err(StoreError::Stale)
            }
            Err(error) => Err(StoreError::Refused(self.fault(&error, "patch"))),
        }
    }

    /// All Services as they are now, not as a watch saw them. In pages as small as those of the watch: a page is in memory as a whole before
    /// anything of it is dropped.
    pub async fn services(&self) -> Result<Vec<Arc<Service>>, Fault> {
        let api: Api<Service> = Api::all(self.client.clone());
        let mut params = ListParams::default().limit(Service::PAGE);
        let mut services = Vec::new();
        loop {
            let page = api.list(&params).await;
            let page = page.map_err(|error| fault(&error, "list", "services"))?;
            services.extend(page.items.into_iter().map(|mut service| {
                service.trim();
                Arc::new(service)
            }));
            match page.metadata.continue_ {
                Some(token) if !token.is_empty() => params.continue_token = Some(token),
                Some(_) | None => return Ok(services),
            }
        }
    }

    fn fault(&self, error: &kube::Error, verb: &str) -> Fault {
        fault(error, verb, &self.resource())
    }
}

fn fault(error: &kube::Error, verb: &str, resource: &str) -> Fault {
    let text = error.explain(verb, resource);
    match apiserver::code(error) {
        Some(401 | 403) => Fault::new(FaultKind::Denied, "ConfigMapForbidden", text),
        // The object as it would be is not legal: it is immutable, or too large. Only a person can mend that.
        Some(400 | 413 | 422) => {
            Fault::new(FaultKind::Invalid, "ConfigMapRefused", text).with_advice(Advice::BackOff)
        }
        Some(404) => Fault::new(FaultKind::NotFound, "ConfigMapMissing", text),
        Some(_) => Fault::new(FaultKind::Internal, "ConfigMapRefused", text),
        None => Fault::new(FaultKind::Unreachable, "KubeApiserverUnreachable", text),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use http::{Request, Response};
    use kube::client::Body;
    use serde_json::json;

    use super::*;

    #[tokio::test]
    async fn services_are_listed_page_by_page() {
        let (answers, mut asked) = tower_test::mock::pair::<Request<Body>, Response<Body>>();
        let store = Store::new(Client::new(answers, "default"), "kube-system", "vips");
        let pages = async {
            for (name, next) in [("a", "more"), ("b", "")] {
                let (request, answer) = asked.next_request().await.unwrap();
                let uri = request.uri().to_string();
                assert!(uri.contains("limit=10"), "{uri}");
                assert_eq!(uri.contains("continue=more"), name == "b", "{uri}");
                let page = json!({
                    "apiVersion": "v1", "kind": "ServiceList", "metadata": {"continue": next},
                    "items": [{"metadata": {"namespace": "default", "name": name, "annotations": {"example/a": "b"}}}],
                });
                answer.send_response(Response::new(Body::from(page.to_string().into_bytes())));
            }
        };
        let (services, ()) = tokio::join!(store.services(), pages);
        let services = services.unwrap();
        let names: Vec<_> = services
            .iter()
            .filter_map(|service| service.metadata.name.as_deref())
            .collect();
        assert_eq!(names, ["a", "b"]);
        let kept = services
            .iter()
            .filter_map(|service| service.metadata.annotations.as_ref());
        assert_eq!(kept.map(BTreeMap::len).sum::<usize>(), 0, "what nobody reads");
    }
}
