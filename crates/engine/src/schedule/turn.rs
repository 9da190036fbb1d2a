//! The turn: who has it, how it is passed on, how it is waited for.

use super::timers;
use crate::context::ThreadContext;
use crate::control::control;
use crate::sys::{self, nr, sc};
use brownout_schedule::{
    BACK, NO_DEADLINE, Point, PointKind, Seat, SeatState, Shared, Table, Verdict,
};
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};

/// How many jumps backwards and indirect branches a thread makes without a point before it comes to
/// one.
pub const BUDGET: u64 = 20_000;

/// Whether threads take turns.
#[inline(always)]
pub fn on() -> bool {
    crate::mode().schedule
}

fn shared() -> &'static Shared {
    &control().schedule
}

/// The table, for whoever has the turn. A handle, not a reference: what it lends cannot be kept
/// beyond the function that has asked for the handle.
pub struct HasTurn(*mut Table);

/// The table. For whoever has the turn.
pub fn table() -> HasTurn {
    HasTurn(shared().table.get())
}

impl core::ops::Deref for HasTurn {
    type Target = Table;
    fn deref(&self) -> &Table {
        // SAFETY: only the thread that has the turn comes here (TURN-1), so there is no other
        // thread's reference, but to words that are atomic (`poked`); this thread's own handles are
        // made for one call each, or for a few lines that make no other. The tool looks only when
        // all threads have ended, or when the one that had the turn has.
        unsafe { &*self.0 }
    }
}

impl core::ops::DerefMut for HasTurn {
    fn deref_mut(&mut self) -> &mut Table {
        // SAFETY: as above.
        unsafe { &mut *self.0 }
    }
}

/// What became of a wait.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Woken {
    /// Somebody has let it go on; or it may try again.
    Up,
    /// A signal is to be delivered.
    Signal,
    /// The time is over.
    Timeout,
    /// All wait for each other.
    Deadlock,
}

/// The first thread of a program. After `execve` it has the turn already.
pub fn begin(ctx: &mut ThreadContext) {
    if !on() {
        return;
    }
    ctx.budget = BUDGET;
    let (thread, pid) = (ctx.thread, ctx.group);
    match shared().executing.load(Ordering::Acquire) {
        0 => {
            let seat = table().arrive(thread, pid, ctx.tid).unwrap_or(0);
            ctx.seat = seat as u32;
            shared().turn.store(seat as u32 + 1, Ordering::Release);
        }
        seat => {
            let seat = seat as usize - 1;
            ctx.seat = seat as u32;
            // The others have ended with the old program, and some descriptors are closed.
            table().process_is_gone(pid, Some(seat));
            table().something_changed();
            let mut lent = table();
            let own = lent.seat_mut(seat);
            own.state = SeatState::Ready;
            (own.thread, own.pid, own.tid) = (thread, pid, ctx.tid);
            // Until here the tool must not miss the thread that it was.
            shared().executing.store(0, Ordering::Release);
        }
    }
}

/// A thread or process that is about to be made.
pub fn arrive(thread: u32) -> u32 {
    match table().arrive(thread, 0, 0) {
        Some(seat) => seat as u32,
        None => crate::fatal_unsupported("the run has more than 1,024 threads at a time"),
    }
}

/// It was made, and has these numbers.
fn is_called(seat: u32, pid: u32, tid: u32) {
    let mut lent = table();
    let seat = lent.seat_mut(seat as usize);
    (seat.pid, seat.tid) = (pid, tid);
}

/// This thread has been forked from one that had the turn, and has it.
pub fn is_run(ctx: &ThreadContext) {
    if on() {
        is_called(ctx.seat, ctx.group, ctx.tid);
    }
}

/// Gives the turn to a seat.
pub fn hand_to(seat: usize) {
    shared().turn.store(seat as u32 + 1, Ordering::Release);
    shared().gates[seat].store(1, Ordering::Release);
    sys::futex_wake(&shared().gates[seat], 1);
}

/// As [`await_turn`], for a new thread, which then says who it is.
pub fn await_first_turn(ctx: &mut ThreadContext) {
    await_turn(ctx);
    ctx.budget = BUDGET;
    is_called(ctx.seat, ctx.group, ctx.tid);
}

