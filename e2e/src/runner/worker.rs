//! One lane of the run: scenarios one after the other, in a cluster that is emptied between them.

use std::any::Any;
use std::collections::VecDeque;
use std::panic::AssertUnwindSafe;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use futures::FutureExt as _;
use parking_lot::Mutex;
use tokio::sync::oneshot;

use super::report::say;
use super::{Job, Layer, Outcome, Results, Skip};
use crate::cloud::{Cloud, Found, Router, Server, Simulator, SimulatorOptions};
use crate::cluster::Cluster;
use crate::rbac::{self, Account};
use crate::settings::{Settings, on_path};
use crate::wait;
use crate::world::World;

/// How long one scenario may take; an hour where everything is wanted.
const LIMIT: Duration = Duration::from_mins(10);

/// Runs scenarios one after the other in a cluster of its own.
pub(super) struct Worker {
    pub(super) settings: Settings,
    pub(super) index: usize,
    pub(super) results: Results,
}

impl Worker {
    pub(super) async fn simulated(self, queue: Arc<Mutex<VecDeque<Job>>>) -> Result<()> {
        let mut place = None;
        let haproxy = on_path("haproxy");
        loop {
            let Some(job) = queue.lock().pop_front() else {
                return Ok(());
            };
            if job.scenario.layer == Layer::Data && haproxy.is_none() {
                self.book(
                    job,
                    Outcome::Skipped(Skip::missing("haproxy is not installed")),
                    Duration::ZERO,
                );
                continue;
            }
            let router = (job.scenario.layer == Layer::Data).then_some(Router { range: self.index });
            let dir = self
                .settings
                .dir()
                .join("simulators")
                .join(self.index.to_string());
            let options = SimulatorOptions {
                router,
                ..SimulatorOptions::default()
            };
            let begun = wait::now();
            let outcome = match Simulator::start(&self.settings, &dir, options).await {
                Ok(simulator) => {
                    self.one(&job, Cloud::simulated(simulator).await, &mut place)
                        .await
                }
                Err(error) => Outcome::Failed(format!("{error:#}")),
            };
            self.book(job, outcome, begun.elapsed());
        }
    }

    pub(super) async fn real(self, jobs: VecDeque<Job>, begin: oneshot::Receiver<()>) -> Result<()> {
        if jobs.is_empty() {
            return Ok(());
        }
        let outcome: fn(String) -> Outcome = match self.server().await {
            Ok(Found::Server(server)) => {
                begin.await?;
                return self.on(&server, jobs).await;
            }
            Ok(Found::Missing(why)) => {
                say(&why);
                |why| Outcome::Skipped(Skip::missing(why))
            }
            Err(error) => {
                say(&format!("{error:#}"));
                Outcome::Failed
            }
        };
        for job in jobs {
            self.book(
                job,
                outcome("there is no real CloudStack, see above".into()),
                Duration::ZERO,
            );
        }
        Ok(())
    }

    /// The real server in its base state.
    async fn server(&self) -> Result<Found> {
        let found = Server::find(&self.settings).await?;
        if let Found::Server(server) = &found {
            server.reset().await?;
        }
        Ok(found)
    }

    async fn on(&self, server: &Server, jobs: VecDeque<Job>) -> Result<()> {
        let mut place = None;
        for job in jobs {
            let begun = wait::now();
            let outcome = self.one(&job, Cloud::real(server).await, &mut place).await;
            if matches!(outcome, Outcome::Failed(_)) {
                server.reset().await?;
            }
            self.book(job, outcome, begun.elapsed());
        }
        server.down().await
    }

    /// One scenario in the worker's cluster, which is renewed after a failure.
    async fn one(
        &self,
        job: &Job,
        cloud: Result<Cloud>,
        place: &mut Option<(Arc<Cluster>, Account)>,
    ) -> Outcome {
        let prepared = async {
            let cloud = cloud?;
            let (cluster, account) = match place.take() {
                Some((cluster, account)) => (cluster, account),
                None => self.cluster().await?,
            };
            cluster.clear().await.context("emptying the cluster")?;
            *place = Some((Arc::clone(&cluster), account.clone()));
            let mut name = format!("{}-{}", job.scenario.name, job.kind);
            if job.round > 0 {
                name = format!("{name}-{}", job.round);
            }
            World::new(&self.settings, cluster, account, cloud, &name).await
        };
        let mut world = match prepared.await {
            Ok(world) => world,
            Err(error) => return Outcome::Failed(format!("preparing: {error:#}")),
        };
        // A panic is a failure of this scenario, not of those that come after it.
        let run = AssertUnwindSafe((job.scenario.run)(&mut world)).catch_unwind();
        let limit = if self.settings.is_full() { LIMIT * 6 } else { LIMIT };
        let run = tokio::time::timeout(limit, run).await;
        let run = run.map(|ended| ended.unwrap_or_else(|panic| Err(panicked(&*panic))));
        let run = run.unwrap_or_else(|_| Err(anyhow::anyhow!("it took longer than {limit:?}")));
        let result = match run {
            Ok(()) => after(&world).await,
            Err(error) => Err(error),
        };
        if let Some(simulator) = &mut world.cloud.simulator {
            // Its router's processes end with it only when it is asked to.
            simulator.stop().await.ok();
        }
        match result {
            Ok(()) => Outcome::Passed,
            Err(error) => match error.downcast::<Skip>() {
                Ok(skip) => Outcome::Skipped(skip),
                Err(error) => {
                    *place = None;
                    Outcome::Failed(format!("{error:#}\n{}", world.report()))
                }
            },
        }
    }

    async fn cluster(&self) -> Result<(Arc<Cluster>, Account)> {
        let number = uuid::Uuid::new_v4().simple().to_string();
        let dir = self
            .settings
            .dir()
            .join("clusters")
            .join(format!("{}-{}", self.index, &number[..8]));
        forget(&dir)?;
        let cluster = Cluster::start(&dir).await?;
        let account = rbac::apply(&cluster).await?;
        Ok((Arc::new(cluster), account))
    }

    fn book(&self, job: Job, outcome: Outcome, took: Duration) {
        let word = match &outcome {
            Outcome::Passed => "ok".to_owned(),
            Outcome::Failed(_) => "FAILED".to_owned(),
            Outcome::Skipped(skip) => format!("SKIPPED: {skip}"),
        };
        say(&format!(
            "test {} ... {word} ({:.1} s)",
            job.title(),
            took.as_secs_f32()
        ));
        self.results.lock().push((job, outcome));
    }
}

/// What holds after every scenario.
async fn after(world: &World) -> Result<()> {
    world.no_secrets_printed()?;
    world.nothing_left().await
}

fn panicked(panic: &(dyn Any + Send)) -> anyhow::Error {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
    anyhow::anyhow!("it panicked: {}", text.unwrap_or_default())
}

fn forget(dir: &Path) -> Result<()> {
    if dir.exists() {
        std::fs::remove_dir_all(dir)?;
    }
    Ok(())
}
