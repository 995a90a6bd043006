//! docs/socket-options.md, held against what the library does with each option and against Linux's headers.

use std::{collections::BTreeMap, ffi::c_void, ptr};

use libc::{c_int, socklen_t};
use netchan::socket::{Domain, Kind, Socket};

use super::{filter, get, parse};
use crate::{
    errno,
    state::{Live, SocketState},
};

#[path = "../../../../lab/tests/skips/mod.rs"]
mod skips;

/// A row of the page.
#[derive(Debug)]
struct Row {
    level: c_int,
    name: String,
    number: c_int,
    /// `None` for an option that is not supported: nothing of it is there.
    does: Option<Does>,
}

#[derive(Debug)]
struct Does {
    set: String,
    get: bool,
}

const LEVELS: [(&str, c_int); 5] = [
    ("SOL_SOCKET", libc::SOL_SOCKET),
    ("IPPROTO_TCP", libc::IPPROTO_TCP),
    ("IPPROTO_IP", libc::IPPROTO_IP),
    ("IPPROTO_IPV6", libc::IPPROTO_IPV6),
    ("SOL_UDP", libc::SOL_UDP),
];

fn level(name: &str) -> c_int {
    let found = LEVELS.iter().find(|(known, _)| *known == name);
    found.unwrap_or_else(|| panic!("no level {name}")).1
}

/// All rows of the page.
fn rows() -> Vec<Row> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/socket-options.md");
    let page = std::fs::read_to_string(path).expect("docs/socket-options.md");
    let mut rows = Vec::new();
    for part in page.split("\n## ").skip(1) {
        let title = part.lines().next().unwrap_or_default();
        for line in part
            .lines()
            .filter(|line| line.starts_with('|') && line.contains('`'))
        {
            let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
            let row = match (title, &cells[..]) {
                ("Not supported", &[at, name, number, why]) => {
                    assert!(why.len() > 5, "no reason: {line}");
                    (at, name, number, None)
                }
                (at, &[name, number, _, set, get, _, _]) => {
                    assert!(["yes", "no", "ignored"].contains(&set), "{line}");
                    assert!(["yes", "no"].contains(&get), "{line}");
                    let does = Does {
                        set: set.to_owned(),
                        get: get == "yes",
                    };
                    (at, name, number, Some(does))
                }
                _ => panic!("{title}: {line}"),
            };
            let (at, name, number, does) = row;
            rows.push(Row {
                level: level(at),
                name: name.trim_matches('`').to_owned(),
                number: number.parse().unwrap_or_else(|_| panic!("{line}")),
                does,
            });
        }
    }
    assert!(rows.len() > 150, "{}", rows.len());
    rows
}

/// What an option that nobody knows is told.
fn is_unknown(code: c_int) -> bool {
    [libc::ENOPROTOOPT, libc::EOPNOTSUPP].contains(&code)
}

/// Levels and numbers to be tried: those of RFC 3678 are at two levels.
fn places(row: &Row) -> Vec<(c_int, c_int)> {
    let mut places = vec![(row.level, row.number)];
    if row.name.starts_with("MCAST_") {
        places.push((libc::IPPROTO_IPV6, row.number));
    }
    places
}

#[test]
fn what_is_set_is_what_the_page_says() {
    for row in rows() {
        for (level, name) in places(&row) {
            // Long enough for every structure but the filters, which are read elsewhere.
            let set = parse(level, name, &[0; 512]).map_err(|e| errno::code(&e));
            let is_read = filter::layout(level, name).is_some() || !set.is_err_and(is_unknown);
            let says = row.does.as_ref().is_some_and(|does| does.set != "no");
            assert_eq!(is_read, says, "{row:?}: {set:?}");
            let is_ignored = matches!(set, Ok(super::Setting::Ignored));
            let says = row.does.as_ref().is_some_and(|does| does.set == "ignored");
            assert_eq!(is_ignored, says, "{row:?}: {set:?}");
        }
    }
}

/// What getsockopt says to one socket.
fn read(live: Live<'_>, level: c_int, name: c_int) -> Result<(), c_int> {
    let mut value = [0_u8; 512];
    let mut len: socklen_t = 512;
    let at = ptr::from_mut(&mut value).cast::<c_void>();
    // SAFETY: both are there, and `len` says how long the first is.
    let got = unsafe { get(live, level, name, at, ptr::from_mut(&mut len)) };
    got.map(|_| ()).map_err(|e| errno::code(&e))
}

