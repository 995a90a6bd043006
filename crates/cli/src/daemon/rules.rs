//! Which user may have which port: as with a kernel, those below 1024 are root's, and `[[lease]]` tables give some of them to others. So it is with packets
//! of IP protocols and frames of EtherTypes.

use std::{
    io,
    path::{Path, PathBuf},
};

use netchan::{
    PacketProtocol,
    config::LeaseConfig,
    link::lease::{Binding, PortRange, Transport},
};

use super::peer::Peer;
use crate::user;

/// The first port for all users.
const FREE_FROM: u16 = 1024;
/// Members of a group that are looked up.
const MEMBERS_MAX: usize = 1024;

/// `[[lease]]` tables, with numbers in place of names. The default is no table.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Rules(Vec<Rule>);

#[derive(Debug, PartialEq, Eq)]
struct Rule {
    user: Option<u32>,
    group: Option<Group>,
    program: Option<PathBuf>,
    ports: Vec<PortRange>,
    protocol: Option<Transport>,
    /// Packets of IP protocols, and frames.
    packets: Vec<PacketProtocol>,
}

#[derive(Debug, PartialEq, Eq)]
struct Group {
    id: u32,
    /// Users whose own group is another.
    members: Vec<u32>,
}

impl Rules {
    /// Looks users and groups up: a later member is one once the rules are read again.
    ///
    /// # Errors
    /// A name that there is not, in a sentence.
    pub fn of(tables: &[LeaseConfig]) -> Result<Self, String> {
        let rules = tables.iter().map(Rule::of);
        rules.collect::<Result<_, _>>().map(Self)
    }

    /// Whether `peer` may have the port. `runs` says whether it runs a program; what cannot be seen is none, and is noted in `blind`.
    pub fn allow(
        &self,
        peer: &Peer,
        binding: &Binding,
        runs: impl Fn(&Path) -> io::Result<bool>,
        blind: &mut Option<String>,
    ) -> bool {
        let port = binding.address.port();
        if port >= FREE_FROM || peer.user == 0 || binding.transport == Transport::Ping {
            return true;
        }
        let gives = |rule: &Rule| {
            let mut ports = rule.ports.iter();
            rule.protocol.is_none_or(|one| one == binding.transport)
                && ports.any(|of| (of.0..=of.1).contains(&port))
        };
        self.give(peer, gives, runs, blind)
    }

    /// The same of the packets of an IP protocol number, or the frames of an EtherType, which are root's.
    pub fn allow_packets(
        &self,
        peer: &Peer,
        protocol: PacketProtocol,
        runs: impl Fn(&Path) -> io::Result<bool>,
        blind: &mut Option<String>,
    ) -> bool {
        let gives = |rule: &Rule| rule.packets.contains(&protocol);
        peer.user == 0 || self.give(peer, gives, runs, blind)
    }

    /// Whether a table that names `peer` gives it something.
    fn give(
        &self,
        peer: &Peer,
        gives: impl Fn(&Rule) -> bool,
        runs: impl Fn(&Path) -> io::Result<bool>,
        blind: &mut Option<String>,
    ) -> bool {
        let names = |rule: &&Rule| {
            let user = rule.user.is_none_or(|user| user == peer.user);
            let group = (rule.group.as_ref()).is_none_or(|group| group.has(peer));
            user && group && gives(rule)
        };
        self.0.iter().filter(names).any(|rule| {
            let Some(program) = &rule.program else {
                return true;
            };
            runs(program).unwrap_or_else(|why| {
                *blind = Some(format!(
                    "whether it runs {} cannot be seen: {why}",
                    program.display()
                ));
                false
            })
        })
    }

    /// How many there are.
    pub const fn len(&self) -> usize {
        self.0.len()
    }
}

impl Rule {
    fn of(table: &LeaseConfig) -> Result<Self, String> {
        let user = |name: &String| {
            let found = user::find(name).map(|user| user.id);
            // A number needs no name.
            found
                .or_else(|| name.parse().ok())
                .ok_or_else(|| format!("lease.user: there is no user {name}"))
        };
        let group = |name: &String| {
            let found = user::group(name).map(|group| Group::of(&group));
            let number = || {
                let id = name.parse().ok()?;
                Some(Group {
                    id,
                    members: Vec::new(),
                })
            };
            found
                .or_else(number)
                .ok_or_else(|| format!("lease.group: there is no group {name}"))
        };
        let packets = table.packets.iter().map(|&of| PacketProtocol::Ip(of));
        let frames = (table.frames.iter()).map(|&of| PacketProtocol::EtherType(of));
        Ok(Self {
            user: table.user.as_ref().map(user).transpose()?,
            group: table.group.as_ref().map(group).transpose()?,
            program: table.program.clone(),
            ports: table.ports.clone(),
            protocol: table.protocol,
            packets: packets.chain(frames).collect(),
        })
    }
}

impl Group {
    fn of(found: &user::Group) -> Self {
        let members = found.members.iter().take(MEMBERS_MAX);
        let numbers = members.filter_map(|name| user::find(name));
        Self {
            id: found.id,
            members: numbers.map(|user| user.id).collect(),
        }
    }

