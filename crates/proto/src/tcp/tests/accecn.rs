//! The counters of accurate ECN by themselves (RFC 9768 §3.2): when they are told, and what is made of what the peer tells.

use super::*;
use crate::wire::tcp::{SeqNum, Timestamps};

const MSS: u32 = 1_000;

/// The flags of a counter's low three bits.
fn ace(count: u16) -> Flags {
    Flags((count & 7) << 6)
}

/// CE bytes as a peer tells them, whose other counters stand at their beginning.
fn told(ce: u32) -> Option<AccEcn> {
    Some(AccEcn {
        ect1_first: false,
        len: 3,
        fields: [1, ce, 1],
    })
}

/// §3.2.2.5.1: the first mark of a run, with text, at once; then every second, or third if nothing waits to be acknowledged.
#[test]
fn marks_that_are_acknowledged_at_once() {
    use Ecn::{Ce, Ect0, NotEct};
    let lives: [&[(Ecn, u32, bool, bool)]; 6] = [
        &[(Ce, 9, false, true), (Ce, 9, false, true)],
        &[(Ect0, 9, false, false), (Ce, 9, false, true)],
        &[
            (Ce, 0, false, false),
            (Ce, 0, false, false),
            (Ce, 0, false, true),
        ],
        &[(Ce, 0, true, false), (Ce, 0, true, true)],
        &[
            (Ce, 0, false, false),
            (NotEct, 9, true, false),
            (Ce, 9, false, true),
        ],
        &[(Ce, 0, false, false), (Ce, 9, false, true)],
    ];
    for life in lives {
        let mut accurate = Accurate::new();
        for &(ecn, len, owes, at_once) in life {
            assert_eq!(accurate.arrived(ecn, len, owes), at_once, "{life:?}");
        }
        assert!(accurate.has_marks());
        accurate.acknowledged();
        assert!(!accurate.has_marks());
    }
    // In the middle of a run the count begins with each acknowledgment.
    let mut accurate = Accurate::new();
    assert!(accurate.arrived(Ce, 9, false));
    accurate.acknowledged();
    assert!(!accurate.arrived(Ce, 9, false));
    assert!(accurate.arrived(Ce, 9, false));
    assert_eq!(accurate.ace(), ace(5 + 3));
    assert_eq!(accurate.bytes(), [1, 27, 1]);
}

/// §3.2.3: as many counters as ever moved, the one that moves first; told when one moved, where SACK leaves room.
#[test]
fn the_option_tells_what_moved() {
    for (ect0, ce, ect1, first, len, fields) in [
        (0, 0, 0, false, 1, [1, 0, 1]),
        (5, 0, 0, false, 1, [6, 0, 1]),
        (5, 7, 0, false, 2, [6, 7, 1]),
        (5, 0, 2, false, 3, [6, 0, 3]),
        (0, 0, 2, true, 1, [3, 0, 1]),
        (0, 7, 2, true, 2, [3, 7, 1]),
        ((1 << 24) + 4, 1 << 24, 0, false, 2, [5, 0, 1]),
    ] {
        let mut accurate = Accurate::new();
        accurate.arrived(Ecn::Ect0, ect0, false);
        accurate.arrived(Ecn::Ect1, ect1, false);
        accurate.arrived(Ecn::Ce, ce, false);
        let option = AccEcn {
            ect1_first: first,
            len,
            fields,
        };
        assert_eq!(accurate.option(&Options::default()), Some(option));
        assert_eq!(accurate.option(&Options::default()), None, "nothing moved");
        accurate.arrived(Ecn::Ce, 1, false);
        assert!(accurate.option(&Options::default()).is_some());
        let all = [ect0 + 1, ce + 1, ect1 + 1].map(|bytes| bytes & 0xff_ffff);
        assert_eq!(accurate.syn_ack_option().fields, all);
    }
    // 12 bytes of timestamps, and 12 or 20 of SACK: 8 more fit, and 12 do not.
    for (blocks, fits) in [(2, true), (3, false)] {
        let mut options = Options {
            timestamps: Some(Timestamps { value: 1, echo: 1 }),
            ..Options::default()
        };
        (0..blocks).for_each(|n| {
            options.sack.push(SeqNum(n), SeqNum(n + 1));
        });
        let mut accurate = Accurate::new();
        accurate.arrived(Ecn::Ce, 1, false);
        assert_eq!(accurate.option(&options).is_some(), fits, "{blocks}");
        let later = accurate.option(&Options::default());
        assert_eq!(later.is_some(), !fits, "told later where there was no room");
    }
}

