//! The table of all blocks.
//!
//! Invariants (tag `CACHE`):
//! - CACHE-1: code that was ever reachable is never overwritten, only its patchable words are, each
//!   with one atomic store that lies in one cache line.
//! - CACHE-2: a dead block is reached by no link, no table of this process, and its prefix fails.
//! - CACHE-3: all of [`Engine`] is behind its lock, which no thread holds while it runs in the
//!   cache.

use crate::address::{CacheAddr, ProgramAddr};
use crate::block::{Block, BlockId, Exit, NO_BLOCK, Saved};
use crate::cache::{Arena, Arenas};
use crate::context::ThreadContext;
use crate::emit::{Emitter, in_reach, rel32};
use crate::hash::PcHash;
use crate::lookup::{LOOKUP, LookupEntry, PROBES};
use crate::maps::{CodeFile, CodeRanges};
use crate::sync::SpinLock;
use crate::translate::{self, Translated};
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use brownout_abi::learned;
use core::sync::atomic::{AtomicU32, Ordering};

/// How a thread comes to a block from outside.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Arrival {
    Branch,
    Indirect,
    /// Back from the engine, in the middle of straight code perhaps: after a fault, a signal, a
    /// request.
    Resume,
}

pub struct Engine {
    pub arenas: Arenas,
    pub blocks: Vec<Block>,
    pub exits: Vec<Exit>,
    /// Program address to block, live ones only.
    pub by_pc: hashbrown::HashMap<ProgramAddr, BlockId, PcHash>,
    /// Where threads have only ever resumed: no branch leads there, and other blocks go on through
    /// it.
    resumed: hashbrown::HashSet<ProgramAddr, PcHash>,
    /// Program address and return address to the block for that return address, live ones only.
    by_return: hashbrown::HashMap<(ProgramAddr, ProgramAddr), BlockId, PcHash>,
    /// Whether the function at an address is worth such blocks.
    simple: hashbrown::HashMap<ProgramAddr, bool, PcHash>,
    /// Page number to the blocks with code on it.
    pub by_page: BTreeMap<u64, Vec<BlockId>>,
    pub code: CodeRanges,
    /// Where `code` comes from, if from files that this process has not opened for writing.
    pub code_files: Vec<CodeFile>,
    /// Writable code pages that are write-protected because of translations.
    pub protected: alloc::collections::BTreeSet<u64>,
    /// How often each writable code page was written after translation.
    pub page_writes: BTreeMap<u64, u32>,
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
    code_files: Vec::new(),
    protected: alloc::collections::BTreeSet::new(),
    page_writes: BTreeMap::new(),
});

/// How many writes to a page with both code and data are answered by write protection, before its
/// blocks check themselves instead.
const PAGE_WRITES_MAX: u32 = 12;

impl Engine {
    /// The block for `pc`, translated now if need be. `None`: the program may not execute there.
    pub fn block(&mut self, pc: ProgramAddr, arrival: Arrival) -> Option<BlockId> {
        let indirect = arrival == Arrival::Indirect;
        let id = match self.by_pc.get(&pc) {
            Some(&id) => id,
            None => {
                if arrival == Arrival::Resume {
                    self.resumed.insert(pc);
                }
                let id = self.translate(pc, indirect, ProgramAddr::NONE)?;
                let what = match arrival {
                    Arrival::Branch => learned::BLOCK,
                    Arrival::Indirect => learned::INDIRECT,
                    Arrival::Resume => learned::RESUMED,
                };
                crate::learned::found(what | pc.get(), 0);
                id
            }
        };
        if arrival != Arrival::Resume {
            self.resumed.remove(&pc);
        }
        if indirect && self.blocks[id as usize].prefix.is_none() {
            self.add_prefix(id);
            crate::learned::found(learned::INDIRECT | pc.get(), 0);
        }
        Some(id)
    }

    /// The block that exit `n` leads to. `None`: the program may not execute there.
    pub fn block_for_exit(&mut self, n: u32) -> Option<BlockId> {
        let x = &self.exits[n as usize];
        let (pc, returns_to) = (x.target, x.returns_to);
        if !returns_to.is_none() {
            if let Some(&id) = self.by_return.get(&(pc, returns_to)) {
                return Some(id);
            }
            if self.is_simple(pc) {
                crate::learned::found(learned::BLOCK | pc.get(), returns_to.get());
                return self.translate(pc, false, returns_to);
            }
            self.exits[n as usize].returns_to = ProgramAddr::NONE;
        }
        self.block(pc, Arrival::Branch)
    }

