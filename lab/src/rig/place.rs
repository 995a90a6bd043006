//! On which core each role's threads stay.

use std::io;

use rustix::thread::{CpuSet, Pid, sched_setaffinity};

use super::{
    job::{Job, Place},
    role::Role,
    settings::Protocol,
    usage,
};
use crate::kit::cores;

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
