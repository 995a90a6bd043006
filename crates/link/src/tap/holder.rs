//! Which process holds a TAP, where another one wants it.

use std::{fmt, fs, io, path::Path, thread, time::Duration};

/// A process that has a TAP.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holder {
    /// Its number.
    pub pid: u32,
    /// Its name, as in `/proc/PID/comm`.
    pub name: String,
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "process {} ({})", self.pid, self.name.escape_debug())
    }
}

/// The name of the process that goes on with the connections of a program that has ended.
const KEEPER: &str = "netchan-keeper";

/// How long such a process is waited for: a second more than it takes for its last connections.
const PATIENCE: Duration = Duration::from_secs(6);
const STEP: Duration = Duration::from_millis(20);
/// How often it is tried where no holder is to be seen.
const UNSEEN: u32 = 5;

impl Holder {
    /// The process of this network namespace that has the TAP `interface`; `None`: there is none, or this one may not see it (ptrace(2)).
    pub fn of(interface: &str) -> Option<Self> {
        let wanted = format!("iff:\t{interface}");
        let namespace_of = |process: &Path| fs::read_link(process.join("ns/net")).ok();
        let here = namespace_of(Path::new("/proc/self"));
        let has_it = |process: &Path| {
            let all = fs::read_dir(process.join("fd")).into_iter().flatten();
            let mut tuns = all.flatten().filter(|fd| {
                let opened = fs::read_link(fd.path());
                opened.is_ok_and(|file| file == Path::new("/dev/net/tun"))
            });
            tuns.any(|fd| {
                let facts = fs::read_to_string(process.join("fdinfo").join(fd.file_name()));
                facts.is_ok_and(|facts| facts.lines().any(|line| line == wanted))
            })
        };
        let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
        let mut numbered = processes.filter_map(|process| {
            let pid = process.file_name().to_str()?.parse().ok()?;
            Some((pid, process.path()))
        });
        // Each namespace may have a TAP of the name.
        let (pid, process) =
            numbered.find(|(_, process)| namespace_of(process) == here && has_it(process))?;
        let name = fs::read_to_string(process.join("comm")).unwrap_or_default();
        let name = name.trim_end().to_owned();
        Some(Self { pid, name })
    }
}

/// Runs `attach` until the TAP is not busy any more, as long as it is held by a process that lets go of it as soon as its last connections are closed: by what ran
/// here a moment ago.
///
/// # Errors
/// `attach`'s last.
pub fn after_keeper<T>(
    interface: &str,
    mut attach: impl FnMut() -> io::Result<T>,
) -> io::Result<T> {
    let mut left = PATIENCE;
    loop {
        match attach() {
            Err(error) if error.raw_os_error() == Some(libc::EBUSY) && !left.is_zero() => {
                let of_a_try = match Holder::of(interface) {
                    Some(holder) if holder.name != KEEPER => return Err(error),
                    Some(_) => STEP,
                    None => PATIENCE / UNSEEN, // it has let go since, or is not to be seen
                };
                left = left.saturating_sub(of_a_try);
                thread::sleep(STEP);
            }
            done => return done,
        }
    }
}
