//! System calls in which a thread may come to wait, or by which it lets others go on.
//!
//! | call | what becomes of it |
//! |---|---|
//! | `futex` | `futex.rs` |
//! | `sched_yield` | a point at which the thread gives way |
//! | `nanosleep`, `clock_nanosleep` | the table's clock |
//! | `poll`, `select`, `epoll_wait` and their kin, `rt_sigtimedwait`, `wait4`, `waitid`, `flock`, locks by `fcntl` | made without waiting; again when something has changed |
//! | `pause`, `rt_sigsuspend` | as a `ppoll` of nothing with that mask |
//! | `read`, `write`, `recv…`, `send…`, `accept`, `splice`, the opening of a named pipe and others that wait for the other end of something | `streams.rs` |
//! | semaphores and message queues | `queues.rs` |
//! | `alarm`, `setitimer`, POSIX timers, `timerfd` | `timers.rs` |
//! | `kill` and its kin | whoever may get the signal is marked |
//! | others that may wait | made without the turn |
//! | others that somebody may notice | a point before |

use super::futex::{self, duration};
use super::timers;
use super::turn::{self, Woken, table};
use super::waiting::{NOTHING, wait};
use super::{queues, streams};
use crate::address::ProgramAddr;
use crate::context::ThreadContext;
use crate::dispositions;
use crate::pm::reach;
use crate::sys::{self, nr};
use crate::values::read_value;
use alloc::vec::Vec;
use brownout_schedule::{NO_DEADLINE, Point, PointKind, SeatState};
use brownout_syscalls::pipeline::{Call, Rest, Stage};

/// Stands right in front of the kernel: what the other stages have to say about a call holds for
/// each time that it is made.
pub const STAGE: Stage<ThreadContext> = Stage {
    name: "turns",
    takes: |number| turn::on() && !is_private(number),
    pass,
};

const CLOSE: u64 = 3;
const POLL: u64 = 7;
const SELECT: u64 = 23;
const PAUSE: u64 = 34;
const FLOCK: u64 = 73;
const RT_SIGTIMEDWAIT: u64 = 128;
const RT_SIGQUEUEINFO: u64 = 129;
const SET_TID_ADDRESS: u64 = 218;
const CLOCK_NANOSLEEP: u64 = 230;
const EPOLL_WAIT: u64 = 232;
const WAITID: u64 = 247;
const SET_ROBUST_LIST: u64 = 273;
const PIDFD_SEND_SIGNAL: u64 = 424;
const FUTEX_WAITV: u64 = 449;

const EWOULDBLOCK: i64 = 11;
const EACCES: i64 = 13;

/// Calls that nobody else can notice, and in which nobody waits.
fn is_private(number: u64) -> bool {
    match number {
        // mmap, mprotect, munmap, brk; mremap, madvise
        9..=12 | 25 | 28 => true,
        // rt_sigaction, rt_sigprocmask, rt_sigreturn, sigaltstack
        13..=15 | 131 => true,
        // getpid, getuid, getgid, geteuid, getegid, getppid, getpgrp, gettid
        39 | 102 | 104 | 107 | 108 | 110 | 111 | 186 => true,
        // uname, gettimeofday, getrlimit, getrusage, sysinfo, times, time, clock_gettime,
        // clock_getres, getcpu, getrandom
        63 | 96..=100 | 201 | 228 | 229 | 309 | 318 => true,
        // stat, fstat, lstat, access, getcwd, readlink, newfstatat, readlinkat, faccessat, statx,
        // getdents, getdents64
        4..=6 | 21 | 79 | 89 | 262 | 267 | 269 | 332 | 78 | 217 => true,
        // arch_prctl, prctl, prlimit64, sched_getaffinity, sched_setaffinity
        157 | 158 | 302 | 203 | 204 => true,
        _ => false,
    }
}

