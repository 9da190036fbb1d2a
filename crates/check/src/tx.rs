//! Transactions: what they have logged, and what they have stored.

use brownout_model::{ByteRange, Moment, Tag};
use brownout_trace::event::ThreadId;

use crate::ranges::RangeMap;
use crate::thread::Touched;

/// How a range came into a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Logged {
    /// It was allocated there, so nothing needs to be kept of it.
    pub allocated: bool,
    /// Where.
    pub tag: Tag,
    /// By whom.
    pub thread: ThreadId,
}

/// An open transaction.
#[derive(Clone, Debug, Default)]
pub struct Transaction {
    /// How often it was begun and not ended.
    pub depth: u32,
    pub begun: Moment,
    pub logged: RangeMap<Logged>,
    pub touched: Touched,
}

/// All open transactions, by number. pmemcheck's requests name a number or mean the thread's own.
#[derive(Clone, Debug, Default)]
pub struct Transactions {
    /// In no order: there are as many as threads in a transaction, most often one.
    open: Vec<(u64, Transaction)>,
    /// Ended ones, whose memory serves the next.
    spare: Vec<Transaction>,
}

/// Thread's own transactions lie above all numbers that a program can name.
pub fn own_number(thread: ThreadId) -> u64 {
    1 << 63 | u64::from(thread.0)
}

impl Transactions {
    /// True if it was not open before.
    pub fn begin(&mut self, number: u64, now: Moment) -> bool {
        if let Some(transaction) = self.get_mut(number) {
            transaction.depth += 1;
            return false;
        }
        let mut transaction = self.spare.pop().unwrap_or_default();
        transaction.depth = 1;
        transaction.begun = now;
        self.open.push((number, transaction));
        true
    }

    /// The transaction, if this was its outermost end.
    pub fn end(&mut self, number: u64) -> Option<Transaction> {
        let at = self.open.iter().position(|(open, _)| *open == number)?;
        let transaction = &mut self.open[at].1;
        transaction.depth = transaction.depth.saturating_sub(1);
        match transaction.depth {
            0 => Some(self.open.swap_remove(at).1),
            _ => None,
        }
    }

    /// Gives back what [`end`](Self::end) gave.
    pub fn recycle(&mut self, mut ended: Transaction) {
        ended.logged.clear();
        ended.touched.clear();
        self.spare.push(ended);
    }

    pub fn get(&self, number: u64) -> Option<&Transaction> {
        let found = self.open.iter().find(|(open, _)| *open == number);
        found.map(|(_, transaction)| transaction)
    }

    #[inline]
    pub fn get_mut(&mut self, number: u64) -> Option<&mut Transaction> {
        let found = self.open.iter_mut().find(|(open, _)| *open == number);
        found.map(|(_, transaction)| transaction)
    }

    /// What another open transaction has logged of `range`.
    pub fn logged_elsewhere(&self, number: u64, range: ByteRange) -> Option<(ByteRange, Logged)> {
        if self.open.len() < 2 {
            return None;
        }
        let others = self.open.iter().filter(|(other, _)| *other != number);
        others
            .flat_map(|(_, transaction)| transaction.logged.overlapping(range))
            .next()
    }
}
