//! The run that is explored: set-up, program, and the user's files, which are put back.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{self, Read as _, Seek as _};
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use brownout_findings::{Coverage, Limit};
use brownout_host::{Enclosure, LaunchConfig, Limits, Stopped};
use brownout_model::Domain;
use brownout_model::names::Promise;
use brownout_symbols::Part;
use brownout_trace::event::{Event, FileId};
use brownout_trace::{EventSink, Tee};

use crate::execution;
use crate::files::{copy_sparse, hash_sparse};
use crate::ground::{self, Ground};
use crate::input::Lines;
use crate::native::Originals;
use crate::options::{Error, Options, io_error, io_error_at};
use crate::outcome::{Hang, Status, last_words};
use crate::pm_only::PmOnly;
use crate::recording::{RecordOptions, Recorder, Recording, TrackedFile};
use crate::view::{Entry, FileState};
use crate::world::Origin;

/// What the recorded run prints goes here.
const STDOUT: &str = "run-stdout";
const STDERR: &str = "run-stderr";

/// The recorded run.
pub struct Recorded {
    pub recording: Recording,
    pub status: Status,
    pub hints: Vec<PathBuf>,
    pub notes: Vec<String>,
    /// It was not stopped before its end.
    pub is_whole: bool,
    /// How long it has taken, and how many events it was.
    pub wall: Duration,
    pub events: u64,
    /// If threads took turns: how often their store buffers may have held something at the same
    /// time.
    pub overlaps: Option<u64>,
    /// What is not known of it.
    pub coverage: Coverage,
    pub stdout: Vec<u8>,
}

/// What is left until a deadline, as a bound for a program.
pub fn until(deadline: Option<Instant>) -> Limits {
    Limits {
        wall: deadline.map(|deadline| deadline.saturating_duration_since(Instant::now())),
        ..Limits::default()
    }
}

/// What was not done because it was stopped.
fn cut(stopped: Stopped, during: &str) -> Coverage {
    let mut coverage = Coverage::default();
    match stopped {
        Stopped::Asked => coverage.limit(
            Limit::Interrupted,
            format!("stopped {during}: nothing was explored"),
        ),
        _ => coverage.limit(
            Limit::Time,
            format!("the time was up {during}: nothing was explored"),
        ),
    }
    coverage
}

/// Runs the set-up; what is left undone if it was stopped.
fn set_up(
    options: &Options,
    deadline: Option<Instant>,
    view: Option<&Arc<Enclosure>>,
) -> Result<Option<Coverage>, Error> {
    let Some(setup) = &options.setup else {
        return Ok(None);
    };
    // Under the engine, though nothing is recorded: what it makes must be the same next time,
    // identifiers and seeds included.
    let mut config = LaunchConfig::new("sh", ["-c", setup]);
    config.deterministic = true;
    config.enclosure = view.cloned();
    config.dies_with_tool = true;
    config.stop = Some(options.stop.clone());
    config.stdin = Some(File::open("/dev/null").map_err(io_error("cannot open /dev/null"))?);
    let out = File::create("/dev/null").map_err(io_error("cannot open /dev/null"))?;
    config.stdout = Some(out);
    config.limits = until(deadline);
    let outcome = brownout_host::run(&config)?;
    if let Some(stopped) = outcome.stopped {
        return Ok(Some(cut(stopped, "in the set-up")));
    }
    match outcome.status {
        brownout_host::ExitStatus::Code(0) => Ok(None),
        brownout_host::ExitStatus::Code(code) => Err(Error::Usage(format!(
            "the set-up failed with exit code {code}: {setup}"
        ))),
        brownout_host::ExitStatus::Signal(signal) => Err(Error::Usage(format!(
            "the set-up was killed by {}: {setup}",
            crate::oracle::signal_name(signal)
        ))),
    }
}

/// As much of what the recorded run prints is kept.
const OUTPUT_MAX: u64 = 256 << 20;