fn pass(ctx: &mut ThreadContext, call: &Call, rest: Rest<ThreadContext>) -> Option<i64> {
    let (number, a) = (call.number, &call.args);
    let here = Point {
        kind: PointKind::Call,
        size: number as u32,
        pc: ctx.rip.get(),
        addr: 0,
    };
    match number {
        nr::FUTEX => return futex::call(ctx, a),
        FUTEX_WAITV => return Some(-sys::ENOSYS),
        SET_TID_ADDRESS => {
            ctx.clear_tid = a[0];
            return rest.make(ctx, &call.with([0; 6]));
        }
        SET_ROBUST_LIST => {
            const LEN: u64 = 24;
            if a[1] != LEN {
                return Some(-sys::EINVAL);
            }
            ctx.robust_list = a[0];
            return Some(0);
        }
        nr::SCHED_YIELD => {
            turn::point(
                ctx,
                Point {
                    kind: PointKind::Yield,
                    ..here
                },
            );
            return Some(0);
        }
        _ => {}
    }
    turn::point(ctx, here);
    if ctx.has_pending() {
        // It has come while others went on.
        return None;
    }
    if timers::takes(number)
        && let Some(answer) =
            timers::call(ctx, &mut table(), number, a, crate::deterministic::real_pid)
    {
        return Some(answer);
    }
    let result = match number {
        nr::NANOSLEEP | CLOCK_NANOSLEEP => sleep(ctx, call, here),
        POLL
        | nr::PPOLL
        | SELECT
        | nr::PSELECT6
        | EPOLL_WAIT
        | nr::EPOLL_PWAIT
        | nr::EPOLL_PWAIT2 => poll(ctx, call, rest, here),
        PAUSE => suspend(ctx, rest, here, [0, 0]),
        nr::RT_SIGSUSPEND => suspend(ctx, rest, here, [a[0], a[1]]),
        RT_SIGTIMEDWAIT => signal(ctx, call, rest, here),
        nr::WAIT4 | WAITID => child(ctx, call, rest, here),
        FLOCK | nr::FCNTL => lock(ctx, call, rest, here),
        _ if queues::takes(number) => queues::call(ctx, call, rest, here),
        _ if streams::takes(number) => streams::call(ctx, call, rest, here),
        nr::KILL
        | nr::TKILL
        | nr::TGKILL
        | RT_SIGQUEUEINFO
        | nr::RT_TGSIGQUEUEINFO
        | PIDFD_SEND_SIGNAL => {
            if crate::pm::sent_to_self(ctx, number, a).is_some_and(|sig| is_deadly(ctx, sig)) {
                futex::locks_are_left(ctx);
            }
            let result = rest.make(ctx, call)?;
            if result == 0 {
                mark_receivers(number, a);
            }
            Some(result)
        }
        _ if waits_unseen(number, a) => {
            turn::away_unrepeated(ctx, here, number, |ctx| rest.make(ctx, call))
        }
        CLOSE => {
            timers::closed(ctx, &mut table(), a[0]);
            rest.make(ctx, call)
        }
        _ => rest.make(ctx, call),
    };
    table().something_changed();
    result
}

/// Calls that may wait and cannot be tried without waiting.
fn waits_unseen(number: u64, a: &[u64; 6]) -> bool {
    // io_getevents, io_pgetevents
    matches!(number, 208 | 333) && brownout_syscalls::may_block(number, a)
}

fn sleep(ctx: &mut ThreadContext, call: &Call, here: Point) -> Option<i64> {
    const TIMER_ABSTIME: u64 = 1;
    const CLOCK_REALTIME: u64 = 0;
    let a = &call.args;
    let (at, left, is_absolute) = match call.number {
        nr::NANOSLEEP => (a[0], a[1], false),
        _ => (a[2], a[3], a[1] & TIMER_ABSTIME != 0),
    };
    let time = match duration(at) {
        Ok(Some(time)) => time,
        Ok(None) => return Some(-sys::EFAULT),
        Err(error) => return Some(error),
    };
    let deadline = match is_absolute {
        true if a[0] == CLOCK_REALTIME => crate::clock::since_start(time),
        true => time,
        false => table().clock().saturating_add(time),
    };
    match wait(ctx, SeatState::Sleep, deadline, here, false) {
        Ok(_) => Some(0),
        Err(answer) => {
            if !is_absolute && left != 0 {
                let ns = deadline.saturating_sub(table().clock());
                let pair = [ns / 1_000_000_000, ns % 1_000_000_000];
                crate::values::write_value(ctx, left, &pair);
            }
            answer
        }
    }
}

