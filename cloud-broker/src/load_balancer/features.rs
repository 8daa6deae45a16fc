//! What the server and the key can do, as far as it is known. Pure.

use crate::cloudstack::types::Version;

/// What is known of the server's version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServerVersion {
    /// It is this one, or at least this one.
    Is(Version),
    /// The key may not ask, and nothing shows it.
    Unknown,
    /// The server did not answer the question just now.
    NotAnswered,
}

impl From<Option<Version>> for ServerVersion {
    fn from(version: Option<Version>) -> Self {
        version.map_or(Self::Unknown, Self::Is)
    }
}

impl ServerVersion {
    /// Whether it is known to be 4 of this minor number or later.
    pub(crate) fn is_since(self, minor: u32) -> bool {
        matches!(self, Self::Is(version) if version >= Version::new(4, minor, 0))
    }
}

/// What the server can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Features {
    /// A rule takes a list of sources when it is made (4.18 and later).
    pub sources_on_create: bool,
    /// That is only hoped, since the server does not say how old it is; one that does not take the list refuses the rule.
    pub sources_unsure: bool,
    /// A rule takes another list of sources (4.22 and later).
    pub sources_on_update: bool,
    /// Another protocol reaches the router by itself (4.22 and later).
    pub protocol_update_applies: bool,
    /// The key may tag addresses, and take the tag off again.
    pub may_tag: bool,
    /// The key may take tags off.
    pub may_untag: bool,
    /// What it can do with rules is only not known just now.
    pub not_answered: bool,
}

impl Features {
    /// Of a server of the newest kind, for a key that may not tag.
    pub const NEWEST: Self = Self {
        sources_on_create: true,
        sources_unsure: false,
        sources_on_update: true,
        protocol_update_applies: true,
        may_tag: false,
        may_untag: false,
        not_answered: false,
    };
}
