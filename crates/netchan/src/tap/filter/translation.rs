//! Checked programs of the classic filter, translated to eBPF. rbpf's machine code checks no access to memory, so the program itself does: each load
//! is preceded by a comparison with the bytes that are there. What it does is what `interpreter` does, instruction by instruction.

use rbpf::ebpf::{self, Insn};

use super::{
    context::{LENGTH, PACKET, SCRATCH_BYTES, THERE},
    program::{Arithmetic, Compare, Operand, Step, Width},
};

/// The registers of eBPF, and what they hold here. All but the two pointers hold 32 bits.
mod register {
    /// The accumulator, and what is returned.
    pub const A: u8 = 0;
    /// First the context, then the packet's first byte.
    pub const PACKET: u8 = 1;
    /// How many bytes are there.
    pub const THERE: u8 = 2;
    /// The length on the link.
    pub const LENGTH: u8 = 3;
    pub const X: u8 = 4;
    /// Where a load ends, then its address.
    pub const AT: u8 = 5;
    /// Behind scratch memory.
    pub const STACK: u8 = 10;
}
use register::{A, AT, STACK, X};

/// Where a jump leads.
#[derive(Clone, Copy)]
enum Target {
    Step(usize),
    /// A load beyond the packet, a division by zero: 0 is returned.
    Refusal,
}

#[derive(Default)]
struct Translation {
    code: Vec<Insn>,
    /// Where the translation of each step begins.
    starts: Vec<usize>,
    /// Jumps whose offset is not known yet, by their places.
    jumps: Vec<(usize, Target)>,
}

/// The program in eBPF; its first register leads to a [`Context`](super::context::Context). `None`: a jump is too long for an instruction, which no
/// program of 4,096 instructions has.
pub(super) fn translate(steps: &[Step]) -> Option<Vec<Insn>> {
    let mut translation = Translation::default();
    translation.begin(steps);
    for (number, step) in steps.iter().enumerate() {
        translation.starts.push(translation.code.len());
        translation.step(number, *step);
    }
    translation.finish()
}

impl Translation {
    fn put(&mut self, opc: u8, dst: u8, src: u8, off: i16, imm: u32) {
        let imm = imm.cast_signed();
        self.code.push(Insn {
            opc,
            dst,
            src,
            off,
            imm,
        });
    }

    /// With a constant.
    fn constant(&mut self, opc: u8, dst: u8, k: u32) {
        self.put(opc, dst, 0, 0, k);
    }

    /// With another register.
    fn between(&mut self, opc: u8, dst: u8, src: u8) {
        self.put(opc, dst, src, 0, 0);
    }

    fn jump(&mut self, opc: u8, dst: u8, src: u8, imm: u32, target: Target) {
        self.jumps.push((self.code.len(), target));
        self.put(opc, dst, src, 0, imm);
    }

    fn begin(&mut self, steps: &[Step]) {
        let context = register::PACKET;
        self.put(ebpf::LD_W_REG, register::THERE, context, THERE, 0);
        self.put(ebpf::LD_W_REG, register::LENGTH, context, LENGTH, 0);
        self.put(ebpf::LD_DW_REG, register::PACKET, context, PACKET, 0); // the last: it takes the context's place
        self.constant(ebpf::MOV32_IMM, A, 0);
        self.constant(ebpf::MOV32_IMM, X, 0);
        let mut read: Vec<u8> = (steps.iter())
            .filter_map(|step| match step {
                Step::LoadScratch(cell) | Step::LoadXScratch(cell) => Some(*cell),
                _ => None,
            })
            .collect();
        read.sort_unstable();
        read.dedup();
        for cell in read {
            self.put(ebpf::ST_W_IMM, STACK, 0, place(cell), 0);
        }
    }

    fn step(&mut self, number: usize, step: Step) {
        match step {
            Step::LoadAt(width, k) => self.load(A, width, k, false),
            Step::LoadAtX(width, k) => self.load(A, width, k, true),
            Step::LoadConstant(k) => self.constant(ebpf::MOV32_IMM, A, k),
            Step::LoadLength => self.between(ebpf::MOV64_REG, A, register::LENGTH),
            Step::LoadScratch(cell) => self.put(ebpf::LD_W_REG, A, STACK, place(cell), 0),
            Step::LoadXConstant(k) => self.constant(ebpf::MOV32_IMM, X, k),
            Step::LoadXLength => self.between(ebpf::MOV64_REG, X, register::LENGTH),
            Step::LoadXScratch(cell) => self.put(ebpf::LD_W_REG, X, STACK, place(cell), 0),
            Step::LoadXHeader(k) => {
                self.load(X, Width::Byte, k, false);
                self.constant(ebpf::AND32_IMM, X, 0x0f);
                self.constant(ebpf::LSH32_IMM, X, 2);
            }
            Step::Store(cell) => self.put(ebpf::ST_W_REG, STACK, A, place(cell), 0),
            Step::StoreX(cell) => self.put(ebpf::ST_W_REG, STACK, X, place(cell), 0),
            Step::Compute(what, Operand::Constant, k) => self.compute(what, k),
            Step::Compute(what, Operand::X, _) => self.compute_with_x(what),
            Step::Negate => self.constant(ebpf::NEG32, A, 0),
            Step::Jump(by) => self.go(number, number + 1 + by as usize),
            Step::Branch { .. } => self.branch(number, step),
            Step::ReturnConstant(k) => {
                self.constant(ebpf::MOV32_IMM, A, k);
                self.constant(ebpf::EXIT, 0, 0);
            }
            Step::ReturnA => self.constant(ebpf::EXIT, 0, 0),
            Step::AToX => self.between(ebpf::MOV64_REG, X, A),
            Step::XToA => self.between(ebpf::MOV64_REG, A, X),
        }
    }

