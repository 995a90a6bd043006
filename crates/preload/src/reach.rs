//! Whether a program that is about to be exec'd is one that this library reaches, and what is said where it is not.
//!
//! Between vfork and exec nothing may be locked and no memory taken: all of this lies on the stack.

use std::{
    ffi::CStr,
    io::{self, Write as _},
    os::fd::AsRawFd,
};

use libc::{c_char, c_int};

use crate::{buffers, process, sys};

/// Interpreters named by `#!` are followed this far (linux/fs/exec.c allows five).
const DEPTH_MAX: usize = 5;
/// Program headers looked at; a real program has about a dozen.
const HEADERS_MAX: u16 = 256;
/// Where execvp(3) looks without `PATH`.
const DEFAULT_PATH: &CStr = c"/bin:/usr/bin";

/// A path with room for its end.
type Path = [u8; libc::PATH_MAX as usize];

/// Says so if the file at `path` will go past this library. It leaves errno alone.
///
/// # Safety
/// `path` must be a C string or NULL.
pub unsafe fn judge(path: *const c_char) {
    if process::would_be_served() && !buffers::is_bad(path) {
        // SAFETY: the caller's.
        let path = unsafe { CStr::from_ptr(path) };
        judge_file(path, path, 0);
    }
}

/// The same for what execvp(3) finds under this name.
///
/// # Safety
/// As [`judge`].
pub unsafe fn judge_named(file: *const c_char) {
    if !process::would_be_served() || buffers::is_bad(file) {
        return;
    }
    // SAFETY: the caller's.
    let file = unsafe { CStr::from_ptr(file) };
    let mut found: Path = [0; _];
    if file.to_bytes().contains(&b'/') {
        judge_file(file, file, 0);
    } else if let Some(path) = search(file, &mut found) {
        judge_file(path, path, 0);
    }
}

/// The same for an open file.
pub fn judge_open(fd: c_int) {
    let mut path = [0; 32];
    if process::would_be_served()
        && write!(&mut path[..], "/proc/self/fd/{fd}").is_ok()
        && let Ok(path) = CStr::from_bytes_until_nul(&path)
    {
        judge_file(path, path, 0);
    }
}

/// The same for what execveat(2) finds.
///
/// # Safety
/// As [`judge`].
pub unsafe fn judge_at(directory: c_int, path: *const c_char, flags: c_int) {
    if !process::would_be_served() || buffers::is_bad(path) {
        return;
    }
    // SAFETY: the caller's.
    let path = unsafe { CStr::from_ptr(path) };
    let bytes = path.to_bytes();
    if directory == libc::AT_FDCWD || bytes.starts_with(b"/") {
        return judge_file(path, path, 0);
    }
    if bytes.is_empty() {
        if flags & libc::AT_EMPTY_PATH != 0 {
            judge_open(directory);
        }
        return;
    }
    let mut whole: Path = [0; _];
    let mut rest = &mut whole[..];
    if write!(rest, "/proc/self/fd/{directory}/").is_ok()
        && rest.write_all(path.to_bytes_with_nul()).is_ok()
        && let Ok(whole) = CStr::from_bytes_until_nul(&whole)
    {
        judge_file(path, whole, 0);
    }
}

/// As execvp(3) looks for a name without a slash.
fn search<'a>(file: &CStr, found: &'a mut Path) -> Option<&'a CStr> {
    // SAFETY: a C string; nothing changes the environment meanwhile, as for execvp.
    let path = unsafe { libc::getenv(c"PATH".as_ptr()) };
    let path = if path.is_null() {
        DEFAULT_PATH
    } else {
        // SAFETY: getenv returns a C string.
        unsafe { CStr::from_ptr(path) }
    };
    for directory in path.to_bytes().split(|&b| b == b':') {
        let mut rest = &mut found[..];
        // An empty part is the working directory.
        let slash: &[u8] = if directory.is_empty() { b"" } else { b"/" };
        let parts = [directory, slash, file.to_bytes_with_nul()];
        if parts.into_iter().all(|part| rest.write_all(part).is_ok())
            && let Ok(path) = CStr::from_bytes_until_nul(found)
            && sys::may_execute(path)
            && sys::facts_of(path).is_some_and(|f| f.st_mode & libc::S_IFMT == libc::S_IFREG)
        {
            let len = path.to_bytes_with_nul().len();
            return CStr::from_bytes_with_nul(found.get(..len)?).ok();
        }
    }
    None
}

