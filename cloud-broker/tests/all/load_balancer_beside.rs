//! What is done at the same time, and what becomes of the rest when one of several steps fails or the caller goes.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use cloud_broker::load_balancer::{Outcome, Permit};
use cloudstack_simulator::{Effect, Fault as Script, Handle, Hold};
use proto::{Fault, FaultKind};

use super::client_support::until;
use super::load_balancer_support::{Broker, cloud, count, isolated, service, wish};

async fn let_go(cloud: &Handle) {
    cloud.hold_jobs(&[]);
    cloud.release_jobs().await;
}

#[tokio::test]
async fn members_are_assigned_while_their_port_is_being_opened() {
    let cloud = cloud(isolated()).await;
    cloud.hold_jobs(&[Hold::at_start("createFirewallRule")]);
    let broker = Broker::new(&cloud);
    let wanted = wish(&cloud, &[(80, 30080)]);
    let (one, balancer) = (service(1), |dump: &cloudstack_simulator::Dump| {
        dump.rules
            .iter()
            .map(|rule| rule.members.len())
            .collect::<Vec<_>>()
    });
    let (served, ()) = futures::join!(broker.ensure(&one, &wanted, &[]), async {
        until(|| balancer(&cloud.dump()) == [3]).await;
        let_go(&cloud).await;
    });
    assert_eq!(served.unwrap().1, 4);
}

#[tokio::test]
async fn the_next_ports_are_built_while_members_of_the_first_are_assigned() {
    let cloud = cloud(isolated()).await;
    cloud.hold_jobs(&[Hold::at_start("assignToLoadBalancerRule")]);
    let broker = Broker::new(&cloud);
    let wanted = wish(&cloud, &[(80, 30080), (81, 30081), (82, 30082)]);
    let one = service(1);
    let (served, ()) = futures::join!(broker.ensure(&one, &wanted, &[]), async {
        until(|| count(&cloud, "assignToLoadBalancerRule") == 3).await;
        assert_eq!(count(&cloud, "createFirewallRule"), 3);
        let_go(&cloud).await;
    });
    assert_eq!(served.unwrap().1, 10);
}

#[tokio::test]
async fn ports_are_opened_one_after_the_other_while_members_are_assigned() {
    let cloud = cloud(isolated()).await;
    cloud.hold_jobs(&[Hold::at_start("createFirewallRule")]);
    let broker = Broker::new(&cloud);
    let wanted = wish(&cloud, &[(80, 30080), (81, 30081)]);
    let one = service(1);
    let (served, ()) = futures::join!(broker.ensure(&one, &wanted, &[]), async {
        until(|| cloud.dump().rules.iter().any(|rule| rule.members.len() == 3)).await;
        assert_eq!(count(&cloud, "createLoadBalancerRule"), 1);
        let_go(&cloud).await;
    });
    served.unwrap();
}

#[tokio::test]
async fn what_the_others_did_is_known_although_one_of_them_was_not_allowed() {
    let cloud = cloud(isolated()).await;
    let broker = Broker::new(&cloud);
    let ports = [(80, 30080), (81, 30081), (82, 30082)];
    let (served, _) = broker
        .ensure(&service(1), &wish(&cloud, &ports), &[])
        .await
        .unwrap();
    cloud.add_machine("node-4", "k8s", None).unwrap();
    let (wanted, published) = (wish(&cloud, &ports), [served.ingress.ip]);
    cloud.add_fault(Script::at(
        "assignToLoadBalancerRule",
        1,
        Effect::error(531, "no"),
    ));
    let fault = broker
        .ensure_once(&service(1), &wanted, &published)
        .await
        .unwrap_err();
    assert_eq!(fault.kind, FaultKind::Denied);
    cloud.clear_faults();
    cloud.reset_calls();
    broker.ensure(&service(1), &wanted, &published).await.unwrap();
    assert_eq!(count(&cloud, "assignToLoadBalancerRule"), 1);
    assert!(cloud.dump().rules.iter().all(|rule| rule.members.len() == 4));
}

/// Somebody who is wanted so many times.
struct Times(AtomicU32);

impl Permit for Times {
    fn still_wanted(&self) -> Result<(), Fault> {
        let left = self
            .0
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1));
        left.map(|_| ())
            .map_err(|_| Fault::new(FaultKind::Conflict, "STOPPED", "another one is in charge"))
    }
}

#[tokio::test]
async fn nothing_begins_for_a_caller_that_is_followed_by_another_and_what_began_is_waited_for() {
    let cloud = cloud(isolated()).await;
    cloud.change_options(|options| options.delays.job = Duration::from_millis(20));
    let broker = Broker::new(&cloud);
    let wanted = wish(&cloud, &[(80, 30080), (81, 30081)]);
    // An address, a rule, and what begins with its port; not what comes after.
    let permit = Times(AtomicU32::new(3));
    let fault = broker
        .ensure_while(&service(1), &wanted, &[], &permit)
        .await
        .unwrap_err();
    assert_eq!(&*fault.reason, "STOPPED");
    let dump = cloud.dump();
    let members: Vec<_> = dump.rules.iter().map(|rule| rule.members.len()).collect();
    assert_eq!((members, dump.firewall_rules.len()), (vec![3], 1));
    let answer = broker.ensure_once(&service(1), &wanted, &[]).await.unwrap();
    assert!(matches!(answer.outcome, Outcome::Settled(_)), "{answer:?}");
    assert_eq!(answer.changes, 3);
}
