//! The broker's end of the link: accept, find out who calls, hand over to gRPC.
//!
//! A connection whose caller is not known yet keeps nobody out: there are many of those, few from one place, and the oldest makes room. A
//! connection whose certificate would not be let in any more is ended, and every connection is replaced now and then, so that
//! what was true when it began does not count for ever.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use rustls_pki_types::CertificateDer;
use tokio::net::{TcpListener, TcpStream, UnixListener};
use tokio::sync::mpsc;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::sync::CancellationToken;
use tonic::service::Routes;
use tonic::transport::Server;

use super::admission::{Admission, AdmissionLayer, Authorizer, EveryPeer, Limits};
use super::connection::Connection;
use super::wire::Wire;
use super::{Certificate, KEEP_ALIVE, KEEP_ALIVE_TIMEOUT, LinkAddress, Peer, unix};
use crate::host::Host;
use crate::seats::Seats;
use crate::tls::ServerTls;

/// How long a TLS handshake may take.
const HANDSHAKE: Duration = Duration::from_secs(5);
/// Handshakes at a time, and those from one place.
const HANDSHAKES: usize = 256;
const HANDSHAKES_OF_ONE: usize = 64;
/// Connections that wait until the server takes them.
const ACCEPTED: usize = 32;
/// Calls at a time on one connection.
const STREAMS: u32 = 64;
/// How long a call may take, from its first byte on; longer than any call waits.
const CALL: Duration = Duration::from_mins(1);
/// How often the certificate of an open connection is looked at again; a change of the files is acted on as soon as it is read.
const RECHECK: Duration = Duration::from_mins(1);

/// Where to listen and whom to let in.
pub struct LinkServer {
    /// At least one address.
    pub listen: Vec<LinkAddress>,
    /// Needed for TCP; must ask for client certificates.
    pub tls: Option<ServerTls>,
    /// Users beside our own that may open the Unix socket.
    pub allow_uids: Vec<u32>,
    /// Who may call.
    pub authorizer: Arc<dyn Authorizer>,
    /// What one caller may hold at once.
    pub limits: Limits,
}

impl LinkServer {
    /// Listens on these addresses, without certificates, and lets every peer call that a listener lets in.
    pub fn new(listen: Vec<LinkAddress>) -> Self {
        Self {
            listen,
            tls: None,
            allow_uids: Vec::new(),
            authorizer: Arc::new(EveryPeer),
            limits: Limits::default(),
        }
    }
}

/// What listeners hand their connections to.
#[derive(Clone)]
struct Reception {
    host: Host,
    admission: Arc<Admission>,
    accepted: mpsc::Sender<io::Result<Connection>>,
}

