//! All threads of a run, who can go on, and who does.

use crate::buffers::Buffers;
use crate::decision::{DECISIONS_MAX, Decision, TURNS_MAX, Turn};
use crate::seat::{BACK, NO_DEADLINE, Point, PointKind, SEATS, Seat, SeatState};
use crate::strategy::{Choice, Kind, Plan, Pursuit, Strategies};
use core::sync::atomic::Ordering;

/// What one step costs in the time that the program sees.
pub const STEP_NS: u64 = 100;

/// What it costs to come to `point`. Who spins or yields has let some time pass; programs that wait
/// for a time in this way should not have to do so for ever.
fn cost(point: &Point) -> u64 {
    match point.kind {
        PointKind::Yield => 50 * STEP_NS,
        PointKind::Spin => 200 * STEP_NS,
        _ => STEP_NS,
    }
}

/// Who goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// This seat.
    Seat(usize),
    /// Nobody can, unless something comes from outside: ask again after a while.
    Idle,
    /// Nobody ever can: all that are there wait for each other.
    Deadlock,
    /// Nobody is there who could take a turn; whoever comes back from the kernel takes it.
    Nobody,
    /// The list of decisions belongs to another run.
    Diverged,
}

/// See the module's header.
#[repr(C)]
pub struct Table {
    seats: [Seat; SEATS],
    /// Seats that were ever in use.
    used: u32,
    /// How often asking again has shown nothing new.
    idle: u32,
    /// Decisions that were asked for.
    steps: u64,
    /// Nanoseconds since the start.
    clock: u64,
    /// Calls that may have changed what others wait for in the kernel.
    changes: u64,
    /// The last number that was given to somebody who came to wait.
    order: u64,
    /// Made of all points so far.
    check: u64,
    plan: Plan,
    strategies: Strategies,
    /// The decisions of this run.
    made: [Decision; DECISIONS_MAX],
    made_count: u32,
    /// The decisions that it is to repeat.
    wanted: [Decision; DECISIONS_MAX],
    wanted_count: u32,
    /// How many of them have been.
    followed: u32,
    diverged: u32,
    /// When the next timer of a process is due: its kernel's number, or 0, and the time.
    alarms: [(u32, u64); ALARMS],
    /// The seat, plus one, of a thread that has got the turn only to try again what it waits for;
    /// 0: none.
    trying: u32,
    /// How things were when that was decided.
    before: Before,
    /// The steps so far, if the plan wants them to be written down.
    turns: [Turn; TURNS_MAX],
    turn_count: u32,
    buffers: Buffers,
}

/// What a decision changes, and where it was asked for.
#[derive(Clone, Copy, Default)]
#[repr(C)]
struct Before {
    steps: u64,
    clock: u64,
    check: u64,
    made_count: u32,
    followed: u32,
    turn_count: u32,
    /// The seat, plus one; 0: none.
    me: u32,
    point: Point,
    strategies: Strategies,
}

/// A run at a moment at which it had only one thread: what runs that are forked there begin with.
#[derive(Clone)]
pub struct Alone {
    seat: usize,
    thread: u32,
    steps: u64,
    clock: u64,
    changes: u64,
    order: u64,
    check: u64,
    plan: Plan,
    strategies: Strategies,
}

impl Alone {
    /// Which seat the thread had.
    pub fn seat(&self) -> usize {
        self.seat
    }
}

/// Processes with timers at a time.
const ALARMS: usize = 64;

/// How often nothing new is asked for before time passes, if somebody waits for time.
const IDLE_ROUNDS: u32 = 3;

impl Table {
    /// What is to be decided by. Before the run begins.
    pub fn begin(&mut self, plan: &Plan, list: &[Decision]) {
        self.plan = *plan;
        self.strategies = Strategies::new(plan);
        let count = list.len().min(DECISIONS_MAX);
        self.wanted[..count].copy_from_slice(&list[..count]);
        self.wanted_count = count as u32;
        self.clock = 1_000_000_000;
    }

    /// What there is to go on from later, if the run has only one thread so far, which has the turn
    /// in this seat.
    pub fn alone(&self, seat: usize) -> Option<Alone> {
        let is_alone = self.seats().map(|(at, _)| at).eq([seat]);
        let has_no_timer = self.alarms.iter().all(|alarm| alarm.0 == 0);
        (is_alone && has_no_timer).then(|| Alone {
            seat,
            thread: self.seats[seat].thread,
            steps: self.steps,
            clock: self.clock,
            changes: self.changes,
            order: self.order,
            check: self.check,
            plan: self.plan,
            strategies: self.strategies,
        })
    }

