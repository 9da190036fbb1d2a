//! Threads, processes and program replacement.

use crate::asm;
use crate::context::{Fresh, ThreadContext};
use crate::control::{control, real_pid, refresh_pid};
use crate::dispositions;
use crate::schedule::{futex, turn};
use crate::service;
use crate::sigdata::{SYNC_MASK, SignalHandlers};
use crate::signal;
use crate::sys::{self, nr, sc};
use core::sync::atomic::{AtomicU32, Ordering};

const CLONE_VM: u64 = 0x100;
const CLONE_SIGHAND: u64 = 0x800;
const CLONE_PIDFD: u64 = 0x1000;
const CLONE_VFORK: u64 = 0x4000;
const CLONE_THREAD: u64 = 0x1_0000;
const CLONE_SETTLS: u64 = 0x8_0000;
const CLONE_PARENT_SETTID: u64 = 0x10_0000;
const CLONE_CHILD_CLEARTID: u64 = 0x20_0000;
const CLONE_CHILD_SETTID: u64 = 0x100_0000;
const CLONE_NEWPID: u64 = 0x2000_0000;
const SIGCHLD: u64 = 17;

/// A context that a thread can be given.
pub fn new_context() -> Fresh {
    let mut ctx = ThreadContext::allocate();
    asm::set_entry_points(&mut ctx);
    let empty = ctx.entry_miss;
    ctx.ibtc().fill(empty);
    crate::pm::init_thread(&mut ctx);
    ctx
}

/// Makes `ctx` the calling thread's context.
pub fn adopt(ctx: &mut ThreadContext) {
    // SAFETY: ARCH_SET_GS; nothing but the engine uses GS.
    unsafe {
        sc!(nr::ARCH_PRCTL, 0x1001, ctx.self_ptr);
        ctx.tid = sc!(nr::GETTID) as u32;
        ctx.group = sc!(nr::GETPID) as u32;
    }
    signal::init_thread(ctx);
}

/// `clone`, `fork` and `vfork` of the program. The result is what its parent sees.
pub fn clone(
    ctx: &mut ThreadContext,
    flags: u64,
    stack: u64,
    ptid: u64,
    ctid: u64,
    tls: u64,
) -> i64 {
    may_enter_namespace(flags);
    if flags & CLONE_VM == 0 {
        return fork(ctx, flags, stack, ptid, ctid, tls);
    }
    crate::pm::going_parallel();
    let mut child = new_context();
    child.gpr = ctx.gpr;
    child.gpr[0] = 0;
    child.gpr[1] = (ctx.rip + 2).get();
    child.gpr[11] = ctx.rflags;
    if stack != 0 {
        child.gpr[4] = stack;
    }
    child.rflags = ctx.rflags;
    child.rip = ctx.rip + 2;
    child.xmm = ctx.xmm;
    child.blocked_sync = ctx.blocked_sync;
    child.altstack = if flags & CLONE_VFORK != 0 {
        ctx.altstack
    } else {
        crate::context::AltStack {
            sp: 0,
            flags: 2,
            size: 0,
        }
    };
    child.handlers = if flags & CLONE_SIGHAND != 0 {
        ctx.handlers
    } else {
        // SAFETY: the parent's table; a private copy for the child.
        let h = unsafe { &*ctx.handlers };
        alloc::boxed::Box::leak(alloc::boxed::Box::new(SignalHandlers {
            actions: h.actions,
            ours: h.ours,
        }))
    };
    crate::pm::thread_created(ctx, &mut child);
    child.borrows_memory = flags & CLONE_THREAD == 0;
    if !child.borrows_memory {
        child.group = ctx.group;
    }
    child.shown_tid = crate::deterministic::reserve_pid();
    let shown = child.shown_tid;
    let flags_told = schedule_child(ctx, &mut child, flags, ptid, ctid);
    if child.borrows_memory {
        crate::pm::process_begins();
    }
    let old = dispositions::block_all();
    child.start_mask = if ctx.pending_signal() != 0 {
        ctx.pending.mask
    } else {
        old
    };
    let (seat, borrows_memory) = (child.seat, child.borrows_memory);
    // From here on it is the child's.
    let child = child.give_away();
    // SAFETY: `child` is fresh and stays alive until the thread ends. The caller has refused
    // pointers to PM.
    let ret = unsafe { asm::bo_clone(flags_told, child.address(), ptid, ctid, tls) };
    if turn::on() {
        let child_group = if flags & CLONE_THREAD == 0 {
            ret as u32
        } else {
            ctx.group
        };
        turn::made(ctx, seat, ret, child_group, flags & CLONE_VFORK != 0);
    }
    if ret > 0 {
        crate::deterministic::bind_pid(ret as u32, shown);
    }
    if ret < 0 && borrows_memory {
        crate::pm::process_announced();
    }
    if ret < 0 || flags & CLONE_VFORK != 0 {
        // Failed; or the child has left this address space by exec or exit.
        child.free();
    }
    if ctx.pending_signal() == 0 {
        dispositions::set_mask(old);
    }
    ret
}

