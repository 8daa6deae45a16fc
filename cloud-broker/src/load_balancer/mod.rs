//! Load balancers: observe, plan, apply.
//!
//! | file | decides |
//! | --- | --- |
//! | `wish`, `wish_wire` | what is wanted, and which wishes can't be met whatever the cloud looks like |
//! | `names`, `marks`, `sources` | names of rules, marks in them, sets of source networks |
//! | `ownership`, `admission` | whose a rule and an address is: the only place that says what may be touched |
//! | `network`, `address`, `members` | where is balanced, on which address, to which machines |
//! | `plan` | which steps lead there, in which order, with which reason and impact |
//! | `features` | what the server and the key can do |
//! | `observation`, `look`, `free`, `board`, `namespaces`, `unseen` | what was seen, how it is looked at, and what balancers share of it |
//! | `apply` | nothing: it carries out one step |
//! | `turns` | in which order balancers wait for each other |
//! | `run`, `failure` | when to look again, and what a failed step means |
//! | `preview` | nothing: dry runs and reports |
//! | `list` | what a report of the cluster's balancers says |
//!
//! Leaves to others: how the API is spoken ([`crate::cloudstack`]), who is calling ([`crate::tenant`]), that a balancer has one
//! call at a time, and the wire.

mod address;
mod admission;
mod apply;
mod board;
mod failure;
mod features;
mod free;
mod list;
mod look;
mod marks;
mod members;
mod names;
mod namespaces;
mod network;
mod observation;
mod outcome;
mod ownership;
mod plan;
mod preview;
mod run;
mod sources;
mod turns;
mod unseen;
mod wish;
mod wish_wire;

use std::collections::{BTreeSet, HashMap};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use proto::Fault;
use sha2::{Digest as _, Sha256};

pub use features::{Features, ServerVersion};
pub use list::Summary;
pub use outcome::{Answer, Departed, Ingress, Note, Outcome, Outputs, Served, Severity, Wait};
pub use plan::{Farewell, Impact};
pub use wish::{
    AdoptionHint, Dialect, DialectWish, Protocol, ServiceRef, ServiceUid, Transport, Wish, WishMembers,
    WishPort,
};
pub(crate) use wish_wire::{MOST_MEMBERS, MOST_PORTS};

use crate::cloudstack::types::{ProjectId, Timestamp};
use crate::cloudstack::{Api, Command};
use crate::instances::MachineLists;
use crate::tenant::{ClusterUids, Machines, Policy, Scope};
use board::Board;
use free::{LastLook, Places};
use look::Looker;
use names::Names;
use ownership::Identity;
use plan::{Goal, Request};
use run::{Ended, Run};

/// How long what was seen counts if nothing is to be done, unless set.
const DRIFT: Duration = Duration::from_mins(10);

/// The right to take another step, asked before each of them.
pub trait Permit: Send + Sync {
    /// Whether the caller is still there and not followed by another one.
    fn still_wanted(&self) -> Result<(), Fault>;
}

/// For whom a call is made.
#[derive(Clone, Copy)]
pub struct Tenancy<'t> {
    /// The account, in the tenant's project.
    pub api: &'t Api,
    /// What the tenant may see.
    pub scope: &'t Scope,
    /// What it may do.
    pub policy: &'t Policy,
    /// The cluster's UIDs.
    pub uids: &'t ClusterUids,
    /// The server's version. An unknown one gets what works on all: older ones say that they changed a rule in place and don't.
    pub version: ServerVersion,
    /// A machine is visible that a node of the cluster was found to be: it is looked in the right place.
    pub nodes_visible: bool,
}

impl Tenancy<'_> {
    fn features(&self) -> Features {
        let is_known = matches!(self.version, ServerVersion::Is(_));
        let rights = self.api.account().rights(self.api.project());
        let may = |command| rights.get(&command) != Some(&false);
        Features {
            sources_on_create: self.version.is_since(18) || !is_known,
            sources_unsure: !is_known,
            sources_on_update: self.version.is_since(22),
            protocol_update_applies: self.version.is_since(22),
            may_tag: may(Command::CreateTags) && may(Command::DeleteTags),
            may_untag: may(Command::DeleteTags),
            not_answered: self.version == ServerVersion::NotAnswered,
        }
    }
}

/// What is asked of one balancer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Demand<G> {
    /// Which.
    pub service: ServiceRef,
    /// Addresses that the Service's status shows.
    pub published: Vec<IpAddr>,
    /// What is wanted of it.
    pub goal: G,
}

