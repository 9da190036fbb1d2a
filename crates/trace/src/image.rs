//! A file's content as the recorded stores leave it: the snapshot, and over it what was written.
//!
//! Guarantee: costs disk and memory for what was written, not for the size of the file, so that
//! pools of many gigabytes stay cheap. A full disk is an error, not a SIGBUS.
//!
//! The written part lives in an unlinked sparse file, mapped whole. It is filled in chunks: the
//! first write to one reserves its disk space and copies the chunk from the snapshot.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::Path;

use memmap2::MmapMut;

/// Small against a pool, large against the cost of a reservation.
const CHUNK: u64 = 64 << 10;

/// A chunk that has been written to.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Chunk {
    /// Its content is in the image and its disk space is reserved.
    Ready,
    /// Its content is in the image, but a truncation gave back some of its space.
    Unreserved,
}

pub(crate) struct Image {
    snapshot: Option<File>,
    /// Bytes from here on are not the snapshot's (any more): zeros unless written.
    snapshot_len: u64,
    file: File,
    /// The whole of `file`; `None` while that is empty.
    map: Option<MmapMut>,
    len: u64,
    chunks: HashMap<u64, Chunk>,
    chunk_recent: Option<u64>,
}

impl Image {
    /// `snapshot` of `None` means that the file was `len` bytes of zeros.
    pub(crate) fn new(scratch_dir: &Path, snapshot: Option<File>, len: u64) -> io::Result<Image> {
        let snapshot_len = match &snapshot {
            Some(file) => file.metadata()?.len().min(len),
            None => 0,
        };
        let mut image = Image {
            snapshot,
            snapshot_len,
            file: tempfile::tempfile_in(scratch_dir)?,
            map: None,
            len: 0,
            chunks: HashMap::new(),
            chunk_recent: None,
        };
        image.set_file_len(len)?;
        Ok(image)
    }

    pub(crate) fn len(&self) -> u64 {
        self.len
    }

    /// Sets the size as `ftruncate` does.
    pub(crate) fn truncate(&mut self, len: u64) -> io::Result<()> {
        if len < self.len {
            self.snapshot_len = self.snapshot_len.min(len);
            // What grows back over this chunk's rest is a hole again.
            let boundary = len / CHUNK;
            let inside = !len.is_multiple_of(CHUNK);
            self.chunks
                .retain(|&chunk, _| chunk < boundary || (chunk == boundary && inside));
            if let Some(state) = self.chunks.get_mut(&boundary) {
                *state = Chunk::Unreserved;
            }
        } else if !self.len.is_multiple_of(CHUNK) {
            // The last chunk was reserved only up to the old end.
            if let Some(state) = self.chunks.get_mut(&(self.len / CHUNK)) {
                *state = Chunk::Unreserved;
            }
        }
        self.set_file_len(len)
    }

    fn set_file_len(&mut self, len: u64) -> io::Result<()> {
        self.chunk_recent = None;
        // The mapping goes first, so that no mapped page is ever behind the end of the file.
        self.map = None;
        self.file.set_len(len)?;
        self.len = len;
        if len > 0 {
            // SAFETY: the file has no name and this is its only descriptor, so nobody else can
            // change its size or content while it is mapped; `Image` unmaps before it resizes.
            self.map = Some(unsafe { MmapMut::map_mut(&self.file)? });
        }
        Ok(())
    }

    /// Writes inside the file; the caller has clipped to its length.
    pub(crate) fn write(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        if bytes.is_empty() {
            return Ok(());
        }
        let end = offset + bytes.len() as u64;
        for chunk in offset / CHUNK..=(end - 1) / CHUNK {
            if self.chunk_recent != Some(chunk) {
                self.prepare(chunk)?;
                self.chunk_recent = Some(chunk);
            }
        }
        let map = self.map.as_mut().ok_or(io::ErrorKind::UnexpectedEof)?;
        map[offset as usize..end as usize].copy_from_slice(bytes);
        Ok(())
    }

