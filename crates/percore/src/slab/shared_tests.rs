//! Tests of slabs that cross a protection boundary: names and quotas, copies, seals, nonsense from the far side, another process that dies.

use super::{
    BadLayout, BorrowedSlab, BufferName, LendingSlab, MapError, NotLent, Outside, Refused,
    SharedBuffer, SharedLayout, tests::turn,
};
use rustix::{
    fs::{FallocateFlags, MemfdFlags, SealFlags, fallocate, fcntl_add_seals, fcntl_get_seals},
    fs::{fstat, ftruncate, memfd_create},
    io::Errno,
    process::{Signal, getpid, kill_process},
};
use std::{
    collections::HashMap,
    io::{Read as _, Write as _},
    os::fd::AsRawFd,
    process::{Command, Stdio},
};

fn mapped(slab: &LendingSlab) -> BorrowedSlab {
    BorrowedSlab::map(slab.file(), slab.layout()).unwrap()
}

fn lend_one(slab: &mut LendingSlab) -> BufferName {
    let buffer = slab.alloc().unwrap();
    slab.lend(buffer).unwrap()
}

/// Whole, word by word or at once, and nothing beside it.
#[test]
fn a_copy_of_any_length_is_whole() {
    let _turn = turn();
    let size = 2112;
    let mut slab = LendingSlab::new(1, size, 1, 1).unwrap();
    let mut far = mapped(&slab);
    let name = lend_one(&mut slab);
    let text: Vec<u8> = (0..size).map(|i| i.to_le_bytes()[0] | 1).collect();
    for len in (0..80).chain(1000..1100).chain([2048]) {
        for from in [0, 1, 7, 64] {
            far.copy_in(name, 0, &vec![0; size]).unwrap();
            far.copy_in(name, from, &text[..len]).unwrap();
            let mut all = vec![9; size + 2];
            far.copy_out(name, 0, &mut all[1..=size]).unwrap();
            assert_eq!((all[0], all[size + 1]), (9, 9), "{len} from {from}");
            assert_eq!(all[1 + from..][..len], text[..len], "{len} from {from}");
            let beside = all[1..=from].iter().chain(&all[1 + from + len..=size]);
            assert!(beside.into_iter().all(|&b| b == 0), "{len} from {from}");
            let mut part = vec![0; len];
            slab.look(name).unwrap().copy_out(from, &mut part).unwrap();
            assert_eq!(part, text[..len], "{len} from {from}");
        }
    }
}

#[test]
fn what_one_side_copies_in_the_other_copies_out() {
    let _turn = turn();
    for size in [64, 100, 2048, 9000] {
        let mut slab = LendingSlab::new(3, size, 3, 3).unwrap();
        let mut far = mapped(&slab);
        let bytes = size.div_ceil(64) * 64;
        let text: Vec<u8> = (0..bytes).map(|i| i.to_le_bytes()[0]).collect();
        let names: Vec<_> = (0..3).map(|_| lend_one(&mut slab)).collect();
        for name in &names {
            far.copy_in(*name, 0, &text).unwrap();
        }
        for name in &names {
            let mut copy = vec![0; bytes];
            slab.look(*name).unwrap().copy_out(0, &mut copy).unwrap();
            assert_eq!(copy, text);
            let mut buffer = slab.take_back(*name).unwrap();
            assert_eq!(buffer.bytes(), bytes);
            buffer.copy_in(0, &vec![7; bytes]).unwrap();
            far.copy_out(*name, 0, &mut copy).unwrap();
            assert_eq!(copy, vec![7; bytes]);
            slab.free(buffer);
        }
    }
}

/// Every alignment and length around whole words; the bytes beside stay.
#[test]
fn copies_of_every_alignment_touch_what_they_say() {
    let _turn = turn();
    let mut slab = LendingSlab::new(1, 64, 1, 1).unwrap();
    let mut buffer = slab.alloc().unwrap();
    assert_eq!(buffer.bytes(), 64);
    let text: Vec<u8> = (100..164).collect();
    for from in 0..=20 {
        for len in 0..=30 {
            buffer.copy_in(0, &[9; 64]).unwrap();
            buffer.copy_in(from, &text[..len]).unwrap();
            let mut all = [0; 64];
            buffer.copy_out(0, &mut all).unwrap();
            let mut expected = [9; 64];
            expected[from..from + len].copy_from_slice(&text[..len]);
            assert_eq!(all, expected, "{len} bytes at {from}");
            let mut part = vec![0; len];
            buffer.copy_out(from, &mut part).unwrap();
            assert_eq!(part, text[..len]);
        }
    }
}