/// Waits until this thread has the turn.
fn await_turn(ctx: &mut ThreadContext) {
    const WAIT_NS: u64 = 1_000_000_000;
    let seat = ctx.seat as usize;
    let gate = &shared().gates[seat];
    // Signals that were sent before the turn was passed on arrive, at the latest, when the next
    // call returns: so there is one after it was seen.
    let mut seen = false;
    loop {
        let is_mine = shared().turn.load(Ordering::Acquire) == seat as u32 + 1;
        if is_mine && seen {
            break;
        }
        seen = is_mine;
        // From outside, at any time.
        if ctx.has_pending() {
            poke_self(seat);
            take_if_free(seat);
        }
        crate::service::exit_if_orphaned();
        sys::futex_wait(gate, 0, WAIT_NS);
    }
    gate.store(0, Ordering::Release);
    await_end();
}

/// A process has passed its turn on and is about to end: what it leaves behind is there when it
/// has.
fn await_end() {
    const PIDFD_OPEN: u64 = 434;
    const POLL: u64 = 7;
    const POLLIN: u64 = 1;
    let pid = shared().ending.swap(0, Ordering::AcqRel);
    if pid == 0 {
        return;
    }
    // SAFETY: a descriptor of our own, and one entry for `poll`. A process that is gone altogether
    // has none.
    unsafe {
        let fd = sc!(PIDFD_OPEN, pid, 0);
        if fd >= 0 {
            let entry: u64 = fd as u64 | POLLIN << 32;
            let patience_ms = 5_000;
            while sc!(POLL, &raw const entry, 1, patience_ms) == -sys::EINTR {}
            sc!(nr::CLOSE, fd);
        }
        // Its parent is told a moment later, under a lock of the kernel's which whoever asks for a
        // process group has to wait for.
        sc!(nr::KILL, 0, 0);
    }
}

/// The thread is about to do something that others can notice: perhaps somebody else goes on first.
pub fn point(ctx: &mut ThreadContext, point: Point) {
    /// A thread may wait for another one in a loop that has points in it, so they count, too.
    const COUNTS: u64 = 10;
    crate::follow::stands(ctx);
    ctx.budget = match point.kind.gives_way() {
        true => BUDGET,
        false => ctx.budget.saturating_sub(COUNTS).max(1),
    };
    timers::happen(ctx, &mut table());
    if !table().has_choice() {
        return;
    }
    pass(ctx, point);
}

/// As [`point`], for whoever has to wait, too: comes back when it is this thread's turn again.
fn pass(ctx: &mut ThreadContext, point: Point) {
    pass_as(ctx, (Some(ctx.seat as usize), point));
}

/// As [`pass`], where what is to be decided is somebody else's point.
fn pass_as(ctx: &mut ThreadContext, asked: (Option<usize>, Point)) {
    let me = ctx.seat as usize;
    match decide(asked.0, asked.1) {
        Some(next) if next == me => {
            await_end();
        }
        Some(next) => {
            hand_to(next);
            await_turn(ctx);
        }
        None => {
            release();
            await_turn(ctx);
        }
    }
}

/// Who goes on. `None`: nobody, until somebody comes back from the kernel.
fn decide(me: Option<usize>, point: Point) -> Option<usize> {
    let mut asked = (me, point);
    let mut pause_us = 100;
    loop {
        match table().decide(asked.0, asked.1) {
            Verdict::Seat(seat) => return Some(seat),
            Verdict::Nobody => return None,
            Verdict::Idle => {
                let pause = [0u64, pause_us * 1_000];
                // SAFETY: our own words.
                unsafe { sc!(nr::NANOSLEEP, pause.as_ptr(), 0) };
                pause_us = (pause_us * 2).min(5_000);
                crate::service::exit_if_orphaned();
                table().try_again();
                // The program has not come to another point.
                asked = (None, Point::default());
            }
            Verdict::Deadlock => {
                shared().deadlock.store(1, Ordering::Release);
                // Everybody tells where it waits; who is first does not matter.
                let first = table().seats().next().map(|(seat, _)| seat);
                return first;
            }
            // The tool knows more to say.
            Verdict::Diverged => crate::fatal_unsupported("the schedule belongs to another run"),
        }
    }
}

/// Nobody has the turn. Those that are away take it when they come back.
fn release() {
    shared().turn.store(0, Ordering::Release);
}

/// Whether all wait for each other.
fn is_deadlock() -> bool {
    shared().deadlock.load(Ordering::Acquire) != 0
}

