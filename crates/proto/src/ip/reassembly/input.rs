//! One fragment's way in: checked by itself, then against its siblings.

use core::net::IpAddr;

use super::{CE, Chain, Datagram, DropReason, NOT_ECT, Name, Outcome, Piece, Reassembler, Short};
use crate::time::Instant;
use crate::wire::ipv6::extension::{FRAGMENT_HEADER_LEN, Upper};
use crate::wire::{Protocol, ipv4, ipv6};

/// A fragment, taken apart.
#[derive(Clone, Copy, Debug)]
pub struct Fragment<'a> {
    /// Which datagram it belongs to.
    pub name: Name,
    /// All headers before the data; of IPv6 up to and with the fragment header.
    pub header: &'a [u8],
    /// The data.
    pub data: &'a [u8],
    /// Where the data starts in the datagram, in octets.
    pub offset: u16,
    /// More follow.
    pub more: bool,
    /// The ECN field, 0 to 3.
    pub ecn: u8,
}

impl Reassembler {
    /// Takes in an IPv4 fragment: a packet and its parsed header, of which
    /// [`ipv4::Header::is_fragment`] is true. DF is no matter (negative 28).
    pub fn push_v4(&mut self, packet: &[u8], header: &ipv4::Header, now: Instant) -> Outcome<'_> {
        let range = header.payload_range();
        let (Some(head), Some(data)) = (packet.get(..range.start), packet.get(range)) else {
            return Outcome::Dropped(DropReason::Empty);
        };
        // RFC 1858 §3, RFC 3128: a first fragment that hides the upper layer's header is an attack
        // (negative 21).
        if header.fragment_offset == 0 && data.len() < upper_header_len(header.protocol) {
            return Outcome::Dropped(DropReason::Tiny);
        }
        let name = Name {
            source: IpAddr::V4(header.source),
            destination: IpAddr::V4(header.destination),
            protocol: header.protocol.0,
            ident: u32::from(header.ident),
        };
        let (offset, more) = (header.fragment_offset, header.more_fragments);
        self.push(
            Fragment {
                name,
                header: head,
                data,
                offset,
                more,
                ecn: header.tos & 3,
            },
            now,
        )
    }

    /// Takes in an IPv6 fragment: a packet, its parsed header, and where the walk over its
    /// extension headers (which checks that a first fragment has the whole header chain, RFC 7112)
    /// came to a fragment.
    pub fn push_v6(
        &mut self,
        packet: &[u8],
        header: &ipv6::Header,
        upper: &Upper,
        now: Instant,
    ) -> Outcome<'_> {
        let start = ipv6::HEADER_LEN + upper.offset;
        let end = ipv6::HEADER_LEN + usize::from(header.payload_len);
        let parts = (upper.fragment, packet.get(..start), packet.get(start..end));
        let (Some(fragment), Some(head), Some(data)) = parts else {
            return Outcome::Dropped(DropReason::Empty);
        };
        let name = Name {
            source: IpAddr::V6(header.source),
            destination: IpAddr::V6(header.destination),
            protocol: 0,
            ident: fragment.ident,
        };
        let ecn = header.traffic_class & 3;
        let (offset, more) = (fragment.offset, fragment.more);
        self.push(
            Fragment {
                name,
                header: head,
                data,
                offset,
                more,
                ecn,
            },
            now,
        )
    }

    /// Takes in a fragment of either family.
    pub fn push(&mut self, fragment: Fragment<'_>, now: Instant) -> Outcome<'_> {
        if let Err(outcome) = check_alone(&fragment) {
            return outcome;
        }
        let Some(place) = self.place_of(fragment.name, now) else {
            return Outcome::Dropped(DropReason::NoMemory);
        };
        let at = match self.fit(place, &fragment) {
            Ok(at) => at,
            Err(reason) => {
                if !matches!(reason, DropReason::Duplicate | DropReason::Dead) {
                    self.empty(place);
                }
                return Outcome::Dropped(reason);
            }
        };
        if !self.keep(place, at, &fragment) {
            self.discard(place);
            return Outcome::Dropped(DropReason::NoMemory);
        }
        self.finish(place, &fragment.name)
    }

    /// Where among the datagram's pieces the fragment goes; or why it may not. O(log n).
    fn fit(&mut self, place: u32, fragment: &Fragment<'_>) -> Result<usize, DropReason> {
        let limit = self.config.fragments;
        let Some((_, datagram)) = self.map.at_mut(place) else {
            return Err(DropReason::NoMemory);
        };
        if datagram.dead {
            return Err(DropReason::Dead);
        }
        let (start, end) = span(fragment);
        let first = place as usize * limit;
        let pieces = self
            .pieces
            .get(first..first + datagram.count)
            .unwrap_or_default();
        let piece = |at: usize| pieces.get(at).and_then(Option::as_ref);
        let at = pieces.partition_point(|p| p.as_ref().is_some_and(|p| p.start < start));
        let (before, here) = (at.checked_sub(1).and_then(piece), piece(at));
        // An exact copy is a network's doing, not an attack's (RFC 8200 §4.5).
        if let Some(same) = here
            && (same.start, same.end) == (start, end)
            && fragment.more == (datagram.total != Some(end))
            && self.arena.holds(&same.data, fragment.data)
        {
            return Err(DropReason::Duplicate);
        }
        // Contradictions about the end (negative 24): two ends, or data past the end.
        let last_end = pieces.last().and_then(Option::as_ref).map_or(0, |p| p.end);
        let agrees = match (datagram.total, fragment.more) {
            (None, true) => true,
            (None, false) => last_end <= end,
            (Some(total), true) => end < total,
            (Some(total), false) => end == total,
        };
        // RFC 5722 §4: any overlap (negative 20, 43).
        if !agrees || before.is_some_and(|p| p.end > start) || here.is_some_and(|p| p.start < end) {
            return Err(DropReason::Overlap);
        }
        if datagram.count == limit {
            return Err(DropReason::TooMany);
        }
        // RFC 3168 §5.3: a mark among fragments that could not carry one says something is wrong.
        let marks = datagram.marks | 1 << (fragment.ecn & 3);
        if marks & CE != 0 && marks & NOT_ECT != 0 {
            return Err(DropReason::CongestionMark);
        }
        datagram.marks = marks;
        Ok(at)
    }

    /// Stores a fragment that fits; false when memory is short even without all other datagrams.
    fn keep(&mut self, place: u32, at: usize, fragment: &Fragment<'_>) -> bool {
        let header = if fragment.offset == 0 {
            fragment.header
        } else {
            &[]
        };
        let Some(header) = self.store(header, place) else {
            return false;
        };
        // It is the datagram's from now on, whatever comes of the data: it is given back when the datagram is emptied.
        if let Some((_, datagram)) = self.map.at_mut(place)
            && fragment.offset == 0
        {
            datagram.header = header;
        }
        let Some(data) = self.store(fragment.data, place) else {
            return false;
        };
        let (start, end) = span(fragment);
        let Some((_, datagram)) = self.map.at_mut(place) else {
            return false;
        };
        if !fragment.more {
            datagram.total = Some(end);
        }
        datagram.received += end - start;
        let first = place as usize * self.config.fragments;
        let count = datagram.count;
        datagram.count += 1;
        // Moves at most `config.fragments` small records; in order, none.
        if let Some(pieces) = self.pieces.get_mut(first..=first + count) {
            if let Some(free) = pieces.last_mut() {
                *free = Some(Piece { start, end, data });
            }
            if let Some(tail) = pieces.get_mut(at..) {
                tail.rotate_right(1);
            }
        }
        true
    }

    /// Stores octets; datagrams other than `spared` make room.
    fn store(&mut self, data: &[u8], spared: u32) -> Option<Chain> {
        let holder = self.map.at(spared)?.1.holder;
        loop {
            let free = self.arena.free_bytes();
            if let Some(chain) = self.arena.store(data) {
                self.holders.takes(holder, free - self.arena.free_bytes());
                return Some(chain);
            }
            if !self.make_room(Short::OfBytes, holder, spared) {
                return None;
            }
        }
    }

    /// Hands the datagram out if nothing is missing.
    fn finish(&mut self, place: u32, name: &Name) -> Outcome<'_> {
        let whole = |(_, d): (_, &Datagram)| d.total.is_some_and(|t| t == d.received);
        if !self.map.at(place).is_some_and(whole) {
            return Outcome::Waiting;
        }
        let len = self.assemble(place, name);
        self.discard(place);
        match len.and_then(|len| self.out.get(..len)) {
            Some(packet) => {
                self.counts.completed += 1;
                Outcome::Complete(packet)
            }
            // The first fragment's header is longer than the last one's, whose sum was checked
            // (negative 19).
            None => Outcome::Dropped(DropReason::TooLong),
        }
    }
}

