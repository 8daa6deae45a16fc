//! What is measured. A suite is what one start of a subject goes through.

/// One start of a subject.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Suite {
    /// Three nodes, Services with 1, 5 and 20 ports, an unrelated change.
    Small,
    /// Many nodes and Services: a node more, and nothing at all for a while.
    Large {
        /// How many nodes.
        nodes: usize,
        /// How many Services.
        services: usize,
        /// How long nothing happens, in minutes.
        idle: u32,
    },
    /// On the real server: start, Services with 1 and 5 ports.
    RealSmall,
    /// On the real server with 300 ms per call: a Service with 5 ports.
    RealSlow,
    /// On the real server: a node added and removed with 5 Services of 2 ports.
    RealNodes,
    /// On the real server: a restart with 10 Services of 1 port.
    RealRestart,
}

impl Suite {
    /// The suites for the simulator.
    pub(crate) fn simulated(nodes: usize, services: usize, idle: u32) -> Vec<Self> {
        let large = Self::Large {
            nodes,
            services,
            idle,
        };
        vec![Self::Small, large]
    }

    /// The suites for the real server.
    pub(crate) fn real() -> Vec<Self> {
        vec![
            Self::RealSmall,
            Self::RealSlow,
            Self::RealNodes,
            Self::RealRestart,
        ]
    }

    /// Its name in files and complaints.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Small => "small",
            Self::Large { .. } => "large",
            Self::RealSmall => "first",
            Self::RealSlow => "slow",
            Self::RealNodes => "nodes",
            Self::RealRestart => "restart",
        }
    }
}
