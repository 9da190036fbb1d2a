//! The litmus tests of threads (`tests/race/litmus`), over all schedules and all crash points.
//!
//! Each file is run by `litmus.c`, with real threads and real instructions, under
//! `Schedule::steer`, again and again, until every order of its threads' operations has been run
//! that leads to something new. What the runs print must be exactly the file's `outcomes sc`, and
//! what crashes leave, by the model, at each event of each run, exactly its `survives sc`: sets
//! that an exhaustive search over an operational model has given, which knows nothing of engine,
//! scheduler, or model.
//!
//! **All orders.** A run says where it had a choice (`keeping_turns`). Where a thread is about to
//! do the next operation of its program, each other thread that stands before one of its own might
//! have gone first: that is a run to be made. Two places in runs are the same if what has happened
//! until then has left the same [`State`]; whatever can follow is then the same, too, and is tried
//! at one of them only. Between operations nothing happens that others can notice, so there is
//! nothing to decide. Before the first of them, all threads come to stand before theirs.
//!
//! What is told of the steps of a run is compared with the file: each operation is a step of its
//! thread, once, in order.
//!
//! Store buffers: threads run one at a time, so a store is seen by all as soon as it is made.
//! `outcomes tso` has ends that only buffers give, for 11 of the files; `survives tso` has nothing
//! that `survives sc` has not, for any of them.
//!
//! | trials | what |
//! |---|---|
//! | `all::` | a file: both sets are met exactly |
//! | `canary::` | a search with fewer schedules, or fewer crash points, misses something |
//!

use std::collections::{BTreeSet, HashMap, HashSet};
use std::fs::{self, File};
use std::io;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use brownout_host::{Decision, LaunchConfig, Limits, Schedule, SchedulePointKind, Turn};
use brownout_model::{ByteRange, Config, CrashState, Event, History, Key, Line, Op, Write, keys};
use brownout_tests::litmus::{self, Buffers, Litmus, Operation, Value};
use brownout_tests::trial::broken;
use brownout_tests::{Scratch, trial};
use brownout_trace::EventSink;
use brownout_trace::event::{Event as Recorded, TargetAddr};
use brownout_trace::maps::AddressSpaces;
use libtest_mimic::Arguments;

/// The thread that makes the others and waits for them.
const MAIN: u16 = 1;
/// Programs lie below, libraries above.
const LIBRARIES: u64 = 0x7000_0000_0000;
const TIMEOUT: Duration = Duration::from_secs(60);

fn main() {
    let arguments = Arguments::from_args();
    let mut trials = vec![
        trial("canary::one_schedule", one_schedule_is_not_enough),
        trial(
            "canary::crashes_at_the_end",
            crashes_at_the_end_are_not_enough,
        ),
    ];
    let files = litmus::discover().unwrap_or_else(|error| {
        trials.push(broken("files", &error));
        Vec::new()
    });
    for file in files {
        let name = format!("all::{}", file.name);
        trials.push(trial(name, move || all(&file)));
    }
    libtest_mimic::run(&arguments, trials).exit();
}

fn all(file: &Litmus) -> Result<()> {
    let mut search = Search::new(file)?;
    search.run_all()?;
    ensure!(
        search.outcomes == *file.outcomes(Buffers::None),
        "runs end with {:#?}, and the file says {:#?}",
        search.outcomes,
        file.outcomes(Buffers::None)
    );
    ensure!(
        search.survives == *file.survives(Buffers::None),
        "crashes leave {:#?}, and the file says {:#?}",
        search.survives,
        file.survives(Buffers::None)
    );
    Ok(())
}

fn find(name: &str) -> Result<Litmus> {
    let files = litmus::discover()?;
    let found = files.into_iter().find(|file| file.name == name);
    found.with_context(|| format!("there is no {name}"))
}

