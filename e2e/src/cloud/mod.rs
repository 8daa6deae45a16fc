//! The CloudStack under the scenarios: the simulator, started for one scenario, or a real management server, shared by
//! all of them one after the other. Both are used through their signed API alone, so that a scenario can't tell them apart.

mod client;
mod inventory;
mod real;
mod simulator;

use anyhow::{Context as _, Result};
use serde_json::{Value, json};

pub use client::{Client, Keys, Refused};
pub use inventory::{Address, Firewall, Inventory, Rule, text};
pub use real::{Found, Server};
pub use simulator::{Router, Simulator, SimulatorOptions};

/// The isolated network the scenarios work in; both clouds have it.
pub const NETWORK: &str = "lab-net";
/// The zone of that network.
pub const ZONE: &str = "Sandbox-simulator";
/// Machines that are in it from the start, on both clouds.
pub const MACHINES: [&str; 3] = ["node-1", "node-2", "node-3"];

/// Which CloudStack.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// The project's simulator.
    Simulator,
    /// A real management server.
    CloudStack,
}

impl std::fmt::Display for Kind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Simulator => "simulator",
            Self::CloudStack => "cloudstack",
        })
    }
}

/// A machine that a scenario made.
#[derive(Debug, Clone)]
pub struct Machine {
    /// Its name.
    pub name: String,
    /// Its id.
    pub id: String,
}

/// One CloudStack and the account the scenarios use.
#[derive(Debug)]
pub struct Cloud {
    /// Which.
    pub kind: Kind,
    /// Its API.
    pub url: String,
    /// The account's signed client.
    pub client: Client,
    /// The simulator, if it is one.
    pub simulator: Option<Simulator>,
    before: Inventory,
}

impl Cloud {
    /// A fresh simulator.
    pub async fn simulated(simulator: Simulator) -> Result<Self> {
        let client = Client::new(&simulator.url, simulator.keys.clone())?;
        let url = simulator.url.clone();
        Self::with(Kind::Simulator, url, client, Some(simulator)).await
    }

    /// A real management server.
    pub async fn real(server: &Server) -> Result<Self> {
        let client = Client::new(&server.url, server.keys.clone())?;
        Self::with(Kind::CloudStack, server.url.clone(), client, None).await
    }

    async fn with(kind: Kind, url: String, client: Client, simulator: Option<Simulator>) -> Result<Self> {
        let before = Inventory::read(&client)
            .await
            .context("reading what the account holds")?;
        Ok(Self {
            kind,
            url,
            client,
            simulator,
            before,
        })
    }

    /// What the account holds now.
    pub async fn inventory(&self) -> Result<Inventory> {
        Inventory::read(&self.client).await
    }

    /// What changed since the scenario began, one line each; empty if nothing is left behind.
    pub async fn leftovers(&self) -> Result<Vec<String>> {
        Ok(self.inventory().await?.changes_since(&self.before))
    }

    /// Makes what is there now the base of the leak check: for objects a scenario made itself.
    pub async fn rebase(&mut self) -> Result<()> {
        self.before = self.inventory().await?;
        Ok(())
    }

    /// A machine in the scenarios' network, as the server shows it.
    pub async fn machine(&self, name: &str) -> Result<Value> {
        let network = self.network_id(NETWORK).await?;
        let of = [("name", name), ("networkid", network.as_str())];
        let found = self
            .client
            .list("listVirtualMachines", "virtualmachine", &of)
            .await?;
        let found = found
            .into_iter()
            .find(|machine| machine["name"].as_str() == Some(name));
        found.with_context(|| format!("no machine {name} in {NETWORK}"))
    }

    /// The id of a machine.
    pub async fn machine_id(&self, name: &str) -> Result<String> {
        Ok(text(&self.machine(name).await?, "id"))
    }

    /// The id of a network.
    pub async fn network_id(&self, name: &str) -> Result<String> {
        let found = self.client.list("listNetworks", "network", &[]).await?;
        let found = found
            .iter()
            .find(|network| network["name"].as_str() == Some(name));
        Ok(text(found.with_context(|| format!("no network {name}"))?, "id"))
    }

    /// Makes one more machine in the scenarios' network.
    pub async fn add_machine(&self, name: &str) -> Result<Machine> {
        match &self.simulator {
            Some(simulator) => {
                let body = json!({"name": name, "network": NETWORK});
                simulator.control("machines", &body).await?;
            }
            None => self.deploy(name).await?,
        }
        Ok(Machine {
            name: name.to_owned(),
            id: self.machine_id(name).await?,
        })
    }

    /// The same on a real server: a machine like node-1.
    async fn deploy(&self, name: &str) -> Result<()> {
        let like = self.machine("node-1").await?;
        let network = self.network_id(NETWORK).await?;
        let [zone, template, offering] =
            ["zoneid", "templateid", "serviceofferingid"].map(|field| text(&like, field));
        let params = [
            ("name", name),
            ("zoneid", zone.as_str()),
            ("templateid", template.as_str()),
            ("serviceofferingid", offering.as_str()),
            ("networkids", network.as_str()),
        ];
        self.client.run("deployVirtualMachine", &params).await?;
        Ok(())
    }

    /// Destroys a machine: afterwards its owner can't see it any more.
    pub async fn destroy_machine(&self, machine: &Machine) -> Result<()> {
        self.order(machine, "destroy", "destroyVirtualMachine").await
    }

    /// Stops a machine.
    pub async fn stop_machine(&self, machine: &Machine) -> Result<()> {
        self.order(machine, "stop", "stopVirtualMachine").await
    }

    /// Starts a machine.
    pub async fn start_machine(&self, machine: &Machine) -> Result<()> {
        self.order(machine, "start", "startVirtualMachine").await
    }

    async fn order(&self, machine: &Machine, word: &str, command: &str) -> Result<()> {
        match &self.simulator {
            Some(simulator) => {
                let path = format!("machines/{}/{word}", machine.name);
                simulator.control(&path, &json!({})).await?;
            }
            None => {
                self.client.run(command, &[("id", &machine.id)]).await?;
            }
        }
        Ok(())
    }

    /// Takes a public address for the scenarios' network, as an administrator does before a Service names it.
    pub async fn take_address(&self) -> Result<Address> {
        let network = self.network_id(NETWORK).await?;
        let made = self
            .client
            .run("associateIpAddress", &[("networkid", &network)])
            .await?;
        let made = &made["ipaddress"];
        Ok(Address {
            ip: text(made, "ipaddress"),
            id: text(made, "id"),
            state: "Allocated".into(),
            network,
        })
    }

    /// An address nobody holds.
    pub async fn free_address(&self) -> Result<String> {
        let free = [
            ("state", "Free"),
            ("allocatedonly", "false"),
            ("forvirtualnetwork", "true"),
        ];
        let free = self
            .client
            .list("listPublicIpAddresses", "publicipaddress", &free)
            .await?;
        Ok(text(free.last().context("no free address")?, "ipaddress"))
    }

    /// Gives an address back.
    pub async fn release_address(&self, id: &str) -> Result<()> {
        self.client.run("disassociateIpAddress", &[("id", id)]).await?;
        Ok(())
    }
}
