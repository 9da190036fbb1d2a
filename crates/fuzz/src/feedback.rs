//! What makes an execution worth keeping, and how much.
//!
//! [`Sight`] carries what an execution has shown: four maps of counters. [`Novelty`] remembers what
//! was seen before and decides as PMFuzz does (algorithm 2): a place that was never seen is
//! priority 2, one that was seen with a clearly different counter is 1, the rest is not worth
//! keeping. Counters are different if they fall into different classes of AFL's (1, 2, 3, 4–7,
//! 8–15, 16–31, 32–127, 128 and more).
//!
//! Deviation: the paper has one map of PM operations and leaves the rest to AFL++. Here new
//! persistency situations and new ways of recovery (what the program did on an image before it
//! turned to its input) count as much as new PM paths, and new edges give priority 1.

use std::borrow::Cow;

use libafl::Error;
use libafl::HasMetadata;
use libafl::corpus::Testcase;
use libafl::executors::ExitKind;
use libafl::feedbacks::{Feedback, StateInitializer};
use libafl::observers::Observer;
use libafl_bolts::Named;
use serde::{Deserialize, Serialize};

use crate::case::Case;
use brownout_stage::MAP;

/// A map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Map {
    /// Transitions between PM operations.
    Path,
    /// What was pending at fences.
    Situations,
    /// Transitions before the first input.
    Opening,
    /// Edges of the program.
    Edges,
}

impl Map {
    /// All of them.
    pub const ALL: [Map; 4] = [Map::Path, Map::Situations, Map::Opening, Map::Edges];
}

/// What an execution has shown.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Sight {
    maps: Vec<Vec<u8>>,
}

impl Default for Sight {
    fn default() -> Sight {
        Sight {
            maps: vec![vec![0; MAP]; Map::ALL.len()],
        }
    }
}

impl Sight {
    /// One of its maps.
    pub fn map(&self, map: Map) -> &[u8] {
        &self.maps[map as usize]
    }

    /// Equal for equal sights.
    pub fn digest(&self) -> u64 {
        use std::hash::{Hash, Hasher};
        let mut hasher = rustc_hash::FxHasher::default();
        self.maps.hash(&mut hasher);
        hasher.finish()
    }

    /// To be filled.
    pub fn map_mut(&mut self, map: Map) -> &mut [u8] {
        &mut self.maps[map as usize]
    }
}

const SIGHT: Cow<'static, str> = Cow::Borrowed("sight");

impl Named for Sight {
    fn name(&self) -> &Cow<'static, str> {
        const { &SIGHT }
    }
}

impl<S> Observer<Case, S> for Sight {}

/// A counter's class, as a bit.
pub fn class(count: u8) -> u8 {
    match count {
        0 => 0,
        1 => 1,
        2 => 2,
        3 => 4,
        4..=7 => 8,
        8..=15 => 16,
        16..=31 => 32,
        32..=127 => 64,
        128.. => 128,
    }
}

/// How much a test case matters: 2, 1 or 0 in the paper.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct Priority(pub u8);

/// What the case showed when it was kept, as a number: to see whether it shows the same again.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Shown(pub u64);

libafl_bolts::impl_serdeany!(Shown);

libafl_bolts::impl_serdeany!(Priority);

/// What was seen before, in one map.
#[derive(Clone, Debug)]
pub struct Seen {
    /// The classes of each place.
    classes: Vec<u8>,
    /// Places that were seen at all.
    places: u32,
    /// Places with their classes.
    pairs: u32,
}

impl Default for Seen {
    fn default() -> Seen {
        Seen {
            classes: vec![0; MAP],
            places: 0,
            pairs: 0,
        }
    }
}

impl Seen {
    /// Takes a map in, and says how new it is: 2, 1 or 0.
    fn take(&mut self, map: &[u8]) -> u8 {
        let mut priority = 0;
        for (at, word) in map.chunks_exact(8).enumerate() {
            if word == [0; 8] {
                continue;
            }
            for (n, count) in word.iter().enumerate().filter(|(_, count)| **count != 0) {
                let known = &mut self.classes[at * 8 + n];
                let class = class(*count);
                if *known & class != 0 {
                    continue;
                }
                self.pairs += 1;
                self.places += u32::from(*known == 0);
                priority = priority.max(if *known == 0 { 2 } else { 1 });
                *known |= class;
            }
        }
        priority
    }

