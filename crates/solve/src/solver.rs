//! Which input bytes make a condition true.
//!
//! # Guarantee
//!
//! A model holds: the part of the path that the changed bytes can matter to, and the goal, are
//! evaluated by [`Pool::eval_all`] before an answer is given. That nothing can make the goal true
//! ([`Answer::Unsat`]) is said only if all values were tried or the SAT solver (or the external
//! one) says so. A search ends within its budget ([`Settings`]).
//!
//! # Deviations
//!
//! 1. An input byte that lies beyond the given input has the value zero there.
//! 2. The path is believed to be true under the given input. If it is not, an answer may leave it
//!    as untrue as it was.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use std::{fs, io, mem};

use rustc_hash::{FxHashMap, FxHashSet};

use crate::byte_set::ByteSet;
use crate::external::{self, Reply};
use crate::lanes::{self, Enumerated};
use crate::op::Op;
use crate::pool::{Expr, Pool};
use crate::program::Program;
use crate::sat::Outcome;
use crate::{blast, sat, smtlib};

/// What a query comes to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// New values for the bytes that have to change, in ascending order; all others stay as they
    /// are.
    Sat(Vec<(u32, u8)>),
    /// No input makes it true.
    Unsat,
    /// The solver gave up, and why.
    Unknown(&'static str),
}

/// What a query may cost.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The conflicts that the SAT solver may meet.
    pub conflicts: u64,
    /// The time of a processor that the SAT solver may take, and the time that the external one
    /// may.
    pub time: Duration,
    /// The gates that a query may be translated to.
    pub gates: usize,
    /// Whether all values of a byte or two are tried before the SAT solver is asked. Without,
    /// answers are the same, later.
    pub enumeration: bool,
    /// A z3 binary, which is asked what the SAT solver gave up on. If it is not there, nothing is
    /// asked.
    pub external: Option<PathBuf>,
    /// Whether the external solver is asked about what is unsatisfiable, too; see
    /// [`Statistics::disagreements`].
    pub second_opinion: bool,
    /// A folder in which each query is kept as SMT-LIB, with what was answered as a comment on top
    /// (`; sat`, `; unsat`, `; unknown`): for comparisons with other solvers. It is made if it is
    /// not there. What cannot be written is left out, and counted.
    pub record: Option<PathBuf>,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            conflicts: 50_000,
            time: Duration::from_secs(5),
            gates: 4_000_000,
            enumeration: true,
            external: None,
            second_opinion: false,
            record: None,
        }
    }
}

/// What was asked, and how it was answered.
#[derive(Clone, Debug, Default)]
pub struct Statistics {
    /// All queries.
    pub queries: u64,
    /// Answered at once: the goal is constant, true already, or the opposite of a part of the path.
    pub trivial: u64,
    /// Answered by the cache, or by the model of an earlier query.
    pub cache: u64,
    /// Answered by trying all values of one byte or two.
    pub enumeration: u64,
    /// Answered by the SAT solver.
    pub blasting: u64,
    /// Answered by the external solver.
    pub external: u64,
    /// What the external solver was asked, answered or not.
    pub external_asked: u64,
    /// Satisfiable.
    pub sat: u64,
    /// Unsatisfiable.
    pub unsat: u64,
    /// Given up.
    pub unknown: u64,
    /// Models that did not hold when they were evaluated. Each is a bug: of this crate, or of the
    /// external solver.
    pub wrong_models: u64,
    /// Queries that the external solver has a model for, though none was believed to exist. Each
    /// is a bug of this crate.
    pub disagreements: u64,
    /// Queries that could not be kept ([`Settings::record`]),
    pub unrecorded: u64,
    /// and why the last of them could not.
    pub not_recorded: Option<String>,
    /// Conflicts of the SAT solver.
    pub conflicts: u64,
    /// Gates that queries were translated to.
    pub gates: u64,
    /// The time that all queries took.
    pub time: Duration,
    /// The part of it that the SAT solver took, with the translation.
    pub time_blasting: Duration,
    /// The part of it that the external solver took.
    pub time_external: Duration,
}

