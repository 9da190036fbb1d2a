//! From what a program has compared to inputs for which the comparison comes out the other way.
//!
//! If one side of a comparison stands in the input, in whatever form, the other side is put in its
//! place (input-to-state correspondence, as in REDQUEEN and AFL++'s CmpLog). Deviation: those look
//! for bytes only. Programs that take commands read numbers from text, so a number is also looked
//! for as it would be written, and its neighbours are tried with it, because half of all
//! comparisons ask for less or more. Numbers below 256 are looked for as single bytes, too: C
//! compares characters, and lengths of one byte, as `int`. Where as many bytes follow as the byte
//! says, it may be a length, and is also changed together with these. A format of `scanf` is no
//! string to be put anywhere: what it reads is replaced by a line that it would read.

use crate::formats::Format;
use crate::{frames, numbers};

/// A comparison, in the order of memory. Numbers have 1, 2, 4 or 8 bytes and come from registers;
/// what is longer, or from memory that a function was given, is a string or a block of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Compared<'a> {
    /// One side.
    pub left: &'a [u8],
    /// The other.
    pub right: &'a [u8],
}

/// An input that was made from a comparison.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Replaced {
    /// The input.
    pub input: Vec<u8>,
    /// What was put into it, as it stands there.
    pub word: Vec<u8>,
}

/// Of one side, so many places in the input are replaced.
const PLACES_MAX: usize = 4;
/// Bytes of a block that must be found before the block is believed to stand there.
const BLOCK_MIN: usize = 3;

/// What to try because of one comparison, most promising first.
pub fn replacements(input: &[u8], compared: Compared<'_>) -> Vec<Replaced> {
    let mut found = Vec::new();
    for (from, to) in [
        (compared.left, compared.right),
        (compared.right, compared.left),
    ] {
        if from.len() != to.len() || from.is_empty() {
            continue;
        }
        match from.len() {
            1 => bytes(input, from[0], to[0], &mut found),
            2 | 4 | 8 => {
                written(input, from, to, &mut found);
                binary(input, from, to, &mut found);
                promoted(input, from, to, &mut found);
            }
            _ => block(input, from, to, &mut found),
        }
    }
    found.retain(|replaced| replaced.input != input);
    found.dedup_by(|one, other| one.input == other.input);
    found
}

/// Puts `word` where `len` bytes were.
fn put(input: &[u8], at: usize, len: usize, word: &[u8], found: &mut Vec<Replaced>) {
    let end = (at + len).min(input.len());
    let replaced = [&input[..at], word, &input[end..]].concat();
    found.push(Replaced {
        input: replaced,
        word: word.to_vec(),
    });
}

fn places<'a>(input: &'a [u8], word: &'a [u8]) -> impl Iterator<Item = usize> + 'a {
    let windows = input.windows(word.len()).enumerate();
    windows
        .filter(move |(_, window)| *window == word)
        .map(|(at, _)| at)
}

/// Single bytes are everywhere: those that begin a line or a word come first, and there are few
/// tries.
fn bytes(input: &[u8], from: u8, to: u8, found: &mut Vec<Replaced>) {
    let begins = |at: usize| at == 0 || input[at - 1].is_ascii_whitespace();
    let word = [from];
    let mut all: Vec<usize> = places(input, &word).collect();
    all.sort_by_key(|at| (!begins(*at), *at));
    for at in all.into_iter().take(PLACES_MAX) {
        put(input, at, 1, &[to], found);
    }
}

fn unsigned(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .rev()
        .fold(0, |value, byte| value << 8 | u64::from(*byte))
}

fn signed(bytes: &[u8]) -> i64 {
    let unused = 64 - 8 * bytes.len() as u32;
    ((unsigned(bytes) << unused) as i64) >> unused
}

/// Numbers as text.
fn written(input: &[u8], from: &[u8], to: &[u8], found: &mut Vec<Replaced>) {
    let (from_unsigned, from_signed) = (unsigned(from).into(), signed(from).into());
    let mut tried = 0;
    let mut at = 0;
    while at < input.len() && tried < PLACES_MAX {
        let is_part = |byte: &u8| byte.is_ascii_alphanumeric();
        let len = input[at..].iter().take_while(|byte| is_part(byte)).count();
        if len == 0 {
            at += 1;
            continue;
        }
        // A sign belongs to the number if nothing stands before it.
        let has_sign =
            at > 0 && input[at - 1] == b'-' && (at < 2 || !input[at - 2].is_ascii_alphanumeric());
        let start = at - usize::from(has_sign);
        if let Some(number) = numbers::read(&input[start..at + len])
            && (number.value == from_unsigned || number.value == from_signed)
        {
            tried += 1;
            let wanted: i128 = match number.value == from_unsigned && signed(to) >= 0 {
                true => unsigned(to).into(),
                false => signed(to).into(),
            };
            for value in [wanted, wanted + 1, wanted - 1] {
                let word = numbers::write(value, number.hexadecimal);
                put(input, start, at + len - start, &word, found);
            }
        }
        at += len;
    }
}

