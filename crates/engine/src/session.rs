//! A process that is kept, and forked from for one run after the other.
//!
//! The first program of a session runs up to a stated place and stops there, with everything that
//! the engine has translated until then. Whenever the tool asks, it forks, and the child is a run:
//! it goes on from the place as if it had just come there. So loading, relocating and translating
//! are done once, and what a run has translated on top is told to the kept process
//! ([`brownout_abi::learned`]), which does the same before it forks again.
//!
//! **Where it stops.** A run must not be able to tell that it was forked. What a process has found
//! out before it was forked must therefore be what it would have found out in each run:
//! - `WORLD`: runs differ in what lies in some folders. The program stops before the first system
//!   call that is not known to be independent of that ([`is_private`]). If in doubt, it stops:
//!   early is slower, never wrong.
//! - `INPUT`: runs differ in what standard input yields, or a file that takes its place. The
//!   program stops before the first call on it, or that names it. Calls before that whose effect a
//!   child would not inherit are refused ([`survives_fork`]), and so is a stop with pipes, sockets
//!   or anonymous shared memory at hand, because one run would find in them what another has done.
//!
//! Where a client of the tool's is the input, that takes the place of standard input: the program
//! stops before it first waits for somebody to connect. Sockets that listen may then be at hand.
//! All runs have them in common; the tool sees to it that nobody is left in their queues. A set
//! that `epoll` watches would be common to all runs, too, so each run gets one of its own, with the
//! same in it.
//!
//! Only deterministic programs are kept: others know the time and their number.
//!
//! **The protocol.** Tool and kept process take turns by `Control::kept_state`. While it waits, the
//! kept process touches nothing. When told to fork, it sets back what the last run has changed in
//! the control memory, because it knows what was there ([`Kept`]); what the tool decides
//! (redirects, known files) the tool has written before. Positions of open files are shared with
//! the children, so they are set back as well. Then it learns what was found out, says which child
//! is to go on, forks the child for the run after that, and waits again. So a child is made while
//! its predecessor runs.

use crate::address::ProgramAddr;
use crate::blocks::{Arrival, ENGINE};
use crate::bulk::Heap;
use crate::context::ThreadContext;
use crate::control::control;
use crate::copy::read_memory;
use crate::dispositions;
use crate::own_pages::Own;
use crate::pm::{context_cache, reach};
use crate::service;
use crate::sync::SpinLock;
use crate::sys::{self, nr, sc};
use alloc::boxed::Box;
use alloc::vec::Vec;
use brownout_abi::{
    CREATED_MAX, LEARNED_MAX, RING_BASE, THREADS_MAX, WORLD_LEN, kept_flags, kept_state, learned,
    stop_at,
};
use brownout_syscalls::pipeline::{Call, Rest, Stage};
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Where this process is to stop: one of [`stop_at`].
static STOP: AtomicU32 = AtomicU32::new(stop_at::NOWHERE);
/// What the kernel has of the thread and does not give to a child: where it clears the thread's
/// number, and its robust futexes.
static CLEAR_TID: AtomicU64 = AtomicU64::new(0);
static ROBUST: [AtomicU64; 2] = [AtomicU64::new(0), AtomicU64::new(0)];

/// What was open at the start of the program. Pipes and the like among it are the business of
/// whoever has launched the tool.
static INHERITED: SpinLock<Vec<u64>> = SpinLock::new(Vec::new());

/// Called at the start of a program; `is_first` if it is that of the launch.
pub fn init(is_first: bool) {
    if is_first && control().stop_at != stop_at::NOWHERE {
        STOP.store(control().stop_at, Ordering::Relaxed);
        crate::follow::be_silent();
        *INHERITED.lock() = open_descriptors();
    }
}

/// Stops before a system call of the program, if this is the place. Of a run it tells whether
/// another may follow in the same namespaces.
pub const STAGE: Stage<ThreadContext> = Stage {
    name: "session",
    takes: |number| STOP.load(Ordering::Relaxed) != stop_at::NOWHERE || makes_shared_object(number),
    pass,
};

/// Whether a call makes an object that has no process and no file: shared memory, semaphores and
/// queues of System V (`shmget`, `semget`, `msgget`), queues of POSIX (`mq_open`). A launch has
/// such objects to itself; forked runs would find those of each other.
fn makes_shared_object(number: u64) -> bool {
    matches!(number, 29 | 64 | 68 | 240)
}

fn pass(ctx: &mut ThreadContext, call: &Call, rest: Rest<ThreadContext>) -> Option<i64> {
    let stop = STOP.load(Ordering::Relaxed);
    if stop != stop_at::NOWHERE {
        consider(ctx, stop, call.number, &call.args);
    }
    if makes_shared_object(call.number) {
        control().kept_spent.store(1, Ordering::Release);
    }
    rest.make(ctx, call)
}

