//! What the primitives do not do once they are made: allocate; and what a slab leaves behind: nothing. A process of its own, because
//! both are properties of the process.

use percore::{
    clock,
    counter::{Batched, Flip, PerCore},
    crossbar::{Port, crossbar},
    doorbell::{Doorbell, Sleep},
    lock::{self, Class, mutex},
    ring::ring,
    sched::{Core, Key, Settings, machine},
    slab::{self, Buffer, Slab},
    snapshot::Snapshot,
    trace::{self, Event, Writer},
    witness,
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

static CLASS: Class = Class::new(1, "burst").counted();
const BURST: Event<2> = Event::new(0, "burst", "a burst of {messages} in {time cycles}");

/// What is shared between cores and threads.
struct Shared {
    batched: Batched,
    flip: Flip<2>,
    list: Snapshot<Vec<u64>>,
    locked: lock::Mutex<u64>,
}

/// One burst through everything else; the same operations whenever it is called.
fn other_burst(shared: &Shared, ports: &mut [Port<u64>]) {
    shared.batched.add(0, 100);
    shared.flip.add(0, 1, 1);
    let sums = shared.flip.read();
    *shared.locked.lock() += sums[1] + shared.list.read().iter().sum::<u64>();
    for message in 0..20 {
        assert!(ports[0].to.send(1, message).is_ok());
    }
    ports[0].to.flush();
    assert_eq!(ports[1].from.receive(32, |_, _| ()), 20);
    trace::event(BURST, [20, clock::cycles()]);
}

#[test]
fn nothing_is_allocated_after_the_start_by_the_others_either() {
    let shared = Shared {
        batched: Batched::new(1, 64),
        flip: Flip::new(1),
        list: Snapshot::new(vec![1, 2, 3]),
        locked: mutex(&CLASS, 0),
    };
    let mut ports = crossbar(2, 32).unwrap();
    let attached = trace::attach(Writer::new(64));
    other_burst(&shared, &mut ports);
    let before = ALLOCATIONS.get();
    for _ in 0..1000 {
        other_burst(&shared, &mut ports);
    }
    let allocated = ALLOCATIONS.get() - before;
    // The witness takes backtraces, and says so.
    assert!(allocated == 0 || witness::ON, "{allocated} allocations");
    assert_eq!(attached.writer().reader().written(), 1001);
}

#[test]
fn a_core_sleeps_and_wakes_without_allocating() {
    const ROUNDS: usize = 1000;
    let (mut loops, _watch) = machine::<()>(1, &Settings::default()).unwrap();
    let start = |core: &Core<()>| {
        for me in 0..2 {
            let core_too = core.clone();
            let task = async move {
                let mut before = 0;
                for round in 0..ROUNDS {
                    if round == 10 {
                        before = ALLOCATIONS.get();
                    }
                    core_too.wakeup(Key::new(1 - me));
                    let long = Duration::from_secs(1);
                    core_too.tsleep_timeout(Key::new(me), long).await;
                }
                assert_eq!(ALLOCATIONS.get(), before);
                core_too.wakeup(Key::new(1 - me));
                core_too.stop();
            };
            assert!(core.spawn(&"player", task).is_ok());
        }
    };
    loops.remove(0).run(start, |_, _, ()| ());
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
