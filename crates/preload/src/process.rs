//! Which process this is: the one that has the stack, a child of it, or one without; and what its environment asks for.

use std::{
    cell::Cell,
    ffi::{CStr, CString},
    io, ptr,
    sync::{
        Mutex, MutexGuard, OnceLock,
        atomic::{
            AtomicBool, AtomicPtr, AtomicU8, AtomicU32,
            Ordering::{Acquire, Relaxed, Release},
        },
    },
};

use libc::c_int;
use netchan::{
    Net,
    environment::{self, Door},
};

use crate::{driver, locks::hold, share, sys};

/// What the environment asks for: see [`is_configured`].
static CONFIGURED: AtomicU8 = AtomicU8::new(UNKNOWN);
const UNKNOWN: u8 = 0;
const NO: u8 = 1;
const YES: u8 = 2;

/// [`GENERATION`] in the process whose numbers are tracked, 0 in its forked child: the kernel zeroes the page there (and shares it with a
/// vfork child), so that no handler has to run in between. NULL before the first number.
static ALIVE: AtomicPtr<AtomicU32> = AtomicPtr::new(ptr::null_mut());
/// Counts the processes of this memory, each a child of the one before, that have begun anew ([`begin_anew`]): what one of them made is not the next one's.
static GENERATION: AtomicU32 = AtomicU32::new(1);
/// Which process that is: tells a vfork child, which shares all memory.
static OWNER: AtomicU32 = AtomicU32::new(0);

/// The stack's links are a daemon's.
static LENT: AtomicBool = AtomicBool::new(false);

/// The process whose memory this is, 0 in a forked child that has not been asked: the kernel zeroes the page there. NULL before the program's beginning.
static MEMORY: AtomicPtr<AtomicU32> = AtomicPtr::new(ptr::null_mut());

/// See [`lends`].
static LENDS: OnceLock<Door> = OnceLock::new();

/// The stack's links are that program's, and this process another one.
static IS_BESIDE: AtomicBool = AtomicBool::new(false);

/// The stack: on the heap for good. NULL: there is none.
static NET: AtomicPtr<Net> = AtomicPtr::new(ptr::null_mut());
static STARTING: Mutex<()> = Mutex::new(());

thread_local! {
    /// This thread is starting the stack: the sockets it makes are the kernel's.
    static INSIDE: Cell<bool> = const { Cell::new(false) };
}

/// Whether new sockets of this process may come to netchan.
pub fn is_configured() -> bool {
    let known = match CONFIGURED.load(Relaxed) {
        UNKNOWN => {
            let found = if asks_for_netchan() { YES } else { NO };
            CONFIGURED.store(found, Relaxed); // a thread that comes at the same time finds the same
            found
        }
        known => known,
    };
    (known == YES || driver::driver().is_some()) && !is_forked() && !INSIDE.get() && owns_table()
}

/// Whether the stack is in the process of `netchan run`, which answers this program's calls about streams.
pub fn is_supervised() -> bool {
    static SUPERVISED: OnceLock<bool> = OnceLock::new();
    *SUPERVISED.get_or_init(|| variable(environment::SUPERVISED).is_some())
}

/// Whether a program that this process becomes now would come to netchan. A child of the process that has the stack, vforked or forked, would not.
/// To be asked between vfork and exec: no lock, no memory.
pub fn would_be_served() -> bool {
    let is_asked = CONFIGURED.load(Relaxed) == YES;
    let is_lent = is_lent() || lends().is_some();
    is_asked && (net().is_none() || own_id() == OWNER.load(Relaxed) || is_lent)
}

/// The stack's links are a daemon's: other processes may have stacks beside it, as programs that this one starts learn.
pub fn set_lent() {
    LENT.store(true, Relaxed);
    set_variable(environment::LENT, c"true");
}

/// Whether they are.
pub fn is_lent() -> bool {
    LENT.load(Relaxed)
}

/// The stack of this process lends its links there, as programs that it starts learn.
pub fn set_lends(door: Door) {
    if let Ok(value) = CString::new(door.encode()) {
        set_variable(environment::DOOR, &value);
    }
    let _ = LENDS.set(door); // a process starts one stack, and its children lend nothing
}

/// It does not: programs that it starts look for no door.
pub fn lends_nothing() {
    set_variable(environment::DOOR, c"");
}

/// Where the links are lent of the program that this process is, or is a child of, or was started by.
pub fn lends() -> Option<&'static Door> {
    LENDS.get()
}

/// Where another process may lend its links to this one.
pub fn lends_elsewhere() -> Option<Door> {
    match lends() {
        Some(door) => Some(door.clone()).filter(|_| has_begun_anew()),
        None => Door::decode(&variable(environment::DOOR)?),
    }
}

/// This process has leases of the program's that lends there.
pub fn set_beside(door: Door) {
    let _ = LENDS.set(door); // a child has it from its parent
    IS_BESIDE.store(true, Relaxed);
}

/// Whether it has, or is to have as the child that it is.
pub fn is_beside() -> bool {
    IS_BESIDE.load(Relaxed) || has_begun_anew() && lends().is_some()
}

