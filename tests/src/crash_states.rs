//! Proof that the seeded programs are what they claim: runs their recovery on crash states, one
//! process a state.
//!
//! ```text
//!  record `run POOL` ─▶ events ─▶ after each: every memory that a crash may leave ─▶ `check POOL` on it, natively
//! ```
//!
//! The model says which memories are legal; the program under test says what it makes of them. What
//! `check` prints must be what it prints after k whole operations, for some k from those
//! acknowledged to those begun. Which these are at an event follows from recordings of `run POOL
//! k`: the events that the runs with k and with k + 1 operations share are those of the first k.
//!
//! This is brute force on purpose, with nothing in common with an exploration that is clever.
//!
//! Guarantee: exhaustive for crash points with at most [`STATES_MAX`] states. Beyond (lines that
//! are never written back have many), all states with one line off the newest or the oldest, and a
//! fixed number at random, with a fixed seed. A recovery that writes can be cut short too: that is
//! tried for some of the images, evenly chosen.
//!
//! Does not check: other interleavings of threads than the recorded one.

use brownout_random::Random;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use brownout_model::{
    Atomicity, ByteRange, Config, CrashState, Domain, Event, History, Key, ReadOption,
    from_recorded,
};
use brownout_trace::{EventKind, Reader, TargetAddr};

use crate::{Invocation, Scratch, tool};

/// A crash point with more states is sampled.
pub const STATES_MAX: u128 = 512;

/// How many states are then taken at random.
const RANDOM_STATES: usize = 64;

/// A recovery that takes longer does not end. They all take about a millisecond.
const PATIENCE: Duration = Duration::from_secs(3);

/// No seeded program has as many operations.
const OPERATIONS_MAX: usize = 20;

/// What a program made of a pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Recovered {
    /// Exit code 0, and this output.
    Well(String),
    /// Another exit code, and what it said on stderr.
    Exit(i32, String),
    /// Ended by a signal.
    Signal(i32),
    /// Did not end.
    Hang,
}

/// A crash state in which the program goes wrong.
#[derive(Debug)]
pub struct Failure {
    /// What happened.
    pub recovered: Recovered,
    /// Where, in words.
    pub place: String,
}

/// What was tried, and what went wrong first.
#[derive(Debug, Default)]
pub struct Outcome {
    /// Number of different images.
    pub images: usize,
    /// Number of recoveries that were themselves cut short.
    pub nested: usize,
    /// The first image that goes wrong.
    pub failure: Option<Failure>,
}

/// One event that matters to persistency, at an offset in the pool.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Step {
    pc: TargetAddr,
    event: Event<'static>,
}

/// The program under test.
struct Subject {
    binary: PathBuf,
    config: Config,
    scratch: Scratch,
}

type Image = Vec<u8>;

/// Numbers of operations: at least those acknowledged, at most those begun.
type Bounds = (usize, usize);

/// Runs the recovery on the crash states of a whole run, until one goes wrong. If none does, cuts
/// the recovery of at most `nested_max` of them short as well.
pub fn explore(binary: &Path, domain: Option<&str>, nested_max: usize) -> Result<Outcome> {
    let mut config = Config::default();
    if let Some(name) = domain {
        config.domain = Domain::from_name(name).with_context(|| format!("no domain {name}"))?;
    }
    let subject = Subject {
        binary: binary.to_path_buf(),
        config,
        scratch: Scratch::new()?,
    };
    let plan = subject.plan()?;
    let size = plan.size;
    let mut images: BTreeMap<(Image, Bounds), usize> = BTreeMap::new();
    for (at, image) in subject.images(&vec![0; size], &plan.steps)? {
        images.entry((image, plan.bounds_at(at))).or_insert(at);
    }
    let mut outcome = Outcome {
        images: images.len(),
        ..Outcome::default()
    };
    let mut writers = Vec::new();
    for ((image, bounds), at) in images {
        let (recovered, after) = subject.recover(&image)?;
        if !plan.explains(&recovered, bounds) {
            outcome.failure = Some(Failure {
                recovered,
                place: format!("after event {at}, {bounds:?} operations"),
            });
            return Ok(outcome);
        }
        if after != image {
            writers.push((image, bounds, at));
        }
    }
    let skip = writers.len().div_ceil(nested_max.max(1)).max(1);
    for (image, bounds, at) in writers.into_iter().step_by(skip) {
        outcome.nested += 1;
        let (steps, _) = subject.record(Some(&image), &["check"])?;
        let nested: BTreeSet<Image> = subject
            .images(&image, &steps)?
            .into_iter()
            .map(|(_, image)| image)
            .collect();
        outcome.images += nested.len();
        for image in nested {
            let (recovered, _) = subject.recover(&image)?;
            if !plan.explains(&recovered, bounds) {
                outcome.failure = Some(Failure {
                    recovered,
                    place: format!("after event {at}, and again in its recovery"),
                });
                return Ok(outcome);
            }
        }
    }
    Ok(outcome)
}

