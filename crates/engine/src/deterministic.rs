//! Removing randomness: time, process numbers, random bytes, time-stamp counters, file times,
//! numbers of devices that are none.
//!
//! With address-space randomisation off (the launcher sees to that), two runs of a single-threaded
//! program with the same input then make the same system calls with the same results and touch the
//! same addresses. What stays real: file content, inode numbers, what other processes do,
//! scheduling of threads.
//!
//! Time is a counter that every question advances; sleeping advances it by what was asked for.
//! Process numbers are handed out in order of creation and translated in the calls that name
//! processes. File systems without a device (a private view is one) get their number when they are
//! mounted, from what happens to be free; programs are shown one that follows from where they are
//! mounted, so that it is the same in all runs, and after a crash. (In `/proc/self/mountinfo` they
//! still find the kernel's.) What is mounted nowhere that the program could see, as what the tool
//! gives it for its input may be, has one that follows from the kind of file.

use crate::address::ProgramAddr;
use crate::clock::EPOCH_NS;
use crate::context::ThreadContext;
use crate::control::control;
use crate::schedule::turn;
use crate::sigdata::SigInfo;
use crate::sync::SpinLock;
use crate::sys::{self, nr, sc};
use crate::values::{read_value, write_value};
use alloc::vec::Vec;
use brownout_syscalls::pipeline::{Call, Rest, Stage};
use core::sync::atomic::{AtomicU64, Ordering};
use iced_x86::{Instruction, Mnemonic};

/// What one question costs.
const TICK_NS: u64 = 1_000;
/// Time-stamp counter ticks in a nanosecond.
const TSC_PER_NS: u64 = 2;
/// Bytes that `/dev/urandom` yields before it ends. Programs read a few dozen.
const RANDOM_FILE_LEN: usize = 1 << 20;

static CLOCK_NS: AtomicU64 = AtomicU64::new(1_000_000_000);
static RANDOM: AtomicU64 = AtomicU64::new(0);
/// (kernel's number, shown number)
static PIDS: SpinLock<Vec<(u32, u32)>> = SpinLock::new(Vec::new());

fn on() -> bool {
    crate::mode().deterministic
}

fn now_ns() -> u64 {
    if turn::on() {
        return turn::table().pass_time(TICK_NS);
    }
    CLOCK_NS.fetch_add(TICK_NS, Ordering::Relaxed)
}

