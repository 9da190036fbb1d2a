//! What inputs of a program consist of, and how they are changed: operations, templates, tokens.
//!
//! **Purpose.** Programs that keep data persistently take commands: insert a key, remove it, print.
//! Flipping bits of such an input mostly yields commands that are refused. So an input is taken
//! apart into [operations](Sequence), as [templates](Templates) describe them (which the user
//! writes, or which are [learnt](learn()) from seeds), and changed as a sequence: operations are
//! added, removed, repeated, moved; their keys are made to meet; a structure is filled until its
//! nodes split, and drained again. [`minimise()`] makes an input that shows something small.
//!
//! **Guarantee.** All of it is a function of its arguments and of the numbers that [`Below`] hands
//! out: the same numbers give the same inputs. Nothing here runs a program, reads a file or knows
//! what persistent memory is. An input that is taken apart and printed is the same, byte for byte.
//!
//! **Source.** The operations mutator of PMRace (section 4.5: mutation, addition, deletion,
//! shuffling, merging, and the load phase when nothing new comes; similar keys, so that operations
//! meet), with these differences:
//!
//! 1. PMRace wants rules in the form of C code; here a line is enough, or a seed.
//! 2. What a command does is not known. `populate` and `drain` believe its name most of the time,
//!    and try others, too.
//! 3. How often each change is tried follows what it has found lately ([`Weights`]).
//!
//! Inputs that are no text may have records that begin with their length: [`reframed`] changes both
//! together. Changes of single bytes (havoc, splicing) are not here: the fuzzer takes LibAFL's.
//!
//! ```
//! use brownout_inputs::{Mutator, Templates, Weights};
//! let templates: Templates = "i {key}\nr {key}\np".parse().expect("three templates");
//! let mutator = Mutator::new(templates);
//! // Any source of random numbers will do; this one is a bad one.
//! let mut state = 7usize;
//! let mut below = |n: usize| {
//!     state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
//!     (state >> 33) % n
//! };
//! let mut weights = Weights::default();
//! let mutated = mutator.mutate(b"i 5\nr 5\n", None, &weights, &mut below);
//! assert_ne!(mutated.input, b"i 5\nr 5\n");
//! // It is told what came of it, so that what has found something is tried more often.
//! weights.tried(&mutated.changes, false);
//! ```
#![forbid(unsafe_code)]

mod change;
mod fields;
mod formats;
mod frames;
mod keys;
mod learn;
mod minimise;
mod mutate;
mod numbers;
mod operands;
mod read;
mod sequence;
pub mod templates;
mod tokens;
mod weights;

pub use change::Change;
pub use frames::reframed;
pub use learn::learn;
pub use minimise::{Minimised, minimise};
pub use mutate::{Limits, Mutated, Mutator};
pub use operands::{Compared, Replaced, replacements};
pub use read::TemplateError;
pub use sequence::{MAX_OPERATIONS, Operation, Sequence};
pub use templates::{Template, Templates};
pub use tokens::{DictionaryError, Tokens};
pub use weights::Weights;

/// Random numbers.
///
/// A closure is one; so the fuzzer passes its own generator, and tests pass theirs.
pub trait Below {
    /// A number smaller than `n`, which is not 0.
    fn below(&mut self, n: usize) -> usize;
}

impl<F: FnMut(usize) -> usize> Below for F {
    fn below(&mut self, n: usize) -> usize {
        self(n)
    }
}

/// One of these, which are not none.
pub(crate) fn pick<'a, T>(from: &'a [T], random: &mut dyn Below) -> &'a T {
    &from[random.below(from.len())]
}

/// Yes, in one of `n` cases.
pub(crate) fn one_in(n: usize, random: &mut dyn Below) -> bool {
    random.below(n) == 0
}

/// Puts these into any order.
pub(crate) fn shuffle<T>(items: &mut [T], random: &mut dyn Below) {
    for last in (1..items.len()).rev() {
        items.swap(last, random.below(last + 1));
    }
}

/// An index, as likely as its weight says; none if all weights are 0.
pub(crate) fn weighted(weights: &[u64], random: &mut dyn Below) -> Option<usize> {
    let sum: u64 = weights.iter().sum();
    if sum == 0 {
        return None;
    }
    let mut left = random.below(usize::try_from(sum).unwrap_or(usize::MAX)) as u64;
    weights
        .iter()
        .position(|weight| match left.checked_sub(*weight) {
            Some(rest) => {
                left = rest;
                false
            }
            None => true,
        })
}
