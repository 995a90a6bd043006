//! Fuzzes filters: a program that is not refused says the same as machine code and interpreted, of any packet.
#![no_main]

use libfuzzer_sys::fuzz_target;
use netchan::tap::{Filter, Instruction};

#[path = "../../crates/netchan/tests/filters/programs.rs"]
mod programs;

/// Instructions as they come; most programs are refused.
fn raw(bytes: &[u8], count: usize) -> (Vec<Instruction>, &[u8]) {
    let (program, packet) = bytes.split_at((8 * count).min(bytes.len()));
    let (program, _) = program.as_chunks();
    let instruction = |&[c0, c1, jt, jf, k0, k1, k2, k3]: &[u8; 8]| Instruction {
        code: u16::from_le_bytes([c0, c1]),
        jt,
        jf,
        k: u32::from_le_bytes([k0, k1, k2, k3]),
    };
    (program.iter().map(instruction).collect(), packet)
}

/// One that is not refused, from the same bytes.
fn drawn(mut bytes: &[u8]) -> (Vec<Instruction>, &[u8]) {
    let mut below = |n| {
        let number = bytes.split_first_chunk().map_or(0, |(first, rest)| {
            bytes = rest;
            u32::from_le_bytes(*first) as usize
        });
        number % n
    };
    let program = programs::program(&mut below);
    (program, bytes)
}

fuzz_target!(|bytes: &[u8]| {
    let Some((&first, bytes)) = bytes.split_first() else {
        return;
    };
    let (program, packet) = match first {
        0 => drawn(bytes),
        count => raw(bytes, usize::from(count)),
    };
    if Filter::new(&program).is_ok() {
        let filters = programs::both(&program);
        let length = u32::try_from(packet.len()).expect("short");
        programs::said(&filters, packet, length);
        programs::said(&filters, packet, length.wrapping_mul(0x0101_0101));
    }
});
