//! The page of reason words, and that its tables and the sources have the same words.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use cloud_broker::describe::findings::REASONS;
use cloud_broker::reasons::{FAULTS, NOTES};
use proto::camel;

use crate::server_reference::check;

/// Words in capitals that are no reasons: of the build, of the command line, of CloudStack.
const OTHERS: [&str; 4] = ["CARGO_PKG_VERSION", "AKEY", "FILE", "DURATION"];

fn sources(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if path.is_dir() && name != "tests" {
            found.extend(sources(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs")
            && !name.ends_with("tests.rs")
            && name != "reasons.rs"
        {
            found.push(path);
        }
    }
    found
}

/// The string literals of the program that look like a word in capitals, and those right after `Note::warning(` and `Note::normal(`.
fn said() -> (BTreeSet<String>, BTreeSet<String>) {
    let (mut capitals, mut notes) = (BTreeSet::new(), BTreeSet::new());
    for path in sources(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src")) {
        let whole = std::fs::read_to_string(&path).unwrap();
        let program = whole.split("#[cfg(test)]\nmod tests {").next().unwrap();
        let code: Vec<_> = program
            .lines()
            .filter(|line| !line.trim_start().starts_with("//"))
            .collect();
        let code = code.join("\n");
        for (index, _) in code.match_indices('"') {
            let (before, after) = (code[..index].trim_end(), &code[index + 1..]);
            let word = after
                .split(|c: char| !c.is_ascii_alphanumeric() && c != '_')
                .next()
                .unwrap();
            if word.len() < 4
                || !word.starts_with(char::is_alphabetic)
                || !after[word.len()..].starts_with('"')
            {
                continue;
            }
            if !word.contains(|c: char| c.is_ascii_lowercase()) {
                capitals.insert(word.to_owned());
            }
            if before.ends_with("Note::warning(") || before.ends_with("Note::normal(") {
                notes.insert(word.to_owned());
            }
        }
    }
    (capitals, notes)
}

fn words(table: &[(&str, &str)]) -> BTreeSet<String> {
    table.iter().map(|(word, _)| (*word).to_owned()).collect()
}

#[test]
fn the_tables_of_reasons_have_the_words_of_the_program_and_no_others() {
    let (capitals, notes) = said();
    let known: BTreeSet<_> = words(FAULTS)
        .into_iter()
        .chain(words(REASONS))
        .chain(OTHERS.map(str::to_owned))
        .collect();
    let new: Vec<_> = capitals.difference(&known).collect();
    assert!(new.is_empty(), "not in cloud-broker/src/reasons.rs: {new:?}");
    let never: Vec<_> = words(FAULTS).difference(&capitals).cloned().collect();
    assert!(
        never.is_empty(),
        "in the table of faults, and never said: {never:?}"
    );
    let new: Vec<_> = notes.difference(&words(NOTES)).cloned().collect();
    assert!(new.is_empty(), "not in the table of notes: {new:?}");
}

#[test]
fn every_note_is_said_somewhere() {
    let mut whole = String::new();
    for path in sources(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src")) {
        whole += &std::fs::read_to_string(path).unwrap();
    }
    for (word, _) in NOTES {
        assert!(whole.contains(&format!("\"{word}\"")), "{word} is never said");
    }
}

#[test]
fn the_page_of_reasons_is_the_tables() {
    let head = "# Reasons of the broker\n\nWhat the broker says about a load balancer. The agent shows it at the Service. Reasons stay as they are; texts are for \
                people and may\nchange. What the agent says by itself: [events](events.md). What the broker says of its set-up: [findings](findings.md). This \
                page is made from the program.\n";
    let rows = |table: &[(&str, &str)], row: &dyn Fn(&str, &str) -> String| -> String {
        table.iter().map(|(word, what)| row(word, what)).collect()
    };
    let notes = rows(NOTES, &|word, what| format!("| `{word}` | {what} |\n"));
    let faults = rows(FAULTS, &|word, what| {
        format!("| `{}` | `{word}` | {what} |\n", camel(word))
    });
    let page = format!(
        "{head}\n## Events\n\n| Reason | Meaning |\n| --- | --- |\n{notes}\n## Reasons of the condition `LoadBalancerReady`\n\nThe message of the event \
         `SyncLoadBalancerFailed` or `DeleteLoadBalancerFailed` says the same in full. The second column is the word in the contract and in \
         logs.\n\n| Reason | Word | Meaning |\n| --- | --- | --- |\n{faults}"
    );
    check("broker-reasons.md", &page);
}
