//! What a search has found out so far: one file, to which records are appended.
//!
//! ```text
//! head    magic and version (8 bytes), identity (32), check sum of both (8)
//! frame   length (4), check sum of length and place (4), check sum of place and content (8), content
//! frame   …
//! ```
//!
//! [`Frames`] is the file with plain bytes in it, [`Journal`] the same with records of one type,
//! encoded by postcard. Who wants to compress takes [`Frames`].
//!
//! **Guarantee.**
//! - A file that was cut short anywhere (`kill -9`, a full disk) yields every whole frame before
//!   the cut. The rest is removed when the file is opened, is told in [`Opened::torn_bytes`], and
//!   the next frame is appended in its place.
//! - Damage is not taken for a cut: a frame that is all there but does not have its check sum, or
//!   whose length makes no sense, is [`JournalError::Damaged`] with its place, and the file is left
//!   as it is. [`Frames::salvage`] is the way out.
//! - An append that fails (a full disk) leaves the file as it was, gives the error, and later
//!   appends work.
//! - What was appended survives the end of the process at once, and the loss of power after
//!   [`Frames::sync`]. Where a file system has made the file longer but lost the content, it ends
//!   in zeros: that counts as cut, too.
//!
//! **Limits.** A frame holds at most [`FRAME_BYTES_MAX`]. One writer at a time: [`crate::folder`]
//! has the lock.
//!
//! A frame's check sums take its place in the file into account. So bytes that look like a frame,
//! because an input that is kept in the journal contains one, are not taken for one when a damaged
//! file is salvaged.

use std::fs::{File, OpenOptions};
use std::io::{self, BufReader, Read};
use std::marker::PhantomData;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::files::{self, Durability};

/// First bytes of the file: name and version.
const MAGIC: &[u8; 8] = b"BOJRNL\0\x01";
const HEAD_BYTES: usize = 8 + 32 + 8;
const FRAME_HEAD_BYTES: usize = 4 + 4 + 8;
/// No frame's content is longer, so that a damaged length cannot fill the memory.
pub const FRAME_BYTES_MAX: usize = 1 << 30;

/// Whose journal it is: a hash of what must agree, such as settings.
pub type Owner = [u8; 32];

/// Why a journal cannot be opened or appended to.
#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    /// Reading or writing failed.
    #[error("cannot {what} {}: {error}", path.display())]
    Io {
        /// `read`, `append to`…
        what: &'static str,
        /// The journal.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// It is no journal, or one of another version.
    #[error("{} is not a journal that this version of Brownout can read", path.display())]
    Foreign {
        /// The file.
        path: PathBuf,
    },
    /// It belongs to something else.
    #[error("{} belongs to another search than this one", path.display())]
    OtherIdentity {
        /// The journal.
        path: PathBuf,
    },
    /// A frame in the middle is not what was written.
    #[error(
        "{} is damaged: record {frame}, at byte {at}, is not what was written ({frame} good ones precede it)",
        path.display()
    )]
    Damaged {
        /// The journal.
        path: PathBuf,
        /// Its place in the file.
        at: u64,
        /// Its number, which is also the number of good ones before it.
        frame: u64,
    },
    /// A frame is as it was written, but is no record of the type that was asked for.
    #[error("{}: record {frame} is whole, but this version of Brownout cannot read it: {why}", path.display())]
    Undecodable {
        /// The journal.
        path: PathBuf,
        /// Its number.
        frame: u64,
        /// What postcard says.
        why: String,
    },
    /// A record is too long, or cannot be encoded.
    #[error("a record cannot be added to {}: {why}", path.display())]
    Unwritable {
        /// The journal.
        path: PathBuf,
        /// Why.
        why: String,
    },
}

/// The file, with plain bytes in its frames.
#[derive(Debug)]
pub struct Frames {
    file: File,
    path: PathBuf,
    /// Where the last whole frame ends.
    end: u64,
    /// How many there are.
    count: u64,
    /// Bytes after `end` that a failed append has left and that could not be removed yet.
    leftover: bool,
}

