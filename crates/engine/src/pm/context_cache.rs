//! Per-thread cache from (site, frame) to calling context, read by `bo_log`.
//!
//! An entry is valid if the site and its frame address are the same and every return address of the chain still
//! stands in its stack slot: then unwinding would find the same chain, because each frame's size follows from the return
//! address inside it. (Frames whose size depends on a saved frame pointer could in theory keep their return address and move; the slot
//! addresses are compared too, so that needs the same value in the same place by chance.)

use alloc::boxed::Box;

/// log2 of the number of entries. 4096 covers the (site, frame) pairs of a tree walk with room to spare.
pub const ENTRIES_SHIFT: u32 = 12;

/// One entry; layout known to `bo_log`.
#[repr(C)]
pub struct Entry {
    /// The site's number; 0 is none.
    pub site: u64,
    pub frame: u64,
    /// A [`Chain`]: count, then that many (slot, value) pairs.
    pub chain: u64,
    pub context: u32,
    _pad: u32,
}
const _: () = assert!(core::mem::size_of::<Entry>() == 32);


/// Same as in `bo_log`.
fn index(site_id: u32, return_addr: u64, frame: u64) -> usize {
    let h = site_id.wrapping_mul(0x9E37_79B1) ^ (return_addr as u32) << 3 ^ frame as u32;
    (h.wrapping_mul(0x85EB_CA6B) >> (32 - ENTRIES_SHIFT)) as usize
}

/// Allocates a cache; its address goes into the thread's context.
pub fn allocate() -> u64 {
    let n = 1usize << ENTRIES_SHIFT;
    let layout = core::alloc::Layout::array::<Entry>(n).expect("small");
    // SAFETY: zeroed entries are valid: no site has number 0.
    unsafe { alloc::alloc::alloc_zeroed(layout) as u64 }
}

/// The entry that `bo_log` would look at.
///
/// # Safety
/// `cache` comes from [`allocate`] and belongs to the calling thread.
pub unsafe fn entry(cache: u64, site_id: u32, return_addr: u64, frame: u64) -> &'static mut Entry {
    // SAFETY: the index is below the number of entries.
    unsafe { &mut *((cache as *mut Entry).add(index(site_id, return_addr, frame))) }
}

/// Drops all entries (code or stacks went away).
///
/// # Safety
/// As [`entry`].
pub unsafe fn clear(cache: u64) {
    for i in 0..1usize << ENTRIES_SHIFT {
        // SAFETY: in bounds.
        let e = unsafe { &mut *(cache as *mut Entry).add(i) };
        replace_chain(e, 0);
        e.site = 0;
    }
}

/// Puts a new chain into an entry and frees the old one.
pub fn replace_chain(e: &mut Entry, chain: u64) {
    if e.chain != 0 {
        // SAFETY: made by `new_chain`, owned by this entry alone.
        unsafe {
            let n = *(e.chain as *const u64) as u32 as usize;
            drop(Box::from_raw(core::ptr::slice_from_raw_parts_mut(e.chain as *mut u64, 1 + 2 * n)));
        }
    }
    e.chain = chain;
}

/// A word whose content never changes: what the chain of an empty context checks.
static ZERO: u64 = 0;

/// Builds a chain from (slot, value) pairs.
pub fn new_chain(pairs: &[(u64, u64)]) -> u64 {
    let fallback = [(&raw const ZERO as u64, 0u64)];
    let pairs = if pairs.is_empty() { &fallback[..] } else { pairs };
    let mut v = alloc::vec::Vec::with_capacity(1 + 2 * pairs.len());
    v.push(pairs.len() as u64);
    for (slot, value) in pairs {
        v.push(*slot);
        v.push(*value);
    }
    Box::into_raw(v.into_boxed_slice()) as *mut u64 as u64
}
