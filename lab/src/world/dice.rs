//! Chance: a small generator that is the same everywhere, and numbers that depend on a seed and a name alone.

/// SplitMix64.
#[derive(Clone, Debug)]
pub struct Dice(u64);

impl Dice {
    /// What follows from `seed`.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The dice called `name` of `seed`: others do not change what they throw.
    #[must_use]
    pub const fn of(seed: u64, name: u64) -> Self {
        let mut dice = Self(seed ^ name.wrapping_mul(0xd6e8_feb8_6659_fd93));
        dice.next();
        dice
    }

    /// The next 64 bits.
    pub const fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// In `0..n`; 0 for an empty range.
    pub const fn below(&mut self, n: u64) -> u64 {
        let next = self.next();
        if n == 0 { 0 } else { next % n }
    }

    /// True `n` times in a million.
    pub const fn per_million(&mut self, n: u32) -> bool {
        n > 0 && self.below(1_000_000) < n as u64
    }

    /// One of `from`.
    ///
    /// # Panics
    /// If there is none.
    pub fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        let index = self.below(from.len() as u64);
        from[usize::try_from(index).unwrap_or(0)]
    }
}
