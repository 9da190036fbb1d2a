//! A small pool of worker threads that share what they discover.
//!
//! ```text
//!  coordinator ──give──▶ units ──next_unit──▶ worker 0 ─┐
//!       ▲                                     worker 1 ─┤ publish
//!       │                                     …         │
//!       └───wait─── discoveries, one order for all ◀────┘
//!                         └──take──▶ each worker: those of the others
//! ```
//!
//! **Purpose.** A unit of work is plain data ([`Unit`]), so that a worker may be on another machine
//! some day; what a worker needs beside it (executors, random numbers) it makes for itself from its
//! index. Units are optional: workers that find their own work take none (`Pool<(), D, R>`).
//!
//! **Guarantee.**
//! - Discoveries have one order, which all see. A worker gets each discovery of others once, and
//!   none of its own.
//! - With one worker everything follows from the units and their order: it takes them in turn, and
//!   nobody else discovers anything.
//! - A worker that panics is reported with its message and with the unit that it had in hand; the
//!   others go on, and nobody waits for it.
//! - Stopping is cooperative. A worker that waits notices at once, one that works when it asks
//!   [`Worker::stopped`]. One that never asks is reported as stuck by [`Pool::join`] instead of
//!   hanging the tool.
//!
//! Discoveries are kept until every worker that lives, and the coordinator, has taken them. So each
//! has to take now and then.
//!
//! ```
//! use std::time::Duration;
//! use brownout_campaign::workers::{Ended, Pool};
//!
//! let pool = Pool::start(2, |worker| {
//!     let mut sum = 0;
//!     while let Some(unit) = worker.next_unit() {
//!         sum += unit;
//!         worker.publish(unit * unit);
//!     }
//!     sum
//! })?;
//! (1..=10u64).for_each(|unit| pool.give(unit));
//! pool.close();
//! let (ended, discoveries) = pool.join(Duration::from_secs(60));
//! let sums = ended.iter().map(|ended| match ended {
//!     Ended::Finished(sum) => *sum,
//!     other => panic!("{other:?}"),
//! });
//! assert_eq!(sums.sum::<u64>(), 55);
//! assert_eq!(discoveries.iter().map(|(_, square)| **square).sum::<u64>(), 385);
//! # Ok::<(), std::io::Error>(())
//! ```

use std::any::Any;
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread::Builder;
use std::time::{Duration, Instant};

use serde::Serialize;
use serde::de::DeserializeOwned;

/// What can be given to a worker, here or elsewhere. Everything that is plain data is one.
pub trait Unit: Serialize + DeserializeOwned + Clone + Send + 'static {}

impl<T: Serialize + DeserializeOwned + Clone + Send + 'static> Unit for T {}

/// How often a waiting thread looks at the flag of [`Stop`], which a signal handler may set without
/// waking anybody.
const LOOK: Duration = Duration::from_millis(50);

/// The wish that everything stops. Copies are of the same wish.
#[derive(Clone, Debug, Default)]
pub struct Stop(Arc<AtomicBool>);

impl Stop {
    /// Nobody wishes it yet.
    pub fn new() -> Stop {
        Stop::default()
    }

    /// With a flag that is there already, such as a signal handler's.
    pub fn with_flag(flag: Arc<AtomicBool>) -> Stop {
        Stop(flag)
    }

    /// Asks everybody to stop. A signal handler may call it.
    pub fn request(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Whether somebody has.
    pub fn requested(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// Who has discovered something.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Discoverer {
    /// The worker with this index.
    Worker(usize),
    /// The thread that has the pool; what it publishes comes from elsewhere, such as another
    /// fuzzer.
    Coordinator,
}

/// A discovery, and whose it is.
pub type Discovery<D> = (Discoverer, Arc<D>);

/// How a worker ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ended<U, R> {
    /// By returning.
    Finished(R),
    /// By a panic, which is a bug of ours.
    Panicked {
        /// What it said.
        message: String,
        /// What it was working on.
        unit: Option<U>,
    },
    /// It did not, in the time that it was given. The thread is still there.
    Stuck {
        /// What it is working on.
        unit: Option<U>,
    },
}

struct State<U, D, R> {
    units: VecDeque<U>,
    /// No more units will come.
    closed: bool,
    /// The discoveries that somebody has not taken yet.
    log: VecDeque<Discovery<D>>,
    /// The number of the first in `log`.
    log_first: u64,
    /// Up to where the coordinator has taken.
    coordinator_next: u64,
    /// Whether the coordinator has been told of a wish to stop.
    stop_told: bool,
    seats: Vec<Seat<U, R>>,
}

struct Seat<U, R> {
    /// Up to where this worker has taken.
    next: u64,
    in_hand: Option<U>,
    waiting: bool,
    ended: Option<Ended<U, R>>,
    /// Whether the coordinator has been told that it ended.
    told: bool,
}

struct Shared<U, D, R> {
    state: Mutex<State<U, D, R>>,
    changed: Condvar,
    /// The wish of whoever has started the pool; others may have it, too.
    stop: Stop,
    /// The wish that only this pool stops.
    stop_here: Stop,
}

impl<U, D, R> Shared<U, D, R> {
    fn stopped(&self) -> bool {
        self.stop.requested() || self.stop_here.requested()
    }

