//! Words and numbers that are worth a try: from a dictionary, from seeds, and from the program's
//! own comparisons.

use std::collections::BTreeSet;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::{Below, numbers, one_in};

/// So many of each kind are kept that were found at run time; later ones take the place of the
/// oldest.
const MAX_FOUND: usize = 512;
/// What is longer is no token.
const MAX_LENGTH: usize = 64;

/// Words and numbers that are worth a try.
///
/// Those of the dictionary and the seeds stay. Those that runs reveal are a ring: a program that
/// compares with ever other values must not push out what matters, nor grow without end. Campaigns
/// do not save them: one that is resumed finds out again what its new test cases compare.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tokens {
    given: Vec<Vec<u8>>,
    found: Ring<Vec<u8>>,
    numbers: Ring<u64>,
    pairs: Ring<(Vec<u8>, Vec<u8>)>,
    /// There are no more than there are letters.
    #[serde(default)]
    letters: BTreeSet<u8>,
}

/// The last so many distinct ones.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(bound(deserialize = "T: Ord + Deserialize<'de>"))]
struct Ring<T> {
    items: Vec<T>,
    known: BTreeSet<T>,
    next: usize,
}

impl<T> Default for Ring<T> {
    fn default() -> Ring<T> {
        Ring {
            items: Vec::new(),
            known: BTreeSet::new(),
            next: 0,
        }
    }
}

impl<T: Ord + Clone> Ring<T> {
    fn add(&mut self, item: T) -> bool {
        if !self.known.insert(item.clone()) {
            return false;
        }
        if self.items.len() < MAX_FOUND {
            self.items.push(item);
        } else {
            self.known.remove(&self.items[self.next]);
            self.items[self.next] = item;
            self.next = (self.next + 1) % MAX_FOUND;
        }
        true
    }
}

/// Why a dictionary cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DictionaryError {
    /// From one.
    pub line: usize,
    /// From one, in bytes.
    pub column: usize,
    /// What is wrong.
    pub message: String,
}

impl fmt::Display for DictionaryError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            out,
            "line {}, column {}: {}",
            self.line, self.column, self.message
        )
    }
}

impl std::error::Error for DictionaryError {}

impl Tokens {
    /// Reads a dictionary in AFL's form: `name="value"`, `name@level="value"` or `"value"` a line,
    /// with `\xNN`, `\\` and `\"` in the value; `#` begins a comment. Levels are read and make no
    /// difference.
    pub fn add_dictionary(&mut self, text: &[u8]) -> Result<(), DictionaryError> {
        for (index, line) in text.split(|byte| *byte == b'\n').enumerate() {
            let token = dictionary_line(line).map_err(|(column, message)| DictionaryError {
                line: index + 1,
                column: column + 1,
                message: message.to_string(),
            })?;
            if let Some(token) = token {
                self.add_given(&token);
            }
        }
        Ok(())
    }

    /// A token of the dictionary or of a seed.
    pub fn add_given(&mut self, token: &[u8]) {
        if !token.is_empty() && !self.given.iter().any(|known| known == token) {
            self.given.push(token.to_vec());
        }
    }

    /// Bytes that the program has compared something with; whether they are new.
    ///
    /// What follows a zero byte is none of it: strings are often compared with more than they have.
    pub fn add_found(&mut self, bytes: &[u8]) -> bool {
        let end = bytes
            .iter()
            .position(|byte| *byte == 0)
            .unwrap_or(bytes.len());
        let token = &bytes[..end];
        if token.is_empty() || token.len() > MAX_LENGTH || self.given.iter().any(|t| t == token) {
            return false;
        }
        self.found.add(token.to_vec())
    }

    /// A number that the program has compared something with; whether it is new.
    ///
    /// Small ones are no news: they are tried anyway.
    pub fn add_number(&mut self, number: u64) -> bool {
        if !(16..=u64::MAX - 16).contains(&number) {
            return false;
        }
        self.numbers.add(number)
    }

    /// Two strings that were compared with each other; whether the pair is new.
    ///
    /// Where one of them stands in an input, the other may be worth a try.
    pub fn add_pair(&mut self, left: &[u8], right: &[u8]) -> bool {
        let fits = |bytes: &[u8]| !bytes.is_empty() && bytes.len() <= MAX_LENGTH;
        if left == right || !fits(left) || !fits(right) {
            return false;
        }
        let both_ways = self.pairs.add((left.to_vec(), right.to_vec()));
        self.pairs.add((right.to_vec(), left.to_vec())) || both_ways
    }

    /// Two numbers that were compared with each other, as they would be written; whether the pair
    /// is new.
    pub fn add_number_pair(&mut self, left: u64, right: u64) -> bool {
        let written = |number: u64| numbers::write(number.into(), false);
        let new = self.add_number(left) | self.add_number(right);
        self.add_pair(&written(left), &written(right)) || new
    }

