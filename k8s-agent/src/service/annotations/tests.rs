use rstest::rstest;

use super::*;

fn read(pairs: &[(&str, &str)]) -> Result<Settings, Vec<Problem>> {
    let annotations = pairs
        .iter()
        .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
        .collect();
    let (settings, problems) = Settings::read(&annotations);
    if problems.is_empty() {
        Ok(settings)
    } else {
        Err(problems.first().to_vec())
    }
}

fn listed(networks: &[&str]) -> Networks {
    Networks::Listed(networks.iter().map(|network| network.parse().unwrap()).collect())
}

#[test]
fn a_service_without_annotations_has_the_defaults() {
    assert_eq!(read(&[]), Ok(Settings::default()));
}

#[rstest]
#[case::on("true", true)]
#[case::off("false", false)]
#[case::blanks_around(" true ", true)]
#[case::empty_counts_as_not_set("", false)]
fn a_boolean_that_can_be_read(#[case] word: &str, #[case] expected: bool) {
    assert_eq!(read(&[(PROXY_PROTOCOL, word)]).unwrap().proxy_protocol, expected);
    assert_eq!(read(&[(KEEP_IP, word)]).unwrap().keep_ip, expected);
}

#[rstest]
#[case::old_tutorials("enabled")]
#[case::capital("True")]
#[case::number("1")]
#[case::word("yes")]
fn a_boolean_that_controllers_before_ignored_is_refused_with_its_name(#[case] word: &str) {
    let problems = read(&[(PROXY_PROTOCOL, word), (KEEP_IP, word)]).unwrap_err();
    let fields: Vec<_> = problems.iter().map(|problem| problem.field.as_str()).collect();
    assert_eq!(fields, [field(PROXY_PROTOCOL), field(KEEP_IP)]);
    assert!(problems[0].text.contains(&format!("{word:?}")), "{}", problems[0]);
}

#[test]
fn every_fault_is_named_at_once() {
    let problems = read(&[
        (PROXY_PROTOCOL, "maybe"),
        (HOSTNAME, "not a name"),
        (SOURCE_CIDRS, "10.0.0.0/33,foo"),
        (ALGORITHM, "random"),
        (BACKEND, "metal"),
    ])
    .unwrap_err();
    assert_eq!(problems.len(), 6, "{problems:?}");
    assert!(
        problems[4]
            .text
            .contains("\"roundrobin\", \"source\", \"leastconn\""),
        "{}",
        problems[4]
    );
}

#[rstest]
#[case::h_40("10.0.0.1/33")]
#[case::h_41("foo.bar")]
#[case::h_42("10.0.0.1/32,*")]
#[case::h_43_trailing_comma("10.0.0.1/32,")]
#[case::h_44_trailing_comma_and_blank("10.0.0.1/32, ")]
#[case::h_45_no_prefix_length("10.0.0.1")]
fn networks_that_are_refused(#[case] value: &str) {
    for annotation in [SOURCE_CIDRS, SOURCE_RANGES] {
        assert_eq!(
            read(&[(annotation, value)]).unwrap_err()[0].field,
            field(annotation)
        );
    }
}

#[rstest]
#[case::commas_alone(",".repeat(262_000))]
#[case::one_too_many(vec!["10.0.0.0/8"; MAX_NETWORKS + 1].join(","))]
fn a_list_too_long_to_be_read_is_one_short_problem(#[case] value: String) {
    let annotations = BTreeMap::from([(SOURCE_CIDRS.to_owned(), value)]);
    let (settings, problems) = Settings::read(&annotations);
    assert_eq!(problems.first().len(), 1);
    assert!(problems.first()[0].text.contains("at most 500"), "{problems}");
    assert!(problems.to_string().len() < 250, "{problems}");
    assert_eq!(settings.source_cidrs, Networks::Unset, "nothing of it was parsed");
    let longest = vec!["10.0.0.0/8"; MAX_NETWORKS].join(",");
    assert!(read(&[(SOURCE_CIDRS, &longest)]).is_ok());
}

#[test]
fn many_problems_are_counted_and_long_values_are_cut() {
    let longest = "ß".repeat(30_000);
    let value = [longest.as_str(); 4].join(",") + &",".repeat(400);
    let annotations = BTreeMap::from([
        (SOURCE_CIDRS.to_owned(), value),
        (ALGORITHM.to_owned(), longest.clone()),
        (HOSTNAME.to_owned(), longest.clone()),
        (KEEP_IP.to_owned(), longest),
    ]);
    let (_, problems) = Settings::read(&annotations);
    assert_eq!(problems.first().len(), 10);
    let text = problems.to_string();
    assert!(text.len() < 4000, "{} bytes", text.len());
    assert!(text.ends_with("more problems"), "{text}");
}

