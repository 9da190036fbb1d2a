//! Timers of the program: they are due by the table's clock.
//!
//! `alarm`, `setitimer` of real time, POSIX timers that send signals, and `timerfd`, which is an
//! `eventfd` here: reading it yields how often the timer has been due, and empties it, as it does
//! with the kernel's.
//!
//! Deviations: timers of processor time (`ITIMER_VIRTUAL`, `ITIMER_PROF`) are left to the kernel,
//! and so are not repeated exactly. A descriptor of a timer that was duplicated or inherited goes
//! on with the process that made it. Overruns are not counted. `ITIMER_REAL` does not survive
//! `execve`.

use crate::context::ThreadContext;
use crate::sync::SpinLock;
use crate::sys::{self, nr, sc};
use crate::values::{read_value, write_value};
use alloc::vec::Vec;
use brownout_schedule::{NO_DEADLINE, Table};
use core::sync::atomic::{AtomicU64, Ordering};

const SIGALRM: u32 = 14;
const SECOND: u64 = 1_000_000_000;

/// What a timer is known by.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Name {
    /// `alarm` and `setitimer`.
    Real,
    Posix(u32),
    Descriptor(u32),
}

#[derive(Clone, Copy)]
enum Does {
    Nothing,
    /// To this thread, or to the process; with this value, if it is a POSIX timer.
    Signal {
        number: u32,
        thread: Option<u32>,
        value: Option<u64>,
    },
    Count,
}

struct Timer {
    name: Name,
    does: Does,
    deadline: u64,
    interval: u64,
    is_realtime: bool,
}

static TIMERS: SpinLock<Vec<Timer>> = SpinLock::new(Vec::new());
/// When the next one is due.
static NEXT: AtomicU64 = AtomicU64::new(NO_DEADLINE);

/// In a forked child: it has no timers.
pub fn reset_after_fork() {
    TIMERS.reset_after_fork();
    TIMERS.lock().clear();
    NEXT.store(NO_DEADLINE, Ordering::Relaxed);
}

/// Has those happen that are due. True if there were any.
pub fn happen(ctx: &ThreadContext, table: &mut Table) -> bool {
    let clock = table.clock();
    if NEXT.load(Ordering::Relaxed) > clock {
        return false;
    }
    let mut due = Vec::new();
    for timer in TIMERS.lock().iter_mut() {
        if timer.deadline > clock {
            continue;
        }
        let mut times = 1;
        match timer.interval {
            0 => timer.deadline = NO_DEADLINE,
            interval => {
                times += (clock - timer.deadline) / interval;
                timer.deadline = timer.deadline.saturating_add(times * interval);
            }
        }
        due.push((timer.name, timer.does, times));
    }
    for (name, does, times) in due {
        happens(ctx, name, does, times);
    }
    tell(ctx, table);
    table.poke(|seat| seat.pid == ctx.group);
    table.something_changed();
    true
}

fn happens(ctx: &ThreadContext, name: Name, does: Does, times: u64) {
    const SI_TIMER: i32 = -2;
    const SI_KERNEL: i32 = 0x80;
    const RT_SIGQUEUEINFO: u64 = 129;
    match (does, name) {
        (Does::Nothing, _) => {}
        (Does::Count, Name::Descriptor(fd)) => {
            // SAFETY: eight bytes of ours. A descriptor that is something else by now is the
            // program's mistake.
            unsafe { sc!(nr::WRITE, fd, &raw const times, 8) };
        }
        (Does::Count, _) => {}
        (
            Does::Signal {
                number,
                thread,
                value,
            },
            _,
        ) => {
            let mut info = [0u64; 16];
            info[0] = number.into();
            info[1] = match value {
                Some(_) => SI_TIMER,
                None => SI_KERNEL,
            } as u32 as u64;
            if let (Some(value), Name::Posix(id)) = (value, name) {
                (info[2], info[3]) = (id.into(), value);
            }
            // SAFETY: to this process, with information of our own.
            unsafe {
                match thread {
                    Some(tid) => sc!(nr::RT_TGSIGQUEUEINFO, ctx.group, tid, number, info.as_ptr()),
                    None => sc!(RT_SIGQUEUEINFO, ctx.group, number, info.as_ptr()),
                }
            };
        }
    }
}

