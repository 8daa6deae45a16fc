//! What a client looks at first: capabilities, zones, projects, offerings, its own rights and limits.

use std::sync::Arc;

use serde_json::{Value, json};

use crate::catalog::{self, Spec};
use crate::dispatch::{self, Call};
use crate::error::ApiError;
use crate::request::{Entity, IdArg, Kind, Param, TEXT, may};
use crate::server::Server;
use crate::state::show::{object, strip};
use crate::state::{Object, Owner, Plain, Project, RoleKind, World};
use crate::throttle::Limit;

const ZONES: &[Param] = &[
    may("available", Kind::Flag),
    may("id", Kind::Id(Entity::Zone)),
    may("ids", Kind::Ids(Entity::Zone)),
    may("name", TEXT),
    may("networktype", TEXT),
    may("showcapacities", Kind::Flag),
];
const PROJECTS: &[Param] = &[
    may("id", Kind::Id(Entity::Project)),
    may("name", TEXT),
    may("displaytext", TEXT),
    may("state", TEXT),
    may("details", Kind::Names),
];
const SERVICE_OFFERINGS: &[Param] = &[
    may("id", Kind::Id(Entity::ServiceOffering)),
    may("name", TEXT),
    may("virtualmachineid", Kind::Id(Entity::Machine)),
    may("zoneid", Kind::Id(Entity::Zone)),
];
const NETWORK_OFFERINGS: &[Param] = &[
    may("id", Kind::Id(Entity::NetworkOffering)),
    may("name", TEXT),
    may("forvpc", Kind::Flag),
    may("supportedservices", Kind::Names),
];
const NAME: &[Param] = &[may("name", TEXT)];
const ACCOUNT: &[Param] = &[may("account", TEXT)];

pub(super) const SPECS: &[Spec] = &[
    Spec::read("listCapabilities", &[], capabilities),
    Spec::read("listZones", ZONES, zones),
    Spec::read("listProjects", PROJECTS, projects),
    Spec::read("listServiceOfferings", SERVICE_OFFERINGS, service_offerings),
    Spec::read("listNetworkOfferings", NETWORK_OFFERINGS, network_offerings),
    Spec::read("listApis", NAME, apis),
    Spec::read("listVolumes", &[], nothing),
    Spec::read("listKubernetesClusters", &[], nothing),
    Spec {
        run: catalog::Run::Server(api_limit),
        ..Spec::read("getApiLimit", &[], capabilities)
    },
    Spec {
        run: catalog::Run::Server(reset_api_limit),
        ..Spec::read("resetApiLimit", ACCOUNT, capabilities)
    }
    .for_admins(),
];

fn capabilities(world: &World, call: &Call) -> Result<Value, ApiError> {
    let root = call.caller.kind != RoleKind::User;
    let limit = Limit::of(world);
    let sees_destroyed = root || world.is_set("allow.user.view.destroyed.vm");
    let groups = world
        .zones
        .iter()
        .any(|zone| zone.shown.get("securitygroupsenabled") == Some(&json!(true)));
    let mut fields = object(json!({
        "cloudstackversion": world.version, "securitygroupsenabled": groups, "dynamicrolesenabled": true, "supportELB": "false",
        "userpublictemplateenabled": true, "projectinviterequired": false, "allowusercreateprojects": true, "regionsecondaryenabled": false,
        "kvmsnapshotenabled": true, "allowuserviewdestroyedvm": sees_destroyed, "allowuserexpungerecovervm": root,
        "allowuserexpungerecovervolume": true, "allowuserviewalldomainaccounts": false, "allowuserforcestopvm": true,
        "kubernetesserviceenabled": true, "kubernetesclusterexperimentalfeaturesenabled": false, "customdiskofferingminsize": 1,
        "customdiskofferingmaxsize": 1024, "customhypervisordisplayname": "Custom", "defaultuipagesize": 20,
        "apilimitinterval": limit.map(|limit| limit.seconds), "apilimitmax": limit.map(|limit| limit.most),
    }));
    fields.extend(object(json!({
        "instancesstatsretentiontime": 720, "instancesstatsuseronly": false, "instancesdisksstatsretentionenabled": false,
        "instancesdisksstatsretentiontime": 720, "sharedfsvmmincpucount": 2, "sharedfsvmminramsize": 1024, "instanceleaseenabled": false,
        "dynamicscalingenabled": true, "additionalconfigenabled": false,
        "extensionspath": (call.caller.kind == RoleKind::Root).then_some("/usr/share/cloudstack-management/extensions"),
    })));
    Ok(json!({ "capability": fields }))
}

