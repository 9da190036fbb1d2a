//! Small facts about instructions that translation needs. (Memory forms: the `brownout-insn`
//! crate.)

use crate::address::ProgramAddr;
use crate::context::ThreadContext;
use brownout_abi::cpu::Feature;
use iced_x86::{FlowControl, Instruction, OpAccess, OpKind, Register};

/// The 64-bit register with hardware number `n`.
pub fn register(n: u8) -> Register {
    const ALL: [Register; 16] = [
        Register::RAX,
        Register::RCX,
        Register::RDX,
        Register::RBX,
        Register::RSP,
        Register::RBP,
        Register::RSI,
        Register::RDI,
        Register::R8,
        Register::R9,
        Register::R10,
        Register::R11,
        Register::R12,
        Register::R13,
        Register::R14,
        Register::R15,
    ];
    ALL[n as usize & 15]
}

/// Registers that the instruction may name or imply, by hardware number.
pub fn gprs_used(insn: &Instruction) -> u16 {
    let mut factory = iced_x86::InstructionInfoFactory::new();
    let info = factory.info(insn);
    info.used_registers().iter().fold(0, |m, u| {
        let r = u.register();
        if r.is_gpr() {
            m | 1 << r.full_register().number()
        } else {
            m
        }
    })
}

/// Address of the explicit memory operand.
pub fn effective_address(ctx: &ThreadContext, insn: &Instruction) -> u64 {
    let op = (0..insn.op_count())
        .find(|&i| insn.op_kind(i) == OpKind::Memory)
        .unwrap_or(0);
    insn.virtual_address(op, 0, |r, _, _| match r {
        Register::FS => Some(fs_base()),
        Register::None => Some(0),
        r if r.is_gpr() => Some(ctx.gpr[r.full_register().number() & 15]),
        _ => Some(0),
    })
    .unwrap_or(0)
}

/// The program's FS base.
pub fn fs_base() -> u64 {
    let mut base = 0u64;
    // SAFETY: ARCH_GET_FS into our own variable.
    unsafe { crate::sys::sc!(crate::sys::nr::ARCH_PRCTL, 0x1003, &mut base as *mut u64) };
    base
}

/// Extended control register `register`, 0 or 1.
pub fn xgetbv(register: u32) -> u64 {
    let (low, high): (u32, u32);
    // SAFETY: XGETBV has no effects; processors with BMI2 have it, and these two registers.
    unsafe {
        core::arch::asm!("xgetbv", in("ecx") register, out("eax") low, out("edx") high, options(nomem, nostack));
    }
    (high as u64) << 32 | low as u64
}

/// What this instruction needs and the program cannot use.
pub fn missing_feature(insn: &Instruction) -> Option<Feature> {
    let missing = crate::mode().missing;
    if missing.is_empty() {
        return None;
    }
    brownout_insn::feature_of(insn).filter(|feature| missing.has(*feature))
}

/// Whether the instruction may write memory.
pub fn writes_memory(insn: &Instruction) -> bool {
    let mut factory = iced_x86::InstructionInfoFactory::new();
    let info = factory.info(insn);
    info.used_memory().iter().any(|m| writes(m.access()))
}

/// Whether the instruction writes no memory and leaves the stack pointer alone, whichever way it
/// goes; or is a return.
pub fn keeps_stack(insn: &Instruction) -> bool {
    match insn.flow_control() {
        FlowControl::Return => true,
        FlowControl::Next | FlowControl::ConditionalBranch | FlowControl::UnconditionalBranch => {
            let mut factory = iced_x86::InstructionInfoFactory::new();
            let info = factory.info(insn);
            !info.used_memory().iter().any(|m| writes(m.access()))
                && !info
                    .used_registers()
                    .iter()
                    .any(|u| u.register().full_register() == Register::RSP && writes(u.access()))
        }
        _ => false,
    }
}

fn writes(access: OpAccess) -> bool {
    use OpAccess::*;
    matches!(access, Write | CondWrite | ReadWrite | ReadCondWrite)
}

/// Whether the memory operand is in the stack segment, by its base register: a bad address is
/// another fault there.
pub fn is_stack_operand(insn: &Instruction) -> bool {
    insn.memory_segment() == Register::SS
}

/// The program's instruction at `pc`.
pub fn decode(pc: ProgramAddr) -> Instruction {
    let mut bytes = [0u8; 15];
    let mut n = 15;
    while n > 0 && !crate::copy::read_memory(crate::pm::reach(pc), &mut bytes[..n]) {
        n -= 1;
    }
    iced_x86::Decoder::with_ip(64, &bytes[..n], pc.get(), iced_x86::DecoderOptions::NONE).decode()
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

pub fn is_flush(insn: &Instruction) -> bool {
    use iced_x86::Mnemonic;
    matches!(
        insn.mnemonic(),
        Mnemonic::Clflush | Mnemonic::Clflushopt | Mnemonic::Clwb
    )
}

/// Whether a thread that comes to it may lose its turn, where threads take turns, whatever memory
/// it touches.
pub fn always_asks(insn: &Instruction) -> bool {
    insn.mnemonic() == iced_x86::Mnemonic::Pause
        || brownout_insn::fence(insn).is_some()
        || is_flush(insn)
}
