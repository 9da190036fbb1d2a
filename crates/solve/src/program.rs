//! Expressions as a list of operations, to be evaluated many times.
//!
//! # Guarantee
//!
//! Each operation comes after its operands, shared ones come once, and nothing recurses: the depth
//! of an expression does not matter.

use rustc_hash::FxHashMap;

use crate::op::{Op, apply};
use crate::pool::{Expr, Pool};

/// One operation; operands are positions in the list.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Instruction {
    pub(crate) op: Op,
    pub(crate) bits: u8,
    /// See [`apply`].
    pub(crate) aux: u8,
    /// For a constant, its index; for an input, its position among [`Program::inputs`].
    pub(crate) a: u32,
    pub(crate) b: u32,
    pub(crate) c: u32,
}

impl Instruction {
    /// The operands' positions.
    pub(crate) fn operands(&self) -> impl Iterator<Item = usize> + use<> {
        [self.a, self.b, self.c]
            .into_iter()
            .take(self.op.arity())
            .map(|position| position as usize)
    }
}

/// What some expressions need.
#[derive(Clone, Debug, Default)]
pub(crate) struct Program {
    pub(crate) code: Vec<Instruction>,
    pub(crate) constants: Vec<u128>,
    /// The input bytes that occur, in ascending order.
    pub(crate) inputs: Vec<u32>,
    /// Where the expressions are that it was made of.
    pub(crate) roots: Vec<u32>,
}

impl Program {
    pub(crate) fn new(pool: &Pool, roots: &[Expr]) -> Program {
        let mut position: FxHashMap<Expr, u32> = FxHashMap::default();
        let mut order: Vec<Expr> = Vec::new();
        let mut stack: Vec<Expr> = roots.to_vec();
        while let Some(e) = stack.pop() {
            if position.insert(e, 0).is_none() {
                order.push(e);
                stack.extend(pool.operands(e));
            }
        }
        order.sort_unstable();
        for (at, e) in order.iter().enumerate() {
            position.insert(*e, at as u32);
        }
        let nodes = order.iter().map(|&e| pool.node(e));
        let mut inputs: Vec<u32> = nodes
            .filter(|node| node.op == Op::Input)
            .map(|node| node.a)
            .collect();
        inputs.sort_unstable();
        let mut program = Program {
            inputs,
            ..Program::default()
        };
        program.code = order
            .iter()
            .map(|&e| {
                let node = pool.node(e);
                let mut instruction = Instruction {
                    op: node.op,
                    bits: node.bits,
                    aux: pool.aux(node) as u8,
                    a: 0,
                    b: 0,
                    c: 0,
                };
                if let Some(value) = pool.value_of(node) {
                    instruction.op = Op::Const;
                    instruction.a = program.constants.len() as u32;
                    program.constants.push(value);
                } else if node.op == Op::Input {
                    let at = program.inputs.binary_search(&node.a);
                    instruction.a = at.expect("an input that was just collected") as u32;
                } else {
                    let operands = [node.a, node.b, node.c].map(Expr);
                    let fields = [&mut instruction.a, &mut instruction.b, &mut instruction.c];
                    for (field, operand) in fields.into_iter().zip(operands).take(node.op.arity()) {
                        *field = position[&operand];
                    }
                }
                instruction
            })
            .collect();
        program.roots = roots.iter().map(|root| position[root]).collect();
        program
    }

    /// The values of all operations; `bytes` are those of [`Program::inputs`].
    pub(crate) fn run(&self, bytes: &[u8], values: &mut Vec<u128>) {
        values.clear();
        for instruction in &self.code {
            let value = self.step(instruction, bytes, values);
            values.push(value);
        }
    }

    /// The value of one operation.
    pub(crate) fn step(&self, instruction: &Instruction, bytes: &[u8], values: &[u128]) -> u128 {
        let &Instruction {
            op,
            bits,
            aux,
            a,
            b,
            c,
        } = instruction;
        let at = |position: u32| values[position as usize];
        let (bits, aux) = (bits.into(), aux.into());
        match op.arity() {
            1 => apply(op, bits, aux, at(a), 0, 0),
            2 => apply(op, bits, aux, at(a), at(b), 0),
            3 => apply(op, bits, aux, at(a), at(b), at(c)),
            _ if op == Op::Input => bytes[a as usize].into(),
            _ => self.constants[a as usize],
        }
    }

    /// Whether all expressions are other than zero.
    pub(crate) fn holds(&self, bytes: &[u8], values: &mut Vec<u128>) -> bool {
        self.run(bytes, values);
        self.roots.iter().all(|&root| values[root as usize] != 0)
    }
}

/// Evaluation.
impl Pool {
    /// The values of an expression that depends on no more than one input byte, for each value of
    /// that.
    pub fn eval_byte(&self, e: Expr) -> Vec<u128> {
        if let Some(value) = self.as_constant(e) {
            return vec![value; 256];
        }
        let program = Program::new(self, &[e]);
        let mut values = Vec::with_capacity(program.code.len());
        let mut of = |byte: u8| {
            let bytes = vec![byte; program.inputs.len()];
            program.run(&bytes, &mut values);
            values[program.roots[0] as usize]
        };
        (0..=255).map(&mut of).collect()
    }

    /// The value under this input.
    pub fn eval(&self, e: Expr, input: &dyn Fn(u32) -> u8) -> u128 {
        match self.as_constant(e) {
            Some(value) => value,
            None => self.eval_all(&[e], input)[0],
        }
    }

    /// The values of several expressions; what they share is evaluated once.
    pub fn eval_all(&self, expressions: &[Expr], input: &dyn Fn(u32) -> u8) -> Vec<u128> {
        let program = Program::new(self, expressions);
        let bytes: Vec<u8> = program.inputs.iter().map(|&index| input(index)).collect();
        let mut values = Vec::with_capacity(program.code.len());
        program.run(&bytes, &mut values);
        program
            .roots
            .iter()
            .map(|&root| values[root as usize])
            .collect()
    }
}
