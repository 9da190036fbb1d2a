//! Proves that a recording is complete: initial content plus recorded writes must give the final
//! content of every tracked file, byte for byte.
//!
//! Which way it errs: it never calls a complete recording incomplete, as long as nobody but the
//! recorded program wrote the files during the run. It may miss an omission that leaves no trace:
//! a lost write that was overwritten later, or that wrote what was there already. It checks no
//! loads, flushes or fences, and the order of events only as far as it shows in the content.
//!
//! Use: feed all events in order, then compare. The caller supplies snapshots of the initial
//! content (see [`copy_sparse`]), which must be taken before the program first writes.
//!
//! Bounds: memory grows with the number of written lines up to
//! [`VerifierOptions::lines_max`] (beyond it, mismatches are still found but may name no event)
//! and scratch disk with the written part of the files. The report lists the first
//! [`VerifierOptions::reports_max`] mismatches and inconsistencies, and counts all.
//!
//! Deviations:
//!
//! 1. Bytes stored between the end of a file and the end of its last page are dropped, as the
//!    kernel does when it writes the page back.
//! 2. Two files that are one (hard links) must have one number; the recorder sees to that.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fmt;
use std::fs::File;
use std::hash::{BuildHasherDefault, Hasher};
use std::io;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

pub use crate::image::copy_sparse;

use crate::event::{Access, ContextId, Event, EventKind, FileId, TargetAddr, ThreadId};
use crate::image::{Image, data_ranges, union};
use crate::maps::{AddressSpaces, MapFault};

const LINE: u64 = 64;
const PAGE: u64 = 4096;
/// Compared at a time.
const WINDOW: u64 = 1 << 20;

/// Limits of a verification.
#[derive(Clone, Debug)]
pub struct VerifierOptions {
    /// Lines whose last writer is remembered. Default 8 million (about half a gigabyte of pool, and
    /// as much memory); later lines still compare, their mismatches name the nearest known event.
    pub lines_max: usize,
    /// Mismatches and inconsistencies that are listed. Default 16: the first ones explain the rest.
    pub reports_max: usize,
}

impl Default for VerifierOptions {
    fn default() -> Self {
        VerifierOptions {
            lines_max: 8 << 20,
            reports_max: 16,
        }
    }
}

/// The event that last wrote some line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Writing {
    /// Its index in the stream.
    pub event: u64,
    /// Its kind, as `dump` names it.
    pub kind: &'static str,
    /// Who.
    pub thread: ThreadId,
    /// The instruction.
    pub pc: TargetAddr,
    /// Its calling context.
    pub context: ContextId,
    /// First byte written, in the file.
    pub offset: u64,
    /// Bytes written.
    pub size: u32,
}

impl fmt::Display for Writing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "event {} ({} of {} bytes to offset {:#x} by thread {} at {}, context {})",
            self.event, self.kind, self.size, self.offset, self.thread, self.pc, self.context
        )
    }
}

/// A stretch of a file, inside one 64-byte line, that is not as the recording says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mismatch {
    /// The file.
    pub path: PathBuf,
    /// First differing byte.
    pub offset: u64,
    /// What the recording makes of it, up to the last differing byte of the line.
    pub expected: Vec<u8>,
    /// What is in the file.
    pub actual: Vec<u8>,
    /// The recorded event nearest to the place: the last one that wrote this line or, if none
    /// did, the last one that wrote the nearest written line.
    pub nearest: Option<Writing>,
}

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} differs at offset {:#x}: recorded",
            self.path.display(),
            self.offset
        )?;
        for byte in &self.expected {
            write!(f, " {byte:02x}")?;
        }
        f.write_str(", found")?;
        for byte in &self.actual {
            write!(f, " {byte:02x}")?;
        }
        match &self.nearest {
            Some(writing) => write!(f, "; nearest is {writing}"),
            None => f.write_str("; no recorded event wrote this file"),
        }
    }
}

