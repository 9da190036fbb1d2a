//! The table on its own, with threads that are scripts.
//!
//! [`Run`] does what the engine does around [`Table::decide`]: it puts threads to sleep, wakes them, tries again what waits in the
//! kernel, and ends them. Nothing else happens in such a run, so whatever differs between two of
//! them is the table's doing.

use std::boxed::Box;
use std::collections::VecDeque;
use std::vec;
use std::vec::Vec;

use proptest::prelude::*;

use super::*;
use crate::strategy::Goal;

/// A table is too large for the stack of a test, and nothing here may make one out of zeroed
/// memory.
fn on_a_large_stack(test: impl FnOnce() + Send + 'static) {
    let thread = std::thread::Builder::new().stack_size(64 << 20);
    let thread = thread.spawn(test).expect("a thread");
    if let Err(failure) = thread.join() {
        std::panic::resume_unwind(failure);
    }
}

fn table(plan: &Plan, list: &[Decision]) -> Box<Table> {
    let mut table = Box::new(Table {
        seats: core::array::from_fn(|_| Seat::default()),
        used: 0,
        idle: 0,
        steps: 0,
        clock: 0,
        changes: 0,
        order: 0,
        check: 0,
        plan: Plan::default(),
        strategies: Strategies::default(),
        made: [Decision::default(); DECISIONS_MAX],
        made_count: 0,
        wanted: [Decision::default(); DECISIONS_MAX],
        wanted_count: 0,
        followed: 0,
        diverged: 0,
        alarms: [(0, 0); ALARMS],
        trying: 0,
        before: Before::default(),
        turns: [Turn::default(); TURNS_MAX],
        turn_count: 0,
        buffers: Buffers::default(),
    });
    table.begin(plan, list);
    table
}

fn usually() -> Box<Table> {
    table(&Plan::new(Kind::GoOn, 0), &[])
}

fn at(kind: PointKind, pc: u64) -> Point {
    Point {
        kind,
        pc,
        ..Point::default()
    }
}

fn waits(table: &mut Table, seat: usize, state: SeatState, deadline: u64) {
    let changes = table.changes();
    let own = table.seat_mut(seat);
    (own.state, own.deadline, own.tried) = (state, deadline, changes);
}

fn waits_for(table: &mut Table, seat: usize, key: [u64; 2], bitset: u32) {
    waits(table, seat, SeatState::Futex, NO_DEADLINE);
    let order = table.next_order();
    let own = table.seat_mut(seat);
    (own.key, own.bitset, own.order) = (key, bitset, order);
}

// ---------------------------------------------------------------- runs

/// What a thread of a script does.
#[derive(Clone, Copy, Debug)]
enum Does {
    /// Something that others can notice.
    Comes(PointKind),
    /// Waits for a futex, if nobody has woken it in vain before: a semaphore, in which no wake-up
    /// is lost.
    Takes(u64),
    /// Lets somebody go on who waits there.
    Gives(u64),
    /// Lets time pass.
    Sleeps(u64),
    /// Waits in the kernel until so many bytes have been written.
    Reads(u32),
    /// Writes one.
    Writes,
}

/// How a run went.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Story {
    /// Who did its next thing, in order.
    order: Vec<usize>,
    end: Verdict,
    made: Vec<Decision>,
    check: u64,
    steps: u64,
    clock: u64,
    left: usize,
}

struct Run<'a> {
    table: Box<Table>,
    scripts: &'a [Vec<Does>],
    /// By thread: what comes next.
    next: Vec<usize>,
    /// By futex: wake-ups that nobody has taken.
    stock: [u32; KEYS as usize],
    written: u32,
    /// Whoever waits in the kernel is woken when what it waits for is there, and never tries in
    /// vain.
    knows: bool,
    story: Vec<usize>,
}

const KEYS: u64 = 3;

