//! Where threads come when they leave the code cache, and the table of all blocks.
//!
//! Invariants (tag `CACHE`):
//! - CACHE-1: code that was ever reachable is never overwritten, only its patchable words are, each with one
//!   atomic store that lies in one cache line.
//! - CACHE-2: a dead block is reached by no link, no table of this process, and its prefix fails.
//! - CACHE-3: all of [`Engine`] is behind its lock, which no thread holds while it runs in the cache.

use crate::cache::Arenas;
use crate::context::ThreadContext;
use crate::emit::{Emitter, in_reach, rel32};
use crate::maps::CodeRanges;
use crate::sync::SpinLock;
use crate::translate::{self, Translated};
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use brownout_abi::learned;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Reasons for leaving the cache: the low 8 bits of `exit_arg`; the rest is the payload.
pub mod exit {
    /// A direct branch that is not linked yet; payload: exit number.
    pub const LINK: u64 = 0;
    /// An indirect branch whose target (`ctx.target`) is in no table.
    pub const INDIRECT: u64 = 1;
    /// A `syscall` instruction at `ctx.rip`.
    pub const SYSCALL: u64 = 2;
    /// A Valgrind client request at `ctx.rip`.
    pub const REQUEST: u64 = 3;
    /// An instruction at `ctx.rip` that the engine performs; payload: its length.
    pub const EMULATE: u64 = 4;
    /// A tracked access happened; payload: its site; the record is still to be appended.
    pub const LOG: u64 = 5;
    /// A tracked access of irregular form; payload: its site.
    pub const SITE_BEGIN: u64 = 6;
    /// The redirected instruction of the irregular form was executed; payload: its site.
    pub const SITE_END: u64 = 7;
    /// The ring is locked by another thread; payload: site. Retry from the instruction's start.
    pub const LOCKED: u64 = 8;
    /// An instruction that cannot be supported; `ctx.rip`.
    pub const UNSUPPORTED: u64 = 9;
    /// The instruction at `ctx.rip` runs over the end of executable memory; payload: after how many bytes.
    pub const FETCH_FAULT: u64 = 11;
    /// As [`LOG`], but the ring is locked by another thread.
    pub const LOG_WAITING: u64 = 12;
    /// The code of a self-checking block changed; `ctx.rip` = its start.
    pub const CODE_CHANGED: u64 = 10;
}

pub type BlockId = u32;
pub const NO_BLOCK: BlockId = u32::MAX;

/// What a stretch of emitted code does to registers until it is through.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum InsnClass {
    /// Copied or rewritten in one instruction: registers are exact at a fault.
    Plain,
    /// Branch sequence: rcx and rdx are in their branch slots.
    Branch,
    /// Check whether an access is tracked: rcx is in its site slot.
    Check,
    /// Operand out of reach, or request: rcx and `scratch` are in their site slots.
    Site { scratch: u8 },
}

/// One program instruction in a block.
#[derive(Clone, Copy)]
pub struct InsnMap {
    /// Offset of its code from the block's body.
    pub code: u16,
    /// Offset of its address from the block's.
    pub pc: u16,
    pub class: InsnClass,
}

pub struct Block {
    pub pc: u64,
    pub pc_end: u64,
    /// As [`Exit::returns_to`] of the exits that lead here.
    pub returns_to: u64,
    /// Where the tag check is, 0 if there is none yet.
    pub prefix: u64,
    pub body: u64,
    pub code_end: u64,
    pub insns: Box<[InsnMap]>,
    /// Exits of this block: a run of numbers.
    pub exits: core::ops::Range<u32>,
    /// Exits of other blocks that are linked to this one.
    pub incoming: Vec<u32>,
    pub sites: Vec<&'static crate::pm::site::Site>,
    pub dead: bool,
}

/// How a thread comes to a block from outside.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Arrival {
    Branch,
    Indirect,
    /// Back from the engine, in the middle of straight code perhaps: after a fault, a signal, a request.
    Resume,
}

