//! The engine's heap: size-class free lists over memory of its own, one lock.
//!
//! Rules: never calls into the program's allocator, never returns memory to the kernel, and is
//! usable in signal handlers only because those run with asynchronous signals blocked and never
//! interrupt engine code that holds the lock (see `signal.rs`).

use crate::sync::SpinLock;
use crate::sys;
use brownout_abi::HEAP_BASE;
use core::alloc::{GlobalAlloc, Layout};

const CLASS_MIN_SHIFT: u32 = 4;
const CLASSES: usize = 36;
/// Mapped at a time. Large enough that the kernel calls do not show, lazily backed.
const CHUNK: u64 = 64 << 20;

/// What every program needs, the decoder's tables and some thousand blocks, is about one huge page.
const FIRST_USE: u64 = 2 << 20;

#[global_allocator]
pub static HEAP: Heap = Heap::new();

pub struct State {
    free: [*mut u8; CLASSES],
    next: u64,
    end: u64,
}

/// The allocator.
pub struct Heap {
    state: SpinLock<State>,
}

// SAFETY: all state is behind the lock.
unsafe impl Sync for Heap {}

impl Heap {
    pub const fn new() -> Self {
        Heap {
            state: SpinLock::new(State {
                free: [core::ptr::null_mut(); CLASSES],
                next: HEAP_BASE,
                end: HEAP_BASE,
            }),
        }
    }
}

/// Keeps others from allocating.
pub struct HeapLock<'a> {
    _held: crate::sync::Guard<'a, State>,
}

impl Heap {
    /// From where to where there is something.
    pub fn used(&self) -> (u64, u64) {
        (HEAP_BASE, self.state.lock().next)
    }

    /// Keeps others from allocating: for a fork.
    pub fn lock(&self) -> HeapLock<'_> {
        HeapLock {
            _held: self.state.lock(),
        }
    }
}

fn class_of(layout: &Layout) -> u32 {
    let size = layout.size().max(layout.align()).max(1 << CLASS_MIN_SHIFT);
    size.next_power_of_two().trailing_zeros() - CLASS_MIN_SHIFT
}

impl Heap {
    /// A block, and whether it comes from the kernel, full of zeros.
    fn take(&self, layout: Layout) -> (*mut u8, bool) {
        let class = class_of(&layout);
        let size = 1u64 << (class + CLASS_MIN_SHIFT);
        let mut s = self.state.lock();
        let head = s.free[class as usize];
        if !head.is_null() {
            // SAFETY: a free block's first word links to the next.
            s.free[class as usize] = unsafe { *(head as *mut *mut u8) };
            return (head, false);
        }
        let align = size.min(4096);
        let start = (s.next + align - 1) & !(align - 1);
        if start + size > s.end {
            let len = (start + size - s.end).next_multiple_of(CHUNK);
            // SAFETY: the range follows what we mapped before, inside the engine's own space.
            let got = unsafe { sys::map_anonymous(s.end, len, sys::PROT_READ | sys::PROT_WRITE) };
            if got != s.end as i64 {
                return (core::ptr::null_mut(), false);
            }
            if s.end == HEAP_BASE {
                // SAFETY: just mapped.
                unsafe {
                    sys::sc!(
                        sys::nr::MADVISE,
                        s.end,
                        FIRST_USE,
                        14 /* MADV_HUGEPAGE */
                    );
                    sys::populate(s.end, FIRST_USE);
                }
            }
            s.end += len;
        }
        s.next = start + size;
        (start as *mut u8, true)
    }
}

// SAFETY: blocks are power-of-two sized and aligned to their size (up to a page), never handed out
// twice.
unsafe impl GlobalAlloc for Heap {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        self.take(layout).0
    }

    /// Large tables are mostly never touched: they are not to be cleared when they are zeros
    /// anyway.
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        let (block, is_zero) = self.take(layout);
        if !is_zero && !block.is_null() {
            // SAFETY: ours, of at least this size.
            unsafe { block.write_bytes(0, layout.size()) };
        }
        block
    }

    unsafe fn dealloc(&self, p: *mut u8, layout: Layout) {
        let class = class_of(&layout);
        let mut s = self.state.lock();
        // SAFETY: the caller gives the block back; we own it now.
        unsafe { *(p as *mut *mut u8) = s.free[class as usize] };
        s.free[class as usize] = p;
    }
}
