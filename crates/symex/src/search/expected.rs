//! Whether a run has gone where the solver has said.
//!
//! A run and the one that its input was made from are the same up to the decision that was turned.
//! What that is cannot be said by counting, for two things may differ without the program having
//! gone elsewhere:
//!
//! | differs | because |
//! |---|---|
//! | what was captured | instructions that were not, then, have decided as much, unseen |
//! | where an access is asked whether it may fault | what it is about may have become known in between |
//!
//! So neither counts, unless it is itself what was turned.

use std::sync::Arc;

use crate::path::{Decision, Kind, mix};

/// What a run is expected to do.
pub(super) struct Expected {
    /// A number for all decisions before it that count, and how many there are.
    pub(super) before: u64,
    pub(super) count: usize,
    pub(super) pc: u64,
    pub(super) kind: Kind,
    /// The way that it has gone.
    pub(super) way: u64,
    /// The instructions that were captured when it was known.
    pub(super) chosen: Arc<[u64]>,
}

/// Whether a decision tells where a run has gone.
pub(super) fn counts(decision: &Decision) -> bool {
    !matches!(decision.kind, Kind::Fault(_))
}

/// A number for all that counts up to this decision, from that for all before it.
pub(super) fn and(before: u64, decision: &Decision) -> u64 {
    match counts(decision) {
        true => mix(before, decision.name()),
        false => before,
    }
}

impl Expected {
    /// Whether these decisions of a run go there.
    pub(super) fn is_met(&self, decisions: &[Decision]) -> bool {
        // System calls, which always are captured, have small numbers.
        const SYSTEM_CALLS: u64 = 0x1_0000;
        let is_known =
            |d: &&Decision| d.pc < SYSTEM_CALLS || self.chosen.binary_search(&d.pc).is_ok();
        let (mut count, mut before) = (0, 0);
        for decision in decisions.iter().filter(is_known) {
            let is_there = (count, before) == (self.count, self.before);
            let is_it = (decision.pc, decision.kind) == (self.pc, self.kind);
            // The same access may be asked about several times in a row.
            if is_there && is_it && decision.way != self.way {
                return true;
            }
            if counts(decision) {
                if count == self.count {
                    return false;
                }
                count += 1;
                before = and(before, decision);
            }
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::path::{Fault, Progress};
    use brownout_solve::Pool;

    const BEHIND: Kind = Kind::Fault(Fault::Behind);

    fn path(all: &[(u64, Kind, u64)]) -> Vec<Decision> {
        let condition = Pool::new().constant(1, 1);
        let decision = |&(pc, kind, way): &(u64, Kind, u64)| Decision {
            pc: pc << 32,
            kind,
            way,
            condition,
            value: None,
            shape: 0,
            bytes: (0, 0),
            pm: Progress::default(),
            to: 0,
            distance: None,
        };
        all.iter().map(decision).collect()
    }

    /// That the last decision of a path is turned, of which these instructions were captured.
    fn last_of(decisions: &[Decision], captured: &[u64]) -> Expected {
        let (last, rest) = decisions.split_last().expect("a decision");
        Expected {
            before: rest.iter().fold(0, and),
            count: rest.iter().filter(|d| counts(d)).count(),
            pc: last.pc,
            kind: last.kind,
            way: last.way,
            chosen: captured.iter().map(|pc| pc << 32).collect(),
        }
    }

    #[test]
    fn a_question_that_was_not_asked_before_is_no_other_path() {
        let parent = path(&[(1, Kind::Branch, 0), (3, Kind::Branch, 0)]);
        let expected = last_of(&parent, &[1, 2, 3]);
        let asked = path(&[(1, Kind::Branch, 0), (2, BEHIND, 0), (3, Kind::Branch, 1)]);
        assert!(expected.is_met(&asked));
        // The other way round, too.
        let parent = path(&[(1, Kind::Branch, 0), (2, BEHIND, 0), (3, Kind::Branch, 0)]);
        let expected = last_of(&parent, &[1, 2, 3]);
        let not_asked = path(&[(1, Kind::Branch, 0), (3, Kind::Branch, 1)]);
        assert!(expected.is_met(&not_asked));
    }

    #[test]
    fn a_fault_that_was_turned_is_looked_for() {
        let parent = path(&[(1, Kind::Branch, 0), (2, BEHIND, 0)]);
        let expected = last_of(&parent, &[1, 2]);
        let before = Kind::Fault(Fault::Before);
        assert!(expected.is_met(&path(&[
            (1, Kind::Branch, 0),
            (2, before, 0),
            (2, BEHIND, 0),
            (2, BEHIND, 1),
        ])));
        for other in [
            &[(1, Kind::Branch, 0), (2, BEHIND, 0)][..],
            &[(1, Kind::Branch, 0)],
            &[(1, Kind::Branch, 1), (2, BEHIND, 1)],
            &[(1, Kind::Branch, 0), (1, Kind::Branch, 0), (2, BEHIND, 1)],
        ] {
            assert!(!expected.is_met(&path(other)), "{other:?}");
        }
    }

    #[test]
    fn another_way_to_it_is_another_path() {
        let parent = path(&[
            (1, Kind::Branch, 0),
            (2, Kind::Branch, 0),
            (3, Kind::Branch, 0),
        ]);
        let expected = last_of(&parent, &[1, 2, 3]);
        let met = |ways: &[(u64, u64)]| {
            let all: Vec<_> = ways
                .iter()
                .map(|(pc, way)| (*pc, Kind::Branch, *way))
                .collect();
            expected.is_met(&path(&all))
        };
        assert!(met(&[(1, 0), (2, 0), (3, 1), (9, 0)]));
        // What was not captured then may have decided all the same.
        assert!(met(&[(1, 0), (9, 0), (2, 0), (3, 1)]));
        assert!(!met(&[(1, 0), (2, 0), (3, 0)]));
        assert!(!met(&[(1, 0), (2, 1), (3, 1)]));
        assert!(!met(&[(1, 0), (3, 1)]));
        assert!(!met(&[]));
    }
}
