//! The table that comes out.

use std::collections::BTreeMap;
use std::time::Duration;

use e2e::proxy::{Counts, Kind};

use crate::subject::Subject;

/// One measured cell.
#[derive(Debug, Clone)]
pub(crate) struct Cell {
    /// Calls by kind.
    pub(crate) counts: Counts,
    /// How long it took.
    pub(crate) took: Duration,
}

impl std::fmt::Display for Cell {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let [reads, writes, polls] = [Kind::Read, Kind::Write, Kind::Poll].map(|kind| self.counts.kind(kind));
        write!(
            f,
            "{reads} / {writes} / {polls}, {:.1} s",
            self.took.as_secs_f32()
        )
    }
}

/// Rows by what was done, columns by who did it.
#[derive(Debug)]
pub(crate) struct Table {
    title: String,
    rows: Vec<(String, String)>,
    cells: BTreeMap<(usize, &'static str), String>,
}

impl Table {
    /// An empty one.
    pub(crate) fn new(title: &str) -> Self {
        Self {
            title: title.to_owned(),
            rows: Vec::new(),
            cells: BTreeMap::new(),
        }
    }

    /// Enters a cell.
    pub(crate) fn enter(&mut self, row: &str, target: &str, subject: Subject, cell: String) {
        say(&format!("  {row}, {}: {cell}", subject.name()));
        let index = self
            .rows
            .iter()
            .position(|(name, _)| name == row)
            .unwrap_or_else(|| {
                self.rows.push((row.to_owned(), target.to_owned()));
                self.rows.len() - 1
            });
        self.cells.insert((index, subject.name()), cell);
    }

    /// Prints it as it stands.
    pub(crate) fn print(&self) {
        let mut lines = vec![vec!["what".to_owned(), "ours, at most".to_owned()]];
        lines.extend(
            self.rows
                .iter()
                .map(|(row, target)| vec![row.clone(), target.clone()]),
        );
        for (number, line) in lines.iter_mut().enumerate() {
            for subject in Subject::ALL {
                let cell = match number.checked_sub(1) {
                    None => subject.name(),
                    Some(index) => self
                        .cells
                        .get(&(index, subject.name()))
                        .map_or("-", String::as_str),
                };
                line.push(cell.to_owned());
            }
        }
        say(&format!("\n{}\n{}", self.title, markdown(&lines)));
    }
}

/// A table as Markdown writes it, its columns aligned; the first line is the header.
fn markdown(lines: &[Vec<String>]) -> String {
    let columns = lines.first().map_or(0, Vec::len);
    let width = |column: usize| {
        lines
            .iter()
            .filter_map(|line| line.get(column))
            .map(|cell| cell.chars().count())
            .max()
            .unwrap_or(0)
    };
    let widths: Vec<_> = (0..columns).map(width).collect();
    let mut text = String::new();
    for (number, line) in lines.iter().enumerate() {
        let cells = line
            .iter()
            .zip(&widths)
            .map(|(cell, width)| format!("| {cell:width$} ", width = *width));
        text.extend(cells);
        text.push_str("|\n");
        if number == 0 {
            text.extend(widths.iter().map(|width| format!("| {} ", "-".repeat(*width))));
            text.push_str("|\n");
        }
    }
    text
}

/// Prints a line.
#[expect(clippy::print_stdout, reason = "the benchmarks are there to be read")]
pub(crate) fn say(line: &str) {
    println!("{line}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let lines = [["a", "long"], ["longer", "b"]].map(|line| line.map(str::to_owned).to_vec());
        assert_eq!(
            markdown(&lines),
            "| a      | long |\n| ------ | ---- |\n| longer | b    |\n"
        );
    }
}
