//! Ways around the program's own mappings: `/proc/PID/mem`, `process_vm_readv`, `ptrace`,
//! `remap_file_pages`, asynchronous I/O.
//!
//! What reaches this process's tracked memory through its own `/proc/self/mem` is led to the alias
//! and recorded, as if it were an access of the kernel's on behalf of any other call. What reaches
//! it from another process, or changes a mapping behind the engine's back, cannot be followed: it
//! is refused.

use super::files::{position, tracked_file};
use super::kernel::{self, Engine};
use super::record::{Here, readable_parts};
use super::regions::{self, REGIONS};
use crate::context::ThreadContext;
use crate::sys::{nr, sc};
use crate::values::read_value;
use brownout_syscalls::Translate;
use brownout_syscalls::pipeline::{Call, Rest};

const MINCORE: u64 = 27;
const PTRACE: u64 = 101;
const FSTATFS: u64 = 138;
const MLOCK: u64 = 149;
const MUNLOCK: u64 = 150;
const IO_SUBMIT: u64 = 209;
const REMAP_FILE_PAGES: u64 = 216;
const PROCESS_VM_READV: u64 = 310;
const PROCESS_VM_WRITEV: u64 = 311;
const MLOCK2: u64 = 325;

/// Answers a call that goes around the mappings. `None`: it does not, or not to tracked memory.
pub fn pass(
    ctx: &mut ThreadContext,
    call: &Call,
    rest: Rest<ThreadContext>,
) -> Option<Option<i64>> {
    let a = &call.args;
    match call.number {
        IO_SUBMIT => {
            refuse_asynchronous(a);
            None
        }
        _ if !regions::any() => None,
        PROCESS_VM_READV | PROCESS_VM_WRITEV => {
            if !Engine.is_self(a[0] as i32) {
                refuse_remote(a[3], a[4]);
            }
            None
        }
        PTRACE => {
            // PEEKTEXT, PEEKDATA, POKETEXT, POKEDATA
            if matches!(a[0], 1 | 2 | 4 | 5) && touches(a[2], 8) {
                refuse("ptrace reaches into the persistent memory of another process");
            }
            None
        }
        REMAP_FILE_PAGES => {
            if touches(a[0], a[1]) {
                refuse("the program rearranges a mapping of persistent memory by remap_file_pages");
            }
            None
        }
        // On the alias: where loads are recorded, the program's view cannot be read, so it could
        // not be locked.
        MLOCK | MUNLOCK | MLOCK2 | MINCORE if touches(a[0], 1) => {
            let mut b = *a;
            b[0] = super::readable_alias(a[0]);
            Some(kernel::tracked(ctx, &call.with(b), rest, |_, _| {}))
        }
        _ => through_a_file(ctx, call, rest),
    }
}

fn refuse(what: &str) -> ! {
    crate::fatal_unsupported(what)
}

fn touches(start: u64, len: u64) -> bool {
    REGIONS
        .lock()
        .overlaps(start, start.saturating_add(len.max(1)))
}

/// A child has its parent's mappings, so an address that is tracked here is taken for tracked
/// there.
fn refuse_remote(vector: u64, count: u64) {
    for i in 0..count.min(1024) {
        let mut part = [0u64; 2];
        if !read_value(vector + 16 * i, &mut part) {
            return;
        }
        if touches(part[0], part[1]) {
            refuse(
                "process_vm_readv or process_vm_writev reaches into the persistent memory of another process",
            );
        }
    }
}

/// The content of a tracked file must not change, or be read, at a time that nobody is told.
fn refuse_asynchronous(a: &[u64; 6]) {
    for i in 0..a[1].min(1024) {
        let (mut block, mut descriptor) = (0u64, 0u32);
        // `aio_fildes` of `struct iocb`.
        if !read_value(a[2] + 8 * i, &mut block) || !read_value(block + 20, &mut descriptor) {
            return;
        }
        if tracked_file(u64::from(descriptor)).is_some() {
            refuse("the program reads or writes a tracked file by asynchronous I/O (io_submit)");
        }
    }
}

/// A read or write through a descriptor.
struct Transfer {
    writes: bool,
    vector: bool,
    /// Where it begins; at the file position if there is none.
    offset: Option<u64>,
}

