//! Pipes and sockets: reading and writing, `splice` and its kin, `sendfile`, the opening of a named
//! pipe, `connect`.
//!
//! A call that would wait is not made until its descriptor is ready; and since one that is ready
//! may take less than it is given, what is to be written is written in pieces that do not wait. So
//! nobody waits in the kernel with the turn.
//!
//! **A named pipe** is opened without waiting. To write, that fails until somebody reads. To read,
//! it never fails; then the pipe itself is asked whether it has a writer: `tee` of one byte that is
//! not there answers 0 if it has none, and that it would wait if it has one.
//!
//! Deviations: calls that want more than there is (`recvmsg` with `MSG_WAITALL`, `recvmmsg`) and
//! several messages to a stream (`sendmmsg`) are made without the turn. A socket that lingers when
//! it is closed may wait with the turn.

use super::turn::{self, Woken, table};
use super::waiting::{
    O_NONBLOCK, POLLIN, POLLOUT, does_not_wait, is_output, is_pipe, is_pipe_mode, is_ready,
    is_socket, set_waits, wait,
};
use crate::address::ProgramAddr;
use crate::context::ThreadContext;
use crate::copy::read_memory;
use crate::pm::reach;
use crate::sys::{self, nr, sc};
use crate::values::read_value;
use alloc::vec::Vec;
use brownout_schedule::{NO_DEADLINE, Point, SeatState};
use brownout_syscalls::pipeline::{Call, Rest};

const CONNECT: u64 = 42;
const ACCEPT: u64 = 43;
const GETSOCKOPT: u64 = 55;
const ACCEPT4: u64 = 288;
const RECVMMSG: u64 = 299;
const NEWFSTATAT: u64 = 262;

const ENXIO: i64 = 6;
const EINPROGRESS: i64 = 115;
const MSG_DONTWAIT: u64 = 0x40;
const MSG_WAITALL: u64 = 0x100;

/// What waits for which readiness of its first argument.
fn readiness(number: u64) -> Option<u16> {
    match number {
        nr::READ | nr::READV | nr::RECVFROM | nr::RECVMSG | RECVMMSG | ACCEPT | ACCEPT4 => {
            Some(POLLIN)
        }
        nr::WRITE | nr::WRITEV | nr::SENDTO | nr::SENDMSG | nr::SENDMMSG => Some(POLLOUT),
        _ => None,
    }
}

/// Whether a call is about these.
pub fn takes(number: u64) -> bool {
    let others = [
        nr::OPEN,
        nr::CREAT,
        nr::OPENAT,
        nr::OPENAT2,
        nr::SPLICE,
        nr::TEE,
        nr::VMSPLICE,
        nr::SENDFILE,
        CONNECT,
    ];
    readiness(number).is_some() || others.contains(&number)
}

/// One of them. `None`: a signal comes first.
pub fn call(
    ctx: &mut ThreadContext,
    call: &Call,
    rest: Rest<ThreadContext>,
    here: Point,
) -> Option<i64> {
    match call.number {
        nr::OPEN | nr::CREAT | nr::OPENAT | nr::OPENAT2 => open(ctx, call, rest, here),
        nr::SPLICE | nr::TEE | nr::VMSPLICE => splice(ctx, call, rest, here),
        nr::SENDFILE => send_file(ctx, call, rest, here),
        CONNECT => connect(ctx, call, rest, here),
        _ => transfer(ctx, call, rest, here),
    }
}

// ---------------------------------------------------------------- reading and writing

fn transfer(
    ctx: &mut ThreadContext,
    call: &Call,
    rest: Rest<ThreadContext>,
    here: Point,
) -> Option<i64> {
    let events = readiness(call.number).unwrap_or(0);
    let fd = call.args[0];
    let is_patient = || message_flags(call) & MSG_DONTWAIT == 0 && !does_not_wait(fd);
    if call.number == nr::RECVFROM && wants_all(call) && is_patient() && is_stream(fd) {
        return receive_all(ctx, call, rest, here, &Patience::of(fd, events));
    }
    if wants_all(call) && is_patient() {
        return turn::away_unrepeated(ctx, here, call.number, |ctx| rest.make(ctx, call));
    }
    if let Some(pieces) = Pieces::of(call)
        && is_patient()
    {
        return pieces.write(ctx, rest, here, &Patience::of(fd, events));
    }
    if !is_ready(fd, events) && is_patient() {
        let patience = Patience::of(fd, events);
        while !is_ready(fd, events) {
            if let Err(answer) = patience.wait(ctx, here) {
                return answer;
            }
        }
    }
    rest.make(ctx, call)
}

