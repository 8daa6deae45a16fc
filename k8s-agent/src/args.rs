//! The command line: read, checked as a whole, and turned into [`Settings`] that can't be wrong.
//!
//! Flags of Kubernetes' cloud controllers are all accepted. Those without an effect here stand in one table in `ignored` and are warned of once.

mod controllers;
mod flags;
mod ignored;
mod settings;

use std::ffi::OsString;

use clap::{CommandFactory as _, FromArgMatches as _};

pub use controllers::{Controller, Controllers, UnknownController};
pub use flags::{Flags, SECURE_PORT};
pub use settings::{BrokerSettings, ElectionSettings, Provider, Settings};

/// A command line that was understood.
#[derive(Debug)]
pub struct CommandLine {
    /// The flags that have an effect.
    pub flags: Flags,
    /// The other ones that were given.
    pub ignored: Vec<&'static str>,
}

impl CommandLine {
    /// Reads a command line as Go programs take it. `--help` and `--version` come back as errors of clap, as does everything unknown.
    pub fn read(argv: impl IntoIterator<Item = OsString>) -> Result<Self, clap::Error> {
        let command = ignored::add_to(Flags::command());
        let matches = command.try_get_matches_from(runtime::flags::normalise(argv))?;
        let flags = Flags::from_arg_matches(&matches)?;
        Ok(Self {
            flags,
            ignored: ignored::given(&matches),
        })
    }
}

/// Names of the flags that are accepted without an effect, for the reference.
pub fn without_effect() -> impl Iterator<Item = &'static str> {
    ignored::TABLE.iter().map(|(name, _)| *name)
}

#[cfg(test)]
mod tests;
