//! Which events become one, and which are held back. Pure: time is an argument.
//!
//! * The same happening again raises the count of its event instead of making another.
//! * From the tenth different text with one reason on one object within ten minutes on, they are one event.
//! * One object gets at most 25 events at once from one component, and one more every five minutes.

use std::collections::{BTreeSet, HashMap};
use std::time::{Duration, Instant};

use super::{Component, Happening, Kind};

const DIFFERENT_TEXTS: usize = 10;
const TEXTS_WINDOW: Duration = Duration::from_mins(10);
const BURST: f64 = 25.0;
const REFILL: Duration = Duration::from_mins(5);
/// Entries remembered in each map; the longest unused go first.
const REMEMBERED: usize = 4096;
/// The text of merged events starts with this.
const COMBINED: &str = "(combined from similar events): ";
/// Texts longer than this are cut; the server refuses events with more.
const LONGEST: usize = 1024;

/// What to write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Write {
    /// A new event.
    Create(Box<Happening>),
    /// The event of this name happened `count` times.
    Repeat {
        /// Name of the event.
        name: String,
        /// How often, this one included.
        count: i32,
        /// What happened, in case the event is gone.
        happening: Box<Happening>,
    },
    /// Nothing: too many.
    Drop,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Object {
    component: Component,
    kind: String,
    namespace: Option<String>,
    name: String,
    uid: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Topic {
    object: Object,
    kind: Kind,
    reason: String,
}

/// By what an event is found again. Merged ones are the same whatever their texts are.
type Same = (Topic, String);

fn same(topic: Topic, text: &str) -> Same {
    let text = if text.starts_with(COMBINED) {
        COMBINED
    } else {
        text
    };
    (topic, text.to_owned())
}

/// What was written lately.
#[derive(Debug, Default)]
pub(super) struct Correlator {
    topics: HashMap<Topic, (Instant, BTreeSet<String>)>,
    written: HashMap<Same, (Instant, String, i32)>,
    budgets: HashMap<Object, (Instant, f64)>,
}

impl Correlator {
    /// What to write for this happening.
    pub(super) fn judge(&mut self, mut happening: Happening, now: Instant) -> Write {
        truncate(&mut happening.text);
        let topic = topic_of(&happening);
        if self.is_noise(&topic, &happening.text, now) {
            happening.text = format!("{COMBINED}{}", happening.text);
            truncate(&mut happening.text);
        }
        if !self.affords(&topic.object, now) {
            return Write::Drop;
        }
        let same = same(topic, &happening.text);
        match self.written.get_mut(&same) {
            Some((used, name, count)) => {
                *used = now;
                *count = count.saturating_add(1);
                Write::Repeat {
                    name: name.clone(),
                    count: *count,
                    happening: Box::new(happening),
                }
            }
            None => Write::Create(Box::new(happening)),
        }
    }

    /// The event was written under this name.
    pub(super) fn written(&mut self, happening: &Happening, name: String, now: Instant) {
        let same = same(topic_of(happening), &happening.text);
        self.written.insert(same, (now, name, 1));
        forget_oldest(&mut self.written, |(used, _, _)| *used);
    }

    fn is_noise(&mut self, topic: &Topic, text: &str, now: Instant) -> bool {
        let (since, texts) = self
            .topics
            .entry(topic.clone())
            .or_insert_with(|| (now, BTreeSet::new()));
        if now.saturating_duration_since(*since) > TEXTS_WINDOW {
            texts.clear();
        }
        *since = now;
        if texts.len() < DIFFERENT_TEXTS {
            texts.insert(text.to_owned());
        }
        let noise = texts.len() >= DIFFERENT_TEXTS;
        forget_oldest(&mut self.topics, |(since, _)| *since);
        noise
    }

    fn affords(&mut self, object: &Object, now: Instant) -> bool {
        let (since, left) = self.budgets.entry(object.clone()).or_insert((now, BURST));
        let earned = now.saturating_duration_since(*since).as_secs_f64() / REFILL.as_secs_f64();
        *left = (*left + earned).min(BURST);
        *since = now;
        let affords = *left >= 1.0;
        if affords {
            *left -= 1.0;
        }
        forget_oldest(&mut self.budgets, |(since, _)| *since);
        affords
    }
}

fn topic_of(happening: &Happening) -> Topic {
    let subject = &happening.subject;
    Topic {
        object: Object {
            component: happening.component,
            kind: subject.kind.clone(),
            namespace: subject.namespace.clone(),
            name: subject.name.clone(),
            uid: subject.uid.clone(),
        },
        kind: happening.reason.kind,
        reason: happening.reason.word.clone().into_owned(),
    }
}

fn truncate(text: &mut String) {
    if text.len() > LONGEST {
        let end = (0..=LONGEST - 3)
            .rev()
            .find(|end| text.is_char_boundary(*end))
            .unwrap_or(0);
        text.truncate(end);
        text.push_str("...");
    }
}

fn forget_oldest<K: Clone + Eq + std::hash::Hash, V>(map: &mut HashMap<K, V>, used: impl Fn(&V) -> Instant) {
    if map.len() <= REMEMBERED {
        return;
    }
    let mut times: Vec<Instant> = map.values().map(&used).collect();
    times.sort_unstable();
    if let Some(middle) = times.get(times.len() / 2).copied() {
        map.retain(|_, value| used(value) > middle);
    }
}
