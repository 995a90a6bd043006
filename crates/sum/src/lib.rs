//! The long loops of the internet checksum (RFC 1071): a sum, by the widest vectors that the processor has, and a copy that sums.
//!
//! The one's-complement sum does not care about byte order as long as all words are swapped (RFC 1071 §2 B), so these are sums of native 32-bit words;
//! what folds them, and what sums the rest of a packet, is `proto::wire::checksum`.
//!
//! A 64-bit word `x` holds two 32-bit halves. With `all += x` and `high += x >> 32`, both wrapping, the sum of the low halves is
//! `all - (high << 32)`: exact for up to 2³² words, and three vector operations instead of the four that widening takes. The loops are as plain as
//! that on purpose, for plain ones are what LLVM turns into vectors: unrolled by hand over arrays they stay scalar, at half the speed. They walk both
//! halves of the bytes at once, because one walk waits for its own sums (1408 bytes on a Zen 5: 39 ns unrolled by hand, 23 ns one walk, 20 ns two).
//!
//! On x86-64 the sum is compiled a second time, for AVX2, which is chosen at run time: 1472 bytes take 16 ns instead of 27 (Sapphire Rapids). AVX-512 has
//! nothing to add: LLVM takes vectors of 32 bytes there, too. The copy is not: alone it is as fast or faster with AVX2 (22 ns against 24 to 27), in a whole stack slower
//! (bulk in memory, MTU 1500: 40 Gbit/s against 43). NEON is part of every AArch64.
#![no_std]

/// What the loops take at a time, bytes: two halves of 32, which two vectors of two words take.
pub const STRIDE: usize = 64;

/// Sums the 32-bit words of `bytes`, in the machine's byte order. Below 2⁶¹ for any slice that memory holds.
///
/// Of a length that is no multiple of [`STRIDE`] the rest is left out.
#[inline(never)]
#[must_use]
pub fn sum(bytes: &[u8]) -> u64 {
    #[cfg(target_arch = "x86_64")]
    if let Some(avx2) = avx2::Avx2::here() {
        return avx2.sum(bytes);
    }
    sum_words(bytes)
}

/// Copies `from` to the start of `to`, and gives the [`sum`] of what was copied.
///
/// As much as both have, in whole [`STRIDE`]s; the rest is left out.
#[inline]
pub fn copy_and_sum(from: &[u8], to: &mut [u8]) -> u64 {
    let len = from.len().min(to.len()) / STRIDE * STRIDE;
    let (Some(from), Some(to)) = (from.get(..len), to.get_mut(..len)) else {
        return 0;
    };
    if len < LONG {
        copy_words(from, to)
    } else {
        copy_by_blocks(from, to)
    }
}

/// From here on a block is summed, and then copied: one walk over more than the first cache holds waits for its own stores (Sapphire Rapids, 64 KiB: 2,009 ns
/// in one walk, 1,421 ns by blocks, 1,239 ns copied only; 16 KiB: 257 ns and 267 ns).
const LONG: usize = 16 << 10;
/// So large a block stays in the first cache.
const BLOCK: usize = 2 << 10;

#[inline(never)]
fn copy_by_blocks(from: &[u8], to: &mut [u8]) -> u64 {
    let mut total = 0;
    for (from, to) in from.chunks(BLOCK).zip(to.chunks_mut(BLOCK)) {
        total += sum(from);
        to.copy_from_slice(from);
    }
    total
}

/// A 64-bit word as it lies in memory.
type Word = [u8; 8];

/// The accumulators of a walk; see the head of this file.
#[derive(Clone, Copy, Default)]
struct Walk {
    all: u64,
    high: u64,
}

impl Walk {
    #[inline(always)]
    const fn add(self, word: Word) -> Self {
        let word = u64::from_ne_bytes(word);
        Self {
            all: self.all.wrapping_add(word),
            high: self.high.wrapping_add(word >> 32),
        }
    }

    /// The sum of the low halves and of the high ones: below 2⁶¹ for any slice that memory holds.
    #[inline(always)]
    const fn total(self) -> u64 {
        self.all.wrapping_sub(self.high << 32) + self.high
    }
}

#[inline(always)]
fn sum_words(bytes: &[u8]) -> u64 {
    let half = bytes.len() / STRIDE * STRIDE / 2;
    let (first, second) = bytes.split_at(half);
    let (mut one, mut two) = (Walk::default(), Walk::default());
    for (first, second) in first.as_chunks().0.iter().zip(second.as_chunks().0) {
        one = one.add(*first);
        two = two.add(*second);
    }
    one.total() + two.total()
}

/// Both are as long.
#[inline(never)]
fn copy_words(from: &[u8], to: &mut [u8]) -> u64 {
    let half = from.len().min(to.len()) / STRIDE * STRIDE / 2;
    let (first, second) = from.split_at(half);
    let (first_to, second_to) = to.split_at_mut(half);
    let first = first.as_chunks().0.iter().zip(first_to.as_chunks_mut().0);
    let second = second.as_chunks().0.iter().zip(second_to.as_chunks_mut().0);
    let (mut one, mut two) = (Walk::default(), Walk::default());
    for ((first, first_to), (second, second_to)) in first.zip(second) {
        *first_to = *first;
        *second_to = *second;
        one = one.add(*first);
        two = two.add(*second);
    }
    one.total() + two.total()
}

#[cfg(target_arch = "x86_64")]
mod avx2 {
    //! The sum for AVX2.

    cpufeatures::new!(avx2, "avx2");

    /// The processor has AVX2: only [`Self::here`] makes it.
    #[derive(Clone, Copy)]
    pub(super) struct Avx2(());

    impl Avx2 {
        #[inline(always)]
        pub(super) fn here() -> Option<Self> {
            avx2::get().then_some(Self(()))
        }

        #[inline(always)]
        pub(super) fn sum(self, bytes: &[u8]) -> u64 {
            // SAFETY: the processor has AVX2, as this value proves.
            unsafe { sum(bytes) }
        }
    }

    #[target_feature(enable = "avx2")]
    fn sum(bytes: &[u8]) -> u64 {
        super::sum_words(bytes)
    }
}

#[cfg(test)]
mod tests;
