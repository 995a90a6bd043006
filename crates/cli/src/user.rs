//! Users and groups of this machine, by name and number.

use std::process::Command;

use rustix::{
    process::{Gid, Uid},
    thread::{set_no_new_privs, set_thread_groups, set_thread_res_gid, set_thread_res_uid},
};

/// One line of passwd(5).
#[derive(Debug, PartialEq, Eq)]
pub struct User {
    pub name: String,
    pub id: u32,
    pub group: u32,
    pub home: String,
}

/// One line of group(5).
#[derive(Debug, PartialEq, Eq)]
pub struct Group {
    pub name: String,
    pub id: u32,
    /// By name, those apart whose own group it is.
    pub members: Vec<String>,
}

/// The name of user `id`; its number where it has none.
pub fn name(id: u32) -> String {
    find(&id.to_string()).map_or_else(|| id.to_string(), |user| user.name)
}

/// The user of this name or number. `getent` knows also those of a directory service; /etc/passwd stands in where there is no getent.
pub fn find(wanted: &str) -> Option<User> {
    let text = entry("passwd", wanted)?;
    let by_number = wanted.parse::<u32>().ok();
    let mut users = text.lines().filter_map(parse);
    users.find(|user| user.name == wanted || Some(user.id) == by_number)
}

/// The group of this name or number.
pub fn group(wanted: &str) -> Option<Group> {
    let text = entry("group", wanted)?;
    let by_number = wanted.parse::<u32>().ok();
    let mut groups = text.lines().filter_map(parse_group);
    groups.find(|group| group.name == wanted || Some(group.id) == by_number)
}

/// What there is of `wanted` in a database, `passwd` or `group`; where there is no getent, all of the file.
fn entry(database: &str, wanted: &str) -> Option<String> {
    if wanted.is_empty() || wanted.starts_with('-') {
        return None;
    }
    let asked = Command::new("getent")
        .args([database, wanted])
        .env_remove("LD_PRELOAD")
        .output();
    Some(match asked {
        Ok(done) => String::from_utf8_lossy(&done.stdout).into_owned(),
        Err(_) => std::fs::read_to_string(format!("/etc/{database}")).unwrap_or_default(),
    })
}

impl User {
    /// Its groups beside its own.
    fn groups(&self) -> Vec<Gid> {
        let asked = Command::new("getent")
            .args(["initgroups", &self.name])
            .env_remove("LD_PRELOAD")
            .output();
        let number = |text: &str| text.parse().ok().map(Gid::from_raw);
        match asked {
            // The name, then numbers.
            Ok(done) if done.status.success() => String::from_utf8_lossy(&done.stdout)
                .split_whitespace()
                .skip(1)
                .filter_map(number)
                .collect(),
            _ => Vec::new(),
        }
    }

    /// Makes this process, which has one thread, the user's for good: none of the programs it becomes gets rights back, not by set-user-ID either.
    pub fn become_it(&self) -> Result<(), String> {
        let as_root = rustix::process::geteuid().is_root();
        if !as_root && rustix::process::geteuid().as_raw() != self.id {
            return Err("only root may become another user".to_owned());
        }
        let (user, group) = (Uid::from_raw(self.id), Gid::from_raw(self.group));
        let change = || {
            if as_root {
                let mut groups = self.groups();
                groups.insert(0, group);
                set_thread_groups(&groups)?;
                set_thread_res_gid(group, group, group)?;
                set_thread_res_uid(user, user, user)?;
            }
            set_no_new_privs(true)
        };
        change().map_err(|e| e.to_string())
    }
}

fn parse(line: &str) -> Option<User> {
    let mut fields = line.split(':');
    let name = fields.next()?.to_owned();
    let (id, group) = (fields.nth(1)?.parse().ok()?, fields.next()?.parse().ok()?);
    let home = fields.nth(1)?.to_owned();
    Some(User {
        name,
        id,
        group,
        home,
    })
}

fn parse_group(line: &str) -> Option<Group> {
    let mut fields = line.split(':');
    let name = fields.next()?.to_owned();
    let id = fields.nth(1)?.parse().ok()?;
    let members = fields.next()?.split(',');
    let members = members.filter(|member| !member.is_empty());
    Some(Group {
        name,
        id,
        members: members.map(str::to_owned).collect(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn root_is_found_by_name_and_number() {
        let root = find("root").unwrap();
        assert_eq!((root.id, root.group), (0, 0));
        assert_eq!(find("0"), Some(root));
        assert_eq!(name(0), "root");
        assert_eq!(name(4_000_000_001), "4000000001");
        for wrong in ["", "-h", "no such user", "root:x"] {
            assert_eq!(find(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn groups_are_found_by_name_and_number() {
        let root = group("root").unwrap();
        assert_eq!((root.name.as_str(), root.id), ("root", 0));
        assert_eq!(group("0"), Some(root));
        for wrong in ["", "-h", "no such group"] {
            assert_eq!(group(wrong), None, "{wrong}");
        }
        let line = parse_group("www:x:33:ann,bob").unwrap();
        assert_eq!(
            (line.id, line.members),
            (33, vec!["ann".into(), "bob".into()])
        );
        let empty = parse_group("www:x:33:").unwrap();
        assert!(empty.members.is_empty());
        for wrong in ["", "a", "a:x:1", "a:x:b:c"] {
            assert_eq!(parse_group(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn lines_that_are_none_are_passed_over() {
        assert!(parse("a:x:1:2:name:/a:/bin/sh").is_some_and(|user| user.home == "/a"));
        for wrong in ["", "a", "a:x:1", "a:x:b:2::/", "a:x:1:2:name"] {
            assert_eq!(parse(wrong), None, "{wrong}");
        }
    }
}
