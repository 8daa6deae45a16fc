//! Taking and releasing public addresses.

use std::sync::Arc;

use serde_json::{Value, json};
use uuid::Uuid;

use crate::catalog::Spec;
use crate::clock::Stamp;
use crate::commands::firewall::apply_firewall;
use crate::dispatch::Call;
use crate::error::{ApiError, JobError};
use crate::jobs::{JobRun, Started};
use crate::lock::LockKey;
use crate::request::{Entity, Kind, Param, TEXT, may};
use crate::router::Command;
use crate::state::{Address, AddressState, NetworkKind, Owner, RuleState, World};

const ASSOCIATE: &[Param] = &[
    may("account", TEXT),
    may("domainid", Kind::Id(Entity::Domain)),
    may("zoneid", Kind::Id(Entity::Zone)),
    may("networkid", Kind::Id(Entity::Network)),
    may("projectid", Kind::Id(Entity::Project)),
    may("vpcid", Kind::Id(Entity::Vpc)),
    may("ipaddress", TEXT),
];

const DISASSOCIATE: &[Param] = &[may("id", Kind::Id(Entity::Address)), may("ipaddress", TEXT)];

pub(super) const SPECS: &[Spec] = &[
    Spec::job(
        "associateIpAddress",
        "user.address.AssociateIPAddrCmd",
        ASSOCIATE,
        associate,
    )
    .by_admin("admin.address.AssociateIPAddrCmdByAdmin")
    .locking(|world, call| {
        place(world, call)
            .ok()
            .map(|place| LockKey::Owner(key_of(place.owner)))
    }),
    Spec::job(
        "disassociateIpAddress",
        "user.address.DisassociateIPAddrCmd",
        DISASSOCIATE,
        disassociate,
    ),
];

fn key_of(owner: Owner) -> Uuid {
    match owner {
        Owner::Account(id) | Owner::Project(id) | Owner::Domain(id) => id,
    }
}

/// Where an address is to go.
#[derive(Debug, Clone, Copy)]
struct Place {
    zone: Uuid,
    network: Option<Uuid>,
    vpc: Option<Uuid>,
    owner: Owner,
}

fn place(world: &World, call: &Call) -> Result<Place, ApiError> {
    let project = call.args.uuid("projectid").map(Owner::Project);
    if let Some(vpc) = call.args.uuid("vpcid") {
        let vpc = world.vpcs.get(vpc).ok_or_else(|| call.gone("vpcid", vpc))?;
        call.must_own(world, vpc.owner)?;
        return Ok(Place {
            zone: vpc.zone,
            network: None,
            vpc: Some(vpc.id),
            owner: project.unwrap_or(vpc.owner),
        });
    }
    let network = match (call.args.uuid("networkid"), call.args.uuid("zoneid")) {
        (Some(network), _) => world
            .networks
            .get(network)
            .ok_or_else(|| ApiError::invalid("Unable to find network by network id specified"))?,
        (None, Some(zone)) => {
            let owner = project.unwrap_or(Owner::Account(call.caller.account));
            let mut own = world.networks.iter().filter(|network| {
                network.owner == owner
                    && network.zone == zone
                    && network.kind == NetworkKind::Isolated
                    && network.vpc.is_none()
            });
            match (own.next(), own.next()) {
                (Some(network), None) => network,
                (Some(_), Some(_)) => {
                    return Err(ApiError::invalid(
                        "Account has more than one isolated network in the zone",
                    ));
                }
                (None, _) => return Err(ApiError::invalid("Account has no isolated network in the zone")),
            }
        }
        (None, None) => {
            return Err(ApiError::invalid(
                "Unable to figure out zone to assign IP to. Please specify either zoneId, or networkId, or vpcId in the call",
            ));
        }
    };
    if network.kind == NetworkKind::Shared {
        return Err(ApiError::denied());
    }
    call.must_own(world, network.owner)?;
    Ok(Place {
        zone: network.zone,
        network: Some(network.id),
        vpc: None,
        owner: project.unwrap_or(network.owner),
    })
}

