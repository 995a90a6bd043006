//! A list of taps that two threads read for each packet: through a read-write lock, by views of a snapshot, or not at all.

use std::{
    hint::black_box,
    sync::{Arc, Barrier, PoisonError, RwLock},
    thread,
};

use percore::snapshot::Snapshot;

use super::{Effort, Places, in_turns, lane::Lane, row};
use crate::{
    experiment::LabError,
    kit::{Pinned, Stopwatch},
    report::Row,
};

/// What stands for a tap that does not look at this link.
type List = Vec<u64>;

fn look(list: &List) {
    black_box(list.iter().sum::<u64>());
}

/// Packets a second of two threads, each with two stacks of its own and a reader that `make` gives it: at each end it looks once for each packet.
#[allow(clippy::cast_precision_loss)] // below 2^52
fn rate<R: FnMut()>(
    batches: usize,
    places: Places,
    make: impl Fn() -> R + Sync,
) -> Result<f64, LabError> {
    let start = Barrier::new(2);
    let on = |core: usize| -> Result<f64, LabError> {
        let _pinned = Pinned::to(core);
        let lane = Lane::straight();
        let mut look = make();
        start.wait();
        let watch = Stopwatch::start();
        let packets = lane.and_then(|lane| {
            let received = |_| Ok(lane.batch(&mut look)?.received);
            (0..batches).map(received).sum::<Result<u64, LabError>>()
        });
        let seconds = watch.seconds();
        start.wait(); // neither ran alone for long; whatever failed: the other one waits, too
        Ok(packets? as f64 / seconds)
    };
    thread::scope(|scope| {
        let both = [places.measured, places.other].map(|core| scope.spawn(move || on(core)));
        let mut sum = 0.0;
        for thread in both {
            let rate = thread.join();
            sum += rate.map_err(|_| LabError::Failed("a reader panicked".to_owned()))??;
        }
        Ok(sum)
    })
}

pub(super) fn rows(effort: &Effort, places: Places) -> Result<Vec<Row>, LabError> {
    let list: List = vec![1];
    let lock = RwLock::new(list.clone());
    let snapshot = Arc::new(Snapshot::new(list));
    let n = effort.batches;
    let turns = in_turns(
        effort.rounds,
        [
            &mut || rate(n, places, || || ()),
            &mut || {
                let read = || look(&lock.read().unwrap_or_else(PoisonError::into_inner));
                rate(n, places, || read)
            },
            &mut || {
                rate(n, places, || {
                    let mut view = snapshot.view();
                    move || {
                        view.refresh();
                        look(&view);
                    }
                })
            },
        ],
    )?;
    let loss = |id: &str, side: usize| row(id, &turns, |turn| turn[0] / turn[side]);
    Ok(vec![
        loss("rwlock_loss_ratio", 1)
            .reference("+14.09 % ± 2.17 % without it (3.68 to 4.24 Mpps on eight Atom cores)"),
        loss("snapshot_loss_ratio", 2).target("<= 1.02"),
    ])
}