impl<'a> Run<'a> {
    fn new(plan: &Plan, list: &[Decision], scripts: &'a [Vec<Does>]) -> Run<'a> {
        Run::on(table(plan, list), 0, scripts)
    }

    /// On a table at which so many threads have arrived.
    fn on(mut table: Box<Table>, there: usize, scripts: &'a [Vec<Does>]) -> Run<'a> {
        for thread in there..scripts.len() {
            // Threads are numbered from 1 on, and arrive in order.
            let seat = table.arrive(thread as u32 + 1, 7, 100 + thread as u32);
            assert_eq!(seat, Some(thread));
        }
        Run {
            table,
            scripts,
            next: vec![0; scripts.len()],
            stock: [0; KEYS as usize],
            written: 0,
            knows: false,
            story: Vec::new(),
        }
    }

    fn go(self) -> Story {
        self.go_to_the_end().0
    }

    /// The table is there for another run.
    fn go_to_the_end(mut self) -> (Story, Box<Table>) {
        let mut asked = (None, Point::default());
        // How far the threads had come when there was nothing to do, and how often that was so
        // since.
        let (mut idle, mut came) = (0, 0);
        let end = loop {
            match self.table.decide(asked.0, asked.1) {
                Verdict::Seat(seat) => asked = self.goes_on(seat),
                Verdict::Idle => {
                    if core::mem::replace(&mut came, self.story.len()) != came {
                        idle = 0;
                    }
                    idle += 1;
                    if idle > 20 {
                        break Verdict::Idle;
                    }
                    self.table.try_again();
                    asked = (None, Point::default());
                }
                end => break end,
            }
        };
        let story = Story {
            order: self.story,
            end,
            made: self.table.made().to_vec(),
            check: self.table.check(),
            steps: self.table.steps(),
            clock: self.table.clock(),
            left: self.table.left(),
        };
        (story, self.table)
    }

    /// The thread has the turn. What is asked for next?
    fn goes_on(&mut self, seat: usize) -> (Option<usize>, Point) {
        let pc = |next: usize| (seat * 1000 + next) as u64;
        if self.table.seat(seat).state == SeatState::Retry {
            // It tries, and waits again if that was in vain.
            let Some(Does::Reads(count)) = self.now(seat) else {
                unreachable!("who waits in the kernel reads")
            };
            if self.written < count {
                waits(&mut self.table, seat, SeatState::Retry, NO_DEADLINE);
                let asked = self.table.takes_back(seat);
                let point = at(PointKind::Wait, pc(self.next[seat]));
                return asked.unwrap_or((Some(seat), point));
            }
            self.table.seat_mut(seat).state = SeatState::Ready;
        } else if self.table.seat(seat).state == SeatState::Ready {
            match self.now(seat) {
                Some(Does::Takes(key)) if self.stock[key as usize] == 0 => {
                    waits_for(&mut self.table, seat, [key, 0], u32::MAX);
                    // Whoever wakes it has given it what it waits for.
                    self.does(seat);
                    return (Some(seat), at(PointKind::Wait, pc(self.next[seat])));
                }
                Some(Does::Takes(key)) => self.stock[key as usize] -= 1,
                Some(Does::Gives(key)) => {
                    if self.table.wake([key, 0], 1, u32::MAX) == 0 {
                        self.stock[key as usize] += 1;
                    }
                }
                Some(Does::Sleeps(ns)) => {
                    let deadline = self.table.clock() + ns;
                    waits(&mut self.table, seat, SeatState::Sleep, deadline);
                    self.does(seat);
                    return (Some(seat), at(PointKind::Wait, pc(self.next[seat])));
                }
                Some(Does::Reads(count)) if self.written < count => {
                    match self.knows {
                        true => waits_for(&mut self.table, seat, [KEYS + u64::from(count), 0], 1),
                        false => waits(&mut self.table, seat, SeatState::Retry, NO_DEADLINE),
                    }
                    return (Some(seat), at(PointKind::Wait, pc(self.next[seat])));
                }
                Some(Does::Writes) => {
                    self.written += 1;
                    self.table.something_changed();
                    let key = KEYS + u64::from(self.written);
                    self.table.wake([key, 0], u32::MAX, u32::MAX);
                }
                Some(Does::Comes(_) | Does::Reads(_)) => {}
                None => {
                    self.table.leave(seat);
                    return (None, Point::default());
                }
            }
        } else {
            // Its sleep is over.
            let own = self.table.seat_mut(seat);
            (own.state, own.deadline) = (SeatState::Ready, NO_DEADLINE);
            return (Some(seat), at(PointKind::Call, pc(self.next[seat])));
        }
        self.does(seat);
        let kind = match self.now(seat) {
            Some(Does::Comes(kind)) => kind,
            _ => PointKind::Call,
        };
        (Some(seat), at(kind, pc(self.next[seat])))
    }

    fn now(&self, seat: usize) -> Option<Does> {
        self.scripts[seat].get(self.next[seat]).copied()
    }

    fn does(&mut self, seat: usize) {
        self.story.push(seat);
        self.next[seat] += 1;
    }
}

fn scripts() -> impl Strategy<Value = Vec<Vec<Does>>> {
    let kind = prop_oneof![
        Just(PointKind::Load),
        Just(PointKind::Store),
        Just(PointKind::Flush),
        Just(PointKind::Yield),
    ];
    let does = prop_oneof![
        4 => kind.prop_map(Does::Comes),
        1 => (0..KEYS).prop_map(Does::Takes),
        2 => (0..KEYS).prop_map(Does::Gives),
        1 => (1..2_000u64).prop_map(Does::Sleeps),
        1 => (1..4u32).prop_map(Does::Reads),
        2 => Just(Does::Writes),
    ];
    prop::collection::vec(prop::collection::vec(does, 0..8), 1..5)
}

fn plans() -> impl Strategy<Value = Plan> {
    let kind = prop_oneof![
        Just(Kind::GoOn),
        Just(Kind::RoundRobin),
        Just(Kind::Random),
        Just(Kind::Pct),
        Just(Kind::PmAware),
        Just(Kind::Delay),
    ];
    (kind, 0..1000u64).prop_map(|(kind, seed)| {
        let goal = Goal { store: 2, load: 0 };
        let mut plan = Plan::new(kind, seed);
        if kind == Kind::PmAware {
            plan = plan.with_goals(&[goal][..(seed % 2) as usize]);
            plan = plan.pursued_before((seed / 2 % 3) as u32);
        }
        plan.length = 20;
        plan
    })
}

/// Any decisions, in the order of their steps.
fn lists() -> impl Strategy<Value = Vec<Decision>> {
    let decision = (1..60u32, 0..6u16, any::<u16>());
    let decision = decision.prop_map(|(step, thread, check)| Decision {
        step,
        thread,
        check,
    });
    prop::collection::vec(decision, 0..12).prop_map(|mut list| {
        list.sort_by_key(|decision| decision.step);
        list
    })
}

fn run(plan: &Plan, list: &[Decision], scripts: &[Vec<Does>]) -> Story {
    Run::new(plan, list, scripts).go()
}

/// Checks a property of scripts under a plan, on a stack that is large enough.
fn property<I: core::fmt::Debug + 'static>(
    inputs: impl Strategy<Value = I> + Send + 'static,
    holds: impl Fn(I) -> Result<(), TestCaseError> + Send + 'static,
) {
    on_a_large_stack(move || {
        let config = ProptestConfig {
            cases: 200,
            failure_persistence: None,
            ..ProptestConfig::default()
        };
        let mut runner = proptest::test_runner::TestRunner::new(config);
        if let Err(failure) = runner.run(&inputs, holds) {
            panic!("{failure}");
        }
    });
}

const REPLAY: Kind = Kind::Replay;

#[test]
fn a_run_that_goes_back_to_where_a_thread_was_alone_is_a_new_one() {
    property(
        (plans(), plans(), lists(), scripts()),
        |(before, plan, list, scripts)| {
            let mut first = table(&before, &[]);
            first.arrive(1, 7, 100);
            let alone = first.alone(0).expect("it is");
            let (_, mut again) = Run::on(first, 1, &scripts).go_to_the_end();
            prop_assert!(again.go_back(&alone, &plan, &list));
            let story = Run::on(again, 1, &scripts).go();
            prop_assert_eq!(story, run(&plan, &list, &scripts));
            Ok(())
        },
    );
}

#[test]
fn who_is_not_alone_has_no_place_to_go_back_to() {
    on_a_large_stack(|| {
        let mut table = usually();
        table.arrive(1, 7, 100);
        assert!(table.alone(0).is_some());
        assert!(table.alone(1).is_none());
        table.set_alarm(7, 5);
        assert!(table.alone(0).is_none());
        table.set_alarm(7, NO_DEADLINE);
        // What was decided by one plan is not what another would have decided.
        table.decide(Some(0), at(PointKind::Call, 1));
        let alone = table.alone(0).expect("it is");
        assert!(table.go_back(&alone, &Plan::new(Kind::GoOn, 0), &[]));
        assert!(!table.go_back(&alone, &Plan::new(Kind::Random, 0), &[]));
        table.arrive(2, 7, 101);
        assert!(table.alone(0).is_none());
    });
}

#[test]
fn a_list_gives_the_same_run() {
    property((plans(), scripts()), |(plan, scripts)| {
        let first = run(&plan, &[], &scripts);
        let again = run(&Plan::new(REPLAY, 0), &first.made, &scripts);
        prop_assert_eq!(first, again);
        Ok(())
    });
}

/// The one that was chosen sleeps: until its time has come, whoever waits in the kernel tries, in
/// the run and in its repetition.
#[test]
fn a_decision_may_wait_for_its_time() {
    on_a_large_stack(|| {
        let scripts = [
            vec![
                Does::Gives(0),
                Does::Comes(PointKind::Load),
                Does::Sleeps(264),
            ],
            vec![Does::Reads(1)],
            vec![Does::Sleeps(564)],
        ];
        let mut plan = Plan::new(Kind::Pct, 465);
        plan.length = 20;
        let first = run(&plan, &[], &scripts);
        assert!(first.made.len() > 2, "{first:?}");
        assert_eq!(run(&Plan::new(REPLAY, 0), &first.made, &scripts), first);
    });
}

#[test]
fn steering_by_a_whole_list_gives_the_same_run() {
    property((plans(), scripts()), |(plan, scripts)| {
        let first = run(&plan, &[], &scripts);
        let unchecked = |decision: &Decision| Decision {
            check: 0,
            ..*decision
        };
        let list: Vec<Decision> = first.made.iter().map(unchecked).collect();
        prop_assert_eq!(&run(&Plan::new(Kind::Steer, 0), &list, &scripts), &first);
        // Some of them give some run, and what that reports gives it again.
        let some: Vec<Decision> = list.iter().copied().step_by(2).collect();
        let steered = run(&Plan::new(Kind::Steer, 0), &some, &scripts);
        let again = run(&Plan::new(REPLAY, 0), &steered.made, &scripts);
        prop_assert_eq!(again.left, 0);
        prop_assert_eq!(&again.order, &steered.order);
        prop_assert_eq!(again.check, steered.check);
        Ok(())
    });
}

/// The first run for a goal does all that it can; those after it are other runs.
#[test]
fn goals_that_were_pursued_before_are_pursued_otherwise() {
    on_a_large_stack(|| {
        let does = |_| {
            use PointKind::{Fence, Flush, Load, Store};
            [Load, Store, Flush, Fence].map(Does::Comes)
        };
        let scripts = vec![(0..4).flat_map(does).collect::<Vec<_>>(); 3];
        // What the first stores, and the others load.
        let goals = (0..8).map(|n| Goal {
            store: n / 2 * 4 + 1,
            load: (1 + n % 2) * 1000 + n / 2 * 4,
        });
        let goals: Vec<Goal> = goals.collect();
        let made = |seed, before| {
            let plan = Plan::new(Kind::PmAware, seed).with_goals(&goals);
            run(&plan.pursued_before(before), &[], &scripts).order
        };
        assert_eq!(made(2, 0), made(1, 0));
        let others: Vec<Vec<usize>> = (1..9).map(|n| made(n, n as u32)).collect();
        let mut different = others.clone();
        different.sort_unstable();
        different.dedup();
        assert!(different.len() >= 6, "{others:?}");
    });
}

#[test]
fn steering_never_diverges() {
    property((lists(), scripts()), |(list, scripts)| {
        let steered = run(&Plan::new(Kind::Steer, 0), &list, &scripts);
        prop_assert_ne!(steered.end, Verdict::Diverged);
        // What it says it has decided was wanted.
        for made in &steered.made {
            let is_it =
                |wanted: &&Decision| (wanted.step, wanted.thread) == (made.step, made.thread);
            prop_assert!(list.iter().any(|wanted| is_it(&wanted)), "{made:?}");
        }
        Ok(())
    });
}

/// To try what is not there yet is as if nobody had tried, whatever is wanted of the one that does.
/// (What counts as a decision may differ: whoever would have tried might have been the usual one.)
#[test]
fn futile_tries_leave_nothing_behind() {
    property((lists(), scripts()), |(list, scripts)| {
        for plan in [Kind::Steer, Kind::RoundRobin].map(|kind| Plan::new(kind, 0)) {
            let tries = run(&plan, &list, &scripts);
            let mut knows = Run::new(&plan, &list, &scripts);
            knows.knows = true;
            let knows = knows.go();
            prop_assert_eq!(&tries.order, &knows.order);
            prop_assert_eq!(tries.check, knows.check);
        }
        Ok(())
    });
}

#[test]
fn a_list_of_another_run_is_refused() {
    property((0..1000u64, scripts()), |(seed, scripts)| {
        let first = run(&Plan::new(Kind::Random, seed), &[], &scripts);
        let Some(last) = first.made.last() else {
            return Ok(());
        };
        let mut list = first.made.clone();
        let at = seed as usize % list.len();
        list[at].check ^= 1;
        let story = run(&Plan::new(REPLAY, 0), &list, &scripts);
        prop_assert_eq!(story.end, Verdict::Diverged);
        // A thread that is not there.
        let mut list = first.made.clone();
        list[at].thread = 999;
        let story = run(&Plan::new(REPLAY, 0), &list, &scripts);
        prop_assert_eq!(story.end, Verdict::Diverged);
        // Decisions that never come up are counted.
        let mut list = first.made.clone();
        list.push(Decision {
            step: last.step + 1_000_000,
            ..*last
        });
        let story = run(&Plan::new(REPLAY, 0), &list, &scripts);
        prop_assert_eq!((story.left, story.order), (1, first.order));
        Ok(())
    });
}

#[test]
fn turns_tell_who_could_have_gone_on() {
    property((plans(), scripts()), |(plan, scripts)| {
        let silent = run(&plan, &[], &scripts);
        let mut kept = Run::new(&plan.keeping_turns(), &[], &scripts);
        let mut asked = (None, Point::default());
        while let Verdict::Seat(seat) = kept.table.decide(asked.0, asked.1) {
            let turn = *kept.table.turns().last().expect("it was written down");
            prop_assert_eq!(u64::from(turn.step), kept.table.steps());
            prop_assert_eq!(usize::from(turn.chosen), seat + 1);
            prop_assert!(turn.could(turn.chosen));
            for (at, own) in kept.table.seats() {
                let able = kept.table.can_go_on(own);
                prop_assert_eq!(turn.could(at as u16 + 1), able, "{:?} {:?}", turn, own);
            }
            asked = kept.goes_on(seat);
        }
        prop_assert_eq!(&kept.story[..], &silent.order[..kept.story.len()]);
        Ok(())
    });
}

// ---------------------------------------------------------------- futexes

#[derive(Clone, Copy, Debug)]
enum Futex {
    Wait { seat: usize, key: u64, bitset: u32 },
    Wake { key: u64, count: u32, bitset: u32 },
    Requeue { from: u64, to: u64, count: u32 },
}

/// Queues, as a list: who waits, in the order of their coming.
#[derive(Default)]
struct Queues(VecDeque<(usize, u64, u32)>);

impl Queues {
    fn wake(&mut self, key: u64, count: u32, bitset: u32) -> Vec<usize> {
        let mut woken = Vec::new();
        self.0.retain(|&(seat, its, bits)| {
            let goes = its == key && bits & bitset != 0 && woken.len() < count as usize;
            if goes {
                woken.push(seat);
            }
            !goes
        });
        woken
    }

