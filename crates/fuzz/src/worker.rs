//! One worker: LibAFL's loop over test cases of its own.
//!
//! ```text
//!  scheduler ─▶ case ─▶ DeepStage: what its run and crashes of its run leave become images
//!                   ─▶ ImageStage: an image that nobody has tried, with inputs that are there
//!                   ─▶ ChangeStage: the case's input, changed again and again, on its image; before the first time, by what its run compares
//! ```
//! What a worker does follows from its seed, its cases and the order in which it learns of those of
//! others; with one worker, from the seed and the number of executions alone.
//!
//! A case that another worker has told about is looked at closely by that one, and changed by both.
//! A run that cannot be made is noted, and the worker goes on, unless hardly any can be made.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use brownout_campaign::budget::{Activity, Budget, Measure};
use brownout_findings::Severity;
use brownout_host::Comparison;
use brownout_images::{ImageId, Origin};
use brownout_inputs::Mutator as Operations;
use libafl::corpus::{Corpus, CorpusId, HasCurrentCorpusId, InMemoryCorpus};
use libafl::events::NopEventManager;
use libafl::executors::ExitKind;
use libafl::feedbacks::ConstFeedback;
use libafl::mutators::Mutator;
use libafl::stages::{Restartable, Stage};
use libafl::state::{HasCorpus, HasExecutions, HasMaxSize, HasRand, StdState};
use libafl::{Evaluator, Fuzzer, HasMetadata, StdFuzzer};
use libafl_bolts::rands::{Rand, StdRand};
use libafl_bolts::tuples::tuple_list;
use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};

use crate::case::{Begun, Case};
use crate::chain::nearer;
use crate::deep::{Deep, flipped};
use crate::detect::{Detector, Verdict};
use crate::error::Error;
use crate::feedback::{Map, Novelty, Priority, Shown, Sight};
use crate::judge::Found;
use crate::mutate::{Changes, below, chain_max, input_max};
use crate::options::{Images, Options};
use crate::partners::Inbox;
use crate::pool::{ImagePool, Kinds};
use crate::runner::{Runner, Times};
use crate::scheduler::ByPriority;
use brownout_stage::Causes;

type State = StdState<InMemoryCorpus<Case>, Case, StdRand, InMemoryCorpus<Case>>;
type Loop = StdFuzzer<
    ByPriority,
    Novelty,
    libafl::inputs::BytesInputConverter,
    libafl::fuzzer::NopInputFilter,
    ConstFeedback,
>;

/// Changed inputs that are tried on one case before another one gets its turn.
const ENERGY: usize = 96;
/// Runs that making one finding's case small may take.
const MINIMISE: usize = 150;
/// Of so many images that are tried, crashes in a run on one become images, too, whether that run
/// showed anything new or not.
const DRIFT: usize = 3;
/// So many of them.
const DRIFT_IMAGES: usize = 4;
/// And how long it may take, whatever each of them does, in a campaign whose time is limited. One
/// that is limited in executions is to be the same on a busy machine.
const MINIMISE_TIME: Duration = Duration::from_secs(20);
/// A run that does more to persistent memory ([`Traces::weight`](crate::traces::Traces::weight)) is
/// not looked at closely. To make a pool, libpmemobj does half of it.
const WEIGHT_MAX: u64 = 60_000;
/// So many runs in a row that cannot be made end a worker, and fewer if none could be made before.
const FAILURES_MAX: u32 = 200;
const FIRST_FAILURES_MAX: u32 = 16;
/// Inputs of other fuzzers that are run in a row.
const GIFTS: usize = 16;
/// Inputs that are tried on a new image. To open it takes as long as some dozens of runs on it.
const TRIALS: usize = 12;
/// What opening refuses takes one input; then so many images are tried in a row.
const IMAGES_EACH: usize = 4;
/// So many of them, on what a crash has left, are new ones that do something with the keys of the
/// run that was cut short.
const PROBES: usize = 8;

/// What a worker tells everybody.
#[derive(Clone, Debug)]
pub enum News {
    /// A test case that was worth keeping.
    Case {
        /// The case.
        case: Case,
        /// What it was made from.
        parent: Option<Case>,
        /// How.
        operation: String,
        /// How much it matters.
        priority: u8,
        /// After so many executions of the campaign.
        executions: u64,
    },
    /// A finding.
    Found {
        /// What tells it apart from others.
        key: String,
        /// The finding.
        found: Box<Found>,
    },
    /// Files that the program maps writable and shared, and that are not tracked.
    Hints(BTreeSet<PathBuf>),
    /// The user's detector has failed.
    Unjudged(String),
    /// A run could not be made, or not be looked at closely.
    Failed(String),
    /// A case of the queue was looked at closely.
    Looked(Case),
    /// How far it is.
    Figures(Figures),
}

