//! The one-file manifests: the parts of a kustomization joined, for people who apply a single file. `make manifests` writes them.
//! The tests beside hold what must be true of everything in `deploy/`.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use serde_json::Value;

use crate::settings::Settings;

pub mod chart;

/// A kustomization as one file.
#[derive(Debug)]
pub struct OneFile {
    /// Its name in `deploy`.
    pub name: &'static str,
    /// Its first line.
    header: &'static str,
    /// The folder in `deploy` with the parts.
    folder: &'static str,
    /// The parts, in the order in which they have to be applied.
    parts: &'static [&'static str],
}

/// All of them.
pub const ALL: [OneFile; 2] = [
    OneFile {
        name: "cloud-controller-manager.yaml",
        header: "# Everything that a cluster needs, in one file: deploy/base joined. Made by `make manifests`.\n",
        folder: "base",
        parts: &["rbac.yaml", "deployment.yaml"],
    },
    OneFile {
        name: "keepalived-cloud-provider.yaml",
        header: "# The agent with addresses from a pool, in one file: deploy/keepalived joined. Made by `make manifests`.\n",
        folder: "keepalived",
        parts: &["rbac.yaml", "deployment.yaml"],
    },
];

impl OneFile {
    /// Where it lies.
    pub fn path(&self) -> PathBuf {
        Settings::root().join("deploy").join(self.name)
    }

    /// What it should say.
    pub fn joined(&self) -> Result<String> {
        let base = Settings::root().join("deploy").join(self.folder);
        let mut parts = Vec::new();
        for part in self.parts {
            let path = base.join(part);
            parts
                .push(std::fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?);
        }
        Ok(format!("{}{}", self.header, parts.join("---\n")))
    }
}

/// The objects in a file of `deploy/`.
pub fn documents(path: &Path) -> Result<Vec<Value>> {
    let text = std::fs::read_to_string(path).with_context(|| format!("reading {}", path.display()))?;
    serde_saphyr::from_multiple(&text).with_context(|| format!("{} is no YAML", path.display()))
}

#[cfg(test)]
mod tests;