/// Whether a row fits `id`, `ids`, `name` (exact) and `keyword` (part of it).
fn fits(call: &Call, row: &Plain) -> bool {
    let args = &call.args;
    args.id("id").is_none_or(|id| id == IdArg::Is(row.id))
        && args.ids("ids").is_none_or(|ids| ids.contains(&row.id))
        && args
            .filled("name")
            .is_none_or(|name| row.name.eq_ignore_ascii_case(name))
        && args
            .filled("keyword")
            .is_none_or(|word| super::rule_list::like(&row.name, &word.to_lowercase()))
}

fn without(mut fields: Object, names: &[&str], when: bool) -> Value {
    if when {
        strip(&mut fields, names);
    }
    Value::Object(fields)
}

fn zones(world: &World, call: &Call) -> Result<Value, ApiError> {
    let kind = call.args.filled("networktype");
    let rows = world.zones.iter().filter(|zone| {
        fits(call, zone)
            && kind.is_none_or(|kind| {
                zone.shown
                    .get("networktype")
                    .and_then(Value::as_str)
                    .is_some_and(|own| own.eq_ignore_ascii_case(kind))
            })
    });
    let user = call.caller.kind != RoleKind::Root;
    let shown = rows.map(|zone| {
        without(
            zone.shown.clone(),
            &["dns1", "dns2", "internaldns1", "internaldns2", "guestcidraddress"],
            user,
        )
    });
    dispatch::list(world, call, "zone", shown.collect())
}

fn projects(world: &World, call: &Call) -> Result<Value, ApiError> {
    let args = &call.args;
    let details = args.list("details").unwrap_or_default();
    if details
        .iter()
        .any(|name| !["all", "resource", "min"].contains(&name.as_str()))
    {
        return Err(ApiError::invalid(
            "The details parameter contains a non permitted value. The allowed values are [all, resource, min]",
        ));
    }
    let brief = details.iter().any(|name| name == "min");
    let all = args.is("listall") || args.id("id").is_some();
    let rows = world.projects.iter().filter(|project| {
        let mine = project.members.contains(&call.caller.account);
        let visible = mine
            || call.caller.kind != RoleKind::User
                && all
                && world.may_use(call.caller.account, Owner::Project(project.id));
        visible
            && args.id("id").is_none_or(|id| id == IdArg::Is(project.id))
            && args
                .filled("name")
                .is_none_or(|name| project.name.eq_ignore_ascii_case(name))
            && args
                .filled("keyword")
                .is_none_or(|word| super::rule_list::like(&project.name, &word.to_lowercase()))
    });
    let shown = rows.map(|project| Value::Object(show_project(world, project, brief)));
    dispatch::list(world, call, "project", shown.collect())
}

fn show_project(world: &World, project: &Project, brief: bool) -> Object {
    let mut fields = project.shown.clone();
    let domain = world.domains.get(project.domain);
    fields.extend(object(json!({
        "projectaccountname": project.account_name, "domainid": project.domain, "domain": domain.map(|domain| domain.name.as_str()),
    })));
    if brief {
        let kept = [
            "id",
            "name",
            "displaytext",
            "domainid",
            "domain",
            "owner",
            "projectaccountname",
            "state",
            "tags",
            "created",
            "secondarystoragetotal",
        ];
        fields.retain(|name, _| kept.contains(&name.as_str()));
        return fields;
    }
    if let Some(limit) = project.address_limit {
        let taken = world
            .addresses
            .iter()
            .filter(|row| row.owner == Some(Owner::Project(project.id)) && row.for_virtual_network)
            .count() as u64;
        fields.insert("iplimit".into(), json!(limit.to_string()));
        fields.insert("iptotal".into(), json!(taken));
        fields.insert(
            "ipavailable".into(),
            json!(limit.saturating_sub(taken).to_string()),
        );
    }
    fields
}

