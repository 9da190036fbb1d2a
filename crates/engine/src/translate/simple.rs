//! Functions whose return address is certain.
//!
//! A return goes through the indirect-branch table, because the program may have changed the
//! address on the stack. A function that writes nothing to memory and does not move the stack
//! pointer cannot have: it returns behind its call. Such functions (look-ups, comparisons,
//! predicates) are short and called often. Each call of one gets blocks of its own, which return by
//! a direct jump ([`Exit::returns_to`](crate::block::Exit::returns_to)).
//!
//! This is only the choice of functions. That the address is certain is made sure when their blocks
//! are translated.

use crate::address::ProgramAddr;
use iced_x86::{Decoder, DecoderOptions, FlowControl, Instruction};

/// Longest function, in bytes from its first instruction.
const LEN_MAX: usize = 128;
/// In instructions. Every call has its own copy, so they must be short.
const INSNS_MAX: usize = 32;

/// Whether the function at `pc` gets to its return on every way that does not go backwards, by a
/// few instructions that leave memory and stack pointer alone. `end`: of the executable memory
/// around it.
pub fn is_simple_function(pc: ProgramAddr, end: ProgramAddr) -> bool {
    let mut bytes = [0u8; LEN_MAX];
    let len = (end - pc).min(LEN_MAX as u64);
    let source = crate::pm::reach(pc).get();
    // SAFETY: into our own buffer; nobody has executed the code yet, so it may be unreadable
    // (behind the end of its file).
    if !unsafe { crate::copy::copy_program(bytes.as_mut_ptr() as u64, source, len) } {
        return false;
    }
    let mut decoder = Decoder::with_ip(64, &bytes[..len as usize], pc.get(), DecoderOptions::NONE);
    let mut insn = Instruction::default();
    // Offsets that are still to be looked at. All ways lead forwards, so the lowest first looks at
    // each once.
    let mut ahead = 1u128;
    let mut returns = false;
    for _ in 0..INSNS_MAX {
        if ahead == 0 {
            return returns;
        }
        let at = ahead.trailing_zeros() as usize;
        ahead &= !(1 << at);
        if decoder.set_position(at).is_err() {
            return false;
        }
        decoder.set_ip((pc + at as u64).get());
        decoder.decode_out(&mut insn);
        if !crate::insn::keeps_stack(&insn) {
            return false;
        }
        let flow = insn.flow_control();
        returns |= flow == FlowControl::Return;
        let next = matches!(flow, FlowControl::Next | FlowControl::ConditionalBranch)
            .then(|| insn.next_ip());
        let jump = (matches!(
            flow,
            FlowControl::ConditionalBranch | FlowControl::UnconditionalBranch
        ) && insn.near_branch_target() > insn.ip())
        .then(|| insn.near_branch_target());
        for target in [next, jump].into_iter().flatten() {
            if target - pc.get() >= len {
                return false;
            }
            ahead |= 1 << (target - pc.get());
        }
    }
    false
}