pub struct Exit {
    pub target: u64,
    /// Not 0: what the top of the stack holds for certain at the target, because a call has just pushed it and nothing was
    /// written since. There the target has a block of its own, which returns by a direct jump.
    pub returns_to: u64,
    /// Address of the branch's rel32.
    pub patch: u64,
    pub stub: u64,
    pub linked: BlockId,
}

/// Open-addressed table from program address to prefix, read by `bo_miss` without a lock.
#[repr(C)]
pub struct LookupTable {
    entries: AtomicU64,
    shift: AtomicU64,
}
pub static LOOKUP: LookupTable = LookupTable {
    entries: AtomicU64::new(0),
    shift: AtomicU64::new(64),
};
const PROBES: u64 = 4;

pub struct Engine {
    pub arenas: Arenas,
    pub blocks: Vec<Block>,
    pub exits: Vec<Exit>,
    /// Program address to block, live ones only.
    pub by_pc: hashbrown::HashMap<u64, BlockId, PcHash>,
    /// Where threads have only ever resumed: no branch leads there, and other blocks go on through it.
    resumed: hashbrown::HashSet<u64, PcHash>,
    /// Program address and return address to the block for that return address, live ones only.
    by_return: hashbrown::HashMap<(u64, u64), BlockId, PcHash>,
    /// Whether the function at an address is worth such blocks.
    simple: hashbrown::HashMap<u64, bool, PcHash>,
    /// Page number to the blocks with code on it.
    pub by_page: BTreeMap<u64, Vec<BlockId>>,
    pub code: CodeRanges,
    /// Writable code pages that are write-protected because of translations.
    pub protected: alloc::collections::BTreeSet<u64>,
    /// How often each writable code page was written after translation.
    pub page_writes: BTreeMap<u64, u32>,
}

/// Program addresses are already well spread: one multiplication.
#[derive(Clone, Copy, Default)]
pub struct PcHash;
pub struct PcHasher(u64);
impl core::hash::BuildHasher for PcHash {
    type Hasher = PcHasher;
    fn build_hasher(&self) -> PcHasher {
        PcHasher(0)
    }
}
impl core::hash::Hasher for PcHasher {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, _: &[u8]) {}
    fn write_u32(&mut self, v: u32) {
        self.write_u64(v as u64);
    }
    fn write_u64(&mut self, v: u64) {
        self.0 = (self.0 ^ v)
            .wrapping_mul(0x9E37_79B9_7F4A_7C15)
            .rotate_left(20);
    }
}

pub static ENGINE: SpinLock<Engine> = SpinLock::new(Engine {
    arenas: Arenas::new(),
    blocks: Vec::new(),
    exits: Vec::new(),
    by_pc: hashbrown::HashMap::with_hasher(PcHash),
    resumed: hashbrown::HashSet::with_hasher(PcHash),
    by_return: hashbrown::HashMap::with_hasher(PcHash),
    simple: hashbrown::HashMap::with_hasher(PcHash),
    by_page: BTreeMap::new(),
    code: CodeRanges::new(),
    protected: alloc::collections::BTreeSet::new(),
    page_writes: BTreeMap::new(),
});

/// How many writes to a page with both code and data are answered by write protection, before its
/// blocks check themselves instead.
const PAGE_WRITES_MAX: u32 = 12;

impl Engine {
    /// The block for `pc`, translated now if need be. `None`: the program may not execute there.
    pub fn block(&mut self, pc: u64, arrival: Arrival) -> Option<BlockId> {
        let indirect = arrival == Arrival::Indirect;
        let id = match self.by_pc.get(&pc) {
            Some(&id) => id,
            None => {
                if arrival == Arrival::Resume {
                    self.resumed.insert(pc);
                }
                let id = self.translate(pc, indirect, 0)?;
                let what = match arrival {
                    Arrival::Branch => learned::BLOCK,
                    Arrival::Indirect => learned::INDIRECT,
                    Arrival::Resume => learned::RESUMED,
                };
                crate::session::found(what | pc, 0);
                id
            }
        };
        if arrival != Arrival::Resume {
            self.resumed.remove(&pc);
        }
        if indirect && self.blocks[id as usize].prefix == 0 {
            self.add_prefix(id);
            crate::session::found(learned::INDIRECT | pc, 0);
        }
        Some(id)
    }

