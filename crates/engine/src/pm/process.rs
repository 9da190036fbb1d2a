//! Starts and ends of threads and processes, in the stream.
//!
//! **A fork** is in the stream where it happened: the parent has the ring from before the call
//! until it has told of its child, and all changes of tracked mappings are made with the ring, too.
//! So the child begins with exactly the mappings that the stream has for its parent there, whatever
//! the parent does next, and nothing of the child's comes earlier, because it needs the ring.
//! Should the parent be killed in between, the child tells of itself: nothing of the parent can
//! have followed.
//!
//! **An end** (`exit_group`, a deadly signal) takes the ring with it if other threads of the
//! process might still use it. The tool frees it. Processes that share memory (`CLONE_VM` without
//! `CLONE_THREAD`; `vfork`) are one process of the stream, which ends with the last.

use super::ring::{self, Writer};
use super::{regions, site, stacks};
use crate::context::ThreadContext;
use crate::control::control;
use crate::paths::read_link;
use alloc::vec::Vec;
use brownout_abi::{THREADS_MAX, rare};
use core::sync::atomic::{AtomicU64, Ordering};

fn recording() -> bool {
    crate::mode().record
}

fn next_thread() -> u32 {
    let n = control().next_thread.fetch_add(1, Ordering::Relaxed);
    if n > 0xffff {
        crate::fatal_unsupported("the run has more than 65,535 threads");
    }
    n
}

fn name_thread(ctx: &mut ThreadContext) {
    set_thread(ctx, next_thread());
}

fn set_thread(ctx: &mut ThreadContext, thread: u32) {
    ctx.thread = thread;
    ctx.thread_bits = (ctx.thread as u64) << 16;
}

/// Lets the tool know who a thread number is. Called by the thread itself, before it first takes
/// the ring.
pub fn register(ctx: &ThreadContext) {
    control().threads[ctx.thread as usize & (THREADS_MAX - 1)].store(ctx.tid, Ordering::Release);
}

fn event(ctx: &ThreadContext, which: u64, words: [u64; 6], text: &[u8]) {
    Writer::lock(ctx).rare(ctx, 0, 0, which, words, text);
}

/// The first thread of a new program. `previous`: number of the process that called `execve`; bit
/// 32 if that was a child in its parent's memory, which now becomes a process of its own.
pub fn init_process(ctx: &mut ThreadContext, previous: u64) {
    if !recording() {
        return;
    }
    let (before, borrowed) = (previous as u32, previous >> 32 != 0);
    name_thread(ctx);
    register(ctx);
    let mut parent = 0;
    if before != 0 && !borrowed {
        ctx.process = before;
    } else {
        ctx.process = control().next_process.fetch_add(1, Ordering::Relaxed);
        parent = before;
    }
    if before != 0 {
        // The stream has it that a process is made with its parent's mappings, and loses them by
        // `execve`.
        if borrowed {
            announce_process(ctx, parent);
        }
        let words = [ctx.process as u64, REPLACED, 0, 0, 0, 0];
        event(ctx, rare::PROCESS_EXIT, words, &[]);
    }
    announce_process(ctx, parent);
    let program = read_link(EXE);
    for m in crate::maps::read() {
        if m.exec && !crate::blocks::is_engine(m.start) && m.path != b"[vsyscall]" {
            let is_program = m.path == program;
            super::hooks::code_mapped(m.start, m.end - m.start, m.offset, &m.path, is_program);
            announce_module(ctx, m.start, m.end - m.start, m.offset, &m.path);
        }
    }
}

fn announce_process(ctx: &ThreadContext, parent: u32) {
    let exe = read_link(EXE);
    let born = Birth {
        process: ctx.process,
        thread: ctx.thread,
        exe,
    };
    let pid = crate::control::real_pid();
    born.announce(&mut Writer::lock(ctx), parent, pid);
}

const EXE: &[u8] = b"/proc/self/exe\0";

/// A process that is being made: its numbers, and what it executes.
pub struct Birth {
    process: u32,
    thread: u32,
    exe: Vec<u8>,
}

