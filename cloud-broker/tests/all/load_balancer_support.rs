//! Brokers without a process around them, on a simulated cloud, and the hands of people who work there, too.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use cloud_broker::cloudstack::types::{ProjectId, Version};
use cloud_broker::cloudstack::{Account, Api, ApiKeys, Environment, Pace, Settings};
use cloud_broker::instances::MachineLists;
use cloud_broker::load_balancer::{
    AdoptionHint, Answer, Demand, Departed, Dialect, DialectWish, Farewell, LoadBalancers, Outcome, Permit,
    Preview, Served, ServerVersion, ServiceRef, ServiceUid, Tenancy, Wish,
};
use cloud_broker::metrics::CloudStackMetrics;
use cloud_broker::tenant::{ClusterUid, ClusterUids, Policy, Scope};
use cloudstack_simulator::{CallKind, Dump, Handle, Keys, NetworkSeed, Options, Seed, Simulator};
use proto::{Fault, v1};
use runtime::host::Host;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// UID of the cluster of most tests.
pub(crate) const CLUSTER: &str = "c1c1c1c1-0000-4000-8000-000000000001";

/// Calls that a test may still make before it is taken for endless.
const PATIENCE: usize = 60;

/// An account with an isolated network and three machines.
pub(crate) fn isolated() -> Seed {
    Seed::builder()
        .account("demo")
        .network("demo", "k8s", "127.101.0.0/24")
        .machines("k8s", "node-", 3)
        .build()
}

/// A VPC with one tier, which has this ACL list, and three machines; and ACL lists made by hand.
pub(crate) fn tier(list: &str, lists: &[&str]) -> Seed {
    let tier = NetworkSeed::tier("web", "vpc", "127.101.0.0/26")
        .account("demo")
        .acl(list);
    let mut seed = Seed::builder()
        .account("demo")
        .vpc("demo", "vpc", "127.101.0.0/24")
        .network_seed(tier)
        .machines("web", "node-", 3)
        .build();
    for name in lists {
        let list = serde_json::json!({ "name": name, "vpcname": "vpc" });
        seed.networkacllists.push(list.as_object().unwrap().clone());
    }
    seed
}

pub(crate) async fn cloud(seed: Seed) -> Handle {
    runtime::host::install_tls_provider();
    let keys = Keys::generate(&seed);
    let options = Options {
        lock_scale: 0.002,
        ..Options::default()
    };
    Simulator::start(seed, keys, options).await.unwrap()
}

/// Who is always wanted.
pub(crate) struct Always;

impl Permit for Always {
    fn still_wanted(&self) -> Result<(), Fault> {
        Ok(())
    }
}

/// One broker process, as far as balancers go.
pub(crate) struct Broker {
    pub(crate) balancers: LoadBalancers,
    pub(crate) machines: Arc<MachineLists>,
    pub(crate) api: Api,
    pub(crate) scope: Scope,
    pub(crate) policy: Policy,
    pub(crate) uids: ClusterUids,
    pub(crate) version: ServerVersion,
    pub(crate) nodes_visible: bool,
    stop: CancellationToken,
}

impl Drop for Broker {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

/// Where and as whom a broker calls.
pub(crate) struct Endpoint {
    pub(crate) url: String,
    pub(crate) keys: ApiKeys,
    pub(crate) project: Option<ProjectId>,
    pub(crate) pace: f64,
}

impl Endpoint {
    pub(crate) fn of(cloud: &Handle, caller: &str) -> Self {
        let keys = cloud.keys(caller).unwrap();
        let keys = ApiKeys {
            api_key: keys.api_key.as_str().into(),
            secret_key: keys.secret_key.as_str().into(),
        };
        Self {
            url: cloud.url().to_owned(),
            keys,
            project: None,
            pace: 0.002,
        }
    }
}

impl Broker {
    pub(crate) fn new(cloud: &Handle) -> Self {
        Self::at(&Endpoint::of(cloud, "demo"))
    }

