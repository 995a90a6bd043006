//! Experiment `slab` (D5): a buffer taken and given back, on one core and across two, beside malloc and pools of the same buffers.

use std::{
    cell::RefCell,
    hint::{black_box, spin_loop},
    mem::MaybeUninit,
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
};

use crossbeam_queue::ArrayQueue;
use percore::{
    ring::ring,
    slab::{Buffer, Slab},
};

use super::{Bench, Player, per_operation, report};
use crate::{
    experiment::{Experiment, LabError},
    kit::seconds,
    report::Row,
};

pub(crate) const EXPERIMENT: Experiment = Experiment {
    name: "slab",
    question: "What do taking a buffer of 2 KiB and giving it back cost, on the same core and from another one?",
    prediction: "Local: 3 to 4 ns one by one and 2 to 3 ns each in bursts of 32; malloc without zeroing 15 to 25 ns (2 KiB is beyond most of its caches), a shared queue of buffers 10 ns. \
        From another core, in bursts of 32: 3 to 4 ns where it is freed (a store into a lane, a line of 16 slots now and then), 3 to 5 ns where it comes home; malloc 20 to 40 ns.",
    run: |experiment, options| report(experiment, options, rows),
};

const BUFFERS: usize = 4096;
const BURST: usize = 32;
const SIZE: usize = 2048;

/// What malloc gives: 2 KiB, not zeroed.
type Bytes = Box<[MaybeUninit<u8>]>;

fn malloc() -> Bytes {
    Box::new_uninit_slice(SIZE)
}

/// What is done with every buffer: its first byte is written.
#[inline(always)]
fn touch(mut buffer: Buffer) -> Buffer {
    buffer[0] = 7;
    buffer
}

/// [`touch`] for malloc's buffers.
#[inline(always)]
fn touch_bytes(mut bytes: Bytes) -> Bytes {
    bytes[0].write(7);
    bytes
}

const OURS: &str = "slab";
const MALLOC: &str = "malloc";
const QUEUE: &str = "ArrayQueue of buffers";
const STACK: &str = "Vec of buffers";

/// A pool in a queue that any thread can use.
fn pool() -> ArrayQueue<Bytes> {
    let pool = ArrayQueue::new(BUFFERS);
    (0..BUFFERS).for_each(|_| drop(pool.push(malloc())));
    pool
}

fn one_by_one(bench: &Bench, slab: &RefCell<Slab>, pool: &ArrayQueue<Bytes>) -> [Row; 3] {
    let n = bench.work;
    let mut stack: Vec<Bytes> = (0..BUFFERS).map(|_| malloc()).collect();
    let scores = bench.contest(vec![
        Player::own(OURS, || {
            let mut slab = slab.borrow_mut();
            bench.repeat(n, || {
                let buffer = black_box(slab.alloc().map(touch));
                buffer.map(|buffer| slab.free(buffer))
            })
        }),
        Player::own("drop", || {
            let mut slab = slab.borrow_mut();
            bench.repeat(n, || drop(black_box(slab.alloc().map(touch))))
        }),
        Player::own(STACK, || {
            bench.repeat(n, || {
                let bytes = black_box(stack.pop().map(touch_bytes));
                bytes.map(|bytes| stack.push(bytes))
            })
        }),
        Player::peer(MALLOC, || {
            bench.repeat(n, || drop(black_box(touch_bytes(malloc()))))
        }),
        Player::peer(QUEUE, || {
            bench.repeat(n, || {
                let bytes = black_box(pool.pop().map(touch_bytes));
                bytes.map(|bytes| pool.push(bytes).is_ok())
            })
        }),
    ]);
    let row = scores.row("alloc_free_local_ns", OURS);
    [
        row.reference("282 (D5)").target("<= 6"),
        scores.row("alloc_drop_local_ns", "drop"),
        // What a pool costs that one thread alone can use: a floor.
        scores.bare_row("vec_pool_local_ns", STACK),
    ]
}

