//! Which address is taken, as tables on what was seen.

use rstest::rstest;
use serde_json::json;

use super::{CANDIDATES, MOST_TRIES};
use crate::cloudstack::types::{AddressId, Entity, Fields, JobId, PublicIpAddress, Timestamp, ZoneId};
use crate::load_balancer::features::Features;
use crate::load_balancer::names::Names;
use crate::load_balancer::observation::{JobView, Need, Observation, Taken};
use crate::load_balancer::ownership::{Identity, job_id};
use crate::load_balancer::plan::{End, Goal, Plan, Request, Step, plan};
use crate::load_balancer::wish::{ServiceRef, ServiceUid, Wish};
use crate::tenant::{AllowedAddresses, ClusterUid, ClusterUids, Policy, Scope};
use proto::v1;

const CLUSTER: &str = "c1";
const UID: &str = "0f1e2d3c-4b5a-6978-8796-a5b4c3d2e1f0";
const NOW: &str = "2031-05-02T12:00:00+0000";
const JUST_NOW: &str = "2031-05-02T11:59:00+0000";

fn entity<T: Entity>(value: &serde_json::Value) -> T {
    T::parse(Fields::of(value)).unwrap()
}

/// A network with two machines, and five free addresses.
fn seen() -> Observation {
    let mut seen = Observation::empty(Timestamp::parse(NOW).unwrap(), Features::NEWEST);
    seen.networks = vec![entity(&json!({
        "id": "net", "name": "k8s", "type": "Isolated", "state": "Implemented",
        "service": [{ "name": "Lb" }, { "name": "Firewall" }],
    }))];
    let machine: crate::cloudstack::types::Machine = entity(&json!({
        "id": "m1", "name": "m1", "state": "Running", "nic": [{ "networkid": "net", "isdefault": true }],
    }));
    seen.machines = [(machine.id.clone(), machine)].into();
    seen.unsettled = Some(Vec::new());
    seen.free = Some((1..=5).map(|n| address(n, "Free", false)).collect());
    seen
}

fn address(number: u8, state: &str, in_network: bool) -> PublicIpAddress {
    let mut value =
        json!({ "id": format!("ip-{number}"), "ipaddress": format!("192.0.2.{number}"), "state": state });
    if state != "Free" {
        value["allocated"] = JUST_NOW.into();
    }
    if in_network {
        value["associatednetworkid"] = "net".into();
    }
    entity(&value)
}

fn request(policy: Policy, requested: &str) -> Request {
    let service = ServiceRef {
        uid: ServiceUid::parse(UID).unwrap(),
        namespace: "shop".to_owned(),
        name: "web".to_owned(),
    };
    let wish = v1::Wish {
        ports: vec![v1::WishPort {
            name: "http".to_owned(),
            protocol: v1::wish_port::Protocol::Tcp.into(),
            port: 80,
            node_port: 30080,
            proxy_protocol: false,
        }],
        members: vec![v1::WishMember {
            node_name: "m1".to_owned(),
            machine: Some(v1::wish_member::Machine::MachineId("m1".to_owned())),
        }],
        requested_address: requested.to_owned(),
        ..v1::Wish::default()
    };
    Request {
        identity: Identity {
            names: Names::of(&service, "kubernetes"),
            service,
            uids: ClusterUids::configured(vec![ClusterUid::new(CLUSTER).unwrap()]),
            take_over: true,
            fence: Scope::default(),
        },
        scope: Scope::default(),
        goal: Goal::Serve(Box::new(Wish::from_proto(Some(&wish), &policy).unwrap().0)),
        policy,
        published: Vec::new(),
        nodes_visible: true,
    }
}

fn id(number: u8) -> AddressId {
    AddressId::parse(&format!("ip-{number}")).unwrap()
}

fn job(request: &Request, number: u8, n: u32) -> JobId {
    job_id(&request.identity, &id(number), n)
}