    fn lock(&self) -> MutexGuard<'_, State<U, D, R>> {
        // No code of the caller's runs under the lock, and ours does not panic halfway through a
        // change.
        self.state.lock().unwrap_or_else(|e| e.into_inner())
    }

    fn wait<'a>(
        &self,
        state: MutexGuard<'a, State<U, D, R>>,
        at_most: Duration,
    ) -> MutexGuard<'a, State<U, D, R>> {
        let waited = self.changed.wait_timeout(state, at_most);
        waited.unwrap_or_else(|e| e.into_inner()).0
    }

    fn publish(&self, by: Discoverer, discovery: D) {
        let mut state = self.lock();
        state.log.push_back((by, Arc::new(discovery)));
        state.forget();
        self.changed.notify_all();
    }
}

impl<U, D, R> State<U, D, R> {
    fn end(&self) -> u64 {
        self.log_first + self.log.len() as u64
    }

    /// Those from `next` on.
    fn since(&self, next: u64) -> impl Iterator<Item = &Discovery<D>> {
        self.log.iter().skip((next - self.log_first) as usize)
    }

    /// Drops what everybody has.
    fn forget(&mut self) {
        let living = self.seats.iter().filter(|seat| seat.ended.is_none());
        let taken = living.map(|seat| seat.next).min();
        let taken = taken.map_or(self.coordinator_next, |t| t.min(self.coordinator_next));
        while self.log_first < taken {
            self.log.pop_front();
            self.log_first += 1;
        }
    }

    fn take_as_coordinator(&mut self) -> Vec<Discovery<D>> {
        let mut new: Vec<_> = self.since(self.coordinator_next).cloned().collect();
        new.retain(|(by, _)| *by != Discoverer::Coordinator);
        self.coordinator_next = self.end();
        self.forget();
        new
    }
}

/// What a worker has of its pool.
pub struct Worker<U, D, R> {
    index: usize,
    count: usize,
    shared: Arc<Shared<U, D, R>>,
}

impl<U: Unit, D, R> Worker<U, D, R> {
    /// Which one it is, from 0.
    pub fn index(&self) -> usize {
        self.index
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Whether it is to return soon.
    pub fn stopped(&self) -> bool {
        self.shared.stopped()
    }

    /// The next unit of work; waits for one. `None` if it is to stop or there are no more. Asking
    /// for the next says that the last one is done.
    pub fn next_unit(&self) -> Option<U> {
        let mut state = self.shared.lock();
        state.seats[self.index].in_hand = None;
        loop {
            let unit = match self.stopped() {
                true => None,
                false => state.units.pop_front(),
            };
            if unit.is_some() || state.closed || self.stopped() {
                let seat = &mut state.seats[self.index];
                seat.waiting = false;
                seat.in_hand.clone_from(&unit);
                return unit;
            }
            if !state.seats[self.index].waiting {
                state.seats[self.index].waiting = true;
                // The coordinator may be waiting for everybody to be idle.
                self.shared.changed.notify_all();
            }
            state = self.shared.wait(state, LOOK);
        }
    }

    /// Tells everybody else.
    pub fn publish(&self, discovery: D) {
        let by = Discoverer::Worker(self.index);
        self.shared.publish(by, discovery);
    }

    /// What others have discovered since this was called last, in their order.
    pub fn take(&self) -> Vec<Discovery<D>> {
        let mut state = self.shared.lock();
        let new = state.since(state.seats[self.index].next);
        let me = Discoverer::Worker(self.index);
        let new: Vec<_> = new.filter(|(by, _)| *by != me).cloned().collect();
        state.seats[self.index].next = state.end();
        state.forget();
        new
    }
}

/// What has happened since the coordinator looked last.
#[derive(Debug)]
pub struct News<D> {
    /// What workers have discovered.
    pub discoveries: Vec<Discovery<D>>,
    /// Workers that have ended, for whatever reason; [`Pool::join`] says which.
    pub ended: Vec<usize>,
    /// How many workers live.
    pub living: usize,
    /// No unit is left, and all workers that live wait for one.
    pub idle: bool,
}

/// The threads, as their coordinator sees them. Dropping it asks them to stop, and does not wait.
pub struct Pool<U, D, R> {
    shared: Arc<Shared<U, D, R>>,
}

impl<U: Unit, D: Send + Sync + 'static, R: Send + 'static> Pool<U, D, R> {
    /// Starts `count` threads (at least one) that do `body`.
    pub fn start(
        count: usize,
        body: impl Fn(&Worker<U, D, R>) -> R + Send + Sync + 'static,
    ) -> std::io::Result<Pool<U, D, R>> {
        Pool::start_with(count, Stop::new(), body)
    }

