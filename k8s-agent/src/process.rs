//! How the process comes up, works and goes down.
//!
//! Up: endpoint, clients, election, and the broker's description, in parallel; watches and controllers only after this process leads. Down: no new work, what
//! runs is finished, events are written, and only then the lease is given up, so that the next leader finds nothing half done; that it is given up is the last event.
//! Whatever may heal is waited for with one line that says so; only a wrong command line and a lost lease end the process.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use kube::Api;
use runtime::clock;
use runtime::host::Host;
use runtime::link::{Brokers, Link};
use runtime::tls::ClientTls;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use uuid::Uuid;

use crate::apiserver::Clients;
use crate::args::{Controller, ElectionSettings, SECURE_PORT, Settings};
use crate::broker::Broker;
use crate::cluster;
use crate::context::Context;
use crate::election::{Election, Ended, Leadership, Throne};
use crate::events::{Recorder, Writer};
use crate::lease::{Candidate, Fence};
use crate::metrics::Metrics;
use crate::node::machines::Machines;
use crate::node::{init, monitor, refresh};
use crate::service::backend::BackendName;
use crate::service::choice::Running;
use crate::watch::Watch;

/// Work at hand may go on for this long after a signal. What is left of the pod's grace period is for events and the lease.
const DRAIN: Duration = Duration::from_secs(12);
/// Events that still wait are written within this time.
const FLUSH: Duration = Duration::from_secs(3);
/// The same for what the end of the election tells.
const LAST_WORDS: Duration = Duration::from_secs(1);
/// A leader that did not renew for this much longer than the lease is stuck.
const STUCK: Duration = Duration::from_secs(20);

/// What ends one after the other on the way down.
#[derive(Clone, Default)]
struct Stages {
    /// No more events come.
    flush: CancellationToken,
    /// All events are written.
    flushed: CancellationToken,
    /// The lease may be given up.
    release: CancellationToken,
    /// The lease is lost: nothing may be finished.
    lost: CancellationToken,
    /// The election is over.
    over: CancellationToken,
}

/// Runs until the host shuts down.
pub async fn run(host: Host, settings: Settings) -> anyhow::Result<()> {
    let metrics = Metrics::default();
    let clients = settings.access.clients(&metrics).await?;
    if let Some(keepalived) = settings
        .keepalived
        .as_ref()
        .filter(|keepalived| keepalived.dry_run)
    {
        let alone = Running::One(BackendName::Keepalived);
        let running = settings.broker.as_ref().map_or(alone, |_| Running::Both);
        return crate::keepalived::print_dry_run(clients.work, keepalived, running).await;
    }
    Box::pin(run_with(host, settings, clients, metrics)).await
}

/// The same with clients that are there already.
pub async fn run_with(
    host: Host,
    settings: Settings,
    clients: Clients,
    metrics: Metrics,
) -> anyhow::Result<()> {
    host.metrics(|registry| metrics.register(registry));
    let described = settings.describe();
    host.configz("k8s-agent", move || described.clone());
    if let Some(address) = runtime::admin::serve(&host, &settings.admin, SECURE_PORT).await? {
        tracing::info!(%address, "health and metrics are served");
    }
    let process_id = Uuid::new_v4().to_string();
    let (events, writer) = Recorder::new(metrics.clone());
    let (throne, leadership) = Leadership::contested();
    check_election(&host, &leadership);
    let broker = connect(&host, &settings, (&leadership, &metrics, &process_id))?;
    let election = settings.election.clone();
    let candidate = (
        election,
        process_id,
        clients.clone(),
        throne,
        events.clone(),
        metrics.clone(),
    );
    let work = clients.work.clone();
    let context = Arc::new(Context {
        host: host.clone(),
        settings,
        client: clients.work,
        nodes: Watch::default(),
        services: Watch::default(),
        broker,
        machines: Machines::default(),
        events,
        metrics,
        leadership,
        work: TaskTracker::new(),
    });
    let stages = Stages::default();
    tokio::join!(
        hold_office(&host, candidate, &stages),
        write_events(&host, writer, work, &stages),
        lead_and_drain(context, &stages),
    );
    Ok(())
}

fn connect(
    host: &Host,
    settings: &Settings,
    (leadership, metrics, process_id): (&Leadership, &Metrics, &str),
) -> anyhow::Result<Option<Broker>> {
    let Some(broker) = &settings.broker else {
        return Ok(None);
    };
    let tls = broker.files.clone().map(ClientTls::load).transpose()?;
    let brokers = Brokers {
        addresses: broker.addresses.clone(),
        tls,
        uids: broker.uids.clone(),
    };
    let link = Link::connect_to(host, brokers);
    Ok(Some(Broker::new(
        link,
        leadership.clone(),
        metrics.clone(),
        process_id.to_owned(),
    )))
}

/// A leader that neither renews nor ends is stuck; a follower is well.
fn check_election(host: &Host, leadership: &Leadership) {
    let leadership = leadership.clone();
    host.health()
        .check("leaderElection", move || match leadership.overdue() {
            Some(overdue) if overdue > STUCK => Err(format!(
                "the lease ran out {} s ago and the process did not end",
                overdue.as_secs()
            )),
            _ => Ok(()),
        });
}

type Office = (
    Option<ElectionSettings>,
    String,
    Clients,
    Throne,
    Recorder,
    Metrics,
);

