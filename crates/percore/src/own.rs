//! Descriptors of our own, in a process whose numbers are the program's: at high numbers, and marked.
//!
//! A program closes what it does not know ("all from 3 up"), and opens what it expects at the lowest number. Ours are
//! therefore moved above its soft limit (`RLIMIT_NOFILE`, which bounds what the kernel gives out, not what is open), or, where the limit is
//! very high, above `FROM_MAX`. A library that serves the program's `close` asks [`is_own`] and leaves ours alone.

use std::{
    fmt, io,
    mem::{self, ManuallyDrop},
    ops::{Deref, DerefMut},
    os::fd::{AsFd, AsRawFd, BorrowedFd, IntoRawFd, OwnedFd, RawFd},
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use rustix::{
    io::{Errno, fcntl_dupfd_cloexec},
    process::{Resource, Rlimit, getrlimit, setrlimit},
};

/// Numbers that can be marked: Linux's default fs.nr_open. What stands above stays where it is.
const NUMBERS: usize = 1 << 20;
const WORD: usize = 64;
/// The highest start: a fork copies the table up to the highest number, here 128 KiB of it.
const FROM_MAX: u64 = 16_384;
/// As many numbers above the program's limit are asked for.
const ROOM: u64 = 4096;

/// One bit for each number. Relaxed throughout: a question about a number that is made or closed at that moment gets either answer.
static MARKS: [AtomicU64; NUMBERS / WORD] = [const { AtomicU64::new(0) }; NUMBERS / WORD];
/// While the limit is raised, and while a number is not marked that is open already or still: a child made then would keep it.
static LIMIT: Mutex<()> = Mutex::new(());

fn place(fd: RawFd) -> Option<(&'static AtomicU64, u64)> {
    let number = usize::try_from(fd).ok()?;
    let word = MARKS.get(number / WORD)?;
    Some((word, 1 << (number % WORD)))
}

/// Whether `fd` is one of ours.
#[inline]
pub fn is_own(fd: RawFd) -> bool {
    place(fd).is_some_and(|(word, bit)| word.load(Relaxed) & bit != 0)
}

/// The lowest of ours in `first..=last`.
pub fn first_own(first: RawFd, last: RawFd) -> Option<RawFd> {
    let first = usize::try_from(first).unwrap_or(0);
    let last = usize::try_from(last).ok()?.min(NUMBERS - 1);
    let mut number = first;
    while number <= last {
        let word = MARKS[number / WORD].load(Relaxed) >> (number % WORD);
        if word == 0 {
            number += WORD - number % WORD;
            continue;
        }
        number += word.trailing_zeros() as usize;
        return RawFd::try_from(number).ok().filter(|_| number <= last);
    }
    None
}

/// In a forked child, whose parent has the stack: closes ours there but `kept`, so that the child keeps no link open.
pub fn abandon(kept: &[RawFd]) {
    let mut from = 0;
    while let Some(fd) = first_own(from, RawFd::MAX) {
        from = fd.saturating_add(1);
        if kept.contains(&fd) {
            continue;
        }
        unmark(fd);
        // SAFETY: the child's copy of a descriptor that nothing in the child uses.
        unsafe { rustix::io::close(fd) };
    }
}

/// The lock under which numbers are made, for the time of a fork.
pub fn held_for_fork() -> MutexGuard<'static, ()> {
    LIMIT.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Marks a descriptor that is not taken over yet.
pub fn mark(fd: RawFd) {
    if let Some((word, bit)) = place(fd) {
        word.fetch_or(bit, Relaxed);
    }
}

fn unmark(fd: RawFd) {
    if let Some((word, bit)) = place(fd) {
        word.fetch_and(!bit, Relaxed);
    }
}

/// A descriptor of ours, as a `T` (an [`OwnedFd`], a file, a socket); unmarked and closed when dropped.
pub struct Own<T: AsRawFd = OwnedFd>(ManuallyDrop<T>);

impl<T: AsRawFd + From<OwnedFd> + Into<OwnedFd>> Own<T> {
    /// Moves `open` to a high number and marks it. It keeps its number where there is none.
    pub fn keep(open: T) -> Self {
        let low: OwnedFd = open.into();
        let moved = with_room(|from| {
            let high = fcntl_dupfd_cloexec(low.as_fd(), from)?;
            mark(high.as_raw_fd());
            Ok(high)
        });
        let kept = match moved {
            Ok(high) => {
                // Not by the C library's close: that is the program's.
                // SAFETY: owned until here.
                unsafe { rustix::io::close(low.into_raw_fd()) };
                high
            }
            Err(_) => {
                mark(low.as_raw_fd());
                low
            }
        };
        Self(ManuallyDrop::new(T::from(kept)))
    }

    /// Marks `open` where it stands: others know it by its number.
    pub fn stay(open: T) -> Self {
        mark(open.as_raw_fd());
        Self(ManuallyDrop::new(open))
    }

    /// What `make` makes, kept; also where the program has used up its numbers.
    ///
    /// # Errors
    /// `make`'s.
    pub fn open(make: impl Fn() -> io::Result<T>) -> io::Result<Self> {
        let made = match make() {
            Err(error) if error.raw_os_error() == Some(Errno::MFILE.raw_os_error()) => {
                with_room(|_| make())
            }
            made => made,
        };
        made.map(Self::keep)
    }
}

/// Runs `make` with numbers to spare above the program's limit, if the hard limit allows; it is told from which number on to look.
fn with_room<T>(make: impl FnOnce(RawFd) -> io::Result<T>) -> io::Result<T> {
    let _raised = LIMIT.lock().unwrap_or_else(PoisonError::into_inner);
    let before = getrlimit(Resource::Nofile);
    let soft = before.current.unwrap_or(u64::MAX);
    let hard = before.maximum.unwrap_or(u64::MAX);
    let number = |from: u64| RawFd::try_from(from).unwrap_or(0);
    if soft > FROM_MAX + ROOM {
        return make(number(FROM_MAX));
    }
    let raised = Rlimit {
        current: Some(hard.min(soft + ROOM)),
        maximum: before.maximum,
    };
    if hard <= soft || setrlimit(Resource::Nofile, raised).is_err() {
        return make(number(soft - soft / 8)); // high at least
    }
    let made = make(number(soft));
    if getrlimit(Resource::Nofile) == raised {
        let _ = setrlimit(Resource::Nofile, before); // lowering is always allowed
    }
    made
}

impl<T: AsRawFd> Drop for Own<T> {
    fn drop(&mut self) {
        let fd = self.0.as_raw_fd();
        let _no_fork = held_for_fork();
        unmark(fd);
        // Not by the C library's close: that is the program's.
        // SAFETY: all that a `T` owns, which is not used after this.
        unsafe { rustix::io::close(fd) };
    }
}

impl<T: AsRawFd> Deref for Own<T> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T: AsRawFd> DerefMut for Own<T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.0
    }
}