/// What was noticed while a journal was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Opened {
    /// How many frames it had.
    pub frames: u64,
    /// How many bytes of a frame that was never finished were removed.
    pub torn_bytes: u64,
}

/// What was rescued from a damaged journal.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Salvaged {
    /// How many frames were good.
    pub frames: u64,
    /// What was not: first byte, and how many.
    pub lost: Vec<(u64, u64)>,
}

/// What comes next in a file.
enum Next {
    Frame(Vec<u8>),
    /// The file ends here, between two frames.
    End,
    /// It ends within a frame.
    Torn,
    Damaged,
}

impl Frames {
    /// Opens the journal of `identity`, makes it if there is none, and gives each frame's content
    /// to `each`, in order.
    pub fn open(
        path: &Path,
        identity: &Owner,
        mut each: impl FnMut(Vec<u8>) -> Result<(), JournalError>,
    ) -> Result<(Frames, Opened), JournalError> {
        let mut options = OpenOptions::new();
        let options = options.read(true).write(true).create(true).truncate(false);
        let file = options.open(path).map_err(|e| io_error("open", path, e))?;
        let mut frames = Frames {
            file,
            path: path.to_path_buf(),
            end: 0,
            count: 0,
            leftover: false,
        };
        let length = frames.length()?;
        if !frames.read_head(identity, length)? {
            // It was never finished: whoever made it has not appended anything.
            frames.truncate(0)?;
            let head = head(identity);
            let written = frames.file.write_all_at(&head, 0);
            written.map_err(|e| io_error("write to", path, e))?;
            frames.end = HEAD_BYTES as u64;
            let opened = Opened {
                frames: 0,
                torn_bytes: length,
            };
            return Ok((frames, opened));
        }
        let (end, count) = read_frames(&frames.file, path, length, &mut each)?;
        (frames.end, frames.count) = (end, count);
        if end < length {
            frames.truncate(end)?;
        }
        let opened = Opened {
            frames: count,
            torn_bytes: length - end,
        };
        Ok((frames, opened))
    }

    /// Reads a journal without changing it, so also one that another process appends to: what is
    /// whole by now.
    pub fn read(
        path: &Path,
        identity: &Owner,
        mut each: impl FnMut(Vec<u8>) -> Result<(), JournalError>,
    ) -> Result<Opened, JournalError> {
        let file = File::open(path).map_err(|e| io_error("open", path, e))?;
        let frames = Frames {
            file,
            path: path.to_path_buf(),
            end: 0,
            count: 0,
            leftover: false,
        };
        let length = frames.length()?;
        if !frames.read_head(identity, length)? {
            return Ok(Opened {
                frames: 0,
                torn_bytes: length,
            });
        }
        let (end, count) = read_frames(&frames.file, path, length, &mut each)?;
        Ok(Opened {
            frames: count,
            torn_bytes: length - end,
        })
    }

    /// Makes a journal of the good frames of a damaged one. The damaged file stays beside it as
    /// `NAME.damaged` (or `NAME.damaged-2`, …). The journal must not be open.
    ///
    /// Frames after the damage are found, too; what they say may rest on what was lost, which is
    /// for the caller to judge.
    pub fn salvage(path: &Path, identity: &Owner) -> Result<Salvaged, JournalError> {
        let bytes = std::fs::read(path).map_err(|e| io_error("read", path, e))?;
        let mut salvaged = Salvaged::default();
        let mut good = head(identity);
        let mut at = HEAD_BYTES.min(bytes.len());
        if bytes[..at] != good[..at] {
            salvaged.lost.push((0, at as u64));
        }
        let mut lost_from = None;
        while at < bytes.len() {
            let Some(content) = whole_frame(&bytes[at..], at as u64) else {
                lost_from.get_or_insert(at);
                at += 1;
                continue;
            };
            if let Some(from) = lost_from.take() {
                salvaged.lost.push((from as u64, (at - from) as u64));
            }
            at += FRAME_HEAD_BYTES + content.len();
            good.extend(frame(content, good.len() as u64));
            salvaged.frames += 1;
        }
        if let Some(from) = lost_from {
            let lost = (bytes.len() - from) as u64;
            salvaged.lost.push((from as u64, lost));
        }
        let mut aside = path.as_os_str().to_owned();
        aside.push(".damaged");
        let first = aside.clone();
        let mut number = 2;
        // A hard link leaves the journal under its name until the new one takes it.
        while let Err(error) = std::fs::hard_link(path, &aside) {
            if error.kind() != io::ErrorKind::AlreadyExists {
                return Err(io_error("keep a copy of", path, error));
            }
            aside = first.clone();
            aside.push(format!("-{number}"));
            number += 1;
        }
        let written = files::write_whole(path, &good, Durability::Synced);
        written.map_err(|e| io_error("write", path, e))?;
        Ok(salvaged)
    }

