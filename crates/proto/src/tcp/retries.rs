//! Retransmissions counted, as Linux's options count them, and the time that so many take, backed off (RFC 6298 §5.5).

use super::config::Config;
use crate::time::Duration;

/// Time from the first transmission until `retries` retransmissions have gone unanswered, the last for as long as its timeout.
pub fn retry_budget(config: &Config, retries: u8) -> Duration {
    timeouts(config).take(usize::from(retries) + 1).sum()
}

/// The fewest retransmissions that go on for `time`; 0 for none at all.
pub fn retries_in(config: &Config, time: Duration) -> u8 {
    let mut left = time;
    let mut retries = 0;
    let mut timeouts = timeouts(config);
    while !left.is_zero() && retries < u8::MAX {
        left = left.saturating_sub(timeouts.next().unwrap_or(left));
        retries += 1;
    }
    retries
}

/// When retransmission `retries` leaves: the time that [`retries_in`] rounds up to.
pub fn time_of(config: &Config, retries: u8) -> Duration {
    timeouts(config).take(usize::from(retries)).sum()
}

fn timeouts(config: &Config) -> impl Iterator<Item = Duration> {
    let (first, most) = (config.rto_initial, config.rto_max);
    core::iter::successors(Some(first.min(most)), move |timeout| {
        Some(timeout.saturating_mul(2).min(most))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Linux's tcp(7): six SYN retries take 127 s; TCP_DEFER_ACCEPT rounds up to 1, 3, 7, 15, 31, 63, 127 s, then in steps of RTO_MAX.
    #[test]
    fn as_linux_counts() {
        let config = Config::default();
        let s = Duration::from_secs;
        assert_eq!(retry_budget(&config, 6), s(127));
        assert_eq!(retry_budget(&config, 1), s(3));
        for (asked, retries, told) in [
            (0, 0, 0),
            (1, 1, 1),
            (2, 2, 3),
            (5, 3, 7),
            (30, 5, 31),
            (63, 6, 63),
            (64, 7, 127),
            (128, 8, 247),
            (1 << 31, 255, 127 + 248 * 120),
        ] {
            assert_eq!(retries_in(&config, s(asked)), retries, "{asked} s");
            assert_eq!(time_of(&config, retries), s(told), "{retries}");
        }
    }
}
