//! The search: a path is run, one of its decisions is turned, an input for that is solved for and run, and so on.
//!
//! ```text
//!  input ─▶ run, captured ─▶ path: decisions ─▶ queue of decisions to turn ─▶ solver ─▶ another input
//!    ▲          │ new code: run again, followed; more instructions are captured from then on  │
//!    └──────────┴──────────────────────────────────────────────────────────────────────────────┘
//! ```
//! **Guarantee.** Every path that counts was executed, on an input that exists. Where a run does not go where the solver has said, it is counted as diverged, and
//! used as what it is.
//!
//! A decision is turned once for each way to it. What cannot be solved costs time only: no limit is used up by it. The one is turned first that leads to a way of
//! an instruction that no run has gone; then one whose other way no run has gone that had come as far with persistent memory (behind as many fences), or not so often since then (a third
//! digit), or not behind the same decisions, of which first one counts, then three and eight; then the one whose other way was tried less often.
//!
//! **Source.** SAGE's generational search (NDSS 2008) for turning every decision of a path; AGAMOTTO (OSDI 2020), section 4, for what comes first. **Deviations.** There
//! is no bound by generation: it hides earlier decisions. What persistent memory lies behind a branch is not computed from the program's control flow:
//! paths that have done something new to it come first.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use brownout_check::Analysis;
use brownout_host::{CAPTURE_MAX, ExitStatus, Outcome, Stopped};
use brownout_solve::{Answer, Expr, Pool, Settings, Solver};
use brownout_trace::event::Event;
use brownout_trace::{EventSink, Tee};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::judge::Judge;
use crate::numbers::Numbers;
use crate::options::{Error, Options, Strategy};
use crate::path::{Decision, Kind, mix};
use crate::run::{Following, Learning, sorted};
use crate::shadow::Losses;
use crate::stage::{Stage, Telling};

/// A path that was run.
struct Test {
    input: Vec<u8>,
    decisions: Vec<Decision>,
    /// For each decision, a number for all before it.
    before: Vec<u64>,
    /// For each decision, the other way of it, in ever more detail (see [`ways`]).
    others: Vec<[u64; DETAILS]>,
    /// How much was new that it did to persistent memory.
    news: u64,
}

/// A decision to turn: the larger, the earlier.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Rank {
    novelty: u8,
    few_tries: Reverse<u32>,
    pm_news: u64,
    order: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Turn {
    rank: Rank,
    test: u32,
    at: u32,
}

/// Who is told how it goes.
pub trait Progress {
    /// From time to time.
    fn show(&mut self, numbers: &Numbers);
}

/// Why the search has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Over {
    /// Every decision of every path was turned, as far as that can be.
    All,
    /// The time was up.
    Time,
    /// So many paths were run.
    Paths,
    /// An error was found.
    Found,
    /// It was told to.
    Stopped,
}

/// See the module's header.
pub struct Search<'o> {
    options: &'o Options,
    stage: &'o Stage,
    pool: Pool,
    solver: Solver,
    /// Instructions that touch the input.
    touched: HashSet<u64>,
    chosen: Arc<[u64]>,
    /// Branches that were taken in runs that were followed.
    learned: Vec<u8>,
    tests: Vec<Test>,
    queue: BinaryHeap<Turn>,
    /// Turned already: the way to a decision, and the decision.
    tried: FxHashSet<u64>,
    /// Ways that decisions went.
    covered: FxHashSet<u64>,
    /// By decision and way not gone: how often it was tried.
    tries: FxHashMap<u64, u32>,
    inputs: FxHashSet<Vec<u8>>,
    pm: FxHashSet<u64>,
    edges: Vec<u8>,
    random: fastrand::Rng,
    begun: Instant,
    /// What was found.
    pub judge: Judge,
    /// What was done.
    pub numbers: Numbers,
    /// What was not followed.
    pub losses: Losses,
    /// The inputs of paths that did something new to persistent memory.
    pub kept: Vec<Vec<u8>>,
}

/// Events for the rules.
struct Rules(Analysis);

impl EventSink for Rules {
    fn event(&mut self, event: &Event<'_>) -> std::io::Result<()> {
        self.0.event(event);
        Ok(())
    }

    fn answer(&mut self, question: &Event<'_>) -> [u64; 3] {
        self.0.answer(question)
    }
}

