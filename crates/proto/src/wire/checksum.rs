//! The internet checksum (RFC 1071): partial sums that combine, a copy that sums, RFC 1624 updates.
//!
//! The one's-complement sum does not care about byte order as long as all words are swapped
//! (RFC 1071 §2 B), so all sums here are taken over native words and swapped once, in [`fold`].
//! The long loops are those of `wide-sum`.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use wide_sum::STRIDE;

use super::Protocol;

/// A sum over part of the bytes, not folded yet.
///
/// Partial sums of pieces of *even* length add up with `+`; [`combine`] is for the others.
/// The addition carries around the end, so no number of pieces overflows it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Partial(u64);

impl Partial {
    /// The sum of nothing.
    pub const ZERO: Self = Self(0);
}

/// A [`Partial`] in half the room, to be kept.
#[derive(Clone, Copy, Debug, Default)]
pub struct Small(u32);

impl From<Partial> for Small {
    #[inline]
    #[allow(clippy::cast_possible_truncation)] // halves
    fn from(sum: Partial) -> Self {
        let (sum, carry) = (sum.0 as u32).overflowing_add((sum.0 >> 32) as u32);
        // As for whole words: a carry leaves the sum at most 2³² - 2.
        Self(sum + u32::from(carry))
    }
}

impl From<Small> for Partial {
    #[inline]
    fn from(sum: Small) -> Self {
        Self(sum.0.into())
    }
}

impl core::ops::Add for Partial {
    type Output = Self;
    #[inline]
    fn add(self, other: Self) -> Self {
        let (sum, carry) = self.0.overflowing_add(other.0);
        // Cannot overflow again: a carry leaves the sum at most 2⁶⁴ - 2.
        Self(sum + u64::from(carry))
    }
}