/// SplitMix64.
fn random() -> u64 {
    let mut z = RANDOM.fetch_add(0x9E37_79B9_7F4A_7C15, Ordering::Relaxed);
    z = (z ^ z >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ z >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ z >> 31
}

fn random_bytes(out: &mut [u8]) {
    for c in out.chunks_mut(8) {
        c.copy_from_slice(&random().to_le_bytes()[..c.len()]);
    }
}

/// At the program's first instruction: the kernel's auxiliary vector names the vDSO (whose clock we
/// could not see) and sixteen random bytes.
pub fn init(ctx: &mut ThreadContext, shown: u32) {
    if !on() {
        return;
    }
    RANDOM.store(control().seed, Ordering::Relaxed);
    let own = if shown != 0 {
        shown
    } else {
        control().next_pid.fetch_add(1, Ordering::Relaxed)
    };
    PIDS.lock().push((crate::control::real_pid(), own));
    let mut at = ctx.gpr[4];
    let mut word = 0u64;
    read_value(at, &mut word);
    at += 8 * (word + 2); // argc, argv, NULL
    while read_value(at, &mut word) && word != 0 {
        at += 8;
    }
    at += 8;
    const AT_IGNORE: u64 = 1;
    const AT_RANDOM: u64 = 25;
    const AT_SYSINFO_EHDR: u64 = 33;
    let mut pair = [0u64; 2];
    while read_value(at, &mut pair) && pair[0] != 0 {
        match pair[0] {
            AT_SYSINFO_EHDR => {
                write_value(ctx, at, &AT_IGNORE);
            }
            AT_RANDOM => {
                let mut bytes = [0u8; 16];
                random_bytes(&mut bytes);
                write_value(ctx, pair[1], &bytes);
            }
            _ => {}
        }
        at += 16;
    }
}

/// The process or thread that the kernel has called `before` is called `now`: a copy of it goes on
/// in its place.
pub fn is_now(before: u32, now: u32) {
    for pid in PIDS.lock().iter_mut().filter(|pid| pid.0 == before) {
        pid.0 = now;
    }
}

/// The number under which the program knows the process or thread `real`.
pub fn shown_pid(real: u32) -> u32 {
    if !on() {
        return real;
    }
    PIDS.lock()
        .iter()
        .find(|p| p.0 == real)
        .map_or(real, |p| p.1)
}

/// What is told of a signal, with its sender's number as the program knows it.
pub fn shown_info(mut info: SigInfo) -> SigInfo {
    const SIGCHLD: i32 = 17;
    const SI_USER: i32 = 0;
    const SI_QUEUE: i32 = -1;
    const SI_TKILL: i32 = -6;
    let names_sender =
        matches!(info.code(), SI_USER | SI_QUEUE | SI_TKILL) || info.signo() == SIGCHLD;
    if on() && names_sender {
        let word = info.words[2];
        info.words[2] = word & !0xffff_ffff | u64::from(shown_pid(word as u32));
    }
    info
}

/// The kernel's number of the process or thread that the program knows as `shown`.
pub fn real_pid(shown: u32) -> u32 {
    PIDS.lock()
        .iter()
        .find(|p| p.1 == shown)
        .map_or(shown, |p| p.0)
}

/// Arguments that name processes, in calls that are otherwise made as they are.
fn naming_processes(number: u64, a: &[u64; 6]) -> &'static [usize] {
    const P_PID: u64 = 1;
    match number {
        101 => &[1],                                     // ptrace
        129 => &[0],                                     // rt_sigqueueinfo
        140 | 141 if a[0] == 0 => &[1],                  // getpriority, setpriority of PRIO_PROCESS
        142..=145 | 148 | 203 | 204 | 314 | 315 => &[0], // sched_…
        247 if a[0] == P_PID => &[1],                    // waitid
        251 | 252 if a[0] == 1 => &[1], // ioprio_set, ioprio_get of IOPRIO_WHO_PROCESS
        256 | 279 => &[0],              // migrate_pages, move_pages
        274 => &[0],                    // get_robust_list
        297 => &[0, 1],                 // rt_tgsigqueueinfo
        298 => &[1],                    // perf_event_open
        302 => &[0],                    // prlimit64
        310 | 311 => &[0],              // process_vm_readv, process_vm_writev
        312 => &[0, 1],                 // kcmp
        434 => &[0],                    // pidfd_open
        _ => &[],
    }
}

/// Before a process or thread is made: the number that it will be known by.
pub fn reserve_pid() -> u32 {
    if on() {
        control().next_pid.fetch_add(1, Ordering::Relaxed)
    } else {
        0
    }
}

/// After it was made, in the parent (`real` its number) or in the child (`real` its own).
pub fn bind_pid(real: u32, shown: u32) {
    if on() {
        PIDS.lock().push((real, shown));
    }
}

/// In a forked child other threads' locks are nobody's.
pub fn reset_after_fork() {
    PIDS.reset_after_fork();
}