    pub(crate) fn at(endpoint: &Endpoint) -> Self {
        let stop = CancellationToken::new();
        let environment = Environment {
            tasks: TaskTracker::new(),
            shutdown: stop.clone(),
            metrics: CloudStackMetrics::default(),
        };
        let settings = Settings {
            pace: Pace::scaled(endpoint.pace),
            ..Settings::new(endpoint.url.parse().unwrap(), endpoint.keys.clone())
        };
        let account = Account::new("main", &settings, environment).unwrap();
        let api = Api::new(account, "default", endpoint.project.clone());
        let machines = Arc::new(MachineLists::new(Host::new()));
        Self {
            balancers: LoadBalancers::new(Arc::clone(&machines)),
            machines,
            api,
            scope: Scope {
                project: endpoint.project.clone(),
                ..Scope::default()
            },
            policy: Policy::default(),
            uids: cluster(CLUSTER),
            version: ServerVersion::Is(Version::new(4, 22, 0)),
            nodes_visible: false,
            stop,
        }
    }

    pub(crate) fn tenancy(&self) -> Tenancy<'_> {
        Tenancy {
            api: &self.api,
            scope: &self.scope,
            policy: &self.policy,
            uids: &self.uids,
            version: self.version,
            nodes_visible: self.nodes_visible,
        }
    }

    /// One call.
    pub(crate) async fn ensure_once(
        &self,
        service: &ServiceRef,
        wish: &v1::Wish,
        published: &[IpAddr],
    ) -> Result<Answer<Served>, Fault> {
        self.ensure_while(service, wish, published, &Always).await
    }

    /// One call of somebody who may not be wanted all the time.
    pub(crate) async fn ensure_while(
        &self,
        service: &ServiceRef,
        wish: &v1::Wish,
        published: &[IpAddr],
        permit: &dyn Permit,
    ) -> Result<Answer<Served>, Fault> {
        let (goal, mut notes) = Wish::from_proto(Some(wish), &self.policy)?;
        let demand = Demand {
            service: service.clone(),
            published: published.to_vec(),
            goal,
        };
        let mut answer = self
            .balancers
            .ensure(&self.tenancy(), &demand, permit, soon())
            .await?;
        notes.append(&mut answer.notes);
        answer.notes = notes;
        Ok(answer)
    }

    /// Calls until it is settled; counts the changes of all of them.
    pub(crate) async fn ensure(
        &self,
        service: &ServiceRef,
        wish: &v1::Wish,
        published: &[IpAddr],
    ) -> Result<(Served, u32), Fault> {
        let mut changes = 0;
        for _ in 0..PATIENCE {
            let answer = self.ensure_once(service, wish, published).await?;
            changes += answer.changes;
            match answer.outcome {
                Outcome::Settled(served) => return Ok((served, changes)),
                Outcome::Pending(wait) if wait.reason == "JOB_RUNNING" || wait.reason == "TIME_UP" => {}
                Outcome::Pending(wait) => panic!("pending: {wait:?}"),
            }
        }
        panic!("it does not settle")
    }

    /// One call.
    pub(crate) async fn delete_once(
        &self,
        service: &ServiceRef,
        goal: Farewell,
    ) -> Result<Answer<Departed>, Fault> {
        let demand = Demand {
            service: service.clone(),
            published: Vec::new(),
            goal,
        };
        self.balancers
            .delete(&self.tenancy(), &demand, &Always, soon())
            .await
    }

    /// Calls until it is settled.
    pub(crate) async fn delete(&self, service: &ServiceRef, goal: Farewell) -> Result<Departed, Fault> {
        for _ in 0..PATIENCE {
            match self.delete_once(service, goal.clone()).await?.outcome {
                Outcome::Settled(departed) => return Ok(departed),
                Outcome::Pending(wait) if wait.reason == "JOB_RUNNING" || wait.reason == "TIME_UP" => {}
                Outcome::Pending(wait) => panic!("pending: {wait:?}"),
            }
        }
        panic!("it does not settle")
    }

