//! An exploration from beginning to end.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use brownout_findings::Finding;
use brownout_host::{LaunchConfig, LaunchError, Limits};
use brownout_model::{Config, Domain};
use brownout_trace::event::FileId;
use serde_json::{Map, Value, json};

use crate::execution::{self, Acknowledged, Command, Setting};
use crate::journal::Journal;
use crate::finding::{self, CrashSpec, Found, Resolvers};
use crate::minimise;
use crate::native::{self, Originals};
use crate::oracle::{Oracle, References};
use crate::outcome::{Outcome, Status};
use crate::place::LineKey;
use crate::pool::{Done, Pool, Work};
use crate::recording::{Reason, RecordOptions, Recorder, Recording};
use crate::search::{Failure, Halt, Layer, Progress, Sampling, Search};
use crate::view::{Base, FileState, Image, Narrowed, Timeline, View};
use crate::world::World;

/// Failures that are looked into; what is beyond is counted.
const FAILURES_MAX: usize = 60;
/// Of one guessed cause.
const FAILURES_PER_CAUSE: usize = 3;
/// With more operations, references come from the recorded run instead of runs of their own.
const REFERENCE_RUNS_MAX: usize = 100;
/// If nobody asks for a depth, recoveries are cut short in turn only if there are so few.
const NESTED_AUTO: u64 = 64;
/// Recoveries that are cut short, at each depth.
const NESTED_MAX: usize = 2_000;

/// Name of the journal in the folder.
const JOURNAL: &str = "journal";

/// A native recovery that takes longer hangs: under the engine it already did.
const NATIVE_PATIENCE: Duration = Duration::from_secs(2);

/// What to explore, and how.
pub struct Options {
    /// Shell command that prepares what is not explored.
    pub setup: Option<String>,
    /// The program.
    pub program: Command,
    /// What runs after a crash; the program itself if not given.
    pub recover: Command,
    /// Files that are persistent memory.
    pub pm_globs: Vec<String>,
    /// The model.
    pub model: Config,
    /// Operations are atomic.
    pub operations: bool,
    /// A command that judges.
    pub checker: Option<String>,
    /// How many crashes in a row; `None`: two, if that is cheap.
    pub depth: Option<u32>,
    /// Recoveries at a time.
    pub jobs: usize,
    /// No longer than this.
    pub time: Option<Duration>,
    /// No sampling.
    pub exhaustive: bool,
    /// How many looked-up outcomes to verify by running them.
    pub self_test: u64,
    /// Where crash images go.
    pub folder: PathBuf,
    /// Write all outcomes here.
    pub outcomes: Option<PathBuf>,
    /// Ends the exploration when true.
    pub stop: Arc<AtomicBool>,
    /// A recovery that takes longer does not end.
    pub patience: Option<Duration>,
}

/// What came of it.
pub struct Exploration {
    /// What is wrong, with the crash that shows each.
    pub findings: Vec<(Finding, CrashSpec)>,
    /// Frames of the stores that each finding blames.
    pub statistics: Map<String, Value>,
    /// Every failure point was explored to the end.
    pub complete: bool,
    /// Ended by the user or by `time`.
    pub interrupted: bool,
    /// What a reader must know.
    pub notes: Vec<String>,
    /// The run stored to persistent memory.
    pub touched: bool,
    /// Files that may be meant.
    pub hints: Vec<PathBuf>,
    /// How the recorded run ended.
    pub ended: Status,
}

