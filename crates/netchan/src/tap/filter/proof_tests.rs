//! Code that does not keep to its memory is refused, wherever it came from.

use rbpf::ebpf::{self, Insn};

use super::*;
use crate::tap::filter::{
    program::{Instruction, check as checked},
    translation::translate,
};

const fn insn(opc: u8, dst: u8, src: u8, off: i16, imm: i32) -> Insn {
    Insn {
        opc,
        dst,
        src,
        off,
        imm,
    }
}

/// Registers 1 and 2 have the packet and how many bytes are there, 0 and 4 zero.
fn begin() -> Vec<Insn> {
    vec![
        insn(ebpf::LD_W_REG, 2, 1, THERE, 0),
        insn(ebpf::LD_DW_REG, 1, 1, PACKET, 0),
        insn(ebpf::MOV32_IMM, 0, 0, 0, 0),
        insn(ebpf::MOV32_IMM, 4, 0, 0, 0),
    ]
}

const EXIT: Insn = insn(ebpf::EXIT, 0, 0, 0, 0);

#[test]
fn code_that_was_checked_is_shown() {
    let code = [
        insn(ebpf::JLT_IMM, 2, 0, 1, 14),
        insn(ebpf::LD_H_REG, 0, 1, 12, 0),
        EXIT,
    ];
    assert_eq!(check(&[&begin()[..], &code].concat()), Ok(()));
    let code = [
        insn(ebpf::MOV32_IMM, 5, 0, 0, 4),
        insn(ebpf::ADD64_REG, 5, 4, 0, 0),
        insn(ebpf::JGT_REG, 5, 2, 2, 0),
        insn(ebpf::ADD64_REG, 5, 1, 0, 0),
        insn(ebpf::LD_W_REG, 0, 5, -4, 0),
        EXIT,
    ];
    assert_eq!(check(&[&begin()[..], &code].concat()), Ok(()));
}

