//! The memory layout that the in-target engine and the tool outside share.
//!
//! Whatever crosses the border between the target's address space and the tool's process is
//! declared here. Both sides are compiled from this file in one build, and the tool embeds the
//! engine, so they agree on layouts without being told. What the compiler cannot see is asserted:
//! that [`Control`] fits into the memory set aside for it, and that fields lie where emitted code
//! and assembly look for them.
//!
//! ```text
//!  target process(es)                            tool process
//!  ┌────────────────────┐   control memfd   ┌──────────────────────┐
//!  │ engine             │── Control ────────│ service thread       │  one request at a time
//!  │  threads append ──▶│── ring  ─────────▶│ drain thread → sink  │  records, one total order
//!  └────────────────────┘                   └──────────────────────┘
//! ```
#![no_std]

use core::sync::atomic::{AtomicI32, AtomicU8, AtomicU32, AtomicU64};

pub use brownout_schedule as schedule;

pub mod cpu;

pub use brownout_requests::{ANNOTATION_BASE, PMEMCHECK_BASE, annotation, pmemcheck};

/// The engine ends the process if it finds another number in the control block. Since tool and
/// engine come from one build, that happens only if something else than a control block is mapped
/// there. It is not the version of a format: the layout changes without it.
pub const VERSION: u32 = 13;
/// "BROWNOUT" in ASCII, little endian.
pub const MAGIC: u64 = 0x5455_4f4e_574f_5242;

// ---------------------------------------------------------------- address space of the target
//
// With address-space randomisation off the kernel puts PIE programs at 0x5555_5555_4000, other
// mappings below 0x7fff_f7ff_f000, and non-PIE programs at 0x40_0000. Where randomisation cannot be
// turned off, these are up to 1 TiB away: programs above, mappings below.
//
// The sanitizers divide the address space as follows (x86-64; where versions of a sanitizer differ,
// all of them count):
//
//   AddressSanitizer   shadow 0x7fff_8000..0x1000_7fff_8000; heap 0x5000_..0x5400_ or 0x6000_..0x6400_, with tables behind it
//   LeakSanitizer      heap as AddressSanitizer's
//   ThreadSanitizer    program 0x5500_..0x5680_ and 0x7e80_..0x8000_ (and below 0x80_); everything else is shadow, its own, or
//                      closed. At its start it dies if it finds accessible memory outside the program's two ranges. What it closes
//                      may be mapped later, if the program does not touch it.
//   MemorySanitizer    program 0x5100_..0x6000_ and 0x7400_..0x8000_ (and below 0x100_); 0x4000_..0x5000_ and 0x6100_..0x7000_ closed
//
// (an underscore stands for eight zeros). So the engine and what the program sees of its persistent
// memory lie in the two ranges that are the program's for all of them, and aliases, which the
// program never touches, in 0x4000_..0x5000_.

/// Where tracked mappings are steered to.
pub const PM_BASE: u64 = 0x7e80_0000_0000;
/// Bytes reserved for steered mappings.
pub const PM_LEN: u64 = 0x0080_0000_0000;
/// Where the writable aliases of steered mappings begin.
pub const PM_ALIAS_BASE: u64 = 0x4000_0000_0000;
/// Where tracked mappings are steered to for which there is no room there.
pub const PM_FAR_BASE: u64 = 0x4400_0000_0000;
/// Bytes reserved for those.
pub const PM_FAR_LEN: u64 = 0x0400_0000_0000;
/// Where their aliases begin.
pub const PM_FAR_ALIAS_BASE: u64 = 0x4800_0000_0000;
/// Where the aliases of mappings begin that the program has placed itself.
pub const PM_OTHER_ALIAS_BASE: u64 = 0x4c00_0000_0000;
/// Load address of the engine image.
pub const ENGINE_BASE: u64 = 0x5658_0000_0000;
/// The image, its data and the stack that it starts on end before.
pub const ENGINE_IMAGE_LIMIT: u64 = 0x5659_0000_0000;
/// The engine's own heap.
pub const HEAP_BASE: u64 = 0x5659_0000_0000;
/// Where a forked run has memory that mappings of the program will get.
pub const POOL_BASE: u64 = 0x565f_e000_0000;
/// Where [`Control`] is mapped in the target: so near to the thread contexts that one displacement
/// bridges the distance.
pub const CONTROL_BASE: u64 = 0x565f_f000_0000;
/// Where the ring is mapped in the target, twice in a row, so that a record never wraps. A multiple
/// of its length.
pub const RING_BASE: u64 = 0x565f_f800_0000;
/// The engine's per-thread contexts.
pub const THREADS_BASE: u64 = 0x5660_0000_0000;
/// Everything the engine owns outside the code caches and the aliases lies in
/// `ENGINE_BASE..ENGINE_LIMIT`.
pub const ENGINE_LIMIT: u64 = 0x5680_0000_0000;

