//! A ConfigMap, Services and nodes in memory, with the plan as the only one who writes.

use serde_json::{Value, json};

use super::super::super::claim::{Claim, Standing};
use super::super::super::config_map::{RECORDS, STATE};
use super::super::super::pool::{Habits, PoolSpec};
use super::super::*;
use crate::service::annotations::{ADDRESS, ADDRESS_POOL, FORWARD_METHOD, SHARING_KEY};

/// A Service in the making.
#[derive(Clone, Debug)]
pub(in crate::keepalived) struct Svc {
    object: Value,
    pub(in crate::keepalived) standing: Standing,
}

impl Svc {
    pub(in crate::keepalived) fn new(full_name: &str) -> Self {
        let (namespace, name) = full_name.split_once('/').unwrap_or(("default", full_name));
        let object = json!({
            "metadata": { "uid": format!("uid-{name}"), "namespace": namespace, "name": name, "annotations": {}, "labels": {} },
            "spec": { "type": "LoadBalancer", "ports": [{ "port": 80, "targetPort": 8080, "protocol": "TCP" }] },
        });
        Self {
            object,
            standing: Standing::Asked,
        }
    }

    fn set(mut self, path: &str, value: Value) -> Self {
        let mut at = &mut self.object;
        for part in path.split('.') {
            at = &mut at[part];
        }
        *at = value;
        self
    }

    fn annotated(mut self, name: &str, value: &str) -> Self {
        self.object["metadata"]["annotations"][name] = json!(value);
        self
    }

    pub(in crate::keepalived) fn uid(self, uid: &str) -> Self {
        self.set("metadata.uid", json!(uid))
    }

    pub(in crate::keepalived) fn created(self, second: u32) -> Self {
        self.set(
            "metadata.creationTimestamp",
            json!(format!("2026-01-01T00:{:02}:{:02}Z", second / 60, second % 60)),
        )
    }

    pub(in crate::keepalived) fn pinned(self, address: &str) -> Self {
        self.set("spec.loadBalancerIP", json!(address))
    }

    pub(in crate::keepalived) fn wants(self, address: &str) -> Self {
        self.annotated(ADDRESS, address)
    }

    pub(in crate::keepalived) fn method(self, method: &str) -> Self {
        self.annotated(FORWARD_METHOD, method)
    }

    pub(in crate::keepalived) fn key(self, key: &str) -> Self {
        self.annotated(SHARING_KEY, key)
    }

    pub(in crate::keepalived) fn ports(self, ports: Value) -> Self {
        self.set("spec.ports", ports)
    }

    pub(in crate::keepalived) fn pool(self, pool: &str) -> Self {
        self.annotated(ADDRESS_POOL, pool)
    }

    pub(in crate::keepalived) fn port(self, port: u16) -> Self {
        self.ports(json!([{ "port": port, "targetPort": port, "protocol": "TCP" }]))
    }

    pub(in crate::keepalived) fn spec(self, member: &str, value: Value) -> Self {
        self.set(&format!("spec.{member}"), value)
    }

    pub(in crate::keepalived) fn status(mut self, address: &str) -> Self {
        self.object["status"]["loadBalancer"]["ingress"] = json!([{ "ip": address }]);
        self
    }

    pub(in crate::keepalived) fn standing(mut self, standing: Standing) -> Self {
        self.standing = standing;
        self
    }

    pub(in crate::keepalived) fn claim(&self) -> Claim {
        Claim::of(
            &serde_json::from_value(self.object.clone()).unwrap(),
            self.standing,
        )
    }
}

/// Everything that a plan looks at.
#[derive(Clone, Debug)]
pub(in crate::keepalived) struct World {
    pub(in crate::keepalived) config_map: Observed,
    pub(in crate::keepalived) services: Vec<Svc>,
    pub(in crate::keepalived) nodes: BTreeSet<Ipv4Addr>,
    pub(in crate::keepalived) rules: Rules,
    pub(in crate::keepalived) contested: BTreeSet<String>,
    pub(in crate::keepalived) last: Option<Plan>,
}