/// Two bytes are enumerated if no more operations than this depend on both.
const PAIR_WORK: usize = 120;
/// Single bytes of a goal with more inputs are tried up to so many operations, over all bytes.
const SINGLE_WORK: usize = 1500;
/// An enumeration is not tried on longer programs than this.
const LONG: usize = 20_000;
/// Restoring old values may evaluate so many operations.
const RESTORE_WORK: usize = 10_000_000;
/// Finding one byte that makes up for a change may evaluate so many operations, over all bytes.
const COMPENSATE_WORK: usize = 5_000;
/// Making bytes text may evaluate so many operations (for 256 values each), over all bytes.
const EMBELLISH_WORK: usize = 20_000;
/// So many conflicts are spent with input bits held to their old values.
const STICKY: u64 = 2_000;
/// Models of so many earlier queries are tried.
const MODELS: usize = 8;
/// The cache is emptied when it has so many entries.
const CACHE: usize = 200_000;

/// Of one goal, so many reasons are kept why it cannot be.
const CORES: usize = 16;
/// A reason that takes more parts of a path is not likely to hold for another one.
const CORE_MAX: usize = 200;

/// Said of a model that is none.
const WRONG: &str = "a model that did not hold";

/// What an earlier query came to.
enum Cached {
    /// The bytes of the slice's inputs, in their order.
    Sat(Vec<u8>),
    Unsat,
    Unknown(&'static str),
}

/// Keeps a query in a folder.
fn record(
    folder: &std::path::Path,
    pool: &Pool,
    path: &[Expr],
    goal: Expr,
    answer: &Answer,
) -> io::Result<()> {
    /// Of all solvers of this process, each with a thread of its own.
    static RECORDED: AtomicU64 = AtomicU64::new(0);
    let word = match answer {
        Answer::Sat(_) => "sat",
        Answer::Unsat => "unsat",
        Answer::Unknown(_) => "unknown",
    };
    let process = std::process::id();
    let number = RECORDED.fetch_add(1, Ordering::Relaxed);
    let text = smtlib::to_smtlib(pool, path, goal);
    let file = folder.join(format!("{process}-{number:06}.smt2"));
    let text = format!("; {word}\n{text}");
    match fs::write(&file, &text) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            fs::create_dir_all(folder)?;
            fs::write(file, text)
        }
        written => written,
    }
}

/// Answers queries, and remembers.
pub struct Solver {
    settings: Settings,
    statistics: Statistics,
    /// The pool whose expressions the caches are about.
    pool: Option<u64>,
    path: Path,
    cache: FxHashMap<Box<[Expr]>, Cached>,
    /// Recent models, newest last.
    models: Vec<FxHashMap<u32, u8>>,
    /// By goal: parts of paths that together rule it out, so that longer paths with the same parts
    /// need not be looked at. Sorted.
    cores: FxHashMap<Expr, Vec<Box<[Expr]>>>,
    /// See [`Solver::why`].
    why: Vec<Expr>,
    /// Of parts that depend on one byte: for which values they hold.
    sets: FxHashMap<Expr, ByteSet>,
}

impl std::fmt::Debug for Solver {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Solver")
            .field("settings", &self.settings)
            .field("statistics", &self.statistics)
            .finish_non_exhaustive()
    }
}

impl Default for Solver {
    fn default() -> Solver {
        Solver::new(Settings::default())
    }
}

/// What the query is about, after all that does not matter to it was left out.
struct Slice {
    program: Program,
    conjuncts: Vec<Expr>,
    /// The old values of the program's inputs.
    old: Vec<u8>,
    /// The inputs of the goal, as positions among the program's.
    goal: Vec<usize>,
    /// The goal itself.
    whole: Expr,
}

impl Solver {
    /// A solver that has seen nothing.
    pub fn new(settings: Settings) -> Solver {
        Solver {
            settings,
            statistics: Statistics::default(),
            pool: None,
            path: Path::default(),
            cache: FxHashMap::default(),
            models: Vec::new(),
            cores: FxHashMap::default(),
            why: Vec::new(),
            sets: FxHashMap::default(),
        }
    }