/// Something in the stream that cannot be, whatever the files contain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Inconsistency {
    /// A write to an address outside every tracked mapping of its process.
    Unmapped {
        /// Index of the event.
        event: u64,
        /// Who.
        thread: ThreadId,
        /// The instruction.
        pc: TargetAddr,
        /// First such byte.
        addr: TargetAddr,
    },
    /// A write behind the last page of its file.
    BehindEnd {
        /// Index of the event.
        event: u64,
        /// Which.
        path: PathBuf,
        /// First such byte.
        offset: u64,
    },
    /// A file that was never defined.
    UnknownFile {
        /// Index of the event.
        event: u64,
        /// Which.
        file: FileId,
    },
    /// A file that was defined twice.
    FileDefinedTwice {
        /// Index of the event.
        event: u64,
        /// Which.
        file: FileId,
    },
    /// A write without its bytes: the recording was made without values.
    NoValues {
        /// Index of the event.
        event: u64,
    },
    /// Threads, processes or mappings contradict what came before.
    Mapping {
        /// Index of the event.
        event: u64,
        /// How.
        fault: MapFault,
    },
}

impl fmt::Display for Inconsistency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Inconsistency::Unmapped {
                event,
                thread,
                pc,
                addr,
            } => write!(
                f,
                "event {event}: thread {thread} at {pc} writes to {addr}, where no tracked file is mapped"
            ),
            Inconsistency::BehindEnd {
                event,
                path,
                offset,
            } => write!(
                f,
                "event {event}: a write to {} at {offset:#x} lies behind the end of the file",
                path.display()
            ),
            Inconsistency::UnknownFile { event, file } => {
                write!(f, "event {event}: file {file} was never defined")
            }
            Inconsistency::FileDefinedTwice { event, file } => {
                write!(f, "event {event}: file {file} is defined a second time")
            }
            Inconsistency::NoValues { event } => {
                write!(
                    f,
                    "event {event}: the recording has no values, so it cannot be verified"
                )
            }
            Inconsistency::Mapping { event, fault } => write!(f, "event {event}: {fault}"),
        }
    }
}

/// A file that was compared, or could not be.
#[derive(Debug)]
pub struct FileOutcome {
    /// Its number.
    pub file: FileId,
    /// Its path as recorded.
    pub path: PathBuf,
    /// Size according to the recording.
    pub size_expected: u64,
    /// Size found.
    pub size_actual: u64,
    /// Bytes that differ, not counting a difference in size.
    pub bytes_different: u64,
    /// Why it could not be compared.
    pub unavailable: Option<io::Error>,
}

/// The result of a verification.
#[derive(Debug)]
pub struct VerifyReport {
    /// All tracked files, by number.
    pub files: Vec<FileOutcome>,
    /// The first mismatches, by file and offset.
    pub mismatches: Vec<Mismatch>,
    /// Lines that differ, listed or not.
    pub mismatches_total: u64,
    /// The first inconsistencies, by event.
    pub inconsistencies: Vec<Inconsistency>,
    /// All of them, listed or not.
    pub inconsistencies_total: u64,
    /// Events fed.
    pub events: u64,
}

impl VerifyReport {
    /// The recording is complete as far as this can tell, and every file could be compared.
    pub fn is_ok(&self) -> bool {
        self.mismatches_total == 0
            && self.inconsistencies_total == 0
            && self
                .files
                .iter()
                .all(|file| file.unavailable.is_none() && file.size_expected == file.size_actual)
    }
}

impl fmt::Display for VerifyReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for item in &self.inconsistencies {
            writeln!(f, "{item}")?;
        }
        let unlisted = self.inconsistencies_total - self.inconsistencies.len() as u64;
        if unlisted > 0 {
            writeln!(f, "… and {unlisted} more inconsistencies")?;
        }
        for file in &self.files {
            if let Some(error) = &file.unavailable {
                writeln!(f, "{} could not be compared: {error}", file.path.display())?;
            } else if file.size_expected != file.size_actual {
                writeln!(
                    f,
                    "{} has {} bytes, by the recording it has {}",
                    file.path.display(),
                    file.size_actual,
                    file.size_expected
                )?;
            }
        }
        for item in &self.mismatches {
            writeln!(f, "{item}")?;
        }
        let unlisted = self.mismatches_total - self.mismatches.len() as u64;
        if unlisted > 0 {
            writeln!(f, "… and {unlisted} more lines differ")?;
        }
        let verdict = if self.is_ok() {
            "verified"
        } else {
            "NOT verified"
        };
        write!(
            f,
            "{verdict}: {} files, {} events",
            self.files.len(),
            self.events
        )
    }
}

