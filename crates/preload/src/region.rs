//! Inside netchan, seen from the program's thread: between [`run`]'s begin and its end no handler of the program runs, and it is not cancelled.
//!
//! A handler that interrupts a call may call the same function, on the same socket, or leave by `siglongjmp`; what a call holds (a
//! shard, a list, a waker that is registered) must be let go of before. Blocking signals would cost two system calls each
//! time. Instead the handlers that the program installs are called through one of ours (`signals`): if it finds its thread in
//! here it notes the signal and ends the wait, and the call's end runs the handler, as the kernel does when it returns. Cancellation
//! is put off the same way, and acted upon where no frame of ours is left but one that holds nothing.

use std::{
    cell::UnsafeCell,
    mem::MaybeUninit,
    ptr,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{
            AtomicBool, AtomicPtr, AtomicUsize,
            Ordering::{Acquire, Relaxed, Release},
            compiler_fence,
        },
    },
    task::Waker,
    time::Duration,
};

use libc::c_int;

use crate::{
    errno,
    handlers::{self, Noted},
    locks::hold,
    real, sys,
};

const CANCEL_ENABLE: c_int = 0;
const CANCEL_DISABLE: c_int = 1;

unsafe extern "C-unwind" {
    fn pthread_setcancelstate(state: c_int, before: *mut c_int) -> c_int;
    fn pthread_testcancel();
}

/// As many signals are noted each time they come; beyond that a signal that is noted already is not noted again.
const NOTED_EACH: usize = 32;
/// Room for all 64 beyond that.
const NOTED_MAX: usize = NOTED_EACH + 64;

/// One thread's state. Touched by the thread alone, and by its signal handlers: relaxed, in program order.
struct Region {
    /// The thread is in here.
    inside: AtomicBool,
    /// The program lets this thread be cancelled.
    cancellable: AtomicBool,
    /// What wakes the thread, while it waits.
    waker: AtomicPtr<Waker>,
    /// As many are noted, in `face`.
    count: AtomicUsize,
    /// NULL before the thread's first call, and while it ends.
    face: AtomicPtr<Face>,
    /// Nothing more is registered: the thread ends.
    ending: AtomicBool,
    /// The call waits with a limit of time.
    limited: AtomicBool,
}

/// What is not kept in the thread's own memory, of which there may be little; and what pthread_cancel(3) by another thread needs.
struct Face {
    thread: libc::pthread_t,
    /// The thread's own, as long as it is in the list.
    region: *const Region,
    cancelled: AtomicBool,
    /// Ends its waits.
    waker: Mutex<Option<Waker>>,
    /// The thread's own.
    noted: UnsafeCell<MaybeUninit<[Noted; NOTED_MAX]>>,
}

// SAFETY: other threads leave `noted` alone, and read atomics alone of `region`.
unsafe impl Send for Face {}
// SAFETY: see above.
unsafe impl Sync for Face {}

thread_local! {
    // Needs no destructor, so that it serves signal handlers as long as the thread lives.
    static REGION: Region = const {
        Region {
            inside: AtomicBool::new(false),
            cancellable: AtomicBool::new(false),
            waker: AtomicPtr::new(ptr::null_mut()),
            count: AtomicUsize::new(0),
            face: AtomicPtr::new(ptr::null_mut()),
            ending: AtomicBool::new(false),
            limited: AtomicBool::new(false),
        }
    };
    /// Owns what `face` points to, and takes it out of the list when the thread ends.
    static LISTED: Listed = Listed::new();
}

/// No thread comes in here: the stack is being copied ([`stand_still`]).
static STILL: AtomicBool = AtomicBool::new(false);
/// Between two looks whether it is.
const STEP: Duration = Duration::from_millis(1);

/// Every thread that has called netchan.
static FACES: Mutex<Vec<Arc<Face>>> = Mutex::new(Vec::new());

/// The list of threads, held.
pub struct ForFork {
    _faces: MutexGuard<'static, Vec<Arc<Face>>>,
}

/// The list of threads, for the time of a fork.
pub fn held_for_fork() -> ForFork {
    ForFork {
        _faces: hold(&FACES),
    }
}

struct Listed(Arc<Face>);

impl Listed {
    fn new() -> Self {
        // SAFETY: takes nothing.
        let thread = unsafe { libc::pthread_self() };
        let face = Arc::new(Face {
            thread,
            region: REGION.with(ptr::from_ref),
            cancelled: AtomicBool::new(false),
            waker: Mutex::new(None),
            noted: UnsafeCell::new(MaybeUninit::uninit()),
        });
        hold(&FACES).push(face.clone());
        Self(face)
    }
}

