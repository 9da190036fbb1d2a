//! The search: a path is run, one of its decisions is turned, an input for that is solved for and
//! run, and so on.
//!
//! ```text
//!  input ─▶ run, captured ─▶ path: decisions ─▶ queue of decisions to turn ─▶ solver ─▶ another input
//!    ▲          │ new code: run again, followed; more instructions are captured from then on  │
//!    └──────────┴──────────────────────────────────────────────────────────────────────────────┘
//! ```
//! **Guarantee.** Every path that counts was executed, on an input that exists. Where a run does
//! not go where the solver has said, it is counted as diverged, and used as what it is.
//!
//! **Which comes first** says the strategy (`strategies/`). By default, and without a look at
//! persistent memory (`coverage`), it is this order: a decision is turned once for each way to it,
//! one with many ways as often as it has others. What cannot be solved costs time only: no limit is
//! used up by it. First comes what leads to a way of an instruction that no run has gone, with each
//! expression once or twice. Next come decisions that may lead there (`leads.rs`): if such a way
//! cannot be gone behind what was decided before, those are turned that end what is decided about,
//! rule the way out, or have made what is decided about. Then come those of the program's own code
//! on a path that is new, and ways that were not gone with such an expression (another constant,
//! one more digit), for the nth time since persistent memory was changed, behind the same fences of
//! persistent memory, or behind the same decisions, of which first one counts, then three and
//! eight. That a word is equal up to a byte further counts as a branch does. Of what is equally
//! new, what is on a path that took no longer than others comes first (a loop that is bounded by
//! the input can take any time), then what was tried less often, then what leads to more of what is
//! done to persistent memory (`reach.rs`; not for `coverage`), and then what depends on earlier
//! bytes, so that room is left behind them. Before what a path has done anew to persistent memory,
//! and before a way of the program's own code that none had gone, the last decisions are turned at
//! once. What is less new than all that gets its turn, too, each level half as often as the one
//! above it.
//!
//! **What is captured** (`follows.rs`). A run is followed, and then captured again, if it has
//! executed a branch that is new, if it shows that something was not captured (a value is not what
//! it should be), and if a way is new behind these fences of persistent memory: an instruction may
//! touch the input without a branch that is new. With large libraries that takes long; then only a
//! part of the time goes into it, and what is left is followed before the search ends because
//! nothing else is left.
//!
//! **Runs that do not end** get some times what others take (`patience.rs`). The first is run again
//! with more time before it is believed that it does not end; what the rules say is asked of none
//! of them.
//!
//! **Inputs that are made** (`made.rs`). A solver changes bytes in their places, but texts have
//! none: one more letter moves all that follows. So beside each input that was solved for, the one
//! is run in which the new bytes stand in front of what they replace. When a run has done something
//! new, the bytes that have led there are repeated behind themselves, or are all that is left
//! (shortened byte by byte, if there is no room for them three times), and bytes that have led
//! elsewhere are tried there, before and between them; and the input is tried without most of the
//! bytes that nobody has solved for, so that there is room for more. Such inputs are made of what
//! was solved for; what they do is looked at like everything else. Where the program's own code
//! wants what is ruled out before it (`leads.rs`), the input is made in which what is decided about
//! is longer, and the one that the solver finds without what rules it out: where a library decides
//! more than it computes, that often goes there. And if nothing new was found for some time, inputs
//! are tried that are beside those that have found something: the program may not look at what
//! matters (a word that is empty is compared with nothing), and then no decision tells.
//!
//! **Source.** SAGE's generational search (NDSS 2008) for turning every decision of a path;
//! AGAMOTTO (OSDI 2020), section 4, for what comes first. **Deviations.** There is no bound by
//! generation: it hides earlier decisions. That a path has done something new to persistent memory,
//! and that a way is new, counts for more than how much of that lies behind a branch; and how much
//! that is is computed from the control flow that was seen (`reach.rs`), not from the program's
//! code.

mod expected;
mod follows;
mod leads;
mod levels;
mod lineage;
mod looks;
mod made;
mod order;
mod outside;
mod pieces;
mod reach;
mod strategies;
mod strategy;
mod test;
mod turn;