/// An instruction whose result differs from run to run, or tells of the processor; the caller moves
/// on.
pub fn instruction(ctx: &mut ThreadContext, insn: &Instruction) {
    match insn.mnemonic() {
        Mnemonic::Rdtsc | Mnemonic::Rdtscp => {
            let t = now_ns() * TSC_PER_NS;
            ctx.gpr[0] = t & 0xffff_ffff;
            ctx.gpr[2] = t >> 32;
            if insn.mnemonic() == Mnemonic::Rdtscp {
                ctx.gpr[1] = 0;
            }
        }
        Mnemonic::Rdrand | Mnemonic::Rdseed => {
            crate::insn::set_register(ctx, insn, random());
            // Success: carry set, the other arithmetic flags clear.
            ctx.rflags = ctx.rflags & !0x8d4 | 1;
        }
        Mnemonic::Rdpid => crate::insn::set_register(ctx, insn, 0),
        Mnemonic::Cpuid => {
            let (leaf, sub) = (ctx.gpr[0] as u32, ctx.gpr[1] as u32);
            let mut r = brownout_abi::cpu::cpuid(leaf, sub);
            [r.eax, r.ebx, r.ecx, r.edx] =
                crate::mode()
                    .hidden
                    .hide_in_cpuid(leaf, sub, [r.eax, r.ebx, r.ecx, r.edx]);
            if crate::mode().plain_cpu {
                [r.eax, r.ebx, r.ecx, r.edx] =
                    brownout_abi::cpu::plain_cpuid(leaf, sub, [r.eax, r.ebx, r.ecx, r.edx]);
            }
            // What names the core that happens to execute this.
            match leaf {
                _ if !on() => {}
                1 => r.ebx &= 0x00ff_ffff,
                0xb | 0x1f => r.edx = 0,
                0x8000_001e => (r.eax, r.ebx, r.ecx) = (0, r.ebx & !0xff, r.ecx & !0xff),
                _ => {}
            }
            ctx.gpr[0] = r.eax as u64;
            ctx.gpr[3] = r.ebx as u64;
            ctx.gpr[1] = r.ecx as u64;
            ctx.gpr[2] = r.edx as u64;
        }
        Mnemonic::Xgetbv => {
            // The translator sends only those here that ask for XCR0 or may: others are the
            // processor's business.
            let (register, mut value) = (ctx.gpr[1] as u32, 0);
            if register <= 1 {
                value = crate::insn::xgetbv(register);
            }
            let mut value = crate::mode().hidden.hide_in_xcr0(value);
            if crate::mode().plain_cpu {
                value = brownout_abi::cpu::plain_xcr0(value);
            }
            ctx.gpr[0] = value & 0xffff_ffff;
            ctx.gpr[2] = value >> 32;
        }
        _ => crate::fatal_bug("not an instruction of this kind"),
    }
}

const STAT: u64 = 4;
const LSTAT: u64 = 6;
const NEWFSTATAT: u64 = 262;
const SETPGID: u64 = 109;
const GETPGID: u64 = 121;
const GETPGRP: u64 = 111;
const GETSID: u64 = 124;
const TIMES: u64 = 100;
const GETRUSAGE: u64 = 98;
const SET_TID_ADDRESS: u64 = 218;
const RT_SIGTIMEDWAIT: u64 = 128;
const CLOCK_NANOSLEEP: u64 = 230;

/// Answers and adapts calls whose results differ from run to run.
pub const STAGE: Stage<ThreadContext> = Stage {
    name: "determinism",
    takes: |number| on() && (differs(number) || may_name_processes(number)),
    pass,
};

/// Whether a call may name processes or yield the number of a new one.
fn may_name_processes(number: u64) -> bool {
    // Some name a process only if their first argument says so.
    let names = |kind: u64| !naming_processes(number, &[kind; 6]).is_empty();
    matches!(number, nr::CLONE | nr::FORK | nr::VFORK) || names(0) || names(1)
}

fn differs(number: u64) -> bool {
    matches!(
        number,
        nr::GETPID
            | nr::GETTID
            | nr::GETPPID
            | nr::TIME
            | nr::GETTIMEOFDAY
            | nr::CLOCK_GETTIME
            | nr::GETRANDOM
            | nr::GETCPU
            | nr::OPEN
            | nr::OPENAT
            | nr::KILL
            | nr::TKILL
            | nr::TGKILL
            | nr::WAIT4
            | nr::FSTAT
            | STAT
            | LSTAT
            | NEWFSTATAT
            | nr::STATX
            | nr::NANOSLEEP
            | CLOCK_NANOSLEEP
            | SETPGID
            | GETPGID
            | GETPGRP
            | GETSID
            | TIMES
            | GETRUSAGE
            | SET_TID_ADDRESS
            | RT_SIGTIMEDWAIT
    )
}