    /// The block that exit `n` leads to. `None`: the program may not execute there.
    fn block_for_exit(&mut self, n: u32) -> Option<BlockId> {
        let x = &self.exits[n as usize];
        let (pc, returns_to) = (x.target, x.returns_to);
        if returns_to != 0 {
            if let Some(&id) = self.by_return.get(&(pc, returns_to)) {
                return Some(id);
            }
            if self.is_simple(pc) {
                crate::session::found(learned::BLOCK | pc, returns_to);
                return self.translate(pc, false, returns_to);
            }
            self.exits[n as usize].returns_to = 0;
        }
        self.block(pc, Arrival::Branch)
    }

    /// Whether calls of the function at `pc` get blocks for their return addresses.
    fn is_simple(&mut self, pc: u64) -> bool {
        // Blocks of writable code have their own worries.
        if self.code.find(pc).is_none_or(|range| range.writable) {
            return false;
        }
        if let Some(&simple) = self.simple.get(&pc) {
            return simple;
        }
        let simple = translate::is_simple_function(pc, self.code.contiguous_end(pc));
        self.simple.insert(pc, simple);
        simple
    }

    fn translate(&mut self, pc: u64, indirect: bool, returns_to: u64) -> Option<BlockId> {
        if self.code.find(pc).is_none() {
            self.refresh_code();
        }
        let range = self.code.find(pc)?;
        let limit = self.code.contiguous_end(pc);
        let page = pc >> 12;
        let often_written = self
            .page_writes
            .get(&page)
            .is_some_and(|&n| n > PAGE_WRITES_MAX);
        let self_check = range.writable && (range.shared || often_written);
        // Protect before reading the code, so that no write is missed in between.
        if range.writable && !self_check {
            self.protect(page);
        }
        let id = self.blocks.len() as BlockId;
        let arena_index = self.arenas.for_code(pc);
        let first_exit = self.exits.len() as u32;
        // A block stays within its first page if the page is writable: one protection then covers it.
        let limit = if range.writable {
            limit.min((page + 1) << 12).max(pc + 1)
        } else {
            limit
        };
        let reach = if range.writable {
            self.code.contiguous_end(pc)
        } else {
            limit
        };
        let (t, hot, cold, last_page) = loop {
            let arena = &self.arenas.list[arena_index];
            // SAFETY: the arena hands out its unused part to this one emitter each; the lock is held.
            let (mut hot, mut cold) = unsafe {
                (
                    Emitter::new(arena.hot, arena.hot_end()),
                    Emitter::new(arena.cold, arena.end()),
                )
            };
            let t: Translated = translate::block(
                &mut hot,
                &mut cold,
                &translate::Request {
                    pc,
                    limit,
                    readable: reach,
                    prefix: indirect,
                    writable: range.writable,
                    self_check,
                    returns_to,
                    first_exit,
                    known: &self.by_pc,
                    resumed: &self.resumed,
                },
            );
            let last_page = (t.pc_end - 1) >> 12;
            // The last instruction may go on in the next page: once more, now that it is protected.
            if range.writable && !self_check && last_page != page && self.protect(last_page) {
                continue;
            }
            crate::pm::code_is_read(pc, t.pc_end);
            break (t, hot, cold, last_page);
        };
        let arena = &mut self.arenas.list[arena_index];
        arena.hot_index.push((arena.hot, id));
        arena.cold_index.push((arena.cold, id));
        arena.hot = (hot.at + 15) & !15;
        arena.cold = (cold.at + 7) & !7;
        arena.grown();
        self.exits.extend(t.exits);
        for p in page..=last_page {
            self.by_page.entry(p).or_default().push(id);
        }
        if returns_to == 0 {
            self.by_pc.insert(pc, id);
        } else {
            self.by_return.insert((pc, returns_to), id);
        }
        self.blocks.push(Block {
            pc,
            pc_end: t.pc_end,
            returns_to,
            prefix: t.prefix,
            body: t.body,
            code_end: hot.at,
            insns: t.insns,
            exits: first_exit..self.exits.len() as u32,
            incoming: Vec::new(),
            sites: t.sites,
            dead: false,
        });
        if t.prefix != 0 {
            self.publish(pc, t.prefix);
        }
        for e in first_exit..self.exits.len() as u32 {
            self.link_if_translated(e);
        }
        Some(id)
    }

