//! `futex`: queues in the table instead of the kernel's.
//!
//! Only one thread runs, so looking at a word and coming to wait for it are one step, as they are
//! in the kernel. A word is known by its mapping's file and offset if it is shared with other
//! processes, else by process and address.
//!
//! Deviations: `FUTEX_FD` is not there, as in every kernel of the last fifteen years. Priorities
//! are not inherited: there is one turn, and the strategy gives it to whom it likes.

use super::turn::{self, Woken, table};
use crate::context::ThreadContext;
use crate::sys::{self, nr, sc};
use crate::values::{read_value, write_value};
use brownout_schedule::{NO_DEADLINE, Point, PointKind, SeatState};

const PRIVATE: u64 = 128;
const REALTIME: u64 = 256;
const WAIT: u64 = 0;
const WAKE: u64 = 1;
const REQUEUE: u64 = 3;
const CMP_REQUEUE: u64 = 4;
const WAKE_OP: u64 = 5;
const LOCK_PI: u64 = 6;
const UNLOCK_PI: u64 = 7;
const TRYLOCK_PI: u64 = 8;
const WAIT_BITSET: u64 = 9;
const WAKE_BITSET: u64 = 10;
const WAIT_REQUEUE_PI: u64 = 11;
const CMP_REQUEUE_PI: u64 = 12;
const LOCK_PI2: u64 = 13;

const WAITERS: u32 = 0x8000_0000;
const OWNER_DIED: u32 = 0x4000_0000;
const TID_MASK: u32 = 0x3fff_ffff;

const EPERM: i64 = 1;
const EDEADLK: i64 = 35;
const ETIMEDOUT: i64 = 110;

/// Which memory a futex is.
type Key = [u64; 2];

/// In the first word of a key: the memory is one process's own.
const OWN: u64 = 1;

fn key(ctx: &ThreadContext, addr: u64, operation: u64) -> Key {
    let own = [u64::from(ctx.group) << 32 | OWN, addr];
    if operation & PRIVATE != 0 {
        return own;
    }
    let mappings = crate::maps::read();
    let shared = mappings
        .iter()
        .find(|m| m.shared && (m.start..m.end).contains(&addr));
    match shared {
        Some(m) => [m.device << 48 ^ m.inode << 1, m.offset + (addr - m.start)],
        None => own,
    }
}

fn word(addr: u64) -> Option<u32> {
    let mut value = 0u32;
    read_value(addr, &mut value).then_some(value)
}

/// The number by which the program knows this thread.
fn own_number(ctx: &ThreadContext) -> u32 {
    crate::deterministic::shown_pid(ctx.tid)
}

/// The call. `None`: a signal comes first, and the call is made again behind it.
pub fn call(ctx: &mut ThreadContext, a: &[u64; 6]) -> Option<i64> {
    let [addr, operation, value, fourth, second, third] = *a;
    let operation = operation as u32 as u64;
    let (value, third) = (value as u32, third as u32);
    let command = operation & !(PRIVATE | REALTIME);
    let point = Point {
        kind: PointKind::Call,
        size: 4,
        pc: ctx.rip.get(),
        addr,
    };
    turn::point(ctx, point);
    if ctx.has_pending() {
        return None;
    }
    if addr & 3 != 0 {
        return Some(-sys::EINVAL);
    }
    match command {
        WAIT => wait(
            ctx,
            operation,
            addr,
            value,
            u32::MAX,
            relative(fourth)?,
            point,
        ),
        WAIT_BITSET => {
            let deadline = absolute(fourth, operation)?;
            wait(ctx, operation, addr, value, third, deadline, point)
        }
        WAKE | WAKE_BITSET => {
            let bitset = if command == WAKE { u32::MAX } else { third };
            if bitset == 0 {
                return Some(-sys::EINVAL);
            }
            Some(i64::from(table().wake(
                key(ctx, addr, operation),
                value,
                bitset,
            )))
        }
        REQUEUE | CMP_REQUEUE | CMP_REQUEUE_PI => {
            let now = word(addr);
            if command != REQUEUE && now != Some(third) {
                return Some(now.map_or(-sys::EFAULT, |_| -sys::EAGAIN));
            }
            let (from, to) = (key(ctx, addr, operation), key(ctx, second, operation));
            if command == CMP_REQUEUE_PI {
                return Some(requeue_pi(ctx, from, to, second, value, fourth as u32));
            }
            let woken = table().wake(from, value, u32::MAX);
            let moved = table().requeue(from, to, fourth as u32);
            Some(i64::from(woken + moved))
        }
        WAKE_OP => wake_op(ctx, operation, addr, value, fourth as u32, second, third),
        LOCK_PI | LOCK_PI2 => {
            let clock = if command == LOCK_PI {
                REALTIME
            } else {
                operation
            };
            let deadline = absolute(fourth, clock)?;
            lock_pi(ctx, operation, addr, deadline, point)
        }
        TRYLOCK_PI => Some(match try_lock_pi(ctx, addr) {
            Ok(true) => 0,
            Ok(false) => -sys::EAGAIN,
            Err(error) => error,
        }),
        UNLOCK_PI => Some(unlock_pi(ctx, operation, addr)),
        WAIT_REQUEUE_PI => {
            let deadline = absolute(fourth, operation)?;
            wait_requeue_pi(ctx, operation, addr, value, deadline, point)
        }
        _ => Some(-sys::ENOSYS),
    }
}

