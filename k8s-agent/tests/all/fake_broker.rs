//! A broker behind a real socket that says what a test tells it to say, and remembers what it was asked.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use proto::Fault;
use proto::v1::cloud_broker_server::{CloudBroker, CloudBrokerServer};
use proto::v1::{self, delete_load_balancer_response, ensure_load_balancer_response, instance_result};
use runtime::host::Host;
use runtime::link::{LinkAddress, LinkServer};
use tempfile::TempDir;
use tokio::sync::watch;
use tonic::service::Routes;
use tonic::{Request, Response, Status};

/// How long a test waits for what it expects.
const PATIENCE: Duration = Duration::from_secs(20);

type Ensure = Arc<
    dyn Fn(&v1::EnsureLoadBalancerRequest) -> Result<v1::EnsureLoadBalancerResponse, Fault> + Send + Sync,
>;
type Delete = Arc<
    dyn Fn(&v1::DeleteLoadBalancerRequest) -> Result<v1::DeleteLoadBalancerResponse, Fault> + Send + Sync,
>;
type Lookup = Arc<dyn Fn(&v1::InstanceKey) -> v1::InstanceResult + Send + Sync>;

/// The broker. Clones share it. Its socket is gone when the last of them is.
#[derive(Clone)]
pub(crate) struct FakeBroker {
    shared: Arc<Shared>,
}

struct Shared {
    directory: TempDir,
    script: Mutex<Script>,
    heard: Mutex<Heard>,
    /// Counts calls, to wait for them.
    calls: watch::Sender<u64>,
    /// Ends the present listener.
    listener: Mutex<Option<Host>>,
}

/// What it answers.
struct Script {
    description: v1::DescribeResponse,
    ensure: Ensure,
    delete: Delete,
    lookup: Lookup,
    /// Time that each Ensure and Delete takes.
    pace: Duration,
    /// Calls that never end until this is taken away.
    stuck: bool,
}

/// What it was asked.
#[derive(Clone, Debug, Default)]
pub(crate) struct Heard {
    pub(crate) ensures: Vec<v1::EnsureLoadBalancerRequest>,
    pub(crate) deletes: Vec<v1::DeleteLoadBalancerRequest>,
    pub(crate) lookups: Vec<v1::LookupInstancesRequest>,
    /// Calls that the caller gave up.
    pub(crate) abandoned: usize,
    /// Most Ensures and Deletes of one Service at the same time.
    pub(crate) most_at_once_per_service: usize,
    /// Most Ensures and Deletes at the same time.
    pub(crate) most_at_once: usize,
    running: BTreeMap<String, usize>,
}

impl FakeBroker {
    /// One that gives every Service an address of its own, finds no machine, and listens.
    pub(crate) async fn start() -> Self {
        let broker = Self {
            shared: Arc::new(Shared {
                directory: tempfile::tempdir().unwrap(),
                script: Mutex::new(Script {
                    description: description(),
                    ensure: Arc::new(|request| Ok(settled(&[&address_of(request)]))),
                    delete: Arc::new(|_| Ok(deleted())),
                    lookup: Arc::new(|_| unknown("not in this cloud")),
                    pace: Duration::ZERO,
                    stuck: false,
                }),
                heard: Mutex::default(),
                calls: watch::Sender::new(0),
                listener: Mutex::default(),
            }),
        };
        broker.listen().await;
        broker
    }

    /// Where it listens.
    pub(crate) fn address(&self) -> LinkAddress {
        LinkAddress::Unix(self.path())
    }

    fn path(&self) -> PathBuf {
        self.shared.directory.path().join("broker").join("broker.sock")
    }

    /// Listens (again).
    pub(crate) async fn listen(&self) {
        let host = Host::new();
        let directory = self.path().parent().unwrap().to_owned();
        std::fs::create_dir_all(&directory).unwrap();
        std::fs::set_permissions(&directory, std::os::unix::fs::PermissionsExt::from_mode(0o700)).unwrap();
        let server = LinkServer::new(vec![self.address()]);
        let routes = Routes::new(CloudBrokerServer::new(Served(Arc::downgrade(&self.shared))));
        runtime::link::serve(&host, server, routes).await.unwrap();
        *self.shared.listener.lock() = Some(host);
    }

    /// Goes away: no new connection, and the present ones end.
    pub(crate) async fn leave(&self) {
        let host = self.shared.listener.lock().take().unwrap();
        host.shutdown().cancel();
        host.finish(Duration::from_secs(5)).await;
    }

    /// What Describe answers.
    pub(crate) fn describe(&self, change: impl FnOnce(&mut v1::DescribeResponse)) {
        change(&mut self.shared.script.lock().description);
    }

    /// What Ensure answers.
    pub(crate) fn on_ensure(
        &self,
        answer: impl Fn(&v1::EnsureLoadBalancerRequest) -> Result<v1::EnsureLoadBalancerResponse, Fault>
        + Send
        + Sync
        + 'static,
    ) {
        self.shared.script.lock().ensure = Arc::new(answer);
    }

