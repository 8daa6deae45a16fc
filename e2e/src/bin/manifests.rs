//! `make manifests`: writes the one-file manifests in `deploy` from their parts.

use anyhow::Result;
use e2e::manifests;

fn main() -> Result<()> {
    for one in &manifests::ALL {
        std::fs::write(one.path(), one.joined()?)?;
    }
    Ok(())
}
