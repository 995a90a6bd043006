//! Filters of sockets in the words of ss(8): `state established dport = :80 or src 10.0.0.0/8`.

use std::{
    cmp::Ordering,
    net::{IpAddr, SocketAddr},
};

use serde_json::Value;

/// Deepest nesting of parentheses and `not`.
const DEPTH_MAX: usize = 64;

/// States by ss's names for them, and what is printed.
const STATES: [(&str, &str); 14] = [
    ("established", "ESTAB"),
    ("estab", "ESTAB"),
    ("syn-sent", "SYN-SENT"),
    ("syn-recv", "SYN-RECV"),
    ("fin-wait-1", "FIN-WAIT-1"),
    ("fin-wait-2", "FIN-WAIT-2"),
    ("time-wait", "TIME-WAIT"),
    ("closed", "CLOSED"),
    ("close-wait", "CLOSE-WAIT"),
    ("last-ack", "LAST-ACK"),
    ("listening", "LISTEN"),
    ("listen", "LISTEN"),
    ("closing", "CLOSING"),
    ("unconnected", "UNCONN"),
];
const CONNECTED: &[&str] = &[
    "ESTAB",
    "SYN-SENT",
    "SYN-RECV",
    "FIN-WAIT-1",
    "FIN-WAIT-2",
    "TIME-WAIT",
    "CLOSE-WAIT",
    "LAST-ACK",
    "CLOSING",
];
const SYNCHRONIZED: &[&str] = &[
    "ESTAB",
    "SYN-RECV",
    "FIN-WAIT-1",
    "FIN-WAIT-2",
    "TIME-WAIT",
    "CLOSE-WAIT",
    "LAST-ACK",
    "CLOSING",
];
const BUCKET: &[&str] = &["TIME-WAIT", "SYN-RECV"];

const AND: &[&str] = &["and", "&", "&&"];

/// Which sockets are wanted.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Filter {
    /// Empty: all.
    states: Vec<&'static str>,
    excluded: Vec<&'static str>,
    ends: Option<Ends>,
}

/// A condition on a socket's two ends.
#[derive(Debug, PartialEq, Eq)]
enum Ends {
    Address {
        local: bool,
        host: Host,
        equal: bool,
    },
    Port {
        local: bool,
        order: &'static [Ordering],
        port: u16,
    },
    Not(Box<Self>),
    And(Box<Self>, Box<Self>),
    Or(Box<Self>, Box<Self>),
}

/// `10.0.0.0/8:80`: what is not said is not compared.
#[derive(Debug, PartialEq, Eq)]
struct Host {
    network: Option<(IpAddr, u8)>,
    port: Option<u16>,
}

impl Filter {
    /// Of the words of a command line.
    ///
    /// # Errors
    /// The word that makes no sense, and what was expected.
    pub fn parse(words: &[String]) -> Result<Self, String> {
        let spaced = words.join(" ").replace('(', " ( ").replace(')', " ) ");
        let words: Vec<&str> = spaced.split_whitespace().collect();
        let mut rest = Words {
            words: &words,
            depth: 0,
        };
        let mut filter = Self::default();
        while let Some(&keyword @ ("state" | "exclude")) = rest.words.first() {
            rest.words = &rest.words[1..];
            let states = states(rest.next("a state")?)?;
            match keyword {
                "state" => filter.states.extend(states),
                _ => filter.excluded.extend(states),
            }
        }
        if filter != Self::default() {
            rest.takes(AND);
        }
        if !rest.words.is_empty() {
            filter.ends = Some(rest.any()?);
        }
        match rest.words.first() {
            None => Ok(filter),
            Some(word) => Err(format!("'{word}': want `and`, `or`, or the end")),
        }
    }

    /// Whether a row of `netchan show sockets` is wanted.
    pub fn admits(&self, row: &Value) -> bool {
        let text = |name| row.get(name).and_then(Value::as_str);
        let state = text("state").unwrap_or_default();
        self.lets_through(state, text("local"), text("remote"))
    }

    /// Whether a socket in `state` between two ends, as `netchan show sockets` writes them, is wanted.
    pub fn lets_through(&self, state: &str, local: Option<&str>, remote: Option<&str>) -> bool {
        let end = |text: Option<&str>| text.and_then(|end| end.parse::<SocketAddr>().ok());
        (self.states.is_empty() || self.states.contains(&state))
            && !self.excluded.contains(&state)
            && (self.ends.as_ref()).is_none_or(|ends| ends.admit(end(local), end(remote)))
    }
}

fn states(word: &str) -> Result<Vec<&'static str>, String> {
    let all = || STATES.iter().map(|&(_, shown)| shown);
    Ok(match word {
        "all" => all().collect(),
        "connected" => CONNECTED.to_vec(),
        "synchronized" => SYNCHRONIZED.to_vec(),
        "bucket" => BUCKET.to_vec(),
        "big" => all().filter(|state| !BUCKET.contains(state)).collect(),
        _ => {
            let found = STATES
                .iter()
                .find(|(name, shown)| *name == word || *shown == word);
            let (_, shown) = found.ok_or_else(|| {
                let names = STATES.map(|(name, _)| name).join(", ");
                format!("'{word}' is no state: {names}, all, connected, synchronized, bucket, big")
            })?;
            vec![*shown]
        }
    })
}

