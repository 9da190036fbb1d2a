//! Goals: a store and a load of different threads that are to come together while the store is not
//! persistent.
//!
//! | a goal comes from | because |
//! |---|---|
//! | a meeting | a run has brought both to the same bytes, in whatever order |
//! | a prediction | neither locks nor any order that one run has shown keep them apart (`brownout_check`, as in `check --threads`) |
//!
//! Schedules are directed at goals (`pm_aware.rs` of `brownout_schedule`): the ones that were tried
//! least come first, predictions before mere meetings. What becomes of a prediction is its
//! [`Prospect`].

use std::collections::BTreeMap;

use brownout_host::{Goal, Pursuit};

use crate::predict::{Pair, Predicted};

/// Schedules that are directed at one goal before it counts as not met.
const TRIES: u32 = 12;
/// Schedules after which a prediction may count as refuted.
const REFUTED_AFTER: u32 = 6;
/// A goal that was met, and of which something was made that a crash was tried for, comes as late
/// as if it had been tried so many times more.
const MET_COUNTS: u32 = 3;
/// A search does not end for want of news before so many schedules were directed at each goal from
/// which something may still come.
const HOPE: u32 = 8;

/// What has become of a prediction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Prospect {
    /// A schedule has shown it: the load came before the store was persistent.
    Proven,
    /// In the schedules that were directed at it, whoever reads there was waiting for the thread
    /// that had stored, each time. (By a lock that is spun on nobody is seen to wait; such a
    /// prediction stays open.)
    Refuted,
    /// Neither.
    Open,
}

#[derive(Debug, Default)]
struct Aim {
    tries: u32,
    is_met: bool,
    /// A crash was tried that leaves what was made of it.
    is_judged: bool,
    predicted: Option<Predicted>,
    pursuit: Pursuit,
}

impl Aim {
    fn prospect(&self) -> Prospect {
        let Pursuit {
            excluded,
            outlasted,
            ..
        } = self.pursuit;
        match self.is_met {
            true => Prospect::Proven,
            false if self.tries >= REFUTED_AFTER && excluded > 0 && outlasted == 0 => {
                Prospect::Refuted
            }
            false => Prospect::Open,
        }
    }
}

/// How many there are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    pub goals: u64,
    pub met: u64,
    /// Schedules were directed at them without success.
    pub not_met: u64,
    pub predicted: u64,
    pub proven: u64,
    pub refuted: u64,
}

/// All goals, in an order that does not depend on when they were found.
#[derive(Debug, Default)]
pub struct Goals(BTreeMap<Pair, Aim>);

impl Goals {
    /// A run has brought both to the same bytes. True if that is new.
    pub fn meeting(&mut self, pair: Pair) -> bool {
        let mut is_new = false;
        self.0.entry(pair).or_insert_with(|| {
            is_new = true;
            Aim::default()
        });
        is_new
    }

    /// A run has shown the load before the store was persistent.
    pub fn met(&mut self, pair: Pair) {
        self.0.entry(pair).or_default().is_met = true;
    }

    /// What was made of it after it was met was tried by a crash.
    pub fn judged(&mut self, pair: Pair) {
        self.0.entry(pair).or_default().is_judged = true;
    }

    /// Whether something may come of schedules that are directed at goals: some are predicted and
    /// not settled, or were met and came to nothing that a crash could be tried for, and few
    /// schedules were directed at them.
    pub fn has_hopes(&self) -> bool {
        let is_hope = |aim: &Aim| {
            let is_open = match aim.is_met {
                true => !aim.is_judged,
                false => aim.predicted.is_some() && aim.prospect() == Prospect::Open,
            };
            is_open && aim.tries < HOPE
        };
        self.0.values().any(is_hope)
    }

    /// It was predicted. True if that is new.
    pub fn predict(&mut self, predicted: Predicted) -> bool {
        let aim = self.0.entry(predicted.pair).or_default();
        let is_new = aim.predicted.is_none();
        aim.predicted.get_or_insert(predicted);
        is_new
    }

    /// Where the lock that both take is given back too early, if that was predicted.
    pub fn unlock_of(&self, pair: Pair) -> Option<String> {
        self.0.get(&pair)?.predicted.as_ref()?.unlock.clone()
    }

    /// What the next schedule is to be directed at, and how many were before.
    pub fn next(&mut self) -> Option<(Goal, u32)> {
        let priority = |(_, aim): &(&Pair, &mut Aim)| {
            let met = match aim.is_met && aim.is_judged {
                true => MET_COUNTS,
                false => 0,
            };
            (aim.tries + met, aim.predicted.is_none() && !aim.is_met)
        };
        let (pair, aim) = self.0.iter_mut().min_by_key(priority)?;
        aim.tries += 1;
        let goal = Goal {
            store: pair.0,
            load: pair.1,
        };
        Some((goal, aim.tries - 1))
    }

