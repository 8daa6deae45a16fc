//! What calls answer: outcomes and notes, free of any wire format.

use std::net::IpAddr;
use std::time::Duration;

use crate::cloudstack::types::{AddressId, NetworkId};

/// How serious a note is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// For the record.
    Normal,
    /// Somebody should look.
    Warning,
}

/// Something that a person should see as an event on the Service.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Note {
    /// How serious it is.
    pub severity: Severity,
    /// Reason of the event, such as `AddressKept`.
    pub reason: &'static str,
    /// Field of the wish it is about; empty if none.
    pub field: String,
    /// For people.
    pub text: String,
}

impl Note {
    /// A note for the record.
    pub fn normal(reason: &'static str, text: impl Into<String>) -> Self {
        Self {
            severity: Severity::Normal,
            reason,
            field: String::new(),
            text: text.into(),
        }
    }

    /// A note that somebody should look at.
    pub fn warning(reason: &'static str, text: impl Into<String>) -> Self {
        Self {
            severity: Severity::Warning,
            reason,
            field: String::new(),
            text: text.into(),
        }
    }

    /// The same note about a field of the wish.
    #[must_use]
    pub fn about(mut self, field: impl Into<String>) -> Self {
        self.field = field.into();
        self
    }
}

/// What is waited for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wait {
    /// When to ask again; zero is at once.
    pub retry_after: Duration,
    /// The step that is waited for, such as `associate address`; may be empty.
    pub step: String,
    /// Stable word in capitals.
    pub reason: &'static str,
    /// For people.
    pub text: String,
}

impl Wait {
    /// A wait for a change that nobody can hurry.
    pub fn for_a_change(reason: &'static str, text: impl Into<String>) -> Self {
        Self {
            retry_after: Duration::from_secs(30),
            step: String::new(),
            reason,
            text: text.into(),
        }
    }

    /// A wait for a change that is not to be expected soon.
    pub fn at_length(reason: &'static str, text: impl Into<String>) -> Self {
        Self {
            retry_after: Duration::from_mins(10),
            ..Self::for_a_change(reason, text)
        }
    }

    /// A wait for something that is under way.
    pub fn shortly(reason: &'static str, step: impl Into<String>, text: impl Into<String>) -> Self {
        Self {
            retry_after: Duration::from_secs(1),
            step: step.into(),
            reason,
            text: text.into(),
        }
    }
}

/// Where clients reach a balancer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ingress {
    /// The address.
    pub ip: IpAddr,
    /// Whether traffic comes with a PROXY header.
    pub proxy: bool,
}

/// Facts for the annotations that older controllers read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outputs {
    /// The address.
    pub address_id: AddressId,
    /// The network balanced in.
    pub network_id: NetworkId,
    /// Whether the cluster will release the address.
    pub address_owned: bool,
}

/// A balancer that is what the wish says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Served {
    /// Where clients reach it.
    pub ingress: Ingress,
    /// Addresses that still serve and go as soon as they are no longer published.
    pub leaving: Vec<IpAddr>,
    /// Facts for annotations.
    pub outputs: Outputs,
}

/// The end of a balancer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Departed {
    /// Addresses given back.
    pub released: Vec<IpAddr>,
    /// Addresses that stay, each with a note.
    pub kept: Vec<IpAddr>,
}

/// How far a call got.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome<T> {
    /// All the way.
    Settled(T),
    /// Not there yet.
    Pending(Wait),
}

/// What a writing call answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer<T> {
    /// How far it got.
    pub outcome: Outcome<T>,
    /// Changes that this call made.
    pub changes: u32,
    /// What a person should see.
    pub notes: Vec<Note>,
}

/// Names for people, five at most.
pub(crate) fn enumerate(names: &[&str]) -> String {
    const SHOWN: usize = 5;
    let shown = names.iter().take(SHOWN).copied().collect::<Vec<_>>().join(", ");
    match names.len().saturating_sub(SHOWN) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}