impl Ends {
    fn admit(&self, local: Option<SocketAddr>, remote: Option<SocketAddr>) -> bool {
        match self {
            Self::Address {
                local: true,
                host,
                equal,
            } => host.admits(local) == *equal,
            Self::Address { host, equal, .. } => host.admits(remote) == *equal,
            Self::Port {
                local: of_local,
                order,
                port,
            } => {
                let end = if *of_local { local } else { remote };
                // One without an end has the port 0, as on Linux.
                order.contains(&end.map_or(0, |end| end.port()).cmp(port))
            }
            Self::Not(one) => !one.admit(local, remote),
            Self::And(one, other) => one.admit(local, remote) && other.admit(local, remote),
            Self::Or(one, other) => one.admit(local, remote) || other.admit(local, remote),
        }
    }
}

impl Host {
    fn parse(word: &str) -> Result<Self, String> {
        let wrong = || {
            format!("'{word}': want an address, a network or a port: 10.0.0.0/8, [fd77::1]:80, :80")
        };
        let (host, port) = match word.rsplit_once(':') {
            // An IPv6 address without a port, and one in brackets.
            Some((host, _))
                if host.contains(':') && !host.ends_with(']') && !host.contains("]/") =>
            {
                (word, None)
            }
            Some((host, port)) if !word.ends_with(']') => (host, Some(port)),
            _ => (word, None),
        };
        let port = match port {
            None | Some("*") => None,
            Some(port) => Some(port.parse().map_err(|_| wrong())?),
        };
        if ["", "*"].contains(&host) {
            return Ok(Self {
                network: None,
                port,
            });
        }
        let (address, length) = host
            .split_once('/')
            .map_or((host, None), |(address, length)| (address, Some(length)));
        let address = address.trim_start_matches('[').trim_end_matches(']');
        let address: IpAddr = address.parse().map_err(|_| wrong())?;
        let most = if address.is_ipv4() { 32 } else { 128 };
        let length = length.map_or(Ok(most), |length| length.parse().map_err(|_| wrong()))?;
        if length > most {
            return Err(wrong());
        }
        Ok(Self {
            network: Some((address, length)),
            port,
        })
    }

    fn admits(&self, end: Option<SocketAddr>) -> bool {
        let Some(end) = end else {
            return self.network.is_none() && self.port.is_none_or(|port| port == 0);
        };
        let fits = |(network, length): (IpAddr, u8)| match (network, end.ip().to_canonical()) {
            (IpAddr::V4(a), IpAddr::V4(b)) => {
                (u32::from(a) ^ u32::from(b))
                    .checked_shr(32 - u32::from(length))
                    .unwrap_or(0)
                    == 0
            }
            (IpAddr::V6(a), IpAddr::V6(b)) => {
                (u128::from(a) ^ u128::from(b))
                    .checked_shr(128 - u32::from(length))
                    .unwrap_or(0)
                    == 0
            }
            _ => false,
        };
        self.network.is_none_or(fits) && self.port.is_none_or(|port| port == end.port())
    }
}

/// What of the words is not yet read.
struct Words<'a> {
    words: &'a [&'a str],
    depth: usize,
}

