//! Inputs taken apart and put together again.

use crate::path::Decision;

/// The bytes of an input, by which change of persistent memory they have led to: where they begin
/// and end, and behind which decision. The last bytes may have led nowhere, and are not among them.
/// What looks further than it must (vector instructions) makes the last end too large, but hardly
/// ever a beginning too small.
pub(super) fn pieces(decisions: &[Decision], fences: u32) -> Vec<Piece> {
    let mut pieces: Vec<Piece> = Vec::new();
    let mut behind = 0;
    for group in decisions.chunk_by(|a, b| a.pm.fences == b.pm.fences) {
        behind += group.len();
        let from = group.iter().map(|d| d.bytes.0).min().unwrap_or(0) as usize;
        let end = group.iter().map(|d| d.last_byte()).max().unwrap_or(0) as usize + 1;
        if let Some(last) = pieces.last_mut()
            && from > last.from
        {
            last.end = last.end.min(from);
        }
        if group[0].pm.fences < fences {
            pieces.push(Piece { from, end, behind });
        }
    }
    pieces
}

/// An input that has gone a way of the program's own code, and is too long to have that three
/// times.
pub(super) struct Long {
    pub(super) input: Vec<u8>,
    /// The way.
    pub(super) name: u64,
    /// Bytes from here on were tried.
    pub(super) left: usize,
}

/// See [`pieces`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Piece {
    pub(super) from: usize,
    pub(super) end: usize,
    /// So many decisions were made up to there.
    pub(super) behind: usize,
}

/// An input in which, of bytes in a row that are what they were in the first input, and all the
/// same, one is left. What is missing then follows at the end. None if there are no such bytes in
/// front of others.
pub(super) fn squeezed(input: &[u8], first: &[u8]) -> Option<Vec<u8>> {
    let last = input.iter().zip(first).rposition(|(a, b)| a != b)?;
    let mut made = tightened(&input[..last], first);
    made.extend(&input[last..]);
    let missing = input.len() - made.len();
    made.extend(&first[first.len().saturating_sub(missing)..]);
    (missing > 0 && made.len() == input.len()).then_some(made)
}

/// Of bytes in a row that are what they were in the first input, and all the same, one.
pub(super) fn tightened(input: &[u8], first: &[u8]) -> Vec<u8> {
    let is_old = |at: usize| first.get(at) == Some(&input[at]);
    let is_superfluous =
        |at: usize| at > 0 && is_old(at) && is_old(at - 1) && input[at] == input[at - 1];
    let all = (0..input.len()).filter(|at| !is_superfluous(*at));
    all.map(|at| input[at]).collect()
}

/// An input with something inserted. It keeps its length.
pub(super) fn with_inserted(input: &[u8], at: usize, what: &[u8]) -> Vec<u8> {
    let mut made = input[..at].to_vec();
    made.extend(what);
    made.extend(&input[at..]);
    made.truncate(input.len());
    made
}

/// The same; if bytes that are not what they were to begin with would be lost at its end, there is
/// less of what nobody has solved for.
pub(super) fn with_room(input: &[u8], first: &[u8], at: usize, what: &[u8]) -> Vec<u8> {
    let mut made = input[..at].to_vec();
    made.extend(what);
    made.extend(&input[at..]);
    let blanks = &first[first.len().saturating_sub(1)..];
    let end = made.iter().rposition(|byte| !blanks.contains(byte));
    let too_many = end.map_or(0, |end| end + 1).saturating_sub(input.len());
    let mut left = too_many;
    let mut last = None;
    made.retain(|byte| {
        let is_superfluous = left > 0 && last == Some(*byte) && blanks.contains(byte);
        last = Some(*byte);
        left -= usize::from(is_superfluous);
        !is_superfluous
    });
    made.truncate(input.len());
    made.extend(&first[made.len()..]);
    made
}

/// An input with other bytes in their places.
pub(super) fn changed(input: &[u8], changes: &[(u32, u8)]) -> Vec<u8> {
    let mut made = input.to_vec();
    for (index, value) in changes {
        if let Some(byte) = made.get_mut(*index as usize) {
            *byte = *value;
        }
    }
    made
}

/// The input in which new bytes stand in front of what they were to take the place of: so that what
/// followed is still there. None if they do not lie side by side.
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

/// How many bytes there are up to the last that is not what it was to begin with, and at least one
/// if there are any: nobody has looked for what is behind it.
pub(super) fn used(input: &[u8], first: &[u8]) -> usize {
    let last = input.iter().zip(first).rposition(|(a, b)| a != b);
    last.map_or(1, |at| at + 1).min(input.len())
}

