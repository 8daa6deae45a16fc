//! Runs scenarios: side by side on the simulator, one after the other on the real CloudStack, each in an empty cluster;
//! checks after each that nothing is left behind and no secret was printed; counts per layer and cloud.

mod report;
mod worker;

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;

use anyhow::Result;
use clap::Parser;
use futures::future::BoxFuture;
use parking_lot::Mutex;
use tokio::sync::oneshot;

use crate::cloud::Kind;
use crate::settings::Settings;
use crate::wait;
use crate::world::World;
use report::{conclude, say};
use worker::Worker;

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
    /// Something that `E2E_SHARED` or a package would bring: where a real CloudStack is there this counts as a failure.
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
    /// Which repetition.
    round: usize,
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
    // It starts at once, but its scenarios wait: on a small machine they would only slow each other down.
    let (go, gate) = oneshot::channel();
    let real = wait::spawn(worker.real(real, gate));
    for worker in workers {
        worker.await??;
    }
    // Nobody waits where there is nothing to run.
    let _ = go.send(());
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
            let job = |round| Job {
                scenario,
                kind,
                round,
            };
            let title = job(0).title();
            let asked =
                args.filter.is_empty() || args.filter.iter().any(|part| title.contains(part.as_str()));
            let cloud = args.cloud.as_ref().is_none_or(|cloud| *cloud == kind.to_string());
            if asked && cloud {
                jobs.extend((0..args.repeat).map(job));
            }
        }
    }
    jobs
}