/// Before the program asks the sink something: what that answers differs between runs.
pub fn before_question(ctx: &mut ThreadContext) {
    if STOP.load(Ordering::Relaxed) != stop_at::NOWHERE {
        keep(ctx);
    }
}

#[cold]
fn consider(ctx: &mut ThreadContext, stop: u32, number: u64, a: &[u64; 6]) {
    let is_here = match stop {
        stop_at::WORLD => !is_private(number, a),
        _ => concerns_input(number, a),
    };
    if is_here {
        return keep(ctx);
    }
    match number {
        SET_TID_ADDRESS => CLEAR_TID.store(a[0], Ordering::Relaxed),
        SET_ROBUST_LIST => {
            ROBUST[0].store(a[0], Ordering::Relaxed);
            ROBUST[1].store(a[1], Ordering::Relaxed);
        }
        _ => {}
    }
    if stop == stop_at::INPUT && !survives_fork(number, a) {
        refuse(&alloc::format!(
            "it makes system call {number}, whose effect a forked process does not inherit, before it reads its input"
        ));
    }
}

fn refuse(why: &str) -> ! {
    crate::fatal_unsupported(&alloc::format!("the program cannot be forked from: {why}"))
}

// ---------------------------------------------------------------- stopping and forking

/// What the control memory and the kernel have of the stopped process, to be set back before each
/// fork.
struct Kept {
    next_thread: u32,
    next_process: u32,
    next_context: u32,
    next_pid: u32,
    ring_shared: u32,
    pid_namespaces: u32,
    created_count: u32,
    created: Box<[[u64; 2]]>,
    processes: Box<[u64]>,
    /// Descriptor, position, flags of each open file.
    files: Vec<(u64, i64, i64)>,
    /// What is watched by `epoll`.
    watched: Vec<epoll::Set>,
}

impl Kept {
    fn take() -> Kept {
        let c = control();
        let load = |n: &AtomicU32| n.load(Ordering::Relaxed);
        let word = |n: &AtomicU64| n.load(Ordering::Relaxed);
        let created_count = load(&c.created_count);
        Kept {
            next_thread: load(&c.next_thread),
            next_process: load(&c.next_process),
            next_context: load(&c.next_context),
            next_pid: load(&c.next_pid),
            ring_shared: load(&c.ring_shared),
            pid_namespaces: load(&c.pid_namespaces),
            created_count,
            created: c.created[..(created_count as usize).min(CREATED_MAX)]
                .iter()
                .map(|pair| [word(&pair[0]), word(&pair[1])])
                .collect(),
            processes: c.processes.iter().map(word).collect(),
            files: open_files(),
            watched: epoll::sets(),
        }
    }

    /// Sets back what a run has changed. Nobody else uses the control memory meanwhile.
    fn restore(&self) {
        let c = control();
        let last_thread = c.next_thread.load(Ordering::Relaxed);
        for thread in self.next_thread..last_thread.min(THREADS_MAX as u32) {
            c.threads[thread as usize].store(0, Ordering::Relaxed);
        }
        for (word, value) in [
            (&c.next_thread, self.next_thread),
            (&c.next_process, self.next_process),
            (&c.next_context, self.next_context),
            (&c.next_pid, self.next_pid),
            (&c.ring_shared, self.ring_shared),
            (&c.pid_namespaces, self.pid_namespaces),
            (&c.created_count, self.created_count),
            (&c.unannounced, 0),
            (&c.ring_lock, 0),
            (&c.ring_wanted, 0),
            (&c.ring_starved, 0),
            (&c.ring_sleeping, 0),
        ] {
            word.store(value, Ordering::Relaxed);
        }
        for (pair, kept) in c.created.iter().zip(&self.created) {
            pair[0].store(kept[0], Ordering::Relaxed);
            pair[1].store(kept[1], Ordering::Relaxed);
        }
        for (word, kept) in c.processes.iter().zip(&self.processes) {
            word.store(*kept, Ordering::Relaxed);
        }
        c.ring_read.store(0, Ordering::Relaxed);
        c.ring_waited_ns.store(0, Ordering::Relaxed);
        c.ring_tail.store(RING_BASE, Ordering::Relaxed);
        c.ring_write.store(RING_BASE, Ordering::Release);
        for &(fd, position, flags) in &self.files {
            // SAFETY: lseek to where it was; F_SETFL to what was set.
            unsafe {
                sc!(nr::LSEEK, fd, position, 0);
                if sc!(nr::FCNTL, fd, F_GETFL) != flags {
                    sc!(nr::FCNTL, fd, F_SETFL, flags);
                }
            }
        }
    }
}

