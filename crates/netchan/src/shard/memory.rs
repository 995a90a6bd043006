//! A shard's part of the stack's memory accounts (N4): what it has claimed ahead, and which sockets wait for memory to become free.
//!
//! The plain numbers ([`Allowance`]) are counted with each packet; the account, whose lines other cores write, only chunk by chunk.

use std::{collections::VecDeque, sync::Arc};

use proto::{
    allowance::Allowance,
    ip::keyed::Seed,
    tcp::{Payload, SegmentPool, Shelf},
    time::Instant,
    wire::tcp::SeqNum,
};

use super::{
    Shard, TcpSocket,
    behind::Holders,
    shares::{Shares, Whose},
};
use crate::{api::Readiness, counters::Counter, limits, memory::Account, packet::Packet};

/// What a shard has claimed of one account. How much that is stands in the allowance that goes with it.
#[derive(Debug)]
pub struct Reserve {
    account: Arc<Account>,
    slot: usize,
    /// Beyond so many bytes to spare some are given back.
    slack: u64,
    /// With less than so much left, windows are limited.
    roomy: i64,
    /// The last question was answered with no.
    is_short: bool,
}

impl Reserve {
    /// With nothing claimed: `allowance` allows nothing from now on. Windows of `buffer` bytes need no limit while there is room for many.
    pub fn new(account: Arc<Account>, slot: usize, buffer: u32, allowance: &mut Allowance) -> Self {
        allowance.allow(0);
        Self {
            slot,
            roomy: i64::from(buffer) * limits::WINDOW_SHARE,
            slack: 2 * account.chunk().unsigned_abs(),
            is_short: false,
            account,
        }
    }

    /// Claims what `bytes` more need, and a chunk ahead; where there is not so much, what there is. Whether they may be held.
    #[cold]
    pub fn ask(&mut self, allowance: &mut Allowance, bytes: usize) -> bool {
        let claimed = signed(allowance.allowed());
        let wanted = signed(allowance.held()) + signed(bytes as u64) - claimed;
        if wanted <= 0 {
            return true;
        }
        let claim = (wanted + self.account.chunk()).min(self.account.room());
        if claim > 0 {
            self.account.claim(self.slot, claim);
            allowance.allow((claimed + claim).unsigned_abs());
        }
        let is_short = claim < wanted;
        if is_short && !self.is_short {
            self.account.press();
        }
        self.is_short = is_short;
        !is_short
    }

    /// Whether more is held than claimed (by what is never refused), or far less.
    #[inline]
    pub const fn is_off(&self, allowance: &Allowance) -> bool {
        allowance.allowed().wrapping_sub(allowance.held()) > self.slack
    }

    /// Makes what is claimed fit what is held: a chunk more, or just as much where that is too much.
    #[cold]
    pub fn settle(&mut self, allowance: &mut Allowance) {
        let claimed = signed(allowance.allowed());
        let held = signed(allowance.held());
        let due = if held > claimed {
            held
        } else {
            held + self.account.chunk()
        };
        self.account.claim(self.slot, due - claimed);
        allowance.allow(due.unsigned_abs());
    }

    /// Gives everything back that is not held.
    #[cold]
    pub fn give_back(&self, allowance: &mut Allowance) {
        let spare = signed(allowance.allowed()) - signed(allowance.held());
        self.account.claim(self.slot, -spare);
        allowance.allow(allowance.held());
    }

    /// Most that a window may offer: an eighth of what is left, so that several may be offered it.
    pub fn window_bound(&self, allowance: &Allowance) -> u32 {
        let left = self.account.about() + signed(allowance.spare());
        if left >= self.roomy {
            return u32::MAX;
        }
        u32::try_from(left.max(0) / limits::WINDOW_SHARE).unwrap_or(u32::MAX)
    }

    /// Whether the account had no more when it was asked last.
    #[inline]
    pub const fn is_short(&self) -> bool {
        self.is_short
    }
}

/// Bytes are far fewer than 2^63: an account's limit is checked.
const fn signed(bytes: u64) -> i64 {
    bytes.cast_signed()
}

/// Why a packet's text is refused although there is memory.
#[derive(Debug)]
pub struct Refusal {
    /// What counts it.
    pub reason: Counter,
    /// What is to be allowed again once it is through.
    pub allowed: u64,
}