    /// Links an exit at once if what it leads to is translated already.
    fn link_if_translated(&mut self, e: u32) {
        let (target, mut expected) = {
            let x = &self.exits[e as usize];
            (x.target, x.returns_to)
        };
        // Not every call: a target that has not run yet is judged when it is first called.
        if expected != 0 && self.by_pc.contains_key(&target) && !self.is_simple(target) {
            expected = 0;
            self.exits[e as usize].returns_to = 0;
        }
        let to = match expected {
            0 => self.by_pc.get(&target),
            _ => self.by_return.get(&(target, expected)),
        };
        if let Some(&to) = to {
            self.link(e, to);
        }
    }

    /// Translates what a run has translated, if this process has the same code there.
    pub fn learn(&mut self, pc: u64, arrival: Arrival, returns_to: u64) {
        // Writable code has to be looked at when it is executed.
        if self.code.find(pc).is_none_or(|range| range.writable) {
            return;
        }
        if returns_to == 0 {
            self.block(pc, arrival);
        } else if !self.by_return.contains_key(&(pc, returns_to)) && self.is_simple(pc) {
            self.translate(pc, false, returns_to);
        }
    }

    /// Links all exits whose targets are translated.
    pub fn link_all(&mut self) {
        for id in 0..self.blocks.len() {
            // What leaves a dead block is not kept up to date.
            if self.blocks[id].dead {
                continue;
            }
            for e in self.blocks[id].exits.clone() {
                if self.exits[e as usize].linked == NO_BLOCK {
                    self.link_if_translated(e);
                }
            }
        }
    }

    /// An out-of-line prefix for a block that was first reached directly.
    fn add_prefix(&mut self, id: BlockId) {
        let (pc, body) = (self.blocks[id as usize].pc, self.blocks[id as usize].body);
        let arena = self
            .arenas
            .list
            .iter_mut()
            .find(|a| a.contains(body))
            .expect("block in an arena");
        // SAFETY: unused part of the cold area, under the lock.
        let mut cold = unsafe { Emitter::new(arena.cold, arena.end()) };
        let prefix = translate::prefix(&mut cold, pc);
        cold.jmp(body);
        arena.cold_index.push((arena.cold, id));
        arena.cold = (cold.at + 7) & !7;
        self.blocks[id as usize].prefix = prefix;
        self.publish(pc, prefix);
    }

    /// Reads the kernel's list: the program may have got code in ways that we did not see.
    pub fn refresh_code(&mut self) {
        for m in crate::maps::read() {
            if m.exec && !is_engine(m.start) && self.arenas.find(m.start).is_none() {
                let writable = m.write
                    || self
                        .protected
                        .range(m.start >> 12..m.end >> 12)
                        .next()
                        .is_some();
                self.code.insert(crate::maps::CodeRange {
                    start: m.start,
                    end: m.end,
                    writable: writable || m.shared && !m.path.starts_with(b"/usr/"),
                    shared: m.shared,
                });
            }
        }
    }

    /// Lets writes to a page fault. False if they do already.
    fn protect(&mut self, page: u64) -> bool {
        let is_new = self.protected.insert(page);
        if is_new {
            // SAFETY: the page is the program's code; it stays readable and executable.
            unsafe {
                crate::sys::sc!(
                    crate::sys::nr::MPROTECT,
                    page << 12,
                    4096,
                    crate::sys::PROT_READ | crate::sys::PROT_EXEC
                )
            };
        }
        is_new
    }