    fn has(&self, peer: &Peer) -> bool {
        self.id == peer.group || self.members.contains(&peer.user)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> LeaseConfig {
        LeaseConfig {
            user: None,
            group: None,
            program: None,
            ports: vec![PortRange(80, 80), PortRange(500, 600)],
            protocol: None,
            packets: vec![89],
            frames: vec![0x88b5],
        }
    }

    fn rules(tables: &[LeaseConfig]) -> Rules {
        Rules::of(tables).unwrap()
    }

    fn allowed(rules: &Rules, user: u32, group: u32, port: u16) -> bool {
        allowed_by(rules, user, group, Transport::Tcp, port)
    }

    fn allowed_by(rules: &Rules, user: u32, group: u32, transport: Transport, port: u16) -> bool {
        let binding = Binding {
            transport,
            address: ([0, 0, 0, 0], port).into(),
        };
        let runs = |program: &Path| match program.to_str() {
            Some("/bin/it") => Ok(true),
            Some("/bin/hidden") => Err(io::ErrorKind::PermissionDenied.into()),
            _ => Ok(false),
        };
        let mut blind = None;
        let is = rules.allow(&Peer::made_up(7, user, group), &binding, runs, &mut blind);
        if let Some(why) = blind {
            assert!(why.contains("/bin/hidden") && !is, "{why}");
        }
        is
    }

    #[test]
    fn without_a_table_it_is_as_with_a_kernel() {
        let none = Rules::default();
        for (user, port, expected) in [
            (0, 1, true),
            (0, 80, true),
            (1000, 1, false),
            (1000, 80, false),
            (1000, 1023, false),
            (1000, 1024, true),
            (1000, 65_535, true),
        ] {
            assert_eq!(allowed(&none, user, 1000, port), expected, "{user} {port}");
        }
    }

    #[test]
    fn a_table_gives_its_ports_to_whom_it_names() {
        let user = rules(&[LeaseConfig {
            user: Some("1000".into()),
            ..table()
        }]);
        for (port, expected) in [
            (79, false),
            (80, true),
            (81, false),
            (500, true),
            (600, true),
            (601, false),
        ] {
            assert_eq!(allowed(&user, 1000, 5, port), expected, "{port}");
            assert!(!allowed(&user, 1001, 5, port), "{port}");
        }
        assert!(allowed(&user, 1001, 5, 8080), "a table takes nothing away");
        let group = rules(&[LeaseConfig {
            group: Some("4000000001".into()),
            ..table()
        }]);
        assert!(allowed(&group, 1000, 4_000_000_001, 80));
        assert!(!allowed(&group, 1000, 5, 80));
        let mut members = group;
        members.0[0].group.as_mut().unwrap().members.push(1000);
        assert!(allowed(&members, 1000, 5, 80) && !allowed(&members, 1001, 5, 80));
        let udp = rules(&[LeaseConfig {
            user: Some("1000".into()),
            protocol: Some(Transport::Udp),
            ..table()
        }]);
        assert!(!allowed(&udp, 1000, 5, 80));
        assert!(allowed_by(&udp, 1000, 5, Transport::Udp, 80));
        assert!(
            allowed_by(&udp, 1000, 5, Transport::Ping, 80),
            "identifiers are for all"
        );
    }

    #[test]
    fn all_that_a_table_names_must_be_so() {
        let program = |path: &str| LeaseConfig {
            program: Some(path.into()),
            ..table()
        };
        assert!(allowed(&rules(&[program("/bin/it")]), 1000, 5, 80));
        assert!(!allowed(&rules(&[program("/bin/other")]), 1000, 5, 80));
        assert!(!allowed(&rules(&[program("/bin/hidden")]), 1000, 5, 80));
        assert!(!allowed(&rules(&[program("/bin/it")]), 1000, 5, 81));
        let both = LeaseConfig {
            user: Some("1001".into()),
            ..program("/bin/it")
        };
        assert!(!allowed(&rules(std::slice::from_ref(&both)), 1000, 5, 80));
        assert!(allowed(&rules(std::slice::from_ref(&both)), 1001, 5, 80));
        let either = rules(&[both, program("/bin/hidden"), program("/bin/it")]);
        assert!(allowed(&either, 1001, 5, 80));
        assert_eq!(either.len(), 3);
    }

    #[test]
    fn packets_are_roots_and_those_of_a_table() {
        let table = rules(&[LeaseConfig {
            user: Some("1000".into()),
            ..table()
        }]);
        let (ip, frames) = (PacketProtocol::Ip, PacketProtocol::EtherType);
        for (user, protocol, expected) in [
            (0, ip(89), true),
            (0, ip(132), true),
            (0, frames(0x88b6), true),
            (1000, ip(89), true),
            (1000, ip(132), false),
            (1000, ip(0xb5), false),
            (1000, frames(0x88b5), true),
            (1000, frames(0x88b6), false),
            (1000, frames(89), false),
            (1001, ip(89), false),
            (1001, frames(0x88b5), false),
        ] {
            let peer = Peer::made_up(7, user, 5);
            let is = table.allow_packets(&peer, protocol, |_| Ok(false), &mut None);
            assert_eq!(is, expected, "{user} {protocol}");
        }
    }

    #[test]
    fn names_are_looked_up() {
        let named = LeaseConfig {
            user: Some("root".into()),
            group: Some("root".into()),
            ..table()
        };
        let found = rules(&[named]);
        assert_eq!(found.0[0].user, Some(0));
        assert_eq!(found.0[0].group.as_ref().map(|group| group.id), Some(0));
        let naming = |user: &str, group: &str| LeaseConfig {
            user: (!user.is_empty()).then(|| user.to_owned()),
            group: (!group.is_empty()).then(|| group.to_owned()),
            ..table()
        };
        for (wrong, says) in [
            (
                naming("no such user", ""),
                "lease.user: there is no user no such user",
            ),
            (
                naming("", "no such group"),
                "lease.group: there is no group",
            ),
            (naming("-1", ""), "there is no user -1"),
        ] {
            let why = Rules::of(&[wrong]).unwrap_err();
            assert!(why.contains(says), "{why}");
        }
    }
}