    /// After [`Answer::Unsat`]: parts of the path that rule the goal out together, if they are
    /// known. Without one of them it may be possible.
    pub fn why(&self) -> &[Expr] {
        &self.why
    }

    /// The same as numbers of the path's conditions: those that such parts were first met in, in
    /// ascending order.
    pub fn why_at(&self) -> Vec<usize> {
        let at = |part: &Expr| self.path.known.get(part).copied();
        let mut all: Vec<usize> = self.why.iter().filter_map(at).collect();
        all.sort_unstable();
        all.dedup();
        all
    }

    /// What was asked so far.
    pub fn statistics(&self) -> &Statistics {
        &self.statistics
    }

    /// Looks for input bytes under which all of `path` and `goal` are true.
    ///
    /// All are expressions of one bit; those of `path` are true under `current`. Queries whose
    /// paths are beginnings of one another, in any order, are cheap: only the new part is looked
    /// at.
    pub fn solve(&mut self, pool: &mut Pool, path: &[Expr], goal: Expr, current: &[u8]) -> Answer {
        assert_eq!(pool.bits(goal), 1, "a goal has one bit");
        let start = Instant::now();
        if self.pool != Some(pool.number) {
            self.pool = Some(pool.number);
            self.path = Path::default();
            self.cache.clear();
            self.models.clear();
            self.cores.clear();
            self.sets.clear();
        }
        let answer = self.answer(pool, path, goal, current);
        let statistics = &mut self.statistics;
        statistics.queries += 1;
        statistics.time += start.elapsed();
        match answer {
            Answer::Sat(_) => statistics.sat += 1,
            Answer::Unsat => statistics.unsat += 1,
            Answer::Unknown(_) => statistics.unknown += 1,
        }
        if let Some(folder) = &self.settings.record
            && let Err(error) = record(folder, pool, path, goal, &answer)
        {
            self.statistics.unrecorded += 1;
            self.statistics.not_recorded = Some(format!("{}: {error}", folder.display()));
        }
        answer
    }

    fn answer(&mut self, pool: &mut Pool, path: &[Expr], goal: Expr, current: &[u8]) -> Answer {
        let byte = |index: u32| current.get(index as usize).copied().unwrap_or(0);
        if pool.as_constant(goal) == Some(0) {
            self.statistics.trivial += 1;
            return Answer::Unsat;
        }
        if pool.eval(goal, &byte) != 0 {
            self.statistics.trivial += 1;
            return Answer::Sat(Vec::new());
        }
        self.path.follow(pool, path);
        self.why.clear();
        let known = self.cores.get(&goal).into_iter().flatten();
        let mut ruled_out = known.filter(|core| self.path.has(core, path.len()));
        if let Some(core) = ruled_out.next() {
            self.why.extend(core);
            self.statistics.cache += 1;
            return Answer::Unsat;
        }
        let whole = goal;
        let goals = conjuncts_of(pool, goal);
        // Before anything is made of the path: most of what cannot be is the opposite of something
        // that must be.
        let parts = std::iter::once(&goal).chain(&goals);
        let opposites: Vec<Expr> = parts.map(|part| pool.not(*part)).collect();
        let mut met = opposites.into_iter();
        if let Some(part) = met.find(|part| self.path.has(&[*part], path.len())) {
            self.why.push(part);
            self.statistics.trivial += 1;
            return Answer::Unsat;
        }
        let mut conjuncts = self.path.slice(pool, path.len(), goal);
        conjuncts.extend(goals);
        conjuncts.sort_unstable();
        conjuncts.dedup();
        if let Some(answer) = self.by_bytes(pool, &conjuncts, whole, &byte) {
            self.statistics.enumeration += 1;
            return answer;
        }
        let program = Program::new(pool, &conjuncts);
        let old: Vec<u8> = program.inputs.iter().map(|&index| byte(index)).collect();
        let goal = pool
            .inputs(goal)
            .iter()
            // A simplification of the parts may have made an input superfluous.
            .filter_map(|input| program.inputs.binary_search(input).ok())
            .collect();
        let slice = Slice {
            program,
            conjuncts,
            old,
            goal,
            whole,
        };
        if let Some(answer) = self.look_up(pool, &slice) {
            return answer;
        }
        if let Some(answer) = self.enumerate(pool, &slice) {
            return answer;
        }
        if let Some(answer) = self.reuse(pool, &slice) {
            return answer;
        }
        self.blast(pool, slice)
    }

