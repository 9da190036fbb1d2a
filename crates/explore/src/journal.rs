//! What an exploration has found out so far, on disk, so that an interrupted one can go on.
//!
//! One file: a header that names the exploration, then frames, each with its length and a check
//! sum, appended as they come. A frame is an execution, as far as it differs from the one before,
//! or a file that executions behind it have run or opened, with a digest of its content. Guarantee:
//! a file that was cut short anywhere (`kill -9`, a full disk) yields every whole frame before the
//! cut; one of another exploration, or one that has a file which is not what it was, yields nothing
//! and is begun anew.
//!
//! Deviations: files are looked at where the tool finds them, so what the set-up has made or
//! changed in its private view is not; nor is a file that the run itself changes (the identity has
//! its content), or one of the kernel's. A file that has changed after the first execution that
//! used it is noticed only if it changes again.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Seek, SeekFrom, Write as _};
use std::path::{Path, PathBuf};

use brownout_model::LineBytes;
use serde::{Deserialize, Serialize};

use crate::execution::Acknowledged;
use crate::line::LineKey;
use crate::outcome::Outcome;
use crate::trie::Read;
use crate::view::Entry as NameEntry;

/// First bytes of the file: name and version.
const MAGIC: &[u8; 8] = b"BOEXJ\0\0\x04";
/// No execution is longer; a damaged length must not fill the memory.
const FRAME_MAX: usize = 1 << 30;

/// The files that an execution found: by number, there or not, size; names; numbers that contents
/// have not got yet.
pub type Found = (
    Vec<(u32, bool, u64)>,
    BTreeMap<Vec<u8>, NameEntry>,
    (u32, u32),
);

/// What a recovery read, and what it saw there.
type Step = (Read, LineBytes);

/// One execution.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The files that it found: number, there or not, size.
    pub files: Vec<(u32, bool, u64)>,
    /// What names stand for.
    pub names: BTreeMap<Vec<u8>, NameEntry>,
    /// Numbers that contents have not got yet.
    pub next: (u32, u32),
    /// What a checker was told.
    pub operations: u64,
    /// Likewise.
    pub text: Vec<u8>,
    /// What it read, in order.
    pub path: Vec<Step>,
    /// How it ended.
    pub outcome: Outcome,
}

impl Entry {
    pub fn new(
        (files, names, next): Found,
        acknowledged: &Acknowledged,
        path: &[Step],
        outcome: &Outcome,
    ) -> Entry {
        Entry {
            files,
            names,
            next,
            operations: acknowledged.operations,
            text: acknowledged.text.clone(),
            path: path.to_vec(),
            outcome: outcome.clone(),
        }
    }
}

/// What is written.
#[derive(Serialize, Deserialize)]
enum Frame {
    /// A file, and a digest of its content if it is one to be read.
    File(Vec<u8>, Option<[u8; 32]>),
    Execution(Box<Execution>),
}

/// An execution as it is written. Most of them read nearly what the one before has read: only what
/// lies between their common beginning and their common end is there.
#[derive(Serialize, Deserialize)]
struct Execution {
    files: Vec<(u32, bool, u64)>,
    names: BTreeMap<Vec<u8>, NameEntry>,
    next: (u32, u32),
    operations: u64,
    text: Vec<u8>,
    /// So many reads are those with which the execution before begins.
    beginning: u64,
    /// Line, bytes that were read, instruction, content of these bytes.
    reads: Vec<(u64, u64, u64, Vec<u8>)>,
    /// So many are those with which it ends.
    ending: u64,
    outcome: Outcome,
}

impl Execution {
    fn of(entry: &Entry, last: &[Step]) -> Execution {
        let path = entry.path.as_slice();
        let alike = |(one, other): &(&Step, &Step)| one == other;
        let beginning = path.iter().zip(last).take_while(alike).count();
        let (new, old) = (&path[beginning..], &last[beginning..]);
        let ending = new.iter().rev().zip(old.iter().rev());
        let ending = ending.take_while(alike).count();
        let reads = new[..new.len() - ending].iter().map(|(read, bytes)| {
            let seen = places(read.mask).map(|i| bytes[i]).collect();
            (read.line.0, read.mask, read.pc, seen)
        });
        Execution {
            files: entry.files.clone(),
            names: entry.names.clone(),
            next: entry.next,
            operations: entry.operations,
            text: entry.text.clone(),
            beginning: beginning as u64,
            reads: reads.collect(),
            ending: ending as u64,
            outcome: entry.outcome.clone(),
        }
    }

