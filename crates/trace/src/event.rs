//! What a target program did to persistent memory, one event at a time.
//!
//! The stream is *one* total order over all threads and processes of a run. For accesses to the
//! same address it agrees with memory order: the engine performs the access and takes its place in
//! the stream inside one critical section.
//!
//! Definitions (`File`, `Module`, `Context`, `Thread`, `Process`, `Map`) come before the first
//! event that refers to them, so a reader needs one pass and a few tables.

use core::fmt;

use brownout_kinds::event_kinds;

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
    /// A thread of the run, numbered from 1 over all processes in order of appearance. 0 is the
    /// tool itself.
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
    /// Address of the instruction (of the `syscall` instruction for what the kernel did); 0 if
    /// none.
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

/// `MS_SYNC` of Linux' `<sys/mman.h>`: an `msync` that has written back what it names. `MS_ASYNC`
/// promises nothing.
pub const MS_SYNC: u32 = 4;

/// Library functions whose calls are recorded: what their pmemcheck requests do not tell.
/// libpmemobj, for one, is silent when it is asked to log what the transaction has logged already.
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
    // From here on about threads.
    "pthread_create",
    "pthread_join",
    "pthread_tryjoin_np",
    "pthread_timedjoin_np",
    "pthread_clockjoin_np",
    "thrd_join",
    "pthread_mutex_lock",
    "pthread_mutex_trylock",
    "pthread_mutex_timedlock",
    "pthread_mutex_clocklock",
    "pthread_mutex_unlock",
    "pthread_rwlock_rdlock",
    "pthread_rwlock_tryrdlock",
    "pthread_rwlock_timedrdlock",
    "pthread_rwlock_clockrdlock",
    "pthread_rwlock_wrlock",
    "pthread_rwlock_trywrlock",
    "pthread_rwlock_timedwrlock",
    "pthread_rwlock_clockwrlock",
    "pthread_rwlock_unlock",
    "pthread_spin_lock",
    "pthread_spin_trylock",
    "pthread_spin_unlock",
    "pthread_cond_wait",
    "pthread_cond_timedwait",
    "pthread_cond_clockwait",
    "pthread_cond_signal",
    "pthread_cond_broadcast",
    "pthread_barrier_wait",
    "pthread_once",
    "sem_wait",
    "sem_trywait",
    "sem_timedwait",
    "sem_clockwait",
    "sem_post",
    "sched_yield",
    "sleep",
    "usleep",
    "nanosleep",
    "clock_nanosleep",
    "read",
    "readv",
    "recv",
    "recvfrom",
    "recvmsg",
    "poll",
    "ppoll",
    "select",
    "pselect",
    "epoll_wait",
    "epoll_pwait",
    "accept",
    "accept4",
    "waitpid",
    "wait4",
    "waitid",
    "sigwait",
    "sigwaitinfo",
    "sigtimedwait",
    "msgrcv",
    "mq_receive",
    "mq_timedreceive",
];

/// From this one on, [`LIBRARY_FUNCTIONS`] are about threads: how they exclude each other, wait for
/// each other, and learn what others have done. They are recorded on request only.
pub const THREAD_FUNCTIONS_FROM: usize = 16;
const _: () = assert!(LIBRARY_FUNCTIONS.len() > THREAD_FUNCTIONS_FROM);

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
    /// It is not persistent memory: an ordinary file that the run changes. Only where the recording
    /// was asked for names.
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
    /// Permissions, owner or extended attributes of a regular file were changed; the second text
    /// says which. The file's number is 0 if it was not tracked until then.
    Attributes = 12,
}

impl NameChange {
    /// All of them, by number.
    pub const ALL: [NameChange; 13] = [
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
        NameChange::Attributes,
    ];

