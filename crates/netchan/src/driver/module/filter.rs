//! A packet filter: ordered rules, the first that matches decides. Stateless: it knows nothing of connections, so that answers need a
//! rule of their own.
//!
//! ```text
//! pass|drop [in|out|forward] [proto tcp|udp|icmp|icmp6|NUMBER] [mark N] [from any|ADDRESS[/PREFIX]] [port N[-M]] [to any|ADDRESS[/PREFIX]] [port N[-M]]
//! ```
//!
//! What a rule does not name, it does not ask for. An address asks for its family. A rule with a port matches TCP and UDP only, and no
//! fragment but a datagram's first (on the way out and through; what comes in is whole): a filter that passes by port and drops the rest drops
//! datagrams that leave or pass in fragments. What no rule matches gets the default.

use std::{fmt, net::IpAddr, ops::RangeInclusive, str::FromStr};

use proto::{time::Instant, wire::ipv4::Protocol};

use super::{Module, Point, Verdict, View};

/// Rules that a filter takes: they are tried one after the other.
pub const RULES_MAX: usize = 1024;

/// One rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// What becomes of packets that match.
    pub verdict: Verdict,
    /// Which way they go; `None`: any.
    pub point: Option<Point>,
    /// Their upper layer's protocol; `None`: any.
    pub protocol: Option<Protocol>,
    /// SO_MARK of the socket that sends them; `None`: any.
    pub mark: Option<u32>,
    /// Where they come from.
    pub from: End,
    /// Where they go.
    pub to: End,
}

/// One end of the packets that a rule is about.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct End {
    /// The first address of a network and its prefix length; `None`: any, of both families.
    pub network: Option<(IpAddr, u8)>,
    /// Ports, for TCP and UDP; `None`: any, and what has none.
    pub ports: Option<RangeInclusive<u16>>,
}

/// A filter's settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rules {
    /// In the order in which they are tried.
    pub rules: Vec<Rule>,
    /// For packets that no rule matches.
    pub default: Verdict,
}

impl Default for Rules {
    fn default() -> Self {
        Self {
            rules: Vec::new(),
            default: Verdict::Pass,
        }
    }
}

/// The filter.
#[derive(Clone, Debug)]
pub struct Filter {
    name: String,
    rules: Rules,
}

impl Filter {
    /// A filter called `name`.
    pub fn new(name: impl Into<String>, rules: Rules) -> Self {
        Self {
            name: name.into(),
            rules,
        }
    }
}

impl Module for Filter {
    fn name(&self) -> &str {
        &self.name
    }
    fn points(&self) -> &[Point] {
        &[Point::In, Point::Out, Point::Forward]
    }
    fn packet(&self, point: Point, packet: &View<'_>, _now: Instant) -> Verdict {
        let found = self
            .rules
            .rules
            .iter()
            .find(|rule| rule.matches(point, packet));
        found.map_or(self.rules.default, |rule| rule.verdict)
    }
    fn describe(&self) -> String {
        let default = match self.rules.default {
            Verdict::Pass => "pass",
            Verdict::Drop | Verdict::Reject(_) => "drop",
        };
        format!("{} rules, else {default}", self.rules.rules.len())
    }
}

impl Rule {
    /// Whether it is about this packet.
    pub fn matches(&self, point: Point, packet: &View<'_>) -> bool {
        let (source, destination) = packet.ports().unzip();
        self.point.is_none_or(|own| own == point)
            && self.protocol.is_none_or(|own| own == packet.protocol())
            && self.mark.is_none_or(|own| own == packet.mark())
            && self.from.matches(packet.source(), source)
            && self.to.matches(packet.destination(), destination)
    }
}

impl End {
    fn matches(&self, ip: IpAddr, port: Option<u16>) -> bool {
        self.network.is_none_or(|network| is_in(network, ip))
            && self
                .ports
                .as_ref()
                .is_none_or(|ports| port.is_some_and(|port| ports.contains(&port)))
    }
}

/// Whether `ip` lies in a network of its own family.
pub(super) fn is_in((network, prefix): (IpAddr, u8), ip: IpAddr) -> bool {
    match (network, ip) {
        (IpAddr::V4(_), IpAddr::V4(_)) | (IpAddr::V6(_), IpAddr::V6(_)) => {
            masked(ip, prefix) == masked(network, prefix)
        }
        _ => false,
    }
}

/// The first address of the network of `prefix` bits that `ip` lies in.
pub(super) fn masked(ip: IpAddr, prefix: u8) -> IpAddr {
    match ip {
        IpAddr::V4(ip) => {
            let host = 32_u32.saturating_sub(prefix.into());
            let mask = u32::MAX.checked_shl(host).unwrap_or(0);
            std::net::Ipv4Addr::from_bits(ip.to_bits() & mask).into()
        }
        IpAddr::V6(ip) => {
            let host = 128_u32.saturating_sub(prefix.into());
            let mask = u128::MAX.checked_shl(host).unwrap_or(0);
            std::net::Ipv6Addr::from_bits(ip.to_bits() & mask).into()
        }
    }
}

