//! All passes there are, in the order in which they are asked.

use super::builder::{self, Pass};
use super::{edges, interpret, site};
use crate::mode::Mode;

static ALL: [&dyn Pass; 3] = [
    &edges::EdgeCoverage,
    &interpret::Exercise,
    &site::PmTracking,
];

/// Decides which of them are in force, once, before anything is translated.
pub fn choose(mode: &Mode) {
    builder::choose(&ALL, mode);
}
