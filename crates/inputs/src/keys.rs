//! Which keys an input uses, and which are worth using next.
//!
//! Operations only do something to each other when they have a key in common. So most keys are
//! those that the input has already, or their neighbours; the rest come from a pool of small
//! numbers, and few from elsewhere.

use std::collections::HashSet;

use crate::numbers::{self, BOUNDARIES};
use crate::sequence::Sequence;
use crate::templates::{Field, Templates};
use crate::tokens::Tokens;
use crate::{Below, pick};

/// Small keys are below this: more than a node or a bucket usually holds, and few enough to meet by
/// chance.
const POOL: usize = 24;

/// The distinct keys of one input, in the order of their first use.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Keys {
    pub numbers: Vec<i128>,
    pub texts: Vec<Vec<u8>>,
}

impl Keys {
    pub fn of(sequence: &Sequence, templates: &Templates) -> Keys {
        let mut keys = Keys::default();
        let mut known = (HashSet::new(), HashSet::new());
        for operation in &sequence.operations {
            for (field, bytes) in operation.described(templates) {
                if !field.is_key() {
                    continue;
                }
                match number_in(field, bytes) {
                    Some(number) if known.0.insert(number) => keys.numbers.push(number),
                    None if known.1.insert(bytes) => keys.texts.push(bytes.to_vec()),
                    _ => {}
                }
            }
        }
        keys
    }

    /// A key for a field that can only hold a number.
    pub fn number(&self, tokens: &Tokens, random: &mut dyn Below) -> i128 {
        let small = |random: &mut dyn Below| random.below(POOL) as i128;
        let old = |random: &mut dyn Below| match self.numbers.as_slice() {
            [] => None,
            numbers => Some(*pick(numbers, random)),
        };
        match random.below(32) {
            0..=15 => old(random).unwrap_or_else(|| small(random)),
            16..=20 => {
                let step = if random.below(2) == 0 { 1 } else { -1 };
                old(random).map_or_else(|| small(random), |number| number + step)
            }
            21..=28 => small(random),
            29 => random.below(1000) as i128,
            30 => *pick(BOUNDARIES, random),
            _ => match tokens.numbers() {
                [] => random.below(1 << 16) as i128,
                numbers => i128::from(*pick(numbers, random)),
            },
        }
    }

    /// A key for a field that holds text; a number, if that is what the input's keys are.
    pub fn text(&self, tokens: &Tokens, random: &mut dyn Below) -> Vec<u8> {
        let all = self.texts.len() + self.numbers.len();
        if self.texts.is_empty() || random.below(all) >= self.texts.len() {
            return numbers::write(self.number(tokens, random), false);
        }
        let mut text = pick(&self.texts, random).clone();
        match random.below(32) {
            0..=19 => {}
            20..=25 => neighbour(&mut text, random),
            26..=28 => text.extend(numbers::write(random.below(POOL) as i128, false)),
            29 => text = numbers::write(self.number(tokens, random), false),
            30 => text = text.repeat(2 + random.below(15)),
            _ => {
                if let Some(word) = any_word(tokens, random) {
                    text = word;
                }
            }
        }
        text
    }
}

/// A word of the tokens that can stand where a word stands, if there is one.
pub(crate) fn any_word(tokens: &Tokens, random: &mut dyn Below) -> Option<Vec<u8>> {
    if tokens.word_count() == 0 {
        return None;
    }
    let word = tokens.word(random.below(tokens.word_count()));
    let fits = word.iter().all(|byte| *byte > b' ' && *byte != 0x7f);
    fits.then(|| word.to_vec())
}

/// The number that this field holds, if it holds one.
pub(crate) fn number_in(field: &Field, bytes: &[u8]) -> Option<i128> {
    match field {
        Field::Fixed(fixed) => fixed.read(bytes).map(i128::from),
        _ => numbers::read(bytes).map(|number| number.value),
    }
}

/// Changes the last byte to one beside it.
fn neighbour(text: &mut [u8], random: &mut dyn Below) {
    if let Some(last) = text.last_mut() {
        let changed = if random.below(2) == 0 {
            last.wrapping_add(1)
        } else {
            last.wrapping_sub(1)
        };
        // A blank or a brace would be no word any more.
        if changed.is_ascii_alphanumeric() {
            *last = changed;
        }
    }
}
