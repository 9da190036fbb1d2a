//! `brownout replay TOKEN --gdb store|crash|recovery`: a debugger where it happens.
//!
//! ```text
//!  token ─▶ check again, recorded ─▶ the finding's event ─▶ instruction, place in the pool, how many times before ─▶ gdb, natively
//! ```
//! The program runs twice: once under Brownout, which tells the event, and once natively in gdb,
//! which stops in front of the instruction when it is about to touch the same bytes of the same
//! file for the same time. So all of gdb works there: variables, stepping, watchpoints.
//!
//! Guarantee: gdb is said to have stopped at the event only if instruction, file and offset are
//! those of the recording.
//!
//! Deviations. What a program does otherwise in gdb (time, addresses, other threads) may make it
//! take another way; then it is not stopped, and gdb says so at its end. Fences and other events
//! without an address are told by how often the instruction was executed while the pool was mapped.
//! A finding in a process that the program has started is looked for in a run of that process's
//! command alone.

use std::collections::HashMap;
use std::ffi::OsString;
use std::fs::File;
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use brownout_findings::{Event as Told, Finding, Role};
use brownout_trace::Reader;
use brownout_trace::event::{Event, EventKind, FileId};
use brownout_trace::maps::AddressSpaces;

use crate::exit::Failure;
use crate::terminal::{message, quote};

/// Where to stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Stage {
    /// In front of the store that a crash would lose
    Store,
    /// At the last event of the finding: where the power may fail
    Crash,
    /// In recovery, on the crash image
    Recovery,
}

/// An event as a native run can know it again.
#[derive(Debug, PartialEq, Eq)]
struct Stop {
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

/// The name of the recording.
pub const RECORDING: &str = "run.bwt";

/// What to debug.
pub struct Session<'a> {
    /// What was found.
    pub finding: &'a Finding,
    /// Where to stop.
    pub stage: Stage,
    /// The words of the program's command line.
    pub program: &'a [String],
    /// Its standard input.
    pub stdin: Option<&'a Path>,
}

/// Starts gdb in our place. `folder` holds the recording that shows the finding, under the name of
/// [`RECORDING`], and is removed. Returns only if that fails.
pub fn debug(session: Session<'_>, folder: tempfile::TempDir) -> Result<u8, Failure> {
    let Session {
        finding,
        stage,
        program,
        stdin,
    } = session;
    let told = event_of(finding, stage).ok_or_else(|| {
        Failure::usage("this finding has no event with a place in the code to stop at")
    })?;
    let stop = locate(told, &folder.path().join(RECORDING))?;
    // Whoever is replaced by another program cleans up before.
    drop(folder);
    let program: Vec<OsString> = match finding.origins.first() {
        Some(origin) if !origin.command.is_empty() => {
            message(
                "the finding is in a process that the program starts; gdb runs its command alone",
            );
            origin.command.iter().map(Into::into).collect()
        }
        _ => program.iter().map(Into::into).collect(),
    };
    let cannot = |error: std::io::Error| {
        Failure::cannot_run(format!("cannot write the script for gdb: {error}"))
    };
    let mut script = tempfile::Builder::new()
        .prefix("brownout-gdb-")
        .suffix(".py")
        .tempfile()
        .map_err(cannot)?;
    script
        .write_all(text(&stop, &told.text, stdin).as_bytes())
        .map_err(cannot)?;
    // gdb takes our place and reads it; it removes the script itself.
    let (_, path) = script.keep().map_err(|error| cannot(error.error))?;
    let times = match stop.before {
        0 => String::new(),
        n => format!(", for the {}. time", n + 1),
    };
    message(&format!(
        "starting gdb; it stops where {}{times}",
        told.text
    ));
    run(Command::new("gdb")
        .args(["-q", "-x"])
        .arg(&path)
        .arg("--args")
        .args(&program))
}

/// Runs a command of the shell in our place: the debugger on a crash image.
pub fn in_recovery(command: &str) -> Result<u8, Failure> {
    message(&format!("starting {command}"));
    run(Command::new("sh").args(["-c", command]))
}

fn run(command: &mut Command) -> Result<u8, Failure> {
    let error = command.exec();
    Err(match error.kind() {
        std::io::ErrorKind::NotFound => {
            Failure::cannot_run("there is no gdb; install it, or look at the finding with --show")
        }
        _ => Failure::cannot_run(format!("cannot start gdb: {error}")),
    })
}

/// The event of a finding to stop at.
fn event_of(finding: &Finding, stage: Stage) -> Option<&Told> {
    let has_place = |event: &&Told| event.index.is_some() && !event.stack.is_empty();
    let events: Vec<&Told> = finding.all_events().filter(has_place).collect();
    match stage {
        Stage::Store => {
            let is_store = |event: &&&Told| matches!(event.role, Role::Store | Role::Survivor);
            let store = events.iter().find(is_store);
            store.or(events.first()).copied()
        }
        Stage::Crash => {
            let crash = finding.crash_point.as_ref().filter(has_place);
            crash.or(events.last().copied())
        }
        Stage::Recovery => None,
    }
}

/// What tells an event from others: the instruction, and the bytes of a file that it touches.
type Key = (u64, Option<(FileId, u64)>);

/// Finds the event in its recording, and counts what looks the same before it.
fn locate(told: &Told, trace: &Path) -> Result<Stop, Failure> {
    let damaged = |error: &dyn std::fmt::Display| {
        Failure::cannot_run(format!(
            "cannot read the recording {}: {error}",
            quote(trace)
        ))
    };
    let frame = told.stack.first();
    let (Some(module), Some(wanted)) = (frame.and_then(|frame| frame.module.as_ref()), told.index)
    else {
        return Err(Failure::usage(
            "it is not known which instruction that was: its code was in no file",
        ));
    };
    let offset = frame.map_or(0, |frame| frame.offset);
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
        if index == wanted {
            let bytes = key
                .1
                .and_then(|(file, at)| Some((paths.get(&file)?.clone(), at)));
            let mut pools: Vec<PathBuf> = paths.into_values().collect();
            pools.sort();
            return Ok(Stop {
                module: module.into(),
                offset,
                bytes,
                pools,
                before: seen.get(&key).copied().unwrap_or(0),
            });
        }
        if event.pc.0 != 0 {
            *seen.entry(key).or_default() += 1;
        }
        index += 1;
    }
    Err(Failure::cannot_run(
        "the recording ends before the event of the finding",
    ))
}

fn key(event: &Event<'_>, spaces: &mut AddressSpaces) -> Key {
    let address = match &event.kind {
        EventKind::Flush { addr, .. } => Some(*addr),
        kind => kind.access().map(|access| access.addr),
    };
    let place = address.and_then(|addr| spaces.translate(event.thread, addr));
    (event.pc.0, place.map(|place| (place.file, place.offset)))
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
        let index = |finding: &Finding, stage| event_of(finding, stage).and_then(|e| e.index);
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
