//! The half that faces `CloudStack`: it holds the API keys, keeps the rate under the account's limit, answers questions about
//! machines and makes load balancers real. It knows no Kubernetes object.
//!
//! | module | decides |
//! | --- | --- |
//! | [`args`] | what the command line means |
//! | [`config`] | what the configuration file means, and when it is read again |
//! | [`load_balancer`] | what of a balancer is made, changed and released |
//! | [`tenant`] | who is calling, and what that allows |
//! | [`directory`] | which tenants are served, and which account each of them uses |
//! | [`rpc`] | how calls of agents are served |
//! | [`instances`] | where the machines behind nodes are |
//! | [`describe`] | what a doctor would say |
//! | [`cloudstack`] | how `CloudStack`'s API is spoken: signing, paging, jobs, budget, errors |
//! | [`reasons`] | nothing: what the reason words of balancers mean, for the documentation |
//! | `words` | which words of calls are too long or too odd to be kept |
//! | [`metrics`] | the names of everything that is counted |

pub mod args;
pub mod cloudstack;
pub mod config;
pub mod describe;
pub mod directory;
pub mod instances;
pub mod load_balancer;
pub mod metrics;
pub mod reasons;
pub mod rpc;
pub mod tenant;
mod words;

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Context as _;
use runtime::host::Host;
use runtime::link::LinkServer;
use runtime::tls::{ClientAuth, ServerFiles, ServerTls};

use crate::args::Args;
use crate::cloudstack::Pace;
use crate::config::{Config, ConfigError, Loaded};
use crate::directory::{Directory, Surroundings};
use crate::metrics::Metrics;
use crate::rpc::{Broker, Settings, Tenants};

/// The broker from its start to its end.
pub async fn run(host: Host, args: Args) -> anyhow::Result<()> {
    run_at(host, args, Pace::REAL).await
}

/// The same with other waits than the usual ones, for tests.
pub async fn run_at(host: Host, args: Args, pace: Pace) -> anyhow::Result<()> {
    let ready = host.gate("listening");
    let path = args.cloud_config.clone().context("--cloud-config is missing")?;
    let loaded = config::load(&path);
    let config = loaded.config.clone()?;
    let metrics = Metrics::default();
    host.metrics(|registry| metrics.register(registry));
    metrics.config.is_good();
    let surroundings = Surroundings {
        host: host.clone(),
        metrics: metrics.clone(),
        pace,
        drift_period: args.drift_period(),
        tighten_on_adopt: args.tighten_on_adopt,
    };
    let directory = Arc::new(Directory::new(surroundings, &config)?);
    reload(
        &host,
        (path, loaded),
        Arc::clone(&directory),
        metrics.clone(),
        pace,
    );
    runtime::admin::serve(&host, &args.endpoint(), args::SECURE_PORT).await?;
    configz(&host, &args, Arc::clone(&directory));
    serve(&host, &args, Arc::clone(&directory), metrics.clone()).await?;
    ready.open();
    host.spawn(
        "survey",
        describe::watch(host.clone(), directory, metrics.config, pace),
    );
    host.shutdown().cancelled().await;
    Ok(())
}

/// Tells a change of the configuration to the directory, or what is wrong with it to people.
fn reload(
    host: &Host,
    (path, loaded): (PathBuf, Loaded),
    directory: Arc<Directory>,
    metrics: Metrics,
    pace: Pace,
) {
    let contain = host.clone();
    let apply = move |change: Result<Config, ConfigError>| {
        let applied = change.map_err(anyhow::Error::from).and_then(|config| {
            let applied = contain.contained("config-reload", || directory.apply(&config));
            Ok(applied.context("it can't be taken over; this is a fault of the broker")??)
        });
        metrics.config.reloaded(applied.is_ok());
        match applied {
            Ok(()) => tracing::info!("the changed configuration is in use"),
            Err(error) => {
                for fault in error.to_string().lines() {
                    tracing::error!(%fault, "the changed configuration is not used, the one before is");
                }
            }
        }
    };
    host.spawn(
        "config-reload",
        config::watch(host.clone(), path, loaded, pace.of(config::PERIOD), apply),
    );
}

/// Listens for agents. Ready as soon as they can connect: what the cloud does is told by the answers.
async fn serve(host: &Host, args: &Args, directory: Arc<Directory>, metrics: Metrics) -> anyhow::Result<()> {
    let settings = Settings {
        drift_period: args.drift_period(),
        certificate: args.admin.tls_cert_file.clone(),
    };
    let authorizer = Arc::new(Tenants::new(Arc::clone(&directory), metrics.clone()));
    let broker = Broker::new(host.clone(), directory, metrics, settings);
    let routes = rpc::routes(broker, args.reflection).await?;
    let server = LinkServer {
        tls: link_tls(host, args)?,
        allow_uids: args.allow_uid.clone(),
        authorizer,
        ..LinkServer::new(args.listen.clone())
    };
    runtime::link::serve(host, server, routes).await?;
    for address in &args.listen {
        tracing::info!(%address, "listening for agents");
    }
    Ok(())
}

/// Certificates for TCP; agents always need one, too.
fn link_tls(host: &Host, args: &Args) -> anyhow::Result<Option<ServerTls>> {
    let Some(address) = args.tcp() else {
        return Ok(None);
    };
    let needs =
        || format!("--listen {address} needs --tls-cert-file, --tls-private-key-file and --client-ca-file");
    let files = ServerFiles {
        certificate: args.admin.tls_cert_file.clone().with_context(needs)?,
        private_key: args.admin.tls_private_key_file.clone().with_context(needs)?,
        client_auth: ClientAuth::Required(args.admin.client_ca_file.clone().with_context(needs)?),
    };
    let tls = ServerTls::load(files, &[b"h2"])?;
    tls.watch(host);
    Ok(Some(tls))
}

/// What is in use, without anything secret.
fn configz(host: &Host, args: &Args, directory: Arc<Directory>) {
    let listen: Vec<String> = args.listen.iter().map(ToString::to_string).collect();
    let (drift, tighten) = (args.drift_period.to_string(), args.tighten_on_adopt);
    host.configz("broker", move || {
        let clusters = directory.served().into_iter().map(|served| {
            let tenant = &served.tenant;
            let value = serde_json::json!({
                "apiUrl": served.access.url.as_str(),
                "account": served.shared.cloud.name(),
                "identities": served.identities,
                "uids": tenant.uids.iter().map(ToString::to_string).collect::<Vec<_>>(),
                "project": tenant.scope.project.as_ref().map(ToString::to_string),
                "zones": tenant.scope.zones.iter().map(ToString::to_string).collect::<Vec<_>>(),
                "networks": tenant.scope.networks.iter().map(ToString::to_string).collect::<Vec<_>>(),
                "machines": tenant.scope.machines.to_string(),
                "memberPorts": [tenant.policy.member_ports.first(), tenant.policy.member_ports.last()],
                "maxPublicIps": tenant.policy.max_public_ips,
                "addressSharing": tenant.policy.address_sharing.word(),
                "takeOver": tenant.policy.take_over,
                "share": tenant.policy.share.get(),
                "vmCacheTtlSeconds": served.machines_ttl.as_secs_f64(),
            });
            (tenant.cluster.to_string(), value)
        });
        let clusters: serde_json::Map<String, serde_json::Value> = clusters.collect();
        serde_json::json!({ "listen": listen, "driftPeriod": drift, "tightenOnAdopt": tighten, "clusters": clusters })
    });
}
