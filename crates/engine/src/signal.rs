//! Signals: the program sees them at its own instruction boundaries, with its own registers.
//!
//! ```text
//!  kernel ─▶ signal_handler (own stack, all asynchronous signals blocked)
//!     at a boundary in the cache ─────────────▶ deliver now
//!     inside an emitted sequence ─▶ pending, single-step to a boundary ─▶ deliver
//!     in engine code ─▶ pending ─▶ `bo_safepoint` on the way back ─▶ deliver
//!  deliver = copy the kernel's frame to the program's stack, with the program's registers, and go on in its handler
//! ```
//! While one signal is pending all asynchronous ones stay blocked, so the kernel queues the rest.
//! Our handlers carry `SA_RESTART` exactly when the program's does: the kernel then decides about
//! restarting, and a restarted call shows as "not yet made" (`bo_syscall_insn`), which is what the
//! program re-executes.
//!
//! SIGSEGV, SIGBUS, SIGTRAP, SIGILL and SIGFPE are always ours and never really blocked; the
//! program's idea of them is kept in `handlers` and `blocked_sync`. One that is sent while the
//! program believes it blocked is held: by the thread that it was sent to, or for the process.

use crate::address::{CacheAddr, ProgramAddr, Reach};
use crate::asm;
use crate::block::Saved;
use crate::blocks::{ENGINE, code_for};
use crate::context::{
    AltStack, Interrupted, OwnStep, Peer, SIGNAL_STACK_LEN, ThreadContext, off, slot,
};
use crate::dispositions::{SIG_DFL, action, action_in};
use crate::dispositions::{block_all, kills, set_mask};
use crate::faults::{PAGE_FAULT, PRESENT, fetch_fault};
use crate::sigdata::*;
use crate::sys::{self, nr, sc};
use crate::values::{read_value, write_value};
use brownout_abi::cpu::{FEATURES, HIDE_VARIABLE};
use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};

const SA_SIGINFO: u64 = 4;
const SA_RESTORER: u64 = 0x0400_0000;
const SA_ONSTACK: u64 = 0x0800_0000;
const SA_RESTART: u64 = 0x1000_0000;
const SA_NODEFER: u64 = 0x4000_0000;
const SA_RESETHAND: u64 = 0x8000_0000;
const SA_NOCLD: u64 = 3;
const SIG_IGN: u64 = 1;
const SS_DISABLE: i32 = 2;
const SS_ONSTACK: i32 = 1;
const SS_AUTODISARM: i32 = 1 << 31;
const TF: u64 = 0x100;
const SEGV_MAPERR: u64 = 1;
const DF: u64 = 0x400;
const RF: u64 = 0x1_0000;

/// One that was sent to the process, while all its threads blocked it. No lock: a signal may
/// interrupt whoever looks.
struct HeldSlot {
    /// [`EMPTY`], [`CHANGING`] or the process that has it. (Processes that share memory share
    /// this.)
    state: AtomicU32,
    info: UnsafeCell<SigInfo>,
}

// SAFETY: `info` is only touched by whoever has changed `state` to `CHANGING`.
unsafe impl Sync for HeldSlot {}

const EMPTY: u32 = 0;
const CHANGING: u32 = u32::MAX;

impl HeldSlot {
    const fn new() -> HeldSlot {
        HeldSlot {
            state: AtomicU32::new(EMPTY),
            info: UnsafeCell::new(SigInfo { words: [0; 16] }),
        }
    }

    fn is_of(&self, group: u32) -> bool {
        self.state.load(Ordering::Acquire) == group
    }

    fn change(&self, from: u32) -> bool {
        let order = (Ordering::Acquire, Ordering::Relaxed);
        let changed = self
            .state
            .compare_exchange(from, CHANGING, order.0, order.1);
        changed.is_ok()
    }

    fn put(&self, group: u32, info: &SigInfo) -> bool {
        if !self.change(EMPTY) {
            return false;
        }
        // SAFETY: see `Sync`.
        unsafe { *self.info.get() = *info };
        self.state.store(group, Ordering::Release);
        true
    }

    fn take(&self, group: u32) -> Option<SigInfo> {
        if !self.change(group) {
            return None;
        }
        // SAFETY: see `Sync`.
        let info = unsafe { *self.info.get() };
        self.state.store(EMPTY, Ordering::Release);
        Some(info)
    }
}

static HELD: [HeldSlot; SYNC.len()] = [const { HeldSlot::new() }; SYNC.len()];

/// In a forked child nothing waits.
pub fn reset_after_fork(ctx: &mut ThreadContext) {
    ctx.held = Held::default();
    for slot in &HELD {
        slot.state.store(EMPTY, Ordering::Relaxed);
    }
}

/// Holds a synchronous signal that the thread blocks, unless another thread takes it.
fn hold(it: Interrupted, sig: i32, info: &SigInfo) {
    let me = it.peer();
    let Some(i) = SYNC.iter().position(|s| *s == sig) else {
        return;
    };
    // kill() and sigqueue(); what is for one thread has another code (SI_TKILL).
    if matches!(info.code(), 0 | SI_QUEUE) {
        let takes_it = |other: &Peer| {
            other.group() == me.group()
                && other.tid() != me.tid()
                && other.blocked_sync() & bit(sig) == 0
        };
        if HELD[i].is_of(me.group()) || HELD[i].put(me.group(), info) {
            if let Some(other) = ThreadContext::all().find(takes_it) {
                // The kernel lets nobody pass a signal on as it is.
                let hint = SigInfo::fault(sig, TAKE_HELD, 0);
                send(me.group(), other.tid(), sig, &hint);
            }
            return;
        }
    }
    it.hold(i, info);
}

const SI_QUEUE: i32 = -1;
/// Code by which a thread tells another one that a signal is held for the process that the other
/// does not block.
const TAKE_HELD: i32 = -0x626f;

fn send(group: u32, tid: u32, sig: i32, info: &SigInfo) -> i64 {
    // SAFETY: sends to a thread of this process.
    unsafe { sc!(nr::RT_TGSIGQUEUEINFO, group, tid, sig, info as *const _) }
}