pub(in crate::keepalived) fn pools(addresses: &str, reserved: &str, habits: Habits) -> Pools {
    let specs: Vec<PoolSpec> = if addresses.is_empty() {
        Vec::new()
    } else {
        vec![PoolSpec::open("default", addresses)]
    };
    Pools::build(&specs, reserved, habits).unwrap()
}

impl World {
    /// The pool `10.0.0.0/29`, no default method, an empty ConfigMap.
    pub(in crate::keepalived) fn new() -> Self {
        Self::with_pool("10.0.0.0/29")
    }

    pub(in crate::keepalived) fn with_pool(addresses: &str) -> Self {
        Self {
            config_map: Observed {
                version: Some("1".into()),
                ..Observed::default()
            },
            services: Vec::new(),
            nodes: BTreeSet::new(),
            rules: Rules {
                pools: pools(addresses, "", Habits::default()),
                ..Rules::default()
            },
            contested: BTreeSet::new(),
            last: None,
        }
    }

    pub(in crate::keepalived) fn default_method(mut self, method: &str) -> Self {
        self.rules.default_method = Method::parse(method).unwrap();
        self
    }

    pub(in crate::keepalived) fn entry(mut self, key: &str, value: &str) -> Self {
        self.config_map.data.insert(key.into(), value.into());
        self
    }

    pub(in crate::keepalived) fn records(mut self, text: &str) -> Self {
        self.config_map.records = Some(text.into());
        self
    }

    /// Records as the Go program's last version writes them, each `UID ADDRESS NAMESPACE/NAME[:METHOD]`.
    pub(in crate::keepalived) fn recorded(self, lines: &[&str]) -> Self {
        let records: Vec<Value> = lines
            .iter()
            .map(|line| {
                let parts: Vec<&str> = line.split(' ').collect();
                let (service, method) = parts[2].split_once(':').unwrap_or((parts[2], ""));
                let (namespace, name) = service.split_once('/').unwrap();
                let mut record = json!({ "uid": parts[0], "ip": parts[1], "serviceNamespace": namespace, "serviceName": name });
                if !method.is_empty() {
                    record["forwardMethod"] = json!(method);
                }
                record
            })
            .collect();
        let text = json!({ "services": records }).to_string();
        self.records(&text)
    }

    /// A Service, its record and its entry.
    pub(in crate::keepalived) fn serving(mut self, full_name: &str, address: &str) -> Self {
        let service = Svc::new(full_name).status(address);
        let claim = service.claim();
        let mut records = self.read();
        let (namespace, name) = (claim.namespace, claim.name);
        self.config_map
            .data
            .insert(address.into(), format!("{namespace}/{name}"));
        records.push(Record {
            uid: claim.uid,
            ip: address.into(),
            namespace,
            name,
            method: String::new(),
        });
        self.config_map.records = Some(super::super::super::document::encode(&records));
        self.services.push(service);
        self
    }

    pub(in crate::keepalived) fn with(mut self, service: Svc) -> Self {
        self.services.push(service);
        self
    }

    /// Replaces the Service of this name, keeping its status.
    pub(in crate::keepalived) fn change(&mut self, name: &str, change: impl FnOnce(Svc) -> Svc) {
        let service = self
            .services
            .iter_mut()
            .find(|service| service.object["metadata"]["name"] == name)
            .unwrap();
        *service = change(service.clone());
    }

    pub(in crate::keepalived) fn remove(&mut self, name: &str) {
        self.services
            .retain(|service| service.object["metadata"]["name"] != name);
    }

    pub(in crate::keepalived) fn read(&self) -> Vec<Record> {
        let text = self.config_map.records.as_deref().unwrap_or("{}");
        super::super::super::document::decode(text).unwrap()
    }

    pub(in crate::keepalived) fn plan(&self, is_listed_after: bool) -> Result<Plan, ListAgain> {
        let claims: Vec<Claim> = self.services.iter().map(Svc::claim).collect();
        let situation = Situation {
            config_map: &self.config_map,
            claims: &claims,
            nodes: &self.nodes,
            is_listed_after,
            contested: &self.contested,
        };
        plan(situation, &self.rules)
    }