    /// Goes back to where a thread was alone, with another plan and list. False: something was
    /// decided by the old plan until then.
    ///
    /// The numbers that the kernel has for the thread are to be told anew.
    pub fn go_back(&mut self, to: &Alone, plan: &Plan, list: &[Decision]) -> bool {
        if to.steps != 0 && *plan != to.plan {
            return false;
        }
        for at in 0..self.used as usize {
            self.seats[at] = Seat::default();
        }
        self.buffers = Buffers::default();
        self.begin(plan, list);
        self.used = 0;
        self.take_seat(to.seat, to.thread);
        if to.steps != 0 {
            self.strategies = to.strategies;
        }
        (self.steps, self.clock, self.check) = (to.steps, to.clock, to.check);
        (self.changes, self.order) = (to.changes, to.order);
        (self.made_count, self.followed, self.turn_count) = (0, 0, 0);
        (self.idle, self.diverged, self.trying) = (0, 0, 0);
        self.alarms = [(0, 0); ALARMS];
        true
    }

    // ---------------------------------------------------------------- seats

    /// A new thread comes, ready to go on. `None`: there are too many.
    pub fn arrive(&mut self, thread: u32, pid: u32, tid: u32) -> Option<usize> {
        let at = self
            .seats
            .iter()
            .position(|seat| seat.state == SeatState::Free)?;
        self.take_seat(at, thread);
        (self.seats[at].pid, self.seats[at].tid) = (pid, tid);
        Some(at)
    }

    fn take_seat(&mut self, at: usize, thread: u32) {
        self.used = self.used.max(at as u32 + 1);
        self.seats[at] = Seat {
            state: SeatState::Ready,
            thread,
            deadline: NO_DEADLINE,
            ..Seat::default()
        };
        self.strategies.arrives(&self.plan, at);
        self.buffers.empties(at);
    }

    /// A thread is gone.
    pub fn leave(&mut self, seat: usize) {
        self.seats[seat] = Seat::default();
        self.buffers.empties(seat);
        self.changes += 1;
    }

    /// All threads of a process are gone, but for `except`.
    pub fn process_is_gone(&mut self, pid: u32, except: Option<usize>) {
        self.set_alarm(pid, NO_DEADLINE);
        for at in 0..self.used as usize {
            if self.seats[at].pid == pid && except != Some(at) {
                self.leave(at);
            }
        }
    }

    /// A seat.
    pub fn seat(&self, seat: usize) -> &Seat {
        &self.seats[seat]
    }

    /// A seat, to be changed.
    pub fn seat_mut(&mut self, seat: usize) -> &mut Seat {
        &mut self.seats[seat]
    }

    /// Whether a thread that is there, or has just told where it waits for ever, is known to the
    /// program by this number.
    pub fn knows(&self, number: u32) -> bool {
        let used = &self.seats[..self.used as usize];
        used.iter().any(|seat| seat.number == number)
    }

    /// All seats in use.
    pub fn seats(&self) -> impl Iterator<Item = (usize, &Seat)> {
        let used = self.seats[..self.used as usize].iter().enumerate();
        used.filter(|(_, seat)| seat.state != SeatState::Free)
    }

    /// The most threads that there were at a time.
    pub fn seats_used(&self) -> u32 {
        self.used
    }

    /// Whether more than one thread is there.
    pub fn has_choice(&self) -> bool {
        self.seats().nth(1).is_some()
    }

    // ---------------------------------------------------------------- time and change

    /// Nanoseconds since the start.
    pub fn clock(&self) -> u64 {
        self.clock
    }

    /// Somebody has asked what time it is, or has let it pass.
    pub fn pass_time(&mut self, ns: u64) -> u64 {
        self.clock = self.clock.saturating_add(ns);
        self.clock
    }

    /// It is at least so late.
    pub fn pass_until(&mut self, clock: u64) {
        self.clock = self.clock.max(clock);
    }

    /// A process has a timer that is due then, or none. False: there are too many such processes.
    pub fn set_alarm(&mut self, pid: u32, deadline: u64) -> bool {
        let own = self.alarms.iter().position(|alarm| alarm.0 == pid);
        let free = || self.alarms.iter().position(|alarm| alarm.0 == 0);
        match own.or_else(free) {
            Some(at) if deadline == NO_DEADLINE => self.alarms[at] = (0, 0),
            Some(at) => self.alarms[at] = (pid, deadline),
            None => return deadline == NO_DEADLINE,
        }
        true
    }

