//! Who gets through, over which transport, and as whom.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use rcgen::ExtendedKeyUsagePurpose;
use runtime::host::Host;
use runtime::link::{Limits, Link, LinkAddress, LinkServer, Peer, serve, was_not_sent};
use runtime::tls::{ClientAuth, ClientFiles, ClientTls, ServerFiles, ServerTls};
use tokio::net::TcpStream;
use tonic::service::Routes;
use tonic::{Request, Status};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;
use tonic_health::pb::health_server::HealthServer;
use tonic_health::server::HealthService;

use crate::pki::{Files, Pki};

type Seen = Arc<Mutex<Vec<Peer>>>;

/// A health service that notes who called it.
async fn health_routes(seen: Seen) -> Routes {
    let (reporter, _) = tonic_health::server::health_reporter();
    reporter
        .set_service_status("", tonic_health::ServingStatus::Serving)
        .await;
    let service = HealthServer::new(HealthService::from_health_reporter(reporter));
    let note = move |request: Request<()>| -> Result<Request<()>, Status> {
        seen.lock().extend(request.extensions().get::<Peer>().cloned());
        Ok(request)
    };
    Routes::new(tonic::service::interceptor::InterceptedService::new(
        service, note,
    ))
}

/// A health service, and who decides what it answers.
async fn watched_routes() -> (Routes, tonic_health::server::HealthReporter) {
    let (reporter, service) = tonic_health::server::health_reporter();
    reporter
        .set_service_status("", tonic_health::ServingStatus::Serving)
        .await;
    (Routes::new(service), reporter)
}

async fn check(link: &Link) -> Result<(), Status> {
    let mut client = HealthClient::new(link.channel());
    let call = client.check(HealthCheckRequest::default());
    tokio::time::timeout(Duration::from_secs(20), call)
        .await
        .expect("an answer in time")
        .map(|_| ())
}

fn server_tls(pki: &Pki, name: &str) -> ServerTls {
    let files = pki.server(name);
    let files = ServerFiles {
        certificate: files.certificate,
        private_key: files.private_key,
        client_auth: ClientAuth::Required(pki.ca()),
    };
    ServerTls::load(files, &[b"h2"]).expect("TLS of the server")
}

fn client_tls(pki: &Pki, files: Files) -> ClientTls {
    let files = ClientFiles {
        ca: pki.ca(),
        certificate: files.certificate,
        private_key: files.private_key,
    };
    ClientTls::load(files).expect("TLS of the client")
}

/// Serves on a free port; returns the address to call.
async fn serve_tcp(host: &Host, pki: &Pki, name: &str, seen: Seen) -> LinkAddress {
    serve_with(host, server_tls(pki, name), seen, Limits::default()).await
}

async fn serve_with(host: &Host, tls: ServerTls, seen: Seen, limits: Limits) -> LinkAddress {
    let server = LinkServer {
        tls: Some(tls),
        limits,
        ..LinkServer::new(vec!["https://127.0.0.1:0".parse().expect("an address")])
    };
    let bound = serve(host, server, health_routes(seen).await)
        .await
        .expect("serves");
    format!("https://127.0.0.1:{}", bound[0].port())
        .parse()
        .expect("an address")
}

#[tokio::test]
async fn a_caller_on_the_unix_socket_is_known_by_its_user() {
    let (host, seen) = (Host::new(), Seen::default());
    let folder = tempfile::tempdir().expect("a folder");
    let address = LinkAddress::Unix(folder.path().join("run/broker.sock"));
    let server = LinkServer::new(vec![address.clone()]);
    serve(&host, server, health_routes(Arc::clone(&seen)).await)
        .await
        .expect("serves");

    check(&Link::connect(&host, vec![address], None))
        .await
        .expect("an answer");

    assert!(matches!(seen.lock()[..], [Peer::Unix { .. }]));
}

#[tokio::test]
async fn a_caller_over_tcp_is_known_by_the_uri_of_its_certificate() {
    runtime::host::install_tls_provider();
    let (host, seen, pki) = (Host::new(), Seen::default(), Pki::new());
    let address = serve_tcp(&host, &pki, "127.0.0.1", Arc::clone(&seen)).await;
    let tls = client_tls(&pki, pki.client("spiffe://example/cluster/blue"));

    check(&Link::connect(&host, vec![address], Some(tls)))
        .await
        .expect("an answer");

    let seen = seen.lock();
    assert_eq!(seen[0].to_string(), "spiffe://example/cluster/blue");
}

