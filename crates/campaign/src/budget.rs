//! How long a search may go on, and how its work is shared out between activities.
//!
//! **Purpose.** [`Budget`] knows the limits of a campaign (wall time, executions), what was spent
//! of them, also in earlier runs, and pauses. [`Ledger`] sees to it that an activity keeps to its
//! share: "20 % may go to exploring" means that exploring may be begun whenever it has had less
//! than 20 % of all work so far.
//!
//! **Guarantee.**
//! - Of `n` allowed executions exactly `n` are begun, by however many workers ([`Budget::claim`]).
//! - If only executions are limited, no decision depends on a clock: limits and shares are counted
//!   in executions, so that two campaigns of one worker are the same. If time is limited, or
//!   nothing is, shares are of working time.
//! - Time that is spent paused, or between two runs of the tool, does not count.
//! - A share is kept in the long run. It may be exceeded by the one piece of work that was begun
//!   when some of it was left ([`Budget::allowance`] says how much, for those who can stop in
//!   time); the excess is paid back before the next begins.
//!
//! ```
//! use brownout_campaign::budget::{Budget, Limits, Spent};
//!
//! let limits = Limits { executions: Some(100), ..Limits::default() };
//! let budget = Budget::new(limits, &Spent::default());
//! let fuzzing = budget.activity("fuzzing");
//! let exploring = budget.share("exploring", 20.0);
//! let mut explored = 0;
//! while budget.claim().is_some() {
//!     budget.begin(fuzzing).executed(1);
//!     if budget.may_begin(exploring) {
//!         budget.begin(exploring).executed(5);
//!         explored += 5;
//!     }
//! }
//! assert_eq!(explored, 25); // of 125
//! ```

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

/// What a campaign may use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// Wall time; none by default.
    pub time: Option<Duration>,
    /// Executions; none by default.
    pub executions: Option<u64>,
    /// Whether earlier runs of the tool count.
    pub scope: Scope,
}

/// What limits are limits of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Scope {
    /// The whole campaign. The default, because then the same command line means the same campaign,
    /// also if it was killed in between.
    #[default]
    Campaign,
    /// This run of the tool.
    Run,
}

/// Why no more may be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Over {
    /// The time is up.
    Time,
    /// All executions are done.
    Executions,
}

/// What was spent up to some moment; goes into the journal, so that a resumed campaign knows.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Spent {
    /// Wall time without pauses.
    pub elapsed: Duration,
    /// Executions.
    pub executions: u64,
    /// Work by activity. It may be more than `elapsed`, because there are several workers.
    pub activities: BTreeMap<String, Work>,
}

/// A piece of work, or a sum of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Work {
    /// How long it took.
    pub time: Duration,
    /// How many executions it took.
    pub executions: u64,
}

/// Where the time comes from.
pub trait Clock: Send + Sync {
    /// Time since some moment; it never goes back.
    fn now(&self) -> Duration;
}

/// The clock of the machine, which stands still while that is suspended.
#[derive(Debug)]
pub struct SystemClock(Instant);

impl Default for SystemClock {
    fn default() -> SystemClock {
        SystemClock(Instant::now())
    }
}

impl Clock for SystemClock {
    fn now(&self) -> Duration {
        self.0.elapsed()
    }
}

/// A number of [`Budget`]'s or [`Ledger`]'s for one kind of work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Activity(usize);

/// In what work is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Measure {
    /// In time.
    Time,
    /// In executions.
    Executions,
}

/// See the module's header. All methods may be called by all threads.
pub struct Budget {
    limits: Limits,
    measure: Measure,
    /// What earlier runs have spent.
    before: Spent,
    /// Of this run. Claimed, which is before they have ended.
    executions: AtomicU64,
    clock: Arc<dyn Clock>,
    started: Duration,
    paused: Mutex<Paused>,
    unpaused: Condvar,
    ledger: Mutex<Ledger>,
}

#[derive(Default)]
struct Paused {
    since: Option<Duration>,
    total: Duration,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Nothing here panics halfway through a change.
    mutex
        .lock()
        .unwrap_or_else(|poisoned| poisoned.into_inner())
}