const F_GETFD: u64 = 1;
const F_GETFL: u64 = 3;
const F_SETFL: u64 = 4;

/// The program stops here. Returns in each child.
fn keep(ctx: &mut ThreadContext) {
    if STOP.load(Ordering::Relaxed) == stop_at::INPUT {
        refuse_what_runs_would_share();
    }
    if crate::context::has_siblings(ctx) {
        refuse("it has several threads");
    }
    let old = dispositions::block_all();
    crate::pm::ring::publish();
    if serve(ctx) {
        become_run(ctx);
    }
    if ctx.pending_signal() == 0 {
        dispositions::set_mask(old);
    }
}

/// How long to sleep at most before looking whether the tool is still there.
const WAIT_NS: u64 = 200_000_000;

/// Forks whenever the tool asks. Returns in each child, when it is its turn.
fn serve(ctx: &mut ThreadContext) -> bool {
    let c = control();
    crate::deterministic::learn_devices();
    let kept = Kept::take();
    let mut heap = Heap::find();
    let mut own = Own::new();
    // The child for the next run is made while the last one runs: where there is a processor for
    // it, it costs no time.
    let mut spare = 0;
    tell(kept_state::WAITS);
    loop {
        match c.kept_state.load(Ordering::Acquire) {
            kept_state::FORKS => {}
            kept_state::ENDS => end(),
            state => {
                sys::futex_wait(&c.kept_state, state, WAIT_NS);
                service::exit_if_orphaned();
                continue;
            }
        }
        kept.restore();
        crate::translate::capture::take_choice();
        // While a run is under way, translation would go by what that has made of the shared memory
        // (whether it has several threads).
        learn(ctx);
        heap.prepare();
        own.prepare();
        if spare <= 0 {
            spare = fork();
            if spare == 0 {
                return wait_for_turn(&kept, &heap);
            }
        }
        c.kept_child.store(spare as i32, Ordering::Relaxed);
        if spare > 0 {
            c.kept_turn.store(spare as u32, Ordering::Release);
            sys::futex_wake(&c.kept_turn, u32::MAX);
        }
        tell(kept_state::WAITS);
        spare = fork();
        if spare == 0 {
            return wait_for_turn(&kept, &heap);
        }
    }
}

fn end() -> ! {
    loop {
        // SAFETY: ends the process.
        unsafe { sc!(nr::EXIT_GROUP, 0) };
    }
}

/// A child that was made ahead of time.
fn wait_for_turn(kept: &Kept, heap: &Heap) -> bool {
    const SETPGID: u64 = 109;
    let c = control();
    // What a fork does not inherit.
    if c.kept_flags & kept_flags::DIES_WITH_TOOL != 0 {
        const PR_SET_PDEATHSIG: u64 = 1;
        const SIGKILL: u64 = 9;
        // SAFETY: numbers only. If the tool has ended before, that is noticed below.
        unsafe { sc!(PRCTL, PR_SET_PDEATHSIG, SIGKILL) };
    }
    // SAFETY: a group of its own; the list that the program has told the kernel about this thread;
    // no arguments.
    let own = unsafe {
        if c.kept_flags & kept_flags::OWN_GROUP != 0 {
            sc!(SETPGID, 0, 0);
        }
        if ROBUST[0].load(Ordering::Relaxed) != 0 {
            let list = ROBUST[0].load(Ordering::Relaxed);
            sc!(SET_ROBUST_LIST, list, ROBUST[1].load(Ordering::Relaxed));
        }
        sc!(nr::GETTID) as u32
    };
    for set in &kept.watched {
        set.make();
    }
    heap.arrive();
    loop {
        let turn = c.kept_turn.load(Ordering::Acquire);
        if turn == own {
            return true;
        }
        if c.kept_state.load(Ordering::Acquire) == kept_state::ENDS {
            end();
        }
        service::exit_if_orphaned();
        sys::futex_wait(&c.kept_turn, turn, WAIT_NS);
    }
}

/// It is a run from here on.
fn become_run(ctx: &mut ThreadContext) {
    STOP.store(stop_at::NOWHERE, Ordering::Relaxed);
    // It may have been forked before the tool had chosen.
    crate::translate::capture::take_choice();
    crate::learned::begin();
    let before = crate::control::real_pid();
    crate::control::refresh_pid();
    // SAFETY: no arguments.
    ctx.tid = unsafe { sc!(nr::GETTID) } as u32;
    ctx.group = crate::control::real_pid();
    crate::deterministic::is_now(before, ctx.tid);
    crate::schedule::turn::is_run(ctx);
    // What the tool has decided for this run.
    crate::redirects::init();
    crate::pm::init_files();
    // Fresh pages are cheaper than copies of those that are known already.
    if ctx.context_cache != 0
        && let Some(cache) = crate::bulk::take(context_cache::LEN)
    {
        ctx.context_cache = cache;
    }
    crate::pm::register(ctx);
    crate::follow::run_begins(ctx);
}

