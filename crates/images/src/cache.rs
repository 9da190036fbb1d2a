//! A bounded memory of what was used lately.

use std::collections::HashMap;
use std::hash::Hash;
use std::mem;

/// Two generations: what is used goes to the young one; when that is full, it becomes the old one,
/// and what was old and has not been used since is forgotten. Costs one look-up, needs no list, and
/// keeps at least the `half_len` values that were used last.
pub(crate) struct Cache<K, V> {
    half_len: usize,
    young: HashMap<K, V>,
    old: HashMap<K, V>,
}

impl<K: Hash + Eq + Copy, V: Clone> Cache<K, V> {
    pub fn new(half_len: usize) -> Self {
        Cache {
            half_len,
            young: HashMap::new(),
            old: HashMap::new(),
        }
    }

    pub fn get(&mut self, key: K) -> Option<V> {
        if let Some(value) = self.young.get(&key) {
            return Some(value.clone());
        }
        let value = self.old.remove(&key)?;
        self.insert(key, value.clone());
        Some(value)
    }

    pub fn clear(&mut self) {
        self.young.clear();
        self.old.clear();
    }

    pub fn insert(&mut self, key: K, value: V) {
        if self.young.len() >= self.half_len {
            self.old = mem::take(&mut self.young);
        }
        self.young.insert(key, value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_what_is_used_and_forgets_the_rest() {
        let mut cache = Cache::new(4);
        cache.insert(0, 0);
        for n in 1..100 {
            cache.insert(n, n);
            assert_eq!(cache.get(0), Some(0), "used all the time");
            assert_eq!(cache.get(n), Some(n));
        }
        assert_eq!(cache.get(50), None);
        assert!(cache.young.len() + cache.old.len() <= 8);
    }
}
