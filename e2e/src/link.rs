//! A TCP connection that can be cut: stands between a program and a server, so that "the server is away" can be
//! played without stopping the server.

use std::sync::Arc;

use anyhow::Result;
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;

use crate::wait;

/// Forwards a loopback port to another one.
#[derive(Debug, Clone)]
pub struct Link {
    port: u16,
    state: Arc<parking_lot::Mutex<CancellationToken>>,
    _end: Arc<tokio_util::sync::DropGuard>,
}

impl Link {
    /// Starts forwarding to `127.0.0.1:target`.
    pub async fn to(target: u16) -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let port = listener.local_addr()?.port();
        let state = Arc::new(parking_lot::Mutex::new(CancellationToken::new()));
        let end = CancellationToken::new();
        wait::spawn(forward(listener, target, Arc::clone(&state), end.clone()));
        Ok(Self {
            port,
            state,
            _end: Arc::new(end.drop_guard()),
        })
    }

    /// The port that programs connect to.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Ends all connections and refuses new ones.
    pub fn cut(&self) {
        self.state.lock().cancel();
    }

    /// Lets connections through again.
    pub fn mend(&self) {
        *self.state.lock() = CancellationToken::new();
    }
}

async fn forward(
    listener: TcpListener,
    target: u16,
    state: Arc<parking_lot::Mutex<CancellationToken>>,
    end: CancellationToken,
) {
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = end.cancelled() => return,
        };
        let Ok((mut client, _)) = accepted else { continue };
        let cut = state.lock().clone();
        if cut.is_cancelled() {
            continue; // dropping the connection is the refusal
        }
        wait::spawn(async move {
            if let Ok(mut server) = TcpStream::connect(("127.0.0.1", target)).await {
                // Either side may hang up at any time: that is what is being played.
                tokio::select! {
                    _ = copy_bidirectional(&mut client, &mut server) => {}
                    () = cut.cancelled() => {}
                }
            }
        });
    }
}