/// Gets the lease and keeps it; without election the process leads from its start.
async fn hold_office(host: &Host, office: Office, stages: &Stages) {
    let (settings, process_id, clients, throne, events, metrics) = office;
    let Some(ElectionSettings {
        namespace,
        name,
        timing,
    }) = settings
    else {
        let transitions = u64::try_from(clock::unix().as_millis()).unwrap_or(u64::MAX);
        tracing::info!("this process acts without leader election; be sure that no other one does");
        throne.lead(
            Fence {
                lease_uid: process_id,
                transitions,
            },
            None,
        );
        stages.release.cancelled().await;
        throne.end();
        stages.over.cancel();
        return;
    };
    let identity = format!("{}_{process_id}", hostname());
    let election = Election {
        leases: Api::<Lease>::namespaced(clients.lease, &namespace),
        candidate: Candidate::new(&namespace, &name, identity, timing),
        name,
        throne,
        events,
        metrics,
        host: host.clone(),
    };
    let ended = host
        .contain("leader-election", election.run(stages.release.clone()))
        .await;
    let why = match ended {
        Some(Ended::Stopped) => None,
        Some(Ended::Lost(why)) => Some(format!("the lease is lost: {why}")),
        // Nobody renews it any more.
        None => Some("the leader election panicked; this is a fault of the program".to_owned()),
    };
    stages.over.cancel();
    if let Some(why) = why {
        stages.lost.cancel();
        host.fail(why);
    }
}

/// The name of this machine, or of the pod.
fn hostname() -> String {
    let read = |path| std::fs::read_to_string(path).ok();
    let name = read("/proc/sys/kernel/hostname")
        .or_else(|| read("/etc/hostname"))
        .unwrap_or_default();
    Some(name.trim())
        .filter(|name| !name.is_empty())
        .unwrap_or("k8s-agent")
        .to_owned()
}

async fn write_events(host: &Host, mut writer: Writer, client: kube::Client, stages: &Stages) {
    writer.run(host, &client, stages.flush.clone()).await;
    stages.flushed.cancel();
    stages.over.cancelled().await;
    let last = writer.run(host, &client, stages.flush.clone());
    if tokio::time::timeout(LAST_WORDS, last).await.is_err() {
        tracing::warn!("the event of the end of the election was not written");
    }
}

async fn lead_and_drain(context: Arc<Context>, stages: &Stages) {
    let stop = context.stop();
    let identified = CancellationToken::new();
    start_describing(&context, identified.clone());
    let led = async {
        identified.cancelled().await;
        context.leadership.begun().await;
        start_work(&context).await;
    };
    stop.run_until_cancelled(led).await;
    stop.cancelled().await;
    context.work.close();
    let idle = async {
        tokio::select! {
            () = context.work.wait() => {}
            () = stages.lost.cancelled() => {}
        }
    };
    if tokio::time::timeout(DRAIN, idle).await.is_err() {
        tracing::warn!("some work is not finished; the next leader takes it up");
    }
    stages.flush.cancel();
    if tokio::time::timeout(FLUSH, stages.flushed.cancelled())
        .await
        .is_err()
    {
        tracing::warn!("some events were not written");
    }
    stages.release.cancel();
}

/// Finds out which cluster this is, then asks the broker how things stand, also while another process leads: so a standby that could not work is not ready.
fn start_describing(context: &Arc<Context>, identified: CancellationToken) {
    let kubernetes = context.host.gate("kube-apiserver");
    let ready = context.broker.as_ref().map(|_| context.host.gate("broker"));
    let describing = Arc::clone(context);
    context.keep("describe", move || {
        let context = Arc::clone(&describing);
        let (kubernetes, ready, identified) = (kubernetes.clone(), ready.clone(), identified.clone());
        async move {
            let stop = context.stop();
            let uid = cluster::uid(&context.client, &kubernetes);
            let Some(uid) = stop.run_until_cancelled(uid).await else {
                return;
            };
            let is_known = uid.is_some();
            if let (Some(broker), Some(uid)) = (&context.broker, uid) {
                broker.set_cluster_uid(uid);
            }
            identified.cancel();
            if let (Some(broker), Some(ready)) = (&context.broker, ready) {
                let late = async {
                    if !is_known {
                        broker.set_cluster_uid(cluster::late_uid(&context.client).await);
                    }
                };
                let describing = broker.keep_describing(ready, stop.clone());
                tokio::join!(stop.run_until_cancelled(late), describing);
            }
        }
    });
}

/// Watches, and starts the controllers as soon as everything has been seen once.
async fn start_work(context: &Arc<Context>) {
    let stop = context.stop();
    let (nodes, services, client) = (
        context.nodes.clone(),
        context.services.clone(),
        context.client.clone(),
    );
    let (node_api, service_api) = (Api::all(client.clone()), Api::all(client));
    let node_stop = stop.clone();
    context.keep("watch-nodes", move || {
        let (nodes, api, stop) = (nodes.clone(), node_api.clone(), node_stop.clone());
        async move { nodes.run(api, stop).await }
    });
    context.keep("watch-services", move || {
        let (services, api, stop) = (services.clone(), service_api.clone(), stop.clone());
        async move { services.run(api, stop).await }
    });
    context.nodes.synced().await;
    start_node_controllers(context);
    context.services.synced().await;
    if context
        .settings
        .controllers
        .iter()
        .any(|controller| controller == Controller::Service)
    {
        crate::service::start(context);
    }
}

fn start_node_controllers(context: &Arc<Context>) {
    let Some(broker) = &context.broker else {
        tracing::info!("no broker is configured, so nodes are left alone");
        return;
    };
    for controller in context.settings.controllers.iter() {
        match controller {
            Controller::Node => {
                init::start(context, broker, init::Pace::default());
                refresh::start(context, broker);
            }
            Controller::NodeLifecycle => monitor::start(context, broker),
            Controller::Route => {
                tracing::info!("routes are not offered, so node-route-controller does not run");
                continue;
            }
            Controller::Service => continue,
        }
        context.metrics.controller_runs(controller.alias());
    }
}
