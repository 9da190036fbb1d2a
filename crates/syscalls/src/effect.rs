//! Calls that change or persist files without going through memory.
//!
//! A tracked file can be mapped and written by `write` alike. This module tells, from a call and
//! its result, which bytes of which file changed. It does not look at the descriptor: whether it is
//! a tracked file at all, and not a pipe, the caller knows. Likewise for what a call reads
//! ([`file_read`]).
//!
//! **Deviations.** Reads and writes submitted by `io_submit` are not told: they have no descriptor
//! argument. On a descriptor with `O_APPEND` the kernel ignores the offset of `pwrite64` and its
//! vector forms; only the caller can see that flag, and must take [`WrittenAt::End`] then.

use crate::memory::{Memory, Translate, View};

/// Where a call names the file that it changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileTarget {
    /// A descriptor in the argument of this index.
    Fd(u8),
    /// A path in the argument of this index.
    Path(u8),
    /// The descriptor that it returns.
    Result,
}

/// Where a call says which part of the file it changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Position {
    /// At the file position, which moves.
    Current,
    /// At the offset in the argument of this index.
    Arg(u8),
    /// At the offset behind the pointer in the argument of this index, which moves; at the file
    /// position if that is null.
    Behind(u8),
    /// It changes the size, or a range given otherwise.
    Other,
}

/// How a call changes a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileWrite {
    /// Which file.
    pub file: FileTarget,
    /// Which part.
    pub position: Position,
}

/// Where the bytes of a write went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WrittenAt {
    /// At this offset.
    Offset(u64),
    /// Just before the file position after the call.
    BeforePosition,
    /// They are the last of the file.
    End,
}

/// What a successful call did to a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileEffect {
    /// Wrote data.
    Wrote {
        /// To this descriptor.
        fd: i32,
        /// Here.
        at: WrittenAt,
        /// So many bytes; never zero.
        len: u64,
    },
    /// Set the size of an open file (`ftruncate`, or opening with `O_TRUNC`).
    Resized {
        /// Its descriptor.
        fd: i32,
        /// The new size.
        size: u64,
    },
    /// Set the size of a file by its path.
    ResizedPath {
        /// The address of the path.
        path: u64,
        /// The new size.
        size: u64,
    },
    /// `fallocate`: depending on `mode` extends, punches, zeroes, collapses or inserts.
    Allocated {
        /// The descriptor.
        fd: i32,
        /// The `FALLOC_FL_` flags.
        mode: u32,
        /// Where.
        offset: u64,
        /// How much.
        len: u64,
    },
    /// Replaced a range by that of another file (`FICLONE`, `FICLONERANGE`).
    Cloned {
        /// The descriptor of the changed file.
        fd: i32,
        /// Where.
        offset: u64,
        /// How much; zero means up to the end of the source.
        len: u64,
    },
}

/// What a sync call persists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SyncScope {
    /// A file (`fsync`, `fdatasync`).
    File {
        /// Its descriptor.
        fd: i32,
        /// Whether also what is not needed to read the data back.
        metadata: bool,
    },
    /// Mapped memory (`msync`).
    Memory {
        /// Where, as the program addresses it.
        addr: u64,
        /// How much.
        len: u64,
        /// The `MS_` flags: only `MS_SYNC` (4) waits.
        flags: u32,
    },
    /// A part of a file's data (`sync_file_range`), without any metadata or device cache.
    FileRange {
        /// Its descriptor.
        fd: i32,
        /// Where.
        offset: u64,
        /// How much; zero means to the end.
        len: u64,
        /// The `SYNC_FILE_RANGE_` flags.
        flags: u32,
    },
    /// The file system that holds a file (`syncfs`).
    FileSystem {
        /// The file's descriptor.
        fd: i32,
    },
    /// Everything (`sync`).
    Everything,
}