fn pass(ctx: &mut ThreadContext, call: &Call, rest: Rest<ThreadContext>) -> Option<i64> {
    let (number, a) = (call.number, &call.args);
    // Lives as long as the call that names it.
    let mut path = Vec::new();
    let ok = |good: bool| Some(if good { 0 } else { -sys::EFAULT });
    match number {
        nr::GETPID => Some(shown_pid(crate::control::real_pid()) as i64),
        nr::GETTID => Some(shown_pid(ctx.tid) as i64),
        nr::GETPPID => {
            // SAFETY: no arguments.
            let real = unsafe { sc!(nr::GETPPID) } as u32;
            // A parent of the same program is known; any other has a number that changes from run
            // to run.
            let known = PIDS.lock().iter().find(|p| p.0 == real).map(|p| p.1);
            Some(known.map_or(1, i64::from))
        }
        GETPGRP | GETPGID | GETSID => Some(1),
        SETPGID => {
            let [process, group] = [a[0], a[1]].map(|pid| real_pid(pid as u32) as u64);
            rest.make(ctx, &call.with([process, group, 0, 0, 0, 0]))
        }
        SET_TID_ADDRESS => Some(shown_pid(rest.make(ctx, call)? as u32) as i64),
        nr::CLONE | nr::FORK | nr::VFORK => rest.make(ctx, call).map(shown),
        nr::TIME => {
            let s = (EPOCH_NS + now_ns()) / 1_000_000_000;
            if a[0] != 0 && !put(ctx, a[0], &[s]) {
                return Some(-sys::EFAULT);
            }
            Some(s as i64)
        }
        nr::GETTIMEOFDAY => {
            let t = EPOCH_NS + now_ns();
            ok(
                (a[0] == 0 || put(ctx, a[0], &[t / 1_000_000_000, t % 1_000_000_000 / 1000]))
                    && (a[1] == 0 || put(ctx, a[1], &[0])),
            )
        }
        nr::CLOCK_GETTIME => {
            // REALTIME, REALTIME_COARSE, TAI count from the epoch, all others from the start.
            let base = if matches!(a[0], 0 | 5 | 11) {
                EPOCH_NS
            } else {
                0
            };
            let t = base + now_ns();
            ok(put(ctx, a[1], &[t / 1_000_000_000, t % 1_000_000_000]))
        }
        TIMES => {
            let t = now_ns() / 10_000_000;
            if a[0] != 0 && !put(ctx, a[0], &[t, 0, 0, 0]) {
                return Some(-sys::EFAULT);
            }
            Some(t as i64)
        }
        GETRUSAGE => ok(put(ctx, a[1], &[0; 18])),
        // Where threads take turns, so does time.
        nr::NANOSLEEP | CLOCK_NANOSLEEP if turn::on() => rest.make(ctx, call),
        nr::NANOSLEEP | CLOCK_NANOSLEEP => {
            let request = if number == nr::NANOSLEEP { a[0] } else { a[2] };
            let mut ts = [0u64; 2];
            if read_value(request, &mut ts) && a[1] & 1 == 0 {
                CLOCK_NS.fetch_add(
                    ts[0].wrapping_mul(1_000_000_000).wrapping_add(ts[1]),
                    Ordering::Relaxed,
                );
            } else if number == CLOCK_NANOSLEEP && a[1] & 1 != 0 {
                // An absolute time of our clock means nothing to the kernel: it is reached at once.
                let base = if a[0] == 0 { EPOCH_NS } else { 0 };
                let until = ts[0]
                    .wrapping_mul(1_000_000_000)
                    .wrapping_add(ts[1])
                    .wrapping_sub(base);
                CLOCK_NS.fetch_max(until, Ordering::Relaxed);
                return Some(0);
            }
            rest.make(ctx, call)
        }
        nr::GETRANDOM => {
            let n = a[1].min(1 << 20) as usize;
            let mut bytes = alloc::vec![0u8; n];
            random_bytes(&mut bytes);
            let good = sys::write_memory(crate::pm::reach(ProgramAddr::new(a[0])), &bytes);
            if good {
                crate::pm::kernel_wrote(ctx, a[0], n as u64);
            }
            Some(if good { n as i64 } else { -sys::EFAULT })
        }
        nr::GETCPU => {
            let mut zero = |addr: u64| {
                let good = addr == 0 || write_value(ctx, addr, &0u32);
                if good && addr != 0 {
                    crate::pm::kernel_wrote(ctx, addr, 4);
                }
                good
            };
            ok(zero(a[0]) && zero(a[1]))
        }
        nr::OPEN => open(a[0], a[1]).or_else(|| rest.make(ctx, &proc_path(call, 0, &mut path))),
        nr::OPENAT => open(a[1], a[2]).or_else(|| rest.make(ctx, &proc_path(call, 1, &mut path))),
        nr::KILL | nr::TKILL => rest.make(ctx, &call.with([real_signed(a[0]), a[1], 0, 0, 0, 0])),
        nr::TGKILL => {
            let [process, thread] = [real_signed(a[0]), real_signed(a[1])];
            rest.make(ctx, &call.with([process, thread, a[2], 0, 0, 0]))
        }
        nr::WAIT4 => {
            let real = call.with([real_signed(a[0]), a[1], a[2], a[3], 0, 0]);
            rest.make(ctx, &real).map(shown)
        }
        RT_SIGTIMEDWAIT => {
            let result = rest.make(ctx, call)?;
            let mut info = SigInfo { words: [0; 16] };
            if result > 0 && a[1] != 0 && read_value(a[1], &mut info) {
                write_value(ctx, a[1], &shown_info(info));
            }
            Some(result)
        }
        STAT | LSTAT | nr::FSTAT | NEWFSTATAT => {
            let r = rest.make(ctx, call)?;
            let buffer = if number == NEWFSTATAT { a[2] } else { a[1] };
            if r == 0 {
                // The mode is behind device, number and count of links.
                let mut status = [0u64; 4];
                if read_value(buffer, &mut status) && major(status[0]) == 0 {
                    let shown = shown_device(minor(status[0]), status[3] as u32);
                    put(ctx, buffer, &[shown]);
                }
                // atime, mtime, ctime: three (seconds, nanoseconds) pairs at offset 72.
                let t = EPOCH_NS / 1_000_000_000;
                put(ctx, buffer + 72, &[t, 0, t, 0, t, 0]);
            }
            Some(r)
        }
        nr::STATX => {
            let r = rest.make(ctx, call)?;
            if r == 0 {
                // Major and minor number, in 32 bits each.
                let mut device = [0u32; 2];
                let mut mode = 0u16;
                let known = read_value(a[4] + 136, &mut device) && read_value(a[4] + 28, &mut mode);
                if known && device[0] == 0 {
                    let shown = minor(shown_device(device[1].into(), mode.into()));
                    put(ctx, a[4] + 136, &[shown << 32]);
                }
                let t = EPOCH_NS / 1_000_000_000;
                // atime, btime, ctime, mtime: 16 bytes each at offset 64.
                put(ctx, a[4] + 64, &[t, 0, t, 0, t, 0, t, 0]);
            }
            Some(r)
        }
        _ => {
            let mut b = *a;
            for &n in naming_processes(number, a) {
                b[n] = real_signed(b[n]);
            }
            rest.make(ctx, &call.with(b))
        }
    }
}