    fn requeue(&mut self, from: u64, to: u64, count: u32) -> usize {
        let moved = self.0.iter_mut().filter(|waiter| waiter.1 == from);
        let moved = moved.take(count as usize).map(|waiter| waiter.1 = to);
        moved.count()
    }
}

/// Whatever decides, and however long the run is.
#[test]
fn a_run_with_too_many_decisions_can_be_repeated_too() {
    on_a_large_stack(|| {
        // At every point the other one goes on.
        let steps = 2 * DECISIONS_MAX / 3;
        let script = vec![Does::Comes(PointKind::Load); steps];
        let scripts = [script.clone(), script];
        let mut plan = Plan::new(Kind::RoundRobin, 0);
        plan.depth = 1;
        let first = run(&plan, &[], &scripts);
        assert_eq!(first.made.len(), DECISIONS_MAX);
        assert_eq!(first.order.len(), 2 * steps);
        let again = run(&Plan::new(Kind::Replay, 0), &first.made, &scripts);
        assert_eq!(again, first);
    });
}

#[test]
fn futexes_are_queues() {
    let key = || 0..KEYS;
    let operation = prop_oneof![
        3 => (0..8usize, key(), 1..8u32)
            .prop_map(|(seat, key, bitset)| Futex::Wait { seat, key, bitset }),
        2 => (key(), 0..4u32, 1..8u32)
            .prop_map(|(key, count, bitset)| Futex::Wake { key, count, bitset }),
        1 => (key(), key(), 0..4u32)
            .prop_map(|(from, to, count)| Futex::Requeue { from, to, count }),
    ];
    property(prop::collection::vec(operation, 0..40), |operations| {
        let mut table = usually();
        for thread in 0..8 {
            table.arrive(thread + 1, 7, thread + 1);
        }
        let mut queues = Queues::default();
        for operation in operations {
            match operation {
                Futex::Wait { seat, key, bitset } => {
                    if table.seat(seat).state == SeatState::Ready {
                        waits_for(&mut table, seat, [key, 0], bitset);
                        queues.0.push_back((seat, key, bitset));
                    }
                }
                Futex::Wake { key, count, bitset } => {
                    let woken = table.wake([key, 0], count, bitset);
                    let expected = queues.wake(key, count, bitset);
                    prop_assert_eq!(woken as usize, expected.len());
                    for seat in expected {
                        prop_assert_eq!(table.seat(seat).state, SeatState::Ready);
                    }
                }
                Futex::Requeue { from, to, count } => {
                    let moved = table.requeue([from, 0], [to, 0], count);
                    let expected = queues.requeue(from, to, count);
                    prop_assert_eq!(moved as usize, expected);
                }
            }
            for key in 0..KEYS {
                let waiting = queues.0.iter().filter(|waiter| waiter.1 == key);
                prop_assert_eq!(table.waiters([key, 0]), waiting.clone().count());
                let first = waiting.map(|waiter| waiter.0).next();
                prop_assert_eq!(table.first_waiter([key, 0], u32::MAX), first);
            }
        }
        Ok(())
    });
}

// ---------------------------------------------------------------- who can go on

#[test]
fn who_gives_way_goes_behind_the_others() {
    on_a_large_stack(|| {
        let mut table = usually();
        for thread in 1..4 {
            table.arrive(thread, 7, thread);
        }
        let mut goes = |me, kind| table.decide(Some(me), at(kind, 1));
        assert_eq!(goes(1, PointKind::Store), Verdict::Seat(1));
        assert_eq!(goes(1, PointKind::Yield), Verdict::Seat(2));
        assert_eq!(goes(2, PointKind::Spin), Verdict::Seat(0));
        table.leave(1);
        assert_eq!(table.decide(None, Point::default()), Verdict::Seat(0));
        // Its seat is the next one's.
        assert_eq!(table.arrive(9, 7, 9), Some(1));
    });
}

#[test]
fn standstill_is_told_from_waiting() {
    on_a_large_stack(|| {
        let mut table = usually();
        assert_eq!(table.decide(None, Point::default()), Verdict::Nobody);
        for thread in 1..3 {
            table.arrive(thread, 7, thread);
        }
        waits_for(&mut table, 0, [1, 0], u32::MAX);
        waits_for(&mut table, 1, [2, 0], u32::MAX);
        let asks = |table: &mut Table| table.decide(Some(1), at(PointKind::Wait, 1));
        assert_eq!(asks(&mut table), Verdict::Deadlock);
        for (state, verdict) in [
            (SeatState::Away, Verdict::Nobody),
            (SeatState::Child, Verdict::Nobody),
            (SeatState::Retry, Verdict::Idle),
            (SeatState::Signal, Verdict::Idle),
        ] {
            waits(&mut table, 1, state, NO_DEADLINE);
            let steps = table.steps();
            assert_eq!(asks(&mut table), verdict, "{state:?}");
            if verdict == Verdict::Idle {
                assert_eq!(table.steps(), steps, "to look again is no step");
            }
        }
        // A signal lets somebody go on.
        table.poke(|seat| seat.thread == 1);
        assert_eq!(asks(&mut table), Verdict::Seat(0));
    });
}

#[test]
fn time_passes_when_everybody_waits() {
    on_a_large_stack(|| {
        let mut table = usually();
        for thread in 1..4 {
            table.arrive(thread, 7, thread);
        }
        let now = table.clock();
        waits(&mut table, 0, SeatState::Sleep, now + 5_000_000);
        waits(&mut table, 1, SeatState::Futex, now + 3_000_000);
        let asks = |table: &mut Table| table.decide(Some(2), at(PointKind::Wait, 1));
        // As long as somebody can go on, time is only counted.
        assert_eq!(asks(&mut table), Verdict::Seat(2));
        assert!(table.clock() < now + 1_000_000);
        waits_for(&mut table, 2, [1, 0], u32::MAX);
        assert_eq!(asks(&mut table), Verdict::Seat(1));
        assert!((now + 3_000_000..now + 5_000_000).contains(&table.clock()));
        // What may come from outside comes first, for a while.
        waits(&mut table, 1, SeatState::Retry, NO_DEADLINE);
        for _ in 0..IDLE_ROUNDS {
            assert_eq!(asks(&mut table), Verdict::Idle);
        }
        assert_eq!(asks(&mut table), Verdict::Seat(0));
        assert!(table.clock() >= now + 5_000_000);
    });
}

#[test]
fn alarms_wake_their_process() {
    on_a_large_stack(|| {
        let mut table = usually();
        for pid in 1..3 {
            table.arrive(pid, pid, pid);
        }
        let due = table.clock() + 1_000_000;
        assert!(table.set_alarm(2, due));
        for seat in 0..2 {
            waits(&mut table, seat, SeatState::Signal, NO_DEADLINE);
        }
        let ask = |table: &mut Table| loop {
            match table.decide(None, Point::default()) {
                Verdict::Idle => {}
                verdict => return verdict,
            }
        };
        assert_eq!(ask(&mut table), Verdict::Seat(1));
        assert!(table.clock() >= due);
        // It is no more, or its process is not.
        table.seat_mut(1).poked.store(0, Ordering::Release);
        assert!(table.set_alarm(2, NO_DEADLINE));
        for _ in 0..10 {
            assert_eq!(table.decide(None, Point::default()), Verdict::Idle);
        }
        assert!(table.set_alarm(2, due));
        table.process_is_gone(2, None);
        assert_eq!(table.decide(None, Point::default()), Verdict::Idle);
        // There is room for so many.
        for pid in 0..ALARMS as u32 {
            assert!(table.set_alarm(pid + 10, u64::MAX - 1));
        }
        assert!(!table.set_alarm(5, due));
        assert!(table.set_alarm(5, NO_DEADLINE), "nothing is to be kept");
        assert!(table.set_alarm(10, due + 1), "its own place");
    });
}

#[test]
fn there_are_so_many_seats() {
    on_a_large_stack(|| {
        let mut table = usually();
        for thread in 0..SEATS {
            assert_eq!(table.arrive(thread as u32, 7, 1), Some(thread));
        }
        assert_eq!(table.arrive(9999, 7, 1), None);
        table.process_is_gone(7, Some(3));
        assert!(!table.has_choice());
        assert_eq!(table.seats().map(|(at, _)| at).collect::<Vec<_>>(), [3]);
    });
}
