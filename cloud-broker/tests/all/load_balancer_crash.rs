//! Brokers that die at any call: whatever happens in between, the next one finds exactly what is there.

use std::net::IpAddr;

use cloud_broker::load_balancer::Farewell;
use cloudstack_simulator::{Dump, Effect, Fault, Handle, NetworkSeed, Seed};
use proto::v1;

use super::client_support::until;
use super::load_balancer_support::{
    Broker, Endpoint, calls, cloud, farewell, isolated, picture, service, tier, wish,
};

/// Where a broker lives and what it is asked for.
#[derive(Clone, Copy)]
struct Shape {
    seed: fn() -> Seed,
    caller: &'static str,
    project: bool,
    edit: fn(&mut v1::Wish),
}

const ISOLATED: Shape = Shape {
    seed: isolated,
    caller: "demo",
    project: false,
    edit: |_| {},
};

const RESTRICTED: Shape = Shape {
    edit: |wish| {
        wish.sources = vec!["10.0.0.0/8".to_owned(), "192.0.2.0/24".to_owned()];
        wish.requested_address = "127.100.0.99".to_owned();
    },
    ..ISOLATED
};

const TIER: Shape = Shape {
    seed: tier_with_own_list,
    ..ISOLATED
};

const PROJECT: Shape = Shape {
    seed: project,
    project: true,
    ..ISOLATED
};

fn tier_with_own_list() -> Seed {
    tier("custom", &["custom"])
}

fn project() -> Seed {
    let network = NetworkSeed::isolated("k8s", "127.101.0.0/24").project("team");
    Seed::builder()
        .account("demo")
        .project("team", &["demo"])
        .network_seed(network)
        .machines("k8s", "node-", 3)
        .build()
}

impl Shape {
    async fn broker(&self, cloud: &Handle) -> Broker {
        let mut endpoint = Endpoint::of(cloud, self.caller);
        if self.project {
            let broker = Broker::at(&endpoint);
            let projects = broker.api.projects().await.unwrap().into_items();
            endpoint.project = projects.first().map(|project| project.id.clone());
        }
        Broker::at(&endpoint)
    }

    fn wish(&self, cloud: &Handle) -> v1::Wish {
        let mut wish = wish(cloud, &[(80, 30080), (443, 30443)]);
        (self.edit)(&mut wish);
        wish
    }
}

/// From this call on, by number, nothing gets through any more: the process is dead.
fn kill_at(cloud: &Handle, number: u64, executed: bool) {
    let effect = if executed {
        Effect::CutAfter
    } else {
        Effect::CutBefore
    };
    cloud.add_fault(Fault::at("*", number, effect));
    cloud.add_fault(Fault::at("*", number + 1, Effect::CutBefore).times(u64::MAX));
}

/// Works until it is done or dead; `None` is dead.
async fn alive<T>(cloud: &Handle, work: impl Future<Output = T>) -> Option<T> {
    tokio::select! {
        done = work => (!struck(cloud)).then_some(done),
        () = until(|| struck(cloud)) => None,
    }
}

fn struck(cloud: &Handle) -> bool {
    cloud
        .faults()
        .iter()
        .any(|state| state.seen >= state.fault.nth && state.fault.times == 1)
}

/// What a person left on the account; nobody may touch it.
async fn strangers(broker: &Broker, cloud: &Handle) -> Vec<String> {
    let other = "kcs1 cluster=ffffffff-0000-4000-8000-00000000000f service=00000001-1111-4111-8111-111111111111 address=own";
    let mut hand = Broker::at(&Endpoint::of(cloud, "demo"));
    hand.api = broker.api.clone();
    hand.uids = super::load_balancer_support::cluster("ffffffff-0000-4000-8000-00000000000f");
    // The same Service in a cluster that this one was restored from.
    hand.ensure(&service(1), &wish(cloud, &[(80, 30080)]), &[])
        .await
        .unwrap();
    assert!(
        cloud.dump().rules.iter().any(|rule| rule
            .description
            .as_deref()
            .unwrap_or_default()
            .starts_with(other))
    );
    picture(&cloud.dump())
}

fn without(dump: &Dump, known: &[String]) -> Vec<String> {
    picture(dump)
        .into_iter()
        .filter(|line| !known.contains(line))
        .collect()
}

/// Annotations as somebody who wants the address, or somebody else's released, would write them.
fn forge(wish: &mut v1::Wish, farewell: &mut Farewell, round: u64, ip: IpAddr) {
    let hint = if round.is_multiple_of(2) {
        ip.to_string()
    } else {
        "192.0.2.1".to_owned()
    };
    wish.adoption = Some(v1::Adoption {
        load_balancer_ip: hint.clone(),
        ip_associated_by_controller: round.is_multiple_of(3),
    });
    farewell.adoption.load_balancer_ip = hint;
    farewell.adoption.ip_associated_by_controller = round.is_multiple_of(3);
}

