//! The server over real connections: what it says to browsers, to other sites and to hostile clients.

use std::{
    io::{ErrorKind, Read as _, Write as _},
    net::TcpStream,
    sync::mpsc::channel,
};

use super::*;

/// Serves from a thread that lives as long as the process; where.
fn served(token: Option<Token>) -> SocketAddr {
    let (say, said) = channel();
    std::thread::spawn(move || {
        let here = "127.0.0.1:0".parse().expect("an address");
        let pid = Some("none".to_owned());
        let time = Duration::from_millis(300);
        let begun = |address| say.send(address).map_err(crate::failure::failed);
        serve(here, pid, token, time, begun)
    });
    said.recv().expect("it serves")
}

/// All that comes back; what cannot be sent or read any more is no failure.
fn ask(address: SocketAddr, request: &[u8]) -> String {
    let mut stream = TcpStream::connect(address).expect("a connection");
    let _ = stream.write_all(request);
    let mut answer = Vec::new();
    match stream.read_to_end(&mut answer) {
        Err(e) if e.kind() != ErrorKind::ConnectionReset => panic!("{e}"),
        _ => String::from_utf8_lossy(&answer).into_owned(),
    }
}

fn get(address: SocketAddr, path: &str, more: &str) -> String {
    let request = format!("GET {path} HTTP/1.1\r\nHost: {address}\r\n{more}\r\n");
    ask(address, request.as_bytes())
}

/// As the page posts it.
fn post(address: SocketAddr, path: &str, more: &str, body: &str) -> String {
    let length = body.len();
    let request = format!(
        "POST {path} HTTP/1.1\r\nHost: {address}\r\nOrigin: http://{address}\r\nX-Netchan: 1\r\n\
         Content-Type: application/json\r\nContent-Length: {length}\r\n{more}\r\n{body}"
    );
    ask(address, request.as_bytes())
}

const LIVE: &str = r#"{"stack":null,"order":"rate","reversed":false}"#;

#[test]
fn files_come_with_a_policy() {
    let address = served(None);
    for (path, kind) in [
        ("/", "text/html"),
        ("/web.js", "text/javascript"),
        ("/web.css", "text/css"),
        ("/plot", "text/html"),
        ("/icon.svg", "image/svg+xml"),
    ] {
        let answer = get(address, path, "");
        assert!(answer.starts_with("HTTP/1.1 200 "), "{path}: {answer}");
        for line in [
            &format!("content-type: {kind}"),
            "content-security-policy: default-src 'none'; script-src 'self';",
            "x-content-type-options: nosniff",
            "cache-control: no-store",
        ] {
            assert!(answer.contains(line), "{path} lacks {line}: {answer}");
        }
        assert!(
            !answer.contains("unsafe-inline") || path == "/plot",
            "{path}"
        );
    }
    let answer = get(address, "/metrics", "");
    assert!(answer.starts_with("HTTP/1.1 200 ") && answer.contains("text/plain; version=0.0.4"));
}

#[test]
fn requests_that_are_none_are_refused() {
    let address = served(None);
    let bare = |request: &str| ask(address, request.as_bytes());
    assert!(bare("\u{16}\u{3}\u{1} no HTTP\r\n\r\n").starts_with("HTTP/1.1 400 "));
    assert!(bare("GET / HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 400 "));
    assert!(bare("GET / HTTP/1.1\r\nHost: evil.example\r\n\r\n").starts_with("HTTP/1.1 421 "));
    let two = "GET / HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\n\r\n";
    assert!(bare(two).starts_with("HTTP/1.1 400 "));
    for path in ["/..", "/../Cargo.toml", "//etc/passwd", "/%2e%2e/x", "/api"] {
        assert!(
            get(address, path, "").starts_with("HTTP/1.1 404 "),
            "{path}"
        );
    }
    assert!(get(address, "/api/live", "").starts_with("HTTP/1.1 405 "));
    assert!(post(address, "/", "", "{}").starts_with("HTTP/1.1 405 "));
    let many = "X: y\r\n".repeat(100);
    assert!(get(address, "/", &many).starts_with("HTTP/1.1 431 "));
    let long = format!("X: {}\r\n", "y".repeat(100_000));
    let answer = get(address, "/", &long);
    assert!(
        answer.is_empty() || answer.starts_with("HTTP/1.1 431 "),
        "{answer}"
    );
    let large = "x".repeat(BODY_MAX + 1);
    let answer = post(address, "/api/live", "", &large);
    assert!(
        answer.is_empty() || answer.starts_with("HTTP/1.1 413 "),
        "{answer}"
    );
    let answer = post(address, "/api/live", "", "{\"stack\":\u{7}}");
    assert!(
        answer.starts_with("HTTP/1.1 400 ") && answer.contains("\"error\":"),
        "{answer}"
    );
}

