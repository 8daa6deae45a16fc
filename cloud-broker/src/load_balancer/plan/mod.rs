//! From what is wanted and what was seen to steps. Pure.
//!
//! | file | decides |
//! | --- | --- |
//! | `step`, `effect` | what a step is, how it reads, and how it shows once it succeeded |
//! | `beside` | which steps begin together |
//! | `adopt` | marks for the rules of an older controller |
//! | `rules` | rules and their members on the chosen address |
//! | `replace` | how a rule is made, and how it takes the place of another |
//! | `update` | what of a rule is changed in place, its mark included |
//! | `firewall` | firewall rules of a port |
//! | `acl` | ACL items of a port |
//! | `depart` | how a balancer leaves an address |
//! | `outside` | what becomes of a Service whose rules the fence leaves out |
//! | `unused` | which addresses without a rule are given back |
//!
//! A plan holds what can be planned on what was seen; its first steps are done, their effects folded in, and the next plan is
//! made. So every prefix of a plan is a state that planning goes on from, whoever dies in between.

mod acl;
mod adopt;
mod beside;
mod depart;
mod effect;
mod firewall;
mod outside;
mod replace;
mod rules;
mod step;
mod unused;
mod update;

use std::net::IpAddr;

use proto::Fault;

use super::address::{self, Decision, Site};
use super::marks::AddressWord;
use super::members::{WantedMembers, replace_id};
use super::network;
use super::observation::{Need, Observation};
use super::outcome::{Ingress, Note, Outputs, Served, Wait, enumerate};
use super::ownership::{Identity, Survey};
use super::wish::{AdoptionHint, DialectWish, Wish};
use crate::cloudstack::types::{JobId, Network};
use crate::tenant::{NameOrId, Policy, Scope};

pub(crate) use effect::Answered;
pub use step::Impact;
pub(crate) use step::{Phase, Planned, Step};
pub(crate) use unused::give_back;

/// The end of a balancer, as it is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Farewell {
    /// Hand the address over instead of releasing it.
    pub keep_address: bool,
    /// The network that the Service names.
    pub network: Option<NameOrId>,
    /// Whose names.
    pub dialect: DialectWish,
    /// Looked at when rules were never adopted.
    pub adoption: AdoptionHint,
}

/// What is to become of a balancer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Goal {
    /// It serves like this.
    Serve(Box<Wish>),
    /// It goes.
    Leave(Farewell),
}

/// What a plan is made for.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    /// Who asks.
    pub identity: Identity,
    /// What the tenant may see.
    pub scope: Scope,
    /// What it may do.
    pub policy: Policy,
    /// Addresses that the Service's status shows.
    pub published: Vec<IpAddr>,
    /// Machines of the cluster's nodes are visible.
    pub nodes_visible: bool,
    /// What is wanted.
    pub goal: Goal,
}

/// What the parts of the plan look at.
pub(crate) struct Context<'a> {
    /// Who asks.
    pub identity: &'a Identity,
    /// What the tenant may see.
    pub scope: &'a Scope,
    /// What it may do.
    pub policy: &'a Policy,
    /// Addresses that the Service's status shows.
    pub published: &'a [IpAddr],
    /// Machines of the cluster's nodes are visible.
    pub nodes_visible: bool,
    /// What was seen.
    pub observation: &'a Observation,
    /// Whose the rules are.
    pub survey: Survey<'a>,
}

impl<'a> Context<'a> {
    fn of(request: &'a Request, observation: &'a Observation) -> Self {
        Self {
            identity: &request.identity,
            scope: &request.scope,
            policy: &request.policy,
            published: &request.published,
            nodes_visible: request.nodes_visible,
            observation,
            survey: Survey::of(&request.identity, observation),
        }
    }
}

/// Where a plan ends.
#[derive(Clone, Debug, Default)]
pub(crate) enum End {
    /// There is more to look at or to do.
    #[default]
    Unfinished,
    /// Everything is as it is wanted.
    Served(Box<Served>),
    /// Nothing is left that the cluster owns.
    Departed,
    /// Nothing more can be done now.
    Wait(Wait),
    /// This job of ours has to end first.
    Await(JobId),
    /// It can't be done as it is.
    Refused(Fault),
}

/// A plan.
#[derive(Clone, Debug, Default)]
pub(crate) struct Plan {
    /// What is done, in order.
    pub steps: Vec<Planned>,
    /// What has to be looked at before anything is done.
    pub needs: Vec<Need>,
    /// What a person should see.
    pub notes: Vec<Note>,
    /// Where it ends when there are no steps and no needs.
    pub end: End,
    /// Consent that a person would have to give, by id.
    pub consent: Option<String>,
    /// Addresses that stay allocated, each with a note.
    pub kept: Vec<IpAddr>,
}

impl Plan {
    fn refused(fault: Fault) -> Self {
        Self {
            end: End::Refused(fault),
            ..Self::default()
        }
    }

    fn needing(needs: Vec<Need>) -> Self {
        Self {
            needs,
            ..Self::default()
        }
    }

    fn push(&mut self, phase: Phase, step: Step, reason: impl Into<String>, impact: Impact) {
        self.steps.push(Planned {
            phase,
            step,
            reason: reason.into(),
            impact,
        });
    }

    /// Steps in their order; what needs to be looked at once each; nothing that ends before it is done.
    fn finished(mut self) -> Self {
        self.steps.sort_by_key(|planned| planned.phase);
        self.needs.sort();
        self.needs.dedup();
        let open = !self.steps.is_empty() || !self.needs.is_empty();
        if open && !matches!(self.end, End::Refused(_)) {
            self.end = End::Unfinished;
        }
        self
    }
}

