//! What a run has decided because of its input.

use brownout_solve::Expr;

/// Why the path depends on the input here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// A conditional branch.
    Branch,
    /// A jump to an address that was computed.
    Jump,
    /// An address, or something that no rule describes: it is taken to be what it was.
    Taken,
    /// A table was looked up: only entries that are known are allowed.
    Bound,
}

/// A decision.
#[derive(Clone, Copy, Debug)]
pub struct Decision {
    /// The instruction.
    pub pc: u64,
    /// Why.
    pub kind: Kind,
    /// Of a branch: whether it was taken. Of the others: a number for where it went.
    pub way: u64,
    /// One bit, which was 1 in this run: what has to hold for the same way.
    pub condition: Expr,
    /// How far the run had come with persistent memory: fences so far.
    pub fences: u32,
}

impl Decision {
    /// The decision and the way that it went, as a number.
    pub fn name(&self) -> u64 {
        mix(mix(self.pc, self.kind as u64), self.way)
    }
}

/// All decisions of a run, in order.
#[derive(Clone, Debug, Default)]
pub struct Path {
    /// See [`Decision`].
    pub decisions: Vec<Decision>,
    /// There were more than are kept.
    pub is_cut: bool,
}

/// More decisions of one run are not kept: a loop over all of its input makes many.
const DECISIONS_MAX: usize = 20_000;

impl Path {
    /// One more.
    pub fn push(&mut self, decision: Decision) {
        match self.decisions.len() < DECISIONS_MAX {
            true => self.decisions.push(decision),
            false => self.is_cut = true,
        }
    }
}

/// A number made of two.
pub fn mix(a: u64, b: u64) -> u64 {
    let mut z = (a.rotate_left(23) ^ b).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    z ^= z >> 29;
    z.wrapping_mul(0xBF58_476D_1CE4_E5B9) ^ z >> 32
}
