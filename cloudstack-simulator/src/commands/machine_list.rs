//! Listing virtual machines.

use serde_json::{Value, json};

use crate::catalog::Spec;
use crate::dispatch::{self, Call};
use crate::error::ApiError;
use crate::request::{Entity, Kind, Param, TEXT, may};
use crate::scope::Scope;
use crate::state::show::{Reader, object, strip};
use crate::state::{Machine, MachineState, Object, RoleKind, World};

const FILTERS: &[Param] = &[
    may("groupid", Kind::Id(Entity::Other)),
    may("hostid", Kind::Id(Entity::Other)),
    may("id", Kind::Id(Entity::Machine)),
    may("ids", Kind::LooseIds(Entity::Machine)),
    may("name", TEXT),
    may("state", TEXT),
    may("zoneid", Kind::Id(Entity::Zone)),
    may("forvirtualnetwork", Kind::Flag),
    may("networkid", Kind::Id(Entity::Network)),
    may("hypervisor", TEXT),
    may("details", Kind::Names),
    may("templateid", Kind::Id(Entity::Template)),
    may("vpcid", Kind::Id(Entity::Vpc)),
    may("affinitygroupid", Kind::Id(Entity::Other)),
    may("serviceofferingid", Kind::Id(Entity::ServiceOffering)),
    may("haenable", Kind::Flag),
    may("userid", Kind::Id(Entity::User)),
    may("retrieveonlyresourcecount", Kind::Flag),
];

pub(super) const SPECS: &[Spec] = &[
    Spec::read("listVirtualMachines", FILTERS, list),
    Spec::read("listVirtualMachinesMetrics", FILTERS, list),
];

/// Groups of fields that a call asks for.
#[derive(Debug, Clone)]
pub(super) struct Details(Vec<String>);

const ALLOWED: [&str; 14] = [
    "all", "group", "nics", "stats", "secgrp", "tmpl", "servoff", "diskoff", "backoff", "iso", "volume",
    "min", "affgrp", "vnfnics",
];

impl Details {
    /// All groups.
    pub(super) fn everything() -> Self {
        Self(Vec::new())
    }

    fn of(call: &Call) -> Result<Self, ApiError> {
        let names = call.args.list("details").unwrap_or_default();
        if names.iter().any(|name| !ALLOWED.contains(&name.as_str())) {
            return Err(ApiError::invalid(format!(
                "The details parameter contains a non permitted value. The allowed values are [{}]",
                ALLOWED.join(", ")
            )));
        }
        Ok(Self(names))
    }

    fn has(&self, group: &str) -> bool {
        self.0.is_empty() || self.0.iter().any(|name| name == group || name == "all")
    }
}

fn list(world: &World, call: &Call) -> Result<Value, ApiError> {
    let args = &call.args;
    if args.text("id").is_some() && args.filled("ids").is_some() {
        return Err(ApiError::invalid(
            "Specify either id or ids but not both parameters",
        ));
    }
    let details = Details::of(call)?;
    let ids = args.ids("ids");
    let scope = Scope::of(world, call, args.id("id").is_some() || ids.is_some())?;
    let rows: Vec<&Machine> = world
        .machines
        .iter()
        .filter(|machine| {
            (args.id("id").is_none() || args.uuid("id") == Some(machine.id))
                && ids.as_ref().is_none_or(|ids| ids.contains(&machine.id))
                && is_shown(world, call, machine)
                && fits(world, call, machine)
                && super::tag::matches(world, call, machine.id)
                && scope.has(world, machine.owner)
        })
        .collect();
    let shown = rows
        .into_iter()
        .map(|machine| Value::Object(show(world, machine, &details, call.reader())));
    dispatch::list(world, call, "virtualmachine", shown.collect())
}

/// Destroyed machines are hidden from users.
fn is_shown(world: &World, call: &Call, machine: &Machine) -> bool {
    machine.state != MachineState::Destroyed
        || call.caller.kind != RoleKind::User
        || world.is_set("allow.user.view.destroyed.vm")
}

fn fits(world: &World, call: &Call, machine: &Machine) -> bool {
    let args = &call.args;
    let on = |network| machine.nics.iter().any(|nic| Some(nic.network) == network);
    let in_vpc = |vpc| {
        machine.nics.iter().any(|nic| {
            world
                .networks
                .get(nic.network)
                .is_some_and(|network| network.vpc == vpc)
        })
    };
    let in_state = args.filled("state").is_none_or(|state| {
        state.eq_ignore_ascii_case(machine.state.text())
            || state.eq_ignore_ascii_case("present") && machine.state != MachineState::Destroyed
    });
    let has_word = args.filled("keyword").is_none_or(|keyword| {
        let needle = &keyword.to_lowercase();
        let display = machine
            .shown
            .get("displayname")
            .and_then(Value::as_str)
            .unwrap_or_default();
        super::rule_list::like(&machine.name, needle)
            || super::rule_list::like(display, needle)
            || machine.state.text().eq_ignore_ascii_case(needle)
            || machine
                .nics
                .iter()
                .filter_map(|nic| nic.address.as_ref())
                .any(|address| super::rule_list::like(address, needle))
    });
    in_state
        && has_word
        && args
            .filled("name")
            .is_none_or(|name| machine.name.eq_ignore_ascii_case(name))
        && (args.id("zoneid").is_none() || args.uuid("zoneid") == Some(machine.zone))
        && (args.id("networkid").is_none() || on(args.uuid("networkid")))
        && (args.id("vpcid").is_none() || in_vpc(args.uuid("vpcid")))
}

