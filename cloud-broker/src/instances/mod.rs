//! Where the machines behind nodes are.
//!
//! | file | decides |
//! | --- | --- |
//! | `matching` | which machine a node is |
//! | `presence` | whether a machine that no list shows is proved gone |
//! | `witnesses` | which machines show that it is looked in the right place |
//! | `describe` | what a node learns of its machine |
//! | `question` | nothing; what is asked and answered |
//! | `lists` | when a machine list is read, and who shares it |
//!
//! Leaves to others: what is done with a node (the agent decides), and which tenant asks. Facts: names are unique per network only, destroyed
//! machines are invisible to ordinary users, as if they had never been.

pub mod describe;
pub mod lists;
pub mod matching;
mod presence;
mod question;
mod witnesses;

use std::sync::Arc;
use std::time::{Duration, Instant};

use moka::future::Cache;
use runtime::host::Host;

use crate::cloudstack::types::{Machine, MachineId};
use crate::cloudstack::{ApiError, Command};
use crate::tenant::ClusterName;
use lists::Unread;
pub use lists::{MachineList, MachineLists};
use matching::Match;
use presence::{Absence, Missing, absence};
pub use question::{Answer, NodeKey, Presence, Proof, View, Why};
use witnesses::Witnesses;

/// How many nodes are remembered; far more than an account has.
const REMEMBERED: u64 = 100_000;
/// How long a node is remembered that nobody asks for.
const FORGOTTEN_AFTER: Duration = Duration::from_hours(24);
/// How old a list may be that shows what is visible at present. (Other keys begin without any.)
const YOUNG: Duration = Duration::from_mins(5);
/// Look-ups by id that one question may cost. Where more machines are missing at once the next question goes on.
const LOOKUPS: usize = 10;

/// What is remembered of a node, for as long as the process lives.
#[derive(Clone, Debug, Default)]
struct Memory {
    /// It has had its refresh.
    refreshed: bool,
    /// The machine that it was found to be, for nodes without a provider id.
    machine: Option<MachineId>,
    /// The last proof, with the moment of its look-up.
    proof: Option<(Instant, Proof)>,
}

/// How long a question waits for a list. A read that takes longer goes on, and the next question finds it.
const PATIENCE: Duration = Duration::from_secs(10);

/// Answers questions about the machines of an account.
pub struct Instances {
    patience: Duration,
    lists: Arc<MachineLists>,
    memory: Cache<(ClusterName, String), Memory>,
    witnesses: Witnesses,
}

impl Instances {
    /// Knows nothing yet.
    pub fn new(host: Host) -> Self {
        let memory = Cache::builder()
            .max_capacity(REMEMBERED)
            .time_to_idle(FORGOTTEN_AFTER)
            .build();
        Self {
            patience: PATIENCE,
            lists: Arc::new(MachineLists::new(host)),
            memory,
            witnesses: Witnesses::default(),
        }
    }

    /// The same with another patience.
    #[must_use]
    pub fn with_patience(self, patience: Duration) -> Self {
        Self { patience, ..self }
    }

    /// The machine lists, for others who need machines.
    pub fn lists(&self) -> &Arc<MachineLists> {
        &self.lists
    }

    /// Forgets everything that was seen through other keys.
    pub fn forget(&self) {
        self.lists.forget();
        self.memory.invalidate_all();
        self.witnesses.forget();
    }

    /// One answer for every key, in their order.
    pub async fn look_up(&self, view: View<'_>, keys: &[NodeKey]) -> Vec<Answer> {
        let arrived = runtime::clock::now();
        let mut list = self
            .in_time(view, arrived.checked_sub(view.ttl).unwrap_or(arrived))
            .await;
        if let Ok(cached) = &list
            && cached.began < arrived
            && self.may_refresh(view, cached, keys).await
        {
            // Without a newer list in time the one that is young enough has to do.
            list = self.in_time(view, arrived).await.or(list);
        }
        match list {
            Ok(list) => self.answers(view, &list, keys, arrived).await,
            Err(Unread { error, last }) => keys
                .iter()
                .map(|key| stale(view, last.as_deref(), &error, key))
                .collect(),
        }
    }

    /// A list that began to be read at `oldest` or later, if it comes in time.
    async fn in_time(&self, view: View<'_>, oldest: Instant) -> Result<Arc<MachineList>, Unread> {
        if let Ok(list) = tokio::time::timeout(self.patience, self.lists.since(view.api, oldest)).await {
            return list;
        }
        let error = ApiError::Unreachable {
            command: Command::ListVirtualMachines,
            reason: "it takes longer than usual; the read goes on".to_owned(),
            maybe_executed: false,
        };
        Err(Unread {
            error,
            last: self.lists.newest(view.api),
        })
    }

