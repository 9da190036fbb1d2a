//! The persistency state of a byte range: one enum and its transitions.
//!
//! The state is about the *last store* to the range: is it in every legal crash state from now on?
//! Who issued a flush or store is the caller's bookkeeping; a transition is told whether a fence is
//! the right thread's (`own`).

use crate::domain::{FenceRule, FlushRule, StoreRule};

/// How far the last store to a range has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Persistency {
    /// Not stored to, as far as this run is concerned. Persistent by definition.
    #[default]
    Clean,
    /// In the cache. May persist at any time, or never. Becomes `Flushing` or `Persisted` by a
    /// write-back.
    Dirty,
    /// In the cache with a write-back under way. `Persisted` at the next fence of a thread that
    /// flushed it.
    Flushing,
    /// On its way past the cache. `Persisted` at the next fence of the thread that stored it; no
    /// flush helps.
    Draining,
    /// In every crash state from here on.
    Persisted,
}

/// What can happen to a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Input {
    /// All of it is stored to.
    Store(StoreRule),
    /// Its unit is written back.
    Flush(FlushRule),
    /// A thread fences.
    Fence {
        /// What the fence does.
        rule: FenceRule,
        /// True if it is the fence of a thread that the state waits for: who flushed
        /// (`Flushing`), who stored (all others).
        own: bool,
    },
}

impl Persistency {
    /// Every state.
    pub const ALL: [Persistency; 5] = [
        Persistency::Clean,
        Persistency::Dirty,
        Persistency::Flushing,
        Persistency::Draining,
        Persistency::Persisted,
    ];

    /// The state after `input`. All views go by this function. It is inlined, so that it costs
    /// nothing where the input, or the state before, is known.
    #[must_use]
    #[inline(always)]
    pub fn next(self, input: Input) -> Self {
        use Persistency::{Clean, Dirty, Draining, Flushing, Persisted};
        match (self, input) {
            (_, Input::Store(StoreRule::Cached)) => Dirty,
            (_, Input::Store(StoreRule::Unordered)) => Draining,
            (_, Input::Store(StoreRule::Durable)) => Persisted,

            (Clean | Persisted, _) => self,

            (Dirty | Flushing, Input::Flush(FlushRule::AtFence)) => Flushing,
            (Dirty | Flushing, Input::Flush(FlushRule::AtOnce)) => Persisted,
            (Dirty | Flushing, Input::Flush(FlushRule::Ignored)) => self,
            (Draining, Input::Flush(_)) => Draining,

            (_, Input::Fence { own: false, .. }) => self,
            (
                Flushing | Draining,
                Input::Fence {
                    rule: FenceRule::Completes,
                    ..
                },
            ) => Persisted,
            (
                Dirty,
                Input::Fence {
                    rule: FenceRule::Completes,
                    ..
                },
            ) => Dirty,
            (
                _,
                Input::Fence {
                    rule: FenceRule::Drains,
                    ..
                },
            ) => Persisted,
            (
                _,
                Input::Fence {
                    rule: FenceRule::Orders | FenceRule::Ignored,
                    ..
                },
            ) => self,
        }
    }

    /// True if the last store is in every crash state.
    pub fn is_persisted(self) -> bool {
        matches!(self, Persistency::Clean | Persistency::Persisted)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use FenceRule as N;
    use FlushRule as F;
    use Persistency::{Clean as C, Dirty as D, Draining as W, Flushing as F_, Persisted as P};
    use StoreRule as S;

    /// Every state × every input. Columns: Clean, Dirty, Flushing, Draining, Persisted.
    const TABLE: [(Input, [Persistency; 5]); 14] = [
        (Input::Store(S::Cached), [D, D, D, D, D]),
        (Input::Store(S::Unordered), [W, W, W, W, W]),
        (Input::Store(S::Durable), [P, P, P, P, P]),
        (Input::Flush(F::Ignored), [C, D, F_, W, P]),
        (Input::Flush(F::AtFence), [C, F_, F_, W, P]),
        (Input::Flush(F::AtOnce), [C, P, P, W, P]),
        (
            Input::Fence {
                rule: N::Ignored,
                own: true,
            },
            [C, D, F_, W, P],
        ),
        (
            Input::Fence {
                rule: N::Ignored,
                own: false,
            },
            [C, D, F_, W, P],
        ),
        (
            Input::Fence {
                rule: N::Completes,
                own: true,
            },
            [C, D, P, P, P],
        ),
        (
            Input::Fence {
                rule: N::Completes,
                own: false,
            },
            [C, D, F_, W, P],
        ),
        (
            Input::Fence {
                rule: N::Orders,
                own: true,
            },
            [C, D, F_, W, P],
        ),
        (
            Input::Fence {
                rule: N::Orders,
                own: false,
            },
            [C, D, F_, W, P],
        ),
        (
            Input::Fence {
                rule: N::Drains,
                own: true,
            },
            [C, P, P, P, P],
        ),
        (
            Input::Fence {
                rule: N::Drains,
                own: false,
            },
            [C, D, F_, W, P],
        ),
    ];

    #[test]
    fn every_state_and_every_input() {
        for (i, (input, row)) in TABLE.iter().enumerate() {
            assert!(
                TABLE[..i].iter().all(|(other, _)| other != input),
                "{input:?} stands twice"
            );
            for (state, expected) in Persistency::ALL.into_iter().zip(row) {
                assert_eq!(state.next(*input), *expected, "{state:?} on {input:?}");
            }
        }
    }

    #[test]
    fn only_a_store_takes_persistence_away() {
        for (input, _) in TABLE {
            for state in Persistency::ALL.into_iter().filter(|s| s.is_persisted()) {
                if !matches!(input, Input::Store(_)) {
                    assert_eq!(state.next(input), state);
                }
            }
        }
    }
}