/// When a time from now on is over; the outer `None` never happens, so that bad pointers are errors
/// of the call.
fn relative(at: u64) -> Option<Result<u64, i64>> {
    Some(duration(at).map(|time| match time {
        Some(ns) => table().clock().saturating_add(ns),
        None => NO_DEADLINE,
    }))
}

fn absolute(at: u64, operation: u64) -> Option<Result<u64, i64>> {
    Some(duration(at).map(|time| match time {
        Some(ns) if operation & REALTIME != 0 => crate::clock::since_start(ns),
        Some(ns) => ns,
        None => NO_DEADLINE,
    }))
}

/// What a `timespec` says, in nanoseconds.
pub fn duration(at: u64) -> Result<Option<u64>, i64> {
    let mut time = [0i64; 2];
    if at == 0 {
        return Ok(None);
    }
    if !read_value(at, &mut time) {
        return Err(-sys::EFAULT);
    }
    if time[0] < 0 || !(0..1_000_000_000).contains(&time[1]) {
        return Err(-sys::EINVAL);
    }
    let seconds = (time[0] as u64).saturating_mul(1_000_000_000);
    Ok(Some(seconds.saturating_add(time[1] as u64)))
}

/// Comes to wait for `key`, behind all others.
fn queue(ctx: &mut ThreadContext, key: Key, bitset: u32, deadline: u64, point: Point) -> Woken {
    let order = table().next_order();
    let mut lent = table();
    let seat = lent.seat_mut(ctx.seat as usize);
    (seat.key, seat.bitset, seat.order) = (key, bitset, order);
    let point = Point {
        kind: PointKind::Wait,
        ..point
    };
    let woken = turn::wait(ctx, SeatState::Futex, deadline, point);
    if woken == Woken::Deadlock {
        let lent = table();
        let seat = lent.seat(ctx.seat as usize);
        super::deadlock::tell(ctx, owner_was_killed(seat));
    }
    woken
}

fn wait(
    ctx: &mut ThreadContext,
    operation: u64,
    addr: u64,
    value: u32,
    bitset: u32,
    deadline: Result<u64, i64>,
    point: Point,
) -> Option<i64> {
    let deadline = match deadline {
        Ok(_) if bitset == 0 => return Some(-sys::EINVAL),
        Ok(deadline) => deadline,
        Err(error) => return Some(error),
    };
    match word(addr) {
        None => return Some(-sys::EFAULT),
        Some(now) if now != value => return Some(-sys::EAGAIN),
        _ => {}
    }
    let key = key(ctx, addr, operation);
    match queue(ctx, key, bitset, deadline, point) {
        Woken::Timeout => Some(-ETIMEDOUT),
        // With a time the kernel does not start it over.
        Woken::Signal => turn::interrupted(ctx, deadline == NO_DEADLINE),
        _ => Some(0),
    }
}

