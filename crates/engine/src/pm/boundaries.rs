//! Where the program meets the world: what it asks of it, what it lets it see, which files it
//! makes.
//!
//! Only in runs that ask for it. `Input` is recorded before a read of standard input is made, once
//! for each read that completes, with the position at which it reads: so the tool knows what was
//! consumed before, however large the pieces are that the program reads in. `Output` is recorded
//! after bytes have gone to anything that is not a tracked file. Standard input is told by device
//! and inode, as the tool saw them at the launch: another descriptor of the same file counts too.
//! Where the input is a file that the program finds by a name, that file takes the place of
//! standard input, and the first call that names it is told as well, as a read at the beginning: a
//! program may judge its input by its size. To map the input is to read it, from where the mapping
//! begins. Where a client of the tool's is the input, it is told when a connection has been
//! accepted; and when the program begins to listen, it waits until that client has connected and
//! sent what it has to send.
//!
//! `Lookup` is recorded after a call that names a redirected path, for each such path. `Opened`,
//! which has to be asked for by itself, is recorded after a regular file was opened, but for what
//! the kernel itself opens for `execve`. `Signal` is recorded before the program is ended by a
//! fault of its own, or by a signal that it sends itself (`kill`, `tkill`, `tgkill`): when it sends
//! it, or when it unblocks it if it was blocked. Not recorded: death by a signal from outside, from
//! a timer, or from the kernel during a call (`SIGPIPE`).
//!
//! With line input a read of standard input ends behind the first line feed, whichever call makes
//! it. The read is shortened beforehand, so the rest is still there for the next one, whoever makes
//! it.

use super::files::{Stat, creates, fstat, is_world, remember_creation, stat_at};
use super::record::event;
use super::ring;
use crate::address::ProgramAddr;
use crate::context::ThreadContext;
use crate::control::control;
use crate::dispositions;
use crate::sys::{self, nr, sc};
use crate::values::read_value;
use alloc::vec::Vec;
use brownout_abi::rare;
use brownout_syscalls::paths::path_arguments;
use brownout_syscalls::pipeline::{Call, Rest, Stage};
use core::sync::atomic::{AtomicBool, Ordering};

/// Tells of what crosses the border.
pub const STAGE: Stage<ThreadContext> = Stage {
    name: "boundaries",
    takes: |number| crate::mode().record && concerns(number),
    pass,
};

fn concerns(number: u64) -> bool {
    let mode = crate::mode();
    mode.boundaries
        && (reads_from(number).is_some()
            || number == nr::MMAP
            || writes_to(number).is_some()
            || opens(number)
            || mode.named_input && !path_arguments(number).is_empty()
            || mode.client && matches!(number, LISTEN | ACCEPT | ACCEPT4)
            || matches!(number, nr::KILL | nr::TKILL | nr::TGKILL))
        || mode.line_input && reads_from(number).is_some()
}

const ACCEPT: u64 = 43;
const LISTEN: u64 = 50;
const GETSOCKNAME: u64 = 51;
const ACCEPT4: u64 = 288;

/// The argument that names the descriptor that a call reads from.
fn reads_from(number: u64) -> Option<usize> {
    match number {
        nr::READ
        | nr::READV
        | nr::PREAD64
        | nr::PREADV
        | nr::PREADV2
        | nr::RECVFROM
        | nr::RECVMSG
        | nr::SPLICE
        | nr::TEE
        | nr::COPY_FILE_RANGE => Some(0),
        nr::SENDFILE => Some(1),
        _ => None,
    }
}

/// The argument that names the descriptor that a call writes to.
fn writes_to(number: u64) -> Option<usize> {
    match number {
        nr::WRITE
        | nr::WRITEV
        | nr::PWRITE64
        | nr::PWRITEV
        | nr::PWRITEV2
        | nr::SENDTO
        | nr::SENDMSG
        | nr::SENDMMSG
        | nr::SENDFILE
        | nr::VMSPLICE => Some(0),
        nr::TEE => Some(1),
        nr::SPLICE | nr::COPY_FILE_RANGE => Some(2),
        _ => None,
    }
}

fn opens(number: u64) -> bool {
    matches!(number, nr::OPEN | nr::CREAT | nr::OPENAT | nr::OPENAT2)
}

fn has_input(s: &Stat) -> bool {
    let c = control();
    (s.dev, s.ino) == (c.input_device, c.input_inode)
}

/// Whether a descriptor is standard input.
pub fn is_input(fd: u64) -> bool {
    fstat(fd).is_some_and(|s| has_input(&s))
}

/// Whether a call maps the input.
pub fn maps_input(number: u64, a: &[u64; 6]) -> bool {
    number == nr::MMAP && a[3] & sys::MAP_ANONYMOUS == 0 && is_input(a[4])
}

/// The input has been named, which is told once in a process.
static NAMED: AtomicBool = AtomicBool::new(false);

