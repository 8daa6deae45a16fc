//! Every spelling of a node's provider id, read and written.
//!
//! | spelling | written by | read as |
//! | --- | --- | --- |
//! | `external-cloudstack://<id>` | Apache controller since 1.2, and us | machine |
//! | `cloudstack:///<id>` | Leaseweb, Cluster API, and us as `cloudstack` | machine |
//! | `cloudstack://<region>/<id>` | accepted by Leaseweb | machine |
//! | `<id>` alone | in-tree provider | machine |
//! | `custom-cloudstack://<env>/<project>/<id>` | tsuru | machine |
//! | `external-cloudstack` alone | Apache controller 1.1.0 and 1.1.1; can't be corrected later | unresolved: found by system UUID or name |
//! | anything else | another cloud | foreign: never touched |
//!
//! A machine id is a UUID; whatever else stands where one should is foreign, so that it is never asked for, guessed or deleted.

use std::fmt;

use uuid::Uuid;

use crate::args::Provider;

/// What a provider id says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProviderId {
    /// There is none yet.
    Absent,
    /// This machine.
    Machine(MachineId),
    /// Ours, but without a machine: look for it by system UUID or name.
    Unresolved,
    /// Another cloud's, or nothing that we understand.
    Foreign,
}

/// Id of a machine, in lower case.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MachineId(String);

impl MachineId {
    /// A UUID, in any case.
    pub fn parse(text: &str) -> Option<Self> {
        let hyphenated = text.len() == 36;
        Uuid::try_parse(text)
            .ok()
            .filter(|_| hyphenated)
            .map(|uuid| Self(uuid.hyphenated().to_string()))
    }

    /// The id.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for MachineId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl ProviderId {
    /// Reads `spec.providerID`.
    pub fn parse(text: Option<&str>) -> Self {
        let Some(text) = text.filter(|text| !text.is_empty()) else {
            return Self::Absent;
        };
        let Some((scheme, rest)) = text.split_once("://") else {
            return match MachineId::parse(text) {
                Some(id) => Self::Machine(id),
                None if text == Provider::ExternalCloudstack.name() => Self::Unresolved,
                None => Self::Foreign,
            };
        };
        let parts: Vec<&str> = rest.split('/').collect();
        let id = match (scheme, parts.as_slice()) {
            ("external-cloudstack", [""]) => return Self::Unresolved,
            ("external-cloudstack", [id] | ["", id])
            | ("cloudstack", [id] | [_, id])
            | ("custom-cloudstack", [_, _, id]) => id,
            _ => return Self::Foreign,
        };
        MachineId::parse(id).map_or(Self::Foreign, Self::Machine)
    }

    /// The machine, if one is named.
    pub fn machine(&self) -> Option<&MachineId> {
        if let Self::Machine(id) = self {
            Some(id)
        } else {
            None
        }
    }
}

/// The provider id that a node without one gets.
pub fn write(provider: Provider, id: &MachineId) -> String {
    match provider {
        Provider::ExternalCloudstack => format!("external-cloudstack://{id}"),
        Provider::Cloudstack | Provider::Keepalived => format!("cloudstack:///{id}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    const ID: &str = "3a1b2c3d-0000-4000-8000-0123456789ab";

    fn machine() -> ProviderId {
        ProviderId::Machine(MachineId::parse(ID).unwrap())
    }

    #[rstest]
    #[case::apache("external-cloudstack://3a1b2c3d-0000-4000-8000-0123456789ab", machine())]
    #[case::apache_three_slashes("external-cloudstack:///3a1b2c3d-0000-4000-8000-0123456789ab", machine())]
    #[case::leaseweb("cloudstack:///3a1b2c3d-0000-4000-8000-0123456789ab", machine())]
    #[case::leaseweb_region("cloudstack://eu-1/3a1b2c3d-0000-4000-8000-0123456789ab", machine())]
    #[case::leaseweb_two_slashes("cloudstack://3a1b2c3d-0000-4000-8000-0123456789ab", machine())]
    #[case::in_tree("3a1b2c3d-0000-4000-8000-0123456789ab", machine())]
    #[case::tsuru(
        "custom-cloudstack://env/project/3a1b2c3d-0000-4000-8000-0123456789ab",
        machine()
    )]
    #[case::capitals("cloudstack:///3A1B2C3D-0000-4000-8000-0123456789AB", machine())]
    #[case::apache_1_1("external-cloudstack", ProviderId::Unresolved)]
    #[case::apache_without_id("external-cloudstack://", ProviderId::Unresolved)]
    #[case::empty("", ProviderId::Absent)]
    #[case::aws("aws:///eu-central-1a/i-0123456789", ProviderId::Foreign)]
    #[case::kind("kind://docker/kind/node", ProviderId::Foreign)]
    #[case::openstack_with_uuid("openstack:///3a1b2c3d-0000-4000-8000-0123456789ab", ProviderId::Foreign)]
    #[case::no_uuid("external-cloudstack://i-2-34-VM", ProviderId::Foreign)]
    #[case::no_hyphens("cloudstack:///3a1b2c3d0000400080000123456789ab", ProviderId::Foreign)]
    #[case::too_deep("cloudstack://a/b/3a1b2c3d-0000-4000-8000-0123456789ab", ProviderId::Foreign)]
    #[case::bare_cloudstack("cloudstack", ProviderId::Foreign)]
    #[case::name_alone("worker-1", ProviderId::Foreign)]
    fn every_spelling_is_read(#[case] text: &str, #[case] expected: ProviderId) {
        assert_eq!(ProviderId::parse(Some(text)), expected);
    }

    #[test]
    fn no_provider_id_is_absent() {
        assert_eq!(ProviderId::parse(None), ProviderId::Absent);
    }

    #[rstest]
    #[case(
        Provider::ExternalCloudstack,
        "external-cloudstack://3a1b2c3d-0000-4000-8000-0123456789ab"
    )]
    #[case(Provider::Cloudstack, "cloudstack:///3a1b2c3d-0000-4000-8000-0123456789ab")]
    fn what_is_written_is_read_again(#[case] provider: Provider, #[case] text: &str) {
        assert_eq!(write(provider, &MachineId::parse(ID).unwrap()), text);
        assert_eq!(ProviderId::parse(Some(text)), machine());
    }
}