    /// Something that the program has compared something else with, in case it is a letter: many
    /// programs have commands of one letter. Whether it is a new one.
    pub fn add_letter(&mut self, number: u64) -> bool {
        let byte = u8::try_from(number).ok();
        let letter = byte.filter(u8::is_ascii_alphabetic);
        letter.is_some_and(|letter| self.letters.insert(letter))
    }

    /// Whether the program is known to compare with this letter.
    pub fn has_letter(&self, letter: u8) -> bool {
        self.letters.contains(&letter)
    }

    /// Puts a word, or a number as a machine has it, somewhere into bytes; what comes out is
    /// another input, of so many bytes at most. `None` if nothing is known that fits.
    ///
    /// It is for inputs that no template describes: in those, nobody knows what is a field.
    pub fn graft(&self, input: &[u8], most: usize, random: &mut dyn Below) -> Option<Vec<u8>> {
        let (words, numbers) = (self.word_count(), self.numbers.items.len());
        if words + numbers == 0 {
            return None;
        }
        // Some do not fit, and some are there already.
        for _ in 0..4 {
            let which = random.below(words + numbers);
            let (new, is_word) = match which.checked_sub(words) {
                None => (self.word(which).to_vec(), true),
                Some(at) => (as_bytes(self.numbers.items[at], random), false),
            };
            let mut made = input.to_vec();
            // Fields of a format mostly stay where they are; words push on what follows.
            let replaces = match is_word {
                true => one_in(2, random),
                false => !one_in(8, random),
            };
            if !replaces {
                let at = random.below(made.len() + 1);
                made.splice(at..at, new);
            } else if new.len() <= made.len() {
                let at = random.below(made.len() - new.len() + 1);
                made[at..at + new.len()].copy_from_slice(&new);
            }
            if made != input && made.len() <= most {
                return Some(made);
            }
        }
        None
    }

    /// All words, those of the dictionary first.
    pub fn words(&self) -> impl Iterator<Item = &[u8]> {
        self.given
            .iter()
            .chain(&self.found.items)
            .map(Vec::as_slice)
    }

    /// How many words there are.
    pub(crate) fn word_count(&self) -> usize {
        self.given.len() + self.found.items.len()
    }

    /// The word of this index.
    pub(crate) fn word(&self, index: usize) -> &[u8] {
        match index.checked_sub(self.given.len()) {
            None => &self.given[index],
            Some(index) => &self.found.items[index],
        }
    }

    /// Numbers that comparisons revealed.
    pub fn numbers(&self) -> &[u64] {
        &self.numbers.items
    }

    /// What was compared with what: where the first stands, the second may be worth a try.
    pub(crate) fn pairs(&self) -> &[(Vec<u8>, Vec<u8>)] {
        &self.pairs.items
    }
}

/// A number as some field may have it: as long as it needs to be, or longer, with either end first.
fn as_bytes(number: u64, random: &mut dyn Below) -> Vec<u8> {
    let least = match number {
        0..=0xffff => 0,
        0x1_0000..=0xffff_ffff => 1,
        _ => 2,
    };
    let length = 2 << (least + random.below(3 - least));
    let mut bytes = number.to_le_bytes()[..length].to_vec();
    if one_in(2, random) {
        bytes.reverse();
    }
    bytes
}

/// The value of one line; none if it has none. An error has its place from zero.
fn dictionary_line(line: &[u8]) -> Result<Option<Vec<u8>>, (usize, &'static str)> {
    let start = line.iter().position(|byte| !byte.is_ascii_whitespace());
    let Some(start) = start.filter(|start| line[*start] != b'#') else {
        return Ok(None);
    };
    let Some(quote) = line.iter().position(|byte| *byte == b'"') else {
        return Err((
            start,
            "a line of a dictionary is `name=\"value\"`; there is no `\"` here",
        ));
    };
    let name = line[start..quote].trim_ascii();
    if !name.is_empty() && !name.ends_with(b"=") {
        return Err((start, "between the name and the value there must be `=`"));
    }
    let mut value = Vec::new();
    let mut at = quote + 1;
    loop {
        let Some(&byte) = line.get(at) else {
            return Err((quote, "this `\"` is never closed"));
        };
        match byte {
            b'"' => break,
            b'\\' => {
                let digits = line
                    .get(at + 2..at + 4)
                    .and_then(|two| std::str::from_utf8(two).ok());
                match line.get(at + 1) {
                    Some(b'x' | b'X') => {
                        let byte = digits.filter(|two| two.bytes().all(|d| d.is_ascii_hexdigit()));
                        let byte = byte.and_then(|two| u8::from_str_radix(two, 16).ok());
                        value.push(byte.ok_or((at, "`\\x` needs two hexadecimal digits"))?);
                        at += 4;
                    }
                    Some(escaped @ (b'\\' | b'"')) => {
                        value.push(*escaped);
                        at += 2;
                    }
                    _ => return Err((at, "only \\xNN, \\\\ and \\\" are escapes here")),
                }
            }
            _ => {
                value.push(byte);
                at += 1;
            }
        }
    }
    let rest = line[at + 1..].trim_ascii_start();
    if !rest.is_empty() && !rest.starts_with(b"#") {
        return Err((at + 1, "something follows the value"));
    }
    if value.is_empty() {
        return Err((quote, "the value is empty"));
    }
    Ok(Some(value))
}

