//! How a rule is made, and how it takes the place of another.
//!
//! Decides what goes before what. Facts: two rules of one address never share a port, so the old one goes first; that an
//! address is the Service's, and whose it is, is told by the Service's rules on it. So one of them stays at any time: a tag or
//! another Service's rule would prove the address, and yet nobody would find it again.

use std::collections::BTreeSet;

use super::rules::{Here, Ports, keeper, mine_at, takes_list};
use super::{Context, Impact, Phase, Plan, Step};
use crate::cloudstack::CreateRule;
use crate::cloudstack::types::RuleId;
use crate::load_balancer::network::STATISTICS_PORT;
use crate::load_balancer::sources::{Sources, SourcesHash};
use crate::load_balancer::wish::{Protocol, WishPort};

impl Ports<'_, '_> {
    /// Makes the rule of a port, or makes room for it first.
    pub(super) fn create(&self, port: &WishPort, src: BTreeSet<SourcesHash>, plan: &mut Plan) {
        let mut blockers = mine_at(self.cx, self.here, port.port).peekable();
        if blockers.peek().is_none() {
            let rule = self.rule(port.protocol, (port.port, port.node_port), src);
            let reason = format!("no rule serves port {}", port.port);
            plan.push(Phase::Build, self.create_step(rule), reason, Impact::None);
        }
        for blocker in blockers {
            let reason = format!(
                "protocol or node port of port {} changed, and its successor needs the place",
                port.port
            );
            plan.push(Phase::Replace, Step::delete(blocker.rule), reason, Impact::Outage);
        }
    }

    /// A rule without members and firewall that holds the address while every rule of the Service on it is replaced.
    pub(super) fn placeholder(&self, plan: &mut Plan) {
        let (cx, here) = (self.cx, self.here);
        let replaced = replaced(cx, here);
        let stays = cx.survey.mine_on(&here.site.address).any(|claimed| {
            let network = claimed.rule.network_id.as_ref();
            claimed.serves()
                && network.is_none_or(|network| *network == here.network.id)
                && !replaced.contains(&claimed.rule.id)
        });
        if stays || replaced.is_empty() {
            return;
        }
        let used: BTreeSet<u16> = cx
            .observation
            .rules_on(&here.site.address)
            .map(|rule| rule.public_port)
            .chain(here.wish.ports.iter().map(|port| port.port))
            .chain([STATISTICS_PORT])
            .collect();
        let free = (1..=u16::MAX).rev().find(|port| !used.contains(port));
        let node_port = here.wish.ports.first().map(|port| port.node_port);
        if let (Some(port), Some(node_port)) = (free, node_port) {
            let rule = self.rule(Protocol::Tcp, (port, node_port), self.all_known());
            let reason = "it holds the address while every rule of the service is replaced";
            plan.push(Phase::Replace, self.create_step(rule), reason, Impact::None);
        }
    }

    fn create_step(&self, rule: CreateRule) -> Step {
        Step::CreateRule {
            rule,
            ip: self.here.site.ip,
            check_network: self.here.network.vpc_id.is_some(),
        }
    }

    fn rule(
        &self,
        protocol: Protocol,
        (port, node_port): (u16, u16),
        src: BTreeSet<SourcesHash>,
    ) -> CreateRule {
        let here = self.here;
        let sources = here
            .wish
            .sources
            .rule_list()
            .unwrap_or_else(|| Sources::everybody().list());
        CreateRule {
            name: self.name(protocol, port),
            description: self.mark(src).to_string(),
            address: here.site.address.clone(),
            network: here.network.id.clone(),
            public_port: port,
            private_port: node_port,
            algorithm: here.wish.algorithm.clone(),
            protocol: protocol.rule(),
            sources: takes_list(self.cx, here).then_some(sources),
        }
    }
}

/// The rules that are in the way of their successors.
fn replaced<'a>(cx: &'a Context<'_>, here: &'a Here<'_>) -> BTreeSet<&'a RuleId> {
    here.wish
        .ports
        .iter()
        .filter(|port| keeper(cx, here, port).is_none())
        .flat_map(|port| mine_at(cx, here, port.port))
        .map(|claimed| &claimed.rule.id)
        .collect()
}
