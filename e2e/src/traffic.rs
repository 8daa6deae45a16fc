//! Bytes through a load balancer: backends on the machines' addresses, and a client that says where it comes from.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::wait;

/// What a backend saw of one request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seen {
    /// The backend's name.
    pub backend: String,
    /// The PROXY header, if one came before the request.
    pub proxy: Option<String>,
}

impl Seen {
    /// The client's address that the PROXY header names.
    pub fn client(&self) -> Option<&str> {
        self.proxy.as_deref()?.split(' ').nth(2)
    }
}

/// A web server on a machine's address; it ends when this value goes.
#[derive(Debug)]
pub struct Backend {
    _end: DropGuard,
}

impl Backend {
    /// Starts one that answers with its name.
    pub async fn listen(name: &str, address: SocketAddr) -> Result<Self> {
        let listener = TcpListener::bind(address)
            .await
            .with_context(|| format!("backend on {address}"))?;
        let (name, end) = (name.to_owned(), CancellationToken::new());
        let ended = end.clone();
        wait::spawn(async move {
            loop {
                let accepted = tokio::select! {
                    accepted = listener.accept() => accepted,
                    () = ended.cancelled() => return,
                };
                if let Ok((stream, _)) = accepted {
                    let name = name.clone();
                    // Health checks connect and hang up: no request, no answer.
                    wait::spawn(async move { answer(&name, stream).await.ok() });
                }
            }
        });
        Ok(Self {
            _end: end.drop_guard(),
        })
    }
}

async fn answer(name: &str, stream: TcpStream) -> Result<()> {
    let mut stream = BufReader::new(stream);
    let (mut first, mut proxy) = (String::new(), String::new());
    stream.read_line(&mut first).await?;
    if first.starts_with("PROXY ") {
        first.trim_end().clone_into(&mut proxy);
        stream.read_line(&mut first).await?;
    }
    if first.is_empty() {
        bail!("no request");
    }
    let body = format!("{name}\n{proxy}\n");
    let head = format!(
        "HTTP/1.0 200 OK\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    stream.write_all(format!("{head}{body}").as_bytes()).await?;
    stream.shutdown().await?;
    Ok(())
}

/// One HTTP request to `to`, from the local address `from` if one is given.
pub async fn request(to: SocketAddr, from: Option<IpAddr>) -> Result<Seen> {
    let ask = async {
        let socket = TcpSocket::new_v4()?;
        if let Some(from) = from {
            socket.bind(SocketAddr::new(from, 0))?;
        }
        let mut stream = socket.connect(to).await?;
        stream.write_all(b"GET / HTTP/1.0\r\nHost: test\r\n\r\n").await?;
        let mut text = String::new();
        stream.read_to_string(&mut text).await?;
        Ok::<_, std::io::Error>(text)
    };
    let text = tokio::time::timeout(Duration::from_secs(3), ask)
        .await
        .context("no answer in 3 s")??;
    let (head, body) = text
        .split_once("\r\n\r\n")
        .with_context(|| format!("no answer: '{text}'"))?;
    if !head.contains(" 200 ") {
        bail!("the answer was {}", head.lines().next().unwrap_or_default());
    }
    let mut lines = body.lines();
    let backend = lines.next().context("an empty answer")?.to_owned();
    let proxy = lines.next().filter(|line| !line.is_empty()).map(str::to_owned);
    Ok(Seen { backend, proxy })
}

/// Asks until each of these backends has answered, and no other one.
pub async fn reaches(to: SocketAddr, backends: &BTreeSet<String>, within: Duration) -> Result<()> {
    wait::until_holds(within, format!("{to} leads to {backends:?}"), || async {
        let mut seen = BTreeSet::new();
        for _ in 0..backends.len() * 4 {
            seen.insert(request(to, None).await?.backend);
        }
        Ok((seen != *backends).then(|| format!("it leads to {seen:?}")))
    })
    .await
}

/// Asks until nobody answers.
pub async fn closed(to: SocketAddr, from: Option<IpAddr>, within: Duration) -> Result<()> {
    wait::until_holds(within, format!("{to} does not answer {from:?}"), || async {
        Ok(request(to, from)
            .await
            .ok()
            .map(|seen| format!("{} answers", seen.backend)))
    })
    .await
}
