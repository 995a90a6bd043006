//! From TCP header to segment, and the checksum on the way out.

use core::net::IpAddr;

use super::options::kind;
use super::{Flags, HEADER_LEN, Header, Options, SackBlocks, SeqNum, Timestamps};
use crate::wire::Protocol;
use crate::wire::checksum::{self, Partial};

/// Bytes of the timestamps option with its two NOPs.
const TIMESTAMPS_LEN: usize = 12;

impl Options {
    /// No option.
    pub const NONE: Self = Self {
        mss: None,
        window_scale: None,
        sack_permitted: false,
        sack: SackBlocks::NONE,
        timestamps: None,
    };

    /// How many of the SACK blocks fit: four, or three beside timestamps (RFC 2018 §3).
    const fn sack_fitting(&self) -> usize {
        let fit = if self.timestamps.is_some() { 3 } else { 4 };
        let len = self.sack.len as usize;
        if len < fit { len } else { fit }
    }

    /// Bytes of the options in a segment with or without SYN, padding included: a multiple of 4,
    /// at most 40.
    #[inline]
    pub const fn len(&self, syn: bool) -> usize {
        let timestamps = if self.timestamps.is_some() {
            TIMESTAMPS_LEN
        } else {
            0
        };
        if syn {
            // SACK-permitted stands where the timestamps' NOPs would.
            let sack = if self.sack_permitted && self.timestamps.is_none() {
                4
            } else {
                0
            };
            let mss = if self.mss.is_some() { 4 } else { 0 };
            let scale = if self.window_scale.is_some() { 4 } else { 0 };
            mss + sack + timestamps + scale
        } else {
            let blocks = self.sack_fitting();
            timestamps + if blocks == 0 { 0 } else { 4 + 8 * blocks }
        }
    }

    /// Whether a segment with or without SYN would carry none of these options.
    pub const fn is_empty(&self, syn: bool) -> bool {
        self.len(syn) == 0
    }
}

impl Header {
    /// Bytes that [`Header::emit`] writes: a multiple of 4 in 20..=60.
    #[inline]
    #[allow(clippy::len_without_is_empty)] // a header is never empty
    pub const fn len(&self) -> usize {
        HEADER_LEN + self.options.len(self.flags.contains(Flags::SYN))
    }

    /// Writes the header, options included and checksum zero, to the front of `buf`; returns its
    /// length, 0 if it does not fit. [`fill_checksum`] does the rest.
    ///
    /// * With SYN: MSS, SACK-permitted, timestamps, NOP, window scale. SACK blocks are left out.
    /// * Without: NOP, NOP, timestamps, NOP, NOP, SACK (three blocks beside timestamps, four
    ///   without). MSS, window scale and SACK-permitted are left out (RFC 9293 MUST-65).
    ///
    /// Both are the layouts Linux sends, so receivers' fast paths fit.
    #[inline]
    pub fn emit(&self, buf: &mut [u8]) -> usize {
        let len = self.len();
        let Some(header) = buf.get_mut(..len) else {
            return 0;
        };
        let Some((fixed, area)) = header.split_first_chunk_mut::<HEADER_LEN>() else {
            return 0;
        };
        let [s0, s1] = self.source_port.to_be_bytes();
        let [d0, d1] = self.destination_port.to_be_bytes();
        let [q0, q1, q2, q3] = self.seq.0.to_be_bytes();
        let [a0, a1, a2, a3] = self.ack.0.to_be_bytes();
        let [w0, w1] = self.window.to_be_bytes();
        let [u0, u1] = self.urgent.to_be_bytes();
        let [high, low] = self.flags.0.to_be_bytes();
        // len <= 60, so the offset is at most 15: len / 4 in the high half of the byte.
        let offset = u8::try_from(len << 2).unwrap_or(0xf0) | (high & 1);
        *fixed = [
            s0, s1, d0, d1, q0, q1, q2, q3, a0, a1, a2, a3, offset, low, w0, w1, 0, 0, u0, u1,
        ];
        if !area.is_empty() {
            self.emit_options(area);
        }
        len
    }

