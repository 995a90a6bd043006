//! Programs for filters and packets for them, drawn from numbers: for tests of the library and of the program `netchan`, and for the fuzzer.

#![allow(dead_code)] // each takes its part

use netchan::tap::{Filter, Instruction};

/// A number below the one that is given, which is not 0.
pub type Below<'a> = &'a mut dyn FnMut(usize) -> usize;

/// Numbers that are the same each time, from a seed.
pub fn numbers(mut state: u64) -> impl FnMut(usize) -> usize {
    move |n| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        usize::try_from(state >> 33).expect("31 bits") % n
    }
}

/// `NETCHAN_SEED`, or 1: printed, so that a failure can be seen again.
pub fn seed() -> u64 {
    let given = std::env::var("NETCHAN_SEED");
    let seed = given.map_or(1, |seed| seed.parse().expect("NETCHAN_SEED is a number"));
    println!("NETCHAN_SEED={seed}");
    seed
}

/// `NETCHAN_PACKETS`: how many packets a test tries; `usual` where it is not set.
pub fn packets_or(usual: usize) -> usize {
    let given = std::env::var("NETCHAN_PACKETS");
    given.map_or(usual, |n| n.parse().expect("NETCHAN_PACKETS is a number"))
}

/// A filter that is interpreted, and the same as machine code where the processor is one for it.
pub fn both(program: &[Instruction]) -> [Filter; 2] {
    let filter = Filter::new(program).expect("a program");
    let compiled = filter.clone().compiled();
    let is_code = compiled.engine() == "compiled";
    assert_eq!(is_code, cfg!(target_arch = "x86_64"), "{compiled:?}");
    [filter, compiled]
}

/// What both say.
pub fn said(both: &[Filter; 2], packet: &[u8], length: u32) -> u32 {
    let [interpreted, compiled] = both.each_ref().map(|filter| filter.run(packet, length));
    assert_eq!(interpreted, compiled, "{both:?} {packet:?} {length}");
    interpreted
}

/// Loads of a packet's bytes: by a constant, by X, an IPv4 header's length.
const LOADS: [u16; 7] = [0x20, 0x28, 0x30, 0x40, 0x48, 0x50, 0xb1];
/// Operations with a constant; those with X have 8 more.
const COMPUTES: [u16; 10] = [0x04, 0x14, 0x24, 0x34, 0x44, 0x54, 0x64, 0x74, 0x94, 0xa4];
/// Comparisons with a constant; those with X have 8 more.
const COMPARES: [u16; 4] = [0x15, 0x25, 0x35, 0x45];
/// Constants and lengths into A and X, copies of the two, the negative.
const MOVES: [u16; 7] = [0x00, 0x01, 0x80, 0x81, 0x07, 0x87, 0x84];
/// Words of scratch memory: from and to A, from and to X.
const SCRATCH: [u16; 4] = [0x60, 0x02, 0x61, 0x03];
/// Words that are used. Each is written first: what libpcap finds in others is not defined.
const CELLS: usize = 4;