/// The scratch files failed, or a snapshot could not be read; says nothing about the recording.
#[derive(Debug)]
pub struct VerifyError {
    /// The tracked file that was being followed.
    pub path: PathBuf,
    /// What happened.
    pub source: io::Error,
}

impl fmt::Display for VerifyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "cannot follow the content of {}: {}",
            self.path.display(),
            self.source
        )
    }
}

impl std::error::Error for VerifyError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.source)
    }
}

/// Tells where the initial content of a file is: the path of a snapshot, or `None` if the file
/// was empty or all zeros.
pub type SnapshotOf<'a> = dyn FnMut(FileId, &Path) -> io::Result<Option<PathBuf>> + Send + 'a;

struct Tracked {
    path: PathBuf,
    image: Image,
    /// Last writer of each written line.
    writings: HashMap<u64, Writing, BuildHasherDefault<LineHasher>>,
}

/// Follows the content of all tracked files along a stream.
pub struct Verifier<'a> {
    options: VerifierOptions,
    scratch_dir: PathBuf,
    snapshot_of: Box<SnapshotOf<'a>>,
    spaces: AddressSpaces,
    /// Sorted by number; few, so that a look-up by search is fast.
    files: Vec<(FileId, Tracked)>,
    lines: usize,
    event: u64,
    inconsistencies: Vec<Inconsistency>,
    inconsistencies_total: u64,
}