fn tell(state: u32) {
    let word = &control().kept_state;
    word.store(state, Ordering::Release);
    sys::futex_wake(word, 1);
}

/// A child of the tool, not of this process: so it has the parent that a program has which the tool
/// has launched.
fn fork() -> i64 {
    const CLONE_PARENT: u64 = 0x8000;
    const CLONE_CHILD_CLEARTID: u64 = 0x20_0000;
    const SIGCHLD: u64 = 17;
    let tid_at = CLEAR_TID.load(Ordering::Relaxed);
    // What libc has there as the thread's number is what the program was told, which stays.
    let tid = match tid_at {
        0 => 0,
        _ => CLONE_CHILD_CLEARTID,
    };
    // SAFETY: this is the only thread, and it holds no lock. The address is the one that the
    // program has given to the kernel for this.
    unsafe { sc!(nr::CLONE, CLONE_PARENT | SIGCHLD | tid, 0, 0, tid_at, 0) }
}

// ---------------------------------------------------------------- learning

/// Does what the runs so far have done. The code is the same, so a translation made here is as
/// good.
fn learn(ctx: &mut ThreadContext) {
    let c = control();
    let count = (c.learned_count.swap(0, Ordering::AcqRel) as usize).min(LEARNED_MAX);
    if count == 0 {
        return;
    }
    let entries = c.learned[..count].iter().map(|entry| {
        // One that was killed in the middle of its last entry has left none.
        let what = entry[0].swap(0, Ordering::AcqRel);
        (
            what & !learned::ADDRESS,
            what & learned::ADDRESS,
            entry[1].load(Ordering::Relaxed),
        )
    });
    let entries: Vec<(u64, u64, u64)> = entries.collect();
    // Sites first: blocks that were translated without them would have to be translated again.
    for &(_, pc, _) in entries.iter().filter(|entry| entry.0 == learned::SITE) {
        crate::pm::mark_site(ProgramAddr::new(pc));
    }
    for &(_, pc, exact) in entries.iter().filter(|entry| entry.0 == learned::FRAME) {
        crate::pm::learn_frame(pc, exact);
    }
    let mut engine = ENGINE.lock();
    for (what, pc, returns_to) in entries {
        let arrival = match what {
            learned::BLOCK => Arrival::Branch,
            learned::INDIRECT => Arrival::Indirect,
            learned::RESUMED => Arrival::Resume,
            _ => continue,
        };
        // Reading code in tracked memory is an event, which belongs to the run.
        if !crate::pm::is_tracked(pc) {
            engine.learn(ProgramAddr::new(pc), arrival, ProgramAddr::new(returns_to));
        }
    }
    engine.link_all();
    // Runs begin with what indirect branches need, in pages that they only read.
    let empty = ctx.entry_miss;
    for (pc, prefix) in engine.entrances() {
        let entry = &mut ctx.ibtc()[crate::context::ibtc_index(pc)];
        if *entry == empty {
            *entry = prefix;
        }
    }
}

// ---------------------------------------------------------------- what runs have in common

const POLL: u64 = 7;
const SET_TID_ADDRESS: u64 = 218;
const SET_ROBUST_LIST: u64 = 273;
const PRCTL: u64 = 157;
const AT_FDCWD: u64 = -100i64 as u64;
/// Flags of `open` that only look, or concern the descriptor: `O_NONBLOCK`, `O_LARGEFILE`,
/// `O_DIRECTORY`, `O_NOFOLLOW`, `O_NOATIME`, `O_CLOEXEC`, `O_PATH`.
const LOOKING: u64 =
    0o4_000 | 0o100_000 | 0o200_000 | 0o400_000 | 0o1_000_000 | 0o2_000_000 | 0o10_000_000;

const S_IFMT: u32 = 0o170_000;
const S_IFCHR: u32 = 0o020_000;
const S_IFDIR: u32 = 0o040_000;
const S_IFREG: u32 = 0o100_000;
const S_IFSOCK: u32 = 0o140_000;

