//! The scanner behind [`super::normalise`]. Pure.
//!
//! Reads one line after the other (a value may continue on the next), and after a fault goes on with the next line, so
//! that all faults are found.

use std::iter::Peekable;
use std::str::Chars;

use super::{Diagnostic, Entry, Section};

/// Why a line can't be read: text and hint.
type Fault = (String, &'static str);

/// A file that is being read.
pub(super) struct Scanner<'s> {
    rest: Peekable<Chars<'s>>,
    line: usize,
    sections: Vec<Section>,
    faults: Vec<Diagnostic>,
}

impl<'s> Scanner<'s> {
    pub(super) fn new(source: &'s str) -> Self {
        Self {
            rest: source.chars().peekable(),
            line: 1,
            sections: Vec::new(),
            faults: Vec::new(),
        }
    }

    /// Sections in the order of the file, and what is wrong.
    pub(super) fn scan(mut self) -> (Vec<Section>, Vec<Diagnostic>) {
        while let Some(&c) = self.rest.peek() {
            let line = self.line;
            let read = match c {
                ' ' | '\t' | '\r' | '\n' => {
                    self.bump();
                    continue;
                }
                ';' | '#' => {
                    self.skip_line();
                    continue;
                }
                '[' => self.section(line),
                c if c.is_alphabetic() => self.entry(line),
                '\u{feff}' => {
                    self.bump();
                    Err((
                        "a byte order mark".into(),
                        "save the file as UTF-8 without a byte order mark",
                    ))
                }
                _ => Err((
                    "neither a section, a key nor a comment".into(),
                    "keys begin with a letter; a value that continues on the next line needs a \\ at the end of this one",
                )),
            };
            if let Err((text, hint)) = read {
                self.faults.push(Diagnostic::new(line, text, hint));
                if c != '\u{feff}' {
                    self.skip_line();
                }
            }
        }
        (self.sections, self.faults)
    }

    fn bump(&mut self) -> Option<char> {
        let c = self.rest.next();
        self.line += usize::from(c == Some('\n'));
        c
    }

    /// Up to and with the end of the line.
    fn skip_line(&mut self) {
        while let Some(c) = self.bump() {
            if c == '\n' {
                break;
            }
        }
    }

    fn skip_blanks(&mut self) {
        while matches!(self.rest.peek(), Some(' ' | '\t' | '\r')) {
            self.bump();
        }
    }

    fn word(&mut self) -> String {
        let mut word = String::new();
        while let Some(&c) = self.rest.peek() {
            if !(c.is_alphabetic() || c.is_numeric() || c == '-') {
                break;
            }
            word.extend(c.to_lowercase());
            self.bump();
        }
        word
    }

    /// Nothing but a comment may follow on the line.
    fn end_of_line(&mut self) -> Result<(), Fault> {
        self.skip_blanks();
        match self.rest.peek() {
            None | Some('\n' | ';' | '#') => {
                self.skip_line();
                Ok(())
            }
            Some(_) => Err((
                "something follows the \"]\"".into(),
                "a section header stands on a line of its own",
            )),
        }
    }

    fn section(&mut self, line: usize) -> Result<(), Fault> {
        const HINT: &str = "write [Global] or [Cluster \"name\"]";
        self.bump();
        self.skip_blanks();
        let name = self.word();
        if !name.starts_with(char::is_alphabetic) {
            return Err(("a section header without a name".into(), HINT));
        }
        self.skip_blanks();
        let subsection = match self.rest.peek() {
            Some('"') => Some(self.quoted()?),
            _ => None,
        };
        self.skip_blanks();
        if self.rest.peek() != Some(&']') {
            return Err(("a section header that does not end with \"]\"".into(), HINT));
        }
        self.bump();
        self.end_of_line()?;
        self.sections.push(Section {
            name,
            subsection,
            line,
            entries: Vec::new(),
        });
        Ok(())
    }

    /// The quoted part of a section header: only `\"` and `\\` are escapes.
    fn quoted(&mut self) -> Result<String, Fault> {
        self.bump();
        let mut text = String::new();
        loop {
            match self.rest.peek() {
                None | Some('\n') => {
                    return Err((
                        "a name without its closing quote".into(),
                        "close it on the same line",
                    ));
                }
                Some('"') => {
                    self.bump();
                    return Ok(text);
                }
                Some('\\') => {
                    self.bump();
                    match self.rest.peek() {
                        Some(&c @ ('"' | '\\')) => text.push(c),
                        _ => {
                            return Err((
                                String::from("an unknown escape in a name"),
                                "only \\\" and \\\\ are escapes here",
                            ));
                        }
                    }
                    self.bump();
                }
                Some(&c) if c.is_control() => {
                    return Err(("a control character in a name".into(), "remove it"));
                }
                Some(&c) => {
                    text.push(c);
                    self.bump();
                }
            }
        }
    }

