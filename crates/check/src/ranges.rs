//! Sets and maps of byte ranges.

use std::collections::BTreeMap;

use brownout_model::ByteRange;

/// Disjoint ranges with a value each. A later insertion overwrites what it overlaps.
#[derive(Clone, Debug)]
pub struct RangeMap<V> {
    /// By first address: the end, and the value.
    ranges: BTreeMap<u64, (u64, V)>,
}

impl<V> Default for RangeMap<V> {
    fn default() -> Self {
        RangeMap {
            ranges: BTreeMap::new(),
        }
    }
}

/// Ranges without values.
pub type RangeSet = RangeMap<()>;

impl<V: Copy + PartialEq> RangeMap<V> {
    /// True if nothing is in it.
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// Number of ranges.
    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.ranges.len()
    }

    /// Takes `range` out.
    pub fn remove(&mut self, range: ByteRange) {
        let (start, end) = (range.start().0, range.end().0);
        if start >= end {
            return;
        }
        if let Some((_, (first_end, value))) = self.ranges.range_mut(..start).next_back()
            && *first_end > start
        {
            let (old_end, value) = (*first_end, *value);
            *first_end = start;
            if old_end > end {
                self.ranges.insert(end, (old_end, value));
                return;
            }
        }
        while let Some((&at, &(at_end, value))) = self.ranges.range(start..end).next() {
            self.ranges.remove(&at);
            if at_end > end {
                self.ranges.insert(end, (at_end, value));
            }
        }
    }

    /// Sets the value of `range`. Neighbours of the same value become one.
    pub fn insert(&mut self, range: ByteRange, value: V) {
        if range.is_empty() {
            return;
        }
        self.remove(range);
        let (mut start, mut end) = (range.start().0, range.end().0);
        if let Some((&at, &(at_end, other))) = self.ranges.range(..start).next_back()
            && at_end == start
            && other == value
        {
            self.ranges.remove(&at);
            start = at;
        }
        if let Some(&(at_end, other)) = self.ranges.get(&end)
            && other == value
        {
            self.ranges.remove(&end);
            end = at_end;
        }
        self.ranges.insert(start, (end, value));
    }

    /// The parts of `range` that have a value, in address order.
    pub fn overlapping(&self, range: ByteRange) -> impl Iterator<Item = (ByteRange, V)> {
        let (start, end) = (range.start().0, range.end().0);
        let first = self
            .ranges
            .range(..start)
            .next_back()
            .filter(|(_, (at_end, _))| *at_end > start)
            .map_or(start, |(at, _)| *at);
        self.ranges
            .range(first..end.max(first))
            .map(move |(at, (at_end, value))| {
                let from = (*at).max(start);
                let to = (*at_end).min(end);
                let part = ByteRange::new(brownout_trace::event::TargetAddr(from), to - from);
                (part, *value)
            })
    }

    /// True if part of `range` has a value.
    pub fn overlaps(&self, range: ByteRange) -> bool {
        self.overlapping(range).next().is_some()
    }

    /// The parts of `range` without value, in address order.
    pub fn gaps(&self, range: ByteRange) -> Vec<ByteRange> {
        let mut gaps = Vec::new();
        let mut at = range.start().0;
        let piece = |from: u64, to: u64| {
            ByteRange::new(brownout_trace::event::TargetAddr(from), to - from)
        };
        for (part, _) in self.overlapping(range) {
            if part.start().0 > at {
                gaps.push(piece(at, part.start().0));
            }
            at = part.end().0;
        }
        if at < range.end().0 {
            gaps.push(piece(at, range.end().0));
        }
        gaps
    }

    /// True if all of `range` has a value.
    pub fn covers(&self, range: ByteRange) -> bool {
        let mut at = range.start().0;
        for (part, _) in self.overlapping(range) {
            if part.start().0 > at {
                return false;
            }
            at = part.end().0;
        }
        at >= range.end().0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use brownout_trace::event::TargetAddr;

    fn r(start: u64, end: u64) -> ByteRange {
        ByteRange::new(TargetAddr(start), end - start)
    }

    /// Against an array with one cell a byte, over every pair of small ranges.
    #[test]
    fn agrees_with_bytes() {
        for a in 0..8u64 {
            for b in a..=8 {
                for c in 0..8u64 {
                    for d in c..=8 {
                        let mut map = RangeMap::default();
                        let mut bytes = [0u8; 8];
                        let set = |bytes: &mut [u8; 8], s: u64, e: u64, v| {
                            bytes[s as usize..e as usize].fill(v)
                        };
                        map.insert(r(1, 3), 1);
                        set(&mut bytes, 1, 3, 1);
                        map.insert(r(4, 7), 2);
                        set(&mut bytes, 4, 7, 2);
                        map.insert(r(a, b), 3);
                        set(&mut bytes, a, b, 3);
                        map.remove(r(c, d));
                        set(&mut bytes, c, d, 0);
                        let mut seen = [0u8; 8];
                        for (part, value) in map.overlapping(r(0, 8)) {
                            set(&mut seen, part.start().0, part.end().0, value);
                        }
                        assert_eq!(seen, bytes);
                        let window = &bytes[c as usize..d as usize];
                        assert_eq!(map.covers(r(c, d)), window.iter().all(|v| *v != 0));
                        assert_eq!(map.overlaps(r(a, b)), bytes[a as usize..b as usize].iter().any(|v| *v != 0));
                        let gaps: u64 = map.gaps(r(0, 8)).iter().map(|gap| gap.len()).sum();
                        assert_eq!(gaps, bytes.iter().filter(|v| **v == 0).count() as u64);
                    }
                }
            }
        }
    }

    #[test]
    fn neighbours_join() {
        let mut set = RangeSet::default();
        for i in [0, 2, 1, 3] {
            set.insert(r(i * 8, i * 8 + 8), ());
        }
        assert_eq!(set.len(), 1);
        assert!(set.covers(r(0, 32)) && !set.covers(r(0, 33)));
    }
}
