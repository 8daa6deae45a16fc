//! Which Services are ours, and which backend is to serve them.

use super::*;

fn word(intent: &Intent) -> &'static str {
    match intent {
        Intent::Ensure(_) => "ensure",
        Intent::Remove(removal) => match removal.ending {
            Ending::Deleted => "remove: deleted",
            Ending::TypeChanged => "remove: type",
            Ending::ClassChanged => "remove: class",
            Ending::Vanished => "remove: vanished",
        },
        Intent::Skip(_) => "skip",
        Intent::Refuse(_) => "refuse",
        Intent::Wait(_) => "wait",
        Intent::LeaveTo(_) => "leave",
    }
}

fn finalizer() -> Value {
    json!({"finalizers": ["example/other", FINALIZER]})
}

#[rstest]
#[case::s_01_cluster_ip(json!({"spec": {"type": "ClusterIP"}}), "skip")]
#[case::s_02_udp(json!({"spec": {"ports": [{"port": 53, "protocol": "UDP", "nodePort": 30053}]}}), "ensure")]
#[case::s_03_tcp(json!({}), "ensure")]
#[case::s_05_class_of_somebody_else(json!({"spec": {"loadBalancerClass": "example.com/lb"}}), "skip")]
#[case::s_06_type_changed_with_finalizer(
    json!({"metadata": finalizer(), "spec": {"type": "ClusterIP"}}), "remove: type")]
#[case::s_07_deleted_with_finalizer(
    json!({"metadata": {"deletionTimestamp": NOW, "finalizers": [FINALIZER]}}), "remove: deleted")]
#[case::s_08_served_already(json!({"metadata": finalizer()}), "ensure")]
#[case::s_19_no_finalizer_no_cleanup(json!({"spec": {"type": "NodePort"}}), "skip")]
#[case::s_20_finalizer_and_node_port(json!({"metadata": finalizer(), "spec": {"type": "NodePort"}}), "remove: type")]
#[case::s_21_finalizer_and_load_balancer(json!({"metadata": finalizer()}), "ensure")]
#[case::s_22_finalizer_and_deletion(
    json!({"metadata": {"deletionTimestamp": NOW, "finalizers": [FINALIZER]}, "spec": {"type": "NodePort"}}),
    "remove: deleted")]
#[case::s_168_deleted_without_our_finalizer(
    json!({"metadata": {"deletionTimestamp": NOW, "finalizers": ["example/other"]}}), "skip")]
#[case::class_of_somebody_else_with_the_finalizer_of_all_controllers(
    json!({"metadata": finalizer(), "spec": {"loadBalancerClass": "example.com/lb"}}), "skip")]
#[case::class_of_somebody_else_deleted(
    json!({"metadata": {"deletionTimestamp": NOW, "finalizers": [FINALIZER]},
           "spec": {"loadBalancerClass": "example.com/lb"}}), "skip")]
#[case::s_169_class_of_somebody_else_with_our_outputs(
    json!({"metadata": {"finalizers": [FINALIZER], "annotations": {annotations::ID: "ip-1"}},
           "spec": {"loadBalancerClass": "example.com/lb"}}), "remove: class")]
#[case::class_of_somebody_else_with_our_record(
    json!({"metadata": {"finalizers": [FINALIZER], "annotations": {annotations::SERVED_BY: "cloud"}},
           "spec": {"loadBalancerClass": "example.com/lb"}}), "remove: class")]
#[case::class_of_somebody_else_with_a_record_of_a_backend_that_does_not_run(
    json!({"metadata": {"finalizers": [FINALIZER], "annotations": {annotations::SERVED_BY: "keepalived"}},
           "spec": {"loadBalancerClass": "example.com/lb"}}), "skip")]
#[case::class_of_our_other_backend_with_outputs(
    json!({"metadata": {"finalizers": [FINALIZER], "annotations": {annotations::ID: "ip-1"}},
           "spec": {"loadBalancerClass": KEEPALIVED_CLASS}}), "skip")]
#[case::class_of_somebody_else_with_our_outputs_deleted(
    json!({"metadata": {"deletionTimestamp": NOW, "finalizers": [FINALIZER],
                        "annotations": {annotations::NETWORK_ID: "net-1"}},
           "spec": {"loadBalancerClass": "example.com/lb"}}), "remove: class")]
