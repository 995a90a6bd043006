//! That eBPF code keeps to its memory: the bytes of the packet that are there, the fields of its context, its own scratch memory. It is asked before
//! machine code is made, and knows nothing of how the code came to be: what it cannot show is refused.
//!
//! Jumps lead forwards only, so one pass in order sees each instruction after all that lead to it. Of each register it keeps what is known on every
//! way there: a load by constant needs that so many bytes are there, one by register that the register was compared with how many are.

#[cfg(test)]
#[path = "proof_tests.rs"]
mod tests;

use rbpf::ebpf::{self, Insn};

use super::context::{LENGTH, PACKET, SCRATCH_BYTES, THERE};

/// Code that was not shown to keep to its memory; the number of the instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Unproven(pub usize);

const U32: u64 = u32::MAX as u64;
/// Of 32 bits, or so much that a sum of a few cannot overflow.
const MOST: u64 = 1 << 40;
/// The stack's pointer, which no instruction may write.
const STACK: usize = 10;

/// What a register is known to hold.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Value {
    /// Anything, or nothing yet.
    Unknown,
    /// The context's address.
    Context,
    /// The packet's.
    Packet,
    /// How many bytes of the packet are there.
    There,
    /// A number, at least and at most so large.
    Number(u64, u64),
    /// A number, at least so large, and no larger than how many bytes are there.
    Within(u64),
    /// The address behind so many bytes of the packet that are there, at least.
    Behind(u64),
    /// Behind scratch memory.
    Stack,
}

/// What is known where an instruction begins.
#[derive(Clone, PartialEq, Eq)]
struct Known {
    registers: [Value; 11],
    /// So many bytes are there, at least.
    there: u64,
}

impl Known {
    fn at_first() -> Self {
        let mut registers = [Value::Unknown; 11];
        registers[1] = Value::Context;
        registers[STACK] = Value::Stack;
        Self {
            registers,
            there: 0,
        }
    }

    /// What holds on both ways.
    fn meet(&mut self, other: &Self) {
        for (mine, theirs) in self.registers.iter_mut().zip(other.registers) {
            *mine = match (*mine, theirs) {
                (Value::Number(a, b), Value::Number(c, d)) => Value::Number(a.min(c), b.max(d)),
                (Value::Within(a), Value::Within(b)) => Value::Within(a.min(b)),
                (Value::Behind(a), Value::Behind(b)) => Value::Behind(a.min(b)),
                (a, b) if a == b => a,
                _ => Value::Unknown,
            };
        }
        self.there = self.there.min(other.there);
    }

    fn of(&self, register: u8) -> Option<Value> {
        self.registers.get(usize::from(register)).copied()
    }

    /// A number of 32 bits: what may be computed with, and leave the registers.
    fn word(&self, register: u8) -> Option<()> {
        matches!(self.of(register)?, Value::Number(_, 0..=U32)).then_some(())
    }

    fn set(&mut self, register: u8, value: Value) -> Option<()> {
        let place = self.registers[..STACK].get_mut(usize::from(register))?;
        *place = value;
        Some(())
    }

    /// Whether a load or store of `bytes` at `off` from a register keeps to its memory: what a load finds.
    fn found(&self, base: u8, off: i16, bytes: u64) -> Option<Value> {
        let number = Value::Number(0, U32 >> (32 - 8 * bytes.min(4)));
        let is_there = match self.of(base)? {
            Value::Context => {
                return match (off, bytes) {
                    (PACKET, 8) => Some(Value::Packet),
                    (THERE, 4) => Some(Value::There),
                    (LENGTH, 4) => Some(number),
                    _ => None,
                };
            }
            Value::Packet => u64::try_from(off).ok()?.checked_add(bytes)? <= self.there,
            // Back from the end, and no further than the packet's first byte.
            Value::Behind(least) => {
                let back = u64::try_from(-i32::from(off)).ok()?;
                bytes <= back && back <= least
            }
            Value::Stack => bytes == 4 && off % 4 == 0 && (-SCRATCH_BYTES..0).contains(&off),
            _ => false,
        };
        (is_there && bytes <= 4).then_some(number)
    }

