//! Rules of the house that the compiler does not keep.

use std::path::{Path, PathBuf};

/// Files that decide: no client, no task, no clock.
const PURE: &[&str] = &[
    "args/controllers.rs",
    "args/ignored.rs",
    "events/correlate.rs",
    "keepalived/address.rs",
    "keepalived/allocation/mod.rs",
    "keepalived/allocation/advice.rs",
    "keepalived/allocation/assign.rs",
    "keepalived/allocation/entries.rs",
    "keepalived/allocation/inherit.rs",
    "keepalived/allocation/share.rs",
    "keepalived/claim.rs",
    "keepalived/config_map.rs",
    "keepalived/desk.rs",
    "keepalived/document.rs",
    "keepalived/method.rs",
    "keepalived/notes.rs",
    "keepalived/ownership.rs",
    "keepalived/pool.rs",
    "keepalived/pools_file.rs",
    "keepalived/render.rs",
    "keepalived/repairs.rs",
    "keepalived/selector.rs",
    "lease.rs",
    "node/addresses.rs",
    "node/labels.rs",
    "node/lifecycle.rs",
    "node/plan.rs",
    "node/presence.rs",
    "node/provider_id.rs",
    "queue.rs",
    "service/annotations.rs",
    "service/annotations/reference.rs",
    "service/annotations/table.rs",
    "service/backend.rs",
    "service/choice.rs",
    "service/fingerprint.rs",
    "service/intent.rs",
    "service/intent/ports.rs",
    "service/intent/sources.rs",
    "service/intent/wish.rs",
    "service/ledger.rs",
    "service/members.rs",
    "service/status.rs",
];

const IMPURE: &[&str] = &[
    "tokio",
    "tonic",
    "runtime::",
    "kube::Client",
    "kube::Api",
    "kube::api",
    "std::time::SystemTime",
    "rand",
];

fn source(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("src").join(path)
}

fn files(directory: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(directory)
        .unwrap()
        .map(|entry| entry.unwrap().path());
    entries
        .flat_map(|path| if path.is_dir() { files(&path) } else { vec![path] })
        .collect()
}

#[test]
fn files_that_decide_reach_for_nothing_that_acts() {
    for file in PURE {
        let text = std::fs::read_to_string(source(file)).unwrap_or_else(|error| panic!("{file}: {error}"));
        for line in text
            .lines()
            .filter(|line| line.starts_with("use ") || line.starts_with("pub use "))
        {
            for word in IMPURE {
                assert!(!line.contains(word), "{file} imports {word}: {line}");
            }
        }
    }
}

#[test]
fn the_agent_knows_no_term_of_the_clouds_api() {
    // What the API calls its commands and fields; the project's own name is no such term.
    let terms = [
        "listVirtualMachines",
        "associateIpAddress",
        "createLoadBalancerRule",
        "jobresult",
        "apiKey",
        "virtualmachineid",
    ];
    for file in files(&source("")) {
        let text = std::fs::read_to_string(&file).unwrap();
        for term in terms {
            assert!(!text.contains(term), "{} says {term}", file.display());
        }
    }
}

#[test]
fn every_source_file_belongs_to_a_module() {
    let all = files(&source(""));
    let texts: Vec<String> = all
        .iter()
        .map(|file| std::fs::read_to_string(file).unwrap())
        .collect();
    for file in all
        .iter()
        .filter(|file| file.extension().is_some_and(|extension| extension == "rs"))
    {
        let stem = file.file_stem().unwrap().to_str().unwrap();
        if ["lib", "main"].contains(&stem) {
            continue;
        }
        let name = if stem == "mod" {
            file.parent().unwrap().file_name().unwrap().to_str().unwrap()
        } else {
            stem
        };
        let declared = format!("mod {name};");
        assert!(
            texts.iter().any(|text| text.contains(&declared)),
            "nothing declares {}",
            file.display()
        );
    }
}
