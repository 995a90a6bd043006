//! What only tools ask a socket for: SO_MEMINFO.

use libc::socklen_t;
use netchan::socket::SocketOption;

use crate::state::Live;

/// Words of SO_MEMINFO: received and held, most of that, sent and held, most of that, ahead, queued, options', backlog, drops.
const WORDS: usize = 9;

/// SO_MEMINFO.
pub fn memory(live: Live<'_>) -> Vec<u8> {
    let size = |option| match live.socket.option(option) {
        Ok(SocketOption::ReceiveBuffer(bytes) | SocketOption::SendBuffer(bytes)) => bytes,
        _ => 0,
    };
    let mut words = [0; WORDS];
    words[0] = live.socket.available();
    words[1] = size(SocketOption::ReceiveBuffer(0));
    words[2] = live.socket.unacknowledged();
    words[3] = size(SocketOption::SendBuffer(0));
    words[5] = words[2];
    let word = |bytes| socklen_t::try_from(bytes).unwrap_or(socklen_t::MAX);
    words
        .into_iter()
        .flat_map(|bytes| word(bytes).to_ne_bytes())
        .collect()
}
