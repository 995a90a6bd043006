//! Experiment `crossbar` (D3): messages between cores through the crossbar, active and passive, beside a bare ring and the queues of crossbeam and std.

use percore::crossbar::{Inbox, Outbox, crossbar};

use super::{
    Bench, Player, Scores,
    channels::{ArrayQueueWay, CrossbeamWay, MpscWay, RingWay, batch_name},
    report,
    traffic::{CAPACITY, Channel, Place, Tally, Terms, messages, ping_pong, stream},
};
use crate::{
    experiment::{Experiment, LabError},
    report::Row,
};

pub(crate) const EXPERIMENT: Experiment = Experiment {
    name: "crossbar",
    question: "What does a message of 64 bytes cost through the crossbar, pipelined and on its own, active and passive, and what does the number of cores add?",
    prediction: "In bursts of 32 within 2 ns of a bare ring (5 to 8 ns): the doorbell's fence is paid once a burst. Single and active: the fence each time, 15 to 25 ns; \
        passive 10 to 16. With 8 cores the receiver looks at 8 rings: 1 to 3 ns more a burst of 32, 10 ns more a single one. One way 70 to 90 ns, 5 to 10 less when passive. \
        Queues that many may send to: 30 to 60 ns a message.",
    run: |experiment, options| report(experiment, options, rows),
};

/// A crossbar of `CORES` cores, of which 1 sends to 0.
struct CrossbarWay<const CORES: usize, const ACTIVE: bool>;

impl<const N: usize, const CORES: usize, const ACTIVE: bool> Channel<N>
    for CrossbarWay<CORES, ACTIVE>
{
    type Tx = Outbox<[u64; N]>;
    type Rx = Inbox<[u64; N]>;

    fn open() -> (Self::Tx, Self::Rx) {
        // The bench cannot do without; a machine has descriptors for eight eventfds.
        let mut ports = crossbar(CORES, CAPACITY).expect("eventfds");
        (ports.swap_remove(1).to, ports.swap_remove(0).from)
    }

    #[inline(always)]
    fn send_one(tx: &mut Self::Tx, message: [u64; N]) -> bool {
        let sent = stage::<N, ACTIVE>(tx, message);
        tx.flush();
        sent
    }

    #[inline(always)]
    fn send(tx: &mut Self::Tx, first: u64, n: usize) -> usize {
        let sent = messages(first, n).take_while(|message| stage::<N, ACTIVE>(tx, *message));
        let sent = sent.count();
        tx.flush();
        sent
    }

    #[inline(always)]
    fn take_one(rx: &mut Self::Rx) -> Option<[u64; N]> {
        let mut came = None;
        rx.receive(1, |_, message| came = Some(message));
        came
    }

    #[inline(always)]
    fn take(rx: &mut Self::Rx, max: usize, tally: &mut Tally) {
        rx.receive(max, |_, message| tally.add(&message));
    }
}

#[inline(always)]
fn stage<const N: usize, const ACTIVE: bool>(tx: &mut Outbox<[u64; N]>, message: [u64; N]) -> bool {
    let staged = if ACTIVE {
        tx.send(0, message)
    } else {
        tx.send_passive(0, message)
    };
    staged.is_ok()
}

const ACTIVE: &str = "active";
const PASSIVE: &str = "passive";
const OF_8: &str = "active, of 8 cores";
const BARE: &str = "bare ring";

/// Every contender does `measure`.
fn contest(bench: &Bench, measure: impl Measure) -> Scores {
    bench.contest(vec![
        Player::own(ACTIVE, || measure.of::<CrossbarWay<2, true>>()),
        Player::own(PASSIVE, || measure.of::<CrossbarWay<2, false>>()),
        Player::own(OF_8, || measure.of::<CrossbarWay<8, true>>()),
        Player::own(BARE, || measure.of::<RingWay>()),
        Player::peer("crossbeam ArrayQueue", || measure.of::<ArrayQueueWay>()),
        Player::peer("crossbeam channel", || measure.of::<CrossbeamWay>()),
        Player::peer("std mpsc", || measure.of::<MpscWay>()),
    ])
}

/// What is measured of a way for messages of 64 bytes.
trait Measure {
    fn of<C: Channel<8>>(&self) -> f64;
}

/// Nanoseconds for each of many.
struct Stream<'a>(&'a Bench, Terms);

impl Measure for Stream<'_> {
    fn of<C: Channel<8>>(&self) -> f64 {
        stream::<C, 8>(self.0, self.1)
    }
}

/// Nanoseconds one way.
struct OneWay<'a>(&'a Bench, [usize; 2]);

impl Measure for OneWay<'_> {
    fn of<C: Channel<8>>(&self) -> f64 {
        ping_pong::<C, 8>(self.0, self.1, self.0.work / 10)
    }
}

/// The rows of one contest, the document's figure beside them.
fn add_rows(scores: &Scores, name: &str, reference: &str, target: &str, rows: &mut Vec<Row>) {
    let row = |id: String, contender| {
        scores
            .row(&id, contender)
            .reference(reference)
            .target(target)
    };
    rows.extend([
        row(format!("crossbar64_{name}_ns"), ACTIVE),
        row(format!("crossbar64_{name}_passive_ns"), PASSIVE),
        row(format!("crossbar64_{name}_of_8_cores_ns"), OF_8),
        row(format!("crossbar64_{name}_bare_ring_ns"), BARE),
    ]);
}

/// All rows; none where there are no two cores.
pub(super) fn rows(bench: &Bench) -> Result<Vec<Row>, LabError> {
    let mut rows = Vec::new();
    let Some(cores) = bench.two else {
        return Ok(rows);
    };
    for batch in [32, 8, 1] {
        let terms = Terms {
            place: Place::Cores(cores),
            messages: bench.work,
            batch,
        };
        let scores = contest(bench, Stream(bench, terms));
        add_rows(&scores, &batch_name(batch), "50 (D3)", "<= 50", &mut rows);
    }
    let scores = contest(bench, OneWay(bench, cores));
    add_rows(&scores, "latency", "1100 (D3)", "<= 1100", &mut rows);
    Ok(rows)
}
