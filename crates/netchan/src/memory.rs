//! What the sockets of a stack hold together, and how much they may (N4): an account for TCP and one for UDP, each a batched counter (N2).
//!
//! A shard claims memory a chunk ahead ([`crate::shard`], `memory`), and comes back when its chunk is used up or when it has two to spare. So
//! what the account says is never less than what sockets hold, and more by [`Account::error_max`] at most. Beyond the limit no shard is given a
//! chunk; but a socket that holds nothing may always take one packet (a stream also a second one in order, or one segment to send), so that
//! no socket is kept from freeing memory.

use std::sync::atomic::{AtomicI64, Ordering::Relaxed};

use percore::counter::{Atomic, Batched};

use crate::{errno::invalid, limits};

/// Whether so many bytes of address space are to be had now. What a stack reserves at its start is reserved after this was asked: collections end the
/// process where there is no memory, and a process with little (`ulimit -v`) shall be told.
///
/// # Errors
/// `OutOfMemory`.
pub fn probe(bytes: usize) -> std::io::Result<()> {
    let mut room: Vec<u8> = Vec::new();
    let there = room.try_reserve_exact(bytes);
    std::hint::black_box(&room); // or the compiler finds that nothing is done with it
    there.map_err(|_| std::io::ErrorKind::OutOfMemory.into())
}

/// Ways in which peers are told apart (`shard::shares`).
pub const PEERS: usize = 1024;

/// What one protocol's sockets hold, in bytes: buffers of received packets, and text to be sent.
#[derive(Debug)]
pub struct Account {
    claimed: Batched,
    limit: i64,
    chunk: i64,
    shards: u64,
    /// Times that a shard found the limit reached.
    pressed: Atomic,
    /// What one socket may hold, and all sockets of one peer.
    share: [u64; 2],
    /// What shards have claimed for each peer.
    peers: Vec<AtomicI64>,
}

impl Account {
    /// An account of at most `limit` bytes for so many shards, each with a slot of its own, without shares.
    #[cfg(test)]
    pub fn new(limit: u64, shards: usize) -> Self {
        Self::with_shares(limit, [limit; 2], shards)
    }

    /// An account of at most `limit` bytes for so many shards, each with a slot of its own; a socket and a peer may hold so much of it at most.
    pub fn with_shares(limit: u64, share: [u64; 2], shards: usize) -> Self {
        let slots = shards as u64;
        let chunk = (limit / limits::MEMORY_CHUNKS / slots.max(1)).clamp(1, limits::MEMORY_CHUNK);
        let signed = |n: u64| i64::try_from(n).unwrap_or(i64::MAX);
        Self {
            claimed: Batched::new(shards, chunk),
            limit: signed(limit),
            chunk: signed(chunk),
            shards: slots,
            pressed: Atomic::new(),
            share: share.map(|share| share.min(limit)),
            peers: (0..PEERS).map(|_| AtomicI64::new(0)).collect(),
        }
    }

    /// Bytes that one socket may hold.
    pub const fn socket_max(&self) -> u64 {
        self.share[0]
    }

    /// Bytes that all sockets of one peer may hold.
    pub const fn peer_max(&self) -> u64 {
        self.share[1]
    }

    /// Bytes that a shard claims ahead for a peer.
    pub fn peer_chunk(&self) -> i64 {
        let parts = limits::MEMORY_CHUNKS * self.shards.max(1);
        (self.peer_max() / parts)
            .clamp(1, limits::MEMORY_CHUNK)
            .cast_signed()
    }

    /// Bytes that may still be claimed for a peer. (Relaxed, here and below: sums that order nothing.)
    pub fn left_for_peer(&self, peer: u16) -> u64 {
        let claimed = (self.peers.get(usize::from(peer))).map_or(0, |sum| sum.load(Relaxed));
        let left = self.peer_max().cast_signed() - claimed;
        left.max(0).unsigned_abs()
    }

    /// A shard claims `wanted` bytes for a peer, and a chunk ahead; how much it gets. Shards that ask at the same time may pass the limit by
    /// as much each.
    pub fn claim_for_peer(&self, peer: u16, wanted: u64) -> u64 {
        let ahead = wanted + self.peer_chunk().unsigned_abs();
        let claim = ahead.min(self.left_for_peer(peer));
        if let Some(sum) = self.peers.get(usize::from(peer)) {
            sum.fetch_add(claim.cast_signed(), Relaxed);
        }
        claim
    }

    /// A shard that had claimed `before` bytes for a peer claims `after`.
    pub fn settle_peer(&self, peer: u16, before: u64, after: u64) {
        if let Some(sum) = self.peers.get(usize::from(peer)) {
            sum.fetch_add(after.cast_signed() - before.cast_signed(), Relaxed);
        }
    }

    /// Bytes that a shard claims ahead.
    pub const fn chunk(&self) -> i64 {
        self.chunk
    }

    /// Bytes that may be held.
    pub const fn limit(&self) -> i64 {
        self.limit
    }

    /// Bytes that shards have claimed.
    pub fn claimed(&self) -> i64 {
        self.claimed.sum()
    }

    /// By how much that may be more than what their sockets hold.
    pub const fn error_max(&self) -> u64 {
        2 * self.chunk.unsigned_abs() * self.shards
    }

    /// Times that a shard found the limit reached.
    pub fn pressed(&self) -> u64 {
        self.pressed.read()
    }

    /// Bytes that may still be claimed; negative, if more is held than the limit. One load far from the limit, exact near to it.
    pub fn room(&self) -> i64 {
        let error = i64::try_from(self.claimed.error_max()).unwrap_or(i64::MAX);
        let near = self.about();
        if near > error {
            near - error
        } else {
            self.limit - self.claimed.sum()
        }
    }

