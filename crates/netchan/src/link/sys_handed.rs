//! Descriptors known by their numbers only, which another program left open for this one: the kernel's calls about them.

use std::{
    io,
    mem::MaybeUninit,
    os::fd::{FromRawFd, OwnedFd, RawFd},
};

/// Device and inode of what is open under `number`. Needs no /proc, which a program in a chroot may not have.
pub fn identity(number: RawFd) -> io::Result<(u64, u64)> {
    let mut found = MaybeUninit::<libc::stat>::uninit();
    // SAFETY: fstat writes one `struct stat`, or fails.
    if unsafe { libc::fstat(number, found.as_mut_ptr()) } < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: it did not fail.
    let found = unsafe { found.assume_init() };
    Ok((found.st_dev, found.st_ino))
}

/// Reads the file under `number` from byte `at` on, without moving its offset; how many bytes.
pub fn read_at(number: RawFd, buffer: &mut [u8], at: usize) -> io::Result<usize> {
    let at = libc::off_t::try_from(at).map_err(|_| io::ErrorKind::InvalidInput)?;
    // SAFETY: `buffer` is writable for its length.
    let n = unsafe { libc::pread(number, buffer.as_mut_ptr().cast(), buffer.len(), at) };
    usize::try_from(n).map_err(|_| io::Error::last_os_error())
}

/// Whether `number` stays open when this process becomes another program.
pub fn set_inherited(number: RawFd, yes: bool) -> io::Result<()> {
    let flags = if yes { 0 } else { libc::FD_CLOEXEC };
    // SAFETY: numbers only.
    match unsafe { libc::fcntl(number, libc::F_SETFD, flags) } {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

/// Takes over a descriptor, which its caller alone answers for.
pub fn take_over(number: RawFd) -> OwnedFd {
    // SAFETY: the number came from `netchan run` by name, and what is open there was compared with what it had opened: no other part
    // of this program has it.
    unsafe { OwnedFd::from_raw_fd(number) }
}
