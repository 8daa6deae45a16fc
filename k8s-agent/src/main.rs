//! The program: reads the command line and runs.

use std::process::ExitCode;

use k8s_agent::args::{CommandLine, Settings};

fn main() -> ExitCode {
    let CommandLine { flags, ignored } = match CommandLine::read(std::env::args_os()) {
        Ok(line) => line,
        Err(error) => return explain(&error),
    };
    let log = flags.log.clone();
    runtime::host::run("k8s-agent", &log, async |host| {
        if !ignored.is_empty() {
            let flags = ignored
                .iter()
                .map(|name| format!("--{name}"))
                .collect::<Vec<_>>()
                .join(", ");
            tracing::warn!(%flags, "flags without an effect here");
        }
        let settings = Settings::try_from(flags).map_err(|faults| anyhow::anyhow!(faults.join("; ")))?;
        k8s_agent::run(host, settings).await
    })
}

/// Prints help, version or what is wrong with the command line.
fn explain(error: &clap::Error) -> ExitCode {
    // Nothing can be done about a closed terminal.
    let _ = error.print();
    if error.use_stderr() {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    }
}
