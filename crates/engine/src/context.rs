//! Per-thread state, addressed by GS in emitted code.
//!
//! ```text
//!  gs:0 ─▶ ThreadContext │ indirect-branch table │ granule table │ engine stack │ signal stack │ edges taken       │ what was executed
//!          128 KiB       │ 64 Ki × 8             │ 64 Ki × 8     │ 256 KiB      │ 256 KiB      │ 64 Ki × 1, shared │ 160 KiB
//! ```
//! The tables are at constant displacements so that emitted code reaches them with one
//! `gs:[reg*8 + disp32]`.

use crate::address::{AliasAddr, CacheAddr, ProgramAddr};
use crate::sigdata::{Pending, SignalHandlers};
use crate::sys::{self, sc};
use brownout_abi::THREADS_BASE;
use core::mem::offset_of;
use core::sync::atomic::{AtomicU64, Ordering};

pub const IBTC_OFFSET: u32 = 0x2_0000;
pub const IBTC_ENTRIES: usize = 0x1_0000;
/// The index is 16 bits of the target from this one on: targets are rarely closer than 4 bytes, and
/// the wider window has fewer collisions in large programs.
pub const IBTC_SHIFT: u8 = 2;

/// Where the table has the entry for `target`.
pub fn ibtc_index(target: ProgramAddr) -> usize {
    (target.get() >> IBTC_SHIFT) as usize & (IBTC_ENTRIES - 1)
}
pub const GRANULES_OFFSET: u32 = 0xA_0000;
/// One entry per 2 GiB of address space: distance to the alias, 0 if no tracked memory,
/// [`GRANULE_MIXED`].
pub const GRANULES: usize = 0x1_0000;
pub const GRANULE_SHIFT: u32 = 31;
/// Tracked and other memory share this granule; or it needs its own distance: ask the engine.
pub const GRANULE_MIXED: u64 = 1;
const STACK_OFFSET: u64 = 0x12_0000;
const STACK_LEN: u64 = 0x4_0000;
const SIGNAL_STACK_OFFSET: u64 = 0x16_0000;
pub const SIGNAL_STACK_LEN: u64 = 0x4_0000;
/// The edges taken, which are the tool's memory: see `translate/edges.rs`.
pub const EDGES_OFFSET: u32 = 0x1A_0000;
/// What was executed and is not in the ring yet: see `follow.rs`.
pub const FOLLOW_OFFSET: u32 = 0x1B_0000;
/// Once it has as many bytes it is emptied at the next block's head. A power of two.
pub const FOLLOW_FULL: u64 = 1 << FOLLOW_FULL_SHIFT;
pub const FOLLOW_FULL_SHIFT: u8 = 17;
/// Room for what one block, or engine code before the next block, adds to that.
pub const FOLLOW_LEN: u64 = FOLLOW_FULL + 0x8000;
const STRIDE: u64 = 0x20_0000;
/// As many as there are thread numbers.
const CONTEXTS_MAX: u64 = brownout_abi::THREADS_MAX as u64;
const _: () = assert!(EDGES_OFFSET as u64 + brownout_abi::EDGES as u64 <= FOLLOW_OFFSET as u64);
const _: () = assert!(FOLLOW_OFFSET as u64 + FOLLOW_LEN <= STRIDE);
const _: () = assert!(THREADS_BASE + CONTEXTS_MAX * STRIDE <= brownout_abi::ENGINE_LIMIT);

/// Spill slots by purpose. Emitted sequences never nest, so slots are shared by design only where
/// named so.
pub mod slot {
    /// rcx of an indirect branch.
    pub const BRANCH_RCX: usize = 0;
    /// rdx of an indirect branch.
    pub const BRANCH_RDX: usize = 1;
    /// rcx of a tracked access.
    pub const SITE_RCX: usize = 2;
    /// Second scratch register of a tracked access.
    pub const SITE_R2: usize = 3;
    /// Third scratch register of a tracked access (address of the ring lock).
    pub const SITE_R3: usize = 4;
    /// 5 to 10 are the assembly routines' own.
    pub const ASM: usize = 5;
    /// Two registers of code that a pass has inserted.
    pub const PASS: usize = 11;
    /// rax while such code's flags are moved.
    pub const PASS_RAX: usize = 13;
    /// Flags of the program while such code runs, as `lahf` and `seto` leave them in rax.
    pub const PASS_FLAGS: usize = 14;
}

