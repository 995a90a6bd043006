//! execl(3) and its like, whose arguments are a list of the call's own: Rust has no such functions, so a few instructions lay the list together.
//!
//! What came in registers goes to the stack, in front of what stands there already: so the list is an array, as execv(3) wants it. Nothing is
//! allocated, as in the C library: a child of vfork(2) may call them.

use std::arch::naked_asm;

use libc::{c_char, c_int};

use super::programs::{Strings, execv, execve, execvp};

/// Calls the function with the first argument and the array of all others, and answers what it does: only where it fails.
#[cfg(target_arch = "x86_64")]
macro_rules! with_list {
    ($of:path) => {
        // Five of the list are in registers. The last of them goes to where the address to return to stands, in front of the sixth; that
        // address stands below them meanwhile, which leaves the stack aligned.
        naked_asm!(
            "pop rax",
            "push r9",
            "push r8",
            "push rcx",
            "push rdx",
            "push rsi",
            "mov rsi, rsp",
            "push rax",
            "call {of}",
            "pop rcx",
            "add rsp, 40",
            "push rcx",
            "ret",
            of = sym $of
        )
    };
}

/// The same.
#[cfg(target_arch = "aarch64")]
macro_rules! with_list {
    ($of:path) => {
        // Seven of the list are in registers.
        naked_asm!(
            "sub sp, sp, #80",
            "stp x29, x30, [sp]",
            "str x1, [sp, #24]",
            "stp x2, x3, [sp, #32]",
            "stp x4, x5, [sp, #48]",
            "stp x6, x7, [sp, #64]",
            "mov x29, sp",
            "add x1, sp, #24",
            "bl {of}",
            "ldp x29, x30, [sp]",
            "add sp, sp, #80",
            "ret",
            of = sym $of
        )
    };
}

/// execl(3).
///
/// # Safety
/// As execl(3).
#[unsafe(no_mangle)]
#[unsafe(naked)]
pub unsafe extern "C" fn execl(path: *const c_char, first: *const c_char) -> c_int {
    with_list!(execv)
}

/// execlp(3).
///
/// # Safety
/// As execlp(3).
#[unsafe(no_mangle)]
#[unsafe(naked)]
pub unsafe extern "C" fn execlp(file: *const c_char, first: *const c_char) -> c_int {
    with_list!(execvp)
}

/// execle(3).
///
/// # Safety
/// As execle(3).
#[unsafe(no_mangle)]
#[unsafe(naked)]
pub unsafe extern "C" fn execle(path: *const c_char, first: *const c_char) -> c_int {
    with_list!(with_environment)
}

/// Behind the NULL that ends the list stands the environment.
unsafe extern "C-unwind" fn with_environment(path: *const c_char, list: Strings) -> c_int {
    let mut at = list;
    // SAFETY: the caller's: a NULL ends the list.
    while !unsafe { at.read() }.is_null() {
        at = at.wrapping_add(1);
    }
    // SAFETY: the caller's: one more stands behind it.
    let environment = unsafe { at.wrapping_add(1).read() };
    // SAFETY: the caller's.
    unsafe { execve(path, list, environment.cast()) }
}