#[case::our_class(json!({"spec": {"loadBalancerClass": CLOUD_CLASS}}), "ensure")]
#[case::class_of_a_backend_that_does_not_run(json!({"spec": {"loadBalancerClass": KEEPALIVED_CLASS}}), "skip")]
#[case::no_uid(json!({"metadata": {"uid": ""}}), "skip")]
#[case::deletion_wins_over_a_refusal(
    json!({"metadata": {"deletionTimestamp": NOW, "finalizers": [FINALIZER],
                        "annotations": {annotations::PROXY_PROTOCOL: "maybe"}}}),
    "remove: deleted")]
fn which_services_are_ours(#[case] change: Value, #[case] expected: &str) {
    assert_eq!(word(&cloud(&service(change))), expected);
}

#[test]
fn the_finalizer_of_another_class_outlives_the_class() {
    let foreign = Circumstances {
        was_foreign: true,
        ..circumstances()
    };
    let look = |change, circumstances| {
        let mut plain = json!({"metadata": {"finalizers": [FINALIZER]}, "spec": {"type": "ClusterIP"}});
        merge(&mut plain, change);
        of(
            &service(plain),
            &rules(Running::One(BackendName::Cloud)),
            circumstances,
        )
    };
    let deleted = json!({"metadata": {"deletionTimestamp": NOW}});
    assert!(matches!(look(json!({}), foreign), Intent::Skip(Skip::OtherClass)));
    assert!(matches!(look(deleted, foreign), Intent::Skip(Skip::OtherClass)));
    let released = json!({"metadata": {"finalizers": []}});
    assert!(matches!(
        look(released, foreign),
        Intent::Skip(Skip::NotALoadBalancer)
    ));
    let asked = Circumstances {
        asked: true,
        ..foreign
    };
    assert_eq!(word(&look(json!({}), asked)), "remove: type");
    let without_a_class = json!({"spec": {"type": "LoadBalancer"}});
    assert_eq!(word(&look(without_a_class, foreign)), "ensure");
}

#[test]
fn a_service_that_this_process_served_is_ours_to_end_also_with_another_class() {
    let asked = Circumstances {
        asked: true,
        ..circumstances()
    };
    for deletion in [Value::Null, json!(NOW)] {
        let moved = service(json!({
            "metadata": {"finalizers": [FINALIZER], "deletionTimestamp": deletion},
            "spec": {"loadBalancerClass": "example.com/lb"},
        }));
        let intent = of(&moved, &rules(Running::One(BackendName::Cloud)), asked);
        assert_eq!(word(&intent), "remove: class");
    }
}

/// What an agent with one backend makes of a Service of this class with the finalizer and these annotations.
fn with_one_backend(
    only: BackendName,
    class: &str,
    annotations: &Value,
    circumstances: Circumstances<'_>,
) -> &'static str {
    let service = service(json!({
        "metadata": {"finalizers": [FINALIZER], "annotations": annotations},
        "spec": {"loadBalancerClass": class},
    }));
    word(&of(&service, &rules(Running::One(only)), circumstances))
}

#[test]
fn of_two_agents_side_by_side_none_ends_what_the_other_serves() {
    let cloud_outputs = json!({annotations::ID: "ip-1", annotations::NETWORK_ID: "net-1", annotations::IP_ASSOCIATED: "true"});
    let pool_output = json!({annotations::SERVED_BY: "keepalived"});
    let recorded = Circumstances {
        keepalived_holds: Holds::Yes,
        keepalived_records: true,
        ..circumstances()
    };
    let keepalived = |annotations, circumstances| {
        with_one_backend(BackendName::Keepalived, CLOUD_CLASS, annotations, circumstances)
    };
    assert_eq!(keepalived(&cloud_outputs, circumstances()), "skip");
    assert_eq!(keepalived(&cloud_outputs, recorded), "skip");
    let cloud = |annotations, circumstances| {
        with_one_backend(BackendName::Cloud, KEEPALIVED_CLASS, annotations, circumstances)
    };
    assert_eq!(cloud(&pool_output, circumstances()), "skip");
    assert_eq!(cloud(&cloud_outputs, circumstances()), "skip");
    let asked = Circumstances {
        asked: true,
        ..circumstances()
    };
    assert_eq!(
        cloud(&cloud_outputs, asked),
        "remove: class",
        "this process served it"
    );
    assert_eq!(keepalived(&pool_output, asked), "remove: class");
}

