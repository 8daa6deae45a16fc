//! The controls over HTTP, for tests that run the simulator as a process. See the crate's documentation for the list.

use http::Method;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::calls::Counters;
use crate::dump::Dump;
use crate::faults::Fault;
use crate::reply::{Reply, raw};
use crate::server::Server;
use crate::simulator::ControlError;
use crate::state::MachineState;

/// A machine to add.
#[derive(Debug, Deserialize)]
struct NewMachine {
    name: String,
    network: String,
    #[serde(default)]
    address: Option<String>,
}

/// Options that may change; what is left out stays.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Tuning {
    latency_ms: Option<u64>,
    job_ms: Option<u64>,
    router_ms: Option<u64>,
    command_ms: Option<std::collections::BTreeMap<String, u64>>,
    lock_hold_ms: Option<u64>,
    lock_pause_ms: Option<u64>,
    lock_scale: Option<f64>,
    router_log: Option<bool>,
}

/// What a router does with a command.
#[derive(Debug, Deserialize)]
struct RouterFault {
    command: String,
    refuse: bool,
}

/// An answer that is no JSON body.
struct Refused(u16, String);

impl From<serde_json::Error> for Refused {
    fn from(error: serde_json::Error) -> Self {
        Self(400, error.to_string())
    }
}

impl From<ControlError> for Refused {
    fn from(error: ControlError) -> Self {
        Self(404, error.to_string())
    }
}

/// Answers a control.
pub(crate) fn handle(server: &Server, method: &Method, path: &str, body: &[u8]) -> Reply {
    let steps: Vec<&str> = path
        .trim_start_matches("/simulator/")
        .trim_end_matches('/')
        .split('/')
        .collect();
    match control(server, method, &steps, body) {
        Ok(value) => raw(200, "application/json", value.to_string()),
        Err(Refused(status, text)) => raw(status, "application/json", json!({ "error": text }).to_string()),
    }
}

fn control(server: &Server, method: &Method, steps: &[&str], body: &[u8]) -> Result<Value, Refused> {
    match (method.as_str(), steps) {
        ("GET", ["health"]) => Ok(json!({ "ok": true, "datapath": server.data_plane.is_some() })),
        ("GET", ["calls"]) => Ok(json!(server.counters.lock().calls)),
        ("DELETE", ["calls"]) => {
            *server.counters.lock() = Counters::default();
            Ok(json!({}))
        }
        ("GET", ["faults"]) => Ok(json!(server.faults.lock().lines)),
        ("POST", ["faults"]) => {
            let fault: Fault = serde_json::from_slice(body)?;
            server.faults.lock().add(fault);
            Ok(json!({}))
        }
        ("DELETE", ["faults"]) => {
            server.faults.lock().lines.clear();
            Ok(json!({}))
        }
        ("GET", ["dump"]) => Ok(json!(Dump::of(&server.world.lock()))),
        ("GET", ["routers"]) => Ok(json!(server.world.lock().routers)),
        ("GET", ["routers", "log"]) => Ok(json!(*server.sent.lock())),
        ("POST", ["routers"]) => {
            let fault: RouterFault = serde_json::from_slice(body)?;
            server.refuse_in_router(&fault.command, fault.refuse);
            Ok(json!({}))
        }
        ("PUT", ["options"]) => tune(server, serde_json::from_slice(body)?),
        ("PUT", ["settings"]) => {
            let settings: std::collections::BTreeMap<String, String> = serde_json::from_slice(body)?;
            server.world.lock().settings.extend(settings);
            Ok(json!({}))
        }
        ("POST", ["machines"]) => {
            let new: NewMachine = serde_json::from_slice(body)?;
            Ok(json!({ "id": server.add_machine(&new.name, &new.network, new.address.as_deref())? }))
        }
        ("POST", ["addresses", address, "uses"]) => {
            server.use_address(address, &serde_json::from_slice(body)?)?;
            Ok(json!({}))
        }
        ("DELETE", ["addresses", address, "uses"]) => {
            server.end_uses(address)?;
            Ok(json!({}))
        }
        ("POST", ["machines", name, action]) => machine(server, name, action),
        _ => Err(Refused(404, "no such control".into())),
    }
}

fn machine(server: &Server, name: &str, action: &str) -> Result<Value, Refused> {
    match action {
        "start" => server.set_machine(name, MachineState::Running)?,
        "stop" => server.set_machine(name, MachineState::Stopped)?,
        "destroy" => server.set_machine(name, MachineState::Destroyed)?,
        "expunge" => server.expunge_machine(name)?,
        _ => return Err(Refused(404, format!("no such action {action}"))),
    }
    Ok(json!({}))
}

fn tune(server: &Server, tuning: Tuning) -> Result<Value, Refused> {
    let millis = std::time::Duration::from_millis;
    if tuning
        .lock_scale
        .is_some_and(|scale| !(0.0..=1000.0).contains(&scale))
    {
        return Err(Refused(400, "lock_scale must be between 0 and 1000".into()));
    }
    server.options.change(|options| {
        let set = |value: &mut std::time::Duration, given: Option<u64>| {
            if let Some(given) = given {
                *value = millis(given);
            }
        };
        set(&mut options.latency, tuning.latency_ms);
        set(&mut options.delays.job, tuning.job_ms);
        set(&mut options.delays.router, tuning.router_ms);
        set(&mut options.lock_hold, tuning.lock_hold_ms);
        set(&mut options.lock_pause, tuning.lock_pause_ms);
        if let Some(scale) = tuning.lock_scale {
            options.lock_scale = scale;
        }
        if let Some(log) = tuning.router_log {
            options.router_log = log;
        }
        if let Some(commands) = tuning.command_ms {
            options.delays.by_command = commands
                .into_iter()
                .map(|(name, time)| (name, millis(time)))
                .collect();
        }
    });
    Ok(json!({}))
}
