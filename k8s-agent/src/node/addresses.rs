//! Which addresses a node lists: the machine's, in their order, with the host name, and reduced to those that the kubelet was started with.

use std::net::IpAddr;

use k8s_openapi::api::core::v1::{Node, NodeAddress};
use kube::ResourceExt as _;

/// Set by the kubelet when it was started with `--node-ip`.
pub const PROVIDED_NODE_IP: &str = "alpha.kubernetes.io/provided-node-ip";

/// Why a node's addresses can't be told.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AddressFault {
    /// The annotation is no address.
    #[error(
        "annotation {PROVIDED_NODE_IP} is \"{0}\": it must be one IP address, or two of different families joined by a comma"
    )]
    Unreadable(String),
    /// The annotation names an address that the machine does not have.
    #[error(
        "the kubelet was started with --node-ip {0}, which is not an address of the machine: correct one of the two"
    )]
    NotTheMachines(IpAddr),
}

/// The addresses that a node should list. Empty: the cloud knows none, so the node keeps what it has.
pub fn wanted(machine: &[NodeAddress], node: &Node) -> Result<Vec<NodeAddress>, AddressFault> {
    let provided = node
        .annotations()
        .get(PROVIDED_NODE_IP)
        .map(|text| parse(text))
        .transpose()?;
    let mut addresses = machine.to_vec();
    if !addresses.is_empty() && !addresses.iter().any(is_hostname) {
        addresses.extend(hostnames(node));
    }
    match provided {
        Some(ips) => keep_provided(&addresses, &ips),
        None => Ok(addresses),
    }
}

/// What the node lists now.
pub fn present(node: &Node) -> &[NodeAddress] {
    node.status
        .as_ref()
        .and_then(|status| status.addresses.as_deref())
        .unwrap_or_default()
}

fn is_hostname(address: &NodeAddress) -> bool {
    address.type_ == "Hostname"
}

/// What the kubelet called the host; its node name where it said nothing.
fn hostnames(node: &Node) -> Vec<NodeAddress> {
    let said: Vec<NodeAddress> = present(node)
        .iter()
        .filter(|it| is_hostname(it))
        .cloned()
        .collect();
    if said.is_empty() {
        vec![NodeAddress {
            type_: "Hostname".to_owned(),
            address: node.name_any(),
        }]
    } else {
        said
    }
}

fn parse(text: &str) -> Result<Vec<IpAddr>, AddressFault> {
    let refuse = || AddressFault::Unreadable(text.to_owned());
    let ips: Vec<IpAddr> = text
        .split(',')
        .map(str::parse)
        .collect::<Result<_, _>>()
        .map_err(|_| refuse())?;
    let pair = match ips.as_slice() {
        [_] => true,
        [first, second] => {
            first.is_ipv4() != second.is_ipv4() && !first.is_unspecified() && !second.is_unspecified()
        }
        _ => false,
    };
    if pair { Ok(ips) } else { Err(refuse()) }
}

