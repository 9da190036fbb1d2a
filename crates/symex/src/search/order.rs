//! What waits to be turned: taken in the order of the strategy, and given up where there is too
//! much of it.
//!
//! Paths take up most of the memory of a search: thousands of decisions each, and a hundred paths a
//! second. So a path is forgotten when none of its decisions waits any more; and if there are too
//! many that do, the paths with the least new ones are given up, which is counted.

use super::Search;
use super::turn::{Rank, Turn};

/// Of 256 decisions to turn, so many are taken wherever they are in the input.
const ANY_OF_256: u8 = 64;
/// So many decisions are kept, of all paths together: some hundred bytes each.
const STORED_MAX: usize = 2_000_000;
/// Turns that do not wait any more stay in their queues until there are so many more than wait.
const OUTDATED_MAX: usize = 100_000;

impl Search<'_> {
    /// The next decision to turn: most of the time one that depends on early bytes, now and then
    /// any of those that are as new.
    pub(super) fn next(&mut self) -> Option<Turn> {
        loop {
            let any = self.random.u8(..) < ANY_OF_256;
            let queue = match any {
                true => &mut self.any,
                false => &mut self.queue,
            };
            let turn = queue.pop(&mut self.random)?;
            if !self.tests[turn.test as usize].open.contains(&turn.key()) {
                continue;
            }
            let rank = self.order.rank(&self.known(), &turn);
            let rank = match any {
                true => rank.anywhere(),
                false => rank,
            };
            // What was new when it was put there may not be any more.
            if rank < turn.rank {
                let queue = match any {
                    true => &mut self.any,
                    false => &mut self.queue,
                };
                queue.push(Turn { rank, ..turn });
                continue;
            }
            let test = &mut self.tests[turn.test as usize];
            test.open.remove(&turn.key());
            test.turned.insert(turn.key());
            self.waiting -= 1;
            return Some(turn);
        }
    }

    /// A decision waits, unless it does.
    pub(super) fn push(&mut self, turn: Turn) {
        let test = &mut self.tests[turn.test as usize];
        if test.open.insert(turn.key()) {
            self.waiting += 1;
            self.put(turn);
        }
    }

    /// Puts one into the queues, where it may be already with a lower rank.
    pub(super) fn put(&mut self, turn: Turn) {
        self.queue.push(turn);
        self.any.push(Turn {
            rank: turn.rank.anywhere(),
            ..turn
        });
    }

    /// Puts those that wait once more where more was found behind them than was known: ranks in the
    /// queues only fall by themselves (`next`). A value rises a few times at most, and each time
    /// what waits there is put once, so that this is no more work than to put it at first.
    pub(super) fn put_what_has_risen(&mut self) {
        let risen = self.reach.take_risen();
        if risen.is_empty() {
            return;
        }
        let mut put = Vec::new();
        for (number, test) in self.tests.iter().enumerate() {
            let open = test.open.iter();
            let has_risen = |key: &&(u32, u32)| {
                let decision = &test.decisions[key.0 as usize];
                risen.contains(&decision.place())
            };
            put.extend(open.filter(has_risen).map(|key| (number as u32, *key)));
        }
        // Sets have no order of their own, and chance is to follow from the seed.
        put.sort_unstable();
        for (test, (at, place)) in put {
            let number = self.order.number(test, at, &mut self.random);
            self.put(self.turn(test, at, place, number));
        }
    }

    /// The decision of a path that waits to be turned, with its rank. `number` is its own.
    pub(super) fn turn(&self, test: u32, at: u32, place: u32, number: u64) -> Turn {
        let turn = Turn {
            rank: Rank::numbered(number),
            test,
            at,
            place,
        };
        let rank = self.order.rank(&self.known(), &turn);
        Turn { rank, ..turn }
    }

    /// Forgets a path if nothing of it waits to be turned. The newest may still be asked for.
    pub(super) fn forget_done(&mut self, test: u32) {
        let is_newest = test as usize + 1 >= self.tests.len();
        if !is_newest && self.tests[test as usize].open.is_empty() {
            self.forget(test);
        }
    }

    fn forget(&mut self, test: u32) {
        let test = &mut self.tests[test as usize];
        self.stored -= test.decisions.len();
        self.waiting -= test.open.len() as u64;
        *test = Default::default();
    }

    /// Gives up what is least new if there is too much.
    pub(super) fn make_room(&mut self) {
        self.make_room_for(STORED_MAX);
    }

    /// The same, if there are more decisions than this.
    pub(super) fn make_room_for(&mut self, most: usize) {
        let is_too_much = self.stored > most;
        if is_too_much {
            let live = self.tests.len().saturating_sub(1);
            let numbers = (0..live as u32).filter(|n| !self.tests[*n as usize].open.is_empty());
            let mut all: Vec<(u8, u32)> = numbers.map(|n| (self.newest_of(n), n)).collect();
            // Of what is equally new, the oldest has waited in vain for the longest.
            all.sort_unstable();
            for (_, number) in all {
                if self.stored <= most / 2 {
                    break;
                }
                self.numbers.forgotten += self.tests[number as usize].open.len() as u64;
                self.forget(number);
            }
        }
        let tests = &self.tests;
        let waits = |turn: &Turn| tests[turn.test as usize].open.contains(&turn.key());
        for queue in [&mut self.queue, &mut self.any] {
            if is_too_much || queue.len() > self.waiting as usize + OUTDATED_MAX {
                queue.retain(waits);
            }
        }
    }

    /// How new the newest is that waits of a path.
    fn newest_of(&self, number: u32) -> u8 {
        let open = self.tests[number as usize].open.iter();
        let novelty = |(at, place): &(u32, u32)| self.turn(number, *at, *place, 0).rank.novelty;
        open.map(novelty).max().unwrap_or(0)
    }
}