/// The program's standard input, and its lines.
fn standard_input(path: &Path) -> Result<(File, Lines), Error> {
    let lost = io_error_at("cannot open the standard input", path);
    let mut file = File::open(path).map_err(&lost)?;
    let kind = file.metadata().map_err(&lost)?.file_type();
    if kind.is_fifo() || kind.is_socket() {
        return Err(Error::Usage(
            "the standard input must be a file: it is read several times, and a pipe only once"
                .into(),
        ));
    }
    let mut text = Vec::new();
    if kind.is_file() {
        file.read_to_end(&mut text).map_err(&lost)?;
        file.rewind().map_err(&lost)?;
    }
    Ok((file, Lines::new(text)))
}

fn record(
    options: &Options,
    scratch: &Path,
    deadline: Option<Instant>,
    pm_globs: &[String],
    view: Option<&Arc<Enclosure>>,
    besides: Besides<'_>,
) -> Result<Recorded, Error> {
    let Besides {
        also,
        raw,
        prepare,
        shares_network: _,
    } = besides;
    let stdin = options.program.stdin.as_deref();
    let stdin = stdin.unwrap_or(Path::new("/dev/null"));
    // The set-up may have made it; or the tool has, and it is nowhere else.
    let inside = view.map(|view| view.path(stdin)).filter(|at| at.exists());
    let (input, lines) = standard_input(inside.as_deref().unwrap_or(stdin))?;
    let names = view.is_some().then_some(options.promise);
    let mut recorder = recorder(options, scratch, names).with_input(lines);
    let mut config = LaunchConfig::new(&options.program.program, &options.program.args);
    let out = scratch.join(STDOUT);
    let err = scratch.join(STDERR);
    follow(&mut config, pm_globs.to_vec());
    // Findings name the program, and the test.
    config.beginnings = true;
    if let Some(prepare) = prepare {
        prepare(&mut config);
    }
    config.schedule = options.schedule.clone();
    config.enclosure = view.cloned();
    config.dies_with_tool = true;
    config.stop = Some(options.stop.clone());
    config.limits = until(deadline);
    config.output_max = Some(OUTPUT_MAX);
    config.stdin = Some(input);
    config.stdout = Some(File::create(&out).map_err(io_error("cannot keep the output"))?);
    config.stderr = Some(File::create(&err).map_err(io_error("cannot keep the output"))?);
    let mut also = also.map(PmOnly::new);
    let touches = options.touches.as_ref();
    let mut counting = touches.map(|touches| touches.run(Part::Program));
    let mut counting = counting.as_mut().map(|counting| PmOnly::new(counting));
    let sink = Tee::default().and(also.as_mut()).and(counting.as_mut());
    let numbered = raw.map_or_else(Tee::default, |raw| Tee::of([raw]));
    let mut numbered = numbered.and(Some(&mut recorder));
    let (outcome, left_out) = match names {
        Some(_) => {
            let mut sink = sink.and(Some(&mut numbered));
            (brownout_host::record(&config, &mut sink)?, BTreeSet::new())
        }
        None => {
            let mut only = PmOnly::from_first_change(&mut numbered);
            let mut sink = sink.and(Some(&mut only));
            let outcome = brownout_host::record(&config, &mut sink)?;
            (outcome, only.left_out())
        }
    };
    let mut coverage = Coverage::default();
    if let Some(first) = left_out.first() {
        let more = match left_out.len() {
            1 => String::new(),
            n => format!(", and {} more", n - 1),
        };
        coverage.limit(
            Limit::Unsupported,
            format!(
                "names, sizes and ordinary files count as durable at once, because recoveries have no private view: crashes between \
                 changes to them are not explored ({first}{more})"
            ),
        );
    }
    let read = |path: &Path| execution::read_at_most(path, OUTPUT_MAX).unwrap_or_default();
    let said = || read(&err);
    let printed = read(&out);
    let mut recorded = conclude(recorder, outcome, coverage, printed, said);
    if options.program.stdin.is_none() && recorded.recording.input.is_some() {
        recorded
            .notes
            .push("the program asked for input, and there was none: --stdin FILE gives it".into());
    }
    Ok(recorded)
}

