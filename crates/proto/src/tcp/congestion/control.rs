//! The congestion control of one connection: which one, and its state.

use alloc::boxed::Box;

use super::algorithm::{Ack, Algorithm, Cause, LostSegment, Window};
use super::bbr::Bbr;
use super::cubic::Cubic;
use super::dctcp::Dctcp;
use super::reno::NewReno;
use crate::tcp::config::CongestionControl;
use crate::time::Instant;

/// Any of the congestion controls. BBR's model is large, and lies elsewhere.
#[derive(Clone, Debug)]
#[cfg_attr(test, derive(PartialEq))]
pub(in super::super) enum Control {
    NewReno(NewReno),
    Cubic(Cubic),
    Dctcp(Dctcp),
    Bbr(Box<Bbr>),
}

/// An idle connection holds this much of it.
const _: () = assert!(size_of::<Control>() <= 40);

impl Control {
    /// The one asked for, before [`Algorithm::on_open`].
    pub fn new(which: CongestionControl) -> Self {
        match which {
            CongestionControl::NewReno => Self::NewReno(NewReno::default()),
            CongestionControl::Cubic => Self::Cubic(Cubic::new()),
            CongestionControl::Dctcp => Self::Dctcp(Dctcp::new()),
            CongestionControl::Bbr => Self::Bbr(Box::new(Bbr::new())),
        }
    }

    /// Which one it is.
    pub const fn which(&self) -> CongestionControl {
        match self {
            Self::NewReno(_) => CongestionControl::NewReno,
            Self::Cubic(_) => CongestionControl::Cubic,
            Self::Dctcp(_) => CongestionControl::Dctcp,
            Self::Bbr(_) => CongestionControl::Bbr,
        }
    }
}

/// Calls a method of whichever it is.
macro_rules! each {
    ($of:expr, $control:ident => $call:expr) => {
        match $of {
            Control::NewReno($control) => $call,
            Control::Cubic($control) => $call,
            Control::Dctcp($control) => $call,
            Control::Bbr($control) => $call,
        }
    };
}

impl Algorithm for Control {
    fn on_open(&mut self, window: &mut Window, srtt_us: u32, now: Instant) {
        each!(self, control => control.on_open(window, srtt_us, now));
    }
    // Each gets a copy: an acknowledgment that nobody points to stays in registers where nobody asks for most of it.
    #[inline(always)]
    fn on_ack(&mut self, window: &mut Window, ack: &Ack) {
        each!(self, control => control.on_ack(window, &{ *ack }));
    }
    fn reduce(&mut self, window: &Window, cause: Cause, in_flight: u32, now: Instant) -> u32 {
        each!(self, control => control.reduce(window, cause, in_flight, now))
    }
    fn on_timeout(&mut self, window: &mut Window, first: bool, in_flight: u32, now: Instant) {
        each!(self, control => control.on_timeout(window, first, in_flight, now));
    }
    fn on_recovered(&mut self, window: &mut Window, now: Instant) {
        each!(self, control => control.on_recovered(window, now));
    }
    fn on_undo(&mut self, window: &mut Window) {
        each!(self, control => control.on_undo(window));
    }
    fn on_restart(&mut self, window: &mut Window, idle_us: u64, rto_us: u64, now: Instant) {
        each!(self, control => control.on_restart(window, idle_us, rto_us, now));
    }
    fn on_lost(&mut self, window: &mut Window, segment: &LostSegment) {
        each!(self, control => control.on_lost(window, segment));
    }
    fn owns_window(&self) -> bool {
        matches!(self, Self::Bbr(_))
    }
}
