//! Counters of calls, for tests and benches.

use std::collections::BTreeMap;

use serde::Serialize;

/// What a call does to the cloud.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum CallKind {
    /// Lists and look-ups.
    Read,
    /// Everything that changes something.
    Write,
    /// `queryAsyncJobResult` and `listAsyncJobs`.
    Poll,
}

impl CallKind {
    /// The kind of a command, by its name.
    pub fn of(command: &str) -> Self {
        if matches!(command, "queryAsyncJobResult" | "listAsyncJobs") {
            Self::Poll
        } else if ["list", "get", "query", "find"]
            .iter()
            .any(|verb| command.starts_with(verb))
        {
            Self::Read
        } else {
            Self::Write
        }
    }
}

/// Calls since the start or the last reset, refused ones included.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Calls {
    /// By command.
    pub by_command: BTreeMap<String, u64>,
    /// By kind.
    pub by_kind: BTreeMap<CallKind, u64>,
    /// By caller name of the seed; calls without a known key are under the empty name.
    pub by_caller: BTreeMap<String, u64>,
    /// Answers with an error, by code.
    pub errors: BTreeMap<u16, u64>,
    /// Names of the commands in order of their arrival.
    pub sequence: Vec<String>,
}

impl Calls {
    /// All calls.
    pub fn total(&self) -> u64 {
        self.by_command.values().sum()
    }

    /// Calls of a kind.
    pub fn of_kind(&self, kind: CallKind) -> u64 {
        self.by_kind.get(&kind).copied().unwrap_or(0)
    }

    /// Calls of a command.
    pub fn of_command(&self, command: &str) -> u64 {
        self.by_command.get(command).copied().unwrap_or(0)
    }
}

/// The most names that `sequence` keeps: a simulator may run for days.
const SEQUENCE: usize = 10_000;

/// The counters inside the server.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) calls: Calls,
}

impl Counters {
    /// Counts a call.
    pub(crate) fn count(&mut self, command: &str, caller: &str) {
        *self.calls.by_command.entry(command.to_owned()).or_default() += 1;
        *self.calls.by_kind.entry(CallKind::of(command)).or_default() += 1;
        *self.calls.by_caller.entry(caller.to_owned()).or_default() += 1;
        if self.calls.sequence.len() < SEQUENCE {
            self.calls.sequence.push(command.to_owned());
        }
    }

    /// Counts an answer that is an error.
    pub(crate) fn count_error(&mut self, code: u16) {
        *self.calls.errors.entry(code).or_default() += 1;
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::list("listZones", CallKind::Read)]
    #[case::get("getApiLimit", CallKind::Read)]
    #[case::job("queryAsyncJobResult", CallKind::Poll)]
    #[case::jobs("listAsyncJobs", CallKind::Poll)]
    #[case::create("createLoadBalancerRule", CallKind::Write)]
    fn a_command_has_the_kind_its_name_says(#[case] command: &str, #[case] kind: CallKind) {
        assert_eq!(CallKind::of(command), kind);
    }
}
