//! Memory for copies that the kernel reads and writes in place of the program's structures.
//!
//! The kernel gets the addresses as numbers and writes behind the compiler's back. So this is raw
//! memory, read and written through raw pointers only, that stays where it is until the next call.

use alloc::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use alloc::vec::Vec;
use core::ptr::{self, NonNull};

/// Enough for the structures of most calls, so that one chunk serves a thread for ever.
const CHUNK: usize = 4096;

/// Keeps an odd address odd in the copy: the kernel checks the alignment of some structures.
const ALIGN: usize = 64;

struct Chunk {
    base: NonNull<u8>,
    size: usize,
    used: usize,
}

impl Chunk {
    fn layout(size: usize) -> Layout {
        Layout::from_size_align(size, ALIGN).expect("chunk sizes are bounded")
    }

    fn new(size: usize) -> Chunk {
        let layout = Chunk::layout(size);
        // SAFETY: the layout's size is not zero: `Scratch::alloc` asks for CHUNK at least.
        let base = unsafe { alloc_zeroed(layout) };
        let Some(base) = NonNull::new(base) else {
            handle_alloc_error(layout)
        };
        Chunk {
            base,
            size,
            used: 0,
        }
    }
}

impl Drop for Chunk {
    fn drop(&mut self) {
        // SAFETY: `new` allocated it with this layout, and `Slot`s are not used after the chunk is
        // dropped: only `Prepared` holds them, and forgets them first.
        unsafe { dealloc(self.base.as_ptr(), Chunk::layout(self.size)) }
    }
}

/// The memory of one call's copies.
pub(crate) struct Scratch {
    chunks: Vec<Chunk>,
}

// SAFETY: the chunks are owned by this value alone, like the content of a `Box`.
unsafe impl Send for Scratch {}

impl Scratch {
    pub(crate) const fn new() -> Scratch {
        Scratch { chunks: Vec::new() }
    }

    /// Forgets all slots. Keeps one chunk of the ordinary size.
    pub(crate) fn clear(&mut self) {
        self.chunks.truncate(1);
        if let Some(chunk) = self.chunks.first_mut() {
            if chunk.size > CHUNK {
                self.chunks.clear();
            } else {
                chunk.used = 0;
            }
        }
    }

    /// `len` bytes whose address is to `ALIGN` what `like` is. Their content is arbitrary.
    pub(crate) fn alloc(&mut self, len: usize, like: u64) -> Slot {
        let skew = like as usize % ALIGN;
        let room = |chunk: &Chunk| {
            let start = chunk.used.next_multiple_of(ALIGN) + skew;
            (start + len <= chunk.size).then_some(start)
        };
        let start = match self.chunks.last().and_then(room) {
            Some(start) => start,
            None => {
                self.chunks.push(Chunk::new((len + skew).max(CHUNK)));
                skew
            }
        };
        let chunk = self
            .chunks
            .last_mut()
            .expect("one was just found or pushed");
        chunk.used = start + len;
        // SAFETY: `start + len` is within the chunk, as checked or by its size.
        let base = unsafe { chunk.base.add(start) };
        Slot { base, len }
    }
}

/// A piece of [`Scratch`], valid until the scratch is cleared.
///
/// Private to this crate and only held in locals and in the lists of the `Prepared` that owns the
/// scratch, which are emptied together with it: that is what the SAFETY comments below rely on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Slot {
    base: NonNull<u8>,
    len: usize,
}

impl Slot {
    /// The address to give to the kernel.
    pub(crate) fn addr(self) -> u64 {
        self.base.as_ptr().expose_provenance() as u64
    }

    pub(crate) fn len(self) -> u64 {
        self.len as u64
    }

    /// A part of the slot.
    pub(crate) fn part(self, at: usize, len: usize) -> Slot {
        assert!(at + len <= self.len);
        // SAFETY: inside the slot by the assertion.
        let base = unsafe { self.base.add(at) };
        Slot { base, len }
    }

    pub(crate) fn load(self, at: usize, to: &mut [u8]) {
        assert!(at + to.len() <= self.len);
        // SAFETY: inside the slot by the assertion; the slot is alive (see the type), and `to` is
        // somebody else's memory because no reference to scratch memory is ever handed out.
        unsafe { ptr::copy_nonoverlapping(self.base.as_ptr().add(at), to.as_mut_ptr(), to.len()) }
    }

    pub(crate) fn store(self, at: usize, from: &[u8]) {
        assert!(at + from.len() <= self.len);
        // SAFETY: as in `load`.
        unsafe { ptr::copy_nonoverlapping(from.as_ptr(), self.base.as_ptr().add(at), from.len()) }
    }

    pub(crate) fn u16(self, at: usize) -> u16 {
        let mut bytes = [0; 2];
        self.load(at, &mut bytes);
        u16::from_le_bytes(bytes)
    }

    pub(crate) fn u32(self, at: usize) -> u32 {
        let mut bytes = [0; 4];
        self.load(at, &mut bytes);
        u32::from_le_bytes(bytes)
    }

    pub(crate) fn u64(self, at: usize) -> u64 {
        let mut bytes = [0; 8];
        self.load(at, &mut bytes);
        u64::from_le_bytes(bytes)
    }

    pub(crate) fn set_u64(self, at: usize, value: u64) {
        self.store(at, &value.to_le_bytes());
    }

    /// Calls `f` with piece after piece of memory of at most a page, to be filled by it, and
    /// stores them. Stops at the first `false`.
    pub(crate) fn fill(self, mut f: impl FnMut(usize, &mut [u8]) -> bool) -> bool {
        let mut piece = [0; PIECE];
        let mut at = 0;
        while at < self.len {
            let take = (self.len - at).min(PIECE);
            if !f(at, &mut piece[..take]) {
                return false;
            }
            self.store(at, &piece[..take]);
            at += take;
        }
        true
    }
}

/// Small enough for any stack the engine may run on.
pub(crate) const PIECE: usize = 512;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_keep_alignment_and_do_not_overlap() {
        let mut scratch = Scratch::new();
        for round in 0..3 {
            let mut slots = Vec::new();
            for (n, (len, like)) in [(1, 0), (100, 7), (5000, 63), (64, 64), (9, 13), (70_000, 1)]
                .into_iter()
                .enumerate()
            {
                let slot = scratch.alloc(len, like);
                assert_eq!(slot.addr() % 64, like % 64, "round {round}");
                slot.fill(|_, bytes| {
                    bytes.fill(n as u8);
                    true
                });
                slots.push((slot, n as u8));
            }
            for (slot, n) in slots {
                let mut bytes = alloc::vec![0; slot.len];
                slot.load(0, &mut bytes);
                assert!(
                    bytes.iter().all(|byte| *byte == n),
                    "slot {n} was overwritten"
                );
            }
            scratch.clear();
            assert!(scratch.chunks.len() <= 1);
        }
    }
}