/// Whether a call names the file that is the program's input.
pub fn names_input(number: u64, a: &[u64; 6]) -> bool {
    const AT_FDCWD: u64 = -100i64 as u64;
    crate::mode().named_input
        && path_arguments(number).iter().any(|&(folder, path, _)| {
            let folder = folder.map_or(AT_FDCWD, |arg| a[arg as usize]);
            stat_at(folder, a[path as usize]).is_some_and(|s| has_input(&s))
        })
}

fn pass(ctx: &mut ThreadContext, call: &Call, rest: Rest<ThreadContext>) -> Option<i64> {
    let (number, a) = (call.number, &call.args);
    let mode = crate::mode();
    if mode.boundaries && !NAMED.load(Ordering::Relaxed) && names_input(number, a) {
        NAMED.store(true, Ordering::Relaxed);
        event(ctx, rare::INPUT, [0; 6], &[]);
    }
    if mode.boundaries && maps_input(number, a) {
        event(ctx, rare::INPUT, [a[4], a[5], 0, 0, 0, 0], &[]);
    }
    let is_creation = mode.boundaries && creates(number, a);
    let input = reads_from(number)
        .map(|arg| a[arg])
        .filter(|&fd| is_input(fd));
    if let Some(fd) = input
        && mode.boundaries
        && ctx.announced != ctx.rip
    {
        let at = position(number, a).unwrap_or(u64::MAX);
        event(ctx, rare::INPUT, [fd, at, 0, 0, 0, 0], &[]);
        // If a signal comes first, the program makes this call once more.
        ctx.announced = ctx.rip;
    }
    let deadly = sent_to_self(ctx, number, a).filter(|&sig| {
        mode.boundaries && dispositions::kills(ctx, sig) && !dispositions::is_blocked(ctx, sig)
    });
    if let Some(sig) = deadly
        && ctx.announced != ctx.rip
        // Else another signal comes first, for sure.
        && !ctx.has_pending()
    {
        event(ctx, rare::SIGNAL, [sig as u64, 0, 0, 0, 0, 0], &[]);
        ctx.announced = ctx.rip;
    }
    let result = match input {
        Some(_) if mode.line_input && control().input_is_file != 0 => read_line(ctx, call, rest)?,
        _ => rest.make(ctx, call)?,
    };
    if input.is_some() || deadly.is_some() {
        ctx.announced = ProgramAddr::NONE;
    }
    if mode.boundaries
        && result > 0
        && let Some(arg) = writes_to(number)
        && is_world(a[arg])
    {
        event(ctx, rare::OUTPUT, [a[arg], result as u64, 0, 0, 0, 0], &[]);
    }
    if is_creation && result >= 0 {
        remember_creation(result as u64);
    }
    if mode.opens && mode.boundaries && opens(number) && result >= 0 {
        opened(ctx, result as u64);
    }
    if mode.client && result >= 0 {
        match number {
            LISTEN => listens(a[0]),
            ACCEPT | ACCEPT4 => {
                event(ctx, rare::INPUT, [result as u64, u64::MAX, 0, 0, 0, 0], &[]);
            }
            _ => {}
        }
    }
    Some(result)
}

/// The program has opened a file.
fn opened(ctx: &mut ThreadContext, fd: u64) {
    const S_IFMT: u32 = 0o170_000;
    const S_IFREG: u32 = 0o100_000;
    if fstat(fd).is_some_and(|s| s.mode & S_IFMT == S_IFREG) {
        let link = alloc::format!("/proc/self/fd/{}\0", fd as i32);
        let path = crate::paths::read_link(link.as_bytes());
        event(ctx, rare::OPENED, [0; 6], &path);
    }
}

/// The program has begun to listen on a socket.
fn listens(fd: u64) {
    // As large as any address (`struct sockaddr_storage`).
    let mut address = [0u8; 128];
    let mut len = address.len() as u32;
    // SAFETY: our own buffer, of which the kernel is told the size.
    let told = unsafe { sc!(GETSOCKNAME, fd as i32, address.as_mut_ptr(), &raw mut len) };
    if told == 0 {
        crate::service::listening(&address[..(len as usize).min(address.len())]);
    }
}

// ---------------------------------------------------------------- redirected paths

/// A call has been made with a redirected path; `path` is what the program gave.
pub fn looked_up(ctx: &mut ThreadContext, number: u64, result: i64, path: &[u8]) {
    let mode = crate::mode();
    if mode.record && mode.boundaries {
        event(ctx, rare::LOOKUP, [number, result as u64, 0, 0, 0, 0], path);
    }
}

// ---------------------------------------------------------------- deadly signals

