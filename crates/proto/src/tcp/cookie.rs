//! SYN cookies (RFC 4987 §3.6): a SYN is answered and forgotten; the ACK brings back what has to be known of it.
//!
//! The cookie is our initial sequence number: 29 bits of a keyed hash over addresses, ports, the peer's initial sequence number,
//! the time and what was agreed upon, and 3 bits that name a segment size. Window scale, SACK
//! and ECN stand in the low bits of the SYN-ACK's timestamp, which the peer echoes; without timestamps they are not agreed to.
//! An ACK out of the blue is taken with a chance of 2⁻²⁸.

use core::net::SocketAddr;

use super::connection::Connection;
use super::isn::{Purpose, low_half, words};
use super::template::{Start, Template};
use super::variables::timestamp_clock;
use crate::siphash::Key;
use crate::time::Instant;
use crate::wire::tcp::{Flags, Header, Options, SeqNum, Timestamps};

/// Whose cookie it is.
#[derive(Clone, Copy, Debug)]
pub struct CookieFlow<'a> {
    /// Random, chosen once at start-up and kept secret.
    pub secret: &'a [u8; 16],
    /// Our address and port.
    pub local: SocketAddr,
    /// The peer's.
    pub remote: SocketAddr,
}

/// Segment sizes that a cookie can name: the peer's is rounded down. Ethernet's and those of usual tunnels, of both families, jumbo frames.
const SIZES: [u16; 8] = [64, 536, 1220, 1300, 1400, 1440, 1460, 8940];
/// The time counts in these: a cookie of this period or the one before is good, so for one to two minutes.
const PERIOD_NS: u64 = 60_000_000_000;
/// Bits of the timestamp that hold options: four of window scale, SACK, ECN.
const OPTIONS: u32 = 0x3f;
const NO_SCALE: u32 = 0xf;
const SACK: u32 = 1 << 4;
const ECN: u32 = 1 << 5;
/// Beside those bits: there were no timestamps.
const NO_TIMESTAMPS: u32 = 1 << 6;
/// Bits of the cookie that name a size.
const SIZE_MASK: u32 = 7;
/// An echo younger than this is the round trip of the handshake, if too long by up to 64 ms; an older one waited for something else.
const FRESH_MS: u32 = 1_000;

impl CookieFlow<'_> {
    /// The cookie for a SYN with `irs`, in `period`, whose segment size is `SIZES[size]`.
    fn cookie(&self, irs: SeqNum, period: u32, size: u32, options: u32) -> SeqNum {
        let ([a, b], [c, d]) = (words(self.local.ip()), words(self.remote.ip()));
        let ports = u64::from(self.local.port()) | u64::from(self.remote.port()) << 16;
        let numbers = ports | u64::from(irs.0) << 32;
        let agreed = u64::from(period) | u64::from(options) << 32 | u64::from(size) << 40;
        let last = Purpose::Cookie as u64 | 55 << 56;
        let key = Key::new(self.secret);
        let hash = key.hash::<2, 4>(&[a, b, c, d, numbers, agreed, last]);
        SeqNum(low_half(hash) & !SIZE_MASK | size)
    }

    /// The initial sequence number for a SYN with `irs` and `mss`.
    fn bake(&self, irs: SeqNum, mss: Option<u16>, options: u32, now: Instant) -> SeqNum {
        let mss = mss.unwrap_or(SIZES[1]);
        let size = SIZES.iter().rposition(|&size| size <= mss).unwrap_or(0);
        let size = u32::try_from(size).unwrap_or(0);
        self.cookie(irs, period(now), size, options)
    }

    /// The segment size that a cookie of ours names; `None` if it is forged or too old.
    fn taste(&self, cookie: SeqNum, irs: SeqNum, options: u32, now: Instant) -> Option<u16> {
        let size = cookie.0 & SIZE_MASK;
        let made_in = |period| self.cookie(irs, period, size, options) == cookie;
        let current = period(now);
        (made_in(current) || made_in(current.wrapping_sub(1)))
            .then(|| SIZES.get(size as usize).copied())?
    }
}

fn period(now: Instant) -> u32 {
    low_half(now.0 / PERIOD_NS)
}