/// Makes a plan.
pub(crate) fn plan(request: &Request, observation: &Observation) -> Plan {
    let cx = Context::of(request, observation);
    if !cx.survey.undecided().is_empty() {
        let rules = cx.survey.undecided().iter();
        return Plan::needing(rules.cloned().map(Need::Members).collect()).finished();
    }
    match &request.goal {
        Goal::Serve(wish) => serve(&cx, wish),
        Goal::Leave(farewell) => depart::leave(&cx, farewell),
    }
    .finished()
}

fn serve(cx: &Context<'_>, wish: &Wish) -> Plan {
    if cx.survey.is_unadopted() {
        return adopt::plan(cx, &wish.adoption, wish.keep_address, Some(wish));
    }
    if let Some(plan) = outside::wait(cx) {
        return plan;
    }
    let network = match network::choose(wish, cx.scope, &cx.survey, cx.observation) {
        Ok(Some(network)) => network,
        Ok(None) => return without_network(cx, wish),
        Err(fault) => return Plan::refused(fault),
    };
    if let Err(fault) = network::check(network, wish, cx.observation.features, &cx.survey) {
        return Plan::refused(fault);
    }
    let (members, notes) = WantedMembers::of(wish, cx.scope, network, cx.observation);
    let mut plan = Plan {
        notes,
        ..Plan::default()
    };
    let Some((site, wait)) = site(cx, wish, network, &mut plan) else {
        return plan;
    };
    let Some(address) = cx.observation.address(&site.address) else {
        return Plan::needing(vec![Need::Address(site.address)]);
    };
    if let Err(fault) = network::check_address(network, wish, address) {
        return Plan::refused(fault);
    }
    let here = rules::Here {
        network,
        site: &site,
        wish,
        members: &members,
    };
    if let Err(fault) = rules::plan(cx, &here, &mut plan) {
        return Plan::refused(fault);
    }
    if matches!(plan.end, End::Refused(_)) {
        return plan;
    }
    let leaving = depart::others(cx, &here, &mut plan);
    plan.end = match wait {
        Some(wait) => End::Wait(wait),
        None => End::Served(Box::new(Served {
            ingress: Ingress {
                ip: site.ip,
                proxy: wish.is_proxy(),
            },
            leaving,
            outputs: Outputs {
                address_id: site.address.clone(),
                network_id: network.id.clone(),
                address_owned: site.word == AddressWord::Own,
            },
        })),
    };
    plan
}

/// The address to plan on, and what is waited for meanwhile; without one the plan says what comes first.
fn site(cx: &Context<'_>, wish: &Wish, network: &Network, plan: &mut Plan) -> Option<(Site, Option<Wait>)> {
    match address::decide(cx, wish, network) {
        Decision::At(site) => return Some((site, None)),
        Decision::Wait {
            wait,
            meanwhile,
            note,
        } => {
            plan.notes.push(note);
            match meanwhile {
                Some(site) => return Some((site, Some(wait))),
                None => plan.end = End::Wait(wait),
            }
        }
        Decision::Need(needs) => plan.needs = needs,
        Decision::First(step) => plan.steps.push(*step),
        Decision::Await(job) => plan.end = End::Await(job),
        Decision::Refused(fault) => plan.end = End::Refused(fault),
    }
    None
}

fn without_network(cx: &Context<'_>, wish: &Wish) -> Plan {
    let (reason, event, text) = if cx.survey.mine().next().is_some() {
        let text = "the network of the service's rules is not visible to the keys of the broker";
        ("NETWORK_NOT_VISIBLE", "NetworkNotVisible", text.to_owned())
    } else {
        ("NO_NETWORK", "NoNetwork", no_network(cx, wish))
    };
    let notes = vec![Note::warning(event, text.clone()).about("members")];
    Plan {
        notes,
        end: End::Wait(Wait::for_a_change(reason, text)),
        ..Plan::default()
    }
}

/// Why no network is known: which nodes were looked at, and where.
fn no_network(cx: &Context<'_>, wish: &Wish) -> String {
    let members = &wish.members;
    let mut nodes: Vec<&str> = members
        .machines
        .values()
        .chain(&members.unresolved)
        .map(String::as_str)
        .collect();
    nodes.sort_unstable();
    let place = match &cx.scope.project {
        Some(project) => format!("project {project}"),
        None => "the account".to_owned(),
    };
    if nodes.is_empty() {
        return format!("no node was named that is a machine of {place}, so no network is known");
    }
    format!(
        "none of the nodes ({}) is a machine in a network of this cluster in {place}, so no network is known; \
         check the project and the networks of the configuration, or name the network in its annotation",
        enumerate(&nodes)
    )
}

/// Consent of a person for members that are replaced all at once.
fn consent(cx: &Context<'_>, here: &rules::Here<'_>, plan: &mut Plan) -> Result<(), Fault> {
    let replaced: std::collections::BTreeSet<_> = rules::kept(cx, here)
        .filter_map(|rule| cx.observation.members.get(&rule.id))
        .filter_map(|present| here.members.replaced_wholesale(present, cx.observation))
        .flatten()
        .cloned()
        .collect();
    if replaced.is_empty() {
        return Ok(());
    }
    let id = replace_id(&cx.identity.service.uid, here.members, &replaced);
    if here.wish.accept_replace == id {
        return Ok(());
    }
    let machines = replaced
        .iter()
        .map(crate::cloudstack::types::MachineId::as_str)
        .take(5)
        .collect::<Vec<_>>()
        .join(", ");
    let text = format!(
        "all members would be replaced although machines that no node claims run ({machines}): a copy of this cluster \
         may serve this balancer; stop them, or accept plan {id}"
    );
    plan.consent = Some(id);
    Err(Fault::new(proto::FaultKind::Conflict, "REPLACES_ALL_MEMBERS", text).with_field("accept_replace"))
}

#[cfg(test)]
mod tests;