    /// The execution, if the frame makes sense behind this one.
    fn entry(self, last: &[Step]) -> Option<Entry> {
        let beginning = usize::try_from(self.beginning).ok()?;
        let ending = usize::try_from(self.ending).ok()?;
        let mut path = last.get(..beginning)?.to_vec();
        for (line, mask, pc, seen) in self.reads {
            if mask.count_ones() as usize != seen.len() {
                return None;
            }
            let mut bytes = [0; 64];
            for (i, byte) in places(mask).zip(seen) {
                bytes[i] = byte;
            }
            let line = LineKey(line);
            path.push((Read { line, mask, pc }, bytes));
        }
        path.extend_from_slice(last.get(last.len().checked_sub(ending)?..)?);
        Some(Entry {
            files: self.files,
            names: self.names,
            next: self.next,
            operations: self.operations,
            text: self.text,
            path,
            outcome: self.outcome,
        })
    }
}

/// The places of a mask's bytes in their line.
fn places(mask: u64) -> impl Iterator<Item = usize> {
    (0..64).filter(move |i| mask >> i & 1 != 0)
}

/// A digest of what a file holds; `None` if it is none, or cannot be read.
pub fn content_of(path: &Path) -> Option<[u8; 32]> {
    // Opening a pipe would wait for its other end.
    fs::metadata(path).ok().filter(|meta| meta.is_file())?;
    let mut hash = blake3::Hasher::new();
    hash.update_reader(File::open(path).ok()?).ok()?;
    Some(*hash.finalize().as_bytes())
}

/// Which files are kept in mind: all but those that the exploration itself changes.
pub struct Kept {
    changed: BTreeSet<PathBuf>,
    scratch: PathBuf,
}

impl Kept {
    /// `changed` by the run, and what lies in the tool's own folder.
    pub fn new(changed: BTreeSet<PathBuf>, scratch: &Path) -> Kept {
        let scratch = fs::canonicalize(scratch).unwrap_or_else(|_| scratch.to_path_buf());
        Kept { changed, scratch }
    }

    fn has(&self, path: &Path) -> bool {
        let kernels = ["/proc", "/sys", "/dev"];
        !self.changed.contains(path)
            && !path.starts_with(&self.scratch)
            && !kernels.iter().any(|folder| path.starts_with(folder))
    }
}

/// The file.
pub struct Journal {
    file: File,
    path: PathBuf,
    kept: Kept,
    /// Files that are in it.
    used: BTreeSet<PathBuf>,
    /// What the last execution in it has read.
    last: Vec<Step>,
    /// After an error nothing more is written: what is there stays whole.
    broken: bool,
}

impl Journal {
    /// Opens the journal of the exploration `identity`, and gives what is in it.
    pub fn open(path: &Path, identity: &[u8; 32], kept: Kept) -> io::Result<(Journal, Vec<Entry>)> {
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(path)?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes)?;
        let mut parsed = parse(&bytes, identity);
        let mut used = parsed.files.iter();
        if !used.all(|(path, content)| content_of(path) == *content) {
            parsed = Parsed::default();
        }
        let Parsed {
            entries,
            files,
            whole,
        } = parsed;
        if whole == 0 {
            file.set_len(0)?;
            file.rewind()?;
            file.write_all(MAGIC)?;
            file.write_all(identity)?;
        } else {
            file.set_len(whole as u64)?;
            file.seek(SeekFrom::Start(whole as u64))?;
        }
        let journal = Journal {
            file,
            path: path.to_path_buf(),
            kept,
            used: files.into_keys().collect(),
            last: entries.last().map_or(Vec::new(), |last| last.path.clone()),
            broken: false,
        };
        Ok((journal, entries))
    }

    /// Adds an execution. What cannot be written is only lost for a later run.
    pub fn append(&mut self, entry: Entry) {
        self.write(&Frame::Execution(Box::new(Execution::of(
            &entry, &self.last,
        ))));
        self.last = entry.path;
    }

    /// Executions that are added from now on have run or opened these files.
    pub fn uses(&mut self, files: &BTreeSet<PathBuf>) {
        for path in files {
            if !self.used.contains(path) && self.kept.has(path) {
                self.used.insert(path.clone());
                let name = path.as_os_str().as_encoded_bytes().to_vec();
                self.write(&Frame::File(name, content_of(path)));
            }
        }
    }

    fn write(&mut self, frame: &Frame) {
        if !self.broken {
            let written = framed(frame).and_then(|frame| self.file.write_all(&frame));
            self.broken = written.is_err();
        }
    }

    /// The exploration is complete: nothing is left to go on with.
    pub fn remove(self) {
        // It does no harm if it stays: the next one checks what it is.
        let _ = fs::remove_file(&self.path);
    }
}