#[repr(C, align(64))]
pub struct ThreadContext {
    pub self_ptr: u64,
    /// Program registers while engine code runs, hardware order.
    pub gpr: [u64; 16],
    pub rflags: u64,
    /// Program address at which the thread will go on.
    pub rip: ProgramAddr,
    /// Where in the cache it will do that.
    pub resume: CacheAddr,
    /// Target of an indirect branch that missed.
    pub target: ProgramAddr,
    /// Why the cache was left: see `exit.rs`.
    pub exit_arg: u64,
    pub spill: [u64; 16],
    pub engine_stack: u64,
    // Entry points for `jmp gs:[…]`: emitted code may be more than 2 GiB away from the engine.
    pub entry_exit: CacheAddr,
    pub entry_miss: CacheAddr,
    pub entry_miss_tag: CacheAddr,
    pub entry_log: CacheAddr,
    pub entry_request: CacheAddr,
    /// Tracked access under way; and its alias, if the record has the value.
    pub site_addr: ProgramAddr,
    pub site_alias: AliasAddr,
    /// `thread << 16`, as it stands in a record's first word.
    pub thread_bits: u64,
    /// Not 0 while flushes or non-temporal stores of this thread await a fence.
    pub unfenced: u64,
    /// Not 0: a signal waits for a boundary.
    pub pending_flag: u64,
    /// [`crate::pm::context_cache`] of this thread.
    pub context_cache: u64,
    /// Block whose site was logged last since it was entered, and the context then.
    pub last_token: u64,
    pub last_context: u64,
    /// pmemcheck requests that are recorded without calling context, as bits.
    pub context_free_requests: u64,
    /// Transactions that the thread has begun and not ended, by its own requests.
    pub tx_depth: u64,
    /// pmemcheck requests that may be left out, as bits.
    pub optional_requests: u64,
    /// Jumps backwards and the like that the thread still makes without asking whether it may go
    /// on: see `translate/points.rs`.
    pub budget: u64,
    /// Bytes of what was executed and is not in the ring yet.
    pub follow: u64,
    /// Arguments of the library function that is being entered.
    pub call_args: [u64; 5],
    pub xmm: [[u64; 2]; 16],

    // ---- below: engine code only
    /// `resume` is an instruction boundary of the program (address `rip`).
    pub resume_is_boundary: bool,
    /// Single-stepping towards a boundary.
    pub stepping: bool,
    /// The program had set the trap flag itself when that began.
    pub steps_itself: bool,
    /// What becomes of the program's own single step when engine code is done.
    pub own_step: OwnStep,
    /// The program has cleared its trap flag; its last step is still under way.
    pub own_steps_end: bool,
    /// Where the step under way began: an address in the cache or in the engine.
    pub stepped_from: CacheAddr,
    pub thread: u32,
    pub tid: u32,
    /// The number of its process, by which its threads are told from those of others in the same
    /// memory; 0 until that is known.
    pub group: u32,
    pub pending: Pending,
    pub handlers: *mut SignalHandlers,
    /// Of SIGSEGV, SIGBUS, SIGTRAP, SIGILL, SIGFPE: those that the program believes blocked.
    pub blocked_sync: u64,
    pub altstack: AltStack,
    pub held: crate::sigdata::Held,
    /// Mask that a call such as `sigsuspend` has put in place of the program's.
    pub suspend_mask: Option<u64>,
    /// Under way: an irregular access whose operand registers are shifted. See `pm/irregular.rs`.
    pub irregular: crate::pm::under_way::State,
    pub process: u32,
    /// A child with its parent's memory (vfork): it is a thread of its parent's process in the
    /// stream until it execs.
    pub borrows_memory: bool,
    /// The number that the program knows this thread by, if made up.
    pub shown_tid: u32,
    /// Address of the system call that is in the stream (a read of standard input, a deadly signal)
    /// and not yet made; 0 if none.
    pub announced: ProgramAddr,
    engine_write: core::sync::atomic::AtomicBool,
    /// The base of `fs` as it is told with what was executed; 0 if it has to be asked for.
    pub follow_fs: u64,
    /// Its seat, where threads take turns.
    pub seat: u32,
    /// An instruction that is started over, at which it is not asked again whether it goes on.
    pub skip_point: ProgramAddr,
    /// Where 0 is written when it ends, and a futex woken; where its list of robust futexes begins.
    /// Both are the kernel's business unless threads take turns.
    pub clear_tid: u64,
    pub robust_list: u64,
    /// Mask that a new thread starts with.
    pub start_mask: u64,
    pub in_use: AtomicU64,
}
const _: () = assert!(core::mem::size_of::<ThreadContext>() <= IBTC_OFFSET as usize);

