//! Accesses whose extent only run time shows: strings, masks, gathers, bit strings, state areas;
//! and accesses and write-backs in granules that tracked memory shares with other memory.
//!
//! ```text
//!  SITE_BEGIN ─▶ which bytes? ─▶ none tracked ─▶ the instruction as it is
//!                             └▶ shift the operand to the alias, take the ring lock
//!                                ─▶ the instruction on the alias ─▶ SITE_END ─▶ shift back, append
//! ```
//! Gathers and scatters, whose lanes may lie anywhere, are performed by `brownout-insn` on a
//! register image.

use super::regions::REGIONS;
use super::ring::Writer;
use super::site::Site;
use super::stacks;
use super::under_way::{Bounce, State};
use crate::address::{AliasAddr, Distance, ProgramAddr, Reach};
use crate::context::ThreadContext;
use crate::sigdata::UContext;
use crate::sync::SpinLock;
use alloc::vec::Vec;
use brownout_abi::kind;
use brownout_insn::{Access, MemoryForm, RegisterState, SegmentBases, XsaveLayout};
use core::arch::asm;

/// Number of `step`-byte elements from `addr` on that are all tracked by one mapping, or all not
/// tracked.
fn uniform(addr: u64, step: u64, down: bool) -> u64 {
    let regions = REGIONS.lock();
    let (low, high) = match regions.find(addr) {
        Some(r) => (r.start, r.end),
        None => (
            regions
                .list
                .iter()
                .rev()
                .find(|r| r.end <= addr)
                .map_or(0, |r| r.end),
            regions
                .list
                .iter()
                .find(|r| r.start > addr)
                .map_or(u64::MAX, |r| r.start),
        ),
    };
    if down {
        if addr.saturating_add(step) > high {
            0
        } else {
            (addr - low) / step + 1
        }
    } else {
        (high - addr) / step
    }
}

fn refuse_straddling(pc: ProgramAddr) -> ! {
    crate::fatal_unsupported(&alloc::format!(
        "the instruction at {pc:?} accesses persistent and other memory at once"
    ))
}

const RAX: usize = 0;
const RCX: usize = 1;
const RSI: usize = 6;
const RDI: usize = 7;

/// The direction flag.
const DIRECTION: u64 = 0x400;
/// Comparisons of a string instruction whose loads are told at a time.
const COMPARISONS_MAX: u64 = 4096;

/// Bytes of a standard-format image of what AVX-512 machines have; AMX is not used by these forms.
const XSAVE_LEN: usize = 4096;
/// x87, SSE, AVX, opmask, ZMM_Hi256, Hi16_ZMM.
const XSAVE_MASK: u64 = 0xe7;

/// The components of `XSAVE_MASK` that the program may use.
fn xsave_mask() -> u64 {
    crate::mode().hidden.hide_in_xcr0(XSAVE_MASK)
}

#[repr(C, align(64))]
struct Image([u8; XSAVE_LEN]);

/// What the processor said when first asked: CPUID leaves a virtual machine and takes microseconds.
static LAYOUT: SpinLock<Option<XsaveLayout>> = SpinLock::new(None);

fn layout() -> XsaveLayout {
    *LAYOUT.lock().get_or_insert_with(ask_layout)
}

fn ask_layout() -> XsaveLayout {
    XsaveLayout::from_cpuid(crate::insn::xgetbv(0) & xsave_mask(), |leaf, sub| {
        let r = brownout_abi::cpu::cpuid(leaf, sub);
        [r.eax, r.ebx, r.ecx, r.edx]
    })
}

