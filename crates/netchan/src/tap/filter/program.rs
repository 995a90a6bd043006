//! Programs of the classic filter: how their instructions are written, and the check that each passes before it is run.

/// Most instructions (Linux's `BPF_MAXINSNS`).
pub const INSTRUCTIONS_MAX: usize = 4096;

/// Words of scratch memory (`BPF_MEMWORDS`).
pub(super) const SCRATCH: usize = 16;

/// An instruction as `struct bpf_insn` has it, and as `tcpdump -ddd` prints it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Instruction {
    /// Operation.
    pub code: u16,
    /// How many instructions to skip where a comparison holds.
    pub jt: u8,
    /// And where it does not.
    pub jf: u8,
    /// Its constant.
    pub k: u32,
}

/// Why a program is not run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadProgram {
    /// Of the instruction, from 0.
    pub at: usize,
    /// What is wrong with it.
    pub why: &'static str,
}

impl std::fmt::Display for BadProgram {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "instruction {}: {}", self.at, self.why)
    }
}

impl std::error::Error for BadProgram {}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Width {
    Byte,
    Half,
    Word,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Operand {
    Constant,
    X,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Compare {
    Equal,
    Greater,
    GreaterOrEqual,
    AnyBit,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Arithmetic {
    Add,
    Subtract,
    Multiply,
    Divide,
    Modulo,
    Or,
    And,
    Xor,
    ShiftLeft,
    ShiftRight,
}

/// A decoded instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    LoadAt(Width, u32),
    LoadAtX(Width, u32),
    LoadConstant(u32),
    LoadLength,
    LoadScratch(u8),
    LoadXConstant(u32),
    LoadXLength,
    LoadXScratch(u8),
    /// Four times the low half of a byte: the length of an IPv4 header.
    LoadXHeader(u32),
    Store(u8),
    StoreX(u8),
    Compute(Arithmetic, Operand, u32),
    Negate,
    Jump(u32),
    Branch {
        compare: Compare,
        operand: Operand,
        k: u32,
        yes: u8,
        no: u8,
    },
    ReturnConstant(u32),
    ReturnA,
    AToX,
    XToA,
}

/// Decodes a program, and refuses what could leave its code, its scratch memory or its time: jumps lead forwards only, and the last instruction returns.
///
/// # Errors
/// The first instruction that is wrong.
pub(super) fn check(program: &[Instruction]) -> Result<Box<[Step]>, BadProgram> {
    let whole = |why| BadProgram { at: 0, why };
    if program.is_empty() || program.len() > INSTRUCTIONS_MAX {
        return Err(whole("a program has 1 to 4096 instructions"));
    }
    let step = |(at, instruction): (usize, &Instruction)| {
        let bad = |why| BadProgram { at, why };
        let step = decode(*instruction).map_err(bad)?;
        let behind = program.len() - at - 1;
        let farthest = match step {
            Step::Jump(by) => by as usize,
            Step::Branch { yes, no, .. } => usize::from(yes.max(no)),
            _ => 0,
        };
        if matches!(step, Step::Jump(_) | Step::Branch { .. }) && farthest >= behind {
            return Err(bad("it jumps behind the end"));
        }
        Ok(step)
    };
    let steps = program.iter().enumerate().map(step);
    let steps: Box<[Step]> = steps.collect::<Result<_, _>>()?;
    match steps.last() {
        Some(Step::ReturnConstant(_) | Step::ReturnA) => Ok(steps),
        _ => Err(BadProgram {
            at: program.len() - 1,
            why: "the last one does not return",
        }),
    }
}

const UNKNOWN: &str = "unknown operation";

/// The class, mode, size and source of an instruction stand in bits of its code (bpf(4)).
fn decode(instruction: Instruction) -> Result<Step, &'static str> {
    let Instruction { code, jt, jf, k } = instruction;
    let cell = || match u8::try_from(k) {
        Ok(cell) if usize::from(cell) < SCRATCH => Ok(cell),
        _ => Err("scratch memory has 16 words"),
    };
    let width = || match code & 0x18 {
        0x00 => Ok(Width::Word),
        0x08 => Ok(Width::Half),
        0x10 => Ok(Width::Byte),
        _ => Err(UNKNOWN),
    };
    Ok(match (code & 0x07, code & !0x07) {
        (0, 0x00) => Step::LoadConstant(k),
        (0, 0x60) => Step::LoadScratch(cell()?),
        (0, 0x80) => Step::LoadLength,
        (0, 0x20 | 0x28 | 0x30) => Step::LoadAt(width()?, k),
        (0, 0x40 | 0x48 | 0x50) => Step::LoadAtX(width()?, k),
        (1, 0x00) => Step::LoadXConstant(k),
        (1, 0x60) => Step::LoadXScratch(cell()?),
        (1, 0x80) => Step::LoadXLength,
        (1, 0xb0) => Step::LoadXHeader(k),
        (2, 0x00) => Step::Store(cell()?),
        (3, 0x00) => Step::StoreX(cell()?),
        (4, 0x80) => Step::Negate,
        (4, op) => arithmetic(op, k)?,
        (5, 0x00) => Step::Jump(k),
        (5, op) => branch(op, k, jt, jf)?,
        (6, 0x00) => Step::ReturnConstant(k),
        (6, 0x10) => Step::ReturnA,
        (7, 0x00) => Step::AToX,
        (7, 0x80) => Step::XToA,
        _ => return Err(UNKNOWN),
    })
}

const fn operand(op: u16) -> Operand {
    if op & 0x08 == 0 {
        Operand::Constant
    } else {
        Operand::X
    }
}

fn arithmetic(op: u16, k: u32) -> Result<Step, &'static str> {
    let operand = operand(op);
    let what = match op & !0x08 {
        0x00 => Arithmetic::Add,
        0x10 => Arithmetic::Subtract,
        0x20 => Arithmetic::Multiply,
        0x30 => Arithmetic::Divide,
        0x40 => Arithmetic::Or,
        0x50 => Arithmetic::And,
        0x60 => Arithmetic::ShiftLeft,
        0x70 => Arithmetic::ShiftRight,
        0x90 => Arithmetic::Modulo,
        0xa0 => Arithmetic::Xor,
        _ => return Err(UNKNOWN),
    };
    let divides = matches!(what, Arithmetic::Divide | Arithmetic::Modulo);
    if divides && operand == Operand::Constant && k == 0 {
        return Err("it divides by zero");
    }
    Ok(Step::Compute(what, operand, k))
}

fn branch(op: u16, k: u32, yes: u8, no: u8) -> Result<Step, &'static str> {
    let compare = match op & !0x08 {
        0x10 => Compare::Equal,
        0x20 => Compare::Greater,
        0x30 => Compare::GreaterOrEqual,
        0x40 => Compare::AnyBit,
        _ => return Err(UNKNOWN),
    };
    Ok(Step::Branch {
        compare,
        operand: operand(op),
        k,
        yes,
        no,
    })
}