/// Bytes that [`Control`] occupies at the start of the control file. Most of them are tables that
/// are hardly used: the file is sparse.
pub const CONTROL_LEN: u64 = 0x36_0000 + 8 * (SITES_MAX + CHOSEN_MAX) as u64;
/// More instructions than these cannot be told apart in one run.
pub const SITES_MAX: usize = 1 << 22;
/// Thread numbers are 16 bits.
pub const THREADS_MAX: usize = 1 << 16;
/// Ring capacity in bytes; a power of two. 2 MiB are 87,000 events without values: a millisecond of
/// a store-heavy program. A larger one would let the reader be away for longer, and take more of
/// the cache away from a program that needs it.
pub const RING_LEN: u64 = 2 << 20;
/// Bytes that whoever appends leaves free behind its record: the further accesses of a block append
/// without looking.
pub const RING_RESERVE: u64 = 8 << 10;
const _: () = assert!(RING_BASE.is_multiple_of(RING_LEN) && 4 * RING_RESERVE < RING_LEN);
const _: () = assert!(CONTROL_LEN.is_multiple_of(4096) && CONTROL_BASE + CONTROL_LEN <= RING_BASE);

// ---------------------------------------------------------------- configuration

/// Events are recorded (else only translated).
pub const MODE_RECORD: u32 = 1 << 0;
/// Loads of tracked memory are recorded too.
pub const MODE_LOADS: u32 = 1 << 1;
/// Store values are captured.
pub const MODE_VALUES: u32 = 1 << 2;
/// Randomness is removed.
pub const MODE_DETERMINISTIC: u32 = 1 << 3;
/// Flush instructions on tracked memory are executed, not only recorded.
pub const MODE_EXECUTE_FLUSHES: u32 = 1 << 4;

/// Requests that no built-in rule needs are left out: see `UNLOGGED` in the engine's
/// `pm/requests.rs`.
pub const MODE_LEAN: u32 = 1 << 5;
/// Reads of standard input, writes to the world, creations of files, look-ups of redirected paths
/// and deaths by signals are recorded.
pub const MODE_BOUNDARIES: u32 = 1 << 6;
/// A read of standard input yields at most one line, if that is a regular file.
pub const MODE_LINE_INPUT: u32 = 1 << 7;
/// Files are tracked as soon as the program changes them, ordinary ones too, and what it does to
/// names is recorded.
pub const MODE_NAMES: u32 = 1 << 8;
/// Branches are marked in [`Control::edges`].
pub const MODE_EDGES: u32 = 1 << 9;
/// Some instructions are executed by Rust code: exercises that way for tests.
pub const MODE_INTERPRET: u32 = 1 << 10;
/// What the program compares is noted in [`Control::comparisons`].
pub const MODE_COMPARISONS: u32 = 1 << 11;
/// What is called standard input here is a file that the program finds by a name: whoever names it
/// looks at its input.
pub const MODE_NAMED_INPUT: u32 = 1 << 12;
/// The tool has a client for the program: it is told when that begins to listen, and connections
/// that are accepted are its input.
pub const MODE_CLIENT: u32 = 1 << 13;
/// One thread runs at a time, and [`Control::schedule`] says which.
pub const MODE_SCHEDULE: u32 = 1 << 15;
/// The instructions that the program executes are told, with the addresses of their operands
/// ([`follow`]). Only with [`MODE_RECORD`], [`MODE_LOADS`] and [`MODE_SCHEDULE`].
pub const MODE_FOLLOW: u32 = 1 << 16;
/// Calls of library functions with which threads exclude each other and wait for each other are
/// recorded, and locked instructions on ordinary memory.
pub const MODE_THREADS: u32 = 1 << 14;

/// The state in front of the instructions of [`Control::chosen`] is told, and what system calls
/// read and write. Only with [`MODE_RECORD`].
pub const MODE_CAPTURE: u32 = 1 << 17;

