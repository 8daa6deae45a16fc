//! Which address a balancer has, or takes.
//!
//! Decides the present address and what becomes of a requested one; where there is none, `taking` decides which is taken.

mod taking;

use std::net::IpAddr;

use proto::{Fault, FaultKind};

use super::marks::AddressWord;
use super::network;
use super::observation::Need;
use super::outcome::{Note, Wait};
use super::ownership::{Claim, Proof, jobs};
use super::plan::{Context, Impact, Phase, Planned, Step};
use super::wish::Wish;
use crate::cloudstack::types::{AddressId, AddressState, JobId, Network, PublicIpAddress};
use crate::tenant::AddressSharing;
pub(crate) use taking::{CANDIDATES, PROVABLE, is_bare, is_recent, leftovers};
use taking::{acquire, still_pending, take};

/// The address that rules go to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Site {
    /// Its id.
    pub address: AddressId,
    /// Its digits.
    pub ip: IpAddr,
    /// Whose it is.
    pub word: AddressWord,
}

/// What is to be done about the address.
#[derive(Clone, Debug)]
pub(crate) enum Decision {
    /// Use this one.
    At(Site),
    /// Look at more.
    Need(Vec<Need>),
    /// Do this first.
    First(Box<Planned>),
    /// Ask this job of ours until it ends.
    Await(JobId),
    /// Nothing can be done now; meanwhile the present one goes on.
    Wait {
        /// Why.
        wait: Wait,
        /// The present one.
        meanwhile: Option<Site>,
        /// For people.
        note: Note,
    },
    /// The wish can't be met.
    Refused(Fault),
}

/// Decides for a wish in a network.
pub(crate) fn decide(cx: &Context<'_>, wish: &Wish, network: &Network) -> Decision {
    let present = match present(cx, wish, network) {
        Ok(present) => present,
        Err(decision) => return *decision,
    };
    match (wish.requested, present) {
        (Some(ip), Some(site)) if site.ip == ip => Decision::At(site),
        (Some(ip), present) => request(cx, ip, network, present),
        (None, Some(site)) => Decision::At(site),
        (None, None) => acquire(cx, network),
    }
}

/// The address that the rules of the Service in this network decide: the requested one, else the published one, else the one
/// with most wanted rules.
fn present(cx: &Context<'_>, wish: &Wish, network: &Network) -> Result<Option<Site>, Box<Decision>> {
    let in_network = |id: &&AddressId| {
        cx.survey.mine_on(id).any(|claimed| {
            claimed
                .rule
                .network_id
                .as_ref()
                .is_none_or(|other| *other == network.id)
        })
    };
    // Somebody else's that is on its way out carries no more rules.
    let lost = |id: &&AddressId| {
        let releasing = |address: &PublicIpAddress| address.state == AddressState::Releasing;
        cx.observation.address(id).is_some_and(releasing)
            && cx.survey.word(cx.identity, cx.observation, id) == AddressWord::Given
    };
    let addresses = cx.survey.addresses();
    let usable = addresses.iter().filter(in_network).filter(|id| !lost(id));
    let best = usable.max_by_key(|id| {
        let ip = ip_of(cx, id);
        let wanted = |port: u16| wish.port(port).is_some();
        let rules = cx
            .survey
            .mine_on(id)
            .filter(|claimed| claimed.serves() && wanted(claimed.rule.public_port))
            .count();
        let published = ip.is_some_and(|ip| cx.published.contains(&ip));
        (
            ip.is_some() && ip == wish.requested,
            published,
            rules,
            std::cmp::Reverse((*id).clone()),
        )
    });
    let Some(id) = best else { return Ok(None) };
    let Some(address) = cx.observation.address(id) else {
        if !cx.observation.invisible.contains(id) {
            return Err(Box::new(Decision::Need(vec![Need::Address(id.clone())])));
        }
        let text = format!(
            "rules of the service are on address {id}, which is not visible to the keys of the broker"
        );
        return Err(Box::new(wait(
            Wait::for_a_change("ADDRESS_NOT_VISIBLE", &text),
            None,
            "AddressNotVisible",
            text,
        )));
    };
    let word = cx.survey.word(cx.identity, cx.observation, id);
    if address.state == AddressState::Releasing && word == AddressWord::Own {
        return Err(Box::new(end_release(cx, address)));
    }
    Ok(Some(Site {
        address: id.clone(),
        ip: address.ip,
        word,
    }))
}

fn ip_of(cx: &Context<'_>, id: &AddressId) -> Option<IpAddr> {
    let by_rule = || cx.survey.mine_on(id).find_map(|claimed| claimed.rule.ip);
    cx.observation
        .address(id)
        .map(|address| address.ip)
        .or_else(by_rule)
}

/// A release that failed half-way is done again before anything else.
fn end_release(cx: &Context<'_>, address: &PublicIpAddress) -> Decision {
    match release_again(cx, address) {
        Ok(planned) => Decision::First(Box::new(planned)),
        Err(need) => Decision::Need(vec![need]),
    }
}