use std::collections::{HashSet, VecDeque};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use brownout_check::Analysis;
use brownout_findings::numbers::counted;
use brownout_host::{ExitStatus, Stopped};
use brownout_solve::{Answer, BytesLeft, Expr, Pool, Settings, Solver};
use brownout_stage::{Causes, Delivery, Place, Tells};
use brownout_trace::event::Event;
use brownout_trace::{EventSink, Tee};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::input::Layout;
use crate::judge::{Ended, Found, Judge};
use crate::modules::OwnCode;
use crate::numbers::Numbers;
use crate::options::{Error, Options};
use crate::path::{Decision, Kind, Path, Progress, mix};
use crate::patience::Patience;
use crate::run::Following;
use crate::shadow::{Losses, first_bit};
use crate::stage::{Most, Stage};
use crate::story;
use crate::tables::Tables;
use expected::Expected;
use levels::Levels;
use lineage::Lineage;
pub use lineage::Step;
use pieces::{Long, Piece, changed, inserted, pieces};
use reach::Reach;
use strategy::{Known, Order};
use test::Test;
use turn::{DETAILS, Turn, other_way, setting, ways};

/// Who searches beside, and wants to know.
pub trait Company {
    /// How it goes, from time to time.
    fn show(&mut self, numbers: &Numbers);

    /// All paths that were kept, and all that was found.
    fn tells(&mut self, kept: &[Step], found: &[(u64, Found)]) -> Result<(), Error>;

    /// An input that somebody else has kept, each once.
    fn hears(&mut self) -> Option<Vec<u8>>;

    /// Whether somebody else has found what all search for.
    fn has_enough(&self) -> bool;
}

/// Why the search has ended; of several, what comes last says why all have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
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

/// An input that was not solved for. For the statistics of inserting: whether it has something
/// inserted; None if it counts for nothing.
type Made = (Vec<u8>, Option<bool>);

