//! What a rule is.

use std::borrow::Cow;

use crate::event::{Event, KindCode};
use crate::pm::Pm;
use crate::report::Reporter;

/// A rule: sees every event of a run, in order, and reports what is wrong.
///
/// One instance sees one run. Its calls come one at a time, though not always on one thread.
pub trait Rule: Sized + Send + 'static {
    /// A new rule. `options` is what the user wrote behind the library's name, else empty; an error
    /// is one sentence for the user.
    fn new(options: &str) -> Result<Self, String>;

    /// What the rule is. Asked once, after [`Rule::new`].
    fn info(&self) -> Info;

    /// The next event. `pm` answers for the moment *before* it takes effect: at a
    /// [`Kind::TxAdd`](crate::Kind::TxAdd) the range is not yet logged by it, at a store the bytes
    /// are as they were.
    fn event(&mut self, event: &Event<'_>, pm: &Pm<'_>, report: &mut Reporter<'_>);

    /// The run is over, in order or not. `pm` answers for the moment after the last event.
    fn end(&mut self, pm: &Pm<'_>, report: &mut Reporter<'_>) {
        let _ = (pm, report);
    }
}

/// How bad the findings of a rule are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Severity {
    /// Data can be lost or damaged by a crash.
    Correctness,
    /// Work that gains nothing.
    Performance,
}

/// What a rule is, and what it needs of the recording.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Info {
    /// Stable id, of small letters, digits and hyphens: it stands in suppressions, baselines and
    /// scripts.
    pub id: Cow<'static, str>,
    /// How bad its findings are.
    pub severity: Severity,
    /// What it looks for, one line, no final stop.
    pub summary: Cow<'static, str>,
    /// It looks at the bytes of stores ([`Access::bytes`](crate::Access::bytes)). Costs time and
    /// memory.
    pub needs_values: bool,
    /// It looks at loads ([`Kind::Load`](crate::Kind::Load)). Costs much time.
    pub needs_loads: bool,
    /// Bit *n* is 0 if it does not look at events of the kind with number *n*. All bits are 1
    /// unless [`Info::only`] says otherwise.
    pub kinds: u64,
}

impl Info {
    /// A rule about lost or damaged data.
    pub fn correctness(
        id: impl Into<Cow<'static, str>>,
        summary: impl Into<Cow<'static, str>>,
    ) -> Self {
        Info {
            id: id.into(),
            severity: Severity::Correctness,
            summary: summary.into(),
            needs_values: false,
            needs_loads: false,
            kinds: u64::MAX,
        }
    }

    /// A rule about wasted work.
    pub fn performance(
        id: impl Into<Cow<'static, str>>,
        summary: impl Into<Cow<'static, str>>,
    ) -> Self {
        Info {
            severity: Severity::Performance,
            ..Info::correctness(id, summary)
        }
    }

    /// Names the kinds that it looks at; the others then cost next to nothing. A kind that the tool
    /// does not know how to leave out may come nevertheless.
    #[must_use]
    pub fn only(mut self, kinds: &[KindCode]) -> Self {
        self.kinds = kinds.iter().fold(0, |bits, kind| bits | kind.bit());
        self
    }

    /// Asks for the bytes of stores.
    #[must_use]
    pub fn with_values(mut self) -> Self {
        self.needs_values = true;
        self
    }

    /// Asks for loads.
    #[must_use]
    pub fn with_loads(mut self) -> Self {
        self.needs_loads = true;
        self
    }
}
