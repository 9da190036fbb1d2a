//! A label for each byte of an address space, page by page, where there are any.

use crate::sets::Label;
use std::collections::HashMap;
use std::hash::{BuildHasher, Hasher};

const PAGE: u64 = 4096;

/// The numbers of pages are spread well enough by one multiplication.
#[derive(Clone, Copy, Default)]
pub struct PageHash;

/// See [`PageHash`].
pub struct PageHasher(u64);

impl BuildHasher for PageHash {
    type Hasher = PageHasher;

    fn build_hasher(&self) -> PageHasher {
        PageHasher(0)
    }
}

impl Hasher for PageHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(u64::from(*byte));
        }
    }

    fn write_u32(&mut self, number: u32) {
        self.write_u64(number.into());
    }

    fn write_u64(&mut self, page: u64) {
        self.0 = (self.0 ^ page)
            .wrapping_mul(0x9E37_79B9_7F4A_7C15)
            .rotate_left(26);
    }
}

#[derive(Clone)]
struct Page {
    labels: Box<[Label; PAGE as usize]>,
    /// How many of them are not empty.
    live: u32,
}

/// See the module's header.
#[derive(Clone, Default)]
pub struct Bytes {
    pages: HashMap<u64, Page, PageHash>,
}

/// The parts of a range, page by page: the page, where in it, where in the range, how many bytes.
fn parts(at: u64, len: usize) -> impl Iterator<Item = (u64, usize, usize, usize)> {
    let mut done = 0;
    std::iter::from_fn(move || {
        let here = at.wrapping_add(done as u64);
        let within = (here % PAGE) as usize;
        let bytes = (len - done).min(PAGE as usize - within);
        let part = (here / PAGE, within, done, bytes);
        done += bytes;
        (bytes != 0).then_some(part)
    })
}

impl Bytes {
    /// Whether any of `len` bytes at `at` has a label.
    #[inline]
    pub fn any(&self, at: u64, len: usize) -> bool {
        if self.pages.is_empty() {
            return false;
        }
        parts(at, len).any(|(page, within, _, bytes)| {
            let page = self.pages.get(&page);
            page.is_some_and(|page| {
                page.labels[within..within + bytes]
                    .iter()
                    .any(|label| !label.is_none())
            })
        })
    }

    /// Labels of the bytes at `at`.
    pub fn read(&self, at: u64, labels: &mut [Label]) {
        for (page, within, done, bytes) in parts(at, labels.len()) {
            let to = &mut labels[done..done + bytes];
            match self.pages.get(&page) {
                Some(page) => to.copy_from_slice(&page.labels[within..within + bytes]),
                None => to.fill(Label::NONE),
            }
        }
    }

    /// Sets the labels of the bytes at `at`.
    pub fn write(&mut self, at: u64, labels: &[Label]) {
        for (number, within, done, bytes) in parts(at, labels.len()) {
            let from = &labels[done..done + bytes];
            let new = from.iter().filter(|label| !label.is_none()).count() as u32;
            if new == 0 && !self.pages.contains_key(&number) {
                continue;
            }
            let page = self.pages.entry(number).or_insert_with(|| Page {
                labels: vec![Label::NONE; PAGE as usize]
                    .into_boxed_slice()
                    .try_into()
                    .expect("a page"),
                live: 0,
            });
            let to = &mut page.labels[within..within + bytes];
            let old = to.iter().filter(|label| !label.is_none()).count() as u32;
            to.copy_from_slice(from);
            page.live = page.live + new - old;
            if page.live == 0 {
                self.pages.remove(&number);
            }
        }
    }

    /// Takes all labels from `len` bytes at `at`.
    pub fn clear(&mut self, at: u64, len: u64) {
        if self.pages.is_empty() || len == 0 {
            return;
        }
        let end = at.saturating_add(len);
        let (first, last) = (at / PAGE, (end - 1) / PAGE);
        let touched: Vec<u64> = match last - first < self.pages.len() as u64 {
            true => (first..=last)
                .filter(|page| self.pages.contains_key(page))
                .collect(),
            false => self
                .pages
                .keys()
                .copied()
                .filter(|page| (first..=last).contains(page))
                .collect(),
        };
        for page in touched {
            let from = at.max(page * PAGE);
            let to = end.min((page + 1).saturating_mul(PAGE));
            self.write(from, &vec![Label::NONE; (to - from) as usize]);
        }
    }

    /// What is at `from` is at `to` now.
    pub fn rename(&mut self, from: u64, to: u64, len: u64) {
        if self.pages.is_empty() || from == to {
            return;
        }
        let first = from / PAGE;
        let pages = len.div_ceil(PAGE);
        let mut moved: Vec<(u64, Vec<Label>)> = Vec::new();
        for (page, content) in &self.pages {
            if (first..first + pages).contains(page) {
                moved.push((*page, content.labels.to_vec()));
            }
        }
        self.clear(from, len);
        for (page, labels) in moved {
            self.write(to.wrapping_add((page - first) * PAGE), &labels);
        }
    }

    /// Whether there is no label at all.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.pages.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_cross_pages_and_leave_nothing_behind() {
        let mut bytes = Bytes::default();
        let labels: Vec<Label> = (1..=16).map(Label).collect();
        bytes.write(PAGE - 5, &labels);
        let mut read = [Label::NONE; 18];
        bytes.read(PAGE - 6, &mut read);
        assert_eq!(read[0], Label::NONE);
        assert_eq!(read[1..17], labels[..]);
        assert!(bytes.any(PAGE + 10, 8) && !bytes.any(PAGE + 11, 8));
        bytes.rename(PAGE, 9 * PAGE, PAGE);
        assert!(bytes.any(9 * PAGE, 1) && !bytes.any(PAGE, 16) && bytes.any(PAGE - 5, 1));
        bytes.clear(0, 100 * PAGE);
        assert!(bytes.is_empty());
    }

    #[test]
    fn a_part_of_a_page_can_be_cleared() {
        let mut bytes = Bytes::default();
        bytes.write(100, &[Label(1); 10]);
        bytes.clear(102, 6);
        let mut read = [Label(7); 10];
        bytes.read(100, &mut read);
        let none = Label::NONE;
        let one = Label(1);
        assert_eq!(
            read,
            [one, one, none, none, none, none, none, none, one, one]
        );
    }
}
