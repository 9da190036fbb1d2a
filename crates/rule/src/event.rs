//! What a rule sees: the tool's event stream, with addresses resolved to files and with requests of
//! the program decoded.
//!
//! The types marked "part of the interface" are `repr(C)`, hold only integers, and cross the border
//! as they are. Their layout is frozen for a version of the interface ([`crate::abi::VERSION`]).

use std::fmt;

macro_rules! number {
    ($(#[$doc:meta])* $name:ident($inner:ty)) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(transparent)]
        pub struct $name(pub $inner);
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(&self.0, f)
            }
        }
    };
}

number! {
    /// A place in the run's total order of events.
    EventIndex(u64)
}
number! {
    /// A thread, numbered from 1 over all processes of the run. 0 is the tool itself.
    ThreadId(u32)
}
number! {
    /// A process, numbered from 1. 0 if there is none.
    ProcessId(u32)
}
number! {
    /// A tracked file, numbered from 1. 0 if there is none.
    FileId(u32)
}
number! {
    /// A calling context: the chain of return addresses above an instruction. Meaningful to the
    /// tool only.
    ContextId(u32)
}

/// An address in the program that is checked, not in this process.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(transparent)]
pub struct Address(pub u64);

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}", self.0)
    }
}
impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}", self.0)
    }
}

/// A range of addresses of the checked program. Part of the interface.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(C)]
pub struct ByteRange {
    /// First byte.
    pub address: Address,
    /// Number of bytes.
    pub len: u64,
}

impl ByteRange {
    /// `len` bytes from `address`.
    pub fn new(address: Address, len: u64) -> Self {
        ByteRange { address, len }
    }

    /// First address after the range; the last address there is, if it reaches beyond.
    pub fn end(self) -> Address {
        Address(self.address.0.saturating_add(self.len))
    }

    /// True if a byte is in both.
    pub fn overlaps(self, other: ByteRange) -> bool {
        self.intersection(other).is_some()
    }

    /// What is in both, if anything is.
    pub fn intersection(self, other: ByteRange) -> Option<ByteRange> {
        let start = self.address.max(other.address);
        let end = self.end().min(other.end());
        (start < end).then(|| ByteRange::new(start, end.0 - start.0))
    }
}

/// Bytes of a tracked file, and where the program sees them. Part of the interface.
///
/// With a file, the file and the offset count; without, the address does, in the process of the
/// event.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(C)]
pub struct Place {
    /// First byte, in the process of the event.
    pub address: Address,
    /// Number of bytes.
    pub len: u64,
    /// First byte, in the file: the same in every process and every run.
    pub offset: u64,
    /// Which file; 0 if the bytes belong to none that is tracked.
    pub file: FileId,
    /// 0.
    pub reserved: u32,
}

impl Place {
    /// `len` bytes at `offset` of `file`, seen at `address`.
    pub fn new(address: Address, len: u64, file: FileId, offset: u64) -> Self {
        Place {
            address,
            len,
            offset,
            file,
            reserved: 0,
        }
    }

    /// Where the program sees it.
    pub fn range(self) -> ByteRange {
        ByteRange::new(self.address, self.len)
    }

    /// The part of it that `other` holds too, if there is one: compared by file if both have one,
    /// else by address.
    pub fn intersection(self, other: impl Into<Place>) -> Option<Place> {
        let other = other.into();
        let by_file = self.file != FileId(0) && other.file != FileId(0);
        if by_file && self.file != other.file {
            return None;
        }
        let bytes = |place: Place| match by_file {
            true => ByteRange::new(Address(place.offset), place.len),
            false => place.range(),
        };
        let part = bytes(self).intersection(bytes(other))?;
        let skipped = part.address.0 - bytes(self).address.0;
        Some(Place {
            address: Address(self.address.0.saturating_add(skipped)),
            len: part.len,
            offset: self.offset.saturating_add(skipped),
            ..self
        })
    }
}

impl From<ByteRange> for Place {
    /// A place that is known by its address only.
    fn from(range: ByteRange) -> Self {
        Place::new(range.address, range.len, FileId(0), 0)
    }
}

/// Where and when something happened. Keep it to name an earlier event in a later finding. Part of
/// the interface.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(C)]
pub struct Site {
    /// When.
    pub index: EventIndex,
    /// The instruction; 0 if there is none.
    pub pc: Address,
    /// Its callers.
    pub context: ContextId,
    /// Who.
    pub thread: ThreadId,
    /// In which process.
    pub process: ProcessId,
    /// What it was.
    pub kind: KindCode,
    /// The bytes that it was about; of length 0 if about none.
    pub place: Place,
}

