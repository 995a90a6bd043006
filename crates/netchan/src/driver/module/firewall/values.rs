//! The values of a file of rules: ranges of ports and addresses, names, flags, sets of them.

use std::{net::IpAddr, str::FromStr};

use proto::wire::ipv4::Protocol;

use super::{
    cursor::{Cursor, named},
    rules::{self, Flagged, Numbers, Ranges},
    words::{Fault, Word},
};

/// Elements of a set at most.
const SET_MAX: usize = 4096;
/// The name of a link at most, as the kernel has it (IFNAMSIZ, its zero included, is 16).
const DEVICE_MAX: usize = 15;

/// `[==|!=] VALUE`, `{ VALUE, … }` or `VALUE,VALUE`; false in front: `!=`.
pub fn set<T>(
    cursor: &mut Cursor,
    mut value: impl FnMut(&Word) -> Result<T, Fault>,
) -> Result<(bool, Vec<T>), Fault> {
    let is = is(cursor);
    let mut values = Vec::new();
    if !cursor.take_if("{") {
        loop {
            values.push(value(&cursor.take())?);
            if !cursor.take_if(",") {
                return Ok((is, values));
            }
            cursor.skip_lines();
        }
    }
    loop {
        cursor.skip_lines();
        let word = cursor.take();
        if word.is("}") {
            let empty = values.is_empty().then(|| word.fault("an empty set"));
            return empty.map_or(Ok((is, values)), Err);
        }
        if values.len() >= SET_MAX {
            return Err(word.fault(format!("more than {SET_MAX} elements")));
        }
        values.push(value(&word)?);
        cursor.skip_lines();
        if !cursor.take_if(",") && !cursor.here().is("}") {
            return Err(cursor.here().fault("a `,` or the set's `}` is missing"));
        }
    }
}

/// `==`, which may be left out, or `!=`.
fn is(cursor: &mut Cursor) -> bool {
    !(cursor.take_if("!=") || {
        cursor.take_if("==");
        false
    })
}

/// The same for what takes a list in braces only.
fn in_braces<T>(
    cursor: &mut Cursor,
    mut value: impl FnMut(&Word) -> Result<T, Fault>,
) -> Result<(bool, Vec<T>), Fault> {
    let is = is(cursor);
    if cursor.here().is("{") {
        return Ok((is, set(cursor, value)?.1));
    }
    Ok((is, vec![value(&cursor.take())?]))
}

/// A number, in decimal or, behind `0x`, hexadecimal.
pub fn number<T: TryFrom<u64>>(word: &Word) -> Result<T, Fault> {
    let digits = word.text.strip_prefix("0x");
    let read = match digits {
        Some(hex) if hex.bytes().all(|b| b.is_ascii_hexdigit()) => {
            u64::from_str_radix(hex, 16).ok()
        }
        None if word.text.bytes().all(|b| b.is_ascii_digit()) => word.text.parse().ok(),
        _ => None,
    };
    let value = read
        .filter(|_| !word.is_quoted)
        .and_then(|n| T::try_from(n).ok());
    value.ok_or_else(|| word.fault("no number that fits here"))
}

/// `FIRST-LAST`, or one value.
fn range<T: Copy + PartialOrd>(
    word: &Word,
    mut value: impl FnMut(&Word) -> Result<T, Fault>,
) -> Result<(T, T), Fault> {
    let Some((first, last)) = word.text.split_once('-').filter(|_| !word.is_quoted) else {
        let one = value(word)?;
        return Ok((one, one));
    };
    let part = |text: &str| Word {
        text: text.to_owned(),
        ..word.clone()
    };
    let (first, last) = (value(&part(first)), value(&part(last)));
    let wrong = |_| word.fault("no range; FIRST-LAST");
    match (first.map_err(wrong)?, last.map_err(wrong)?) {
        (first, last) if first <= last => Ok((first, last)),
        _ => Err(word.fault("the range ends before it begins")),
    }
}

