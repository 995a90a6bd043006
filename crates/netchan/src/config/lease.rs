//! `[[lease]]`: which ports below 1024, packets of which IP protocols, and frames of which EtherTypes `netchan daemon` gives to which users beside root.

use std::path::PathBuf;

use serde::Deserialize;
use toml::Spanned;

use super::problem::{Problem, problem};
use crate::{
    channel::PacketProtocol,
    link::lease::{PortRange, Transport},
};

/// Tables that a file may have.
const LEASES_MAX: usize = 256;
/// Entries of `ports`, of `packets`, and of `frames`.
const ENTRIES_MAX: usize = 64;

/// One `[[lease]]`: a process that is all that it names may have these ports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaseConfig {
    /// `user`, by name or number.
    pub user: Option<String>,
    /// `group`, by name or number.
    pub group: Option<String>,
    /// `program`: the file that the process runs, an absolute path.
    pub program: Option<PathBuf>,
    /// `ports`; with `packets` and `frames`, one entry at least.
    pub ports: Vec<PortRange>,
    /// `protocol`; `None`: TCP and UDP.
    pub protocol: Option<Transport>,
    /// `packets`: IP protocol numbers.
    pub packets: Vec<u8>,
    /// `frames`: EtherTypes.
    pub frames: Vec<u16>,
}

/// As it stands in the file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Lease {
    user: Option<Spanned<String>>,
    group: Option<Spanned<String>>,
    program: Option<Spanned<String>>,
    ports: Option<Spanned<Vec<Spanned<String>>>>,
    protocol: Option<Spanned<String>>,
    packets: Option<Spanned<Vec<Spanned<i64>>>>,
    frames: Option<Spanned<Vec<Spanned<i64>>>>,
}

/// Checks one; `before` are those that stand before it.
pub(super) fn read(file: &Lease, before: usize) -> Result<LeaseConfig, Problem> {
    let named = [&file.user, &file.group, &file.program];
    let given = [
        file.ports.as_ref().map(Spanned::span),
        file.packets.as_ref().map(Spanned::span),
        file.frames.as_ref().map(Spanned::span),
    ];
    let spans = named.map(|field| field.as_ref().map(Spanned::span));
    let about = |what: String| Problem {
        span: given.iter().chain(&spans).flatten().next().cloned(),
        what,
    };
    if before >= LEASES_MAX {
        return Err(about(format!("more than {LEASES_MAX} [[lease]] tables")));
    }
    if named.iter().all(|field| field.is_none()) {
        let what =
            "it names no process; write a `user`, a `group`, a `program`, or more than one of them";
        return Err(about(what.into()));
    }
    if given.iter().all(Option::is_none) {
        return Err(about(
            "it gives nothing; write `ports`, `packets` or `frames`".into(),
        ));
    }
    for field in named.into_iter().flatten() {
        if field.get_ref().is_empty() || field.get_ref().contains('\0') {
            return Err(problem(
                field,
                "that is no name; leave the key out, or write one",
            ));
        }
    }
    let program = file.program.as_ref().map(program).transpose()?;
    let protocol = file.protocol.as_ref().map(protocol).transpose()?;
    let text = |of: &Option<Spanned<String>>| of.as_ref().map(|text| text.get_ref().clone());
    Ok(LeaseConfig {
        user: text(&file.user),
        group: text(&file.group),
        program,
        ports: file.ports.as_ref().map_or(Ok(Vec::new()), ports)?,
        protocol,
        packets: file.packets.as_ref().map_or(Ok(Vec::new()), packets)?,
        frames: file.frames.as_ref().map_or(Ok(Vec::new()), frames)?,
    })
}

fn program(file: &Spanned<String>) -> Result<PathBuf, Problem> {
    let path = PathBuf::from(file.get_ref());
    match path.is_absolute() {
        true => Ok(path),
        false => Err(problem(
            file,
            format!("`{}` is no absolute path", file.get_ref()),
        )),
    }
}

fn protocol(file: &Spanned<String>) -> Result<Transport, Problem> {
    match file.get_ref().as_str() {
        "tcp" => Ok(Transport::Tcp),
        "udp" => Ok(Transport::Udp),
        other => Err(problem(
            file,
            format!("unknown protocol `{other}`; it is one of tcp, udp"),
        )),
    }
}

