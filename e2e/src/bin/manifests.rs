//! `make manifests`: writes `deploy/cloud-controller-manager.yaml` from its parts.

use anyhow::Result;
use e2e::manifests;

fn main() -> Result<()> {
    std::fs::write(manifests::file(), manifests::joined()?)?;
    Ok(())
}
