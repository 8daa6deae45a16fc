use std::time::Instant;

use rstest::rstest;

use super::correlate::{Correlator, Write};
use super::*;

fn happening(text: &str) -> Happening {
    let mut node = Node::default();
    node.metadata.name = Some("n1".into());
    node.metadata.uid = Some("u1".into());
    Happening {
        component: Component::Node,
        subject: Subject::of(&node),
        reason: Reason::SYNCED,
        text: text.to_owned(),
    }
}

fn create(correlator: &mut Correlator, text: &str, now: Instant) -> Happening {
    let Write::Create(created) = correlator.judge(happening(text), now) else {
        panic!("{text} is not new")
    };
    correlator.written(&created, format!("event of {text}"), now);
    *created
}

#[test]
fn the_same_happening_again_raises_a_count() {
    let (mut correlator, now) = (Correlator::default(), runtime::clock::now());
    create(&mut correlator, "a", now);
    for expected in 2..5 {
        let Write::Repeat { name, count, .. } = correlator.judge(happening("a"), now) else {
            panic!("not repeated")
        };
        assert_eq!((name.as_str(), count), ("event of a", expected));
    }
}

#[test]
fn from_the_tenth_different_text_on_they_are_one_event() {
    let (mut correlator, now) = (Correlator::default(), runtime::clock::now());
    for n in 1..10 {
        assert_eq!(
            create(&mut correlator, &format!("text {n}"), now).text,
            format!("text {n}")
        );
    }
    let tenth = create(&mut correlator, "text 10", now);
    assert!(
        tenth.text.ends_with("text 10") && tenth.text != "text 10",
        "{}",
        tenth.text
    );
    let Write::Repeat { count, happening, .. } = correlator.judge(happening("text 11"), now) else {
        panic!("a new one")
    };
    assert_eq!(count, 2);
    assert!(happening.text.ends_with("text 11"), "the newest text is shown");
}

#[test]
fn an_object_gets_25_at_once_and_then_one_every_five_minutes() {
    let (mut correlator, now) = (Correlator::default(), runtime::clock::now());
    let written = |correlator: &mut Correlator, now| {
        (0..60)
            .filter(|_| correlator.judge(happening("a"), now) != Write::Drop)
            .count()
    };
    assert_eq!(written(&mut correlator, now), 25);
    assert_eq!(written(&mut correlator, now + Duration::from_secs(299)), 0);
    assert_eq!(written(&mut correlator, now + Duration::from_secs(599)), 1);
}

#[test]
fn a_long_text_is_cut_between_letters() {
    let (mut correlator, now) = (Correlator::default(), runtime::clock::now());
    let cut = create(&mut correlator, &"ü".repeat(2000), now).text;
    assert!(cut.len() <= 1024 && cut.ends_with("..."), "{} bytes", cut.len());
}

#[test]
fn much_is_forgotten_but_never_what_was_used_last() {
    let (mut correlator, now) = (Correlator::default(), runtime::clock::now());
    for n in 0_u32..10_000 {
        let mut other = happening("a");
        other.subject.name = n.to_string();
        let now = now + Duration::from_millis(u64::from(n));
        if let Write::Create(created) = correlator.judge(other, now) {
            correlator.written(&created, n.to_string(), now);
        }
    }
    let mut last = happening("a");
    last.subject.name = "9999".into();
    let now = now + Duration::from_secs(10);
    assert!(matches!(
        correlator.judge(last, now),
        Write::Repeat { count: 2, .. }
    ));
}

#[test]
fn an_event_names_kind_version_and_uid_of_its_object() {
    // L-29
    let reference = happening("a").subject.reference();
    assert_eq!(reference.api_version.as_deref(), Some("v1"));
    assert_eq!(
        (reference.kind.as_deref(), reference.uid.as_deref()),
        (Some("Node"), Some("u1"))
    );
}

#[rstest]
#[case::node(Subject::of(&Node::default()), "default")]
#[case::lease(Subject { namespace: Some("kube-system".into()), ..Subject::of(&Lease::default()) }, "kube-system")]
fn an_event_goes_to_the_namespace_of_its_object(#[case] subject: Subject, #[case] namespace: &str) {
    assert_eq!(subject.event_namespace(), namespace);
}

#[test]
fn no_reason_stands_twice_in_the_table() {
    let mut words: Vec<&str> = TABLE.iter().map(|entry| entry.reason.word.as_ref()).collect();
    words.sort_unstable();
    let before = words.len();
    words.dedup();
    assert_eq!(words.len(), before);
}

#[test]
fn a_full_recorder_drops_and_does_not_wait() {
    let (recorder, _writer) = Recorder::new(Metrics::default());
    for _ in 0..WAITING + 50 {
        recorder.publish(&Subject::of(&Node::default()), &Reason::SYNCED, "a");
    }
    assert_eq!(recorder.waiting.capacity(), 0);
}