/// §3.2.2.1, table 4: the last acknowledgment of the handshake says how the SYN-ACK arrived, which left without ECN.
#[test]
fn the_end_of_the_handshake() {
    for (field, is_pure, marked, mangled, packets) in [
        (0b010, true, false, false, 5),
        (0b110, true, true, true, 6),
        (0b100, true, false, true, 5),
        (0b011, true, false, true, 5),
        (0b000, true, false, true, 5),
        (0b101, true, false, false, 5),
        (0b110, false, false, false, 5),
        (0b000, false, false, false, 5),
    ] {
        let mut accurate = Accurate::new();
        assert_eq!(accurate.handshake_done(ace(field), is_pure), marked);
        assert_eq!(accurate.is_mangled(), mangled, "{field:03b}");
        assert_eq!(accurate.heard(), (packets, 0));
        assert_eq!(accurate.deaf, is_pure && field == 0);
    }
    let mut accurate = Accurate::new();
    accurate.deaf = true;
    assert!(
        !accurate.handshake_done(ace(0b110), true),
        "a peer that clears flags is not heard"
    );
    for (ecn, packets) in [(Ecn::Ce, 6), (Ecn::Ect0, 5), (Ecn::NotEct, 5)] {
        let mut accurate = Accurate::new();
        accurate.syn_ack_arrived(ecn);
        assert!(accurate.answers_syn_ack && accurate.packets == packets);
        // A run of marks goes on from there.
        assert_eq!(accurate.arrived(Ecn::Ce, 9, false), ecn != Ecn::Ce);
    }
}

/// §3.2.2.5.2 and appendix A.2, without the option: packets newly marked, by three bits, are bytes of full segments, as many as were delivered.
#[test]
fn marked_packets_are_bytes() {
    for (usual, field, delivered, bytes, heard) in [
        (0, 5, 1_000, 0, 5),
        (0, 6, 1_000, 1_000, 6),
        (0, 7, 1_500, 1_500, 7),
        (0, 7, 500, 1_000, 7),
        (0, 4, 7_000, 7_000, 12),
        // Eight packets at once: all, if that is not usual.
        (64, 5, 8_000, 8_000, 13),
        (64, 5, 7_000, 0, 5),
        (64, 5, 7_001, 7_001, 13),
        (0, 5, 8_000, 0, 5),
        (0, 6, 10_000, 9_000, 14),
        (0, 7, 9_000, 2_000, 7),
        (0, 0, 4_000, 3_000, 8),
    ] {
        let mut accurate = Accurate::new();
        (accurate.per_ack, accurate.heard) = (usual, true);
        let found = accurate.feedback(ace(field), None, delivered, MSS);
        assert_eq!(
            (found, accurate.heard()),
            (bytes, (heard, 0)),
            "{field} {delivered}"
        );
        assert_eq!(accurate.expected(), ace(u16::from(heard)));
        assert!(!accurate.is_mangled());
    }
    // §3.2.2.4: a zero at once is cleared; later it is a number.
    let mut accurate = Accurate::new();
    assert_eq!(accurate.expected(), Flags::SYN);
    assert_eq!(accurate.feedback(ace(0), None, 4_000, MSS), 0);
    assert!(accurate.is_mangled());
    assert_eq!(accurate.feedback(ace(1), None, 4_000, MSS), 0, "for good");
    let mut accurate = Accurate::new();
    assert_eq!(accurate.feedback(ace(5), None, 4_000, MSS), 0);
    assert_eq!(accurate.feedback(ace(0), None, 4_000, MSS), 3_000);
}