    /// Plans, writes, publishes; afterwards a second plan must be empty.
    pub(in crate::keepalived) fn run(&mut self) -> &Plan {
        let plan = self.step();
        let again = self.plan(true).unwrap();
        assert_eq!(again.patch, None, "a second plan changes something");
        self.last.insert(plan)
    }

    /// Runs until nothing changes: an address that was given up is free only when no status shows it any more.
    pub(in crate::keepalived) fn settle(&mut self) -> Vec<Plan> {
        let mut plans = vec![self.step()];
        while self.plan(true).unwrap().patch.is_some() {
            assert!(plans.len() < 20, "it never ends: {:?}", plans.last());
            plans.push(self.step());
        }
        plans
    }

    /// Plans, writes and publishes once. The same look again changes nothing.
    fn step(&mut self) -> Plan {
        let plan = self.plan(true).unwrap();
        self.write(&plan);
        let again = self.plan(true).unwrap();
        assert_eq!(
            again.patch, None,
            "a second plan of the same look changes something"
        );
        self.publish(&plan);
        plan
    }

    /// What the server makes of the patch.
    pub(in crate::keepalived) fn write(&mut self, plan: &Plan) {
        let Some(patch) = &plan.patch else { return };
        let body = patch.body();
        for (key, value) in body["data"].as_object().unwrap() {
            match value.as_str() {
                Some(value) => self.config_map.data.insert(key.clone(), value.to_owned()),
                None => self.config_map.data.remove(key),
            };
        }
        for (name, value) in body["metadata"]["annotations"].as_object().unwrap() {
            let text = value.as_str().map(ToOwned::to_owned);
            match name.as_str() {
                RECORDS => self.config_map.records = text,
                STATE => self.config_map.state = text,
                other => panic!("the patch touches the annotation {other}"),
            }
        }
        let version: u64 = self.config_map.version.as_deref().unwrap_or("0").parse().unwrap();
        self.config_map.version = Some((version + 1).to_string());
    }

    /// What the service controller makes of the outcomes.
    pub(in crate::keepalived) fn publish(&mut self, plan: &Plan) {
        for service in &mut self.services {
            let uid = service.object["metadata"]["uid"].as_str().unwrap().to_owned();
            if let Some(Outcome::Serve { address, .. }) = plan.outcomes.get(&uid) {
                *service = service.clone().status(&address.to_string());
            }
        }
    }

    /// All entries, short: `.1` for `10.0.0.1`.
    pub(in crate::keepalived) fn entries(&self) -> Vec<String> {
        let short = |key: &str| {
            key.strip_prefix("10.0.0.")
                .map_or_else(|| key.to_owned(), |last| format!(".{last}"))
        };
        self.config_map
            .data
            .iter()
            .map(|(key, value)| format!("{}: {value}", short(key)))
            .collect()
    }

    /// The address in the status of a Service.
    pub(in crate::keepalived) fn shown(&self, name: &str) -> Option<String> {
        let service = self
            .services
            .iter()
            .find(|service| service.object["metadata"]["name"] == name)
            .unwrap();
        service.claim().status.first().map(ToString::to_string)
    }

    /// The reasons of the last plan's notes for a Service.
    pub(in crate::keepalived) fn reasons(&self, name: &str) -> Vec<&'static str> {
        let notes = self.last.as_ref().unwrap().notes.get(&format!("uid-{name}"));
        notes
            .into_iter()
            .flatten()
            .map(|note| note.reason.word())
            .collect()
    }

    /// The texts of the last plan's notes for a Service.
    pub(in crate::keepalived) fn texts(&self, name: &str) -> String {
        let notes = self.last.as_ref().unwrap().notes.get(&format!("uid-{name}"));
        notes
            .into_iter()
            .flatten()
            .map(ToString::to_string)
            .collect::<Vec<_>>()
            .join("\n")
    }

    pub(in crate::keepalived) fn outcome(&self, name: &str) -> &Outcome {
        &self.last.as_ref().unwrap().outcomes[&format!("uid-{name}")]
    }
}