    /// Threads of processes whose timers are due see to them.
    fn wake_for_alarms(&self) {
        let due = |alarm: &&(u32, u64)| alarm.0 != 0 && alarm.1 <= self.clock;
        for (pid, _) in self.alarms.iter().filter(due) {
            self.poke(|seat| seat.pid == *pid);
        }
    }

    /// Somebody has made a call that may let others go on.
    pub fn something_changed(&mut self) {
        self.changes += 1;
        self.idle = 0;
        self.trying = 0;
    }

    /// Time has passed outside: those that wait for the world try again.
    pub fn try_again(&mut self) {
        self.changes += 1;
    }

    /// The place of somebody who comes to wait, behind all others.
    pub fn next_order(&mut self) -> u64 {
        self.order += 1;
        self.order
    }

    /// How much has changed: what [`Seat::tried`] is compared with.
    pub fn changes(&self) -> u64 {
        self.changes
    }

    /// A signal may have come for these.
    pub fn poke(&self, of: impl Fn(&Seat) -> bool) {
        for (_, seat) in self.seats() {
            if of(seat) {
                seat.poked.store(1, Ordering::Release);
            }
        }
    }

    // ---------------------------------------------------------------- futexes

    /// Wakes up to `count` of those that wait for `key` with one of the bits of `bitset`, those
    /// that came first first.
    pub fn wake(&mut self, key: [u64; 2], count: u32, bitset: u32) -> u32 {
        let mut woken = 0;
        while woken < count
            && let Some(at) = self.first_waiter(key, bitset)
        {
            self.seats[at].state = SeatState::Ready;
            woken += 1;
        }
        woken
    }

    /// Who came first of those that wait for `key`.
    pub fn first_waiter(&self, key: [u64; 2], bitset: u32) -> Option<usize> {
        let waits = |seat: &&Seat| {
            seat.state == SeatState::Futex && seat.key == key && seat.bitset & bitset != 0
        };
        let seats = self.seats().filter(|(_, seat)| waits(seat));
        Some(seats.min_by_key(|(_, seat)| seat.order)?.0)
    }

    /// How many wait for `key`.
    pub fn waiters(&self, key: [u64; 2]) -> usize {
        let seats = self.seats();
        seats
            .filter(|(_, seat)| seat.state == SeatState::Futex && seat.key == key)
            .count()
    }

    /// Has up to `count` of those that wait for `from` wait for `to` instead.
    pub fn requeue(&mut self, from: [u64; 2], to: [u64; 2], count: u32) -> u32 {
        let mut moved = 0;
        if from == to {
            return self.waiters(from).min(count as usize) as u32;
        }
        while moved < count
            && let Some(at) = self.first_waiter(from, u32::MAX)
        {
            self.seats[at].key = to;
            moved += 1;
        }
        moved
    }

    // ---------------------------------------------------------------- decisions

    /// Steps so far.
    pub fn steps(&self) -> u64 {
        self.steps
    }

    /// The decisions so far.
    pub fn made(&self) -> &[Decision] {
        &self.made[..(self.made_count as usize).min(DECISIONS_MAX)]
    }

    /// Whether there is room for a decision. What cannot be written down must not be decided, or
    /// nobody could repeat the run.
    fn may_decide(&self) -> bool {
        (self.made_count as usize) < DECISIONS_MAX && u32::try_from(self.steps).is_ok()
    }

    /// The steps so far, the first of them if there are many; none unless the plan asks for them.
    pub fn turns(&self) -> &[Turn] {
        &self.turns[..(self.turn_count as usize).min(TURNS_MAX)]
    }

    /// How often threads were on their way to persistent memory at the same time: see `buffers.rs`.
    pub fn overlaps(&self) -> u64 {
        self.buffers.overlaps()
    }

    /// What became of the plan's goals.
    pub fn pursuit(&self) -> Pursuit {
        self.strategies.pursuit()
    }

    /// How many of the decisions that were wanted have not been followed. With [`Kind::Steer`]:
    /// whose steps have not come.
    pub fn left(&self) -> usize {
        (self.wanted_count - self.followed.min(self.wanted_count)) as usize
    }

    /// How many of the decisions that were wanted have come up, and how many there are.
    pub fn followed(&self) -> (usize, usize) {
        (self.followed as usize, self.wanted_count as usize)
    }

    /// Whether the list did not fit.
    pub fn has_diverged(&self) -> bool {
        self.diverged != 0
    }

    /// Made of all points so far: two runs that differ differ here.
    pub fn check(&self) -> u64 {
        self.check
    }

