//! Programs that are refused, and what good ones say, interpreted and as machine code. Against libpcap: the program `netchan`'s tests.

use super::*;

fn i(code: u16, jt: u8, jf: u8, k: u32) -> Instruction {
    Instruction { code, jt, jf, k }
}

/// What both ways of running a program say.
fn said(program: &[Instruction], packet: &[u8], length: u32) -> u32 {
    let filter = Filter::new(program).expect("a program");
    let compiled = filter.clone().compiled();
    let ways = [&filter, &compiled].map(|filter| filter.run(packet, length));
    assert_eq!(ways[0], ways[1], "{compiled:?} {packet:?} {length}");
    ways[0]
}

/// `tcpdump -ddd 'ip and tcp dst port 80'` on Ethernet, without the fragment's test.
fn port_80() -> Vec<Instruction> {
    vec![
        i(0x28, 0, 0, 12),
        i(0x15, 0, 7, 0x800),
        i(0x30, 0, 0, 23),
        i(0x15, 0, 5, 6),
        i(0xb1, 0, 0, 14),
        i(0x48, 0, 0, 16),
        i(0x15, 0, 2, 80),
        i(0x06, 0, 0, 0x40000),
        i(0x06, 0, 0, 0x40000),
        i(0x06, 0, 0, 0),
    ]
}

fn frame(port: u16, ihl: usize) -> Vec<u8> {
    let mut frame = vec![0; 14 + 4 * ihl + 20];
    frame[12..14].copy_from_slice(&[8, 0]);
    frame[14] = 0x40 | u8::try_from(ihl).unwrap();
    frame[23] = 6;
    let at = 14 + 4 * ihl + 2;
    frame[at..at + 2].copy_from_slice(&port.to_be_bytes());
    frame
}

#[test]
fn program_says_what_it_was_compiled_for() {
    let run = |frame: &[u8]| said(&port_80(), frame, u32::try_from(frame.len()).unwrap());
    assert_eq!(run(&frame(80, 5)), 0x40000);
    assert_eq!(run(&frame(80, 8)), 0x40000, "by the header's length");
    assert_eq!(run(&frame(81, 5)), 0);
    for cut in 0..36 {
        assert_eq!(run(&frame(80, 5)[..cut]), 0, "cut to {cut}");
    }
    assert_eq!(
        Filter::default().run(&[], 0),
        u32::MAX,
        "no program: everything"
    );
}

/// One instruction of each kind, with A = 7, X = 3, packet 01 02 03 04 05, length 1000: what is in A afterwards.
#[test]
fn each_operation_does_its_work() {
    let packet = [1, 2, 3, 4, 5];
    let cases = [
        (i(0x00, 0, 0, 9), 9),
        (i(0x20, 0, 0, 1), 0x0203_0405),
        (i(0x28, 0, 0, 3), 0x0405),
        (i(0x30, 0, 0, 4), 5),
        (i(0x50, 0, 0, 1), 5),
        (i(0x48, 0, 0, 0), 0x0405),
        (i(0x80, 0, 0, 0), 1000),
        (i(0x87, 0, 0, 0), 3),
        (i(0x84, 0, 0, 0), 7_u32.wrapping_neg()),
        (i(0x04, 0, 0, 1), 8),
        (i(0x0c, 0, 0, 0), 10),
        (i(0x14, 0, 0, 8), u32::MAX),
        (i(0x1c, 0, 0, 0), 4),
        (i(0x24, 0, 0, 3), 21),
        (i(0x34, 0, 0, 2), 3),
        (i(0x3c, 0, 0, 0), 2),
        (i(0x44, 0, 0, 8), 15),
        (i(0x54, 0, 0, 5), 5),
        (i(0x64, 0, 0, 1), 14),
        (i(0x64, 0, 0, 32), 0),
        (i(0x74, 0, 0, 1), 3),
        (i(0x7c, 0, 0, 0), 0),
        (i(0x94, 0, 0, 4), 3),
        (i(0xa4, 0, 0, 5), 2),
        (i(0x02, 0, 0, 15), 7),
    ];
    for (instruction, expected) in cases {
        let program = [i(0, 0, 0, 7), i(1, 0, 0, 3), instruction, i(0x16, 0, 0, 0)];
        assert_eq!(said(&program, &packet, 1000), expected, "{instruction:?}");
    }
}

