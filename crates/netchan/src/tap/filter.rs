//! Filters: programs of the classic BSD packet filter, checked once and then run without a bound being left to trust.
//!
//! Source: McCanne and Jacobson, "The BSD Packet Filter" (1993), and bpf(4). What tcpdump's language says is compiled to such a program by libpcap,
//! outside the stack. A program comes from another process: [`Filter::new`] refuses what could leave its code, its scratch memory or its time.
//! Jumps lead forwards only, so a program ends after as many steps as it has instructions.

#[cfg(test)]
mod tests;

/// Most instructions (Linux's `BPF_MAXINSNS`).
pub const INSTRUCTIONS_MAX: usize = 4096;

/// Words of scratch memory (`BPF_MEMWORDS`).
const SCRATCH: usize = 16;

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

/// A checked program. The default one lets every packet through.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    /// Empty: everything passes.
    steps: Box<[Step]>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Width {
    Byte,
    Half,
    Word,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operand {
    Constant,
    X,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Compare {
    Equal,
    Greater,
    GreaterOrEqual,
    AnyBit,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Arithmetic {
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
enum Step {
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

impl Filter {
    /// Checks a program.
    ///
    /// # Errors
    /// The first instruction that is wrong.
    pub fn new(program: &[Instruction]) -> Result<Self, BadProgram> {
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
            Some(Step::ReturnConstant(_) | Step::ReturnA) => Ok(Self { steps }),
            _ => Err(BadProgram {
                at: program.len() - 1,
                why: "the last one does not return",
            }),
        }
    }

    /// How many instructions it has; 0: everything passes.
    pub fn len(&self) -> usize {
        self.steps.len()
    }

    /// Whether everything passes.
    pub fn is_empty(&self) -> bool {
        self.steps.is_empty()
    }

    /// How many bytes of `packet`, which is `length` bytes long on the link, are wanted; 0: it does not pass. A load beyond its bytes ends the program with 0.
    #[inline]
    pub fn run(&self, packet: &[u8], length: u32) -> u32 {
        if self.steps.is_empty() {
            return u32::MAX;
        }
        self.interpret(packet, length).unwrap_or(0)
    }

    /// `None`: a load went beyond the packet, or a division was by zero.
    fn interpret(&self, packet: &[u8], length: u32) -> Option<u32> {
        let (mut a, mut x) = (0_u32, 0_u32);
        let mut scratch = [0_u32; SCRATCH];
        let mut rest = self.steps.iter();
        // Every jump skips, so that what is left only gets shorter.
        while let Some(step) = rest.next() {
            match *step {
                Step::LoadAt(width, k) => a = load(packet, width, k)?,
                Step::LoadAtX(width, k) => a = load(packet, width, x.checked_add(k)?)?,
                Step::LoadConstant(k) => a = k,
                Step::LoadLength => a = length,
                Step::LoadScratch(i) => a = *scratch.get(usize::from(i))?,
                Step::LoadXConstant(k) => x = k,
                Step::LoadXLength => x = length,
                Step::LoadXScratch(i) => x = *scratch.get(usize::from(i))?,
                Step::LoadXHeader(k) => x = (load(packet, Width::Byte, k)? & 0x0f) << 2,
                Step::Store(i) => *scratch.get_mut(usize::from(i))? = a,
                Step::StoreX(i) => *scratch.get_mut(usize::from(i))? = x,
                Step::Compute(what, operand, k) => {
                    a = compute(what, a, if operand == Operand::X { x } else { k })?;
                }
                Step::Negate => a = a.wrapping_neg(),
                Step::Jump(by) => skip(&mut rest, by as usize),
                Step::Branch {
                    compare,
                    operand,
                    k,
                    yes,
                    no,
                } => {
                    let other = if operand == Operand::X { x } else { k };
                    let holds = match compare {
                        Compare::Equal => a == other,
                        Compare::Greater => a > other,
                        Compare::GreaterOrEqual => a >= other,
                        Compare::AnyBit => a & other != 0,
                    };
                    skip(&mut rest, usize::from(if holds { yes } else { no }));
                }
                Step::ReturnConstant(k) => return Some(k),
                Step::ReturnA => return Some(a),
                Step::AToX => x = a,
                Step::XToA => a = x,
            }
        }
        None // not reached: the last one returns
    }
}

#[inline(always)]
fn skip(rest: &mut std::slice::Iter<'_, Step>, by: usize) {
    *rest = rest.as_slice().get(by..).unwrap_or_default().iter();
}

#[inline(always)]
fn load(packet: &[u8], width: Width, at: u32) -> Option<u32> {
    let bytes = packet.get(at as usize..)?;
    Some(match width {
        Width::Byte => u32::from(*bytes.first()?),
        Width::Half => u32::from(u16::from_be_bytes(*bytes.first_chunk()?)),
        Width::Word => u32::from_be_bytes(*bytes.first_chunk()?),
    })
}

/// `None`: a division by zero.
#[inline]
fn compute(what: Arithmetic, a: u32, b: u32) -> Option<u32> {
    Some(match what {
        Arithmetic::Add => a.wrapping_add(b),
        Arithmetic::Subtract => a.wrapping_sub(b),
        Arithmetic::Multiply => a.wrapping_mul(b),
        Arithmetic::Divide => a.checked_div(b)?,
        Arithmetic::Modulo => a.checked_rem(b)?,
        Arithmetic::Or => a | b,
        Arithmetic::And => a & b,
        Arithmetic::Xor => a ^ b,
        // As libpcap: by 32 bits and more, nothing is left.
        Arithmetic::ShiftLeft => a.checked_shl(b).unwrap_or(0),
        Arithmetic::ShiftRight => a.checked_shr(b).unwrap_or(0),
    })
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