fn one_schedule_is_not_enough() -> Result<()> {
    let file = find("mp")?;
    let mut search = Search::new(&file)?;
    search.run(&[])?;
    ensure!(search.outcomes.is_subset(file.outcomes(Buffers::None)));
    ensure!(search.outcomes != *file.outcomes(Buffers::None));
    Ok(())
}

fn crashes_at_the_end_are_not_enough() -> Result<()> {
    let file = find("p_flag")?;
    let mut search = Search::new(&file)?;
    search.only_at_the_end = true;
    search.run_all()?;
    ensure!(search.outcomes == *file.outcomes(Buffers::None));
    ensure!(search.survives.is_subset(file.survives(Buffers::None)));
    ensure!(search.survives != *file.survives(Buffers::None));
    Ok(())
}

// ---------------------------------------------------------------- what the operations of a file do

/// All that what follows can depend on: how far each thread is, what registers and variables hold,
/// and of each line what it may hold after a crash.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct State {
    positions: Vec<usize>,
    registers: Vec<u64>,
    memory: Vec<u64>,
    /// By line: what it has held since its last completed write-back, the oldest first.
    lines: Vec<Vec<Vec<u64>>>,
    /// By thread: which lines it is writing back, and which of their contents.
    flushing: Vec<Vec<Option<usize>>>,
}

struct Program<'a> {
    file: &'a Litmus,
    /// By thread. A thread that leaves a write-back behind has one operation more than in the file:
    /// it ends, and the C library has locked instructions for that, which complete what it has
    /// left.
    operations: Vec<Vec<Operation>>,
    /// By variable, the number of its line.
    line_of: Vec<usize>,
}