#[rstest]
#[case::h_46_one("10.0.0.1/32", listed(&["10.0.0.1/32"]))]
#[case::h_48_two("10.0.0.1/32,10.0.0.2/32", listed(&["10.0.0.1/32", "10.0.0.2/32"]))]
#[case::h_49_blanks(" 10.0.0.1/32 , 10.0.0.2/32 ", listed(&["10.0.0.1/32", "10.0.0.2/32"]))]
#[case::h_51_empty("", Networks::Empty)]
#[case::host_bits("192.168.1.7/24", listed(&["192.168.1.0/24"]))]
#[case::ipv6("2001:db8::/32", listed(&["2001:db8::/32"]))]
fn networks_that_are_read(#[case] value: &str, #[case] expected: Networks) {
    let settings = read(&[(SOURCE_CIDRS, value), (SOURCE_RANGES, value)]).unwrap();
    assert_eq!(settings.source_cidrs, expected);
    assert_eq!(settings.source_ranges, expected);
}

#[rstest]
#[case::plain("lb.example.com", Some("lb.example.com"))]
#[case::capitals_and_dot("LB.Example.com.", Some("lb.example.com"))]
#[case::one_label("lb", Some("lb"))]
#[case::address("192.0.2.1", None)]
#[case::underscore("a_b.example.com", None)]
#[case::edge_dash("-a.example.com", None)]
#[case::empty_label("a..b", None)]
fn a_host_name_is_one_that_a_status_may_show(#[case] value: &str, #[case] expected: Option<&str>) {
    assert_eq!(
        read(&[(HOSTNAME, value)])
            .ok()
            .and_then(|settings| settings.hostname)
            .as_deref(),
        expected
    );
}

#[test]
fn what_the_controller_before_recorded_is_read_without_complaint() {
    assert!(
        read(&[(IP_ASSOCIATED, "true")])
            .unwrap()
            .ip_associated_by_controller
    );
    assert!(
        !read(&[(IP_ASSOCIATED, "True")])
            .unwrap()
            .ip_associated_by_controller
    );
    assert_eq!(read(&[(SERVED_BY, "nonsense")]).unwrap().served_by, None);
}

#[rstest]
#[case::said("true", true)]
#[case::denied("false", false)]
#[case::unreadable("ja", true)]
fn an_address_is_kept_rather_than_lost(#[case] word: &str, #[case] expected: bool) {
    assert_eq!(
        Settings::keeps_address(&BTreeMap::from([(KEEP_IP.to_owned(), word.to_owned())])),
        expected
    );
    assert!(!Settings::keeps_address(&BTreeMap::new()));
}

#[test]
fn stickiness_annotations_are_known_and_without_effect() {
    let settings = read(&[(STICKY_METHOD, "LbCookie"), (STICKY_PARAM, "holdtime=3600")]).unwrap();
    assert_eq!(settings.without_effect, [STICKY_METHOD, STICKY_PARAM]);
}

#[test]
fn no_name_stands_twice_in_the_table_and_outputs_have_no_example() {
    let names: std::collections::BTreeSet<_> = TABLE.iter().map(|annotation| annotation.name).collect();
    assert_eq!(names.len(), TABLE.len());
    for annotation in TABLE
        .iter()
        .filter(|annotation| annotation.direction == Direction::Output)
    {
        assert!(annotation.example.is_empty(), "{}", annotation.name);
    }
}

#[test]
fn every_word_of_the_table_can_be_read() {
    for annotation in TABLE
        .iter()
        .filter(|annotation| annotation.direction == Direction::Input)
    {
        for word in annotation.words() {
            assert!(
                read(&[(annotation.name, word)]).is_ok(),
                "{} {word}",
                annotation.name
            );
        }
        if !annotation.example.is_empty() {
            assert!(
                read(&[(annotation.name, annotation.example)]).is_ok(),
                "{}",
                annotation.name
            );
        }
    }
}

/// The page under docs/ is what the table says. `UPDATE_GOLDEN=1` writes it anew.
#[test]
fn the_reference_page_is_made_from_the_table() {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/reference/annotations.md");
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, reference()).unwrap();
    }
    let page = std::fs::read_to_string(&path).unwrap();
    assert!(
        page == reference(),
        "docs/reference/annotations.md is old; run the test with UPDATE_GOLDEN=1"
    );
}

#[test]
fn every_output_counts_where_the_backend_that_writes_it_runs_and_nowhere_else() {
    let outputs = TABLE
        .iter()
        .filter(|known| known.direction == Direction::Output)
        .map(|known| known.name);
    for name in outputs {
        let writers: &[(&str, BackendName)] = if name == SERVED_BY {
            &[
                ("cloud", BackendName::Cloud),
                ("keepalived", BackendName::Keepalived),
            ]
        } else {
            &[("x", BackendName::Cloud)]
        };
        for (value, writer) in writers {
            let there = BTreeMap::from([(name.to_owned(), (*value).to_owned())]);
            assert!(has_outputs(&there, Running::Both), "{name}");
            for only in BackendName::ALL {
                assert_eq!(
                    has_outputs(&there, Running::One(only)),
                    only == *writer,
                    "{name}: {value}"
                );
            }
        }
    }
}