/// The input with a change by chance: a byte more, less or another, a part of it once more, or a
/// part of another input in it.
pub(super) fn varied(
    input: &[u8],
    other: &[u8],
    first: &[u8],
    random: &mut fastrand::Rng,
) -> Vec<u8> {
    let end = used(input, first);
    if end == 0 {
        return input.to_vec();
    }
    let at = random.usize(..end);
    let part = |of: &[u8], random: &mut fastrand::Rng| {
        let end = used(of, first);
        let from = random.usize(..end.max(1));
        let to = from + 1 + random.usize(..(end - from).max(1));
        of[from..to.min(of.len())].to_vec()
    };
    let byte = match random.bool() {
        true => part(other, random).first().copied().unwrap_or(b'a'),
        false => *random.choice(b"1a2b \n").unwrap_or(&b'a'),
    };
    match random.u8(..5) {
        0 => with_inserted(input, at, &[byte]),
        1 => {
            let mut made = input.to_vec();
            made.remove(at);
            made.extend(first.last());
            made
        }
        2 => changed(input, &[(at as u32, byte)]),
        3 => {
            let again = part(input, random);
            with_inserted(input, at, &again)
        }
        _ => {
            let inserted = part(other, random);
            with_inserted(input, at + 1, &inserted)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::path::{Kind, Progress};
    use brownout_solve::Pool;

    /// Decisions about these bytes, after so many fences.
    fn decisions(all: &[(u32, (u32, u32))]) -> Vec<Decision> {
        let mut pool = Pool::new();
        let condition = pool.constant(1, 1);
        let decision = |&(fences, bytes): &(u32, (u32, u32))| Decision {
            pc: 0,
            kind: Kind::Branch,
            way: 0,
            condition,
            value: None,
            shape: 0,
            bytes,
            pm: Progress { fences, which: 0 },
            to: 0,
            distance: None,
        };
        all.iter().map(decision).collect()
    }

    #[test]
    fn pieces_are_those_that_have_led_to_changes() {
        // A search for the end of the line looks far ahead; then the command is looked at.
        let one = [(0, (0, 16)), (0, (0, 2)), (0, (1, 1))];
        let two = [(1, (3, 19)), (1, (3, 3)), (1, (4, 7))];
        let rest = [(3, (8, 35))];
        let all = decisions(&[&one[..], &two, &rest].concat());
        let piece = |from, end, behind| Piece { from, end, behind };
        assert_eq!(pieces(&all, 3), [piece(0, 3, 3), piece(3, 8, 6)]);
        // Had the last one led somewhere, it would be one.
        assert_eq!(pieces(&all, 4)[2], piece(8, 36, 7));
        assert_eq!(pieces(&decisions(&one), 0), []);
        assert_eq!(pieces(&[], 1), []);
    }

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
    fn what_is_longer_takes_room_from_blanks_first() {
        let with_room = |input: &[u8], at, what: &[u8]| with_room(input, b"          ", at, what);
        // There is room behind it.
        assert_eq!(with_room(b"p 1\n      ", 3, b"11"), b"p 111\n    ");
        // There is none, but in front of it.
        assert_eq!(with_room(b"p      1\na", 8, b"11"), b"p    111\na");
        // There is none at all.
        assert_eq!(with_room(b"p 1p 1p 1\n", 9, b"11"), b"p 1p 1p 11");
    }

    #[test]
    fn what_nobody_has_solved_for_is_there_once() {
        assert_eq!(tightened(b"p   1  2", b"          "), b"p 1 2");
        assert_eq!(tightened(b"aabb", b"          "), b"aabb");
    }

    #[test]
    fn what_is_changed_by_chance_keeps_its_length() {
        let mut random = fastrand::Rng::with_seed(7);
        let first = b"        ";
        let mut made = std::collections::HashSet::new();
        for _ in 0..400 {
            let input = varied(b"a=1     ", b"b;      ", first, &mut random);
            assert_eq!(input.len(), first.len());
            made.insert(input);
        }
        for one in [
            b"aa=1    ",
            b"=1      ",
            b"b=1     ",
            b"a=1b;   ",
            b"a=11    ",
        ] {
            assert!(made.contains(&one[..]), "{one:?}");
        }
        // Shorter ones, and those that are what they were to begin with, do no harm.
        for input in [&b""[..], b" ", b"x"] {
            let first = &first[..input.len()];
            for _ in 0..100 {
                let made = varied(input, input, first, &mut random);
                assert_eq!(made.len(), input.len());
            }
        }
    }

    #[test]
    fn what_is_inserted_moves_the_rest() {
        assert_eq!(inserted(b"abcd", &[(1, b'x')]), Some(b"axbc".to_vec()));
        assert_eq!(inserted(b"abcd", &[(1, b'x'), (3, b'y')]), None);
        assert_eq!(inserted(b"abcd", &[]), None);
    }
}
