//! The search: which schedule is next, and what is new in what it shows.
//!
//! ```text
//!  plan ─▶ run ─▶ sightings, pairs, words ─▶ anything new? ─▶ the same run again, followed ─▶ effects ─▶ crash, recovery ─▶ finding
//!   ▲                      │
//!   └── goals ◀────────────┘   a store and a load that came to the same bytes, in whatever order
//! ```
//! Strategies take turns. Those that know goals come most often: each goal is a store and a load of different threads that some run has brought to the same bytes,
//! and the ones that were tried least come first.

use std::sync::Mutex;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use brownout_explore::{Command, Trial};
use brownout_findings::{Finding, Severity, blame};
use brownout_host::{Decision, ExitStatus, Goal, Plan, Schedule, StrategyKind};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::deadlock::{self, deadlock_name};
use crate::effects::{Effect, Effects};
use crate::finding;
use crate::judge::{self, Judged, Verdict, is_same};
use crate::minimise::{Effort, minimise};
use crate::numbers::Numbers;
use crate::options::{Error, Options, together};
use crate::proof::{Proof, What};
use crate::stage::{Ran, Stage};
use crate::watch::{Sighting, Watch};
use crate::words::Change;

/// Without a bound, the search ends when so many schedules in a row have shown nothing new, and no longer than this.
const QUIET_RUNS: u64 = 150;
const TIME: Duration = Duration::from_secs(60);
/// A candidate is followed in so many runs: what a thread makes of what it reads depends on the schedule, too.
const FOLLOWED_MAX: u32 = 4;
/// An effect that is not confirmed is tried so often.
const TRIES_MAX: u32 = 3;
/// Effects that are tried of one store and one load, unless one is confirmed.
const EFFECTS_PER_PAIR: u32 = 16;
/// A change of a word is tried so often.
const CHANGE_TRIES_MAX: u32 = 2;
/// Schedules that are directed at one goal before it counts as not met.
const GOAL_TRIES: u32 = 12;
/// What may be spent to make a list shorter.
const EFFORT: Effort = Effort {
    runs: 60,
    time: Duration::from_secs(4),
};

/// Something that was found, and what it takes to see it again.
#[derive(Clone, Debug)]
pub struct Discovery {
    /// The finding.
    pub finding: Finding,
    /// What it takes.
    pub proof: Proof,
}

/// What is known of a goal.
#[derive(Default)]
struct Aim {
    tries: u32,
    is_met: bool,
}

/// What all workers know.
struct State {
    next: u64,
    /// Number of the last run that has shown something new.
    news: u64,
    goals: FxHashMap<(u64, u64), Aim>,
    /// The goals in the order of their discovery.
    order: Vec<(u64, u64)>,
    pairs: FxHashSet<u64>,
    /// By the names of store and load: in how many runs it was followed.
    followed: FxHashMap<(u64, u64), u32>,
    inter: FxHashSet<(u64, u64)>,
    /// By the name of an effect: how often it was tried; done with if that is the most.
    effects: FxHashMap<u64, u32>,
    judged: FxHashMap<u64, Verdict>,
    by_pair: FxHashMap<(u64, u64), u32>,
    changes: FxHashMap<u64, u32>,
    deadlocks: FxHashSet<u64>,
    /// Words that a crash was seen to leave taken.
    stuck_words: FxHashSet<u64>,
    /// By what two findings of one bug have in common.
    found: Vec<(String, Discovery)>,
    numbers: Numbers,
    /// How a run ended that was killed by a signal, and its schedule.
    killed: Vec<(i32, Vec<Decision>)>,
    notes: Vec<String>,
    /// How long runs are, in steps.
    length: u64,
    has_diverged: u64,
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
    pub notes: Vec<String>,
    pub killed: Vec<(i32, Vec<Decision>)>,
    pub has_diverged: u64,
}