    /// From its number, if it is one.
    pub fn from_number(number: u64) -> Option<NameChange> {
        Self::ALL.get(usize::try_from(number).ok()?).copied()
    }

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
            NameChange::Attributes => "attributes",
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

/// What event.rs makes of the table of kinds: the enum, names, and copies that borrow nothing.
macro_rules! define_kinds {
    (
        ring {
            $(
                $(#[$doc:meta])*
                $tag:literal $TAG:ident ring $ring:literal $name:literal $Kind:ident
                $({ $( $(#[$field_doc:meta])* $field:ident: $ty:ty = $place:ident, $how:ident $member:literal; )* })?
            )*
        }
        other {
            $(
                $(#[$other_doc:meta])*
                $other_tag:literal $OTHER_TAG:ident $other_name:literal $Other:ident
                { $( $(#[$other_field_doc:meta])* $other_field:ident: $other_ty:ty = $other_place:ident, $other_how:ident $other_member:literal; )* }
            )*
        }
    ) => {
        /// What happened.
        ///
        /// But for the first six, which are frequent and told apart by hand everywhere, the kinds
        /// are rows of [`brownout_kinds::event_kinds`].
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub enum EventKind<'a> {
            /// An ordinary store, any width.
            Store(Access<'a>),
            /// A non-temporal (or direct) store: needs a fence, no flush.
            NtStore(Access<'a>),
            /// A load, by an instruction or by the kernel for a system call (only recorded on
            /// request).
            Load(Access<'a>),
            /// A locked read-modify-write or `xchg`; a full fence. `bytes` is the content
            /// afterwards.
            Rmw(Access<'a>),
            /// A cache-line write-back of the 64-byte line that holds `addr`.
            Flush {
                /// Which instruction.
                kind: FlushKind,
                /// Operand address as the program gave it.
                addr: TargetAddr,
            },
            /// A fence.
            Fence(FenceKind),
            $( $(#[$other_doc])* $Other { $( $(#[$other_field_doc])* $other_field: $other_ty, )* }, )*
            $( $(#[$doc])* $Kind $({ $( $(#[$field_doc])* $field: $ty, )* })?, )*
        }

        /// The names of the kinds, several for those that stand for several instructions or system
        /// calls.
        pub const NAMES: &[&str] = &[
            "store", "nt_store", "load", "rmw", "clflush", "clflushopt", "clwb", "sfence", "mfence", "locked", "fdatasync",
            $( $other_name, )* $( $name, )*
        ];

        impl<'a> EventKind<'a> {
            /// The kind's name as `dump` and `stat` print it. Part of the documented JSON form.
            pub fn name(&self) -> &'static str {
                match self {
                    EventKind::Store(_) => "store",
                    EventKind::NtStore(_) => "nt_store",
                    EventKind::Load(_) => "load",
                    EventKind::Rmw(_) => "rmw",
                    EventKind::Flush { kind, .. } => kind.name(),
                    EventKind::Fence(kind) => kind.name(),
                    EventKind::Fsync { data_only: true, .. } => "fdatasync",
                    $( EventKind::$Other { .. } => $other_name, )*
                    $( EventKind::$Kind { .. } => $name, )*
                }
            }

            /// A copy that borrows nothing, and the text that it leaves behind, for
            /// [`EventKind::with_text`]. Values of accesses and writes are left behind for good.
            pub fn without_text(&self) -> (EventKind<'static>, &'a [u8]) {
                let mut text: &'a [u8] = &[];
                let kind = match *self {
                    EventKind::Store(access) => EventKind::Store(access.without_values()),
                    EventKind::NtStore(access) => EventKind::NtStore(access.without_values()),
                    EventKind::Load(access) => EventKind::Load(access.without_values()),
                    EventKind::Rmw(access) => EventKind::Rmw(access.without_values()),
                    EventKind::Flush { kind, addr } => EventKind::Flush { kind, addr },
                    EventKind::Fence(kind) => EventKind::Fence(kind),
                    $( EventKind::$Other { $( $other_field, )* } => {
                        EventKind::$Other { $( $other_field: left!($other_place, $other_field, text), )* }
                    } )*
                    $( EventKind::$Kind { $($( $field, )*)? } => {
                        EventKind::$Kind { $($( $field: left!($place, $field, text), )*)? }
                    } )*
                };
                (kind, text)
            }
        }

        impl EventKind<'static> {
            /// The kind with its text again.
            pub fn with_text(self, text: &[u8]) -> EventKind<'_> {
                match self {
                    EventKind::Store(access) => EventKind::Store(access),
                    EventKind::NtStore(access) => EventKind::NtStore(access),
                    EventKind::Load(access) => EventKind::Load(access),
                    EventKind::Rmw(access) => EventKind::Rmw(access),
                    EventKind::Flush { kind, addr } => EventKind::Flush { kind, addr },
                    EventKind::Fence(kind) => EventKind::Fence(kind),
                    $( EventKind::$Other { $( $other_field, )* } => {
                        EventKind::$Other { $( $other_field: rejoined!($other_place, $other_field, text), )* }
                    } )*
                    $( EventKind::$Kind { $($( $field, )*)? } => {
                        EventKind::$Kind { $($( $field: rejoined!($place, $field, text), )*)? }
                    } )*
                }
            }
        }
    };
}

/// What of a field is in a copy that borrows nothing. Text goes to `$text`.
macro_rules! left {
    (text, $field:ident, $text:ident) => {{
        $text = $field;
        &[]
    }};
    (values, $field:ident, $text:ident) => {{
        let _ = $field;
        &[]
    }};
    (access, $field:ident, $text:ident) => {
        $field.without_values()
    };
    ($place:ident, $field:ident, $text:ident) => {
        $field
    };
}

/// The field of a copy, with its text again.
macro_rules! rejoined {
    (text, $field:ident, $text:ident) => {{
        let _ = $field;
        $text
    }};
    ($place:ident, $field:ident, $text:ident) => {
        $field
    };
}

event_kinds!(define_kinds);

impl Access<'_> {
    /// Where and how many bytes, but not which.
    pub fn without_values(&self) -> Access<'static> {
        Access {
            addr: self.addr,
            size: self.size,
            bytes: &[],
        }
    }
}

impl<'a> EventKind<'a> {
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
    /// All of them, by number.
    pub const ALL: [PmReason; 5] = [
        PmReason::Glob,
        PmReason::MapSync,
        PmReason::Registered,
        PmReason::Dax,
        PmReason::Changed,
    ];

    /// From its number, if it is one.
    pub fn from_number(number: u64) -> Option<PmReason> {
        Self::ALL.get(usize::try_from(number).ok()?).copied()
    }

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
