//! Commands of an operator that change how the server behaves: settings, limits, users, shutdown, the simulated router.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use uuid::Uuid;

use super::job::success;
use crate::catalog::{Run, Spec};
use crate::dispatch::Call;
use crate::error::{ApiError, JobError};
use crate::jobs::Started;
use crate::request::{Entity, Kind, Param, TEXT, may, need};
use crate::router::Behaviour;
use crate::server::Server;
use crate::state::show::object;
use crate::state::{Object, World};

const SETTING: &[Param] = &[need("name", TEXT), may("value", TEXT)];
const LIMIT: &[Param] = &[
    may("account", TEXT),
    may("domainid", Kind::Id(Entity::Domain)),
    need("resourcetype", Kind::Int),
    may("max", Kind::Int),
    may("projectid", Kind::Id(Entity::Project)),
];
const USER: &[Param] = &[need("id", Kind::Id(Entity::User))];

pub(super) const SPECS: &[Spec] = &[
    Spec::change("updateConfiguration", SETTING, update_setting).for_admins(),
    Spec::change("updateResourceLimit", LIMIT, update_limit).for_admins(),
    Spec::job("disableUser", "admin.user.DisableUserCmd", USER, disable_user).for_admins(),
    Spec::change("enableUser", USER, enable_user).for_admins(),
    Spec::change("prepareForShutdown", &[], prepare_shutdown).for_admins(),
    Spec::change("cancelShutdown", &[], cancel_shutdown).for_admins(),
    Spec::change("readyForShutdown", &[], ready_for_shutdown).for_admins(),
    Spec {
        run: Run::Server(configure_router),
        envelope: Some("simulatormock"),
        ..Spec::change("configureSimulator", SETTING, update_setting)
    }
    .for_admins(),
];

fn update_setting(world: &mut World, call: &Call) -> Result<Value, ApiError> {
    let name = call.args.text("name").unwrap_or_default().to_owned();
    let value = call.args.text("value").unwrap_or_default().to_owned();
    world.settings.insert(name.clone(), value.clone());
    Ok(json!({ "configuration": { "name": name, "value": value } }))
}

fn update_limit(world: &mut World, call: &Call) -> Result<Value, ApiError> {
    let most = call.args.int("max").and_then(|most| u64::try_from(most).ok());
    let shown = call.args.int("max").unwrap_or(-1);
    let mut fields = object(
        json!({ "resourcetype": call.args.text("resourcetype"), "resourcetypename": "public_ip", "max": shown }),
    );
    if call.args.int("resourcetype") != Some(1) {
        return Err(ApiError::invalid(
            "only the limit of public addresses is simulated",
        ));
    }
    if let Some(id) = call.args.uuid("projectid") {
        let project = world
            .projects
            .get_mut(id)
            .ok_or_else(|| call.gone("projectid", id))?;
        project.address_limit = most;
        fields.insert("account".into(), json!(project.account_name));
        fields.insert("projectid".into(), json!(id));
        fields.insert("project".into(), json!(project.name));
        let domain = project.domain;
        add_domain(world, domain, &mut fields);
        return Ok(json!({ "resourcelimit": fields }));
    }
    let domain = call
        .args
        .uuid("domainid")
        .ok_or_else(|| ApiError::invalid("a domain is needed"))?;
    if let Some(name) = call.args.filled("account") {
        let account = world
            .accounts
            .iter_mut()
            .find(|account| account.name == name && account.domain == domain);
        let account =
            account.ok_or_else(|| ApiError::invalid(format!("there is no account {name} in the domain")))?;
        account.address_limit = most;
        fields.insert("account".into(), json!(name));
    } else {
        match most {
            Some(most) => world.domain_address_limits.insert(domain, most),
            None => world.domain_address_limits.remove(&domain),
        };
    }
    add_domain(world, domain, &mut fields);
    Ok(json!({ "resourcelimit": fields }))
}

fn add_domain(world: &World, id: Uuid, fields: &mut Object) {
    if let Some(domain) = world.domains.get(id) {
        fields.extend(object(
            json!({ "domainid": id, "domain": domain.name, "domainpath": domain.path }),
        ));
    }
}

fn set_enabled(world: &mut World, user: Uuid, enabled: bool) -> Value {
    if let Some(account) = world.accounts.iter_mut().find(|account| account.user == user) {
        account.enabled = enabled;
    }
    let account = world.accounts.iter().find(|account| account.user == user);
    let shown = account.map(|account| {
        let mut fields = account.user_shown.clone();
        fields.extend(object(json!({
            "id": user, "username": account.user_name, "state": if enabled { "enabled" } else { "disabled" }, "account": account.name,
            "accountid": account.id, "domainid": account.domain, "domain": world.domains.get(account.domain).map(|domain| domain.name.as_str()),
        })));
        fields
    });
    json!({ "user": shown })
}

fn disable_user(_: &mut World, call: &Call) -> Result<Started, ApiError> {
    let user = call.args.uuid("id").unwrap_or_default();
    Ok(Started::job(move |run| async move {
        Ok::<_, JobError>(run.world(|world| set_enabled(world, user, false)))
    }))
}

fn enable_user(world: &mut World, call: &Call) -> Result<Value, ApiError> {
    Ok(set_enabled(world, call.args.uuid("id").unwrap_or_default(), true))
}

fn prepare_shutdown(world: &mut World, _: &Call) -> Result<Value, ApiError> {
    world.shutting_down = true;
    Ok(success())
}

fn ready_for_shutdown(_: &mut World, _: &Call) -> Result<Value, ApiError> {
    Ok(success())
}

fn cancel_shutdown(world: &mut World, _: &Call) -> Result<Value, ApiError> {
    world.shutting_down = false;
    Ok(success())
}

/// `wait:MILLISECONDS`, `result:fail`, `result:fault` for a router command; anything else makes it well again.
fn configure_router(server: &Arc<Server>, call: &Call) -> Result<Value, ApiError> {
    let command = call.args.text("name").unwrap_or_default().to_owned();
    let value = call.args.text("value").unwrap_or_default();
    let mut known = server.behaviour.lock();
    let next = known.len() as u64 + 1;
    let wait = value
        .strip_prefix("wait:")
        .and_then(|millis| millis.parse().ok())
        .map_or(Duration::ZERO, Duration::from_millis);
    let refuse = value == "result:fail" || value == "result:fault";
    let number = if let Some(behaviour) = known.iter_mut().find(|behaviour| behaviour.command == command) {
        behaviour.wait = wait;
        behaviour.refuse = refuse;
        behaviour.number
    } else {
        known.push(Behaviour {
            command: command.clone(),
            wait,
            refuse,
            number: next,
        });
        next
    };
    Ok(json!({ "null": { "id": number, "podid": 1, "clusterid": 1, "zoneid": 1, "name": command } }))
}
