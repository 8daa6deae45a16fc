//! Runs scenarios: side by side on the simulator, one after the other on the real CloudStack, each in an empty cluster;
//! checks after each that nothing is left behind and no secret was printed; counts per layer and cloud.

use std::any::Any;
use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::panic::AssertUnwindSafe;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use clap::Parser;
use futures::FutureExt as _;
use futures::future::BoxFuture;
use parking_lot::Mutex;

use crate::cloud::{Cloud, Found, Kind, Router, Server, Simulator, SimulatorOptions};
use crate::cluster::Cluster;
use crate::rbac::{self, Account};
use crate::settings::{Settings, on_path};
use crate::wait;
use crate::world::World;

/// What a scenario is about, and with it where it can run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Layer {
    /// What is ordered from CloudStack: simulator and real CloudStack.
    Control,
    /// What packets do: simulator with HAProxy as its router.
    Data,
    /// What happens when something is broken: simulator.
    Fault,
    /// Addresses from a pool, announced by keepalived: the agent alone, no CloudStack at all.
    Pool,
}

impl fmt::Display for Layer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Control => "control",
            Self::Data => "data",
            Self::Fault => "fault",
            Self::Pool => "pool",
        })
    }
}

/// A scenario.
#[derive(Clone, Copy)]
pub struct Scenario {
    /// What it is about.
    pub layer: Layer,
    /// The module it stands in.
    pub module: &'static str,
    /// Its name, a sentence.
    pub name: &'static str,
    /// What it does.
    pub run: for<'a> fn(&'a mut World) -> BoxFuture<'a, Result<()>>,
}

impl fmt::Debug for Scenario {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

/// The scenarios of a module: `scenarios![Layer::Control; a_sentence, another_sentence]`.
#[macro_export]
macro_rules! scenarios {
    ($layer:expr; $($name:ident),* $(,)?) => {
        /// The scenarios of this module.
        pub(crate) fn all() -> Vec<$crate::runner::Scenario> {
            vec![$($crate::runner::Scenario {
                layer: $layer,
                module: module_path!(),
                name: stringify!($name),
                run: |world| Box::pin($name(world)),
            }),*]
        }
    };
}

/// Why a scenario could not run here; an error of a scenario that is this is a skip.
#[derive(Debug)]
pub struct Skip {
    why: String,
    excused: bool,
}

impl Skip {
    /// Something that ../shared or a package would bring: where ../shared is present this counts as a failure.
    pub fn missing(why: impl Into<String>) -> Self {
        Self {
            why: why.into(),
            excused: false,
        }
    }

    /// Something that this machine can't do at all.
    pub fn impossible(why: impl Into<String>) -> Self {
        Self {
            why: why.into(),
            excused: true,
        }
    }
}

impl fmt::Display for Skip {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.why)
    }
}

impl std::error::Error for Skip {}

/// How a scenario ended.
#[derive(Debug)]
enum Outcome {
    Passed,
    Failed(String),
    Skipped(Skip),
}

/// A scenario on a cloud.
#[derive(Debug, Clone)]
struct Job {
    scenario: Scenario,
    kind: Kind,
}

impl Job {
    fn title(&self) -> String {
        let module = self
            .scenario
            .module
            .split_once("::")
            .map_or("", |(_, module)| module);
        format!("{}::{}[{}]", module, self.scenario.name, self.kind)
    }
}

/// The runner's command line.
#[derive(Debug, Parser)]
struct Args {
    /// Only scenarios whose title contains one of these.
    filter: Vec<String>,
    /// Only this cloud: simulator or cloudstack.
    #[arg(long)]
    cloud: Option<String>,
    /// Print titles, run nothing.
    #[arg(long)]
    list: bool,
    /// How often to run each.
    #[arg(long, default_value_t = 1)]
    repeat: usize,
    /// Accepted for the sake of those who are used to it.
    #[arg(long, hide = true)]
    nocapture: bool,
}

/// How long one scenario may take; an hour where everything is wanted.
const LIMIT: Duration = Duration::from_mins(10);

/// Results as they come in.
type Results = Arc<Mutex<Vec<(Job, Outcome)>>>;

