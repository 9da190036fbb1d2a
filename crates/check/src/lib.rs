//! Rules over one run: what is wrong with a program's use of persistent memory.
//!
//! **Purpose.** [`Checker`] takes the events of a run in order, keeps the persistency model beside
//! them, and collects findings by rule and calling context. [`Analysis`] adds call stacks and
//! custom rules (`brownout-rule`). The built-in rules are those of the catalogue in
//! `brownout-findings`.
//!
//! **Guarantee.** A correctness finding is a fact about the run: the bytes named were not
//! persistent (or not logged, not ordered) when the rule asks for it. Whether *recovery* needs them
//! one run cannot know; programs that leave data unflushed on purpose say so by an annotation. What
//! the run did not do is not judged. Memory follows the persistent memory touched and the program's
//! size, not the run's length.
//!
//! **Source.** PMTest (ASPLOS'19) for assertions and transaction checks, pmemcheck for requests,
//! AGAMOTTO (OSDI'20) for the performance rules.
//!
//! **Deviations.**
//!
//! 1. Model state carries over from section to section; PMTest checks each trace by itself.
//! 2. A fence completes its own thread's write-backs only; pmemcheck's completes all.
//! 3. Processes that a signal ended are not judged for what they had not yet made persistent: they
//!    were in the middle of something.
//! 4. Data written to a tracked file by `write` is not judged: its persistence is the file system's
//!    affair.
//!
//! ```
//! use brownout_check::{Analysis, Options};
//! use brownout_symbols::Options as SymbolOptions;
//!
//! let analysis = Analysis::new(Options::default(), SymbolOptions::default());
//! let outcome = analysis.finish();
//! assert!(outcome.findings.is_empty() && !outcome.statistics.touched_pm);
//! ```
#![forbid(unsafe_code)]

mod checker;
mod collect;
mod excluded;
mod options;
mod owned;
mod plugins;
mod pool;
mod ranges;
mod resolve;
mod sites;
mod sketch;
mod sorted;
mod source;
mod thread;
mod threads;
mod tx;

use std::io;
use std::path::Path;

use brownout_findings::{BuiltIn, Coverage, Effort, Frame, Limit, Role, RuleId, Severity};
use brownout_rule::host::Plugin;
use brownout_symbols::{Options as SymbolOptions, Programs, Stacks};
use brownout_trace::event::{ContextId, Event, EventKind, ProcessId, TargetAddr, ThreadId};
use brownout_trace::{Beginning, EventSink};
use serde::Serialize;

use plugins::Plugins;
use pool::Pool;
use resolve::Words;

pub use checker::{Checker, Counts};
pub use options::Options;
pub use plugins::RuleError;

/// A checker and what it takes to say where.
#[derive(Debug)]
pub struct Analysis {
    options: Options,
    checkers: Checkers,
    plugins: Plugins,
    stacks: Stacks,
    programs: Programs,
    notes: Vec<String>,
    is_closed: bool,
}

/// Something that was found, before it has words.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Sighting {
    /// By which rule.
    pub rule: RuleId,
    /// How bad that is.
    pub severity: Severity,
    /// Where in the code its events happened, in their order: instruction and calling context. 0
    /// where there is none.
    pub sites: Vec<(TargetAddr, ContextId)>,
}

/// A store and a load of another thread that could see it before it is persistent: what
/// `unpersisted-publication` is about, for whoever wants to see it happen.
#[derive(Clone, Debug)]
pub struct Prediction {
    /// The instruction that stores.
    pub store: TargetAddr,
    /// The instruction that loads.
    pub load: TargetAddr,
    /// The call stack of the store, innermost first.
    pub store_stack: Vec<Frame>,
    /// That of the load.
    pub load_stack: Vec<Frame>,
    /// Where the lock that both threads take is given back too early, if they take one.
    pub unlock_stack: Option<Vec<Frame>>,
}

/// Who looks at the events.
#[derive(Debug)]
enum Checkers {
    /// One, here.
    Here(Box<Checker>),
    /// Several, each on a thread of its own.
    Pool(Pool),
}

