//! The general walk over TCP options (RFC 9293 §3.1), for what the fast paths of parse leave.

use core::ops::Range;

use super::{AccEcn, FastOpen, HEADER_LEN, Options, SackBlocks, SeqNum, Timestamps};
use crate::wire::Error;

/// Option kinds.
pub(super) mod kind {
    pub const END: u8 = 0;
    pub const NOP: u8 = 1;
    pub const MSS: u8 = 2;
    pub const WINDOW_SCALE: u8 = 3;
    pub const SACK_PERMITTED: u8 = 4;
    pub const SACK: u8 = 5;
    pub const TIMESTAMPS: u8 = 8;
    pub const USER_TIMEOUT: u8 = 28;
    pub const FAST_OPEN: u8 = 34;
    pub const ACCECN0: u8 = 172;
    pub const ACCECN1: u8 = 174;
    /// RFC 6994; what it is for stands in the two bytes behind the length.
    pub const EXPERIMENT: u8 = 254;
}

/// What the first option of `wanted` kind says in a segment; `None` if there is none, or the options before it are not whole.
pub fn option(segment: &[u8], wanted: u8) -> Option<&[u8]> {
    segment.get(option_at(segment, wanted, HEADER_LEN)?)
}

/// Where that stands, of the options that begin `from` bytes into the segment.
pub fn option_at(segment: &[u8], wanted: u8, from: usize) -> Option<Range<usize>> {
    let end = usize::from(segment.get(12)? >> 4) * 4;
    let area = segment.get(..end)?;
    let mut at = from;
    loop {
        let (kind, len) = match *area.get(at..)? {
            [kind::NOP, ..] => {
                at += 1;
                continue;
            }
            [] | [kind::END, ..] | [_] => return None,
            [kind, len, ..] => (kind, len),
        };
        let next = at + usize::from(len);
        if len < 2 || next > end {
            return None;
        }
        if kind == wanted {
            return Some(at + 2..next);
        }
        at = next;
    }
}

/// The timestamps that an area begins with, as RFC 7323 appendix A lays them out: NOP, NOP, the option.
#[inline(always)]
pub(super) fn leading_timestamps(area: &[u8]) -> Option<Timestamps> {
    let (lead, times) = area.first_chunk::<12>()?.split_first_chunk::<4>()?;
    if *lead != [kind::NOP, kind::NOP, kind::TIMESTAMPS, 10] {
        return None;
    }
    times.first_chunk().map(timestamps)
}

fn timestamps(&[v0, v1, v2, v3, e0, e1, e2, e3]: &[u8; 8]) -> Timestamps {
    Timestamps {
        value: u32::from_be_bytes([v0, v1, v2, v3]),
        echo: u32::from_be_bytes([e0, e1, e2, e3]),
    }
}

/// The SACK blocks that an area consists of, as RFC 2018 §3 and appendix A of RFC 7323 would have them aligned: NOP, NOP, the option.
fn only_sack(area: &[u8]) -> Option<SackBlocks> {
    match area {
        [kind::NOP, kind::NOP, kind::SACK, len, blocks @ ..]
            if usize::from(*len) == 2 + blocks.len() =>
        {
            Some(sack_blocks(blocks))
        }
        _ => None,
    }
}

/// Collects the options in `area` into `options`, which starts out empty.
///
/// First the layout of acknowledgments with SACK, in the pieces that it is made of; then whatever there is, option by option. Ends at the end-of-options byte or the end of the area. Every turn takes at least one byte, and
/// the area has at most 40.
pub(super) fn parse(mut area: &[u8], syn: bool, options: &mut Options) -> Result<(), Error> {
    if let Some(first) = leading_timestamps(area) {
        options.timestamps = Some(first);
        area = &area[12..];
    }
    if let Some(blocks) = only_sack(area) {
        options.sack = blocks;
        return Ok(());
    }
    loop {
        let (kind, len) = match *area {
            [] | [kind::END, ..] => return Ok(()),
            [kind::NOP, ref rest @ ..] => {
                area = rest;
                continue;
            }
            [_] => return Err(Error::Option),
            [kind, len, ..] => (kind, len),
        };
        // MUST-68: the length counts its own two bytes.
        let whole = area.split_at_checked(usize::from(len)).filter(|_| len >= 2);
        let (option, rest) = whole.ok_or(Error::Option)?;
        take(kind, option.get(2..).unwrap_or_default(), syn, options);
        area = rest;
    }
}

/// Takes one option if it is known, of its proper length, in its place, and the first of its kind.
fn take(kind: u8, data: &[u8], syn: bool, options: &mut Options) {
    match (kind, data) {
        (kind::MSS, [a, b]) if syn && options.mss.is_none() => {
            options.mss = Some(u16::from_be_bytes([*a, *b]));
        }
        (kind::WINDOW_SCALE, [shift]) if syn && options.window_scale.is_none() => {
            options.window_scale = Some(*shift);
        }
        (kind::SACK_PERMITTED, []) if syn => options.sack_permitted = true,
        (kind::TIMESTAMPS, data) if options.timestamps.is_none() => {
            options.timestamps = data.as_array().map(timestamps);
        }
        (kind::SACK, data) if options.sack.is_empty() => options.sack = sack_blocks(data),
        (kind::USER_TIMEOUT, [a, b]) if options.user_timeout == 0 => {
            options.user_timeout = u16::from_be_bytes([*a, *b]);
        }
        (kind::ACCECN0 | kind::ACCECN1, data) if options.accecn.is_none() => {
            options.accecn = Some(accecn(kind == kind::ACCECN1, data));
        }
        // Of several the last counts, as in Linux: a peer that answers in both forms means the newer one.
        (kind::FAST_OPEN, cookie) if syn => {
            options.fast_open = FastOpen::read(cookie, false).or(options.fast_open);
        }
        (kind::EXPERIMENT, [a, b, cookie @ ..]) if syn && [*a, *b] == FastOpen::EXPERIMENT => {
            options.fast_open = FastOpen::read(cookie, true).or(options.fast_open);
        }
        _ => {}
    }
}

/// RFC 9768 §3.2.3: of any length, the whole fields count.
fn accecn(ect1_first: bool, data: &[u8]) -> AccEcn {
    let mut option = AccEcn {
        ect1_first,
        ..AccEcn::default()
    };
    for (place, &[a, b, c]) in option.fields.iter_mut().zip(data.as_chunks::<3>().0) {
        *place = u32::from_be_bytes([0, a, b, c]);
        option.len += 1;
    }
    option
}

/// The blocks of a SACK option; none if they are not whole. At most four fit into the option area.
fn sack_blocks(data: &[u8]) -> SackBlocks {
    let mut blocks = SackBlocks::NONE;
    let (pairs, []) = data.as_chunks::<8>() else {
        return blocks;
    };
    for &[l0, l1, l2, l3, r0, r1, r2, r3] in pairs {
        let left = SeqNum(u32::from_be_bytes([l0, l1, l2, l3]));
        let right = SeqNum(u32::from_be_bytes([r0, r1, r2, r3]));
        if !blocks.push(left, right) {
            break;
        }
    }
    blocks
}
