//! How inputs are changed: by operations, if anything is known about those, and by bytes.
//!
//! Operations are the business of `brownout-inputs`, bytes that of LibAFL's havoc; words and
//! numbers that the program waits for are put among bytes, too, and records of binary inputs are
//! made longer and shorter together with their lengths. Which of the two is tried depends on how
//! well each has done of late.

use std::borrow::Cow;
use std::num::NonZeroUsize;

use brownout_inputs::{Limits, Mutator as Operations, Weights, reframed};
use libafl::Error;
use libafl::corpus::{Corpus, CorpusId};
use libafl::mutators::havoc_mutations::{HavocMutationsType, havoc_mutations};
use libafl::mutators::{HavocScheduledMutator, MutationResult, Mutator};
use libafl::state::{HasCorpus, HasMaxSize, HasRand};
use libafl_bolts::Named;
use libafl_bolts::rands::Rand;

use crate::case::Case;

/// An input that is longer is cut, unless a seed is longer than this.
pub const INPUT_MAX: usize = 16 << 10;

/// How long an input may become with these seeds: what a seed has, what is made of it may have,
/// too.
pub fn input_max(seeds: impl IntoIterator<Item = usize>) -> usize {
    let longest = seeds.into_iter().max();
    longest.unwrap_or(0).max(INPUT_MAX)
}

/// How long the inputs of several runs may be that become the input of one: two of the longest seed
/// fit, with a line feed between them.
pub fn chain_max(seeds: impl IntoIterator<Item = usize>) -> usize {
    let longest = seeds.into_iter().max();
    (2 * longest.unwrap_or(0) + 1).max(INPUT_MAX)
}

/// Of so many changes of bytes, one puts something in that the program is known to wait for.
const GRAFTS: usize = 4;

/// Of so many others, one changes a record with its length, if the input is binary.
const FRAMES: usize = 4;

/// See the module's header.
pub struct Changes {
    operations: Operations,
    weights: Weights,
    bytes: HavocScheduledMutator<HavocMutationsType>,
    /// Tries and finds of operations and of bytes.
    done: [(u32, u32); 2],
    last: Option<Last>,
    /// What is longer is cut.
    input_max: usize,
}

/// What the last change was.
enum Last {
    Operations(Vec<brownout_inputs::Change>),
    Bytes,
    Graft,
    Frame,
}

/// A number below `n`, from LibAFL's generator.
pub fn below<R: Rand>(random: &mut R, n: usize) -> usize {
    NonZeroUsize::new(n).map_or(0, |n| random.below(n))
}

impl Changes {
    /// With what is known about operations; what they make is cut there.
    pub fn new(operations: Operations, input_max: usize) -> Changes {
        Changes {
            operations: operations.with_limits(Limits {
                bytes: input_max,
                ..Limits::default()
            }),
            input_max,
            weights: Weights::default(),
            bytes: HavocScheduledMutator::new(havoc_mutations()),
            done: [(0, 0); 2],
            last: None,
        }
    }

    /// What is known about operations, and words and numbers to try.
    pub fn operations_mut(&mut self) -> &mut Operations {
        &mut self.operations
    }

    /// What the last change was, as file names have it.
    pub fn name(&self) -> String {
        match &self.last {
            Some(Last::Operations(changes)) => {
                let names: Vec<&str> = changes.iter().map(|change| change.name()).collect();
                names.join("+")
            }
            Some(Last::Graft) => "graft".to_owned(),
            Some(Last::Frame) => "frame".to_owned(),
            Some(Last::Bytes) | None => "havoc".to_owned(),
        }
    }

    /// Bytes with something among them that the program waits for, now and then.
    fn grafted<R: Rand>(&self, input: &[u8], random: &mut R) -> Option<Vec<u8>> {
        let mut random = |n: usize| below(random, n);
        if random(GRAFTS) > 0 {
            return None;
        }
        let tokens = &self.operations.tokens;
        tokens.graft(input, self.input_max, &mut random)
    }

