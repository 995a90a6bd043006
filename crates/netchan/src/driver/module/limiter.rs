//! A rate limit: token buckets, one for all peers or one for each prefix of their addresses; what finds its bucket empty is dropped.
//!
//! Any number of threads at once: a bucket is one word, the time at which it will be full again (the "theoretical arrival time" of
//! ITU-T I.371's GCRA), and a packet is one compare-and-swap. The table has a fixed number of buckets, found by a keyed hash: two
//! prefixes in one bucket share its rate, and without the key another's cannot be aimed at.

use std::{
    io,
    net::IpAddr,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
};

use proto::{ip::keyed::Seed, time::Instant};

use super::{Module, Point, Verdict, View, filter::masked};

/// Buckets of a limit for each prefix, unless it says otherwise: 8 bytes each. A hundred busy prefixes leave a quiet one alone with
/// 99.8 %.
pub const TABLE: usize = 1 << 16;
/// Most buckets: 128 MiB.
pub const TABLE_MAX: usize = 1 << 24;
/// Highest rate, units per second: a bucket's clock ticks in nanoseconds.
pub const RATE_MAX: u64 = 1_000_000_000;

/// What is counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Unit {
    /// Packets, whatever their size.
    #[default]
    Packets,
    /// Their bytes, IP header included.
    Bytes,
}

/// A limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limit {
    /// Which way: one of the three.
    pub point: Point,
    /// What is counted.
    pub unit: Unit,
    /// Units per second: 1 to [`RATE_MAX`].
    pub per_second: u64,
    /// Units that may come at once after a pause: at least 1. A single packet larger than this passes when the bucket is full.
    pub burst: u64,
    /// A bucket for each network of these prefix lengths (IPv4, IPv6) that peers (sources on the way in and through, destinations on the way
    /// out) come from; `None`: one for all.
    pub each: Option<(u8, u8)>,
    /// Buckets: a power of two up to [`TABLE_MAX`].
    pub table: usize,
}

impl Limit {
    /// So many packets per second in, a second's worth at once, for all together.
    pub const fn packets(per_second: u64) -> Self {
        Self {
            point: Point::In,
            unit: Unit::Packets,
            per_second,
            burst: per_second,
            each: None,
            table: TABLE,
        }
    }

    fn check(&self) -> Result<(), String> {
        if !(1..=RATE_MAX).contains(&self.per_second) {
            return Err(format!("{} per second: 1 to {RATE_MAX}", self.per_second));
        }
        if !(1..=RATE_MAX).contains(&self.burst) {
            return Err(format!("a burst of {}: 1 to {RATE_MAX}", self.burst));
        }
        if self.each.is_some_and(|(v4, v6)| v4 > 32 || v6 > 128) {
            return Err("prefix lengths go to 32 (IPv4) and 128 (IPv6)".into());
        }
        if !self.table.is_power_of_two() || self.table > TABLE_MAX {
            return Err(format!(
                "{} buckets: a power of two up to {TABLE_MAX}",
                self.table
            ));
        }
        Ok(())
    }
}

/// The limiter.
#[derive(Debug)]
pub struct Limiter {
    name: String,
    limit: Limit,
    points: [Point; 1],
    key: Seed,
    /// When each is full again, ns on the stack's clock; in the past: it is.
    full_at: Vec<AtomicU64>,
    /// From empty to full, ns.
    depth_ns: u64,
}

impl Limiter {
    /// A limiter called `name`, with a key from the system.
    ///
    /// # Errors
    /// `InvalidInput` for a limit out of its range; the system's when it has no randomness.
    pub fn new(name: impl Into<String>, limit: Limit) -> io::Result<Self> {
        let key = Seed([crate::sys::random_u64()?, crate::sys::random_u64()?]);
        Self::with_key(name, limit, key)
    }

    /// The same with a key of one's own, for tests that replay.
    ///
    /// # Errors
    /// `InvalidInput` for a limit out of its range.
    pub fn with_key(name: impl Into<String>, limit: Limit, key: Seed) -> io::Result<Self> {
        limit.check().map_err(crate::errno::invalid)?;
        let buckets = if limit.each.is_some() { limit.table } else { 1 };
        Ok(Self {
            name: name.into(),
            points: [limit.point],
            key,
            full_at: (0..buckets).map(|_| AtomicU64::new(0)).collect(),
            depth_ns: cost_ns(limit.burst, limit.per_second),
            limit,
        })
    }

    fn bucket(&self, peer: IpAddr) -> &AtomicU64 {
        let Some((v4, v6)) = self.limit.each else {
            return &self.full_at[0];
        };
        let hash = self
            .key
            .hash_ip(masked(peer, if peer.is_ipv4() { v4 } else { v6 }));
        #[allow(clippy::cast_possible_truncation)] // the mask keeps fewer bits than a usize has
        let place = hash as usize & (self.full_at.len() - 1);
        &self.full_at[place]
    }

    /// Takes `units` for `peer` out of its bucket; false: there are not enough in it.
    pub fn take(&self, peer: IpAddr, units: u64, now: Instant) -> bool {
        let cost = cost_ns(units, self.limit.per_second);
        let bucket = self.bucket(peer);
        // Relaxed: the word is all there is.
        let mut full_at = bucket.load(Relaxed);
        loop {
            let missing = full_at.saturating_sub(now.0);
            // A full bucket lets anything pass, or what is larger than the burst never would.
            if missing > 0 && missing.saturating_add(cost) > self.depth_ns {
                return false;
            }
            let after = now.0.saturating_add(missing).saturating_add(cost);
            match bucket.compare_exchange_weak(full_at, after, Relaxed, Relaxed) {
                Ok(_) => return true,
                Err(other) => full_at = other,
            }
        }
    }
}

/// How long the bucket takes to get so many units back, ns, rounded up: at least one, so that none is free.
fn cost_ns(units: u64, per_second: u64) -> u64 {
    units
        .saturating_mul(1_000_000_000)
        .div_ceil(per_second.max(1))
}

impl Module for Limiter {
    fn name(&self) -> &str {
        &self.name
    }
    fn points(&self) -> &[Point] {
        &self.points
    }
    fn packet(&self, point: Point, packet: &View<'_>, now: Instant) -> Verdict {
        let peer = match point {
            Point::Arrival | Point::In | Point::Forward => packet.source(),
            Point::Out => packet.destination(),
        };
        let units = match self.limit.unit {
            Unit::Packets => 1,
            Unit::Bytes => packet.len() as u64,
        };
        if self.take(peer, units, now) {
            Verdict::Pass
        } else {
            Verdict::Drop
        }
    }
    fn describe(&self) -> String {
        let Limit {
            per_second,
            burst,
            each,
            ..
        } = self.limit;
        let unit = match self.limit.unit {
            Unit::Packets => "packets",
            Unit::Bytes => "bytes",
        };
        let whom = each.map_or("in all".to_owned(), |(v4, v6)| {
            format!("for each /{v4} and /{v6}")
        });
        format!("{per_second} {unit}/s, {burst} at once, {whom}")
    }
}
