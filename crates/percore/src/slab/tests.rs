//! Tests of the slab: contract, remote free, thread exit, queues running out, buffers that outlive their slab.

use super::{Buffer, Slab, mapped, remote_free::QUEUES};
use std::{
    cell::RefCell,
    collections::BTreeSet,
    sync::{Barrier, Mutex, MutexGuard, PoisonError, mpsc},
};

/// Tests that look at the process-wide number of mapped slabs, or make slabs, take turns.
pub(super) fn turn() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

fn all(slab: &mut Slab) -> Vec<Buffer> {
    std::iter::from_fn(|| slab.alloc()).collect()
}

#[test]
fn buffers_are_distinct_whole_and_run_out() {
    let _turn = turn();
    for size in [1, 64, 65, 1514, 2048, 9000, 65_600] {
        let mut slab = Slab::new(7, size).unwrap();
        assert_eq!(slab.buffer_size(), size.div_ceil(64) * 64);
        let mut out = all(&mut slab);
        assert_eq!((out.len(), slab.available()), (7, 0));
        assert!(slab.alloc().is_none());
        for (buffer, mark) in out.iter_mut().zip(1u8..) {
            assert_eq!(buffer.len(), slab.buffer_size());
            assert!(buffer.as_ptr().addr().is_multiple_of(64));
            buffer.fill(mark);
        }
        for (buffer, mark) in out.iter().zip(1u8..) {
            assert!(buffer.iter().all(|&byte| byte == mark));
            assert_eq!(buffer.as_ref(), &buffer[..]);
        }
        while let Some(buffer) = out.pop() {
            slab.free(buffer);
        }
        assert_eq!((slab.available(), all(&mut slab).len()), (7, 7));
    }
}

#[test]
fn a_holder_of_a_buffer_sees_that_they_are_scarce() {
    let _turn = turn();
    let mut slab = Slab::new(1024, 64).unwrap();
    let mut out: Vec<_> = (0..700).filter_map(|_| slab.alloc()).collect();
    assert!(!out[0].is_scarce(), "324 of 1024 are at home");
    out.extend((0..200).filter_map(|_| slab.alloc()));
    assert!(out[0].is_scarce(), "124 are");
    out.truncate(500);
    let kept: Vec<_> = (0..64).filter_map(|_| slab.alloc()).collect();
    assert!(out[0].is_scarce(), "half must be at home again");
    out.truncate(300);
    drop(kept);
    let _look: Vec<_> = (0..64).filter_map(|_| slab.alloc()).collect();
    assert!(!out[0].is_scarce(), "724 are");
}

/// A quarter and a half themselves are still enough.
#[test]
fn scarce_is_less_than_a_quarter_until_it_is_half() {
    let _turn = turn();
    let mut slab = Slab::new(64, 64).unwrap();
    slab.set_magazine(1); // each looks first
    let mut out: Vec<_> = (0..49).filter_map(|_| slab.alloc()).collect();
    assert!(!out[0].is_scarce(), "16 of 64 were at home");
    out.extend(slab.alloc());
    assert!(out[0].is_scarce(), "15 were");
    out.truncate(33);
    out.extend(slab.alloc());
    assert!(out[0].is_scarce(), "31 were");
    out.truncate(32);
    out.extend(slab.alloc());
    assert!(!out[0].is_scarce(), "32 were");
}

/// Of the buffers that are to be ready the memory is there, of the others not; their ways home take little.
#[test]
fn memory_of_those_that_are_ready() {
    use crate::region::tests::resident_pages;
    let _turn = turn();
    const EACH: usize = 63 * 64; // an odd number of lines, so nothing between two of them
    let pages = |ready| {
        let mut slab = Slab::with_ready(100, EACH, ready).unwrap();
        let at = slab.alloc().unwrap().as_ptr().addr(); // the first, at the start of it all
        resident_pages(at, (100 * EACH) / 4096)
    };
    assert_eq!([0, 1, 50, 100].map(pages), [0, 1, 50, 98]);
    let slab = Slab::with_ready(1000, 2048, 0).unwrap();
    let maps = std::fs::read_to_string("/proc/self/statm").unwrap();
    let size: usize = maps.split(' ').next().unwrap().parse().unwrap();
    assert!(size < 64 << 30 >> 12, "{size} pages for {slab:?}");
}