const NR_READ: u64 = 0;
const NR_WRITE: u64 = 1;
const NR_OPEN: u64 = 2;
const NR_IOCTL: u64 = 16;
const NR_PREAD64: u64 = 17;
const NR_PWRITE64: u64 = 18;
const NR_READV: u64 = 19;
const NR_WRITEV: u64 = 20;
const NR_MSYNC: u64 = 26;
const NR_SENDFILE: u64 = 40;
const NR_FSYNC: u64 = 74;
const NR_FDATASYNC: u64 = 75;
const NR_TRUNCATE: u64 = 76;
const NR_FTRUNCATE: u64 = 77;
const NR_CREAT: u64 = 85;
const NR_SYNC: u64 = 162;
const NR_OPENAT: u64 = 257;
const NR_SPLICE: u64 = 275;
const NR_SYNC_FILE_RANGE: u64 = 277;
const NR_FALLOCATE: u64 = 285;
const NR_PREADV: u64 = 295;
const NR_PWRITEV: u64 = 296;
const NR_SYNCFS: u64 = 306;
const NR_COPY_FILE_RANGE: u64 = 326;
const NR_PREADV2: u64 = 327;
const NR_PWRITEV2: u64 = 328;
const NR_OPENAT2: u64 = 437;

const O_TRUNC: u64 = 0o1000;
const O_PATH: u64 = 0o10_000_000;
const RWF_APPEND: u64 = 0x10;
const FICLONE: u32 = 0x4004_9409;
const FICLONERANGE: u32 = 0x4020_940d;

/// Whether a call that [can change a file](is_file_write) is one that does, as far as its arguments
/// tell: most of `ioctl` changes none.
pub fn asks_for_change(nr: u64, args: &[u64; 6]) -> bool {
    nr != NR_IOCTL || matches!(args[1] as u32, FICLONE | FICLONERANGE)
}

/// Whether and how a call can change a file: a quick test by number. Opening counts because of
/// `O_TRUNC`, `ioctl` because of `FICLONE`.
pub fn is_file_write(nr: u64) -> Option<FileWrite> {
    let (file, position) = match nr {
        NR_WRITE | NR_WRITEV | NR_SENDFILE => (FileTarget::Fd(0), Position::Current),
        NR_PWRITE64 | NR_PWRITEV | NR_PWRITEV2 => (FileTarget::Fd(0), Position::Arg(3)),
        NR_COPY_FILE_RANGE | NR_SPLICE => (FileTarget::Fd(2), Position::Behind(3)),
        NR_FTRUNCATE | NR_FALLOCATE | NR_IOCTL => (FileTarget::Fd(0), Position::Other),
        NR_TRUNCATE => (FileTarget::Path(0), Position::Other),
        NR_OPEN | NR_CREAT | NR_OPENAT | NR_OPENAT2 => (FileTarget::Result, Position::Other),
        _ => return None,
    };
    Some(FileWrite { file, position })
}

/// What a call that returned `result` did to a file; none if nothing. `args` are the program's
/// ([`Prepared::args`](crate::Prepared::args)).
pub fn file_effect(
    nr: u64,
    args: &[u64; 6],
    result: i64,
    t: &impl Translate,
    m: &impl Memory,
) -> Option<FileEffect> {
    let how = is_file_write(nr)?;
    let len = u64::try_from(result).ok()?;
    let view = View { t, m };
    let fd = match how.file {
        FileTarget::Fd(n) => args[n as usize] as i32,
        FileTarget::Result => result as i32,
        FileTarget::Path(n) => {
            return Some(FileEffect::ResizedPath {
                path: args[n as usize],
                size: args[1],
            });
        }
    };
    let at = match how.position {
        Position::Current => WrittenAt::BeforePosition,
        Position::Arg(n) => match args[n as usize] {
            // Of the calls with an explicit offset only this one has flags and takes -1.
            offset if nr == NR_PWRITEV2 => match (offset, args[5] & RWF_APPEND != 0) {
                (u64::MAX, _) => WrittenAt::BeforePosition,
                (_, true) => WrittenAt::End,
                (offset, false) => WrittenAt::Offset(offset),
            },
            offset => WrittenAt::Offset(offset),
        },
        Position::Behind(n) => match args[n as usize] {
            0 => WrittenAt::BeforePosition,
            pointer => WrittenAt::Offset(view.read_u64(pointer)?.wrapping_sub(len)),
        },
        Position::Other => return other_effect(nr, fd, args, &view),
    };
    (len > 0).then_some(FileEffect::Wrote { fd, at, len })
}

