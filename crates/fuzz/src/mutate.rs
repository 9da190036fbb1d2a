//! How inputs are changed: by operations, if anything is known about those, and by bytes.
//!
//! Operations are the business of `brownout-inputs`, bytes that of LibAFL's havoc. Which of the two is tried depends on how well each has
//! done of late.

use std::borrow::Cow;
use std::num::NonZeroUsize;

use brownout_inputs::{Mutator as Operations, Tokens, Weights};
use libafl::Error;
use libafl::corpus::{Corpus, CorpusId};
use libafl::mutators::havoc_mutations::{HavocMutationsType, havoc_mutations};
use libafl::mutators::{HavocScheduledMutator, MutationResult, Mutator};
use libafl::state::{HasCorpus, HasMaxSize, HasRand};
use libafl_bolts::Named;
use libafl_bolts::rands::Rand;

use crate::case::Case;

/// An input that is longer is cut.
pub const INPUT_MAX: usize = 16 << 10;

/// See the module's header.
pub struct Changes {
    operations: Operations,
    weights: Weights,
    bytes: HavocScheduledMutator<HavocMutationsType>,
    /// Tries and finds of operations and of bytes.
    done: [(u32, u32); 2],
    last: Option<(usize, Vec<brownout_inputs::Change>)>,
}

/// A number below `n`, from LibAFL's generator.
pub fn below<R: Rand>(random: &mut R, n: usize) -> usize {
    NonZeroUsize::new(n).map_or(0, |n| random.below(n))
}

impl Changes {
    /// With what is known about operations.
    pub fn new(operations: Operations) -> Changes {
        Changes {
            operations,
            weights: Weights::default(),
            bytes: HavocScheduledMutator::new(havoc_mutations()),
            done: [(0, 0); 2],
            last: None,
        }
    }

    /// Words and numbers to try.
    pub fn tokens_mut(&mut self) -> &mut Tokens {
        &mut self.operations.tokens
    }

    /// What the last change was, as file names have it.
    pub fn name(&self) -> String {
        match &self.last {
            Some((0, changes)) => {
                let names: Vec<&str> = changes.iter().map(|change| change.name()).collect();
                names.join("+")
            }
            _ => "havoc".to_owned(),
        }
    }

    /// How many of a hundred changes are of operations.
    fn share(&self) -> usize {
        if !self.operations.knows_operations() {
            return 0;
        }
        let rate = |(tries, finds): (u32, u32)| f64::from(finds + 1) / f64::from(tries + 50);
        let [operations, bytes] = self.done.map(rate);
        (100.0 * operations / (operations + bytes)).clamp(60.0, 95.0) as usize
    }
}

const CHANGES: Cow<'static, str> = Cow::Borrowed("changes");

impl Named for Changes {
    fn name(&self) -> &Cow<'static, str> {
        const { &CHANGES }
    }
}

impl<S> Mutator<Case, S> for Changes
where
    S: HasCorpus<Case> + HasRand + HasMaxSize,
{
    fn mutate(&mut self, state: &mut S, case: &mut Case) -> Result<MutationResult, Error> {
        if below(state.rand_mut(), 100) < self.share() {
            let count = state.corpus().count();
            let other = below(state.rand_mut(), count);
            let other = state.corpus().nth(other);
            let other = state.corpus().get(other)?.borrow().input().clone();
            let other = other.map(|case| case.input);
            let random = state.rand_mut();
            let mut random = |n: usize| below(random, n);
            let mutated =
                self.operations
                    .mutate(&case.input, other.as_deref(), &self.weights, &mut random);
            case.input = mutated.input;
            self.last = Some((0, mutated.changes));
        } else {
            self.last = Some((1, Vec::new()));
            self.bytes.mutate(state, case)?;
        }
        case.input.truncate(INPUT_MAX);
        Ok(MutationResult::Mutated)
    }

    fn post_exec(&mut self, _: &mut S, new: Option<CorpusId>) -> Result<(), Error> {
        if let Some((which, changes)) = self.last.take() {
            let (tries, finds) = &mut self.done[which];
            *tries += 1;
            *finds += u32::from(new.is_some());
            if *tries > 2000 {
                (*tries, *finds) = (*tries / 2, *finds / 2);
            }
            match which {
                0 => self.weights.tried(&changes, new.is_some()),
                _ if new.is_some() => self.weights.found_elsewhere(),
                _ => {}
            }
        }
        Ok(())
    }
}
