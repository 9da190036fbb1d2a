//! What an exploration has found out so far, on disk, so that an interrupted one can go on.
//!
//! One file: a header that names the exploration, then one frame an execution, each with its length and a check sum, appended as
//! they come. A frame says how an execution differs from the one before. Guarantee: a file that was cut short anywhere (`kill -9`, a full disk) yields every whole frame before the cut;
//! one of another exploration yields nothing and is begun anew.

use std::collections::BTreeMap;
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
const MAGIC: &[u8; 8] = b"BOEXJ\0\0\x03";
/// No execution is longer; a damaged length must not fill the memory.
const FRAME_MAX: usize = 1 << 30;

/// The files that an execution found: by number, there or not, size; names; numbers that contents have not got yet.
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

/// An execution as it is written. Most of them read nearly what the one before has read: only what lies between their common beginning
/// and their common end is there.
#[derive(Serialize, Deserialize)]
struct Frame {
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

impl Frame {
    fn of(entry: &Entry, last: &[Step]) -> Frame {
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
        Frame {
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

/// The file.
pub struct Journal {
    file: File,
    path: PathBuf,
    /// What the last execution in it has read.
    last: Vec<Step>,
    /// After an error nothing more is written: what is there stays whole.
    broken: bool,
}

impl Journal {
    /// Opens the journal of the exploration `identity`, and gives what is in it.
    pub fn open(path: &Path, identity: &[u8; 32]) -> io::Result<(Journal, Vec<Entry>)> {
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(path)?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes)?;
        let (entries, whole) = parse(&bytes, identity);
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
            last: entries.last().map_or(Vec::new(), |last| last.path.clone()),
            broken: false,
        };
        Ok((journal, entries))
    }

    /// Adds an execution. What cannot be written is only lost for a later run.
    pub fn append(&mut self, entry: Entry) {
        if self.broken {
            return;
        }
        let written = frame(&entry, &self.last).and_then(|frame| self.file.write_all(&frame));
        self.broken = written.is_err();
        self.last = entry.path;
    }

    /// The exploration is complete: nothing is left to go on with.
    pub fn remove(self) {
        // It does no harm if it stays: the next one checks what it is.
        let _ = fs::remove_file(&self.path);
    }
}

fn frame(entry: &Entry, last: &[Step]) -> io::Result<Vec<u8>> {
    let plain = postcard::to_allocvec(&Frame::of(entry, last)).map_err(io::Error::other)?;
    let packed = zstd::bulk::compress(&plain, 1)?;
    let mut frame = (packed.len() as u32).to_le_bytes().to_vec();
    frame.extend_from_slice(&blake3::hash(&packed).as_bytes()[..8]);
    frame.extend_from_slice(&packed);
    Ok(frame)
}

/// The whole entries, and how many bytes are good; 0 if this is another exploration's file, or none at all.
fn parse(bytes: &[u8], identity: &[u8; 32]) -> (Vec<Entry>, usize) {
    let head = MAGIC.len() + identity.len();
    if bytes.len() < head || &bytes[..MAGIC.len()] != MAGIC || bytes[MAGIC.len()..head] != *identity
    {
        return (Vec::new(), 0);
    }
    let mut entries: Vec<Entry> = Vec::new();
    let mut at = head;
    while let Some((frame, next)) = parse_frame(bytes, at) {
        let last = entries.last().map_or(&[][..], |last| &last.path);
        let Some(entry) = frame.entry(last) else {
            break;
        };
        entries.push(entry);
        at = next;
    }
    (entries, at)
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
        let long = frame(&first, &[]).unwrap().len();
        let short = frame(&second, &first.path).unwrap().len();
        assert!(short < 300 && long > 10 * short, "{long}, then {short}");
    }

    proptest! {
        #[test]
        fn what_was_written_comes_back(list in entries()) {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("journal");
            let (mut journal, none) = Journal::open(&path, &[1; 32]).unwrap();
            prop_assert!(none.is_empty());
            for entry in &list {
                journal.append(entry.clone());
            }
            drop(journal);
            let (mut journal, again) = Journal::open(&path, &[1; 32]).unwrap();
            prop_assert_eq!(&again, &list);
            // It goes on where it was.
            for entry in &list {
                journal.append(entry.clone());
            }
            drop(journal);
            let (_, again) = Journal::open(&path, &[1; 32]).unwrap();
            prop_assert_eq!(&again, &[&list[..], &list].concat());
            let (_, other) = Journal::open(&path, &[2; 32]).unwrap();
            prop_assert!(other.is_empty(), "another exploration's");
        }

        #[test]
        fn a_cut_or_damaged_file_yields_what_is_whole(list in entries(), cut in any::<prop::sample::Index>(), flip in any::<prop::sample::Index>()) {
            let mut bytes = MAGIC.to_vec();
            bytes.extend_from_slice(&[1; 32]);
            let mut ends = vec![bytes.len()];
            let mut last: &[Step] = &[];
            for entry in &list {
                bytes.extend(frame(entry, last).unwrap());
                ends.push(bytes.len());
                last = &entry.path;
            }
            let cut = cut.index(bytes.len() + 1);
            let (entries, good) = parse(&bytes[..cut], &[1; 32]);
            let whole = ends.iter().filter(|end| **end <= cut).count().saturating_sub(1);
            prop_assert_eq!(entries.len(), whole);
            prop_assert!(good <= cut);
            let at = flip.index(bytes.len());
            bytes[at] ^= 0x10;
            let (entries, _) = parse(&bytes, &[1; 32]);
            prop_assert!(entries.iter().zip(&list).all(|(a, b)| a == b));
        }
    }
}