#[test]
fn nothing_is_copied_beyond_a_buffer() {
    let _turn = turn();
    let mut slab = LendingSlab::new(2, 64, 2, 2).unwrap();
    let mut far = mapped(&slab);
    let mut buffer = slab.alloc().unwrap();
    for (from, len) in [(0, 65), (64, 1), (1, 64), (usize::MAX, 1), (usize::MAX, 2)] {
        assert_eq!(buffer.copy_in(from, &vec![0; len]), Err(Outside));
        assert_eq!(buffer.copy_out(from, &mut vec![0; len]), Err(Outside));
        for index in [0, 1] {
            let name = BufferName {
                index,
                generation: 1,
            };
            assert_eq!(far.copy_in(name, from, &vec![0; len]), Err(Outside));
            assert_eq!(far.copy_out(name, from, &mut vec![0; len]), Err(Outside));
        }
    }
    assert_eq!(buffer.copy_in(64, &[]), Ok(()));
    for index in [2, u32::MAX] {
        let name = BufferName {
            index,
            generation: 1,
        };
        assert_eq!(far.copy_in(name, 0, &[0]), Err(Outside));
        assert_eq!(far.copy_out(name, 0, &mut [0]), Err(Outside));
    }
}

#[test]
fn a_name_is_good_once() {
    let _turn = turn();
    let mut slab = LendingSlab::new(1, 64, 1, 1).unwrap();
    let first = lend_one(&mut slab);
    let buffer = slab.take_back(first).unwrap();
    assert_eq!(slab.take_back(first).err(), Some(Refused::NotLent), "twice");
    let second = slab.lend(buffer).unwrap();
    assert_eq!(second.index, first.index);
    assert_ne!(second.generation, first.generation);
    assert_eq!(slab.take_back(first).err(), Some(Refused::Stale));
    assert_eq!(slab.look(first).err(), Some(Refused::Stale));
    for index in [1, 2, u32::MAX] {
        let name = BufferName { index, ..second };
        assert_eq!(slab.take_back(name).err(), Some(Refused::OutOfRange));
    }
    assert_eq!((slab.lent(), slab.available()), (1, 0));
    drop(slab.take_back(second).unwrap());
    assert_eq!((slab.lent(), slab.available()), (0, 1));
}

#[test]
fn one_that_was_never_lent_is_refused() {
    let _turn = turn();
    let mut slab = LendingSlab::new(2, 64, 2, 2).unwrap();
    let _held = slab.alloc().unwrap();
    for (index, generation) in [(0, 0), (0, 1), (1, 0), (1, u32::MAX)] {
        let name = BufferName { index, generation };
        assert_eq!(slab.take_back(name).err(), Some(Refused::NotLent));
    }
}

#[test]
fn the_far_side_has_no_more_than_its_quota_and_no_others_buffers() {
    let _turn = turn();
    let mut slab = LendingSlab::new(4, 64, 2, 4).unwrap();
    let mut other = LendingSlab::new(4, 64, 2, 4).unwrap();
    let names = [lend_one(&mut slab), lend_one(&mut slab)];
    let third = slab.alloc().unwrap();
    let Err(NotLent::Quota(third)) = slab.lend(third) else {
        panic!("beyond the quota");
    };
    let stranger = other.alloc().unwrap();
    assert!(matches!(slab.lend(stranger), Err(NotLent::Foreign(_))));
    drop(slab.take_back(names[0]).unwrap());
    assert!(slab.lend(third).is_ok());
    assert_eq!((slab.lent(), slab.available()), (2, 2));
    assert_eq!(other.available(), 4);
    assert_eq!((slab.take_back_all(), slab.lent()), (2, 0));
    assert_eq!((slab.available(), slab.take_back_all()), (4, 0));
    assert_eq!(slab.take_back(names[1]).err(), Some(Refused::NotLent));
}

