//! Words of persistent memory by which threads may agree: locks, flags, versions.
//!
//! A word counts if locked instructions change it, if a thread reads it again and again at the same
//! place without storing anything in between, if somebody waits for it in a futex, if it is set and
//! set back and another thread looks at it, or if the program says that it is one. Whether it
//! matters is found out by crashes, not here: this only says where to look.
//!
//! What the program says (`brownout_sync_var`) is about bytes, as many as it says: a word that
//! counts for nothing else has only the changes of those.

use std::collections::BTreeMap;

use brownout_model::{ByteRange, Key};
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
    /// Of the word, what was stored.
    range: ByteRange,
}

/// A change of a word that may be a lock, a flag or a version.
#[derive(Clone, Debug)]
pub struct Suspect {
    /// The word, by its first byte.
    pub place: u64,
    pub change: Change,
    /// The one after it.
    pub next: Option<Change>,
    /// Of the bytes that were stored, those of which the program says what they hold when nobody
    /// has them, and what that is.
    pub initial: Vec<(ByteRange, Vec<u8>)>,
}

impl Suspect {
    /// A change at the same place in the program.
    pub fn is_like(&self, other: &Suspect) -> bool {
        self.change.done.site.name == other.change.done.site.name
    }
}

/// A word, by its first byte.
#[derive(Debug, Default)]
struct Word {
    changes: Vec<Change>,
    /// A locked instruction has changed it.
    is_locked: bool,
    /// Somebody has waited for it.
    is_awaited: bool,
    /// It has become again what it was before.
    is_set_back: bool,
    /// What it held before its last change.
    before: [Option<u8>; 8],
    /// The first thread that has used it, and whether another one has.
    user: Option<u32>,
    is_shared: bool,
}

impl Word {
    fn use_by(&mut self, thread: u32) {
        let first = *self.user.get_or_insert(thread);
        self.is_shared |= first != thread;
    }

    /// It looks like one, whatever the program says.
    fn is_suspect(&self) -> bool {
        self.is_locked || self.is_awaited || self.is_set_back && self.is_shared
    }
}

/// See the module's header.
#[derive(Debug, Default)]
pub struct Words {
    by_place: FxHashMap<u64, Word>,
    declared: Declared,
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
        if range.len() > 8 {
            return self.store_much(done, range, bytes, is_locked);
        }
        self.store_word(done, range, bytes, is_locked)
    }

    /// More than a word: most of it is data, of which there may be much.
    fn store_much(&mut self, done: Done, range: ByteRange, bytes: &[u8], is_locked: bool) -> bool {
        if self.declared.any(range) {
            let (mut bytes, mut is_new) = (bytes, false);
            for part in range.split(8) {
                let (those, rest) = bytes.split_at(bytes.len().min(part.len() as usize));
                is_new |= match self.declared.any(part) {
                    true => self.store_word(done, part, those, is_locked),
                    false => self.learn(part, those),
                };
                bytes = rest;
            }
            return is_new;
        }
        if is_locked {
            return self.learn(range, bytes);
        }
        for part in range.split(8) {
            self.contents.remove(&word_of(part.start().0));
        }
        true
    }

    fn store_word(&mut self, done: Done, range: ByteRange, bytes: &[u8], is_locked: bool) -> bool {
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
            word.changes.push(Change { done, range });
        }
        is_new
    }

    /// A thread waits in a futex.
    pub fn wait(&mut self, key: u64) {
        self.by_place.entry(word_of(key)).or_default().is_awaited = true;
    }

    /// The program says that these bytes are one, and hold this number if nobody has it; `at` of
    /// its bytes come before them. What it says last counts.
    pub fn declare(&mut self, range: ByteRange, at: u64, initial: u64) {
        self.declared.add(range, at, initial);
    }

    /// Words that may be locks, flags or versions, and have changed, in the order of their places.
    fn words(&self) -> Vec<(u64, &Word)> {
        let is_suspect = |(place, word): &(u64, &Word)| {
            let is_one = word.is_suspect() || self.declared.any(word_at(*place));
            is_one && !word.changes.is_empty()
        };
        let all = self.by_place.iter().map(|(place, word)| (*place, word));
        let mut found: Vec<_> = all.filter(is_suspect).collect();
        found.sort_unstable_by_key(|(place, _)| *place);
        found
    }

    /// Where words are that may be locks, flags or versions, and have changed.
    pub fn places(&self) -> impl Iterator<Item = u64> {
        self.words().into_iter().map(|(place, _)| place)
    }

    /// Their changes, in the order of their places.
    pub fn suspects(&self) -> Vec<Suspect> {
        let mut suspects = Vec::new();
        for (place, word) in self.words() {
            let changes = word.changes.iter().copied();
            let changes: Vec<Change> = changes
                .filter(|change| word.is_suspect() || self.declared.any(change.range))
                .collect();
            for (at, change) in changes.iter().enumerate() {
                suspects.push(Suspect {
                    place,
                    change: *change,
                    next: changes.get(at + 1).copied(),
                    initial: self.declared.initial(change.range),
                });
            }
        }
        suspects
    }
}

fn word_at(place: u64) -> ByteRange {
    ByteRange::new(Key(place), 8)
}

