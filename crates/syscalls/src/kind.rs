//! The vocabulary of the table: what one argument of a system call is.
//!
//! Everything here is plain data that can be written in a `static`. Meaning is given to it in
//! `prepare` (where do pointers lead, what may the kernel touch) and `finish` (what did it write).

/// What one argument of a system call is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ArgKind {
    /// A number, a descriptor, flags, or no argument at all. Never looked at.
    Value,
    /// An address that names a mapping, or belongs to another address space, or is only handed
    /// back to the program (`mmap`, `mprotect`, `clone`'s stack). Never rewritten.
    Address,
    /// The kernel reads memory here.
    In(Bound),
    /// The kernel writes memory here (and may read it first).
    Out(Out),
    /// The kernel keeps the pointer and uses it after the call returned.
    Retained(Bound),
    /// The kernel follows pointers found in memory.
    Nested(Nested),
    /// A pointer of which nothing more is known; what it leads to is compared before and after.
    Opaque,
}

/// An argument through which the kernel writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Out {
    /// The most that can be touched.
    pub bound: Bound,
    /// How much of it was written.
    pub wrote: Wrote,
    /// With which results anything was written.
    pub when: When,
    /// Whether the kernel also reads the old content.
    pub reads: bool,
}

/// An upper bound, in bytes, of what the kernel touches behind a pointer.
///
/// `u8` operands are argument indexes. `Len` and `Items` take the argument as `size_t`, `Int…` as
/// `int`, whose upper half the kernel ignores (and so may be garbage).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bound {
    /// So many bytes.
    Bytes(u16),
    /// The argument is the length.
    Len(u8),
    /// The argument is the length, and moving less than that is a legal outcome.
    Transfer(u8),
    /// The argument plus a constant.
    LenPlus(u8, u8),
    /// The argument, a `size_t`, counts items of this size.
    Items(u8, u16),
    /// The argument, an `int`, is the length.
    IntLen(u8),
    /// The argument, an `int`, counts items of this size.
    IntItems(u8, u16),
    /// The argument is `nfds` of `select`: bits, in whole words.
    FdSet(u8),
    /// The argument is a length in bytes; one byte for each page of it.
    Pages(u8),
    /// The argument counts bits of a NUMA node mask, in whole words.
    NodeMask(u8),
    /// The argument points to a `socklen_t` that holds the length on entry.
    SockLen(u8),
    /// The structure itself holds a count of `width` bytes at `at`: `base + item * count`.
    Counted {
        /// Bytes before the items.
        base: u8,
        /// Where the count is.
        at: u8,
        /// Its width in bytes: 2 or 4.
        width: u8,
        /// Bytes of one item.
        item: u8,
    },
    /// A string up to its NUL, at most `PATH_MAX`.
    Path,
    /// A string up to its NUL, at most `MAX_ARG_STRLEN`.
    Text,
}

/// How much of the bound was written, given that anything was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wrote {
    /// All of it.
    All,
    /// As many items of this size as the result says.
    Result(u8),
    /// The result and so many bytes before it (`msgrcv`).
    ResultPlus(u8),
    /// What the `socklen_t` behind this argument says after the call.
    SockLen(u8),
    /// A field of each item of an array: item size, offset, length.
    Field(u8, u8, u8),
    /// The fields that `waitid` fills of a `siginfo_t`, which has a hole.
    WaitInfo,
    /// Known only by comparison with the old content.
    Changed,
}

/// With which results the kernel wrote.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// Whatever the result.
    Always,
    /// Result zero or more.
    Success,
    /// Result one or more.
    Positive,
    /// Result more than this (one message of several).
    MoreThan(u16),
    /// `EINTR`.
    Interrupted,
    /// Success or `EINTR`.
    SuccessOrInterrupted,
    /// Success, if the argument of this index is not null.
    SuccessWithPointer(u8),
    /// Success, if one of the bits `now` is set in the first argument. With a bit of `later` the
    /// kernel keeps the pointer and writes once more when the thread ends; with none of either it
    /// ignores the pointer.
    SuccessWithFlag {
        /// Flags with which the call writes.
        now: u32,
        /// Flags with which the pointer is kept.
        later: u32,
    },
}

/// What the kernel does with the buffers that a structure leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dir {
    /// It reads them.
    Read,
    /// It writes them, filling one after the other.
    Write,
    /// One or the other, which cannot be told beforehand.
    Either,
}

/// Memory in which the kernel finds pointers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Nested {
    /// An array of `struct iovec`; the argument of this index counts it.
    Iov {
        /// Index of the count.
        count: u8,
        /// What happens to the buffers.
        dir: Dir,
    },
    /// An array of `struct iovec` about the address space of the process named by the first
    /// argument.
    RemoteIov {
        /// Index of the count.
        count: u8,
        /// What happens to the buffers.
        dir: Dir,
    },
    /// One structure.
    Struct(&'static Layout),
    /// An array of structures, counted by an argument.
    Array {
        /// One item.
        layout: &'static Layout,
        /// Index of the count (an `unsigned int`).
        count: u8,
        /// The kernel uses no more than these, or refuses more.
        max: u16,
        /// Whether the kernel takes one after the other, so that the result says how many it got
        /// to; else all or none.
        partial: bool,
    },
    /// An array of so many structures.
    Fixed {
        /// One item.
        layout: &'static Layout,
        /// How many.
        count: u8,
    },
    /// `argv` and `envp`: strings, up to a null pointer.
    Strings,
    /// The array of `struct iocb *` of `io_submit`.
    Iocbs {
        /// Index of the count.
        count: u8,
    },
    /// The `struct io_event` array of `io_getevents`.
    IoEvents {
        /// Index of the maximum count.
        count: u8,
    },
    /// A structure of unknown layout: pointers in it can be noticed but not followed.
    Attributes {
        /// Its length.
        bound: Bound,
        /// What of it is written, if anything.
        wrote: Option<Wrote>,
    },
}

