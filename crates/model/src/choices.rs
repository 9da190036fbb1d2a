//! What one unit may hold after a crash, looked at on its own.
//!
//! [`CrashState`](crate::CrashState) borrows a whole [`History`](crate::History) and answers for
//! one moment. An exploration visits many moments, in any order, on several threads; [`Choices`] is
//! one unit at one moment, self-contained, and [`Cut`]s say how far reads have narrowed it.
//! Guarantee: the same contents as `CrashState`, for domains in which units are independent
//! ([`Rules::orders_epochs`](crate::Rules) is false; a property test compares the two). Reads that
//! see equal bytes are one outcome: a list of cuts stands for the union of what each allows.

use crate::types::{ByteRange, LINE_BYTES, Moment, Unit};

/// Bytes of a line as a bit set: bit i is byte i.
pub type LineMask = u64;

/// Content of a line; bytes outside the mask of a read are zero.
pub type LineBytes = [u8; LINE_BYTES as usize];

/// A store that may or may not have survived.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UncertainWrite {
    /// When it was made.
    pub moment: Moment,
    /// Which bytes.
    pub range: ByteRange,
    /// What it stored there.
    pub bytes: Box<[u8]>,
    /// A non-temporal store, unordered with all others until its fence.
    pub unordered: bool,
    /// It certainly survived, whatever happened to those before it.
    pub certain: bool,
}

/// What one unit may hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Choices {
    pub(crate) unit: Unit,
    /// Content without the stores in `writes`.
    pub(crate) base: Box<[u8]>,
    /// Stores after that, in cache order.
    pub(crate) writes: Vec<UncertainWrite>,
}

/// What is still possible: between `lo` and `hi` of the ordered stores survived; each unordered one
/// did, did not, or may have.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Cut {
    pub(crate) lo: usize,
    pub(crate) hi: usize,
    pub(crate) unordered: Vec<Option<bool>>,
}

/// One content: which stores survived.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Survivors {
    /// How many of the ordered stores, the oldest first.
    pub ordered: usize,
    /// Which of the unordered ones.
    pub unordered: Vec<bool>,
}

impl Choices {
    /// The unit.
    pub fn unit(&self) -> Unit {
        self.unit
    }

    /// Its size in bytes.
    pub fn size(&self) -> usize {
        self.base.len()
    }

    /// The stores that may be missing, in cache order.
    pub fn writes(&self) -> &[UncertainWrite] {
        &self.writes
    }

    /// True if there is only one content.
    pub fn is_certain(&self) -> bool {
        self.open().choices() <= 1.0
    }

    /// Everything that is possible.
    pub fn open(&self) -> Cut {
        Cut::open(self.writes.iter().map(|w| (w.unordered, w.certain)))
    }

    /// What is possible if the power has failed earlier, right after a moment: of the stores that
    /// were made later, none has survived. A state that was possible then is possible now, unless
    /// something has completed in between.
    pub fn open_until(&self, last: Moment) -> Cut {
        let mut cut = self.open();
        let ordered = self.writes.iter().filter(|write| !write.unordered);
        let made = ordered.take_while(|write| write.moment <= last).count();
        cut.hi = made.max(cut.lo);
        let unordered = self.writes.iter().filter(|write| write.unordered);
        for (choice, write) in cut.unordered.iter_mut().zip(unordered) {
            if choice.is_none() && write.moment > last {
                *choice = Some(false);
            }
        }
        cut
    }

    /// All that survives if the power stays.
    pub fn newest(&self) -> Survivors {
        let open = self.open();
        Survivors {
            ordered: open.hi,
            unordered: vec![true; open.unordered.len()],
        }
    }

    /// The content that these survivors make.
    pub fn content(&self, survivors: &Survivors) -> Box<[u8]> {
        let mut content = self.base.clone();
        for (write, present) in self.with_presence(survivors) {
            if present {
                let at = self.offset_of(write);
                content[at..at + write.bytes.len()].copy_from_slice(&write.bytes);
            }
        }
        content
    }

