use std::path::Path;

use runtime::host::Host;

use super::*;
use crate::cloudstack::Pace;
use crate::directory::{Directory, Surroundings};
use crate::load_balancer::ServiceUid;
use crate::metrics::Metrics;
use crate::rpc::Settings;

/// A broker of one cluster whose cloud nobody asks.
fn broker() -> (Host, Arc<Directory>, Broker) {
    runtime::host::install_tls_provider();
    let (host, metrics) = (Host::new(), Metrics::default());
    let text = "[Global]\napi-url = http://127.0.0.1:9/client/api\napi-key = A\nsecret-key = S\n";
    let config = crate::config::parse(Path::new("cloud.conf"), text, &|_| Ok(Vec::new())).unwrap();
    let drift_period = Duration::from_mins(10);
    let surroundings = Surroundings {
        host: host.clone(),
        metrics: metrics.clone(),
        pace: Pace::scaled(0.01),
        drift_period,
        tighten_on_adopt: false,
    };
    let directory = Arc::new(Directory::new(surroundings, &config).unwrap());
    let settings = Settings {
        drift_period,
        certificate: None,
    };
    let broker = Broker::new(host.clone(), Arc::clone(&directory), metrics, settings);
    (host, directory, broker)
}

fn service() -> ServiceRef {
    ServiceRef {
        uid: ServiceUid::parse("5e5e5e5e-0000-4000-8000-000000000001").unwrap(),
        namespace: "shop".to_owned(),
        name: "web".to_owned(),
    }
}

#[tokio::test]
async fn a_panic_ends_only_its_call_which_is_told_that_it_is_lost() {
    let (host, directory, broker) = broker();
    let served = directory.served().remove(0);
    let call = |work: fn() -> u32| {
        let (broker, served) = (&broker, &served);
        async move {
            let work = async move {
                tokio::task::yield_now().await;
                work()
            };
            let caller = CancellationToken::new();
            broker.detached(caller, (served, &service()), work).await
        }
    };
    let lost = call(|| panic!("a fault")).await.unwrap_err();
    assert_eq!(
        (lost.kind, lost.reason.as_ref()),
        (FaultKind::Internal, "CALL_LOST")
    );
    assert_eq!(call(|| 7).await, Ok(7));
    assert!(!host.shutdown().is_cancelled(), "the process lives");
    assert!(
        host.scrape().contains("process_contained_panics_total 1"),
        "{}",
        host.scrape()
    );
    assert_eq!(host.finish(Duration::from_secs(10)).await, None);
}

#[tokio::test]
async fn a_panic_in_a_call_that_only_reads_is_told_as_well() {
    let (host, _, broker) = broker();
    let work = async { panic!("a fault") };
    let status = broker
        .finish::<()>("Describe", tracing::Span::none(), work)
        .await
        .unwrap_err();
    assert_eq!(Fault::from(status).reason, "CALL_LOST");
    assert!(!host.shutdown().is_cancelled(), "the process lives");
}
