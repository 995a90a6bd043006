//! The user timeout option (RFC 5482): each end says for how long it goes on without an answer, and both do so for as long as the more
//! patient one, within limits. Off unless asked for.

use super::image::plain;

/// What a connection does with the option.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum UserTimeoutOption {
    /// Neither sent nor looked at (ENABLED of RFC 5482 §3.1 is false).
    #[default]
    Off,
    /// Sent, and the peer's counts.
    Negotiable,
    /// Sent; the peer's does not count, as the application has set a timeout (CHANGEABLE is false).
    Fixed,
}

/// The granularity bit: minutes instead of seconds.
const MINUTES: u16 = 1 << 15;

/// The option's state.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct UserTimeout {
    pub option: UserTimeoutOption,
    /// The next acknowledgment says it.
    pub tell: bool,
    /// ADV_UTO, as on the wire.
    pub own: u16,
}

impl UserTimeout {
    pub fn new(option: UserTimeoutOption, own_ms: u32) -> Self {
        Self {
            option,
            own: to_wire(own_ms),
            // RFC 5482 §3.2: a SYN cookie may have forgotten what the SYN said.
            tell: true,
        }
    }
}

/// RFC 5482 §3.3: 15 bits of seconds or minutes, rounded up; zero is nothing that may be said.
fn to_wire(ms: u32) -> u16 {
    let seconds = ms.div_ceil(1000).max(1);
    match u16::try_from(seconds) {
        Ok(seconds) if seconds < MINUTES => seconds,
        _ => u16::try_from(seconds.div_ceil(60)).map_or(u16::MAX, |minutes| MINUTES | minutes),
    }
}

pub(super) fn from_wire(value: u16) -> Option<u32> {
    let unit = if value & MINUTES == 0 { 1_000 } else { 60_000 };
    let count = u32::from(value & !MINUTES);
    (count > 0).then_some(count * unit)
}

plain!(UserTimeout { option, tell, own });

#[cfg(test)]
super::image::scramble::chosen! {
    UserTimeoutOption: UserTimeoutOption::Off, UserTimeoutOption::Negotiable, UserTimeoutOption::Fixed;
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 5482 §3.3, figure 1.
    #[test]
    fn seconds_or_minutes() {
        for (ms, wire, back) in [
            (0, 1, 1_000),
            (1, 1, 1_000),
            (924_000, 924, 924_000),
            (32_767_000, 32_767, 32_767_000),
            (32_768_000, 0x8000 | 547, 547 * 60_000),
            (u32::MAX, 0x8000 | 71_583, 0),
        ] {
            let wire = if wire > 0xffff {
                None
            } else {
                u16::try_from(wire).ok()
            };
            let Some(wire) = wire else {
                assert_eq!(to_wire(ms), u16::MAX, "as much as can be said");
                continue;
            };
            assert_eq!((to_wire(ms), from_wire(wire)), (wire, Some(back)), "{ms}");
        }
        assert_eq!((from_wire(0), from_wire(MINUTES)), (None, None));
        assert_eq!(from_wire(u16::MAX), Some(32_767 * 60_000));
    }
}