/// Lets the table know when the next one is due.
fn tell(ctx: &ThreadContext, table: &mut Table) {
    let next = TIMERS.lock().iter().map(|timer| timer.deadline).min();
    let next = next.unwrap_or(NO_DEADLINE);
    NEXT.store(next, Ordering::Relaxed);
    if !table.set_alarm(ctx.group, next) {
        crate::fatal_unsupported("more than 64 processes of the run have timers");
    }
}

/// Whether a call is about timers.
pub fn takes(number: u64) -> bool {
    matches!(number, 36..=38 | 222..=226 | 283 | 286 | 287)
}

/// Answers it; `None`: it is the kernel's business. `real_pid`: the kernel's number of a thread
/// that the program names.
pub fn call(
    ctx: &mut ThreadContext,
    table: &mut Table,
    number: u64,
    a: &[u64; 6],
    real_pid: fn(u32) -> u32,
) -> Option<i64> {
    let answer = match number {
        37 => alarm(table, a[0]),
        36 | 38 if a[0] != 0 => return None,
        36 => interval_timer(ctx, table, 0, a[1], false),
        38 => interval_timer(ctx, table, a[1], a[2], true),
        222 => create(ctx, a, real_pid),
        223 => set(ctx, table, Name::Posix(a[0] as u32), a),
        224 => get(ctx, table, Name::Posix(a[0] as u32), a[1]),
        225 => 0,
        226 => delete(Name::Posix(a[0] as u32)),
        283 => descriptor(a[0], a[1]),
        286 | 287 if !exists(Name::Descriptor(a[0] as u32)) => return None,
        286 => set(ctx, table, Name::Descriptor(a[0] as u32), a),
        _ => get(ctx, table, Name::Descriptor(a[0] as u32), a[1]),
    };
    tell(ctx, table);
    Some(answer)
}

/// A descriptor was closed.
pub fn closed(ctx: &ThreadContext, table: &mut Table, fd: u64) {
    if delete(Name::Descriptor(fd as u32)) == 0 {
        tell(ctx, table);
    }
}

fn exists(name: Name) -> bool {
    TIMERS.lock().iter().any(|timer| timer.name == name)
}

fn delete(name: Name) -> i64 {
    let mut timers = TIMERS.lock();
    let before = timers.len();
    timers.retain(|timer| timer.name != name);
    match timers.len() < before {
        true => 0,
        false => -sys::EINVAL,
    }
}

/// Sets the one timer of real time. Yields how long the old one had still to go, and its interval.
fn set_real(table: &Table, after: u64, interval: u64) -> (u64, u64) {
    let old = real_left(table);
    let mut timers = TIMERS.lock();
    timers.retain(|timer| timer.name != Name::Real);
    if after != 0 {
        timers.push(Timer {
            name: Name::Real,
            does: Does::Signal {
                number: SIGALRM,
                thread: None,
                value: None,
            },
            deadline: table.clock().saturating_add(after),
            interval,
            is_realtime: false,
        });
    }
    old
}

fn real_left(table: &Table) -> (u64, u64) {
    let timers = TIMERS.lock();
    let real = timers.iter().find(|timer| timer.name == Name::Real);
    real.map_or((0, 0), |timer| left(table, timer))
}

fn left(table: &Table, timer: &Timer) -> (u64, u64) {
    match timer.deadline {
        NO_DEADLINE => (0, timer.interval),
        deadline => (
            deadline.saturating_sub(table.clock()).max(1),
            timer.interval,
        ),
    }
}

fn alarm(table: &Table, seconds: u64) -> i64 {
    let (old, _) = set_real(table, seconds as u32 as u64 * SECOND, 0);
    old.div_ceil(SECOND) as i64
}

fn interval_timer(ctx: &mut ThreadContext, table: &Table, new: u64, old: u64, sets: bool) -> i64 {
    let mut wanted = [0u64; 4];
    if sets && new != 0 && !read_value(new, &mut wanted) {
        return -sys::EFAULT;
    }
    let [every_s, every_us, after_s, after_us] = wanted;
    if every_us >= 1_000_000 || after_us >= 1_000_000 {
        return -sys::EINVAL;
    }
    let ns = |s: u64, us: u64| s.saturating_mul(SECOND).saturating_add(us * 1_000);
    let (after, every) = match sets {
        true => set_real(table, ns(after_s, after_us), ns(every_s, every_us)),
        false => real_left(table),
    };
    let pair = |ns: u64| [ns / SECOND, ns % SECOND / 1_000];
    let ([a, b], [c, d]) = (pair(every), pair(after));
    if old != 0 && !write_value(ctx, old, &[a, b, c, d]) {
        return -sys::EFAULT;
    }
    0
}

