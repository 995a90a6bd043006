//! Tests of the ring over memory that is not ours alone: two mappings of one memfd, another process, a hostile peer.

use super::{BadMemory, Consumer, Layout, Producer, memory::Header, ring};
use rustix::{
    fs::{MemfdFlags, ftruncate, memfd_create},
    mm::{MapFlags, ProtFlags, mmap, munmap},
};
use std::{
    os::fd::{AsFd, OwnedFd},
    ptr::NonNull,
    sync::atomic::Ordering,
};

/// A mapping of a memfd.
struct Mapping(NonNull<[u8]>);

impl Mapping {
    fn new(fd: impl AsFd, bytes: usize) -> Self {
        let prot = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping where the kernel likes.
        let start =
            unsafe { mmap(std::ptr::null_mut(), bytes, prot, MapFlags::SHARED, fd, 0) }.unwrap();
        let start = NonNull::new(start.cast()).unwrap();
        Self(NonNull::slice_from_raw_parts(start, bytes))
    }

    fn header(&self) -> &Header {
        // SAFETY: a ring lies at the start of the mapping; only atomics inside.
        unsafe { self.0.cast().as_ref() }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: our own mapping; the tests drop the ring's ends first.
        unsafe { munmap(self.0.as_ptr().cast(), self.0.len()) }.unwrap();
    }
}

fn memfd(bytes: usize) -> OwnedFd {
    let fd = memfd_create("ring", MemfdFlags::CLOEXEC).unwrap();
    ftruncate(&fd, bytes as u64).unwrap();
    fd
}

type Item = [u64; 8];

/// A ring over one memfd that is mapped twice. The mappings come first, so that they are dropped last.
fn over_memfd(capacity: usize) -> (Mapping, Mapping, Producer<Item>, Consumer<Item>) {
    let bytes = Layout::of::<Item>(capacity).unwrap().bytes();
    let fd = memfd(bytes);
    let (here, there) = (Mapping::new(&fd, bytes), Mapping::new(&fd, bytes));
    // SAFETY: new zeroed memory, one producer, unmapped after the end is dropped.
    let tx = unsafe { Producer::from_raw(here.0, capacity) }.unwrap();
    // SAFETY: as above, one consumer.
    let rx = unsafe { Consumer::from_raw(there.0, capacity) }.unwrap();
    (here, there, tx, rx)
}

#[test]
fn a_layout_holds_header_and_slots() {
    let layout = Layout::of::<Item>(100).unwrap();
    assert_eq!(layout.capacity(), 128);
    assert_eq!(layout.bytes(), size_of::<Header>() + 128 * 64);
    assert!(layout.align() >= 64);
    assert_eq!(Layout::of::<u8>(0).unwrap().capacity(), 1);
    assert_eq!(Layout::of::<u8>(usize::MAX), None);
    assert_eq!(Layout::of::<Item>(1 << 60), None);
    assert_eq!(Layout::of::<Item>(1 << 57), None);
    assert!(Layout::of::<u8>(1 << 60).is_some_and(|layout| layout.capacity() == 1 << 60));
}

#[test]
fn memory_that_does_not_fit_is_refused() {
    let layout = Layout::of::<u64>(16).unwrap();
    let fd = memfd(layout.bytes());
    let mapping = Mapping::new(&fd, layout.bytes());
    let part = |from: usize, len: usize| {
        let start = mapping.0.cast::<u8>().as_ptr().wrapping_add(from);
        NonNull::slice_from_raw_parts(NonNull::new(start).unwrap(), len)
    };
    // SAFETY: refused before it is touched.
    let make = |memory, capacity| unsafe { Producer::<u64>::from_raw(memory, capacity) }.err();
    let (need, have) = (layout.bytes(), layout.bytes() - 1);
    let too_small = Some(BadMemory::TooSmall { need, have });
    assert_eq!(make(part(0, have), 16), too_small);
    assert_eq!(
        make(part(8, need), 16),
        Some(BadMemory::Misaligned(layout.align()))
    );
    assert_eq!(make(part(0, need), usize::MAX), Some(BadMemory::TooLarge));
    assert_eq!(make(part(0, need), 16), None);
}