impl Budget {
    /// Begins to spend. `before` is what earlier runs of the same campaign have spent.
    pub fn new(limits: Limits, before: &Spent) -> Budget {
        Budget::with_clock(limits, before, Arc::new(SystemClock::default()))
    }

    /// The same with a clock of the caller's.
    pub fn with_clock(limits: Limits, before: &Spent, clock: Arc<dyn Clock>) -> Budget {
        let measure = match limits {
            Limits {
                time: None,
                executions: Some(_),
                ..
            } => Measure::Executions,
            _ => Measure::Time,
        };
        Budget {
            limits,
            measure,
            before: before.clone(),
            executions: AtomicU64::new(0),
            started: clock.now(),
            clock,
            paused: Mutex::default(),
            unpaused: Condvar::new(),
            ledger: Mutex::new(Ledger::new(measure)),
        }
    }

    /// In what shares are measured.
    pub fn measure(&self) -> Measure {
        self.measure
    }

    /// Takes one execution out of the budget and gives its number in the campaign, from 0; `None`
    /// if the budget is used up.
    pub fn claim(&self) -> Option<u64> {
        if self.time_is_up() {
            return None;
        }
        let limit = self.executions_of_this_run();
        let mut done = self.executions.load(Ordering::Relaxed);
        loop {
            if limit.is_some_and(|limit| done >= limit) {
                return None;
            }
            let claimed = self.executions.compare_exchange_weak(
                done,
                done + 1,
                Ordering::Relaxed,
                Ordering::Relaxed,
            );
            match claimed {
                Ok(number) => return Some(self.before.executions + number),
                Err(now) => done = now,
            }
        }
    }

    /// Whether the budget is used up, and by what.
    pub fn over(&self) -> Option<Over> {
        let done = self.executions.load(Ordering::Relaxed);
        if self.executions_of_this_run().is_some_and(|n| done >= n) {
            return Some(Over::Executions);
        }
        self.time_is_up().then_some(Over::Time)
    }

    fn time_is_up(&self) -> bool {
        // Without a limit the clock is not even looked at.
        self.limits.time.is_some() && self.time_left() == Some(Duration::ZERO)
    }

    fn executions_of_this_run(&self) -> Option<u64> {
        let limit = self.limits.executions?;
        Some(match self.limits.scope {
            Scope::Campaign => limit.saturating_sub(self.before.executions),
            Scope::Run => limit,
        })
    }

    /// Executions of the campaign that were claimed.
    pub fn executions(&self) -> u64 {
        self.before.executions + self.executions.load(Ordering::Relaxed)
    }

    /// How many are left, if they are limited.
    pub fn executions_left(&self) -> Option<u64> {
        let done = self.executions.load(Ordering::Relaxed);
        Some(self.executions_of_this_run()?.saturating_sub(done))
    }

    /// How long the campaign has run, without pauses.
    pub fn elapsed(&self) -> Duration {
        self.before.elapsed + self.elapsed_in_this_run()
    }

    /// How long this run of the tool has run, without pauses.
    pub fn elapsed_in_this_run(&self) -> Duration {
        let paused = locked(&self.paused);
        let until = paused.since.unwrap_or_else(|| self.clock.now());
        until.saturating_sub(self.started + paused.total)
    }

    /// How much time is left, if it is limited.
    pub fn time_left(&self) -> Option<Duration> {
        let limit = self.limits.time?;
        let spent = match self.limits.scope {
            Scope::Campaign => self.elapsed(),
            Scope::Run => self.elapsed_in_this_run(),
        };
        Some(limit.saturating_sub(spent))
    }

    /// What is to be remembered for the next run.
    pub fn spent(&self) -> Spent {
        let mut activities = self.before.activities.clone();
        for (name, work) in locked(&self.ledger).totals() {
            activities.insert(name.to_owned(), work);
        }
        Spent {
            elapsed: self.elapsed(),
            executions: self.executions(),
            activities,
        }
    }

