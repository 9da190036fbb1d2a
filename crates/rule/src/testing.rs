//! A bench for rules: events by hand, answers by hand, findings to look at.
//!
//! Runs a rule through the same interface as the tool, without a program, a recording or a shared
//! library. Needs the feature `testing`, in the rule's `[dev-dependencies]`.

use crate::event::{Address, ContextId, Event, EventIndex, Kind, Place, ProcessId, ThreadId};
use crate::host::{Finding, HostServices, LoadError, Plugin, RuleFailed};
use crate::state::Status;
use crate::{Info, Rule};

/// What a [`Bench`] answers. It models nothing: say what should be true.
#[derive(Clone, Debug, Default)]
pub struct Answers {
    /// The last stores: [`Pm::status`](crate::Pm::status) cuts them to the place, and
    /// [`Pm::is_persisted`](crate::Pm::is_persisted) follows from them.
    pub stores: Vec<Status>,
    /// Pairs of which the first is ordered before the second.
    pub ordered: Vec<(Place, Place)>,
    /// Threads with an open transaction.
    pub in_transaction: Vec<ThreadId>,
    /// What they have logged. A question is answered with yes if one entry holds all of its place.
    pub logged: Vec<(ThreadId, Place)>,
}

/// A rule on the bench.
#[derive(Debug)]
pub struct Bench {
    plugin: Plugin,
    services: Services,
    next: EventIndex,
}

#[derive(Debug, Default)]
struct Services {
    answers: Answers,
    findings: Vec<Finding>,
}

fn holds(outer: Place, inner: Place) -> bool {
    inner.len == 0 || inner.intersection(outer) == Some(inner)
}

impl HostServices for Services {
    fn is_persisted(&self, place: Place) -> bool {
        let pending = |status: &&Status| status.state != crate::State::Persisted;
        !self
            .answers
            .stores
            .iter()
            .filter(pending)
            .any(|status| status.place.intersection(place).is_some())
    }

    fn is_ordered_before(&self, earlier: Place, later: Place) -> bool {
        self.answers.ordered.contains(&(earlier, later))
    }

    fn status(&self, place: Place, visit: &mut dyn FnMut(Status)) {
        for status in &self.answers.stores {
            if let Some(place) = status.place.intersection(place) {
                visit(Status { place, ..*status });
            }
        }
    }

    fn in_transaction(&self, thread: ThreadId) -> bool {
        self.answers.in_transaction.contains(&thread)
    }

    fn is_logged(&self, thread: ThreadId, place: Place) -> bool {
        let mut logged = self.answers.logged.iter();
        logged.any(|(who, what)| *who == thread && holds(*what, place))
    }

    fn report(&mut self, _rule: &Info, finding: Finding) {
        self.findings.push(finding);
    }
}

impl Bench {
    /// Puts a rule on the bench.
    pub fn new<R: Rule>(options: &str) -> Result<Bench, LoadError> {
        Ok(Bench::with(Plugin::in_process::<R>(options)?))
    }

    /// Puts a loaded rule on the bench.
    pub fn with(plugin: Plugin) -> Bench {
        Bench {
            plugin,
            services: Services::default(),
            next: EventIndex(1),
        }
    }

    /// What the rule is.
    pub fn info(&self) -> &Info {
        self.plugin.info()
    }

    /// What the rule will be told from now on.
    pub fn answers(&mut self) -> &mut Answers {
        &mut self.services.answers
    }

    /// The next event, of thread 1. Its instruction is `0x400000` and its index.
    ///
    /// # Panics
    ///
    /// If the rule does.
    pub fn event(&mut self, kind: Kind<'_>) {
        self.event_of(ThreadId(1), kind);
    }

    /// The next event, of `thread`.
    ///
    /// # Panics
    ///
    /// If the rule does.
    pub fn event_of(&mut self, thread: ThreadId, kind: Kind<'_>) {
        if let Err(failed) = self.try_event_of(thread, kind) {
            panic!("{failed}");
        }
    }

    /// The next event, of `thread`.
    pub fn try_event_of(&mut self, thread: ThreadId, kind: Kind<'_>) -> Result<(), RuleFailed> {
        let event = Event {
            index: self.next,
            thread,
            process: ProcessId(1),
            pc: Address(0x40_0000 + self.next.0),
            context: ContextId(thread.0),
            kind,
        };
        self.next.0 += 1;
        self.plugin.event(&event, &mut self.services)
    }

    /// The end of the run.
    ///
    /// # Panics
    ///
    /// If the rule does.
    pub fn end(&mut self) {
        if let Err(failed) = self.plugin.end(&mut self.services) {
            panic!("{failed}");
        }
    }

    /// What the rule has reported so far.
    pub fn findings(&self) -> &[Finding] {
        &self.services.findings
    }
}