/// Whether the kernel's stack is there for this process where netchan's cannot be had: it began with another one's, or the links are another process's.
pub fn may_do_without() -> bool {
    has_begun_anew()
        || variable(environment::DOOR).is_some() && stack_elsewhere().is_some() && !is_lent()
}

/// The process that has the stack, where that is another one.
pub fn stack_elsewhere() -> Option<String> {
    variable(environment::OWNER).filter(|owner| owned_elsewhere(Some(owner), sys::pid()))
}

/// Whether a process had a stack from which this one may have sockets: another one, or this one as another program.
pub fn may_inherit() -> bool {
    variable(environment::OWNER).is_some()
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
    let is_set = |name| variable(name).is_some();
    let is_lent = || is_set(environment::LENT) || is_set(environment::DOOR);
    named && (is_lent() || !owned_elsewhere(variable(environment::OWNER).as_deref(), sys::pid()))
}

/// Whether `owner` (a process id as text) names another process that still lives and holds the stack.
fn owned_elsewhere(owner: Option<&str>, own: c_int) -> bool {
    let owner = owner.and_then(|owner| owner.parse::<c_int>().ok());
    let lives = |owner: c_int| {
        sys::process_exists(owner) || u32::try_from(owner).is_ok_and(share::has_keeper)
    };
    owner.is_some_and(|owner| owner > 0 && owner != own && lives(owner))
}

/// What the stack is to be, as the environment said where the first one started.
static ASKED_FOR: OnceLock<Vec<(&'static str, String)>> = OnceLock::new();

/// Before a stack starts: a child that begins anew may have an environment that was emptied (nginx's workers).
pub fn remember() {
    ASKED_FOR.get_or_init(|| {
        let known = environment::OF_A_STACK.into_iter();
        known
            .filter_map(|name| Some((name, variable(name)?)))
            .collect()
    });
}

fn remembered(name: &str) -> Option<String> {
    let asked = ASKED_FOR.get().filter(|_| has_begun_anew())?;
    let asked = asked.iter().find(|(known, _)| *known == name);
    asked.map(|(_, value)| value.clone())
}

/// An environment variable; read without the standard library's lock, which a forked child may find held.
pub fn variable(name: &str) -> Option<String> {
    let said = CString::new(name).ok()?;
    // SAFETY: a C string; the program may change its environment at its own risk, as ever.
    let value = unsafe { libc::getenv(said.as_ptr()) };
    if value.is_null() {
        return remembered(name);
    }
    // SAFETY: getenv returns a C string.
    let value = unsafe { CStr::from_ptr(value) };
    Some(value.to_string_lossy().into_owned()).filter(|value| !value.is_empty())
}

/// Whether this process was forked from the one that runs the stack.
#[inline]
pub fn is_forked() -> bool {
    is_wiped() && net().is_some()
}

/// Whether this process was forked from one that tracked numbers, with or without a stack.
#[inline]
pub fn is_wiped() -> bool {
    let flag = ALIVE.load(Acquire); // pairs with Release in track
    // SAFETY: the page is never unmapped.
    unsafe { flag.as_ref() }.is_some_and(|alive| alive.load(Relaxed) == 0)
}

/// Whether the caller may change the descriptor table: not in a vfork child, whose descriptors are its own but whose memory is its parent's.
pub fn owns_table() -> bool {
    let owner = OWNER.load(Relaxed);
    owner == 0 || own_id() == owner || is_wiped()
}

/// At the program's beginning, when there is no child. Without the page vfork children are not known.
pub fn know_memory() {
    if let Ok(page) = wiped_page() {
        // SAFETY: a fresh, aligned, writable page that stays mapped.
        unsafe { &*page }.store(own_id(), Relaxed);
        MEMORY.store(page, Release); // pairs with Acquire in is_vforked
    }
}

/// Whether this is a vfork child, also of a process that tracks no numbers: what it sets of its own lies in its parent's memory.
pub fn is_vforked() -> bool {
    let page = MEMORY.load(Acquire); // pairs with Release in know_memory
    // SAFETY: the page is never unmapped.
    let Some(owner) = (unsafe { page.as_ref() }) else {
        return false;
    };
    let own = own_id();
    match owner.load(Relaxed) {
        0 => {
            owner.store(own, Relaxed); // forked: the memory is its own
            false
        }
        owner => owner != own,
    }
}

/// This process, by the number that the kernel has for it.
pub fn own_id() -> u32 {
    u32::try_from(sys::pid()).unwrap_or(0)
}

/// Whether numbers are tracked, so that a fork concerns us.
pub fn is_tracking() -> bool {
    !ALIVE.load(Acquire).is_null() // pairs with Release in track
}

/// The running stack, if it runs in this process.
pub fn running() -> Option<&'static Net> {
    net().filter(|_| !is_forked())
}

/// Whether this process has sockets that end with it.
pub fn has_sockets() -> bool {
    // What a driver owns, it ends.
    running().is_some() && owns_table() && driver::driver().is_none()
}

