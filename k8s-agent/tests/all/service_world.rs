//! The service controller between an API server in memory and a broker behind a real socket.

use std::ffi::OsString;
use std::sync::Arc;
use std::time::Duration;

use k8s_agent::args::{CommandLine, Settings};
use k8s_agent::broker::Broker;
use k8s_agent::context::Context;
use k8s_agent::election::{Leadership, Throne};
use k8s_agent::events::Recorder;
use k8s_agent::lease::Fence;
use k8s_agent::metrics::Metrics;
use k8s_agent::node::machines::Machines;
use k8s_agent::queue::Backoff;
use k8s_agent::service::backend::{BackendName, Backends};
use k8s_agent::service::broker_backend::BrokerBackend;
use k8s_agent::service::choice::Running;
use k8s_agent::service::controller::{self, Pace};
use k8s_agent::service::intent::Rules;
use k8s_agent::watch::Watch;
use kube::Api;
use proto::v1::{Dialect, dialect};
use runtime::host::Host;
use runtime::link::Link;
use serde_json::{Value, json};
use tokio_util::task::TaskTracker;

use crate::fake_apiserver::FakeApiServer;
use crate::fake_broker::FakeBroker;
use crate::fake_pool::FakePool;
use crate::node_world::write_events;

pub(crate) const FINALIZER: &str = "service.kubernetes.io/load-balancer-cleanup";
pub(crate) const PREFIX: &str = "service.beta.kubernetes.io/cloudstack-load-balancer-";

/// Everything around the controller, and the controller.
pub(crate) struct World {
    pub(crate) api: FakeApiServer,
    pub(crate) broker: FakeBroker,
    pub(crate) context: Arc<Context>,
    pub(crate) throne: Throne,
    host: Host,
}

/// A controller that is quick to try again and soon loses its patience.
pub(crate) fn quick() -> Pace {
    let backoff = Backoff {
        first: Duration::from_millis(50),
        longest: Duration::from_millis(400),
    };
    Pace {
        backoff,
        patience: Duration::from_millis(300),
    }
}

impl World {
    /// Starts a quick controller over what is in `api`, with `broker`.
    pub(crate) async fn start(api: FakeApiServer, broker: FakeBroker) -> Self {
        Self::start_at(quick(), api, broker).await
    }

    /// Starts the controller at this pace.
    pub(crate) async fn start_at(pace: Pace, api: FakeApiServer, broker: FakeBroker) -> Self {
        Self::start_beside(None, pace, api, broker).await
    }

    /// Starts the controller with another backend beside the cloud.
    pub(crate) async fn start_beside(
        pool: Option<FakePool>,
        pace: Pace,
        api: FakeApiServer,
        broker: FakeBroker,
    ) -> Self {
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
        let context = Arc::new(Context {
            host: host.clone(),
            settings: settings(&broker),
            client: client.clone(),
            nodes: Watch::default(),
            services: Watch::default(),
            broker: Some(caller.clone()),
            machines: Machines::default(),
            events,
            metrics,
            leadership,
            work: TaskTracker::new(),
        });
        let (nodes, services) = (context.nodes.clone(), context.services.clone());
        let (api_of_nodes, api_of_services) = (Api::all(client.clone()), Api::all(client));
        let (stop, stop_too) = (host.shutdown(), host.shutdown());
        host.spawn("nodes", async move { nodes.run(api_of_nodes, stop).await });
        host.spawn("services", async move {
            services.run(api_of_services, stop_too).await;
        });
        context.nodes.synced().await;
        context.services.synced().await;
        let running = if pool.is_some() {
            Running::Both
        } else {
            Running::One(BackendName::Cloud)
        };
        let backends = Backends {
            cloud: Some(BrokerBackend::new(caller)),
            keepalived: pool,
        };
        controller::start(&context, rules(running), backends, pace);
        Self {
            api,
            broker,
            context,
            throne,
            host,
        }
    }