/// The program's vector state: the wide parts are still in the CPU, the low parts of xmm0–15 in the
/// context.
fn capture(ctx: &ThreadContext, image: &mut Image) {
    // SAFETY: a 64-aligned buffer large enough for these components.
    unsafe {
        asm!("xsave64 [{}]", in(reg) image.0.as_mut_ptr(), in("eax") xsave_mask() as u32, in("edx") 0, options(nostack));
    }
    for (i, x) in ctx.xmm.iter().enumerate() {
        image.0[160 + 16 * i..][..8].copy_from_slice(&x[0].to_le_bytes());
        image.0[168 + 16 * i..][..8].copy_from_slice(&x[1].to_le_bytes());
    }
    // SSE is in use from here on.
    image.0[512] |= 2;
}

fn restore(ctx: &mut ThreadContext, image: &Image) {
    for (i, x) in ctx.xmm.iter_mut().enumerate() {
        let at = 160 + 16 * i;
        x[0] = u64::from_le_bytes(image.0[at..at + 8].try_into().expect("8 bytes"));
        x[1] = u64::from_le_bytes(image.0[at + 8..at + 16].try_into().expect("8 bytes"));
    }
    // SAFETY: an image that XSAVE made, changed only in register contents.
    unsafe {
        asm!("xrstor64 [{}]", in(reg) image.0.as_ptr(), in("eax") xsave_mask() as u32, in("edx") 0, options(nostack, readonly));
    }
}

fn segments(site: &Site) -> SegmentBases {
    let fs = if site.insn.segment_prefix() == iced_x86::Register::FS {
        crate::insn::fs_base()
    } else {
        0
    };
    SegmentBases { fs, gs: 0 }
}

/// The distance to its alias, if it is tracked.
fn tracked(addr: u64) -> Option<Distance> {
    REGIONS.lock().find(addr).map(|r| r.delta)
}

/// Program memory, tracked or not, that may be bad.
struct Lanes;
impl brownout_insn::Memory for Lanes {
    type Fault = u64;
    fn load(&mut self, addr: u64, to: &mut [u8]) -> Result<(), u64> {
        if crate::sys::read_memory(super::reach(ProgramAddr::new(addr)), to) {
            Ok(())
        } else {
            Err(addr)
        }
    }
    fn store(&mut self, addr: u64, from: &[u8]) -> Result<(), u64> {
        let at = super::reach(ProgramAddr::new(addr));
        // A tracked page that the program itself may not write must fault.
        if crate::sys::write_memory(at, from) {
            Ok(())
        } else {
            Err(addr)
        }
    }
}