fn associate(world: &mut World, call: &Call) -> Result<Started, ApiError> {
    let place = place(world, call)?;
    check_limit(world, place.owner)?;
    let id = choose(world, call, place)?;
    if let Some(row) = world.addresses.get_mut(id) {
        row.state = AddressState::Allocating;
        row.allocated = Some(call.now);
        row.owner = Some(place.owner);
    }
    Ok(Started::job(move |run| async move { attach(&run, id, place) }).created("IpAddress", id))
}

fn check_limit(world: &World, owner: Owner) -> Result<(), ApiError> {
    let taken = |of: Owner| {
        world
            .addresses
            .iter()
            .filter(|row| row.owner == Some(of) && row.for_virtual_network)
            .count() as u64
    };
    let (limit, name) = match owner {
        Owner::Account(id) => world
            .accounts
            .get(id)
            .map(|account| (account.address_limit, account.name.clone()))
            .unwrap_or_default(),
        Owner::Project(id) => world
            .projects
            .get(id)
            .map(|project| (project.address_limit, project.account_name.clone()))
            .unwrap_or_default(),
        Owner::Domain(_) => (None, String::new()),
    };
    if limit.is_some_and(|limit| taken(owner) >= limit) {
        return Err(ApiError::limit(format!(
            "Maximum number of public IP addresses for account: {name} has been exceeded."
        )));
    }
    let domain = world.domain_of(owner).map(|domain| domain.id);
    if let Some(limit) = domain.and_then(|domain| world.domain_address_limits.get(&domain)) {
        let of_domain = world.addresses.iter().filter(|row| row.for_virtual_network);
        let used = of_domain
            .filter(|row| {
                row.owner
                    .and_then(|owner| world.domain_of(owner))
                    .map(|domain| domain.id)
                    == domain
            })
            .count() as u64;
        if used >= *limit {
            return Err(ApiError::limit(format!(
                "Maximum number of public IP addresses for account: {name} has been exceeded."
            )));
        }
    }
    Ok(())
}

fn choose(world: &World, call: &Call, place: Place) -> Result<Uuid, ApiError> {
    let free =
        |row: &&Address| row.state == AddressState::Free && row.for_virtual_network && row.zone == place.zone;
    let kept = |row: &&Address| {
        row.quarantine
            .is_some_and(|(former, until)| until > call.now && former != place.owner)
    };
    let Some(wanted) = call.args.text("ipaddress") else {
        let found = world.addresses.iter().filter(free).find(|row| !kept(row));
        return found
            .map(|row| row.id)
            .ok_or_else(|| ApiError::no_address("Insufficient address capacity"));
    };
    let found = world
        .addresses
        .iter()
        .filter(free)
        .find(|row| row.address == wanted);
    let row = found.ok_or_else(|| ApiError::no_address("Insufficient address capacity"))?;
    if kept(&row) {
        return Err(ApiError::no_address(format!(
            "Failed to allocate public IP address [{wanted}] as it is in quarantine."
        )));
    }
    Ok(row.id)
}

/// Second phase of an associate.
fn attach(run: &JobRun, id: Uuid, place: Place) -> Result<Value, JobError> {
    run.world(|world| {
        let network = place.network.and_then(|network| world.networks.get(network)).cloned();
        if let Some(network) = &network {
            if network.vpc.is_some() {
                world.free_address(id, Stamp::now());
                return Err(JobError::invalid(
                    "Can't assign ip to the network directly when network belongs to VPC.Specify vpcId to associate ip address to VPC",
                ));
            }
            if network.owner != place.owner {
                // The address stays behind in Allocating, as on the server.
                return Err(JobError::failed(format!("Unable to use network with id= {}, permission denied", network.id)));
            }
        }
        let has_source_nat = |world: &World| {
            world.addresses.iter().any(|row| row.source_nat && if place.vpc.is_some() { row.vpc == place.vpc } else { row.network == place.network })
        };
        let becomes_source_nat = network.as_ref().is_none_or(|network| network.has("SourceNat")) && !has_source_nat(world);
        if let Some(row) = world.addresses.get_mut(id) {
            row.network = place.network;
            row.vpc = place.vpc;
            row.source_nat = becomes_source_nat;
            row.quarantine = None;
            if place.vpc.is_some() {
                row.state = AddressState::Allocated;
            }
        }
        let reader = crate::state::show::Reader::of(run.caller.kind);
        let shown = world.addresses.get(id).map(|row| world.show_address(row, reader)).unwrap_or_default();
        if let Some(row) = world.addresses.get_mut(id) {
            row.state = AddressState::Allocated;
        }
        Ok(json!({ "ipaddress": shown }))
    })
}