/// See the module's header.
pub struct Search<'o> {
    options: &'o Options,
    order: &'static dyn Order,
    layout: Layout,
    stage: Stage,
    patience: Patience,
    pool: Pool,
    solver: Solver,
    tables: Tables,
    /// Instructions that touch the input.
    touched: HashSet<u64>,
    chosen: Arc<[u64]>,
    /// Branches that were taken in runs that were followed.
    learned: Vec<u8>,
    /// By instruction that has met an outdated value: in how many runs.
    stale_at: FxHashMap<u64, u32>,
    /// What all runs that were followed have executed.
    followed_instructions: u64,
    /// After how many paths one was last followed without a branch that is new.
    followed_at: u64,
    /// Inputs whose runs may show that something was not captured, and were not followed; and
    /// whether they do not end.
    unfollowed: VecDeque<(Vec<u8>, bool)>,
    tests: Vec<Test>,
    queue: Levels,
    /// The same in another order.
    any: Levels,
    /// What lies behind the ways of decisions.
    reach: Reach,
    /// How many were not turned yet, and how many decisions are kept, of all paths.
    waiting: u64,
    stored: usize,
    /// By what is wanted, and what is in its way: on how many paths others were turned for its
    /// sake.
    led: FxHashMap<u64, u32>,
    /// By what is wanted, and the computation: how often it was.
    asked: FxHashMap<u64, u32>,
    /// Where the program's own code is.
    own: OwnCode,
    /// Turned already: the way to a decision, and the decision.
    tried: FxHashSet<u64>,
    /// Ways that decisions went.
    covered: FxHashSet<u64>,
    /// By decision and way not gone: how often it was tried.
    tries: FxHashMap<u64, u32>,
    /// By the way to a decision with many ways: those that were gone or tried.
    gone: FxHashMap<u64, Vec<u128>>,
    /// Inputs to be run that were not solved for: made of others that were. First those of runs
    /// that have done something new to persistent memory, or have gone a way of the program's own
    /// code that none had gone.
    made: [VecDeque<Made>; 2],
    /// Inputs that are to be made shorter.
    long: VecDeque<Long>,
    /// Inputs that have done something new to persistent memory, have gone a way of the program's
    /// own code that none had gone, or have executed something new; and after how many paths the
    /// last was found.
    notable: Vec<Vec<u8>>,
    notable_at: u64,
    /// Where in each of them a byte was inserted last.
    lengthened: Vec<usize>,
    /// Of inputs that were solved for, and of those with inserted bytes: how many have shown
    /// something new, and how many there were.
    fruits: [f64; 2],
    tried_so: [f64; 2],
    /// What has led from one change of persistent memory to the next, in inputs.
    chunks: Vec<Vec<u8>>,
    /// Of these, those that have led to something new in persistent memory, or to a way of the
    /// program's own code that none had gone.
    own_chunks: Vec<Vec<u8>>,
    inputs: FxHashSet<Vec<u8>>,
    pm: FxHashSet<u64>,
    edges: Vec<u8>,
    random: fastrand::Rng,
    begun: Instant,
    /// Inputs that are worth a closer look.
    to_explore: VecDeque<Vec<u8>>,
    /// What explorations have looked into.
    causes: Causes,
    /// What they have to say.
    pub notes: Vec<String>,
    /// What was found.
    pub judge: Judge,
    /// What was done.
    pub numbers: Numbers,
    /// What was not followed.
    pub losses: Losses,
    /// The paths that did something new to persistent memory.
    pub kept: Vec<Step>,
    lineage: Lineage,
    /// Of so many findings it is known below which path they hang.
    placed: usize,
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
    pub fn new(options: &'o Options, stage: Stage) -> Search<'o> {
        let settings = Settings {
            external: options.external_solver.clone(),
            record: std::env::var_os("BROWNOUT_SYMEX_QUERIES").map(PathBuf::from),
            // There is always something else to turn.
            conflicts: CONFLICTS,
            time: SOLVING,
            ..Settings::default()
        };
        Search {
            options,
            order: strategies::named(options.strategy),
            layout: options.layout(),
            stage,
            patience: Patience::new(options.patience),
            pool: Pool::new(),
            solver: Solver::new(settings),
            tables: Tables::default(),
            touched: HashSet::new(),
            chosen: Arc::from([]),
            learned: Vec::new(),
            stale_at: FxHashMap::default(),
            followed_instructions: 0,
            followed_at: 0,
            unfollowed: VecDeque::new(),
            tests: Vec::new(),
            queue: Levels::default(),
            any: Levels::default(),
            reach: Reach::default(),
            waiting: 0,
            stored: 0,
            led: FxHashMap::default(),
            asked: FxHashMap::default(),
            own: OwnCode::default(),
            tried: FxHashSet::default(),
            covered: FxHashSet::default(),
            tries: FxHashMap::default(),
            gone: FxHashMap::default(),
            made: Default::default(),
            long: VecDeque::new(),
            notable: Vec::new(),
            notable_at: 0,
            lengthened: Vec::new(),
            fruits: [0.0; 2],
            tried_so: [0.0; 2],
            chunks: Vec::new(),
            own_chunks: Vec::new(),
            inputs: FxHashSet::default(),
            pm: FxHashSet::default(),
            edges: Vec::new(),
            random: fastrand::Rng::with_seed(options.seed),
            begun: Instant::now(),
            to_explore: VecDeque::new(),
            causes: Causes::default(),
            notes: Vec::new(),
            judge: Judge::new(options.check, options.plugins.clone()),
            numbers: Numbers::default(),
            losses: Losses::default(),
            kept: Vec::new(),
            lineage: Lineage::default(),
            placed: 0,
        }
    }

    /// What strategies may look at.
    fn known(&self) -> Known<'_> {
        Known {
            tests: &self.tests,
            covered: &self.covered,
            tries: &self.tries,
            own: &self.own,
            reach: self.order.sees_pm().then_some(&self.reach),
        }
    }

    /// Searches.
    pub fn run(&mut self, company: &mut dyn Company) -> Result<Over, Error> {
        let first = self.options.first.clone();
        self.inputs.insert(first.clone());
        self.try_input(first, None, None)?;
        let mut shown = Instant::now();
        let mut is_turn = false;
        let over = loop {
            self.place_findings();
            company.tells(&self.kept, &self.judge.found)?;
            if let Some(over) = self.is_over() {
                break over;
            }
            if company.has_enough() {
                break Over::All;
            }
            self.looks()?;
            let heard = company.hears();
            // In turns: there may be many of them.
            is_turn = !is_turn;
            let made = match is_turn && heard.is_none() {
                true => self.next_made(),
                false => None,
            };
            if let Some(input) = heard {
                // What was kept before, or by others, comes first: it has led to new behaviour of
                // persistent memory.
                if self.inputs.insert(input.clone()) {
                    self.numbers.made += 1;
                    self.try_input(input, None, None)?;
                }
            } else if self.shortens()? {
                // That was a run.
            } else if let Some((input, from)) = made {
                self.numbers.made += 1;
                self.try_input(input, None, from)?;
            } else if let Some(input) = self.longer() {
                self.numbers.made += 1;
                self.try_input(input.clone(), None, None)?;
                self.follows_longer(input)?;
            } else if let Some(input) = self.neighbour() {
                self.numbers.made += 1;
                self.try_input(input, None, None)?;
            } else if let Some(turn) = self.next() {
                let solved = self.solve(turn);
                self.forget_done(turn.test);
                if let Some((input, expected)) = solved {
                    self.try_input(input, Some(expected), Some(false))?;
                }
            } else if self.made.iter().all(VecDeque::is_empty) && self.to_explore.is_empty() {
                // It may not be their turn, but nothing else is left.
                if self.shortens_now()? {
                    continue;
                }
                // Before nothing is left, those are followed that may show that something was not
                // captured.
                if !self.follows_what_is_left()? {
                    break Over::All;
                }
            }
            if shown.elapsed() > Duration::from_millis(200) {
                shown = Instant::now();
                self.count();
                company.show(&self.numbers);
            }
        };
        self.count();
        let asked = self.solver.statistics();
        if let Some(why) = &asked.not_recorded {
            let count = counted(asked.unrecorded, "question");
            let note = format!("{count} to the solver could not be kept: {why}");
            self.notes.push(note);
        }
        Ok(over)
    }

    /// Says of what was found below which path it hangs.
    fn place_findings(&mut self) {
        for (_, found) in &mut self.judge.found[self.placed..] {
            found.behind = self.lineage.of(&found.proof.input).kept;
        }
        self.placed = self.judge.found.len();
    }

    /// Says of what was not followed where it is.
    pub fn name_places(&mut self) {
        for (pc, count) in &self.losses.addresses {
            let place = self.own.place(*pc);
            *self.losses.places.entry(place).or_default() += count;
        }
    }

    /// Whether bytes of the input mean something by where they are, as those of a pool do: then
    /// none is moved to see what comes of it.
    fn has_places(&self) -> bool {
        matches!(
            &self.options.delivery,
            Delivery::Place(Place { from: Some(_), .. })
        )
    }

    /// What is left of the time; a run that has begun gets a moment.
    fn left(&self) -> Option<Duration> {
        let time = self.options.time?;
        Some(time.saturating_sub(self.begun.elapsed()).max(MOMENT))
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
        numbers.waiting = self.waiting;
        numbers.launches = self.stage.launches;
        numbers.opening_seconds = self.stage.opening.as_secs_f64();
        numbers.stale = self.losses.stale;
        numbers.unexplored = self.to_explore.len() as u64;
        let asked = self.solver.statistics();
        numbers.queries = asked.queries;
        numbers.external_asked = asked.external_asked;
        numbers.external_answered = asked.external;
        numbers.pm_paths = self.pm.len() as u64;
        numbers.instructions_chosen = self.touched.len() as u64;
        numbers.expressions = self.pool.len() as u64;
        numbers.seconds = self.begun.elapsed().as_secs_f64();
        let edges = self.edges.iter().filter(|edge| **edge != 0).count();
        numbers.edges = edges as u64;
        (numbers.errors, numbers.others) = self.judge.numbers();
    }

    /// What has to hold for a decision to go another way that was not tried.
    fn goal(&mut self, turn: Turn) -> Expr {
        let test = &self.tests[turn.test as usize];
        let at = turn.at as usize;
        let decision = test.decisions[at];
        match (decision.kind, decision.value) {
            (Kind::Position { is_lowest }, Some(word)) => {
                let bits = self.pool.bits(word);
                first_bit(&mut self.pool, word, bits, turn.place, is_lowest)
            }
            (_, Some(value)) => {
                let key = mix(test.before[at], decision.place());
                let bits = self.pool.bits(value);
                let gone = self.gone.entry(key).or_default();
                if gone.is_empty() {
                    gone.push(decision.way.into());
                }
                let mut goal = self.pool.not(decision.condition);
                for way in gone.iter() {
                    let known = self.pool.constant(bits, *way);
                    let same = self.pool.eq(value, known);
                    let other = self.pool.not(same);
                    goal = self.pool.and(goal, other);
                }
                goal
            }
            _ => self.pool.not(decision.condition),
        }
    }

    /// An input on which a decision goes another way, and what is expected of it.
    fn solve(&mut self, turn: Turn) -> Option<(Vec<u8>, Expected)> {
        let goal = self.goal(turn);
        let test = &self.tests[turn.test as usize];
        let at = turn.at as usize;
        let decision = test.decisions[at];
        self.lineage.begin(&test.input, Some(decision.pc));
        for other in ways(other_way(&decision, turn.place), &test.setting(at)) {
            *self.tries.entry(other).or_default() += 1;
        }
        let path: Vec<Expr> = test.decisions[..at].iter().map(|d| d.condition).collect();
        let begun = Instant::now();
        let answer = self.solver.solve(&mut self.pool, &path, goal, &test.input);
        self.numbers.solving_seconds += begun.elapsed().as_secs_f64();
        let changes = match answer {
            Answer::Sat(changes) => self.leads_out(turn, &path, goal, changes),
            Answer::Unsat => {
                self.numbers.unsatisfiable += 1;
                if self.order.helps() {
                    self.lineage.begin(&test.input, None);
                    self.lead_towards(turn);
                }
                return None;
            }
            Answer::Unknown(_) => {
                self.numbers.unknown += 1;
                return None;
            }
        };
        let test = &self.tests[turn.test as usize];
        let input = changed(&test.input, &changes);
        let inserted = inserted(&test.input, &changes);
        let expected = Expected {
            before: test.before[at],
            count: test.decisions[..at]
                .iter()
                .filter(|d| expected::counts(d))
                .count(),
            pc: decision.pc,
            kind: decision.kind,
            way: decision.way,
            chosen: test.chosen.clone(),
        };
        // There may be yet another way.
        if let (Some(value), false) = (
            decision.value,
            matches!(decision.kind, Kind::Position { .. }),
        ) {
            let byte = |index: u32| input.get(index as usize).copied().unwrap_or(0);
            let way = self.pool.eval(value, &byte);
            let gone = self.gone.entry(mix(expected.before, decision.place()));
            let gone = gone.or_default();
            match gone.len() < WAYS_MAX {
                true => {
                    gone.push(way);
                    self.push(self.turn(turn.test, turn.at, turn.place, turn.rank.order));
                }
                false => self.numbers.many_ways += 1,
            }
        }
        if let Some(inserted) = inserted
            && self.order.helps()
            && self.is_worth_inserting()
        {
            self.make(inserted, Some(true), false);
        }
        // Two ways of saying the same.
        if !self.inputs.insert(input.clone()) {
            self.numbers.repeated += 1;
            return None;
        }
        self.lineage.born(&input);
        Some((input, expected))
    }

    /// Runs the program on an input, and takes from the run what there is to take.
    fn try_input(
        &mut self,
        input: Vec<u8>,
        expected: Option<Expected>,
        from: Option<bool>,
    ) -> Result<(), Error> {
        let mut expected = expected;
        let mut is_last = false;
        let mut is_doubted = false;
        loop {
            let begun = Instant::now();
            let left = self.left();
            let chosen = self.chosen.clone();
            let mut rules = Rules(self.judge.analysis());
            let mut following = Following::new(
                &mut self.pool,
                &mut self.tables,
                &mut self.own,
                (&self.layout, &input),
                self.patience.evaluated(),
            );
            following.stops_at_company = !self.stage.takes_turns();
            let opened = self.stage.opening;
            let patience = match is_doubted {
                true => self.patience.of_doubt(),
                false => self.patience.of_run(self.judge.knows_hang()),
            };
            // A run that the end of the search ends says nothing about how long it would have
            // taken.
            let is_short = left.is_some_and(|left| left < patience);
            let most = Most {
                time: left.map_or(patience, |left| left.min(patience)),
                events: self.patience.events(),
            };
            let ran = {
                let mut sink = Tee::of([&mut following as &mut dyn EventSink, &mut rules]);
                (self.stage).run(&input, &Tells::Captured(chosen), most, &mut sink)
            };
            let ran = match ran {
                Ok(ran) => ran,
                // There are several threads, and one that runs with the others would not do the
                // same again: it was ended there.
                Err(_) if following.has_company && self.stage.take_turns() => {
                    self.judge.put_back(rules.0);
                    continue;
                }
                Err(error) if error.is_not_kept() && !is_last => {
                    is_last = true;
                    self.judge.put_back(rules.0);
                    continue;
                }
                Err(error) => return Err(error),
            };
            let outcome = &ran.outcome;
            let near = following.near_fault();
            if following.has_company && self.stage.take_turns() {
                self.judge.put_back(rules.0);
                continue;
            }
            let Following {
                mut shadow,
                pm,
                pm_events,
                pm_sites,
                position,
                senseless,
                awaited,
                lifting,
                ..
            } = following;
            self.numbers.running_seconds += begun.elapsed().as_secs_f64();
            self.numbers.lifting_seconds += lifting.as_secs_f64();
            let forking = awaited.unwrap_or_default();
            let forking = forking.saturating_sub(self.stage.opening - opened);
            self.numbers.forking_seconds += forking.as_secs_f64();
            self.numbers.runs += 1;
            self.numbers.senseless += senseless;
            self.numbers.read_most = self.numbers.read_most.max(position.read);
            self.numbers.copied_most = self.numbers.copied_most.max(position.copied);
            let times = shadow.stale_at.iter().map(|pc| {
                let times = self.stale_at.entry(*pc).or_default();
                *times += 1;
                *times
            });
            let is_suspect = times.min().is_some_and(|times| times <= STALE_MAX);
            let is_over = matches!(outcome.stopped, Some(Stopped::Wall | Stopped::Idle));
            let is_hang = is_over && !is_short;
            if self.learns(&input, outcome, is_suspect, is_hang)? {
                // It was not all captured.
                self.judge.put_back(rules.0);
                continue;
            }
            if is_hang && !is_doubted && !self.judge.knows_hang() {
                // The machine may have been busy with something else, or this takes longer than all
                // before.
                is_doubted = true;
                if patience < self.patience.of_doubt() {
                    self.judge.put_back(rules.0);
                    continue;
                }
            }
            if outcome.stopped.is_none() {
                (self.patience).ended(outcome.wall, pm_events, shadow.evaluated);
            }
            // Others can be had for what its like would cost.
            let is_dear = self.order.helps() && self.patience.is_dear(pm_events, shadow.evaluated);
            self.numbers.paths += 1;
            self.numbers.evaluated += shadow.evaluated;
            self.numbers.pm_events += pm_events;
            self.losses.add(&shadow.losses);
            if shadow.path.is_cut {
                self.numbers.cut += 1;
            }
            let is_cut = matches!(
                outcome.stopped,
                Some(
                    Stopped::Asked
                        | Stopped::Wall
                        | Stopped::Steps
                        | Stopped::Events
                        | Stopped::Idle
                        | Stopped::Memory
                )
            );
            self.numbers.endless += u64::from(is_cut);
            let is_news = pm.keys().any(|pair| !self.pm.contains(pair));
            let origin = self.lineage.of(&input);
            let turned = origin.turned.filter(|_| is_news);
            let turned = turned.and_then(|pc| story::line(pc, shadow.path.thread, &mut rules.0));
            let ended = Ended {
                input: &input,
                ran: &ran,
                is_cut,
                is_hang: is_hang && is_doubted,
                near,
                path: &shadow.path,
                is_explored: is_news && !is_cut && self.options.explore_share > 0.0,
            };
            self.judge.look(ended, &self.own, rules.0);
            if self.judge.has_error() && self.numbers.first_error_seconds.is_none() {
                self.numbers.first_error_seconds = Some(self.begun.elapsed().as_secs_f64());
            }
            if let (ExitStatus::Signal(_), false) = (outcome.status, ran.is_done) {
                self.numbers.killed += 1;
            }
            let new = pm.iter().filter(|(pair, _)| !self.pm.contains(*pair));
            let mut new: Vec<u32> = new.map(|(_, at)| *at).collect();
            let news = new.len() as u64;
            self.pm.extend(pm.into_keys());
            if news > 0 {
                self.lineage.keep(&input, self.kept.len());
                self.kept.push(Step {
                    input: input.clone(),
                    from: origin.kept,
                    turned,
                });
                if !is_cut {
                    self.look_later(&input);
                }
            }
            self.lineage.begin(&input, None);
            let edges = outcome.edges.as_ref();
            let has_new_code = edges.is_some_and(|edges| merge(&mut self.edges, edges));
            if let Some(expected) = expected.take() {
                self.numbers.turned += 1;
                if !expected.is_met(&shadow.path.decisions) {
                    self.numbers.diverged += 1;
                }
            }
            // What the strategy does not look at makes no difference to it.
            let (news, fences) = match self.order.sees_pm() {
                true => {
                    if self.reach.add(&shadow.path.decisions, &pm_sites) {
                        self.put_what_has_risen();
                    }
                    (news, shadow.pm.fences)
                }
                false => {
                    let decisions = shadow.path.decisions.iter_mut();
                    decisions.for_each(|decision| decision.pm = Progress::default());
                    new.clear();
                    // All of it is one piece.
                    (0, 1)
                }
            };
            let pieces = pieces(&shadow.path.decisions, fences);
            let (fresh, own_at) = self.add(input.clone(), shadow.path, is_dear);
            let is_fresh = fresh[..ROUGH].iter().any(|count| *count > 0);
            let is_new = news > 0 || fresh[0] + fresh[1] > 0;
            let is_solved = from == Some(false);
            let is_worth_it = !is_dear || own_at.is_some();
            if self.order.helps() && (news > 0 || own_at.is_some() || has_new_code) && is_worth_it {
                self.note(&input);
            }
            if self.order.helps() && is_worth_it {
                new.extend(own_at.map(|at| at as u32));
                self.look_around(new);
                if is_new && (is_solved || own_at.is_some()) && !self.has_places() {
                    self.repeat_what_led(&input, &pieces, own_at, news > 0);
                }
            }
            // An instruction may touch the input without a branch that is new: what is compared was
            // the same in all runs before.
            let is_elsewhere = news > 0 || fresh[..=THERE].iter().any(|count| *count > 0);
            if is_elsewhere {
                self.follows_now_and_then(&input, is_hang)?;
            }
            if let Some(made) = from {
                let is_fruit = news > 0 || is_fresh;
                self.fruits[usize::from(made)] += f64::from(u8::from(is_fruit));
                self.tried_so[usize::from(made)] += 1.0;
            }
            return Ok(());
        }
    }

    /// Tries more of what has led to something new on the newest path, in pieces; `own_at` is the
    /// decision of the program's own code that has first gone a new way, if any has.
    fn repeat_what_led(
        &mut self,
        input: &[u8],
        pieces: &[Piece],
        own_at: Option<usize>,
        is_new_in_pm: bool,
    ) {
        let is_urgent = is_new_in_pm || own_at.is_some();
        // What has led to the program's own way that is new, and the last.
        let own = own_at.and_then(|at| pieces.iter().find(|piece| piece.behind > at));
        let last = pieces.last().filter(|last| Some(*last) != own);
        for piece in own.into_iter().chain(last) {
            self.repeat(input, *piece, is_urgent);
        }
        // What is behind all that the program has decided about there may be superfluous.
        if let (Some(piece), Some(at)) = (own, own_at) {
            let decisions = &self.tests[self.tests.len() - 1].decisions;
            let end = decisions[at].last_byte() as usize + 1;
            let name = decisions[at].name();
            if end < piece.end {
                self.repeat(input, Piece { end, ..*piece }, is_urgent);
            }
            self.shorten_later(input, name, piece.from);
        }
        self.squeeze(input, is_urgent);
    }

    /// Adds a path, and its decisions to the queue. How many ways are new, in each detail; and at
    /// which decision the program's own code has first gone one that is quite new.
    fn add(
        &mut self,
        input: Vec<u8>,
        path: Path,
        is_dear: bool,
    ) -> ([u32; DETAILS], Option<usize>) {
        let Path {
            decisions, folded, ..
        } = path;
        let mut fresh = [0; DETAILS];
        let mut own_at = None;
        let mut all = 0;
        let mut before = Vec::with_capacity(decisions.len());
        let mut met = Vec::with_capacity(decisions.len());
        let mut times: FxHashMap<u64, u8> = FxHashMap::default();
        let mut last_pm = 0;
        let all_pcs = decisions.iter().map(|decision| decision.pc);
        for pc in all_pcs.chain(folded.iter().map(|folded| folded.pc)) {
            self.own.look(pc);
        }
        for (at, decision) in decisions.iter().enumerate() {
            before.push(all);
            let name = decision.name();
            all = expected::and(all, decision);
            if decision.pm.which != last_pm {
                times.clear();
                last_pm = decision.pm.which;
            }
            let time = times.entry(decision.place()).or_default();
            let setting = setting(&decisions, at, *time);
            for (detail, way) in ways(name, &setting).into_iter().enumerate() {
                if self.covered.insert(way) {
                    fresh[detail] += 1;
                    if detail == 0 && own_at.is_none() && self.own.contains(decision.pc) {
                        own_at = Some(at);
                    }
                }
            }
            met.push(*time);
            *time = time.saturating_add(1);
        }
        for folded in &folded {
            self.covered.insert(mix(folded.name(folded.way), 0));
        }
        self.numbers.decisions = self.numbers.decisions.max(decisions.len() as u64);
        let test = self.tests.len() as u32;
        let mut new = Vec::new();
        let mut narrow = FxHashSet::default();
        let mut left = BytesLeft::default();
        let (mut asked, mut last) = (0, 0);
        for (at, (decision, before)) in decisions.iter().zip(&before).enumerate() {
            match (decision.kind, decision.value) {
                (Kind::Bound, _) => {}
                (Kind::Position { is_lowest }, Some(word)) => {
                    if self.tried.insert(mix(*before, decision.place())) {
                        let mut others = self.places(&left, word, is_lowest);
                        others.retain(|place| u64::from(*place) != decision.way);
                        let further = self.further(&left, decision, &others);
                        narrow.extend(further.into_iter().map(|place| (at as u32, place)));
                        new.extend(others.into_iter().map(|place| (at as u32, place)));
                    }
                }
                // Of many ways each is turned to from the first that was gone.
                (_, Some(_)) => {
                    if self.tried.insert(mix(*before, decision.place())) {
                        new.push((at as u32, 0));
                    }
                }
                (_, None) => {
                    // Of what does not count one may follow another, with nothing in between.
                    let known = match expected::counts(decision) {
                        true => 0,
                        false => {
                            asked = if *before == last { asked + 1 } else { 0 };
                            last = *before;
                            asked
                        }
                    };
                    if self.tried.insert(mix(mix(*before, decision.name()), known)) {
                        new.push((at as u32, 0));
                    }
                }
            }
            left.assume(&mut self.tables.known, &mut self.pool, decision.condition);
        }
        self.stored += decisions.len();
        self.tests.push(Test {
            input,
            decisions,
            before,
            times: met,
            chosen: self.chosen.clone(),
            narrow,
            is_dear,
            ..Test::default()
        });
        // The one before it is not the newest any more.
        if let Some(last) = test.checked_sub(1) {
            self.forget_done(last);
        }
        // Behind something new, what the program itself decides is turned first: which command it
        // is, say, if there is something new in how its number is read.
        let is_fresh = match is_dear {
            true => own_at.is_some(),
            false => fresh[..=2].iter().any(|count| *count > 0),
        };
        if is_fresh && self.order.helps() {
            let Test {
                decisions, owned, ..
            } = &mut self.tests[test as usize];
            let own = new.iter().rev();
            let own = own.filter(|(at, _)| self.own.contains(decisions[*at as usize].pc));
            owned.extend(own.take(OWN).copied());
        }
        for (at, place) in new {
            let number = self.order.number(test, at, &mut self.random);
            self.push(self.turn(test, at, place, number));
        }
        if self.order.helps() {
            self.lead_towards_folded(test, &folded);
        }
        self.make_room();
        (fresh, own_at)
    }
}

