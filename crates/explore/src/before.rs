//! Files as they were before a run, in memory as far as anybody has asked for them.
//!
//! A search asks for the same few lines at every failure point, thousands of times each: a call to
//! the kernel for each of them took more time than the recoveries.
//!
//! Guarantee: a line is what the file held when the line's page was first asked for. The files are
//! copies that nobody changes (`recording.rs` makes them), so that is what they held before the
//! run. Beyond the end, and where a file cannot be read, there are zeros: a file grows by zeros.

use std::fs::File;
use std::sync::{Arc, OnceLock};

use brownout_model::LineBytes;

use crate::files::read_from;
use crate::line::LINE;

/// What is read at once.
const PAGE: usize = 4096;

/// The content of a page; none if it is all zero, as most of a pool is.
type Page = Option<Box<[u8; PAGE]>>;

/// See the module's header. A clone is the same file.
#[derive(Clone, Debug)]
pub struct Before(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    file: File,
    /// Up to the end of the file.
    pages: Box<[OnceLock<Page>]>,
}

impl Before {
    /// A file that nobody will change.
    pub fn new(file: File) -> Before {
        // What has no size cannot be read, either.
        let bytes = file.metadata().map_or(0, |meta| meta.len());
        let pages = bytes.div_ceil(PAGE as u64);
        Before(Arc::new(Inner {
            file,
            pages: (0..pages).map(|_| OnceLock::new()).collect(),
        }))
    }

    /// The line at an offset, which is a multiple of its size.
    pub fn line(&self, offset: u64) -> LineBytes {
        let mut line = [0; LINE];
        let page = (offset / PAGE as u64) as usize;
        if let Some(Some(bytes)) = self.0.page(page) {
            let at = (offset % PAGE as u64) as usize;
            line.copy_from_slice(&bytes[at..at + LINE]);
        }
        line
    }
}

impl Inner {
    fn page(&self, number: usize) -> Option<&Page> {
        let page = self.pages.get(number)?;
        Some(page.get_or_init(|| {
            let mut bytes = Box::new([0; PAGE]);
            read_from(&self.file, (number * PAGE) as u64, &mut bytes[..]);
            bytes.iter().any(|byte| *byte != 0).then_some(bytes)
        }))
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt;

    use super::*;

    /// Every line of a file with holes, an odd size and a page of zeros is what the file holds;
    /// beyond it there is nothing.
    #[test]
    fn lines_are_those_of_the_file() {
        let file = tempfile::tempfile().expect("a file");
        let size = 5 * PAGE as u64 + 100;
        file.set_len(size).expect("a size");
        for (at, byte) in [
            (3, 1),
            (PAGE as u64 - 1, 2),
            (3 * PAGE as u64 + 64, 3),
            (size - 1, 4),
        ] {
            file.write_all_at(&[byte], at).expect("a write");
        }
        let before = Before::new(file.try_clone().expect("a descriptor"));
        for _ in 0..2 {
            for offset in (0..7 * PAGE as u64).step_by(LINE) {
                let mut expected = [0; LINE];
                read_from(&file, offset, &mut expected);
                assert_eq!(before.line(offset), expected, "at {offset}");
            }
        }
        assert_eq!(before.line(u64::MAX - 63), [0; LINE]);
    }
}
