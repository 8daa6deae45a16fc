//! Words that come over the wire. Pure.
//!
//! Decides how long a word of a call may be and which characters it may have: those of Kubernetes where it has a rule for them. What is
//! longer or odd is refused before it is kept, compared or written anywhere.

use proto::Fault;

/// Most bytes of a name of any object.
pub(crate) const LONGEST: usize = 253;
/// Most bytes of a name that is one label, such as a namespace.
const LABEL: usize = 63;

/// Refuses a text that is too long, or that would break the line it is written in.
pub(crate) fn short(field: &str, text: &str) -> Result<(), Fault> {
    within(field, text, LONGEST)?;
    if text.chars().any(char::is_control) {
        let what = format!("{field} has characters that no line of text has");
        return Err(Fault::invalid("BAD_CHARACTERS", field, what));
    }
    Ok(())
}

/// A text that only helps, without the blanks around it: none if it is empty or can't be used. What a call is for never fails for it.
pub(crate) fn hint<'t>(field: &str, text: &'t str) -> Option<&'t str> {
    let text = text.trim();
    (!text.is_empty() && short(field, text).is_ok()).then_some(text)
}

/// A name such as those of Services and Nodes; empty where a caller does not know it.
pub(crate) fn name(field: &str, text: &str) -> Result<(), Fault> {
    within(field, text, LONGEST)?;
    legal(field, text, |byte| byte == b'.')
}

/// A name such as those of namespaces and ports; empty where there is none.
pub(crate) fn label(field: &str, text: &str) -> Result<(), Fault> {
    within(field, text, LABEL)?;
    legal(field, text, |_| false)
}

fn within(field: &str, text: &str, most: usize) -> Result<(), Fault> {
    if text.len() <= most {
        return Ok(());
    }
    let what = format!("{field} has {} bytes; at most {most} are allowed", text.len());
    Err(Fault::invalid("TOO_LONG", field, what))
}

fn legal(field: &str, text: &str, more: impl Fn(u8) -> bool) -> Result<(), Fault> {
    let is_legal =
        |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-' || more(byte);
    if text.bytes().all(is_legal) {
        return Ok(());
    }
    let what = format!("{field} has characters that no such name in Kubernetes has");
    Err(Fault::invalid("BAD_CHARACTERS", field, what))
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::a_text("192.0.2.1", Some("192.0.2.1"))]
    #[case::blanks_around_it(" 192.0.2.1\n", Some("192.0.2.1"))]
    #[case::blanks_only(" \n", None)]
    #[case::a_text_that_is_too_long(&"x".repeat(254), None)]
    #[case::a_text_of_two_lines("a\nb", None)]
    fn a_hint_that_can_not_be_used_is_none(#[case] text: &str, #[case] expected: Option<&str>) {
        assert_eq!(hint("hint", text), expected);
    }

    type Check = fn(&str, &str) -> Result<(), Fault>;

    #[rstest]
    #[case::a_text(short, "My Network, ä", None)]
    #[case::a_text_that_is_too_long(short, &"x".repeat(254), Some("TOO_LONG"))]
    #[case::a_text_of_two_lines(short, "a\nb", Some("BAD_CHARACTERS"))]
    #[case::a_name(name, "node-1.example", None)]
    #[case::no_name(name, "", None)]
    #[case::a_name_that_is_too_long(name, &"x".repeat(254), Some("TOO_LONG"))]
    #[case::a_name_with_a_blank(name, "node 1", Some("BAD_CHARACTERS"))]
    #[case::a_label(label, "shop-1", None)]
    #[case::a_label_that_is_too_long(label, &"x".repeat(64), Some("TOO_LONG"))]
    #[case::a_label_with_a_dot(label, "a.b", Some("BAD_CHARACTERS"))]
    fn a_word_has_its_limits(#[case] check: Check, #[case] text: &str, #[case] reason: Option<&str>) {
        let refused = check("ref.word", text).err();
        assert_eq!(refused.as_ref().map(|fault| &*fault.reason), reason);
        assert!(refused.is_none_or(|fault| fault.field.as_deref() == Some("ref.word")));
    }
}
