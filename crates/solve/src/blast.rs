//! From operations on words to gates.
//!
//! # Guarantee
//!
//! Under any assignment of the input bits, the gates of an operation have the bits of its value
//! ([`crate::op::apply`]).

use crate::gates::{Bit, Gates, Word, not, sign};
use crate::op::Op;
use crate::program::{Instruction, Program};

/// The gates of a program.
pub(crate) struct Circuit {
    pub(crate) gates: Gates,
    /// The bits of each of the program's inputs.
    pub(crate) inputs: Vec<Word>,
    /// One bit for each root: whether it is other than zero.
    pub(crate) roots: Vec<Bit>,
}

/// Makes the circuit, unless it has more gates than this.
pub(crate) fn blast(program: &Program, limit: usize) -> Option<Circuit> {
    let mut gates = Gates::default();
    let inputs: Vec<Word> = program
        .inputs
        .iter()
        .map(|_| (0..8).map(|_| gates.free()).collect())
        .collect();
    let mut words: Vec<Word> = Vec::with_capacity(program.code.len());
    for instruction in &program.code {
        let word = match instruction.op {
            Op::Input => inputs[instruction.a as usize].clone(),
            Op::Const => {
                let value = program.constants[instruction.a as usize];
                Gates::constant(value, instruction.bits.into())
            }
            _ => {
                let word = |position: u32| -> &[Bit] { &words[position as usize] };
                operation(&mut gates, instruction, word)
            }
        };
        words.push(word);
        if gates.gates.len() > limit {
            return None;
        }
    }
    let roots = program
        .roots
        .iter()
        .map(|&root| {
            words[root as usize]
                .iter()
                .fold(Bit::FALSE, |any, &bit| gates.or(any, bit))
        })
        .collect();
    Some(Circuit {
        gates,
        inputs,
        roots,
    })
}

fn operation<'a>(
    gates: &mut Gates,
    instruction: &Instruction,
    word: impl Fn(u32) -> &'a [Bit],
) -> Word {
    let &Instruction {
        op,
        bits,
        aux,
        a,
        b,
        c,
    } = instruction;
    let (bits, aux) = (usize::from(bits), usize::from(aux));
    let a = || word(a);
    let b = || word(b);
    let bitwise = |gates: &mut Gates, gate: fn(&mut Gates, Bit, Bit) -> Bit| {
        a().iter()
            .zip(b())
            .map(|(&x, &y)| gate(gates, x, y))
            .collect()
    };
    match op {
        Op::Add => gates.add(a(), b()),
        Op::Sub => gates.sub(a(), b()),
        Op::Mul => gates.mul(a(), b()),
        Op::Udiv => gates.divide(a(), b()).0,
        Op::Urem => gates.divide(a(), b()).1,
        Op::Sdiv => gates.divide_signed(a(), b()).0,
        Op::Srem => gates.divide_signed(a(), b()).1,
        Op::And => bitwise(gates, Gates::and),
        Op::Or => bitwise(gates, Gates::or),
        Op::Xor => bitwise(gates, Gates::xor),
        Op::Shl => gates.shift_left(a(), b()),
        Op::Lshr => gates.shift_right(a(), b(), Bit::FALSE),
        Op::Ashr => gates.shift_right(a(), b(), sign(a())),
        Op::Not => not(a()),
        Op::Neg => gates.neg(a()),
        Op::Eq => vec![gates.eq(a(), b())],
        Op::Ult => vec![gates.ult(a(), b())],
        Op::Slt => vec![gates.slt(a(), b())],
        Op::Ite => {
            let condition = a()[0];
            b().iter()
                .zip(word(c))
                .map(|(&x, &y)| gates.choose(condition, x, y))
                .collect()
        }
        Op::Concat => [b(), a()].concat(),
        Op::Extract => a()[aux..aux + bits].to_vec(),
        Op::Zext | Op::Sext => {
            let fill = if op == Op::Zext {
                Bit::FALSE
            } else {
                sign(a())
            };
            let mut word = a().to_vec();
            word.resize(bits, fill);
            word
        }
        Op::Const | Op::Wide | Op::Input => unreachable!("{op:?} has no operands"),
    }
}

#[cfg(test)]
mod tests {
    use brownout_random::Random;

    use super::*;
    use crate::gates::Gate;
    use crate::op::{apply, mask};

