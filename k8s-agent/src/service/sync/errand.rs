//! What one order is about, and what it alone tells.

use crate::events::Reason;
use crate::service::backend::{BackendName, Notice};
use crate::service::fingerprint::Fingerprint;
use crate::service::intent::Wanted;
use crate::service::ledger::Why;
use crate::service::members::Members;
use crate::service::status::Trouble;

/// An order, while it is carried out.
pub(super) struct Errand {
    pub(super) wanted: Wanted,
    pub(super) members: Members,
    pub(super) fingerprint: Fingerprint,
    pub(super) why: Why,
    /// Why this is not all that the Service asks for.
    pub(super) trouble: Option<Trouble>,
}

impl Errand {
    /// What the Service and its nodes alone tell. An announced address needs no members.
    pub(super) fn notices(&self) -> impl Iterator<Item = Notice> {
        let balanced = (self.wanted.backend == BackendName::Cloud).then(|| {
            let empty = self.members.wish.is_empty().then(|| {
                let text =
                    "there are no available nodes for this load balancer; members that it has are kept";
                Notice::of(&Reason::UNAVAILABLE_LOAD_BALANCER, "", text)
            });
            self.members.notices.clone().into_iter().chain(empty)
        });
        self.wanted
            .notices
            .clone()
            .into_iter()
            .chain(balanced.into_iter().flatten())
    }
}