    /// Loads what lies `k` bytes into the packet, or `k` behind X.
    fn load(&mut self, to: u8, width: Width, k: u32, by_x: bool) {
        let (bytes, opc) = match width {
            Width::Byte => (1_u8, ebpf::LD_B_REG),
            Width::Half => (2, ebpf::LD_H_REG),
            Width::Word => (4, ebpf::LD_W_REG),
        };
        // No packet has more than 2³² - 1 bytes.
        let Some(end) = k.checked_add(u32::from(bytes)) else {
            return self.jump(ebpf::JA, 0, 0, 0, Target::Refusal);
        };
        match i16::try_from(k) {
            Ok(k) if !by_x => {
                self.jump(ebpf::JLT_IMM, register::THERE, 0, end, Target::Refusal);
                self.put(opc, to, register::PACKET, k, 0);
            }
            _ => {
                self.constant(ebpf::MOV32_IMM, AT, end);
                if by_x {
                    self.between(ebpf::ADD64_REG, AT, X); // 33 bits at most
                }
                self.jump(ebpf::JGT_REG, AT, register::THERE, 0, Target::Refusal);
                self.between(ebpf::ADD64_REG, AT, register::PACKET);
                self.put(opc, to, AT, -i16::from(bytes), 0);
            }
        }
        if bytes > 1 {
            self.constant(ebpf::BE, to, 8 * u32::from(bytes));
        }
    }

    fn compute(&mut self, what: Arithmetic, k: u32) {
        let shifts = matches!(what, Arithmetic::ShiftLeft | Arithmetic::ShiftRight);
        if shifts && k >= u32::BITS {
            return self.constant(ebpf::MOV32_IMM, A, 0); // the processor would shift by k modulo 32
        }
        self.constant(operation(what), A, k);
    }

    fn compute_with_x(&mut self, what: Arithmetic) {
        let opc = operation(what) | ebpf::BPF_X;
        match what {
            Arithmetic::Divide | Arithmetic::Modulo => {
                self.jump(ebpf::JEQ_IMM32, X, 0, 0, Target::Refusal);
                self.between(opc, A, X);
            }
            Arithmetic::ShiftLeft | Arithmetic::ShiftRight => {
                self.put(ebpf::JGE_IMM32, X, 0, 2, u32::BITS);
                self.between(opc, A, X);
                self.put(ebpf::JA, 0, 0, 1, 0);
                self.constant(ebpf::MOV32_IMM, A, 0);
            }
            _ => self.between(opc, A, X),
        }
    }

    /// A jump from one step to another; none to the next.
    fn go(&mut self, from: usize, to: usize) {
        if to != from + 1 {
            self.jump(ebpf::JA, 0, 0, 0, Target::Step(to));
        }
    }

    fn branch(&mut self, number: usize, step: Step) {
        let Step::Branch {
            compare,
            operand,
            k,
            yes,
            no,
        } = step
        else {
            return;
        };
        let [yes, no] = [yes, no].map(|by| number + 1 + usize::from(by));
        let (opc, turned) = match compare {
            Compare::Equal => (ebpf::JEQ_IMM32, Some(ebpf::JNE_IMM32)),
            Compare::Greater => (ebpf::JGT_IMM32, Some(ebpf::JLE_IMM32)),
            Compare::GreaterOrEqual => (ebpf::JGE_IMM32, Some(ebpf::JLT_IMM32)),
            Compare::AnyBit => (ebpf::JSET_IMM32, None),
        };
        // Where the comparison holds and the next step follows, one jump is enough, if there is one for the contrary.
        let (opc, taken, other) = match turned {
            Some(turned) if yes == number + 1 => (turned, no, yes),
            _ => (opc, yes, no),
        };
        match operand {
            Operand::Constant => self.jump(opc, A, 0, k, Target::Step(taken)),
            Operand::X => self.jump(opc | ebpf::BPF_X, A, X, 0, Target::Step(taken)),
        }
        self.go(number, other);
    }

    fn finish(mut self) -> Option<Vec<Insn>> {
        let refusal = self.code.len();
        self.constant(ebpf::MOV32_IMM, A, 0);
        self.constant(ebpf::EXIT, 0, 0);
        for (at, target) in self.jumps {
            let to = match target {
                Target::Step(number) => *self.starts.get(number)?,
                Target::Refusal => refusal,
            };
            let by = to.checked_sub(at + 1)?;
            self.code.get_mut(at)?.off = i16::try_from(by).ok()?;
        }
        Some(self.code)
    }
}

/// Where a word of scratch memory lies, from the stack's pointer.
fn place(cell: u8) -> i16 {
    4 * i16::from(cell) - SCRATCH_BYTES
}

/// With a constant.
const fn operation(what: Arithmetic) -> u8 {
    match what {
        Arithmetic::Add => ebpf::ADD32_IMM,
        Arithmetic::Subtract => ebpf::SUB32_IMM,
        Arithmetic::Multiply => ebpf::MUL32_IMM,
        Arithmetic::Divide => ebpf::DIV32_IMM,
        Arithmetic::Modulo => ebpf::MOD32_IMM,
        Arithmetic::Or => ebpf::OR32_IMM,
        Arithmetic::And => ebpf::AND32_IMM,
        Arithmetic::Xor => ebpf::XOR32_IMM,
        Arithmetic::ShiftLeft => ebpf::LSH32_IMM,
        Arithmetic::ShiftRight => ebpf::RSH32_IMM,
    }
}
