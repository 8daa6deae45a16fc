//! What is wrong with a Service: a field and a text, and never more of them than somebody would read.

use std::fmt;

/// Problems of one Service that are kept; more are counted.
const KEPT: usize = 10;

/// A value, or what is wrong with which field.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Problem {
    /// Field of the Service, as a path: `spec.ports[0].protocol`.
    pub field: String,
    /// What is wrong and what to do; lower case, no trailing stop.
    pub text: String,
}

impl Problem {
    /// A problem of a field.
    pub fn new(field: impl Into<String>, text: impl Into<String>) -> Self {
        Self {
            field: field.into(),
            text: text.into(),
        }
    }

    /// A problem of an annotation.
    pub fn of(annotation: &str, text: impl Into<String>) -> Self {
        Self::new(field(annotation), text)
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}: {}", self.field, self.text)
    }
}

/// The path of an annotation in messages.
pub fn field(annotation: &str) -> String {
    format!("metadata.annotations[{annotation}]")
}

/// All that is wrong with a Service: the first few problems, and how many more there are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Problems {
    first: Vec<Problem>,
    more: usize,
}

impl Problems {
    /// Adds one.
    pub fn push(&mut self, problem: Problem) {
        if self.first.len() < KEPT {
            self.first.push(problem);
        } else {
            self.more = self.more.saturating_add(1);
        }
    }

    /// Adds all of another list.
    pub fn append(&mut self, other: Self) {
        self.extend(other.first);
        self.more = self.more.saturating_add(other.more);
    }

    /// The first few.
    pub fn first(&self) -> &[Problem] {
        &self.first
    }

    /// Whether nothing is wrong.
    pub fn is_empty(&self) -> bool {
        self.first.is_empty()
    }

    /// Whether this holds for every problem; what was only counted is not known well enough.
    pub fn all(&self, test: impl Fn(&Problem) -> bool) -> bool {
        self.more == 0 && self.first.iter().all(test)
    }
}

impl Extend<Problem> for Problems {
    fn extend<I: IntoIterator<Item = Problem>>(&mut self, problems: I) {
        for problem in problems {
            self.push(problem);
        }
    }
}

impl fmt::Display for Problems {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, problem) in self.first.iter().enumerate() {
            let separator = if index == 0 { "" } else { "; " };
            write!(formatter, "{separator}{problem}")?;
        }
        match self.more {
            0 => Ok(()),
            more => write!(formatter, "; and {more} more problems"),
        }
    }
}
