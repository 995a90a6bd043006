//! Values as C passes them to setsockopt(2): EINVAL where one is too short, or out of its range.

use std::{fs, io, sync::OnceLock, time::Duration};

use libc::c_int;

use crate::errno::{error, fail};

/// EINVAL.
pub(super) fn invalid() -> io::Error {
    error(libc::EINVAL)
}

/// An int.
pub(super) fn int(value: &[u8]) -> io::Result<c_int> {
    match value.first_chunk::<4>() {
        Some(bytes) => Ok(c_int::from_ne_bytes(*bytes)),
        None => fail(libc::EINVAL),
    }
}

/// The options of IPPROTO_IP may come as one byte; as none they are 0.
///
/// # Errors
/// Never: an int has room for whatever is not shorter.
pub fn int_or_byte(value: &[u8]) -> io::Result<c_int> {
    match value {
        [] => Ok(0),
        [byte, ..] if value.len() < 4 => Ok(c_int::from(*byte)),
        _ => int(value),
    }
}

/// The low byte of one.
pub(super) fn octet(value: &[u8]) -> io::Result<u8> {
    u8::try_from(int_or_byte(value)? & 0xff).map_err(|_| invalid())
}

/// An int that says yes or no.
pub(super) fn flag(value: &[u8]) -> io::Result<bool> {
    int(value).map(|value| value != 0)
}

/// An int that is neither less nor more.
pub(super) fn in_range(value: &[u8], least: c_int, most: c_int) -> io::Result<u32> {
    let value = int(value)?;
    if value < least || value > most {
        return fail(libc::EINVAL);
    }
    u32::try_from(value).map_err(|_| invalid())
}

/// As many seconds, at least one.
pub(super) fn seconds(value: &[u8], most: c_int) -> io::Result<Duration> {
    in_range(value, 1, most).map(|seconds| Duration::from_secs(u64::from(seconds)))
}

/// An int that is unsigned in Linux, where C says int.
pub(super) fn word(value: &[u8]) -> io::Result<u32> {
    int(value).map(c_int::cast_unsigned)
}

/// An int of 16 bits that is not negative.
pub(super) fn short(value: &[u8]) -> io::Result<u16> {
    u16::try_from(int(value)?).map_err(|_| invalid())
}

/// A buffer size. Negative sizes are huge to Linux, which cuts them to its limit.
fn size(value: &[u8]) -> io::Result<usize> {
    Ok(word(value)? as usize)
}

/// One beyond the limit: only so that twice as much is an int. Negative ones are none.
pub(super) fn forced(value: &[u8]) -> io::Result<usize> {
    let most = c_int::MAX / 2;
    Ok(usize::try_from(int(value)?.min(most)).unwrap_or(0))
}

/// SO_RCVLOWAT: negative is as much as there can be, 0 is 1.
pub(super) fn low_water(value: &[u8]) -> io::Result<u32> {
    Ok(u32::try_from(int(value)?).unwrap_or(c_int::MAX.unsigned_abs()))
}

/// SO_MAX_PACING_RATE: an unsigned int or an unsigned long; all ones is no limit.
pub(super) fn rate(value: &[u8]) -> io::Result<u64> {
    if let Some(bytes) = value.first_chunk::<8>() {
        return Ok(u64::from_ne_bytes(*bytes));
    }
    Ok(match word(value)? {
        u32::MAX => u64::MAX,
        rate => rate.into(),
    })
}

/// A struct linger.
pub(super) fn linger(value: &[u8]) -> io::Result<Option<Duration>> {
    let (on, rest) = (int(value)?, value.get(4..).unwrap_or(&[]));
    let time = int(rest)?;
    let time = Duration::from_secs(u64::try_from(time).unwrap_or(u64::from(u32::MAX)));
    Ok((on != 0).then_some(time))
}

/// A struct timeval; zero waits for ever, a negative time not at all. EDOM as Linux has it.
pub(super) fn timeval(value: &[u8]) -> io::Result<Option<Duration>> {
    let field = |at: usize| {
        value
            .get(at..)?
            .first_chunk::<8>()
            .map(|b| i64::from_ne_bytes(*b))
    };
    let (Some(seconds), Some(us)) = (field(0), field(8)) else {
        return fail(libc::EINVAL);
    };
    if !(0..1_000_000).contains(&us) {
        return fail(libc::EDOM);
    }
    let Ok(seconds) = u64::try_from(seconds) else {
        return Ok(Some(Duration::ZERO));
    };
    let time = Duration::from_secs(seconds)
        .saturating_add(Duration::from_micros(u64::try_from(us).unwrap_or(0)));
    Ok(Some(time).filter(|time| !time.is_zero()))
}

/// A flag that may be 0 or 1 only.
pub(super) fn zero_or_one(value: &[u8]) -> io::Result<bool> {
    in_range(value, 0, 1).map(|on| on != 0)
}

/// Bytes of a socket's buffer that this machine grants its programs, whose `net.core.rmem_max` and `net.core.wmem_max` they know.
fn granted(name: &str) -> usize {
    /// Linux's before 6.18.
    const DEFAULT: usize = 212_992;
    let text = fs::read_to_string(format!("/proc/sys/net/core/{name}"));
    let bytes = text.ok().and_then(|text| text.trim().parse().ok());
    // As Linux: twice as much is an int.
    bytes.unwrap_or(DEFAULT).min(c_int::MAX as usize / 2)
}

/// SO_SNDBUF.
pub(super) fn send_buffer(value: &[u8]) -> io::Result<usize> {
    static MOST: OnceLock<usize> = OnceLock::new();
    Ok(size(value)?.min(*MOST.get_or_init(|| granted("wmem_max"))))
}

/// SO_RCVBUF.
pub(super) fn receive_buffer(value: &[u8]) -> io::Result<usize> {
    static MOST: OnceLock<usize> = OnceLock::new();
    Ok(size(value)?.min(*MOST.get_or_init(|| granted("rmem_max"))))
}
