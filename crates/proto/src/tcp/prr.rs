//! Proportional rate reduction (RFC 9937): in recovery, how much may be sent for what each acknowledgment says was delivered.

use super::image::plain;

/// The variables of RFC 9937 §6. In bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Prr {
    delivered: u32,
    pub out: u32,
    recover_fs: u32,
}

/// What one acknowledgment in recovery says.
#[derive(Clone, Copy, Debug)]
pub(super) struct Told {
    /// Bytes newly delivered.
    pub delivered: u32,
    /// Bytes under way.
    pub in_flight: u32,
    /// SND.UNA moved and no further loss was found.
    pub is_safe: bool,
}

impl Prr {
    /// Recovery begins, with `flight` bytes not acknowledged, of which `sacked_before` were delivered before the acknowledgment that
    /// began it (RFC 9937 §6, initialization).
    pub const fn begin(flight: u32, sacked_before: u32) -> Self {
        let recover_fs = flight.saturating_sub(sacked_before);
        Self {
            delivered: 0,
            out: 0,
            recover_fs: if recover_fs == 0 { 1 } else { recover_fs },
        }
    }

    /// The window after an acknowledgment: what is under way and what may be added to it.
    pub fn window(&mut self, told: Told, ssthresh: u32, mss: u32) -> u32 {
        self.delivered = self.delivered.saturating_add(told.delivered);
        let mut send = if told.in_flight > ssthresh {
            let share = u64::from(self.delivered) * u64::from(ssthresh);
            let share = share.div_ceil(u64::from(self.recover_fs));
            u32::try_from(share)
                .unwrap_or(u32::MAX)
                .saturating_sub(self.out)
        } else {
            // PRR-SSRB where it is safe, PRR-CRB where it is not.
            let conserved = self.delivered.saturating_sub(self.out).max(told.delivered);
            let grown = conserved.saturating_add(if told.is_safe { mss } else { 0 });
            // What leaves is whole segments: a short one that was delivered, as the last of a transfer is, lets one go. The next pays for it.
            let whole = if self.delivered > self.out { mss } else { 0 };
            grown.max(whole).min(ssthresh - told.in_flight)
        };
        if self.out == 0 {
            send = send.max(mss); // the first retransmission always leaves, whole
        }
        told.in_flight.saturating_add(send)
    }
}

plain!(Prr {
    delivered,
    out,
    recover_fs
});

impl Prr {
    /// Whether a connection could have come to it.
    pub const fn is_sound(&self) -> bool {
        self.recover_fs > 0
    }
}