/// The program is shown a plain processor ([`cpu::plain_cpuid`]): libraries that ask choose code
/// that is simpler to describe. Nothing that it executes is refused.
pub const MODE_PLAIN_CPU: u32 = 1 << 18;

/// Which regular files the program opens is recorded. Only with [`MODE_BOUNDARIES`].
pub const MODE_OPENS: u32 = 1 << 19;

/// How many instructions can be chosen.
pub const CHOSEN_MAX: usize = 1 << 16;

/// How many edges can be told apart.
pub const EDGES: usize = 1 << 16;
/// A byte for each, on pages of their own: the engine maps them a second time for each thread.
#[repr(C, align(4096))]
pub struct Edges(pub [AtomicU8; EDGES]);

/// How many comparisons are noted.
pub const COMPARISONS_MAX: usize = 1 << 13;
/// So many bytes of each side.
pub const COMPARED_LEN: usize = 32;

/// Two things that the program has compared with each other, or may be about to.
#[repr(C)]
pub struct Comparison {
    /// How many bytes of each side count; 0 if there is no such comparison.
    pub len: AtomicU64,
    /// The instruction: its distance from the beginning of its module's code.
    pub name: AtomicU64,
    /// One side, in the order of memory.
    pub left: [AtomicU64; COMPARED_LEN / 8],
    /// The other.
    pub right: [AtomicU64; COMPARED_LEN / 8],
}

/// See the engine's `translate/comparisons.rs`.
#[repr(C, align(4096))]
pub struct Comparisons {
    /// How many there were, also those that had no place.
    pub count: AtomicU32,
    /// The first of them.
    pub entries: [Comparison; COMPARISONS_MAX],
}

/// What the kernel adds to [`Control::tool`] (`FUTEX_OWNER_DIED` of a robust futex).
pub const TOOL_IS_GONE: u32 = 0x4000_0000;

/// What a service request asks for. Numbers of processes and threads are those of the requester's
/// PID namespace.
#[repr(u32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request {
    /// Nothing under way.
    None = 0,
    /// The calling thread is about to `execve`: seize it and inject the engine. `args` = tid,
    /// address at which it traps if that fails, and for [`Launch`]: process number, ignored and
    /// blocked synchronous signals, shown process number; then its thread number, to free the ring
    /// from it when the old program is gone, and the signal mask that the new program begins with.
    AttachForExec = 1,
    /// Is this file persistent memory? `args` = device, inode, `1` if mapped with MAP_SYNC, `1` if
    /// registered by the program, `1` if the file is on a DAX mount, fd (bit 32: mapped writable;
    /// bit 33: the program is about to change it otherwise than by a mapping), tid, [`file_life`];
    /// `text` = path. Answers [`ClassifyAnswer`] in `result`; the file's number in `args[0]`, and
    /// in `args[1]` `1` if it is an ordinary file, tracked only because the run changes it.
    ClassifyFile = 2,
    /// The engine cannot go on. `args[0]` = a [`FatalKind`]; `text` = one sentence.
    Fatal = 3,
    /// One sentence for the user. `text`.
    Note = 4,
    /// Which functions of a code mapping are of interest? `args` = start, length, file offset, `1`
    /// for the program itself, `1` for those about threads, too; `text` = path. Answers their
    /// number in `result` and, as text, pairs of 64-bit words: address, function number.
    LibraryFunctions = 5,
    /// What does the sink answer to this thread's last annotation? `args[0]` = thread number.
    /// Answers up to three words.
    Answer = 6,
    /// A tracked file has another device and inode now. `args` = device, inode, its number,
    /// [`file_life`].
    SameFile = 7,
    /// Which files are tracked, by whatever process? `args[0]` = device, or 0 for all. Answers
    /// their numbers, 64 bits each, as text.
    Files = 8,
    /// The program has begun to listen on a socket; answered when the tool's client has connected.
    /// `text` = the address, as `getsockname` has it.
    Listening = 9,
}

/// Answer to [`Request::ClassifyFile`].
#[repr(u32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClassifyAnswer {
    /// An ordinary file.
    Ordinary = 0,
    /// Tracked, seen for the first time.
    TrackedNew = 1,
    /// Tracked, known already.
    TrackedKnown = 2,
}

/// Why the engine gave up.
#[repr(u64)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FatalKind {
    /// The program does something that is documented as unsupported.
    Unsupported = 0,
    /// A bug of the engine.
    Bug = 1,
}

