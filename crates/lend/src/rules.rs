//! Which user may have which port: as with a kernel, those below 1024 are root's, and others may be given some of them. So it is with packets of IP protocols
//! and frames of EtherTypes.

use std::{
    io,
    path::{Path, PathBuf},
};

use netchan::{
    LeaseSize, PacketProtocol,
    link::lease::{Binding, PortRange, Transport},
};

use super::peer::Peer;

/// The first port for all users.
const FREE_FROM: u16 = 1024;

/// What is given to others than root. The default is nothing.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Rules {
    rules: Vec<Rule>,
    /// All is free to clients that know it, and nothing to others.
    secret: Option<String>,
    /// What the leases of one user other than root may take together, bytes; half of the machine's memory if `None`.
    memory: Option<u64>,
}

/// A lease is given a part of what its user has left: those that come later find some, too.
const MEMORY_SHARE: u64 = 16;

/// Gives ports and packets to all that it names; what is `None` names all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// A user.
    pub user: Option<u32>,
    /// A group.
    pub group: Option<Group>,
    /// The file of a program.
    pub program: Option<PathBuf>,
    /// Ports, of `protocol` or, where that is `None`, of each.
    pub ports: Vec<PortRange>,
    /// See `ports`.
    pub protocol: Option<Transport>,
    /// Packets of IP protocols, and frames.
    pub packets: Vec<PacketProtocol>,
}

/// A group, with users whose own group is another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// Its number.
    pub id: u32,
    /// Users' numbers.
    pub members: Vec<u32>,
}

impl Rules {
    /// Rules of a lender for other programs.
    #[must_use]
    pub const fn of(rules: Vec<Rule>) -> Self {
        Self {
            rules,
            secret: None,
            memory: None,
        }
    }

    /// Clients that know the secret have all that the lender itself may have; others have no lease.
    #[must_use]
    pub const fn free_to(secret: String) -> Self {
        Self {
            rules: Vec::new(),
            secret: Some(secret),
            memory: None,
        }
    }

    /// The same, where the leases of one user other than root take at most so many bytes together; half of the machine's memory if `None`.
    #[must_use]
    pub fn with_memory(self, memory: Option<u64>) -> Self {
        Self { memory, ..self }
    }

    /// How large the next lease of a user is, whose others may take `held` bytes, and whose program asks for at most `asked`.
    pub(crate) fn size(
        &self,
        user: u32,
        held: u64,
        asked: Option<u64>,
    ) -> Result<LeaseSize, String> {
        let least = LeaseSize::LEAST.memory();
        let most = asked.unwrap_or(u64::MAX);
        let too_little = || format!("a lease takes {least} bytes of memory at least, not {most}");
        let asked = LeaseSize::within(most).ok_or_else(too_little)?;
        if user == 0 || self.are_free() {
            return Ok(asked);
        }
        let all = self.memory.unwrap_or_else(half_of_memory);
        let left = all.saturating_sub(held);
        let share = LeaseSize::within(left / MEMORY_SHARE).unwrap_or(LeaseSize::LEAST);
        let size = if share.memory() < asked.memory() {
            share
        } else {
            asked
        };
        match size.memory() <= left {
            true => Ok(size),
            false => Err(format!(
                "the leases of user {user} have {held} bytes of memory, of {all} that they may have (lease_memory_max)"
            )),
        }
    }

    /// Whether all is free, to those that know a secret.
    pub(crate) const fn are_free(&self) -> bool {
        self.secret.is_some()
    }

    /// Whether a client that says this may have a lease. How long it takes does not tell how much of it is right.
    pub(crate) fn admit(&self, said: &str) -> bool {
        let Some(secret) = &self.secret else {
            return true;
        };
        let pairs = secret.bytes().zip(said.bytes());
        let differ = pairs.fold(0, |differ, (a, b)| differ | a ^ b);
        secret.len() == said.len() && differ == 0
    }