impl Drop for Listed {
    fn drop(&mut self) {
        REGION.with(|region| {
            region.ending.store(true, Relaxed);
            region.face.store(ptr::null_mut(), Relaxed);
        });
        hold(&FACES).retain(|face| !Arc::ptr_eq(face, &self.0));
    }
}

impl Region {
    /// False if the thread is in here already: a handler that we do not call came in between.
    fn enter(&self) -> bool {
        if self.inside.swap(true, Relaxed) {
            return false;
        }
        compiler_fence(Acquire);
        if STILL.load(Relaxed) {
            self.stand_still();
        }
        self.limited.store(false, Relaxed);
        self.introduced();
        let mut before = CANCEL_ENABLE;
        // SAFETY: `before` is writable.
        unsafe { pthread_setcancelstate(CANCEL_DISABLE, &raw mut before) };
        self.cancellable.store(before == CANCEL_ENABLE, Relaxed);
        true
    }

    /// Until the stack is no longer being copied.
    #[cold]
    fn stand_still(&self) {
        while STILL.load(Relaxed) {
            self.inside.store(false, Relaxed);
            sys::nap(STEP);
            self.inside.store(true, Relaxed);
        }
    }

    /// The thread is in the list, unless it ends.
    #[inline]
    fn introduced(&self) {
        if self.face.load(Relaxed).is_null() && !self.ending.load(Relaxed) {
            self.introduce();
        }
    }

    #[cold]
    fn introduce(&self) {
        let face = LISTED.try_with(|listed| Arc::as_ptr(&listed.0).cast_mut());
        self.face.store(face.unwrap_or(ptr::null_mut()), Relaxed);
    }

    fn face(&self) -> Option<&Face> {
        // SAFETY: owned by LISTED, which makes it NULL before it goes.
        unsafe { self.face.load(Relaxed).as_ref() }
    }

    /// Ends what `enter` began, and runs the handlers of what came meanwhile.
    fn leave(&self) -> Interrupted {
        compiler_fence(Release);
        self.inside.store(false, Relaxed);
        if self.cancellable.load(Relaxed) {
            // SAFETY: NULL: the state is known.
            unsafe { pthread_setcancelstate(CANCEL_ENABLE, ptr::null_mut()) };
        }
        let mut interrupted = Interrupted {
            any: false,
            ends: self.limited.load(Relaxed),
        };
        while let Some(noted) = self.take() {
            interrupted.any = true;
            interrupted.ends |= !handlers::deliver(&noted);
        }
        interrupted
    }

    /// The first that was noted. With the signals held: one may come at any moment.
    fn take(&self) -> Option<Noted> {
        if self.count.load(Relaxed) == 0 {
            return None;
        }
        let _held = sys::SignalsHeld::new();
        // A handler in between, which called us, has taken it.
        let rest = self.count.load(Relaxed).checked_sub(1)?;
        let place = self.face()?.noted.get().cast::<Noted>();
        // SAFETY: `rest` + 1 entries were written, none at the same time: handlers are held.
        let first = unsafe { place.read() };
        // SAFETY: as above.
        unsafe { ptr::copy(place.wrapping_add(1), place, rest) };
        self.count.store(rest, Relaxed);
        Some(first)
    }

    /// Adds `noted`; false where there is no place for it. A standard signal that is noted already comes once, as in the kernel.
    fn note(&self, noted: &Noted) -> bool {
        let Some(face) = self.face() else {
            return false;
        };
        // Another signal's handler may come in between, and would note it in the same place.
        let _held = sys::SignalsHeld::new();
        let count = self.count.load(Relaxed);
        let place = face.noted.get().cast::<Noted>();
        for at in 0..count {
            // SAFETY: at < count.
            let known = unsafe { place.wrapping_add(at).read() }.signal;
            if known == noted.signal && (known < 32 || count >= NOTED_EACH) {
                return true;
            }
        }
        // SAFETY: count < NOTED_MAX: beyond NOTED_EACH each signal once.
        unsafe { place.wrapping_add(count).write(*noted) };
        self.count.store(count + 1, Relaxed);
        true
    }
}

/// What came while the thread was in here.
#[derive(Clone, Copy, Default)]
pub struct Interrupted {
    /// Some handler ran.
    pub any: bool,
    /// One that ends a call (it was installed without SA_RESTART), or the call had a limit of time: Linux starts no such call again.
    pub ends: bool,
}

/// Runs `call`, and then the handlers that were put off; `None` where the thread is in here already.
///
/// `T` needs no drop: a handler may leave by longjmp.
pub fn run<T: Copy>(call: impl FnOnce() -> T) -> Option<(T, Interrupted)> {
    REGION.with(|region| {
        if !region.enter() {
            return None;
        }
        let value = call();
        Some((value, region.leave()))
    })
}

