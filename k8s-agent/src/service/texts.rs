//! Texts for people: short whatever a user wrote, and recognised as the same although times in them differ.
//!
//! Pure. Events, conditions and what is remembered of a fault all compare by [`essence`], so that a text which counts seconds
//! is no news each second.

/// A value longer than this is cut in messages, in characters.
const QUOTED: usize = 64;

/// A value as it stands in a message: in quotes, its end cut off where it is long.
pub fn quoted(value: &str) -> String {
    let cut = value
        .char_indices()
        .nth(QUOTED)
        .and_then(|(end, _)| value.get(..end));
    match cut {
        None => format!("{value:?}"),
        Some(begin) => format!("{begin:?}..."),
    }
}

/// What stays of a text when times, durations and ids of jobs are taken out. Other ids stay: a person may need them.
pub fn essence(text: &str) -> String {
    let mut kept = Vec::new();
    let mut words = text.split_whitespace().peekable();
    while let Some(word) = words.next() {
        let bare = trimmed(word);
        let next = words.peek().map(|next| trimmed(next)).unwrap_or_default();
        if is_duration(bare) || is_time(bare) {
            kept.push("*");
        } else if (is_number(bare) && is_unit(next)) || (bare.eq_ignore_ascii_case("job") && is_id(next)) {
            words.next();
            kept.push("*");
        } else {
            kept.push(word);
        }
    }
    kept.join(" ")
}

fn trimmed(word: &str) -> &str {
    word.trim_matches(|c: char| !c.is_alphanumeric())
}

fn is_digit_or_dot(c: char) -> bool {
    c.is_ascii_digit() || c == '.'
}

fn is_number(word: &str) -> bool {
    word.starts_with(|c: char| c.is_ascii_digit()) && word.chars().all(is_digit_or_dot)
}

fn is_unit(word: &str) -> bool {
    const UNITS: &[&str] = &[
        "ms", "s", "sec", "second", "seconds", "m", "min", "minute", "minutes", "h", "hour", "hours",
    ];
    UNITS.contains(&word)
}

/// `12s`, `1.5s`, `1m30s`.
fn is_duration(word: &str) -> bool {
    let mut units = word.split(is_digit_or_dot).filter(|part| !part.is_empty());
    word.starts_with(|c: char| c.is_ascii_digit()) && units.next().is_some_and(is_unit) && units.all(is_unit)
}

/// `11:30:05`, `2026-01-01T11:30:05.123Z`. An address with its port has one colon.
fn is_time(word: &str) -> bool {
    word.starts_with(|c: char| c.is_ascii_digit())
        && word.matches(':').count() >= 2
        && word
            .chars()
            .all(|c| c.is_ascii_digit() || matches!(c, ':' | '-' | '+' | '.' | 'T' | 'Z'))
}

fn is_id(word: &str) -> bool {
    word.contains(|c: char| c.is_ascii_digit()) && word.chars().all(|c| c.is_ascii_hexdigit() || c == '-')
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::seconds("waits for 12 s, then asks", "waits for 31 s, then asks")]
    #[case::joined("no answer after 1.5s", "no answer after 20s")]
    #[case::compound("idle for 1m30s (busy)", "idle for 2m (busy)")]
    #[case::stamp("since 2026-01-01T11:30:05Z", "since 2026-01-02T01:02:03.456Z")]
    #[case::clock("at 11:30:05 it failed", "at 11:30:06 it failed")]
    #[case::job(
        "job 3a1b2c3d-0000-4000-8000-000000000001 failed",
        "job 3a1b2c3d-0000-4000-8000-000000000002 failed"
    )]
    fn a_text_that_differs_in_time_or_job_only_is_the_same(#[case] one: &str, #[case] other: &str) {
        assert_eq!(essence(one), essence(other));
    }

    #[rstest]
    #[case::port("port 80 is taken", "port 81 is taken")]
    #[case::address("192.0.2.7 is not free", "192.0.2.8 is not free")]
    #[case::address_and_port("192.0.2.7:80 is taken", "192.0.2.7:81 is taken")]
    #[case::plan("accept plan 11f0-01", "accept plan 11f0-02")]
    #[case::count("4 nodes are gone", "5 nodes are gone")]
    fn a_text_that_differs_in_what_it_is_about_is_another_one(#[case] one: &str, #[case] other: &str) {
        assert_ne!(essence(one), essence(other));
    }

    #[test]
    fn a_long_value_is_cut_between_characters() {
        assert_eq!(quoted("enabled"), "\"enabled\"");
        assert_eq!(quoted(&"ü".repeat(64)), format!("\"{}\"", "ü".repeat(64)));
        assert_eq!(quoted(&"ü".repeat(100_000)), format!("\"{}\"...", "ü".repeat(64)));
    }
}