/// Each is refused at its last instruction but one.
#[test]
fn code_that_could_leave_its_memory_is_refused() {
    let bounded = [
        insn(ebpf::MOV32_IMM, 5, 0, 0, 2),
        insn(ebpf::ADD64_REG, 5, 4, 0, 0),
        insn(ebpf::JGT_REG, 5, 2, 2, 0),
        insn(ebpf::ADD64_REG, 5, 1, 0, 0),
    ];
    let with = |before: &[Insn], last: Insn| [before, &[last]].concat();
    let cases: Vec<Vec<Insn>> = vec![
        // Unchecked, checked for less, before the packet, too wide.
        vec![insn(ebpf::LD_B_REG, 0, 1, 0, 0)],
        vec![
            insn(ebpf::JLT_IMM, 2, 0, 1, 13),
            insn(ebpf::LD_H_REG, 0, 1, 12, 0),
        ],
        vec![
            insn(ebpf::JLT_IMM, 2, 0, 1, 13),
            insn(ebpf::LD_B_REG, 0, 1, -1, 0),
        ],
        vec![
            insn(ebpf::JLT_IMM, 2, 0, 1, 13),
            insn(ebpf::LD_DW_REG, 0, 1, 0, 0),
        ],
        // Where the comparison holds, and where two ways meet of which one was not compared.
        vec![
            insn(ebpf::JLT_IMM, 2, 0, 0, 14),
            insn(ebpf::LD_B_REG, 0, 1, 0, 0),
        ],
        vec![
            insn(ebpf::JEQ_IMM32, 0, 0, 1, 0),
            insn(ebpf::JLT_IMM, 2, 0, 1, 14),
            insn(ebpf::LD_B_REG, 0, 1, 0, 0),
        ],
        // By register: not compared, further back than it was moved, at its end, compared and then moved on.
        vec![
            insn(ebpf::MOV32_IMM, 5, 0, 0, 2),
            insn(ebpf::ADD64_REG, 5, 1, 0, 0),
        ],
        with(&bounded, insn(ebpf::LD_W_REG, 0, 5, -4, 0)),
        with(&bounded, insn(ebpf::LD_H_REG, 0, 5, -1, 0)),
        with(&bounded, insn(ebpf::LD_B_REG, 0, 5, 0, 0)),
        vec![
            insn(ebpf::MOV32_IMM, 5, 0, 0, 2),
            insn(ebpf::JGT_REG, 5, 2, 1, 0),
            insn(ebpf::ADD64_REG, 5, 4, 0, 0),
        ],
        with(&bounded, insn(ebpf::ADD64_REG, 5, 4, 0, 0)),
        // Addresses are no numbers.
        vec![insn(ebpf::ADD32_IMM, 1, 0, 0, 1)],
        vec![insn(ebpf::MOV64_REG, 0, 1, 0, 0)],
        vec![insn(ebpf::ADD32_REG, 0, 1, 0, 0)],
        vec![insn(ebpf::JEQ_IMM32, 1, 0, 0, 0)],
        vec![insn(ebpf::ADD32_IMM, 5, 0, 0, 1)], // never written
        // Scratch memory, and nothing else is written.
        vec![insn(ebpf::LD_W_REG, 0, 10, 0, 0)],
        vec![insn(ebpf::LD_W_REG, 0, 10, -68, 0)],
        vec![insn(ebpf::LD_W_REG, 0, 10, -2, 0)],
        vec![insn(ebpf::ST_W_REG, 10, 1, -4, 0)],
        vec![insn(ebpf::ST_W_REG, 1, 0, 0, 0)],
        vec![insn(ebpf::MOV32_IMM, 10, 0, 0, 0)],
        // Back, and beyond the end.
        vec![insn(ebpf::JA, 0, 0, -1, 0)],
        vec![insn(ebpf::JA, 0, 0, 1, 0)],
        // What no filter has.
        vec![insn(ebpf::CALL, 0, 0, 0, 1)],
        vec![insn(ebpf::MOV32_IMM, 11, 0, 0, 0)],
        vec![insn(ebpf::LD_ABS_B, 0, 0, 0, 0)],
        vec![insn(ebpf::ST_W_XADD, 10, 0, -4, 0)],
        vec![insn(ebpf::LE, 0, 0, 0, 16)],
        vec![insn(ebpf::BE, 0, 0, 0, 64)],
    ];
    for code in cases {
        let mut whole = begin();
        whole.extend(code);
        let at = whole.len() - 1;
        whole.push(EXIT);
        assert_eq!(check(&whole), Err(Unproven(at)), "{whole:?}");
    }
}

#[test]
fn code_without_an_end_or_a_number_is_refused() {
    assert_eq!(check(&[]), Err(Unproven(0)));
    assert_eq!(check(&[EXIT]), Err(Unproven(0)), "nothing was written");
    let address = [insn(ebpf::LD_DW_REG, 0, 1, PACKET, 0), EXIT];
    assert_eq!(check(&address), Err(Unproven(1)));
    let open = [insn(ebpf::MOV32_IMM, 0, 0, 0, 0)];
    assert_eq!(check(&open), Err(Unproven(0)), "it runs on");
}

/// What is taken away from a translation is missed: each comparison with how many bytes are there.
#[test]
fn each_check_of_a_translation_is_needed() {
    let instruction = |code, k| Instruction {
        code,
        k,
        ..Instruction::default()
    };
    let program = [
        instruction(0x28, 12),
        instruction(0xb1, 14),
        instruction(0x48, 16),
        instruction(0x20, 40_000),
        instruction(0x16, 0),
    ];
    let code = translate(&checked(&program).expect("a program")).expect("short");
    assert_eq!(check(&code), Ok(()));
    let is_check = |insn: &&Insn| matches!(insn.opc, ebpf::JLT_IMM | ebpf::JGT_REG);
    assert_eq!(code.iter().filter(is_check).count(), 4);
    for at in 0..code.len() {
        if is_check(&&code[at]) {
            let mut less = code.clone();
            less[at] = insn(ebpf::MOV32_IMM, 9, 0, 0, 0);
            assert!(check(&less).is_err(), "without {at}");
        }
    }
}