/// Which synchronous signals are held for this thread.
fn held(ctx: &ThreadContext) -> u64 {
    let shared = SYNC.iter().zip(&HELD);
    shared
        .filter(|(_, slot)| slot.is_of(ctx.group))
        .fold(ctx.held.mask(), |m, (s, _)| m | bit(*s))
}

/// Takes a held signal that is in `set`.
fn take_held(ctx: &mut ThreadContext, set: u64) -> Option<(i32, SigInfo)> {
    SYNC.iter().enumerate().find_map(|(i, sig)| {
        if set & bit(*sig) == 0 {
            return None;
        }
        let own = ctx.held.infos[i].take();
        let info = own.or_else(|| HELD[i].take(ctx.group))?;
        Some((*sig, info))
    })
}

// ---------------------------------------------------------------- set-up

/// First set-up of the process.
pub fn init_process(ctx: &mut ThreadContext, launch: &brownout_abi::Launch) {
    let handlers = alloc::boxed::Box::leak(alloc::boxed::Box::new(SignalHandlers {
        actions: [SigAction::default(); 65],
        ours: 0,
    }));
    for sig in SYNC {
        let mut old = SigAction::default();
        // SAFETY: query only.
        unsafe { sc!(nr::RT_SIGACTION, sig, 0, &mut old as *mut _, 8) };
        if launch.ignored_sync & bit(sig) != 0 {
            old.handler = SIG_IGN;
        }
        handlers.actions[sig as usize] = old;
        handlers.ours |= 1 << sig;
        install(sig, &old);
    }
    ctx.handlers = handlers;
    let mut mask = 0u64;
    // SAFETY: query only.
    unsafe { sc!(nr::RT_SIGPROCMASK, 0, 0, &mut mask as *mut u64, 8) };
    ctx.blocked_sync = (mask | launch.blocked_sync) & SYNC_MASK;
    set_mask(mask & !SYNC_MASK);
    ctx.altstack = AltStack {
        sp: 0,
        flags: SS_DISABLE,
        size: 0,
    };
}

/// Set-up of each thread: signals arrive on our stack.
pub fn init_thread(ctx: &ThreadContext) {
    let ss = [ctx.signal_stack(), 0, SIGNAL_STACK_LEN];
    // SAFETY: the stack is part of the context and used for nothing else.
    unsafe { sc!(nr::SIGALTSTACK, ss.as_ptr(), 0) };
}

fn install(sig: i32, action: &SigAction) {
    let sync = SYNC.contains(&sig);
    let real = if !sync && action.handler <= SIG_IGN {
        *action
    } else {
        SigAction {
            handler: asm::bo_signal_entry as *const () as usize as u64,
            // Faults inside our own handler must reach us again: as a bug report, or as the
            // program's stack overflow.
            flags: SA_SIGINFO
                | SA_RESTORER
                | SA_ONSTACK
                | action.flags & (SA_RESTART | SA_NOCLD)
                | if sync { SA_NODEFER } else { 0 },
            restorer: asm::bo_restorer as *const () as usize as u64,
            mask: ALL_ASYNC,
        }
    };
    // SAFETY: our handler, our restorer.
    unsafe { sc!(nr::RT_SIGACTION, sig, &real as *const _, 0, 8) };
}

// ---------------------------------------------------------------- arrival

/// The kernel's way in, by `bo_signal_entry`.
pub extern "C" fn signal_handler(sig: i32, info: &mut SigInfo, uc: &mut UContext) {
    let it = Interrupted::current();
    let code = uc.m.code();
    if sig == SIGTRAP {
        if code == routine(asm::bo_safepoint) + 1 && it.has_pending() {
            // SAFETY: the routine is jumped to when Rust code is done.
            return safepoint(unsafe { it.whole() }, uc);
        }
        if info.code() == TRAP_TRACE {
            // SAFETY: emitted code and assembly are stepped through, up to the first instruction on
            // the way to Rust code.
            let ctx = unsafe { it.whole() };
            return match ctx.stepping {
                true => stepped(ctx, uc),
                false => own_step(ctx, info, uc),
            };
        }
    }
    if SYNC.contains(&sig) && info.code() > 0 {
        if code != routine(asm::bo_syscall_insn) + SYSCALL_LEN {
            return fault(it, sig, info, uc);
        }
        // The kernel's answer to a system call of the program's (`uretprobe`). It cannot be held
        // off.
        if it.peer().blocked_sync() & bit(sig) != 0
            || action_in(it.handlers(), sig).handler == SIG_IGN
        {
            // SAFETY: what was interrupted does not go on.
            let ctx = unsafe { it.whole() };
            crate::pm::dies(ctx, sig, info.addr());
            die(ctx, sig);
        }
    }
    asynchronous(it, sig, info, uc)
}

fn asynchronous(it: Interrupted, sig: i32, info: &SigInfo, uc: &mut UContext) {
    let code = uc.m.code();
    let blocked = it
        .suspend_mask()
        .unwrap_or_else(|| it.peer().blocked_sync());
    let mut taken = None;
    if info.code() == TAKE_HELD
        && let Some(i) = SYNC.iter().position(|s| *s == sig)
    {
        if blocked & bit(sig) == 0 {
            taken = HELD[i].take(it.peer().group());
        }
        if taken.is_none() {
            // Somebody else was faster, or the program has blocked it since.
            return restart_call(uc);
        }
    }
    let info = taken.as_ref().unwrap_or(info);
    if SYNC.contains(&sig) && blocked & bit(sig) != 0 {
        hold(it, sig, info);
        return restart_call(uc);
    }
    let place = if crate::blocks::is_engine(code.get()) {
        None
    } else {
        boundary(code)
    };
    if let Some((pc, true)) = place {
        // SAFETY: emitted code was interrupted.
        let ctx = unsafe { it.whole() };
        left_block(ctx, code);
        uc.m.set_pc(pc);
        let mask = uc.sigmask;
        deliver(ctx, sig, info, uc, mask, None);
        return enter(ctx, uc);
    }
    if it.pending_signal() != 0 {
        // Only a synchronous signal sent by kill() can arrive while another is pending. It is
        // delivered behind that one.
        let i = SYNC.iter().position(|s| *s == sig);
        match i {
            Some(i) => it.hold(i, info),
            None => {
                uc.sigmask = ALL_ASYNC;
                send(it.peer().group(), it.peer().tid(), sig, info);
            }
        }
        return;
    }
    it.set_pending(sig, info, uc.sigmask, it.suspend_mask());
    uc.sigmask = ALL_ASYNC;
    if place.is_some() || asm::is_fast(code) {
        // SAFETY: emitted code, or assembly that it goes through, was interrupted.
        step(unsafe { it.whole() }, uc);
    } else if code >= routine(asm::bo_syscall_check) && code <= routine(asm::bo_syscall_insn) {
        uc.m.set_code(routine(asm::bo_syscall_abort));
    }
}

