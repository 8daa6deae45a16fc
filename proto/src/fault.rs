//! What a call failed with, and the only place that picks or reads gRPC codes.
//!
//! A [`Fault`] tells a caller what it can decide on: the [`FaultKind`], the [`Advice`] when to ask again, a stable reason
//! word for programs, the field at fault, and a text for people. On the wire it is a `google.rpc.Status` with `ErrorInfo`
//! (and `RetryInfo` for [`Advice::After`]); a status that did not come from a fault (a broken connection, another server)
//! is read by its code.

use std::borrow::Cow;
use std::collections::HashMap;
use std::time::Duration;

use tonic::{Code, Status};
use tonic_types::{ErrorDetails, StatusExt as _};

/// Domain of the `ErrorInfo` of every fault.
const DOMAIN: &str = "cloudstack.broker.v1";
/// Reason of a fault that was not one of ours on the wire.
const FOREIGN: &str = "GRPC_STATUS";
/// Most bytes of a text, of a field and of a reason on the wire. They travel in headers, twice and encoded, and a connection whose other side
/// takes no headers of that size is lost for all calls.
const LONGEST: usize = 1024;

/// What went wrong, as far as a caller acts on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FaultKind {
    /// The request can't be met as it stands; the field is named.
    Invalid,
    /// The caller, its policy or its key may not do this.
    Denied,
    /// What the request names does not exist.
    NotFound,
    /// Something else holds what is needed, or a newer writer is at work.
    Conflict,
    /// A limit of the account, the project or the policy is used up.
    Quota,
    /// The other side has too much to do.
    Busy,
    /// The other side, or the cloud behind it, can't be reached.
    Unreachable,
    /// A fault of the program or an answer that makes no sense.
    Internal,
}

impl FaultKind {
    const ALL: [Self; 8] = [
        Self::Invalid,
        Self::Denied,
        Self::NotFound,
        Self::Conflict,
        Self::Quota,
        Self::Busy,
        Self::Unreachable,
        Self::Internal,
    ];

    /// The word on the wire and in metrics.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Invalid => "invalid",
            Self::Denied => "denied",
            Self::NotFound => "not_found",
            Self::Conflict => "conflict",
            Self::Quota => "quota",
            Self::Busy => "busy",
            Self::Unreachable => "unreachable",
            Self::Internal => "internal",
        }
    }

    fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.word() == word)
    }

    const fn code(self) -> Code {
        match self {
            Self::Invalid => Code::InvalidArgument,
            Self::Denied => Code::PermissionDenied,
            Self::NotFound => Code::NotFound,
            Self::Conflict => Code::Aborted,
            Self::Quota | Self::Busy => Code::ResourceExhausted,
            Self::Unreachable => Code::Unavailable,
            Self::Internal => Code::Internal,
        }
    }

    /// Reads a code that carries no fault. Two codes stand for a missing half of the contract or a lost caller.
    const fn from_code(code: Code) -> Self {
        match code {
            Code::InvalidArgument | Code::OutOfRange | Code::FailedPrecondition | Code::Unimplemented => {
                Self::Invalid
            }
            Code::PermissionDenied | Code::Unauthenticated => Self::Denied,
            Code::NotFound => Self::NotFound,
            Code::Aborted | Code::AlreadyExists => Self::Conflict,
            Code::ResourceExhausted => Self::Busy,
            Code::Unavailable | Code::DeadlineExceeded | Code::Cancelled => Self::Unreachable,
            Code::Ok | Code::Unknown | Code::Internal | Code::DataLoss => Self::Internal,
        }
    }

    const fn usual_advice(self) -> Advice {
        match self {
            Self::Invalid => Advice::NeverUntilChanged,
            Self::Denied
            | Self::NotFound
            | Self::Conflict
            | Self::Quota
            | Self::Busy
            | Self::Unreachable
            | Self::Internal => Advice::BackOff,
        }
    }
}

/// When to ask again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Advice {
    /// The same request fails the same way until somebody changes it.
    NeverUntilChanged,
    /// Later, and ever later.
    BackOff,
    /// After this time.
    After(Duration),
}

impl Advice {
    const fn word(self) -> &'static str {
        match self {
            Self::NeverUntilChanged => "never_until_changed",
            Self::BackOff => "back_off",
            Self::After(_) => "after",
        }
    }
}

/// What a call failed with.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text}")]
pub struct Fault {
    /// What went wrong.
    pub kind: FaultKind,
    /// When to ask again.
    pub advice: Advice,
    /// Stable word in capitals, for programs: `NODE_PORT_OUT_OF_RANGE`.
    pub reason: Cow<'static, str>,
    /// Field of the request or of the Service, where one is at fault.
    pub field: Option<String>,
    /// What happened, to which object, and what to do; lower case, without a trailing stop.
    pub text: String,
}

impl Fault {
    /// A fault with the advice that is usual for its kind.
    pub fn new(kind: FaultKind, reason: impl Into<Cow<'static, str>>, text: impl Into<String>) -> Self {
        Self {
            kind,
            advice: kind.usual_advice(),
            reason: reason.into(),
            field: None,
            text: text.into(),
        }
    }

    /// The request can't be met because of this field.
    pub fn invalid(
        reason: impl Into<Cow<'static, str>>,
        field: impl Into<String>,
        text: impl Into<String>,
    ) -> Self {
        Self {
            field: Some(field.into()),
            ..Self::new(FaultKind::Invalid, reason, text)
        }
    }

