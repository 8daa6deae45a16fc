//! Resource tags.

use super::wire::{Entity, Fields};
use super::{AddressId, MachineId, NetworkId, VpcId};

/// A tag; one value per key and resource, keys compare in any case.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tag {
    /// Its key.
    pub key: String,
    /// Its value; empty if the server says none.
    pub value: String,
    /// The tagged object, in lists of tags.
    pub resource_id: Option<String>,
    identity: String,
}

impl Tag {
    /// A tag to write or compare.
    pub fn new(key: impl Into<String>, value: impl Into<String>) -> Self {
        let key = key.into();
        Self {
            identity: format!("/{key}"),
            key,
            value: value.into(),
            resource_id: None,
        }
    }
}

impl Entity for Tag {
    const KEYS: &'static [&'static str] = &["tag"];

    fn parse(fields: Fields<'_>) -> Option<Self> {
        let key = fields.text("key")?;
        let resource_id = fields.text("resourceid");
        let identity = format!("{}/{key}", resource_id.as_deref().unwrap_or_default());
        Some(Self {
            key,
            value: fields.text("value").unwrap_or_default(),
            resource_id,
            identity,
        })
    }

    fn identity(&self) -> &str {
        &self.identity
    }
}

/// An object that may carry tags. Load balancer rules are left out on purpose: their tags outlive them and can't be
/// removed then.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TaggedResource {
    /// A public address; its tags go with its release.
    Address(AddressId),
    /// A machine.
    Machine(MachineId),
    /// A network.
    Network(NetworkId),
    /// A VPC.
    Vpc(VpcId),
}

impl TaggedResource {
    /// The server's word for the sort of object.
    pub fn resource_type(&self) -> &'static str {
        match self {
            Self::Address(_) => "PublicIpAddress",
            Self::Machine(_) => "UserVm",
            Self::Network(_) => "Network",
            Self::Vpc(_) => "Vpc",
        }
    }

    /// Its id.
    pub fn resource_id(&self) -> &str {
        match self {
            Self::Address(id) => id.as_str(),
            Self::Machine(id) => id.as_str(),
            Self::Network(id) => id.as_str(),
            Self::Vpc(id) => id.as_str(),
        }
    }
}