/// A signal that the program does not see does not end its system call either.
fn restart_call(uc: &mut UContext) {
    let call = routine(asm::bo_syscall_insn);
    if uc.m.code() == call + SYSCALL_LEN && uc.m.rax == -sys::EINTR as u64 {
        uc.m.set_code(call);
        // SAFETY: there RBX points to the number and arguments of the call, and of these registers
        // only RAX has changed.
        uc.m.rax = unsafe { *(uc.m.rbx as *const u64) };
    }
}

/// A routine of the engine's own, as a place where a thread may be.
fn routine(routine: unsafe extern "C" fn()) -> CacheAddr {
    CacheAddr::new(routine as *const () as usize as u64)
}

/// Where in the program the code at an address belongs to, and whether it is exactly a boundary.
/// `None`: not in the cache.
fn boundary(code: CacheAddr) -> Option<(ProgramAddr, bool)> {
    let e = ENGINE.lock();
    e.arenas.find(code)?;
    let place = e.locate(code).map(|l| (l.pc, l.boundary));
    Some(place.unwrap_or((ProgramAddr::NONE, false)))
}

/// The thread is at the boundary at `code`. If a block begins there, which has not told so yet, the
/// one before is over.
fn left_block(ctx: &mut ThreadContext, code: CacheAddr) {
    if crate::follow::on() {
        let begins = ENGINE
            .lock()
            .locate(code)
            .is_some_and(|l| l.block.body == code);
        if begins {
            crate::follow::ended(ctx);
        }
    }
}

/// Makes the next step from where `uc` stands.
fn step(ctx: &mut ThreadContext, uc: &mut UContext) {
    if !ctx.stepping {
        ctx.steps_itself = uc.m.eflags & TF != 0;
    }
    ctx.stepping = true;
    ctx.stepped_from = uc.m.code();
    uc.m.eflags |= TF;
}

fn stop_stepping(ctx: &mut ThreadContext, uc: &mut UContext) {
    // Whose flag it is, only we know.
    if core::mem::take(&mut ctx.stepping) && !ctx.steps_itself {
        uc.m.eflags &= !TF;
    }
}

/// A step that the program makes by its own trap flag. It sees those that end at its own
/// instructions.
fn own_step(ctx: &mut ThreadContext, info: &mut SigInfo, uc: &mut UContext) {
    let code = uc.m.code();
    // The instruction that clears the flag is a step, too. It may have led into an emitted
    // sequence.
    let ends = uc.m.eflags & TF == 0;
    match boundary(code) {
        Some((pc, true)) => {
            if core::mem::take(&mut ctx.own_steps_end) {
                uc.m.eflags &= !TF;
            }
            left_block(ctx, code);
            uc.m.set_pc(pc);
            info.words[2] = pc.get();
            let mask = uc.sigmask;
            deliver(ctx, SIGTRAP, info, uc, mask, None);
            enter(ctx, uc)
        }
        place if place.is_some() || asm::is_fast(code) => {
            ctx.own_steps_end |= ends;
            uc.m.eflags |= TF;
        }
        // Engine code is not stepped through; `safepoint` goes on.
        _ => {
            ctx.own_steps_end |= ends;
            ctx.own_step = OwnStep::Complete;
            uc.m.eflags &= !TF;
        }
    }
}

const TRAP_TRACE: i32 = 2;
/// Vector of the debug exception.
const DEBUG: u64 = 1;

/// One single step was made.
fn stepped(ctx: &mut ThreadContext, uc: &mut UContext) {
    if !ctx.steps_itself {
        hide_trap_flag(ctx.stepped_from, uc.m.rsp);
    }
    let code = uc.m.code();
    match boundary(code) {
        Some((pc, true)) => {
            stop_stepping(ctx, uc);
            left_block(ctx, code);
            uc.m.set_pc(pc);
            if uc.m.eflags & TF != 0 {
                ctx.pending.fault = Some(own_trap(pc));
            }
            deliver_pending(ctx, uc);
            enter(ctx, uc)
        }
        Some((_, false)) => step(ctx, uc),
        None if asm::is_fast(code) && code != routine(asm::bo_safepoint) => step(ctx, uc),
        // On its way into engine code, which will find the pending signal.
        None => stop_stepping(ctx, uc),
    }
}

/// The instruction at `code` was stepped over. If it is a `pushf` of the program's, it has pushed
/// our trap flag as well.
fn hide_trap_flag(code: CacheAddr, rsp: u64) {
    const PUSHF: u8 = 0x9C;
    const INSN_LEN_MAX: u64 = 15;
    let is_prefix = |byte: u8| {
        matches!(
            byte,
            0x26 | 0x2E | 0x36 | 0x3E | 0x40..=0x4F | 0x64..=0x67 | 0xF2 | 0xF3
        )
    };
    // SAFETY: code that this thread has just executed, in the cache or in the engine.
    let byte = |n: u64| unsafe { *((code + n).get() as *const u8) };
    let opcode = (0..INSN_LEN_MAX).map(byte).find(|b| !is_prefix(*b));
    if opcode != Some(PUSHF) {
        return;
    }
    // TF is bit 0 of the second byte, however wide the push was.
    let (mut second, at) = ([0u8], Reach::untracked(rsp + 1));
    // If the program has unmapped its stack meanwhile, nobody will see the flag.
    if sys::read_memory(at, &mut second) {
        second[0] &= !(TF >> 8) as u8;
        sys::write_memory(at, &second);
    }
}

