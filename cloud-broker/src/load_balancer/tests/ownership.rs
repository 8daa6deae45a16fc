//! Whose rules and addresses are, and what proves it.

use super::*;

#[rstest]
#[case::our_mark("any name", &mark("c1", UID), Claim::Mine)]
#[case::an_older_uid_of_ours("any name", &mark("c0", UID), Claim::Mine)]
#[case::no_cluster_but_our_service("any name", &mark("-", UID), Claim::Mine)]
#[case::no_cluster_and_another_service(NAME, &mark("-", "other"), Claim::Stranger)]
#[case::a_sibling(NAME, &mark("c1", "other"), Claim::Sibling)]
#[case::our_name_under_another_mark(NAME, &mark("zz", UID), Claim::OtherCluster)]
#[case::our_name(NAME, "", Claim::Mine)]
#[case::our_name_and_text_of_people(NAME, "ask ops", Claim::Mine)]
#[case::our_prefix("a0f1e2d3c4b5a69788796a5b4c3d2e1f-tcp-80-x", "", Claim::Stranger)]
#[case::our_name_in_a_description("shop", NAME, Claim::Stranger)]
fn whose_a_rule_is(#[case] name: &str, #[case] description: &str, #[case] claim: Claim) {
    let mut seen = seen();
    seen.rules = vec![rule("r", name, description, "ip")];
    let survey = Survey::of(&identity(&["c1", "c0"], true), &seen);
    let id = AddressId::parse("ip").unwrap();
    let found = survey.mine().chain(survey.others_on(&id)).next().unwrap();
    assert_eq!(found.claim, claim);
}

#[rstest]
#[case::in_its_network("net", &["-"], true)]
#[case::in_another_network("other", &["-"], false)]
#[case::beside_another_clusters_rule_for_the_service("net", &["-", "zz"], false)]
fn an_item_that_names_no_cluster_is_the_services_only_while_nobody_else_names_that(
    #[case] network: &str,
    #[case] clusters: &[&str],
    #[case] expected: bool,
) {
    let mut identity = identity(&["c1"], true);
    identity.fence.networks = vec![NameOrId::new(network)];
    let mut seen = seen();
    seen.networks = vec![super::network(&json!({}))];
    for cluster in clusters {
        seen.rules
            .push(rule(&format!("rule{cluster}"), "x", &mark(cluster, UID), "ip"));
    }
    let survey = Survey::of(&identity, &seen);
    assert_eq!(survey.is_mine(&identity, &mark("-", UID)), expected);
    // A mark that names the cluster needs no such proof.
    assert!(survey.is_mine(&identity, &mark("c1", UID)));
    assert!(!survey.is_mine(&identity, &mark("-", "other")));
    assert!(!survey.is_mine(&identity, NAME));
}

#[test]
fn an_unmarked_name_counts_as_left_by_an_older_controller_only_while_nothing_is_marked() {
    let identity = identity(&["c1"], true);
    let mut seen = seen();
    seen.rules = vec![rule("r1", NAME, "", "ip")];
    assert!(Survey::of(&identity, &seen).is_unadopted());
    seen.rules.push(rule("r2", NAME, &mark("c1", UID), "ip"));
    let survey = Survey::of(&identity, &seen);
    assert!(!survey.is_unadopted());
    assert_eq!(survey.mine().count(), 2);
}

#[test]
fn without_take_over_the_rules_of_an_older_controller_are_a_strangers() {
    let identity = identity(&["c1"], false);
    let mut seen = seen();
    seen.rules = vec![rule("r1", NAME, "", "ip")];
    let survey = Survey::of(&identity, &seen);
    assert_eq!((survey.is_unadopted(), survey.mine().count()), (false, 0));
}