/// What is shown of a worker.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct Figures {
    /// Which worker.
    pub worker: usize,
    /// Executions.
    pub executions: u64,
    /// Those that were forked from a kept program.
    pub warm: u64,
    /// Servers that were opened.
    pub opened: u64,
    /// Recorded runs, explorations, and the recoveries that these took.
    pub recorded: u64,
    /// Likewise.
    pub explored: u64,
    /// Likewise.
    pub recoveries: u64,
    /// Transitions between PM operations that were seen.
    pub paths: u32,
    /// These with the classes of their counters.
    pub path_classes: u32,
    /// Situations.
    pub situations: u32,
    /// Transitions of recovery.
    pub openings: u32,
    /// Edges.
    pub edges: u32,
    /// Images in the tree, as far as this worker knows.
    pub images: u64,
    /// The deepest of them.
    pub depth: u32,
    /// Cases.
    pub cases: u64,
    /// Those that were never chosen, and those of them that matter most.
    pub pending: u64,
    /// Likewise.
    pub pending_favoured: u64,
    /// Cases that were run again, and those of them that showed exactly the same.
    pub repeated: u64,
    /// Likewise.
    pub stable: u64,
    /// Executions that have written to persistent memory.
    pub touched: u64,
    /// Executions that were cut off because they did too much, and were not judged.
    pub cut: u64,
    /// Test cases that did too much to persistent memory to be looked at closely.
    pub left_out: u64,
    /// Where the time of executions went.
    pub times: Times,
    /// Seconds that went into recording runs and making their crash images.
    pub recording: f64,
    /// Seconds that went into explorations.
    pub exploring: f64,
}

impl Figures {
    /// How much of what cases showed they showed again, of 100; `None` before one was run again.
    pub fn stability(&self) -> Option<f64> {
        match self.repeated {
            0 => None,
            repeated => Some(100.0 * self.stable as f64 / repeated as f64),
        }
    }
}

/// What stages share: it travels with the executor.
pub struct Bench<'s> {
    pub runner: Runner,
    pub pool: ImagePool,
    deep: Deep,
    causes: Causes,
    options: Arc<Options>,
    budget: Arc<Budget>,
    fuzzing: Activity,
    exploring: Activity,
    seat: &'s dyn Seat,
    figures: Figures,
    /// How many hints were told.
    hints: usize,
    root: ImageId,
    /// How long the inputs of several runs may be that become the input of one.
    chain_max: usize,
    operations: Operations,
    detector: Option<Detector>,
    /// Runs since the last one that could be made, and whether there was one.
    failures: u32,
    has_run: bool,
    /// The last case that LibAFL had run has failed before it came to its input. Other runs may
    /// have been made since, to make small what it has shown.
    is_refused: bool,
    /// Why the worker has ended, if that is a failure.
    failure: Option<Error>,
}

/// Where a worker sits: what it hears there, where its own news go, and whether to stop.
pub trait Seat {
    /// Tells everybody.
    fn publish(&self, news: News);
    /// Whether to return soon.
    fn stopped(&self) -> bool;
    /// Which worker sits there.
    fn index(&self) -> usize;
    /// What others have told since the last call.
    fn news(&self) -> Vec<News>;
}

impl<EM, Z> libafl::executors::Executor<EM, Case, State, Z> for Bench<'_> {
    fn run_target(
        &mut self,
        _: &mut Z,
        state: &mut State,
        _: &mut EM,
        case: &Case,
    ) -> Result<ExitKind, libafl::Error> {
        if self.seat.stopped() || self.budget.claim().is_none() {
            return Err(libafl::Error::shutting_down());
        }
        *state.executions_mut() += 1;
        let mut running = self.budget.begin(self.fuzzing);
        running.executed(1);
        let ended = self.runner.run(case);
        drop(running);
        // What comes next are other runs.
        self.is_refused = ended.is_ok() && self.runner.is_refused;
        let Some(kind) = self.survive(ended)? else {
            // It shows nothing.
            self.runner.show_again(Sight::default());
            return Ok(ExitKind::Ok);
        };
        (self.failures, self.has_run) = (0, true);
        if self.runner.judge.has_new() {
            // It is this run whose novelty will be judged.
            let sight = self.runner.sight().clone();
            self.tell_found();
            self.runner.show_again(sight);
        }
        Ok(kind)
    }
}