    /// The stores that did not survive.
    pub fn lost<'s>(&'s self, survivors: &Survivors) -> Vec<&'s UncertainWrite> {
        self.with_presence(survivors)
            .filter(|(_, present)| !present)
            .map(|(write, _)| write)
            .collect()
    }

    /// What a read of the bytes `mask` of the line at `offset` in the unit may see, given that one
    /// of `cuts` holds; and what then still holds. No two have equal bytes. The order is by age:
    /// the oldest write-back first.
    pub fn read(&self, cuts: &[Cut], offset: u64, mask: LineMask) -> Vec<(LineBytes, Vec<Cut>)> {
        let line_start = self.unit.0 * self.size() as u64 + offset;
        let overlaps: Vec<bool> = self
            .writes
            .iter()
            .map(|write| mask_within(write.range, line_start) & mask != 0)
            .collect();
        let mut seen: Vec<(LineBytes, Vec<Cut>)> = Vec::new();
        for cut in cuts {
            let unordered = self.writes.iter().map(|write| write.unordered);
            for cut in cut.split(unordered.zip(overlaps.iter().copied())) {
                let bytes = self.line(&cut, &overlaps, line_start, mask);
                match seen.iter_mut().find(|(other, _)| *other == bytes) {
                    Some((_, cuts)) => cuts.push(cut),
                    None => seen.push((bytes, vec![cut])),
                }
            }
        }
        seen
    }

    /// The masked bytes of a line if no store to its unit is left that could be lost. Most reads
    /// are of such lines, so this is quick.
    pub fn settled(&self, offset: u64, mask: LineMask) -> Option<LineBytes> {
        if !self.writes.is_empty() {
            return None;
        }
        let offset = offset as usize;
        let line = &self.base[offset..offset + LINE_BYTES as usize];
        Some(masked(line.try_into().ok()?, mask))
    }

    /// The masked bytes of a line under a cut that leaves none of them open.
    fn line(&self, cut: &Cut, overlaps: &[bool], line_start: u64, mask: LineMask) -> LineBytes {
        let offset = (line_start - self.unit.0 * self.size() as u64) as usize;
        let mut line: LineBytes = [0; LINE_BYTES as usize];
        line.copy_from_slice(&self.base[offset..offset + LINE_BYTES as usize]);
        for ((write, present), overlaps) in self.with_presence(&cut.oldest()).zip(overlaps) {
            if present && *overlaps {
                for (i, byte) in write.bytes.iter().enumerate() {
                    let at = write.range.start().0 + i as u64;
                    if (line_start..line_start + LINE_BYTES).contains(&at) {
                        line[(at - line_start) as usize] = *byte;
                    }
                }
            }
        }
        masked(&line, mask)
    }

    fn with_presence<'s, 'v>(
        &'s self,
        survivors: &'v Survivors,
    ) -> impl Iterator<Item = (&'s UncertainWrite, bool)> + use<'s, 'v> {
        let unordered = self.writes.iter().map(|write| write.unordered);
        self.writes.iter().zip(survivors.presence(unordered))
    }

    fn offset_of(&self, write: &UncertainWrite) -> usize {
        (write.range.start().0 % self.size() as u64) as usize
    }
}

impl Cut {
    /// Nothing is decided yet. Each store, in cache order, says whether it is unordered and whether
    /// it certainly survived.
    pub(crate) fn open(stores: impl Iterator<Item = (bool, bool)>) -> Cut {
        let (mut lo, mut hi, mut choices) = (0, 0, Vec::new());
        for (unordered, certain) in stores {
            if unordered {
                choices.push(certain.then_some(true));
            } else {
                lo += usize::from(certain);
                hi += 1;
            }
        }
        Cut {
            lo,
            hi,
            unordered: choices,
        }
    }

    /// The cuts into which a read divides this one, the oldest write-back first. Each store, in
    /// cache order, says whether it is unordered and whether the read overlaps it. What a cut of
    /// the result leaves open does not touch the read.
    pub(crate) fn split(&self, stores: impl Iterator<Item = (bool, bool)>) -> Vec<Cut> {
        let mut segments = Vec::new();
        let mut choices = vec![self.unordered.clone()];
        let mut lo = self.lo;
        let (mut nth_ordered, mut nth_unordered) = (0, 0);
        for (unordered, overlaps) in stores {
            if unordered {
                if overlaps && self.unordered[nth_unordered].is_none() {
                    choices = choices
                        .into_iter()
                        .flat_map(|choice| {
                            [false, true].map(|present| {
                                let mut choice = choice.clone();
                                choice[nth_unordered] = Some(present);
                                choice
                            })
                        })
                        .collect();
                }
                nth_unordered += 1;
            } else {
                if overlaps && (self.lo..self.hi).contains(&nth_ordered) {
                    segments.push((lo, nth_ordered));
                    lo = nth_ordered + 1;
                }
                nth_ordered += 1;
            }
        }
        segments.push((lo, self.hi));
        let mut cuts = Vec::with_capacity(segments.len() * choices.len());
        for (lo, hi) in segments {
            for unordered in &choices {
                let unordered = unordered.clone();
                cuts.push(Cut { lo, hi, unordered });
            }
        }
        cuts
    }