/// Where threads take turns, a seat for the child, and the flags that the kernel is told: what it
/// would do at the child's end, the engine does. So it does with the child's number, because the
/// program knows the child by another one than the kernel.
fn schedule_child(
    ctx: &mut ThreadContext,
    child: &mut ThreadContext,
    flags: u64,
    ptid: u64,
    ctid: u64,
) -> u64 {
    if !turn::on() {
        return flags;
    }
    child.seat = turn::arrive(child.thread);
    if flags & CLONE_CHILD_CLEARTID != 0 {
        child.clear_tid = ctid;
    }
    for (flag, at) in [(CLONE_PARENT_SETTID, ptid), (CLONE_CHILD_SETTID, ctid)] {
        if flags & flag != 0 {
            crate::values::write_value(ctx, at, &child.shown_tid);
        }
    }
    if flags & CLONE_VFORK != 0 {
        turn::lends_memory(ctx, child.seat);
    }
    flags & !(CLONE_CHILD_CLEARTID | CLONE_PARENT_SETTID | CLONE_CHILD_SETTID)
}

/// First engine code of a new thread, on its own engine stack.
pub extern "C" fn thread_start(ctx: &mut ThreadContext) {
    adopt(ctx);
    if turn::on() {
        turn::await_first_turn(ctx);
    }
    crate::deterministic::bind_pid(ctx.tid, ctx.shown_tid);
    crate::pm::thread_started(ctx);
    crate::blocks::resume_at_rip(ctx);
    let mask = ctx.start_mask;
    dispositions::set_mask(mask);
}

fn fork(ctx: &mut ThreadContext, flags: u64, stack: u64, ptid: u64, ctid: u64, tls: u64) -> i64 {
    crate::pm::going_parallel();
    let shown = crate::deterministic::reserve_pid();
    let old = dispositions::block_all();
    let departure = match flags & CLONE_VFORK {
        0 => None,
        _ => match Departure::prepare() {
            Ok(departure) => Some(departure),
            Err(error) => {
                if ctx.pending_signal() == 0 {
                    dispositions::set_mask(old);
                }
                return error;
            }
        },
    };
    // No other thread may be in the middle of changing engine state.
    let fork = crate::pm::fork_begins(ctx);
    let seat = turn::on().then(|| turn::arrive(fork.thread()));
    let mut told = flags & !CLONE_VFORK;
    if seat.is_some() {
        told &= !(CLONE_CHILD_CLEARTID | CLONE_PARENT_SETTID | CLONE_CHILD_SETTID);
    }
    let holes = crate::layout::lock_for_fork();
    let heap = crate::heap::HEAP.lock();
    // The kernel takes `stack` for the child; ours is the copy of this one, so the program's goes
    // into its registers. Waiting for the child there would be waiting with all locks of the
    // engine: see `Departure`. SAFETY: a plain fork as far as the engine is concerned.
    let ret = unsafe { sc!(nr::CLONE, told, 0, ptid, ctid, tls) };
    drop(heap);
    drop(holes);
    if ret == 0 {
        refresh_pid();
        for other in ThreadContext::all() {
            if !other.is(ctx) {
                other.free();
            }
        }
        // SAFETY: no arguments.
        ctx.tid = unsafe { sc!(nr::GETTID) } as u32;
        ctx.group = real_pid();
        ctx.borrows_memory = false;
        if stack != 0 {
            ctx.gpr[4] = stack;
        }
        crate::context::reset_after_fork();
        signal::reset_after_fork(ctx);
        crate::learned::reset_after_fork();
        crate::bulk::reset_after_fork();
        crate::deterministic::reset_after_fork();
        crate::layout::reset_after_fork();
        crate::deterministic::bind_pid(ctx.tid, shown);
        crate::pm::forked_child(ctx, fork);
        if let Some(seat) = seat {
            ctx.seat = seat;
            crate::schedule::timers::reset_after_fork();
            ctx.robust_list = 0;
            ctx.clear_tid = match flags & CLONE_CHILD_CLEARTID {
                0 => 0,
                _ => ctid,
            };
            turn::await_first_turn(ctx);
            if flags & CLONE_CHILD_SETTID != 0 {
                crate::values::write_value(ctx, ctid, &shown);
            }
        }
    } else {
        if ret > 0 {
            crate::deterministic::bind_pid(ret as u32, shown);
        }
        crate::pm::fork_ends(ctx, fork, ret);
        if let Some(seat) = seat {
            turn::made(ctx, seat, ret, ret as u32, false);
            if ret > 0 && flags & CLONE_PARENT_SETTID != 0 {
                crate::values::write_value(ctx, ptid, &shown);
            }
        }
    }
    if let Some(departure) = departure {
        match ret {
            0 => departure.keep_open(),
            _ if turn::on() => {
                let here = turn::waits_for_child(ctx);
                turn::away(ctx, here, |_| departure.wait(ret > 0));
            }
            _ => departure.wait(ret > 0),
        }
    }
    if ctx.pending_signal() == 0 {
        dispositions::set_mask(old);
    }
    ret
}