#[rstest]
#[case::own_mark(&["c1/"], false, AddressWord::Own)]
#[case::own_mark_of_a_sibling(&["c1/other"], false, AddressWord::Own)]
#[case::own_mark_of_another_cluster(&["zz/"], false, AddressWord::Given)]
#[case::given(&["kcs1 cluster=c1 service=x address=given"], false, AddressWord::Given)]
#[case::given_beside_own(&["kcs1 cluster=c1 service=x address=given", "c1/"], false, AddressWord::Own)]
#[case::tag(&[], true, AddressWord::Own)]
#[case::nothing(&[], false, AddressWord::Given)]
fn whose_an_address_is(#[case] marks: &[&str], #[case] tagged: bool, #[case] word: AddressWord) {
    let identity = identity(&["c1"], true);
    let mut seen = seen();
    // `cluster/service` is an own mark of these, of our Service if it names none.
    let text = |short: &str| match short.split_once('/') {
        Some((cluster, "")) => mark(cluster, UID),
        Some((cluster, service)) => mark(cluster, service),
        None => short.to_owned(),
    };
    seen.rules = marks
        .iter()
        .enumerate()
        .map(|(i, short)| rule(&format!("r{i}"), "x", &text(short), "ip"))
        .collect();
    let mut ip = address("ip", None);
    if tagged {
        ip.tags = vec![crate::cloudstack::types::Tag::new("KCS-Cluster", "c1")];
    }
    seen.addresses = vec![ip];
    let id = AddressId::parse("ip").unwrap();
    assert_eq!(Survey::of(&identity, &seen).word(&identity, &seen, &id), word);
}

#[rstest]
#[case::nobody_asked(&[], None)]
#[case::unknown(&[JobView::Unknown], Some(0))]
#[case::failed_then_unknown(&[JobView::Failed("no".to_owned()), JobView::Unknown], Some(1))]
#[case::of_an_earlier_taking(&[succeeded("2031-04-01T00:00:00+0000"), JobView::Unknown], Some(1))]
fn the_first_unknown_job_is_the_next_one(#[case] views: &[JobView], #[case] next: Option<u32>) {
    let identity = identity(&["c1"], true);
    let mut seen = seen();
    let ip = address("ip", Some("2031-05-01T10:00:00+0000"));
    for (n, view) in (0..).zip(views) {
        seen.jobs.insert(job_id(&identity, &ip.id, n), view.clone());
    }
    let expected = match next {
        Some(n) => Proof::NotTaken(job_id(&identity, &ip.id, n)),
        None => Proof::Ask(job_id(&identity, &ip.id, 0)),
    };
    assert_eq!(jobs(&identity, &seen, &ip), expected);
}

fn succeeded(allocated: &str) -> JobView {
    JobView::Succeeded {
        address: AddressId::parse("ip").ok(),
        allocated: Timestamp::parse(allocated),
    }
}

#[test]
fn a_job_proves_an_address_only_as_it_is_taken_now_and_while_no_rule_is_on_it() {
    let identity = identity(&["c1"], true);
    let mut seen = seen();
    let ip = address("ip", Some("2031-05-01T10:00:00+0000"));
    seen.jobs.insert(
        job_id(&identity, &ip.id, 0),
        succeeded("2031-05-01T10:00:00+0000"),
    );
    seen.addresses = vec![ip.clone()];
    assert_eq!(jobs(&identity, &seen, &ip), Proof::Taken);
    assert_eq!(
        Survey::of(&identity, &seen).word(&identity, &seen, &ip.id),
        AddressWord::Own
    );
    seen.rules = vec![rule("r", "by hand", "", "ip")];
    assert_eq!(
        Survey::of(&identity, &seen).word(&identity, &seen, &ip.id),
        AddressWord::Given
    );
}

#[test]
fn jobs_of_other_services_and_clusters_have_other_ids() {
    let ip = AddressId::parse("ip").unwrap();
    let mut other = identity(&["c1"], true);
    other.service.uid = ServiceUid::parse("other").unwrap();
    let ids: BTreeSet<String> = [identity(&["c1"], true), identity(&["c2"], true), other]
        .iter()
        .flat_map(|identity| [job_id(identity, &ip, 0), job_id(identity, &ip, 1)])
        .map(|id| id.to_string())
        .collect();
    assert_eq!(ids.len(), 6);
}
