//! What all workers of a search know, and how often what was seen is tried.
//!
//! Guarantee: whatever comes to nothing is tried a bounded number of times, so that a search goes
//! on to something else.

use std::sync::{Mutex, MutexGuard};

use rustc_hash::{FxHashMap, FxHashSet};

use crate::discoveries::{Discoveries, Remark};
use crate::effects::{Effect, How};
use crate::goals::Goals;
use crate::inputs::Inputs;
use crate::judge::Verdict;
use crate::numbers::Numbers;
use crate::proof::What;

/// A candidate is followed in so many runs: what a thread makes of what it reads depends on the
/// schedule, too.
const FOLLOWED_MAX: u32 = 4;
/// It is given up if so many runs went another way, or did not end, when they were run again to
/// follow it, or if no crash leaves what they made of it without what they had read. An effect is,
/// if no crash of so many runs leaves it without its source.
pub(super) const IN_VAIN_MAX: u32 = 16;
/// A change of a word is tried so often.
pub(super) const CHANGE_TRIES_MAX: u32 = 2;
/// An effect that is not confirmed is tried so often.
const TRIES_MAX: u32 = 3;
/// What is only stored afterwards is tried so often.
const AFTERWARDS_TRIES_MAX: u32 = 2;
/// Effects that are tried of one store and one load, unless one is confirmed.
const EFFECTS_PER_PAIR: u32 = 16;

/// Early reads, by [`pair_of`](crate::site::pair_of).
pub(super) type Pairs = FxHashSet<(u64, u64)>;

/// What became of an early read.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Candidate {
    /// In how many runs it was followed to their end.
    followed: u32,
    /// In how many that was tried and came to nothing that could be judged.
    in_vain: u32,
    /// It was seen in a run that did not end, which is not followed.
    is_cut: bool,
    /// It was seen in a run that has ended.
    is_whole: bool,
}

impl Candidate {
    pub(super) fn is_wanted(&self) -> bool {
        self.followed < FOLLOWED_MAX && self.in_vain < IN_VAIN_MAX
    }

    /// It was seen in a run that did not end (`is_endless`), or has ended (`is_whole`); neither, if
    /// something else has ended it.
    pub(super) fn seen(&mut self, is_endless: bool, is_whole: bool) {
        self.is_cut |= is_endless;
        self.is_whole |= is_whole;
    }

    /// It was only seen in runs that did not end.
    pub(super) fn is_never_whole(&self) -> bool {
        self.is_cut && !self.is_whole
    }
}

/// What came of running a schedule again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Looked {
    /// It was the same run. Of these reads something durable was made, but no crash leaves that
    /// without what was read: they may lie in one line this time, and in two another time.
    Followed(Pairs),
    /// It was another run, or did not come to its end.
    InVain,
    /// The search is over.
    Over,
}

/// What all workers know.
pub(super) struct State {
    pub(super) next: u64,
    /// Number of the last run that has shown something new.
    pub(super) news: u64,
    pub(super) goals: Goals,
    pub(super) inputs: Inputs,
    pub(super) pairs: FxHashSet<u64>,
    /// Branches that were taken in the first runs of inputs.
    pub(super) edges: Vec<u8>,
    /// By [`pair_of`](crate::site::pair_of), as whatever is known of early reads.
    pub(super) candidates: FxHashMap<(u64, u64), Candidate>,
    pub(super) inter: Pairs,
    /// By the name of an effect: how often it was tried; done with if that is the most.
    pub(super) effects: FxHashMap<u64, u32>,
    /// The same for what is only stored after a source was read.
    afterwards: FxHashMap<u64, u32>,
    /// By the name of an effect: in how many runs no crash leaves it without its source.
    fruitless: FxHashMap<u64, u32>,
    pub(super) judged: FxHashMap<u64, Verdict>,
    /// Of these an effect is confirmed.
    pub(super) confirmed: Pairs,
    /// Effects that were tried of an early read; those that are only stored afterwards by
    /// themselves.
    by_pair: FxHashMap<(u64, u64, bool), u32>,
    pub(super) changes: FxHashMap<u64, u32>,
    pub(super) deadlocks: FxHashSet<u64>,
    /// Words that a crash was seen to leave taken.
    pub(super) stuck_words: FxHashSet<u64>,
    pub(super) found: Discoveries,
    pub(super) numbers: Numbers,
    /// How the program has ended that is known.
    pub(super) endings: FxHashSet<What>,
    pub(super) remarks: Vec<Remark>,
    /// Recovery fails after a crash in which nothing is lost: where, and how.
    pub(super) fails_anyway: Option<String>,
    /// Recovery fails if something is lost that nothing was made of: where, and how.
    pub(super) fails_before: Option<String>,
    /// What runs after a crash ends so though nothing is lost that some of its failures prove
    /// nothing.
    pub(super) not_judged: Option<String>,
    /// Not all effects of a run that was looked into have been tried.
    pub(super) has_more: bool,
    /// How long runs are, in steps.
    pub(super) length: u64,
    pub(super) has_diverged: u64,
}

