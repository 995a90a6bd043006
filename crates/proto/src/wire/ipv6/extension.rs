//! IPv6 extension headers (RFC 8200 §4): one bounded walk from the fixed header to the upper layer.
//!
//! The walk stops at a real fragment, whose rest makes sense only when reassembled. Everything a
//! host has to answer with a Parameter Problem, or to drop in silence, comes back as a [`Problem`].

use super::super::Protocol;
use super::super::icmpv6::parameter;
use super::HEADER_LEN;

/// Bytes of a fragment header.
pub const FRAGMENT_HEADER_LEN: usize = 8;
/// Extension headers walked before a packet is dropped. RFC 8200 §4.1 recommends at most six (five
/// kinds, destination options twice); two more are for unknown kinds.
pub const HEADERS_MAX: usize = 8;

/// A fragment header (RFC 8200 §4.5).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct FragmentHeader {
    /// What the fragmentable part starts with; only the first fragment's counts.
    pub next_header: Protocol,
    /// Where this piece starts in the fragmentable part, in bytes: a multiple of 8.
    pub offset: u16,
    /// Whether more fragments follow.
    pub more: bool,
    /// Ties fragments of one source and destination together.
    pub ident: u32,
}

impl FragmentHeader {
    /// The header in these bytes; any bytes are one. Reserved bits are ignored.
    pub const fn parse(bytes: &[u8; FRAGMENT_HEADER_LEN]) -> Self {
        let [next_header, _, o0, o1, i0, i1, i2, i3] = *bytes;
        Self {
            next_header: Protocol(next_header),
            offset: u16::from_be_bytes([o0, o1]) & 0xfff8,
            more: o1 & 1 != 0,
            ident: u32::from_be_bytes([i0, i1, i2, i3]),
        }
    }

    /// Whether this is a whole packet with a fragment header (RFC 6946).
    pub const fn is_atomic(&self) -> bool {
        self.offset == 0 && !self.more
    }

    /// Writes the header to the front of `buf`; returns 8, or 0 if it does not fit. The low three
    /// bits of the offset are lost.
    pub fn emit(&self, buf: &mut [u8]) -> usize {
        let Some(h) = buf.first_chunk_mut::<FRAGMENT_HEADER_LEN>() else {
            return 0;
        };
        let [o0, o1] = ((self.offset & 0xfff8) | u16::from(self.more)).to_be_bytes();
        let [i0, i1, i2, i3] = self.ident.to_be_bytes();
        *h = [self.next_header.0, 0, o0, o1, i0, i1, i2, i3];
        FRAGMENT_HEADER_LEN
    }
}

/// Where the walk ended well.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Upper {
    /// The upper-layer protocol; of a fragment, what its header names, perhaps another extension
    /// header. Whether it is spoken here is the caller's question; if not, the answer is a
    /// Parameter Problem with code 1 at `protocol_pointer`.
    pub protocol: Protocol,
    /// Where the upper layer (or the fragment's data) starts, from the start of the payload.
    pub offset: usize,
    /// Offset of the byte that names `protocol`, from the start of the IPv6 header.
    pub protocol_pointer: u32,
    /// Set when the data is a part of a packet: to be reassembled, then given to
    /// [`walk_reassembled`]. An atomic fragment is whole and leaves `None` here.
    pub fragment: Option<FragmentHeader>,
    /// A fragment header was there, atomic or not: neighbour discovery drops such (RFC 6980 §5).
    pub fragmented: bool,
    /// A hop-by-hop router alert was there (RFC 2711), as MLD demands.
    pub router_alert: bool,
}

/// Why a packet dies in silence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Drop {
    /// A header runs over the end of the packet.
    Truncated,
    /// More than [`HEADERS_MAX`] headers.
    TooManyHeaders,
    /// No next header: what follows is ignored (RFC 8200 §4.7).
    NoNextHeader,
    /// An unknown option that asks to be dropped in silence (type bits 01).
    UnknownOption,
    /// A fragment without data.
    EmptyFragment,
    /// A fragment header inside what a fragment header governs.
    NestedFragment,
}

/// Where the walk ended badly; the packet is dropped either way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Problem {
    /// Send an ICMPv6 Parameter Problem, if the rules for errors allow one (RFC 4443 §2.4 e).
    Parameter {
        /// See [`parameter`].
        code: u8,
        /// Offset of the wrong byte from the start of the IPv6 header.
        pointer: u32,
        /// Send it even if the packet went to a multicast address (option type bits 10).
        even_if_multicast: bool,
    },
    /// Say nothing.
    Drop(Drop),
}

impl Problem {
    const fn field(code: u8, pointer: u32) -> Self {
        Self::Parameter {
            code,
            pointer,
            even_if_multicast: false,
        }
    }
}

