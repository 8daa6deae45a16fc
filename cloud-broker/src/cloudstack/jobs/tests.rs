#![expect(clippy::disallowed_methods, reason = "any instant will do to start from")]

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

/// A table in which so many jobs run, of which nothing is known.
fn table_with(jobs: usize, start: Instant) -> JobTable {
    let mut table = JobTable::new(Pace::REAL);
    for number in 0..jobs {
        let job = id(&number.to_string());
        table.sending(job.clone(), duty(ASSIGN), start);
        table.running(&job, &job, None, start);
    }
    table
}

/// Ends a job as soon as it was asked for the first time, so that the next one is expected to end about then.
fn known(table: &mut JobTable, start: Instant) {
    let due = table.due(start + Duration::from_secs(9), false);
    for job in due.alone.iter().chain(&due.together) {
        table.ended(job, start + Duration::from_secs(1));
    }
}

#[test]
fn a_job_that_is_being_asked_for_is_not_due() {
    let start = Instant::now();
    let mut table = JobTable::new(Pace::REAL);
    table.sending(id("0"), duty(ASSIGN), start);
    assert_eq!(table.next_due(false), None);
    table.running(&id("0"), &id("0"), None, start);
    let later = start + Duration::from_secs(9);
    assert_eq!(table.due(later, false).alone, [id("0")]);
    assert_eq!(table.due(later, false), Due::default());
    table.unanswered(&id("0"), later);
    assert!(table.next_due(false).unwrap() > later);
}

