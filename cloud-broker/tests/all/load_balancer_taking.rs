//! How addresses are taken: one for each balancer, never more than are allowed, and none for what can't be had.

use std::time::Duration;

use cloud_broker::cloudstack::RuleQuery;
use cloud_broker::cloudstack::types::Version;
use cloud_broker::describe::Survey;
use cloud_broker::load_balancer::{Outcome, ServerVersion};
use cloud_broker::tenant::AllowedAddresses;
use cloudstack_simulator::{Effect, Fault, Handle, Hold, NetworkSeed, Seed};
use futures::future::join_all;
use proto::Advice;

use super::client_support::until;
use super::load_balancer_support::{
    Broker, Endpoint, calls, cloud, count, farewell, isolated, picture, service, wish,
};

fn acquired(cloud: &Handle) -> Vec<String> {
    cloud.dump().acquired().map(|row| row.address.clone()).collect()
}

#[tokio::test]
async fn a_wish_that_the_cloud_refuses_every_time_keeps_no_address() {
    let cloud = cloud(isolated()).await;
    let refusal = Effect::error(431, "Parameter cidrList is deprecated");
    cloud.add_fault(Fault::always("createLoadBalancerRule", refusal));
    let wanted = wish(&cloud, &[(80, 30080)]);
    let broker = Broker::new(&cloud);
    for _ in 0..12 {
        let fault = broker.ensure_once(&service(1), &wanted, &[]).await.unwrap_err();
        assert_eq!(&*fault.reason, "REFUSED_BY_CLOUD");
        assert!(fault.text.contains("cidrList"), "{}", fault.text);
        assert!(matches!(fault.advice, Advice::After(wait) if wait >= Duration::from_mins(10)));
        assert_eq!(acquired(&cloud), Vec::<String>::new());
    }
    cloud.clear_faults();
    let (served, _) = broker.ensure(&service(1), &wanted, &[]).await.unwrap();
    assert_eq!(acquired(&cloud), [served.ingress.ip.to_string()]);
}

#[tokio::test]
async fn an_address_that_clients_are_sent_to_stays_although_its_rules_are_gone_and_refused() {
    let cloud = cloud(isolated()).await;
    let broker = Broker::new(&cloud);
    let wanted = wish(&cloud, &[(80, 30080)]);
    let (served, _) = broker.ensure(&service(1), &wanted, &[]).await.unwrap();
    let rules = broker.api.rules(&RuleQuery::All).await.unwrap().into_items();
    for rule in rules {
        let started = broker.api.delete_rule(&rule.id).await.unwrap();
        started.finished().await.unwrap();
    }
    cloud.add_fault(Fault::always("createLoadBalancerRule", Effect::error(431, "no")));
    // A process that has just begun looks before it acts.
    let broker = Broker::new(&cloud);
    let published = [served.ingress.ip];
    let fault = broker
        .ensure_once(&service(1), &wanted, &published)
        .await
        .unwrap_err();
    assert_eq!(&*fault.reason, "REFUSED_BY_CLOUD");
    assert_eq!(acquired(&cloud), [served.ingress.ip.to_string()]);
}

#[tokio::test]
async fn an_address_with_a_rule_is_kept_although_the_cloud_refuses_another_rule() {
    let cloud = cloud(isolated()).await;
    let broker = Broker::new(&cloud);
    let (served, _) = broker
        .ensure(&service(1), &wish(&cloud, &[(80, 30080)]), &[])
        .await
        .unwrap();
    cloud.add_fault(Fault::always("createLoadBalancerRule", Effect::error(431, "no")));
    let more = wish(&cloud, &[(80, 30080), (443, 30443)]);
    let published = [served.ingress.ip];
    broker
        .ensure_once(&service(1), &more, &published)
        .await
        .unwrap_err();
    assert_eq!(acquired(&cloud), [served.ingress.ip.to_string()]);
    assert_eq!(cloud.dump().rules.len(), 1);
}

#[tokio::test]
async fn the_port_of_the_routers_statistics_is_refused_before_an_address_is_taken() {
    let cloud = cloud(isolated()).await;
    let broker = Broker::new(&cloud);
    let wanted = wish(&cloud, &[(80, 30080), (8081, 30081)]);
    let fault = broker.ensure_once(&service(1), &wanted, &[]).await.unwrap_err();
    assert_eq!(fault.field.as_deref(), Some("ports[p8081].port"));
    assert_eq!(calls(&cloud).1, 0);
}

