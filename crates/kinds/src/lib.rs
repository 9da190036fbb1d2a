//! The kinds of events, once: [`event_kinds!`] is the table from which their types, their bytes and
//! their names are made.
//!
//! Whoever needs something for each kind writes a macro that takes the table, and hands its name to
//! [`event_kinds!`]:
//!
//! | made of the table | where |
//! |---|---|
//! | the enum, its names, copies that borrow nothing | `trace/src/event.rs` |
//! | tags, layouts, encoding and decoding on disk | `trace/src/codec.rs` |
//! | members of the JSON dump | `trace/src/dump.rs` |
//! | numbers of rare records in the ring | `abi/src/lib.rs` |
//! | decoding of rare records | `host/src/decode.rs` |
//!
//! The six frequent kinds (`Store`, `NtStore`, `Load`, `Rmw`, `Flush`, `Fence`) are not in it. They
//! have record kinds and several tags of their own, and each of these places takes them on a path
//! made for speed.
//!
//! # A row
//!
//! ```text
//! /// What it means.
//! 13 UNMAP ring 3 "unmap" Unmap {
//!     /// Where.
//!     addr: TargetAddr = addr, member "addr";
//!     …
//! }
//! ```
//!
//! * The **tag** is the kind's number in trace files, and the constant is its name in code.
//! * The **ring number** is that of its rare record; kinds that have a record of their own, or
//!   none, stand under `other` without one. A rare record has six words and then text. The words
//!   are the fields in the order of the table, but for slices, which are the text. An array takes a
//!   word for each element, an exit status two.
//! * The **name** is what dumps and statistics print.
//! * Each **field** says where it is on disk: `addr` in the column of addresses; `detail` in the
//!   shape, or `low_detail` and `high_detail` if two share it; `field` in the column of fields;
//!   `text` behind them with its length as the last field; `args` with the first as the address;
//!   `status` in detail and field; `size` and `values`, or both with an address as `access`.
//! * Behind that comes how the JSON dump shows it, and as which member: `member` as its type is
//!   shown, `first` likewise but before the others, `placed` as an address that is looked up in the
//!   mappings. The others are for one kind each; see `trace/src/dump.rs`.
//!
//! Guarantee: tags are part of the trace format. A new kind takes the next free tag and the next
//! free ring number; neither is ever reused.
//!
//! ```
//! macro_rules! names {
//!     (ring { $($(#[$_doc:meta])* $_tag:literal $_upper:ident ring $_ring:literal $name:literal $_kind:ident $({ $($_fields:tt)* })?)* }
//!      other { $($_other:tt)* }) => {
//!         const NAMES: &[&str] = &[$($name),*];
//!     };
//! }
//! brownout_kinds::event_kinds!(names);
//! assert!(NAMES.contains(&"unmap"));
//! ```
#![no_std]