/// A run is over.
fn conclude(
    recorder: Recorder,
    outcome: brownout_host::Outcome,
    mut coverage: Coverage,
    stdout: Vec<u8>,
    stderr: impl FnOnce() -> Vec<u8>,
) -> Recorded {
    let status = match outcome.status {
        brownout_host::ExitStatus::Code(code) => Status::Exit(code),
        brownout_host::ExitStatus::Signal(signal) => Status::Signal(signal),
    };
    let mut notes = outcome.notes;
    let overlaps = outcome.scheduled.as_ref().map(|turns| turns.overlaps);
    if let Some(stopped) = outcome.stopped {
        coverage = cut(stopped, "while the program was recorded");
    } else if outcome
        .scheduled
        .is_some_and(|scheduled| scheduled.is_deadlock)
    {
        coverage.limit(
            Limit::Killed,
            "all threads of the recorded run came to wait for each other: what they had done until then is explored",
        );
    } else if status != Status::Exit(0) {
        let said = last_words(&stderr()).unwrap_or_default();
        match status.killed_by() {
            Some(signal) => coverage.limit(
                Limit::Killed,
                format!(
                    "the recorded run was killed by {}: what it had done until then is explored",
                    crate::oracle::signal_name(signal)
                ),
            ),
            None => notes.push(format!("the recorded run ended with {status}: {said}")),
        }
    }
    Recorded {
        recording: recorder.finish(),
        status,
        hints: outcome.hints,
        notes,
        is_whole: outcome.stopped.is_none(),
        wall: outcome.wall,
        events: outcome.events,
        overlaps,
        coverage,
        stdout,
    }
}

/// What must be followed of a run that is recorded.
fn follow(config: &mut LaunchConfig, pm_globs: Vec<String>) {
    config.pm_globs = pm_globs;
    config.deterministic = true;
    config.boundaries = true;
    config.line_input = true;
    // Also where names are not explored: what happens to them must at least be said.
    config.names = true;
}

fn recorder(options: &Options, scratch: &Path, names: Option<Promise>) -> Recorder {
    let record_options = RecordOptions {
        model: options.model,
        judge_acknowledgements: options.operations
            || options.acknowledged_survives
            || options.checker.is_some(),
        names,
        names_max: options.names_max(),
    };
    Recorder::new(record_options, scratch)
}

/// A run that did not come about.
fn nothing(options: &Options, scratch: &Path, coverage: Coverage) -> Recorded {
    Recorded {
        recording: recorder(options, scratch, None).finish(),
        status: Status::Hang(Hang::Time),
        hints: Vec::new(),
        notes: Vec::new(),
        is_whole: false,
        wall: Duration::ZERO,
        events: 0,
        overlaps: None,
        coverage,
        stdout: Vec::new(),
    }
}

/// Files that the command line names, if they are there. `seen` says where the tool finds what
/// programs call by a path.
fn named(options: &Options, seen: &dyn Fn(&Path) -> PathBuf) -> Vec<PathBuf> {
    let words = options.program.args.iter().map(PathBuf::from);
    // A pattern without special characters is a path; of others the last component may be one in
    // this folder.
    let globs = options.pm_globs.iter().flat_map(|glob| {
        let name = glob.rsplit('/').next().unwrap_or(glob);
        [PathBuf::from(glob), PathBuf::from(name)]
    });
    let mut files: Vec<PathBuf> = Vec::new();
    for path in words.chain(globs) {
        let Ok(path) = std::path::absolute(&path) else {
            continue;
        };
        let Ok(meta) = fs::metadata(seen(&path)) else {
            continue;
        };
        let is_program = meta.permissions().mode() & 0o111 != 0;
        if meta.is_file() && !is_program && !files.contains(&path) {
            files.push(path);
        }
    }
    files
}

/// Files that the command line names, as they are before a run beside the user's files. The
/// recording shows a file from its first mapping on; what the program did to it until then
/// (`ftruncate`, `O_TRUNC`) can only be undone if somebody has looked before.
struct Before {
    files: BTreeMap<PathBuf, (u64, PathBuf)>,
}

impl Before {
    fn look(options: &Options, scratch: &Path) -> io::Result<Before> {
        let mut files = BTreeMap::new();
        for path in named(options, &Path::to_path_buf) {
            let path = fs::canonicalize(&path)?;
            let copy = scratch.join(format!("original-{}", files.len()));
            let Ok(file) = File::open(&path) else {
                continue;
            };
            copy_sparse(&file, &copy)?;
            files.insert(path, (file.metadata()?.len(), copy));
        }
        Ok(Before { files })
    }