    /// Whether one of the nodes that the list does not show has its one refresh still to come. It is used up here.
    async fn may_refresh(&self, view: View<'_>, list: &MachineList, keys: &[NodeKey]) -> bool {
        let mut may = false;
        for key in keys {
            if list.index.find(key, view.scope) != Match::None {
                continue;
            }
            let mut memory = self.remembered(view, key).await;
            if !memory.refreshed {
                memory.refreshed = true;
                may = true;
                self.remember(view, key, memory).await;
            }
        }
        may
    }

    async fn answers(
        &self,
        view: View<'_>,
        list: &Arc<MachineList>,
        keys: &[NodeKey],
        arrived: Instant,
    ) -> Vec<Answer> {
        let mut answers = Vec::with_capacity(keys.len());
        let mut lookups = LOOKUPS;
        for key in keys {
            let presence = match list.index.find(key, view.scope) {
                Match::One(machine) => {
                    self.remember_machine(view, key, machine).await;
                    self.witnesses.is_a_node(view.cluster, &machine.id);
                    found(list, key, machine)
                }
                Match::None => self.absent(view, list, (key, arrived), &mut lookups).await,
                Match::Several(one, other) => Presence::Unknown(Why::Ambiguous, ambiguous(key, one, other)),
                Match::Outside => Presence::Unknown(Why::OutOfScope, outside(view, key)),
            };
            answers.push(Answer {
                presence,
                list_id: list.id.clone(),
                observed_at: Some(list.began_wall),
            });
        }
        answers
    }

    /// No machine in the list: gone, if that can be proved.
    async fn absent(
        &self,
        view: View<'_>,
        list: &MachineList,
        (key, arrived): (&NodeKey, Instant),
        lookups: &mut usize,
    ) -> Presence {
        let memory = self.remembered(view, key).await;
        let Some(machine) = key.machine_id.clone().or_else(|| memory.machine.clone()) else {
            return Presence::Unknown(Why::NotFoundYet, not_found(key, list, Missing::MachineId));
        };
        let Some(witness) = self.witnesses.of(view, list, Some(&machine)) else {
            return Presence::Unknown(Why::NothingVisible, nothing_visible(view));
        };
        let not_ready_since = key
            .not_ready_for
            .map(|ago| arrived.checked_sub(ago).unwrap_or(arrived));
        let (older, newer) = self.lists.sightings(view.api, &machine);
        let absence = match absence(older.as_ref(), newer.as_ref(), not_ready_since) {
            Ok(absence) => absence,
            Err(missing) => return Presence::Unknown(Why::NotFoundYet, not_found(key, list, missing)),
        };
        if let Some((at, proof)) = memory
            .proof
            .as_ref()
            .filter(|(at, _)| arrived.saturating_duration_since(*at) < view.ttl)
        {
            tracing::trace!(node = %key.node_name, age = ?arrived.saturating_duration_since(*at), "the proof is fresh enough");
            return Presence::Gone(proof.clone());
        }
        if *lookups == 0 {
            let text =
                format!("machine {machine} is not in the list; it will be looked up with the next question");
            return Presence::Unknown(Why::NotFoundYet, text);
        }
        *lookups -= 1;
        let presence = look_up_twice(view, &machine, &witness, absence).await;
        if let Presence::Gone(proof) = &presence {
            let proof = Some((runtime::clock::now(), proof.clone()));
            self.remember(view, key, Memory { proof, ..memory }).await;
        }
        presence
    }

    /// Whether a machine is visible that a node of the cluster was found to be, as far as is known: no call is made.
    pub fn shows_nodes(&self, view: View<'_>) -> bool {
        let young = |list: &Arc<MachineList>| list.began.elapsed() < YOUNG;
        let list = self.lists.newest(view.api).filter(young);
        list.is_some_and(|list| self.witnesses.of(view, &list, None).is_some())
    }

    async fn remembered(&self, view: View<'_>, key: &NodeKey) -> Memory {
        self.memory.get(&name(view, key)).await.unwrap_or_default()
    }

    async fn remember(&self, view: View<'_>, key: &NodeKey, memory: Memory) {
        self.memory.insert(name(view, key), memory).await;
    }

