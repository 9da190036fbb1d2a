//! Accesses that leave persistent memory: how far they can be led.
//!
//! The solver says whether an access may lead in front of the memory, or behind its end. Wherever
//! its model leads, something may lie there, and then nothing is seen. So two inputs are run: one
//! that leads near, if that can be, and the one that leads the furthest of what is near.

use std::time::Instant;

use brownout_solve::{Answer, Expr};

use super::Search;
use super::pieces::changed;
use super::turn::Turn;
use crate::path::{Decision, Fault, Kind};

/// What is further away is a wild address, and no index that is too large: as a logarithm.
const NEAR: u32 = 32;
/// Less than a page further makes no difference.
const PAGE: u32 = 12;

/// What may be led out if this decision goes the other way: its distance, and whether that is
/// behind the end. Not an access that was outside: the other way of that is inside.
fn to_be_led_out(decision: &Decision) -> Option<(Expr, bool)> {
    let is_behind = match decision.kind {
        Kind::Fault(Fault::Behind) => true,
        Kind::Fault(Fault::Before) => false,
        _ => return None,
    };
    let is_inside = decision.way == 0;
    decision
        .distance
        .filter(|_| is_inside)
        .map(|distance| (distance, is_behind))
}

impl Search<'_> {
    /// An access leaves persistent memory with these changes of the input: those by which it stays
    /// near, if there are any. The input by which it goes furthest is run, too.
    pub(super) fn leads_out(
        &mut self,
        turn: Turn,
        path: &[Expr],
        goal: Expr,
        changes: Vec<(u32, u8)>,
    ) -> Vec<(u32, u8)> {
        let test = &self.tests[turn.test as usize];
        let decision = test.decisions[turn.at as usize];
        let Some((distance, is_behind)) = to_be_led_out(&decision) else {
            return changes;
        };
        let input = test.input.clone();
        let begun = Instant::now();
        let limit = match is_behind {
            true => 1i64 << NEAR,
            false => -(1i64 << NEAR),
        };
        let within = self.is_beyond(distance, limit, is_behind);
        let within = self.pool.not(within);
        let near = self.pool.and(goal, within);
        let Answer::Sat(nearest) = self.solver.solve(&mut self.pool, path, near, &input) else {
            self.numbers.solving_seconds += begun.elapsed().as_secs_f64();
            return changes;
        };
        let mut furthest = nearest.clone();
        for step in (PAGE..NEAR).rev() {
            let made = changed(&input, &furthest);
            let byte = |index: u32| made.get(index as usize).copied().unwrap_or(0);
            let now = self.pool.eval(distance, &byte) as i64;
            let wanted = match is_behind {
                true => now.saturating_add((1 << step) - 1),
                false => now.saturating_sub((1 << step) - 1),
            };
            let further = self.is_beyond(distance, wanted, is_behind);
            let further = self.pool.and(near, further);
            if let Answer::Sat(changes) = self.solver.solve(&mut self.pool, path, further, &input) {
                furthest = changes;
            }
        }
        self.numbers.solving_seconds += begun.elapsed().as_secs_f64();
        if furthest != nearest {
            self.make(changed(&input, &furthest), None, true);
        }
        nearest
    }

    /// That a distance is more than this, or, in front, less.
    fn is_beyond(&mut self, distance: Expr, limit: i64, is_behind: bool) -> Expr {
        let limit = self.pool.constant(64, u128::from(limit as u64));
        match is_behind {
            true => self.pool.slt(limit, distance),
            false => self.pool.slt(distance, limit),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::path::Progress;
    use brownout_solve::Pool;

    #[test]
    fn only_what_was_inside_is_led_out() {
        let mut pool = Pool::new();
        let distance = pool.input(0);
        let decision = |kind, way| Decision {
            pc: 1,
            kind,
            way,
            condition: distance,
            value: None,
            shape: 0,
            bytes: (0, 0),
            pm: Progress::default(),
            to: 0,
            distance: Some(distance),
        };
        let of = |kind, way| to_be_led_out(&decision(kind, way));
        assert_eq!(of(Kind::Fault(Fault::Behind), 0), Some((distance, true)));
        assert_eq!(of(Kind::Fault(Fault::Before), 0), Some((distance, false)));
        assert_eq!(of(Kind::Fault(Fault::Behind), 1), None);
        assert_eq!(of(Kind::Fault(Fault::Before), 1), None);
        assert_eq!(of(Kind::Fault(Fault::Zero), 0), None);
        assert_eq!(of(Kind::Branch, 0), None);
    }
}