fn other_effect<T: Translate, M: Memory>(
    nr: u64,
    fd: i32,
    args: &[u64; 6],
    view: &View<'_, T, M>,
) -> Option<FileEffect> {
    let opened = |flags: u64| {
        (flags & (O_TRUNC | O_PATH) == O_TRUNC).then_some(FileEffect::Resized { fd, size: 0 })
    };
    match nr {
        NR_FTRUNCATE => Some(FileEffect::Resized { fd, size: args[1] }),
        NR_FALLOCATE => Some(FileEffect::Allocated {
            fd,
            mode: args[1] as u32,
            offset: args[2],
            len: args[3],
        }),
        NR_OPEN => opened(args[1]),
        NR_CREAT => opened(O_TRUNC),
        NR_OPENAT => opened(args[2]),
        NR_OPENAT2 => opened(view.read_u64(args[2])?),
        NR_IOCTL => match args[1] as u32 {
            FICLONE => Some(FileEffect::Cloned {
                fd,
                offset: 0,
                len: 0,
            }),
            // `struct file_clone_range`: source, its offset, length, our offset.
            FICLONERANGE => Some(FileEffect::Cloned {
                fd,
                offset: view.read_u64(args[2].wrapping_add(24))?,
                len: view.read_u64(args[2].wrapping_add(16))?,
            }),
            _ => None,
        },
        _ => None,
    }
}

/// Where the bytes of a read came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadAt {
    /// From this offset.
    Offset(u64),
    /// From just before the file position after the call.
    BeforePosition,
}

/// What a successful call read of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileRead {
    /// From this descriptor.
    pub fd: i32,
    /// There.
    pub at: ReadAt,
    /// So many bytes; never zero.
    pub len: u64,
}

/// What a call that returned `result` read of a file; none if nothing. `args` are the program's.
pub fn file_read(
    nr: u64,
    args: &[u64; 6],
    result: i64,
    t: &impl Translate,
    m: &impl Memory,
) -> Option<FileRead> {
    let (fd, position) = match nr {
        NR_READ | NR_READV => (args[0], Position::Current),
        NR_PREAD64 | NR_PREADV => (args[0], Position::Arg(3)),
        NR_PREADV2 if args[3] == u64::MAX => (args[0], Position::Current),
        NR_PREADV2 => (args[0], Position::Arg(3)),
        NR_SENDFILE => (args[1], Position::Behind(2)),
        NR_COPY_FILE_RANGE | NR_SPLICE => (args[0], Position::Behind(1)),
        _ => return None,
    };
    let len = u64::try_from(result).ok().filter(|&len| len > 0)?;
    let at = match position {
        Position::Arg(n) => ReadAt::Offset(args[n as usize]),
        Position::Behind(n) if args[n as usize] != 0 => {
            let moved = View { t, m }.read_u64(args[n as usize])?;
            ReadAt::Offset(moved.wrapping_sub(len))
        }
        _ => ReadAt::BeforePosition,
    };
    let fd = fd as i32;
    Some(FileRead { fd, at, len })
}

/// Whether a call makes file data persistent.
pub fn is_sync(nr: u64) -> bool {
    matches!(
        nr,
        NR_FSYNC | NR_FDATASYNC | NR_MSYNC | NR_SYNC_FILE_RANGE | NR_SYNCFS | NR_SYNC
    )
}