/// `recv` with `MSG_WAITALL`, piece by piece.
fn receive_all(
    ctx: &mut ThreadContext,
    call: &Call,
    rest: Rest<ThreadContext>,
    here: Point,
    patience: &Patience,
) -> Option<i64> {
    let [fd, data, len, flags, address, address_len] = call.args;
    let flags = flags & !MSG_WAITALL | MSG_DONTWAIT;
    let mut done = 0u64;
    while done < len {
        let piece = [fd, data + done, len - done, flags, address, address_len];
        match rest.make(ctx, &call.with(piece)) {
            Some(n) if n > 0 => done += n as u64,
            Some(n) if n == -sys::EAGAIN => match patience.wait(ctx, here) {
                Ok(()) => {}
                Err(_) if done > 0 => break,
                Err(answer) => return answer,
            },
            _ if done > 0 => break,
            other => return other,
        }
    }
    Some(done as i64)
}

/// Whether a descriptor that is ready may still not have what the call waits for.
fn wants_all(call: &Call) -> bool {
    const MSG_PEEK: u64 = 2;
    const MSG_WAITFORONE: u64 = 0x1_0000;
    let flags = message_flags(call);
    match call.number {
        nr::RECVFROM | nr::RECVMSG => flags & MSG_WAITALL != 0 && flags & MSG_PEEK == 0,
        RECVMMSG => flags & MSG_WAITFORONE == 0 && call.args[2] > 1,
        nr::SENDMMSG => call.args[2] > 1,
        _ => false,
    }
}

fn message_flags(call: &Call) -> u64 {
    match call.number {
        nr::RECVFROM | nr::SENDTO | RECVMMSG | nr::SENDMMSG => call.args[3],
        nr::RECVMSG | nr::SENDMSG => call.args[2],
        _ => 0,
    }
}

/// How long a call waits.
struct Patience {
    deadline: u64,
    /// Whether the kernel makes the call again behind a signal's handler, if that asks for it.
    restarts: bool,
}

impl Patience {
    /// Sockets may have a time of their own for each direction.
    fn of(fd: u64, events: u16) -> Patience {
        const SOL_SOCKET: u64 = 1;
        const SO_RCVTIMEO: u64 = 20;
        const SO_SNDTIMEO: u64 = 21;
        let option = match events {
            POLLIN => SO_RCVTIMEO,
            _ => SO_SNDTIMEO,
        };
        let mut time = [0u64; 2];
        let mut len = size_of_val(&time) as u32;
        // SAFETY: words of ours. What is no socket has no such option, and leaves them.
        let answer = unsafe {
            sc!(
                GETSOCKOPT,
                fd,
                SOL_SOCKET,
                option,
                &raw mut time,
                &raw mut len
            )
        };
        let [seconds, us] = time;
        let ns = seconds.saturating_mul(1_000_000_000);
        match ns.saturating_add(us.saturating_mul(1_000)) {
            ns if answer == 0 && ns != 0 => Patience {
                deadline: table().clock().saturating_add(ns),
                restarts: false,
            },
            _ => Patience {
                deadline: NO_DEADLINE,
                restarts: true,
            },
        }
    }

    /// Waits until something has changed. `Err`: what the call answers instead.
    fn wait(&self, ctx: &mut ThreadContext, here: Point) -> Result<(), Option<i64>> {
        match wait(ctx, SeatState::Retry, self.deadline, here, self.restarts)? {
            Woken::Timeout => Err(Some(-sys::EAGAIN)),
            _ => Ok(()),
        }
    }
}

/// A stretch of memory: address and length.
type Stretch = [u64; 2];