impl<'a> Program<'a> {
    fn new(file: &'a Litmus) -> Program<'a> {
        let mut lines: Vec<u64> = file.variables.iter().map(|(_, at)| at / 64).collect();
        lines.sort_unstable();
        lines.dedup();
        let line_of = |(_, at): &(String, u64)| lines.partition_point(|line| *line < at / 64);
        let leaves_behind = |operations: &[Operation]| {
            let fences = |operation: &&Operation| {
                matches!(
                    operation,
                    Operation::Rmw(..) | Operation::Fence | Operation::Locked
                )
            };
            let since = operations
                .iter()
                .rev()
                .take_while(|operation| !fences(operation));
            since
                .into_iter()
                .any(|operation| matches!(operation, Operation::WriteBack(_)))
        };
        let mut operations = file.programs.clone();
        for operations in &mut operations {
            if leaves_behind(operations) {
                operations.push(Operation::Locked);
            }
        }
        Program {
            operations,
            line_of: file.variables.iter().map(line_of).collect(),
            file,
        }
    }

    fn begin(&self) -> State {
        let lines = self.line_of.iter().max().map_or(0, |last| last + 1);
        let zeros = vec![0; self.file.variables.len()];
        State {
            positions: vec![0; self.file.programs.len()],
            registers: vec![0; self.file.registers.len()],
            lines: (0..lines)
                .map(|line| vec![self.held(&zeros, line)])
                .collect(),
            memory: zeros,
            flushing: vec![vec![None; lines]; self.file.programs.len()],
        }
    }

    fn held(&self, memory: &[u64], line: usize) -> Vec<u64> {
        let variables = memory.iter().zip(&self.line_of);
        let variables = variables.filter(|(_, its)| **its == line);
        variables.map(|(value, _)| *value).collect()
    }

    fn next(&self, state: &State, thread: usize) -> Option<Operation> {
        let operations = self.operations.get(thread)?;
        operations.get(state.positions[thread]).copied()
    }

    /// What the thread that stands there is about to do, if it is an operation. The C library's
    /// locked instructions are not, unless they are the end of a thread for which that counts.
    fn stands_before(&self, state: &State, turn: &Turn) -> Option<SchedulePointKind> {
        use SchedulePointKind::{Fence, Flush, Load, Locked, Rmw, Store};
        let thread = usize::from(turn.thread.checked_sub(MAIN + 1)?);
        let operations = self.file.programs.get(thread)?;
        let kind = turn.point.kind;
        let is_operation = match turn.point.pc >= LIBRARIES {
            true => kind == Locked && state.positions[thread] == operations.len(),
            false => matches!(kind, Load | Store | Rmw | Flush | Fence | Locked),
        };
        (is_operation && self.next(state, thread).is_some()).then_some(kind)
    }

    /// A thread does its next operation.
    fn does(&self, state: &mut State, thread: usize) {
        let Some(operation) = self.next(state, thread) else {
            return;
        };
        state.positions[thread] += 1;
        match operation {
            Operation::Store(variable, value) => self.store(state, variable, value),
            Operation::Load(variable, into) => state.registers[into] = state.memory[variable],
            Operation::Rmw(variable, value, into) => {
                Self::fence(state, thread);
                let before = state.memory[variable];
                self.store(state, variable, value);
                if let Some(into) = into {
                    state.registers[into] = before;
                }
            }
            Operation::WriteBack(variable) => {
                let line = self.line_of[variable];
                state.flushing[thread][line] = Some(state.lines[line].len() - 1);
            }
            Operation::Clflush(variable) => {
                let line = self.line_of[variable];
                let last = state.lines[line].len() - 1;
                Self::complete(state, line, last);
            }
            Operation::Fence | Operation::Locked => Self::fence(state, thread),
        }
    }

    fn store(&self, state: &mut State, variable: usize, value: Value) {
        state.memory[variable] = match value {
            Value::Number(number) => number,
            Value::Register(register) => state.registers[register],
        };
        let line = self.line_of[variable];
        let held = self.held(&state.memory, line);
        state.lines[line].push(held);
    }

    fn fence(state: &mut State, thread: usize) {
        for line in 0..state.lines.len() {
            if let Some(written) = state.flushing[thread][line].take() {
                Self::complete(state, line, written);
            }
        }
    }

    /// A line has been written back as it was then: what it held before is gone.
    fn complete(state: &mut State, line: usize, written: usize) {
        state.lines[line].drain(..written);
        for flushing in &mut state.flushing {
            if let Some(at) = &mut flushing[line] {
                *at = at.saturating_sub(written);
            }
        }
    }
}

// ---------------------------------------------------------------- runs

struct Search<'a> {
    file: &'a Litmus,
    program: Program<'a>,
    scratch: Scratch,
    outcomes: BTreeSet<String>,
    survives: BTreeSet<String>,
    /// States, and which threads have gone on from them, or will.
    seen: HashMap<State, HashSet<usize>>,
    /// Runs to be made: what is decided at their beginning.
    waiting: Vec<Vec<Decision>>,
    runs: usize,
    only_at_the_end: bool,
}

