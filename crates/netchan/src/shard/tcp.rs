//! TCP in a shard: a connection with what surrounds it. Segments come in by `input`, leave by `output`; between them are `events` and
//! what the socket calls do (`calls`).

pub(in crate::shard) mod burst;
mod calls;
#[cfg(test)]
mod calls_tests;
pub(in crate::shard) mod came_by;
mod events;
mod gro;
mod input;
mod leases;
mod moving;
mod notices;
mod open;
mod output;
mod piped;
mod readiness;
mod sink;
#[cfg(test)]
mod size_tests;
mod tell;
mod urgent;
mod watermarks;

use std::{
    net::{IpAddr, SocketAddr},
    num::NonZero,
    sync::Arc,
};

use proto::{
    allowance::Allowance,
    tcp::{Connection, ReceiveQueue},
    time::Duration,
};

pub use self::moving::Movable;
pub use self::watermarks::Watermarks;
use self::{came_by::CameBy, watermarks::OwnWatermarks};
use super::{
    Auth, FastOpenOptions, Keys, Reuse, Shard, TcpOverrides, ports::Kept, send_queue::SendQueue,
    shares::Shares, wakers::Wakers,
};
use crate::{
    emit::{self, IpFields},
    errno,
    flow::{FlowKey, Tuple},
    link::Segmentation,
    packet::{Hint, Packet},
};

/// A connection with what surrounds it.
#[derive(Debug)]
pub struct TcpSocket {
    /// The flow's short hash.
    pub hash: u32,
    /// The protocol.
    pub connection: Connection,
    pub(super) receive: ReceiveQueue<Packet>,
    pub(super) send: SendQueue,
    wakers: Wakers,
    /// SO_ERROR.
    error: Option<NonZero<i32>>,
    pub(super) came_by: CameBy,
    /// A socket of the application holds it.
    pub(super) attached: bool,
    /// Its flow has been taken out of the table: closed, or in TIME-WAIT.
    pub(super) detached_flow: bool,
    pub(super) dirty: bool,
    read_shut: bool,
    /// The urgent byte ahead was read out of line.
    urgent_taken: bool,
    /// Options that change when it is ready.
    pub(super) watermarks: OwnWatermarks,
    /// Most bytes in the send queue.
    send_limit: u32,
    /// More memory would let it send or receive more: it is on the shard's list.
    pub(super) waits_for_memory: bool,
    /// The trace has been told that the peer's window is closed.
    told_closed: bool,
    /// The handshake was over once: tells "refused" from "reset".
    was_open: bool,
    /// What was learned of the next hop since the last packet.
    hint: Hint,
    /// Its flow, and the IP header fields of what it sends, with all else that does not change.
    pub(super) template: emit::Template,
    pub(super) interface: u8,
    /// TTL or hop limit of the packet that opened it, where that was the peer's; else 0.
    pub(super) hops: u8,
    /// Its peer's number among those that share memory.
    pub(super) peer: u16,
    /// What it holds, as booked with its peer.
    noted: u32,
    /// Of that, what the records of what it sent take.
    pub(super) records: u32,
    /// What its link does with more text than fits a packet.
    pub(super) segmentation: Segmentation,
    pub(super) kept: Kept,
    /// Of one that its peer began: how often it has moved to another shard. Of one that was begun here, which stays where it is: the low bits of
    /// [`PipeTable::epoch`](crate::link::lease::PipeTable::epoch) when pipes were offered for it last.
    moves_or_epoch: u8,
    /// What its segments are signed with.
    pub(super) auth: Option<Box<Auth>>,
}

/// What a socket call asks a connection to be.
#[derive(Clone, Debug)]
pub struct TcpOptions {
    /// What it wants otherwise than the stack's TCP settings say, if anything.
    pub own: Option<Box<TcpOverrides>>,
    /// TCP_NODELAY is off; `None`, here and below: as the stack's TCP settings say.
    pub nagle: Option<bool>,
    /// TCP_CORK.
    pub cork: Option<bool>,
    /// TCP_QUICKACK.
    pub quick_ack: Option<bool>,
    /// IP header fields.
    pub fields: IpFields,
    /// SO_LINGER.
    pub linger: Option<Duration>,
    /// TCP_MD5SIG, TCP_AO_ADD_KEY.
    pub keys: Option<Arc<Keys>>,
    /// TCP_MAXSEG.
    pub max_segment: Option<u16>,
    /// SO_MARK.
    pub mark: u32,
    /// SO_BINDTODEVICE.
    pub device: Option<u8>,
    /// SO_INCOMING_CPU.
    pub cpu: Option<u16>,
    /// TCP_FASTOPEN.
    pub fast_open: FastOpenOptions,
    /// SO_REUSEADDR, SO_REUSEPORT.
    pub reuse: Reuse,
    /// What shutdown(2) said before there was a connection: reading, writing.
    pub shut: (bool, bool),
}