/// The instruction of `site` is about to be executed; registers are the program's.
pub fn begin(ctx: &mut ThreadContext, site: &'static Site) {
    ctx.rip = site.pc;
    let bases = segments(site);
    if let MemoryForm::Flush(_) = site.form {
        let addr = brownout_insn::effective_address(&site.insn, &ctx.gpr, bases);
        if tracked(addr).is_none() {
            super::outside::flush(ctx, site, addr);
            ctx.resume = site.original;
            ctx.resume_is_boundary = false;
            return;
        }
    }
    let mut image = Image([0; XSAVE_LEN]);
    let needs_vectors = matches!(
        site.form,
        MemoryForm::Masked(_)
            | MemoryForm::Gather(_)
            | MemoryForm::Scatter(_)
            | MemoryForm::ImplicitRdi(_)
            | MemoryForm::XState(_)
    );
    let mut lay = XsaveLayout::LEGACY;
    if needs_vectors {
        lay = layout();
        capture(ctx, &mut image);
    }
    let gpr = ctx.gpr;
    let mut state = RegisterState {
        gpr: &gpr,
        rflags: ctx.rflags,
        segments: bases,
        xsave: &mut image.0,
        layout: &lay,
    };
    let mut accesses: Vec<Access> = Vec::new();
    if let Err(why) = brownout_insn::element_accesses(&site.insn, &state, &mut |a| accesses.push(a))
    {
        crate::fatal_unsupported(&alloc::format!(
            "the instruction at {:?} touches persistent memory in a way that is not supported: {why}",
            site.pc
        ));
    }
    if let MemoryForm::Flush(_) = site.form {
        // It accesses nothing, but it is about this byte's line.
        accesses.push(Access {
            address: brownout_insn::effective_address(&site.insn, &gpr, bases),
            bytes: 1,
            write: false,
        });
    }
    // The stack part of push and pop is ordinary memory (a stack in tracked memory is refused
    // elsewhere). An empty mask accesses nothing, but the processor may still want the page to be
    // writable.
    let base = match site.form {
        MemoryForm::Masked(_) => brownout_insn::effective_address(&site.insn, &gpr, bases),
        MemoryForm::ImplicitRdi(_) => gpr[RDI],
        _ => 0,
    };
    let touches = tracked(base).is_some()
        || accesses
            .iter()
            .any(|a| tracked(a.address).is_some() || tracked(a.address + a.bytes - 1).is_some());
    if !touches {
        ctx.resume = site.original;
        ctx.resume_is_boundary = false;
        return;
    }
    if matches!(site.form, MemoryForm::Gather(_) | MemoryForm::Scatter(_)) {
        let mut ring = Writer::lock(ctx);
        match brownout_insn::emulate(&site.insn, &mut state, &mut Lanes) {
            Ok(()) => {
                restore(ctx, &image);
                append(ctx, site, &accesses, &mut ring);
                drop(ring);
                ctx.rip = site.next_pc;
                ctx.resume = site.next_code;
                ctx.resume_is_boundary = true;
            }
            Err(brownout_insn::EmulateError::Fault(addr)) => {
                drop(ring);
                restore(ctx, &image);
                let on_stack = crate::insn::is_stack_operand(&site.insn);
                let is_write = matches!(site.form, MemoryForm::Scatter(_));
                crate::faults::raise_access_fault(ctx, addr, is_write, on_stack);
            }
            Err(_) => crate::fatal_unsupported(&alloc::format!(
                "the instruction at {:?} cannot be emulated",
                site.pc
            )),
        }
        return;
    }
    let mut work = State {
        active: true,
        rcx: gpr[RCX],
        rsi: gpr[RSI],
        rdi: gpr[RDI],
        accesses,
        ..State::default()
    };
    let mut shift = |ctx: &mut ThreadContext, i: usize, r: usize, at: u64| {
        if let Some(delta) = tracked(at) {
            work.shifts[i] = (r as u8, delta.get());
            ctx.gpr[r] = ctx.gpr[r].wrapping_add(delta.get());
        }
    };
    match &site.form {
        MemoryForm::String(s) => {
            // Only as far as nothing changes underneath; the rest is another round.
            if s.repeat != brownout_insn::Repeat::Once {
                let step = s.element_bytes as u64;
                let down = ctx.rflags & 0x400 != 0;
                let mut rounds = gpr[RCX];
                if s.reads_source {
                    rounds = rounds.min(uniform(gpr[RSI], step, down));
                }
                if s.reads_destination || s.writes_destination {
                    rounds = rounds.min(uniform(gpr[RDI], step, down));
                }
                if rounds == 0 {
                    refuse_straddling(site.pc);
                }
                if s.reads_destination && crate::mode().loads {
                    rounds = rounds.min(COMPARISONS_MAX);
                }
                work.rest = gpr[RCX] - rounds;
                ctx.gpr[RCX] = rounds;
                work.rcx = rounds;
            }
            if s.reads_source {
                shift(ctx, 0, RSI, gpr[RSI]);
            }
            if s.reads_destination || s.writes_destination {
                shift(ctx, 1, RDI, gpr[RDI]);
            }
        }
        MemoryForm::ImplicitRdi(_) => shift(ctx, 0, RDI, gpr[RDI]),
        MemoryForm::ImplicitRax { .. } => shift(ctx, 0, RAX, gpr[RAX]),
        form => {
            if let MemoryForm::RegisterAddress { .. } = form {
                let r = site.insn.op0_register().full_register().number();
                shift(ctx, 0, r, gpr[r & 15]);
            }
            let addr = brownout_insn::effective_address(&site.insn, &gpr, bases);
            let probe = match form {
                MemoryForm::BitString(b) => {
                    brownout_insn::bit_string_address(&site.insn, b, &gpr, bases)
                }
                _ => addr,
            };
            let scratch = site.scratch as usize;
            work.scratch = Some(gpr[scratch]);
            ctx.gpr[scratch] = addr.wrapping_add(tracked(probe).map_or(0, Distance::get));
            let straddles = work
                .accesses
                .iter()
                .any(|a| tracked(a.address) != tracked(a.address + a.bytes - 1));
            if straddles {
                let MemoryForm::Explicit { effect } = form else {
                    refuse_straddling(site.pc)
                };
                // Partly tracked, partly not: on a copy, which `end` distributes.
                let n = effect.size as usize;
                if n == 0 || n > 64 {
                    refuse_straddling(site.pc);
                }
                let mut copy = alloc::boxed::Box::new(Bounce {
                    bytes: [0; 64],
                    addr,
                    len: n,
                });
                for i in 0..n {
                    let at = super::reach(ProgramAddr::new(addr + i as u64));
                    if !crate::sys::read_memory(at, &mut copy.bytes[i..i + 1]) {
                        ctx.gpr[scratch] = gpr[scratch];
                        let on_stack = crate::insn::is_stack_operand(&site.insn);
                        let at = addr + i as u64;
                        crate::faults::raise_access_fault(ctx, at, effect.write, on_stack);
                        return;
                    }
                }
                ctx.gpr[scratch] = copy.bytes.as_ptr() as u64;
                work.bounce = Some(copy);
            }
        }
    }
    // An access and its record are one: the lock is held in between.
    Writer::lock(ctx).keep();
    if crate::mode().loads && loads_first(site) {
        let mut ring = Writer::adopt(ctx);
        let context = stacks::context(ctx, site, &mut ring);
        for a in work.accesses.iter().filter(|a| !a.write && is_there(a)) {
            append_one(ctx, site, context, kind::LOAD, a, &mut ring);
        }
        ring.keep();
    }
    ctx.irregular = work;
    ctx.resume = site.redirected;
    ctx.resume_is_boundary = false;
}

