#![expect(clippy::disallowed_methods, reason = "any instant will do to start from")]

use proptest::prelude::*;

use super::*;

fn duty(command: Command) -> Duty {
    Duty {
        command,
        tenant: "t".into(),
        share: 1,
        work: Some("w".into()),
        object: Some("rule".to_owned()),
    }
}

fn id(text: &str) -> JobId {
    JobId::parse(text).unwrap()
}

const ASSIGN: Command = Command::AssignToLoadBalancerRule;

/// Runs one job that takes so long; returns the polls it cost and when its end was seen.
fn run(table: &mut JobTable, name: &str, takes: Duration) -> (u32, Duration) {
    let start = Instant::now();
    let job = id(name);
    table.sending(job.clone(), duty(ASSIGN), start);
    table.running(&job, &job, None, start);
    let mut polls = 0;
    loop {
        let now = table.next_due().unwrap();
        assert_eq!(table.due(now), [job.clone()]);
        polls += 1;
        if now >= start + takes {
            table.ended(&job, now).unwrap();
            return (polls, now - start);
        }
        table.pending(&job, now);
    }
}

#[test]
fn a_job_is_asked_for_when_such_jobs_are_usually_over() {
    let mut table = JobTable::new(Pace::REAL);
    let takes = Duration::from_secs(2);
    let first = run(&mut table, "first", takes);
    assert!(first.0 > 3, "nothing is known yet: {first:?}");
    let later: Vec<(u32, Duration)> = (0..20)
        .map(|n| run(&mut table, &format!("j{n}"), takes))
        .collect();
    let polls: u32 = later.iter().map(|(polls, _)| polls).sum();
    assert!(polls <= 24, "{later:?}");
    let slowest = later.iter().map(|(_, took)| *took).max().unwrap();
    assert!(slowest < takes * 2, "{later:?}");
}

#[test]
fn fast_jobs_are_learned_to_be_fast() {
    let mut table = JobTable::new(Pace::REAL);
    let takes = Duration::from_millis(5);
    for number in 0..120 {
        assert_eq!(run(&mut table, &format!("j{number}"), takes).0, 1);
    }
    assert_eq!(run(&mut table, "last", takes), (1, FLOOR));
}

#[test]
fn a_slow_job_is_asked_for_ever_more_seldom() {
    let mut table = JobTable::new(Pace::REAL);
    let (polls, _) = run(&mut table, "slow", Duration::from_secs(60));
    assert!(polls < 25, "{polls} polls in a minute");
}

#[test]
fn a_job_that_is_being_asked_for_is_not_due() {
    let mut table = JobTable::new(Pace::REAL);
    let start = Instant::now();
    table.sending(id("a"), duty(ASSIGN), start);
    assert_eq!(table.next_due(), None);
    table.running(&id("a"), &id("a"), None, start);
    let later = start + Duration::from_secs(9);
    assert_eq!(table.due(later), [id("a")]);
    assert_eq!(table.due(later), []);
    table.unanswered(&id("a"), later);
    assert!(table.next_due().unwrap() > later);
}

#[test]
fn a_job_is_known_by_its_work_and_its_object_from_before_it_is_sent() {
    let mut table = JobTable::new(Pace::REAL);
    let now = Instant::now();
    table.sending(id("ours"), duty(ASSIGN), now);
    assert_eq!(table.of_work("t", "w"), [id("ours")]);
    assert_eq!(table.of_work("other", "w"), []);
    assert!(table.works_on("rule") && !table.works_on("other"));
    table.running(&id("ours"), &id("servers"), None, now);
    assert_eq!(table.of_work("t", "w"), [id("servers")]);
    table.ended(&id("servers"), now);
    assert!(table.of_work("t", "w").is_empty() && !table.works_on("rule"));
}

#[test]
fn many_jobs_that_are_still_pending_are_asked_for_together() {
    let mut table = JobTable::new(Pace::REAL);
    let start = Instant::now();
    for number in 0..CROWD {
        let job = id(&number.to_string());
        table.sending(job.clone(), duty(ASSIGN), start);
        table.running(&job, &job, None, start);
    }
    let now = start + Duration::from_secs(1);
    let due = table.due(now);
    assert!(!table.are_a_crowd(&due), "they are probably over");
    for job in &due {
        table.pending(job, now);
    }
    let due = table.due(now + Duration::from_secs(1));
    assert!(due.len() == CROWD && table.are_a_crowd(&due));
    assert!(!table.are_a_crowd(&due[1..]));
}

#[test]
fn a_job_that_nobody_can_tell_anything_about_is_given_up() {
    let mut table = JobTable::new(Pace::REAL);
    let now = Instant::now();
    table.sending(id("a"), duty(ASSIGN), now);
    table.running(&id("a"), &id("a"), None, now);
    assert!(table.unanswered(&id("a"), now), "no answer says nothing");
    assert!(table.senseless(&id("a"), 2, now));
    assert!(!table.senseless(&id("a"), 2, now));
    assert!(!table.pending(&id("a"), now + GIVEN_UP_AFTER));
}

proptest! {
    #[test]
    fn every_job_is_seen_to_end_soon_after_it_ended(millis in 1u64..20_000, rounds in 1usize..10) {
        let mut table = JobTable::new(Pace::REAL);
        let takes = Duration::from_millis(millis);
        for number in 0..rounds {
            let (polls, seen) = run(&mut table, &format!("j{number}"), takes);
            prop_assert!(seen <= takes.mul_f64(1.0 + LATER) + Duration::from_millis(250), "{:?} for {:?}", seen, takes);
            prop_assert!(polls <= 16, "{} polls for {:?}", polls, takes);
        }
    }

    #[test]
    fn the_pace_scales_every_wait(factor in 0.001f64..0.1) {
        let mut table = JobTable::new(Pace::scaled(factor));
        let (_, seen) = run(&mut table, "j", Duration::from_nanos(1));
        prop_assert!(seen <= ASSIGN.first_poll().mul_f64(factor * 1.001));
    }
}
