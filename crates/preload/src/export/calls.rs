//! syscall(2) for what concerns us, io_uring, and the calls that make descriptors: a number that the kernel gives out anew means nothing old.

use libc::{c_char, c_int, c_long, c_uint, c_void, mode_t};
use netchan::several;

use super::{descriptors, endpoints, processes, programs, transfers, waiting};
use crate::{ending, errno, fork, numbers, process, real, region, sys};

/// What a call that makes two descriptors returned: what the tables knew of the numbers is past.
///
/// # Safety
/// `pair` must be readable for two numbers if `result` is 0.
unsafe fn fresh_pair(result: c_int, pair: *const c_int) -> c_int {
    if result == 0 && !pair.is_null() {
        // SAFETY: the call has written them.
        let [one, other] = unsafe { pair.cast::<[c_int; 2]>().read_unaligned() };
        numbers::fresh(one);
        numbers::fresh(other);
    }
    result
}

/// open(2). Variadic in C: on the architectures served, the mode comes where a third argument would.
///
/// # Safety
/// As open(2).
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn open(path: *const c_char, flags: c_int, mode: mode_t) -> c_int {
    // SAFETY: the caller's.
    numbers::fresh(unsafe { (real::OPEN.get())(path, flags, mode) })
}

/// open(2) as programs with 64-bit file offsets call it.
///
/// # Safety
/// As open(2).
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn open64(path: *const c_char, flags: c_int, mode: mode_t) -> c_int {
    // SAFETY: the caller's.
    numbers::fresh(unsafe { (real::OPEN64.get())(path, flags, mode) })
}

/// openat(2).
///
/// # Safety
/// As openat(2).
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn openat(
    folder: c_int,
    path: *const c_char,
    flags: c_int,
    mode: mode_t,
) -> c_int {
    // SAFETY: the caller's.
    numbers::fresh(unsafe { (real::OPENAT.get())(folder, path, flags, mode) })
}

/// openat(2) as programs with 64-bit file offsets call it.
///
/// # Safety
/// As openat(2).
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn openat64(
    folder: c_int,
    path: *const c_char,
    flags: c_int,
    mode: mode_t,
) -> c_int {
    // SAFETY: the caller's.
    numbers::fresh(unsafe { (real::OPENAT64.get())(folder, path, flags, mode) })
}

/// pipe(2).
///
/// # Safety
/// As pipe(2).
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn pipe(pair: *mut c_int) -> c_int {
    // SAFETY: the caller's.
    let result = unsafe { (real::PIPE2.get())(pair, 0) };
    // SAFETY: the caller's.
    unsafe { fresh_pair(result, pair) }
}

/// pipe2(2).
///
/// # Safety
/// As pipe2(2).
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn pipe2(pair: *mut c_int, flags: c_int) -> c_int {
    // SAFETY: the caller's.
    let result = unsafe { (real::PIPE2.get())(pair, flags) };
    // SAFETY: the caller's.
    unsafe { fresh_pair(result, pair) }
}

/// socketpair(2).
///
/// # Safety
/// As socketpair(2).
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn socketpair(
    domain: c_int,
    kind: c_int,
    protocol: c_int,
    pair: *mut c_int,
) -> c_int {
    // SAFETY: the caller's.
    let result = unsafe { (real::SOCKETPAIR.get())(domain, kind, protocol, pair) };
    // SAFETY: the caller's.
    unsafe { fresh_pair(result, pair) }
}

/// eventfd(2).
///
/// # Safety
/// Numbers only.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn eventfd(start: c_uint, flags: c_int) -> c_int {
    // SAFETY: numbers only.
    numbers::fresh(unsafe { (real::EVENTFD.get())(start, flags) })
}

/// timerfd_create(2).
///
/// # Safety
/// Numbers only.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn timerfd_create(clock: c_int, flags: c_int) -> c_int {
    // SAFETY: numbers only.
    numbers::fresh(unsafe { (real::TIMERFD_CREATE.get())(clock, flags) })
}

/// A C int, as it comes in a register: the upper half is anything.
fn int(value: usize) -> c_int {
    let [a, b, c, d, ..] = value.to_le_bytes();
    c_int::from_le_bytes([a, b, c, d])
}