impl Search<'_> {
    /// Where the first bit of a word may be that is 1, as far as what is left of the bytes allows
    /// it.
    fn places(&mut self, left: &BytesLeft, word: Expr, is_lowest: bool) -> Vec<u32> {
        let bits = self.pool.bits(word);
        let mut places = Vec::new();
        for n in 0..bits {
            let place = match is_lowest {
                true => n,
                false => bits - 1 - n,
            };
            let bit = self.pool.extract(word, place, 1);
            let (known, pool) = (&mut self.tables.known, &mut self.pool);
            if left.may_be(known, pool, bit, true) {
                places.push(place);
            }
            if !left.may_be(known, pool, bit, false) {
                break;
            }
        }
        places
    }

    /// Of other places of a position, those that are reached only if bytes have certain values,
    /// because a word is compared there: the next, and the last, where all of it is equal. Where
    /// one character is searched for, nearly any other leads further, and there are none.
    fn further(&mut self, left: &BytesLeft, decision: &Decision, others: &[u32]) -> Vec<u32> {
        let (Kind::Position { is_lowest }, Some(word)) = (decision.kind, decision.value) else {
            return Vec::new();
        };
        let now = decision.way as u32;
        let bit = self.pool.extract(word, now, 1);
        let count = left.count(&mut self.tables.known, &mut self.pool, bit, false);
        if count.is_none_or(|count| count > NARROW) {
            return Vec::new();
        }
        let is_further = |place: &&u32| (**place > now) == is_lowest;
        let mut further: Vec<u32> = others.iter().filter(is_further).copied().collect();
        // They are in the order of the search.
        if let [next, .., last] = further[..] {
            further = vec![next, last];
        }
        further
    }
}