/// Whether what a call does is the same in all runs, and nobody else can tell that it was made.
fn is_private(number: u64, a: &[u64; 6]) -> bool {
    // What it has opened itself: that is a file that does not differ. Closing one that was
    // inherited may be seen by others.
    let own_file = |fd: u64| {
        fd as i32 > 2
            && crate::pm::file_mode(fd)
                .is_some_and(|mode| matches!(mode & S_IFMT, S_IFREG | S_IFDIR | S_IFCHR))
            && !INHERITED.lock().contains(&fd)
    };
    match number {
        nr::MMAP => {
            a[3] & sys::MAP_TYPE == sys::MAP_PRIVATE
                || a[3] & sys::MAP_ANONYMOUS == 0 && a[2] & sys::PROT_WRITE == 0
        }
        nr::MPROTECT | nr::MUNMAP | nr::BRK | nr::MADVISE | nr::MREMAP => true,
        nr::RT_SIGACTION | nr::RT_SIGPROCMASK | nr::RT_SIGRETURN | nr::SIGALTSTACK => true,
        nr::ARCH_PRCTL | SET_TID_ADDRESS | SET_ROBUST_LIST | nr::RSEQ => true,
        // getpid, uname, getcwd; getuid, getgid, geteuid, getegid, getppid; getresuid, getresgid;
        // gettid
        nr::GETPID | 63 | 79 | 102 | 104 | 107 | 108 | nr::GETPPID | 118 | 120 | nr::GETTID => true,
        // getrlimit, sysinfo, sched_getaffinity; clock_getres
        97 | 99 | 204 | 229 => true,
        nr::GETTIMEOFDAY | nr::TIME | nr::CLOCK_GETTIME | nr::GETRANDOM => true,
        // prlimit64: only asking, and only about itself
        302 => a[0] == 0 && a[2] == 0,
        // A wake-up. There is nobody to be woken.
        nr::FUTEX => a[1] & 0x7f == 1,
        nr::READ | nr::PREAD64 | nr::READV | nr::PREADV | nr::FSTAT | nr::LSEEK | nr::CLOSE => {
            own_file(a[0])
        }
        // getdents64, fstatfs
        217 | 138 => own_file(a[0]),
        // F_GETFD, F_SETFD, F_GETFL
        nr::FCNTL => own_file(a[0]) && matches!(a[1], 1..=3),
        // TCGETS: whether it is a terminal
        16 => own_file(a[0]) && a[1] == 0x5401,
        nr::OPEN => a[1] & !LOOKING == 0 && is_outside(AT_FDCWD, a[0]),
        nr::OPENAT => a[2] & !LOOKING == 0 && is_outside(a[0], a[1]),
        // stat, lstat, access, readlink, statfs
        4 | 6 | 21 | nr::READLINK | 137 => is_outside(AT_FDCWD, a[0]),
        // newfstatat of a descriptor
        262 if is_empty(a[1]) => own_file(a[0]),
        // newfstatat, readlinkat, faccessat, faccessat2
        262 | nr::READLINKAT | nr::FACCESSAT | 439 => is_outside(a[0], a[1]),
        _ => false,
    }
}

fn is_empty(path: u64) -> bool {
    crate::values::read_path(path).is_some_and(|path| path.is_empty())
}

/// Whether a path leads to something that is the same in all runs.
fn is_outside(folder: u64, path: u64) -> bool {
    let Some(given) = crate::values::read_path(path).filter(|path| !path.is_empty()) else {
        return false;
    };
    let whole = if given.starts_with(b"/") {
        given
    } else {
        let Some(mut whole) = crate::paths::resolve_folder(folder, b"") else {
            return false;
        };
        whole.push(b'/');
        whole.extend_from_slice(&given);
        whole
    };
    // As it is named, and as the kernel finds it: where links are followed, and where they are not.
    is_same_everywhere(&whole) && resolved(&whole).is_some_and(|path| is_same_everywhere(&path))
}

/// The path without symbolic links, as far as there is something; what is missing as it was named.
fn resolved(path: &[u8]) -> Option<Vec<u8>> {
    const O_PATH_CLOEXEC: u64 = 0o10_000_000 | 0o2_000_000;
    const O_NOFOLLOW: u64 = 0o400_000;
    let mut end = path.len();
    loop {
        let mut name = path[..end.max(1)].to_vec();
        name.push(0);
        // SAFETY: NUL-terminated; opens nothing for access.
        let open = |flags: u64| unsafe { sc!(nr::OPEN, name.as_ptr(), O_PATH_CLOEXEC | flags) };
        let fd = open(0);
        if fd >= 0 {
            let link = crate::paths::read_link(alloc::format!("/proc/self/fd/{fd}\0").as_bytes());
            // SAFETY: our own descriptor.
            unsafe { sc!(nr::CLOSE, fd) };
            let mut whole = link;
            whole.extend_from_slice(&path[end..]);
            return whole.starts_with(b"/").then_some(whole);
        }
        let link = open(O_NOFOLLOW);
        if link >= 0 {
            // A link to what is not there: it may be there in another run.
            // SAFETY: our own descriptor.
            unsafe { sc!(nr::CLOSE, link) };
            return None;
        }
        end = path[..end].iter().rposition(|&byte| byte == b'/')?;
        if end == 0 {
            return Some(path.to_vec());
        }
    }
}

