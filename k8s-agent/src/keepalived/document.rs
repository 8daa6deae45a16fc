//! The texts that stand in the ConfigMap: the list of records, one entry, our own state.
//!
//! Decides how they are read and written. Leaves to [`super::config_map`] where they stand and to
//! [`super::allocation`] what they should say. Facts relied on: the record list is JSON with one member `services`,
//! read with member names in any case, unknown members dropped; version 0.0.1 knew only `uid` and `ip`; an entry is
//! `NAMESPACE/NAME`, `NAMESPACE/NAME:METHOD` or empty.

use std::net::Ipv4Addr;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::address;
use super::method::Method;

/// One Service and its address, as both programs record it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Record {
    /// UID of the Service.
    pub uid: String,
    /// Its address, verbatim: what stands here is also the key of the entry.
    pub ip: String,
    /// Namespace of the Service; version 0.0.1 did not write it.
    #[serde(rename = "serviceNamespace")]
    pub namespace: String,
    /// Name of the Service; version 0.0.1 did not write it.
    #[serde(rename = "serviceName")]
    pub name: String,
    /// Forward method, verbatim; empty for none.
    #[serde(rename = "forwardMethod", skip_serializing_if = "String::is_empty")]
    pub method: String,
}

impl Record {
    /// The address, if it is canonical.
    pub fn address(&self) -> Option<Ipv4Addr> {
        address::canonical(&self.ip)
    }

    /// Whether the record says which Service it means other than by UID.
    pub fn is_named(&self) -> bool {
        !self.namespace.is_empty() && !self.name.is_empty()
    }

    /// The entry that the record asks for. An unknown method stands as it is: it was written by somebody before us,
    /// and who wrote it decides.
    pub fn entry(&self) -> String {
        match Method::parse(&self.method) {
            Ok(method) if method.is_vip() => String::new(),
            Ok(_) | Err(_) if self.method.is_empty() => format!("{}/{}", self.namespace, self.name),
            Ok(_) | Err(_) => format!("{}/{}:{}", self.namespace, self.name, self.method),
        }
    }
}

/// Why a record list can't be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Damaged(String);

/// Reads a record list as the first program did.
pub fn decode(text: &str) -> Result<Vec<Record>, Damaged> {
    let value: Value = serde_json::from_str(text).map_err(|error| Damaged(error.to_string()))?;
    let document = match value {
        Value::Null => return Ok(Vec::new()),
        Value::Object(members) => members,
        other @ (Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_)) => {
            return Err(Damaged(format!("an object is expected, not {}", kind(&other))));
        }
    };
    match member(&document, "services") {
        None | Some(Value::Null) => Ok(Vec::new()),
        Some(Value::Array(list)) => list.iter().map(decode_record).collect(),
        Some(other) => Err(Damaged(format!(
            "the member \"services\" should be a list, not {}",
            kind(other)
        ))),
    }
}

fn decode_record(value: &Value) -> Result<Record, Damaged> {
    let members = match value {
        Value::Null => return Ok(Record::default()),
        Value::Object(members) => members,
        other @ (Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_)) => {
            return Err(Damaged(format!(
                "a record should be an object, not {}",
                kind(other)
            )));
        }
    };
    let text = |name: &str| match member(members, name) {
        None | Some(Value::Null) => Ok(String::new()),
        Some(Value::String(text)) => Ok(text.clone()),
        Some(other) => Err(Damaged(format!(
            "the member \"{name}\" should be a text, not {}",
            kind(other)
        ))),
    };
    Ok(Record {
        uid: text("uid")?,
        ip: text("ip")?,
        namespace: text("serviceNamespace")?,
        name: text("serviceName")?,
        method: text("forwardMethod")?,
    })
}

/// A member by its exact name, else by its name in any case.
fn member<'a>(members: &'a Map<String, Value>, name: &str) -> Option<&'a Value> {
    let in_any_case = || {
        members
            .iter()
            .find(|(key, _)| key.eq_ignore_ascii_case(name))
            .map(|(_, value)| value)
    };
    members.get(name).or_else(in_any_case)
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a text",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}

