//! Calls that change mappings: the engine's own memory stays as it is, and the translator hears
//! what becomes of code.

use crate::blocks::ENGINE;
use crate::context::ThreadContext;
use crate::maps::CodeRange;
use crate::sys::{self, nr, page_up};
use crate::syscall::code;
use crate::{layout, pm};
use brownout_syscalls::pipeline::{Call, Rest, Stage};

pub const STAGE: Stage<ThreadContext> = Stage {
    name: "memory",
    takes: |number| {
        matches!(
            number,
            nr::MMAP
                | nr::MUNMAP
                | nr::MPROTECT
                | nr::PKEY_MPROTECT
                | nr::MREMAP
                | nr::MADVISE
                | nr::PROCESS_MADVISE
                | nr::SHMAT
        )
    },
    pass,
};

fn pass(ctx: &mut ThreadContext, call: &Call, rest: Rest<ThreadContext>) -> Option<i64> {
    match call.number {
        nr::MMAP => mmap(ctx, call, rest),
        nr::SHMAT if call.args[1] != 0 && shmat_overlaps_engine(&call.args) => Some(-sys::EINVAL),
        nr::SHMAT => rest.make(ctx, call),
        nr::PROCESS_MADVISE => process_madvise(ctx, call, rest),
        _ => change(ctx, call, rest),
    }
}

fn mmap(ctx: &mut ThreadContext, call: &Call, rest: Rest<ThreadContext>) -> Option<i64> {
    let [addr, len, prot, flags, fd, _] = call.args;
    let fixed = flags & sys::MAP_FIXED != 0;
    if fixed && overlaps_engine(addr, len) {
        return Some(-sys::ENOMEM);
    }
    if fixed {
        forget_code(ctx, addr, addr.wrapping_add(len), pm::code_unmapped);
    }
    let result = rest.make(ctx, call)?;
    if result > -4096 && result < 0 {
        return Some(result);
    }
    if prot & sys::PROT_EXEC != 0 {
        let (start, end) = (result as u64, result as u64 + page_up(len));
        let shared = flags & sys::MAP_TYPE != sys::MAP_PRIVATE
            || flags & sys::MAP_ANONYMOUS == 0 && code::mapped(fd, start, end);
        ENGINE.lock().code.insert(CodeRange {
            start,
            end,
            writable: prot & sys::PROT_WRITE != 0 || shared,
            shared,
        });
        pm::code_mapped(ctx, start, end - start, &call.args);
    }
    Some(result)
}

/// `munmap`, `mprotect`, `mremap`, `madvise`.
fn change(ctx: &mut ThreadContext, call: &Call, rest: Rest<ThreadContext>) -> Option<i64> {
    let (number, a) = (call.number, &call.args);
    let (start, len) = (a[0], page_up(a[1]));
    match number {
        nr::MUNMAP | nr::MREMAP if overlaps_engine(start, len) => return Some(-sys::EINVAL),
        nr::MREMAP if a[3] & sys::MREMAP_FIXED != 0 && overlaps_engine(a[4], page_up(a[2])) => {
            return Some(-sys::EINVAL);
        }
        // As if nothing were there: it could be emptied otherwise.
        nr::MADVISE if overlaps_engine(start, len) => return Some(-sys::ENOMEM),
        nr::MUNMAP => forget_code(ctx, start, start.wrapping_add(len), pm::code_unmapped),
        nr::MREMAP => {
            forget_code(ctx, start, start.wrapping_add(len), pm::code_unmapped);
            if a[3] & sys::MREMAP_FIXED != 0 {
                let end = a[4].wrapping_add(page_up(a[2]));
                forget_code(ctx, a[4], end, pm::code_unmapped);
            }
        }
        nr::MPROTECT | nr::PKEY_MPROTECT => {
            if overlaps_engine(start, len) {
                return Some(-sys::ENOMEM);
            }
            // Whatever the new protection: what was translated may be about to change, and
            // write protection of ours is about to be replaced.
            forget_code(ctx, start, start.wrapping_add(len), pm::code_changed);
        }
        _ => {}
    }
    let result = rest.make(ctx, call)?;
    if number == nr::MADVISE && result == 0 {
        code::advised(start, len, a[2]);
    }
    if (number == nr::MPROTECT || number == nr::PKEY_MPROTECT)
        && result == 0
        && a[2] & sys::PROT_EXEC != 0
    {
        let shared = a[2] & sys::PROT_WRITE == 0
            && crate::maps::read()
                .iter()
                .any(|m| m.start <= start && start < m.end && m.shared);
        ENGINE.lock().code.insert(CodeRange {
            start,
            end: start + len,
            writable: a[2] & sys::PROT_WRITE != 0 || shared,
            shared,
        });
    }
    Some(result)
}

/// `process_madvise`, which may be about this process.
fn process_madvise(ctx: &mut ThreadContext, call: &Call, rest: Rest<ThreadContext>) -> Option<i64> {
    const VECTORS_MAX: u64 = 1024;
    let a = &call.args;
    let mut ranges = alloc::vec::Vec::new();
    for i in 0..a[2].min(VECTORS_MAX) {
        let mut range = [0u64; 2];
        if !crate::values::read_value(a[1].wrapping_add(16 * i), &mut range) {
            break;
        }
        if overlaps_engine(range[0], range[1]) {
            return Some(-sys::ENOMEM);
        }
        ranges.push(range);
    }
    let result = rest.make(ctx, call)?;
    if result > 0 {
        for [start, len] in ranges {
            code::advised(start, len, a[3]);
        }
    }
    Some(result)
}

/// `tell` says what becomes of it.
fn forget_code(ctx: &ThreadContext, start: u64, end: u64, tell: fn(&ThreadContext, u64, u64)) {
    if end <= start {
        return;
    }
    let mut e = ENGINE.lock();
    if e.code.remove(start, end) {
        e.invalidate(start, end);
        let pages: alloc::vec::Vec<u64> = e
            .protected
            .range(start >> 12..(end + 4095) >> 12)
            .copied()
            .collect();
        for p in pages {
            e.protected.remove(&p);
        }
        drop(e);
        tell(ctx, start, end);
    }
}

fn overlaps_engine(start: u64, len: u64) -> bool {
    let end = start.saturating_add(len);
    start < brownout_abi::ENGINE_LIMIT && end > brownout_abi::ENGINE_BASE
        || ENGINE
            .lock()
            .arenas
            .list
            .iter()
            .any(|x| start < x.end().get() && end > x.base.get())
        || pm::overlaps_alias(start, end)
}

/// Whether shared memory that may replace what is there would be attached over the engine's.
fn shmat_overlaps_engine(a: &[u64; 6]) -> bool {
    const SHM_REMAP: u64 = 0o40000;
    a[2] & SHM_REMAP != 0 && layout::segment_len(a[0]).is_some_and(|len| overlaps_engine(a[1], len))
}
