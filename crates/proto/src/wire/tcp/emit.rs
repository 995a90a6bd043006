//! From TCP header to segment, and the checksum on the way out.

use core::net::IpAddr;

use super::options::kind;
use super::{AccEcn, Flags, HEADER_LEN, Header, Options, SackBlocks, SeqNum, Timestamps};
use crate::wire::Protocol;
use crate::wire::checksum::{self, Partial, put_words};

/// Bytes of the timestamps option with its two NOPs.
const TIMESTAMPS_LEN: usize = 12;
/// NOP, NOP, and kind and length of the timestamps option.
const TIMESTAMPS_LEAD: u32 = u32::from_be_bytes([kind::NOP, kind::NOP, kind::TIMESTAMPS, 10]);
/// Where the checksum field is.
const CHECKSUM: core::ops::Range<usize> = 16..18;

/// What the data offset leaves for options (RFC 9293 §3.1).
const OPTIONS_LEN_MAX: usize = 40;

impl Options {
    /// No option.
    pub const NONE: Self = Self {
        mss: None,
        window_scale: None,
        sack_permitted: false,
        sack: SackBlocks::NONE,
        timestamps: None,
        accecn: None,
        user_timeout: 0,
        fast_open: None,
        free: 0,
    };

    /// Bytes of what stands last: the user timeout, and what is kept free.
    const fn last(&self) -> usize {
        let user_timeout = if self.user_timeout == 0 { 0 } else { 4 };
        user_timeout + self.free as usize
    }

    /// How many of the SACK blocks fit: four, or three beside timestamps (RFC 2018 §3), or fewer beside a signature.
    const fn sack_fitting(&self) -> usize {
        let timestamps = if self.timestamps.is_some() {
            TIMESTAMPS_LEN
        } else {
            0
        };
        let fit = 36_usize.saturating_sub(timestamps + self.last()) / 8;
        let len = self.sack.len as usize;
        if len < fit { len } else { fit }
    }

    /// Bytes of the options in a segment with or without SYN, padding included: a multiple of 4,
    /// at most 40.
    #[inline]
    pub const fn len(&self, syn: bool) -> usize {
        let others = self.len_without_accecn(syn);
        match self.accecn {
            Some(counters) if others + counters.padded() <= OPTIONS_LEN_MAX => {
                others + counters.padded()
            }
            _ => others,
        }
    }

    /// Bytes of all but the AccECN option, which gives way to every other (RFC 9768 §3.2.3.3).
    #[inline]
    const fn len_without_accecn(&self, syn: bool) -> usize {
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
            let others = mss + sack + timestamps + scale + self.last();
            others + self.fast_open_len(others)
        } else {
            let blocks = self.sack_fitting();
            let sack = if blocks == 0 { 0 } else { 4 + 8 * blocks };
            timestamps + sack + self.last()
        }
    }

    /// Bytes of the Fast Open option beside `others`; a cookie for which no room is left is not sent.
    const fn fast_open_len(&self, others: usize) -> usize {
        match self.fast_open {
            Some(option) if others + option.padded() <= OPTIONS_LEN_MAX => option.padded(),
            _ => 0,
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
        HEADER_LEN + self.options.len(self.is_syn())
    }

    /// Writes the header, options included and checksum zero, to the front of `buf`; returns its
    /// length, 0 if it does not fit. [`fill_checksum`] does the rest.
    ///
    /// * With SYN: MSS, SACK-permitted, timestamps, NOP, window scale, Fast Open, AccECN. SACK blocks are left out.
    /// * Without: NOP, NOP, timestamps, NOP, NOP, SACK (three blocks beside timestamps, four
    ///   without), AccECN, for which the caller has left room. MSS, window scale and SACK-permitted are left out (RFC 9293 MUST-65).
    ///
    /// Both are the layouts Linux sends, so receivers' fast paths fit.
    #[inline]
    pub fn emit(&self, buf: &mut [u8]) -> usize {
        self.write(buf).map_or(0, |(len, _)| len)
    }

    /// [`Header::emit`] and [`fill_checksum`] in one: sums what it writes while that is still in
    /// registers, where reading it back at once would wait for the stores.
    ///
    /// Returns the header's length; 0 if it does not fit, for addresses of two families, or for
    /// lengths that no IP packet has.
    #[inline]
    pub fn emit_with_checksum(
        &self,
        buf: &mut [u8],
        payload_sum: Partial,
        payload_len: usize,
        source: IpAddr,
        destination: IpAddr,
    ) -> usize {
        let Some(whole) = self.len().checked_add(payload_len) else {
            return 0;
        };
        match checksum::pseudo_header(source, destination, Protocol::TCP, whole) {
            Some(pseudo) => self.emit_with_sum(buf, pseudo + payload_sum),
            None => 0,
        }
    }

    /// [`Header::emit_with_checksum`] for a caller that has summed the pseudo header, too: `rest` is its sum and the payload's.
    #[inline(always)]
    pub fn emit_with_sum(&self, buf: &mut [u8], rest: Partial) -> usize {
        let Some((len, sum)) = self.write(buf) else {
            return 0;
        };
        let sum = checksum::finish(rest + sum);
        let Some(field) = buf.get_mut(CHECKSUM) else {
            return 0;
        };
        field.copy_from_slice(&sum.to_be_bytes());
        len
    }

    /// Writes all but the checksum; the length and the sum of what was written.
    #[inline(always)]
    fn write(&self, buf: &mut [u8]) -> Option<(usize, Partial)> {
        let len = self.len();
        let (fixed, area) = buf.get_mut(..len)?.split_first_chunk_mut::<HEADER_LEN>()?;
        // The data offset counts words of 4 and stands in the top 4 bits of 16, above 3 reserved
        // ones and the flags: 60 << 10 is the most it gets.
        let offset = u16::try_from(len << 10).ok()?;
        let flags = offset | (self.flags.0 & 0x1ff);
        let words = [
            pair(self.source_port, self.destination_port),
            self.seq.0,
            self.ack.0,
            pair(flags, self.window),
            pair(0, self.urgent),
        ];
        let mut sum = put_words(fixed, words);
        match (self.options.timestamps, len) {
            // The layout of an established connection; the length says that nothing else goes in.
            (Some(Timestamps { value, echo }), 32) if !self.is_syn() => {
                sum += put_words(area, [TIMESTAMPS_LEAD, value, echo]);
            }
            (_, HEADER_LEN) => {}
            _ => {
                emit_options(self.options, self.is_syn(), area);
                sum += checksum::sum(area);
            }
        }
        Some((len, sum))
    }

    const fn is_syn(&self) -> bool {
        self.flags.contains(Flags::SYN)
    }
}

