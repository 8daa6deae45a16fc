//! API keys of the callers.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;

use base64::Engine as _;
use serde::Deserialize;

use crate::seed::Seed;

/// The keys of one caller. Debug output hides the secret.
#[derive(Clone, Deserialize)]
pub struct KeyPair {
    /// The API key, which travels with each call.
    #[serde(rename = "apikey")]
    pub api_key: String,
    /// The secret key, which signs.
    #[serde(rename = "secretkey")]
    pub secret_key: String,
}

impl fmt::Debug for KeyPair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyPair")
            .field("api_key", &self.api_key)
            .finish_non_exhaustive()
    }
}

/// Keys per caller name of the seed.
#[derive(Debug, Clone, Default)]
pub struct Keys(BTreeMap<String, KeyPair>);

/// Why a key file is no good.
#[derive(Debug, thiserror::Error)]
pub enum KeysError {
    /// The file can't be read.
    #[error("key file {path} cannot be read: {source}")]
    Read {
        /// The file.
        path: String,
        /// Why.
        source: std::io::Error,
    },
    /// It has another shape.
    #[error("key file is not valid: expected an object of caller names with apikey and secretkey")]
    Shape,
}

impl Keys {
    /// Keys for every caller of a seed, new ones at each call.
    pub fn generate(seed: &Seed) -> Self {
        let key = || base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(rand::random::<[u8; 64]>());
        Self(
            seed.key_names()
                .map(|name| {
                    (
                        name.to_owned(),
                        KeyPair {
                            api_key: key(),
                            secret_key: key(),
                        },
                    )
                })
                .collect(),
        )
    }

    /// Reads `{"name": {"apikey": .., "secretkey": ..}, ..}`. Entries without these two fields are left out.
    pub fn read(path: &Path) -> Result<Self, KeysError> {
        let text = std::fs::read_to_string(path).map_err(|source| KeysError::Read {
            path: path.display().to_string(),
            source,
        })?;
        Self::parse(&text)
    }

    /// Reads keys from text.
    pub fn parse(text: &str) -> Result<Self, KeysError> {
        // The parser's own message could quote a secret.
        let entries: BTreeMap<String, serde_json::Value> =
            serde_json::from_str(text).map_err(|_| KeysError::Shape)?;
        let pairs = entries
            .into_iter()
            .filter_map(|(name, value)| Some((name, serde_json::from_value(value).ok()?)));
        Ok(Self(pairs.collect()))
    }

    /// Adds or replaces the keys of a caller.
    pub fn insert(&mut self, name: &str, pair: KeyPair) {
        self.0.insert(name.to_owned(), pair);
    }

    /// The keys of a caller.
    pub fn get(&self, name: &str) -> Option<&KeyPair> {
        self.0.get(name)
    }

    /// All callers with keys.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &KeyPair)> {
        self.0.iter().map(|(name, pair)| (name.as_str(), pair))
    }
}
