//! The program's heap in forked runs (`session.rs`): copied as a whole where runs write to most of
//! it.
//!
//! A fork copies no memory; each page that a run writes to is copied then, at the price of a fault.
//! A program that tidies up before it ends writes to all of its heap: closing a libpmemobj pool
//! means 25,000 calls of `free`, and 2,000 faults, which cost more than all the rest of a run. So
//! the first run says how much of its heap it has written to ([`count`]). If that is a good part of
//! it, then the kept process shows its heap to forks no more ([`Heap::prepare`]), and each run
//! begins with fresh memory in its place, in large pages, and a copy of what it held.
//!
//! Guarantee: the program finds the same bytes at the same addresses, in private memory of its own.
//! It could tell only by `/proc/self/maps`, where memory by which the heap grows has a line of its
//! own, and so have mappings that lie side by side; and if it moved two such mappings at once.
//!
//! A large page has to lie in large-page borders. Where the heap begins in the middle of one, and
//! for mappings that are smaller than one, a run has a large page at hand of which it gives parts
//! away: to the first pages of its heap, and to mappings of lengths that earlier runs have filled
//! ([`before_unmap`]). A part of a page costs a twentieth of what a fault costs.
//!
//! On kernels that have been told not to use large pages nothing is gained, and everything stays as
//! a fork makes it.

use crate::control::control;
use crate::learned;
use crate::maps;
use crate::pm::context_cache;
use crate::sys::{self, nr, sc};
use brownout_abi::{CONTROL_BASE, POOL_BASE};
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

const PAGE: u64 = 4096;
/// A large page.
pub const LARGE: u64 = 2 << 20;
/// Nothing smaller is worth it.
const LEAST: u64 = 2 * LARGE;
/// It pays if one page of so many is written to: a fault takes 2 µs, a page's share of a whole copy
/// a quarter of one.
const ONE_OF: u64 = 6;

/// If so much of the heap is behind its last whole large page, it gets one more.
const TAIL_LEAST: u64 = LARGE / 4;

const PRCTL: u64 = 157;
const PR_SET_THP_DISABLE: u64 = 41;
const PR_GET_THP_DISABLE: u64 = 42;
const MADV_DONTFORK: u64 = 10;
const MADV_HUGEPAGE: u64 = 14;
const MADV_POPULATE_WRITE: u64 = 23;

/// The pool has no more.
const POOL_MAX: u64 = 2 * LARGE;
const _: () = assert!(POOL_BASE.is_multiple_of(LARGE) && POOL_BASE + POOL_MAX <= CONTROL_BASE);
/// Smaller mappings are not worth a look.
const MAPPING_LEAST: u64 = 256 << 10;
/// So many are looked at when they go.
const LOOKED_MAX: u32 = 64;
/// The kernel has large pages.
static HAS_LARGE: AtomicBool = AtomicBool::new(false);
/// What is left of the pool begins here, and where it ends.
static POOL: AtomicU64 = AtomicU64::new(0);
static POOL_END: AtomicU64 = AtomicU64::new(0);

/// Where the heap is whose pages [`count`] counts.
static START: AtomicU64 = AtomicU64::new(0);
static LEN: AtomicU64 = AtomicU64::new(0);

/// The heap of the kept process.
pub struct Heap {
    start: u64,
    len: u64,
    /// A copy of it, once there is one; all children have it, too.
    copy: Option<Copy>,
    /// It was found out that no copy is wanted.
    is_settled: bool,
}

/// What the heap held, in memory that is not written to any more.
struct Copy {
    /// The mapping, and its length.
    map: (u64, u64),
    /// Where in it.
    at: u64,
}

