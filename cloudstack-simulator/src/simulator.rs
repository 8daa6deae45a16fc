//! Starting, steering and stopping a simulator from code.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;

use tokio::net::TcpListener;
use uuid::Uuid;

use crate::calls::{Calls, Counters};
use crate::dump::Dump;
use crate::faults::{Fault, FaultState};
use crate::gate::Hold;
use crate::http;
use crate::keys::{KeyPair, Keys};
use crate::options::Options;
use crate::router::haproxy::DataPlane;
use crate::router::{Router, Sent};
use crate::seed::{Seed, SeedError};
use crate::server::Server;
use crate::state::{AddressUse, JobStatus, MachineState, World};

/// Starts simulators.
#[derive(Debug)]
pub struct Simulator;

/// Why a simulator did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The seed is no good.
    #[error(transparent)]
    Seed(#[from] SeedError),
    /// Nobody could call.
    #[error("no caller of the seed has keys")]
    NoKeys,
    /// The address can't be listened on.
    #[error("cannot listen on {address}: {source}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// Why.
        source: std::io::Error,
    },
}

/// Why a control had no effect.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ControlError {
    /// There is no machine of this name.
    #[error("there is no machine {0}")]
    NoMachine(String),
    /// There is no such public address, or nobody has it.
    #[error("nobody has a public address {0}")]
    NoAddress(String),
    /// There is no network of this name.
    #[error("there is no network {0}")]
    NoNetwork(String),
    /// A shared network does not say whose machine it is.
    #[error("network {0} belongs to nobody in particular")]
    NoOwner(String),
}

/// A running simulator. Dropping it stops it at once; [`Handle::stop`] waits for its end.
pub struct Handle {
    server: Arc<Server>,
    address: SocketAddr,
    url: String,
    keys: Keys,
}

impl std::fmt::Debug for Handle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Handle")
            .field("url", &self.url)
            .finish_non_exhaustive()
    }
}

impl Simulator {
    /// Starts a simulator on the current tokio runtime.
    pub async fn start(seed: Seed, keys: Keys, options: Options) -> Result<Handle, StartError> {
        let world = World::from_seed(&seed)?;
        let accounts: HashMap<String, String> = seed
            .callers
            .iter()
            .filter_map(|(name, caller)| Some((name.clone(), caller.account.clone()?)))
            .collect();
        if !keys.iter().any(|(name, _)| {
            world
                .account_named(accounts.get(name).map_or(name, String::as_str))
                .is_some()
        }) {
            return Err(StartError::NoKeys);
        }
        let listen = options.listen;
        let listener = TcpListener::bind(listen)
            .await
            .map_err(|source| StartError::Listen {
                address: listen,
                source,
            })?;
        let address = listener.local_addr().map_err(|source| StartError::Listen {
            address: listen,
            source,
        })?;
        let data_plane = DataPlane::open(&options.data_path);
        let server = Arc::new(Server::new(world, &keys, &accounts, options, data_plane));
        server.tasks.spawn(http::serve(Arc::clone(&server), listener));
        Ok(Handle {
            server,
            address,
            url: format!("http://{address}/client/api"),
            keys,
        })
    }

    /// Starts a simulator with new keys and the usual options, for tests.
    pub async fn start_with_seed(seed: Seed) -> Result<Handle, StartError> {
        let keys = Keys::generate(&seed);
        Self::start(seed, keys, Options::default()).await
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.server.stop.cancel();
    }
}

impl Handle {
    /// Address of the API: `http://HOST:PORT/client/api`.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Address of the controls over HTTP: `http://HOST:PORT/simulator`.
    pub fn control_url(&self) -> String {
        format!("http://{}/simulator", self.address)
    }

    /// Keys of a caller.
    pub fn keys(&self, caller: &str) -> Option<&KeyPair> {
        self.keys.get(caller)
    }

    /// Whether real bytes flow.
    pub fn has_data_path(&self) -> bool {
        self.server.data_plane.is_some()
    }

    /// Stops it and waits until all its tasks and processes ended.
    pub async fn stop(self) {
        self.server.stop.cancel();
        self.server.tasks.close();
        self.server.tasks.wait().await;
        if let Some(plane) = &self.server.data_plane {
            plane.stop().await;
        }
    }