#[test]
fn sixteen_bytes_and_send() {
    fn send<T: Send>() {}
    send::<Buffer>();
    send::<Slab>();
    assert_eq!(size_of::<Buffer>(), 16);
    assert_eq!(size_of::<Option<Buffer>>(), 16);
}

#[test]
fn none_at_all_and_too_many() {
    let _turn = turn();
    let mut empty = Slab::new(0, 2048).unwrap();
    assert!(empty.alloc().is_none());
    assert_eq!((empty.available(), empty.capacity()), (0, 0));
    assert!(Slab::new(usize::MAX, 2048).is_err());
    assert!(Slab::new(1 << 31, 64).is_err());
    assert!(Slab::new(1, usize::MAX).is_err());
}

#[test]
fn free_takes_foreign_buffers_too() {
    let _turn = turn();
    let (mut here, mut there) = (Slab::new(2, 64).unwrap(), Slab::new(2, 64).unwrap());
    let stranger = there.alloc().unwrap();
    here.free(stranger);
    assert_eq!((here.available(), there.available()), (2, 2));
}

#[test]
fn a_drop_on_the_holders_own_thread_comes_home() {
    let _turn = turn();
    let mut slab = Slab::new(3, 100).unwrap();
    for _ in 0..1000 {
        drop(all(&mut slab));
    }
    assert_eq!(slab.available(), 3);
    assert_eq!(slab.overflowed(), 0);
}

/// Many rounds of the whole slab through a small channel to threads that come and go.
#[test]
fn remote_frees_of_many_threads_all_come_home_with_what_was_written() {
    let _turn = turn();
    let mut slab = Slab::new(50, 64).unwrap();
    for round in 0..20u8 {
        std::thread::scope(|scope| {
            let lines: Vec<_> = (0..4)
                .map(|_| {
                    let (to, from) = mpsc::sync_channel::<Buffer>(8);
                    scope.spawn(move || from.iter().for_each(|mut buffer| buffer.fill(!round)));
                    to
                })
                .collect();
            for i in 0..2000 {
                let mut buffer = loop {
                    match slab.alloc() {
                        Some(buffer) => break buffer,
                        None => std::thread::yield_now(),
                    }
                };
                assert!(buffer.iter().all(|&b| b == buffer[0]), "another's bytes");
                buffer.fill(round);
                lines[i % lines.len()].send(buffer).unwrap();
            }
        });
        assert_eq!(slab.available(), 50);
    }
    assert_eq!(
        slab.overflowed(),
        0,
        "queues of threads that ended are used again"
    );
}

#[test]
fn threads_beyond_the_lanes_use_the_overflow_and_are_counted() {
    let _turn = turn();
    let extra = 3;
    let mut slab = Slab::new(QUEUES + extra, 64).unwrap();
    let barrier = Barrier::new(QUEUES + extra);
    std::thread::scope(|scope| {
        for buffer in all(&mut slab) {
            scope.spawn(|| {
                drop(buffer);
                barrier.wait(); // all keep their queues until everyone has dropped
            });
        }
    });
    assert_eq!(slab.overflowed(), extra as u64);
    assert_eq!(slab.available(), QUEUES + extra);
}

/// All queues are taken; one thread ends, the next has its queue, and the one after that none.
#[test]
fn a_thread_that_ends_leaves_its_own_lane_and_no_other() {
    let _turn = turn();
    let mut slab = Slab::new(QUEUES + 2, 64).unwrap();
    let mut buffers = all(&mut slab).into_iter();
    let frees = |buffer: Buffer| {
        let (end, ended) = mpsc::channel::<()>();
        let (freed, was_freed) = mpsc::channel();
        let thread = std::thread::spawn(move || {
            drop(buffer);
            freed.send(()).unwrap();
            let _ = ended.recv();
        });
        was_freed.recv().unwrap();
        (end, thread)
    };
    let mut threads: Vec<_> = buffers.by_ref().take(QUEUES).map(frees).collect();
    let (end, thread) = threads.remove(QUEUES / 2);
    drop(end);
    thread.join().unwrap();
    threads.extend(buffers.next().map(frees));
    assert_eq!(slab.overflowed(), 0);
    threads.extend(buffers.next().map(frees));
    assert_eq!(slab.overflowed(), 1);
    for (end, thread) in threads {
        drop(end);
        thread.join().unwrap();
    }
    assert_eq!(slab.available(), QUEUES + 2);
}

