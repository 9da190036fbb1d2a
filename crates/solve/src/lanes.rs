//! A program evaluated for all values of one input byte at once, or of two.
//!
//! # Guarantee
//!
//! [`enumerate`] finds values of the varied bytes, all others being as given, if there are any. It
//! declines ([`Enumerated::TooWide`]) where a varying operation is wider than 64 bits.
//!
//! # How
//!
//! An operation is applied to 256 values in one loop, which the compiler makes vector instructions
//! of. With two bytes, the outer one runs over those values that constraints on it alone permit,
//! its old value first; only what depends on both bytes is evaluated in each round.

use crate::byte_set::ByteSet;
use crate::op::Op;
use crate::program::{Instruction, Program};

/// A value for each value of a byte.
type Lanes = [u64; 256];

/// What came of trying all values.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Enumerated {
    /// Values of the outer (if there is one) and of the inner byte.
    Found(u8, u8),
    Nothing,
    TooWide,
}

/// On what an operation depends.
const OUTER: u8 = 1;
const INNER: u8 = 2;

/// How many operations depend on both of these inputs (positions among the program's).
pub(crate) fn work(program: &Program, outer: Option<usize>, inner: usize) -> usize {
    let depends = dependences(program, outer, inner);
    depends
        .iter()
        .filter(|&&depends| depends == OUTER | INNER)
        .count()
}

fn dependences(program: &Program, outer: Option<usize>, inner: usize) -> Vec<u8> {
    let mut depends: Vec<u8> = Vec::with_capacity(program.code.len());
    for instruction in &program.code {
        depends.push(match instruction.op {
            Op::Input if instruction.a as usize == inner => INNER,
            Op::Input if outer == Some(instruction.a as usize) => OUTER,
            _ => instruction
                .operands()
                .fold(0, |all, operand| all | depends[operand]),
        });
    }
    depends
}

/// Looks for values of two inputs, or of one if there is no outer one, under which all roots hold.
/// The others have the values in `bytes`. Old values are preferred, then those that people would
/// write ([`ByteSet::nicest`]).
pub(crate) fn enumerate(
    program: &Program,
    bytes: &[u8],
    outer: Option<usize>,
    inner: usize,
) -> Enumerated {
    let depends = dependences(program, outer, inner);
    let wide = |at: usize| program.code[at].bits > 64;
    for (at, instruction) in program.code.iter().enumerate() {
        if depends[at] != 0 && (wide(at) || instruction.operands().any(wide)) {
            return Enumerated::TooWide;
        }
    }
    let mut lanes = Evaluation::new(program, depends);
    lanes.constants(bytes);
    let (mut of_outer, mut of_inner) = ([true; 256], [true; 256]);
    lanes.evaluate(OUTER, 0);
    lanes.evaluate(INNER, 0);
    let mut both: Vec<usize> = Vec::new();
    for &root in &program.roots {
        let root = root as usize;
        match lanes.depends[root] {
            0 if lanes.scalars[root] == 0 => return Enumerated::Nothing,
            0 => {}
            OUTER => restrict(&mut of_outer, lanes.at(root)),
            INNER => restrict(&mut of_inner, lanes.at(root)),
            _ => both.push(root),
        }
    }
    let Some(outer) = outer else {
        return match best(&of_inner, bytes[inner]) {
            Some(value) => Enumerated::Found(0, value),
            None => Enumerated::Nothing,
        };
    };
    if !of_inner.contains(&true) {
        return Enumerated::Nothing;
    }
    let old = bytes[outer];
    // A change of the inner byte alone, then of the outer one alone, then of both.
    let values = [old].into_iter().chain(ByteSet::by_niceness());
    let values = values.filter(|&value| of_outer[usize::from(value)]);
    let mut found = None;
    for value in values {
        lanes.evaluate(OUTER | INNER, value);
        let mut possible = of_inner;
        for &root in &both {
            restrict(&mut possible, lanes.at(root));
        }
        if possible[usize::from(bytes[inner])] {
            return Enumerated::Found(value, bytes[inner]);
        }
        if let Some(other) = best(&possible, bytes[inner]) {
            if value == old {
                return Enumerated::Found(value, other);
            }
            found.get_or_insert((value, other));
        }
    }
    match found {
        Some((value, other)) => Enumerated::Found(value, other),
        None => Enumerated::Nothing,
    }
}