/// A pointer, as it comes in a register.
fn at<T>(value: usize) -> *const T {
    std::ptr::with_exposed_provenance(value)
}

/// syscall(2): what concerns netchan goes where its function in the C library would go, all else to the kernel.
///
/// # Safety
/// As the system call.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn syscall(
    number: c_long,
    a: usize,
    b: usize,
    c: usize,
    d: usize,
    e: usize,
    f: usize,
) -> c_long {
    let served = match number {
        libc::SYS_futex | libc::SYS_gettid | libc::SYS_getrandom => None,
        libc::SYS_seccomp => {
            several::forbid();
            None
        }
        libc::SYS_prctl => {
            processes::note_prctl(int(a));
            None
        }
        libc::SYS_io_uring_setup if process::is_configured() => {
            errno::set(libc::ENOSYS);
            return -1;
        }
        libc::SYS_exit_group => {
            ending::finish();
            None
        }
        // Not as the others below: a call that does not come back leaves nothing to a parent whose memory it shares.
        libc::SYS_execve => {
            let [path, words, variables] = [a, b, c];
            // SAFETY: the caller's.
            let failed = unsafe { programs::execve(at(path), at(words), at(variables)) };
            return failed.into();
        }
        libc::SYS_execveat => {
            let [path, words, variables] = [b, c, d];
            // SAFETY: the caller's.
            let failed =
                unsafe { programs::execveat(int(a), at(path), at(words), at(variables), int(e)) };
            return failed.into();
        }
        // SAFETY: the caller's.
        _ if unsafe { processes::is_fork(number, a, b) } => {
            // SAFETY: the caller's.
            let fork = || unsafe { sys::as_c(number, [a, b, c, d, e, f]) };
            return fork::forks(|| int(fork().cast_unsigned())).into();
        }
        _ if concerns_us(number, a, b) => about_numbers(number),
        _ => making_numbers(number),
    };
    let result = match served {
        Some(Function::Int(function)) => {
            // SAFETY: the caller's: the function takes the system call's arguments.
            let result = unsafe { call(function, [a, b, c, d, e, f]) };
            int(result.cast_unsigned()) as isize
        }
        // SAFETY: as above.
        Some(Function::Long(function)) => unsafe { call(function, [a, b, c, d, e, f]) },
        // SAFETY: as above.
        None => unsafe { sys::as_c(number, [a, b, c, d, e, f]) },
    };
    result as c_long
}

/// A function of this library with the arguments of its system call, in the same registers, and what it returns.
enum Function {
    Int(*const c_void),
    Long(*const c_void),
}

/// # Safety
/// The arguments must be the function's.
unsafe fn call(function: *const c_void, [a, b, c, d, e, f]: [usize; 6]) -> isize {
    // SAFETY: one of the functions below: at most six arguments, each in a register.
    let function = unsafe { std::mem::transmute::<*const c_void, real::Raw>(function) };
    // syscall(2) is no cancellation point, whatever it calls.
    // SAFETY: the caller's.
    region::uncancelled(|| unsafe { function(a, b, c, d, e, f) })
}

/// Whether a call about a descriptor is about one of netchan's; ranges are looked at closer.
fn concerns_us(number: c_long, a: usize, b: usize) -> bool {
    let tracked = |fd: usize| numbers::is_tracked(int(fd)) || netchan::own::is_own(int(fd));
    let second = match number {
        #[cfg(target_arch = "x86_64")]
        libc::SYS_dup2 => true,
        libc::SYS_close_range => return true,
        libc::SYS_dup3 | libc::SYS_sendfile => true,
        _ => false,
    };
    tracked(a) || (second && tracked(b))
}