/// Something to be written that may not fit at once.
struct Pieces {
    fd: u64,
    stretches: Vec<Stretch>,
    to: To,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum To {
    Pipe,
    /// With the flags of the call.
    Stream(u64),
}

impl Pieces {
    /// What the call is to write to a pipe or a stream. Messages are sent whole, or not at all; and
    /// so is what comes with anything else than bytes.
    fn of(call: &Call) -> Option<Pieces> {
        const SHORT: u64 = 4096;
        let [fd, data, len, flags, address, _] = call.args;
        let one = |len| Some(alloc::vec![[data, len]]);
        let stretches = match call.number {
            nr::WRITE => one(len),
            nr::SENDTO if address == 0 => one(len),
            nr::WRITEV => stretches(data, len),
            nr::SENDMSG => {
                // Name and its length, stretches and their number, what else comes with it and its
                // length, flags.
                let mut header = [0u64; 7];
                let is_plain = read_value(data, &mut header) && header[0] == 0 && header[5] == 0;
                is_plain.then(|| stretches(header[2], header[3])).flatten()
            }
            _ => None,
        }?;
        let all = stretches
            .iter()
            .fold(0u64, |all, [_, len]| all.saturating_add(*len));
        let to = match call.number {
            _ if all <= SHORT => return None,
            nr::SENDTO => To::Stream(flags),
            nr::SENDMSG => To::Stream(len),
            _ if is_pipe(fd) => To::Pipe,
            _ => To::Stream(0),
        };
        let fits = to == To::Pipe || is_stream(fd);
        fits.then_some(Pieces { fd, stretches, to })
    }

    /// Takes up to `len` bytes from the front.
    fn next(&self, mut done: u64, mut len: u64) -> Vec<Stretch> {
        let mut piece = Vec::new();
        for [at, size] in &self.stretches {
            let skipped = done.min(*size);
            done -= skipped;
            let taken = (size - skipped).min(len);
            len -= taken;
            if taken > 0 {
                piece.push([at + skipped, taken]);
            }
        }
        piece
    }

