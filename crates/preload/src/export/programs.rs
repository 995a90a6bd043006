//! exec: a program that becomes another one leaves it the links, as `netchan run` left them to it. What goes past this library is named first.
//!
//! A child that it starts has nothing to do with them, and does not inherit them. execl and its like are in `lists`.

use libc::{c_char, c_int, c_void, pid_t};

use crate::{reach, real, start};

/// An array of C strings, a NULL behind them.
pub type Strings = *const *const c_char;

/// execve(2).
///
/// # Safety
/// As execve(2).
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn execve(
    path: *const c_char,
    arguments: Strings,
    environment: Strings,
) -> c_int {
    // SAFETY: the caller's.
    unsafe { reach::judge(path) };
    let left = start::leave_to_next();
    // SAFETY: the caller's.
    let result = unsafe { (real::EXECVE.get())(path, arguments, environment) };
    left.take_back();
    result
}

/// execveat(2).
///
/// # Safety
/// As execveat(2).
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn execveat(
    directory: c_int,
    path: *const c_char,
    arguments: Strings,
    environment: Strings,
    flags: c_int,
) -> c_int {
    // SAFETY: the caller's.
    unsafe { reach::judge_at(directory, path, flags) };
    let left = start::leave_to_next();
    let real = real::EXECVEAT.get();
    // SAFETY: the caller's.
    let result = unsafe { real(directory, path, arguments, environment, flags) };
    left.take_back();
    result
}

/// execv(3).
///
/// # Safety
/// As execv(3).
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn execv(path: *const c_char, arguments: Strings) -> c_int {
    // SAFETY: the caller's.
    unsafe { reach::judge(path) };
    let left = start::leave_to_next();
    // SAFETY: the caller's.
    let result = unsafe { (real::EXECV.get())(path, arguments) };
    left.take_back();
    result
}

/// execvp(3).
///
/// # Safety
/// As execvp(3).
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn execvp(file: *const c_char, arguments: Strings) -> c_int {
    // SAFETY: the caller's.
    unsafe { reach::judge_named(file) };
    let left = start::leave_to_next();
    // SAFETY: the caller's.
    let result = unsafe { (real::EXECVP.get())(file, arguments) };
    left.take_back();
    result
}

/// execvpe(3).
///
/// # Safety
/// As execvpe(3).
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn execvpe(
    file: *const c_char,
    arguments: Strings,
    environment: Strings,
) -> c_int {
    // SAFETY: the caller's.
    unsafe { reach::judge_named(file) };
    let left = start::leave_to_next();
    // SAFETY: the caller's.
    let result = unsafe { (real::EXECVPE.get())(file, arguments, environment) };
    left.take_back();
    result
}

/// fexecve(3).
///
/// # Safety
/// As fexecve(3).
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn fexecve(
    fd: c_int,
    arguments: Strings,
    environment: Strings,
) -> c_int {
    reach::judge_open(fd);
    let left = start::leave_to_next();
    // SAFETY: the caller's.
    let result = unsafe { (real::FEXECVE.get())(fd, arguments, environment) };
    left.take_back();
    result
}

/// posix_spawn(3).
///
/// # Safety
/// As posix_spawn(3).
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn posix_spawn(
    child: *mut pid_t,
    path: *const c_char,
    actions: *const c_void,
    attributes: *const c_void,
    arguments: Strings,
    environment: Strings,
) -> c_int {
    // SAFETY: the caller's.
    unsafe { reach::judge(path) };
    let real = real::POSIX_SPAWN.get();
    // SAFETY: the caller's.
    unsafe { real(child, path, actions, attributes, arguments, environment) }
}

/// posix_spawnp(3).
///
/// # Safety
/// As posix_spawnp(3).
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn posix_spawnp(
    child: *mut pid_t,
    file: *const c_char,
    actions: *const c_void,
    attributes: *const c_void,
    arguments: Strings,
    environment: Strings,
) -> c_int {
    // SAFETY: the caller's.
    unsafe { reach::judge_named(file) };
    let real = real::POSIX_SPAWNP.get();
    // SAFETY: the caller's.
    unsafe { real(child, file, actions, attributes, arguments, environment) }
}
