//! System calls without the C library: where a program's calls are served by a library in front of it, ours must not end up there.

use std::io;

/// A C long is a register wide on Linux.
#[inline]
fn in_register(number: libc::c_long) -> isize {
    isize::from_ne_bytes(number.to_ne_bytes())
}

/// The system call `number`: what it returns, or the negative of an errno.
///
/// # Safety
/// As the call itself: pointers among the arguments must be valid for it.
#[cfg(target_arch = "x86_64")]
#[inline]
pub unsafe fn syscall(number: libc::c_long, arguments: [usize; 6]) -> isize {
    let [a, b, c, d, e, f] = arguments;
    let result: isize;
    // SAFETY: the kernel's convention; rcx and r11 are what it overwrites. The caller vouches for the arguments.
    unsafe {
        std::arch::asm!("syscall", inlateout("rax") in_register(number) => result,
            in("rdi") a, in("rsi") b, in("rdx") c, in("r10") d, in("r8") e, in("r9") f,
            lateout("rcx") _, lateout("r11") _, options(nostack));
    }
    result
}

/// The system call `number`: what it returns, or the negative of an errno.
///
/// # Safety
/// As the call itself: pointers among the arguments must be valid for it.
#[cfg(target_arch = "aarch64")]
#[inline]
pub unsafe fn syscall(number: libc::c_long, arguments: [usize; 6]) -> isize {
    let [a, b, c, d, e, f] = arguments;
    let result: isize;
    // SAFETY: the kernel's convention. The caller vouches for the arguments.
    unsafe {
        std::arch::asm!("svc 0", in("x8") in_register(number), inlateout("x0") a => result,
            in("x1") b, in("x2") c, in("x3") d, in("x4") e, in("x5") f, options(nostack));
    }
    result
}

/// [`syscall`] as a result.
///
/// # Errors
/// The system's.
///
/// # Safety
/// As there.
#[inline]
pub unsafe fn call(number: libc::c_long, arguments: [usize; 6]) -> io::Result<usize> {
    // SAFETY: the caller's.
    let result = unsafe { syscall(number, arguments) };
    usize::try_from(result).map_err(|_| {
        let code = i32::try_from(result.saturating_neg()).unwrap_or(libc::EIO);
        io::Error::from_raw_os_error(code)
    })
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_call_answers_as_the_c_librarys() {
        // SAFETY: takes nothing.
        let pid = unsafe { super::call(libc::SYS_getpid, [0; 6]) };
        assert_eq!(pid.ok(), usize::try_from(std::process::id()).ok());
        // SAFETY: closes nothing.
        let refused = unsafe { super::call(libc::SYS_close, [usize::MAX, 0, 0, 0, 0, 0]) };
        assert_eq!(
            refused.err().and_then(|e| e.raw_os_error()),
            Some(libc::EBADF)
        );
    }
}