    /// Calls so far.
    pub fn calls(&self) -> Calls {
        self.server.counters.lock().calls.clone()
    }

    /// Starts counting anew.
    pub fn reset_calls(&self) {
        *self.server.counters.lock() = Counters::default();
    }

    /// Adds a line to the fault script.
    pub fn add_fault(&self, fault: Fault) {
        self.server.faults.lock().add(fault);
    }

    /// Empties the fault script.
    pub fn clear_faults(&self) {
        self.server.faults.lock().lines.clear();
    }

    /// The fault script with what matched so far.
    pub fn faults(&self) -> Vec<FaultState> {
        self.server.faults.lock().lines.clone()
    }

    /// The state of the cloud.
    pub fn dump(&self) -> Dump {
        Dump::of(&self.server.world.lock())
    }

    /// What the routers really have, by id of network or VPC.
    pub fn routers(&self) -> std::collections::BTreeMap<Uuid, Router> {
        self.server.world.lock().routers.clone()
    }

    /// What was sent to routers, if [`Options::router_log`] is on.
    pub fn router_log(&self) -> Vec<Sent> {
        self.server.sent.lock().clone()
    }

    /// Changes options while it runs: latency, delays, lock times.
    pub fn change_options(&self, change: impl FnOnce(&mut Options)) {
        self.server.options.change(change);
    }

    /// Changes a global setting, as an operator would.
    pub fn set(&self, name: &str, value: &str) {
        self.server
            .world
            .lock()
            .settings
            .insert(name.to_owned(), value.to_owned());
    }

    /// Ends the running windows of the call limit, as if their time had passed.
    pub fn end_throttle_windows(&self) {
        self.server.throttle.lock().end();
    }

    /// Makes routers refuse a command such as `LoadBalancerConfigCommand`, `SetFirewallRulesCommand`, `IpAssocCommand`, or take it again.
    pub fn refuse_in_router(&self, command: &str, refuse: bool) {
        self.server.refuse_in_router(command, refuse);
    }

    /// Waits until no job runs.
    pub async fn settled(&self) {
        loop {
            let ended = self.server.settled.notified();
            tokio::pin!(ended);
            ended.as_mut().enable();
            if !self
                .server
                .world
                .lock()
                .jobs
                .iter()
                .any(|job| matches!(job.status, JobStatus::Pending))
            {
                return;
            }
            ended.await;
        }
    }

    /// Lets jobs of some commands stand still until [`Handle::release_jobs`]; replaces what was said before.
    pub fn hold_jobs(&self, holds: &[Hold]) {
        self.server.gate.hold(holds.to_vec());
    }

    /// Lets all jobs that stand still go on, and waits until no job runs. Later ones stand still again.
    pub async fn release_jobs(&self) {
        self.server.gate.set_open(true);
        self.settled().await;
        self.server.gate.set_open(false);
    }

    /// Adds a running machine to a network; without an address it gets the next free one.
    pub fn add_machine(
        &self,
        name: &str,
        network: &str,
        address: Option<&str>,
    ) -> Result<Uuid, ControlError> {
        self.server.add_machine(name, network, address)
    }

    /// Stops a machine at once.
    pub fn stop_machine(&self, name: &str) -> Result<(), ControlError> {
        self.server.set_machine(name, MachineState::Stopped)
    }

    /// Starts a machine at once.
    pub fn start_machine(&self, name: &str) -> Result<(), ControlError> {
        self.server.set_machine(name, MachineState::Running)
    }

    /// Destroys a machine: users no longer see it, its rules keep it until it is expunged.
    pub fn destroy_machine(&self, name: &str) -> Result<(), ControlError> {
        self.server.set_machine(name, MachineState::Destroyed)
    }

    /// Takes a machine away for good.
    pub fn expunge_machine(&self, name: &str) -> Result<(), ControlError> {
        self.server.expunge_machine(name)
    }

    /// Uses an acquired public address for something else than load balancing.
    pub fn use_address(&self, address: &str, usage: &AddressUse) -> Result<(), ControlError> {
        self.server.use_address(address, usage)
    }

    /// Ends every use of a public address but load balancing.
    pub fn end_uses(&self, address: &str) -> Result<(), ControlError> {
        self.server.end_uses(address)
    }
}
