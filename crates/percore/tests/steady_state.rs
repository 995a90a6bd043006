//! What the primitives do not do once they are made: allocate; and what a slab leaves behind: nothing. A process of its own, because
//! both are properties of the process.

use percore::{
    clock,
    counter::PerCore,
    doorbell::{Doorbell, Sleep},
    ring::ring,
    slab::{self, Buffer, Slab},
};
use std::{
    alloc::{GlobalAlloc, Layout, System},
    cell::Cell,
    collections::VecDeque,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

/// The system's allocator, counted for each thread (the test harness has its own).
struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

// SAFETY: the system's, unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        // SAFETY: the caller's promises are passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        // SAFETY: the caller's promises are passed on.
        unsafe { System.dealloc(ptr, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn turn() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// One burst through everything; the same operations whenever it is called.
fn burst(
    slab: &mut Slab,
    channel: &mut (
        percore::ring::Producer<Buffer>,
        percore::ring::Consumer<Buffer>,
    ),
    waiting: &mut VecDeque<Buffer>,
    bell: &Doorbell,
    counts: &PerCore<2>,
) {
    let (tx, rx) = channel;
    while let Some(buffer) = slab.alloc() {
        waiting.push_back(buffer);
    }
    let sent = tx.push_batch(waiting);
    bell.arm(Sleep::Fd);
    assert!(bell.ring());
    bell.disarm();
    bell.arm(Sleep::Futex);
    assert!(!bell.wait(Some(Duration::from_micros(1))));
    bell.disarm();
    let mut odd = false;
    let taken = rx.pop_batch(usize::MAX, |buffer| {
        odd = !odd;
        if odd { slab.free(buffer) } else { drop(buffer) }
    });
    assert_eq!(taken, sent);
    waiting.clear();
    counts.add(0, 1, clock::now_ns() & 1);
    assert_eq!(slab.available(), slab.capacity());
}

#[test]
fn nothing_is_allocated_after_the_start() {
    let _turn = turn();
    let mut slab = Slab::new(100, 2048).unwrap();
    let mut channel = ring(64);
    let mut waiting = VecDeque::with_capacity(100);
    let (bell, counts) = (Doorbell::new().unwrap(), PerCore::new(1));
    clock::hz();
    burst(&mut slab, &mut channel, &mut waiting, &bell, &counts);
    let before = ALLOCATIONS.get();
    for _ in 0..100 {
        burst(&mut slab, &mut channel, &mut waiting, &bell, &counts);
    }
    assert_eq!(ALLOCATIONS.get(), before);
}

fn is_mapped(address: usize) -> bool {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    maps.lines().any(|line| {
        let range = line.split_whitespace().next().unwrap_or_default();
        let hex = |s: &str| usize::from_str_radix(s, 16).unwrap();
        range
            .split_once('-')
            .is_some_and(|(from, to)| (hex(from)..hex(to)).contains(&address))
    })
}

#[test]
fn the_last_buffer_takes_the_memory_with_it() {
    let _turn = turn();
    let mut slab = Slab::new(64, 65_536).unwrap();
    let mut last = slab.alloc().unwrap();
    let address = last.as_ptr().addr();
    drop(slab);
    assert!(is_mapped(address));
    last.fill(1);
    assert_eq!(slab::mapped(), 1);
    std::thread::spawn(|| drop(last)).join().unwrap();
    assert!(!is_mapped(address));
    assert_eq!(slab::mapped(), 0);
}
