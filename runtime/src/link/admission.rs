//! Who may call, and how much one caller may hold at once.
//!
//! A call is let in before anything of its message is read, for every service: the caller is identified, and what it has
//! under way is counted by its identity, over all its connections. So a certificate that stands for nobody costs no memory,
//! and one caller that runs wild takes nothing from the others. Who a peer is, and what a refusal says, is decided by an
//! [`Authorizer`].

use std::collections::HashMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use http::{Request, Response};
use hyper::body::{Body as HttpBody, Bytes, Frame, SizeHint};
use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tonic::Status;
use tonic::body::Body;
use tower::{Layer, Service};

use super::Peer;

/// Messages of one caller that are read at a time; the others wait on its side of the wire.
const READ_AT_ONCE: usize = 8;

/// Decides who a peer is.
pub trait Authorizer: Send + Sync {
    /// The identity that a peer stands for, or what it is answered if it may not call.
    fn identify(&self, peer: Option<&Peer>) -> Result<Arc<str>, Status>;

    /// The answer to a call of an identity that has too many of them under way.
    fn too_many_calls(&self, identity: &str) -> Status;
}

/// Lets everybody in that a listener lets in, each by the name it is known by.
pub struct EveryPeer;

impl Authorizer for EveryPeer {
    fn identify(&self, peer: Option<&Peer>) -> Result<Arc<str>, Status> {
        Ok(peer.map_or_else(|| "unknown".into(), |peer| peer.to_string().into()))
    }

    fn too_many_calls(&self, identity: &str) -> Status {
        Status::resource_exhausted(format!("{identity} has too many calls under way"))
    }
}

/// What one identity may hold at once.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Connections: those of all processes of a cluster, and those that are being replaced.
    pub connections: usize,
    /// Calls over all of them; more than one connection can have.
    pub calls: usize,
    /// After this time a connection takes no more calls, and ends with the last of those that run.
    pub age: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 32,
            calls: 128,
            age: Duration::from_hours(1),
        }
    }
}

/// What all identities hold at present.
pub(super) struct Admission {
    authorizer: Arc<dyn Authorizer>,
    limits: Limits,
    held: Mutex<HashMap<Arc<str>, Holding>>,
}

struct Holding {
    connections: usize,
    calls: usize,
    reading: Arc<Semaphore>,
}

impl Default for Holding {
    fn default() -> Self {
        Self {
            connections: 0,
            calls: 0,
            reading: Arc::new(Semaphore::new(READ_AT_ONCE)),
        }
    }
}

#[derive(Clone, Copy)]
enum Kind {
    Connection,
    Call,
}

impl Kind {
    fn of(self, holding: &mut Holding) -> &mut usize {
        match self {
            Self::Connection => &mut holding.connections,
            Self::Call => &mut holding.calls,
        }
    }
}

/// A connection or a call that is counted, until it is dropped.
pub(super) struct Held {
    admission: Arc<Admission>,
    identity: Arc<str>,
    kind: Kind,
}

impl Drop for Held {
    fn drop(&mut self) {
        let mut held = self.admission.held.lock();
        if let Some(holding) = held.get_mut(&self.identity) {
            let count = self.kind.of(holding);
            *count = count.saturating_sub(1);
            if holding.connections == 0 && holding.calls == 0 {
                held.remove(&self.identity);
            }
        }
    }
}

impl Admission {
    pub(super) fn new(authorizer: Arc<dyn Authorizer>, limits: Limits) -> Arc<Self> {
        Arc::new(Self {
            authorizer,
            limits,
            held: Mutex::default(),
        })
    }

    /// Counts a connection. One of a stranger is let in, so that its calls are answered with the reason why they are
    /// refused; all strangers share one count.
    pub(super) fn connection(self: &Arc<Self>, peer: &Peer) -> Result<Held, String> {
        let identity = self.authorizer.identify(Some(peer));
        let identity = identity.unwrap_or_else(|_| "a stranger".into());
        let most = self.limits.connections;
        let held = self.hold(&identity, Kind::Connection, most).map(|(held, _)| held);
        held.ok_or_else(|| format!("{identity} has {most} connections already"))
    }

    fn call(self: &Arc<Self>, peer: Option<&Peer>) -> Result<(Held, Arc<Semaphore>), Status> {
        let identity = self.authorizer.identify(peer)?;
        let held = self.hold(&identity, Kind::Call, self.limits.calls);
        held.ok_or_else(|| self.authorizer.too_many_calls(&identity))
    }

    fn hold(
        self: &Arc<Self>,
        identity: &Arc<str>,
        kind: Kind,
        most: usize,
    ) -> Option<(Held, Arc<Semaphore>)> {
        let mut held = self.held.lock();
        let holding = held.entry(Arc::clone(identity)).or_default();
        let count = kind.of(holding);
        if *count >= most {
            return None;
        }
        *count += 1;
        let reading = Arc::clone(&holding.reading);
        let held = Held {
            admission: Arc::clone(self),
            identity: Arc::clone(identity),
            kind,
        };
        Some((held, reading))
    }
}

/// Puts an [`Admission`] before every service.
#[derive(Clone)]
pub(super) struct AdmissionLayer(pub(super) Arc<Admission>);

impl<S> Layer<S> for AdmissionLayer {
    type Service = Admitted<S>;

