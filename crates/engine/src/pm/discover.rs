//! Faults on tracked memory: they discover which instructions touch it.

use super::regions::{REGIONS, any, original_of};
use crate::address::{AliasAddr, ProgramAddr};
use crate::sys;
use alloc::vec::Vec;

pub enum FaultAnswer {
    /// Something changed: the instruction runs again.
    Retry,
    /// The program's own fault, at this address.
    Program { addr: u64 },
}

/// A fault of the instruction at `pc` (registers are the program's) on data at `addr`, which is the
/// program's address or an alias.
pub fn fault(
    rsp: u64,
    pc: ProgramAddr,
    addr: u64,
    sig: i32,
    in_site: bool,
    write: bool,
) -> FaultAnswer {
    if !crate::mode().record || !any() {
        return FaultAnswer::Program { addr };
    }
    let regions = REGIONS.lock();
    if let Some(r) = regions.find_alias(AliasAddr::new(addr)) {
        // The alias faults as the program's mapping would have: beyond the end of the file, or
        // forbidden.
        return FaultAnswer::Program {
            addr: r.delta.program_of(AliasAddr::new(addr)).get(),
        };
    }
    let Some(r) = regions.find(addr).copied() else {
        // Next to a tracked mapping, in its granule: what is there was looked for at the same
        // distance.
        let original = in_site.then(|| original_of(AliasAddr::new(addr))).flatten();
        let addr = original.map_or(addr, ProgramAddr::get);
        return FaultAnswer::Program { addr };
    };
    drop(regions);
    if sig != crate::sigdata::SIGSEGV || in_site {
        return FaultAnswer::Program { addr };
    }
    let allowed = if write {
        r.prot & sys::PROT_WRITE != 0
    } else {
        r.prot & sys::PROT_READ != 0 && crate::mode().loads
    };
    if !allowed {
        return FaultAnswer::Program { addr };
    }
    if r.start <= rsp && rsp <= r.end && uses_stack(pc) {
        crate::fatal_unsupported("the program runs on a stack in persistent memory");
    }
    if super::site::mark(pc) {
        retranslate(pc);
        return FaultAnswer::Retry;
    }
    // Known already: this thread, or another, was still in the old block.
    if super::site::count_fault(pc) > FAULTS_MAX {
        crate::fatal_unsupported(&alloc::format!(
            "the instruction at {pc:?} touches persistent memory in a way that is not understood"
        ));
    }
    retranslate(pc);
    FaultAnswer::Retry
}

/// Whether the instruction pushes, pops, calls or returns.
fn uses_stack(pc: ProgramAddr) -> bool {
    use iced_x86::FlowControl;
    let insn = crate::insn::decode(pc);
    match insn.flow_control() {
        FlowControl::Call | FlowControl::Return => true,
        FlowControl::IndirectCall => insn.op0_kind() == iced_x86::OpKind::Register,
        _ => matches!(
            brownout_insn::classify(&insn),
            brownout_insn::MemoryForm::StackImplicit
        ),
    }
}

/// Faults of one marked instruction before it counts as not understood: each thread may bring a
/// few, from blocks that it was in when they were replaced.
const FAULTS_MAX: u32 = 10_000;

/// The instruction at `pc` is known to touch tracked memory.
pub fn mark_site(pc: ProgramAddr) {
    if super::site::mark(pc) {
        retranslate(pc);
    }
}

/// Kills the blocks that hold an uninstrumented translation of `pc`. False if there was none.
fn retranslate(pc: ProgramAddr) -> bool {
    let mut e = crate::blocks::ENGINE.lock();
    let ids: Vec<u32> = e.by_page.get(&pc.page()).cloned().unwrap_or_default();
    let mut any = false;
    for id in ids {
        let b = &e.blocks[id as usize];
        if !b.dead
            && b.pc <= pc
            && pc < b.pc_end
            && !b
                .sites
                .iter()
                .any(|s| s.pc == pc && !s.redirected.is_none())
        {
            e.kill(id);
            any = true;
        }
    }
    any
}
