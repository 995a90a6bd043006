//! Taps that come, go and change a thousand times a second while datagrams pass: none may be lost, and each that a tap saw is taken or counted.

use std::{
    collections::VecDeque,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::Duration,
};

use netchan::tap::{Filter, Options, Tap};
use parking_lot::Mutex;

use super::{
    Effort, Places, filters,
    lane::{Lane, SNAP},
};
use crate::{
    experiment::LabError,
    kit::{Pinned, Sample, Stopwatch},
    report::Row,
};

/// Taps at once, half of them where packets leave, half where they arrive.
const TAPS: usize = 10;
/// Between two changes: one tap goes, one comes, one gets another filter.
const PERIOD: f64 = 0.001;
/// Changes between two checks, for which the datagrams stop.
const CHECK: u64 = 50;
/// Frames that are read of each tap between two changes: some fall behind, some do not.
const READS: usize = 64;

/// A tap and how many frames it gave.
struct Held {
    tap: Tap,
    read: u64,
}

impl Held {
    fn read(&mut self, most: usize) {
        let frames = (0..most).map_while(|_| self.tap.read());
        self.read += frames.fold(0, |count, _| count + 1);
    }

    /// While nothing passes: all that was seen is accounted for.
    fn check(&mut self) -> Result<(), LabError> {
        self.read(usize::MAX);
        let (read, counted) = (self.read, self.tap.statistics());
        let accounted = counted.taken + counted.dropped_full + counted.dropped_buffers;
        if counted.taken == read && counted.matched == accounted && counted.seen >= accounted {
            return Ok(());
        }
        let what = format!("{read} frames were read of a tap that counts {counted:?}");
        Err(LabError::Failed(what))
    }
}

struct Storm<'a> {
    lane: &'a Lane,
    taps: VecDeque<Held>,
    filters: [Filter; 3],
    changes: u64,
}

impl<'a> Storm<'a> {
    fn new(lane: &'a Lane) -> Result<Self, LabError> {
        let filters = [
            Filter::default(),
            filters::five_terms()?,
            filters::nothing()?,
        ];
        let mut storm = Self {
            lane,
            taps: VecDeque::new(),
            filters,
            changes: 0,
        };
        for number in 0..TAPS {
            storm.attach(number)?;
        }
        Ok(storm)
    }

    fn attach(&mut self, number: usize) -> Result<(), LabError> {
        let net = match number % 2 {
            0 => self.lane.measured(),
            _ => self.lane.sending(),
        };
        let tap = net.tap(Options {
            snap: SNAP,
            ..Options::default()
        })?;
        self.taps.push_back(Held { tap, read: 0 });
        Ok(())
    }

    fn change(&mut self) -> Result<(), LabError> {
        self.taps.pop_front();
        let number = usize::try_from(self.changes).unwrap_or_default();
        self.attach(number)?;
        let filter = self.filters[number % self.filters.len()].clone();
        if let Some(held) = self.taps.get(number % TAPS) {
            held.tap.set_filter(filter);
        }
        self.taps.iter_mut().for_each(|held| held.read(READS));
        self.changes += 1;
        Ok(())
    }

    /// Changes for so long. Datagrams pass while no check holds `gate`. How many changes a second it came to.
    #[allow(clippy::cast_precision_loss)] // below 2^52
    fn rage(&mut self, seconds: f64, gate: &Mutex<()>) -> Result<f64, LabError> {
        let watch = Stopwatch::start();
        while watch.seconds() < seconds {
            self.change()?;
            if self.changes.is_multiple_of(CHECK) {
                let _still = gate.lock();
                self.taps.iter_mut().try_for_each(Held::check)?;
            }
            let ahead = self.changes as f64 * PERIOD - watch.seconds();
            if ahead > 0.0 {
                thread::sleep(Duration::from_secs_f64(ahead));
            }
        }
        let _still = gate.lock();
        self.taps.iter_mut().try_for_each(Held::check)?;
        Ok(self.changes as f64 / watch.seconds())
    }
}

/// Ends the datagrams, however the storm ends.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed); // a flag on its own
    }
}

#[allow(clippy::cast_precision_loss)] // below 2^52
pub(super) fn rows(effort: &Effort, places: Places) -> Result<Vec<Row>, LabError> {
    let lane = Lane::straight()?;
    let (gate, is_over) = (Mutex::new(()), AtomicBool::new(false));
    let (mut sent, mut received) = (0, 0);
    let changes = thread::scope(|scope| {
        let storm = scope.spawn(|| {
            let _ends = Ends(&is_over);
            let _pinned = Pinned::to(places.other);
            Storm::new(&lane)?.rage(effort.storm_seconds, &gate)
        });
        while !is_over.load(Ordering::Relaxed) {
            let _passing = gate.lock();
            let passed = lane.batch(|| ())?;
            sent += passed.sent;
            received += passed.received;
        }
        let ended = storm.join();
        ended.map_err(|_| LabError::Failed("the storm's thread panicked".to_owned()))?
    })?;
    let one = |id: &str, value: f64| Row::new(id, &Sample::of(vec![value]));
    Ok(vec![
        one("lost_packets", (sent - received) as f64).target("0"),
        one("storm_packets", sent as f64),
        one("tap_changes_per_s", changes).target("1000"),
    ])
}