/// Bytes that an instruction, or the kernel, accessed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access<'a> {
    /// Where.
    pub place: Place,
    /// Content after a store, or as loaded. Empty unless the rule asks for values
    /// ([`Info::with_values`](crate::Info::with_values)).
    pub bytes: &'a [u8],
}

/// Which instruction writes a line back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum FlushKind {
    /// `clflush`: ordered like a store.
    Clflush,
    /// `clflushopt`: completes at the thread's next fence.
    Clflushopt,
    /// `clwb`: completes at the thread's next fence.
    Clwb,
    /// The program says so by a request.
    Request,
}

/// Which instruction is the fence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum FenceKind {
    /// `sfence`
    Sfence,
    /// `mfence`
    Mfence,
    /// A locked instruction on ordinary memory.
    Locked,
    /// The program says so by a request.
    Request,
}

/// One event: who, where in the code, and what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event<'a> {
    /// Its place in the run's total order.
    pub index: EventIndex,
    /// The thread that did it.
    pub thread: ThreadId,
    /// The process of the thread.
    pub process: ProcessId,
    /// The instruction; 0 if there is none.
    pub pc: Address,
    /// Its callers.
    pub context: ContextId,
    /// What happened.
    pub kind: Kind<'a>,
}

impl Event<'_> {
    /// Where and when it happened, to keep.
    pub fn site(&self) -> Site {
        Site {
            index: self.index,
            pc: self.pc,
            context: self.context,
            thread: self.thread,
            process: self.process,
            kind: self.kind.code(),
            place: self.kind.place().unwrap_or_default(),
        }
    }
}