/// Why there is no result.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The user must change something.
    #[error("{0}")]
    Usage(String),
    /// A program could not be run.
    #[error(transparent)]
    Launch(#[from] LaunchError),
    /// A file could not be read or written.
    #[error("{0}: {1}")]
    Io(&'static str, io::Error),
}

fn io_error(what: &'static str) -> impl Fn(io::Error) -> Error {
    move |error| Error::Io(what, error)
}

/// A folder in memory if there is one: images are written thousands of times and never read again.
fn scratch() -> io::Result<tempfile::TempDir> {
    let builder = || {
        let mut builder = tempfile::Builder::new();
        builder.prefix("brownout-explore-");
        builder
    };
    let memory = Path::new("/dev/shm");
    if memory.is_dir()
        && let Ok(folder) = builder().tempdir_in(memory)
    {
        return Ok(folder);
    }
    builder().tempdir()
}

/// The recorded run.
struct Recorded {
    recording: Recording,
    status: Status,
    hints: Vec<PathBuf>,
    notes: Vec<String>,
    stdout: Vec<u8>,
}

fn set_up(options: &Options) -> Result<(), Error> {
    let Some(setup) = &options.setup else {
        return Ok(());
    };
    // Under the engine, though nothing is recorded: what it makes must be the same next time, identifiers and seeds included.
    let mut config = LaunchConfig::new("sh", ["-c", setup]);
    config.deterministic = true;
    config.stop = Some(options.stop.clone());
    config.stdin = Some(File::open("/dev/null").map_err(io_error("cannot open /dev/null"))?);
    let out = File::create("/dev/null").map_err(io_error("cannot open /dev/null"))?;
    config.stdout = Some(out);
    let outcome = brownout_host::run(&config)?;
    match outcome.status {
        brownout_host::ExitStatus::Code(0) => Ok(()),
        brownout_host::ExitStatus::Code(code) => Err(Error::Usage(format!(
            "the set-up failed with exit code {code}: {setup}"
        ))),
        brownout_host::ExitStatus::Signal(signal) => Err(Error::Usage(format!(
            "the set-up was killed by {}: {setup}",
            crate::oracle::signal_name(signal)
        ))),
    }
}

fn record(options: &Options, scratch: &Path) -> Result<Recorded, Error> {
    let record_options = RecordOptions {
        model: options.model,
        judge_acknowledgements: options.operations || options.checker.is_some(),
    };
    let mut recorder = Recorder::new(record_options, scratch);
    let mut config = LaunchConfig::new(&options.program.program, &options.program.args);
    let out = scratch.join("run-stdout");
    let err = scratch.join("run-stderr");
    config.pm_globs = options.pm_globs.clone();
    config.deterministic = true;
    config.boundaries = true;
    config.line_input = true;
    config.stop = Some(options.stop.clone());
    let stdin = options.program.stdin.as_deref();
    config.stdin = Some(
        File::open(stdin.unwrap_or(Path::new("/dev/null")))
            .map_err(io_error("cannot open the standard input"))?,
    );
    config.stdout = Some(File::create(&out).map_err(io_error("cannot keep the output"))?);
    config.stderr = Some(File::create(&err).map_err(io_error("cannot keep the output"))?);
    let outcome = brownout_host::record(&config, &mut recorder)?;
    let status = match outcome.status {
        brownout_host::ExitStatus::Code(code) => Status::Exit(code),
        brownout_host::ExitStatus::Signal(signal) => Status::Signal(signal),
    };
    let mut notes = outcome.notes;
    if status != Status::Exit(0) {
        let said = fs::read_to_string(&err).unwrap_or_default();
        let said = said.lines().last().unwrap_or_default();
        notes.push(format!("the recorded run ended with {status}: {said}"));
    }
    Ok(Recorded {
        recording: recorder.finish(),
        status,
        hints: outcome.hints,
        notes,
        stdout: fs::read(&out).unwrap_or_default(),
    })
}

/// Files as they were before the run, as an image.
fn initial_image(recording: &Recording) -> Result<Image, Error> {
    let mut files = BTreeMap::new();
    let mut states = BTreeMap::new();
    for (id, file) in &recording.files {
        let base = File::open(&file.base).map_err(io_error("cannot read a copy"))?;
        files.insert(*id, base);
        let state = match file.created {
            true => FileState {
                exists: false,
                size: 0,
            },
            false => file.before,
        };
        states.insert(*id, state);
    }
    let mut timeline = Timeline::new(Base::Files(files), 64);
    timeline.close(Vec::new());
    Ok(Image {
        view: View {
            timeline: Arc::new(timeline),
            point: 0,
        },
        survivors: BTreeMap::new(),
        files: Arc::new(states),
    })
}

/// Explores.
pub fn explore(options: &Options, progress: &mut dyn Progress) -> Result<Exploration, Error> {
    let begun = Instant::now();
    if options.model.domain == Domain::Hops {
        return Err(Error::Usage(
            "crash states of the domain hops cannot be explored: its lines depend on each other".into(),
        ));
    }
    let scratch = scratch().map_err(io_error("cannot make a folder for crash images"))?;
    set_up(options)?;
    let recorded = record(options, scratch.path())?;
    let originals = Originals::new(&recorded.recording.files);
    let restored = Restore(&originals);
    let result = explore_recorded(options, progress, scratch.path(), recorded, &originals, begun);
    drop(restored);
    result
}

/// The user's files are put back, however the exploration ends.
struct Restore<'o>(&'o Originals);

