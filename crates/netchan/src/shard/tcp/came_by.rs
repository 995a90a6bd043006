//! Which listener a connection came by, until it is accepted; and then since when it is readable. Of a connection one of the two is of interest at a time,
//! and a million idle ones take four bytes less each.

use proto::time::Instant;

/// One or the other, or nothing, in 32 bits. The first bit tells them apart.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::shard) struct CameBy(u32);

/// A listener's number, inverted, has it set: there are fewer than 2³¹.
const LISTENER: u32 = 1 << 31;

impl CameBy {
    /// Of a connection that waits for its listener; `None`: it was begun here.
    pub const fn new(listener: Option<u32>) -> Self {
        match listener {
            Some(number) => Self(!number | LISTENER),
            None => Self(0),
        }
    }

    /// The listener, until the connection is accepted.
    pub const fn listener(self) -> Option<u32> {
        match self.0 & LISTENER {
            0 => None,
            _ => Some(!self.0),
        }
    }

    /// The count of arrivals when it became readable, for comparisons that wrap ([`Socket::ready_since`](crate::socket::Socket::ready_since)). 0: it was not since
    /// its reader took all; or it is not accepted yet.
    pub const fn readable_since(self) -> u32 {
        match self.0 & LISTENER {
            0 => self.0 << 1,
            _ => 0,
        }
    }

    /// It is readable. `arrivals` counts those that became so: no slower than time passes, so that counts of several shards can be compared, but for some time after
    /// minutes without any.
    #[inline]
    pub fn is_readable(&mut self, arrivals: &mut u32, now: Instant) {
        if self.0 == 0 {
            *arrivals = later(*arrivals, now);
            self.0 = *arrivals;
        }
    }

    /// Its reader has taken all.
    #[inline]
    pub const fn is_read(&mut self) {
        if self.0 & LISTENER == 0 {
            self.0 = 0;
        }
    }
}

/// The count behind `last`, at `now`: one more, or one for each 128 ns, as far as 31 bits tell. It is not 0.
#[inline]
fn later(last: u32, now: Instant) -> u32 {
    let bits = !LISTENER;
    let by_time = u32::try_from(now.0 >> 7 & u64::from(bits)).unwrap_or(0);
    let next = last.wrapping_add(1) & bits;
    let latest = match (by_time << 1).wrapping_sub(next << 1).cast_signed() > 0 {
        true => by_time,
        false => next,
    };
    latest.max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_listener_until_it_is_accepted() {
        for number in [0, 1, u32::MAX >> 1] {
            let mut came_by = CameBy::new(Some(number));
            came_by.is_readable(&mut 1, Instant(1 << 40));
            came_by.is_read();
            assert_eq!(came_by.listener(), Some(number));
            assert_eq!(came_by.readable_since(), 0);
        }
        assert_eq!(CameBy::new(None).listener(), None);
    }

    #[test]
    fn later_ones_are_later_until_they_are_read() {
        let (mut arrivals, mut last) = (0, 1);
        // Many at a time, and long afterwards; across the end of the count.
        for at in [0, 0, 0, 1 << 30, 1 << 30, (1 << 38) - 1, 1 << 38, 1 << 38] {
            let mut one = CameBy::default();
            one.is_readable(&mut arrivals, Instant(at));
            let since = one.readable_since();
            assert!(one.listener().is_none() && since != 0);
            assert!(since.wrapping_sub(last).cast_signed() > 0, "{at}");
            one.is_readable(&mut arrivals, Instant(at + (1 << 20)));
            assert_eq!(one.readable_since(), since, "as before");
            one.is_read();
            assert_eq!(one.readable_since(), 0);
            last = since;
        }
    }
}