    /// Time stands still from now on. Workers notice at [`Budget::wait_while_paused`].
    pub fn pause(&self) {
        let mut paused = locked(&self.paused);
        if paused.since.is_none() {
            paused.since = Some(self.clock.now());
        }
    }

    /// It goes on.
    pub fn go_on(&self) {
        let mut paused = locked(&self.paused);
        if let Some(since) = paused.since.take() {
            paused.total += self.clock.now().saturating_sub(since);
        }
        self.unpaused.notify_all();
    }

    /// Whether it is paused.
    pub fn is_paused(&self) -> bool {
        locked(&self.paused).since.is_some()
    }

    /// Returns at once, or when a pause has ended, or when `stop` says so (it is asked every now
    /// and then).
    pub fn wait_while_paused(&self, stop: impl Fn() -> bool) {
        let mut paused = locked(&self.paused);
        while paused.since.is_some() && !stop() {
            let waited = self
                .unpaused
                .wait_timeout(paused, Duration::from_millis(50));
            paused = waited.unwrap_or_else(|poisoned| poisoned.into_inner()).0;
        }
    }

    /// An activity that may use all that the others leave.
    pub fn activity(&self, name: &str) -> Activity {
        self.enter(name, None)
    }

    /// An activity that may use `percent` of all work; more than 100 counts as 100, less than 0
    /// as 0.
    pub fn share(&self, name: &str, percent: f64) -> Activity {
        self.enter(name, Some(percent))
    }

    fn enter(&self, name: &str, percent: Option<f64>) -> Activity {
        let before = self.before.activities.get(name);
        locked(&self.ledger).enter(name, percent, before.copied().unwrap_or_default())
    }

    /// Whether an activity has something left of its share, and the campaign of its budget.
    pub fn may_begin(&self, activity: Activity) -> bool {
        self.over().is_none() && locked(&self.ledger).may_begin(activity)
    }

    /// How much work an activity may do now without exceeding its share. Only what
    /// [`Budget::measure`] measures is limited; the other is the largest number that there is.
    pub fn allowance(&self, activity: Activity) -> Work {
        let mut work = locked(&self.ledger).allowance(activity);
        if let Some(left) = self.time_left() {
            work.time = work.time.min(left);
        }
        work
    }

    /// Begins a piece of work, which is charged when the returned value is dropped.
    pub fn begin(&self, activity: Activity) -> Running<'_> {
        Running {
            budget: self,
            activity,
            since: self.elapsed_in_this_run(),
            executions: 0,
        }
    }

    /// Charges work that was timed otherwise.
    pub fn charge(&self, activity: Activity, work: Work) {
        locked(&self.ledger).charge(activity, work);
    }
}

/// A piece of work under way.
pub struct Running<'a> {
    budget: &'a Budget,
    activity: Activity,
    since: Duration,
    executions: u64,
}

impl Running<'_> {
    /// It has taken so many executions (more).
    pub fn executed(&mut self, executions: u64) {
        self.executions += executions;
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        let now = self.budget.elapsed_in_this_run();
        let work = Work {
            time: now.saturating_sub(self.since),
            executions: self.executions,
        };
        self.budget.charge(self.activity, work);
    }
}

/// Who has worked how much, and who may go on. Numbers only: no clock, no chance.
#[derive(Clone, Debug)]
pub struct Ledger {
    measure: Measure,
    accounts: Vec<Account>,
}

#[derive(Clone, Debug)]
struct Account {
    name: String,
    /// In hundred-thousandths, which are exact, unlike fractions of floating-point numbers; `None`
    /// for whoever takes the rest.
    share: Option<u64>,
    work: Work,
}

const WHOLE: u64 = 100_000;

impl Ledger {
    /// An empty one.
    pub fn new(measure: Measure) -> Ledger {
        let accounts = Vec::new();
        Ledger { measure, accounts }
    }

