use proptest::prelude::*;

use super::*;

type Change<'a> = dyn FnMut(&mut Vec<u32>, usize) + 'a;

/// A server that cuts lists at a size, and changes its list before each answer.
struct Server<'a> {
    rows: Vec<u32>,
    limit: usize,
    change: Box<Change<'a>>,
    calls: usize,
}

impl Server<'_> {
    fn steady(rows: u32, limit: usize) -> Self {
        Self {
            rows: (0..rows).collect(),
            limit,
            change: Box::new(|_, _| {}),
            calls: 0,
        }
    }

    /// Count and rows, or a refusal of the page size.
    fn answer(&mut self, next: Next) -> Option<(Option<usize>, Vec<u32>)> {
        (self.change)(&mut self.rows, self.calls);
        self.calls += 1;
        let (page, size) = match next {
            Next::Unpaged => (1, self.limit),
            Next::Page { size, .. } if size > self.limit => return None,
            Next::Page { page, size } => (page, size),
            Next::Done { .. } => unreachable!("nothing is asked any more"),
        };
        let rows: Vec<u32> = self
            .rows
            .iter()
            .copied()
            .skip((page - 1) * size)
            .take(size)
            .collect();
        Some(((!self.rows.is_empty()).then_some(self.rows.len()), rows))
    }
}

fn read(server: &mut Server<'_>) -> (bool, Vec<u32>) {
    let mut pager = Pager::new();
    let mut items = Vec::new();
    loop {
        let next = pager.next();
        match next {
            Next::Done { complete } => return (complete, items),
            Next::Unpaged | Next::Page { page: 1, .. } => items.clear(),
            Next::Page { .. } => {}
        }
        let Some((count, rows)) = server.answer(next) else {
            pager.refused();
            continue;
        };
        let ids: Vec<String> = rows.iter().map(ToString::to_string).collect();
        let ids: Vec<Option<&str>> = ids.iter().map(|id| Some(id.as_str())).collect();
        let new = pager.take(count, &ids);
        items.extend(
            rows.into_iter()
                .zip(new)
                .filter(|(_, new)| *new)
                .map(|(row, _)| row),
        );
        assert!(server.calls < 10_000, "it reads for ever");
    }
}

#[test]
fn an_empty_list_is_complete_without_a_count() {
    assert_eq!(read(&mut Server::steady(0, 500)), (true, vec![]));
}

#[test]
fn a_list_that_fits_costs_one_call() {
    let mut server = Server::steady(499, 500);
    assert!(read(&mut server).0);
    assert_eq!(server.calls, 1);
}

#[test]
fn a_list_that_is_cut_is_read_in_pages_of_the_size_that_the_server_shows() {
    let mut server = Server::steady(11, 4);
    assert_eq!(read(&mut server), (true, (0..11).collect()));
    assert_eq!(server.calls, 3);
}

#[test]
fn a_limit_that_shrinks_while_the_list_is_read_is_followed() {
    let mut server = Server::steady(11, 4);
    let mut limits = [4, 1, 1].into_iter();
    let mut pager = Pager::new();
    let mut items = Vec::new();
    while !matches!(pager.next(), Next::Done { .. }) {
        server.limit = limits.next().unwrap_or(2);
        let Some((count, rows)) = server.answer(pager.next()) else {
            pager.refused();
            items.clear();
            continue;
        };
        let ids: Vec<String> = rows.iter().map(ToString::to_string).collect();
        let ids: Vec<Option<&str>> = ids.iter().map(|id| Some(id.as_str())).collect();
        pager.take(count, &ids);
        items.extend(rows);
    }
    assert_eq!(pager.next(), Next::Done { complete: true });
    assert_eq!(items, (0..11).collect::<Vec<_>>());
}

#[test]
fn a_row_that_shifts_between_pages_makes_the_list_be_read_anew() {
    let change = |rows: &mut Vec<u32>, call: usize| {
        if call == 1 {
            rows.remove(0);
        }
    };
    let mut server = Server {
        change: Box::new(change),
        ..Server::steady(11, 4)
    };
    assert_eq!(read(&mut server), (true, (1..11).collect()));
}

#[test]
fn a_list_that_never_rests_is_incomplete() {
    let change = |rows: &mut Vec<u32>, call: usize| rows.insert(0, 1000 + u32::try_from(call).unwrap());
    let mut server = Server {
        change: Box::new(change),
        ..Server::steady(11, 4)
    };
    assert!(!read(&mut server).0);
}

#[test]
fn rows_without_a_count_prove_nothing() {
    let mut pager = Pager::new();
    assert_eq!(pager.take(None, &[Some("a")]), [true]);
    assert_eq!(pager.next(), Next::Done { complete: false });
}

#[test]
fn a_count_without_rows_proves_nothing() {
    let mut pager = Pager::new();
    while !matches!(pager.next(), Next::Done { .. }) {
        pager.take(Some(5), &[]);
    }
    assert_eq!(pager.next(), Next::Done { complete: false });
}

#[test]
fn an_entry_that_can_not_be_read_makes_a_list_incomplete_but_hides_no_other() {
    let mut pager = Pager::new();
    pager.take(Some(4), &[Some("a"), None]);
    assert_eq!(pager.next(), Next::Page { page: 2, size: 2 });
    pager.take(Some(4), &[Some("b"), Some("c")]);
    assert_eq!(pager.next(), Next::Done { complete: false });
}

#[test]
fn the_same_row_twice_is_one() {
    let mut pager = Pager::new();
    assert_eq!(pager.take(Some(1), &[Some("a"), Some("a")]), [true, false]);
    assert_eq!(pager.next(), Next::Done { complete: true });
}

proptest! {
    #[test]
    fn a_list_at_rest_is_read_completely_whatever_the_page_size(rows in 0u32..60, limit in 1usize..20) {
        prop_assert_eq!(read(&mut Server::steady(rows, limit)), (true, (0..rows).collect()));
    }

    #[test]
    fn a_complete_list_holds_every_row_that_was_there_all_the_time(
        rows in 1u32..40,
        limit in 1usize..8,
        changes in prop::collection::vec((any::<bool>(), 0usize..40), 0..30),
    ) {
        let always = std::cell::RefCell::new((0..rows).collect::<HashSet<u32>>());
        let mut fresh = 1000;
        let change = |list: &mut Vec<u32>, call: usize| {
            if let Some((add, at)) = changes.get(call) {
                if *add {
                    fresh += 1;
                    list.insert(at % (list.len() + 1), fresh);
                } else if !list.is_empty() {
                    let gone = list.remove(at % list.len());
                    always.borrow_mut().remove(&gone);
                }
            }
        };
        let mut server = Server { change: Box::new(change), ..Server::steady(rows, limit) };
        let (complete, items) = read(&mut server);
        drop(server);
        // A list that lost one row and gained another between two pages may still miss a third: as many ids as counted
        // is strong evidence, not proof. The law holds when changes only go one way.
        let one_way = changes.iter().all(|(add, _)| *add) || changes.iter().all(|(add, _)| !*add);
        if complete && one_way {
            for row in always.borrow().iter() {
                prop_assert!(items.contains(row), "{} is missing in {:?}", row, items);
            }
        }
        let unique: HashSet<u32> = items.iter().copied().collect();
        prop_assert_eq!(unique.len(), items.len());
    }
}