impl Drop for Restore<'_> {
    fn drop(&mut self) {
        if let Err(error) = self.0.restore() {
            eprintln!("brownout: cannot put a file back as it was: {error}");
        }
    }
}

fn explore_recorded(
    options: &Options,
    progress: &mut dyn Progress,
    scratch: &Path,
    recorded: Recorded,
    originals: &Originals,
    begun: Instant,
) -> Result<Exploration, Error> {
    let Recorded {
        recording,
        status,
        hints,
        mut notes,
        stdout,
    } = recorded;
    let mut exploration = Exploration {
        findings: Vec::new(),
        statistics: Map::new(),
        complete: false,
        interrupted: false,
        notes: Vec::new(),
        touched: recording.touched,
        hints,
        ended: status,
    };
    if !recording.touched {
        exploration.notes = notes;
        return Ok(exploration);
    }
    originals
        .restore()
        .map_err(io_error("cannot put a file back as it was"))?;
    let initial = initial_image(&recording)?;
    let names: BTreeMap<FileId, PathBuf> = recording
        .files
        .iter()
        .map(|(id, file)| (*id, file.path.clone()))
        .collect();
    let mut world = World::new(scratch, &recording.files)
        .map_err(io_error("cannot make a folder for crash images"))?;
    // What recovery does when nothing went wrong says how long it may take.
    let mut setting = Setting {
        pm_globs: options.pm_globs.clone(),
        recover: options.recover.clone(),
        checker: options.checker.clone(),
        limits: Limits {
            events: Some(500_000_000),
            idle: Some(Duration::from_secs(3)),
            wall: Some(options.patience.unwrap_or(Duration::from_secs(60))),
        },
        stop: options.stop.clone(),
        expected: OnceLock::new(),
        varying: None,
    };
    let depth = options.depth.unwrap_or(2);
    if depth == 1 {
        setting.varying = Some(varying(&recording));
    }
    let last = recording.points.len() as u32 - 1;
    let view = View {
        timeline: recording.timeline.clone(),
        point: last,
    };
    let end = Image::newest(&view, &Narrowed::new(), &recording.points[last as usize].files);
    let lines = input_lines(options)?;
    let by_input = !lines.is_empty() && recording.asked > 0;
    let acknowledged = move |recording: &Recording, point: u32| -> u64 {
        let point = &recording.points[point as usize];
        match by_input {
            true => point.asked.saturating_sub(1),
            false => point.outputs,
        }
    };
    let count = lines.len() as u64;
    let operations = move |recording: &Recording, point: u32| -> u64 {
        match by_input {
            true => acknowledged(recording, point).min(count),
            false => acknowledged(recording, point),
        }
    };
    let told = {
        let lines = lines.clone();
        move |recording: &Recording, point: u32| -> Acknowledged {
            let done = operations(recording, point);
            let text = match by_input {
                true => lines[..(done as usize).min(lines.len())].concat(),
                false => {
                    let bytes = recording.points[point as usize].output_bytes as usize;
                    stdout[..bytes.min(stdout.len())].to_vec()
                }
            };
            Acknowledged {
                operations: done,
                text,
            }
        }
    };
    let baseline = execution::execute(&setting, &mut world, &end, &told(&recording, last), false)?;
    setting.limits.events = Some(baseline.events.saturating_mul(20).max(1_000_000));
    setting.limits.wall = Some(
        options
            .patience
            .unwrap_or((baseline.wall * 50).max(Duration::from_secs(10))),
    );
    let good_exit = match baseline.outcome.status {
        Status::Exit(code) => code,
        _ => 0,
    };
    if good_exit != 0 {
        notes.push(format!(
            "recovery ends with exit code {good_exit} even without a crash ({}): that code is taken for success",
            baseline.outcome.last_words().unwrap_or_default()
        ));
    }
    if recording.storing_threads > 1 {
        notes.push(format!(
            "{} threads store to persistent memory; the one interleaving that was recorded is explored",
            recording.storing_threads
        ));
    }
    let setting = Arc::new(setting);
    let pool = Pool::new(options.jobs.max(1), scratch, &recording.files, &setting)
        .map_err(io_error("cannot make a folder for crash images"))?;
    let mut search = Search::new(recording, setting.clone(), pool, progress);
    search.sampling = Sampling {
        exhaustive: options.exhaustive,
        ..Sampling::default()
    };
    search.deadline = options.time.map(|time| begun + time);
    search.self_test = options.self_test;
    search.operations = Box::new(operations);
    search.acknowledgements = Box::new(told);
    search.outcome_log = options.outcomes.is_some().then(BTreeSet::new);
    search.oracle = Oracle {
        good_exit,
        references: None,
        only_durability: false,
    };
    let identity = identity(options, &search.layers[0].recording);
    fs::create_dir_all(&options.folder).map_err(io_error("cannot make the folder"))?;
    let (journal, known) = Journal::open(&options.folder.join(JOURNAL), &identity)
        .map_err(io_error("cannot open the journal"))?;
    search.remember(&known);
    search.journal = Some(journal);
    if search.statistics.resumed > 0 {
        notes.push(format!(
            "resumed: {} recoveries were run before an interruption",
            search.statistics.resumed
        ));
    }
    if options.operations {
        let references = match by_input {
            true => by_lines(&mut search, options, &lines, &initial, scratch)?,
            false => by_outputs(&mut search, &initial)?,
        };
        search.oracle.only_durability = !by_input;
        if references.is_none() && search.stopped.is_none() {
            return Err(Error::Usage(
                "--oracle ops has no operations to go by: the program neither reads lines from its standard input \
                 (see --stdin) nor writes to its standard output"
                    .into(),
            ));
        }
        if let Some(references) = &references {
            // Set once, and nobody else sets it.
            let _ = setting.expected.set(references.outputs.iter().cloned().collect());
        }
        search.oracle.references = references;
    }
    search.keep_executed = depth > 1;
    search.explore(0)?;
    let mut depth_reached = 1;
    let is_cheap = search.statistics.executions + search.statistics.resumed <= NESTED_AUTO;
    if depth > 1 && options.depth.is_none() && !is_cheap && search.stopped.is_none() {
        notes.push("recoveries were not cut short in turn, because there are many; --depth 2 does that".into());
    } else if search.stopped.is_none() && depth > 1 {
        depth_reached = nest(&mut search, depth, options)?;
    }
    let differing = search.test_itself()?;
    if differing > 0 {
        search.notes.insert(format!(
            "self-test: {differing} of {} outcomes that were looked up came out differently when run: recovery is not deterministic",
            search.statistics.self_tested
        ));
    }
    let halted = search.stopped;
    // What was found is worth being shown even if time is up.
    search.stopped = None;
    search.deadline = None;
    if halted == Some(Halt::Time) {
        setting.stop.store(false, std::sync::atomic::Ordering::Relaxed);
    }
    let asked_to_stop = halted == Some(Halt::Asked);
    if asked_to_stop {
        setting.stop.store(false, std::sync::atomic::Ordering::Relaxed);
    }
    let found = look_into(&mut search, halted.is_some())?;
    let mut unconfirmed = 0;
    let mut number = 0;
    for mut found in found {
        number += 1;
        let folder = options.folder.join(format!("finding-{number}"));
        let images = finding::write_image(&found.image, &mut world, &names, &folder)
            .map_err(io_error("cannot write a crash image"))?;
        let mut reproduction = finding::reproduction(&names, &images, &setting.recover);
        let outcome = search.outcomes[found.outcome as usize].clone();
        reproduction.status = outcome.status.to_string();
        reproduction.stdout = String::from_utf8_lossy(&outcome.stdout).into_owned();
        originals
            .replace(&images)
            .map_err(io_error("cannot put a crash image in place"))?;
        let patience = NATIVE_PATIENCE.max(baseline.wall * 5);
        let native = native::run(&setting.recover, patience);
        originals
            .restore()
            .map_err(io_error("cannot put a file back as it was"))?;
        if let Ok(native) = native {
            let native = Outcome {
                again: outcome.again.clone(),
                checker: outcome.checker.clone(),
                broken: outcome.broken.clone(),
                ..native
            };
            let done = search.done(found.layer, found.point);
            let again = search.oracle.judge(&native, done);
            reproduction.confirmed = again.is_some_and(|again| again.is_like(&found.symptom));
            if !reproduction.confirmed {
                unconfirmed += 1;
                found.finding.notes.push(format!(
                    "natively, recovery ended with {} on this image",
                    native.status
                ));
            }
        }
        found.finding.reproduction = Some(reproduction);
        exploration.findings.push((found.finding, found.spec));
    }
    let _ = unconfirmed;
    notes.extend(search.notes.iter().cloned());
    exploration.interrupted = halted.is_some();
    exploration.complete = halted.is_none()
        && search.unsettled() == 0
        && !search.notes.iter().any(|note| note.contains("not deterministic"));
    if search.sampled_groups() > 0 {
        notes.push(format!(
            "{} of loads read more uncertain data than all combinations can be tried of (as a checksum does): sampled; \
             --exhaustive tries all",
            count_of(search.sampled_groups(), "group", "groups")
        ));
    }
    if halted.is_some() {
        let statistics = &search.statistics;
        notes.push(format!(
            "{} before all was explored: {} of {} failure points done ({} %)",
            match halted {
                Some(Halt::Time) => "the time was up",
                _ => "stopped",
            },
            statistics.points_done,
            statistics.failure_points + statistics.nested_points,
            statistics.points_done * 100 / (statistics.failure_points + statistics.nested_points).max(1),
        ));
    }
    exploration.statistics = statistics(&search, depth_reached, &exploration, baseline.wall, begun);
    if let Some(path) = &options.outcomes {
        write_outcomes(&search, path).map_err(io_error("cannot write the outcomes"))?;
    }
    match search.journal.take() {
        Some(journal) if !exploration.interrupted => journal.remove(),
        _ => notes.push(format!(
            "the same command goes on where this one ended; its journal is in {}",
            options.folder.display()
        )),
    }
    // Nothing was found and nothing is to go on with.
    let _ = fs::remove_dir(&options.folder);
    exploration.notes = notes;
    Ok(exploration)
}

