//! An endpoint that answers as a test wants, down to the bytes, and an account that calls it.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use cloud_broker::cloudstack::types::Network;
use cloud_broker::cloudstack::{
    Account, Api, ApiError, ApiKeys, Environment, NetworkQuery, Outcome, Pace, Settings, Started,
};
use cloud_broker::metrics::CloudStackMetrics;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// A call as it arrived.
#[derive(Debug, Clone, Default)]
pub(crate) struct Call {
    /// Request line and headers, lower case.
    pub(crate) head: String,
    /// The form.
    pub(crate) params: BTreeMap<String, String>,
}

impl Call {
    pub(crate) fn command(&self) -> &str {
        self.get("command")
    }

    /// A parameter; empty if it is absent.
    pub(crate) fn get(&self, name: &str) -> &str {
        self.params.get(name).map_or("", String::as_str)
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        self.params.contains_key(name)
    }
}

/// What is sent back.
#[derive(Debug, Clone)]
pub(crate) enum Reply {
    /// JSON with a status.
    Json(u16, Value),
    /// Exactly these bytes, after which the connection is closed.
    Bytes(Vec<u8>),
    /// Nothing; the connection is closed.
    Cut,
}

impl Reply {
    pub(crate) fn ok(inner: Value) -> Self {
        Self::Json(
            200,
            Value::Object([("xresponse".to_owned(), inner)].into_iter().collect()),
        )
    }

    pub(crate) fn error(code: u16, text: &str) -> Self {
        Self::Json(
            code,
            json!({ "xresponse": {"uuidList": [], "errorcode": code, "errortext": text} }),
        )
    }

    pub(crate) fn html(status: u16) -> Self {
        let body = "<html><body>gateway</body></html>";
        let head = format!("HTTP/1.1 {status} X\r\ncontent-type: text/html\r\nconnection: close\r\n");
        Self::Bytes(format!("{head}content-length: {}\r\n\r\n{body}", body.len()).into_bytes())
    }

    /// A job as `queryAsyncJobResult` shows it.
    pub(crate) fn job(id: &str, status: u8, result: Value) -> Self {
        let mut job = json!({ "jobid": id, "jobstatus": status, "jobresultcode": 0 });
        job["jobresult"] = result;
        Self::ok(job)
    }

    /// A job that can't be found.
    pub(crate) fn gone() -> Self {
        Self::error(
            431,
            "Invalid parameter due to incorrect long value format, or entity does not exist or ..",
        )
    }

    fn into_bytes(self) -> Vec<u8> {
        match self {
            Self::Bytes(bytes) => bytes,
            Self::Cut => Vec::new(),
            Self::Json(status, value) => {
                let body = value.to_string();
                let head = format!("HTTP/1.1 {status} X\r\ncontent-type: application/json;charset=utf-8\r\n");
                format!("{head}content-length: {}\r\n\r\n{body}", body.len()).into_bytes()
            }
        }
    }
}

/// An endpoint.
pub(crate) struct Fake {
    pub(crate) url: url::Url,
    calls: Arc<Mutex<Vec<Call>>>,
    stop: CancellationToken,
}

impl Drop for Fake {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

impl Fake {
    /// Answers each call by a function of the call.
    pub(crate) async fn start<H, F>(handler: H) -> Self
    where
        H: Fn(Call) -> F + Send + Sync + 'static,
        F: Future<Output = Reply> + Send,
    {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/client/api", listener.local_addr().unwrap())
            .parse()
            .unwrap();
        let (calls, stop) = (Arc::new(Mutex::new(Vec::new())), CancellationToken::new());
        let (seen, stopped, handler) = (Arc::clone(&calls), stop.clone(), Arc::new(handler));
        TaskTracker::new().spawn(async move {
            let connections = TaskTracker::new();
            while let Some(Ok((mut stream, _))) = stopped.run_until_cancelled(listener.accept()).await {
                let (seen, handler, stopped) = (Arc::clone(&seen), Arc::clone(&handler), stopped.clone());
                connections.spawn(stopped.clone().run_until_cancelled_owned(async move {
                    while let Some(call) = receive(&mut stream).await {
                        seen.lock().push(call.clone());
                        let reply = handler(call).await;
                        let close = !matches!(reply, Reply::Json(..));
                        if stream.write_all(&reply.into_bytes()).await.is_err() || close {
                            break;
                        }
                    }
                }));
            }
        });
        Self { url, calls, stop }
    }