/// Calls the macro `$then` with the table.
#[macro_export]
macro_rules! event_kinds {
    ($then:ident) => {
        $then! {
            ring {
                // ---- files and mappings
                /// Defines a tracked file. A second one of the same file: it has turned out to be
                /// persistent memory.
                11 FILE ring 1 "file" File {
                    /// Its number.
                    file: FileId = field, member "file";
                    /// Absolute path at first sight.
                    path: &'a [u8] = text, member "path";
                    /// Size at first sight, bytes.
                    size: u64 = field, member "size";
                    /// Why it is tracked.
                    reason: PmReason = low_detail, member "reason";
                    /// It did not exist when the run began: the program made it. Known only where
                    /// the recording was asked for boundaries; false otherwise.
                    created: bool = high_detail, if_true "created";
                }

                /// A range of a tracked file was mapped.
                12 MAP ring 2 "map" Map {
                    /// Where.
                    addr: TargetAddr = addr, member "addr";
                    /// Bytes, a multiple of the page size.
                    len: u64 = field, member "size";
                    /// What.
                    file: FileId = field, member "file";
                    /// Offset in the file of `addr`.
                    offset: u64 = field, member "offset";
                    /// `PROT_*` as the program asked.
                    prot: u32 = field, member "prot";
                    /// `MAP_*` as the program asked.
                    flags: u32 = field, member "flags";
                }

                /// A range was unmapped, replaced, or is no longer tracked.
                13 UNMAP ring 3 "unmap" Unmap {
                    /// Where.
                    addr: TargetAddr = addr, member "addr";
                    /// Bytes.
                    len: u64 = field, member "size";
                }

                /// `mremap` moved or resized a tracked mapping.
                14 REMAP ring 4 "remap" Remap {
                    /// Old place.
                    old_addr: TargetAddr = addr, member "old_addr";
                    /// Old bytes.
                    old_len: u64 = field, member "old_size";
                    /// New place.
                    new_addr: TargetAddr = field, first "addr";
                    /// New bytes.
                    new_len: u64 = field, first "size";
                }

                /// The file's size was set (`ftruncate`, `fallocate`).
                15 TRUNCATE ring 5 "truncate" Truncate {
                    /// Which.
                    file: FileId = field, member "file";
                    /// New size.
                    size: u64 = field, member "size";
                }

                /// The file was written through a descriptor (`write` and its kin).
                16 FILE_WRITE ring 6 "file_write" FileWrite {
                    /// Which.
                    file: FileId = field, member "file";
                    /// Where.
                    offset: u64 = field, member "offset";
                    /// How many bytes.
                    size: u32 = size, member "size";
                    /// What (empty without values).
                    bytes: &'a [u8] = values, digits "bytes";
                }

                /// The file was read through a descriptor (`read` and its kin). Recorded with loads
                /// only.
                31 FILE_READ ring 18 "file_read" FileRead {
                    /// Which.
                    file: FileId = field, member "file";
                    /// Where.
                    offset: u64 = field, member "offset";
                    /// How many bytes.
                    size: u32 = field, member "size";
                }

                /// `msync` on a tracked range.
                17 MSYNC ring 7 "msync" Msync {
                    /// Where.
                    addr: TargetAddr = addr, placed "addr";
                    /// Bytes.
                    len: u64 = field, member "size";
                    /// `MS_*`; see [`MS_SYNC`].
                    flags: u32 = field, member "flags";
                }

                /// `fsync` or `fdatasync` on a tracked file.
                18 FSYNC ring 8 "fsync" Fsync {
                    /// Which.
                    file: FileId = field, member "file";
                    /// True for `fdatasync`.
                    data_only: bool = detail, named "data_only";
                }

                /// A stretch of a tracked file is durable, with the size that it takes to read it
                /// back: a descriptor with `O_DSYNC` or `O_SYNC`, or a call with `RWF_DSYNC` or
                /// `RWF_SYNC`, wrote it. It follows the [`FileWrite`](Self::FileWrite).
                39 FILE_SYNC ring 25 "file_sync" FileSync {
                    /// Which.
                    file: FileId = field, member "file";
                    /// Where.
                    offset: u64 = field, member "offset";
                    /// How many bytes.
                    size: u64 = field, member "size";
                }

                /// A name appeared, went or changed, or was made durable. Recorded only on request,
                /// after the call that did it.
                36 NAME ring 23 "name" Name {
                    /// What happened.
                    change: NameChange = detail, first "change";
                    /// The file that the (first) name stood for, or stands for now; 0 if that is
                    /// not a regular file.
                    file: FileId = field, if_any "file";
                    /// The file that the second name stood for; 0 if there was none.
                    replaced: FileId = field, if_any "replaced";
                    /// Absolute path without symbolic links in its folder; a second one behind a
                    /// zero byte. See [`split_names`].
                    names: &'a [u8] = text, names "path";
                }

                // ---- threads and processes
                /// A process started (the first, or by fork), or began anew by `execve`.
                19 PROCESS_START ring 9 "process_start" ProcessStart {
                    /// Its number.
                    process: ProcessId = field, member "started";
                    /// The number of the one that made it; 0 for the first.
                    parent: ProcessId = field, member "parent";
                    /// Kernel pid (made up under `--deterministic`).
                    pid: u32 = field, member "pid";
                    /// Executable.
                    exe: &'a [u8] = text, member "exe";
                }

                /// A process ended.
                20 PROCESS_EXIT ring 10 "process_exit" ProcessExit {
                    /// Which.
                    process: ProcessId = field, member "exited";
                    /// How.
                    status: ExitStatus = status, member "status";
                }

                /// Defines a thread; it is the thread's own first event (but for `ProcessStart`, if
                /// it is a process's first thread).
                21 THREAD_START ring 11 "thread_start" ThreadStart {
                    /// Its number.
                    thread: ThreadId = field, member "started";
                    /// The process that it belongs to.
                    process: ProcessId = field, member "of_process";
                    /// Kernel tid (made up under `--deterministic`).
                    tid: u32 = field, member "tid";
                }

                /// The event's thread ended.
                22 THREAD_EXIT ring 12 "thread_exit" ThreadExit

                /// A futex call: synchronisation between threads.
                23 FUTEX ring 13 "futex" Futex {
                    /// Address of the word.
                    addr: TargetAddr = addr, member "addr";
                    /// `FUTEX_*` operation with flags as given.
                    op: u32 = field, member "op";
                    /// Argument `val`.
                    val: u32 = field, member "val";
                    /// Result of the call.
                    result: i64 = field, member "result";
                }

                // ---- boundaries between the program and the world (only recorded on request)
                /// The program is about to read its standard input.
                32 INPUT ring 19 "input" Input {
                    /// The descriptor that it reads from.
                    fd: i32 = detail, member "fd";
                    /// The position at which it reads, in bytes; `u64::MAX` if it is no file.
                    at: u64 = field, member "at";
                }

                /// The program has written to something that is not a tracked file: what the world
                /// may have seen.
                33 OUTPUT ring 20 "output" Output {
                    /// The descriptor that it wrote to.
                    fd: i32 = detail, member "fd";
                    /// How many bytes were taken (of `sendmmsg`: how many messages).
                    size: u64 = field, member "size";
                }

                /// The program has made a system call that names a redirected path: where it looked
                /// for its file.
                34 LOOKUP ring 21 "lookup" Lookup {
                    /// System call number.
                    syscall: u32 = detail, member "syscall";
                    /// What the call answered: a negative error number, or its result.
                    result: i64 = field, member "result";
                    /// The path as the program gave it, relative or not.
                    path: &'a [u8] = text, member "path";
                }

                /// The program is about to be ended by a signal: a fault of the instruction at the
                /// event's `pc`, or sent by the program to itself.
                35 SIGNAL ring 22 "signal" Signal {
                    /// Its number.
                    signal: i32 = detail, member "signal";
                    /// The address that a fault reports (`si_addr`); 0 if the signal was sent.
                    addr: TargetAddr = addr, placed "addr";
                }

                /// A write-back of ordinary memory, on the stack or the heap, while files are
                /// tracked: told once for each place in the code and calling context.
                38 FLUSH_OUTSIDE ring 24 "flush_outside" FlushOutside {
                    /// The operand.
                    addr: TargetAddr = addr, placed "addr";
                    /// The first word in the rest of its line that is an address in tracked memory,
                    /// perhaps of what was meant; else 0.
                    word: u64 = field, hex "word";
                }

                /// A thread waits, and so do all others, each for another one: nobody will ever go
                /// on. One for each thread, in a run that is scheduled; the run ends there.
                40 STUCK ring 26 "stuck" Stuck {
                    /// The futex, if it waits in one; else 0.
                    addr: TargetAddr = addr, placed "addr";
                }

                /// A locked instruction on ordinary memory is about to be executed, in a process
                /// that has had several threads, outside the C library. Recorded with threads only.
                41 ATOMIC ring 27 "atomic" Atomic {
                    /// Its operand.
                    addr: TargetAddr = addr, member "addr";
                }

                /// The program has opened a regular file. Recorded only on request.
                42 OPENED ring 28 "opened" Opened {
                    /// What the kernel calls it.
                    path: &'a [u8] = text, member "path";
                }

                // ---- requests of the program
                /// A pmemcheck client request (see the code numbers of pmemcheck, base
                /// `0x5043_0000`).
                24 PMEMCHECK ring 14 "pmemcheck" Pmemcheck {
                    /// Offset from the base.
                    code: u32 = detail, member "code";
                    /// Its arguments.
                    args: [u64; 4] = args, member "args";
                    /// The string argument of `EMIT_LOG`, else empty.
                    text: &'a [u8] = text, member "text";
                }

                /// A request of this project's own annotations.
                25 ANNOTATION ring 15 "annotation" Annotation {
                    /// Offset from the base.
                    code: u32 = detail, member "code";
                    /// Its arguments.
                    args: [u64; 5] = args, member "args";
                    /// The string argument, if the code has one.
                    text: &'a [u8] = text, member "text";
                }

                /// Executable code was mapped, or went away: what symbolisation needs.
                26 MODULE ring 16 "module" Module {
                    /// In which process.
                    process: ProcessId = field, member "of_process";
                    /// Where.
                    addr: TargetAddr = addr, member "addr";
                    /// Bytes.
                    len: u64 = field, member "size";
                    /// Offset in the file of `addr`.
                    offset: u64 = field, member "offset";
                    /// File, or a kernel name such as `[vdso]`. Empty: code that was there has
                    /// gone, and whatever comes there is not what it was.
                    path: &'a [u8] = text, member "path";
                }

                // ---- about the recording itself
                /// Something that a reader of results must know (not followed, truncated, …).
                28 NOTE ring 17 "note" Note {
                    /// One sentence.
                    text: &'a [u8] = text, member "text";
                }
            }
            other {
                /// The kernel wrote into the mapping on behalf of system call `syscall`.
                4 KERNEL_STORE "kernel_store" KernelStore {
                    /// System call number.
                    syscall: u32 = field, member "syscall";
                    /// The bytes written.
                    access: Access<'a> = access, access "addr";
                }

                /// A string instruction (`rep movs`, `rep stos`) stored several elements, one after
                /// the other. Where that makes no difference (aligned words in ascending order),
                /// and for a single element, it is a `Store`.
                37 STRING_STORE "string_store" StringStore {
                    /// The bytes of all elements, in address order whatever the direction.
                    access: Access<'a> = access, access "addr";
                    /// In which pieces and order they were stored.
                    elements: Elements = field, elements "element_bytes";
                }

                /// The program entered a library function that analyses want to know of.
                30 LIBRARY_CALL "library_call" LibraryCall {
                    /// Which: an index into [`LIBRARY_FUNCTIONS`].
                    function: u32 = detail, function "function";
                    /// The first five integer arguments as the calling convention passes them,
                    /// meant or not.
                    args: [u64; 5] = args, member "args";
                }

                /// Defines a calling context.
                27 CONTEXT "context" Context {
                    /// Its number.
                    context: ContextId = field, member "defined";
                    /// The chain above.
                    parent: ContextId = field, member "parent";
                    /// The innermost return address.
                    return_addr: TargetAddr = field, member "return_addr";
                }

                /// Last event of a recording that ended in order.
                29 END "end" End {
                    /// How the first process ended.
                    status: ExitStatus = status, member "status";
                }
            }
        }
    };
}
