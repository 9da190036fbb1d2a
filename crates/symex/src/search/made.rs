//! Inputs that are made of others: with something inserted, or with what has led somewhere once more. Why, says `search`.

use std::collections::VecDeque;

use super::pieces::{Piece, squeezed, with_inserted};
use super::{Made, Search};

/// So many inputs that were not solved for wait at most, of each urgency.
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

    /// An input to be run soon, unless it was. If too many wait, those that have waited longest are forgotten.
    pub(super) fn make(&mut self, mut input: Vec<u8>, from: Option<bool>, is_urgent: bool) {
        self.layout.fix(&mut input, &self.options.first);
        if self.inputs.insert(input.clone()) {
            let queue = &mut self.made[usize::from(!is_urgent)];
            if queue.len() >= MADE_MAX
                && let Some((forgotten, _)) = queue.pop_front()
            {
                self.inputs.remove(&forgotten);
            }
            queue.push_back((input, from));
        }
    }

    /// The next of them.
    pub(super) fn next_made(&mut self) -> Option<Made> {
        self.made.iter_mut().find_map(VecDeque::pop_front)
    }

    /// The input without most of what nobody has solved for: where something was found far behind, so that there is room for more.
    pub(super) fn squeeze(&mut self, input: &[u8], is_urgent: bool) {
        if let Some(made) = squeezed(input, &self.options.first) {
            self.make(made, Some(false), is_urgent);
        }
    }

    /// Inputs that do once and twice more what has led to a change of persistent memory, three times nothing but that, and what has done so elsewhere.
    pub(super) fn repeat(&mut self, input: &[u8], piece: Piece, is_urgent: bool) {
        let from = piece.from;
        let end = piece.end.min(input.len());
        if from >= end {
            return;
        }
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
            self.make(with_inserted(input, end, &chunk), None, is_urgent);
            self.make(with_inserted(input, end, &chunk.repeat(2)), None, is_urgent);
            if !self.chunks.is_empty() {
                let other = self.random.usize(..self.chunks.len());
                let other = [between, &self.chunks[other]].concat();
                self.make(with_inserted(input, end, &other), None, is_urgent);
            }
        }
        // And without what was before it, three times: there may have been too much of something, or no room.
        let alone = [&input[from..tight], b"\n"].concat().repeat(3);
        self.make(
            with_inserted(&self.options.first, 0, &alone),
            None,
            is_urgent,
        );
        let chunk = input[from..tight].to_vec();
        if !chunk.is_empty() && !self.chunks.contains(&chunk) && self.chunks.len() < CHUNKS_MAX {
            self.chunks.push(chunk);
        }
    }
}