/// Walks from the fixed header's `next_header` through `payload`, which is exactly the payload
/// length long, to the upper layer.
///
/// # Errors
/// * Hop-by-hop options anywhere but first: code 1 at the byte that names them (RFC 8200 §4).
/// * An unknown option by the top bits of its type: skipped, dropped, or code 2 at it (§4.2).
///   Jumbo payload (RFC 2675) is unknown here.
/// * An option over its header's end: code 0 at its length.
/// * A routing header with segments left: code 0 at its type, for no type is known (§4.4,
///   RFC 5095 §3).
/// * A fragment: see [`Drop`]; code 0 at the payload length if more follow and it is not a multiple
///   of 8, code 0 at its offset if it ends beyond 65535, code 3 if it is the first and lacks part of
///   the header chain (§4.5, RFC 7112 §5).
#[inline]
pub fn walk(next_header: Protocol, payload: &[u8]) -> Result<Upper, Problem> {
    Walk::new(next_header, payload, Place::First).run()
}

/// [`walk`] over a reassembled fragmentable part: hop-by-hop options and further fragments have no
/// place in it. Pointers count as if the IPv6 header stood right before `payload`.
///
/// # Errors
/// As [`walk`].
#[inline]
pub fn walk_reassembled(next_header: Protocol, payload: &[u8]) -> Result<Upper, Problem> {
    Walk::new(next_header, payload, Place::Reassembled).run()
}

/// What may still come.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    /// Right behind the fixed header.
    First,
    /// Behind another extension header.
    Later,
    /// In what a fragment header governs.
    Reassembled,
}

struct Walk<'a> {
    payload: &'a [u8],
    at: usize,
    next: Protocol,
    /// Offset, from the IPv6 header, of the byte that named `next`.
    next_pointer: u32,
    place: Place,
    atomic: bool,
    router_alert: bool,
}

/// Offset of the next header field in the fixed header.
const NEXT_HEADER_POINTER: u32 = 6;
/// Offset of the payload length field in the fixed header.
const PAYLOAD_LEN_POINTER: u32 = 4;

impl<'a> Walk<'a> {
    #[inline]
    const fn new(next: Protocol, payload: &'a [u8], place: Place) -> Self {
        let next_pointer = NEXT_HEADER_POINTER;
        Self {
            payload,
            at: 0,
            next,
            next_pointer,
            place,
            atomic: false,
            router_alert: false,
        }
    }

    #[inline]
    fn run(mut self) -> Result<Upper, Problem> {
        // The straight way, without a call: no extension header at all.
        if matches!(self.next, Protocol::TCP | Protocol::UDP | Protocol::ICMPV6) {
            return Ok(self.end(None));
        }
        // One step for each header, one for what they lead to.
        for _ in 0..=HEADERS_MAX {
            if let Some(upper) = self.step()? {
                return Ok(upper);
            }
        }
        Err(Problem::Drop(Drop::TooManyHeaders))
    }

    fn end(&self, fragment: Option<FragmentHeader>) -> Upper {
        Upper {
            protocol: self.next,
            offset: self.at,
            protocol_pointer: self.next_pointer,
            fragment,
            fragmented: fragment.is_some() || self.atomic || self.place == Place::Reassembled,
            router_alert: self.router_alert,
        }
    }

    /// Offset of the current header from the start of the IPv6 header.
    fn pointer(&self) -> u32 {
        // A payload has at most 65535 bytes; a longer slice gets the largest pointer there is.
        u32::try_from(self.at + HEADER_LEN).unwrap_or(u32::MAX)
    }

    /// Takes one header, or finds that the walk is over.
    #[inline(never)]
    fn step(&mut self) -> Result<Option<Upper>, Problem> {
        match self.next {
            Protocol::HOP_BY_HOP if self.place != Place::First => Err(Problem::field(
                parameter::UNKNOWN_NEXT_HEADER,
                self.next_pointer,
            )),
            Protocol::HOP_BY_HOP | Protocol::DESTINATION_OPTIONS => {
                let header = self.header()?;
                let alert = check_options(header, self.pointer())?;
                self.router_alert |= alert && self.next == Protocol::HOP_BY_HOP;
                self.pass(header);
                Ok(None)
            }
            Protocol::ROUTING => {
                let header = self.header()?;
                match header {
                    [_, _, _, 0, ..] => self.pass(header),
                    _ => {
                        let pointer = self.pointer().saturating_add(2);
                        return Err(Problem::field(parameter::ERRONEOUS_FIELD, pointer));
                    }
                }
                Ok(None)
            }
            Protocol::FRAGMENT => self.fragment(),
            Protocol::NO_NEXT_HEADER => Err(Problem::Drop(Drop::NoNextHeader)),
            _ => Ok(Some(self.end(None))),
        }
    }

