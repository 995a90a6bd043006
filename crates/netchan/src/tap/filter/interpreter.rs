//! Runs a checked program step by step, in safe code: where there is no machine code, and what machine code is held against.

use super::program::{Arithmetic, Compare, Operand, SCRATCH, Step, Width};

/// What the program returns. `None`: a load went beyond the packet, or a division was by zero.
pub(super) fn run(steps: &[Step], packet: &[u8], length: u32) -> Option<u32> {
    let (mut a, mut x) = (0_u32, 0_u32);
    let mut scratch = [0_u32; SCRATCH];
    let mut rest = steps.iter();
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