/// A stretch of a variable that the program says is a lock, a flag or a version.
#[derive(Clone, Copy, Debug)]
struct Stretch {
    range: ByteRange,
    /// How many bytes of the variable come before it.
    at: u64,
    /// What the variable holds if nobody has it.
    initial: u64,
}

impl Stretch {
    /// The part of it in a range; none if they have no byte in common.
    fn part(&self, range: ByteRange) -> Option<Stretch> {
        let start = self.range.start().max(range.start());
        let end = self.range.end().min(range.end());
        (start < end).then(|| Stretch {
            range: ByteRange::new(start, end.0 - start.0),
            at: self.at + (start.0 - self.range.start().0),
            ..*self
        })
    }

    /// What these bytes hold if nobody has the variable.
    fn bytes(&self) -> Vec<u8> {
        let number = self.initial.to_le_bytes();
        let byte = |at: u64| number.get(at as usize).copied().unwrap_or(0);
        (self.at..self.at + self.range.len()).map(byte).collect()
    }
}

/// What the program says, by where it begins; no two have a byte in common.
#[derive(Debug, Default)]
struct Declared(BTreeMap<Key, Stretch>);

impl Declared {
    fn in_range(&self, range: ByteRange) -> impl Iterator<Item = &Stretch> {
        let before = self
            .0
            .range(..range.end())
            .rev()
            .map(|(_, stretch)| stretch);
        before.take_while(move |stretch| stretch.range.end() > range.start())
    }

    fn any(&self, range: ByteRange) -> bool {
        self.in_range(range).next().is_some()
    }

    fn initial(&self, range: ByteRange) -> Vec<(ByteRange, Vec<u8>)> {
        let parts = self.in_range(range).filter_map(|all| all.part(range));
        let mut initial: Vec<_> = parts.map(|part| (part.range, part.bytes())).collect();
        initial.reverse();
        initial
    }

    fn add(&mut self, range: ByteRange, at: u64, initial: u64) {
        if range.is_empty() {
            return;
        }
        let over: Vec<Stretch> = self.in_range(range).copied().collect();
        for old in over {
            self.0.remove(&old.range.start());
            let start = old.range.start();
            let before = range.start().0.saturating_sub(start.0);
            let behind = old.range.end().0.saturating_sub(range.end().0);
            let parts = [
                ByteRange::new(start, before),
                ByteRange::new(Key(old.range.end().0 - behind), behind),
            ];
            for part in parts.into_iter().filter_map(|part| old.part(part)) {
                self.0.insert(part.range.start(), part);
            }
        }
        let stretch = Stretch { range, at, initial };
        self.0.insert(range.start(), stretch);
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

    fn stored(words: &mut Words, range: ByteRange, bytes: &[u8]) {
        words.store(Done::default(), range, bytes, false);
    }

    #[test]
    fn what_the_program_says_is_about_all_its_bytes() {
        let mut words = Words::default();
        words.declare(at(60, 20), 0, 0x0807_0605_0403_0201);
        for place in [56, 64, 72, 80] {
            stored(&mut words, at(place, 8), &[0xff; 8]);
        }
        // Neither what lies in the same word nor what comes behind it.
        stored(&mut words, at(56, 4), &[0xee; 4]);
        let suspects = words.suspects();
        let found: Vec<_> = suspects.iter().map(|s| (s.place, &s.initial)).collect();
        let expected = [
            (56, vec![(at(60, 4), vec![1, 2, 3, 4])]),
            (64, vec![(at(64, 8), vec![5, 6, 7, 8, 0, 0, 0, 0])]),
            (72, vec![(at(72, 8), vec![0; 8])]),
        ];
        assert_eq!(found, expected.each_ref().map(|(place, i)| (*place, i)));
        assert_eq!(words.places().collect::<Vec<_>>(), [56, 64, 72]);
    }

    #[test]
    fn what_is_stored_at_once_changes_all_words_of_a_variable() {
        let mut words = Words::default();
        words.declare(at(64, 16), 0, 0);
        stored(&mut words, at(64, 32), &[1; 32]);
        // Of the second, only one half.
        stored(&mut words, at(56, 20), &[2; 20]);
        let suspects = words.suspects();
        let found: Vec<_> = suspects
            .iter()
            .map(|s| (s.place, s.next.is_some()))
            .collect();
        assert_eq!(found, [(64, true), (64, false), (72, true), (72, false)]);
        assert_eq!(suspects[3].initial, [(at(72, 4), vec![0; 4])]);
    }

    #[test]
    fn what_the_program_says_last_counts() {
        let mut words = Words::default();
        words.declare(at(64, 24), 0, 1);
        words.declare(at(72, 4), 0, 2);
        words.declare(at(72, 4), 0, 3);
        assert_eq!(words.declared.0.len(), 3);
        let expected = [
            (at(64, 8), vec![1, 0, 0, 0, 0, 0, 0, 0]),
            (at(72, 4), vec![3, 0, 0, 0]),
            (at(76, 12), vec![0; 12]),
        ];
        assert_eq!(words.declared.initial(at(0, 200)), expected);
        assert!(words.declared.any(at(87, 9)) && !words.declared.any(at(88, 8)));
        assert!(!words.declared.any(at(0, 64)));
    }
}
