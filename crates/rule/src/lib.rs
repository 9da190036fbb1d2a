//! Custom rules for `brownout check`, built apart from it.
//!
//! **Purpose.** An author implements [`Rule`] over the event stream and the model's state, exports
//! it with [`export_rule!`], builds a `cdylib`, and passes it as `--rule libmyrule.so`. No source
//! of the tool is touched. `docs/custom-rules.md` teaches it; `examples/rules` holds complete ones.
//!
//! **Guarantee.** What crosses the border is C: see [`abi`]. A rule built by another compiler
//! works; one built for another version of the interface is refused with a sentence that says so. A
//! rule that panics is disabled and reported. Without features the crate has no dependencies.
//!
//! **Deviation.** A rule is native code in the tool's process. Nothing protects the tool from
//! `unsafe` code in it, from an endless loop, or from `exit`.
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
#[cfg(feature = "testing")]
mod error;
mod event;
#[doc(hidden)]
pub mod export;
#[cfg(feature = "testing")]
pub mod host;
#[cfg(feature = "host")]
mod library;
mod pm;
mod report;
mod rule;
mod state;
#[cfg(feature = "testing")]
pub mod testing;

pub use event::{
    Access, Address, ByteRange, ContextId, Event, EventIndex, FenceKind, FileId, FlushKind, Kind,
    KindCode, Place, ProcessId, Site, ThreadId,
};
pub use pm::Pm;
pub use report::{FindingBuilder, Reporter};
pub use rule::{Info, Rule, Severity};
pub use state::{State, Status};

/// Exports a rule from a `cdylib`. Once a library.
///
/// Needs unwinding panics: with `panic = "abort"` a bug in the rule would end the tool, so that
/// does not compile.
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