/// The redirected instruction was executed.
pub fn end(ctx: &mut ThreadContext, site: &'static Site) {
    let work = core::mem::take(&mut ctx.irregular);
    for (r, delta) in work.shifts {
        ctx.gpr[r as usize] = ctx.gpr[r as usize].wrapping_sub(delta);
    }
    if let Some(v) = work.scratch {
        ctx.gpr[site.scratch as usize] = v;
    }
    if let Some(b) = &work.bounce {
        for i in 0..b.len {
            crate::sys::write_memory(
                super::reach(ProgramAddr::new(b.addr + i as u64)),
                &b.bytes[i..i + 1],
            );
        }
    }
    let mut accesses = work.accesses;
    if let MemoryForm::String(s) = &site.form {
        // How far did it get?
        let iterations = match s.repeat {
            brownout_insn::Repeat::Once => 1,
            _ => work.rcx.wrapping_sub(ctx.gpr[RCX]),
        };
        accesses.clear();
        let mut before = ctx.gpr;
        before[RCX] = work.rcx;
        before[RSI] = work.rsi;
        before[RDI] = work.rdi;
        string_accesses(site, s, &before, ctx.rflags, iterations, &mut accesses);
    }
    let mut ring = Writer::adopt(ctx);
    append(ctx, site, &accesses, &mut ring);
    drop(ring);
    // `repe` and `repne` may have ended early for good: the zero flag says so.
    let ended = match &site.form {
        MemoryForm::String(s) => {
            let zero = ctx.rflags & 0x40 != 0;
            ctx.gpr[RCX] != 0
                || s.repeat == brownout_insn::Repeat::WhileEqual && !zero
                || s.repeat == brownout_insn::Repeat::WhileNotEqual && zero
        }
        _ => true,
    };
    ctx.gpr[RCX] = ctx.gpr[RCX].wrapping_add(work.rest);
    if work.rest != 0 && !ended {
        ctx.rip = site.pc;
        return crate::blocks::resume_at_rip(ctx);
    }
    ctx.rip = site.next_pc;
    ctx.resume = site.next_code;
    ctx.resume_is_boundary = true;
}