/// Scratch memory, X from elsewhere, comparisons.
#[test]
fn registers_and_branches_do_theirs() {
    let packet = [1, 2, 3, 4, 5];
    // Scratch memory, and X from elsewhere.
    let program = [
        i(0, 0, 0, 7),
        i(2, 0, 0, 3),
        i(0x61, 0, 0, 3),
        i(3, 0, 0, 4),
        i(0x60, 0, 0, 4),
        i(7, 0, 0, 0),
        i(0x0c, 0, 0, 0),
        i(0x16, 0, 0, 0),
    ];
    assert_eq!(said(&program, &packet, 5), 14);
    let program = [i(0x81, 0, 0, 0), i(0x87, 0, 0, 0), i(0x16, 0, 0, 0)];
    assert_eq!(said(&program, &packet, 77), 77);
    // A division by an X of zero.
    let program = [i(0x3c, 0, 0, 0), i(0x06, 0, 0, 5)];
    assert_eq!(said(&program, &packet, 5), 0);
    for (code, yes) in [
        (0x15, false),
        (0x1d, false),
        (0x25, true),
        (0x2d, true),
        (0x35, true),
        (0x3d, true),
        (0x45, true),
        (0x4d, true),
    ] {
        let program = [
            i(0, 0, 0, 7),
            i(1, 0, 0, 3),
            i(code, 0, 1, 3),
            i(6, 0, 0, 1),
            i(6, 0, 0, 2),
        ];
        let result = said(&program, &packet, 5);
        assert_eq!(result, if yes { 1 } else { 2 }, "{code:#x}");
    }
}

#[test]
fn programs_that_could_leave_their_bounds_are_refused() {
    let end = i(6, 0, 0, 1);
    let cases: [(&[Instruction], usize, &str); 12] = [
        (&[], 0, "1 to 4096"),
        (&[i(0, 0, 0, 1)], 0, "does not return"),
        (&[i(5, 0, 0, 1), end], 0, "jumps"),
        (&[i(5, 0, 0, u32::MAX), end], 0, "jumps"),
        (&[i(0x15, 1, 0, 0), end], 0, "jumps"),
        (&[end, i(0x15, 0, 255, 0), end], 1, "jumps"),
        (&[i(0x60, 0, 0, 16), end], 0, "16 words"),
        (&[i(2, 0, 0, u32::MAX), end], 0, "16 words"),
        (&[i(0x34, 0, 0, 0), end], 0, "zero"),
        (&[i(0x94, 0, 0, 0), end], 0, "zero"),
        (&[i(0x38, 0, 0, 0), end], 0, "unknown"),
        (&[end, i(0xffff, 0, 0, 0), end], 1, "unknown"),
    ];
    for (program, at, why) in cases {
        let bad = Filter::new(program).expect_err(why);
        assert!(bad.at == at && bad.why.contains(why), "{bad}");
    }
    assert!(Filter::new(&vec![end; INSTRUCTIONS_MAX]).is_ok());
    assert!(Filter::new(&vec![end; INSTRUCTIONS_MAX + 1]).is_err());
}

/// Whatever passes the check ends, and touches nothing that is not its own.
#[test]
fn random_programs_end() {
    let mut state = 1_u64;
    let mut random = move || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        u32::try_from(state >> 33).unwrap()
    };
    let mut run = 0;
    for _ in 0..200_000 {
        let len = 1 + random() % 12;
        let mut program: Vec<Instruction> = (0..len)
            .map(|_| {
                let k = if random() % 2 == 0 {
                    random() % 20
                } else {
                    random()
                };
                let [jt, jf, ..] = (random() % 0x0404).to_le_bytes();
                i(u16::try_from(random() % 0xc0).unwrap(), jt, jf, k)
            })
            .collect();
        program.push(i(0x16, 0, 0, 0));
        if let Ok(filter) = Filter::new(&program) {
            run += 1;
            filter.run(&[0xff; 16][..(random() % 17) as usize], random());
        }
    }
    assert!(run > 1000, "{run}");
}

