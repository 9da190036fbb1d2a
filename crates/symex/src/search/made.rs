//! Inputs that are made of others: with something inserted, or with what has led somewhere once more. Why, says `search`.

use super::Search;
use crate::path::Decision;

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

/// Where in an input the bytes end that were looked at before persistent memory was changed, each time that it was.
pub(super) fn ends(decisions: &[Decision], fences: u32) -> Vec<u32> {
    let mut ends = Vec::new();
    let Some(first) = decisions.first() else {
        return ends;
    };
    let (mut known, mut last) = (first.pm.fences, 0);
    let all = decisions.iter().map(|d| (d.pm.fences, Some(d.last_byte())));
    for (fences, byte) in all.chain([(fences, None)]) {
        if fences > known {
            ends.push(last + 1);
            known = fences;
        }
        last = last.max(byte.unwrap_or(0));
    }
    ends
}

/// An input in which, of bytes in a row that are what they were in the first input, and all the same, one is left. What is missing then follows at the end. None if there are no such
/// bytes in front of others.
fn squeezed(input: &[u8], first: &[u8]) -> Option<Vec<u8>> {
    let last = input.iter().zip(first).rposition(|(a, b)| a != b)?;
    let is_old = |at: usize| first.get(at) == Some(&input[at]);
    let is_superfluous = |at: usize| {
        at > 0 && at < last && is_old(at) && is_old(at - 1) && input[at] == input[at - 1]
    };
    let all = (0..input.len()).filter(|at| !is_superfluous(*at));
    let mut made: Vec<u8> = all.map(|at| input[at]).collect();
    let missing = input.len() - made.len();
    made.extend(&first[first.len().saturating_sub(missing)..]);
    (missing > 0 && made.len() == input.len()).then_some(made)
}

/// An input with something inserted. It keeps its length.
fn with_inserted(input: &[u8], at: usize, what: &[u8]) -> Vec<u8> {
    let mut made = input[..at].to_vec();
    made.extend(what);
    made.extend(&input[at..]);
    made.truncate(input.len());
    made
}

/// The input in which new bytes stand in front of what they were to take the place of: so that what followed is still there. None if they do not lie side by side.
pub(super) fn inserted(input: &[u8], changes: &[(u32, u8)]) -> Option<Vec<u8>> {
    let (first, _) = *changes.first()?;
    let is_run = changes
        .iter()
        .enumerate()
        .all(|(n, (index, _))| *index == first + n as u32);
    if !is_run || first as usize >= input.len() {
        return None;
    }
    let bytes: Vec<u8> = changes.iter().map(|(_, value)| *value).collect();
    Some(with_inserted(input, first as usize, &bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn room_is_made_behind_what_was_solved_for() {
        let first = b"          ";
        let squeezed = |input: &[u8]| squeezed(input, first);
        assert_eq!(squeezed(b"p       1 "), Some(b"p 1       ".to_vec()));
        assert_eq!(squeezed(b"p  1    2 "), Some(b"p 1 2     ".to_vec()));
        // Nothing is in front of something, or nothing is there twice.
        assert_eq!(squeezed(b"p 1       "), None);
        assert_eq!(squeezed(first), None);
    }

    #[test]
    fn what_is_inserted_moves_the_rest() {
        assert_eq!(inserted(b"abcd", &[(1, b'x')]), Some(b"axbc".to_vec()));
        assert_eq!(inserted(b"abcd", &[(1, b'x'), (3, b'y')]), None);
        assert_eq!(inserted(b"abcd", &[]), None);
    }
}