impl<'a> Verifier<'a> {
    /// Scratch files go to `scratch_dir` and have no names.
    pub fn new(
        scratch_dir: &Path,
        options: VerifierOptions,
        snapshot_of: impl FnMut(FileId, &Path) -> io::Result<Option<PathBuf>> + Send + 'a,
    ) -> Verifier<'a> {
        Verifier {
            options,
            scratch_dir: scratch_dir.to_owned(),
            snapshot_of: Box::new(snapshot_of),
            spaces: AddressSpaces::new(),
            files: Vec::new(),
            lines: 0,
            event: 0,
            inconsistencies: Vec::new(),
            inconsistencies_total: 0,
        }
    }

    /// Takes the next event. All events of the recording must come, in order.
    pub fn feed(&mut self, event: &Event<'_>) -> Result<(), VerifyError> {
        let index = self.event;
        self.event += 1;
        if let Err(fault) = self.spaces.observe(event) {
            self.report(Inconsistency::Mapping {
                event: index,
                fault,
            });
        }
        match event.kind {
            EventKind::Store(access)
            | EventKind::NtStore(access)
            | EventKind::Rmw(access)
            | EventKind::StringStore { access, .. }
            | EventKind::KernelStore { access, .. } => self.store(index, event, &access)?,
            EventKind::FileWrite {
                file,
                offset,
                size,
                bytes,
            } => {
                if bytes.len() != size as usize {
                    self.report(Inconsistency::NoValues { event: index });
                    return Ok(());
                }
                let Some(nth) = self.find(index, file) else {
                    return Ok(());
                };
                let end = offset.saturating_add(bytes.len() as u64);
                if end > self.files[nth].1.image.len() {
                    self.truncate(nth, end)?;
                }
                self.write(index, event, nth, offset, bytes)?;
            }
            EventKind::Truncate { file, size } => {
                if let Some(nth) = self.find(index, file) {
                    self.truncate(nth, size)?;
                }
            }
            EventKind::File {
                file, path, size, ..
            } => self.define(index, file, path, size)?,
            _ => {}
        }
        Ok(())
    }

    fn define(
        &mut self,
        index: u64,
        file: FileId,
        path: &[u8],
        size: u64,
    ) -> Result<(), VerifyError> {
        let path = PathBuf::from(OsStr::from_bytes(path));
        let Err(nth) = self.files.binary_search_by_key(&file, |(id, _)| *id) else {
            self.report(Inconsistency::FileDefinedTwice { event: index, file });
            return Ok(());
        };
        let image = (self.snapshot_of)(file, &path)
            .and_then(|snapshot| snapshot.map(File::open).transpose())
            .and_then(|snapshot| Image::new(&self.scratch_dir, snapshot, size));
        match image {
            Ok(image) => {
                let tracked = Tracked {
                    path,
                    image,
                    writings: HashMap::default(),
                };
                self.files.insert(nth, (file, tracked));
                Ok(())
            }
            Err(source) => Err(VerifyError { path, source }),
        }
    }

    fn store(
        &mut self,
        index: u64,
        event: &Event<'_>,
        access: &Access<'_>,
    ) -> Result<(), VerifyError> {
        if access.bytes.len() != access.size as usize {
            self.report(Inconsistency::NoValues { event: index });
            return Ok(());
        }
        let mut addr = access.addr;
        let mut rest = access.bytes;
        // A store may run from one mapping into the next.
        while !rest.is_empty() {
            let Some(place) = self.spaces.translate(event.thread, addr) else {
                let (thread, pc) = (event.thread, event.pc);
                self.report(Inconsistency::Unmapped {
                    event: index,
                    thread,
                    pc,
                    addr,
                });
                return Ok(());
            };
            let here = place.contiguous.min(rest.len() as u64) as usize;
            let (bytes, later) = rest.split_at(here);
            let Some(nth) = self.find(index, place.file) else {
                return Ok(());
            };
            let len = self.files[nth].1.image.len();
            let mapped_end = len.div_ceil(PAGE).saturating_mul(PAGE);
            if place.offset.saturating_add(here as u64) > mapped_end {
                let offset = place.offset.max(mapped_end);
                let path = self.files[nth].1.path.clone();
                self.report(Inconsistency::BehindEnd {
                    event: index,
                    path,
                    offset,
                });
            }
            let in_file = len.saturating_sub(place.offset).min(here as u64) as usize;
            self.write(index, event, nth, place.offset, &bytes[..in_file])?;
            addr = TargetAddr(addr.0.wrapping_add(here as u64));
            rest = later;
        }
        Ok(())
    }

    fn find(&mut self, index: u64, file: FileId) -> Option<usize> {
        match self.files.binary_search_by_key(&file, |(id, _)| *id) {
            Ok(nth) => Some(nth),
            Err(_) => {
                self.report(Inconsistency::UnknownFile { event: index, file });
                None
            }
        }
    }

    fn truncate(&mut self, nth: usize, len: u64) -> Result<(), VerifyError> {
        let tracked = &mut self.files[nth].1;
        tracked.image.truncate(len).map_err(|source| VerifyError {
            path: tracked.path.clone(),
            source,
        })
    }

    /// `bytes` lie inside the file.
    fn write(
        &mut self,
        index: u64,
        event: &Event<'_>,
        nth: usize,
        offset: u64,
        bytes: &[u8],
    ) -> Result<(), VerifyError> {
        if bytes.is_empty() {
            return Ok(());
        }
        let tracked = &mut self.files[nth].1;
        if let Err(source) = tracked.image.write(offset, bytes) {
            return Err(VerifyError {
                path: tracked.path.clone(),
                source,
            });
        }
        let writing = Writing {
            event: index,
            kind: event.kind.name(),
            thread: event.thread,
            pc: event.pc,
            context: event.context,
            offset,
            size: bytes.len() as u32,
        };
        for line in offset / LINE..=(offset + bytes.len() as u64 - 1) / LINE {
            if let Some(known) = tracked.writings.get_mut(&line) {
                *known = writing;
            } else if self.lines < self.options.lines_max {
                tracked.writings.insert(line, writing);
                self.lines += 1;
            }
        }
        Ok(())
    }

    fn report(&mut self, inconsistency: Inconsistency) {
        self.inconsistencies_total += 1;
        if self.inconsistencies.len() < self.options.reports_max {
            self.inconsistencies.push(inconsistency);
        }
    }

    /// Compares with the files as they are now, at their recorded paths.
    pub fn finish(self) -> VerifyReport {
        self.finish_with(|_, path| path.to_owned())
    }

    /// Compares with the files that `actual` names, such as copies, or `/proc/self/fd/N` for one
    /// that has lost its name.
    pub fn finish_with(self, mut actual: impl FnMut(FileId, &Path) -> PathBuf) -> VerifyReport {
        let mut report = VerifyReport {
            files: Vec::new(),
            mismatches: Vec::new(),
            mismatches_total: 0,
            inconsistencies: self.inconsistencies,
            inconsistencies_total: self.inconsistencies_total,
            events: self.event,
        };
        for (file, tracked) in &self.files {
            let mut outcome = FileOutcome {
                file: *file,
                path: tracked.path.clone(),
                size_expected: tracked.image.len(),
                size_actual: 0,
                bytes_different: 0,
                unavailable: None,
            };
            let path = actual(*file, &tracked.path);
            let limit = self.options.reports_max;
            if let Err(error) = compare(tracked, &path, limit, &mut outcome, &mut report) {
                outcome.unavailable = Some(error);
            }
            report.files.push(outcome);
        }
        report
    }
}

