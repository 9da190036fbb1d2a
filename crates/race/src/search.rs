//! The search: which schedule is next, and what is new in what it shows.
//!
//! ```text
//!  input, plan ─▶ run ─▶ sightings, pairs, words ─▶ anything new? ─▶ looking.rs
//!     ▲    ▲               │
//!     │    └── goals ◀─────┤   a store and a load that came to the same bytes, or are predicted to (goals.rs)
//!     └────── inputs ◀─────┘   those that have shown something new (inputs.rs)
//! ```
//! Strategies take turns; those that are directed at goals come most often.

mod choosing;
mod looking;
mod state;

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use brownout_campaign::status::Snapshot;
use brownout_explore::{Command, PmOnly};
use brownout_host::{Decision, ExitStatus, Goal, Plan, Schedule, StrategyKind};
use brownout_trace::{EventSink, Tee};
use rustc_hash::FxHashSet;

use self::state::{CHANGE_TRIES_MAX, State};
use crate::discoveries::{Discoveries, Discovery, Remark};
use crate::goals::Prospect;
use crate::inputs::{Input, Inputs, Turn};
use crate::judge::Verdict;
use crate::live::Standing;
use crate::numbers::Numbers;
use crate::options::{Error, Options, io_error, together};
use crate::predict::{Predicted, Predictor};
use crate::proof::What;
use crate::stage::{Act, Ran, Stage};
use crate::watch::Watch;

/// Without a bound, the search ends when so many schedules in a row have shown nothing new, and no
/// longer than this.
const QUIET_RUNS: u64 = 150;
const TIME: Duration = Duration::from_secs(60);
/// The first runs of an input are asked what could happen in others.
const PREDICTING_RUNS: u32 = 3;

/// Who keeps what was found.
pub trait Books: Sync {
    /// A finding, by what it has in common with others of the same bug.
    fn found(&self, key: &str, discovery: &Discovery);
    /// An input that has come to stay.
    fn keeps(&self, input: &[u8]);
}

/// Why the search has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Over {
    /// The time was up.
    Time,
    /// All runs were made.
    Runs,
    /// Nothing new came any more.
    Quiet,
    /// Something was found.
    Found,
    /// The user ended it.
    Stopped,
}

/// What came of it.
pub struct Searched {
    pub found: Vec<Discovery>,
    pub numbers: Numbers,
    pub over: Over,
    /// Predictions in words, how they stand, and how many schedules were directed at them.
    pub predictions: Vec<(String, Prospect, u32)>,
    /// How else the program ends.
    pub remarks: Vec<Remark>,
    pub has_diverged: u64,
    /// Early reads that were seen only in runs that did not end.
    pub not_followed: u64,
    /// Recovery fails after a crash in which nothing is lost: where, and how.
    pub fails_anyway: Option<String>,
    /// Recovery fails after a crash that takes no early read: where, and how.
    pub fails_before: Option<String>,
    /// What runs after a crash ends so though nothing is lost that some of its failures prove
    /// nothing.
    pub not_judged: Option<String>,
}

/// Told from time to time how far it is.
pub trait Progress {
    /// So far.
    fn show(&mut self, snapshot: &Snapshot);
}

/// See the module's header.
pub struct Search<'o> {
    options: &'o Options,
    stage: &'o Stage,
    state: Mutex<State>,
    begun: Instant,
    /// How the first run, in which nobody is interrupted, has ended, if by itself.
    usual_end: Option<ExitStatus>,
    more: Vec<Command>,
    over: Mutex<Option<Over>>,
}

/// What to run next.
struct Next {
    number: u64,
    turn: Turn,
    schedule: Schedule,
    /// What it is directed at.
    goal: Option<Goal>,
}

/// A run that has shown something: what it has read, and what was decided in it.
struct Shown {
    input: Arc<Input>,
    decisions: Vec<Decision>,
    /// [`Scheduled::check`](brownout_host::Scheduled::check) of the run, if it has been run, and
    /// did not have to be ended. (How far a run gets that is ended differs by a few points.)
    check: Option<u64>,
}

impl Shown {
    /// The same run.
    fn again(&self) -> Act {
        Act::new(Schedule::repeat(self.decisions.clone()), &self.input)
    }

    /// One in which these decisions are made instead, where they can be.
    fn steered(&self, decisions: &[Decision]) -> Act {
        Act::new(Schedule::steer(decisions.to_vec()), &self.input)
    }

    fn with(&self, decisions: Vec<Decision>) -> Shown {
        Shown {
            input: self.input.clone(),
            decisions,
            check: None,
        }
    }
}

