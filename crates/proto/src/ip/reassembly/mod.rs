//! Fragments in: RFC 791 §3.2, RFC 1122 §3.3.2 for IPv4; RFC 8200 §4.5, RFC 5722, RFC 6946 for
//! IPv6.
//!
//! All memory is taken at construction, and its size is a sum: [`Config::memory`]. Fragments may
//! come in any order. A datagram whose fragments overlap, contradict each other about its end, or
//! are too many dies whole and stays dead until its time is over (RFC 5722 §4), for IPv4 as well:
//! no honest sender makes overlaps. An exact copy of a fragment is passed over. When memory or places
//! run out the oldest datagram of the sender that holds most goes (`holders`): a flood of
//! fragments that lead nowhere pushes out its own, and other senders' datagrams complete.

use alloc::vec::Vec;
use core::net::IpAddr;

use super::keyed::{Key, Map, Seed};
use crate::time::{Duration, Instant};
use crate::wire::ipv6::extension::FRAGMENT_HEADER_LEN;
use crate::wire::{checksum, ipv4, ipv6};

mod arena;
mod holders;
mod input;

use arena::{Arena, Chain};
use holders::{Holders, Short};
pub use input::Fragment;

/// The bounds of a reassembler.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// Octets of fragments held, counted in chunks of 256; at least 128 KiB are taken.
    pub bytes: usize,
    /// Datagrams being put together.
    pub datagrams: usize,
    /// Fragments of one datagram; 65535 octets at an MTU of 576 are 119.
    pub fragments: usize,
    /// From the first fragment that arrives, whatever follows (RFC 1122 §3.3.2: fixed, 60 to 120 s;
    /// RFC 8200 §4.5: 60 s).
    pub timeout: Duration,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            bytes: 1 << 20,
            datagrams: 128,
            fragments: 256,
            timeout: Duration::from_secs(60),
        }
    }
}

/// Largest datagram that comes out: an IPv6 header and 65535 octets behind it.
const DATAGRAM_MAX: usize = ipv6::HEADER_LEN + 65_535;
/// A whole datagram in fragments must fit, its waste included.
const BYTES_MIN: usize = 128 * 1024;

impl Config {
    /// Octets a reassembler of this configuration takes, within a few per cent.
    #[must_use]
    pub const fn memory(&self) -> usize {
        let bytes = if self.bytes < BYTES_MIN {
            BYTES_MIN
        } else {
            self.bytes
        };
        let pieces = self.datagrams * self.fragments * size_of::<Option<Piece>>();
        let datagrams = self.datagrams * (size_of::<Datagram>() + size_of::<Name>() + 32);
        bytes + pieces + datagrams + DATAGRAM_MAX
    }
}

/// Which datagram a fragment belongs to (RFC 791 §3.2; RFC 8200 §4.5, where the protocol does not
/// count).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Name {
    /// Sender.
    pub source: IpAddr,
    /// Receiver.
    pub destination: IpAddr,
    /// IPv4's protocol field; 0 for IPv6.
    pub protocol: u8,
    /// Identification: 16 bits of IPv4, 32 of IPv6.
    pub ident: u32,
}

impl Key for Name {
    fn digest(&self, seed: Seed) -> u64 {
        let octets = |ip| match ip {
            IpAddr::V4(ip) => core::net::Ipv4Addr::to_ipv6_mapped(&ip).octets(),
            IpAddr::V6(ip) => ip.octets(),
        };
        let mut bytes = [0; 37];
        bytes[..16].copy_from_slice(&octets(self.source));
        bytes[16..32].copy_from_slice(&octets(self.destination));
        bytes[32..36].copy_from_slice(&self.ident.to_le_bytes());
        bytes[36] = self.protocol;
        seed.hash(&bytes)
    }
}

/// What became of a fragment.
#[derive(Debug, PartialEq, Eq)]
pub enum Outcome<'a> {
    /// Kept; more are missing.
    Waiting,
    /// The last one that was missing: a whole packet, IP header first. IPv4: with the options of
    /// the first fragment and a right checksum. IPv6: the fixed header, then what was fragmented
    /// (to be walked as reassembled); the extension headers before the fragment header have had
    /// their effect and are gone. Neighbour discovery must not be taken from it (RFC 6980 §5).
    Complete(&'a [u8]),
    /// Not kept.
    Dropped(DropReason),
    /// Not kept, and the sender is to be told: an ICMPv6 Parameter Problem, code 0, at this offset
    /// of the packet.
    ParameterProblem {
        /// From the start of the IPv6 header.
        pointer: u32,
    },
}

