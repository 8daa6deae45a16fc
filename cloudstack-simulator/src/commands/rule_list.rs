//! Listing load balancer rules.

use serde_json::Value;

use crate::catalog::Spec;
use crate::dispatch::{self, Call};
use crate::error::ApiError;
use crate::request::{Entity, Kind, Param, TEXT, may};
use crate::scope::Scope;
use crate::state::World;

const FILTERS: &[Param] = &[
    may("id", Kind::Id(Entity::Rule)),
    may("name", TEXT),
    may("publicipid", Kind::Id(Entity::Address)),
    may("virtualmachineid", Kind::Id(Entity::Machine)),
    may("zoneid", Kind::Id(Entity::Zone)),
    may("networkid", Kind::Id(Entity::Network)),
    may("fordisplay", Kind::Flag),
];

pub(super) const SPECS: &[Spec] = &[Spec::read("listLoadBalancerRules", FILTERS, list)];

fn list(world: &World, call: &Call) -> Result<Value, ApiError> {
    let args = &call.args;
    let scope = Scope::of(world, call, args.id("id").is_some())?;
    let (address, network, machine, zone) = (
        args.id("publicipid"),
        args.id("networkid"),
        args.id("virtualmachineid"),
        args.id("zoneid"),
    );
    let keyword = args.filled("keyword").map(str::to_lowercase);
    let is = |wanted: Option<crate::request::IdArg>, id| {
        wanted.is_none_or(|wanted| wanted == crate::request::IdArg::Is(id))
    };
    let rows = world.rules.iter().filter(|rule| {
        is(args.id("id"), rule.id)
            && is(address, rule.address)
            && is(network, rule.network)
            && machine.is_none_or(|_| {
                rule.members
                    .iter()
                    .any(|member| Some(member.machine) == args.uuid("virtualmachineid"))
            })
            && zone
                .is_none_or(|_| world.addresses.get(rule.address).map(|row| row.zone) == args.uuid("zoneid"))
            && args
                .filled("name")
                .is_none_or(|name| rule.name.eq_ignore_ascii_case(name))
            && keyword.as_ref().is_none_or(|keyword| {
                like(&rule.name, keyword) || rule.description.as_ref().is_some_and(|text| like(text, keyword))
            })
            && super::tag::matches(world, call, rule.id)
            && scope.has(world, rule.owner)
    });
    let shown = rows.map(|rule| Value::Object(world.show_rule(rule, call.reader())));
    dispatch::list(world, call, "loadbalancerrule", shown.collect())
}

/// A substring search as the database does it: `%` stands for anything, `_` for one character. The pattern is in lower case.
pub(super) fn like(text: &str, pattern: &str) -> bool {
    let text: Vec<char> = text.to_lowercase().chars().collect();
    let pattern: Vec<char> = format!("%{pattern}%").chars().collect();
    // reached[i]: the pattern so far matches the first i characters.
    let mut reached: Vec<bool> = (0..=text.len()).map(|at| at == 0).collect();
    for c in pattern {
        reached = match c {
            '%' => {
                let mut any = false;
                reached
                    .iter()
                    .map(|at| {
                        any |= at;
                        any
                    })
                    .collect()
            }
            _ => std::iter::once(false)
                .chain(
                    reached
                        .iter()
                        .zip(&text)
                        .map(|(at, t)| *at && (c == '_' || c == *t)),
                )
                .collect(),
        };
    }
    reached.last().copied().unwrap_or(false)
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::inside("svc-10", "svc-1", true)]
    #[case::case_counts_not("SVC-10", "svc", true)]
    #[case::wildcard("svc-10-tcp", "svc%tcp", true)]
    #[case::one_character("svc-10", "svc_10", true)]
    #[case::other("svc-10", "svc-2", false)]
    #[case::empty_text("", "a", false)]
    fn a_keyword_is_a_like_search(#[case] text: &str, #[case] pattern: &str, #[case] found: bool) {
        assert_eq!(like(text, pattern), found);
    }
}
