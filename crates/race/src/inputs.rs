//! Which input a run gets: the three tiers of the search.
//!
//! | tier | what changes | until |
//! |---|---|---|
//! | 1 | the schedule, of one input | a stretch of runs has shown nothing new |
//! | 2 | the same inputs once more, under other schedules | as above, every fourth time |
//! | 3 | the input: operations are added, removed, moved, their keys made to meet (`brownout_inputs`) | the search is over |
//!
//! Without seeds there is one input, and tier 1 is all there is. An input that was made stays if
//! one of its runs has shown something new. Which thread gets which operation is up to the program,
//! and so to the schedule.
//!
//! Source: PMRace (ASPLOS 2022), sections 4.4 and 4.5. Deviation: its second tier repeats
//! executions because each is another interleaving by chance; here that takes other seeds.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use brownout_inputs::{Change, Mutator, Templates, Tokens, Weights, learn};

use crate::site::mix;

/// Runs of a seed, of an input that was made, and of one that has its turn again, unless something
/// new is seen.
const SEED_RUNS: u32 = 32;
const MADE_RUNS: u32 = 6;
const AGAIN_RUNS: u32 = 12;
/// Runs that follow one that has shown something new, at least.
const NEWS_RUNS: u32 = 12;
/// An input that is longer is cut.
const INPUT_MAX: usize = 16 << 10;

/// What a run reads as its standard input.
#[derive(Debug)]
pub struct Input {
    /// Where it is; none: there is nothing to read.
    pub path: Option<PathBuf>,
    /// What it holds, if the search has made it, or was given it as a seed; the file goes with it.
    /// Else the file is the user's.
    pub made: Option<Vec<u8>>,
}

impl Drop for Input {
    fn drop(&mut self) {
        if let (Some(path), Some(_)) = (&self.path, &self.made) {
            // Should it be gone already, all the better.
            let _ = fs::remove_file(path);
        }
    }
}

/// Inputs to begin with, and what is known about them.
#[derive(Clone, Debug, Default)]
pub struct Seeds {
    /// The inputs.
    pub inputs: Vec<Vec<u8>>,
    /// What operations look like; none: that is learnt from the inputs.
    pub templates: Option<Templates>,
}

impl Seeds {
    /// What changes them; `None` if nothing is known about operations.
    fn mutator(&self) -> Option<Mutator> {
        let mut tokens = Tokens::default();
        let templates = match &self.templates {
            Some(templates) => templates.clone(),
            None => learn(&self.inputs, &mut tokens),
        };
        let mut mutator = Mutator::new(templates);
        mutator.tokens = tokens;
        mutator.knows_operations().then_some(mutator)
    }

    /// A number that is the same for the same seeds.
    pub fn name(&self) -> u64 {
        let text = format!("{:?} {:?}", self.inputs, self.templates);
        text.bytes()
            .fold(0, |hash, byte| mix(hash, u64::from(byte)))
    }

    /// Whether there is a way to change them.
    pub fn can_be_changed(&self) -> bool {
        self.mutator().is_some()
    }
}

/// Runs of one input in a row.
struct Stretch {
    input: Arc<Input>,
    /// By which changes it was made; none if it was known before.
    changes: Option<Vec<Change>>,
    /// Runs that were begun, and runs that are left.
    begun: u32,
    left: u32,
    has_news: bool,
}

/// What the next run reads.
pub struct Turn {
    pub input: Arc<Input>,
    /// The number of the run in its stretch, from 0 on.
    pub number: u32,
}

/// See the module's header.
pub struct Inputs {
    /// Where inputs that are made lie.
    folder: PathBuf,
    mutator: Option<Mutator>,
    weights: Weights,
    random: fastrand::Rng,
    known: Vec<Arc<Input>>,
    /// How many of these have had their first stretch, and who has one again next.
    tried: usize,
    again: usize,
    stretches: u64,
    made: u64,
    stretch: Option<Stretch>,
    /// Inputs that have come to stay and were not asked for.
    news: Vec<Vec<u8>>,
}

impl Inputs {
    /// The one input that the user gives.
    pub fn one(path: Option<PathBuf>) -> Inputs {
        Inputs {
            folder: PathBuf::new(),
            mutator: None,
            weights: Weights::default(),
            random: fastrand::Rng::with_seed(0),
            known: vec![Arc::new(Input { path, made: None })],
            tried: 0,
            again: 0,
            stretches: 0,
            made: 0,
            stretch: None,
            news: Vec::new(),
        }
    }

