//! Which socket `--socket` means, among those that `netchan show sockets` lists.

use std::net::SocketAddr;

use netchan::control::{Stack, capture::Of};
use serde_json::Value;

use crate::failure::{Failure, failed, usage};

/// Sockets that an error lists.
const LISTED: usize = 10;

/// How it was named.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Named {
    /// `LOCAL-REMOTE`.
    Both(SocketAddr, SocketAddr),
    /// One end.
    One(SocketAddr),
    /// A local port.
    Port(u16),
}

/// A socket of a stack.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Listed {
    protocol: String,
    local: SocketAddr,
    remote: Option<SocketAddr>,
}

impl Named {
    /// Reads it.
    ///
    /// # Errors
    /// It is no socket's name.
    pub fn parse(text: &str) -> Result<Self, Failure> {
        let wrong = || {
            usage(format!(
                "--socket {text}: want LOCAL-REMOTE, one end (10.0.0.1:80), or a local port (:80), as `netchan show sockets` has them"
            ))
        };
        let end = |text: &str| text.parse().map_err(|_| wrong());
        if let Some((local, remote)) = text.split_once('-') {
            return Ok(Self::Both(end(local)?, end(remote)?));
        }
        let port = text.strip_prefix(':').unwrap_or(text);
        match port.parse() {
            Ok(port) => Ok(Self::Port(port)),
            Err(_) => Ok(Self::One(end(text)?)),
        }
    }

    fn admits(self, socket: &Listed) -> bool {
        let (local, remote) = (socket.local, socket.remote);
        match self {
            Self::Both(a, b) => local == a && remote == Some(b) || local == b && remote == Some(a),
            Self::One(end) => local == end || remote == Some(end),
            Self::Port(port) => local.port() == port,
        }
    }
}

/// Finds it.
///
/// # Errors
/// There is none, or there are several.
pub fn find(stack: &Stack, name: &str, named: Named) -> Result<Of, Failure> {
    let rows = stack.show("sockets");
    let rows = rows.map_err(|why| failed(format!("stack {}: {why}", stack.id)))?;
    let rows = rows.as_array().map(Vec::as_slice).unwrap_or_default();
    one(&rows.iter().filter_map(listed).collect::<Vec<_>>(), named)
        .map_err(|why| failed(format!("--socket {name}: {why}")))
}

fn listed(row: &Value) -> Option<Listed> {
    Some(Listed {
        protocol: row["protocol"].as_str()?.to_owned(),
        local: row["local"].as_str()?.parse().ok()?,
        remote: row["remote"].as_str().and_then(|text| text.parse().ok()),
    })
}

/// The one that is meant. Of a listener and its connections, which share a port, the listener: all that comes for it, theirs included.
fn one(all: &[Listed], named: Named) -> Result<Of, String> {
    let mut found: Vec<&Listed> = all.iter().filter(|socket| named.admits(socket)).collect();
    // Listeners that share a port are one for this.
    found.dedup();
    let of = |socket: &Listed| Of::Socket {
        protocol: socket.protocol.clone(),
        local: socket.local,
        remote: socket.remote,
    };
    if let [only] = found.as_slice() {
        return Ok(of(only));
    }
    let bound: Vec<_> = found.iter().filter(|s| s.remote.is_none()).collect();
    if let [only] = bound.as_slice() {
        return Ok(of(only));
    }
    let (what, which) = match found.is_empty() {
        true => ("there is no such socket, but", all.iter().collect()),
        false => ("there are several", found),
    };
    if which.is_empty() {
        return Err("there is no such socket".to_owned());
    }
    let more = match which.len().saturating_sub(LISTED) {
        0 => String::new(),
        more => format!("\n  and {more} more"),
    };
    let names: Vec<String> = which.into_iter().take(LISTED).map(name).collect();
    Err(format!("{what}:\n  {}{more}", names.join("\n  ")))
}

fn name(socket: &Listed) -> String {
    let Listed {
        protocol,
        local,
        remote,
    } = socket;
    match remote {
        Some(remote) => format!("{protocol} {local}-{remote}"),
        None => format!("{protocol} {local}"),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn all() -> Vec<Listed> {
        let rows = json!([
            { "protocol": "tcp", "local": "0.0.0.0:80", "remote": null },
            { "protocol": "tcp", "local": "10.0.0.1:80", "remote": "10.0.0.2:5000" },
            { "protocol": "tcp", "local": "10.0.0.1:80", "remote": "10.0.0.2:5001" },
            { "protocol": "udp", "local": "[::]:53", "remote": null },
            { "protocol": "253", "local": "*", "remote": null },
        ]);
        let all: Vec<Listed> = rows.as_array().unwrap().iter().filter_map(listed).collect();
        assert_eq!(all.len(), 4);
        all
    }

    #[test]
    fn one_socket_is_meant_or_all_are_named() {
        let found = |name: &str| {
            let named = Named::parse(name).expect("a name");
            one(&all(), named).map(|of| match of {
                Of::Socket { local, remote, .. } => (local.to_string(), remote),
                other => panic!("{other:?}"),
            })
        };
        let peer = Some("10.0.0.2:5001".parse().unwrap());
        let connection = ("10.0.0.1:80".to_owned(), peer);
        for name in [
            "10.0.0.2:5001",
            "10.0.0.1:80-10.0.0.2:5001",
            "10.0.0.2:5001-10.0.0.1:80",
        ] {
            assert_eq!(found(name), Ok(connection.clone()), "{name}");
        }
        assert_eq!(found(":80"), Ok(("0.0.0.0:80".to_owned(), None)));
        assert_eq!(found("53"), Ok(("[::]:53".to_owned(), None)));
        let several = found("10.0.0.1:80").unwrap_err();
        assert!(several.contains("several") && several.contains("tcp 10.0.0.1:80-10.0.0.2:5000"));
        let none = found("10.0.0.9:80").unwrap_err();
        assert!(none.contains("no such socket, but") && none.contains("udp [::]:53"));
        assert_eq!(
            one(&[], Named::Port(1)).unwrap_err(),
            "there is no such socket"
        );
    }

    #[test]
    fn names_that_are_none_are_refused() {
        for wrong in [
            "",
            "x",
            "10.0.0.1",
            ":70000",
            "10.0.0.1:80-",
            "a:1-b:2",
            "-",
        ] {
            assert!(Named::parse(wrong).is_err(), "{wrong}");
        }
    }
}