impl libafl::executors::HasObservers for Bench<'_> {
    type Observers = <Runner as libafl::executors::HasObservers>::Observers;

    fn observers(&self) -> libafl_bolts::tuples::RefIndexable<&Self::Observers, Self::Observers> {
        self.runner.observers()
    }

    fn observers_mut(
        &mut self,
    ) -> libafl_bolts::tuples::RefIndexable<&mut Self::Observers, Self::Observers> {
        self.runner.observers_mut()
    }
}

impl Bench<'_> {
    /// Has the worker go on although something could not be done for a case. Not if nothing can be
    /// kept, nor if the same happens again and again.
    fn survive<T>(&mut self, done: Result<T, Error>) -> Result<Option<T>, libafl::Error> {
        let error = match done {
            Ok(done) => return Ok(Some(done)),
            Err(Error::LibAfl(error)) => return Err(error),
            Err(_) if self.seat.stopped() => return Err(libafl::Error::shutting_down()),
            Err(error) => error,
        };
        self.failures += 1;
        let most = match self.has_run {
            true => FAILURES_MAX,
            false => FIRST_FAILURES_MAX,
        };
        if matches!(error, Error::Images(_)) || self.failures >= most {
            let text = error.to_string();
            self.failure = Some(error);
            return Err(libafl::Error::unknown(text));
        }
        self.seat.publish(News::Failed(error.to_string()));
        Ok(None)
    }

    /// Tells what was found. What matters most is made small before; that may find more.
    fn tell_found(&mut self) {
        loop {
            let new = self.runner.judge.take_new();
            if new.is_empty() {
                return;
            }
            let executions = self.budget.executions();
            for (key, mut found) in new {
                found.execution = executions;
                if found.finding.severity == Severity::Correctness && !found.by_exploration {
                    // What cannot be run again is told as it is.
                    let detector = found.detector.as_ref().and(self.detector.clone());
                    found.case = self
                        .minimised(&key, &found.case, detector.as_ref())
                        .unwrap_or(found.case);
                }
                self.seat.publish(News::Found {
                    key,
                    found: Box::new(found),
                });
            }
        }
    }

    /// A smaller case that shows the same: nearer to the root, and with a shorter input.
    fn minimised(
        &mut self,
        key: &str,
        case: &Case,
        detector: Option<&Detector>,
    ) -> Result<Case, Error> {
        let mut best = case.clone();
        for candidate in nearer(&self.runner.workshop().store, case, self.chain_max)? {
            if self.runner.shows_by(&candidate, key, detector)? {
                best = candidate;
                break;
            }
        }
        let image = best.image;
        let runner = &mut self.runner;
        let (seat, budget, begun) = (self.seat, &self.budget, Instant::now());
        let is_timed = budget.measure() == Measure::Time;
        let mut shows = |input: &[u8]| {
            let is_late = budget.time_left() == Some(Duration::ZERO)
                || is_timed && begun.elapsed() > MINIMISE_TIME;
            if seat.stopped() || is_late {
                return false;
            }
            let case = Case {
                image,
                input: input.to_vec(),
            };
            // A program that cannot be run shows nothing.
            runner.shows_by(&case, key, detector).unwrap_or(false)
        };
        let small = brownout_inputs::minimise(
            &best.input,
            self.operations.templates(),
            MINIMISE,
            &mut shows,
        );
        Ok(match small {
            Some(small) => Case {
                image,
                input: small.input,
            },
            None => best,
        })
    }

    /// Asks the user's detector about a case that has shown something new.
    fn detect(&mut self, case: &Case) {
        let Some(detector) = self.detector.clone() else {
            return;
        };
        match self.runner.detect(case, &detector) {
            Ok(Verdict::Fine) => {}
            Ok(Verdict::Finding(finding)) => {
                let judge = &mut self.runner.judge;
                judge.keep_detected(*finding, case, &detector.command);
            }
            Ok(Verdict::Failed(why)) => self.seat.publish(News::Unjudged(why)),
            Err(error) => {
                let why = format!("the detector could not be asked: {error}");
                self.seat.publish(News::Unjudged(why));
            }
        }
        self.tell_found();
    }

    fn tell_case(&mut self, case: &Case, parent: Option<&Case>, operation: &str, priority: u8) {
        self.detect(case);
        self.seat.publish(News::Case {
            case: case.clone(),
            parent: parent.cloned(),
            operation: operation.to_owned(),
            priority,
            executions: self.budget.executions(),
        });
    }
}

