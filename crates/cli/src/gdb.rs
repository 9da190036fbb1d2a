//! `brownout replay TOKEN --gdb store|crash|recovery`: a debugger where it happens.
//!
//! ```text
//!  token ─▶ run again, recorded ─▶ the finding's event ─▶ instruction, place in the pool, how many times before ─▶ gdb, natively
//! ```
//! The program runs twice: once under Brownout, which tells the event, and once natively in gdb,
//! which stops in front of the instruction when it is about to touch the same bytes of the same
//! file for the same time. So all of gdb works there: variables, stepping, watchpoints.
//!
//! Guarantee: gdb is said to have stopped at the event only if instruction, file and offset are
//! those of the recording. Both runs find the same files: each has a private view of the machine,
//! or else the files are put back between them and at the end; so the user's files stay as they
//! are.
//!
//! Deviations. The recorded run is always deterministic (`brownout run --deterministic`), also if
//! the check that has found it was not; the one in gdb never is. So what a program does otherwise
//! there (time, addresses, other threads) may make it take another way; then it is not stopped, and
//! gdb says so at its end. Without `--stdin` both runs read nothing (`/dev/null`), also where the
//! check read from a terminal or a pipe. Fences are told by how often the instruction was executed
//! while the pool was mapped. System calls are not told from each other, so gdb stops at the
//! instruction before them that the finding names. A finding in a process that the program has
//! started is looked for in a run of that process's command alone, in its folder; what it got to
//! read from its parent is not known, and it reads gdb's terminal.

use std::collections::HashMap;
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use brownout_explore::Run;
use brownout_findings::{Event as Told, Finding, Role};
use brownout_host::{Enclosure, LaunchConfig};
use brownout_trace::event::{Event, EventKind, FileId, ProcessId};
use brownout_trace::maps::AddressSpaces;
use brownout_trace::{Beginning, EventSink, Reader};

use crate::cli::Stage;
use crate::exit::{self, Failure};
use crate::output::TraceOutput;
use crate::record::Keep;
use crate::signals;
use crate::terminal::{message, plain, quote};

/// An event as a native run can know it again.
#[derive(Debug, PartialEq, Eq)]
struct Stop {
    /// The number of the event.
    event: u64,
    /// Who executes it.
    process: ProcessId,
    /// The file that holds the instruction.
    module: PathBuf,
    /// The instruction's address in that file's terms.
    offset: u64,
    /// The bytes that it touches: file, offset in it. `None` if it touches none.
    bytes: Option<(PathBuf, u64)>,
    /// Files of persistent memory, one of which is mapped when it counts.
    pools: Vec<PathBuf>,
    /// How many times the same happened before.
    before: u64,
}

/// A recording that is made, with what its programs were started with.
pub struct Witness {
    folder: tempfile::TempDir,
    keep: Keep,
    events: u64,
    /// Which process, how many events before, and what.
    begun: Vec<(ProcessId, u64, Beginning)>,
    /// Who has forked whom, and when.
    forked: HashMap<ProcessId, (ProcessId, u64)>,
}

impl Witness {
    /// Of a program, in a folder of its own.
    pub fn new(program: &brownout_explore::Command) -> Result<Witness, Failure> {
        let cannot = |error: io::Error| {
            Failure::cannot_run(format!("cannot make a folder for the recording: {error}"))
        };
        let folder = tempfile::tempdir().map_err(cannot)?;
        let output = TraceOutput::open(&recording(&folder), false)?;
        let launch = LaunchConfig::new(&program.program, &program.args);
        Ok(Witness {
            folder,
            keep: Keep::new(output, &launch),
            events: 0,
            begun: Vec::new(),
            forked: HashMap::new(),
        })
    }

    /// The run is over.
    pub fn finish(self) -> Result<Seen, Failure> {
        self.keep.finish(Duration::ZERO)?;
        Ok(Seen {
            folder: self.folder,
            begun: self.begun,
            forked: self.forked,
        })
    }
}

impl EventSink for Witness {
    fn event(&mut self, event: &Event<'_>) -> io::Result<()> {
        if let EventKind::ProcessStart {
            process, parent, ..
        } = &event.kind
        {
            // It is told again when it executes another program.
            let forked = (*parent, self.events);
            self.forked.entry(*process).or_insert(forked);
        }
        self.events += 1;
        self.keep.event(event)
    }

    fn beginning(&mut self, process: ProcessId, what: &Beginning) -> io::Result<()> {
        self.begun.push((process, self.events, what.clone()));
        Ok(())
    }
}

