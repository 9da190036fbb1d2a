//! Custom rules for `brownout check`, built apart from it.
//!
//! **Purpose.** An author implements [`Rule`] over the event stream and the model's state, exports it with
//! [`export_rule!`], builds a `cdylib`, and passes it as `--rule libmyrule.so`. No source of the tool is touched.
//! `docs/custom-rules.md` teaches it; `examples/rules` holds complete ones.
//!
//! **Guarantee.** What crosses the border is C: see [`abi`]. A rule built by another compiler works; one built for
//! another version of the interface is refused with a sentence that says so. A rule that panics is disabled and
//! reported. Without features the crate has no dependencies.
//!
//! **Deviation.** A rule is native code in the tool's process. Nothing protects the tool from `unsafe` code in it,
//! from an endless loop, or from `exit`.
//!
//! ```
//! use brownout_rule::{Event, Info, Kind, Pm, Reporter, Rule};
//!
//! /// Nobody may store to a pool while a marker "read-only" is the last one.
//! struct ReadOnly { on: bool }
//!
//! impl Rule for ReadOnly {
//!     fn new(_options: &str) -> Result<Self, String> {
//!         Ok(ReadOnly { on: false })
//!     }
//!     fn info(&self) -> Info {
//!         Info::correctness("read-only-phase", "a store while the program is in its read-only phase")
//!     }
//!     fn event(&mut self, event: &Event<'_>, _pm: &Pm<'_>, report: &mut Reporter<'_>) {
//!         match event.kind {
//!             Kind::Marker { text } => self.on = text == b"read-only",
//!             _ if self.on && event.kind.stored().is_some() => {
//!                 report.finding("a store in the read-only phase").submit();
//!             }
//!             _ => {}
//!         }
//!     }
//! }
//! brownout_rule::export_rule!(ReadOnly);
//!
//! # use brownout_rule::testing::Bench;
//! let mut bench = Bench::new::<ReadOnly>("").unwrap();
//! bench.event(Kind::Marker { text: b"read-only" });
//! bench.event(Kind::store(0x1000, 8));
//! assert_eq!(bench.findings().len(), 1);
//! ```

pub mod abi;
mod event;
#[doc(hidden)]
pub mod export;
#[cfg(feature = "testing")]
pub mod host;
#[cfg(feature = "host")]
mod library;
mod pm;
mod report;
#[cfg(feature = "testing")]
pub mod testing;

pub use event::{
    Access, Address, ByteRange, ContextId, Event, EventIndex, FenceKind, FileId, FlushKind, Kind,
    KindCode, Place, ProcessId, Site, ThreadId,
};
pub use pm::{Pm, State, Status};
pub use report::{FindingBuilder, Reporter};

use std::borrow::Cow;

/// A rule: sees every event of a run, in order, and reports what is wrong.
///
/// One instance sees one run. Its calls come one at a time, though not always on one thread.
pub trait Rule: Sized + Send + 'static {
    /// A new rule. `options` is what the user wrote behind the library's name, else empty; an error is one sentence
    /// for the user.
    fn new(options: &str) -> Result<Self, String>;

    /// What the rule is. Asked once, after [`Rule::new`].
    fn info(&self) -> Info;

    /// The next event. `pm` answers for the moment *before* it takes effect: at a [`Kind::TxAdd`] the range is not yet
    /// logged by it, at a store the bytes are as they were.
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
    /// Stable id, of small letters, digits and hyphens: it stands in suppressions, baselines and scripts.
    pub id: Cow<'static, str>,
    /// How bad its findings are.
    pub severity: Severity,
    /// What it looks for, one line, no final stop.
    pub summary: Cow<'static, str>,
    /// It looks at the bytes of stores ([`Access::bytes`]). Costs time and memory.
    pub needs_values: bool,
    /// It looks at loads ([`Kind::Load`]). Costs much time.
    pub needs_loads: bool,
    /// Bit *n* is 0 if it does not look at events of the kind with number *n*. All bits are 1 unless [`Info::only`] says
    /// otherwise.
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

    /// Names the kinds that it looks at; the others then cost next to nothing. A kind that the tool does not know how to
    /// leave out may come nevertheless.
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

/// Exports a rule from a `cdylib`. Once a library.
///
/// Needs unwinding panics: with `panic = "abort"` a bug in the rule would end the tool, so that does not compile.
#[macro_export]
macro_rules! export_rule {
    ($rule:ty) => {
        #[cfg(panic = "abort")]
        compile_error!(
            "a rule must be built with unwinding panics: remove `panic = \"abort\"` from its profile"
        );

        #[doc(hidden)]
        #[allow(non_upper_case_globals)]
        #[unsafe(no_mangle)]
        pub static brownout_rule_plugin: $crate::abi::PluginTable =
            $crate::export::table::<$rule>();
    };
}

/// The code of the manual compiles and runs.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/custom-rules.md")]
struct Manual;
