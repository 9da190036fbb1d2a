//! The table by which `bo_miss` finds the target of an indirect branch.

use core::sync::atomic::AtomicU64;

/// Open-addressed table from program address to prefix, read by `bo_miss` without a lock.
#[repr(C)]
pub struct LookupTable {
    pub entries: AtomicU64,
    pub shift: AtomicU64,
}
pub static LOOKUP: LookupTable = LookupTable {
    entries: AtomicU64::new(0),
    shift: AtomicU64::new(64),
};
/// One of its entries, which `bo_miss` reads word by word.
#[repr(C)]
pub struct LookupEntry {
    /// The program address; 0 if the entry was never used.
    pub pc: AtomicU64,
    /// Where its block checks the tag; 0 if there is none any more.
    pub prefix: AtomicU64,
}

/// Entries that are looked at for one address.
pub const PROBES: u64 = 4;