impl Heap {
    /// As it is now. It stays so in this process.
    pub fn find() -> Heap {
        let heap = maps::read()
            .iter()
            .find(|m| m.path == b"[heap]" && m.read && m.write && !m.exec)
            .map_or((0, 0), |m| (m.start, m.end - m.start));
        let has_large = has_large_pages();
        HAS_LARGE.store(has_large, Ordering::Relaxed);
        START.store(heap.0, Ordering::Relaxed);
        LEN.store(heap.1, Ordering::Relaxed);
        Heap {
            start: heap.0,
            len: heap.1,
            copy: None,
            is_settled: heap.1 < LEAST || !has_large,
        }
    }

    /// Before a fork: decides, if a run has said by now what it needs.
    pub fn prepare(&mut self) {
        let written = control().kept_written.load(Ordering::Relaxed);
        if self.is_settled || written == 0 {
            return;
        }
        self.is_settled = true;
        if written * ONE_OF < self.len / PAGE {
            return;
        }
        let room = self.len.next_multiple_of(LARGE) + LARGE;
        // SAFETY: new memory, wherever there is room; it goes before a run goes on. The heap's
        // bytes are read by nobody but us meanwhile, and what is said about it concerns forks only.
        unsafe {
            let at = sc!(
                nr::MMAP,
                0u64,
                room,
                sys::PROT_READ | sys::PROT_WRITE,
                sys::MAP_PRIVATE | sys::MAP_ANONYMOUS,
                u64::MAX,
                0
            );
            if at < 0 {
                return;
            }
            // Whole large pages, so that a fork inherits them by some entries, and reads them
            // without a fault.
            let copy = (at as u64).next_multiple_of(LARGE);
            let from = self.start as *const u8;
            with_large_pages(|| {
                sc!(
                    nr::MADVISE,
                    copy,
                    self.len.next_multiple_of(LARGE),
                    MADV_HUGEPAGE
                );
                core::ptr::copy_nonoverlapping(from, copy as *mut u8, self.len as usize);
            });
            if sc!(nr::MADVISE, self.start, self.len, MADV_DONTFORK) < 0 {
                sc!(nr::MUNMAP, at, room);
                return;
            }
            let at = Copy {
                map: (at as u64, room),
                at: copy,
            };
            self.copy = Some(at);
        }
    }

    /// In a child, before it goes on: the heap is there.
    pub fn arrive(&self) {
        let filled = control().kept_filled.iter();
        let filled: u64 = filled.map(|len| len.load(Ordering::Relaxed)).sum();
        let Some(copy) = &self.copy else {
            make_pool(filled);
            return;
        };
        // SAFETY: the place of the heap is empty, because forks do not get it; the kernel still
        // counts it as the heap. The copy is as long, and nobody but this function uses it here.
        unsafe {
            // Up to the end of a large page, if nothing is there: the rest of it goes again.
            let end = self.start + self.len;
            let behind = end.next_multiple_of(LARGE) - end;
            let wants_more = LARGE - behind >= TAIL_LEAST;
            let mut more = if wants_more { behind } else { 0 };
            if !self.map(more) {
                more = 0;
                if !self.map(0) {
                    crate::fatal_unsupported("the heap of a forked run could not be made");
                }
            }
            let edges = edges(self.start, self.len + more);
            make_pool(filled + edges.iter().map(|edge| edge.1).sum::<u64>());
            with_large_pages(|| {
                sc!(nr::MADVISE, self.start, self.len + more, MADV_HUGEPAGE);
                // Where it begins and ends, pages are small.
                for (from, len) in edges {
                    if !give(from, len) {
                        // All at once, instead of by a fault each. Kernels before 5.14 do not know
                        // that.
                        sc!(nr::MADVISE, from, len, MADV_POPULATE_WRITE);
                    }
                }
                let to = self.start as *mut u8;
                core::ptr::copy_nonoverlapping(copy.at as *const u8, to, self.len as usize);
            });
            if more > 0 {
                sc!(nr::MUNMAP, end, more);
            }
            sc!(nr::MUNMAP, copy.map.0, copy.map.1);
        }
    }

