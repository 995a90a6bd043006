//! The files of the page, which are in the program, and what every answer says of itself.

use http_body_util::Full;
use hyper::{
    Response, StatusCode,
    body::Bytes,
    header::{
        ALLOW, CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HeaderMap, HeaderName,
        HeaderValue, REFERRER_POLICY, WWW_AUTHENTICATE, X_CONTENT_TYPE_OPTIONS,
    },
};
use serde_json::json;

use super::refused::Refused;
use crate::{http::Body, plot::served};

/// Nothing from elsewhere, no script or style within a page, no frame but our own around one.
const POLICY: HeaderValue = HeaderValue::from_static(
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; frame-src 'self'; frame-ancestors 'self'; base-uri 'none'; form-action 'none'",
);
const RESOURCE_POLICY: HeaderName = HeaderName::from_static("cross-origin-resource-policy");

const HTML: &str = "text/html; charset=utf-8";
const STYLE: &str = "text/css; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";

/// Path, kind, text.
const FILES: [(&str, &str, &str); 13] = [
    ("/", HTML, include_str!("page/index.html")),
    ("/web.css", STYLE, include_str!("page/web.css")),
    ("/web.js", SCRIPT, include_str!("page/web.js")),
    ("/ask.js", SCRIPT, include_str!("page/ask.js")),
    ("/show.js", SCRIPT, include_str!("page/show.js")),
    ("/walk.js", SCRIPT, include_str!("page/walk.js")),
    ("/jobs.js", SCRIPT, include_str!("page/jobs.js")),
    ("/plot-data.js", SCRIPT, include_str!("page/plot-data.js")),
    ("/plot.css", STYLE, served::STYLE),
    ("/plot.js", SCRIPT, served::SCRIPT),
    ("/language.js", SCRIPT, served::LANGUAGE),
    ("/uplot.js", SCRIPT, served::UPLOT),
    ("/uplot.css", STYLE, served::UPLOT_STYLE),
];
const ICON: &str = include_str!("page/icon.svg");

/// The file at `path`.
pub fn file(path: &str) -> Option<Response<Body>> {
    match path {
        "/plot" => Some(answer(HTML, served::page().into())),
        "/icon.svg" => Some(answer("image/svg+xml", ICON.into())),
        _ => {
            let (_, kind, text) = FILES.iter().find(|(of, ..)| *of == path)?;
            Some(answer(kind, (*text).into()))
        }
    }
}

/// An answer of this kind.
pub fn answer(kind: &'static str, bytes: Bytes) -> Response<Body> {
    let mut response = Response::new(Full::new(bytes));
    let kind = HeaderValue::from_static(kind);
    response.headers_mut().insert(CONTENT_TYPE, kind);
    response
}

/// The answer that says why there is none.
pub fn refusal(refused: &Refused) -> Response<Body> {
    let why = json!({ "error": refused.why }).to_string();
    let mut response = answer("application/json", why.into());
    *response.status_mut() = refused.status;
    let more = match refused.status {
        StatusCode::METHOD_NOT_ALLOWED => {
            // Its reason begins with the method.
            let method = refused.why.split(' ').next().unwrap_or_default();
            HeaderValue::from_str(method)
                .ok()
                .map(|allowed| (ALLOW, allowed))
        }
        StatusCode::UNAUTHORIZED => Some((WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"))),
        _ => None,
    };
    response.headers_mut().extend(more);
    response
}

/// What every answer says.
pub fn dress(headers: &mut HeaderMap) {
    headers.extend([
        (CONTENT_SECURITY_POLICY, POLICY),
        (X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")),
        (REFERRER_POLICY, HeaderValue::from_static("no-referrer")),
        (CACHE_CONTROL, HeaderValue::from_static("no-store")),
        (RESOURCE_POLICY, HeaderValue::from_static("same-origin")),
    ]);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Scripts and styles stand in files of their own, which the policy lets in; nothing is asked of another machine.
    #[test]
    fn pages_keep_to_their_policy() {
        let pages = [FILES[0].2.to_owned(), served::page()];
        for page in &pages {
            for (at, _) in page.match_indices("<script") {
                let tag = page[at..].split('>').next().unwrap_or_default();
                assert!(
                    tag.contains("src=\"/") || tag.contains("application/json"),
                    "{tag}"
                );
            }
            for inside in [
                "<style",
                "style=",
                "onclick=",
                "onload=",
                "javascript:",
                "@@",
            ] {
                assert!(!page.contains(inside), "{inside}");
            }
        }
        let names = pages.iter().flat_map(|page| page.split('"'));
        for name in names.filter(|name| name.starts_with('/')) {
            assert!(file(name).is_some(), "{name} is not served");
        }
        for (path, _, text) in &FILES[1..8] {
            for bad in [
                "innerHTML",
                "outerHTML",
                "insertAdjacentHTML",
                "document.write",
                "eval(",
            ] {
                assert!(!text.contains(bad), "{path}: {bad}");
            }
            let outside = text.match_indices("://").filter(|(at, _)| {
                !text[..*at].ends_with("http") || !text[*at..].starts_with("://www.w3.org/2000/svg")
            });
            assert_eq!(outside.count(), 0, "{path} names another machine");
        }
    }

    #[test]
    fn no_path_leads_elsewhere() {
        for path in [
            "",
            "//",
            "/../Cargo.toml",
            "/web.css/",
            "/%2e%2e/",
            "/etc/passwd",
            "/API/live",
        ] {
            assert!(file(path).is_none(), "{path}");
        }
    }
}
