//! TCP-AO (RFC 5925): segments with a message authentication code under keys that are made anew for each connection. Not the keys
//! themselves (`key`), nor how far a sequence number has come round (`sne`).
//!
//! A [`AoSession`] stands beside a connection, which knows nothing of it but the bytes it takes of each header.

mod key;
mod sne;
#[cfg(all(test, feature = "tcp-auth"))]
mod tests;

use alloc::{sync::Arc, vec::Vec};
use core::net::SocketAddr;

pub use self::key::{AoAlgorithm, AoKey};
use self::{
    key::TrafficKey,
    sne::{Extension, SequenceExtension},
};
use super::{connection::Connection, signature::is_signed, types::State};
use crate::wire::tcp::{Flags, HEADER_LEN, SeqNum, option_at};

/// Longest master key: as Linux (TCP_AO_MAXKEYLEN).
pub const AO_KEY_MAX: usize = 80;
/// Longest code: with more a SYN's own options have no room (RFC 5925 §7.6).
pub const AO_MAC_MAX: u8 = 16;
/// Option kind (RFC 5925 §2.2).
const KIND: u8 = 29;
/// Kind, length and the two key ids, in front of the code.
const LEAD: usize = 4;

/// What became of a segment that was to be verified.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AoVerdict {
    /// Its code is right.
    Good,
    /// No option though one is asked for.
    Missing,
    /// None of the keys has its id.
    NoKey,
    /// Its code is wrong, or there are two options, or one of RFC 2385 beside it (RFC 5925 §2.2).
    Bad,
}

/// How many segments of each [`AoVerdict`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct AoCounts {
    pub good: u64,
    pub missing: u64,
    pub no_key: u64,
    pub bad: u64,
    /// ICMP errors that did not count (RFC 5925 §7.8).
    pub icmp: u64,
}

/// The initial sequence numbers of a connection: ours, and the peer's once it is known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AoIsns {
    /// Ours.
    pub local: SeqNum,
    /// The peer's.
    pub remote: Option<SeqNum>,
}

/// The key ids in a segment (RFC 5925 §2.2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AoIds {
    /// KeyID: what it is signed with.
    pub key: u8,
    /// RNextKeyID: what its sender wants to be answered with.
    pub next: u8,
}

/// A key with what a connection has made of it.
#[derive(Clone, Debug)]
struct Held {
    key: Arc<AoKey>,
    /// The keys of all segments but SYNs, outward and inward, and the initial sequence numbers they are made of.
    others: Option<([TrafficKey; 2], [SeqNum; 2])>,
    good: u64,
    bad: u64,
}

/// What is known of one key of a session.
#[derive(Clone, Debug)]
pub struct AoKeyState {
    /// The key.
    pub key: Arc<AoKey>,
    /// Segments out are signed with it.
    pub is_current: bool,
    /// The peer is asked to sign with it.
    pub is_next: bool,
    /// Segments that verified with it.
    pub good: u64,
    /// Segments that named it and did not.
    pub bad: u64,
}

/// What signs and verifies the segments of one connection: its master keys, of which one is current and one asked for, and how far
/// both directions have come (RFC 5925 §6, the TCB's part).
#[derive(Clone, Debug)]
pub struct AoSession {
    local: SocketAddr,
    remote: SocketAddr,
    keys: Vec<Held>,
    /// Current_key and RNext_key, places in `keys`.
    current: usize,
    next: usize,
    sent: SequenceExtension,
    received: SequenceExtension,
    counts: AoCounts,
    /// ICMP errors count as without TCP-AO.
    pub accepts_icmp: bool,
}

/// What of a segment says how it is signed.
struct Seen {
    seq: SeqNum,
    flags: Flags,
}

impl Seen {
    fn of(segment: &[u8]) -> Option<Self> {
        let header = segment.first_chunk::<HEADER_LEN>()?;
        Some(Self {
            seq: SeqNum(u32::from_be_bytes(*header[4..].first_chunk()?)),
            flags: Flags(u16::from(header[13])),
        })
    }