#[tokio::test]
async fn a_server_with_another_name_is_not_trusted() {
    runtime::host::install_tls_provider();
    let (host, seen, pki) = (Host::new(), Seen::default(), Pki::new());
    let address = serve_tcp(&host, &pki, "broker.example", Arc::clone(&seen)).await;
    let tls = client_tls(&pki, pki.client("spiffe://example/cluster/blue"));

    let refused = check(&Link::connect(&host, vec![address], Some(tls)))
        .await
        .expect_err("another name");

    assert!(format!("{refused:?}").contains("certificate"), "{refused:?}");
    assert!(seen.lock().is_empty());
}

#[tokio::test]
async fn a_certificate_of_another_ca_is_refused() {
    runtime::host::install_tls_provider();
    let (host, seen, pki, other) = (Host::new(), Seen::default(), Pki::new(), Pki::new());
    let address = serve_tcp(&host, &pki, "127.0.0.1", Arc::clone(&seen)).await;
    let files = other.client("spiffe://example/cluster/blue");
    let tls = client_tls(&pki, files);

    check(&Link::connect(&host, vec![address], Some(tls)))
        .await
        .expect_err("another CA");

    assert!(seen.lock().is_empty());
}

#[tokio::test]
async fn a_certificate_that_is_not_made_for_clients_is_refused() {
    runtime::host::install_tls_provider();
    let (host, seen, pki) = (Host::new(), Seen::default(), Pki::new());
    let address = serve_tcp(&host, &pki, "127.0.0.1", Arc::clone(&seen)).await;
    let files = pki.client_for(
        "spiffe://example/cluster/blue",
        vec![ExtendedKeyUsagePurpose::ServerAuth],
    );
    let tls = client_tls(&pki, files);

    check(&Link::connect(&host, vec![address], Some(tls)))
        .await
        .expect_err("not for clients");

    assert!(seen.lock().is_empty());
}

#[tokio::test]
async fn the_first_broker_that_answers_is_used() {
    let (host, seen) = (Host::new(), Seen::default());
    let folder = tempfile::tempdir().expect("a folder");
    let dead = LinkAddress::Unix(folder.path().join("dead.sock"));
    let live = LinkAddress::Unix(folder.path().join("run/live.sock"));
    let server = LinkServer::new(vec![live.clone()]);
    serve(&host, server, health_routes(Arc::clone(&seen)).await)
        .await
        .expect("serves");

    check(&Link::connect(&host, vec![dead, live], None))
        .await
        .expect("an answer of the second one");
}

#[tokio::test]
async fn when_no_broker_answers_every_address_is_named_with_its_reason() {
    let host = Host::new();
    let folder = tempfile::tempdir().expect("a folder");
    let dead = LinkAddress::Unix(folder.path().join("dead.sock"));

    let refused = check(&Link::connect(&host, vec![dead], None))
        .await
        .expect_err("nobody listens");

    assert!(format!("{refused:?}").contains("dead.sock"), "{refused:?}");
}

#[tokio::test]
async fn tcp_without_certificates_is_refused_at_the_start() {
    let (host, seen) = (Host::new(), Seen::default());
    let server = LinkServer::new(vec!["https://127.0.0.1:0".parse().expect("an address")]);
    let error = serve(&host, server, health_routes(seen).await)
        .await
        .expect_err("no TLS");
    assert!(error.to_string().contains("--client-ca-file"), "{error}");
}

#[tokio::test]
async fn a_changed_ca_counts_for_the_next_connection_without_a_restart() {
    runtime::host::install_tls_provider();
    let (host, seen, old, new) = (Host::new(), Seen::default(), Pki::new(), Pki::new());
    let tls = server_tls(&old, "127.0.0.1");
    let server = LinkServer {
        tls: Some(tls.clone()),
        ..LinkServer::new(vec!["https://127.0.0.1:0".parse().expect("an address")])
    };
    let bound = serve(&host, server, health_routes(Arc::clone(&seen)).await)
        .await
        .expect("serves");
    let address: LinkAddress = format!("https://127.0.0.1:{}", bound[0].port())
        .parse()
        .expect("an address");
    let client = client_tls(&new, new.client("spiffe://example/cluster/blue"));
    check(&Link::connect(&host, vec![address.clone()], Some(client.clone())))
        .await
        .expect_err("the CA is not known yet");

    let files = new.server("127.0.0.1");
    std::fs::copy(&files.certificate, old.server_certificate()).expect("copied");
    std::fs::copy(&files.private_key, old.server_private_key()).expect("copied");
    std::fs::copy(new.ca(), old.ca()).expect("copied");
    tls.reload().expect("reads the new files");

    check(&Link::connect(&host, vec![address], Some(client)))
        .await
        .expect("an answer");
}