/// What an exploration is known by: the recorded run, and how recovery is run and judged.
fn identity(options: &Options, recording: &Recording) -> [u8; 32] {
    let mut hash = blake3::Hasher::new();
    hash.update(&recording.digest);
    hash.update(format!("{:?}", options.model).as_bytes());
    hash.update(options.checker.as_deref().unwrap_or_default().as_bytes());
    hash.update(format!("{} {}", options.operations, options.depth == Some(1)).as_bytes());
    hash.update(options.recover.display().as_bytes());
    for file in options.recover.stdin.iter().chain(&options.program.stdin) {
        hash.update(&fs::read(file).unwrap_or_default());
    }
    // A program that was built anew may recover otherwise.
    let words = std::iter::once(&options.recover.program).chain(&options.recover.args);
    for word in words.flat_map(|w| w.to_string_lossy().split_whitespace().map(str::to_owned).collect::<Vec<_>>()) {
        use std::os::unix::fs::MetadataExt;
        if let Ok(meta) = fs::metadata(&word)
            && meta.mode() & 0o111 != 0
            && meta.is_file()
        {
            hash.update(&meta.mtime_nsec().to_le_bytes());
            hash.update(&meta.mtime().to_le_bytes());
            hash.update(&meta.len().to_le_bytes());
        }
    }
    *hash.finalize().as_bytes()
}

