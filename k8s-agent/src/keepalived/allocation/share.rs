//! Several Services on one address.
//!
//! Decides who may join whom: one sharing key, no port twice, and everybody with the method `VIP`, because an entry
//! can lead to one Service only and an empty entry leaves forwarding to kube-proxy.

use super::super::claim::{Claim, Port};
use super::super::method::Method;
use super::Held;

/// Why a Service can't join.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum ShareRefusal {
    /// Somebody has the address for itself.
    #[error(
        "it is in use by {0}; to share it, give both Services the same sharing key and the forward method VIP"
    )]
    InUse(String),
    /// The method can't be shared.
    #[error("it is in use by {0}, and only Services with the forward method VIP can share an address")]
    Method(String),
    /// A port is served already.
    #[error("it is in use by {owner}, and port {port} is taken there")]
    Port {
        /// Who has the port.
        owner: String,
        /// The port.
        port: String,
    },
}

/// Whether a Service may join those that have the address.
pub(super) fn may_join<'a, 'b: 'a>(
    members: impl Iterator<Item = &'a Held<'b>>,
    claim: &Claim,
    method: Method,
) -> Result<(), ShareRefusal> {
    for member in members.filter(|member| member.claim.uid != claim.uid) {
        let owner = member.claim.full_name();
        if claim.wish.sharing_key.is_none() || member.claim.wish.sharing_key != claim.wish.sharing_key {
            return Err(ShareRefusal::InUse(owner));
        }
        if !method.is_vip() || !member.method().is_some_and(Method::is_vip) {
            return Err(ShareRefusal::Method(owner));
        }
        if let Some(port) = common_port(claim, member.claim) {
            return Err(ShareRefusal::Port {
                owner,
                port: port.to_string(),
            });
        }
    }
    Ok(())
}

/// A port that both Services serve.
pub(super) fn common_port<'a>(one: &'a Claim, other: &Claim) -> Option<&'a Port> {
    let taken = |port: &&Port| {
        other
            .wish
            .ports
            .iter()
            .any(|theirs| theirs.listener() == port.listener())
    };
    one.wish.ports.iter().find(taken)
}
