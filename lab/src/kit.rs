//! The measuring kit: one core for a thread, rounds that alternate between the sides, medians, and a watch of its own.

use rustix::time::{ClockId, clock_gettime};
use std::{env, path::PathBuf, time::Instant};

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// The values of one side, one for each round.
#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    sorted: Vec<f64>,
}

impl Sample {
    /// Of `values`, at least one.
    ///
    /// # Panics
    /// Without a value, or with one that is not a number.
    #[must_use]
    pub fn of(mut values: Vec<f64>) -> Self {
        assert!(!values.is_empty(), "a sample without values");
        values.sort_by(|a, b| a.partial_cmp(b).expect("a measured value is a number"));
        Self { sorted: values }
    }

    /// The middle one, or the mean of the two in the middle.
    #[must_use]
    pub fn median(&self) -> f64 {
        let n = self.sorted.len();
        f64::midpoint(self.sorted[(n - 1) / 2], self.sorted[n / 2])
    }

    /// The least.
    #[must_use]
    pub fn min(&self) -> f64 {
        self.sorted[0]
    }

    /// The greatest.
    #[must_use]
    pub fn max(&self) -> f64 {
        self.sorted[self.sorted.len() - 1]
    }

    /// How many values.
    #[must_use]
    pub const fn count(&self) -> usize {
        self.sorted.len()
    }

    /// A 95 % interval, least and greatest; none of a single value.
    ///
    /// Of six values and more it is the median's, by order statistics, whatever their distribution: the k-th least and the k-th greatest, with
    /// the greatest k that leaves at most 5 % outside. Fewer values have no such interval: then it is the mean's by Student's t, which
    /// takes them for normal.
    #[must_use]
    pub fn interval(&self) -> Option<(f64, f64)> {
        /// Student's t, 97.5 %, for 1 to 4 degrees of freedom.
        const T: [f64; 4] = [12.706, 4.303, 3.182, 2.776];
        let n = self.sorted.len();
        if n < 2 {
            return None;
        }
        #[allow(clippy::cast_precision_loss)] // a few values
        let count = n as f64;
        if let Some(t) = T.get(n - 2) {
            let mean = self.sorted.iter().sum::<f64>() / count;
            let squares = self.sorted.iter().map(|v| (v - mean).powi(2));
            let deviation = (squares.sum::<f64>() / (count - 1.0)).sqrt();
            let half = t * deviation / count.sqrt();
            return Some((mean - half, mean + half));
        }
        // `below`: that at most k of n values lie below the median, each by the toss of a coin.
        let (mut k, mut tosses) = (0, 0.5_f64.powf(count));
        let mut below = tosses;
        #[allow(clippy::cast_precision_loss)] // as above
        while 2.0 * below <= 0.05 {
            k += 1;
            tosses *= (n - k + 1) as f64 / k as f64;
            below += tosses;
        }
        let k = k.max(1);
        Some((self.sorted[k - 1], self.sorted[n - k]))
    }

    /// Each value changed by `f`.
    #[must_use]
    pub fn map(&self, f: impl Fn(f64) -> f64) -> Self {
        Self::of(self.sorted.iter().copied().map(f).collect())
    }
}

/// Runs from its start, by the operating system's clock: the referee does not use the clock of a player.
#[derive(Clone, Copy, Debug)]
pub struct Stopwatch(Instant);

impl Stopwatch {
    /// Begins.
    #[must_use]
    #[allow(clippy::disallowed_methods)] // see above
    pub fn start() -> Self {
        Self(Instant::now())
    }

    /// Since then.
    #[must_use]
    pub fn seconds(self) -> f64 {
        self.0.elapsed().as_secs_f64()
    }
}

/// Seconds that `work` took.
pub fn seconds(work: impl FnOnce()) -> f64 {
    let watch = Stopwatch::start();
    work();
    watch.seconds()
}

/// Seconds of processor time that the calling thread has had so far.
#[must_use]
#[allow(clippy::cast_precision_loss)] // below 2^52
pub fn processor_seconds() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 * 1e-9
}

/// Seconds of processor time that the whole process has had so far.
#[must_use]
#[allow(clippy::cast_precision_loss)] // below 2^52
pub fn process_seconds() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 * 1e-9
}

/// One side of a comparison: does its work once and returns the figure.
pub type Side<'a> = &'a mut dyn FnMut() -> f64;