#[test]
fn a_buffer_in_a_thread_local_comes_home_when_the_thread_ends() {
    thread_local! {
        // Two, so that whichever order the destructors run in, one is dropped after the claims are gone.
        static EARLY: RefCell<Vec<Buffer>> = const { RefCell::new(Vec::new()) };
        static LATE: RefCell<Vec<Buffer>> = const { RefCell::new(Vec::new()) };
    }
    let _turn = turn();
    let mut slab = Slab::new(3, 64).unwrap();
    let buffers = all(&mut slab);
    std::thread::spawn(move || {
        let [a, b, c] = <[Buffer; 3]>::try_from(buffers).unwrap();
        EARLY.with(|early| early.borrow_mut().push(a));
        drop(b); // claims the queue: its destructor is registered between the two
        LATE.with(|late| late.borrow_mut().push(c));
    })
    .join()
    .unwrap();
    assert_eq!(slab.available(), 3);
    assert_eq!(
        slab.overflowed(),
        1,
        "the one that came too late for the queue"
    );
}

#[test]
fn a_slab_is_unmapped_at_once_when_all_is_home_and_else_with_its_last_buffer() {
    let _turn = turn();
    let before = mapped();
    let mut slab = Slab::new(4, 64).unwrap();
    let other = Slab::new(4, 64).unwrap();
    assert_eq!(mapped(), before + 2);
    drop(other);
    assert_eq!(mapped(), before + 1);
    let mut out = all(&mut slab);
    drop(out.pop()); // lies in a queue
    drop(slab);
    for mut buffer in out.drain(..) {
        assert_eq!(mapped(), before + 1);
        buffer.fill(7);
        std::thread::spawn(|| drop(buffer)).join().unwrap();
    }
    assert_eq!(mapped(), before);
}

/// The slab dies while other threads drop its buffers.
#[test]
fn a_slab_that_dies_among_drops_is_unmapped() {
    let _turn = turn();
    let before = mapped();
    for _ in 0..200 {
        let mut slab = Slab::new(64, 64).unwrap();
        let mut buffers = all(&mut slab);
        let half = buffers.split_off(32);
        std::thread::scope(|scope| {
            scope.spawn(|| drop(buffers));
            scope.spawn(|| drop(half));
            drop(slab);
        });
        assert_eq!(mapped(), before);
    }
}

#[test]
fn more_slabs_than_a_thread_caches() {
    let _turn = turn();
    let mut slabs: Vec<_> = (0..100).map(|_| Slab::new(2, 64).unwrap()).collect();
    for _ in 0..3 {
        let buffers: Vec<_> = slabs.iter_mut().filter_map(Slab::alloc).collect();
        drop(buffers);
    }
    assert!(
        slabs
            .iter_mut()
            .all(|slab| slab.available() == 2 && slab.overflowed() == 0)
    );
    drop(slabs);
    // Ids go on, and claims on slabs that are gone are forgotten.
    for _ in 0..1000 {
        let mut slab = Slab::new(1, 64).unwrap();
        drop(slab.alloc());
        assert_eq!(slab.available(), 1);
    }
}

/// Pages of the slab's memory that the system holds for us, as the kernel says.
fn resident_kib(at: usize) -> usize {
    let maps = std::fs::read_to_string("/proc/self/smaps").unwrap();
    let mut inside = false;
    for line in maps.lines() {
        let first = line.split_whitespace().next().unwrap_or_default();
        let hex = |s: &str| usize::from_str_radix(s, 16).ok();
        if let Some((from, to)) = first.split_once('-').and_then(|(a, b)| hex(a).zip(hex(b))) {
            inside = (from..to).contains(&at);
        } else if inside && first == "Rss:" {
            let kib = line.split_whitespace().nth(1).unwrap();
            return kib.parse().unwrap();
        }
    }
    panic!("no mapping at {at:#x}");
}

