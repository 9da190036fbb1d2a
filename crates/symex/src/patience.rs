//! How long runs may take.
//!
//! What a program usually takes is seen from the runs that have ended. So one that does not end
//! costs some times that, not a fixed time that is long enough for any program. The machine may be
//! busy with something else, though: that a program does not end is believed only if it was given
//! much more time.
//!
//! Nor may a run do more to persistent memory than some hundred times what is usual: what a program
//! does a million times it has done a thousand times, and meanwhile hundreds of other paths could
//! be run.
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
/// Once it is known that some runs do not end, slow ones are most often such as would end after
/// much longer: then no more than so many times as long as a usual run, and as the slowest.
const FACTOR_KNOWN: (u32, u32) = (50, 2);
/// So many times as many events as usual, and no fewer than this: what many programs do anyway
/// takes a fraction of a second.
const EVENTS_FACTOR: u64 = 256;
const EVENTS_LEAST: u64 = 200_000;
/// No run has more that ends.
pub const EVENTS_MAX: u64 = 20_000_000;
/// What takes so many times as much work as usual, and more than this, is dear: a piece of work is
/// an event, or an instruction that is evaluated.
const DEAR_FACTOR: u64 = 16;
const DEAR_LEAST: u64 = 20_000;
/// Of one run, so many instructions are evaluated: so many times what is usual, within these
/// bounds. One that does not end would take all memory.
const EVALUATED_FACTOR: u64 = 64;
const EVALUATED: (u64, u64) = (200_000, 2_000_000);
/// What is usual is known from so many runs on.
const KNOWN_FROM: u32 = 16;
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
    /// Of those that have ended: how long they took, in microseconds, and how much they did to
    /// persistent memory.
    times: Sizes,
    events: Sizes,
    /// That, and what was evaluated.
    work: Sizes,
}

/// How many numbers there were of each size, by powers of two.
#[derive(Clone, Copy, Debug)]
struct Sizes {
    counts: [u32; 64],
    all: u32,
}

impl Default for Sizes {
    fn default() -> Sizes {
        Sizes {
            counts: [0; 64],
            all: 0,
        }
    }
}

impl Sizes {
    fn add(&mut self, number: u64) {
        self.counts[number.checked_ilog2().unwrap_or(0) as usize] += 1;
        self.all += 1;
    }