fn service_offerings(world: &World, call: &Call) -> Result<Value, ApiError> {
    let present = call
        .args
        .uuid("virtualmachineid")
        .and_then(|id| world.machines.get(id))
        .and_then(|machine| machine.shown.get("serviceofferingid").cloned());
    let rows = world
        .service_offerings
        .iter()
        .filter(|row| fits(call, row) && present.as_ref().is_none_or(|present| *present != json!(row.id)));
    let user = call.caller.kind == RoleKind::User;
    dispatch::list(
        world,
        call,
        "serviceoffering",
        rows.map(|row| without(row.shown.clone(), &["created"], user && row.shown.is_empty()))
            .collect(),
    )
}

fn network_offerings(world: &World, call: &Call) -> Result<Value, ApiError> {
    let args = &call.args;
    let has = |row: &Plain, service: &String| {
        row.shown
            .get("service")
            .and_then(Value::as_array)
            .is_some_and(|list| {
                list.iter()
                    .any(|entry| entry.get("name").and_then(Value::as_str) == Some(service))
            })
    };
    let rows = world.network_offerings.iter().filter(|row| {
        fits(call, row)
            && args
                .flag("forvpc")
                .is_none_or(|flag| row.shown.get("forvpc") == Some(&json!(flag)))
            && args
                .list("supportedservices")
                .is_none_or(|services| services.iter().all(|service| has(row, service)))
    });
    dispatch::list(
        world,
        call,
        "networkoffering",
        rows.map(|row| Value::Object(row.shown.clone())).collect(),
    )
}

/// Lists of what is not simulated and that nobody has.
fn nothing(_: &World, _: &Call) -> Result<Value, ApiError> {
    Ok(json!({}))
}

/// Commands that the caller may call, with their parameters. One that does not exist or is not allowed is 530.
fn apis(world: &World, call: &Call) -> Result<Value, ApiError> {
    let role = world
        .accounts
        .get(call.caller.account)
        .and_then(|account| world.roles.get(account.role));
    let allowed = |name: &str| role.is_some_and(|role| role.allows(name));
    let wanted = call.args.filled("name");
    let rows: Vec<Value> = catalog::all()
        .filter(|spec| allowed(spec.name) && wanted.is_none_or(|name| spec.name == name))
        .map(|spec| json!({ "name": spec.name, "isasync": spec.is_async(), "params": spec.shown_params() }))
        .collect();
    if rows.is_empty() {
        return Err(ApiError::internal_public(
            "Api Discovery plugin was unable to find an api by that name or process any apis",
        ));
    }
    Ok(json!({ "count": rows.len(), "api": rows }))
}

fn api_limit(server: &Arc<Server>, call: &Call) -> Result<Value, ApiError> {
    let world = server.world.lock();
    let limit = Limit::of(&world).ok_or_else(throttling_is_off)?;
    let name = world
        .accounts
        .get(call.caller.account)
        .map(|account| account.name.clone())
        .unwrap_or_default();
    let (issued, left) = server
        .throttle
        .lock()
        .used(call.caller.account, call.now)
        .unwrap_or((0, limit.seconds));
    Ok(json!({ "apilimit": {
        "account": name, "accountid": crate::jobs::new_id(), "apiIssued": issued, "apiAllowed": limit.most.saturating_sub(issued), "expireAfter": left,
    } }))
}

fn reset_api_limit(server: &Arc<Server>, call: &Call) -> Result<Value, ApiError> {
    let world = server.world.lock();
    Limit::of(&world).ok_or_else(throttling_is_off)?;
    let named = call
        .args
        .text("account")
        .and_then(|text| uuid::Uuid::try_parse(text).ok());
    server.throttle.lock().reset(named.unwrap_or(call.caller.account));
    Ok(super::job::success())
}

fn throttling_is_off() -> ApiError {
    ApiError::unavailable("This api is only available when api.throttling.enabled = true.")
}
