//! Where the parts of a deterministic program lie.
//!
//! In deterministic mode the engine decides on addresses, not the kernel: before the first
//! instruction of a program it moves what the kernel has loaded (program, interpreter, stack,
//! heap), and from then on it answers "anywhere" in `mmap`, `mremap` and `shmat` itself. So
//! addresses repeat even where address-space randomisation cannot be turned off (containers deny
//! `personality`), and they can be *chosen*: runs with different layout numbers have no address of
//! ordinary memory in common, runs with the same number have all. An exploration gives its recorded
//! run another layout than its recoveries. A pointer to ordinary memory that the program keeps in
//! persistent memory then leads nowhere after the crash, as it does after a real one.
//!
//! ```text
//!  layout 0  program 0x5555_5555_4000, heap behind it   mappings below 0x7fff_f7ff_f000   stack below 0x7fff_ffff_f000
//!  layout n  program n * 128 GiB higher, the rest as much lower
//! ```
//! Layout 0 is what the kernel itself chooses without randomisation. What stays: programs linked to
//! a fixed address (their heap moves), mappings that the program places itself (`MAP_FIXED`, and
//! hints that can be followed), those below 4 GiB (`MAP_32BIT`), huge pages, and what the kernel
//! maps on its own behalf (the ring of `io_setup`).
//!
//! Nothing of this concerns programs that do not run in deterministic mode.

use crate::address::Reach;
use crate::asm::{Outcome, program_syscall};
use crate::context::ThreadContext;
use crate::control::{LAYOUTS, layout_number};
use crate::maps::{self, Mapping};
use crate::service;
use crate::sync::{Guard, SpinLock};
use crate::sys::{self, nr, page_up, sc};
use crate::values::read_value;
use alloc::vec::Vec;
use brownout_abi::{ENGINE_BASE, ENGINE_LIMIT, Launch, PM_BASE, PM_LEN};
use brownout_syscalls::pipeline::{Call, Rest, Stage};
use core::sync::atomic::{AtomicU64, Ordering};

/// Distance between two layouts. All of them lie in what the sanitizers leave to the program (see
/// the addresses in `abi`), so it is not more.
const STEP: u64 = 128 << 30;
/// Where the kernel puts position-independent programs without randomisation.
const PROGRAM: u64 = 0x5555_5555_4000;
/// The end of the address space.
const STACK_TOP: u64 = 0x7fff_ffff_f000;
const _: () = assert!(PROGRAM + LAYOUTS * STEP <= ENGINE_BASE);
const _: () = assert!(STACK_TOP - LAYOUTS * STEP >= PM_BASE + PM_LEN - 4096);
/// Between the stack's end and the first mapping below it, at least: as in the kernel.
const STACK_GAP_MIN: u64 = 128 << 20;
/// And at most: this much is left of a layout, even if the stack is unlimited.
const STACK_GAP_MAX: u64 = STEP / 4;
/// How far the heap of a program with a fixed address is behind it, for each layout.
const HEAP_STEP: u64 = 64 << 30;
/// Where things wait while their places are exchanged.
const ASIDE: u64 = ENGINE_LIMIT + STEP;

/// Free stretches below the stack, sorted. Something of another's may lie in them:
/// `MAP_FIXED_NOREPLACE` tells.
static HOLES: SpinLock<Vec<(u64, u64)>> = SpinLock::new(Vec::new());

/// Where mappings begin, downwards.
static TOP: AtomicU64 = AtomicU64::new(0);

fn on() -> bool {
    crate::mode().deterministic
}

/// In a forked child the lock is nobody's.
pub fn reset_after_fork() {
    HOLES.reset_after_fork();
}

/// So that the list is whole when the address space is copied.
pub fn lock_for_fork() -> Guard<'static, Vec<(u64, u64)>> {
    HOLES.lock()
}

// ---------------------------------------------------------------- before the first instruction

/// A part of the program that moves as a whole.
#[derive(Clone, Copy)]
struct Part {
    start: u64,
    end: u64,
    to: u64,
}

impl Part {
    fn moved(&self, addr: u64) -> u64 {
        addr - self.start + self.to
    }
}

/// The words that the kernel has put on the stack: `argc`, arguments, environment, auxiliary
/// vector.
struct Table {
    words: Vec<u64>,
    /// Index of the first pair of the auxiliary vector.
    auxiliary: usize,
}

