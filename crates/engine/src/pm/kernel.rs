//! What system calls do to tracked memory and files.

use super::files;
use super::files::{Readable, file_was_read, fstat, open_again, position, tracked_file};
use super::record::{Here, event, readable_parts};
use super::regions::{self, REGIONS};
use crate::address::{AliasAddr, ProgramAddr, Reach};
use crate::context::ThreadContext;
use crate::service;
use crate::sys::{self, nr, sc};
use alloc::vec::Vec;
use brownout_abi::rare;
use brownout_syscalls::pipeline::{Call, Rest};
use brownout_syscalls::{
    FileEffect, Memory, Prepared, ReadAt, Run, SyncScope, Translate, WrittenAt,
};

pub struct Engine;

impl Translate for Engine {
    fn alias_of(&self, addr: u64) -> Option<u64> {
        REGIONS
            .lock()
            .find(addr)
            .map(|r| r.delta.alias_of(ProgramAddr::new(addr)).get())
    }
    fn run(&self, addr: u64, len: u64) -> Run {
        let regions = REGIONS.lock();
        match regions.find(addr) {
            Some(r) => Run {
                alias: Some(r.delta.alias_of(ProgramAddr::new(addr)).get()),
                len: len.min(r.end - addr),
            },
            None => {
                let next = regions
                    .list
                    .iter()
                    .find(|r| r.start > addr)
                    .map_or(u64::MAX, |r| r.start);
                Run {
                    alias: None,
                    len: len.min(next - addr),
                }
            }
        }
    }
    fn program_of(&self, alias: u64) -> Option<u64> {
        let alias = AliasAddr::new(alias);
        REGIONS
            .lock()
            .find_alias(alias)
            .map(|r| r.delta.program_of(alias).get())
    }
    fn is_self(&self, pid: i32) -> bool {
        pid as u32 == crate::control::real_pid()
    }
}

/// By real addresses, as that crate has it.
impl Memory for Engine {
    fn read(&self, addr: u64, to: &mut [u8]) -> bool {
        sys::read_memory(Reach::real(addr), to)
    }
    fn write(&self, addr: u64, from: &[u8]) -> bool {
        sys::write_memory(Reach::real(addr), from)
    }
}

/// Whether a call makes files durable that this process need not know of.
pub fn syncs_all(number: u64) -> bool {
    matches!(number, nr::SYNC | nr::SYNCFS)
}

/// Runs `f` with the arguments rewritten to aliases.
pub fn with_prepared(
    ctx: &mut ThreadContext,
    number: u64,
    a: &[u64; 6],
    f: impl FnOnce(&mut ThreadContext, &[u64; 7]) -> Option<i64>,
) -> Option<i64> {
    let mut b = *a;
    let mut prepared = Prepared::new();
    if crate::mode().record && regions::any() {
        // What cannot be rewritten cannot be read by the kernel either: it answers EFAULT.
        let _ = brownout_syscalls::prepare(number, &mut b, &Engine, &Engine, &mut prepared);
        kernel_reads(ctx, &prepared);
    }
    f(ctx, &[number, b[0], b[1], b[2], b[3], b[4], b[5]])
}

/// A call with all that it does to tracked memory and files. `made` is told the result before what
/// the call did to files is recorded.
pub fn tracked(
    ctx: &mut ThreadContext,
    call: &Call,
    rest: Rest<ThreadContext>,
    made: impl FnOnce(&mut ThreadContext, i64),
) -> Option<i64> {
    let (number, a) = (call.number, &call.args);
    let mut b = *a;
    let mut prepared = Prepared::new();
    if let Err(u) = brownout_syscalls::prepare(number, &mut b, &Engine, &Engine, &mut prepared) {
        if let Some(errno) = u.answer() {
            return Some(-(errno as i64));
        }
        crate::fatal_unsupported(&alloc::format!("{u}"));
    }
    refuse_retained(number, &prepared);
    kernel_reads(ctx, &prepared);
    let result = rest.make(ctx, &call.with(b));
    let Some(result) = result else {
        brownout_syscalls::finish(&prepared, -sys::EINTR, &Engine, &Engine, &mut |_, _| {});
        return None;
    };
    kernel_writes(ctx, number, &prepared, result);
    made(ctx, result);
    if files::any() || syncs_all(number) {
        if crate::mode().loads {
            file_reads(ctx, number, a, result);
        }
        file_effects(ctx, number, a, result);
    }
    if number == nr::FUTEX {
        event(
            ctx,
            rare::FUTEX,
            [a[0], a[1], a[2], result as u64, 0, 0],
            &[],
        );
    }
    Some(result)
}