    fn layer(&self, inner: S) -> Admitted<S> {
        Admitted {
            inner,
            admission: Arc::clone(&self.0),
        }
    }
}

/// A service with an [`Admission`] before it.
#[derive(Clone)]
pub(super) struct Admitted<S> {
    inner: S,
    admission: Arc<Admission>,
}

impl<S> Service<Request<Body>> for Admitted<S>
where
    S: Service<Request<Body>, Response = Response<Body>> + Clone + Send + 'static,
    S::Future: Send,
    S::Error: Send,
{
    type Response = Response<Body>;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, S::Error>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let (held, reading) = match self.admission.call(request.extensions().get::<Peer>()) {
            Ok(admitted) => admitted,
            Err(refused) => return Box::pin(std::future::ready(Ok(refused.into_http()))),
        };
        // The one that said it is ready is the one to call.
        let ready = self.inner.clone();
        let mut inner = std::mem::replace(&mut self.inner, ready);
        Box::pin(async move {
            // Never closed.
            let turn = reading.acquire_owned().await.ok();
            let request = request.map(|body| Body::new(Guarded::<OwnedSemaphorePermit>::new(body, turn)));
            let response = inner.call(request).await?;
            Ok(response.map(|body| Body::new(Guarded::<Held>::new(body, Some(held)))))
        })
    }
}

/// A body that holds something until its end.
struct Guarded<G> {
    inner: Body,
    guard: Option<G>,
}

impl<G> Guarded<G> {
    fn new(inner: Body, guard: Option<G>) -> Self {
        Self { inner, guard }
    }
}

impl<G: Unpin> HttpBody for Guarded<G> {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let frame = Pin::new(&mut self.inner).poll_frame(cx);
        if let Poll::Ready(None | Some(Err(_))) = &frame {
            self.guard = None;
        }
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(name: &str) -> Peer {
        Peer::Certificate(super::super::Certificate {
            uris: vec![name.to_owned()],
            ..Default::default()
        })
    }

    fn admission(connections: usize, calls: usize) -> Arc<Admission> {
        Admission::new(
            Arc::new(EveryPeer),
            Limits {
                connections,
                calls,
                ..Limits::default()
            },
        )
    }

    /// A body that must not be read.
    struct Untouched;

    impl HttpBody for Untouched {
        type Data = Bytes;
        type Error = Status;

        fn poll_frame(
            self: Pin<&mut Self>,
            _: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
            panic!("the body is read")
        }
    }

    struct Nobody;

    impl Authorizer for Nobody {
        fn identify(&self, _: Option<&Peer>) -> Result<Arc<str>, Status> {
            Err(Status::permission_denied("a stranger"))
        }

        fn too_many_calls(&self, _: &str) -> Status {
            Status::resource_exhausted("too many")
        }
    }

    /// A service that reads what it gets, behind an admission.
    async fn answer(admission: &Arc<Admission>, body: Body) -> (String, Body) {
        let service = tower::service_fn(|request: Request<Body>| async move {
            let read = http_body_util::BodyExt::collect(request.into_body()).await;
            Ok::<_, Status>(Response::new(Body::new(http_body_util::Full::from(
                read?.to_bytes(),
            ))))
        });
        let service = AdmissionLayer(Arc::clone(admission)).layer(service);
        let request = Request::new(body);
        let response = tower::ServiceExt::oneshot(service, request)
            .await
            .expect("an answer");
        let status = response
            .headers()
            .get("grpc-status")
            .map(|code| code.to_str().expect("text").to_owned());
        (status.unwrap_or_default(), response.into_body())
    }

    #[tokio::test]
    async fn a_stranger_is_refused_before_anything_of_its_message_is_read() {
        let admission = Admission::new(Arc::new(Nobody), Limits::default());
        assert_eq!(answer(&admission, Body::new(Untouched)).await.0, "7");
    }

    #[tokio::test]
    async fn a_call_counts_until_its_answer_was_taken() {
        let admission = admission(1, 1);
        let (status, body) = answer(&admission, Body::new(http_body_util::Full::from("x"))).await;
        assert_eq!(status, "");
        assert_eq!(
            answer(&admission, Body::new(Untouched)).await.0,
            "8",
            "too many, and not read"
        );
        http_body_util::BodyExt::collect(body).await.expect("taken");
        assert_eq!(
            answer(&admission, Body::new(http_body_util::Full::from("x")))
                .await
                .0,
            ""
        );
    }

    #[test]
    fn an_identity_that_holds_too_much_takes_nothing_from_others() {
        let admission = admission(1, 2);
        let calls: Vec<_> = (0..2)
            .map(|_| admission.call(Some(&peer("a"))).expect("room"))
            .collect();
        assert!(admission.call(Some(&peer("a"))).is_err());
        assert!(admission.call(Some(&peer("b"))).is_ok());
        let connection = admission.connection(&peer("a")).expect("room");
        assert!(admission.connection(&peer("a")).is_err());
        assert!(admission.connection(&peer("b")).is_ok());
        drop((calls, connection));
        assert!(admission.call(Some(&peer("a"))).is_ok() && admission.connection(&peer("a")).is_ok());
        assert!(
            admission.held.lock().is_empty(),
            "nothing is kept of those who are gone"
        );
    }
}