    /// A SYN that knows nothing of the peer.
    fn opens(&self) -> bool {
        self.flags.contains(Flags::SYN) && !self.flags.contains(Flags::ACK)
    }
}

impl AoSession {
    /// For a connection between these; signs with the key that has `ids.key` as its send id and asks for the one that has `ids.next` as
    /// its receive id, or for the first. `None`: no keys.
    pub fn new(
        local: SocketAddr,
        remote: SocketAddr,
        keys: impl IntoIterator<Item = Arc<AoKey>>,
        (current, next): (Option<u8>, Option<u8>),
    ) -> Option<Self> {
        let hold = |key| Held {
            key,
            others: None,
            good: 0,
            bad: 0,
        };
        let keys: Vec<Held> = keys.into_iter().map(hold).collect();
        if keys.is_empty() {
            return None;
        }
        let mut session = Self {
            local,
            remote,
            keys,
            current: 0,
            next: 0,
            sent: SequenceExtension::default(),
            received: SequenceExtension::default(),
            counts: AoCounts::default(),
            accepts_icmp: false,
        };
        current.map(|id| session.set_current(id));
        next.map(|id| session.set_next(id));
        Some(session)
    }

    /// Bytes of each header that its option takes, a multiple of 4.
    pub fn room(&self) -> u8 {
        let len = self.keys.iter().map(|held| held.key.mac_len()).max();
        (4 + len.unwrap_or(0)).next_multiple_of(4)
    }

    /// Signs with the key of this send id from now on (RFC 5925 §7.1); false: there is none.
    pub fn set_current(&mut self, send_id: u8) -> bool {
        let at = self.keys.iter().position(|h| h.key.send_id() == send_id);
        self.current = at.unwrap_or(self.current);
        at.is_some()
    }

    /// Asks the peer for the key of this receive id from now on; false: there is none.
    pub fn set_next(&mut self, receive_id: u8) -> bool {
        let at = self.place_of(receive_id);
        self.next = at.unwrap_or(self.next);
        at.is_some()
    }

    fn place_of(&self, receive_id: u8) -> Option<usize> {
        let is = |held: &Held| held.key.receive_id() == receive_id;
        self.keys.iter().position(is)
    }

    /// One key more; false: another has one of its ids.
    pub fn add(&mut self, key: Arc<AoKey>) -> bool {
        if self.keys.iter().any(|held| held.key.shares_id(&key)) {
            return false;
        }
        self.keys.push(Held {
            key,
            others: None,
            good: 0,
            bad: 0,
        });
        true
    }

    /// One key less; false: there is none with these ids, or it is in use (RFC 5925 §7.1: name another current key first).
    pub fn remove(&mut self, send_id: u8, receive_id: u8) -> bool {
        let is = |h: &Held| h.key.send_id() == send_id && h.key.receive_id() == receive_id;
        match self.keys.iter().position(is) {
            Some(at) if at != self.current && at != self.next => {
                self.keys.remove(at);
                self.current -= usize::from(self.current > at);
                self.next -= usize::from(self.next > at);
                true
            }
            _ => false,
        }
    }

    /// What is known of each key.
    pub fn keys(&self) -> impl Iterator<Item = AoKeyState> {
        let state = |(at, held): (usize, &Held)| AoKeyState {
            key: held.key.clone(),
            is_current: at == self.current,
            is_next: at == self.next,
            good: held.good,
            bad: held.bad,
        };
        self.keys.iter().enumerate().map(state)
    }

    /// What was counted.
    pub const fn counts(&mut self) -> &mut AoCounts {
        &mut self.counts
    }

    /// The current key's send id, and the receive id of the one asked for.
    pub fn ids(&self) -> AoIds {
        let id = |at: usize| self.keys.get(at).map(|held| &held.key);
        AoIds {
            key: id(self.current).map_or(0, |key| key.send_id()),
            next: id(self.next).map_or(0, |key| key.receive_id()),
        }
    }

