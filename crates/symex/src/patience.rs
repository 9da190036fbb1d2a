//! How long runs may take.
//!
//! What a program usually takes is seen from the runs that have ended. So one that does not end
//! costs some times that, not a fixed time that is long enough for any program. The machine may be
//! busy with something else, though: that a program does not end is believed only if it was given
//! much more time.
//!
//! Deviation: time is counted, not steps, so that what is cut off may differ from machine to
//! machine.

use std::time::Duration;

/// Nobody knows how long the program takes.
const FIRST: Duration = Duration::from_secs(20);
/// No run is given less.
const LEAST: Duration = Duration::from_secs(1);
/// Nor less than this, once it is known that some runs do not end: more of them are to be expected.
const LEAST_KNOWN: Duration = Duration::from_millis(500);
/// So many times as long as the slowest run that has ended.
const FACTOR: u32 = 20;
/// A run that has not ended for so long does not end.
const BELIEVED: Duration = Duration::from_secs(10);
/// The same, as often as long as the user has said.
const BELIEVED_FACTOR: u32 = 5;
/// A run that is followed gets so many times as long as another one.
const FOLLOWED_FACTOR: u32 = 20;
/// But no less than this, and no more.
const FOLLOWED: (Duration, Duration) = (Duration::from_secs(10), Duration::from_secs(60));
/// Of a run that does not end, so much is followed besides what the slowest took that has.
const FOLLOWED_ENDLESS: Duration = Duration::from_secs(2);

/// See the module's header.
#[derive(Clone, Copy, Debug, Default)]
pub struct Patience {
    /// What the user has said.
    fixed: Option<Duration>,
    /// The slowest run that has ended.
    slowest: Option<Duration>,
    /// The slowest of those that were followed.
    slowest_followed: Duration,
}

impl Patience {
    /// Of a program that was not run. `fixed` is what the user has said.
    pub fn new(fixed: Option<Duration>) -> Patience {
        Patience {
            fixed,
            ..Patience::default()
        }
    }

    /// For a run. `knows_hang`: others are known not to end.
    pub fn of_run(&self, knows_hang: bool) -> Duration {
        let least = match knows_hang {
            true => LEAST_KNOWN,
            false => LEAST,
        };
        match (self.fixed, self.slowest) {
            (Some(fixed), _) => fixed,
            (None, None) => FIRST,
            (None, Some(slowest)) => (FACTOR * slowest).clamp(least, FIRST),
        }
    }

    /// For a run that has not ended in the time that it had.
    pub fn of_doubt(&self) -> Duration {
        match self.fixed {
            Some(fixed) => fixed.saturating_mul(BELIEVED_FACTOR),
            None => self.of_run(false).max(BELIEVED),
        }
    }

    /// For a run that is followed; `is_endless`: it has not ended when it was not.
    pub fn of_followed(&self, is_endless: bool) -> Duration {
        let (least, most) = FOLLOWED;
        match is_endless {
            true => (FOLLOWED_ENDLESS + 3 * self.slowest_followed).min(most),
            false => {
                let plain = self.of_run(false).saturating_mul(FOLLOWED_FACTOR);
                plain.clamp(least, most)
            }
        }
    }

    /// A run has ended by itself.
    pub fn ended(&mut self, after: Duration) {
        self.slowest = self.slowest.max(Some(after));
    }

    /// One that was followed has.
    pub fn ended_followed(&mut self, after: Duration) {
        self.slowest_followed = self.slowest_followed.max(after);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_usual_decides() {
        let mut patience = Patience::new(None);
        assert_eq!(patience.of_run(false), FIRST);
        patience.ended(Duration::from_millis(10));
        patience.ended(Duration::from_millis(5));
        assert_eq!(patience.of_run(false), LEAST);
        assert_eq!(patience.of_run(true), LEAST_KNOWN);
        assert_eq!(patience.of_doubt(), BELIEVED);
        patience.ended(Duration::from_millis(200));
        assert_eq!(patience.of_run(true), Duration::from_secs(4));
        patience.ended(Duration::from_secs(3));
        assert_eq!(patience.of_run(true), FIRST);
        assert_eq!(patience.of_doubt(), FIRST);
    }

    #[test]
    fn what_the_user_says_decides() {
        let mut patience = Patience::new(Some(Duration::from_millis(200)));
        patience.ended(Duration::from_secs(3));
        assert_eq!(patience.of_run(false), Duration::from_millis(200));
        assert_eq!(patience.of_doubt(), Duration::from_secs(1));
    }

    #[test]
    fn what_is_followed_has_more_time_but_for_what_does_not_end() {
        let mut patience = Patience::new(None);
        assert_eq!(patience.of_followed(false), FOLLOWED.1);
        assert_eq!(patience.of_followed(true), FOLLOWED_ENDLESS);
        patience.ended(Duration::from_millis(1));
        patience.ended_followed(Duration::from_secs(1));
        assert_eq!(patience.of_followed(false), Duration::from_secs(20));
        assert_eq!(patience.of_followed(true), Duration::from_secs(5));
    }
}