    /// What follows from the parts that depend on one byte each: that a byte has no value left, or,
    /// if there are no other parts, a value for each.
    fn by_bytes(
        &mut self,
        pool: &mut Pool,
        conjuncts: &[Expr],
        goal: Expr,
        old: &dyn Fn(u32) -> u8,
    ) -> Option<Answer> {
        if !self.settings.enumeration {
            return None;
        }
        let mut left: Vec<(u32, ByteSet)> = Vec::new();
        let mut is_all = true;
        for &part in conjuncts {
            let &[input] = pool.inputs(part) else {
                is_all = false;
                continue;
            };
            let made = || ByteSet::of(pool, part);
            let set = *self.sets.entry(part).or_insert_with(made);
            match left.iter_mut().find(|(other, _)| *other == input) {
                Some((_, rest)) => *rest = rest.and(set),
                None => left.push((input, set)),
            }
        }
        if let Some((empty, _)) = left.iter().find(|(_, set)| set.is_empty()) {
            let empty = *empty;
            let mut core = conjuncts.to_vec();
            core.retain(|part| *pool.inputs(*part) == [empty]);
            self.rule_out(pool, goal, &core);
            return Some(Answer::Unsat);
        }
        if !is_all {
            return None;
        }
        let mut changes: Vec<(u32, u8)> = left
            .into_iter()
            .filter(|(input, set)| !set.has(old(*input)))
            .map(|(input, set)| (input, set.nicest()))
            .collect();
        changes.sort_unstable();
        Some(Answer::Sat(changes))
    }

    fn look_up(&mut self, pool: &Pool, slice: &Slice) -> Option<Answer> {
        let answer = match self.cache.get(&*slice.conjuncts)? {
            Cached::Sat(bytes) => {
                let bytes = bytes.clone();
                self.checked(pool, slice, bytes)
            }
            Cached::Unsat => Answer::Unsat,
            Cached::Unknown(why) => Answer::Unknown(why),
        };
        self.statistics.cache += 1;
        Some(answer)
    }

    /// Tries recent models on what the slice is about.
    fn reuse(&mut self, pool: &Pool, slice: &Slice) -> Option<Answer> {
        let mut values = Vec::new();
        let model = self.models.iter().rev().find_map(|model| {
            let inputs = slice.program.inputs.iter().zip(&slice.old);
            let bytes: Vec<u8> = inputs
                .map(|(input, &old)| model.get(input).copied().unwrap_or(old))
                .collect();
            (bytes != slice.old && slice.program.holds(&bytes, &mut values)).then_some(bytes)
        })?;
        self.statistics.cache += 1;
        Some(self.found(pool, slice, model))
    }

    /// Tries all values of the goal's inputs, if they are few.
    fn enumerate(&mut self, pool: &mut Pool, slice: &Slice) -> Option<Answer> {
        let program = &slice.program;
        if program.code.len() > LONG || !self.settings.enumeration {
            return None;
        }
        let all = program.inputs.len();
        let mut model = None;
        let mut exhausted = false;
        match *slice.goal {
            [one] => {
                match lanes::enumerate(program, &slice.old, None, one) {
                    Enumerated::Found(_, value) => model = Some(vec![(one, value)]),
                    Enumerated::Nothing => exhausted = all == 1,
                    Enumerated::TooWide => {}
                }
                // The goal's byte is tied to another one.
                if model.is_none() && all == 2 {
                    (model, exhausted) = pair(slice, 1 - one, one);
                }
            }
            [one, other] => {
                (model, exhausted) = pair(slice, one, other);
                exhausted &= all == 2;
            }
            _ if program.code.len() * slice.goal.len() <= SINGLE_WORK => {
                model = slice.goal.iter().find_map(|&one| {
                    match lanes::enumerate(program, &slice.old, None, one) {
                        Enumerated::Found(_, value) => Some(vec![(one, value)]),
                        _ => None,
                    }
                });
            }
            _ => {}
        }
        if let Some(changes) = model {
            let mut bytes = slice.old.clone();
            for (at, value) in changes {
                bytes[at] = value;
            }
            self.statistics.enumeration += 1;
            return Some(self.found(pool, slice, bytes));
        }
        if exhausted {
            self.statistics.enumeration += 1;
            self.remember(slice, Cached::Unsat);
            self.rule_out(pool, slice.whole, &slice.conjuncts);
            return Some(Answer::Unsat);
        }
        None
    }

