//! A double of the Apache CloudStack management server, for tests, demos and CI.
//!
//! It speaks the HTTP API of CloudStack 4.22 for what a controller of load balancers and machines needs: zones, networks, VPCs, public addresses, load
//! balancer rules and their members, firewall rules, network ACLs, tags, machines and asynchronous jobs. Signatures, roles, projects, paging, error codes,
//! locks, throttling and the two phases of jobs behave as recorded from a real server; the recordings are replayed by this crate's tests.
//!
//! # From code
//!
//! ```
//! # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
//! use cloudstack_simulator::{Effect, Fault, Seed, Simulator};
//!
//! let seed = Seed::builder().account("demo").network("demo", "k8s", "127.101.0.0/24").machines("k8s", "node-", 3).build();
//! let simulator = Simulator::start_with_seed(seed).await.unwrap();
//! let (url, keys) = (simulator.url(), simulator.keys("demo").unwrap());
//! // Point a client at `url` with `keys.api_key` and `keys.secret_key`.
//! # let _ = (url, keys);
//! simulator.add_fault(Fault::at("associateIpAddress", 1, Effect::CutAfter));
//! simulator.destroy_machine("node-2").unwrap();
//! assert_eq!(simulator.dump().acquired().count(), 0);
//! simulator.stop().await;
//! # });
//! ```
//!
//! # As a process
//!
//! ```text
//! cloudstack-simulator --listen 127.0.0.1:8080 --seed FILE --keys FILE [--haproxy auto|off|PATH]
//! ```
//!
//! The key file is `{"demo": {"apikey": "..", "secretkey": ".."}, ..}`, one entry per caller of the seed. The API is at `/client/api`, the controls are below
//! `/simulator`, in JSON and without any authentication (it is a test double; bind it to loopback):
//!
//! | request | effect |
//! | --- | --- |
//! | `GET /simulator/health` | is it there, do bytes flow |
//! | `GET /simulator/calls`, `DELETE` | [`Calls`] by command, kind and caller; count anew |
//! | `GET /simulator/faults`, `POST` a [`Fault`], `DELETE` | fault script: `{"command":"createFirewallRule","nth":2,"effect":{"error":{"code":530,"text":".."}}}`; effects `cut_before`, `cut_after`, `{"slow":{"millis":n}}`, `{"raw":{..}}`, `{"fail_job":{..}}` |
//! | `GET /simulator/dump` | [`Dump`]: what exists, for leak checks |
//! | `GET /simulator/routers`, `/simulator/routers/log` | what the routers really have, and what they were sent |
//! | `POST /simulator/routers` | `{"command":"LoadBalancerConfigCommand","refuse":true}`: routers refuse it |
//! | `PUT /simulator/options` | `latency_ms`, `job_ms`, `router_ms`, `command_ms`, `lock_hold_ms`, `lock_pause_ms`, `lock_scale`, `router_log` |
//! | `PUT /simulator/settings` | global settings by name, such as `api.throttling.enabled` |
//! | `POST /simulator/machines` | `{"name":"node-4","network":"k8s","address":"127.101.0.14"}` adds a machine |
//! | `POST /simulator/machines/NAME/start`, `stop`, `destroy`, `expunge` | at once, without a job |
//! | `POST /simulator/addresses/IP/uses`, `DELETE` | an [`AddressUse`]: `{"port_forwarding":{"port":22}}`, `"vpn"`, `{"static_nat":{"machine":"node-1"}}`; end them |
//!
//! # Time
//!
//! Without options nothing is slow, but a lost lock costs 5 s as on the server ([`Options::lock_scale`]). [`Delays`] make jobs slow; [`Handle::hold_jobs`]
//! makes them stand still at a chosen point until a test releases them, which needs no clock.
//!
//! # Data path
//!
//! With HAProxy the load balancers are real: public addresses and machines are loopback addresses, and bytes flow from one to the other as through the
//! virtual router, with PROXY header, source lists and firewall rules.

mod admin;
mod auth;
mod calls;
mod catalog;
mod clock;
mod commands;
mod control;
mod dispatch;
mod dump;
mod error;
mod faults;
mod gate;
mod http;
mod jobs;
mod keys;
mod lock;
mod options;
mod paging;
mod reply;
mod request;
mod router;
mod scope;
mod seed;
mod server;
mod simulator;
mod state;
mod throttle;

pub use self::calls::{CallKind, Calls};
pub use self::dump::{AclRow, AddressRow, Dump, FirewallRow, MachineRow, RuleRow, TagRow};
pub use self::faults::{Effect, Fault, FaultState};
pub use self::gate::Hold;
pub use self::keys::{KeyPair, Keys, KeysError};
pub use self::options::{DataPath, Delays, Options};
pub use self::router::{Router, RouterAclItem, RouterFirewallRule, RouterRule, Sent};
pub use self::seed::{Builder, CallerSeed, MachineSeed, NetworkSeed, Seed, SeedError};
pub use self::simulator::{ControlError, Handle, Simulator, StartError};
pub use self::state::AddressUse;