fn poll(
    ctx: &mut ThreadContext,
    call: &Call,
    rest: Rest<ThreadContext>,
    here: Point,
) -> Option<i64> {
    let a = call.args;
    let mut tried = a;
    let zero = NOTHING.as_ptr() as u64;
    // The time, and the same call without.
    let time = match call.number {
        POLL | EPOLL_WAIT | nr::EPOLL_PWAIT => {
            let at = if call.number == POLL { 2 } else { 3 };
            tried[at] = 0;
            match a[at] as i32 {
                ms if ms < 0 => Ok(None),
                ms => Ok(Some(ms as u64 * 1_000_000)),
            }
        }
        SELECT => {
            tried[4] = zero;
            let mut time = [0u64; 2];
            match a[4] {
                0 => Ok(None),
                at if read_value(at, &mut time) => Ok(Some(
                    time[0]
                        .saturating_mul(1_000_000_000)
                        .saturating_add(time[1].saturating_mul(1_000)),
                )),
                _ => Err(-sys::EFAULT),
            }
        }
        nr::PPOLL => {
            tried[2] = zero;
            duration(a[2])
        }
        nr::PSELECT6 => {
            tried[4] = zero;
            duration(a[4])
        }
        _ => {
            tried[3] = zero;
            duration(a[3])
        }
    };
    let deadline = match time {
        Ok(Some(ns)) => table().clock().saturating_add(ns),
        Ok(None) => NO_DEADLINE,
        Err(error) => return Some(error),
    };
    let sets = matches!(call.number, SELECT | nr::PSELECT6).then(|| Sets::take(&a));
    loop {
        let result = rest.make(ctx, &call.with(tried))?;
        if result != 0 || table().clock() >= deadline {
            return Some(result);
        }
        match wait(ctx, SeatState::Retry, deadline, here, false) {
            Ok(Woken::Timeout) => return Some(0),
            Ok(_) => {}
            Err(answer) => return answer,
        }
        if let Some(sets) = &sets {
            sets.put_back(&a);
        }
    }
}

/// What `select` is asked about, which it overwrites with its answer.
struct Sets([Vec<u8>; 3]);

impl Sets {
    fn take(a: &[u64; 6]) -> Sets {
        let len = (a[0] as usize).min(1 << 16).div_ceil(64) * 8;
        Sets([1, 2, 3].map(|at| {
            let mut bytes = alloc::vec![0u8; if a[at] == 0 { 0 } else { len }];
            if !crate::copy::read_memory(reach(ProgramAddr::new(a[at])), &mut bytes) {
                bytes.clear();
            }
            bytes
        }))
    }

    fn put_back(&self, a: &[u64; 6]) {
        for (at, bytes) in (1..).zip(&self.0) {
            if !bytes.is_empty() {
                crate::copy::write_memory(reach(ProgramAddr::new(a[at])), bytes);
            }
        }
    }
}

/// Waits for a signal with `mask`: address and size, as `rt_sigsuspend` has them.
fn suspend(
    ctx: &mut ThreadContext,
    rest: Rest<ThreadContext>,
    here: Point,
    mask: [u64; 2],
) -> Option<i64> {
    let zero = NOTHING.as_ptr() as u64;
    let nothing = Call {
        number: nr::PPOLL,
        args: [0, 0, zero, mask[0], mask[1], 0],
    };
    loop {
        match rest.make(ctx, &nothing)? {
            0 => {}
            error => return Some(error),
        }
        match wait(ctx, SeatState::Signal, NO_DEADLINE, here, false) {
            Ok(_) => {}
            Err(answer) => return answer,
        }
    }
}

