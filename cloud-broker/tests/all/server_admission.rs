//! Who is let in over TCP, whatever it calls.

use runtime::link::{Link, LinkAddress};
use runtime::tls::{ClientFiles, ClientTls};
use tonic::Code;
use tonic::transport::Channel;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;
use tonic_reflection::pb::v1::ServerReflectionRequest;
use tonic_reflection::pb::v1::server_reflection_client::ServerReflectionClient;

use super::server_pki::Pki;
use super::server_support::{Running, config, seed, simulator};

/// How the services beside the contract answer.
async fn answers(channel: Channel) -> [Code; 2] {
    let health = HealthClient::new(channel.clone())
        .check(HealthCheckRequest::default())
        .await;
    let asked = tokio_stream::iter([ServerReflectionRequest::default()]);
    let reflection = ServerReflectionClient::new(channel)
        .server_reflection_info(asked)
        .await;
    [health.err(), reflection.err()].map(|refused| refused.map_or(Code::Ok, |refused| refused.code()))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_certificate_that_stands_for_no_cluster_gets_neither_health_nor_reflection() {
    let (cloud, pki) = (simulator(seed()).await, Pki::new());
    let port = std::net::TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .port();
    let listen = format!("https://127.0.0.1:{port}");
    let (server, key, ca) = (pki.server(), pki.path("server.key"), pki.path("ca.pem"));
    let socket = "unix://{}/run/broker.sock";
    let flags = [
        ["--listen", &listen],
        ["--listen", socket],
        ["--tls-cert-file", &server],
        ["--tls-private-key-file", &key],
        ["--client-ca-file", &ca],
    ];
    let flags: Vec<&str> = flags.into_iter().flatten().chain(["--reflection=true"]).collect();
    let section = "[Cluster \"a\"]\nnetworks = k8s\nidentity = spiffe://a/agent\n";
    let broker = Running::start_with(&config(&cloud, "demo", section), &flags).await;
    let channel = |name: &str| {
        let files = ClientFiles {
            ca: ca.clone().into(),
            certificate: pki.client(name).into(),
            private_key: pki.path(&format!("{name}.key")).into(),
        };
        let tls = ClientTls::load(files).unwrap();
        let address: LinkAddress = listen.parse().unwrap();
        Link::connect(&broker.host, vec![address], Some(tls)).channel()
    };
    let socket = Link::connect(&broker.host, vec![LinkAddress::Unix(broker.socket())], None).channel();
    for (channel, is_let_in) in [
        (channel("a"), true),
        (channel("c"), false),
        // Not a cluster here, but whoever may open the socket may ask how the process is.
        (socket, true),
    ] {
        let expected = if is_let_in {
            Code::Ok
        } else {
            Code::PermissionDenied
        };
        assert_eq!(answers(channel).await, [expected; 2]);
    }
    assert!(
        broker
            .metric("cloud_broker_rpc_total{call=\"NotLetIn\",outcome=\"denied\"}")
            .is_some(),
        "{}",
        broker.host.scrape()
    );
    broker.stop().await;
}