impl<'o> Search<'o> {
    /// One that has run nothing.
    pub fn new(options: &'o Options, stage: &'o Stage) -> Search<'o> {
        let settings = Settings {
            external: options.external_solver.clone(),
            ..Settings::default()
        };
        Search {
            options,
            stage,
            pool: Pool::new(),
            solver: Solver::new(settings),
            touched: HashSet::new(),
            chosen: Arc::from([]),
            learned: Vec::new(),
            tests: Vec::new(),
            queue: BinaryHeap::new(),
            tried: FxHashSet::default(),
            covered: FxHashSet::default(),
            tries: FxHashMap::default(),
            inputs: FxHashSet::default(),
            pm: FxHashSet::default(),
            edges: Vec::new(),
            random: fastrand::Rng::with_seed(options.seed),
            begun: Instant::now(),
            judge: Judge::new(options.check),
            numbers: Numbers::default(),
            losses: Losses::default(),
            kept: Vec::new(),
        }
    }

    /// Searches.
    pub fn run(&mut self, progress: &mut dyn Progress) -> Result<Over, Error> {
        let first = self.options.first.clone();
        self.inputs.insert(first.clone());
        self.try_input(first, None)?;
        let mut shown = Instant::now();
        let over = loop {
            if let Some(over) = self.is_over() {
                break over;
            }
            let Some(turn) = self.next() else {
                break Over::All;
            };
            if let Some((input, expected)) = self.solve(turn) {
                self.try_input(input, Some(expected))?;
            }
            if shown.elapsed() > Duration::from_millis(200) {
                shown = Instant::now();
                self.count();
                progress.show(&self.numbers);
            }
        };
        self.count();
        Ok(over)
    }

    fn is_over(&self) -> Option<Over> {
        let options = self.options;
        if options.stop.load(Ordering::Relaxed) {
            return Some(Over::Stopped);
        }
        if options.until_found && self.judge.has_error() {
            return Some(Over::Found);
        }
        if options
            .time
            .is_some_and(|time| self.begun.elapsed() >= time)
        {
            return Some(Over::Time);
        }
        let paths = options.paths?;
        (self.numbers.paths >= paths).then_some(Over::Paths)
    }

    fn count(&mut self) {
        let numbers = &mut self.numbers;
        numbers.waiting = self.queue.len() as u64;
        numbers.queries = self.solver.statistics().queries;
        numbers.pm_paths = self.pm.len() as u64;
        numbers.instructions_chosen = self.touched.len() as u64;
        numbers.expressions = self.pool.len() as u64;
        numbers.seconds = self.begun.elapsed().as_secs_f64();
        let edges = self.edges.iter().filter(|edge| **edge != 0).count();
        numbers.edges = edges as u64;
        (numbers.errors, numbers.others) = self.judge.numbers();
    }

    /// The next decision to turn.
    fn next(&mut self) -> Option<Turn> {
        while let Some(turn) = self.queue.pop() {
            let rank = self.rank(turn.test, turn.at, turn.rank.order);
            // What was new when it was put there may not be any more.
            if rank < turn.rank {
                self.queue.push(Turn { rank, ..turn });
                continue;
            }
            return Some(turn);
        }
        None
    }

    fn rank(&self, test: u32, at: u32, order: u64) -> Rank {
        let test = &self.tests[test as usize];
        let decision = &test.decisions[at as usize];
        let others = &test.others[at as usize];
        let tries = |way: &u64| self.tries.get(way).copied().unwrap_or(0);
        // What could not be solved a few times is no news.
        let is_new = |way: &u64| !self.covered.contains(way) && tries(way) < VAIN_MAX;
        let detail = match decision.kind {
            Kind::Branch => others.iter().position(is_new),
            // Where else it may go is not known: it is never so new.
            _ => (1..DETAILS).find(|n| tries(&others[*n]) == 0),
        };
        let novelty = detail.map_or(0, |n| (DETAILS - n) as u8);
        let tries = tries(&others[detail.unwrap_or(0)]);
        match self.options.strategy {
            Strategy::Pm | Strategy::Coverage => Rank {
                novelty,
                few_tries: Reverse(tries),
                pm_news: match self.options.strategy {
                    Strategy::Pm => test.news,
                    _ => 0,
                },
                order,
            },
            Strategy::DepthFirst | Strategy::Random => Rank {
                novelty: 0,
                few_tries: Reverse(0),
                pm_news: 0,
                order,
            },
        }
    }

    /// An input on which a decision goes the other way, and what is expected of it.
    fn solve(&mut self, turn: Turn) -> Option<(Vec<u8>, Expected)> {
        let test = &self.tests[turn.test as usize];
        let at = turn.at as usize;
        let decision = test.decisions[at];
        for other in test.others[at] {
            *self.tries.entry(other).or_default() += 1;
        }
        let path: Vec<Expr> = test.decisions[..at].iter().map(|d| d.condition).collect();
        let goal = self.pool.not(decision.condition);
        let begun = Instant::now();
        let answer = self.solver.solve(&mut self.pool, &path, goal, &test.input);
        self.numbers.solving_seconds += begun.elapsed().as_secs_f64();
        let changes = match answer {
            Answer::Sat(changes) => changes,
            Answer::Unsat => {
                self.numbers.unsatisfiable += 1;
                return None;
            }
            Answer::Unknown(_) => {
                self.numbers.unknown += 1;
                return None;
            }
        };
        let mut input = test.input.clone();
        for (index, value) in changes {
            if let Some(byte) = input.get_mut(index as usize) {
                *byte = value;
            }
        }
        let expected = Expected {
            before: test.before[at],
            pc: decision.pc,
            kind: decision.kind,
            way: decision.way,
            at,
        };
        // Two ways of saying the same.
        if !self.inputs.insert(input.clone()) {
            self.numbers.repeated += 1;
            return None;
        }
        Some((input, expected))
    }

    /// Runs the program on an input, and takes from the run what there is to take.
    fn try_input(&mut self, input: Vec<u8>, expected: Option<Expected>) -> Result<(), Error> {
        let mut expected = expected;
        loop {
            let begun = Instant::now();
            let chosen = self.chosen.clone();
            let mut rules = Rules(self.judge.analysis());
            let mut following = Following::new(&mut self.pool, &input);
            let outcome = {
                let mut sink = Tee::of([&mut following as &mut dyn EventSink, &mut rules]);
                self.stage
                    .run(self.options, &input, Telling::At(chosen), &mut sink)?
            };
            let Following {
                shadow,
                pm,
                pm_events,
                position,
                senseless,
                ..
            } = following;
            self.numbers.running_seconds += begun.elapsed().as_secs_f64();
            self.numbers.runs += 1;
            self.numbers.senseless += senseless;
            self.numbers.read_most = self.numbers.read_most.max(position.read);
            if self.learns(&input, &outcome)? {
                // It was not all captured.
                self.judge.put_back(rules.0);
                continue;
            }
            self.numbers.paths += 1;
            self.numbers.evaluated += shadow.evaluated;
            self.numbers.pm_events += pm_events;
            self.lose(&shadow.losses);
            if shadow.path.is_cut {
                self.numbers.cut += 1;
            }
            let is_cut = matches!(
                outcome.stopped,
                Some(
                    Stopped::Asked
                        | Stopped::Wall
                        | Stopped::Events
                        | Stopped::Idle
                        | Stopped::Memory
                )
            );
            self.numbers.endless += u64::from(is_cut);
            self.judge.look(&input, &outcome, is_cut, rules.0);
            if self.judge.has_error() && self.numbers.first_error_seconds.is_none() {
                self.numbers.first_error_seconds = Some(self.begun.elapsed().as_secs_f64());
            }
            if let ExitStatus::Signal(_) = outcome.status {
                self.numbers.killed += 1;
            }
            let news = pm.iter().filter(|pair| !self.pm.contains(*pair)).count() as u64;
            self.pm.extend(pm);
            if news > 0 {
                self.kept.push(input.clone());
            }
            if let Some(edges) = &outcome.edges {
                merge(&mut self.edges, edges);
            }
            if let Some(expected) = expected.take() {
                self.numbers.turned += 1;
                if !expected.is_met(&shadow.path.decisions) {
                    self.numbers.diverged += 1;
                }
            }
            self.add(input, shadow.path.decisions, news);
            return Ok(());
        }
    }

    /// Follows the run on an input if it has executed code that was not there before. Whether more instructions are captured now.
    fn learns(&mut self, input: &[u8], outcome: &Outcome) -> Result<bool, Error> {
        let Some(edges) = &outcome.edges else {
            return Ok(false);
        };
        if !merge(&mut self.learned, edges) {
            return Ok(false);
        }
        let begun = Instant::now();
        let mut learning = Learning::new(input.len());
        self.stage
            .run(self.options, input, Telling::All, &mut learning)?;
        self.numbers.learning_seconds += begun.elapsed().as_secs_f64();
        self.numbers.learned += 1;
        let (executed, given_up) = learning.executed();
        self.numbers.instructions = self.numbers.instructions.max(executed);
        self.numbers.given_up += given_up;
        let before = self.touched.len();
        self.touched.extend(learning.touched());
        if self.touched.len() == before {
            return Ok(false);
        }
        let all = sorted(&self.touched);
        self.numbers.not_chosen = all.len().saturating_sub(CAPTURE_MAX) as u64;
        self.chosen = all.into_iter().take(CAPTURE_MAX).collect();
        Ok(true)
    }

    fn lose(&mut self, losses: &Losses) {
        for (name, count) in &losses.unsupported {
            *self.losses.unsupported.entry(name.clone()).or_default() += count;
        }
        for (pc, count) in &losses.addresses {
            *self.losses.addresses.entry(*pc).or_default() += count;
        }
        self.losses.arguments += losses.arguments;
        self.losses.stale += losses.stale;
    }

    /// Adds a path, and its decisions to the queue.
    fn add(&mut self, input: Vec<u8>, decisions: Vec<Decision>, news: u64) {
        let mut all = 0;
        let mut before = Vec::with_capacity(decisions.len());
        let mut others = Vec::with_capacity(decisions.len());
        let mut times: FxHashMap<u64, u64> = FxHashMap::default();
        let mut names = Vec::with_capacity(decisions.len());
        let mut last_fences = 0;
        for decision in &decisions {
            before.push(all);
            let (name, other) = (decision.name(), other_way(decision));
            all = mix(all, name);
            let fences = match self.options.strategy {
                Strategy::Pm => decision.fences.min(FENCES_MAX),
                _ => 0,
            };
            if fences != last_fences {
                times.clear();
                last_fences = fences;
            }
            others.push(ways(other, &names, &times, fences));
            self.covered.extend(ways(name, &names, &times, fences));
            *times.entry(name).or_default() += 1;
            names.push(name);
        }
        self.numbers.decisions = self.numbers.decisions.max(decisions.len() as u64);
        let test = self.tests.len() as u32;
        let is_turned = |decision: &Decision| decision.kind != Kind::Bound;
        let new: Vec<u32> = decisions
            .iter()
            .zip(&before)
            .enumerate()
            .filter(|(_, (decision, _))| is_turned(decision))
            .filter(|(_, (decision, before))| self.tried.insert(mix(**before, decision.name())))
            .map(|(at, _)| at as u32)
            .collect();
        self.tests.push(Test {
            input,
            decisions,
            before,
            others,
            news,
        });
        for at in new {
            let order = match self.options.strategy {
                Strategy::Random => self.random.u64(..),
                Strategy::DepthFirst => u64::from(test) << 32 | u64::from(at),
                _ => self.random.u64(..),
            };
            let rank = self.rank(test, at, order);
            self.queue.push(Turn { rank, test, at });
        }
    }
}

