//! How the simulator behaves where a real server's speed and surroundings would decide.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

/// How long jobs take.
#[derive(Debug, Clone, Default)]
pub struct Delays {
    /// Every job, before its work: the part that only touches the database.
    pub job: Duration,
    /// The first command of a job that goes to a virtual router.
    pub router: Duration,
    /// Extra time before the work of jobs of one command.
    pub by_command: BTreeMap<String, Duration>,
}

impl Delays {
    /// Time before the work of a job.
    pub(crate) fn before(&self, command: &str) -> Duration {
        self.job + self.by_command.get(command).copied().unwrap_or_default()
    }
}

/// Whether real bytes flow.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum DataPath {
    /// Control plane only.
    #[default]
    Off,
    /// One HAProxy per network, from the PATH.
    Auto,
    /// One HAProxy per network, this program.
    Program(PathBuf),
}

/// Options of a simulator. The default is fast: no delay anywhere, locks retried as the server does.
#[derive(Debug, Clone)]
pub struct Options {
    /// Where to listen; port 0 picks a free one.
    pub listen: SocketAddr,
    /// Time that every call takes before it is looked at.
    pub latency: Duration,
    /// How long jobs take.
    pub delays: Delays,
    /// How long the first phase of a create holds its lock.
    pub lock_hold: Duration,
    /// How long who finds a lock taken waits before it tries again (the server: 5 s).
    pub lock_pause: Duration,
    /// Factor on both lock times; 0.01 makes tests fast.
    pub lock_scale: f64,
    /// Factor on the window of the call limit, for tests that must not run out of it.
    pub window_scale: f64,
    /// Whether real bytes flow.
    pub data_path: DataPath,
    /// Keep what was sent to routers, for [`crate::Handle::router_log`].
    pub router_log: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from(([127, 0, 0, 1], 0)),
            latency: Duration::ZERO,
            delays: Delays::default(),
            lock_hold: Duration::from_millis(5),
            lock_pause: Duration::from_secs(5),
            lock_scale: 1.0,
            window_scale: 1.0,
            data_path: DataPath::Off,
            router_log: false,
        }
    }
}