/// What a check came to.
pub type Outcome = brownout_findings::Outcome<Statistics>;

/// The numbers of a check.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Statistics {
    /// What the run consisted of.
    #[serde(flatten)]
    pub counts: Counts,
    /// Paths of the tracked files.
    pub files: Vec<String>,
    /// Which places in the code write back and fence how much, the most needless first; only if
    /// [`Options::efforts`] asks for that.
    #[serde(rename = "write_backs_by_place", skip_serializing_if = "Vec::is_empty")]
    pub efforts: Vec<Effort>,
    /// Persistent memory was stored to, or written back.
    #[serde(skip)]
    pub touched_pm: bool,
    /// A signal ended a process: what it had not made persistent was not judged.
    #[serde(skip)]
    pub killed: bool,
    /// Stores were lost for want of write-backs, of which there was not a single one.
    #[serde(skip)]
    pub never_writes_back: bool,
}

impl Analysis {
    /// One that has seen nothing.
    pub fn new(options: Options, symbols: SymbolOptions) -> Self {
        Analysis {
            options,
            checkers: Checkers::Here(Box::new(Checker::new(options))),
            plugins: Plugins::default(),
            stacks: Stacks::new(symbols),
            programs: Programs::default(),
            notes: Vec::new(),
            is_closed: false,
        }
    }

    /// As [`new`](Self::new), with stacks that know programs from earlier runs.
    /// [`finish_keeping`](Self::finish_keeping) gives them back.
    pub fn again(options: Options, mut stacks: Stacks) -> Self {
        stacks.begin_again();
        Analysis {
            options,
            checkers: Checkers::Here(Box::new(Checker::new(options))),
            plugins: Plugins::default(),
            stacks,
            programs: Programs::default(),
            notes: Vec::new(),
            is_closed: false,
        }
    }

    /// As [`new`](Self::new), with the rules on threads of their own: for machines with cores to
    /// spare. Custom rules look at the state of all of them; adding one brings them back into one
    /// place.
    pub fn in_parallel(options: Options, symbols: SymbolOptions) -> Self {
        if options.threads {
            // What threads could read of each other is looked at beside the rules, in one place.
            return Analysis::new(options, symbols);
        }
        Analysis {
            checkers: Checkers::Pool(Pool::start(options)),
            ..Analysis::new(options, symbols)
        }
    }

    /// What this process was started with, and what the one that has started it: a runner of tests
    /// may be among them.
    pub fn started_by(&mut self, around: Vec<Beginning>) {
        self.programs.started_by(around);
    }

    /// Adds a custom rule from a shared library. Before the first event.
    pub fn load_rule(&mut self, path: &Path, options: &str) -> Result<(), RuleError> {
        self.gather();
        self.plugins.load(path, options)
    }

    /// Adds a custom rule that is loaded already. Before the first event.
    pub fn add_rule(&mut self, rule: Plugin) -> Result<(), RuleError> {
        self.gather();
        self.plugins.add(rule)
    }

    fn gather(&mut self) {
        if let Checkers::Pool(_) = self.checkers {
            self.checkers = Checkers::Here(Box::new(Checker::new(self.options)));
        }
    }

    /// The ids of the custom rules that were added, in that order.
    pub fn custom_rules(&self) -> impl Iterator<Item = &str> {
        self.plugins.ids()
    }

    /// What there is to say of custom rules so far: those that have failed.
    pub fn complaints(&self) -> &[String] {
        &self.notes
    }

    /// A custom rule looks at the bytes of stores.
    pub fn needs_values(&self) -> bool {
        self.plugins.any(|rule| rule.needs_values)
    }

    /// Somebody looks at loads: a custom rule, or prediction.
    pub fn needs_loads(&self) -> bool {
        self.options.threads || self.plugins.any(|rule| rule.needs_loads)
    }