    /// A write to a protected code page: true if that was the reason of the fault.
    pub fn unprotect(&mut self, addr: u64) -> bool {
        let page = addr >> 12;
        if !self.protected.remove(&page) {
            // Another thread's write may have lifted the protection since this one faulted.
            return self
                .code
                .find(addr)
                .is_some_and(|r| r.writable && !r.shared);
        }
        *self.page_writes.entry(page).or_default() += 1;
        self.invalidate(page << 12, (page + 1) << 12);
        // SAFETY: gives the program back the protection that it asked for.
        unsafe {
            crate::sys::sc!(
                crate::sys::nr::MPROTECT,
                page << 12,
                4096,
                crate::sys::PROT_READ | crate::sys::PROT_WRITE | crate::sys::PROT_EXEC
            )
        };
        true
    }

    /// Lifts all write protection of ours. False if there was none.
    pub fn unprotect_all(&mut self) -> bool {
        let pages: Vec<u64> = self.protected.iter().copied().collect();
        for page in &pages {
            self.unprotect(page << 12);
        }
        !pages.is_empty()
    }

    /// The program changed or removed code in `start..end`.
    pub fn invalidate(&mut self, start: u64, end: u64) {
        let pages: Vec<u64> = self
            .by_page
            .range(start >> 12..(end + 4095) >> 12)
            .map(|(p, _)| *p)
            .collect();
        for page in pages {
            let ids = core::mem::take(self.by_page.get_mut(&page).expect("listed"));
            let mut keep = Vec::new();
            for id in ids {
                let b = &self.blocks[id as usize];
                if b.dead {
                    continue;
                }
                if b.pc < end && b.pc_end > start {
                    self.kill(id)
                } else {
                    keep.push(id)
                }
            }
            if keep.is_empty() {
                self.by_page.remove(&page);
            } else {
                self.by_page.insert(page, keep);
            }
        }
    }

    /// Makes a block unreachable (CACHE-2). Threads inside it go on to its end.
    pub fn kill(&mut self, id: BlockId) {
        let b = &mut self.blocks[id as usize];
        if b.dead {
            return;
        }
        b.dead = true;
        let (pc, prefix, returns_to) = (b.pc, b.prefix, b.returns_to);
        for e in core::mem::take(&mut b.incoming) {
            let x = &mut self.exits[e as usize];
            if x.linked == id {
                x.linked = NO_BLOCK;
                patch(x.patch, x.stub);
            }
        }
        for e in self.blocks[id as usize].exits.clone() {
            // Threads still inside must not follow links that nobody keeps up to date.
            let x = &mut self.exits[e as usize];
            let to = core::mem::replace(&mut x.linked, NO_BLOCK);
            if to != NO_BLOCK {
                patch(x.patch, x.stub);
                self.blocks[to as usize].incoming.retain(|&i| i != e);
            }
        }
        if returns_to == 0 {
            self.by_pc.remove(&pc);
        } else {
            self.by_return.remove(&(pc, returns_to));
        }
        if prefix != 0 {
            self.publish(pc, 0);
            translate::spoil_prefix(prefix);
        }
    }

    fn link(&mut self, e: u32, to: BlockId) {
        self.resumed.remove(&self.blocks[to as usize].pc);
        let body = self.blocks[to as usize].body;
        let x = &self.exits[e as usize];
        let mut target = body;
        if !in_reach(x.patch + 4, body) {
            let arena = self
                .arenas
                .list
                .iter_mut()
                .find(|a| a.contains(x.patch))
                .expect("exit in an arena");
            // SAFETY: unused part of the cold area, under the lock.
            let mut cold = unsafe { Emitter::new(arena.cold, arena.end()) };
            target = cold.at;
            cold.bytes(&[0xFF, 0x25, 0, 0, 0, 0]); // jmp [rip+0]
            cold.u64(body);
            // Attributed to the target: a fault cannot happen here, and a step ends in it.
            arena.cold_index.push((arena.cold, to));
            arena.cold = (cold.at + 7) & !7;
        }
        let x = &mut self.exits[e as usize];
        x.linked = to;
        patch(x.patch, target);
        self.blocks[to as usize].incoming.push(e);
    }