/// Puts ranges in order, and those that overlap together.
fn in_order<T: Ord + Copy>(mut ranges: Vec<(T, T)>) -> Ranges<T> {
    ranges.sort_unstable();
    let mut all: Vec<(T, T)> = Vec::with_capacity(ranges.len());
    for (first, last) in ranges {
        match all.last_mut() {
            Some(before) if before.1 >= first => before.1 = before.1.max(last),
            _ => all.push((first, last)),
        }
    }
    Ranges(all)
}

/// Ports.
pub fn ports(cursor: &mut Cursor) -> Result<(bool, Ranges<u16>), Fault> {
    let (is, ranges) = in_braces(cursor, |word| range(word, number::<u16>))?;
    Ok((is, in_order(ranges)))
}

/// Marks.
pub fn numbers(cursor: &mut Cursor) -> Result<(bool, Ranges<u32>), Fault> {
    let (is, ranges) = in_braces(cursor, |word| range(word, number::<u32>))?;
    Ok((is, in_order(ranges)))
}

/// An address of a family.
pub fn address(word: &Word, v4: bool) -> Result<IpAddr, Fault> {
    let read = IpAddr::from_str(&word.text).ok();
    let right = read.filter(|ip| ip.is_ipv4() == v4 && !word.is_quoted);
    right.ok_or_else(|| {
        word.fault(match v4 {
            true => "no IPv4 address, network or range; names are not looked up",
            false => "no IPv6 address, network or range; names are not looked up",
        })
    })
}

/// Addresses: `10.0.0.1`, `10.0.0.0/8`, `10.0.0.1-10.0.0.9`.
pub fn addresses(cursor: &mut Cursor, v4: bool) -> Result<(bool, Ranges<u128>), Fault> {
    let one = |word: &Word| {
        let Some((ip, bits)) = word.text.split_once('/') else {
            return range(word, |word| address(word, v4).map(rules::number));
        };
        let part = Word {
            text: ip.to_owned(),
            ..word.clone()
        };
        let first = rules::number(address(&part, v4)?);
        let width: u32 = if v4 { 32 } else { 128 };
        let is_plain = bits.bytes().all(|b| b.is_ascii_digit());
        let bits: Option<u32> = bits.parse().ok().filter(|&bits| bits <= width && is_plain);
        let bits = bits.ok_or_else(|| word.fault(format!("a prefix has 0 to {width} bits")))?;
        let hosts = 1_u128
            .checked_shl(width - bits)
            .map_or(u128::MAX, |n| n - 1);
        if first & hosts != 0 {
            return Err(word.fault("bits are set beyond the prefix"));
        }
        Ok((first, first | hosts))
    };
    let (is, ranges) = in_braces(cursor, one)?;
    Ok((is, in_order(ranges)))
}

/// Names of links; `patterns`: with a last `*`, how they begin.
pub fn names(cursor: &mut Cursor, patterns: bool) -> Result<(bool, Vec<String>), Fault> {
    in_braces(cursor, |word| {
        let letters = |c: char| c.is_ascii_graphic() && !"/:{}(),;\"\\".contains(c);
        let stem = word.text.strip_suffix('*').unwrap_or(&word.text);
        let is_name = !word.text.is_empty()
            && word.text.len() <= DEVICE_MAX
            && word.text.chars().all(letters)
            && !stem.contains('*')
            && !stem.is_empty();
        if !is_name {
            return Err(word.fault(format!(
                "the name of a link is 1 to {DEVICE_MAX} characters"
            )));
        }
        if stem.len() < word.text.len() && !patterns {
            return Err(word.fault("patterns are for iifname and oifname"));
        }
        if !word.is_quoted && !word.text.starts_with(|c: char| c.is_ascii_alphabetic()) {
            return Err(word.fault("write it between quotation marks"));
        }
        Ok(word.text.clone())
    })
}