/// Two 16-bit fields side by side.
#[inline(always)]
fn pair(high: u16, low: u16) -> u32 {
    (u32::from(high) << 16) | u32::from(low)
}

/// Fills `area`, which has exactly the length the options need. (By value: a header that is never pointed to stays in registers.)
#[inline(never)]
fn emit_options(options: Options, syn: bool, area: &mut [u8]) {
    let mut rest = area;
    let mut put = |bytes: &[u8]| {
        if let Some((place, behind)) = core::mem::take(&mut rest).split_at_mut_checked(bytes.len())
        {
            place.copy_from_slice(bytes);
            rest = behind;
        }
    };
    if let (true, Some(mss)) = (syn, options.mss) {
        let [m0, m1] = mss.to_be_bytes();
        put(&[kind::MSS, 4, m0, m1]);
    }
    // Two bytes that align the timestamps, or say what SYN has to say anyway.
    let permitted = syn && options.sack_permitted;
    let lead = if permitted {
        [kind::SACK_PERMITTED, 2]
    } else {
        [kind::NOP; 2]
    };
    if let Some(Timestamps { value, echo }) = options.timestamps {
        let ([a, b], [v0, v1, v2, v3]) = (lead, value.to_be_bytes());
        let [e0, e1, e2, e3] = echo.to_be_bytes();
        put(&[a, b, kind::TIMESTAMPS, 10, v0, v1, v2, v3, e0, e1, e2, e3]);
    } else if permitted {
        put(&[kind::NOP, kind::NOP, kind::SACK_PERMITTED, 2]);
    }
    if let (true, Some(shift)) = (syn, options.window_scale) {
        put(&[kind::NOP, kind::WINDOW_SCALE, 3, shift]);
    }
    if syn && let Some(option) = options.fast_open {
        let others = Options {
            accecn: None,
            fast_open: None,
            ..options
        };
        if options.fast_open_len(others.len(true)) > 0 {
            option.emit(&mut put);
        }
    }
    if !syn && !options.sack.is_empty() {
        let fitting = options.sack.as_slice().get(..options.sack_fitting());
        emit_sack(fitting.unwrap_or_default(), &mut put);
    }
    if let Some(counters) = options.accecn
        && options.len(syn) > options.len_without_accecn(syn)
    {
        emit_accecn(counters, &mut put);
    }
    if options.user_timeout != 0 {
        let [high, low] = options.user_timeout.to_be_bytes();
        put(&[kind::USER_TIMEOUT, 4, high, low]);
    }
    for _ in 0..options.free / 4 {
        put(&[kind::NOP; 4]);
    }
}

/// RFC 2018 §3, with two NOPs before it.
#[inline]
fn emit_sack(blocks: &[(SeqNum, SeqNum)], mut put: impl FnMut(&[u8])) {
    if !blocks.is_empty() {
        put(&[kind::NOP, kind::NOP, kind::SACK, sack_len(blocks.len())]);
    }
    for (SeqNum(left), SeqNum(right)) in blocks {
        let block = u64::from(*left) << 32 | u64::from(*right);
        put(&block.to_be_bytes());
    }
}

/// RFC 9768 §3.2.3, with NOPs before it up to a multiple of four.
fn emit_accecn(counters: AccEcn, mut put: impl FnMut(&[u8])) {
    let len = 2 + 3 * counters.len;
    for _ in usize::from(len)..counters.padded() {
        put(&[kind::NOP]);
    }
    let kind = if counters.ect1_first {
        kind::ACCECN1
    } else {
        kind::ACCECN0
    };
    put(&[kind, len]);
    for field in counters.fields.iter().take(counters.len.into()) {
        let [_, low @ ..] = field.to_be_bytes();
        put(&low);
    }
}

/// The length field of a SACK option of `blocks` blocks, at most four.
fn sack_len(blocks: usize) -> u8 {
    u8::try_from(2 + 8 * blocks).unwrap_or(2)
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
    let Some(field) = header.get_mut(CHECKSUM) else {
        return false;
    };
    field.copy_from_slice(&sum.to_be_bytes());
    true
}
