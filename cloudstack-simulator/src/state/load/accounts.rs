//! Domains, roles, accounts and projects of a seed.

use serde_json::Value;
use uuid::Uuid;

use super::{defaults, id, made_up, text, uuid};
use crate::seed::{Seed, SeedError};
use crate::state::{Account, Domain, Object, Project, Role, RoleKind, World};

pub(super) fn load(world: &mut World, seed: &Seed) -> Result<(), SeedError> {
    for domain in if seed.domains.is_empty() {
        vec![defaults::domain()]
    } else {
        seed.domains.clone()
    } {
        let name = text(&domain, "name").unwrap_or("ROOT").to_owned();
        let path = text(&domain, "path").unwrap_or("ROOT").to_owned();
        world.domains.insert(Domain {
            id: id(&domain, "domain", &path),
            name,
            path,
        });
    }
    for role in if seed.roles.is_empty() {
        defaults::roles()
    } else {
        seed.roles.clone()
    } {
        world.roles.insert(read_role(&role));
    }
    for account in &seed.accounts {
        let row = read_account(world, seed, account)?;
        world.accounts.insert(row);
    }
    for project in &seed.projects {
        let row = read_project(world, seed, project);
        world.projects.insert(row);
    }
    Ok(())
}

fn read_role(role: &Object) -> Role {
    let name = text(role, "name").unwrap_or_default();
    let permissions = role
        .get("permissions")
        .and_then(Value::as_array)
        .map(Vec::as_slice)
        .unwrap_or_default();
    Role {
        id: id(role, "role", name),
        kind: match text(role, "type") {
            Some("Admin") => RoleKind::Root,
            Some("DomainAdmin") => RoleKind::DomainAdmin,
            _ => RoleKind::User,
        },
        permissions: permissions
            .iter()
            .filter_map(|pair| {
                let pair = pair.as_array()?;
                Some((
                    pair.first()?.as_str()?.to_owned(),
                    pair.get(1)?.as_str()? == "allow",
                ))
            })
            .collect(),
    }
}

fn read_account(world: &World, seed: &Seed, account: &Object) -> Result<Account, SeedError> {
    let name = text(account, "name")
        .ok_or_else(|| SeedError::Content("an account has no name".into()))?
        .to_owned();
    let role_name = text(account, "rolename").unwrap_or("User");
    let role = uuid(account, "roleid").or_else(|| role_named(seed, role_name));
    let role = role.ok_or_else(|| {
        SeedError::Content(format!("role {role_name} of account {name} is not in the seed"))
    })?;
    let domain = uuid(account, "domainid")
        .or_else(|| {
            let wanted = text(account, "domain")?;
            world
                .domains
                .iter()
                .find(|domain| domain.name == wanted)
                .map(|domain| domain.id)
        })
        .or_else(|| world.domains.iter().next().map(|domain| domain.id))
        .unwrap_or_default();
    let user = account
        .get("user")
        .and_then(Value::as_object)
        .cloned()
        .unwrap_or_default();
    Ok(Account {
        id: id(account, "account", &name),
        user: id(&user, "user", &name),
        user_name: text(&user, "username").unwrap_or(&name).to_owned(),
        enabled: text(&user, "state") != Some("disabled"),
        domain,
        role,
        user_shown: user,
        address_limit: limit(seed, "max.account.public.ips"),
        name,
    })
}

fn role_named(seed: &Seed, name: &str) -> Option<Uuid> {
    let defaults = defaults::roles();
    let roles = if seed.roles.is_empty() {
        &defaults
    } else {
        &seed.roles
    };
    roles
        .iter()
        .find(|role| text(role, "name") == Some(name))
        .map(|role| id(role, "role", name))
}

fn limit(seed: &Seed, setting: &str) -> Option<u64> {
    seed.settings.get(setting).and_then(|value| {
        value
            .as_str()
            .map_or_else(|| value.as_u64(), |text| text.parse().ok())
    })
}

fn read_project(world: &World, seed: &Seed, project: &Object) -> Project {
    let name = text(project, "name").unwrap_or_default().to_owned();
    let members = seed
        .callers
        .values()
        .filter(|caller| caller.projects.contains_key(&name));
    let members: Vec<Uuid> = members
        .filter_map(|caller| world.account_named(caller.account.as_deref()?))
        .map(|account| account.id)
        .collect();
    let first_domain = members
        .first()
        .and_then(|id| world.accounts.get(*id))
        .map(|account| account.domain);
    let mut shown = project.clone();
    let id = id(project, "project", &name);
    shown.insert("id".into(), Value::String(id.to_string()));
    shown.entry("state").or_insert_with(|| "Active".into());
    shown.entry("displaytext").or_insert_with(|| name.clone().into());
    shown.entry("tags").or_insert_with(|| Value::Array(Vec::new()));
    Project {
        id,
        domain: uuid(project, "domainid")
            .or(first_domain)
            .unwrap_or_else(|| made_up("domain", "ROOT")),
        account_name: text(project, "projectaccountname")
            .map_or_else(|| format!("PrjAcct-{name}-1"), str::to_owned),
        members,
        shown,
        address_limit: limit(seed, "max.project.public.ips"),
        name,
    }
}
