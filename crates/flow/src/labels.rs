//! A plain shadow: the labels of all registers and of the memory operands of one instruction.

use crate::flow::MEMORY_OPERANDS_MAX;
use crate::op::Shadow;
use crate::place::{Place, REGISTER_PLACES};
use alloc::boxed::Box;
use alloc::vec;

/// Labels that are bit sets of at most 32 sources. For tests, and for whoever needs no more.
#[derive(Clone)]
pub struct Labels {
    /// By place.
    pub registers: Box<[u32]>,
    /// By operand and byte.
    pub memory: [Box<[u32]>; MEMORY_OPERANDS_MAX],
    /// The top of the x87 stack.
    pub top: u8,
}

/// More than the largest memory operand has (`xsave`).
const OPERAND_BYTES_MAX: usize = 4096;

impl Default for Labels {
    fn default() -> Self {
        Self::new()
    }
}

impl Labels {
    /// No labels anywhere.
    #[must_use]
    pub fn new() -> Labels {
        let operand = || vec![0; OPERAND_BYTES_MAX].into_boxed_slice();
        Labels {
            registers: vec![0; REGISTER_PLACES].into_boxed_slice(),
            memory: [operand(), operand()],
            top: 0,
        }
    }
}

impl Shadow for Labels {
    fn register(&self, place: Place) -> u32 {
        self.registers[usize::from(place.0)]
    }

    fn set_register(&mut self, place: Place, label: u32) {
        self.registers[usize::from(place.0)] = label;
    }

    fn load(&mut self, operand: usize, byte: usize) -> u32 {
        self.memory[operand][byte]
    }

    fn store(&mut self, operand: usize, byte: usize, label: u32) {
        self.memory[operand][byte] = label;
    }

    fn union(&mut self, a: u32, b: u32) -> u32 {
        a | b
    }

    fn x87_top(&self) -> u8 {
        self.top
    }
}
