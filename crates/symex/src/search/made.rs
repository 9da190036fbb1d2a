//! Inputs that are made of others: with something inserted, or with what has led somewhere once
//! more. Why, says `search`.

use std::collections::VecDeque;

use super::pieces::{Long, Piece, squeezed, tightened, used, varied, with_inserted};
use super::{Made, Search};
use crate::options::Error;

/// So many inputs that were not solved for wait at most, of each urgency.
const MADE_MAX: usize = 256;

/// What may stand between two chunks of a text.
const BETWEEN: [&[u8]; 3] = [b"\n", b" ", b""];
/// A chunk is combined with so many others.
const COMBINED: usize = 8;
/// So many chunks are kept.
const CHUNKS_MAX: usize = 64;

/// So many inputs wait to be shortened.
const LONG_MAX: usize = 16;
/// One run of so many is for that.
const SHORTEN_EVERY: u64 = 2;

/// After so many paths without anything new, one of so many is longer than one that was new
/// somewhere, and as many are beside one by chance.
const STALLED: u64 = 100;
const CHANCE_EVERY: u8 = 6;
/// So many notable inputs are kept. Of these, the last few are as likely as all.
const NOTABLE_MAX: usize = 256;
const NOTABLE_LAST: usize = 8;
/// So many places of one input are changed at most.
const CHANGES_MAX: u32 = 4;
/// So often an input is made that was run already, before that is given up.
const ATTEMPTS: u32 = 8;