fn recording(folder: &tempfile::TempDir) -> PathBuf {
    folder.path().join("run.bwt")
}

/// A run that was recorded.
pub struct Seen {
    folder: tempfile::TempDir,
    begun: Vec<(ProcessId, u64, Beginning)>,
    forked: HashMap<ProcessId, (ProcessId, u64)>,
}

impl Seen {
    /// What a process was executing at an event, if that is not the program of the command line.
    fn started(&self, process: ProcessId, event: u64) -> Option<&Beginning> {
        let (mut process, mut event) = (process, event);
        loop {
            let of = |(one, at, _): &(ProcessId, u64, Beginning)| *one == process && *at <= event;
            if let Some(number) = self.begun.iter().rposition(of) {
                // The first is the program itself.
                return (number > 0).then(|| &self.begun[number].2);
            }
            let (parent, at) = *self.forked.get(&process)?;
            // A parent was there before; else what was recorded is not to be relied on.
            if parent == process || at > event {
                return None;
            }
            (process, event) = (parent, at);
        }
    }
}

/// What to debug.
pub struct Session<'a> {
    /// What was found.
    pub finding: &'a Finding,
    /// Where to stop.
    pub stage: Stage,
    /// The program of the command line.
    pub program: &'a brownout_explore::Command,
    /// The run that shows the finding.
    pub run: Run,
    /// What was recorded of it.
    pub seen: Seen,
}

/// Runs gdb, and says how it has ended.
pub fn debug(session: Session<'_>) -> Result<u8, Failure> {
    let Session {
        finding,
        stage,
        program,
        run,
        seen,
    } = session;
    let told = events_of(finding, stage);
    if told.is_empty() {
        return Err(Failure::usage(
            "this finding has no event with a place in the code to stop at",
        ));
    }
    let (told, stop) = locate(&told, &recording(&seen.folder))?;
    let mut here = std::env::current_dir()
        .map_err(|error| Failure::cannot_run(format!("the current folder is gone: {error}")))?;
    let mut words: Vec<OsString> = vec![program.program.clone()];
    words.extend(program.args.iter().cloned());
    // As the recorded run does.
    let nothing = || PathBuf::from("/dev/null");
    let mut stdin = Some(program.stdin.clone().unwrap_or_else(nothing));
    if let Some(began) = seen.started(stop.process, stop.event)
        && !began.words.is_empty()
    {
        message("the finding is in a process that the program starts; gdb runs its command alone");
        words = began.words.iter().map(Into::into).collect();
        if !began.folder.as_os_str().is_empty() {
            here.clone_from(&began.folder);
        }
        // What it gets to read is its parent's business.
        stdin = None;
    }
    let cannot =
        |error: io::Error| Failure::cannot_run(format!("cannot write the script for gdb: {error}"));
    let mut script = tempfile::Builder::new()
        .prefix("brownout-gdb-")
        .suffix(".py")
        .tempfile()
        .map_err(cannot)?;
    script
        .write_all(text(&stop, &told.text, stdin.as_deref()).as_bytes())
        .map_err(cannot)?;
    message(&format!(
        "starting gdb; it stops where {}{}",
        told.text,
        nth_time(stop.before + 1)
    ));
    let view = run.beginning().map_err(|error| {
        Failure::cannot_run(format!("cannot lay out what the program finds: {error}"))
    })?;
    message(match &view {
        Some(_) => {
            "what the program does to files in gdb is seen by nobody else, and gone at the end"
        }
        None => "the files that the program changes in gdb are put back at the end",
    });
    let mut command = Command::new("gdb");
    command
        .args(["-q", "-x"])
        .arg(script.path())
        .arg("--args")
        .args(&words);
    let ended = run_in(command, view.as_deref(), &here);
    if let Some(view) = &view {
        view.end_all();
    }
    ended
}

/// Runs a program in a view, or else where we are, and waits for it. Ctrl-C is its business.
fn run_in(mut command: Command, view: Option<&Enclosure>, here: &Path) -> Result<u8, Failure> {
    match view {
        Some(view) => {
            let enter = view.enter(here);
            let enter = enter.map_err(|error| {
                Failure::cannot_run(format!("cannot go into {}: {error}", quote(here)))
            })?;
            // SAFETY: it makes system calls only, and the view lives until the program has ended.
            unsafe { command.pre_exec(enter) };
        }
        None => {
            command.current_dir(here);
        }
    }
    signals::leave_those_of_terminals()?;
    match command.status() {
        Ok(status) => Ok(status.code().map_or(exit::CANNOT_RUN, |code| code as u8)),
        Err(error) => Err(no_gdb(&error)),
    }
}

