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
