//! Instructions that touch tracked memory.

use crate::address::{CacheAddr, ProgramAddr};
use crate::sync::SpinLock;
use alloc::boxed::Box;
use brownout_insn::MemoryForm;
use core::sync::atomic::AtomicU64;
use hashbrown::{HashMap, HashSet};
use iced_x86::Instruction;

pub const FLAG_CFA_FROM_RBP: u8 = 1;
pub const FLAG_VALUE: u8 = 2;
/// `bo_log` may remember the cache entry that was used last. Only while the run has one thread:
/// entries are a thread's own.
pub const FLAG_HINT: u8 = 4;

/// Of sites that find out their context each time: they make the thread forget its last token
/// first.
pub const NO_TOKEN: u64 = u64::MAX;

/// What a site remembers before it has used an entry.
static NO_ENTRY: super::context_cache::Entry = super::context_cache::Entry { key: 0, chain: 0 };

/// What emitted code and `bo_log` need to know about an instrumented instruction. Lives for ever:
/// records and code refer to it.
#[repr(C)]
pub struct Site {
    /// First word of its record, without the thread.
    pub head: u64,
    pub id: u32,
    /// Access size; flush or fence kind.
    pub size: u32,
    /// Distance from rsp (or rbp) to the frame's canonical address.
    pub cfa_offset: i32,
    pub flags: u8,
    /// A store of a copy loop.
    pub is_wide: bool,
    /// What becomes of `unfenced`: 0, 1, or 2 for unchanged.
    pub unfenced: u8,
    /// Scratch register of its code.
    pub scratch: u8,
    /// The context-cache entry that was used last.
    pub hint: u64,
    /// Names the block: all its sites have the same calling context in one execution. The number of
    /// the block's first site, or [`NO_TOKEN`].
    pub token: u64,
    /// Not 0: the site of the records that this one's stores or write-backs may become part of, if
    /// they go on where these end. A site's own number; for the wide stores of a block, that of the
    /// first.
    pub join: u32,
    pub pc: ProgramAddr,
    pub next_pc: ProgramAddr,
    /// Code of the next instruction.
    pub next_code: CacheAddr,
    /// Its out-of-line code.
    pub cold: (CacheAddr, CacheAddr),
    /// The part of it where the program's rcx and scratch register are in their slots.
    pub fast: (CacheAddr, CacheAddr),
    /// The instruction on the alias, for irregular forms; then it leaves for `SITE_END`.
    pub redirected: CacheAddr,
    /// The instruction as it is; then goes on at `next_code`.
    pub original: CacheAddr,
    pub insn: Instruction,
    pub form: MemoryForm,
    /// Of a write-back: not 0 as long as one of ordinary memory is worth telling. Emitted code
    /// looks at it.
    pub tells_outside: AtomicU64,
}

impl Site {
    /// Its records have the value.
    pub fn has_value(&self) -> bool {
        self.flags & FLAG_VALUE != 0
    }

    /// The first of its block to find out the context, or one that always does.
    pub fn finds_context(&self) -> bool {
        self.token == self.id.into() || self.token == NO_TOKEN
    }
}

struct Table {
    known: HashSet<ProgramAddr, crate::hash::PcHash>,
    ids: HashMap<ProgramAddr, u32, crate::hash::PcHash>,
    faults: HashMap<ProgramAddr, u32, crate::hash::PcHash>,
    pseudo: HashMap<ProgramAddr, &'static Site, crate::hash::PcHash>,
}

static TABLE: SpinLock<Table> = SpinLock::new(Table {
    known: HashSet::with_hasher(crate::hash::PcHash),
    ids: HashMap::with_hasher(crate::hash::PcHash),
    faults: HashMap::with_hasher(crate::hash::PcHash),
    pseudo: HashMap::with_hasher(crate::hash::PcHash),
});

pub fn from_payload(p: u64) -> &'static Site {
    // SAFETY: payloads are made from `&'static Site` only.
    unsafe { &*(p as *const Site) }
}

/// Whether the instruction at `pc` has touched tracked memory before.
pub fn is_known(pc: ProgramAddr) -> bool {
    TABLE.lock().known.contains(&pc)
}

