//! How much of what is written leaves at once, and in what portions the rest is kept: by which the owner of a send queue says how much it takes.

use super::connection::Connection;

/// Most text of a portion: what fits one IP packet.
const PORTION_MAX: u32 = 65_535 - 20 - 60;

impl Connection {
    /// Bytes from SND.NXT on that the windows let leave now in full segments, whether they are written yet or not.
    pub fn may_leave(&self) -> u32 {
        if !self.state.is_synchronized() {
            return 0;
        }
        let edge = self.snd.una + self.snd.wnd;
        let offered = (edge - self.snd.nxt).max(0).unsigned_abs();
        let congestion = self.congestion.window.cwnd.saturating_sub(self.pipe());
        let bytes = offered.min(congestion);
        bytes - bytes % u32::from(self.snd.mss)
    }

    /// Bytes of one portion, as Linux has it: full segments, at most half the largest window that the peer offered, and one packet.
    pub fn portion(&self) -> u32 {
        let mss = u32::from(self.snd.mss);
        let most = (self.snd.wnd_max / 2).min(PORTION_MAX);
        (most - most % mss).max(mss)
    }
}