    /// An empty cluster with two nodes, and a broker that serves everybody.
    pub(crate) async fn new() -> Self {
        let api = FakeApiServer::new();
        add_node(&api, 1);
        add_node(&api, 2);
        Self::start(api, FakeBroker::start().await).await
    }

    /// Waits until the Service shows this address.
    pub(crate) async fn shows(&self, name: &str, ip: &str) {
        self.api
            .wait_for(&format!("{name} shows {ip}"), |api| {
                (ingress(api, name) == json!(ip)).then_some(())
            })
            .await;
    }

    /// Waits until the Service shows any address, and answers it.
    pub(crate) async fn served(&self, name: &str) -> String {
        self.api
            .wait_for(&format!("{name} is served"), |api| {
                ingress(api, name).as_str().map(str::to_owned)
            })
            .await
    }

    /// Waits until an event with this reason is on the Service.
    pub(crate) async fn told(&self, name: &str, reason: &str) {
        let found = |api: &FakeApiServer| api.events(name).iter().any(|event| event == reason).then_some(());
        self.api
            .wait_for(&format!("event {reason} on {name}"), found)
            .await;
    }

    /// Waits until the controller has nothing to do for anybody: a Service that comes last has been served, one worker at a time.
    pub(crate) async fn settles(&self) {
        let name = format!("last-{}", uuid::Uuid::new_v4().simple());
        self.api.create("services", service(&name));
        self.served(&name).await;
        self.told(&name, "EnsuredLoadBalancer").await;
    }

    /// Stops the controller.
    pub(crate) async fn stop(&self) {
        self.host.shutdown().cancel();
        self.host.finish(Duration::from_secs(10)).await;
    }
}

fn ingress(api: &FakeApiServer, name: &str) -> Value {
    api.get("services", name).map_or(Value::Null, |service| {
        service["status"]["loadBalancer"]["ingress"][0]["ip"].clone()
    })
}

fn settings(broker: &FakeBroker) -> Settings {
    let address = broker.address().to_string();
    let argv = [
        "k8s-agent",
        "--cloud-provider=external-cloudstack",
        "--broker",
        &address,
    ];
    Settings::try_from(CommandLine::read(argv.map(OsString::from)).unwrap().flags).unwrap()
}

fn rules(running: Running) -> Rules {
    Rules {
        running,
        dialect: Dialect {
            kind: dialect::Kind::Apache as i32,
            cluster_name: "kubernetes".to_owned(),
        },
    }
}

/// A Service of type LoadBalancer with one port.
pub(crate) fn service(name: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Service",
        "metadata": {"namespace": "default", "name": name, "annotations": {"example/a": "b"}},
        "spec": {
            "type": "LoadBalancer",
            "ipFamilies": ["IPv4"],
            "sessionAffinity": "None",
            "ports": [{"name": "http", "protocol": "TCP", "port": 80, "nodePort": 30080}],
        },
    })
}

/// A Service that was served before this process began.
pub(crate) fn served_before(name: &str, ip: &str) -> Value {
    let mut served = service(name);
    served["metadata"]["finalizers"] = json!([FINALIZER]);
    served["metadata"]["annotations"] = json!({
        "example/a": "b",
        (format!("{PREFIX}id")): "ip-1",
        (format!("{PREFIX}network-id")): "net-1",
        (format!("{PREFIX}ip-associated-by-controller")): "true",
    });
    served["status"] = json!({"loadBalancer": {"ingress": [{"ip": ip, "ipMode": "VIP"}]}});
    served
}

/// Id of the machine behind a node.
pub(crate) fn machine(number: u8) -> String {
    format!("3a1b2c3d-0000-4000-8000-0000000000{number:02}")
}

/// Registers a node that is initialised.
pub(crate) fn add_node(api: &FakeApiServer, number: u8) {
    api.create(
        "nodes",
        json!({
            "apiVersion": "v1", "kind": "Node",
            "metadata": {"name": format!("node-{number}")},
            "spec": {"providerID": format!("external-cloudstack://{}", machine(number))},
            "status": {"conditions": [{"type": "Ready", "status": "True"}]},
        }),
    );
}
