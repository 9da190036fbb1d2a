//! The turns of a scheduled run, as the tool sees them.
//!
//! The table is in the control block. The threads of the program change it, whoever has the turn;
//! the tool writes it before the run, reads it after, and steps in only where the thread that has
//! the turn is no more.

use brownout_abi::schedule::{Alone, Point, Table, Verdict};
use brownout_trace::event::{Event, EventKind, FileId, ProcessId};
use brownout_trace::{Beginning, EventSink, Executed};
use std::io;
use std::path::Path;
use std::sync::atomic::Ordering;

use crate::control::{Shared, futex_wake};
use crate::members::Members;
use crate::schedule::{Misfit, Schedule, Scheduled};

fn table(shared: &Shared) -> *mut Table {
    shared.control().schedule.table.get()
}

/// Before the run.
pub fn begin(shared: &Shared, schedule: &Schedule) {
    // SAFETY: no thread of the program runs yet.
    let table = unsafe { &mut *table(shared) };
    table.begin(&schedule.plan, &schedule.decisions);
}

/// What runs begin with that are forked from a program which has stopped; none if it has several
/// threads.
pub fn alone(shared: &Shared) -> Option<Alone> {
    let turn = shared.control().schedule.turn.load(Ordering::Acquire) as usize;
    // SAFETY: who had the turn has stopped, and waits for us.
    let table = unsafe { &*table(shared) };
    table.alone(turn.checked_sub(1)?)
}

/// Before a run that is forked. False: it would not be what a launch gives, because something was
/// decided by another plan before the program stopped.
pub fn begin_forked(shared: &Shared, alone: &Alone, schedule: &Schedule) -> bool {
    let words = &shared.control().schedule;
    words.ending.store(0, Ordering::Relaxed);
    words.executing.store(0, Ordering::Relaxed);
    words.deadlock.store(0, Ordering::Relaxed);
    for gate in &words.gates {
        gate.store(0, Ordering::Relaxed);
    }
    words.turn.store(alone.seat() as u32 + 1, Ordering::Release);
    // SAFETY: the last run is over, and the program that is forked from waits.
    let table = unsafe { &mut *table(shared) };
    table.go_back(alone, &schedule.plan, &schedule.decisions)
}

/// How many points a run has come to so far; 0 if it is not scheduled.
pub fn steps(shared: &Shared) -> u64 {
    if shared.control().mode & brownout_abi::MODE_SCHEDULE == 0 {
        return 0;
    }
    // SAFETY: only a number is read, which whoever has the turn may just be counting up.
    unsafe { &*table(shared) }.steps()
}

/// After it.
pub fn end(shared: &Shared) -> Scheduled {
    // SAFETY: all threads of the program have ended. Whatever they have left there is plain
    // numbers.
    let table = unsafe { &*table(shared) };
    Scheduled {
        steps: table.steps(),
        decisions: table.made().to_vec(),
        check: table.check(),
        left: table.left(),
        overlaps: table.overlaps(),
        turns: table.turns().to_vec(),
        pursuit: table.pursuit(),
        threads: table.seats_used(),
        is_deadlock: shared.control().schedule.deadlock.load(Ordering::Relaxed) != 0,
    }
}

/// After it, if the list of decisions belongs to another run.
pub fn misfit(shared: &Shared) -> Option<Misfit> {
    if shared.control().mode & brownout_abi::MODE_SCHEDULE == 0 {
        return None;
    }
    // SAFETY: as in `end`.
    let table = unsafe { &*table(shared) };
    let (at, of) = table.followed();
    table.has_diverged().then_some(Misfit::Elsewhere(at, of))
}

/// If the thread that has the turn is no more, somebody else gets it.
pub fn pass_on_for_the_dead(shared: &Shared, members: &Members) {
    let schedule = &shared.control().schedule;
    let turn = schedule.turn.load(Ordering::Acquire) as usize;
    let seats = schedule.gates.len();
    if turn == 0 || turn > seats {
        return;
    }
    let numbers = || {
        // SAFETY: only numbers are read; whoever has the turn may just be writing them, and then it
        // is alive.
        let seat = unsafe { &*table(shared) }.seat(turn - 1);
        (seat.pid, seat.tid)
    };
    let (pid, tid) = numbers();
    // While it executes another program it has neither our memory nor, perhaps, its old number.
    let executes = schedule.executing.load(Ordering::Acquire) as usize == turn;
    if tid == 0 || members.has_thread(tid) || executes && members.is_running(pid) {
        return;
    }
    // It may have passed the turn on and ended while we were looking.
    if schedule.turn.load(Ordering::Acquire) as usize != turn || numbers() != (pid, tid) {
        return;
    }
    // SAFETY: who had the turn is gone, and nobody else changes the table without.
    let table = unsafe { &mut *table(shared) };
    table.process_is_gone(pid, None);
    table.something_changed();
    let next = match table.decide(None, Point::default()) {
        Verdict::Seat(next) => next,
        // Who is left ends at its next point, as the first one did.
        verdict @ (Verdict::Deadlock | Verdict::Diverged) => {
            if verdict == Verdict::Deadlock {
                schedule.deadlock.store(1, Ordering::Release);
            }
            match table.seats().next() {
                Some((next, _)) => next,
                None => return,
            }
        }
        // Asked again soon.
        Verdict::Idle => return table.try_again(),
        Verdict::Nobody => {
            schedule.turn.store(0, Ordering::Release);
            return;
        }
    };
    schedule.turn.store(next as u32 + 1, Ordering::Release);
    schedule.gates[next].store(1, Ordering::Release);
    futex_wake(&schedule.gates[next]);
}

/// Leaves out loads, which are recorded where threads take turns, because each is a place to decide
/// at.
pub struct WithoutLoads<'s>(pub &'s mut dyn EventSink);

impl EventSink for WithoutLoads<'_> {
    fn event(&mut self, event: &Event<'_>) -> io::Result<()> {
        match event.kind {
            EventKind::Load(_) | EventKind::FileRead { .. } => Ok(()),
            _ => self.0.event(event),
        }
    }

    fn executed(&mut self, what: &Executed<'_>) -> io::Result<()> {
        self.0.executed(what)
    }

    fn answer(&mut self, question: &Event<'_>) -> [u64; 3] {
        self.0.answer(question)
    }

    fn beginning(&mut self, process: ProcessId, what: &Beginning) -> io::Result<()> {
        self.0.beginning(process, what)
    }

    fn new_file(&mut self, file: FileId, path: &Path) -> io::Result<()> {
        self.0.new_file(file, path)
    }
}