    /// The same, with somebody else's wish to stop.
    pub fn start_with(
        count: usize,
        stop: Stop,
        body: impl Fn(&Worker<U, D, R>) -> R + Send + Sync + 'static,
    ) -> std::io::Result<Pool<U, D, R>> {
        let count = count.max(1);
        let seat = || Seat {
            next: 0,
            in_hand: None,
            waiting: false,
            ended: None,
            told: false,
        };
        let state = State {
            units: VecDeque::new(),
            closed: false,
            log: VecDeque::new(),
            log_first: 0,
            coordinator_next: 0,
            stop_told: false,
            seats: (0..count).map(|_| seat()).collect(),
        };
        let shared = Arc::new(Shared {
            state: Mutex::new(state),
            changed: Condvar::new(),
            stop,
            stop_here: Stop::new(),
        });
        // If a thread cannot be started, those that were are asked to stop.
        let pool = Pool { shared };
        let body = Arc::new(body);
        for index in 0..count {
            let shared = pool.shared.clone();
            let body = body.clone();
            let worker = Worker {
                index,
                count,
                shared,
            };
            let name = format!("worker {index}");
            Builder::new()
                .name(name)
                .spawn(move || work(worker, &*body))?;
        }
        Ok(pool)
    }

    /// Gives somebody work. Units are taken in the order in which they are given.
    pub fn give(&self, unit: U) {
        self.shared.lock().units.push_back(unit);
        self.shared.changed.notify_all();
    }

    /// No more units will come: workers that want one get none.
    pub fn close(&self) {
        self.shared.lock().closed = true;
        self.shared.changed.notify_all();
    }

    /// Asks all workers to stop. Others that share the pool's [`Stop`] are not asked.
    pub fn stop(&self) {
        self.shared.stop_here.request();
        self.shared.changed.notify_all();
    }

    /// Tells all workers of something that comes from elsewhere.
    pub fn publish(&self, discovery: D) {
        self.shared.publish(Discoverer::Coordinator, discovery);
    }

    /// Waits until there is something new (a discovery, an end, a wish to stop) or nobody has
    /// anything to do, but no longer than `at_most`. Whoever is told that all are idle gives them
    /// work or closes the pool, or is told again at once.
    pub fn wait(&self, at_most: Duration) -> News<D> {
        let until = Instant::now() + at_most;
        let mut state = self.shared.lock();
        loop {
            let discoveries = state.take_as_coordinator();
            let mut ended = Vec::new();
            for (index, seat) in state.seats.iter_mut().enumerate() {
                if seat.ended.is_some() && !seat.told {
                    seat.told = true;
                    ended.push(index);
                }
            }
            let living = || state.seats.iter().filter(|seat| seat.ended.is_none());
            let idle = state.units.is_empty() && living().all(|seat| seat.waiting);
            let living = living().count();
            let left = until.saturating_duration_since(Instant::now());
            let something = !discoveries.is_empty() || !ended.is_empty() || idle;
            let stop_is_new = self.shared.stopped() && !state.stop_told;
            if something || left.is_zero() || stop_is_new {
                state.stop_told |= stop_is_new;
                return News {
                    discoveries,
                    ended,
                    living,
                    idle,
                };
            }
            state = self.shared.wait(state, left.min(LOOK));
        }
    }