    /// Adds an activity, with its share and what it has worked before. One that is there already
    /// only gets its new share.
    pub fn enter(&mut self, name: &str, percent: Option<f64>, before: Work) -> Activity {
        // A conversion from floating point saturates, so this is within bounds; what is not a
        // number is 0.
        let share = percent.map(|p| ((p * (WHOLE / 100) as f64).round() as u64).min(WHOLE));
        if let Some(i) = self.accounts.iter().position(|a| a.name == name) {
            self.accounts[i].share = share;
            return Activity(i);
        }
        self.accounts.push(Account {
            name: name.to_owned(),
            share,
            work: before,
        });
        Activity(self.accounts.len() - 1)
    }

    /// Whether an activity has had less than its share.
    pub fn may_begin(&self, activity: Activity) -> bool {
        let account = &self.accounts[activity.0];
        let Some(share) = account.share else {
            return true;
        };
        if share == WHOLE {
            return true;
        }
        self.units(account.work) * u128::from(WHOLE) < u128::from(share) * self.total()
    }

    /// How much it may work now, so that it has had no more than its share afterwards.
    pub fn allowance(&self, activity: Activity) -> Work {
        let account = &self.accounts[activity.0];
        let share = account.share.unwrap_or(WHOLE);
        let units = if share == WHOLE {
            u64::MAX
        } else {
            // After x more units: spent + x <= share * (total + x).
            let may_have = u128::from(share) * self.total();
            let has_had = u128::from(WHOLE) * self.units(account.work);
            let units = may_have.saturating_sub(has_had) / u128::from(WHOLE - share);
            u64::try_from(units).unwrap_or(u64::MAX)
        };
        match self.measure {
            Measure::Time => Work {
                time: Duration::from_nanos(units),
                executions: u64::MAX,
            },
            Measure::Executions => Work {
                time: Duration::MAX,
                executions: units,
            },
        }
    }

    /// Notes work.
    pub fn charge(&mut self, activity: Activity, work: Work) {
        let account = &mut self.accounts[activity.0].work;
        account.time = account.time.saturating_add(work.time);
        account.executions = account.executions.saturating_add(work.executions);
    }

    /// What everybody has worked.
    pub fn totals(&self) -> impl Iterator<Item = (&str, Work)> {
        self.accounts.iter().map(|a| (a.name.as_str(), a.work))
    }

    fn units(&self, work: Work) -> u128 {
        match self.measure {
            Measure::Time => work.time.as_nanos(),
            Measure::Executions => u128::from(work.executions),
        }
    }