/// Looks at `path`, which the program `shown` leads to.
fn judge_file(shown: &CStr, path: &CStr, depth: usize) {
    let mut start = [0; 256];
    let file = sys::open_to_read(path);
    // One that may be executed but not read is judged by its rights alone.
    let fd = file.as_ref().map_or(-1, AsRawFd::as_raw_fd);
    let n = sys::pread(fd, &mut start, 0).unwrap_or(0);
    if let Some(line) = start.strip_prefix(b"#!") {
        let mut words = line
            .split(|b| b" \t\n\0".contains(b))
            .filter(|word| !word.is_empty());
        let mut name = [0; 256];
        if let Some(word) = words.next().filter(|_| depth < DEPTH_MAX)
            && let Some(room) = name.get_mut(..word.len())
        {
            room.copy_from_slice(word);
            if let Ok(interpreter) = CStr::from_bytes_until_nul(&name) {
                judge_file(shown, interpreter, depth + 1);
            }
        }
    } else if changes_rights(path) {
        tell(shown, "is set-user-ID or set-group-ID");
    } else if has_capabilities(path) {
        tell(shown, "has file capabilities");
    } else if n >= 64 && is_static(fd, &start) && !is_loader(path) {
        tell(shown, "is statically linked");
    }
}

/// Whether an ELF64 file has no `PT_INTERP`: it meets no loader. (ELF specification, "Program Header".)
fn is_static(fd: c_int, start: &[u8; 256]) -> bool {
    const INTERPRETER: u32 = 3;
    if !start.starts_with(b"\x7fELF\x02") {
        return false; // of another word size the loader itself says that the library does not fit
    }
    let two = |at: usize| u16::from_ne_bytes([start[at], start[at + 1]]);
    let mut offset = [0; 8];
    offset.copy_from_slice(&start[32..40]);
    let (offset, size, count) = (i64::from_ne_bytes(offset), two(54), two(56));
    (0..count.min(HEADERS_MAX)).all(|i| {
        let mut kind = [0; 4];
        let at = offset.saturating_add(i64::from(i) * i64::from(size));
        let read = sys::pread(fd, &mut kind, at);
        read.is_ok_and(|n| n == 4) && u32::from_ne_bytes(kind) != INTERPRETER
    })
}

/// Whether it is the loader itself, which may be given a program to load.
fn is_loader(path: &CStr) -> bool {
    let name = path.to_bytes().rsplit(|&b| b == b'/').next();
    name.is_some_and(|name| name.starts_with(b"ld-") || name.starts_with(b"ld."))
}

/// Whether this process said that it wants no more rights (PR_SET_NO_NEW_PRIVS).
fn is_content() -> bool {
    // SAFETY: numbers only.
    unsafe { libc::prctl(libc::PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == 1 }
}

/// The same for file capabilities: to root they give nothing new, and one that is effective at once counts even where it is refused
/// (linux/security/commoncap.c).
fn has_capabilities(path: &CStr) -> bool {
    const EFFECTIVE: u8 = 1;
    // SAFETY: takes nothing.
    let is_root = unsafe { libc::getuid() } == 0;
    !is_root
        && sys::capabilities_of(path).is_some_and(|data| {
            // Little-endian words: revision and flag, then two times permitted and inheritable.
            let permits = data[4..8]
                .iter()
                .chain(&data[12..16])
                .any(|&byte| byte != 0);
            data[0] & EFFECTIVE != 0 || permits && !is_content()
        })
}

/// Whether the program gets rights that this process has not: the loader leaves out the libraries that a user names (ld.so(8), secure-execution mode).
fn changes_rights(path: &CStr) -> bool {
    let refused = is_content();
    // SAFETY: takes nothing.
    let user = unsafe { libc::getuid() };
    // SAFETY: as above.
    let group = unsafe { libc::getgid() };
    let group_bits = libc::S_ISGID | libc::S_IXGRP;
    !refused
        && sys::facts_of(path).is_some_and(|facts| {
            facts.st_mode & libc::S_ISUID != 0 && facts.st_uid != user
                || facts.st_mode & group_bits == group_bits && facts.st_gid != group
        })
}

/// One line, in one write.
fn tell(shown: &CStr, what: &str) {
    let mut line = [0; 512];
    let room = line.len();
    let mut rest = &mut line[..];
    // As much of a long path as fits.
    let path = shown.to_bytes();
    let path = path.get(..room / 2).unwrap_or(path);
    let end = b": it runs on the kernel's stack, not on netchan's\n";
    let parts: [&[u8]; 5] = [b"netchan: ", path, b" ", what.as_bytes(), end];
    let written: io::Result<()> = parts.into_iter().try_for_each(|part| rest.write_all(part));
    let left = rest.len();
    if written.is_ok()
        && let Ok(line) = std::str::from_utf8(line.get(..room - left).unwrap_or_default())
    {
        sys::complain(line);
    }
}
