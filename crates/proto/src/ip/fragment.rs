//! Fragments out: where a datagram is cut for an MTU, and the headers of its pieces (RFC 791 §3.2,
//! RFC 8200 §4.5). Pure: it never sees the payload, only its length.

use core::ops::Range;

use crate::wire::ipv6::extension::{FRAGMENT_HEADER_LEN, FragmentHeader};
use crate::wire::{Protocol, checksum, ipv4, ipv6};

/// Why a datagram cannot be cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Cannot {
    /// The sender forbade it: report the MTU instead (EMSGSIZE, or Fragmentation Needed).
    DontFragment,
    /// No room for 8 octets behind the headers.
    MtuTooSmall,
    /// More than 65535 octets: no fragment offset reaches the end.
    TooLong,
    /// More than 40 octets of options, or not a multiple of 4.
    BadOptions,
}

/// One piece: headers, then these octets of the payload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Piece {
    header: [u8; HEADER_LEN_MAX],
    header_len: usize,
    /// Which part of the payload goes behind the header.
    pub range: Range<usize>,
}

/// An IPv4 header with all options; longer than IPv6's with a fragment header (48).
const HEADER_LEN_MAX: usize = 60;

impl Piece {
    /// The IP header, with options or the fragment header.
    #[must_use]
    pub fn header(&self) -> &[u8] {
        self.header.get(..self.header_len).unwrap_or_default()
    }

    /// Octets of the whole packet.
    #[must_use]
    #[allow(clippy::len_without_is_empty)] // a piece is never empty
    pub fn len(&self) -> usize {
        self.header_len + self.range.len()
    }

    /// Writes the packet to the front of `buf`, given the whole payload; returns its length, 0 if
    /// it does not fit.
    pub fn emit(&self, payload: &[u8], buf: &mut [u8]) -> usize {
        let Some(data) = payload.get(self.range.clone()) else {
            return 0;
        };
        let Some((head, body)) = buf.split_at_mut_checked(self.header_len) else {
            return 0;
        };
        let Some(body) = body.get_mut(..data.len()) else {
            return 0;
        };
        head.copy_from_slice(self.header());
        body.copy_from_slice(data);
        self.len()
    }
}

/// The pieces of a datagram, in order. One that fits comes out whole.
#[derive(Clone, Debug)]
pub struct Fragments {
    family: Family,
    payload_len: usize,
    mtu: usize,
    at: usize,
    done: bool,
}

#[derive(Clone, Debug)]
enum Family {
    V4 {
        header: ipv4::Header,
        options: [u8; 40],
        options_len: usize,
    },
    V6 {
        header: ipv6::Header,
        ident: u32,
    },
}

/// Cuts an IPv4 datagram, or a fragment of one. A whole one's identification must be unique where it does not fit `mtu` octets.
///
/// # Errors
/// See [`Cannot`]; [`Cannot::DontFragment`] only if it does not fit.
pub fn v4(
    header: &ipv4::Header,
    options: &[u8],
    payload_len: usize,
    mtu: u16,
) -> Result<Fragments, Cannot> {
    let mtu = usize::from(mtu);
    let mut copy = [0; 40];
    let place = copy.get_mut(..options.len()).ok_or(Cannot::BadOptions)?;
    if !options.len().is_multiple_of(4) {
        return Err(Cannot::BadOptions);
    }
    place.copy_from_slice(options);
    let header_len = ipv4::HEADER_LEN + options.len();
    if header_len + payload_len > 65_535
        || usize::from(header.fragment_offset) + payload_len > 65_535
    {
        return Err(Cannot::TooLong);
    }
    if header_len + payload_len > mtu {
        if header.dont_fragment {
            return Err(Cannot::DontFragment);
        }
        if mtu < header_len + 8 {
            return Err(Cannot::MtuTooSmall);
        }
    }
    let family = Family::V4 {
        header: *header,
        options: copy,
        options_len: options.len(),
    };
    Ok(Fragments {
        family,
        payload_len,
        mtu,
        at: 0,
        done: false,
    })
}

/// Cuts an IPv6 datagram whose payload starts with what `header.next_header` names; all of it is
/// fragmentable.
///
/// # Errors
/// See [`Cannot`].
pub fn v6(
    header: &ipv6::Header,
    payload_len: usize,
    mtu: u16,
    ident: u32,
) -> Result<Fragments, Cannot> {
    let mtu = usize::from(mtu);
    if payload_len > 65_535 {
        return Err(Cannot::TooLong);
    }
    let fits = ipv6::HEADER_LEN + payload_len <= mtu;
    if !fits && mtu < ipv6::HEADER_LEN + FRAGMENT_HEADER_LEN + 8 {
        return Err(Cannot::MtuTooSmall);
    }
    let family = Family::V6 {
        header: *header,
        ident,
    };
    Ok(Fragments {
        family,
        payload_len,
        mtu,
        at: 0,
        done: false,
    })
}