fn signal(
    ctx: &mut ThreadContext,
    call: &Call,
    rest: Rest<ThreadContext>,
    here: Point,
) -> Option<i64> {
    let mut tried = call.args;
    let deadline = match duration(tried[2]) {
        Ok(Some(ns)) => table().clock().saturating_add(ns),
        Ok(None) => NO_DEADLINE,
        Err(error) => return Some(error),
    };
    tried[2] = NOTHING.as_ptr() as u64;
    loop {
        let result = rest.make(ctx, &call.with(tried))?;
        if result != -sys::EAGAIN {
            return Some(result);
        }
        match wait(ctx, SeatState::Signal, deadline, here, false) {
            Ok(Woken::Timeout) => return Some(-sys::EAGAIN),
            Ok(_) => {}
            Err(answer) => return answer,
        }
    }
}

fn child(
    ctx: &mut ThreadContext,
    call: &Call,
    rest: Rest<ThreadContext>,
    here: Point,
) -> Option<i64> {
    const WNOHANG: u64 = 1;
    let mut info = [0u64; 16];
    let mut tried = call.args;
    let options = if call.number == WAITID { 3 } else { 2 };
    let waits = tried[options] & WNOHANG == 0;
    tried[options] |= WNOHANG;
    let own_info = call.number == WAITID && tried[2] == 0;
    if own_info && waits {
        tried[2] = info.as_mut_ptr() as u64;
    }
    loop {
        let result = rest.make(ctx, &call.with(tried))?;
        let mut pid = 0u32;
        let found = match call.number {
            WAITID => result != 0 || read_value(tried[2] + 12, &mut pid) && pid != 0,
            _ => result != 0,
        };
        if found || !waits {
            return Some(result);
        }
        match wait(ctx, SeatState::Retry, NO_DEADLINE, here, true) {
            Ok(_) => {}
            Err(answer) => return answer,
        }
    }
}

fn lock(
    ctx: &mut ThreadContext,
    call: &Call,
    rest: Rest<ThreadContext>,
    here: Point,
) -> Option<i64> {
    const LOCK_NB: u64 = 4;
    let mut tried = call.args;
    match call.number {
        FLOCK if tried[1] & LOCK_NB == 0 => tried[1] |= LOCK_NB,
        // F_SETLKW and F_OFD_SETLKW, and those that do not wait.
        nr::FCNTL if tried[1] as u32 == 7 => tried[1] = 6,
        nr::FCNTL if tried[1] as u32 == 38 => tried[1] = 37,
        _ => return rest.make(ctx, call),
    }
    loop {
        let result = rest.make(ctx, &call.with(tried))?;
        if result != -EWOULDBLOCK && result != -EACCES {
            return Some(result);
        }
        match wait(ctx, SeatState::Retry, NO_DEADLINE, here, true) {
            Ok(_) => {}
            Err(answer) => return answer,
        }
    }
}

fn is_deadly(ctx: &ThreadContext, sig: i32) -> bool {
    dispositions::kills(ctx, sig) && !dispositions::is_blocked(ctx, sig)
}

/// Whoever may get a signal that was sent is marked: what it waits for may be over.
fn mark_receivers(number: u64, a: &[u64; 6]) {
    let (thread, process) = match number {
        nr::TKILL => (Some(a[0]), None),
        nr::TGKILL | nr::RT_TGSIGQUEUEINFO => (Some(a[1]), None),
        nr::KILL | RT_SIGQUEUEINFO if (a[0] as i32) > 0 => (None, Some(a[0])),
        _ => (None, None),
    };
    table().poke(|seat| match (thread, process) {
        (Some(thread), _) => seat.tid == thread as u32,
        (_, Some(process)) => seat.pid == process as u32,
        _ => true,
    });
}