    /// Whether calls of the function at `pc` get blocks for their return addresses.
    fn is_simple(&mut self, pc: ProgramAddr) -> bool {
        // Blocks of writable code have their own worries.
        if self.code.find(pc.get()).is_none_or(|range| range.writable) {
            return false;
        }
        if let Some(&simple) = self.simple.get(&pc) {
            return simple;
        }
        let simple =
            translate::is_simple_function(pc, ProgramAddr::new(self.code.contiguous_end(pc.get())));
        self.simple.insert(pc, simple);
        simple
    }

    fn translate(
        &mut self,
        pc: ProgramAddr,
        indirect: bool,
        returns_to: ProgramAddr,
    ) -> Option<BlockId> {
        if self.code.find(pc.get()).is_none() {
            self.refresh_code();
        }
        let range = self.code.find(pc.get())?;
        let limit = ProgramAddr::new(self.code.contiguous_end(pc.get()));
        let page = pc.page();
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
        // A block stays within its first page if the page is writable: one protection then covers
        // it.
        let limit = if range.writable {
            limit.min(ProgramAddr::new((page + 1) << 12)).max(pc + 1)
        } else {
            limit
        };
        let reach = if range.writable {
            ProgramAddr::new(self.code.contiguous_end(pc.get()))
        } else {
            limit
        };
        let (t, hot, cold, last_page) = loop {
            let arena = &self.arenas.list[arena_index];
            // SAFETY: the arena hands out its unused part to this one emitter each; the lock is
            // held.
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
                    module: ProgramAddr::new(range.start),
                    known: &self.by_pc,
                    resumed: &self.resumed,
                },
            );
            let last_page = (t.pc_end.get() - 1) >> 12;
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
        arena.hot = hot.at.aligned(16);
        arena.cold = cold.at.aligned(8);
        arena.grown();
        self.exits.extend(t.exits);
        for p in page..=last_page {
            self.by_page.entry(p).or_default().push(id);
        }
        if returns_to.is_none() {
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
        if !t.prefix.is_none() {
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
        if !expected.is_none() && self.by_pc.contains_key(&target) && !self.is_simple(target) {
            expected = ProgramAddr::NONE;
            self.exits[e as usize].returns_to = ProgramAddr::NONE;
        }
        let to = match expected {
            ProgramAddr::NONE => self.by_pc.get(&target),
            _ => self.by_return.get(&(target, expected)),
        };
        if let Some(&to) = to {
            self.link(e, to);
        }
    }

    /// Translates what a run has translated, if this process has the same code there.
    pub fn learn(&mut self, pc: ProgramAddr, arrival: Arrival, returns_to: ProgramAddr) {
        // Writable code has to be looked at when it is executed.
        if self.code.find(pc.get()).is_none_or(|range| range.writable) {
            return;
        }
        if returns_to.is_none() {
            self.block(pc, arrival);
        } else if !self.by_return.contains_key(&(pc, returns_to)) && self.is_simple(pc) {
            self.translate(pc, false, returns_to);
        }
    }

    /// Where indirect branches can arrive: the address of each block that they can enter, and where
    /// they do.
    pub fn entrances(&self) -> impl Iterator<Item = (ProgramAddr, CacheAddr)> + '_ {
        let entered = |block: &&Block| !block.dead && !block.prefix.is_none();
        let entered = self.blocks.iter().filter(entered);
        entered.map(|block| (block.pc, block.prefix))
    }

    /// From where to where translated code lies.
    pub fn code_in_use(&self) -> Vec<(u64, u64)> {
        let parts = |arena: &Arena| {
            let hot = (arena.base.get(), arena.hot.get());
            [hot, (arena.hot_end().get(), arena.cold.get())]
        };
        self.arenas.list.iter().flat_map(parts).collect()
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
        arena.cold = cold.at.aligned(8);
        self.blocks[id as usize].prefix = prefix;
        self.publish(pc, prefix);
    }