#[test]
fn a_job_is_asked_for_so_that_the_answer_comes_when_it_should_be_over() {
    let start = Instant::now();
    let first_poll = |answers: &[u64]| {
        let mut table = JobTable::new(Pace::REAL);
        for millis in answers {
            table.answered_after(Duration::from_millis(*millis));
        }
        table.sending(id("0"), duty(ASSIGN), start);
        table.running(&id("0"), &id("0"), None, start);
        table.next_due(false).unwrap() - start
    };
    let at_once = first_poll(&[]);
    assert_eq!(
        first_poll(&[100]),
        at_once.checked_sub(Duration::from_millis(100)).unwrap()
    );
    assert_eq!(first_poll(&[9_000]), Duration::ZERO);
    assert!(
        first_poll(&[100, 9_000]) > Duration::ZERO,
        "one slow answer says little"
    );
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
fn many_jobs_of_which_nothing_is_known_are_asked_for_together() {
    let start = Instant::now();
    let now = start + Duration::from_secs(1);
    assert_eq!(table_with(CROWD, start).due(now, false).together.len(), CROWD);
    assert_eq!(
        table_with(CROWD - 1, start).due(now, false).alone.len(),
        CROWD - 1
    );
}

/// A table in which as many jobs as make a crowd run, and should be over after about a second.
fn expected(start: Instant) -> JobTable {
    let mut table = table_with(CROWD, start);
    known(&mut table, start);
    for number in 0..CROWD {
        let job = id(&number.to_string());
        table.sending(job.clone(), duty(ASSIGN), start);
    }
    for number in 0..CROWD {
        let job = id(&number.to_string());
        table.running(&job, &job, None, start);
    }
    table
}

#[test]
fn of_many_jobs_that_should_be_over_one_is_asked_for_and_then_each_other_one() {
    let start = Instant::now();
    let now = start + Duration::from_secs(2);
    let mut table = expected(start);
    let scout = table.due(now, false);
    assert_eq!((scout.alone.len(), scout.together.len()), (1, 0));
    assert_eq!(table.due(now, false), Due::default(), "the others wait");
    table.ended(&scout.alone[0], now);
    let others = table.due(now, false);
    assert_eq!((others.alone.len(), others.together.len()), (CROWD - 1, 0));
}

#[test]
fn of_many_jobs_that_should_be_over_and_are_not_all_are_asked_for_together() {
    let start = Instant::now();
    let now = start + Duration::from_secs(2);
    let mut table = expected(start);
    let scout = table.due(now, false);
    table.pending(&scout.alone[0], now);
    assert_eq!(table.due(now, false), Due::default(), "the others wait");
    let again = table.next_due(false).unwrap();
    let due = table.due(again, false);
    assert_eq!((due.alone.len(), due.together.len()), (0, CROWD));
}

#[test]
fn nobody_waits_for_ever_for_what_is_said_of_another_one() {
    let start = Instant::now();
    let now = start + Duration::from_secs(2);
    let mut table = expected(start);
    let scout = table.due(now, false);
    assert_eq!(scout.alone.len(), 1);
    let later = table.next_due(false).unwrap();
    assert!(later < now + Duration::from_secs(2), "{:?}", later - now);
    let others = table.due(later, false);
    assert_eq!(others.alone.len() + others.together.len(), CROWD - 1);
}

#[test]
fn the_last_of_many_jobs_is_asked_for_soon_after_the_others_were_over() {
    let start = Instant::now();
    let mut table = table_with(CROWD, start);
    let (still, over) = (
        start + Duration::from_secs(1),
        start + Duration::from_millis(1_600),
    );
    for now in [still, over] {
        let due = table.due(now, false);
        assert_eq!(due.together.len(), CROWD, "{due:?}");
        for job in &due.together {
            if now == still || *job == id("0") {
                table.pending(job, now);
            }
        }
    }
    let alone = table.next_due(false).unwrap();
    assert!(alone > over + Duration::from_millis(900), "nothing is known yet");
    for number in 1..CROWD {
        table.ended(&id(&number.to_string()), over);
    }
    let first = table.next_due(false).unwrap() - over;
    assert!(first < Duration::from_millis(150), "{first:?}");
    assert_eq!(table.due(over + first, false).alone, [id("0")]);
    table.pending(&id("0"), over + first);
    let second = table.next_due(false).unwrap() - (over + first);
    assert!(second > first && second < first * 3, "{second:?}");
}

#[test]
fn the_last_of_jobs_that_take_longer_than_usual_is_asked_for_soon_after_the_others_were_over() {
    let start = Instant::now();
    let mut table = expected(start);
    let mut now = start + Duration::from_secs(2);
    let scout = table.due(now, false);
    table.pending(&scout.alone[0], now);
    for _ in 0..3 {
        now = table.next_due(false).unwrap();
        for job in table.due(now, false).together {
            table.pending(&job, now);
        }
    }
    for number in 1..CROWD {
        table.ended(&id(&number.to_string()), now);
    }
    let wait = table.next_due(false).unwrap() - now;
    assert!(wait < (now - start).mul_f64(0.1), "{wait:?}");
}

#[test]
fn an_account_is_quiet_when_no_job_has_run_for_a_while() {
    let start = Instant::now();
    let time = Duration::from_secs(10);
    let mut table = JobTable::new(Pace::REAL);
    assert!(table.is_quiet_for(time, start));
    table.sending(id("0"), duty(ASSIGN), start);
    table.running(&id("0"), &id("0"), None, start);
    assert!(!table.is_quiet_for(time, start + Duration::from_mins(1)));
    let end = start + Duration::from_secs(2);
    table.ended(&id("0"), end);
    assert!(!table.is_quiet_for(time, end + Duration::from_secs(9)));
    assert!(table.is_quiet_for(time, end + time));
}

#[test]
fn what_one_job_took_says_nothing_of_when_another_one_that_just_began_is_asked_for() {
    let start = Instant::now();
    let mut table = table_with(2, start);
    let later = start + Duration::from_secs(20);
    table.sending(id("late"), duty(ASSIGN), later);
    table.running(&id("late"), &id("late"), None, later);
    let now = later + Duration::from_millis(300);
    table.pending(&id("1"), later);
    table.pending(&id("late"), now);
    table.ended(&id("1"), now);
    table.forget(&id("0"));
    let wait = table.next_due(false).unwrap() - now;
    assert_eq!(wait, Duration::from_millis(300).mul_f64(0.6));
}

#[test]
fn a_job_whose_poll_was_not_answered_is_left_alone_for_as_long_as_before() {
    let start = Instant::now();
    let mut table = table_with(2, start);
    let now = start + Duration::from_secs(1);
    for job in ["0", "1"] {
        table.pending(&id(job), now);
    }
    table.unanswered(&id("0"), now);
    table.ended(&id("1"), now + Duration::from_millis(10));
    assert_eq!(table.next_due(false), Some(now + UNANSWERED_FIRST));
}

#[test]
fn the_end_of_a_scout_says_nothing_of_jobs_that_began_later() {
    let start = Instant::now();
    let mut table = expected(start);
    let later = start + Duration::from_millis(700);
    let others: Vec<JobId> = (0..CROWD).map(|number| id(&format!("later-{number}"))).collect();
    for job in &others {
        table.sending(job.clone(), duty(ASSIGN), later);
    }
    for job in &others {
        table.running(job, job, None, later);
    }
    let now = table.next_due(false).unwrap();
    let scout = table.due(now, false);
    assert_eq!(scout.alone.len(), 1, "{scout:?}");
    table.ended(&scout.alone[0], now);
    let due = table.due(now, false);
    assert_eq!(due.alone.len(), CROWD - 1, "{due:?}");
    assert!(due.alone.iter().all(|job| !others.contains(job)), "{due:?}");
}

#[test]
fn timea_list_is_on_its_way_what_it_may_tell_of_is_not_asked_for() {
    let start = Instant::now();
    let now = start + Duration::from_secs(1);
    let mut table = table_with(CROWD, start);
    assert_eq!(table.due(now, true), Due::default());
    assert_eq!(table.next_due(true), None, "nothing is waited for twice");
    assert_eq!(table.waited_since(now).len(), CROWD);
    assert_eq!(table.due(now, false), Due::default(), "the list has told of them");
}

#[test]
fn a_list_says_nothing_of_a_job_that_began_after_it_was_asked_for() {
    let start = Instant::now();
    let mut table = table_with(1, start);
    assert_eq!(table.waited_since(start), []);
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
