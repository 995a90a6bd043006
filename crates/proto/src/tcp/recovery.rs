//! The state of loss recovery.

use super::congestion::Phase;
use super::image::imaged;
use super::rack::{Rack, RackImage};
use super::timer::Waiting;
use super::undo::Frto;
use crate::wire::tcp::SeqNum;

/// A probe on its way (RFC 8985 §7.1: TLP.is_retrans); where it ends is `Recovery::tail_end` (TLP.end_seq).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TailProbe {
    None,
    /// Of new text.
    New,
    /// Of what had been sent before.
    Again,
}

/// Where recovery stands.
#[derive(Clone, Copy, Debug)]
#[cfg_attr(test, derive(PartialEq))]
pub(super) struct Recovery {
    pub phase: Phase,
    /// SND.NXT when the phase began: it ends when that is acknowledged (RFC 6675 §2, RecoveryPoint).
    pub recover: SeqNum,
    /// Duplicate acknowledgments in a row, where SACK does not say more.
    pub duplicates: u16,
    pub rack: Rack,
    /// The tail loss probe under way, and where it ends.
    pub tail: TailProbe,
    pub tail_end: SeqNum,
    pub frto: Frto,
    /// What the early timer waits for.
    pub waiting: Waiting,
}

impl Recovery {
    pub const fn new(iss: SeqNum) -> Self {
        Self {
            phase: Phase::Open,
            recover: iss,
            duplicates: 0,
            rack: Rack::new(iss),
            tail: TailProbe::None,
            tail_end: iss,
            frto: Frto::Off,
            waiting: Waiting::TailProbe,
        }
    }

    /// Whether nothing is lost and nothing hints at it.
    #[inline]
    pub const fn is_steady(&self) -> bool {
        matches!(self.phase, Phase::Open)
            && self.duplicates == 0
            && matches!(self.tail, TailProbe::None)
    }

    /// Whether something lost is being repaired.
    #[inline]
    pub const fn is_repairing(&self) -> bool {
        matches!(self.phase, Phase::Recovery | Phase::Loss)
    }
}

imaged! {
    /// [`Recovery`] as plain data.
    pub(super) struct RecoveryImage of Recovery {
        phase: Phase,
        recover: SeqNum,
        duplicates: u16,
        rack: RackImage as part,
        tail: TailProbe,
        tail_end: SeqNum,
        frto: Frto,
        waiting: Waiting,
    }
}

#[cfg(test)]
super::image::scramble::chosen! {
    TailProbe: TailProbe::None, TailProbe::New, TailProbe::Again;
    Frto: Frto::Off, Frto::Resent, Frto::NewText;
    Phase: Phase::Open, Phase::Reducing, Phase::Recovery, Phase::Loss;
}