/// By which a parent learns that its child has ended or executes another program: both close the
/// child's end of this pipe. (A child that closes all descriptors on its way to `execve` is let go
/// a little early.)
struct Departure {
    parents: u64,
    childs: u64,
}

impl Departure {
    fn prepare() -> Result<Departure, i64> {
        let mut ends = [0u32; 2];
        // SAFETY: two descriptors into our own words.
        let result = unsafe { sc!(nr::PIPE2, ends.as_mut_ptr(), O_CLOEXEC) };
        match result {
            0 => Ok(Departure {
                parents: out_of_the_way(ends[0]),
                childs: out_of_the_way(ends[1]),
            }),
            // As if there were too many processes: `clone` knows no error of descriptors.
            _ => Err(-sys::EAGAIN),
        }
    }

    /// In the child: until it departs.
    fn keep_open(self) {
        // SAFETY: our own descriptor.
        unsafe { sc!(nr::CLOSE, self.parents) };
    }

    /// In the parent. Signals wait as they do in the kernel's `vfork`.
    fn wait(self, has_child: bool) {
        let mut byte = 0u8;
        // SAFETY: our own descriptors and byte.
        unsafe {
            sc!(nr::CLOSE, self.childs);
            while has_child && sc!(nr::READ, self.parents, &raw mut byte, 1) == -sys::EINTR {}
            sc!(nr::CLOSE, self.parents);
        }
    }
}

const O_CLOEXEC: u64 = 0x8_0000;

/// Moves a descriptor to where the program's own are unlikely to come: it finds them numbered as
/// without us.
fn out_of_the_way(fd: u32) -> u64 {
    const F_DUPFD_CLOEXEC: u64 = 1030;
    const FIRST: u64 = 200;
    // SAFETY: our own descriptor.
    unsafe {
        let moved = sc!(nr::FCNTL, fd, F_DUPFD_CLOEXEC, FIRST);
        if moved < 0 {
            return u64::from(fd);
        }
        sc!(nr::CLOSE, fd);
        moved as u64
    }
}

/// The program makes or enters namespaces, as flags of `clone` say: if numbers of processes begin
/// anew there, the tool must know.
pub fn may_enter_namespace(flags: u64) {
    if flags & CLONE_NEWPID != 0 {
        let c = control();
        c.pid_namespaces.store(1, Ordering::Release);
    }
}

/// `vfork`
pub fn vfork(ctx: &mut ThreadContext) -> i64 {
    clone(ctx, CLONE_VM | CLONE_VFORK | SIGCHLD, 0, 0, 0, 0)
}

/// `fork`
pub fn plain_fork(ctx: &mut ThreadContext) -> i64 {
    clone(ctx, SIGCHLD, 0, 0, 0, 0)
}

/// Flags whose arguments `clone` uses.
pub fn clone_arguments(a: &[u64; 6]) -> (u64, u64, u64, u64, u64) {
    let flags = a[0];
    let keep = |f: u64, v: u64| if flags & f != 0 { v } else { 0 };
    (
        flags,
        a[1],
        keep(CLONE_PARENT_SETTID | CLONE_PIDFD, a[2]),
        keep(CLONE_CHILD_SETTID | CLONE_CHILD_CLEARTID, a[3]),
        keep(CLONE_SETTLS, a[4]),
    )
}