fn count_of(count: usize, one: &str, many: &str) -> String {
    match count {
        1 => format!("1 {one}"),
        n => format!("{n} {many}"),
    }
}

/// Lines that the run stored to: only they differ between failure points.
fn varying(recording: &Recording) -> rustc_hash::FxHashSet<LineKey> {
    let point = recording.points.len() as u32 - 1;
    let image = Image {
        view: View {
            timeline: recording.timeline.clone(),
            point,
        },
        survivors: BTreeMap::new(),
        files: Arc::default(),
    };
    image.lines()
}

fn input_lines(options: &Options) -> Result<Vec<Vec<u8>>, Error> {
    let Some(path) = &options.program.stdin else {
        return Ok(Vec::new());
    };
    let text = fs::read(path).map_err(io_error("cannot read the standard input"))?;
    Ok(text.split_inclusive(|byte| *byte == b'\n').map(<[u8]>::to_vec).collect())
}

/// What recovery prints after the first k lines of input, for each k.
fn by_lines(
    search: &mut Search<'_>,
    options: &Options,
    lines: &[Vec<u8>],
    initial: &Image,
    scratch: &Path,
) -> Result<Option<References>, Error> {
    if lines.len() > REFERENCE_RUNS_MAX {
        return by_points(search, initial, lines.len(), |point| point.asked.checked_sub(1));
    }
    let mut works = Vec::new();
    for k in 0..=lines.len() {
        let input = scratch.join(format!("reference-stdin-{k}"));
        fs::write(&input, lines[..k].concat()).map_err(io_error("cannot write an input"))?;
        let first = Command {
            stdin: Some(input),
            ..options.program.clone()
        };
        works.push(Work::Refer {
            image: initial.clone(),
            first,
        });
    }
    let Some(done) = search.perform_all(works)? else {
        return Ok(None);
    };
    let mut outputs: Vec<Vec<u8>> = Vec::new();
    for done in done {
        if let Done::Recovered(execution) = done {
            outputs.push(execution?.outcome.stdout);
        }
    }
    // If already the state before the first operation prints something else when the program did not end in order, the output tells
    // of the crash itself. Then the recorded run is the measure.
    let done = |point: &crate::recording::FailurePoint| point.asked.checked_sub(1);
    let before = by_points(search, initial, 0, done)?;
    if let Some(before) = before
        && before.outputs.first() != outputs.first()
        && let Some(in_run) = by_points(search, initial, lines.len(), done)?
    {
        search.notes.insert(
            "recovery prints something else after an orderly end, so it is compared with states of the recorded run".into(),
        );
        return Ok(Some(in_run));
    }
    Ok(Some(References { outputs }))
}