impl Birth {
    /// Puts it into the stream, with its first thread. `pid`: as the caller knows it.
    fn announce(&self, ring: &mut Writer, parent: u32, pid: u32) {
        let shown = crate::deterministic::shown_pid(pid) as u64;
        let (process, thread) = (self.process as u64, self.thread as u64);
        ring.together(
            self.thread,
            [
                (
                    rare::PROCESS_START,
                    [process, parent as u64, shown, 0, 0, 0],
                    &self.exe,
                ),
                (
                    rare::THREAD_START,
                    [thread, process, shown, pid as u64, 0, 0],
                    &[],
                ),
            ],
        );
        // Whoever is killed before tells it twice, which does no harm.
        let (word, bit) = self.bit();
        word.fetch_or(bit, Ordering::AcqRel);
    }

    fn is_announced(&self) -> bool {
        let (word, bit) = self.bit();
        word.load(Ordering::Acquire) & bit != 0
    }

    fn bit(&self) -> (&'static AtomicU64, u64) {
        let n = self.process as usize & (THREADS_MAX - 1);
        (&control().processes[n / 64], 1 << (n % 64))
    }
}

fn announce_thread(ctx: &ThreadContext) {
    let tid = crate::deterministic::shown_pid(ctx.tid);
    let own_process = if ctx.borrows_memory { ctx.tid } else { 0 };
    event(
        ctx,
        rare::THREAD_START,
        [
            ctx.thread as u64,
            ctx.process as u64,
            tid as u64,
            own_process as u64,
            0,
            0,
        ],
        &[],
    );
}

/// A child process is about to be made: the tool does not take the run for ended before that is in
/// the stream.
pub fn process_begins() {
    if recording() {
        control().unannounced.fetch_add(1, Ordering::AcqRel);
    }
}

/// It is, or was not made after all.
pub fn process_announced() {
    if recording() {
        control().unannounced.fetch_sub(1, Ordering::AcqRel);
    }
}

/// From now on several threads or processes append.
pub fn going_parallel() {
    if !recording() || ring::shared() {
        return;
    }
    control().ring_shared.store(1, Ordering::SeqCst);
    // Sites were translated without the lock. This thread is the only one, and it is not in the
    // cache.
    let mut e = crate::blocks::ENGINE.lock();
    let ids: Vec<u32> = (0..e.blocks.len() as u32)
        .filter(|&i| !e.blocks[i as usize].dead && !e.blocks[i as usize].sites.is_empty())
        .collect();
    for id in ids {
        e.kill(id);
    }
}

/// Before a `CLONE_VM` child starts.
pub fn thread_created(ctx: &mut ThreadContext, child: &mut ThreadContext) {
    if !recording() {
        return;
    }
    child.process = ctx.process;
    name_thread(child);
}

/// First thing of a new thread.
pub fn thread_started(ctx: &mut ThreadContext) {
    if recording() {
        register(ctx);
        announce_thread(ctx);
        if ctx.borrows_memory {
            process_announced();
        }
    }
}

/// A fork under way: what nobody else may be in the middle of while the address space is copied.
pub struct Fork {
    birth: Option<Birth>,
    ring: Writer,
    _tables: (
        crate::sync::Guard<'static, crate::blocks::Engine>,
        regions::Lock,
        site::Lock,
        stacks::Lock,
    ),
}

impl Fork {
    /// The number of the child's first thread; 0 if nothing is recorded.
    pub fn thread(&self) -> u32 {
        self.birth.as_ref().map_or(0, |birth| birth.thread)
    }
}

/// Before a fork. Nothing may be allocated from here until one of the two functions that follow has
/// been called.
pub fn fork_begins(ctx: &ThreadContext) -> Fork {
    process_begins();
    let birth = recording().then(|| Birth {
        process: control().next_process.fetch_add(1, Ordering::Relaxed),
        thread: next_thread(),
        exe: read_link(EXE),
    });
    // In this order (RING-3).
    let ring = Writer::lock(ctx);
    let engine = crate::blocks::ENGINE.lock();
    let tables = (engine, regions::lock(), site::lock(), stacks::lock());
    Fork {
        birth,
        ring,
        _tables: tables,
    }
}

