//! What a broker's answer about a node says, read at the edge so that the rest can't get it wrong.
//!
//! Three values and nothing between: found, gone with a proof, unknown with a reason. A `gone` whose proof is not whole is unknown.

use k8s_openapi::api::core::v1::NodeAddress;
use proto::v1::{self, instance, instance_result, node_address, unknown_reason};

use super::provider_id::MachineId;

/// What is known of the machine behind a node.
#[derive(Clone, Debug, PartialEq)]
pub enum Presence {
    /// It is there.
    Found(Box<Machine>),
    /// It is proved gone.
    Gone(Proof),
    /// Nothing can be said.
    Unknown {
        /// Why, as far as it matters here.
        why: Why,
        /// For people.
        text: String,
    },
}

/// Why nothing can be said of a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// Nothing at all is visible: keys, project or scope may have changed.
    NothingVisible,
    /// Two machines fit.
    Ambiguous,
    /// Everything else; it may heal.
    NotYet,
}

/// Two different complete lists without the machine, and a look-up while another one was visible.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Proof {
    first_list: String,
    second_list: String,
    witness: String,
}

impl Proof {
    /// For logs and events.
    pub fn witness(&self) -> &str {
        &self.witness
    }

    fn read(proof: &v1::GoneProof) -> Option<Self> {
        let v1::GoneProof {
            first_list_id,
            second_list_id,
            looked_up_at,
            witness_machine_id,
        } = proof;
        let whole = !first_list_id.is_empty()
            && !second_list_id.is_empty()
            && first_list_id != second_list_id
            && looked_up_at.is_some()
            && !witness_machine_id.is_empty();
        whole.then(|| Self {
            first_list: first_list_id.clone(),
            second_list: second_list_id.clone(),
            witness: witness_machine_id.clone(),
        })
    }
}

/// Whether a machine runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Power {
    /// It runs.
    Running,
    /// It is switched off.
    Stopped,
    /// Neither, or nobody knows.
    Changing,
}

/// A machine.
#[derive(Clone, Debug, PartialEq)]
pub struct Machine {
    /// Its id.
    pub id: MachineId,
    /// Its name in the cloud.
    pub name: String,
    /// Whether it runs.
    pub power: Power,
    /// Addresses in the order that the node should list them.
    pub addresses: Vec<NodeAddress>,
    /// Name of the service offering.
    pub instance_type: String,
    /// Name of the zone.
    pub zone: String,
    /// Configured region; may be empty.
    pub region: String,
    /// The node's system UUID names another machine than its provider id.
    pub mismatch: bool,
}

impl Presence {
    /// Reads one result.
    pub fn read(result: v1::InstanceResult) -> Self {
        match result.presence {
            Some(instance_result::Presence::Found(found)) => Machine::read(found).map_or_else(
                || unknown("the broker named a machine without a valid id"),
                |it| Self::Found(Box::new(it)),
            ),
            Some(instance_result::Presence::Gone(proof)) => Proof::read(&proof).map_or_else(
                || unknown("the broker says that the machine is gone, but its proof is not whole"),
                Self::Gone,
            ),
            Some(instance_result::Presence::Unknown(reason)) => {
                let why = match reason.why() {
                    unknown_reason::Why::NothingVisible => Why::NothingVisible,
                    unknown_reason::Why::Ambiguous => Why::Ambiguous,
                    unknown_reason::Why::Unspecified
                    | unknown_reason::Why::CloudUnreachable
                    | unknown_reason::Why::NotFoundYet
                    | unknown_reason::Why::OutOfScope => Why::NotYet,
                };
                let text = if reason.text.is_empty() {
                    reason.why().as_str_name().to_owned()
                } else {
                    reason.text
                };
                Self::Unknown { why, text }
            }
            None => unknown("the broker's answer says nothing that this agent understands"),
        }
    }
}

fn unknown(text: &str) -> Presence {
    Presence::Unknown {
        why: Why::NotYet,
        text: text.to_owned(),
    }
}

impl Machine {
    fn read(found: v1::Instance) -> Option<Self> {
        let power = match found.power() {
            instance::Power::Running => Power::Running,
            instance::Power::Stopped => Power::Stopped,
            instance::Power::Changing | instance::Power::Unspecified => Power::Changing,
        };
        Some(Self {
            id: MachineId::parse(&found.machine_id)?,
            power,
            addresses: found.addresses.iter().filter_map(address).collect(),
            name: found.name,
            instance_type: found.instance_type,
            zone: found.zone,
            region: found.region,
            mismatch: found.system_uuid_mismatch,
        })
    }
}