#[tokio::test]
async fn sources_that_an_old_server_would_not_hold_open_no_port() {
    let tier = NetworkSeed::tier("web", "vpc", "127.101.0.0/26").account("demo");
    let seed = Seed::builder()
        .account("demo")
        .vpc("demo", "vpc", "127.101.0.0/24")
        .network_seed(tier)
        .machines("web", "node-", 3)
        .build();
    let cloud = cloud(seed).await;
    let mut broker = Broker::new(&cloud);
    broker.version = ServerVersion::Is(Version::new(4, 17, 1));
    let mut wanted = wish(&cloud, &[(80, 30080)]);
    wanted.sources = vec!["10.0.0.0/8".to_owned()];
    let fault = broker.ensure_once(&service(1), &wanted, &[]).await.unwrap_err();
    assert_eq!(
        (&*fault.reason, fault.field.as_deref()),
        ("SOURCES_NOT_ENFORCEABLE", Some("sources"))
    );
    assert_eq!(picture(&cloud.dump()), Vec::<String>::new());
}

#[tokio::test]
async fn a_server_of_unknown_version_gets_what_works_on_all() {
    let cloud = cloud(isolated()).await;
    let mut broker = Broker::new(&cloud);
    broker.version = ServerVersion::Unknown;
    let mut wanted = wish(&cloud, &[(80, 30080)]);
    let (served, _) = broker.ensure(&service(1), &wanted, &[]).await.unwrap();
    let published = [served.ingress.ip];
    // The router hears of the switch on any server: another algorithm goes with it, and then the right one again.
    cloud.reset_calls();
    wanted.ports[0].proxy_protocol = true;
    broker.ensure(&service(1), &wanted, &published).await.unwrap();
    assert_eq!(count(&cloud, "updateLoadBalancerRule"), 2);
    // A list on a rule may be refused or, in an update, ignored: the firewall holds the sources.
    let before = cloud.dump().rules[0].id;
    wanted.sources = vec!["10.0.0.0/8".to_owned()];
    broker.ensure(&service(1), &wanted, &published).await.unwrap();
    let dump = cloud.dump();
    let rules: Vec<_> = dump
        .rules
        .iter()
        .map(|rule| (rule.id, rule.sources.as_deref()))
        .collect();
    assert_eq!(rules, [(before, None)]);
    assert_eq!(dump.firewall_rules[0].sources, ["10.0.0.0/8"]);
    assert_eq!(acquired(&cloud), [served.ingress.ip.to_string()]);
}

fn cluster_role() -> Seed {
    let network = NetworkSeed::isolated("k8s", "127.101.0.0/24").account("cks");
    Seed::builder()
        .account("demo")
        .account_with_role("cks", "Project Kubernetes Service Role")
        .network_seed(network)
        .machines("k8s", "node-", 1)
        .build()
}

#[rstest::rstest]
#[case::now("cks", None, Some(22))]
#[case::one_that_finds_no_network_by_name(
    "cks",
    Some(("listNetworks", Effect::Raw {
        status: 200,
        content_type: "application/json".to_owned(),
        body: r#"{"listnetworksresponse":{"count":1,"network":[{"id":"x","name":"k8s"}]}}"#.to_owned(),
    })),
    Some(18)
)]
#[case::one_that_answers_401(
    "demo",
    Some(("listCapabilities", Effect::error(
        401, "The given command 'listCapabilities' either does not exist, is not available for user."
    ))),
    Some(17)
)]
#[case::one_that_does_not_answer("cks", Some(("listNetworks", Effect::error(530, "no"))), None)]
#[tokio::test]
async fn the_version_is_learned_from_answers_where_the_key_may_not_ask(
    #[case] caller: &str,
    #[case] answer: Option<(&str, Effect)>,
    #[case] minor: Option<u32>,
) {
    let cloud = cloud(cluster_role()).await;
    if let Some((command, effect)) = answer {
        cloud.add_fault(Fault::always(command, effect));
    }
    let broker = Broker::at(&Endpoint::of(&cloud, caller));
    let survey = Survey::default();
    let expected = minor.map(|minor| Version::new(4, minor, 0));
    assert_eq!(survey.version(&broker.api).await.unwrap(), expected);
    // It is asked once.
    let before = calls(&cloud).0;
    assert_eq!(survey.version(&broker.api).await.unwrap(), expected);
    assert_eq!(calls(&cloud).0 == before, expected.is_some());
}

