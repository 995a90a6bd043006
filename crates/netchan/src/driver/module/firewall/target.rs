//! To where a rule translates: `snat to A[-B][:P[-Q]]`, `dnat to …`, `masquerade [to :P[-Q]]`, `redirect [to :P]`.

use std::net::IpAddr;

use super::{
    cursor::Cursor,
    rules::{End, Target, number},
    values,
    words::{Fault, Word},
};

/// A target, and the family that it is of, where it has an address.
pub fn read(
    cursor: &mut Cursor,
    verb: &Word,
    family: Option<bool>,
    has_ports: bool,
) -> Result<(End, Option<bool>), Fault> {
    let takes_address = matches!(verb.text.as_str(), "snat" | "dnat");
    let said = match cursor.here().text.as_str() {
        "ip" if takes_address => Some(true),
        "ip6" if takes_address => Some(false),
        _ => None,
    };
    if said.is_some() {
        let word = cursor.take();
        if family.is_some_and(|family| Some(family) != said) {
            return Err(word.fault("the rule is about the other family, ip or ip6, already"));
        }
    }
    let (mut target, mut v4) = (Target::default(), None);
    if takes_address || cursor.here().is("to") {
        cursor.want(
            "to",
            "`snat to ADDRESS`, `dnat to ADDRESS:PORT`, `redirect to :PORT`",
        )?;
        let word = cursor.take();
        let (ips, ports) = split(&word)?;
        target.ips = match (ips, takes_address) {
            ("", false) => None,
            ("", true) => return Err(word.fault("an address is missing")),
            (_, false) => return Err(word.fault("no address here: `to :PORT`")),
            (ips, true) => {
                let ips = addresses(&word, ips, said.or(family))?;
                v4 = Some(ips.0.is_ipv4());
                Some(ips)
            }
        };
        target.ports = ports.map(|text| range(&word, text)).transpose()?;
        if target.ports.is_some() && !has_ports {
            let why = "ports need a protocol: `tcp dport …`, `udp dport …` or `meta l4proto { tcp, udp }` ahead of it";
            return Err(word.fault(why));
        }
    }
    let is_source = matches!(verb.text.as_str(), "snat" | "masquerade");
    let end = if is_source {
        End::Source(target)
    } else {
        End::Destination(target)
    };
    Ok((end, v4))
}

/// Takes addresses and ports apart: `10.0.0.1-10.0.0.9:80`, `[fd00::1]:80`, `fd00::1`, `:80`.
fn split(word: &Word) -> Result<(&str, Option<&str>), Fault> {
    let text = word.text.as_str();
    if word.is_quoted {
        return Err(word.fault("no address"));
    }
    if let Some(rest) = text.strip_prefix('[') {
        let (ip, rest) = rest
            .split_once(']')
            .ok_or_else(|| word.fault("the `]` is missing"))?;
        return match (rest, rest.strip_prefix(':')) {
            ("", _) => Ok((ip, None)),
            (_, Some(ports)) => Ok((ip, Some(ports))),
            _ => Err(word.fault("`[ADDRESS]:PORT`")),
        };
    }
    match text.split_once(':') {
        Some((_, more)) if more.contains(':') => Ok((text, None)), // IPv6
        Some((ip, ports)) => Ok((ip, Some(ports))),
        None => Ok((text, None)),
    }
}

fn addresses(word: &Word, text: &str, family: Option<bool>) -> Result<(IpAddr, IpAddr), Fault> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let part = |text: &str| Word {
        text: text.to_owned(),
        ..word.clone()
    };
    let v4 = family.unwrap_or(!first.contains(':'));
    let wrong = |_| {
        word.fault(match v4 {
            true => "no IPv4 address here: ADDRESS[-ADDRESS][:PORT]",
            false => "no IPv6 address here: ADDRESS, or [ADDRESS]:PORT",
        })
    };
    let first = values::address(&part(first), v4).map_err(wrong)?;
    let last = values::address(&part(last), v4).map_err(wrong)?;
    if number(first) > number(last) {
        return Err(word.fault("the range ends before it begins"));
    }
    if [first, last]
        .iter()
        .any(|ip| ip.is_unspecified() || ip.is_multicast())
    {
        return Err(word.fault("no address of one host"));
    }
    Ok((first, last))
}

fn range(word: &Word, text: &str) -> Result<(u16, u16), Fault> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let port = |text: &str| {
        let is_plain = text.bytes().all(|b| b.is_ascii_digit());
        text.parse::<u16>()
            .ok()
            .filter(|&port| port > 0 && is_plain)
    };
    match (port(first), port(last)) {
        (Some(first), Some(last)) if first <= last => Ok((first, last)),
        _ => Err(word.fault("a port is 1 to 65535, a range FIRST-LAST")),
    }
}