fn wake_op(
    ctx: &mut ThreadContext,
    operation: u64,
    addr: u64,
    first: u32,
    more: u32,
    second: u64,
    what: u32,
) -> Option<i64> {
    let sign_extend = |twelve: u32| ((twelve << 20) as i32 >> 20) as u32;
    let mut operand = sign_extend(what >> 12 & 0xfff);
    let compared = sign_extend(what & 0xfff);
    if what >> 28 & 8 != 0 {
        operand = 1u32.wrapping_shl(operand);
    }
    let Some(old) = word(second) else {
        return Some(-sys::EFAULT);
    };
    let new = match what >> 28 & 7 {
        0 => operand,
        1 => old.wrapping_add(operand),
        2 => old | operand,
        3 => old & !operand,
        4 => old ^ operand,
        _ => return Some(-sys::ENOSYS),
    };
    write_value(ctx, second, &new);
    let (a, b) = (old as i32, compared as i32);
    let holds = match what >> 24 & 0xf {
        0 => a == b,
        1 => a != b,
        2 => a < b,
        3 => a <= b,
        4 => a > b,
        5 => a >= b,
        _ => return Some(-sys::ENOSYS),
    };
    let mut woken = table().wake(key(ctx, addr, operation), first, u32::MAX);
    if holds {
        woken += table().wake(key(ctx, second, operation), more, u32::MAX);
    }
    Some(i64::from(woken))
}

// ---------------------------------------------------------------- locks that name their owner

/// True: it is this thread's now.
fn try_lock_pi(ctx: &mut ThreadContext, addr: u64) -> Result<bool, i64> {
    let Some(now) = word(addr) else {
        return Err(-sys::EFAULT);
    };
    let own = own_number(ctx);
    if now & TID_MASK == own {
        return Err(-EDEADLK);
    }
    let is_free = now & TID_MASK == 0;
    if is_free {
        // Who finds that its owner has died is told so by the word.
        write_value(ctx, addr, &(own | now & (WAITERS | OWNER_DIED)));
    }
    Ok(is_free)
}

fn lock_pi(
    ctx: &mut ThreadContext,
    operation: u64,
    addr: u64,
    deadline: Result<u64, i64>,
    point: Point,
) -> Option<i64> {
    let deadline = match deadline {
        Ok(deadline) => deadline,
        Err(error) => return Some(error),
    };
    match try_lock_pi(ctx, addr) {
        Ok(true) => return Some(0),
        Ok(false) => {}
        Err(error) => return Some(error),
    }
    let now = word(addr).unwrap_or(0);
    write_value(ctx, addr, &(now | WAITERS));
    let key = key(ctx, addr, operation);
    match queue(ctx, key, u32::MAX, deadline, point) {
        Woken::Timeout => Some(-ETIMEDOUT),
        Woken::Signal => None,
        // Whoever unlocked has given it to this thread.
        _ => Some(0),
    }
}

/// Gives the lock to whoever came first, or to nobody.
fn pass_on(ctx: &mut ThreadContext, addr: u64, key: Key, died: u32) {
    let next = table().first_waiter(key, u32::MAX);
    let Some(next) = next else {
        write_value(ctx, addr, &died);
        return;
    };
    let more = table().waiters(key) > 1;
    let tid = table().seat(next).tid;
    let number = crate::deterministic::shown_pid(tid);
    let waiters = if more { WAITERS } else { 0 };
    write_value(ctx, addr, &(number | waiters | died));
    table().wake(key, 1, u32::MAX);
}

fn unlock_pi(ctx: &mut ThreadContext, operation: u64, addr: u64) -> i64 {
    match word(addr) {
        None => -sys::EFAULT,
        Some(now) if now & TID_MASK != own_number(ctx) => -EPERM,
        Some(_) => {
            let key = key(ctx, addr, operation);
            pass_on(ctx, addr, key, 0);
            0
        }
    }
}

/// Waits for `addr`, and then has the lock that it was moved to: whoever moves it says which
/// ([`requeue_pi`]).
fn wait_requeue_pi(
    ctx: &mut ThreadContext,
    operation: u64,
    addr: u64,
    value: u32,
    deadline: Result<u64, i64>,
    point: Point,
) -> Option<i64> {
    let deadline = match deadline {
        Ok(deadline) => deadline,
        Err(error) => return Some(error),
    };
    match word(addr) {
        None => return Some(-sys::EFAULT),
        Some(now) if now != value => return Some(-sys::EAGAIN),
        _ => {}
    }
    let key = key(ctx, addr, operation);
    match queue(ctx, key, u32::MAX, deadline, point) {
        Woken::Timeout => Some(-ETIMEDOUT),
        Woken::Signal => Some(-sys::EAGAIN),
        _ => Some(0),
    }
}

