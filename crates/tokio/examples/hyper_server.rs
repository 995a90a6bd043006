//! hyper serves over netchan, unchanged: two stacks in this process, joined by a wire in memory, an HTTP/1.1 server on one and
//! hyper's client on the other.
//!
//! `cargo run -p netchan-tokio --example hyper_server`

use std::{convert::Infallible, error::Error};

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::{Request, Response, body::Incoming, service::service_fn};
use hyper_util::rt::TokioIo;
use netchan::Net;
use netchan_tokio::{TcpListener, TcpStream};

/// One end of the wire, with its own address.
fn stack(wire: &str, address: &str) -> std::io::Result<Net> {
    Net::builder().link(wire)?.address(address)?.start()
}

/// What the server answers: the length of what it was sent, or of a large body when nothing was.
async fn answer(request: Request<Incoming>) -> Result<Response<Full<Bytes>>, hyper::Error> {
    let path = request.uri().path().to_owned();
    let body = request.into_body().collect().await?.to_bytes();
    let answer = match path.as_str() {
        "/large" => Bytes::from(vec![b'n'; 1 << 20]),
        _ => Bytes::from(format!("{path} {}", body.len())),
    };
    Ok(Response::new(Full::new(answer)))
}

async fn serve(listener: TcpListener) -> Result<Infallible, std::io::Error> {
    loop {
        let (stream, peer) = listener.accept().await?;
        tokio::spawn(async move {
            let service = service_fn(answer);
            let connection = hyper::server::conn::http1::Builder::new()
                .serve_connection(TokioIo::new(stream), service);
            if let Err(e) = connection.await {
                eprintln!("{peer}: {e}");
            }
        });
    }
}

/// Three requests over one connection.
pub async fn run() -> Result<(), Box<dyn Error + Send + Sync>> {
    let server = stack("wire:hyper", "10.0.0.2/24")?;
    let client = stack("wire:hyper", "10.0.0.1/24")?;
    let serving = tokio::spawn(serve(TcpListener::bind(&server, "0.0.0.0:80")?));

    let stream = TcpStream::connect(&client, "10.0.0.2:80").await?;
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
    tokio::spawn(connection);
    for (path, sent, expected) in [
        ("/one", 0, "/one 0".len()),
        ("/two", 100_000, "/two 100000".len()),
        ("/large", 0, 1 << 20),
    ] {
        let body = Full::new(Bytes::from(vec![b'x'; sent]));
        let request = Request::post(path)
            .header("host", "netchan.test")
            .body(body)?;
        sender.ready().await?;
        let response = sender.send_request(request).await?;
        let status = response.status();
        let body = response.into_body().collect().await?.to_bytes();
        println!("POST {path} ({sent} bytes): {status}, {} bytes", body.len());
        if body.len() != expected || !status.is_success() {
            return Err(format!("{path}: expected {expected} bytes").into());
        }
    }
    serving.abort();
    Ok(())
}

#[allow(dead_code, clippy::missing_panics_doc)] // the test calls `run`
fn main() -> Result<(), Box<dyn Error + Send + Sync>> {
    tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()?
        .block_on(run())
}
