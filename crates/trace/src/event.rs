//! What a target program did to persistent memory, one event at a time.
//!
//! The stream is *one* total order over all threads and processes of a run. For accesses to the
//! same address it agrees with memory order: the engine performs the access and takes its place in
//! the stream inside one critical section.
//!
//! Definitions (`File`, `Module`, `Context`, `Thread`, `Process`, `Map`) come before the first event that
//! refers to them, so a reader needs one pass and a few tables.

use core::fmt;

macro_rules! id_type {
    ($(#[$doc:meta])* $name:ident($inner:ty)) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub $inner);
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(&self.0, f)
            }
        }
    };
}

id_type! {
    /// A thread of the run, numbered from 1 over all processes in order of appearance. 0 is the tool itself.
    ThreadId(u32)
}
id_type! {
    /// A process of the run, numbered from 1 in order of appearance (not a kernel pid).
    ProcessId(u32)
}
id_type! {
    /// A tracked file, numbered from 1 in order of appearance.
    FileId(u32)
}
id_type! {
    /// A calling context: a chain of return addresses. 0 is the empty chain.
    ContextId(u32)
}

/// An address in the target's address space. Not an address of this process, nor of the code cache.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TargetAddr(pub u64);

impl fmt::Debug for TargetAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}", self.0)
    }
}
impl fmt::Display for TargetAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}", self.0)
    }
}

/// One event with its place: who, where in the code, and in which calling context.
///
/// `'a` borrows payload bytes and strings from the reader's or engine's buffer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event<'a> {
    /// The thread that did it.
    pub thread: ThreadId,
    /// Address of the instruction (of the `syscall` instruction for what the kernel did); 0 if none.
    pub pc: TargetAddr,
    /// The chain of return addresses above `pc`.
    pub context: ContextId,
    /// What happened.
    pub kind: EventKind<'a>,
}

/// Bytes of an access. `bytes` is empty when the recording was made without values,
/// else exactly `size` long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access<'a> {
    /// First byte accessed.
    pub addr: TargetAddr,
    /// Number of bytes.
    pub size: u32,
    /// Content after the access (stores) or as read (loads).
    pub bytes: &'a [u8],
}

/// How a string instruction goes through memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Elements {
    /// Bytes of an element: 1, 2, 4 or 8.
    pub bytes: u8,
    /// From the last element to the first (the direction flag is set).
    pub descending: bool,
}

impl Elements {
    /// As a number, for records and files.
    pub fn code(self) -> u32 {
        u32::from(self.bytes) | u32::from(self.descending) << 8
    }

    /// From its number, if it is one.
    pub fn from_code(code: u32) -> Option<Elements> {
        let bytes = code as u8;
        (code >> 9 == 0 && matches!(bytes, 1 | 2 | 4 | 8)).then_some(Elements {
            bytes,
            descending: code & 0x100 != 0,
        })
    }
}

/// Which cache-line write-back instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum FlushKind {
    /// `clflush`: ordered like a store.
    Clflush = 0,
    /// `clflushopt`: completes at the thread's next fence.
    Clflushopt = 1,
    /// `clwb`: completes at the thread's next fence.
    Clwb = 2,
}

/// Which instruction acted as a fence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum FenceKind {
    /// `sfence`
    Sfence = 0,
    /// `mfence`
    Mfence = 1,
    /// A locked instruction on ordinary memory, recorded only while the thread has unfenced flushes
    /// or non-temporal stores. (On persistent memory the same instruction is an `Rmw`.)
    Locked = 2,
}

/// `MS_SYNC` of Linux' `<sys/mman.h>`: an `msync` that has written back what it names. `MS_ASYNC` promises nothing.
pub const MS_SYNC: u32 = 4;

