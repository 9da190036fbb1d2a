//! Queries as SMT-LIB text.
//!
//! # Guarantee
//!
//! An expression that others share is written once, as a definition, so that the text is as long as
//! the expressions are many. Input byte 7 is called `in7`.
//!
//! # Source
//!
//! SMT-LIB 2.6, logic `QF_BV`. A condition of one bit is a bit vector of one bit here, too.

use std::fmt::Write as _;

use crate::op::Op;
use crate::pool::{Expr, Pool};
use crate::program::Program;

/// The query whether all of `path` and `goal` can be true, up to and with `(check-sat)`.
pub fn to_smtlib(pool: &Pool, path: &[Expr], goal: Expr) -> String {
    let roots: Vec<Expr> = path.iter().copied().chain([goal]).collect();
    of_program(&Program::new(pool, &roots))
}

pub(crate) fn of_program(program: &Program) -> String {
    let mut text = String::from("(set-logic QF_BV)\n");
    for input in &program.inputs {
        let _ = writeln!(text, "(declare-fun in{input} () (_ BitVec 8))");
    }
    // Inputs, constants and what is used once are written where they are used, as long as that
    // does not nest deeply.
    let mut uses = vec![0u32; program.code.len()];
    for instruction in &program.code {
        for operand in instruction.operands() {
            uses[operand] += 1;
        }
    }
    for &root in &program.roots {
        uses[root as usize] += 2;
    }
    let mut written: Vec<Option<(String, u32)>> = Vec::with_capacity(program.code.len());
    for (at, instruction) in program.code.iter().enumerate() {
        let bits = u32::from(instruction.bits);
        let mut depth = 0;
        let mut operands: Vec<String> = Vec::with_capacity(3);
        for operand in instruction.operands() {
            let taken = if uses[operand] == 1 {
                written[operand].take()
            } else {
                written[operand].clone()
            };
            // Every operand is written before it is used; once, if it is used once.
            let (text, nested) = taken.unwrap_or_default();
            depth = depth.max(nested);
            operands.push(text);
        }
        let own = of_operation(program, at, &operands);
        let leaf = instruction.op.arity() == 0;
        let own = if leaf || uses[at] == 1 && depth < 20 {
            (own, if leaf { 0 } else { depth + 1 })
        } else {
            let _ = writeln!(text, "(define-fun e{at} () (_ BitVec {bits}) {own})");
            (format!("e{at}"), 0)
        };
        written.push(Some(own));
    }
    for &root in &program.roots {
        if let Some((root, _)) = &written[root as usize] {
            let _ = writeln!(text, "(assert (= {root} #b1))");
        }
    }
    text.push_str("(check-sat)\n");
    text
}

fn of_operation(program: &Program, at: usize, operands: &[String]) -> String {
    let instruction = &program.code[at];
    let (bits, aux) = (u32::from(instruction.bits), u32::from(instruction.aux));
    let name = match instruction.op {
        Op::Const => {
            return format!("(_ bv{} {bits})", program.constants[instruction.a as usize]);
        }
        Op::Wide => unreachable!("a program has no large constants of its own kind"),
        Op::Input => return format!("in{}", program.inputs[instruction.a as usize]),
        Op::Eq | Op::Ult | Op::Slt => {
            let name = match instruction.op {
                Op::Eq => "=",
                Op::Ult => "bvult",
                _ => "bvslt",
            };
            return format!("(ite ({name} {} {}) #b1 #b0)", operands[0], operands[1]);
        }
        Op::Ite => {
            return format!(
                "(ite (= {} #b1) {} {})",
                operands[0], operands[1], operands[2]
            );
        }
        Op::Extract => format!("(_ extract {} {aux})", aux + bits - 1),
        Op::Zext => format!("(_ zero_extend {})", bits - aux),
        Op::Sext => format!("(_ sign_extend {})", bits - aux),
        Op::Add => "bvadd".into(),
        Op::Sub => "bvsub".into(),
        Op::Mul => "bvmul".into(),
        Op::Udiv => "bvudiv".into(),
        Op::Urem => "bvurem".into(),
        Op::Sdiv => "bvsdiv".into(),
        Op::Srem => "bvsrem".into(),
        Op::And => "bvand".into(),
        Op::Or => "bvor".into(),
        Op::Xor => "bvxor".into(),
        Op::Shl => "bvshl".into(),
        Op::Lshr => "bvlshr".into(),
        Op::Ashr => "bvashr".into(),
        Op::Not => "bvnot".into(),
        Op::Neg => "bvneg".into(),
        Op::Concat => "concat".into(),
    };
    format!("({name} {})", operands.join(" "))
}