/// What was done so often was not done more often in a way that matters.
const TIMES_MAX: u64 = 6;
/// A way that could not be solved for so often is not tried first any more.
const VAIN_MAX: u32 = 1000;
/// Behind so many fences it does not matter how many there were.
const FENCES_MAX: u32 = 64;
/// In how much detail ways are told apart.
const DETAILS: usize = 6;

/// A way that a decision may go, behind these: by itself; behind so many fences of persistent memory; there for the nth time; and there behind the
/// last one, three and eight decisions.
fn ways(name: u64, behind: &[u64], times: &FxHashMap<u64, u64>, fences: u32) -> [u64; DETAILS] {
    let time = times.get(&name).copied().unwrap_or(0).min(TIMES_MAX);
    let there = mix(name, fences.into());
    let last = |count: usize| {
        let from = behind.len().saturating_sub(count);
        behind[from..]
            .iter()
            .fold(mix(there, count as u64), |all, name| mix(all, *name))
    };
    [
        name,
        mix(there, 77),
        mix(mix(there, 78), time),
        last(1),
        last(3),
        last(8),
    ]
}

/// What a run is expected to do.
struct Expected {
    before: u64,
    pc: u64,
    kind: Kind,
    way: u64,
    at: usize,
}

impl Expected {
    fn is_met(&self, decisions: &[Decision]) -> bool {
        let Some(decision) = decisions.get(self.at) else {
            return false;
        };
        let names = decisions[..self.at].iter().map(Decision::name);
        let before = names.fold(0, mix);
        before == self.before
            && (decision.pc, decision.kind) == (self.pc, self.kind)
            && decision.way != self.way
    }
}

/// The way that a decision did not go. Of a jump, all others are one.
fn other_way(decision: &Decision) -> u64 {
    match decision.kind {
        Kind::Branch => Decision {
            way: 1 - (decision.way & 1),
            ..*decision
        }
        .name(),
        _ => mix(decision.name(), 1),
    }
}

/// Adds what was taken; whether anything was new.
fn merge(all: &mut Vec<u8>, edges: &[u8]) -> bool {
    all.resize(all.len().max(edges.len()), 0);
    let mut is_new = false;
    for (known, edge) in all.iter_mut().zip(edges) {
        is_new |= *known == 0 && *edge != 0;
        *known |= edge;
    }
    is_new
}