    /// Adds a frame.
    pub fn append(&mut self, content: &[u8]) -> Result<(), JournalError> {
        if content.len() > FRAME_BYTES_MAX {
            return Err(JournalError::Unwritable {
                path: self.path.clone(),
                why: format!("it has {} bytes", content.len()),
            });
        }
        if self.leftover {
            self.truncate(self.end)?;
        }
        let frame = frame(content, self.end);
        if let Err(error) = self.file.write_all_at(&frame, self.end) {
            // Part of it may be there. If even that cannot be undone now, it is tried again before
            // the next append; until then it is a torn frame, which any reader removes.
            self.leftover = true;
            let _ = self.truncate(self.end);
            return Err(io_error("append to", &self.path, error));
        }
        self.end += frame.len() as u64;
        self.count += 1;
        Ok(())
    }

    /// Makes everything that was appended survive the loss of power.
    pub fn sync(&self) -> Result<(), JournalError> {
        let synced = self.file.sync_data();
        synced.map_err(|e| io_error("synchronise", &self.path, e))
    }

    /// How many frames there are.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// How many bytes the file has.
    pub fn bytes(&self) -> u64 {
        self.end
    }

    fn length(&self) -> Result<u64, JournalError> {
        let metadata = self.file.metadata();
        let metadata = metadata.map_err(|e| io_error("read", &self.path, e))?;
        if !metadata.is_file() {
            return Err(JournalError::Foreign {
                path: self.path.clone(),
            });
        }
        Ok(metadata.len())
    }

    fn truncate(&mut self, end: u64) -> Result<(), JournalError> {
        let cut = self.file.set_len(end);
        cut.map_err(|e| io_error("shorten", &self.path, e))?;
        self.leftover = false;
        Ok(())
    }

    /// Whether there is a whole head; an error if it is not ours.
    fn read_head(&self, identity: &Owner, length: u64) -> Result<bool, JournalError> {
        let mut there = vec![0; (length as usize).min(HEAD_BYTES)];
        let read = self.file.read_exact_at(&mut there, 0);
        read.map_err(|e| io_error("read", &self.path, e))?;
        let path = || self.path.clone();
        let expected = head(identity);
        if there.len() < HEAD_BYTES {
            let zeros = there.iter().all(|b| *b == 0);
            return if expected.starts_with(&there) || zeros {
                Ok(false)
            } else if there.starts_with(MAGIC) {
                Err(JournalError::OtherIdentity { path: path() })
            } else {
                Err(JournalError::Foreign { path: path() })
            };
        }
        if there == expected {
            return Ok(true);
        }
        if !there.starts_with(MAGIC) {
            return Err(JournalError::Foreign { path: path() });
        }
        let mut other: Owner = [0; 32];
        other.copy_from_slice(&there[8..40]);
        if there == head(&other) {
            return Err(JournalError::OtherIdentity { path: path() });
        }
        Err(JournalError::Damaged {
            path: path(),
            at: 0,
            frame: 0,
        })
    }
}

fn io_error(what: &'static str, path: &Path, error: io::Error) -> JournalError {
    let path = path.to_path_buf();
    JournalError::Io { what, path, error }
}

