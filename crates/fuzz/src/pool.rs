//! The images that test cases may start from, and which of them is tried next.
//!
//! An image that was never tried comes first, newest first half of the time; then those that have
//! borne fruit. Crash images and normal ones take turns, because there are many more of the former.
//!
//! All images of the store are there, whoever has made them: this worker, another one, or a
//! campaign that is resumed. Workers share who tries which image first; those that are another's
//! turn count as tried.

use brownout_images::{ImageId, Origin, Store};
use libafl_bolts::rands::Rand;

use crate::mutate::below;

#[derive(Clone, Copy, Debug)]
struct Known {
    id: ImageId,
    is_crash: bool,
    tried: u32,
    fruits: u32,
}

/// See the module's header.
#[derive(Clone, Debug, Default)]
pub struct ImagePool {
    images: Vec<Known>,
    wants_crash: bool,
    /// How many images of the store were looked at.
    seen: u32,
}

/// Which images are there to be tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kinds {
    /// What runs and crashes have left.
    Left,
    /// Those with flipped bytes.
    Flipped,
}

impl ImagePool {
    /// Takes in what has been added to the store, of these kinds. `turn` is which of so many
    /// workers this one is.
    pub fn catch_up(&mut self, store: &Store, kinds: Kinds, (turn, workers): (usize, usize)) {
        while let Some(id) = store.nth(self.seen) {
            let number = self.seen;
            self.seen += 1;
            let is_crash = match (store.node(id).map(|node| node.origin), kinds) {
                (Ok(Origin::Run { .. }), Kinds::Left) => false,
                (Ok(Origin::Crash { .. }), Kinds::Left) => true,
                (Ok(Origin::Flipped { .. }), Kinds::Flipped) => false,
                _ => continue,
            };
            let is_ours = number as usize % workers.max(1) == turn;
            self.add(id, is_crash, u32::from(!is_ours));
        }
    }

    fn add(&mut self, id: ImageId, is_crash: bool, tried: u32) {
        self.images.push(Known {
            id,
            is_crash,
            tried,
            fruits: 0,
        });
    }

    /// The next to try.
    pub fn choose<R: Rand>(&mut self, random: &mut R) -> Option<ImageId> {
        if self.images.is_empty() {
            return None;
        }
        self.wants_crash = !self.wants_crash;
        let wanted = self.wants_crash;
        let fresh: Vec<&Known> = {
            let of_kind = |kind: bool| {
                let untried = move |known: &&Known| known.tried == 0 && known.is_crash == kind;
                self.images.iter().filter(untried).collect::<Vec<_>>()
            };
            match of_kind(wanted) {
                found if found.is_empty() => of_kind(!wanted),
                found => found,
            }
        };
        if let Some(last) = fresh.last() {
            let at = below(random, fresh.len());
            return Some(match below(random, 2) {
                0 => last.id,
                _ => fresh[at].id,
            });
        }
        let weight =
            |known: &Known| (1 + 8 * u64::from(known.fruits)) * 64 / u64::from(known.tried + 1);
        let sum: u64 = self.images.iter().map(|known| weight(known).max(1)).sum();
        let mut left = random.next() % sum;
        for known in &self.images {
            let weight = weight(known).max(1);
            if left < weight {
                return Some(known.id);
            }
            left -= weight;
        }
        None
    }

    /// It was tried, and so many test cases on it were worth keeping.
    pub fn tried(&mut self, id: ImageId, fruits: u32) {
        if let Some(known) = self.images.iter_mut().find(|known| known.id == id) {
            known.tried += 1;
            known.fruits += fruits;
        }
    }

    /// How deep the deepest is in the tree.
    pub fn depth(&self, store: &Store) -> u32 {
        let last = self.images.iter().rev().take(16);
        let depths = last.filter_map(|known| store.node(known.id).ok());
        depths.map(|node| node.depth).max().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use libafl_bolts::rands::StdRand;

    fn id(n: u8) -> ImageId {
        format!("{n:032x}").parse().expect("an id")
    }

    /// Nobody waits for ever, and crash images, of which there are many, do not crowd out the
    /// others.
    #[test]
    fn each_is_tried_once_before_any_is_tried_twice() {
        let mut pool = ImagePool::default();
        let mut random = StdRand::with_seed(5);
        assert_eq!(pool.choose(&mut random), None);
        for n in 0..20 {
            pool.add(id(n), n >= 4, 0);
        }
        let mut order = Vec::new();
        for _ in 0..20 {
            let chosen = pool.choose(&mut random).expect("there are some");
            pool.tried(chosen, 0);
            order.push(chosen);
        }
        let normal = |chosen: &ImageId| (0..4).any(|n| id(n) == *chosen);
        assert!(order[..8].iter().filter(|c| normal(c)).count() == 4);
        order.sort();
        order.dedup();
        assert_eq!(order.len(), 20);
    }

    /// What others have made is there, and of two workers one tries it first.
    #[test]
    fn all_images_are_somebodys_turn() {
        use brownout_images::{Content, Contents, FailureLocation, Kept, Moment};
        let folder = tempfile::tempdir().expect("a folder");
        let store = Store::create(&folder.path().join("images")).expect("a store");
        let input = store.input(b"x").expect("an input");
        let root = Contents::changes([]);
        let root = store.add(None, Origin::Root(String::new()), &root);
        let root = root.expect("a root").id;
        let mut pools = [ImagePool::default(), ImagePool::default()];
        let mut first = [0; 2];
        let mut random = StdRand::with_seed(5);
        for n in 0..12u64 {
            let origin = match n % 3 {
                0 => Origin::Run { input },
                1 => Origin::Crash {
                    input,
                    at: FailureLocation {
                        moment: Moment::OrderingPoint(n),
                        kept: Kept::Certain,
                    },
                },
                _ => Origin::Flipped { seed: n },
            };
            let file = Content::File {
                mode: 0o644,
                len: n + 1,
                pages: Vec::new(),
            };
            let contents = Contents::changes([("/nowhere/pool".into(), file)]);
            store
                .add(Some(root), origin, &contents)
                .expect("it is added");
            for (turn, pool) in pools.iter_mut().enumerate() {
                pool.catch_up(&store, Kinds::Left, (turn, 2));
                let mut fresh = pool.images.iter().filter(|known| known.tried == 0);
                if let Some(known) = fresh.next_back().copied() {
                    assert_eq!(pool.choose(&mut random), Some(known.id));
                    pool.tried(known.id, 0);
                    first[turn] += 1;
                }
            }
        }
        assert_eq!(first[0] + first[1], 8, "each is tried first by one of them");
        assert!(first[0] > 0 && first[1] > 0);
        let mut flipped = ImagePool::default();
        flipped.catch_up(&store, Kinds::Flipped, (0, 1));
        assert_eq!([pools[0].images.len(), flipped.images.len()], [8, 4]);
    }

    #[test]
    fn what_bears_fruit_is_tried_more_often() {
        let mut pool = ImagePool::default();
        let mut random = StdRand::with_seed(5);
        for n in 0..4 {
            pool.add(id(n), false, 0);
            pool.tried(id(n), if n == 2 { 3 } else { 0 });
        }
        let mut chosen = [0; 4];
        for _ in 0..400 {
            let image = pool.choose(&mut random).expect("there are some");
            let n = (0..4).find(|n| id(*n) == image).expect("one of them");
            chosen[usize::from(n)] += 1;
        }
        assert!(chosen[2] > 200, "{chosen:?}");
        assert!(chosen.iter().all(|n| *n > 0), "{chosen:?}");
    }
}