/// All of a shard's but for the TCP allowance, which is its segment pool's.
#[derive(Debug)]
pub struct Memory {
    /// Of TCP.
    pub tcp: Reserve,
    /// Of UDP.
    pub udp: Reserve,
    /// What UDP sockets hold.
    pub datagrams: Allowance,
    /// What one socket, and one peer, may hold of it: of TCP.
    pub tcp_shares: Shares,
    /// Of UDP.
    pub udp_shares: Shares,
    /// Connections that hold text behind gaps.
    pub behind: Holders,
    /// What the windows of connections may offer at most, as far as known when the account was asked last: a chunk ago.
    pub window_bound: u32,
    /// What has been counted of [`SegmentPool::pruned`](proto::tcp::SegmentPool::pruned).
    pub pruned: u32,
    /// What one peer may hold while the link's buffers are scarce, as they were last.
    peer_max: u64,
    /// Windows were limited once: connections are told the bound with each output, that it is gone, too.
    limits_windows: bool,
    /// Connections that could send or receive more if there was more memory, first come, first served. The first one's timer looks
    /// after all.
    waiting: VecDeque<u32>,
}

impl Memory {
    /// For at most `connections`, which offer windows of `buffer` bytes.
    pub fn new(
        [tcp, udp]: [Arc<Account>; 2],
        slot: usize,
        pool: &mut SegmentPool<Packet>,
        connections: usize,
        buffer: u32,
        (shards, seed): (usize, Seed),
    ) -> Self {
        let mut datagrams = Allowance::default();
        let most = tcp.limit().unsigned_abs();
        pool.allow_behind(most / limits::BEHIND_SHARE / shards.max(1) as u64);
        let segments = pool.memory_mut();
        let mut memory = Self {
            tcp_shares: Shares::new(tcp.clone(), seed.derive(1)),
            udp_shares: Shares::new(udp.clone(), seed.derive(2)),
            behind: Holders::default(),
            tcp: Reserve::new(tcp, slot, buffer, segments),
            udp: Reserve::new(udp, slot, buffer, &mut datagrams),
            datagrams,
            window_bound: u32::MAX,
            pruned: 0,
            peer_max: u64::MAX,
            limits_windows: false,
            waiting: VecDeque::with_capacity(connections),
        };
        memory.look(segments);
        memory
    }

    /// Whether connections must be told [`Self::window_bound`].
    #[inline]
    pub const fn limits_windows(&self) -> bool {
        self.limits_windows
    }

    /// Limits the window of a socket to what it may offer at most, while the link's buffers are scarce or are not: a little always.
    #[cold]
    pub fn limit_window(&self, socket: &mut super::TcpSocket, are_scarce: bool) {
        let (peer, held) = (socket.peer, socket.held().into());
        let peer_max = if are_scarce { self.peer_max } else { u64::MAX };
        let share = self.tcp_shares.window_bound(peer, held, peer_max);
        let little = limits::LITTLE.saturating_sub(socket.receive.memory());
        let bound = self.window_bound.min(share).max(little);
        socket.connection.limit_window(bound);
    }

    /// More is held by streams than claimed, or far less.
    #[cold]
    #[inline(never)]
    pub fn settle(&mut self, segments: &mut Allowance) {
        self.tcp.settle(segments);
        self.look(segments);
    }

    /// How wide windows may be.
    fn look(&mut self, segments: &Allowance) {
        self.window_bound = self.tcp.window_bound(segments);
        self.limits_windows |= self.window_bound < u32::MAX;
    }
}

impl Memory {
    /// Whether [`Shard::make_way`] has something to do for a packet of so much memory that is for `socket`.
    #[inline(always)]
    pub(super) fn needs_way(
        &self,
        pool: &SegmentPool<Packet>,
        socket: &TcpSocket,
        size: usize,
    ) -> bool {
        pool.is_short_behind(size)
            || pool.shelf().is_busy()
            || (self.tcp_shares).lacks(socket.peer, socket.held().into(), size)
    }
}

impl Shard {
    /// Asks for more than is claimed. Whether it may be held.
    fn ask(&mut self, bytes: usize) -> bool {
        let may = self.memory.tcp.ask(self.pool.memory_mut(), bytes);
        self.memory.look(self.pool.memory());
        may
    }