    /// Places that were seen.
    pub fn places(&self) -> u32 {
        self.places
    }

    /// Places with classes of counters that were seen.
    pub fn pairs(&self) -> u32 {
        self.pairs
    }
}

/// See the module's header.
#[derive(Clone, Debug, Default)]
pub struct Novelty {
    seen: [Seen; 4],
    /// Only edges count.
    edges_only: bool,
    last: Priority,
}

impl Novelty {
    /// One that has seen nothing.
    pub fn new(edges_only: bool) -> Novelty {
        Novelty {
            edges_only,
            ..Novelty::default()
        }
    }

    /// What was seen in one map.
    pub fn seen(&self, map: Map) -> &Seen {
        &self.seen[map as usize]
    }

    /// Takes an execution in, and says how much it matters.
    pub fn judge(&mut self, sight: &Sight) -> Priority {
        let mut priority = 0;
        for map in Map::ALL {
            let new = self.seen[map as usize].take(sight.map(map));
            priority = priority.max(match (map, self.edges_only) {
                (Map::Edges, true) => new,
                (_, true) => 0,
                (Map::Edges, false) => new.min(1),
                (_, false) => new,
            });
        }
        Priority(priority)
    }
}

const NOVELTY: Cow<'static, str> = Cow::Borrowed("novelty");

impl Named for Novelty {
    fn name(&self) -> &Cow<'static, str> {
        const { &NOVELTY }
    }
}

impl<S> StateInitializer<S> for Novelty {}

impl<EM, S> Feedback<EM, Case, (Sight, ()), S> for Novelty {
    fn is_interesting(
        &mut self,
        _: &mut S,
        _: &mut EM,
        _: &Case,
        observers: &(Sight, ()),
        _: &ExitKind,
    ) -> Result<bool, Error> {
        self.last = self.judge(&observers.0);
        Ok(self.last.0 > 0)
    }

    fn append_metadata(
        &mut self,
        _: &mut S,
        _: &mut EM,
        observers: &(Sight, ()),
        testcase: &mut Testcase<Case>,
    ) -> Result<(), Error> {
        testcase.add_metadata(self.last);
        testcase.add_metadata(Shown(observers.0.digest()));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sight(hits: &[(Map, usize, u8)]) -> Sight {
        let mut sight = Sight::default();
        for (map, at, count) in hits {
            sight.map_mut(*map)[*at] = *count;
        }
        sight
    }

    #[test]
    fn priorities_are_those_of_the_paper() {
        let mut novelty = Novelty::new(false);
        assert_eq!(novelty.judge(&sight(&[(Map::Path, 7, 1)])).0, 2);
        assert_eq!(novelty.judge(&sight(&[(Map::Path, 7, 1)])).0, 0);
        // A clearly other count; then one of the same class.
        assert_eq!(novelty.judge(&sight(&[(Map::Path, 7, 9)])).0, 1);
        assert_eq!(novelty.judge(&sight(&[(Map::Path, 7, 15)])).0, 0);
        assert_eq!(novelty.judge(&sight(&[(Map::Situations, 7, 1)])).0, 2);
        assert_eq!(novelty.judge(&sight(&[(Map::Opening, 7, 1)])).0, 2);
        assert_eq!(novelty.judge(&sight(&[(Map::Edges, 7, 1)])).0, 1);
        let path = novelty.seen(Map::Path);
        assert_eq!((path.places(), path.pairs()), (1, 2));
    }

    /// What does not steer is counted all the same, so that campaigns can be compared.
    #[test]
    fn edges_alone_steer_if_asked_to() {
        let mut novelty = Novelty::new(true);
        assert_eq!(novelty.judge(&sight(&[(Map::Path, 7, 1)])).0, 0);
        assert_eq!(novelty.seen(Map::Path).places(), 1);
        assert_eq!(novelty.judge(&sight(&[(Map::Edges, 7, 1)])).0, 2);
    }

    #[test]
    fn every_count_has_one_class() {
        assert_eq!(class(0), 0);
        for count in 1..=u8::MAX {
            assert_eq!(class(count).count_ones(), 1, "{count}");
        }
        assert!((1..u8::MAX).all(|count| class(count) <= class(count + 1)));
    }
}