/// Plans, and lets every job that is asked for be what `view` says.
fn planned(request: &Request, seen: &mut Observation, view: impl Fn(&JobId) -> JobView) -> Plan {
    for _ in 0..100 {
        let plan = plan(request, seen);
        let asked: Vec<JobId> = plan
            .needs
            .iter()
            .filter_map(|need| {
                if let Need::Job(job) = need {
                    Some(job.clone())
                } else {
                    None
                }
            })
            .collect();
        if asked.is_empty() {
            return plan;
        }
        for job in asked {
            let view = view(&job);
            seen.jobs.insert(job, view);
        }
    }
    panic!("it asks for ever")
}

fn taken(plan: &Plan) -> Option<(AddressId, JobId)> {
    if let Step::Associate { address, request } = &plan.steps.first()?.step {
        Some((address.clone(), request.job.clone()))
    } else {
        None
    }
}

#[test]
fn jobs_that_always_fail_end_in_a_long_wait_with_their_own_words_and_a_bounded_row() {
    let request = request(Policy::default(), "");
    let mut failed: Vec<JobId> = Vec::new();
    for _ in 0..100 {
        let mut seen = seen();
        let view = |job: &JobId| {
            if failed.contains(job) {
                JobView::Failed("no source nat here".to_owned())
            } else {
                JobView::Unknown
            }
        };
        let plan = planned(&request, &mut seen, view);
        if let Some((_, job)) = taken(&plan) {
            failed.push(job);
            continue;
        }
        let End::Wait(wait) = &plan.end else {
            panic!("{plan:?}")
        };
        assert_eq!(wait.reason, "ADDRESS_NOT_OBTAINED");
        assert!(wait.text.contains("no source nat here"), "{}", wait.text);
        assert!(wait.retry_after >= std::time::Duration::from_mins(5));
        break;
    }
    let most = CANDIDATES * usize::try_from(MOST_TRIES).unwrap();
    assert_eq!(failed.len(), most);
}

#[test]
fn a_requested_address_whose_jobs_always_fail_is_waited_for_at_length() {
    let request = request(Policy::default(), "192.0.2.3");
    let mut seen = seen();
    seen.digits
        .insert("192.0.2.3".parse().unwrap(), Some(address(3, "Free", false)));
    let failed: Vec<JobId> = (0..MOST_TRIES).map(|n| job(&request, 3, n)).collect();
    let plan = planned(&request, &mut seen, |job| {
        if failed.contains(job) {
            JobView::Failed("no source nat here".to_owned())
        } else {
            JobView::Unknown
        }
    });
    assert!(plan.steps.is_empty());
    assert!(matches!(&plan.end, End::Wait(wait) if wait.text.contains("no source nat here")));
}

#[test]
fn an_address_that_was_taken_and_given_back_often_is_taken_again_if_no_other_is_free() {
    let request = request(Policy::default(), "");
    let mut seen = seen();
    seen.free = Some(vec![address(1, "Free", false)]);
    let used: Vec<JobId> = (0..7).map(|n| job(&request, 1, n)).collect();
    let earlier = JobView::Succeeded {
        address: Some(id(1)),
        allocated: Timestamp::parse("2031-05-02T01:00:00+0000"),
    };
    let plan = planned(&request, &mut seen, |job| {
        if used.contains(job) {
            earlier.clone()
        } else {
            JobView::Unknown
        }
    });
    assert_eq!(taken(&plan), Some((id(1), job(&request, 1, 7))));
}

#[test]
fn an_address_that_is_being_taken_shows_no_network_and_is_waited_for() {
    let request = request(Policy::default(), "");
    let mut seen = seen();
    seen.unsettled = Some(vec![address(9, "Allocating", false)]);
    let own = job(&request, 9, 0);
    let plan = planned(&request, &mut seen, |job| {
        if *job == own {
            JobView::Running
        } else {
            JobView::Unknown
        }
    });
    assert!(matches!(&plan.end, End::Await(job) if *job == own), "{plan:?}");
}

#[test]
fn an_address_whose_job_ended_after_the_list_was_read_is_looked_up() {
    let request = request(Policy::default(), "");
    let mut seen = seen();
    seen.unsettled = Some(vec![address(9, "Allocating", false)]);
    let own = job(&request, 9, 0);
    let done = JobView::Succeeded {
        address: Some(id(9)),
        allocated: Timestamp::parse(JUST_NOW),
    };
    let view = |job: &JobId| {
        if *job == own {
            done.clone()
        } else {
            JobView::Unknown
        }
    };
    let first = planned(&request, &mut seen, view);
    assert_eq!(first.needs, [Need::Address(id(9))]);
    seen.addresses.push(address(9, "Allocated", true));
    seen.firewall_read = true;
    let then = planned(&request, &mut seen, view);
    assert!(
        matches!(&then.steps[0].step, Step::CreateRule { rule, .. } if rule.address == id(9)),
        "{then:?}"
    );
}

