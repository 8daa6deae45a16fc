//! Who is measured: the product, or one of the Go controllers.

use anyhow::{Context as _, Result};
use e2e::peers::{Peer, Place};
use e2e::processes::Process;
use e2e::settings::Settings;
use e2e::world::{SOON, World};

/// Who.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Subject {
    /// Agent and broker, joined by a Unix socket.
    Ours,
    /// A Go controller.
    Peer(Peer),
}

/// A subject that runs.
#[derive(Debug)]
pub(crate) struct Running {
    processes: Vec<Process>,
}

impl Subject {
    /// All of them, in the order of the table's columns.
    pub(crate) const ALL: [Self; 3] = [Self::Ours, Self::Peer(Peer::Apache), Self::Peer(Peer::Leaseweb)];

    /// Its column.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Ours => "ours",
            Self::Peer(peer) => peer.name(),
        }
    }

    /// Whether its binary is here.
    pub(crate) async fn is_here(self, settings: &Settings) -> Result<bool> {
        match self {
            Self::Ours => Ok(true),
            Self::Peer(peer) => Ok(peer.binary(settings).await?.is_some()),
        }
    }

    /// Starts it as its users run it, but for the leader election that a restart would wait for.
    pub(crate) async fn start(self, world: &World) -> Result<Running> {
        let processes = match self {
            Self::Ours => {
                let mut broker = world.broker_plan(world.config_with("cloud-config", "")?)?;
                broker.more.push("--v=2".into());
                let mut agent = world.agent_plan(&broker.joint, None).await?;
                agent.quick = false;
                agent
                    .more
                    .extend(["--leader-elect=false", "--v=2"].map(str::to_owned));
                let pair = world.pair_of(broker, agent).await?;
                vec![pair.agent, pair.broker]
            }
            Self::Peer(peer) => {
                let config = world.config_with("cloud-config", "")?;
                let kubeconfig = &world.cluster.plane.kubeconfig;
                let place = Place {
                    dir: &world.dir,
                    config: &config,
                    kubeconfig,
                    proxy: &world.api,
                    more: &[],
                };
                let process = peer.start(&world.settings, place).await?;
                vec![world.watched(process.context("its binary is gone")?)]
            }
        };
        Ok(Running { processes })
    }
}

impl Running {
    /// The most memory all its processes had together.
    pub(crate) fn peak_memory(&self) -> Result<u64> {
        self.processes.iter().map(Process::peak_memory).sum()
    }

    /// What of it is not mapped from files, now.
    pub(crate) fn own_memory(&self) -> Result<u64> {
        self.processes.iter().map(Process::own_memory).sum()
    }

    /// Stops it.
    pub(crate) async fn stop(mut self) -> Result<()> {
        for process in &mut self.processes {
            // How a peer ends on SIGTERM is its own matter.
            process.stop(SOON).await.ok();
        }
        Ok(())
    }
}