    /// Makes `pc` → `prefix` visible to `bo_miss`.
    fn publish(&mut self, pc: u64, prefix: u64) {
        loop {
            let table = LOOKUP.entries.load(Ordering::Relaxed);
            let shift = LOOKUP.shift.load(Ordering::Relaxed);
            {
                let start = pc.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> shift;
                let mut free = None;
                for i in 0..PROBES {
                    let e = (table + (start + i) * 16) as *mut AtomicU64;
                    // SAFETY: inside the table (it has PROBES extra entries).
                    let (key, value) = unsafe { (&*e, &*e.add(1)) };
                    let k = key.load(Ordering::Relaxed);
                    if k == pc {
                        value.store(prefix, Ordering::Release);
                        return;
                    }
                    if free.is_none() && (k == 0 || value.load(Ordering::Relaxed) == 0) {
                        free = Some((key, value));
                    }
                }
                if prefix == 0 {
                    return;
                }
                if let Some((key, value)) = free {
                    // A reader must never see the new key with the old value: 0 in between.
                    value.store(0, Ordering::Release);
                    key.store(pc, Ordering::Release);
                    value.store(prefix, Ordering::Release);
                    return;
                }
            }
            self.grow_lookup();
        }
    }

    /// Makes the table that `bo_miss` reads, or one twice as large.
    pub fn grow_lookup(&mut self) {
        let shift = LOOKUP.shift.load(Ordering::Relaxed);
        let bits = if shift == 64 { 14 } else { 64 - shift + 1 };
        // On the engine's heap, so that the program's own mappings fall where they would without us. The old table is left to
        // concurrent readers for good.
        let new =
            Box::leak(alloc::vec![0u64; 2 * ((1 << bits) + PROBES as usize)].into_boxed_slice())
                .as_ptr();
        LOOKUP.entries.store(new as u64, Ordering::Release);
        LOOKUP.shift.store(64 - bits, Ordering::Release);
        let live: Vec<(u64, u64)> = self
            .by_pc
            .iter()
            .map(|(&pc, &id)| (pc, self.blocks[id as usize].prefix))
            .filter(|x| x.1 != 0)
            .collect();
        for (pc, prefix) in live {
            self.publish(pc, prefix);
        }
    }

    /// Which program instruction the cache address `addr` belongs to.
    pub fn locate(&self, addr: u64) -> Option<Location<'_>> {
        let arena = self.arenas.find(addr)?;
        let id = arena.block_at(addr)?;
        let block = &self.blocks[id as usize];
        if addr >= block.body && addr < block.code_end {
            let o = (addr - block.body) as u16;
            let i = block.insns.partition_point(|m| m.code <= o);
            let m = block.insns[i.checked_sub(1)?];
            return Some(Location {
                block,
                pc: block.pc + m.pc as u64,
                class: m.class,
                boundary: m.code == o,
                site: None,
            });
        }
        let site = block
            .sites
            .iter()
            .copied()
            .find(|s| addr >= s.cold.0 && addr < s.cold.1);
        Some(Location {
            block,
            pc: site.map_or(block.pc, |s| s.pc),
            class: site.map_or(InsnClass::Plain, |s| InsnClass::Site { scratch: s.scratch }),
            boundary: false,
            site,
        })
    }
}

/// Where a cache address is in terms of the program.
pub struct Location<'a> {
    pub block: &'a Block,
    pub pc: u64,
    pub class: InsnClass,
    /// Exactly at the beginning of the instruction's code: registers are the program's.
    pub boundary: bool,
    /// In the out-of-line part of a tracked access.
    pub site: Option<&'static crate::pm::site::Site>,
}

fn patch(at: u64, target: u64) {
    // SAFETY: `at` is a patchable rel32 of ours that lies in one cache line (CACHE-1).
    unsafe { (*(at as *const AtomicU32)).store(rel32(at + 4, target), Ordering::Release) };
}