#[test]
fn generations_wrap() {
    let _turn = turn();
    let mut slab = LendingSlab::new(1, 64, 1, 1).unwrap();
    slab.loans.table[0].generation = u32::MAX;
    let name = lend_one(&mut slab);
    assert_eq!(name.generation, 0);
    assert!(slab.take_back(name).is_ok());
}

#[test]
fn a_buffer_dropped_on_another_thread_comes_home_and_an_ended_slab_is_unmapped() {
    let _turn = turn();
    let mut slab = LendingSlab::new(3, 64, 3, 3).unwrap();
    let kept = slab.alloc().unwrap();
    let other = slab.alloc().unwrap();
    std::thread::spawn(move || drop(other)).join().unwrap();
    assert_eq!(slab.available(), 2);
    lend_one(&mut slab);
    let inode = fstat(slab.file()).unwrap().st_ino;
    assert!(is_mapped(inode));
    drop(slab); // one lent, one held
    assert!(is_mapped(inode));
    drop(kept);
    assert!(!is_mapped(inode));
}

/// Whether this process maps the memfd with this inode (proc_pid_maps(5)).
fn is_mapped(inode: u64) -> bool {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let inode = inode.to_string();
    let is_it = |line: &str| {
        let mut words = line.split_whitespace().skip(4);
        words.next() == Some(&inode) && words.next() == Some("/memfd:slab")
    };
    maps.lines().any(is_it)
}

#[test]
fn memory_of_buffers_at_home_goes_back_to_the_system() {
    let _turn = turn();
    let mut slab = LendingSlab::new(100, 4032, 100, 100).unwrap();
    let kib = |slab: &LendingSlab| fstat(slab.file()).unwrap().st_blocks / 2;
    let mut out: Vec<SharedBuffer> = std::iter::from_fn(|| slab.alloc()).collect();
    out.iter_mut()
        .for_each(|b| b.copy_in(0, &[7; 4032]).unwrap());
    let full = kib(&slab);
    let name = slab.lend(out.swap_remove(50)).unwrap();
    out.into_iter().for_each(|buffer| slab.free(buffer));
    let released = i64::try_from(slab.release_memory(0)).unwrap() / 1024;
    assert!(released > 350, "{released} KiB of {full}");
    assert_eq!(kib(&slab), full - released);
    let mut copy = [0; 4032];
    mapped(&slab).copy_out(name, 0, &mut copy).unwrap();
    assert_eq!(copy, [7; 4032], "the one that is out stays");
}

#[test]
fn a_layout_is_read_as_it_was_written_or_refused() {
    for (buffers, bytes) in [(1, 64), (1000, 2048), (7, 65_600), ((1 << 31) - 1, 64)] {
        let layout = SharedLayout::new(buffers, bytes).unwrap();
        assert_eq!(SharedLayout::decode(&layout.encode()), Ok(layout));
        assert!(layout.file_bytes() >= buffers as usize * bytes as usize);
        assert_eq!((layout.buffers(), layout.buffer_bytes()), (buffers, bytes));
    }
    let refused = [
        (0, 64, BadLayout::NoBuffers),
        (1, 0, BadLayout::BufferBytes),
        (1, 63, BadLayout::BufferBytes),
        (1, u32::MAX, BadLayout::BufferBytes),
        (1 << 31, 64, BadLayout::TooLarge),
        (1 << 30, 512, BadLayout::TooLarge),
        (u32::MAX, u32::MAX, BadLayout::TooLarge),
    ];
    for (buffers, bytes, why) in refused {
        assert_eq!(SharedLayout::new(buffers, bytes), Err(why));
    }
    let good = SharedLayout::new(1, 64).unwrap().encode();
    assert_eq!(good[..4], *b"slab");
    let with = |at: usize, byte| {
        let mut bytes = good;
        bytes[at] = byte;
        SharedLayout::decode(&bytes)
    };
    assert_eq!(with(0, b'S'), Err(BadLayout::Magic));
    assert_eq!(with(4, 2), Err(BadLayout::Version(2)));
    assert_eq!(with(7, 1), Err(BadLayout::Version(1 | 1 << 24)));
    assert_eq!(with(8, 0), Err(BadLayout::NoBuffers));
    assert_eq!(with(12, 65), Err(BadLayout::BufferBytes));
}