fn compare(
    tracked: &Tracked,
    path: &Path,
    limit: usize,
    outcome: &mut FileOutcome,
    report: &mut VerifyReport,
) -> io::Result<()> {
    let file = File::open(path)?;
    outcome.size_actual = file.metadata()?.len();
    let len = outcome.size_actual.min(outcome.size_expected);
    // Where neither has data both are zeros.
    let mut ranges = tracked.image.data_ranges()?;
    ranges.extend(data_ranges(&file, len)?);
    let mut expected = vec![0; WINDOW as usize];
    let mut actual = vec![0; WINDOW as usize];
    for range in union(ranges) {
        // Whole lines, so that a line is compared once.
        let end = range.end.min(len);
        let mut at = range.start / LINE * LINE;
        while at < end {
            let part_len = (end - at).min(WINDOW) as usize;
            let (expected, actual) = (&mut expected[..part_len], &mut actual[..part_len]);
            tracked.image.read(at, expected)?;
            file.read_exact_at(actual, at)?;
            if expected != actual {
                for difference in differing_stretches(expected, actual) {
                    let offset = at + difference.start as u64;
                    let (expected, actual) =
                        (&expected[difference.clone()], &actual[difference.clone()]);
                    outcome.bytes_different +=
                        expected.iter().zip(actual).filter(|(a, b)| a != b).count() as u64;
                    report.mismatches_total += 1;
                    if report.mismatches.len() < limit {
                        report.mismatches.push(Mismatch {
                            path: tracked.path.clone(),
                            offset,
                            expected: expected.to_vec(),
                            actual: actual.to_vec(),
                            nearest: nearest(tracked, offset),
                        });
                    }
                }
            }
            at += part_len as u64;
        }
    }
    Ok(())
}

/// Per differing line, the stretch from its first to its last differing byte.
fn differing_stretches<'b>(
    expected: &'b [u8],
    actual: &'b [u8],
) -> impl Iterator<Item = Range<usize>> + 'b {
    let line = LINE as usize;
    expected
        .chunks(line)
        .zip(actual.chunks(line))
        .enumerate()
        .filter_map(move |(nth, (a, b))| {
            let differs = |at: &usize| a[*at] != b[*at];
            let first = (0..a.len()).find(differs)?;
            let last = (0..a.len()).rev().find(differs)?;
            Some(nth * line + first..nth * line + last + 1)
        })
}

fn nearest(tracked: &Tracked, offset: u64) -> Option<Writing> {
    let line = offset / LINE;
    tracked.writings.get(&line).copied().or_else(|| {
        // Rare and limited in number, so a walk will do. Ties go to the later event, lest the
        // answer depend on the order of a hash map.
        let (_, writing) = tracked
            .writings
            .iter()
            .min_by_key(|(other, writing)| (other.abs_diff(line), u64::MAX - writing.event))?;
        Some(*writing)
    })
}

/// Line numbers need spreading, not protection against collisions on purpose.
#[derive(Default)]
struct LineHasher(u64);

impl Hasher for LineHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.write_u64(u64::from(byte));
        }
    }

    fn write_u64(&mut self, n: u64) {
        // Fibonacci hashing; the rotation brings the good high bits to where the table looks.
        self.0 = (self.0 ^ n)
            .wrapping_mul(0x9e37_79b9_7f4a_7c15)
            .rotate_left(26);
    }
}
