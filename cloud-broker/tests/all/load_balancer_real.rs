//! Load balancers on a real `CloudStack`, if the environment names one. A new broker for every single step: whatever it knows
//! it has looked at.

use std::net::IpAddr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use cloud_broker::cloudstack::types::{AddressState, Network, Version};
use cloud_broker::cloudstack::{AddressQuery, ApiKeys, MachineQuery, RuleQuery};
use cloud_broker::load_balancer::{
    Demand, Outcome, Permit, Served, ServerVersion, ServiceRef, ServiceUid, Wish,
};
use proto::{Fault, FaultKind, v1};

use super::client_support::network_named;
use super::load_balancer_support::{Broker, Endpoint, farewell, port_of};

#[expect(
    clippy::disallowed_methods,
    reason = "whether there is a server is a fact of the test's environment"
)]
fn variable(name: &str) -> String {
    std::env::var(name).unwrap_or_else(|_| panic!("{name} is not set"))
}

#[derive(Clone, Copy)]
struct Place {
    network: &'static str,
    keys: &'static str,
    project: bool,
}

impl Place {
    fn broker(self) -> Broker {
        runtime::host::install_tls_provider();
        let key = |name: &str| variable(&format!("CLOUDSTACK_{}{name}", self.keys)).into();
        let mut broker = Broker::at(&Endpoint {
            url: variable("CLOUDSTACK_API_URL"),
            keys: ApiKeys {
                api_key: key("API_KEY"),
                secret_key: key("SECRET_KEY"),
            },
            project: self
                .project
                .then(|| variable("CLOUDSTACK_PROJECT_ID").parse().unwrap()),
            pace: 1.0,
        });
        // The role of managed clusters may not ask for the version, and its user names none.
        broker.version = (self.keys != "CKS_").then(release).into();
        broker
    }

    /// Whether something can hold the sources: the firewall, or the rules' own lists.
    fn filters(self) -> bool {
        self.network == "lab-net" || release() >= Version::new(4, 18, 0)
    }
}

fn release() -> Version {
    Version::parse(&variable("CLOUDSTACK_RELEASE")).unwrap()
}

fn service() -> ServiceRef {
    let uid = ServiceUid::parse(&uuid::Uuid::new_v4().to_string()).unwrap();
    ServiceRef {
        uid,
        namespace: "real".to_owned(),
        name: "web".to_owned(),
    }
}

async fn wish(broker: &Broker, place: Place, ports: &[(u32, u32)]) -> (v1::Wish, Network) {
    let network = network_named(&broker.api, place.network).await;
    let query = MachineQuery {
        network: Some(network.id.clone()),
        ..MachineQuery::default()
    };
    let machines = broker.api.machines(&query).await.unwrap().into_items();
    let members = machines.iter().take(2).map(|machine| v1::WishMember {
        node_name: machine.name.to_lowercase(),
        machine: Some(v1::wish_member::Machine::MachineId(machine.id.to_string())),
    });
    let wish = v1::Wish {
        ports: ports
            .iter()
            .map(|(port, node_port)| port_of(*port, *node_port))
            .collect(),
        members: members.collect(),
        network: network.id.to_string(),
        ..v1::Wish::default()
    };
    (wish, network)
}

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

/// A new broker for every round.
async fn ensure_in_pieces(
    place: Place,
    service: &ServiceRef,
    wish: &v1::Wish,
    published: &[IpAddr],
) -> Served {
    for _ in 0..40 {
        let broker = place.broker();
        let (goal, _) = Wish::from_proto(Some(wish), &broker.policy).unwrap();
        let demand = Demand {
            service: service.clone(),
            published: published.to_vec(),
            goal,
        };
        let deadline = runtime::clock::now() + Duration::from_secs(25);
        let once = Once(AtomicU32::new(0));
        match broker
            .balancers
            .ensure(&broker.tenancy(), &demand, &once, deadline)
            .await
        {
            Ok(answer) => match answer.outcome {
                Outcome::Settled(served) => return served,
                Outcome::Pending(wait) => assert!(wait.reason == "JOB_RUNNING", "{wait:?}"),
            },
            Err(fault) => assert_eq!(fault.reason, "STOPPED", "{fault:?}"),
        }
    }
    panic!("it does not settle")
}

#[rstest::rstest]
#[case::isolated(Place { network: "lab-net", keys: "", project: false })]
#[case::tier_with_default_list(Place { network: "lab-tier1", keys: "", project: false })]
#[case::tier_with_own_list(Place { network: "lab-tier2", keys: "", project: false })]
#[case::project_with_the_cluster_role(Place { network: "lab-project-net", keys: "CKS_", project: true })]
#[tokio::test]
#[ignore = "needs a CloudStack: CLOUDSTACK_API_URL and keys"]
async fn a_balancer_lives_and_leaves_nothing(#[case] place: Place) {
    let broker = place.broker();
    let (mut wanted, network) = wish(&broker, place, &[(80, 30080), (443, 30443)]).await;
    let service = service();
    let served = ensure_in_pieces(place, &service, &wanted, &[]).await;
    let published = [served.ingress.ip];
    assert!(served.outputs.address_owned);
    assert_eq!(served.outputs.network_id, network.id);
    let (again, changes) = broker.ensure(&service, &wanted, &published).await.unwrap();
    assert_eq!((again, changes), (served.clone(), 0));
    wanted.ports[0].proxy_protocol = true;
    let ranges = |more: &str| {
        if place.filters() {
            vec!["10.0.0.0/8".to_owned(), more.to_owned()]
        } else {
            Vec::new()
        }
    };
    wanted.sources = ranges("192.0.2.0/24");
    broker.ensure(&service, &wanted, &published).await.unwrap();
    wanted.sources = ranges("198.51.100.0/24");
    wanted.ports[1].node_port = 30444;
    wanted.members.pop();
    let changed = ensure_in_pieces(place, &service, &wanted, &published).await;
    assert!(changed.ingress.proxy);
    let rules = broker
        .api
        .rules(&RuleQuery::OnAddress(served.outputs.address_id.clone()))
        .await
        .unwrap()
        .into_items();
    assert_eq!(rules.len(), 2, "{rules:#?}");
    for rule in &rules {
        if matches!(broker.version, ServerVersion::Is(version) if version >= Version::new(4, 18, 0)) {
            assert_eq!(rule.sources.to_string(), wanted.sources.join(","));
        }
        assert_eq!(broker.api.rule_members(&rule.id).await.unwrap().unwrap().len(), 1);
    }
    let (_, changes) = place
        .broker()
        .ensure(&service, &wanted, &published)
        .await
        .unwrap();
    assert_eq!(changes, 0);
    let departed = place.broker().delete(&service, farewell()).await.unwrap();
    assert_eq!(departed.released, published);
    let address = broker
        .api
        .addresses(&AddressQuery::Ip(served.ingress.ip))
        .await
        .unwrap()
        .into_items();
    assert!(
        address.iter().all(|address| address.state == AddressState::Free),
        "{address:?}"
    );
    if let Some(list) = network
        .acl_id
        .filter(|_| network.acl_name.as_deref() == Some("lab-acl"))
    {
        let items = broker.api.acl_items(&list).await.unwrap().into_items();
        assert!(
            items
                .iter()
                .all(|item| !item.reason.contains(service.uid.as_str())),
            "{items:#?}"
        );
    }
}
