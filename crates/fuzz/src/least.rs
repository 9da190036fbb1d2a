//! The smallest set of test cases that shows what all of them show.
//!
//! What a case shows is a set of places in the four maps of `feedback.rs`, each with its class of
//! counters. To choose the fewest cases is NP-hard, so it is done greedily (again and again the
//! case that adds most), which takes at most ln(n) times as many as needed; afterwards whatever has
//! become superfluous goes. Guarantee: the chosen ones show all, and each of them shows something
//! that no other one of them shows.

use std::collections::BinaryHeap;

use crate::feedback::{Map, Sight, class};

/// What a case shows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Shown(Vec<u32>);

impl Shown {
    /// Of one run.
    pub fn of(sight: &Sight) -> Shown {
        let mut all = Vec::new();
        for map in Map::ALL {
            for (at, count) in sight.map(map).iter().enumerate() {
                if *count != 0 {
                    let class = class(*count).trailing_zeros() as usize;
                    let number = (map as usize * brownout_stage::MAP + at) * 8 + class;
                    all.push(number as u32);
                }
            }
        }
        Shown(all)
    }

    /// How much it is.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether it is nothing.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    #[cfg(test)]
    fn from(all: &[u32]) -> Shown {
        Shown(all.to_vec())
    }
}

/// How often each place is shown by those that were chosen.
#[derive(Clone, Debug)]
pub struct Cover {
    times: Vec<u32>,
}

impl Default for Cover {
    fn default() -> Cover {
        Cover {
            times: vec![0; Map::ALL.len() * brownout_stage::MAP * 8],
        }
    }
}

impl Cover {
    /// How much of it is not shown yet.
    pub fn lacks(&self, shown: &Shown) -> usize {
        let is_new = |at: &&u32| self.times[**at as usize] == 0;
        shown.0.iter().filter(is_new).count()
    }

    /// How many places are shown.
    pub fn len(&self) -> usize {
        self.times.iter().filter(|times| **times > 0).count()
    }

    /// Whether nothing is shown.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether all that the other one has is shown.
    pub fn has_all_of(&self, other: &Cover) -> bool {
        let mut pairs = self.times.iter().zip(&other.times);
        pairs.all(|(ours, theirs)| *ours > 0 || *theirs == 0)
    }

    /// One more was chosen.
    pub fn add(&mut self, shown: &Shown) {
        for at in &shown.0 {
            self.times[*at as usize] += 1;
        }
    }

    fn can_lose(&self, shown: &Shown) -> bool {
        shown.0.iter().all(|at| self.times[*at as usize] > 1)
    }

    fn remove(&mut self, shown: &Shown) {
        for at in &shown.0 {
            self.times[*at as usize] -= 1;
        }
    }

    /// Chooses among candidates until they show all that any of them shows, and says which;
    /// `wanted` are the places that count. Of two that add as much, that of the lower cost is
    /// chosen, then the earlier one.
    pub fn choose(&mut self, candidates: &[(Shown, usize)], wanted: Option<&Cover>) -> Vec<usize> {
        let counts = |at: u32| wanted.is_none_or(|wanted| wanted.times[at as usize] > 0);
        let shown: Vec<Shown> = candidates
            .iter()
            .map(|(shown, _)| Shown(shown.0.iter().copied().filter(|at| counts(*at)).collect()))
            .collect();
        // What a candidate adds only shrinks, so that whoever is first with a fresh figure is the
        // best.
        let mut heap = BinaryHeap::new();
        for (n, shown) in shown.iter().enumerate() {
            let entry = |gain| (gain, std::cmp::Reverse((candidates[n].1, n)));
            heap.push(entry(self.lacks(shown)));
        }
        let mut chosen = Vec::new();
        while let Some((gain, std::cmp::Reverse((cost, n)))) = heap.pop() {
            let now = self.lacks(&shown[n]);
            if now == 0 {
                continue;
            }
            if now < gain {
                heap.push((now, std::cmp::Reverse((cost, n))));
                continue;
            }
            self.add(&shown[n]);
            chosen.push(n);
        }
        // Those that were chosen late may show all that an early one was chosen for. The costly
        // ones go first.
        let mut order = chosen.clone();
        order.sort_by_key(|n| std::cmp::Reverse(candidates[*n].1));
        for n in order {
            if self.can_lose(&shown[n]) {
                self.remove(&shown[n]);
                chosen.retain(|other| *other != n);
            }
        }
        chosen.sort_unstable();
        chosen
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use libafl_bolts::rands::{Rand, StdRand};

    fn union(sets: &[(Shown, usize)], of: &[usize]) -> Vec<u32> {
        let mut all: Vec<u32> = of.iter().flat_map(|n| sets[*n].0.0.clone()).collect();
        all.sort_unstable();
        all.dedup();
        all
    }

    #[test]
    fn random_sets_are_covered_and_nothing_is_superfluous() {
        let mut random = StdRand::with_seed(11);
        for round in 0..300 {
            let count = 1 + random.next() % 20;
            let sets: Vec<(Shown, usize)> = (0..count)
                .map(|_| {
                    let mut all: Vec<u32> = (0..random.next() % 12)
                        .map(|_| (random.next() % 30) as u32)
                        .collect();
                    all.sort_unstable();
                    all.dedup();
                    (Shown(all), (random.next() % 5) as usize)
                })
                .collect();
            let everybody: Vec<usize> = (0..sets.len()).collect();
            let chosen = Cover::default().choose(&sets, None);
            let whole = union(&sets, &everybody);
            assert_eq!(union(&sets, &chosen), whole, "round {round}");
            for without in &chosen {
                let mut rest = chosen.clone();
                rest.retain(|n| n != without);
                assert_ne!(union(&sets, &rest), whole, "round {round}: {without}");
            }
        }
    }

    /// The greedy choice would keep the first, which the other two make superfluous.
    #[test]
    fn what_has_become_superfluous_goes() {
        let sets = [
            (Shown::from(&[2, 3, 4, 5]), 1),
            (Shown::from(&[1, 2, 3]), 1),
            (Shown::from(&[4, 5, 6]), 1),
        ];
        assert_eq!(Cover::default().choose(&sets, None), [1, 2]);
    }

    #[test]
    fn the_cheaper_of_two_is_chosen_and_what_is_there_is_not_chosen_again() {
        let sets = [
            (Shown::from(&[1, 2]), 9),
            (Shown::from(&[1, 2]), 3),
            (Shown::from(&[7]), 1),
        ];
        let mut cover = Cover::default();
        cover.add(&Shown::from(&[7]));
        assert_eq!(cover.choose(&sets, None), [1]);
        let mut wanted = Cover::default();
        wanted.add(&Shown::from(&[7]));
        assert_eq!(Cover::default().choose(&sets, Some(&wanted)), [2]);
    }

    /// A place with another class is something else; with another count of the same class it is
    /// not.
    #[test]
    fn classes_count() {
        let shown = |count: u8| {
            let mut sight = Sight::default();
            sight.map_mut(Map::Edges)[5] = count;
            Shown::of(&sight)
        };
        assert_eq!(shown(9), shown(15));
        assert_ne!(shown(1), shown(2));
        assert!(shown(0).is_empty() && shown(1).len() == 1);
    }
}