/// Where the last whole frame ends, and how many there are.
fn read_frames(
    file: &File,
    path: &Path,
    length: u64,
    each: &mut dyn FnMut(Vec<u8>) -> Result<(), JournalError>,
) -> Result<(u64, u64), JournalError> {
    // What another process appends meanwhile is not looked at.
    let mut input = BufReader::with_capacity(1 << 16, At(file, HEAD_BYTES as u64).take(length));
    let (mut at, mut count) = (HEAD_BYTES as u64, 0);
    loop {
        match next_frame(&mut input, at, length - at).map_err(|e| io_error("read", path, e))? {
            Next::Frame(content) => {
                at += (FRAME_HEAD_BYTES + content.len()) as u64;
                each(content)?;
                count += 1;
            }
            Next::End | Next::Torn => return Ok((at, count)),
            Next::Damaged => {
                let path = path.to_path_buf();
                let frame = count;
                return Err(JournalError::Damaged { path, at, frame });
            }
        }
    }
}

/// Reads a file from a place on, without moving its position.
struct At<'a>(&'a File, u64);

impl Read for At<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let read = self.0.read_at(into, self.1)?;
        self.1 += read as u64;
        Ok(read)
    }
}

/// The frame at place `at`; `left` bytes of the file are left there, and `input` begins with them.
fn next_frame(input: &mut dyn Read, at: u64, left: u64) -> io::Result<Next> {
    if left == 0 {
        return Ok(Next::End);
    }
    if left < FRAME_HEAD_BYTES as u64 {
        return Ok(Next::Torn);
    }
    let mut head = [0; FRAME_HEAD_BYTES];
    input.read_exact(&mut head)?;
    let Some(length) = content_length(&head, at) else {
        let zeros = head.iter().all(|b| *b == 0) && rest_is_zero(input, left)?;
        return Ok(if zeros { Next::Torn } else { Next::Damaged });
    };
    if left - (FRAME_HEAD_BYTES as u64) < length as u64 {
        return Ok(Next::Torn);
    }
    let mut content = vec![0; length];
    input.read_exact(&mut content)?;
    if head[8..] != content_check(&content, at) {
        return Ok(Next::Damaged);
    }
    Ok(Next::Frame(content))
}

/// The content of the frame that `bytes` begin with, if there is one.
fn whole_frame(bytes: &[u8], at: u64) -> Option<&[u8]> {
    let (head, rest) = bytes.split_first_chunk()?;
    let content = rest.get(..content_length(head, at)?)?;
    (head[8..] == content_check(content, at)).then_some(content)
}

/// How long the content of a frame is, if this is the head of one.
fn content_length(head: &[u8; FRAME_HEAD_BYTES], at: u64) -> Option<usize> {
    let (length, rest) = head.split_first_chunk()?;
    let bytes = u32::from_le_bytes(*length) as usize;
    (rest[..4] == length_check(length, at) && bytes <= FRAME_BYTES_MAX).then_some(bytes)
}

/// Whether all of the `left - FRAME_HEAD_BYTES` bytes after a head are zero.
fn rest_is_zero(input: &mut dyn Read, left: u64) -> io::Result<bool> {
    let mut input = input.take(left - FRAME_HEAD_BYTES as u64);
    let mut block = [0; 4096];
    loop {
        match input.read(&mut block)? {
            0 => return Ok(true),
            n if block[..n].iter().any(|b| *b != 0) => return Ok(false),
            _ => {}
        }
    }
}

fn head(identity: &Owner) -> Vec<u8> {
    let mut head = MAGIC.to_vec();
    head.extend_from_slice(identity);
    let sum = blake3::hash(&head);
    head.extend_from_slice(&sum.as_bytes()[..8]);
    head
}

fn frame(content: &[u8], at: u64) -> Vec<u8> {
    let length = (content.len() as u32).to_le_bytes();
    let mut frame = Vec::with_capacity(FRAME_HEAD_BYTES + content.len());
    frame.extend_from_slice(&length);
    frame.extend_from_slice(&length_check(&length, at));
    frame.extend_from_slice(&content_check(content, at));
    frame.extend_from_slice(content);
    frame
}