const AT_NULL: u64 = 0;
const AT_PHDR: u64 = 3;
const AT_PHNUM: u64 = 5;
const AT_BASE: u64 = 7;
const AT_PLATFORM: u64 = 15;
const AT_BASE_PLATFORM: u64 = 24;
const AT_RANDOM: u64 = 25;
const AT_EXECFN: u64 = 31;

impl Table {
    fn read(sp: u64) -> Option<Table> {
        let mut words = Vec::new();
        let next = |words: &mut Vec<u64>| {
            let mut word = 0u64;
            let good = read_value(sp + 8 * words.len() as u64, &mut word);
            words.push(word);
            good.then_some(word)
        };
        let count = next(&mut words)?;
        for _ in 0..=count {
            next(&mut words)?;
        }
        while next(&mut words)? != 0 {}
        let auxiliary = words.len();
        loop {
            let key = next(&mut words)?;
            next(&mut words)?;
            if key == AT_NULL {
                return Some(Table { words, auxiliary });
            }
        }
    }

    fn get(&self, key: u64) -> Option<u64> {
        let pairs = self.words[self.auxiliary..].chunks_exact(2);
        pairs.into_iter().find(|p| p[0] == key).map(|p| p[1])
    }

    fn set(&mut self, key: u64, value: u64) {
        for pair in self.words[self.auxiliary..].chunks_exact_mut(2) {
            if pair[0] == key {
                pair[1] = value;
            }
        }
    }
}

/// An ELF image in memory.
struct Image {
    start: u64,
    end: u64,
    /// By how much it was moved when loaded: 0 for programs that are linked to a fixed address.
    bias: u64,
    /// What its segments want their addresses to be multiples of.
    align: u64,
}

/// The image whose program headers are at `headers`.
fn image(headers: u64, count: u64, bias: Option<u64>) -> Option<Image> {
    const PT_LOAD: u32 = 1;
    const PT_PHDR: u32 = 6;
    let (mut low, mut high, mut align, mut own) = (u64::MAX, 0, 4096, None);
    // Without PT_PHDR the headers lie where the segment with their file offset says; they follow
    // the ELF header.
    let mut first = None;
    for n in 0..count.min(256) {
        let mut head = [0u64; 7];
        if !read_value(headers + 56 * n, &mut head) {
            return None;
        }
        let (kind, offset, addr, memory) = (head[0] as u32, head[1], head[2], head[5]);
        match kind {
            PT_LOAD => {
                low = low.min(addr & !4095);
                high = high.max(page_up(addr + memory));
                if head[6].is_power_of_two() {
                    align = head[6].clamp(align, 1 << 30);
                }
                if offset == 0 {
                    first = first.or(Some(addr));
                }
            }
            PT_PHDR => own = Some(addr),
            _ => {}
        }
    }
    let bias = bias
        .or_else(|| own.map(|own| headers.wrapping_sub(own)))
        .or_else(|| first.map(|first| (headers & !4095).wrapping_sub(first)))?;
    (low < high).then(|| Image {
        start: low.wrapping_add(bias),
        end: high.wrapping_add(bias),
        bias,
        align,
    })
}

/// The interpreter, which is loaded with its ELF header at `base`.
fn interpreter(base: u64) -> Option<Image> {
    let mut head = [0u64; 8];
    if base == 0 || !read_value(base, &mut head) {
        return None;
    }
    let (headers, count) = (head[4], head[7] & 0xffff);
    image(base + headers, count, Some(base))
}