    /// Text that is not taken as a matter of course: memory is claimed for it, text behind gaps gives way to it, the worst holder's first, and
    /// the shares of its socket and peer are looked at. `Some`: one of these is used up, and nothing more is allowed for the time being.
    #[cold]
    #[inline(never)]
    pub(super) fn make_way(
        &mut self,
        number: u32,
        packet: &Packet,
        seq: SeqNum,
    ) -> Option<Refusal> {
        if packet.is_empty() {
            return None;
        }
        let bytes = packet.memory_kept();
        let may = !self.pool.memory().lacks(bytes) || self.ask(bytes);
        let socket = self.tcp.get(number)?;
        let (peer, held) = (socket.peer, u64::from(socket.held()));
        let is_behind = !socket.connection.is_next(seq);
        if !may || !self.pool.shelf().is_roomy() || (is_behind && self.pool.is_short_behind(bytes))
        {
            self.prune_worst(number, is_behind, bytes);
        }
        let shares = &mut self.memory.tcp_shares;
        let mut refused = None;
        if shares.lacks(peer, held, bytes) {
            refused = shares.ask(peer, held, bytes).err();
        }
        // The link's buffers are another thing that peers share.
        let shelf = self.pool.shelf();
        let (is_busy, half) = (shelf.is_busy(), shelf.half(packet.true_size()));
        if is_busy && shares.held_by(peer) + bytes as u64 > half {
            refused.get_or_insert((Whose::Peer, 0));
        }
        self.memory.peer_max = half;
        // From now on windows are told what is left.
        self.memory.limits_windows |= is_busy || refused.is_some();
        let reason = match refused?.0 {
            Whose::Socket => Counter::DropTcpSocketShare,
            Whose::Peer => Counter::DropTcpPeerShare,
        };
        let memory = self.pool.memory_mut();
        let allowed = memory.allowed();
        memory.allow(memory.held());
        Some(Refusal { reason, allowed })
    }

    /// Whether a socket may not hold a byte more.
    #[inline]
    pub(super) fn is_over_share(&mut self, number: u32) -> bool {
        let Some(socket) = self.tcp.get(number) else {
            return false;
        };
        let held = socket.held();
        (self.memory.tcp_shares).lacks(socket.peer, held.into(), 1) && self.share_of(number, 1) == 0
    }

    /// How much of `wanted` bytes the shares of a socket and its peer have room for.
    fn share_of(&mut self, number: u32, wanted: usize) -> usize {
        let Some(socket) = self.tcp.get(number) else {
            return 0;
        };
        let (peer, held) = (socket.peer, u64::from(socket.held()));
        let shares = &mut self.memory.tcp_shares;
        match shares
            .lacks(peer, held, wanted)
            .then(|| shares.ask(peer, held, wanted))
        {
            Some(Err((_, left))) => usize::try_from(left).unwrap_or(usize::MAX).min(wanted),
            _ => wanted,
        }
    }

    /// Text behind gaps gave way to text in order.
    #[cold]
    #[inline(never)]
    pub(super) fn count_pruned(&mut self) {
        let all = self.pool.pruned();
        let new = all.wrapping_sub(std::mem::replace(&mut self.memory.pruned, all));
        self.counters
            .add(self.number, Counter::DropTcpPruned, new.into());
    }

    /// A connection gave back what it held; `Some`: it is gone, and its timer with it.
    #[cold]
    pub(super) fn memory_freed(&mut self, gone: Option<u32>) {
        if let Some(number) = gone {
            self.memory.waiting.retain(|&waiting| waiting != number);
            self.look_soon();
        }
        if self.tcp.len() == 0 {
            // No claim is kept for the next one.
            self.memory.tcp.give_back(self.pool.memory_mut());
        } else if self.memory.tcp.is_off(self.pool.memory()) {
            self.memory.settle(self.pool.memory_mut());
        }
    }

    /// The first one that waits has a timer at the next tick.
    fn look_soon(&mut self) {
        if let Some(&first) = self.memory.waiting.front() {
            self.timers.arm(first, Instant(1));
        }
    }

    /// How much of `total` bytes a connection may add to what it has to send; 0: it must wait. One segment always, if it has nothing.
    #[cold]
    pub(super) fn memory_to_send(&mut self, number: u32, total: usize) -> usize {
        let most = self.host.send_buffer_max;
        let Some(socket) = self.tcp.get_mut(number) else {
            return 0;
        };
        if socket.may_append() < total {
            socket.widen_send_queue(most);
        }
        let wanted = total.min(socket.may_append());
        let (is_first, mss) = (socket.send.len() == 0, socket.connection.send_mss());
        let share = self.share_of(number, wanted);
        if wanted == 0 || (share > 0 && self.ask(share)) {
            return share;
        }
        let spare = usize::try_from(self.pool.memory().spare()).unwrap_or(usize::MAX);
        let spare = spare.min(share);
        if is_first {
            return wanted.min(spare.max(mss.into()));
        }
        if spare == 0 {
            self.wait_for_memory(number);
        }
        wanted.min(spare)
    }

