//! The internet checksum against a reference that goes byte by byte.

use proptest::prelude::*;
use proto::wire::checksum::{self, Partial};

/// RFC 1071, the slow way.
fn reference(bytes: &[u8]) -> u16 {
    let mut sum = 0_u64;
    for pair in bytes.chunks(2) {
        let low = pair.get(1).copied().unwrap_or(0);
        sum += u64::from(u16::from_be_bytes([pair[0], low]));
    }
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !u16::try_from(sum).unwrap()
}

/// Bytes that differ in every place and are full of carries.
fn bytes(len: usize) -> Vec<u8> {
    (0..len)
        .map(|i| u8::try_from((i * 167 + 251 * (i / 7)) % 256).unwrap() | 0x80)
        .collect()
}

#[test]
fn every_length_and_alignment_matches_the_reference() {
    for fill in [bytes(340), vec![0xff; 340], vec![0; 340]] {
        for start in 0..16 {
            for len in 0..=300 {
                let part = &fill[start..start + len];
                assert_eq!(
                    checksum::checksum(part),
                    reference(part),
                    "start {start} len {len}"
                );
                let mut copy = vec![0x55; len + 32];
                let sum = checksum::copy_and_sum(part, &mut copy[start..]);
                assert_eq!(
                    checksum::finish(sum),
                    reference(part),
                    "copy {start} len {len}"
                );
                assert_eq!(&copy[start..start + len], part);
                assert!(
                    copy[..start].iter().all(|byte| *byte == 0x55),
                    "wrote before"
                );
                assert!(
                    copy[start + len..].iter().all(|byte| *byte == 0x55),
                    "wrote behind"
                );
            }
        }
    }
}

#[test]
fn the_worst_case_of_carries_holds() {
    let ones = vec![0xff; 1 << 20];
    assert_eq!(checksum::checksum(&ones), 0);
    let mut sum = Partial::ZERO;
    for _ in 0..1000 {
        sum += checksum::sum(&ones);
    }
    assert_eq!(checksum::finish(sum), 0);
}

#[test]
fn a_copy_into_too_little_room_stops_at_its_end() {
    let from = bytes(200);
    let mut to = vec![0; 131];
    let sum = checksum::copy_and_sum(&from, &mut to);
    assert_eq!(checksum::finish(sum), reference(&from[..131]));
    assert_eq!(to, from[..131]);
}

proptest! {
    #[test]
    fn pieces_combine_to_the_whole(
        data in prop::collection::vec(any::<u8>(), 0..5000),
        cut in any::<prop::sample::Index>(),
    ) {
        let cut = cut.index(data.len() + 1);
        let (head, tail) = data.split_at(cut);
        let sum = checksum::combine(checksum::sum(head), head.len(), checksum::sum(tail));
        prop_assert_eq!(checksum::finish(sum), reference(&data));
    }

    #[test]
    fn big_random_buffers_match_the_reference(
        data in prop::collection::vec(any::<u8>(), 60_000..70_000),
        start in 0_usize..64,
    ) {
        let part = &data[start..];
        prop_assert_eq!(checksum::checksum(part), reference(part));
        let mut copy = vec![0; part.len()];
        prop_assert_eq!(checksum::finish(checksum::copy_and_sum(part, &mut copy)), reference(part));
        prop_assert_eq!(&copy[..], part);
    }

    /// RFC 1624: the update gives what a new sum gives, as far as one's complement tells zeros apart.
    #[test]
    fn an_update_equals_a_new_sum(
        mut data in prop::collection::vec(any::<u8>(), 8..100),
        new in any::<u32>(),
    ) {
        let before = checksum::checksum(&data);
        let old = u32::from_be_bytes([data[4], data[5], data[6], data[7]]);
        data[4..8].copy_from_slice(&new.to_be_bytes());
        let after = checksum::checksum(&data);
        let updated = checksum::update_u32(before, old, new);
        let normal = |sum: u16| if sum == 0xffff { 0 } else { sum };
        prop_assert_eq!(normal(updated), normal(after));
    }
}