    /// What arrived so far.
    pub(crate) fn calls(&self) -> Vec<Call> {
        self.calls.lock().clone()
    }

    pub(crate) fn count(&self, command: &str) -> usize {
        self.calls
            .lock()
            .iter()
            .filter(|call| call.command() == command)
            .count()
    }

    /// Waits until so many calls of a command have arrived.
    pub(crate) async fn until(&self, command: &str, count: usize) {
        until(|| self.count(command) >= count).await;
    }
}

/// The network with this name that the keys see.
pub(crate) async fn network_named(api: &Api, name: &str) -> Network {
    let networks = api.networks(&NetworkQuery::default()).await.unwrap();
    let mut networks = networks.into_items().into_iter();
    networks.find(|network| network.name == name).unwrap()
}

/// Waits for a condition.
pub(crate) async fn until(mut condition: impl FnMut() -> bool) {
    let waited = tokio::time::timeout(Duration::from_secs(20), async {
        let mut ticks = tokio::time::interval(Duration::from_millis(2));
        while !condition() {
            ticks.tick().await;
        }
    });
    waited.await.expect("the condition came true");
}

async fn receive(stream: &mut (impl AsyncReadExt + Unpin)) -> Option<Call> {
    let mut bytes = Vec::new();
    let head_end = loop {
        if let Some(end) = bytes.windows(4).position(|window| window == b"\r\n\r\n") {
            break end;
        }
        if stream.read_buf(&mut bytes).await.ok()? == 0 {
            return None;
        }
    };
    let head = String::from_utf8_lossy(&bytes[..head_end]).to_lowercase();
    let length = head.lines().find_map(|line| line.strip_prefix("content-length:"));
    let length: usize = length.map_or(0, |length| length.trim().parse().unwrap());
    while bytes.len() < head_end + 4 + length {
        if stream.read_buf(&mut bytes).await.ok()? == 0 {
            return None;
        }
    }
    let body = &bytes[head_end + 4..head_end + 4 + length];
    Some(Call {
        head,
        params: url::form_urlencoded::parse(body).into_owned().collect(),
    })
}

/// Everything that was logged by this process, at every level.
static LOG: Mutex<Vec<u8>> = Mutex::new(Vec::new());

struct Log;

impl std::io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        LOG.lock().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// What was logged so far.
pub(crate) fn log() -> String {
    String::from_utf8_lossy(&LOG.lock()).into_owned()
}

fn install_log() {
    static INSTALLED: std::sync::Once = std::sync::Once::new();
    INSTALLED.call_once(|| {
        let builder = tracing_subscriber::fmt()
            .with_max_level(tracing::Level::TRACE)
            .with_ansi(false);
        builder.with_writer(|| Log).init();
    });
}

/// What an account lives in during a test.
#[derive(Clone)]
pub(crate) struct Surroundings {
    pub(crate) environment: Environment,
}

impl Surroundings {
    pub(crate) fn new() -> Self {
        runtime::host::install_tls_provider();
        install_log();
        let environment = Environment {
            tasks: TaskTracker::new(),
            shutdown: CancellationToken::new(),
            metrics: CloudStackMetrics::default(),
        };
        Self { environment }
    }
}

/// A write and its job.
pub(crate) async fn done<T: Outcome>(
    started: impl Future<Output = Result<Started<T>, ApiError>>,
) -> Result<T, ApiError> {
    started.await?.finished().await
}

/// Settings with short waits.
pub(crate) fn settings(url: &url::Url) -> Settings {
    let keys = ApiKeys {
        api_key: "the-api-key".into(),
        secret_key: "the-secret-key".into(),
    };
    Settings {
        pace: Pace::scaled(0.02),
        ..Settings::new(url.clone(), keys)
    }
}

pub(crate) fn account(settings: &Settings) -> Arc<Account> {
    Account::new("main", settings, Surroundings::new().environment).unwrap()
}

pub(crate) fn api(fake: &Fake) -> Api {
    Api::new(account(&settings(&fake.url)), "tenant", None)
}