    /// Corrects what the recording took for the beginning.
    fn complete(self, recording: &mut Recording) {
        for file in recording.files.values_mut() {
            if let Some((size, copy)) = self.files.get(&file.path) {
                file.before = FileState {
                    exists: true,
                    size: *size,
                };
                file.created = false;
                file.original = Some(copy.clone());
            }
        }
    }
}

/// Corrects what the recording took for the beginning, where names are recorded: a file that was
/// removed and made anew has been there.
fn complete(recording: &mut Recording) {
    for file in recording.files.values_mut() {
        let name = file.path.as_os_str().as_encoded_bytes();
        let before = recording.initial.names.get(name);
        if let Some(Entry::File(content)) = before {
            file.before = recording.initial.get(content).copied().unwrap_or_default();
            file.created = false;
        }
    }
}

/// Copies up the files that the program probably maps: an overlay shows two different files to who
/// has opened one to read and then to write.
fn copy_up(options: &Options, view: &Enclosure) {
    for path in named(options, &|path| view.path(path)) {
        // What cannot be written to is not copied, and needs no copy.
        let _ = File::options()
            .read(true)
            .write(true)
            .open(view.path(&path));
    }
}

/// A recorded run. If it ran beside the user's files, they are put back when this goes.
pub struct Run {
    /// Until it is explored.
    pub(crate) recorded: Option<Recorded>,
    /// The user's files, if they have been touched.
    pub(crate) originals: Option<Originals>,
    /// What the worlds of recoveries are made of.
    pub(crate) origin: Origin,
    pub(crate) begun: Instant,
    /// The set-up has made or changed files that are not tracked, in a private view.
    setup_left_more: bool,
    /// Last, because everything else lies in it.
    pub(crate) ground: Ground,
}

impl Drop for Run {
    fn drop(&mut self) {
        // An exploration has done this already, and said so if it failed. This is for those that
        // ended early.
        let _ = self.restore();
    }
}

impl Run {
    /// Puts the user's files back as they were.
    pub(crate) fn restore(&self) -> io::Result<()> {
        self.originals.as_ref().map_or(Ok(()), Originals::restore)
    }

    /// What the run began with, for a program that is run once more: a private view on it, or
    /// `None` where there are none. Then the files are as they were before the run; they are put
    /// back once more when this goes.
    pub fn beginning(&self) -> io::Result<Option<Arc<Enclosure>>> {
        let Some((makers, below)) = &self.origin.enclosures else {
            self.restore()?;
            return Ok(None);
        };
        // The first has what the run itself has changed.
        let before = below.get(1..).unwrap_or_default();
        makers.enclose(before).map(|view| Some(Arc::new(view)))
    }

    /// The set-up, if it must be run again for recovery to find everything.
    pub(crate) fn setup_needed<'o>(&self, options: &'o Options) -> Option<&'o str> {
        options.setup.as_deref().filter(|_| self.setup_left_more)
    }

    /// How the program ended.
    pub fn status(&self) -> Status {
        self.recorded.as_ref().map_or(Status::Exit(0), |r| r.status)
    }

    /// What it printed, on its standard output and its standard error.
    pub fn output(&self) -> (Vec<u8>, Vec<u8>) {
        let error = fs::read(self.origin.scratch.join(STDERR)).unwrap_or_default();
        let output = self.recorded.as_ref().map(|r| r.stdout.clone());
        (output.unwrap_or_default(), error)
    }

    /// Equal for equal runs: what was stored by whom, and on which files. `None` if it is explored
    /// already, or if a copy of a file cannot be read.
    pub fn name(&self) -> Option<String> {
        let recorded = self.recorded.as_ref()?;
        let digest = digest_with_files(&recorded.recording).ok()?;
        Some(Recording::name_of(digest))
    }

    /// What was recorded, once, with its name: it takes reading all files, so it waits until
    /// somebody needs it.
    pub(crate) fn take(&mut self) -> Result<Recorded, Error> {
        let recorded = self.recorded.take();
        let mut recorded = recorded.ok_or_else(|| Error::Usage("nothing was recorded".into()))?;
        recorded.recording.digest = digest_with_files(&recorded.recording)
            .map_err(io_error("cannot read a copy of a tracked file"))?;
        Ok(recorded)
    }

    /// What it did to files that is not part of what crashes leave, in words.
    pub fn unfollowed(&self) -> impl Iterator<Item = &str> {
        let recorded = self.recorded.iter();
        let unfollowed = recorded.flat_map(|recorded| &recorded.recording.unfollowed);
        unfollowed.map(String::as_str)
    }

    /// Files that may be meant to be persistent memory.
    pub fn hints(&self) -> &[PathBuf] {
        self.recorded.as_ref().map_or(&[], |r| &r.hints)
    }
}

