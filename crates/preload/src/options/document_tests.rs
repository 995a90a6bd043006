//! The table of options: the page that is made from it, what the library does with each row, and Linux's headers.

use std::{
    collections::{BTreeMap, BTreeSet},
    ffi::c_void,
    fs,
    path::Path,
    ptr,
};

use libc::{c_int, socklen_t};
use netchan::socket::{Domain, Kind, Socket};

use super::{
    get, has_level,
    lacking::LACKING,
    parse,
    row::{Get, Row, Set},
    rows::LEVELS,
};
use crate::{
    errno,
    setting::Setting,
    state::{Live, SocketState},
};

#[path = "../../../../lab/tests/skips/mod.rs"]
mod skips;

/// All rows, each with its level's number.
fn rows() -> impl Iterator<Item = (c_int, &'static Row)> {
    let of = |level: &'static super::rows::Level| level.rows.iter().map(|row| (level.number, row));
    LEVELS.iter().flat_map(of)
}

/// Levels, numbers and names of what there is not, with what it is told.
fn lacking() -> impl Iterator<Item = (c_int, c_int, &'static str, c_int)> {
    LACKING.iter().flat_map(|lacking| {
        let one = |&(number, name)| (lacking.level, number, name, lacking.code);
        lacking.options.iter().map(one)
    })
}

fn yes(is: bool) -> &'static str {
    if is { "yes" } else { "no" }
}

/// A level's table on the page.
fn table_of(rows: &[Row]) -> String {
    let line = |row: &Row| {
        let set = match row.set {
            Set::Ignored(_) => "ignored",
            Set::No => "no",
            _ => "yes",
        };
        let get = yes(!matches!(row.get, Get::No));
        let Row {
            name,
            number,
            value,
            sockets,
            note,
            ..
        } = row;
        let end = match *note {
            "" => "|".to_owned(),
            note => format!(" {note} |").split_off(1),
        };
        format!("| `{name}` | {number} | {value} | {set} | {get} | {sockets} | {end}\n")
    };
    let head = "| name | number | value | set | get | sockets | |\n| --- | --- | --- | --- | --- | --- | --- |\n";
    let lines: String = rows.iter().map(line).collect();
    format!("{head}{lines}")
}

/// The table of what there is not.
fn table_of_lacking() -> String {
    let mut table = "| level | name | number | why |\n| --- | --- | --- | --- |\n".to_owned();
    for lacking in LACKING {
        let level = LEVELS.iter().find(|level| level.number == lacking.level);
        let level = level.map_or("", |level| level.name);
        for (number, name) in lacking.options {
            let why = lacking.why;
            table += &format!("| {level} | `{name}` | {number} | {why} |\n");
        }
    }
    table
}

/// `NETCHAN_RECORD=1 cargo test -p netchan-preload --lib options` writes the tables of the page anew.
#[test]
fn the_page_has_the_tables() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/socket-options.md");
    let page = fs::read_to_string(path).expect("docs/socket-options.md");
    let mut made = page.clone();
    let tables = LEVELS
        .iter()
        .map(|level| (level.name, table_of(level.rows)))
        .chain([("Not supported", table_of_lacking())]);
    for (title, table) in tables {
        let mark = format!("<!-- options: {title} -->");
        let (before, rest) = made.split_once(&mark).expect(title);
        let rest = rest.trim_start();
        let end = rest.find("\n\n").map_or(rest.len(), |end| end + 1);
        made = format!("{before}{mark}\n\n{table}{}", &rest[end..]);
    }
    if std::env::var_os("NETCHAN_RECORD").is_some() {
        fs::write(path, &made).expect("the page can be written");
    } else {
        assert!(
            made == page,
            "docs/socket-options.md is not what the table says: NETCHAN_RECORD=1 writes it anew"
        );
    }
}

/// What an unknown option is told.
fn is_unknown(code: c_int) -> bool {
    [libc::ENOPROTOOPT, libc::EOPNOTSUPP].contains(&code)
}

