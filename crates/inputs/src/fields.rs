//! What stands in the fields of operations: values that are made, and values that are changed.
//!
//! **Guarantee.** A value that is made or changed here fits its field: numbers stay in their range,
//! data has a length that the template allows, words hold neither blanks nor the separator.

use crate::keys::{self, Keys};
use crate::numbers::{self, BOUNDARIES};
use crate::sequence::Operation;
use crate::templates::{Field, Fixed, Meaning, Size, Templates};
use crate::tokens::Tokens;
use crate::{Below, one_in, pick};

/// What values are made of.
#[derive(Clone, Copy)]
pub(crate) struct Source<'a> {
    pub templates: &'a Templates,
    pub tokens: &'a Tokens,
    pub keys: &'a Keys,
}

/// How a value becomes another one.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Twist {
    /// Another value as for a new operation.
    Renew,
    /// A key that another operation has.
    Meet,
    /// One more or one less.
    Step,
    /// A value at which programs change their mind.
    Boundary,
    /// A large one.
    Big,
    /// A word or number that a dictionary has or a comparison revealed.
    Token,
}

impl Source<'_> {
    /// A new operation of this kind.
    pub fn operation(&self, template: usize, random: &mut dyn Below) -> Operation {
        let fields = self.templates.operations[template].fields();
        let fields = fields.map(|field| self.value(field, random)).collect();
        let mut operation = Operation {
            template: Some(template),
            fields,
            separated: true,
        };
        operation.set_lengths(self.templates);
        operation
    }

    /// A value for a field.
    pub fn value(&self, field: &Field, random: &mut dyn Below) -> Vec<u8> {
        let made = match field {
            Field::Key => self.keys.text(self.tokens, random),
            Field::Value => match random.below(8) {
                0 => keys::any_word(self.tokens, random).unwrap_or_else(|| word(random)),
                1 | 2 => word(random),
                _ => numbers::write(random.below(100) as i128, false),
            },
            Field::Int(range) => numbers::write(self.int(*range, random), false),
            // It is set when what it is the length of is known.
            Field::Len => b"0".to_vec(),
            Field::Data(size) => data(*size, random),
            Field::Word => match random.below(4) {
                0 => word(random),
                _ => keys::any_word(self.tokens, random).unwrap_or_else(|| word(random)),
            },
            Field::Byte => vec![self.byte(random)],
            Field::Choice(choices) => self.choice(choices, random),
            Field::Fixed(fixed) => fixed.write(self.fixed(*fixed, random)),
        };
        self.fitting(field, made)
    }

    /// Changes one value; whether it is another one now.
    pub fn twist(
        &self,
        field: &Field,
        bytes: &mut Vec<u8>,
        twist: Twist,
        random: &mut dyn Below,
    ) -> bool {
        let changed = match twist {
            Twist::Renew => Some(self.value(field, random)),
            Twist::Meet => self.met(field, random),
            Twist::Step => self.step(field, bytes, random),
            Twist::Boundary => self.number(field, *pick(BOUNDARIES, random), bytes),
            Twist::Big => self.big(field, bytes, random),
            Twist::Token => self.token(field, bytes, random),
        };
        match changed.map(|changed| self.fitting(field, changed)) {
            Some(changed) if changed != *bytes => {
                *bytes = changed;
                true
            }
            _ => false,
        }
    }

    fn int(&self, range: Option<(i64, i64)>, random: &mut dyn Below) -> i128 {
        match range {
            Some((low, high)) => {
                let (low, high) = (i128::from(low), i128::from(high));
                match random.below(8) {
                    0 => low,
                    1 => high,
                    _ => low + below(high - low + 1, random),
                }
            }
            None => match random.below(8) {
                0 => *pick(BOUNDARIES, random),
                1 => match self.tokens.numbers() {
                    [] => random.below(1 << 16) as i128,
                    numbers => i128::from(*pick(numbers, random)),
                },
                2 => random.below(1000) as i128,
                _ => random.below(16) as i128,
            },
        }
    }

    /// Whether there is a letter to choose that the program is known to compare with.
    pub fn knows_choice(&self, field: &Field) -> bool {
        let is_known = |choice: &Vec<u8>| match choice[..] {
            [letter] => self.tokens.has_letter(letter),
            _ => false,
        };
        matches!(field, Field::Choice(choices) if choices.iter().any(is_known))
    }

    /// One of these; of letters, mostly one that the program is known to compare with.
    fn choice(&self, choices: &[Vec<u8>], random: &mut dyn Below) -> Vec<u8> {
        let is_known = |choice: &&Vec<u8>| match choice[..] {
            [letter] => self.tokens.has_letter(letter),
            _ => false,
        };
        let known: Vec<&Vec<u8>> = choices.iter().filter(is_known).collect();
        match known.is_empty() || one_in(4, random) {
            true => pick(choices, random).clone(),
            false => pick(&known, random).to_vec(),
        }
    }

    fn fixed(&self, fixed: Fixed, random: &mut dyn Below) -> u64 {
        match fixed.meaning {
            Meaning::Key => clamp(self.keys.number(self.tokens, random), fixed),
            Meaning::Len => 0,
            Meaning::Range(low, high) => {
                let span = i128::from(high) - i128::from(low) + 1;
                (i128::from(low) + below(span, random)) as u64
            }
            Meaning::Any => clamp(self.int(None, random), fixed),
        }
    }

    fn byte(&self, random: &mut dyn Below) -> u8 {
        let separator = self.templates.separator.as_slice();
        loop {
            let byte = match random.below(4) {
                0 => random.below(256) as u8,
                _ => b' ' + random.below(95) as u8,
            };
            // A byte of the separator would end the operation early. A program that wants one gets
            // it from the changes of bytes.
            if separator.len() > 16 || !separator.contains(&byte) {
                return byte;
            }
        }
    }

    /// A key of the input.
    fn met(&self, field: &Field, random: &mut dyn Below) -> Option<Vec<u8>> {
        if !field.is_key() {
            return None;
        }
        let numbers = self.keys.numbers.len();
        let texts = if matches!(field, Field::Key) {
            self.keys.texts.len()
        } else {
            0
        };
        if numbers + texts == 0 {
            return None;
        }
        let index = random.below(numbers + texts);
        match index.checked_sub(numbers) {
            None => self.number(field, self.keys.numbers[index], b""),
            Some(index) => Some(self.keys.texts[index].clone()),
        }
    }

    fn step(&self, field: &Field, bytes: &[u8], random: &mut dyn Below) -> Option<Vec<u8>> {
        let far = if one_in(4, random) {
            1 + random.below(16) as i128
        } else {
            1
        };
        let step = if random.below(2) == 0 { far } else { -far };
        match field {
            Field::Data(size) => {
                let mut changed = bytes.to_vec();
                if step > 0 {
                    let last = *bytes.last().unwrap_or(&b'x');
                    changed.resize((bytes.len() + step as usize).min(size.most), last);
                } else {
                    let length = bytes.len().saturating_sub(far as usize);
                    changed.truncate(length.max(size.least));
                }
                Some(changed)
            }
            Field::Choice(choices) => Some(self.choice(choices, random)),
            Field::Byte => Some(vec![bytes.first()?.wrapping_add(step as u8)]),
            _ => self.number(field, keys::number_in(field, bytes)? + step, bytes),
        }
    }

    fn big(&self, field: &Field, bytes: &[u8], random: &mut dyn Below) -> Option<Vec<u8>> {
        match field {
            Field::Data(size) => Some(filled((size.most / 2) + random.below(size.most / 2 + 1))),
            Field::Key | Field::Word | Field::Value if keys::number_in(field, bytes).is_none() => {
                Some(bytes.repeat(1 << (1 + random.below(6))))
            }
            _ => {
                let bits = 8 + random.below(56);
                let low = random.below(1 << 16) as i128;
                self.number(field, (1i128 << bits) + low, bytes)
            }
        }
    }

    fn token(&self, field: &Field, bytes: &[u8], random: &mut dyn Below) -> Option<Vec<u8>> {
        let numbers = self.tokens.numbers();
        let words = match field {
            Field::Key | Field::Value | Field::Word | Field::Data(_) => self.tokens.word_count(),
            _ => 0,
        };
        if numbers.len() + words == 0 {
            return None;
        }
        // Half and half: a program that compares with hundreds of numbers must not hide its words.
        let take_word = words > 0 && (numbers.is_empty() || one_in(2, random));
        if take_word {
            match field {
                Field::Data(_) => Some(self.tokens.word(random.below(words)).to_vec()),
                _ => keys::any_word(self.tokens, random),
            }
        } else {
            let near = random.below(8);
            let step = if near < 2 { 1 - 2 * near as i128 } else { 0 };
            self.number(field, i128::from(*pick(numbers, random)) + step, bytes)
        }
    }

    /// This number in this field, written as `like` is; none where the field holds no number.
    pub fn number(&self, field: &Field, number: i128, like: &[u8]) -> Option<Vec<u8>> {
        let hexadecimal = numbers::read(like).is_some_and(|old| old.hexadecimal);
        Some(match field {
            Field::Key | Field::Value | Field::Int(_) => numbers::write(number, hexadecimal),
            Field::Word if numbers::read(like).is_some() => numbers::write(number, hexadecimal),
            Field::Fixed(fixed) => fixed.write(clamp(number, *fixed)),
            Field::Byte => vec![number as u8],
            Field::Len | Field::Data(_) | Field::Choice(_) | Field::Word => return None,
        })
    }

    /// The nearest value that the field can hold.
    pub fn fitting(&self, field: &Field, mut bytes: Vec<u8>) -> Vec<u8> {
        match field {
            Field::Int(Some((low, high))) => {
                let number = numbers::read(&bytes).map_or(0, |number| number.value);
                let (low, high) = (i128::from(*low), i128::from(*high));
                if (low..=high).contains(&number) {
                    bytes
                } else {
                    numbers::write(number.clamp(low, high), false)
                }
            }
            Field::Fixed(fixed) => match (fixed.meaning, fixed.read(&bytes)) {
                (Meaning::Range(low, high), Some(number)) => fixed.write(number.clamp(low, high)),
                _ => bytes,
            },
            Field::Data(size) => {
                bytes.truncate(size.most);
                let filler = *bytes.last().unwrap_or(&b'x');
                bytes.resize(bytes.len().max(size.least), filler);
                bytes
            }
            Field::Key | Field::Value | Field::Word => {
                // No program wants a word longer than a page; a template with `{data}` says
                // otherwise.
                bytes.truncate(1 << 12);
                let separator = self.templates.separator.as_slice();
                if !separator.is_empty() {
                    let mut windows = bytes.windows(separator.len());
                    if let Some(end) = windows.position(|window| window == separator) {
                        bytes.truncate(end);
                    }
                }
                if bytes.is_empty() {
                    bytes.push(b'0');
                }
                bytes
            }
            _ => bytes,
        }
    }
}