/// Where the first program of a run stops, to be forked from ([`Control::stop_at`]).
pub mod stop_at {
    /// Nowhere: it is the run.
    pub const NOWHERE: u32 = 0;
    /// Before the first system call whose result could differ between the runs: one that looks at
    /// the places of [`super::Control::world`], or that does more than look.
    pub const WORLD: u32 = 1;
    /// Before the first read of standard input.
    pub const INPUT: u32 = 2;
}

/// See [`Control::kept_filled`].
pub const FILLED_MAX: usize = 4;

/// What the process that is forked from does ([`Control::kept_state`], a futex).
pub mod kept_state {
    /// It has not stopped yet.
    pub const RUNS: u32 = 0;
    /// It has stopped, and waits. Set by the engine; the number of the last child is in
    /// [`super::Control::kept_child`].
    pub const WAITS: u32 = 1;
    /// It is to fork. Set by the tool.
    pub const FORKS: u32 = 2;
    /// It is to end. Set by the tool.
    pub const ENDS: u32 = 3;
}

/// Bits of [`Control::kept_flags`]: what a fork does not inherit.
pub mod kept_flags {
    /// Each child leads a process group of its own.
    pub const OWN_GROUP: u32 = 1;
    /// Each child ends with the tool.
    pub const DIES_WITH_TOOL: u32 = 2;
}

/// What a run has found out that the next one can use ([`Control::learned`]): the upper bits of the
/// first word, whose rest is an address.
pub mod learned {
    /// Bits of the address.
    pub const ADDRESS: u64 = (1 << 56) - 1;
    /// An instruction that touches tracked memory.
    pub const SITE: u64 = 1 << 56;
    /// A block that a branch leads to; the second word is what it returns to, or 0.
    pub const BLOCK: u64 = 2 << 56;
    /// A block that an indirect branch leads to.
    pub const INDIRECT: u64 = 3 << 56;
    /// A block that is gone on with after a system call or a fault.
    pub const RESUMED: u64 = 4 << 56;
    /// Code whose frame was looked up in the unwind tables of its module.
    pub const FRAME: u64 = 5 << 56;
}
/// As many of them are told.
pub const LEARNED_MAX: usize = 1 << 15;
/// Bytes for the paths of the places that differ between runs, a NUL behind each.
pub const WORLD_LEN: usize = 0x4000;

/// Longest text that a service request can carry.
pub const TEXT_LEN: usize = 4096;

/// Most files that can be tracked from the beginning of a run.
pub const KNOWN_MAX: usize = 4096;
/// Bytes for the paths of redirected files, a NUL behind each.
pub const REDIRECTS_LEN: usize = 0x6000;
/// Created files that are remembered; of more than these, the last.
pub const CREATED_MAX: usize = 512;

/// A file that is tracked from the beginning.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct KnownFile {
    /// Its device.
    pub device: u64,
    /// Its inode.
    pub inode: u64,
    /// Its [life](file_life).
    pub life: u64,
    /// Its number in the stream.
    pub file: u32,
    _pad: u32,
}

/// Tells the files apart that have the same inode one after the other: file systems give the number
/// of a deleted file to the next one. Made of what the kernel calls a file's handle, which has a
/// generation, or else of its time of birth.
pub fn file_life(kind: u32, identity: &[u8]) -> u64 {
    // FNV-1a.
    let byte = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    let kind = kind.to_le_bytes();
    kind.iter()
        .chain(identity)
        .fold(0xcbf2_9ce4_8422_2325, byte)
}

/// Kinds of identity for [`file_life`] that are not a file handle's.
pub mod life {
    /// Seconds and nanoseconds of the time of birth.
    pub const BIRTH: u32 = u32::MAX;
    /// Nothing is known.
    pub const UNKNOWN: u32 = u32::MAX - 1;
}

impl KnownFile {
    /// File number `file`.
    pub fn new(device: u64, inode: u64, life: u64, file: u32) -> KnownFile {
        KnownFile {
            device,
            inode,
            life,
            file,
            _pad: 0,
        }
    }
}