/// Why a fragment was not kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DropReason {
    /// The datagram would be longer than 65535 octets (negative 19).
    TooLong,
    /// Not the last one, and its length is no multiple of 8 (negative 22).
    Unaligned,
    /// No data (negative 23).
    Empty,
    /// The first one, and the upper layer's header is not all in it (RFC 1858, RFC 7112 §5;
    /// negative 21).
    Tiny,
    /// Overlaps another, or they differ about the end: the datagram is dead now (RFC 5722;
    /// negative 20, 24, 43).
    Overlap,
    /// The datagram died earlier.
    Dead,
    /// The datagram has [`Config::fragments`] of them: it is dead now (negative 29).
    TooMany,
    /// Memory is short, even without all others.
    NoMemory,
    /// An exact copy of one that is here; nothing is lost.
    Duplicate,
    /// One fragment was marked as having met congestion, another as not able to be marked: the
    /// datagram is dead now (RFC 3168 §5.3).
    CongestionMark,
}

/// What happened to datagrams as wholes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// They made room for others.
    pub evicted: u64,
    /// Their time was over.
    pub timed_out: u64,
    /// They came out whole.
    pub completed: u64,
}

/// One fragment's place in its datagram.
struct Piece {
    start: u32,
    end: u32,
    data: Chain,
}

/// A datagram being put together. While `dead` it holds nothing and only remembers that.
struct Datagram {
    deadline: Instant,
    dead: bool,
    count: usize,
    received: u32,
    /// Where it ends, once the last fragment came.
    total: Option<u32>,
    /// Headers of the fragment at offset 0, as they came.
    header: Chain,
    /// The ECN fields seen, one bit each (RFC 3168 §5.3).
    marks: u8,
    older: u32,
    newer: u32,
    /// Its sender, and its neighbours among the same sender's.
    holder: u8,
    holders_older: u32,
    holders_newer: u32,
}

const NONE: u32 = u32::MAX;

/// Puts datagrams together: see the head of this module.
pub struct Reassembler {
    config: Config,
    map: Map<Name, Datagram>,
    /// `config.fragments` per datagram, sorted by where they start.
    pieces: Vec<Option<Piece>>,
    arena: Arena,
    out: Vec<u8>,
    oldest: u32,
    newest: u32,
    holders: Holders,
    counts: Counts,
}

impl Reassembler {
    /// A reassembler within these bounds; all memory is taken here.
    #[must_use]
    pub fn new(config: Config, seed: Seed) -> Self {
        let config = Config {
            bytes: config.bytes.max(BYTES_MIN),
            datagrams: config.datagrams.clamp(1, 1 << 16),
            fragments: config.fragments.clamp(2, 8192),
            ..config
        };
        let mut pieces = Vec::new();
        pieces.resize_with(config.datagrams * config.fragments, || None);
        Self {
            config,
            map: Map::new(config.datagrams, seed.derive(0x5245_4153)),
            pieces,
            arena: Arena::new(config.bytes),
            out: alloc::vec![0; DATAGRAM_MAX],
            oldest: NONE,
            newest: NONE,
            holders: Holders::new(seed.derive(0x484f_4c44)),
            counts: Counts::default(),
        }
    }

    /// Events counted since construction.
    #[must_use]
    pub const fn counts(&self) -> Counts {
        self.counts
    }

    /// Datagrams begun and not finished, dead ones included.
    #[must_use]
    pub fn len(&self) -> usize {
        self.map.len()
    }