/// The case that LibAFL works on.
fn current(state: &State) -> Result<(CorpusId, Case), libafl::Error> {
    let id = state
        .current_corpus_id()?
        .ok_or_else(|| libafl::Error::illegal_state("no test case was chosen"))?;
    let case = state.corpus().get(id)?.borrow().input().clone();
    let case = case.ok_or_else(|| libafl::Error::illegal_state("a test case has no input"))?;
    Ok((id, case))
}

fn priority_of(state: &State, id: CorpusId) -> u8 {
    let entry = state.corpus().get(id);
    entry.map_or(0, |entry| {
        entry.borrow().metadata::<Priority>().map_or(0, |p| p.0)
    })
}

/// What stages have in common: LibAFL may not restart them half-way, because nothing here survives
/// the process.
macro_rules! plain_stage {
    ($name:ident) => {
        impl<S> Restartable<S> for $name {
            fn should_restart(&mut self, _: &mut S) -> Result<bool, libafl::Error> {
                Ok(true)
            }

            fn clear_progress(&mut self, _: &mut S) -> Result<(), libafl::Error> {
                Ok(())
            }
        }
    };
}

/// This case was looked at closely.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct Looked;

libafl_bolts::impl_serdeany!(Looked);

/// See the module's header.
struct DeepStage;
plain_stage!(DeepStage);

impl<EM> Stage<Bench<'_>, EM, State, Loop> for DeepStage {
    fn perform(
        &mut self,
        _: &mut Loop,
        bench: &mut Bench<'_>,
        state: &mut State,
        _: &mut EM,
    ) -> Result<(), libafl::Error> {
        let (id, case) = current(state)?;
        if bench.options.images != Images::Model {
            return Ok(());
        }
        {
            let mut entry = state.corpus().get(id)?.borrow_mut();
            if entry.has_metadata::<Looked>() {
                return Ok(());
            }
            entry.add_metadata(Looked);
        }
        let seed = state.rand_mut().next();
        let priority = priority_of(state, id);
        let shown = state
            .corpus()
            .get(id)?
            .borrow()
            .metadata::<Shown>()
            .copied();
        let looked = bench.look(&case, seed, priority, shown.ok());
        bench.survive(looked)?;
        bench.seat.publish(News::Looked(case));
        Ok(())
    }
}

impl Bench<'_> {
    /// Runs a case, and says whether it is worth a closer look: one that goes on and on would take
    /// all the time that there is.
    fn is_short(&mut self, case: &Case) -> Result<bool, Error> {
        let kind = self.runner.run(case)?;
        // What is found is made small, by other runs.
        let weight = self.runner.weight;
        if self.runner.judge.has_new() {
            self.tell_found();
            self.runner.run(case)?;
        }
        let is_much = weight > WEIGHT_MAX;
        self.figures.left_out += u64::from(kind != ExitKind::Timeout && is_much);
        Ok(kind != ExitKind::Timeout && !is_much)
    }

    /// Makes images of what the case's run leaves, and of what crashes of it leave; explores, if
    /// there is time.
    fn look(
        &mut self,
        case: &Case,
        seed: u64,
        priority: u8,
        shown: Option<Shown>,
    ) -> Result<(), Error> {
        if self.seat.stopped() || self.budget.claim().is_none() {
            return Err(libafl::Error::shutting_down().into());
        }
        let workshop = self.runner.workshop().clone();
        let is_short = self.is_short(case)?;
        if let Some(shown) = shown {
            self.figures.repeated += 1;
            self.figures.stable += u64::from(self.runner.sight().digest() == shown.0);
        }
        if !is_short {
            return Ok(());
        }
        let left = self.runner.left()?;
        let input = workshop.store.input(&case.input)?;
        workshop
            .store
            .add(Some(case.image), Origin::Run { input }, &left)?;
        let explores = priority == 2 || self.deep.closer.recover.is_some();
        let explores = explores && self.budget.may_begin(self.exploring);
        let budget = self.budget.clone();
        let mut running = budget.begin(self.exploring);
        let begun = Instant::now();
        let mut recorded = self.deep.record(&workshop, case)?;
        running.executed(1);
        self.figures.recorded += 1;
        let images_max = self.deep.images_max;
        self.deep
            .crash_images(&workshop, &recorded, case, seed, images_max)?;
        self.figures.recording += begun.elapsed().as_secs_f64();
        let begun = Instant::now();
        if explores
            && let Some(exploration) =
                self.deep
                    .explore(&mut recorded, self.budget.time_left(), &self.causes)?
        {
            self.figures.explored += 1;
            self.causes.add(&exploration.causes);
            let crashes = self
                .deep
                .explored_images(&workshop, &recorded, case, &exploration)?;
            let (outcome, _) = exploration.into_outcome();
            let recoveries = outcome.statistics.executions();
            running.executed(recoveries);
            self.figures.recoveries += recoveries;
            for (finding, crash) in outcome.findings.into_iter().zip(crashes) {
                self.runner.judge.keep_explored(finding, case, crash);
            }
            self.tell_found();
            self.figures.exploring += begun.elapsed().as_secs_f64();
        }
        Ok(())
    }
}

