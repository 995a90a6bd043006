//! Links that `netchan run` opens, with the rights it has, and leaves to the program, which may have none when it makes its first socket.
//!
//! Their descriptors are inherited under high numbers, past what programs close and count on, and named in one variable
//! with device and inode, by which a number that has come to mean something else is found out. A claim goes with them, a nameless file: the process
//! that starts a stack locks it (F_SETLK: the lock ends with the process and is not inherited) and writes down its number, so that
//! one program of a run at a time has the links.

use std::{
    collections::VecDeque,
    fmt::Write as _,
    fs::File,
    io::{self, Write as _},
    os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd},
    path::Path,
};

use percore::own::{self, Own};
use rustix::{
    fs::{FlockOperation, MemfdFlags},
    io::FdFlags,
    process::Resource,
};

use crate::{
    Builder,
    sys::handed::{identity, read_at, set_inherited, take_over},
};

/// Below 1,024, for select(2), and under the limit by this much.
const NUMBERS: u64 = 64;

/// Bytes of a configuration file.
const CONFIG_MAX: usize = 1 << 20;

/// What a program was handed.
#[derive(Debug, Default)]
pub(crate) struct Handed {
    /// Locked as long as it is open.
    pub claim: Option<Own>,
    /// The configuration file's text, which this user may not be allowed to read.
    pub config: Option<String>,
    /// Descriptors of each link, in the order in which links are named.
    pub links: VecDeque<Vec<OwnedFd>>,
}

/// Descriptors that a program started now inherits.
#[derive(Debug)]
pub struct HandedOn {
    /// Open until the program runs.
    _kept: Vec<OwnedFd>,
    /// What [`super::DESCRIPTORS`] is to say.
    pub value: String,
}

/// Leaves the links of `builder` to the program that this process becomes, or starts, and the configuration file that they come from.
///
/// # Errors
/// The system's, when there are no numbers left or the file cannot be read.
pub fn hand_on(builder: &Builder, config: Option<&Path>) -> io::Result<HandedOn> {
    let mut kept = Vec::new();
    let claim = rustix::fs::memfd_create("netchan-claim", MemfdFlags::CLOEXEC)?;
    let mut value = inheritable(claim.as_fd(), &mut kept)?;
    if let Some(config) = config {
        let copy = rustix::fs::memfd_create("netchan-config", MemfdFlags::CLOEXEC)?;
        let mut copy = File::from(copy);
        copy.write_all(&std::fs::read(config)?)?;
        value.push('/');
        value.push_str(&inheritable(copy.as_fd(), &mut kept)?);
    }
    for link in builder.links() {
        value.push(';');
        for (number, descriptor) in link.handed_on().into_iter().enumerate() {
            let name = inheritable(descriptor, &mut kept)?;
            let _ = write!(value, "{}{name}", if number == 0 { "" } else { "/" });
        }
    }
    Ok(HandedOn { _kept: kept, value })
}

/// A duplicate under a high number that exec leaves open; its name.
fn inheritable(descriptor: BorrowedFd<'_>, kept: &mut Vec<OwnedFd>) -> io::Result<String> {
    let most = rustix::process::getrlimit(Resource::Nofile).current;
    let base = most.unwrap_or(1024).min(1024).saturating_sub(NUMBERS);
    let base = RawFd::try_from(base).unwrap_or(0);
    let copy = rustix::io::fcntl_dupfd_cloexec(descriptor, base)?;
    rustix::io::fcntl_setfd(&copy, FdFlags::empty())?;
    let found = rustix::fs::fstat(&copy)?;
    let name = format!("{}:{}:{}", copy.as_raw_fd(), found.st_dev, found.st_ino);
    kept.push(copy);
    Ok(name)
}

/// A descriptor by its name, if it is still what it was.
fn find(name: &str) -> Option<RawFd> {
    let mut parts = name.split(':');
    let number: RawFd = parts.next()?.parse().ok().filter(|&n| n > 2)?;
    let (device, inode): (u64, u64) = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
    (identity(number).ok()? == (device, inode)).then_some(number)
}