/// What is wrong with a rule's text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleError(String);

impl fmt::Display for RuleError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for RuleError {}

impl FromStr for Rule {
    type Err = RuleError;

    fn from_str(text: &str) -> Result<Self, RuleError> {
        parse(text).map_err(|what| RuleError(format!("rule `{}`: {what}", text.escape_debug())))
    }
}

fn parse(text: &str) -> Result<Rule, String> {
    let mut words = text.split_ascii_whitespace().peekable();
    let mut rule = Rule {
        verdict: match words.next() {
            Some("pass") => Verdict::Pass,
            Some("drop") => Verdict::Drop,
            Some(other) => return Err(format!("begins with pass or drop, not `{other}`")),
            None => return Err("is empty".into()),
        },
        point: None,
        protocol: None,
        mark: None,
        from: End::default(),
        to: End::default(),
    };
    // Each part at most once, in this order: what reads well has one meaning.
    rule.point = words.peek().and_then(|word| Point::named(word));
    if rule.point.is_some() {
        words.next();
    }
    if words.next_if_eq(&"proto").is_some() {
        rule.protocol = Some(protocol(words.next())?);
    }
    if words.next_if_eq(&"mark").is_some() {
        rule.mark = Some(mark(words.next())?);
    }
    for (word, end) in [("from", &mut rule.from), ("to", &mut rule.to)] {
        if words.next_if_eq(&word).is_some() {
            end.network = network(words.next(), word)?;
            if words.next_if_eq(&"port").is_some() {
                end.ports = Some(ports(words.next())?);
            }
        }
    }
    if let Some(word) = words.next() {
        return Err(format!(
            "`{word}` is out of place; the order is: pass|drop in|out|forward proto P mark N from A port N to A port N"
        ));
    }
    let has_ports = rule.from.ports.is_some() || rule.to.ports.is_some();
    if has_ports && !matches!(rule.protocol, None | Some(Protocol::TCP | Protocol::UDP)) {
        return Err("only tcp and udp have ports".into());
    }
    let families = [&rule.from, &rule.to].map(|end| end.network.map(|(ip, _)| ip.is_ipv4()));
    if matches!(families, [Some(a), Some(b)] if a != b) {
        return Err("from IPv4 to IPv6 or back: no packet matches".into());
    }
    Ok(rule)
}

fn protocol(word: Option<&str>) -> Result<Protocol, String> {
    match word {
        Some("tcp") => Ok(Protocol::TCP),
        Some("udp") => Ok(Protocol::UDP),
        Some("icmp") => Ok(Protocol::ICMP),
        Some("icmp6") => Ok(Protocol::ICMPV6),
        other => other
            .and_then(|w| w.parse().ok())
            .map(Protocol)
            .ok_or_else(|| {
                format!(
                    "proto `{}`: one of tcp, udp, icmp, icmp6 or a number to 255",
                    other.unwrap_or("")
                )
            }),
    }
}

fn mark(word: Option<&str>) -> Result<u32, String> {
    let word = word.ok_or("which mark? 7 or 0x2a")?;
    let number = match word.strip_prefix("0x") {
        Some(hex) => u32::from_str_radix(hex, 16),
        None => word.parse(),
    };
    number.map_err(|_| format!("mark `{word}`: write 7 or 0x2a"))
}

fn network(word: Option<&str>, after: &str) -> Result<Option<(IpAddr, u8)>, String> {
    let word =
        word.ok_or_else(|| format!("{after} where? `any`, 10.0.0.1, 10.0.0.0/8, fd00::/8"))?;
    if word == "any" {
        return Ok(None);
    }
    let bad = || {
        format!("{after} `{word}`: no address or network; `any`, 10.0.0.1, 10.0.0.0/8, fd00::/8")
    };
    let (ip, prefix) = word
        .split_once('/')
        .map_or((word, None), |(ip, p)| (ip, Some(p)));
    let ip: IpAddr = ip.parse().map_err(|_| bad())?;
    let longest = if ip.is_ipv4() { 32 } else { 128 };
    let prefix = prefix.map_or(Ok(longest), |p| p.parse().map_err(|_| bad()))?;
    if prefix > longest {
        return Err(bad());
    }
    let network = masked(ip, prefix);
    if network != ip {
        return Err(format!(
            "{after} `{word}`: bits are set beyond the prefix; {network}/{prefix} is the network"
        ));
    }
    Ok(Some((network, prefix)))
}

fn ports(word: Option<&str>) -> Result<RangeInclusive<u16>, String> {
    let word = word.ok_or("which port? 80 or 8000-8080")?;
    let (first, last) = word.split_once('-').unwrap_or((word, word));
    match (first.parse::<u16>(), last.parse::<u16>()) {
        (Ok(first), Ok(last)) if first <= last => Ok(first..=last),
        _ => Err(format!("port `{word}`: write 80 or 8000-8080")),
    }
}
