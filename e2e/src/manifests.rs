//! The one-file manifest: `deploy/base` joined, for people who apply a single file. `make manifests` writes it.

use std::path::PathBuf;

use anyhow::{Context as _, Result};

use crate::settings::Settings;

/// First line of the file.
const HEADER: &str =
    "# Everything that a cluster needs, in one file: deploy/base joined. Made by `make manifests`.\n";
/// The parts, in the order in which they have to be applied.
const PARTS: [&str; 2] = ["rbac.yaml", "deployment.yaml"];

/// Where the file lies.
pub fn file() -> PathBuf {
    Settings::root().join("deploy/cloud-controller-manager.yaml")
}

/// What it should say.
pub fn joined() -> Result<String> {
    let base = Settings::root().join("deploy/base");
    let mut parts = Vec::new();
    for part in PARTS {
        let path = base.join(part);
        parts.push(std::fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?);
    }
    Ok(format!("{HEADER}{}", parts.join("---\n")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_one_file_manifest_is_its_parts_joined() {
        let found = std::fs::read_to_string(file()).unwrap();
        assert!(
            found == joined().unwrap(),
            "deploy/cloud-controller-manager.yaml is old: make manifests"
        );
    }

    #[test]
    fn the_parts_are_those_of_the_kustomization() {
        let text = std::fs::read_to_string(Settings::root().join("deploy/base/kustomization.yaml")).unwrap();
        let listed: Vec<_> = text
            .lines()
            .filter_map(|line| line.trim().strip_prefix("- "))
            .collect();
        assert_eq!(listed, PARTS);
    }
}
