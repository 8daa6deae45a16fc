//! The simulator as a program. See the library's documentation.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context as _;
use clap::Parser;
use cloudstack_simulator::{DataPath, Delays, Keys, Options, Seed, Simulator};
use tokio::signal::unix::{SignalKind, signal};
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

/// A double of the Apache CloudStack management server for tests, demos and CI.
#[derive(Debug, Parser)]
#[command(version)]
struct Args {
    /// Where to listen.
    #[arg(long, default_value = "127.0.0.1:8080")]
    listen: SocketAddr,
    /// What the cloud starts with; without it a built-in demo cloud.
    #[arg(long)]
    seed: Option<PathBuf>,
    /// API keys per caller of the seed: {"demo": {"apikey": "..", "secretkey": ".."}}.
    #[arg(long)]
    keys: PathBuf,
    /// Real load balancers: auto (if haproxy is installed), off, or the program's path.
    #[arg(long, default_value = "auto")]
    haproxy: String,
    /// Time that every call takes, in milliseconds.
    #[arg(long, default_value_t = 0)]
    latency_ms: u64,
    /// Time of a job that only touches the database, in milliseconds.
    #[arg(long, default_value_t = 0)]
    job_ms: u64,
    /// More time of a job that touches a virtual router, in milliseconds.
    #[arg(long, default_value_t = 0)]
    router_ms: u64,
    /// Factor on the time that the server's locks cost (1 is the real server: 5 s per lost lock).
    #[arg(long, default_value_t = 1.0)]
    lock_scale: f64,
    /// Keep what was sent to routers, for /simulator/routers/log.
    #[arg(long)]
    router_log: bool,
    /// Log level: error, warn, info, debug, trace.
    #[arg(long, default_value = "info")]
    log: Targets,
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    tracing_subscriber::fmt()
        .with_max_level(LevelFilter::TRACE)
        .with_writer(std::io::stderr)
        .finish()
        .with(args.log.clone())
        .init();
    let seed = match &args.seed {
        Some(path) => Seed::read(path)?,
        None => Seed::demo(),
    };
    let keys = Keys::read(&args.keys)?;
    let millis = Duration::from_millis;
    let options = Options {
        listen: args.listen,
        latency: millis(args.latency_ms),
        delays: Delays {
            job: millis(args.job_ms),
            router: millis(args.router_ms),
            ..Delays::default()
        },
        lock_scale: args.lock_scale.clamp(0.0, 1000.0),
        data_path: match args.haproxy.as_str() {
            "off" => DataPath::Off,
            "auto" => DataPath::Auto,
            path => DataPath::Program(path.into()),
        },
        router_log: args.router_log,
        ..Options::default()
    };
    let mut interrupt = signal(SignalKind::interrupt()).context("cannot listen for signals")?;
    let mut terminate = signal(SignalKind::terminate()).context("cannot listen for signals")?;
    let handle = Simulator::start(seed, keys, options).await?;
    tracing::info!(
        url = handle.url(),
        data_path = handle.has_data_path(),
        "listening"
    );
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
    }
    handle.stop().await;
    Ok(())
}