    /// The next event of the run.
    pub fn event(&mut self, event: &Event<'_>) {
        self.stacks.observe(event);
        match &mut self.checkers {
            Checkers::Here(checker) => {
                if !self.plugins.is_empty() {
                    self.plugins.event(event, checker, &mut self.notes);
                }
                checker.event(event);
                if self.options.threads {
                    checker.thread_event(event);
                }
            }
            Checkers::Pool(pool) => pool.event(event),
        }
    }

    /// What to answer to an annotation that asks; give it the annotation's event, right after
    /// [`event`](Self::event).
    pub fn answer(&mut self, question: &Event<'_>) -> [u64; 3] {
        match &mut self.checkers {
            Checkers::Here(checker) => checker.answer(question),
            Checkers::Pool(pool) => pool.answer(question),
        }
    }

    /// Correctness findings so far, every occurrence counted.
    pub fn failures(&mut self) -> u64 {
        let question = Event {
            thread: ThreadId(0),
            pc: TargetAddr(0),
            context: ContextId(0),
            kind: EventKind::Annotation {
                code: brownout_trace::annotation::CHECKPOINT,
                args: [0; 5],
                text: &[],
            },
        };
        self.answer(&question)[0]
    }

    /// No event follows: what holds at the end only is looked at. What has been found is known from
    /// here on, at little cost; whoever has seen it before in another run need not ask for its
    /// words. [`in_parallel`](Self::in_parallel) this is empty.
    pub fn close(&mut self) -> Vec<Sighting> {
        let Checkers::Here(checker) = &mut self.checkers else {
            return Vec::new();
        };
        if !self.is_closed {
            self.is_closed = true;
            self.plugins.end(checker, &mut self.notes);
            checker.finish();
        }
        let site = |event: &collect::RawEvent| {
            let site = checker.sites.site(event.tag);
            (site.pc, site.context)
        };
        let raw = checker.collector.raw.iter();
        raw.map(|raw| Sighting {
            rule: raw.rule.clone(),
            severity: raw.severity,
            sites: raw.events.iter().map(site).collect(),
        })
        .collect()
    }

    /// No event follows: what other threads could have read too early, if [`Options::threads`]
    /// asked for that.
    pub fn predictions(&mut self) -> Vec<Prediction> {
        self.close();
        let Checkers::Here(checker) = &self.checkers else {
            return Vec::new();
        };
        let mut found = Vec::new();
        for raw in &checker.collector.raw {
            if raw.rule != BuiltIn::UnpersistedPublication {
                continue;
            }
            let tag_of = |role: Role| {
                let mut events = raw.events.iter();
                events
                    .find(|event| event.role == role)
                    .map(|event| event.tag)
            };
            let (Some(store), Some(load)) = (tag_of(Role::Store), tag_of(Role::Load)) else {
                continue;
            };
            let mut stack = |tag| {
                let (site, epoch) = (checker.sites.site(tag), checker.sites.epoch(tag));
                let stacks = &mut self.stacks;
                let stack = stacks.stack_of(site.process, epoch, site.pc, site.context);
                stack.into_iter().map(Frame::from).collect::<Vec<_>>()
            };
            found.push(Prediction {
                store: checker.sites.site(store).pc,
                load: checker.sites.site(load).pc,
                store_stack: stack(store),
                load_stack: stack(load),
                unlock_stack: tag_of(Role::Unlock).map(&mut stack),
            });
        }
        found
    }

    /// The call stack at a place of the run, innermost first.
    pub fn stack(&mut self, thread: ThreadId, pc: TargetAddr, context: ContextId) -> Vec<Frame> {
        let stack = self.stacks.stack_at(thread, pc, context);
        stack.into_iter().map(Frame::from).collect()
    }

    /// No event follows.
    pub fn finish(self) -> Outcome {
        self.finish_with_frames(|_| Vec::new())
    }

    /// Nobody wants to know what was found.
    pub fn into_stacks(self) -> Stacks {
        self.stacks
    }

    /// As [`finish`](Self::finish), and gives the stacks back.
    pub fn finish_keeping(self) -> (Outcome, Stacks) {
        self.conclude(|_| Vec::new())
    }

