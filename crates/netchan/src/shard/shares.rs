//! What one socket and one peer may hold of all sockets' memory, TCP and UDP each.
//!
//! A peer is a remote address, of IPv6 its /64 network (but for link-local ones). Peers are told apart by a keyed hash, 1,024 ways: that two
//! have one share between them is rare, and no peer can arrange it. Each shard claims memory a chunk ahead for each, as for the whole account.

use std::{net::IpAddr, sync::Arc};

use proto::{allowance::Allowance, ip::keyed::Seed};

use crate::memory::{Account, PEERS};

/// A shard's part.
#[derive(Debug)]
pub struct Shares {
    account: Arc<Account>,
    peers: Box<[Allowance; PEERS]>,
    keys: [u64; 2],
    socket_max: u64,
    /// More than so much to spare is given back.
    slack: u64,
}

impl Shares {
    /// With nothing held.
    pub fn new(account: Arc<Account>, seed: Seed) -> Self {
        let mut none = Allowance::default();
        none.allow(0);
        Self {
            peers: Box::new([none; PEERS]),
            keys: seed.0.map(|key| key | 1),
            socket_max: account.socket_max(),
            slack: 2 * account.peer_chunk().unsigned_abs(),
            account,
        }
    }

    /// The number of a peer: the top bits of a product with a secret odd factor, which is universal.
    #[inline]
    pub fn peer(&self, ip: IpAddr) -> u16 {
        let (net, host) = match ip {
            IpAddr::V4(ip) => (ip.to_bits().into(), 0),
            IpAddr::V6(ip) => {
                let [a, b, c, d, rest @ ..] = ip.segments();
                let join = |[a, b, c, d]: [u16; 4]| {
                    [a, b, c, d]
                        .iter()
                        .fold(0, |sum, &word| sum << 16 | u64::from(word))
                };
                let host = if a & 0xffc0 == 0xfe80 { join(rest) } else { 0 };
                (join([a, b, c, d]), host)
            }
        };
        let mixed = (net.wrapping_add(1).wrapping_mul(self.keys[0])).rotate_left(31);
        let mixed = (mixed ^ host.wrapping_mul(self.keys[1])).wrapping_mul(self.keys[1]);
        // The top ten bits.
        #[allow(clippy::cast_possible_truncation)]
        let number = (mixed >> (64 - PEERS.ilog2())) as u16;
        number
    }

    /// Whether a socket that holds `held` may not hold `bytes` more without [`Self::ask`].
    #[inline]
    pub fn lacks(&self, peer: u16, held: u64, bytes: usize) -> bool {
        held + bytes as u64 > self.socket_max
            || self
                .peers
                .get(usize::from(peer))
                .is_none_or(|p| p.lacks(bytes))
    }

    /// Claims what a socket of a peer needs for `bytes` more. Else: whose share is used up, and what there is left of it.
    #[cold]
    pub fn ask(&mut self, peer: u16, held: u64, bytes: usize) -> Result<(), (Whose, u64)> {
        let left = self.socket_max.saturating_sub(held);
        if bytes as u64 > left {
            return Err((Whose::Socket, left));
        }
        let Some(mine) = self.peers.get_mut(usize::from(peer)) else {
            return Ok(());
        };
        if mine.lacks(bytes) {
            let wanted = mine.held() + bytes as u64 - mine.allowed();
            let claimed = self.account.claim_for_peer(peer, wanted);
            mine.allow(mine.allowed() + claimed);
        }
        if mine.lacks(bytes) {
            return Err((Whose::Peer, mine.spare()));
        }
        Ok(())
    }

    /// What a socket of a peer holds is now `after`, and was `before`.
    #[inline(always)]
    pub fn change(&mut self, peer: u16, before: u64, after: u64) {
        let Some(mine) = self.peers.get_mut(usize::from(peer)) else {
            return;
        };
        mine.change(before, after);
        // Wraps where more is held than claimed.
        if mine.allowed().wrapping_sub(mine.held()) > self.slack {
            self.settle(peer);
        }
    }

    /// Makes what is claimed fit what is held.
    #[cold]
    #[inline(never)]
    fn settle(&mut self, peer: u16) {
        if let Some(mine) = self.peers.get_mut(usize::from(peer)) {
            let chunk = if mine.held() == 0 { 0 } else { self.slack / 2 };
            let due = mine.held() + chunk;
            self.account.settle_peer(peer, mine.allowed(), due);
            mine.allow(due);
        }
    }

