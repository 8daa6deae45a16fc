//! What a command answers when it refuses: the code, the number of the Java exception and the text, as the server gives them.

/// A refusal of a command, before or inside its job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ApiError {
    /// HTTP status and `errorcode`.
    pub(crate) code: u16,
    /// `cserrorcode`; 401 answers have none.
    pub(crate) cause: Option<u16>,
    /// `errortext`.
    pub(crate) text: String,
    /// The envelope is `errorresponse` instead of the command's.
    pub(crate) nameless: bool,
    /// Users read this text although it is a 530.
    pub(crate) public: bool,
}

/// No right on an object.
pub(crate) const DENIED: &str = "Caller does not have permission to operate with provided resource.";
/// What callers that are no root admin read instead of an internal text.
pub(crate) const SANITISED: &str =
    "Internal error executing command, please contact your system administrator";

impl ApiError {
    fn new(code: u16, cause: u16, text: impl Into<String>) -> Self {
        Self {
            code,
            cause: Some(cause),
            text: text.into(),
            nameless: false,
            public: false,
        }
    }

    /// Signature, key, expiry or command name are wrong; the server does not say which.
    pub(crate) fn unauthorized() -> Self {
        Self {
            code: 401,
            cause: None,
            text: "unable to verify user credentials and/or request signature".into(),
            nameless: false,
            public: false,
        }
    }

    /// 431, found while the parameters were read.
    pub(crate) fn parameter(text: impl Into<String>) -> Self {
        Self::new(431, 9999, text)
    }

    /// 431, found by the command itself.
    pub(crate) fn invalid(text: impl Into<String>) -> Self {
        Self::new(431, 4350, text)
    }

    /// 431 for an id that names nothing.
    pub(crate) fn no_entity(command: &str, parameter: &str, value: &str) -> Self {
        Self::parameter(format!(
            "Unable to execute API command {command} due to invalid value. Invalid parameter {parameter} value={value} due to incorrect long value \
             format, or entity does not exist or due to incorrect parameter annotation for the field in api cmd class."
        ))
    }

    /// 531.
    pub(crate) fn denied() -> Self {
        Self::new(531, 4365, DENIED)
    }

    /// 531 with a text of its own.
    pub(crate) fn denied_because(text: impl Into<String>) -> Self {
        Self::new(531, 4365, text)
    }

    /// 432, the role does not have the command.
    pub(crate) fn unavailable(text: impl Into<String>) -> Self {
        Self {
            nameless: true,
            ..Self::new(432, 9999, text)
        }
    }

    /// 530. Users read a general text instead.
    pub(crate) fn internal(text: impl Into<String>) -> Self {
        Self::new(530, 9999, text)
    }

    /// 530 of an exception that nobody wrapped.
    pub(crate) fn runtime(text: impl Into<String>) -> Self {
        Self::new(530, 4250, text)
    }

    /// 530 with a text for everybody.
    pub(crate) fn internal_public(text: impl Into<String>) -> Self {
        Self {
            public: true,
            ..Self::new(530, 9999, text)
        }
    }

    /// 533.
    pub(crate) fn no_address(text: impl Into<String>) -> Self {
        Self::new(533, 9999, text)
    }

    /// 532.
    pub(crate) fn limit(text: impl Into<String>) -> Self {
        Self::new(532, 4280, text)
    }

    /// 537.
    pub(crate) fn conflict(text: impl Into<String>) -> Self {
        Self::new(537, 9999, text)
    }

    /// Any code, for fault scripts and rare cases.
    pub(crate) fn with_code(code: u16, text: impl Into<String>) -> Self {
        Self::new(code, 9999, text)
    }

    /// The same with another exception number.
    pub(crate) fn caused_by(mut self, cause: u16) -> Self {
        self.cause = Some(cause);
        self
    }
}

/// How a job failed. Inside a job only a few codes survive: 431 stays, all else is 530 unless the command set it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct JobError {
    /// `jobresultcode`.
    pub(crate) code: u16,
    /// `errortext` of the result.
    pub(crate) text: String,
}

impl JobError {
    /// 530.
    pub(crate) fn failed(text: impl Into<String>) -> Self {
        Self {
            code: 530,
            text: text.into(),
        }
    }

    /// 431.
    pub(crate) fn invalid(text: impl Into<String>) -> Self {
        Self {
            code: 431,
            text: text.into(),
        }
    }

    /// 530 for a caller without right on the object.
    pub(crate) fn denied() -> Self {
        Self::failed(DENIED)
    }
}