#[tokio::test]
async fn services_that_are_made_at_once_get_no_more_addresses_than_are_allowed() {
    let cloud = cloud(isolated()).await;
    cloud.change_options(|options| options.delays.job = Duration::from_millis(20));
    let mut broker = Broker::new(&cloud);
    broker.policy.max_public_ips = Some(3);
    let wanted = wish(&cloud, &[(80, 30080)]);
    let services: Vec<_> = (1..=10).map(service).collect();
    let all = join_all(services.iter().map(|one| broker.ensure(one, &wanted, &[]))).await;
    let served = all.iter().filter(|result| result.is_ok()).count();
    let refused = all
        .iter()
        .filter_map(|result| result.as_ref().err())
        .filter(|fault| fault.reason == "MAX_PUBLIC_IPS")
        .count();
    assert_eq!((served, refused), (3, 7));
    assert_eq!(acquired(&cloud).len(), 3);
    // One that goes makes room for one.
    let gone = services
        .iter()
        .zip(&all)
        .find(|(_, result)| result.is_ok())
        .unwrap()
        .0;
    broker.delete(gone, farewell()).await.unwrap();
    let left_out = services
        .iter()
        .zip(&all)
        .find(|(_, result)| result.is_err())
        .unwrap()
        .0;
    broker.ensure(left_out, &wanted, &[]).await.unwrap();
    assert_eq!(acquired(&cloud).len(), 3);
}

#[tokio::test]
async fn the_next_service_takes_its_address_while_the_job_of_the_first_one_runs() {
    let cloud = cloud(isolated()).await;
    cloud.hold_jobs(&[Hold::at_start("associateIpAddress")]);
    let broker = Broker::new(&cloud);
    let wanted = wish(&cloud, &[(80, 30080)]);
    let (first, second) = (service(1), service(2));
    let (one, two, ()) = futures::join!(
        broker.ensure(&first, &wanted, &[]),
        broker.ensure(&second, &wanted, &[]),
        async {
            until(|| count(&cloud, "associateIpAddress") == 2).await;
            cloud.hold_jobs(&[]);
            cloud.release_jobs().await;
        }
    );
    let mut addresses = vec![
        one.unwrap().0.ingress.ip.to_string(),
        two.unwrap().0.ingress.ip.to_string(),
    ];
    addresses.sort();
    let mut taken = acquired(&cloud);
    taken.sort();
    assert_eq!(taken, addresses);
}

#[tokio::test]
async fn a_service_that_takes_no_address_after_all_does_not_hold_up_others() {
    let cloud = cloud(isolated()).await;
    let wanted = wish(&cloud, &[(80, 30080)]);
    // The first one has an address that its broker took before it died.
    cloud.add_fault(Fault::always("createLoadBalancerRule", Effect::CutBefore));
    let (dying, first, second) = (Broker::new(&cloud), service(1), service(2));
    tokio::select! {
        done = dying.ensure(&first, &wanted, &[]) => panic!("{done:?}"),
        () = until(|| count(&cloud, "createLoadBalancerRule") > 0) => {}
    }
    drop(dying);
    cloud.clear_faults();
    cloud.settled().await;
    let taken = acquired(&cloud);
    let slow = Effect::slow(Duration::from_secs(2));
    cloud.add_fault(Fault::at("createLoadBalancerRule", 1, slow));
    let broker = Broker::new(&cloud);
    cloud.reset_calls();
    let (one, two, rules) = futures::join!(
        broker.ensure(&first, &wanted, &[]),
        async {
            until(|| count(&cloud, "createLoadBalancerRule") == 1).await;
            broker.ensure(&second, &wanted, &[]).await
        },
        async {
            until(|| count(&cloud, "associateIpAddress") == 1).await;
            cloud.dump().rules.len()
        }
    );
    assert_eq!(
        rules, 0,
        "the second one took its address before the first one had its rule"
    );
    assert_eq!(
        [one.unwrap().0.ingress.ip.to_string()].as_slice(),
        taken.as_slice()
    );
    assert_ne!(two.unwrap().0.ingress.ip.to_string(), taken[0]);
}

#[tokio::test]
async fn a_job_that_fails_while_it_is_waited_for_is_followed_by_another_try() {
    let cloud = cloud(isolated()).await;
    cloud.hold_jobs(&[Hold::at_start("associateIpAddress")]);
    let failing = Effect::FailJob {
        code: 530,
        text: "no".to_owned(),
    };
    cloud.add_fault(Fault::at("associateIpAddress", 1, failing));
    let wanted = wish(&cloud, &[(80, 30080)]);
    let (dying, ensured) = (Broker::new(&cloud), service(1));
    tokio::select! {
        done = dying.ensure(&ensured, &wanted, &[]) => panic!("{done:?}"),
        () = until(|| count(&cloud, "associateIpAddress") == 1 && !acquired(&cloud).is_empty()) => {}
    }
    drop(dying);
    let broker = Broker::new(&cloud);
    let polls = calls(&cloud).2;
    let (served, ()) = futures::join!(broker.ensure(&ensured, &wanted, &[]), async {
        until(|| calls(&cloud).2 >= polls + 3).await;
        cloud.hold_jobs(&[]);
        cloud.release_jobs().await;
    });
    assert!(served.unwrap().0.outputs.address_owned);
}

