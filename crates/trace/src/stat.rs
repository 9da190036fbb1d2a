//! A summary of a trace: what `brownout trace stat` prints.
//!
//! Reads the whole trace once. A damaged or cut-off trace is summarised as far as it is readable,
//! and the summary says so in [`Stat::ending`]; it is never mistaken for a whole one.

use std::collections::BTreeMap;
use std::fmt;
use std::io::{Read, Seek};

use serde::Serialize;

use crate::dump::one_line;
use crate::error::Error;
use crate::event::{Event, EventKind, FileId};
use crate::format::Meta;
use crate::maps::AddressSpaces;
use crate::reader::Reader;

/// Notes that are kept; a recording has few.
const NOTES_MAX: usize = 100;

/// How the trace ends.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Ending {
    /// The recording ended in order.
    Complete,
    /// The recorder was stopped, or its disk was full: counts are those of the whole blocks.
    CutOff {
        /// One sentence.
        error: String,
    },
    /// The file is damaged: counts are those before the damage.
    Corrupt {
        /// One sentence.
        error: String,
    },
}

/// What happened to one tracked file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct FileStat {
    /// Its path.
    pub path: String,
    /// Size at first sight, bytes.
    pub size_bytes: u64,
    /// Why it is tracked.
    pub reason: &'static str,
    /// Stores of all kinds, those of the kernel included.
    pub stores: u64,
    /// Bytes that they wrote.
    pub stored_bytes: u64,
    /// Loads.
    pub loads: u64,
    /// Cache-line write-backs.
    pub flushes: u64,
    /// Writes through descriptors.
    pub file_writes: u64,
}

/// The summary. Serialises to JSON with these names.
#[derive(Clone, Debug, Serialize)]
pub struct Stat {
    /// What the trace says about its making.
    pub meta: Meta,
    /// Events read.
    pub events: u64,
    /// Length of the trace file.
    pub bytes: u64,
    /// Blocks read.
    pub blocks: u64,
    /// `bytes / events`; 0 without events.
    pub bytes_per_event: f64,
    /// How long the run took, if the recorder left it.
    pub duration_s: Option<f64>,
    /// How the trace ends.
    pub ending: Ending,
    /// How the first process ended, if the recording got there.
    pub exit: Option<String>,
    /// Events by kind.
    pub by_kind: BTreeMap<&'static str, u64>,
    /// Events by thread.
    pub by_thread: BTreeMap<u32, u64>,
    /// Processes started.
    pub processes: u64,
    /// Tracked files by number.
    pub files: BTreeMap<u32, FileStat>,
    /// Accesses and flushes outside every tracked mapping.
    pub outside: u64,
    /// What the recorder wanted to be known (the first hundred).
    pub notes: Vec<String>,
}

impl Stat {
    /// Reads the trace to its end. Fails only if the operating system does.
    pub fn collect<R: Read + Seek>(reader: &mut Reader<R>) -> Result<Stat, Error> {
        let mut stat = Stat {
            meta: reader.meta().clone(),
            events: 0,
            bytes: reader.byte_count(),
            blocks: 0,
            bytes_per_event: 0.0,
            duration_s: reader.duration().map(|duration| duration.as_secs_f64()),
            ending: Ending::Complete,
            exit: None,
            by_kind: BTreeMap::new(),
            by_thread: BTreeMap::new(),
            processes: 0,
            files: BTreeMap::new(),
            outside: 0,
            notes: Vec::new(),
        };
        let mut spaces = AddressSpaces::new();
        loop {
            match reader.next() {
                Ok(Some(event)) => stat.count(&event, &mut spaces),
                Ok(None) => break,
                Err(error @ Error::Io { .. }) => return Err(error),
                Err(error @ Error::Truncated(_)) => {
                    stat.ending = Ending::CutOff {
                        error: error.to_string(),
                    };
                    break;
                }
                Err(error) => {
                    stat.ending = Ending::Corrupt {
                        error: error.to_string(),
                    };
                    break;
                }
            }
        }
        stat.blocks = reader.block_count();
        if stat.events > 0 {
            stat.bytes_per_event = stat.bytes as f64 / stat.events as f64;
        }
        Ok(stat)
    }

