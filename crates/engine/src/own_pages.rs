//! The engine's own memory in a kept process (`session.rs`).
//!
//! Tables and translated code are thousands of pages that runs mostly read. A fork has to go
//! through all of them, and so has the end of each run, unless they are large ones.

use crate::blocks::ENGINE;
use crate::bulk::{LARGE, are_there_large_pages, with_large_pages};
use crate::heap::HEAP;
use crate::sys::{nr, sc};

const MADV_COLLAPSE: u64 = 25;

/// See the module's header.
pub struct Own {
    forks: u32,
    next: u32,
}

impl Own {
    /// Before so many forks, and four times as many each time, because meanwhile the kept process
    /// has written to some of them, which makes them small again.
    const FIRST: u32 = 12;

    pub const fn new() -> Own {
        Own {
            forks: 0,
            next: Own::FIRST,
        }
    }

    /// Before a fork.
    pub fn prepare(&mut self) {
        self.forks = self.forks.saturating_add(1);
        if self.forks < self.next || !are_there_large_pages() {
            return;
        }
        self.next = self.next.saturating_mul(4);
        with_large_pages(|| {
            let heap = HEAP.used();
            let code = ENGINE.lock().code_in_use();
            for (from, to) in core::iter::once(heap).chain(code) {
                let from = from / LARGE * LARGE;
                let len = to.next_multiple_of(LARGE) - from;
                // SAFETY: our own memory, of which the content stays; there is room up to the end
                // of the last page. Kernels before 6.1 do not know that.
                unsafe { sc!(nr::MADVISE, from, len, MADV_COLLAPSE) };
            }
        });
    }
}
