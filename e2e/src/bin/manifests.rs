//! `make manifests`: writes the one-file manifests in `deploy` from their parts, the chart's template with the rights, and the page about
//! the rights they grant.

use anyhow::Result;
use e2e::manifests::{self, chart};
use e2e::rights;

fn main() -> Result<()> {
    for one in &manifests::ALL {
        std::fs::write(one.path(), one.joined()?)?;
    }
    std::fs::write(chart::rights_path(), chart::rights_template()?)?;
    std::fs::write(rights::path(), rights::page()?)?;
    Ok(())
}
