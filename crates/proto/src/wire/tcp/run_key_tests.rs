//! Which bits of a header begin another GRO run.

use super::*;
use crate::wire::tcp::{Header, Timestamps};

/// A header of either usual layout, with text behind it.
fn segment(timestamps: bool) -> ([u8; 60], usize) {
    let mut header = Header {
        source_port: 80,
        destination_port: 40_000,
        seq: SeqNum(0x89ab_cdef),
        ack: SeqNum(77),
        flags: Flags::ACK,
        window: 500,
        ..Header::default()
    };
    if timestamps {
        header.options.timestamps = Some(Timestamps { value: 9, echo: 8 });
    }
    let mut bytes = [7; 60];
    header.emit(&mut bytes);
    (bytes, header.len())
}

/// Ports are the flow's, which the caller compares; the checksum differs with the text, and so may PSH; without URG the urgent pointer means nothing.
#[test]
fn one_bit_makes_a_difference_but_in_some_fields() {
    const PSH: (usize, u8) = (13, 8);
    for timestamps in [false, true] {
        let (first, text) = segment(timestamps);
        let alike = RunKey::of(&first, text).unwrap();
        assert_eq!(alike.read(&first), Some((SeqNum(0x89ab_cdef), text)));
        for (byte, bit) in (0..first.len()).flat_map(|byte| (0..8).map(move |n| (byte, 1 << n))) {
            let mut other = first;
            other[byte] ^= bit;
            let seq = Header::parse(&other).map(|(header, _)| header.seq);
            let same = matches!(byte, 0..8 | 16..20) || byte >= text || (byte, bit) == PSH;
            let expected = same.then(|| (seq.unwrap(), text));
            assert_eq!(alike.read(&other), expected, "bit {bit:#x} of byte {byte}");
        }
        for len in 0..text {
            assert_eq!(alike.read(&first[..len]), None);
        }
        assert_eq!(
            alike.read(&first[..text]),
            Some((SeqNum(0x89ab_cdef), text))
        );
    }
    let (plain, with) = (segment(false), segment(true));
    assert_eq!(RunKey::of(&plain.0, plain.1).unwrap().read(&with.0), None);
    assert_eq!(RunKey::of(&with.0, with.1).unwrap().read(&plain.0), None);
    assert_eq!(RunKey::of(&with.0[..31], 32), None, "no such segment");
}