/// Whether the program is single-stepping itself while engine code runs for it.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub enum OwnStep {
    #[default]
    No,
    /// When engine code is done, so is the step.
    Complete,
    /// It goes on with the next instruction.
    GoesOn,
}

/// The program's alternate signal stack, as it set it.
#[derive(Clone, Copy, Default)]
pub struct AltStack {
    pub sp: u64,
    pub flags: i32,
    pub size: u64,
}

macro_rules! offsets {
    ($($name:ident = $field:ident;)*) => { $(pub const $name: u32 = offset_of!(ThreadContext, $field) as u32;)* };
}
/// Displacements from GS.
pub mod off {
    use super::*;
    offsets! {
        SELF = self_ptr; GPR = gpr; RFLAGS = rflags; RESUME = resume; TARGET = target;
        EXIT_ARG = exit_arg; SPILL = spill; ENGINE_STACK = engine_stack; ENTRY_EXIT = entry_exit;
        ENTRY_MISS = entry_miss; ENTRY_MISS_TAG = entry_miss_tag; ENTRY_LOG = entry_log; ENTRY_REQUEST = entry_request; SITE_ADDR = site_addr;
        SITE_ALIAS = site_alias; THREAD_BITS = thread_bits; UNFENCED = unfenced;
        PENDING_FLAG = pending_flag; CONTEXT_CACHE = context_cache; XMM = xmm;
        LAST_TOKEN = last_token; LAST_CONTEXT = last_context; CALL_ARGS = call_args;
        BUDGET = budget; FOLLOW = follow; TX_DEPTH = tx_depth; OPTIONAL_REQUESTS = optional_requests;
    }
    pub const fn spill(slot: usize) -> u32 {
        SPILL + 8 * slot as u32
    }
}

/// The address of the calling thread's context.
#[inline(always)]
fn current() -> *mut ThreadContext {
    let p: u64;
    // SAFETY: GS points at this thread's context from the engine's entry on; `self_ptr` is its
    // first field.
    unsafe {
        core::arch::asm!("mov {}, gs:[0]", out(reg) p, options(nostack, readonly, preserves_flags));
    }
    p as *mut ThreadContext
}

impl ThreadContext {
    pub fn ibtc(&mut self) -> &mut [CacheAddr; IBTC_ENTRIES] {
        // SAFETY: the table lies in this context's own mapping.
        unsafe { &mut *((self.self_ptr + IBTC_OFFSET as u64) as *mut _) }
    }

    pub fn signal_stack(&self) -> u64 {
        self.self_ptr + SIGNAL_STACK_OFFSET
    }