    pub(crate) async fn preview(
        &self,
        service: &ServiceRef,
        wish: &v1::Wish,
        published: &[IpAddr],
    ) -> Result<Preview, Fault> {
        let (goal, _) = Wish::from_proto(Some(wish), &self.policy)?;
        let demand = Demand {
            service: service.clone(),
            published: published.to_vec(),
            goal,
        };
        self.balancers.plan_ensure(&self.tenancy(), &demand).await
    }
}

fn soon() -> Instant {
    runtime::clock::now() + Duration::from_secs(20)
}

pub(crate) fn cluster(uid: &str) -> ClusterUids {
    ClusterUids::configured(vec![ClusterUid::new(uid).unwrap()])
}

pub(crate) fn service(number: u8) -> ServiceRef {
    ServiceRef {
        uid: ServiceUid::parse(&format!("{number:08x}-1111-4111-8111-111111111111")).unwrap(),
        namespace: "shop".to_owned(),
        name: format!("web-{number}"),
    }
}

pub(crate) fn farewell() -> Farewell {
    Farewell {
        keep_address: false,
        network: None,
        dialect: DialectWish {
            kind: Dialect::Apache,
            cluster_name: "kubernetes".to_owned(),
        },
        adoption: AdoptionHint::default(),
    }
}

/// Ports `(public, node port)` over all machines of the cloud.
pub(crate) fn wish(cloud: &Handle, ports: &[(u32, u32)]) -> v1::Wish {
    let machines = cloud.dump().machines;
    let member = |name: &str, id: String| v1::WishMember {
        node_name: name.to_owned(),
        machine: Some(v1::wish_member::Machine::MachineId(id)),
    };
    v1::Wish {
        ports: ports
            .iter()
            .map(|(port, node_port)| port_of(*port, *node_port))
            .collect(),
        members: machines
            .iter()
            .map(|machine| member(&machine.name, machine.id.to_string()))
            .collect(),
        dialect: Some(v1::Dialect {
            kind: v1::dialect::Kind::Apache.into(),
            cluster_name: "kubernetes".to_owned(),
        }),
        ..v1::Wish::default()
    }
}

pub(crate) fn port_of(port: u32, node_port: u32) -> v1::WishPort {
    v1::WishPort {
        name: format!("p{port}"),
        protocol: v1::wish_port::Protocol::Tcp.into(),
        port,
        node_port,
        proxy_protocol: false,
    }
}

/// Calls by kind: reads, writes, polls.
pub(crate) fn calls(cloud: &Handle) -> (u64, u64, u64) {
    let calls = cloud.calls();
    (
        calls.of_kind(CallKind::Read),
        calls.of_kind(CallKind::Write),
        calls.of_kind(CallKind::Poll),
    )
}

/// Calls of one command.
pub(crate) fn count(cloud: &Handle, command: &str) -> u64 {
    cloud.calls().by_command.get(command).copied().unwrap_or_default()
}

/// What exists, as lines that are easy to compare: no ids, and addresses by their place.
pub(crate) fn picture(dump: &Dump) -> Vec<String> {
    let mut lines = Vec::new();
    for rule in &dump.rules {
        let protocol = rule.protocol.as_deref().unwrap_or("-");
        let sources = rule.sources.as_deref().unwrap_or("-");
        lines.push(format!(
            "rule {} {}:{} -> {} {protocol} {} [{sources}] {} {:?} {}",
            rule.name,
            rule.address,
            rule.public_port,
            rule.private_port,
            rule.algorithm,
            rule.state,
            rule.members,
            rule.description.as_deref().unwrap_or("-")
        ));
    }
    for rule in &dump.firewall_rules {
        lines.push(format!(
            "firewall {} {} {:?} {:?} {}",
            rule.address, rule.protocol, rule.ports, rule.sources, rule.state
        ));
    }
    for item in &dump.acl_items {
        lines.push(format!(
            "acl {} {} {} {:?} {} {} {}",
            item.list,
            item.number,
            item.protocol,
            item.ports,
            item.sources,
            item.allow,
            item.reason.as_deref().unwrap_or("-")
        ));
    }
    for address in dump.acquired() {
        lines.push(format!("address {} {}", address.address, address.state));
    }
    lines.sort();
    lines
}
