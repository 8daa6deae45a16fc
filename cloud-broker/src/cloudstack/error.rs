//! What a failed call means.
//!
//! Decides nothing but the vocabulary: one variant per thing that a caller can decide on. Which answer becomes which
//! variant is in `envelope`; whether a call is repeated is in `retry`. The texts become events and conditions of objects, one
//! for each different text, so that what differs from try to try (job ids, times) is only in the detail, for logs.

use std::time::Duration;

use super::Command;
use super::types::JobId;

/// What a server said when it did not do what it was asked for.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{} refused{}: {text}", command.name(), code.map(|code| format!(" ({code})")).unwrap_or_default())]
pub struct Refusal {
    /// The command.
    pub command: Command,
    /// The server's code; absent if the client refused to send the call at all.
    pub code: Option<u16>,
    /// The server's text, shortened; for people, never for decisions.
    pub text: String,
}

/// Why a call has no result.
///
/// Cheap to clone, so that several callers may share one failure.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ApiError {
    /// The same call again will be refused again (430, 431, 530, 534 to 536 and codes not known). A write that was
    /// refused with 530 may have left something behind: look again.
    #[error(transparent)]
    Rejected(Refusal),
    /// An object named by id does not exist any more, or never did (431).
    #[error(transparent)]
    Gone(Refusal),
    /// The caller may not do this: a right is missing (432, or 401 of old servers), an object is somebody else's
    /// (531), or, where a project is set, the caller is not a member of it (432).
    #[error(transparent)]
    Denied(Refusal),
    /// The server does not accept the keys or the signature (401).
    #[error("{0}; check the keys, and the clock of this machine")]
    BadCredentials(Refusal),
    /// The account called too often (429). The command was not executed.
    #[error("{} refused (429): the account makes too many calls", refusal.command.name())]
    Throttled {
        /// The server's words.
        refusal: Refusal,
        /// When the next call may go.
        after: Duration,
    },
    /// The server takes no work at present (503, as while it prepares to stop). The command was not executed.
    #[error(transparent)]
    Busy(Refusal),
    /// Another rule is in the way (537).
    #[error(transparent)]
    Conflict(Refusal),
    /// The account, the project or the domain may have no more of these (532).
    #[error(transparent)]
    Limit(Refusal),
    /// There is none left, or the chosen address is not free (533).
    #[error(transparent)]
    NoCapacity(Refusal),
    /// No answer came, or only one of a gateway.
    #[error("{} got no answer from the API{}: {reason}", command.name(),
        if *maybe_executed { ", and may have been executed" } else { "" })]
    Unreachable {
        /// The command.
        command: Command,
        /// Why, without address or parameters.
        reason: String,
        /// Whether the command may have taken effect: look before doing it again.
        maybe_executed: bool,
    },
    /// The job of a command ended without success. Something of it may have taken effect: look again.
    #[error("{refusal}")]
    JobFailed {
        /// The job.
        job: JobId,
        /// What it left; the code is 530 for nearly everything.
        refusal: Refusal,
    },
    /// The outcome of a job can't be learned: the server does not know it any more. Look again.
    #[error("the server does not know the job of {} any more; its outcome is open", command.name())]
    JobLost {
        /// The command that started it.
        command: Command,
        /// The job.
        job: JobId,
    },
    /// An answer came that no `CloudStack` gives.
    #[error("{} got an answer that can't be understood: {reason}", command.name())]
    Odd {
        /// The command.
        command: Command,
        /// What was odd.
        reason: String,
        /// Whether the command may have taken effect: look before doing it again.
        maybe_executed: bool,
    },
    /// The account got other keys than those through which was seen what the command is about; nothing was sent.
    #[error("{} was not sent, since the keys were changed meanwhile", command.name())]
    Rekeyed {
        /// The command.
        command: Command,
    },
    /// This process is about to stop; nothing was sent.
    #[error("{} was not sent, since this process is about to stop", command.name())]
    Stopping {
        /// The command.
        command: Command,
    },
}