fn no_gdb(error: &io::Error) -> Failure {
    Failure::cannot_run(match error.kind() {
        io::ErrorKind::NotFound => {
            "there is no gdb; install it, or look at the finding with --show".to_owned()
        }
        _ => format!("cannot start gdb: {}", plain(error)),
    })
}

/// Runs a command of the shell in our place: the debugger on a crash image.
pub fn in_recovery(command: &str) -> Result<u8, Failure> {
    message(&format!("starting {command}"));
    run(Command::new("sh").args(["-c", command]))
}

fn run(command: &mut Command) -> Result<u8, Failure> {
    Err(no_gdb(&command.exec()))
}

/// The events of a finding to stop at, the best first.
fn events_of(finding: &Finding, stage: Stage) -> Vec<&Told> {
    let has_place = |event: &&Told| event.index.is_some() && !event.stack.is_empty();
    let events = finding.all_events().filter(has_place);
    match stage {
        Stage::Store => {
            let is_store = |event: &&Told| matches!(event.role, Role::Store | Role::Survivor);
            let (stores, others): (Vec<&Told>, Vec<&Told>) = events.partition(is_store);
            stores.into_iter().chain(others).collect()
        }
        Stage::Crash => {
            let crash = finding.crash_point.as_ref().filter(has_place);
            let mut events: Vec<&Told> = events.filter(|event| Some(*event) != crash).collect();
            events.extend(crash);
            events.reverse();
            events
        }
        Stage::Recovery => Vec::new(),
    }
}

/// What tells an event from others: who executes, the instruction, and the bytes of a file that it
/// touches.
type Key = (Option<ProcessId>, u64, Option<(FileId, u64)>);

/// Finds the first of these events that gdb can stop at in their recording, and counts what looks
/// the same before it.
fn locate<'t>(told: &[&'t Told], trace: &Path) -> Result<(&'t Told, Stop), Failure> {
    let damaged = |error: &dyn std::fmt::Display| {
        Failure::cannot_run(format!(
            "cannot read the recording {}: {error}",
            quote(trace)
        ))
    };
    let wanted: HashMap<u64, &Told> = told
        .iter()
        .filter_map(|event| Some((event.index?, *event)))
        .collect();
    let mut stops: HashMap<u64, Stop> = HashMap::new();
    let mut reader = Reader::<File>::open(trace).map_err(|error| damaged(&error))?;
    let mut spaces = AddressSpaces::new();
    let mut paths: HashMap<FileId, PathBuf> = HashMap::new();
    let mut seen: HashMap<Key, u64> = HashMap::new();
    let mut index = 0;
    while let Some(event) = reader.next().map_err(|error| damaged(&error))? {
        spaces.observe(&event).map_err(|error| damaged(&error))?;
        if let EventKind::File { file, path, .. } = event.kind {
            let path = String::from_utf8_lossy(path).into_owned();
            paths.insert(file, path.into());
        }
        let key = key(&event, &mut spaces);
        if let Some(told) = wanted.get(&index)
            && is_instruction(&event.kind)
            && let Some(frame) = told.stack.first()
            && let Some(module) = &frame.module
        {
            let bytes = key.2;
            let bytes = bytes.and_then(|(file, at)| Some((paths.get(&file)?.clone(), at)));
            let stop = Stop {
                event: index,
                process: key.0.unwrap_or_default(),
                module: module.into(),
                offset: frame.offset,
                bytes,
                pools: Vec::new(),
                before: seen.get(&key).copied().unwrap_or(0),
            };
            stops.insert(index, stop);
        }
        if event.pc.0 != 0 {
            *seen.entry(key).or_default() += 1;
        }
        index += 1;
    }
    let best = told.iter().find_map(|event| {
        let stop = stops.remove(&event.index?)?;
        Some((*event, stop))
    });
    let (event, mut stop) = best.ok_or_else(|| {
        Failure::usage(
            "gdb can stop at stores, write-backs and fences that are in a file's code, and this finding has none there",
        )
    })?;
    stop.pools = paths.into_values().collect();
    stop.pools.sort();
    Ok((event, stop))
}

/// What one instruction does by itself. Calls of the kernel are made by the same instruction of the
/// C library, whatever they are.
fn is_instruction(kind: &EventKind<'_>) -> bool {
    let is_kernel = matches!(kind, EventKind::KernelStore { .. });
    let touches = kind.access().is_some() || matches!(kind, EventKind::Flush { .. });
    touches && !is_kernel || matches!(kind, EventKind::Fence { .. })
}