fn create(ctx: &mut ThreadContext, a: &[u64; 6], real_pid: fn(u32) -> u32) -> i64 {
    const SIGEV_SIGNAL: u32 = 0;
    const SIGEV_NONE: u32 = 1;
    const SIGEV_THREAD_ID: u32 = 4;
    let mut timers = TIMERS.lock();
    let used = timers.iter().filter_map(|timer| match timer.name {
        Name::Posix(id) => Some(id + 1),
        _ => None,
    });
    let id = used.max().unwrap_or(0);
    let mut event = [0u64; 3];
    let does = if a[1] == 0 {
        Does::Signal {
            number: SIGALRM,
            thread: None,
            value: Some(id.into()),
        }
    } else {
        if !read_value(a[1], &mut event) {
            return -sys::EFAULT;
        }
        let [value, numbers, thread] = event;
        let signal = |thread| Does::Signal {
            number: numbers as u32,
            thread,
            value: Some(value),
        };
        match (numbers >> 32) as u32 {
            SIGEV_SIGNAL => signal(None),
            SIGEV_NONE => Does::Nothing,
            SIGEV_THREAD_ID => signal(Some(real_pid(thread as u32))),
            _ => return -sys::EINVAL,
        }
    };
    timers.push(Timer {
        name: Name::Posix(id),
        does,
        deadline: NO_DEADLINE,
        interval: 0,
        is_realtime: a[0] == 0,
    });
    drop(timers);
    match write_value(ctx, a[2], &id) {
        true => 0,
        false => -sys::EFAULT,
    }
}

fn descriptor(clock: u64, flags: u64) -> i64 {
    const EVENTFD2: u64 = 290;
    // SAFETY: numbers only. The flags of both calls are the same.
    let fd = unsafe { sc!(EVENTFD2, 0, flags) };
    if fd >= 0 {
        let mut timers = TIMERS.lock();
        timers.retain(|timer| timer.name != Name::Descriptor(fd as u32));
        timers.push(Timer {
            name: Name::Descriptor(fd as u32),
            does: Does::Count,
            deadline: NO_DEADLINE,
            interval: 0,
            is_realtime: clock == 0,
        });
    }
    fd
}

fn set(ctx: &mut ThreadContext, table: &Table, name: Name, a: &[u64; 6]) -> i64 {
    const ABSOLUTE: u64 = 1;
    let mut wanted = [0u64; 4];
    if !read_value(a[2], &mut wanted) {
        return -sys::EFAULT;
    }
    let [every_s, every_ns, after_s, after_ns] = wanted;
    if every_ns >= SECOND || after_ns >= SECOND {
        return -sys::EINVAL;
    }
    let ns = |s: u64, ns: u64| s.saturating_mul(SECOND).saturating_add(ns);
    let mut timers = TIMERS.lock();
    let Some(timer) = timers.iter_mut().find(|timer| timer.name == name) else {
        return -sys::EINVAL;
    };
    let old = left(table, timer);
    timer.interval = ns(every_s, every_ns);
    timer.deadline = match ns(after_s, after_ns) {
        0 => NO_DEADLINE,
        at if a[1] & ABSOLUTE == 0 => table.clock().saturating_add(at),
        at if timer.is_realtime => crate::clock::since_start(at),
        at => at,
    };
    drop(timers);
    show(ctx, a[3], old)
}

fn get(ctx: &mut ThreadContext, table: &Table, name: Name, at: u64) -> i64 {
    let timers = TIMERS.lock();
    let found = timers.iter().find(|timer| timer.name == name);
    let found = found.map(|timer| left(table, timer));
    drop(timers);
    match found {
        Some(left) => show(ctx, at, left),
        None => -sys::EINVAL,
    }
}

fn show(ctx: &mut ThreadContext, at: u64, (after, every): (u64, u64)) -> i64 {
    let words = [
        every / SECOND,
        every % SECOND,
        after / SECOND,
        after % SECOND,
    ];
    match at == 0 || write_value(ctx, at, &words) {
        true => 0,
        false => -sys::EFAULT,
    }
}