#[test]
fn other_sites_cannot_ask() {
    let address = served(None);
    assert!(post(address, "/api/live", "", LIVE).starts_with("HTTP/1.1 200 "));
    let cross = "Sec-Fetch-Site: cross-site\r\n";
    assert!(post(address, "/api/live", cross, LIVE).starts_with("HTTP/1.1 403 "));
    let length = LIVE.len();
    let form = format!(
        "POST /api/live HTTP/1.1\r\nHost: {address}\r\nOrigin: http://evil.example\r\nContent-Type: text/plain\r\n\
         Content-Length: {length}\r\n\r\n{LIVE}"
    );
    assert!(ask(address, form.as_bytes()).starts_with("HTTP/1.1 403 "));
    // What a browser asks before it sends our header for another site.
    let preflight = format!(
        "OPTIONS /api/change HTTP/1.1\r\nHost: {address}\r\nOrigin: http://evil.example\r\n\
         Access-Control-Request-Method: POST\r\nAccess-Control-Request-Headers: x-netchan\r\n\r\n"
    );
    let answer = ask(address, preflight.as_bytes());
    assert!(answer.starts_with("HTTP/1.1 405 "), "{answer}");
    assert!(
        !answer.to_lowercase().contains("access-control-allow"),
        "{answer}"
    );
}

#[test]
fn a_token_is_asked_for() {
    let (text, token) = Token::make().expect("a token");
    let address = served(Some(token));
    let bearer = format!("Authorization: Bearer {text}\r\n");
    assert!(get(address, "/", "").starts_with("HTTP/1.1 200 "));
    let refused = get(address, "/metrics", "");
    assert!(refused.starts_with("HTTP/1.1 401 ") && refused.contains("www-authenticate: Bearer"));
    assert!(get(address, "/metrics", &bearer).starts_with("HTTP/1.1 200 "));
    assert!(post(address, "/api/live", "", LIVE).starts_with("HTTP/1.1 401 "));
    assert!(post(address, "/api/live", &bearer, LIVE).starts_with("HTTP/1.1 200 "));
    let shorter = format!("Authorization: Bearer {}\r\n", &text[1..]);
    assert!(post(address, "/api/live", &shorter, LIVE).starts_with("HTTP/1.1 401 "));
}

/// More clients that never read, or never end what they ask, than there may be connections: they are let go, and the next is served.
#[test]
fn clients_that_do_nothing_hold_nothing_for_long() {
    let address = served(None);
    let half =
        format!("POST /api/live HTTP/1.1\r\nHost: {address}\r\nContent-Length: 10\r\n\r\n{{");
    let whole = format!("GET /uplot.js HTTP/1.1\r\nHost: {address}\r\n\r\n");
    let idle: Vec<TcpStream> = (0..48)
        .map(|i| {
            let mut stream = TcpStream::connect(address).expect("a connection");
            let request = [whole.as_str(), half.as_str(), ""][i % 3];
            let _ = stream.write_all(request.as_bytes());
            stream
        })
        .collect();
    let answer = post(address, "/api/live", "", LIVE);
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    drop(idle);
}
