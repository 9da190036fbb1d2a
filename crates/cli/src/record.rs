//! `brownout record`: runs a program and writes what it does to a trace.
//!
//! ```text
//!  brownout_host::record ── events ──▶ Tee ─┬▶ Tally ─▶ summary line
//!                                           ├▶ Trace ─▶ file
//!                                           ├▶ StoreLog ─▶ file (on request)
//!                                           └▶ Verification (on request)
//! ```
//!
//! Guarantee: trouble with the trace never disturbs the program. When the file can take no more,
//! events are still taken (and dropped), the program runs to its end, and the exit code says that
//! the recording is not whole.

use std::fs::File;
use std::io::{self, BufWriter};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use brownout_findings::numbers::{counted, grouped};
use brownout_host::{LaunchConfig, Outcome};
use brownout_storelog::{Exported, Exporter};
use brownout_trace::event::{Event, EventKind};
use brownout_trace::maps::MapFault;
use brownout_trace::{EventSink, Meta, Reader, Tee, Writer, Written};

use crate::exit::{self, Failure};
use crate::output::TraceOutput;
use crate::resolve::{Recording, escape, plain};
use crate::schedule::{self, Decisions, ListFile};
use crate::signals;
use crate::terminal::{bytes, message, quote};
use crate::verification::Verification;

/// Runs the program and records it. The exit code is the program's, unless something failed.
pub fn record(mut recording: Recording) -> Result<u8, Failure> {
    let path = recording.output.as_deref();
    let output = match path {
        Some(path) => Some(TraceOutput::open(path, recording.force)?),
        None => None,
    };
    let mut verification = match (recording.verify, &output) {
        (true, Some(output)) => {
            Some(Verification::new(&output.folder()).inspect_err(|_| output.abandon())?)
        }
        _ => None,
    };
    let mut store_log = match &recording.pmemcheck_log {
        Some(path) => Some(StoreLog::create(path)?),
        None => None,
    };
    let list_file = match &recording.schedule_out {
        Some(path) => Some(ListFile::open(path)?),
        None => None,
    };
    let mut tally = Tally::default();
    let mut trace = output.map(|output| Trace::new(output, meta(&recording.launch)));
    let mut sink = Tee::of([&mut tally])
        .and(trace.as_mut())
        .and(store_log.as_mut())
        .and(verification.as_mut());
    let outcome = signals::leave_to_program(&mut recording.launch)
        .and_then(|()| Ok(brownout_host::record(&recording.launch, &mut sink)?));
    let outcome = match outcome {
        Ok(outcome) => outcome,
        Err(failure) => {
            if let Some(trace) = trace {
                trace.abandon();
            }
            if let Some(file) = list_file {
                file.abandon();
            }
            return Err(failure);
        }
    };
    let duration = (!recording.launch.deterministic).then_some(outcome.wall);
    let trace = trace.map(|trace| trace.finish(duration));
    let written = trace.as_ref().and_then(|trace| trace.as_ref().ok());
    report(path, &outcome, &tally, written);
    if let Some(scheduled) = &outcome.scheduled {
        let file = recording.schedule_out.as_deref();
        message(&Decisions { scheduled, file }.to_string());
    }
    for path in &outcome.hints {
        message(&hint(path));
    }
    // A recording that stopped makes the verdict of the verification worthless, so it comes first.
    if let (Some(Err(trouble)), Some(path)) = (trace, path) {
        return Err(trouble.failure(path));
    }
    if let Some(log) = store_log {
        log.finish()?;
    }
    if let (Some(file), Some(scheduled)) = (list_file, &outcome.scheduled) {
        file.write(scheduled)?;
    }
    schedule::expect_repeated(&recording.launch, &outcome)?;
    match verification {
        Some(verification) if tally.files > 0 => verification.conclude()?,
        Some(_) => message("nothing was verified: no persistent memory was seen"),
        None => {}
    }
    let missed = missed_patterns(tally.files == 0, &recording.launch);
    if let Some(note) = &missed {
        message(note);
    }
    Ok(match exit::of_program(&outcome.status) {
        // A recording of nothing is no success.
        exit::OK if missed.is_some() => exit::CANNOT_RUN,
        status => status,
    })
}

/// What to say if there are patterns and no file was tracked.
pub fn missed_patterns(is_empty: bool, launch: &LaunchConfig) -> Option<String> {
    let text = "--pm matches no file that the program maps shared: nothing was looked at";
    (is_empty && !launch.pm_globs.is_empty()).then(|| text.to_owned())
}