impl<'a> Search<'a> {
    fn new(file: &'a Litmus) -> Result<Search<'a>> {
        Ok(Search {
            file,
            program: Program::new(file),
            scratch: Scratch::new()?,
            outcomes: BTreeSet::new(),
            survives: BTreeSet::new(),
            seen: HashMap::new(),
            waiting: vec![Vec::new()],
            runs: 0,
            only_at_the_end: false,
        })
    }

    fn run_all(&mut self) -> Result<()> {
        while let Some(decisions) = self.waiting.pop() {
            let turns = self.run(&decisions)?;
            let made = |turn: &Turn| (turn.step, turn.chosen);
            let steered = |decision: &Decision| {
                let wanted = (decision.step, decision.thread);
                turns.iter().any(|turn| made(turn) == wanted)
            };
            ensure!(decisions.iter().all(steered), "{decisions:?}: {turns:#?}");
            self.branch(&decisions, &turns)?;
        }
        Ok(())
    }

    /// Makes a run, and keeps what it prints and what crashes in it leave.
    fn run(&mut self, decisions: &[Decision]) -> Result<Vec<Turn>> {
        self.runs += 1;
        let pool = self.scratch.join("pool");
        let _ = fs::remove_file(&pool);
        let out = self.scratch.join("out");
        let mut config = LaunchConfig::new(litmus::runner(), [&pool, &self.file.path]);
        config.pm_globs = vec![pool.to_str().context("a plain path")?.to_owned()];
        config.loads = true;
        config.stdout = Some(File::create(&out)?);
        config.stdin = Some(File::open("/dev/null")?);
        config.schedule = Some(Schedule::steer(decisions.to_vec()).keeping_turns());
        config.dies_with_tool = true;
        config.limits = Limits {
            wall: Some(TIMEOUT),
            ..Limits::default()
        };
        let mut crashes = Crashes::new(self);
        let outcome = brownout_host::record(&config, &mut crashes)
            .context("the litmus program; `cargo xtask build` makes it")?;
        crashes.look();
        let survives = crashes.survives;
        self.survives.extend(survives);
        let printed = fs::read_to_string(&out)?;
        self.outcomes.insert(printed.trim_end().to_owned());
        let scheduled = outcome.scheduled.context("the run was scheduled")?;
        Ok(scheduled.turns)
    }

    /// Where others could have gone first is seen by what the run tells.
    fn branch(&mut self, decisions: &[Decision], turns: &[Turn]) -> Result<()> {
        let mut state = self.program.begin();
        // By thread: where it stands.
        let mut stands: HashMap<u16, Turn> = HashMap::new();
        let with = |step: u32, thread: u16| {
            let before = turns.iter().filter(|turn| turn.step < step);
            let decided = before.filter(|turn| turn.chosen != turn.thread);
            let mut list: Vec<Decision> = decided
                .map(|turn| decision(turn.step, turn.chosen))
                .collect();
            list.push(decision(step, thread));
            list
        };
        let mut waiting = Vec::new();
        for turn in turns {
            if turn.thread != 0 {
                stands.insert(turn.thread, *turn);
            }
            let does = |thread: u16| {
                let turn = stands.get(&thread)?;
                self.program.stands_before(&state, turn)
            };
            let Some(kind) = does(turn.chosen) else {
                continue;
            };
            let others = (MAIN + 1..=MAIN + self.file.threads as u16)
                .filter(|other| *other != turn.chosen && turn.could(*other));
            // Somebody has not come to its first operation.
            let is_new = |thread: &u16| {
                state.positions[usize::from(*thread - MAIN - 1)] == 0 && does(*thread).is_none()
            };
            if let Some(new) = others.clone().find(is_new) {
                self.waiting.push(with(turn.step, new));
                return Ok(());
            }
            let chosen = usize::from(turn.chosen - MAIN - 1);
            let gone = self.seen.entry(state.clone()).or_default();
            gone.insert(chosen);
            for other in others.filter(|other| does(*other).is_some()) {
                if gone.insert(usize::from(other - MAIN - 1)) {
                    waiting.push(with(turn.step, other));
                }
            }
            let expected = self.program.next(&state, chosen);
            ensure!(
                expected.is_some_and(|expected| is_kind(expected, kind)),
                "{expected:?} of thread {} is told as {kind:?}\n{decisions:?}\n{turns:#?}",
                chosen + 1
            );
            self.program.does(&mut state, chosen);
        }
        for (thread, program) in self.program.operations.iter().enumerate() {
            ensure!(
                state.positions[thread] == program.len(),
                "thread {} has come to {} only\n{turns:#?}",
                thread + 1,
                state.positions[thread]
            );
        }
        self.waiting.extend(waiting);
        Ok(())
    }
}

fn decision(step: u32, thread: u16) -> Decision {
    Decision {
        step,
        thread,
        check: 0,
    }
}

fn is_kind(operation: Operation, kind: SchedulePointKind) -> bool {
    use SchedulePointKind as Kind;
    kind == match operation {
        Operation::Store(..) => Kind::Store,
        Operation::Load(..) => Kind::Load,
        Operation::Rmw(..) => Kind::Rmw,
        Operation::WriteBack(_) | Operation::Clflush(_) => Kind::Flush,
        Operation::Fence => Kind::Fence,
        Operation::Locked => Kind::Locked,
    }
}

/// Takes the events of a run, and looks at each of them what a crash there leaves.
struct Crashes {
    variables: Vec<(String, u64)>,
    spaces: AddressSpaces,
    history: History,
    survives: BTreeSet<String>,
    only_at_the_end: bool,
}

impl Crashes {
    fn new(search: &Search<'_>) -> Crashes {
        let mut history = History::new(Config::default());
        for (_, at) in &search.file.variables {
            history.set_initial(Key(at & !63), &[0; 64]);
        }
        Crashes {
            variables: search.file.variables.clone(),
            spaces: AddressSpaces::new(),
            history,
            survives: BTreeSet::new(),
            only_at_the_end: search.only_at_the_end,
        }
    }