fn key(event: &Event<'_>, spaces: &mut AddressSpaces) -> Key {
    let address = match &event.kind {
        EventKind::Flush { addr, .. } => Some(*addr),
        kind => kind.access().map(|access| access.addr),
    };
    let place = address.and_then(|addr| spaces.translate(event.thread, addr));
    let place = place.map(|place| (place.file, place.offset));
    (spaces.process_of(event.thread), event.pc.0, place)
}

/// The how manieth time it is, in words, unless it is the first.
fn nth_time(number: u64) -> String {
    let ending = match (number % 100, number % 10) {
        (11..=13, _) => "th",
        (_, 1) => "st",
        (_, 2) => "nd",
        (_, 3) => "rd",
        _ => "th",
    };
    match number {
        1 => String::new(),
        number => format!(", for the {number}{ending} time"),
    }
}

/// The script: Python, which gdb has built in.
fn text(stop: &Stop, told: &str, stdin: Option<&Path>) -> String {
    // JSON's strings are Python's, too, but for bytes that are no text, which paths here are not.
    let literal = |text: &str| serde_json::Value::from(text).to_string();
    let path = |path: &Path| literal(&path.to_string_lossy());
    let pools: Vec<String> = stop.pools.iter().map(|pool| path(pool)).collect();
    let bytes = match &stop.bytes {
        Some((file, offset)) => format!("({}, {offset})", path(file)),
        None => "None".to_owned(),
    };
    let stdin = stdin.map_or("None".to_owned(), path);
    format!(
        "MODULE = {}\nOFFSET = {:#x}\nBYTES = {bytes}\nPOOLS = [{}]\nBEFORE = {}\nTOLD = {}\nSTDIN = {stdin}\n{SCRIPT}",
        path(&stop.module),
        stop.offset,
        pools.join(", "),
        stop.before,
        literal(told),
    )
}

const SCRIPT: &str = include_str!("gdb.py");

#[cfg(test)]
mod tests {
    use super::*;
    use brownout_findings::{Frame, Severity};

    #[test]
    fn times_are_counted_in_english() {
        let all = [1, 2, 3, 4, 11, 12, 13, 21, 22, 101, 111].map(nth_time);
        let expected = [
            "", "2nd", "3rd", "4th", "11th", "12th", "13th", "21st", "22nd", "101st", "111th",
        ];
        for (one, expected) in all.iter().zip(expected) {
            assert_eq!(one.split(' ').nth(3).unwrap_or_default(), expected);
        }
    }

    fn told(role: Role, index: u64) -> Told {
        Told {
            role,
            text: format!("event {index}"),
            index: Some(index),
            stack: vec![Frame::default()],
            ..Told::default()
        }
    }

    #[test]
    fn each_stage_has_its_event() {
        let mut finding = Finding::new("missing-flush", Severity::Correctness, "m");
        finding.events = vec![
            told(Role::Flush, 3),
            told(Role::Store, 5),
            told(Role::Fence, 9),
        ];
        let index =
            |finding: &Finding, stage| events_of(finding, stage).first().and_then(|e| e.index);
        assert_eq!(index(&finding, Stage::Store), Some(5));
        assert_eq!(index(&finding, Stage::Crash), Some(9));
        assert_eq!(index(&finding, Stage::Recovery), None);
        finding.crash_point = Some(told(Role::Exit, 7));
        assert_eq!(index(&finding, Stage::Crash), Some(7));
        finding.events.clear();
        finding.crash_point = None;
        assert_eq!(index(&finding, Stage::Store), None);
    }

    #[test]
    fn names_cannot_become_code() {
        let stop = Stop {
            event: 0,
            process: ProcessId(1),
            module: "/a\"; import os #\n".into(),
            offset: 16,
            bytes: Some(("/p'\\\"".into(), 64)),
            pools: vec!["/p".into()],
            before: 2,
        };
        let script = text(&stop, "8 bytes\nhere", None);
        let head: Vec<&str> = script.lines().take(7).collect();
        assert_eq!(head[0], r#"MODULE = "/a\"; import os #\n""#);
        assert_eq!(head[2], r#"BYTES = ("/p'\\\"", 64)"#);
        assert_eq!(head[5], r#"TOLD = "8 bytes\nhere""#);
        assert_eq!(head[6], "STDIN = None");
    }
}
