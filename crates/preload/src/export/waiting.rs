//! poll, select, epoll and their variants.

use std::{slice, time::Duration};

use libc::{c_int, c_long, epoll_event, fd_set, nfds_t, pollfd, sigset_t, timespec, timeval};

use crate::{
    anew, buffers, edge,
    epoll::{self, Wait},
    errno, instances,
    instances::EPOLLS,
    orphan,
    poll::{self, Sets},
    process, real,
    region::cancellation_point,
    serve, sys,
    wait::{self, Deadline, SignalMask},
};

/// The entries of a poll call as a slice; `None` where there are none, or more than any process may have (the kernel says
/// what is wrong then).
///
/// # Safety
/// `fds` must be readable and writable for `count` entries, or NULL.
unsafe fn entries<'a>(fds: *mut pollfd, count: nfds_t) -> Option<&'a mut [pollfd]> {
    let count = usize::try_from(count)
        .ok()
        .filter(|count| (1..=1 << 20).contains(count))?;
    if buffers::is_bad(fds) {
        return None;
    }
    // SAFETY: not NULL, of a sane length; the caller vouches for the rest.
    let fds = unsafe { slice::from_raw_parts_mut(fds, count) };
    let concerned = edge::int(|| Ok(c_int::from(poll::concerns_us(fds))));
    (concerned == 1).then_some(fds)
}

/// poll(2).
///
/// # Safety
/// As poll(2).
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn poll(fds: *mut pollfd, count: nfds_t, timeout: c_int) -> c_int {
    // SAFETY: the caller's.
    match unsafe { entries(fds, count) } {
        Some(fds) => {
            cancellation_point();
            count_of(edge::long(|| poll::poll(fds, wait::milliseconds(timeout))))
        }
        // SAFETY: the caller's.
        None => unsafe { (real::POLL.get())(fds, count, timeout) },
    }
}

fn count_of(result: isize) -> c_int {
    c_int::try_from(result).unwrap_or(c_int::MAX)
}

/// ppoll(2).
///
/// # Safety
/// As ppoll(2).
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn ppoll(
    fds: *mut pollfd,
    count: nfds_t,
    timeout: *const timespec,
    mask: *const sigset_t,
) -> c_int {
    // SAFETY: the caller's.
    match unsafe { entries(fds, count) } {
        Some(fds) => {
            cancellation_point();
            count_of(edge::long(|| {
                // SAFETY: the caller's.
                let timeout = unsafe { wait::timespec(timeout) }?;
                // SAFETY: the caller's.
                let _mask = unsafe { SignalMask::set(mask) };
                poll::poll(fds, timeout)
            }))
        }
        // SAFETY: the caller's.
        None => unsafe { (real::PPOLL.get())(fds, count, timeout, mask) },
    }
}

/// The end of a program whose array is smaller than what it asks to have filled: what the checked variants are for.
fn overflow() -> ! {
    // SAFETY: ends the process, as the C library does.
    unsafe { libc::abort() }
}

fn fits(count: nfds_t, room: usize) -> bool {
    usize::try_from(count).is_ok_and(|count| count <= room / size_of::<pollfd>())
}

/// poll(2), as `_FORTIFY_SOURCE` calls it.
///
/// # Safety
/// As poll(2); `room` is the array's size in bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn __poll_chk(
    fds: *mut pollfd,
    count: nfds_t,
    timeout: c_int,
    room: usize,
) -> c_int {
    if !fits(count, room) {
        overflow();
    }
    // SAFETY: the caller's.
    unsafe { poll(fds, count, timeout) }
}

/// ppoll(2), as `_FORTIFY_SOURCE` calls it.
///
/// # Safety
/// As ppoll(2); `room` is the array's size in bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn __ppoll_chk(
    fds: *mut pollfd,
    count: nfds_t,
    timeout: *const timespec,
    mask: *const sigset_t,
    room: usize,
) -> c_int {
    if !fits(count, room) {
        overflow();
    }
    // SAFETY: the caller's.
    unsafe { ppoll(fds, count, timeout, mask) }
}

/// Whether select must look closer. Without a stack in this process nothing is ours.
///
/// # Safety
/// As select(2).
unsafe fn select_concerns_us(sets: Sets) -> bool {
    if process::running().is_none() && !process::is_forked() {
        return false;
    }
    let is_bad = |set: *mut fd_set| !set.is_null() && buffers::is_bad(set);
    if sets.sets.into_iter().any(is_bad) {
        return false; // the kernel says so
    }
    // SAFETY: the caller's.
    edge::int(|| Ok(c_int::from(unsafe { sets.concern_us() }))) == 1
}

