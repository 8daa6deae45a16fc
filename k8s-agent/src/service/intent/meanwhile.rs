//! What a Service that serves already is given while its annotations can't be read.
//!
//! Pure. A controller before this one took a word that it did not know for no word, so a Service may have served for years with one. Refusing
//! such a Service altogether would keep new nodes from it. It goes on as it is where that can be told: nobody is let in whom the Service keeps
//! out, and no port changes its protocol under its clients. Lists of networks are never guessed.

use k8s_openapi::api::core::v1::Service;

use super::{annotations_of, ingress};
use crate::service::annotations::{
    ADDRESS, ALGORITHM, BACKEND, HOSTNAME, ID, KEEP_IP, PROXY_PROTOCOL, Problem, Problems, Settings, field,
};

/// Fields that can be done without.
const DISPENSABLE: &[&str] = &[PROXY_PROTOCOL, KEEP_IP, HOSTNAME, ADDRESS, ALGORITHM, BACKEND];

/// Whether a Service can be served without what this problem is about.
pub(super) fn is_dispensable(problem: &Problem) -> bool {
    problem.field == "spec.loadBalancerIP" || DISPENSABLE.iter().any(|name| problem.field == field(name))
}

/// Puts what is there in place of what can't be read. Answers whether all of it is known.
pub(super) fn stand_in(service: &Service, settings: &mut Settings, problems: &Problems) -> bool {
    let is_unreadable = |name: &str| {
        problems
            .first()
            .iter()
            .any(|problem| problem.field == field(name))
    };
    if is_unreadable(KEEP_IP) {
        // The other mistake can't be undone.
        settings.keep_ip = true;
    }
    if is_unreadable(HOSTNAME) {
        settings.hostname = ingress(service)
            .iter()
            .find_map(|reached| reached.hostname.clone());
    }
    if is_unreadable(PROXY_PROTOCOL) {
        let shown = shows_proxy_protocol(service);
        settings.proxy_protocol = shown.unwrap_or_default();
        return shown.is_some();
    }
    true
}

/// Whether the id of its address in the cloud is written on it: by this program, or by the Leaseweb controller; the Apache one writes none.
pub(super) fn has_id(service: &Service) -> bool {
    annotations_of(service).contains_key(ID)
}

/// Whether the ports send the PROXY protocol header, as far as the status tells.
fn shows_proxy_protocol(service: &Service) -> Option<bool> {
    let modes: Vec<_> = ingress(service)
        .iter()
        .map(|reached| reached.ip_mode.as_deref())
        .collect();
    if modes.contains(&Some("Proxy")) {
        return Some(true);
    }
    let all_vip = !modes.is_empty() && modes.iter().all(|mode| *mode == Some("VIP"));
    // Without a mode (a host name, or a kube-apiserver that drops it) only a controller that writes no outputs is sure: it knew no
    // other word than true.
    (all_vip || !has_id(service)).then_some(false)
}
