//! How two outputs of recovery differ: in their items, or only in the order of these.
//!
//! Items are lines; of one line, what is between spaces, commas and brackets. A hash table that was
//! rehashed holds the same in another order; a log or a queue that has another order is broken.
//! Nobody but the user knows which one it is, so order is told apart from content.
//!
//! Words of a line may change places only as whole tuples: `x 1 y 2` is the same as `y 2 x 1`, but
//! not as `x 2 y 1`.

use std::collections::BTreeMap;

/// So many items are named; the rest is counted.
const ITEMS_SHOWN: usize = 4;
/// An item longer than this is cut.
const ITEM_CHARS: usize = 60;

fn lines(output: &[u8]) -> Vec<&[u8]> {
    let end = match output.last() {
        Some(b'\n') => output.len() - 1,
        Some(_) => output.len(),
        None => return Vec::new(),
    };
    output[..end].split(|byte| *byte == b'\n').collect()
}

fn words(line: &[u8]) -> Vec<&[u8]> {
    let is_bracket = |byte: u8| b"()[]{}<>".contains(&byte);
    let is_between = |byte: u8| byte.is_ascii_whitespace() || b",;|".contains(&byte);
    let mut words = Vec::new();
    let mut begun = None;
    for (i, &byte) in line.iter().enumerate() {
        let ends = is_between(byte) || is_bracket(byte);
        if ends && let Some(start) = begun.take() {
            words.push(&line[start..i]);
        }
        if is_bracket(byte) {
            words.push(&line[i..=i]);
        } else if !ends {
            begun.get_or_insert(i);
        }
    }
    words.extend(begun.map(|start| &line[start..]));
    words
}

