//! Persistence domains: which operation does what to data on its way to persistence.
//!
//! A domain is one row of a table ([`Rules`]); the views know rules, not domains. A new domain is a
//! variant and a row here.

use crate::types::{Atomicity, FlushKind, LINE_BYTES, Op};

/// Where data becomes persistent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Domain {
    /// ADR: the memory controller. Lines must be written back and fenced.
    #[default]
    X86,
    /// Caches included: a store is persistent once it is visible.
    Eadr,
    /// HOPS: `ofence` orders, `dfence` drains.
    Hops,
    /// Mappings that persist by `msync`, page by page.
    Page,
}

/// What a store becomes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum StoreRule {
    /// It joins its unit in the cache and persists when the unit is written back.
    Cached,
    /// It bypasses the cache, and is persistent for certain after its thread's next fence.
    Unordered,
    /// It is persistent at once.
    Durable,
}

/// What a write-back does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FlushRule {
    /// Nothing.
    Ignored,
    /// It completes at its thread's next fence.
    AtFence,
    /// It completes at its place.
    AtOnce,
}

/// What a fence does for its own thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FenceRule {
    /// Nothing.
    Ignored,
    /// It completes write-backs and unordered stores.
    Completes,
    /// It orders the persists of stores before and after.
    Orders,
    /// It makes all stores persistent (and thereby orders).
    Drains,
}

/// One row of the table: what each kind of operation does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rules {
    /// Size of what is written back as a whole.
    pub unit_bytes: u64,
    /// Ordinary stores, and the store of a locked instruction.
    pub store: StoreRule,
    /// Non-temporal stores.
    pub nt_store: StoreRule,
    /// `clflush`.
    pub clflush: FlushRule,
    /// `clflushopt` and `clwb`.
    pub clwb: FlushRule,
    /// `msync(MS_SYNC)`.
    pub msync: FlushRule,
    /// `sfence`, `mfence`, locked instructions.
    pub fence: FenceRule,
    /// `ofence`.
    pub ofence: FenceRule,
    /// `dfence`.
    pub dfence: FenceRule,
}

const X86: Rules = Rules {
    unit_bytes: LINE_BYTES,
    store: StoreRule::Cached,
    nt_store: StoreRule::Unordered,
    clflush: FlushRule::AtOnce,
    clwb: FlushRule::AtFence,
    msync: FlushRule::AtOnce,
    fence: FenceRule::Completes,
    ofence: FenceRule::Ignored,
    dfence: FenceRule::Ignored,
};

const EADR: Rules = Rules {
    store: StoreRule::Durable,
    clflush: FlushRule::Ignored,
    clwb: FlushRule::Ignored,
    msync: FlushRule::Ignored,
    ..X86
};

const HOPS: Rules = Rules {
    nt_store: StoreRule::Cached,
    clflush: FlushRule::Ignored,
    clwb: FlushRule::Ignored,
    msync: FlushRule::Ignored,
    fence: FenceRule::Ignored,
    ofence: FenceRule::Orders,
    dfence: FenceRule::Drains,
    ..X86
};

const PAGE: Rules = Rules {
    unit_bytes: 4096,
    // The page cache is ordinary memory: nothing that the processor does makes it persistent.
    nt_store: StoreRule::Cached,
    clflush: FlushRule::Ignored,
    clwb: FlushRule::Ignored,
    msync: FlushRule::AtOnce,
    fence: FenceRule::Ignored,
    ..X86
};

impl Domain {
    /// Every domain.
    pub const ALL: [Domain; 4] = [Domain::X86, Domain::Eadr, Domain::Hops, Domain::Page];

    /// The name users give.
    pub fn name(self) -> &'static str {
        match self {
            Domain::X86 => "x86",
            Domain::Eadr => "eadr",
            Domain::Hops => "hops",
            Domain::Page => "page",
        }
    }

    /// The domain of that name.
    pub fn from_name(name: &str) -> Option<Self> {
        Domain::ALL.into_iter().find(|domain| domain.name() == name)
    }

    /// Its row.
    pub fn rules(self) -> &'static Rules {
        match self {
            Domain::X86 => &X86,
            Domain::Eadr => &EADR,
            Domain::Hops => &HOPS,
            Domain::Page => &PAGE,
        }
    }
}

impl Rules {
    /// What a write-back instruction does.
    pub fn flush(&self, kind: FlushKind) -> FlushRule {
        match kind {
            FlushKind::Clflush => self.clflush,
            FlushKind::Clflushopt | FlushKind::Clwb => self.clwb,
        }
    }

    /// What `op` does as a fence, if it is one. A locked access is one before its store.
    pub fn fence_of(&self, op: &Op<'_>) -> Option<FenceRule> {
        match op {
            Op::Sfence | Op::Mfence | Op::Locked | Op::Rmw(_) => Some(self.fence),
            Op::Ofence => Some(self.ofence),
            Op::Dfence => Some(self.dfence),
            _ => None,
        }
    }

    /// True if persists have an order across units, as HOPS' have.
    pub fn orders_epochs(&self) -> bool {
        [self.fence, self.ofence, self.dfence].contains(&FenceRule::Orders)
    }
}

/// How early an unfenced `clwb` or `clflushopt` may have taken effect.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum FlushOrder {
    /// At its place in the trace. Right whenever the thread that flushes another's store has
    /// synchronised with it, through memory that the trace does not show.
    #[default]
    Recorded,
    /// Anywhere after its thread's last store to the line, load, fence or locked instruction that
    /// the trace shows (Px86 to the letter). Another thread's store in between is not covered.
    Program,
}

/// What the views need to know.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Config {
    /// Where data becomes persistent. Default: x86.
    pub domain: Domain,
    /// What a crash can tear. Default: words, which the architecture promises.
    pub atomicity: Atomicity,
    /// How early write-backs take effect. Default: as recorded, since locks in ordinary memory are
    /// not recorded and the other choice would doubt synchronised programs.
    pub flush_order: FlushOrder,
}