    /// Maps (or reuses) a context. Its entry points and tables are still to be filled
    /// (`process.rs`).
    pub fn allocate() -> Fresh {
        let _one_at_a_time = ALLOCATION.lock();
        for i in 0..CONTEXTS_MAX {
            let base = THREADS_BASE + i * STRIDE;
            if i >= HIGH_WATER.load(Ordering::Acquire) {
                // SAFETY: our own range; MAP_FIXED_NOREPLACE.
                unsafe {
                    if sys::map_anonymous(base, STRIDE, sys::PROT_READ | sys::PROT_WRITE)
                        != base as i64
                    {
                        crate::fatal_bug("cannot map a thread context");
                    }
                    sc!(
                        sys::nr::MADVISE,
                        base,
                        STRIDE,
                        15 /* MADV_NOHUGEPAGE */
                    );
                }
                if crate::mode().edges {
                    map_edges(base + EDGES_OFFSET as u64);
                }
                // All of it is filled soon; page by page that would cost more than all else at a
                // launch. SAFETY: our own, fresh.
                unsafe { sys::populate(base + IBTC_OFFSET as u64, 8 * IBTC_ENTRIES as u64) };
                // Only now: others look at everything below the mark.
                HIGH_WATER.store(i + 1, Ordering::Release);
            }
            let ctx = base as *mut ThreadContext;
            // Mapped above, zeroed memory is a valid (free) context.
            if Peer(ctx)
                .in_use()
                .compare_exchange(0, 1, Ordering::AcqRel, Ordering::Acquire)
                .is_ok()
            {
                // SAFETY: we own it now; only the header is reset, tables are refilled later.
                unsafe {
                    core::ptr::write_bytes(
                        base as *mut u8,
                        0,
                        core::mem::size_of::<ThreadContext>(),
                    )
                };
                let mut ctx = Fresh(ctx);
                ctx.in_use.store(1, Ordering::Release);
                ctx.self_ptr = base;
                ctx.engine_stack = base + STACK_OFFSET + STACK_LEN - 64;
                return ctx;
            }
        }
        crate::fatal_bug("too many threads")
    }

    /// All contexts in use, this thread's included, as others may look at them.
    pub fn all() -> impl Iterator<Item = Peer> {
        (0..HIGH_WATER.load(Ordering::Acquire))
            .map(|i| Peer((THREADS_BASE + i * STRIDE) as *mut ThreadContext))
            .filter(|peer| peer.in_use().load(Ordering::Acquire) != 0)
    }

    /// This context, as others look at it.
    pub fn as_peer(&mut self) -> Peer {
        Peer(self)
    }
}

/// A context that is not any thread's yet: whoever has this has it alone.
pub struct Fresh(*mut ThreadContext);

impl Fresh {
    /// A thread is about to begin with it, and has it alone from then on.
    pub fn give_away(self) -> Peer {
        Peer(self.0)
    }
}

impl core::ops::Deref for Fresh {
    type Target = ThreadContext;
    fn deref(&self) -> &ThreadContext {
        // SAFETY: contexts stay mapped for ever; `allocate` has marked this one as in use for the
        // caller alone, and others look at it as a `Peer` only, word by word.
        unsafe { &*self.0 }
    }
}

impl core::ops::DerefMut for Fresh {
    fn deref_mut(&mut self) -> &mut ThreadContext {
        // SAFETY: as above.
        unsafe { &mut *self.0 }
    }
}

/// The calling thread's context, for its signal handler.
///
/// The handler may have interrupted engine code that has a `&mut` to the context and goes on with
/// it afterwards. So the handler has no reference, only words: those that engine code, too, reads
/// where the handler may have changed them, by [`ThreadContext::has_pending`] and its like.
#[derive(Clone, Copy)]
pub struct Interrupted(*mut ThreadContext);

impl Interrupted {
    /// That of the calling thread.
    pub fn current() -> Interrupted {
        Interrupted(current())
    }

    /// All of it.
    ///
    /// # Safety
    /// No Rust code of the engine was interrupted, or none that will go on: emitted code and the
    /// assembly around it have no references. And the caller asks once.
    pub unsafe fn whole<'a>(self) -> &'a mut ThreadContext {
        // SAFETY: contexts stay mapped for ever; no other reference to this one is in use, as the
        // caller knows.
        unsafe { &mut *self.0 }
    }

