//! Patterns of machine names: `*` is any text, `?` one character. Pure.
//!
//! Names are compared in any case, as CloudStack does. Two patterns can be asked whether one name could fit both.

use std::fmt;

/// A pattern of names.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Pattern(String);

impl Pattern {
    /// A pattern as people write it.
    pub fn new(text: &str) -> Self {
        Self(text.to_lowercase())
    }

    /// Whether this name fits.
    pub fn fits(&self, name: &str) -> bool {
        let name: Vec<char> = name.to_lowercase().chars().collect();
        // A name is a pattern without wildcards, so both questions are one.
        overlap(
            &self.tokens(),
            &name.into_iter().map(Token::Is).collect::<Vec<_>>(),
        )
    }

    /// Whether some name could fit both.
    pub fn overlaps(&self, other: &Self) -> bool {
        overlap(&self.tokens(), &other.tokens())
    }

    fn tokens(&self) -> Vec<Token> {
        self.0
            .chars()
            .map(|c| match c {
                '*' => Token::AnyText,
                '?' => Token::AnyOne,
                c => Token::Is(c),
            })
            .collect()
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Token {
    AnyText,
    AnyOne,
    Is(char),
}

/// Row by row over the first list; `reach[j]` says that the tokens so far and the first `j` tokens of the second list can
/// spell the same text. A star is empty (the cell of the other direction carries over) or takes one token more.
fn overlap(first: &[Token], second: &[Token]) -> bool {
    let at = |row: &[bool], i: usize| row.get(i).copied().unwrap_or(false);
    let mut reach = vec![true];
    for token in second {
        let all_stars = reach.last() == Some(&true) && *token == Token::AnyText;
        reach.push(all_stars);
    }
    for a in first {
        let mut next = vec![at(&reach, 0) && *a == Token::AnyText];
        for (j, b) in second.iter().enumerate() {
            next.push(match (a, b) {
                (Token::AnyText, _) | (_, Token::AnyText) => at(&reach, j + 1) || at(&next, j),
                (Token::Is(x), Token::Is(y)) => at(&reach, j) && x == y,
                (Token::AnyOne, _) | (_, Token::AnyOne) => at(&reach, j),
            });
        }
        reach = next;
    }
    reach.last() == Some(&true)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::exact("worker-1", "worker-1", true)]
    #[case::any_case("Worker-1", "wORKER-1", true)]
    #[case::longer("worker-1", "worker-10", false)]
    #[case::star("worker-*", "worker-10", true)]
    #[case::star_takes_nothing("worker-*", "worker-", true)]
    #[case::two_stars("*-k8s-*", "prod-k8s-3", true)]
    #[case::star_in_front("*-1", "a-10", false)]
    #[case::one("node-?", "node-7", true)]
    #[case::one_is_not_none("node-?", "node-", false)]
    #[case::everything("*", "", true)]
    #[case::nothing("", "a", false)]
    fn a_name_fits_a_pattern(#[case] pattern: &str, #[case] name: &str, #[case] fits: bool) {
        assert_eq!(Pattern::new(pattern).fits(name), fits);
    }

    #[rstest]
    #[case("prod-*", "test-*", false)]
    #[case("prod-*", "prod-a*", true)]
    #[case("*-a", "*-b", false)]
    #[case("a*", "*b", true)]
    #[case("a?", "a", false)]
    #[case("a?c", "?b?", true)]
    #[case("*", "anything", true)]
    fn two_patterns_overlap_if_a_name_could_fit_both(
        #[case] a: &str,
        #[case] b: &str,
        #[case] overlap: bool,
    ) {
        assert_eq!(Pattern::new(a).overlaps(&Pattern::new(b)), overlap);
        assert_eq!(Pattern::new(b).overlaps(&Pattern::new(a)), overlap);
    }

    proptest! {
        #[test]
        fn patterns_that_share_a_name_overlap(a in "[ab*?]{0,5}", b in "[ab*?]{0,5}", name in "[ab]{0,5}") {
            let (a, b) = (Pattern::new(&a), Pattern::new(&b));
            if a.fits(&name) && b.fits(&name) {
                prop_assert!(a.overlaps(&b));
            }
        }

        #[test]
        fn short_patterns_that_overlap_share_a_short_name(a in "[ab*?]{0,4}", b in "[ab*?]{0,4}") {
            let (a, b) = (Pattern::new(&a), Pattern::new(&b));
            let mut names = vec![String::new()];
            let mut all = names.clone();
            for _ in 0..8 {
                names = names.iter().flat_map(|name| [format!("{name}a"), format!("{name}b")]).collect();
                all.extend(names.iter().cloned());
            }
            let shared = all.iter().any(|name| a.fits(name) && b.fits(name));
            prop_assert_eq!(a.overlaps(&b), shared);
        }
    }
}