impl Iterator for Fragments {
    type Item = Piece;

    fn next(&mut self) -> Option<Piece> {
        if self.done {
            return None;
        }
        let mut bytes = [0; HEADER_LEN_MAX];
        let (header_len, range) = match &self.family {
            Family::V4 {
                header,
                options,
                options_len,
            } => {
                let options = options.get(..*options_len)?;
                let mut kept = [0; 40];
                let kept_len = if self.at == 0 {
                    copy(options, &mut kept)
                } else {
                    copied(options, &mut kept)
                };
                let header_len = ipv4::HEADER_LEN + kept_len;
                let range = self.cut(header_len);
                // What is cut may be a fragment itself (RFC 791 §3.2): its place and its MF are kept.
                let header = ipv4::Header {
                    more_fragments: header.more_fragments || range.end < self.payload_len,
                    fragment_offset: u16::try_from(range.start)
                        .ok()?
                        .checked_add(header.fragment_offset)?,
                    ..*header
                };
                emit_v4(&header, kept.get(..kept_len)?, range.len(), &mut bytes)?;
                (header_len, range)
            }
            Family::V6 { header, .. } if ipv6::HEADER_LEN + self.payload_len <= self.mtu => {
                header.emit(self.payload_len, &mut bytes);
                (ipv6::HEADER_LEN, 0..self.payload_len)
            }
            Family::V6 { header, ident } => {
                let header_len = ipv6::HEADER_LEN + FRAGMENT_HEADER_LEN;
                let range = self.cut(header_len);
                let fragment = FragmentHeader {
                    next_header: header.next_header,
                    offset: u16::try_from(range.start).ok()?,
                    more: range.end < self.payload_len,
                    ident: *ident,
                };
                let outer = ipv6::Header {
                    next_header: Protocol::FRAGMENT,
                    ..*header
                };
                let (fixed, extension) = bytes.split_at_mut(ipv6::HEADER_LEN);
                outer.emit(FRAGMENT_HEADER_LEN + range.len(), fixed);
                fragment.emit(extension);
                (header_len, range)
            }
        };
        self.at = range.end;
        self.done = range.end == self.payload_len;
        Some(Piece {
            header: bytes,
            header_len,
            range,
        })
    }
}

impl Fragments {
    /// The next part of the payload behind this many octets of headers: a multiple of 8, or all
    /// that is left.
    const fn cut(&self, header_len: usize) -> Range<usize> {
        let left = self.payload_len - self.at;
        let room = self.mtu.saturating_sub(header_len);
        let len = if left <= room { left } else { room / 8 * 8 };
        self.at..self.at + len
    }
}

fn copy(options: &[u8], kept: &mut [u8; 40]) -> usize {
    match kept.get_mut(..options.len()) {
        Some(place) => {
            place.copy_from_slice(options);
            options.len()
        }
        None => 0,
    }
}

/// The options that every fragment carries: those with the copied flag (RFC 791 §3.1), padded to a
/// multiple of 4. What is malformed is not copied.
fn copied(options: &[u8], kept: &mut [u8; 40]) -> usize {
    let mut len = 0;
    for option in ipv4::options::iter(options).map_while(Result::ok) {
        let whole = option.data.len() + 2;
        if option.kind & 0x80 == 0 {
            continue;
        }
        let Some(place) = kept.get_mut(len..len + whole) else {
            break;
        };
        place[0] = option.kind;
        place[1] = u8::try_from(whole).unwrap_or(u8::MAX);
        place[2..].copy_from_slice(option.data);
        len += whole;
    }
    len.next_multiple_of(4)
}

/// An IPv4 header with options.
fn emit_v4(
    header: &ipv4::Header,
    options: &[u8],
    payload_len: usize,
    bytes: &mut [u8; HEADER_LEN_MAX],
) -> Option<()> {
    // The fixed part counts the options as payload; then it is told that they are its own.
    if header.emit(options.len() + payload_len, bytes) == 0 {
        return None;
    }
    if options.is_empty() {
        return Some(());
    }
    let header_len = ipv4::HEADER_LEN + options.len();
    let whole = bytes.get_mut(..header_len)?;
    whole.get_mut(ipv4::HEADER_LEN..)?.copy_from_slice(options);
    whole[0] = 0x40 | u8::try_from(header_len / 4).ok()?;
    [whole[10], whole[11]] = [0, 0];
    let sum = checksum::checksum(whole);
    [whole[10], whole[11]] = sum.to_be_bytes();
    Some(())
}

#[cfg(test)]
#[path = "fragment_tests.rs"]
mod tests;
