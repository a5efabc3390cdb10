//! The one binary: every role, and the operator's commands.

mod cli;
mod client;
mod commands;
mod output;
mod roles;
mod settings;
mod wiring;

use std::process::ExitCode;

use clap::Parser;

pub use roles::Role;
pub use settings::Settings;

/// Measured with `tally-bench`: many small, short-lived bodies and answers on several threads.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Exit code for a wrong usage or configuration.
const WRONG_USAGE: u8 = 2;

/// `tally` with the process's arguments.
pub fn main() -> ExitCode {
    let cli = cli::Cli::parse();
    commands::run(cli.command.unwrap_or(cli::Command::Serve), cli.global)
}

/// A role as a binary of its own.
pub fn main_of_role(role: Role) -> ExitCode {
    let cli = cli::RoleCli::parse();
    commands::run(cli::Command::from(role), cli.global)
}
