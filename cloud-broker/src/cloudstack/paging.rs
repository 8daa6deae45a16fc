//! Lists that are cut into pages, and how far they can be trusted. Pure.
//!
//! Decides which page to ask for next and whether what was read is the whole. Facts: a list without paging parameters is
//! cut at a size that the operator chose and no call reveals, but `count` is the whole number; a page size above that one
//! is refused (431); the parameters come together or not at all; pages are offsets into a living table.

use std::collections::HashSet;

/// A list that is the whole: as many different ids as the server counted, before and after.
///
/// Only such a list is evidence that something is absent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Complete<T>(Vec<T>);

impl<T> Complete<T> {
    /// A list that the caller vouches for, as in tests and when lists are put together.
    pub fn vouched(items: Vec<T>) -> Self {
        Self(items)
    }

    /// What is in it.
    pub fn items(&self) -> &[T] {
        &self.0
    }

    /// What is in it.
    pub fn into_items(self) -> Vec<T> {
        self.0
    }
}

/// What a list call read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Listing<T> {
    /// The whole.
    Complete(Complete<T>),
    /// Everything in it was there, but there may be more: the list changed while it was read, or an entry could not be
    /// understood.
    Incomplete(Vec<T>),
}

impl<T> Listing<T> {
    /// What was read.
    pub fn items(&self) -> &[T] {
        match self {
            Self::Complete(complete) => &complete.0,
            Self::Incomplete(items) => items,
        }
    }

    /// What was read.
    pub fn into_items(self) -> Vec<T> {
        match self {
            Self::Complete(complete) => complete.0,
            Self::Incomplete(items) => items,
        }
    }

    /// The list as evidence of absence, if it is.
    pub fn complete(&self) -> Option<&Complete<T>> {
        match self {
            Self::Complete(complete) => Some(complete),
            Self::Incomplete(_) => None,
        }
    }

    /// Whether it is the whole.
    pub fn is_complete(&self) -> bool {
        self.complete().is_some()
    }
}

/// What to ask for next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Next {
    /// The list without paging parameters.
    Unpaged,
    /// A page, counted from 1.
    Page { page: usize, size: usize },
    /// Nothing; the list is read.
    Done { complete: bool },
}

/// How often a list that changed under the reader is read anew.
const READINGS: u32 = 2;

/// Reads one list. Rows are known by their ids only; the caller keeps the rows that [`Pager::take`] calls new.
#[derive(Debug)]
pub(super) struct Pager {
    seen: HashSet<String>,
    first_count: Option<usize>,
    last_count: Option<usize>,
    malformed: usize,
    size: Option<usize>,
    next: Next,
    reading: u32,
}

impl Pager {
    pub(super) fn new() -> Self {
        Self {
            seen: HashSet::new(),
            first_count: None,
            last_count: None,
            malformed: 0,
            size: None,
            next: Next::Unpaged,
            reading: 1,
        }
    }

    pub(super) fn next(&self) -> Next {
        self.next
    }

    /// Takes an answer: the server's count, and the id of each row (`None` if it could not be understood). Returns for
    /// each row whether it is new.
    pub(super) fn take(&mut self, count: Option<usize>, ids: &[Option<&str>]) -> Vec<bool> {
        let new: Vec<bool> = ids
            .iter()
            .map(|id| id.is_some_and(|id| self.seen.insert(id.to_owned())))
            .collect();
        self.malformed += ids.iter().filter(|id| id.is_none()).count();
        // An empty list has no count.
        let count = count.or_else(|| ids.is_empty().then_some(0));
        let first = self.next == Next::Unpaged || matches!(self.next, Next::Page { page: 1, .. });
        if first {
            self.first_count = count;
        }
        self.last_count = count;
        self.next = self.after(ids.len());
        new
    }

    /// The server refused a page: its limit has shrunk. Reads anew with half the size.
    pub(super) fn refused(&mut self) {
        let half = self.size.map_or(0, |size| size / 2);
        self.next = if half == 0 {
            Next::Done { complete: false }
        } else {
            self.size = Some(half);
            self.restart(Next::Page { page: 1, size: half })
        };
    }

    fn after(&mut self, rows: usize) -> Next {
        let Some(count) = self.last_count else {
            return Next::Done { complete: false };
        };
        if self.seen.len() + self.malformed >= count {
            return self.verdict();
        }
        let (page, size) = match self.next {
            Next::Unpaged => (1, rows),
            Next::Page { page, size } => (page, size),
            done @ Next::Done { .. } => return done,
        };
        self.size = Some(size);
        // Rows that move towards the front while pages are read hide one another; then reading on does not help.
        if rows == 0 || page > count / size.max(1) + 1 {
            return self.verdict();
        }
        Next::Page { page: page + 1, size }
    }

    fn verdict(&mut self) -> Next {
        let complete = self.malformed == 0
            && self.first_count == self.last_count
            && self.last_count == Some(self.seen.len());
        if complete || self.malformed > 0 || self.reading == READINGS {
            return Next::Done { complete };
        }
        self.reading += 1;
        self.restart(Next::Unpaged)
    }

    /// Forgets what was seen; the caller does so, too, whenever it is sent to the first page.
    fn restart(&mut self, next: Next) -> Next {
        self.seen.clear();
        self.malformed = 0;
        self.first_count = None;
        self.last_count = None;
        next
    }
}

#[cfg(test)]
mod tests;