impl Bench<'_> {
    /// Goes on from crashes of a run that need not have shown anything.
    fn drift(&mut self, case: &Case, seed: u64) -> Result<(), Error> {
        if self.seat.stopped() || self.budget.claim().is_none() {
            return Err(libafl::Error::shutting_down().into());
        }
        let workshop = self.runner.workshop().clone();
        if !self.is_short(case)? {
            return Ok(());
        }
        let begun = Instant::now();
        let recorded = self.deep.record(&workshop, case)?;
        self.deep
            .crash_images(&workshop, &recorded, case, seed, DRIFT_IMAGES)?;
        self.figures.recorded += 1;
        self.figures.recording += begun.elapsed().as_secs_f64();
        Ok(())
    }
}

impl Bench<'_> {
    /// What the program compares when it runs a case.
    fn compared(&mut self, case: &Case) -> Result<Vec<Comparison>, Error> {
        if self.seat.stopped() || self.budget.claim().is_none() {
            return Err(libafl::Error::shutting_down().into());
        }
        let budget = self.budget.clone();
        let mut running = budget.begin(self.fuzzing);
        running.executed(1);
        self.runner.compared(case)
    }
}

/// See the module's header.
struct ImageStage;
plain_stage!(ImageStage);

impl Stage<Bench<'_>, NopEventManager, State, Loop> for ImageStage {
    fn perform(
        &mut self,
        fuzzer: &mut Loop,
        bench: &mut Bench<'_>,
        state: &mut State,
        manager: &mut NopEventManager,
    ) -> Result<(), libafl::Error> {
        let (_, case) = current(state)?;
        if bench.options.images == Images::Mutate {
            let seed = state.rand_mut().next();
            let made = flipped(bench.runner.workshop(), bench.root, seed);
            bench.survive(made)?;
        }
        let mut made = 0;
        for _ in 0..IMAGES_EACH {
            bench.catch_up();
            let Some(image) = bench.pool.choose(state.rand_mut()) else {
                return Ok(());
            };
            made += try_image(fuzzer, bench, state, manager, &case, image)?;
            if made >= TRIALS {
                break;
            }
        }
        Ok(())
    }
}

/// Tries inputs on an image: the case's, those that were made for it, and others. Returns how many
/// there were.
fn try_image(
    fuzzer: &mut Loop,
    bench: &mut Bench<'_>,
    state: &mut State,
    manager: &mut NopEventManager,
    case: &Case,
    image: ImageId,
) -> Result<usize, libafl::Error> {
    let mut inputs = vec![case.input.clone()];
    let made = bench.made_by(image);
    let made = bench.survive(made)?.flatten();
    if let Some((before, is_crash)) = made {
        let probes = if is_crash { PROBES } else { PROBES / 2 };
        let random = state.rand_mut();
        let mut random = |n: usize| below(random, n);
        let probe = |_| bench.operations.probe(&before, &mut random);
        inputs.extend((0..probes).filter_map(probe));
    }
    for _ in inputs.len()..TRIALS {
        let count = state.corpus().count();
        let other = below(state.rand_mut(), count);
        let other = state.corpus().nth(other);
        let other = state.corpus().get(other)?.borrow().input().clone();
        inputs.extend(other.map(|case| case.input));
    }
    let (mut tried, mut fruits) = (0, 0);
    for input in inputs {
        let trial = Case { image, input };
        let (_, new) = fuzzer.evaluate_input(state, bench, manager, &trial)?;
        tried += 1;
        if let Some(id) = new {
            fruits += 1;
            bench.tell_case(&trial, Some(case), "image", priority_of(state, id));
        }
        // What opening refuses shows nothing else with another input.
        if bench.is_refused {
            break;
        }
    }
    bench.pool.tried(image, fruits);
    // Some things take several crashes in a row, of which none shows anything new by itself.
    let drifts = bench.options.images == Images::Model && !bench.is_refused;
    if drifts && below(state.rand_mut(), DRIFT) == 0 {
        let last = Case {
            image,
            input: case.input.clone(),
        };
        let seed = state.rand_mut().next();
        let drifted = bench.drift(&last, seed);
        bench.survive(drifted)?;
    }
    Ok(tried)
}