/// select(2). The time that is left is written back, as Linux does.
///
/// # Safety
/// As select(2).
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn select(
    nfds: c_int,
    read: *mut fd_set,
    write: *mut fd_set,
    except: *mut fd_set,
    timeout: *mut timeval,
) -> c_int {
    let sets = Sets {
        sets: [read, write, except],
        nfds,
    };
    // SAFETY: the caller's.
    if !unsafe { select_concerns_us(sets) } {
        // SAFETY: the caller's.
        return unsafe { (real::SELECT.get())(nfds, read, write, except, timeout) };
    }
    cancellation_point();
    count_of(edge::long(|| {
        // SAFETY: the caller's.
        let time = unsafe { timeout.as_mut() };
        let limit = match &time {
            None => None,
            Some(time) => Some(duration_of(time)?),
        };
        let deadline = Deadline::after(limit);
        // SAFETY: the caller's.
        let result = unsafe { sets.select(limit) };
        if let (Some(time), Some(left)) = (time, deadline.left()) {
            time.tv_sec = i64::try_from(left.as_secs()).unwrap_or(i64::MAX);
            time.tv_usec = i64::from(left.subsec_micros());
        }
        result
    }))
}

fn duration_of(time: &timeval) -> std::io::Result<Duration> {
    match (u64::try_from(time.tv_sec), u64::try_from(time.tv_usec)) {
        (Ok(seconds), Ok(us)) => {
            Ok(Duration::from_secs(seconds).saturating_add(Duration::from_micros(us)))
        }
        _ => errno::fail(libc::EINVAL),
    }
}

/// pselect(2).
///
/// # Safety
/// As pselect(2).
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn pselect(
    nfds: c_int,
    read: *mut fd_set,
    write: *mut fd_set,
    except: *mut fd_set,
    timeout: *const timespec,
    mask: *const sigset_t,
) -> c_int {
    let sets = Sets {
        sets: [read, write, except],
        nfds,
    };
    // SAFETY: the caller's.
    if !unsafe { select_concerns_us(sets) } {
        // SAFETY: the caller's.
        return unsafe { (real::PSELECT.get())(nfds, read, write, except, timeout, mask) };
    }
    cancellation_point();
    count_of(edge::long(|| {
        // SAFETY: the caller's.
        let timeout = unsafe { wait::timespec(timeout) }?;
        // SAFETY: the caller's.
        let _mask = unsafe { SignalMask::set(mask) };
        // SAFETY: the caller's.
        unsafe { sets.select(timeout) }
    }))
}

/// select(2) by its number. What is not netchan's the kernel answers itself: the C library's function reads the time, and writes another place.
///
/// # Safety
/// As select(2).
pub unsafe extern "C-unwind" fn select_call(
    nfds: c_int,
    read: *mut fd_set,
    write: *mut fd_set,
    except: *mut fd_set,
    timeout: *mut timeval,
) -> c_int {
    let sets = Sets {
        sets: [read, write, except],
        nfds,
    };
    // SAFETY: the caller's.
    if unsafe { select_concerns_us(sets) } {
        // SAFETY: the caller's.
        return unsafe { select(nfds, read, write, except, timeout) };
    }
    let timeout = timeout.expose_provenance();
    // SAFETY: the caller's.
    unsafe { kernels_select(libc::SYS_select, sets, [timeout, 0]) }
}

/// pselect(2) by its number, which writes back the time that is left, and has a pointer to a pointer to the mask, and the mask's length.
///
/// # Safety
/// As pselect6(2).
pub unsafe extern "C-unwind" fn pselect_call(
    nfds: c_int,
    read: *mut fd_set,
    write: *mut fd_set,
    except: *mut fd_set,
    timeout: *mut timespec,
    mask: *const *const sigset_t,
) -> c_int {
    let sets = Sets {
        sets: [read, write, except],
        nfds,
    };
    // SAFETY: the caller's.
    if !unsafe { select_concerns_us(sets) } {
        let rest = [timeout.expose_provenance(), mask.expose_provenance()];
        // SAFETY: the caller's.
        return unsafe { kernels_select(libc::SYS_pselect6, sets, rest) };
    }
    count_of(edge::long(|| {
        if !mask.is_null() && buffers::is_bad(mask) {
            return errno::fail(libc::EFAULT);
        }
        // SAFETY: the caller's.
        let limit = unsafe { wait::timespec(timeout) }?;
        let deadline = Deadline::after(limit);
        // SAFETY: not a bad one; the caller vouches for the rest.
        let mask = unsafe { mask.as_ref() }.map_or(std::ptr::null(), |mask| *mask);
        // SAFETY: the caller's.
        let _mask = unsafe { SignalMask::set(mask) };
        // SAFETY: the caller's.
        let result = unsafe { sets.select(limit) };
        // SAFETY: it was read above.
        if let (Some(time), Some(left)) = (unsafe { timeout.as_mut() }, deadline.left()) {
            time.tv_sec = i64::try_from(left.as_secs()).unwrap_or(i64::MAX);
            time.tv_nsec = i64::from(left.subsec_nanos());
        }
        result
    }))
}