    /// As others look at it.
    pub fn peer(self) -> Peer {
        Peer(self.0)
    }

    /// [`ThreadContext::has_pending`]
    pub fn has_pending(self) -> bool {
        // SAFETY: a word of the thread's own context, read by itself.
        unsafe { (&raw const (*self.0).pending_flag).read_volatile() != 0 }
    }

    /// [`ThreadContext::pending_signal`]
    pub fn pending_signal(self) -> i32 {
        // SAFETY: as above.
        unsafe { (&raw const (*self.0).pending.sig).read_volatile() }
    }

    /// Engine code writes to the program's stack: a fault there is the program's.
    pub fn in_engine_write(self) -> bool {
        // SAFETY: an atomic word, to which a shared reference is always allowed.
        unsafe { (*self.0).engine_write.load(Ordering::Relaxed) }
    }

    /// [`ThreadContext::suspend_mask`]
    pub fn suspend_mask(self) -> Option<u64> {
        // SAFETY: as above; it is written as a whole, with all asynchronous signals blocked or none
        // waited for.
        unsafe { (&raw const (*self.0).suspend_mask).read_volatile() }
    }

    /// [`ThreadContext::handlers`]
    pub fn handlers(self) -> *mut SignalHandlers {
        // SAFETY: as above.
        unsafe { (&raw const (*self.0).handlers).read_volatile() }
    }

    /// Makes a signal pending.
    pub fn set_pending(
        self,
        sig: i32,
        info: &crate::sigdata::SigInfo,
        mask: u64,
        base: Option<u64>,
    ) {
        // SAFETY: as above. Nothing is pending, so engine code looks at none of this before it
        // finds the flag.
        unsafe {
            (&raw mut (*self.0).pending.info).write_volatile(*info);
            (&raw mut (*self.0).pending.mask).write_volatile(mask);
            (&raw mut (*self.0).pending.base).write_volatile(base);
            (&raw mut (*self.0).pending.sig).write_volatile(sig);
            (&raw mut (*self.0).pending_flag).write_volatile(1);
        }
    }

    /// Holds synchronous signal number `i` of [`SYNC`](crate::sigdata::SYNC), unless one is held
    /// already.
    pub fn hold(self, i: usize, info: &crate::sigdata::SigInfo) {
        // SAFETY: as above.
        unsafe {
            let place = &raw mut (*self.0).held.infos[i];
            if place.read_volatile().is_none() {
                place.write_volatile(Some(*info));
            }
        }
    }
}

/// A context as any thread may look at it, while its own thread runs and changes it: never as a
/// whole, only word by word.
#[derive(Clone, Copy)]
pub struct Peer(*mut ThreadContext);

impl Peer {
    /// Whether it is the same context.
    pub fn is(self, ctx: &ThreadContext) -> bool {
        self.0 as u64 == ctx.self_ptr
    }

