//! Users of this machine, by name and number.

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

/// The name of user `id`; its number where it has none.
pub fn name(id: u32) -> String {
    find(&id.to_string()).map_or_else(|| id.to_string(), |user| user.name)
}

/// The user of this name or number. `getent` knows also those of a directory service; /etc/passwd stands in where there is no getent.
pub fn find(wanted: &str) -> Option<User> {
    if wanted.is_empty() || wanted.starts_with('-') {
        return None;
    }
    let asked = Command::new("getent")
        .args(["passwd", wanted])
        .env_remove("LD_PRELOAD")
        .output();
    let text = match asked {
        Ok(done) => String::from_utf8_lossy(&done.stdout).into_owned(),
        Err(_) => std::fs::read_to_string("/etc/passwd").unwrap_or_default(),
    };
    let by_number = wanted.parse::<u32>().ok();
    let mut users = text.lines().filter_map(parse);
    users.find(|user| user.name == wanted || Some(user.id) == by_number)
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
    fn lines_that_are_none_are_passed_over() {
        assert!(parse("a:x:1:2:name:/a:/bin/sh").is_some_and(|user| user.home == "/a"));
        for wrong in ["", "a", "a:x:1", "a:x:b:2::/", "a:x:1:2:name"] {
            assert_eq!(parse(wrong), None, "{wrong}");
        }
    }
}