/// For a moment: nobody else goes on meanwhile.
pub(super) fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state
        .lock()
        .unwrap_or_else(|poisoned| poisoned.into_inner())
}

impl State {
    /// Before the run with the number `first`.
    pub(super) fn new(
        first: u64,
        inputs: Inputs,
        known: Discoveries,
        endings: FxHashSet<What>,
    ) -> State {
        State {
            next: first,
            news: first,
            goals: Goals::default(),
            inputs,
            pairs: FxHashSet::default(),
            edges: Vec::new(),
            candidates: FxHashMap::default(),
            inter: Pairs::default(),
            effects: FxHashMap::default(),
            afterwards: FxHashMap::default(),
            fruitless: FxHashMap::default(),
            judged: FxHashMap::default(),
            confirmed: Pairs::default(),
            by_pair: FxHashMap::default(),
            changes: FxHashMap::default(),
            deadlocks: FxHashSet::default(),
            stuck_words: FxHashSet::default(),
            found: known,
            numbers: Numbers::default(),
            endings,
            remarks: Vec::new(),
            fails_anyway: None,
            fails_before: None,
            not_judged: None,
            has_more: false,
            length: 1000,
            has_diverged: 0,
        }
    }

    /// Whether a run in which something is read early is to be followed: for what it shows itself,
    /// or because one before it has left something untried, which makes one run be followed and no
    /// more.
    pub(super) fn follows(&mut self, shows_wanted: bool) -> bool {
        std::mem::take(&mut self.has_more) || shows_wanted
    }

    /// Counts what was followed, once it has been.
    pub(super) fn count(&mut self, candidates: &[(u64, u64)], looked: &Looked) {
        for key in candidates {
            let candidate = self.candidates.entry(*key).or_default();
            match looked {
                Looked::Followed(fruitless) if fruitless.contains(key) => candidate.in_vain += 1,
                Looked::Followed(_) => candidate.followed += 1,
                Looked::InVain => candidate.in_vain += 1,
                Looked::Over => {}
            }
        }
    }

    /// Whether an effect was not tried often enough yet.
    pub(super) fn may_try(&mut self, effect: &Effect) -> bool {
        let pair = effect.source.pair();
        let is_after = effect.how == How::Afterwards;
        if is_after && self.confirmed.contains(&pair) {
            return false;
        }
        let (tries, tries_max) = match is_after {
            true => (&mut self.afterwards, AFTERWARDS_TRIES_MAX),
            false => (&mut self.effects, TRIES_MAX),
        };
        // That it was seen is counted, too.
        let tries = *tries.entry(effect.name).or_default();
        let of_pair = self.by_pair.get(&(pair.0, pair.1, is_after));
        let in_vain = self.fruitless.get(&effect.name);
        tries < tries_max
            && of_pair.is_none_or(|count| *count < EFFECTS_PER_PAIR)
            && in_vain.is_none_or(|count| *count < IN_VAIN_MAX)
    }

    /// An effect is tried.
    pub(super) fn count_try(&mut self, effect: &Effect) {
        let pair = effect.source.pair();
        let is_after = effect.how == How::Afterwards;
        let tries = match is_after {
            true => &mut self.afterwards,
            false => &mut self.effects,
        };
        *tries.entry(effect.name).or_default() += 1;
        let of_pair = self.by_pair.entry((pair.0, pair.1, is_after));
        *of_pair.or_default() += 1;
    }

    /// No crash of a run leaves the effect of this name without its source.
    pub(super) fn count_in_vain(&mut self, name: u64) {
        *self.fruitless.entry(name).or_default() += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state() -> State {
        State::new(
            0,
            Inputs::one(None),
            Discoveries::default(),
            FxHashSet::default(),
        )
    }

    #[test]
    fn what_comes_to_nothing_is_followed_for_longer() {
        let (fruitful, fruitless) = ((1, 2), (3, 4));
        let mut state = state();
        let looked = Looked::Followed(Pairs::from_iter([fruitless]));
        for _ in 0..FOLLOWED_MAX {
            state.count(&[fruitful, fruitless], &looked);
        }
        assert!(!state.candidates[&fruitful].is_wanted());
        assert!(state.candidates[&fruitless].is_wanted());
        for _ in FOLLOWED_MAX..IN_VAIN_MAX {
            state.count(&[fruitless], &Looked::InVain);
        }
        assert!(!state.candidates[&fruitless].is_wanted());
    }

    #[test]
    fn what_is_left_makes_one_run_be_followed() {
        let mut state = state();
        state.has_more = true;
        assert!(state.follows(false));
        assert!(!state.follows(false));
        state.has_more = true;
        assert!(state.follows(true) && !state.has_more);
    }

    #[test]
    fn what_a_run_has_shown_that_ended_is_not_cut() {
        let mut candidate = Candidate::default();
        candidate.seen(true, false);
        assert!(candidate.is_never_whole());
        // Though nothing could be made of it.
        candidate.seen(false, true);
        assert!(!candidate.is_never_whole());
        assert!(!Candidate::default().is_never_whole());
    }
}
