//! All passes there are, in the order in which they are asked.

use super::builder::{self, Pass};
use super::{atomics, capture, comparisons, edges, follow, interpret, points, site};
use crate::mode::Mode;

static ALL: [&dyn Pass; 8] = [
    &follow::Follow,
    &points::Points,
    &atomics::Atomics,
    &capture::Capture,
    &edges::EdgeCoverage,
    &comparisons::Comparisons,
    &interpret::Exercise,
    &site::PmTracking,
];

/// Decides which of them are in force, once, before anything is translated.
pub fn choose(mode: &Mode) {
    builder::choose(&ALL, mode);
}
