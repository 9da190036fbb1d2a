//! Instructions that the engine performs itself, and those that it must refuse.

use crate::context::ThreadContext;
use crate::insn::{decode, set_register};
use crate::machine::Machine;
use crate::translate::{Goes, Interpreted};
use alloc::format;
use iced_x86::{FlowControl, Instruction, Mnemonic, OpKind};

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
    crate::blocks::resume_at_rip(ctx);
}

/// `call [m]` and `jmp [m]` with the pointer in tracked memory, when loads are recorded.
fn branch_through_memory(ctx: &mut ThreadContext, insn: &Instruction) {
    debug_assert!(insn.op0_kind() == OpKind::Memory);
    let addr = crate::insn::effective_address(ctx, insn);
    let mut target = 0u64;
    if !crate::values::read_value(addr, &mut target) {
        let pc = ctx.rip;
        let on_stack = crate::insn::is_stack_operand(insn);
        crate::faults::raise_access_fault(ctx, addr, false, on_stack);
        ctx.rip = pc;
        return;
    }
    crate::pm::record_load(ctx, addr, 8);
    if insn.flow_control() == FlowControl::IndirectCall {
        let sp = ctx.gpr[4] - 8;
        if !crate::values::write_value(ctx, sp, &insn.next_ip()) {
            crate::faults::raise_access_fault(ctx, sp, true, true);
            return;
        }
        ctx.gpr[4] = sp;
    }
    ctx.rip = target;
    crate::blocks::resume_at_rip(ctx);
}

/// The thread has come to an instruction that Rust code executes; `payload` says which.
pub fn interpret(ctx: &mut ThreadContext, payload: u64) {
    // SAFETY: payloads are made from leaked boxes by the translator.
    let it = unsafe { &*(payload as *const Interpreted) };
    let mut machine = Machine::of(ctx);
    let goes = it.by.execute(&mut machine, &it.insn);
    machine.put_back();
    match goes {
        Goes::On => {
            ctx.rip = it.insn.next_ip();
            ctx.resume = it.next_code;
            ctx.resume_is_boundary = true;
        }
        Goes::To(pc) => {
            ctx.rip = pc;
            crate::blocks::resume_at_rip(ctx);
        }
    }
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

/// A client request at `ctx.rip`: block address in rax, default result in rdx, result to rdx.
pub fn client_request(ctx: &mut ThreadContext) {
    let mut block = [0u64; 6];
    if crate::values::read_value(ctx.gpr[0], &mut block) {
        if crate::pm::is_question(&block) {
            crate::session::before_question(ctx);
        }
        if let Some(result) = crate::pm::client_request(ctx, &block) {
            ctx.gpr[2] = result;
        }
    }
    ctx.rip += crate::requests::PREAMBLE_LEN;
    crate::blocks::resume_at_rip(ctx);
}
