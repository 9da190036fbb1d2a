//! One address space for all tracked bytes, whoever maps them where.
//!
//! An analysis gives the model *keys* in place of addresses: the file's number above the offset. So
//! two mappings of a file, or two processes, share state. A [`Key`] is no [`TargetAddr`]: neither
//! can be passed where the other is meant.
//!
//! Deviation: what lies at 16 TiB or beyond in a file has no key, and ranges are cut off there.

use brownout_trace::event::{FileId, TargetAddr, ThreadId};
use brownout_trace::maps::{AddressSpaces, FileRange, MapFault};

use crate::types::{ByteRange, Key};

/// Offsets below 16 TiB, about a million files.
const OFFSET_BITS: u32 = 44;
const OFFSET_END: u64 = 1 << OFFSET_BITS;

/// The key of a byte of a file; of the last one that has a key, if this one has none.
#[inline]
pub fn key(file: FileId, offset: u64) -> Key {
    Key(first_key(file) + offset.min(OFFSET_END - 1))
}

/// The keys of a stretch of a file.
#[inline]
pub fn range(range: FileRange) -> ByteRange {
    let offset = range.offset.min(OFFSET_END);
    ByteRange::new(
        Key(first_key(range.file).saturating_add(offset)),
        range.len.min(OFFSET_END - offset),
    )
}

/// The keys of all of a file.
pub fn whole_file(file: FileId) -> ByteRange {
    range(FileRange {
        file,
        offset: 0,
        len: u64::MAX,
    })
}

/// The file and offset of a key.
#[inline]
pub fn place(key: Key) -> (FileId, u64) {
    (
        FileId((key.0 >> OFFSET_BITS) as u32),
        key.0 & (OFFSET_END - 1),
    )
}

/// Calls `each` with the keys of `len` bytes at `addr` and where they begin among those bytes; most
/// often once. Ends at the first byte that is not tracked, with an error: if this is an access that
/// was recorded, the recording is wrong.
#[inline]
pub fn translate(
    spaces: &mut AddressSpaces,
    thread: ThreadId,
    addr: TargetAddr,
    len: u64,
    mut each: impl FnMut(ByteRange, u64),
) -> Result<(), MapFault> {
    let mut done = 0;
    while done < len {
        let at = addr.0.checked_add(done).map(TargetAddr);
        let Some(found) = at.and_then(|at| spaces.translate(thread, at)) else {
            return Err(MapFault::Unmapped(thread, addr));
        };
        let part = found.contiguous.min(len - done);
        let keys = range(FileRange {
            file: found.file,
            offset: found.offset,
            len: part,
        });
        each(keys, done);
        done += part;
    }
    Ok(())
}

#[inline]
fn first_key(file: FileId) -> u64 {
    u64::from(file.0) << OFFSET_BITS
}

#[cfg(test)]
mod tests {
    use super::*;
    use brownout_trace::event::{ContextId, Event, EventKind, ProcessId};

    const FILE: FileId = FileId(3);

    fn stretch(file: FileId, offset: u64, len: u64) -> ByteRange {
        range(FileRange { file, offset, len })
    }

    #[test]
    fn keys_lead_back_to_their_place() {
        for file in [FileId(0), FILE, FileId((1 << 20) - 1)] {
            for offset in [0, 1, 0x1234_5678, OFFSET_END - 1] {
                assert_eq!(place(key(file, offset)), (file, offset));
                assert_eq!(stretch(file, offset, 1).start(), key(file, offset));
            }
        }
    }

    #[test]
    fn no_range_reaches_into_the_next_file() {
        let next = whole_file(FileId(FILE.0 + 1));
        assert_eq!(whole_file(FILE).end(), next.start());
        for offset in [0, 1, OFFSET_END - 1, OFFSET_END, OFFSET_END + 1, u64::MAX] {
            for len in [0, 1, OFFSET_END, u64::MAX] {
                let range = stretch(FILE, offset, len);
                assert!(!range.overlaps(next), "{offset:#x}, {len:#x}");
                let expected = len.min(OFFSET_END.saturating_sub(offset));
                assert_eq!(range.len(), expected, "{offset:#x}, {len:#x}");
            }
            assert_eq!(place(key(FILE, offset)).0, FILE);
        }
    }

    /// File 3 behind file 4, a hole, and file 3 once more up to the end of the address space.
    fn spaces() -> AddressSpaces {
        let mut spaces = AddressSpaces::new();
        let mut observe = |kind| {
            let event = Event {
                thread: ThreadId(1),
                pc: TargetAddr(0),
                context: ContextId(0),
                kind,
            };
            spaces.observe(&event).expect("the stream is sound");
        };
        observe(EventKind::ThreadStart {
            thread: ThreadId(1),
            process: ProcessId(1),
            tid: 1,
        });
        for (addr, file, offset) in [
            (0x1000, FileId(4), 0x8000),
            (0x2000, FILE, 0),
            (0u64.wrapping_sub(0x1000), FILE, 0),
        ] {
            observe(EventKind::Map {
                addr: TargetAddr(addr),
                len: 0x1000,
                file,
                offset,
                prot: 3,
                flags: 1,
            });
        }
        spaces
    }

    /// The parts, and whether they are all of it.
    fn parts_of(addr: u64, len: u64) -> (Vec<(ByteRange, u64)>, bool) {
        let mut parts = Vec::new();
        let explained = translate(
            &mut spaces(),
            ThreadId(1),
            TargetAddr(addr),
            len,
            |keys, at| parts.push((keys, at)),
        );
        (parts, explained.is_ok())
    }

    fn parts(addr: u64, len: u64) -> Vec<(ByteRange, u64)> {
        parts_of(addr, len).0
    }

    #[test]
    fn what_no_mapping_explains_is_an_error() {
        for (addr, len, explained) in [
            (0x2010, 8, true),
            (0x1ff8, 24, true),
            (0x2ff8, 8, true),
            (0x2ff8, 9, false),
            (0xff8, 24, false),
            (0x5000, 1, false),
            (0x5000, 0, true),
            (u64::MAX, 1, true),
            (u64::MAX, 2, false),
        ] {
            assert_eq!(parts_of(addr, len).1, explained, "{len} bytes at {addr:#x}");
        }
    }

    #[test]
    fn an_access_falls_into_the_parts_that_mappings_make_of_it() {
        assert_eq!(parts(0x2010, 8), [(stretch(FILE, 0x10, 8), 0)]);
        assert_eq!(
            parts(0x1ff8, 24),
            [
                (stretch(FileId(4), 0x8ff8, 8), 0),
                (stretch(FILE, 0, 16), 8)
            ]
        );
        assert_eq!(parts(0x2ff8, 24), [(stretch(FILE, 0xff8, 8), 0)]);
        assert_eq!(parts(0xff8, 24), []);
        assert_eq!(parts(0x2000, 0), []);
    }

    #[test]
    fn mappings_of_one_byte_share_its_key() {
        let last_page = 0u64.wrapping_sub(0x1000);
        assert_eq!(parts(last_page + 0x10, 8), parts(0x2010, 8));
    }

    #[test]
    fn nothing_follows_the_end_of_the_address_space() {
        assert_eq!(parts(u64::MAX, 0x2000), [(stretch(FILE, 0xfff, 1), 0)]);
    }
}