/// What recovery prints after each output, if everything survives.
fn by_outputs(search: &mut Search<'_>, initial: &Image) -> Result<Option<References>, Error> {
    let count = search.layers[0].recording.outputs as usize;
    if count == 0 {
        return Ok(None);
    }
    by_points(search, initial, count, |point| Some(point.outputs))
}

/// What recovery prints where the recorded run has just completed k operations, for each k; and at the end.
fn by_points(
    search: &mut Search<'_>,
    initial: &Image,
    count: usize,
    done: impl Fn(&crate::recording::FailurePoint) -> Option<u64>,
) -> Result<Option<References>, Error> {
    let mut outputs = Vec::new();
    let recording = &search.layers[0].recording;
    let at: Vec<Option<u32>> = (0..=count as u64)
        .map(|k| {
            let is_there = |p: &crate::recording::FailurePoint| {
                p.reason == Reason::Acknowledges && done(p) == Some(k)
            };
            recording.points.iter().position(is_there).map(|i| i as u32)
        })
        .collect();
    let last = recording.points.len() as u32 - 1;
    for (k, point) in at.into_iter().enumerate() {
        let image = match point {
            None if k == 0 => {
                let Some(execution) = search.recover(initial, Acknowledged::default(), false)? else {
                    return Ok(None);
                };
                outputs.push(execution.outcome.stdout);
                continue;
            }
            point => newest_at(search, point.unwrap_or(last)),
        };
        let Some(outcome) = search.evaluate(0, &image)? else {
            return Ok(None);
        };
        outputs.push(search.outcomes[outcome as usize].stdout.clone());
    }
    let image = newest_at(search, last);
    let Some(outcome) = search.evaluate(0, &image)? else {
        return Ok(None);
    };
    outputs.push(search.outcomes[outcome as usize].stdout.clone());
    Ok(Some(References { outputs }))
}

fn newest_at(search: &Search<'_>, point: u32) -> Image {
    let files = &search.layers[0].recording.points[point as usize].files;
    Image::newest(&search.view(0, point), &Narrowed::new(), files)
}

/// Cuts recoveries short in turn. Returns the depth that was reached.
fn nest(search: &mut Search<'_>, depth: u32, options: &Options) -> Result<u32, Error> {
    let bound = NESTED_MAX;
    let mut reached = 1;
    for level in 2..=depth {
        let mut crashes = std::mem::take(&mut search.executed);
        search.keep_executed = level < depth;
        let skipped = crashes.len().saturating_sub(bound);
        if skipped > 0 {
            // Evenly chosen.
            let step = crashes.len() as f64 / bound as f64;
            crashes = (0..bound)
                .map(|i| crashes[(i as f64 * step) as usize].clone())
                .collect();
        }
        search.statistics.nested_skipped += skipped as u64;
        reached = level;
        for crash in crashes {
            let record_options = RecordOptions {
                model: options.model,
                judge_acknowledgements: false,
            };
            let Some(recording) = search.record(&crash.image, record_options)? else {
                return Ok(reached);
            };
            search.statistics.nested_runs += 1;
            if !recording.touched || recording.points.is_empty() {
                continue;
            }
            let failures = search.failures.len();
            search.layers.push(Layer {
                recording: *recording,
                parent: Some(crash),
            });
            let layer = search.layers.len() - 1;
            search.explore(layer)?;
            if search.stopped.is_some() {
                return Ok(reached);
            }
            let needed = search.failures.len() > failures || level < depth;
            if !needed {
                search.layers.pop();
            }
        }
    }
    Ok(reached)
}

