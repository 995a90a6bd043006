//! What a segment costs and what a connection holds: cycles on the fast path, bytes of idle connections, beside smoltcp doing the same.

use proto::tcp::TimeWait;

use super::{Effort, count, fast_path::FastPath};
use crate::{
    experiment::LabError,
    kit::{Pinned, Sample},
    path::{
        Pair as _, Setup,
        netchan_side::NetchanPair,
        smoltcp_side::{SmoltcpPair, Tuning},
    },
    report::Row,
};

/// Bytes of this process in memory.
fn resident_bytes() -> f64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages: f64 = statm
        .split(' ')
        .nth(1)
        .and_then(|n| n.parse().ok())
        .unwrap_or(0.0);
    pages * 4096.0
}

/// `fast_path_in_cycles`, `fast_path_out_cycles` and the like: of the time stamp counter, without checksums. `slow_path_*`: what header
/// prediction does not take, and what is not the next text.
pub(super) fn cycles(effort: &Effort) -> Vec<Row> {
    let _pinned = Pinned::to_last_core();
    let ours = FastPath::new().measure(effort.batches);
    let ack_in = FastPath::new().measure_acknowledgments(effort.batches);
    let slow = FastPath::new().measure_slow(effort.batches);
    let setup = Setup {
        checksums: false,
        ..Setup::default()
    };
    let tuning = Tuning {
        buffer: 1 << 18,
        ..Tuning::default()
    };
    let theirs = SmoltcpPair::new(setup, tuning).batches(effort.batches / 5);
    #[allow(clippy::cast_precision_loss)] // thousands
    let median = |of: fn(&(u64, u64)) -> u64| {
        let mut all: Vec<_> = theirs.iter().map(of).collect();
        all.sort_unstable();
        Sample::of(vec![all[all.len() / 2] as f64 / 32.0])
    };
    let row = |id, value| Row::new(id, &Sample::of(vec![value]));
    vec![
        row("fast_path_in_cycles", ours.input)
            .against("smoltcp 0.14", &median(|b| b.1))
            .target("250 at most, half of the peer's"),
        row("fast_path_out_cycles", ours.output).against("smoltcp 0.14", &median(|b| b.0)),
        row("fast_path_ack_in_cycles", ack_in),
        row("slow_path_in_cycles", slow.hole_in),
        row("slow_path_sack_in_cycles", slow.sack_in),
        row("slow_path_out_cycles", slow.lost_out),
        row("slow_path_sack_out_cycles", slow.sack_out),
    ]
}

/// Connections that touch what all share before anything is measured. Flows lie anywhere in their table, whose 128 pages a shard has from the
/// start: 200 leave a fifth of these untouched, which 2,000 more would pay for, 1,000 leave none.
const FIRST: usize = 1_000;
/// Bytes of text that each idle connection has carried both ways before it came to rest.
const CARRIED: [u8; 1000] = [7; 1000];

/// `idle_connection_bytes`: what the process grew by for each end of an established connection that has carried text and rests, all of it:
/// record, timer, flow, the application's handle. `time_wait_bytes` likewise for each connection that waits for its end. In one pair of
/// stacks, in which nothing was freed before: memory that lies about would be taken first. The [`FIRST`] ones are not counted: they touch the
/// tables' pages.
pub(super) fn memory(effort: &Effort) -> Result<Vec<Row>, LabError> {
    let few = FIRST;
    let mut pair = NetchanPair::new(Setup::default())?;
    pair.rest_idle(few, &CARRIED)?;
    let before = resident_bytes();
    pair.rest_idle(effort.idle, &CARRIED)?;
    // Two ends of each connection are here.
    let idle = (resident_bytes() - before) / (2.0 * count(effort.idle));
    pair.connections(few);
    let before = resident_bytes();
    pair.connections(effort.idle);
    let grown = resident_bytes() - before;
    // One end of each waits, unless it was the first to give way to others.
    let waiting = grown / count(pair.time_waits().saturating_sub(few).max(1));
    let record = count(size_of::<TimeWait>());
    Ok(vec![
        Row::new("idle_connection_bytes", &Sample::of(vec![idle])).target("1 KiB at most"),
        Row::new("time_wait_bytes", &Sample::of(vec![waiting])).target("128 B at most"),
        Row::new("time_wait_record_bytes", &Sample::of(vec![record])),
    ])
}