/// A program that passes the check, of at most 50 instructions.
pub fn program(below: Below<'_>) -> Vec<Instruction> {
    let mut program = Vec::new();
    let mut push = |code: u16, jt: usize, jf: usize, k: u32| {
        let [jt, jf] = [jt, jf].map(|by| u8::try_from(by).expect("a few"));
        program.push(Instruction { code, jt, jf, k });
    };
    for cell in 0..CELLS {
        push(0x00, 0, 0, constant(below));
        push(0x02, 0, 0, u32::try_from(cell).expect("a few"));
    }
    let steps = 1 + below(40);
    for step in 0..steps {
        let ahead = (steps - step).min(6); // the instruction that returns stands behind all
        let with_x = 8 * u16::from(below(2) == 0);
        match below(16) {
            0..5 => push(LOADS[below(7)], 0, 0, offset(below)),
            5..8 => {
                let code = COMPUTES[below(10)] + with_x;
                let k = match code {
                    0x34 | 0x94 => constant(below).max(1),
                    // By more libpcap shifts as the C compiler likes.
                    0x64 | 0x74 => constant(below) % 32,
                    _ => constant(below),
                };
                push(code, 0, 0, k);
            }
            8..11 => {
                let code = COMPARES[below(4)] + with_x;
                push(code, below(ahead), below(ahead), constant(below));
            }
            11..13 => push(MOVES[below(7)], 0, 0, constant(below)),
            13..15 => {
                let cell = u32::try_from(below(CELLS)).expect("a few");
                push(SCRATCH[below(4)], 0, 0, cell);
            }
            _ if below(8) == 0 => push(0x16, 0, 0, 0),
            _ => push(0x05, 0, 0, u32::try_from(below(ahead)).expect("a few")),
        }
    }
    match below(4) {
        0 => push(0x06, 0, 0, constant(below)),
        _ => push(0x16, 0, 0, 0),
    }
    program
}

/// Where a load begins: mostly in the packet.
fn offset(below: Below<'_>) -> u32 {
    match below(64) {
        0 => constant(below),
        1 => 32_760 + u32::try_from(below(16)).expect("small"),
        _ => u32::try_from(below(60)).expect("small"),
    }
}

/// Small, of one byte or two, around the ends of what a word can hold, or anything.
fn constant(below: Below<'_>) -> u32 {
    const EDGES: [u32; 3] = [0, 1 << 31, 1 << 16];
    let small = |n: usize| u32::try_from(n).expect("31 bits");
    match below(8) {
        0..4 => small(below(34)),
        4 => small(below(1 << 16)),
        5 => EDGES[below(3)]
            .wrapping_add(small(below(7)))
            .wrapping_sub(3),
        6 => [6, 17, 0x0800, 0x86dd][below(4)],
        _ => small(below(1 << 31)) << below(2),
    }
}

/// A packet that some filter is about, mutated a little and cut at times.
pub fn packet(below: Below<'_>) -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2];
    if below(6) == 0 {
        frame.extend([0x81, 0, 0, 5]);
    }
    let addresses = [[10, 0, 0, 1], [10, 0, 0, 2], [192, 168, 1, 1], [1, 2, 3, 4]];
    let protocol = [6, 17, 1, 47][below(4)];
    match below(8) {
        0 => frame.extend([8, 6, 0, 1, 8, 0, 6, 4, 0, 1]),
        1 | 2 => {
            frame.extend([0x86, 0xdd, 0x60, 0, 0, 0, 0, 40]);
            frame.extend([[6, 17, 58, 44][below(4)], 64]);
            frame.extend([0; 32]);
        }
        _ => {
            let words = 5 + below(3);
            let head = 0x40 | u8::try_from(words).expect("small");
            frame.extend([8, 0, head, 0, 0, 60, 0, 0]);
            let fragment = [[0, 0x20, 0x40][below(3)], [0, 0, 7][below(3)]];
            frame.extend(fragment);
            frame.extend([64, protocol, 0, 0]);
            frame.extend(addresses[below(4)]);
            frame.extend(addresses[below(4)]);
            frame.extend(vec![1; (words - 5) * 4]);
        }
    }
    for _ in 0..2 {
        let port = [80_u16, 53, 1500, 443][below(4)];
        frame.extend(port.to_be_bytes());
    }
    let flags = [0x02, 0x10, 0x11, 0x18][below(4)];
    frame.extend([0, 0, 0, 1, 0, 0, 0, 2, 0x50, flags, 1, 0, 0, 0, 0, 0]);
    frame.extend(vec![0xaa; below(120)]);
    for _ in 0..below(4) {
        let at = below(frame.len());
        frame[at] = u8::try_from(below(256)).expect("a byte");
    }
    if below(4) == 0 {
        frame.truncate(below(frame.len()) + 1);
    }
    frame
}