/// What happened.
///
/// A request that has a kind of its own (a transaction's beginning, a marker, …) comes as that kind
/// only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Kind<'a> {
    /// An ordinary store.
    Store(Access<'a>),
    /// A non-temporal store: needs a fence, no flush.
    NtStore(Access<'a>),
    /// A locked read-modify-write of persistent memory; a full fence.
    Rmw(Access<'a>),
    /// The kernel stored on behalf of a system call.
    KernelStore {
        /// System call number.
        syscall: u32,
        /// The bytes stored.
        access: Access<'a>,
    },
    /// A load. Only if the rule asks for them ([`Info::with_loads`](crate::Info::with_loads)).
    Load(Access<'a>),
    /// A write-back.
    Flush {
        /// Which instruction.
        kind: FlushKind,
        /// The line; the whole range for a request.
        place: Place,
    },
    /// A fence.
    Fence(FenceKind),

    /// A tracked file, before anything else about it.
    File {
        /// Its number.
        file: FileId,
        /// Absolute path.
        path: &'a [u8],
        /// Size at first sight, bytes.
        size: u64,
    },
    /// A part of a tracked file was mapped.
    Map {
        /// Where.
        place: Place,
        /// `PROT_*`.
        prot: u32,
        /// `MAP_*`.
        flags: u32,
    },
    /// A part of a tracked file is no longer mapped.
    Unmap {
        /// Where.
        place: Place,
    },
    /// `msync`.
    Msync {
        /// Where.
        place: Place,
        /// `MS_*`.
        flags: u32,
    },
    /// `fsync` or `fdatasync`.
    Fsync {
        /// Which file.
        file: FileId,
    },
    /// The file was written through a descriptor. The place has no address.
    FileWrite(Access<'a>),
    /// The file's size was set.
    Truncate {
        /// Which file.
        file: FileId,
        /// New size, bytes.
        size: u64,
    },

    /// The thread began a transaction.
    TxBegin {
        /// The number that the program gave it, else 0.
        id: u64,
        /// 1 for an outermost one; a nested one lies deeper.
        depth: u32,
    },
    /// The thread ended one.
    TxEnd {
        /// As at its beginning.
        id: u64,
        /// As at its beginning.
        depth: u32,
    },
    /// The transaction logs a range before it changes it.
    TxAdd(Place),
    /// The transaction gives up a logged range.
    TxRemove(Place),
    /// The transaction allocated an object.
    TxAlloc(Place),
    /// The transaction frees an object.
    TxFree(Place),

    /// The program called a library function that the tool knows.
    LibraryCall {
        /// The function's symbol.
        function: &'a str,
        /// Its first arguments; 0 behind the last.
        args: [u64; 6],
    },
    /// A pmemcheck request that has no kind of its own.
    Pmemcheck {
        /// Offset from the base of its code space.
        code: u32,
        /// Its arguments.
        args: [u64; 6],
        /// Its string, else empty.
        text: &'a [u8],
    },
    /// An annotation that has no kind of its own.
    Annotation {
        /// Offset from the base of its code space.
        code: u32,
        /// Its arguments.
        args: [u64; 6],
        /// Its string, else empty.
        text: &'a [u8],
    },
    /// A marker.
    Marker {
        /// Its text.
        text: &'a [u8],
    },
    /// The program gave a range a name.
    Variable {
        /// The name.
        name: &'a [u8],
        /// The range.
        place: Place,
    },
    /// A name is no longer valid.
    VariableGone {
        /// The name.
        name: &'a [u8],
    },

    /// The event's process started; `execve` starts it again.
    ProcessStart {
        /// Who made it; 0 for the first.
        parent: ProcessId,
        /// The executable.
        exe: &'a [u8],
    },
    /// The event's process ended.
    ProcessExit,
    /// The event's thread started.
    ThreadStart,
    /// The event's thread ended.
    ThreadExit,
    /// The run ended in order. [`Rule::end`](crate::Rule::end) follows.
    End,

    /// Something that a newer tool knows and this crate does not.
    Other,
}

/// The number of a [`Kind`]. Part of the interface; numbers never change.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(transparent)]
pub struct KindCode(pub u32);

macro_rules! codes {
    ($($name:ident = $value:literal $role:literal)*) => {
        impl KindCode {
            $(#[doc = concat!("`Kind` number ", stringify!($value), ", ", $role, ".")]
            pub const $name: KindCode = KindCode($value);)*

            /// All names with their numbers, as `include/brownout_rule.h` has them, too.
            pub const NAMES: &[(&str, KindCode)] = &[$((stringify!($name), KindCode::$name)),*];

            /// One word for it, as findings call the role of an event.
            pub fn role(self) -> &'static str {
                match self {
                    $(KindCode::$name => $role,)*
                    _ => "event",
                }
            }
        }
    };
}

impl KindCode {
    /// Its bit in [`Info::kinds`](crate::Info::kinds); 0 for numbers that have none.
    pub(crate) fn bit(self) -> u64 {
        1u64.checked_shl(self.0).unwrap_or(0)
    }
}

codes! {
    OTHER = 0 "event"
    STORE = 1 "store"
    NT_STORE = 2 "store"
    RMW = 3 "store"
    KERNEL_STORE = 4 "store"
    LOAD = 5 "load"
    FLUSH = 6 "flush"
    FENCE = 7 "fence"
    FILE = 8 "file"
    MAP = 9 "map"
    UNMAP = 10 "unmap"
    MSYNC = 11 "sync"
    FSYNC = 12 "sync"
    FILE_WRITE = 13 "write"
    TRUNCATE = 14 "truncate"
    TX_BEGIN = 15 "tx-begin"
    TX_END = 16 "tx-end"
    TX_ADD = 17 "log"
    TX_REMOVE = 18 "unlog"
    TX_ALLOC = 19 "alloc"
    TX_FREE = 20 "free"
    LIBRARY_CALL = 21 "call"
    PMEMCHECK = 22 "request"
    ANNOTATION = 23 "request"
    MARKER = 24 "marker"
    VARIABLE = 25 "variable"
    VARIABLE_GONE = 26 "variable"
    PROCESS_START = 27 "start"
    PROCESS_EXIT = 28 "exit"
    THREAD_START = 29 "start"
    THREAD_EXIT = 30 "exit"
    END = 31 "exit"
}

impl<'a> Kind<'a> {
    /// A store of `len` bytes whose values are not known, at `address` and at the same offset of
    /// file 1: for tests.
    pub fn store(address: u64, len: u64) -> Self {
        Kind::Store(Access {
            place: Place::new(Address(address), len, FileId(1), address),
            bytes: &[],
        })
    }

    /// The access, if it changes persistent memory through a mapping: every kind of store.
    pub fn stored(&self) -> Option<&Access<'a>> {
        match self {
            Kind::Store(access)
            | Kind::NtStore(access)
            | Kind::Rmw(access)
            | Kind::KernelStore { access, .. } => Some(access),
            _ => None,
        }
    }

    /// The bytes that the event is about, if it is about some.
    pub fn place(&self) -> Option<Place> {
        match *self {
            Kind::Store(access)
            | Kind::NtStore(access)
            | Kind::Rmw(access)
            | Kind::KernelStore { access, .. }
            | Kind::Load(access)
            | Kind::FileWrite(access) => Some(access.place),
            Kind::Flush { place, .. }
            | Kind::Map { place, .. }
            | Kind::Unmap { place }
            | Kind::Msync { place, .. }
            | Kind::TxAdd(place)
            | Kind::TxRemove(place)
            | Kind::TxAlloc(place)
            | Kind::TxFree(place)
            | Kind::Variable { place, .. } => Some(place),
            _ => None,
        }
    }

    /// Its number.
    pub fn code(&self) -> KindCode {
        match self {
            Kind::Store(_) => KindCode::STORE,
            Kind::NtStore(_) => KindCode::NT_STORE,
            Kind::Rmw(_) => KindCode::RMW,
            Kind::KernelStore { .. } => KindCode::KERNEL_STORE,
            Kind::Load(_) => KindCode::LOAD,
            Kind::Flush { .. } => KindCode::FLUSH,
            Kind::Fence(_) => KindCode::FENCE,
            Kind::File { .. } => KindCode::FILE,
            Kind::Map { .. } => KindCode::MAP,
            Kind::Unmap { .. } => KindCode::UNMAP,
            Kind::Msync { .. } => KindCode::MSYNC,
            Kind::Fsync { .. } => KindCode::FSYNC,
            Kind::FileWrite(_) => KindCode::FILE_WRITE,
            Kind::Truncate { .. } => KindCode::TRUNCATE,
            Kind::TxBegin { .. } => KindCode::TX_BEGIN,
            Kind::TxEnd { .. } => KindCode::TX_END,
            Kind::TxAdd(_) => KindCode::TX_ADD,
            Kind::TxRemove(_) => KindCode::TX_REMOVE,
            Kind::TxAlloc(_) => KindCode::TX_ALLOC,
            Kind::TxFree(_) => KindCode::TX_FREE,
            Kind::LibraryCall { .. } => KindCode::LIBRARY_CALL,
            Kind::Pmemcheck { .. } => KindCode::PMEMCHECK,
            Kind::Annotation { .. } => KindCode::ANNOTATION,
            Kind::Marker { .. } => KindCode::MARKER,
            Kind::Variable { .. } => KindCode::VARIABLE,
            Kind::VariableGone { .. } => KindCode::VARIABLE_GONE,
            Kind::ProcessStart { .. } => KindCode::PROCESS_START,
            Kind::ProcessExit => KindCode::PROCESS_EXIT,
            Kind::ThreadStart => KindCode::THREAD_START,
            Kind::ThreadExit => KindCode::THREAD_EXIT,
            Kind::End => KindCode::END,
            Kind::Other => KindCode::OTHER,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(address: u64, len: u64) -> ByteRange {
        ByteRange::new(Address(address), len)
    }

    #[test]
    fn ranges_meet_only_in_shared_bytes() {
        assert_eq!(range(0, 8).intersection(range(4, 8)), Some(range(4, 4)));
        assert!(!range(0, 8).overlaps(range(8, 8)), "neighbours");
        assert!(!range(0, 8).overlaps(range(4, 0)), "nothing");
        assert!(range(u64::MAX - 4, 100).overlaps(range(u64::MAX - 1, 1)));
    }

    #[test]
    fn part_of_a_place_keeps_file_and_address_in_step() {
        let place = Place::new(Address(0x1000), 64, FileId(2), 0x200);
        assert_eq!(
            place.intersection(range(0x1010, 0x1000)),
            Some(Place::new(Address(0x1010), 48, FileId(2), 0x210))
        );
        assert_eq!(place.intersection(range(0x1040, 8)), None);
        let elsewhere = |file, offset| Place::new(Address(0x9000), 8, FileId(file), offset);
        assert_eq!(
            place.intersection(elsewhere(2, 0x23c)),
            Some(Place::new(Address(0x103c), 4, FileId(2), 0x23c)),
            "the same file at another address"
        );
        assert_eq!(place.intersection(elsewhere(3, 0x200)), None);
    }
}