#[test]
fn a_slab_that_cannot_be_is_refused() {
    let _turn = turn();
    for (buffers, size) in [(0, 64), (1 << 31, 64), (1, 1 << 32), (usize::MAX, 64)] {
        let error = LendingSlab::new(buffers, size, 1, buffers).unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::InvalidInput, "{error}");
    }
    assert!(LendingSlab::new(1, usize::MAX, 1, 1).is_err());
    assert_eq!(
        LendingSlab::new(1, 0, 1, 1)
            .unwrap()
            .layout()
            .buffer_bytes(),
        64
    );
}

/// As the far side would: by the descriptor it was given, and by one of its own from /proc.
#[test]
fn the_far_side_cannot_shorten_the_file_under_us() {
    let _turn = turn();
    let mut slab = LendingSlab::new(8, 4096, 8, 8).unwrap();
    let bytes = slab.layout().file_bytes() as u64;
    let mut buffer = slab.alloc().unwrap();
    buffer.copy_in(0, &[7; 4096]).unwrap();
    let path = format!("/proc/self/fd/{}", slab.file().as_raw_fd());
    let again = std::fs::OpenOptions::new()
        .read(true)
        .write(true)
        .open(path)
        .unwrap();
    for file in [slab.file(), std::os::fd::AsFd::as_fd(&again)] {
        for length in [0, 1, bytes - 1, bytes + 1, 2 * bytes] {
            assert_eq!(ftruncate(file, length), Err(Errno::PERM), "to {length}");
        }
        for seal in [SealFlags::WRITE, SealFlags::FUTURE_WRITE] {
            assert_eq!(fcntl_add_seals(file, seal), Err(Errno::PERM));
        }
    }
    // What it can do is to empty pages: zeros, no signal.
    let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    fallocate(&again, punch, 0, bytes).unwrap();
    let mut copy = [1; 4096];
    buffer.copy_out(0, &mut copy).unwrap();
    assert_eq!(copy, [0; 4096]);
    buffer.copy_in(0, &[8; 4096]).unwrap();
}

#[test]
fn a_file_that_could_be_shortened_is_not_mapped() {
    let _turn = turn();
    let layout = SharedLayout::new(4, 64).unwrap();
    let file = memfd_create("x", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
    ftruncate(&file, layout.file_bytes() as u64).unwrap();
    let map = |layout| BorrowedSlab::map(&file, layout);
    assert!(matches!(map(layout), Err(MapError::NotSealed)));
    fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW).unwrap();
    assert!(matches!(map(layout), Err(MapError::NotSealed)));
    fcntl_add_seals(&file, SealFlags::SEAL).unwrap();
    assert!(map(layout).is_ok());
    let larger = SharedLayout::new(100, 64).unwrap();
    let Err(MapError::Size { expected, found }) = map(larger) else {
        panic!("the size is another");
    };
    assert_eq!((expected, found), (100 * 64 + 1792, 4096));
    let null = std::fs::File::open("/dev/null").unwrap();
    assert!(matches!(
        BorrowedSlab::map(&null, layout),
        Err(MapError::NotSealed)
    ));
    let seals = fcntl_get_seals(LendingSlab::new(1, 64, 1, 1).unwrap().file()).unwrap();
    assert!(seals.contains(SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL));
}

/// xorshift64, with its seed printed: `NETCHAN_SEED`, or of the clock.
struct Random(u64);

impl Random {
    fn new() -> Self {
        let given = std::env::var("NETCHAN_SEED").ok();
        let seed = given
            .and_then(|seed| seed.parse().ok())
            .unwrap_or_else(crate::clock::now_ns);
        println!("NETCHAN_SEED={seed}");
        Self(seed | 1)
    }

    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, n: usize) -> usize {
        let n = u64::try_from(n.max(1)).unwrap();
        usize::try_from((self.next() >> 8) % n).unwrap()
    }

    /// Any number, small ones often.
    fn word(&mut self) -> u32 {
        let bits = [2, 5, 16, 32][self.below(4)];
        u32::try_from(self.next() >> (64 - bits)).unwrap()
    }

    fn name(&mut self) -> BufferName {
        let (index, generation) = (self.word(), self.word());
        BufferName { index, generation }
    }
}