/// A number smaller than `n`, which may be as large as all numbers of 64 bits are many.
fn below(n: i128, random: &mut dyn Below) -> i128 {
    if n <= 1 << 31 {
        return random.below(n.max(1) as usize) as i128;
    }
    let high = random.below(1 << 31) as i128;
    let middle = random.below(1 << 31) as i128;
    let low = random.below(1 << 31) as i128;
    (high << 62 | middle << 31 | low) % n
}

/// The bytes of this number that fit.
fn clamp(number: i128, fixed: Fixed) -> u64 {
    // A negative number is the one that has the same bits.
    number as u64 & fixed.most()
}

/// A short word.
fn word(random: &mut dyn Below) -> Vec<u8> {
    let letters = 1 + random.below(4);
    (0..letters)
        .map(|_| b'a' + random.below(26) as u8)
        .collect()
}

/// So many bytes, in which one sees what is missing.
fn filled(length: usize) -> Vec<u8> {
    (b'a'..=b'z').cycle().take(length).collect()
}

/// Bytes of a length that the template allows: mostly short, sometimes at a boundary.
fn data(size: Size, random: &mut dyn Below) -> Vec<u8> {
    let span = size.most - size.least + 1;
    let length = match random.below(8) {
        0 => size.least + random.below(span),
        1 => {
            let boundary = *pick(BOUNDARIES, random);
            usize::try_from(boundary).map_or(size.least, |length| length.min(size.most))
        }
        _ => size.least + random.below(span.min(12)),
    };
    let length = length.max(size.least);
    match random.below(4) {
        0 => vec![b'a' + random.below(26) as u8; length],
        _ => filled(length),
    }
}