/// The release of an address that is being released, once it was looked at in the turn to release it: it may be free by then, and
/// somebody else's a moment later.
pub(crate) fn release_again(cx: &Context<'_>, address: &PublicIpAddress) -> Result<Planned, Need> {
    if !cx.observation.holders.contains_key(&address.id) {
        return Err(Need::Holders(address.id.clone()));
    }
    Ok(Planned {
        phase: Phase::Repair,
        step: Step::Release {
            address: address.id.clone(),
            ip: address.ip,
        },
        reason: "its release was begun and did not end".to_owned(),
        impact: Impact::None,
    })
}

/// A requested address is never replaced by another one.
fn request(cx: &Context<'_>, ip: IpAddr, network: &Network, present: Option<Site>) -> Decision {
    let listed = cx.observation.addresses.iter().find(|address| address.ip == ip);
    let looked_up = cx.observation.digits.get(&ip);
    if listed.is_none() && looked_up.is_none() {
        return Decision::Need(vec![Need::Digits(ip)]);
    }
    let Some(address) = listed.or(looked_up.and_then(Option::as_ref)) else {
        let text = format!("{ip} is not free, belongs to somebody else or is no address of this cloud");
        return unavailable(ip, present, &text);
    };
    match &address.state {
        AddressState::Free => take(cx, address, network, present),
        AddressState::Allocated | AddressState::Reserved | AddressState::Other(_) => {
            use_requested(cx, address, network)
        }
        AddressState::Allocating => match jobs(cx.identity, cx.observation, address) {
            Proof::Ask(job) => Decision::Need(vec![Need::Job(job)]),
            Proof::Running(job) => Decision::Await(job),
            // Its job ended after it was looked up.
            Proof::Taken => still_pending(ip, present),
            Proof::NotTaken(_) => unavailable(ip, present, "it is just being taken"),
        },
        AddressState::Releasing => unavailable(ip, present, "it is just being released"),
    }
}

fn unavailable(ip: IpAddr, meanwhile: Option<Site>, why: &str) -> Decision {
    let text = format!("the requested address {ip} can't be had: {why}");
    let wait = Wait::for_a_change("ADDRESS_UNAVAILABLE", &text);
    let note = Note::warning("AddressUnavailable", text).about("requested_address");
    Decision::Wait {
        wait,
        meanwhile,
        note,
    }
}

/// A requested address that is allocated already: ours if proved, else given.
fn use_requested(cx: &Context<'_>, address: &PublicIpAddress, network: &Network) -> Decision {
    let refused = |reason: &'static str, text: String| {
        Decision::Refused(Fault::new(FaultKind::Conflict, reason, text).with_field("requested_address"))
    };
    if let Err(why) = network::may_use(network, address) {
        return refused(
            "ADDRESS_NOT_USABLE",
            format!("the requested address {} can't be used: {why}", address.ip),
        );
    }
    if let Err(why) = may_share(cx, address) {
        return refused(
            "ADDRESS_NOT_SHARED",
            format!("the requested address {} can't be used: {why}", address.ip),
        );
    }
    if cx.observation.rules_on(&address.id).next().is_none() && is_recent(cx, address) {
        match jobs(cx.identity, cx.observation, address) {
            Proof::Ask(job) => return Decision::Need(vec![Need::Job(job)]),
            Proof::Running(job) => return Decision::Await(job),
            Proof::Taken | Proof::NotTaken(_) => {}
        }
    }
    let word = cx.survey.word(cx.identity, cx.observation, &address.id);
    Decision::At(Site {
        address: address.id.clone(),
        ip: address.ip,
        word,
    })
}

fn may_share(cx: &Context<'_>, address: &PublicIpAddress) -> Result<(), String> {
    for other in cx.survey.others_on(&address.id).filter(|other| other.serves()) {
        let rule = &other.rule.name;
        let may_be_siblings = |mark| cx.identity.may_be_siblings(mark);
        let claim = match &other.mark {
            Some(mark) if may_be_siblings(mark) => Claim::Sibling,
            Some(_) | None => other.claim,
        };
        match (claim, cx.policy.address_sharing) {
            (Claim::OtherCluster, _) => return Err(format!("another cluster's rule {rule} is on it")),
            (Claim::Sibling, AddressSharing::None) => {
                return Err(format!(
                    "another service's rule {rule} is on it, and services of this cluster share none"
                ));
            }
            (Claim::Sibling, AddressSharing::Namespace) => {
                let service = other
                    .mark
                    .as_ref()
                    .map(|mark| mark.service.as_str())
                    .unwrap_or_default();
                let namespace = cx.observation.namespaces.of(cx.identity.uids.mark(), service);
                if namespace != Some(cx.identity.service.namespace.as_str()) {
                    return Err(format!(
                        "rule {rule} is on it, of a service in another namespace or one not heard of yet"
                    ));
                }
            }
            (Claim::Sibling, AddressSharing::Cluster) | (Claim::Mine | Claim::Stranger, _) => {}
        }
    }
    Ok(())
}

fn wait(wait: Wait, meanwhile: Option<Site>, reason: &'static str, text: String) -> Decision {
    Decision::Wait {
        wait,
        meanwhile,
        note: Note::warning(reason, text),
    }
}
