//! One address space for all tracked bytes, whoever maps them where: a file's number above its offset.

use brownout_model::ByteRange;
use brownout_trace::event::{FileId, TargetAddr, ThreadId};
use brownout_trace::maps::{AddressSpaces, FileRange};

/// Offsets below 16 TiB, about a million files.
const OFFSET_BITS: u32 = 44;
const LINE_BITS: u32 = 6;

/// Bytes of a cache line.
pub const LINE: usize = 1 << LINE_BITS;

/// A cache line of a tracked file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LineKey(pub u64);

impl LineKey {
    /// The line that holds a key.
    pub fn of(key: u64) -> LineKey {
        LineKey(key >> LINE_BITS)
    }

    /// Key of the first byte.
    pub fn start(self) -> u64 {
        self.0 << LINE_BITS
    }

    /// The file.
    pub fn file(self) -> FileId {
        FileId((self.start() >> OFFSET_BITS) as u32)
    }

    /// Offset in the file of the first byte.
    pub fn offset(self) -> u64 {
        self.start() & ((1 << OFFSET_BITS) - 1)
    }
}

/// The key of an offset in a file.
pub fn key(file: FileId, offset: u64) -> u64 {
    (u64::from(file.0) << OFFSET_BITS) + offset.min((1 << OFFSET_BITS) - 1)
}

/// A stretch of a file, as keys.
pub fn key_range(range: FileRange) -> ByteRange {
    let limit = 1u64 << OFFSET_BITS;
    let offset = range.offset.min(limit);
    ByteRange::new(
        TargetAddr((u64::from(range.file.0) << OFFSET_BITS) + offset),
        range.len.min(limit - offset),
    )
}

/// The file and offset of a key.
pub fn file_offset(key: u64) -> (FileId, u64) {
    (
        FileId((key >> OFFSET_BITS) as u32),
        key & ((1 << OFFSET_BITS) - 1),
    )
}

/// Calls `each` with the keys of `len` bytes at `addr` and where they begin among those bytes. Bytes that are not
/// tracked are left out.
pub fn translate(
    spaces: &mut AddressSpaces,
    thread: ThreadId,
    addr: TargetAddr,
    len: u64,
    mut each: impl FnMut(ByteRange, usize),
) {
    let mut at = addr.0;
    let end = addr.0.saturating_add(len);
    while at < end {
        let Some(found) = spaces.translate(thread, TargetAddr(at)) else {
            break;
        };
        let part = (end - at).min(found.contiguous);
        let keys = key_range(FileRange {
            file: found.file,
            offset: found.offset,
            len: part,
        });
        each(keys, (at - addr.0) as usize);
        at += part;
    }
}