/// Library functions whose calls are recorded: what their pmemcheck requests do not tell. libpmemobj, for one, is silent when it
/// is asked to log what the transaction has logged already.
///
/// The index is part of the trace format: add at the end, never reorder.
pub const LIBRARY_FUNCTIONS: &[&str] = &[
    "pmemobj_tx_begin",
    "pmemobj_tx_add_range",
    "pmemobj_tx_add_range_direct",
    "pmemobj_tx_xadd_range",
    "pmemobj_tx_xadd_range_direct",
    "pmemobj_tx_alloc",
    "pmemobj_tx_zalloc",
    "pmemobj_tx_xalloc",
    "pmemobj_tx_realloc",
    "pmemobj_tx_zrealloc",
    "pmemobj_tx_strdup",
    "pmemobj_tx_xstrdup",
    "pmemobj_tx_wcsdup",
    "pmemobj_tx_xwcsdup",
    "pmemobj_tx_free",
    "pmemobj_tx_xfree",
];

/// How a file came to be treated as persistent memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum PmReason {
    /// Its path matches a `--pm` pattern.
    Glob = 0,
    /// It was mapped with `MAP_SYNC`.
    MapSync = 1,
    /// The program registered the mapping by a pmemcheck request.
    Registered = 2,
    /// It lies on a DAX mount.
    Dax = 3,
    /// It is not persistent memory: an ordinary file that the run changes. Only where the recording was asked for names.
    Changed = 4,
}

/// What happened to a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum NameChange {
    /// A regular file was made under this name.
    Create = 0,
    /// A file got this name besides those that it has (or its first, if it was made without one).
    Link = 1,
    /// A file, or a symbolic link, lost this name.
    Unlink = 2,
    /// The first name became the second, which may have stood for another file.
    Rename = 3,
    /// Two names were exchanged.
    Exchange = 4,
    /// A folder was made.
    Mkdir = 5,
    /// A folder was removed.
    Rmdir = 6,
    /// A symbolic link was made; the second path is what it says.
    Symlink = 7,
    /// As `Rename`, of a folder with all that is in it.
    RenameFolder = 8,
    /// `fsync` or `fdatasync` on a folder.
    SyncFolder = 9,
    /// `sync` or `syncfs`: everything of the file system.
    SyncAll = 10,
    /// Something that is not followed further; the second text says what, in a few words.
    Unfollowed = 11,
}

impl NameChange {
    /// All of them, by number.
    pub const ALL: [NameChange; 12] = [
        NameChange::Create,
        NameChange::Link,
        NameChange::Unlink,
        NameChange::Rename,
        NameChange::Exchange,
        NameChange::Mkdir,
        NameChange::Rmdir,
        NameChange::Symlink,
        NameChange::RenameFolder,
        NameChange::SyncFolder,
        NameChange::SyncAll,
        NameChange::Unfollowed,
    ];

    /// A word for it.
    pub fn name(self) -> &'static str {
        match self {
            NameChange::Create => "create",
            NameChange::Link => "link",
            NameChange::Unlink => "unlink",
            NameChange::Rename => "rename",
            NameChange::Exchange => "exchange",
            NameChange::Mkdir => "mkdir",
            NameChange::Rmdir => "rmdir",
            NameChange::Symlink => "symlink",
            NameChange::RenameFolder => "rename_folder",
            NameChange::SyncFolder => "sync_folder",
            NameChange::SyncAll => "sync_all",
            NameChange::Unfollowed => "unfollowed",
        }
    }
}

/// The two texts of a [`Name`](EventKind::Name) event; the second is empty if there is none.
pub fn split_names(names: &[u8]) -> (&[u8], &[u8]) {
    match names.iter().position(|byte| *byte == 0) {
        Some(at) => (&names[..at], &names[at + 1..]),
        None => (names, &[]),
    }
}

/// How a process or the whole run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ExitStatus {
    /// Exit code.
    Code(i32),
    /// Killed by this signal.
    Signal(i32),
    /// Replaced by another program through `execve`.
    Exec,
}