    /// About the same, by one load.
    #[inline]
    pub fn about(&self) -> i64 {
        self.limit - self.claimed.approximate()
    }

    /// A shard claims `bytes`, or (negative) gives them back. Shards that ask at the same time may pass the limit by a chunk each.
    pub fn claim(&self, shard: usize, bytes: i64) {
        self.claimed.add(shard, bytes);
    }

    /// A shard found the limit reached.
    pub fn press(&self) {
        self.pressed.add(1);
    }
}

/// Limits as they were asked for; `None`: a share of the receive slabs.
#[derive(Clone, Copy, Debug, Default)]
pub struct Limits {
    /// Of what TCP sockets hold.
    pub tcp: Option<u64>,
    /// Of what UDP sockets hold.
    pub udp: Option<u64>,
    /// Of what one TCP socket holds; `None`, here and below: a share of that.
    pub tcp_socket: Option<u64>,
    /// Of what all TCP sockets of one peer hold.
    pub tcp_peer: Option<u64>,
    /// Of what one UDP socket holds.
    pub udp_socket: Option<u64>,
    /// Of what all datagrams of one peer hold.
    pub udp_peer: Option<u64>,
}

impl Limits {
    /// Whether they can be kept.
    ///
    /// # Errors
    /// `InvalidInput`, with the range.
    pub fn check(&self) -> std::io::Result<()> {
        let limits = [
            ("tcp", self.tcp),
            ("tcp socket", self.tcp_socket),
            ("tcp peer", self.tcp_peer),
            ("udp", self.udp),
            ("udp socket", self.udp_socket),
            ("udp peer", self.udp_peer),
        ];
        for (name, limit) in limits {
            let range = limits::MEMORY;
            if let Some(bytes) = limit.filter(|bytes| !range.contains(bytes)) {
                let (least, most) = (range.start(), range.end());
                return Err(invalid(format!(
                    "{name} memory of {bytes} bytes is out of range: {least} to {most}"
                )));
            }
        }
        Ok(())
    }

    /// The accounts of TCP and UDP, in a stack whose receive slabs have `slabs` bytes together.
    pub fn accounts(&self, slabs: u64, shards: usize) -> [Account; 2] {
        let least = *limits::MEMORY.start();
        let tcp = self.tcp.unwrap_or(slabs * limits::TCP_MEMORY_SLABS);
        let share = limits::UDP_SHARE as u64;
        let most = slabs * limits::QUEUED_EIGHTHS as u64 / 8 / share;
        let udp = self.udp.map_or(most, |asked| asked.min(most));
        let account = |limit: u64, socket: Option<u64>, peer: Option<u64>| {
            let limit = limit.max(least);
            let share = [(socket, limits::SOCKET_SHARE), (peer, limits::PEER_SHARE)];
            let share = share.map(|(asked, part)| asked.unwrap_or((limit / part).max(least)));
            Account::with_shares(limit, share, shards)
        };
        [
            account(tcp, self.tcp_socket, self.tcp_peer),
            account(udp, self.udp_socket, self.udp_peer),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_account_knows_its_room_far_from_the_limit_and_near_to_it() {
        let account = Account::new(1 << 20, 4);
        assert_eq!(account.chunk(), 16 << 10); // 1 MiB / 16 / 4
        assert_eq!(account.error_max(), 4 * 2 * (16 << 10));
        let far = account.room();
        let error = 4 * ((16 << 10) - 1);
        assert_eq!(far, (1 << 20) - error, "one load, with its error");
        for shard in 0..4 {
            account.claim(shard, (1 << 18) - 100);
        }
        assert_eq!(account.room(), 400, "to the byte where it matters");
        account.claim(3, 1000);
        assert_eq!((account.room(), account.claimed()), (-600, (1 << 20) + 600));
        for shard in 0..4 {
            account.claim(shard, 100 - (1 << 18));
        }
        account.claim(3, -1000);
        assert_eq!(account.claimed(), 0);
    }

    #[test]
    fn limits_that_cannot_be_kept_are_refused() {
        let check = |tcp, udp| {
            let limits = Limits {
                tcp,
                udp,
                ..Limits::default()
            };
            limits.check().map_err(|e| e.to_string())
        };
        assert!(check(None, None).is_ok() && check(Some(65_536), Some(1 << 30)).is_ok());
        let zero = check(Some(0), None).unwrap_err();
        assert!(zero.contains("tcp memory of 0 bytes") && zero.contains("65536"));
        let small = check(None, Some(65_535)).unwrap_err();
        assert!(small.contains("udp memory of 65535 bytes"), "{small}");
        assert!(check(Some(u64::MAX), None).is_err());
        let peer = Limits {
            udp_peer: Some(1),
            ..Limits::default()
        };
        let small = peer.check().unwrap_err().to_string();
        assert!(small.contains("udp peer memory of 1 bytes"), "{small}");
    }

    #[test]
    fn a_default_is_a_share_of_the_slabs() {
        let [tcp, udp] = Limits::default().accounts(64 << 20, 1);
        assert_eq!((tcp.limit(), udp.limit()), (128 << 20, 12 << 20));
        let [tcp, udp] = Limits::default().accounts(1, 64);
        assert_eq!((tcp.limit(), udp.limit()), (65_536, 65_536));
        let asked = Limits {
            tcp: Some(1 << 30),
            udp: Some(1 << 30),
            ..Limits::default()
        };
        let [tcp, udp] = asked.accounts(64 << 20, 1);
        assert_eq!(
            (tcp.limit(), udp.limit()),
            (1 << 30, 12 << 20),
            "datagrams never keep the link from receiving"
        );
    }
}
