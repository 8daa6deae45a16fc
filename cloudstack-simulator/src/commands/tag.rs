//! Tags of objects.

use serde_json::Value;
use uuid::Uuid;

use super::job::success;
use crate::catalog::Spec;
use crate::dispatch::{self, Call};
use crate::error::{ApiError, JobError};
use crate::jobs::{JobRun, Started};
use crate::request::{Kind, Param, TEXT, may, need};
use crate::scope::Scope;
use crate::state::{Owner, Tag, World};

const WRITE: &[Param] = &[
    need("tags", Kind::Map),
    need("resourcetype", TEXT),
    need("resourceids", Kind::Names),
    may("customer", TEXT),
];
const DELETE: &[Param] = &[
    may("tags", Kind::Map),
    need("resourcetype", TEXT),
    need("resourceids", Kind::Names),
];
const FILTERS: &[Param] = &[
    may("key", TEXT),
    may("value", TEXT),
    may("resourceid", TEXT),
    may("resourcetype", TEXT),
    may("customer", TEXT),
];

pub(super) const SPECS: &[Spec] = &[
    Spec::job("createTags", "user.tag.CreateTagsCmd", WRITE, create),
    Spec::job("deleteTags", "user.tag.DeleteTagsCmd", DELETE, delete),
    Spec::read("listTags", FILTERS, list),
];

/// Kinds of objects that may have tags, as they are shown.
const KINDS: [&str; 7] = [
    "UserVm",
    "PublicIpAddress",
    "LoadBalancer",
    "FirewallRule",
    "NetworkACL",
    "Network",
    "Vpc",
];

/// Longest key and value; the rest is cut.
const STORED: usize = 255;

/// Kinds that exist and cannot have tags.
const WITHOUT: [&str; 1] = ["NetworkACLList"];

fn kind_of(text: &str) -> Option<&'static str> {
    KINDS.into_iter().find(|kind| kind.eq_ignore_ascii_case(text))
}

/// A filter by tag needs key and value.
pub(crate) fn check_filter(call: &Call) -> Result<(), ApiError> {
    let without = call.args.pairs("tags").into_iter().find(|pair| pair.1.is_none());
    match without {
        Some((Some(key), None)) => Err(ApiError::invalid(format!("No value is passed in for key {key}"))),
        _ => Ok(()),
    }
}

/// Whether the object has one of the tags of a list's filter.
pub(super) fn matches(world: &World, call: &Call, id: Uuid) -> bool {
    let wanted = call.args.pairs("tags");
    wanted.is_empty()
        || wanted.iter().any(|(key, value)| {
            let (Some(key), Some(value)) = (key, value) else {
                return false;
            };
            world
                .tags_of(id)
                .any(|tag| tag.key.eq_ignore_ascii_case(key) && tag.value.eq_ignore_ascii_case(value))
        })
}

/// Owner of an object of a kind.
fn owner_of(world: &World, kind: &str, id: Uuid) -> Option<Owner> {
    let existing = owner_of_existing(world, kind, id);
    // Tags of a rule outlive it and can still be deleted.
    existing.or_else(|| {
        world
            .tags_of(id)
            .find(|tag| tag.kind == kind)
            .map(|tag| tag.owner)
    })
}

fn owner_of_existing(world: &World, kind: &str, id: Uuid) -> Option<Owner> {
    match kind {
        "UserVm" => world.machines.get(id).map(|row| row.owner),
        "PublicIpAddress" => world.addresses.get(id).and_then(|row| row.owner),
        "LoadBalancer" => world.rules.get(id).map(|row| row.owner),
        "FirewallRule" => world.firewall_rules.get(id).map(|row| row.owner),
        "NetworkACL" => {
            let list = world.acl_items.get(id)?.list;
            world
                .vpcs
                .get(world.acl_lists.get(list)?.vpc?)
                .map(|vpc| vpc.owner)
        }
        "Network" => world.networks.get(id).map(|row| row.owner),
        "Vpc" => world.vpcs.get(id).map(|row| row.owner),
        _ => None,
    }
}

