//! The broker's end of the link: accept, find out who calls, hand over to gRPC.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use anyhow::Context as _;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::sync::{Semaphore, mpsc};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tokio_stream::wrappers::ReceiverStream;
use tonic::service::Routes;
use tonic::transport::Server;
use tonic::transport::server::Connected;

use super::{Certificate, KEEP_ALIVE, KEEP_ALIVE_TIMEOUT, LinkAddress, Peer, unix};
use crate::host::Host;
use crate::tls::ServerTls;

/// How long a TLS handshake may take, so that a silent client blocks nobody.
const HANDSHAKE: Duration = Duration::from_secs(5);
/// Handshakes at a time; more wait in the kernel's queue.
const HANDSHAKES: usize = 32;
/// Calls at a time on one connection.
const STREAMS: u32 = 256;

/// Where to listen and whom to let in.
pub struct LinkServer {
    /// At least one address.
    pub listen: Vec<LinkAddress>,
    /// Needed for TCP; must ask for client certificates.
    pub tls: Option<ServerTls>,
    /// Users beside our own that may open the Unix socket.
    pub allow_uids: Vec<u32>,
}

/// Listens on every address, then serves calls until the host shuts down and the calls at hand are done. Returns the addresses that TCP
/// listeners got.
pub async fn serve(host: &Host, server: LinkServer, routes: Routes) -> anyhow::Result<Vec<SocketAddr>> {
    let (accepted, connections) = mpsc::channel::<io::Result<Connection>>(HANDSHAKES);
    let mut bound = Vec::new();
    for address in &server.listen {
        match address {
            LinkAddress::Unix(path) => {
                let listener = unix::bind(path).await?;
                let mut allowed = server.allow_uids.clone();
                allowed.push(unix::own_uid()?);
                host.spawn(
                    "link-unix",
                    accept_unix(host.clone(), listener, path.clone(), allowed, accepted.clone()),
                );
            }
            LinkAddress::Tcp { host: name, port } => {
                let tls = server.tls.clone().with_context(|| {
                    format!("--listen {address} needs --tls-cert-file, --tls-private-key-file and --client-ca-file")
                })?;
                let listener = TcpListener::bind((name.as_str(), *port))
                    .await
                    .with_context(|| format!("--listen {address}: the address can't be listened on"))?;
                bound.push(listener.local_addr()?);
                host.spawn(
                    "link-tcp",
                    accept_tcp(host.clone(), listener, tls, accepted.clone()),
                );
            }
        }
    }
    drop(accepted);
    let shutdown = host.shutdown();
    let serving = Server::builder()
        .http2_keepalive_interval(Some(KEEP_ALIVE))
        .http2_keepalive_timeout(Some(KEEP_ALIVE_TIMEOUT))
        .max_concurrent_streams(STREAMS)
        .add_routes(routes)
        .serve_with_incoming_shutdown(ReceiverStream::new(connections), async move {
            shutdown.cancelled().await;
        });
    let on_failure = host.clone();
    host.spawn("link", async move {
        if let Err(error) = serving.await {
            on_failure.fail(format!("the gRPC server ended: {}", crate::log::chain(&error)));
        }
    });
    Ok(bound)
}

async fn accept_unix(
    host: Host,
    listener: UnixListener,
    path: PathBuf,
    allowed: Vec<u32>,
    accepted: mpsc::Sender<io::Result<Connection>>,
) {
    let shutdown = host.shutdown();
    loop {
        let stream = tokio::select! {
            stream = listener.accept() => stream,
            () = shutdown.cancelled() => break,
        };
        let Ok((stream, _)) = stream else {
            tokio::time::sleep(Duration::from_millis(100)).await;
            continue;
        };
        let uid = stream.peer_cred().map(|credentials| credentials.uid());
        match uid {
            Ok(uid) if allowed.contains(&uid) => {
                let connection = Connection {
                    io: Io::Unix(stream),
                    peer: Peer::Unix { uid },
                };
                if accepted.send(Ok(connection)).await.is_err() {
                    break;
                }
            }
            Ok(uid) => tracing::warn!(uid, "refused a caller on the Unix socket; --allow-uid lets it in"),
            Err(error) => {
                tracing::warn!(fault = %error, "refused a caller on the Unix socket without credentials");
            }
        }
    }
    // Ours, and nobody can connect any more: leave no dead socket behind.
    if let Err(error) = std::fs::remove_file(&path) {
        tracing::debug!(fault = %error, "the socket was gone already");
    }
}

async fn accept_tcp(
    host: Host,
    listener: TcpListener,
    tls: ServerTls,
    accepted: mpsc::Sender<io::Result<Connection>>,
) {
    let shutdown = host.shutdown();
    let handshakes = Arc::new(Semaphore::new(HANDSHAKES));
    loop {
        let Ok(permit) = Arc::clone(&handshakes).acquire_owned().await else {
            return;
        };
        let stream = tokio::select! {
            stream = listener.accept() => stream,
            () = shutdown.cancelled() => return,
        };
        let Ok((stream, address)) = stream else {
            tokio::time::sleep(Duration::from_millis(100)).await;
            continue;
        };
        let (acceptor, accepted) = (TlsAcceptor::from(tls.current()), accepted.clone());
        host.spawn("link-handshake", async move {
            match handshake(acceptor, stream).await {
                Ok(connection) => {
                    // The other end of the channel is gone only when the server ends.
                    let _ = accepted.send(Ok(connection)).await;
                }
                Err(why) => tracing::warn!(peer = %address, fault = %why, "refused a connection"),
            }
            drop(permit);
        });
    }
}

async fn handshake(acceptor: TlsAcceptor, stream: TcpStream) -> Result<Connection, String> {
    // Small messages in both directions: waiting for more to send only adds delay.
    stream.set_nodelay(true).map_err(|error| error.to_string())?;
    let stream = tokio::time::timeout(HANDSHAKE, acceptor.accept(stream))
        .await
        .map_err(|_| "the TLS handshake took too long".to_owned())?
        .map_err(|error| error.to_string())?;
    let chain = stream.get_ref().1.peer_certificates().unwrap_or_default();
    let certificate = chain
        .first()
        .map(Certificate::read)
        .ok_or("the client sent no certificate")?;
    if !certificate.for_clients {
        return Err(
            "the client's certificate is not made for client authentication (extended key usage)".into(),
        );
    }
    Ok(Connection {
        io: Io::Tls(Box::new(stream)),
        peer: Peer::Certificate(certificate),
    })
}

/// An accepted connection.
struct Connection {
    io: Io,
    peer: Peer,
}

enum Io {
    Unix(UnixStream),
    Tls(Box<TlsStream<TcpStream>>),
}

impl Connected for Connection {
    type ConnectInfo = Peer;

    fn connect_info(&self) -> Peer {
        self.peer.clone()
    }
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match &mut self.io {
            Io::Unix(io) => Pin::new(io).poll_read(cx, buf),
            Io::Tls(io) => Pin::new(io).poll_read(cx, buf),
        }
    }
}

impl AsyncWrite for Connection {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        match &mut self.io {
            Io::Unix(io) => Pin::new(io).poll_write(cx, buf),
            Io::Tls(io) => Pin::new(io).poll_write(cx, buf),
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.io {
            Io::Unix(io) => Pin::new(io).poll_flush(cx),
            Io::Tls(io) => Pin::new(io).poll_flush(cx),
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.io {
            Io::Unix(io) => Pin::new(io).poll_shutdown(cx),
            Io::Tls(io) => Pin::new(io).poll_shutdown(cx),
        }
    }
}
