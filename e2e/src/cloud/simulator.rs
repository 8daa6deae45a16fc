//! The project's simulator as a process: a small cloud of its own for one scenario, with the names that the real server's
//! base state has as well.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};

use super::{Keys, MACHINES, NETWORK, ZONE};
use crate::processes::{Process, Program, free_port};
use crate::settings::Settings;
use crate::wait;

/// The simulator forwards packets: HAProxy on loopback addresses.
#[derive(Debug, Clone, Copy)]
pub struct Router {
    /// Third byte of the loopback networks, so that several simulators can run side by side.
    pub range: usize,
}

/// What kind of cloud to simulate.
#[derive(Debug, Clone)]
pub struct SimulatorOptions {
    /// Forward packets.
    pub router: Option<Router>,
    /// How many machines the network has, `node-1` and so on.
    pub machines: usize,
    /// How long a job takes that reconfigures a router.
    pub router_job: Duration,
    /// The network has a load balancing service.
    pub balances: bool,
    /// Further arguments.
    pub more: Vec<String>,
}

impl Default for SimulatorOptions {
    fn default() -> Self {
        Self {
            router: None,
            machines: MACHINES.len(),
            router_job: Duration::from_millis(50),
            balances: true,
            more: Vec::new(),
        }
    }
}

/// A running simulator.
#[derive(Debug)]
pub struct Simulator {
    /// Its API.
    pub url: String,
    /// Keys of the account that owns everything.
    pub keys: Keys,
    /// The process.
    pub process: Process,
    admin: String,
    http: reqwest::Client,
}

impl Simulator {
    /// Starts one whose files lie in `dir`.
    pub async fn start(settings: &Settings, dir: &Path, options: SimulatorOptions) -> Result<Self> {
        std::fs::create_dir_all(dir)?;
        let keys = Keys {
            api: random_key(),
            secret: random_key(),
        };
        let seed = write(dir, "seed.json", &seed(&options))?;
        let pair = json!({"labuser": {"apikey": keys.api, "secretkey": keys.secret}});
        let keyfile = write(dir, "keys.json", &pair)?;
        let address = format!("127.0.0.1:{}", free_port()?);
        let program = Program::new("cloudstack-simulator", settings.binary("cloudstack-simulator")?)
            .args(["--listen", &address])
            .arg("--seed")
            .arg(&seed)
            .arg("--keys")
            .arg(&keyfile)
            .arg(format!("--router-ms={}", options.router_job.as_millis()))
            .arg(if options.router.is_some() {
                "--haproxy=auto"
            } else {
                "--haproxy=off"
            })
            .args(&options.more);
        let process = program.with_children().start(dir).await?;
        let http = reqwest::Client::builder()
            .timeout(Duration::from_secs(10))
            .build()?;
        let url = format!("http://{address}/client/api");
        let admin = format!("http://{address}/simulator");
        wait::until(Duration::from_secs(20), "the simulator answers", || async {
            Ok(Some(http.get(&url).send().await?.status()))
        })
        .await
        .with_context(|| process.log().tail(20))?;
        Ok(Self {
            url,
            keys,
            process,
            admin,
            http,
        })
    }

    /// Ends it, and the HAProxy of its router with it.
    pub async fn stop(&mut self) -> Result<()> {
        self.process.stop(Duration::from_secs(10)).await?;
        Ok(())
    }

    /// Sends a request to the simulator's own controls.
    pub async fn control(&self, path: &str, body: &Value) -> Result<Value> {
        let request = self.http.post(format!("{}/{path}", self.admin)).json(body);
        let answer = request.send().await?;
        let status = answer.status();
        let text = answer.text().await?;
        ensure!(status.is_success(), "the simulator refused {path}: {text}");
        if text.is_empty() {
            Ok(Value::Null)
        } else {
            Ok(serde_json::from_str(&text)?)
        }
    }
}

fn write(dir: &Path, name: &str, value: &Value) -> Result<PathBuf> {
    let path = dir.join(name);
    std::fs::write(&path, serde_json::to_vec_pretty(value)?)?;
    Ok(path)
}

fn random_key() -> String {
    format!(
        "{}{}",
        uuid::Uuid::new_v4().simple(),
        uuid::Uuid::new_v4().simple()
    )
}

/// One account, one isolated network with a virtual router, machines, and public addresses.
fn seed(options: &SimulatorOptions) -> Value {
    let (inside, outside) = match options.router {
        None => ("10.1.1".to_owned(), "192.168.2".to_owned()),
        Some(Router { range }) => (format!("127.101.{range}"), format!("127.100.{range}")),
    };
    // The real server's network has machines with capitals in their names as well, and Nodes can't have them.
    let names = (1..=options.machines).map(|number| format!("node-{number}"));
    let names = names.chain((1..=2).map(|number| format!("K8S-Worker-{number}")));
    let machines: Vec<_> = names
        .enumerate()
        .map(|(index, name)| {
            let address = format!("{inside}.{}", index + 10);
            json!({"name": name, "account": "labuser", "zonename": ZONE,
                "state": "Running", "nic": [{"networkname": NETWORK, "ipaddress": address}]})
        })
        .collect();
    let mut network = json!({"name": NETWORK, "account": "labuser", "type": "Isolated", "zonename": ZONE,
        "cidr": format!("{inside}.0/24"), "gateway": format!("{inside}.1"), "netmask": "255.255.255.0"});
    if !options.balances {
        network["service"] =
            json!([{"name": "Dhcp", "capability": []}, {"name": "UserData", "capability": []}]);
    }
    json!({
        "callers": {"labuser": {"account": "labuser", "domain": "ROOT"}},
        "zones": [{"name": ZONE}],
        "accounts": [{"name": "labuser", "rolename": "User"}],
        "publicipranges": [{"startip": format!("{outside}.2"), "endip": format!("{outside}.200"),
            "gateway": format!("{outside}.1"), "netmask": "255.255.255.0", "zonename": ZONE}],
        "networks": [network],
        "virtualmachines": machines,
    })
}
