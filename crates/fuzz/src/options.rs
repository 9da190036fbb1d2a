//! What to fuzz, and how.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use brownout_campaign::budget::Limits;
use brownout_campaign::folder::Identity;
use brownout_inputs::{Mutator as Operations, Templates, Tokens};
use brownout_symbols::{Options as SymbolOptions, Touches};
use serde::{Deserialize, Serialize};

use crate::case::Begun;
use crate::deep::Deep;
use crate::detect::Detector;
use crate::error::Error;
use crate::record::{Key, Settings};
use brownout_stage::Target;

/// Where images come from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Images {
    /// From the program and from the model.
    #[default]
    Model,
    /// There is only the root: for comparison.
    None,
    /// Bytes of the root are flipped: for comparison.
    Mutate,
}

/// What to fuzz, and how.
pub struct Options {
    /// The program.
    pub target: Target,
    /// Shell command that makes the root image.
    pub setup: Option<String>,
    /// A file that the root image holds besides.
    pub image: Option<PathBuf>,
    /// What recovers after a crash, as a shell command.
    pub recover: Option<String>,
    /// The user's own detector, a shell command.
    pub detect: Option<String>,
    /// A folder of other fuzzers, with which inputs are exchanged.
    pub sync: Option<PathBuf>,
    /// Inputs to begin with, by their names.
    pub seeds: Vec<(String, Vec<u8>)>,
    /// Operations, if the user says what they are.
    pub templates: Option<Templates>,
    /// Words that the program may wait for.
    pub tokens: Tokens,
    /// The campaign's folder.
    pub out: PathBuf,
    /// Go on with the campaign in that folder.
    pub resume: bool,
    /// Limits.
    pub limits: Limits,
    /// End with the first correctness finding that no seed shows.
    pub until_found: bool,
    /// Workers.
    pub jobs: usize,
    /// Seed of all chance.
    pub seed: u64,
    /// Only edges steer.
    pub edges_only: bool,
    /// Where images come from.
    pub images: Images,
    /// How much of the time explorations may take, of 100.
    pub explore_share: f64,
    /// How runs are checked.
    pub check: brownout_check::Options,
    /// How stacks get their names.
    pub symbols: SymbolOptions,
    /// A run that has more memory of its own, in bytes, is cut off.
    pub memory_max: Option<u64>,
    /// A run that takes longer does not end.
    pub patience: Duration,
    /// Ends the campaign when true.
    pub stop: Arc<AtomicBool>,
    /// Counts where persistent memory is touched, and where the power fails; by default nobody
    /// does.
    pub touches: Option<Touches>,
    /// How the tool was called.
    pub command_line: String,
}

impl Options {
    /// How a closer look is taken.
    pub(crate) fn deep(&self) -> Deep {
        Deep::new(self.recover.as_deref(), self.check.model, self.stop.clone())
    }

    /// The user's detector, which runs where the tool was started.
    pub(crate) fn detector(&self) -> Option<Detector> {
        let command = self.detect.as_ref()?;
        let stop = self.stop.clone();
        Some(Detector::new(command, Path::new("."), self.patience, stop))
    }

    /// What is known about operations.
    pub(crate) fn operations(&self, cases: &[Begun]) -> Operations {
        known(self.templates.as_ref(), &self.tokens, cases)
    }

    pub(crate) fn identity(&self) -> Result<Identity, Error> {
        let text = |word: &std::ffi::OsString| word.to_string_lossy().into_owned();
        let key = Key {
            program: text(&self.target.program),
            args: self.target.args.iter().map(text).collect(),
            setup: self.setup.clone(),
            image: self.image.clone(),
            pm: self.target.pm_globs.clone(),
            delivery: self.target.delivery.clone(),
        };
        let settings = Settings {
            command_line: self.command_line.clone(),
            folder: std::env::current_dir()?,
            recover: self.recover.clone(),
            detect: self.detect.clone(),
            domain: self.check.model.domain.name().to_owned(),
            hang_after: self.patience.as_secs_f64(),
            memory_max: self.memory_max,
        };
        Identity::new("fuzz", &key, &settings).map_err(|error| Error::Corrupt(error.to_string()))
    }
}

/// What is known about operations: what the user says, else what the user's seeds show. Other test
/// cases were made by changing bytes, too, and show nothing.
fn known(templates: Option<&Templates>, tokens: &Tokens, cases: &[Begun]) -> Operations {
    let mut tokens = tokens.clone();
    let mut operations = match templates {
        Some(templates) => Operations::new(templates.clone()),
        None => {
            let seeds = cases.iter().filter(|begun| begun.is_seed);
            let seeds: Vec<&[u8]> = seeds.map(|begun| &begun.case.input[..]).collect();
            Operations::new(brownout_inputs::learn(&seeds, &mut tokens)).learning()
        }
    };
    operations.tokens = tokens;
    operations
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::case::Case;

    /// A campaign that is resumed knows what it knew: what havoc has made does not hide what the
    /// seeds show.
    #[test]
    fn operations_are_learnt_from_seeds_alone() {
        let image = format!("{:032x}", 1).parse().expect("an id");
        let begun = |input: &[u8], is_seed: bool| Begun {
            case: Case {
                image,
                input: input.to_vec(),
            },
            is_seed,
            is_looked: false,
        };
        let seed = begun(b"insert 1\nremove 1\n", true);
        let mut tokens = Tokens::default();
        tokens.add_given(b"magic");
        let fresh = known(None, &tokens, std::slice::from_ref(&seed));
        assert!(fresh.knows_operations());
        let words: Vec<&[u8]> = fresh.tokens.words().collect();
        assert_eq!(words, [&b"magic"[..], b"insert", b"remove"]);
        let resumed = known(None, &tokens, &[seed, begun(b"\0\x07\xff", false)]);
        assert_eq!(resumed.templates(), fresh.templates());
    }
}
