//! Which test case is changed next: by chance, in proportion to its weight.
//!
//! A weight grows with the priority of the case (see `feedback.rs`) and shrinks with each time that
//! it was chosen. The choice depends on the generator of the state alone, so that campaigns can be
//! repeated; LibAFL's own sampler goes through a map in an order that differs from process to
//! process.

use libafl::corpus::{Corpus, CorpusId};
use libafl::schedulers::Scheduler;
use libafl::state::{HasCorpus, HasRand};
use libafl::{Error, HasMetadata};
use libafl_bolts::rands::Rand;

use crate::case::Case;
use crate::feedback::Priority;

/// See the module's header.
#[derive(Clone, Debug, Default)]
pub struct ByPriority {
    /// Each with its priority and how often it was chosen.
    entries: Vec<(CorpusId, u8, u32)>,
}

/// So that small weights are numbers, too.
const SCALE: u64 = 1 << 16;

fn weight(priority: u8, chosen: u32, is_last: bool) -> u64 {
    let base = match priority {
        2.. => 8,
        1 => 3,
        0 => 1,
    };
    let fresh = if is_last { 4 } else { 1 };
    (base * fresh * SCALE / u64::from(chosen + 1)).max(1)
}

impl ByPriority {
    /// How many cases were never chosen, and how many of these have the highest priority.
    pub fn pending(&self) -> (u64, u64) {
        let never = self.entries.iter().filter(|(_, _, chosen)| *chosen == 0);
        let favoured = never.clone().filter(|(_, priority, _)| *priority >= 2);
        (never.count() as u64, favoured.count() as u64)
    }
}

impl<S> Scheduler<Case, S> for ByPriority
where
    S: HasCorpus<Case> + HasRand,
{
    fn on_add(&mut self, state: &mut S, id: CorpusId) -> Result<(), Error> {
        let entry = state.corpus().get(id)?.borrow();
        let priority = entry.metadata::<Priority>().map_or(1, |p| p.0);
        self.entries.push((id, priority, 0));
        Ok(())
    }

    fn next(&mut self, state: &mut S) -> Result<CorpusId, Error> {
        if self.entries.is_empty() {
            return Err(Error::empty("there is no test case to go on from"));
        }
        let recent = self.entries.len().saturating_sub(8);
        let weights = |entries: &[(CorpusId, u8, u32)]| {
            let weigh = |(n, (_, priority, chosen)): (usize, &(CorpusId, u8, u32))| {
                weight(*priority, *chosen, n >= recent && *chosen == 0)
            };
            entries.iter().enumerate().map(weigh).collect::<Vec<u64>>()
        };
        let weights = weights(&self.entries);
        let mut left = state.rand_mut().next() % weights.iter().sum::<u64>();
        let mut at = 0;
        while left >= weights[at] {
            left -= weights[at];
            at += 1;
        }
        self.entries[at].2 += 1;
        let id = self.entries[at].0;
        self.set_current_scheduled(state, Some(id))?;
        Ok(id)
    }

    fn set_current_scheduled(
        &mut self,
        state: &mut S,
        next: Option<CorpusId>,
    ) -> Result<(), Error> {
        *state.corpus_mut().current_mut() = next;
        Ok(())
    }
}
