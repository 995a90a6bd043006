//! `netchan web`: a live view of the stacks in a browser, with what can be changed while they run; and their metrics.
//!
//! | file in `web` | what it holds |
//! | --- | --- |
//! | `guard` | which requests may go on |
//! | `site` | the page's files, and what every answer says of itself |
//! | `api` | the page's questions |
//! | `stacks` | the stacks, and looks at them that all clients share |
//! | `jobs`, `capture` | what goes on for a while: captures and plots |
//! | `page` | the page: no build step, nothing from elsewhere |

use std::{net::SocketAddr, path::PathBuf, sync::Arc, time::Duration};

use http_body_util::{BodyExt, Limited};
use hyper::{Request, Response, StatusCode, body::Incoming};
use tokio::task::spawn_blocking;

mod api;
mod capture;
mod guard;
mod jobs;
mod refused;
mod site;
mod stacks;
#[cfg(test)]
mod tests;

use self::{
    api::{Answer, Api},
    guard::{Guard, Realm},
    refused::Refused,
    stacks::Stacks,
};
use crate::{
    failure::Outcome,
    http::{self, Body, Large, Token},
    metrics::{self, Format},
    output::print,
    show::choose,
};

/// Shows what running stacks do, live in the browser
#[derive(clap::Args)]
#[command(
    after_help = "A packet's walk with rates and drops on each arrow; cores, threads, channels, drops, connections; a time-sequence of a connection that is chosen; captures; settings, addresses, \
        routes and modules, and changing them. GET /metrics has the numbers for Prometheus, as `netchan metrics`.\n\n\
        Without --listen each user of this machine that may connect to 127.0.0.1 can look, capture and change. With another address, or with --token-file, a token is needed; without a \
        file one is made and printed. There is no TLS: over a network that others can read, forward a port with ssh instead. At most 16 connections at once, 10 s each.\n\n\
        Examples:\n  netchan web\n  netchan web --pid 4711 --listen 127.0.0.1:9000\n  netchan web --listen 192.0.2.1:8077 --token-file /etc/netchan/token\n  \
        ssh -L 8077:127.0.0.1:8077 server netchan web"
)]
pub struct Arguments {
    /// Serve it at this address until interrupted
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:8077")]
    listen: SocketAddr,
    /// Only this stack: its process, or PID-N where one process has several (as `netchan show` lists them)
    #[arg(long, value_name = "PID")]
    pid: Option<String>,
    /// A file with the token that is asked for
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
}

/// A connection's life.
const TIME: Duration = Duration::from_secs(10);
/// Answers that are made at once: each may wait for a stack.
const ASKING: usize = 8;
/// Of a question, bytes.
const BODY_MAX: usize = 64 << 10;

/// What every connection needs.
struct Shared {
    guard: Guard,
    api: Api,
}

/// Runs the command.
pub fn web(arguments: &Arguments) -> Outcome {
    // Before the first page asks: a stack that is named and not there, say.
    if arguments.pid.is_some() {
        choose(arguments.pid.as_deref())?;
    }
    let given = arguments.token_file.as_deref().map(Token::read);
    let (made, token) = match given.transpose()? {
        Some(token) => (None, Some(token)),
        None if arguments.listen.ip().is_loopback() => (None, None),
        None => {
            let (text, token) = Token::make()?;
            (Some(text), Some(token))
        }
    };
    let begun = move |address: SocketAddr| {
        let ending = made.map_or(String::new(), |token| format!("#token={token}"));
        print(&format!("netchan web: http://{address}/{ending}\n"))
    };
    serve(arguments.listen, arguments.pid.clone(), token, TIME, begun)
}

/// Serves until a signal ends the process. A connection lives for `time`.
fn serve(
    address: SocketAddr,
    pid: Option<String>,
    token: Option<Token>,
    time: Duration,
    begun: impl FnOnce(SocketAddr) -> Outcome,
) -> Outcome {
    let shared = Arc::new(Shared {
        guard: Guard { token },
        api: Api::new(Arc::new(Stacks::new(pid))),
    });
    http::serve(address, time, ASKING, begun, move |request| {
        answer(request, Arc::clone(&shared))
    })
}

async fn answer(request: Request<Incoming>, shared: Arc<Shared>) -> Response<Body> {
    let answered = route(request, shared).await;
    let mut response = answered.unwrap_or_else(|refused| site::refusal(&refused));
    site::dress(response.headers_mut());
    response
}

async fn route(request: Request<Incoming>, shared: Arc<Shared>) -> Result<Response<Body>, Refused> {
    let (parts, body) = request.into_parts();
    let path = parts.uri.path().to_owned();
    let question = path.strip_prefix("/api/");
    let realm = match (question, path.as_str()) {
        (Some(_), _) => Realm::Api,
        (_, "/metrics") => Realm::Metrics,
        _ => Realm::Page,
    };
    (shared.guard).check(&parts.method, &parts.headers, realm)?;
    match (question, realm) {
        (Some(name), _) => {
            let body = Limited::new(body, BODY_MAX).collect().await;
            let too_much = |_| Refused::new(StatusCode::PAYLOAD_TOO_LARGE, "at most 64 KiB");
            let body = body.map_err(too_much)?.to_bytes();
            let name = name.to_owned();
            blocking(move || shared.api.answer(&name, &body).map(response)).await
        }
        (None, Realm::Metrics) => {
            let format = Format::wanted(&parts.headers);
            blocking(move || {
                let page = metrics::page(&shared.api.stacks.all(), format)?;
                Ok(site::answer(format.content_type(), page.into()))
            })
            .await
        }
        (None, _) => site::file(&path)
            .ok_or_else(|| Refused::new(StatusCode::NOT_FOUND, "there is no such page")),
    }
}

/// Has a thread make an answer that may wait for a stack.
async fn blocking(
    make: impl FnOnce() -> Result<Response<Body>, Refused> + Send + 'static,
) -> Result<Response<Body>, Refused> {
    let failed = |_| Refused::new(StatusCode::INTERNAL_SERVER_ERROR, "the answer failed");
    spawn_blocking(make).await.map_err(failed)?
}

fn response(answer: Answer) -> Response<Body> {
    match answer {
        Answer::Json(bytes) => large(site::answer("application/json", bytes)),
        Answer::File(kind, bytes) => large(site::answer(kind, bytes)),
    }
}

/// What asks was let in: it may take its time to read a file that is long.
fn large(mut response: Response<Body>) -> Response<Body> {
    use hyper::body::Body as _;
    if response.body().size_hint().lower() > 1 << 20 {
        response.extensions_mut().insert(Large);
    }
    response
}
