//! One accepted connection, whatever it runs over.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_util::sync::{CancellationToken, DropGuard, WaitForCancellationFutureOwned};
use tonic::transport::server::Connected;

use super::Peer;
use super::admission::Held;
use super::wire::Wire;

/// An accepted connection whose caller is known.
pub(super) struct Connection {
    io: Wire,
    peer: Peer,
    /// Ends it from outside.
    ended: Pin<Box<WaitForCancellationFutureOwned>>,
    /// Tells others that it is over.
    _over: DropGuard,
    _held: Held,
}

impl Connection {
    /// `token` ends the connection when it is cancelled, and is cancelled when the connection ends by itself.
    pub(super) fn new(io: Wire, peer: Peer, token: CancellationToken, held: Held) -> Self {
        Self {
            io,
            peer,
            ended: Box::pin(token.clone().cancelled_owned()),
            _over: token.drop_guard(),
            _held: held,
        }
    }
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
        if self.ended.as_mut().poll(cx).is_ready() {
            return Poll::Ready(Err(io::ErrorKind::ConnectionAborted.into()));
        }
        Pin::new(&mut self.io).poll_read(cx, buf)
    }
}

impl AsyncWrite for Connection {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
}
