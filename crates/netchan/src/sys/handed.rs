//! Descriptors known by their numbers only, which another program left open for this one: the kernel's calls about them.

use std::{
    io,
    mem::MaybeUninit,
    os::fd::{FromRawFd, OwnedFd, RawFd},
};

use percore::raw;

/// An integer, as a system call takes it.
fn integer(value: libc::c_int) -> usize {
    value.cast_unsigned() as usize
}

/// Device and inode of what is open under `number`. Needs no /proc, which a program in a chroot may not have.
pub fn identity(number: RawFd) -> io::Result<(u64, u64)> {
    let mut found = MaybeUninit::<libc::stat>::uninit();
    let at = found.as_mut_ptr().expose_provenance();
    // SAFETY: fstat writes one `struct stat`, or fails.
    unsafe { raw::call(libc::SYS_fstat, [integer(number), at, 0, 0, 0, 0]) }?;
    // SAFETY: it did not fail.
    let found = unsafe { found.assume_init() };
    Ok((found.st_dev, found.st_ino))
}

/// Reads the file under `number` from byte `at` on, without moving its offset; how many bytes.
pub fn read_at(number: RawFd, buffer: &mut [u8], at: usize) -> io::Result<usize> {
    let to = buffer.as_mut_ptr().expose_provenance();
    let arguments = [integer(number), to, buffer.len(), at, 0, 0];
    // SAFETY: `buffer` is writable for its length.
    unsafe { raw::call(libc::SYS_pread64, arguments) }
}

/// Whether `number` stays open when this process becomes another program.
pub fn set_inherited(number: RawFd, yes: bool) -> io::Result<()> {
    let flags = if yes { 0 } else { libc::FD_CLOEXEC };
    let command = integer(libc::F_SETFD);
    let arguments = [integer(number), command, integer(flags), 0, 0, 0];
    // SAFETY: numbers only.
    unsafe { raw::call(libc::SYS_fcntl, arguments) }.map(|_| ())
}

/// Takes over a descriptor, which its caller alone answers for.
pub fn take_over(number: RawFd) -> OwnedFd {
    // SAFETY: the number came from `netchan run` by name, and what is open there was compared with what it had opened: no other part
    // of this program has it.
    unsafe { OwnedFd::from_raw_fd(number) }
}
