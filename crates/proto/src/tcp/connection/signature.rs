//! The room that signatures take in each header.

use super::Connection;

impl Connection {
    /// From now on so many bytes of each header are a signature's: text has to leave room for them (RFC 9293 MUST-16).
    pub fn keep_free(&mut self, bytes: u8) {
        self.signature = bytes;
        self.update_send_mss();
    }
}
