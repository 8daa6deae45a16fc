//! `make demo`: the whole thing on one machine, step by step. Each step says what happened, how long it took and which
//! CloudStack calls it used.

#![expect(clippy::indexing_slicing, reason = "JSON gives null where nothing is")]

mod cloudstack;
mod keepalived;
mod steps;

use std::process::ExitCode;

use anyhow::{Result, bail};
use clap::Parser;
use e2e::settings::Settings;

use steps::Steps;

/// What the demo shows.
#[derive(Debug, Parser)]
struct Args {
    /// Leave everything running at the end and say what to try.
    #[arg(long, env = "KEEP", num_args = 0..=1, default_missing_value = "1", default_value = "")]
    keep: String,
    /// Which backend serves the Services: cloudstack or keepalived.
    #[arg(long, env = "BACKEND", default_value = "cloudstack")]
    backend: String,
}

impl Args {
    fn keeps(&self) -> bool {
        !matches!(self.keep.as_str(), "" | "0" | "false" | "no")
    }
}

#[tokio::main]
async fn main() -> ExitCode {
    e2e::init();
    let mut steps = Steps::default();
    let result = Box::pin(run(&mut steps)).await;
    steps.summary(&result);
    if result.is_ok() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

async fn run(steps: &mut Steps) -> Result<()> {
    let args = Args::parse();
    let mut settings = Settings::from_environment()?;
    settings.dir = Some(settings.dir().join("demo"));
    match args.backend.as_str() {
        "cloudstack" | "" => Box::pin(cloudstack::run(&settings, steps, args.keeps())).await,
        "keepalived" => keepalived::run(&settings, steps, args.keeps()).await,
        other => bail!("BACKEND={other}: it is cloudstack or keepalived"),
    }
}