    /// As [`finish`](Self::finish), for recordings whose call stacks are text: `frames` gives those
    /// of a context, innermost first.
    pub fn finish_with_frames(self, frames: impl FnMut(ContextId) -> Vec<String>) -> Outcome {
        self.conclude(frames).0
    }

    fn conclude(mut self, mut frames: impl FnMut(ContextId) -> Vec<String>) -> (Outcome, Stacks) {
        let mut checkers = match self.checkers {
            Checkers::Here(mut checker) => {
                if !self.is_closed {
                    self.plugins.end(&mut checker, &mut self.notes);
                    checker.finish();
                }
                vec![*checker]
            }
            Checkers::Pool(pool) => pool.finish(),
        };
        let mut words = Words {
            stacks: &mut self.stacks,
            programs: &mut self.programs,
            text_frames: &mut frames,
        };
        let findings = resolve::findings(&mut checkers, &mut words);
        let efforts = match self.options.efforts {
            true => resolve::efforts(&checkers[0], &mut words),
            false => Vec::new(),
        };
        // Each has seen all events; the first also has the model.
        let first = &checkers[0];
        let counts = first.counts();
        let files = first.files.values();
        let lacks_flush = findings.iter().any(|f| f.rule == BuiltIn::MissingFlush);
        let statistics = Statistics {
            counts,
            files: files.map(|file| file.path.clone()).collect(),
            efforts,
            touched_pm: counts.stores + counts.flushes > 0 && !first.files.is_empty(),
            killed: first.was_killed(),
            never_writes_back: first.loses_caches() && counts.flushes == 0 && lacks_flush,
        };
        if let Some(threads) = &first.threads_watch {
            let note = threads.nothing_to_predict();
            self.notes.extend(note.map(str::to_owned));
        }
        let fault = first.fault();
        let outcome = Outcome {
            findings,
            coverage: coverage(&statistics, fault.is_some(), first.ended().is_some()),
            notes: self.notes,
            statistics,
            ended: first.ended().map(|status| status.to_string()),
            touched: None,
            bug: fault.map(|fault| {
                format!(
                    "bug in Brownout: the events make no sense, so that findings may be wrong or missing: {fault}"
                )
            }),
        };
        (outcome, self.stacks)
    }
}

/// What was not looked at.
fn coverage(statistics: &Statistics, is_faulty: bool, has_end: bool) -> Coverage {
    let mut coverage = Coverage::default();
    if is_faulty {
        coverage.limit(Limit::Faulty, "the events make no sense: a bug in Brownout");
    } else if !statistics.touched_pm {
        coverage.limit(Limit::Untouched, "no persistent memory was touched");
    } else if statistics.killed {
        coverage.limit(
            Limit::Killed,
            "a signal ended the program: what it had not yet made persistent was not judged",
        );
    }
    if !has_end && statistics.touched_pm {
        coverage.limit(
            Limit::Unfinished,
            "the recording has no end: what was not yet persistent there was not judged",
        );
    }
    coverage
}

impl EventSink for Analysis {
    /// Never fails: events that make no sense become the outcome's [`bug`](Outcome::bug).
    fn event(&mut self, event: &Event<'_>) -> io::Result<()> {
        self.event(event);
        Ok(())
    }

    fn events(&mut self, events: &[Event<'_>]) -> io::Result<()> {
        match &mut self.checkers {
            // The usual case has a loop of its own, into which all that is done to an event is
            // compiled.
            Checkers::Here(checker) if self.plugins.is_empty() && !self.options.threads => {
                for event in events {
                    self.stacks.observe(event);
                    checker.next_event(event);
                }
            }
            _ => events.iter().for_each(|event| self.event(event)),
        }
        Ok(())
    }

    fn answer(&mut self, question: &Event<'_>) -> [u64; 3] {
        self.answer(question)
    }

    fn beginning(&mut self, process: ProcessId, what: &Beginning) -> io::Result<()> {
        let epoch = self.stacks.epoch_of(process);
        self.programs.begin(process, epoch, what);
        Ok(())
    }
}