/// The redirected instruction faulted: give the program its registers. A string instruction may
/// have got part of the way; what it stored is appended. False if none was under way.
pub fn undo(ctx: &mut ThreadContext, site: &'static Site, uc: &mut UContext) -> bool {
    let work = core::mem::take(&mut ctx.irregular);
    if !work.active {
        return false;
    }
    for (r, delta) in work.shifts {
        if delta != 0 {
            let v = uc.m.gpr(r);
            *v = v.wrapping_sub(delta);
        }
    }
    if let Some(v) = work.scratch {
        *uc.m.gpr(site.scratch) = v;
    }
    if let MemoryForm::String(s) = &site.form {
        let done = work.rcx.wrapping_sub(uc.m.rcx);
        uc.m.rcx = uc.m.rcx.wrapping_add(work.rest);
        if s.repeat != brownout_insn::Repeat::Once && done != 0 {
            for r in 0..16 {
                ctx.gpr[r as usize] = *uc.m.gpr(r);
            }
            let mut before = ctx.gpr;
            (before[RCX], before[RSI], before[RDI]) = (work.rcx, work.rsi, work.rdi);
            let mut accesses = Vec::new();
            string_accesses(site, s, &before, uc.m.eflags, done, &mut accesses);
            let mut ring = Writer::adopt(ctx);
            append(ctx, site, &accesses, &mut ring);
            ring.keep();
        }
    }
    true
}

/// What a string instruction has accessed in so many repetitions that began with these registers.
///
/// Those that compare stop at what they find. Their loads are told one by one, in the order in
/// which they were made: so that each is a function of what those before have seen, as it would be
/// in a loop of ordinary instructions.
fn string_accesses(
    site: &Site,
    string: &brownout_insn::StringOperation,
    before: &[u64; 16],
    rflags: u64,
    iterations: u64,
    accesses: &mut Vec<Access>,
) {
    use brownout_insn::Repeat;
    let compares = matches!(string.repeat, Repeat::WhileEqual | Repeat::WhileNotEqual);
    let (rounds, each) = match compares {
        true if crate::mode().loads => (iterations, 1),
        true => (0, 0),
        false => (1, iterations),
    };
    let element = u64::from(string.element_bytes);
    let step = match rflags & DIRECTION {
        0 => element,
        _ => element.wrapping_neg(),
    };
    let mut registers = *before;
    for _ in 0..rounds {
        let (insn, bases) = (&site.insn, segments(site));
        brownout_insn::string_accesses(insn, &registers, rflags, bases, each, &mut |a| {
            accesses.push(a)
        });
        registers[RSI] = registers[RSI].wrapping_add(step);
        registers[RDI] = registers[RDI].wrapping_add(step);
    }
}

fn effect(site: &Site) -> Option<brownout_insn::Effect> {
    Some(match &site.form {
        MemoryForm::Explicit { effect } | MemoryForm::ImplicitRax { effect } => *effect,
        MemoryForm::Masked(m) => m.effect,
        MemoryForm::Gather(v) | MemoryForm::Scatter(v) => v.effect,
        MemoryForm::ImplicitRdi(b) => b.effect,
        MemoryForm::BitString(b) => b.effect,
        MemoryForm::XState(x) => x.effect,
        MemoryForm::RegisterAddress { destination, .. } => *destination,
        _ => return None,
    })
}

