//! A page as the bytes in which it differs from another.
//!
//! A run changes a few words of a page, and a crash undoes some of them. So a page is written as
//! stretches of new bytes: how many bytes stay as they are, how many are new, and those. New bytes
//! rather than XOR, because much of what a program changes is a copy of something else that it
//! changes (an undo log holds what was there), which the compression of the whole record then
//! finds.

use crate::{PAGE_LEN, Page};

/// A gap of fewer equal bytes than this is written with the stretch: two more numbers cost as much.
const GAP_MIN: usize = 4;

/// What must be done to `from` to get `to`.
pub(crate) fn diff(from: &Page, to: &Page) -> Vec<u8> {
    let mut patch = Vec::new();
    // Where the last stretch ended.
    let mut done = 0;
    let mut at = 0;
    while let Some(start) = next_difference(from, to, at) {
        let mut end = start + 1;
        // How far the stretch goes: until GAP_MIN equal bytes follow.
        let mut equal = 0;
        let mut i = end;
        while i < PAGE_LEN && equal < GAP_MIN {
            if from[i] == to[i] {
                equal += 1;
            } else {
                equal = 0;
                end = i + 1;
            }
            i += 1;
        }
        put(&mut patch, start - done);
        put(&mut patch, end - start - 1);
        patch.extend_from_slice(&to[start..end]);
        done = end;
        at = end;
    }
    patch
}

/// In how many words two pages differ; cheaper than the patch, and a good guess of its length.
pub(crate) fn distance(a: &Page, b: &Page) -> usize {
    let words = a.chunks_exact(8).zip(b.chunks_exact(8));
    words.map(|(a, b)| usize::from(a != b)).sum()
}

/// Does it. `None`: that is no patch.
pub(crate) fn apply(page: &mut Page, mut patch: &[u8]) -> Option<()> {
    let mut at = 0;
    while !patch.is_empty() {
        let start = at + take(&mut patch)?;
        let len = take(&mut patch)? + 1;
        let (new, rest) = patch.split_at_checked(len)?;
        page.get_mut(start..start + len)?.copy_from_slice(new);
        patch = rest;
        at = start + len;
    }
    Some(())
}

fn next_difference(a: &Page, b: &Page, from: usize) -> Option<usize> {
    let mut at = from;
    // Word by word where that is possible.
    while at < PAGE_LEN {
        if at.is_multiple_of(8) && a[at..at + 8] == b[at..at + 8] {
            at += 8;
        } else if a[at] == b[at] {
            at += 1;
        } else {
            return Some(at);
        }
    }
    None
}

/// A number below 2^14, in one byte or two.
fn put(to: &mut Vec<u8>, number: usize) {
    debug_assert!(number < 1 << 14);
    if number < 0x80 {
        to.push(number as u8);
    } else {
        to.extend_from_slice(&[number as u8 | 0x80, (number >> 7) as u8]);
    }
}

fn take(from: &mut &[u8]) -> Option<usize> {
    let (&low, rest) = from.split_first()?;
    *from = rest;
    if low < 0x80 {
        return Some(usize::from(low));
    }
    let (&high, rest) = from.split_first()?;
    *from = rest;
    Some(usize::from(low & 0x7f) | usize::from(high) << 7)
}

#[cfg(test)]
mod tests {
    use brownout_random::Random;

    use super::*;

    #[test]
    fn patches_restore_what_they_were_made_from() {
        let mut random = Random::new(1);
        for round in 0..2000 {
            let mut from = [0; PAGE_LEN];
            for byte in &mut from {
                *byte = random.below(3) as u8;
            }
            let mut to = from;
            for _ in 0..random.below(40) {
                let at = random.index(PAGE_LEN);
                let len = random.index(100).min(PAGE_LEN - at);
                for byte in &mut to[at..at + len] {
                    *byte = random.below(3 + round % 200) as u8;
                }
            }
            let patch = diff(&from, &to);
            let mut made = from;
            assert_eq!(apply(&mut made, &patch), Some(()));
            assert!(made == to);
            assert_eq!(patch.is_empty(), from == to);
        }
    }

    #[test]
    fn all_of_a_page_and_its_ends() {
        let zero = [0; PAGE_LEN];
        let full = [7; PAGE_LEN];
        let patch = diff(&zero, &full);
        assert_eq!(patch.len(), PAGE_LEN + 3);
        let mut made = zero;
        apply(&mut made, &patch).unwrap();
        assert!(made == full);
        let mut ends = zero;
        (ends[0], ends[PAGE_LEN - 1]) = (1, 2);
        let mut made = full;
        apply(&mut made, &diff(&full, &ends)).unwrap();
        assert!(made == ends);
    }

    #[test]
    fn nonsense_is_no_patch() {
        let mut random = Random::new(2);
        for _ in 0..10_000 {
            let patch: Vec<u8> = (0..random.below(20)).map(|_| random.bits() as u8).collect();
            // Any answer will do, but it must be one.
            let _ = apply(&mut [0; PAGE_LEN], &patch);
        }
        assert_eq!(
            apply(&mut [0; PAGE_LEN], &[0, 5, 1]),
            None,
            "bytes are missing"
        );
        assert_eq!(
            apply(&mut [0; PAGE_LEN], &[0xff, 0x1f, 1, 1, 1]),
            None,
            "too far"
        );
    }
}