/// Runs what the command line asks for; true if all is well.
pub async fn run(scenarios: Vec<Scenario>) -> Result<bool> {
    let args = Args::parse();
    let settings = Settings::from_environment()?;
    let jobs = selected(&args, scenarios);
    if args.list {
        for job in &jobs {
            say(&job.title());
        }
        return Ok(true);
    }
    let results = Results::default();
    let (mut simulated, mut real) = (VecDeque::new(), VecDeque::new());
    for job in jobs {
        match job.kind {
            Kind::Simulator => simulated.push_back(job),
            Kind::CloudStack => real.push_back(job),
        }
    }
    crate::control_plane::binary().await?; // once, before everybody needs it
    let queue = Arc::new(Mutex::new(simulated));
    let workers = (0..settings.workers).map(|index| {
        let worker = Worker {
            settings: settings.clone(),
            index,
            results: Arc::clone(&results),
        };
        wait::spawn(worker.simulated(Arc::clone(&queue)))
    });
    let workers: Vec<_> = workers.collect();
    let worker = Worker {
        settings: settings.clone(),
        index: settings.workers,
        results: Arc::clone(&results),
    };
    let real = wait::spawn(worker.real(real));
    for worker in workers {
        worker.await??;
    }
    real.await??;
    let results = std::mem::take(&mut *results.lock());
    Ok(conclude(&settings, &results))
}

fn selected(args: &Args, scenarios: Vec<Scenario>) -> Vec<Job> {
    let mut jobs = Vec::new();
    for scenario in scenarios {
        let mut kinds = vec![Kind::Simulator];
        if scenario.layer == Layer::Control {
            kinds.push(Kind::CloudStack);
        }
        for kind in kinds {
            let job = Job { scenario, kind };
            let title = job.title();
            let asked =
                args.filter.is_empty() || args.filter.iter().any(|part| title.contains(part.as_str()));
            let cloud = args.cloud.as_ref().is_none_or(|cloud| *cloud == kind.to_string());
            if asked && cloud {
                jobs.extend(std::iter::repeat_n(job, args.repeat));
            }
        }
    }
    jobs
}

/// Runs scenarios one after the other in a cluster of its own.
struct Worker {
    settings: Settings,
    index: usize,
    results: Results,
}

impl Worker {
    async fn simulated(self, queue: Arc<Mutex<VecDeque<Job>>>) -> Result<()> {
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

    async fn real(self, jobs: VecDeque<Job>) -> Result<()> {
        if jobs.is_empty() {
            return Ok(());
        }
        let server = match Server::find(&self.settings).await? {
            Found::Server(server) => server,
            Found::Missing(why) => {
                for job in jobs {
                    self.book(job, Outcome::Skipped(Skip::missing(why.clone())), Duration::ZERO);
                }
                return Ok(());
            }
        };
        server.reset().await?;
        let mut place = None;
        for job in jobs {
            let begun = wait::now();
            let outcome = self.one(&job, Cloud::real(&server).await, &mut place).await;
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
            let name = format!("{}-{}", job.scenario.name, job.kind);
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
            simulator.process.stop(Duration::from_secs(10)).await.ok();
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

/// Prints failures and counts; true if nothing failed and nothing was skipped that should have run.
fn conclude(settings: &Settings, results: &[(Job, Outcome)]) -> bool {
    let mut counts: BTreeMap<(Layer, Kind), [usize; 3]> = BTreeMap::new();
    let mut unexcused = 0;
    for (job, outcome) in results {
        let [passed, failed, skipped] = counts.entry((job.scenario.layer, job.kind)).or_default();
        match outcome {
            Outcome::Passed => *passed += 1,
            Outcome::Skipped(skip) => {
                *skipped += 1;
                unexcused += usize::from(!skip.excused);
            }
            Outcome::Failed(why) => {
                *failed += 1;
                say(&format!("\n==== {}\n{why}", job.title()));
            }
        }
    }
    let mut failures = 0;
    say("");
    for ((layer, kind), [passed, failed, skipped]) in &counts {
        let text = match layer {
            Layer::Pool => "pool scenarios, the agent alone".to_owned(),
            Layer::Control | Layer::Data | Layer::Fault => format!("{layer} scenarios on {kind}"),
        };
        say(&format!(
            "{text:<32} {passed} passed, {failed} failed, {skipped} skipped"
        ));
        failures += failed;
    }
    let strict = settings.shared("cloudstack").is_some();
    if strict && unexcused > 0 {
        say("skipping is a failure here, because ../shared is present");
    }
    failures == 0 && !(strict && unexcused > 0)
}

#[expect(clippy::print_stdout, reason = "a test runner reports on standard output")]
fn say(line: &str) {
    println!("{line}");
}
