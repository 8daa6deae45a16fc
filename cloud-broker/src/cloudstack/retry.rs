//! Whether and when a failed call is sent again. Pure.
//!
//! Decides by what the command does and by whether it may have been executed. Facts: a throttled call and one that a
//! server refuses while it prepares to stop were not executed; neither was one whose connection was never made.

use std::time::Duration;

use super::{ApiError, CommandClass};

const THROTTLED_ATTEMPTS: u32 = 8;
const READ_ATTEMPTS: u32 = 4;
const WRITE_ATTEMPTS: u32 = 3;
const BUSY_ATTEMPTS: u32 = 3;
const FIRST_WAIT: Duration = Duration::from_millis(100);
const BUSY_WAIT: Duration = Duration::from_millis(500);

/// How long to wait before the call is sent again; `None` if it is not. `jitter` is from 0 to 1.
pub(super) fn wait(class: CommandClass, error: &ApiError, attempt: u32, jitter: f64) -> Option<Duration> {
    if class == CommandClass::Poll {
        // Whoever watches jobs asks again in its own time.
        return None;
    }
    let (limit, first) = match error {
        // The budget holds everybody back until the server's window is over.
        ApiError::Throttled { .. } => (THROTTLED_ATTEMPTS, Duration::ZERO),
        ApiError::Busy(_) => (BUSY_ATTEMPTS, BUSY_WAIT),
        ApiError::Unreachable { .. } if class == CommandClass::Read => (READ_ATTEMPTS, FIRST_WAIT),
        ApiError::Unreachable {
            maybe_executed: false,
            ..
        } => (WRITE_ATTEMPTS, FIRST_WAIT),
        ApiError::Unreachable {
            maybe_executed: true, ..
        }
        | ApiError::Rejected(_)
        | ApiError::Gone(_)
        | ApiError::Denied(_)
        | ApiError::BadCredentials(_)
        | ApiError::Conflict(_)
        | ApiError::Limit(_)
        | ApiError::NoCapacity(_)
        | ApiError::JobFailed { .. }
        | ApiError::JobLost { .. }
        | ApiError::Odd { .. }
        | ApiError::Rekeyed { .. }
        | ApiError::Stopping { .. } => return None,
    };
    let grown = first * 3_u32.saturating_pow(attempt.saturating_sub(1).min(6));
    (attempt < limit).then(|| grown.mul_f64(0.5 + jitter.clamp(0.0, 1.0)))
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;
    use crate::cloudstack::{Command, Refusal};

    fn refusal(command: Command) -> Refusal {
        Refusal {
            command,
            code: None,
            text: String::new(),
        }
    }

    fn unreachable(command: Command, maybe_executed: bool) -> ApiError {
        ApiError::Unreachable {
            command,
            reason: String::new(),
            maybe_executed,
        }
    }

    const READ: Command = Command::ListZones;
    const WRITE: Command = Command::CreateLoadBalancerRule;
    const POLL: Command = Command::QueryAsyncJobResult;

    #[rstest]
    #[case::read_without_answer(READ, unreachable(READ, false), true)]
    #[case::write_that_was_not_sent(WRITE, unreachable(WRITE, false), true)]
    #[case::write_that_may_have_been_executed(WRITE, unreachable(WRITE, true), false)]
    #[case::throttled_write(WRITE, ApiError::Throttled { refusal: refusal(WRITE), after: FIRST_WAIT }, true)]
    #[case::busy_write(WRITE, ApiError::Busy(refusal(WRITE)), true)]
    #[case::conflict(WRITE, ApiError::Conflict(refusal(WRITE)), false)]
    #[case::rejected_read(READ, ApiError::Rejected(refusal(READ)), false)]
    #[case::poll(POLL, unreachable(POLL, false), false)]
    fn a_call_is_repeated_only_when_that_is_safe(
        #[case] command: Command,
        #[case] error: ApiError,
        #[case] again: bool,
    ) {
        assert_eq!(wait(command.class(), &error, 1, 0.5).is_some(), again);
    }

    #[test]
    fn attempts_are_few_and_waits_grow() {
        let error = unreachable(READ, false);
        let waits: Vec<_> = (1..6)
            .map(|attempt| wait(CommandClass::Read, &error, attempt, 0.5))
            .collect();
        let millis = |millis| Some(Duration::from_millis(millis));
        assert_eq!(waits, [millis(100), millis(300), millis(900), None, None]);
    }
}
