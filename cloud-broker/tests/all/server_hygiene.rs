//! Rules of the house that the compiler does not keep.

use std::path::{Path, PathBuf};

fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path());
    let all = entries.flat_map(|path| if path.is_dir() { files(&path) } else { vec![path] });
    all.filter(|path| path.extension().is_some_and(|extension| extension == "rs"))
        .collect()
}

fn sources() -> Vec<(PathBuf, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let all = files(&root.join("src"))
        .into_iter()
        .chain(files(&root.join("tests")));
    all.map(|path| (path.clone(), std::fs::read_to_string(path).unwrap()))
        .collect()
}

/// The module's own description.
fn header(text: &str) -> String {
    text.lines()
        .take_while(|line| line.starts_with("//!"))
        .collect::<Vec<_>>()
        .join(" ")
}

#[test]
fn files_that_call_themselves_pure_reach_for_nothing_that_acts() {
    let impure = [
        "tokio",
        "reqwest",
        "tonic",
        "runtime::clock",
        "runtime::host",
        "std::fs",
        "SystemTime::now",
        "rand::",
    ];
    let pure: Vec<_> = sources()
        .into_iter()
        .filter(|(_, text)| header(text).contains("Pure."))
        .collect();
    assert!(
        pure.len() > 20,
        "only {} files say that they are pure",
        pure.len()
    );
    for (path, text) in pure {
        let code = text.split("#[cfg(test)]").next().unwrap_or_default();
        for line in code.lines().filter(|line| !line.trim_start().starts_with("//")) {
            for word in impure {
                assert!(
                    !line.contains(word),
                    "{} is pure and says {word}: {line}",
                    path.display()
                );
            }
        }
    }
}

#[test]
fn every_source_file_belongs_to_a_module() {
    let all = sources();
    for (path, _) in &all {
        let stem = path.file_stem().unwrap().to_str().unwrap();
        if ["lib", "main"].contains(&stem) {
            continue;
        }
        let name = if stem == "mod" {
            path.parent().unwrap().file_name().unwrap().to_str().unwrap()
        } else {
            stem
        };
        let declared = [format!("mod {name};"), format!("\"{name}.rs\"")];
        let is_declared = all
            .iter()
            .any(|(_, text)| declared.iter().any(|words| text.contains(words)));
        assert!(is_declared, "nothing declares {}", path.display());
    }
}

#[test]
fn every_source_file_says_what_it_is_for() {
    for (path, text) in sources() {
        assert!(
            text.starts_with("//!") || path.to_string_lossy().ends_with("tests.rs"),
            "{} begins without a description",
            path.display()
        );
    }
}
