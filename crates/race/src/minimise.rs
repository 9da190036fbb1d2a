//! Fewer decisions: the shortest list found that still shows the same.
//!
//! Delta debugging (Zeller and Hildebrandt, "Simplifying and isolating failure-inducing input",
//! 2002) on the list of a schedule: decisions are left out, half of them, a quarter, one by one.
//! What is left out changes what comes after it; so each attempt is a run of its own, which gives
//! its own list. Of a long list, its first decisions alone are tried before: whatever comes behind
//! the last that matters can be much.

use std::time::{Duration, Instant};

use brownout_host::Decision;

use crate::options::Error;

/// What may be spent on one list.
#[derive(Clone, Copy, Debug)]
pub struct Effort {
    /// Runs.
    pub runs: u32,
    /// Time.
    pub time: Duration,
}

/// Shorter lists than this are not tried with their first decisions alone.
const HEAD_MIN: usize = 16;

/// A list, and whether it is the shortest.
#[derive(Debug, PartialEq, Eq)]
pub struct Least {
    /// The shortest list found.
    pub decisions: Vec<Decision>,
    /// No decision of it can be left out. Else the effort was spent before that was known.
    pub is_least: bool,
}

/// The shortest list found. `shows` runs the program with some decisions, and gives the list of
/// that run if it still shows what is wanted.
pub fn minimise(
    decisions: Vec<Decision>,
    effort: Effort,
    mut shows: impl FnMut(&[Decision]) -> Result<Option<Vec<Decision>>, Error>,
) -> Result<Least, Error> {
    let begun = Instant::now();
    let mut best = decisions;
    let mut runs = 0;
    let mut head = HEAD_MIN;
    while 2 * head < best.len() && runs < effort.runs && begun.elapsed() <= effort.time {
        runs += 1;
        match shows(&best[..head])? {
            Some(list) if list.len() < best.len() => {
                best = list;
                break;
            }
            _ => head *= 4,
        }
    }
    let mut size = best.len().div_ceil(2);
    while size > 0 && !best.is_empty() {
        let mut at = 0;
        let mut is_shorter = false;
        while at < best.len() {
            if runs >= effort.runs || begun.elapsed() > effort.time {
                return Ok(Least {
                    decisions: best,
                    is_least: false,
                });
            }
            runs += 1;
            let without: Vec<Decision> = best[..at]
                .iter()
                .chain(&best[(at + size).min(best.len())..])
                .copied()
                .collect();
            match shows(&without)? {
                Some(list) if list.len() < best.len() => {
                    best = list;
                    is_shorter = true;
                }
                _ => at += size,
            }
        }
        if !is_shorter {
            size /= 2;
        }
        size = size.min(best.len());
    }
    Ok(Least {
        decisions: best,
        is_least: true,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(steps: &[u32]) -> Vec<Decision> {
        let decision = |step: &u32| Decision {
            step: *step,
            thread: 1,
            check: 0,
        };
        steps.iter().map(decision).collect()
    }

    const PLENTY: Effort = Effort {
        runs: 1000,
        time: Duration::from_secs(60),
    };

    #[test]
    fn only_what_is_needed_stays() {
        let all: Vec<u32> = (0..40).collect();
        let needs = |decisions: &[Decision]| {
            let has = |step| decisions.iter().any(|decision| decision.step == step);
            Ok((has(7) && has(31)).then(|| decisions.to_vec()))
        };
        let least = minimise(list(&all), PLENTY, needs).unwrap();
        assert_eq!(least.decisions, list(&[7, 31]));
        assert!(least.is_least);
    }

    #[test]
    fn what_comes_behind_the_last_that_matters_goes_at_once() {
        let all: Vec<u32> = (0..50_000).collect();
        let mut runs = 0;
        let needs = |decisions: &[Decision]| {
            runs += 1;
            let has = |step| decisions.iter().any(|decision| decision.step == step);
            Ok((has(3) && has(200)).then(|| decisions.to_vec()))
        };
        let effort = Effort {
            runs: 100,
            ..PLENTY
        };
        let least = minimise(list(&all), effort, needs).unwrap();
        assert_eq!(least.decisions, list(&[3, 200]));
        assert!(least.is_least && runs < 100, "{runs}");
    }

    #[test]
    fn nothing_is_lost_if_nothing_can_be_left_out() {
        let all = list(&[1, 2, 3]);
        let same = minimise(all.clone(), PLENTY, |some| {
            Ok((some.len() == 3).then(|| some.to_vec()))
        });
        assert_eq!(same.unwrap().decisions, all);
        assert!(
            minimise(Vec::new(), PLENTY, |_| Ok(None))
                .unwrap()
                .decisions
                .is_empty()
        );
    }

    #[test]
    fn it_ends_when_the_effort_is_spent() {
        let mut runs = 0;
        let effort = Effort { runs: 5, ..PLENTY };
        let all = list(&(0..100).collect::<Vec<_>>());
        let least = minimise(all, effort, |_| {
            runs += 1;
            Ok(None)
        });
        assert_eq!(runs, 5);
        assert!(!least.unwrap().is_least);
    }
}
