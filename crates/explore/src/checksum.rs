//! Recognises data that carries its own checksum.
//!
//! Recovery that verifies a checksum reads much uncertain data and then takes all of it or none: of
//! its many torn contents each is rejected alike, unless it has the right checksum by chance. Which
//! function a recovery computes is not known; but if a well-known one, over a stretch that covers
//! something uncertain, gives exactly what is stored there, then that is no accident: a sum of 64
//! bits matches by chance once in 10^19 times, one of 32 bits (tried some thousand times) once in a
//! million. What is read behind the stretch is not covered.
//!
//! Which way it errs: data with a checksum of another kind is not recognised. That a recovery which
//! keeps such a sum also looks at it, and does nothing else with what it has rejected, is not seen
//! here; the search wants recovery to have read the sum, and all torn contents that it has tried to
//! end alike, or as what is not torn does, before it believes it. That is no proof, so what it
//! leaves out for this reason is told as a limitation.

use std::cmp::Reverse;

/// Bytes before what is uncertain at which the summed stretch may begin: a header may be certain
/// already.
pub const BEFORE: usize = 1024;
/// Bytes behind it at which it may end: what was not written to is summed, too.
pub const BEHIND: usize = 8192;
/// A log is not reused more often in a run that somebody explores.
const GENERATIONS: u32 = 1 << 16;
/// Sums stand at word boundaries.
const WORD: usize = 8;
/// Less than this, the sum included, may be something else that happens to look like one.
const STRETCH_MIN: usize = 4 * WORD;

/// A stretch that has its own checksum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Summed {
    /// Where it begins and ends, the sum included.
    pub start: usize,
    pub end: usize,
    /// Where the sum is, and how long.
    pub sum: (usize, usize),
}

/// The longest stretch of `bytes` that covers what is at `from` and has its checksum beside it or
/// in it. `ends` are where reads of something uncertain end, in order.
pub fn stretch(bytes: &[u8], from: usize, ends: &[usize]) -> Option<Summed> {
    let first = from / WORD * WORD;
    if first + WORD > bytes.len() {
        return None;
    }
    let starts = (first.saturating_sub(BEFORE)..=first).step_by(WORD);
    let stretches = starts.filter_map(|start| {
        let at_least = (first + WORD - start).max(STRETCH_MIN);
        let fletcher = fletcher_within(&bytes[start..], at_least);
        // Only near what is uncertain: a sum of 32 bits must not be looked for everywhere.
        let crc = match start + 64 < first {
            true => None,
            false => crc_within(&bytes[start..], at_least, start, ends),
        };
        let (length, (at, size)) = fletcher.max(crc)?;
        Some(Summed {
            start,
            end: start + length,
            sum: (start + at, size),
        })
    });
    stretches.max_by_key(|found| (found.end, Reverse(found.start)))
}

/// How long a stretch is, and where in it the sum is, and how long that is.
type Found = (usize, (usize, usize));

fn word(bytes: &[u8], at: usize) -> Option<u64> {
    let bytes = bytes.get(at..at + 8)?;
    bytes.try_into().ok().map(u64::from_le_bytes)
}

/// Fletcher's sum over 32-bit words, as PMDK computes it: the sum itself counts as zero.
#[derive(Clone, Copy, Default)]
struct Fletcher {
    low: u32,
    high: u32,
}

impl Fletcher {
    fn add(&mut self, word: u64) {
        for half in [word as u32, (word >> 32) as u32] {
            self.low = self.low.wrapping_add(half);
            self.high = self.high.wrapping_add(self.low);
        }
    }

    fn value(self) -> u64 {
        u64::from(self.high) << 32 | u64::from(self.low)
    }

    /// Whether the sum is this one, or becomes it by one more word that is small: libpmemobj's logs
    /// add the number of their generation, which stands elsewhere.
    fn is(self, stored: u64) -> bool {
        let (low, high) = (stored as u32, (stored >> 32) as u32);
        let number = low.wrapping_sub(self.low);
        let mut more = self;
        more.add(u64::from(number));
        self.value() == stored || number < GENERATIONS && (more.low, more.high) == (low, high)
    }
}

/// The longest stretch from the beginning of the bytes that has its sum in one of its first words,
/// or in its last.
fn fletcher_within(bytes: &[u8], at_least: usize) -> Option<Found> {
    let heads = [0, WORD, 2 * WORD];
    let stored = heads.map(|at| word(bytes, at).filter(|sum| *sum != 0));
    let mut sums = [Fletcher::default(); 3];
    let mut all = Fletcher::default();
    let mut found = None;
    for at in (0..bytes.len() / WORD * WORD).step_by(WORD) {
        let Some(word) = word(bytes, at) else { break };
        for (i, head) in heads.into_iter().enumerate() {
            sums[i].add(if at == head { 0 } else { word });
        }
        let mut ending = all;
        ending.add(0);
        all.add(word);
        if at + WORD < at_least {
            continue;
        }
        let is_it = |i: &usize| at > heads[*i] && stored[*i].is_some_and(|sum| sums[*i].is(sum));
        if let Some(head) = (0..3).find(is_it) {
            found = Some((at + WORD, (heads[head], WORD)));
        } else if word != 0 && ending.value() == word {
            found = Some((at + WORD, (at, WORD)));
        }
    }
    found
}

/// The polynomials of zlib and of the processor's instruction, reflected.
const POLYNOMIALS: [u32; 2] = [0xedb8_8320, 0x82f6_3b78];