#[tokio::test]
async fn a_connection_whose_ca_is_no_longer_trusted_is_ended() {
    runtime::host::install_tls_provider();
    let (host, seen, pki, other) = (Host::new(), Seen::default(), Pki::new(), Pki::new());
    let tls = server_tls(&pki, "127.0.0.1");
    let address = serve_with(&host, tls.clone(), Seen::clone(&seen), Limits::default()).await;
    let client = client_tls(&pki, pki.client("spiffe://example/cluster/blue"));
    let link = Link::connect(&host, vec![address], Some(client));
    check(&link).await.expect("an answer");

    std::fs::copy(other.ca(), pki.ca()).expect("copied");
    tls.reload().expect("reads the new CA");

    let ended = async { while check(&link).await.is_ok() {} };
    tokio::time::timeout(Duration::from_secs(20), ended)
        .await
        .expect("the connection ends");
}

#[tokio::test]
async fn sockets_that_say_nothing_keep_no_agent_out() {
    runtime::host::install_tls_provider();
    let (host, seen, pki) = (Host::new(), Seen::default(), Pki::new());
    let address = serve_tcp(&host, &pki, "127.0.0.1", Arc::clone(&seen)).await;
    let LinkAddress::Tcp { port, .. } = address else {
        panic!("not TCP")
    };
    let mut silent = Vec::new();
    for _ in 0..400 {
        silent.push(TcpStream::connect(("127.0.0.1", port)).await.expect("connects"));
    }
    let tls = client_tls(&pki, pki.client("spiffe://example/cluster/blue"));

    check(&Link::connect(&host, vec![address], Some(tls)))
        .await
        .expect("an answer");
}

#[tokio::test]
async fn an_identity_with_too_many_connections_keeps_no_other_out() {
    runtime::host::install_tls_provider();
    let (host, seen, pki) = (Host::new(), Seen::default(), Pki::new());
    let limits = Limits {
        connections: 1,
        ..Limits::default()
    };
    let tls = server_tls(&pki, "127.0.0.1");
    let address = serve_with(&host, tls, seen, limits).await;
    let link = |name: &str| {
        let tls = client_tls(&pki, pki.client(name));
        Link::connect(&host, vec![address.clone()], Some(tls))
    };
    let first = link("spiffe://example/cluster/blue");
    check(&first).await.expect("an answer");
    check(&link("spiffe://example/cluster/blue"))
        .await
        .expect_err("one is all it may have");
    check(&link("spiffe://example/cluster/green"))
        .await
        .expect("an answer");
    check(&first).await.expect("an answer");
}

#[tokio::test]
async fn a_broken_change_keeps_the_certificates_in_use() {
    runtime::host::install_tls_provider();
    let pki = Pki::new();
    let tls = server_tls(&pki, "127.0.0.1");
    let before = tls.current();
    std::fs::write(pki.server_certificate(), "half a certificate").expect("written");
    tls.reload().expect_err("not a certificate");
    assert!(Arc::ptr_eq(&before, &tls.current()));
}

#[tokio::test]
async fn a_call_that_runs_outlives_the_age_of_its_connection_and_others_go_on() {
    let host = Host::new();
    let folder = tempfile::tempdir().expect("a folder");
    let address = LinkAddress::Unix(folder.path().join("run/broker.sock"));
    let age = Duration::from_millis(100);
    let server = LinkServer {
        limits: Limits {
            age,
            ..Limits::default()
        },
        ..LinkServer::new(vec![address.clone()])
    };
    let (routes, reporter) = watched_routes().await;
    serve(&host, server, routes).await.expect("serves");
    let link = Link::connect(&host, vec![address], None);
    let watch = HealthClient::new(link.channel())
        .watch(HealthCheckRequest::default())
        .await;
    let mut told = watch.expect("a stream").into_inner();
    assert_eq!(
        told.message()
            .await
            .expect("an answer")
            .expect("a first status")
            .status,
        1
    );

    let begun = runtime::clock::now();
    while begun.elapsed() < age * 5 {
        if let Err(status) = check(&link).await {
            assert!(was_not_sent(&status), "{status:?}");
        }
    }
    reporter
        .set_service_status("", tonic_health::ServingStatus::NotServing)
        .await;

    let told = told.message().await.expect("the stream lives");
    assert_eq!(told.expect("another status").status, 2);
}
