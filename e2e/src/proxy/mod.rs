//! A counting proxy before the CloudStack API. It sees every call of the program under test: counts them by kind and
//! command, holds one so that a process can be killed there, delays them, refuses them, or is gone.

mod calls;

use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{oneshot, watch};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::{CancellationToken, DropGuard};

pub use calls::{Call, Counts, Kind};

use crate::pki::Pair;
use crate::wait;

/// Where in a call's life the proxy holds it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hold {
    /// The server never sees the call.
    Before,
    /// The server has executed it; the caller has no answer yet.
    After,
}

/// Whether calls get through.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Weather {
    /// They do.
    Fine,
    /// Connections are closed without an answer.
    Away,
    /// Answers are 503 with a text that is no JSON, as a load balancer before a dead server gives.
    Unavailable,
}

/// A call that is being held.
#[derive(Debug)]
pub struct Held {
    /// The call.
    pub call: Call,
    go: oneshot::Sender<()>,
}

impl Held {
    /// Lets it go on; who is still there gets the answer.
    pub fn release(self) {
        // The caller may be dead by now: that is the usual case.
        let _ = self.go.send(());
    }
}

#[derive(Debug)]
struct Trap {
    at: usize,
    hold: Hold,
    sprung: oneshot::Sender<Held>,
}

#[derive(Debug)]
struct State {
    target: String,
    calls: Vec<Call>,
    started: usize,
    signatures: Vec<String>,
    trap: Option<Trap>,
    delay: Duration,
    canned: HashMap<String, String>,
}

/// The proxy.
#[derive(Debug, Clone)]
pub struct Proxy {
    /// What programs under test are given as the API's address.
    pub url: String,
    state: Arc<Mutex<State>>,
    weather: watch::Sender<Weather>,
    _end: Arc<DropGuard>,
}

impl Proxy {
    /// Starts one before the API at `target`; with a pair it speaks TLS.
    pub async fn before(target: &str, tls: Option<&Pair>) -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let scheme = if tls.is_some() { "https" } else { "http" };
        let url = format!("{scheme}://{}/client/api", listener.local_addr()?);
        let state = Arc::new(Mutex::new(State {
            target: target.to_owned(),
            calls: Vec::new(),
            started: 0,
            signatures: Vec::new(),
            trap: None,
            delay: Duration::ZERO,
            canned: HashMap::new(),
        }));
        let acceptor = tls.map(acceptor).transpose()?;
        let (weather, seen) = watch::channel(Weather::Fine);
        let http = reqwest::Client::builder()
            .timeout(Duration::from_mins(2))
            .build()?;
        let end = CancellationToken::new();
        let server = Server {
            state: Arc::clone(&state),
            http,
            acceptor,
            weather: seen,
        };
        wait::spawn(server.run(listener, end.clone()));
        Ok(Self {
            url,
            state,
            weather,
            _end: Arc::new(end.drop_guard()),
        })
    }

    /// All calls so far.
    pub fn calls(&self) -> Vec<Call> {
        self.state.lock().calls.clone()
    }

    /// How many calls there were so far; a mark for [`Proxy::since`].
    pub fn mark(&self) -> usize {
        self.state.lock().calls.len()
    }

    /// Calls since a mark.
    pub fn since(&self, mark: usize) -> Counts {
        Counts::of(self.state.lock().calls.get(mark..).unwrap_or_default())
    }

    /// Signatures that went through: none of them may stand in a log.
    pub fn signatures(&self) -> Vec<String> {
        self.state.lock().signatures.clone()
    }

    /// Holds the `n`-th call from now (1 is the next); the receiver gets it when it comes.
    pub fn hold(&self, n: usize, hold: Hold) -> oneshot::Receiver<Held> {
        let (sprung, receiver) = oneshot::channel();
        let mut state = self.state.lock();
        let at = state.started + n;
        state.trap = Some(Trap { at, hold, sprung });
        receiver
    }

    /// Holds nothing any more.
    pub fn let_pass(&self) {
        self.state.lock().trap = None;
    }

    /// Every call takes this much longer.
    pub fn delay(&self, delay: Duration) {
        self.state.lock().delay = delay;
    }

    /// Answers one command with this body and never asks the API: for what a caller's role may not do.
    pub fn can(&self, command: &str, body: &str) {
        self.state
            .lock()
            .canned
            .insert(command.to_owned(), body.to_owned());
    }

    /// Whether calls get through from now on.
    pub fn weather(&self, weather: Weather) {
        self.weather.send_replace(weather);
    }
}

fn acceptor(pair: &Pair) -> Result<TlsAcceptor> {
    use rustls_pki_types::pem::PemObject as _;
    let certs =
        rustls_pki_types::CertificateDer::pem_file_iter(&pair.cert)?.collect::<Result<Vec<_>, _>>()?;
    let key = rustls_pki_types::PrivateKeyDer::from_pem_file(&pair.key)?;
    let config = rustls::ServerConfig::builder()
        .with_no_client_auth()
        .with_single_cert(certs, key)?;
    Ok(TlsAcceptor::from(Arc::new(config)))
}