/// Brings program, interpreter, stack and heap to their places. Not one instruction has run, so
/// nothing but the kernel's own table on the stack knows addresses.
pub fn arrange(launch: &Launch) -> Launch {
    let mut launch = *launch;
    if !on() {
        return launch;
    }
    let shift = layout_number() * STEP;
    let sp = launch.gpr[4];
    let maps = maps::read();
    let stack = maps.iter().find(|m| m.start <= sp && sp < m.end);
    let (Some(stack), Some(mut table)) = (stack, Table::read(sp)) else {
        crate::fatal_bug("the program's first stack is not as the kernel makes it")
    };
    let stack_top = STACK_TOP - shift;
    let top = stack_top - stack_gap();
    let stack = Part {
        start: stack.start,
        end: stack.end,
        to: stack_top - (stack.end - stack.start),
    };
    let mut parts = alloc::vec![stack];
    let count = table.get(AT_PHNUM).unwrap_or(0);
    let program = table.get(AT_PHDR).and_then(|at| image(at, count, None));
    // Programs for one fixed address stay there.
    if let Some(program) = program.as_ref().filter(|p| p.bias != 0) {
        parts.push(Part {
            start: program.start,
            end: program.end,
            to: (PROGRAM + shift) / program.align * program.align + (program.start - program.bias),
        });
    }
    if let Some(interpreter) = table.get(AT_BASE).and_then(interpreter) {
        let Image { start, end, .. } = interpreter;
        parts.push(Part {
            start,
            end,
            to: (top - (end - start)) / interpreter.align * interpreter.align,
        });
    }
    for m in maps.iter().filter(|m| m.path.starts_with(b"[v")) {
        // The vDSO's clock is not ours, so the program does not get to know of it (see
        // `deterministic`).
        if m.end <= STACK_TOP {
            // SAFETY: nobody has taken its address yet.
            unsafe { sc!(nr::MUNMAP, m.start, m.end - m.start) };
        }
    }
    exchange(&maps, &parts);
    let moved = |addr: u64| {
        let part = parts.iter().find(|p| p.start <= addr && addr < p.end);
        part.map_or(addr, |p| p.moved(addr))
    };
    for word in &mut table.words[1..] {
        *word = moved(*word);
    }
    launch.rip = moved(launch.rip);
    launch.gpr[4] = place_table(&mut table, moved(sp));
    let heap = program.map(|program| match program.bias {
        0 => program.end + layout_number() * HEAP_STEP,
        _ => moved(program.end - 1) + 1,
    });
    tell_kernel(&table, launch.gpr[4], heap, &parts);
    TOP.store(top, Ordering::Relaxed);
    let free = [(ENGINE_LIMIT, PM_BASE), (PM_BASE + PM_LEN, top)];
    *HOLES.lock() = without(free.to_vec(), &maps::read());
    launch
}

/// What the kernel leaves free for the stack.
fn stack_gap() -> u64 {
    const PRLIMIT64: u64 = 302;
    const RLIMIT_STACK: u64 = 3;
    const GUARD: u64 = 1 << 20;
    let mut limit = [0u64; 2];
    // SAFETY: reads a limit of this process into our own two words.
    unsafe { sc!(PRLIMIT64, 0, RLIMIT_STACK, 0, limit.as_mut_ptr()) };
    let gap = page_up(limit[0].min(STACK_GAP_MAX)) + GUARD;
    gap.clamp(STACK_GAP_MIN, STACK_GAP_MAX)
}

/// Moves all mappings of the parts.
fn exchange(maps: &[Mapping], parts: &[Part]) {
    let of = |m: &Mapping| parts.iter().find(|p| p.start <= m.start && m.end <= p.end);
    let mut moves: Vec<(u64, u64, u64)> = maps
        .iter()
        .filter_map(|m| of(m).map(|p| (m.start, m.end - m.start, p.moved(m.start))))
        .filter(|(start, _, to)| start != to)
        .collect();
    let occupied =
        |(_, len, to): &(u64, u64, u64)| maps.iter().any(|m| m.start < to + len && *to < m.end);
    if moves.iter().any(occupied) {
        let mut at = ASIDE;
        for (start, len, _) in &mut moves {
            relocate(*start, *len, at);
            *start = at;
            at += *len;
        }
    }
    for (start, len, to) in moves {
        relocate(start, len, to);
    }
}

fn relocate(start: u64, len: u64, to: u64) {
    let how = sys::MREMAP_MAYMOVE | sys::MREMAP_FIXED;
    // SAFETY: nobody has taken an address of this mapping yet, and nothing is where it goes.
    let result = unsafe { sc!(nr::MREMAP, start, len, len, how, to) };
    if result != to as i64 {
        crate::fatal_bug(&alloc::format!(
            "a part of the program cannot be moved from {start:#x} to {to:#x} (error {})",
            -result
        ));
    }
}