    /// Seeds, and what is made of them; `earlier` ones have come to stay in the campaign that goes
    /// on.
    pub fn made_of(
        seeds: &Seeds,
        earlier: Vec<Vec<u8>>,
        folder: &Path,
        seed: u64,
    ) -> io::Result<Inputs> {
        let mut inputs = Inputs {
            folder: folder.to_owned(),
            mutator: seeds.mutator(),
            random: fastrand::Rng::with_seed(seed),
            known: Vec::new(),
            ..Inputs::one(None)
        };
        let mut contents = seeds.inputs.clone();
        if contents.is_empty()
            && let Some(mutator) = &inputs.mutator
        {
            contents.push(mutator.generate(&mut below(&mut inputs.random)));
        }
        for content in contents.into_iter().chain(earlier) {
            let input = inputs.make(content)?;
            inputs.known.push(input);
        }
        Ok(inputs)
    }

    /// An input with this content.
    pub fn write(path: PathBuf, content: Vec<u8>) -> io::Result<Input> {
        fs::write(&path, &content)?;
        Ok(Input {
            path: Some(path),
            made: Some(content),
        })
    }

    fn make(&mut self, content: Vec<u8>) -> io::Result<Arc<Input>> {
        self.made += 1;
        let path = self.folder.join(format!("input-{}", self.made));
        Ok(Arc::new(Inputs::write(path, content)?))
    }

    /// The first input: what the program reads if nobody says otherwise.
    pub fn first(&self) -> Arc<Input> {
        self.known[0].clone()
    }

    /// Inputs that were run, and those of them that have come to stay.
    pub fn counts(&self) -> (u64, u64) {
        (self.made.max(1), self.known.len() as u64)
    }

    /// Inputs that have come to stay since this was last asked.
    pub fn take_news(&mut self) -> Vec<Vec<u8>> {
        std::mem::take(&mut self.news)
    }

    /// What the next run reads.
    pub fn next(&mut self) -> io::Result<Turn> {
        if self
            .stretch
            .as_ref()
            .is_none_or(|stretch| stretch.left == 0)
        {
            self.conclude();
            self.stretch = Some(self.begin()?);
        }
        let Some(stretch) = &mut self.stretch else {
            return Err(io::Error::other("there is no input"));
        };
        stretch.left = stretch.left.saturating_sub(1);
        stretch.begun += 1;
        Ok(Turn {
            input: stretch.input.clone(),
            number: stretch.begun - 1,
        })
    }

    /// A run of this input has shown something new.
    pub fn has_news(&mut self, input: &Arc<Input>) {
        let Some(stretch) = &mut self.stretch else {
            return;
        };
        if Arc::ptr_eq(&stretch.input, input) {
            stretch.has_news = true;
            stretch.left = stretch.left.max(NEWS_RUNS);
        } else if !self.known.iter().any(|known| Arc::ptr_eq(known, input)) {
            // Another worker was still at it.
            self.keep(input.clone());
        }
    }

    fn keep(&mut self, input: Arc<Input>) {
        self.news.extend(input.made.clone());
        self.known.push(input);
        self.tried += 1;
    }

    fn conclude(&mut self) {
        let Some(stretch) = self.stretch.take() else {
            return;
        };
        if let Some(changes) = &stretch.changes {
            self.weights.tried(changes, stretch.has_news);
            if stretch.has_news {
                self.keep(stretch.input);
            }
        }
    }

    fn begin(&mut self) -> io::Result<Stretch> {
        let of = |input: &Arc<Input>, left, changes| Stretch {
            input: input.clone(),
            changes,
            begun: 0,
            left,
            has_news: false,
        };
        self.stretches += 1;
        if let Some(input) = self.known.get(self.tried) {
            self.tried += 1;
            return Ok(of(input, SEED_RUNS, None));
        }
        let Some(mutator) = self
            .mutator
            .as_ref()
            .filter(|_| !self.stretches.is_multiple_of(4))
        else {
            self.again = (self.again + 1) % self.known.len();
            return Ok(of(&self.known[self.again], AGAIN_RUNS, None));
        };
        let random = &mut self.random;
        // What has come last is where something new may be near.
        let pick = |random: &mut fastrand::Rng| match random.bool() {
            true => &self.known[self.known.len() - 1],
            false => &self.known[random.usize(..self.known.len())],
        };
        let content = |input: &'_ Arc<Input>| input.made.clone().unwrap_or_default();
        let (from, other) = (content(pick(random)), content(pick(random)));
        let mut mutated = mutator.mutate(&from, Some(&other), &self.weights, &mut below(random));
        mutated.input.truncate(INPUT_MAX);
        let input = self.make(mutated.input)?;
        Ok(of(&input, MADE_RUNS, Some(mutated.changes)))
    }
}

