//! System calls that concern tracked memory and files.

use super::regions::{self, REGIONS, Region};
use super::ring::Writer;
use super::{site, stacks};
use crate::asm::{Outcome, program_syscall};
use crate::context::ThreadContext;
use crate::maps::Mapping;
use crate::service;
use crate::sys::{self, nr, page_up, sc};
use alloc::vec::Vec;
use brownout_abi::{ClassifyAnswer, life, rare};
use brownout_syscalls::pipeline::{Call, Rest, Stage};
use brownout_syscalls::{
    FileEffect, Memory, Prepared, ReadAt, Run, SyncScope, Translate, WrittenAt,
};
use core::sync::atomic::{AtomicBool, Ordering};

/// Whether any file of this process is tracked, mapped or not.
static FILES: AtomicBool = AtomicBool::new(false);

/// A file that the tool has been asked about.
#[derive(Clone, Copy)]
struct Known {
    device: u64,
    inode: u64,
    /// Its life: inodes are used again.
    life: u64,
    /// Its number; 0 if it is not tracked.
    file: u32,
    /// It is not persistent memory, and tracked only because the run changes it.
    ordinary: bool,
    /// The tool has named it for this run.
    given: bool,
}

static KNOWN: crate::sync::SpinLock<Vec<Known>> = crate::sync::SpinLock::new(Vec::new());

/// Most files have an inode that no known one has had; only of others the life matters.
fn known(fd: u64, s: &Stat) -> Option<Known> {
    let same_inode = |k: &&Known| (k.device, k.inode) == (s.dev, s.ino);
    KNOWN.lock().iter().find(same_inode)?;
    let life = file_life(fd);
    let known = KNOWN.lock();
    let mut same = known.iter().filter(same_inode);
    same.find(|k| k.life == life).copied()
}

fn remember(fd: u64, s: &Stat, file: u32, ordinary: bool) {
    let life = file_life(fd);
    let mut known = KNOWN.lock();
    known.retain(|k| (k.device, k.inode) != (s.dev, s.ino));
    known.push(Known {
        device: s.dev,
        inode: s.ino,
        life,
        file,
        ordinary,
        given: false,
    });
}

/// See [`brownout_abi::file_life`].
fn file_life(fd: u64) -> u64 {
    #[repr(C)]
    struct Handle {
        bytes: u32,
        kind: u32,
        identity: [u8; 128],
    }
    const AT_EMPTY_PATH: u64 = 0x1000;
    let mut handle = Handle {
        bytes: 128,
        kind: 0,
        identity: [0; 128],
    };
    let mut mount = 0u32;
    // SAFETY: an empty path, our own variables, of which the kernel is told the size.
    let result = unsafe {
        sc!(
            nr::NAME_TO_HANDLE_AT,
            fd as i32,
            c"".as_ptr(),
            &mut handle as *mut _,
            &mut mount as *mut _,
            AT_EMPTY_PATH
        )
    };
    if result == 0 {
        let identity = &handle.identity[..(handle.bytes as usize).min(128)];
        return brownout_abi::file_life(handle.kind, identity);
    }
    const STATX_BTIME: u64 = 0x800;
    let mut statx = [0u64; 32];
    // SAFETY: an empty path and our own buffer of the kernel's size (256 bytes).
    let result = unsafe {
        sc!(
            nr::STATX,
            fd as i32,
            c"".as_ptr(),
            AT_EMPTY_PATH,
            STATX_BTIME,
            statx.as_mut_ptr()
        )
    };
    // `stx_mask` is the first word, `stx_btime` is at 80: seconds, then nanoseconds.
    if result != 0 || statx[0] & STATX_BTIME == 0 {
        return brownout_abi::file_life(life::UNKNOWN, &[]);
    }
    let birth = [
        statx[10].to_le_bytes(),
        (statx[11] as u32 as u64).to_le_bytes(),
    ];
    brownout_abi::file_life(life::BIRTH, birth.as_flattened())
}

pub struct Engine;

