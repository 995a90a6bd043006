//! How often we may talk about errors (RFC 1122 §3.2.2, RFC 4443 §2.4 f): token buckets, one for
//! all and a coarse one per destination.
//!
//! The bucket for all is a counter that an attacker can observe: it drains it with invented senders,
//! looks whether it still gets an answer, and so learns whether others got one (the port scan of
//! CVE-2020-25705). So a destination's own bucket is asked first, and what the common bucket
//! charges is random.

use alloc::vec::Vec;
use core::net::IpAddr;

use crate::ip::keyed::{Random, Seed};
use crate::time::{Duration, Instant};

/// Rates and bursts.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// Errors a second to all destinations together, on average; 0 is none at all.
    pub per_second: u32,
    /// Errors at once, after a silence.
    pub burst: u32,
    /// Errors a second to one destination (IPv6: one /64; and all that share its bucket).
    pub per_second_each: u32,
    /// Errors at once to one destination.
    pub burst_each: u32,
}

impl Default for Config {
    /// 1000 a second for all, bursts of 50; 10 a second for one, bursts of 10 (RFC 4443 §2.4 f's
    /// example).
    fn default() -> Self {
        Self {
            per_second: 1000,
            burst: 50,
            per_second_each: 10,
            burst_each: 10,
        }
    }
}

/// A token bucket as one number: the time at which it would be full again.
#[derive(Clone, Copy, Debug)]
struct Bucket {
    full_at: Instant,
}

impl Bucket {
    const FULL: Self = Self {
        full_at: Instant::ZERO,
    };

    /// Whether a token is there.
    fn has(&self, now: Instant, interval: Duration, burst: u32) -> bool {
        self.full_at.max(now) + interval <= now + interval * burst
    }

    fn take(&mut self, now: Instant, cost: Duration) {
        self.full_at = self.full_at.max(now) + cost;
    }
}

/// Buckets for destinations. 256: enough that two of them seldom meet, and a flood from many fills
/// 4 KiB, no more.
const BUCKETS: usize = 256;

/// The limiter: see the head of this file.
pub struct Limiter {
    config: Config,
    limits: bool,
    interval: Duration,
    interval_each: Duration,
    common: Bucket,
    each: Vec<Bucket>,
    seed: Seed,
    random: Random,
}

impl Limiter {
    /// A limiter with full buckets; all memory is taken here.
    #[must_use]
    pub fn new(config: Config, seed: Seed) -> Self {
        let seed = seed.derive(0x4c49_4d49);
        let interval = |rate: u32| Duration::from_nanos(1_000_000_000 / u64::from(rate.max(1)));
        Self {
            config,
            limits: true,
            interval: interval(config.per_second),
            interval_each: interval(config.per_second_each),
            common: Bucket::FULL,
            each: alloc::vec![Bucket::FULL; BUCKETS],
            seed,
            random: Random::new(seed),
        }
    }

    /// Whether it limits from now on, as it does at first; else every error may go.
    pub const fn set_limits(&mut self, limits: bool) {
        self.limits = limits;
    }

    /// Whether an error may go to `destination` now; if so, it is charged.
    pub fn allow(&mut self, destination: IpAddr, now: Instant) -> bool {
        if !self.limits {
            return true;
        }
        if self.config.per_second == 0 || self.config.per_second_each == 0 {
            return false;
        }
        let aggregate = match destination {
            IpAddr::V4(_) => destination,
            IpAddr::V6(ip) => IpAddr::V6((ip.to_bits() >> 64 << 64).into()),
        };
        let at = usize::try_from(self.seed.hash_ip(aggregate) % BUCKETS as u64).unwrap_or(0);
        let Some(own) = self.each.get_mut(at) else {
            return false;
        };
        if !own.has(now, self.interval_each, self.config.burst_each)
            || !self.common.has(now, self.interval, self.config.burst)
        {
            return false;
        }
        own.take(now, self.interval_each);
        // 0, 1 or 2 tokens: one on average.
        let tokens = u32::try_from(self.random.below(3)).unwrap_or(1);
        self.common.take(now, self.interval * tokens);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const T0: Instant = Instant(1_000_000_000_000);

    fn count(limiter: &mut Limiter, to: impl Fn(u32) -> IpAddr, tries: u32, now: Instant) -> u32 {
        (0..tries)
            .map(|n| u32::from(limiter.allow(to(n), now)))
            .sum()
    }
    fn one(_: u32) -> IpAddr {
        [192, 0, 2, 1].into()
    }
    fn many(n: u32) -> IpAddr {
        IpAddr::V4((0x0a00_0000 + n).into())
    }

    #[test]
    fn one_destination_gets_its_burst_then_its_rate() {
        let mut limiter = Limiter::new(Config::default(), Seed([1, 2]));
        assert_eq!(count(&mut limiter, one, 1000, T0), 10);
        assert_eq!(
            count(&mut limiter, one, 1000, T0 + Duration::from_millis(99)),
            0
        );
        assert_eq!(
            count(&mut limiter, one, 1000, T0 + Duration::from_millis(300)),
            3
        );
        assert_eq!(
            count(&mut limiter, one, 1000, T0 + Duration::from_secs(60)),
            10
        );
    }

    #[test]
    fn one_ipv6_network_is_one_destination() {
        let mut limiter = Limiter::new(Config::default(), Seed([1, 2]));
        let to = |n: u32| IpAddr::V6((0xfd77_u128 << 112 | u128::from(n)).into());
        assert_eq!(count(&mut limiter, to, 1000, T0), 10);
    }

    #[test]
    fn all_together_get_about_their_burst_then_about_their_rate() {
        let mut limiter = Limiter::new(Config::default(), Seed([1, 2]));
        let burst = count(&mut limiter, many, 100_000, T0);
        assert!((30..=90).contains(&burst), "{burst}: random, around 50");
        let mut sum = 0;
        for ms in 1..=10_000 {
            let now = T0 + Duration::from_millis(ms);
            let to = |n| many(n + u32::try_from(ms).unwrap() * 8);
            sum += count(&mut limiter, to, 8, now);
        }
        assert!(
            (8_000..=12_000).contains(&sum),
            "{sum}: around 1000 a second"
        );
    }

    #[test]
    fn without_a_limit_all_may_go_and_with_it_again_as_before() {
        let mut limiter = Limiter::new(Config::default(), Seed([1, 2]));
        assert_eq!(count(&mut limiter, one, 100, T0), 10);
        limiter.set_limits(false);
        assert_eq!(count(&mut limiter, one, 100, T0), 100);
        limiter.set_limits(true);
        assert_eq!(count(&mut limiter, one, 100, T0), 0);
    }

    #[test]
    fn a_rate_of_zero_is_silence() {
        let config = Config {
            per_second: 0,
            ..Config::default()
        };
        let mut limiter = Limiter::new(config, Seed([1, 2]));
        assert_eq!(count(&mut limiter, many, 100, T0), 0);
    }
}