    /// A record of another length among them, now and then.
    fn framed<R: Rand>(&self, input: &[u8], random: &mut R) -> Option<Vec<u8>> {
        let mut random = |n: usize| below(random, n);
        if random(FRAMES) > 0 {
            return None;
        }
        reframed(input, self.input_max, &mut random)
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
            self.last = Some(Last::Operations(mutated.changes));
        } else if let Some(input) = self.grafted(&case.input, state.rand_mut()) {
            case.input = input;
            self.last = Some(Last::Graft);
        } else if let Some(input) = self.framed(&case.input, state.rand_mut()) {
            case.input = input;
            self.last = Some(Last::Frame);
        } else {
            self.last = Some(Last::Bytes);
            self.bytes.mutate(state, case)?;
        }
        case.input.truncate(self.input_max);
        Ok(MutationResult::Mutated)
    }

    fn post_exec(&mut self, _: &mut S, new: Option<CorpusId>) -> Result<(), Error> {
        if let Some(last) = self.last.take() {
            let which = usize::from(!matches!(last, Last::Operations(_)));
            let (tries, finds) = &mut self.done[which];
            *tries += 1;
            *finds += u32::from(new.is_some());
            if *tries > 2000 {
                (*tries, *finds) = (*tries / 2, *finds / 2);
            }
            match last {
                Last::Operations(changes) => self.weights.tried(&changes, new.is_some()),
                _ if new.is_some() => self.weights.found_elsewhere(),
                _ => {}
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use brownout_inputs::Tokens;
    use libafl::corpus::{InMemoryCorpus, Testcase};
    use libafl::feedbacks::ConstFeedback;
    use libafl::state::StdState;
    use libafl_bolts::rands::StdRand;

    /// Changes of one input of which no templates are known.
    fn changed(
        input: &[u8],
        tokens: Tokens,
        input_max: usize,
        times: usize,
    ) -> Vec<(String, Vec<u8>)> {
        let case = Case {
            image: format!("{:032x}", 1).parse().expect("an id"),
            input: input.to_vec(),
        };
        let mut corpus = InMemoryCorpus::new();
        corpus.add(Testcase::new(case.clone())).expect("it fits");
        let (mut feedback, mut objective) = (ConstFeedback::new(false), ConstFeedback::new(false));
        let random = StdRand::with_seed(3);
        let found: InMemoryCorpus<Case> = InMemoryCorpus::new();
        let mut state =
            StdState::new(random, corpus, found, &mut feedback, &mut objective).expect("a state");
        state.set_max_size(input_max);
        let mut operations = Operations::new(Default::default());
        operations.tokens = tokens;
        let mut changes = Changes::new(operations, input_max);
        let mut one = |_| {
            let mut changed = case.clone();
            changes.mutate(&mut state, &mut changed).expect("a change");
            let name = changes.name();
            changes.post_exec(&mut state, None).expect("it is noted");
            (name, changed.input)
        };
        (0..times).map(&mut one).collect()
    }

    #[test]
    fn words_of_the_dictionary_get_into_binary_inputs() {
        let mut tokens = Tokens::default();
        let dictionary = b"magic=\"\\x89PNG\"\n";
        tokens.add_dictionary(dictionary).expect("a dictionary");
        let all = changed(&[0, 1, 2, 3, 4, 5, 6, 7, 8], tokens, INPUT_MAX, 200);
        let has = |input: &[u8]| input.windows(4).any(|part| part == b"\x89PNG");
        let grafts = all.iter().filter(|(name, _)| name == "graft");
        assert!(grafts.clone().count() > 20);
        assert!(grafts.clone().all(|(_, input)| has(input)));
        let without = changed(&[0, 1, 2, 3], Tokens::default(), INPUT_MAX, 50);
        assert!(without.iter().all(|(name, _)| name != "graft"));
    }

    #[test]
    fn records_of_binary_inputs_change_with_their_lengths() {
        let all = changed(b"\x01\x03abc\x02\x00", Tokens::default(), INPUT_MAX, 200);
        assert!(all.iter().filter(|(name, _)| name == "frame").count() > 20);
        let text = changed(b"put 5\nget 5\n", Tokens::default(), INPUT_MAX, 50);
        assert!(text.iter().all(|(name, _)| name == "havoc"));
    }

    /// What is behind the usual limit in a long seed is not lost by each change.
    #[test]
    fn long_seeds_stay_long() {
        let long = vec![b'x'; 3 * INPUT_MAX];
        let all = changed(&long, Tokens::default(), long.len(), 40);
        let kept = all.iter().filter(|(_, input)| input.len() > 2 * INPUT_MAX);
        let kept = kept.count();
        // Many changes in a row, each of which may remove a part, leave little of any input.
        assert!(kept > 7, "{kept}");
        assert!(all.iter().all(|(_, input)| input.len() <= long.len()));
    }
}