impl<T: AsRawFd + AsFd> AsFd for Own<T> {
    #[inline]
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl<T: AsRawFd + AsFd> io::Read for Own<T> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        Ok(rustix::io::read(&*self, bytes)?)
    }
}

impl<T: AsRawFd + AsFd> io::Write for Own<T> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Ok(rustix::io::write(&*self, bytes)?)
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<T: AsRawFd + fmt::Debug> fmt::Debug for Own<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

const _: () = assert!(mem::size_of::<Own>() == mem::size_of::<OwnedFd>());

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use std::fs::File;

    #[test]
    fn one_that_stays_is_marked() {
        let file = Own::stay(File::open("/dev/null").unwrap());
        let number = file.as_raw_fd();
        assert!(is_own(number));
        drop(file);
        assert!(!is_own(number));
    }

    #[test]
    fn a_kept_file_stands_high_and_is_marked() {
        let low = File::open("/dev/null").unwrap();
        let number = low.as_raw_fd();
        let kept = Own::keep(low);
        let high = kept.as_raw_fd();
        let limit = getrlimit(Resource::Nofile);
        assert!(high > number && high >= 100, "{high}");
        assert!(is_own(high) && !is_own(number) && !is_own(-1) && !is_own(RawFd::MAX));
        assert_eq!(first_own(high, high), Some(high));
        assert_eq!(first_own(high, RawFd::MAX), Some(high));
        assert!(rustix::io::fcntl_getfd(&kept).unwrap() == rustix::io::FdFlags::CLOEXEC);
        drop(kept);
        assert!(!is_own(high));
        assert_eq!(getrlimit(Resource::Nofile), limit, "as before");
        assert!(first_own(high, high).is_none());
    }

    /// Beside each other, in one word of the table and in several, at a word's end and at the table's; of numbers that no descriptor has.
    #[test]
    fn the_lowest_of_a_stretch() {
        let end = RawFd::try_from(NUMBERS).unwrap();
        let marked = [
            end - 200,
            end - 199,
            end - 129,
            end - 128,
            end - 70,
            end - 1,
        ];
        marked.into_iter().for_each(mark);
        for first in end - 210..end + 2 {
            for last in [
                first - 1,
                first,
                first + 1,
                first + 63,
                first + 130,
                RawFd::MAX,
            ] {
                let lowest = marked
                    .into_iter()
                    .find(|number| (first..=last).contains(number));
                assert_eq!(first_own(first, last), lowest, "{first} to {last}");
            }
        }
        marked.into_iter().for_each(unmark);
        assert_eq!(first_own(end - 210, RawFd::MAX), None);
    }

    #[test]
    fn it_is_read_and_written_as_what_it_is() {
        let (from, to) = rustix::pipe::pipe().unwrap();
        let (mut from, mut to) = (Own::keep(File::from(from)), Own::keep(File::from(to)));
        assert_eq!(io::Write::write(&mut to, b"seven").unwrap(), 5);
        let mut bytes = [0; 9];
        assert_eq!(io::Read::read(&mut from, &mut bytes).unwrap(), 5);
        assert_eq!(&bytes[..5], b"seven");
    }

    #[test]
    fn what_cannot_be_opened_is_tried_once() {
        let tries = std::cell::Cell::new(0);
        let opened = Own::open(|| {
            tries.set(tries.get() + 1);
            File::open("/no such file")
        });
        assert_eq!(
            opened.err().map(|error| error.kind()),
            Some(io::ErrorKind::NotFound)
        );
        assert_eq!(tries.get(), 1);
    }

    /// Runs an ignored test in a process of its own: limits, marks and clocks are a whole process's.
    pub(crate) fn alone(name: &str) {
        let program = std::env::current_exe().unwrap();
        let child = std::process::Command::new(program)
            .args(["--exact", name, "--ignored", "--nocapture"])
            .output()
            .unwrap();
        let said = [child.stdout, child.stderr].concat();
        let said = String::from_utf8_lossy(&said);
        assert!(
            child.status.success() && said.contains("1 passed"),
            "{said}"
        );
    }

    #[test]
    fn where_numbers_stand_by_the_limits() {
        alone("own::tests::by_the_limits");
    }

    #[test]
    fn what_is_abandoned_is_closed_but_for_what_is_kept() {
        alone("own::tests::abandoned");
    }

    fn limits(soft: u64, hard: u64) -> bool {
        let limit = Rlimit {
            current: Some(soft),
            maximum: Some(hard),
        };
        setrlimit(Resource::Nofile, limit).is_ok()
    }

    /// The number that a file gets by such limits, which stand afterwards as before.
    fn number_by(soft: u64, hard: u64) -> u64 {
        assert!(limits(soft, hard));
        let kept = Own::open(|| File::open("/dev/null")).unwrap();
        let now = getrlimit(Resource::Nofile);
        assert_eq!((now.current, now.maximum), (Some(soft), Some(hard)));
        u64::try_from(kept.as_raw_fd()).unwrap()
    }

    #[test]
    #[ignore = "changes its process: another test runs it in one of its own"]
    fn by_the_limits() {
        let hard = getrlimit(Resource::Nofile).maximum.unwrap_or(1 << 20);
        // A higher one needs a right that not every user has.
        let hard = if limits(64, 40_000) { 40_000 } else { hard };
        if hard > FROM_MAX + 2 * ROOM {
            assert_eq!(number_by(FROM_MAX + ROOM, hard), FROM_MAX + ROOM);
            assert_eq!(number_by(FROM_MAX + ROOM + 1, hard), FROM_MAX);
        }
        assert_eq!(number_by(100, hard), 100);
        // The program has used up its numbers: it is opened above them, and stands there.
        let free = u64::try_from(File::open("/dev/null").unwrap().as_raw_fd()).unwrap();
        assert_eq!(number_by(free, hard), free + 1);
        // No room above: high at least.
        assert_eq!(number_by(80, 80), 70);
    }

    #[test]
    #[ignore = "closes what its process has: another test runs it in one of its own"]
    fn abandoned() {
        let open = || Own::keep(File::open("/dev/null").unwrap());
        let (first, kept, last) = (open(), open(), open());
        abandon(&[kept.as_raw_fd()]);
        let there = |fd: RawFd| std::path::Path::new(&format!("/proc/self/fd/{fd}")).exists();
        assert!(is_own(kept.as_raw_fd()) && there(kept.as_raw_fd()));
        for gone in [first, last] {
            assert!(!is_own(gone.as_raw_fd()) && !there(gone.as_raw_fd()));
            mem::forget(gone);
        }
    }
}
