//! The agent's end of the link: one channel that finds the first broker of its list that answers.

use std::error::Error as _;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use http::Uri;
use hyper_util::rt::TokioIo;
use rustls_pki_types::ServerName;
use tokio::net::{TcpStream, UnixStream};
use tokio_rustls::TlsConnector;
use tonic::Status;
use tonic::transport::{Channel, Endpoint};
use tower::service_fn;

use super::wire::Wire;
use super::{KEEP_ALIVE, KEEP_ALIVE_TIMEOUT, LinkAddress, unix};
use crate::host::Host;
use crate::tls::ClientTls;

/// How long one address may take to answer before the next one is tried.
const CONNECT: Duration = Duration::from_secs(3);

/// Where brokers are, and which ones are believed.
#[derive(Clone, Default)]
pub struct Brokers {
    /// Their addresses, tried in order.
    pub addresses: Vec<LinkAddress>,
    /// Needed for TCP.
    pub tls: Option<ClientTls>,
    /// Users beside our own and root that may listen on a Unix socket.
    pub uids: Vec<u32>,
}

/// The way to the brokers.
#[derive(Clone)]
pub struct Link {
    channel: Arc<ArcSwap<Channel>>,
}

impl Link {
    /// A link to the first of these addresses that answers; every new connection starts at the head of the list. Connects when it is first
    /// used, so a broker that is away is no fault here. TCP addresses need `tls`; when its files change, new calls use a new connection.
    pub fn connect(host: &Host, addresses: Vec<LinkAddress>, tls: Option<ClientTls>) -> Self {
        let uids = Vec::new();
        Self::connect_to(host, Brokers { addresses, tls, uids })
    }

    /// The same, to brokers of other users as well.
    pub fn connect_to(host: &Host, brokers: Brokers) -> Self {
        let brokers = Arc::new(brokers);
        let link = Self {
            channel: Arc::new(ArcSwap::from_pointee(open(Arc::clone(&brokers)))),
        };
        if let Some(tls) = &brokers.tls {
            tls.watch(host);
            let (channel, shutdown, mut changed) =
                (Arc::clone(&link.channel), host.shutdown(), tls.changed());
            let brokers = Arc::clone(&brokers);
            host.spawn("link-reload", async move {
                loop {
                    let alive = tokio::select! {
                        changed = changed.changed() => changed.is_ok(),
                        () = shutdown.cancelled() => false,
                    };
                    if !alive {
                        return;
                    }
                    channel.store(Arc::new(open(Arc::clone(&brokers))));
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

fn open(brokers: Arc<Brokers>) -> Channel {
    // The connector chooses the address; the authority only fills the request line.
    let endpoint = Endpoint::from_static("http://broker")
        .http2_keep_alive_interval(KEEP_ALIVE)
        .keep_alive_timeout(KEEP_ALIVE_TIMEOUT)
        .keep_alive_while_idle(true);
    endpoint.connect_with_connector_lazy(service_fn(move |_: Uri| {
        let brokers = Arc::clone(&brokers);
        async move { first(&brokers).await.map(TokioIo::new) }
    }))
}

async fn first(brokers: &Brokers) -> io::Result<Wire> {
    let mut faults = Vec::new();
    for address in &brokers.addresses {
        let fault = match tokio::time::timeout(CONNECT, one(address, brokers)).await {
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

async fn one(address: &LinkAddress, brokers: &Brokers) -> io::Result<Wire> {
    match address {
        LinkAddress::Unix(path) => {
            let stream = UnixStream::connect(path).await?;
            let uid = stream.peer_cred()?.uid();
            let own = unix::own_uid().map_err(io::Error::other)?;
            if !is_believed(uid, own, &brokers.uids) {
                return Err(io::Error::other(format!(
                    "user {uid} listens there, not user {own}; --broker-uid {uid} trusts it"
                )));
            }
            Ok(Wire::Unix(stream))
        }
        LinkAddress::Tcp { host, port } => {
            let tls = brokers.tls.as_ref().ok_or_else(|| {
                io::Error::other("TCP needs certificates: --broker-ca-file and its companions")
            })?;
            let name = ServerName::try_from(host.clone()).map_err(io::Error::other)?;
            let stream = TcpStream::connect((host.as_str(), *port)).await?;
            stream.set_nodelay(true)?;
            let stream = TlsConnector::from(tls.current()).connect(name, stream).await?;
            Ok(Wire::tls(stream))
        }
    }
}

/// Whoever can put a socket of his own in the broker's place must not be taken for it.
fn is_believed(listens: u32, own: u32, uids: &[u32]) -> bool {
    listens == own || listens == 0 || uids.contains(&listens)
}

/// Whether a call failed because its connection ended before the call was on it, so that it can be made again.
pub fn was_not_sent(status: &Status) -> bool {
    let mut cause = status.source();
    while let Some(error) = cause {
        if error
            .downcast_ref::<hyper::Error>()
            .is_some_and(hyper::Error::is_canceled)
        {
            return true;
        }
        cause = error.source();
    }
    false
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::our_own(7, &[], true)]
    #[case::root(0, &[], true)]
    #[case::a_named_one(8, &[9, 8], true)]
    #[case::anybody_else(8, &[9], false)]
    fn a_broker_on_a_socket_is_believed_by_its_user(
        #[case] listens: u32,
        #[case] uids: &[u32],
        #[case] believed: bool,
    ) {
        assert_eq!(is_believed(listens, 7, uids), believed);
    }
}
