//! Code-cache memory: arenas near the code that they hold translations of.
//!
//! An arena lies within reach of RIP-relative operands of its code. It has a hot part (block
//! bodies, laid out in the order of translation) and a cold part (exit stubs, constants,
//! tracked-access tails). Both only grow: code is never overwritten, because another thread may be
//! in it; dead blocks are unlinked.

use crate::address::{CacheAddr, ProgramAddr};
use crate::sys::{self, sc};
use alloc::vec::Vec;

/// Address space of one arena. 256 MiB holds the translation of about 100 MiB of program code.
const ARENA_LEN: u64 = 256 << 20;
/// What even a small program fills.
const FIRST_USE: u64 = 128 << 10;
/// A huge page. Code in them needs few entries of the instruction TLB.
const HUGE: u64 = 2 << 20;
/// Share of the cold part.
const COLD_LEN: u64 = 96 << 20;
/// How far an arena may be from its code: 2 GiB less room for the operand's own distance.
const REACH: u64 = 0x6800_0000;

pub struct Arena {
    pub base: CacheAddr,
    pub hot: CacheAddr,
    pub cold: CacheAddr,
    /// (start of code, block), ascending.
    pub hot_index: Vec<(CacheAddr, u32)>,
    pub cold_index: Vec<(CacheAddr, u32)>,
    /// How much of the hot part has huge pages.
    huge: u64,
}

impl Arena {
    pub fn end(&self) -> CacheAddr {
        self.base + ARENA_LEN
    }
    pub fn hot_end(&self) -> CacheAddr {
        self.base + (ARENA_LEN - COLD_LEN)
    }
    pub fn contains(&self, addr: CacheAddr) -> bool {
        addr >= self.base && addr < self.end()
    }
    fn serves(&self, pc: ProgramAddr) -> bool {
        pc.get().abs_diff(self.base.get()) < REACH
            && pc.get().abs_diff(self.end().get()) < REACH
            && self.hot + 0x1_0000 < self.hot_end()
            && self.cold + 0x1_0000 < self.end()
    }
    /// Called after the hot part has grown: programs with much code get huge pages for it. Small
    /// ones do not, because clearing one takes longer than they run.
    pub fn grown(&mut self) {
        const MADV_HUGEPAGE: u64 = 14;
        const MADV_COLLAPSE: u64 = 25;
        let used = self.hot - self.base;
        if self.huge == 0 && used > HUGE / 4 {
            self.huge = HUGE;
            // What is there already is moved, which other threads do not notice; kernels without
            // this say no. SAFETY: our own memory; contents stay.
            unsafe { sc!(sys::nr::MADVISE, self.base.get(), HUGE, MADV_COLLAPSE) };
        }
        if self.huge != 0 && used > self.huge - HUGE / 4 {
            // SAFETY: our own memory.
            unsafe {
                sc!(
                    sys::nr::MADVISE,
                    (self.base + self.huge).get(),
                    HUGE,
                    MADV_HUGEPAGE
                )
            };
            self.huge += HUGE;
        }
    }

    /// The block whose code holds `addr`.
    pub fn block_at(&self, addr: CacheAddr) -> Option<u32> {
        let index = if addr < self.hot_end() {
            &self.hot_index
        } else {
            &self.cold_index
        };
        let i = index.partition_point(|e| e.0 <= addr);
        (i > 0).then(|| index[i - 1].1)
    }
}

/// All arenas of the process.
pub struct Arenas {
    pub list: Vec<Arena>,
}

impl Arenas {
    pub const fn new() -> Self {
        Arenas { list: Vec::new() }
    }

    pub fn find(&self, addr: CacheAddr) -> Option<&Arena> {
        self.list.iter().find(|a| a.contains(addr))
    }

    /// The arena for code at `pc`, made if there is none.
    pub fn for_code(&mut self, pc: ProgramAddr) -> usize {
        if let Some(i) = self.list.iter().position(|a| a.serves(pc)) {
            return i;
        }
        let base = place(pc.get());
        // SAFETY: `place` found the range free; NOREPLACE guards against a race with the program.
        let got = unsafe {
            sys::map_anonymous(
                base,
                ARENA_LEN,
                sys::PROT_READ | sys::PROT_WRITE | sys::PROT_EXEC,
            )
        };
        if got != base as i64 {
            crate::fatal_unsupported(
                "no room for translated code near the program's code (address-space limit?)",
            );
        }
        // SAFETY: our fresh mapping. Core dumps of the program need not carry it.
        unsafe {
            sc!(
                sys::nr::MADVISE,
                base,
                ARENA_LEN,
                16 /* MADV_DONTDUMP */
            )
        };
        // SAFETY: as above.
        unsafe {
            sys::populate(base, FIRST_USE);
            sys::populate(base + ARENA_LEN - COLD_LEN, FIRST_USE / 2);
        }
        self.list.push(Arena {
            base: CacheAddr::new(base),
            hot: CacheAddr::new(base),
            cold: CacheAddr::new(base + ARENA_LEN - COLD_LEN),
            hot_index: Vec::new(),
            cold_index: Vec::new(),
            huge: 0,
        });
        self.list.len() - 1
    }
}

/// A free range in reach of `pc`, away from where the kernel and `brk` grow: as low as possible,
/// or, for code near address zero, as high as possible.
fn place(pc: u64) -> u64 {
    let maps = crate::maps::read();
    let page = |a: u64| a & !(HUGE - 1);
    let free = |base: u64| {
        maps.iter()
            .all(|m| m.end <= base || m.start >= base + ARENA_LEN)
    };
    let low = page(pc.saturating_sub(REACH - 0x100_0000)) + HUGE;
    let high = page(pc + REACH - ARENA_LEN - 0x100_0000);
    let step = 16 << 20;
    if pc > REACH + 0x1000_0000 {
        let mut base = low;
        while base <= high {
            if free(base) {
                return base;
            }
            base += step;
        }
    } else {
        let mut base = high;
        while base >= 0x100_0000 {
            if free(base) {
                return base;
            }
            base -= step;
        }
    }
    crate::fatal_unsupported("no free address space near the program's code")
}