/// Whether an address belongs to the engine itself.
pub fn is_engine(addr: u64) -> bool {
    (brownout_abi::ENGINE_BASE..brownout_abi::ENGINE_LIMIT).contains(&addr)
}

/// Called by `bo_exit`; leaves the place to go on in `ctx.resume`.
pub extern "C" fn engine_dispatch(ctx: &mut ThreadContext) {
    // Once before, because what follows may not come back, and once behind, because it may translate.
    crate::pm::code_was_read(ctx);
    dispatch(ctx);
    crate::pm::code_was_read(ctx);
}

fn dispatch(ctx: &mut ThreadContext) {
    let arg = ctx.exit_arg;
    let payload = arg >> 8;
    match arg & 0xff {
        exit::LINK => {
            let mut e = ENGINE.lock();
            let n = payload as u32;
            let target = e.exits[n as usize].target;
            match e.block_for_exit(n) {
                Some(to) => {
                    if e.exits[n as usize].linked == NO_BLOCK {
                        e.link(n, to);
                    }
                    ctx.rip = target;
                    ctx.resume = e.blocks[to as usize].body;
                    ctx.resume_is_boundary = true;
                }
                None => {
                    drop(e);
                    ctx.rip = target;
                    crate::signal::raise_fetch_fault(ctx, target);
                }
            }
        }
        exit::INDIRECT => {
            let target = ctx.target;
            ctx.rip = target;
            go_indirect(ctx);
        }
        exit::SYSCALL => crate::syscall::handle(ctx),
        exit::REQUEST => crate::requests::handle(ctx),
        exit::EMULATE => crate::emulate::handle(ctx, payload),
        exit::LOG => crate::pm::log_slow(ctx, crate::pm::site::from_payload(payload)),
        exit::SITE_BEGIN => {
            crate::pm::irregular::begin(ctx, crate::pm::site::from_payload(payload))
        }
        exit::SITE_END => crate::pm::irregular::end(ctx, crate::pm::site::from_payload(payload)),
        exit::LOG_WAITING => crate::pm::log_waiting(ctx, crate::pm::site::from_payload(payload)),
        exit::LOCKED => {
            crate::pm::ring::give_way();
            ctx.rip = crate::pm::site::from_payload(payload).pc;
            resume_at_rip(ctx);
        }
        exit::CODE_CHANGED => {
            let mut e = ENGINE.lock();
            if let Some(&id) = e.by_pc.get(&ctx.rip) {
                e.kill(id);
            }
            drop(e);
            resume_at_rip(ctx);
        }
        exit::UNSUPPORTED => crate::emulate::unsupported(ctx),
        exit::FETCH_FAULT => crate::signal::raise_fetch_fault(ctx, ctx.rip + payload),
        _ => crate::fatal_bug("unknown exit"),
    }
}

fn go_indirect(ctx: &mut ThreadContext) {
    let mut e = ENGINE.lock();
    match e.block(ctx.rip, Arrival::Indirect) {
        Some(to) => {
            let b = &e.blocks[to as usize];
            ctx.resume = b.body;
            ctx.resume_is_boundary = true;
            let prefix = b.prefix;
            drop(e);
            let i = crate::context::ibtc_index(ctx.rip);
            ctx.ibtc()[i] = prefix;
        }
        None => {
            drop(e);
            crate::signal::raise_fetch_fault(ctx, ctx.rip);
        }
    }
}

/// Sets the thread to go on at program address `ctx.rip`.
pub fn resume_at_rip(ctx: &mut ThreadContext) {
    let mut e = ENGINE.lock();
    match e.block(ctx.rip, Arrival::Resume) {
        Some(to) => {
            ctx.resume = e.blocks[to as usize].body;
            ctx.resume_is_boundary = true;
        }
        None => {
            drop(e);
            crate::signal::raise_fetch_fault(ctx, ctx.rip);
        }
    }
}

/// Cache address for program address `pc`, if the program may execute there.
pub fn code_for(pc: u64) -> Option<u64> {
    let mut e = ENGINE.lock();
    let id = e.block(pc, Arrival::Resume)?;
    Some(e.blocks[id as usize].body)
}