/// A whole run, and what is to be expected after each part of it.
struct Plan {
    steps: Vec<Step>,
    size: usize,
    /// Where operation k ends, by k; the first is the end of creation.
    ends: Vec<usize>,
    /// Lines that `run POOL k` printed.
    acknowledged: Vec<usize>,
    /// What `check` prints after k operations.
    expected: Vec<Recovered>,
}

impl Plan {
    /// Operations acknowledged and begun when `at` events have happened.
    fn bounds_at(&self, at: usize) -> Bounds {
        match self.ends.iter().rposition(|end| *end <= at) {
            Some(done) => (self.acknowledged[done], (done + 1).min(self.ends.len() - 1)),
            None => (0, 0),
        }
    }

    /// A program that goes wrong whenever its pool is opened again has nothing to compare with;
    /// then it is enough to end well.
    fn explains(&self, recovered: &Recovered, (from, to): Bounds) -> bool {
        let is_well = |recovered: &Recovered| matches!(recovered, Recovered::Well(_));
        let expected = &self.expected[from..=to];
        is_well(recovered) && (expected.contains(recovered) || !expected.iter().all(is_well))
    }
}

impl Subject {
    fn plan(&self) -> Result<Plan> {
        let whole = self.record(None, &["run"])?;
        let mut runs = Vec::new();
        let mut acknowledged = Vec::new();
        let mut expected = Vec::new();
        for k in 0..OPERATIONS_MAX {
            let run = self.record(None, &["run", &k.to_string()])?;
            acknowledged.push(run.1.iter().filter(|byte| **byte == b'\n').count());
            expected.push(self.recover(&fs::read(self.pool())?)?.0);
            let is_whole = run == whole;
            runs.push(run.0);
            if is_whole {
                break;
            }
        }
        let steps = whole.0;
        ensure!(!steps.is_empty(), "the program did nothing to its pool");
        ensure!(
            runs.last() == Some(&steps),
            "no number of operations gives the whole run: runs of the program differ"
        );
        let mut ends: Vec<usize> = runs
            .windows(2)
            .map(|pair| {
                let shared = pair[0].iter().zip(&pair[1]);
                shared.take_while(|(a, b)| a == b).count()
            })
            .collect();
        ends.push(steps.len());
        Ok(Plan {
            size: fs::metadata(self.pool())?.len() as usize,
            steps,
            ends,
            acknowledged,
            expected,
        })
    }

    fn pool(&self) -> PathBuf {
        self.scratch.join("pool")
    }

    /// The events of `PROG words[0] POOL words[1..]`, and what it printed.
    fn record(&self, image: Option<&Image>, words: &[&str]) -> Result<(Vec<Step>, Vec<u8>)> {
        let pool = self.pool();
        match image {
            Some(image) => fs::write(&pool, image)?,
            None if pool.exists() => fs::remove_file(&pool)?,
            None => {}
        }
        let trace = self.scratch.join("trace.bwt");
        if trace.exists() {
            fs::remove_file(&trace)?;
        }
        let mut argv = vec![self.binary.clone().into_os_string()];
        argv.extend([words[0].into(), pool.clone().into()]);
        argv.extend(words[1..].iter().map(Into::into));
        let native = Invocation::new(argv, self.scratch.path()).timeout(Duration::from_secs(60));
        let recorded = tool::record(&native, &trace, &["--pm", &pool.to_string_lossy()])
            .run()?
            .expect_success("record")?;
        Ok((steps(&trace)?, recorded.stdout))
    }

    /// All images that crashes may leave, with the number of events before the crash.
    fn images(&self, initial: &Image, steps: &[Step]) -> Result<Vec<(usize, Image)>> {
        let mut history = History::new(self.config);
        history.set_initial(Key(0), initial);
        let mut images = Vec::new();
        let mut seen = BTreeSet::new();
        let mut take = |at: usize, state: &CrashState<'_>| {
            // An operation may end here, so equal images are told apart by the event.
            for image in memories(state, initial) {
                if seen.insert((at, image.clone())) {
                    images.push((at, image));
                }
            }
        };
        take(0, &history.crash());
        for (at, step) in (1..).zip(steps) {
            for piece in step.event.pieces(Atomicity::default()) {
                history.apply(&piece)?;
                if self.config.domain == Domain::Eadr {
                    take(at, &history.crash());
                }
            }
            take(at, &history.crash());
        }
        Ok(images)
    }

    /// Runs `check` natively on a copy of the image. Returns what it left, too.
    fn recover(&self, image: &Image) -> Result<(Recovered, Image)> {
        let pool = self.scratch.join("crashed");
        fs::write(&pool, image)?;
        let mut child = Command::new(&self.binary)
            .arg("check")
            .arg(&pool)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .with_context(|| format!("cannot run {}", self.binary.display()))?;
        let start = Instant::now();
        let mut pause = Duration::from_micros(100);
        // The output is a few lines, so the pipe takes all of it.
        while child.try_wait()?.is_none() {
            if start.elapsed() > PATIENCE {
                child.kill()?;
                child.wait()?;
                return Ok((Recovered::Hang, fs::read(&pool)?));
            }
            std::thread::sleep(pause);
            pause = (pause * 2).min(Duration::from_millis(5));
        }
        let output = child.wait_with_output()?;
        let recovered = match (output.status.code(), output.status.signal()) {
            (Some(0), _) => Recovered::Well(String::from_utf8(output.stdout)?),
            (Some(code), _) => {
                Recovered::Exit(code, String::from_utf8_lossy(&output.stderr).into_owned())
            }
            (None, signal) => Recovered::Signal(signal.unwrap_or(0)),
        };
        Ok((recovered, fs::read(&pool)?))
    }
}