/// The function for a call about descriptors.
fn about_numbers(number: c_long) -> Option<Function> {
    use Function::{Int, Long};
    Some(match number {
        libc::SYS_close => Int(descriptors::close as *const c_void),
        libc::SYS_close_range => Int(descriptors::close_range as *const c_void),
        libc::SYS_dup => Int(descriptors::dup as *const c_void),
        #[cfg(target_arch = "x86_64")]
        libc::SYS_dup2 => Int(descriptors::dup2 as *const c_void),
        libc::SYS_dup3 => Int(descriptors::dup3 as *const c_void),
        libc::SYS_fcntl => Int(descriptors::fcntl as *const c_void),
        libc::SYS_ioctl => Int(descriptors::ioctl as *const c_void),
        libc::SYS_read => Long(transfers::read as *const c_void),
        libc::SYS_write => Long(transfers::write as *const c_void),
        libc::SYS_readv => Long(transfers::readv as *const c_void),
        libc::SYS_writev => Long(transfers::writev as *const c_void),
        libc::SYS_recvfrom => Long(transfers::recvfrom as *const c_void),
        libc::SYS_sendto => Long(transfers::sendto as *const c_void),
        libc::SYS_recvmsg => Long(transfers::recvmsg as *const c_void),
        libc::SYS_sendmsg => Long(transfers::sendmsg as *const c_void),
        libc::SYS_recvmmsg => Int(transfers::recvmmsg as *const c_void),
        libc::SYS_sendmmsg => Int(transfers::sendmmsg as *const c_void),
        libc::SYS_sendfile => Long(transfers::sendfile as *const c_void),
        libc::SYS_bind => Int(endpoints::bind as *const c_void),
        libc::SYS_listen => Int(endpoints::listen as *const c_void),
        libc::SYS_connect => Int(endpoints::connect as *const c_void),
        libc::SYS_accept => Int(endpoints::accept as *const c_void),
        libc::SYS_accept4 => Int(endpoints::accept4 as *const c_void),
        libc::SYS_shutdown => Int(endpoints::shutdown as *const c_void),
        libc::SYS_getsockname => Int(endpoints::getsockname as *const c_void),
        libc::SYS_getpeername => Int(endpoints::getpeername as *const c_void),
        libc::SYS_getsockopt => Int(endpoints::getsockopt as *const c_void),
        libc::SYS_setsockopt => Int(endpoints::setsockopt as *const c_void),
        libc::SYS_epoll_ctl => Int(waiting::epoll_ctl as *const c_void),
        #[cfg(target_arch = "x86_64")]
        libc::SYS_epoll_wait => Int(waiting::epoll_wait as *const c_void),
        libc::SYS_epoll_pwait => Int(waiting::epoll_pwait as *const c_void),
        libc::SYS_epoll_pwait2 => Int(waiting::epoll_pwait2 as *const c_void),
        _ => return making_numbers(number),
    })
}

/// The function for a call that makes descriptors, or waits for many.
fn making_numbers(number: c_long) -> Option<Function> {
    use Function::Int;
    Some(match number {
        libc::SYS_socket => Int(endpoints::socket as *const c_void),
        libc::SYS_socketpair => Int(socketpair as *const c_void),
        libc::SYS_epoll_create1 => Int(waiting::epoll_create1 as *const c_void),
        libc::SYS_ppoll => Int(waiting::ppoll as *const c_void),
        libc::SYS_pselect6 => Int(waiting::pselect_call as *const c_void),
        libc::SYS_openat => Int(openat as *const c_void),
        libc::SYS_pipe2 => Int(pipe2 as *const c_void),
        libc::SYS_eventfd2 => Int(eventfd as *const c_void),
        libc::SYS_timerfd_create => Int(timerfd_create as *const c_void),
        #[cfg(target_arch = "x86_64")]
        libc::SYS_poll => Int(waiting::poll as *const c_void),
        #[cfg(target_arch = "x86_64")]
        libc::SYS_select => Int(waiting::select_call as *const c_void),
        #[cfg(target_arch = "x86_64")]
        libc::SYS_open => Int(open as *const c_void),
        #[cfg(target_arch = "x86_64")]
        libc::SYS_pipe => Int(pipe as *const c_void),
        #[cfg(target_arch = "x86_64")]
        libc::SYS_epoll_create => Int(waiting::epoll_create as *const c_void),
        _ => return None,
    })
}

/// io_uring_setup(2), as liburing has it: the negative of an errno.
///
/// # Safety
/// As io_uring_setup(2).
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn io_uring_setup(entries: c_uint, parameters: usize) -> c_int {
    if process::is_configured() {
        return -libc::ENOSYS;
    }
    let arguments = [entries as usize, parameters, 0, 0, 0, 0];
    // SAFETY: the caller's.
    let result = unsafe { netchan::raw::syscall(libc::SYS_io_uring_setup, arguments) };
    c_int::try_from(result).unwrap_or(-libc::EIO)
}