    /// Most that a window may offer to a socket that holds so much: half of what is left of its share, and an eighth of its peer's, which holds
    /// no more than `peer_max` here.
    #[cold]
    pub fn window_bound(&self, peer: u16, held: u64, peer_max: u64) -> u32 {
        let spare = (self.peers.get(usize::from(peer))).map_or(0, Allowance::spare);
        let left = self.account.left_for_peer(peer) + spare;
        let left = left.min(peer_max.saturating_sub(self.held_by(peer)));
        let bound = (self.socket_max.saturating_sub(held) / 2).min(left / 8);
        u32::try_from(bound).unwrap_or(u32::MAX)
    }

    /// What a peer's sockets hold in this shard.
    pub fn held_by(&self, peer: u16) -> u64 {
        self.peers.get(usize::from(peer)).map_or(0, Allowance::held)
    }

    /// What all its peers' sockets hold.
    pub fn held(&self) -> u64 {
        self.peers.iter().map(Allowance::held).sum()
    }
}

/// Whose share was used up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whose {
    /// The socket's.
    Socket,
    /// Its peer's.
    Peer,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::Limits;

    fn shares(limits: Limits) -> (Arc<Account>, Shares) {
        let [tcp, _] = limits.accounts(64 << 20, 1);
        let account = Arc::new(tcp);
        (
            account.clone(),
            Shares::new(account, Seed([1, 2]).derive(3)),
        )
    }

    #[test]
    fn a_peer_gets_its_share_and_gives_it_back() {
        let (account, mut shares) = shares(Limits {
            tcp_socket: Some(100_000),
            tcp_peer: Some(150_000),
            ..Limits::default()
        });
        let peer = shares.peer([10, 0, 0, 1].into());
        assert!(shares.lacks(peer, 0, 1), "nothing is claimed yet");
        assert_eq!(shares.ask(peer, 0, 90_000), Ok(()));
        shares.change(peer, 0, 90_000);
        let refused = shares.ask(peer, 90_000, 20_000);
        assert_eq!(refused, Err((Whose::Socket, 10_000)));
        // Another socket of this peer, and of another one.
        assert_eq!(shares.ask(peer, 0, 60_001), Err((Whose::Peer, 60_000)));
        assert_eq!(shares.ask(peer, 0, 60_000), Ok(()));
        let others = (2..=9).map(|n| shares.peer([10, 0, 0, n].into()));
        let other = { others }.find(|&other| other != peer).unwrap();
        assert_eq!(shares.ask(other, 0, 100_000), Ok(()));
        shares.change(other, 0, 100_000);
        assert!(shares.window_bound(peer, 90_000, u64::MAX) <= 5_000);
        shares.change(peer, 90_000, 0);
        shares.change(other, 100_000, 0);
        assert_eq!((account.left_for_peer(peer), shares.held()), (150_000, 0));
    }

    /// Half of what a socket has left, an eighth of what its peer has, whether that is claimed already or not.
    #[test]
    fn a_window_is_a_part_of_what_is_left() {
        let (account, mut shares) = shares(Limits {
            tcp_socket: Some(100_000),
            tcp_peer: Some(400_000),
            ..Limits::default()
        });
        let peer = shares.peer([10, 0, 0, 1].into());
        let bound = |shares: &Shares, held| shares.window_bound(peer, held, u64::MAX);
        assert_eq!(bound(&shares, 0), 50_000);
        assert_eq!(bound(&shares, 40_000), 30_000);
        assert_eq!(bound(&shares, 100_000), 0);
        // Of its sockets together: claimed, and in use.
        assert_eq!(shares.ask(peer, 0, 80_000), Ok(()));
        assert!(account.left_for_peer(peer) <= 320_000);
        assert_eq!(bound(&shares, 0), 50_000, "claimed is not used");
        shares.change(peer, 0, 80_000);
        assert_eq!(bound(&shares, 0), 40_000);
        // Where the link's buffers are scarce.
        assert_eq!(shares.window_bound(peer, 0, 160_000), 10_000);
        assert_eq!(shares.window_bound(peer, 0, 70_000), 0);
        assert_eq!((shares.held_by(peer), shares.held()), (80_000, 80_000));
    }

    #[test]
    fn peers_are_told_apart() {
        let (_, shares) = shares(Limits::default());
        let of = |ip: &str| shares.peer(ip.parse().unwrap());
        assert_eq!(of("2001:db8::1"), of("2001:db8::2"), "one network");
        assert_ne!(of("fe80::1"), of("fe80::2"));
        let mut seen = std::collections::HashSet::new();
        for n in 0..=255 {
            seen.insert(shares.peer([10, 0, n, 1].into()));
            seen.insert(of(&format!("2001:db8:0:{n:x}::1")));
        }
        // Of 512 in 1,024 ways about 403 differ.
        assert!(seen.len() > 300, "{}", seen.len());
    }
}
