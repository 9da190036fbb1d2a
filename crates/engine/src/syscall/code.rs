//! Changes of code that no store of the program's makes.
//!
//! Code pages that the program may write are watched by write protection, and code that is shared
//! compares itself with what was translated. That leaves what only the kernel does to memory which
//! the program itself may not write:
//!
//! - a write to `/proc/PID/mem`, which passes all protection: what was translated is forgotten;
//! - a write to a file that is mapped privately, where the page has not been copied yet: code from
//!   a file that this process has open for writing compares itself, as shared code does;
//! - advice to throw pages away, which bring back what the file has.
//!
//! Does not see: files that another process writes to, or that were opened for writing before they
//! were mapped by another descriptor.

use crate::blocks::ENGINE;
use crate::context::ThreadContext;
use crate::maps::{CodeFile, CodeRange, FileId};
use crate::sys::{nr, sc};
use crate::values::read_value;
use alloc::vec::Vec;
use brownout_syscalls::pipeline::{Call, Rest, Stage};
use core::sync::atomic::{AtomicBool, Ordering};

/// Something like `/proc/self/mem` was opened for writing.
static MEMORY_IS_OPEN: AtomicBool = AtomicBool::new(false);

pub const STAGE: Stage<ThreadContext> = Stage {
    name: "code",
    takes: |number| {
        matches!(
            number,
            nr::OPEN
                | nr::OPENAT
                | nr::OPENAT2
                | nr::CREAT
                | nr::WRITE
                | nr::PWRITE64
                | nr::WRITEV
                | nr::PWRITEV
                | nr::PWRITEV2
                | nr::SENDFILE
                | nr::SPLICE
                | nr::COPY_FILE_RANGE
        )
    },
    pass,
};

fn pass(ctx: &mut ThreadContext, call: &Call, rest: Rest<ThreadContext>) -> Option<i64> {
    let result = rest.make(ctx, call)?;
    if result >= 0 {
        made(call.number, &call.args, result);
    }
    Some(result)
}

fn made(number: u64, a: &[u64; 6], result: i64) {
    match number {
        nr::OPEN | nr::OPENAT | nr::OPENAT2 | nr::CREAT if opens_for_writing(number, a) => {
            opened(result as u64);
        }
        nr::OPEN | nr::OPENAT | nr::OPENAT2 | nr::CREAT => {}
        _ if MEMORY_IS_OPEN.load(Ordering::Relaxed) => {
            written(number, a, result as u64);
        }
        _ => {}
    }
}

fn opens_for_writing(number: u64, a: &[u64; 6]) -> bool {
    const O_ACCMODE: u64 = 3;
    let flags = match number {
        nr::OPEN => a[1],
        nr::OPENAT => a[2],
        nr::OPENAT2 => {
            let mut flags = 0u64;
            read_value(a[2], &mut flags);
            flags
        }
        _ => O_ACCMODE,
    };
    flags & O_ACCMODE != 0
}

fn opened(fd: u64) {
    let Some((file, size)) = identify(fd) else {
        return;
    };
    if size == 0 && is_memory(fd) {
        MEMORY_IS_OPEN.store(true, Ordering::Relaxed);
    }
    let mut engine = ENGINE.lock();
    let mapped: Vec<(u64, u64)> = engine
        .code_files
        .extract_if(.., |mapped| mapped.file == file)
        .map(|mapped| (mapped.start, mapped.end))
        .collect();
    for (start, end) in mapped {
        // It may be gone meanwhile, or in part.
        for range in engine.code.within(start, end) {
            engine.code.insert(CodeRange {
                writable: true,
                shared: true,
                ..range
            });
        }
        engine.invalidate(start, end);
    }
}

/// Something went to a file which may be memory.
fn written(number: u64, a: &[u64; 6], len: u64) {
    let fd = match number {
        nr::SPLICE | nr::COPY_FILE_RANGE => a[2],
        _ => a[0],
    };
    if len == 0 || !is_memory(fd) {
        return;
    }
    let (start, end) = match number {
        nr::PWRITE64 => (a[3], a[3].saturating_add(len)),
        _ => (0, USER_END),
    };
    ENGINE.lock().invalidate(start, end.min(USER_END));
}

const USER_END: u64 = 1 << 47;

/// Whether a descriptor is some process's memory.
fn is_memory(fd: u64) -> bool {
    let name = alloc::format!("/proc/self/fd/{fd}\0");
    let mut target = [0u8; 64];
    // SAFETY: a string that ends with NUL, and our own buffer.
    let len = unsafe {
        sc!(
            nr::READLINK,
            name.as_ptr(),
            target.as_mut_ptr(),
            target.len()
        )
    };
    let Ok(len) = usize::try_from(len) else {
        return false;
    };
    let target = &target[..len];
    target.starts_with(b"/proc/") && target.ends_with(b"/mem")
}

/// Which file a descriptor is, and how long.
fn identify(fd: u64) -> Option<(FileId, u64)> {
    let mut status = [0u64; 18];
    // SAFETY: `struct stat` has 144 bytes.
    let result = unsafe { sc!(nr::FSTAT, fd, status.as_mut_ptr()) };
    // Device and number are its first words, the size is the seventh.
    (result == 0).then(|| (FileId(status[0], status[1]), status[6]))
}

/// Code at `start..end` was mapped privately from a file. True if this descriptor may write to it.
pub fn mapped(fd: u64, start: u64, end: u64) -> bool {
    const F_GETFL: u64 = 3;
    const O_ACCMODE: i64 = 3;
    // SAFETY: asks only.
    let flags = unsafe { sc!(nr::FCNTL, fd, F_GETFL) };
    if flags >= 0 && flags & O_ACCMODE != 0 {
        return true;
    }
    if let Some((file, _)) = identify(fd) {
        let mut engine = ENGINE.lock();
        let files = &mut engine.code_files;
        files.retain(|other| other.end <= start || end <= other.start);
        files.push(CodeFile { file, start, end });
    }
    false
}

/// Pages were advised about. Of those thrown away, the file's content comes back.
pub fn advised(start: u64, len: u64, advice: u64) {
    const MADV_DONTNEED: u64 = 4;
    const MADV_FREE: u64 = 8;
    const MADV_REMOVE: u64 = 9;
    const MADV_DONTNEED_LOCKED: u64 = 24;
    const MADV_GUARD_INSTALL: u64 = 102;
    let throws_away = matches!(
        advice,
        MADV_DONTNEED | MADV_FREE | MADV_REMOVE | MADV_DONTNEED_LOCKED | MADV_GUARD_INSTALL
    );
    if throws_away && len != 0 {
        let end = start.saturating_add(len).min(USER_END);
        ENGINE.lock().invalidate(start.min(end), end);
    }
}