/// What happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EventKind<'a> {
    // ---- accesses to tracked memory
    /// An ordinary store, any width.
    Store(Access<'a>),
    /// A non-temporal (or direct) store: needs a fence, no flush.
    NtStore(Access<'a>),
    /// A load, by an instruction or by the kernel for a system call (only recorded on request).
    Load(Access<'a>),
    /// A locked read-modify-write or `xchg`; a full fence. `bytes` is the content afterwards.
    Rmw(Access<'a>),
    /// The kernel wrote into the mapping on behalf of system call `syscall`.
    KernelStore {
        /// System call number.
        syscall: u32,
        /// The bytes written.
        access: Access<'a>,
    },
    /// A string instruction (`rep movs`, `rep stos`) stored several elements, one after the other. Where that makes no difference (aligned
    /// words in ascending order), and for a single element, it is a `Store`.
    StringStore {
        /// The bytes of all elements, in address order whatever the direction.
        access: Access<'a>,
        /// In which pieces and order they were stored.
        elements: Elements,
    },
    /// A cache-line write-back of the 64-byte line that holds `addr`.
    Flush {
        /// Which instruction.
        kind: FlushKind,
        /// Operand address as the program gave it.
        addr: TargetAddr,
    },
    /// A fence.
    Fence(FenceKind),

    // ---- file and mapping operations
    /// Defines a tracked file.
    File {
        /// Its number.
        file: FileId,
        /// Absolute path at first sight.
        path: &'a [u8],
        /// Size at first sight, bytes.
        size: u64,
        /// Why it is tracked.
        reason: PmReason,
        /// It did not exist when the run began: the program made it. Known only where the recording was asked for
        /// boundaries; false otherwise.
        created: bool,
    },
    /// A range of a tracked file was mapped.
    Map {
        /// Where.
        addr: TargetAddr,
        /// Bytes, a multiple of the page size.
        len: u64,
        /// What.
        file: FileId,
        /// Offset in the file of `addr`.
        offset: u64,
        /// `PROT_*` as the program asked.
        prot: u32,
        /// `MAP_*` as the program asked.
        flags: u32,
    },
    /// A range was unmapped, replaced, or is no longer tracked.
    Unmap {
        /// Where.
        addr: TargetAddr,
        /// Bytes.
        len: u64,
    },
    /// `mremap` moved or resized a tracked mapping.
    Remap {
        /// Old place.
        old_addr: TargetAddr,
        /// Old bytes.
        old_len: u64,
        /// New place.
        new_addr: TargetAddr,
        /// New bytes.
        new_len: u64,
    },
    /// The file's size was set (`ftruncate`, `fallocate`).
    Truncate {
        /// Which.
        file: FileId,
        /// New size.
        size: u64,
    },
    /// The file was written through a descriptor (`write` and its kin).
    FileWrite {
        /// Which.
        file: FileId,
        /// Where.
        offset: u64,
        /// How many bytes.
        size: u32,
        /// What (empty without values).
        bytes: &'a [u8],
    },
    /// The file was read through a descriptor (`read` and its kin). Recorded with loads only.
    FileRead {
        /// Which.
        file: FileId,
        /// Where.
        offset: u64,
        /// How many bytes.
        size: u32,
    },
    /// `msync` on a tracked range.
    Msync {
        /// Where.
        addr: TargetAddr,
        /// Bytes.
        len: u64,
        /// `MS_*`; see [`MS_SYNC`].
        flags: u32,
    },
    /// `fsync` or `fdatasync` on a tracked file.
    Fsync {
        /// Which.
        file: FileId,
        /// True for `fdatasync`.
        data_only: bool,
    },
    /// A stretch of a tracked file is durable, with the size that it takes to read it back: a descriptor with `O_DSYNC` or `O_SYNC`, or a
    /// call with `RWF_DSYNC` or `RWF_SYNC`, wrote it. It follows the [`FileWrite`](Self::FileWrite).
    FileSync {
        /// Which.
        file: FileId,
        /// Where.
        offset: u64,
        /// How many bytes.
        size: u64,
    },
    /// A name appeared, went or changed, or was made durable. Recorded only on request, after the call that did it.
    Name {
        /// What happened.
        change: NameChange,
        /// The file that the (first) name stood for, or stands for now; 0 if that is not a regular file.
        file: FileId,
        /// The file that the second name stood for; 0 if there was none.
        replaced: FileId,
        /// Absolute path without symbolic links in its folder; a second one behind a zero byte. See [`split_names`].
        names: &'a [u8],
    },

    // ---- threads and processes
    /// A process started (the first, or by fork), or began anew by `execve`.
    ProcessStart {
        /// Its number.
        process: ProcessId,
        /// The number of the one that made it; 0 for the first.
        parent: ProcessId,
        /// Kernel pid (made up under `--deterministic`).
        pid: u32,
        /// Executable.
        exe: &'a [u8],
    },
    /// A process ended.
    ProcessExit {
        /// Which.
        process: ProcessId,
        /// How.
        status: ExitStatus,
    },
    /// Defines a thread; it is the thread's own first event (but for `ProcessStart`, if it is a process's first thread).
    ThreadStart {
        /// Its number.
        thread: ThreadId,
        /// The process that it belongs to.
        process: ProcessId,
        /// Kernel tid (made up under `--deterministic`).
        tid: u32,
    },
    /// The event's thread ended.
    ThreadExit,
    /// A futex call: synchronisation between threads.
    Futex {
        /// Address of the word.
        addr: TargetAddr,
        /// `FUTEX_*` operation with flags as given.
        op: u32,
        /// Argument `val`.
        val: u32,
        /// Result of the call.
        result: i64,
    },

    // ---- boundaries between the program and the world (only recorded on request)
    /// The program is about to read its standard input.
    Input {
        /// The descriptor that it reads from.
        fd: i32,
        /// The position at which it reads, in bytes; `u64::MAX` if it is no file.
        at: u64,
    },
    /// The program has written to something that is not a tracked file: what the world may have seen.
    Output {
        /// The descriptor that it wrote to.
        fd: i32,
        /// How many bytes were taken (of `sendmmsg`: how many messages).
        size: u64,
    },
    /// The program has made a system call that names a redirected path: where it looked for its file.
    Lookup {
        /// System call number.
        syscall: u32,
        /// What the call answered: a negative error number, or its result.
        result: i64,
        /// The path as the program gave it, relative or not.
        path: &'a [u8],
    },
    /// The program is about to be ended by a signal: a fault of the instruction at the event's `pc`, or sent by the
    /// program to itself.
    Signal {
        /// Its number.
        signal: i32,
        /// The address that a fault reports (`si_addr`); 0 if the signal was sent.
        addr: TargetAddr,
    },

    /// A write-back of ordinary memory, on the stack or the heap, while files are tracked: told once for each place in the code and
    /// calling context.
    FlushOutside {
        /// The operand.
        addr: TargetAddr,
        /// The first word in the rest of its line that is an address in tracked memory, perhaps of what was meant; else 0.
        word: u64,
    },

    // ---- requests of the program
    /// A pmemcheck client request (see the code numbers of pmemcheck, base `0x5043_0000`).
    Pmemcheck {
        /// Offset from the base.
        code: u32,
        /// Its arguments.
        args: [u64; 4],
        /// The string argument of `EMIT_LOG`, else empty.
        text: &'a [u8],
    },
    /// A request of this project's own annotations.
    Annotation {
        /// Offset from the base.
        code: u32,
        /// Its arguments.
        args: [u64; 5],
        /// The string argument, if the code has one.
        text: &'a [u8],
    },

    /// The program entered a library function that analyses want to know of.
    LibraryCall {
        /// Which: an index into [`LIBRARY_FUNCTIONS`].
        function: u32,
        /// The first five integer arguments as the calling convention passes them, meant or not.
        args: [u64; 5],
    },

    // ---- definitions
    /// Executable code was mapped, or went away: what symbolisation needs.
    Module {
        /// In which process.
        process: ProcessId,
        /// Where.
        addr: TargetAddr,
        /// Bytes.
        len: u64,
        /// Offset in the file of `addr`.
        offset: u64,
        /// File, or a kernel name such as `[vdso]`. Empty: code that was there has gone, and whatever comes there is not
        /// what it was.
        path: &'a [u8],
    },
    /// Defines a calling context.
    Context {
        /// Its number.
        context: ContextId,
        /// The chain above.
        parent: ContextId,
        /// The innermost return address.
        return_addr: TargetAddr,
    },

    // ---- about the recording itself
    /// Something that a reader of results must know (not followed, truncated, …).
    Note {
        /// One sentence.
        text: &'a [u8],
    },
    /// Last event of a recording that ended in order.
    End {
        /// How the first process ended.
        status: ExitStatus,
    },
}

impl<'a> EventKind<'a> {
    /// The kind's name as `dump` and `stat` print it. Part of the documented JSON form.
    pub fn name(&self) -> &'static str {
        match self {
            EventKind::Store(_) => "store",
            EventKind::NtStore(_) => "nt_store",
            EventKind::Load(_) => "load",
            EventKind::Rmw(_) => "rmw",
            EventKind::KernelStore { .. } => "kernel_store",
            EventKind::StringStore { .. } => "string_store",
            EventKind::Flush { kind, .. } => kind.name(),
            EventKind::Fence(kind) => kind.name(),
            EventKind::File { .. } => "file",
            EventKind::Map { .. } => "map",
            EventKind::Unmap { .. } => "unmap",
            EventKind::Remap { .. } => "remap",
            EventKind::Truncate { .. } => "truncate",
            EventKind::FileWrite { .. } => "file_write",
            EventKind::FileRead { .. } => "file_read",
            EventKind::Msync { .. } => "msync",
            EventKind::Fsync {
                data_only: false, ..
            } => "fsync",
            EventKind::Fsync {
                data_only: true, ..
            } => "fdatasync",
            EventKind::FileSync { .. } => "file_sync",
            EventKind::Name { .. } => "name",
            EventKind::ProcessStart { .. } => "process_start",
            EventKind::ProcessExit { .. } => "process_exit",
            EventKind::ThreadStart { .. } => "thread_start",
            EventKind::ThreadExit => "thread_exit",
            EventKind::Futex { .. } => "futex",
            EventKind::Input { .. } => "input",
            EventKind::Output { .. } => "output",
            EventKind::Lookup { .. } => "lookup",
            EventKind::Signal { .. } => "signal",
            EventKind::FlushOutside { .. } => "flush_outside",
            EventKind::Pmemcheck { .. } => "pmemcheck",
            EventKind::Annotation { .. } => "annotation",
            EventKind::LibraryCall { .. } => "library_call",
            EventKind::Module { .. } => "module",
            EventKind::Context { .. } => "context",
            EventKind::Note { .. } => "note",
            EventKind::End { .. } => "end",
        }
    }

    /// The access, for the six kinds that are one.
    pub fn access(&self) -> Option<&Access<'a>> {
        match self {
            EventKind::Store(access)
            | EventKind::NtStore(access)
            | EventKind::Load(access)
            | EventKind::Rmw(access)
            | EventKind::StringStore { access, .. }
            | EventKind::KernelStore { access, .. } => Some(access),
            _ => None,
        }
    }
}

impl FlushKind {
    /// The instruction's mnemonic.
    pub fn name(self) -> &'static str {
        match self {
            FlushKind::Clflush => "clflush",
            FlushKind::Clflushopt => "clflushopt",
            FlushKind::Clwb => "clwb",
        }
    }
}

impl FenceKind {
    /// The instruction's mnemonic; `locked` stands for any locked instruction.
    pub fn name(self) -> &'static str {
        match self {
            FenceKind::Sfence => "sfence",
            FenceKind::Mfence => "mfence",
            FenceKind::Locked => "locked",
        }
    }
}

impl PmReason {
    /// A word for it.
    pub fn name(self) -> &'static str {
        match self {
            PmReason::Glob => "glob",
            PmReason::MapSync => "map_sync",
            PmReason::Registered => "registered",
            PmReason::Dax => "dax",
            PmReason::Changed => "changed",
        }
    }
}

impl fmt::Display for ExitStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ExitStatus::Code(code) => write!(f, "exit code {code}"),
            ExitStatus::Signal(signal) => write!(f, "signal {signal}"),
            ExitStatus::Exec => f.write_str("exec"),
        }
    }
}