/// Whether nothing at an absolute path differs between runs.
fn is_same_everywhere(path: &[u8]) -> bool {
    // Of `/proc` and `/dev`, what tells of the machine and of the program's own mappings, and what
    // has no state.
    const OF_PROC: [&[u8]; 12] = [
        b"/proc/self/exe",
        b"/proc/self/maps",
        b"/proc/self/auxv",
        b"/proc/self/cmdline",
        b"/proc/self/environ",
        b"/proc/self/cgroup",
        b"/proc/self/mounts",
        b"/proc/mounts",
        b"/proc/cpuinfo",
        b"/proc/cmdline",
        b"/proc/filesystems",
        b"/proc/meminfo",
    ];
    const OF_DEV: [&[u8]; 4] = [b"/dev/null", b"/dev/zero", b"/dev/urandom", b"/dev/random"];
    let below = |path: &[u8], folder: &[u8]| {
        path.strip_prefix(folder)
            .is_some_and(|rest| rest.is_empty() || rest[0] == b'/' || folder == b"/")
    };
    if path.split(|&byte| byte == b'/').any(|part| part == b"..") {
        return false;
    }
    if below(path, b"/proc") {
        let own = sys::read_decimal(path.strip_prefix(b"/proc/").unwrap_or(b""));
        // As it is called once it has been resolved.
        let is_own = own.is_some_and(|(number, _)| number == u64::from(crate::control::real_pid()));
        return OF_PROC.contains(&path) || below(path, b"/proc/sys") || is_own;
    }
    if below(path, b"/dev") && !below(path, b"/dev/shm") {
        return OF_DEV.contains(&path);
    }
    let c = control();
    let world = c.world[..WORLD_LEN].split(|&byte| byte == 0);
    !world
        .take(c.world_count as usize)
        .any(|folder| below(path, folder) || below(folder, path))
}

// ---------------------------------------------------------------- up to the first input

/// Whether a call is about the input, or waits for something.
fn concerns_input(number: u64, a: &[u64; 6]) -> bool {
    match number {
        POLL => !polls_nothing(a),
        // select, epoll_wait and their kin
        23 | 232 | nr::PSELECT6 | nr::PPOLL | nr::EPOLL_PWAIT | nr::EPOLL_PWAIT2 => true,
        // accept, accept4
        43 | 288 => crate::mode().client,
        nr::MMAP => crate::pm::maps_input(number, a),
        // Whatever else takes a descriptor first; what is no descriptor is not standard input
        // either.
        nr::READ
        | nr::READV
        | nr::PREAD64
        | nr::PREADV
        | nr::PREADV2
        | nr::FSTAT
        | nr::LSEEK
        | nr::FCNTL
        | nr::CLOSE
        | nr::SPLICE
        | nr::TEE
        | nr::COPY_FILE_RANGE
        | 16
        | 32
        | 33
        | 138
        | 262
        | 292
        | nr::STATX => crate::pm::is_input(a[0]) || crate::pm::names_input(number, a),
        nr::SENDFILE => crate::pm::is_input(a[1]),
        _ => crate::pm::names_input(number, a),
    }
}

/// Whether nothing is waited for, as when Rust's runtime asks whether descriptors are open: the
/// input, which is a file, or nobody has asked for yet, has no part in that.
fn polls_nothing(a: &[u64; 6]) -> bool {
    const ENTRY: u64 = 8;
    const EVENTS: u64 = 4;
    /// More are not looked at.
    const ENTRIES_MAX: u64 = 16;
    let [entries, count, timeout, ..] = *a;
    let asks_nothing = |n: u64| {
        let mut events = [1; 2];
        let at = entries.wrapping_add(n * ENTRY + EVENTS);
        read_memory(reach(ProgramAddr::new(at)), &mut events) && events == [0; 2]
    };
    timeout as i32 == 0 && count <= ENTRIES_MAX && (0..count).all(asks_nothing)
}