impl Translate for Engine {
    fn alias_of(&self, addr: u64) -> Option<u64> {
        REGIONS
            .lock()
            .find(addr)
            .map(|r| addr.wrapping_add(r.delta))
    }
    fn run(&self, addr: u64, len: u64) -> Run {
        let regions = REGIONS.lock();
        match regions.find(addr) {
            Some(r) => Run {
                alias: Some(addr.wrapping_add(r.delta)),
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
        REGIONS
            .lock()
            .find_alias(alias)
            .map(|r| alias.wrapping_sub(r.delta))
    }
    fn is_self(&self, pid: i32) -> bool {
        pid as u32 == crate::process::real_pid()
    }
}

impl Memory for Engine {
    fn read(&self, addr: u64, to: &mut [u8]) -> bool {
        sys::read_memory(addr, to)
    }
    fn write(&self, addr: u64, from: &[u8]) -> bool {
        sys::write_memory(addr, from)
    }
}

fn raw(number: u64, a: &[u64; 6]) -> Option<i64> {
    // SAFETY: the program's own call.
    match unsafe { program_syscall(&[number, a[0], a[1], a[2], a[3], a[4], a[5]]) } {
        Outcome::Done(r) => Some(r),
        Outcome::Interrupted => None,
    }
}

/// Leads the kernel to tracked memory, and tells of what a call does to it and to tracked files.
pub const STAGE: Stage<ThreadContext> = Stage {
    name: "pm",
    takes: |_| crate::mode().record,
    pass,
};

/// Whether a call makes files durable that this process need not know of.
fn syncs_all(number: u64) -> bool {
    matches!(number, nr::SYNC | nr::SYNCFS)
}

/// Files that are tracked from the beginning. Called again where a run begins in a copy of a process that had others.
pub fn init_files() {
    let c = service::control();
    if !crate::mode().record {
        return;
    }
    let given = &c.known[..c.known_count as usize];
    let given = given.iter().map(|k| Known {
        device: k.device,
        inode: k.inode,
        life: k.life,
        file: k.file,
        ordinary: false,
        given: true,
    });
    let mut known = KNOWN.lock();
    known.retain(|k| !k.given);
    known.extend(given);
    if !known.is_empty() {
        FILES.store(true, Ordering::Relaxed);
    }
}

/// In a forked child other threads' locks are nobody's.
pub fn reset_after_fork() {
    KNOWN.reset_after_fork();
    CODE.reset_after_fork();
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

fn pass(ctx: &mut ThreadContext, call: &Call, rest: Rest<ThreadContext>) -> Option<i64> {
    match call.number {
        nr::MMAP => return mmap(ctx, call, rest),
        nr::MUNMAP
        | nr::MPROTECT
        | nr::PKEY_MPROTECT
        | nr::MREMAP
        | nr::MADVISE
        | nr::MSYNC
        | nr::BRK => return memory(ctx, call, rest),
        nr::SHMAT => {
            refuse_attached_over(&call.args);
            return rest.make(ctx, call);
        }
        _ => {}
    }
    let names = super::names::concerns(call.number);
    if !names && !any_tracked() && !syncs_all(call.number) {
        return rest.make(ctx, call);
    }
    if let Some(answer) = super::remote::pass(ctx, call, rest) {
        return answer;
    }
    if !names {
        return tracked(ctx, call, rest, |_, _| {});
    }
    let (number, a) = (call.number, &call.args);
    let before = super::names::before(ctx, number, a);
    // A file may be tracked only now.
    let result = tracked(ctx, call, rest, |ctx, result| {
        super::names::made(ctx, &before, result);
    })?;
    super::names::after(ctx, number, a, before, result);
    Some(result)
}

/// Whether anything is tracked, mapped or not.
fn any_tracked() -> bool {
    regions::any() || FILES.load(Ordering::Relaxed)
}

fn refuse_attached_over(a: &[u64; 6]) {
    const SHM_REMAP: u64 = 0o40000;
    if a[2] & SHM_REMAP != 0 && super::readable_alias(a[1]) != a[1] {
        crate::fatal_unsupported("the program attaches shared memory over persistent memory");
    }
}

/// A call with all that it does to tracked memory and files. `made` is told the result before what the call did to files is recorded.
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
    if FILES.load(Ordering::Relaxed) || syncs_all(number) {
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

/// A call that the engine answers by itself: what it reads and writes of tracked memory is recorded all the same.
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
        let site = site::pseudo(ctx.rip);
        let mut ring = Writer::lock(ctx);
        let context = stacks::context(ctx, site, &mut ring);
        for (addr, len) in written {
            for (start, end) in readable_parts(addr, addr.saturating_add(len)) {
                ring.kernel_store(
                    ctx,
                    site.id,
                    context,
                    number,
                    start,
                    super::readable_alias(start),
                    end - start,
                );
            }
        }
    }
}

/// Records what the kernel is about to read of tracked memory: before the call, because that may overwrite it.
fn kernel_reads(ctx: &mut ThreadContext, prepared: &Prepared) {
    // Buffers of asynchronous I/O count as read when they are handed over.
    let ranges = prepared.reads().iter().chain(prepared.retained());
    if !crate::mode().loads || ranges.clone().next().is_none() {
        return;
    }
    let site = site::pseudo(ctx.rip);
    let mut ring = Writer::lock(ctx);
    let context = stacks::context(ctx, site, &mut ring);
    for range in ranges {
        // A string byte by byte: how far it goes depends on what was read before. So that reads are a function of what they have seen.
        let is_string = prepared.ends_itself(range);
        for (start, end) in readable_parts(range.addr, range.addr.saturating_add(range.len)) {
            let step = if is_string { 1 } else { (end - start).max(1) };
            for at in (start..end).step_by(step as usize) {
                let alias = super::readable_alias(at);
                let load = brownout_abi::kind::LOAD;
                ring.access(ctx, load, site.id, context, at, alias, step);
            }
        }
    }
}

/// Code in tracked memory that was translated and is not recorded as read yet.
static CODE: crate::sync::SpinLock<Vec<(u64, u64)>> = crate::sync::SpinLock::new(Vec::new());
static CODE_WAITS: AtomicBool = AtomicBool::new(false);

/// A block of code is being translated. The engine's lock is held, so the record has to wait.
pub fn code_is_read(start: u64, end: u64) {
    if crate::mode().loads && regions::any() && REGIONS.lock().overlaps(start, end) {
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
        let site = site::pseudo(start);
        let mut ring = Writer::lock(ctx);
        // Line by line: where an instruction, and the block, ends depends on what was read before. So that reads are a function of
        // what they have seen, each is of a whole line.
        for (start, end) in readable_parts(start & !63, end.next_multiple_of(64)) {
            for line in (start..end).step_by(64) {
                let alias = super::readable_alias(line);
                let load = brownout_abi::kind::LOAD;
                ring.access(ctx, load, site.id, 0, line, alias, 64);
            }
        }
    }
}

/// Records what the faulting instruction at `ctx.rip` has read of tracked memory.
pub fn read_by_the_dying(ctx: &mut ThreadContext) {
    if !crate::mode().loads {
        return;
    }
    let insn = crate::emulate::decode(ctx.rip);
    let has_memory = (0..insn.op_count()).any(|i| insn.op_kind(i) == iced_x86::OpKind::Memory);
    let start = crate::insn::effective_address(ctx, &insn);
    if !has_memory || REGIONS.lock().find(start).is_none() {
        return;
    }
    let site = site::pseudo(ctx.rip);
    let mut ring = Writer::lock(ctx);
    let context = stacks::context(ctx, site, &mut ring);
    let end = REGIONS.lock().find(start).map_or(start, |r| r.end);
    let size = (insn.memory_size().size() as u64).min(end - start);
    let (load, alias) = (brownout_abi::kind::LOAD, super::readable_alias(start));
    ring.access(ctx, load, site.id, context, start, alias, size);
}

/// What of a range can be read: a failed call is reported as if it had written all, which may reach beyond the end of the
/// file.
pub fn readable_parts(start: u64, end: u64) -> Vec<(u64, u64)> {
    let mut parts: Vec<(u64, u64)> = Vec::new();
    let mut at = start;
    while at < end {
        let next = ((at | 4095) + 1).min(end);
        let mut probe = [0u8];
        // Another thread may have unmapped it meanwhile: then it is not the stream's any more.
        let alias = super::readable_alias(at);
        if alias != at && sys::read_memory(alias, &mut probe) {
            match parts.last_mut() {
                Some(p) if p.1 == at => p.1 = next,
                _ => parts.push((at, next)),
            }
        }
        at = next;
    }
    parts
}

pub fn event(ctx: &mut ThreadContext, which: u64, words: [u64; 6], text: &[u8]) {
    let site = site::pseudo(ctx.rip);
    let mut ring = Writer::lock(ctx);
    let context = stacks::context(ctx, site, &mut ring);
    ring.rare(ctx, site.id, context, which, words, text);
}

/// Engine code wrote to program memory in the kernel's stead.
pub fn kernel_wrote(addr: u64, len: u64) {
    if !crate::mode().record || !regions::any() || REGIONS.lock().find(addr).is_none() {
        return;
    }
    let ctx = ThreadContext::current();
    let number = ctx.gpr[0];
    let site = site::pseudo(ctx.rip);
    let mut ring = Writer::lock(ctx);
    let context = stacks::context(ctx, site, &mut ring);
    ring.kernel_store(
        ctx,
        site.id,
        context,
        number,
        addr,
        super::readable_alias(addr),
        len,
    );
}

// ---------------------------------------------------------------- files

#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct Stat {
    pub dev: u64,
    pub ino: u64,
    nlink: u64,
    mode: u32,
    _rest: [u32; 5],
    size: u64,
    _more: [u64; 11],
}

impl Stat {
    pub fn mode(&self) -> u32 {
        self.mode
    }
}

pub fn fstat(fd: u64) -> Option<Stat> {
    let mut s = Stat::default();
    // SAFETY: our own buffer of at least the kernel's size (144 bytes).
    (unsafe { sc!(nr::FSTAT, fd as i32, &mut s as *mut _) } == 0).then_some(s)
}
const _: () = assert!(core::mem::size_of::<Stat>() == 144);

/// What kind of file a descriptor is, and its permissions.
pub fn file_mode(fd: u64) -> Option<u32> {
    fstat(fd).map(|s| s.mode)
}

pub fn tracked_file(fd: u64) -> Option<u32> {
    if !FILES.load(Ordering::Relaxed) {
        return None;
    }
    known(fd, &fstat(fd)?)
        .map(|k| k.file)
        .filter(|&file| file != 0)
}

/// Whether what is written there is seen by the world, and not only kept in a tracked file.
pub fn is_world(fd: u64) -> bool {
    if !FILES.load(Ordering::Relaxed) {
        return true;
    }
    match fstat(fd).and_then(|s| known(fd, &s)) {
        // A standard stream that is kept in a file is read by somebody.
        Some(k) => k.file == 0 || k.ordinary && fd <= 2,
        None => true,
    }
}

/// A regular file that the program is about to change, or has just made: its number; 0 if it is of no interest.
pub fn track_changed(ctx: &mut ThreadContext, fd: u64) -> u32 {
    let Some(s) = fstat(fd) else { return 0 };
    match known(fd, &s) {
        Some(k) => k.file,
        None => ask(ctx, fd, &s, false, false, false, true).unwrap_or(0),
    }
}

/// The file behind a descriptor is number `file`, whatever device and inode it has now.
pub fn also_known_as(_: &mut ThreadContext, fd: u64, file: u32) {
    if let Some(s) = fstat(fd)
        && known(fd, &s).is_none_or(|k| k.file != file)
    {
        let ordinary = KNOWN.lock().iter().any(|k| k.file == file && k.ordinary);
        service::same_file(s.dev, s.ino, file_life(fd), file);
        remember(fd, &s, file, ordinary);
    }
}

/// The file position of a descriptor.
pub fn position(fd: i32) -> u64 {
    // SAFETY: lseek(fd, 0, SEEK_CUR).
    unsafe { sc!(nr::LSEEK, fd, 0, 1) as u64 }
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

fn file_was_read(ctx: &mut ThreadContext, file: u32, offset: u64, len: u64) {
    // Sizes are 32 bits; a longer read is several events.
    const PIECE: u64 = 1 << 30;
    let mut at = 0;
    while at < len {
        let size = (len - at).min(PIECE);
        let words = [file as u64, offset + at, size, 0, 0, 0];
        event(ctx, rare::FILE_READ, words, &[]);
        at += size;
    }
}

const RWF_DSYNC: u64 = 2;
const RWF_SYNC: u64 = 4;

/// All tracked files on a device (0: on any) are durable, also those that only other processes know of.
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
            // `msync` is handled with the mappings; `sync_file_range` promises nothing: not the size, not the device's cache.
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
            let Some(mut bytes) = sys::read_path(path) else {
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
    let site = site::pseudo(ctx.rip);
    // The program's descriptor may be write-only.
    let mut own = open_again(fd);
    if own < 0
        && let Some(readable) = fstat(fd).and_then(|s| Readable::make(fd, s.mode))
    {
        own = open_again(fd);
        drop(readable);
    }
    let mut ring = Writer::lock(ctx);
    let context = stacks::context(ctx, site, &mut ring);
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
        ring.rare(
            ctx,
            site.id,
            context,
            rare::FILE_WRITE,
            [file as u64, offset + at, size, 0, 0, 0],
            bytes,
        );
        at += size;
    }
    drop(ring);
    if own >= 0 {
        // SAFETY: our own descriptor.
        unsafe { sc!(nr::CLOSE, own) };
    }
}

// ---------------------------------------------------------------- mappings

/// Asks whether the file behind `fd` is persistent memory; its number if so.
pub fn classify(
    ctx: &mut ThreadContext,
    fd: u64,
    map_sync: bool,
    registered: bool,
    writable: bool,
) -> Option<u32> {
    let s = fstat(fd)?;
    if s.mode & 0o170000 != 0o100000 {
        return None;
    }
    if let Some(k) = known(fd, &s)
        && !k.ordinary
    {
        return Some(k.file).filter(|&file| file != 0);
    }
    ask(ctx, fd, &s, map_sync, registered, writable, false)
}

/// Lets the owner of a file (we, and the tool) read it although its mode does not: libpmemobj creates pools with no permissions at
/// all and grants them when the pool is complete. The program's thread waits meanwhile and finds the mode as it was.
struct Readable {
    fd: u64,
    mode: u32,
}

impl Readable {
    const FCHMOD: u64 = 91;

