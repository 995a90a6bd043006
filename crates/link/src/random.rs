//! The small generator behind a wire's impairments: seeded, so that every run replays. Not for secrets.

use netchan_base::units::Probability;

/// SplitMix64 (Steele, Lea, Flood 2014): one addition and two multiplications a number, any seed is good.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// A generator whose numbers are a function of `seed` alone.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next 64 bits.
    #[inline]
    pub const fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }

    /// A number in `0..n`; 0 for `n` = 0. (Multiply and shift: a bias of n/2⁶⁴, far below what a test can see.)
    #[inline]
    #[allow(clippy::cast_possible_truncation)] // the upper half of a 128-bit product fits 64 bits
    pub fn below(&mut self, n: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(n)) >> 64) as u64
    }

    /// True with probability `p`. Draws nothing where the answer is certain.
    #[inline]
    pub const fn hit(&mut self, p: Probability) -> bool {
        match p.threshold() {
            0 => false,
            u64::MAX => true,
            threshold => self.next() < threshold,
        }
    }
}

/// The finisher of SplitMix64: spreads every bit of `z` over the whole word.
#[must_use]
pub const fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