/// What this case compares was looked at.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct Compared;

libafl_bolts::impl_serdeany!(Compared);

/// See the module's header.
struct ChangeStage {
    changes: Changes,
    /// No input becomes longer.
    input_max: usize,
    /// How often a value was tried because of one instruction.
    tried: FxHashMap<(u64, Vec<u8>), u8>,
}
plain_stage!(ChangeStage);

/// Inputs that are made from what one case's run compares.
const OPERANDS_MAX: usize = 40;
/// Of these, so many from one comparison.
const OPERANDS_EACH: usize = 6;
/// How often one value is tried because of one instruction.
const OPERAND_TRIES: u8 = 4;

impl ChangeStage {
    /// Inputs for which something that the case's run compares comes out the other way.
    fn operands(
        &mut self,
        case: &Case,
        compared: &[Comparison],
        probes: &mut Operations,
    ) -> Vec<Case> {
        let mut made: Vec<Case> = Vec::new();
        for comparison in compared {
            let sides = brownout_inputs::Compared {
                left: &comparison.left,
                right: &comparison.right,
            };
            let replaced = brownout_inputs::replacements(&case.input, sides);
            if replaced.is_empty() {
                continue;
            }
            self.note(comparison, probes);
            for replaced in replaced.into_iter().take(OPERANDS_EACH) {
                let tried = self.tried.entry((comparison.name, replaced.word));
                let tried = tried.or_insert(0);
                if *tried < OPERAND_TRIES && replaced.input.len() <= self.input_max {
                    *tried += 1;
                    made.push(Case {
                        image: case.image,
                        input: replaced.input,
                    });
                }
            }
            if made.len() >= OPERANDS_MAX {
                break;
            }
        }
        made
    }

    /// What has to do with an input at all is worth remembering for others; letters and formats
    /// also for what is tried on new images, because there it takes commands that no seed has.
    fn note(&mut self, comparison: &Comparison, probes: &mut Operations) {
        let operations = self.changes.operations_mut();
        let (left, right) = (&comparison.left, &comparison.right);
        let number = |side: &[u8]| {
            let bytes = side.iter().rev();
            bytes.fold(0u64, |value, byte| value << 8 | u64::from(*byte))
        };
        if left.len() <= 8 {
            for letter in [left, right].map(|side| number(side)) {
                operations.tokens.add_letter(letter);
                probes.tokens.add_letter(letter);
            }
        }
        match left.len() {
            1 => {}
            2 | 4 | 8 => {
                let tokens = &mut operations.tokens;
                tokens.add_number_pair(number(left), number(right));
            }
            _ => {
                for side in [left, right] {
                    probes.learn_format(side);
                    if !operations.learn_format(side) {
                        operations.tokens.add_found(side);
                    }
                }
            }
        }
    }
}

impl Stage<Bench<'_>, NopEventManager, State, Loop> for ChangeStage {
    fn perform(
        &mut self,
        fuzzer: &mut Loop,
        bench: &mut Bench<'_>,
        state: &mut State,
        manager: &mut NopEventManager,
    ) -> Result<(), libafl::Error> {
        let (id, case) = current(state)?;
        let is_first = {
            let mut entry = state.corpus().get(id)?.borrow_mut();
            let is_first = !entry.has_metadata::<Compared>();
            entry.add_metadata(Compared);
            is_first
        };
        if is_first {
            let compared = bench.compared(&case);
            let compared = bench.survive(compared)?.unwrap_or_default();
            for changed in self.operands(&case, &compared, &mut bench.operations) {
                let (_, new) = fuzzer.evaluate_input(state, bench, manager, &changed)?;
                if let Some(id) = new {
                    bench.tell_case(&changed, Some(&case), "operand", priority_of(state, id));
                }
            }
        }
        let energy = 1 + below(state.rand_mut(), ENERGY);
        for _ in 0..energy {
            let mut changed = case.clone();
            self.changes.mutate(state, &mut changed)?;
            let name = self.changes.name();
            let (_, new) = fuzzer.evaluate_input(state, bench, manager, &changed)?;
            if let Some(id) = new {
                bench.tell_case(&changed, Some(&case), &name, priority_of(state, id));
            }
            self.changes.post_exec(state, new)?;
        }
        Ok(())
    }
}