fn restrict(possible: &mut [bool; 256], lanes: &Lanes) {
    for (possible, &value) in possible.iter_mut().zip(lanes) {
        *possible &= value != 0;
    }
}

fn best(possible: &[bool; 256], old: u8) -> Option<u8> {
    let mut values = [old].into_iter().chain(ByteSet::by_niceness());
    values.find(|&value| possible[usize::from(value)])
}

struct Evaluation<'a> {
    program: &'a Program,
    depends: Vec<u8>,
    /// For what varies, where its lanes are.
    slots: Vec<u32>,
    lanes: Vec<Lanes>,
    scalars: Vec<u128>,
    /// The operations that vary, by what they depend on.
    varying: [Vec<u32>; 4],
}

impl<'a> Evaluation<'a> {
    fn new(program: &'a Program, depends: Vec<u8>) -> Evaluation<'a> {
        let mut slots = vec![0; depends.len()];
        let mut varying: [Vec<u32>; 4] = Default::default();
        let mut used = 0;
        for (at, &depends) in depends.iter().enumerate() {
            varying[usize::from(depends)].push(at as u32);
            if depends != 0 {
                slots[at] = used;
                used += 1;
            }
        }
        let scalars = vec![0; depends.len()];
        let lanes = vec![[0; 256]; used as usize];
        Evaluation {
            program,
            depends,
            slots,
            lanes,
            scalars,
            varying,
        }
    }

    fn at(&self, position: usize) -> &Lanes {
        &self.lanes[self.slots[position] as usize]
    }

    fn constants(&mut self, bytes: &[u8]) {
        for &at in &self.varying[0] {
            let at = at as usize;
            self.scalars[at] = self
                .program
                .step(&self.program.code[at], bytes, &self.scalars);
        }
    }

    /// Evaluates what depends on exactly these; `outer` is the outer byte's value, if it is both.
    fn evaluate(&mut self, which: u8, outer: u8) {
        let Evaluation {
            program,
            depends,
            slots,
            lanes,
            scalars,
            varying,
        } = self;
        let mut scratch = [[0; 256]; 3];
        for &at in &varying[usize::from(which)] {
            let instruction = &program.code[at as usize];
            let (before, rest) = lanes.split_at_mut(slots[at as usize] as usize);
            let result = &mut rest[0];
            if instruction.op == Op::Input {
                for (value, result) in (0..).zip(result.iter_mut()) {
                    *result = value;
                }
                continue;
            }
            let mut operands: [&Lanes; 3] = [&[0; 256]; 3];
            for ((position, operand), scratch) in
                instruction.operands().zip(&mut operands).zip(&mut scratch)
            {
                let lanes = slots[position] as usize;
                let scalar = match depends[position] {
                    0 => scalars[position] as u64,
                    OUTER if which != OUTER => before[lanes][usize::from(outer)],
                    _ => {
                        *operand = &before[lanes];
                        continue;
                    }
                };
                scratch.fill(scalar);
                *operand = scratch;
            }
            apply(instruction, result, operands);
        }
    }
}

fn apply(instruction: &Instruction, result: &mut Lanes, [a, b, c]: [&Lanes; 3]) {
    let bits = u32::from(instruction.bits);
    let aux = u32::from(instruction.aux);
    let mask = u64::MAX >> (64 - bits);
    macro_rules! each {
        (|$x:ident| $value:expr) => {
            for (result, &$x) in result.iter_mut().zip(a) {
                *result = ($value) & mask;
            }
        };
        (|$x:ident, $y:ident| $value:expr) => {
            for ((result, &$x), &$y) in result.iter_mut().zip(a).zip(b) {
                *result = ($value) & mask;
            }
        };
    }
    // How far a number of the first operand's width is from the top.
    let unused = 64 - aux.min(64);
    let signed = |value: u64| ((value << unused) as i64) >> unused;
    match instruction.op {
        Op::Add => each!(|x, y| x.wrapping_add(y)),
        Op::Sub => each!(|x, y| x.wrapping_sub(y)),
        Op::Mul => each!(|x, y| x.wrapping_mul(y)),
        Op::Udiv => each!(|x, y| x.checked_div(y).unwrap_or(u64::MAX)),
        Op::Urem => each!(|x, y| x.checked_rem(y).unwrap_or(x)),
        Op::Sdiv => each!(|x, y| match y {
            0 if signed(x) < 0 => 1,
            0 => u64::MAX,
            _ => signed(x).wrapping_div(signed(y)) as u64,
        }),
        Op::Srem => each!(|x, y| match y {
            0 => x,
            _ => signed(x).wrapping_rem(signed(y)) as u64,
        }),
        Op::And => each!(|x, y| x & y),
        Op::Or => each!(|x, y| x | y),
        Op::Xor => each!(|x, y| x ^ y),
        Op::Shl => each!(|x, y| if y < bits.into() { x << y } else { 0 }),
        Op::Lshr => each!(|x, y| if y < bits.into() { x >> y } else { 0 }),
        Op::Ashr => each!(|x, y| (signed(x) >> y.min(63)) as u64),
        Op::Not => each!(|x| !x),
        Op::Neg => each!(|x| x.wrapping_neg()),
        Op::Eq => each!(|x, y| u64::from(x == y)),
        Op::Ult => each!(|x, y| u64::from(x < y)),
        Op::Slt => each!(|x, y| u64::from(signed(x) < signed(y))),
        Op::Ite => {
            for (((result, &x), &y), &z) in result.iter_mut().zip(a).zip(b).zip(c) {
                *result = if x != 0 { y } else { z };
            }
        }
        Op::Concat => each!(|x, y| x << aux | y),
        Op::Extract => each!(|x| x >> aux),
        Op::Zext => each!(|x| x),
        Op::Sext => each!(|x| signed(x) as u64),
        Op::Const | Op::Wide | Op::Input => unreachable!("{:?} has no operands", instruction.op),
    }
}

#[cfg(test)]
mod tests {
    use brownout_random::Random;