/// A call that the engine answers by itself: what it reads and writes of tracked memory is recorded
/// all the same.
pub fn answered(
    ctx: &mut ThreadContext,
    number: u64,
    a: &[u64; 6],
    answer: impl FnOnce(&mut ThreadContext) -> i64,
) -> i64 {
    if !crate::mode().record || !regions::any() {
        return answer(ctx);
    }
    let mut b = *a;
    let mut prepared = Prepared::new();
    if let Err(u) = brownout_syscalls::prepare(number, &mut b, &Engine, &Engine, &mut prepared) {
        crate::fatal_unsupported(&alloc::format!("{u}"));
    }
    refuse_retained(number, &prepared);
    kernel_reads(ctx, &prepared);
    let result = answer(ctx);
    kernel_writes(ctx, number, &prepared, result);
    result
}

/// Memory that the kernel goes on to use after the call: what it does there then would not be seen.
fn refuse_retained(number: u64, prepared: &Prepared) {
    // What comes of these is told by `io_getevents`.
    const IO_SUBMIT: u64 = 209;
    if number != IO_SUBMIT && !prepared.retained().is_empty() {
        crate::fatal_unsupported(&alloc::format!(
            "system call {number} ({}) leaves an address in persistent memory with the kernel, which would write there unseen",
            brownout_syscalls::name(number)
        ));
    }
}

/// Records what a call has written to tracked memory.
fn kernel_writes(ctx: &mut ThreadContext, number: u64, prepared: &Prepared, result: i64) {
    let mut written: Vec<(u64, u64)> = Vec::new();
    brownout_syscalls::finish(prepared, result, &Engine, &Engine, &mut |addr, len| {
        written.push((addr, len))
    });
    if !written.is_empty() {
        let mut here = Here::new(ctx);
        for (addr, len) in written {
            for (start, end) in readable_parts(addr, addr.saturating_add(len)) {
                here.kernel_store(number, start, end - start);
            }
        }
    }
}

/// Records what the kernel is about to read of tracked memory: before the call, because that may
/// overwrite it.
fn kernel_reads(ctx: &mut ThreadContext, prepared: &Prepared) {
    // Buffers of asynchronous I/O count as read when they are handed over.
    let ranges = prepared.reads().iter().chain(prepared.retained());
    if !crate::mode().loads || ranges.clone().next().is_none() {
        return;
    }
    let mut here = Here::new(ctx);
    for range in ranges {
        // A string byte by byte: how far it goes depends on what was read before. So that reads are
        // a function of what they have seen.
        let is_string = prepared.ends_itself(range);
        for (start, end) in readable_parts(range.addr, range.addr.saturating_add(range.len)) {
            let step = if is_string { 1 } else { (end - start).max(1) };
            for at in (start..end).step_by(step as usize) {
                here.load(at, step);
            }
        }
    }
}

/// Records what a call has read of a tracked file through a descriptor.
fn file_reads(ctx: &mut ThreadContext, number: u64, a: &[u64; 6], result: i64) {
    let Some(read) = brownout_syscalls::file_read(number, a, result, &Engine, &Engine) else {
        return;
    };
    if let Some(file) = tracked_file(read.fd as u64) {
        let offset = match read.at {
            ReadAt::Offset(offset) => offset,
            ReadAt::BeforePosition => position(read.fd).wrapping_sub(read.len),
        };
        file_was_read(ctx, file, offset, read.len);
    }
}

const RWF_DSYNC: u64 = 2;
const RWF_SYNC: u64 = 4;

/// All tracked files on a device (0: on any) are durable, also those that only other processes know
/// of.
fn all_synced(ctx: &mut ThreadContext, device: u64) {
    for file in service::files(device) {
        event(ctx, rare::FSYNC, [file as u64, 0, 0, 0, 0, 0], &[]);
    }
}

