//! Starts and ends of threads and processes, in the stream.

use super::ring::{self, Writer};
use super::{regions, site, stacks};
use crate::context::ThreadContext;
use crate::service::control;
use alloc::vec::Vec;
use brownout_abi::rare;
use core::sync::atomic::Ordering;

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
    ctx.thread = next_thread();
    ctx.thread_bits = (ctx.thread as u64) << 16;
}

fn event(ctx: &ThreadContext, which: u64, words: [u64; 6], text: &[u8]) {
    Writer::lock(ctx).rare(ctx, 0, 0, which, words, text);
}

/// The first thread of a new program. `previous`: number of the process that called `execve`; bit 32 if that was a
/// child in its parent's memory, which now becomes a process of its own.
pub fn init_process(ctx: &mut ThreadContext, previous: u64) {
    if !recording() {
        return;
    }
    let (before, borrowed) = (previous as u32, previous >> 32 != 0);
    name_thread(ctx);
    let mut parent = 0;
    if before != 0 && !borrowed {
        ctx.process = before;
    } else {
        ctx.process = control().next_process.fetch_add(1, Ordering::Relaxed);
        parent = before;
    }
    if before != 0 {
        // The stream has it that a process is made with its parent's mappings, and loses them by `execve`.
        if borrowed {
            announce_process(ctx, parent);
        }
        process_ends(ctx, 2, 0);
    }
    announce_process(ctx, parent);
    let program = read_link(b"/proc/self/exe\0");
    for m in crate::maps::read() {
        if m.exec && !crate::dispatch::is_engine(m.start) && m.path != b"[vsyscall]" {
            let is_program = m.path == program;
            super::hooks::code_mapped(m.start, m.end - m.start, m.offset, &m.path, is_program);
            event(
                ctx,
                rare::MODULE,
                [ctx.process as u64, m.start, m.end - m.start, m.offset, 0, 0],
                &m.path,
            );
        }
    }
}

fn announce_process(ctx: &mut ThreadContext, parent: u32) {
    let exe = read_link(b"/proc/self/exe\0");
    let pid = crate::deterministic::shown_pid(crate::process::real_pid());
    event(
        ctx,
        rare::PROCESS_START,
        [
            ctx.process as u64,
            parent as u64,
            pid as u64,
            crate::process::real_pid() as u64,
            0,
            0,
        ],
        &exe,
    );
    announce_thread(ctx, ctx);
}

fn announce_thread(by: &ThreadContext, new: &ThreadContext) {
    let tid = crate::deterministic::shown_pid(new.tid);
    let own_process = if new.borrows_memory { new.tid } else { 0 };
    event(
        by,
        rare::THREAD_START,
        [
            new.thread as u64,
            new.process as u64,
            tid as u64,
            own_process as u64,
            0,
            0,
        ],
        &[],
    );
}

/// A child process is about to be made: the tool does not take the run for ended before that has announced itself.
pub fn process_begins() {
    if recording() {
        control().unannounced.fetch_add(1, Ordering::AcqRel);
    }
}

/// It has, or was not made after all.
pub fn process_announced() {
    if recording() {
        control().unannounced.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Target of a symbolic link in `/proc`; `path` is NUL-terminated.
pub fn read_link(path: &[u8]) -> Vec<u8> {
    let mut buffer = alloc::vec![0u8; 4096];
    // SAFETY: NUL-terminated path, our own buffer.
    let n = unsafe {
        crate::sys::sc!(
            crate::sys::nr::READLINK,
            path.as_ptr(),
            buffer.as_mut_ptr(),
            buffer.len()
        )
    };
    buffer.truncate(n.max(0) as usize);
    buffer
}

/// From now on several threads or processes append.
pub fn going_parallel() {
    if !recording() || ring::shared() {
        return;
    }
    control().ring_shared.store(1, Ordering::SeqCst);
    // Sites were translated without the lock. This thread is the only one, and it is not in the cache.
    let mut e = crate::dispatch::ENGINE.lock();
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
        announce_thread(ctx, ctx);
        if ctx.borrows_memory {
            process_announced();
        }
    }
}

/// In the child of a fork.
pub fn forked_child(ctx: &mut ThreadContext) {
    regions::reset_after_fork();
    site::reset_after_fork();
    stacks::reset_after_fork();
    super::hooks::reset_after_fork();
    super::irregular::reset_after_fork();
    super::requests::reset_after_fork();
    super::kernel::reset_after_fork();
    if !recording() {
        return;
    }
    let parent = ctx.process;
    ctx.process = control().next_process.fetch_add(1, Ordering::Relaxed);
    name_thread(ctx);
    announce_process(ctx, parent);
    process_announced();
}

/// Nobody may hold a lock of ours while the address space is copied; the ring's is shared and is held by nobody here.
pub fn lock_for_fork() -> impl Drop {
    struct Both(#[allow(dead_code)] crate::sync::Guard<'static, regions::Regions>);
    impl Drop for Both {
        fn drop(&mut self) {}
    }
    Both(regions::REGIONS.lock())
}

pub fn thread_exits(ctx: &mut ThreadContext) {
    if recording() {
        event(ctx, rare::THREAD_EXIT, [0; 6], &[]);
    }
}

pub fn process_exits(ctx: &mut ThreadContext, code: i32) {
    if recording() {
        process_ends(ctx, 0, (code & 0xff) as u64);
    }
}

/// `how`: 0 exit code, 1 signal, 2 replaced.
pub fn process_ends(ctx: &mut ThreadContext, how: u64, value: u64) {
    event(
        ctx,
        rare::PROCESS_EXIT,
        [ctx.process as u64, how, value, 0, 0, 0],
        &[],
    );
}

/// Executable code was mapped.
pub fn code_mapped(ctx: &mut ThreadContext, start: u64, len: u64, args: &[u64; 6]) {
    if !recording() {
        return;
    }
    super::code_unmapped(start, start + len);
    if args[3] & crate::sys::MAP_ANONYMOUS != 0 {
        return;
    }
    let path = alloc::format!("/proc/self/fd/{}\0", args[4] as i32);
    let path = read_link(path.as_bytes());
    super::hooks::code_mapped(start, len, args[5], &path, false);
    event(
        ctx,
        rare::MODULE,
        [ctx.process as u64, start, len, args[5], 0, 0],
        &path,
    );
}