    /// An instruction that the next one follows.
    fn pass(&mut self, insn: &Insn) -> Option<()> {
        let Insn {
            opc,
            dst,
            src,
            off,
            imm,
        } = *insn;
        let value = match opc {
            ebpf::LD_B_REG => self.found(src, off, 1)?,
            ebpf::LD_H_REG => self.found(src, off, 2)?,
            ebpf::LD_W_REG => self.found(src, off, 4)?,
            ebpf::LD_DW_REG => self.found(src, off, 8)?,
            ebpf::ST_W_IMM | ebpf::ST_W_REG => {
                if opc == ebpf::ST_W_REG {
                    self.word(src)?;
                }
                let is_scratch = self.of(dst)? == Value::Stack;
                return (is_scratch && self.found(dst, off, 4).is_some()).then_some(());
            }
            ebpf::MOV32_IMM => {
                let k = u64::from(imm.cast_unsigned());
                Value::Number(k, k)
            }
            ebpf::MOV64_REG => {
                self.word(src)?;
                self.of(src)?
            }
            ebpf::ADD64_REG => match (self.of(dst)?, self.of(src)?) {
                (Value::Number(a, b), Value::Number(c, d)) if b <= MOST && d <= MOST => {
                    Value::Number(a + c, b + d)
                }
                (Value::Within(least), Value::Packet) => Value::Behind(least),
                _ => return None,
            },
            ebpf::BE => {
                self.word(dst)?;
                matches!(imm, 16 | 32).then_some(Value::Number(0, U32))?
            }
            ebpf::NEG32 => {
                self.word(dst)?;
                Value::Number(0, U32)
            }
            opc if computes(opc & !ebpf::BPF_X) => {
                self.word(dst)?;
                if opc & ebpf::BPF_X != 0 {
                    self.word(src)?;
                }
                Value::Number(0, U32)
            }
            _ => return None,
        };
        self.set(dst, value)
    }

    /// A comparison: what is known besides where it does not hold.
    fn compare(&mut self, insn: &Insn) -> Option<()> {
        let Insn {
            opc, dst, src, imm, ..
        } = *insn;
        match (opc, self.of(dst)?, self.of(src)?) {
            (ebpf::JLT_IMM, Value::There, _) => {
                self.there = self.there.max(u64::try_from(imm).ok()?);
            }
            (ebpf::JGT_REG, Value::Number(least, _), Value::There) => {
                self.set(dst, Value::Within(least))?;
            }
            (opc, Value::Number(_, 0..=U32), _) if compares(opc & !ebpf::BPF_X) => {
                if opc & ebpf::BPF_X != 0 {
                    self.word(src)?;
                }
            }
            _ => return None,
        }
        Some(())
    }
}

/// Operations of 32 bits with a constant; what they leave has 32 bits, too.
const fn computes(opc: u8) -> bool {
    matches!(
        opc,
        ebpf::ADD32_IMM
            | ebpf::SUB32_IMM
            | ebpf::MUL32_IMM
            | ebpf::DIV32_IMM
            | ebpf::MOD32_IMM
            | ebpf::OR32_IMM
            | ebpf::AND32_IMM
            | ebpf::XOR32_IMM
            | ebpf::LSH32_IMM
            | ebpf::RSH32_IMM
    )
}

/// Comparisons of 32 bits with a constant.
const fn compares(opc: u8) -> bool {
    matches!(
        opc,
        ebpf::JEQ_IMM32
            | ebpf::JNE_IMM32
            | ebpf::JGT_IMM32
            | ebpf::JGE_IMM32
            | ebpf::JLT_IMM32
            | ebpf::JLE_IMM32
            | ebpf::JSET_IMM32
    )
}

/// Control goes from instruction `from` over the `by` next ones, with what is known then. `None`: it would go back, or out of the code.
fn reach(known: &mut [Option<Known>], from: usize, by: i16, now: &Known) -> Option<()> {
    let by = usize::try_from(by).ok()?;
    match known.get_mut(from + 1 + by)? {
        Some(there) => there.meet(now),
        first => *first = Some(now.clone()),
    }
    Some(())
}

/// Shows that `code` keeps to its memory, ends, and returns 32 bits.
///
/// # Errors
/// The first instruction of which it could not be shown.
pub(super) fn check(code: &[Insn]) -> Result<(), Unproven> {
    // None: no way has led there so far.
    let mut known: Vec<Option<Known>> = vec![None; code.len()];
    if let Some(first) = known.first_mut() {
        *first = Some(Known::at_first());
    }
    for (at, insn) in code.iter().enumerate() {
        let Some(mut now) = known[at].take() else {
            continue; // never run
        };
        let shown = match insn.opc {
            ebpf::EXIT => now.word(0),
            ebpf::JA => reach(&mut known, at, insn.off, &now),
            opc if matches!(opc & 0x07, ebpf::BPF_JMP | ebpf::BPF_JMP32) => {
                let taken = reach(&mut known, at, insn.off, &now);
                taken
                    .and_then(|()| now.compare(insn))
                    .and_then(|()| reach(&mut known, at, 0, &now))
            }
            _ => (now.pass(insn)).and_then(|()| reach(&mut known, at, 0, &now)),
        };
        shown.ok_or(Unproven(at))?;
    }
    if code.is_empty() {
        return Err(Unproven(0));
    }
    Ok(())
}