/// Whether what it loads must be recorded before it runs, because it stores to the same place. (A
/// locked instruction is one event. Strings and vectors of addresses load from elsewhere than they
/// store to.)
fn loads_first(site: &Site) -> bool {
    site.form.reads()
        && site.form.writes()
        && effect(site).is_some_and(|e| !e.locked)
        && !matches!(
            site.form,
            MemoryForm::RegisterAddress { .. } | MemoryForm::Scatter(_) | MemoryForm::Gather(_)
        )
}

/// Whether all of it can be read. If not (behind the end of the file), the instruction will fault
/// and has loaded nothing.
fn is_there(a: &Access) -> bool {
    let last = a.address + a.bytes.max(1) - 1;
    let pages = (a.address >> 12) + 1..=last >> 12;
    core::iter::once(a.address)
        .chain(pages.map(|page| page << 12))
        .all(|at| crate::sys::read_memory(super::reach(ProgramAddr::new(at)), &mut [0]))
}

fn append(ctx: &mut ThreadContext, site: &Site, accesses: &[Access], ring: &mut Writer) {
    let e = effect(site);
    let context = stacks::context(ctx, site, ring);
    if let MemoryForm::Flush(_) = site.form {
        for a in accesses {
            // It has no content.
            ring.site(ctx, site, context, a.address, Reach::alias(AliasAddr::NONE));
        }
        if site.unfenced != 2 {
            ctx.unfenced = site.unfenced.into();
        }
        return;
    }
    let store = match e {
        Some(e) if e.locked => kind::RMW,
        Some(e) if e.non_temporal => kind::NT_STORE,
        _ => kind::STORE,
    };
    for a in accesses {
        if a.write {
            append_one(ctx, site, context, store, a, ring);
        } else if crate::mode().loads && !loads_first(site) {
            append_one(ctx, site, context, kind::LOAD, a, ring);
        }
    }
    if store == kind::NT_STORE {
        ctx.unfenced = 1;
    } else if store == kind::RMW {
        ctx.unfenced = 0;
    }
}

fn append_one(
    ctx: &ThreadContext,
    site: &Site,
    context: u32,
    kind: u8,
    a: &Access,
    ring: &mut Writer,
) {
    // Cut to what is tracked: an access may run over the end of a mapping.
    let list: Vec<(u64, u64, Distance)> = {
        let regions = REGIONS.lock();
        regions
            .list
            .iter()
            .filter(|r| r.start < a.address + a.bytes && r.end > a.address)
            .map(|r| {
                (
                    r.start.max(a.address),
                    r.end.min(a.address + a.bytes),
                    r.delta,
                )
            })
            .collect()
    };
    let elements = elements(ctx, site, kind, a);
    for (start, end, delta) in list {
        let (alias, len) = (
            Reach::alias(delta.alias_of(ProgramAddr::new(start))),
            end - start,
        );
        match elements {
            Some(elements) => {
                ring.string_store(ctx, site.id, context, elements, start, alias, len);
            }
            None => ring.access(ctx, kind, site.id, context, start, alias, len),
        }
    }
}

/// For what a repeated string instruction has stored: its elements, if it makes a difference that
/// it was several. The direction flag is the program's own, and the instruction does not change it.
fn elements(ctx: &ThreadContext, site: &Site, record: u8, a: &Access) -> Option<u64> {
    let MemoryForm::String(s) = &site.form else {
        return None;
    };
    let element = u64::from(s.element_bytes);
    let is_down = ctx.rflags & DIRECTION != 0;
    // Whole words in ascending order is what any long store is taken for.
    let is_plain = element == 8 && a.address.is_multiple_of(8) && !is_down;
    let is_string = record == kind::STORE && a.bytes > element && !is_plain;
    is_string.then_some(element | (is_down as u64) << 8)
}

/// In a forked child other threads' locks are nobody's.
pub fn reset_after_fork() {
    LAYOUT.reset_after_fork();
}