/// Start of the shared control file.
#[repr(C, align(64))]
pub struct Control {
    /// [`MAGIC`].
    pub magic: u64,
    /// [`VERSION`].
    pub version: u32,
    /// `MODE_*` bits.
    pub mode: u32,
    /// Not 0 once a process of the run may be in another PID namespace than the one that made it.
    pub pid_namespaces: AtomicU32,
    /// The number of the tool's service thread in its own namespace; the kernel adds
    /// [`TOOL_IS_GONE`] when that thread has ended, by itself or with the tool.
    pub tool: AtomicU32,
    /// Seed of the deterministic random stream.
    pub seed: u64,
    /// Next thread number to hand out.
    pub next_thread: AtomicU32,
    /// Next process number to hand out.
    pub next_process: AtomicU32,
    /// Next calling-context number to hand out.
    pub next_context: AtomicU32,
    /// Next site number to hand out.
    pub next_site: AtomicU32,
    /// Next process or thread number to show under determinism.
    pub next_pid: AtomicU32,
    /// Which addresses a deterministic program gets: see the engine's `layout.rs`.
    pub layout: u32,

    // -- ring; writer side
    /// The number of the thread that appends, else 0 (only used once there is more than one thread
    /// or process). One word, so that there is no moment at which nobody knows whose it is: the
    /// tool frees it if that thread was killed.
    pub ring_lock: AtomicU32,
    /// Not 0: somebody has waited for long, so whoever has just had the ring lets others go first.
    /// Only a hint. Right behind the lock, where emitted code looks for it.
    pub ring_wanted: AtomicU32,
    /// Where the published records end, as an address in the target: the reader takes what lies
    /// before. Like `ring_tail`, between [`RING_BASE`] and the end of the second mapping.
    pub ring_write: AtomicU64,
    /// Where the next record goes. Between `ring_write` and here is nothing; or one record that its
    /// writer may still add to; or some that a lone thread has appended in one block. Whoever
    /// appends the next one publishes them.
    pub ring_tail: AtomicU64,
    /// Not 0 once several threads or processes may append.
    pub ring_shared: AtomicU32,
    /// Next number of a block whose execution is told: see [`follow`].
    pub next_block: AtomicU32,
    _pad0: [u8; 40],
    // -- ring; reader side
    /// Bytes ever consumed.
    pub ring_read: AtomicU64,
    /// 1 while the consumer sleeps on this word (a futex).
    pub ring_sleeping: AtomicU32,
    /// Number of writers that sleep on `ring_space` (a futex).
    pub ring_starved: AtomicU32,
    /// Bumped by the consumer whenever it freed space while writers starve.
    pub ring_space: AtomicU32,
    _pad3: u32,
    /// Nanoseconds that writers have waited for space, in total.
    pub ring_waited_ns: AtomicU64,
    _pad1: [u8; 32],

    // -- service requests
    /// 0 free, else the number by which the requester knows itself (a futex).
    pub service_lock: AtomicU32,
    /// 0 idle, 1 asked, 2 answered (a futex).
    pub service_state: AtomicU32,
    /// A [`Request`].
    pub service_request: u32,
    /// Its answer.
    pub service_result: u32,
    /// Its arguments.
    pub service_args: [u64; 8],
    /// Where the requester's process has put `service_mark`, in memory that no other process
    /// shares: by that it is known.
    pub service_mark_at: AtomicU64,
    /// Different for each request.
    pub service_mark: AtomicU64,
    /// Length of `service_text`.
    pub service_text_len: u64,
    /// Text argument.
    pub service_text: [u8; TEXT_LEN],

    // -- what a run begins with; constant
    /// Device of standard input.
    pub input_device: u64,
    /// Its inode.
    pub input_inode: u64,
    /// 1 if it is a regular file.
    pub input_is_file: u32,
    /// How many of `known` there are.
    pub known_count: u32,
    /// Processor features that the program must not see: bits of [`cpu::Features`].
    pub cpu_hidden: u32,
    /// Of those whose instructions the engine must not record and skip: what the processor really
    /// lacks. Bits of [`cpu::Features`].
    pub cpu_lacking: u32,
    /// Files that are tracked from the beginning.
    pub known: [KnownFile; KNOWN_MAX],
    /// How many pairs of paths there are in `redirects`.
    pub redirect_count: u32,
    _pad4: u32,
    /// Pairs of paths: as the program says, as the kernel is told. A NUL ends each path.
    pub redirects: [u8; REDIRECTS_LEN],

