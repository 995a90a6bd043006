//! The window we offer: receiver silly-window avoidance, and when room is reported to the peer.

use super::Connection;

impl Connection {
    /// A window of `window` bytes was announced.
    #[inline]
    pub(super) fn note_edge(&mut self, window: u32) {
        let edge = self.rcv.nxt + window;
        if edge > self.rcv.edge {
            self.rcv.edge = edge;
        }
    }

    /// The window field: receiver SWS avoidance (RFC 9293 MUST-39), and never less than what was
    /// announced before (SHLD-14), but for what the scale cannot express.
    #[inline]
    pub(in crate::tcp) fn window_to_announce(&self) -> u16 {
        let (free, offered) = self.receive_room();
        let step = (self.settings.receive_buffer / 2).min(u32::from(self.rcv.mss));
        let window = if free >= offered.saturating_add(step) {
            free
        } else {
            offered
        };
        u16::try_from(window >> self.rcv.scale).unwrap_or(u16::MAX)
    }

    /// Bytes for which there is room, as far as a window can say it, and bytes that the peer may
    /// send by what it was told.
    #[inline]
    fn receive_room(&self) -> (u32, u32) {
        let free = self.settings.receive_buffer.saturating_sub(self.unread);
        let mut free = free.min(65535 << self.rcv.scale);
        if free > self.window_limit {
            free = free.min(self.limited_room());
        }
        (free, self.offered())
    }

    /// Bytes that the peer may send by what it was told.
    #[inline]
    fn offered(&self) -> u32 {
        (self.rcv.edge - self.rcv.nxt).max(0).unsigned_abs()
    }

    /// What the limit of all memory leaves: two segments if nothing waits to be read, as much as [`ReceiveQueue`] always takes.
    ///
    /// [`ReceiveQueue`]: crate::tcp::ReceiveQueue
    #[cold]
    fn limited_room(&self) -> u32 {
        let least = if self.unread == 0 {
            2 * u32::from(self.rcv.mss)
        } else {
            0
        };
        self.window_limit.max(least)
    }

    /// The window of our SYN, which is not scaled (RFC 7323 §2.2).
    pub(super) fn syn_window(&self) -> u16 {
        let window = self.settings.receive_buffer.min(self.limited_room());
        u16::try_from(window).unwrap_or(u16::MAX)
    }

    /// Whether the peer may send less than two segments although the buffer has room for them: memory that becomes free is worth a look.
    pub fn is_short_of_window(&self) -> bool {
        let two_segments = 2 * u32::from(self.rcv.mss);
        let room = self.settings.receive_buffer.saturating_sub(self.unread);
        let receives = self.state.is_synchronized() && !self.peer_fin_reached;
        receives && room >= two_segments && self.offered() < two_segments
    }

    /// Whether the peer may send one segment at most: a receiver that waits for more text than that waits in vain.
    pub fn is_window_nearly_closed(&self) -> bool {
        self.offered() <= u32::from(self.rcv.mss)
    }

    /// Whether reading has opened the window by so much that it is reported to the peer: by half
    /// the buffer; or by two segments, if it is either a quarter of the buffer or what was
    /// offered is nearly used up. Not before the first text is acknowledged: what a SYN could offer
    /// (64 KiB, RFC 7323 §2.2) is less than the buffer without a read, and that
    /// acknowledgment, which is due soon, says more.
    #[inline]
    pub(super) fn window_update_is_due(&self) -> bool {
        let (free, offered) = self.receive_room();
        let gain = free.saturating_sub(offered);
        let buffer = self.settings.receive_buffer.min(65535 << self.rcv.scale);
        let two_segments = 2 * u32::from(self.rcv.mss);
        let is_much = gain >= buffer.div_ceil(2)
            || (gain >= two_segments && (gain >= buffer / 4 || offered <= buffer / 8));
        is_much && self.hears_of_room(offered)
    }

    /// Whether more is reported to a peer that was offered so much.
    fn hears_of_room(&self, offered: u32) -> bool {
        if self.peer_fin_reached || !self.state.is_synchronized() {
            return false;
        }
        let text_of_syn = self.fast_open.as_ref().map_or(0, |fast| fast.taken);
        let only_syn_offered = self.last_ack_sent == self.irs + 1 + text_of_syn;
        !(only_syn_offered && offered >= 1 << 15)
    }
}
