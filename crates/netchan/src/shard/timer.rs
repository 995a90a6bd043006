//! Timers of a shard's connections: a wheel of one-millisecond slots with lists through one array. Arming is O(1) and
//! allocates nothing; a deadline that moved later is noticed when the earlier one comes round.

use proto::time::Instant;

const SLOTS: usize = 4096;
const TICK_NS: u64 = 1_000_000;
const NONE: u32 = u32::MAX;

#[derive(Clone, Copy, Debug)]
struct Node {
    next: u32,
    previous: u32,
    /// The tick it hangs there for begins after this time; [`Instant::FAR`]: it hangs nowhere.
    after: Instant,
}

impl Node {
    /// The slot it hangs in.
    fn slot(&self) -> Option<u32> {
        (self.after != Instant::FAR).then(|| slot_of(self.after.0 / TICK_NS + 1))
    }
}

const IDLE: Node = Node {
    next: NONE,
    previous: NONE,
    after: Instant::FAR,
};

/// A timer for each number of a table.
#[derive(Debug)]
pub struct Wheel {
    nodes: Vec<Node>,
    heads: Vec<u32>,
    occupied: [u64; SLOTS / 64],
    /// Every tick up to here has been served.
    tick: u64,
    armed: usize,
    /// No armed timer's tick is earlier; `u64::MAX` if none is armed.
    soonest: u64,
}

#[allow(clippy::cast_possible_truncation)] // SLOTS is 4096
const fn slot_of(tick: u64) -> u32 {
    (tick % SLOTS as u64) as u32
}

impl Wheel {
    /// Bytes that each number takes.
    #[cfg(test)]
    pub const NODE: usize = size_of::<Node>();

    /// For numbers below `capacity`.
    pub fn new(capacity: usize, now: Instant) -> Self {
        Self {
            nodes: Vec::with_capacity(capacity),
            heads: vec![NONE; SLOTS],
            occupied: [0; SLOTS / 64],
            tick: now.0 / TICK_NS,
            armed: 0,
            soonest: u64::MAX,
        }
    }

    /// Sees to it that `number` comes up in [`Self::expire`] no earlier than `at` and no later than a tick after it.
    /// Cheap if it hangs early enough already. [`Instant::FAR`] leaves it as it is.
    #[inline]
    pub fn arm(&mut self, number: u32, at: Instant) {
        match self.nodes.get(number as usize) {
            Some(node) if node.after < at => {}
            _ => self.arm_earlier(number, at),
        }
    }

    #[inline(never)]
    fn arm_earlier(&mut self, number: u32, at: Instant) {
        if at != Instant::FAR {
            // Rounded up: never early. The slot being served now is over.
            self.hang(number, at.0.div_ceil(TICK_NS).max(self.tick + 1));
        }
    }

    fn hang(&mut self, number: u32, tick: u64) {
        self.disarm(number);
        if self.nodes.len() <= number as usize {
            self.nodes.resize(number as usize + 1, IDLE);
        }
        // Beyond one round it waits in the last slot before now and is hung again.
        let tick = tick.min(self.tick + SLOTS as u64 - 1);
        let slot = slot_of(tick);
        let head = self.heads[slot as usize];
        self.nodes[number as usize] = Node {
            next: head,
            previous: NONE,
            after: Instant((tick - 1).saturating_mul(TICK_NS)),
        };
        if head != NONE {
            self.nodes[head as usize].previous = number;
        }
        self.heads[slot as usize] = number;
        self.occupied[slot as usize / 64] |= 1 << (slot % 64);
        self.armed += 1;
        self.soonest = self.soonest.min(tick);
    }

    /// Whether `number` will come up in time for a deadline `at`: what [`Self::arm`] promised.
    pub fn serves(&self, number: u32, at: Instant) -> bool {
        let node = self.nodes.get(number as usize).unwrap_or(&IDLE);
        let soon = Instant(self.tick.saturating_mul(TICK_NS));
        at == Instant::FAR || node.after < at || node.after <= soon
    }

    /// Whether `number` will come up at all.
    pub fn is_armed(&self, number: u32) -> bool {
        let node = self.nodes.get(number as usize);
        node.is_some_and(|node| node.slot().is_some())
    }

    /// Forgets `number`.
    pub fn disarm(&mut self, number: u32) {
        let Some(node) = self.nodes.get(number as usize) else {
            return;
        };
        let Some(slot) = node.slot() else {
            return;
        };
        let (next, previous) = (node.next, node.previous);
        self.nodes[number as usize] = IDLE;
        self.armed -= 1;
        if self.armed == 0 {
            self.soonest = u64::MAX;
        }
        if next != NONE {
            self.nodes[next as usize].previous = previous;
        }
        if previous != NONE {
            self.nodes[previous as usize].next = next;
        } else {
            self.heads[slot as usize] = next;
            if next == NONE {
                self.occupied[slot as usize / 64] &= !(1 << (slot % 64));
            }
        }
    }