/// `rounds` rounds in which the sides take turns (A B A B …), after one each that is thrown away: what drifts on the
/// machine, drifts for all.
pub fn interleave(rounds: usize, sides: &mut [Side<'_>]) -> Vec<Sample> {
    let mut values = vec![Vec::with_capacity(rounds); sides.len()];
    for side in sides.iter_mut() {
        side();
    }
    for _ in 0..rounds.max(1) {
        for (side, values) in sides.iter_mut().zip(&mut values) {
            values.push(side());
        }
    }
    values.into_iter().map(Sample::of).collect()
}

/// The cores that this thread may use, lowest first.
#[must_use]
pub fn cores() -> Vec<usize> {
    let may = sched_getaffinity(None).unwrap_or_else(|_| CpuSet::new());
    (0..CpuSet::MAX_CPU)
        .filter(|core| may.is_set(*core))
        .collect()
}

/// Where a program is: Debian's folders for it before what stands in PATH.
#[must_use]
pub fn find_program(program: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    ["/usr/bin", "/usr/sbin", "/bin", "/sbin"]
        .iter()
        .map(PathBuf::from)
        .chain(env::split_paths(&path))
        .map(|folder| folder.join(program))
        .find(|file| file.is_file())
}

/// The program that this library is linked into.
pub(crate) fn netchan() -> Result<PathBuf, String> {
    env::current_exe().map_err(|e| e.to_string())
}

/// While it lives, this thread stays on one core.
pub struct Pinned {
    before: Option<CpuSet>,
}

impl Pinned {
    /// Pins to the last core this thread may use: interrupts and idle work like the first. Where that is refused, the run goes on unpinned.
    #[must_use]
    pub fn to_last_core() -> Self {
        cores()
            .last()
            .map_or(Self { before: None }, |last| Self::to(*last))
    }

    /// Pins to `core`. Where that is refused, the thread goes on unpinned.
    #[must_use]
    pub fn to(core: usize) -> Self {
        let Ok(before) = sched_getaffinity(None) else {
            return Self { before: None };
        };
        let mut one = CpuSet::new();
        one.set(core);
        let before = sched_setaffinity(None, &one).is_ok().then_some(before);
        Self { before }
    }

    /// Whether it worked.
    #[must_use]
    pub const fn is_pinned(&self) -> bool {
        self.before.is_some()
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        if let Some(before) = &self.before {
            // What was allowed before is allowed now; if not, the thread stays where it is.
            let _ = sched_setaffinity(None, before);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_the_middle() {
        assert_eq!(Sample::of(vec![5.0, 1.0, 3.0]).median(), 3.0);
        assert_eq!(Sample::of(vec![4.0, 1.0, 3.0, 2.0]).median(), 2.5);
        let s = Sample::of(vec![4.0, 1.0]).map(|v| 1.0 / v);
        assert_eq!((s.min(), s.max()), (0.25, 1.0));
    }

    #[test]
    fn interval_of_six_and_more_is_by_order_statistics() {
        let to = |n: i32| Sample::of((1..=n).map(f64::from).collect());
        // The tables of the sign test: k = 1 from 6 on, 2 from 9, 3 from 12, 6 from 20.
        for (n, low) in [(6, 1.0), (8, 1.0), (9, 2.0), (12, 3.0), (20, 6.0)] {
            let high = f64::from(n) + 1.0 - low;
            assert_eq!(to(n).interval(), Some((low, high)), "{n}");
        }
    }

    #[test]
    fn interval_of_few_is_students() {
        let (low, high) = Sample::of(vec![1.0, 2.0, 3.0]).interval().unwrap();
        assert!((low - (2.0 - 2.4843)).abs() < 1e-3 && (high - (2.0 + 2.4843)).abs() < 1e-3);
        assert_eq!(Sample::of(vec![1.0]).interval(), None);
    }

    #[test]
    fn sides_take_turns() {
        let order = std::cell::RefCell::new(String::new());
        let mut a = || {
            order.borrow_mut().push('a');
            1.0
        };
        let mut b = || {
            order.borrow_mut().push('b');
            2.0
        };
        let samples = interleave(3, &mut [&mut a, &mut b]);
        assert_eq!(*order.borrow(), "abababab");
        assert_eq!((samples[0].median(), samples[1].median()), (1.0, 2.0));
    }

    #[test]
    fn pinning_ends() {
        let before = sched_getaffinity(None).expect("may ask");
        drop(Pinned::to_last_core());
        assert_eq!(before, sched_getaffinity(None).expect("may ask"));
    }
}
