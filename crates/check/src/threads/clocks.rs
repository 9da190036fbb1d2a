//! What happened before what: vector clocks, twice.
//!
//! A thread's *epoch* grows with whatever others can learn of it. A clock says of each thread up to
//! which epoch one has learnt of it, directly or through others. Every thread has two clocks,
//! because there are two kinds of order:
//!
//! | order | made by | means |
//! |---|---|---|
//! | [`Order::Forced`] | creation and join, semaphores, condition variables, barriers, locked instructions, reading what the other has stored | it comes after the other in every run |
//! | [`Order::Taken`] | all of these, and locks | it came after the other in this run, in which the lock was taken in that order |

use rustc_hash::FxHashMap;

/// A thread, numbered from 0 in the order of their first events.
pub type Who = usize;

/// How much one thing comes after another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// In every run.
    Forced,
    /// In this run at least.
    Taken,
}

/// Up to which epoch one has learnt of each thread.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Clock(Vec<u64>);

impl Clock {
    fn get(&self, who: Who) -> u64 {
        self.0.get(who).copied().unwrap_or(0)
    }

    fn raise(&mut self, who: Who, epoch: u64) {
        if self.0.len() <= who {
            self.0.resize(who + 1, 0);
        }
        self.0[who] = self.0[who].max(epoch);
    }

    fn join(&mut self, other: &Clock) {
        if self.0.len() < other.0.len() {
            self.0.resize(other.0.len(), 0);
        }
        for (mine, theirs) in self.0.iter_mut().zip(&other.0) {
            *mine = (*mine).max(*theirs);
        }
    }
}

/// What somebody had learnt at some time, in both orders.
#[derive(Clone, Debug, Default)]
pub struct Knowledge {
    forced: Clock,
    taken: Clock,
}

impl Knowledge {
    fn join(&mut self, other: &Knowledge) {
        self.forced.join(&other.forced);
        self.taken.join(&other.taken);
    }

    fn raise(&mut self, who: Who, epoch: u64) {
        self.forced.raise(who, epoch);
        self.taken.raise(who, epoch);
    }
}

/// The clocks of all threads, and of what they synchronise by.
#[derive(Debug, Default)]
pub struct Clocks {
    /// What each thread knows, its own epoch included.
    threads: Vec<Knowledge>,
    objects: FxHashMap<u64, Knowledge>,
}

impl Clocks {
    /// One more thread.
    pub fn add(&mut self) -> Who {
        let who = self.threads.len();
        let mut knowledge = Knowledge::default();
        knowledge.raise(who, 1);
        self.threads.push(knowledge);
        who
    }

    /// A thread's own epoch.
    #[inline]
    pub fn epoch(&self, who: Who) -> u64 {
        self.threads[who].forced.get(who)
    }

    /// What the thread does from here on, nobody has learnt of yet.
    #[inline]
    pub fn tick(&mut self, who: Who) {
        let epoch = self.epoch(who) + 1;
        self.threads[who].raise(who, epoch);
    }

    /// Whether what `by` did in that epoch comes before what `whose` does now.
    #[inline]
    pub fn knows(&self, whose: Who, by: Who, epoch: u64, order: Order) -> bool {
        let knowledge = &self.threads[whose];
        let clock = match order {
            Order::Forced => &knowledge.forced,
            Order::Taken => &knowledge.taken,
        };
        clock.get(by) >= epoch
    }

    /// What a thread knows now.
    pub fn snapshot(&self, who: Who) -> Knowledge {
        self.threads[who].clone()
    }

    /// It learns that.
    pub fn learn(&mut self, who: Who, what: &Knowledge) {
        self.threads[who].join(what);
    }

    /// It learns all that the other knows now.
    pub fn learn_from(&mut self, who: Who, other: Who) {
        if who != other {
            let what = self.threads[other].clone();
            self.threads[who].join(&what);
            self.tick(other);
        }
    }

    /// It reads what the other has stored in that epoch. What the other has learnt from third
    /// parties since counts, too: that errs on the side of order.
    pub fn read_from(&mut self, who: Who, other: Who, epoch: u64) {
        if who == other || self.knows(who, other, epoch, Order::Forced) {
            return;
        }
        let mut what = self.threads[other].clone();
        for clock in [&mut what.forced, &mut what.taken] {
            clock.0[other] = epoch;
        }
        self.threads[who].join(&what);
    }

    /// It tells the object what it knows.
    pub fn release(&mut self, who: Who, object: u64, order: Order) {
        let Clocks { threads, objects } = self;
        let told = objects.entry(object).or_default();
        told.taken.join(&threads[who].taken);
        if order == Order::Forced {
            told.forced.join(&threads[who].forced);
        }
        self.tick(who);
    }

    /// It learns what the object was told.
    pub fn acquire(&mut self, who: Who, object: u64, order: Order) {
        let Some(told) = self.objects.get(&object) else {
            return;
        };
        let knowledge = &mut self.threads[who];
        knowledge.taken.join(&told.taken);
        if order == Order::Forced {
            knowledge.forced.join(&told.forced);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_released_is_known_and_what_comes_later_is_not() {
        let mut clocks = Clocks::default();
        let (a, b) = (clocks.add(), clocks.add());
        let before = clocks.epoch(a);
        clocks.release(a, 7, Order::Forced);
        let after = clocks.epoch(a);
        assert!(!clocks.knows(b, a, before, Order::Taken));
        clocks.acquire(b, 7, Order::Forced);
        assert!(clocks.knows(b, a, before, Order::Forced));
        assert!(clocks.knows(b, a, before, Order::Taken));
        assert!(!clocks.knows(b, a, after, Order::Taken));
    }

    #[test]
    fn a_lock_orders_this_run_only() {
        let mut clocks = Clocks::default();
        let (a, b) = (clocks.add(), clocks.add());
        let epoch = clocks.epoch(a);
        clocks.release(a, 7, Order::Taken);
        clocks.acquire(b, 7, Order::Taken);
        assert!(clocks.knows(b, a, epoch, Order::Taken));
        assert!(!clocks.knows(b, a, epoch, Order::Forced));
    }

    #[test]
    fn reading_tells_what_was_before_the_store_only() {
        let mut clocks = Clocks::default();
        let (a, b) = (clocks.add(), clocks.add());
        let store = clocks.epoch(a);
        clocks.tick(a);
        let behind = clocks.epoch(a);
        clocks.tick(a);
        clocks.read_from(b, a, store);
        assert!(clocks.knows(b, a, store, Order::Forced));
        assert!(!clocks.knows(b, a, behind, Order::Taken));
    }
}