    fn entry(&mut self, line: usize) -> Result<(), Fault> {
        let key = self.word();
        self.skip_blanks();
        let value = match self.rest.peek() {
            Some('=') => {
                self.bump();
                Some(self.value(&key)?)
            }
            None | Some('\n' | ';' | '#') => None,
            Some(':') => {
                return Err((
                    format!("no \"=\" behind a key{}", shown(&key)),
                    "write key = value, not key: value",
                ));
            }
            Some(_) => return Err(("a key is not followed by \"=\"".into(), "write key = value")),
        };
        self.skip_line();
        let Some(section) = self.sections.last_mut() else {
            self.faults.push(Diagnostic::new(
                line,
                "a key before any section",
                "put [Global] in front of it",
            ));
            return Ok(());
        };
        section.entries.push(Entry { key, value, line });
        Ok(())
    }

    /// Up to a comment or the end of the line, both of which stay unread.
    fn value(&mut self, key: &str) -> Result<String, Fault> {
        let mut value = Value::default();
        self.skip_blanks();
        loop {
            match self.rest.peek().copied() {
                None | Some('\n') if value.quoted => return Err(unclosed(key)),
                None | Some('\n') => break,
                Some(';' | '#') if !value.quoted => break,
                Some('\\') => {
                    self.bump();
                    self.escape(&mut value, key)?;
                    continue;
                }
                Some('"') => value.quoted = !value.quoted,
                Some('\r') => {}
                Some(c) => value.push(c),
            }
            self.bump();
        }
        value.finish(key)
    }

    /// What follows a backslash: a character inside quotes, the end of the line outside.
    fn escape(&mut self, value: &mut Value, key: &str) -> Result<(), Fault> {
        let next = self.rest.peek().copied();
        match next {
            Some('"' | '\\') if value.quoted => value.push(next.unwrap_or_default()),
            Some('t') if value.quoted => value.push('\t'),
            Some('n') if value.quoted => value.push('\n'),
            Some('\r' | '\n') if !value.quoted => {
                if next == Some('\r') {
                    self.bump();
                }
                if self.rest.peek() != Some(&'\n') {
                    return Err((
                        format!("a bare \\{}", in_value_of(key)),
                        "put the value in double quotes and write \\\\",
                    ));
                }
            }
            _ if value.quoted => {
                return Err((
                    format!("an unknown escape{}", in_value_of(key)),
                    "only \\\\ \\\" \\n and \\t are escapes",
                ));
            }
            _ => {
                return Err((
                    format!("a bare \\{}", in_value_of(key)),
                    "put the value in double quotes and write \\\\",
                ));
            }
        }
        self.bump();
        Ok(())
    }
}

/// A value that is being read.
#[derive(Default)]
struct Value {
    text: String,
    /// Length up to the last character that is not a blank outside quotes.
    end: usize,
    quoted: bool,
}

impl Value {
    fn push(&mut self, c: char) {
        self.text.push(c);
        if self.quoted || !matches!(c, ' ' | '\t') {
            self.end = self.text.len();
        }
    }

    /// Blanks at the end go; what the canonical form can't carry is refused.
    fn finish(mut self, key: &str) -> Result<String, Fault> {
        self.text.truncate(self.end);
        let edge = |c: Option<char>| c.is_some_and(char::is_whitespace);
        if self.text.contains(|c: char| c.is_control() && c != '\t') {
            return Err((
                format!("a line break or control character{}", in_value_of(key)),
                "remove it",
            ));
        }
        if edge(self.text.chars().next()) || edge(self.text.chars().next_back()) {
            return Err((
                format!("a blank at the edge{}", in_value_of(key)),
                "remove it from inside the quotes",
            ));
        }
        if self.text.ends_with('\\') {
            return Err((
                format!("a \\ at the end{}", in_value_of(key)),
                "no setting ends with one; remove it",
            ));
        }
        Ok(self.text)
    }
}

fn unclosed(key: &str) -> Fault {
    (
        format!("no closing quote{}", in_value_of(key)),
        "close the quote on the same line",
    )
}

fn in_value_of(key: &str) -> String {
    let shown = shown(key);
    if shown.is_empty() {
        " in a value".to_owned()
    } else {
        format!(" in the value of{shown}")
    }
}

/// The key, unless it could be a piece of a secret that was broken over lines.
fn shown(key: &str) -> String {
    if super::may_be_shown(key) {
        format!(" {key}")
    } else {
        String::new()
    }
}