    fn can_go_on(&self, seat: &Seat) -> bool {
        match seat.state {
            SeatState::Free | SeatState::Child => false,
            SeatState::Away => seat.poked.load(Ordering::Acquire) == BACK,
            SeatState::Ready => true,
            SeatState::Retry if seat.tried != self.changes => true,
            _ => seat.poked.load(Ordering::Acquire) != 0 || seat.deadline <= self.clock,
        }
    }

    /// Whether it goes on only to try what it waits for.
    fn only_tries(&self, seat: &Seat) -> bool {
        let is_due = seat.deadline <= self.clock || seat.poked.load(Ordering::Acquire) != 0;
        seat.state == SeatState::Retry && !is_due
    }

    /// The thread in seat `seat` comes to wait again. If it has tried what it waits for in vain,
    /// and has done nothing else since it got the turn, it is as if it had not got it: how often
    /// somebody tries depends on the kernel, and must not show in what is decided. Then decide
    /// again what was asked for.
    pub fn takes_back(&mut self, seat: usize) -> Option<(Option<usize>, Point)> {
        if self.trying != seat as u32 + 1 {
            return None;
        }
        self.trying = 0;
        let before = &self.before;
        (self.steps, self.clock, self.check) = (before.steps, before.clock, before.check);
        (self.made_count, self.followed) = (before.made_count, before.followed);
        self.turn_count = before.turn_count;
        self.strategies = before.strategies;
        Some(((before.me as usize).checked_sub(1), before.point))
    }

    /// The thread in seat `me` has come to `point`; or, if there is none, the one that had the turn
    /// is gone. Who goes on?
    pub fn decide(&mut self, me: Option<usize>, point: Point) -> Verdict {
        let asked = (me, point, self.steps, self.clock, self.check);
        self.trying = 0;
        self.steps += 1;
        self.clock += cost(&point);
        if let Some(me) = me {
            self.seats[me].point = point;
            let thread = self.seats[me].thread;
            let what = u64::from(thread) << 32 | point.kind as u64;
            self.check = mix(mix(self.check, what), point.pc);
        }
        if self.diverged != 0 {
            return Verdict::Diverged;
        }
        self.wake_for_alarms();
        let mut able = [0u16; SEATS];
        let mut count = 0;
        for at in 0..self.used as usize {
            if self.can_go_on(&self.seats[at]) {
                able[count] = at as u16;
                count += 1;
            }
        }
        let able = &able[..count];
        let Some(usual) = usual(me, point.kind, able) else {
            return self.nobody_can((asked.2, asked.3));
        };
        let tries = |seat: &Seat| seat.state == SeatState::Retry;
        let may_try = able.iter().any(|at| tries(&self.seats[usize::from(*at)]));
        if may_try {
            let (me, point, steps, clock, check) = asked;
            self.before = Before {
                steps,
                clock,
                check,
                made_count: self.made_count,
                followed: self.followed,
                turn_count: self.turn_count,
                me: me.map_or(0, |me| me as u32 + 1),
                point,
                strategies: self.strategies,
            };
        }
        let chosen = match self.plan.kind() {
            Kind::Replay => match self.follow(usual, able) {
                Some(chosen) => chosen,
                None => return Verdict::Diverged,
            },
            Kind::Steer => self.steer().unwrap_or(usual),
            _ if !self.may_decide() => usual,
            _ => {
                let choice = Choice {
                    me,
                    usual,
                    point,
                    able,
                    seats: &self.seats,
                    step: self.steps,
                };
                self.strategies.choose(&self.plan, &choice)
            }
        };
        let chosen = if able.contains(&(chosen as u16)) {
            chosen
        } else {
            usual
        };
        if chosen != usual {
            self.note(chosen);
        }
        if self.plan.keeps_turns != 0 {
            self.write_down(me, point, able, chosen);
        }
        self.buffers.executes(chosen, self.seats[chosen].point.kind);
        match self.only_tries(&self.seats[chosen]) {
            true => self.trying = chosen as u32 + 1,
            false => self.idle = 0,
        }
        Verdict::Seat(chosen)
    }

    fn next_wanted(&self) -> Option<Decision> {
        let wanted = &self.wanted[..self.wanted_count as usize];
        wanted.get(self.followed as usize).copied()
    }