    /// Half of them are no larger, to within a factor of two; none if there were few.
    fn usual(&self) -> Option<u64> {
        if self.all < KNOWN_FROM {
            return None;
        }
        let mut behind = 0;
        let size = self.counts.iter().position(|count| {
            behind += count;
            behind * 2 >= self.all
        })?;
        Some(2 << size.min(62))
    }
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
        match (self.fixed, self.slowest) {
            (Some(fixed), _) => fixed,
            (None, None) => FIRST,
            (None, Some(slowest)) if knows_hang => {
                let most = (FACTOR * slowest).min(FIRST);
                let (usual, slow) = FACTOR_KNOWN;
                let known = self.times.usual().map(Duration::from_micros);
                let enough = known.map_or(most, |known| (usual * known).max(slow * slowest));
                enough.min(most).max(LEAST_KNOWN)
            }
            (None, Some(slowest)) => (FACTOR * slowest).clamp(LEAST, FIRST),
        }
    }

    /// How many events of persistent memory a run may have.
    pub fn events(&self) -> u64 {
        let usual = self.events.usual();
        usual.map_or(EVENTS_MAX, |usual| {
            (usual.saturating_mul(EVENTS_FACTOR)).clamp(EVENTS_LEAST, EVENTS_MAX)
        })
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

    /// How many instructions of a run may be evaluated.
    pub fn evaluated(&self) -> u64 {
        let (least, most) = EVALUATED;
        let usual = self.work.usual();
        usual.map_or(most, |usual| {
            usual.saturating_mul(EVALUATED_FACTOR).clamp(least, most)
        })
    }

    /// Whether a run that has had so many events, and of which so much was evaluated, takes as long
    /// as many others. Counted, so that it is the same on any machine.
    pub fn is_dear(&self, events: u64, evaluated: u64) -> bool {
        let least = (self.work.usual()).map(|usual| usual.saturating_mul(DEAR_FACTOR));
        least.is_some_and(|least| events + evaluated > least.max(DEAR_LEAST))
    }

    /// A run has ended by itself, and has had so many events of persistent memory; so many
    /// instructions were evaluated.
    pub fn ended(&mut self, after: Duration, events: u64, evaluated: u64) {
        self.slowest = self.slowest.max(Some(after));
        self.times.add(after.as_micros() as u64);
        self.events.add(events);
        self.work.add(events.saturating_add(evaluated));
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
        patience.ended(Duration::from_millis(10), 1, 0);
        patience.ended(Duration::from_millis(5), 1, 0);
        assert_eq!(patience.of_run(false), LEAST);
        assert_eq!(patience.of_run(true), LEAST_KNOWN);
        assert_eq!(patience.of_doubt(), BELIEVED);
        patience.ended(Duration::from_millis(200), 1, 0);
        assert_eq!(patience.of_run(true), Duration::from_secs(4));
        patience.ended(Duration::from_secs(3), 1, 0);
        assert_eq!(patience.of_run(true), FIRST);
        assert_eq!(patience.of_doubt(), FIRST);
    }

    #[test]
    fn what_is_slow_among_runs_that_do_not_end_waits_for_less() {
        let mut patience = Patience::new(None);
        for _ in 0..KNOWN_FROM {
            patience.ended(Duration::from_millis(6), 100, 0);
        }
        patience.ended(Duration::from_millis(900), 100_000, 0);
        assert_eq!(patience.of_run(false), Duration::from_secs(18));
        assert_eq!(patience.of_run(true), Duration::from_millis(1800));
        patience.ended(Duration::from_secs(15), 100_000, 0);
        assert_eq!(patience.of_run(true), FIRST);
    }

    #[test]
    fn what_is_usual_bounds_what_a_run_does() {
        let mut patience = Patience::new(None);
        assert_eq!(patience.events(), EVENTS_MAX);
        for _ in 0..KNOWN_FROM {
            patience.ended(Duration::from_millis(6), 100, 0);
        }
        assert_eq!(patience.events(), EVENTS_LEAST);
        for _ in 0..2 * KNOWN_FROM {
            patience.ended(Duration::from_millis(6), 5_000, 0);
        }
        // No more than twice the median is taken for it.
        let usual = patience.events() / EVENTS_FACTOR;
        assert!((5_000..10_000).contains(&usual), "{usual}");
        for _ in 0..8 * KNOWN_FROM {
            patience.ended(Duration::from_millis(6), u64::MAX, 0);
        }
        assert_eq!(patience.events(), EVENTS_MAX);
    }

    #[test]
    fn what_takes_much_more_than_usual_is_dear() {
        let mut patience = Patience::new(None);
        assert!(!patience.is_dear(1 << 40, 0));
        assert_eq!(patience.evaluated(), EVALUATED.1);
        for _ in 0..KNOWN_FROM {
            patience.ended(Duration::from_millis(6), 2_000, 3_000);
        }
        assert!(!patience.is_dear(0, 16 * 5_000));
        assert!(patience.is_dear(16 * 5_000, 16 * 5_000));
        assert_eq!(patience.evaluated(), EVALUATED_FACTOR * 8_192);
        let mut small = Patience::new(None);
        for _ in 0..KNOWN_FROM {
            small.ended(Duration::from_millis(1), 10, 10);
        }
        // What takes a few milliseconds is not worth a thought.
        assert!(!small.is_dear(10_000, 10_000));
        assert_eq!(small.evaluated(), EVALUATED.0);
    }

    #[test]
    fn what_the_user_says_decides() {
        let mut patience = Patience::new(Some(Duration::from_millis(200)));
        patience.ended(Duration::from_secs(3), 1, 0);
        assert_eq!(patience.of_run(false), Duration::from_millis(200));
        assert_eq!(patience.of_doubt(), Duration::from_secs(1));
    }

    #[test]
    fn what_is_followed_has_more_time_but_for_what_does_not_end() {
        let mut patience = Patience::new(None);
        assert_eq!(patience.of_followed(false), FOLLOWED.1);
        assert_eq!(patience.of_followed(true), FOLLOWED_ENDLESS);
        patience.ended(Duration::from_millis(1), 1, 0);
        patience.ended_followed(Duration::from_secs(1));
        assert_eq!(patience.of_followed(false), Duration::from_secs(20));
        assert_eq!(patience.of_followed(true), Duration::from_secs(5));
    }
}