/// Whether a forked process has what this call leaves behind.
fn survives_fork(number: u64, a: &[u64; 6]) -> bool {
    match number {
        nr::MMAP => {
            a[3] & sys::MAP_ANONYMOUS == 0 || a[3] & sys::MAP_TYPE == sys::MAP_PRIVATE
        }
        // Record locks are the process's own (F_SETLK, F_SETLKW); what else there is concerns the
        // descriptor.
        nr::FCNTL => !matches!(a[1], 6 | 7),
        nr::FUTEX => a[1] & 0x7f == 1,
        // prctl: PR_SET_NAME and PR_GET_NAME
        PRCTL => matches!(a[0], 15 | 16),
        // socket, bind, listen, getsockname, setsockopt, getsockopt; epoll_create, epoll_ctl,
        // epoll_create1. What comes of them is looked at when the program stops.
        41 | 49 | 50 | 51 | 54 | 55 | 213 | 233 | 291 => crate::mode().client,
        // read to close, stat, fstat, lstat, poll, lseek
        0..=8
        // mprotect to brk, signals, ioctl, pread64 to access, sched_yield to madvise, dup, dup2,
        // nanosleep, getpid
        | 10..=21 | 24..=28 | 32 | 33 | 35 | 39
        // uname, flock to getrusage, sysinfo, times, getuid, getgid, geteuid, getegid, getppid,
        // getpgrp
        | 63 | 73..=100 | 102 | 104 | 107 | 108 | 110 | 111
        // getresuid, getresgid, getpgid, getsid, rt_sigpending, sigaltstack, statfs, fstatfs,
        // getpriority
        | 118 | 120 | 121 | 124 | 127 | 131 | 137 | 138 | 140
        // sched_get…, arch_prctl, setrlimit, sync, gettid, xattr, time
        | 143 | 145..=148 | 158 | 160 | 162 | 186 | 188..=199 | 201
        // sched_getaffinity, getdents64, set_tid_address, fadvise64, clock_gettime to
        // clock_nanosleep
        | 204 | 217 | SET_TID_ADDRESS | 221 | 228..=230
        // openat to faccessat, set_robust_list, sync_file_range, utimensat, fallocate, dup3,
        // preadv, pwritev
        | 257..=269 | SET_ROBUST_LIST | 277 | 280 | 285 | 292 | 295 | 296
        // prlimit64, name_to_handle_at, syncfs, getcpu, renameat2, getrandom, memfd_create,
        // copy_file_range to pwritev2
        | 302 | 303 | 306 | 309 | 316 | 318 | 319 | 326..=328
        // statx, rseq, openat2, faccessat2
        | 332 | 334 | 437 | 439 => true,
        _ => false,
    }
}

/// A stop with things at hand that all runs would change.
fn refuse_what_runs_would_share() {
    let is_shared = |m: &crate::maps::Mapping| {
        m.shared && m.write && !crate::blocks::is_engine(m.start) && !m.path.starts_with(b"/")
            || m.shared
                && m.write
                && [&b"/memfd:"[..], b"/dev/zero", b"/SYSV"]
                    .iter()
                    .any(|p| m.path.starts_with(p))
                && !crate::blocks::is_engine(m.start)
    };
    if crate::maps::read().iter().any(is_shared) {
        refuse("it has shared memory that is no file's");
    }
}

/// Descriptor, position and flags of all open files, and of sockets that listen. Pipes, other
/// sockets and the like that the program has made are refused.
fn open_files() -> Vec<(u64, i64, i64)> {
    let mut files = Vec::new();
    for fd in open_descriptors() {
        let Some(mode) = crate::pm::file_mode(fd) else {
            continue;
        };
        match mode & S_IFMT {
            S_IFREG | S_IFDIR => {
                // SAFETY: asks where it is, and how it was opened.
                let (position, flags) =
                    unsafe { (sc!(nr::LSEEK, fd, 0, 1), sc!(nr::FCNTL, fd, F_GETFL)) };
                files.push((fd, position, flags));
            }
            S_IFCHR => {}
            _ if INHERITED.lock().contains(&fd) => {}
            S_IFSOCK if crate::mode().client && is_listening(fd) => {
                // SAFETY: asks how it was opened.
                files.push((fd, 0, unsafe { sc!(nr::FCNTL, fd, F_GETFL) }));
            }
            _ if crate::mode().client && epoll::is_set(fd) => {}
            _ => refuse("it has a pipe, a socket or the like"),
        }
    }
    files
}

fn is_listening(fd: u64) -> bool {
    const GETSOCKOPT: u64 = 55;
    const SOL_SOCKET: u64 = 1;
    const SO_ACCEPTCONN: u64 = 30;
    let mut listens = 0u32;
    let mut len = 4u32;
    let (to, size) = (&raw mut listens, &raw mut len);
    // SAFETY: our own variables, of which the kernel is told the size.
    let asked = unsafe { sc!(GETSOCKOPT, fd, SOL_SOCKET, SO_ACCEPTCONN, to, size) };
    asked == 0 && listens != 0
}

/// Sets of descriptors that `epoll` watches.
mod epoll {
    use super::{F_GETFD, is_listening, open_descriptors, refuse};
    use crate::sys::{nr, sc};
    use alloc::vec::Vec;

    /// What is watched, and what is told of it (`struct epoll_event`).
    #[derive(Clone, Copy)]
    struct Member {
        fd: u64,
        event: Event,
    }