    fn prepare(&mut self, chunk: u64) -> io::Result<()> {
        let state = self.chunks.get(&chunk).copied();
        if state == Some(Chunk::Ready) {
            return Ok(());
        }
        let start = chunk * CHUNK;
        let end = (start + CHUNK).min(self.len);
        reserve(&self.file, start, end - start)?;
        if state.is_none() {
            let copy_end = end.min(self.snapshot_len);
            if let (Some(snapshot), Some(map)) = (&self.snapshot, &mut self.map)
                && start < copy_end
            {
                let target = &mut map[start as usize..copy_end as usize];
                snapshot.read_exact_at(target, start)?;
            }
        }
        self.chunks.insert(chunk, Chunk::Ready);
        Ok(())
    }

    /// Fills `buffer` with the content from `offset`; all of it inside the file.
    pub(crate) fn read(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        let end = offset + buffer.len() as u64;
        let mut at = offset;
        while at < end {
            let chunk = at / CHUNK;
            let stop = end.min((chunk + 1) * CHUNK);
            let part = &mut buffer[(at - offset) as usize..(stop - offset) as usize];
            match (&self.map, &self.snapshot) {
                (Some(map), _) if self.chunks.contains_key(&chunk) => {
                    part.copy_from_slice(&map[at as usize..stop as usize]);
                }
                (_, Some(snapshot)) if at < self.snapshot_len => {
                    let known = ((self.snapshot_len - at) as usize).min(part.len());
                    snapshot.read_exact_at(&mut part[..known], at)?;
                    part[known..].fill(0);
                }
                _ => part.fill(0),
            }
            at = stop;
        }
        Ok(())
    }

    /// Ranges outside of which the content is zeros, ascending, without overlap.
    pub(crate) fn data_ranges(&self) -> io::Result<Vec<Range<u64>>> {
        let mut ranges = match &self.snapshot {
            Some(snapshot) => data_ranges(snapshot, self.snapshot_len)?,
            None => Vec::new(),
        };
        for &chunk in self.chunks.keys() {
            ranges.push(chunk * CHUNK..((chunk + 1) * CHUNK).min(self.len));
        }
        Ok(union(ranges))
    }
}

/// Sorts and joins.
pub(crate) fn union(mut ranges: Vec<Range<u64>>) -> Vec<Range<u64>> {
    ranges.sort_by_key(|range| range.start);
    let mut joined: Vec<Range<u64>> = Vec::new();
    for range in ranges {
        match joined.last_mut() {
            Some(last) if range.start <= last.end => last.end = last.end.max(range.end),
            _ => joined.push(range),
        }
    }
    joined
}

/// The ranges of a sparse file, up to `len`, that are not holes.
pub(crate) fn data_ranges(file: &File, len: u64) -> io::Result<Vec<Range<u64>>> {
    let mut ranges = Vec::new();
    let mut at = 0;
    while at < len {
        let Some(start) = seek(file, at, libc::SEEK_DATA)? else {
            break;
        };
        if start >= len {
            break;
        }
        let end = seek(file, start, libc::SEEK_HOLE)?.unwrap_or(len).min(len);
        if end <= start {
            break;
        }
        ranges.push(start..end);
        at = end;
    }
    Ok(ranges)
}

/// `None`: nothing of the kind up to the end of the file.
fn seek(file: &File, from: u64, whence: libc::c_int) -> io::Result<Option<u64>> {
    let from = libc::off_t::try_from(from).map_err(|_| io::ErrorKind::InvalidInput)?;
    // SAFETY: lseek touches no memory; the borrow of `file` keeps the descriptor open.
    let found = unsafe { libc::lseek(file.as_raw_fd(), from, whence) };
    if found >= 0 {
        return Ok(Some(found as u64));
    }
    let error = io::Error::last_os_error();
    if error.raw_os_error() == Some(libc::ENXIO) {
        Ok(None)
    } else {
        Err(error)
    }
}