/// Objects of one kind, each with its owner.
type Resources = (&'static str, Vec<(Uuid, Owner)>);

/// The objects of a call, each with its owner, checked for the caller.
fn resources(run: &JobRun, kind: &str, ids: &[String]) -> Result<Resources, JobError> {
    let known = kind_of(kind).ok_or_else(|| {
        if WITHOUT.contains(&kind) {
            JobError::invalid(format!("The resource type {kind} doesn't support resource tags"))
        } else {
            JobError::invalid(format!("Invalid resource type {kind}"))
        }
    })?;
    let mut found = Vec::new();
    for text in ids {
        let id = Uuid::try_parse(text).ok();
        let owner = id.and_then(|id| run.world(|world| owner_of(world, known, id)));
        let (id, owner) = id.zip(owner).ok_or_else(|| {
            JobError::invalid(format!("Unable to find resource by uuid {text} and type {known}"))
        })?;
        found.push((id, owner));
    }
    Ok((known, found))
}

fn create(_: &mut World, call: &Call) -> Result<Started, ApiError> {
    let kind = call.args.text("resourcetype").unwrap_or_default().to_owned();
    let ids = call.args.list("resourceids").unwrap_or_default();
    let pairs = call.args.pairs("tags");
    Ok(Started::job(move |run| async move {
        let (kind, objects) = resources(&run, &kind, &ids)?;
        add(&run, kind, &objects, &pairs)
    }))
}

fn add(
    run: &JobRun,
    kind: &'static str,
    objects: &[(Uuid, Owner)],
    pairs: &[(Option<String>, Option<String>)],
) -> Result<Value, JobError> {
    let cut = |text: String| text.chars().take(STORED).collect::<String>();
    let mut new = Vec::new();
    for (resource, owner) in objects {
        run.must_own(Some(*owner))?;
        for (key, value) in pairs {
            let key = cut(key.clone().unwrap_or_default());
            let value = value.clone().filter(|value| !value.is_empty()).ok_or_else(|| {
                JobError::invalid(format!("Value for the key {key} is either null or empty"))
            })?;
            new.push(Tag {
                resource: *resource,
                kind,
                key,
                value: cut(value),
                owner: *owner,
            });
        }
    }
    run.world(|world| {
        for tag in &new {
            let twice = new
                .iter()
                .filter(|other| other.resource == tag.resource && other.key.eq_ignore_ascii_case(&tag.key))
                .count()
                > 1;
            if twice
                || world
                    .tags_of(tag.resource)
                    .any(|old| old.key.eq_ignore_ascii_case(&tag.key))
            {
                return Err(JobError::failed(format!(
                    "tag {} already on {kind} with id {}",
                    tag.key, tag.resource
                )));
            }
        }
        world.tags.extend(new);
        Ok(success())
    })
}

fn delete(_: &mut World, call: &Call) -> Result<Started, ApiError> {
    let kind = call.args.text("resourcetype").unwrap_or_default().to_owned();
    let ids = call.args.list("resourceids").unwrap_or_default();
    let pairs = call.args.pairs("tags");
    Ok(Started::job(move |run| async move {
        let (_, objects) = resources(&run, &kind, &ids)?;
        for (_, owner) in &objects {
            run.must_own(Some(*owner))?;
        }
        let doomed = |tag: &Tag| {
            objects.iter().any(|(id, _)| *id == tag.resource)
                && (pairs.is_empty()
                    || pairs.iter().any(|(key, value)| {
                        key.as_ref().is_some_and(|key| tag.key.eq_ignore_ascii_case(key))
                            && value
                                .as_ref()
                                .is_none_or(|value| tag.value.eq_ignore_ascii_case(value))
                    }))
        };
        run.world(|world| {
            let before = world.tags.len();
            world.tags.retain(|tag| !doomed(tag));
            if world.tags.len() < before {
                Ok(success())
            } else {
                Err(JobError::failed("Failed to delete tags"))
            }
        })
    }))
}

fn list(world: &World, call: &Call) -> Result<Value, ApiError> {
    let args = &call.args;
    let scope = Scope::of(world, call, false)?;
    let kind = args.filled("resourcetype").map(kind_of);
    let is =
        |wanted: Option<&str>, value: &str| wanted.is_none_or(|wanted| value.eq_ignore_ascii_case(wanted));
    let rows = world.tags.iter().filter(|tag| {
        is(args.filled("key"), &tag.key)
            && is(args.filled("value"), &tag.value)
            && args
                .filled("resourceid")
                .is_none_or(|id| tag.resource.to_string() == id)
            && kind.is_none_or(|kind| kind == Some(tag.kind))
            && scope.has(world, tag.owner)
    });
    let shown = rows.map(|tag| Value::Object(world.show_tag(tag)));
    dispatch::list(world, call, "tag", shown.collect())
}