    fn blast(&mut self, pool: &mut Pool, slice: Slice) -> Answer {
        let start = Instant::now();
        let deadline = sat::used() + self.settings.time;
        let mut outcome = Outcome::GaveUp;
        let mut why = "the query is too large for the SAT solver";
        if let Some(circuit) = blast::blast(&slice.program, self.settings.gates) {
            self.statistics.gates += circuit.gates.gates.len() as u64;
            why = "the SAT solver's budget is spent";
            let budget = self.settings.conflicts;
            let (first, mut conflicts) =
                sat::search(&circuit, &slice.old, true, budget.min(STICKY), deadline);
            outcome = first;
            if matches!(outcome, Outcome::GaveUp) && budget > STICKY && sat::used() < deadline {
                let more;
                (outcome, more) =
                    sat::search(&circuit, &slice.old, false, budget - STICKY, deadline);
                conflicts += more;
            }
            self.statistics.conflicts += conflicts;
        }
        self.statistics.time_blasting += start.elapsed();
        match outcome {
            Outcome::Sat(bytes) => {
                self.statistics.blasting += 1;
                self.found(pool, &slice, bytes)
            }
            Outcome::Unsat(roots) => {
                if self.settings.second_opinion
                    && let Reply::Sat(bytes) = self.ask(&slice)
                    && slice.program.holds(&bytes, &mut Vec::new())
                {
                    self.statistics.disagreements += 1;
                    self.statistics.external += 1;
                    return self.found(pool, &slice, bytes);
                }
                self.statistics.blasting += 1;
                self.remember(&slice, Cached::Unsat);
                let core: Vec<Expr> = roots.iter().map(|root| slice.conjuncts[*root]).collect();
                self.rule_out(pool, slice.whole, &core);
                Answer::Unsat
            }
            Outcome::GaveUp => match self.ask(&slice) {
                Reply::Sat(bytes) if !slice.program.holds(&bytes, &mut Vec::new()) => {
                    self.statistics.wrong_models += 1;
                    Answer::Unknown(WRONG)
                }
                Reply::Sat(bytes) => {
                    self.statistics.external += 1;
                    self.found(pool, &slice, bytes)
                }
                Reply::Unsat => {
                    self.statistics.external += 1;
                    self.remember(&slice, Cached::Unsat);
                    Answer::Unsat
                }
                Reply::Nothing => {
                    self.remember(&slice, Cached::Unknown(why));
                    Answer::Unknown(why)
                }
            },
        }
    }

    fn ask(&mut self, slice: &Slice) -> Reply {
        let Some(binary) = &self.settings.external else {
            return Reply::Nothing;
        };
        let start = Instant::now();
        let text = smtlib::of_program(&slice.program);
        self.statistics.external_asked += 1;
        let reply = external::ask(binary, text, &slice.program.inputs, self.settings.time);
        self.statistics.time_external += start.elapsed();
        reply
    }

    /// These parts, of which some may be the goal's, cannot all hold.
    fn rule_out(&mut self, pool: &mut Pool, goal: Expr, parts: &[Expr]) {
        let goals = conjuncts_of(pool, goal);
        let mut core: Vec<Expr> = parts.to_vec();
        core.retain(|part| !goals.contains(part));
        core.sort_unstable();
        self.why.clone_from(&core);
        if core.len() > CORE_MAX {
            return;
        }
        if self.cores.len() >= CACHE {
            self.cores.clear();
        }
        let known = self.cores.entry(goal).or_default();
        if known.len() >= CORES {
            known.remove(0);
        }
        known.push(core.into());
    }