fn ports(file: &Spanned<Vec<Spanned<String>>>) -> Result<Vec<PortRange>, Problem> {
    entries(file)?.iter().map(range).collect()
}

/// Those of a list that has some, and not too many.
fn entries<T>(file: &Spanned<Vec<T>>) -> Result<&[T], Problem> {
    let list = file.get_ref();
    if list.is_empty() || list.len() > ENTRIES_MAX {
        return Err(problem(
            file,
            format!("{} entries; write 1 to {ENTRIES_MAX}", list.len()),
        ));
    }
    Ok(list)
}

/// IP protocol numbers that the stack does not speak.
fn packets(file: &Spanned<Vec<Spanned<i64>>>) -> Result<Vec<u8>, Problem> {
    let number = |entry: &Spanned<i64>| {
        let written = entry.get_ref();
        let number = u8::try_from(*written).map_err(|_| {
            problem(
                entry,
                format!("{written} is no IP protocol number: 0 to 255"),
            )
        })?;
        let checked = PacketProtocol::Ip(number).check();
        checked.map_err(|e| problem(entry, e.to_string()))?;
        Ok(number)
    };
    entries(file)?.iter().map(number).collect()
}

/// EtherTypes that the stack does not speak.
fn frames(file: &Spanned<Vec<Spanned<i64>>>) -> Result<Vec<u16>, Problem> {
    let kind = |entry: &Spanned<i64>| {
        let written = entry.get_ref();
        let kind = u16::try_from(*written).map_err(|_| {
            problem(
                entry,
                format!("{written} is no EtherType: 0x0600 to 0xffff"),
            )
        })?;
        let checked = PacketProtocol::EtherType(kind).check();
        checked.map_err(|e| problem(entry, e.to_string()))?;
        Ok(kind)
    };
    entries(file)?.iter().map(kind).collect()
}