    /// The power fails here.
    fn look(&mut self) {
        let mut found = Vec::new();
        leaves(
            &self.variables,
            self.history.crash(),
            String::new(),
            &mut found,
        );
        self.survives.extend(found);
    }

    /// The offset in the pool, by which the history knows its bytes. `at` is still an address.
    fn place(&mut self, event: &Recorded<'_>, at: Key, len: u64) -> io::Result<Key> {
        let addr = TargetAddr(at.0);
        let mut places = Vec::new();
        keys::translate(&mut self.spaces, event.thread, addr, len, |keys, _| {
            places.push(keys::place(keys.start()).1);
        })
        .map_err(|fault| fault.into_error())?;
        match places[..] {
            [place] => Ok(Key(place)),
            _ => Err(io::Error::other("an access that is not to the pool")),
        }
    }
}

/// All that the variables from the first of these on may hold, given what was found for those
/// before.
fn leaves(
    variables: &[(String, u64)],
    crash: CrashState<'_>,
    text: String,
    found: &mut Vec<String>,
) {
    let Some(((name, at), rest)) = variables.split_first() else {
        found.push(text.trim_end().to_owned());
        return;
    };
    for option in crash.may_read(ByteRange::new(Key(*at), 8)) {
        let mut crash = crash.clone();
        crash.choose(&option);
        let mut bytes = [0; 8];
        bytes.copy_from_slice(&option.bytes);
        let text = format!("{text}{name}={} ", u64::from_le_bytes(bytes));
        leaves(rest, crash, text, found);
    }
}

impl EventSink for Crashes {
    fn event(&mut self, recorded: &Recorded<'_>) -> io::Result<()> {
        self.spaces
            .observe(recorded)
            .map_err(|fault| fault.into_error())?;
        let Some(event) = brownout_model::from_recorded(recorded) else {
            return Ok(());
        };
        let at_place = |write: &Write<'_>, place: Key| {
            let bytes = write.bytes().unwrap_or_default().to_vec();
            Write::new(place, bytes)
        };
        let op = match &event.op {
            Op::Store(write) | Op::Rmw(write) => {
                let place = self.place(recorded, write.range().start(), write.range().len())?;
                let write = at_place(write, place);
                match event.op {
                    Op::Rmw(_) => Op::Rmw(write),
                    _ => Op::Store(write),
                }
            }
            Op::Flush { kind, line } => {
                let place = self.place(recorded, line.range().start(), 1)?;
                Op::Flush {
                    kind: *kind,
                    line: Line::of(place),
                }
            }
            Op::Sfence => Op::Sfence,
            Op::Mfence => Op::Mfence,
            Op::Locked => Op::Locked,
            Op::Load(_) => return Ok(()),
            other => return Err(io::Error::other(format!("no litmus test has {other:?}"))),
        };
        if !self.only_at_the_end {
            self.look();
        }
        let event = Event::new(event.thread, op);
        let applied = self.history.apply(&event);
        applied.map_err(|missing| io::Error::other(missing.to_string()))
    }
}
