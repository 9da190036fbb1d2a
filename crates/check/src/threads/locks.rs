//! Which locks are held: sets of them, as small numbers.

use rustc_hash::FxHashMap;
use smallvec::SmallVec;

/// A lock, numbered in the order of first use.
pub type Lock = u32;

/// A lock that is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Held {
    pub lock: Lock,
    /// Others may hold it, too, as readers do.
    pub shared: bool,
}

/// A set of held locks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct SetId(u32);

impl SetId {
    /// No lock at all.
    pub const NONE: SetId = SetId(0);
}

/// All sets that were ever held. There are few of them.
#[derive(Debug)]
pub struct LockSets {
    /// In order.
    sets: Vec<Box<[Held]>>,
    ids: FxHashMap<Box<[Held]>, SetId>,
}

impl Default for LockSets {
    fn default() -> Self {
        LockSets {
            sets: vec![Box::default()],
            ids: FxHashMap::from_iter([(Box::default(), SetId::NONE)]),
        }
    }
}

impl LockSets {
    /// The number of a set, in whatever order it comes.
    pub fn id(&mut self, held: impl IntoIterator<Item = Held>) -> SetId {
        let mut set: SmallVec<[Held; 4]> = held.into_iter().collect();
        set.sort_unstable();
        set.dedup();
        if let Some(id) = self.ids.get(&set[..]) {
            return *id;
        }
        let id = SetId(self.sets.len() as u32);
        let set: Box<[Held]> = set.into_vec().into();
        self.sets.push(set.clone());
        self.ids.insert(set, id);
        id
    }

    /// The locks of a set.
    pub fn locks(&self, set: SetId) -> &[Held] {
        &self.sets[set.0 as usize]
    }

    /// The set without a lock.
    pub fn without(&mut self, set: SetId, lock: Lock) -> SetId {
        if !self.has(set, lock) {
            return set;
        }
        let rest = self.locks(set).iter().copied();
        let rest: SmallVec<[Held; 4]> = rest.filter(|held| held.lock != lock).collect();
        self.id(rest)
    }

    /// Whether the lock is in the set.
    pub fn has(&self, set: SetId, lock: Lock) -> bool {
        self.locks(set).iter().any(|held| held.lock == lock)
    }

    /// A lock because of which two threads cannot hold these sets at the same time.
    pub fn excluding(&self, a: SetId, b: SetId) -> Option<Lock> {
        let others = self.locks(b);
        let excludes = |mine: &&Held| {
            let mut same = others.iter().filter(|other| other.lock == mine.lock);
            same.any(|other| !(mine.shared && other.shared))
        };
        self.locks(a).iter().find(excludes).map(|held| held.lock)
    }
}

/// The locks that a thread holds, each as often as it has taken it.
#[derive(Clone, Debug, Default)]
pub struct Holding {
    held: SmallVec<[(Held, u32); 4]>,
    set: SetId,
}

impl Holding {
    /// As a set.
    #[inline]
    pub fn set(&self) -> SetId {
        self.set
    }

    /// How often it holds the lock.
    pub fn depth(&self, lock: Lock) -> u32 {
        let mut held = self.held.iter().filter(|(held, _)| held.lock == lock);
        held.next().map_or(0, |(_, depth)| *depth)
    }

    /// Takes a lock, so often.
    pub fn take(&mut self, sets: &mut LockSets, taken: Held, times: u32) {
        if times == 0 {
            return;
        }
        match self
            .held
            .iter_mut()
            .find(|(held, _)| held.lock == taken.lock)
        {
            Some((held, depth)) => {
                held.shared &= taken.shared;
                *depth += times;
            }
            None => self.held.push((taken, times)),
        }
        self.renumber(sets);
    }

    /// Gives a lock back once. True if it is free then.
    pub fn give(&mut self, sets: &mut LockSets, lock: Lock) -> bool {
        let Some(at) = self.held.iter().position(|(held, _)| held.lock == lock) else {
            return false;
        };
        self.held[at].1 -= 1;
        match self.held[at].1 {
            0 => {
                self.lose(sets, lock);
                true
            }
            _ => false,
        }
    }

    /// It does not hold the lock, however often it has taken it.
    pub fn lose(&mut self, sets: &mut LockSets, lock: Lock) {
        self.held.retain(|(held, _)| held.lock != lock);
        self.renumber(sets);
    }

    fn renumber(&mut self, sets: &mut LockSets) {
        self.set = sets.id(self.held.iter().map(|(held, _)| *held));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: Held = Held {
        lock: 1,
        shared: false,
    };
    const READ: Held = Held {
        lock: 2,
        shared: true,
    };
    const WRITE: Held = Held {
        lock: 2,
        shared: false,
    };

    #[test]
    fn readers_do_not_exclude_each_other() {
        let mut sets = LockSets::default();
        let (read, write) = (sets.id([READ]), sets.id([WRITE]));
        let both = sets.id([READ, A]);
        assert_eq!(sets.excluding(read, read), None);
        assert_eq!(sets.excluding(read, write), Some(2));
        assert_eq!(sets.excluding(both, read), None);
        assert_eq!(sets.excluding(both, both), Some(1));
        assert_eq!(sets.excluding(SetId::NONE, both), None);
        assert_eq!(sets.id([A, READ]), both);
        assert_eq!(sets.without(both, 1), read);
        assert_eq!(sets.without(read, 1), read);
    }

    #[test]
    fn a_lock_is_held_as_often_as_it_was_taken() {
        let mut sets = LockSets::default();
        let mut holding = Holding::default();
        holding.take(&mut sets, A, 1);
        holding.take(&mut sets, A, 1);
        assert!(!holding.give(&mut sets, 1));
        assert_eq!((holding.depth(1), holding.set()), (1, sets.id([A])));
        assert!(holding.give(&mut sets, 1));
        assert_eq!(holding.set(), SetId::NONE);
        assert!(!holding.give(&mut sets, 1), "it does not hold it");
    }
}