struct Server {
    state: Arc<Mutex<State>>,
    http: reqwest::Client,
    acceptor: Option<TlsAcceptor>,
    weather: watch::Receiver<Weather>,
}

impl Server {
    async fn run(self, listener: TcpListener, end: CancellationToken) {
        let server = Arc::new(self);
        loop {
            let accepted = tokio::select! {
                accepted = listener.accept() => accepted,
                () = end.cancelled() => return,
            };
            if let Ok((stream, _)) = accepted {
                wait::spawn(Arc::clone(&server).connection(stream, end.clone()));
            }
        }
    }

    async fn connection(self: Arc<Self>, stream: TcpStream, end: CancellationToken) {
        let mut weather = self.weather.clone();
        let away = async move {
            // An error means that the proxy is gone; so is its weather.
            let _ = weather.wait_for(|weather| *weather == Weather::Away).await;
        };
        tokio::select! {
            () = Arc::clone(&self).serve(stream) => {}
            () = away => {}
            () = end.cancelled() => {}
        }
    }

    async fn serve(self: Arc<Self>, stream: TcpStream) {
        let acceptor = self.acceptor.clone();
        let service = service_fn(move |request| Arc::clone(&self).answer(request));
        let http = hyper::server::conn::http1::Builder::new();
        // Callers that hang up or speak nonsense are the callers' matter.
        match acceptor {
            None => drop(http.serve_connection(TokioIo::new(stream), service).await),
            Some(acceptor) => {
                if let Ok(stream) = acceptor.accept(stream).await {
                    drop(http.serve_connection(TokioIo::new(stream), service).await);
                }
            }
        }
    }

    async fn answer(
        self: Arc<Self>,
        request: Request<Incoming>,
    ) -> Result<Response<Full<Bytes>>, Infallible> {
        Ok(self.forward(request).await.unwrap_or_else(|error| {
            let mut response = Response::new(Full::from(format!("{error:#}")));
            *response.status_mut() = StatusCode::BAD_GATEWAY;
            response
        }))
    }

    async fn forward(&self, request: Request<Incoming>) -> Result<Response<Full<Bytes>>> {
        if *self.weather.borrow() == Weather::Unavailable {
            let mut response = Response::new(Full::from("<html>no server is available</html>"));
            *response.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
            return Ok(response);
        }
        let (head, body) = request.into_parts();
        let body = body.collect().await?.to_bytes();
        let query = head.uri.query().unwrap_or_default().to_owned();
        let call = Call::parse(&query, &body);
        if let Some(body) = self.state.lock().canned.get(&call.command) {
            return Ok(Response::new(Full::from(body.clone())));
        }
        let (trap, target, delay) = self.arrived(&call, &query, &body);
        let after = match trap {
            Some(trap) if trap.hold == Hold::Before => {
                hold_at(trap, &call).await;
                None
            }
            other => other,
        };
        tokio::time::sleep(delay).await;
        let url = if query.is_empty() {
            target
        } else {
            format!("{target}?{query}")
        };
        let mut out = self.http.request(head.method, url).body(body);
        if let Some(kind) = head.headers.get(http::header::CONTENT_TYPE) {
            out = out.header(http::header::CONTENT_TYPE, kind);
        }
        let answer = out.send().await.context("asking the API")?;
        let mut response = Response::builder().status(answer.status());
        for name in ["content-type", "x-description"] {
            if let Some(value) = answer.headers().get(name) {
                response = response.header(name, value);
            }
        }
        let status = answer.status().as_u16();
        let body = answer.bytes().await?;
        self.state.lock().calls.push(call.clone().answered(status));
        if let Some(trap) = after {
            hold_at(trap, &call).await;
        }
        Ok(response.body(Full::from(body))?)
    }

    /// Books a call in; gives the trap if it is the one.
    fn arrived(&self, call: &Call, query: &str, body: &[u8]) -> (Option<Trap>, String, Duration) {
        let mut state = self.state.lock();
        state.started += 1;
        state.signatures.extend(calls::signatures(query, body));
        let trap = if state.trap.as_ref().is_some_and(|trap| trap.at == state.started) {
            state.trap.take()
        } else {
            None
        };
        tracing::debug!(command = call.command, "call");
        (trap, state.target.clone(), state.delay)
    }
}

/// Hands the call over and waits until it may go on.
async fn hold_at(trap: Trap, call: &Call) {
    let (go, released) = oneshot::channel();
    let held = Held {
        call: call.clone(),
        go,
    };
    if trap.sprung.send(held).is_ok() {
        // Dropping the handle releases too.
        let _ = released.await;
    }
}
