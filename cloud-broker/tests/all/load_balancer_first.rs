//! What is read, and in which order, before an address and a rule are made: against an endpoint that shows one moment only.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use cloud_broker::cloudstack::ApiKeys;
use cloud_broker::cloudstack::types::Timestamp;
use cloud_broker::tenant::AllowedAddresses;
use parking_lot::Mutex;
use proto::v1;
use serde_json::{Value, json};

use super::client_support::{Call, Fake, Reply, until};
use super::load_balancer_support::{Broker, Endpoint, port_of, service};

const ADDRESS: &str = "192.0.2.7";

/// One machine in one network, one free address, and no rule.
fn reads(call: &Call) -> Reply {
    let free = || json!({ "id": "ip", "ipaddress": ADDRESS, "state": "Free", "zoneid": "zone" });
    Reply::ok(match (call.command(), call.get("state")) {
        ("listVirtualMachines", _) => json!({ "count": 1, "virtualmachine": [{
            "id": "m1", "name": "m1", "state": "Running", "zoneid": "zone",
            "nic": [{ "id": "nic", "networkid": "net", "isdefault": true }],
        }] }),
        ("listNetworks", _) => json!({ "count": 1, "network": [{
            "id": "net", "name": "k8s", "type": "Isolated", "state": "Implemented", "zoneid": "zone",
            "service": [{ "name": "Lb" }, { "name": "Firewall" }],
        }] }),
        ("listPublicIpAddresses", "Free") => json!({ "count": 1, "publicipaddress": [free()] }),
        _ => json!({}),
    })
}

async fn broker(fake: &Fake) -> Broker {
    runtime::host::install_tls_provider();
    let broker = Broker::at(&Endpoint {
        url: fake.url.to_string(),
        keys: ApiKeys {
            api_key: "key".into(),
            secret_key: "secret".into(),
        },
        project: None,
        pace: 0.002,
    });
    // Nodes were looked up before.
    assert!(broker.machines.within(&broker.api, Duration::ZERO).await.is_ok());
    broker
}

fn wish() -> v1::Wish {
    v1::Wish {
        ports: vec![port_of(80, 30080)],
        members: vec![v1::WishMember {
            node_name: "m1".to_owned(),
            machine: Some(v1::wish_member::Machine::MachineId("m1".to_owned())),
        }],
        ..v1::Wish::default()
    }
}

#[rstest::rstest]
#[case::any_address(AllowedAddresses::default())]
#[case::some_address(AllowedAddresses::of(vec!["192.0.2.0/24".parse().unwrap()]))]
#[tokio::test]
async fn an_address_that_arrives_while_lists_are_read_is_in_one_of_them(#[case] allowed: AllowedAddresses) {
    let (answered, too_early) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let (said, early) = (Arc::clone(&answered), Arc::clone(&too_early));
    let fake = Fake::start(move |call: Call| {
        let (said, early) = (Arc::clone(&said), Arc::clone(&early));
        async move {
            match (call.command(), call.get("state")) {
                ("listPublicIpAddresses", "Allocating") => said.store(true, Ordering::SeqCst),
                // The last list of what has arrived is one that was asked for after what is on its way was told.
                ("listPublicIpAddresses", "") => {
                    early.store(!said.load(Ordering::SeqCst), Ordering::SeqCst);
                }
                ("queryAsyncJobResult", _) => return Reply::gone(),
                ("associateIpAddress", _) => return Reply::error(531, "no"),
                _ => {}
            }
            reads(&call)
        }
    })
    .await;
    let mut broker = broker(&fake).await;
    broker.policy.allowed_addresses = allowed;
    let fault = broker.ensure_once(&service(1), &wish(), &[]).await.unwrap_err();
    assert_eq!(&*fault.reason, "DENIED_BY_CLOUD", "{fault:?}");
    assert!(answered.load(Ordering::SeqCst));
    assert!(!too_early.load(Ordering::SeqCst));
}

/// The address once it is taken.
fn allocated() -> Value {
    let now = Timestamp::from(runtime::clock::wall());
    json!({
        "id": "ip", "ipaddress": ADDRESS, "state": "Allocated", "zoneid": "zone", "associatednetworkid": "net",
        "allocated": now.to_string(),
    })
}

#[tokio::test]
async fn a_rule_that_was_made_without_a_word_of_its_id_is_looked_for_before_another_one_is_made() {
    let (taken, allocated) = (Arc::new(Mutex::new(String::new())), allocated());
    let fake = Fake::start(move |call: Call| {
        let (taken, allocated) = (Arc::clone(&taken), allocated.clone());
        async move {
            match call.command() {
                "associateIpAddress" => {
                    call.get("customjobid").clone_into(&mut taken.lock());
                    Reply::ok(json!({ "id": "ip", "jobid": call.get("customjobid") }))
                }
                "queryAsyncJobResult" if *taken.lock() == call.get("jobid") => {
                    Reply::job(call.get("jobid"), 1, json!({ "ipaddress": allocated }))
                }
                "listPublicIpAddresses" if !call.has("state") && !taken.lock().is_empty() => {
                    Reply::ok(json!({ "count": 1, "publicipaddress": [allocated] }))
                }
                "queryAsyncJobResult" => Reply::gone(),
                "createLoadBalancerRule" => Reply::ok(json!({ "jobid": "made" })),
                _ => reads(&call),
            }
        }
    })
    .await;
    let broker = broker(&fake).await;
    let (one, wanted) = (service(1), wish());
    tokio::select! {
        answer = broker.ensure_once(&one, &wanted, &[]) => panic!("{answer:?}"),
        () = until(|| fake.count("createLoadBalancerRule") == 2) => {}
    }
    let commands: Vec<_> = fake
        .calls()
        .iter()
        .map(|call| call.command().to_owned())
        .collect();
    let made = commands
        .iter()
        .position(|command| command == "createLoadBalancerRule")
        .unwrap();
    let again = commands
        .iter()
        .skip(made + 1)
        .take_while(|command| *command != "createLoadBalancerRule");
    assert!(
        again
            .into_iter()
            .any(|command| command == "listLoadBalancerRules"),
        "{commands:?}"
    );
}
