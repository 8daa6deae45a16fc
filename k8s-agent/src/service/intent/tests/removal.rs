//! What a removal tells the backend.

use super::*;

#[test]
fn a_removal_tells_what_keeps_the_address_and_where_to_look() {
    let gone = service(json!({
        "metadata": {"deletionTimestamp": NOW, "finalizers": [FINALIZER], "annotations": {
            annotations::KEEP_IP: "jawohl", annotations::NETWORK: " tier-1 ", annotations::IP_ASSOCIATED: "true"}},
        "spec": {"loadBalancerIP": "192.0.2.7"},
        "status": {"loadBalancer": {"ingress": [{"ip": "192.0.2.7"}, {"hostname": "a.example"}]}},
    }));
    let Intent::Remove(Removal { order, .. }) = cloud(&gone) else {
        panic!("not removed")
    };
    assert!(order.keep_address);
    assert_eq!(order.network, "tier-1");
    assert_eq!(order.published, ["192.0.2.7"]);
    assert_eq!(order.adoption.load_balancer_ip, "192.0.2.7");
    assert!(order.adoption.ip_associated_by_controller);
    assert_eq!(order.reference.name, "web");
}

#[test]
fn behind_a_host_name_the_addresses_are_those_that_are_remembered() {
    let named = service(json!({"status": {"loadBalancer": {"ingress": [{"hostname": "lb.example.com"}]}}}));
    let remembered = ["192.0.2.7".to_owned()];
    assert_eq!(published(&named, &remembered), remembered);
    let plain = service(json!({"status": {"loadBalancer": {"ingress": [{"ip": "192.0.2.8"}]}}}));
    assert_eq!(published(&plain, &remembered), ["192.0.2.8"]);
    assert!(
        published(&service(json!({})), &remembered).is_empty(),
        "nothing is published"
    );
}

#[rstest]
#[case::remembered(&["192.0.2.7"], None, &["192.0.2.7"])]
#[case::asked_for_and_perhaps_never_had(&[], Some("192.0.2.8"), &[])]
#[case::memory_wins(&["192.0.2.7"], Some("192.0.2.8"), &["192.0.2.7"])]
#[case::nothing_known(&[], None, &[])]
fn a_removal_names_the_address_behind_a_host_name_only_where_it_is_remembered(
    #[case] remembered: &[&str],
    #[case] asked: Option<&str>,
    #[case] expected: &[&str],
) {
    let remembered: Vec<_> = remembered.iter().map(|&ip| ip.to_owned()).collect();
    let gone = service(json!({
        "metadata": {"deletionTimestamp": NOW, "finalizers": [FINALIZER]},
        "spec": {"loadBalancerIP": asked},
        "status": {"loadBalancer": {"ingress": [{"hostname": "lb.example.com"}]}},
    }));
    let circumstances = Circumstances {
        behind_host_name: &remembered,
        ..circumstances()
    };
    let Intent::Remove(Removal { order, .. }) =
        of(&gone, &rules(Running::One(BackendName::Cloud)), circumstances)
    else {
        panic!("not removed")
    };
    assert_eq!(order.published, expected);
}