    /// The same fault with other advice.
    #[must_use]
    pub fn with_advice(mut self, advice: Advice) -> Self {
        self.advice = advice;
        self
    }

    /// The same fault about this field.
    #[must_use]
    pub fn with_field(mut self, field: impl Into<String>) -> Self {
        self.field = Some(field.into());
        self
    }

    /// The call does not exist on the other side: it is older, or the call is not served by it.
    pub fn is_unimplemented(&self) -> bool {
        self.reason == "UNIMPLEMENTED"
    }

    /// A call of the contract that this broker does not serve.
    pub fn unimplemented(call: &str) -> Self {
        Self::new(
            FaultKind::Invalid,
            "UNIMPLEMENTED",
            format!("this broker does not serve {call}"),
        )
    }
}

/// As much of a text as may travel.
fn cut(text: &str) -> &str {
    text.get(..text.floor_char_boundary(LONGEST)).unwrap_or_default()
}

impl From<Fault> for Status {
    fn from(fault: Fault) -> Self {
        let mut metadata = HashMap::from([
            ("kind".to_owned(), fault.kind.word().to_owned()),
            ("advice".to_owned(), fault.advice.word().to_owned()),
        ]);
        if let Some(field) = &fault.field {
            metadata.insert("field".to_owned(), cut(field).to_owned());
        }
        let code = if fault.is_unimplemented() {
            Code::Unimplemented
        } else {
            fault.kind.code()
        };
        let mut details = ErrorDetails::new();
        details.set_error_info(cut(&fault.reason), DOMAIN, metadata);
        if let Advice::After(wait) = fault.advice {
            details.set_retry_info(Some(wait));
        }
        Self::with_error_details(code, cut(&fault.text), details)
    }
}

impl From<Status> for Fault {
    fn from(status: Status) -> Self {
        let details = status.get_error_details();
        let Some(info) = details.error_info().filter(|info| info.domain == DOMAIN) else {
            return Self::from_foreign(&status);
        };
        let kind = info
            .metadata
            .get("kind")
            .and_then(|word| FaultKind::from_word(word))
            .unwrap_or_else(|| FaultKind::from_code(status.code()));
        let retry = details.retry_info().and_then(|retry| retry.retry_delay);
        let advice = match (info.metadata.get("advice").map(String::as_str), retry) {
            (Some("never_until_changed"), _) => Advice::NeverUntilChanged,
            (Some("after"), Some(wait)) => Advice::After(wait),
            (Some(_), _) => Advice::BackOff,
            (None, _) => kind.usual_advice(),
        };
        Self {
            kind,
            advice,
            reason: Cow::Owned(info.reason.clone()),
            field: info.metadata.get("field").cloned(),
            text: status.message().to_owned(),
        }
    }
}

impl Fault {
    fn from_foreign(status: &Status) -> Self {
        let kind = FaultKind::from_code(status.code());
        let reason = if status.code() == Code::Unimplemented {
            "UNIMPLEMENTED"
        } else {
            FOREIGN
        };
        let text = if status.message().is_empty() {
            status.code().description()
        } else {
            status.message()
        };
        Self::new(kind, reason, text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_of_fault_survives_the_wire() {
        for kind in FaultKind::ALL {
            for advice in [
                Advice::NeverUntilChanged,
                Advice::BackOff,
                Advice::After(Duration::from_millis(1500)),
            ] {
                let fault = Fault::new(kind, "SOME_REASON", "port 80 is taken")
                    .with_advice(advice)
                    .with_field("ports[0]");
                assert_eq!(Fault::from(Status::from(fault.clone())), fault);
            }
        }
    }

    #[test]
    fn a_text_that_would_not_fit_into_headers_is_cut_between_two_characters() {
        // An odd first byte, so that the limit lies inside a character.
        let long = format!("x{}", "é".repeat(100_000));
        let fault = Fault::new(FaultKind::NotFound, long.clone(), long.clone()).with_field(long.clone());
        let status = Status::from(fault);
        let headers = status.message().len() * 3 + status.details().len() * 4 / 3;
        assert!(headers < 8 * 1024, "{headers} bytes of headers");
        let told = Fault::from(status);
        for part in [
            told.text,
            told.field.unwrap_or_default(),
            told.reason.into_owned(),
        ] {
            assert!(long.starts_with(&part) && part.len() > 1000 && part.len() <= LONGEST);
        }
    }

    #[test]
    fn a_status_of_somebody_else_is_read_by_its_code() {
        let fault = Fault::from(Status::from_error(Box::new(std::io::Error::other(
            "connection reset",
        ))));
        assert_eq!(fault.reason, FOREIGN);
        assert_eq!(
            Fault::from(Status::unavailable("down")).kind,
            FaultKind::Unreachable
        );
        assert_eq!(
            Fault::from(Status::permission_denied("no")).kind,
            FaultKind::Denied
        );
    }

    #[test]
    fn a_call_that_an_older_broker_lacks_is_recognised_with_and_without_details() {
        assert!(Fault::from(Status::unimplemented("")).is_unimplemented());
        assert!(Fault::from(Status::from(Fault::unimplemented("PlanLoadBalancer"))).is_unimplemented());
        assert_eq!(
            Status::from(Fault::unimplemented("PlanLoadBalancer")).code(),
            Code::Unimplemented
        );
    }

    #[test]
    fn the_text_of_a_fault_is_what_people_read() {
        assert_eq!(
            Fault::new(FaultKind::Busy, "X", "come back later").to_string(),
            "come back later"
        );
    }
}
