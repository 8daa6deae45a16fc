//! The end-to-end scenarios. `cargo test -p e2e --test all -- PART_OF_A_TITLE`, `--list`, `--cloud simulator`.

#![expect(
    clippy::indexing_slicing,
    reason = "a panic is a failed scenario; JSON gives null where nothing is"
)]

mod control;
mod data;
mod expect;
mod fault;
mod keepalived_choice;
mod keepalived_crash;
mod keepalived_network;
mod keepalived_pools;
mod pool;

use std::process::ExitCode;

#[tokio::main]
async fn main() -> ExitCode {
    e2e::init();
    let keepalived = [
        keepalived_choice::all(),
        keepalived_crash::all(),
        keepalived_network::all(),
        keepalived_pools::all(),
    ];
    let scenarios = [
        control::all(),
        data::all(),
        fault::all(),
        pool::all(),
        keepalived.concat(),
    ]
    .concat();
    match e2e::runner::run(scenarios).await {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            complain(&error);
            ExitCode::FAILURE
        }
    }
}

#[expect(clippy::print_stderr, reason = "a test runner reports on its streams")]
fn complain(error: &anyhow::Error) {
    eprintln!("the end-to-end tests could not run: {error:#}");
}
