//! A set of addresses, as ranges without overlap.

use std::collections::BTreeMap;

/// Ranges are inclusive, so that the last byte of the address space can be in one.
#[derive(Debug, Default)]
pub struct Ranges {
    /// First address to last address; neighbours are merged.
    ranges: BTreeMap<u64, u64>,
}

impl Ranges {
    /// The range that holds `addr`.
    pub fn around(&self, addr: u64) -> Option<(u64, u64)> {
        let (&first, &last) = self.ranges.range(..=addr).next_back()?;
        (addr <= last).then_some((first, last))
    }

    /// The largest range around `addr`, inside `first..=last`, of which nothing is in the set;
    /// `None` if `addr` is.
    pub fn gap(&self, addr: u64, first: u64, last: u64) -> Option<(u64, u64)> {
        let from = match self.ranges.range(..=addr).next_back() {
            Some((_, &end)) if addr <= end => return None,
            Some((_, &end)) => first.max(end + 1),
            None => first,
        };
        let to = match self.ranges.range(addr..).next() {
            Some((&start, _)) => last.min(start - 1),
            None => last,
        };
        Some((from, to))
    }

    /// True if any of `first..=last` is in the set.
    pub fn touches(&self, first: u64, last: u64) -> bool {
        self.ranges
            .range(..=last)
            .next_back()
            .is_some_and(|(_, &end)| end >= first)
    }

    /// Adds `first..=last`.
    pub fn insert(&mut self, first: u64, last: u64) {
        let (mut from, mut to) = (first, last);
        while let Some((&start, &end)) = self.ranges.range(..=to.saturating_add(1)).next_back()
            && end.saturating_add(1) >= from
        {
            self.ranges.remove(&start);
            from = from.min(start);
            to = to.max(end);
        }
        self.ranges.insert(from, to);
    }

    /// The lowest place at or above `from`, a multiple of `align`, where `len` bytes (at least 1)
    /// are free.
    pub fn free(&self, from: u64, len: u64, align: u64) -> Option<u64> {
        let mut at = from.checked_next_multiple_of(align)?;
        loop {
            let last = at.checked_add(len - 1)?;
            let Some((_, &end)) = self.ranges.range(..=last).next_back() else {
                return Some(at);
            };
            if end < at {
                return Some(at);
            }
            at = end.checked_add(1)?.checked_next_multiple_of(align)?;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Against a set of single addresses.
        #[test]
        fn agrees_with_a_plain_set(
            inserts in prop::collection::vec((0u64..64, 0u64..12), 0..12),
            addr in 0u64..80,
            (low, high) in (0u64..80, 0u64..80),
            len in 1u64..10,
        ) {
            let mut ranges = Ranges::default();
            let mut plain = std::collections::BTreeSet::new();
            for (first, more) in inserts {
                ranges.insert(first, first + more);
                plain.extend(first..=first + more);
            }
            prop_assert_eq!(ranges.around(addr).is_some(), plain.contains(&addr));
            if let Some((first, last)) = ranges.around(addr) {
                prop_assert!((first..=last).all(|at| plain.contains(&at)));
                prop_assert!(first == 0 || !plain.contains(&(first - 1)));
                prop_assert!(!plain.contains(&(last + 1)));
            }
            let (first, last) = (low.min(high), low.max(high));
            prop_assert_eq!(
                ranges.touches(first, last),
                (first..=last).any(|at| plain.contains(&at))
            );
            match ranges.gap(addr, addr.saturating_sub(8), addr + 8) {
                None => prop_assert!(plain.contains(&addr)),
                Some((from, to)) => {
                    prop_assert!((from..=to).contains(&addr));
                    prop_assert!((from..=to).all(|at| !plain.contains(&at)));
                    prop_assert!(from == addr.saturating_sub(8) || plain.contains(&(from - 1)));
                    prop_assert!(to == addr + 8 || plain.contains(&(to + 1)));
                }
            }
            let free = ranges.free(first, len, 4).expect("there is room");
            let is_free = |at: u64| (at..at + len).all(|at| !plain.contains(&at));
            prop_assert!(is_free(free) && free % 4 == 0 && free >= first);
            prop_assert!((first..free).all(|at| at % 4 != 0 || !is_free(at)));
        }
    }

    #[test]
    fn the_end_of_the_address_space() {
        let mut ranges = Ranges::default();
        ranges.insert(u64::MAX - 7, u64::MAX);
        ranges.insert(0, 0);
        assert_eq!(ranges.around(u64::MAX), Some((u64::MAX - 7, u64::MAX)));
        assert_eq!(ranges.gap(5, 0, u64::MAX), Some((1, u64::MAX - 8)));
        assert_eq!(ranges.free(u64::MAX - 100, 4096, 4096), None);
    }
}
