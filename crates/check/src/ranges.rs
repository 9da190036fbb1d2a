//! Sets and maps of byte ranges.

use brownout_model::{ByteRange, Key};

use crate::sorted::{Sorted, Span};

/// Disjoint ranges with a value each. A later insertion overwrites what it overlaps.
#[derive(Clone, Debug)]
pub struct RangeMap<V> {
    spans: Sorted<V>,
    /// Everything lies, or once lay, between these: most questions are about elsewhere.
    hull: (u64, u64),
    /// Part of what has a value, where something was asked for or put in last: the next question is
    /// most often about the same.
    recent: (u64, u64),
}

impl<V: Copy> Default for RangeMap<V> {
    fn default() -> Self {
        RangeMap {
            spans: Sorted::new(),
            hull: (u64::MAX, 0),
            recent: (0, 0),
        }
    }
}

/// Ranges without values.
pub type RangeSet = RangeMap<()>;

fn piece(from: u64, to: u64) -> ByteRange {
    ByteRange::new(Key(from), to - from)
}

impl<V: Copy + PartialEq> RangeMap<V> {
    /// True if nothing is in it.
    pub fn is_empty(&self) -> bool {
        self.spans.is_empty()
    }

    /// Number of ranges.
    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.spans.iter().count()
    }

    fn add(&mut self, start: u64, end: u64, value: V) {
        self.hull = (self.hull.0.min(start), self.hull.1.max(end));
        self.spans.insert(Span { start, end, value });
    }

    /// Takes everything out.
    pub fn clear(&mut self) {
        self.spans.clear();
        self.hull = (u64::MAX, 0);
        self.recent = (0, 0);
    }

    /// Takes `range` out.
    pub fn remove(&mut self, range: ByteRange) {
        let (start, end) = (range.start().0, range.end().0);
        if start >= end {
            return;
        }
        self.recent = (0, 0);
        let at = self.spans.seek(start);
        // Most often what goes is what once came.
        if let Some(span) = self.spans.get(at)
            && (span.start, span.end) == (start, end)
        {
            self.spans.remove(at);
            return;
        }
        if let Some(before) = self.spans.before(at)
            && let Some(span) = self.spans.get_mut(before)
            && span.end > start
        {
            let rest = Span {
                start: end,
                ..*span
            };
            span.end = start;
            if rest.end > end {
                self.spans.insert(rest);
                return;
            }
        }
        loop {
            let at = self.spans.seek(start);
            let Some(span) = self.spans.get_mut(at).filter(|span| span.start < end) else {
                return;
            };
            if span.end > end {
                span.start = end;
                return;
            }
            self.spans.remove(at);
        }
    }

    /// Sets the value of `range`. Neighbours of the same value become one.
    pub fn insert(&mut self, range: ByteRange, value: V) {
        if range.is_empty() {
            return;
        }
        self.remove(range);
        let (mut start, mut end) = (range.start().0, range.end().0);
        let at = self.spans.seek(start);
        if let Some(after) = self.spans.get(at).copied()
            && after.start == end
            && after.value == value
        {
            end = after.end;
            self.spans.remove(at);
        }
        if let Some(before) = self.spans.before(self.spans.seek(start))
            && let Some(span) = self.spans.get(before).copied()
            && span.end == start
            && span.value == value
        {
            start = span.start;
            self.spans.remove(before);
        }
        self.add(start, end, value);
    }

    /// Sets the value of those parts of `range` that have none.
    pub fn insert_new(&mut self, range: ByteRange, value: V) {
        if range.is_empty() {
            return;
        }
        let (start, end) = (range.start().0, range.end().0);
        let at = self.spans.seek(start);
        let reaches_in = |before| self.spans.get(before).is_some_and(|span| span.end > start);
        if self.spans.before(at).is_some_and(reaches_in)
            || self.spans.get(at).is_some_and(|span| span.start < end)
        {
            for gap in self.gaps(range) {
                self.insert(gap, value);
            }
        } else {
            self.hull = (self.hull.0.min(start), self.hull.1.max(end));
            self.spans.insert_at(at, Span { start, end, value });
            self.recent = (start, end);
        }
    }

    /// The parts of `range` that have a value, in address order.
    pub fn overlapping(&self, range: ByteRange) -> impl Iterator<Item = (ByteRange, V)> {
        let (start, end) = (range.start().0, range.end().0);
        // An empty range asks for nothing, also inside another.
        let end = if range.is_empty() { 0 } else { end };
        let at = self.spans.seek(start);
        let reaches_in = |before: &_| self.spans.get(*before).is_some_and(|s| s.end > start);
        let first = self.spans.before(at).filter(reaches_in).unwrap_or(at);
        self.spans
            .from(first)
            .take_while(move |span| span.start < end)
            .map(move |span| {
                let part = piece(span.start.max(start), span.end.min(end));
                (part, span.value)
            })
    }

    /// True if part of `range` has a value.
    #[inline]
    pub fn overlaps(&self, range: ByteRange) -> bool {
        range.start().0 < self.hull.1
            && range.end().0 > self.hull.0
            && self.overlapping(range).next().is_some()
    }

    /// The parts of `range` without value, in address order.
    pub fn gaps(&self, range: ByteRange) -> Vec<ByteRange> {
        let mut gaps = Vec::new();
        let mut at = range.start().0;
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

    /// As [`covers`](Self::covers), and remembers where it was.
    #[inline]
    pub fn has(&mut self, range: ByteRange) -> bool {
        if range.start().0 >= self.recent.0 && range.end().0 <= self.recent.1 {
            return true;
        }
        let covered = self.covers(range);
        if covered {
            self.recent = (range.start().0, range.end().0);
            let after = self.spans.seek(range.start().0.saturating_add(1));
            if let Some(span) = self.spans.before(after).and_then(|p| self.spans.get(p))
                && span.end >= range.end().0
            {
                self.recent = (span.start, span.end);
            }
        }
        covered
    }

    /// True if all of `range` has a value.
    pub fn covers(&self, range: ByteRange) -> bool {
        let mut at = range.start().0;
        // Most often one range has it all, or none has its beginning.
        let after = self.spans.seek(at.saturating_add(1));
        match self.spans.before(after).and_then(|p| self.spans.get(p)) {
            Some(span) if span.end >= range.end().0 => return true,
            Some(span) if span.end > at => {}
            _ => return range.is_empty(),
        }
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

    fn r(start: u64, end: u64) -> ByteRange {
        ByteRange::new(Key(start), end - start)
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
                        for _ in 0..2 {
                            assert_eq!(map.has(r(c, d)), map.covers(r(c, d)));
                            assert_eq!(map.has(r(a, b)), map.covers(r(a, b)));
                        }
                        assert_eq!(
                            map.overlaps(r(a, b)),
                            bytes[a as usize..b as usize].iter().any(|v| *v != 0)
                        );
                        let mut filled = map.clone();
                        filled.insert_new(r(a, b), 9);
                        for (i, old) in bytes.iter().enumerate() {
                            let new = filled.overlapping(r(i as u64, i as u64 + 1)).next();
                            let inside = (a..b).contains(&(i as u64));
                            let expected = match (*old, inside) {
                                (0, true) => Some(9),
                                (0, false) => None,
                                (old, _) => Some(old),
                            };
                            assert_eq!(new.map(|(_, v)| v), expected);
                        }
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