/// The provided addresses in their order, then everything of a type that none of them has.
fn keep_provided(addresses: &[NodeAddress], ips: &[IpAddr]) -> Result<Vec<NodeAddress>, AddressFault> {
    let mut kept = Vec::new();
    for ip in ips {
        let same = |it: &&NodeAddress| it.address.parse::<IpAddr>().is_ok_and(|address| address == *ip);
        let before = kept.len();
        kept.extend(addresses.iter().filter(same).cloned());
        if kept.len() == before {
            return Err(AddressFault::NotTheMachines(*ip));
        }
    }
    let matched: Vec<String> = kept.iter().map(|address| address.type_.clone()).collect();
    kept.extend(
        addresses
            .iter()
            .filter(|address| !matched.contains(&address.type_))
            .cloned(),
    );
    Ok(kept)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    fn addresses(text: &str) -> Vec<NodeAddress> {
        let kind = |letter| match letter {
            "I" => "InternalIP",
            "E" => "ExternalIP",
            "H" => "Hostname",
            "D" => "InternalDNS",
            _ => "ExternalDNS",
        };
        text.split_whitespace()
            .filter_map(|word| word.split_once('='))
            .map(|(letter, address)| NodeAddress {
                type_: kind(letter).into(),
                address: address.into(),
            })
            .collect()
    }

    fn node(annotation: Option<&str>, has: &str) -> Node {
        let mut node = Node::default();
        node.metadata.name = Some("node0".into());
        node.metadata.annotations =
            annotation.map(|text| [(PROVIDED_NODE_IP.to_owned(), text.to_owned())].into());
        node.status.get_or_insert_default().addresses = Some(addresses(has));
        node
    }

    #[rstest]
    // N-01, N-03
    #[case::the_clouds_host_name_wins(
        "I=10.0.0.1 H=node0.cloud",
        "H=nodeoverriden",
        "I=10.0.0.1 H=node0.cloud"
    )]
    // N-02
    #[case::the_kubelets_stays(
        "I=10.0.0.1 E=1.2.3.4",
        "H=nodeoverriden",
        "I=10.0.0.1 E=1.2.3.4 H=nodeoverriden"
    )]
    #[case::else_the_nodes_name("I=10.0.0.1", "", "I=10.0.0.1 H=node0")]
    #[case::never_wiped("", "I=10.0.0.9 H=node0", "")]
    fn without_provided_addresses_the_machines_are_listed(
        #[case] machine: &str,
        #[case] has: &str,
        #[case] expected: &str,
    ) {
        assert_eq!(
            wanted(&addresses(machine), &node(None, has)),
            Ok(addresses(expected))
        );
    }

    #[rstest]
    #[case::h10("10.1.1.1", "I=10.1.1.1 H=h", "I=10.1.1.1 H=h")]
    #[case::h11("55.55.55.55", "I=10.1.1.1 E=55.55.55.55 H=h", "E=55.55.55.55 I=10.1.1.1 H=h")]
    #[case::h12(
        "55.55.55.55",
        "I=44.44.44.44 E=44.44.44.44 I=55.55.55.55 E=55.55.55.55 H=h",
        "I=55.55.55.55 E=55.55.55.55 H=h"
    )]
    #[case::h13(
        "10.1.1.1",
        "I=10.1.1.1 E=5.5.5.5 D=i X=e H=h",
        "I=10.1.1.1 E=5.5.5.5 D=i X=e H=h"
    )]
    #[case::h14(
        "10.1.1.1",
        "I=10.1.1.1 I=10.2.2.2 I=10.3.3.3 E=5.5.5.5 H=h",
        "I=10.1.1.1 E=5.5.5.5 H=h"
    )]
    #[case::h16(
        "2600:1f14:1d4:d101::ba3d",
        "I=10.1.1.1 I=2600:1f14:1d4:d101:0:0:0:ba3d H=h",
        "I=2600:1f14:1d4:d101:0:0:0:ba3d H=h"
    )]
    #[case::h18(
        "10.1.1.1,fc01:1234::5678",
        "I=10.1.1.1 I=fc01:1234::5678 H=h",
        "I=10.1.1.1 I=fc01:1234::5678 H=h"
    )]
    #[case::h19(
        "10.1.1.1,fc01:1234::5678",
        "I=fc01:1234::5678 I=10.1.1.1 H=h",
        "I=10.1.1.1 I=fc01:1234::5678 H=h"
    )]
    #[case::h20(
        "10.1.1.1,fc01:1234::5678",
        "I=10.1.1.1 I=10.1.1.2 I=fc01:1234::1234 I=fc01:1234::5678 H=h",
        "I=10.1.1.1 I=fc01:1234::5678 H=h"
    )]
    #[case::h21(
        "10.1.1.1,fc01:1234::5678",
        "I=10.1.1.1 E=55.55.55.55 I=fc01:1234::1234 I=fc01:1234::5678 H=h",
        "I=10.1.1.1 I=fc01:1234::5678 E=55.55.55.55 H=h"
    )]
    #[case::h22(
        "fc01:1234::5678,10.1.1.1",
        "I=10.1.1.1 E=55.55.55.55 I=fc01:1234::5678 E=2001:db1::1 H=h",
        "I=fc01:1234::5678 I=10.1.1.1 E=55.55.55.55 E=2001:db1::1 H=h"
    )]
    #[case::h23(
        "55.55.55.55,fc01:1234::5678",
        "I=10.1.1.1 E=55.55.55.55 I=fc01:1234::5678 E=2001:db1::1 H=h",
        "E=55.55.55.55 I=fc01:1234::5678 H=h"
    )]
    fn provided_addresses_reduce_their_types(
        #[case] provided: &str,
        #[case] machine: &str,
        #[case] expected: &str,
    ) {
        assert_eq!(
            wanted(&addresses(machine), &node(Some(provided), "")),
            Ok(addresses(expected))
        );
    }

    #[rstest]
    #[case::h15("10.2.2.2", "I=10.1.1.1 E=5.5.5.5 H=h")]
    #[case::h17("10.1.1.1,fc01:1234::5678", "I=10.1.1.1 H=h")]
    // N-65
    #[case::the_cloud_knows_no_address("10.1.1.1", "")]
    fn an_address_that_the_machine_lacks_is_a_fault(#[case] provided: &str, #[case] machine: &str) {
        let fault = wanted(&addresses(machine), &node(Some(provided), "I=10.1.1.1"));
        assert!(matches!(fault, Err(AddressFault::NotTheMachines(_))), "{fault:?}");
    }

    #[rstest]
    #[case::n09("invalid-ip")]
    #[case::blanks("10.1.1.1, fc01::1")]
    #[case::leading_zero("010.1.1.1")]
    #[case::prefix("10.1.1.1/24")]
    #[case::one_family("10.1.1.1,10.1.1.2")]
    #[case::three("10.1.1.1,fc01::1,fc01::2")]
    #[case::unspecified_in_a_pair("0.0.0.0,fc01::1")]
    #[case::empty("")]
    fn an_annotation_that_is_no_address_is_a_fault(#[case] provided: &str) {
        let fault = wanted(&addresses("I=10.1.1.1"), &node(Some(provided), ""));
        assert!(matches!(fault, Err(AddressFault::Unreadable(_))), "{fault:?}");
    }
}
