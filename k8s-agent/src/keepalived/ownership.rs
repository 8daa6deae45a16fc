//! Which Services are served from the pools, and which the ConfigMap knows.
//!
//! Pure. With one backend every Service without a class, or with ours, is its own; with two, those that carry the record
//! of the choice. Whether a Service that asks may do so was decided before ([`crate::service::choice`]).

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Service;

use super::config_map::Observed;
use super::document;
use crate::service::annotations;
use crate::service::backend::BackendName;
use crate::service::choice::{Running, class_of};

/// Tells whose Service it is.
#[derive(Clone, Copy, Debug)]
pub struct Owner {
    /// Which backends run.
    pub running: Running,
}

impl Owner {
    /// Gives up its address: deleted, or no load balancer any more.
    pub fn is_leaving(self, service: &Service) -> bool {
        let kind = service.spec.as_ref().and_then(|spec| spec.type_.as_deref());
        service.metadata.deletion_timestamp.is_some() || kind != Some("LoadBalancer")
    }

    /// Keeps its address in a pass that it did not ask for.
    pub fn owns(self, service: &Service) -> bool {
        let is_ours_by_class =
            class_of(service).map(|class| self.running.of_class(class) == Some(BackendName::Keepalived));
        let served_by = service
            .metadata
            .annotations
            .as_ref()
            .and_then(annotations::served_by);
        match (self.running, is_ours_by_class) {
            (_, Some(false)) => false,
            (Running::One(only), _) => only == BackendName::Keepalived,
            (Running::Both, _) => served_by == Some(BackendName::Keepalived),
        }
    }
}

/// What the ConfigMap said last.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Known {
    /// Its version.
    pub version: Option<String>,
    by_uid: BTreeMap<String, String>,
    by_name: BTreeMap<(String, String), String>,
}

impl Known {
    /// Reads the records. A list that can't be read names nobody; the next pass rebuilds it.
    pub fn of(observed: &Observed) -> Self {
        let records = observed
            .records
            .as_deref()
            .and_then(|text| document::decode(text).ok())
            .unwrap_or_default();
        let named = records.iter().filter(|record| record.is_named());
        Self {
            version: observed.version.clone(),
            by_name: named
                .map(|record| ((record.namespace.clone(), record.name.clone()), record.ip.clone()))
                .collect(),
            by_uid: records
                .into_iter()
                .map(|record| (record.uid, record.ip))
                .collect(),
        }
    }

    /// The address recorded for a UID.
    pub fn address(&self, uid: &str) -> Option<String> {
        self.by_uid.get(uid).cloned()
    }

    /// Whether a record is for this Service, or for one of its name that is gone.
    pub fn names(&self, service: &Service) -> bool {
        let meta = &service.metadata;
        let name = (
            meta.namespace.clone().unwrap_or_default(),
            meta.name.clone().unwrap_or_default(),
        );
        meta.uid.as_ref().is_some_and(|uid| self.by_uid.contains_key(uid)) || self.by_name.contains_key(&name)
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::{Value, json};

    use super::*;
    use crate::service::annotations::SERVED_BY;
    use crate::service::choice::{CLOUD_CLASS, KEEPALIVED_CLASS};

    fn service(class: &Value, served_by: Option<&str>) -> Service {
        let annotations = served_by.map(|word| json!({ SERVED_BY: word }));
        serde_json::from_value(json!({
            "metadata": { "uid": "u", "namespace": "default", "name": "a", "annotations": annotations },
            "spec": { "type": "LoadBalancer", "loadBalancerClass": class },
        }))
        .unwrap()
    }

    const ALONE: Running = Running::One(BackendName::Keepalived);

    #[rstest]
    #[case::alone_without_class(ALONE, Value::Null, None, true)]
    #[case::alone_with_our_class(ALONE, json!(KEEPALIVED_CLASS), None, true)]
    #[case::alone_with_a_foreign_class(ALONE, json!("example.com/lb"), None, false)]
    #[case::alone_with_the_clouds_class(ALONE, json!(CLOUD_CLASS), None, false)]
    #[case::beside_the_cloud_without_a_record(Running::Both, Value::Null, None, false)]
    #[case::beside_the_cloud_with_a_record(Running::Both, Value::Null, Some("keepalived"), true)]
    #[case::beside_the_cloud_and_served_there(Running::Both, Value::Null, Some("cloud"), false)]
    fn a_service_is_ours_or_not(
        #[case] running: Running,
        #[case] class: Value,
        #[case] served_by: Option<&str>,
        #[case] expected: bool,
    ) {
        assert_eq!(Owner { running }.owns(&service(&class, served_by)), expected);
    }

    #[test]
    fn a_record_names_its_service_by_uid_and_one_of_the_same_name() {
        let records =
            r#"{"services":[{"uid":"gone","ip":"10.0.0.1","serviceNamespace":"default","serviceName":"a"}]}"#;
        let known = Known::of(&Observed {
            records: Some(records.into()),
            ..Observed::default()
        });
        assert!(known.names(&service(&Value::Null, None)));
        assert_eq!(known.address("gone").as_deref(), Some("10.0.0.1"));
        assert!(!Known::default().names(&service(&Value::Null, None)));
    }
}
