//! Who sees what: the rows of a list that belong to the caller, by role, `listall`, `projectid`, `account` and whether an id is asked for.

use uuid::Uuid;

use crate::dispatch::Call;
use crate::error::ApiError;
use crate::request::IdArg;
use crate::state::{Owner, RoleKind, World, within};

/// The owners whose rows a list shows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Scope {
    /// One account.
    Account(Uuid),
    /// One project.
    Project(Uuid),
    /// Some projects, and perhaps an account.
    Projects {
        projects: Vec<Uuid>,
        account: Option<Uuid>,
    },
    /// A domain and below, with or without what belongs to projects.
    Tree { path: String, projects: bool },
    /// All of it, with or without what belongs to projects.
    Everything { projects: bool },
}

impl Scope {
    /// The scope of a list. `by_id`: rows are asked for by id.
    pub(crate) fn of(world: &World, call: &Call, by_id: bool) -> Result<Self, ApiError> {
        let args = &call.args;
        let caller = call.caller.account;
        if let Some(account) = named_account(world, call)? {
            return Ok(Self::Account(account));
        }
        let all = args.is("listall");
        match args.id("projectid") {
            Some(IdArg::Is(project)) => return Ok(Self::Project(project)),
            Some(IdArg::Nothing) => return Ok(every_project(world, call, all)),
            None => {}
        }
        let path = world
            .domain_of(Owner::Account(caller))
            .map(|domain| domain.path.clone())
            .unwrap_or_default();
        Ok(match call.caller.kind {
            RoleKind::DomainAdmin if by_id => Self::Tree { path, projects: true },
            RoleKind::DomainAdmin if all => Self::Tree {
                path,
                projects: false,
            },
            RoleKind::Root if by_id => Self::Everything { projects: true },
            RoleKind::Root if all => Self::Everything { projects: false },
            RoleKind::User | RoleKind::DomainAdmin | RoleKind::Root => Self::Account(caller),
        })
    }

    /// Whether the scope has rows of this owner.
    pub(crate) fn has(&self, world: &World, owner: Owner) -> bool {
        match (self, owner) {
            (Self::Account(id), Owner::Account(of)) | (Self::Project(id), Owner::Project(of)) => *id == of,
            (Self::Projects { projects, .. }, Owner::Project(of)) => projects.contains(&of),
            (Self::Projects { account, .. }, Owner::Account(of)) => *account == Some(of),
            (
                Self::Account(_) | Self::Tree { projects: false, .. } | Self::Everything { projects: false },
                Owner::Project(_),
            )
            | (Self::Project(_), Owner::Account(_))
            | (Self::Account(_) | Self::Project(_) | Self::Projects { .. }, Owner::Domain(_)) => false,
            (Self::Tree { path, .. }, _) => world
                .domain_of(owner)
                .is_some_and(|domain| within(&domain.path, path)),
            (Self::Everything { .. }, _) => true,
        }
    }
}

/// `projectid=-1`: all projects of the caller.
fn every_project(world: &World, call: &Call, all: bool) -> Scope {
    let caller = call.caller.account;
    if call.caller.kind == RoleKind::Root {
        return if all {
            Scope::Everything { projects: true }
        } else {
            Scope::Projects {
                projects: world.projects.iter().map(|project| project.id).collect(),
                account: None,
            }
        };
    }
    let projects = world
        .projects
        .iter()
        .filter(|project| project.members.contains(&caller))
        .map(|project| project.id)
        .collect();
    Scope::Projects {
        projects,
        account: all.then_some(caller),
    }
}

/// The account of `account` and `domainid`, when the caller may look at it.
fn named_account(world: &World, call: &Call) -> Result<Option<Uuid>, ApiError> {
    let Some(name) = call.args.filled("account") else {
        return Ok(None);
    };
    if call.args.text("projectid").is_some() {
        return Err(ApiError::invalid(
            "Account and projectId can't be specified together",
        ));
    }
    let domain = call.args.uuid("domainid").or_else(|| {
        world
            .accounts
            .get(call.caller.account)
            .map(|account| account.domain)
    });
    let found = world
        .accounts
        .iter()
        .find(|account| account.name == name && Some(account.domain) == domain);
    let Some(account) = found else {
        let domain = domain.and_then(|id| world.domains.get(id));
        let path = domain
            .map(|domain| domain.path.trim_start_matches("ROOT").replace('/', "\\/"))
            .unwrap_or_default();
        return Err(ApiError::invalid(format!(
            "could not find account {name} in domain Domain {{\"id\":{},\"name\":\"{}\",\"path\":\"{path}\\/\",\"uuid\":\"{}\"}}",
            domain.map_or(0, |domain| world.domains.number(domain.id)),
            domain.map(|domain| domain.name.as_str()).unwrap_or_default(),
            domain.map(|domain| domain.id).unwrap_or_default(),
        )));
    };
    if world.may_use(call.caller.account, Owner::Account(account.id)) {
        Ok(Some(account.id))
    } else {
        Err(ApiError::denied())
    }
}
