use std::net::Ipv4Addr;

use rstest::rstest;
use serde_json::{Value, json};

use super::*;
use crate::service::choice::{CLOUD_CLASS, KEEPALIVED_CLASS};
use proto::v1::dialect::Kind;
use proto::v1::wish::Algorithm;
use proto::v1::wish_port::Protocol;

mod meanwhile;
mod ours;
mod refusals;
mod removal;
mod sources;
mod wish;

const NOW: &str = "2026-01-01T00:00:00Z";

fn rules(running: Running) -> Rules {
    Rules {
        running,
        dialect: Dialect {
            kind: Kind::Apache as i32,
            cluster_name: "kubernetes".to_owned(),
        },
    }
}

fn circumstances() -> Circumstances<'static> {
    Circumstances {
        keepalived_holds: Holds::No,
        keepalived_records: false,
        offer: Offer::Unknown,
        served_by: None,
        asked: false,
        was_foreign: false,
        behind_host_name: &[],
    }
}

/// A Service of type LoadBalancer with one TCP port, changed by `change`.
fn service(change: Value) -> Service {
    let mut value = json!({
        "metadata": {"uid": "769e278b-2454-4793-9a1f-6b9a47560490", "namespace": "default", "name": "web"},
        "spec": {
            "type": "LoadBalancer",
            "ipFamilies": ["IPv4"],
            "sessionAffinity": "None",
            "ports": [{"name": "http", "protocol": "TCP", "port": 80, "nodePort": 30080}],
        },
    });
    merge(&mut value, change);
    serde_json::from_value(value).unwrap()
}

fn merge(into: &mut Value, from: Value) {
    match (into, from) {
        (Value::Object(into), Value::Object(from)) => {
            for (key, value) in from {
                merge(into.entry(key).or_insert(Value::Null), value);
            }
        }
        (into, from) => *into = from,
    }
}

fn annotated(name: &str, value: &str) -> Value {
    json!({"metadata": {"annotations": {name: value}}})
}

fn cloud(service: &Service) -> Intent {
    of(service, &rules(Running::One(BackendName::Cloud)), circumstances())
}

fn keepalived(service: &Service) -> Intent {
    of(
        service,
        &rules(Running::One(BackendName::Keepalived)),
        circumstances(),
    )
}

fn ensured(intent: Intent) -> Wanted {
    let Intent::Ensure(wanted) = intent else {
        panic!("not ensured: {intent:?}")
    };
    *wanted
}

fn refused(intent: Intent) -> Vec<Problem> {
    refusal(intent).problems.first().to_vec()
}

fn refusal(intent: Intent) -> Refusal {
    let Intent::Refuse(refusal) = intent else {
        panic!("not refused: {intent:?}")
    };
    refusal
}