impl<'a> Words<'a> {
    fn next(&mut self, wanted: &str) -> Result<&'a str, String> {
        let (first, rest) = self
            .words
            .split_first()
            .ok_or_else(|| format!("want {wanted} at the end"))?;
        self.words = rest;
        Ok(first)
    }

    fn takes(&mut self, one_of: &[&str]) -> bool {
        let found = self.words.first().is_some_and(|word| one_of.contains(word));
        if found {
            self.words = &self.words[1..];
        }
        found
    }

    fn any(&mut self) -> Result<Ends, String> {
        let mut ends = self.all()?;
        while self.takes(&["or", "|", "||"]) {
            ends = Ends::Or(Box::new(ends), Box::new(self.all()?));
        }
        Ok(ends)
    }

    fn all(&mut self) -> Result<Ends, String> {
        let mut ends = self.one()?;
        // Side by side is `and`, too.
        while self.takes(AND)
            || self
                .words
                .first()
                .is_some_and(|word| !["or", "|", "||", ")"].contains(word))
        {
            ends = Ends::And(Box::new(ends), Box::new(self.one()?));
        }
        Ok(ends)
    }

    fn one(&mut self) -> Result<Ends, String> {
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            return Err(format!("nested deeper than {DEPTH_MAX}"));
        }
        let ends = self.one_here();
        self.depth -= 1;
        ends
    }

    fn one_here(&mut self) -> Result<Ends, String> {
        let word = self.next("a condition")?;
        match word {
            "not" | "!" => Ok(Ends::Not(Box::new(self.one()?))),
            "(" => {
                let ends = self.any()?;
                match self.takes(&[")"]) {
                    true => Ok(ends),
                    false => Err("a `)` is missing".to_owned()),
                }
            }
            "src" | "dst" => {
                let equal = !self.takes(&["!=", "ne", "neq"]);
                if equal {
                    self.takes(&["=", "==", "eq"]);
                }
                let host = Host::parse(self.next("an address")?)?;
                Ok(Ends::Address {
                    local: word == "src",
                    host,
                    equal,
                })
            }
            "sport" | "dport" => {
                let order: &[Ordering] = match self.words.first().copied() {
                    Some("=" | "==" | "eq") => &[Ordering::Equal],
                    Some("!=" | "ne" | "neq") => &[Ordering::Less, Ordering::Greater],
                    Some("<" | "lt") => &[Ordering::Less],
                    Some(">" | "gt") => &[Ordering::Greater],
                    Some("<=" | "le" | "leq") => &[Ordering::Less, Ordering::Equal],
                    Some(">=" | "ge" | "geq") => &[Ordering::Greater, Ordering::Equal],
                    _ => return Err(format!("want = != < > <= or >= behind {word}")),
                };
                self.words = &self.words[1..];
                let text = self.next("a port")?;
                let port = text.trim_start_matches(':').parse();
                let port =
                    port.map_err(|_| format!("'{text}' is no port: give a number, such as :80"))?;
                Ok(Ends::Port {
                    local: word == "sport",
                    order,
                    port,
                })
            }
            _ => Err(format!(
                "'{word}': want state, exclude, src, dst, sport, dport, not or ("
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn parse(text: &str) -> Result<Filter, String> {
        Filter::parse(&[text.to_owned()])
    }

    /// Which of some sockets, by number, pass.
    fn passing(text: &str) -> Vec<usize> {
        let filter = parse(text).expect(text);
        let rows = [
            json!({ "state": "LISTEN", "local": "0.0.0.0:80", "remote": null }),
            json!({ "state": "ESTAB", "local": "10.0.0.1:80", "remote": "10.1.0.2:4000" }),
            json!({ "state": "TIME-WAIT", "local": "10.0.0.1:443", "remote": "192.0.2.1:65535" }),
            json!({ "state": "ESTAB", "local": "[fd77::1]:22", "remote": "[fd77::2]:1024" }),
            json!({ "state": "UNCONN", "local": "*", "remote": null }),
        ];
        let rows = rows.iter().enumerate();
        rows.filter(|(_, row)| filter.admits(row))
            .map(|(i, _)| i)
            .collect()
    }

    #[test]
    fn filters_say_what_ss_says_by_them() {
        for (text, expected) in [
            ("", &[0, 1, 2, 3, 4][..]),
            ("state established", &[1, 3]),
            ("state ESTAB state time-wait", &[1, 2, 3]),
            ("exclude listening exclude unconnected", &[1, 2, 3]),
            ("state connected exclude bucket", &[1, 3]),
            ("state big", &[0, 1, 3, 4]),
            ("state all", &[0, 1, 2, 3, 4]),
            ("sport = :80", &[0, 1]),
            ("state established and sport = :80", &[1]),
            ("sport == 80 dport != 0", &[1]),
            ("dport > :4000", &[2]),
            ("dport ge :4000", &[1, 2]),
            ("dport lt 1025 and not dport = 0", &[3]),
            ("src 10.0.0.1", &[1, 2]),
            ("src != 10.0.0.1", &[0, 3, 4]),
            ("src 10.0.0.1:443", &[2]),
            ("dst 10.0.0.0/8", &[1]),
            ("dst 0.0.0.0/0", &[1, 2]),
            ("dst ::/0", &[3]),
            ("dst fd77::2", &[3]),
            ("dst [fd77::2]:1024", &[3]),
            ("dst [fd77::]/16", &[3]),
            ("src :22", &[3]),
            (
                "state established ( dport = :1024 or dport = :4000 ) src fd77::/16",
                &[3],
            ),
            ("not (src 10.0.0.1 or sport = 22)", &[0, 4]),
            ("! sport = :80 | dst *:4000", &[1, 2, 3, 4]),
            ("dport = 4000 or dport = 65535 and sport = 1", &[1]),
        ] {
            assert_eq!(passing(text), expected, "{text}");
        }
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (text, word) in [
            ("state nonsense", "'nonsense'"),
            ("state", "a state"),
            ("port = 80", "'port'"),
            ("sport 80", "behind sport"),
            ("sport = http", "'http'"),
            ("sport = 65536", "'65536'"),
            ("dst 10.0.0.0/33", "'10.0.0.0/33'"),
            ("dst nowhere", "'nowhere'"),
            ("(sport = 80", "`)` is missing"),
            ("sport = 80 )", "')'"),
            ("sport = 80 or", "a condition"),
            ("src", "an address"),
        ] {
            let why = parse(text).expect_err(text);
            assert!(why.contains(word), "{text}: {why}");
        }
        for deep in ["( ".repeat(100_000), "not ".repeat(100_000)] {
            assert!(parse(&deep).expect_err("deep").contains("deeper"));
        }
    }
}