    // -- a process that is kept, to be forked from
    /// One of [`stop_at`].
    pub stop_at: u32,
    /// Bits of [`kept_flags`].
    pub kept_flags: u32,
    /// One of [`kept_state`].
    pub kept_state: AtomicU32,
    /// The last child; or, negative, why there is none.
    pub kept_child: AtomicI32,
    /// The child that may go on (a futex): children are made ahead of time, and wait until it is
    /// their turn.
    pub kept_turn: AtomicU32,
    /// A run has made, or may have made, something that outlives its processes and that all runs
    /// share: no other is to be forked. Set by the engine.
    pub kept_spent: AtomicU32,
    /// To how many pages of its heap the first run has written; 0 until it has ended.
    pub kept_written: AtomicU64,
    /// Lengths of mappings that runs have made, filled, and removed.
    pub kept_filled: [AtomicU64; FILLED_MAX],
    /// How many mappings were looked at for this.
    pub kept_looked: AtomicU32,
    /// How many paths there are in `world`.
    pub world_count: u32,
    /// How many of `learned` there are.
    pub learned_count: AtomicU32,
    /// Absolute paths of folders in which anything may differ between runs. A NUL ends each.
    pub world: [u8; WORLD_LEN],
    /// See [`learned`].
    pub learned: [[AtomicU64; 2]; LEARNED_MAX],

    // -- what is known of all processes
    /// The number of the tool's process in its own namespace. Orphans of the program become its
    /// children.
    pub tool_process: AtomicU32,
    /// The number by which the process that it has launched knows itself; 0 before that has begun.
    pub first_process: AtomicU32,
    /// Processes that are being made and have not announced themselves yet.
    pub unannounced: AtomicU32,
    /// How many files were created, ever.
    pub created_count: AtomicU32,
    /// Device and inode of each; number `n` is at `n % CREATED_MAX`.
    pub created: [[AtomicU64; 2]; CREATED_MAX],
    /// A bit for each process number: the process is in the stream.
    pub processes: [AtomicU64; THREADS_MAX / 64],
    /// By thread number: the number by which the thread knows itself.
    pub threads: [AtomicU32; THREADS_MAX],
    /// 1 for each edge that was taken: see the engine's `translate/edges.rs`.
    pub edges: Edges,
    /// What was compared.
    pub comparisons: Comparisons,
    /// Who goes on.
    pub schedule: brownout_schedule::Shared,
    /// How many of `chosen` there are.
    pub chosen_count: AtomicU32,
    /// Addresses of instructions, sorted: see [`MODE_CAPTURE`].
    pub chosen: [AtomicU64; CHOSEN_MAX],
    /// By site number: the address of the instruction. It is here before the number is in any
    /// record.
    pub sites: [AtomicU64; SITES_MAX],
}
const _: () = assert!(core::mem::size_of::<Control>() <= CONTROL_LEN as usize);
const _: () = assert!(core::mem::offset_of!(Control, ring_read) % 64 == 0);
const _: () = assert!(
    core::mem::offset_of!(Control, ring_wanted) == core::mem::offset_of!(Control, ring_lock) + 4
);

// ---------------------------------------------------------------- ring records

/// Kinds of ring records. Fixed part: [`RecordHead`]; then `words * 8 - 24` bytes of payload.
pub mod kind {
    /// Payload: value (if captured), padded to 8 bytes.
    pub const STORE: u8 = 1;
    /// As `STORE`.
    pub const NT_STORE: u8 = 2;
    /// As `STORE`.
    pub const LOAD: u8 = 3;
    /// As `STORE`.
    pub const RMW: u8 = 4;
    /// `addr` = operand, `size` = 64 for each line, from that one on.
    pub const CLFLUSH: u8 = 5;
    /// As `CLFLUSH`.
    pub const CLFLUSHOPT: u8 = 8;
    /// As `CLFLUSH`.
    pub const CLWB: u8 = 9;
    /// `size` = fence kind (0 sfence, 1 mfence, 2 locked).
    pub const FENCE: u8 = 6;
    /// `addr`, `size`; payload: syscall number (8 bytes), then the value.
    pub const KERNEL_STORE: u8 = 7;
    /// Defines a context: `ctx` = number, `size` = parent, `addr` = return address.
    pub const CONTEXT: u8 = 17;
    /// Payload: six words, then text. `size` = payload bytes in use. Which event: [`super::rare`]
    /// in `addr`.
    pub const RARE: u8 = 18;
    /// A plain pmemcheck request; payload: code (with base), four arguments.
    pub const REQUEST: u8 = 21;
    /// A library function was entered: `addr` = its number; payload: five arguments.
    pub const CALL: u8 = 22;
    /// As `STORE`; payload: element size, bit 8 if the elements were stored from the last to the
    /// first (8 bytes), then the value.
    pub const STRING_STORE: u8 = 23;
    /// More bytes of the preceding store-like record: same thread, site, ctx; `addr`, `size`,
    /// value.
    pub const MORE: u8 = 20;
    /// A block of code was translated whose execution is told: `site` = its number, `addr` = its
    /// address, `ctx` = how many steps it has, `size` = bytes of code. Payload: for each step a
    /// byte, its distance from the next one; then the code. A step is an instruction, or several
    /// that the engine performs as one.
    pub const BLOCK: u8 = 24;
    /// What a thread has executed: `size` = payload bytes in use, `addr` = base of `fs`. Payload:
    /// words of [`super::follow`].
    pub const EXECUTED: u8 = 25;
    /// A system call: `addr` = its number, `size` = one of [`super::follow::call`]. Payload: words,
    /// as that says.
    pub const SYSCALL: u8 = 26;
    /// The state in front of a chosen instruction: `addr` = its address, `size` = payload bytes in
    /// use. Payload: as [`super::captured`] says.
    pub const CAPTURED: u8 = 27;
}

