//! One machine list for everybody who asks about the same project of an account.
//!
//! Decides when the list is read again and how many callers share one read. A read that was begun goes on when the caller that
//! began it leaves. Keeps the ids of the complete list before the newest one, for proofs of absence.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use parking_lot::Mutex;
use runtime::host::Host;

use super::matching::Index;
use super::presence::Sighting;
use crate::cloudstack::types::{MachineId, ProjectId};
use crate::cloudstack::{Api, ApiError, MachineQuery};

/// A machine list.
pub struct MachineList {
    /// Different for every read.
    pub id: String,
    /// When it began to be read.
    pub began: Instant,
    /// The same by the wall clock.
    pub began_wall: SystemTime,
    /// It is the whole: what is not in it was not there, or not visible.
    pub is_complete: bool,
    /// What is in it.
    pub index: Index,
}

impl MachineList {
    fn sighting(&self, machine: &MachineId) -> Sighting {
        Sighting {
            list: self.id.clone(),
            began: self.began,
            shows_machine: self.index.get(machine).is_some(),
        }
    }
}

/// What is kept of an older complete list.
struct Ids {
    id: String,
    began: Instant,
    machines: HashSet<MachineId>,
}

/// A list could not be read.
#[derive(Clone)]
pub struct Unread {
    /// Why.
    pub error: ApiError,
    /// The newest one that could be read, however old.
    pub last: Option<Arc<MachineList>>,
}

/// The machine lists of one account, one for each project.
pub struct MachineLists {
    host: Host,
    projects: Mutex<HashMap<Option<ProjectId>, Arc<Project>>>,
}

/// The list of one project, or of the account itself.
#[derive(Default)]
struct Project {
    state: Mutex<State>,
    reading: Arc<tokio::sync::Mutex<()>>,
}

#[derive(Default)]
struct State {
    newest: Option<Arc<MachineList>>,
    /// The newest complete one, and the one before it.
    complete: Option<Arc<MachineList>>,
    older: Option<Arc<Ids>>,
    failed: Option<(Instant, ApiError)>,
}

impl MachineLists {
    /// No list yet.
    pub fn new(host: Host) -> Self {
        Self {
            host,
            projects: Mutex::default(),
        }
    }

    /// Forgets every list. A read that has begun is of no use to those who ask from now on.
    pub fn forget(&self) {
        self.projects.lock().clear();
    }

    /// A list that began to be read at `oldest` or later.
    pub async fn since(&self, api: &Api, oldest: Instant) -> Result<Arc<MachineList>, Unread> {
        let project = self.project(api);
        if let Some(list) = project.newest_since(oldest) {
            return Ok(list);
        }
        let arrived = runtime::clock::now();
        let reading = Arc::clone(&project.reading).lock_owned().await;
        if let Some(settled) = project.settled(oldest, arrived) {
            return settled;
        }
        let (send, receive) = tokio::sync::oneshot::channel();
        let (api, reader) = (api.clone(), Arc::clone(&project));
        self.host.spawn_contained("machine-list", async move {
            // The guard ends with the read, not with the caller.
            let _reading = reading;
            // Nobody may be waiting any more.
            let _ = send.send(reader.read(&api).await);
        });
        match receive.await {
            Ok(result) => result,
            Err(_) => Err(Unread {
                error: ApiError::Odd {
                    command: crate::cloudstack::Command::ListVirtualMachines,
                    reason: "reading it was given up; this is a fault of the broker".to_owned(),
                    maybe_executed: false,
                },
                last: project.last(),
            }),
        }
    }

    /// A list that is at most this old.
    pub async fn within(&self, api: &Api, age: Duration) -> Result<Arc<MachineList>, Unread> {
        let now = runtime::clock::now();
        self.since(api, now.checked_sub(age).unwrap_or(now)).await
    }

    /// The newest list, without a call.
    pub fn newest(&self, api: &Api) -> Option<Arc<MachineList>> {
        self.project(api).last()
    }

    /// Why the last read failed; nothing if it did not, or if there was none.
    pub fn failure(&self, api: &Api) -> Option<ApiError> {
        self.project(api)
            .state
            .lock()
            .failed
            .as_ref()
            .map(|(_, error)| error.clone())
    }

    /// What the two newest complete lists say about a machine, the older one first.
    pub(super) fn sightings(&self, api: &Api, machine: &MachineId) -> (Option<Sighting>, Option<Sighting>) {
        let project = self.project(api);
        let state = project.state.lock();
        let older = state.older.as_ref().map(|ids| Sighting {
            list: ids.id.clone(),
            began: ids.began,
            shows_machine: ids.machines.contains(machine),
        });
        (older, state.complete.as_ref().map(|list| list.sighting(machine)))
    }

    fn project(&self, api: &Api) -> Arc<Project> {
        Arc::clone(self.projects.lock().entry(api.project().cloned()).or_default())
    }
}

impl Project {
    fn last(&self) -> Option<Arc<MachineList>> {
        self.state.lock().newest.clone()
    }

    fn newest_since(&self, oldest: Instant) -> Option<Arc<MachineList>> {
        self.last().filter(|list| list.began >= oldest)
    }

    /// What somebody else's read brought while this caller waited: a list, or the reason why there is none.
    fn settled(&self, oldest: Instant, arrived: Instant) -> Option<Result<Arc<MachineList>, Unread>> {
        let state = self.state.lock();
        if let Some(list) = state.newest.as_ref().filter(|list| list.began >= oldest) {
            return Some(Ok(Arc::clone(list)));
        }
        let (at, error) = state.failed.as_ref()?;
        (*at >= arrived).then(|| {
            Err(Unread {
                error: error.clone(),
                last: state.newest.clone(),
            })
        })
    }

    async fn read(&self, api: &Api) -> Result<Arc<MachineList>, Unread> {
        let (began, began_wall) = (runtime::clock::now(), runtime::clock::wall());
        let listing = match api.machines(&MachineQuery::default()).await {
            Ok(listing) => listing,
            Err(error) => {
                let mut state = self.state.lock();
                state.failed = Some((runtime::clock::now(), error.clone()));
                return Err(Unread {
                    error,
                    last: state.newest.clone(),
                });
            }
        };
        let list = Arc::new(MachineList {
            id: uuid::Uuid::new_v4().to_string(),
            began,
            began_wall,
            is_complete: listing.is_complete(),
            index: Index::new(listing.into_items()),
        });
        tracing::debug!(
            machines = list.index.machines().len(),
            complete = list.is_complete,
            "read the machine list"
        );
        self.keep(Arc::clone(&list));
        Ok(list)
    }

    fn keep(&self, list: Arc<MachineList>) {
        let mut state = self.state.lock();
        state.failed = None;
        if list.is_complete
            && let Some(older) = state.complete.replace(Arc::clone(&list))
        {
            let machines = older
                .index
                .machines()
                .iter()
                .map(|machine| machine.id.clone())
                .collect();
            state.older = Some(Arc::new(Ids {
                id: older.id.clone(),
                began: older.began,
                machines,
            }));
        }
        state.newest = Some(list);
    }
}
