//! Where an account calls and as whom: what is replaced when its configuration changes.

use secrecy::ExposeSecret as _;

use crate::cloudstack::http::Transport;
use crate::cloudstack::{AccountError, ApiKeys, Settings};

/// An endpoint and the keys for it.
pub(super) struct Connection {
    pub(super) transport: Transport,
    pub(super) keys: ApiKeys,
}

impl Connection {
    /// Whether both speak for one user at one endpoint.
    pub(super) fn is_same_account(&self, other: &Self) -> bool {
        let (one, two) = (&self.keys.api_key, &other.keys.api_key);
        self.transport.url() == other.transport.url() && one.expose_secret() == two.expose_secret()
    }

    pub(super) fn build(settings: &Settings) -> Result<Self, AccountError> {
        settings.check()?;
        Ok(Self {
            transport: Transport::build(settings)?,
            keys: settings.keys.clone(),
        })
    }
}