    /// Maps fresh memory in the place of the heap, and so much behind it. False if something is
    /// there.
    ///
    /// # Safety
    ///
    /// In a fork that has not got the heap, and has not used it yet.
    unsafe fn map(&self, more: u64) -> bool {
        // SAFETY: as the caller says. What is there stays, and then nothing is mapped.
        let at = unsafe {
            sc!(
                nr::MMAP,
                self.start,
                self.len + more,
                sys::PROT_READ | sys::PROT_WRITE,
                sys::MAP_PRIVATE | sys::MAP_ANONYMOUS | sys::MAP_FIXED_NOREPLACE,
                u64::MAX,
                0
            )
        };
        if at as u64 != self.start && at > 0 {
            // A kernel that does not know the flag has put it elsewhere.
            // SAFETY: just mapped, and nobody's.
            unsafe { sc!(nr::MUNMAP, at, self.len + more) };
        }
        at as u64 == self.start
    }
}

/// In a child, before it goes on: has large pages ready for so much.
fn make_pool(wanted: u64) {
    if wanted < MAPPING_LEAST || !are_there_large_pages() {
        return;
    }
    let len = (wanted + context_cache::LEN)
        .next_multiple_of(LARGE)
        .min(POOL_MAX);
    // SAFETY: a place of our own, where nothing is yet.
    unsafe {
        let prot = sys::PROT_READ | sys::PROT_WRITE;
        if sys::map_anonymous(POOL_BASE, len, prot) != POOL_BASE as i64 {
            return;
        }
        with_large_pages(|| {
            sc!(nr::MADVISE, POOL_BASE, len, MADV_HUGEPAGE);
            for page in 0..len / LARGE {
                ((POOL_BASE + page * LARGE) as *mut u8).write_volatile(0);
            }
        });
    }
    POOL_END.store(POOL_BASE + len, Ordering::Relaxed);
    POOL.store(POOL_BASE, Ordering::Relaxed);
}

/// Memory of the pool, all zeros, for ever.
pub fn take(len: u64) -> Option<u64> {
    let end = POOL_END.load(Ordering::Relaxed);
    let rest = |at: u64| (at != 0 && at + len <= end).then_some(at + len);
    POOL.fetch_update(Ordering::Relaxed, Ordering::Relaxed, rest)
        .ok()
}

/// Puts memory of the pool in the place of a mapping that has none yet. False if there is not
/// enough.
fn give(to: u64, len: u64) -> bool {
    let Some(at) = (len > 0).then(|| take(len)).flatten() else {
        return false;
    };
    let how = sys::MREMAP_MAYMOVE | sys::MREMAP_FIXED;
    // SAFETY: a part of ours that nobody else gets, and a mapping that nobody has used. If it
    // cannot be moved, its place may be empty: then it is made again.
    unsafe {
        let moved = sc!(nr::MREMAP, at, len, len, how, to) == to as i64;
        if !moved {
            let prot = sys::PROT_READ | sys::PROT_WRITE;
            let flags = sys::MAP_PRIVATE | sys::MAP_ANONYMOUS | sys::MAP_FIXED;
            sc!(nr::MMAP, to, len, prot, flags, u64::MAX, 0);
        }
        moved
    }
}

/// The program has made a mapping.
pub fn is_mapped(at: u64, len: u64, prot: u64, flags: u64) {
    let is_plain =
        prot == sys::PROT_READ | sys::PROT_WRITE && flags == sys::MAP_PRIVATE | sys::MAP_ANONYMOUS;
    if is_plain && len >= MAPPING_LEAST && learned::is_run() && is_filled(len) {
        give(at, len);
    }
}

/// Whether runs have filled mappings of this length.
fn is_filled(len: u64) -> bool {
    let filled = control().kept_filled.iter();
    filled
        .map(|known| known.load(Ordering::Relaxed))
        .any(|known| known == len)
}