fn meta(launch: &LaunchConfig) -> Meta {
    let mut command = vec![launch.program.to_string_lossy().into_owned()];
    command.extend(
        launch
            .args
            .iter()
            .map(|arg| arg.to_string_lossy().into_owned()),
    );
    // Two deterministic recordings shall be the same, byte for byte.
    let created_unix_ms = match launch.deterministic {
        true => None,
        false => SystemTime::now().duration_since(UNIX_EPOCH).ok(),
    };
    let switches = [
        ("values", launch.values),
        ("loads", launch.loads),
        ("threads", launch.threads),
        ("deterministic", launch.deterministic),
        ("execute-flushes", launch.execute_flushes),
    ];
    let mut notes: std::collections::BTreeMap<String, String> = switches
        .iter()
        .map(|(name, on)| (name.to_string(), on.to_string()))
        .collect();
    if !launch.pm_globs.is_empty() {
        notes.insert("pm".to_owned(), launch.pm_globs.join(" "));
    }
    Meta {
        tool: concat!("brownout ", env!("CARGO_PKG_VERSION")).to_owned(),
        command,
        created_unix_ms: created_unix_ms.map(|time| time.as_millis() as u64),
        notes,
    }
}

/// Why a trace is not whole.
#[derive(Debug)]
struct Trouble(io::Error);

impl Trouble {
    fn failure(self, path: &Path) -> Failure {
        let Trouble(error) = self;
        if error.kind() == io::ErrorKind::InvalidInput {
            // The engine broke the contract of the event stream.
            let sentence = format!("the engine reported an event that cannot be: {error}");
            return Failure {
                code: exit::BUG,
                sentence,
            };
        }
        let (reason, events) = (plain(&error), readable_events(path));
        Failure::cannot_run(match events {
            0 => format!("recording stopped: {reason} after 0 events; there is no readable trace"),
            _ => format!(
                "recording stopped: {reason} after {}; the trace is readable up to there",
                counted(events, "event")
            ),
        })
    }
}

/// Events in the whole blocks of an unfinished trace.
fn readable_events(path: &Path) -> u64 {
    let Ok(mut reader) = Reader::<File>::open(path) else {
        return 0;
    };
    match reader.seek_to_event(u64::MAX) {
        Ok(()) => reader.position(),
        Err(error) => error.place().map_or(reader.position(), |place| place.event),
    }
}

/// A trace that is being written.
struct Trace {
    meta: Meta,
    stage: Stage,
}

enum Stage {
    /// Nothing has happened; an old trace may still be in the file.
    Pending(TraceOutput),
    /// Being written.
    Open(Box<Writer<TraceOutput>>),
    /// The output failed.
    Failed(Trouble),
}

impl Trace {
    fn new(output: TraceOutput, meta: Meta) -> Trace {
        let stage = Stage::Pending(output);
        Trace { meta, stage }
    }

    fn begin(&mut self) {
        if let Stage::Pending(_) = self.stage {
            let nothing = Stage::Failed(Trouble(io::ErrorKind::Other.into()));
            if let Stage::Pending(output) = std::mem::replace(&mut self.stage, nothing) {
                self.stage = match Writer::new(output, &self.meta) {
                    Ok(writer) => Stage::Open(Box::new(writer)),
                    Err(error) => Stage::Failed(Trouble(error)),
                };
            }
        }
    }

    fn finish(mut self, duration: Option<Duration>) -> Result<Written, Trouble> {
        self.begin();
        match self.stage {
            Stage::Open(mut writer) => {
                if let Some(duration) = duration {
                    writer.set_duration(duration);
                }
                writer.finish().map_err(Trouble)
            }
            Stage::Failed(trouble) => Err(trouble),
            Stage::Pending(_) => unreachable!("begun above"),
        }
    }

    /// The program was not started, or was lost. Events that came are kept (without a footer,
    /// because the recording did not end in order); without any, all is as it was before.
    fn abandon(self) {
        if let Stage::Pending(output) = self.stage {
            output.abandon();
        }
    }
}

impl EventSink for Trace {
    /// Never fails: the program runs on, and [`finish`](Trace::finish) says what went wrong.
    fn event(&mut self, event: &Event<'_>) -> io::Result<()> {
        self.begin();
        if let Stage::Open(writer) = &mut self.stage
            && let Err(error) = writer.push(event)
        {
            self.stage = Stage::Failed(Trouble(error));
        }
        Ok(())
    }
}

/// A trace that is kept while something else looks at the events.
pub struct Keep {
    trace: Trace,
    path: PathBuf,
    deterministic: bool,
}

impl Keep {
    /// Nothing is written yet.
    pub fn new(output: TraceOutput, launch: &LaunchConfig) -> Keep {
        Keep {
            path: output.path().to_owned(),
            trace: Trace::new(output, meta(launch)),
            deterministic: launch.deterministic,
        }
    }