    /// The current header's bytes, by its own length.
    fn header(&self) -> Result<&'a [u8], Problem> {
        split_header(self.payload.get(self.at..).unwrap_or_default())
            .map(|(header, _)| header)
            .ok_or(Problem::Drop(Drop::Truncated))
    }

    /// Goes on behind the current header.
    fn pass(&mut self, header: &[u8]) {
        self.next_pointer = self.pointer();
        self.next = Protocol(
            header
                .first()
                .copied()
                .unwrap_or(Protocol::NO_NEXT_HEADER.0),
        );
        self.at += header.len();
        if self.place == Place::First {
            self.place = Place::Later;
        }
    }

    fn fragment(&mut self) -> Result<Option<Upper>, Problem> {
        if self.place == Place::Reassembled || self.atomic {
            return Err(Problem::Drop(Drop::NestedFragment));
        }
        let behind = self.payload.get(self.at..).unwrap_or_default();
        let (bytes, data) = behind
            .split_first_chunk::<FRAGMENT_HEADER_LEN>()
            .ok_or(Problem::Drop(Drop::Truncated))?;
        let fragment = FragmentHeader::parse(bytes);
        if fragment.is_atomic() {
            self.atomic = true;
            self.pass(bytes);
            return Ok(None);
        }
        if fragment.more && !data.len().is_multiple_of(8) {
            return Err(Problem::field(
                parameter::ERRONEOUS_FIELD,
                PAYLOAD_LEN_POINTER,
            ));
        }
        if data.is_empty() {
            return Err(Problem::Drop(Drop::EmptyFragment));
        }
        // The headers before the fragment header stay, and count in the whole's payload length.
        if self.at + usize::from(fragment.offset) + data.len() > 65_535 {
            let pointer = self.pointer().saturating_add(2);
            return Err(Problem::field(parameter::ERRONEOUS_FIELD, pointer));
        }
        if fragment.offset == 0 && !chain_is_whole(fragment.next_header, data) {
            return Err(Problem::field(parameter::FIRST_FRAGMENT_INCOMPLETE, 0));
        }
        self.pass(bytes);
        Ok(Some(self.end(Some(fragment))))
    }
}

/// Whether the walk goes on at this header.
pub const fn is_extension(protocol: Protocol) -> bool {
    matches!(
        protocol,
        Protocol::HOP_BY_HOP
            | Protocol::DESTINATION_OPTIONS
            | Protocol::ROUTING
            | Protocol::FRAGMENT
    )
}

/// The options or routing header at the front of `bytes`, 8 bytes and 8 for each unit of its length
/// field, and what follows it.
pub(in super::super) fn split_header(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let units = usize::from(*bytes.get(1)?);
    bytes.split_at_checked((units + 1) * 8)
}

/// Whether a first fragment has all headers through the upper layer's (RFC 7112 §4).
fn chain_is_whole(mut next: Protocol, mut data: &[u8]) -> bool {
    for _ in 0..=HEADERS_MAX {
        let need = match next {
            Protocol::TCP => data
                .get(12)
                .map_or(20, |offset| usize::from(offset >> 4).max(5) * 4),
            Protocol::UDP | Protocol::ICMPV6 => 8,
            _ => 0,
        };
        if !is_extension(next) {
            return data.len() >= need;
        }
        // A fragment header has no length: it is always of 8 bytes.
        let split = match next {
            Protocol::FRAGMENT => data.split_at_checked(FRAGMENT_HEADER_LEN),
            _ => split_header(data),
        };
        let Some(([after, ..], behind)) = split else {
            return false;
        };
        (next, data) = (Protocol(*after), behind);
    }
    // Too many headers: whole or not, the walk after reassembly drops it.
    true
}

/// Option types.
mod option {
    pub const PAD1: u8 = 0;
    pub const PADN: u8 = 1;
    pub const ROUTER_ALERT: u8 = 5;
}

/// Checks the options of a hop-by-hop or destination options header at `pointer`; true if a router
/// alert is among them. Every turn takes at least one byte of at most 2046.
fn check_options(header: &[u8], pointer: u32) -> Result<bool, Problem> {
    let mut rest = header.get(2..).unwrap_or_default();
    let mut alert = false;
    loop {
        let taken = u32::try_from(header.len() - rest.len()).unwrap_or(u32::MAX);
        let here = pointer.saturating_add(taken);
        let (kind, len) = match *rest {
            [] => return Ok(alert),
            [option::PAD1, ref behind @ ..] => {
                rest = behind;
                continue;
            }
            [_] => return Err(Problem::field(parameter::ERRONEOUS_FIELD, here)),
            [kind, len, ..] => (kind, len),
        };
        let Some(behind) = rest.get(usize::from(len) + 2..) else {
            let length_field = here.saturating_add(1);
            return Err(Problem::field(parameter::ERRONEOUS_FIELD, length_field));
        };
        match kind {
            option::PADN => {}
            option::ROUTER_ALERT if len == 2 => alert = true,
            // Unknown: the two top bits say what to do (RFC 8200 §4.2).
            _ => match kind >> 6 {
                0b00 => {}
                0b01 => return Err(Problem::Drop(Drop::UnknownOption)),
                bits => {
                    return Err(Problem::Parameter {
                        code: parameter::UNKNOWN_OPTION,
                        pointer: here,
                        even_if_multicast: bits == 0b10,
                    });
                }
            },
        }
        rest = behind;
    }
}