fn disassociate(world: &mut World, call: &Call) -> Result<Started, ApiError> {
    let id = match (call.args.uuid("id"), call.args.text("ipaddress")) {
        (Some(_), Some(_)) => {
            return Err(ApiError::invalid(
                "id parameter is mutually exclusive with ipaddress parameter",
            ));
        }
        (Some(id), None) => id,
        (None, Some(address)) => {
            let row = world.addresses.iter().find(|row| row.address == address);
            row.ok_or_else(|| {
                ApiError::invalid(format!("Unable to find IP address by IP address={address}"))
            })?
            .id
        }
        (None, None) => {
            return Err(ApiError::invalid(
                "Please specify either IP address or IP address ID",
            ));
        }
    };
    let row = world.addresses.get(id).ok_or_else(|| call.gone("id", id))?;
    if row.owner.is_none() && !row.system {
        return Err(ApiError::runtime("the address has no owner"));
    }
    Ok(Started::job(move |run| async move { release(&run, id).await }).on("IpAddress", id))
}

async fn release(run: &Arc<JobRun>, id: Uuid) -> Result<Value, JobError> {
    let row = run
        .world(|world| world.addresses.get(id).cloned())
        .ok_or_else(|| JobError::failed("Failed to disassociate IP address"))?;
    if row.state == AddressState::Free {
        return Ok(json!({ "success": true }));
    }
    run.must_own(row.owner)?;
    let implemented =
        run.world(|world| row.vpc.is_some() || row.network.is_some_and(|network| world.has_router(network)));
    if row.source_nat && implemented {
        return Err(JobError::failed(
            "ip address is used for source nat purposes and can not be disassociated.",
        ));
    }
    if !clean_up(run, id).await {
        return Err(JobError::failed("Failed to disassociate IP address"));
    }
    run.world(|world| world.free_address(id, Stamp::now()));
    Ok(json!({ "success": true }))
}

/// Takes everything off an address: firewall rules, then load balancer rules one by one, then the address itself.
async fn clean_up(run: &Arc<JobRun>, id: Uuid) -> bool {
    let firewall = run.world(|world| {
        let mut any = false;
        for rule in world.firewall_rules.iter_mut().filter(|rule| rule.address == id) {
            rule.state = RuleState::Deleting;
            any = true;
        }
        any
    });
    let mut ok = !firewall || apply_firewall(run, id).await;
    let rules: Vec<(Uuid, Uuid)> =
        run.world(|world| world.rules_on(id).map(|rule| (rule.id, rule.network)).collect());
    let network = run.world(|world| world.addresses.get(id).and_then(|row| row.network));
    for (rule, network) in &rules {
        run.world(|world| {
            if let Some(rule) = world.rules.get_mut(*rule) {
                rule.state = RuleState::Deleting;
            }
        });
        if !crate::commands::load_balancer::reconfigure(run, *network).await {
            ok = false;
            break;
        }
        run.world(|world| crate::commands::rule_delete::drop_rule(world, *rule));
    }
    run.world(|world| {
        if let Some(row) = world.addresses.get_mut(id) {
            row.state = AddressState::Releasing;
        }
    });
    if ok && let Some(network) = network.filter(|_| !rules.is_empty() || firewall) {
        let command = run.world(|world| Command::addresses(world, network));
        let router = run.world(|world| world.router_of(network));
        ok = run.send(router, command).await;
    }
    ok
}
