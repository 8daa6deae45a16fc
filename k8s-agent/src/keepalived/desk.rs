//! Who waits for what: orders come in from many workers, and one pass over everything answers all that came before it.
//!
//! Decides which Services a pass is asked about and which answer is fresh enough for whom. No clock, no client. An
//! order that is dropped leaves nothing behind.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use parking_lot::Mutex;
use proto::Fault;

use super::allocation::Outcome;

/// What an order wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Want {
    /// An address.
    Ensure,
    /// Its end.
    Remove,
}

/// What a pass came to for one Service: nothing for one that was removed.
pub type Verdict = Result<Option<Outcome>, Fault>;

#[derive(Debug, Default)]
struct State {
    tickets: u64,
    open: BTreeMap<String, (u64, Want)>,
    answers: BTreeMap<String, (u64, Verdict)>,
}

/// Orders and answers.
#[derive(Clone, Debug, Default)]
pub struct Desk(Arc<Mutex<State>>);

/// What a pass is asked about.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Batch {
    /// The last ticket that it covers.
    pub covers: u64,
    /// UIDs that want an address.
    pub asked: BTreeSet<String>,
    /// UIDs that give theirs up.
    pub leaving: BTreeSet<String>,
}

/// An order that waits. Dropped, it is forgotten.
#[derive(Debug)]
pub struct Order {
    desk: Desk,
    uid: String,
    ticket: u64,
}

impl Desk {
    /// Takes an order.
    pub fn order(&self, uid: &str, want: Want) -> Order {
        let mut state = self.0.lock();
        state.tickets += 1;
        let ticket = state.tickets;
        state.open.insert(uid.to_owned(), (ticket, want));
        Order {
            desk: self.clone(),
            uid: uid.to_owned(),
            ticket,
        }
    }

    /// All orders that are open now.
    pub fn batch(&self) -> Batch {
        let state = self.0.lock();
        let of = |wanted: Want| {
            state
                .open
                .iter()
                .filter(|(_, (_, want))| *want == wanted)
                .map(|(uid, _)| uid.clone())
                .collect()
        };
        Batch {
            covers: state.tickets,
            asked: of(Want::Ensure),
            leaving: of(Want::Remove),
        }
    }

    /// Answers everybody whom the pass covers.
    pub fn answer(&self, batch: &Batch, verdict: impl Fn(&str) -> Verdict) {
        let mut state = self.0.lock();
        for uid in batch.asked.iter().chain(&batch.leaving) {
            state.answers.insert(uid.clone(), (batch.covers, verdict(uid)));
        }
    }
}

impl Order {
    /// The answer, if a pass that began after the order has one.
    pub fn answer(&self) -> Option<Verdict> {
        let state = self.desk.0.lock();
        let (covered, verdict) = state.answers.get(&self.uid)?;
        (*covered >= self.ticket).then(|| verdict.clone())
    }
}

impl Drop for Order {
    fn drop(&mut self) {
        let mut state = self.desk.0.lock();
        if state
            .open
            .get(&self.uid)
            .is_some_and(|(ticket, _)| *ticket == self.ticket)
        {
            state.open.remove(&self.uid);
            state.answers.remove(&self.uid);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_counts_only_if_its_pass_began_after_the_order() {
        let desk = Desk::default();
        let first = desk.order("a", Want::Ensure);
        let batch = desk.batch();
        let second = desk.order("b", Want::Ensure);
        desk.answer(&batch, |_| Ok(None));
        assert!(first.answer().is_some());
        assert!(second.answer().is_none(), "it came while the pass was running");
        desk.answer(&desk.batch(), |_| Ok(None));
        assert!(second.answer().is_some());
    }

    #[test]
    fn one_pass_answers_all_who_wait() {
        let desk = Desk::default();
        let orders: Vec<Order> = (0..300)
            .map(|n| desk.order(&n.to_string(), Want::Ensure))
            .collect();
        let batch = desk.batch();
        assert_eq!(batch.asked.len(), 300);
        desk.answer(&batch, |_| Ok(None));
        assert!(orders.iter().all(|order| order.answer().is_some()));
    }

    #[test]
    fn a_dropped_order_is_forgotten_and_a_newer_one_of_the_same_service_is_not() {
        let desk = Desk::default();
        let old = desk.order("a", Want::Ensure);
        let new = desk.order("a", Want::Remove);
        drop(old);
        assert_eq!(desk.batch().leaving, ["a".to_owned()].into());
        drop(new);
        assert!(desk.batch().leaving.is_empty());
    }
}