/// The words of a [`kind::CAPTURED`] record, in this order:
///
/// | words | what |
/// |---|---|
/// | 2 | the instruction's code, zeros behind it |
/// | 1 | RFLAGS |
/// | 1 | the base of `fs` |
/// | 16 | general registers, in hardware order |
/// | 1 | how many pieces of memory follow |
/// | for each | its address, its length in bytes, the bytes (padded to words) |
/// | 1 | how many vector registers follow |
/// | for each | its number, its low 256 bits; of an instruction in the legacy encoding, only 128 are told |
pub mod captured {
    /// Bytes of code: the longest instruction has 15.
    pub const CODE_LEN: usize = 16;
    /// Bytes of an operand, at most.
    pub const OPERAND_MAX: usize = 64;
    /// Bytes of each side of a string instruction, at most.
    pub const STRING_MAX: usize = 768;
    /// Bytes of a table, at most: 256 entries of four bytes, and a little.
    pub const TABLE_MAX: usize = 1056;
    /// Words in front of the pieces of memory, without their number.
    pub const FIXED: usize = CODE_LEN / 8 + 2 + 16;
    const _: () = assert!(8 * FIXED + 2 * (STRING_MAX + 16) + 8 + 8 + 6 * 40 <= super::PAYLOAD_MAX);
    const _: () = assert!(
        8 * FIXED + 2 * (OPERAND_MAX + 16) + TABLE_MAX + 3 * 24 + 8 + 8 + 6 * 40
            <= super::PAYLOAD_MAX
    );
}

/// The words by which a thread tells what it executes ([`MODE_FOLLOW`]).
///
/// The highest byte of a word says what it means, the next one is the number of a step in the block
/// that the thread is in, and the rest is an address or number. A step is executed once a later
/// word of its thread says so: one of a later step, the head of another block, or one of those that
/// close a block. Until then its operands are only announced: it may still fault, and be started
/// over.
pub mod follow {
    /// A block is entered; the rest is its number. The one before was executed to its end.
    pub const HEAD: u8 = 1;
    /// The address of the step's memory operand, without the base of its segment.
    pub const OPERAND: u8 = 2;
    /// `rsp`, or for `leave` `rbp`, before the step.
    pub const STACK: u8 = 3;
    /// Of an operand that is not as simple; the rest is how many words follow, see the engine's
    /// `translate/follow.rs`.
    pub const DETAIL: u8 = 4;
    /// The x87 status word before the step.
    pub const X87: u8 = 5;
    /// `rcx` behind the step, a repeated comparison.
    pub const REST: u8 = 6;
    /// The step is a branch, and was taken: the block is left.
    pub const EXIT: u8 = 7;
    /// All before the step at the address in the rest are executed.
    pub const AT: u8 = 8;
    /// As [`AT`], and the block is left. One word follows: `rcx`, which tells how far a repeated
    /// string instruction there has come.
    pub const BREAK: u8 = 9;
    /// The block was executed to its end, and is left.
    pub const END: u8 = 10;
    /// A signal is delivered. Two words follow: where its frame begins, and how many bytes the
    /// kernel has written there.
    pub const SIGNAL: u8 = 11;
    /// The thread returns from a signal handler. One word follows: where its frame begins.
    pub const RETURN: u8 = 12;