    /// Writes all of it. `None`: a signal comes first.
    fn write(
        &self,
        ctx: &mut ThreadContext,
        rest: Rest<ThreadContext>,
        here: Point,
        patience: &Patience,
    ) -> Option<i64> {
        /// A pipe that is ready takes so much at once.
        const PIPE_BUF: u64 = 4096;
        /// What one call passes on.
        const AT_ONCE: u64 = 1 << 20;
        let mut done = 0u64;
        loop {
            let len = if self.to == To::Pipe {
                PIPE_BUF
            } else {
                AT_ONCE
            };
            let piece = self.next(done, len);
            if piece.is_empty() {
                return Some(done as i64);
            }
            let (at, count) = (piece.as_ptr() as u64, piece.len() as u64);
            let header = [0, 0, at, count, 0, 0, 0u64];
            let made = match self.to {
                To::Pipe if !is_ready(self.fd, POLLOUT) => Some(-sys::EAGAIN),
                To::Pipe => {
                    let args = [self.fd, at, count, 0, 0, 0];
                    rest.make(
                        ctx,
                        &Call {
                            number: nr::WRITEV,
                            args,
                        },
                    )
                }
                To::Stream(flags) => {
                    let flags = flags | MSG_DONTWAIT;
                    let args = [self.fd, header.as_ptr() as u64, flags, 0, 0, 0];
                    rest.make(
                        ctx,
                        &Call {
                            number: nr::SENDMSG,
                            args,
                        },
                    )
                }
            };
            match made {
                Some(n) if n > 0 => {
                    done += n as u64;
                    table().something_changed();
                    turn::point(ctx, here);
                }
                Some(n) if n == -sys::EAGAIN => match patience.wait(ctx, here) {
                    Ok(()) => {}
                    Err(_) if done > 0 => return Some(done as i64),
                    Err(answer) => return answer,
                },
                _ if done > 0 => return Some(done as i64),
                other => return other,
            }
        }
    }
}

fn stretches(at: u64, count: u64) -> Option<Vec<Stretch>> {
    /// As in the kernel.
    const COUNT_MAX: u64 = 1024;
    const LEN: usize = size_of::<Stretch>();
    if count > COUNT_MAX {
        return None;
    }
    let mut bytes = alloc::vec![0u8; count as usize * LEN];
    if !read_memory(reach(ProgramAddr::new(at)), &mut bytes) {
        return None;
    }
    let word = |bytes: &[u8]| {
        bytes
            .iter()
            .rev()
            .fold(0, |word, b| word << 8 | u64::from(*b))
    };
    let stretch = |bytes: &[u8]| [word(&bytes[..8]), word(&bytes[8..])];
    Some(bytes.chunks_exact(LEN).map(stretch).collect())
}

fn is_stream(fd: u64) -> bool {
    const SOL_SOCKET: u64 = 1;
    const SO_TYPE: u64 = 3;
    const SOCK_STREAM: u32 = 1;
    let (mut kind, mut len) = (0u32, 4u32);
    // SAFETY: words of ours. What is no socket has no type.
    let answer = unsafe {
        sc!(
            GETSOCKOPT,
            fd,
            SOL_SOCKET,
            SO_TYPE,
            &raw mut kind,
            &raw mut len
        )
    };
    answer == 0 && kind == SOCK_STREAM
}

// ---------------------------------------------------------------- from descriptor to descriptor

fn splice(
    ctx: &mut ThreadContext,
    call: &Call,
    rest: Rest<ThreadContext>,
    here: Point,
) -> Option<i64> {
    const SPLICE_F_NONBLOCK: u64 = 2;
    let a = call.args;
    let (input, output, flags) = match call.number {
        nr::SPLICE => (Some(a[0]), Some(a[2]), 5),
        nr::TEE => (Some(a[0]), Some(a[1]), 3),
        _ if is_output(a[0]) => (None, Some(a[0]), 3),
        _ => (Some(a[0]), None, 3),
    };
    if a[flags] & SPLICE_F_NONBLOCK != 0 {
        return rest.make(ctx, call);
    }
    let mut tried = a;
    tried[flags] |= SPLICE_F_NONBLOCK;
    let ends = [(input, POLLIN), (output, POLLOUT)];
    let ends = ends.map(|(fd, events)| fd.map(|fd| (fd, events)));
    let is_patient = !ends.iter().flatten().any(|(fd, _)| does_not_wait(*fd));
    loop {
        let mut all = ends.iter().flatten();
        if !is_patient || all.all(|(fd, events)| is_ready(*fd, *events)) {
            let result = rest.make(ctx, &call.with(tried))?;
            if !is_patient || result != -sys::EAGAIN {
                return Some(result);
            }
        }
        if let Err(answer) = wait(ctx, SeatState::Retry, NO_DEADLINE, here, true) {
            return answer;
        }
    }
}

/// To what may be full: it answers at once, for the moment of the call.
fn send_file(
    ctx: &mut ThreadContext,
    call: &Call,
    rest: Rest<ThreadContext>,
    here: Point,
) -> Option<i64> {
    let output = call.args[0];
    if does_not_wait(output) || !is_pipe(output) && !is_socket(output) {
        return rest.make(ctx, call);
    }
    let patience = Patience::of(output, POLLOUT);
    loop {
        set_waits(output, false);
        let result = rest.make(ctx, call);
        set_waits(output, true);
        if result != Some(-sys::EAGAIN) {
            return result;
        }
        if let Err(answer) = patience.wait(ctx, here) {
            return answer;
        }
    }
}

// ---------------------------------------------------------------- named pipes

fn open(
    ctx: &mut ThreadContext,
    call: &Call,
    rest: Rest<ThreadContext>,
    here: Point,
) -> Option<i64> {
    const AT_FDCWD: u64 = -100i64 as u64;
    const O_ACCMODE: u64 = 3;
    const O_WRONLY: u64 = 1;
    const O_RDWR: u64 = 2;
    const O_PATH: u64 = 0o10_000_000;
    const O_CREAT_AND_TRUNC: u64 = 0o1100;
    let a = call.args;
    // Flags, mode, how to look the name up.
    let mut how = [0u64; 3];
    let (folder, path, flags) = match call.number {
        nr::OPEN => (AT_FDCWD, a[0], a[1]),
        nr::CREAT => (AT_FDCWD, a[0], O_WRONLY | O_CREAT_AND_TRUNC),
        nr::OPENAT => (a[0], a[1], a[2]),
        _ if a[3] == size_of_val(&how) as u64 && read_value(a[2], &mut how) => (a[0], a[1], how[0]),
        _ => return rest.make(ctx, call),
    };
    let waits = flags & (O_NONBLOCK | O_PATH) == 0 && flags & O_ACCMODE != O_RDWR;
    if !waits || !is_named_pipe(folder, path) {
        return rest.make(ctx, call);
    }
    let at_once = flags | O_NONBLOCK;
    how[0] = at_once;
    let tried = match call.number {
        nr::OPEN => call.with([a[0], at_once, a[2], 0, 0, 0]),
        nr::CREAT => Call {
            number: nr::OPEN,
            args: [a[0], at_once, a[1], 0, 0, 0],
        },
        nr::OPENAT => call.with([a[0], a[1], at_once, a[3], 0, 0]),
        _ => call.with([a[0], a[1], how.as_ptr() as u64, a[3], 0, 0]),
    };
    let fd = loop {
        match rest.make(ctx, &tried)? {
            result if result == -ENXIO && flags & O_ACCMODE == O_WRONLY => {
                if let Err(answer) = wait(ctx, SeatState::Retry, NO_DEADLINE, here, true) {
                    return answer;
                }
            }
            error if error < 0 => return Some(error),
            fd => break fd as u64,
        }
    };
    if flags & O_ACCMODE != O_WRONLY {
        // Whoever waits to write finds a reader now.
        table().something_changed();
        while !has_writer(fd) {
            if let Err(answer) = wait(ctx, SeatState::Retry, NO_DEADLINE, here, true) {
                // SAFETY: just opened, and nobody has been told of it.
                unsafe { sc!(nr::CLOSE, fd) };
                return answer;
            }
        }
    }
    set_waits(fd, true);
    Some(fd as i64)
}

fn is_named_pipe(folder: u64, path: u64) -> bool {
    const LEN: usize = 18;
    let mut stat = [0u64; LEN];
    // SAFETY: the program's path, as it gives it to the kernel itself; a structure of ours that has
    // room.
    let answer = unsafe { sc!(NEWFSTATAT, folder, path, stat.as_mut_ptr(), 0) };
    answer == 0 && is_pipe_mode(stat[3] as u32)
}

/// Whether somebody has opened the pipe behind `fd` to write, or has since `fd` is there.
fn has_writer(fd: u64) -> bool {
    const SPLICE_F_NONBLOCK: u64 = 2;
    if is_ready(fd, POLLIN) {
        return true;
    }
    let mut ends = [0u32; 2];
    // SAFETY: descriptors of ours, for the length of this function. The program's pipe loses
    // nothing.
    unsafe {
        if sc!(nr::PIPE2, ends.as_mut_ptr(), 0) < 0 {
            // It is not the program's fault; natively it would wait here.
            return true;
        }
        let copied = sc!(nr::TEE, fd, ends[1], 1, SPLICE_F_NONBLOCK);
        sc!(nr::CLOSE, ends[0]);
        sc!(nr::CLOSE, ends[1]);
        copied != 0
    }
}

// ---------------------------------------------------------------- connections

/// A connection to somebody who has more of them waiting than he takes: asked for again.
fn connect(
    ctx: &mut ThreadContext,
    call: &Call,
    rest: Rest<ThreadContext>,
    here: Point,
) -> Option<i64> {
    let fd = call.args[0];
    if does_not_wait(fd) || !is_socket(fd) {
        return rest.make(ctx, call);
    }
    let patience = Patience::of(fd, POLLOUT);
    loop {
        set_waits(fd, false);
        let result = rest.make(ctx, call);
        set_waits(fd, true);
        match result {
            Some(result) if result == -sys::EAGAIN => {}
            Some(result) if result == -EINPROGRESS => break,
            other => return other,
        }
        if let Err(answer) = patience.wait(ctx, here) {
            return answer;
        }
    }
    while !is_ready(fd, POLLOUT) {
        if let Err(answer) = patience.wait(ctx, here) {
            return answer;
        }
    }
    Some(-i64::from(error_of(fd)))
}

/// How a connection has failed; 0: it has not.
fn error_of(fd: u64) -> u32 {
    const SOL_SOCKET: u64 = 1;
    const SO_ERROR: u64 = 4;
    let (mut error, mut len) = (0u32, 4u32);
    // SAFETY: words of ours.
    unsafe {
        sc!(
            GETSOCKOPT,
            fd,
            SOL_SOCKET,
            SO_ERROR,
            &raw mut error,
            &raw mut len
        )
    };
    error
}