    #[derive(Clone, Copy)]
    #[repr(C, packed)]
    struct Event {
        events: u32,
        data: u64,
    }

    /// See the module's header.
    pub struct Set {
        fd: u64,
        /// `FD_CLOEXEC`.
        flags: u64,
        members: Vec<Member>,
    }

    /// Whether a descriptor is one.
    pub fn is_set(fd: u64) -> bool {
        let name = alloc::format!("/proc/self/fd/{fd}\0");
        crate::paths::read_link(name.as_bytes()) == b"anon_inode:[eventpoll]"
    }

    /// All that there are. A program that waits for anything but clients is refused.
    pub fn sets() -> Vec<Set> {
        if !crate::mode().client {
            return Vec::new();
        }
        let sets = open_descriptors().into_iter().filter(|&fd| is_set(fd));
        let sets: Vec<Set> = sets.map(look).collect();
        if sets
            .iter()
            .flat_map(|set| &set.members)
            .any(|member| !is_listening(member.fd))
        {
            refuse("it waits for something besides clients");
        }
        sets
    }

    /// `tfd:        5 events:       19 data:     55d0  pos:0 …`, a line for each member.
    fn look(fd: u64) -> Set {
        let name = alloc::format!("/proc/self/fdinfo/{fd}\0");
        let name = core::ffi::CStr::from_bytes_with_nul(name.as_bytes());
        let text = crate::sys::read_file(name.unwrap_or_default());
        if text.is_empty() {
            refuse("the kernel does not tell what it waits for");
        }
        let mut members = Vec::new();
        for line in text.split(|&byte| byte == b'\n') {
            let Some(rest) = line.strip_prefix(b"tfd:") else {
                continue;
            };
            let mut words = rest
                .split(|&byte| byte == b' ')
                .filter(|word| !word.is_empty());
            let mut number = |name: Option<&[u8]>, radix: u32| {
                if name.is_some() && words.next() != name {
                    return None;
                }
                let word = core::str::from_utf8(words.next()?).ok()?;
                u64::from_str_radix(word, radix).ok()
            };
            let found = (
                number(None, 10),
                number(Some(b"events:"), 16),
                number(Some(b"data:"), 16),
            );
            let (Some(fd), Some(events), Some(data)) = found else {
                refuse("the kernel does not tell what it waits for");
            };
            let events = events as u32;
            members.push(Member {
                fd,
                event: Event { events, data },
            });
        }
        // SAFETY: asks how it was made.
        let flags = unsafe { sc!(nr::FCNTL, fd, F_GETFD) } as u64;
        Set { fd, flags, members }
    }

    impl Set {
        /// Makes one that is the process's own, in the place of the one that was inherited.
        pub fn make(&self) {
            const EPOLL_CREATE1: u64 = 291;
            const EPOLL_CTL: u64 = 233;
            const EPOLL_CTL_ADD: u64 = 1;
            const DUP3: u64 = 292;
            const CLOEXEC: u64 = 0o2_000_000;
            // SAFETY: descriptors of this process; an event of ours. The new set takes the number
            // of the old one.
            unsafe {
                let made = sc!(EPOLL_CREATE1, CLOEXEC);
                for member in &self.members {
                    let event = &raw const member.event;
                    sc!(EPOLL_CTL, made, EPOLL_CTL_ADD, member.fd, event);
                }
                sc!(DUP3, made, self.fd, (self.flags & 1) * CLOEXEC);
                sc!(nr::CLOSE, made);
            }
        }
    }
}

fn open_descriptors() -> Vec<u64> {
    const O_DIRECTORY_CLOEXEC: u64 = 0o200_000 | 0o2_000_000;
    const GETDENTS64: u64 = 217;
    let mut found = Vec::new();
    // SAFETY: a folder of the kernel's; our own buffer.
    unsafe {
        let folder = sc!(nr::OPEN, c"/proc/self/fd".as_ptr(), O_DIRECTORY_CLOEXEC);
        if folder < 0 {
            refuse("/proc does not tell what it has open");
        }
        let mut buffer = alloc::vec![0u8; 16384];
        loop {
            let n = sc!(GETDENTS64, folder, buffer.as_mut_ptr(), buffer.len());
            if n <= 0 {
                break;
            }
            let mut rest = &buffer[..n as usize];
            // struct linux_dirent64: inode, offset, length of the entry (at 16), type, name (at
            // 19).
            while rest.len() > 19 {
                let len = usize::from(u16::from_le_bytes([rest[16], rest[17]]));
                if let Some((fd, _)) = sys::read_decimal(&rest[19..])
                    && fd != folder as u64
                {
                    found.push(fd);
                }
                rest = rest.get(len.max(1)..).unwrap_or_default();
            }
        }
        sc!(nr::CLOSE, folder);
    }
    found
}