/// Puts the table back on the stack, whose other content has been moved already. Between table and
/// strings the kernel leaves a random gap, which this closes. Returns the stack pointer.
fn place_table(table: &mut Table, old: u64) -> u64 {
    let (lists, _) = table.words.split_at(table.auxiliary);
    let strings = lists[1..].iter().copied().chain(table.get(AT_EXECFN));
    let Some(strings) = strings.filter(|&at| at > old).min() else {
        return old;
    };
    let mut small: Vec<(u64, Vec<u8>)> = Vec::new();
    for key in [AT_PLATFORM, AT_BASE_PLATFORM, AT_RANDOM] {
        let Some(at) = table.get(key).filter(|&at| old < at && at < strings) else {
            continue;
        };
        let bytes = if key == AT_RANDOM {
            let mut bytes = alloc::vec![0u8; 16];
            sys::read_memory(Reach::untracked(at), &mut bytes);
            bytes
        } else {
            let mut text = crate::values::read_path(at).unwrap_or_default();
            text.push(0);
            text
        };
        small.push((key, bytes));
    }
    let zeros = [0u8; 512];
    let mut at = old;
    while at < strings {
        let n = (strings - at).min(zeros.len() as u64);
        sys::write_memory(Reach::untracked(at), &zeros[..n as usize]);
        at += n;
    }
    let mut at = strings & !15;
    for (key, bytes) in small {
        at = (at - bytes.len() as u64) & !15;
        sys::write_memory(Reach::untracked(at), &bytes);
        table.set(key, at);
    }
    at = (at - 8 * table.words.len() as u64) & !15;
    for (n, word) in table.words.iter().enumerate() {
        sys::write_memory(Reach::untracked(at + 8 * n as u64), &word.to_le_bytes());
    }
    at
}

/// Tells the kernel where things are now: `brk` begins at `heap`, and `/proc` shows arguments and
/// auxiliary vector.
fn tell_kernel(table: &Table, sp: u64, heap: Option<u64>, parts: &[Part]) {
    const PRCTL: u64 = 157;
    const PR_SET_MM: u64 = 35;
    const PR_SET_MM_MAP: u64 = 14;
    let stat = sys::read_file(c"/proc/self/stat");
    // The second field is a name in parentheses, in which anything may be.
    let rest = stat.iter().rposition(|&c| c == b')').unwrap_or(0);
    let fields: Vec<u64> = stat[rest..]
        .split(|&c| c == b' ')
        .skip(1)
        .map(|f| {
            f.iter().filter(|c| c.is_ascii_digit()).fold(0u64, |n, c| {
                n.wrapping_mul(10).wrapping_add(u64::from(c - b'0'))
            })
        })
        .collect();
    // `field(n)` as numbered in proc(5); the first here is number 3.
    let field = |n: usize| fields.get(n - 3).copied().unwrap_or(0);
    // An end may be the end of its part.
    let moved = |addr: u64| {
        let part = parts.iter().find(|p| p.start <= addr && addr <= p.end);
        part.map_or(addr, |p| p.moved(addr))
    };
    let brk = heap.unwrap_or(field(47));
    let auxiliary = &table.words[table.auxiliary..];
    // struct prctl_mm_map
    let map: [u64; 13] = [
        moved(field(26)), // start and end of code
        moved(field(27)),
        moved(field(45)), // of data
        moved(field(46)),
        brk,
        brk,
        sp,
        moved(field(48)), // of arguments
        moved(field(49)),
        moved(field(50)), // of the environment
        moved(field(51)),
        auxiliary.as_ptr() as u64,
        (8 * auxiliary.len()) as u64 | 0xffff_ffff << 32, // and no other executable
    ];
    // SAFETY: describes our own address space; the structure is ours.
    let result = unsafe { sc!(PRCTL, PR_SET_MM, PR_SET_MM_MAP, map.as_ptr(), 104) };
    if result != 0 {
        service::note(
            alloc::format!(
                "the kernel does not let the program's heap be placed (prctl PR_SET_MM_MAP, error {}): heap addresses do not repeat",
                -result
            )
            .as_bytes(),
        );
    }
}

// ---------------------------------------------------------------- mappings