    /// Fills `area`, which has exactly the length the options need.
    #[inline]
    fn emit_options(&self, area: &mut [u8]) {
        if self.flags.contains(Flags::SYN) {
            return emit_syn(&self.options, area);
        }
        let rest = match self.options.timestamps {
            Some(timestamps) => {
                let Some((bytes, rest)) = area.split_first_chunk_mut() else {
                    return;
                };
                *bytes = timestamps_bytes([kind::NOP, kind::NOP], timestamps);
                rest
            }
            None => area,
        };
        if !self.options.sack.is_empty() {
            emit_sack(&self.options, rest);
        }
    }
}

/// The timestamps option behind `lead`, two bytes that align it.
#[inline]
fn timestamps_bytes(lead: [u8; 2], timestamps: Timestamps) -> [u8; TIMESTAMPS_LEN] {
    let [l0, l1] = lead;
    let [v0, v1, v2, v3] = timestamps.value.to_be_bytes();
    let [e0, e1, e2, e3] = timestamps.echo.to_be_bytes();
    [l0, l1, kind::TIMESTAMPS, 10, v0, v1, v2, v3, e0, e1, e2, e3]
}

/// The options of a SYN; `area` is as long as they are.
fn emit_syn(options: &Options, area: &mut [u8]) {
    let mut rest = area;
    let mut put = |bytes: &[u8]| {
        if let Some((place, behind)) = core::mem::take(&mut rest).split_at_mut_checked(bytes.len())
        {
            place.copy_from_slice(bytes);
            rest = behind;
        }
    };
    if let Some(mss) = options.mss {
        let [m0, m1] = mss.to_be_bytes();
        put(&[kind::MSS, 4, m0, m1]);
    }
    let permitted = [kind::SACK_PERMITTED, 2];
    match (options.sack_permitted, options.timestamps) {
        (true, Some(timestamps)) => put(&timestamps_bytes(permitted, timestamps)),
        (false, Some(timestamps)) => put(&timestamps_bytes([kind::NOP, kind::NOP], timestamps)),
        (true, None) => put(&[kind::NOP, kind::NOP, kind::SACK_PERMITTED, 2]),
        (false, None) => {}
    }
    if let Some(shift) = options.window_scale {
        put(&[kind::NOP, kind::WINDOW_SCALE, 3, shift]);
    }
}

/// The SACK option with as many blocks as `area` has room for, which is as many as fit.
fn emit_sack(options: &Options, area: &mut [u8]) {
    let Some((lead, rest)) = area.split_first_chunk_mut::<4>() else {
        return;
    };
    let (pairs, _) = rest.as_chunks_mut::<8>();
    let len = u8::try_from(2 + 8 * pairs.len()).unwrap_or(2);
    *lead = [kind::NOP, kind::NOP, kind::SACK, len];
    for (place, (SeqNum(left), SeqNum(right))) in pairs.iter_mut().zip(options.sack.as_slice()) {
        let [l0, l1, l2, l3] = left.to_be_bytes();
        let [r0, r1, r2, r3] = right.to_be_bytes();
        *place = [l0, l1, l2, l3, r0, r1, r2, r3];
    }
}

/// Puts the checksum into a header that [`Header::emit`] wrote (RFC 9293 MUST-2).
///
/// `header` is the header alone, its checksum field zero. The payload comes as its length and its
/// sum, which [`checksum::copy_and_sum`] gives: a header is a multiple of 4 bytes, so the two sums
/// add up. False, and nothing is done, for addresses of two families or lengths that no IP packet
/// has.
#[inline]
pub fn fill_checksum(
    header: &mut [u8],
    payload_sum: Partial,
    payload_len: usize,
    source: IpAddr,
    destination: IpAddr,
) -> bool {
    let Some(len) = header.len().checked_add(payload_len) else {
        return false;
    };
    let Some(pseudo) = checksum::pseudo_header(source, destination, Protocol::TCP, len) else {
        return false;
    };
    let sum = checksum::finish(pseudo + checksum::sum(header) + payload_sum);
    let Some(field) = header.get_mut(16..18) else {
        return false;
    };
    field.copy_from_slice(&sum.to_be_bytes());
    true
}