#[tokio::test]
async fn an_address_that_is_being_taken_when_the_broker_dies_is_waited_for() {
    let cloud = cloud(isolated()).await;
    cloud.hold_jobs(&[Hold::at_start("associateIpAddress")]);
    let wanted = wish(&cloud, &[(80, 30080)]);
    let (dying, ensured) = (Broker::new(&cloud), service(1));
    tokio::select! {
        done = dying.ensure(&ensured, &wanted, &[]) => panic!("{done:?}"),
        () = until(|| count(&cloud, "associateIpAddress") == 1 && !acquired(&cloud).is_empty()) => {}
    }
    drop(dying);
    let taken = acquired(&cloud);
    let broker = Broker::new(&cloud);
    let polls = calls(&cloud).2;
    let (served, ()) = futures::join!(broker.ensure(&ensured, &wanted, &[]), async {
        // It is awaited by now, or another one is taken.
        until(|| calls(&cloud).2 >= polls + 3 || count(&cloud, "associateIpAddress") > 1).await;
        cloud.hold_jobs(&[]);
        cloud.release_jobs().await;
    });
    assert_eq!(
        [served.unwrap().0.ingress.ip.to_string()].as_slice(),
        taken.as_slice()
    );
    assert_eq!(acquired(&cloud), taken);
}

#[tokio::test]
async fn an_allowed_address_far_down_the_list_of_free_ones_is_taken() {
    let cloud = cloud(isolated()).await;
    let mut broker = Broker::new(&cloud);
    broker.policy.allowed_addresses = AllowedAddresses::of(vec!["127.100.0.200/31".parse().unwrap()]);
    let wanted = wish(&cloud, &[(80, 30080)]);
    let mut taken = Vec::new();
    for number in 1..=2 {
        let (served, _) = broker.ensure(&service(number), &wanted, &[]).await.unwrap();
        taken.push(served.ingress.ip.to_string());
    }
    taken.sort();
    assert_eq!(taken, ["127.100.0.200", "127.100.0.201"]);
    let answer = broker.ensure_once(&service(3), &wanted, &[]).await.unwrap();
    assert!(matches!(answer.outcome, Outcome::Pending(wait) if wait.reason == "NO_FREE_ADDRESS"));
}

#[tokio::test]
async fn a_network_that_is_missing_is_told_with_the_nodes_that_were_looked_at() {
    let seed = Seed::builder()
        .account("demo")
        .account("other")
        .network("demo", "k8s", "127.101.0.0/24")
        .network("other", "theirs", "127.102.0.0/24")
        .machines("k8s", "node-", 7)
        .build();
    let cloud = cloud(seed).await;
    let astray = Broker::at(&Endpoint::of(&cloud, "other"));
    let wanted = wish(&cloud, &[(80, 30080)]);
    let answer = astray.ensure_once(&service(1), &wanted, &[]).await.unwrap();
    let Outcome::Pending(wait) = answer.outcome else {
        panic!("{answer:?}")
    };
    assert_eq!(wait.reason, "NO_NETWORK");
    assert!(
        wait.text
            .contains("node-1, node-2, node-3, node-4, node-5 and 2 more"),
        "{}",
        wait.text
    );
}

#[tokio::test]
async fn what_a_new_service_needs_for_its_address_is_read_beside_the_lists() {
    let cloud = cloud(isolated()).await;
    let broker = Broker::new(&cloud);
    let wanted = wish(&cloud, &[(80, 30080)]);
    // Nodes were looked up before.
    assert!(broker.machines.within(&broker.api, Duration::ZERO).await.is_ok());
    let endless = Effect::slow(Duration::from_mins(1));
    cloud.add_fault(Fault::always("listNetworks", endless));
    let service = service(1);
    tokio::select! {
        answer = broker.ensure_once(&service, &wanted, &[]) => panic!("{answer:?}"),
        // Those that are taken, those being taken, free ones.
        () = until(|| count(&cloud, "listPublicIpAddresses") == 3) => {}
    }
}
