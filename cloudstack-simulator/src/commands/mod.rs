//! The commands, by what they are about.
#![expect(clippy::unnecessary_wraps, reason = "all commands of a kind have one shape")]

mod acl;
mod acl_items;
mod acl_list;
mod address;
mod address_list;
mod address_use;
mod control;
mod discovery;
mod firewall;
mod job;
mod load_balancer;
mod machine;
mod machine_list;
mod member;
mod network;
mod network_write;
mod operator;
mod rule_delete;
mod rule_list;
mod rule_update;
mod sticky;
mod tag;

pub(crate) mod conflict;
pub(crate) mod sources;

use crate::catalog::Spec;

pub(crate) use self::machine::expunge_now;
pub(crate) use self::tag::check_filter;

/// All of them.
pub(crate) const ALL: &[&[Spec]] = &[
    acl::SPECS,
    acl_items::SPECS,
    acl_list::SPECS,
    address::SPECS,
    address_list::SPECS,
    address_use::SPECS,
    control::SPECS,
    discovery::SPECS,
    firewall::SPECS,
    job::SPECS,
    load_balancer::SPECS,
    machine::SPECS,
    machine_list::SPECS,
    member::SPECS,
    network::SPECS,
    network_write::SPECS,
    operator::SPECS,
    rule_delete::SPECS,
    rule_list::SPECS,
    rule_update::SPECS,
    sticky::SPECS,
    tag::SPECS,
];