/// # Safety
/// As the call.
unsafe fn kernels_select(number: c_long, sets: Sets, [timeout, mask]: [usize; 2]) -> c_int {
    let [read, write, except] = sets.sets.map(|set| set.expose_provenance());
    #[allow(clippy::cast_sign_loss)] // the kernel takes it back as it was
    let nfds = sets.nfds as usize;
    // SAFETY: the caller's.
    let result = unsafe { sys::as_c(number, [nfds, read, write, except, timeout, mask]) };
    c_int::try_from(result).unwrap_or(-1)
}

fn note_epoll(epfd: c_int) -> c_int {
    if epfd >= 0 && anew::is_configured() {
        return edge::int(|| {
            epoll::created(epfd)?;
            Ok(epfd)
        });
    }
    epfd
}

/// epoll_create(2).
///
/// # Safety
/// Numbers only.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn epoll_create(size: c_int) -> c_int {
    // SAFETY: numbers only.
    note_epoll(unsafe { (real::EPOLL_CREATE.get())(size) })
}

/// epoll_create1(2).
///
/// # Safety
/// Numbers only.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn epoll_create1(flags: c_int) -> c_int {
    // SAFETY: numbers only.
    note_epoll(unsafe { (real::EPOLL_CREATE1.get())(flags) })
}

/// epoll_ctl(2).
///
/// # Safety
/// As epoll_ctl(2).
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn epoll_ctl(
    epfd: c_int,
    operation: c_int,
    fd: c_int,
    event: *mut epoll_event,
) -> c_int {
    if process::has_parents_sockets() && operation != libc::EPOLL_CTL_DEL {
        let is_orphan = |fd| serve::is_orphan(fd) || epoll::is_orphan(fd);
        if is_orphan(fd) || epoll::is_orphan(epfd) {
            return edge::unit(|| Err(orphan::refusal(fd)));
        }
    }
    if !EPOLLS.is_vacant(epfd) && instances::inherited(epfd).is_none() {
        return edge::unit(|| {
            let Some(instance) = instances::instance(epfd) else {
                return errno::fail(libc::EBADF);
            };
            let event = if buffers::is_bad(event) {
                None
            } else {
                // SAFETY: not NULL; the caller vouches for the rest.
                Some(unsafe { event.read_unaligned() })
            };
            epoll::control(&instance, epfd, operation, fd, event)
        });
    }
    // SAFETY: the caller's.
    unsafe { (real::EPOLL_CTL.get())(epfd, operation, fd, event) }
}

/// What a wait on a tracked instance needs to know.
#[derive(Clone, Copy)]
struct Request {
    epfd: c_int,
    events: *mut epoll_event,
    max: c_int,
    mask: *const sigset_t,
}

/// epoll_wait(2) and its variants on a tracked instance. `kernels` is the kernel's wait, for at most the time given: it is taken
/// while nothing of netchan's is in the instance, and left when something comes in.
///
/// # Safety
/// As epoll_pwait(2).
unsafe fn epoll_wait_tracked(
    request: Request,
    timeout: Option<Duration>,
    kernels: impl Fn(Option<Duration>) -> c_int,
) -> c_int {
    let deadline = Deadline::after(timeout);
    cancellation_point();
    loop {
        let left = deadline.left();
        let mut outcome = Wait::Done(0);
        let result = edge::unit(|| {
            // SAFETY: the caller's.
            outcome = unsafe { ours(request, left) }?;
            Ok(())
        });
        match outcome {
            _ if result < 0 => return -1,
            Wait::Done(count) => return c_int::try_from(count).unwrap_or(c_int::MAX),
            Wait::Kernel => {}
        }
        let left_alone = edge::int(|| Ok(c_int::from(epoll::enter_kernel(request.epfd))));
        if left_alone < 0 {
            return -1;
        }
        let count = if left_alone == 1 { kernels(left) } else { 0 };
        let failed = errno::get();
        // SAFETY: the kernel wrote `count` events.
        let leave = || unsafe { epoll::leave_kernel(request.epfd, request.events, count) };
        let kept = edge::int(|| Ok(leave()));
        if count < 0 {
            errno::set(failed);
            return count;
        }
        if left_alone == 1 && (kept != 0 || deadline.passed()) {
            return kept;
        }
    }
}

