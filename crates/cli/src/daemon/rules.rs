//! What a configuration lends to others than root, by its `[[lease]]` tables with numbers in place of names, and of how much memory.

use netchan::{
    PacketProtocol,
    config::{Config, LeaseConfig},
};
use netchan_lend::{Group, Rule, Rules};

use crate::user;

/// Members of a group that are looked up.
const MEMBERS_MAX: usize = 1024;

/// Looks users and groups up: a later member is one once the rules are read again.
///
/// # Errors
/// A name that there is not, in a sentence.
pub fn of(config: &Config) -> Result<Rules, String> {
    let rules = config.leases.iter().map(rule);
    let memory = config.lease_memory_max.map(|bytes| bytes as u64); // widening: usize to u64
    Ok(Rules::of(rules.collect::<Result<_, _>>()?).with_memory(memory))
}

fn rule(table: &LeaseConfig) -> Result<Rule, String> {
    let user = |name: &String| {
        let found = user::find(name).map(|user| user.id);
        // A number needs no name.
        found
            .or_else(|| name.parse().ok())
            .ok_or_else(|| format!("lease.user: there is no user {name}"))
    };
    let group = |name: &String| {
        let found = user::group(name).map(|group| members(&group));
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
    Ok(Rule {
        user: table.user.as_ref().map(user).transpose()?,
        group: table.group.as_ref().map(group).transpose()?,
        program: table.program.clone(),
        ports: table.ports.clone(),
        protocol: table.protocol,
        packets: packets.chain(frames).collect(),
    })
}

fn members(found: &user::Group) -> Group {
    let members = found.members.iter().take(MEMBERS_MAX);
    let numbers = members.filter_map(|name| user::find(name));
    Group {
        id: found.id,
        members: numbers.map(|user| user.id).collect(),
    }
}

#[cfg(test)]
mod tests {
    use netchan::link::lease::PortRange;

    use super::*;

    fn table() -> LeaseConfig {
        LeaseConfig {
            user: None,
            group: None,
            program: None,
            ports: vec![PortRange(80, 80)],
            protocol: None,
            packets: vec![89],
            frames: vec![0x88b5],
        }
    }

    #[test]
    fn names_are_looked_up() {
        let named = LeaseConfig {
            user: Some("root".into()),
            group: Some("root".into()),
            ..table()
        };
        let found = rule(&named).unwrap();
        assert_eq!(found.user, Some(0));
        assert_eq!(found.group.as_ref().map(|group| group.id), Some(0));
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
            let config = Config {
                leases: vec![wrong],
                ..Config::default()
            };
            let why = of(&config).unwrap_err();
            assert!(why.contains(says), "{why}");
        }
    }
}