fn length_check(length: &[u8], at: u64) -> [u8; 4] {
    let mut hash = blake3::Hasher::new();
    hash.update(b"length").update(&at.to_le_bytes());
    let hash = hash.update(length).finalize();
    let [a, b, c, d, ..] = *hash.as_bytes();
    [a, b, c, d]
}

fn content_check(content: &[u8], at: u64) -> [u8; 8] {
    let mut hash = blake3::Hasher::new();
    hash.update(b"content").update(&at.to_le_bytes());
    let hash = hash.update(content).finalize();
    let mut sum = [0; 8];
    sum.copy_from_slice(&hash.as_bytes()[..8]);
    sum
}

/// The file, with records of type `T`.
#[derive(Debug)]
pub struct Journal<T> {
    frames: Frames,
    of: PhantomData<fn(T)>,
}

impl<T: Serialize + DeserializeOwned> Journal<T> {
    /// Opens the journal of `identity`, makes it if there is none, and gives each record to `each`,
    /// in order.
    pub fn open_each(
        path: &Path,
        identity: &Owner,
        mut each: impl FnMut(T),
    ) -> Result<(Journal<T>, Opened), JournalError> {
        let mut read = Decoder::new(path, &mut each);
        let (frames, opened) = Frames::open(path, identity, |content| read.take(&content))?;
        let of = PhantomData;
        Ok((Journal { frames, of }, opened))
    }

    /// The same, with all records at once.
    pub fn open(
        path: &Path,
        identity: &Owner,
    ) -> Result<(Journal<T>, Vec<T>, Opened), JournalError> {
        let mut records = Vec::new();
        let (journal, opened) = Journal::open_each(path, identity, |record| records.push(record))?;
        Ok((journal, records, opened))
    }

    /// What is in a journal by now; it may be another process's, and is not changed.
    pub fn read(path: &Path, identity: &Owner) -> Result<(Vec<T>, Opened), JournalError> {
        let mut records = Vec::new();
        let mut each = |record| records.push(record);
        let mut read = Decoder::new(path, &mut each);
        let opened = Frames::read(path, identity, |content| read.take(&content))?;
        Ok((records, opened))
    }

    /// Adds a record.
    pub fn append(&mut self, record: &T) -> Result<(), JournalError> {
        let content = postcard::to_allocvec(record).map_err(|e| JournalError::Unwritable {
            path: self.frames.path.clone(),
            why: e.to_string(),
        })?;
        self.frames.append(&content)
    }

    /// The file itself: how long it is, how many records it has, [`Frames::sync`].
    pub fn frames(&self) -> &Frames {
        &self.frames
    }
}

struct Decoder<'a, T> {
    path: &'a Path,
    count: u64,
    each: &'a mut dyn FnMut(T),
}

