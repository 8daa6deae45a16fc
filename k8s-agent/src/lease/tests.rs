use proptest::prelude::*;
use rstest::rstest;

use super::*;

const TIMING: Timing = Timing {
    lease: Duration::from_secs(15),
    renew_deadline: Duration::from_secs(10),
    retry: Duration::from_secs(2),
};

fn wall(second: i64) -> Timestamp {
    Timestamp::from_second(1_700_000_000 + second).unwrap()
}

fn candidate(identity: &str) -> Candidate {
    Candidate::new(
        "kube-system",
        "cloud-controller-manager",
        identity.to_owned(),
        TIMING,
    )
}

fn held_by(holder: &str, renewed: i64, transitions: i32) -> Lease {
    let mut lease = candidate(holder).first_record(wall(renewed));
    lease.metadata.uid = Some("lease-uid".into());
    lease.metadata.resource_version = Some("7".into());
    lease.spec.as_mut().unwrap().lease_transitions = Some(transitions);
    lease
}

fn after(start: Instant, seconds: u64) -> Instant {
    start + Duration::from_secs(seconds)
}

#[test]
fn without_a_lease_it_is_created_with_zero_transitions() {
    let Act::Create(lease) = candidate("me").decide(None, runtime::clock::now(), wall(0)) else {
        panic!("no create")
    };
    let spec = lease.spec.unwrap();
    assert_eq!(spec.holder_identity.as_deref(), Some("me"));
    assert_eq!(
        (spec.lease_transitions, spec.lease_duration_seconds),
        (Some(0), Some(15))
    );
    assert_eq!(spec.acquire_time, spec.renew_time);
}

#[test]
fn a_holder_is_believed_until_its_record_did_not_change_for_its_duration_by_our_clock() {
    let (mut me, start) = (candidate("me"), runtime::clock::now());
    // The record's own times are an hour old; they don't count.
    let lease = held_by("other", -3600, 4);
    assert!(matches!(
        me.decide(Some(&lease), start, wall(0)),
        Act::Wait { .. }
    ));
    assert!(matches!(
        me.decide(Some(&lease), after(start, 15), wall(15)),
        Act::Wait { .. }
    ));
    let Act::Take(taken) = me.decide(Some(&lease), after(start, 16), wall(16)) else {
        panic!("not taken")
    };
    let spec = taken.spec.clone().unwrap();
    assert_eq!(spec.holder_identity.as_deref(), Some("me"));
    assert_eq!(spec.lease_transitions, Some(5));
    assert_eq!(
        taken.metadata.resource_version.as_deref(),
        Some("7"),
        "the write must be locked"
    );
    assert_eq!(
        Fence::of(&taken),
        Fence {
            lease_uid: "lease-uid".into(),
            transitions: 5
        }
    );
}

#[test]
fn every_change_of_the_record_starts_the_wait_again() {
    let (mut me, start) = (candidate("me"), runtime::clock::now());
    for tick in 0..20_u32 {
        let lease = held_by("other", i64::from(tick), 0);
        let act = me.decide(Some(&lease), after(start, u64::from(tick) * 14), wall(0));
        assert!(matches!(act, Act::Wait { .. }), "tick {tick}: {act:?}");
    }
}

#[test]
fn the_duration_in_the_record_counts_not_our_own() {
    let (mut me, start) = (candidate("me"), runtime::clock::now());
    let mut lease = held_by("other", 0, 0);
    lease.spec.as_mut().unwrap().lease_duration_seconds = Some(60);
    me.decide(Some(&lease), start, wall(0));
    assert!(matches!(
        me.decide(Some(&lease), after(start, 59), wall(59)),
        Act::Wait { .. }
    ));
    assert!(matches!(
        me.decide(Some(&lease), after(start, 61), wall(61)),
        Act::Take(_)
    ));
}

#[test]
fn a_released_lease_is_taken_at_once() {
    let lease = Candidate::release(&held_by("other", 0, 3), wall(1));
    let spec = lease.spec.clone().unwrap();
    assert_eq!(
        (spec.holder_identity.as_deref(), spec.lease_duration_seconds),
        (Some(""), Some(1))
    );
    assert_eq!(spec.lease_transitions, Some(3), "giving it up is no transition");
    let act = candidate("me").decide(Some(&lease), runtime::clock::now(), wall(2));
    assert!(matches!(act, Act::Take(lease) if Fence::of(&lease).transitions == 4));
}