    fn remember(&mut self, slice: &Slice, what: Cached) {
        if self.cache.len() >= CACHE {
            self.cache.clear();
        }
        self.cache.insert(slice.conjuncts.clone().into(), what);
    }

    /// A new model: old values come back where they may, and it is kept for later queries.
    fn found(&mut self, pool: &Pool, slice: &Slice, mut bytes: Vec<u8>) -> Answer {
        restore(slice, &mut bytes);
        if self.settings.enumeration {
            compensate(slice, &mut bytes);
            embellish(slice, &mut bytes);
        }
        let answer = self.checked(pool, slice, bytes.clone());
        if let Answer::Sat(_) = answer {
            if self.models.len() == MODELS {
                self.models.remove(0);
            }
            let inputs = slice.program.inputs.iter().copied();
            self.models
                .push(inputs.zip(bytes.iter().copied()).collect());
            self.remember(slice, Cached::Sat(bytes));
        }
        answer
    }

    /// The answer with this model, if it holds.
    fn checked(&mut self, pool: &Pool, slice: &Slice, mut bytes: Vec<u8>) -> Answer {
        let inputs = &slice.program.inputs;
        // What the cache has may have been found from another input.
        restore(slice, &mut bytes);
        let value = |index: u32| match inputs.binary_search(&index) {
            Ok(at) => bytes[at],
            Err(_) => 0,
        };
        let holds = pool
            .eval_all(&slice.conjuncts, &value)
            .into_iter()
            .all(|value| value != 0);
        debug_assert!(holds, "a model that does not hold");
        if !holds {
            self.statistics.wrong_models += 1;
            return Answer::Unknown(WRONG);
        }
        let changed = inputs
            .iter()
            .zip(&bytes)
            .zip(&slice.old)
            .filter(|((_, new), old)| new != old);
        Answer::Sat(changed.map(|((&input, &new), _)| (input, new)).collect())
    }
}

/// All values of two bytes: the changes, or whether there is none.
fn pair(slice: &Slice, outer: usize, inner: usize) -> (Option<Vec<(usize, u8)>>, bool) {
    let program = &slice.program;
    if lanes::work(program, Some(outer), inner) > PAIR_WORK {
        return (None, false);
    }
    match lanes::enumerate(program, &slice.old, Some(outer), inner) {
        Enumerated::Found(first, second) => (Some(vec![(outer, first), (inner, second)]), false),
        Enumerated::Nothing => (None, true),
        Enumerated::TooWide => (None, false),
    }
}

/// Gives bytes their old values back, as far as everything stays true: first those that the goal
/// does not mention.
fn restore(slice: &Slice, bytes: &mut [u8]) {
    let mut changed: Vec<usize> = (0..bytes.len())
        .filter(|&at| bytes[at] != slice.old[at])
        .collect();
    // A single change is one that the goal needs.
    if changed.len() < 2 {
        return;
    }
    changed.sort_by_key(|at| slice.goal.contains(at));
    let mut values = Vec::with_capacity(slice.program.code.len());
    let affordable = RESTORE_WORK / slice.program.code.len().max(1);
    for at in changed.into_iter().take(affordable) {
        let new = mem::replace(&mut bytes[at], slice.old[at]);
        if !slice.program.holds(bytes, &mut values) {
            bytes[at] = new;
        }
    }
}

/// Where the goal's bytes have their new values and others had to change, too: whether one of those
/// is enough, as with a checksum.
fn compensate(slice: &Slice, bytes: &mut Vec<u8>) {
    let program = &slice.program;
    let others = (0..bytes.len()).filter(|at| !slice.goal.contains(at));
    let others: Vec<usize> = others.collect();
    let changed = others
        .iter()
        .filter(|&&at| bytes[at] != slice.old[at])
        .count();
    if changed < 2 || program.code.len() * others.len() > COMPENSATE_WORK {
        return;
    }
    let mut base = bytes.clone();
    for &at in &others {
        base[at] = slice.old[at];
    }
    for at in others {
        if let Enumerated::Found(_, value) = lanes::enumerate(program, &base, None, at) {
            base[at] = value;
            *bytes = base;
            return;
        }
    }
}

