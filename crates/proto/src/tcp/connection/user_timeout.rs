//! The user timeout option in a connection: when it is sent, and what it changes.

use super::Connection;
use crate::tcp::user_timeout::{UserTimeout, UserTimeoutOption, from_wire};
use crate::tcp::variables::Pending;
use crate::wire::tcp::{Header, Options};

/// L_LIMIT and U_LIMIT of RFC 5482 §3.1: R2's least (RFC 1122 §4.2.3.5), and what a peer may keep our memory for.
const LEAST_MS: u32 = 100_000;

const MOST_MS: u32 = 3_600_000;

impl Connection {
    /// RFC 5482 §3.1: USER_TIMEOUT = min(U_LIMIT, max(ADV_UTO, REMOTE_UTO, L_LIMIT)). The segment is acceptable.
    pub(super) fn take_user_timeout(&mut self, header: &Header) {
        if self.user_timeout.option != UserTimeoutOption::Negotiable {
            return;
        }
        if let Some(remote) = from_wire(header.options.user_timeout) {
            let own = from_wire(self.user_timeout.own).unwrap_or(0);
            let most = own.max(remote).max(LEAST_MS);
            self.settings.retry_ms = most.min(MOST_MS);
        }
    }

    /// The application has set a timeout: it counts, and the peer is told.
    pub(super) fn user_timeout_was_set(&mut self) {
        if self.user_timeout.option == UserTimeoutOption::Off {
            return;
        }
        let own_ms = self.settings.retry_ms;
        self.user_timeout = UserTimeout::new(UserTimeoutOption::Fixed, own_ms);
        if self.state.is_synchronized() {
            self.pending.set(Pending::ACK);
        }
    }

    /// What a SYN says of it; a signature leaves it no room.
    pub(super) fn user_timeout_of_syn(&self) -> u16 {
        match self.user_timeout.option {
            UserTimeoutOption::Off => 0,
            _ if self.signature > 0 => 0,
            _ => self.user_timeout.own,
        }
    }

    /// What an acknowledgment says, once, if its other options leave room.
    pub(super) fn add_user_timeout(&mut self, options: &mut Options) {
        let off = self.user_timeout.option == UserTimeoutOption::Off;
        let free = 40 - usize::from(self.signature);
        if off || !self.user_timeout.tell || options.len(false) + 4 > free {
            return;
        }
        self.user_timeout.tell = false;
        options.user_timeout = self.user_timeout.own;
    }
}