/// Numbers as bytes, of the smallest size that holds them and all larger ones, in both orders.
fn binary(input: &[u8], from: &[u8], to: &[u8], found: &mut Vec<Replaced>) {
    let width = |value: u64| 8 - value.leading_zeros() as usize / 8;
    let (old, new) = (unsigned(from), unsigned(to));
    // One byte is everywhere, and what it means nobody knows.
    let least = width(old).max(width(new)).max(2);
    for size in [2, 4, 8]
        .into_iter()
        .filter(|size| (least..=from.len()).contains(size))
    {
        for is_big in [false, true] {
            let form = |value: u64| {
                let mut bytes = value.to_le_bytes()[..size].to_vec();
                if is_big {
                    bytes.reverse();
                }
                bytes
            };
            let word = form(old);
            // A row of zeros is everywhere, too.
            if word.iter().all(|byte| *byte == 0) {
                continue;
            }
            for at in places(input, &word).take(PLACES_MAX) {
                for value in [new, new.wrapping_add(1), new.wrapping_sub(1)] {
                    put(input, at, size, &form(value), found);
                }
            }
        }
    }
}

/// Single bytes that were made wider before they were compared, as C does with each character.
/// Zeros are everywhere.
fn promoted(input: &[u8], from: &[u8], to: &[u8], found: &mut Vec<Replaced>) {
    let byte = |side: &[u8]| u8::try_from(unsigned(side)).ok();
    if let (Some(from), Some(to)) = (byte(from), byte(to))
        && from != 0
    {
        lengths(input, from, to, found);
        bytes(input, from, to, found);
    }
}

/// Single bytes of binary inputs, as lengths of what follows.
fn lengths(input: &[u8], from: u8, to: u8, found: &mut Vec<Replaced>) {
    if !frames::is_binary(input) {
        return;
    }
    let mut places = places(input, std::slice::from_ref(&from)).take(PLACES_MAX);
    let resized = |at: usize, to: u8| frames::resized(input, at, to);
    if let Some(at) = places.find(|at| resized(*at, to).is_some()) {
        for to in [to, to.saturating_add(1)] {
            let input = resized(at, to).into_iter();
            let word = vec![to];
            found.extend(input.map(|input| Replaced {
                input,
                word: word.clone(),
            }));
        }
    }
}