/// One step of a plan, for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PreviewedStep {
    /// What is done.
    pub action: &'static str,
    /// To what.
    pub object: String,
    /// Why.
    pub reason: String,
    /// What traffic notices.
    pub impact: Impact,
}

/// What a call would do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Preview {
    /// Same plan, same id. A plan that needs a person's consent is accepted by it.
    pub plan_id: String,
    /// The steps, in order.
    pub steps: Vec<PreviewedStep>,
    /// What a person should see.
    pub notes: Vec<Note>,
    /// Why it can't be carried out as it is; empty if it can.
    pub refused: String,
}

/// An account by name, and a project of it.
type BoardKey = (String, Option<ProjectId>);

/// The load balancers of all tenants.
pub struct LoadBalancers {
    machines: Arc<MachineLists>,
    drift: Duration,
    boards: Mutex<HashMap<BoardKey, Arc<Board>>>,
    /// Where allowed addresses were found among the free ones.
    places: Places,
}

impl LoadBalancers {
    /// Nothing is known yet. The machine lists are shared with those who ask for nodes.
    pub fn new(machines: Arc<MachineLists>) -> Self {
        Self {
            machines,
            drift: DRIFT,
            boards: Mutex::default(),
            places: Places::default(),
        }
    }

    /// The same with another period after which everything is looked at again.
    #[must_use]
    pub fn with_drift_period(self, drift: Duration) -> Self {
        Self { drift, ..self }
    }

    /// The period after which everything is looked at again.
    pub fn drift_period(&self) -> Duration {
        self.drift
    }

    /// Forgets what was seen through an account, as when its keys or its endpoint change.
    pub fn forget(&self, account: &str) {
        self.boards.lock().retain(|(name, _), _| name != account);
    }

    /// Makes a balancer serve as wished. Answers before the deadline; a balancer has one call at a time.
    pub async fn ensure(
        &self,
        tenancy: &Tenancy<'_>,
        demand: &Demand<Wish>,
        permit: &dyn Permit,
        deadline: Instant,
    ) -> Result<Answer<Served>, Fault> {
        let goal = Goal::Serve(Box::new(demand.goal.clone()));
        let request = request(tenancy, &demand.service, &demand.published, goal);
        let board = self.board(tenancy.api);
        board.heard_of(tenancy.uids.mark(), &demand.service);
        let api = tenancy.api.for_work(&work(&demand.service));
        let mut run = Run::new(self.looker(tenancy, &api, &board), &request, permit, self.drift);
        let outcome = match run.until(deadline).await? {
            Ended::Served(served) => Outcome::Settled(*served),
            Ended::Pending(wait) => Outcome::Pending(wait),
            Ended::Departed => return Err(misplaced()),
        };
        Ok(Answer {
            outcome,
            changes: run.changes,
            notes: std::mem::take(&mut run.notes),
        })
    }

    /// Makes a balancer go. Answers before the deadline; a balancer has one call at a time.
    pub async fn delete(
        &self,
        tenancy: &Tenancy<'_>,
        demand: &Demand<Farewell>,
        permit: &dyn Permit,
        deadline: Instant,
    ) -> Result<Answer<Departed>, Fault> {
        let goal = Goal::Leave(demand.goal.clone());
        let request = request(tenancy, &demand.service, &demand.published, goal);
        let board = self.board(tenancy.api);
        let api = tenancy.api.for_work(&work(&demand.service));
        let mut run = Run::new(self.looker(tenancy, &api, &board), &request, permit, self.drift);
        let outcome = match run.until(deadline).await? {
            Ended::Departed => Outcome::Settled(Departed {
                released: std::mem::take(&mut run.released),
                kept: std::mem::take(&mut run.kept),
            }),
            Ended::Pending(wait) => Outcome::Pending(wait),
            Ended::Served(_) => return Err(misplaced()),
        };
        Ok(Answer {
            outcome,
            changes: run.changes,
            notes: std::mem::take(&mut run.notes),
        })
    }

    /// What `ensure` would do.
    pub async fn plan_ensure(&self, tenancy: &Tenancy<'_>, demand: &Demand<Wish>) -> Result<Preview, Fault> {
        // A person would consent to steps that are not needed.
        if tenancy.version == ServerVersion::NotAnswered {
            return Err(failure::version_not_answered());
        }
        let goal = Goal::Serve(Box::new(demand.goal.clone()));
        self.preview(
            tenancy,
            &request(tenancy, &demand.service, &demand.published, goal),
        )
        .await
    }

