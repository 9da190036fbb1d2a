//! What the whole-program suites share: where things are, how a program is run and compared.
//!
//! The suites run real programs natively and under the `brownout` binary and compare what can be
//! seen from outside. The native run is the oracle; nothing here knows what a program should print.
//!
//! ```text
//!  programs/*.c ──xtask──▶ target/test-programs/NAME[-variant]
//!  seeded/*/*.c ──xtask──▶ target/seeded/NAME-build
//!  fuzz/*.c     ──xtask──▶ target/fuzz-programs/NAME-build
//!  race/*.c     ──xtask──▶ target/race-programs/NAME-build
//!  symex/*.c    ──xtask──▶ target/symex-programs/NAME-build
//!  Debian's libpmemobj examples ──xtask──▶ target/pmdk-examples/NAME
//!  suites/*.rs ── run natively and under the tool ──▶ compare
//! ```
//!
//! `cargo xtask test` builds everything first. A suite that misses a program fails and says which
//! command builds it; it never skips.

pub mod check;
pub mod cpu;
pub mod cpython;
pub mod crash_states;
pub mod dump;
pub mod examples;
pub mod exec;
pub mod explore;
pub mod fuzz;
pub mod generated;
pub mod layout;
pub mod litmus;
pub mod mutants;
pub mod programs;
pub mod race;
pub mod random_code;
pub mod scratch;
pub mod seeded;
pub mod symex;
pub mod tool;
pub mod trial;

pub use exec::{Invocation, Outcome};
pub use scratch::Scratch;
pub use trial::trial;
