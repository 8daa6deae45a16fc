//! Writes events, one after the other, with patience.

use std::time::Duration;

use k8s_openapi::api::core::v1::{Event, EventSource};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use kube::api::{Api, Patch, PatchParams, PostParams};
use kube::{Client, Error};
use runtime::clock;
use runtime::host::Host;
use serde_json::json;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::correlate::{Correlator, Write};
use super::{Happening, Recorder};
use crate::apiserver::{self, Explained as _, timestamp};
use crate::metrics::Metrics;

/// Attempts before an event is given up.
const ATTEMPTS: u32 = 12;
/// Time between two attempts.
const PAUSE: Duration = Duration::from_secs(10);

/// Writes what recorders take.
#[derive(Debug)]
pub struct Writer {
    taken: mpsc::Receiver<Happening>,
    correlator: Correlator,
    metrics: Metrics,
}

impl Writer {
    pub(super) fn new(taken: mpsc::Receiver<Happening>, metrics: Metrics) -> Self {
        Self {
            taken,
            correlator: Correlator::default(),
            metrics,
        }
    }

    /// Writes until `stop`, then what still waits, once each, and returns. May be called again for what came since.
    pub async fn run(&mut self, host: &Host, client: &Client, stop: CancellationToken) {
        while let Some(Some(happening)) = stop.run_until_cancelled(self.taken.recv()).await {
            self.write(host, client, happening, &stop).await;
        }
        while let Ok(happening) = self.taken.try_recv() {
            self.write(host, client, happening, &stop).await;
        }
    }

    /// An event whose writing panics is one that is lost, and no more than that.
    async fn write(&mut self, host: &Host, client: &Client, happening: Happening, stop: &CancellationToken) {
        let object = happening.subject.name.clone();
        let work = self.write_one(client, happening, stop);
        if host.contain_on("events", &object, work).await.is_none() {
            self.metrics.event_dropped();
        }
    }

    async fn write_one(&mut self, client: &Client, happening: Happening, stop: &CancellationToken) {
        match self.correlator.judge(happening, clock::now()) {
            Write::Drop => self.metrics.event_dropped(),
            Write::Create(happening) => self.create(client, &happening, stop).await,
            Write::Repeat {
                name,
                count,
                happening,
            } => {
                let events: Api<Event> = Api::namespaced(client.clone(), happening.subject.event_namespace());
                let patch =
                    json!({ "count": count, "lastTimestamp": Time(timestamp()), "message": happening.text });
                let (params, patch) = (PatchParams::default(), Patch::Strategic(&patch));
                let patched = patiently(stop, || events.patch(&name, &params, &patch)).await;
                match patched {
                    Ok(_) => {}
                    // Events are kept for an hour only.
                    Err(error) if apiserver::is_not_found(&error) => {
                        self.create(client, &happening, stop).await;
                    }
                    Err(error) => self.give_up(&happening, &error, "patch"),
                }
            }
        }
    }

    async fn create(&mut self, client: &Client, happening: &Happening, stop: &CancellationToken) {
        let events: Api<Event> = Api::namespaced(client.clone(), happening.subject.event_namespace());
        let event = event(happening);
        let params = PostParams::default();
        match patiently(stop, || events.create(&params, &event)).await {
            Ok(_) => {
                let name = event.metadata.name.clone().unwrap_or_default();
                self.correlator.written(happening, name, clock::now());
            }
            Err(error) => self.give_up(happening, &error, "create"),
        }
    }

    fn give_up(&self, happening: &Happening, error: &Error, verb: &str) {
        self.metrics.event_dropped();
        tracing::warn!(
            object = %happening.subject.name,
            reason = %happening.reason.word,
            fault = %error.explain(verb, "events"),
            "an event was not written"
        );
    }
}

/// Tries again while kube-apiserver is away; what it refuses stays refused.
async fn patiently<T, F>(stop: &CancellationToken, attempt: impl Fn() -> F) -> Result<T, Error>
where
    F: Future<Output = Result<T, Error>>,
{
    let mut left = ATTEMPTS;
    loop {
        left = left.saturating_sub(1);
        match attempt().await {
            Ok(done) => return Ok(done),
            Err(error) => {
                let refused = apiserver::code(&error).is_some_and(|code| code < 500 && code != 429);
                if refused || left == 0 || stop.is_cancelled() {
                    return Err(error);
                }
            }
        }
        stop.run_until_cancelled(tokio::time::sleep(PAUSE)).await;
    }
}

fn event(happening: &Happening) -> Event {
    let (subject, now) = (&happening.subject, Time(timestamp()));
    let component = happening.component.name().to_owned();
    Event {
        metadata: ObjectMeta {
            name: Some(format!("{}.{:x}", subject.name, clock::unix().as_nanos())),
            namespace: Some(subject.event_namespace().to_owned()),
            ..ObjectMeta::default()
        },
        involved_object: subject.reference(),
        type_: Some(happening.reason.kind.word().to_owned()),
        reason: Some(happening.reason.word.clone().into_owned()),
        message: Some(happening.text.clone()),
        source: Some(EventSource {
            component: Some(component.clone()),
            host: None,
        }),
        reporting_component: Some(component),
        count: Some(1),
        first_timestamp: Some(now.clone()),
        last_timestamp: Some(now),
        ..Event::default()
    }
}

impl Recorder {
    /// A recorder whose events nobody writes.
    pub fn discarding() -> Self {
        Self::new(Metrics::default()).0
    }
}