/// Told from time to time how far it is.
pub trait Progress: Send {
    /// So far.
    fn show(&mut self, numbers: &Numbers, found: usize);
}

/// See the module's header.
pub struct Search<'o> {
    options: &'o Options,
    stage: &'o Stage,
    state: Mutex<State>,
    begun: Instant,
    more: Vec<Command>,
    over: Mutex<Option<Over>>,
}

/// What is worth looking at in a run.
struct Wanted {
    follows: bool,
    locks: bool,
}

impl<'o> Search<'o> {
    /// One that has run nothing, and goes on from what is known.
    pub fn new(
        options: &'o Options,
        stage: &'o Stage,
        first: u64,
        known: Vec<(String, Discovery)>,
    ) -> Search<'o> {
        let more = options
            .continues
            .iter()
            .map(|command| together(&options.recover, command));
        Search {
            options,
            stage,
            state: Mutex::new(State {
                next: first,
                news: first,
                goals: FxHashMap::default(),
                order: Vec::new(),
                pairs: FxHashSet::default(),
                followed: FxHashMap::default(),
                inter: FxHashSet::default(),
                effects: FxHashMap::default(),
                judged: FxHashMap::default(),
                by_pair: FxHashMap::default(),
                changes: FxHashMap::default(),
                deadlocks: FxHashSet::default(),
                stuck_words: FxHashSet::default(),
                found: known,
                numbers: Numbers::default(),
                killed: Vec::new(),
                notes: Vec::new(),
                length: 1000,
                has_diverged: 0,
            }),
            begun: Instant::now(),
            more: more.collect(),
            over: Mutex::new(None),
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.state
            .lock()
            .unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Searches until it is over. `discovered` is told of each finding when it is made.
    pub fn run(
        self,
        progress: &mut dyn Progress,
        discovered: &(dyn Fn(&str, &Discovery) + Sync),
    ) -> Result<Searched, Error> {
        let jobs = self.options.jobs.max(1);
        let ended: Mutex<Vec<Result<(), Error>>> = Mutex::new(Vec::new());
        std::thread::scope(|scope| {
            for _ in 0..jobs {
                scope.spawn(|| {
                    let result = self.work(discovered);
                    if result.is_err() {
                        self.end(Over::Stopped);
                    }
                    ended.lock().unwrap_or_else(|p| p.into_inner()).push(result);
                });
            }
            loop {
                std::thread::sleep(Duration::from_millis(50));
                let numbers = self.numbers();
                let found = self.lock().found.len();
                progress.show(&numbers, found);
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
            found: state
                .found
                .into_iter()
                .map(|(_, discovery)| discovery)
                .collect(),
            numbers,
            over: over.unwrap_or(Over::Stopped),
            notes: state.notes,
            killed: state.killed,
            has_diverged: state.has_diverged,
        })
    }

    fn numbers(&self) -> Numbers {
        let state = self.lock();
        let mut numbers = state.numbers;
        numbers.seconds = self.begun.elapsed().as_secs_f64();
        numbers.pairs = state.pairs.len() as u64;
        numbers.goals = state.goals.len() as u64;
        let met = state.goals.values().filter(|aim| aim.is_met);
        numbers.goals_met = met.count() as u64;
        let not_met = |aim: &&Aim| !aim.is_met && aim.tries >= GOAL_TRIES;
        numbers.goals_not_met = state.goals.values().filter(not_met).count() as u64;
        numbers.inter_candidates = state.inter.len() as u64;
        numbers.intra_candidates = (state.followed.len() - state.inter.len()) as u64;
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

    fn is_over(&self) -> bool {
        if self.options.stop.load(Ordering::Relaxed) {
            self.end(Over::Stopped);
        }
        let elapsed = self.begun.elapsed();
        if elapsed >= self.options.time.unwrap_or(TIME) {
            self.end(Over::Time);
        }
        self.over
            .lock()
            .unwrap_or_else(|p| p.into_inner())
            .is_some()
    }

    /// Whether what was begun is not to be finished: the user has ended it, or has what they wanted.
    fn has_to_end(&self) -> bool {
        let over = *self.over.lock().unwrap_or_else(|p| p.into_inner());
        self.options.stop.load(Ordering::Relaxed) || over == Some(Over::Found)
    }

    /// What the next run is decided by.
    fn next(&self) -> Option<(u64, Schedule)> {
        if self.is_over() {
            return None;
        }
        let mut state = self.lock();
        let number = state.next;
        if self.options.runs.is_some_and(|runs| number >= runs) {
            drop(state);
            self.end(Over::Runs);
            return None;
        }
        let has_bound = self.options.time.is_some() || self.options.runs.is_some();
        if !has_bound && number > state.news + QUIET_RUNS {
            drop(state);
            self.end(Over::Quiet);
            return None;
        }
        state.next += 1;
        Some((number, self.schedule(&mut state, number)))
    }

    fn schedule(&self, state: &mut State, number: u64) -> Schedule {
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
            (0, None) => (StrategyKind::GoOn, false),
            (number, None) => TURNS[number as usize % TURNS.len()],
        };
        let mut plan = Plan::new(kind, seed);
        plan.length = state.length.max(10);
        if kind == StrategyKind::Pct {
            plan.depth = 2 + (number / 8 % 3) as u32;
        }
        if has_goals {
            // The ones that were tried least; of those, the oldest.
            let tries = |goal: &(u64, u64)| {
                let aim = &state.goals[goal];
                aim.tries + if aim.is_met { 3 } else { 0 }
            };
            let goal = state.order.iter().copied().min_by_key(tries);
            if let Some(goal) = goal {
                if let Some(aim) = state.goals.get_mut(&goal) {
                    aim.tries += 1;
                }
                plan = plan.with_goals(&[Goal {
                    store: goal.0,
                    load: goal.1,
                }]);
            }
        }
        let mut schedule = Schedule::new(kind, seed);
        schedule.plan = plan;
        schedule
    }

    fn work(&self, discovered: &(dyn Fn(&str, &Discovery) + Sync)) -> Result<(), Error> {
        while let Some((number, schedule)) = self.next() {
            let mut watch = Watch::new(self.options.model);
            let ran = self.stage.run(schedule, &mut watch)?;
            if self.options.stop.load(Ordering::Relaxed) {
                break;
            }
            let wanted = self.take_note(number, &ran, &watch);
            let Some(decisions) = ran.scheduled.decisions.clone() else {
                self.note("a run had more decisions than can be kept: it is not looked into");
                continue;
            };
            self.look_for_deadlock(&ran, &mut watch, &decisions, discovered)?;
            self.look_for_publications(&mut watch, &decisions, discovered)?;
            if (wanted.follows || wanted.locks) && !ran.is_endless {
                self.look_into(decisions, ran.scheduled.check, wanted.follows, discovered)?;
            }
        }
        Ok(())
    }

    fn note(&self, text: &str) {
        let mut state = self.lock();
        if !state.notes.iter().any(|known| known == text) {
            state.notes.push(text.to_owned());
        }
    }

    /// What a run has shown that was not known.
    fn take_note(&self, number: u64, ran: &Ran, watch: &Watch) -> Wanted {
        let mut state = self.lock();
        state.numbers.schedules += 1;
        state.numbers.steps += ran.scheduled.steps;
        state.numbers.threads = state.numbers.threads.max(watch.threads as u64);
        state.numbers.deadlocks += u64::from(ran.scheduled.is_deadlock);
        state.numbers.endless += u64::from(ran.is_endless);
        state.length = ran.scheduled.steps;
        if let (ExitStatus::Signal(signal), None) = (ran.outcome.status, ran.outcome.stopped)
            && !ran.scheduled.is_deadlock
            && state.killed.iter().all(|(known, _)| *known != signal)
        {
            let decisions = ran.scheduled.decisions.clone().unwrap_or_default();
            state.killed.push((signal, decisions));
        }
        let before = state.pairs.len();
        state.pairs.extend(watch.pairs.iter().copied());
        let mut is_new = state.pairs.len() > before;
        for goal in &watch.meetings {
            if !state.goals.contains_key(goal) {
                state.goals.insert(*goal, Aim::default());
                state.order.push(*goal);
                is_new = true;
            }
        }
        // Which of several is first must not depend on how they are kept.
        state.order.sort_unstable();
        for goal in &watch.met {
            let aim = state.goals.entry(*goal).or_default();
            aim.is_met = true;
        }
        let met: Vec<(u64, u64)> = watch.met.iter().copied().collect();
        for goal in met {
            if !state.order.contains(&goal) {
                state.order.push(goal);
            }
        }
        let mut follows = false;
        for (key, sighting) in &watch.sightings {
            let count = state.followed.entry(*key).or_default();
            if *count < FOLLOWED_MAX {
                *count += 1;
                follows = true;
                is_new |= *count == 1;
            }
            if sighting.is_inter {
                state.inter.insert(*key);
            }
        }
        let mut locks = false;
        for (_, word) in watch.words.suspects() {
            for change in &word.changes {
                let tries = state.changes.entry(change.done.site.name).or_default();
                locks |= *tries < CHANGE_TRIES_MAX;
            }
        }
        if is_new {
            state.news = state.news.max(number);
        }
        Wanted { follows, locks }
    }

    /// Runs again what is to be looked into, and tries its crashes.
    fn look_into(
        &self,
        decisions: Vec<Decision>,
        check: u64,
        follows: bool,
        discovered: &(dyn Fn(&str, &Discovery) + Sync),
    ) -> Result<(), Error> {
        let mut effects = Effects::new(self.options.model);
        let schedule = Schedule::repeat(decisions.clone());
        let (run, again) = self.stage.record(schedule, follows, &mut effects)?;
        if self.options.stop.load(Ordering::Relaxed) || again.outcome.stopped.is_some() {
            return Ok(());
        }
        if again.scheduled.check != check {
            self.lock().has_diverged += 1;
            return Ok(());
        }
        let (effects, given_up, mut watch) = effects.finish();
        {
            let mut state = self.lock();
            state.numbers.followed += 1;
            state.numbers.given_up += given_up;
        }
        let effects = self.worth_trying(effects);
        let mut changes = self.changes_worth_trying(&watch);
        // Locks of libpmemobj begin with the number of the run that has initialised them: after a crash they are free.
        changes
            .retain(|(_, change, _)| !finding::is_foundation(&mut watch.stacks, change.done.site));
        if effects.is_empty() && changes.is_empty() || watch.storing.is_empty() {
            return Ok(());
        }
        let begun = Instant::now();
        let mut trial = Trial::new(&self.stage.explore, run, &self.more)?;
        let procedures = 1 + self.more.len();
        if let Some(why) = trial.is_unfit(0) {
            self.note(&format!("what runs after a crash does not end well even if nothing is lost ({why}), so that its failure proves nothing"));
        }
        for effect in &effects {
            if self.has_to_end() {
                break;
            }
            let is_settled = |state: &State| {
                matches!(state.judged.get(&effect.name), Some(Verdict::Confirmed(_)))
            };
            if is_settled(&self.lock()) {
                continue;
            }
            let judged = judge::effect(&mut trial, effect, procedures)?;
            self.settle(effect, &judged);
            self.conclude_effect(
                effect, judged, &mut trial, &mut watch, &decisions, discovered,
            )?;
        }
        for (place, change, next) in &changes {
            if self.has_to_end() {
                break;
            }
            // One crash that leaves a lock taken is enough.
            if self.lock().stuck_words.contains(place) {
                continue;
            }
            self.lock().numbers.locks_tried += 1;
            let judged = judge::change(&mut trial, change, next.as_ref(), procedures)?;
            if matches!(judged.verdict, Verdict::Confirmed(_)) {
                self.lock().stuck_words.insert(*place);
                self.conclude_change(
                    change, judged, &mut trial, &mut watch, &decisions, discovered,
                )?;
            }
        }
        self.lock().numbers.validating_seconds += begun.elapsed().as_secs_f64();
        Ok(())
    }

    fn worth_trying(&self, effects: Vec<Effect>) -> Vec<Effect> {
        let mut state = self.lock();
        let mut wanted = Vec::new();
        for effect in effects {
            let tries = state.effects.entry(effect.name).or_default();
            if *tries >= TRIES_MAX {
                continue;
            }
            *tries += 1;
            let pair = (effect.source.store.site.name, effect.source.load.site.name);
            let of_pair = state.by_pair.entry(pair).or_default();
            if *of_pair < EFFECTS_PER_PAIR {
                *of_pair += 1;
                wanted.push(effect);
            }
        }
        wanted
    }

    fn changes_worth_trying(&self, watch: &Watch) -> Vec<(u64, Change, Option<Change>)> {
        let mut state = self.lock();
        let mut wanted = Vec::new();
        for (place, word) in watch.words.suspects() {
            if state.stuck_words.contains(&place) {
                continue;
            }
            for (at, change) in word.changes.iter().enumerate() {
                let tries = state.changes.entry(change.done.site.name).or_default();
                if *tries < CHANGE_TRIES_MAX {
                    *tries += 1;
                    wanted.push((place, *change, word.changes.get(at + 1).copied()));
                }
            }
        }
        wanted
    }

    fn settle(&self, effect: &Effect, judged: &Judged) {
        let rank = |verdict: &Verdict| match verdict {
            Verdict::Nothing => 0,
            Verdict::Repaired => 1,
            Verdict::Unrepaired => 2,
            Verdict::Confirmed(_) => 3,
        };
        let mut state = self.lock();
        let known = state.judged.entry(effect.name).or_insert(Verdict::Nothing);
        if rank(&judged.verdict) > rank(known) {
            *known = judged.verdict.clone();
        }
    }

    fn conclude_effect(
        &self,
        effect: &Effect,
        judged: Judged,
        trial: &mut Trial,
        watch: &mut Watch,
        decisions: &[Decision],
        discovered: &(dyn Fn(&str, &Discovery) + Sync),
    ) -> Result<(), Error> {
        let is_error = match judged.verdict {
            Verdict::Confirmed(_) => true,
            // Of what a thread makes of its own stores, only what fails is worth telling.
            Verdict::Unrepaired if effect.source.is_inter => false,
            _ => return Ok(()),
        };
        let sites = [
            effect.source.store.site,
            effect.source.load.site,
            effect.done.site,
        ];
        if !is_error
            && sites
                .iter()
                .any(|site| finding::is_foundation(&mut watch.stacks, *site))
        {
            return Ok(());
        }
        let lines = sites[..2].iter().map(|site| {
            let stack = finding::stack(&mut watch.stacks, *site);
            blame::line(&stack)
        });
        let lines: Vec<String> = lines.collect();
        let rule = if effect.source.is_inter {
            "inter"
        } else {
            "intra"
        };
        let key = format!("{rule} {}", lines.join(" "));
        if !self.is_worth_telling(&key, is_error) {
            return Ok(());
        }
        let name = effect.name;
        let shows = |decisions: &[Decision]| -> Result<Option<Vec<Decision>>, Error> {
            let mut effects = Effects::new(self.options.model);
            let schedule = Schedule::steer(decisions.to_vec());
            let ran = self.stage.follow(schedule, &mut effects)?;
            let shows = effects.finish().0.iter().any(|effect| effect.name == name);
            Ok(ran.scheduled.decisions.filter(|_| shows))
        };
        let what = What::Effect { name };
        let least = minimise(decisions.to_vec(), EFFORT, shows)?;
        // Once more on the short list; should it not be confirmed there, the long one stays.
        if least.len() < decisions.len() {
            let mut effects = Effects::new(self.options.model);
            let (run, _) =
                self.stage
                    .record(Schedule::repeat(least.clone()), true, &mut effects)?;
            let (effects, _, mut watch) = effects.finish();
            let mut trial = Trial::new(&self.stage.explore, run, &self.more)?;
            for again in effects.iter().filter(|effect| effect.name == name) {
                let again_judged = judge::effect(&mut trial, again, 1 + self.more.len())?;
                if is_same(&again_judged.verdict, &judged.verdict) {
                    let folder = self.folder(&key);
                    let shown = again_judged.show(&mut trial, &folder)?;
                    let proof = Proof::new(&least, what, &again_judged, &trial);
                    let finding =
                        finding::of_effect(again, &again_judged, shown, &mut trial, &mut watch);
                    self.tell(&key, Discovery { finding, proof }, discovered);
                    return Ok(());
                }
            }
        }
        let folder = self.folder(&key);
        let shown = judged.show(trial, &folder)?;
        let proof = Proof::new(decisions, what, &judged, trial);
        let finding = finding::of_effect(effect, &judged, shown, trial, watch);
        self.tell(&key, Discovery { finding, proof }, discovered);
        Ok(())
    }

    fn conclude_change(
        &self,
        change: &Change,
        judged: Judged,
        trial: &mut Trial,
        watch: &mut Watch,
        decisions: &[Decision],
        discovered: &(dyn Fn(&str, &Discovery) + Sync),
    ) -> Result<(), Error> {
        let at = finding::stack(&mut watch.stacks, change.done.site);
        let key = format!("lock {}", blame::line(&at));
        if !self.is_worth_telling(&key, true) {
            return Ok(());
        }
        let what = What::Change {
            name: change.done.site.name,
        };
        let folder = self.folder(&key);
        let shown = judged.show(trial, &folder)?;
        let proof = Proof::new(decisions, what, &judged, trial);
        let finding = finding::of_change(change, &judged, shown, trial, watch);
        self.tell(&key, Discovery { finding, proof }, discovered);
        Ok(())
    }

    fn look_for_deadlock(
        &self,
        ran: &Ran,
        watch: &mut Watch,
        decisions: &[Decision],
        discovered: &(dyn Fn(&str, &Discovery) + Sync),
    ) -> Result<(), Error> {
        let Some((waits, spins)) = deadlock::waits(ran, watch) else {
            return Ok(());
        };
        let name = deadlock_name(&waits);
        if !self.lock().deadlocks.insert(name) {
            return Ok(());
        }
        let lines = waits.iter().map(|(done, _)| {
            let stack = finding::stack(&mut watch.stacks, done.site);
            blame::line(&stack)
        });
        let mut lines: Vec<String> = lines.collect();
        lines.sort_unstable();
        lines.dedup();
        let key = format!("deadlock {}", lines.join(" "));
        if !self.is_worth_telling(&key, true) {
            return Ok(());
        }
        let shows = |decisions: &[Decision]| -> Result<Option<Vec<Decision>>, Error> {
            let mut watch = Watch::new(self.options.model);
            let ran = self
                .stage
                .run(Schedule::steer(decisions.to_vec()), &mut watch)?;
            let shows = deadlock::waits(&ran, &watch)
                .is_some_and(|(waits, _)| deadlock_name(&waits) == name);
            Ok(ran.scheduled.decisions.filter(|_| shows))
        };
        let effort = match spins {
            // Each takes as long as it takes to see that nothing changes.
            true => Effort { runs: 12, ..EFFORT },
            false => EFFORT,
        };
        let least = minimise(decisions.to_vec(), effort, shows)?;
        let mut again = Watch::new(self.options.model);
        let ran = self
            .stage
            .run(Schedule::repeat(least.clone()), &mut again)?;
        let (finding, decisions) = match deadlock::waits(&ran, &again) {
            Some((waits, spins)) => (finding::of_deadlock(&mut again, &waits, spins), least),
            None => (
                finding::of_deadlock(watch, &waits, spins),
                decisions.to_vec(),
            ),
        };
        let proof = Proof::of_schedule(&decisions, What::Deadlock { name });
        self.tell(&key, Discovery { finding, proof }, discovered);
        Ok(())
    }

    /// What others read and nobody ever writes back.
    fn look_for_publications(
        &self,
        watch: &mut Watch,
        decisions: &[Decision],
        discovered: &(dyn Fn(&str, &Discovery) + Sync),
    ) -> Result<(), Error> {
        let suspects: FxHashSet<u64> = watch
            .words
            .suspects()
            .into_iter()
            .map(|(place, _)| place)
            .collect();
        let is_one = |sighting: &&Sighting| {
            sighting.is_inter
                && sighting.is_never_flushed
                && watch.is_never_flushed(sighting.range)
                && !suspects.contains(&(sighting.range.start().0 & !7))
        };
        let mut found: Vec<Sighting> = watch.sightings.values().filter(is_one).copied().collect();
        found.sort_unstable_by_key(|sighting| sighting.load.event);
        for sighting in found {
            let sites = [sighting.store.site, sighting.load.site];
            if sites
                .iter()
                .any(|site| finding::is_foundation(&mut watch.stacks, *site))
            {
                continue;
            }
            let store = finding::stack(&mut watch.stacks, sighting.store.site);
            let key = format!("publication {}", blame::line(&store));
            if !self.is_worth_telling(&key, false) {
                continue;
            }
            let what = What::Publication {
                store: sighting.store.site.name,
            };
            let proof = Proof::of_schedule(decisions, what);
            let finding = finding::of_sighting(&sighting, watch);
            self.tell(&key, Discovery { finding, proof }, discovered);
        }
        Ok(())
    }

    /// Whether a finding of that key says more than what is known.
    fn is_worth_telling(&self, key: &str, is_error: bool) -> bool {
        let mut state = self.lock();
        let known = state.found.iter_mut().find(|(known, _)| known == key);
        match known {
            Some((_, discovery)) => {
                discovery.finding.count += 1;
                is_error && discovery.finding.severity != Severity::Correctness
            }
            None => true,
        }
    }

    fn tell(
        &self,
        key: &str,
        discovery: Discovery,
        discovered: &(dyn Fn(&str, &Discovery) + Sync),
    ) {
        let mut discovery = discovery;
        let switches = discovery
            .proof
            .decisions()
            .map_or(0, |decisions| decisions.len());
        discovery.finding.notes.push(match switches {
            0 => "nobody needs to be interrupted for it: it shows in a run in which every thread goes on until it waits or ends".to_owned(),
            1 => "it takes one context switch that would not come by itself".to_owned(),
            n => format!("it takes {n} context switches that would not come by themselves"),
        });
        discovered(key, &discovery);
        let is_error = discovery.finding.severity == Severity::Correctness;
        let mut state = self.lock();
        match state.found.iter_mut().find(|(known, _)| known == key) {
            Some((_, known)) => *known = discovery,
            None => state.found.push((key.to_owned(), discovery)),
        }
        if is_error && state.numbers.first_error_seconds.is_none() {
            state.numbers.first_error_seconds = Some(self.begun.elapsed().as_secs_f64());
        }
        drop(state);
        if is_error && self.options.until_found {
            self.end(Over::Found);
        }
    }

    /// Where the images of a finding go.
    fn folder(&self, key: &str) -> std::path::PathBuf {
        let number = key
            .bytes()
            .fold(0, |hash, byte| crate::site::mix(hash, u64::from(byte)));
        self.options.folder.join(format!("crash-{number:016x}"))
    }
}