/// Writes a record list: compact, members in the usual order.
pub fn encode(records: &[Record]) -> String {
    #[derive(Serialize)]
    struct Document<'a> {
        services: &'a [Record],
    }
    serde_json::to_string(&Document { services: records }).unwrap_or_default()
}

/// What an entry means to the consumer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Entry {
    /// The address is announced, nothing is forwarded.
    AddressOnly,
    /// The address leads to a Service.
    Service {
        /// Namespace of the Service.
        namespace: String,
        /// Name of the Service.
        name: String,
        /// Method as written; empty means NAT.
        method: String,
    },
    /// The consumer ignores the entry and withdraws the address.
    Ignored,
}

impl Entry {
    /// Reads an entry as the consumer does: the first line that has the form, greedy from the left.
    pub fn parse(value: &str) -> Self {
        if value.is_empty() {
            return Self::AddressOnly;
        }
        let lines = || value.split(['\n', '\r']);
        let with_method = lines().find_map(|line| {
            let slash = last_slash_before_colon(line)?;
            let (namespace, rest) = line.split_at_checked(slash)?;
            let (name, method) = rest.get(1..)?.rsplit_once(':')?;
            Some((namespace, name, method))
        });
        let plain = || {
            lines().find_map(|line| {
                let (namespace, name) = line.rsplit_once('/')?;
                Some((namespace, name, ""))
            })
        };
        match with_method.or_else(plain) {
            Some((namespace, name, method)) if consumer_accepts(method) => Self::Service {
                namespace: namespace.to_owned(),
                name: name.to_owned(),
                method: method.to_owned(),
            },
            Some(_) | None => Self::Ignored,
        }
    }

    /// Whether the entry leads to the Service of this name.
    pub fn names(&self, of_namespace: &str, of_name: &str) -> bool {
        matches!(self, Self::Service { namespace, name, .. } if namespace == of_namespace && name == of_name)
    }
}

/// Namespace and name that an entry carries, whatever its method is worth.
pub fn service_of_entry(value: &str) -> Option<(&str, &str)> {
    let service = value.split_once(':').map_or(value, |(service, _)| service);
    let (namespace, name) = service.split_once('/')?;
    (!namespace.is_empty() && !name.is_empty()).then_some((namespace, name))
}

/// In `A/B:C` with greedy parts, `A` ends at the last slash that still has a colon behind it.
fn last_slash_before_colon(line: &str) -> Option<usize> {
    let colon = line.rfind(':')?;
    line.get(..colon)?.rfind('/')
}

fn consumer_accepts(method: &str) -> bool {
    method.is_empty() || ["NAT", "DR", "PROXY"].iter().any(|known| method.contains(known))
}

/// What we remember beside the records, in an annotation of our own.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct State {
    /// Fingerprint of the ports of all recorded Services: the consumer does not watch Services, so a changed port
    /// must change the ConfigMap.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub ports: String,
    /// A record list that could not be read, kept for people.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub damaged: String,
}

impl State {
    /// Reads the annotation; a text that is not ours starts afresh, nothing that matters stands here.
    pub fn decode(text: &str) -> Self {
        serde_json::from_str(text).unwrap_or_default()
    }

