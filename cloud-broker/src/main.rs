//! The broker's process.

use std::process::ExitCode;

use clap::Parser as _;
use cloud_broker::args::Args;
use runtime::flags::normalise;

fn main() -> ExitCode {
    let args = Args::parse_from(normalise(std::env::args_os()));
    if args.config_reference {
        #[expect(clippy::print_stdout, reason = "the output that was asked for")]
        {
            print!("{}", cloud_broker::config::reference());
        }
        return ExitCode::SUCCESS;
    }
    let log = args.log.clone();
    runtime::host::run("cloud-broker", &log, |host| cloud_broker::run(host, args))
}