/// What connect(2) asks for.
#[derive(Clone, Copy, Debug)]
pub struct Connect<'a> {
    /// The address the socket is bound to.
    pub source: Option<IpAddr>,
    /// The port it is bound to; 0: one is chosen.
    pub port: u16,
    /// The peer to connect to.
    pub remote: SocketAddr,
    /// Its SYN may carry what is written first.
    pub fast: bool,
    /// What its socket says.
    pub options: &'a TcpOptions,
}

impl TcpSocket {
    /// SIOCOUTQ.
    pub fn queued_bytes(&self) -> usize {
        self.send.len() + self.unread_by_peer()
    }

    /// Memory that it holds: of what it received, of what it has to send, and of the records of what it sent.
    #[inline]
    pub(super) fn held(&self) -> u32 {
        // A send queue counts its bytes in 32 bits; all together are far less in practice, and saturate else.
        let queued = u32::try_from(self.send.len()).unwrap_or(u32::MAX);
        let text = self.receive.memory().saturating_add(queued);
        text.saturating_add(self.records)
    }

    /// What the records of what it sent take.
    #[inline]
    pub(super) fn records_bytes(&self) -> u32 {
        u32::try_from(self.connection.records_bytes()).unwrap_or(u32::MAX)
    }

    /// Counts what these take now; true if that has changed, which is seldom, since they grow by doubling.
    #[inline(always)]
    pub(super) fn note_records(&mut self, memory: &mut Allowance) -> bool {
        let now = self.records_bytes();
        let changed = now != self.records;
        if changed {
            self.count_records(now, memory);
        }
        changed
    }

    #[cold]
    #[inline(never)]
    fn count_records(&mut self, now: u32, memory: &mut Allowance) {
        let before = std::mem::replace(&mut self.records, now);
        memory.add(now as usize);
        memory.remove(before as usize);
    }

    /// They are free, with the connection.
    fn forget_records(&mut self, memory: &mut Allowance) {
        self.count_records(0, memory);
    }

    /// Charges what it holds now to its peer.
    #[inline(always)]
    pub(super) fn note_held(&mut self, shares: &mut Shares) {
        let held = self.held();
        if held != self.noted {
            shares.change(self.peer, self.noted.into(), held.into());
            self.noted = held;
        }
    }

    /// SO_MARK; 0: none.
    pub(super) fn packet_mark(&self) -> u32 {
        if self.watermarks.is_made() {
            self.watermarks.mark
        } else {
            0
        }
    }

    /// The link that it runs over.
    pub const fn interface(&self) -> u8 {
        self.interface
    }

    /// TTL or hop limit of the packet by which the peer opened it, if it was the peer: its address, and they.
    pub fn came_with(&self) -> Option<(IpAddr, u8)> {
        (self.hops > 0).then(|| (self.key().remote, self.hops))
    }

    /// Whether the handshake has been completed.
    pub const fn was_open(&self) -> bool {
        self.was_open
    }

    /// Whether the flow is gone.
    pub const fn is_over(&self) -> bool {
        self.detached_flow || self.connection.is_finished()
    }

    /// It may be accepted, read and written although the handshake is not over.
    pub(super) const fn set_open(&mut self) {
        self.was_open = true;
    }

    /// The listener it came by, until it is accepted.
    pub(super) fn listener(&self) -> Option<u32> {
        self.came_by.listener()
    }

    /// It is accepted, or its listener closed.
    pub(super) const fn leave_listener(&mut self) {
        self.came_by = CameBy::new(None);
    }

    /// The errno of what its connection ended by, if not by FINs.
    fn end(&self) -> Option<i32> {
        let (error, ended) = (self.connection.error()?, self.connection.peer_closed());
        Some(errno::of_tcp(error, self.was_open, ended))
    }

    /// The pending error, left in place.
    pub fn pending_error(&self) -> Option<i32> {
        self.error.map(NonZero::get)
    }

    /// It, taken.
    fn take_error(&mut self) -> Option<i32> {
        self.error.take().map(NonZero::get)
    }

    /// IP header fields of what it sends.
    pub fn set_fields(&mut self, fields: IpFields) {
        self.template = emit::Template::new(&self.key(), fields);
    }

    /// Its flow.
    pub fn key(&self) -> FlowKey {
        self.tuple().tcp_key()
    }

    /// The same as its packets have it.
    #[inline]
    pub(super) const fn tuple(&self) -> &Tuple {
        self.template.tuple()
    }

    /// Sets SO_REUSEADDR and SO_REUSEPORT: which sockets may be bound beside it.
    pub const fn set_reuse(&mut self, reuse: Reuse) {
        self.kept.set_reuse(reuse);
    }

    /// Sets SO_LINGER: how long close(2) waits is its caller's business, but not at all is a reset.
    pub fn set_linger(&mut self, linger: Option<Duration>) {
        self.kept.set_resets(linger == Some(Duration::ZERO));
    }
}