    /// What `delete` would do.
    pub async fn plan_delete(
        &self,
        tenancy: &Tenancy<'_>,
        demand: &Demand<Farewell>,
    ) -> Result<Preview, Fault> {
        let goal = Goal::Leave(demand.goal.clone());
        self.preview(
            tenancy,
            &request(tenancy, &demand.service, &demand.published, goal),
        )
        .await
    }

    async fn preview(&self, tenancy: &Tenancy<'_>, request: &Request) -> Result<Preview, Fault> {
        let board = self.board(tenancy.api);
        let looker = self.looker(tenancy, tenancy.api, &board);
        let preview = Box::pin(preview::preview(&looker, request, self.drift)).await?;
        let steps: Vec<PreviewedStep> = preview
            .steps
            .into_iter()
            .map(|planned| PreviewedStep {
                action: planned.step.action(),
                object: planned.step.object(),
                reason: planned.reason,
                impact: planned.impact,
            })
            .collect();
        let plan_id = preview.consent.unwrap_or_else(|| plan_id(&steps));
        Ok(Preview {
            plan_id,
            steps,
            notes: preview.notes,
            refused: preview.refused.unwrap_or_default(),
        })
    }

    /// What the cluster owns. `live` are the UIDs of Services that still ask for a balancer; empty if that is not known.
    pub async fn list(&self, tenancy: &Tenancy<'_>, live: &BTreeSet<String>) -> Result<Vec<Summary>, Fault> {
        let board = self.board(tenancy.api);
        let looker = self.looker(tenancy, tenancy.api, &board);
        let seen = preview::look_for_report(&looker, self.drift).await?;
        Ok(list::list((tenancy.uids, tenancy.scope), &seen, live))
    }

    /// Public addresses that the cluster owns, as they were seen last and without a call; nothing before the first look.
    pub fn owned_addresses(&self, api: &Api, uids: &ClusterUids, scope: &Scope) -> Option<usize> {
        let board = self.board(api);
        if !board.knows_addresses() {
            return None;
        }
        let seen = board.observation(
            Timestamp::from_seconds(0),
            Features::NEWEST,
            runtime::clock::now(),
        );
        let owned = list::list((uids, scope), &seen, &BTreeSet::new())
            .into_iter()
            .filter(|summary| summary.address_owned);
        Some(
            owned
                .flat_map(|summary| summary.addresses)
                .collect::<BTreeSet<_>>()
                .len(),
        )
    }

    /// A call about a balancer ended, and nobody knows where: everything is looked at anew, and its jobs are awaited first.
    pub fn lost(&self, api: &Api, service: &ServiceRef) {
        self.board(api).lost(&work(service));
    }

    fn looker<'c>(&'c self, tenancy: &Tenancy<'_>, api: &'c Api, board: &'c Board) -> Looker<'c> {
        Looker {
            api,
            board,
            machines: &self.machines,
            places: &self.places,
            last_look: LastLook::default(),
            needs_machines: tenancy.scope.machines != Machines::Any,
            features: tenancy.features(),
        }
    }

    fn board(&self, api: &Api) -> Arc<Board> {
        let key = (api.account().name().to_owned(), api.project().cloned());
        Arc::clone(
            self.boards
                .lock()
                .entry(key)
                .or_insert_with(|| Arc::new(Board::new())),
        )
    }
}

fn misplaced() -> Fault {
    Fault::new(
        proto::FaultKind::Internal,
        "MISPLACED_END",
        "the plan ended where it can't; this is a fault of the broker",
    )
}

fn work(service: &ServiceRef) -> String {
    format!("balancer {}", service.uid)
}

fn request(tenancy: &Tenancy<'_>, service: &ServiceRef, published: &[IpAddr], goal: Goal) -> Request {
    let cluster_name = match &goal {
        Goal::Serve(wish) => wish.dialect.cluster_name.clone(),
        Goal::Leave(farewell) => farewell.dialect.cluster_name.clone(),
    };
    Request {
        identity: Identity {
            service: service.clone(),
            names: Names::of(service, &cluster_name),
            uids: tenancy.uids.clone(),
            take_over: tenancy.policy.take_over,
            fence: tenancy.scope.clone(),
        },
        scope: tenancy.scope.clone(),
        policy: tenancy.policy.clone(),
        published: published.to_vec(),
        nodes_visible: tenancy.nodes_visible,
        goal,
    }
}

fn plan_id(steps: &[PreviewedStep]) -> String {
    let mut hash = Sha256::new();
    for step in steps {
        hash.update(format!("{}\n{}\n{}\n", step.action, step.object, step.reason).as_bytes());
    }
    sources::hex(&hash.finalize(), 6)
}

#[cfg(test)]
mod tests;