/// The same stores to other files are another run.
fn digest_with_files(recording: &Recording) -> io::Result<[u8; 32]> {
    let mut hash = blake3::Hasher::new();
    hash.update(&recording.digest);
    // What a file holds after it was cut short has no copy of its own: it began with the file's.
    let copied = |file: &&TrackedFile| !file.base.as_os_str().is_empty();
    for file in recording.files.values().filter(copied) {
        hash_sparse(&File::open(&file.base)?, &mut hash)?;
    }
    Ok(*hash.finalize().as_bytes())
}

fn refuse_hops(options: &Options) -> Result<(), Error> {
    match options.model.domain {
        Domain::Hops => Err(Error::Usage(
            "crash states of the domain hops cannot be explored: its lines depend on each other"
                .into(),
        )),
        _ => Ok(()),
    }
}

/// What else a run is recorded for.
#[derive(Default)]
pub struct Besides<'s> {
    /// Gets the events of persistent memory, as if nothing else was followed.
    pub also: Option<&'s mut dyn EventSink>,
    /// Gets the events by whose numbers the recording goes, and findings about its crashes.
    pub raw: Option<&'s mut dyn EventSink>,
    /// Asks for more than a recording needs.
    pub prepare: Option<&'s dyn Fn(&mut LaunchConfig)>,
    /// The program has the machine's network, in a private view, too.
    pub shares_network: bool,
}

/// Runs the set-up, then the program, and records it. `also` gets the events, too.
pub fn record_run(options: &Options, also: Option<&mut dyn EventSink>) -> Result<Run, Error> {
    let besides = Besides {
        also,
        ..Besides::default()
    };
    record_beside(options, besides)
}

/// As [`record_run`], for more than one purpose.
pub fn record_beside(options: &Options, besides: Besides<'_>) -> Result<Run, Error> {
    let begun = Instant::now();
    refuse_hops(options)?;
    let no_view = || io_error("cannot make a private view of the machine");
    let (ground, start) = match &options.start {
        Some(start) => (Ground::shared(&start.enclosures), start.layers.clone()),
        None => (Ground::with_network(!besides.shares_network), Vec::new()),
    };
    let ground = ground.map_err(io_error("cannot make a folder for crash images"))?;
    let scratch = ground.scratch();
    let mut pm_globs = options.pm_globs.clone();
    if ground.enclosures.is_some() {
        pm_globs.extend(ground::persistent_mounts());
    }
    let deadline = options.time.map(|time| begun + time);
    let mut below = start;
    let (mut cut, mut made) = (None, BTreeMap::new());
    if options.setup.is_some() {
        let view = ground.enclose(&below).map_err(no_view())?;
        cut = set_up(options, deadline, view.as_ref())?;
        if let Some(view) = view {
            made = view.changed().map_err(no_view())?;
            // Nothing is left in it: it becomes what the others stand on.
            below.insert(0, view.layer().clone());
        }
    }
    let mut originals = None;
    let mut recorded;
    if let Some(coverage) = cut {
        recorded = nothing(options, &scratch, coverage);
    } else if let Some(view) = ground.enclose(&below).map_err(no_view())? {
        copy_up(options, &view);
        recorded = record(options, &scratch, deadline, &pm_globs, Some(&view), besides)?;
        complete(&mut recorded.recording);
        below.insert(0, view.layer().clone());
    } else {
        let before = Before::look(options, &scratch)
            .map_err(io_error("cannot copy a file that the program may change"))?;
        recorded = record(options, &scratch, deadline, &pm_globs, None, besides)?;
        before.complete(&mut recorded.recording);
        originals = Some(Originals::new(&recorded.recording.files));
    }
    let enclosures = ground.enclosures.clone();
    let tracked = &recorded.recording.files;
    let is_tracked = |path: &Path| tracked.values().any(|file| file.path.starts_with(path));
    let setup_left_more = made
        .iter()
        .any(|(path, what)| what.is_file() && !is_tracked(path));
    Ok(Run {
        recorded: Some(recorded),
        originals,
        origin: Origin {
            scratch,
            enclosures: enclosures.map(|enclosures| (enclosures, below)),
            pm_globs,
        },
        begun,
        setup_left_more,
        ground,
    })
}

