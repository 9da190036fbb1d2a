//! Edge coverage: which branches the program takes, and about how often.
//!
//! A counter for each pair of source and target address. Blocks are cut where translation happens to cut them, so they name nothing;
//! branches do. Addresses count from the beginning of their module's code, so that the same edge has the same counter in every run, wherever
//! the module is loaded. (The targets of indirect branches count by their low bits as they are: for them that holds under the same layout.)
//!
//! The counters are memory that the tool shares, mapped into each thread's context, where emitted code reaches them by one displacement
//! from GS. Threads count without locks: among several a count may be too small, but is never 0 for what was executed.

use super::builder::{Builder, Edge, Needs, Pass};
use crate::context::{EDGES_OFFSET, off, slot};
use crate::emit::{RCX, RDX};
use brownout_abi::EDGES;

/// See the module's header.
pub struct EdgeCoverage;

const ONE_REGISTER: Needs = Needs {
    registers: 1,
    flags: false,
};

impl Pass for EdgeCoverage {
    fn is_wanted(&self, mode: &crate::mode::Mode) -> bool {
        mode.edges
    }

    fn edge(&self, b: &mut Builder, edge: Edge) {
        let at = EDGES_OFFSET + 2 * counter(b.name(edge.from), b.name(edge.to));
        b.with_scratch(edge.from, ONE_REGISTER, |b, _| b.hot.count_at(at));
    }

    fn computed_edge(&self, b: &mut Builder, from: u64) {
        let start = counter(b.name(from), 0);
        b.hot.spill(off::spill(slot::PASS), RCX);
        // Functions are aligned, and returns lead anywhere: the lowest bit says least.
        b.hot.index_edx_ecx(1);
        b.hot.lea_sum32(RDX, start);
        b.hot.movzx_edx_dx();
        b.hot.count_at_rdx2(EDGES_OFFSET);
        b.hot.reload(RCX, off::spill(slot::PASS));
    }
}

/// The number of an edge's counter.
fn counter(from: u64, to: u64) -> u32 {
    const SPREAD: u64 = 0x9E37_79B9_7F4A_7C15;
    let mixed = (from.wrapping_mul(SPREAD).rotate_left(32) ^ to).wrapping_mul(SPREAD);
    (mixed >> (64 - EDGES.ilog2())) as u32
}

#[cfg(test)]
mod tests {
    use super::counter;

    #[test]
    fn both_ends_and_their_order_name_an_edge() {
        let all = [counter(1, 2), counter(2, 1), counter(1, 3), counter(4, 2)];
        for (i, one) in all.iter().enumerate() {
            assert!(!all[..i].contains(one), "{all:?}");
        }
    }
}