impl Search<'_> {
    /// An input has led to something new.
    pub(super) fn note(&mut self, input: &[u8]) {
        self.notable_at = self.numbers.paths;
        if self.notable.len() < NOTABLE_MAX {
            self.notable.push(input.to_vec());
            self.lengthened.push(used(input, &self.options.first));
        }
    }

    /// Whether nothing new was found for some time, and it is time to try what is beside inputs
    /// that have found something: where the program does not look at the input, nothing says that
    /// it might (a word that is empty is compared with nothing).
    fn is_time_for_chance(&mut self) -> bool {
        let is_stalled = self.numbers.paths > self.notable_at + STALLED;
        let can_be = is_stalled && !self.notable.is_empty() && !self.has_places();
        can_be && self.random.u8(..CHANCE_EVERY) == 0
    }

    /// An input beside one that has led to something new, if it is time for that.
    pub(super) fn neighbour(&mut self) -> Option<Vec<u8>> {
        if !self.is_time_for_chance() {
            return None;
        }
        for _ in 0..ATTEMPTS {
            let mut input = self.any_notable().to_vec();
            let mut changes = 1;
            while changes < CHANGES_MAX && self.random.bool() {
                changes += 1;
            }
            for _ in 0..changes {
                let other = self.any_notable().to_vec();
                input = varied(&input, &other, &self.options.first, &mut self.random);
            }
            self.layout.fix(&mut input, &self.options.first);
            if self.inputs.insert(input.clone()) {
                return Some(input);
            }
        }
        None
    }

    /// One of those that have led to something new, the newest first, with one more byte somewhere:
    /// a digit at a number, else a letter. Each place has its turn.
    pub(super) fn longer(&mut self) -> Option<Vec<u8>> {
        if !self.is_time_for_chance() {
            return None;
        }
        for number in (0..self.notable.len()).rev() {
            while let Some(at) = self.lengthened[number].checked_sub(1) {
                self.lengthened[number] = at;
                let input = &self.notable[number];
                let byte = match input[at].is_ascii_digit() {
                    true => b'1',
                    false => b'a',
                };
                let mut made = with_inserted(input, at, &[byte]);
                self.layout.fix(&mut made, &self.options.first);
                if self.inputs.insert(made.clone()) {
                    return Some(made);
                }
            }
        }
        None
    }

    fn any_notable(&mut self) -> &[u8] {
        let all = self.notable.len();
        let last = match self.random.bool() {
            true => all.min(NOTABLE_LAST),
            false => all,
        };
        &self.notable[all - 1 - self.random.usize(..last)]
    }

    /// What has led from somewhere in the newest input to a way that none had gone, is to be made
    /// shorter if it does not fit three times.
    pub(super) fn shorten_later(&mut self, input: &[u8], name: u64, from: usize) {
        let first = &self.options.first;
        let other = input.iter().zip(first).rposition(|(a, b)| a != b);
        let left = other.map_or(0, |at| at + 1);
        if (left.saturating_sub(from) + 1) * 3 > input.len() && self.long.len() < LONG_MAX {
            self.long.push_back(Long {
                input: input.to_vec(),
                name,
                left,
            });
        }
    }

    /// Runs one of them without one of its bytes, if it is time for that. What goes the same way
    /// without it takes its place.
    pub(super) fn shortens(&mut self) -> Result<bool, Error> {
        match self.numbers.paths.is_multiple_of(SHORTEN_EVERY) {
            true => self.shortens_now(),
            false => Ok(false),
        }
    }

    /// The same, whether it is time for that or not.
    pub(super) fn shortens_now(&mut self) -> Result<bool, Error> {
        while let Some(mut long) = self.long.pop_front() {
            while long.left > 0 {
                long.left -= 1;
                let mut shorter = long.input.clone();
                shorter.remove(long.left);
                shorter.extend(self.options.first.last());
                self.layout.fix(&mut shorter, &self.options.first);
                if shorter == long.input || !self.inputs.insert(shorter.clone()) {
                    continue;
                }
                self.numbers.made += 1;
                self.lineage.begin(&long.input, None);
                self.lineage.born(&shorter);
                self.try_input(shorter.clone(), None, None)?;
                let ran = self.tests.last();
                let is_same = ran.is_some_and(|test| {
                    test.input == shorter && test.decisions.iter().any(|d| d.name() == long.name)
                });
                if is_same {
                    long.input = shorter;
                }
                self.long.push_front(long);
                return Ok(true);
            }
            let piece = Piece {
                from: 0,
                end: long.input.len(),
                behind: 0,
            };
            self.repeat(&long.input, piece, true);
        }
        Ok(false)
    }

    /// Whether to try what has new bytes inserted: as often as that has shown something new,
    /// compared with what was solved for; never quite never.
    pub(super) fn is_worth_inserting(&mut self) -> bool {
        let [solved, made] = [0, 1].map(|n| (self.fruits[n] + 2.0) / (self.tried_so[n] + 4.0));
        self.random.f64() < (made / solved).max(1.0 / 16.0)
    }

    /// An input to be run soon, unless it was. If too many wait, those that have waited longest are
    /// forgotten.
    pub(super) fn make(&mut self, mut input: Vec<u8>, from: Option<bool>, is_urgent: bool) {
        self.layout.fix(&mut input, &self.options.first);
        if self.inputs.insert(input.clone()) {
            self.lineage.born(&input);
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

    /// The input without most of what nobody has solved for: where something was found far behind,
    /// so that there is room for more.
    pub(super) fn squeeze(&mut self, input: &[u8], is_urgent: bool) {
        if let Some(made) = squeezed(input, &self.options.first) {
            self.make(made, Some(false), is_urgent);
        }
    }

    /// Inputs that do once and twice more what has led to a change of persistent memory, three
    /// times nothing but that, and what has done so elsewhere.
    pub(super) fn repeat(&mut self, input: &[u8], piece: Piece, is_urgent: bool) {
        let from = piece.from;
        let end = piece.end.min(input.len());
        if from >= end {
            return;
        }
        // Where the last byte is that the first input did not have there: what looks further than
        // it must gives no better end.
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
        // And without what was before it, three times: there may have been too much of something,
        // or no room. What nobody has solved for takes away room, too.
        let chunk = input[from..tight].to_vec();
        let tightened = tightened(&chunk, &first[from..tight]);
        for alone in [&chunk, &tightened] {
            let alone = [alone, &b"\n"[..]].concat().repeat(3);
            let alone = with_inserted(&self.options.first, 0, &alone);
            self.make(alone, None, is_urgent);
        }
        let chunk = tightened;
        if chunk.is_empty() {
            return;
        }
        if is_urgent && !self.own_chunks.contains(&chunk) {
            self.combine(&chunk);
            self.own_chunks.push(chunk.clone());
        }
        if !self.chunks.contains(&chunk) && self.chunks.len() < CHUNKS_MAX {
            self.chunks.push(chunk);
        }
    }

    /// Inputs in which a chunk stands before, behind and between others, each on a line: some
    /// commands do something only after others, and between their like.
    fn combine(&mut self, chunk: &[u8]) {
        let room = self.options.first.len();
        let others: Vec<Vec<u8>> = self
            .own_chunks
            .iter()
            .rev()
            .take(COMBINED)
            .cloned()
            .collect();
        for other in &others {
            let other = other.as_slice();
            for three in [
                [chunk, other, chunk],
                [other, chunk, other],
                [other, other, chunk],
                [chunk, chunk, other],
            ] {
                let line = [three.join(&b'\n').as_slice(), b"\n"].concat();
                // The last separator may be left out.
                if line.len() <= room + 1 {
                    self.make(with_inserted(&self.options.first, 0, &line), None, false);
                }
            }
        }
    }
}