/// The signal that a call sends to the thread itself or to its process, if it does that.
pub fn sent_to_self(ctx: &ThreadContext, number: u64, a: &[u64; 6]) -> Option<i32> {
    let is = |arg: usize, real: u32| a[arg] as u32 == real;
    let process = if ctx.borrows_memory {
        ctx.tid
    } else {
        crate::control::real_pid()
    };
    match number {
        // 0 is the process group.
        nr::KILL if a[0] as u32 == 0 || is(0, process) => Some(a[1] as i32),
        nr::TKILL if is(0, ctx.tid) => Some(a[1] as i32),
        nr::TGKILL if is(0, process) && is(1, ctx.tid) => Some(a[2] as i32),
        _ => None,
    }
}

/// Whether deaths by signals are recorded.
pub fn records_deaths() -> bool {
    let mode = crate::mode();
    mode.record && mode.boundaries
}

/// The program is about to be ended by `sig`. Its state is in `ctx`; `addr` is what a fault
/// reports, else 0.
pub fn dies(ctx: &mut ThreadContext, sig: i32, addr: u64) {
    if records_deaths() {
        // A fault may come from the middle of a tracked access.
        ring::release_if_held(ctx);
        const SIGFPE: i32 = 8;
        if sig == SIGFPE {
            // An access is recorded when its instruction is over. A division by what it reads from
            // tracked memory never is.
            super::record::read_by_the_dying(ctx);
        }
        event(ctx, rare::SIGNAL, [sig as u64, addr, 0, 0, 0, 0], &[]);
    }
}

// ---------------------------------------------------------------- line by line

/// Where in the file a call that reads begins; `None` if it is no file, or the call will fail.
fn position(number: u64, a: &[u64; 6]) -> Option<u64> {
    let fd = a[reads_from(number)?];
    let given_by = |at: u64| {
        let mut offset = 0u64;
        (at != 0 && read_value(at, &mut offset)).then_some(offset)
    };
    let given = match number {
        nr::PREAD64 | nr::PREADV => Some(a[3]),
        // -1 is the descriptor's own position.
        nr::PREADV2 => Some(a[3]).filter(|&at| at != u64::MAX),
        nr::SPLICE | nr::COPY_FILE_RANGE => given_by(a[1]),
        nr::SENDFILE => given_by(a[2]),
        _ => None,
    };
    // SAFETY: lseek(fd, 0, SEEK_CUR).
    given.or_else(|| u64::try_from(unsafe { sc!(nr::LSEEK, fd as i32, 0, 1) }).ok())
}

/// Bytes up to and with the first line feed from a position on, at most `max`.
fn line_length(fd: u64, position: u64, max: u64) -> u64 {
    let mut seen = 0;
    while seen < max {
        let mut piece = [0u8; 1024];
        let want = (max - seen).min(piece.len() as u64);
        // SAFETY: our own buffer.
        let got = unsafe {
            sc!(
                nr::PREAD64,
                fd as i32,
                piece.as_mut_ptr(),
                want,
                position.saturating_add(seen)
            )
        };
        if got <= 0 {
            break;
        }
        let piece = &piece[..got as usize];
        if let Some(at) = piece.iter().position(|&byte| byte == b'\n') {
            return seen + at as u64 + 1;
        }
        seen += got as u64;
    }
    // The last line has no line feed; or the buffer ends before the line.
    max
}

fn read_line(ctx: &mut ThreadContext, call: &Call, rest: Rest<ThreadContext>) -> Option<i64> {
    let (number, a) = (call.number, &call.args);
    let mut b = *a;
    let Some((fd, position)) = reads_from(number)
        .map(|arg| a[arg])
        .zip(position(number, a))
    else {
        return rest.make(ctx, call);
    };
    let length = match number {
        nr::READ | nr::PREAD64 => 2,
        nr::SENDFILE => 3,
        nr::SPLICE | nr::COPY_FILE_RANGE => 4,
        nr::READV | nr::PREADV | nr::PREADV2 => {
            let Some(mut buffers) = read_vector(a[1], a[2]) else {
                return rest.make(ctx, call);
            };
            let room = buffers.iter().fold(0u64, |sum, v| sum.saturating_add(v[1]));
            let mut left = line_length(fd, position, room);
            for buffer in &mut buffers {
                buffer[1] = buffer[1].min(left);
                left -= buffer[1];
            }
            b[1] = buffers.as_ptr() as u64;
            return rest.make(ctx, &call.with(b));
        }
        _ => return rest.make(ctx, call),
    };
    b[length] = line_length(fd, position, a[length]);
    rest.make(ctx, &call.with(b))
}

/// The program's `iovec` array: address and length of each buffer.
fn read_vector(at: u64, count: u64) -> Option<Vec<[u64; 2]>> {
    const IOV_MAX: u64 = 1024;
    if count > IOV_MAX {
        return None;
    }
    let mut buffers = alloc::vec![[0u64; 2]; count as usize];
    for (i, buffer) in buffers.iter_mut().enumerate() {
        if !read_value(at + 16 * i as u64, buffer) {
            return None;
        }
    }
    Some(buffers)
}