#[test]
fn two_mappings_are_one_ring() {
    let (_here, _there, mut tx, mut rx) = over_memfd(8);
    assert_eq!(tx.push_iter((0..).map(|i| [i; 8])), 8);
    assert_eq!(tx.push([9; 8]), Err([9; 8]));
    for i in 0..8 {
        assert_eq!(rx.pop(), Some([i; 8]));
    }
    assert_eq!(rx.pop(), None);
    assert!(!rx.is_abandoned() && !tx.is_abandoned());
    drop(tx);
    assert!(rx.is_abandoned());
    assert!(!rx.is_corrupt());
}

#[test]
fn two_threads_over_two_mappings() {
    const ITEMS: u64 = 100_000;
    let (_here, _there, mut tx, mut rx) = over_memfd(64);
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let mut sent = 0;
            while sent < ITEMS {
                let n = tx.push_iter((sent..ITEMS.min(sent + 16)).map(|i| [i; 8]));
                sent += n as u64;
                if n == 0 {
                    std::thread::yield_now();
                }
            }
        });
        let mut expected = 0;
        while expected < ITEMS {
            let check = |item: Item| {
                assert_eq!(item, [expected; 8]);
                expected += 1;
            };
            if rx.pop_batch(32, check) == 0 {
                std::thread::yield_now();
            }
        }
    });
}

/// A child process at the far end: it echoes and ends in good order.
#[test]
fn another_process_at_the_other_end() {
    let (_a, _b, mut tx, mut far_rx) = over_memfd(4);
    let (_c, _d, mut far_tx, mut rx) = over_memfd(4);
    // SAFETY: the child calls nothing but ring operations and _exit: no lock, no allocation.
    match unsafe { libc::fork() } {
        0 => {
            let mut echoed = 0;
            while echoed < 1000 {
                if let Some(item) = far_rx.pop() {
                    while far_tx.push(item).is_err() {
                        std::hint::spin_loop();
                    }
                    echoed += 1;
                }
            }
            drop(far_tx);
            // SAFETY: ends the child without the harness's destructors.
            unsafe { libc::_exit(0) }
        }
        child => {
            assert!(child > 0);
            let (mut sent, mut got) = (0, 0);
            while got < 1000 {
                if sent < 1000 && tx.push([sent; 8]).is_ok() {
                    sent += 1;
                }
                if let Some(item) = rx.pop() {
                    assert_eq!(item, [got; 8]);
                    got += 1;
                } else {
                    std::thread::yield_now();
                }
            }
            let mut status = 0;
            // SAFETY: our own child.
            let waited = unsafe { libc::waitpid(child, &raw mut status, 0) };
            assert_eq!((waited, status), (child, 0));
            assert!(rx.is_abandoned());
        }
    }
}

const NONSENSE: [usize; 7] = [1, 7, 9, 1 << 20, usize::MAX / 2, usize::MAX - 3, usize::MAX];

#[test]
fn a_consumer_that_lies_cannot_make_room() {
    for nonsense in NONSENSE {
        let (here, _there, mut tx, _rx) = over_memfd(8);
        for i in 0..8 {
            tx.push([i; 8]).unwrap();
        }
        here.header()
            .consumer
            .index
            .store(nonsense, Ordering::Relaxed);
        let fits = nonsense <= 8; // an index it could have reached, if it had read what it has not
        assert_eq!(tx.room(), if fits { nonsense } else { 0 }, "{nonsense}");
        assert_eq!((tx.push([8; 8]).is_ok(), tx.is_corrupt()), (fits, !fits));
        // Back to a place it had already left.
        here.header().consumer.index.store(0, Ordering::Relaxed);
        let before = tx.cached_room();
        assert_eq!(tx.room(), before, "room that was there stays");
    }
}