    /// What Delete answers.
    pub(crate) fn on_delete(
        &self,
        answer: impl Fn(&v1::DeleteLoadBalancerRequest) -> Result<v1::DeleteLoadBalancerResponse, Fault>
        + Send
        + Sync
        + 'static,
    ) {
        self.shared.script.lock().delete = Arc::new(answer);
    }

    /// What a look-up of one key answers.
    pub(crate) fn on_lookup(
        &self,
        answer: impl Fn(&v1::InstanceKey) -> v1::InstanceResult + Send + Sync + 'static,
    ) {
        self.shared.script.lock().lookup = Arc::new(answer);
    }

    /// How long each Ensure and Delete takes.
    pub(crate) fn take_time(&self, pace: Duration) {
        self.shared.script.lock().pace = pace;
    }

    /// Ensures and Deletes that begin from now on never end, or begin to end again.
    pub(crate) fn be_stuck(&self, stuck: bool) {
        self.shared.script.lock().stuck = stuck;
    }

    /// What it was asked so far.
    pub(crate) fn heard(&self) -> Heard {
        self.shared.heard.lock().clone()
    }

    /// Waits until the condition holds on what it was asked, and answers what it found.
    pub(crate) async fn wait_for<T>(&self, what: &str, mut condition: impl FnMut(&Heard) -> Option<T>) -> T {
        let mut calls = self.shared.calls.subscribe();
        let waiting = async {
            loop {
                if let Some(found) = condition(&self.shared.heard.lock()) {
                    return found;
                }
                calls.changed().await.unwrap();
            }
        };
        tokio::time::timeout(PATIENCE, waiting)
            .await
            .unwrap_or_else(|_| panic!("the broker was not asked: {what}\n{:#?}", self.heard()))
    }
}

/// A tenant with one network that has a load balancer.
pub(crate) fn description() -> v1::DescribeResponse {
    v1::DescribeResponse {
        cluster: "default".to_owned(),
        contract_min: 1,
        contract_max: 1,
        networks: vec![v1::NetworkInfo {
            id: "net-1".to_owned(),
            name: "guests".to_owned(),
            offers_load_balancer: true,
        }],
        refresh_interval: Some(prost_types::Duration { seconds: 1, nanos: 0 }),
        drift_period: Some(prost_types::Duration {
            seconds: 600,
            nanos: 0,
        }),
        ..v1::DescribeResponse::default()
    }
}

/// An address that belongs to the Service alone.
pub(crate) fn address_of(request: &v1::EnsureLoadBalancerRequest) -> String {
    let uid = &request.r#ref.as_ref().unwrap().uid;
    let sum = uid.bytes().fold(0_u32, |sum, byte| {
        sum.wrapping_mul(31).wrapping_add(u32::from(byte))
    });
    format!("192.0.{}.{}", 2 + sum / 250 % 100, 1 + sum % 250)
}

/// A load balancer that is as wanted, after one change.
pub(crate) fn settled(ips: &[&str]) -> v1::EnsureLoadBalancerResponse {
    let ingress = ips
        .iter()
        .map(|ip| v1::Ingress {
            ip: (*ip).to_owned(),
            proxy: false,
        })
        .collect();
    let outputs = v1::Outputs {
        address_id: "ip-1".to_owned(),
        network_id: "net-1".to_owned(),
        address_owned: true,
    };
    v1::EnsureLoadBalancerResponse {
        outcome: Some(ensure_load_balancer_response::Outcome::Settled(
            v1::LoadBalancerSettled {
                ingress,
                leaving: Vec::new(),
                outputs: Some(outputs),
                changes: 1,
            },
        )),
        notes: Vec::new(),
    }
}

/// The same with another address that goes once it is no longer published.
pub(crate) fn moving(ip: &str, leaving: &str) -> v1::EnsureLoadBalancerResponse {
    let mut answer = settled(&[ip]);
    if let Some(ensure_load_balancer_response::Outcome::Settled(settled)) = &mut answer.outcome {
        settled.leaving = vec![leaving.to_owned()];
    }
    answer
}

/// Work that goes on.
pub(crate) fn pending(retry_after: Duration, reason: &str, text: &str) -> v1::EnsureLoadBalancerResponse {
    v1::EnsureLoadBalancerResponse {
        outcome: Some(ensure_load_balancer_response::Outcome::Pending(still_pending(
            retry_after,
            reason,
            text,
        ))),
        notes: Vec::new(),
    }
}

/// The same for a Delete.
pub(crate) fn still_pending(retry_after: Duration, reason: &str, text: &str) -> v1::Pending {
    v1::Pending {
        retry_after: Some(prost_types::Duration::try_from(retry_after).unwrap()),
        step: "associate address".to_owned(),
        reason: reason.to_owned(),
        text: text.to_owned(),
    }
}