impl<'a, T: DeserializeOwned> Decoder<'a, T> {
    fn new(path: &'a Path, each: &'a mut dyn FnMut(T)) -> Decoder<'a, T> {
        let count = 0;
        Decoder { path, count, each }
    }

    fn take(&mut self, content: &[u8]) -> Result<(), JournalError> {
        let undecodable = |why: String| JournalError::Undecodable {
            path: self.path.to_path_buf(),
            frame: self.count,
            why,
        };
        let (record, rest) =
            postcard::take_from_bytes(content).map_err(|e| undecodable(e.to_string()))?;
        if !rest.is_empty() {
            return Err(undecodable(format!("it has {} bytes more", rest.len())));
        }
        (self.each)(record);
        self.count += 1;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde::Deserialize;
    use std::fs;

    #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
    enum Record {
        Case {
            id: u64,
            parent: Option<u32>,
            input: Vec<u8>,
        },
        Note(String),
        Tick,
    }

    const ID: Owner = [7; 32];

    fn records() -> impl Strategy<Value = Vec<Record>> {
        let bytes = prop::collection::vec(any::<u8>(), 0..40);
        let record = prop_oneof![
            (any::<u64>(), any::<Option<u32>>(), bytes)
                .prop_map(|(id, parent, input)| Record::Case { id, parent, input }),
            "\\PC{0,20}".prop_map(Record::Note),
            Just(Record::Tick),
        ];
        prop::collection::vec(record, 0..6)
    }

    /// The file's bytes, and where the head and each frame end.
    fn written(path: &Path, records: &[Record]) -> (Vec<u8>, Vec<usize>) {
        let (mut journal, none, opened) = Journal::<Record>::open(path, &ID).unwrap();
        assert!(none.is_empty());
        assert_eq!(opened, Opened::default());
        let mut ends = vec![journal.frames().bytes() as usize];
        for record in records {
            journal.append(record).unwrap();
            ends.push(journal.frames().bytes() as usize);
        }
        assert_eq!(journal.frames().count(), records.len() as u64);
        (fs::read(path).unwrap(), ends)
    }

    fn open(path: &Path) -> Result<(Journal<Record>, Vec<Record>, Opened), JournalError> {
        Journal::open(path, &ID)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]

        #[test]
        fn what_was_written_comes_back(list in records(), more in records()) {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("journal");
            written(&path, &list);
            let (mut journal, again, opened) = open(&path).unwrap();
            prop_assert_eq!(&again, &list);
            prop_assert_eq!(opened, Opened { frames: list.len() as u64, torn_bytes: 0 });
            for record in &more {
                journal.append(record).unwrap();
            }
            // Readers do not need the journal to be closed.
            let (all, _) = Journal::<Record>::read(&path, &ID).unwrap();
            prop_assert_eq!(all, [list, more].concat());
        }

        #[test]
        fn nonsense_is_survived(mut bytes in prop::collection::vec(any::<u8>(), 0..200), ours in any::<bool>()) {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("journal");
            if ours {
                bytes.splice(0..0, head(&ID));
            }
            fs::write(&path, &bytes).unwrap();
            let _ = open(&path);
            if path.exists() {
                fs::write(&path, &bytes).unwrap();
                let salvaged = Frames::salvage(&path, &ID).unwrap();
                let (_, read, _) = Journal::<Vec<u8>>::open(&path, &ID).unwrap();
                prop_assert_eq!(read.len() as u64, salvaged.frames);
            }
        }
    }

    proptest! {
        // Each of these tries every byte.
        #![proptest_config(ProptestConfig::with_cases(4))]

        #[test]
        fn a_cut_at_any_byte_costs_only_the_frame_that_it_is_in(list in records()) {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("journal");
            let (bytes, ends) = written(&path, &list);
            for cut in 0..=bytes.len() {
                // Delayed allocation may have left zeros instead of nothing.
                for zeros in [0, 15, 5000] {
                    let mut file = bytes[..cut].to_vec();
                    file.resize(cut + zeros, 0);
                    // The cut may be before bytes that are zero themselves.
                    let same = file.iter().zip(&bytes).take_while(|(a, b)| a == b).count();
                    let whole = ends.iter().filter(|end| **end <= same).count();
                    fs::write(&path, &file).unwrap();
                    let within_frame = !ends.contains(&same) && whole > 0;
                    if zeros > 0 && within_frame && same >= ends[whole - 1] {
                        // Half a frame and zeros: cut or damaged cannot be told apart, but nothing
                        // whole is lost.
                        match Journal::<Record>::read(&path, &ID) {
                            Ok((read, _)) => prop_assert_eq!(&read, &list[..whole - 1]),
                            Err(JournalError::Damaged { frame, .. }) => prop_assert_eq!(frame as usize, whole - 1),
                            Err(other) => prop_assert!(false, "{}", other),
                        }
                        continue;
                    }
                    if zeros > 0 && whole == 0 {
                        continue;
                    }
                    let before = whole.saturating_sub(1);
                    let (mut journal, read, opened) = open(&path).unwrap();
                    prop_assert_eq!(&read, &list[..before]);
                    prop_assert_eq!(opened.frames as usize, before);
                    let good = if whole == 0 { 0 } else { ends[whole - 1] };
                    prop_assert_eq!(opened.torn_bytes as usize, file.len() - good);
                    journal.append(&Record::Tick).unwrap();
                    drop(journal);
                    let (_, read, opened) = open(&path).unwrap();
                    prop_assert_eq!(&read[..before], &list[..before]);
                    prop_assert_eq!(&read[before..], &[Record::Tick]);
                    prop_assert_eq!(opened.torn_bytes, 0);
                }
            }
        }

        #[test]
        fn any_flipped_bit_is_reported_with_its_place(list in records(), bit in 0..8u8) {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("journal");
            let (bytes, ends) = written(&path, &list);
            for at in 0..bytes.len() {
                let mut damaged = bytes.clone();
                damaged[at] ^= 1 << bit;
                fs::write(&path, &damaged).unwrap();
                let error = open(&path).unwrap_err();
                if at < 8 {
                    prop_assert!(matches!(error, JournalError::Foreign { .. }), "{}", error);
                } else if at < HEAD_BYTES {
                    prop_assert!(matches!(error, JournalError::Damaged { at: 0, .. }), "{}", error);
                } else {
                    let hit = ends.iter().filter(|end| **end <= at).count() - 1;
                    match error {
                        JournalError::Damaged { at, frame, .. } => {
                            prop_assert_eq!((at as usize, frame as usize), (ends[hit], hit));
                        }
                        other => prop_assert!(false, "{}", other),
                    }
                    prop_assert_eq!(&fs::read(&path).unwrap(), &damaged, "left as it is");
                    // This waits for the disk.
                    if at % 5 != 0 {
                        continue;
                    }
                    let salvaged = Frames::salvage(&path, &ID).unwrap();
                    let (_, read, _) = open(&path).unwrap();
                    let mut others = list.clone();
                    others.remove(hit);
                    prop_assert_eq!(&read, &others);
                    prop_assert_eq!(salvaged.lost, [(ends[hit] as u64, (ends[hit + 1] - ends[hit]) as u64)]);
                }
            }
        }
    }

    #[test]
    fn another_searchs_journal_is_not_touched() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("journal");
        let (bytes, _) = written(&path, &[Record::Tick]);
        let error = Journal::<Record>::open(&path, &[8; 32]).unwrap_err();
        assert!(matches!(error, JournalError::OtherIdentity { .. }));
        for other in ["#!/bin/sh\n", &"text ".repeat(100)] {
            let path = folder.path().join("other");
            fs::write(&path, other).unwrap();
            let error = open(&path).unwrap_err();
            assert!(matches!(error, JournalError::Foreign { .. }), "{error}");
            assert_eq!(fs::read_to_string(&path).unwrap(), other);
        }
        assert_eq!(fs::read(&path).unwrap(), bytes);
        assert!(open(folder.path()).is_err(), "a folder");
    }

    #[test]
    fn records_of_another_type_are_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("journal");
        written(&path, &[Record::Tick, Record::Note("long".repeat(9))]);
        let error = Journal::<u8>::open(&path, &ID).unwrap_err();
        match error {
            JournalError::Undecodable { frame, .. } => assert_eq!(frame, 1),
            other => panic!("{other}"),
        }
    }

    #[test]
    fn a_journal_within_a_journal_is_not_salvaged() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("journal");
        let (bytes, _) = written(&path, &[Record::Note("inner".into())]);
        fs::remove_file(&path).unwrap();
        let outer = Record::Case {
            id: 1,
            parent: None,
            input: bytes,
        };
        let (mut bytes, ends) = written(&path, &[outer, Record::Tick]);
        bytes[ends[0]] ^= 1;
        fs::write(&path, &bytes).unwrap();
        for copy in ["journal.damaged", "journal.damaged-2"] {
            Frames::salvage(&path, &ID).unwrap();
            assert_eq!(open(&path).unwrap().1, [Record::Tick]);
            assert!(folder.path().join(copy).exists());
        }
    }
}