/// Records a run that somebody else launches, or forks from a kept process
/// ([`brownout_host::Session`]): it is the sink of that run.
///
/// Guarantee: the [`Run`] is the one that [`record_run`] would have given, if the program finds the
/// same files and the same input. The launch must have been [prepared](RunRecorder::prepare), must
/// happen in a private view, and must have no known files. What the run has left in files that the
/// recording does not follow is not there when it is explored.
pub struct RunRecorder {
    recorder: Recorder,
    origin: Origin,
    begun: Instant,
    ground: Ground,
}

impl RunRecorder {
    /// Has a launch, or a session, tell what a recording needs.
    pub fn prepare(options: &Options, config: &mut LaunchConfig) {
        let mut pm_globs = options.pm_globs.clone();
        pm_globs.extend(ground::persistent_mounts());
        follow(config, pm_globs);
    }

    /// For one run on the input. `originals` gives, for what a program calls by a path, a file that
    /// holds what was there before the run and stays so as long as the run is of interest; `None`
    /// if nothing was there. A kept process has changed its files before the run begins, so what
    /// they hold then would not do.
    ///
    /// The options say where recoveries begin ([`Options::start`]), if the run is to be explored;
    /// they must hold the same files.
    pub fn new(
        options: &Options,
        input: Vec<u8>,
        originals: impl FnMut(&Path) -> Option<PathBuf> + Send + 'static,
    ) -> Result<RunRecorder, Error> {
        refuse_hops(options)?;
        let Some(start) = &options.start else {
            return Err(Error::Usage(
                "a run that is launched elsewhere can be recorded only if it is said what it begins with".into(),
            ));
        };
        let ground = Ground::shared(&start.enclosures)
            .map_err(io_error("cannot make a folder for crash images"))?;
        let mut pm_globs = options.pm_globs.clone();
        pm_globs.extend(ground::persistent_mounts());
        let scratch = ground.scratch();
        let recorder = recorder(options, &scratch, Some(options.promise))
            .with_input(Lines::new(input))
            .with_originals(Box::new(originals));
        Ok(RunRecorder {
            recorder,
            origin: Origin {
                scratch,
                enclosures: Some((start.enclosures.clone(), start.layers.clone())),
                pm_globs,
            },
            begun: Instant::now(),
            ground,
        })
    }

    /// The run is over: how, and what it has printed on its standard output and its standard error.
    pub fn finish(
        self,
        outcome: brownout_host::Outcome,
        stdout: Vec<u8>,
        stderr: Vec<u8>,
    ) -> Result<Run, Error> {
        let coverage = Coverage::default();
        let keeps = io_error("cannot keep the output");
        fs::write(self.origin.scratch.join(STDERR), &stderr).map_err(keeps)?;
        let mut recorded = conclude(self.recorder, outcome, coverage, stdout, || stderr);
        complete(&mut recorded.recording);
        Ok(Run {
            recorded: Some(recorded),
            originals: None,
            origin: self.origin,
            begun: self.begun,
            setup_left_more: false,
            ground: self.ground,
        })
    }
}

impl EventSink for RunRecorder {
    fn event(&mut self, event: &Event<'_>) -> io::Result<()> {
        self.recorder.event(event)
    }

    fn new_file(&mut self, file: FileId, path: &Path) -> io::Result<()> {
        self.recorder.new_file(file, path)
    }
}