/// A load balancer that is gone.
pub(crate) fn deleted() -> v1::DeleteLoadBalancerResponse {
    v1::DeleteLoadBalancerResponse {
        outcome: Some(delete_load_balancer_response::Outcome::Settled(
            v1::DeleteSettled {
                released: vec!["192.0.2.1".to_owned()],
                kept: Vec::new(),
                changes: 1,
            },
        )),
        notes: Vec::new(),
    }
}

/// A machine that nothing is known of.
pub(crate) fn unknown(text: &str) -> v1::InstanceResult {
    let unknown = v1::UnknownReason {
        why: v1::unknown_reason::Why::NotFoundYet as i32,
        text: text.to_owned(),
    };
    v1::InstanceResult {
        presence: Some(instance_result::Presence::Unknown(unknown)),
        list_id: "list-1".to_owned(),
        observed_at: None,
    }
}

/// The part that gRPC holds. It does not keep the socket's directory alive.
struct Served(std::sync::Weak<Shared>);

/// A call that runs; the caller gave it up if this is dropped early.
struct Call {
    shared: Arc<Shared>,
    uid: String,
    ended: bool,
}

impl Shared {
    fn begin(self: &Arc<Self>, uid: &str, note: impl FnOnce(&mut Heard)) -> Call {
        let mut heard = self.heard.lock();
        note(&mut heard);
        *heard.running.entry(uid.to_owned()).or_default() += 1;
        heard.most_at_once_per_service = heard.most_at_once_per_service.max(heard.running[uid]);
        heard.most_at_once = heard.most_at_once.max(heard.running.values().sum());
        drop(heard);
        self.called();
        Call {
            shared: Arc::clone(self),
            uid: uid.to_owned(),
            ended: false,
        }
    }

    fn called(&self) {
        self.calls.send_modify(|count| *count += 1);
    }

    /// The work of a call that begins now: what the script says later does not change it.
    fn work(&self) -> impl Future<Output = ()> + use<> {
        let (pace, stuck) = {
            let script = self.script.lock();
            (script.pace, script.stuck)
        };
        async move {
            if stuck {
                std::future::pending::<()>().await;
            }
            tokio::time::sleep(pace).await;
        }
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        let mut heard = self.shared.heard.lock();
        *heard.running.get_mut(&self.uid).unwrap() -= 1;
        if !self.ended {
            heard.abandoned += 1;
        }
        drop(heard);
        self.shared.called();
    }
}

impl Served {
    fn shared(&self) -> Result<Arc<Shared>, Status> {
        self.0.upgrade().ok_or_else(|| Status::unavailable("gone"))
    }
}

#[tonic::async_trait]
impl CloudBroker for Served {
    async fn describe(
        &self,
        _: Request<v1::DescribeRequest>,
    ) -> Result<Response<v1::DescribeResponse>, Status> {
        Ok(Response::new(self.shared()?.script.lock().description.clone()))
    }

    async fn lookup_instances(
        &self,
        request: Request<v1::LookupInstancesRequest>,
    ) -> Result<Response<v1::LookupInstancesResponse>, Status> {
        let shared = self.shared()?;
        let request = request.into_inner();
        let lookup = Arc::clone(&shared.script.lock().lookup);
        let results = request.keys.iter().map(|key| lookup(key)).collect();
        shared.heard.lock().lookups.push(request);
        shared.called();
        Ok(Response::new(v1::LookupInstancesResponse { results }))
    }

    async fn ensure_load_balancer(
        &self,
        request: Request<v1::EnsureLoadBalancerRequest>,
    ) -> Result<Response<v1::EnsureLoadBalancerResponse>, Status> {
        let shared = self.shared()?;
        let request = request.into_inner();
        let uid = request.r#ref.as_ref().unwrap().uid.clone();
        let work = shared.work();
        let mut call = shared.begin(&uid, |heard| heard.ensures.push(request.clone()));
        work.await;
        let ensure = Arc::clone(&shared.script.lock().ensure);
        call.ended = true;
        Ok(Response::new(ensure(&request)?))
    }

    async fn delete_load_balancer(
        &self,
        request: Request<v1::DeleteLoadBalancerRequest>,
    ) -> Result<Response<v1::DeleteLoadBalancerResponse>, Status> {
        let shared = self.shared()?;
        let request = request.into_inner();
        let uid = request.r#ref.as_ref().unwrap().uid.clone();
        let work = shared.work();
        let mut call = shared.begin(&uid, |heard| heard.deletes.push(request.clone()));
        work.await;
        let delete = Arc::clone(&shared.script.lock().delete);
        call.ended = true;
        Ok(Response::new(delete(&request)?))
    }

    async fn plan_load_balancer(
        &self,
        _: Request<v1::PlanLoadBalancerRequest>,
    ) -> Result<Response<v1::PlanLoadBalancerResponse>, Status> {
        Err(Fault::unimplemented("PlanLoadBalancer").into())
    }

    async fn list_load_balancers(
        &self,
        _: Request<v1::ListLoadBalancersRequest>,
    ) -> Result<Response<v1::ListLoadBalancersResponse>, Status> {
        Ok(Response::new(v1::ListLoadBalancersResponse::default()))
    }
}