/// What a worker begins with.
pub struct Beginning {
    /// The root of the tree.
    pub root: ImageId,
    /// Cases to run first.
    pub cases: Vec<Begun>,
    /// What was found before.
    pub found: Vec<(String, Found)>,
}

/// Works until it is to stop or the budget is spent.
pub fn work(
    runner: Runner,
    options: &Arc<Options>,
    budget: &Arc<Budget>,
    beginning: &Beginning,
    seat: &dyn Seat,
    inbox: &Inbox,
) -> Result<Figures, Error> {
    let operations = options.operations(&beginning.cases);
    let seeds = beginning.cases.iter().filter(|begun| begun.is_seed);
    let lengths = seeds.clone().map(|begun| begun.case.input.len());
    let input_max = input_max(lengths.clone());
    let mut bench = Bench {
        chain_max: chain_max(lengths),
        operations: operations.clone(),
        root: beginning.root,
        detector: options.detector(),
        pool: ImagePool::default(),
        deep: options.deep(),
        causes: Causes::default(),
        options: options.clone(),
        budget: budget.clone(),
        fuzzing: budget.activity("fuzzing"),
        exploring: budget.share("exploring", options.explore_share),
        seat,
        hints: 0,
        figures: Figures {
            worker: seat.index(),
            ..Figures::default()
        },
        runner,
        failures: 0,
        has_run: false,
        is_refused: false,
        failure: None,
    };
    let mut feedback = Novelty::new(options.edges_only);
    let mut objective = ConstFeedback::new(false);
    let seed = options.seed.wrapping_add(seat.index() as u64);
    let mut state: State = StdState::new(
        StdRand::with_seed(seed),
        InMemoryCorpus::new(),
        InMemoryCorpus::new(),
        &mut feedback,
        &mut objective,
    )?;
    state.set_max_size(input_max);
    let mut fuzzer: Loop = StdFuzzer::new(ByPriority::default(), feedback, objective);
    let mut manager = NopEventManager::new();
    let judge = &mut bench.runner.judge;
    judge.seeds = seeds.map(|begun| begun.case.clone()).collect();
    for (key, found) in &beginning.found {
        judge.adopt(key.clone(), found.clone());
    }
    let begun = begin(&mut fuzzer, &mut bench, &mut state, &mut manager, beginning);
    let mut stages = tuple_list!(
        DeepStage,
        ImageStage,
        ChangeStage {
            changes: Changes::new(operations, input_max),
            input_max,
            tried: FxHashMap::default(),
        }
    );
    let result = begun.and_then(|()| {
        loop {
            for news in seat.news() {
                match news {
                    News::Case { case, .. } => {
                        let (_, new) =
                            fuzzer.evaluate_input(&mut state, &mut bench, &mut manager, &case)?;
                        if let Some(id) = new {
                            is_anothers(&state, id)?;
                        }
                        bench.catch_up();
                        bench.pool.tried(case.image, 1);
                    }
                    News::Found { key, found } => bench.runner.judge.adopt(key, *found),
                    News::Figures(_)
                    | News::Hints(_)
                    | News::Unjudged(_)
                    | News::Failed(_)
                    | News::Looked(_) => {}
                }
            }
            for gift in (0..GIFTS).map_while(|_| inbox.next()) {
                let (party, number) = gift.from;
                let case = Case {
                    image: bench.root,
                    input: gift.input,
                };
                let (_, new) =
                    fuzzer.evaluate_input(&mut state, &mut bench, &mut manager, &case)?;
                if let Some(id) = new {
                    let operation = format!("sync:{party}:{number}");
                    bench.tell_case(&case, None, &operation, priority_of(&state, id));
                }
                inbox.done();
            }
            fuzzer.fuzz_one(&mut stages, &mut bench, &mut state, &mut manager)?;
            bench.tell_figures(&fuzzer, &state);
        }
    });
    bench.tell_figures(&fuzzer, &state);
    match result {
        Ok(()) | Err(libafl::Error::ShuttingDown) => Ok(bench.figures),
        Err(error) => Err(bench.failure.take().unwrap_or(error.into())),
    }
}

