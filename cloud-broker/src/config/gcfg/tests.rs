use proptest::prelude::*;
use rstest::rstest;

use super::*;

fn values(source: &str) -> Result<Vec<(String, Option<String>)>, Vec<usize>> {
    let sections =
        read(source).map_err(|faults| faults.iter().map(|fault| fault.line).collect::<Vec<_>>())?;
    Ok(sections
        .into_iter()
        .flat_map(|section| section.entries)
        .map(|entry| (entry.key, entry.value))
        .collect())
}

#[rstest]
#[case::comment_behind_blank("k = abcd # note", Some("abcd"))]
#[case::comment_behind_blank_with_semicolon("k = abcd ; note", Some("abcd"))]
#[case::comment_inside_a_word("k = ab#cd", Some("ab"))]
#[case::comment_inside_a_word_with_semicolon("k = ab;cd", Some("ab"))]
#[case::comment_sign_in_quotes("k = \"ab # cd\"", Some("ab # cd"))]
#[case::escapes_in_quotes(r#"k = "a\"b\\c""#, Some(r#"a"b\c"#))]
#[case::tab_in_quotes(r#"k = "a\tb""#, Some("a\tb"))]
#[case::bare_backslash(r"k = a\b", None)]
#[case::unknown_escape(r#"k = "a\x41""#, None)]
#[case::single_quotes_are_plain("k = 'a b'", Some("'a b'"))]
#[case::quotes_in_the_middle(r#"k = ab"c d"ef"#, Some("abc def"))]
#[case::a_blank_before_the_comment_goes("k =   a b  \t# c", Some("a b"))]
#[case::nothing("k =", Some(""))]
#[case::nothing_but_a_comment("k = # c", Some(""))]
#[case::colon("k: v", None)]
#[case::windows_line_end("k = v\r", Some("v"))]
#[case::utf8("k = grün", Some("grün"))]
#[case::continued_line("k = a\\\nb", Some("ab"))]
#[case::continued_line_of_windows("k = a\\\r\nb", Some("ab"))]
#[case::open_quote("k = \"a", None)]
#[case::value_with_a_line_break(r#"k = "a\nb""#, None)]
#[case::value_with_a_blank_at_the_edge("k = \" a\"", None)]
#[case::value_with_a_backslash_at_the_end(r#"k = "a\\""#, None)]
#[case::key_beginning_with_a_digit("1k = v", None)]
#[case::equals_sign_in_the_value("k = a=b==", Some("a=b=="))]
#[case::colon_in_the_value("k = http://h:1/x", Some("http://h:1/x"))]
#[case::brackets_in_the_value("k = [a]", Some("[a]"))]
fn a_value_is_read_as_go_reads_it(#[case] line: &str, #[case] value: Option<&str>) {
    let expected = match value {
        Some(value) => Ok(vec![("k".to_owned(), Some(value.to_owned()))]),
        None => Err(vec![2]),
    };
    assert_eq!(values(&format!("[Global]\n{line}\n")), expected);
    assert_eq!(
        values(&format!("[Global]\n{line}")),
        expected,
        "without a line end"
    );
}

#[test]
fn a_bare_key_is_not_the_next_line() {
    let read = values("[Global]\nssl-no-verify\nzone = z\n").unwrap();
    assert_eq!(
        read,
        [("ssl-no-verify".into(), None), ("zone".into(), Some("z".into()))]
    );
    assert_eq!(
        values("[Global]\nssl-no-verify").unwrap(),
        [("ssl-no-verify".into(), None)]
    );
}

#[test]
fn an_indented_comment_is_a_comment() {
    assert_eq!(
        values("[Global]\n  # c\n\t; c\nk = v").unwrap(),
        [("k".into(), Some("v".into()))]
    );
}

#[test]
fn a_comment_may_follow_a_section_header() {
    assert_eq!(values("[Global] # c\nk = v").unwrap().len(), 1);
}

#[test]
fn a_bracket_inside_a_section_name_is_a_part_of_it() {
    let sections = read("[T \"bl]ue\"]\nk = v\n[T \"a\\\"b\\\\\"]").unwrap();
    let names: Vec<_> = sections
        .iter()
        .map(|section| section.subsection.as_deref())
        .collect();
    assert_eq!(names, [Some("bl]ue"), Some("a\"b\\")]);
}

