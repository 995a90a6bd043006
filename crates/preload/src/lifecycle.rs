//! When netchan starts in a process, and what becomes of it across fork, exec and exit.

use std::{
    cell::Cell,
    ffi::{CStr, CString},
    io::{self, Write as _},
    net::IpAddr,
    ptr,
    sync::{
        Mutex, MutexGuard, OnceLock,
        atomic::{
            AtomicPtr, AtomicU8, AtomicU32,
            Ordering::{Acquire, Relaxed, Release},
        },
    },
    time::Duration,
};

use libc::c_int;
use netchan::{Net, environment};

use crate::{
    address::{self, Prefix},
    driver, ending,
    epoll::{EPOLLS, Instance},
    errno,
    forked::{self, Answers},
    options, program,
    region::{self, hold},
    state::{self, SOCKETS, SocketState},
    stdio, sys, table,
};

unsafe extern "C" {
    fn at_quick_exit(handler: extern "C" fn()) -> c_int;
}

static NET: OnceLock<Net> = OnceLock::new();
static STARTING: Mutex<()> = Mutex::new(());
static PREFIXES: OnceLock<Vec<Prefix>> = OnceLock::new();

/// What the environment asks for: see [`is_configured`].
static CONFIGURED: AtomicU8 = AtomicU8::new(UNKNOWN);
const UNKNOWN: u8 = 0;
const NO: u8 = 1;
const YES: u8 = 2;

/// 1 in the process whose numbers are tracked, 0 in its forked child: the kernel zeroes the page there (and shares it with a
/// vfork child), so that no handler has to run in between. NULL before the first number.
static ALIVE: AtomicPtr<AtomicU32> = AtomicPtr::new(ptr::null_mut());
/// Which process that is: tells a vfork child, which shares all memory.
static OWNER: AtomicU32 = AtomicU32::new(0);
/// The process that was told that it uses sockets of another one.
static TOLD: AtomicU32 = AtomicU32::new(0);

thread_local! {
    /// This thread is starting the stack: the sockets it makes are the kernel's.
    static INSIDE: Cell<bool> = const { Cell::new(false) };
}

/// How long a program that ends waits for what it has sent to be acknowledged.
pub const DRAIN: Duration = Duration::from_secs(5);

/// Whether new sockets of this process may come to netchan.
pub fn is_configured() -> bool {
    let known = match CONFIGURED.load(Relaxed) {
        UNKNOWN => {
            let found = if asks_for_netchan() { YES } else { NO };
            CONFIGURED.store(found, Relaxed); // whoever comes at the same time finds the same
            found
        }
        known => known,
    };
    (known == YES || driver::driver().is_some()) && !is_forked() && !INSIDE.get() && owns_table()
}

/// Whether a program that this process becomes now would come to netchan. A child of the process that has the stack, vforked or forked, would not.
/// To be asked between vfork and exec: no lock, no memory.
pub fn would_be_served() -> bool {
    let is_asked = CONFIGURED.load(Relaxed) == YES;
    is_asked && (NET.get().is_none() || own_id() == OWNER.load(Relaxed))
}

/// The process that has the stack, where that is another one.
pub fn stack_elsewhere() -> Option<String> {
    variable(environment::OWNER).filter(|owner| owned_elsewhere(Some(owner), sys::pid()))
}

/// Whether this process had a stack as another program.
pub fn has_started_before() -> bool {
    static BEFORE: OnceLock<bool> = OnceLock::new();
    *BEFORE.get_or_init(|| names_this(environment::OWNER))
}

/// Whether it served others then.
pub fn has_served_before() -> bool {
    names_this(environment::SERVED)
}

fn names_this(name: &str) -> bool {
    variable(name) == Some(sys::pid().to_string())
}

fn asks_for_netchan() -> bool {
    let named = [
        environment::LINK,
        environment::CONFIG,
        environment::LOOPBACK,
    ]
    .into_iter()
    .any(|name| variable(name).is_some());
    named && !owned_elsewhere(variable(environment::OWNER).as_deref(), sys::pid())
}

