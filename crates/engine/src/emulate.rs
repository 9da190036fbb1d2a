//! Instructions that the engine performs itself, and those that it must refuse.

use crate::context::ThreadContext;
use crate::sys;
use alloc::format;
use iced_x86::{Decoder, DecoderOptions, FlowControl, Instruction, Mnemonic, OpKind};

/// The program's instruction at `pc`.
pub fn decode(pc: u64) -> Instruction {
    let mut bytes = [0u8; 15];
    let mut n = 15;
    while n > 0 && !sys::read_memory(crate::pm::readable_alias(pc), &mut bytes[..n]) {
        n -= 1;
    }
    Decoder::with_ip(64, &bytes[..n], pc, DecoderOptions::NONE).decode()
}

/// Performs the instruction at `ctx.rip`, `len` bytes long.
pub fn handle(ctx: &mut ThreadContext, len: u64) {
    let insn = decode(ctx.rip);
    let next = ctx.rip + len;
    match insn.flow_control() {
        FlowControl::IndirectCall | FlowControl::IndirectBranch => {
            return branch_through_memory(ctx, &insn);
        }
        _ => {}
    }
    match insn.mnemonic() {
        Mnemonic::Rdgsbase => set_register(ctx, &insn, 0),
        _ => crate::deterministic::instruction(ctx, &insn),
    }
    ctx.rip = next;
    crate::dispatch::resume_at_rip(ctx);
}

/// Writes the first operand, a register of 16, 32 or 64 bits.
pub fn set_register(ctx: &mut ThreadContext, insn: &Instruction, value: u64) {
    let r = insn.op0_register();
    let slot = &mut ctx.gpr[r.full_register().number() & 15];
    match r.size() {
        2 => *slot = *slot & !0xffff | value & 0xffff,
        4 => *slot = value & 0xffff_ffff,
        _ => *slot = value,
    }
}

/// `call [m]` and `jmp [m]` with the pointer in tracked memory, when loads are recorded.
fn branch_through_memory(ctx: &mut ThreadContext, insn: &Instruction) {
    debug_assert!(insn.op0_kind() == OpKind::Memory);
    let addr = crate::insn::effective_address(ctx, insn);
    let mut target = 0u64;
    if !crate::signal::read_value(addr, &mut target) {
        let pc = ctx.rip;
        let on_stack = crate::insn::is_stack_operand(insn);
        crate::signal::raise_access_fault(ctx, addr, false, on_stack);
        ctx.rip = pc;
        return;
    }
    crate::pm::record_load(ctx, addr, 8);
    if insn.flow_control() == FlowControl::IndirectCall {
        let sp = ctx.gpr[4] - 8;
        if !crate::signal::write_value(sp, &insn.next_ip()) {
            crate::signal::raise_access_fault(ctx, sp, true, true);
            return;
        }
        ctx.gpr[4] = sp;
    }
    ctx.rip = target;
    crate::dispatch::resume_at_rip(ctx);
}

/// Says what cannot be done, and ends.
pub fn unsupported(ctx: &mut ThreadContext) -> ! {
    let insn = decode(ctx.rip);
    let text = format!(
        "the program executes {:?} at {:#x}, which cannot be translated (32-bit system calls, far transfers and use of the GS segment are not supported)",
        insn.code(),
        ctx.rip
    );
    crate::fatal_unsupported(&text)
}
