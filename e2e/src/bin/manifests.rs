//! `make manifests`: writes the one-file manifests in `deploy` from their parts, and the page about the rights they grant.

use anyhow::Result;
use e2e::{manifests, rights};

fn main() -> Result<()> {
    for one in &manifests::ALL {
        std::fs::write(one.path(), one.joined()?)?;
    }
    std::fs::write(rights::path(), rights::page()?)?;
    Ok(())
}
