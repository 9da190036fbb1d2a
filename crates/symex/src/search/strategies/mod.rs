//! Which decision is turned next: a file for each strategy.
//!
//! | strategy | decisions come | inputs are made, ways that cannot be gone are led to | looks at persistent memory |
//! |---|---|---|---|
//! | `pm` | by how new their other way is (`newest.rs`), then by what lies behind it (`reach.rs`) | yes | yes |
//! | `coverage` | by how new their other way is | yes | no |
//! | `depth-first` | last of the newest path first | no | no |
//! | `random` | by chance | no | no |
//!
//! So `pm` and `coverage` differ in nothing but persistent memory; the other two are what their
//! names say, and nothing else. What is kept of a search, and what is found, is the same for all.

mod coverage;
mod depth_first;
mod newest;
mod pm;
mod random;

use super::strategy::Order;
use crate::options::Strategy;

/// The order that a name stands for.
pub(super) fn named(strategy: Strategy) -> &'static dyn Order {
    match strategy {
        Strategy::Pm => &pm::Pm,
        Strategy::Coverage => &coverage::Coverage,
        Strategy::DepthFirst => &depth_first::DepthFirst,
        Strategy::Random => &random::Random,
    }
}
