//! Room for connections of callers that nobody knows yet.
//!
//! A newcomer always gets a seat: when there is none, the oldest connection makes room, first the oldest one from the same
//! place. So connections that say nothing keep nobody out, and one place can't use up the room of all others.

use std::collections::VecDeque;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;

use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

/// A number of seats.
pub(crate) struct Seats {
    most: usize,
    most_of_one_source: usize,
    taken: Mutex<Taken>,
}

#[derive(Default)]
struct Taken {
    next: u64,
    /// The oldest first.
    sitting: VecDeque<Sitting>,
}

struct Sitting {
    number: u64,
    source: IpAddr,
    lost: CancellationToken,
}

/// The seat of one connection; free again when dropped.
pub(crate) struct Seat {
    number: u64,
    lost: CancellationToken,
    seats: Arc<Seats>,
}

impl Seats {
    /// So many, and so many of them for one source.
    pub(crate) fn new(most: usize, most_of_one_source: usize) -> Arc<Self> {
        Arc::new(Self {
            most,
            most_of_one_source,
            taken: Mutex::default(),
        })
    }

    /// Takes a seat; the one who loses it for that is told.
    pub(crate) fn take(self: &Arc<Self>, source: IpAddr) -> Seat {
        let source = place(source);
        let mut taken = self.taken.lock();
        let from_there = taken.sitting.iter().filter(|other| other.source == source);
        let leaves = if from_there.count() >= self.most_of_one_source {
            taken.sitting.iter().position(|other| other.source == source)
        } else {
            (taken.sitting.len() >= self.most).then_some(0)
        };
        if let Some(leaves) = leaves.and_then(|leaves| taken.sitting.remove(leaves)) {
            leaves.lost.cancel();
        }
        let (number, lost) = (taken.next, CancellationToken::new());
        taken.next += 1;
        taken.sitting.push_back(Sitting {
            number,
            source,
            lost: lost.clone(),
        });
        Seat {
            number,
            lost,
            seats: Arc::clone(self),
        }
    }
}

impl Seat {
    /// Waits until a newer connection needs the seat.
    pub(crate) async fn lost(&self) {
        self.lost.cancelled().await;
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let mut taken = self.seats.taken.lock();
        taken.sitting.retain(|other| other.number != self.number);
    }
}

/// Where a connection comes from: an IPv4 address, or an IPv6 network as one site has it.
fn place(source: IpAddr) -> IpAddr {
    match source.to_canonical() {
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() >> 64 << 64).into(),
        IpAddr::V4(address) => address.into(),
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    fn taken(seats: &Arc<Seats>, sources: &[&str]) -> Vec<Seat> {
        let sources = sources.iter().map(|source| source.parse().expect("an address"));
        sources.map(|source| seats.take(source)).collect()
    }

    #[rstest]
    #[case::the_oldest_of_all(&["10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.4"], Some(0))]
    #[case::the_oldest_of_its_source(&["10.0.0.1", "10.0.0.2", "10.0.0.2", "10.0.0.2"], Some(1))]
    #[case::the_oldest_of_its_network(&["10.0.0.1", "2001:db8::1", "2001:db8::2", "2001:db8::3"], Some(1))]
    #[case::an_ipv4_address_as_ipv6(&["10.0.0.1", "10.0.0.2", "::ffff:10.0.0.2", "10.0.0.2"], Some(1))]
    #[case::nobody_while_there_is_room(&["10.0.0.1", "10.0.0.2", "10.0.0.2"], None)]
    fn a_newcomer_gets_the_seat_of(#[case] sources: &[&str], #[case] loser: Option<usize>) {
        let seats = Seats::new(3, 2);
        let taken = taken(&seats, sources);
        let lost = taken.iter().position(|seat| seat.lost.is_cancelled());
        assert_eq!(lost, loser);
        assert!(taken.iter().filter(|seat| seat.lost.is_cancelled()).count() <= 1);
    }

    #[test]
    fn a_seat_that_was_left_is_free() {
        let seats = Seats::new(1, 1);
        for _ in 0..3 {
            let seat = taken(&seats, &["10.0.0.1"]);
            assert!(!seat[0].lost.is_cancelled());
        }
        assert!(seats.taken.lock().sitting.is_empty());
    }
}
