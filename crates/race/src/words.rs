//! Words of persistent memory by which threads may agree: locks, flags, versions.
//!
//! A word counts if locked instructions change it, if a thread reads it again and again at the same
//! place without storing anything in between, if somebody waits for it in a futex, if it is set and
//! set back and another thread looks at it, or if the program says that it is one. Whether it
//! matters is found out by crashes, not here: this only says where to look.

use brownout_model::ByteRange;
use rustc_hash::FxHashMap;

use crate::site::{Done, Site};

/// Changes that are remembered of one word.
const CHANGES_MAX: usize = 64;
/// A thread that has read a word so often at one place waits for it.
const SPINS: u32 = 3;
/// Places at which a thread reads, remembered at a time.
const READS_MAX: usize = 64;

/// One change of a word.
#[derive(Clone, Copy, Debug)]
pub struct Change {
    pub done: Done,
}

/// A word, by its first byte.
#[derive(Debug, Default)]
pub struct Word {
    pub changes: Vec<Change>,
    /// A locked instruction has changed it.
    pub is_locked: bool,
    /// Somebody has waited for it.
    pub is_awaited: bool,
    /// It has become again what it was before.
    is_set_back: bool,
    /// What it held before its last change.
    before: [Option<u8>; 8],
    /// The first thread that has used it, and whether another one has.
    user: Option<u32>,
    is_shared: bool,
    /// What the program says that it holds when nobody has it.
    pub declared: Option<u64>,
}

impl Word {
    fn use_by(&mut self, thread: u32) {
        let first = *self.user.get_or_insert(thread);
        self.is_shared |= first != thread;
    }
}

/// See the module's header.
#[derive(Debug, Default)]
pub struct Words {
    pub by_place: FxHashMap<u64, Word>,
    /// What eight bytes hold, as far as known: which of them, and their content.
    contents: FxHashMap<u64, [Option<u8>; 8]>,
    /// By thread: how often it has read what where since it last stored anything.
    reads: FxHashMap<u32, FxHashMap<(u64, u64), u32>>,
}

fn word_of(key: u64) -> u64 {
    key & !7
}

impl Words {
    /// Takes note of what bytes hold now. True if that is not what they held, or if either is not
    /// known.
    fn learn(&mut self, range: ByteRange, bytes: &[u8]) -> bool {
        let mut is_new = false;
        let bytes = bytes.iter().copied().map(Some);
        let bytes = bytes.chain(std::iter::repeat(None));
        for (at, byte) in (range.start().0..range.end().0).zip(bytes) {
            let content = self.contents.entry(word_of(at)).or_default();
            let known = &mut content[(at & 7) as usize];
            is_new |= byte.is_none() || *known != byte;
            *known = byte;
        }
        is_new
    }

    /// A thread reads.
    pub fn load(&mut self, site: Site, range: ByteRange, bytes: &[u8]) {
        if range.len() > 8 {
            return;
        }
        self.learn(range, bytes);
        let word = word_of(range.start().0);
        if let Some(word) = self.by_place.get_mut(&word) {
            word.use_by(site.thread.0);
        }
        let reads = self.reads.entry(site.thread.0).or_default();
        if reads.len() > READS_MAX {
            reads.clear();
        }
        let count = reads.entry((site.pc.0, word)).or_default();
        *count += 1;
        if *count == SPINS {
            self.by_place.entry(word).or_default().is_awaited = true;
        }
    }

    /// A thread stores. True if the bytes hold something else than before, as far as that is known:
    /// a lock that is tried and not got stores what is there.
    pub fn store(&mut self, done: Done, range: ByteRange, bytes: &[u8], is_locked: bool) -> bool {
        if let Some(reads) = self.reads.get_mut(&done.site.thread.0)
            && !is_locked
        {
            reads.clear();
        }
        if range.len() > 8 && is_locked {
            return self.learn(range, bytes);
        }
        if range.len() > 8 {
            // Most of it is data, of which there may be much.
            for part in range.split(8) {
                self.contents.remove(&word_of(part.start().0));
            }
            return true;
        }
        let place = word_of(range.start().0);
        let before = self.contents.get(&place).copied().unwrap_or_default();
        let is_new = self.learn(range, bytes);
        if is_locked && !is_new {
            // Tried, and not got.
            let reads = self.reads.entry(done.site.thread.0).or_default();
            let count = reads.entry((done.site.pc.0, place)).or_default();
            *count += 1;
            if *count == SPINS {
                self.by_place.entry(place).or_default().is_awaited = true;
            }
        }
        let now = self.contents.get(&place).copied().unwrap_or_default();
        let word = self.by_place.entry(place).or_default();
        word.use_by(done.site.thread.0);
        word.is_locked |= is_locked;
        if is_new {
            word.is_set_back |= !word.changes.is_empty() && word.before == now;
            word.before = before;
        }
        if is_new && word.changes.len() < CHANGES_MAX {
            word.changes.push(Change { done });
        }
        is_new
    }

    /// A thread waits in a futex.
    pub fn wait(&mut self, key: u64) {
        self.by_place.entry(word_of(key)).or_default().is_awaited = true;
    }

    /// The program says that it is one.
    pub fn declare(&mut self, key: u64, initial: u64) {
        let word = self.by_place.entry(word_of(key)).or_default();
        word.declared = Some(initial);
    }

    /// Words that may be locks, flags or versions, in the order of their places.
    pub fn suspects(&self) -> Vec<(u64, &Word)> {
        let is_suspect = |(_, word): &(&u64, &Word)| {
            let is_flag = word.is_set_back && word.is_shared;
            (word.is_locked || word.is_awaited || is_flag || word.declared.is_some())
                && !word.changes.is_empty()
        };
        let mut found: Vec<_> = self.by_place.iter().filter(is_suspect).collect();
        found.sort_unstable_by_key(|(place, _)| **place);
        found
            .into_iter()
            .map(|(place, word)| (*place, word))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use brownout_model::Key;

    fn at(start: u64, len: u64) -> ByteRange {
        ByteRange::new(Key(start), len)
    }

    #[test]
    fn a_lock_that_is_not_got_changes_nothing() {
        let mut words = Words::default();
        let done = Done::default();
        let taken = 1u64.to_le_bytes();
        // Nobody knows what was there.
        assert!(words.store(done, at(64, 8), &taken, true));
        assert!(!words.store(done, at(64, 8), &taken, true));
        assert!(words.store(done, at(64, 8), &0u64.to_le_bytes(), false));
        assert!(words.store(done, at(64, 8), &taken, true));
        // Nor does one of sixteen bytes.
        assert!(words.store(done, at(128, 16), &[7; 16], true));
        assert!(!words.store(done, at(128, 16), &[7; 16], true));
        assert!(words.store(done, at(128, 16), &[8; 16], true));
        // What is not told may be anything, then and later.
        assert!(words.store(done, at(64, 8), &[], false));
        assert!(words.store(done, at(64, 8), &taken, true));
    }
}