/// Takes `burst`, then gives all of them back, in the order in which they came.
fn in_bursts(
    bench: &Bench,
    slab: &RefCell<Slab>,
    pool: &ArrayQueue<Bytes>,
    burst: usize,
) -> [Row; 2] {
    let rounds = (bench.work / burst).max(1);
    let bursts =
        |once: &mut dyn FnMut()| bench.time(rounds * burst, || (0..rounds).for_each(|_| once()));
    let mut freed: Vec<Buffer> = Vec::with_capacity(burst);
    let mut dropped: Vec<Buffer> = Vec::with_capacity(burst);
    let mut boxes: Vec<Bytes> = Vec::with_capacity(burst);
    let mut pooled: Vec<Bytes> = Vec::with_capacity(burst);
    let scores = bench.contest(vec![
        Player::own(OURS, || {
            let mut slab = slab.borrow_mut();
            bursts(&mut || {
                freed.extend((0..burst).filter_map(|_| slab.alloc().map(touch)));
                let freed = black_box(&mut freed);
                freed.drain(..).for_each(|buffer| slab.free(buffer));
            })
        }),
        Player::own("drop", || {
            let mut slab = slab.borrow_mut();
            bursts(&mut || {
                dropped.extend((0..burst).filter_map(|_| slab.alloc().map(touch)));
                black_box(&mut dropped).clear();
            })
        }),
        Player::peer(MALLOC, || {
            bursts(&mut || {
                boxes.extend((0..burst).map(|_| touch_bytes(malloc())));
                black_box(&mut boxes).clear();
            })
        }),
        Player::peer(QUEUE, || {
            bursts(&mut || {
                pooled.extend((0..burst).filter_map(|_| pool.pop().map(touch_bytes)));
                let pooled = black_box(&mut pooled);
                pooled.drain(..).for_each(|bytes| drop(pool.push(bytes)));
            })
        }),
    ]);
    [
        scores.row(&format!("alloc_free_local_burst{burst}_ns"), OURS),
        scores.row(&format!("alloc_drop_local_burst{burst}_ns"), "drop"),
    ]
}

/// A buffer out, another one home by the remote-free queue: what looking seldom saves, and where it stops saving.
fn magazines(bench: &Bench) -> Result<Vec<Row>, LabError> {
    const SIZES: [(usize, &str); 5] = [
        (1, "magazine1_ns"),
        (8, "magazine8_ns"),
        (32, "magazine32_ns"),
        (64, "magazine64_ns"),
        (256, "magazine256_ns"),
    ];
    let rounds = (bench.work / BURST).max(1);
    let mut slabs = Vec::new();
    for (magazine, id) in SIZES {
        let mut slab = Slab::new(BUFFERS, SIZE)?;
        slab.set_magazine(magazine);
        slabs.push((id, slab));
    }
    let players = slabs.iter_mut().map(|(id, slab)| {
        let mut taken: Vec<Buffer> = Vec::with_capacity(BURST);
        Player::own(id, move || {
            bench.time(rounds * BURST, || {
                for _ in 0..rounds {
                    // Each is written to: a cold buffer costs a cache miss.
                    taken.extend((0..BURST).filter_map(|_| slab.alloc().map(touch)));
                    black_box(&mut taken).clear();
                }
            })
        })
    });
    let scores = bench.contest(players.collect());
    Ok(SIZES.map(|(_, id)| scores.bare_row(id, id)).to_vec())
}

/// Memory that another core gives back.
trait Remote {
    /// What is handed over.
    type Item: Send;
    /// One, written to.
    fn take(&mut self) -> Option<Self::Item>;
    /// What its owner does so that it can be taken again; nothing where freeing is all.
    fn come_home(&mut self);
    /// A byte of it: it is looked at before it is freed.
    fn look(item: &Self::Item) -> u8;
    /// What gives it back, from any thread.
    fn freer(&self) -> impl Fn(Self::Item) + Sync + use<Self>
    where
        Self: Sized;
}

impl Remote for Slab {
    type Item = Buffer;

    fn take(&mut self) -> Option<Buffer> {
        self.alloc().map(touch)
    }

    fn come_home(&mut self) {
        black_box(self.available());
    }

    fn look(item: &Buffer) -> u8 {
        item[0]
    }

    fn freer(&self) -> impl Fn(Buffer) + Sync + use<> {
        drop
    }
}

/// malloc, whose owner has nothing to do.
struct Malloc;

impl Remote for Malloc {
    type Item = Bytes;

    fn take(&mut self) -> Option<Bytes> {
        Some(touch_bytes(malloc()))
    }

    fn come_home(&mut self) {}

    fn look(item: &Bytes) -> u8 {
        u8::from(!black_box(item).is_empty())
    }

    fn freer(&self) -> impl Fn(Bytes) + Sync + use<> {
        drop
    }
}

impl Remote for Arc<ArrayQueue<Bytes>> {
    type Item = Bytes;

    fn take(&mut self) -> Option<Bytes> {
        self.pop().map(touch_bytes)
    }