/// Back from engine code with something pending; all registers are the program's.
fn safepoint(ctx: &mut ThreadContext, uc: &mut UContext) {
    let own = core::mem::take(&mut ctx.own_step);
    if own != OwnStep::No {
        uc.m.eflags |= TF;
        if own == OwnStep::Complete && ctx.resume_is_boundary && ctx.pending.fault.is_none() {
            if core::mem::take(&mut ctx.own_steps_end) {
                uc.m.eflags &= !TF;
            }
            ctx.pending.fault = Some(own_trap(ctx.rip));
        } else if !ctx.pending.is_any() {
            ctx.pending_flag = 0;
            uc.m.set_code(ctx.resume);
            return;
        }
    }
    if !ctx.resume_is_boundary && ctx.pending.fault.is_none() {
        uc.m.set_code(ctx.resume);
        return step(ctx, uc);
    }
    uc.m.set_pc(ctx.rip);
    deliver_pending(ctx, uc);
    enter(ctx, uc)
}

/// The fault by which the program hears of its own step.
fn own_trap(pc: ProgramAddr) -> Fault {
    Fault {
        info: SigInfo::fault(SIGTRAP, TRAP_TRACE, pc.get()),
        trap: DEBUG,
        error: 0,
    }
}

fn deliver_pending(ctx: &mut ThreadContext, uc: &mut UContext) {
    let fault = ctx.pending.fault.take();
    let (sig, info, mask) = (ctx.pending.sig, ctx.pending.info, ctx.pending.mask);
    let base = ctx.pending.base.take();
    ctx.pending.sig = 0;
    ctx.pending_flag = 0;
    if sig != 0 {
        uc.sigmask = mask;
    }
    if let Some(fault) = fault {
        let mask = uc.sigmask;
        uc.m.trapno = fault.trap;
        uc.m.err = fault.error;
        if fault.trap == PAGE_FAULT {
            uc.m.cr2 = fault.info.addr();
        }
        deliver(ctx, fault.info.signo(), &fault.info, uc, mask, None);
    }
    if sig != 0 {
        let mask = uc.sigmask;
        deliver(ctx, sig, &info, uc, mask, base);
    }
    // Those that came meanwhile: each interrupts the handler before, as the kernel has it.
    while let Some((sig, info)) = take_held(ctx, !ctx.blocked_sync) {
        let mask = uc.sigmask;
        deliver(ctx, sig, &info, uc, mask, None);
    }
}

/// `uc` holds a program state: go on with it in the cache.
fn enter(ctx: &mut ThreadContext, uc: &mut UContext) {
    loop {
        let pc = uc.m.pc();
        crate::follow::broken(ctx, pc, uc.m.rcx);
        match code_for(pc) {
            Some(code) => {
                ctx.rip = pc;
                uc.m.set_code(code);
                return;
            }
            None => {
                let fault = fetch_fault(pc);
                let (info, mask) = (fault.info, uc.sigmask);
                uc.m.cr2 = pc.get();
                uc.m.err = fault.error;
                uc.m.trapno = PAGE_FAULT;
                deliver(ctx, SIGSEGV, &info, uc, mask, None);
            }
        }
    }
}

// ---------------------------------------------------------------- faults

fn fault(it: Interrupted, sig: i32, info: &mut SigInfo, uc: &mut UContext) {
    let code = uc.m.code();
    if let Some(to) = asm::fixup(code) {
        uc.m.set_code(to);
        return;
    }
    let in_cache = !crate::blocks::is_engine(code.get());
    if !in_cache || it.in_engine_write() {
        if it.in_engine_write() {
            // SAFETY: what was interrupted does not go on.
            let ctx = unsafe { it.whole() };
            // The program's stack cannot take the signal frame: natively that is death by SIGSEGV.
            crate::pm::dies(ctx, SIGSEGV, info.addr());
            die(ctx, SIGSEGV);
        }
        engine_fault(sig, code, info.addr(), uc);
    }
    // SAFETY: emitted code was interrupted.
    let ctx = unsafe { it.whole() };
    // int3 reports the address behind it.
    let trap = sig == SIGTRAP && info.code() == 0x80;
    let look = match trap {
        true => CacheAddr::new(code.get() - 1),
        false => code,
    };
    let mut e = ENGINE.lock();
    let Some(l) = e.locate(look) else {
        drop(e);
        engine_fault(sig, code, info.addr(), uc)
    };
    let (pc, saved, site) = (l.pc, l.saved, l.site);
    let (block_pc, block_end) = (l.block.pc, l.block.pc_end);
    if sig == SIGSEGV && uc.m.err & 2 != 0 && e.unprotect(info.addr()) {
        let page = info.addr() >> 12;
        if (block_pc.page()..=(block_end.get() - 1) >> 12).contains(&page) {
            // The block may be writing its own continuation.
            step(ctx, uc);
        }
        return;
    }
    drop(e);
    if trap && uc.m.trapno == 3 {
        // Who looks at a dead program wants the instruction that killed it.
        uc.m.set_pc(if kills(ctx, sig) {
            pc
        } else {
            pc + crate::insn::decode(pc).len() as u64
        });
        deliver_fault(ctx, info, uc);
        return enter(ctx, uc);
    }
    restore(ctx, saved, site, uc);
    uc.m.set_pc(pc);
    if sig == SIGBUS || sig == SIGSEGV && uc.m.trapno == 14 {
        match crate::pm::fault(
            uc.m.rsp,
            pc,
            info.addr(),
            sig,
            site.is_some(),
            uc.m.err & 2 != 0,
        ) {
            crate::pm::FaultAnswer::Retry => {
                // It is started over; if it has passed its point, it is not asked again.
                ctx.skip_point = match crate::insn::always_asks(&crate::insn::decode(pc)) {
                    true => pc,
                    false => ProgramAddr::NONE,
                };
                return enter(ctx, uc);
            }
            crate::pm::FaultAnswer::Program { addr } => {
                info.words[2] = addr;
                uc.m.cr2 = addr;
            }
        }
    }
    if sig == SIGSEGV && uc.m.trapno == PAGE_FAULT && crate::blocks::is_engine(info.addr()) {
        // Without us there is nothing.
        info.words[1] = SEGV_MAPERR;
        uc.m.err &= !PRESENT;
    }
    if matches!(sig, SIGILL | SIGFPE) {
        // These report the instruction's address.
        info.words[2] = pc.get();
    }
    if sig == SIGILL {
        explain_missing_instruction(pc);
    }
    deliver_fault(ctx, info, uc);
    enter(ctx, uc)
}