#[cfg(debug_assertions)]
const STEPS: u32 = 100_000;
#[cfg(not(debug_assertions))]
const STEPS: u32 = 1_000_000;

/// What the model knows: the buffers in the owner's hands, and the generation by which each lent one is lent.
#[derive(Default)]
struct Model {
    held: Vec<SharedBuffer>,
    lent: HashMap<u32, u32>,
    said: Vec<BufferName>,
}

impl Model {
    /// The owner takes `name` back exactly if it is lent.
    fn give_back(&mut self, slab: &mut LendingSlab, name: BufferName) {
        let expected = match self.lent.get(&name.index) {
            _ if name.index >= slab.layout().buffers() => Some(Refused::OutOfRange),
            None => Some(Refused::NotLent),
            Some(generation) if *generation != name.generation => Some(Refused::Stale),
            Some(_) => None,
        };
        assert_eq!(slab.look(name).err(), expected);
        let taken = slab.take_back(name);
        assert_eq!(taken.as_ref().err().copied(), expected, "{name:?}");
        if let Ok(buffer) = taken {
            self.lent.remove(&name.index);
            self.held.push(buffer);
        }
    }

    fn lend(&mut self, slab: &mut LendingSlab, quota: usize) {
        let Some(buffer) = self.held.pop().or_else(|| slab.alloc()) else {
            return;
        };
        match slab.lend(buffer) {
            Ok(name) => {
                let before = self.lent.insert(name.index, name.generation);
                assert_eq!(before, None, "lent twice");
                self.said.push(name);
            }
            Err(NotLent::Quota(buffer)) => {
                assert_eq!(self.lent.len(), quota);
                self.held.push(buffer);
            }
            Err(NotLent::Foreign(_)) => panic!("our own"),
        }
    }
}

/// Nonsense as names and layouts, among true ones, in any order: what is taken back is what was lent, no buffer is lost or given twice.
#[test]
fn nonsense_from_the_far_side_loses_and_doubles_nothing() {
    let _turn = turn();
    const BUFFERS: usize = 23;
    const QUOTA: usize = 17;
    let mut random = Random::new();
    let mut slab = LendingSlab::new(BUFFERS, 128, QUOTA, BUFFERS).unwrap();
    let mut far = mapped(&slab);
    let mut model = Model::default();
    let mut read = 0;
    for step in 0..STEPS {
        match random.below(16) {
            0..4 => model.lend(&mut slab, QUOTA),
            4..7 => {
                // Of what was ever said, mostly the last: true, stale, twice.
                let among = random.below(model.said.len()).max(8);
                let back = random.below(among) + 1;
                if let Some(at) = model.said.len().checked_sub(back) {
                    model.give_back(&mut slab, model.said[at]);
                }
            }
            7..11 => model.give_back(&mut slab, random.name()),
            11 => {
                if let Some(buffer) = model.held.pop() {
                    slab.free(buffer);
                }
            }
            12 => {
                let bytes = vec![random.next().to_le_bytes()[0]; random.below(140)];
                let (name, at) = (random.name(), random.below(140));
                let fits = at + bytes.len() <= 128 && (name.index as usize) < BUFFERS;
                assert_eq!(far.copy_in(name, at, &bytes).is_ok(), fits);
            }
            13 => read += usize::from(read_layout(&mut random, slab.layout())),
            14 => drop(model.held.pop()),
            _ if random.below(100) == 0 => {
                assert_eq!(slab.take_back_all(), model.lent.len());
                model.lent.clear();
            }
            _ => {}
        }
        assert_eq!(slab.lent(), model.lent.len());
        if step % 64 == 0 {
            let out = model.held.len() + model.lent.len();
            assert_eq!(slab.available() + out, BUFFERS, "step {step}");
        }
        if model.said.len() > 1000 {
            model.said.drain(..500);
        }
    }
    assert!(read > 100, "some layouts can be read");
    // All are there, each once.
    model.held.clear();
    slab.take_back_all();
    let all: Vec<_> = std::iter::from_fn(|| slab.alloc()).collect();
    let mut indices: Vec<_> = all
        .iter()
        .map(|buffer| slab.slab.index_of(&buffer.0))
        .collect();
    indices.sort_unstable();
    assert_eq!(indices, (0..BUFFERS).map(Some).collect::<Vec<_>>());
}

