//! The lexical rules of the files that the Go controller reads, applied in front of a looser reader. Pure.
//!
//! Go's reader (gcfg, the syntax of git's configuration) and rust-ini read different languages. [`normalise`] applies the rules
//! of the first, comments, quotes, escapes, continued lines, bare booleans and section headers, and prints a canonical
//! text that the second can't misread. It decides what is a section, a key and a value, never what they mean. All
//! faults of a file are found at once; none of them shows a value, since any value may be a secret.

mod scanner;

use std::fmt;

use ini::{Ini, ParseOption};

use scanner::Scanner;

/// What is wrong in one line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diagnostic {
    /// Line of the file, from 1.
    pub line: usize,
    /// What is wrong; never a value.
    pub text: String,
    /// What to do; may be empty.
    pub hint: String,
}

impl Diagnostic {
    pub(super) fn new(line: usize, text: impl Into<String>, hint: impl Into<String>) -> Self {
        Self {
            line,
            text: text.into(),
            hint: hint.into(),
        }
    }
}

impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.line, self.text)?;
        if self.hint.is_empty() {
            Ok(())
        } else {
            write!(f, "; {}", self.hint)
        }
    }
}

/// Where a section or key of the canonical text stood in the file.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Place {
    line: usize,
    /// A key without `=`: a truth value.
    bare: bool,
}

/// A file in a form that reads the same everywhere.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Canonical {
    /// `[section]`, `[section "name"]` and `key=value` lines without comments or quotes.
    text: String,
    /// One for every section header and every key, in the order of the text.
    places: Vec<Place>,
}

/// A section header of the file, with the entries that follow it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Section {
    /// Its name in lower case.
    pub name: String,
    /// The quoted part, as it is.
    pub subsection: Option<String>,
    /// Where the header stands.
    pub line: usize,
    /// Its entries in the order of the file.
    pub entries: Vec<Entry>,
}

/// One key of a section.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Entry {
    /// Its name in lower case.
    pub key: String,
    /// Its value; `None` for a bare key.
    pub value: Option<String>,
    /// Where it stands.
    pub line: usize,
}

impl fmt::Debug for Entry {
    /// Without the value, which may be a secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Entry")
            .field("key", &self.key)
            .field("line", &self.line)
            .finish_non_exhaustive()
    }
}

/// Whether a word may stand in a message: it looks like the name of a setting, not like a piece of a secret.
pub(super) fn may_be_shown(word: &str) -> bool {
    word.len() <= 24 && word.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'-')
}

/// Applies the lexical rules. The faults are in the order of the file.
pub(super) fn normalise(source: &str) -> Result<Canonical, Vec<Diagnostic>> {
    let (sections, faults) = Scanner::new(source).scan();
    if !faults.is_empty() {
        return Err(faults);
    }
    let mut lines = Vec::new();
    let mut places = Vec::new();
    for section in sections {
        lines.push(match &section.subsection {
            Some(name) => format!("[{} \"{name}\"]\n", section.name),
            None => format!("[{}]\n", section.name),
        });
        places.push(Place {
            line: section.line,
            bare: false,
        });
        for entry in section.entries {
            lines.push(format!(
                "{}={}\n",
                entry.key,
                entry.value.as_deref().unwrap_or("true")
            ));
            places.push(Place {
                line: entry.line,
                bare: entry.value.is_none(),
            });
        }
    }
    Ok(Canonical {
        text: lines.concat(),
        places,
    })
}

/// Reads a file: the canonical text through rust-ini, with the lines that it had before.
pub(super) fn read(source: &str) -> Result<Vec<Section>, Vec<Diagnostic>> {
    let canonical = normalise(source)?;
    let plain = ParseOption {
        enabled_quote: false,
        enabled_escape: false,
        ..ParseOption::default()
    };
    let document = Ini::load_from_str_opt(&canonical.text, plain).map_err(|error| {
        // Its text quotes nothing of the file.
        vec![Diagnostic::new(
            1,
            format!("the file can't be read: {}", error.msg),
            "",
        )]
    })?;
    Ok(with_lines(&document, canonical.places))
}

/// rust-ini keeps sections and keys in the order of the text, repetitions included, but not their lines.
fn with_lines(document: &Ini, places: Vec<Place>) -> Vec<Section> {
    let mut sections = Vec::new();
    let mut places = places.into_iter();
    for (header, properties) in document {
        let Some(header) = header else { continue };
        let (name, subsection) = match header.split_once(" \"") {
            Some((name, rest)) => (
                name.to_owned(),
                Some(rest.strip_suffix('"').unwrap_or(rest).to_owned()),
            ),
            None => (header.to_owned(), None),
        };
        let Some(place) = places.next() else { break };
        let entries = properties
            .iter()
            .zip(&mut places)
            .map(|((key, value), place)| Entry {
                key: key.to_owned(),
                value: (!place.bare).then(|| value.to_owned()),
                line: place.line,
            })
            .collect();
        sections.push(Section {
            name,
            subsection,
            line: place.line,
            entries,
        });
    }
    sections
}

#[cfg(test)]
mod tests;