fn address(address: &v1::NodeAddress) -> Option<NodeAddress> {
    let (kind, legal) = match address.r#type() {
        node_address::Type::InternalIp => ("InternalIP", is_ip(&address.address)),
        node_address::Type::ExternalIp => ("ExternalIP", is_ip(&address.address)),
        node_address::Type::Hostname => ("Hostname", !address.address.is_empty()),
        node_address::Type::Unspecified => return None,
    };
    legal.then(|| NodeAddress {
        type_: kind.to_owned(),
        address: address.address.clone(),
    })
}

fn is_ip(text: &str) -> bool {
    text.parse::<std::net::IpAddr>().is_ok()
}

#[cfg(test)]
impl Machine {
    /// A machine for tests: running, one internal and one external address.
    pub(crate) fn example() -> Self {
        let address = |type_: &str, address: &str| NodeAddress {
            type_: type_.into(),
            address: address.into(),
        };
        Self {
            id: MachineId::parse("3a1b2c3d-0000-4000-8000-0123456789ab").unwrap(),
            name: "node0".into(),
            power: Power::Running,
            addresses: vec![
                address("InternalIP", "10.0.0.1"),
                address("ExternalIP", "132.143.154.163"),
            ],
            instance_type: "t1.micro".into(),
            zone: "z1".into(),
            region: String::new(),
            mismatch: false,
        }
    }
}

#[cfg(test)]
impl Proof {
    pub(crate) fn example() -> Self {
        Self {
            first_list: "1".into(),
            second_list: "2".into(),
            witness: "other".into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    fn proof(first: &str, second: &str, witness: &str, looked_up: bool) -> v1::InstanceResult {
        let gone = v1::GoneProof {
            first_list_id: first.into(),
            second_list_id: second.into(),
            looked_up_at: looked_up.then(prost_types::Timestamp::default),
            witness_machine_id: witness.into(),
        };
        v1::InstanceResult {
            presence: Some(instance_result::Presence::Gone(gone)),
            ..v1::InstanceResult::default()
        }
    }

    #[rstest]
    #[case::whole(proof("1", "2", "w", true), true)]
    #[case::one_list_twice(proof("1", "1", "w", true), false)]
    #[case::one_list(proof("1", "", "w", true), false)]
    #[case::no_witness(proof("1", "2", "", true), false)]
    #[case::no_look_up(proof("1", "2", "w", false), false)]
    #[case::nothing(v1::InstanceResult::default(), false)]
    fn gone_needs_a_whole_proof(#[case] result: v1::InstanceResult, #[case] gone: bool) {
        assert_eq!(matches!(Presence::read(result), Presence::Gone(_)), gone);
    }

    fn found(machine_id: &str) -> v1::InstanceResult {
        let address = |r#type: node_address::Type, address: &str| v1::NodeAddress {
            r#type: r#type.into(),
            address: address.into(),
        };
        let instance = v1::Instance {
            machine_id: machine_id.into(),
            power: 99,
            addresses: vec![
                address(node_address::Type::InternalIp, "10.0.0.1"),
                address(node_address::Type::InternalIp, "10.0.0.1/24"),
                address(node_address::Type::ExternalIp, "fd00::1"),
                address(node_address::Type::Unspecified, "10.0.0.2"),
                address(node_address::Type::Hostname, "n"),
            ],
            ..v1::Instance::default()
        };
        v1::InstanceResult {
            presence: Some(instance_result::Presence::Found(instance)),
            ..v1::InstanceResult::default()
        }
    }

    #[test]
    fn what_is_new_or_not_legal_in_a_machine_is_left_out() {
        let Presence::Found(machine) = Presence::read(found("3A1B2C3D-0000-4000-8000-0123456789AB")) else {
            panic!("not found")
        };
        assert_eq!(machine.id.as_str(), "3a1b2c3d-0000-4000-8000-0123456789ab");
        assert_eq!(machine.power, Power::Changing);
        let addresses: Vec<_> = machine.addresses.iter().map(|it| it.address.as_str()).collect();
        assert_eq!(addresses, ["10.0.0.1", "fd00::1", "n"]);
    }

    #[test]
    fn a_machine_without_a_valid_id_is_unknown() {
        assert!(matches!(
            Presence::read(found("i-2-3-VM")),
            Presence::Unknown { .. }
        ));
    }

    #[test]
    fn a_reason_that_is_new_means_not_yet() {
        let reason = v1::UnknownReason {
            why: 77,
            text: String::new(),
        };
        let presence = Some(instance_result::Presence::Unknown(reason));
        let read = Presence::read(v1::InstanceResult {
            presence,
            ..v1::InstanceResult::default()
        });
        assert!(matches!(read, Presence::Unknown { why: Why::NotYet, .. }));
    }
}
