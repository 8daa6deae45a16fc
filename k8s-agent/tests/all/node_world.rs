//! The node controllers between an API server in memory and a broker behind a real socket.

use std::ffi::OsString;
use std::sync::Arc;
use std::time::Duration;

use k8s_agent::args::{CommandLine, Settings};
use k8s_agent::broker::Broker;
use k8s_agent::context::Context;
use k8s_agent::election::{Leadership, Throne};
use k8s_agent::events::{Recorder, Writer};
use k8s_agent::lease::Fence;
use k8s_agent::metrics::Metrics;
use k8s_agent::node::machines::Machines;
use k8s_agent::node::{init, monitor, refresh};
use k8s_agent::queue::Backoff;
use k8s_agent::watch::Watch;
use kube::{Api, Client};
use proto::v1::{self, instance, instance_result, node_address};
use runtime::host::Host;
use runtime::link::Link;
use serde_json::{Value, json};
use tokio_util::task::TaskTracker;

use crate::fake_apiserver::FakeApiServer;
use crate::fake_broker::FakeBroker;

pub(crate) const UNINITIALIZED: &str = "node.cloudprovider.kubernetes.io/uninitialized";
pub(crate) const SHUTDOWN: &str = "node.cloudprovider.kubernetes.io/shutdown";

/// Everything around the controllers, and the controllers.
pub(crate) struct NodeWorld {
    pub(crate) api: FakeApiServer,
    pub(crate) broker: FakeBroker,
    pub(crate) throne: Throne,
    pub(crate) machines: Machines,
    caller: Broker,
    host: Host,
}

/// Which controllers run.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Run {
    Init,
    Refresh,
    Monitor,
}

impl NodeWorld {
    /// Starts one controller over what is in `api`, with times that make tests quick.
    pub(crate) async fn start(api: FakeApiServer, broker: FakeBroker, run: Run) -> Self {
        let (host, metrics) = (Host::new(), Metrics::default());
        let (throne, leadership) = Leadership::contested();
        throne.lead(
            Fence {
                lease_uid: "lease-1".to_owned(),
                transitions: 3,
            },
            None,
        );
        let (events, writer) = Recorder::new(metrics.clone());
        let client = api.client();
        write_events(&host, client.clone(), writer);
        let link = Link::connect(&host, vec![broker.address()], None);
        let caller = Broker::new(link, leadership.clone(), metrics.clone(), "process-1".to_owned());
        let (describing, ready, stop) = (caller.clone(), host.gate("broker"), host.shutdown());
        host.spawn(
            "broker",
            async move { describing.keep_describing(ready, stop).await },
        );
        caller.descriptions().wait_for(Option::is_some).await.unwrap();
        let machines = Machines::default();
        let context = Arc::new(Context {
            host: host.clone(),
            settings: settings(&broker),
            client: client.clone(),
            nodes: Watch::default(),
            services: Watch::default(),
            broker: Some(caller.clone()),
            machines: machines.clone(),
            events,
            metrics,
            leadership,
            work: TaskTracker::new(),
        });
        let (nodes, stop) = (context.nodes.clone(), host.shutdown());
        host.spawn("nodes", async move { nodes.run(Api::all(client), stop).await });
        context.nodes.synced().await;
        match run {
            Run::Init => init::start(&context, &caller, quick()),
            Run::Refresh => refresh::start(&context, &caller),
            Run::Monitor => monitor::start(&context, &caller),
        }
        Self {
            api,
            broker,
            throne,
            machines,
            caller,
            host,
        }
    }

    /// Waits until an event with this reason is on the node.
    pub(crate) async fn told(&self, name: &str, reason: &str) {
        let found = |api: &FakeApiServer| api.events(name).iter().any(|event| event == reason).then_some(());
        self.api
            .wait_for(&format!("event {reason} on {name}"), found)
            .await;
    }

    /// Waits until the node has no taint with this key, or has one.
    pub(crate) async fn tainted(&self, name: &str, key: &str, expected: bool) {
        let found = |api: &FakeApiServer| {
            api.get("nodes", name)
                .filter(|node| has_taint(node, key) == expected)
                .map(drop)
        };
        self.api
            .wait_for(&format!("{name} with taint {key}: {expected}"), found)
            .await;
    }

    /// Waits until the node is gone.
    pub(crate) async fn gone(&self, name: &str) {
        self.api
            .wait_for(&format!("{name} is gone"), |api| {
                api.get("nodes", name).is_none().then_some(())
            })
            .await;
    }

    /// Waits until the broker was asked this often from now on.
    pub(crate) async fn asked_again(&self, times: usize) {
        let before = self.broker.heard().lookups.len();
        self.broker
            .wait_for("look-ups", |heard| {
                (heard.lookups.len() >= before + times).then_some(())
            })
            .await;
    }