    /// What became of a schedule that was directed at it.
    pub fn pursued(&mut self, goal: Goal, pursuit: Pursuit) {
        if let Some(aim) = self.0.get_mut(&(goal.store, goal.load)) {
            aim.pursuit.stores += pursuit.stores;
            aim.pursuit.excluded += pursuit.excluded;
            aim.pursuit.outlasted += pursuit.outlasted;
        }
    }

    /// In numbers.
    pub fn counts(&self) -> Counts {
        let count = |is: &dyn Fn(&Aim) -> bool| self.0.values().filter(|aim| is(aim)).count();
        let stands =
            |prospect| move |aim: &Aim| aim.predicted.is_some() && aim.prospect() == prospect;
        Counts {
            goals: self.0.len() as u64,
            met: count(&|aim| aim.is_met) as u64,
            not_met: count(&|aim| !aim.is_met && aim.tries >= TRIES) as u64,
            predicted: count(&|aim| aim.predicted.is_some()) as u64,
            proven: count(&stands(Prospect::Proven)) as u64,
            refuted: count(&stands(Prospect::Refuted)) as u64,
        }
    }

    /// Predictions in their words, with how they stand, and how many schedules were directed at
    /// them.
    pub fn predictions(&self) -> Vec<(String, Prospect, u32)> {
        let told = |aim: &Aim| {
            let words = aim.predicted.as_ref()?.words.clone();
            Some((words, aim.prospect(), aim.tries))
        };
        let mut all: Vec<_> = self.0.values().filter_map(told).collect();
        all.sort_by(|one, other| one.0.cmp(&other.0));
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pursuit(excluded: u32, outlasted: u32) -> Pursuit {
        Pursuit {
            stores: 1,
            excluded,
            outlasted,
        }
    }

    fn prospect(goals: &Goals) -> Prospect {
        goals.predictions()[0].1
    }

    fn predicted(pair: Pair) -> Predicted {
        Predicted {
            pair,
            unlock: Some("a.c:7".into()),
            ..Predicted::default()
        }
    }

    fn direct(goals: &mut Goals, times: u32, pursuit: Pursuit) {
        for _ in 0..times {
            let (goal, _) = goals.next().unwrap();
            goals.pursued(goal, pursuit);
        }
    }

    #[test]
    fn a_prediction_is_open_until_schedules_have_settled_it() {
        let mut goals = Goals::default();
        assert!(goals.predict(predicted((1, 2))));
        assert!(!goals.predict(predicted((1, 2))));
        assert_eq!(goals.unlock_of((1, 2)).as_deref(), Some("a.c:7"));
        assert_eq!(goals.unlock_of((2, 1)), None);
        assert_eq!(prospect(&goals), Prospect::Open);
        direct(&mut goals, REFUTED_AFTER - 1, pursuit(1, 0));
        assert_eq!(prospect(&goals), Prospect::Open);
        direct(&mut goals, 1, pursuit(1, 0));
        assert_eq!(prospect(&goals), Prospect::Refuted);
        // One schedule that shows it outweighs all that do not.
        goals.met((1, 2));
        assert_eq!(prospect(&goals), Prospect::Proven);
        assert_eq!(goals.counts().proven, 1);
    }

    #[test]
    fn who_was_not_kept_out_once_refutes_nothing() {
        let mut goals = Goals::default();
        goals.predict(predicted((1, 2)));
        direct(&mut goals, 20, pursuit(0, 0));
        assert_eq!(prospect(&goals), Prospect::Open);
        direct(&mut goals, 1, pursuit(1, 1));
        assert_eq!(prospect(&goals), Prospect::Open);
        assert_eq!(goals.counts().not_met, 1);
    }

    #[test]
    fn predictions_come_first_and_nobody_is_left_out() {
        let mut goals = Goals::default();
        assert!(goals.meeting((1, 1)));
        assert!(!goals.meeting((1, 1)));
        goals.predict(predicted((2, 2)));
        goals.met((3, 3));
        goals.judged((3, 3));
        let stores = |goals: &mut Goals, n| -> Vec<u64> {
            (0..n).map(|_| goals.next().unwrap().0.store).collect()
        };
        assert_eq!(stores(&mut goals, 2), [2, 1]);
        let later = stores(&mut goals, 9);
        assert!(later.contains(&3), "{later:?}");
    }

    #[test]
    fn what_was_met_and_came_to_nothing_is_hoped_for() {
        let mut goals = Goals::default();
        goals.meeting((1, 1));
        assert!(!goals.has_hopes());
        goals.met((2, 2));
        assert!(goals.has_hopes());
        // It comes before those that were not met.
        let (goal, before) = goals.next().unwrap();
        assert_eq!((goal.store, before), (2, 0));
        goals.judged((2, 2));
        assert!(!goals.has_hopes());
        goals.predict(predicted((3, 3)));
        // All three take turns.
        for _ in 0..3 * HOPE {
            assert!(goals.has_hopes());
            if goals.next().unwrap() == (Goal { store: 3, load: 3 }, HOPE - 1) {
                break;
            }
        }
        assert!(!goals.has_hopes());
    }
}
