//! The ConfigMap that the consumer reads: what was observed, and the patch that changes it.
//!
//! Decides which keys are ours (the addresses of the records as read) and what a patch contains: only keys and
//! annotations of ours that differ, and the version that was read. Leaves every choice of content to
//! [`super::allocation`]. Fact relied on: a merge patch that carries `resourceVersion` is refused with a conflict
//! when somebody else wrote in between.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::ConfigMap;
use serde_json::{Map, Value, json};

use super::document::{self, Record, State};

/// The record list, in the place where the first program keeps it.
pub const RECORDS: &str = "k8s.co/cloud-provider-config";
/// Our own state beside it.
pub const STATE: &str = "k8s-agent/keepalived-state";

/// A ConfigMap as it was read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Observed {
    /// Version for the optimistic lock; nothing when the ConfigMap does not exist.
    pub version: Option<String>,
    /// All entries.
    pub data: BTreeMap<String, String>,
    /// Text of the record list, if there is one.
    pub records: Option<String>,
    /// Text of our own state, if there is one.
    pub state: Option<String>,
}

impl Observed {
    /// Reads an object of the API.
    pub fn of(object: &ConfigMap) -> Self {
        let annotation = |name: &str| object.metadata.annotations.as_ref()?.get(name).cloned();
        Self {
            version: object.metadata.resource_version.clone(),
            data: object.data.clone().unwrap_or_default(),
            records: annotation(RECORDS),
            state: annotation(STATE),
        }
    }
}

/// What the ConfigMap should say.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Content {
    /// All entries, foreign ones included.
    pub data: BTreeMap<String, String>,
    /// The record list.
    pub records: Vec<Record>,
    /// Our own state.
    pub state: State,
}

/// A change of one entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// The key.
    pub key: String,
    /// Its value before.
    pub from: Option<String>,
    /// Its value afterwards.
    pub to: Option<String>,
}

/// A write that is needed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Patch {
    /// The entries that change.
    pub changes: Vec<Change>,
    /// The new text of the record list, where its meaning changes.
    pub records: Option<String>,
    /// The new text of our state, where it changes.
    pub state: Option<String>,
    version: Option<String>,
}

impl Patch {
    /// The difference between what is and what should be, or nothing when there is none.
    pub fn between(observed: &Observed, content: &Content) -> Option<Self> {
        let keys: BTreeSet<&String> = observed.data.keys().chain(content.data.keys()).collect();
        let changes: Vec<Change> = keys
            .into_iter()
            .map(|key| Change {
                key: key.clone(),
                from: observed.data.get(key).cloned(),
                to: content.data.get(key).cloned(),
            })
            .filter(|change| change.from != change.to)
            .collect();
        let read = observed.records.as_deref().map(document::decode);
        let same_records = match &read {
            Some(Ok(records)) => *records == content.records,
            Some(Err(_)) => false,
            None => content.records.is_empty(),
        };
        let same_state = match &observed.state {
            Some(text) => *text == content.state.encode(),
            None => content.state == State::default(),
        };
        let patch = Self {
            changes,
            records: (!same_records).then(|| document::encode(&content.records)),
            state: (!same_state).then(|| content.state.encode()),
            version: observed.version.clone(),
        };
        let is_empty = patch.changes.is_empty() && patch.records.is_none() && patch.state.is_none();
        (!is_empty).then_some(patch)
    }

    /// The body of the merge patch.
    pub fn body(&self) -> Value {
        let texts = [(RECORDS, &self.records), (STATE, &self.state)];
        let annotations: Map<String, Value> = texts
            .into_iter()
            .filter_map(|(name, text)| Some((name.to_owned(), json!(text.as_ref()?))))
            .collect();
        let mut metadata = json!({ "annotations": annotations });
        if let (Some(version), Some(members)) = (&self.version, metadata.as_object_mut()) {
            members.insert("resourceVersion".to_owned(), json!(version));
        }
        let data: Map<String, Value> = self
            .changes
            .iter()
            .map(|change| (change.key.clone(), json!(change.to)))
            .collect();
        json!({ "metadata": metadata, "data": data })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn observed() -> Observed {
        Observed {
            version: Some("7".into()),
            data: [("10.0.0.1", "default/a"), ("10.0.0.9", "")].map(|(k, v)| (k.into(), v.into())).into(),
            records: Some(r#"{ "services" : [ {"ip":"10.0.0.1","uid":"a","serviceName":"a","serviceNamespace":"default"} ] }"#.into()),
            state: None,
        }
    }

    fn content() -> Content {
        let records = document::decode(observed().records.as_deref().unwrap()).unwrap();
        Content {
            data: observed().data,
            records,
            state: State::default(),
        }
    }

    #[test]
    fn another_spelling_of_the_same_records_is_no_change() {
        assert_eq!(Patch::between(&observed(), &content()), None);
    }

    #[test]
    fn a_patch_holds_the_difference_and_the_version_only() {
        let mut wanted = content();
        wanted.data.remove("10.0.0.1");
        wanted.data.insert("10.0.0.4".into(), "default/a".into());
        let body = Patch::between(&observed(), &wanted).unwrap().body();
        let expected = json!({
            "metadata": { "annotations": {}, "resourceVersion": "7" },
            "data": { "10.0.0.1": null, "10.0.0.4": "default/a" },
        });
        assert_eq!(body, expected);
    }

    #[test]
    fn a_damaged_record_list_is_replaced() {
        let broken = Observed {
            records: Some("{".into()),
            ..observed()
        };
        let patch = Patch::between(&broken, &content()).unwrap();
        assert!(patch.changes.is_empty());
        assert_eq!(
            document::decode(&patch.records.unwrap()).unwrap(),
            content().records
        );
    }
}