/// Whether `owner` (a process id as text) names another process that still lives and holds the stack.
fn owned_elsewhere(owner: Option<&str>, own: c_int) -> bool {
    let owner = owner.and_then(|owner| owner.parse::<c_int>().ok());
    owner.is_some_and(|owner| owner > 0 && owner != own && sys::process_exists(owner))
}

/// An environment variable; read without the standard library's lock, which a forked child may find held.
pub fn variable(name: &str) -> Option<String> {
    let name = CString::new(name).ok()?;
    // SAFETY: a C string; the program may change its environment at its own risk, as ever.
    let value = unsafe { libc::getenv(name.as_ptr()) };
    if value.is_null() {
        return None;
    }
    // SAFETY: getenv returns a C string.
    let value = unsafe { CStr::from_ptr(value) };
    Some(value.to_string_lossy().into_owned()).filter(|value| !value.is_empty())
}

/// Whether this process was forked from the one that runs the stack.
#[inline]
pub fn is_forked() -> bool {
    is_wiped() && NET.get().is_some()
}

/// Whether this process was forked from one that tracked numbers, with or without a stack.
#[inline]
fn is_wiped() -> bool {
    let flag = ALIVE.load(Acquire); // pairs with Release in claim
    // SAFETY: the page is never unmapped.
    unsafe { flag.as_ref() }.is_some_and(|alive| alive.load(Relaxed) == 0)
}

/// Whether the caller may change the descriptor table: not in a vfork child, whose descriptors are its own but whose memory is its parent's.
pub fn owns_table() -> bool {
    let owner = OWNER.load(Relaxed);
    owner == 0 || own_id() == owner || is_wiped()
}

fn own_id() -> u32 {
    u32::try_from(sys::pid()).unwrap_or(0)
}

/// Before the first number is tracked, and after a fork without a stack: the table is this process's.
pub fn claim() -> io::Result<()> {
    if !ALIVE.load(Acquire).is_null() && !is_wiped() {
        return Ok(());
    }
    let _starting = hold(&STARTING);
    claim_held()
}

/// The same, with STARTING held.
fn claim_held() -> io::Result<()> {
    let known = ALIVE.load(Acquire); // pairs with Release below
    // SAFETY: the page is never unmapped.
    if let Some(alive) = unsafe { known.as_ref() } {
        if is_wiped() && !is_forked() {
            OWNER.store(own_id(), Relaxed);
            alive.store(1, Relaxed);
        }
        return Ok(());
    }
    let page = wiped_page()?;
    OWNER.store(own_id(), Relaxed);
    // SAFETY: a fresh, aligned, writable page that stays mapped.
    unsafe { &*page }.store(1, Relaxed);
    ALIVE.store(page, Release); // pairs with Acquire in is_wiped
    // SAFETY: three functions of ours, which live as long as the process.
    unsafe { libc::pthread_atfork(Some(before_fork), Some(after_fork), Some(in_child)) };
    Ok(())
}

/// What no other thread may hold at the moment of a fork, because the child needs it. It takes no memory: _Fork(3) may be called in a
/// handler that has interrupted malloc(3).
pub struct ForFork {
    _starting: Guard<()>,
    _threads: region::ForFork,
    _streams: stdio::ForFork,
    _sockets: table::ForFork<SocketState>,
    _instances: table::ForFork<Instance>,
    _numbers: Guard<()>,
}

type Guard<T> = MutexGuard<'static, T>;

thread_local! {
    static HELD: Cell<Option<ForFork>> = const { Cell::new(None) };
}

extern "C" fn before_fork() {
    let all = before();
    let _ = HELD.try_with(|held| held.set(Some(all)));
}

/// Before a fork: what the child needs is held by this thread.
pub fn before() -> ForFork {
    if has_children_to_hear() {
        forked::before();
    }
    ForFork {
        _starting: hold(&STARTING),
        _threads: region::held_for_fork(),
        _streams: stdio::held_for_fork(),
        _sockets: SOCKETS.held_for_fork(),
        _instances: EPOLLS.held_for_fork(),
        _numbers: netchan::own::held_for_fork(),
    }
}

/// After it, in the parent.
pub fn goes_on(held: ForFork) {
    drop(held);
}

/// After it, in the child.
pub fn begins(held: ForFork) {
    drop(held);
    become_child();
}

