//! What an operator or a user reads about limits, quarantine and the management server.

use serde_json::{Value, json};

use crate::catalog::Spec;
use crate::dispatch::{self, Call};
use crate::error::ApiError;
use crate::request::{Entity, Kind, Param, may};
use crate::scope::Scope;
use crate::state::load::made_up;
use crate::state::show::object;
use crate::state::{Owner, RoleKind, World};

const LIMITS: &[Param] = &[
    may("resourcetype", Kind::Int),
    may("id", Kind::Int),
    may("domainid", Kind::Id(Entity::Domain)),
];

pub(super) const SPECS: &[Spec] = &[
    Spec::read("listResourceLimits", LIMITS, limits),
    Spec::read("listQuarantinedIps", &[], quarantined),
    Spec::read("listManagementServers", &[], servers).for_admins(),
    Spec::read("listManagementServersMetrics", &[], servers).for_admins(),
];

/// The limit of public addresses of the caller's account or project; other limits are not simulated.
fn limits(world: &World, call: &Call) -> Result<Value, ApiError> {
    if call.args.int("resourcetype").is_some_and(|kind| kind != 1) {
        return Ok(json!({}));
    }
    let owner = match Scope::of(world, call, false)? {
        Scope::Project(id) => Owner::Project(id),
        Scope::Account(id) => Owner::Account(id),
        Scope::Projects { .. } | Scope::Tree { .. } | Scope::Everything { .. } => {
            Owner::Account(call.caller.account)
        }
    };
    let most = match owner {
        Owner::Account(id) => world.accounts.get(id).and_then(|account| account.address_limit),
        Owner::Project(id) => world.projects.get(id).and_then(|project| project.address_limit),
        Owner::Domain(_) => None,
    };
    let most = most.and_then(|most| i64::try_from(most).ok()).unwrap_or(-1);
    let mut fields = world.owner_fields(owner);
    fields.extend(object(
        json!({ "resourcetype": "1", "resourcetypename": "public_ip", "max": most }),
    ));
    Ok(json!({ "count": 1, "resourcelimit": [fields] }))
}

fn quarantined(world: &World, call: &Call) -> Result<Value, ApiError> {
    let all = call.caller.kind == RoleKind::Root;
    let rows = world.addresses.iter().filter_map(|row| {
        let (owner, until) = row.quarantine.filter(|(_, until)| *until > call.now)?;
        let (id, name) = match owner {
            Owner::Account(id) => (id, world.accounts.get(id)?.name.clone()),
            Owner::Project(id) => (
                made_up("projectaccount", &id.to_string()),
                world.projects.get(id)?.account_name.clone(),
            ),
            Owner::Domain(_) => return None,
        };
        if !all && owner != Owner::Account(call.caller.account) {
            return None;
        }
        Some(json!({
            "id": made_up("quarantine", &row.address), "ipaddress": row.address, "previousownerid": id,
            "previousownername": name, "created": call.now.text(), "enddate": until.text(),
        }))
    });
    dispatch::list(world, call, "quarantinedips", rows.collect())
}

fn servers(world: &World, call: &Call) -> Result<Value, ApiError> {
    let state = if world.shutting_down {
        "PreparingForShutDown"
    } else {
        "Up"
    };
    let server = json!({
        "id": crate::state::show::MANAGEMENT_SERVER, "name": "localhost", "state": state, "version": world.version, "pendingjobscount": 0,
    });
    dispatch::list(world, call, "managementserver", vec![server])
}
