//! Vector, mask and MMX registers.

use crate::build::{Answer, Builder};
use crate::place::{Place, Span};

impl Builder<'_> {
    /// Writes a result to operand 0: merges it under the mask, if there is one, whose bits stand for
    /// lanes of this many bytes, and clears what has to be cleared.
    pub fn write_vector(&mut self, result: Span, lane: usize) -> Answer {
        let to = self.data(0)?;
        if self.insn.has_op_mask() {
            let mask = Place::opmask(self.insn.op_mask().number());
            if !self.insn.zeroing_masking() {
                self.union(result.place, result, to.place);
            }
            self.masked(lane, result, mask);
        }
        self.copy(to.place, result.low(to.len()));
        self.finish(0);
        Ok(())
    }

    /// A move of a whole register or memory operand.
    pub fn vector_move(&mut self, lane: usize) -> Answer {
        let (to, from) = (self.data(0)?, self.data(1)?);
        if !self.insn.has_op_mask() {
            self.copy(to.place, from.low(to.len()));
            self.finish(0);
            return Ok(());
        }
        let result = self.temporary(to.len());
        self.copy(result.place, from);
        self.write_vector(result, lane)
    }
}
