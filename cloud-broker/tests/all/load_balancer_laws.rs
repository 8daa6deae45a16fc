//! Laws of the plan, with the simulated cloud as the model: it settles, a second plan is empty, nobody else's things are touched, and
//! at every step what clients are sent to serves as promised.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU32, Ordering};

use cloud_broker::load_balancer::{Demand, Outcome, Permit, Served, Wish};
use cloudstack_simulator::{Dump, Effect, Fault as Script, Handle};
use proptest::prelude::*;
use proto::{Fault, FaultKind, v1};

use super::load_balancer_support::{
    Broker, cloud, cluster, farewell, isolated, picture, port_of, service, wish,
};

/// One wish of a row.
#[derive(Clone, Debug)]
struct Turn {
    ports: Vec<(u32, u32, bool)>,
    sources: Vec<&'static str>,
    algorithm: i32,
    requested: &'static str,
    members: u8,
    /// A command whose job fails the so-many-th time, as when the router refuses.
    refusal: Option<(&'static str, u64)>,
    /// The broker is started anew.
    restart: bool,
}

fn turn() -> impl Strategy<Value = Turn> {
    let port = (
        prop::sample::select(vec![80_u32, 443, 8080]),
        0_u32..2,
        any::<bool>(),
    );
    let ports = prop::collection::btree_map(
        port.clone().prop_map(|port| port.0),
        port.prop_map(|port| (port.1, port.2)),
        1..=3,
    );
    let sources = prop::sample::subsequence(vec!["10.0.0.0/8", "192.0.2.0/24", "198.51.100.0/25"], 0..=3);
    let requested = prop::sample::select(vec!["", "", "127.100.0.60", "127.100.0.61"]);
    let refused = prop::sample::select(vec![
        "createFirewallRule",
        "deleteFirewallRule",
        "updateLoadBalancerRule",
        "deleteLoadBalancerRule",
        "assignToLoadBalancerRule",
        "removeFromLoadBalancerRule",
        "disassociateIpAddress",
    ]);
    let refusal = prop::option::of((refused, 1_u64..3));
    (
        ports,
        sources,
        0_i32..4,
        requested,
        (1_u8..8).prop_map(|members| members | 1),
        refusal,
        any::<bool>(),
    )
        .prop_map(
            |(ports, sources, algorithm, requested, members, refusal, restart)| Turn {
                ports: ports
                    .into_iter()
                    .map(|(port, (node, proxy))| (port, 30000 + port % 1000 + node, proxy))
                    .collect(),
                sources,
                algorithm,
                requested,
                members,
                refusal,
                restart,
            },
        )
}

impl Turn {
    fn wish(&self, cloud: &Handle) -> v1::Wish {
        let mut wish = wish(cloud, &[]);
        wish.ports = self
            .ports
            .iter()
            .map(|(port, node_port, proxy)| v1::WishPort {
                proxy_protocol: *proxy,
                ..port_of(*port, *node_port)
            })
            .collect();
        wish.sources = self.sources.iter().map(|range| (*range).to_owned()).collect();
        wish.algorithm = self.algorithm;
        wish.requested_address = self.requested.to_owned();
        let all = std::mem::take(&mut wish.members);
        wish.members = all
            .into_iter()
            .enumerate()
            .filter(|(i, _)| self.members & (1 << i) != 0)
            .map(|(_, m)| m)
            .collect();
        wish
    }
}

/// Lets one round through.
struct Once(AtomicU32);

impl Permit for Once {
    fn still_wanted(&self) -> Result<(), Fault> {
        if self.0.fetch_add(1, Ordering::SeqCst) == 0 {
            Ok(())
        } else {
            Err(Fault::new(FaultKind::Conflict, "STOPPED", "one round only"))
        }
    }
}

/// Ports that are the same before and after, as `(public, node port)`.
fn lasting(before: &v1::Wish, after: &v1::Wish) -> BTreeSet<(u32, u32)> {
    let ports = |wish: &v1::Wish| {
        wish.ports
            .iter()
            .map(|port| (port.port, port.node_port))
            .collect::<BTreeSet<_>>()
    };
    ports(before).intersection(&ports(after)).copied().collect()
}

/// On every published address each lasting port has an active rule with members and an open firewall.
fn serves(dump: &Dump, published: &[IpAddr], ports: &BTreeSet<(u32, u32)>) -> Result<(), String> {
    for ip in published.iter().map(ToString::to_string) {
        for (port, node_port) in ports {
            let rule = dump.rules.iter().any(|rule| {
                rule.address == ip
                    && u32::from(rule.public_port) == *port
                    && u32::from(rule.private_port) == *node_port
                    && !rule.members.is_empty()
                    && rule.state != "Deleting"
            });
            let open = dump.firewall_rules.iter().any(|rule| {
                rule.address == ip
                    && rule.ports.is_some_and(|ports| u32::from(ports.0) == *port)
                    && rule.state == "Active"
            });
            if !rule || !open {
                return Err(format!(
                    "{ip}:{port} does not serve (rule {rule}, open {open}): {:#?}",
                    picture(dump)
                ));
            }
        }
    }
    Ok(())
}

fn wanted(dump: &Dump, served: &Served, wish: &v1::Wish, known: &[String]) -> Result<(), String> {
    let ip = served.ingress.ip.to_string();
    let rules: BTreeSet<(u32, u32, bool)> = dump
        .rules
        .iter()
        .filter(|rule| rule.address == ip && rule.name.starts_with('a'))
        .map(|rule| {
            (
                rule.public_port.into(),
                rule.private_port.into(),
                rule.protocol.as_deref() == Some("tcp-proxy"),
            )
        })
        .collect();
    let expected: BTreeSet<(u32, u32, bool)> = wish
        .ports
        .iter()
        .map(|port| (port.port, port.node_port, port.proxy_protocol))
        .collect();
    let strangers = known.iter().all(|line| picture(dump).contains(line));
    let members = dump
        .rules
        .iter()
        .filter(|rule| rule.address == ip)
        .all(|rule| rule.members.len() == wish.members.len());
    if rules == expected && strangers && members {
        Ok(())
    } else {
        Err(format!(
            "{rules:?} {expected:?} strangers {strangers} members {members}: {:#?}",
            picture(dump)
        ))
    }
}

async fn step(
    broker: &Broker,
    wish: &v1::Wish,
    published: &[IpAddr],
) -> Result<Option<(Served, u32)>, Fault> {
    let (goal, _) = Wish::from_proto(Some(wish), &broker.policy)?;
    let demand = Demand {
        service: service(1),
        published: published.to_vec(),
        goal,
    };
    let deadline = runtime::clock::now() + std::time::Duration::from_secs(20);
    let once = Once(AtomicU32::new(0));
    match broker
        .balancers
        .ensure(&broker.tenancy(), &demand, &once, deadline)
        .await
    {
        Ok(answer) => match answer.outcome {
            Outcome::Settled(served) => Ok(Some((served, answer.changes))),
            Outcome::Pending(wait) => Err(Fault::new(FaultKind::Busy, wait.reason, wait.text)),
        },
        Err(fault) if fault.reason == "STOPPED" => Ok(None),
        Err(fault) => Err(fault),
    }
}

#[expect(clippy::too_many_lines, reason = "one life")]
async fn lives(turns: Vec<Turn>) -> Result<(), String> {
    let cloud = cloud(isolated()).await;
    let mut other = Broker::new(&cloud);
    other.uids = cluster("dddddddd-0000-4000-8000-00000000000d");
    other
        .ensure(&service(1), &wish(&cloud, &[(80, 30080)]), &[])
        .await
        .map_err(|fault| fault.text)?;
    let known = picture(&cloud.dump());
    let mut broker = Broker::new(&cloud);
    let (mut published, mut before) = (Vec::new(), v1::Wish::default());
    for (number, turn) in turns.iter().enumerate() {
        if turn.restart {
            broker = Broker::new(&cloud);
        }
        let wish = turn.wish(&cloud);
        let ports = lasting(&before, &wish);
        cloud.clear_faults();
        if let Some((command, nth)) = turn.refusal {
            let effect = Effect::FailJob {
                code: 530,
                text: "the router refuses".to_owned(),
            };
            cloud.add_fault(Script::at(command, nth, effect));
        }
        let mut steps = 0;
        let served = loop {
            steps += 1;
            if steps > 200 {
                return Err(format!(
                    "turn {number} does not settle: {:#?}",
                    picture(&cloud.dump())
                ));
            }
            match step(&broker, &wish, &published).await {
                Ok(Some((served, _))) => break served,
                Ok(None) => {}
                Err(fault) if matches!(fault.kind, FaultKind::Internal | FaultKind::Quota) && steps < 100 => {
                }
                Err(fault) => return Err(format!("turn {number}: {fault:?}")),
            }
            serves(&cloud.dump(), &published, &ports)
                .map_err(|text| format!("turn {number}, step {steps}: {text}"))?;
        };
        let before_publishing = published.clone();
        published = vec![served.ingress.ip];
        if before_publishing != published {
            // The agent has written the status; now the old address may go.
            loop {
                match step(&broker, &wish, &published)
                    .await
                    .map_err(|fault| format!("turn {number}: {fault:?}"))?
                {
                    Some(_) => break,
                    None => serves(&cloud.dump(), &published, &lasting(&wish, &wish))?,
                }
            }
        }
        wanted(&cloud.dump(), &served, &wish, &known).map_err(|text| format!("turn {number}: {text}"))?;
        // Neither this broker nor one that knows nothing has anything left to do.
        for again in [&broker, &Broker::new(&cloud)] {
            let (_, changes) = again
                .ensure(&service(1), &wish, &published)
                .await
                .map_err(|fault| fault.text)?;
            if changes != 0 {
                return Err(format!(
                    "turn {number}: a second plan is not empty ({changes}): {:#?}",
                    picture(&cloud.dump())
                ));
            }
        }
        before = wish;
    }
    broker
        .delete(&service(1), farewell())
        .await
        .map_err(|fault| fault.text)?;
    let left = picture(&cloud.dump());
    if left == known {
        Ok(())
    } else {
        Err(format!("left: {left:#?}"))
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, max_shrink_iters: 30, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_row_of_wishes_is_met_one_after_the_other(turns in prop::collection::vec(turn(), 1..5)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let result = runtime.block_on(lives(turns));
        prop_assert!(result.is_ok(), "{}", result.unwrap_err());
    }
}