fn below(random: &mut fastrand::Rng) -> impl FnMut(usize) -> usize {
    |n| random.usize(..n.max(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seeds() -> Seeds {
        Seeds {
            inputs: vec![b"p 1\np 2\n".to_vec(), b"p 3\n".to_vec()],
            templates: Some("p {key}\ng {key}".parse().unwrap()),
        }
    }

    fn content(turn: &Turn) -> Vec<u8> {
        fs::read(turn.input.path.as_ref().unwrap()).unwrap()
    }

    #[test]
    fn one_input_stays_the_only_one() {
        let mut inputs = Inputs::one(None);
        for number in 0..100 {
            let turn = inputs.next().unwrap();
            assert!(turn.input.path.is_none(), "{number}");
        }
        assert_eq!(inputs.counts(), (1, 1));
    }

    #[test]
    fn seeds_come_first_then_others_and_the_same_again() {
        let folder = tempfile::tempdir().unwrap();
        let mut inputs = Inputs::made_of(&seeds(), Vec::new(), folder.path(), 1).unwrap();
        for seed in &seeds().inputs {
            for number in 0..SEED_RUNS {
                let turn = inputs.next().unwrap();
                assert_eq!((&content(&turn), turn.number), (seed, number));
            }
        }
        let mut others = 0;
        for _ in 0..400 {
            let turn = inputs.next().unwrap();
            others += u32::from(!seeds().inputs.contains(&content(&turn)));
        }
        assert!(others > 100 && others < 350, "{others}");
        // Nothing new was seen, so nothing stays, and nothing is left behind but seeds and what is
        // tried now.
        assert_eq!(inputs.counts().1, 2);
        assert!(fs::read_dir(folder.path()).unwrap().count() <= 3);
    }

    #[test]
    fn what_shows_something_new_stays_and_goes_on() {
        let folder = tempfile::tempdir().unwrap();
        let mut inputs = Inputs::made_of(&seeds(), Vec::new(), folder.path(), 1).unwrap();
        let is_seed = |turn: &Turn| seeds().inputs.contains(&content(turn));
        let mut turn = inputs.next().unwrap();
        while is_seed(&turn) {
            turn = inputs.next().unwrap();
        }
        inputs.has_news(&turn.input);
        for _ in 0..NEWS_RUNS {
            let next = inputs.next().unwrap();
            assert!(Arc::ptr_eq(&next.input, &turn.input));
        }
        while Arc::ptr_eq(&inputs.next().unwrap().input, &turn.input) {}
        assert_eq!(inputs.take_news(), [content(&turn)]);
        assert!(inputs.take_news().is_empty());
        assert_eq!(inputs.counts().1, 3);
        // A campaign that goes on has it.
        let earlier = vec![content(&turn)];
        let later = Inputs::made_of(&seeds(), earlier, folder.path(), 1).unwrap();
        assert_eq!(later.counts().1, 3);
    }

    #[test]
    fn the_seed_decides() {
        let made = |seed| {
            let folder = tempfile::tempdir().unwrap();
            let mut inputs = Inputs::made_of(&seeds(), Vec::new(), folder.path(), seed).unwrap();
            let contents = (0..200).map(|_| content(&inputs.next().unwrap()));
            contents.collect::<Vec<_>>()
        };
        assert_eq!(made(5), made(5));
        assert_ne!(made(5), made(6));
    }

    #[test]
    fn without_seeds_one_is_made_of_the_templates() {
        let folder = tempfile::tempdir().unwrap();
        let mut seeds = seeds();
        seeds.inputs.clear();
        let inputs = Inputs::made_of(&seeds, Vec::new(), folder.path(), 1).unwrap();
        let first = inputs.first();
        assert!(!first.made.as_ref().unwrap().is_empty());
    }
}
