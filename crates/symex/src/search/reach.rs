//! How much the program does to persistent memory behind a way of a decision.
//!
//! ```text
//!  paths ─▶ ways, and which way came next ─▶ instructions between them that change persistent memory
//!                                          ─▶ value of a way: its own, and most of what may follow
//! ```
//! An instruction that stores to persistent memory, writes it back or fences it weighs one. The
//! value of a way is the weight of what was seen before the next decision, and, a little less with
//! every decision, the highest value of the ways that were seen to come next. It is computed anew
//! when something is seen that was not.
//!
//! **Source.** AGAMOTTO (OSDI 2020), section 4.2. **Deviations.** The control flow is what was
//! seen, not what the code says: there is always a real path behind a value, and none for what no
//! run has done. A way that no run has gone has the value of the others of its decision. What is
//! far away counts less, since from within a loop over commands everything can be reached.

use rustc_hash::{FxHashMap, FxHashSet};

use crate::path::Decision;

/// What of its value is left one decision earlier.
const KEPT: f32 = 0.9;
/// So often values are passed on at most.
const SWEEPS: usize = 40;
/// So many paths are waited for before values are computed anew,
const EVERY: u32 = 16;
/// unless there are fewer ways than this.
const FEW: usize = 200;

#[derive(Default)]
struct Way {
    /// The decision, whichever way it goes.
    place: u64,
    /// Instructions that have changed persistent memory before the next decision.
    sites: FxHashSet<u64>,
    next: FxHashSet<u64>,
    value: f32,
}

/// See the module's header.
#[derive(Default)]
pub(super) struct Reach {
    ways: FxHashMap<u64, Way>,
    /// By decision, whichever way it goes: its highest value.
    places: FxHashMap<u64, f32>,
    /// Something was seen that was not.
    is_new: bool,
    /// So many paths were seen since values were computed.
    waited: u32,
    /// Decisions of which a way is worth more than it was, in steps of [`Reach::of`].
    risen: FxHashSet<u64>,
}

impl Reach {
    /// A path, and behind how many decisions which instructions have changed persistent memory.
    /// Whether anything may be worth more now.
    pub(super) fn add(&mut self, decisions: &[Decision], sites: &FxHashSet<(u32, u64)>) -> bool {
        for (at, decision) in decisions.iter().enumerate() {
            let way = self.ways.entry(decision.name()).or_insert_with(|| Way {
                place: decision.place(),
                ..Way::default()
            });
            if let Some(next) = decisions.get(at + 1) {
                self.is_new |= way.next.insert(next.name());
            }
        }
        for (behind, site) in sites {
            let at = (*behind as usize).wrapping_sub(1);
            let name = decisions.get(at).map(Decision::name);
            if let Some(way) = name.and_then(|name| self.ways.get_mut(&name)) {
                self.is_new |= way.sites.insert(*site);
            }
        }
        self.waited += 1;
        if self.is_new && (self.waited >= EVERY || self.ways.len() < FEW) {
            self.compute();
        }
        !self.risen.is_empty()
    }

    /// The decisions of which a way has become worth more since this was asked.
    pub(super) fn take_risen(&mut self) -> FxHashSet<u64> {
        std::mem::take(&mut self.risen)
    }

    fn compute(&mut self) {
        (self.is_new, self.waited) = (false, 0);
        for _ in 0..SWEEPS {
            let known = self.ways.iter().map(|(name, way)| (*name, way.value));
            let known: FxHashMap<u64, f32> = known.collect();
            let mut changes = false;
            for way in self.ways.values_mut() {
                let next = way.next.iter().filter_map(|name| known.get(name));
                let value = way.sites.len() as f32 + KEPT * next.copied().fold(0.0, f32::max);
                changes |= value > way.value + 0.1;
                if step(value) > step(way.value) {
                    self.risen.insert(way.place);
                }
                way.value = value;
            }
            if !changes {
                break;
            }
        }
        for way in self.ways.values() {
            let most = self.places.entry(way.place).or_default();
            if step(way.value) > step(*most) {
                self.risen.insert(way.place);
            }
            *most = most.max(way.value);
        }
    }

