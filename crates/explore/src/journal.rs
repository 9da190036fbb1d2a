//! What an exploration has found out so far, on disk, so that an interrupted one can go on.
//!
//! One file: a header that names the exploration, then one frame an execution, each with its length and a check sum, appended as
//! they come. Guarantee: a file that was cut short anywhere (`kill -9`, a full disk) yields every whole frame before the cut;
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
const MAGIC: &[u8; 8] = b"BOEXJ\0\0\x02";
/// No execution is longer; a damaged length must not fill the memory.
const FRAME_MAX: usize = 1 << 30;

/// The files that an execution found: by number, there or not, size; names; numbers that contents have not got yet.
pub type Found = (
    Vec<(u32, bool, u64)>,
    BTreeMap<Vec<u8>, NameEntry>,
    (u32, u32),
);

/// One execution.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
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
    reads: Vec<(u64, u64, u64, Vec<u8>)>,
    /// How it ended.
    pub outcome: Outcome,
}

impl Entry {
    pub fn new(
        (files, names, next): Found,
        acknowledged: &Acknowledged,
        path: &[(Read, LineBytes)],
        outcome: &Outcome,
    ) -> Entry {
        let reads = path.iter().map(|(read, bytes)| {
            let seen = (0..64).filter(|i| read.mask >> i & 1 != 0);
            let seen = seen.map(|i| bytes[i]).collect();
            (read.line.0, read.mask, read.pc, seen)
        });
        Entry {
            files,
            names,
            next,
            operations: acknowledged.operations,
            text: acknowledged.text.clone(),
            reads: reads.collect(),
            outcome: outcome.clone(),
        }
    }

    /// What it read; `None` if the entry makes no sense.
    pub fn path(&self) -> Option<Vec<(Read, LineBytes)>> {
        self.reads
            .iter()
            .map(|(line, mask, pc, seen)| {
                let mut bytes = [0; 64];
                let at = (0..64).filter(|i| mask >> i & 1 != 0);
                if mask.count_ones() as usize != seen.len() {
                    return None;
                }
                for (i, byte) in at.zip(seen) {
                    bytes[i] = *byte;
                }
                let read = Read {
                    line: LineKey(*line),
                    mask: *mask,
                    pc: *pc,
                };
                Some((read, bytes))
            })
            .collect()
    }
}

/// The file.
pub struct Journal {
    file: File,
    path: PathBuf,
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
            broken: false,
        };
        Ok((journal, entries))
    }

    /// Adds an execution. What cannot be written is only lost for a later run.
    pub fn append(&mut self, entry: &Entry) {
        if self.broken {
            return;
        }
        let written = frame(entry).and_then(|frame| self.file.write_all(&frame));
        self.broken = written.is_err();
    }

    /// The exploration is complete: nothing is left to go on with.
    pub fn remove(self) {
        // It does no harm if it stays: the next one checks what it is.
        let _ = fs::remove_file(&self.path);
    }
}

fn frame(entry: &Entry) -> io::Result<Vec<u8>> {
    let plain = postcard::to_allocvec(entry).map_err(io::Error::other)?;
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
    let mut entries = Vec::new();
    let mut at = head;
    while let Some((entry, next)) = parse_frame(bytes, at) {
        entries.push(entry);
        at = next;
    }
    (entries, at)
}

fn parse_frame(bytes: &[u8], at: usize) -> Option<(Entry, usize)> {
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
            prop::collection::vec((any::<u64>(), any::<u64>()), 0..20),
            prop::collection::vec(any::<u8>(), 0..50),
        );
        prop::collection::vec(one.prop_map(|(reads, text)| entry(reads, text)), 0..6)
    }

    proptest! {
        #[test]
        fn what_was_written_comes_back(list in entries()) {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("journal");
            let (mut journal, none) = Journal::open(&path, &[1; 32]).unwrap();
            prop_assert!(none.is_empty());
            for entry in &list {
                journal.append(entry);
            }
            drop(journal);
            let (_, again) = Journal::open(&path, &[1; 32]).unwrap();
            prop_assert_eq!(&again, &list);
            for entry in &again {
                prop_assert!(entry.path().is_some());
            }
            let (_, other) = Journal::open(&path, &[2; 32]).unwrap();
            prop_assert!(other.is_empty(), "another exploration's");
        }

        #[test]
        fn a_cut_or_damaged_file_yields_what_is_whole(list in entries(), cut in any::<prop::sample::Index>(), flip in any::<prop::sample::Index>()) {
            let mut bytes = MAGIC.to_vec();
            bytes.extend_from_slice(&[1; 32]);
            let mut ends = vec![bytes.len()];
            for entry in &list {
                bytes.extend(frame(entry).unwrap());
                ends.push(bytes.len());
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
