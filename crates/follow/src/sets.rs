//! Sets of sources, each with a number.

use std::collections::{HashMap, HashSet};

/// The number of a set of sources; 0 is the empty one. [`Sets`] knows its members.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default, PartialOrd, Ord)]
pub struct Label(pub u32);

impl Label {
    /// Depends on nothing.
    pub const NONE: Label = Label(0);

    /// Whether there is none.
    #[must_use]
    pub fn is_none(self) -> bool {
        self == Label::NONE
    }
}

/// A set has as many members at most. What more it depends on is not known; see [`Sets::is_many`].
/// Sources that were [forgotten](Sets::forget) make room for others.
pub const MEMBERS_MAX: usize = 256;

#[derive(Clone, PartialEq, Eq, Hash)]
struct Set {
    /// In ascending order.
    members: Box<[u32]>,
    /// There are more.
    many: bool,
}

/// All sets that have come up, and what their unions are.
pub struct Sets {
    sets: Vec<Set>,
    numbers: HashMap<Set, u32>,
    singles: HashMap<u32, u32>,
    unions: HashMap<(u32, u32), u32>,
    forgotten: HashSet<u32>,
}

impl Default for Sets {
    fn default() -> Sets {
        let none = Set {
            members: Box::new([]),
            many: false,
        };
        Sets {
            numbers: HashMap::from([(none.clone(), 0)]),
            sets: vec![none],
            singles: HashMap::new(),
            unions: HashMap::new(),
            forgotten: HashSet::new(),
        }
    }
}

impl Sets {
    /// The sources in a set, in ascending order.
    #[must_use]
    pub fn members(&self, label: Label) -> &[u32] {
        self.sets
            .get(label.0 as usize)
            .map_or(&[], |set| &set.members)
    }

    /// Whether a set has more members than are listed.
    #[must_use]
    pub fn is_many(&self, label: Label) -> bool {
        self.sets.get(label.0 as usize).is_some_and(|set| set.many)
    }

    /// Whether a source is known to be in a set.
    #[must_use]
    pub fn contains(&self, label: Label, source: u32) -> bool {
        self.members(label).binary_search(&source).is_ok()
    }

    /// The set of one source.
    pub fn single(&mut self, source: u32) -> Label {
        if source == 0 {
            return Label::NONE;
        }
        if let Some(&number) = self.singles.get(&source) {
            return Label(number);
        }
        let number = self.number(Set {
            members: Box::new([source]),
            many: false,
        });
        self.singles.insert(source, number);
        Label(number)
    }

    /// The union of two sets.
    pub fn union(&mut self, a: Label, b: Label) -> Label {
        if a == b || b.is_none() {
            return a;
        }
        if a.is_none() {
            return b;
        }
        let key = (a.0.min(b.0), a.0.max(b.0));
        if let Some(&number) = self.unions.get(&key) {
            return Label(number);
        }
        let mut members = [self.members(a), self.members(b)].concat();
        members.sort_unstable();
        members.dedup();
        if members.len() > MEMBERS_MAX {
            members.retain(|source| !self.forgotten.contains(source));
        }
        let many = members.len() > MEMBERS_MAX || self.is_many(a) || self.is_many(b);
        members.truncate(MEMBERS_MAX);
        let number = self.number(Set {
            members: members.into(),
            many,
        });
        self.unions.insert(key, number);
        Label(number)
    }

    /// What depends on this source matters no more: it is left out where a set would have too many
    /// members.
    pub fn forget(&mut self, source: u32) {
        self.forgotten.insert(source);
    }

    /// The union of many.
    pub fn union_of(&mut self, labels: impl IntoIterator<Item = Label>) -> Label {
        labels
            .into_iter()
            .fold(Label::NONE, |all, label| self.union(all, label))
    }

    fn number(&mut self, set: Set) -> u32 {
        if let Some(&number) = self.numbers.get(&set) {
            return number;
        }
        let number = self.sets.len() as u32;
        self.sets.push(set.clone());
        self.numbers.insert(set, number);
        number
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_has_one_number_however_it_came_about() {
        let mut sets = Sets::default();
        let [a, b, c] = [3, 1, 2].map(|source| sets.single(source));
        let ab = sets.union(a, b);
        let left = sets.union(ab, c);
        let bc = sets.union(b, c);
        let right = sets.union(bc, a);
        assert_eq!(left, right);
        assert_eq!(sets.members(left), [1, 2, 3]);
        assert_eq!(sets.union(left, ab), left);
        assert_eq!(sets.union(Label::NONE, a), a);
        assert_eq!(sets.single(0), Label::NONE);
        assert!(sets.contains(ab, 3) && !sets.contains(ab, 2));
        assert!(sets.members(Label::NONE).is_empty() && !sets.is_many(left));
    }

    #[test]
    fn a_large_set_says_that_it_is_not_complete() {
        let mut sets = Sets::default();
        let all: Vec<Label> = (1..=MEMBERS_MAX as u32).map(|n| sets.single(n)).collect();
        let full = sets.union_of(all);
        assert!(!sets.is_many(full));
        let one_more = sets.single(9999);
        let many = sets.union(full, one_more);
        assert!(sets.is_many(many));
        assert_eq!(sets.members(many).len(), MEMBERS_MAX);
        assert_eq!(sets.union(many, one_more), many);
    }

    #[test]
    fn what_is_forgotten_makes_room() {
        let mut sets = Sets::default();
        let all: Vec<Label> = (1..=MEMBERS_MAX as u32).map(|n| sets.single(n)).collect();
        let full = sets.union_of(all);
        for source in 1..=MEMBERS_MAX as u32 - 1 {
            sets.forget(source);
        }
        let one_more = sets.single(9999);
        let now = sets.union(full, one_more);
        assert!(!sets.is_many(now));
        assert_eq!(sets.members(now), [MEMBERS_MAX as u32, 9999]);
    }
}
