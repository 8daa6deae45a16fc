//! The service controller: one load balancer for every Service that asks for one.
//!
//! | file | duty |
//! | --- | --- |
//! | [`texts`] | how texts for people are cut and compared |
//! | [`annotations`] | the table of annotations, and their strict reading |
//! | [`intent`] | which Services are ours, and what one wants |
//! | [`choice`] | which backend serves it |
//! | [`members`] | which nodes are members |
//! | [`fingerprint`] | whether anything that matters has changed |
//! | [`ledger`] | what is remembered of a Service, and whether it is news |
//! | [`trim`] | what is kept of a Service |
//! | [`status`] | what is written on a Service |
//! | [`backend`] | what a backend is |
//! | [`broker_backend`] | the backend whose load balancers the cloud has |
//! | [`sync`] | one look at one Service |
//! | [`orphans`] | load balancers that no Service asks for |
//! | [`controller`] | who is woken by what |
//!
//! The files down to `status` are pure. What a load balancer is in the cloud, and how its address is found, is the broker's
//! business.

pub mod annotations;
pub mod backend;
pub mod broker_backend;
pub mod choice;
pub mod controller;
pub mod fingerprint;
pub mod intent;
pub mod ledger;
pub mod members;
pub mod orphans;
pub mod status;
pub mod sync;
pub mod texts;
pub mod trim;

use std::sync::Arc;

use proto::v1::Dialect;

use self::backend::{BackendName, Backends};
use self::broker_backend::BrokerBackend;
use self::choice::Running;
use self::controller::Pace;
use self::intent::Rules;
use crate::context::Context;
use crate::keepalived;

/// Starts the service controller as the command line says.
pub fn start(context: &Arc<Context>) {
    let settings = &context.settings;
    let running = match (&context.broker, &settings.keepalived) {
        (Some(_), Some(_)) => Running::Both,
        (Some(_), None) => Running::One(BackendName::Cloud),
        (None, Some(_)) => Running::One(BackendName::Keepalived),
        (None, None) => {
            tracing::info!("no broker is configured, so Services are left alone");
            return;
        }
    };
    let dialect = Dialect {
        kind: settings.provider.dialect().into(),
        cluster_name: settings.cluster_name.clone(),
    };
    let backends = Backends {
        cloud: context.broker.clone().map(BrokerBackend::new),
        keepalived: settings
            .keepalived
            .clone()
            .map(|settings| keepalived::start(context, settings, running)),
    };
    controller::start(context, Rules { running, dialect }, backends, Pace::default());
}