    /// How many contents eager enumeration would try. Two of them may be equal.
    pub fn choices(&self) -> f64 {
        self.choices_log2().exp2()
    }

    /// Its base-2 logarithm.
    pub fn choices_log2(&self) -> f64 {
        ((self.hi - self.lo + 1) as f64).log2() + self.unordered_open() as f64
    }

    /// How many unordered stores may or may not have survived.
    pub fn unordered_open(&self) -> usize {
        self.unordered.iter().filter(|c| c.is_none()).count()
    }

    /// The newest content of those.
    pub fn newest(&self) -> Survivors {
        Survivors {
            ordered: self.hi,
            unordered: self.unordered.iter().map(|c| c.unwrap_or(true)).collect(),
        }
    }

    /// One content of those; `choose` decides, by a number that is smaller than the one that it is
    /// given.
    pub fn pick(&self, mut choose: impl FnMut(usize) -> usize) -> Survivors {
        let ordered = self.lo + choose(self.hi - self.lo + 1);
        let mut decide = |choice: &Option<bool>| choice.unwrap_or_else(|| choose(2) == 1);
        Survivors {
            ordered,
            unordered: self.unordered.iter().map(&mut decide).collect(),
        }
    }

    /// Whether this is one of them.
    pub fn allows(&self, survivors: &Survivors) -> bool {
        let decided = self.unordered.iter().zip(&survivors.unordered);
        (self.lo..=self.hi).contains(&survivors.ordered)
            && self.unordered.len() == survivors.unordered.len()
            && decided
                .into_iter()
                .all(|(choice, present)| choice.is_none_or(|choice| choice == *present))
    }

    /// The oldest content of those.
    pub fn oldest(&self) -> Survivors {
        Survivors {
            ordered: self.lo,
            unordered: self.unordered.iter().map(|c| c.unwrap_or(false)).collect(),
        }
    }
}

impl Survivors {
    /// Which stores survived. Each, in cache order, says whether it is unordered.
    pub(crate) fn presence(
        &self,
        unordered: impl Iterator<Item = bool>,
    ) -> impl Iterator<Item = bool> {
        let (mut nth_ordered, mut nth_unordered) = (0, 0);
        unordered.map(move |unordered| {
            if unordered {
                nth_unordered += 1;
                let survived = self.unordered.get(nth_unordered - 1);
                survived.copied().unwrap_or(true)
            } else {
                nth_ordered += 1;
                nth_ordered <= self.ordered
            }
        })
    }
}

/// The bytes of `range` that lie in the line at `line_start`.
pub fn mask_within(range: ByteRange, line_start: u64) -> LineMask {
    let from = range.start().0.max(line_start);
    let to = range.end().0.min(line_start + LINE_BYTES);
    if from >= to {
        return 0;
    }
    let ones = u64::MAX >> (LINE_BYTES - (to - from));
    ones << (from - line_start)
}

/// Byte `i` is all ones where bit `i` is one.
fn whole_bytes(bits: u8) -> u64 {
    const EVERY: u64 = 0x0101_0101_0101_0101;
    // In byte `i`, bit `i` alone; then its highest bit says whether there is one.
    let own = u64::from(bits).wrapping_mul(EVERY) & 0x8040_2010_0804_0201;
    let some = ((own + 0x7f * EVERY) | own) >> 7 & EVERY;
    some * 0xff
}

/// The line with all bytes outside the mask zero.
pub fn masked(line: &LineBytes, mask: LineMask) -> LineBytes {
    let mut bytes = *line;
    if mask != u64::MAX {
        for (word, mask) in bytes
            .as_chunks_mut::<8>()
            .0
            .iter_mut()
            .zip(mask.to_le_bytes())
        {
            *word = (u64::from_le_bytes(*word) & whole_bytes(mask)).to_le_bytes();
        }
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mask_keeps_its_bytes_and_no_others() {
        let line: LineBytes = std::array::from_fn(|i| 0x80 | i as u8);
        let masks = (0..=u64::from(u8::MAX)).flat_map(|bits| [bits, bits << 28, bits << 56]);
        for mask in masks.chain([u64::MAX, u64::MAX - 1, 0x5555_5555_5555_5555]) {
            let bytes = masked(&line, mask);
            for (i, byte) in bytes.iter().enumerate() {
                let kept = if mask >> i & 1 == 1 { line[i] } else { 0 };
                assert_eq!(*byte, kept, "byte {i} of {mask:#x}");
            }
        }
    }
}