/// Looks into failures until each cause has its finding.
fn look_into(search: &mut Search<'_>, in_a_hurry: bool) -> Result<Vec<Found>, Error> {
    let mut resolvers = Resolvers::default();
    let mut guesses: BTreeMap<finding::Cause, usize> = BTreeMap::new();
    let mut failures: Vec<Failure> = search.failures.clone();
    // The fewer losses, the clearer.
    failures.sort_by_key(|failure| (failure.layer > 0, failure.narrowed.len(), failure.point));
    let mut found: Vec<Found> = Vec::new();
    let mut looked = 0;
    for failure in failures {
        let guess = finding::guess(search, &mut resolvers, &failure);
        let seen = guesses.entry(guess).or_default();
        *seen += 1;
        let limit = if in_a_hurry { 1 } else { FAILURES_PER_CAUSE };
        if *seen > limit || looked >= FAILURES_MAX {
            continue;
        }
        looked += 1;
        let Some(minimal) = minimise::minimise(search, &failure)? else {
            continue;
        };
        let Some(new) = finding::build(search, &mut resolvers, &failure, minimal)? else {
            continue;
        };
        match found.iter_mut().find(|old| old.cause == new.cause) {
            Some(old) => {
                old.finding.count += 1;
                if old.symptom != new.symptom {
                    let outcome = &search.outcomes[new.outcome as usize];
                    let note = format!("another crash of this cause: {}", new.symptom.describe(outcome));
                    if !old.finding.notes.contains(&note) && old.finding.notes.len() < 6 {
                        old.finding.notes.push(note);
                    }
                }
            }
            None => found.push(new),
        }
    }
    Ok(found)
}

fn statistics(
    search: &Search<'_>,
    depth: u32,
    exploration: &Exploration,
    baseline: Duration,
    begun: Instant,
) -> Map<String, Value> {
    let s = &search.statistics;
    let seconds = |time: Duration| (time.as_secs_f64() * 1e6).round() / 1e6;
    // The sum of powers of two, without overflow.
    let largest = s.eager_log2.iter().copied().fold(0.0, f64::max);
    let sum: f64 = s.eager_log2.iter().map(|log| (log - largest).exp2()).sum();
    let log10 = (largest + sum.max(f64::MIN_POSITIVE).log2()) * std::f64::consts::LOG10_2;
    let eager = 10f64.powf(log10).min(f64::MAX);
    let mut map = Map::new();
    let mut put = |name: &str, value: Value| drop(map.insert(name.into(), value));
    put("failure_points", json!(s.failure_points));
    put("uncertain_lines", json!(s.uncertain_lines));
    put("distinct_recoveries", json!(search.outcomes.len()));
    put("executions", json!(s.executions));
    put("executions_saved", json!(s.saved));
    put("eager_states", json!(eager.round()));
    put("eager_states_log10", json!((log10 * 100.0).round() / 100.0));
    put("complete", json!(exploration.complete));
    put("points_done", json!(s.points_done));
    put("depth", json!(depth));
    put("nested_failure_points", json!(s.nested_points));
    put("nested_recoveries", json!(s.nested_runs));
    put("nested_recoveries_skipped", json!(s.nested_skipped));
    put("sampled_reads", json!(s.sampled));
    put("resumed", json!(s.resumed));
    put("self_tested", json!(s.self_tested));
    put("recovery_events", json!(s.recovery_events));
    put("recovery_s", json!(seconds(s.recovery_time)));
    put("one_recovery_s", json!(seconds(baseline)));
    put("wall_s", json!(seconds(begun.elapsed())));
    map
}

