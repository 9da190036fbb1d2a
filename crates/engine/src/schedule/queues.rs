//! Semaphores and message queues: System V's, and POSIX message queues. (POSIX semaphores are
//! futexes.)
//!
//! They are asked without waiting, and again when another thread has made a call. Who waits gets
//! what it waits for when it has the turn, so among several the strategy decides, where the kernel
//! would serve the one that came first; a native run may see the same, since who comes first is
//! anybody's guess.
//!
//! Deviation: one `semop` with operations of which some may wait and some may not is made without
//! the turn, because the kernel does not say which of them could not be done.

use super::futex::duration;
use super::turn::{self, Woken, table};
use super::waiting::{POLLIN, POLLOUT, does_not_wait, is_ready, wait};
use crate::address::ProgramAddr;
use crate::context::ThreadContext;
use crate::copy::read_memory;
use crate::pm::reach;
use crate::sys;
use brownout_schedule::{NO_DEADLINE, Point, SeatState};
use brownout_syscalls::pipeline::{Call, Rest};

const SEMOP: u64 = 65;
const MSGSND: u64 = 69;
const MSGRCV: u64 = 70;
const SEMTIMEDOP: u64 = 220;
const MQ_TIMEDSEND: u64 = 242;
const MQ_TIMEDRECEIVE: u64 = 243;

const IPC_NOWAIT: u64 = 0o4000;
const ENOMSG: i64 = 42;
const EIDRM: i64 = 43;
const ETIMEDOUT: i64 = 110;

/// Whether a call is about these.
pub fn takes(number: u64) -> bool {
    matches!(
        number,
        SEMOP | SEMTIMEDOP | MSGSND | MSGRCV | MQ_TIMEDSEND | MQ_TIMEDRECEIVE
    )
}

/// One of them. `None`: a signal comes first.
pub fn call(
    ctx: &mut ThreadContext,
    call: &Call,
    rest: Rest<ThreadContext>,
    here: Point,
) -> Option<i64> {
    match call.number {
        SEMOP | SEMTIMEDOP => semaphores(ctx, call, rest, here),
        MSGSND | MSGRCV => messages(ctx, call, rest, here),
        _ => posix(ctx, call, rest, here),
    }
}

fn semaphores(
    ctx: &mut ThreadContext,
    call: &Call,
    rest: Rest<ThreadContext>,
    here: Point,
) -> Option<i64> {
    /// Number, operation and flags, two bytes each.
    const LEN: usize = 6;
    const FLAGS: usize = 4;
    /// As in the kernel.
    const COUNT_MAX: u64 = 500;
    let a = call.args;
    if a[2] > COUNT_MAX {
        return rest.make(ctx, call);
    }
    let mut operations = alloc::vec![0u8; a[2] as usize * LEN];
    if !read_memory(reach(ProgramAddr::new(a[1])), &mut operations) {
        return rest.make(ctx, call);
    }
    let mut patient = 0;
    for operation in operations.chunks_exact_mut(LEN) {
        let flags = u16::from_le_bytes([operation[FLAGS], operation[FLAGS + 1]]);
        patient += u64::from(flags & IPC_NOWAIT as u16 == 0);
        operation[FLAGS..].copy_from_slice(&(flags | IPC_NOWAIT as u16).to_le_bytes());
    }
    if patient == 0 {
        return rest.make(ctx, call);
    }
    if patient < a[2] {
        return turn::away_unrepeated(ctx, here, call.number, |ctx| rest.make(ctx, call));
    }
    let deadline = match call.number {
        SEMTIMEDOP => match duration(a[3]) {
            Ok(time) => time.map_or(NO_DEADLINE, |ns| table().clock().saturating_add(ns)),
            Err(error) => return Some(error),
        },
        _ => NO_DEADLINE,
    };
    let tried = call.with([a[0], operations.as_ptr() as u64, a[2], 0, 0, 0]);
    try_until(ctx, &tried, rest, here, sys::EAGAIN, deadline, false)
}

fn messages(
    ctx: &mut ThreadContext,
    call: &Call,
    rest: Rest<ThreadContext>,
    here: Point,
) -> Option<i64> {
    let (flags, nothing) = match call.number {
        MSGSND => (3, sys::EAGAIN),
        _ => (4, ENOMSG),
    };
    let mut tried = call.args;
    if tried[flags] & IPC_NOWAIT != 0 {
        return rest.make(ctx, call);
    }
    tried[flags] |= IPC_NOWAIT;
    let tried = call.with(tried);
    try_until(ctx, &tried, rest, here, nothing, NO_DEADLINE, false)
}

/// Makes the call, which does not wait, until it answers something else than `nothing`.
fn try_until(
    ctx: &mut ThreadContext,
    call: &Call,
    rest: Rest<ThreadContext>,
    here: Point,
    nothing: i64,
    deadline: u64,
    restarts: bool,
) -> Option<i64> {
    let mut has_waited = false;
    loop {
        match rest.make(ctx, call)? {
            // What it waited for was removed meanwhile.
            result if has_waited && result == -sys::EINVAL => return Some(-EIDRM),
            result if result != -nothing => return Some(result),
            _ if table().clock() >= deadline => return Some(-nothing),
            _ => {}
        }
        match wait(ctx, SeatState::Retry, deadline, here, restarts) {
            Ok(Woken::Timeout) => return Some(-nothing),
            Ok(_) => has_waited = true,
            Err(answer) => return answer,
        }
    }
}

/// A POSIX queue is a descriptor, which says whether it is ready.
fn posix(
    ctx: &mut ThreadContext,
    call: &Call,
    rest: Rest<ThreadContext>,
    here: Point,
) -> Option<i64> {
    let a = call.args;
    let events = match call.number {
        MQ_TIMEDSEND => POLLOUT,
        _ => POLLIN,
    };
    let deadline = match duration(a[4]) {
        Ok(time) => time.map_or(NO_DEADLINE, crate::clock::since_start),
        // The kernel has more to say of it.
        Err(_) => return rest.make(ctx, call),
    };
    while !is_ready(a[0], events) && !does_not_wait(a[0]) {
        if table().clock() >= deadline {
            return Some(-ETIMEDOUT);
        }
        match wait(ctx, SeatState::Retry, deadline, here, true) {
            Ok(Woken::Timeout) => return Some(-ETIMEDOUT),
            Ok(_) => {}
            Err(answer) => return answer,
        }
    }
    rest.make(ctx, call)
}
