//! The endpoint that anybody may connect to.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use clap::Parser as _;
use runtime::admin::{AdminArgs, serve};
use runtime::host::Host;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::{ClientConfig, DigitallySignedStruct, SignatureScheme};
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::pki::{Files, Pki};

#[derive(clap::Parser)]
struct Line {
    #[command(flatten)]
    admin: AdminArgs,
}

/// Serves with more of a command line; the port.
async fn endpoint(host: &Host, more: &[String]) -> u16 {
    runtime::host::install_tls_provider();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("an address").port();
    drop(listener);
    let line = ["program".to_owned(), "--bind-address=127.0.0.1".to_owned()];
    let line = Line::parse_from(line.iter().chain(more));
    let address = serve(host, &line.admin, port).await.expect("serves");
    address.expect("not off").port()
}

/// Believes every server: the endpoint made its certificate itself.
#[derive(Debug)]
struct Anybody;

impl ServerCertVerifier for Anybody {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        rustls::crypto::ring::default_provider()
            .signature_verification_algorithms
            .supported_schemes()
    }
}

async fn connect(port: u16, client: Option<&Files>) -> TlsStream<TcpStream> {
    let config = ClientConfig::builder()
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Anybody));
    let config = match client {
        None => config.with_no_client_auth(),
        Some(files) => {
            let chain = CertificateDer::pem_file_iter(&files.certificate)
                .expect("a file")
                .collect::<Result<_, _>>()
                .expect("certificates");
            let key = PrivateKeyDer::from_pem_file(&files.private_key).expect("a key");
            config
                .with_client_auth_cert(chain, key)
                .expect("a certificate with its key")
        }
    };
    let stream = TcpStream::connect(("127.0.0.1", port)).await.expect("connects");
    let name = ServerName::try_from("localhost").expect("a name");
    let connecting = TlsConnector::from(Arc::new(config)).connect(name, stream);
    connecting.await.expect("a handshake")
}

/// The first line of the answer; empty if there is none.
async fn get(port: u16, path: &str, client: Option<&Files>) -> String {
    let asking = async {
        let mut stream = connect(port, client).await;
        let request = format!("GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n");
        let mut answer = Vec::new();
        if stream.write_all(request.as_bytes()).await.is_ok() {
            // A server that refuses the certificate ends the connection in the middle.
            let _ = stream.read_to_end(&mut answer).await;
        }
        let answer = String::from_utf8_lossy(&answer).into_owned();
        answer.lines().next().unwrap_or_default().to_owned()
    };
    // Sooner than a silent connection is given up.
    let asked = tokio::time::timeout(Duration::from_secs(4), asking);
    asked.await.unwrap_or_else(|_| "no answer in time".to_owned())
}

#[tokio::test]
async fn sockets_that_say_nothing_keep_no_probe_out() {
    let host = Host::new();
    let port = endpoint(&host, &[]).await;
    let mut silent = Vec::new();
    for _ in 0..300 {
        silent.push(TcpStream::connect(("127.0.0.1", port)).await.expect("connects"));
    }
    for _ in 0..3 {
        assert_eq!(get(port, "/livez", None).await, "HTTP/1.1 200 OK");
    }
}

#[tokio::test]
async fn connections_without_a_request_keep_no_probe_out() {
    let host = Host::new();
    let port = endpoint(&host, &[]).await;
    let mut idle = Vec::new();
    for _ in 0..140 {
        idle.push(connect(port, None).await);
    }
    assert_eq!(get(port, "/livez", None).await, "HTTP/1.1 200 OK");
}

#[tokio::test]
async fn a_connection_with_half_a_request_is_closed() {
    let host = Host::new();
    let port = endpoint(&host, &[]).await;
    let mut slow = connect(port, None).await;
    slow.write_all(b"GET /livez HTTP/1.1\r\n").await.expect("written");
    let mut rest = Vec::new();
    let closed = tokio::time::timeout(Duration::from_secs(20), slow.read_to_end(&mut rest));
    assert!(
        closed.await.is_ok(),
        "closed long before the connection would be old"
    );
}

#[tokio::test]
async fn a_ca_of_callers_counts_without_a_certificate_of_its_own() {
    let (host, known, other) = (Host::new(), Pki::new(), Pki::new());
    let flag = |name: &str, ca: PathBuf| format!("--{name}={}", ca.display());
    for name in ["client-ca-file", "admin-client-ca-file"] {
        let port = endpoint(&host, &[flag(name, known.ca())]).await;
        let of = |pki: &Pki| pki.client("spiffe://example/prometheus");
        assert_eq!(get(port, "/metrics", Some(&of(&known))).await, "HTTP/1.1 200 OK");
        assert_eq!(
            get(port, "/metrics", Some(&of(&other))).await,
            "",
            "it is not let in"
        );
    }
    let both = [
        flag("client-ca-file", other.ca()),
        flag("admin-client-ca-file", known.ca()),
    ];
    let port = endpoint(&host, &both).await;
    let files = known.client("spiffe://example/prometheus");
    assert_eq!(get(port, "/metrics", Some(&files)).await, "HTTP/1.1 200 OK");
}
