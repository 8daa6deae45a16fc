//! The client of a `CloudStack` API.
//!
//! Decides how a call is signed, sent, paid for from the account's rate, repeated, understood and, for jobs, waited
//! for. Knows nothing of tenants' policy, of Kubernetes or of gRPC: what to call, and what an answer means for a
//! balancer or a node, is for others.
//!
//! The way in is [`Account`] (one set of keys at one endpoint: budget, breaker, jobs, locks; whatever must not be
//! done twice) and [`Api`] (an account seen by one tenant in one project), which has one method per command:
//!
//! * a look-up by id answers `Option`: `None` is "not there, or not visible to this caller";
//! * a list answers a [`Listing`]; only a [`Complete`] one, whose unique ids are as many as the server counted before
//!   and after, is evidence that something is absent;
//! * a write answers [`Started`] once the server has taken it; [`Started::finished`] waits for its job. A job goes on
//!   being watched when the caller leaves, and can be awaited again by its id;
//! * an [`ApiError`] says what a caller can decide on, and whether the command may have taken effect nevertheless.

mod account;
mod api;
mod breaker;
mod budget;
mod cadence;
mod commands;
mod compact;
mod envelope;
mod error;
mod http;
mod jobs;
mod locks;
mod pace;
mod paging;
mod poller;
mod retry;
mod settings;
mod sign;
mod turnstile;
pub mod types;

pub use account::Account;
pub use api::{
    AddressQuery, Api, Associate, AssociateTarget, CreateAclItem, CreateFirewallRule, CreateRule, Created,
    FirewallProtocol, MachineQuery, NetworkQuery, Outcome, PagePlace, RuleChange, RuleQuery, Started,
};
pub use breaker::BreakerState;
pub use commands::{Command, CommandClass};
pub use error::{ApiError, Refusal};
pub use locks::{AssociateTurn, Locks, ReleaseTurn};
pub use pace::Pace;
pub use paging::{Complete, Listing};
pub use poller::JobFate;
pub use settings::{AccountError, Environment, RateSettings, Settings};
pub use sign::ApiKeys;

#[cfg(test)]
mod purity {
    /// Rules that only decide must not be able to do anything else.
    #[test]
    fn what_is_marked_pure_reaches_no_clock_no_runtime_and_no_client() {
        let files = [
            ("breaker", include_str!("breaker.rs")),
            ("budget", include_str!("budget.rs")),
            ("cadence", include_str!("cadence.rs")),
            ("commands", include_str!("commands.rs")),
            ("envelope", include_str!("envelope.rs")),
            ("error", include_str!("error.rs")),
            ("jobs", include_str!("jobs.rs")),
            ("paging", include_str!("paging.rs")),
            ("retry", include_str!("retry.rs")),
            ("sign", include_str!("sign.rs")),
        ];
        for (name, text) in files {
            let code = text.split("#[cfg(test)]").next().unwrap();
            for forbidden in [
                "tokio",
                "reqwest",
                "runtime::",
                "::now()",
                "rand::",
                "async ",
                "parking_lot",
            ] {
                assert!(
                    !code.contains(forbidden),
                    "{name} is pure and mentions {forbidden}"
                );
            }
        }
    }
}
