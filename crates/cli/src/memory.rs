//! Large blocks of memory lie in large pages, where the system has them.
//!
//! What is known of each line of persistent memory comes in blocks of 2 MiB, hundreds of them in a
//! long run. In pages of 4 KiB, taking these from the kernel costs as much time as filling them.
//! Where transparent huge pages are off, the advice changes nothing.

use std::alloc::{GlobalAlloc, Layout, System};

/// Size of a large page, and of the smallest block that is put into some.
const LARGE: usize = 2 << 20;

/// The system's allocator, with advice to the kernel.
pub struct LargePages;

/// The layout that a block really has.
fn widened(layout: Layout) -> Option<Layout> {
    match layout.size() >= LARGE {
        true => layout.align_to(LARGE).ok(),
        false => None,
    }
}

// SAFETY: every block comes from `System` and goes back to it with the layout that it was asked
// for: which one that is follows from the caller's layout alone.
unsafe impl GlobalAlloc for LargePages {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let Some(wide) = widened(layout) else {
            // SAFETY: the caller's promise.
            return unsafe { System.alloc(layout) };
        };
        // SAFETY: of the same size, which is not 0, and a larger alignment.
        let block = unsafe { System.alloc(wide) };
        if !block.is_null() {
            // SAFETY: whole pages of our own block. It is advice: failure changes nothing.
            unsafe { libc::madvise(block.cast(), layout.size(), libc::MADV_HUGEPAGE) };
        }
        block
    }

    #[inline]
    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise, and the same layout as in `alloc`.
        unsafe { System.dealloc(block, widened(layout).unwrap_or(layout)) }
    }

    #[inline]
    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        if layout.size() < LARGE && size < LARGE {
            // SAFETY: the caller's promise.
            return unsafe { System.realloc(block, layout, size) };
        }
        // SAFETY: the caller promises that `size` fits with this alignment.
        let new = unsafe { Layout::from_size_align_unchecked(size, layout.align()) };
        // SAFETY: both blocks are of at least the copied length and do not overlap; the old one is
        // the caller's to give up.
        unsafe {
            let to = self.alloc(new);
            if !to.is_null() {
                std::ptr::copy_nonoverlapping(block, to, layout.size().min(size));
                self.dealloc(block, layout);
            }
            to
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Blocks that grow and shrink across the border keep their content.
    #[test]
    fn content_stays() {
        let mut bytes: Vec<u8> = Vec::new();
        for len in [1, LARGE - 1, LARGE, 3 * LARGE + 5, LARGE - 7, 10, 2 * LARGE] {
            let kept = bytes.len().min(len);
            let before = bytes[..kept].to_vec();
            bytes.resize(len, (len % 251) as u8);
            bytes.shrink_to_fit();
            assert_eq!(bytes[..kept], before);
            assert!(bytes[kept..].iter().all(|byte| *byte == (len % 251) as u8));
        }
        assert_eq!(vec![0u8; 2 * LARGE], [0u8; LARGE].repeat(2));
    }
}
