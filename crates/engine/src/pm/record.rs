//! What engine code records on behalf of the instruction at which a thread stands.

use super::regions::{self, REGIONS, is_tracked, reach};
use super::ring::Writer;
use super::{site, stacks};
use crate::address::ProgramAddr;
use crate::context::ThreadContext;
use crate::sys;
use alloc::vec::Vec;
use brownout_abi::kind;
use core::sync::atomic::{AtomicBool, Ordering};

/// The right to append on behalf of the instruction at which a thread stands, with what all its
/// records have: thread, site and calling context. Addresses are the program's; where their content
/// is, that is, at which alias, is found here and nowhere else.
pub struct Here<'c> {
    ring: Writer,
    ctx: &'c ThreadContext,
    site: u32,
    context: u32,
}

impl<'c> Here<'c> {
    /// Waits for the right, and finds out how the program came here.
    pub fn new(ctx: &'c mut ThreadContext) -> Here<'c> {
        let site = site::pseudo(ctx.rip);
        let mut ring = Writer::lock(ctx);
        let context = stacks::context(ctx, site, &mut ring);
        Here {
            ring,
            ctx,
            site: site.id,
            context,
        }
    }

    /// For the block of code at `pc`, which nobody has called yet.
    fn at_code(ctx: &'c mut ThreadContext, pc: ProgramAddr) -> Here<'c> {
        Here {
            site: site::pseudo(pc).id,
            ring: Writer::lock(ctx),
            ctx,
            context: 0,
        }
    }

    /// An event that is not an access.
    pub fn event(&mut self, which: u64, words: [u64; 6], text: &[u8]) {
        self.ring
            .rare(self.ctx, self.site, self.context, which, words, text);
    }

    /// Tracked memory was read.
    pub fn load(&mut self, addr: u64, len: u64) {
        let (load, alias) = (kind::LOAD, reach(ProgramAddr::new(addr)));
        let (site, context) = (self.site, self.context);
        self.ring
            .access(self.ctx, load, site, context, addr, alias, len);
    }

    /// Tracked memory was written by system call `number`.
    pub fn kernel_store(&mut self, number: u64, addr: u64, len: u64) {
        let alias = reach(ProgramAddr::new(addr));
        let (site, context) = (self.site, self.context);
        self.ring
            .kernel_store(self.ctx, site, context, number, addr, alias, len);
    }
}

/// An event that is not an access.
pub fn event(ctx: &mut ThreadContext, which: u64, words: [u64; 6], text: &[u8]) {
    Here::new(ctx).event(which, words, text);
}

/// Engine code wrote to program memory in the kernel's stead.
pub fn kernel_wrote(ctx: &mut ThreadContext, addr: u64, len: u64) {
    if !crate::mode().record || !regions::any() || REGIONS.lock().find(addr).is_none() {
        return;
    }
    let number = ctx.gpr[0];
    Here::new(ctx).kernel_store(number, addr, len);
}

/// A load that engine code made for the program.
pub fn record_load(ctx: &mut ThreadContext, addr: u64, size: u32) {
    if is_tracked(addr) {
        Here::new(ctx).load(addr, size as u64);
    }
}

/// Code in tracked memory that was translated and is not recorded as read yet.
static CODE: crate::sync::SpinLock<Vec<(ProgramAddr, ProgramAddr)>> =
    crate::sync::SpinLock::new(Vec::new());
static CODE_WAITS: AtomicBool = AtomicBool::new(false);

/// A block of code is being translated. The engine's lock is held, so the record has to wait.
pub fn code_is_read(start: ProgramAddr, end: ProgramAddr) {
    if crate::mode().loads && regions::any() && REGIONS.lock().overlaps(start.get(), end.get()) {
        CODE.lock().push((start, end));
        CODE_WAITS.store(true, Ordering::Relaxed);
    }
}

/// Records the code that was translated since: executing it is reading it.
pub fn code_was_read(ctx: &mut ThreadContext) {
    if !CODE_WAITS.load(Ordering::Relaxed) {
        return;
    }
    CODE_WAITS.store(false, Ordering::Relaxed);
    let blocks = core::mem::take(&mut *CODE.lock());
    for (start, end) in blocks {
        let mut here = Here::at_code(ctx, start);
        // Line by line: where an instruction, and the block, ends depends on what was read before.
        // So that reads are a function of what they have seen, each is of a whole line.
        for (start, end) in readable_parts(start.get() & !63, end.get().next_multiple_of(64)) {
            for line in (start..end).step_by(64) {
                here.load(line, 64);
            }
        }
    }
}

/// Records what the faulting instruction at `ctx.rip` has read of tracked memory.
pub fn read_by_the_dying(ctx: &mut ThreadContext) {
    if !crate::mode().loads {
        return;
    }
    let insn = crate::insn::decode(ctx.rip);
    let has_memory = (0..insn.op_count()).any(|i| insn.op_kind(i) == iced_x86::OpKind::Memory);
    let start = crate::insn::effective_address(ctx, &insn);
    if !has_memory || REGIONS.lock().find(start).is_none() {
        return;
    }
    let mut here = Here::new(ctx);
    let end = REGIONS.lock().find(start).map_or(start, |r| r.end);
    let size = (insn.memory_size().size() as u64).min(end - start);
    here.load(start, size);
}

/// What of a range can be read: a failed call is reported as if it had written all, which may reach
/// beyond the end of the file.
pub fn readable_parts(start: u64, end: u64) -> Vec<(u64, u64)> {
    let mut parts: Vec<(u64, u64)> = Vec::new();
    let mut at = start;
    while at < end {
        let next = ((at | 4095) + 1).min(end);
        let mut probe = [0u8];
        // Another thread may have unmapped it meanwhile: then it is not the stream's any more.
        if is_tracked(at) && sys::read_memory(reach(ProgramAddr::new(at)), &mut probe) {
            match parts.last_mut() {
                Some(p) if p.1 == at => p.1 = next,
                _ => parts.push((at, next)),
            }
        }
        at = next;
    }
    parts
}

/// In a forked child other threads' locks are nobody's.
pub fn reset_after_fork() {
    CODE.reset_after_fork();
}