/// File systems without a device: the kernel's minor number, and the one that is shown.
static DEVICES: SpinLock<Vec<(u64, u64)>> = SpinLock::new(Vec::new());

fn major(device: u64) -> u64 {
    device >> 8 & 0xfff | device >> 32 & 0xffff_f000
}

fn minor(device: u64) -> u64 {
    device & 0xff | device >> 12 & 0xffff_ff00
}

/// Under which number the program knows a file system that has no device, by its minor number.
/// `mode` is that of a file there.
fn shown_device(minor: u64, mode: u32) -> u64 {
    const S_IFMT: u32 = 0o170_000;
    let mut known = DEVICES.lock();
    let find = |known: &[(u64, u64)]| known.iter().find(|device| device.0 == minor).map(|d| d.1);
    let shown = find(&known).unwrap_or_else(|| {
        learn_mounts(&mut known);
        // It may be mounted nowhere. The kernel's number would say how much else has been mounted
        // on the machine.
        let nowhere = (mode & S_IFMT).to_le_bytes();
        find(&known).unwrap_or_else(|| name_device(&mut known, minor, &nowhere))
    });
    shown & 0xff | (shown & 0xffff_ff00) << 12
}

/// Learns under which numbers the program knows all file systems that have no device. A process
/// from which others are forked does so once for all of them.
pub fn learn_devices() {
    if on() {
        learn_mounts(&mut DEVICES.lock());
    }
}