#[test]
fn what_is_read_is_what_the_page_says() {
    let net = netchan::Net::builder()
        .link("loop")
        .and_then(netchan::Builder::start)
        .expect("a stack");
    let kinds = [Domain::V4, Domain::V6]
        .into_iter()
        .flat_map(|domain| [Kind::Stream, Kind::Datagram, Kind::Ping].map(|kind| (domain, kind)));
    let sockets: Vec<(SocketState, Socket)> = kinds
        .map(|(domain, kind)| {
            let socket = Socket::new(&net, domain, kind).expect("a socket");
            (SocketState::new(domain, kind), socket)
        })
        .collect();
    for row in rows() {
        for (level, name) in places(&row) {
            let answers: Vec<Result<(), c_int>> = sockets
                .iter()
                .map(|(state, socket)| {
                    let live = Live {
                        fd: -1,
                        state,
                        socket,
                    };
                    read(live, level, name)
                })
                .collect();
            let is_there = answers.iter().any(|answer| !answer.is_err_and(is_unknown));
            let says = row.does.as_ref().is_some_and(|does| does.get);
            assert_eq!(is_there, says, "{row:?}: {answers:?}");
        }
    }
}

/// Headers with the options of a level, and what their names begin with.
const HEADERS: [(&str, c_int, &[&str]); 5] = [
    ("asm-generic/socket.h", libc::SOL_SOCKET, &["SO_"]),
    ("linux/tcp.h", libc::IPPROTO_TCP, &["TCP_"]),
    ("linux/in.h", libc::IPPROTO_IP, &["IP_", "MCAST_"]),
    ("linux/in6.h", libc::IPPROTO_IPV6, &["IPV6_"]),
    ("linux/udp.h", libc::SOL_UDP, &["UDP_"]),
];

/// What begins like an option and is none: values, flags and lengths.
const NO_OPTIONS: [&str; 19] = [
    "IP_PMTUDISC_",
    "IP_DEFAULT_MULTICAST_",
    "MCAST_EXCLUDE",
    "MCAST_INCLUDE",
    "IPV6_FL_",
    "IPV6_FLOWINFO_FLOWLABEL",
    "IPV6_FLOWINFO_PRIORITY",
    "IPV6_PRIORITY_",
    "IPV6_TLV_",
    "IPV6_PMTUDISC_",
    "IPV6_PREFER_SRC_",
    "TCP_MSS_",
    "TCP_REPAIR_O",
    "TCP_MD5SIG_MAXKEYLEN",
    "TCP_MD5SIG_FLAG_",
    "TCP_AO_MAXKEYLEN",
    "TCP_AO_KEYF_",
    "TCP_RECEIVE_ZEROCOPY_FLAG_",
    "UDP_ENCAP_",
];

/// `TCP_REPAIR_O` stands for `_ON`, `_OFF`, and would take an option with it.
const OPTIONS_NEVERTHELESS: [&str; 1] = ["TCP_REPAIR_OPTIONS"];

/// The options that a header defines; one that is another's second name (`SO_DETACH_BPF`) has no number.
fn defined(text: &str, begin: &[&str]) -> BTreeMap<String, c_int> {
    let define = |line: &str| {
        let mut words = line.trim_start().strip_prefix('#')?.split_whitespace();
        (words.next()? == "define").then_some(())?;
        let (name, value) = (words.next()?, words.next()?);
        let is_one = begin.iter().any(|begin| name.starts_with(begin))
            && (OPTIONS_NEVERTHELESS.contains(&name)
                || !NO_OPTIONS.iter().any(|none| name.starts_with(none)));
        let number = value.parse().ok().filter(|_| is_one)?;
        Some((name.to_owned(), number))
    };
    text.lines().filter_map(define).collect()
}

#[test]
fn the_page_has_every_option_of_linux() {
    let rows = rows();
    for (header, level, begin) in HEADERS {
        let path = format!("/usr/include/{header}");
        let Ok(text) = std::fs::read_to_string(&path) else {
            skips::skipped_here(&format!("no {path}"));
            continue;
        };
        let defined = defined(&text, begin);
        assert!(defined.len() > 4, "{header}: {defined:?}");
        for (name, number) in &defined {
            let row = rows.iter().find(|row| row.name == *name);
            let row = row.unwrap_or_else(|| panic!("{header}: {name} {number} is not on the page"));
            assert_eq!((row.level, row.number), (level, *number), "{name}");
        }
    }
}

#[test]
fn no_option_has_two_rows() {
    let mut seen = BTreeMap::new();
    for row in rows() {
        let before = seen.insert((row.level, row.number), row.name.clone());
        assert_eq!(before, None, "{}", row.name);
    }
}