    /// Only nodes without a provider id need it.
    async fn remember_machine(&self, view: View<'_>, key: &NodeKey, machine: &Machine) {
        if key.machine_id.is_some() {
            return;
        }
        let memory = self.remembered(view, key).await;
        if memory.machine.as_ref() != Some(&machine.id) {
            self.remember(
                view,
                key,
                Memory {
                    machine: Some(machine.id.clone()),
                    proof: None,
                    ..memory
                },
            )
            .await;
        }
    }
}

/// Under which name a node is remembered: its UID, and its name where nobody says a UID.
fn name(view: View<'_>, key: &NodeKey) -> (ClusterName, String) {
    let uid = if key.node_uid.is_empty() {
        &key.node_name
    } else {
        &key.node_uid
    };
    (view.cluster.clone(), uid.clone())
}

fn found(list: &MachineList, key: &NodeKey, machine: &Machine) -> Presence {
    Presence::Found {
        machine: Box::new(machine.clone()),
        is_mismatch: list.index.is_mismatch(key, machine),
    }
}

/// The last step of a proof: the machine is not found by id, and the witness right after is.
async fn look_up_twice(
    view: View<'_>,
    machine: &MachineId,
    witness: &MachineId,
    absence: Absence,
) -> Presence {
    let looked_up_at = runtime::clock::wall();
    match view.api.find_machine(machine).await {
        Ok(Some(found)) if matching::exists(&found) => {
            let text = format!("machine {machine} is missing in two lists but still found by its id");
            return Presence::Unknown(Why::NotFoundYet, text);
        }
        Ok(_) => {}
        Err(error) => {
            return Presence::Unknown(
                Why::Unreachable,
                format!("machine {machine} can't be looked up: {error}"),
            );
        }
    }
    match view.api.find_machine(witness).await {
        Ok(Some(_)) => {
            tracing::info!(machine = %machine, witness = %witness, "a machine is proved gone");
            let lists = (absence.first, absence.second);
            Presence::Gone(Proof {
                lists,
                looked_up_at,
                witness: witness.clone(),
            })
        }
        Ok(None) => Presence::Unknown(Why::NothingVisible, nothing_visible(view)),
        Err(error) => Presence::Unknown(
            Why::Unreachable,
            format!("machine {witness} can't be looked up: {error}"),
        ),
    }
}

/// Without a new list the last one still says where machines are, but never that one is gone.
fn stale(view: View<'_>, kept: Option<&MachineList>, error: &ApiError, key: &NodeKey) -> Answer {
    let presence = match kept.map(|list| (list, list.index.find(key, view.scope))) {
        Some((list, Match::One(machine))) => found(list, key, machine),
        Some((_, Match::Several(one, other))) => {
            Presence::Unknown(Why::Ambiguous, ambiguous(key, one, other))
        }
        Some((_, Match::Outside)) => Presence::Unknown(Why::OutOfScope, outside(view, key)),
        Some((_, Match::None)) | None => Presence::Unknown(
            Why::Unreachable,
            format!("the machine list can't be read: {error}"),
        ),
    };
    Answer {
        presence,
        list_id: kept.map(|list| list.id.clone()).unwrap_or_default(),
        observed_at: kept.map(|list| list.began_wall),
    }
}

fn ambiguous(key: &NodeKey, one: &Machine, other: &Machine) -> String {
    format!(
        "machines {} and {} both have the name of node {}; give the node a provider id",
        one.id, other.id, key.node_name
    )
}

fn outside(view: View<'_>, key: &NodeKey) -> String {
    let id = key.machine_id.as_ref().map_or("", |id| id.as_str());
    format!(
        "machine {id} is not in the scope of cluster {}: look at its networks, zones and machines settings",
        view.cluster
    )
}

fn nothing_visible(view: View<'_>) -> String {
    format!(
        "no machine of cluster {} is visible: keys, project or scope may have changed",
        view.cluster
    )
}

/// The same at every question, so that people see one event and not many.
fn not_found(key: &NodeKey, list: &MachineList, missing: Missing) -> String {
    let what = match &key.machine_id {
        Some(id) => format!("no machine with id {id} is visible"),
        None => format!(
            "no machine with the system UUID or the name of node {} is visible",
            key.node_name
        ),
    };
    let why = match missing {
        Missing::NotReady => "",
        Missing::MachineId => "; without a provider id it can't be proved gone",
        Missing::Lists if !list.is_complete => "; the list is not complete",
        Missing::Lists => "; a second list will tell whether it is gone",
    };
    format!("{what}{why}")
}