    /// Whether nothing is begun.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.map.len() == 0
    }

    /// Octets still free for fragments, counted in chunks.
    #[must_use]
    pub const fn free_bytes(&self) -> usize {
        self.arena.free_bytes()
    }

    /// When [`Self::on_timer`] wants to be called.
    #[must_use]
    pub fn deadline(&self) -> Option<Instant> {
        self.map
            .at(self.oldest)
            .map(|(_, datagram)| datagram.deadline)
    }

    /// Gives up datagrams whose time is over. Where the first fragment had come, `expired` gets it
    /// as it came, IP header first and cut at 1280 octets, for an ICMP Time Exceeded, code 1
    /// (RFC 1122 §3.3.2, RFC 8200 §4.5). Without the first fragment nothing is sent (negative 25).
    pub fn on_timer(&mut self, now: Instant, mut expired: impl FnMut(&[u8])) {
        while let Some((_, datagram)) = self.map.at(self.oldest)
            && datagram.deadline <= now
        {
            let place = self.oldest;
            if datagram.header.len() > 0 {
                let quote = &mut self.out[..ipv6::MTU_MIN];
                let mut len = self.arena.copy_out(&datagram.header, quote);
                if let Some(Some(piece)) = self.pieces.get(place as usize * self.config.fragments) {
                    len += self.arena.copy_out(&piece.data, &mut quote[len..]);
                }
                expired(&self.out[..len]);
            }
            self.counts.timed_out += 1;
            self.discard(place);
        }
    }

    /// Puts a complete datagram's parts in order into the output buffer; returns its length.
    fn assemble(&mut self, place: u32, name: &Name) -> Option<usize> {
        let (_, datagram) = self.map.at(place)?;
        let header_len = self.arena.copy_out(&datagram.header, &mut self.out);
        let kept = match name.source {
            IpAddr::V4(_) => header_len,
            IpAddr::V6(_) => {
                // The fragment header is the last one stored; its first octet names what follows.
                let at = header_len.checked_sub(FRAGMENT_HEADER_LEN)?;
                self.out[6] = *self.out.get(at)?;
                ipv6::HEADER_LEN
            }
        };
        let mut at = kept;
        let first = place as usize * self.config.fragments;
        for piece in self
            .pieces
            .get(first..first + datagram.count)?
            .iter()
            .flatten()
        {
            at += self.arena.copy_out(&piece.data, self.out.get_mut(at..)?);
        }
        debug_assert_eq!(Some(at - kept), datagram.total.map(|total| total as usize));
        let congested = datagram.marks & CE != 0;
        let packet = self.out.get_mut(..at)?;
        match name.source {
            IpAddr::V4(_) => finish_v4(packet, kept, congested)?,
            IpAddr::V6(_) => finish_v6(packet, congested)?,
        }
        Some(at)
    }

    /// Removes a datagram and gives back all it holds.
    fn discard(&mut self, place: u32) {
        self.empty(place);
        let Some((_, datagram)) = self.map.at(place) else {
            return;
        };
        let (older, newer) = (datagram.older, datagram.newer);
        match self.map.at_mut(older) {
            Some((_, neighbor)) => neighbor.newer = newer,
            None => self.oldest = newer,
        }
        match self.map.at_mut(newer) {
            Some((_, neighbor)) => neighbor.older = older,
            None => self.newest = older,
        }
        self.leave_holder(place);
        self.map.remove(place);
    }

    /// Gives back all that a datagram holds and leaves it dead: later fragments of it are dropped
    /// (RFC 5722 §4: "including those not yet received").
    fn empty(&mut self, place: u32) {
        let Some((_, datagram)) = self.map.at_mut(place) else {
            return;
        };
        datagram.dead = true;
        let count = core::mem::take(&mut datagram.count);
        let header = core::mem::replace(&mut datagram.header, Chain::EMPTY);
        let holder = datagram.holder;
        let free = self.arena.free_bytes();
        self.arena.release(header);
        let first = place as usize * self.config.fragments;
        for piece in self.pieces.iter_mut().skip(first).take(count) {
            if let Some(piece) = piece.take() {
                self.arena.release(piece.data);
            }
        }
        self.holders.gives(holder, self.arena.free_bytes() - free);
    }

    /// The place of a datagram, begun if need be; another makes room.
    fn place_of(&mut self, name: Name, now: Instant) -> Option<u32> {
        if let Some(place) = self.map.find(&name) {
            return Some(place);
        }
        let holder = self.holders.of(name.source);
        if self.map.len() == self.map.capacity() {
            self.make_room(Short::OfPlaces, holder, NONE);
        }
        let datagram = Datagram {
            deadline: now + self.config.timeout,
            dead: false,
            count: 0,
            received: 0,
            total: None,
            header: Chain::EMPTY,
            marks: 0,
            older: self.newest,
            newer: NONE,
            holder,
            holders_older: NONE,
            holders_newer: NONE,
        };
        let place = self.map.insert(name, datagram, |_, _| None)?;
        match self.map.at_mut(self.newest) {
            Some((_, newest)) => newest.newer = place,
            None => self.oldest = place,
        }
        self.newest = place;
        self.join_holder(place);
        Some(place)
    }
}

/// The bit of "congestion experienced" in [`Datagram::marks`], and that of "not able".
const CE: u8 = 1 << 3;
const NOT_ECT: u8 = 1 << 0;

/// Makes the first fragment's header that of the whole: length, no fragment fields, checksum.
fn finish_v4(packet: &mut [u8], header_len: usize, congested: bool) -> Option<()> {
    let total_len = u16::try_from(packet.len()).ok()?;
    let header = packet.get_mut(..header_len)?;
    let fixed = header.first_chunk_mut::<{ ipv4::HEADER_LEN }>()?;
    if congested {
        fixed[1] |= 3;
    }
    [fixed[2], fixed[3]] = total_len.to_be_bytes();
    fixed[6] &= 0x40; // DF stays; MF and the offset go
    fixed[7] = 0;
    [fixed[10], fixed[11]] = [0, 0];
    let sum = checksum::checksum(header);
    header.get_mut(10..12)?.copy_from_slice(&sum.to_be_bytes());
    Some(())
}

/// Finishes an IPv6 header; the next header is set already.
fn finish_v6(packet: &mut [u8], congested: bool) -> Option<()> {
    let (fixed, payload) = packet.split_first_chunk_mut::<{ ipv6::HEADER_LEN }>()?;
    if congested {
        fixed[1] |= 0x30;
    }
    [fixed[4], fixed[5]] = u16::try_from(payload.len()).ok()?.to_be_bytes();
    Some(())
}

#[cfg(test)]
mod holders_tests;
#[cfg(test)]
mod model_tests;
#[cfg(test)]
mod tests;