/// Waits until somebody sets this seat ready, a signal comes, or the time is over.
pub fn wait(ctx: &mut ThreadContext, state: SeatState, deadline: u64, point: Point) -> Woken {
    let me = ctx.seat as usize;
    let changes = table().changes();
    let mut lent = table();
    let seat = lent.seat_mut(me);
    seat.poked.store(0, Ordering::Release);
    seat.state = state;
    seat.deadline = deadline;
    seat.tried = changes;
    seat.number = match ctx.shown_tid {
        0 => ctx.tid,
        number => number,
    };
    if ctx.has_pending() {
        seat.poked.store(1, Ordering::Release);
    }
    let mut asked = match table().takes_back(me) {
        Some(asked) => asked,
        None => (Some(me), point),
    };
    loop {
        pass_as(ctx, asked);
        if is_deadlock() {
            return Woken::Deadlock;
        }
        timers::happen(ctx, &mut table());
        let clock = table().clock();
        let changes = table().changes();
        let mut lent = table();
        let seat = lent.seat_mut(me);
        let was_poked = seat.poked.swap(0, Ordering::AcqRel) != 0;
        let woken = if seat.state == SeatState::Ready {
            Woken::Up
        } else if was_poked && ctx.has_pending() {
            Woken::Signal
        } else if seat.deadline <= clock {
            Woken::Timeout
        } else if state == SeatState::Retry && seat.tried != changes
            || was_poked && matches!(state, SeatState::Retry | SeatState::Signal)
        {
            Woken::Up
        } else {
            // Poked for a signal that it does not take.
            asked = (Some(me), point);
            continue;
        };
        seat.state = SeatState::Ready;
        seat.deadline = NO_DEADLINE;
        // However often it has tried.
        ctx.budget = BUDGET;
        return woken;
    }
}

/// The thread makes a call that may take any time: others go on meanwhile.
pub fn away<T>(
    ctx: &mut ThreadContext,
    point: Point,
    call: impl FnOnce(&mut ThreadContext) -> T,
) -> T {
    let me = ctx.seat as usize;
    let mut lent = table();
    let seat = lent.seat_mut(me);
    seat.state = SeatState::Away;
    seat.poked.store(0, Ordering::Release);
    match decide(Some(me), point) {
        Some(next) => hand_to(next),
        None => release(),
    }
    let result = call(ctx);
    come_back(ctx);
    result
}

/// As [`away`], for a call after which nobody can promise that the run can be repeated: the user is
/// told.
pub fn away_unrepeated<T>(
    ctx: &mut ThreadContext,
    point: Point,
    number: u64,
    call: impl FnOnce(&mut ThreadContext) -> T,
) -> T {
    static SAID: AtomicBool = AtomicBool::new(false);
    if !SAID.swap(true, Ordering::Relaxed) {
        let name = brownout_syscalls::name(number);
        crate::service::note(
            alloc::format!(
                "a thread waits by {name}, which is not scheduled: when it goes on is up to the kernel, and the same schedule may give another run"
            )
            .as_bytes(),
        );
    }
    away(ctx, point, call)
}

/// The thread is back from a call that it made without the turn.
fn come_back(ctx: &mut ThreadContext) {
    let me = ctx.seat as usize;
    while shared().turn.load(Ordering::Acquire) != me as u32 + 1 && !take_if_free(me) {
        // Who has the turn sees that it can go on.
        poked(me).store(BACK, Ordering::Release);
        sys::futex_wait(&shared().gates[me], 0, 1_000_000);
        crate::service::exit_if_orphaned();
    }
    shared().gates[me].store(0, Ordering::Release);
    let mut lent = table();
    let seat = lent.seat_mut(me);
    seat.state = SeatState::Ready;
    seat.poked.store(0, Ordering::Release);
    await_end();
    ctx.budget = BUDGET;
}

/// Whether this thread has the turn.
pub fn is_mine(ctx: &ThreadContext) -> bool {
    shared().turn.load(Ordering::Acquire) == ctx.seat + 1
}

/// Takes the turn if nobody has it.
fn take_if_free(seat: usize) -> bool {
    let (turn, own) = (&shared().turn, seat as u32 + 1);
    turn.compare_exchange(0, own, Ordering::AcqRel, Ordering::Acquire)
        .is_ok()
}

/// Lets whoever has the turn know that this thread may be able to go on.
fn poke_self(seat: usize) {
    poked(seat).store(1, Ordering::Release);
}

fn poked(seat: usize) -> &'static AtomicU32 {
    // SAFETY: one atomic word of the thread's own seat, which others read and write at any time.
    unsafe { &(*shared().table.get()).seat(seat).poked }
}