    use super::*;
    use crate::op;

    #[test]
    fn every_operation_is_the_same_as_on_one_value() {
        let mut random = Random::new(1);
        let binary = [
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
        let mut check = |op: Op, bits: u32, aux: u32, widths: [u32; 3]| {
            let mut draw = |width: u32| {
                let mut lanes: Lanes = [0; 256];
                for lane in &mut lanes {
                    *lane = random.bits() & op::mask(width) as u64;
                    if random.percent(50) {
                        *lane = [0, 1, op::mask(width) as u64, 1 << (width - 1), width.into()]
                            [random.index(5)]
                            & op::mask(width) as u64;
                    }
                }
                lanes
            };
            let operands = widths.map(&mut draw);
            let mut result = [0; 256];
            let instruction = Instruction {
                op,
                bits: bits as u8,
                aux: aux as u8,
                a: 0,
                b: 0,
                c: 0,
            };
            apply(&instruction, &mut result, operands.each_ref());
            for lane in 0..256 {
                let [a, b, c] = operands.map(|lanes| u128::from(lanes[lane]));
                let one = op::apply(op, bits, aux, a, b, c);
                assert_eq!(u128::from(result[lane]), one, "{op:?} {bits} {a:#x} {b:#x}");
            }
        };
        for width in [1, 5, 8, 16, 32, 63, 64] {
            for op in binary {
                let bits = if matches!(op, Op::Eq | Op::Ult | Op::Slt) {
                    1
                } else {
                    width
                };
                let first = if op == Op::Ite { 1 } else { width };
                check(op, bits, width, [first, width, width]);
            }
            check(Op::Zext, 64, width, [width; 3]);
            check(Op::Sext, 64, width, [width; 3]);
            check(Op::Extract, 1, width - 1, [width; 3]);
        }
        check(Op::Concat, 64, 24, [40, 24, 1]);
        check(Op::Concat, 9, 8, [1, 8, 1]);
    }
}
