//! Decisions, and how a list of them is written down.

use alloc::vec::Vec;

use crate::seat::Point;

/// Decisions of one run. After so many of them everybody goes on as by itself, so that every run
/// can be repeated.
pub const DECISIONS_MAX: usize = 1 << 16;

/// Somebody went on who would not have by itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Decision {
    /// At this step of the run.
    pub step: u32,
    /// That thread.
    pub thread: u16,
    /// Made of all points up to there.
    pub check: u16,
}

/// Steps of one run that are written down, where that is asked for. Of a longer run, the first so
/// many.
pub const TURNS_MAX: usize = 1 << 13;

/// A step of a run: who came to it, and who went on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Turn {
    /// Which step.
    pub step: u32,
    /// Who had the turn; 0: the thread that had it was gone. (Threads are numbered from 1 on.)
    pub thread: u16,
    /// Who has it now.
    pub chosen: u16,
    /// Who could have got it: a bit for each of the first 63 threads, by number.
    pub able: u64,
    /// Where the thread stood that had it.
    pub point: Point,
}

impl Turn {
    /// Whether that thread could have gone on. Those above the 63rd are not known.
    pub fn could(&self, thread: u16) -> bool {
        thread < 64 && self.able >> thread & 1 != 0
    }
}

/// As bytes: the distance to the step before, the thread, the check. Numbers below 128 take one
/// byte.
pub fn encode(decisions: &[Decision]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut before = 0;
    for decision in decisions {
        number(&mut bytes, decision.step - before);
        number(&mut bytes, decision.thread.into());
        bytes.extend_from_slice(&decision.check.to_le_bytes());
        before = decision.step;
    }
    bytes
}

/// The list that was encoded; none if these bytes are no such list.
pub fn decode(mut bytes: &[u8]) -> Option<Vec<Decision>> {
    let mut decisions: Vec<Decision> = Vec::new();
    while !bytes.is_empty() {
        let distance = take_number(&mut bytes)?;
        let thread = u16::try_from(take_number(&mut bytes)?).ok()?;
        let (check, rest) = bytes.split_first_chunk::<2>()?;
        bytes = rest;
        let before = decisions.last().map_or(0, |decision| decision.step);
        // Steps grow, or the second of two would never come.
        if distance == 0 || decisions.len() == DECISIONS_MAX {
            return None;
        }
        decisions.push(Decision {
            step: before.checked_add(distance)?,
            thread,
            check: u16::from_le_bytes(*check),
        });
    }
    Some(decisions)
}

fn number(bytes: &mut Vec<u8>, mut value: u32) {
    while value >= 0x80 {
        bytes.push(value as u8 | 0x80);
        value >>= 7;
    }
    bytes.push(value as u8);
}

fn take_number(bytes: &mut &[u8]) -> Option<u32> {
    let mut value = 0u32;
    for shift in (0..35).step_by(7) {
        let (byte, rest) = bytes.split_first()?;
        *bytes = rest;
        let part = u32::from(byte & 0x7f);
        if shift == 28 && part > 0xf {
            return None;
        }
        value |= part << shift;
        if byte & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_come_back_as_they_were() {
        let at = |step, thread, check| Decision {
            step,
            thread,
            check,
        };
        let list = [at(1, 2, 0xffff), at(128, 300, 0), at(u32::MAX, 65_535, 7)];
        assert_eq!(decode(&encode(&list)).as_deref(), Some(&list[..]));
        assert_eq!(decode(&[]).as_deref(), Some(&[][..]));
    }

    #[test]
    fn what_is_no_list_is_refused() {
        for bytes in [
            &[1][..],
            &[1, 2],
            &[1, 2, 3],
            &[0, 2, 3, 4],
            &[0xff, 0xff, 0xff, 0xff, 0xff, 1, 2, 3],
            &[1, 0xff, 0xff, 0xff, 1, 1],
        ] {
            assert_eq!(decode(bytes), None, "{bytes:?}");
        }
        let list = [Decision::default(); 1];
        assert_eq!(decode(&encode(&list)), None, "step 0 never comes");
    }
}
