//! Other fuzzers, with which inputs are exchanged while all of them run.
//!
//! The coordinator takes what is new from their queues, now and then, and puts it into an
//! [`Inbox`]; whichever worker has time runs it on the root image, and keeps what is new. How far
//! their queues were read is written down only when nothing waits any more, so that a campaign that
//! was killed takes the rest again.

use std::collections::VecDeque;
use std::path::Path;
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

use brownout_campaign::folder::Layout;
use brownout_campaign::sync::{Exchange, Import, Seen, SyncError};

use crate::mutate::INPUT_MAX;

/// How long it is between two looks at the others' queues.
const PAUSE: Duration = Duration::from_secs(5);
/// So many inputs are taken at once.
const AT_ONCE: usize = 200;

/// An input of another fuzzer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gift {
    /// Who has it, and its number there: what comes after `id` in the name of its file.
    pub from: (String, u64),
    /// The input.
    pub input: Vec<u8>,
}

/// What has come in and was not run yet.
#[derive(Debug, Default)]
pub struct Inbox(Mutex<Waiting>);

#[derive(Debug, Default)]
struct Waiting {
    gifts: VecDeque<Gift>,
    /// Those that somebody is running.
    at_work: usize,
}

impl Inbox {
    fn locked(&self) -> MutexGuard<'_, Waiting> {
        // Nothing here panics halfway through a change.
        self.0
            .lock()
            .unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// The next one. Whoever has run it says so.
    pub fn next(&self) -> Option<Gift> {
        let mut waiting = self.locked();
        let gift = waiting.gifts.pop_front()?;
        waiting.at_work += 1;
        Some(gift)
    }

    /// One was run, and is kept if it was worth it.
    pub fn done(&self) {
        self.locked().at_work -= 1;
    }

    fn is_empty(&self) -> bool {
        let waiting = self.locked();
        waiting.gifts.is_empty() && waiting.at_work == 0
    }

    fn add(&self, imports: Vec<Import>) {
        let fits = |import: &Import| import.input.len() <= INPUT_MAX;
        let gifts = imports.into_iter().filter(fits).map(|import| Gift {
            from: (import.party, import.name.id),
            input: import.input,
        });
        self.locked().gifts.extend(gifts);
    }
}

/// See the module's header.
pub struct Partners {
    exchange: Exchange,
    last: Option<Instant>,
    /// What was written down, so that the same is not written again and again.
    written: Seen,
    has_failed: bool,
}

impl Partners {
    /// Those in a folder. `seen` is how far their queues were read before.
    pub fn open(folder: &Path, campaign: &Layout, seen: Seen) -> Result<Partners, SyncError> {
        Ok(Partners {
            exchange: Exchange::open(folder, campaign, seen.clone())?,
            last: None,
            written: seen,
            has_failed: false,
        })
    }

    /// Exchanges, if it is time to, or if this is the last chance. What is to be written down is
    /// returned, and what the user should know, once.
    pub fn meet(
        &mut self,
        inbox: &Inbox,
        campaign: &Layout,
        is_last: bool,
    ) -> (Option<Seen>, Option<String>) {
        if !is_last && self.last.is_some_and(|last| last.elapsed() < PAUSE) {
            return (None, None);
        }
        self.last = Some(Instant::now());
        let mut write = None;
        // Others' files may go at any time; so this is no reason to end.
        let exchanged = self.exchange.give(campaign).and_then(|_| {
            if inbox.is_empty() {
                if *self.exchange.seen() != self.written {
                    self.written = self.exchange.seen().clone();
                    write = Some(self.written.clone());
                }
                if !is_last {
                    inbox.add(self.exchange.take(AT_ONCE)?.imports);
                }
            }
            Ok(())
        });
        let told = match exchanged {
            Err(error) if !self.has_failed => {
                self.has_failed = true;
                Some(format!("inputs could not be exchanged: {error}"))
            }
            _ => None,
        };
        (write, told)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use brownout_campaign::case_name::CaseName;

    #[test]
    fn what_is_being_run_is_not_done() {
        let inbox = Inbox::default();
        assert!(inbox.is_empty() && inbox.next().is_none());
        let import = |id: u64, len: usize| Import {
            party: "main".into(),
            name: CaseName::seed(id, "x"),
            input: vec![b'x'; len],
        };
        inbox.add(vec![import(3, 5), import(4, INPUT_MAX + 1), import(5, 6)]);
        let gift = inbox.next().expect("the first");
        assert_eq!((gift.from, gift.input.len()), (("main".to_owned(), 3), 5));
        assert_eq!(inbox.next().map(|gift| gift.input.len()), Some(6));
        assert!(inbox.next().is_none() && !inbox.is_empty());
        inbox.done();
        assert!(!inbox.is_empty());
        inbox.done();
        assert!(inbox.is_empty());
    }
}
