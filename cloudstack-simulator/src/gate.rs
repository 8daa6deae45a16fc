//! Jobs that stand still until a test lets them go on: what a clock can't do without guessing.

use parking_lot::Mutex;
use tokio::sync::watch;

/// Where a job of a command stands still.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Hold {
    /// Before its work: nothing has changed yet but what the call itself did.
    Start(String),
    /// Before its first command to a router: the database shows the change, the router does not have it.
    Router(String),
}

impl Hold {
    /// Jobs of this command stand still before their work.
    pub fn at_start(command: &str) -> Self {
        Self::Start(command.to_owned())
    }

    /// Jobs of this command stand still before their first command to a router.
    pub fn at_router(command: &str) -> Self {
        Self::Router(command.to_owned())
    }
}

/// The gate. Closed for the jobs that are named, unless it is opened for all.
#[derive(Debug)]
pub(crate) struct Gate {
    holds: Mutex<Vec<Hold>>,
    open: watch::Sender<bool>,
}

impl Default for Gate {
    fn default() -> Self {
        Self {
            holds: Mutex::default(),
            open: watch::Sender::new(false),
        }
    }
}

impl Gate {
    /// Says which jobs stand still from now on.
    pub(crate) fn hold(&self, holds: Vec<Hold>) {
        *self.holds.lock() = holds;
    }

    /// Opens or closes it for all.
    pub(crate) fn set_open(&self, open: bool) {
        self.open.send_replace(open);
    }

    /// Waits while the gate is closed for this job.
    pub(crate) async fn pass(&self, place: &Hold) {
        if !self.holds.lock().contains(place) {
            return;
        }
        let mut open = self.open.subscribe();
        // The sender lives as long as the server, so this ends by the gate's opening only.
        let _ = open.wait_for(|open| *open).await;
    }
}
