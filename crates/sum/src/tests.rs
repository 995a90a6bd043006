//! Every way to sum against words added one by one.

extern crate std;

use proptest::prelude::*;
use std::{vec, vec::Vec};

use super::{STRIDE, copy_and_sum, sum, sum_words};

/// What the loops take of so many bytes.
const fn whole(len: usize) -> usize {
    len / STRIDE * STRIDE
}

fn word_by_word(bytes: &[u8]) -> u64 {
    let words = bytes[..whole(bytes.len())].as_chunks().0.iter();
    words.map(|word| u64::from(u32::from_ne_bytes(*word))).sum()
}

fn check(from: &[u8], room: usize) {
    assert_eq!(sum(from), word_by_word(from));
    assert_eq!(sum_words(from), word_by_word(from));
    let mut to = vec![0x55; room];
    let taken = whole(from.len().min(room));
    assert_eq!(copy_and_sum(from, &mut to), word_by_word(&from[..taken]));
    assert_eq!(to[..taken], from[..taken]);
    assert!(to[taken..].iter().all(|&byte| byte == 0x55), "beyond");
}

#[test]
fn any_length() {
    let bytes: Vec<u8> = (0..70_000_u32)
        .map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8)
        .collect();
    for len in (0..600).chain((600..70_000).step_by(1_061)) {
        check(&bytes[..len], len);
    }
}

#[test]
fn carries_are_not_lost() {
    for len in [64, 1_472, 16_383, 16_384, 65_535, 65_536] {
        check(&vec![0xff; len], len);
    }
}

/// This machine's own loops are those that were compared: on x86-64 of the last ten years with AVX2.
#[cfg(target_arch = "x86_64")]
#[test]
fn avx2_is_taken_where_it_is() {
    assert_eq!(
        super::avx2::Avx2::here().is_some(),
        std::is_x86_feature_detected!("avx2")
    );
}

proptest! {
    #[test]
    fn any_bytes_at_any_place(bytes in proptest::collection::vec(any::<u8>(), 0..5_000), from in 0_usize..64, room in 0_usize..5_000) {
        check(bytes.get(from..).unwrap_or_default(), room);
    }
}
