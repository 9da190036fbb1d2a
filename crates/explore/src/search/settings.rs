//! What a search is told: how recoveries are run and judged, how far it goes, and what is kept for
//! others.

use std::sync::Arc;
use std::time::Instant;

use super::layers::Layers;
use super::sampler::Sampling;
use crate::execution::{Acknowledged, Setting};
use crate::oracle::{Oracle, Span};
use crate::recording::Recording;

/// Tells something about a failure point of the recorded run.
pub type Tells<T> = Box<dyn Fn(&Recording, u32) -> T + Send>;

/// See the module's header.
pub struct Settings {
    /// What all runs have in common.
    pub runs: Arc<Setting>,
    /// What counts as failing.
    pub oracle: Oracle,
    /// What is not followed to the end. Default: see [`Sampling`].
    pub sampling: Sampling,
    /// When the search ends at the latest. Default: it goes on until all is done.
    pub deadline: Option<Instant>,
    /// So many recoveries are run; then failure points are taken in a spread order. Default: as
    /// many as it takes.
    pub executions_max: Option<u64>,
    /// So many outcomes that were looked up are run, and compared. Default: none, since that costs
    /// recoveries.
    pub self_test: u64,
    /// Distinct outcomes of each failure point are kept. Default: not, they are many.
    pub keep_outcomes: bool,
    /// How many crash states were settled is kept for each failure point of the recorded run.
    /// Default: not; only those who count ask.
    pub keep_crashes: bool,
    /// Crash states after which recovery ends well are kept, so that it can be cut short in turn.
    /// Default: not, they are many.
    pub keep_survivors: bool,
    /// So many crashes whose recoveries did something different are kept. Default: none.
    pub distinct_max: usize,
    /// Stores are kept that are lost in failing crash states into which nobody looks. Default: not;
    /// only those who have suspects ask.
    pub keep_unexplained: bool,
    /// Which input lines or outputs were acknowledged, for a checker. Default: none.
    pub acknowledgements: Tells<Acknowledged>,
    /// How many whole operations may be there after a crash at a failure point of the recorded run.
    /// Default: nothing is known.
    pub operations: Tells<Span>,
}

impl Settings {
    /// Everything but how recoveries are run is as by default.
    pub fn new(runs: Arc<Setting>) -> Settings {
        Settings {
            runs,
            oracle: Oracle {
                good_exit: 0,
                references: None,
                only_durability: false,
                ordered: false,
            },
            sampling: Sampling::default(),
            deadline: None,
            executions_max: None,
            self_test: 0,
            keep_outcomes: false,
            keep_crashes: false,
            keep_survivors: false,
            distinct_max: 0,
            keep_unexplained: false,
            acknowledgements: Box::new(|_, _| Acknowledged::default()),
            operations: Box::new(|_, _| Span::default()),
        }
    }

    /// What a checker is told at a failure point.
    pub fn acknowledged_at(&self, layers: &Layers, layer: usize, point: u32) -> Acknowledged {
        if self.runs.checker.is_none() {
            return Acknowledged::default();
        }
        (self.acknowledgements)(&layers[0].recording, layers.origin(layer, point))
    }

    /// Whole operations that may be there after a crash.
    pub fn done(&self, layers: &Layers, layer: usize, point: u32) -> Span {
        (self.operations)(&layers[0].recording, layers.origin(layer, point))
    }
}
