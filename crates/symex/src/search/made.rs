//! Inputs that are made of others: with something inserted, or with what has led somewhere once more. Why, says `search`.

use super::Search;
use super::pieces::{squeezed, with_inserted};

/// So many inputs that were not solved for wait at most.
const MADE_MAX: usize = 256;
/// What may stand between two chunks of a text.
const BETWEEN: [&[u8]; 3] = [b"\n", b" ", b""];
/// So many chunks are kept.
const CHUNKS_MAX: usize = 64;

impl Search<'_> {
    /// Whether to try what has new bytes inserted: as often as that has shown something new, compared with what was solved for; never quite never.
    pub(super) fn is_worth_inserting(&mut self) -> bool {
        let [solved, made] = [0, 1].map(|n| (self.fruits[n] + 2.0) / (self.tried_so[n] + 4.0));
        self.random.f64() < (made / solved).max(1.0 / 16.0)
    }

    /// An input to be run soon, unless it was.
    pub(super) fn make(&mut self, input: Vec<u8>, from: Option<bool>) {
        if self.made.len() < MADE_MAX && self.inputs.insert(input.clone()) {
            self.made.push_back((input, from));
        }
    }

    /// The input without most of what nobody has solved for: where something was found far behind, so that there is room for more.
    pub(super) fn squeeze(&mut self, input: &[u8]) {
        if let Some(made) = squeezed(input, &self.options.first) {
            self.make(made, Some(false));
        }
    }

    /// Inputs that do once and twice more what has led to a change of persistent memory, and what has done so elsewhere.
    pub(super) fn repeat(&mut self, input: &[u8], ends: &[u32]) {
        let mut from = 0;
        let mut last = None;
        for end in ends {
            let end = (*end as usize).min(input.len());
            if end > from {
                last = Some((from, end));
                from = end;
            }
        }
        let Some((from, end)) = last else {
            return;
        };
        // Where the last byte is that the first input did not have there: what looks further than it must gives no better end.
        let first = &self.options.first;
        let other = input.iter().zip(first).rposition(|(a, b)| a != b);
        let tight = other.map_or(end, |at| (at + 1).clamp(from, end));
        let mut ways = vec![(end, &b""[..])];
        if tight > from && tight < end {
            ways.extend(BETWEEN.map(|between| (tight, between)));
        }
        for (end, between) in ways {
            let chunk = [between, &input[from..end]].concat();
            self.make(with_inserted(input, end, &chunk), None);
            self.make(with_inserted(input, end, &chunk.repeat(2)), None);
            if !self.chunks.is_empty() {
                let other = self.random.usize(..self.chunks.len());
                let other = [between, &self.chunks[other]].concat();
                self.make(with_inserted(input, end, &other), None);
            }
        }
        let chunk = input[from..tight].to_vec();
        if !chunk.is_empty() && !self.chunks.contains(&chunk) && self.chunks.len() < CHUNKS_MAX {
            self.chunks.push(chunk);
        }
    }
}
