//! A page of metrics over HTTP.

use std::{net::SocketAddr, path::Path, sync::Arc, time::Duration};

use http_body_util::Full;
use hyper::{
    Method, Request, Response, StatusCode,
    body::Incoming,
    header::{ALLOW, CONTENT_TYPE, WWW_AUTHENTICATE},
};
use tokio::sync::Mutex;

use super::Format;
use crate::{
    failure::{Failure, Outcome, usage},
    http::{self, Body, Token},
};

/// What makes a page.
type Page = dyn Fn(Format) -> Result<String, Failure> + Send + Sync;

/// What every connection needs.
struct Shared {
    /// One at a time: it asks all stacks.
    page: Mutex<Box<Page>>,
    token: Option<Token>,
}

/// Serves `page` at `address` until a signal ends the process. A connection lives for `time`: one request, one answer.
pub fn serve(
    address: SocketAddr,
    token_file: Option<&Path>,
    time: Duration,
    page: impl Fn(Format) -> Result<String, Failure> + Send + Sync + 'static,
) -> Outcome {
    let token = token_file.map(Token::read).transpose()?;
    if token.is_none() && !address.ip().is_loopback() {
        return Err(usage(format!(
            "--listen {address}: anyone could read it there; give --token-file, or a loopback address"
        )));
    }
    let shared = Arc::new(Shared {
        page: Mutex::new(Box::new(page)),
        token,
    });
    let begun = |address| {
        tracing::info!(target: "netchan::control", %address, "metrics at http://{address}/metrics");
        Ok(())
    };
    http::serve(address, time, 1, begun, move |request| {
        answer(request, Arc::clone(&shared))
    })
}

async fn answer(request: Request<Incoming>, shared: Arc<Shared>) -> Response<Body> {
    let (path, headers) = (request.uri().path(), request.headers());
    if shared.token.is_some_and(|token| !token.is_brought(headers)) {
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
    let format = Format::wanted(headers);
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

fn text(status: StatusCode, body: &'static str) -> Response<Body> {
    let mut response = Response::new(Full::new(body.into()));
    *response.status_mut() = status;
    response
}
