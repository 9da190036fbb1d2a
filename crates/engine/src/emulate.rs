//! Instructions that the engine performs itself, and those that it must refuse.

use crate::address::ProgramAddr;
use crate::context::ThreadContext;
use crate::insn::{decode, set_register};
use crate::machine::Machine;
use crate::translate::{Goes, Interpreted};
use alloc::format;
use iced_x86::{Code, FlowControl, Instruction, Mnemonic, OpKind};

/// Performs the instruction at `ctx.rip`, `len` bytes long.
pub fn handle(ctx: &mut ThreadContext, len: u64) {
    let insn = decode(ctx.rip);
    let next = ctx.rip + len;
    match insn.code() {
        Code::Iretq
        | Code::Iretd
        | Code::Retfq
        | Code::Retfd
        | Code::Retfq_imm16
        | Code::Retfd_imm16 => return far_return(ctx, &insn),
        Code::Jmp_m1632 | Code::Call_m1632 => return far_branch(ctx, &insn),
        _ => {}
    }
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
    crate::follow::ended(ctx);
    ctx.rip = ProgramAddr::new(target);
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
        goes @ (Goes::On | Goes::Here) => {
            ctx.rip = match goes {
                Goes::Here => ProgramAddr::of(&it.insn),
                _ => ProgramAddr::behind(&it.insn),
            };
            ctx.resume = it.next_code;
            ctx.resume_is_boundary = true;
        }
        Goes::To(pc) => {
            crate::follow::ended(ctx);
            ctx.rip = pc;
            crate::blocks::resume_at_rip(ctx);
        }
    }
}

/// Selectors of 64-bit user code and of its stack, the only ones that the kernel gives a program by
/// default.
const USER_CODE: u64 = 0x33;
const USER_STACK: u64 = 0x2b;

/// A word of the program's, 4 or 8 bytes long.
fn read_word(ctx: &mut ThreadContext, addr: u64, size: u64) -> Option<u64> {
    let mut word = 0u64;
    let mut half = 0u32;
    let read = match size {
        4 => crate::values::read_value(addr, &mut half),
        _ => crate::values::read_value(addr, &mut word),
    };
    if !read {
        crate::faults::raise_access_fault(ctx, addr, false, true);
        return None;
    }
    if crate::mode().loads {
        crate::pm::record_load(ctx, addr, size as u32);
    }
    Some(word | u64::from(half))
}

/// `retf` and `iret` within 64-bit code.
fn far_return(ctx: &mut ThreadContext, insn: &Instruction) {
    let size = match insn.code() {
        Code::Iretd | Code::Retfd | Code::Retfd_imm16 => 4,
        _ => 8,
    };
    let is_iret = insn.mnemonic() != Mnemonic::Retf;
    let mut frame = [0u64; 5];
    let words = if is_iret { 5 } else { 2 };
    for (i, word) in frame[..words].iter_mut().enumerate() {
        match read_word(ctx, ctx.gpr[4] + size * i as u64, size) {
            Some(value) => *word = value,
            None => return,
        }
    }
    let [rip, code, flags, rsp, stack] = frame;
    if code as u16 as u64 != USER_CODE || is_iret && stack as u16 as u64 != USER_STACK {
        unsupported(ctx);
    }
    if is_iret {
        crate::signal::set_flags(ctx, flags);
        ctx.gpr[4] = rsp;
    } else {
        let operands = match insn.op_count() {
            0 => 0,
            _ => u64::from(insn.immediate16()),
        };
        ctx.gpr[4] += 2 * size + operands;
    }
    crate::follow::ended(ctx);
    ctx.rip = ProgramAddr::new(rip);
    crate::blocks::resume_at_rip(ctx);
}

/// `jmp` and `call` by a far pointer with an offset of 32 bits, within 64-bit code.
fn far_branch(ctx: &mut ThreadContext, insn: &Instruction) {
    let addr = crate::insn::effective_address(ctx, insn);
    let (mut offset, mut code) = (0u32, 0u16);
    if !crate::values::read_value(addr, &mut offset)
        || !crate::values::read_value(addr + 4, &mut code)
    {
        let on_stack = crate::insn::is_stack_operand(insn);
        return crate::faults::raise_access_fault(ctx, addr, false, on_stack);
    }
    if crate::mode().loads {
        crate::pm::record_load(ctx, addr, 6);
    }
    if u64::from(code) != USER_CODE {
        unsupported(ctx);
    }
    if insn.mnemonic() == Mnemonic::Call {
        let sp = ctx.gpr[4] - 8;
        let pushed = [insn.next_ip() as u32, USER_CODE as u32];
        if !crate::values::write_value(ctx, sp, &pushed) {
            return crate::faults::raise_access_fault(ctx, sp, true, true);
        }
        ctx.gpr[4] = sp;
    }
    crate::follow::ended(ctx);
    ctx.rip = ProgramAddr::new(offset.into());
    crate::blocks::resume_at_rip(ctx);
}

/// Says what cannot be done, and ends.
pub fn unsupported(ctx: &mut ThreadContext) -> ! {
    let insn = decode(ctx.rip);
    let text = format!(
        "the program executes {:?} at {:?}, which cannot be translated (32-bit code and system calls, far pointers of 80 bits and use of the GS segment are not supported)",
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