/// Tracks numbers from now on, if that has not begun; in a child without a stack the table becomes its own. True the first time. With STARTING held.
pub fn track() -> io::Result<bool> {
    // SAFETY: never unmapped.
    if let Some(memory) = unsafe { MEMORY.load(Acquire).as_ref() } {
        memory.store(own_id(), Relaxed); // a vfork child may have been the first to ask
    }
    let known = ALIVE.load(Acquire); // pairs with Release below
    // SAFETY: the page is never unmapped.
    if let Some(alive) = unsafe { known.as_ref() } {
        if is_wiped() && !is_forked() {
            OWNER.store(own_id(), Relaxed);
            alive.store(generation(), Relaxed);
        }
        return Ok(false);
    }
    let page = wiped_page()?;
    OWNER.store(own_id(), Relaxed);
    // SAFETY: a fresh, aligned, writable page that stays mapped.
    unsafe { &*page }.store(generation(), Relaxed);
    ALIVE.store(page, Release); // pairs with Acquire in is_wiped
    Ok(true)
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

/// In a child that was forked to go on with the stack in its parent's place: it is this process's from now on.
pub fn take_over() {
    OWNER.store(own_id(), Relaxed);
    set_alive(generation());
}

/// Whether this process, forked from the one that has the stack, may have one of its own: a lease beside its parent's.
pub fn may_begin_anew() -> bool {
    let may_be_lent = is_lent() || lends().is_some();
    is_forked() && may_be_lent && CONFIGURED.load(Relaxed) == YES
}

/// The copy of the parent's stack is left alone for good, and this process has none as yet. With STARTING held.
pub fn begin_anew() {
    NET.store(ptr::null_mut(), Release); // pairs with Acquire in net; no other thread looks
    GENERATION.fetch_add(1, Relaxed);
    take_over();
}

/// Whether this process has begun anew.
pub fn has_begun_anew() -> bool {
    generation() > 1
}

/// Whether there may be sockets here of the process that this one was forked from.
#[inline]
pub fn has_parents_sockets() -> bool {
    has_begun_anew() || is_forked()
}

/// It has no lease: what it makes from now on is the kernel's.
pub fn give_up() {
    CONFIGURED.store(NO, Relaxed); // a thread that sees it late asks once more
}

/// Whether it has given up.
pub fn has_given_up() -> bool {
    CONFIGURED.load(Relaxed) == NO
}

/// What a process notes of what it makes: see [`is_inherited`].
pub fn generation() -> u32 {
    GENERATION.load(Relaxed)
}

/// Whether what was made in that generation is of the process that this one was forked from, which has a stack.
#[inline]
pub fn is_inherited(generation: u32) -> bool {
    let flag = ALIVE.load(Acquire); // pairs with Release in track
    // SAFETY: the page is never unmapped.
    match unsafe { flag.as_ref() }.map_or(generation, |alive| alive.load(Relaxed)) {
        0 => net().is_some() || generation != self::generation(),
        current => current != generation,
    }
}

/// Another process goes on with the stack: to it this one is from now on like a child of its own.
pub fn give_away(to: u32) {
    set_alive(0);
    OWNER.store(to, Relaxed);
}

fn set_alive(alive: u32) {
    let flag = ALIVE.load(Acquire); // pairs with Release in track
    // SAFETY: the page is never unmapped.
    if let Some(flag) = unsafe { flag.as_ref() } {
        flag.store(alive, Relaxed);
    }
}

/// The process that tracked numbers first.
pub fn owner() -> u32 {
    OWNER.load(Relaxed)
}

/// Whether the stack was started by this very process, not by one that it was forked from.
pub fn started() -> bool {
    net().is_some() && own_id() == owner()
}

/// The lock of the thread that starts the stack or tracks the first number.
pub fn starting() -> MutexGuard<'static, ()> {
    hold(&STARTING)
}

/// The stack, which `start` makes if there is none. With STARTING held.
pub fn net_or(start: impl FnOnce() -> Net) -> &'static Net {
    net().unwrap_or_else(|| {
        let net = Box::leak(Box::new(start()));
        NET.store(net, Release); // pairs with Acquire in net
        net
    })
}

/// The stack, also in a child that has it only as a copy.
#[inline]
pub fn net() -> Option<&'static Net> {
    // SAFETY: never freed, and complete when its address was published (Release in net_or).
    unsafe { NET.load(Acquire).as_ref() }
}

/// While `start` runs the sockets that this thread makes are the kernel's.
pub fn inside<T>(start: impl FnOnce() -> T) -> T {
    INSIDE.set(true);
    let result = start();
    INSIDE.set(false);
    result
}

/// Tells the programs that this process becomes or starts, by the variable `name`.
pub fn set_own_id(name: &str) {
    if let Ok(value) = CString::new(sys::pid().to_string()) {
        set_variable(name, &value);
    }
}

fn set_variable(name: &str, value: &CStr) {
    let Ok(name) = CString::new(name) else {
        return;
    };
    // SAFETY: two C strings; setenv takes copies.
    unsafe { libc::setenv(name.as_ptr(), value.as_ptr(), 1) };
}

#[cfg(test)]
#[path = "process_tests.rs"]
mod tests;