/// Strings and blocks. How much of them counts is not known: to the first zero byte, or a usual
/// size.
fn block(input: &[u8], from: &[u8], to: &[u8], found: &mut Vec<Replaced>) {
    let text = |side: &[u8]| {
        let end = side.iter().position(|byte| *byte == 0);
        end.unwrap_or(side.len())
    };
    // As far as it stands in the input, at the best place.
    let shared = |at: usize| {
        let pairs = input[at..].iter().zip(from);
        pairs.take_while(|(one, other)| one == other).count()
    };
    let Some((len, at)) = (0..input.len())
        .map(|at| (shared(at), at))
        .max_by_key(|(len, at)| (*len, std::cmp::Reverse(*at)))
    else {
        return;
    };
    let is_text = text(from) > 0 && len >= text(from);
    if len < BLOCK_MIN && !is_text {
        return;
    }
    let word = &to[..text(to)];
    if let Some(format) = Format::parse(to) {
        // The line that is read becomes one that the format reads.
        let rest = &input[at..];
        let ends = |byte: &u8| matches!(byte, b'\n' | b'\r' | b';' | 0);
        let line = rest.iter().position(ends).unwrap_or(rest.len());
        let words = rest[..line].split(|byte| !byte.is_ascii_alphanumeric() && *byte != b'_');
        let words: Vec<&[u8]> = words.filter(|word| !word.is_empty()).skip(1).collect();
        let first = words.first().copied().unwrap_or(b"1");
        for words in [&words[..], &[first]] {
            let made = [&input[..at], &format.filled(words), &rest[line..]].concat();
            found.push(Replaced {
                input: made,
                word: word.to_vec(),
            });
        }
        return;
    }
    if !word.is_empty() {
        // In place of the whole word that stands there, of the string that was compared, and of as
        // many bytes.
        let rest = &input[at..];
        let ends = |byte: &u8| byte.is_ascii_whitespace() || *byte == 0;
        let whole = rest.iter().position(ends).unwrap_or(rest.len());
        for old in [whole, text(from).min(len), word.len()] {
            put(input, at, old, word, found);
        }
    }
    for size in [4, 8, 16, 32] {
        if size <= to.len() && size <= len.next_multiple_of(4) && word.len() != size {
            put(input, at, size, &to[..size], found);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tried(input: &[u8], left: &[u8], right: &[u8]) -> Vec<Vec<u8>> {
        let all = replacements(input, Compared { left, right });
        all.into_iter().map(|replaced| replaced.input).collect()
    }

    #[test]
    fn numbers_are_found_as_they_are_written() {
        let all = tried(b"k 5\np\n", &5u64.to_le_bytes(), &0xc0ffeeu64.to_le_bytes());
        assert_eq!(all[0], b"k 12648430\np\n");
        assert!(all.contains(&b"k 12648431\np\n".to_vec()));
        let all = tried(b"k 0x1f\n", &31u32.to_le_bytes(), &32u32.to_le_bytes());
        assert_eq!(all[0], b"k 0x20\n");
        let all = tried(b"k -3\n", &(-3i32).to_le_bytes(), &7i32.to_le_bytes());
        assert_eq!(all[0], b"k 7\n");
        let all = tried(b"k 3\n", &3i32.to_le_bytes(), &(-7i32).to_le_bytes());
        assert_eq!(all[0], b"k -7\n");
    }

    #[test]
    fn numbers_are_found_as_bytes_in_both_orders() {
        let (old, new) = (0x1234u32.to_le_bytes(), 0xfeedu32.to_le_bytes());
        assert!(tried(b"ab\x34\x12cd", &old, &new).contains(&b"ab\xed\xfecd".to_vec()));
        assert!(tried(b"ab\x12\x34cd", &old, &new).contains(&b"ab\xfe\xedcd".to_vec()));
        assert!(tried(b"abcd", &old, &new).is_empty());
    }

    #[test]
    fn strings_take_the_place_of_words() {
        let mut left = *b"put\0........";
        let right = *b"remove\0.....";
        assert_eq!(tried(b"put 5\n", &left, &right)[0], b"remove 5\n");
        // A pointer into the input itself, which has no zero byte where the word ends.
        left = *b"put 5\nput 6\n";
        assert_eq!(
            tried(b"put 5\nput 6\n", &left, &right)[0],
            b"remove 5\nput 6\n"
        );
    }

    #[test]
    fn a_magic_number_of_a_file_takes_its_place() {
        let left = *b"AAAABBBBCCCCDDDD";
        let right = *b"\x89PNG\r\n\x1a\n rest...";
        let all = tried(b"AAAABBBBCCCCDDDDEEEE", &left, &right);
        assert!(all.contains(&b"\x89PNG\r\n\x1a\nCCCCDDDDEEEE".to_vec()));
    }

    #[test]
    fn letters_of_commands_come_first() {
        let all = tried(b"a xax\na\n", b"a", b"b");
        assert_eq!(all[0], b"b xax\na\n");
        assert_eq!(all[1], b"a xax\nb\n");
    }

    #[test]
    fn letters_are_found_where_they_were_made_wider() {
        let (left, right) = (u32::from(b'o').to_le_bytes(), u32::from(b'A').to_le_bytes());
        let all = tried(b"GLMPo\n....", &left, &right);
        assert_eq!(all, [b"GLMPA\n....".to_vec()]);
        // How many were read, and how many a header asks for.
        let (left, right) = (3u64.to_le_bytes(), 10u64.to_le_bytes());
        let all = tried(b"A\nabc", &left, &right);
        assert_eq!(all, [b"A\x03abc".to_vec()]);
        assert!(tried(b"\0\0ab", &[0; 4], &left[..4]).is_empty());
        // The end of a file is no byte.
        let end = (-1i32).to_le_bytes();
        assert!(tried(b"aaa", &left[..4], &end).is_empty());
    }

    /// As `sscanf` is called.
    #[test]
    fn lines_become_such_as_a_format_reads() {
        let line = b"SET k 5\nGET k\n\0.";
        let format = b"RENAME %23s %23s";
        assert_eq!(
            tried(b"SET k 5\nGET k\n", line, format),
            [
                b"RENAME k 5\nGET k\n".to_vec(),
                b"RENAME k k\nGET k\n".to_vec()
            ]
        );
        let all = tried(b"a=1;commit", b"commit\0.........", b"set:%c=%u\0......");
        assert_eq!(all[0], b"a=1;set:1=1");
    }

    #[test]
    fn lengths_keep_their_bytes() {
        let (left, right) = (3u32.to_le_bytes(), 6u32.to_le_bytes());
        let all = tried(b"\x01\x03abc\x02\x00", &left, &right);
        assert_eq!(all[0], b"\x01\x06abcccc\x02\x00");
        assert_eq!(all[1], b"\x01\x07abccccc\x02\x00");
        assert_eq!(all[2], b"\x01\x06abc\x02\x00");
    }

    #[test]
    fn nothing_that_is_not_there_is_replaced() {
        assert!(tried(b"hello", &77u64.to_le_bytes(), &78u64.to_le_bytes()).is_empty());
        assert!(tried(b"", &77u64.to_le_bytes(), &78u64.to_le_bytes()).is_empty());
        assert!(tried(b"hello", b"xyz\0.", b"abc\0.").is_empty());
        assert!(tried(b"", b"xyz\0.", b"abc\0.").is_empty());
    }
}