    /// Signs a segment whose options end with as many bytes kept free as [`Self::room`] says. Its checksum is to be made again. False:
    /// there are none.
    pub fn sign(&mut self, isns: AoIsns, segment: &mut [u8]) -> bool {
        self.put(isns, segment).is_some()
    }

    fn put(&mut self, isns: AoIsns, segment: &mut [u8]) -> Option<()> {
        let seen = Seen::of(segment)?;
        let (ids, room) = (self.ids(), usize::from(self.room()));
        let held = self.keys.get_mut(self.current)?;
        let len = held.key.mac_len();
        let end = usize::from(segment.get(12)? >> 4) * 4;
        let place = segment.get_mut(HEADER_LEN..end)?;
        let place = place.len().checked_sub(room).map(|at| at + HEADER_LEN)?;
        let option = segment.get_mut(place..place + LEAD)?;
        option.copy_from_slice(&[KIND, 4 + len, ids.key, ids.next]);
        let mac = place + LEAD..place + LEAD + usize::from(len);
        let ends = (self.local, self.remote);
        let (code, extension) = if seen.opens() {
            let key = held.key.traffic_key(ends, seen.seq, SeqNum(0));
            (held.key.mac(&key, 0, ends, segment, mac.clone())?, None)
        } else {
            let remote = isns.remote.unwrap_or(SeqNum(0));
            let extension = self.sent.of(isns.local, seen.seq);
            let [key, _] = held.others(ends, [isns.local, remote]);
            let code = held
                .key
                .mac(&key, extension.sne, ends, segment, mac.clone())?;
            (code, Some(extension))
        };
        segment
            .get_mut(mac)?
            .copy_from_slice(code.get(..usize::from(len))?);
        if let Some(extension) = extension {
            self.sent.advance(extension);
        }
        Some(())
    }

    /// Looks at a segment of the peer's (RFC 5925 §7.5), and takes up the key it asks for.
    pub fn verify(&mut self, isns: AoIsns, segment: &[u8]) -> AoVerdict {
        let verdict = self.look_at(isns, segment);
        let count = match verdict {
            AoVerdict::Good => &mut self.counts.good,
            AoVerdict::Missing => &mut self.counts.missing,
            AoVerdict::NoKey => &mut self.counts.no_key,
            AoVerdict::Bad => &mut self.counts.bad,
        };
        *count += 1;
        verdict
    }

    fn look_at(&mut self, isns: AoIsns, segment: &[u8]) -> AoVerdict {
        let (ids, mac) = match find(segment) {
            Found::One(ids, mac) => (ids, mac),
            Found::None => return AoVerdict::Missing,
            Found::Wrong => return AoVerdict::Bad,
        };
        let Some(at) = self.place_of(ids.key) else {
            return AoVerdict::NoKey;
        };
        let found = self.matches(at, isns, segment, mac);
        let Some(held) = self.keys.get_mut(at) else {
            return AoVerdict::NoKey;
        };
        match found {
            None => {
                held.bad += 1;
                AoVerdict::Bad
            }
            Some(extension) => {
                held.good += 1;
                if let Some(extension) = extension {
                    self.received.advance(extension);
                }
                // RFC 5925 §7.5 (2) e: the peer is ready for another key.
                self.set_current(ids.next);
                AoVerdict::Good
            }
        }
    }