    /// The broker looks in another project from now on, and the agent knows it.
    pub(crate) async fn move_to_project(&self, project: &str) {
        let policy = v1::Policy {
            project_id: project.to_owned(),
            ..v1::Policy::default()
        };
        self.broker
            .describe(|description| description.policy = Some(policy.clone()));
        let mut descriptions = self.caller.descriptions();
        let moved =
            descriptions.wait_for(|it| it.as_ref().is_some_and(|it| it.policy.as_ref() == Some(&policy)));
        tokio::time::timeout(Duration::from_secs(10), moved)
            .await
            .expect("a new description")
            .unwrap();
    }

    /// How often the agent panicked, as its metric says.
    pub(crate) fn panics(&self) -> u32 {
        panics(&self.host)
    }

    pub(crate) async fn stop(&self) {
        self.host.shutdown().cancel();
        assert_eq!(self.host.finish(Duration::from_secs(10)).await, None);
    }
}

/// Writes events until the process ends.
pub(crate) fn write_events(host: &Host, client: Client, mut writer: Writer) {
    let writing = host.clone();
    host.spawn("events", async move {
        writer.run(&writing, &client, writing.shutdown()).await;
    });
}

/// How often the process panicked, as its metric says.
pub(crate) fn panics(host: &Host) -> u32 {
    let scrape = host.scrape();
    let count = scrape
        .lines()
        .find_map(|line| line.strip_prefix("process_contained_panics_total "));
    count.unwrap().parse().unwrap()
}

/// An initialiser that is quick to try again and soon loses its patience.
fn quick() -> init::Pace {
    let backoff = Backoff {
        first: Duration::from_millis(20),
        longest: Duration::from_millis(100),
    };
    init::Pace {
        backoff,
        patience: Duration::from_millis(200),
    }
}

fn settings(broker: &FakeBroker) -> Settings {
    let address = broker.address().to_string();
    let argv = [
        "k8s-agent",
        "--cloud-provider=external-cloudstack",
        "--node-monitor-period=20ms",
        "--node-grace-period=100ms",
        "--node-status-update-frequency=100ms",
        "--broker",
        &address,
    ];
    let mut settings =
        Settings::try_from(CommandLine::read(argv.map(OsString::from)).unwrap().flags).unwrap();
    settings.rules.retry = Backoff {
        first: Duration::from_millis(40),
        longest: Duration::from_millis(400),
    };
    settings
}

pub(crate) fn has_taint(node: &Value, key: &str) -> bool {
    node["spec"]["taints"]
        .as_array()
        .is_some_and(|taints| taints.iter().any(|taint| taint["key"] == json!(key)))
}

/// A node that waits to be initialised.
pub(crate) fn waiting(name: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {"name": name},
        "spec": {"taints": [
            {"key": UNINITIALIZED, "value": "true", "effect": "NoSchedule"},
            {"key": "example/other", "effect": "NoExecute"},
        ]},
        "status": {"addresses": [{"type": "Hostname", "address": name}]},
    })
}

/// A node that is initialised, Ready or not.
pub(crate) fn initialised(name: &str, number: u8, ready: bool) -> Value {
    let status = if ready { "True" } else { "False" };
    json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {"name": name},
        "spec": {"providerID": format!("external-cloudstack://{}", id(number))},
        "status": {"conditions": [{"type": "Ready", "status": status}]},
    })
}

/// Id of a machine.
pub(crate) fn id(number: u8) -> String {
    format!("3a1b2c3d-0000-4000-8000-000000000{number:03}")
}

/// A machine that was found.
pub(crate) fn found(number: u8, power: instance::Power) -> v1::InstanceResult {
    let address = |r#type: node_address::Type, address: String| v1::NodeAddress {
        r#type: r#type.into(),
        address,
    };
    let instance = v1::Instance {
        machine_id: id(number),
        name: format!("machine-{number}"),
        power: power.into(),
        addresses: vec![address(
            node_address::Type::InternalIp,
            format!("10.1.1.{number}"),
        )],
        instance_type: "Small Instance".to_owned(),
        zone: "zone-1".to_owned(),
        ..v1::Instance::default()
    };
    result(instance_result::Presence::Found(instance))
}

/// A machine that is proved gone.
pub(crate) fn gone() -> v1::InstanceResult {
    result(instance_result::Presence::Gone(v1::GoneProof {
        first_list_id: "list-1".to_owned(),
        second_list_id: "list-2".to_owned(),
        looked_up_at: Some(prost_types::Timestamp::default()),
        witness_machine_id: id(250),
    }))
}

pub(crate) fn result(presence: instance_result::Presence) -> v1::InstanceResult {
    v1::InstanceResult {
        presence: Some(presence),
        list_id: "list-2".to_owned(),
        observed_at: None,
    }
}

/// The number at the end of a name.
pub(crate) fn number(name: &str) -> u8 {
    name.rsplit('-').next().unwrap().parse().unwrap()
}