/// A fault came in the middle of an instruction's code: gives the program its registers back, and
/// undoes what was begun. The only place where that is done.
fn restore(
    ctx: &mut ThreadContext,
    saved: Saved,
    site: Option<&'static crate::pm::site::Site>,
    uc: &mut UContext,
) {
    for (register, slot) in saved.registers() {
        *uc.m.gpr(register) = ctx.spill[slot];
    }
    if saved.flags {
        // AH: SF, ZF, AF, PF, CF; AL: OF.
        const LOW: u64 = 0xD5;
        const OF: u64 = 1 << 11;
        let rax = ctx.spill[slot::PASS_FLAGS];
        let of = if rax & 1 != 0 { OF } else { 0 };
        uc.m.eflags = uc.m.eflags & !(LOW | OF) | rax >> 8 & LOW | of;
    }
    if let Some(site) = site {
        crate::pm::undo(ctx, site, uc);
    }
}

/// A fault in engine code.
#[cold]
fn engine_fault(sig: i32, code: CacheAddr, addr: u64, uc: &UContext) -> ! {
    use core::fmt::Write;
    let mut text = alloc::string::String::new();
    let _ = write!(
        text,
        "signal {sig} in engine code at image offset {:#x} (pc {code:?}), address {addr:#x}, rsp {:#x}, return addresses:",
        code.get().wrapping_sub(brownout_abi::ENGINE_BASE),
        uc.m.rsp
    );
    let mut sp = uc.m.rsp;
    for _ in 0..400 {
        let mut v = 0u64;
        if !sys::read_memory(Reach::untracked(sp), unsafe_bytes(&mut v)) {
            break;
        }
        if (brownout_abi::ENGINE_BASE..brownout_abi::ENGINE_IMAGE_LIMIT).contains(&v) {
            let _ = write!(text, " {:#x}", v - brownout_abi::ENGINE_BASE);
        }
        sp += 8;
    }
    crate::fatal_bug(&text)
}

fn unsafe_bytes(v: &mut u64) -> &mut [u8] {
    // SAFETY: the bytes of an integer.
    unsafe { core::slice::from_raw_parts_mut(v as *mut u64 as *mut u8, 8) }
}

/// Delivers the fault of the instruction at which `uc` stands. If a signal waits for the boundary
/// behind it, this is the boundary.
fn deliver_fault(ctx: &mut ThreadContext, info: &SigInfo, uc: &mut UContext) {
    stop_stepping(ctx, uc);
    ctx.pending.fault = Some(Fault {
        info: *info,
        trap: uc.m.trapno,
        error: uc.m.err,
    });
    deliver_pending(ctx, uc);
}

/// Says, once, why an instruction that programs for persistent memory use is illegal here.
fn explain_missing_instruction(pc: ProgramAddr) {
    static SAID: AtomicBool = AtomicBool::new(false);
    let insn = crate::insn::decode(pc);
    let Some(feature) = crate::insn::missing_feature(&insn) else {
        return;
    };
    if SAID.swap(true, Ordering::Relaxed) {
        return;
    }
    let name = FEATURES
        .iter()
        .find(|(_, f)| *f == feature)
        .map_or("", |(name, _)| name);
    let why = if crate::mode().hidden.has(feature) {
        alloc::format!("{HIDE_VARIABLE} hides it")
    } else {
        "the program cannot run on it without the tool either".into()
    };
    crate::service::note(
        alloc::format!(
            "the instruction at {pc:?} needs {name}, which this processor does not have ({why}); it raises SIGILL"
        )
        .as_bytes(),
    );
}

// ---------------------------------------------------------------- delivery

/// Ends the process as the kernel would for this signal by default.
fn die(ctx: &mut ThreadContext, sig: i32) -> ! {
    crate::follow::stands(ctx);
    crate::pm::flush_before_death(ctx, sig);
    crate::schedule::futex::process_ends(ctx);
    let dfl = SigAction::default();
    let mask = !bit(sig);
    // SAFETY: the default action of these signals ends the process.
    unsafe {
        sc!(nr::RT_SIGACTION, sig, &dfl as *const _, 0, 8);
        sc!(nr::TGKILL, sc!(nr::GETPID), sc!(nr::GETTID), sig);
        sc!(nr::RT_SIGPROCMASK, 2, &mask as *const u64, 0, 8);
        sc!(nr::EXIT_GROUP, 128 + sig)
    };
    loop {
        core::hint::spin_loop()
    }
}

/// The mask is about to become `mask`: tells of the end, if a signal that waits for it brings that.
fn announce_death_unless_blocked(ctx: &mut ThreadContext, mask: u64) {
    if !crate::pm::records_deaths() {
        return;
    }
    let released = waiting(ctx) & !mask;
    let deadly = (1..=64).find(|&sig| released & bit(sig) != 0 && kills(ctx, sig));
    if let Some(sig) = deadly {
        crate::pm::dies(ctx, sig, 0);
    }
}

/// Puts the program's state where engine code expects it.
fn show_state(ctx: &mut ThreadContext, uc: &mut UContext) {
    for n in 0..16 {
        ctx.gpr[n as usize] = *uc.m.gpr(n);
    }
    ctx.rip = uc.m.pc();
}