    /// The value of each gate, given those of the free ones.
    fn simulate(gates: &Gates, free: &mut dyn FnMut() -> bool) -> Vec<bool> {
        let mut values: Vec<bool> = Vec::with_capacity(gates.gates.len());
        for gate in &gates.gates {
            let at = |bit: Bit| values[bit.gate()] != bit.inverted();
            let value = match *gate {
                Gate::False => false,
                Gate::Free => free(),
                Gate::And(a, b) => at(a) && at(b),
                Gate::Xor(a, b) => at(a) != at(b),
                Gate::Choose(a, b, c) => {
                    if at(a) {
                        at(b)
                    } else {
                        at(c)
                    }
                }
                Gate::Majority(a, b, c) => u8::from(at(a)) + u8::from(at(b)) + u8::from(at(c)) > 1,
            };
            values.push(value);
        }
        values
    }

    fn draw(random: &mut Random, bits: u32) -> u128 {
        let value = match random.below(8) {
            0 => 0,
            1 => 1,
            2 => u128::MAX,
            3 => 1 << (bits - 1),
            4 => u128::from(random.below(u64::from(bits) + 2)),
            5 => u128::from(random.bits()) >> random.below(64),
            _ => u128::from(random.bits()) << 64 | u128::from(random.bits()),
        };
        value & mask(bits)
    }

    /// Compares an operation on words that are free, constant or partly constant with its value.
    fn check(random: &mut Random, op: Op, bits: u32, aux: u32, widths: [u32; 3]) {
        let mut gates = Gates::default();
        let values = widths.map(|width| draw(random, width));
        let mut assigned: Vec<bool> = Vec::new();
        let words: Vec<Word> = (0..3)
            .map(|operand| {
                let free = [0, 50, 100, 100][random.index(4)];
                (0..widths[operand])
                    .map(|bit| {
                        let value = values[operand] >> bit & 1 == 1;
                        if random.percent(free) {
                            assigned.push(value);
                            gates.free()
                        } else if value {
                            Bit::TRUE
                        } else {
                            Bit::FALSE
                        }
                    })
                    .collect()
            })
            .collect();
        let instruction = Instruction {
            op,
            bits: bits as u8,
            aux: aux as u8,
            a: 0,
            b: 1,
            c: 2,
        };
        let result = operation(&mut gates, &instruction, |at| &words[at as usize]);
        assert_eq!(result.len(), bits as usize, "{op:?}");
        let mut assigned = assigned.into_iter();
        let of_gates = simulate(&gates, &mut || assigned.next().unwrap());
        let value = result.iter().rev().fold(0, |value, bit| {
            value << 1 | u128::from(of_gates[bit.gate()] != bit.inverted())
        });
        let [a, b, c] = values;
        let expected = apply(op, bits, aux, a, b, c);
        assert_eq!(
            value, expected,
            "{op:?} of {bits} bits, {a:#x} {b:#x} {c:#x}"
        );
    }

    #[test]
    fn gates_compute_every_operation() {
        let mut random = Random::new(2);
        let same_width = [
            Op::Add,
            Op::Sub,
            Op::Mul,
            Op::Udiv,
            Op::Urem,
            Op::Sdiv,
            Op::Srem,
            Op::And,
            Op::Or,
            Op::Xor,
            Op::Shl,
            Op::Lshr,
            Op::Ashr,
            Op::Not,
            Op::Neg,
            Op::Eq,
            Op::Ult,
            Op::Slt,
            Op::Ite,
        ];
        for width in [1, 2, 3, 7, 8, 16, 24, 32, 64, 128] {
            let rounds = if width > 32 { 60 } else { 200 };
            for op in same_width {
                let bits = if matches!(op, Op::Eq | Op::Ult | Op::Slt) {
                    1
                } else {
                    width
                };
                let first = if op == Op::Ite { 1 } else { width };
                for _ in 0..rounds {
                    check(&mut random, op, bits, width, [first, width, width]);
                }
            }
            for _ in 0..rounds {
                let bits = 1 + random.below(width.into()) as u32;
                let low = random.below(u64::from(width - bits) + 1) as u32;
                check(&mut random, Op::Extract, bits, low, [width; 3]);
                check(&mut random, Op::Zext, width, bits, [bits; 3]);
                check(&mut random, Op::Sext, width, bits, [bits; 3]);
                if bits < width {
                    check(
                        &mut random,
                        Op::Concat,
                        width,
                        bits,
                        [width - bits, bits, 1],
                    );
                }
            }
        }
    }
}
