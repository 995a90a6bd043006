//! A page over HTTP: bounded in connections and in time, so that a client that never reads, or never asks, holds nothing for long.

use std::{convert::Infallible, fs, net::SocketAddr, path::Path, sync::Arc, time::Duration};

use http_body_util::Full;
use hyper::{
    Method, Request, Response, StatusCode,
    body::{Bytes, Incoming},
    header::{ACCEPT, ALLOW, AUTHORIZATION, CONTENT_TYPE, HeaderMap, WWW_AUTHENTICATE},
    server::conn::http1,
    service::service_fn,
};
use hyper_util::rt::{TokioIo, TokioTimer};
use sha2::{Digest as _, Sha256};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::{Mutex, Semaphore},
    time::{sleep, timeout},
};

use super::Format;
use crate::failure::{Failure, Outcome, at, failed, usage};

/// Connections at once; more wait in the listener's queue.
const CONNECTIONS: usize = 16;
/// Of the file with the token.
const TOKEN_MAX: usize = 4096;

/// What makes a page.
type Page = dyn Fn(Format) -> Result<String, Failure> + Send + Sync;

/// What every connection needs.
struct Shared {
    /// One at a time: it asks all stacks.
    page: Mutex<Box<Page>>,
    /// Of the token. (Compared as hashes: how long that takes says nothing about the token.)
    token: Option<[u8; 32]>,
    /// Of a connection.
    time: Duration,
}

/// Serves `page` at `address` until a signal ends the process. A connection lives for `time`: one request, one answer.
pub fn serve(
    address: SocketAddr,
    token_file: Option<&Path>,
    time: Duration,
    page: impl Fn(Format) -> Result<String, Failure> + Send + Sync + 'static,
) -> Outcome {
    let token = token_file.map(token).transpose()?;
    if token.is_none() && !address.ip().is_loopback() {
        return Err(usage(format!(
            "--listen {address}: anyone could read it there; give --token-file, or a loopback address"
        )));
    }
    let shared = Arc::new(Shared {
        page: Mutex::new(Box::new(page)),
        token,
        time,
    });
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_all().max_blocking_threads(1).build();
    runtime.map_err(failed)?.block_on(async {
        let listener = TcpListener::bind(address).await.map_err(at(address))?;
        let address = listener.local_addr().map_err(failed)?;
        tracing::info!(target: "netchan::control", %address, "metrics at http://{address}/metrics");
        accept(&listener, &shared).await
    })
}

/// The token's hash.
fn token(file: &Path) -> Result<[u8; 32], Failure> {
    let text = fs::read_to_string(file).map_err(at(file.display()))?;
    let token = text.trim();
    if token.is_empty() || token.len() > TOKEN_MAX || !token.bytes().all(|b| b.is_ascii_graphic()) {
        return Err(failed(format!(
            "{}: want one word of printable ASCII, at most {TOKEN_MAX} bytes",
            file.display()
        )));
    }
    Ok(Sha256::digest(token).into())
}

async fn accept(listener: &TcpListener, shared: &Arc<Shared>) -> Outcome {
    let free = Arc::new(Semaphore::new(CONNECTIONS));
    loop {
        let permit = Arc::clone(&free).acquire_owned().await.map_err(failed)?;
        let Ok((stream, _)) = listener.accept().await else {
            // No descriptor is left, or the peer is gone already.
            sleep(Duration::from_millis(100)).await;
            continue;
        };
        let shared = Arc::clone(shared);
        tokio::spawn(async move {
            // Too slow, or not HTTP: the connection ends.
            let _ = timeout(shared.time, connection(stream, shared)).await;
            drop(permit);
        });
    }
}

async fn connection(stream: TcpStream, shared: Arc<Shared>) {
    let service = service_fn(|request| {
        let shared = Arc::clone(&shared);
        async move { Ok::<_, Infallible>(answer(&request, shared).await) }
    });
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).keep_alive(false);
    let _ = http.serve_connection(TokioIo::new(stream), service).await;
}

async fn answer(request: &Request<Incoming>, shared: Arc<Shared>) -> Response<Full<Bytes>> {
    let (path, headers) = (request.uri().path(), request.headers());
    if shared.token.is_some_and(|token| !brings(headers, token)) {
        let mut refusal = text(StatusCode::UNAUTHORIZED, "a token is needed\n");
        refusal.headers_mut().insert(
            WWW_AUTHENTICATE,
            const { hyper::header::HeaderValue::from_static("Bearer") },
        );
        return refusal;
    }
    if path != "/metrics" {
        return text(StatusCode::NOT_FOUND, "netchan's metrics are at /metrics\n");
    }
    if request.method() != Method::GET {
        let mut refusal = text(StatusCode::METHOD_NOT_ALLOWED, "GET only\n");
        refusal.headers_mut().insert(
            ALLOW,
            const { hyper::header::HeaderValue::from_static("GET") },
        );
        return refusal;
    }
    let format = wanted(headers);
    let made = tokio::task::spawn_blocking(move || {
        let page = shared.page.blocking_lock();
        page(format)
    });
    match made.await {
        Ok(Ok(page)) => {
            let mut response = Response::new(Full::new(page.into()));
            let kind = hyper::header::HeaderValue::from_static(format.content_type());
            response.headers_mut().insert(CONTENT_TYPE, kind);
            response
        }
        _ => text(
            StatusCode::INTERNAL_SERVER_ERROR,
            "no stack could be asked\n",
        ),
    }
}

/// OpenMetrics for those that ask for it.
fn wanted(headers: &HeaderMap) -> Format {
    let accepts = headers.get_all(ACCEPT).iter();
    let mut accepts = accepts.filter_map(|value| value.to_str().ok());
    match accepts.any(|value| value.contains("application/openmetrics-text")) {
        true => Format::Openmetrics,
        false => Format::Prometheus,
    }
}

fn brings(headers: &HeaderMap, token: [u8; 32]) -> bool {
    let value = headers
        .get(AUTHORIZATION)
        .and_then(|value| value.to_str().ok());
    let brought = value.and_then(|value| value.strip_prefix("Bearer "));
    brought.is_some_and(|brought| <[u8; 32]>::from(Sha256::digest(brought)) == token)
}

fn text(status: StatusCode, body: &'static str) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(body.into()));
    *response.status_mut() = status;
    response
}
