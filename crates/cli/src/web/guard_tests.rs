//! Requests that may go on, and those of other sites, in all their disguises.

use hyper::header::HeaderValue;

use super::*;

fn headers(lines: &[(&str, &str)]) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for (name, value) in lines {
        let name = HeaderName::from_bytes(name.as_bytes()).expect("a name");
        headers.append(name, HeaderValue::from_str(value).expect("a value"));
    }
    headers
}

fn guard(token: Option<Token>) -> Guard {
    Guard { token }
}

fn status(guard: &Guard, method: &Method, lines: &[(&str, &str)], realm: Realm) -> u16 {
    match guard.check(method, &headers(lines), realm) {
        Ok(()) => 200,
        Err(refused) => refused.status.as_u16(),
    }
}

/// What our page sends.
const OURS: [(&str, &str); 4] = [
    ("Host", "127.0.0.1:8077"),
    ("Origin", "http://127.0.0.1:8077"),
    ("X-Netchan", "1"),
    ("Content-Type", "application/json"),
];

/// The same with one header other than it was; `None`: without it.
fn but(name: &str, value: Option<&'static str>) -> Vec<(&'static str, &'static str)> {
    let changed = OURS.into_iter().filter_map(|(n, v)| match n == name {
        true => value.map(|value| (n, value)),
        false => Some((n, v)),
    });
    changed.collect()
}

#[test]
fn hosts_are_names_that_no_other_site_can_have() {
    let guard = guard(None);
    let of = |host: &str| status(&guard, &Method::GET, &[("Host", host)], Realm::Page);
    for host in [
        "127.0.0.1:8077",
        "127.0.0.1",
        "localhost:9000",
        "LOCALHOST",
        "[::1]:80",
        "127.8.8.8:1",
    ] {
        assert_eq!(of(host), 200, "{host}");
    }
    for host in [
        "evil.example",
        "evil.example:8077",
        "localhost.evil.example",
        "127.0.0.1.evil.example",
        "192.0.2.1:8077",
        "localhost@evil.example",
        "evil.example@localhost",
        "::1",
        "",
        "[::1",
    ] {
        assert!(matches!(of(host), 400 | 421), "{host}");
    }
    let twice = [("Host", "localhost"), ("Host", "evil.example")];
    assert_eq!(status(&guard, &Method::GET, &twice, Realm::Page), 400);
    assert_eq!(status(&guard, &Method::GET, &[], Realm::Page), 400);
}

#[test]
fn what_asks_a_stack_comes_from_our_page() {
    let guard = guard(None);
    let post = |lines: &[(&str, &str)]| status(&guard, &Method::POST, lines, Realm::Api);
    assert_eq!(post(&OURS), 200);
    let with_site = |site| [&OURS[..], &[("Sec-Fetch-Site", site)]].concat();
    assert_eq!(post(&with_site("same-origin")), 200);
    assert_eq!(post(&with_site("cross-site")), 403);
    assert_eq!(post(&with_site("same-site")), 403);
    for origin in [
        None,
        Some("null"),
        Some("http://evil.example"),
        Some("http://127.0.0.1:8078"),
        Some("127.0.0.1:8077"),
        Some("ftp://127.0.0.1:8077"),
    ] {
        assert_eq!(post(&but("Origin", origin)), 403, "{origin:?}");
    }
    let twice = [&OURS[..], &[("Origin", "http://127.0.0.1:8077")]].concat();
    assert_eq!(post(&twice), 403);
    assert_eq!(post(&but("X-Netchan", None)), 403);
    // A form of another site can send these without asking.
    for kind in [
        None,
        Some("text/plain"),
        Some("application/x-www-form-urlencoded"),
    ] {
        assert_eq!(post(&but("Content-Type", kind)), 415, "{kind:?}");
    }
    let utf8 = but("Content-Type", Some("application/json; charset=utf-8"));
    assert_eq!(post(&utf8), 200);
    for method in [Method::GET, Method::OPTIONS, Method::PUT] {
        assert_eq!(status(&guard, &method, &OURS, Realm::Api), 405);
    }
    assert_eq!(status(&guard, &Method::POST, &OURS, Realm::Page), 405);
}

#[test]
fn a_token_opens_facts_and_changes_under_any_name() {
    let (text, token) = Token::make().expect("a token");
    let guard = guard(Some(token));
    let bearer = format!("Bearer {text}");
    let named = [
        ("Host", "server.example:8077"),
        ("Origin", "https://server.example:8077"),
        ("X-Netchan", "1"),
        ("Content-Type", "application/json"),
    ];
    let post = |more: &[(&str, &str)]| {
        let lines = [&named[..], more].concat();
        status(&guard, &Method::POST, &lines, Realm::Api)
    };
    assert_eq!(post(&[("Authorization", &bearer)]), 200);
    let longer = format!("{bearer}0");
    for wrong in ["Bearer ", "Bearer x", &text, &longer] {
        assert_eq!(post(&[("Authorization", wrong)]), 401, "{wrong}");
    }
    assert_eq!(post(&[]), 401);
    let host = [("Host", "server.example")];
    assert_eq!(status(&guard, &Method::GET, &host, Realm::Metrics), 401);
    assert_eq!(status(&guard, &Method::GET, &host, Realm::Page), 200);
    // Another one is made each time.
    let (other, _) = Token::make().expect("a token");
    assert!(other != text && other.len() == 32, "{other}");
}
