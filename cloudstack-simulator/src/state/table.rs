//! Rows with a UUID for callers and an internal number for the order, as in the server's database.

use std::collections::{BTreeMap, HashMap, HashSet};

use uuid::Uuid;

/// Something that has a UUID.
pub(crate) trait Row {
    /// The id that callers use.
    fn id(&self) -> Uuid;
}

/// One table. Rows come out by internal number, that is in the order of their creation.
#[derive(Debug, Clone)]
pub(crate) struct Table<T> {
    rows: BTreeMap<u64, T>,
    index: HashMap<Uuid, u64>,
    retired: HashSet<Uuid>,
    next: u64,
}

impl<T> Default for Table<T> {
    fn default() -> Self {
        Self {
            rows: BTreeMap::new(),
            index: HashMap::new(),
            retired: HashSet::new(),
            next: 1,
        }
    }
}

impl<T: Row> Table<T> {
    /// Adds a row under the next number.
    pub(crate) fn insert(&mut self, row: T) -> u64 {
        let number = self.next;
        self.next += 1;
        self.index.insert(row.id(), number);
        self.rows.insert(number, row);
        number
    }

    /// The number that the next row gets.
    pub(crate) fn next_number(&self) -> u64 {
        self.next
    }

    /// The row with this id.
    pub(crate) fn get(&self, id: Uuid) -> Option<&T> {
        self.rows.get(self.index.get(&id)?)
    }

    /// The row with this id, to change it.
    pub(crate) fn get_mut(&mut self, id: Uuid) -> Option<&mut T> {
        self.rows.get_mut(self.index.get(&id)?)
    }

    /// The internal number, which shows in some error texts.
    pub(crate) fn number(&self, id: Uuid) -> u64 {
        self.index.get(&id).copied().unwrap_or(0)
    }

    /// The row with this internal number.
    pub(crate) fn by_number(&self, number: u64) -> Option<&T> {
        self.rows.get(&number)
    }

    /// Deletes the row for good: its id means nothing afterwards.
    pub(crate) fn remove(&mut self, id: Uuid) -> Option<T> {
        self.rows.remove(&self.index.remove(&id)?)
    }

    /// Deletes the row, yet its id stays known: lists with it are empty instead of an error.
    pub(crate) fn retire(&mut self, id: Uuid) -> Option<T> {
        let row = self.remove(id)?;
        self.retired.insert(id);
        Some(row)
    }

    /// Whether the id names or named a row.
    pub(crate) fn knows(&self, id: Uuid) -> bool {
        self.index.contains_key(&id) || self.retired.contains(&id)
    }

    /// All rows, oldest first.
    pub(crate) fn iter(&self) -> impl DoubleEndedIterator<Item = &T> {
        self.rows.values()
    }

    /// All rows, oldest first, to change them.
    pub(crate) fn iter_mut(&mut self) -> impl DoubleEndedIterator<Item = &mut T> {
        self.rows.values_mut()
    }
}