/// `getppid`. Orphans of the program are the tool's children, so that it can wait for them. They
/// are told that their parent is the first process, as they would be natively.
pub fn parent() -> i64 {
    const INIT: i64 = 1;
    // SAFETY: no arguments.
    let parent = unsafe { sc!(nr::GETPPID) };
    let c = control();
    let is = |number: &AtomicU32, pid: u32| number.load(Ordering::Relaxed) == pid;
    if is(&c.tool_process, parent as u32) && !is(&c.first_process, real_pid()) {
        INIT
    } else {
        parent
    }
}

/// `exit_group`. `None`: a signal comes first.
pub fn exit_group(ctx: &mut ThreadContext, code: u64) -> Option<i64> {
    // From here on nothing of the program is executed any more.
    let old = dispositions::block_all();
    if ctx.has_pending() {
        if ctx.pending_signal() == 0 {
            dispositions::set_mask(old);
        }
        return None;
    }
    crate::pm::process_exits(ctx, code as i32);
    crate::bulk::ends();
    futex::process_ends(ctx);
    // SAFETY: ends the process.
    Some(unsafe { sc!(nr::EXIT_GROUP, code) })
}

/// `exit`: the calling thread only.
pub fn exit_thread(ctx: &mut ThreadContext, code: u64) -> ! {
    crate::pm::thread_exits(ctx);
    dispositions::block_all();
    if turn::on() {
        match crate::context::has_siblings(ctx) {
            true => {
                futex::thread_ends(ctx);
                turn::leave(ctx);
            }
            false => futex::process_ends(ctx),
        }
    }
    // SAFETY: frees the context and ends the thread without touching its stack again.
    unsafe { asm::bo_thread_exit(ctx.in_use.as_ptr(), code) }
}

core::arch::global_asm!(".global bo_exec_failed", "bo_exec_failed:", "int3", "ret",);
unsafe extern "C" {
    fn bo_exec_failed();
}

/// `execve` and `execveat`: the tool outside seizes this thread, so that the engine is there
/// again when the new program begins. `None`: a signal comes first.
///
/// All asynchronous signals are blocked from here on: one that came to our handler now would be
/// gone with the old program. The kernel keeps them, and the tool gives the new program the mask
/// that this one believes to have.
pub fn exec(ctx: &mut ThreadContext, call: &[u64; 7]) -> Option<i64> {
    let old = dispositions::block_all();
    if ctx.has_pending() {
        if ctx.pending_signal() == 0 {
            dispositions::set_mask(old);
        }
        return None;
    }
    let inherited = old & !SYNC_MASK | ctx.blocked_sync;
    let followed = service::attach_for_exec(&[
        ctx.tid as u64,
        bo_exec_failed as *const () as usize as u64,
        // Who has this memory, too, keeps it, and the process of the stream with it.
        ctx.process as u64 | (crate::context::shares_memory(ctx) as u64) << 32,
        signal::ignored_sync(ctx),
        ctx.blocked_sync,
        crate::deterministic::shown_pid(real_pid()) as u64,
        ctx.thread as u64,
        inherited,
    ]);
    // If the call succeeds, it ends all other threads of this process. The tool gives the ring back
    // then.
    let ring = (followed && crate::context::has_siblings(ctx))
        .then(|| crate::pm::hold_ring(ctx))
        .flatten();
    signal::before_exec(ctx);
    if followed {
        dispositions::set_mask(!SYNC_MASK | ctx.blocked_sync);
    } else {
        // Nobody will set it later.
        dispositions::set_mask(inherited);
    }
    signal::pass_on_held(ctx);
    if turn::on() {
        turn::executes(ctx);
    }
    // SAFETY: the program's own call, pointers rewritten by the caller.
    let ret = unsafe {
        sys::syscall6(
            call[0], call[1], call[2], call[3], call[4], call[5], call[6],
        )
    };
    drop(ring);
    if turn::on() {
        turn::goes_on(ctx);
    }
    signal::after_failed_exec();
    if ctx.pending_signal() == 0 {
        dispositions::set_mask(old);
    } else {
        dispositions::block_all();
    }
    if followed {
        // Tells the tracer to let go.
        // SAFETY: traps to the tracer, which suppresses the signal and detaches.
        unsafe { bo_exec_failed() };
    }
    Some(ret)
}