    /// The value of a way of a decision, in steps of which each is twice as much.
    pub(super) fn of(&self, place: u64, way: u64) -> u8 {
        let value = match self.ways.get(&way) {
            Some(way) => way.value,
            None => self.places.get(&place).copied().unwrap_or(0.0),
        };
        step(value)
    }
}

fn step(value: f32) -> u8 {
    (1.0 + value).log2() as u8
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::path::{Kind, Progress};
    use brownout_solve::Pool;

    /// A path over these branches, and which way each went.
    fn path(all: &[(u64, u64)]) -> Vec<Decision> {
        let mut pool = Pool::new();
        let condition = pool.constant(1, 1);
        let decision = |&(pc, way): &(u64, u64)| Decision {
            pc,
            kind: Kind::Branch,
            way,
            condition,
            value: None,
            shape: 0,
            bytes: (0, 0),
            pm: Progress::default(),
            to: 0,
            distance: None,
        };
        all.iter().map(decision).collect()
    }

    #[test]
    fn what_leads_to_changes_is_worth_more_and_near_ones_count_more() {
        let mut reach = Reach::default();
        let sites = |behind: u32, count: u64| (0..count).map(|pc| (behind, pc)).collect();
        // 1 leads over 2 to 3, behind which eight instructions change persistent memory; or to 4,
        // and nothing.
        let long = path(&[(1, 1), (2, 0), (3, 1)]);
        reach.add(&long, &sites(3, 8));
        reach.add(&path(&[(1, 0), (4, 0)]), &FxHashSet::default());
        let of = |reach: &Reach, pc, way| {
            let decision = path(&[(pc, way)])[0];
            reach.of(decision.place(), decision.name())
        };
        assert_eq!(of(&reach, 3, 1), 3);
        assert_eq!((of(&reach, 1, 0), of(&reach, 4, 0)), (0, 0));
        assert!((1..=3).contains(&of(&reach, 1, 1)), "{}", of(&reach, 1, 1));
        // What nobody has gone is worth what lies beside it.
        assert_eq!(of(&reach, 3, 0), 3);
        assert_eq!(of(&reach, 9, 0), 0);
        // More is found there.
        reach.add(&long, &sites(3, 100));
        assert_eq!(of(&reach, 3, 1), 6);
        assert!(of(&reach, 1, 1) > 3);
    }

    #[test]
    fn what_is_worth_more_is_told_once() {
        let mut reach = Reach::default();
        let sites = |behind: u32, count: u64| (0..count).map(|pc| (behind, pc)).collect();
        let long = path(&[(1, 1), (2, 0), (3, 1)]);
        let place = |at: usize| long[at].place();
        assert!(!reach.add(&long, &FxHashSet::default()));
        assert!(reach.add(&long, &sites(3, 9)));
        let risen = reach.take_risen();
        assert_eq!(risen, [0, 1, 2].map(place).into_iter().collect());
        // The same again is nothing new, and more of it is if it is much more.
        assert!(!reach.add(&long, &sites(3, 9)));
        assert!(!reach.add(&long, &sites(3, 10)));
        assert!(reach.add(&long, &sites(3, 40)));
        assert!(reach.take_risen().contains(&place(0)));
        assert!(reach.take_risen().is_empty());
    }

    #[test]
    fn a_loop_has_an_end() {
        let mut reach = Reach::default();
        let round = path(&[(1, 1), (2, 1), (1, 1), (2, 1), (1, 0)]);
        reach.add(&round, &[(2, 5)].into_iter().collect());
        let value = reach.of(round[0].place(), round[0].name());
        assert!(value <= 4, "{value}");
    }
}