/// What a sync call persists; none for other calls.
pub fn sync_scope(nr: u64, args: &[u64; 6]) -> Option<SyncScope> {
    let fd = args[0] as i32;
    Some(match nr {
        NR_FSYNC => SyncScope::File { fd, metadata: true },
        NR_FDATASYNC => SyncScope::File {
            fd,
            metadata: false,
        },
        NR_MSYNC => SyncScope::Memory {
            addr: args[0],
            len: args[1],
            flags: args[2] as u32,
        },
        NR_SYNC_FILE_RANGE => SyncScope::FileRange {
            fd,
            offset: args[1],
            len: args[2],
            flags: args[3] as u32,
        },
        NR_SYNCFS => SyncScope::FileSystem { fd },
        NR_SYNC => SyncScope::Everything,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::info;

    struct NoPm;

    impl Translate for NoPm {
        fn alias_of(&self, _: u64) -> Option<u64> {
            None
        }
    }

    /// Every word of memory is 1000.
    impl Memory for NoPm {
        fn read(&self, _: u64, to: &mut [u8]) -> bool {
            to.copy_from_slice(&1000u64.to_le_bytes()[..to.len()]);
            true
        }

        fn write(&self, _: u64, _: &[u8]) -> bool {
            false
        }
    }

    fn effect(nr: u64, args: [u64; 6], result: i64) -> Option<FileEffect> {
        file_effect(nr, &args, result, &NoPm, &NoPm)
    }

    #[test]
    fn asking_a_file_whether_it_is_a_terminal_does_not_change_it() {
        const TCGETS: u64 = 0x5401;
        assert!(!asks_for_change(NR_IOCTL, &[3, TCGETS, 0, 0, 0, 0]));
        assert!(asks_for_change(NR_IOCTL, &[3, FICLONE.into(), 4, 0, 0, 0]));
        assert!(asks_for_change(NR_WRITE, &[3, 0, 1, 0, 0, 0]));
    }

    #[test]
    fn numbers_are_those_of_the_table() {
        for (nr, name) in [
            (NR_WRITE, "write"),
            (NR_OPEN, "open"),
            (NR_IOCTL, "ioctl"),
            (NR_PWRITE64, "pwrite64"),
            (NR_WRITEV, "writev"),
            (NR_MSYNC, "msync"),
            (NR_SENDFILE, "sendfile"),
            (NR_FSYNC, "fsync"),
            (NR_FDATASYNC, "fdatasync"),
            (NR_TRUNCATE, "truncate"),
            (NR_FTRUNCATE, "ftruncate"),
            (NR_CREAT, "creat"),
            (NR_SYNC, "sync"),
            (NR_OPENAT, "openat"),
            (NR_SPLICE, "splice"),
            (NR_SYNC_FILE_RANGE, "sync_file_range"),
            (NR_FALLOCATE, "fallocate"),
            (NR_PWRITEV, "pwritev"),
            (NR_SYNCFS, "syncfs"),
            (NR_COPY_FILE_RANGE, "copy_file_range"),
            (NR_PWRITEV2, "pwritev2"),
            (NR_OPENAT2, "openat2"),
        ] {
            assert_eq!(info(nr).map(|row| row.name), Some(name));
            assert!(is_file_write(nr).is_some() != is_sync(nr), "{name}");
            assert_eq!(is_sync(nr), sync_scope(nr, &[0; 6]).is_some(), "{name}");
        }
    }

    #[test]
    fn writes_say_where() {
        let wrote = |fd, at, len| Some(FileEffect::Wrote { fd, at, len });
        assert_eq!(
            effect(1, [5, 0, 9, 0, 0, 0], 9),
            wrote(5, WrittenAt::BeforePosition, 9)
        );
        assert_eq!(effect(1, [5, 0, 9, 0, 0, 0], 0), None);
        assert_eq!(effect(1, [5, 0, 9, 0, 0, 0], -5), None);
        assert_eq!(
            effect(18, [5, 0, 9, 70, 0, 0], 4),
            wrote(5, WrittenAt::Offset(70), 4)
        );
        assert_eq!(
            effect(296, [5, 0, 9, 70, 0, 0x10], 4),
            wrote(5, WrittenAt::Offset(70), 4)
        );
        assert_eq!(
            effect(328, [5, 0, 9, 70, 0, 0], 4),
            wrote(5, WrittenAt::Offset(70), 4)
        );
        assert_eq!(
            effect(328, [5, 0, 9, 70, 0, 0x10], 4),
            wrote(5, WrittenAt::End, 4)
        );
        assert_eq!(
            effect(328, [5, 0, 9, u64::MAX, u64::MAX, 0], 4),
            wrote(5, WrittenAt::BeforePosition, 4)
        );
        assert_eq!(
            effect(40, [5, 6, 0, 9, 0, 0], 4),
            wrote(5, WrittenAt::BeforePosition, 4)
        );
        assert_eq!(
            effect(326, [5, 0, 6, 8, 9, 0], 4),
            wrote(6, WrittenAt::Offset(996), 4)
        );
        assert_eq!(
            effect(275, [5, 0, 6, 0, 9, 0], 4),
            wrote(6, WrittenAt::BeforePosition, 4)
        );
    }

    #[test]
    fn reads_say_where() {
        let read = |nr, args, result| file_read(nr, &args, result, &NoPm, &NoPm);
        let from = |fd, at, len| Some(FileRead { fd, at, len });
        for (nr, name) in [
            (NR_READ, "read"),
            (NR_PREAD64, "pread64"),
            (NR_READV, "readv"),
            (NR_PREADV, "preadv"),
            (NR_PREADV2, "preadv2"),
        ] {
            assert_eq!(info(nr).map(|row| row.name), Some(name));
            assert_eq!(read(nr, [5, 0, 9, 70, 0, 0], 0), None, "{name}");
            assert_eq!(read(nr, [5, 0, 9, 70, 0, 0], -5), None, "{name}");
        }
        for nr in [NR_READ, NR_READV] {
            assert_eq!(
                read(nr, [5, 0, 9, 70, 0, 0], 4),
                from(5, ReadAt::BeforePosition, 4)
            );
        }
        for nr in [NR_PREAD64, NR_PREADV, NR_PREADV2] {
            assert_eq!(
                read(nr, [5, 0, 9, 70, 0, 0], 4),
                from(5, ReadAt::Offset(70), 4)
            );
        }
        assert_eq!(
            read(NR_PREADV2, [5, 0, 9, u64::MAX, u64::MAX, 0], 4),
            from(5, ReadAt::BeforePosition, 4)
        );
        assert_eq!(
            read(NR_SENDFILE, [5, 6, 0, 9, 0, 0], 4),
            from(6, ReadAt::BeforePosition, 4)
        );
        assert_eq!(
            read(NR_SENDFILE, [5, 6, 8, 9, 0, 0], 4),
            from(6, ReadAt::Offset(996), 4)
        );
        assert_eq!(
            read(NR_COPY_FILE_RANGE, [5, 8, 6, 0, 9, 0], 4),
            from(5, ReadAt::Offset(996), 4)
        );
        assert_eq!(
            read(NR_SPLICE, [5, 0, 6, 0, 9, 0], 4),
            from(5, ReadAt::BeforePosition, 4)
        );
        assert_eq!(read(NR_WRITE, [5, 0, 9, 0, 0, 0], 9), None);
    }

    #[test]
    fn sizes_change() {
        assert_eq!(
            effect(77, [5, 7, 0, 0, 0, 0], 0),
            Some(FileEffect::Resized { fd: 5, size: 7 })
        );
        assert_eq!(
            effect(76, [99, 7, 0, 0, 0, 0], 0),
            Some(FileEffect::ResizedPath { path: 99, size: 7 })
        );
        let truncated = Some(FileEffect::Resized { fd: 3, size: 0 });
        assert_eq!(effect(2, [99, 0o1001, 0, 0, 0, 0], 3), truncated);
        assert_eq!(effect(2, [99, 0o1, 0, 0, 0, 0], 3), None);
        assert_eq!(effect(85, [99, 0o644, 0, 0, 0, 0], 3), truncated);
        assert_eq!(effect(257, [0, 99, 0o1001, 0, 0, 0], 3), truncated);
        assert_eq!(effect(257, [0, 99, 0o1001, 0, 0, 0], -2), None);
        assert_eq!(
            effect(285, [5, 3, 10, 20, 0, 0], 0),
            Some(FileEffect::Allocated {
                fd: 5,
                mode: 3,
                offset: 10,
                len: 20
            })
        );
        assert_eq!(
            effect(16, [5, FICLONERANGE.into(), 8, 0, 0, 0], 0),
            Some(FileEffect::Cloned {
                fd: 5,
                offset: 1000,
                len: 1000
            })
        );
    }
}