/// Whether the next program that this process becomes has what `value` names.
pub fn inherit(value: &str, yes: bool) {
    for number in value.split([';', '/']).filter_map(find) {
        let _ = set_inherited(number, yes); // what is no more open needs nothing
    }
}

/// Marks what `value` names as netchan's own: the program is not to close it before its first socket.
pub fn guard(value: &str) {
    for number in value.split([';', '/']).filter_map(find) {
        own::mark(number);
    }
}

/// Whether the program has closed some of what `value` names.
pub fn is_incomplete(value: &str) -> bool {
    let mut names = value.split([';', '/']).filter(|name| !name.is_empty());
    names.any(|name| find(name).is_none())
}

/// Whether no process has started a stack over these links. False, too, when the claim is closed and nothing is known.
pub fn is_unused(value: &str) -> bool {
    let claim = value.split([';', '/']).next().and_then(find);
    claim.is_some_and(|claim| read_at(claim, &mut [0; 1], 0).is_ok_and(|n| n == 0))
}

/// The process that started a stack last over these links; `None` before the first.
fn last_user(value: &str) -> Option<u32> {
    let claim = find(value.split([';', '/']).next()?)?;
    let mut text = [0; 16];
    let n = read_at(claim, &mut text, 0).ok()?;
    std::str::from_utf8(text.get(..n)?)
        .ok()?
        .trim()
        .parse()
        .ok()
}

/// All of a small file.
fn text_of(number: RawFd) -> Option<String> {
    let mut text = Vec::new();
    let mut block = [0; 4096];
    while text.len() < CONFIG_MAX {
        let n = read_at(number, &mut block, text.len()).ok()?;
        if n == 0 {
            break;
        }
        text.extend_from_slice(block.get(..n)?);
    }
    String::from_utf8(text).ok()
}

/// The configuration file that `value` names, which stays where it is.
pub(super) fn config(value: &str) -> Option<String> {
    let mut own = value.split(';').next()?.split('/');
    own.nth(1).and_then(find).and_then(text_of)
}

/// Locks a claim for this process, and says so there. A process that goes on with the stack of another one has the claim from that, but not its lock.
///
/// # Errors
/// Another process has it.
pub(crate) fn lock(claim: &Own) -> io::Result<()> {
    rustix::fs::fcntl_lock(claim, FlockOperation::NonBlockingLockExclusive)?;
    let own = format!("{:<10}\n", std::process::id());
    rustix::io::pwrite(claim, own.as_bytes(), 0)?;
    Ok(())
}

/// Lets go of a claim.
pub(crate) fn unlock(claim: &Own) {
    let _ = rustix::fs::fcntl_lock(claim, FlockOperation::NonBlockingUnlock); // the end of the process does it, too
}

/// Takes over what `value` names. What the program has closed is missing: that link is opened by its name.
///
/// # Errors
/// When another process has the links.
pub(super) fn take(value: &str) -> io::Result<Handed> {
    let mut parts = value.split(';');
    let mut own = parts.next().unwrap_or_default().split('/');
    let claim = own.next().and_then(find);
    let busy = || {
        let user = last_user(value).map_or_else(String::new, |pid| format!(" {pid}"));
        io::Error::new(
            io::ErrorKind::AddrInUse,
            format!(
                "process{user} has the link, and cannot lend it: programs that one `netchan run` starts can have it only one after the other"
            ),
        )
    };
    let mut handed = Handed {
        config: config(value),
        ..Handed::default()
    };
    if let Some(claim) = claim {
        let claim = Own::stay(take_over(claim));
        lock(&claim).map_err(|_| busy())?;
        handed.claim = Some(claim);
    }
    for part in parts {
        let found: Option<Vec<RawFd>> = match part {
            "" => Some(Vec::new()),
            part => part.split('/').map(find).collect(),
        };
        let link = found.unwrap_or_default().into_iter().map(take_over);
        handed.links.push_back(link.collect());
    }
    let claim = handed.claim.as_deref();
    for descriptor in handed.links.iter().flatten().chain(claim) {
        rustix::io::fcntl_setfd(descriptor, FdFlags::CLOEXEC)?;
    }
    Ok(handed)
}