#[test]
fn memory_goes_back_to_the_system_and_buffers_stay() {
    let _turn = turn();
    const BUFFERS: usize = 1000;
    let mut slab = Slab::new(BUFFERS, 2048).unwrap();
    let mut out = all(&mut slab);
    out.iter_mut().for_each(|buffer| buffer.fill(7));
    let at = out[0].as_ptr().addr();
    let full = resident_kib(at);
    // One in the midst stays out: its pages stay, and what is in it.
    let kept = out.swap_remove(BUFFERS / 2);
    out.into_iter().for_each(|buffer| slab.free(buffer));
    let released = slab.release_memory(0);
    let after = resident_kib(at);
    assert!(released > BUFFERS * 2048 - 5 * 4096, "{released} bytes");
    assert!(
        after + released / 1024 <= full + 64,
        "{full} KiB, then {after} KiB"
    );
    assert!(kept.iter().all(|&byte| byte == 7));
    assert_eq!(slab.release_memory(BUFFERS), 0, "all are to be kept");
    let mut again = all(&mut slab);
    assert_eq!(again.len(), BUFFERS - 1);
    again.iter_mut().for_each(|buffer| buffer.fill(9));
    assert!(kept.iter().all(|&byte| byte == 7));
}

/// All neighbours are at home: every page but the last, of which the next thing in memory has a part.
#[test]
fn of_a_whole_slab_all_pages_go_back() {
    let _turn = turn();
    let mut slab = Slab::new(1000, 2048).unwrap();
    drop(all(&mut slab));
    assert_eq!(slab.release_memory(0), 1000 * 33 * 64 / 4096 * 4096);
}

#[test]
fn a_slab_that_never_was_is_not_there() {
    assert!(!super::orphans::lock().is_mapped(u64::MAX));
}

#[test]
fn the_warmest_are_kept() {
    let _turn = turn();
    let mut slab = Slab::new(100, 4032).unwrap();
    let mut out = all(&mut slab);
    out.iter_mut().for_each(|buffer| buffer.fill(7));
    let warm: Vec<_> = out[50..].iter().map(|buffer| buffer.as_ptr()).collect();
    out.into_iter().for_each(|buffer| slab.free(buffer));
    assert!(slab.release_memory(50) > 0);
    let mut kept = Vec::new();
    for warm in warm.iter().rev() {
        let buffer = slab.alloc().unwrap();
        assert_eq!(buffer.as_ptr(), *warm);
        assert!(buffer.iter().all(|&byte| byte == 7));
        kept.push(buffer);
    }
}

#[test]
fn exhaustion_is_counted() {
    let _turn = turn();
    let mut slab = Slab::new(3, 64).unwrap();
    let out = all(&mut slab);
    assert_eq!(slab.exhausted(), 1);
    assert!(slab.alloc().is_none());
    assert_eq!(slab.exhausted(), 2);
    drop(out);
    assert!(slab.alloc().is_some());
    assert_eq!(slab.exhausted(), 2);
}

/// With a magazine of one every allocation looks: what was dropped last is taken next.
#[test]
fn a_small_magazine_takes_what_came_home_at_once() {
    let _turn = turn();
    let mut slab = Slab::new(10, 64).unwrap();
    slab.set_magazine(0); // at least 1
    let first = slab.alloc().unwrap();
    let at = first.as_ptr();
    drop(first);
    assert_eq!(slab.alloc().unwrap().as_ptr(), at);
}

/// What is freed as a reader of the link's buffers frees it is taken again soon: of large buffers no more are walked through than a core's own
/// cache holds.
#[test]
fn large_buffers_are_taken_again_while_they_are_warm() {
    let _turn = turn();
    for (size, most) in [(64 << 10, 4), (16 << 10, 16), (2048, 64), (64, 64)] {
        let mut slab = Slab::new(256, size).unwrap();
        let taken: BTreeSet<_> = (0..1000)
            .map(|_| slab.alloc().unwrap().as_ptr().addr())
            .collect();
        assert_eq!(taken.len(), most, "of {size} bytes");
    }
}

/// A line for the tail and those of the numbers, where something came home; nothing where nothing did.
#[cfg(feature = "operations")]
#[test]
fn a_line_is_counted_where_something_came_home() {
    crate::own::tests::alone("slab::tests::counted");
}

#[cfg(feature = "operations")]
#[test]
#[ignore = "counts all that its process does: another test runs it in one of its own"]
fn counted() {
    use crate::operations::{Operation, read};
    let mut slab = Slab::new(40, 64).unwrap();
    let mut out = all(&mut slab);
    let start = read()[Operation::Line as usize];
    // Numbers of four bytes, sixteen in a line.
    for (home, lines) in [(0, 0), (1, 2), (1, 2), (18, 5), (40, 8)] {
        out.truncate(40 - home);
        assert_eq!(slab.available(), home);
        assert_eq!(read()[Operation::Line as usize] - start, lines);
    }
}