/// The thread ends here if it was cancelled: before a call that is a cancellation point, and after one whose wait that has ended.
///
/// Nothing that needs a drop may be on the stack.
#[inline]
pub fn cancellation_point() {
    // Listed before the look: a cancellation that the look does not see is one that finds the thread in the list, and ends its wait.
    REGION.with(Region::introduced);
    // SAFETY: unwinds, if it does, through frames that hold nothing.
    unsafe { pthread_testcancel() };
}

/// Runs `call` as no cancellation point, as what the C library itself has for none.
///
/// `T` needs no drop: a handler may leave by longjmp.
pub fn uncancelled<T: Copy>(call: impl FnOnce() -> T) -> T {
    let mut before = CANCEL_ENABLE;
    // SAFETY: `before` is writable.
    unsafe { pthread_setcancelstate(CANCEL_DISABLE, &raw mut before) };
    let result = call();
    // SAFETY: NULL: the state is known.
    unsafe { pthread_setcancelstate(before, ptr::null_mut()) };
    result
}

/// In here: whether the call should end with EINTR now.
pub fn is_interrupted() -> bool {
    REGION.with(|region| {
        let cancelled = region
            .face()
            .is_some_and(|face| face.cancelled.load(Acquire)); // pairs with Release in cancel
        let noted = region.count.load(Relaxed) > 0;
        noted || (cancelled && region.cancellable.load(Relaxed)) || STILL.load(Relaxed)
    })
}

/// In here: the call waits from now on with a limit of time (SO_RCVTIMEO, SO_SNDTIMEO).
pub fn waits_with_limit() {
    REGION.with(|region| region.limited.store(true, Relaxed));
}

/// In here: while `wait` lasts, a signal and a cancellation wake `waker`.
pub fn waiting<T>(waker: &Waker, wait: impl FnOnce() -> T) -> T {
    REGION.with(|region| {
        region.waker.store(ptr::from_ref(waker).cast_mut(), Relaxed);
        let result = wait();
        region.waker.store(ptr::null_mut(), Relaxed);
        result
    })
}

/// This thread's waits end when `waker` is woken (`None`: it has none any more).
pub fn introduce_waker(waker: Option<&Waker>) {
    let _ = LISTED.try_with(|listed| {
        *listed
            .0
            .waker
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = waker.cloned();
    });
}

/// Called by the handler that stands before the program's: true if the signal is put off.
pub fn put_off(noted: &Noted) -> bool {
    REGION.with(|region| {
        if !region.inside.load(Relaxed) || !region.note(noted) {
            return false;
        }
        let waker = region.waker.load(Relaxed);
        // SAFETY: set while the waker is borrowed by this very thread's wait.
        if let Some(waker) = unsafe { waker.as_ref() } {
            let before = errno::get();
            waker.wake_by_ref();
            errno::set(before);
        }
        true
    })
}

/// Lets no thread in from now on, and ends the waits of those that are in here, but the calling one's.
pub fn stand_still() {
    STILL.store(true, Relaxed); // a thread that sees it late is found inside
    for face in hold(&FACES).iter() {
        let waker = face.waker.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(waker) = &*waker {
            waker.wake_by_ref();
        }
    }
}

/// Threads come in again.
pub fn go_on() {
    STILL.store(false, Relaxed); // a thread that sees it late naps once more
}

/// In a forked child that begins anew: no other thread is there.
pub fn begin_anew() {
    // SAFETY: takes nothing.
    let own = unsafe { libc::pthread_self() };
    let mut faces = hold(&FACES);
    let (own, others) = std::mem::take(&mut *faces)
        .into_iter()
        .partition(|face| face.thread == own);
    *faces = own;
    let others: Vec<_> = others;
    std::mem::forget(others); // their wakers are the parent's
}

/// Whether another thread than the calling one is in here; in a forked child: was, at the fork.
pub fn has_others() -> bool {
    // SAFETY: takes nothing.
    let own = unsafe { libc::pthread_self() };
    let is_inside = |face: &Face| {
        // SAFETY: a thread that ends takes itself out of the list first; in a forked child its memory stays.
        let region = unsafe { &*face.region };
        region.inside.load(Relaxed)
    };
    let faces = hold(&FACES);
    let mut others = faces.iter().filter(|face| face.thread != own);
    others.any(|face| is_inside(face))
}

/// pthread_cancel(3): the C library marks the thread, which we then wake.
pub fn cancel(thread: libc::pthread_t) -> c_int {
    // SAFETY: the caller's thread id.
    let result = unsafe { (real::PTHREAD_CANCEL.get())(thread) };
    if result == 0 {
        let faces = hold(&FACES);
        for face in faces.iter().filter(|face| face.thread == thread) {
            face.cancelled.store(true, Release); // pairs with Acquire in is_interrupted
            let waker = face.waker.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(waker) = &*waker {
                waker.wake_by_ref();
            }
        }
    }
    result
}