/// Whether any instruction has.
pub fn any_known() -> bool {
    ANY.load(core::sync::atomic::Ordering::Relaxed)
}
static ANY: core::sync::atomic::AtomicBool = core::sync::atomic::AtomicBool::new(false);

/// Marks an instruction. False if it was marked already.
pub fn mark(pc: ProgramAddr) -> bool {
    ANY.store(true, core::sync::atomic::Ordering::Relaxed);
    let is_new = TABLE.lock().known.insert(pc);
    if is_new {
        crate::learned::found(brownout_abi::learned::SITE | pc.get(), 0);
    }
    is_new
}

/// Counts faults of an instruction that is marked already; more than a few mean that it is not
/// understood.
pub fn count_fault(pc: ProgramAddr) -> u32 {
    let mut t = TABLE.lock();
    let n = t.faults.entry(pc).or_default();
    *n += 1;
    *n
}

/// The number of the site at `pc`; the tool is told at first sight, before anybody can use it.
pub fn id(pc: ProgramAddr) -> u32 {
    let mut t = TABLE.lock();
    if let Some(&id) = t.ids.get(&pc) {
        return id;
    }
    let c = crate::control::control();
    let id = c
        .next_site
        .fetch_add(1, core::sync::atomic::Ordering::Relaxed);
    let Some(entry) = c.sites.get(id as usize) else {
        drop(t);
        crate::fatal_unsupported("the run has more than four million instructions that matter");
    };
    entry.store(pc.get(), core::sync::atomic::Ordering::Release);
    t.ids.insert(pc, id);
    id
}

/// A site for what engine code records on behalf of the instruction at `pc` (system calls,
/// requests).
pub fn pseudo(pc: ProgramAddr) -> &'static Site {
    if let Some(s) = TABLE.lock().pseudo.get(&pc) {
        return s;
    }
    let id = id(pc);
    let site = new(
        id,
        pc,
        pc,
        0,
        0,
        2,
        0,
        Instruction::default(),
        MemoryForm::None,
        false,
    );
    TABLE.lock().pseudo.insert(pc, site);
    site
}

/// Makes a site. `record_kind` 0: nothing that `bo_log` would write.
#[allow(clippy::too_many_arguments)]
pub fn new(
    id: u32,
    pc: ProgramAddr,
    next_pc: ProgramAddr,
    record_kind: u8,
    size: u32,
    unfenced: u8,
    scratch: u8,
    insn: Instruction,
    form: MemoryForm,
    value: bool,
) -> &'static mut Site {
    let words = 3 + if value { (size as u64).div_ceil(8) } else { 0 };
    let (cfa_offset, from_rbp) = super::stacks::frame_of(pc);
    Box::leak(Box::new(Site {
        head: words | (record_kind as u64) << 8 | (id as u64) << 32,
        id,
        size,
        cfa_offset,
        flags: if from_rbp { FLAG_CFA_FROM_RBP } else { 0 }
            | if value { FLAG_VALUE } else { 0 }
            | if super::ring::shared() { 0 } else { FLAG_HINT },
        is_wide: false,
        unfenced,
        scratch,
        hint: &raw const NO_ENTRY as u64,
        token: NO_TOKEN,
        join: 0,
        pc,
        next_pc,
        next_code: CacheAddr::NONE,
        cold: (CacheAddr::NONE, CacheAddr::NONE),
        fast: (CacheAddr::NONE, CacheAddr::NONE),
        redirected: CacheAddr::NONE,
        original: CacheAddr::NONE,
        insn,
        form,
        tells_outside: AtomicU64::new(1),
    }))
}

/// What keeps others out of the table.
pub struct Lock {
    _held: crate::sync::Guard<'static, Table>,
}

/// Keeps others out: for a fork.
pub fn lock() -> Lock {
    Lock {
        _held: TABLE.lock(),
    }
}

/// Code was unmapped or replaced: what comes there has other frames.
pub fn code_unmapped(start: ProgramAddr, end: ProgramAddr) {
    TABLE
        .lock()
        .pseudo
        .retain(|pc, _| *pc < start || *pc >= end);
}