/// Protocols, by name or number; the one, where there is one.
pub fn protocols(cursor: &mut Cursor) -> Result<(bool, Numbers, Option<Protocol>), Fault> {
    let known = [
        ("tcp", 6),
        ("udp", 17),
        ("icmp", 1),
        ("icmpv6", 58),
        ("ipv6-icmp", 58),
        ("esp", 50),
        ("ah", 51),
        ("sctp", 132),
    ];
    let is_set = cursor.here().is("{");
    let (is, all) = in_braces(cursor, |word| match number::<u8>(word) {
        Ok(number) => Ok(number),
        Err(_) => named(word, &known),
    })?;
    let mut numbers = Numbers::default();
    all.iter().for_each(|&number| numbers.add(number));
    let one = all
        .first()
        .map(|&number| Protocol(number))
        .filter(|_| !is_set);
    Ok((is, numbers, one))
}

/// Types of ICMP messages.
pub fn icmp_types(cursor: &mut Cursor, v4: bool) -> Result<(bool, Numbers), Fault> {
    const V4: &[(&str, u8)] = &[
        ("echo-reply", 0),
        ("destination-unreachable", 3),
        ("source-quench", 4),
        ("redirect", 5),
        ("echo-request", 8),
        ("router-advertisement", 9),
        ("router-solicitation", 10),
        ("time-exceeded", 11),
        ("parameter-problem", 12),
        ("timestamp-request", 13),
        ("timestamp-reply", 14),
    ];
    const V6: &[(&str, u8)] = &[
        ("destination-unreachable", 1),
        ("packet-too-big", 2),
        ("time-exceeded", 3),
        ("parameter-problem", 4),
        ("echo-request", 128),
        ("echo-reply", 129),
        ("mld-listener-query", 130),
        ("mld-listener-report", 131),
        ("mld-listener-done", 132),
        ("nd-router-solicit", 133),
        ("nd-router-advert", 134),
        ("nd-neighbor-solicit", 135),
        ("nd-neighbor-advert", 136),
        ("nd-redirect", 137),
    ];
    let (is, all) = in_braces(cursor, |word| match number::<u8>(word) {
        Ok(number) => Ok(number),
        Err(_) => named(word, if v4 { V4 } else { V6 }),
    })?;
    let mut numbers = Numbers::default();
    all.iter().for_each(|&number| numbers.add(number));
    Ok((is, numbers))
}

/// `syn`, `syn,ack` (one of them is set), `== syn`, `!= syn`, `& (fin|syn) == syn`.
pub fn flags(cursor: &mut Cursor) -> Result<(bool, Flagged), Fault> {
    if cursor.take_if("&") {
        let of = sum_of_flags(cursor)?;
        if !cursor.here().is("==") && !cursor.here().is("!=") {
            return Err(cursor.here().fault("`tcp flags & (fin|syn) == syn`"));
        }
        let is = is(cursor);
        let set = sum_of_flags(cursor)?;
        return Ok((is, Flagged::Are { of, set }));
    }
    if cursor.here().is("==") || cursor.here().is("!=") {
        let is = is(cursor);
        let set = sum_of_flags(cursor)?;
        return Ok((is, Flagged::Are { of: 0xff, set }));
    }
    let mut any = flag(&cursor.take())?;
    while cursor.take_if(",") {
        any |= flag(&cursor.take())?;
    }
    Ok((true, Flagged::Any(any)))
}

/// `syn`, `syn|ack`, the same in parentheses, or a number.
fn sum_of_flags(cursor: &mut Cursor) -> Result<u8, Fault> {
    let is_open = cursor.take_if("(");
    let word = cursor.take();
    let mut sum = match number::<u8>(&word) {
        Ok(number) => number,
        Err(_) => flag(&word)?,
    };
    while cursor.take_if("|") {
        sum |= flag(&cursor.take())?;
    }
    if is_open {
        cursor.want(")", "the parenthesis is not closed")?;
    }
    Ok(sum)
}

fn flag(word: &Word) -> Result<u8, Fault> {
    let flags = [
        ("fin", 1),
        ("syn", 2),
        ("rst", 4),
        ("psh", 8),
        ("ack", 16),
        ("urg", 32),
        ("ecn", 64),
        ("cwr", 128),
    ];
    named(word, &flags)
}