fn framed(frame: &Frame) -> io::Result<Vec<u8>> {
    let plain = postcard::to_allocvec(frame).map_err(io::Error::other)?;
    let packed = zstd::bulk::compress(&plain, 1)?;
    let mut frame = (packed.len() as u32).to_le_bytes().to_vec();
    frame.extend_from_slice(&blake3::hash(&packed).as_bytes()[..8]);
    frame.extend_from_slice(&packed);
    Ok(frame)
}

/// What is whole in a journal; nothing, if it is another exploration's, or none at all.
#[derive(Default)]
struct Parsed {
    entries: Vec<Entry>,
    /// Files, and what they held.
    files: BTreeMap<PathBuf, Option<[u8; 32]>>,
    /// So many bytes are good.
    whole: usize,
}

fn parse(bytes: &[u8], identity: &[u8; 32]) -> Parsed {
    use std::os::unix::ffi::OsStringExt;
    let mut parsed = Parsed::default();
    let head = MAGIC.len() + identity.len();
    if bytes.len() < head || &bytes[..MAGIC.len()] != MAGIC || bytes[MAGIC.len()..head] != *identity
    {
        return parsed;
    }
    parsed.whole = head;
    while let Some((frame, next)) = parse_frame(bytes, parsed.whole) {
        match frame {
            Frame::File(path, content) => {
                let path = PathBuf::from(std::ffi::OsString::from_vec(path));
                parsed.files.insert(path, content);
            }
            Frame::Execution(execution) => {
                let last = parsed.entries.last().map_or(&[][..], |last| &last.path);
                let Some(entry) = execution.entry(last) else {
                    break;
                };
                parsed.entries.push(entry);
            }
        }
        parsed.whole = next;
    }
    parsed
}