#[test]
fn a_requested_address_whose_job_ended_after_the_look_is_looked_at_again_soon() {
    let request = request(Policy::default(), "192.0.2.3");
    let mut seen = seen();
    let allocating = address(3, "Allocating", false);
    seen.digits.insert(allocating.ip, Some(allocating));
    let done = JobView::Succeeded {
        address: Some(id(3)),
        allocated: Timestamp::parse(JUST_NOW),
    };
    let plan = planned(&request, &mut seen, |_| done.clone());
    let End::Wait(wait) = &plan.end else {
        panic!("{plan:?}")
    };
    assert_eq!(wait.reason, "ADDRESS_PENDING");
    assert!(wait.retry_after < std::time::Duration::from_secs(5));
}

#[test]
fn what_this_process_takes_for_another_service_is_not_asked_for() {
    let request = request(Policy::default(), "");
    let mut seen = seen();
    seen.unsettled = Some(vec![address(9, "Allocating", false)]);
    seen.taken.insert(id(9), of(CLUSTER, "another service"));
    let plan = plan(&request, &seen);
    assert!(!plan.needs.contains(&Need::Job(job(&request, 9, 0))), "{plan:?}");
}

fn of(cluster: &str, service: &str) -> Taken {
    Taken {
        cluster: cluster.to_owned(),
        service: service.to_owned(),
        lately: true,
    }
}

#[rstest]
#[case::none(&[], true)]
#[case::one_of_another_service(&[of(CLUSTER, "another service")], true)]
#[case::two_of_others(&[of(CLUSTER, "one"), of(CLUSTER, "two")], false)]
#[case::one_of_another_cluster(&[of(CLUSTER, "one"), of("c9", "two")], true)]
#[case::one_of_this_service(&[of(CLUSTER, "one"), of(CLUSTER, UID)], true)]
fn addresses_on_their_way_to_other_services_count_before_the_turn_is_asked_for(
    #[case] on_their_way: &[Taken],
    #[case] may: bool,
) {
    let policy = Policy {
        max_public_ips: Some(2),
        ..Policy::default()
    };
    let request = request(policy, "");
    let mut seen = seen();
    (seen.unsettled, seen.free) = (None, None);
    for (number, taken) in (10..).zip(on_their_way) {
        seen.taken.insert(id(number), taken.clone());
    }
    let plan = plan(&request, &seen);
    let refused = matches!(&plan.end, End::Refused(fault) if fault.reason == "MAX_PUBLIC_IPS");
    assert_eq!((plan.needs.contains(&Need::Unsettled), refused), (may, !may));
}

#[test]
fn a_cluster_with_its_own_addresses_looks_for_these_among_the_free_ones() {
    let only = "192.0.2.4/32".parse().unwrap();
    let policy = Policy {
        allowed_addresses: AllowedAddresses::of(vec![only]),
        ..Policy::default()
    };
    let mut seen = seen();
    seen.free = None;
    for policy in [policy, Policy::default()] {
        let among = policy.allowed_addresses.clone();
        let needs = [Need::Free { zone: None, among }];
        assert_eq!(plan(&request(policy, ""), &seen).needs, needs);
    }
}

#[test]
fn a_free_address_of_another_zone_is_not_taken() {
    let request = request(Policy::default(), "");
    let zone = |name: &str| Some(ZoneId::parse(name).unwrap());
    let mut seen = seen();
    for network in &mut seen.networks {
        network.zone_id = zone("here");
    }
    for address in seen.free.iter_mut().flatten() {
        address.zone_id = zone(if address.id == id(3) { "here" } else { "there" });
    }
    let plan = planned(&request, &mut seen, |_| JobView::Unknown);
    assert_eq!(taken(&plan).map(|(address, _)| address), Some(id(3)));
}
