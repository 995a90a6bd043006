//! What a program asked to be told beside what it reads and sends, and what is only kept for it.

use std::{
    io,
    sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed},
    time::Duration,
};

use netchan::socket::options::CallerFlag;

use crate::{driver, errno::fail};

/// Flags of SO_TIMESTAMPING: the times of what comes are taken ...
pub const RX_SOFTWARE: u32 = 1 << 3;
/// ... and told.
pub const SOFTWARE: u32 = 1 << 4;
/// Stamps of sends have numbers.
pub const OPT_ID: u32 = 1 << 7;
/// The error queue tells of the packets that it shows what recvmsg tells of those that come.
pub const OPT_CMSG: u32 = 1 << 10;
/// Those that one send may have for itself: TX_HARDWARE, TX_SOFTWARE, TX_SCHED, TX_ACK.
pub const OF_A_SEND: u32 = 1 | 1 << 1 | 1 << 8 | 1 << 9;

/// All that it shall tell.
#[derive(Debug, Default)]
pub struct Asked(AtomicU32);

impl Asked {
    /// Asks, or asks no more.
    pub fn set(&self, what: CallerFlag, on: bool) {
        let bit = 1 << what as u32;
        if on {
            self.0.fetch_or(bit, Relaxed);
        } else {
            self.0.fetch_and(!bit, Relaxed);
        }
        // Of the two there is one (sock_set_timestamp).
        match what {
            CallerFlag::Timestamp if on => self.set(CallerFlag::TimestampNs, false),
            CallerFlag::TimestampNs if on => self.set(CallerFlag::Timestamp, false),
            _ => {}
        }
    }

    /// As [`Self::bits`] said.
    pub const fn of_bits(bits: u32) -> Self {
        Self(AtomicU32::new(bits))
    }

    /// All of it.
    pub fn bits(&self) -> u32 {
        self.0.load(Relaxed)
    }

    /// As another.
    pub fn copy(&self, other: &Self) {
        self.0.store(other.0.load(Relaxed), Relaxed);
    }

    /// Whether it is asked.
    pub fn get(&self, what: CallerFlag) -> bool {
        self.0.load(Relaxed) & 1 << what as u32 != 0
    }

    /// Whether nothing is asked.
    pub fn is_empty(&self) -> bool {
        self.0.load(Relaxed) == 0
    }
}

/// When the datagram came that was read last, in nanoseconds since 1970: as in Linux only once a program has asked for it.
#[derive(Debug)]
pub struct Arrival(AtomicU64);

impl Arrival {
    const NEVER: u64 = u64::MAX;
    /// Something came that had no time.
    const UNKNOWN: u64 = 0;

    /// A datagram was read, or looked at, that came `age` ago.
    #[inline]
    pub fn note(&self, asked: &Asked, age: Duration) {
        // Each of these stands for itself: a caller that reads beside it may have either time.
        if self.0.load(Relaxed) != Self::UNKNOWN {
            self.keep(asked, age);
        }
    }

    #[cold]
    fn keep(&self, asked: &Asked, age: Duration) {
        let time = match asked.get(CallerFlag::Arrival) {
            true => nanoseconds(driver::wall_clock().saturating_sub(age)),
            false => Self::UNKNOWN,
        };
        self.0.store(time, Relaxed);
    }

    /// SIOCGSTAMP: from now on times are kept; now, if what came had none.
    ///
    /// # Errors
    /// ENOENT: nothing came.
    pub fn ask(&self, asked: &Asked) -> io::Result<Duration> {
        asked.set(CallerFlag::Arrival, true);
        match self.0.load(Relaxed) {
            Self::NEVER => fail(libc::ENOENT),
            Self::UNKNOWN => {
                let now = driver::wall_clock();
                self.0.store(nanoseconds(now), Relaxed);
                Ok(now)
            }
            time => Ok(Duration::from_nanos(time)),
        }
    }
}

impl Default for Arrival {
    fn default() -> Self {
        Self(AtomicU64::new(Self::NEVER))
    }
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(Arrival::NEVER - 1)
}
