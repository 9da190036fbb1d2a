//! A bounded memory of what was used lately.

use std::collections::HashMap;
use std::hash::Hash;
use std::mem;

/// Two generations: what is used goes to the young one; when that is full, it becomes the old one,
/// and what was old and has not been used since is forgotten. Costs one look-up, needs no list, and
/// keeps at least as much of what was used last as fits half of the room.
pub(crate) struct Cache<K, V> {
    /// Room of a generation, in whatever unit values are weighed.
    half: usize,
    young: HashMap<K, (V, usize)>,
    young_weight: usize,
    old: HashMap<K, (V, usize)>,
}

impl<K: Hash + Eq + Copy, V: Clone> Cache<K, V> {
    pub fn new(room: usize) -> Self {
        Cache {
            half: room / 2,
            young: HashMap::new(),
            young_weight: 0,
            old: HashMap::new(),
        }
    }

    pub fn get(&mut self, key: K) -> Option<V> {
        if let Some((value, _)) = self.young.get(&key) {
            return Some(value.clone());
        }
        let (value, weight) = self.old.remove(&key)?;
        self.insert(key, value.clone(), weight);
        Some(value)
    }

    pub fn clear(&mut self) {
        self.young.clear();
        self.old.clear();
        self.young_weight = 0;
    }

    pub fn insert(&mut self, key: K, value: V, weight: usize) {
        if self.young_weight + weight > self.half {
            self.old = mem::take(&mut self.young);
            self.young_weight = 0;
        }
        let before = self.young.insert(key, (value, weight));
        let before = before.map_or(0, |(_, weight)| weight);
        self.young_weight = self.young_weight - before + weight;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_what_is_used_and_forgets_the_rest() {
        let mut cache = Cache::new(8);
        cache.insert(0, 0, 1);
        for n in 1..100 {
            cache.insert(n, n, 1);
            assert_eq!(cache.get(0), Some(0), "used all the time");
            assert_eq!(cache.get(n), Some(n));
        }
        assert_eq!(cache.get(50), None);
        assert!(cache.young.len() + cache.old.len() <= 8);
        // Something heavy pushes the others out, in two steps.
        cache.insert(200, 0, 4);
        cache.insert(201, 0, 4);
        assert_eq!(cache.get(0), None);
        assert_eq!(cache.get(200), Some(0));
        cache.clear();
        assert_eq!(cache.get(200), None);
    }
}