    fn count(&mut self, event: &Event<'_>, spaces: &mut AddressSpaces) {
        self.events += 1;
        *self.by_kind.entry(event.kind.name()).or_default() += 1;
        *self.by_thread.entry(event.thread.0).or_default() += 1;
        // Contradictions in the stream are the verifier's business; here they count as outside.
        let _ = spaces.observe(event);
        match event.kind {
            EventKind::File {
                file,
                path,
                size,
                reason,
                ..
            } => {
                let entry = self.files.entry(file.0).or_default();
                entry.path = one_line(path);
                entry.size_bytes = size;
                entry.reason = reason.name();
            }
            EventKind::Load(access) => {
                let at = spaces.translate(event.thread, access.addr);
                self.at_file(at.map(|at| at.file), |file| file.loads += 1);
            }
            EventKind::Store(access)
            | EventKind::NtStore(access)
            | EventKind::Rmw(access)
            | EventKind::StringStore { access, .. }
            | EventKind::KernelStore { access, .. } => {
                let at = spaces.translate(event.thread, access.addr);
                self.at_file(at.map(|at| at.file), |file| {
                    file.stores += 1;
                    file.stored_bytes += u64::from(access.size);
                });
            }
            EventKind::Flush { addr, .. } => {
                let at = spaces.translate(event.thread, addr);
                self.at_file(at.map(|at| at.file), |file| file.flushes += 1);
            }
            EventKind::FileWrite { file, .. } => {
                self.at_file(Some(file), |file| file.file_writes += 1);
            }
            EventKind::ProcessStart { .. } => self.processes += 1,
            EventKind::Note { text } if self.notes.len() < NOTES_MAX => {
                self.notes.push(one_line(text));
            }
            EventKind::End { status } => self.exit = Some(status.to_string()),
            _ => {}
        }
    }

    fn at_file(&mut self, file: Option<FileId>, count: impl FnOnce(&mut FileStat)) {
        match file.and_then(|file| self.files.get_mut(&file.0)) {
            Some(stat) => count(stat),
            None => self.outside += 1,
        }
    }
}

impl fmt::Display for Stat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.meta.command.is_empty() {
            writeln!(
                f,
                "command     {}",
                one_line(self.meta.command.join(" ").as_bytes())
            )?;
        }
        if !self.meta.tool.is_empty() {
            writeln!(f, "recorded by {}", one_line(self.meta.tool.as_bytes()))?;
        }
        if let Some(duration) = self.duration_s {
            writeln!(f, "duration    {duration:.3} s")?;
        }
        match &self.ending {
            Ending::Complete => writeln!(f, "ending      complete")?,
            Ending::CutOff { error } => writeln!(f, "ending      CUT OFF: {error}")?,
            Ending::Corrupt { error } => writeln!(f, "ending      CORRUPT: {error}")?,
        }
        if let Some(exit) = &self.exit {
            writeln!(f, "program     {exit}")?;
        }
        writeln!(
            f,
            "events      {} in {} blocks, {} bytes, {:.2} bytes an event",
            self.events, self.blocks, self.bytes, self.bytes_per_event
        )?;
        for (kind, count) in &self.by_kind {
            writeln!(f, "  {kind:<14}{count:>12}")?;
        }
        writeln!(
            f,
            "threads     {} in {} processes",
            self.by_thread.len(),
            self.processes
        )?;
        for (thread, count) in &self.by_thread {
            writeln!(f, "  {thread:<14}{count:>12}")?;
        }
        writeln!(f, "pm files    {}", self.files.len())?;
        for (file, stat) in &self.files {
            writeln!(
                f,
                "  {file:<3} {} ({} bytes, {}): {} stores of {} bytes, {} flushes, {} loads, {} file writes",
                stat.path,
                stat.size_bytes,
                stat.reason,
                stat.stores,
                stat.stored_bytes,
                stat.flushes,
                stat.loads,
                stat.file_writes
            )?;
        }
        if self.outside > 0 {
            writeln!(
                f,
                "  {} accesses and flushes outside tracked mappings",
                self.outside
            )?;
        }
        for note in &self.notes {
            writeln!(f, "note        {note}")?;
        }
        Ok(())
    }
}
