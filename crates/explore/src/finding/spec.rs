//! Which crash it was, in numbers: what a replay token carries.

use serde::{Deserialize, Serialize};

use crate::outcome::{Outcome, Status};
use crate::search::Search;
use crate::view::Image;

/// Which crash: enough to make its image again from a recording of the same run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CrashSpec {
    /// From the recorded run to the innermost recovery that was cut short.
    pub crashes: Vec<OneCrash>,
    /// How recovery ended.
    pub status: String,
    /// Hash of what it printed.
    pub output: String,
    /// What a checker was told.
    pub operations: u64,
    /// Likewise.
    pub text: Vec<u8>,
}

impl CrashSpec {
    /// Notes down what recovery did.
    pub fn expect(&mut self, outcome: &Outcome) {
        (self.status, self.output) = Self::signature(outcome);
    }

    /// Whether this is what recovery did.
    pub fn is_expected(&self, outcome: &Outcome) -> bool {
        (self.status.clone(), self.output.clone()) == Self::signature(outcome)
    }

    fn signature(outcome: &Outcome) -> (String, String) {
        let mut status = outcome.status.to_string();
        if let Some((checker, _)) = &outcome.checker {
            status += &format!(", checker {checker}");
        }
        for broken in &outcome.broken {
            status += &format!(", {broken}");
        }
        // A recovery that hangs is ended at some moment, and has printed what it has printed.
        let output = match outcome.status {
            Status::Hang(_) => String::new(),
            _ => blake3::hash(&outcome.stdout).to_hex()[..16].to_owned(),
        };
        (status, output)
    }
}

/// A crash of one run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OneCrash {
    /// Number of the failure point.
    pub point: u32,
    /// Which run it is a failure point of: a hash of all that it stored, and of the files that it
    /// found.
    #[serde(default)]
    pub run: String,
    /// What survived of the units that lost something: unit, ordered stores, unordered stores.
    pub survivors: Vec<(u64, usize, Vec<bool>)>,
}

/// The crash in numbers.
pub fn spec(search: &Search<'_>, layer: usize, point: u32, image: &Image) -> CrashSpec {
    let mut crashes = match &search.layers[layer].parent {
        Some(parent) => spec(search, parent.layer, parent.point, &parent.image).crashes,
        None => Vec::new(),
    };
    let survivors = image
        .survivors
        .iter()
        .map(|(unit, s)| (unit.0, s.ordered, s.unordered.clone()));
    crashes.push(OneCrash {
        point,
        run: search.layers[layer].recording.name(),
        survivors: survivors.collect(),
    });
    let acknowledged = search.acknowledged_at(layer, point);
    CrashSpec {
        crashes,
        operations: acknowledged.operations,
        text: acknowledged.text,
        ..CrashSpec::default()
    }
}