/// What is worth looking at in a run.
struct Wanted {
    follows: bool,
    /// For these.
    candidates: Vec<(u64, u64)>,
    locks: bool,
}

/// What the first run has shown.
pub struct First {
    /// When the clock of the search began.
    pub begun: Instant,
    /// How it ended, if by itself.
    pub end: Option<ExitStatus>,
    /// What it is called if it was killed by a mistake of the program's own: that takes no
    /// schedule.
    pub death: Option<u64>,
}

impl<'o> Search<'o> {
    /// One that has run nothing, and goes on from what is known.
    pub fn new(
        options: &'o Options,
        stage: &'o Stage,
        inputs: Inputs,
        first: u64,
        known: Discoveries,
        shown: &First,
    ) -> Search<'o> {
        let more = options
            .continues
            .iter()
            .map(|command| together(&options.recover, command));
        let mut endings = FxHashSet::default();
        endings.extend(shown.death.map(|name| What::Crash { name }));
        endings.extend(shown.end.map(|end| match end {
            ExitStatus::Code(code) => What::Exit { code },
            ExitStatus::Signal(signal) => What::Killed { signal },
        }));
        Search {
            options,
            stage,
            state: Mutex::new(State::new(first, inputs, known, endings)),
            begun: shown.begun,
            usual_end: shown.end,
            more: more.collect(),
            over: Mutex::new(None),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        state::lock(&self.state)
    }

    /// Searches until it is over. Findings are written into the books when they are made.
    pub fn run(
        self,
        shows: &mut dyn FnMut(&Standing),
        books: &dyn Books,
    ) -> Result<Searched, Error> {
        let jobs = self.options.jobs.max(1);
        let ended: Mutex<Vec<Result<(), Error>>> = Mutex::new(Vec::new());
        std::thread::scope(|scope| {
            for _ in 0..jobs {
                scope.spawn(|| {
                    let result = self.work(books);
                    if result.is_err() {
                        self.end(Over::Stopped);
                    }
                    ended.lock().unwrap_or_else(|p| p.into_inner()).push(result);
                });
            }
            loop {
                std::thread::sleep(Duration::from_millis(50));
                shows(&self.standing());
                if ended.lock().unwrap_or_else(|p| p.into_inner()).len() == jobs {
                    break;
                }
            }
        });
        for result in ended.into_inner().unwrap_or_else(|p| p.into_inner()) {
            result?;
        }
        let numbers = self.numbers();
        let over = self.over.into_inner().unwrap_or_else(|p| p.into_inner());
        let state = self.state.into_inner().unwrap_or_else(|p| p.into_inner());
        Ok(Searched {
            not_followed: {
                let candidates = state.candidates.values();
                candidates.filter(|c| c.is_never_whole()).count() as u64
            },
            found: state.found.into_list(),
            numbers,
            over: over.unwrap_or(Over::Stopped),
            predictions: state.goals.predictions(),
            remarks: state.remarks,
            has_diverged: state.has_diverged,
            fails_anyway: state.fails_anyway,
            fails_before: state.fails_before,
            not_judged: state.not_judged,
        })
    }

    fn standing(&self) -> Standing {
        let is_stopping = self.is_over();
        let numbers = self.numbers();
        let state = self.lock();
        Standing {
            numbers,
            found: state.found.numbers(),
            time_left: self
                .limit()
                .map(|limit| limit.saturating_sub(self.begun.elapsed())),
            is_stopping,
        }
    }

    fn numbers(&self) -> Numbers {
        let state = self.lock();
        let mut numbers = state.numbers;
        numbers.seconds = self.begun.elapsed().as_secs_f64();
        numbers.pairs = state.pairs.len() as u64;
        let goals = state.goals.counts();
        (numbers.goals, numbers.goals_met) = (goals.goals, goals.met);
        numbers.goals_not_met = goals.not_met;
        numbers.predictions = goals.predicted;
        (numbers.predictions_proven, numbers.predictions_refuted) = (goals.proven, goals.refuted);
        numbers.predictions_open = goals.predicted - goals.proven - goals.refuted;
        (numbers.inputs, numbers.inputs_kept) = state.inputs.counts();
        numbers.inter_candidates = state.inter.len() as u64;
        numbers.intra_candidates = (state.candidates.len() - state.inter.len()) as u64;
        numbers.inconsistencies = state.effects.len() as u64;
        let count =
            |is: fn(&Verdict) -> bool| state.judged.values().filter(|v| is(v)).count() as u64;
        numbers.validated = count(|v| *v != Verdict::Nothing);
        numbers.confirmed = count(|v| matches!(v, Verdict::Confirmed(_)));
        numbers.unrepaired = count(|v| *v == Verdict::Unrepaired);
        numbers.repaired = count(|v| *v == Verdict::Repaired);
        numbers
    }