#[test]
fn each_row_is_set_as_it_says() {
    // Long enough for every structure but the filters, which are read elsewhere.
    let set = |level, number| parse(level, number, &[0; 512]).map_err(|e| errno::code(&e));
    for (level, row) in rows() {
        let answer = set(level, row.number);
        let is_read = matches!(row.set, Set::Filter(_)) || !answer.is_err_and(is_unknown);
        assert_eq!(
            is_read,
            !matches!(row.set, Set::No),
            "{}: {answer:?}",
            row.name
        );
        let is_ignored = matches!(answer, Ok(Setting::Ignored));
        assert_eq!(
            is_ignored,
            matches!(row.set, Set::Ignored(_)),
            "{}: {answer:?}",
            row.name
        );
    }
    for (level, number, name, code) in lacking() {
        assert!(is_unknown(code), "{name}");
        assert_eq!(set(level, number), Err(code), "{name}");
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

/// Whether a row says that sockets of a kind have the option.
fn is_said_of(row: &Row, kind: Kind) -> bool {
    let name = match kind {
        Kind::Stream => "tcp",
        Kind::Datagram => "udp",
        Kind::Ping => "ping",
    };
    row.sockets == "all" || row.sockets.split(", ").any(|known| known == name)
}

#[test]
fn each_row_is_read_as_it_says() {
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
    for (state, socket) in &sockets {
        let live = Live {
            fd: -1,
            state,
            socket,
        };
        let who = (state.domain, state.kind);
        for (level, row) in rows() {
            let answer = read(live, level, row.number);
            if matches!(row.get, Get::No) {
                assert!(answer.is_err_and(is_unknown), "{}, {who:?}", row.name);
            } else if is_said_of(row, state.kind) && has_level(state, level) {
                assert!(!answer.is_err_and(is_unknown), "{}, {who:?}", row.name);
            }
        }
        for (level, number, name, code) in lacking() {
            let answer = read(live, level, number);
            assert!(answer.is_err_and(is_unknown), "{name}, {who:?}");
            if has_level(state, level) {
                assert_eq!(answer, Err(code), "{name}, {who:?}");
            }
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
fn the_table_has_every_option_of_linux() {
    let known: BTreeMap<(&str, c_int), c_int> = rows()
        .map(|(level, row)| ((row.name, level), row.number))
        .chain(lacking().map(|(level, number, name, _)| ((name, level), number)))
        .collect();
    assert!(known.len() > 200, "{}", known.len());
    for (header, level, begin) in HEADERS {
        let path = format!("/usr/include/{header}");
        let Ok(text) = fs::read_to_string(&path) else {
            skips::skipped_here(&format!("no {path}"));
            continue;
        };
        let defined = defined(&text, begin);
        assert!(defined.len() > 4, "{header}: {defined:?}");
        for (name, number) in &defined {
            let row = known.get(&(name.as_str(), level));
            assert_eq!(row, Some(number), "{header}: {name} {number}");
        }
    }
}

#[test]
fn no_option_has_two_rows() {
    let mut seen = BTreeSet::new();
    for (level, row) in rows() {
        assert!(seen.insert((level, row.number)), "{}", row.name);
    }
    for (level, number, name, _) in lacking() {
        assert!(seen.insert((level, number)), "{name}");
    }
}

/// What C calls an option in code, where the headers' name has an ending of its own.
fn name_in_code(name: &str) -> &str {
    name.trim_end_matches("_OLD")
}

/// The library's files without tests, with their code in words, comments apart.
fn words(folder: &Path, found: &mut Vec<(String, BTreeSet<String>)>) {
    for entry in fs::read_dir(folder).expect("the sources") {
        let path = entry.expect("an entry").path();
        let name = path.to_string_lossy().into_owned();
        if path.is_dir() {
            words(&path, found);
        } else if !name.contains("tests") {
            let text = fs::read_to_string(&path).expect("a source");
            let code = text
                .lines()
                .map(|line| line.split("//").next().unwrap_or(""));
            let split = |line: &str| {
                let of_word = |c: char| c.is_alphanumeric() || c == '_';
                let parts = line.split(move |c| !of_word(c));
                parts.map(str::to_owned).collect::<Vec<_>>()
            };
            found.push((name, code.flat_map(split).collect()));
        }
    }
}

/// Two places to touch for a new option, of which this library is one: its row. The other is the effect, `SocketOption` in netchan, where there is
/// none of that kind yet.
#[test]
fn an_option_is_named_in_its_row_alone() {
    /// Ancillary data bears names of options, the kernel's socket is asked for what it has, and a reason may say what to take instead.
    const NAMESAKES: [&str; 3] = ["/ancillary.rs", "/sys.rs", "/lacking.rs"];
    let mut files = Vec::new();
    words(
        Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/src")),
        &mut files,
    );
    assert!(files.len() > 50, "{}", files.len());
    let of_table = |file: &str| file.contains("options/rows/");
    let mut elsewhere = Vec::new();
    for (_, row) in rows() {
        let name = name_in_code(row.name);
        let named = files.iter().filter(|(file, words)| {
            let is_other = !NAMESAKES.iter().any(|other| file.ends_with(other));
            !of_table(file) && is_other && words.contains(name)
        });
        elsewhere.extend(named.map(|(file, _)| (name, file)));
    }
    assert!(elsewhere.is_empty(), "{elsewhere:#?}");
    let places = |files: &[(String, BTreeSet<String>)], word: &str| {
        let named = files.iter().filter(|(_, words)| words.contains(word));
        let file = |(file, _): &(String, _)| file.split("/src/").nth(1).map(str::to_owned);
        named.filter_map(file).collect::<Vec<_>>()
    };
    // For example:
    let row = "options/rows/tcp.rs";
    assert_eq!(places(&files, "TCP_KEEPCNT"), [row]);
    assert_eq!(places(&files, "KeepCount"), [row]);
    let mut library = Vec::new();
    let sources = concat!(env!("CARGO_MANIFEST_DIR"), "/../netchan/src");
    words(Path::new(sources), &mut library);
    let effect = places(&library, "KeepCount");
    assert!(!effect.is_empty(), "the effect");
    assert!(
        effect.iter().all(|file| file.starts_with("socket/options")),
        "{effect:?}"
    );
}
