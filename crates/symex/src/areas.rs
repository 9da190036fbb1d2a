//! Where persistent memory is mapped: what an address may lead out of.
//!
//! Guarantee: an area consists of whole pages, all of which were mapped. Mappings that touch each
//! other are one area: who walks out of one is in the other.

use std::collections::BTreeMap;
use std::ops::Range;

const PAGE: u64 = 4096;

/// See the module's header.
#[derive(Clone, Debug, Default)]
pub struct Areas {
    /// From where to where; none overlaps another.
    mapped: BTreeMap<u64, u64>,
}

/// Whole pages.
fn pages(address: u64, len: u64) -> Range<u64> {
    let end = address.saturating_add(len);
    let end = end.checked_next_multiple_of(PAGE).unwrap_or(u64::MAX);
    address & !(PAGE - 1)..end
}

impl Areas {
    /// Persistent memory is mapped there.
    pub fn add(&mut self, address: u64, len: u64) {
        let Range { mut start, mut end } = pages(address, len);
        if start >= end {
            return;
        }
        while let Some((&other, &other_end)) = self.mapped.range(..=end).next_back()
            && other_end >= start
        {
            self.mapped.remove(&other);
            (start, end) = (start.min(other), end.max(other_end));
        }
        self.mapped.insert(start, end);
    }

    /// It is not mapped there any more.
    pub fn remove(&mut self, address: u64, len: u64) {
        let Range { start, end } = pages(address, len);
        while let Some((&other, &other_end)) = self.mapped.range(..end).next_back()
            && other_end > start
        {
            self.mapped.remove(&other);
            if other < start {
                self.mapped.insert(other, start);
            }
            if other_end > end {
                self.mapped.insert(end, other_end);
            }
        }
    }

    /// The area in which an address lies.
    pub fn around(&self, address: u64) -> Option<Range<u64>> {
        let (start, end) = self.mapped.range(..=address).next_back()?;
        (address < *end).then_some(*start..*end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mappings_that_touch_are_one_area() {
        let mut areas = Areas::default();
        areas.add(0x10000, 100);
        areas.add(0x12000, 0x1000);
        assert_eq!(areas.around(0x10fff), Some(0x10000..0x11000));
        assert_eq!(areas.around(0x11000), None);
        areas.add(0x11000, 0x1000);
        assert_eq!(areas.around(0x11000), Some(0x10000..0x13000));
        areas.add(0x8000, 0x20000);
        assert_eq!(areas.around(0x11000), Some(0x8000..0x28000));
        assert_eq!(areas.around(0x7fff), None);
    }

    #[test]
    fn what_is_unmapped_is_gone() {
        let mut areas = Areas::default();
        areas.add(0x10000, 0x8000);
        areas.add(0x20000, 0x1000);
        areas.remove(0x12000, 0x1000);
        assert_eq!(areas.around(0x11000), Some(0x10000..0x12000));
        assert_eq!(areas.around(0x12fff), None);
        assert_eq!(areas.around(0x13000), Some(0x13000..0x18000));
        areas.remove(0x11000, 0x100000);
        assert_eq!(areas.around(0x10000), Some(0x10000..0x11000));
        assert_eq!(areas.around(0x20000), None);
    }
}
