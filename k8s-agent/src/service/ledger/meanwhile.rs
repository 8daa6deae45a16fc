//! With what a Service goes on that can't be served as it is written: what can be read of it, and for the rest what it wanted last.
//!
//! Pure. A process that remembers nothing goes on with what the Service shows (`intent`). One that remembers a wish knows better what
//! the fields meant that can't be read now, and nothing else is taken from it: who restricts a Service must be obeyed, also while another field
//! of it is a mistake.

use proto::v1::Wish;
use proto::v1::wish_port::Protocol;

use super::{Record, Valid};
use crate::service::annotations::{ADDRESS, ALGORITHM, HOSTNAME, PROXY_PROTOCOL, Problems, field};
use crate::service::backend::BackendName;
use crate::service::intent::Wanted;

impl Record {
    /// The wish to go on with; nothing if none is known. `meanwhile` is what can be read of the present one, where that is enough.
    pub fn goes_on(&mut self, meanwhile: Option<Valid>, problems: &Problems) -> Option<Valid> {
        match (self.valid.take(), meanwhile) {
            (Some(before), Some(now)) => Some(before.changed_to(now, problems)),
            (before, now) => now.or(before),
        }
    }
}

impl Valid {
    fn changed_to(self, mut now: Self, problems: &Problems) -> Self {
        // The wishes of two backends have nothing to do with each other.
        if self.wanted.backend != now.wanted.backend {
            return now;
        }
        fill_in(&mut now.wanted, &self.wanted, problems);
        if is_same(&now.wanted, &self.wanted) {
            // Then nobody is asked for it again.
            self
        } else {
            now
        }
    }
}

/// Puts what was wanted before in the place of what can't be read.
fn fill_in(now: &mut Wanted, before: &Wanted, problems: &Problems) {
    // An address whose annotation to keep it can't be read is kept, whatever was wanted before: the other mistake can't be undone.
    let is_unreadable = |name: &str| problems.first().iter().any(|problem| problem.field == name);
    if is_unreadable(&field(PROXY_PROTOCOL)) {
        let proxied = before.wish.ports.iter().any(|port| port.proxy_protocol);
        for port in &mut now.wish.ports {
            port.proxy_protocol = proxied && port.protocol() == Protocol::Tcp;
        }
    }
    if is_unreadable(&field(HOSTNAME)) {
        now.hostname.clone_from(&before.hostname);
    }
    if is_unreadable(&field(ALGORITHM)) {
        now.wish.algorithm = before.wish.algorithm;
    }
    if is_unreadable(&field(ADDRESS)) || is_unreadable("spec.loadBalancerIP") {
        now.wish
            .requested_address
            .clone_from(&before.wish.requested_address);
        if let (Some(now), Some(before)) = (&mut now.wish.adoption, &before.wish.adoption) {
            now.load_balancer_ip.clone_from(&before.load_balancer_ip);
        }
    }
    now.writes_outputs |= before.writes_outputs;
}

/// Whether a backend would do the same for both. One that announces addresses reads the Service itself.
fn is_same(one: &Wanted, other: &Wanted) -> bool {
    // A hint, which our own outputs change.
    let asked = |wanted: &Wanted| Wish {
        adoption: None,
        ..wanted.wish.clone()
    };
    one.backend == BackendName::Cloud
        && asked(one) == asked(other)
        && one.hostname == other.hostname
        && one.record_backend == other.record_backend
        && one.writes_outputs == other.writes_outputs
}
