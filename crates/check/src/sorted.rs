//! Ranges sorted by their beginning, in chunks: what [`RangeMap`](crate::ranges::RangeMap) is made
//! of.
//!
//! Transactions log and unlog a handful of ranges millions of times, and now and then a hundred
//! thousand. A plain vector is fastest for the former; chunks of bounded length keep the latter
//! from being quadratic.

/// From `start` up to `end`, with a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span<V> {
    pub start: u64,
    pub end: u64,
    pub value: V,
}

/// A chunk is cut in two at this length.
const CHUNK_LEN_MAX: usize = 256;

/// Spans by start. No two have the same start; whether they overlap is the caller's business.
#[derive(Clone, Debug)]
pub struct Sorted<V> {
    /// None is empty, but for the only one.
    chunks: Vec<Vec<Span<V>>>,
}

/// Where a span is: chunk, and place in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Position(usize, usize);

impl<V: Copy> Sorted<V> {
    pub fn new() -> Self {
        Sorted {
            chunks: vec![Vec::new()],
        }
    }

    pub fn is_empty(&self) -> bool {
        self.chunks[0].is_empty()
    }

    pub fn clear(&mut self) {
        self.chunks.truncate(1);
        self.chunks[0].clear();
    }

    #[cfg(test)]
    pub fn iter(&self) -> impl Iterator<Item = &Span<V>> {
        self.chunks.iter().flatten()
    }

    /// The first span that starts at or after `start`; one past the last of a chunk if that is all
    /// there is.
    #[inline]
    pub fn seek(&self, start: u64) -> Position {
        let chunk = match self.chunks.len() {
            1 => 0,
            // The last chunk that begins before `start`, or the first of all.
            _ => self
                .chunks
                .partition_point(|chunk| chunk[0].start < start)
                .saturating_sub(1),
        };
        let spans = &self.chunks[chunk];
        let at = spans.partition_point(|span| span.start < start);
        match at == spans.len() && chunk + 1 < self.chunks.len() {
            true => Position(chunk + 1, 0),
            false => Position(chunk, at),
        }
    }

    pub fn get(&self, Position(chunk, at): Position) -> Option<&Span<V>> {
        self.chunks[chunk].get(at)
    }

    pub fn get_mut(&mut self, Position(chunk, at): Position) -> Option<&mut Span<V>> {
        self.chunks[chunk].get_mut(at)
    }

    pub fn before(&self, Position(chunk, at): Position) -> Option<Position> {
        match at {
            0 => chunk
                .checked_sub(1)
                .map(|chunk| Position(chunk, self.chunks[chunk].len() - 1)),
            _ => Some(Position(chunk, at - 1)),
        }
    }

    /// The spans from a position on.
    pub fn from(&self, Position(chunk, at): Position) -> impl Iterator<Item = &Span<V>> {
        let first = self.chunks[chunk].get(at..).unwrap_or_default();
        first
            .iter()
            .chain(self.chunks[chunk + 1..].iter().flatten())
    }

    /// Adds a span whose start is not there yet.
    pub fn insert(&mut self, span: Span<V>) {
        self.insert_at(self.seek(span.start), span);
    }

    /// Adds a span where [`seek`](Self::seek) of its start has pointed to.
    pub fn insert_at(&mut self, Position(chunk, at): Position, span: Span<V>) {
        let spans = &mut self.chunks[chunk];
        spans.insert(at, span);
        if spans.len() > CHUNK_LEN_MAX {
            let upper = spans.split_off(CHUNK_LEN_MAX / 2);
            self.chunks.insert(chunk + 1, upper);
        }
    }

    pub fn remove(&mut self, Position(chunk, at): Position) -> Span<V> {
        let span = self.chunks[chunk].remove(at);
        if self.chunks[chunk].is_empty() && self.chunks.len() > 1 {
            self.chunks.remove(chunk);
        }
        span
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use brownout_random::Random;
    use std::collections::BTreeMap;

    /// Against a tree, with enough spans for many chunks, inserted in random order.
    #[test]
    fn agrees_with_a_tree() {
        let mut sorted = Sorted::new();
        let mut tree = BTreeMap::new();
        let mut random = Random::new(1);
        for round in 0..6000u64 {
            let start = random.below(1 << 14);
            let position = sorted.seek(start);
            let there = sorted.get(position).is_some_and(|span| span.start == start);
            assert_eq!(there, tree.contains_key(&start));
            match there {
                true if round % 2 == 0 => {
                    sorted.remove(position);
                    tree.remove(&start);
                }
                true => {}
                false => {
                    sorted.insert(Span {
                        start,
                        end: start + 1,
                        value: round,
                    });
                    tree.insert(start, round);
                }
            }
            let next = sorted
                .from(sorted.seek(start))
                .next()
                .map(|span| span.start);
            assert_eq!(next, tree.range(start..).next().map(|(k, _)| *k));
            let before = sorted
                .before(sorted.seek(start))
                .and_then(|p| sorted.get(p));
            assert_eq!(
                before.map(|s| s.start),
                tree.range(..start).next_back().map(|(k, _)| *k)
            );
        }
        let all: Vec<(u64, u64)> = sorted.iter().map(|s| (s.start, s.value)).collect();
        assert_eq!(all, tree.clone().into_iter().collect::<Vec<_>>());
        for start in tree.keys() {
            sorted.remove(sorted.seek(*start));
        }
        assert!(sorted.is_empty() && sorted.iter().next().is_none());
    }
}
