//! What all calls share: the database, locks, throttle, counters, faults and the routers' side.

use std::collections::HashMap;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Mutex, RwLock};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use uuid::Uuid;

use crate::calls::Counters;
use crate::faults::Faults;
use crate::gate::Gate;
use crate::keys::Keys;
use crate::lock::Locks;
use crate::options::{Delays, Options};
use crate::router::haproxy::DataPlane;
use crate::router::{Behaviour, Command, Sent};
use crate::state::World;
use crate::throttle::Throttle;

/// Options that may change while the simulator runs.
#[derive(Debug)]
pub(crate) struct Live(RwLock<Options>);

impl Live {
    pub(crate) fn new(options: Options) -> Self {
        Self(RwLock::new(options))
    }

    pub(crate) fn latency(&self) -> Duration {
        self.0.read().latency
    }

    pub(crate) fn delays(&self) -> Delays {
        self.0.read().delays.clone()
    }

    pub(crate) fn lock_hold(&self) -> Duration {
        let options = self.0.read();
        options.lock_hold.mul_f64(options.lock_scale)
    }

    pub(crate) fn lock_pause(&self) -> Duration {
        let options = self.0.read();
        options
            .lock_pause
            .mul_f64(options.lock_scale)
            .max(Duration::from_millis(1))
    }

    pub(crate) fn window_scale(&self) -> f64 {
        self.0.read().window_scale.clamp(0.0, 10_000.0)
    }

    pub(crate) fn router_log(&self) -> bool {
        self.0.read().router_log
    }

    pub(crate) fn change(&self, change: impl FnOnce(&mut Options)) {
        change(&mut self.0.write());
    }
}

/// The simulated management server.
pub(crate) struct Server {
    pub(crate) world: Mutex<World>,
    pub(crate) locks: Locks,
    pub(crate) throttle: Mutex<Throttle>,
    pub(crate) options: Live,
    pub(crate) counters: Mutex<Counters>,
    pub(crate) faults: Mutex<Faults>,
    /// What routers were told to do wrong, by command.
    pub(crate) behaviour: Mutex<Vec<Behaviour>>,
    pub(crate) sent: Mutex<Vec<Sent>>,
    pub(crate) data_plane: Option<DataPlane>,
    pub(crate) gate: Gate,
    /// A job ended.
    pub(crate) settled: Notify,
    pub(crate) stop: CancellationToken,
    pub(crate) tasks: TaskTracker,
    /// Caller, secret and account by API key.
    keys: RwLock<HashMap<String, (String, String, Uuid)>>,
}

impl Server {
    pub(crate) fn new(
        world: World,
        keys: &Keys,
        accounts: &HashMap<String, String>,
        options: Options,
        data_plane: Option<DataPlane>,
    ) -> Self {
        let by_key = keys
            .iter()
            .filter_map(|(name, pair)| {
                let account = accounts.get(name).map_or(name, String::as_str);
                let id = world.account_named(account)?.id;
                Some((
                    pair.api_key.clone(),
                    (name.to_owned(), pair.secret_key.clone(), id),
                ))
            })
            .collect();
        Self {
            world: Mutex::new(world),
            locks: Locks::default(),
            throttle: Mutex::default(),
            options: Live::new(options),
            counters: Mutex::default(),
            faults: Mutex::default(),
            behaviour: Mutex::default(),
            sent: Mutex::default(),
            data_plane,
            gate: Gate::default(),
            settled: Notify::new(),
            stop: CancellationToken::new(),
            tasks: TaskTracker::new(),
            keys: RwLock::new(by_key),
        }
    }

    /// Caller, secret and account of an API key.
    pub(crate) fn key(&self, api_key: &str) -> Option<(String, String, Uuid)> {
        self.keys.read().get(api_key).cloned()
    }

    /// Runs a task until it ends or the simulator stops.
    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        let stop = self.stop.clone();
        self.tasks.spawn(async move {
            tokio::select! {
                () = task => {}
                () = stop.cancelled() => {}
            }
        });
    }

    /// Sends a command to a router. False: it refused.
    pub(crate) async fn send(
        self: &Arc<Self>,
        router: Uuid,
        command: Command,
        (job, first): (Uuid, bool),
    ) -> bool {
        let behaviour = self
            .behaviour
            .lock()
            .iter()
            .find(|behaviour| behaviour.command == command.name())
            .cloned();
        if self.options.router_log() {
            self.sent.lock().push(Sent {
                job,
                command: command.shown(),
            });
        }
        let mut wait = behaviour
            .as_ref()
            .map_or(Duration::ZERO, |behaviour| behaviour.wait);
        if first {
            wait += self.options.delays().router;
        }
        if !wait.is_zero() {
            tokio::time::sleep(wait).await;
        }
        if behaviour.is_some_and(|behaviour| behaviour.refuse) {
            return false;
        }
        let changed = {
            let mut world = self.world.lock();
            let known = world.routers.entry(router).or_default();
            known.apply(command).then(|| known.clone())
        };
        if let (Some(plane), Some(state)) = (&self.data_plane, changed) {
            plane.apply(router, &state).await;
        }
        true
    }
}