    /// Reads the kernel's list: the program may have got code in ways that we did not see.
    pub fn refresh_code(&mut self) {
        for m in crate::maps::read() {
            if m.exec && !is_engine(m.start) && self.arenas.find(CacheAddr::new(m.start)).is_none()
            {
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
                if b.pc.get() < end && b.pc_end.get() > start {
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
        if returns_to.is_none() {
            self.by_pc.remove(&pc);
        } else {
            self.by_return.remove(&(pc, returns_to));
        }
        if !prefix.is_none() {
            self.publish(pc, CacheAddr::NONE);
            translate::spoil_prefix(prefix);
        }
    }

    pub fn link(&mut self, e: u32, to: BlockId) {
        self.resumed.remove(&self.blocks[to as usize].pc);
        let body = self.blocks[to as usize].body;
        let x = &self.exits[e as usize];
        let mut target = body;
        if !in_reach(x.patch + 4, body.get()) {
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
            cold.u64(body.get());
            // Attributed to the target: a fault cannot happen here, and a step ends in it.
            arena.cold_index.push((arena.cold, to));
            arena.cold = cold.at.aligned(8);
        }
        let x = &mut self.exits[e as usize];
        x.linked = to;
        patch(x.patch, target);
        self.blocks[to as usize].incoming.push(e);
    }

    /// Makes `pc` → `prefix` visible to `bo_miss`.
    fn publish(&mut self, pc: ProgramAddr, prefix: CacheAddr) {
        loop {
            let table = LOOKUP.entries.load(Ordering::Relaxed);
            let shift = LOOKUP.shift.load(Ordering::Relaxed);
            {
                let start = pc.get().wrapping_mul(0x9E37_79B9_7F4A_7C15) >> shift;
                let mut free = None;
                for i in 0..PROBES {
                    // SAFETY: inside the table (it has PROBES extra entries), which stays for ever.
                    let entry =
                        unsafe { &*(table as *const LookupEntry).add((start + i) as usize) };
                    let (key, value) = (&entry.pc, &entry.prefix);
                    let k = key.load(Ordering::Relaxed);
                    if k == pc.get() {
                        value.store(prefix.get(), Ordering::Release);
                        return;
                    }
                    if free.is_none() && (k == 0 || value.load(Ordering::Relaxed) == 0) {
                        free = Some((key, value));
                    }
                }
                if prefix.is_none() {
                    return;
                }
                if let Some((key, value)) = free {
                    // A reader must never see the new key with the old value: 0 in between.
                    value.store(0, Ordering::Release);
                    key.store(pc.get(), Ordering::Release);
                    value.store(prefix.get(), Ordering::Release);
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
        // On the engine's heap, so that the program's own mappings fall where they would without
        // us. The old table is left to concurrent readers for good.
        let new =
            Box::leak(alloc::vec![0u64; 2 * ((1 << bits) + PROBES as usize)].into_boxed_slice())
                .as_ptr();
        LOOKUP.entries.store(new as u64, Ordering::Release);
        LOOKUP.shift.store(64 - bits, Ordering::Release);
        let live: Vec<(ProgramAddr, CacheAddr)> = self
            .by_pc
            .iter()
            .map(|(&pc, &id)| (pc, self.blocks[id as usize].prefix))
            .filter(|x| !x.1.is_none())
            .collect();
        for (pc, prefix) in live {
            self.publish(pc, prefix);
        }
    }

    /// Which program instruction the cache address `addr` belongs to.
    pub fn locate(&self, addr: CacheAddr) -> Option<Location<'_>> {
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
                saved: match m.is_boundary && m.code == o {
                    true => Saved::NONE,
                    false => m.saved,
                },
                boundary: m.is_boundary && m.code == o,
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
            saved: match site {
                Some(s) if addr >= s.fast.0 && addr < s.fast.1 => Saved::site(s.scratch),
                _ => Saved::NONE,
            },
            boundary: false,
            site,
        })
    }
}

/// Where a cache address is in terms of the program.
pub struct Location<'a> {
    pub block: &'a Block,
    pub pc: ProgramAddr,
    /// Registers that the program has there and that are elsewhere now.
    pub saved: Saved,
    /// Exactly at the beginning of the instruction's code: registers are the program's.
    pub boundary: bool,
    /// In the out-of-line part of a tracked access.
    pub site: Option<&'static crate::pm::site::Site>,
}

fn patch(at: CacheAddr, target: CacheAddr) {
    // SAFETY: `at` is a patchable rel32 of ours that lies in one cache line (CACHE-1).
    unsafe {
        (*(at.get() as *const AtomicU32)).store(rel32(at + 4, target.get()), Ordering::Release)
    };
}

/// Whether an address belongs to the engine itself.
pub fn is_engine(addr: u64) -> bool {
    (brownout_abi::ENGINE_BASE..brownout_abi::ENGINE_LIMIT).contains(&addr)
}

/// Sets the thread to go on at program address `ctx.rip`.
pub fn resume_at_rip(ctx: &mut ThreadContext) {
    crate::follow::broken_at_rip(ctx);
    let mut e = ENGINE.lock();
    match e.block(ctx.rip, Arrival::Resume) {
        Some(to) => {
            ctx.resume = e.blocks[to as usize].body;
            ctx.resume_is_boundary = true;
        }
        None => {
            drop(e);
            crate::faults::raise_fetch_fault(ctx, ctx.rip);
        }
    }
}

/// Where the code for `pc` is, if the program may execute there.
pub fn code_for(pc: ProgramAddr) -> Option<CacheAddr> {
    let mut e = ENGINE.lock();
    let id = e.block(pc, Arrival::Resume)?;
    Some(e.blocks[id as usize].body)
}
