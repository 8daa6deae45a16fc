//! The second backend: an address from a pool, announced by keepalived.
//!
//! Decides which address a Service has and writes it to the ConfigMap that kube-keepalived-vip reads; it needs no
//! broker and no cloud. Leaves the Service's life cycle (finalizer, status, events, retries) to the service
//! controller. The ConfigMap stays readable and writable by keepalived-cloud-provider.
//!
//! | file | duty |
//! | --- | --- |
//! | [`settings`], [`pools_file`], [`selector`] | what the process is told |
//! | [`address`], [`pool`] | addresses, and who may have which |
//! | [`method`], [`document`], [`config_map`] | the formats: forward methods, records, entries, patches |
//! | [`claim`], [`ownership`], [`allocation`], [`notes`] | Services in, plan and words out |
//! | [`repairs`], [`desk`] | what is remembered: fights over entries, who waits for what |
//! | [`store`], [`backend`], [`meter`] | the shell: ConfigMap, passes, metrics |
//! | [`dry_run`] | what a pass would do, as a text |
//! | [`render`] | what the consumer makes of the ConfigMap, for tests and demonstrations |
//!
//! All but the shell and the dry run are pure.

pub mod address;
pub mod allocation;
pub mod backend;
pub mod claim;
pub mod config_map;
pub mod desk;
pub mod document;
pub mod dry_run;
pub mod meter;
pub mod method;
pub mod notes;
pub mod ownership;
pub mod pool;
pub mod pools_file;
pub mod render;
pub mod repairs;
pub mod selector;
pub mod settings;
pub mod store;

pub use backend::Keepalived;
pub use settings::{KeepalivedArgs, KeepalivedSettings};

use std::io::Write as _;
use std::sync::Arc;

use self::backend::{Parts, Sources};
use self::meter::Meter;
use self::ownership::Owner;
use self::store::Store;
use crate::context::Context;
use crate::events::Component;
use crate::service::choice::Running;

/// Starts the backend: from now on the ConfigMap is kept right.
pub fn start(context: &Arc<Context>, settings: KeepalivedSettings, running: Running) -> Keepalived {
    settings.announce();
    let meter = Meter::default();
    context.host.metrics(|registry| meter.register(registry));
    let (services, nodes) = (context.services.clone(), context.nodes.clone());
    let keepalived = Keepalived::new(Parts {
        store: Store::new(context.client.clone(), &settings.namespace, &settings.config_map),
        settings,
        sources: Sources {
            services: Box::new(move || services.all()),
            nodes: Box::new(move || nodes.all()),
        },
        owner: Owner { running },
        leadership: context.leadership.clone(),
        events: context.events.of(Component::Service),
        meter,
    });
    let (keeper, stop) = (keepalived.clone(), context.stop());
    context.keep("keepalived", move || {
        let (keeper, stop) = (keeper.clone(), stop.clone());
        async move { keeper.keep(stop).await }
    });
    keepalived
}

/// Prints what would be written, and writes nothing.
pub async fn print_dry_run(
    client: kube::Client,
    settings: &KeepalivedSettings,
    running: Running,
) -> anyhow::Result<()> {
    let owner = Owner { running };
    let text = dry_run::dry_run(client, settings, owner).await?;
    std::io::stdout().write_all(text.as_bytes())?;
    Ok(())
}