    fn total(&self) -> u128 {
        self.accounts.iter().map(|a| self.units(a.work)).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A clock that is set by hand.
    #[derive(Default)]
    struct Hand(AtomicU64);

    impl Hand {
        fn pass(&self, ms: u64) {
            self.0.fetch_add(ms, Ordering::Relaxed);
        }
    }

    impl Clock for Hand {
        fn now(&self) -> Duration {
            Duration::from_millis(self.0.load(Ordering::Relaxed))
        }
    }

    /// A clock that must not be asked for a decision.
    struct Forbidden(AtomicU64);

    impl Clock for Forbidden {
        fn now(&self) -> Duration {
            // It answers, but never the same.
            Duration::from_secs(self.0.fetch_add(1_000_003, Ordering::Relaxed))
        }
    }

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn executions_are_handed_out_exactly() {
        let limits = Limits {
            executions: Some(1000),
            ..Limits::default()
        };
        let before = Spent {
            executions: 300,
            ..Spent::default()
        };
        let budget = Budget::new(limits, &before);
        let mut numbers: Vec<u64> = std::thread::scope(|scope| {
            let claim = || {
                let mut mine = Vec::new();
                while let Some(number) = budget.claim() {
                    mine.push(number);
                }
                mine
            };
            let workers: Vec<_> = (0..4).map(|_| scope.spawn(claim)).collect();
            let joined = workers.into_iter().map(|w| w.join().unwrap());
            joined.flatten().collect()
        });
        numbers.sort();
        assert_eq!(numbers, (300..1000).collect::<Vec<_>>());
        assert_eq!(budget.over(), Some(Over::Executions));
        assert_eq!(budget.executions_left(), Some(0));
        assert_eq!(budget.spent().executions, 1000);
    }

    #[test]
    fn time_is_that_of_the_campaign_or_of_the_run() {
        let before = Spent {
            elapsed: ms(4_000),
            executions: 9,
            ..Spent::default()
        };
        for (scope, allowed) in [(Scope::Campaign, 6_000), (Scope::Run, 10_000)] {
            let clock = Arc::new(Hand::default());
            clock.pass(77);
            let limits = Limits {
                time: Some(ms(10_000)),
                executions: None,
                scope,
            };
            let budget = Budget::with_clock(limits, &before, clock.clone());
            assert_eq!(budget.time_left(), Some(ms(allowed)));
            clock.pass(allowed - 1);
            assert_eq!(budget.claim(), Some(9));
            clock.pass(1);
            assert_eq!(budget.claim(), None);
            assert_eq!(budget.over(), Some(Over::Time));
            assert_eq!(budget.elapsed(), ms(4_000 + allowed));
            assert_eq!(budget.spent().executions, 10);
        }
        // A campaign that has had its time has none left, however late that is noticed.
        let limits = Limits {
            time: Some(ms(1)),
            ..Limits::default()
        };
        assert_eq!(Budget::new(limits, &before).claim(), None);
    }

    #[test]
    fn without_limits_there_is_no_end() {
        let budget = Budget::new(Limits::default(), &Spent::default());
        assert_eq!((budget.claim(), budget.claim()), (Some(0), Some(1)));
        assert_eq!(budget.over(), None);
        assert_eq!((budget.time_left(), budget.executions_left()), (None, None));
    }

    #[test]
    fn pauses_do_not_count() {
        let clock = Arc::new(Hand::default());
        let limits = Limits {
            time: Some(ms(100)),
            ..Limits::default()
        };
        let budget = Budget::with_clock(limits, &Spent::default(), clock.clone());
        let work = budget.activity("work");
        let running = budget.begin(work);
        clock.pass(10);
        budget.pause();
        clock.pass(1000);
        budget.pause();
        clock.pass(1000);
        assert!(budget.is_paused());
        assert_eq!(budget.elapsed(), ms(10));
        budget.go_on();
        budget.go_on();
        clock.pass(5);
        assert_eq!(budget.time_left(), Some(ms(85)));
        drop(running);
        assert_eq!(budget.spent().activities["work"].time, ms(15));
    }

    #[test]
    fn a_paused_worker_waits_until_it_goes_on_or_is_stopped() {
        let budget = Budget::new(Limits::default(), &Spent::default());
        budget.wait_while_paused(|| panic!("it is not paused"));
        budget.pause();
        let asked = AtomicU64::new(0);
        budget.wait_while_paused(|| asked.fetch_add(1, Ordering::Relaxed) == 2);
        assert_eq!(asked.into_inner(), 3);
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| budget.wait_while_paused(|| false));
            budget.go_on();
            waiting.join().unwrap();
        });
    }

    #[test]
    fn with_executions_alone_no_clock_decides() {
        let decide = |clock: Arc<dyn Clock>| {
            let limits = Limits {
                executions: Some(200),
                ..Limits::default()
            };
            let budget = Budget::with_clock(limits, &Spent::default(), clock);
            assert_eq!(budget.measure(), Measure::Executions);
            let fuzzing = budget.activity("fuzzing");
            let exploring = budget.share("exploring", 20.0);
            let mut decisions = Vec::new();
            while budget.claim().is_some() {
                budget.begin(fuzzing).executed(1);
                let may = budget.may_begin(exploring);
                decisions.push((may, budget.allowance(exploring)));
                if may {
                    budget.begin(exploring).executed(3);
                }
            }
            decisions
        };
        let one = decide(Arc::new(Forbidden(AtomicU64::new(1))));
        assert_eq!(one, decide(Arc::new(Forbidden(AtomicU64::new(12345)))));
        assert_eq!(one, decide(Arc::new(SystemClock::default())));
        let explored = one.iter().filter(|(may, _)| *may).count() * 3;
        assert!((48..=51).contains(&explored), "{explored}");
    }

    #[test]
    fn shares_go_on_after_a_resume() {
        let limits = Limits {
            executions: Some(1000),
            ..Limits::default()
        };
        let mut spent = Spent::default();
        for _ in 0..3 {
            let budget = Budget::new(limits, &spent);
            let exploring = budget.share("exploring", 50.0);
            let fuzzing = budget.activity("fuzzing");
            budget.begin(fuzzing).executed(10);
            if budget.may_begin(exploring) {
                budget.begin(exploring).executed(25);
            }
            let again = budget.spent();
            // As the journal has it.
            let bytes = postcard::to_allocvec(&again).unwrap();
            spent = postcard::from_bytes(&bytes).unwrap();
            assert_eq!(spent, again);
        }
        // 25 of 35; then 25 of 45, which is too much; then 25 of 55, which is not.
        assert_eq!(spent.activities["exploring"].executions, 50);
        assert_eq!(spent.activities["fuzzing"].executions, 30);
        // An activity that this run does not have is not forgotten.
        let budget = Budget::new(limits, &spent);
        assert_eq!(budget.spent().activities, spent.activities);
    }

    #[test]
    fn odd_shares() {
        let mut ledger = Ledger::new(Measure::Executions);
        let rest = ledger.enter("rest", None, Work::default());
        let all = ledger.enter("all", Some(250.0), Work::default());
        let none = ledger.enter("none", Some(-3.0), Work::default());
        let nan = ledger.enter("nan", Some(f64::NAN), Work::default());
        let some = ledger.enter("some", Some(20.0), Work::default());
        for _ in 0..2 {
            assert!(ledger.may_begin(rest) && ledger.may_begin(all));
            assert!(!ledger.may_begin(none) && !ledger.may_begin(nan));
            assert_eq!(ledger.allowance(none).executions, 0);
            assert_eq!(ledger.allowance(all).executions, u64::MAX);
            let work = Work {
                executions: u64::MAX,
                time: Duration::MAX,
            };
            ledger.charge(rest, work);
        }
        assert!(ledger.may_begin(some));
        assert_eq!(ledger.enter("some", Some(0.0), Work::default()), some);
        assert!(!ledger.may_begin(some));
    }

    proptest! {
        #[test]
        fn whoever_has_always_something_to_do_gets_its_share_and_no_more(
            share in 1..99u32, pieces in prop::collection::vec((1..50u64, 1..50u64), 200..400), time in any::<bool>(),
        ) {
            let measure = if time { Measure::Time } else { Measure::Executions };
            let mut ledger = Ledger::new(measure);
            let rest = ledger.enter("rest", None, Work::default());
            let some = ledger.enter("some", Some(f64::from(share)), Work::default());
            let share = f64::from(share) / 100.0;
            let mut spent = [0; 2];
            let longest = 50.0;
            for (mine, others) in pieces {
                let work = |n| match measure {
                    Measure::Time => Work { time: Duration::from_nanos(n), executions: 7 },
                    Measure::Executions => Work { time: Duration::from_secs(n % 3), executions: n },
                };
                spent[0] += others;
                ledger.charge(rest, work(others));
                while ledger.may_begin(some) {
                    let allowance = ledger.allowance(some);
                    let allowance = if time { allowance.time.as_nanos() as u64 } else { allowance.executions };
                    let total = (spent[0] + spent[1] + allowance) as f64;
                    prop_assert!((spent[1] + allowance) as f64 <= share * total + 1e-6);
                    prop_assert!((spent[1] + allowance + 1) as f64 > share * (total + 1.0) - 1e-6);
                    spent[1] += mine;
                    ledger.charge(some, work(mine));
                }
                let total = (spent[0] + spent[1]) as f64;
                prop_assert!(spent[1] as f64 >= share * total - 1e-6);
                prop_assert!(spent[1] as f64 <= share * total + longest);
            }
        }
    }
}