/// A byte that has one of so few values is rarely what it has to be by chance.
const NARROW: u32 = 4;
/// The least that a run gets when the time of the search is nearly up.
const MOMENT: Duration = Duration::from_millis(200);
/// What a query may cost.
const CONFLICTS: u64 = 5_000;
const SOLVING: Duration = Duration::from_millis(250);
/// An instruction that meets outdated values is a reason to follow a run so often. (They may be
/// outdated for a reason that no run can show.)
const STALE_MAX: u32 = 2;
/// Behind which fences of persistent memory a way was gone: the detail that tells it.
const THERE: usize = 3;
/// So many decisions of the program itself are turned first on a path that is new.
const OWN: usize = 6;
/// Whatever is new in one of the first so many details is worth a second look.
const ROUGH: usize = 4;
/// So many ways of one decision are tried behind the same decisions.
const WAYS_MAX: usize = 64;

/// Adds what was taken; whether anything was new.
fn merge(all: &mut Vec<u8>, edges: &[u8]) -> bool {
    let is_new = has_new(all, edges);
    all.resize(all.len().max(edges.len()), 0);
    for (known, edge) in all.iter_mut().zip(edges) {
        *known |= edge;
    }
    is_new
}

/// Whether something was taken that was not.
fn has_new(all: &[u8], edges: &[u8]) -> bool {
    let known = all.iter().chain(std::iter::repeat(&0));
    edges
        .iter()
        .zip(known)
        .any(|(edge, known)| *edge != 0 && *known == 0)
}