/// The thread has ended: somebody else goes on.
pub fn leave(ctx: &ThreadContext) {
    table().leave(ctx.seat as usize);
    match decide(None, Point::default()) {
        Some(next) => hand_to(next),
        None => release(),
    }
}

/// The process is about to end, and all its threads with it. Whoever goes on waits until it has.
pub fn process_ends(ctx: &ThreadContext, parent: u32) {
    let pid = ctx.group;
    memory_is_back(ctx.seat);
    table().process_is_gone(pid, None);
    table().something_changed();
    // SIGCHLD
    table().poke(|seat| seat.pid == parent);
    if let Some(next) = decide(None, Point::default()) {
        shared().ending.store(pid, Ordering::Release);
        hand_to(next);
    } else {
        release();
    }
}

/// A child is about to be made that has its parent's memory until it leaves it: the parent waits in
/// the kernel, and the child goes first.
pub fn lends_memory(ctx: &ThreadContext, child: u32) {
    let mut lent = table();
    let parent = lent.seat_mut(ctx.seat as usize);
    parent.state = SeatState::Child;
    parent.key = [u64::from(child) + 1, 0];
    parent.bitset = LENDS;
    hand_to(child as usize);
}

/// The first seat that is like that.
fn seat_of(is: impl Fn(&Seat) -> bool) -> Option<usize> {
    let lent = table();
    let mut seats = lent.seats();
    seats.find(|(_, seat)| is(seat)).map(|(number, _)| number)
}

/// The child in this seat leaves the memory of its parent, if it has that.
fn memory_is_back(child: u32) {
    let key = [u64::from(child) + 1, 0];
    let is_its = |seat: &Seat| seat.state == SeatState::Child && seat.key == key;
    let parent = seat_of(is_its);
    if let Some(parent) = parent {
        table().seat_mut(parent).state = SeatState::Ready;
    }
}

/// `clone` has come back in the parent, with this answer.
pub fn made(ctx: &mut ThreadContext, child: u32, answer: i64, group: u32, lent: bool) {
    if lent {
        if answer > 0 {
            await_turn(ctx);
            return;
        }
        // The turn has gone to a child that was not made.
        shared().turn.store(ctx.seat + 1, Ordering::Release);
        table().seat_mut(ctx.seat as usize).state = SeatState::Ready;
    }
    if answer < 0 {
        table().leave(child as usize);
    } else {
        is_called(child, group, answer as u32);
    }
}

/// The point of a thread that waits for its child to depart.
pub fn waits_for_child(ctx: &ThreadContext) -> Point {
    Point {
        kind: PointKind::Wait,
        pc: ctx.rip.get(),
        ..Point::default()
    }
}

/// The thread is about to execute another program, which begins with its turn.
pub fn executes(ctx: &ThreadContext) {
    memory_is_back(ctx.seat);
    shared().executing.store(ctx.seat + 1, Ordering::Release);
}

/// It does not, after all. (If it has its parent's memory, it still has that, and will end soon.)
pub fn goes_on(ctx: &ThreadContext) {
    shared().executing.store(0, Ordering::Release);
    let key = [u64::from(ctx.seat) + 1, 0];
    let parent = seat_of(|seat| seat.key == key && seat.bitset == LENDS);
    if let Some(parent) = parent {
        table().seat_mut(parent).state = SeatState::Child;
    }
}

/// Marks a seat whose key is its child's.
const LENDS: u32 = 0xC41D;

/// Says that all have told where they wait.
pub fn deadlock_is_told() {
    shared().deadlock.store(2, Ordering::Release);
}

/// Whether they have.
pub fn is_deadlock_told() -> bool {
    shared().deadlock.load(Ordering::Acquire) == 2
}

/// A signal ended a wait. `restarts`: the kernel makes the call again behind a handler that asks
/// for that.
pub fn interrupted(ctx: &ThreadContext, restarts: bool) -> Option<i64> {
    const SA_RESTART: u64 = 0x1000_0000;
    let signal = ctx.pending_signal();
    // SAFETY: the table of this thread's process, which only its threads change, of which one runs
    // at a time (TURN-1).
    let actions = unsafe { &(*ctx.handlers).actions };
    let asks = actions
        .get(signal as usize)
        .is_some_and(|action| action.flags & SA_RESTART != 0);
    match restarts && asks {
        true => None,
        false => Some(-sys::EINTR),
    }
}