#[test]
fn a_service_that_left_for_a_foreign_class_while_nobody_looked_is_ended_by_its_record() {
    let look = |circumstances| {
        with_one_backend(
            BackendName::Keepalived,
            "example.com/lb",
            &json!({}),
            circumstances,
        )
    };
    let recorded = Circumstances {
        keepalived_holds: Holds::Yes,
        keepalived_records: true,
        ..circumstances()
    };
    assert_eq!(look(recorded), "remove: class");
    let one_of_its_name = Circumstances {
        keepalived_records: false,
        ..recorded
    };
    assert_eq!(
        look(one_of_its_name),
        "skip",
        "the finalizer is the other controller's"
    );
}

#[rstest]
#[case::pool_taken_from_the_command_line(BackendName::Cloud, json!({annotations::SERVED_BY: "keepalived"}))]
#[case::broker_taken_from_the_command_line(BackendName::Keepalived, json!({annotations::SERVED_BY: "cloud"}))]
#[case::keepalived_after_the_cloud_alone(BackendName::Keepalived, json!({annotations::ID: "ip-1"}))]
fn a_published_address_of_the_other_backend_is_not_taken_over(
    #[case] only: BackendName,
    #[case] annotations: Value,
) {
    let published = service(json!({
        "metadata": {"finalizers": [FINALIZER], "annotations": annotations},
        "status": {"loadBalancer": {"ingress": [{"ip": "192.0.2.7"}]}},
    }));
    let intent = of(&published, &rules(Running::One(only)), circumstances());
    assert_eq!(word(&intent), "leave");
    let remembered = Circumstances {
        served_by: Some(only),
        ..circumstances()
    };
    let intent = of(&published, &rules(Running::One(only)), remembered);
    assert_eq!(word(&intent), "ensure", "an annotation written by hand");
}

#[rstest]
#[case::h_72_none(json!({}), false)]
#[case::h_73_unrelated(json!({"finalizers": ["example/other"]}), false)]
#[case::h_74_ours(json!({"finalizers": [FINALIZER]}), true)]
#[case::h_75_ours_and_unrelated(finalizer(), true)]
fn whether_our_finalizer_is_there(#[case] metadata: Value, #[case] expected: bool) {
    assert_eq!(has_finalizer(&service(json!({"metadata": metadata}))), expected);
}

#[test]
fn with_two_backends_the_choice_is_recorded_and_a_new_service_waits_for_the_broker() {
    let both = rules(Running::Both);
    assert!(matches!(
        of(&service(json!({})), &both, circumstances()),
        Intent::Wait(_)
    ));
    let offered = Circumstances {
        offer: Offer::LoadBalancer,
        ..circumstances()
    };
    let wanted = ensured(of(&service(json!({})), &both, offered));
    assert_eq!(wanted.backend, BackendName::Cloud);
    assert!(wanted.record_backend);
}

#[test]
fn what_is_wrong_is_said_even_while_the_backend_is_not_chosen() {
    let both = rules(Running::Both);
    let problems = refused(of(
        &service(annotated(annotations::PROXY_PROTOCOL, "on")),
        &both,
        circumstances(),
    ));
    assert_eq!(problems.len(), 1);
}

#[rstest]
#[case::recorded(json!({"metadata": {"annotations": {(annotations::SERVED_BY): "keepalived"}}}), true)]
#[case::by_class(json!({"spec": {"loadBalancerClass": KEEPALIVED_CLASS}}), true)]
#[case::recorded_for_the_cloud(json!({"metadata": {"annotations": {(annotations::SERVED_BY): "cloud"}}}), false)]
#[case::the_clouds_class(json!({"spec": {"loadBalancerClass": CLOUD_CLASS}}), false)]
#[case::nothing_said(json!({}), false)]
fn an_address_is_from_a_pool_where_the_record_or_the_class_says_so(
    #[case] change: Value,
    #[case] from_pool: bool,
) {
    assert_eq!(is_from_pool(&service(change), Running::Both), from_pool);
}

#[test]
fn who_serves_is_what_this_process_remembers_and_not_what_the_service_says() {
    let edited = service(json!({
        "metadata": {"annotations": {annotations::SERVED_BY: "keepalived"}},
        "status": {"loadBalancer": {"ingress": [{"ip": "192.0.2.7"}]}},
    }));
    let both = rules(Running::Both);
    let remembered = Circumstances {
        served_by: Some(BackendName::Cloud),
        ..circumstances()
    };
    assert_eq!(
        ensured(of(&edited, &both, remembered)).backend,
        BackendName::Cloud
    );
    assert_eq!(
        ensured(of(&edited, &both, circumstances())).backend,
        BackendName::Keepalived,
        "after a restart it is all that is known"
    );
}