/// The events of a trace that the model knows, as if the pool were mapped at 0.
fn steps(trace: &Path) -> Result<Vec<Step>> {
    let mut reader = Reader::open(trace)?;
    let mut base = None;
    let mut steps = Vec::new();
    while let Some(recorded) = reader.next()? {
        if let EventKind::Map { addr, .. } = recorded.kind {
            ensure!(base.is_none(), "the pool is mapped more than once");
            base = Some(addr.0);
        }
        if let Some(event) = from_recorded(&recorded) {
            let base = base.context("an access before the pool is mapped")?;
            steps.push(Step {
                pc: recorded.pc,
                event: relocated(&event, base)?,
            });
        }
    }
    Ok(steps)
}

fn relocated(event: &Event<'_>, base: u64) -> Result<Event<'static>> {
    use brownout_model::{Line, Op, Write};
    let write = |write: &Write<'_>| -> Result<Write<'static>> {
        let bytes = write.bytes().context("a store without values")?.to_vec();
        Ok(Write::new(Key(write.range().start().0 - base), bytes))
    };
    let op = match &event.op {
        Op::Store(w) => Op::Store(write(w)?),
        Op::NtStore(w) => Op::NtStore(write(w)?),
        Op::Rmw(w) => Op::Rmw(write(w)?),
        Op::Flush { kind, line } => Op::Flush {
            kind: *kind,
            line: Line::of(Key(line.range().start().0 - base)),
        },
        Op::Sfence => Op::Sfence,
        Op::Mfence => Op::Mfence,
        Op::Locked => Op::Locked,
        other => bail!("the seeded programs do not do this: {other:?}"),
    };
    Ok(Event::new(event.thread, op))
}

/// The memories of a crash, or a choice of them if there are too many.
fn memories(state: &CrashState<'_>, initial: &Image) -> Vec<Image> {
    // The certain lines are the same in all; any line that was ever stored to may differ from the
    // initial content.
    let mut certain = initial.clone();
    let mut uncertain: Vec<(usize, Vec<ReadOption>)> = Vec::new();
    for at in (0..initial.len()).step_by(64) {
        let length = 64.min(initial.len() - at);
        let options = state.may_read(ByteRange::new(Key(at as u64), length as u64));
        match &options[..] {
            [only] => certain[at..at + length].copy_from_slice(&only.bytes),
            _ => uncertain.push((at, options)),
        }
    }
    let counts: Vec<usize> = uncertain.iter().map(|(_, options)| options.len()).collect();
    choices(&counts)
        .into_iter()
        .map(|choice| {
            let mut image = certain.clone();
            for ((at, options), pick) in uncertain.iter().zip(choice) {
                let bytes = &options[pick].bytes;
                image[*at..*at + bytes.len()].copy_from_slice(bytes);
            }
            image
        })
        .collect()
}

/// Which option to take of each line: all combinations, or those that the module's header names.
fn choices(counts: &[usize]) -> Vec<Vec<usize>> {
    let product = counts
        .iter()
        .try_fold(1u128, |product, count| product.checked_mul(*count as u128));
    if product.is_some_and(|product| product <= STATES_MAX) {
        return counts.iter().fold(vec![Vec::new()], |choices, count| {
            choices
                .iter()
                .flat_map(|choice| {
                    (0..*count).map(|pick| {
                        let mut choice = choice.clone();
                        choice.push(pick);
                        choice
                    })
                })
                .collect()
        });
    }
    let oldest = vec![0; counts.len()];
    let newest: Vec<usize> = counts.iter().map(|count| count - 1).collect();
    let mut picked = BTreeSet::from([oldest.clone(), newest.clone()]);
    for (line, count) in counts.iter().enumerate() {
        for pick in 0..*count {
            for all in [&oldest, &newest] {
                let mut choice = all.clone();
                choice[line] = pick;
                picked.insert(choice);
            }
        }
    }
    let mut random = Random::new(0);
    for _ in 0..RANDOM_STATES {
        picked.insert(counts.iter().map(|count| random.index(*count)).collect());
    }
    picked.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_states_are_all_taken_and_many_are_sampled() {
        assert_eq!(choices(&[]), [Vec::<usize>::new()]);
        assert_eq!(choices(&[2, 3]).len(), 6);
        let many = choices(&[9; 20]);
        assert!(many.len() > 2 * 20 * 7 && many.len() < 2 * 20 * 9 + 66);
        assert!(many.contains(&vec![0; 20]) && many.contains(&vec![8; 20]));
    }
}