/// `uc` holds the program's state (RIP a program address): changes it to the handler's first
/// instruction, with a signal frame on the program's stack. `mask`: what the program's mask is
/// before the handler, and goes back to behind it; `base`: what the handler's own mask starts from,
/// if something else.
fn deliver(
    ctx: &mut ThreadContext,
    sig: i32,
    info: &SigInfo,
    uc: &mut UContext,
    mask: u64,
    base: Option<u64>,
) {
    crate::follow::broken(ctx, uc.m.pc(), uc.m.rcx);
    // SAFETY: set at start, lives as long as a thread uses it.
    let handlers = unsafe { &mut *ctx.handlers };
    let action = handlers.actions[sig as usize];
    let is_fault = SYNC.contains(&sig) && info.code() > 0;
    let blocked = ctx.blocked_sync & bit(sig) != 0;
    if handlers.ours & 1 << sig == 0 || action.handler <= SIG_IGN || is_fault && blocked {
        if action.handler == SIG_IGN && !is_fault {
            uc.sigmask = mask;
            return;
        }
        if is_fault {
            show_state(ctx, uc);
            crate::pm::dies(ctx, sig, info.addr());
        }
        die(ctx, sig);
    }
    if action.flags & SA_RESETHAND != 0 {
        handlers.actions[sig as usize].handler = SIG_DFL;
        install(sig, &SigAction::default());
        if !SYNC.contains(&sig) {
            handlers.ours &= !(1 << sig);
        }
    }
    let rsp = uc.m.rsp;
    let alt = ctx.altstack;
    let enabled = alt.flags & SS_DISABLE == 0;
    let on_alt = enabled
        && alt.flags & SS_AUTODISARM == 0
        && rsp.wrapping_sub(alt.sp) <= alt.size
        && rsp > alt.sp;
    let mut sp = rsp - 128;
    if action.flags & SA_ONSTACK != 0 && enabled && !on_alt {
        sp = alt.sp + alt.size;
    }
    // SAFETY: the kernel's frame, still on our signal stack.
    let fp_len = unsafe { fp_state_len(uc.m.fpstate) };
    let fp = (sp - fp_len) & !63;
    let frame_at = ((fp - core::mem::size_of::<SigFrame>() as u64) & !15) - 8;
    let program_mask = mask & !SYNC_MASK | ctx.blocked_sync;
    let mut frame = SigFrame {
        pretcode: action.restorer,
        uc: *uc,
        info: crate::deterministic::shown_info(*info),
    };
    frame.uc.m.fpstate = fp;
    frame.uc.m.oldmask = program_mask;
    if ctx.stepping {
        frame.uc.m.eflags &= !TF;
    }
    frame.uc.sigmask = program_mask;
    frame.uc.stack_sp = alt.sp;
    frame.uc.stack_size = alt.size;
    frame.uc.stack_flags = if alt.flags & SS_DISABLE != 0 {
        SS_DISABLE
    } else {
        alt.flags & SS_AUTODISARM | if on_alt { SS_ONSTACK } else { 0 }
    };
    frame.uc.link = 0;
    // If the stack cannot take the frame, this is where the program dies.
    show_state(ctx, uc);
    crate::follow::signal(ctx, frame_at, sp - frame_at);
    // SAFETY: the program's stack, as the kernel would write it; a fault here is recognised by
    // `in_engine_write`.
    unsafe {
        ctx.set_engine_write(true);
        core::ptr::copy_nonoverlapping(uc.m.fpstate as *const u8, fp as *mut u8, fp_len as usize);
        (frame_at as *mut SigFrame).write_unaligned(frame);
        ctx.set_engine_write(false);
        // The handler starts with vector registers in their initial state, as the kernel arranges.
        if fp_len > 576 {
            *((uc.m.fpstate + 512) as *mut u64) = 0;
        }
    }
    if alt.flags & SS_AUTODISARM != 0 && enabled {
        ctx.altstack = AltStack {
            sp: 0,
            flags: SS_DISABLE,
            size: 0,
        };
    }
    let mut new_mask = base.unwrap_or(program_mask) | action.mask;
    if action.flags & SA_NODEFER == 0 {
        new_mask |= bit(sig);
    }
    ctx.blocked_sync = new_mask & SYNC_MASK;
    uc.sigmask = new_mask & !SYNC_MASK;
    uc.m.rdi = sig as u64;
    uc.m.rsi = frame_at + 8 + core::mem::size_of::<UContext>() as u64;
    uc.m.rdx = frame_at + 8;
    uc.m.rax = 0;
    uc.m.rsp = frame_at;
    uc.m.set_pc(ProgramAddr::new(action.handler));
    uc.m.eflags &= !(TF | DF | RF);
}

/// # Safety
/// `fpstate` is what the kernel put into a signal frame.
unsafe fn fp_state_len(fpstate: u64) -> u64 {
    const MAGIC1: u32 = 0x4650_5853;
    // SAFETY: passed on: the software-reserved bytes of the legacy area.
    unsafe {
        let magic = *((fpstate + 464) as *const u32);
        if magic == MAGIC1 {
            *((fpstate + 468) as *const u32) as u64
        } else {
            512
        }
    }
}

// ---------------------------------------------------------------- system calls about signals

