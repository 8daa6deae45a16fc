//! What the configuration file means, and when it is read again.
//!
//! | file | decides |
//! | --- | --- |
//! | `gcfg` | what is a section, a key and a value: the rules of the Go controller's reader |
//! | `settings` | which keys there are, and what they mean; the reference of the documentation |
//! | `file` | how a file becomes a [`Config`]: all faults at once, with their lines |
//! | `values` | what one value means |
//! | `reload` | when the file, the keys and the certificates it names are read again |
//!
//! Leaves to others: who a caller is, and everything that is asked of the cloud. A [`Config`] can't be wrong in itself; whether
//! keys work or a project exists is for `describe` to find out.

mod file;
mod gcfg;
mod reload;
mod settings;
mod values;

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use secrecy::{ExposeSecret as _, SecretString};
use url::Url;

use crate::cloudstack::types::Version;
use crate::tenant::{ClusterName, Tenant};

pub use file::parse;
pub use gcfg::Diagnostic;
pub use reload::{Loaded, PERIOD, load, watch};
pub use settings::{Setting, reference};

/// The clusters that this broker serves.
#[derive(Clone, Debug)]
pub struct Config {
    /// One for each section; `default` for the caller on the Unix socket.
    pub clusters: BTreeMap<ClusterName, Cluster>,
}

/// One cluster: who it is, what it may do, and the way to its cloud.
#[derive(Clone, Debug)]
pub struct Cluster {
    /// Fence, policy and UIDs.
    pub tenant: Tenant,
    /// URIs and DNS names of certificates that stand for it.
    pub identities: Vec<String>,
    /// The API and the keys.
    pub access: Access,
    /// How old a machine list may be.
    pub machines_ttl: Duration,
}

/// The way to an API.
#[derive(Clone)]
pub struct Access {
    /// The API's address, ending in `/client/api` as a rule.
    pub url: Url,
    /// The key that names the user.
    pub api_key: SecretString,
    /// The key that signs.
    pub secret_key: SecretString,
    /// Don't look at the server's certificate.
    pub skip_verification: bool,
    /// Certificates of authorities, in PEM, that are trusted beside those of the system.
    pub authorities: Option<Vec<u8>>,
    /// Version of the server, where it may not be asked.
    pub version: Option<Version>,
    /// Calls per second.
    pub calls_per_second: Option<f64>,
    /// Calls at once.
    pub burst: Option<u32>,
}

impl Access {
    /// Whether both are the same account at the same API.
    pub fn is_same_account(&self, other: &Self) -> bool {
        self.url == other.url && self.api_key.expose_secret() == other.api_key.expose_secret()
    }
}

impl fmt::Debug for Access {
    /// The address and what differs from a plain set-up; no key.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Access")
            .field("url", &self.url.as_str())
            .field("skip_verification", &self.skip_verification)
            .field("authorities", &self.authorities.is_some())
            .field("version", &self.version)
            .field("calls_per_second", &self.calls_per_second)
            .field("burst", &self.burst)
            .finish_non_exhaustive()
    }
}

/// Everything that is wrong with a configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError {
    /// The file.
    pub path: PathBuf,
    /// Line and text of each fault, in the order of the file.
    pub faults: Vec<Diagnostic>,
}

impl fmt::Display for ConfigError {
    /// One fault a line: `file:line: what is wrong; what to do`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (position, fault) in self.faults.iter().enumerate() {
            if position > 0 {
                writeln!(f)?;
            }
            write!(f, "{}:{fault}", self.path.display())?;
        }
        Ok(())
    }
}

impl std::error::Error for ConfigError {}