impl Template {
    /// The SYN-ACK that answers `syn` with a cookie; the caller need not remember either. `start.iss` does not count.
    pub fn cookie_answer(
        &self,
        start: &Start,
        syn: &Header,
        flow: &CookieFlow<'_>,
        now: Instant,
    ) -> Option<Header> {
        let mut syn = *syn;
        // Classic ECN at most (RFC 9768 §3.1.2 allows a server to agree to just that): there is one bit for it.
        syn.flags = Flags(syn.flags.0 & !Flags::AE.0);
        if !self.connection.timestamps || syn.options.timestamps.is_none() {
            syn.options.window_scale = None;
            syn.options.sack_permitted = false;
        }
        let mut connection = self.passive(start, &syn, now);
        let mut answer = connection.output(now)?.header;
        let options = kept(&connection, answer.flags);
        if let Some(timestamps) = &mut answer.options.timestamps {
            timestamps.value = with_options(now, options).wrapping_add(start.ts_offset);
        }
        answer.seq = flow.bake(syn.seq, syn.options.mss, options, now);
        Some(answer)
    }

    /// The connection that an ACK with a cookie of ours opens, in SYN-RECEIVED: the segment is its first input. `None`: it is no cookie
    /// of ours, or one of long ago. `start.iss` does not count.
    pub fn from_cookie(
        &self,
        start: &Start,
        ack: &Header,
        flow: &CookieFlow<'_>,
        now: Instant,
    ) -> Option<Connection> {
        let cookie = ack.ack - 1;
        let options = match ack.options.timestamps {
            Some(ts) => ts.echo.wrapping_sub(start.ts_offset) & OPTIONS,
            None => NO_SCALE | NO_TIMESTAMPS,
        };
        let mss = flow.taste(cookie, ack.seq - 1, options, now)?;
        let syn = syn_of(ack, mss, options);
        let start = Start {
            iss: cookie,
            ..*start
        };
        let mut connection = self.passive(&start, &syn, now);
        // Our SYN-ACK left long ago; this one goes nowhere.
        connection.output(now)?;
        connection.last_sent = Instant::FAR;
        if let Some(ts) = ack.options.timestamps
            && connection.timestamp_value(now).wrapping_sub(ts.echo) < FRESH_MS
        {
            connection.ts_retransmitted = ts.echo;
        }
        Some(connection)
    }
}

/// What was agreed upon, as the bits that the timestamp keeps.
fn kept(connection: &Connection, flags: Flags) -> u32 {
    if !connection.timestamps {
        return NO_SCALE | NO_TIMESTAMPS;
    }
    let scale = match connection.scaling {
        true => u32::from(connection.snd.scale),
        false => NO_SCALE,
    };
    let sack = if connection.sack { SACK } else { 0 };
    let ecn = if flags.contains(Flags::ECE) { ECN } else { 0 };
    scale | sack | ecn
}

/// The timestamp clock, set back by less than 64 ms so that its low bits say `options`: what is sent later is never smaller.
fn with_options(now: Instant, options: u32) -> u32 {
    let clock = timestamp_clock(now);
    let value = clock & !OPTIONS | options & OPTIONS;
    if value > clock {
        value.wrapping_sub(OPTIONS + 1)
    } else {
        value
    }
}

/// The SYN as far as it matters still.
fn syn_of(ack: &Header, mss: u16, options: u32) -> Header {
    let scale = options & NO_SCALE;
    let ecn = if options & ECN != 0 {
        Flags::ECE | Flags::CWR
    } else {
        Flags::NONE
    };
    Header {
        source_port: ack.source_port,
        destination_port: ack.destination_port,
        seq: ack.seq - 1,
        flags: Flags::SYN | ecn,
        window: ack.window,
        options: Options {
            mss: Some(mss),
            window_scale: u8::try_from(scale).ok().filter(|_| scale != NO_SCALE),
            sack_permitted: options & SACK != 0,
            timestamps: ack
                .options
                .timestamps
                .map(|Timestamps { value, .. }| Timestamps { value, echo: 0 }),
            ..Options::default()
        },
        ..Header::default()
    }
}

#[cfg(test)]
#[path = "tests/cookie.rs"]
mod tests;
