//! Tables for the pure rules: whose is what, where is balanced, who is a member, what filters.

use std::collections::BTreeSet;

use rstest::rstest;

use super::features::Features;
use super::marks::AddressWord;
use super::members::WantedMembers;
use super::names::Names;
use super::network::{Filter, check, choose, filter, may_use};
use super::observation::{Change, JobView, Observation};
use super::ownership::{Claim, Identity, Proof, Survey, job_id, jobs};
use super::wish::{ServiceRef, ServiceUid, Wish};
use crate::cloudstack::types::Entity;
use crate::cloudstack::types::{
    AddressId, Fields, LoadBalancerRule, Machine, MachineId, Network, PublicIpAddress, RuleState, Timestamp,
};
use crate::tenant::{ClusterUid, ClusterUids, NameOrId, Policy, Scope};
use proto::v1;
use serde_json::{Value, json};

mod members;
mod network;
mod observation;
mod ownership;

const UID: &str = "0f1e2d3c-4b5a-6978-8796-a5b4c3d2e1f0";
const NAME: &str = "a0f1e2d3c4b5a69788796a5b4c3d2e1f-tcp-80";

fn identity(uids: &[&str], take_over: bool) -> Identity {
    let service = ServiceRef {
        uid: ServiceUid::parse(UID).unwrap(),
        namespace: "shop".to_owned(),
        name: "web".to_owned(),
    };
    Identity {
        names: Names::of(&service, "kubernetes"),
        service,
        uids: ClusterUids::configured(uids.iter().filter_map(|uid| ClusterUid::new(uid)).collect()),
        take_over,
        fence: Scope::default(),
    }
}

fn entity<T: Entity>(value: &Value) -> T {
    T::parse(Fields::of(value)).unwrap()
}

fn rule(id: &str, name: &str, description: &str, address: &str) -> LoadBalancerRule {
    entity(&json!({
        "id": id, "name": name, "description": description, "publicipid": address, "publicip": "192.0.2.7",
        "publicport": "80", "privateport": "30080", "algorithm": "roundrobin", "protocol": "tcp",
        "networkid": "net", "state": "Active",
    }))
}

fn address(id: &str, allocated: Option<&str>) -> PublicIpAddress {
    entity(&json!({
        "id": id, "ipaddress": "192.0.2.7", "state": "Allocated", "allocated": allocated, "associatednetworkid": "net",
    }))
}

fn network(value: &Value) -> Network {
    let mut all = json!({ "id": "net", "name": "k8s", "type": "Isolated", "state": "Implemented" });
    for (key, value) in value.as_object().unwrap() {
        all[key] = value.clone();
    }
    entity(&all)
}

fn machine(id: &str, networks: &[(&str, bool)], state: &str) -> Machine {
    let nics: Vec<Value> = networks
        .iter()
        .map(|(id, default)| json!({ "networkid": id, "isdefault": default }))
        .collect();
    entity(&json!({ "id": id, "name": id, "state": state, "nic": nics }))
}

fn seen() -> Observation {
    Observation::empty(
        Timestamp::parse("2031-05-01T10:20:30+0000").unwrap(),
        Features::NEWEST,
    )
}

fn wish(machines: &[&str], edit: impl FnOnce(&mut v1::Wish)) -> Wish {
    let mut wish = v1::Wish {
        ports: vec![v1::WishPort {
            name: "http".to_owned(),
            protocol: v1::wish_port::Protocol::Tcp.into(),
            port: 80,
            node_port: 30080,
            proxy_protocol: false,
        }],
        members: machines
            .iter()
            .map(|id| v1::WishMember {
                node_name: (*id).to_owned(),
                machine: Some(v1::wish_member::Machine::MachineId((*id).to_owned())),
            })
            .collect(),
        ..v1::Wish::default()
    };
    edit(&mut wish);
    Wish::from_proto(Some(&wish), &Policy::default()).unwrap().0
}

fn mark(cluster: &str, service: &str) -> String {
    format!("kcs1 cluster={cluster} service={service} address=own src=2ac1d1e4")
}
