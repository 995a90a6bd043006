//! BBR's state as plain data.

use super::model::{MaxFilter, RoundFilter};
use super::probing::Undo;
use super::{AckPhase, Bbr, State};
use crate::tcp::image::{Distance, imaged};

imaged! {
    /// [`Bbr`] as plain data.
    #[allow(clippy::struct_excessive_bools)] // the draft's own
    pub(in crate::tcp::congestion) struct BbrImage of Bbr {
        state: State,
        now: Distance as part,
        delivered_total: u32,
        has_rtt: bool,
        initial: u32,
        initial_delivered: bool,
        random: u64,
        round_count: u32,
        round_start: bool,
        next_round_delivered: u32,
        max_bw: MaxFilter as part,
        bw_shortterm: u64,
        bw: u64,
        min_rtt_us: u32,
        min_rtt_stamp: Distance as part,
        inflight_longterm: u32,
        inflight_shortterm: u32,
        extra_acked: RoundFilter as part,
        extra_acked_start: Distance as part,
        extra_acked_delivered: u64,
        bw_latest: u64,
        inflight_latest: u32,
        is_loss_in_round: bool,
        loss_events_in_round: u8,
        loss_round_start: bool,
        loss_round_delivered: u32,
        full_bw_reached: bool,
        full_bw_now: bool,
        full_bw_count: u8,
        full_bw: u64,
        drain_start_round: u32,
        ack_phase: AckPhase,
        is_bw_probe_sample: bool,
        prev_probe_too_high: bool,
        prev_probe_precautionary: bool,
        bw_probe_up_rounds: u8,
        bw_probe_up_acked: u32,
        probe_up_acked_per_inc: u32,
        rounds_since_probe_up: u32,
        bw_probe_wait_us: u32,
        cycle_stamp: Distance as part,
        probe_rtt_min_us: u32,
        probe_rtt_min_stamp: Distance as part,
        probe_rtt_expired: bool,
        probe_rtt_done: Option<Distance> as part,
        probe_rtt_round_done: bool,
        limited_until: Option<u32>,
        idle_restart: bool,
        in_recovery: bool,
        prior_cwnd: u32,
        undo: Undo as part,
    }
}

#[cfg(test)]
crate::tcp::image::scramble::chosen! {
    State: State::Startup, State::Drain, State::ProbeDown, State::ProbeCruise, State::ProbeRefill, State::ProbeUp, State::ProbeRtt;
    AckPhase: AckPhase::Init, AckPhase::Refilling, AckPhase::ProbeStarting, AckPhase::ProbeFeedback, AckPhase::ProbeStopping;
}
