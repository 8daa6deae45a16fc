//! What a simulated cloud starts with.
//!
//! The file is JSON: lists of objects as the API shows them to a root admin, so that a dump of a real cloud can be loaded. Whatever is left out gets a usual
//! value, so that a file by hand stays short. [`Builder`] makes the same from code.

mod builder;

use std::collections::BTreeMap;
use std::path::Path;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

pub use self::builder::{Builder, MachineSeed, NetworkSeed};

/// The start of a simulated cloud. `seeds/demo.json` shows the format.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Seed {
    /// Version that `listCapabilities` shows.
    pub version: Option<String>,
    /// Names for sets of keys.
    pub callers: BTreeMap<String, CallerSeed>,
    /// Global settings of the server.
    pub settings: BTreeMap<String, Value>,
    /// Names for ids, which a test may use. The simulator takes the ids of some objects from here.
    pub ids: BTreeMap<String, String>,
    /// Domains; none: `ROOT`.
    pub domains: Vec<Map<String, Value>>,
    /// Roles; none: `Root Admin`, `Domain Admin`, `User` and the role of the Kubernetes plugin.
    pub roles: Vec<Map<String, Value>>,
    /// Accounts: `name`, `rolename`.
    pub accounts: Vec<Map<String, Value>>,
    /// Projects: `name`, `owner`.
    pub projects: Vec<Map<String, Value>>,
    /// Zones; none: `zone1`.
    pub zones: Vec<Map<String, Value>>,
    /// Ranges of public addresses: `startip`, `endip`.
    pub publicipranges: Vec<Map<String, Value>>,
    /// Public addresses that are taken.
    pub publicips: Vec<Map<String, Value>>,
    /// Public addresses that are free; none: the rest of the ranges.
    pub publicips_free: Vec<Map<String, Value>>,
    /// Offerings of networks.
    pub networkofferings: Vec<Map<String, Value>>,
    /// Offerings of machines; none: `Small Instance`.
    pub serviceofferings: Vec<Map<String, Value>>,
    /// Networks: `name`, `account` or `project`, `type`, `cidr`, `vpcname`.
    pub networks: Vec<Map<String, Value>>,
    /// VPCs: `name`, `account` or `project`, `cidr`.
    pub vpcs: Vec<Map<String, Value>>,
    /// Lists of network ACL items; the two default lists are always there.
    pub networkacllists: Vec<Map<String, Value>>,
    /// Machines: `name`, `account` or `project`, `state`, `nic` with `networkname` and `ipaddress`.
    pub virtualmachines: Vec<Map<String, Value>>,
}

/// A set of keys: which account calls.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct CallerSeed {
    /// The account.
    pub account: Option<String>,
    /// Projects it is in, with the role there.
    pub projects: BTreeMap<String, String>,
    /// The caller whose keys these are; such an entry makes no account of its own.
    pub same_keys_as: Option<String>,
}

/// Why a seed is no good.
#[derive(Debug, thiserror::Error)]
pub enum SeedError {
    /// The file can't be read.
    #[error("seed file {path} cannot be read: {source}")]
    Read {
        /// The file.
        path: String,
        /// Why.
        source: std::io::Error,
    },
    /// It is no JSON of this shape.
    #[error("seed is not valid: {0}")]
    Json(#[from] serde_json::Error),
    /// It contradicts itself.
    #[error("seed is not valid: {0}")]
    Content(String),
}

impl Seed {
    /// Reads a seed file.
    pub fn read(path: &Path) -> Result<Self, SeedError> {
        let text = std::fs::read_to_string(path).map_err(|source| SeedError::Read {
            path: path.display().to_string(),
            source,
        })?;
        Self::parse(&text)
    }

    /// Reads a seed from text.
    pub fn parse(text: &str) -> Result<Self, SeedError> {
        Ok(serde_json::from_str(text)?)
    }

    /// The built-in seed: account `demo`, an isolated network `k8s` on 127.101.0.0/24 with three machines, public range 127.100.0.0/24.
    pub fn demo() -> Self {
        Self::parse(include_str!("../seeds/demo.json")).unwrap_or_default()
    }

    /// Starts a seed from code.
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// Names of the callers that have keys of their own.
    pub fn key_names(&self) -> impl Iterator<Item = &str> {
        self.callers
            .iter()
            .filter(|(_, caller)| caller.account.is_some())
            .map(|(name, _)| name.as_str())
    }
}