    /// Takes one timer whose tick has come; `None` once all up to `now` are served. The caller looks at the true deadline and arms again.
    #[inline]
    pub fn expire(&mut self, now: Instant) -> Option<u32> {
        let current = now.0 / TICK_NS;
        if current < self.soonest {
            // Nothing is due: no slot in between has a timer of its own tick.
            self.tick = self.tick.max(current);
            return None;
        }
        // What lies before the soonest has nothing of its own round.
        self.tick = self.tick.max(self.soonest - 1);
        while self.tick < current {
            let head = self.heads[slot_of(self.tick + 1) as usize];
            if head != NONE {
                self.disarm(head);
                return Some(head);
            }
            self.tick += 1;
        }
        self.soonest = self.find_soonest();
        None
    }

    /// When [`Self::expire`] may next have something; [`Instant::FAR`] if nothing is armed.
    #[inline]
    pub const fn next(&self) -> Instant {
        Instant(self.soonest.saturating_mul(TICK_NS))
    }

    fn find_soonest(&self) -> u64 {
        let first = slot_of(self.tick + 1) as usize;
        // Words from the one that holds `first`, round to that one again for the slots before `first`.
        for step in 0..=SLOTS / 64 {
            let word = (first / 64 + step) % (SLOTS / 64);
            let mut bits = self.occupied[word];
            if step == 0 {
                bits &= !0 << (first % 64);
            }
            if bits != 0 {
                let slot = word * 64 + bits.trailing_zeros() as usize;
                let ahead = (slot + SLOTS - first) % SLOTS;
                return self.tick + 1 + ahead as u64;
            }
        }
        u64::MAX
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A caller that takes only some of what is due finds the rest due at once, in the order of their ticks.
    #[test]
    fn what_was_not_taken_stays_due() {
        let (begin, now) = (Instant(0), Instant(50 * TICK_NS));
        let mut wheel = Wheel::new(64, begin);
        for number in 0..64 {
            wheel.arm(number, Instant((1 + u64::from(number) % 4) * 10 * TICK_NS));
        }
        let (mut taken, mut turns) = (Vec::new(), 0);
        while wheel.next() <= now {
            turns += 1;
            for _ in 0..5 {
                if let Some(number) = wheel.expire(now) {
                    taken.push(number % 4);
                    // One that is armed anew has its turn after the others.
                    if taken.len() == 1 {
                        wheel.arm(number, Instant(60 * TICK_NS));
                    }
                }
            }
            assert!(turns < 20);
        }
        assert!(taken.is_sorted() && taken.len() == 64, "{taken:?}");
        assert!(wheel.next() > now && wheel.next() <= Instant(60 * TICK_NS));
    }

    /// Once the first one came up, the time of the second is known to the tick, however far it is, from wherever in the wheel.
    #[test]
    fn the_next_one_is_known_to_the_tick() {
        let ticks = |n: u64| Instant(n * TICK_NS);
        for begin in [0, 1, 63, 64, 100, 511, 1000, 5000] {
            for far in (1..SLOTS as u64 - 2).step_by(7) {
                let mut wheel = Wheel::new(4, ticks(begin));
                wheel.arm(0, ticks(begin + 1));
                wheel.arm(1, ticks(begin + 1 + far));
                assert_eq!(wheel.expire(ticks(begin + 2)), Some(0));
                assert_eq!(wheel.expire(ticks(begin + 2)), (far == 1).then_some(1));
                let due = wheel.next();
                let wanted = begin + 1 + far;
                if far > 1 {
                    assert!(
                        due >= ticks(wanted) && due <= ticks(wanted + 1),
                        "{begin} {far}"
                    );
                    assert!(wheel.is_armed(1) && !wheel.is_armed(0));
                }
            }
        }
    }

    /// Against a plain list: everything comes up within a tick of its time, in spite of moves, and `next` is never late.
    #[test]
    fn agrees_with_a_list() {
        for seed in 1..20_u64 {
            let mut x = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
            let mut random = move |n: u64| {
                x ^= x << 13;
                x ^= x >> 7;
                x ^= x << 17;
                x % n
            };
            let mut now = Instant(5_000_000);
            let mut wheel = Wheel::new(64, now);
            let mut model = [Instant::FAR; 64];
            for _ in 0..3000 {
                let n = usize::try_from(random(64)).unwrap();
                let far =
                    [3_000_000, 40_000_000, 9_000_000_000][usize::try_from(random(3)).unwrap()];
                let at = Instant(now.0 + random(far));
                model[n] = model[n].min(at);
                wheel.arm(u32::try_from(n).unwrap(), at);
                assert!(
                    wheel.next() <= Instant(model.iter().min().unwrap().0 + 2 * TICK_NS),
                    "seed {seed}"
                );
                now = Instant(now.0 + random(20_000_000));
                while let Some(number) = wheel.expire(now) {
                    let n = number as usize;
                    if model[n] <= now {
                        model[n] = Instant::FAR;
                    } else {
                        wheel.arm(number, model[n]);
                    }
                }
                for (n, at) in model.iter().enumerate() {
                    assert!(
                        *at == Instant::FAR || at.0 + TICK_NS > now.0,
                        "seed {seed}: {n} is late"
                    );
                }
            }
        }
    }
}
