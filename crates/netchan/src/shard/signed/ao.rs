//! What TCP-AO (RFC 5925) asks of a shard beside signing: what ICMP may say, answers without a connection, and keys that change.

use std::net::{IpAddr, SocketAddr};

use proto::{
    icmp::{IncomingError, Kind},
    tcp::{self, AoIsns, AoSession, State},
    wire::tcp::{Flags, Header},
};

use super::{Auth, Shard, TcpSocket};
use crate::{counters::Counter, flow::FlowKey};

/// Both ends of a flow, ours first.
pub fn ends(key: &FlowKey) -> (SocketAddr, SocketAddr) {
    (
        (key.local, key.local_port).into(),
        (key.remote, key.remote_port).into(),
    )
}

/// What to count for a segment of a peer without a key where one is asked for.
pub fn unwanted(segment: &[u8]) -> Counter {
    match tcp::ao_ids(segment) {
        Some(_) => Counter::DropTcpAoKeyNotFound,
        None => Counter::DropTcpAoRequired,
    }
}

/// Where the connection begins that a SYN cookie offers; no other answer says it.
pub fn isns_of_answer(header: &Header) -> Option<AoIsns> {
    let offers = header.flags.contains(Flags::SYN | Flags::ACK);
    offers.then(|| AoIsns {
        local: header.seq,
        remote: Some(header.ack - 1),
    })
}

/// RFC 5925 §7.8: errors that any host could send, and that end connections or cut their segments. As there, IPv6's of size and all that
/// tell of a passing trouble count.
const fn is_doubtful(error: &IncomingError) -> bool {
    match error.remote.0 {
        IpAddr::V4(_) => matches!(
            error.kind,
            Kind::ProtocolUnreachable | Kind::PortUnreachable | Kind::PacketTooBig(_)
        ),
        IpAddr::V6(_) => matches!(error.kind, Kind::Prohibited | Kind::PortUnreachable),
    }
}

impl Shard {
    /// Whether an ICMP error does not count for a connection, which is counted.
    pub(in crate::shard) fn ignores_icmp(&mut self, number: u32, error: &IncomingError) -> bool {
        let Some(socket) = self.tcp.get_mut(number) else {
            return false;
        };
        let opens = matches!(
            socket.connection.state(),
            State::SynSent | State::SynReceived
        );
        let Some(session) = socket.ao() else {
            return false;
        };
        if session.accepts_icmp || opens || !is_doubtful(error) {
            return false;
        }
        session.counts().icmp += 1;
        self.count(Counter::DropTcpAoIcmp);
        true
    }
}

impl TcpSocket {
    /// Its TCP-AO, if it has any.
    pub fn ao(&mut self) -> Option<&mut AoSession> {
        match self.auth.as_deref_mut() {
            Some(Auth::Ao(session)) => Some(session),
            _ => None,
        }
    }

    /// Its keys have changed: another length of codes takes another part of each header.
    pub fn ao_changed(&mut self) {
        let room = self.ao().map(|session| session.room());
        if let Some(room) = room {
            self.connection.keep_free(room);
        }
    }
}
