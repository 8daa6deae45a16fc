//! What failures mean to those who asked.

use proto::{Advice, Fault, FaultKind};

use super::board::Unread;
use crate::cloudstack::{ApiError, Refusal};

/// Failures that may mean "already so", or that something was left behind: the next look tells.
pub(super) fn judged_by_looking(error: &ApiError) -> bool {
    match error {
        ApiError::Rejected(_)
        | ApiError::Gone(_)
        | ApiError::Conflict(_)
        | ApiError::NoCapacity(_)
        | ApiError::JobFailed { .. }
        | ApiError::JobLost { .. }
        | ApiError::Odd { .. } => true,
        ApiError::Unreachable { maybe_executed, .. } => *maybe_executed,
        ApiError::Denied(_)
        | ApiError::BadCredentials(_)
        | ApiError::Throttled { .. }
        | ApiError::Busy(_)
        | ApiError::Limit(_)
        | ApiError::Rekeyed { .. }
        | ApiError::Stopping { .. } => false,
    }
}

/// Whether the key may not do this at all. Old servers answer 401 for a command that the role lacks.
pub(super) fn is_not_allowed(error: &ApiError) -> bool {
    matches!(error, ApiError::Denied(_) | ApiError::BadCredentials(_))
}

/// Whether the server said of the request itself that it can't be met.
pub(super) fn is_refusal(error: &ApiError) -> bool {
    matches!(
        error,
        ApiError::Rejected(Refusal {
            code: Some(430 | 431),
            ..
        })
    )
}

/// A list could not be had.
pub(super) fn unread(error: Unread) -> Fault {
    match error {
        Unread::Api(error) => fault_of("looking", &error),
        Unread::Restless(_) => Fault::new(FaultKind::Busy, "LIST_NOT_COMPLETE", error.to_string()),
    }
}

/// The plan would depend on the server's version, and the server did not say it just now.
pub(super) fn version_not_answered() -> Fault {
    let text = "the API did not answer the question for its version, on which depends how rules are changed; nothing was changed";
    Fault::new(FaultKind::Unreachable, "CLOUD_UNREACHABLE", text).with_advice(Advice::BackOff)
}

/// What a caller can decide on.
pub(super) fn fault_of(what: &str, error: &ApiError) -> Fault {
    let text = format!("{what}: {error}");
    let (kind, reason) = match error {
        ApiError::Rejected(Refusal {
            code: Some(430 | 431),
            ..
        }) => (FaultKind::Invalid, "REFUSED_BY_CLOUD"),
        ApiError::Rejected(_)
        | ApiError::JobFailed { .. }
        | ApiError::JobLost { .. }
        | ApiError::Odd { .. } => (FaultKind::Internal, "STEP_FAILED"),
        ApiError::Gone(_) => (FaultKind::NotFound, "GONE"),
        ApiError::Conflict(_) => (FaultKind::Conflict, "CONFLICT"),
        ApiError::Denied(_) => (FaultKind::Denied, "DENIED_BY_CLOUD"),
        ApiError::BadCredentials(_) => (FaultKind::Denied, "BAD_CREDENTIALS"),
        ApiError::Limit(_) => (FaultKind::Quota, "LIMIT_OF_CLOUD"),
        ApiError::NoCapacity(_) => (FaultKind::Quota, "NO_FREE_ADDRESS"),
        ApiError::Throttled { .. } | ApiError::Busy(_) => (FaultKind::Busy, "CLOUD_BUSY"),
        ApiError::Rekeyed { .. } => (FaultKind::Conflict, "KEYS_CHANGED"),
        ApiError::Unreachable { .. } | ApiError::Stopping { .. } => {
            (FaultKind::Unreachable, "CLOUD_UNREACHABLE")
        }
    };
    let advice = if let ApiError::Throttled { after, .. } = error {
        Advice::After(*after)
    } else {
        Advice::BackOff
    };
    Fault::new(kind, reason, text).with_advice(advice)
}
