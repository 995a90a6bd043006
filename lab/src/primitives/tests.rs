//! Every experiment runs, in a tiny form, and gives the rows that the issue names; how fast is not a test's business.

use super::*;

/// Runs `rows` and checks that rows with these ids come out, with figures that are figures.
fn gives(rows: fn(&Bench) -> Result<Vec<Row>, LabError>, ids: &[&str]) {
    let bench = Bench::tiny();
    let rows = rows(&bench).expect("an experiment that runs");
    for row in &rows {
        assert!(row.value.is_finite(), "{row:?}");
        let twins = rows.iter().filter(|other| other.id == row.id).count();
        assert_eq!(twins, 1, "{}", row.id);
    }
    if bench.two.is_some() {
        for id in ids {
            assert!(rows.iter().any(|row| row.id == *id), "{id}");
        }
    }
}

#[test]
fn channels() {
    let ids = [
        "ring64_batch32_ns",
        "ring64_single_ns",
        "ring64_latency_ns",
        "ring8_batch8_ns",
        "ring64_single_same_core_ns",
    ];
    gives(channels::rows, &ids);
}

#[test]
fn slab() {
    let ids = [
        "alloc_free_local_ns",
        "free_remote_here_ns",
        "free_remote_there_ns",
        "magazine64_ns",
    ];
    gives(slab::rows, &ids);
}

#[test]
fn crossbar() {
    let ids = [
        "crossbar64_batch32_ns",
        "crossbar64_single_passive_ns",
        "crossbar64_latency_ns",
    ];
    gives(crossbar::rows, &ids);
}

#[test]
fn counters() {
    let ids = [
        "percpu_add_two_core_ratio",
        "atomic_add_two_core_ratio",
        "batched_add_ns",
        "flip_read_exact_ns",
    ];
    gives(counters::rows, &ids);
}

#[test]
fn trace() {
    let ids = ["event_ns", "event_args_ns", "rdtsc_ns", "clock_offset_ns"];
    gives(trace::rows, &ids);
}

#[test]
fn locks() {
    let ids = ["lock_alone_ns", "lock_two_cores_work_between_ns"];
    gives(locks::rows, &ids);
}

#[test]
fn sched() {
    let ids = [
        "critical_section_ns",
        "wakeup_same_core_ns",
        "wakeup_other_core_awake_ns",
        "wakeup_other_core_asleep_ns",
    ];
    gives(sched::rows, &ids);
}

#[test]
fn interrupts() {
    let ids = [
        "burst32_per_packet_ns",
        "burst1_asleep_per_packet_ns",
        "empty_poll_ns",
        "doorbell_awake_ns",
        "doorbell_asleep_latency_ns",
    ];
    gives(interrupts::rows, &ids);
}

#[test]
fn epoch() {
    let ids = ["epoch_read_ns", "epoch_read_in_burst_two_cores_ns"];
    gives(epoch::rows, &ids);
}

#[test]
fn a_row_stands_against_the_best_peer() {
    let bench = Bench::tiny();
    let scores = bench.contest(vec![
        Player::own("ours", || 3.0),
        Player::peer("slow", || 9.0),
        Player::peer("fast", || 2.0),
    ]);
    let row = scores.row("x_ns", "ours");
    assert_eq!((row.value, row.peer_value), (3.0, Some(2.0)));
    assert_eq!(row.peer.as_deref(), Some("fast"));
    assert_eq!(scores.bare_row("y_ns", "slow").peer, None);
}