/// Counts by item: positive where the first has more, negative where the second has.
fn balance<'i>(a: &[&'i [u8]], b: &[&'i [u8]]) -> BTreeMap<&'i [u8], i64> {
    let mut balance = BTreeMap::new();
    for item in a {
        *balance.entry(*item).or_default() += 1;
    }
    for item in b {
        *balance.entry(*item).or_default() -= 1;
    }
    balance.retain(|_, count| *count != 0);
    balance
}

/// Those of `a` that are left if each of `b` takes one away, in their order.
fn without<'i>(a: &[&'i [u8]], b: &[&'i [u8]]) -> Vec<&'i [u8]> {
    let mut left = BTreeMap::new();
    for item in b {
        *left.entry(*item).or_insert(0) += 1;
    }
    let mut rest = Vec::new();
    for item in a {
        match left.get_mut(item) {
            Some(count) if *count > 0 => *count -= 1,
            _ => rest.push(*item),
        }
    }
    rest
}

/// Whether an output has all items of another, and no more, in another order.
pub fn is_reordered(printed: &[u8], expected: &[u8]) -> bool {
    if printed == expected {
        return false;
    }
    let (a, b) = (lines(printed), lines(expected));
    let (mine, theirs) = (without(&a, &b), without(&b, &a));
    let mut pairs = mine.iter().zip(&theirs);
    // Spaces are no order.
    let differs = match mine.is_empty() {
        true => a != b,
        false => pairs.clone().any(|(a, b)| words(a) != words(b)),
    };
    differs && mine.len() == theirs.len() && pairs.all(|(a, b)| are_shuffled(a, b))
}

/// Whether outputs are answers to so many questions, one in a line, which lie at other places: a
/// line that occurs several times says nothing of which item it is about, so it is its place that
/// does.
pub fn are_answers(printed: &[u8], expected: &[u8], questions: usize) -> bool {
    let (a, b) = (lines(printed), lines(expected));
    let is_repeated = |line: &[u8]| b.iter().filter(|other| **other == line).count() > 1;
    a.len() == questions
        && b.len() == questions
        && (a.iter().zip(&b)).any(|(a, b)| a != b && (is_repeated(a) || is_repeated(b)))
}

/// Whether the words of one line are those of another, in whole tuples.
fn are_shuffled(a: &[u8], b: &[u8]) -> bool {
    let (a, b) = (words(a), words(b));
    if a.len() != b.len() {
        return false;
    }
    if have_same_tuples(&a, &b) {
        return true;
    }
    // A title, a prompt, brackets.
    let ahead = a.iter().zip(&b).take_while(|(a, b)| a == b).count();
    let (a, b) = (&a[ahead..], &b[ahead..]);
    let behind = a.iter().rev().zip(b.iter().rev());
    let behind = behind.take_while(|(a, b)| a == b).count();
    let (a, b) = (&a[..a.len() - behind], &b[..b.len() - behind]);
    have_same_tuples(a, b)
}

fn have_same_tuples(a: &[&[u8]], b: &[&[u8]]) -> bool {
    let width = tuple(b);
    if width != tuple(a) {
        return false;
    }
    let sorted = |words: &[&[u8]]| {
        let mut tuples: Vec<Vec<Vec<u8>>> = words
            .chunks(width)
            .map(|tuple| tuple.iter().map(|word| word.to_vec()).collect())
            .collect();
        tuples.sort();
        tuples
    };
    sorted(a) == sorted(b)
}

/// After how many words the kinds of words repeat.
fn tuple(words: &[&[u8]]) -> usize {
    let kind = |word: &[u8]| match word {
        [b'-' | b'+', next, ..] if next.is_ascii_digit() => 0,
        [first, ..] if first.is_ascii_digit() => 0,
        [first, ..] if first.is_ascii_punctuation() => 2,
        _ => 1,
    };
    let kinds: Vec<u8> = words.iter().map(|word| kind(word)).collect();
    let repeats = |width: &usize| {
        kinds.len().is_multiple_of(*width)
            && (*width..kinds.len()).all(|i| kinds[i] == kinds[i - width])
    };
    (1..=kinds.len()).find(repeats).unwrap_or(1)
}

/// An output with its addresses (`0x` and at least five digits) made equal.
pub fn without_addresses(output: &[u8]) -> Vec<u8> {
    const DIGITS_MIN: usize = 5;
    let mut text = Vec::new();
    let mut rest = output;
    while let [first, tail @ ..] = rest {
        let digits = match rest {
            [b'0', b'x', digits @ ..] => {
                digits.iter().take_while(|b| b.is_ascii_hexdigit()).count()
            }
            _ => 0,
        };
        if digits >= DIGITS_MIN {
            text.extend_from_slice(b"0x\xe2\x80\xa6");
            rest = &rest[2 + digits..];
        } else {
            text.push(*first);
            rest = tail;
        }
    }
    text
}

/// What is missing of what was expected, what is too much, and what is elsewhere: in words. `None`
/// if they are equal.
pub fn difference(printed: &[u8], expected: &[u8]) -> Option<String> {
    if printed == expected {
        return None;
    }
    let (mut a, mut b) = (lines(printed), lines(expected));
    // One line against one: its words say more.
    if a.len() == 1 && b.len() == 1 {
        (a, b) = (words(a[0]), words(b[0]));
    }
    let balance = balance(&a, &b);
    let of = |sign: i64, source: &[&[u8]]| -> Vec<String> {
        // In the order in which they are printed.
        let mut left: BTreeMap<&[u8], i64> = balance
            .iter()
            .filter(|(_, count)| count.signum() == sign)
            .map(|(item, count)| (*item, count.abs()))
            .collect();
        let mut found = Vec::new();
        for item in source {
            if let Some(count) = left.get_mut(item)
                && *count > 0
            {
                *count -= 1;
                found.push(shown(item));
            }
        }
        found
    };
    let (missing, surplus) = (of(-1, &b), of(1, &a));
    let mut parts = Vec::new();
    // As many as are missing: each has taken the place of one.
    if !missing.is_empty() && missing.len() == surplus.len() {
        let pairs = surplus.iter().zip(&missing);
        let pairs: Vec<String> = pairs
            .map(|(is, was)| format!("{is} instead of {was}"))
            .collect();
        let (head, rest) = pairs.split_at(pairs.len().min(ITEMS_SHOWN));
        parts.push(match rest.len() {
            0 => head.join(", "),
            n => format!("{} and {n} more", head.join(", ")),
        });
    } else if !missing.is_empty() {
        parts.push(format!("{} missing", listed(&missing)));
    }
    if !surplus.is_empty() && missing.len() != surplus.len() {
        parts.push(format!("{} too many", listed(&surplus)));
    }
    let common_a: Vec<&[u8]> = without(&a, &without(&a, &b));
    let common_b: Vec<&[u8]> = without(&b, &without(&b, &a));
    let moved: Vec<String> = moved(&common_a, &common_b).into_iter().map(shown).collect();
    if !moved.is_empty() {
        parts.push(format!("{} elsewhere", listed(&moved)));
    }
    if parts.is_empty() {
        parts.push("only spaces or line feeds differ".into());
    }
    Some(parts.join("; "))
}

/// Items of the first that are not where they are in the second: all but a longest common
/// subsequence.
fn moved<'i>(a: &[&'i [u8]], b: &[&'i [u8]]) -> Vec<&'i [u8]> {
    /// Beyond so many, only those that begin where the two differ.
    const EXACT_MAX: usize = 2000;
    if a.len() > EXACT_MAX || b.len() > EXACT_MAX {
        let at = a.iter().zip(b).position(|(a, b)| a != b);
        return at.map(|at| a[at]).into_iter().collect();
    }
    let mut longest = vec![vec![0u16; b.len() + 1]; a.len() + 1];
    for i in (0..a.len()).rev() {
        for j in (0..b.len()).rev() {
            longest[i][j] = match a[i] == b[j] {
                true => longest[i + 1][j + 1] + 1,
                false => longest[i + 1][j].max(longest[i][j + 1]),
            };
        }
    }
    let (mut i, mut j) = (0, 0);
    let mut moved = Vec::new();
    while i < a.len() {
        if j < b.len() && a[i] == b[j] {
            i += 1;
            j += 1;
        } else if j < b.len() && longest[i][j + 1] >= longest[i + 1][j] {
            j += 1;
        } else {
            moved.push(a[i]);
            i += 1;
        }
    }
    moved
}

fn shown(item: &[u8]) -> String {
    let text = String::from_utf8_lossy(item);
    let mut chars = text.trim_end().chars();
    let mut head: String = chars.by_ref().take(ITEM_CHARS).collect();
    if chars.next().is_some() {
        head.push('…');
    }
    format!("{head:?}")
}

fn listed(items: &[String]) -> String {
    let verb = if items.len() == 1 { "is" } else { "are" };
    let (head, rest) = items.split_at(items.len().min(ITEMS_SHOWN));
    match rest.len() {
        0 => format!("{} {verb}", head.join(", ")),
        n => format!("{} and {n} more {verb}", head.join(", ")),
    }
}

/// Items that all of some outputs have and `printed` has not, if `printed` has nothing that none of
/// them has: data that was there before the operation under way and should be there after it.
/// Nothing else happened to it: it is gone.
pub fn gone(printed: &[u8], allowed: &[Vec<u8>]) -> Vec<String> {
    let by_words = lines(printed).len() <= 1 && allowed.iter().all(|o| lines(o).len() <= 1);
    let items = |output| -> Vec<&[u8]> {
        match (by_words, lines(output)) {
            (true, lines) => lines.first().map_or(Vec::new(), |line| words(line)),
            (false, lines) => lines,
        }
    };
    let mine = items(printed);
    let Some((first, rest)) = allowed.split_first() else {
        return Vec::new();
    };
    let mut common = items(first);
    let mut any: Vec<&[u8]> = common.clone();
    for output in rest {
        let theirs = items(output);
        common = without(&common, &without(&common, &theirs));
        any.extend(without(&theirs, &any));
    }
    match without(&mine, &any).is_empty() {
        true => without(&common, &mine).into_iter().map(shown).collect(),
        false => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_and_lists_in_another_order() {
        let table = [
            // Lines.
            ("b\na\n", "a\nb\n", true),
            ("key 2: 5\nkey 1: 4\n", "key 1: 4\nkey 2: 5\n", true),
            // A list in a line, with a title, a prompt, brackets.
            ("1 3 2 \n", "1 2 3 \n", true),
            ("$ 1 3 2 \n$ ", "$ 1 2 3 \n$ ", true),
            ("keys: [1,3,2]\n", "keys: [1,2,3]\n", true),
            ("3 keys: 7 9 8\nend\n", "3 keys: 8 7 9\nend\n", true),
            ("{\"a\":1, \"b\":2}", "{\"b\":2, \"a\":1}", true),
            // Tuples.
            ("y 2 x 1\n", "x 1 y 2\n", true),
            ("x 2 y 1\n", "x 1 y 2\n", false),
            ("giro 0, savings 100\n", "giro 100, savings 0\n", false),
            ("(2 b) (1 a)\n", "(1 a) (2 b)\n", true),
            ("(2 a) (1 b)\n", "(1 a) (2 b)\n", false),
            // Of different lines.
            ("key 1: 5\nkey 2: 4\n", "key 1: 4\nkey 2: 5\n", false),
            ("1 5\n2 4\n", "1 4\n2 5\n", false),
            // Not the same items.
            ("a\nb\nb\n", "a\na\nb\n", false),
            ("1 2 2\n", "1 2 3\n", false),
            ("1 2\n", "1 2 3\n", false),
            ("", "a\n", false),
            // No difference, or none that counts as an order.
            ("a\nb\n", "a\nb\n", false),
            ("1  2\n", "1 2\n", false),
        ];
        for (printed, expected, is_order) in table {
            let found = is_reordered(printed.as_bytes(), expected.as_bytes());
            assert_eq!(found, is_order, "{printed:?} instead of {expected:?}");
        }
    }

    #[test]
    fn answers_have_their_places() {
        let table = [
            ("0\n1\n1\n", "1\n0\n1\n", 3, true),
            ("0\n1\n1\n", "1\n0\n1\n", 2, false),
            // Names of items.
            ("5\n7\n", "7\n5\n", 2, false),
            ("no\n9\n7\nno\n", "no\n7\n9\nno\n", 4, false),
        ];
        for (printed, expected, questions, are) in table {
            let found = are_answers(printed.as_bytes(), expected.as_bytes(), questions);
            assert_eq!(found, are, "{printed:?} instead of {expected:?}");
        }
    }

    #[test]
    fn what_differs_item_by_item() {
        let table = [
            ("a\nc\n", "a\nb\nc\n", r#""b" is missing"#),
            ("a\nx\nb\n", "a\nb\n", r#""x" is too many"#),
            ("a\nX\n", "a\nb\n", r#""X" instead of "b""#),
            ("2\n3 2\n", "2\n2 3\n", r#""3 2" instead of "2 3""#),
            ("X\n", "a\nb\n", r#""a", "b" are missing; "X" is too many"#),
            ("b\na\n", "a\nb\n", r#""a" is elsewhere"#),
            ("1 3 2\n", "1 2 3\n", r#""2" is elsewhere"#),
            ("sum 3\n", "sum 4\n", r#""3" instead of "4""#),
            (
                "",
                "1\n2\n3\n4\n5\n6\n",
                r#""1", "2", "3", "4" and 2 more are missing"#,
            ),
            ("a\na\n", "a\n", r#""a" is too many"#),
            ("a", "a\n", "only spaces or line feeds differ"),
        ];
        for (printed, expected, words) in table {
            let said = difference(printed.as_bytes(), expected.as_bytes());
            assert_eq!(said.as_deref(), Some(words), "{printed:?} / {expected:?}");
        }
        assert_eq!(difference(b"a\n", b"a\n"), None);
    }

    #[test]
    fn addresses_are_made_equal() {
        let table = [
            ("at 0x7ffff7fb2000, 3 items\n", "at 0x…, 3 items\n"),
            ("0x555555559000 0x1f 0", "0x… 0x1f 0"),
            ("no 0x", "no 0x"),
            ("0xdeadbeef", "0x…"),
        ];
        for (output, expected) in table {
            let found = without_addresses(output.as_bytes());
            assert_eq!(String::from_utf8_lossy(&found), expected);
        }
    }

    #[test]
    fn what_is_gone() {
        let allowed = [b"a\nb\n".to_vec(), b"a\nb\nc\n".to_vec()];
        assert_eq!(gone(b"b\n", &allowed), [r#""a""#]);
        assert_eq!(gone(b"b\nc\n", &allowed), [r#""a""#]);
        assert!(gone(b"a\nb\n", &allowed).is_empty());
        // Damaged is not gone.
        assert!(gone(b"b\nX\n", &allowed).is_empty());
        // The operation under way removes it: it may be gone.
        assert!(gone(b"b\n", &[b"a\nb\n".to_vec(), b"b\n".to_vec()]).is_empty());
        assert_eq!(
            gone(b"2 \n", &[b"1 2 \n".to_vec(), b"1 2 3 \n".to_vec()]),
            [r#""1""#]
        );
    }
}
