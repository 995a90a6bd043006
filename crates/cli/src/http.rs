//! Serving HTTP: bounded in connections, in size and in time, so that a client that never reads, or never asks, holds nothing for long.

use std::{
    convert::Infallible,
    fs,
    net::SocketAddr,
    path::Path,
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};

use http_body_util::Full;
use hyper::{
    Request, Response,
    body::{Bytes, Incoming},
    header::{AUTHORIZATION, HeaderMap},
    server::conn::http1,
    service::service_fn,
};
use hyper_util::rt::{TokioIo, TokioTimer};
use rustix::rand::{GetRandomFlags, getrandom};
use sha2::{Digest as _, Sha256};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::Semaphore,
    time::{sleep, timeout},
};

use crate::failure::{Failure, Outcome, at, failed};

/// Connections at once; more wait in the listener's queue.
const CONNECTIONS: usize = 16;
/// Bytes and number of a request's headers.
const HEAD_MAX: usize = 32 << 10;
const HEADERS_MAX: usize = 64;
/// How much longer a connection lives whose answer is [`Large`].
const LARGE: Duration = Duration::from_secs(300);
/// Of the file with the token, bytes.
const TOKEN_MAX: usize = 4096;

/// What an answer is made of.
pub type Body = Full<Bytes>;

/// Marks, among the extensions of an answer, one that may take long to read.
#[derive(Clone, Copy, Debug)]
pub struct Large;

/// A token that requests bring along. It is compared as a hash: how long that takes says nothing about the token.
#[derive(Clone, Copy)]
pub struct Token([u8; 32]);

impl Token {
    /// That of a file.
    ///
    /// # Errors
    /// The file's; what is in it is no token.
    pub fn read(file: &Path) -> Result<Self, Failure> {
        let text = fs::read_to_string(file).map_err(at(file.display()))?;
        let token = text.trim();
        let is_word = token.bytes().all(|b| b.is_ascii_graphic());
        if token.is_empty() || token.len() > TOKEN_MAX || !is_word {
            return Err(failed(format!(
                "{}: want one word of printable ASCII, at most {TOKEN_MAX} bytes",
                file.display()
            )));
        }
        Ok(Self::of(token))
    }

    /// A new one, and its text.
    ///
    /// # Errors
    /// The system's.
    pub fn make() -> Result<(String, Self), Failure> {
        let mut bytes = [0_u8; 16];
        let filled = getrandom(&mut bytes, GetRandomFlags::empty());
        if filled.map_err(at("random numbers"))? < bytes.len() {
            return Err(failed("the system has too few random numbers"));
        }
        let text: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        let token = Self::of(&text);
        Ok((text, token))
    }

    fn of(token: &str) -> Self {
        Self(Sha256::digest(token).into())
    }

    /// Whether `headers` bring it (`Authorization: Bearer TOKEN`).
    pub fn is_brought(self, headers: &HeaderMap) -> bool {
        let value = headers
            .get(AUTHORIZATION)
            .and_then(|value| value.to_str().ok());
        let brought = value.and_then(|value| value.strip_prefix("Bearer "));
        brought.is_some_and(|brought| Self::of(brought).0 == self.0)
    }
}

/// Serves at `address` until a signal ends the process. A connection has one request, one answer, and lives for `time`; at most `asking` answers are made at
/// once by threads that may wait. `begun` hears where it is served.
///
/// # Errors
/// The address cannot be had.
pub fn serve<A, F>(
    address: SocketAddr,
    time: Duration,
    asking: usize,
    begun: impl FnOnce(SocketAddr) -> Outcome,
    answer: A,
) -> Outcome
where
    A: Fn(Request<Incoming>) -> F + Clone + Send + 'static,
    F: Future<Output = Response<Body>> + Send + 'static,
{
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_all().max_blocking_threads(asking).build();
    runtime.map_err(failed)?.block_on(async {
        let listener = TcpListener::bind(address).await.map_err(at(address))?;
        begun(listener.local_addr().map_err(failed)?)?;
        accept(&listener, time, answer).await
    })
}

async fn accept<A, F>(listener: &TcpListener, time: Duration, answer: A) -> Outcome
where
    A: Fn(Request<Incoming>) -> F + Clone + Send + 'static,
    F: Future<Output = Response<Body>> + Send + 'static,
{
    let free = Arc::new(Semaphore::new(CONNECTIONS));
    loop {
        let permit = Arc::clone(&free).acquire_owned().await.map_err(failed)?;
        let Ok((stream, _)) = listener.accept().await else {
            // No descriptor is left, or the peer is gone already.
            sleep(Duration::from_millis(100)).await;
            continue;
        };
        let answer = answer.clone();
        tokio::spawn(async move {
            connection(stream, time, answer).await;
            drop(permit);
        });
    }
}

/// One that is too slow, or is not HTTP, ends.
async fn connection<A, F>(stream: TcpStream, time: Duration, answer: A)
where
    A: Fn(Request<Incoming>) -> F,
    F: Future<Output = Response<Body>>,
{
    let large = AtomicBool::new(false);
    let is_large = &large;
    let service = service_fn(move |request| {
        let answered = answer(request);
        async move {
            let response = answered.await;
            // Relaxed: one task.
            is_large.store(response.extensions().get::<Large>().is_some(), Relaxed);
            Ok::<_, Infallible>(response)
        }
    });
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).keep_alive(false);
    http.max_buf_size(HEAD_MAX).max_headers(HEADERS_MAX);
    let mut served = pin!(http.serve_connection(TokioIo::new(stream), service));
    let in_time = timeout(time, served.as_mut()).await.is_ok();
    if !in_time && is_large.load(Relaxed) {
        let _ = timeout(LARGE, served).await;
    }
}

#[cfg(test)]
#[path = "http_tests.rs"]
mod tests;
