//! Roles, which threads have them, and on which core each stays.

use std::io;

use rustix::thread::{CpuSet, Pid, sched_setaffinity};

use super::{
    job::{Job, Place},
    settings::Protocol,
    usage,
};
use crate::kit::cores;

/// What a thread of a job is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    Generator,
    Link,
    Protocol,
    Application,
    /// What disturbs, and what waits for all others.
    Other,
}

/// Names of the job's own threads begin so.
pub(super) const GENERATOR: &str = "generator";
pub(super) const APPLICATION: &str = "application";
pub(super) const PREEMPTER: &str = "preempter";

impl Role {
    pub const ALL: [Self; 5] = [
        Self::Generator,
        Self::Link,
        Self::Protocol,
        Self::Application,
        Self::Other,
    ];

    /// Those whose work is the receiver's.
    pub const RECEIVING: [Self; 3] = [Self::Link, Self::Protocol, Self::Application];

    /// Its name in rows.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Generator => "generator",
            Self::Link => "link",
            Self::Protocol => "protocol",
            Self::Application => "application",
            Self::Other => "other",
        }
    }

    /// Of a thread with this name.
    pub fn of(thread: &str) -> Self {
        let roles = [
            (GENERATOR, Self::Generator),
            (APPLICATION, Self::Application),
            ("netchan-link", Self::Link),
            ("netchan-core", Self::Protocol),
            ("netchan-proto", Self::Protocol),
            ("netchan-poll", Self::Protocol),
        ];
        let mut found = roles.iter().filter(|(name, _)| thread.starts_with(name));
        found.next().map_or(Self::Other, |(_, role)| *role)
    }
}

/// The core of a role; `None`: any that the process may use.
fn core(job: &Job, role: Role, number: usize) -> Option<usize> {
    let Place::Roles([generator, link, application]) = job.place else {
        return None;
    };
    Some(match role {
        Role::Generator => generator,
        Role::Link => link,
        Role::Application => application,
        Role::Other => return None,
        Role::Protocol => match job.carrier.protocol() {
            // A thread for each core: the first is with the link.
            Protocol::Each if number == 0 => link,
            Protocol::WithLink => link,
            Protocol::Each | Protocol::WithApplication => application,
        },
    })
}

/// Whether the generator has a core that no other role has.
pub(super) fn generator_is_alone(job: &Job) -> bool {
    match job.place {
        Place::Roles([generator, link, application]) => {
            generator != link && generator != application
        }
        Place::Cores(_) => false,
    }
}

/// The core on which protocol work is done: what preempts it goes there.
pub(super) fn protocol_core(job: &Job) -> Option<usize> {
    core(job, Role::Protocol, 0)
}

impl Place {
    /// Each role on its core. The application has the last core, since interrupts and idle work like the first; with two cores, the generator is with the link.
    pub fn of_roles() -> Self {
        let all = cores();
        let [generator, link, application] = match all[..] {
            [.., generator, link, application] => [generator, link, application],
            [link, application] => [link, link, application],
            [only] => [only; 3],
            [] => [0; 3],
        };
        Self::Roles([generator, link, application])
    }

    /// All threads on any of so many cores, the last ones.
    pub fn on(number: usize) -> Self {
        let all = cores();
        Self::Cores(all[all.len() - number.min(all.len())..].to_vec())
    }
}

/// Limits the calling thread, and all that it starts, to the job's cores.
pub(super) fn enter(job: &Job) -> io::Result<()> {
    let cores: &[usize] = match &job.place {
        Place::Cores(cores) => cores,
        Place::Roles(cores) => cores,
    };
    let mut set = CpuSet::new();
    cores.iter().for_each(|&core| set.set(core));
    Ok(sched_setaffinity(None, &set)?)
}

/// Puts each thread of this process that has a role on its core.
///
/// # Errors
/// The system's, but for a thread that has ended.
pub(super) fn pin(job: &Job) -> io::Result<()> {
    for thread in usage::threads()? {
        let number = thread
            .name
            .trim_start_matches(|c: char| !c.is_ascii_digit());
        let role = Role::of(&thread.name);
        let Some(core) = core(job, role, number.parse().unwrap_or(0)) else {
            continue;
        };
        pin_to(Some(thread.id), core)?;
    }
    Ok(())
}

/// Puts a thread, or the calling one, on a core.
pub(super) fn pin_to(thread: Option<Pid>, core: usize) -> io::Result<()> {
    let mut one = CpuSet::new();
    one.set(core);
    match sched_setaffinity(thread, &one) {
        Err(rustix::io::Errno::SRCH) => Ok(()),
        done => Ok(done?),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn role_follows_from_a_threads_name() {
        let names = [
            "generator1",
            "netchan-link0",
            "netchan-core1",
            "application0",
            "netchan-watch",
        ];
        let roles = names.map(Role::of);
        assert_eq!(
            roles,
            [
                Role::Generator,
                Role::Link,
                Role::Protocol,
                Role::Application,
                Role::Other
            ]
        );
    }
}