/// `rt_sigreturn`: restores the program's state from its frame, through the kernel, so that vector
/// state and everything else is exactly what the frame says.
pub fn sigreturn(ctx: &mut ThreadContext) -> ! {
    let at = ctx.gpr[4] - 8;
    crate::follow::returns(ctx, at);
    let mut frame = core::mem::MaybeUninit::<SigFrame>::uninit();
    // SAFETY: plain bytes.
    let bytes = unsafe {
        core::slice::from_raw_parts_mut(
            frame.as_mut_ptr() as *mut u8,
            core::mem::size_of::<SigFrame>(),
        )
    };
    if !sys::read_memory(Reach::untracked(at), bytes) {
        crate::pm::dies(ctx, SIGSEGV, 0);
        die(ctx, SIGSEGV);
    }
    // SAFETY: filled above; any bytes are a valid SigFrame.
    let mut frame = unsafe { frame.assume_init() };
    let uc = &mut frame.uc;
    ctx.altstack = AltStack {
        sp: uc.stack_sp,
        flags: uc.stack_flags & !SS_ONSTACK,
        size: uc.stack_size,
    };
    announce_death_unless_blocked(ctx, uc.sigmask);
    uc.stack_sp = ctx.signal_stack();
    uc.stack_flags = 0;
    uc.stack_size = SIGNAL_STACK_LEN;
    ctx.blocked_sync = uc.sigmask & SYNC_MASK;
    uc.sigmask &= !SYNC_MASK;
    release_held(ctx);
    ctx.rip = uc.m.pc();
    crate::blocks::resume_at_rip(ctx);
    block_all();
    if ctx.has_pending() {
        if ctx.pending_signal() != 0 {
            ctx.pending.mask = uc.sigmask;
            uc.sigmask = ALL_ASYNC;
        }
        uc.m.set_code(routine(asm::bo_safepoint));
    } else {
        uc.m.set_code(ctx.resume);
    }
    // SAFETY: a complete frame on our stack; `bo_sigreturn` expects rsp behind pretcode.
    unsafe { asm::bo_sigreturn(&frame as *const _ as u64 + 8) }
}

/// `rt_sigaction`
pub fn sigaction(ctx: &mut ThreadContext, a: &[u64; 6]) -> i64 {
    let (sig, new, old) = (a[0] as i32, a[1], a[2]);
    if !(1..=64).contains(&sig) || a[3] != 8 || (new != 0 && (sig == SIGKILL || sig == SIGSTOP)) {
        return -sys::EINVAL;
    }
    let mut wanted = SigAction::default();
    if new != 0 && !read_value(new, &mut wanted) {
        return -sys::EFAULT;
    }
    // Keeps the table and the kernel's in step.
    let masked = block_all();
    let previous = action(ctx, sig);
    // SAFETY: see `deliver`.
    let handlers = unsafe { &mut *ctx.handlers };
    if new != 0 {
        handlers.actions[sig as usize] = wanted;
        if wanted.handler > SIG_IGN || SYNC.contains(&sig) {
            handlers.ours |= 1 << sig;
        } else {
            handlers.ours &= !(1 << sig);
        }
        install(sig, &wanted);
        if wanted.handler == SIG_IGN
            && let Some(i) = SYNC.iter().position(|s| *s == sig)
        {
            ctx.held.infos[i] = None;
            HELD[i].take(ctx.group);
        }
    }
    if ctx.pending_signal() == 0 {
        set_mask(masked);
    }
    if old != 0 && !write_value(ctx, old, &previous) {
        return -sys::EFAULT;
    }
    0
}

/// `rt_sigprocmask`
pub fn sigprocmask(ctx: &mut ThreadContext, a: &[u64; 6]) -> i64 {
    if a[3] != 8 {
        return -sys::EINVAL;
    }
    let mut set = 0u64;
    if a[1] != 0 && !read_value(a[1], &mut set) {
        return -sys::EFAULT;
    }
    let real = block_all();
    let pending = ctx.pending_signal() != 0;
    let current = if pending { ctx.pending.mask } else { real };
    let old = current & !SYNC_MASK | ctx.blocked_sync;
    let mut new = old;
    if a[1] != 0 {
        new = match a[0] {
            0 => old | set,
            1 => old & !set,
            2 => set,
            _ => {
                if !pending {
                    set_mask(real);
                }
                return -sys::EINVAL;
            }
        };
    }
    new &= !(bit(SIGKILL) | bit(SIGSTOP));
    if old & !new != 0 {
        announce_death_unless_blocked(ctx, new);
    }
    ctx.blocked_sync = new & SYNC_MASK;
    release_held(ctx);
    if ctx.pending_signal() != 0 {
        // It arrived before this call, so it is delivered even if it is being blocked now.
        ctx.pending.mask = new & !SYNC_MASK;
    } else {
        set_mask(new & !SYNC_MASK);
    }
    if a[2] != 0 && !write_value(ctx, a[2], &old) {
        return -sys::EFAULT;
    }
    0
}

/// What was held and is not blocked any more becomes pending. The caller has all asynchronous
/// signals blocked, and says which mask to go back to.
fn release_held(ctx: &mut ThreadContext) {
    if ctx.pending_signal() == 0
        && let Some((sig, info)) = take_held(ctx, !ctx.blocked_sync)
    {
        make_pending(ctx, sig, info, None);
    }
}

fn make_pending(ctx: &mut ThreadContext, sig: i32, info: SigInfo, base: Option<u64>) {
    ctx.pending.info = info;
    ctx.pending.base = base;
    ctx.pending.sig = sig;
    ctx.pending_flag = 1;
}

/// Whether a held signal is not in `mask`, with which the program is about to wait.
pub fn would_end_wait(ctx: &ThreadContext, mask: u64) -> bool {
    held(ctx) & !mask != 0
}

/// Ends a wait of the program with `mask` by a held signal: that is pending then.
pub fn end_wait(ctx: &mut ThreadContext, mask: u64) -> bool {
    let old = block_all();
    if ctx.pending_signal() != 0 {
        return false;
    }
    match take_held(ctx, !mask) {
        Some((sig, info)) => {
            make_pending(ctx, sig, info, Some(mask));
            ctx.pending.mask = old;
            true
        }
        None => {
            set_mask(old);
            false
        }
    }
}

/// `rt_sigtimedwait`, if it asks for a signal that is held.
pub fn sigtimedwait(ctx: &mut ThreadContext, a: &[u64; 6]) -> Option<i64> {
    let mut set = 0u64;
    if held(ctx) == 0 || a[3] != 8 || !read_value(a[0], &mut set) {
        return None;
    }
    let (sig, info) = take_held(ctx, set)?;
    Some(match a[1] == 0 || write_value(ctx, a[1], &info) {
        true => i64::from(sig),
        false => -sys::EFAULT,
    })
}