/// §3.2.3.1: with the option bytes are exact, and complete the three bits.
#[test]
fn marked_bytes_are_exact() {
    for (field, ce, delivered, bytes, heard, mangled) in [
        (6, 300, 1_000, 300, (6, 300), false),
        (5, 0, 1_000, 0, (5, 0), false),
        // A marked packet without text.
        (6, 0, 1_000, 1, (6, 0), false),
        // Nine segments' worth of bytes: the counter came round.
        (6, 8_001, 20_000, 8_001, (14, 8_001), false),
        (6, 8_000, 20_000, 8_000, (6, 8_000), false),
        // §3.2.3.2.5: bytes without a packet, unless eight may have been marked.
        (5, 300, 7_000, 300, (5, 300), true),
        (5, 300, 7_001, 300, (5, 300), false),
        (5, 7_001, 9_000, 7_001, (13, 7_001), false),
        // More than half the range back: another segment's, the flags count.
        (6, 0x7f_ffff, 1_000, 0x7f_ffff, (1, 0x7f_ffff), false),
        (6, 0x80_0000, 1_000, 1_000, (6, 0), false),
    ] {
        let mut accurate = Accurate::new();
        accurate.heard = true;
        let found = accurate.feedback(ace(field), told(ce), delivered, MSS);
        let packets = match ce {
            // 8,389 segments, of which the counter has the low eight bits: 5 + 1 + 8,384.
            0x7f_ffff => [(6_u32 + 8_384).to_le_bytes()[0], 0],
            _ => [heard.0, 0],
        };
        assert_eq!(
            (found, accurate.heard()),
            (bytes, (packets[0], heard.1)),
            "{field} {ce}"
        );
        assert_eq!(accurate.is_mangled(), mangled, "{field} {ce}");
    }
    // The counter has 24 bits.
    let mut accurate = Accurate::new();
    (accurate.heard, accurate.heard_bytes) = (true, 0xff_fff0);
    assert_eq!(accurate.feedback(ace(6), told(0x10), 1_000, MSS), 0x20);
    assert_eq!(accurate.heard().1, 0x100_0010);
}

/// §3.2.3.2.4: counters begin with one; a zero in the first option comes from a station that clears fields, and the option is not believed.
#[test]
fn a_cleared_option_is_not_believed() {
    let option = |first, third, len| {
        let fields = [first, 300, third];
        Some(AccEcn {
            ect1_first: false,
            len,
            fields,
        })
    };
    for (option, is_first, believed) in [
        (option(1, 1, 3), true, true),
        (option(0, 1, 3), true, false),
        (option(1, 0, 3), true, false),
        (option(0, 0, 3), true, false),
        (option(1, 0, 2), true, true),
        (option(0, 0, 3), false, true),
    ] {
        let mut accurate = Accurate::new();
        accurate.heard = !is_first;
        let found = accurate.feedback(ace(6), option, 1_000, MSS);
        assert_eq!(found, if believed { 300 } else { 1_000 }, "{option:?}");
        let again = accurate.feedback(ace(7), told(400), 1_000, MSS);
        assert_eq!(again, if believed { 100 } else { 1_000 });
    }
}

/// The mean of packets that an acknowledgment reports, in 64ths, of which each new one is a 64th (Linux).
#[test]
fn average_packets_of_an_acknowledgment() {
    let mut accurate = Accurate::new();
    for (packets, mean) in [(1, 64), (65, 128), (2, 128), (0, 126), (u32::MAX, u16::MAX)] {
        accurate.note_packets(packets);
        assert_eq!(accurate.per_ack, mean, "{packets}");
    }
}
