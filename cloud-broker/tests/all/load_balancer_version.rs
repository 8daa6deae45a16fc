//! What is done while the server's version is not known.

use cloud_broker::cloudstack::types::Version;
use cloud_broker::describe::Survey;
use cloud_broker::load_balancer::{Demand, Outcome, ServerVersion, Wish};
use cloudstack_simulator::{Effect, Fault};
use proto::FaultKind;

use super::load_balancer_support::{Broker, calls, cloud, farewell, isolated, picture, service, wish};

const NEW: ServerVersion = ServerVersion::Is(Version::new(4, 22, 0));

#[tokio::test]
async fn nothing_is_changed_while_the_server_does_not_answer_the_question_for_its_version() {
    let cloud = cloud(isolated()).await;
    let mut broker = Broker::new(&cloud);
    let mut wanted = wish(&cloud, &[(80, 30080)]);
    broker.version = ServerVersion::NotAnswered;
    let fault = broker.ensure_once(&service(1), &wanted, &[]).await.unwrap_err();
    assert_eq!(
        (fault.kind, &*fault.reason),
        (FaultKind::Unreachable, "CLOUD_UNREACHABLE")
    );
    assert_eq!(calls(&cloud).1, 0);
    broker.version = NEW;
    let (served, _) = broker.ensure(&service(1), &wanted, &[]).await.unwrap();
    let published = [served.ingress.ip];
    let rule = cloud.dump().rules[0].id;
    // Nothing to do is nothing to do on every version.
    cloud.reset_calls();
    broker.version = ServerVersion::NotAnswered;
    let answer = broker
        .ensure_once(&service(1), &wanted, &published)
        .await
        .unwrap();
    assert!(
        matches!(answer.outcome, Outcome::Settled(_)) && answer.changes == 0,
        "{answer:?}"
    );
    // An older server would need another rule for this.
    wanted.sources = vec!["10.0.0.0/8".to_owned()];
    let fault = broker
        .ensure_once(&service(1), &wanted, &published)
        .await
        .unwrap_err();
    assert_eq!(fault.kind, FaultKind::Unreachable);
    let goal = Wish::from_proto(Some(&wanted), &broker.policy).unwrap().0;
    let demand = Demand {
        service: service(1),
        published: published.to_vec(),
        goal,
    };
    let preview = broker.balancers.plan_ensure(&broker.tenancy(), &demand).await;
    assert_eq!(preview.unwrap_err().kind, FaultKind::Unreachable);
    assert_eq!(calls(&cloud).1, 0);
    broker.version = NEW;
    broker.ensure(&service(1), &wanted, &published).await.unwrap();
    assert_eq!(cloud.dump().rules[0].id, rule);
    assert_eq!(cloud.dump().rules[0].sources.as_deref(), Some("10.0.0.0/8"));
}

#[tokio::test]
async fn a_service_goes_although_the_server_does_not_answer_the_question_for_its_version() {
    let cloud = cloud(isolated()).await;
    let mut broker = Broker::new(&cloud);
    let wanted = wish(&cloud, &[(80, 30080)]);
    broker.ensure(&service(1), &wanted, &[]).await.unwrap();
    broker.version = ServerVersion::NotAnswered;
    broker.delete(&service(1), farewell()).await.unwrap();
    assert_eq!(picture(&cloud.dump()), Vec::<String>::new());
}

#[tokio::test]
async fn a_question_for_the_version_that_fails_is_asked_again() {
    let cloud = cloud(isolated()).await;
    let broker = Broker::new(&cloud);
    let survey = Survey::default();
    cloud.add_fault(Fault::always("listCapabilities", Effect::error(503, "preparing")));
    assert!(survey.version(&broker.api).await.is_err());
    cloud.clear_faults();
    let version = survey.version(&broker.api).await.unwrap().unwrap();
    assert!(version >= Version::new(4, 22, 0), "{version:?}");
}
