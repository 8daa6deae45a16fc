//! The HTTPS endpoint: `/healthz`, `/livez`, `/readyz` for everybody, `/metrics`, `/metrics/slis` and `/configz` for callers on this machine or
//! with a client certificate.
//!
//! Paths and answers are those of Kubernetes' own controllers. Without certificate files the endpoint makes itself one. Anybody may connect, so
//! a connection lives only for a while, and when there are too many the oldest makes room: probes are always answered.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context as _;
use axum::Router;
use axum::extract::{Query, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use hyper_util::service::TowerToHyperService;
use serde::Deserialize;
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

use crate::health::Report;
use crate::host::Host;
use crate::seats::Seats;
use crate::tls::{ClientAuth, ServerFiles, ServerTls};

const HANDSHAKE: Duration = Duration::from_secs(5);
/// How long the head of a request may take, from the end of the one before.
const HEAD: Duration = Duration::from_secs(5);
/// A connection takes no more requests after this time, and ends after the second.
const LIFETIME: Duration = Duration::from_secs(30);
const GRACE: Duration = Duration::from_secs(5);
/// Connections at a time, those from one place, and requests at a time on one of them.
const CONNECTIONS: usize = 128;
const CONNECTIONS_OF_ONE: usize = 32;
const STREAMS: u32 = 16;
const H2: &[u8] = b"h2";
const PROTOCOLS: &[&[u8]] = &[H2, b"http/1.1"];

/// Flags for the endpoint. Names are those of Kubernetes' programs.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Secure serving")]
pub struct AdminArgs {
    /// Address to serve health, readiness and metrics on
    #[arg(long, value_name = "ADDRESS", default_value = "0.0.0.0")]
    pub bind_address: IpAddr,

    /// Port to serve them on with HTTPS; 0 serves nothing
    #[arg(long, value_name = "PORT")]
    pub secure_port: Option<u16>,

    /// Certificate chain in PEM; without it the endpoint makes a self-signed one
    #[arg(long, value_name = "FILE", requires = "tls_private_key_file")]
    pub tls_cert_file: Option<PathBuf>,

    /// Private key of --tls-cert-file in PEM
    #[arg(long, value_name = "FILE", requires = "tls_cert_file")]
    pub tls_private_key_file: Option<PathBuf>,

    /// CA whose client certificates are let in
    #[arg(long, value_name = "FILE")]
    pub client_ca_file: Option<PathBuf>,

    /// CA whose client certificates may read metrics and configuration; --client-ca-file unless given, but never a CA of agents
    #[arg(long, value_name = "FILE")]
    pub admin_client_ca_file: Option<PathBuf>,
}

impl AdminArgs {
    fn tls(&self) -> anyhow::Result<ServerTls> {
        let authority = self
            .admin_client_ca_file
            .as_ref()
            .or(self.client_ca_file.as_ref());
        let client_auth = authority.cloned().map_or(ClientAuth::Off, ClientAuth::Optional);
        let (Some(certificate), Some(private_key)) = (&self.tls_cert_file, &self.tls_private_key_file) else {
            return Ok(ServerTls::self_signed(client_auth, PROTOCOLS)?);
        };
        let files = ServerFiles {
            certificate: certificate.clone(),
            private_key: private_key.clone(),
            client_auth,
        };
        Ok(ServerTls::load(files, PROTOCOLS)?)
    }
}

/// Starts the endpoint, on `default_port` unless the flags say another one. Returns the address it listens on, or nothing for port 0.
pub async fn serve(host: &Host, args: &AdminArgs, default_port: u16) -> anyhow::Result<Option<SocketAddr>> {
    let port = args.secure_port.unwrap_or(default_port);
    if port == 0 {
        return Ok(None);
    }
    let tls = args.tls()?;
    tls.watch(host);
    let wanted = SocketAddr::new(args.bind_address, port);
    let listener = TcpListener::bind(wanted).await.with_context(|| {
        format!("--secure-port: {wanted} can't be listened on; choose another port, or 0 for none")
    })?;
    let address = listener.local_addr()?;
    let endpoint = Endpoint {
        host: host.clone(),
        tls,
    };
    host.spawn("admin", endpoint.accept(listener));
    Ok(Some(address))
}

struct Endpoint {
    host: Host,
    tls: ServerTls,
}

impl Endpoint {
    async fn accept(self, listener: TcpListener) {
        let drained = self.host.drained();
        let seats = Seats::new(CONNECTIONS, CONNECTIONS_OF_ONE);
        loop {
            let accepted = tokio::select! {
                accepted = listener.accept() => accepted,
                () = drained.cancelled() => return,
            };
            let Ok((stream, peer)) = accepted else {
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            };
            let seat = seats.take(peer.ip());
            let connection = connection(
                self.host.clone(),
                TlsAcceptor::from(self.tls.current()),
                stream,
                peer,
            );
            let drained = drained.clone();
            self.host.spawn_contained("admin-connection", async move {
                tokio::select! {
                    () = connection => {}
                    () = seat.lost() => {}
                    () = drained.cancelled() => {}
                }
            });
        }
    }
}

async fn connection(host: Host, acceptor: TlsAcceptor, stream: TcpStream, peer: SocketAddr) {
    let Ok(Ok(stream)) = tokio::time::timeout(HANDSHAKE, acceptor.accept(stream)).await else {
        return;
    };
    let tls = stream.get_ref().1;
    let certified = tls.peer_certificates().is_some_and(|chain| !chain.is_empty());
    let trusted = certified || peer.ip().to_canonical().is_loopback();
    // Waiting for the first bytes to tell the protocol would be without a limit.
    let builder = auto::Builder::new(TokioExecutor::new());
    let mut builder = if tls.alpn_protocol() == Some(H2) {
        builder.http2_only()
    } else {
        builder.http1_only()
    };
    builder.http1().timer(TokioTimer::new()).header_read_timeout(HEAD);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(STREAMS);
    let service = TowerToHyperService::new(router(host, trusted));
    let mut served = std::pin::pin!(builder.serve_connection(TokioIo::new(stream), service));
    let ended = if let Ok(ended) = tokio::time::timeout(LIFETIME, served.as_mut()).await {
        ended
    } else {
        served.as_mut().graceful_shutdown();
        tokio::time::timeout(GRACE, served).await.unwrap_or(Ok(()))
    };
    if let Err(error) = ended {
        tracing::debug!(fault = %error, "a connection to the health endpoint ended");
    }
}

#[derive(Clone)]
struct Caller {
    host: Host,
    trusted: bool,
}

#[derive(Deserialize)]
struct HealthQuery {
    verbose: Option<String>,
    exclude: Option<String>,
}

/// The endpoint's paths; `trusted` callers may see metrics and configuration.
pub fn router(host: Host, trusted: bool) -> Router {
    Router::new()
        .route("/healthz", get(alive))
        .route("/livez", get(alive))
        .route("/readyz", get(ready))
        .route("/metrics", get(metrics))
        .route("/metrics/slis", get(slis))
        .route("/configz", get(configz))
        .with_state(Caller { host, trusted })
}

async fn alive(State(caller): State<Caller>, Query(query): Query<HealthQuery>) -> Response {
    let exclude: Vec<&str> = query.exclude.as_deref().into_iter().collect();
    answer(caller.host.health().alive(query.verbose.is_some(), &exclude))
}

async fn ready(State(caller): State<Caller>, Query(query): Query<HealthQuery>) -> Response {
    let exclude: Vec<&str> = query.exclude.as_deref().into_iter().collect();
    answer(caller.host.health().ready(query.verbose.is_some(), &exclude))
}

fn answer(report: Report) -> Response {
    let status = if report.ok {
        StatusCode::OK
    } else {
        StatusCode::INTERNAL_SERVER_ERROR
    };
    (status, report.text).into_response()
}

async fn metrics(State(caller): State<Caller>) -> Response {
    if !caller.trusted {
        return forbidden();
    }
    let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    ([(header::CONTENT_TYPE, kind)], caller.host.scrape()).into_response()
}

async fn slis(State(caller): State<Caller>) -> Response {
    if !caller.trusted {
        return forbidden();
    }
    let kind = "text/plain; version=0.0.4; charset=utf-8";
    ([(header::CONTENT_TYPE, kind)], caller.host.health().slis()).into_response()
}

async fn configz(State(caller): State<Caller>) -> Response {
    if !caller.trusted {
        return forbidden();
    }
    let text = caller.host.configuration().to_string();
    ([(header::CONTENT_TYPE, "application/json")], text).into_response()
}

fn forbidden() -> Response {
    (
        StatusCode::FORBIDDEN,
        "only for callers on this machine or with a client certificate (--admin-client-ca-file)\n",
    )
        .into_response()
}

#[cfg(test)]
mod tests {
    use axum::body::Body;
    use axum::http::Request;
    use http_body_util::BodyExt as _;
    use tower::ServiceExt as _;

    use super::*;

    async fn get(host: &Host, trusted: bool, path: &str) -> (StatusCode, String) {
        let request = Request::get(path).body(Body::empty()).expect("a request");
        let response = router(host.clone(), trusted)
            .oneshot(request)
            .await
            .expect("an answer");
        let status = response.status();
        let body = response.into_body().collect().await.expect("a body").to_bytes();
        (status, String::from_utf8(body.to_vec()).expect("text"))
    }

    #[tokio::test]
    async fn a_healthy_process_says_ok_to_everybody() {
        assert_eq!(
            get(&Host::new(), false, "/healthz").await,
            (StatusCode::OK, "ok".into())
        );
    }

    #[tokio::test]
    async fn a_closed_gate_makes_it_unready_but_not_dead() {
        let host = Host::new();
        let _gate = host.gate("broker");
        assert_eq!(
            get(&host, false, "/readyz").await.0,
            StatusCode::INTERNAL_SERVER_ERROR
        );
        assert_eq!(get(&host, false, "/livez").await.0, StatusCode::OK);
    }

    #[tokio::test]
    async fn metrics_are_refused_to_strangers() {
        for path in ["/metrics", "/metrics/slis"] {
            assert_eq!(
                get(&Host::new(), false, path).await.0,
                StatusCode::FORBIDDEN,
                "{path}"
            );
            assert_eq!(get(&Host::new(), true, path).await.0, StatusCode::OK, "{path}");
        }
    }

    #[tokio::test]
    async fn what_the_health_endpoints_told_shows_as_metrics() {
        let host = Host::new();
        let _gate = host.gate("broker");
        get(&host, false, "/readyz").await;
        let (_, text) = get(&host, true, "/metrics/slis").await;
        let told = r#"kubernetes_healthchecks_total{name="broker",status="error",type="readyz"} 1"#;
        assert!(text.lines().any(|line| line == told), "{text}");
    }

    #[tokio::test]
    async fn the_configuration_is_shown_by_part() {
        let host = Host::new();
        host.configz("agent", || serde_json::json!({"clusterName": "kubernetes"}));
        let (_, text) = get(&host, true, "/configz").await;
        assert_eq!(text, r#"{"agent":{"clusterName":"kubernetes"}}"#);
    }
}