/// Machine code is there, stays with its filter's copies, and is no part of what a filter is.
#[test]
#[cfg(target_arch = "x86_64")]
fn filter_becomes_machine_code() {
    let filter = Filter::new(&port_80()).expect("a program");
    let compiled = filter.clone().compiled();
    assert_eq!(
        (filter.engine(), compiled.engine()),
        ("interpreted", "compiled")
    );
    assert_eq!(filter, compiled);
    let copy = compiled.clone().compiled();
    drop((filter, compiled));
    assert_eq!(copy.run(&frame(80, 5), 54), 0x40000);
    let all = Filter::default().compiled();
    assert_eq!((all.engine(), all.run(&[], 0)), ("none", u32::MAX));
}

/// Loads at the edges: of the packet, of what an instruction of eBPF can say, of 32 bits.
#[test]
fn loads_end_where_the_packet_does() {
    let packet: Vec<u8> = (0..40_000_u32).map(|n| n.to_le_bytes()[0] | 1).collect();
    let ends = [1_u32, 2, 4, 5, 32_767, 32_768, 32_769, 32_771, 40_000];
    for (code, bytes) in [(0x30, 1_u32), (0x28, 2), (0x20, 4), (0xb1, 1)] {
        let returns = [i(0x87, 0, 0, 0), i(0x16, 0, 0, 0)];
        let returns = &returns[usize::from(code != 0xb1)..];
        let one = |k, there: u32| {
            let program = [&[i(code, 0, 0, k)], returns].concat();
            said(&program, &packet[..there as usize], there)
        };
        for there in ends {
            for k in there.saturating_sub(5)..there + 2 {
                let fits = k + bytes <= there;
                assert_eq!(one(k, there) > 0, fits, "{code:#x} at {k} of {there}");
            }
        }
        for k in [i32::MAX.cast_unsigned(), u32::MAX - 3, u32::MAX] {
            assert_eq!(one(k, 40_000), 0, "{code:#x} at {k}");
        }
    }
    // By X, which may be as large as it likes.
    for (code, bytes) in [(0x50, 1_u32), (0x48, 2), (0x40, 4)] {
        for x in [0, 1, 39_990, 40_000, 1 << 31, u32::MAX - 5, u32::MAX] {
            for k in [0, 5, 9, 10, 1 << 31, u32::MAX - x, u32::MAX] {
                let program = [i(1, 0, 0, x), i(code, 0, 0, k), i(0x16, 0, 0, 0)];
                let end = u64::from(x) + u64::from(k) + u64::from(bytes);
                let result = said(&program, &packet, 9);
                assert_eq!(result > 0, end <= 40_000, "{code:#x} at {x} + {k}");
            }
        }
    }
}

/// The longest programs, made of what becomes most instructions.
#[test]
fn longest_programs_become_machine_code() {
    for instruction in [
        i(0x40, 0, 0, 0),
        i(0x3c, 0, 0, 0),
        i(0x6c, 0, 0, 0),
        i(0xb1, 0, 0, 40_000),
        i(0x4d, 0, 1, 0),
        i(0x4d, 1, 1, 0),
    ] {
        let mut program = vec![instruction; INSTRUCTIONS_MAX - 3];
        program.insert(0, i(1, 0, 0, 1));
        program.extend([i(0x87, 0, 0, 0), i(0x16, 0, 0, 0)]);
        let filter = Filter::new(&program).expect("a program").compiled();
        assert_eq!(filter.engine() == "compiled", cfg!(target_arch = "x86_64"));
        said(&program, &[1; 50_000], 1);
    }
}
