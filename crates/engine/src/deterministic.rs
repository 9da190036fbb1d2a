//! Removing randomness.
use crate::context::ThreadContext;
use iced_x86::Instruction;
pub fn init(_ctx: &mut ThreadContext) {}
pub fn instruction(_ctx: &mut ThreadContext, _insn: &Instruction) {}
