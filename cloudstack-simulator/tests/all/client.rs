//! A small signing client, written apart from the simulator's own check.

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use cloudstack_simulator::{Handle, KeyPair};
use hmac::{Hmac, KeyInit as _, Mac as _};
use serde_json::Value;
use sha1::Sha1;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// An answer as it came.
#[derive(Debug, Clone)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) content_type: Option<String>,
    pub(crate) description: Option<String>,
    pub(crate) text: String,
}

impl Answer {
    /// The body, when it is JSON.
    pub(crate) fn json(&self) -> Option<Value> {
        serde_json::from_str(&self.text).ok()
    }

    /// What is inside the envelope.
    pub(crate) fn inner(&self) -> Value {
        match self.json() {
            Some(Value::Object(fields)) => fields
                .into_iter()
                .next()
                .map(|(_, value)| value)
                .unwrap_or_default(),
            _ => Value::Null,
        }
    }
}

/// How a request is signed and sent.
#[derive(Debug, Clone)]
pub(crate) struct Manner<'a> {
    pub(crate) auth: &'a str,
    pub(crate) method: &'a str,
    pub(crate) path: &'a str,
    pub(crate) extra: &'a str,
}

impl Default for Manner<'_> {
    fn default() -> Self {
        Self {
            auth: "v1",
            method: "GET",
            path: "/client/api",
            extra: "",
        }
    }
}

/// Calls a command with the keys of a caller. The error: the connection went away without an answer.
pub(crate) async fn call(
    simulator: &Handle,
    caller: &str,
    command: &str,
    params: &[(&str, &str)],
) -> Result<Answer, String> {
    let mut pairs: Vec<(String, String)> = params
        .iter()
        .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
        .collect();
    pairs.push(("command".into(), command.into()));
    pairs.push(("response".into(), "json".into()));
    let keys = simulator.keys(caller).ok_or("no such caller")?;
    request(simulator.address(), keys, pairs, &Manner::default()).await
}

/// Calls a command and waits for its job. The answer is the job's.
pub(crate) async fn run(simulator: &Handle, caller: &str, command: &str, params: &[(&str, &str)]) -> Value {
    let started = call(simulator, caller, command, params).await.unwrap();
    assert_eq!(started.status, 200, "{command}: {}", started.text);
    let job = started.inner()["jobid"].as_str().unwrap().to_owned();
    loop {
        let polled = call(simulator, caller, "queryAsyncJobResult", &[("jobid", &job)])
            .await
            .unwrap()
            .inner();
        if polled["jobstatus"] != 0 {
            return polled;
        }
        simulator.settled().await;
    }
}