#[cfg(test)]
mod tests {
    use super::{MAX_FOUND, Tokens};

    fn words(text: &str) -> Vec<Vec<u8>> {
        let mut tokens = Tokens::default();
        tokens
            .add_dictionary(text.as_bytes())
            .expect("a dictionary");
        tokens.words().map(<[u8]>::to_vec).collect()
    }

    #[test]
    fn a_dictionary_is_read_as_afl_reads_it() {
        let text = "# comment\n\nkw_get=\"get\"\n\"bare\"\n  low@2 = \"a\\x00\\\\\\\"b\"  # why\nagain=\"get\"\r\n";
        let expected: [&[u8]; 3] = [b"get", b"bare", b"a\0\\\"b"];
        assert_eq!(words(text), expected);
    }

    #[test]
    fn errors_say_where() {
        let message = |text: &str| {
            let error = Tokens::default().add_dictionary(text.as_bytes());
            error.expect_err("wrong").to_string()
        };
        assert!(message("a=\"b\"\nget").starts_with("line 2, column 1: "));
        assert!(message("a=\"\\q\"").starts_with("line 1, column 4: only"));
        assert!(message("a=\"\\x0\"").contains("two hexadecimal"));
        assert!(message("a=\"b").contains("never closed"));
        assert!(message("a \"b\"").contains("`=`"));
        assert!(message("a=\"b\" c").contains("follows"));
        assert!(message("a=\"\"").contains("empty"));
    }

    #[test]
    fn what_runs_reveal_is_bounded_and_pushes_out_only_its_own_kind() {
        let mut tokens = Tokens::default();
        tokens.add_given(b"given");
        for number in 0..10_000u64 {
            tokens.add_number(number + 100);
            tokens.add_found(format!("word{number}").as_bytes());
        }
        assert_eq!(tokens.numbers().len(), MAX_FOUND);
        assert_eq!(tokens.word_count(), MAX_FOUND + 1);
        assert_eq!(tokens.words().next(), Some(&b"given"[..]));
        assert!(tokens.numbers().contains(&10_099));
        assert!(!tokens.add_number(10_099), "known");
        assert!(tokens.add_number(100), "forgotten, so it is new again");
    }

    #[test]
    fn they_are_saved_and_read_again() {
        let mut tokens = Tokens::default();
        tokens.add_given(b"get");
        tokens.add_found(b"\xffincr");
        tokens.add_number_pair(5, 31337);
        let text = serde_json::to_string(&tokens).expect("plain data");
        assert_eq!(
            serde_json::from_str::<Tokens>(&text).expect("the same"),
            tokens
        );
    }

    /// Of binary inputs nothing is known but the bytes: what the program waits for gets there, and
    /// nothing becomes too long.
    #[test]
    fn what_is_known_gets_into_bytes() {
        let mut tokens = Tokens::default();
        let mut state = 1u64;
        let mut below = |n: usize| {
            state = state
                .wrapping_mul(6364136223846793005)
                .wrapping_add(1442695040888963407);
            (state >> 33) as usize % n
        };
        assert_eq!(tokens.graft(b"\0\x01\x02", 9, &mut below), None);
        tokens.add_given(b"\x7fELF");
        tokens.add_number(0x1122_3344);
        let wanted: [&[u8]; 4] = [
            b"\x7fELF",
            b"\x44\x33\x22\x11",
            b"\x11\x22\x33\x44",
            b"\0\0\0\0\x11\x22\x33\x44",
        ];
        let mut seen = [false; 4];
        let mut lengths = [false; 21];
        for _ in 0..400 {
            let made = tokens.graft(&[0; 12], 20, &mut below).expect("one fits");
            assert_ne!(made, [0; 12]);
            lengths[made.len()] = true;
            for (seen, wanted) in seen.iter_mut().zip(wanted) {
                *seen |= made.windows(wanted.len()).any(|part| part == wanted);
            }
        }
        assert_eq!(seen, [true; 4]);
        assert!(lengths[12] && lengths[16], "put over something and between");
        assert_eq!(tokens.graft(b"", 1, &mut below), None, "nothing fits");
    }

    #[test]
    fn strings_end_at_a_zero_byte() {
        let mut tokens = Tokens::default();
        assert!(tokens.add_found(b"incr\0rubbish"));
        assert!(!tokens.add_found(b"incr"));
        assert!(!tokens.add_found(b"\0"));
    }
}