/// The numbers are by where such a file system is mounted first: `36 35 0:52 ROOT PLACE …`, a line
/// for each.
fn learn_mounts(known: &mut Vec<(u64, u64)>) {
    let text = sys::read_file(c"/proc/self/mountinfo");
    for line in text.split(|&byte| byte == b'\n') {
        let mut words = line.split(|&byte| byte == b' ').skip(2);
        let (Some(device), Some(place)) = (words.next(), words.nth(1)) else {
            continue;
        };
        let minor = device.strip_prefix(b"0:").and_then(number);
        let Some(minor) = minor.filter(|minor| known.iter().all(|device| device.0 != *minor))
        else {
            continue;
        };
        name_device(known, minor, place);
    }
}

/// Gives a file system a number that follows from `name`.
fn name_device(known: &mut Vec<(u64, u64)>, minor: u64, name: &[u8]) -> u64 {
    // Above those that the kernel gives.
    const FIRST: u64 = 1 << 16;
    let mut shown = FIRST + hash(name) % FIRST;
    while known.iter().any(|device| device.1 == shown) {
        shown += 1;
    }
    known.push((minor, shown));
    shown
}

/// Decimal.
fn number(digits: &[u8]) -> Option<u64> {
    core::str::from_utf8(digits).ok()?.parse().ok()
}

/// FNV-1a.
fn hash(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3)
    })
}

/// Writes an answer of several words.
fn put(ctx: &mut ThreadContext, addr: u64, words: &[u64]) -> bool {
    let mut places = words.iter().enumerate();
    let good = places.all(|(i, word)| write_value(ctx, addr + 8 * i as u64, word));
    if good {
        crate::pm::kernel_wrote(ctx, addr, 8 * words.len() as u64);
    }
    good
}

/// The number of a process or thread that a call has yielded, as the program knows it.
fn shown(result: i64) -> i64 {
    if result > 0 {
        shown_pid(result as u32) as i64
    } else {
        result
    }
}

fn real_signed(pid: u64) -> u64 {
    let p = pid as i32;
    if p > 0 {
        real_pid(p as u32) as u64
    } else {
        pid
    }
}

/// `/proc/PID/…` by the number that the program knows; the new path is in `real`.
fn proc_path(call: &Call, at: usize, real: &mut Vec<u8>) -> Call {
    let mut args = call.args;
    if let Some(path) = real_proc_path(args[at]) {
        *real = path;
        args[at] = real.as_ptr() as u64;
    }
    call.with(args)
}

/// NUL-terminated; none if it is another path, or has the right number.
fn real_proc_path(path: u64) -> Option<Vec<u8>> {
    let path = crate::values::read_path(path)?;
    let rest = path.strip_prefix(b"/proc/")?;
    let end = rest.iter().position(|c| !c.is_ascii_digit())?;
    let shown = rest[..end].iter().fold(0u32, |n, c| {
        n.wrapping_mul(10).wrapping_add(u32::from(c - b'0'))
    });
    let real = real_pid(shown);
    if end == 0 || real == shown {
        return None;
    }
    let mut real = alloc::format!("/proc/{real}").into_bytes();
    real.extend_from_slice(&rest[end..]);
    real.push(0);
    Some(real)
}

/// Files that yield random bytes are replaced.
fn open(path: u64, flags: u64) -> Option<i64> {
    let text = crate::values::read_path(path)?;
    let content = match &text[..] {
        b"/dev/urandom" | b"/dev/random" => {
            let mut bytes = alloc::vec![0u8; RANDOM_FILE_LEN];
            random_bytes(&mut bytes);
            bytes
        }
        b"/proc/sys/kernel/random/uuid" | b"/proc/sys/kernel/random/boot_id" => {
            let (a, b) = (random(), random());
            alloc::format!(
                "{:08x}-{:04x}-4{:03x}-{:04x}-{:012x}\n",
                a >> 32,
                a >> 16 & 0xffff,
                a & 0xfff,
                b >> 48 & 0x3fff | 0x8000,
                b & 0xffff_ffff_ffff
            )
            .into_bytes()
        }
        _ => return None,
    };
    // SAFETY: a fresh file of our own, handed to the program.
    unsafe {
        let cloexec = flags & 0x8_0000 != 0;
        let fd = sc!(nr::MEMFD_CREATE, c"random".as_ptr(), cloexec as u64);
        if fd >= 0 {
            sc!(nr::WRITE, fd, content.as_ptr(), content.len());
            sc!(8u64, fd, 0, 0); // lseek to the start
        }
        Some(fd)
    }
}
