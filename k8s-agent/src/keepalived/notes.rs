//! What people are told: reasons and texts of this backend's events.
//!
//! Decides the vocabulary. Leaves to the shell when an event is written (only on change).

use std::fmt;

/// The reason word of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reason {
    /// A Service got an address.
    IpAllocated,
    /// A Service keeps an address that was not recorded for it.
    IpAdopted,
    /// No pool has an address left.
    PoolExhausted,
    /// The address is somebody else's.
    AddressInUse,
    /// The requested address can't be had by anybody, or not by this Service.
    InvalidLoadBalancerIp,
    /// The annotation names no permitted forward method.
    InvalidForwardMethod,
    /// The Service wants IPv6.
    UnsupportedIpFamily,
    /// It works, but not as the Service's author may expect.
    KeepalivedLimitation,
    /// An entry was put right.
    ConfigMapRepaired,
    /// The record list could not be read and was rebuilt.
    ConfigMapDamaged,
    /// Somebody changes an entry again and again.
    ConfigMapContested,
    /// An entry of an earlier program that nobody maintains.
    StaleEntry,
    /// The record list has no room for another Service.
    ConfigMapFull,
}

impl Reason {
    /// All of them.
    pub const ALL: [Self; 13] = [
        Self::IpAllocated,
        Self::IpAdopted,
        Self::PoolExhausted,
        Self::AddressInUse,
        Self::InvalidLoadBalancerIp,
        Self::InvalidForwardMethod,
        Self::UnsupportedIpFamily,
        Self::KeepalivedLimitation,
        Self::ConfigMapRepaired,
        Self::ConfigMapDamaged,
        Self::ConfigMapContested,
        Self::StaleEntry,
        Self::ConfigMapFull,
    ];

    /// The word in the event.
    pub const fn word(self) -> &'static str {
        match self {
            Self::IpAllocated => "IPAllocated",
            Self::IpAdopted => "IPAdopted",
            Self::PoolExhausted => "PoolExhausted",
            Self::AddressInUse => "AddressInUse",
            Self::InvalidLoadBalancerIp => "InvalidLoadBalancerIP",
            Self::InvalidForwardMethod => "InvalidForwardMethod",
            Self::UnsupportedIpFamily => "UnsupportedIPFamily",
            Self::KeepalivedLimitation => "KeepalivedLimitation",
            Self::ConfigMapRepaired => "ConfigMapRepaired",
            Self::ConfigMapDamaged => "ConfigMapDamaged",
            Self::ConfigMapContested => "ConfigMapContested",
            Self::StaleEntry => "StaleEntry",
            Self::ConfigMapFull => "ConfigMapFull",
        }
    }

    /// Whether the event is a warning.
    pub const fn is_warning(self) -> bool {
        !matches!(
            self,
            Self::IpAllocated | Self::IpAdopted | Self::ConfigMapRepaired
        )
    }

    /// Whether the obstacle can go away without a change of the Service.
    pub const fn may_pass(self) -> bool {
        matches!(
            self,
            Self::PoolExhausted | Self::AddressInUse | Self::ConfigMapFull
        )
    }
}

/// One event about a Service.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Note {
    /// Its reason.
    pub reason: Reason,
    /// What happened and what to do.
    pub text: String,
}

impl Note {
    /// A note.
    pub fn new(reason: Reason, text: impl Into<String>) -> Self {
        Self {
            reason,
            text: text.into(),
        }
    }
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.reason.word(), self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::Reason;
    use crate::events;

    #[test]
    fn every_reason_stands_in_the_table_of_events_with_its_kind() {
        for reason in Reason::ALL {
            let kind = if reason.is_warning() {
                events::Kind::Warning
            } else {
                events::Kind::Normal
            };
            let told = events::Reason::told(kind, reason.word());
            assert!(
                events::TABLE.iter().any(|entry| entry.reason == told),
                "{}",
                reason.word()
            );
        }
    }
}
