//! One address space for all tracked bytes, whoever maps them where.
//!
//! The model is given *keys*: the file's number above its offset. So two mappings of a file, or two processes, share state.

use brownout_model::ByteRange;
use brownout_trace::event::{FileId, TargetAddr, ThreadId};
use brownout_trace::maps::{AddressSpaces, FileRange};

/// Offsets below 16 TiB, about a million files.
const OFFSET_BITS: u32 = 44;

/// A range of a file, as the model knows it.
pub fn key_range(range: FileRange) -> ByteRange {
    let base = u64::from(range.file.0) << OFFSET_BITS;
    let limit = 1u64 << OFFSET_BITS;
    let offset = range.offset.min(limit);
    ByteRange::new(TargetAddr(base + offset), range.len.min(limit - offset))
}

/// All of a file.
pub fn whole_file(file: FileId) -> ByteRange {
    key_range(FileRange {
        file,
        offset: 0,
        len: u64::MAX,
    })
}

/// The file and offset of a key.
pub fn place(key: TargetAddr) -> (FileId, u64) {
    let offset = key.0 & ((1 << OFFSET_BITS) - 1);
    (FileId((key.0 >> OFFSET_BITS) as u32), offset)
}

/// Calls `each` with the keys of `len` bytes at `addr`; most often once. Bytes that are not tracked are left out.
#[inline]
pub fn translate(
    spaces: &mut AddressSpaces,
    thread: ThreadId,
    addr: TargetAddr,
    len: u64,
    mut each: impl FnMut(ByteRange),
) {
    let mut at = addr.0;
    let mut left = len;
    while left > 0 {
        let Some(found) = spaces.translate(thread, TargetAddr(at)) else {
            break;
        };
        let part = left.min(found.contiguous);
        each(key_range(FileRange {
            file: found.file,
            offset: found.offset,
            len: part,
        }));
        left -= part;
        at += part;
    }
}