    /// The run is over.
    pub fn finish(self, wall: Duration) -> Result<(), Failure> {
        let duration = (!self.deterministic).then_some(wall);
        let finished = self.trace.finish(duration);
        finished.map_err(|trouble| trouble.failure(&self.path))?;
        Ok(())
    }

    /// The program was not started, or was lost.
    pub fn abandon(self) {
        self.trace.abandon();
    }
}

impl EventSink for Keep {
    fn event(&mut self, event: &Event<'_>) -> io::Result<()> {
        self.trace.event(event)
    }
}

/// A store log in pmemcheck's form, being written.
struct StoreLog {
    path: PathBuf,
    exporter: Option<Exporter<'static, BufWriter<File>>>,
    trouble: Option<io::Error>,
}

impl StoreLog {
    fn create(path: &Path) -> Result<StoreLog, Failure> {
        let file = File::create(path).map_err(|error| {
            let path = quote(path);
            Failure::usage(format!(
                "cannot write the store log to {path}: {}",
                plain(&error)
            ))
        })?;
        Ok(StoreLog {
            path: path.to_owned(),
            exporter: Some(Exporter::new(BufWriter::new(file))),
            trouble: None,
        })
    }

    fn finish(self) -> Result<(), Failure> {
        let written = match (self.exporter, self.trouble) {
            (_, Some(error)) => Err(error),
            (Some(exporter), None) => exporter.finish(),
            (None, None) => return Ok(()),
        };
        let path = quote(&self.path);
        match written {
            Ok(exported) => {
                message(&log_summary(&path, &exported));
                Ok(())
            }
            Err(error) if MapFault::is_in(&error) => Err(Failure::bug(format!(
                "bug in Brownout: the store log {path} is not whole: {error}"
            ))),
            Err(error) => Err(Failure::cannot_run(format!(
                "the store log {path} is not whole: {}",
                plain(&error)
            ))),
        }
    }
}

impl EventSink for StoreLog {
    /// Never fails: the program runs on, and [`finish`](StoreLog::finish) says what went wrong.
    fn event(&mut self, event: &Event<'_>) -> io::Result<()> {
        if let Some(exporter) = &mut self.exporter
            && let Err(error) = exporter.event(event)
        {
            self.trouble = Some(error);
            self.exporter = None;
        }
        Ok(())
    }
}

fn log_summary(path: &str, exported: &Exported) -> String {
    let mut text = format!(
        "{path}: {}, {}, {} in {}",
        counted(exported.stores, "store"),
        match exported.flushes {
            1 => "1 flush".to_owned(),
            n => grouped(n) + " flushes",
        },
        counted(exported.fences, "fence"),
        bytes(exported.len),
    );
    if exported.threads > 1 {
        text += "; several threads flush or fence, which this form cannot tell apart";
    }
    if exported.stores_left_out > 0 {
        text += &format!("; {} left out", counted(exported.stores_left_out, "store"));
    }
    text
}

/// Counts events by kind.
#[derive(Debug, Default)]
struct Tally {
    /// Frequent kinds move to the front, so that the usual search is a step or two.
    kinds: Vec<(&'static str, u64)>,
    files: u64,
    events: u64,
}

impl EventSink for Tally {
    fn event(&mut self, event: &Event<'_>) -> io::Result<()> {
        self.count(event);
        Ok(())
    }
}

impl Tally {
    fn count(&mut self, event: &Event<'_>) {
        self.events += 1;
        self.files += u64::from(matches!(event.kind, EventKind::File { .. }));
        let name = event.kind.name();
        // Names are constants: their addresses tell them apart, and cheaper than their letters.
        match self
            .kinds
            .iter()
            .position(|(kind, _)| std::ptr::eq(*kind, name))
        {
            Some(at) => {
                self.kinds[at].1 += 1;
                if at > 0 && self.kinds[at - 1].1 < self.kinds[at].1 {
                    self.kinds.swap(at, at - 1);
                }
            }
            None => self.kinds.push((name, 1)),
        }
    }