/// Of bytes that had to change, those that the SAT solver has chosen become what people would
/// write, as far as everything stays true.
fn embellish(slice: &Slice, bytes: &mut [u8]) {
    let program = &slice.program;
    let is_ugly = |at: usize| bytes[at] != slice.old[at] && !bytes[at].is_ascii_alphanumeric();
    let ugly: Vec<usize> = (0..bytes.len()).filter(|&at| is_ugly(at)).collect();
    let affordable = EMBELLISH_WORK / program.code.len().max(1);
    for at in ugly.into_iter().take(affordable) {
        // The old value will not do, as was just seen, or was not affordable to try.
        if let Enumerated::Found(_, value) = lanes::enumerate(program, bytes, None, at) {
            bytes[at] = value;
        }
    }
}

/// The parts of a condition that all have to be true.
pub(crate) fn conjuncts_of(pool: &mut Pool, condition: Expr) -> Vec<Expr> {
    let mut parts = Vec::new();
    let mut seen = FxHashSet::default();
    let mut stack = vec![condition];
    while let Some(e) = stack.pop() {
        if !seen.insert(e) {
            continue;
        }
        let node = pool.node(e);
        match node.op {
            Op::And => stack.extend(pool.operands(e)),
            Op::Not => {
                let inner = Expr(node.a);
                if pool.node(inner).op == Op::Or {
                    for operand in pool.operands(inner) {
                        stack.push(pool.not(operand));
                    }
                } else {
                    parts.push(e);
                }
            }
            _ => parts.push(e),
        }
    }
    parts
}

/// The longest path that was asked about, by the inputs that its parts depend on.
#[derive(Default)]
struct Path {
    conditions: Vec<Expr>,
    /// The parts, and at which condition they occur first.
    parts: Vec<(Expr, usize)>,
    known: FxHashMap<Expr, usize>,
    by_input: FxHashMap<u32, Vec<u32>>,
}

impl Path {
    /// Makes this the path, or a beginning of it.
    fn follow(&mut self, pool: &mut Pool, path: &[Expr]) {
        let common = self
            .conditions
            .iter()
            .zip(path)
            .take_while(|(a, b)| a == b)
            .count();
        if common == path.len() {
            return;
        }
        self.conditions.truncate(common);
        while let Some((part, _)) = self.parts.pop_if(|(_, at)| *at >= common) {
            self.known.remove(&part);
            for input in pool.inputs(part) {
                // The last entries are those of the last part.
                if let Some(parts) = self.by_input.get_mut(input) {
                    parts.pop();
                }
            }
        }
        for (at, &condition) in path.iter().enumerate().skip(common) {
            self.conditions.push(condition);
            for part in conjuncts_of(pool, condition) {
                if pool.as_constant(part).is_some() || self.known.contains_key(&part) {
                    continue;
                }
                self.known.insert(part, at);
                let number = self.parts.len() as u32;
                self.parts.push((part, at));
                for &input in pool.inputs(part) {
                    self.by_input.entry(input).or_default().push(number);
                }
            }
        }
    }

    /// Whether all of these are parts of the first `len` conditions.
    fn has(&self, parts: &[Expr], len: usize) -> bool {
        let is_there = |part: &Expr| self.known.get(part).is_some_and(|at| *at < len);
        parts.iter().all(is_there)
    }

    /// The parts of the first `len` conditions that share inputs with the goal, or with another of
    /// these parts.
    fn slice(&self, pool: &mut Pool, len: usize, goal: Expr) -> Vec<Expr> {
        let mut inputs = FxHashSet::from_iter(pool.inputs(goal).iter().copied());
        let mut queue: Vec<u32> = inputs.iter().copied().collect();
        let mut taken = FxHashSet::default();
        let mut parts = Vec::new();
        while let Some(input) = queue.pop() {
            for &number in self.by_input.get(&input).into_iter().flatten() {
                let (part, at) = self.parts[number as usize];
                if at >= len {
                    break;
                }
                if taken.insert(number) {
                    parts.push(part);
                    let new = pool
                        .inputs(part)
                        .iter()
                        .filter(|&&input| inputs.insert(input));
                    queue.extend(new);
                }
            }
        }
        parts
    }
}