    /// Puts a connection on the list of those that memory is wanted for.
    #[cold]
    pub(super) fn wait_for_memory(&mut self, number: u32) {
        if let Some(socket) = self.tcp.get_mut(number)
            && !std::mem::replace(&mut socket.waits_for_memory, true)
        {
            self.memory.waiting.push_back(number);
            if self.memory.waiting.len() == 1 {
                self.look_soon();
            }
        }
    }

    /// Lets waiting sockets go on, as far as there is memory again, and looks again in a while.
    #[cold]
    #[inline(never)]
    pub(super) fn relieve(&mut self, now: Instant) {
        let piece = limits::RELIEF;
        if !self.pool.memory().lacks(piece) || self.ask(piece) {
            self.memory.tcp.is_short = false;
            self.memory.look(self.pool.memory());
            let spare = self.pool.memory().spare();
            let pieces = usize::try_from(spare).unwrap_or(usize::MAX) / piece;
            for _ in 0..pieces.min(self.memory.waiting.len()) {
                let Some(number) = self.memory.waiting.pop_front() else {
                    break;
                };
                self.relieve_one(number);
            }
        }
        if let Some(&first) = self.memory.waiting.front() {
            self.timers.arm(first, now + limits::MEMORY_RETRY);
        }
    }

    fn relieve_one(&mut self, number: u32) {
        let has_share = self.share_of(number, limits::RELIEF) > 0;
        let Some(socket) = self.tcp.get_mut(number) else {
            return;
        };
        if !has_share {
            return self.memory.waiting.push_back(number);
        }
        socket.waits_for_memory = false;
        let are_scarce = self.pool.shelf().is_busy();
        self.memory.limit_window(socket, are_scarce);
        socket.connection.consumed(0); // a wider window, if the peer should hear of it
        let ready = socket.readiness(true);
        if ready.contains(Readiness::WRITABLE) {
            socket.wake(Readiness::WRITABLE, &mut self.woken);
        }
        if socket.connection.wants_output() {
            self.mark_dirty(number);
        } else if socket.connection.is_short_of_window() {
            socket.waits_for_memory = true;
            self.memory.waiting.push_back(number);
        }
    }

    /// Whether a datagram of so much memory may be kept by a socket that holds `held`; one always, if its socket has none. It is counted then.
    #[inline]
    pub(super) fn may_keep_datagram(&mut self, bytes: usize, held: u64, peer: u16) -> bool {
        let is_first = held == 0;
        let (reserve, datagrams) = (&mut self.memory.udp, &mut self.memory.datagrams);
        let may = !datagrams.lacks(bytes) || reserve.ask(datagrams, bytes);
        let shares = &mut self.memory.udp_shares;
        let refused = if !may {
            Some(Counter::DropUdpLimit)
        } else if shares.lacks(peer, held, bytes) {
            let of = |(whose, _)| match whose {
                Whose::Socket => Counter::DropUdpSocketShare,
                Whose::Peer => Counter::DropUdpPeerShare,
            };
            shares.ask(peer, held, bytes).err().map(of)
        } else {
            None
        };
        if let Some(reason) = refused.filter(|_| !is_first) {
            if reserve.is_off(datagrams) {
                reserve.settle(datagrams); // what was claimed for it
            }
            self.count(reason);
            return false;
        }
        datagrams.add(bytes);
        if !may {
            reserve.settle(datagrams);
        }
        self.memory.udp_shares.change(peer, 0, bytes as u64);
        true
    }

    /// Memory of a peer's datagrams is free again, and the place of each.
    #[inline]
    pub(super) fn datagrams_gone(&mut self, peer: u16, bytes: usize) {
        self.memory.udp_shares.change(peer, bytes as u64, 0);
        self.memory.datagrams.remove(bytes);
        if self.memory.udp.is_off(&self.memory.datagrams) {
            self.memory.udp.settle(&mut self.memory.datagrams);
        }
    }

