//! The one-file manifests: the parts of a kustomization joined, for people who apply a single file. `make manifests` writes them.

use std::path::PathBuf;

use anyhow::{Context as _, Result};

use crate::settings::Settings;

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
        parts: &["rbac.yaml", "config-map.yaml", "deployment.yaml"],
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_one_file_manifest_is_its_parts_joined() {
        for one in &ALL {
            let found = std::fs::read_to_string(one.path()).unwrap();
            assert!(
                found == one.joined().unwrap(),
                "deploy/{} is old: make manifests",
                one.name
            );
        }
    }

    #[test]
    fn the_parts_are_those_of_the_kustomization() {
        for one in &ALL {
            let file = Settings::root()
                .join("deploy")
                .join(one.folder)
                .join("kustomization.yaml");
            let text = std::fs::read_to_string(file).unwrap();
            let listed: Vec<_> = text
                .lines()
                .filter_map(|line| line.trim().strip_prefix("- "))
                .collect();
            assert_eq!(listed, one.parts);
        }
    }
}