/// Sends a request, signed in the manner asked for.
pub(crate) async fn request(
    address: SocketAddr,
    keys: &KeyPair,
    pairs: Vec<(String, String)>,
    manner: &Manner<'_>,
) -> Result<Answer, String> {
    let pairs = signed(pairs, keys, manner.auth);
    let form: Vec<String> = pairs
        .iter()
        .map(|(name, value)| format!("{}={}", encoded(name), encoded(value)))
        .collect();
    let form = form.join("&") + manner.extra;
    let (method, path) = (manner.method, manner.path);
    let text = if method == "POST" {
        format!(
            "POST {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Type: application/x-www-form-urlencoded\r\nContent-Length: {}\r\n\r\n{form}",
            form.len()
        )
    } else {
        format!("{method} {path}?{form} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
    };
    exchange(address, &text).await
}

/// Sends raw text and reads the whole answer.
pub(crate) async fn exchange(address: SocketAddr, text: &str) -> Result<Answer, String> {
    let mut stream = TcpStream::connect(address)
        .await
        .map_err(|error| error.to_string())?;
    stream
        .write_all(text.as_bytes())
        .await
        .map_err(|error| error.to_string())?;
    let mut bytes = Vec::new();
    stream
        .read_to_end(&mut bytes)
        .await
        .map_err(|error| error.to_string())?;
    let text = String::from_utf8_lossy(&bytes).into_owned();
    let (head, body) = text.split_once("\r\n\r\n").ok_or("no answer")?;
    let status = head
        .split(' ')
        .nth(1)
        .and_then(|status| status.parse().ok())
        .ok_or("no status")?;
    let header = |name: &str| {
        head.lines()
            .skip(1)
            .filter_map(|line| line.split_once(": "))
            .find(|(key, _)| key.eq_ignore_ascii_case(name))
            .map(|(_, value)| value.to_owned())
    };
    Ok(Answer {
        status,
        content_type: header("content-type"),
        description: header("x-description"),
        text: body.to_owned(),
    })
}

/// Form encoding with `%20`.
fn encoded(value: &str) -> String {
    let mut out = String::new();
    for byte in value.bytes() {
        if byte.is_ascii_alphanumeric() || b".-_*".contains(&byte) {
            out.push(char::from(byte));
        } else {
            let _ = write!(out, "%{byte:02X}");
        }
    }
    out
}

fn expires(offset: i64, zone: &str) -> String {
    let now = i64::try_from(
        SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or(Duration::ZERO)
            .as_secs(),
    )
    .unwrap_or(0)
        + offset;
    // Days to a date, counted year by year: slow and obvious.
    let (mut days, rest) = (now / 86400, now % 86400);
    let mut year = 1970;
    let leap = |year: i64| year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    while days >= if leap(year) { 366 } else { 365 } {
        days -= if leap(year) { 366 } else { 365 };
        year += 1;
    }
    let february = if leap(year) { 29 } else { 28 };
    let mut month = 1;
    for length in [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31] {
        if days < length {
            break;
        }
        days -= length;
        month += 1;
    }
    format!(
        "{year:04}-{month:02}-{:02}T{:02}:{:02}:{:02}{zone}",
        days + 1,
        rest / 3600,
        rest / 60 % 60,
        rest % 60
    )
}

fn signed(mut pairs: Vec<(String, String)>, keys: &KeyPair, auth: &str) -> Vec<(String, String)> {
    if auth == "none" {
        return pairs;
    }
    let (key_name, version_name) = if auth == "lower" {
        ("apikey", "signatureversion")
    } else {
        ("apiKey", "signatureVersion")
    };
    let key = if auth == "unknownkey" {
        "A".repeat(86)
    } else {
        keys.api_key.clone()
    };
    let secret = if auth == "wrongsecret" {
        "x".repeat(86)
    } else {
        keys.secret_key.clone()
    };
    pairs.push((key_name.into(), key));
    let time = expiry(auth);
    if let Some(time) = time {
        pairs.push((version_name.into(), "3".into()));
        pairs.push(("expires".into(), time));
    }
    match auth {
        "v3noexpires" => pairs.push((version_name.into(), "3".into())),
        "v1expired" => pairs.push(("expires".into(), expires(-60, "+0000"))),
        "nosignature" => return pairs,
        _ => {}
    }
    let mut sorted: Vec<&(String, String)> = pairs.iter().collect();
    sorted.sort();
    let mut text = sorted
        .iter()
        .map(|(name, value)| format!("{name}={}", encoded(value)))
        .collect::<Vec<_>>()
        .join("&");
    if auth != "casekept" {
        text = text.to_lowercase();
    }
    if auth == "starescaped" {
        text = text.replace('*', "%2a");
    }
    if auth == "tildebare" {
        text = text.replace("%7e", "~");
    }
    let mut mac = Hmac::<Sha1>::new_from_slice(secret.as_bytes()).unwrap();
    mac.update(text.as_bytes());
    pairs.push((
        "signature".into(),
        base64::engine::general_purpose::STANDARD.encode(mac.finalize().into_bytes()),
    ));
    pairs
}

/// The expiry of a manner, if it has one.
fn expiry(auth: &str) -> Option<String> {
    match auth {
        "v3z" => Some(expires(600, "Z")),
        "v3num" | "lower" => Some(expires(600, "+0000")),
        "v3far" => Some(expires(86400, "+0000")),
        "v3edge" => Some(expires(890, "+0000")),
        "v3toofar" => Some(expires(1000, "+0000")),
        "v3expired" => Some(expires(-60, "+0000")),
        "v3garbage" => Some("tomorrow".into()),
        "v3colon" => Some(expires(600, "+00:00")),
        "v3nozone" => Some(expires(600, "")),
        _ => None,
    }
}