    /// Bytes that sockets of TCP and UDP hold, as counted packet by packet.
    pub const fn memory_held(&self) -> [u64; 2] {
        [self.pool.memory().held(), self.memory.datagrams.held()]
    }

    /// Panics if what was counted is not what is held.
    pub(super) fn check_memory(&self) {
        let of = |socket: &super::TcpSocket| {
            let received = socket.receive.memory_counted(&self.pool);
            assert_eq!(received, socket.receive.memory() as usize);
            let known = socket.dirty || socket.records_bytes() == socket.records;
            assert!(known, "records of what was sent: {socket:?}");
            received + socket.send.len() + socket.records as usize
        };
        let behind = |socket: &super::TcpSocket| socket.receive.memory_behind(&self.pool);
        let behind: u64 = self.tcp.iter().map(|(_, socket)| behind(socket)).sum();
        assert_eq!(behind, self.pool.behind().held(), "text behind gaps");
        let noted = self.tcp.iter().map(|(_, s)| u64::from(s.held()));
        let booked = [noted.sum(), self.memory.datagrams.held()];
        let shares = [self.memory.tcp_shares.held(), self.memory.udp_shares.held()];
        assert_eq!(booked, shares, "memory of streams and datagrams by peer");
        let streams: usize = self.tcp.iter().map(|(_, socket)| of(socket)).sum();
        let datagrams: usize = self.udp.iter().map(|(_, socket)| socket.memory()).sum();
        let held = [streams as u64, datagrams as u64];
        assert_eq!(held, self.memory_held(), "memory of streams and datagrams");
        assert!(!self.memory.udp.is_off(&self.memory.datagrams));
        let waiting = self.tcp.iter().filter(|(_, s)| s.waits_for_memory).count();
        assert_eq!(
            waiting,
            self.memory.waiting.len(),
            "connections that wait for memory"
        );
        let first = self.memory.waiting.front();
        assert!(
            first.is_none_or(|&n| self.timers.is_armed(n)),
            "the first has a timer"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reserve_goes_to_the_account_chunk_by_chunk() {
        let account = Arc::new(Account::new(1 << 20, 1)); // chunks of 64 KiB
        let mut held = Allowance::default();
        let mut reserve = Reserve::new(account.clone(), 0, 4096, &mut held);
        assert!(held.lacks(1) && reserve.ask(&mut held, 2048));
        assert_eq!(account.claimed(), 2048 + (64 << 10));
        held.add(2048);
        assert!(!held.lacks(64 << 10) && !reserve.is_off(&held));
        assert!(reserve.ask(&mut held, 800 << 10));
        held.add(800 << 10);
        assert_eq!(held.allowed(), 802 * 1024 + (64 << 10));
        held.remove(700 << 10);
        assert!(reserve.is_off(&held), "far too much is claimed");
        reserve.settle(&mut held);
        assert_eq!(account.claimed(), 102 * 1024 + (64 << 10));
        held.remove(102 << 10);
        reserve.give_back(&mut held);
        assert_eq!((account.claimed(), held.allowed()), (0, 0));
    }

    #[test]
    fn at_the_limit_there_is_what_is_left_and_then_nothing() {
        let account = Arc::new(Account::new(65_536, 2));
        let (mut first, mut second) = (Allowance::default(), Allowance::default());
        let mut one = Reserve::new(account.clone(), 0, 1 << 20, &mut first);
        let mut two = Reserve::new(account.clone(), 1, 1 << 20, &mut second);
        // A chunk ahead, less what the account may be off by.
        assert!(one.ask(&mut first, 60_000));
        assert_eq!(account.claimed(), 61_442);
        first.add(60_000);
        assert!(!two.ask(&mut second, 60_000) && two.is_short());
        assert_eq!(account.pressed(), 1);
        assert_eq!(account.claimed(), 65_536, "what was left, for a part of it");
        assert!(!two.ask(&mut second, 60_000));
        assert_eq!(account.pressed(), 1, "once, until there was some again");
        assert_eq!(two.window_bound(&second), (65_536 - 61_442) / 8);
        // A segment that no socket is refused is counted all the same.
        second.add(10_000);
        assert!(two.is_off(&second));
        two.settle(&mut second);
        assert_eq!(account.claimed(), 61_442 + 10_000);
        first.remove(60_000);
        one.give_back(&mut first);
        assert!(two.ask(&mut second, 1000) && !two.is_short());
        assert_eq!(account.pressed(), 1);
    }
}
