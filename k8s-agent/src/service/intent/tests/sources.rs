//! Who may reach a Service, from the voices that say so.

use super::*;

fn sources(
    ranges: &[&str],
    kubernetes: Option<&str>,
    cloudstack: Option<&str>,
) -> (Result<Vec<String>, Vec<String>>, Vec<String>) {
    let mut annotated = serde_json::Map::new();
    if let Some(value) = kubernetes {
        annotated.insert(annotations::SOURCE_RANGES.to_owned(), json!(value));
    }
    if let Some(value) = cloudstack {
        annotated.insert(annotations::SOURCE_CIDRS.to_owned(), json!(value));
    }
    let change =
        json!({"metadata": {"annotations": annotated}, "spec": {"loadBalancerSourceRanges": ranges}});
    match cloud(&service(change)) {
        Intent::Ensure(wanted) => (
            Ok(wanted.wish.sources),
            wanted.notices.into_iter().map(|notice| notice.reason).collect(),
        ),
        Intent::Refuse(refusal) => {
            let problems = refusal.problems.first().iter();
            (
                Err(problems.map(|problem| problem.field.clone()).collect()),
                Vec::new(),
            )
        }
        other @ (Intent::Remove(_) | Intent::Skip(_) | Intent::Wait(_) | Intent::LeaveTo(_)) => {
            panic!("{other:?}")
        }
    }
}

#[rstest]
#[case::h_50_nothing_set(&[], None, None, &[])]
#[case::h_51_empty_kubernetes_annotation(&[], Some(""), None, &[])]
#[case::h_46_field(&["10.0.0.1/32"], None, None, &["10.0.0.1/32"])]
#[case::h_46_annotation(&[], Some("10.0.0.1/32"), None, &["10.0.0.1/32"])]
#[case::h_47_duplicate(&["10.0.0.1/32", "10.0.0.1/32"], None, None, &["10.0.0.1/32"])]
#[case::h_48_two(&["10.0.0.2/32", "10.0.0.1/32"], None, None, &["10.0.0.1/32", "10.0.0.2/32"])]
#[case::h_49_blanks(&[" 10.0.0.1/32 ", " 10.0.0.2/32"], None, None, &["10.0.0.1/32", "10.0.0.2/32"])]
#[case::h_52_one_host_is_not_everybody(&["10.0.0.1/32"], None, None, &["10.0.0.1/32"])]
#[case::h_55_everybody(&["0.0.0.0/0"], None, None, &[])]
#[case::h_56_everybody_with_host_bits(&["192.168.0.0/0"], None, None, &[])]
#[case::h_57_everybody_and_one(&["10.0.0.1/32", "0.0.0.0/0"], None, None, &[])]
#[case::the_field_hides_the_kubernetes_annotation(&["10.0.0.0/8"], Some("192.0.2.0/24"), None, &["10.0.0.0/8"])]
#[case::both_voices_narrow(&["10.0.0.0/8", "192.0.2.0/24"], None, Some("10.1.0.0/16,172.16.0.0/12"), &["10.1.0.0/16"])]
#[case::both_voices_narrow_the_other_way(&["10.1.0.0/16"], None, Some("10.0.0.0/8"), &["10.1.0.0/16"])]
#[case::everybody_and_some(&["0.0.0.0/0"], None, Some("10.0.0.0/8"), &["10.0.0.0/8"])]
#[case::cloudstack_annotation_alone(&[], None, Some("10.0.0.0/8"), &["10.0.0.0/8"])]
fn sources_are_merged(
    #[case] ranges: &[&str],
    #[case] kubernetes: Option<&str>,
    #[case] cloudstack: Option<&str>,
    #[case] expected: &[&str],
) {
    let (merged, notices) = sources(ranges, kubernetes, cloudstack);
    assert_eq!(merged.unwrap(), expected);
    assert!(notices.is_empty(), "{notices:?}");
}

#[test]
fn lists_that_share_nobody_are_refused() {
    let (merged, _) = sources(&["10.0.0.0/8"], None, Some("192.0.2.0/24"));
    assert_eq!(
        merged.unwrap_err(),
        [annotations::field(annotations::SOURCE_CIDRS)]
    );
}

#[test]
fn an_empty_cloudstack_annotation_restricts_nothing_and_says_so() {
    assert_eq!(
        sources(&[], None, Some("")),
        (Ok(Vec::new()), vec!["SourceCidrsEmpty".to_owned()])
    );
    assert_eq!(
        sources(&["10.0.0.0/8"], None, Some(" ")).0,
        Ok(vec!["10.0.0.0/8".to_owned()])
    );
}

#[test]
fn ipv6_networks_beside_ipv4_ones_are_left_out_with_a_word() {
    let (merged, notices) = sources(&["10.0.0.0/8", "2001:db8::/32"], None, None);
    assert_eq!(merged.unwrap(), ["10.0.0.0/8"]);
    assert_eq!(notices, ["LoadBalancerSourceRangesIgnored"]);
}
