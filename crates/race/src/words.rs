//! Words of persistent memory by which threads may agree: locks, flags, versions.
//!
//! A word counts if locked instructions change it, if a thread reads it again and again at the same place without storing anything in between, if
//! somebody waits for it in a futex, if it is set and set back and another thread looks at it, or if the program says that it is one. Whether it matters is found out by crashes, not here: this only says where to look.

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
    /// Events since the content of a word changed.
    pub quiet: u64,
}

fn word_of(key: u64) -> u64 {
    key & !7
}

impl Words {
    /// Takes note of what bytes hold now. True if that is not what they held, or if that was not known.
    fn learn(&mut self, range: ByteRange, bytes: &[u8]) -> bool {
        let mut is_new = bytes.len() as u64 != range.len();
        for (at, byte) in (range.start().0..range.end().0).zip(bytes) {
            let content = self.contents.entry(word_of(at)).or_default();
            let known = &mut content[(at & 7) as usize];
            is_new |= *known != Some(*byte);
            *known = Some(*byte);
        }
        is_new
    }

    /// A thread reads.
    pub fn load(&mut self, site: Site, range: ByteRange, bytes: &[u8]) {
        self.quiet += 1;
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

    /// A thread stores.
    pub fn store(&mut self, done: Done, range: ByteRange, bytes: &[u8], is_locked: bool) {
        self.quiet += 1;
        if let Some(reads) = self.reads.get_mut(&done.site.thread.0)
            && !is_locked
        {
            reads.clear();
        }
        if range.len() > 8 {
            for part in range.split(8) {
                self.contents.remove(&word_of(part.start().0));
            }
            self.quiet = 0;
            return;
        }
        let place = word_of(range.start().0);
        let before = self.contents.get(&place).copied().unwrap_or_default();
        let is_new = self.learn(range, bytes);
        if is_new {
            self.quiet = 0;
        }
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
