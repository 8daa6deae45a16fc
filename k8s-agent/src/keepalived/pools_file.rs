//! The file that names pools.
//!
//! Decides its grammar and reports every fault with its line. Leaves to [`super::pool`] what the values mean.
//!
//! ```ini
//! [Pool "public"]
//! addresses = 192.0.2.0/26, 192.0.2.100-192.0.2.110
//! namespaces = shop, blog
//! services = tier in (front, edge)
//! auto-assign = false
//! priority = 10
//! ```

use super::pool::PoolSpec;

/// One fault of the file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {text}")]
pub struct FileError {
    /// Line number, from 1.
    pub line: usize,
    /// What is wrong there.
    pub text: String,
}

/// Reads the file; all faults are reported at once.
pub fn parse(text: &str) -> Result<Vec<PoolSpec>, Vec<FileError>> {
    let mut pools: Vec<PoolSpec> = Vec::new();
    let mut errors = Vec::new();
    for (number, raw) in text.lines().enumerate() {
        let line = raw.trim();
        if line.is_empty() || line.starts_with(['#', ';']) {
            continue;
        }
        let outcome = if line.starts_with('[') {
            section(line).map(|name| pools.push(PoolSpec::open(name, "")))
        } else {
            match pools.last_mut() {
                Some(pool) => setting(pool, line),
                None => Err("a setting outside of a [Pool \"name\"] section".to_owned()),
            }
        };
        if let Err(text) = outcome {
            errors.push(FileError {
                line: number + 1,
                text,
            });
        }
    }
    if errors.is_empty() { Ok(pools) } else { Err(errors) }
}

fn section(line: &str) -> Result<&str, String> {
    let name = line
        .strip_prefix('[')
        .and_then(|rest| rest.strip_suffix(']'))
        .and_then(|inner| inner.trim().strip_prefix("Pool"))
        .and_then(|rest| rest.trim().strip_prefix('"'))
        .and_then(|rest| rest.strip_suffix('"'));
    match name {
        Some(name) if !name.trim().is_empty() => Ok(name.trim()),
        Some(_) | None => Err(format!(
            "{line} is not a section of this file; write [Pool \"name\"]"
        )),
    }
}

fn setting(pool: &mut PoolSpec, line: &str) -> Result<(), String> {
    let (key, value) = line
        .split_once('=')
        .ok_or_else(|| format!("\"{line}\" is not of the form key = value"))?;
    let (key, value) = (key.trim(), value.trim());
    match key {
        "addresses" if pool.addresses.is_empty() => value.clone_into(&mut pool.addresses),
        "addresses" => pool.addresses = format!("{},{value}", pool.addresses),
        "namespaces" => value.clone_into(&mut pool.namespaces),
        "services" => value.clone_into(&mut pool.services),
        "auto-assign" => {
            pool.auto_assign = value
                .parse()
                .map_err(|_| format!("auto-assign is true or false, not \"{value}\""))?;
        }
        "priority" => {
            let number = value
                .parse()
                .map_err(|_| format!("priority is a whole number, not \"{value}\""))?;
            pool.priority = Some(number);
        }
        _ => {
            return Err(format!(
                "unknown setting \"{key}\" (addresses, namespaces, services, auto-assign, priority)"
            ));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_names_pools() {
        let text = "# ours\n[Pool \"public\"]\naddresses = 192.0.2.0/26\naddresses = 192.0.2.100\nnamespaces = shop\n\
                    services = tier in (front, edge)\nauto-assign = false\npriority = 10\n\n[Pool \"rest\"]\naddresses=10.0.0.0/24\n";
        let public = PoolSpec {
            name: "public".into(),
            addresses: "192.0.2.0/26,192.0.2.100".into(),
            namespaces: "shop".into(),
            services: "tier in (front, edge)".into(),
            auto_assign: false,
            priority: Some(10),
        };
        assert_eq!(
            parse(text).unwrap(),
            [public, PoolSpec::open("rest", "10.0.0.0/24")]
        );
    }

    #[test]
    fn every_fault_is_reported_with_its_line() {
        let text =
            "addresses = 1\n[Pool]\n[Pool \"x\"]\nauto-assign = maybe\npriority = -1\ncolour = red\nword\n";
        let lines: Vec<usize> = parse(text)
            .unwrap_err()
            .into_iter()
            .map(|error| error.line)
            .collect();
        assert_eq!(lines, [1, 2, 4, 5, 6, 7]);
    }
}