#[test]
fn names_are_read_in_any_case_but_subsections_are_not() {
    let sections = read("[GLOBAL]\nAPI-URL = X\n[CLUSTER \"Prod\"]").unwrap();
    assert_eq!(sections[0].name, "global");
    assert_eq!(sections[0].entries[0].key, "api-url");
    assert_eq!(sections[1].subsection.as_deref(), Some("Prod"));
}

#[test]
fn repetitions_stay_in_order_with_their_lines() {
    let sections = read("[Global]\nk = 1\nk = 2\n\n[A]\nk = 3\n[Global]\n\nk = 4\n").unwrap();
    let lines: Vec<_> = sections
        .iter()
        .map(|section| (section.name.as_str(), section.line))
        .collect();
    assert_eq!(lines, [("global", 1), ("a", 5), ("global", 7)]);
    let entries: Vec<_> = sections
        .iter()
        .flat_map(|s| &s.entries)
        .map(|e| (e.value.as_deref().unwrap(), e.line))
        .collect();
    assert_eq!(entries, [("1", 2), ("2", 3), ("3", 6), ("4", 9)]);
}

#[rstest]
#[case::key_before_any_section("k = v\n[Global]", 1)]
#[case::byte_order_mark("\u{feff}[Global]\nk = v", 1)]
#[case::section_without_end("[Global\nk = v", 1)]
#[case::section_without_name("[]\nk = v", 1)]
#[case::something_behind_the_section("[Global] x\nk = v", 1)]
#[case::open_quote_in_the_section("[A \"b]\nk = v", 1)]
#[case::dotted_section("[A.b]", 1)]
#[case::nul("[A]\n\0", 2)]
fn what_go_refuses_is_refused_in_its_line(#[case] source: &str, #[case] line: usize) {
    let faults = read(source).unwrap_err();
    assert_eq!(faults[0].line, line, "{faults:?}");
}

#[test]
fn all_faults_are_found_at_once_and_none_shows_a_value() {
    let faults = read(
        "[Global]\napi-key: S3cretOne\nsecret-key = \"S3cretTwo\nzone = a\\S3cretThree\nS3cretFour ! x\n",
    )
    .unwrap_err();
    assert_eq!(
        faults.iter().map(|fault| fault.line).collect::<Vec<_>>(),
        [2, 3, 4, 5]
    );
    let text = faults
        .iter()
        .map(ToString::to_string)
        .collect::<Vec<_>>()
        .join("\n");
    assert!(!text.to_lowercase().contains("s3cret"), "{text}");
    insta::assert_snapshot!(text, @r#"
    2: no "=" behind a key api-key; write key = value, not key: value
    3: no closing quote in the value of secret-key; close the quote on the same line
    4: a bare \ in the value of zone; put the value in double quotes and write \\
    5: a key is not followed by "="; write key = value
    "#);
}

proptest! {
    #[test]
    fn no_text_makes_it_panic(source in any::<String>()) {
        let _ = read(&source);
    }

    #[test]
    fn no_text_of_its_own_alphabet_makes_it_panic(source in "[\\[\\]\"'=;#:\\\\ \t\r\na-cA-C1-]{0,60}") {
        if let Ok(canonical) = normalise(&source) {
            // What is canonical stays as it is, but for quotes and comment signs that were inside quotes.
            let sections = read(&source).unwrap();
            let entries: usize = sections.iter().map(|section| section.entries.len()).sum();
            prop_assert_eq!(canonical.text.lines().count(), sections.len() + entries);
        }
    }

    #[test]
    fn quoted_pairs_read_back_as_they_were(
        pairs in proptest::collection::vec(("[a-z][a-z0-9-]{0,8}", "[!-~é]([ -~é]{0,20}[!-~é])?"), 1..6),
        cluster in "[ -~]{0,12}",
    ) {
        prop_assume!(pairs.iter().all(|(_, value)| !value.ends_with('\\')));
        let quote = |text: &str| format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""));
        let lines: Vec<String> = pairs.iter().map(|(key, value)| format!("{key} = {}\n", quote(value))).collect();
        let lines = lines.concat();
        let sections = read(&format!("[Cluster {}]\n{lines}", quote(&cluster))).unwrap();
        prop_assert_eq!(sections[0].subsection.as_deref(), Some(cluster.as_str()));
        let back: Vec<_> = sections[0].entries.iter()
            .map(|entry| (entry.key.clone(), entry.value.clone().unwrap()))
            .collect();
        prop_assert_eq!(back, pairs);
    }
}