    fn end(&self, over: Over) {
        let mut known = self.over.lock().unwrap_or_else(|p| p.into_inner());
        known.get_or_insert(over);
    }

    /// How long it may take, if that is limited.
    fn limit(&self) -> Option<Duration> {
        time_limit(self.options)
    }

    fn is_over(&self) -> bool {
        if self.options.stop.load(Ordering::Relaxed) {
            self.end(Over::Stopped);
        }
        if self
            .limit()
            .is_some_and(|limit| self.begun.elapsed() >= limit)
        {
            self.end(Over::Time);
        }
        self.over
            .lock()
            .unwrap_or_else(|p| p.into_inner())
            .is_some()
    }

    /// What to run next.
    fn next(&self) -> Result<Option<Next>, Error> {
        if self.is_over() {
            return Ok(None);
        }
        let mut state = self.lock();
        let number = state.next;
        if self.options.runs.is_some_and(|runs| number >= runs) {
            drop(state);
            self.end(Over::Runs);
            return Ok(None);
        }
        let has_bound = self.options.time.is_some() || self.options.runs.is_some();
        if !has_bound && number > state.news + QUIET_RUNS && !self.has_hopes(&state) {
            drop(state);
            self.end(Over::Quiet);
            return Ok(None);
        }
        state.next += 1;
        let turn = state.inputs.next();
        let turn = turn.map_err(io_error("cannot write an input"))?;
        let (schedule, goal) = self.schedule(&mut state, number, turn.number == 0);
        Ok(Some(Next {
            number,
            turn,
            schedule,
            goal,
        }))
    }

    /// Whether schedules that are directed at goals may come to something.
    fn has_hopes(&self, state: &State) -> bool {
        let has_goals = matches!(self.options.strategy, None | Some(StrategyKind::PmAware));
        has_goals && state.goals.has_hopes()
    }

    /// What the run with that number is decided by. The first run of an input is one in which
    /// nobody is interrupted.
    fn schedule(&self, state: &mut State, number: u64, is_first: bool) -> (Schedule, Option<Goal>) {
        const TURNS: [(StrategyKind, bool); 8] = [
            (StrategyKind::PmAware, true),
            (StrategyKind::Random, false),
            (StrategyKind::PmAware, true),
            (StrategyKind::PmAware, false),
            (StrategyKind::Pct, false),
            (StrategyKind::PmAware, true),
            (StrategyKind::Random, false),
            (StrategyKind::Pct, false),
        ];
        let seed = self
            .options
            .seed
            .wrapping_mul(1_000_003)
            .wrapping_add(number);
        let (kind, has_goals) = match (number, self.options.strategy) {
            (_, Some(StrategyKind::PmAware)) => (StrategyKind::PmAware, number % 3 != 2),
            (_, Some(kind)) => (kind, false),
            (_, None) if is_first => (StrategyKind::GoOn, false),
            (number, None) => TURNS[number as usize % TURNS.len()],
        };
        let mut plan = Plan::new(kind, seed);
        plan.length = state.length.max(10);
        if kind == StrategyKind::Pct {
            plan.depth = 2 + (number / 8 % 3) as u32;
        }
        let goal = has_goals.then(|| state.goals.next()).flatten();
        if let Some((goal, before)) = goal {
            plan = plan.with_goals(&[goal]).pursued_before(before);
        }
        let mut schedule = Schedule::new(kind, seed);
        schedule.plan = plan;
        (schedule, goal.map(|(goal, _)| goal))
    }