    fn in_use(self) -> &'static AtomicU64 {
        // SAFETY: contexts stay mapped for ever, and this word is only ever used atomically.
        unsafe { &(*self.0).in_use }
    }

    /// Its thread is gone: somebody else may have it.
    pub fn free(self) {
        self.in_use().store(0, Ordering::Release);
    }

    /// [`ThreadContext::group`], as it is just now.
    pub fn group(self) -> u32 {
        // SAFETY: contexts stay mapped for ever; an aligned word, which its thread writes as a
        // whole.
        unsafe { (&raw const (*self.0).group).read_volatile() }
    }

    /// [`ThreadContext::tid`], as it is just now.
    pub fn tid(self) -> u32 {
        // SAFETY: as for `group`.
        unsafe { (&raw const (*self.0).tid).read_volatile() }
    }

    /// [`ThreadContext::blocked_sync`], as it is just now.
    pub fn blocked_sync(self) -> u64 {
        // SAFETY: as for `group`.
        unsafe { (&raw const (*self.0).blocked_sync).read_volatile() }
    }

    /// [`ThreadContext::robust_list`], as it is just now.
    pub fn robust_list(self) -> u64 {
        // SAFETY: as for `group`.
        unsafe { (&raw const (*self.0).robust_list).read_volatile() }
    }

    /// [`ThreadContext::context_cache`], which does not change once it is set.
    pub fn context_cache(self) -> u64 {
        // SAFETY: as for `group`.
        unsafe { (&raw const (*self.0).context_cache).read_volatile() }
    }

    /// That of the calling thread: for emitted code that is about to be made, and knows the thread
    /// that it is for.
    pub fn current() -> Peer {
        Peer(current())
    }

    /// [`ThreadContext::self_ptr`]
    pub fn address(self) -> u64 {
        self.0 as u64
    }

    /// [`ThreadContext::thread_bits`], which do not change once they are set.
    pub fn thread_bits(self) -> u64 {
        // SAFETY: as for `group`.
        unsafe { (&raw const (*self.0).thread_bits).read_volatile() }
    }

    /// Its granule table, which its emitted code reads at any time.
    pub fn granules(self) -> &'static [AtomicU64; GRANULES] {
        // SAFETY: the table lies in the context's own mapping; only atomic stores change it.
        unsafe { &*((self.0 as u64 + GRANULES_OFFSET as u64) as *const _) }
    }
}

/// Maps the table of edges a second time, at `at`, which is the caller's.
fn map_edges(at: u64) {
    const LEN: u64 = brownout_abi::EDGES as u64;
    const MAY_MOVE_AND_FIXED: u64 = sys::MREMAP_MAYMOVE | sys::MREMAP_FIXED;
    let control = crate::control::control();
    let there = control.edges.0.as_ptr() as u64;
    // SAFETY: an old length of 0 makes a second mapping of the same shared pages, and leaves the
    // first.
    let got = unsafe { sc!(sys::nr::MREMAP, there, 0, LEN, MAY_MOVE_AND_FIXED, at) };
    if got != at as i64 {
        crate::fatal_bug("cannot map the table of edges");
    }
}

static HIGH_WATER: AtomicU64 = AtomicU64::new(0);
static ALLOCATION: crate::sync::SpinLock<()> = crate::sync::SpinLock::new(());

/// In a forked child other threads' locks are nobody's.
pub fn reset_after_fork() {
    ALLOCATION.reset_after_fork();
}

impl ThreadContext {
    // The signal handler reads and writes the context of the thread that it interrupts, behind the
    // compiler's back: what it shares with ordinary engine code goes through these.

    /// The asynchronous signal that waits for delivery, 0 if none.
    pub fn pending_signal(&self) -> i32 {
        // SAFETY: a plain field of ours.
        unsafe { core::ptr::read_volatile(&self.pending.sig) }
    }
    /// Whether anything waits for delivery.
    pub fn has_pending(&self) -> bool {
        // SAFETY: a plain field of ours.
        unsafe { core::ptr::read_volatile(&self.pending_flag) != 0 }
    }
    pub fn set_suspend_mask(&mut self, mask: Option<u64>) {
        // SAFETY: a plain field of ours.
        unsafe { core::ptr::write_volatile(&mut self.suspend_mask, mask) }
    }
    pub fn set_engine_write(&mut self, on: bool) {
        self.engine_write.store(on, Ordering::SeqCst);
    }
}

/// Whether the process has other threads.
pub fn has_siblings(ctx: &ThreadContext) -> bool {
    ThreadContext::all().any(|other| !other.is(ctx) && other.group() == ctx.group)
}

/// Whether other processes have the same memory, as far as one can tell: if in doubt, they have.
pub fn shares_memory(ctx: &ThreadContext) -> bool {
    let is_there = |group: u32| {
        // SAFETY: signal 0 only asks.
        group == 0 || unsafe { sc!(sys::nr::KILL, group, 0) } != -sys::ESRCH
    };
    ctx.borrows_memory
        || ThreadContext::all().any(|other| other.group() != ctx.group && is_there(other.group()))
}
