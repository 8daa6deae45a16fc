//! What works otherwise than a Service's author may expect.
//!
//! Decides the advisory warnings; none of them blocks anything. Facts relied on: the consumer checks every back end
//! with a TCP connect to the service port, finds named target ports by the Service port's name, and has one VRRP
//! instance, which announces at most 255 addresses; direct routing can't change the port.

use std::collections::BTreeSet;

use super::super::claim::{Claim, Family, Standing, Target};
use super::super::method::{Method, Named};
use super::super::notes::Reason;
use super::{Draft, Held};

/// So many addresses does one VRRP instance announce.
const ANNOUNCED_LIMIT: usize = 255;

/// Adds the advice for every Service that asks and is served.
pub(super) fn advise(draft: &mut Draft<'_>) {
    let asked = draft
        .held
        .iter()
        .filter(|held| held.claim.standing == Standing::Asked);
    let mut texts: Vec<(&Claim, String)> = asked
        .flat_map(|held| {
            let method = held.method().unwrap_or_default();
            advice(held.claim, method)
                .into_iter()
                .map(|text| (held.claim, text))
        })
        .collect();
    texts.extend(beyond_limit(draft));
    for (claim, text) in texts {
        draft.note(claim, Reason::KeepalivedLimitation, text);
    }
}

fn advice(claim: &Claim, method: Method) -> Vec<String> {
    let wish = &claim.wish;
    let named = method.effective();
    let mut texts = Vec::new();
    if named != Named::Vip {
        if let Some(port) = wish.ports.iter().find(|port| port.protocol != "TCP") {
            texts.push(format!(
                "port {port}: back ends are checked by a TCP connect and count as dead unless they accept TCP there too; the forward method VIP has no such check"
            ));
        }
        for port in &wish.ports {
            match &port.target {
                Target::Name(target) if *target != port.name => texts.push(format!(
                    "port {port}: its named target port \"{target}\" is found only if the Service port has the same name; the forward method VIP does not need that"
                )),
                Target::Number(target) if named == Named::Dr && *target != port.number => texts.push(format!(
                    "port {port}: direct routing can't change the port, so traffic arrives at {} and not at {target}",
                    port.number
                )),
                Target::Name(_) | Target::Number(_) => {}
            }
        }
    }
    let other_protocol = wish.ports.iter().find(|port| port.protocol != "TCP");
    if let Some(port) = other_protocol.filter(|_| named == Named::Proxy) {
        texts.push(format!(
            "port {port}: the PROXY method forwards TCP only, and one port with two protocols stops it for all Services"
        ));
    }
    if wish.local_traffic {
        texts.push("externalTrafficPolicy Local: the node that holds the address may have no back end, and then drops the traffic".to_owned());
    }
    if wish.family == Family::Ipv6First {
        texts.push("the Service's first address family is IPv6, so its back ends can't be reached from an IPv4 address".to_owned());
    }
    texts
}

/// Services whose addresses come after as many as can be announced.
fn beyond_limit<'a>(draft: &Draft<'a>) -> Vec<(&'a Claim, String)> {
    let mut seen = BTreeSet::new();
    let is_beyond = |held: &&Held<'a>| {
        let is_new = seen.insert(held.record.ip.clone());
        is_new && seen.len() + draft.foreign.len() > ANNOUNCED_LIMIT
    };
    let beyond: Vec<&Held<'a>> = draft.held.iter().filter(is_beyond).collect();
    beyond
        .into_iter()
        .filter(|held| held.claim.standing == Standing::Asked)
        .map(|held| {
            let text = format!(
                "{} is beyond the {ANNOUNCED_LIMIT} addresses that keepalived announces",
                held.record.ip
            );
            (held.claim, text)
        })
        .collect()
}