    /// Waits for all workers to end, at most `grace`, and says how each did, by index. The
    /// discoveries are those that the coordinator has not taken yet. Workers are not asked to stop:
    /// that is for the caller to do before.
    pub fn join(self, grace: Duration) -> (Vec<Ended<U, R>>, Vec<Discovery<D>>) {
        let until = Instant::now() + grace;
        let mut state = self.shared.lock();
        loop {
            let left = until.saturating_duration_since(Instant::now());
            if state.seats.iter().all(|seat| seat.ended.is_some()) || left.is_zero() {
                break;
            }
            state = self.shared.wait(state, left.min(LOOK));
        }
        let discoveries = state.take_as_coordinator();
        let ended = state.seats.iter_mut().map(|seat| match seat.ended.take() {
            Some(ended) => ended,
            None => {
                let unit = seat.in_hand.clone();
                Ended::Stuck { unit }
            }
        });
        (ended.collect(), discoveries)
    }
}

impl<U, D, R> Drop for Pool<U, D, R> {
    fn drop(&mut self) {
        self.shared.stop_here.request();
        self.shared.changed.notify_all();
    }
}

fn work<U: Unit, D, R>(worker: Worker<U, D, R>, body: &dyn Fn(&Worker<U, D, R>) -> R) {
    let done = catch_unwind(AssertUnwindSafe(|| body(&worker)));
    let mut state = worker.shared.lock();
    let seat = &mut state.seats[worker.index];
    let unit = seat.in_hand.take();
    seat.ended = Some(match done {
        Ok(result) => Ended::Finished(result),
        Err(payload) => Ended::Panicked {
            message: message(&*payload),
            unit,
        },
    });
    state.forget();
    worker.shared.changed.notify_all();
}

fn message(payload: &(dyn Any + Send)) -> String {
    match (
        payload.downcast_ref::<&str>(),
        payload.downcast_ref::<String>(),
    ) {
        (Some(text), _) => (*text).to_owned(),
        (_, Some(text)) => text.clone(),
        _ => "a panic without a message".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Barrier;

    const LONG: Duration = Duration::from_secs(60);

    fn numbers<D: Copy>(discoveries: &[Discovery<D>]) -> Vec<D> {
        discoveries.iter().map(|(_, number)| **number).collect()
    }

    #[test]
    fn one_worker_takes_units_in_turn() {
        let pool = Pool::start(1, |worker: &Worker<u32, u32, (usize, usize)>| {
            while let Some(unit) = worker.next_unit() {
                worker.publish(unit);
                assert!(worker.take().is_empty(), "its own");
            }
            (worker.index(), worker.count())
        })
        .unwrap();
        (0..100).for_each(|unit| pool.give(unit));
        pool.close();
        let (ended, discoveries) = pool.join(LONG);
        assert_eq!(numbers(&discoveries), (0..100).collect::<Vec<_>>());
        assert_eq!(ended, [Ended::Finished((0, 1))]);
    }

    #[test]
    fn everybody_sees_the_same_order() {
        let begin = Arc::new(Barrier::new(3));
        let pool = Pool::start(3, move |worker: &Worker<(), (usize, u32), Vec<_>>| {
            begin.wait();
            let mut seen = Vec::new();
            for i in 0..200 {
                worker.publish((worker.index(), i));
                seen.extend(worker.take());
            }
            // The others' last ones.
            while seen.len() < 400 && !worker.stopped() {
                seen.extend(worker.take());
                std::thread::yield_now();
            }
            numbers(&seen)
        })
        .unwrap();
        let mut all = Vec::new();
        loop {
            let news = pool.wait(LONG);
            all.extend(numbers(&news.discoveries));
            if news.living == 0 {
                break;
            }
        }
        assert_eq!(all.len(), 600);
        let (ended, rest) = pool.join(LONG);
        assert!(rest.is_empty());
        for (index, ended) in ended.into_iter().enumerate() {
            let others: Vec<_> = all.iter().copied().filter(|d| d.0 != index).collect();
            assert_eq!(ended, Ended::Finished(others));
        }
    }

    #[test]
    fn what_everybody_has_is_forgotten() {
        let pool = Pool::start(1, |worker: &Worker<u32, u32, ()>| {
            while worker.next_unit().is_some() {
                worker.publish(1);
                worker.take();
            }
        })
        .unwrap();
        for unit in 0..50 {
            pool.give(unit);
            pool.publish(2);
            while !pool.wait(LONG).idle {}
            assert!(pool.shared.lock().log.len() <= 2);
        }
    }

    #[test]
    fn a_panic_is_told_and_hinders_nobody() {
        let pool = Pool::start(2, |worker: &Worker<u32, u32, u32>| {
            let mut done = 0;
            while let Some(unit) = worker.next_unit() {
                assert_ne!(unit, 13, "unlucky");
                worker.publish(unit);
                done += 1;
            }
            done
        })
        .unwrap();
        (0..100).for_each(|unit| pool.give(unit));
        let mut found = Vec::new();
        let mut gone = Vec::new();
        while found.len() < 99 || gone.is_empty() {
            let news = pool.wait(LONG);
            found.extend(numbers(&news.discoveries));
            gone.extend(news.ended);
        }
        pool.close();
        let (mut ended, _) = pool.join(LONG);
        let Ended::Panicked { message, unit } = ended.remove(gone[0]) else {
            panic!("{ended:?}");
        };
        assert!(message.contains("unlucky"), "{message}");
        assert_eq!(unit, Some(13));
        assert!(matches!(ended[0], Ended::Finished(_)));
        found.sort();
        assert_eq!(found, (0..100).filter(|i| *i != 13).collect::<Vec<_>>());
    }

    #[test]
    fn when_all_have_died_nobody_waits() {
        let pool = Pool::start(2, |_: &Worker<u32, (), ()>| panic!("{}", "at once")).unwrap();
        pool.give(1);
        while pool.wait(LONG).living > 0 {}
        let (ended, _) = pool.join(LONG);
        let message = "at once".to_owned();
        let panicked = Ended::Panicked {
            message,
            unit: None,
        };
        assert_eq!(ended, [panicked.clone(), panicked]);
    }

    #[test]
    fn a_wish_to_stop_reaches_those_who_wait_and_those_who_work() {
        let flag = Arc::new(AtomicBool::new(false));
        let stop = Stop::with_flag(flag.clone());
        let pool = Pool::start_with(2, stop, |worker: &Worker<(), (), ()>| {
            if worker.index() == 0 {
                assert_eq!(worker.next_unit(), None);
            }
            while !worker.stopped() {
                std::thread::yield_now();
            }
        })
        .unwrap();
        // As a signal handler does: nobody is woken.
        flag.store(true, Ordering::Relaxed);
        pool.wait(LONG);
        let (ended, _) = pool.join(LONG);
        assert_eq!(ended, [Ended::Finished(()), Ended::Finished(())]);
    }

    #[test]
    fn a_pool_that_is_stopped_or_dropped_stops_nobody_else() {
        let stop = Stop::new();
        for join in [true, false] {
            let pool = Pool::start_with(
                1,
                stop.clone(),
                |worker: &Worker<(), (), ()>| {
                    while worker.next_unit().is_some() {}
                },
            )
            .unwrap();
            pool.stop();
            if join {
                pool.join(LONG);
            }
        }
        assert!(!stop.requested());
    }

    #[test]
    fn a_stuck_worker_does_not_hang_the_tool() {
        let release = Arc::new(AtomicBool::new(false));
        let until = release.clone();
        let pool = Pool::start(1, move |worker: &Worker<u32, (), ()>| {
            worker.next_unit();
            while !until.load(Ordering::Relaxed) {
                std::thread::yield_now();
            }
        })
        .unwrap();
        pool.give(7);
        while !pool.shared.lock().units.is_empty() {
            std::thread::yield_now();
        }
        pool.stop();
        let (ended, _) = pool.join(Duration::from_millis(20));
        release.store(true, Ordering::Relaxed);
        assert_eq!(ended, [Ended::Stuck { unit: Some(7) }]);
    }

    #[test]
    fn work_that_makes_work_ends_when_all_are_idle() {
        // Each number below 64 gives two more: a search whose coordinator hands out what it is
        // told.
        let pool = Pool::start(3, |worker: &Worker<u64, u64, ()>| {
            while let Some(unit) = worker.next_unit() {
                worker.publish(unit);
            }
        })
        .unwrap();
        pool.give(1);
        let mut seen = Vec::new();
        loop {
            let news = pool.wait(LONG);
            let none = news.discoveries.is_empty();
            for (_, unit) in news.discoveries {
                seen.push(*unit);
                if *unit < 64 {
                    pool.give(2 * *unit);
                    pool.give(2 * *unit + 1);
                }
            }
            if news.idle && none {
                break;
            }
        }
        seen.sort();
        assert_eq!(seen, (1..128).collect::<Vec<_>>());
    }
}
