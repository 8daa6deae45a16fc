//! The agent's end of the link: one channel that finds the first broker of its list that answers.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use arc_swap::ArcSwap;
use http::Uri;
use hyper_util::rt::TokioIo;
use rustls_pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, UnixStream};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tonic::transport::{Channel, Endpoint};
use tower::service_fn;

use super::{KEEP_ALIVE, KEEP_ALIVE_TIMEOUT, LinkAddress};
use crate::host::Host;
use crate::tls::ClientTls;

/// How long one address may take to answer before the next one is tried.
const CONNECT: Duration = Duration::from_secs(3);

/// The way to the brokers.
#[derive(Clone)]
pub struct Link {
    channel: Arc<ArcSwap<Channel>>,
}

impl Link {
    /// A link to the first of these addresses that answers; every new connection starts at the head of the list. Connects when it is first
    /// used, so a broker that is away is no fault here. TCP addresses need `tls`; when its files change, new calls use a new connection.
    pub fn connect(host: &Host, addresses: Vec<LinkAddress>, tls: Option<ClientTls>) -> Self {
        let addresses: Arc<[LinkAddress]> = addresses.into();
        let link = Self {
            channel: Arc::new(ArcSwap::from_pointee(open(Arc::clone(&addresses), tls.clone()))),
        };
        if let Some(tls) = tls {
            tls.watch(host);
            let (channel, shutdown, mut changed) =
                (Arc::clone(&link.channel), host.shutdown(), tls.changed());
            host.spawn("link-reload", async move {
                loop {
                    let alive = tokio::select! {
                        changed = changed.changed() => changed.is_ok(),
                        () = shutdown.cancelled() => false,
                    };
                    if !alive {
                        return;
                    }
                    channel.store(Arc::new(open(Arc::clone(&addresses), Some(tls.clone()))));
                }
            });
        }
        link
    }

    /// The channel that new calls should use.
    pub fn channel(&self) -> Channel {
        self.channel.load().as_ref().clone()
    }
}

fn open(addresses: Arc<[LinkAddress]>, tls: Option<ClientTls>) -> Channel {
    // The connector chooses the address; the authority only fills the request line.
    let endpoint = Endpoint::from_static("http://broker")
        .http2_keep_alive_interval(KEEP_ALIVE)
        .keep_alive_timeout(KEEP_ALIVE_TIMEOUT)
        .keep_alive_while_idle(true);
    endpoint.connect_with_connector_lazy(service_fn(move |_: Uri| {
        let (addresses, tls) = (Arc::clone(&addresses), tls.clone());
        async move { first(&addresses, tls.as_ref()).await.map(TokioIo::new) }
    }))
}

async fn first(addresses: &[LinkAddress], tls: Option<&ClientTls>) -> io::Result<Stream> {
    let mut faults = Vec::new();
    for address in addresses {
        let fault = match tokio::time::timeout(CONNECT, one(address, tls)).await {
            Ok(Ok(stream)) => return Ok(stream),
            Ok(Err(error)) => error.to_string(),
            Err(_) => "no answer".to_owned(),
        };
        faults.push(format!("{address}: {fault}"));
    }
    Err(io::Error::other(format!(
        "no broker can be reached ({})",
        faults.join("; ")
    )))
}

async fn one(address: &LinkAddress, tls: Option<&ClientTls>) -> io::Result<Stream> {
    match address {
        LinkAddress::Unix(path) => Ok(Stream::Unix(UnixStream::connect(path).await?)),
        LinkAddress::Tcp { host, port } => {
            let tls = tls.ok_or_else(|| {
                io::Error::other("TCP needs certificates: --broker-ca-file and its companions")
            })?;
            let name = ServerName::try_from(host.clone()).map_err(io::Error::other)?;
            let stream = TcpStream::connect((host.as_str(), *port)).await?;
            stream.set_nodelay(true)?;
            let stream = TlsConnector::from(tls.current()).connect(name, stream).await?;
            Ok(Stream::Tls(Box::new(stream)))
        }
    }
}

enum Stream {
    Unix(UnixStream),
    Tls(Box<TlsStream<TcpStream>>),
}

impl AsyncRead for Stream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Unix(io) => Pin::new(io).poll_read(cx, buf),
            Self::Tls(io) => Pin::new(io).poll_read(cx, buf),
        }
    }
}

impl AsyncWrite for Stream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Unix(io) => Pin::new(io).poll_write(cx, buf),
            Self::Tls(io) => Pin::new(io).poll_write(cx, buf),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Unix(io) => Pin::new(io).poll_flush(cx),
            Self::Tls(io) => Pin::new(io).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Unix(io) => Pin::new(io).poll_shutdown(cx),
            Self::Tls(io) => Pin::new(io).poll_shutdown(cx),
        }
    }
}