/// Whether numbers are tracked, so that a fork concerns us.
pub fn is_claimed() -> bool {
    !ALIVE.load(Acquire).is_null() // pairs with Release in claim
}

/// A fork that runs no handler of pthread_atfork(3): ours run around it.
pub fn forks(fork: impl FnOnce() -> c_int) -> c_int {
    if !is_claimed() {
        return fork();
    }
    let held = before();
    match fork() {
        0 => begins(held),
        child => {
            let code = errno::get();
            goes_on(held);
            errno::set(code);
            return child;
        }
    }
    0
}

/// Whether the stack is this process's, and its sockets a program's.
fn has_children_to_hear() -> bool {
    running().is_some() && owns_table() && driver::driver().is_none()
}

fn let_go() {
    let _ = HELD.try_with(Cell::take);
}

extern "C" fn after_fork() {
    let_go();
}

/// The child has no stack: what the parent's has open is closed, so that a link ends with the parent.
extern "C" fn in_child() {
    let_go();
    become_child();
}

fn become_child() {
    if is_forked() {
        netchan::own::abandon(&[forked::childs_end(), sys::complaints()]);
    } else {
        let _ = claim();
    }
}

/// A forked child used a socket of its parent, or an epoll instance with such: says so, once. The error that its calls answer.
#[cold]
pub fn orphan(fd: c_int) -> io::Error {
    say_orphan(fd);
    state::with_answers(fd, Answers::hold_back);
    errno::error(libc::EBADF)
}

/// The same, for poll: whether it reports `fd`.
#[cold]
pub fn is_reported(fd: c_int) -> bool {
    say_orphan(fd);
    state::with_answers(fd, Answers::is_reported).unwrap_or(true)
}

fn say_orphan(fd: c_int) {
    state::tell_parent(fd);
    let own = own_id();
    if TOLD.swap(own, Relaxed) != own {
        let owner = OWNER.load(Relaxed);
        sys::complain(&format!(
            "netchan: sockets made before fork() stay with process {owner}; process {own} cannot use them, and their clients are refused\n"
        ));
    }
}

/// The running stack, if it runs in this process.
pub fn running() -> Option<&'static Net> {
    NET.get().filter(|_| !is_forked())
}

/// The address ranges that stay with the kernel, beside loopback.
fn kernel_prefixes() -> &'static [Prefix] {
    PREFIXES.get_or_init(|| {
        let text = variable(environment::KERNEL).unwrap_or_default();
        let parts = text
            .split(',')
            .map(str::trim)
            .filter(|part| !part.is_empty());
        parts
            .map(|part| match Prefix::parse(part) {
                Some(prefix) => prefix,
                None => give_up(&format!(
                    "{}: '{part}' is not an address prefix such as 10.0.0.0/8",
                    environment::KERNEL
                )),
            })
            .collect()
    })
}

/// Whether loopback addresses stay with the kernel, too. A driver's stack has none.
fn leaves_loopback() -> bool {
    static LEAVES: OnceLock<bool> = OnceLock::new();
    *LEAVES.get_or_init(|| {
        let ours = driver::driver().is_none() && {
            let asked = environment::has_loopback(&variable);
            asked.unwrap_or_else(|error| give_up(&error.to_string()))
        };
        !ours
    })
}

/// Whether `ip` is the kernel's.
pub fn is_kernels(ip: IpAddr) -> bool {
    address::is_kernels(ip, kernel_prefixes(), leaves_loopback)
}

/// The stack, started on the first call. A start that fails ends the process with status 1: `netchan run` promises
/// that no program falls back to the kernel's stack unnoticed.
pub fn net() -> &'static Net {
    if let Some(net) = NET.get() {
        return net;
    }
    let _starting = hold(&STARTING);
    let net = NET.get_or_init(|| {
        INSIDE.set(true);
        let complete = program::is_complete();
        let started = start();
        INSIDE.set(false);
        started.unwrap_or_else(|error| give_up(&program::why(&error, complete)))
    });
    if driver::driver().is_none() {
        ending::begin();
    }
    net
}