/// Listens on every address, then serves calls until the host shuts down and the calls at hand are done. Returns the addresses that TCP
/// listeners got.
pub async fn serve(host: &Host, server: LinkServer, routes: Routes) -> anyhow::Result<Vec<SocketAddr>> {
    let (accepted, connections) = mpsc::channel(ACCEPTED);
    let admission = Admission::new(server.authorizer, server.limits);
    let reception = Reception {
        host: host.clone(),
        admission: Arc::clone(&admission),
        accepted,
    };
    let mut bound = Vec::new();
    for address in &server.listen {
        match address {
            LinkAddress::Unix(path) => {
                let mut allowed = server.allow_uids.clone();
                allowed.push(unix::own_uid()?);
                let listener = unix::bind(path, &allowed).await?;
                host.spawn(
                    "link-unix",
                    reception.clone().accept_unix(listener, path.clone(), allowed),
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
                host.spawn("link-tcp", reception.clone().accept_tcp(listener, tls));
            }
        }
    }
    drop(reception);
    let shutdown = host.shutdown();
    let serving = Server::builder()
        .http2_keepalive_interval(Some(KEEP_ALIVE))
        .http2_keepalive_timeout(Some(KEEP_ALIVE_TIMEOUT))
        .max_concurrent_streams(STREAMS)
        // Without a grace: with one, tonic gives no notice and ends the connection with the calls on it.
        .max_connection_age(server.limits.age)
        .timeout(CALL)
        .layer(AdmissionLayer(admission))
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

impl Reception {
    async fn accept_unix(self, listener: UnixListener, path: PathBuf, allowed: Vec<u32>) {
        let shutdown = self.host.shutdown();
        loop {
            let stream = tokio::select! {
                stream = listener.accept() => stream,
                () = shutdown.cancelled() => break,
            };
            let Ok((stream, _)) = stream else {
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            };
            let uid = match stream.peer_cred() {
                Ok(credentials) => credentials.uid(),
                Err(error) => {
                    tracing::warn!(fault = %error, "refused a caller on the Unix socket without credentials");
                    continue;
                }
            };
            if !allowed.contains(&uid) {
                tracing::warn!(uid, "refused a caller on the Unix socket; --allow-uid lets it in");
                continue;
            }
            if let Err(why) = self.welcome(Wire::Unix(stream), Peer::Unix { uid }).await {
                tracing::warn!(uid, fault = %why, "refused a caller on the Unix socket");
            }
        }
        // Ours, and nobody can connect any more: leave no dead socket behind.
        if let Err(error) = std::fs::remove_file(&path) {
            tracing::debug!(fault = %error, "the socket was gone already");
        }
    }

    async fn accept_tcp(self, listener: TcpListener, tls: ServerTls) {
        let shutdown = self.host.shutdown();
        let seats = Seats::new(HANDSHAKES, HANDSHAKES_OF_ONE);
        loop {
            let stream = tokio::select! {
                stream = listener.accept() => stream,
                () = shutdown.cancelled() => return,
            };
            let Ok((stream, address)) = stream else {
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            };
            let (seat, tls, reception) = (seats.take(address.ip()), tls.clone(), self.clone());
            self.host.spawn_contained("link-connection", async move {
                let met = tokio::select! {
                    met = handshake(&tls, stream) => met,
                    () = seat.lost() => Err("newer connections needed its place".to_owned()),
                };
                drop(seat);
                let result = match met {
                    Ok((stream, certificate)) => reception.attend(&tls, stream, certificate).await,
                    Err(why) => Err(why),
                };
                if let Err(why) = result {
                    tracing::warn!(peer = %address, fault = %why, "refused a connection");
                }
            });
        }
    }

    /// Hands a connection over; its token ends it, and is cancelled when it ends.
    async fn welcome(&self, io: Wire, peer: Peer) -> Result<CancellationToken, String> {
        let held = self.admission.connection(&peer)?;
        let token = CancellationToken::new();
        let connection = Connection::new(io, peer, token.clone(), held);
        // The other end of the channel is gone only when the server ends.
        let _ = self.accepted.send(Ok(connection)).await;
        Ok(token)
    }

    /// Hands a connection over, and ends it when its certificate is not trusted any more.
    async fn attend(
        self,
        tls: &ServerTls,
        stream: TlsStream<TcpStream>,
        certificate: Certificate,
    ) -> Result<(), String> {
        let chain = stream.get_ref().1.peer_certificates().unwrap_or_default();
        let chain: Vec<CertificateDer<'static>> = chain.iter().map(|one| one.clone().into_owned()).collect();
        let (peer, shutdown) = (Peer::Certificate(certificate), self.host.shutdown());
        // Before the last look at the files, so that no change is missed.
        let mut changed = tls.changed();
        let name = peer.to_string();
        let token = self.welcome(Wire::tls(stream), peer).await?;
        // The server ends when nobody can bring connections any more.
        drop(self);
        while tls.trusts(&chain) {
            tokio::select! {
                () = token.cancelled() => return Ok(()),
                () = shutdown.cancelled() => return Ok(()),
                _ = changed.changed() => {}
                () = tokio::time::sleep(RECHECK) => {}
            }
        }
        tracing::warn!(peer = %name, "ended a connection: its certificate ran out, or its CA is not trusted any more");
        token.cancel();
        Ok(())
    }
}

async fn handshake(
    tls: &ServerTls,
    stream: TcpStream,
) -> Result<(TlsStream<TcpStream>, Certificate), String> {
    // Small messages in both directions: waiting for more to send only adds delay.
    stream.set_nodelay(true).map_err(|error| error.to_string())?;
    let accepting = TlsAcceptor::from(tls.current()).accept(stream);
    let stream = tokio::time::timeout(HANDSHAKE, accepting)
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
    Ok((stream, certificate))
}