impl ApiError {
    /// What differs from try to try, for logs: empty if nothing does.
    pub fn detail(&self) -> String {
        match self {
            Self::Throttled { refusal, after } => {
                format!("{}; the next call may go in {after:?}", refusal.text)
            }
            Self::JobFailed { job, .. } | Self::JobLost { job, .. } => format!("job {job}"),
            Self::Rejected(_)
            | Self::Gone(_)
            | Self::Denied(_)
            | Self::BadCredentials(_)
            | Self::Busy(_)
            | Self::Conflict(_)
            | Self::Limit(_)
            | Self::NoCapacity(_)
            | Self::Unreachable { .. }
            | Self::Odd { .. }
            | Self::Rekeyed { .. }
            | Self::Stopping { .. } => String::new(),
        }
    }

    /// The command that failed.
    pub fn command(&self) -> Command {
        match self {
            Self::Rejected(refusal)
            | Self::Gone(refusal)
            | Self::Denied(refusal)
            | Self::BadCredentials(refusal)
            | Self::Busy(refusal)
            | Self::Conflict(refusal)
            | Self::Limit(refusal)
            | Self::NoCapacity(refusal)
            | Self::Throttled { refusal, .. }
            | Self::JobFailed { refusal, .. } => refusal.command,
            Self::Unreachable { command, .. }
            | Self::JobLost { command, .. }
            | Self::Odd { command, .. }
            | Self::Rekeyed { command }
            | Self::Stopping { command } => *command,
        }
    }

    /// Whether the command may have taken effect although it failed: nothing may be concluded, and the command not
    /// be sent again, before a look at what is there.
    pub fn maybe_executed(&self) -> bool {
        match self {
            Self::Unreachable { maybe_executed, .. } | Self::Odd { maybe_executed, .. } => *maybe_executed,
            Self::JobFailed { .. } | Self::JobLost { .. } => true,
            Self::Rejected(refusal) => refusal.code == Some(530) && refusal.command.is_write(),
            Self::Gone(_)
            | Self::Denied(_)
            | Self::BadCredentials(_)
            | Self::Throttled { .. }
            | Self::Busy(_)
            | Self::Conflict(_)
            | Self::Limit(_)
            | Self::NoCapacity(_)
            | Self::Rekeyed { .. }
            | Self::Stopping { .. } => false,
        }
    }

    /// A constant word for metrics and log fields.
    pub fn class(&self) -> &'static str {
        match self {
            Self::Rejected(_) => "rejected",
            Self::Gone(_) => "gone",
            Self::Denied(_) => "denied",
            Self::BadCredentials(_) => "bad_credentials",
            Self::Throttled { .. } => "throttled",
            Self::Busy(_) => "busy",
            Self::Conflict(_) => "conflict",
            Self::Limit(_) => "limit",
            Self::NoCapacity(_) => "no_capacity",
            Self::Unreachable { .. } => "unreachable",
            Self::JobFailed { .. } => "job_failed",
            Self::JobLost { .. } => "job_lost",
            Self::Odd { .. } => "odd",
            Self::Rekeyed { .. } => "rekeyed",
            Self::Stopping { .. } => "stopping",
        }
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    fn refusal(text: &str) -> Refusal {
        Refusal {
            command: Command::AssociateIpAddress,
            code: Some(530),
            text: text.to_owned(),
        }
    }

    fn job(id: &str) -> JobId {
        id.parse().unwrap()
    }

    #[rstest]
    #[case::job_failed(
        |id: &str| ApiError::JobFailed { job: job(id), refusal: refusal("no") }, "associateIpAddress refused (530): no"
    )]
    #[case::job_lost(
        |id: &str| ApiError::JobLost { command: Command::AssociateIpAddress, job: job(id) },
        "the server does not know the job of associateIpAddress any more; its outcome is open"
    )]
    #[case::throttled(
        |id: &str| ApiError::Throttled {
            refusal: refusal(&format!("please retry after {id} ms")),
            after: Duration::from_millis(id.parse().unwrap()),
        },
        "associateIpAddress refused (429): the account makes too many calls"
    )]
    fn a_text_is_the_same_at_every_try_and_the_log_has_the_rest(
        #[case] error: fn(&str) -> ApiError,
        #[case] text: &str,
    ) {
        for id in ["653", "1271"] {
            assert_eq!(error(id).to_string(), text);
            assert!(error(id).detail().contains(id), "{}", error(id).detail());
        }
    }
}
