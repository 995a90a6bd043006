//! Controlled delay (RFC 8289): packets that waited too long for too long leave the queue dropped or marked.

use proto::time::{Duration, Instant};

/// The delay that is acceptable for good (RFC 8289 §4.3).
const TARGET: Duration = Duration::from_millis(5);
/// How long it has to be exceeded (RFC 8289 §4.2).
const INTERVAL: Duration = Duration::from_millis(100);

/// What a queue under controlled delay remembers (RFC 8289 §5.3).
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Codel {
    /// When the delay will have been above the target for an interval; `None` while it is below.
    first_above: Option<Instant>,
    drop_next: Instant,
    count: u32,
    last_count: u32,
    dropping: bool,
}

impl Codel {
    /// A packet is about to leave that entered at `entered`, with `left` bytes behind it: whether it is to be dropped or marked.
    /// To be asked again for the packet after a dropped one.
    pub(super) fn condemns(&mut self, entered: Instant, left: u64, now: Instant) -> bool {
        let above = self.is_above(entered, left, now);
        if self.dropping {
            if !above {
                self.dropping = false;
                return false;
            }
            if now < self.drop_next {
                return false;
            }
            self.count += 1;
            self.drop_next = self.drop_next + self.spacing();
            return true;
        }
        if !above {
            return false;
        }
        self.dropping = true;
        // RFC 8289 §5.5: resume near the rate of the last time if that was lately.
        let recent = now.since(self.drop_next) < INTERVAL * 16;
        let delta = self.count - self.last_count;
        self.count = if recent && delta > 1 { delta } else { 1 };
        self.last_count = self.count;
        self.drop_next = now + self.spacing();
        true
    }

    fn is_above(&mut self, entered: Instant, left: u64, now: Instant) -> bool {
        if now.since(entered) < TARGET || left < 1514 {
            self.first_above = None;
            return false;
        }
        match self.first_above {
            None => {
                self.first_above = Some(now + INTERVAL);
                false
            }
            Some(at) => now >= at,
        }
    }

    /// The control law: intervals shrink with the square root of the drops (whole numbers, so that runs are the same everywhere).
    fn spacing(&self) -> Duration {
        let root = (u64::from(self.count) << 20).isqrt();
        let nanos = (100_000_000_u64 << 10) / root.max(1);
        Duration::from_nanos(nanos)
    }
}
