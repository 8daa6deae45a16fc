//! The HTTP side: connections, forms, and the cut of a connection where a fault asks for it.

use std::sync::Arc;
use std::time::Duration;

use http::{Method, Request};
use http_body_util::{BodyExt as _, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};

use crate::admin;
use crate::auth::{self, Pairs};
use crate::clock::Stamp;
use crate::dispatch::{self, Answer, Wanted};
use crate::error::{ApiError, JobError};
use crate::faults::Effect;
use crate::reply::{self, Format, Reply};
use crate::server::Server;

/// The connection goes away without an answer.
#[derive(Debug, thiserror::Error)]
#[error("connection cut by a fault script")]
pub(crate) struct Cut;

/// The largest form that is read.
const LARGEST_BODY: usize = 1 << 20;

/// Accepts connections until the simulator stops.
pub(crate) async fn serve(server: Arc<Server>, listener: TcpListener) {
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => connect(&server, stream),
                // Out of descriptors: the next connection may work again.
                Err(_) => tokio::time::sleep(Duration::from_millis(10)).await,
            },
            () = server.stop.cancelled() => return,
        }
    }
}

fn connect(server: &Arc<Server>, stream: TcpStream) {
    let _ = stream.set_nodelay(true);
    let shared = Arc::clone(server);
    server.spawn(async move {
        let service = service_fn(move |request| handle(Arc::clone(&shared), request));
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .serve_connection(TokioIo::new(stream), service);
        // A cut ends the connection with this error; so does a client that goes away.
        let _ = connection.await;
    });
}

async fn handle(server: Arc<Server>, request: Request<Incoming>) -> Result<Reply, Cut> {
    let path = request.uri().path().to_owned();
    let query = request.uri().query().unwrap_or_default().to_owned();
    let method = request.method().clone();
    if path.starts_with("/simulator/") {
        let body = read(request).await.unwrap_or_default();
        return Ok(admin::handle(&server, &method, &path, &body));
    }
    if path.trim_end_matches('/') != "/client/api" {
        return Ok(reply::not_found(&path));
    }
    if method == Method::HEAD {
        return Ok(reply::raw(200, reply::JSON, Bytes::new()));
    }
    if method == Method::OPTIONS {
        return Ok(reply::raw(200, "", Bytes::new()));
    }
    if method != Method::GET && method != Method::POST {
        return Ok(reply::raw(405, "", Bytes::new()));
    }
    let post = method == Method::POST;
    let body = if post {
        read(request).await.unwrap_or_default()
    } else {
        Bytes::new()
    };
    let pairs = auth::pairs(&[&query, &String::from_utf8_lossy(&body)]);
    call(&server, &pairs, post).await
}

async fn read(request: Request<Incoming>) -> Option<Bytes> {
    Limited::new(request.into_body(), LARGEST_BODY)
        .collect()
        .await
        .ok()
        .map(http_body_util::Collected::to_bytes)
}

/// One call of the API, with its faults.
async fn call(server: &Arc<Server>, pairs: &Pairs, post: bool) -> Result<Reply, Cut> {
    let latency = server.options.latency();
    if !latency.is_zero() {
        tokio::time::sleep(latency).await;
    }
    let command = Wanted::of(pairs).name.unwrap_or_default().to_owned();
    let format = Format::of(auth::value(pairs, "response"));
    let (envelope, admitted) = dispatch::admit(server, pairs, post, Stamp::now());
    let caller_name = admitted
        .as_ref()
        .map(|caller| caller.name.clone())
        .unwrap_or_default();
    server.counters.lock().count(&command, &caller_name);
    let effects = if admitted.is_ok() {
        server.faults.lock().strike(&command, &caller_name)
    } else {
        Vec::new()
    };
    let mut lost = false;
    let mut result = None;
    let mut fail_job = None;
    for effect in effects {
        match effect {
            Effect::CutBefore => return Err(Cut),
            Effect::CutAfter => lost = true,
            Effect::Slow { millis } => tokio::time::sleep(Duration::from_millis(millis)).await,
            Effect::Error { code, text } => result = Some(Err(ApiError::with_code(code, text))),
            Effect::Raw {
                status,
                content_type,
                body,
            } => return Ok(reply::raw(status, &content_type, body)),
            Effect::FailJob { code, text } => fail_job = Some(JobError { code, text }),
        }
    }
    let result = match (result, admitted) {
        (Some(result), _) => result,
        (None, Err(error)) => Err(error),
        (None, Ok(caller)) => dispatch::run(server, caller, pairs, fail_job).await,
    };
    if lost {
        return Err(Cut);
    }
    Ok(answer(server, Answer { envelope, result }, format))
}

fn answer(server: &Server, answer: Answer, format: Format) -> Reply {
    if let Err(error) = &answer.result {
        server.counters.lock().count_error(error.code);
        tracing::debug!(
            envelope = answer.envelope,
            code = error.code,
            text = error.text,
            "refused"
        );
    }
    let version = server.world.lock().version.clone();
    reply::api(answer, format, &version)
}
