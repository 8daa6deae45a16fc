//! Plans as people read them: golden texts.

use std::fmt::Write as _;
use std::net::IpAddr;

use cloud_broker::load_balancer::{Demand, Preview};
use proto::v1;

use super::load_balancer_support::{Broker, cloud, farewell, isolated, port_of, service, wish};

fn text(preview: &Preview) -> String {
    let mut text = String::new();
    for step in &preview.steps {
        writeln!(
            text,
            "{} {} ({:?}): {}",
            step.action, step.object, step.impact, step.reason
        )
        .unwrap();
    }
    for note in &preview.notes {
        writeln!(text, "note {}: {}", note.reason, note.text).unwrap();
    }
    if !preview.refused.is_empty() {
        writeln!(text, "refused: {}", preview.refused).unwrap();
    }
    text
}

/// What the plan for another wish says, once the first wish is met.
async fn plan_of(edit: impl FnOnce(&mut v1::Wish), published: impl FnOnce(IpAddr) -> Vec<IpAddr>) -> String {
    let cloud = cloud(isolated()).await;
    let broker = Broker::new(&cloud);
    let mut wanted = wish(&cloud, &[(80, 30080), (443, 30443)]);
    "127.100.0.60".clone_into(&mut wanted.requested_address);
    let (served, _) = broker.ensure(&service(1), &wanted, &[]).await.unwrap();
    edit(&mut wanted);
    text(
        &broker
            .preview(&service(1), &wanted, &published(served.ingress.ip))
            .await
            .unwrap(),
    )
}

fn same(ip: IpAddr) -> Vec<IpAddr> {
    vec![ip]
}

#[tokio::test]
async fn a_new_balancer() {
    let cloud = cloud(isolated()).await;
    let broker = Broker::new(&cloud);
    let mut wanted = wish(&cloud, &[(80, 30080), (443, 30443)]);
    "127.100.0.60".clone_into(&mut wanted.requested_address);
    insta::assert_snapshot!(text(&broker.preview(&service(1), &wanted, &[]).await.unwrap()));
}

#[tokio::test]
async fn nothing_to_do() {
    insta::assert_snapshot!(plan_of(|_| {}, same).await);
}

#[tokio::test]
async fn other_sources() {
    insta::assert_snapshot!(plan_of(|wish| wish.sources = vec!["10.0.0.0/8".to_owned()], same).await);
}

#[tokio::test]
async fn the_proxy_header() {
    insta::assert_snapshot!(plan_of(|wish| wish.ports[0].proxy_protocol = true, same).await);
}

#[tokio::test]
async fn another_node_port() {
    insta::assert_snapshot!(plan_of(|wish| wish.ports[0].node_port = 31080, same).await);
}

#[tokio::test]
async fn another_node_port_of_the_only_rule() {
    let cloud = cloud(isolated()).await;
    let broker = Broker::new(&cloud);
    let mut wanted = wish(&cloud, &[(80, 30080)]);
    "127.100.0.60".clone_into(&mut wanted.requested_address);
    let (served, _) = broker.ensure(&service(1), &wanted, &[]).await.unwrap();
    wanted.ports = vec![port_of(80, 31080)];
    insta::assert_snapshot!(text(
        &broker
            .preview(&service(1), &wanted, &[served.ingress.ip])
            .await
            .unwrap()
    ));
}

#[tokio::test]
async fn another_port() {
    insta::assert_snapshot!(plan_of(|wish| wish.ports[0] = port_of(8080, 30080), same).await);
}

#[tokio::test]
async fn another_address_while_the_old_one_is_published() {
    insta::assert_snapshot!(plan_of(|wish| wish.requested_address = "127.100.0.61".to_owned(), same).await);
}

#[tokio::test]
async fn another_address_that_is_published_already() {
    let published = |_| vec!["127.100.0.61".parse().unwrap()];
    insta::assert_snapshot!(
        plan_of(
            |wish| wish.requested_address = "127.100.0.61".to_owned(),
            published
        )
        .await
    );
}

#[tokio::test]
async fn fewer_nodes_and_another_algorithm() {
    let edit = |wish: &mut v1::Wish| {
        wish.members.truncate(1);
        wish.algorithm = v1::wish::Algorithm::Source.into();
    };
    let plan = plan_of(edit, same).await;
    // The ids of the machines are the seed's.
    assert!(plan.contains("remove members"), "{plan}");
    assert!(
        plan.find("algorithm source").unwrap() < plan.find("remove members").unwrap(),
        "{plan}"
    );
}

#[tokio::test]
async fn the_end() {
    let cloud = cloud(isolated()).await;
    let broker = Broker::new(&cloud);
    let mut wanted = wish(&cloud, &[(80, 30080)]);
    "127.100.0.60".clone_into(&mut wanted.requested_address);
    broker.ensure(&service(1), &wanted, &[]).await.unwrap();
    let plan = async |number: u8| {
        let demand = Demand {
            service: service(number),
            published: vec![],
            goal: farewell(),
        };
        text(
            &broker
                .balancers
                .plan_delete(&broker.tenancy(), &demand)
                .await
                .unwrap(),
        )
    };
    let alone = plan(1).await;
    wanted.ports = vec![port_of(443, 30443)];
    broker.ensure(&service(2), &wanted, &[]).await.unwrap();
    insta::assert_snapshot!(format!(
        "alone:\n{alone}\nshared:\n{}\nunknown:\n{}",
        plan(1).await,
        plan(3).await
    ));
}
