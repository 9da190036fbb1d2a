//! Predictions: what one run tells about others, by locks and order. The judgement is that of
//! `check --threads`; here each prediction becomes a goal.

use std::io;

use brownout_check::{Analysis, Options};
use brownout_findings::blame;
use brownout_findings::rules::{BuiltIn, RuleSet};
use brownout_model::Config;
use brownout_symbols::Options as SymbolOptions;
use brownout_trace::EventSink;
use brownout_trace::event::Event;

/// The instructions of a store and of a load.
pub type Pair = (u64, u64);

/// A store and a load that could meet before the store is persistent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Predicted {
    pub pair: Pair,
    /// For people.
    pub words: String,
    /// Where the lock that both take is given back too early, if they take one.
    pub unlock: Option<String>,
}

/// Looks at a run that tells loads and calls of locks.
pub struct Predictor(Analysis);

impl Predictor {
    /// Of a run that has not begun.
    pub fn new(model: Config) -> Predictor {
        let mut rules = RuleSet::default();
        rules.set_all(false);
        rules.set(BuiltIn::UnpersistedPublication, true);
        let options = Options {
            model,
            rules,
            threads: true,
            ..Options::default()
        };
        Predictor(Analysis::new(options, SymbolOptions::for_findings()))
    }

    /// What could meet.
    pub fn finish(mut self) -> Vec<Predicted> {
        let predictions = self.0.predictions().into_iter();
        let told = predictions.map(|prediction| Predicted {
            pair: (prediction.store.0, prediction.load.0),
            words: format!(
                "what is stored at {} can be read at {}",
                blame::place(&prediction.store_stack),
                blame::place(&prediction.load_stack)
            ),
            unlock: prediction.unlock_stack.as_deref().map(blame::place),
        });
        told.collect()
    }
}

impl EventSink for Predictor {
    fn event(&mut self, event: &Event<'_>) -> io::Result<()> {
        self.0.event(event);
        Ok(())
    }
}
