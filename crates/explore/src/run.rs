//! The run that is explored: set-up, program, and the user's files, which are put back.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Instant;

use brownout_host::{EventSink, LaunchConfig};
use brownout_model::Domain;
use brownout_trace::event::{Event, FileId};

use crate::files::copy_sparse;
use crate::native::Originals;
use crate::options::{Error, Options, io_error};
use crate::outcome::Status;
use crate::recording::{RecordOptions, Recorder, Recording};
use crate::view::FileState;

/// What the recorded run prints goes here.
const STDOUT: &str = "run-stdout";
const STDERR: &str = "run-stderr";

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
pub struct Recorded {
    pub recording: Recording,
    pub status: Status,
    pub hints: Vec<PathBuf>,
    pub notes: Vec<String>,
    pub stdout: Vec<u8>,
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

fn record(
    options: &Options,
    scratch: &Path,
    also: Option<&mut dyn EventSink>,
) -> Result<Recorded, Error> {
    let record_options = RecordOptions {
        model: options.model,
        judge_acknowledgements: options.operations
            || options.acknowledged_survives
            || options.checker.is_some(),
    };
    let recorder = Recorder::new(record_options, scratch);
    let mut config = LaunchConfig::new(&options.program.program, &options.program.args);
    let out = scratch.join(STDOUT);
    let err = scratch.join(STDERR);
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
    let mut sink = Tee { recorder, also };
    let outcome = brownout_host::record(&config, &mut sink)?;
    let recorder = sink.recorder;
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

/// Files that the command line names, as they are before the run. The recording shows a file from its first mapping on; what the
/// program did to it until then (`ftruncate`, `O_TRUNC`) can only be undone if somebody has looked before.
struct Before {
    files: BTreeMap<PathBuf, (u64, PathBuf)>,
}

impl Before {
    fn look(options: &Options, scratch: &Path) -> io::Result<Before> {
        let words = options.program.args.iter().map(PathBuf::from);
        // A pattern without special characters is a path; of others the last component may be one in this folder.
        let globs = options.pm_globs.iter().flat_map(|glob| {
            let name = glob.rsplit('/').next().unwrap_or(glob);
            [PathBuf::from(glob), PathBuf::from(name)]
        });
        let mut files = BTreeMap::new();
        for path in words.chain(globs) {
            let Ok(path) = fs::canonicalize(&path) else {
                continue;
            };
            let meta = fs::metadata(&path)?;
            let is_program = meta.permissions().mode() & 0o111 != 0;
            if !meta.is_file() || is_program || files.contains_key(&path) {
                continue;
            }
            let copy = scratch.join(format!("original-{}", files.len()));
            let Ok(file) = File::open(&path) else {
                continue;
            };
            copy_sparse(&file, &copy)?;
            files.insert(path, (meta.len(), copy));
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

/// Gives events to two.
struct Tee<'s> {
    recorder: Recorder,
    also: Option<&'s mut dyn EventSink>,
}

impl EventSink for Tee<'_> {
    fn event(&mut self, event: &Event<'_>) -> io::Result<()> {
        if let Some(also) = &mut self.also {
            also.event(event)?;
        }
        self.recorder.event(event)
    }

    fn answer(&mut self, question: &Event<'_>) -> [u64; 3] {
        match &mut self.also {
            Some(also) => also.answer(question),
            None => [0; 3],
        }
    }

    fn new_file(&mut self, file: FileId, path: &Path) -> io::Result<()> {
        self.recorder.new_file(file, path)
    }
}

/// A recorded run, and the user's files, which are put back when this goes.
pub struct Run {
    pub(crate) scratch: tempfile::TempDir,
    /// Until it is explored.
    pub(crate) recorded: Option<Recorded>,
    pub(crate) originals: Originals,
    pub(crate) begun: Instant,
}

impl Drop for Run {
    fn drop(&mut self) {
        // An exploration has done this already, and said so if it failed. This is for those that ended early.
        let _ = self.originals.restore();
    }
}

impl Run {
    /// How the program ended.
    pub fn status(&self) -> Status {
        self.recorded.as_ref().map_or(Status::Exit(0), |r| r.status)
    }

    /// What it printed, on its standard output and its standard error.
    pub fn output(&self) -> (Vec<u8>, Vec<u8>) {
        let error = fs::read(self.scratch.path().join(STDERR)).unwrap_or_default();
        let output = self.recorded.as_ref().map(|r| r.stdout.clone());
        (output.unwrap_or_default(), error)
    }

    /// Files that may be meant to be persistent memory.
    pub fn hints(&self) -> &[PathBuf] {
        self.recorded.as_ref().map_or(&[], |r| &r.hints)
    }
}

/// Runs the set-up, then the program, and records it. `also` gets the events, too.
pub fn record_run(options: &Options, also: Option<&mut dyn EventSink>) -> Result<Run, Error> {
    let begun = Instant::now();
    if options.model.domain == Domain::Hops {
        return Err(Error::Usage(
            "crash states of the domain hops cannot be explored: its lines depend on each other"
                .into(),
        ));
    }
    let scratch = scratch().map_err(io_error("cannot make a folder for crash images"))?;
    set_up(options)?;
    let before = Before::look(options, scratch.path())
        .map_err(io_error("cannot copy a file that the program may change"))?;
    let mut recorded = record(options, scratch.path(), also)?;
    before.complete(&mut recorded.recording);
    let originals = Originals::new(&recorded.recording.files);
    Ok(Run {
        scratch,
        recorded: Some(recorded),
        originals,
        begun,
    })
}
