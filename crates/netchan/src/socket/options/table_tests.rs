//! The table of options: the page that is made from it, what the library does with each row, and Linux's headers.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
};

use libc::c_int;

use super::{
    super::row::{Get, Row, Set},
    LEVELS, Setting, UNSUPPORTED, parse,
};

/// All rows, each with its level's number.
fn rows() -> impl Iterator<Item = (c_int, &'static Row)> {
    let of = |level: &'static super::Level| level.rows.iter().map(|row| (level.number, row));
    LEVELS.iter().flat_map(of)
}

/// Levels, numbers and names of what there is not, with what it is told.
fn lacking() -> impl Iterator<Item = (c_int, c_int, &'static str, c_int)> {
    UNSUPPORTED.iter().flat_map(|lacking| {
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
    for lacking in UNSUPPORTED {
        let level = LEVELS.iter().find(|level| level.number == lacking.level);
        let level = level.map_or("", |level| level.name);
        for (number, name) in lacking.options {
            let why = lacking.why;
            table += &format!("| {level} | `{name}` | {number} | {why} |\n");
        }
    }
    table
}

/// `NETCHAN_RECORD=1 cargo test -p netchan --lib options` writes the tables of the page anew.
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
    let set = |level, number| {
        parse(level, number, &[0; 512]).map_err(|e| e.raw_os_error().expect("an errno"))
    };
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
            crate::skips::skipped_here(&format!("no {path}"));
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

/// This library's and the preload library's.
fn both_libraries() -> Vec<(String, BTreeSet<String>)> {
    let mut files = Vec::new();
    for sources in ["/src", "/../preload/src"] {
        let path = format!("{}{sources}", env!("CARGO_MANIFEST_DIR"));
        words(Path::new(&path), &mut files);
    }
    assert!(files.len() > 200, "{}", files.len());
    files
}

/// The files that name it.
fn places(files: &[(String, BTreeSet<String>)], word: &str) -> Vec<String> {
    let named = files.iter().filter(|(_, words)| words.contains(word));
    let file = |(file, _): &(String, _)| file.split("/src/").nth(1).map(str::to_owned);
    named.filter_map(file).collect()
}

/// One place to touch for an option whose effect there is: its row, by which both libraries and the page go.
#[test]
fn an_option_is_named_in_its_row_alone() {
    /// Ancillary data bears names of options, the kernel's socket is asked for what it has, a reason may say what to take instead, and a
    /// configuration key which option it goes by.
    const NAMESAKES: [&str; 4] = [
        "config/keys/lists.rs",
        "ancillary.rs",
        "sys.rs",
        "socket/options/table/unsupported.rs",
    ];
    let files = both_libraries();
    let mut elsewhere = Vec::new();
    for (level, row) in rows() {
        let file = match level {
            libc::SOL_SOCKET => "socket",
            libc::IPPROTO_TCP => "tcp",
            libc::IPPROTO_IP => "ip",
            libc::IPPROTO_IPV6 => "ipv6",
            _ => "udp",
        };
        let place = format!("socket/options/table/{file}.rs");
        let mut named = places(&files, row.name);
        assert!(named.contains(&place), "{} in {place}", row.name);
        named.extend(places(&files, name_in_code(row.name)));
        named.retain(|file| {
            // Groups of RFC 3678 bear the same names at two levels.
            !NAMESAKES.contains(&file.as_str()) && !file.starts_with("socket/options/table/")
        });
        elsewhere.extend(named.into_iter().map(|file| (row.name, file)));
    }
    assert!(elsewhere.is_empty(), "{elsewhere:#?}");
}

/// Two places for one with a new effect: the other is that. `docs/testing.md` shows them by the lines of an option that there is.
#[test]
fn a_new_option_takes_its_row_and_its_effect() {
    let row = "socket/options/table/tcp.rs";
    let (effect, connection) = ("socket/options/effects.rs", "shard/defaults.rs");
    let files = both_libraries();
    assert_eq!(places(&files, "TCP_SYNCNT"), [row]);
    let sorted = |word| {
        let mut files = places(&files, word);
        files.sort();
        files
    };
    assert_eq!(sorted("SynCount"), [effect, row]);
    assert_eq!(sorted("syn_count"), [connection, effect]);
    let read = |path: &str| {
        let path = format!("{}/{path}", env!("CARGO_MANIFEST_DIR"));
        fs::read_to_string(&path).expect(&path)
    };
    let page = read("../../docs/testing.md");
    let section = page.split("## A new socket option\n").nth(1);
    let section = section.and_then(|rest| rest.split("\n## ").next());
    let mut blocks = section
        .expect("the section")
        .split("```\n")
        .skip(1)
        .step_by(2);
    for file in [row, effect] {
        let source = read(&format!("src/{file}"));
        let block = blocks.next().expect("an example");
        assert!(source.contains(block), "{file} has not\n{block}");
    }
}