    /// Whether `peer` may have the port. `runs` says whether it runs a program; what cannot be seen is none, and is noted in `blind`.
    pub(crate) fn allow(
        &self,
        peer: &Peer,
        binding: &Binding,
        runs: impl Fn(&Path) -> io::Result<bool>,
        blind: &mut Option<String>,
    ) -> bool {
        let port = binding.address.port();
        if self.are_free()
            || port >= FREE_FROM
            || peer.user == 0
            || binding.transport == Transport::Ping
        {
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
    pub(crate) fn allow_packets(
        &self,
        peer: &Peer,
        protocol: PacketProtocol,
        runs: impl Fn(&Path) -> io::Result<bool>,
        blind: &mut Option<String>,
    ) -> bool {
        let gives = |rule: &Rule| rule.packets.contains(&protocol);
        self.are_free() || peer.user == 0 || self.give(peer, gives, runs, blind)
    }

    /// Whether a rule that names `peer` gives it something.
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
        self.rules.iter().filter(names).any(|rule| {
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
    #[must_use]
    pub const fn count(&self) -> usize {
        self.rules.len()
    }
}

fn half_of_memory() -> u64 {
    let found = rustix::system::sysinfo();
    found.totalram.saturating_mul(found.mem_unit.into()) / 2
}

impl Group {
    fn has(&self, peer: &Peer) -> bool {
        self.id == peer.group || self.members.contains(&peer.user)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> Rule {
        Rule {
            user: None,
            group: None,
            program: None,
            ports: vec![PortRange(80, 80), PortRange(500, 600)],
            protocol: None,
            packets: vec![PacketProtocol::Ip(89), PacketProtocol::EtherType(0x88b5)],
        }
    }

    fn rules(rules: impl Into<Vec<Rule>>) -> Rules {
        Rules::of(rules.into())
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
    fn without_a_rule_it_is_as_with_a_kernel() {
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
    fn where_all_is_free_it_is_for_all() {
        let free = Rules::free_to("hidden".into());
        for (said, expected) in [
            ("hidden", true),
            ("hidde", false),
            ("hiddeN", false),
            ("", false),
            ("hidden!", false),
        ] {
            assert_eq!(free.admit(said), expected, "{said}");
        }
        assert!(Rules::default().admit("") && Rules::default().admit("x"));
        assert!(allowed(&free, 1000, 1000, 1) && allowed(&free, 0, 0, 80));
        let peer = Peer::made_up(7, 1000, 5);
        let protocol = PacketProtocol::EtherType(0x88b5);
        assert!(free.allow_packets(&peer, protocol, |_| Ok(false), &mut None));
    }

    #[test]
    fn a_rule_gives_its_ports_to_whom_it_names() {
        let user = rules([Rule {
            user: Some(1000),
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
        assert!(allowed(&user, 1001, 5, 8080), "a rule takes nothing away");
        let group = rules([Rule {
            group: Some(Group {
                id: 4_000_000_001,
                members: Vec::new(),
            }),
            ..table()
        }]);
        assert!(allowed(&group, 1000, 4_000_000_001, 80));
        assert!(!allowed(&group, 1000, 5, 80));
        let mut members = group;
        members.rules[0].group.as_mut().unwrap().members.push(1000);
        assert!(allowed(&members, 1000, 5, 80) && !allowed(&members, 1001, 5, 80));
        let udp = rules([Rule {
            user: Some(1000),
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
    fn all_that_a_rule_names_must_be_so() {
        let program = |path: &str| Rule {
            program: Some(path.into()),
            ..table()
        };
        assert!(allowed(&rules([program("/bin/it")]), 1000, 5, 80));
        assert!(!allowed(&rules([program("/bin/other")]), 1000, 5, 80));
        assert!(!allowed(&rules([program("/bin/hidden")]), 1000, 5, 80));
        assert!(!allowed(&rules([program("/bin/it")]), 1000, 5, 81));
        let both = Rule {
            user: Some(1001),
            ..program("/bin/it")
        };
        assert!(!allowed(&rules([both.clone()]), 1000, 5, 80));
        assert!(allowed(&rules([both.clone()]), 1001, 5, 80));
        let either = rules([both, program("/bin/hidden"), program("/bin/it")]);
        assert!(allowed(&either, 1001, 5, 80));
        assert_eq!(either.count(), 3);
    }

    #[test]
    fn packets_are_roots_and_those_of_a_rule() {
        let table = rules([Rule {
            user: Some(1000),
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
}
