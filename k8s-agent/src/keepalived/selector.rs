//! Label selectors in the usual one-line form.
//!
//! Decides whether a Service's labels satisfy `tier=front,env!=dev,team in (a,b),!internal`.

use std::collections::BTreeMap;

/// Bytes of labels that are kept of one Service. A label is at most 317 characters for the key and 63 for the value, so that 16 KiB are more
/// than forty of the longest; kube-apiserver knows no limit but that of the whole object.
const MAX_LABELS: usize = 16 * 1024;
/// A key that no label has. It stands for labels that were too many to be kept.
const TOO_MANY: &str = "";

/// Labels as they are kept. Too many are dropped, and no pool that chooses by labels is for their Service then: without the mark a selector
/// such as `!internal` would hold for labels that nobody knows.
pub fn bounded(labels: BTreeMap<String, String>) -> BTreeMap<String, String> {
    let bytes: usize = labels.iter().map(|(key, value)| key.len() + value.len()).sum();
    if bytes > MAX_LABELS {
        BTreeMap::from([(TOO_MANY.to_owned(), String::new())])
    } else {
        labels
    }
}

/// Requirements that all have to hold; none at all holds for everything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selector(Vec<Requirement>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Requirement {
    key: String,
    test: Test,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Test {
    Present,
    Absent,
    OneOf(Vec<String>),
    NoneOf(Vec<String>),
}

/// A text that is no selector.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("\"{0}\" is not a label selector (key=value, key!=value, key in (a,b), key notin (a,b), key, !key)")]
pub struct BadSelector(String);

impl Selector {
    /// Reads a comma list of requirements.
    pub fn parse(text: &str) -> Result<Self, BadSelector> {
        let parts = split(text).into_iter().filter(|part| !part.is_empty());
        parts
            .map(|part| requirement(part).ok_or_else(|| BadSelector(part.to_owned())))
            .collect::<Result<_, _>>()
            .map(Self)
    }

    /// Whether these labels satisfy it. Labels that were too many to be kept satisfy only the one that asks for nothing.
    pub fn matches(&self, labels: &BTreeMap<String, String>) -> bool {
        if labels.contains_key(TOO_MANY) {
            return self.is_empty();
        }
        self.0.iter().all(|requirement| {
            let value = labels.get(&requirement.key);
            match &requirement.test {
                Test::Present => value.is_some(),
                Test::Absent => value.is_none(),
                Test::OneOf(values) => value.is_some_and(|value| values.contains(value)),
                Test::NoneOf(values) => value.is_none_or(|value| !values.contains(value)),
            }
        })
    }

    /// Whether it asks for nothing.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// Splits at commas outside of brackets.
fn split(text: &str) -> Vec<&str> {
    let mut depth = 0_u32;
    text.split(|character| {
        match character {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            _ => {}
        }
        character == ',' && depth == 0
    })
    .map(str::trim)
    .collect()
}

fn requirement(part: &str) -> Option<Requirement> {
    let (key, test) = if let Some((key, value)) = part.split_once("!=") {
        (key, Test::NoneOf(vec![word(value)?]))
    } else if let Some((key, value)) = part.split_once("==").or_else(|| part.split_once('=')) {
        (key, Test::OneOf(vec![word(value)?]))
    } else if let Some(key) = part.strip_prefix('!') {
        (key, Test::Absent)
    } else if let Some((head, list)) = part.strip_suffix(')').and_then(|part| part.split_once('(')) {
        let values = list.split(',').map(word).collect::<Option<Vec<_>>>()?;
        match head.trim().split_once(char::is_whitespace) {
            Some((key, operator)) if operator.trim() == "in" => (key, Test::OneOf(values)),
            Some((key, operator)) if operator.trim() == "notin" => (key, Test::NoneOf(values)),
            Some(_) | None => return None,
        }
    } else {
        (part, Test::Present)
    };
    let key = word(key).filter(|key| !key.is_empty())?;
    Some(Requirement { key, test })
}

/// A key or value without blanks inside.
fn word(text: &str) -> Option<String> {
    let text = text.trim();
    let legal = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | '/');
    text.chars().all(legal).then(|| text.to_owned())
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::nothing("", true)]
    #[case::equal("tier=front", true)]
    #[case::double_equal("tier==front", true)]
    #[case::other_value("tier=back", false)]
    #[case::unequal("tier!=back", true)]
    #[case::unequal_when_absent("zone!=a", true)]
    #[case::one_of("tier in (back, front)", true)]
    #[case::none_of("tier notin (back,front)", false)]
    #[case::present("tier", true)]
    #[case::absent("!zone", true)]
    #[case::all_must_hold("tier=front,zone", false)]
    #[case::list_and_more("tier in (a,front), !zone", true)]
    fn a_selector_is_held_against_labels(#[case] selector: &str, #[case] expected: bool) {
        let labels = [("tier".to_owned(), "front".to_owned())].into();
        assert_eq!(Selector::parse(selector).unwrap().matches(&labels), expected);
    }

    #[test]
    fn labels_are_kept_whole_or_not_at_all() {
        let few = BTreeMap::from([("tier".to_owned(), "front".to_owned())]);
        assert_eq!(bounded(few.clone()), few);
        let mut many = few;
        many.extend((0..300).map(|number| (format!("example/{number}"), "x".repeat(63))));
        let kept = bounded(many);
        assert!(!Selector::parse("!internal").unwrap().matches(&kept));
        assert!(!Selector::parse("tier=front").unwrap().matches(&kept));
        assert!(Selector::parse("").unwrap().matches(&kept));
    }

    #[rstest]
    #[case::blank_in_key("a b=c")]
    #[case::unknown_operator("a within (b)")]
    #[case::no_key("=b")]
    #[case::open_bracket("a in (b")]
    fn a_bad_selector_is_refused(#[case] selector: &str) {
        assert!(Selector::parse(selector).is_err());
    }
}