#[test]
fn our_own_record_is_renewed_without_a_transition_even_if_its_write_seemed_lost() {
    let lease = held_by("me", 0, 2);
    let Act::Renew(renewed) = candidate("me").decide(Some(&lease), runtime::clock::now(), wall(9)) else {
        panic!("not renewed")
    };
    let (before, after) = (lease.spec.unwrap(), renewed.spec.unwrap());
    assert_eq!(after.acquire_time, before.acquire_time);
    assert_eq!(after.lease_transitions, Some(2));
    assert_eq!(after.renew_time, Some(MicroTime(wall(9))));
}

#[rstest]
#[case::another_holder("other")]
#[case::nobody("")]
fn a_leader_that_is_not_the_holder_steps_down(#[case] holder: &str) {
    let (mut me, now) = (candidate("me"), runtime::clock::now());
    me.written(&held_by("me", 0, 0), now);
    let mut lease = held_by("me", 0, 1);
    lease.spec.as_mut().unwrap().holder_identity = Some(holder.to_owned());
    assert!(matches!(
        me.decide(Some(&lease), now, wall(1)),
        Act::StepDown { .. }
    ));
}

#[test]
fn fields_of_newer_versions_and_labels_of_people_survive_our_writes() {
    let mut lease = held_by("me", 0, 0);
    lease.metadata.labels = Some([("team".to_owned(), "a".to_owned())].into());
    lease.spec.as_mut().unwrap().preferred_holder = Some("x".into());
    let renewed = candidate("me").renewal(&lease, wall(1));
    assert_eq!(renewed.metadata.labels, lease.metadata.labels);
    assert_eq!(renewed.spec.unwrap().preferred_holder.as_deref(), Some("x"));
}

#[rstest]
#[case::usual(15, 10, 2, Ok(()))]
#[case::zero(0, 10, 2, Err(TimingError::Zero("lease-duration")))]
#[case::no_retry(15, 10, 0, Err(TimingError::Zero("retry-period")))]
#[case::equal(10, 10, 2, Err(TimingError::LeaseTooShort))]
#[case::no_second_try(15, 10, 9, Err(TimingError::DeadlineTooShort))]
fn times_that_can_not_work_are_refused(
    #[case] lease: u64,
    #[case] renew: u64,
    #[case] retry: u64,
    #[case] expected: Result<(), TimingError>,
) {
    let timing = Timing {
        lease: Duration::from_secs(lease),
        renew_deadline: Duration::from_secs(renew),
        retry: Duration::from_secs(retry),
    };
    assert_eq!(timing.check().map(|_| ()), expected);
}

proptest! {
    /// Two candidates against one lease with optimistic locking; a leader that can't renew gives up at its deadline.
    #[test]
    fn there_are_never_two_that_may_write(steps in proptest::collection::vec((0..2_usize, 0..4_u64, any::<bool>()), 1..200)) {
        let start = runtime::clock::now();
        let mut now = start;
        let mut stored: Option<Lease> = None;
        let mut version = 0_u64;
        let mut candidates = [candidate("a"), candidate("b")];
        // Until when each may write by its own clock.
        let mut may_write: [Option<Instant>; 2] = [None, None];
        for (who, pass, reachable) in steps {
            now += Duration::from_secs(pass);
            if !reachable { continue; }
            let stamp = wall(i64::try_from(version).unwrap());
            let act = candidates[who].decide(stored.as_ref(), now, stamp);
            match act {
                Act::Create(lease) | Act::Take(lease) | Act::Renew(lease) => {
                    version += 1;
                    let mut lease = *lease;
                    lease.metadata.resource_version = Some(version.to_string());
                    candidates[who].written(&lease, now);
                    may_write[who] = Some(now + TIMING.lease);
                    stored = Some(lease);
                }
                Act::Wait { .. } => {}
                Act::StepDown { .. } => {
                    may_write[who] = None;
                    candidates[who] = candidate(if who == 0 { "a" } else { "b" });
                }
            }
            let writers = may_write.iter().flatten().filter(|until| **until > now).count();
            prop_assert!(writers <= 1, "two may write after {:?}", now - start);
        }
    }
}
