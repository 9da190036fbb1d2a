//! Edge coverage: which ways the program takes where it has a choice.
//!
//! A byte for each pair of source and target address, 1 if that way was taken. Blocks are cut where
//! translation happens to cut them, so they name nothing; branches do. Addresses count from the
//! beginning of their module's code, so that the same edge has the same byte in every run, wherever
//! the module is loaded. (The targets of indirect branches count by their low bits as they are: for
//! them that holds under the same layout.) Direct jumps and calls, and returns, are no choice, and
//! have none.
//!
//! The bytes are memory that the tool shares, mapped into each thread's context, where emitted code
//! reaches them by one displacement from GS. So an edge costs one store, which needs no register
//! and changes no flag; counting would need both, and made programs twice as slow.

use super::builder::{Builder, Edge, Pass};
use crate::address::ProgramAddr;
use crate::context::EDGES_OFFSET;
use crate::emit::RDX;
use brownout_abi::EDGES;

/// See the module's header.
pub struct EdgeCoverage;

impl Pass for EdgeCoverage {
    fn is_wanted(&self, mode: &crate::mode::Mode) -> bool {
        mode.edges
    }

    fn edge(&self, b: &mut Builder, edge: Edge) {
        if edge.is_choice {
            b.hot
                .mark_at(EDGES_OFFSET + number(b.name(edge.from), b.name(edge.to)));
        }
    }

    fn computed_edge(&self, b: &mut Builder, from: ProgramAddr) {
        // Functions are aligned: the lowest bit says least.
        b.hot.index_edx_ecx(1);
        b.hot.lea_sum32(RDX, number(b.name(from), 0));
        b.hot.movzx_edx_dx();
        b.hot.mark_at_rdx(EDGES_OFFSET);
    }
}

/// The number of an edge's byte.
fn number(from: u64, to: u64) -> u32 {
    const SPREAD: u64 = 0x9E37_79B9_7F4A_7C15;
    let mixed = (from.wrapping_mul(SPREAD).rotate_left(32) ^ to).wrapping_mul(SPREAD);
    (mixed >> (64 - EDGES.ilog2())) as u32
}

#[cfg(test)]
mod tests {
    use super::number;

    #[test]
    fn both_ends_and_their_order_name_an_edge() {
        let all = [number(1, 2), number(2, 1), number(1, 3), number(4, 2)];
        for (i, one) in all.iter().enumerate() {
            assert!(!all[..i].contains(one), "{all:?}");
        }
    }
}