/// The stack of a process that had one as another program. Where it cannot be had, the first socket says why.
pub fn start_again() {
    let _starting = hold(&STARTING);
    INSIDE.set(true);
    if let Ok(net) = start() {
        let _ = NET.set(net);
        ending::begin();
    }
    INSIDE.set(false);
}

fn start() -> io::Result<Net> {
    program::tell_events()?;
    let net = match driver::driver() {
        Some(driver) => (driver.start)()?,
        None => environment::builder(&variable)?.start()?,
    };
    claim_held()?;
    mark_owner();
    if driver::driver().is_none() {
        sys::keep_complaints();
        let _ = forked::begin(); // without descriptors to spare children are not heard
    }
    // SAFETY: at_exit lives as long as the process.
    unsafe { libc::atexit(at_exit) };
    // SAFETY: as above.
    unsafe { at_quick_exit(at_exit) };
    options::limits::busy_poll(); // read now: no later call opens a file for it
    program::announce();
    Ok(net)
}

/// A page that is all zeroes in a forked child.
fn wiped_page() -> io::Result<*mut AtomicU32> {
    const SIZE: usize = 4096;
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    // SAFETY: a new anonymous mapping disturbs nothing.
    let page = unsafe { libc::mmap(ptr::null_mut(), SIZE, protection, flags, -1, 0) };
    if page == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the page just mapped.
    if unsafe { libc::madvise(page, SIZE, libc::MADV_WIPEONFORK) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(page.cast())
}

/// Tells the programs that this process starts that the links are taken.
fn mark_owner() {
    set_own_id(environment::OWNER);
}

fn set_own_id(name: &str) {
    let Ok(name) = CString::new(name) else {
        return;
    };
    let Ok(value) = CString::new(sys::pid().to_string()) else {
        return;
    };
    // SAFETY: two C strings; setenv takes copies.
    unsafe { libc::setenv(name.as_ptr(), value.as_ptr(), 1) };
}

/// Links left open for the program that this process becomes, until it is known that it did not.
#[derive(Debug)]
pub struct Kept(Option<String>);

/// Leaves the links of this process's stack to the program that it is about to become. A child of it, which comes here before its own
/// exec, has nothing to leave.
pub fn keep_links() -> Kept {
    if NET.get().is_none() || own_id() != OWNER.load(Relaxed) {
        return Kept(None);
    }
    let handed = variable(environment::DESCRIPTORS);
    if let Some(handed) = &handed {
        environment::inherit(handed, true);
    }
    if forked::has_served() {
        set_own_id(environment::SERVED);
    }
    Kept(handed)
}

impl Kept {
    /// The exec failed. errno stays as it is.
    pub fn take_back(self) {
        let Some(handed) = self.0 else { return };
        let code = io::Error::last_os_error().raw_os_error();
        environment::inherit(&handed, false);
        crate::errno::set(code.unwrap_or(0));
    }
}

/// One line on stderr, then status 1.
fn give_up(reason: &str) -> ! {
    let _ = writeln!(io::stderr(), "netchan: cannot start: {reason}");
    // SAFETY: ends the process; handlers of a program that must not go on are not run.
    unsafe { libc::_exit(1) }
}

/// Whether this process has sockets that end with it.
pub fn has_sockets() -> bool {
    // What a driver owns, it ends.
    running().is_some() && owns_table() && driver::driver().is_none()
}

extern "C" fn at_exit() {
    if has_sockets() {
        end();
        ending::done();
    }
}

/// Children that were forked while something was served go on without it: says so.
fn say_what_ends() {
    if forked::has_children() {
        let own = own_id();
        sys::complain(&format!(
            "netchan: process {own} ends, and with it the sockets that it made before fork(): its children go on without them: a server has to stay in the foreground\n"
        ));
    }
}

/// The program ends: closes its sockets and lets the peers have what was sent.
pub fn end() {
    errno::unit(|| {
        say_what_ends();
        for fd in SOCKETS.occupied(0, c_int::MAX) {
            crate::descriptor::close_at_exit(fd);
        }
        if let Some(net) = NET.get() {
            net.drain(DRAIN); // what a peer does not take within that time it would not have taken
        }
        Ok(())
    });
}

#[cfg(test)]
#[path = "lifecycle_tests.rs"]
mod tests;