fn file_effects(ctx: &mut ThreadContext, number: u64, a: &[u64; 6], result: i64) {
    if result < 0 {
        return;
    }
    if let Some(scope) = brownout_syscalls::sync_scope(number, a) {
        match scope {
            SyncScope::File { fd, metadata } => {
                if let Some(file) = tracked_file(fd as u64) {
                    let words = [file as u64, !metadata as u64, 0, 0, 0, 0];
                    event(ctx, rare::FSYNC, words, &[]);
                }
            }
            SyncScope::FileSystem { fd } => {
                if let Some(s) = fstat(fd as u64) {
                    all_synced(ctx, s.dev);
                }
            }
            SyncScope::Everything => all_synced(ctx, 0),
            // `msync` is handled with the mappings; `sync_file_range` promises nothing: not the
            // size, not the device's cache.
            SyncScope::Memory { .. } | SyncScope::FileRange { .. } => {}
        }
        return;
    }
    let Some(effect) = brownout_syscalls::file_effect(number, a, result, &Engine, &Engine) else {
        return;
    };
    match effect {
        FileEffect::Wrote { fd, at, len } => {
            let Some(file) = tracked_file(fd as u64) else {
                return;
            };
            const O_APPEND: i64 = 0o2000;
            // Also part of O_SYNC. Both stay as the file was opened: F_SETFL does not change them.
            const O_DSYNC: i64 = 0o10000;
            // SAFETY: F_GETFL.
            let flags = unsafe { sc!(nr::FCNTL, fd, 3) }.max(0);
            let append = flags & O_APPEND != 0;
            let offset = match at {
                WrittenAt::Offset(o) if !append => o,
                WrittenAt::BeforePosition => position(fd).wrapping_sub(len),
                _ => fstat(fd as u64).map_or(0, |s| s.size).wrapping_sub(len),
            };
            file_content(ctx, file, fd as u64, offset, len);
            if flags & O_DSYNC != 0 && number != nr::COPY_FILE_RANGE
                || number == nr::PWRITEV2 && a[5] & (RWF_DSYNC | RWF_SYNC) != 0
            {
                let words = [file as u64, offset, len, 0, 0, 0];
                event(ctx, rare::FILE_SYNC, words, &[]);
            }
        }
        FileEffect::Resized { fd, size } => {
            if let Some(file) = tracked_file(fd as u64) {
                event(ctx, rare::TRUNCATE, [file as u64, size, 0, 0, 0, 0], &[]);
            }
        }
        FileEffect::Allocated {
            fd, offset, len, ..
        } => {
            let Some(file) = tracked_file(fd as u64) else {
                return;
            };
            if let Some(s) = fstat(fd as u64) {
                event(ctx, rare::TRUNCATE, [file as u64, s.size, 0, 0, 0, 0], &[]);
                // Punched or zeroed stretches read as what they are now.
                const COLLAPSE_OR_INSERT: u64 = 0x28;
                let mode = a[1];
                // Those move everything behind.
                let len = if mode & COLLAPSE_OR_INSERT != 0 {
                    u64::MAX
                } else {
                    len
                };
                if mode & !1 != 0 {
                    file_content(
                        ctx,
                        file,
                        fd as u64,
                        offset,
                        len.min(s.size.saturating_sub(offset)),
                    );
                }
            }
        }
        FileEffect::Cloned { fd, offset, len } => {
            let Some(file) = tracked_file(fd as u64) else {
                return;
            };
            let size = fstat(fd as u64).map_or(0, |s| s.size);
            let len = if len == 0 {
                size.saturating_sub(offset)
            } else {
                len
            };
            file_content(ctx, file, fd as u64, offset, len);
        }
        FileEffect::ResizedPath { path, size } => {
            let Some(mut bytes) = crate::values::read_path(path) else {
                return;
            };
            bytes.push(0);
            // SAFETY: NUL-terminated; O_PATH|O_CLOEXEC.
            let fd = unsafe { sc!(nr::OPEN, bytes.as_ptr(), 0x28_0000) };
            if fd >= 0 {
                if let Some(file) = tracked_file(fd as u64) {
                    event(ctx, rare::TRUNCATE, [file as u64, size, 0, 0, 0, 0], &[]);
                }
                // SAFETY: our own descriptor.
                unsafe { sc!(nr::CLOSE, fd) };
            }
        }
    }
}

/// Records what a stretch of a tracked file holds now, after a descriptor wrote it.
fn file_content(ctx: &mut ThreadContext, file: u32, fd: u64, offset: u64, len: u64) {
    const PIECE: usize = 1920;
    // The program's descriptor may be write-only.
    let mut own = open_again(fd);
    if own < 0
        && let Some(readable) = fstat(fd).and_then(|s| Readable::make(fd, s.mode))
    {
        own = open_again(fd);
        drop(readable);
    }
    let mut here = Here::new(ctx);
    let mut at = 0;
    while at < len {
        let n = (len - at).min(PIECE as u64);
        let mut buffer = [0u8; PIECE];
        // SAFETY: our own buffer.
        let got = unsafe { sc!(nr::PREAD64, own, buffer.as_mut_ptr(), n, offset + at) };
        let bytes = if crate::mode().values && got > 0 {
            &buffer[..got as usize]
        } else {
            &[][..]
        };
        let size = if crate::mode().values {
            bytes.len() as u64
        } else {
            n
        };
        if size == 0 {
            break;
        }
        let words = [file as u64, offset + at, size, 0, 0, 0];
        here.event(rare::FILE_WRITE, words, bytes);
        at += size;
    }
    drop(here);
    if own >= 0 {
        // SAFETY: our own descriptor.
        unsafe { sc!(nr::CLOSE, own) };
    }
}