#[test]
fn a_producer_that_lies_cannot_make_items() {
    for nonsense in NONSENSE {
        let (_here, there, _tx, mut rx) = over_memfd(8);
        there
            .header()
            .producer
            .index
            .store(nonsense, Ordering::Relaxed);
        let fits = nonsense <= 8;
        assert_eq!(rx.len(), if fits { nonsense } else { 0 }, "{nonsense}");
        // What it "wrote" is whatever bytes are there: plain data.
        assert_eq!(rx.pop(), fits.then_some([0; 8]));
        assert_eq!(rx.is_corrupt(), !fits);
        let left = rx.len();
        there.header().producer.index.store(0, Ordering::Relaxed);
        assert_eq!(rx.len(), left, "items that were there stay");
        assert_eq!(rx.pop_batch(100, |_| ()), left);
        assert!(rx.is_corrupt() && rx.is_empty());
    }
}

#[test]
fn a_peer_that_writes_our_own_index_changes_nothing() {
    let (here, _there, mut tx, mut rx) = over_memfd(8);
    for i in 0..1000 {
        assert_eq!(tx.push([i; 8]), Ok(()));
        assert_eq!(rx.pop(), Some([i; 8]));
        here.header()
            .consumer
            .index
            .store(usize::MAX / 3, Ordering::Relaxed);
        here.header()
            .producer
            .index
            .store(usize::MAX / 3, Ordering::Relaxed);
        tx.publish();
        rx.release();
    }
    assert!(!tx.is_corrupt() && !rx.is_corrupt());
}

/// Random words over the whole header, all the time, from a thread that stands for a hostile process.
#[test]
fn a_hostile_peer_never_leads_out_of_the_ring() {
    let seed = crate::clock::now_ns();
    println!("seed {seed}");
    let (here, _there, mut tx, mut rx) = over_memfd(16);
    let stop = std::sync::atomic::AtomicBool::new(false);
    let header = here.header();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut random = usize::try_from(seed | 1).unwrap();
            while !stop.load(Ordering::Relaxed) {
                for side in [&header.producer, &header.consumer] {
                    random ^= random << 13;
                    random ^= random >> 7;
                    random ^= random << 17;
                    let word = if random & 1 == 0 {
                        random
                    } else {
                        random % 4096
                    };
                    side.index.store(word, Ordering::Relaxed);
                    side.gone.store(u32::from(word < 4096), Ordering::Relaxed);
                }
            }
        });
        // Until it has hurt both, and for a while in any case: the other thread may be slow to start.
        let _stops = crate::set_on_drop::SetOnDrop(&stop);
        let mut i = 0;
        while i < 200_000 || !(tx.is_corrupt() && rx.is_corrupt()) {
            i += 1;
            let (room, len) = (tx.room(), rx.len());
            assert!(room <= 16 && len <= 16);
            let _ = tx.push([i; 8]);
            // It looks again when the ring is full: an index that the peer could have is believed, so that more than 16 may go.
            assert!(tx.push_iter((0..100).map(|i| [i; 8])) <= 100);
            assert!(tx.room() <= 16);
            assert!(rx.pop_batch(100, |_| ()) <= 16);
            let _ = (rx.pop(), rx.is_abandoned(), tx.is_abandoned());
        }
    });
}

#[test]
fn a_heap_ring_does_not_need_plain_items() {
    let (mut tx, mut rx) = ring::<String>(2);
    tx.push("x".to_owned()).unwrap();
    assert_eq!(rx.pop().as_deref(), Some("x"));
}

#[test]
fn items_that_must_stand_apart_do() {
    #[repr(align(512))]
    struct Wide(#[allow(dead_code)] u8);
    let layout = Layout::of::<Wide>(4).unwrap();
    assert_eq!((layout.align(), layout.capacity()), (512, 4));
    assert!(layout.bytes() >= 5 * 512);
    let narrow = Layout::of::<u8>(4).unwrap();
    assert_eq!(narrow.align(), align_of::<Header>());
}