/// `80` or `8000-8999`.
fn range(text: &Spanned<String>) -> Result<PortRange, Problem> {
    let written = text.get_ref();
    // Not `parse` alone, which takes a sign.
    let port = |text: &str| match text.bytes().all(|b| b.is_ascii_digit()) {
        true => text.parse::<u16>().ok().filter(|&port| port > 0),
        false => None,
    };
    let (first, last) = written.split_once('-').unwrap_or((written, written));
    match (port(first), port(last)) {
        (Some(first), Some(last)) if first <= last => Ok(PortRange(first, last)),
        _ => Err(problem(
            text,
            format!("`{written}` is no port; write \"80\", or \"8000-8999\", of 1 to 65535"),
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::{super::Config, *};

    fn leases(body: &str) -> Vec<LeaseConfig> {
        let read = Config::parse(&format!("[[lease]]\n{body}"), "x");
        read.unwrap_or_else(|e| panic!("{body}: {e}")).leases
    }

    #[test]
    fn leases_are_read() {
        let all = leases(
            "user = 'www-data'\nports = ['80', '8000-8999']\nprotocol = 'tcp'\n\
             [[lease]]\ngroup = '53'\nprogram = '/usr/sbin/named'\nports = ['53']\n",
        );
        let first = LeaseConfig {
            user: Some("www-data".into()),
            group: None,
            program: None,
            ports: vec![PortRange(80, 80), PortRange(8000, 8999)],
            protocol: Some(Transport::Tcp),
            packets: Vec::new(),
            frames: Vec::new(),
        };
        let second = LeaseConfig {
            user: None,
            group: Some("53".into()),
            program: Some("/usr/sbin/named".into()),
            ports: vec![PortRange(53, 53)],
            protocol: None,
            packets: Vec::new(),
            frames: Vec::new(),
        };
        assert_eq!(all, [first, second]);
        let edges = leases("user = '0'\nports = ['1', '65535', '1-65535']\nprotocol = 'udp'");
        let ports = [
            PortRange(1, 1),
            PortRange(65_535, 65_535),
            PortRange(1, 65_535),
        ];
        assert_eq!(edges[0].ports, ports);
        assert_eq!(edges[0].protocol, Some(Transport::Udp));
        let packets = leases("user = '0'\npackets = [89, 255]");
        assert!(packets[0].ports.is_empty());
        assert_eq!(packets[0].packets, [89, 255]);
        let frames = leases("user = '0'\nframes = [0x0600, 0x88b5, 65535]");
        assert!(frames[0].ports.is_empty() && frames[0].packets.is_empty());
        assert_eq!(frames[0].frames, [0x0600, 0x88b5, 0xffff]);
        assert!(Config::parse("", "x").unwrap().leases.is_empty());
    }

    /// Each with its line, the key that is named, and what is said.
    const WRONG: [(&str, usize, &str, &str); 31] = [
        ("ports = ['80']", 2, "ports", "names no process"),
        ("user = ''\nports = ['80']", 2, "user", "no name"),
        (
            "group = \"a\\u0000\"\nports = ['80']",
            2,
            "group",
            "no name",
        ),
        ("user = 'a'", 2, "user", "gives nothing"),
        ("packets = [89]", 2, "packets", "names no process"),
        ("user = 'a'\npackets = []", 3, "packets", "1 to 64"),
        ("user = 'a'\npackets = [256]", 3, "packets", "0 to 255"),
        ("user = 'a'\npackets = [-1]", 3, "packets", "0 to 255"),
        ("user = 'a'\npackets = [6]", 3, "packets", "has sockets"),
        ("user = 'a'\npackets = [58]", 3, "packets", "stack's own"),
        ("frames = [0x88b5]", 2, "frames", "names no process"),
        ("user = 'a'\nframes = []", 3, "frames", "1 to 64"),
        (
            "user = 'a'\nframes = [65536]",
            3,
            "frames",
            "0x0600 to 0xffff",
        ),
        ("user = 'a'\nframes = [-1]", 3, "frames", "0x0600 to 0xffff"),
        ("user = 'a'\nframes = [0x05ff]", 3, "frames", "IEEE 802.3"),
        ("user = 'a'\nframes = [46]", 3, "frames", "is a length"),
        ("user = 'a'\nframes = [0x0806]", 3, "frames", "stack's own"),
        ("user = 'a'\nframes = [0x8100]", 3, "frames", "VLAN tag"),
        (
            "user = 'a'\nframes = ['0x88b5']",
            3,
            "frames",
            "expected i64",
        ),
        ("user = 'a'\nports = []", 3, "ports", "1 to 64"),
        ("user = 'a'\nports = ['0']", 3, "ports", "`0` is no port"),
        ("user = 'a'\nports = ['65536']", 3, "ports", "no port"),
        ("user = 'a'\nports = ['+80']", 3, "ports", "no port"),
        ("user = 'a'\nports = ['80-']", 3, "ports", "no port"),
        ("user = 'a'\nports = ['-80']", 3, "ports", "no port"),
        ("user = 'a'\nports = ['90-80']", 3, "ports", "no port"),
        ("user = 'a'\nports = ['http']", 3, "ports", "no port"),
        ("user = 'a'\nports = 80", 3, "ports", "expected a sequence"),
        (
            "program = 'nginx'\nports = ['80']",
            2,
            "program",
            "no absolute path",
        ),
        (
            "user = 'a'\nports = ['80']\nprotocol = 'sctp'",
            4,
            "protocol",
            "tcp, udp",
        ),
        (
            "user = 'a'\nport = ['80']",
            3,
            "port",
            "unknown field `port`",
        ),
    ];

    #[test]
    fn leases_that_cannot_be_meant_are_refused() {
        for (body, line, key, says) in WRONG {
            let text = format!("[[lease]]\n{body}");
            let error = Config::parse(&text, "x").expect_err(body);
            let said = error.to_string();
            assert!(error.what.contains(says), "{body}: {said}");
            assert_eq!(error.line, Some(line), "{body}: {said}");
            let named = error.key.unwrap_or_default();
            assert!(named.ends_with(key), "{body}: {said}");
        }
        let one = "[[lease]]\nuser = 'a'\nports = ['80']\n";
        let most = one.repeat(LEASES_MAX);
        let read = Config::parse(&most, "x").map(|c| c.leases.len());
        assert_eq!(read, Ok(LEASES_MAX));
        let error = Config::parse(&(most + one), "x").expect_err("one too many");
        assert!(error.what.contains("more than 256"), "{error}");
    }
}