    /// `None`: the code is wrong. `Some(None)`: it is a SYN's, which says nothing of how far the sequence numbers have come.
    #[allow(clippy::option_option)]
    fn matches(
        &mut self,
        at: usize,
        isns: AoIsns,
        segment: &[u8],
        mac: core::ops::Range<usize>,
    ) -> Option<Option<Extension>> {
        let seen = Seen::of(segment)?;
        let held = self.keys.get_mut(at)?;
        let signed = segment.get(mac.clone())?;
        if signed.len() != usize::from(held.key.mac_len()) {
            return None;
        }
        let ends = (self.remote, self.local);
        let (code, extension) = if seen.opens() {
            let key = held.key.traffic_key(ends, seen.seq, SeqNum(0));
            (held.key.mac(&key, 0, ends, segment, mac)?, None)
        } else {
            // Before the peer's SYN has come its answer says where it begins; of a reset that answers ours that is 0.
            let says = seen.flags.intersects(Flags::SYN | Flags::RST);
            let remote = isns.remote.or(says.then_some(seen.seq))?;
            let extension = self.received.of(remote, seen.seq);
            let [_, key] = held.others((self.local, self.remote), [isns.local, remote]);
            let code = held.key.mac(&key, extension.sne, ends, segment, mac)?;
            let learnt = isns.remote.is_some() || seen.flags.contains(Flags::SYN);
            (code, learnt.then_some(extension))
        };
        // Without a branch that tells how much was right.
        let differences = signed.iter().zip(code).fold(0, |all, (a, b)| all | (a ^ b));
        (differences == 0).then_some(extension)
    }
}

impl Held {
    /// The traffic keys of segments that are no SYN without ACK (RFC 5925 §5.2), outward and inward, made once.
    fn others(
        &mut self,
        (local, remote): (SocketAddr, SocketAddr),
        isns: [SeqNum; 2],
    ) -> [TrafficKey; 2] {
        if let Some((keys, of)) = self.others
            && of == isns
        {
            return keys;
        }
        let [ours, theirs] = isns;
        let keys = [
            self.key.traffic_key((local, remote), ours, theirs),
            self.key.traffic_key((remote, local), theirs, ours),
        ];
        self.others = Some((keys, isns));
        keys
    }
}

/// The options of a segment, as far as they concern this one.
enum Found {
    None,
    /// The key ids, and where the code stands.
    One(AoIds, core::ops::Range<usize>),
    /// RFC 5925 §2.2: two of them, one of RFC 2385 beside it, or none of its ids.
    Wrong,
}

fn find(segment: &[u8]) -> Found {
    let Some(place) = option_at(segment, KIND, HEADER_LEN) else {
        return Found::None;
    };
    let again = option_at(segment, KIND, place.end).is_some();
    match segment.get(place.clone()) {
        Some(&[key, next, _, ..]) if !again && !is_signed(segment) => {
            Found::One(AoIds { key, next }, place.start + 2..place.end)
        }
        _ => Found::Wrong,
    }
}

/// The key ids of a segment that carries the option, as it should.
pub fn ao_ids(segment: &[u8]) -> Option<AoIds> {
    match find(segment) {
        Found::One(ids, _) => Some(ids),
        _ => None,
    }
}

/// Where the connections begin between which a segment without one stands: a SYN says all that its code is made of; an ACK, which may
/// answer a SYN cookie, follows both SYNs. `None`: nothing tells (RFC 5925 §7.7).
pub fn ao_isns_of(segment: &[u8]) -> Option<AoIsns> {
    let seen = Seen::of(segment)?;
    let header = segment.first_chunk::<HEADER_LEN>()?;
    let ack = SeqNum(u32::from_be_bytes(*header[8..].first_chunk()?));
    if seen.opens() {
        return Some(AoIsns {
            local: SeqNum(0),
            remote: Some(seen.seq),
        });
    }
    let plain = seen.flags.contains(Flags::ACK) && !seen.flags.intersects(Flags::SYN | Flags::RST);
    plain.then(|| AoIsns {
        local: ack - 1,
        remote: Some(seen.seq - 1),
    })
}

impl Connection {
    /// Where both directions begin.
    pub fn ao_isns(&self) -> AoIsns {
        AoIsns {
            local: self.iss,
            remote: (self.state != State::SynSent).then_some(self.irs),
        }
    }
}