/// Fields of the groups; what no group names is always there.
const GROUPS: &[(&str, &[&str])] = &[
    (
        "tmpl",
        &[
            "templateid",
            "templatename",
            "templatetype",
            "templateformat",
            "templatedisplaytext",
            "passwordenabled",
        ],
    ),
    ("servoff", &["serviceofferingid", "serviceofferingname"]),
    ("volume", &["rootdeviceid", "rootdevicetype"]),
    ("group", &["group", "groupid"]),
];

/// Milliseconds until a machine that started has statistics.
const FIRST_MEASURE: u64 = 300_000;

/// A detail that only root admins see.
pub(super) const FREED: &str = "Message.ReservedCapacityFreed.Flag";

fn without_path(mut tag: Object) -> Value {
    tag.remove("domainpath");
    Value::Object(tag)
}

/// A machine, with the groups of fields that are asked for.
pub(super) fn show(world: &World, machine: &Machine, details: &Details, reader: Reader) -> Object {
    let mut fields = machine.shown.clone();
    for (group, names) in GROUPS {
        if !details.has(group) {
            strip(&mut fields, names);
        }
    }
    if !details.has("servoff") && !details.has("stats") {
        strip(&mut fields, &["cpunumber", "cpuspeed", "memory"]);
    }
    if !details.has("secgrp") {
        fields.insert("securitygroup".into(), json!([]));
    }
    if !details.has("affgrp") {
        fields.insert("affinitygroup".into(), json!([]));
    }
    fields.extend(object(json!({
        "id": machine.id,
        "name": machine.name,
        "state": machine.state.text(),
        "lastupdated": machine.updated.map(crate::clock::Stamp::text),
    })));
    fields.extend(world.owner_fields(machine.owner));
    fields.insert(
        "tags".into(),
        world
            .tags_of(machine.id)
            .map(|tag| without_path(world.show_tag(tag)))
            .collect(),
    );
    if machine.state != MachineState::Running {
        strip(&mut fields, &["hostid", "hostname", "hostcontrolstate"]);
    }
    show_cards(machine, details, &mut fields);
    let measured = machine
        .updated
        .is_none_or(|since| reader.since(since) > FIRST_MEASURE);
    if details.has("stats") && machine.state == MachineState::Running && measured {
        fields.extend(object(json!({
            "cpuused": "10%", "networkkbsread": 32768, "networkkbswrite": 16384, "diskkbsread": 0, "diskkbswrite": 0, "memorykbs": 0,
            "memoryintfreekbs": 0, "memorytargetkbs": 0, "diskioread": 0, "diskiowrite": 0,
        })));
    }
    fields.extend(world.busy_fields(machine));
    if !reader.is_root() {
        hide(&mut fields);
    }
    fields
}

/// Takes out what only root admins see.
fn hide(fields: &mut Object) {
    strip(
        fields,
        &["displayvm", "hostid", "hostname", "instancename", "arch"],
    );
    if let Some(Value::Object(details)) = fields.get_mut("details") {
        details.remove(FREED);
    }
    fields.insert(
        "readonlydetails".into(),
        json!("dataDiskController, rootDiskController"),
    );
}

/// Network cards. Without asking for them a machine with several shows one of them all the same, not the default one.
fn show_cards(machine: &Machine, details: &Details, fields: &mut Object) {
    let shown: Vec<&crate::state::Nic> = if details.has("nics") {
        machine.nics.iter().collect()
    } else {
        machine.nics.iter().skip(1).collect()
    };
    let is_default = |nic: &&&crate::state::Nic| nic.shown.get("isdefault") == Some(&json!(true));
    let main = shown.iter().find(is_default).or(shown.first());
    match main.and_then(|nic| nic.address.as_ref()) {
        Some(address) => fields.insert("ipaddress".into(), json!(address)),
        None => fields.remove("ipaddress"),
    };
    let cards = shown.iter().map(|nic| {
        let mut card = nic.shown.clone();
        if machine.state != MachineState::Running {
            card.remove("broadcasturi");
            card.remove("isolationuri");
        }
        Value::Object(card)
    });
    fields.insert("nic".into(), cards.collect());
}