    /// What an interpreted instruction tells, in this order, after [`DETAIL`].
    pub mod detail {
        /// `rsi`, `rdi`, `rcx`, RFLAGS: of string instructions.
        pub const STRING: usize = 4;
        /// Address of the area, components asked for, components in use there, format, x87 top in
        /// what is saved or restored: of `xsave` and its like.
        pub const STATE: usize = 5;
    }

    /// What a record of a system call tells.
    pub mod call {
        /// It begins. Words: address and length of each stretch of memory that leaves the process
        /// by it, in order.
        pub const BEGINS: u32 = 0;
        /// More of these.
        pub const MORE: u32 = 1;
        /// It is over. Words: its result, its six arguments, then address and length of each
        /// stretch that the kernel has written.
        pub const ENDS: u32 = 2;
        /// More of these stretches, after it.
        pub const WROTE: u32 = 3;
    }

    /// A word.
    pub const fn word(kind: u8, step: usize, rest: u64) -> u64 {
        (kind as u64) << 56 | (step as u64 & 0xFF) << 48 | rest & REST_MASK
    }

    /// The bits of a word that are an address or number.
    pub const REST_MASK: u64 = (1 << 48) - 1;
}

/// What the ring needs of the table of kinds: the numbers of the rare ones.
macro_rules! define_rare {
    (
        ring {
            $(
                $(#[$_doc:meta])*
                $_tag:literal $NUMBER:ident ring $number:literal $_name:literal $_Kind:ident
                $({ $( $(#[$_field_doc:meta])* $field:ident: $ty:ty = $_place:ident, $_how:ident $_member:literal; )* })?
            )*
        }
        other { $($_other:tt)* }
    ) => {
        /// Rare events: payload is `[u64; 6]` then `size - 48` bytes of text. The words are the
        /// fields of the kind in this order, but for slices, which are the text; an array takes a
        /// word for each element.
        ///
        /// `ExitStatus` takes two words, how (0 code, 1 signal, 2 exec) and which.
        /// [`THREAD_START`](rare::THREAD_START) has one more word: the kernel's number of its
        /// process, if it is the first thread there (as its parent or it itself knows it).
        pub mod rare {
            $(
                #[doc = concat!("Fields: ", $($( "`", stringify!($field), ": ", stringify!($ty), "` ", )*)?)]
                pub const $NUMBER: u64 = $number;
            )*
        }
    };
}

brownout_kinds::event_kinds!(define_rare);

/// Fixed part of every record.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct RecordHead {
    /// Length of the whole record in 8-byte words. Records longer than 255 words are split
    /// (`MORE`).
    pub words: u8,
    /// One of [`kind`].
    pub kind: u8,
    /// Thread number (16 bits: a run with more threads than that reuses none and is refused).
    pub thread: u16,
    /// Site number (see [`Control::sites`]).
    pub site: u32,
    /// Context number.
    pub ctx: u32,
    /// Access size, or as the kind says.
    pub size: u32,
    /// Address, or as the kind says.
    pub addr: u64,
}
/// Bytes of [`RecordHead`].
pub const HEAD_LEN: usize = 24;
const _: () = assert!(core::mem::size_of::<RecordHead>() == HEAD_LEN);
/// Most payload bytes in one record.
pub const PAYLOAD_MAX: usize = RECORD_MAX as usize - HEAD_LEN;
/// Longest record: its length in words is a byte.
pub const RECORD_MAX: u64 = 255 * 8;

// ---------------------------------------------------------------- launch

/// What the launcher puts on the engine's first stack, for its entry point.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Launch {
    /// General registers as the kernel set them for the program, in hardware order (rax, rcx, rdx,
    /// rbx, rsp, …).
    pub gpr: [u64; 16],
    /// The program's first instruction.
    pub rip: u64,
    /// Its flags.
    pub rflags: u64,
    /// Process number, when this image comes by `execve` in a followed process (bit 32: by a child
    /// that had its parent's memory); else 0.
    pub previous_process: u64,
    /// Synchronous signals that the previous program ignored: tracing resets those.
    pub ignored_sync: u64,
    /// Synchronous signals that the previous program blocked: likewise.
    pub blocked_sync: u64,
    /// Process number that the previous program was known by under determinism; 0 if none.
    pub shown_pid: u64,
}