/// Free stretches without what is there.
fn without(holes: Vec<(u64, u64)>, maps: &[Mapping]) -> Vec<(u64, u64)> {
    let mut free = Vec::new();
    for (mut start, end) in holes {
        for m in maps {
            if m.end <= start || m.start >= end {
                continue;
            }
            // They are sorted, so `start` only grows.
            if m.start > start {
                free.push((start, m.start));
            }
            start = m.end;
        }
        if start < end {
            free.push((start, end));
        }
    }
    free
}

/// Takes a stretch: the highest that is long enough, and of that the end, as the kernel does.
fn take(len: u64) -> Option<u64> {
    let mut holes = HOLES.lock();
    let i = holes.iter().rposition(|h| h.1 - h.0 >= len)?;
    holes[i].1 -= len;
    let at = holes[i].1;
    if holes[i].0 == holes[i].1 {
        holes.remove(i);
    }
    Some(at)
}

/// The program has no mapping in a range any more.
fn give_back(start: u64, end: u64) {
    let top = TOP.load(Ordering::Relaxed);
    for (low, high) in [(ENGINE_LIMIT, PM_BASE), (PM_BASE + PM_LEN, top)] {
        give_back_within(start.max(low), end.min(high));
    }
}

fn give_back_within(mut start: u64, mut end: u64) {
    if start >= end {
        return;
    }
    let mut holes = HOLES.lock();
    let first = holes.partition_point(|h| h.1 < start);
    let last = holes.partition_point(|h| h.0 <= end);
    if let Some(h) = holes[first..last].first() {
        start = start.min(h.0);
    }
    if let Some(h) = holes[first..last].last() {
        end = end.max(h.1);
    }
    holes.splice(first..last, [(start, end)]);
}

/// Something is where nothing was thought to be.
fn look_again() {
    let maps = maps::read();
    let mut holes = HOLES.lock();
    *holes = without(core::mem::take(&mut *holes), &maps);
}

fn raw(number: u64, a: &[u64; 6]) -> Option<i64> {
    // SAFETY: the program's own call.
    match unsafe { program_syscall(&[number, a[0], a[1], a[2], a[3], a[4], a[5]]) } {
        Outcome::Done(r) => Some(r),
        Outcome::Interrupted => None,
    }
}

fn failed(result: i64) -> bool {
    (-4095..0).contains(&result)
}

/// Attempts to find a free place before the kernel is asked.
const TRIES: u32 = 16;

/// Makes a call that needs `len` bytes somewhere, with the place that was found; it must not
/// replace anything. `None` in the place of a result: there is no room, or the kernel refuses for
/// another reason, and may say so itself.
fn somewhere(len: u64, mut call: impl FnMut(u64) -> Option<i64>) -> Option<Option<i64>> {
    for _ in 0..TRIES {
        let Some(at) = take(len) else { break };
        match call(at) {
            Some(result) if !failed(result) => return Some(Some(result)),
            Some(result) => {
                give_back(at, at + len);
                if result != -sys::EEXIST {
                    break;
                }
                look_again();
            }
            None => {
                give_back(at, at + len);
                return None;
            }
        }
    }
    Some(None)
}

/// Chooses the places of mappings.
pub const STAGE: Stage<ThreadContext> = Stage {
    name: "layout",
    takes: |number| on() && matches!(number, nr::MMAP | nr::MUNMAP | nr::MREMAP | nr::SHMAT),
    pass,
};

fn pass(ctx: &mut ThreadContext, call: &Call, rest: Rest<ThreadContext>) -> Option<i64> {
    match call.number {
        nr::MMAP => mmap(&call.args),
        nr::MUNMAP => munmap(&call.args),
        nr::MREMAP => mremap(&call.args),
        nr::SHMAT => shmat(&call.args),
        _ => rest.make(ctx, call),
    }
}