    fn work(&self, books: &dyn Books) -> Result<(), Error> {
        while let Some(next) = self.next()? {
            let mut watch = Watch::new(self.options.model);
            let (ran, predicted) = self.perform(&next, &mut watch)?;
            if self.options.stop.load(Ordering::Relaxed) {
                break;
            }
            for predicted in predicted {
                self.lock().goals.predict(predicted);
            }
            let wanted = self.take_note(&next, &ran, &watch);
            for input in self.lock().inputs.take_news() {
                books.keeps(&input);
            }
            let shown = Shown {
                input: next.turn.input,
                decisions: ran.scheduled.decisions.clone(),
                check: ran.outcome.stopped.is_none().then_some(ran.scheduled.check),
            };
            self.look_for_deadlock(&ran, &mut watch, &shown, books)?;
            self.look_for_ending(&ran, &mut watch, &shown, books)?;
            if ran.has_ended() {
                // Who was ended might have written it back later.
                self.look_for_publications(&mut watch, &shown, books)?;
            }
            if (wanted.follows || wanted.locks) && ran.outcome.stopped.is_none() {
                match self.look_into(&shown, ran.scheduled.check, wanted.follows, books) {
                    // What was found until then is what there is to report.
                    Err(error) if error.is_stop() => break,
                    looked => {
                        let looked = looked?;
                        if wanted.follows {
                            self.lock().count(&wanted.candidates, &looked);
                        }
                    }
                }
            }
        }
        Ok(())
    }

    /// Makes a run; the first ones of an input tell what could happen in others, too.
    fn perform(&self, next: &Next, watch: &mut Watch) -> Result<(Ran, Vec<Predicted>), Error> {
        // Inputs are told apart by the branches that they take when nobody is interrupted.
        let edges = next.turn.number == 0 && self.options.seeds.is_some();
        let act = Act::new(next.schedule.clone(), &next.turn.input).with_edges(edges);
        if next.turn.number >= PREDICTING_RUNS {
            return Ok((self.stage.run(act, watch)?, Vec::new()));
        }
        let mut predictor = Predictor::new(self.options.model);
        let ran = {
            // What threads agree by in ordinary files needs not be persistent.
            let mut only = PmOnly::new(&mut predictor);
            let mut sink = Tee::of([watch as &mut dyn EventSink, &mut only]);
            self.stage.run(act.with_locks(true), &mut sink)?
        };
        Ok((ran, predictor.finish()))
    }

    /// What a run has shown that was not known.
    fn take_note(&self, next: &Next, ran: &Ran, watch: &Watch) -> Wanted {
        let mut state = self.lock();
        if let Some(goal) = next.goal {
            state.goals.pursued(goal, ran.scheduled.pursuit);
        }
        state.numbers.schedules += 1;
        state.numbers.steps += ran.scheduled.steps;
        state.numbers.threads = state.numbers.threads.max(watch.threads as u64);
        state.numbers.deadlocks += u64::from(ran.scheduled.is_deadlock);
        state.numbers.endless += u64::from(ran.is_endless);
        if ran.outcome.stopped.is_none() {
            state.length = ran.scheduled.steps;
        }
        let before = state.pairs.len();
        state.pairs.extend(watch.pairs.iter().copied());
        let mut is_new = state.pairs.len() > before;
        for pair in &watch.meetings {
            is_new |= state.goals.meeting(*pair);
        }
        for pair in &watch.met {
            state.goals.met(*pair);
        }
        if let Some(edges) = &ran.outcome.edges {
            is_new |= merge(&mut state.edges, edges);
        }
        let mut candidates = Vec::new();
        let has_ended = ran.outcome.stopped.is_none();
        for (key, sighting) in &watch.sightings {
            is_new |= !state.candidates.contains_key(key);
            let candidate = state.candidates.entry(*key).or_default();
            candidate.seen(ran.is_endless, has_ended);
            if candidate.is_wanted() {
                candidates.push(*key);
            }
            if sighting.is_inter {
                state.inter.insert(*key);
            }
        }
        let mut locks = false;
        for suspect in watch.words.suspects() {
            let name = suspect.change.done.site.name;
            let tries = state.changes.entry(name).or_default();
            locks |= *tries < CHANGE_TRIES_MAX;
        }
        if is_new {
            state.news = state.news.max(next.number);
            state.inputs.has_news(&next.turn.input);
        }
        let can_follow = has_ended && !watch.sightings.is_empty();
        Wanted {
            follows: can_follow && state.follows(!candidates.is_empty()),
            candidates,
            locks,
        }
    }
}

/// How long a search may take, if that is limited.
pub fn time_limit(options: &Options) -> Option<Duration> {
    match (options.time, options.runs) {
        (None, None) => Some(TIME),
        (time, _) => time,
    }
}

/// Adds what was taken to what is known. True if that is more.
fn merge(known: &mut Vec<u8>, taken: &[u8]) -> bool {
    known.resize(taken.len(), 0);
    let mut is_new = false;
    for (known, taken) in known.iter_mut().zip(taken) {
        is_new |= *taken & !*known != 0;
        *known |= *taken;
    }
    is_new
}