/// The longest stretch from the beginning of the bytes that begins with its CRC-32 and ends with a
/// read, or soon after the last.
fn crc_within(bytes: &[u8], at_least: usize, start: usize, ends: &[usize]) -> Option<Found> {
    let last = ends.last().copied()?;
    let is_end = |end: usize| {
        ends.binary_search(&(start + end)).is_ok() || (last..=last + 256).contains(&(start + end))
    };
    let half = |at: usize| {
        let bytes = bytes.get(at..at + 4)?;
        bytes.try_into().ok().map(u32::from_le_bytes)
    };
    // The sum of four bytes with all bits set is the same, and stays so however many zeros follow.
    let stored = [half(0), half(4)].map(|sum| sum.filter(|sum| ![0, u32::MAX].contains(sum)));
    let mut found = None;
    for polynomial in POLYNOMIALS {
        for data in [4, 8] {
            let mut crc = u32::MAX;
            let all = bytes.len().min((last + 256).saturating_sub(start));
            for (at, byte) in bytes[..all].iter().enumerate().skip(data) {
                crc ^= u32::from(*byte);
                for _ in 0..8 {
                    crc = crc >> 1 ^ polynomial & (crc & 1).wrapping_neg();
                }
                let place = stored.iter().position(|sum| *sum == Some(!crc));
                if at + 1 >= at_least
                    && let Some(place) = place
                    && is_end(at + 1)
                {
                    found = found.max(Some((at + 1, (4 * place, 4))));
                }
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fletcher(bytes: &[u8], at: usize) -> u64 {
        let mut sum = Fletcher::default();
        for i in (0..bytes.len()).step_by(8) {
            sum.add(if i == at { 0 } else { word(bytes, i).unwrap() });
        }
        sum.value()
    }

    /// Whether one stretch covers all of this.
    fn covers(bytes: &[u8], from: usize, to: usize) -> bool {
        stretch(bytes, from, &[to]).is_some_and(|found| found.start <= from && to <= found.end)
    }

    /// Something that looks like data, between zeros.
    fn data() -> Vec<u8> {
        let mut bytes = vec![0; 2048];
        for (i, byte) in bytes[512..1200].iter_mut().enumerate() {
            *byte = (i * 7 + i / 64) as u8;
        }
        bytes
    }

    #[test]
    fn a_sum_in_front_or_behind_is_found_and_torn_data_has_none() {
        for (start, end, at) in [(512, 1280, 512), (448, 1200, 456), (512, 1216, 1208)] {
            let mut bytes = data();
            let sum = fletcher(&bytes[start..end], at - start);
            bytes[at..at + 8].copy_from_slice(&sum.to_le_bytes());
            assert!(covers(&bytes, 520, 1200), "{start}..{end}, {at}");
            let found = stretch(&bytes, 520, &[1200]).expect("it covers that");
            assert_eq!(found.sum, (at, 8));
            // Not everything is covered. (Zeros in front add nothing to a sum, so they may count to
            // it.)
            assert!(!covers(&bytes, 520, end + 8));
            bytes[700] ^= 1;
            assert!(!covers(&bytes, 520, 1200));
        }
    }

    #[test]
    fn a_generation_may_be_part_of_it() {
        for generation in [1, 300, 40_000, 1 << 40] {
            let mut bytes = data();
            let mut sum = Fletcher::default();
            for i in (512..1216).step_by(8) {
                sum.add(if i == 520 {
                    0
                } else {
                    word(&bytes, i).unwrap()
                });
            }
            sum.add(generation);
            bytes[520..528].copy_from_slice(&sum.value().to_le_bytes());
            assert_eq!(covers(&bytes, 512, 1200), generation < 1 << 16);
        }
    }

    #[test]
    fn a_crc_is_found() {
        let crc = |bytes: &[u8], polynomial: u32| {
            let mut crc = u32::MAX;
            for byte in bytes {
                crc ^= u32::from(*byte);
                for _ in 0..8 {
                    crc = if crc & 1 == 1 {
                        crc >> 1 ^ polynomial
                    } else {
                        crc >> 1
                    };
                }
            }
            !crc
        };
        assert_eq!(crc(b"123456789", POLYNOMIALS[0]), 0xcbf4_3926);
        assert_eq!(crc(b"123456789", POLYNOMIALS[1]), 0xe306_9283);
        for polynomial in POLYNOMIALS {
            let mut bytes = data();
            let sum = crc(&bytes[516..1100], polynomial);
            bytes[512..516].copy_from_slice(&sum.to_le_bytes());
            assert!(covers(&bytes, 512, 1100));
            assert_eq!(
                stretch(&bytes, 512, &[1100]).map(|found| found.sum),
                Some((512, 4))
            );
            bytes[1000] ^= 1;
            assert!(!covers(&bytes, 512, 1100));
        }
    }

    /// As in libpmemobj's redo logs: what says that there is no further entry lies behind what is
    /// summed.
    #[test]
    fn what_lies_behind_is_not_covered() {
        let mut bytes = data();
        let sum = fletcher(&bytes[512..912], 0);
        bytes[512..520].copy_from_slice(&sum.to_le_bytes());
        assert_eq!(
            stretch(&bytes, 520, &[920]).map(|found| found.end),
            Some(912)
        );
        assert_eq!(stretch(&bytes, 912, &[920]), None);
    }

    #[test]
    fn nothing_is_no_sum() {
        assert!(!covers(&[0; 4096], 256, 1024));
        assert!(!covers(&data(), 512, 1200));
        assert!(!covers(&[1; 64], 0, 100), "it is not all there");
        let mut bytes = [0; 4096];
        bytes[600..608].fill(u8::MAX);
        assert_eq!(stretch(&bytes, 608, &[616]), None);
    }
}