fn reserve(file: &File, offset: u64, len: u64) -> io::Result<()> {
    let convert = |n| libc::off_t::try_from(n).map_err(|_| io::ErrorKind::InvalidInput);
    let (offset, len) = (convert(offset)?, convert(len)?);
    // SAFETY: posix_fallocate touches no memory of ours; the borrow keeps the descriptor open.
    match unsafe { libc::posix_fallocate(file.as_raw_fd(), offset, len) } {
        0 => Ok(()),
        error => Err(io::Error::from_raw_os_error(error)),
    }
}

/// Copies a file without filling its holes. For snapshots of pools before a run.
pub fn copy_sparse(from: &Path, to: &Path) -> io::Result<u64> {
    let source = File::open(from)?;
    let target = File::create(to)?;
    let len = source.metadata()?.len();
    target.set_len(len)?;
    let mut buffer = vec![0; 1 << 20];
    for range in data_ranges(&source, len)? {
        let mut at = range.start;
        while at < range.end {
            let part_len = (range.end - at).min(buffer.len() as u64) as usize;
            let part = &mut buffer[..part_len];
            source.read_exact_at(part, at)?;
            target.write_all_at(part, at)?;
            at += part_len as u64;
        }
    }
    Ok(len)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn content(image: &Image) -> Vec<u8> {
        let mut all = vec![0xee; image.len() as usize];
        image.read(0, &mut all).expect("scratch files can be read");
        all
    }

    proptest! {
        /// The image against the obvious model, a vector of bytes.
        #[test]
        fn behaves_like_a_file(
            snapshot_len in 0usize..200_000,
            size_at_first in 0usize..200_000,
            steps in prop::collection::vec(
                (0usize..300_000, prop::option::of(prop::collection::vec(1u8.., 1..40))), 0..30),
        ) {
            let dir = tempfile::tempdir().expect("a scratch folder");
            let initial: Vec<u8> = (0..snapshot_len).map(|at| (at % 251) as u8 + 1).collect();
            let path = dir.path().join("snapshot");
            std::fs::write(&path, &initial).expect("a scratch file");
            let snapshot = File::open(&path).expect("the scratch file");
            let mut image = Image::new(dir.path(), Some(snapshot), size_at_first as u64)
                .expect("an image");
            let mut model = initial;
            model.resize(size_at_first, 0);
            for (place, bytes) in steps {
                match bytes {
                    Some(bytes) if model.len() > bytes.len() => {
                        let at = place % (model.len() - bytes.len());
                        image.write(at as u64, &bytes).expect("room on the disk");
                        model[at..at + bytes.len()].copy_from_slice(&bytes);
                    }
                    _ => {
                        image.truncate(place as u64).expect("room on the disk");
                        model.resize(place, 0);
                    }
                }
            }
            prop_assert!(content(&image) == model);
            let mut outside_is_zero = model.clone();
            for range in image.data_ranges().expect("seekable scratch files") {
                outside_is_zero[range.start as usize..range.end as usize].fill(0);
            }
            prop_assert!(outside_is_zero.iter().all(|&byte| byte == 0));
        }
    }

    #[test]
    fn a_sparse_copy_is_equal_and_stays_sparse() {
        use std::os::unix::fs::MetadataExt;
        let dir = tempfile::tempdir().expect("a scratch folder");
        let (from, to) = (dir.path().join("from"), dir.path().join("to"));
        let file = File::create(&from).expect("a scratch file");
        file.set_len(1 << 30).expect("a sparse file");
        file.write_all_at(b"in the middle", 500 << 20)
            .expect("room on the disk");
        assert_eq!(copy_sparse(&from, &to).expect("a copy"), 1 << 30);
        let copy = File::open(&to).expect("the copy");
        let mut found = [0; 13];
        copy.read_exact_at(&mut found, 500 << 20)
            .expect("the copy is as long");
        assert_eq!(&found, b"in the middle");
        let blocks = copy.metadata().expect("metadata").blocks();
        assert!(blocks * 512 < 16 << 20, "the copy takes {blocks} blocks");
    }
}