/// Where a checked fragment's data starts and ends.
fn span(fragment: &Fragment<'_>) -> (u32, u32) {
    let start = u32::from(fragment.offset);
    (
        start,
        start + u32::try_from(fragment.data.len()).unwrap_or(u32::MAX - start),
    )
}

/// What a fragment must be whatever its siblings are.
fn check_alone(fragment: &Fragment<'_>) -> Result<(), Outcome<'static>> {
    let v6 = fragment.name.source.is_ipv6();
    let problem = |pointer: usize, reason| {
        if v6 {
            Outcome::ParameterProblem {
                pointer: u32::try_from(pointer).unwrap_or(u32::MAX),
            }
        } else {
            Outcome::Dropped(reason)
        }
    };
    if fragment.data.is_empty() {
        return Err(Outcome::Dropped(DropReason::Empty)); // negative 23
    }
    if fragment.more && !fragment.data.len().is_multiple_of(8) {
        // RFC 8200 §4.5: at Payload Length; negative 22
        return Err(problem(4, DropReason::Unaligned));
    }
    // What counts beside the data: all of an IPv4 header; of IPv6 the extension headers.
    let headers = if v6 {
        fragment
            .header
            .len()
            .saturating_sub(ipv6::HEADER_LEN + FRAGMENT_HEADER_LEN)
    } else {
        fragment.header.len()
    };
    if headers + usize::from(fragment.offset) + fragment.data.len() > 65_535 {
        // RFC 8200 §4.5: at Fragment Offset; negative 19
        let at = fragment.header.len().saturating_sub(FRAGMENT_HEADER_LEN) + 2;
        return Err(problem(at, DropReason::TooLong));
    }
    Ok(())
}

/// How much of the upper layer a first fragment must show for a filter to judge it.
const fn upper_header_len(protocol: Protocol) -> usize {
    match protocol {
        Protocol::TCP => 20,
        Protocol::UDP | Protocol::ICMP => 8,
        _ => 0,
    }
}
