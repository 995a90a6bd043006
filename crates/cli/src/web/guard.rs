//! What a request must be before anything looks at what it asks.
//!
//! A page of another site can make a browser of this machine send requests here. What keeps it out: without a token the host in the request must be this
//! machine by a name that no other site can have (a site whose name was made to lead here is still named in it); and what asks a stack must be a POST of JSON
//! from a page of ours, with a header that no other site's page can add unless we let it.

use std::net::{Ipv4Addr, Ipv6Addr};

use hyper::{
    Method, StatusCode,
    header::{CONTENT_TYPE, HOST, HeaderMap, HeaderName, ORIGIN},
    http::uri::Authority,
};

use super::refused::Refused;
use crate::http::Token;

/// A header that pages of other sites cannot send.
const OURS: HeaderName = HeaderName::from_static("x-netchan");
/// Where a browser says that a request came from.
const SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// What is kept.
pub struct Guard {
    /// What requests must bring; `None`: on this machine only.
    pub token: Option<Token>,
}

/// What is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Realm {
    /// A file of the page, which says nothing.
    Page,
    /// Counters, for a program.
    Metrics,
    /// Facts and changes, for the page.
    Api,
}

impl Guard {
    /// Whether the request may go on.
    ///
    /// # Errors
    /// Why not.
    pub fn check(&self, method: &Method, headers: &HeaderMap, realm: Realm) -> Result<(), Refused> {
        let host = one(headers, &HOST)
            .ok_or_else(|| Refused::bad("want one Host header, and one only"))?;
        if self.token.is_none() && !Self::is_here(host) {
            let why = "the name in the Host header is not this machine's: use http://127.0.0.1 or http://localhost";
            return Err(Refused::new(StatusCode::MISDIRECTED_REQUEST, why));
        }
        let allowed = match realm {
            Realm::Page | Realm::Metrics => Method::GET,
            Realm::Api => Method::POST,
        };
        if *method != allowed {
            let why = format!("{allowed} only");
            return Err(Refused::new(StatusCode::METHOD_NOT_ALLOWED, why));
        }
        if realm == Realm::Api {
            from_our_page(headers, host)?;
        }
        let is_open = realm == Realm::Page;
        match self.token {
            Some(token) if !is_open && !token.is_brought(headers) => Err(Refused::new(
                StatusCode::UNAUTHORIZED,
                "the token is missing, or is another one",
            )),
            _ => Ok(()),
        }
    }

    /// Whether `host` can only be this machine.
    fn is_here(host: &str) -> bool {
        let Ok(authority) = host.parse::<Authority>() else {
            return false;
        };
        let name = authority.host();
        let in_brackets = name
            .strip_prefix('[')
            .and_then(|rest| rest.strip_suffix(']'));
        let is_own = match in_brackets {
            Some(v6) => v6.parse::<Ipv6Addr>().is_ok_and(|v6| v6.is_loopback()),
            None => {
                let is_loopback = |v4: Ipv4Addr| v4.is_loopback();
                name.eq_ignore_ascii_case("localhost") || name.parse().is_ok_and(is_loopback)
            }
        };
        is_own && !host.contains('@')
    }
}

/// Whether a page that was loaded from `host` sent this.
fn from_our_page(headers: &HeaderMap, host: &str) -> Result<(), Refused> {
    let forbidden = |why: &str| Err(Refused::new(StatusCode::FORBIDDEN, why));
    let site = headers.get(&SITE).map(|value| value.as_bytes());
    if site.is_some_and(|site| site != b"same-origin") {
        return forbidden("it comes from another site");
    }
    let origin = one(headers, &ORIGIN).unwrap_or_default();
    let place = origin
        .strip_prefix("http://")
        .or_else(|| origin.strip_prefix("https://"));
    if !place.is_some_and(|place| place.eq_ignore_ascii_case(host)) {
        return forbidden("the Origin header is missing, or names another site than Host");
    }
    if !headers.contains_key(&OURS) {
        return forbidden("the X-Netchan header is missing");
    }
    let kind = one(headers, &CONTENT_TYPE).unwrap_or_default();
    if kind.split(';').next().map(str::trim) != Some("application/json") {
        let why = "want Content-Type: application/json";
        return Err(Refused::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, why));
    }
    Ok(())
}

/// The header's value, if it is there once.
fn one<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    let mut all = headers.get_all(name).iter();
    match (all.next(), all.next()) {
        (Some(value), None) => value.to_str().ok(),
        _ => None,
    }
}

#[cfg(test)]
#[path = "guard_tests.rs"]
mod tests;