/// In the parent: `pid` is what the call has answered; negative: there is no child.
pub fn fork_ends(ctx: &ThreadContext, fork: Fork, pid: i64) {
    let Fork {
        birth,
        mut ring,
        _tables,
    } = fork;
    drop(_tables);
    if let Some(birth) = birth {
        if pid > 0 {
            birth.announce(&mut ring, ctx.process, pid as u32);
        }
        process_announced();
    }
}

/// In the child.
pub fn forked_child(ctx: &mut ThreadContext, fork: Fork) {
    let Fork {
        birth,
        ring,
        _tables,
    } = fork;
    // It is the parent's, which gives it back when the child is in the stream.
    ring.forget();
    drop(_tables);
    super::hooks::reset_after_fork();
    super::irregular::reset_after_fork();
    super::outside::reset_after_fork();
    super::requests::reset_after_fork();
    super::files::reset_after_fork();
    super::record::reset_after_fork();
    crate::follow::reset_after_fork();
    let Some(birth) = birth else { return };
    let parent = ctx.process;
    ctx.process = birth.process;
    set_thread(ctx, birth.thread);
    register(ctx);
    let mut ring = Writer::lock(ctx);
    if !birth.is_announced() {
        birth.announce(&mut ring, parent, crate::control::real_pid());
        process_announced();
    }
}

pub fn thread_exits(ctx: &mut ThreadContext) {
    if recording() {
        event(ctx, rare::THREAD_EXIT, [0; 6], &[]);
    }
}

/// How a process ends.
const BY_CODE: u64 = 0;
const BY_SIGNAL: u64 = 1;
const REPLACED: u64 = 2;

/// The process is about to end: there must be no way back.
pub fn process_exits(ctx: &mut ThreadContext, code: i32) {
    if recording() {
        process_ends(ctx, BY_CODE, (code & 0xff) as u64);
    }
}

/// As [`process_exits`], by a signal.
pub fn process_dies(ctx: &mut ThreadContext, sig: i32) {
    if recording() {
        process_ends(ctx, BY_SIGNAL, sig as u64);
    }
}

fn process_ends(ctx: &mut ThreadContext, how: u64, value: u64) {
    let mut ring = Writer::lock(ctx);
    if crate::context::shares_memory(ctx) {
        ring.rare(ctx, 0, 0, rare::THREAD_EXIT, [0; 6], &[]);
    } else {
        let words = [ctx.process as u64, how, value, 0, 0, 0];
        ring.rare(ctx, 0, 0, rare::PROCESS_EXIT, words, &[]);
    }
    if crate::context::has_siblings(ctx) {
        // They may just be making accesses. With this they are over, or do not happen (RING-1).
        ring.keep();
    }
}

/// Keeps other threads of this process from being between an access and its record.
pub fn hold_ring(ctx: &ThreadContext) -> Option<Writer> {
    recording().then(|| Writer::lock(ctx))
}

fn announce_module(ctx: &mut ThreadContext, start: u64, len: u64, offset: u64, path: &[u8]) {
    event(
        ctx,
        rare::MODULE,
        [ctx.process as u64, start, len, offset, 0, 0],
        path,
    );
    stacks::module_announced(start, start + len);
}

/// Executable code was unmapped, or something else was mapped in its place.
pub fn code_unmapped(ctx: &ThreadContext, start: u64, end: u64) {
    if !recording() {
        return;
    }
    if !stacks::code_unmapped(start, end) {
        return;
    }
    // No file: so the stream says that the addresses are nobody's.
    event(
        ctx,
        rare::MODULE,
        [ctx.process as u64, start, end - start, 0, 0, 0],
        &[],
    );
}

/// Executable code was mapped.
pub fn code_mapped(ctx: &mut ThreadContext, start: u64, len: u64, args: &[u64; 6]) {
    if !recording() {
        return;
    }
    code_unmapped(ctx, start, start + len);
    if args[3] & crate::sys::MAP_ANONYMOUS != 0 {
        return;
    }
    let path = alloc::format!("/proc/self/fd/{}\0", args[4] as i32);
    let path = read_link(path.as_bytes());
    super::hooks::code_mapped(start, len, args[5], &path, false);
    announce_module(ctx, start, len, args[5], &path);
}