    fn make(fd: u64, mode: u32) -> Option<Readable> {
        const EACCES: i64 = 13;
        let own = open_again(fd);
        if own >= 0 {
            // SAFETY: our own descriptor.
            unsafe { sc!(nr::CLOSE, own) };
        }
        let mode = mode & 0o7777;
        // SAFETY: changes the mode of the program's file for a moment.
        let readable = own == -EACCES && unsafe { sc!(Self::FCHMOD, fd as i32, mode | 0o400) } == 0;
        readable.then_some(Readable { fd, mode })
    }
}

impl Drop for Readable {
    fn drop(&mut self) {
        // SAFETY: gives the program's file its mode again.
        unsafe { sc!(Self::FCHMOD, self.fd as i32, self.mode) };
    }
}

/// A descriptor of our own for reading, or an error.
fn open_again(fd: u64) -> i64 {
    let path = alloc::format!("/proc/self/fd/{}\0", fd as i32);
    // SAFETY: NUL-terminated; O_RDONLY|O_CLOEXEC.
    unsafe { sc!(nr::OPEN, path.as_ptr(), 0x8_0000) }
}

/// Asks the tool about a file, and records what is new. `changed`: it is not about to be mapped.
fn ask(
    ctx: &mut ThreadContext,
    fd: u64,
    s: &Stat,
    map_sync: bool,
    registered: bool,
    writable: bool,
    changed: bool,
) -> Option<u32> {
    let link = alloc::format!("/proc/self/fd/{}\0", fd as i32);
    let path = super::process::read_link(link.as_bytes());
    let dax = is_dax(fd);
    let args = [
        s.dev,
        s.ino,
        map_sync as u64,
        registered as u64,
        dax as u64,
        fd as i32 as u64 & 0xffff_ffff | (writable as u64) << 32 | (changed as u64) << 33,
        ThreadContext::current().tid as u64,
        file_life(fd),
    ];
    // The tool may want to copy the content.
    let readable = Readable::make(fd, s.mode);
    let (answer, file, ordinary) = service::classify_file(&args, &path);
    drop(readable);
    if answer == ClassifyAnswer::Ordinary {
        if changed {
            // Not asked again at each call.
            remember(fd, s, 0, false);
            FILES.store(true, Ordering::Relaxed);
        }
        return None;
    }
    // A file that the run changes has turned out to be persistent memory.
    let is_upgrade = !ordinary && known(fd, s).is_some_and(|k| k.ordinary);
    remember(fd, s, file, ordinary);
    FILES.store(true, Ordering::Relaxed);
    if answer == ClassifyAnswer::TrackedNew || is_upgrade {
        let reason = if ordinary {
            4
        } else if map_sync {
            1
        } else if registered {
            2
        } else if dax {
            3
        } else {
            0
        };
        event(
            ctx,
            rare::FILE,
            [
                file as u64,
                s.size,
                reason,
                super::boundaries::was_created(s) as u64,
                0,
                0,
            ],
            &path,
        );
    }
    Some(file)
}

/// Whether the file is accessed without page cache, as the kernel tells (STATX_ATTR_DAX).
fn is_dax(fd: u64) -> bool {
    const STATX_ATTR_DAX: u64 = 0x20_0000;
    let mut buffer = [0u64; 32];
    let empty = [0u8];
    // SAFETY: statx(fd, "", AT_EMPTY_PATH, STATX_BASIC_STATS, buffer of 256 bytes).
    let r = unsafe {
        sc!(
            nr::STATX,
            fd as i32,
            empty.as_ptr(),
            0x1000,
            0x7ff,
            buffer.as_mut_ptr()
        )
    };
    r == 0 && buffer[1] & STATX_ATTR_DAX != 0
}

/// Ordinary memory is where `result` says, if that is no error.
fn ordinary(result: i64, len: u64) -> Option<i64> {
    if !(-4095..0).contains(&result) {
        let start = result as u64;
        REGIONS.lock().ordinary(start, start + len);
    }
    Some(result)
}

/// `mmap` of the program.
fn mmap(ctx: &mut ThreadContext, call: &Call, rest: Rest<ThreadContext>) -> Option<i64> {
    let [addr, len, prot, flags, fd, offset] = call.args;
    let plain = |ctx: &mut ThreadContext| {
        if flags & sys::MAP_FIXED != 0 {
            drop_regions(ctx, addr, addr.wrapping_add(page_up(len)));
        }
        ordinary(rest.make(ctx, call)?, page_up(len))
    };
    let map_type = flags & sys::MAP_TYPE;
    if crate::mode().loads
        && flags & sys::MAP_ANONYMOUS == 0
        && map_type == sys::MAP_PRIVATE
        && let Some(file) = tracked_file(fd)
    {
        // What the program reads there goes unseen: it counts as read now, all of it.
        let result = plain(ctx)?;
        if !(-4095..0).contains(&result) {
            let size = fstat(fd).map_or(0, |s| s.size);
            file_was_read(ctx, file, offset, len.min(size.saturating_sub(offset)));
        }
        return Some(result);
    }
    if flags & sys::MAP_ANONYMOUS != 0
        || map_type != sys::MAP_SHARED && map_type != sys::MAP_SHARED_VALIDATE
        || len == 0
    {
        return plain(ctx);
    }
    let map_sync = map_type == sys::MAP_SHARED_VALIDATE && flags & sys::MAP_SYNC != 0;
    let Some(file) = classify(ctx, fd, map_sync, false, prot & sys::PROT_WRITE != 0) else {
        return plain(ctx);
    };
    let len = page_up(len);
    let insists = flags & (sys::MAP_FIXED | sys::MAP_FIXED_NOREPLACE) != 0;
    // MAP_SYNC is stripped and reported as granted: libpmem then takes its flush path.
    let shared = flags
        & !(sys::MAP_TYPE | sys::MAP_SYNC | sys::MAP_FIXED | sys::MAP_FIXED_NOREPLACE)
        | sys::MAP_SHARED;
    let chosen = (insists || (addr != 0 && lonely(addr, len))).then_some(addr);
    let steered = REGIONS.lock().places(len);
    let places: Vec<u64> = match chosen {
        Some(addr) => alloc::vec![addr],
        None => steered.collect(),
    };
    // Mappings change with the ring: what the stream says of them is then what they are for whoever records, and for a fork.
    let _ring = Writer::lock(ctx);
    // First exactly what was asked for, so that the kernel's own checks and errors apply.
    let how = if flags & sys::MAP_FIXED != 0 {
        sys::MAP_FIXED
    } else {
        sys::MAP_FIXED_NOREPLACE
    };
    let (mut at, mut result) = (0, -sys::ENOMEM);
    for place in places {
        at = place;
        result = raw(nr::MMAP, &[at, len, prot, shared | how, fd, offset])?;
        if result != -sys::EEXIST || insists {
            break;
        }
        result = -sys::ENOMEM;
    }
    if result as u64 != at {
        return Some(if result < 0 && result > -4096 {
            result
        } else {
            -sys::ENOMEM
        });
    }
    if flags & sys::MAP_FIXED != 0 {
        // What was tracked there is gone.
        drop_regions(ctx, at, at + len);
    }
    let mut regions = REGIONS.lock();
    let delta = regions::steered_delta(at).unwrap_or_else(|| regions.place_alias(at, len));
    clear_for_alias(at.wrapping_add(delta), len);
    // SAFETY: the alias range is ours; the program's view loses write access (and read access, for loads).
    unsafe {
        let r = sc!(
            nr::MMAP,
            at.wrapping_add(delta),
            len,
            prot,
            shared | sys::MAP_FIXED,
            fd,
            offset
        );
        if r < 0 && r > -4096 {
            sc!(nr::MUNMAP, at, len);
            return Some(r);
        }
        sc!(nr::MPROTECT, at, len, regions::shown_prot(prot));
    }
    regions.insert(Region {
        start: at,
        end: at + len,
        delta,
        offset,
        prot,
    });
    drop(regions);
    event(
        ctx,
        rare::MAP,
        [at, len, file as u64, offset, prot, flags],
        &[],
    );
    Some(at as i64)
}

/// Sees that an alias can be mapped without replacing anything that is of use to somebody. A range that the program has only closed
/// (ThreadSanitizer does that to most of the address space) is of none.
fn clear_for_alias(at: u64, len: u64) {
    // SAFETY: replaces nothing; what it maps is replaced by the alias.
    let reserved = unsafe { sys::map_anonymous(at, len, 0) };
    if reserved == at as i64 {
        return;
    }
    let is_in_use = |m: &Mapping| m.start < at + len && at < m.end && (m.read || m.write || m.exec);
    if crate::maps::read().iter().any(is_in_use) {
        crate::fatal_unsupported(&alloc::format!(
            "the program has memory of its own at {at:#x}, where this tool needs {len} bytes to track a mapping"
        ));
    }
}

/// Whether the granules around a hinted address hold nothing else.
fn lonely(addr: u64, len: u64) -> bool {
    if addr & 4095 != 0 || addr.checked_add(len).is_none_or(|e| e > 0x7fff_0000_0000) {
        return false;
    }
    let low = addr >> 31 << 31;
    let high = (addr + len).next_multiple_of(1 << 31);
    crate::maps::read()
        .iter()
        .all(|m| m.end <= low || m.start >= high)
}

/// Tracked mappings in a range are gone from the program's view: their aliases go too.
fn drop_regions(ctx: &mut ThreadContext, start: u64, end: u64) {
    if !regions::any() {
        return;
    }
    let cut = REGIONS.lock().remove(start, end);
    for r in cut {
        // SAFETY: our own alias.
        unsafe { sc!(nr::MUNMAP, r.start.wrapping_add(r.delta), r.end - r.start) };
        event(
            ctx,
            rare::UNMAP,
            [r.start, r.end - r.start, 0, 0, 0, 0],
            &[],
        );
    }
}

/// `munmap`, `mprotect`, `mremap`, `madvise`, `msync`, `brk`.
fn memory(ctx: &mut ThreadContext, call: &Call, rest: Rest<ThreadContext>) -> Option<i64> {
    let (number, a) = (call.number, &call.args);
    let (start, len) = (a[0], page_up(a[1]));
    let end = start.wrapping_add(len);
    let other = number == nr::MREMAP && a[3] & sys::MREMAP_FIXED != 0;
    let touches = regions::any()
        && number != nr::BRK
        && (REGIONS.lock().overlaps(start, end.max(start + 1))
            || other && REGIONS.lock().overlaps(a[4], a[4] + page_up(a[2])));
    if !touches {
        let result = rest.make(ctx, call)?;
        return match number {
            nr::MREMAP => ordinary(result, page_up(a[2])),
            _ => Some(result),
        };
    }
    // As for `mmap`. (`msync` takes its time, and changes no mapping.)
    let _ring = (number != nr::MSYNC).then(|| Writer::lock(ctx));
    match number {
        nr::MUNMAP => {
            if start & 4095 != 0 || len == 0 {
                return raw(number, a);
            }
            // The event first: behind the call another thread may map something new there.
            drop_regions(ctx, start, end);
            rest.make(ctx, call)
        }
        nr::MPROTECT | nr::PKEY_MPROTECT => mprotect(number, a),
        nr::MREMAP => mremap(ctx, a),
        nr::MSYNC => {
            let result = raw(number, a)?;
            if result == 0 {
                event(ctx, rare::MSYNC, [start, a[1], a[2], 0, 0, 0], &[]);
            }
            Some(result)
        }
        _ => {
            // madvise: on the alias where it needs write access (MADV_REMOVE), on both views else.
            const MADV_REMOVE: u64 = 9;
            if a[2] == MADV_REMOVE {
                let result = raw(number, &[super::readable_alias(start), a[1], a[2], 0, 0, 0])?;
                if result == 0 {
                    let alias = super::readable_alias(start);
                    let site = site::pseudo(ctx.rip);
                    let mut ring = Writer::lock(ctx);
                    let context = stacks::context(ctx, site, &mut ring);
                    ring.kernel_store(ctx, site.id, context, number, start, alias, len);
                }
                return Some(result);
            }
            raw(number, a)
        }
    }
}

fn mprotect(number: u64, a: &[u64; 6]) -> Option<i64> {
    let (start, len, prot) = (a[0], page_up(a[1]), a[2]);
    let end = start.wrapping_add(len);
    // The kernel judges the request as it stands, then the program's view is restricted again.
    let result = raw(number, a)?;
    if result != 0 {
        return Some(result);
    }
    let mut regions = REGIONS.lock();
    let cut = regions.remove(start, end);
    for r in cut {
        // SAFETY: our view and our alias of a tracked mapping.
        unsafe {
            sc!(
                nr::MPROTECT,
                r.start,
                r.end - r.start,
                regions::shown_prot(prot)
            );
            sc!(
                nr::MPROTECT,
                r.start.wrapping_add(r.delta),
                r.end - r.start,
                prot
            );
        }
        regions.insert(Region { prot, ..r });
    }
    Some(0)
}

fn mremap(ctx: &mut ThreadContext, a: &[u64; 6]) -> Option<i64> {
    let [start, old, new, flags, to, _] = *a;
    let (old, new) = (page_up(old), page_up(new));
    let found = REGIONS
        .lock()
        .find(start)
        .copied()
        .filter(|r| start + old <= r.end);
    let Some(r) = found else {
        if flags & sys::MREMAP_FIXED != 0 && REGIONS.lock().find(start).is_none() {
            // Ordinary memory moves over tracked memory.
            let result = raw(nr::MREMAP, a)?;
            if result >= 0 {
                drop_regions(ctx, to, to + new);
            }
            return Some(result);
        }
        return Some(-sys::EFAULT);
    };
    if old == 0 || flags & !(sys::MREMAP_MAYMOVE | sys::MREMAP_FIXED) != 0 {
        crate::fatal_unsupported("the program duplicates a tracked mapping by mremap");
    }
    if start & 4095 != 0 || new == 0 {
        return Some(-sys::EINVAL);
    }
    if new <= old && flags & sys::MREMAP_FIXED == 0 {
        if new < old {
            drop_regions(ctx, start + new, start + old);
            // SAFETY: shrinks the program's view.
            unsafe { sc!(nr::MUNMAP, start + new, old - new) };
        }
        return Some(start as i64);
    }
    // Grow in place if the mapping ends here and nothing follows; else move.
    let fixed = flags & sys::MREMAP_FIXED != 0;
    let alias = start.wrapping_add(r.delta);
    if !fixed
        && start + old == r.end
        && regions::steered_delta(start).is_some()
        && !REGIONS.lock().overlaps(r.end, start + new + (2 << 20))
    {
        // SAFETY: both views grow in ranges that nothing else uses; if one cannot, neither does.
        let grown = unsafe {
            let two = sc!(nr::MREMAP, alias, old, new, 0, 0) == alias as i64;
            let one = two && sc!(nr::MREMAP, start, old, new, 0, 0) == start as i64;
            if two && !one {
                sc!(nr::MUNMAP, alias + old, new - old);
            }
            one
        };
        if grown {
            let mut regions = REGIONS.lock();
            regions.remove(r.start, r.end);
            regions.insert(Region {
                end: start + new,
                ..r
            });
            drop(regions);
            event(ctx, rare::REMAP, [start, old, start, new, 0, 0], &[]);
            return Some(start as i64);
        }
    }
    if flags & sys::MREMAP_MAYMOVE == 0 {
        return Some(-sys::ENOMEM);
    }
    let mut regions = REGIONS.lock();
    let maps = crate::maps::read();
    let is_free = |at: u64| maps.iter().all(|m| m.end <= at || at + new <= m.start);
    let at = match fixed {
        true => Some(to),
        false => regions.places(new).find(|at| is_free(*at)),
    };
    let Some(at) = at else {
        return Some(-sys::ENOMEM);
    };
    let delta = regions::steered_delta(at).unwrap_or_else(|| regions.place_alias(at, new));
    drop(regions);
    clear_for_alias(at.wrapping_add(delta), new);
    let move_flags = sys::MREMAP_MAYMOVE | sys::MREMAP_FIXED;
    // SAFETY: the program's view goes where it asked or where nothing is; the alias to a range of ours.
    unsafe {
        let result = sc!(nr::MREMAP, start, old, new, move_flags, at);
        if result != at as i64 {
            return Some(result);
        }
        sc!(
            nr::MREMAP,
            alias,
            old,
            new,
            move_flags,
            at.wrapping_add(delta)
        );
    }
    if fixed {
        drop_regions(ctx, at, at + new);
    }
    let mut regions = REGIONS.lock();
    regions.remove(start, start + old);
    regions.insert(Region {
        start: at,
        end: at + new,
        delta,
        offset: r.offset + (start - r.start),
        ..r
    });
    drop(regions);
    event(ctx, rare::REMAP, [start, old, at, new, 0, 0], &[]);
    Some(at as i64)
}