    /// `store 20,113, clwb 16,080, other 12`: the kinds that say something about persistent
    /// memory, by frequency; definitions and bookkeeping are the rest.
    fn text(&self) -> String {
        const BOOKKEEPING: [&str; 9] = [
            "process_start",
            "process_exit",
            "thread_start",
            "thread_exit",
            "module",
            "context",
            "file",
            "note",
            "end",
        ];
        let (mut other, mut shown) = (0, Vec::new());
        for (kind, count) in &self.kinds {
            match BOOKKEEPING.contains(kind) {
                true => other += count,
                false => shown.push((*kind, *count)),
            }
        }
        shown.sort_by_key(|&(kind, count)| (u64::MAX - count, kind));
        if other > 0 {
            shown.push(("other", other));
        }
        let part = |(kind, count): &(&str, u64)| format!("{kind} {}", grouped(*count));
        shown.iter().map(part).collect::<Vec<_>>().join(", ")
    }
}

fn report(path: Option<&Path>, outcome: &Outcome, tally: &Tally, written: Option<&Written>) {
    for note in &outcome.notes {
        message(&format!("note: {note}"));
    }
    if let (Some(written), Some(path)) = (written, path) {
        message(&summary(path, outcome.wall, tally, written));
    }
}

fn summary(output: &Path, wall: Duration, tally: &Tally, written: &Written) -> String {
    let files = match tally.files {
        0 => "; no persistent memory was seen".to_owned(),
        n => format!(" on {}", counted(n, "PM file")),
    };
    format!(
        "recorded {} in {:.2} s ({}){files}; {}: {}, {:.1} bytes/event",
        counted(tally.events, "event"),
        wall.as_secs_f64(),
        tally.text(),
        quote(output),
        bytes(written.bytes),
        written.bytes as f64 / written.events.max(1) as f64,
    )
}

/// How to have a file tracked that was not.
pub fn hint(path: &PathBuf) -> String {
    let pattern = quote(escape(&path.to_string_lossy()));
    let path = quote(path);
    format!("hint: this program maps {path} writable and shared; add --pm {pattern}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use brownout_trace::event::{
        ContextId, FenceKind, FileId, FlushKind, PmReason, TargetAddr, ThreadId,
    };

    fn event(kind: EventKind<'_>) -> Event<'_> {
        Event {
            thread: ThreadId(1),
            pc: TargetAddr(0),
            context: ContextId(0),
            kind,
        }
    }

    fn tally() -> Tally {
        let mut tally = Tally::default();
        tally.count(&event(EventKind::ThreadExit));
        for _ in 0..1234 {
            let addr = TargetAddr(0);
            tally.count(&event(EventKind::Flush {
                kind: FlushKind::Clwb,
                addr,
            }));
        }
        for _ in 0..3 {
            tally.count(&event(EventKind::Fence(FenceKind::Sfence)));
        }
        tally
    }

    #[test]
    fn summary_names_kinds_files_and_sizes() {
        let mut tally = tally();
        let written = Written {
            events: 1238,
            bytes: 5000,
        };
        let wall = Duration::from_millis(1500);
        let text = summary(Path::new("t.bwt"), wall, &tally, &written);
        assert_eq!(
            text,
            "recorded 1,238 events in 1.50 s (clwb 1,234, sfence 3, other 1); \
             no persistent memory was seen; t.bwt: 5.0 kB, 4.0 bytes/event"
        );
        let (file, size, reason) = (FileId(1), 0, PmReason::Glob);
        tally.count(&event(EventKind::File {
            file,
            path: b"/p",
            size,
            reason,
            created: false,
        }));
        let text = summary(Path::new("t.bwt"), wall, &tally, &written);
        assert!(text.contains("other 2) on 1 PM file; t.bwt"), "{text}");
    }

    #[test]
    fn hints_can_be_pasted() {
        assert_eq!(
            hint(&"/tmp/x".into()),
            "hint: this program maps /tmp/x writable and shared; add --pm /tmp/x"
        );
        assert_eq!(
            hint(&"/tmp/a b[1]".into()),
            r"hint: this program maps '/tmp/a b[1]' writable and shared; add --pm '/tmp/a b\[1\]'"
        );
    }

    /// An output that takes the header and little more.
    #[test]
    fn a_full_disk_says_what_is_readable() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("t");
        let mut writer = Writer::<File>::create(&path, &Meta::default()).unwrap();
        for _ in 0..7 {
            writer.push(&event(EventKind::ThreadExit)).unwrap();
        }
        drop(writer);
        let full = || Trouble(io::Error::from_raw_os_error(libc::ENOSPC));
        let failure = full().failure(&path);
        assert_eq!(failure.code, exit::CANNOT_RUN);
        assert_eq!(
            failure.sentence,
            "recording stopped: No space left on device after 7 events; \
             the trace is readable up to there"
        );
        let failure = full().failure(Path::new("/no/such/file"));
        assert!(
            failure
                .sentence
                .ends_with("after 0 events; there is no readable trace")
        );
        let bug = Trouble(io::ErrorKind::InvalidInput.into()).failure(&path);
        assert_eq!(bug.code, exit::BUG);
    }
}