    /// Who goes on by the list.
    fn follow(&mut self, usual: usize, able: &[u16]) -> Option<usize> {
        let Some(next) = self.next_wanted() else {
            return Some(usual);
        };
        if u64::from(next.step) > self.steps {
            return Some(usual);
        }
        let is_it = |seat: &Seat| seat.thread == next.thread.into() && self.can_go_on(seat);
        let fits = next.check == self.check as u16;
        let chosen = self
            .seats()
            .find(|(_, seat)| is_it(seat))
            .map(|(at, _)| at)
            .filter(|_| fits);
        // It may be able to when time has passed, which happens when those that wait in the kernel
        // have tried in vain. That is taken back, and this step comes again.
        let mut able = able.iter().map(|at| usize::from(*at));
        if chosen.is_none()
            && fits
            && u64::from(next.step) == self.steps
            && let Some(tries) = able.find(|at| self.only_tries(&self.seats[*at]))
        {
            return Some(tries);
        }
        if chosen.is_none() {
            self.diverged = 1;
        }
        self.followed += 1;
        chosen
    }

    /// Who goes on by the list, if the step is in it and the thread can.
    fn steer(&mut self) -> Option<usize> {
        let mut wanted = None;
        while let Some(next) = self.next_wanted()
            && u64::from(next.step) <= self.steps
        {
            self.followed += 1;
            wanted = (u64::from(next.step) == self.steps).then_some(next.thread);
        }
        let is_it =
            |seat: &Seat| Some(seat.thread) == wanted.map(u32::from) && self.can_go_on(seat);
        let (at, _) = self.seats().find(|(_, seat)| is_it(seat))?;
        Some(at)
    }

    fn write_down(&mut self, me: Option<usize>, point: Point, able: &[u16], chosen: usize) {
        let bit = |at: &u16| match self.seats[usize::from(*at)].thread {
            thread @ 0..64 => 1 << thread,
            _ => 0,
        };
        let turn = Turn {
            step: u32::try_from(self.steps).unwrap_or(u32::MAX),
            thread: me.map_or(0, |me| self.seats[me].thread as u16),
            chosen: self.seats[chosen].thread as u16,
            able: able.iter().map(bit).fold(0, |all, one| all | one),
            point,
        };
        if let Some(place) = self.turns.get_mut(self.turn_count as usize) {
            *place = turn;
        }
        self.turn_count = self.turn_count.saturating_add(1);
    }

    fn note(&mut self, chosen: usize) {
        let decision = Decision {
            step: u32::try_from(self.steps).unwrap_or(u32::MAX),
            thread: self.seats[chosen].thread as u16,
            check: self.check as u16,
        };
        if let Some(place) = self.made.get_mut(self.made_count as usize) {
            *place = decision;
        }
        self.made_count = self.made_count.saturating_add(1);
    }

    /// Nobody can go on as things are. `before`: steps and clock when that was asked.
    fn nobody_can(&mut self, before: (u64, u64)) -> Verdict {
        let waits_for = |states: &[SeatState]| {
            let mut seats = self.seats();
            seats.any(|(_, seat)| states.contains(&seat.state))
        };
        let outside = waits_for(&[SeatState::Retry, SeatState::Signal]);
        let away = waits_for(&[SeatState::Away, SeatState::Child]);
        let alarms = self.alarms.iter().filter(|alarm| alarm.0 != 0);
        let alarms = alarms.map(|(_, deadline)| *deadline);
        let next = self.seats().map(|(_, seat)| seat.deadline).chain(alarms);
        let next = next.min();
        let next = next.filter(|deadline| *deadline != NO_DEADLINE);
        if let Some(next) = next {
            // What comes from outside comes first, if it is there already.
            let may_come = outside || away;
            if !may_come || self.idle >= IDLE_ROUNDS {
                self.idle = 0;
                self.pass_until(next);
                // Asked again, somebody can. That is no step of the program's.
                self.steps -= 1;
                return self.decide(None, Point::default());
            }
        }
        self.idle = self.idle.saturating_add(1);
        match (outside || next.is_some(), away) {
            (true, _) => {
                (self.steps, self.clock) = before;
                Verdict::Idle
            }
            (false, true) => Verdict::Nobody,
            (false, false) if self.seats().next().is_none() => Verdict::Nobody,
            (false, false) => Verdict::Deadlock,
        }
    }
}

/// Who goes on if nobody has a reason to decide otherwise: the thread itself; if it cannot, or
/// gives way, the next one in turn.
fn usual(me: Option<usize>, kind: PointKind, able: &[u16]) -> Option<usize> {
    let me = me.unwrap_or(0) as u16;
    if !kind.gives_way() && able.contains(&me) {
        return Some(me.into());
    }
    let next = able.iter().find(|at| **at > me).or(able.first());
    next.map(|at| usize::from(*at))
}

fn mix(hash: u64, value: u64) -> u64 {
    let mixed = (hash ^ value).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    mixed ^ mixed >> 29
}

#[cfg(test)]
mod tests;
