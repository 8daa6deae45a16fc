//! Identities of `CloudStack` objects, one type each, so that an address can't be passed where a rule is meant.
//!
//! A server treats some malformed ids as if the parameter were not given, `-1` as "any", and an empty list of ids as
//! "everything"; none of these can be expressed here.

use std::fmt;
use std::sync::Arc;

/// Why a text is no identity.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("\"{text}\" is no id of a {kind}: letters, digits and dashes are expected, as in a UUID")]
pub struct MalformedId {
    /// What the id was meant to name.
    pub kind: &'static str,
    /// The text as given.
    pub text: String,
}

/// Lower-case token of letters, digits and inner dashes, at most 64 characters. Objects that survived an upgrade from
/// very old releases carry plain numbers instead of UUIDs.
fn token(kind: &'static str, text: &str) -> Result<Arc<str>, MalformedId> {
    let legal = !text.is_empty()
        && text.len() <= 64
        && !text.starts_with('-')
        && text
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
    if !legal {
        return Err(MalformedId {
            kind,
            text: text.chars().take(80).collect(),
        });
    }
    if text.bytes().any(|byte| byte.is_ascii_uppercase()) {
        return Ok(text.to_ascii_lowercase().into());
    }
    Ok(text.into())
}

/// Implemented by every id type of this module.
pub(crate) trait Id: Sized {
    /// Reads the id, or says why it is none.
    fn from_text(text: &str) -> Result<Self, MalformedId>;
}

macro_rules! ids {
    ($($(#[$doc:meta])* $name:ident = $kind:literal;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(Arc<str>);

        impl $name {
            /// Reads an id; upper case letters become lower case.
            pub fn parse(text: &str) -> Result<Self, MalformedId> {
                token($kind, text).map(Self)
            }

            /// The id as the server spells it.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl Id for $name {
            fn from_text(text: &str) -> Result<Self, MalformedId> {
                Self::parse(text)
            }
        }

        impl std::str::FromStr for $name {
            type Err = MalformedId;
            fn from_str(text: &str) -> Result<Self, MalformedId> {
                Self::parse(text)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str(&self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(formatter, concat!($kind, " {}"), self.0)
            }
        }
    )*};
}

ids! {
    /// A virtual machine.
    MachineId = "machine";
    /// A guest network (isolated, shared, L2, or tier of a VPC).
    NetworkId = "network";
    /// A virtual private cloud.
    VpcId = "VPC";
    /// A public IP address; it survives release and re-acquisition of the address.
    AddressId = "public address";
    /// A load balancer rule.
    RuleId = "load balancer rule";
    /// A firewall rule.
    FirewallRuleId = "firewall rule";
    /// A list of network ACL items.
    AclListId = "network ACL list";
    /// An item of a network ACL list.
    AclItemId = "network ACL item";
    /// A port forwarding rule.
    PortForwardingRuleId = "port forwarding rule";
    /// A remote access VPN.
    VpnId = "remote access VPN";
    /// A zone.
    ZoneId = "zone";
    /// A project.
    ProjectId = "project";
    /// An asynchronous job.
    JobId = "job";
}

impl From<uuid::Uuid> for JobId {
    fn from(uuid: uuid::Uuid) -> Self {
        Self(uuid.hyphenated().to_string().into())
    }
}