/// `mmap` of ordinary memory.
fn mmap(a: &[u64; 6]) -> Option<i64> {
    const MAP_32BIT: u64 = 0x40;
    const MAP_GROWSDOWN: u64 = 0x100;
    const MAP_HUGETLB: u64 = 0x4_0000;
    let [hint, len, prot, flags, fd, offset] = *a;
    let placed = sys::MAP_FIXED | sys::MAP_FIXED_NOREPLACE;
    if flags & (placed | MAP_32BIT | MAP_GROWSDOWN | MAP_HUGETLB) != 0 || len == 0 {
        return raw(nr::MMAP, a);
    }
    let at = |at: u64| {
        let flags = flags | sys::MAP_FIXED_NOREPLACE;
        raw(nr::MMAP, &[at, len, prot, flags, fd, offset])
    };
    if hint & !4095 != 0 {
        let result = at(hint & !4095)?;
        if !failed(result) {
            return Some(result);
        }
    }
    match somewhere(page_up(len), at)? {
        Some(result) => {
            crate::bulk::is_mapped(result as u64, page_up(len), prot, flags);
            Some(result)
        }
        None => raw(nr::MMAP, a),
    }
}

/// `munmap` of ordinary memory.
fn munmap(a: &[u64; 6]) -> Option<i64> {
    crate::bulk::before_unmap(a[0], page_up(a[1]));
    let result = raw(nr::MUNMAP, a)?;
    if result == 0 {
        give_back(a[0], a[0].saturating_add(page_up(a[1])));
    }
    Some(result)
}

/// Keeps a place until something is mapped over it.
fn reserve(at: u64, len: u64) -> i64 {
    // SAFETY: never replaces an existing mapping.
    unsafe { sys::map_anonymous(at, len, 0) }
}

/// `mremap` of ordinary memory.
fn mremap(a: &[u64; 6]) -> Option<i64> {
    const MREMAP_DONTUNMAP: u64 = 4;
    let [start, old, new, flags, _, _] = *a;
    let (old, new) = (page_up(old), page_up(new));
    let stays = flags & MREMAP_DONTUNMAP != 0;
    let moves = flags & sys::MREMAP_MAYMOVE != 0 && flags & sys::MREMAP_FIXED == 0;
    let leave = |result: i64| {
        if !failed(result) && result as u64 != start && !stays {
            give_back(start, start + old);
        }
        result
    };
    if !moves || new == 0 {
        return raw(nr::MREMAP, a).map(leave);
    }
    // An old length of 0 asks for a second mapping of the same memory.
    if !stays && old != 0 {
        let result = raw(nr::MREMAP, &[start, a[1], a[2], 0, 0, 0])?;
        if !failed(result) {
            if new < old {
                give_back(start + new, start + old);
            }
            return Some(result);
        }
        if result != -sys::ENOMEM {
            return Some(result);
        }
    }
    let placed = somewhere(new, |at| {
        let reserved = reserve(at, new);
        if failed(reserved) {
            return Some(reserved);
        }
        let fixed = flags | sys::MREMAP_FIXED;
        let result = raw(nr::MREMAP, &[start, a[1], a[2], fixed, at, 0]);
        if result.is_none_or(failed) {
            // SAFETY: our own reservation.
            unsafe { sc!(nr::MUNMAP, at, new) };
        }
        result
    })?;
    match placed {
        Some(result) => Some(leave(result)),
        None => raw(nr::MREMAP, a).map(leave),
    }
}

/// How long a segment of shared memory is, in whole pages.
pub fn segment_len(id: u64) -> Option<u64> {
    const SHMCTL: u64 = 31;
    const IPC_STAT: u64 = 2;
    let mut status = [0u64; 14];
    // SAFETY: our own buffer of the kernel's 112 bytes.
    let result = unsafe { sc!(SHMCTL, id, IPC_STAT, status.as_mut_ptr()) };
    // `shm_segsz` follows the 48 bytes of permissions.
    (result == 0).then(|| page_up(status[6]))
}

/// `shmat`
fn shmat(a: &[u64; 6]) -> Option<i64> {
    const SHM_REMAP: u64 = 0o40000;
    let wanted = (a[1] == 0).then(|| segment_len(a[0])).flatten();
    if let Some(len) = wanted.filter(|len| *len != 0) {
        let placed = somewhere(len, |at| {
            let reserved = reserve(at, len);
            if failed(reserved) {
                return Some(reserved);
            }
            let result = raw(nr::SHMAT, &[a[0], at, a[2] | SHM_REMAP, 0, 0, 0]);
            if result.is_none_or(failed) {
                // SAFETY: our own reservation.
                unsafe { sc!(nr::MUNMAP, at, len) };
            }
            result
        })?;
        if let Some(result) = placed {
            return Some(result);
        }
    }
    raw(nr::SHMAT, a)
}