/// Bytes of a true layout, some of them scribbled over: refused, or such that everything in it is inside the file.
fn read_layout(random: &mut Random, layout: SharedLayout) -> bool {
    let mut bytes = layout.encode();
    for _ in 0..random.below(3) {
        bytes[random.below(16)] = random.next().to_le_bytes()[0];
    }
    let Ok(layout) = SharedLayout::decode(&bytes) else {
        return false;
    };
    assert_eq!(layout.encode(), bytes);
    let (last, size) = (layout.buffers() - 1, layout.buffer_bytes() as usize);
    let at = layout.place(last, 0, size).unwrap();
    assert!(at + size <= layout.file_bytes());
    assert_eq!(layout.place(last, 1, size), Err(Outside));
    assert_eq!(layout.place(layout.buffers(), 0, 0), Err(Outside));
    true
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn name_bytes(name: BufferName) -> [u8; 8] {
    (u64::from(name.generation) << 32 | u64::from(name.index)).to_le_bytes()
}

/// Another process maps the file, writes into a lent buffer, gives it back, and is killed while it has two more.
#[test]
fn all_comes_back_from_a_process_that_dies() {
    let _turn = turn();
    let mut slab = LendingSlab::new(8, 2048, 4, 8).unwrap();
    let mut names = Vec::new();
    let mut sent = slab.layout().encode().to_vec();
    for i in 0..3 {
        let mut buffer = slab.alloc().unwrap();
        buffer.copy_in(5, &[i; 100]).unwrap();
        names.push(slab.lend(buffer).unwrap());
        sent.extend(name_bytes(names[names.len() - 1]));
    }
    let file = slab.file().try_clone_to_owned().unwrap();
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "slab::shared_tests::far_side"])
        .args(["--ignored", "--nocapture"])
        .env("NETCHAN_TEST_LENT", hex(&sent))
        .stdin(Stdio::from(file))
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = String::new();
    let mut stderr = child.stderr.take().unwrap();
    stderr.read_to_string(&mut said).unwrap();
    let status = child.wait().unwrap();
    let signal = std::os::unix::process::ExitStatusExt::signal(&status);
    assert_eq!(signal, Some(Signal::KILL.as_raw()), "{said}");
    let returned = format!("returns {}", hex(&name_bytes(names[1])));
    assert!(said.contains(&returned), "{said}");

    let buffer = slab.take_back(names[1]).unwrap();
    let mut copy = [0; 100];
    buffer.copy_out(2000 - 52, &mut copy).unwrap();
    assert_eq!(copy, [1 ^ 0xff; 100], "what it read, inverted");
    slab.free(buffer);
    assert_eq!((slab.lent(), slab.available()), (2, 6));
    assert_eq!(slab.take_back_all(), 2);
    assert_eq!(slab.available(), 8);
    assert_eq!(slab.take_back(names[0]).err(), Some(Refused::NotLent));
}

/// The other process: the file is its standard input.
#[test]
#[ignore = "the far side of another test, which starts it"]
fn far_side() {
    let Ok(given) = std::env::var("NETCHAN_TEST_LENT") else {
        return;
    };
    let digits = given.as_bytes().chunks(2);
    let given: Vec<u8> = digits
        .map(|digits| u8::from_str_radix(str::from_utf8(digits).unwrap(), 16).unwrap())
        .collect();
    let (layout, names) = given.split_first_chunk().unwrap();
    let layout = SharedLayout::decode(layout).unwrap();
    let mut slab = BorrowedSlab::map(std::io::stdin(), layout).unwrap();
    let name = u64::from_le_bytes(names[8..16].try_into().unwrap());
    let name = BufferName {
        index: u32::try_from(name & 0xffff_ffff).unwrap(),
        generation: u32::try_from(name >> 32).unwrap(),
    };
    let mut text = [0; 100];
    slab.copy_out(name, 5, &mut text).unwrap();
    slab.copy_in(name, 1948, &text.map(|byte| byte ^ 0xff))
        .unwrap();
    let line = format!("returns {}\n", hex(&name_bytes(name)));
    std::io::stderr().write_all(line.as_bytes()).unwrap();
    // To die as it stands.
    kill_process(getpid(), Signal::KILL).unwrap();
}