impl core::ops::AddAssign for Partial {
    #[inline]
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

/// Low 32 bits.
#[inline(always)]
#[allow(clippy::cast_possible_truncation)] // the point of it
const fn low32(x: u64) -> u32 {
    x as u32
}

/// Low 16 bits.
#[inline(always)]
#[allow(clippy::cast_possible_truncation)] // the point of it
const fn low16(x: u32) -> u16 {
    x as u16
}

/// Sum of fewer than [`STRIDE`] bytes; an odd last byte counts as if a zero followed.
#[inline(always)]
fn sum_tail(bytes: &[u8]) -> Partial {
    let (words, rest) = bytes.as_chunks::<8>();
    let (four, rest) = match rest.split_first_chunk::<4>() {
        Some((four, rest)) => (u64::from(u32::from_ne_bytes(*four)), rest),
        None => (0, rest),
    };
    let last = match *rest {
        [a, b, c] => u64::from(u16::from_ne_bytes([a, b])) + u64::from(u16::from_ne_bytes([c, 0])),
        [a, b] => u64::from(u16::from_ne_bytes([a, b])),
        [a] => u64::from(u16::from_ne_bytes([a, 0])),
        _ => 0,
    };
    let mut total = Partial(four + last);
    for word in words {
        total += Partial(u64::from_ne_bytes(*word));
    }
    total
}

/// Sums `bytes`; an odd last byte counts as if a zero followed.
#[inline]
pub fn sum(bytes: &[u8]) -> Partial {
    if bytes.len() < STRIDE {
        sum_tail(bytes)
    } else {
        sum_long(bytes)
    }
}

fn sum_long(bytes: &[u8]) -> Partial {
    let rest = bytes.get(bytes.len() / STRIDE * STRIDE..);
    Partial(wide_sum::sum(bytes)) + sum_tail(rest.unwrap_or_default())
}

/// Sums a header whose length the compiler knows: no loop is left of it.
#[inline(always)]
pub fn sum_array<const N: usize>(bytes: &[u8; N]) -> Partial {
    sum_tail(bytes)
}

/// Copies `from` to the start of `to` and sums it on the way, in one pass.
///
/// Copies and sums as much as fits; callers give a `to` at least as long as `from`.
#[inline]
pub fn copy_and_sum(from: &[u8], to: &mut [u8]) -> Partial {
    let len = from.len().min(to.len());
    let (Some(from), Some(to)) = (from.get(..len), to.get_mut(..len)) else {
        return Partial::ZERO;
    };
    if len < STRIDE {
        to.copy_from_slice(from);
        sum_tail(from)
    } else {
        copy_long(from, to)
    }
}

/// [`sum_long`] that writes what it read; `to` is as long as `from`.
fn copy_long(from: &[u8], to: &mut [u8]) -> Partial {
    let sum = Partial(wide_sum::copy_and_sum(from, to));
    let split = from.len() / STRIDE * STRIDE;
    let (Some(rest), Some(rest_to)) = (from.get(split..), to.get_mut(split..)) else {
        return sum;
    };
    rest_to.copy_from_slice(rest);
    sum + sum_tail(rest)
}

/// Writes `words` big-endian to the front of `to`, as many as fit, and sums them on the way: what
/// emit is made of.
#[inline(always)]
pub(super) fn put_words<const N: usize>(to: &mut [u8], words: [u32; N]) -> Partial {
    let mut total = 0;
    for (place, word) in to.as_chunks_mut::<4>().0.iter_mut().zip(words) {
        *place = word.to_be_bytes();
        total += u64::from(word.to_be());
    }
    Partial(total)
}

/// The sum of `first` followed by `second`, where `first` covers `first_len` bytes.
///
/// After an odd number of bytes the words of `second` straddle, so its sum is taken byte-swapped
/// (RFC 1071 §2 B).
#[inline]
pub fn combine(first: Partial, first_len: usize, second: Partial) -> Partial {
    if first_len.is_multiple_of(2) {
        first + second
    } else {
        // Rotating the whole sum by 8 swaps the bytes of every word in it.
        first + Partial(second.0.rotate_left(8))
    }
}

/// Folds to 16 bits, not complemented, as the value of a big-endian field.
///
/// Bytes that include their own valid checksum fold to `0xffff`.
#[inline]
pub fn fold(partial: Partial) -> u16 {
    // x + rotated x leaves high + low + the carry out of the low half in the high half.
    let x = partial.0;
    let x = low32(x.wrapping_add(x.rotate_left(32)) >> 32);
    let x = low16(x.wrapping_add(x.rotate_left(16)) >> 16);
    u16::from_be(x)
}

/// The value for a checksum field over bytes of this sum, the field itself counted as zero.
#[inline]
pub fn finish(partial: Partial) -> u16 {
    !fold(partial)
}

/// Whether a sum over bytes *with* their checksum field says that they are whole.
#[inline]
pub fn is_valid(partial: Partial) -> bool {
    fold(partial) == 0xffff
}

/// The internet checksum of `bytes`.
#[inline]
pub fn checksum(bytes: &[u8]) -> u16 {
    finish(sum(bytes))
}

/// Sum of one 16-bit value as it stands on the wire.
#[inline(always)]
fn word(value: u16) -> u64 {
    u64::from(value.to_be())
}

/// The IPv4 pseudo header (RFC 9293 §3.1, RFC 768); `length` is that of the upper-layer packet.
#[inline]
pub fn pseudo_header_v4(
    source: Ipv4Addr,
    destination: Ipv4Addr,
    protocol: Protocol,
    length: u16,
) -> Partial {
    let source = u64::from(u32::from_ne_bytes(source.octets()));
    let destination = u64::from(u32::from_ne_bytes(destination.octets()));
    Partial(source + destination + word(u16::from(protocol.0)) + word(length))
}

/// The IPv6 pseudo header (RFC 8200 §8.1); `length` is that of the upper-layer packet.
#[inline]
pub fn pseudo_header_v6(
    source: Ipv6Addr,
    destination: Ipv6Addr,
    protocol: Protocol,
    length: u32,
) -> Partial {
    let rest = Partial(word(u16::from(protocol.0)) + u64::from(length.to_be()));
    sum_array(&source.octets()) + sum_array(&destination.octets()) + rest
}

/// The pseudo header of either family, or `None` if the families differ or `length` exceeds what
/// the family can carry.
#[inline]
pub fn pseudo_header(
    source: IpAddr,
    destination: IpAddr,
    protocol: Protocol,
    length: usize,
) -> Option<Partial> {
    match (source, destination) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            let length = u16::try_from(length).ok()?;
            Some(pseudo_header_v4(source, destination, protocol, length))
        }
        (IpAddr::V6(source), IpAddr::V6(destination)) => {
            let length = u32::try_from(length).ok()?;
            Some(pseudo_header_v6(source, destination, protocol, length))
        }
        _ => None,
    }
}

/// The pseudo header of either family for addresses that come as they lie in the packet, in native words (unused ones zero), and
/// an upper-layer packet of `length` bytes, as many as it has: below 2³².
#[inline]
pub fn pseudo_header_of_words(addresses: &[u64; 4], protocol: Protocol, length: usize) -> Partial {
    let halves = |word: u64| (word >> 32) + (word & 0xffff_ffff);
    let [a, b, c, d] = *addresses;
    let length = u64::from(u32::try_from(length).unwrap_or(u32::MAX).to_be());
    Partial(halves(a) + halves(b) + halves(c) + halves(d) + word(u16::from(protocol.0)) + length)
}

/// A checksum field after one 16-bit field it covers went from `old` to `new` (RFC 1624 eqn. 3).
#[inline]
pub fn update(checksum: u16, old: u16, new: u16) -> u16 {
    let sum = u32::from(!checksum) + u32::from(!old) + u32::from(new);
    let sum = (sum & 0xffff) + (sum >> 16);
    let sum = (sum & 0xffff) + (sum >> 16);
    !low16(sum)
}

/// [`update`] for a 32-bit field, an IPv4 address for one.
#[inline]
pub fn update_u32(checksum: u16, old: u32, new: u32) -> u16 {
    let high = update(checksum, low16(old >> 16), low16(new >> 16));
    update(high, low16(old), low16(new))
}