fn write_outcomes(search: &Search<'_>, path: &Path) -> io::Result<()> {
    let mut file = io::BufWriter::new(File::create(path)?);
    let mut seen = BTreeSet::new();
    for (layer, point, outcome) in search.outcome_log.iter().flatten() {
        if *layer > 0 {
            continue;
        }
        let outcome = &search.outcomes[*outcome as usize];
        let site = search.layers[0].recording.points[*point as usize].site;
        let line = json!({
            "failure_point": point,
            "event": site.map(|site| site.event),
            "status": outcome.status.to_string(),
            "stdout": String::from_utf8_lossy(&outcome.stdout),
        });
        let line = line.to_string();
        if seen.insert(line.clone()) {
            writeln!(file, "{line}")?;
        }
    }
    file.flush()
}

/// What a replay has shown.
pub struct Replayed {
    /// What recovery did under the engine.
    pub outcome: Outcome,
    /// What it did natively.
    pub native: Option<Outcome>,
    /// The commands to see it again.
    pub reproduction: brownout_findings::Reproduction,
}

/// Makes the crash of a finding again, and runs recovery on it.
pub fn replay(options: &Options, spec: &CrashSpec) -> Result<Replayed, Error> {
    let scratch = scratch().map_err(io_error("cannot make a folder for crash images"))?;
    set_up(options)?;
    let recorded = record(options, scratch.path())?;
    let originals = Originals::new(&recorded.recording.files);
    let _restored = Restore(&originals);
    let recording = recorded.recording;
    if !recording.touched {
        return Err(Error::Usage("the program did not touch persistent memory this time".into()));
    }
    originals
        .restore()
        .map_err(io_error("cannot put a file back as it was"))?;
    let names: BTreeMap<FileId, PathBuf> = recording
        .files
        .iter()
        .map(|(id, file)| (*id, file.path.clone()))
        .collect();
    let mut world = World::new(scratch.path(), &recording.files)
        .map_err(io_error("cannot make a folder for crash images"))?;
    let setting = Setting {
        pm_globs: options.pm_globs.clone(),
        recover: options.recover.clone(),
        checker: options.checker.clone(),
        limits: Limits {
            events: Some(100_000_000),
            idle: Some(Duration::from_secs(3)),
            wall: Some(options.patience.unwrap_or(Duration::from_secs(10))),
        },
        stop: options.stop.clone(),
        expected: OnceLock::new(),
        varying: None,
    };
    let differs = || Error::Usage("the program's run is not the one that was explored: it, its input or its files have changed".into());
    let mut recording = recording;
    let mut image: Option<Image> = None;
    for (i, crash) in spec.crashes.iter().enumerate() {
        if i > 0 {
            let before = image.take().ok_or_else(differs)?;
            let states = before.files.as_ref().clone();
            let record_options = RecordOptions {
                model: options.model,
                judge_acknowledgements: false,
            };
            let recorder = Recorder::on(record_options, Base::Crashed(before.clone()), states);
            let (recorder, _) =
                execution::record(&setting, &setting.recover, &mut world, &before, recorder)?;
            recording = recorder.finish();
        }
        let point = recording.points.get(crash.point as usize).ok_or_else(differs)?;
        let view = View {
            timeline: recording.timeline.clone(),
            point: crash.point,
        };
        let survivors = crash
            .survivors
            .iter()
            .map(|(unit, ordered, unordered)| {
                let survivors = brownout_model::Survivors {
                    ordered: *ordered,
                    unordered: unordered.clone(),
                };
                (brownout_model::Unit(*unit), survivors)
            })
            .collect();
        image = Some(Image {
            view,
            survivors,
            files: point.files.clone(),
        });
    }
    let image = image.ok_or_else(differs)?;
    let execution = execution::execute(
        &setting,
        &mut world,
        &image,
        &Acknowledged::default(),
        false,
    )?;
    let images = finding::write_image(&image, &mut world, &names, &options.folder)
        .map_err(io_error("cannot write a crash image"))?;
    let mut reproduction = finding::reproduction(&names, &images, &setting.recover);
    originals
        .replace(&images)
        .map_err(io_error("cannot put a crash image in place"))?;
    let native = native::run(&setting.recover, NATIVE_PATIENCE.max(execution.wall * 5)).ok();
    originals
        .restore()
        .map_err(io_error("cannot put a file back as it was"))?;
    reproduction.status = execution.outcome.status.to_string();
    reproduction.stdout = String::from_utf8_lossy(&execution.outcome.stdout).into_owned();
    reproduction.confirmed = native
        .as_ref()
        .is_some_and(|native| native.status.to_string() == reproduction.status);
    Ok(Replayed {
        outcome: execution.outcome,
        native,
        reproduction,
    })
}