/// # Safety
/// As epoll_pwait(2).
unsafe fn ours(request: Request, timeout: Option<Duration>) -> std::io::Result<Wait> {
    let Some(instance) = instances::instance(request.epfd) else {
        return if epoll::is_orphan(request.epfd) {
            Err(orphan::refusal(request.epfd))
        } else {
            Ok(Wait::Kernel)
        };
    };
    if buffers::is_bad(request.events) {
        return errno::fail(libc::EFAULT);
    }
    if !epoll::is_watching(&instance) {
        return Ok(Wait::Kernel); // which sets the mask in one step
    }
    // SAFETY: the caller's.
    let _mask = unsafe { SignalMask::set(request.mask) };
    // SAFETY: the caller's.
    unsafe { epoll::wait(&instance, request.events, request.max, timeout) }
}

/// The rest of a time in whole milliseconds, rounded up; -1 for ever.
fn in_milliseconds(timeout: Option<Duration>) -> c_int {
    timeout.map_or(-1, |time| {
        c_int::try_from(time.as_nanos().div_ceil(1_000_000)).unwrap_or(c_int::MAX)
    })
}

/// epoll_wait(2).
///
/// # Safety
/// As epoll_wait(2).
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn epoll_wait(
    epfd: c_int,
    events: *mut epoll_event,
    max: c_int,
    timeout: c_int,
) -> c_int {
    if EPOLLS.is_vacant(epfd) {
        // SAFETY: the caller's.
        return unsafe { (real::EPOLL_WAIT.get())(epfd, events, max, timeout) };
    }
    let request = Request {
        epfd,
        events,
        max,
        mask: std::ptr::null(),
    };
    let kernels = |left| {
        // SAFETY: the caller's.
        unsafe { (real::EPOLL_WAIT.get())(epfd, events, max, in_milliseconds(left)) }
    };
    // SAFETY: the caller's.
    unsafe { epoll_wait_tracked(request, wait::milliseconds(timeout), kernels) }
}

/// epoll_pwait(2).
///
/// # Safety
/// As epoll_pwait(2).
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn epoll_pwait(
    epfd: c_int,
    events: *mut epoll_event,
    max: c_int,
    timeout: c_int,
    mask: *const sigset_t,
) -> c_int {
    if EPOLLS.is_vacant(epfd) {
        // SAFETY: the caller's.
        return unsafe { (real::EPOLL_PWAIT.get())(epfd, events, max, timeout, mask) };
    }
    let request = Request {
        epfd,
        events,
        max,
        mask,
    };
    let kernels = |left| {
        // SAFETY: the caller's.
        unsafe { (real::EPOLL_PWAIT.get())(epfd, events, max, in_milliseconds(left), mask) }
    };
    // SAFETY: the caller's.
    unsafe { epoll_wait_tracked(request, wait::milliseconds(timeout), kernels) }
}

/// epoll_pwait2(2).
///
/// # Safety
/// As epoll_pwait2(2).
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn epoll_pwait2(
    epfd: c_int,
    events: *mut epoll_event,
    max: c_int,
    timeout: *const timespec,
    mask: *const sigset_t,
) -> c_int {
    if EPOLLS.is_vacant(epfd) {
        // SAFETY: the caller's.
        return unsafe { (real::EPOLL_PWAIT2.get())(epfd, events, max, timeout, mask) };
    }
    let mut limit = None;
    let understood = edge::unit(|| {
        // SAFETY: the caller's.
        limit = unsafe { wait::timespec(timeout) }?;
        Ok(())
    });
    if understood < 0 {
        return -1;
    }
    let request = Request {
        epfd,
        events,
        max,
        mask,
    };
    let kernels = |left: Option<Duration>| {
        // SAFETY: the caller's.
        unsafe { (real::EPOLL_PWAIT.get())(epfd, events, max, in_milliseconds(left), mask) }
    };
    // SAFETY: the caller's.
    unsafe { epoll_wait_tracked(request, limit, kernels) }
}
