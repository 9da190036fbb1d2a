//! Per-thread cache from (site, frame) to calling context, read by `bo_log`.
//!
//! An entry is valid if the site and its frame address are the same and every return address of the
//! chain still stands in its stack slot: then unwinding would find the same chain, because each
//! frame's size follows from the return address inside it. (Frames whose size depends on a saved
//! frame pointer could in theory keep their return address and move; the slot addresses are
//! compared too, so that needs the same value in the same place by chance.)

use alloc::boxed::Box;

/// log2 of the number of sets of [`WAYS`] entries: 16384 entries cover the (site, frame, chain)
/// triples of a tree walk.
pub const SETS_SHIFT: u32 = 11;
/// Entries that one (site, return address, frame) may have: the same frame is reached by different
/// chains.
pub const WAYS: usize = 8;

/// One entry; layout known to `bo_log`.
#[repr(C)]
pub struct Entry {
    /// Site number and low half of the frame's address. 0: empty (no site has number 0).
    pub key: u64,
    /// Address of a chain: context number, length, then (slot, value) pairs; a zero slot ends them.
    pub chain: u64,
}
const _: () = assert!(core::mem::size_of::<Entry>() == 16);

/// What tells entries of a set apart. (The upper half of the frame's address is the stack's; the
/// chain is compared by full addresses anyway.)
pub fn key(site_id: u32, frame: u64) -> u64 {
    (site_id as u64) << 32 | frame as u32 as u64
}

impl Entry {
    /// The context, if the entry is for this key and every return address still stands in its slot.
    pub fn check(&self, key: u64, verify: impl FnOnce(u64) -> bool) -> Option<u32> {
        // SAFETY: a chain made by `replace_chain`, whose first word is the context.
        (self.key == key && verify(self.chain + PAIRS_OFFSET as u64))
            .then(|| unsafe { *(self.chain as *const u64) as u32 })
    }
}

/// Same as in `bo_log`.
fn index(site_id: u32, return_addr: u64, frame: u64) -> usize {
    let h = site_id.wrapping_mul(0x9E37_79B1) ^ (return_addr as u32) << 3 ^ frame as u32;
    (h.wrapping_mul(0x85EB_CA6B) >> (32 - SETS_SHIFT)) as usize
}

/// How long a cache is.
pub const LEN: u64 = (size_of::<Entry>() * (WAYS << SETS_SHIFT)) as u64;

/// Allocates a cache; its address goes into the thread's context.
pub fn allocate() -> u64 {
    let n = WAYS << SETS_SHIFT;
    let layout = core::alloc::Layout::array::<Entry>(n).expect("small");
    // SAFETY: zeroed entries are valid: no site has number 0.
    unsafe { alloc::alloc::alloc_zeroed(layout) as u64 }
}

/// Empties a cache. Chains stay until their entries are used again.
///
/// # Safety
/// `cache` is 0 or comes from [`allocate`], and no other thread changes it meanwhile. Its owner may
/// read it.
pub unsafe fn clear(cache: u64) {
    if cache == 0 {
        return;
    }
    for at in 0..WAYS << SETS_SHIFT {
        // SAFETY: inside of the allocation. `bo_log` of the owner sees the old key or none.
        unsafe {
            let key = &raw mut (*(cache as *mut Entry).add(at)).key;
            core::sync::atomic::AtomicU64::from_ptr(key)
                .store(0, core::sync::atomic::Ordering::Relaxed);
        }
    }
}

/// The entries that `bo_log` would look at.
///
/// # Safety
/// `cache` comes from [`allocate`] and belongs to the calling thread.
pub unsafe fn set(cache: u64, site_id: u32, return_addr: u64, frame: u64) -> &'static mut [Entry] {
    // SAFETY: the index is below the number of sets.
    unsafe {
        let first = (cache as *mut Entry).add(WAYS * index(site_id, return_addr, frame));
        core::slice::from_raw_parts_mut(first, WAYS)
    }
}

/// Moves the others down and gives the first place.
pub fn make_room(set: &mut [Entry]) -> &mut Entry {
    set.rotate_right(1);
    &mut set[0]
}

/// Puts a new context and chain into an entry and frees the old one.
pub fn replace_chain(e: &mut Entry, context: u32, pairs: &[(u64, u64)]) {
    if e.chain != 0 {
        // SAFETY: made below, owned by this entry alone; its second word is its length.
        unsafe {
            let len = *(e.chain as *const u64).add(1) as usize;
            drop(Box::from_raw(core::ptr::slice_from_raw_parts_mut(
                e.chain as *mut u64,
                len,
            )));
        }
    }
    // Filled up to whole groups with a word that never changes.
    let groups = pairs.len().div_ceil(GROUP).max(1);
    let len = 2 * groups * GROUP + 4;
    let mut v = alloc::vec::Vec::with_capacity(len);
    v.extend([context as u64, len as u64]);
    let filler = (&raw const ZERO as u64, 0u64);
    for (slot, value) in pairs
        .iter()
        .chain(core::iter::repeat(&filler))
        .take(groups * GROUP)
    {
        v.push(*slot);
        v.push(*value);
    }
    v.extend([0, 0]);
    e.chain = Box::into_raw(v.into_boxed_slice()) as *mut u64 as u64;
}

/// Where a chain has its pairs: behind context number and length.
pub const PAIRS_OFFSET: usize = 16;
/// Slot and value.
pub const PAIR_LEN: usize = 16;

/// Pairs that `bo_log` compares between two looks for the end.
pub const GROUP: usize = 4;

/// A word whose content never changes.
static ZERO: u64 = 0;