fn parse_frame(bytes: &[u8], at: usize) -> Option<(Frame, usize)> {
    let length = u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?) as usize;
    let sum = bytes.get(at + 4..at + 12)?;
    let packed = bytes.get(at + 12..(at + 12).checked_add(length)?)?;
    if blake3::hash(packed).as_bytes()[..8] != *sum {
        return None;
    }
    let plain = zstd::bulk::decompress(packed, FRAME_MAX).ok()?;
    Some((postcard::from_bytes(&plain).ok()?, at + 12 + length))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outcome::Status;
    use brownout_trace::event::FileId;
    use proptest::prelude::*;

    fn entry(reads: Vec<(u64, u64)>, text: Vec<u8>) -> Entry {
        let path: Vec<(Read, LineBytes)> = reads
            .into_iter()
            .map(|(line, mask)| {
                let read = Read {
                    line: LineKey(line),
                    mask,
                    pc: line ^ 7,
                };
                (read, brownout_model::masked(&[0xa5; 64], mask))
            })
            .collect();
        let outcome = Outcome {
            status: Status::Exit(text.len() as i32),
            stdout: text.clone(),
            stderr: Vec::new(),
            checker: None,
            again: None,
            broken: vec!["x".into()],
        };
        let acknowledged = Acknowledged {
            operations: 3,
            text,
        };
        let names = BTreeMap::from([
            (b"/pool".to_vec(), NameEntry::File(FileId(1))),
            (b"/gone".to_vec(), NameEntry::Absent),
        ]);
        let found = (vec![(1, true, 4096)], names, (2, 1 << 19));
        Entry::new(found, &acknowledged, &path, &outcome)
    }

    fn open(path: &Path, identity: u8) -> io::Result<(Journal, Vec<Entry>)> {
        let changed = BTreeSet::from([PathBuf::from("/pool")]);
        Journal::open(
            path,
            &[identity; 32],
            Kept::new(changed, Path::new("/scratch")),
        )
    }

    /// What an execution has used must be what it was, whichever execution it was and however the
    /// file has changed.
    #[test]
    fn executions_count_as_long_as_what_they_used_is_the_same() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("journal");
        let [one, other, missing] =
            ["one", "other", "missing"].map(|name| folder.path().join(name));
        fs::write(&one, "1").unwrap();
        fs::write(&other, "2").unwrap();
        let begin = || {
            let (mut journal, old) = open(&path, 1).unwrap();
            journal.uses(&BTreeSet::from([one.clone()]));
            journal.append(entry(vec![(1, 0xff)], vec![]));
            let more = [
                other.clone(),
                missing.clone(),
                "/proc/uptime".into(),
                "/pool".into(),
            ];
            journal.uses(&BTreeSet::from(more));
            journal.append(entry(vec![(2, 0xff)], vec![]));
            old.len()
        };
        assert_eq!([begin(), begin(), begin()], [0, 2, 4]);
        for changed in [&one, &other, &missing] {
            fs::write(changed, "3").unwrap();
            assert_eq!([begin(), begin()], [0, 2], "{}", changed.display());
        }
        fs::remove_file(&other).unwrap();
        assert_eq!(begin(), 0);
        let kept: Vec<_> = open(&path, 1).unwrap().0.used.into_iter().collect();
        let mut all = [one, other, missing];
        all.sort();
        assert_eq!(
            kept, all,
            "what the run changes and what is the kernel's is left out"
        );
    }

    fn entries() -> impl Strategy<Value = Vec<Entry>> {
        let one = (
            // Few lines, so that beginnings and ends are often alike.
            prop::collection::vec((0..2_u64, prop_oneof![Just(0xff), any::<u64>()]), 0..8),
            prop::collection::vec(any::<u8>(), 0..50),
        );
        prop::collection::vec(one.prop_map(|(reads, text)| entry(reads, text)), 0..6)
    }

    #[test]
    fn what_is_as_before_is_not_written_again() {
        let reads: Vec<(u64, u64)> = (0..5_000).map(|line| (line, 0xff)).collect();
        let mut other = reads.clone();
        other[2_500].1 = 0xf0;
        let (first, second) = (entry(reads, vec![]), entry(other, vec![]));
        let length = |entry: &Entry, last: &[Step]| {
            let frame = Frame::Execution(Box::new(Execution::of(entry, last)));
            framed(&frame).unwrap().len()
        };
        let long = length(&first, &[]);
        let short = length(&second, &first.path);
        assert!(short < 300 && long > 10 * short, "{long}, then {short}");
    }

    proptest! {
        #[test]
        fn what_was_written_comes_back(list in entries()) {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("journal");
            let (mut journal, none) = open(&path, 1).unwrap();
            prop_assert!(none.is_empty());
            for entry in &list {
                journal.append(entry.clone());
            }
            drop(journal);
            let (mut journal, again) = open(&path, 1).unwrap();
            prop_assert_eq!(&again, &list);
            // It goes on where it was.
            for entry in &list {
                journal.append(entry.clone());
            }
            drop(journal);
            let (_, again) = open(&path, 1).unwrap();
            prop_assert_eq!(&again, &[&list[..], &list].concat());
            let (_, other) = open(&path, 2).unwrap();
            prop_assert!(other.is_empty(), "another exploration's");
        }

        #[test]
        fn a_cut_or_damaged_file_yields_what_is_whole(list in entries(), cut in any::<prop::sample::Index>(), flip in any::<prop::sample::Index>()) {
            let mut bytes = MAGIC.to_vec();
            bytes.extend_from_slice(&[1; 32]);
            let mut ends = vec![bytes.len()];
            let mut last: &[Step] = &[];
            for entry in &list {
                let frame = Frame::Execution(Box::new(Execution::of(entry, last)));
                bytes.extend(framed(&frame).unwrap());
                ends.push(bytes.len());
                last = &entry.path;
            }
            let cut = cut.index(bytes.len() + 1);
            let Parsed { entries, whole: good, .. } = parse(&bytes[..cut], &[1; 32]);
            let whole = ends.iter().filter(|end| **end <= cut).count().saturating_sub(1);
            prop_assert_eq!(entries.len(), whole);
            prop_assert!(good <= cut);
            let at = flip.index(bytes.len());
            bytes[at] ^= 0x10;
            let entries = parse(&bytes, &[1; 32]).entries;
            prop_assert!(entries.iter().zip(&list).all(|(a, b)| a == b));
        }
    }
}