/// The program is about to remove a mapping: whether it has filled it.
pub fn before_unmap(at: u64, len: u64) {
    if !(MAPPING_LEAST..LARGE).contains(&len) || !learned::is_run() || is_filled(len) {
        return;
    }
    let c = control();
    if c.kept_looked.fetch_add(1, Ordering::Relaxed) >= LOOKED_MAX {
        c.kept_looked.store(LOOKED_MAX, Ordering::Relaxed);
        return;
    }
    const MINCORE: u64 = 27;
    let mut pages = [0u8; (LARGE / PAGE) as usize];
    // SAFETY: our own buffer, a byte for each page.
    let looked = unsafe { sc!(MINCORE, at, len, pages.as_mut_ptr()) };
    let there = pages.iter().filter(|page| **page & 1 != 0).count() as u64;
    if looked == 0 && there >= len / PAGE * 3 / 4 {
        let free = c
            .kept_filled
            .iter()
            .find(|known| known.load(Ordering::Relaxed) == 0);
        if let Some(free) = free {
            free.store(len, Ordering::Relaxed);
        }
    }
}

/// In a forked child of a run: what is left of the pool is not used any more.
pub fn reset_after_fork() {
    POOL.store(0, Ordering::Relaxed);
}

/// The parts of a stretch of memory that are in no whole large page.
fn edges(start: u64, len: u64) -> [(u64, u64); 2] {
    let end = start + len;
    let first = start.next_multiple_of(LARGE).min(end);
    let last = (end / LARGE * LARGE).max(first);
    [(start, first - start), (last, end - last)]
}

/// Does something while this thread may get large pages, whatever the program has said.
pub fn with_large_pages(does: impl FnOnce()) {
    // SAFETY: numbers only.
    unsafe {
        let is_off = sc!(PRCTL, PR_GET_THP_DISABLE, 0u64, 0u64, 0u64, 0u64);
        sc!(PRCTL, PR_SET_THP_DISABLE, 0u64, 0u64, 0u64, 0u64);
        does();
        sc!(PRCTL, PR_SET_THP_DISABLE, is_off.max(0), 0u64, 0u64, 0u64);
    }
}

fn has_large_pages() -> bool {
    let setting = sys::read_file(c"/sys/kernel/mm/transparent_hugepage/enabled");
    !setting.is_empty() && !setting.windows(7).any(|word| word == b"[never]")
}

/// Whether the kernel has large pages.
pub fn are_there_large_pages() -> bool {
    HAS_LARGE.load(Ordering::Relaxed)
}

/// A process ends. If it is a run, the next one may like to know how much memory it took.
pub fn ends() {
    if learned::is_run() {
        count();
    }
}

/// At the end of a run: how many pages of the heap are its own by now, told to the kept process.
/// Once is enough.
fn count() {
    let (start, len) = (START.load(Ordering::Relaxed), LEN.load(Ordering::Relaxed));
    let told = &control().kept_written;
    if len < LEAST || told.load(Ordering::Relaxed) != 0 {
        return;
    }
    /// Nobody else has this page mapped.
    const EXCLUSIVE: u64 = 1 << 56;
    let mut own = 0;
    let mut entries = [0u64; 512];
    // SAFETY: a file of the kernel's is read into our own words.
    unsafe {
        let path = c"/proc/self/pagemap";
        let fd = sc!(nr::OPEN, path.as_ptr(), 0x8_0000u64 /* O_CLOEXEC */);
        if fd < 0 {
            return;
        }
        let mut page = 0;
        while page < len / PAGE {
            let wanted = (len / PAGE - page).min(512);
            let from = (start / PAGE + page) * 8;
            let n = sc!(nr::PREAD64, fd, entries.as_mut_ptr(), wanted * 8, from);
            if n < 8 {
                break;
            }
            let got = &entries[..n as usize / 8];
            own += got.iter().filter(|e| **e & EXCLUSIVE != 0).count() as u64;
            page += got.len() as u64;
        }
        sc!(nr::CLOSE, fd);
    }
    told.store(own.max(1), Ordering::Relaxed);
}