/// Somebody else looks at this case closely, or has done so.
fn is_anothers(state: &State, id: CorpusId) -> Result<(), libafl::Error> {
    let mut entry = state.corpus().get(id)?.borrow_mut();
    entry.add_metadata(Looked);
    entry.add_metadata(Compared);
    Ok(())
}

fn begin(
    fuzzer: &mut Loop,
    bench: &mut Bench<'_>,
    state: &mut State,
    manager: &mut NopEventManager,
    beginning: &Beginning,
) -> Result<(), libafl::Error> {
    let turn = bench.figures.worker;
    for (number, begun) in beginning.cases.iter().enumerate() {
        let Begun {
            case,
            is_seed,
            is_looked,
        } = begun;
        let before = state.corpus().count();
        // A seed is kept whatever it shows: the user wants it.
        let added = match is_seed {
            true => Some(fuzzer.add_input(state, bench, manager, case.clone())?),
            false => fuzzer.evaluate_input(state, bench, manager, case)?.1,
        };
        let Some(id) = added else { continue };
        // All workers have all cases; each looks at its part of them.
        if *is_looked || number % bench.options.jobs.max(1) != turn {
            is_anothers(state, id)?;
        }
        if *is_seed && state.corpus().count() > before {
            bench.tell_case(case, None, "seed", priority_of(state, id).max(1));
        }
        // An earlier run of the tool may have had no detector, or another one. One worker is enough
        // to see.
        if !*is_seed && turn == 0 {
            bench.detect(case);
        }
    }
    if state.corpus().count() == 0 {
        let case = Case {
            image: beginning.root,
            input: b"\n".to_vec(),
        };
        let id = fuzzer.add_input(state, bench, manager, case)?;
        if turn != 0 {
            is_anothers(state, id)?;
        }
    }
    // What a campaign that is resumed has tried already, as far as its queue shows that.
    bench.catch_up();
    for begun in &beginning.cases {
        bench.pool.tried(begun.case.image, 1);
    }
    Ok(())
}

impl Bench<'_> {
    /// The input of the run that has left an image, and whether it was cut short.
    fn made_by(&self, image: ImageId) -> Result<Option<(Vec<u8>, bool)>, Error> {
        let store = &self.runner.workshop().store;
        let (input, is_crash) = match store.node(image)?.origin {
            Origin::Run { input } => (input, false),
            Origin::Crash { input, .. } => (input, true),
            _ => return Ok(None),
        };
        Ok(Some((store.input_bytes(input)?, is_crash)))
    }

    /// Takes in images that somebody has made.
    fn catch_up(&mut self) {
        let kinds = match self.options.images {
            Images::Model => Kinds::Left,
            Images::Mutate => Kinds::Flipped,
            Images::None => return,
        };
        let turn = (self.figures.worker, self.options.jobs);
        self.pool
            .catch_up(&self.runner.workshop().store, kinds, turn);
    }
}

impl Bench<'_> {
    fn tell_figures(&mut self, fuzzer: &Loop, state: &State) {
        use libafl::{HasFeedback, HasScheduler};
        let scheduler = HasScheduler::<Case, State>::scheduler(fuzzer);
        let (pending, pending_favoured) = scheduler.pending();
        let seen = fuzzer.feedback();
        let store = &self.runner.workshop().store;
        self.figures = Figures {
            executions: *state.executions(),
            warm: self.runner.warm,
            opened: self.runner.opened,
            paths: seen.seen(Map::Path).places(),
            path_classes: seen.seen(Map::Path).pairs(),
            situations: seen.seen(Map::Situations).places(),
            openings: seen.seen(Map::Opening).places(),
            edges: seen.seen(Map::Edges).places(),
            images: store.len() as u64,
            depth: self.pool.depth(store).max(self.figures.depth),
            cases: state.corpus().count() as u64,
            pending,
            pending_favoured,
            times: self.runner.times,
            cut: self.runner.cut,
            touched: self.runner.touched,
            ..self.figures
        };
        if self.hints != self.runner.hints.len() {
            self.hints = self.runner.hints.len();
            self.seat.publish(News::Hints(self.runner.hints.clone()));
        }
        self.seat.publish(News::Figures(self.figures));
    }
}