fn transfer(number: u64, a: &[u64; 6]) -> Option<Transfer> {
    let (writes, vector, placed) = match number {
        nr::READ => (false, false, false),
        nr::WRITE => (true, false, false),
        nr::PREAD64 => (false, false, true),
        nr::PWRITE64 => (true, false, true),
        nr::READV => (false, true, false),
        nr::WRITEV => (true, true, false),
        nr::PREADV => (false, true, true),
        nr::PWRITEV => (true, true, true),
        nr::PREADV2 => (false, true, a[3] != u64::MAX),
        nr::PWRITEV2 => (true, true, a[3] != u64::MAX),
        _ => return None,
    };
    Some(Transfer {
        writes,
        vector,
        offset: placed.then_some(a[3]),
    })
}

/// Whose memory a descriptor is, if it is a `/proc/PID/mem`.
fn memory_of(fd: u64) -> Option<u32> {
    const PROC_SUPER_MAGIC: u64 = 0x9fa0;
    let mut status = [0u64; 15];
    // SAFETY: our own buffer of the kernel's 120 bytes.
    let result = unsafe { sc!(FSTATFS, fd as i32, status.as_mut_ptr()) };
    if result != 0 || status[0] != PROC_SUPER_MAGIC {
        return None;
    }
    let link = alloc::format!("/proc/self/fd/{}\0", fd as i32);
    let path = crate::paths::read_link(link.as_bytes());
    let path = path.strip_suffix(b"/mem")?;
    // `/proc/PID` or `/proc/PID/task/TID`: the first number says whose.
    let number = path
        .split(|&c| c == b'/')
        .find(|part| !part.is_empty() && part.iter().all(u8::is_ascii_digit))?;
    let digit = |n: u32, c: &u8| n.wrapping_mul(10).wrapping_add(u32::from(c - b'0'));
    Some(number.iter().fold(0, digit))
}

/// A read or write of `/proc/PID/mem`, whose offsets are addresses.
fn through_a_file(
    ctx: &mut ThreadContext,
    call: &Call,
    rest: Rest<ThreadContext>,
) -> Option<Option<i64>> {
    let (number, a) = (call.number, &call.args);
    let transfer = transfer(number, a)?;
    let owner = memory_of(a[0])?;
    let at = transfer.offset.unwrap_or_else(|| position(a[0] as i32));
    // Of a vector, the first part that is not empty: less than all is a legal outcome.
    let (mut buffer, mut len) = (a[1], a[2]);
    if transfer.vector {
        let mut i = 0;
        loop {
            let mut part = [0u64; 2];
            if i >= a[2].min(1024) || !read_value(a[1] + 16 * i, &mut part) {
                return None;
            }
            (buffer, len) = (part[0], part[1]);
            if len != 0 {
                break;
            }
            i += 1;
        }
    }
    if !Engine.is_self(owner as i32) {
        if touches(at, len) {
            refuse("the program reaches into the persistent memory of another process by /proc");
        }
        return None;
    }
    if transfer.writes {
        // What is written may be code.
        let mut engine = crate::blocks::ENGINE.lock();
        engine.invalidate(at, at.saturating_add(len));
    }
    if !touches(at, len) {
        return None;
    }
    let run = Engine.run(at, len);
    let (from, len) = (run.alias.unwrap_or(at), run.len);
    let tracked = run.alias.is_some();
    if tracked && !transfer.writes && crate::mode().loads {
        let mut here = Here::new(ctx);
        for (start, end) in readable_parts(at, at + len) {
            here.load(start, end - start);
        }
    }
    let made = Call {
        number: if transfer.writes {
            nr::PWRITE64
        } else {
            nr::PREAD64
        },
        args: [a[0], buffer, len, from, 0, 0],
    };
    let Some(result) = kernel::tracked(ctx, &made, rest, |_, _| {}) else {
        return Some(None);
    };
    if result > 0 {
        if tracked && transfer.writes {
            Here::new(ctx).kernel_store(number, at, result as u64);
        }
        if transfer.offset.is_none() {
            // SAFETY: moves the program's file position, as the call that it made does.
            unsafe { sc!(nr::LSEEK, a[0] as i32, at + result as u64, 0) };
        }
    }
    Some(Some(result))
}