/// The layout of a structure that holds pointers.
#[derive(Debug, PartialEq, Eq)]
pub struct Layout {
    /// Its size in bytes.
    pub size: u16,
    /// Where pointers are.
    pub pointers: &'static [PointerField],
    /// Which fields the kernel writes: offset, length, and optionally the offset of a pointer
    /// field that must not be null for it.
    pub outputs: &'static [(u8, u8, Option<u8>)],
    /// The pointers count only if the `u32` at this offset has this value.
    pub guard: Option<(u8, u32)>,
}

/// A pointer in a structure.
#[derive(Debug, PartialEq, Eq)]
pub struct PointerField {
    /// Its offset.
    pub at: u8,
    /// What it leads to.
    pub to: Pointee,
}

/// What a pointer in a structure leads to.
#[derive(Debug, PartialEq, Eq)]
pub enum Pointee {
    /// Bytes that the kernel reads.
    In(FieldLen),
    /// Bytes that the kernel writes, as many as the same length field says afterwards.
    OutLen(FieldLen),
    /// Bytes that the kernel writes, as many as the result says.
    OutResult(FieldLen),
    /// An array of `struct iovec`, counted by the `u64` at `count`.
    Iov {
        /// Offset of the count.
        count: u8,
        /// What happens to the buffers.
        dir: Dir,
        /// Offset of the `u32` that says how many bytes were transferred; else the result does.
        total: Option<u8>,
    },
}

/// Where a structure says how long a buffer is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FieldLen {
    /// Nowhere; it is this.
    Bytes(u8),
    /// In a `u16` at this offset that counts items of this size.
    U16(u8, u8),
    /// In a `u32` at this offset.
    U32(u8),
    /// In a `u64` at this offset.
    U64(u8),
}

// Short names for the tables, which are read more often by column than by definition.

pub(crate) const V: ArgKind = ArgKind::Value;
pub(crate) const A: ArgKind = ArgKind::Address;
pub(crate) const P: ArgKind = ArgKind::In(Bound::Path);
pub(crate) const X: ArgKind = ArgKind::Opaque;

/// Reads or writes (the second) a buffer of which any part may be transferred.
pub(crate) const fn it(arg: u8) -> ArgKind {
    ArgKind::In(Bound::Transfer(arg))
}

pub(crate) const fn ot(arg: u8) -> ArgKind {
    out(Bound::Transfer(arg), Wrote::Result(1), When::Success)
}

/// Reads a structure of `n` bytes.
pub(crate) const fn i(n: u16) -> ArgKind {
    ArgKind::In(Bound::Bytes(n))
}

/// Reads as many bytes as argument `arg` says.
pub(crate) const fn il(arg: u8) -> ArgKind {
    ArgKind::In(Bound::Len(arg))
}

pub(crate) const fn out(bound: Bound, wrote: Wrote, when: When) -> ArgKind {
    ArgKind::Out(Out {
        bound,
        wrote,
        when,
        reads: false,
    })
}

pub(crate) const fn inout(bound: Bound, wrote: Wrote, when: When) -> ArgKind {
    ArgKind::Out(Out {
        bound,
        wrote,
        when,
        reads: true,
    })
}

/// Writes a structure of `n` bytes on success.
pub(crate) const fn o(n: u16) -> ArgKind {
    out(Bound::Bytes(n), Wrote::All, When::Success)
}

/// Writes a structure of `n` bytes on a positive result.
pub(crate) const fn op(n: u16) -> ArgKind {
    out(Bound::Bytes(n), Wrote::All, When::Positive)
}

/// Reads and on success writes a structure of `n` bytes.
pub(crate) const fn io(n: u16) -> ArgKind {
    inout(Bound::Bytes(n), Wrote::All, When::Success)
}

/// Writes argument `arg` bytes on success.
pub(crate) const fn ol(arg: u8) -> ArgKind {
    out(Bound::Len(arg), Wrote::All, When::Success)
}

/// Writes as many bytes as the result says, at most argument `arg`.
pub(crate) const fn or(arg: u8) -> ArgKind {
    out(Bound::Len(arg), Wrote::Result(1), When::Success)
}

/// Reads, and may write, `n` bytes.
pub(crate) const fn d(n: u16) -> ArgKind {
    inout(Bound::Bytes(n), Wrote::Changed, When::Always)
}

/// Why a call cannot be followed completely.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// No row for this number.
    UnknownCall,
    /// `io_uring_setup`: the kernel would take pointers from a ring that is written behind our
    /// back.
    RingSetup,
    /// A ring that exists already is used.
    RingUse,
    /// A structure of unknown layout holds an address in PM.
    HiddenPointer,
    /// A buffer crosses the border of PM and is too long, or kept too long, to be copied.
    Straddles,
}

pub(crate) const NO_ARGS: [ArgKind; 6] = [V; 6];

pub(crate) const fn pad(args: &[ArgKind]) -> [ArgKind; 6] {
    let mut all = NO_ARGS;
    let mut n = 0;
    while n < args.len() {
        all[n] = args[n];
        n += 1;
    }
    all
}
