//! What only tools ask a socket for: SO_MEMINFO and TCP_CC_INFO.

use libc::{c_int, socklen_t};
use netchan::socket::{Kind, SocketOption};

use crate::state::Live;

const SO_MEMINFO: c_int = 55;
const TCP_CC_INFO: c_int = 26;
/// Words of SO_MEMINFO: received and held, most of that, sent and held, most of that, ahead, queued, options', backlog, drops.
const WORDS: usize = 9;

/// The answer to getsockopt, if the option is one of these.
pub fn get(live: Live<'_>, level: c_int, name: c_int) -> Option<Vec<u8>> {
    match (level, name) {
        (libc::SOL_SOCKET, SO_MEMINFO) => Some(memory(live)),
        // Empty, as for a congestion control that has nothing to tell.
        (libc::IPPROTO_TCP, TCP_CC_INFO) if live.state.kind == Kind::Stream => Some(Vec::new()),
        _ => None,
    }
}

fn memory(live: Live<'_>) -> Vec<u8> {
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