/// The first one gets the lock at `second` if that is free; it and the others wait for that.
fn requeue_pi(
    ctx: &mut ThreadContext,
    from: Key,
    to: Key,
    second: u64,
    wake: u32,
    more: u32,
) -> i64 {
    let mut moved = 0;
    let all = wake.saturating_add(more);
    while moved < all
        && let Some(first) = table().first_waiter(from, u32::MAX)
    {
        let now = word(second).unwrap_or(0);
        moved += 1;
        if now & TID_MASK == 0 {
            let tid = table().seat(first).tid;
            let number = crate::deterministic::shown_pid(tid);
            write_value(ctx, second, &(number | now & (WAITERS | OWNER_DIED)));
            table().wake(from, 1, u32::MAX);
        } else {
            write_value(ctx, second, &(now | WAITERS));
            table().requeue(from, to, 1);
        }
    }
    i64::from(moved)
}

// ---------------------------------------------------------------- the end of a thread

/// What the kernel does for a process that ends, with all its threads; then somebody else goes on.
pub fn process_ends(ctx: &mut ThreadContext) {
    if !turn::on() || !turn::is_mine(ctx) {
        return;
    }
    locks_are_left(ctx);
    thread_ends(ctx);
    // SAFETY: no arguments.
    let parent = unsafe { sc!(nr::GETPPID) } as u32;
    turn::process_ends(ctx, parent);
}

/// All threads of the process end now, and leave the locks on their lists.
pub fn locks_are_left(ctx: &mut ThreadContext) {
    for peer in ThreadContext::all() {
        if peer.group() == ctx.group {
            let number = crate::deterministic::shown_pid(peer.tid());
            robust_list(ctx, peer.robust_list(), number);
        }
    }
}

/// Whether the thread in `seat` waits for a lock that somebody held who is gone without having left
/// it. Only the kernel could have told: the list of such a thread is known to it alone, and it
/// knows threads by other numbers than the program does.
fn owner_was_killed(seat: &brownout_schedule::Seat) -> bool {
    let is_shared = seat.key[0] & OWN == 0;
    let owner = match word(seat.point.addr) {
        Some(now) if now & WAITERS != 0 => now & TID_MASK,
        _ => 0,
    };
    seat.state == SeatState::Futex && is_shared && owner != 0 && !table().knows(owner)
}

/// What the kernel does for a thread that ends: locks on its list get a word that says so, and
/// whoever waits for its end is woken.
pub fn thread_ends(ctx: &mut ThreadContext) {
    let head = core::mem::take(&mut ctx.robust_list);
    robust_list(ctx, head, own_number(ctx));
    let at = core::mem::take(&mut ctx.clear_tid);
    if at != 0 && write_value(ctx, at, &0u32) {
        let key = key(ctx, at, 0);
        table().wake(key, 1, u32::MAX);
        // Waiters may have said that the word is theirs alone.
        let own = key_of_own(ctx, at);
        table().wake(own, 1, u32::MAX);
    }
}

fn key_of_own(ctx: &ThreadContext, addr: u64) -> Key {
    key(ctx, addr, PRIVATE)
}

/// Locks on the list at `head` of the thread `owner` get a word that says that it is gone.
fn robust_list(ctx: &mut ThreadContext, head: u64, owner: u32) {
    /// As in the kernel.
    const LIMIT: usize = 2048;
    const PI: u64 = 1;
    let mut words = [0u64; 3];
    if head == 0 || !read_value(head, &mut words) {
        return;
    }
    let [mut entry, offset, pending] = words;
    let died = |ctx: &mut ThreadContext, entry: u64| {
        let addr = (entry & !PI).wrapping_add(offset);
        let Some(now) = word(addr) else { return };
        if now & TID_MASK != owner {
            return;
        }
        for key in [key(ctx, addr, 0), key_of_own(ctx, addr)] {
            if entry & PI != 0 {
                if table().waiters(key) != 0 {
                    return pass_on(ctx, addr, key, OWNER_DIED);
                }
            } else {
                write_value(ctx, addr, &(now & WAITERS | OWNER_DIED));
                table().wake(key, 1, u32::MAX);
            }
        }
        if entry & PI != 0 {
            write_value(ctx, addr, &(now & WAITERS | OWNER_DIED));
        }
    };
    for _ in 0..LIMIT {
        if entry & !PI == head || entry == 0 {
            break;
        }
        let mut next = 0u64;
        let has_next = read_value(entry & !PI, &mut next);
        if entry & !PI != pending & !PI {
            died(ctx, entry);
        }
        if !has_next {
            break;
        }
        entry = next;
    }
    if pending != 0 {
        died(ctx, pending);
    }
}