#[rstest::rstest]
#[case::isolated(ISOLATED)]
#[case::restricted(RESTRICTED)]
#[case::tier(TIER)]
#[case::project(PROJECT)]
#[tokio::test]
async fn a_broker_that_dies_while_it_makes_a_balancer_leaks_nothing(
    #[case] shape: Shape,
    #[values(false, true)] executed: bool,
) {
    for number in 1.. {
        let cloud = cloud((shape.seed)()).await;
        let broker = shape.broker(&cloud).await;
        let known = strangers(&broker, &cloud).await;
        let (mut wish, mut farewell) = (shape.wish(&cloud), farewell());
        kill_at(&cloud, number, executed);
        let first = alive(&cloud, broker.ensure(&service(1), &wish, &[])).await;
        drop(broker);
        cloud.clear_faults();
        cloud.settled().await;
        forge(&mut wish, &mut farewell, number, "127.100.0.99".parse().unwrap());
        let broker = shape.broker(&cloud).await;
        let (served, _) = broker.ensure(&service(1), &wish, &[]).await.unwrap();
        let seen = without(&cloud.dump(), &known);
        let addresses: Vec<&String> = seen.iter().filter(|line| line.starts_with("address ")).collect();
        assert_eq!(
            addresses,
            [&format!("address {} Allocated", served.ingress.ip)],
            "died at call {number}"
        );
        assert!(served.outputs.address_owned, "died at call {number}: {seen:#?}");
        let rules = seen.iter().filter(|line| line.starts_with("rule ")).count();
        let filters = seen
            .iter()
            .filter(|line| !line.starts_with("rule ") && !line.starts_with("address "))
            .count();
        assert_eq!((rules, filters), (2, 2), "died at call {number}: {seen:#?}");
        assert!(
            seen.iter()
                .filter(|line| line.starts_with("rule "))
                .all(|line| line.contains("node-3")),
            "{seen:#?}"
        );
        // And nothing is left when it goes, whatever its annotations say.
        let departed = broker.delete(&service(1), farewell).await.unwrap();
        assert_eq!(departed.released, [served.ingress.ip], "died at call {number}");
        assert_eq!(picture(&cloud.dump()), known, "died at call {number}");
        if let Some(first) = first {
            first.unwrap();
            assert!(number > 8, "the matrix has {number} points only");
            return;
        }
    }
}

#[rstest::rstest]
#[case::isolated(ISOLATED)]
#[case::restricted(RESTRICTED)]
#[case::tier(TIER)]
#[case::project(PROJECT)]
#[tokio::test]
async fn a_broker_that_dies_while_it_ends_a_balancer_leaks_nothing(
    #[case] shape: Shape,
    #[values(false, true)] executed: bool,
) {
    for number in 1.. {
        let cloud = cloud((shape.seed)()).await;
        let broker = shape.broker(&cloud).await;
        let known = strangers(&broker, &cloud).await;
        let (mut wish, mut farewell) = (shape.wish(&cloud), farewell());
        broker.ensure(&service(1), &wish, &[]).await.unwrap();
        kill_at(&cloud, number, executed);
        let first = alive(&cloud, broker.delete(&service(1), farewell.clone())).await;
        drop(broker);
        cloud.clear_faults();
        cloud.settled().await;
        forge(&mut wish, &mut farewell, number, "127.100.0.99".parse().unwrap());
        let broker = shape.broker(&cloud).await;
        broker.delete(&service(1), farewell).await.unwrap();
        assert_eq!(picture(&cloud.dump()), known, "died at call {number}");
        let before = calls(&cloud).1;
        broker
            .delete(&service(1), super::load_balancer_support::farewell())
            .await
            .unwrap();
        assert_eq!(calls(&cloud).1, before, "a second end changes nothing");
        if let Some(first) = first {
            first.unwrap();
            return;
        }
    }
}

#[tokio::test]
async fn a_broker_that_dies_while_the_address_changes_leaks_nothing() {
    for executed in [false, true] {
        for number in 1.. {
            let cloud = cloud(isolated()).await;
            let broker = Broker::new(&cloud);
            let mut wish = ISOLATED.wish(&cloud);
            let (old, _) = broker.ensure(&service(1), &wish, &[]).await.unwrap();
            wish.requested_address = "127.100.0.77".to_owned();
            let mut published = vec![old.ingress.ip];
            kill_at(&cloud, number, executed);
            let mut died = false;
            for _ in 0..2 {
                match alive(&cloud, broker.ensure(&service(1), &wish, &published)).await {
                    Some(done) => published = vec![done.unwrap().0.ingress.ip],
                    None => died = true,
                }
            }
            drop(broker);
            cloud.clear_faults();
            cloud.settled().await;
            let dump = cloud.dump();
            let serving = |ip: &IpAddr| {
                dump.rules
                    .iter()
                    .filter(|rule| rule.address == ip.to_string() && rule.members.len() == 3)
                    .count()
            };
            assert!(
                published.iter().all(|ip| serving(ip) == 2),
                "what is published serves; died at call {number}"
            );
            let broker = Broker::new(&cloud);
            for _ in 0..2 {
                published = vec![
                    broker
                        .ensure(&service(1), &wish, &published)
                        .await
                        .unwrap()
                        .0
                        .ingress
                        .ip,
                ];
            }
            let addresses: Vec<String> = cloud.dump().acquired().map(|row| row.address.clone()).collect();
            assert_eq!(addresses, ["127.100.0.77"], "died at call {number}");
            broker.delete(&service(1), farewell()).await.unwrap();
            assert_eq!(
                picture(&cloud.dump()),
                Vec::<String>::new(),
                "died at call {number}"
            );
            if !died {
                break;
            }
        }
    }
}