    /// Writes the annotation.
    pub fn encode(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rstest::rstest;

    use super::*;

    fn service(namespace: &str, name: &str, method: &str) -> Entry {
        Entry::Service {
            namespace: namespace.into(),
            name: name.into(),
            method: method.into(),
        }
    }

    #[rstest]
    #[case::plain("ns/svc", service("ns", "svc", ""))]
    #[case::nat("ns/svc:NAT", service("ns", "svc", "NAT"))]
    #[case::direct("ns/svc:DR", service("ns", "svc", "DR"))]
    #[case::proxy("ns/svc:PROXY", service("ns", "svc", "PROXY"))]
    #[case::bare_colon("ns/svc:", service("ns", "svc", ""))]
    #[case::no_namespace("svc", Entry::Ignored)]
    #[case::no_namespace_with_method("svc:NAT", Entry::Ignored)]
    #[case::small("ns/svc:dr", Entry::Ignored)]
    #[case::tunnel("ns/svc:TUN", Entry::Ignored)]
    #[case::vip("ns/svc:VIP", Entry::Ignored)]
    #[case::with_slash("ns/svc:foo/bar", Entry::Ignored)]
    #[case::twice("ns/svc:NAT:DR", service("ns", "svc:NAT", "DR"))]
    #[case::contains("ns/svc:ADDRESS", service("ns", "svc", "ADDRESS"))]
    #[case::blank("ns/svc:DR ", service("ns", "svc", "DR "))]
    #[case::list("ns/svc:NAT,ns2/svc2", service("ns", "svc", "NAT,ns2/svc2"))]
    #[case::two("ns/a ns/b", service("ns/a ns", "b", ""))]
    #[case::two_lines("ns/a\nns/b", service("ns", "a", ""))]
    #[case::trailing_break("ns/svc\n", service("ns", "svc", ""))]
    #[case::leading_blank(" ns/svc", service(" ns", "svc", ""))]
    #[case::slash("/", service("", "", ""))]
    #[case::three_parts("a/b/c", service("a/b", "c", ""))]
    #[case::empty("", Entry::AddressOnly)]
    fn an_entry_is_read_as_the_consumer_reads_it(#[case] value: &str, #[case] expected: Entry) {
        assert_eq!(Entry::parse(value), expected);
    }

    #[rstest]
    #[case::null_list(r#"{"services":null}"#, 0)]
    #[case::empty_list(r#"{"services":[]}"#, 0)]
    #[case::nothing("{}", 0)]
    #[case::null("null", 0)]
    #[case::first_version(r#"{"services":[{"uid":"u","ip":"10.0.0.1"}]}"#, 1)]
    #[case::other_case(r#"{"Services":[{"UID":"u","Ip":"10.0.0.1"}]}"#, 1)]
    #[case::unknown_members(r#"{"services":[{"uid":"u","ip":"10.0.0.1","x":1}],"y":2}"#, 1)]
    fn a_record_list_is_read_as_the_first_program_reads_it(#[case] text: &str, #[case] records: usize) {
        let decoded = decode(text).unwrap();
        assert_eq!(decoded.len(), records);
        assert!(
            decoded
                .iter()
                .all(|record| record.uid == "u" && record.ip == "10.0.0.1" && !record.is_named())
        );
    }

    #[rstest]
    #[case::cut("{")]
    #[case::wrong_type(r#"{"services":{}}"#)]
    #[case::number(r#"{"services":[{"uid":1,"ip":"10.0.0.1"}]}"#)]
    #[case::text("\"services\"")]
    #[case::trailing(r#"{"services":[]} x"#)]
    fn a_damaged_record_list_is_an_error(#[case] text: &str) {
        assert!(decode(text).is_err());
    }

    #[test]
    fn records_are_written_in_the_usual_form() {
        let mut record = Record {
            uid: "u".into(),
            ip: "10.0.0.1".into(),
            namespace: "default".into(),
            name: "a".into(),
            method: String::new(),
        };
        let plain =
            r#"{"services":[{"uid":"u","ip":"10.0.0.1","serviceNamespace":"default","serviceName":"a"}]}"#;
        assert_eq!(encode(std::slice::from_ref(&record)), plain);
        record.method = "DR".into();
        assert!(encode(&[record]).ends_with(r#""serviceName":"a","forwardMethod":"DR"}]}"#));
        assert_eq!(encode(&[]), r#"{"services":[]}"#);
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_back(texts in prop::collection::vec((".*", ".*", ".*", ".*", ".*"), 0..5)) {
            let records: Vec<Record> = texts
                .into_iter()
                .map(|(uid, ip, namespace, name, method)| Record { uid, ip, namespace, name, method })
                .collect();
            prop_assert_eq!(decode(&encode(&records)).unwrap(), records);
        }

        #[test]
        fn an_entry_of_a_known_method_parses_back(namespace in "[a-z0-9][a-z0-9-]{0,20}", name in "[a-z][a-z0-9-]{0,20}", method in prop::sample::select(vec!["", "NAT", "DR", "PROXY"])) {
            let record = Record { namespace: namespace.clone(), name: name.clone(), method: method.into(), ..Record::default() };
            prop_assert_eq!(Entry::parse(&record.entry()), service(&namespace, &name, method));
        }
    }
}
