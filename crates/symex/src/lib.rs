//! Reaches paths that no test covers: runs a program on inputs that are solved for, branch by
//! branch.
//!
//! ```text
//!  search ─▶ input ─▶ stage: a run, forked where the program first looks at its input ─▶ run: which instructions touch the input (followed, once for new code)
//!    ▲                                                └─▶ run: the state in front of these (captured) ─▶ shadow: what they compute ─▶ path
//!    └──────────── solver: an input on which a decision goes the other way ◀───────────────────────────────────────────────────────────┘
//! ```
//! The program runs translated, with its own libraries, on the real kernel. Only the instructions
//! that touch the input are looked at, outside of the program: some hundreds of a million.
//!
//! **Guarantee.** Every path was executed, on an input that anyone can give the program. A finding
//! was seen in such a run; nothing is derived from expressions alone. An instruction that is not
//! described makes fewer paths, never wrong ones.
//!
//! **Source.** AGAMOTTO (OSDI 2020); SAGE (NDSS 2008) for the search. **Deviations.** Those of
//! `search/mod.rs` and `shadow.rs`. The input comes by one way (standard input, a file, a part of
//! one, arguments, connections), to one process, and has as many bytes as it had to begin with.

mod areas;
mod campaign;
mod captured;
mod input;
mod judge;
mod modules;
mod native;
mod numbers;
mod options;
mod path;
mod patience;
mod run;
mod search;
mod shadow;
mod stage;
mod story;
mod tables;
mod template;
mod value;

pub use brownout_solve::try_solver;
pub use brownout_stage::{Delivery, Endpoint, Place};
pub use campaign::{Looked, Progress, Searched, look, replay, symex};
pub use captured::{Piece, State};
pub use judge::{Found, Proof};
pub use native::write_script;
pub use numbers::Numbers;
pub use options::{Error, Options, Strategy};
pub use search::{Over, Step};
pub use shadow::Losses;
pub use template::first as from_templates;