/// `rt_sigqueueinfo` and `rt_tgsigqueueinfo` to this very process, of a synchronous signal with a
/// code that the kernel gives to faults. When it arrived, nobody could tell it from a fault, so it
/// does not take the way through the kernel.
pub fn queue_own(ctx: &mut ThreadContext, number: u64, a: &[u64; 6]) -> Option<i64> {
    let (tid, sig, at) = match number {
        nr::RT_TGSIGQUEUEINFO => (a[1] as u32, a[2] as i32, a[3]),
        _ => (ctx.tid, a[1] as i32, a[2]),
    };
    let mut info = SigInfo { words: [0; 16] };
    if a[0] as u32 != ctx.group
        || tid != ctx.tid
        || !SYNC.contains(&sig)
        || !read_value(at, &mut info)
        || info.code() <= 0
    {
        return None;
    }
    info.words[0] = info.words[0] & !0xffff_ffff | sig as u64;
    let old = block_all();
    if ctx.blocked_sync & bit(sig) != 0 || ctx.pending_signal() != 0 {
        let i = SYNC.iter().position(|s| *s == sig).unwrap_or(0);
        ctx.held.infos[i].get_or_insert(info);
        if ctx.pending_signal() == 0 {
            set_mask(old);
        }
    } else {
        make_pending(ctx, sig, info, None);
        ctx.pending.mask = old;
    }
    Some(0)
}

/// Signals that wait until the program unblocks them.
fn waiting(ctx: &ThreadContext) -> u64 {
    let mut set = 0u64;
    // SAFETY: our own variable, of the size that is said.
    unsafe { sc!(nr::RT_SIGPENDING, &mut set as *mut u64, 8) };
    set | held(ctx)
}

/// `rt_sigpending`
pub fn sigpending(ctx: &mut ThreadContext, a: &[u64; 6]) -> i64 {
    let set = waiting(ctx);
    if a[1] != 8 || !write_value(ctx, a[0], &set) {
        -sys::EFAULT
    } else {
        0
    }
}

/// `sigaltstack`
pub fn sigaltstack(ctx: &mut ThreadContext, a: &[u64; 6]) -> i64 {
    let alt = ctx.altstack;
    let rsp = ctx.gpr[4];
    let enabled = alt.flags & SS_DISABLE == 0;
    let on = enabled && rsp > alt.sp && rsp - alt.sp <= alt.size && alt.flags & SS_AUTODISARM == 0;
    let shown = [
        alt.sp,
        (if enabled {
            alt.flags & SS_AUTODISARM | if on { SS_ONSTACK } else { 0 }
        } else {
            SS_DISABLE
        }) as u32 as u64,
        alt.size,
    ];
    if a[0] != 0 {
        let mut new = [0u64; 3];
        if !read_value(a[0], &mut new) {
            return -sys::EFAULT;
        }
        if on {
            return -1; // EPERM
        }
        let flags = new[1] as i32;
        if flags & !(SS_AUTODISARM | SS_DISABLE | SS_ONSTACK) != 0 {
            return -sys::EINVAL;
        }
        ctx.altstack = if flags & SS_DISABLE != 0 {
            AltStack {
                sp: 0,
                flags: SS_DISABLE,
                size: 0,
            }
        } else {
            // AT_MINSIGSTKSZ is what the kernel enforces; 2048 is its historic minimum.
            if new[2] < 2048 {
                return -sys::ENOMEM;
            }
            AltStack {
                sp: new[0],
                flags: flags & SS_AUTODISARM,
                size: new[2],
            }
        };
    }
    if a[1] != 0 && !write_value(ctx, a[1], &shown) {
        return -sys::EFAULT;
    }
    0
}

/// Which synchronous signals the program ignores.
pub fn ignored_sync(ctx: &ThreadContext) -> u64 {
    // SAFETY: see `deliver`.
    let handlers = unsafe { &*ctx.handlers };
    SYNC.iter()
        .filter(|s| handlers.actions[**s as usize].handler == SIG_IGN)
        .fold(0, |m, s| m | bit(*s))
}

/// Before `execve`: what the program ignores must really be ignored; blocked likewise.
pub fn before_exec(ctx: &mut ThreadContext) {
    // SAFETY: see `deliver`.
    let handlers = unsafe { &*ctx.handlers };
    for sig in SYNC {
        if handlers.actions[sig as usize].handler == SIG_IGN {
            let ign = SigAction {
                handler: SIG_IGN,
                ..Default::default()
            };
            // SAFETY: a fault of ours in between would loop; the window holds one system call.
            unsafe { sc!(nr::RT_SIGACTION, sig, &ign as *const _, 0, 8) };
        }
    }
}

/// Just before `execve`, with the program's real mask in force: what is held goes to the kernel.
pub fn pass_on_held(ctx: &mut ThreadContext) {
    while let Some((sig, info)) = take_held(ctx, SYNC_MASK) {
        send(ctx.group, ctx.tid, sig, &info);
    }
}

/// After a failed `execve`.
pub fn after_failed_exec() {
    for sig in SYNC {
        install(sig, &SigAction::default());
    }
}

/// The flags that `iret` of user mode sets.
pub fn set_flags(ctx: &mut ThreadContext, flags: u64) {
    // Carry, parity, auxiliary, zero, sign, direction, overflow, nested task, alignment check,
    // identification.
    const SETTABLE: u64 = 0x24_4cd5;
    ctx.rflags = ctx.rflags & !SETTABLE | flags & SETTABLE;
    let steps = flags & TF != 0;
    if ctx.own_step == OwnStep::No && steps {
        ctx.own_step = OwnStep::GoesOn;
    } else if ctx.own_step == OwnStep::Complete && !steps {
        ctx.own_steps_end = true;
    }
}

/// Bytes of a `syscall` instruction.
const SYSCALL_LEN: u64 = 2;

const _: () = assert!(off::GPR == 8);
