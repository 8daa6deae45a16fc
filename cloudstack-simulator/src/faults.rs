//! Fault scripts: what goes wrong at which call.
//!
//! A fault counts the calls that match it, by command and caller, from the moment it was added. It strikes at the nth match, or from the nth on for a number of
//! times. Calls that fail the signature check are not counted.
//!
//! ```
//! use cloudstack_simulator::{Effect, Fault};
//! let lost_answer = Fault::at("associateIpAddress", 1, Effect::CutAfter);
//! let busy = Fault::at("*", 3, Effect::error(503, "try later")).times(2).by("demo");
//! # let _ = (lost_answer, busy);
//! ```

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// What happens to a call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Effect {
    /// The command is not run; the answer is this error in the command's envelope.
    Error {
        /// HTTP status and `errorcode`.
        code: u16,
        /// `errortext`.
        #[serde(default)]
        text: String,
    },
    /// The command is not run; the answer is this text as it is, such as the HTML of a gateway.
    Raw {
        /// HTTP status.
        status: u16,
        /// Content type.
        #[serde(default)]
        content_type: String,
        /// The body.
        body: String,
    },
    /// The connection is cut before the command runs.
    CutBefore,
    /// The command runs, then the connection is cut: the answer is lost.
    CutAfter,
    /// The command runs after so many milliseconds.
    Slow {
        /// How long.
        millis: u64,
    },
    /// The command runs, but its job ends as failed with this error.
    FailJob {
        /// `jobresultcode`.
        code: u16,
        /// `errortext`.
        #[serde(default)]
        text: String,
    },
}

impl Effect {
    /// An error answer.
    pub fn error(code: u16, text: &str) -> Self {
        Self::Error {
            code,
            text: text.to_owned(),
        }
    }

    /// A delay.
    pub fn slow(time: Duration) -> Self {
        Self::Slow {
            millis: u64::try_from(time.as_millis()).unwrap_or(u64::MAX),
        }
    }
}

/// One line of a fault script.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fault {
    /// The command, or `*` for any, or `read`, `write`, `poll` for a kind.
    pub command: String,
    /// Only calls of this caller name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub caller: Option<String>,
    /// The first match that is struck; 1 is the next one.
    #[serde(default = "one")]
    pub nth: u64,
    /// How many matches in a row are struck.
    #[serde(default = "one")]
    pub times: u64,
    /// What happens.
    pub effect: Effect,
}

fn one() -> u64 {
    1
}

impl Fault {
    /// Strikes the nth call of a command once.
    pub fn at(command: &str, nth: u64, effect: Effect) -> Self {
        Self {
            command: command.to_owned(),
            caller: None,
            nth,
            times: 1,
            effect,
        }
    }

    /// Strikes every call of a command.
    pub fn always(command: &str, effect: Effect) -> Self {
        Self {
            times: u64::MAX,
            ..Self::at(command, 1, effect)
        }
    }

    /// Strikes so many matches in a row.
    #[must_use]
    pub fn times(mut self, times: u64) -> Self {
        self.times = times;
        self
    }

    /// Counts only calls of this caller.
    #[must_use]
    pub fn by(mut self, caller: &str) -> Self {
        self.caller = Some(caller.to_owned());
        self
    }

    fn matches(&self, command: &str, caller: &str) -> bool {
        let kind = match crate::calls::CallKind::of(command) {
            crate::calls::CallKind::Read => "read",
            crate::calls::CallKind::Write => "write",
            crate::calls::CallKind::Poll => "poll",
        };
        let of_command = self.command == "*" || self.command == command || self.command == kind;
        of_command && self.caller.as_deref().is_none_or(|wanted| wanted == caller)
    }
}

/// A fault and how often it matched.
#[derive(Debug, Clone, Serialize)]
pub struct FaultState {
    /// The script line.
    #[serde(flatten)]
    pub fault: Fault,
    /// Matches so far.
    pub seen: u64,
}

/// The script.
#[derive(Debug, Default)]
pub(crate) struct Faults {
    pub(crate) lines: Vec<FaultState>,
}

impl Faults {
    /// Adds a line.
    pub(crate) fn add(&mut self, fault: Fault) {
        self.lines.push(FaultState { fault, seen: 0 });
    }

    /// Counts a call and says what happens to it. Several lines may strike at once, in the order they were added.
    pub(crate) fn strike(&mut self, command: &str, caller: &str) -> Vec<Effect> {
        let mut effects = Vec::new();
        for line in self
            .lines
            .iter_mut()
            .filter(|line| line.fault.matches(command, caller))
        {
            line.seen += 1;
            if line.seen >= line.fault.nth && line.seen - line.fault.nth < line.fault.times {
                effects.push(line.fault.effect.clone());
            }
        }
        effects
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_strikes_the_nth_call_of_its_command_and_caller_only() {
        let mut faults = Faults::default();
        faults.add(Fault::at("listZones", 2, Effect::CutBefore).by("demo"));
        assert!(faults.strike("listZones", "demo").is_empty());
        assert!(faults.strike("listZones", "other").is_empty());
        assert!(faults.strike("listNetworks", "demo").is_empty());
        assert_eq!(faults.strike("listZones", "demo"), vec![Effect::CutBefore]);
        assert!(faults.strike("listZones", "demo").is_empty());
    }

    #[test]
    fn a_fault_of_a_kind_strikes_every_command_of_it() {
        let mut faults = Faults::default();
        faults.add(Fault::always("write", Effect::error(503, "")));
        assert_eq!(faults.strike("associateIpAddress", "a").len(), 1);
        assert_eq!(faults.strike("deleteLoadBalancerRule", "a").len(), 1);
        assert!(faults.strike("queryAsyncJobResult", "a").is_empty());
    }

    #[test]
    fn a_fault_is_written_in_json_as_the_admin_endpoint_takes_it() {
        let text = r#"{"command":"createFirewallRule","nth":2,"effect":{"error":{"code":530,"text":"no"}}}"#;
        let fault: Fault = serde_json::from_str(text).unwrap();
        assert_eq!(
            fault,
            Fault::at("createFirewallRule", 2, Effect::error(530, "no"))
        );
        let cut: Fault = serde_json::from_str(r#"{"command":"*","effect":"cut_after"}"#).unwrap();
        assert_eq!(cut, Fault::at("*", 1, Effect::CutAfter));
    }
}
