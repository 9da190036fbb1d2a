//! All passes there are, in the order in which they are asked.

use super::builder::{self, Pass};
use super::{atomics, comparisons, edges, follow, interpret, points, site};
use crate::mode::Mode;

static ALL: [&dyn Pass; 7] = [
    &follow::Follow,
    &points::Points,
    &atomics::Atomics,
    &edges::EdgeCoverage,
    &comparisons::Comparisons,
    &interpret::Exercise,
    &site::PmTracking,
];

/// Decides which of them are in force, once, before anything is translated.
pub fn choose(mode: &Mode) {
    builder::choose(&ALL, mode);
}