    fn come_home(&mut self) {}

    fn look(item: &Bytes) -> u8 {
        Malloc::look(item)
    }

    fn freer(&self) -> impl Fn(Bytes) + Sync + use<> {
        let queue = self.clone();
        move |bytes| drop(queue.push(bytes))
    }
}

/// Nanoseconds for each buffer: on the core that frees it; on the core that owns it, to have it back; and these with taking it again.
type Shares = [f64; 3];

/// The owner takes a burst and hands it to the other core, which looks at it and frees it; then the owner has it come home. In turn, so that
/// each side's share can be told. The first round is not counted: in it the freeing thread is introduced to the slab.
fn remote<R: Remote>(bench: &Bench, cores: [usize; 2], burst: usize, owner: &mut R) -> Shares {
    let rounds = 1 + (bench.work / burst / 4).max(1);
    let (mut tx, mut rx) = ring::<R::Item>(burst);
    let (freed, free_ns) = (AtomicUsize::new(0), AtomicU64::new(0));
    let free = owner.freer();
    let there = || {
        let (mut mine, mut total, mut sum) = (Vec::with_capacity(burst), 0.0, 0_u64);
        for round in 1..=rounds {
            while mine.len() < burst {
                if rx.pop_batch(burst, |item| mine.push(item)) == 0 {
                    spin_loop();
                }
            }
            sum += mine
                .iter()
                .map(|item| u64::from(R::look(item)))
                .sum::<u64>();
            let took = seconds(|| mine.drain(..).for_each(&free));
            total += if round > 1 { took } else { 0.0 };
            freed.store(round, Ordering::Release); // pairs with Acquire below
        }
        black_box(sum);
        free_ns.store(f64::to_bits(total), Ordering::Relaxed); // ordered by the join
    };
    let here = || {
        let (mut mine, mut home, mut take) = (Vec::with_capacity(burst), 0.0, 0.0);
        for round in 1..=rounds {
            let took = seconds(|| mine.extend((0..burst).map_while(|_| owner.take())));
            assert_eq!(mine.len(), burst, "all that was freed came home");
            tx.push_iter(mine.drain(..));
            // pairs with Release above
            while freed.load(Ordering::Acquire) < round {
                spin_loop();
            }
            let homed = seconds(|| owner.come_home());
            if round > 1 {
                (home, take) = (home + homed, take + took);
            }
        }
        (home, take)
    };
    let (home, take) = bench.together(cores, here, there);
    let each = |seconds| per_operation(seconds, (rounds - 1) * burst);
    let freeing = each(f64::from_bits(free_ns.load(Ordering::Relaxed)));
    [freeing, each(home), freeing + each(home) + each(take)]
}

/// The rows of memory that is freed on the other core, `burst` buffers at a time.
fn remote_rows(bench: &Bench, cores: [usize; 2], burst: usize) -> Result<[Row; 3], LabError> {
    let mut slab = Slab::new(BUFFERS, SIZE)?;
    let mut queue = Arc::new(pool());
    let [here, there, all] = bench.contest_of(vec![
        Player::own_of(OURS, || remote(bench, cores, burst, &mut slab)),
        Player::peer_of(MALLOC, || remote(bench, cores, burst, &mut Malloc)),
        Player::peer_of(QUEUE, || remote(bench, cores, burst, &mut queue)),
    ]);
    let id = |name: &str| match burst {
        BURST => format!("{name}_ns"),
        n => format!("{name}_burst{n}_ns"),
    };
    Ok([
        here.row(&id("free_remote_here"), OURS)
            .reference("262 (D5)")
            .target("<= 8 amortised"),
        there
            .bare_row(&id("free_remote_there"), OURS)
            .reference("359 (D5)")
            .target("<= 8 amortised"),
        all.row(&id("alloc_free_remote_all"), OURS)
            .target("not behind"),
    ])
}

/// All rows.
pub(super) fn rows(bench: &Bench) -> Result<Vec<Row>, LabError> {
    let slab = RefCell::new(Slab::new(BUFFERS, SIZE)?);
    let pool = pool();
    let mut rows = one_by_one(bench, &slab, &pool).to_vec();
    for burst in [BURST, 16 * BURST] {
        rows.extend(in_bursts(bench, &slab, &pool, burst));
    }
    rows.extend(magazines(bench)?);
    if let Some(cores) = bench.two {
        for burst in [BURST, 16 * BURST] {
            rows.extend(remote_rows(bench, cores, burst)?);
        }
    }
    Ok(rows)
}
