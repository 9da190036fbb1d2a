//! Inputs taken apart and put together again.

use crate::path::Decision;

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
pub(super) fn squeezed(input: &[u8], first: &[u8]) -> Option<Vec<u8>> {
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
pub(super) fn with_inserted(input: &[u8], at: usize, what: &[u8]) -> Vec<u8> {
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
