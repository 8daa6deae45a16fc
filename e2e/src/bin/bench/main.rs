//! `make bench`: calls, seconds and memory of agent and broker beside those of the Go controllers that they replace,
//! and beside the targets. It measures and prints; it asserts nothing.

mod rows;
mod subject;
mod suite;
mod table;

use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use clap::Parser;
use e2e::cloud::{Cloud, Found, Server, Simulator, SimulatorOptions};
use e2e::cluster::Cluster;
use e2e::rbac::{self, Account};
use e2e::settings::Settings;
use e2e::world::World;

use subject::Subject;
use suite::Suite;
use table::{Table, say};

/// What to measure.
#[derive(Debug, Parser)]
struct Args {
    /// Only subjects whose name contains this: ours, apache, leaseweb.
    #[arg(long, env = "BENCH_SUBJECT", default_value = "")]
    subject: String,
    /// Only this cloud: simulator or cloudstack.
    #[arg(long, env = "BENCH_CLOUD", default_value = "")]
    cloud: String,
    /// Only suites whose name contains this: small, large, first, slow, nodes, restart.
    #[arg(long, env = "BENCH_SUITE", default_value = "")]
    suite: String,
    /// Nodes of the large cluster.
    #[arg(long, env = "BENCH_NODES", default_value_t = 100)]
    nodes: usize,
    /// Services of the large cluster.
    #[arg(long, env = "BENCH_SERVICES", default_value_t = 20)]
    services: usize,
    /// Minutes for which the large cluster is left alone; what is looked at for drift is spread over ten.
    #[arg(long, env = "BENCH_IDLE", default_value_t = 1)]
    idle: u32,
}

impl Args {
    fn suites(&self, all: Vec<Suite>) -> impl Iterator<Item = Suite> {
        all.into_iter().filter(|suite| suite.name().contains(&self.suite))
    }
}

/// What the simulator takes per call, and per job that touches a router.
const CALL: Duration = Duration::from_millis(300);
const ROUTER_JOB: Duration = Duration::from_secs(2);

#[tokio::main]
async fn main() -> Result<()> {
    e2e::init();
    let args = Args::parse();
    let mut settings = Settings::from_environment()?;
    settings.dir = Some(settings.dir().join("bench"));
    if args.cloud.is_empty() || args.cloud == "simulator" {
        simulated(&settings, &args).await?;
    }
    if args.cloud.is_empty() || args.cloud == "cloudstack" {
        real(&settings, &args).await?;
    }
    Ok(())
}

/// Subjects that are asked for and that are here.
async fn subjects(settings: &Settings, args: &Args) -> Result<Vec<Subject>> {
    let mut found = Vec::new();
    for subject in Subject::ALL {
        if !subject
            .name()
            .to_lowercase()
            .contains(&args.subject.to_lowercase())
        {
            continue;
        }
        if subject.is_here(settings).await? {
            found.push(subject);
        } else {
            say(&format!(
                "SKIPPED: {} is not in the folder peers of E2E_SHARED",
                subject.name()
            ));
        }
    }
    Ok(found)
}

async fn simulated(settings: &Settings, args: &Args) -> Result<()> {
    let mut table = Table::new(&format!(
        "Simulator, {} ms a call, {} s a job that touches a router; reads / writes / job polls, seconds",
        CALL.as_millis(),
        ROUTER_JOB.as_secs()
    ));
    for subject in subjects(settings, args).await? {
        let (cluster, account) = cluster(settings).await?;
        let options = || SimulatorOptions {
            machines: args.nodes + 1,
            router_job: ROUTER_JOB,
            ..SimulatorOptions::default()
        };
        for suite in args.suites(Suite::simulated(args.nodes, args.services, args.idle)) {
            cluster.clear().await?;
            let dir = settings.dir().join("simulator");
            let cloud = Cloud::simulated(Simulator::start(settings, &dir, options()).await?).await?;
            let name = format!("{}-{}", subject.name(), suite.name()).replace(' ', "-");
            let mut world = World::new(settings, Arc::clone(&cluster), account.clone(), cloud, &name).await?;
            world.api.delay(CALL);
            run(&world, subject, &suite, &mut table).await;
            if let Some(simulator) = &mut world.cloud.simulator {
                simulator.stop().await?;
            }
        }
        table.print();
    }
    Ok(())
}

async fn real(settings: &Settings, args: &Args) -> Result<()> {
    let server = match Server::find(settings).await? {
        Found::Server(server) => server,
        Found::Missing(why) => {
            say(&format!("SKIPPED: {why}"));
            return Ok(());
        }
    };
    let mut table = Table::new("A real CloudStack; reads / writes / job polls, seconds");
    for subject in subjects(settings, args).await? {
        let (cluster, account) = cluster(settings).await?;
        for suite in args.suites(Suite::real()) {
            cluster.clear().await?;
            server.reset().await?;
            let cloud = Cloud::real(&server).await?;
            let name = format!("{}-real-{}", subject.name(), suite.name()).replace(' ', "-");
            let world = World::new(settings, Arc::clone(&cluster), account.clone(), cloud, &name).await?;
            run(&world, subject, &suite, &mut table).await;
        }
        table.print();
    }
    server.reset().await?;
    server.down().await
}

/// One suite of one subject; what fails is a cell that says so.
async fn run(world: &World, subject: Subject, suite: &Suite, table: &mut Table) {
    if let Err(error) = suite.run(world, subject, table).await {
        say(&format!(
            "{} of {} failed: {error:#}\n{}",
            suite.name(),
            subject.name(),
            world.report()
        ));
    }
}

async fn cluster(settings: &Settings) -> Result<(Arc<Cluster>, Account)> {
    let number = uuid::Uuid::new_v4().simple().to_string();
    let dir = settings.dir().join("clusters").join(number);
    let cluster = Cluster::start(&dir).await?;
    let account = rbac::apply(&cluster).await?;
    Ok((Arc::new(cluster), account))
}
