//! What lifting an instruction answers.

/// Where control goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next<V> {
    /// To the next instruction.
    Falls,
    /// To one of two places.
    Branch {
        /// One bit: whether control goes to the target; else to the next instruction.
        taken: V,
        /// The address.
        target: u64,
    },
    /// Somewhere that was computed or loaded: `ret`, `jmp` and `call` by register or memory.
    Computed {
        /// The address, 64 bits.
        target: V,
    },
    /// To a place that the instruction names: `jmp`, `call`.
    Jump {
        /// The address.
        target: u64,
    },
}

/// This form is not described. Nothing was changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unsupported;
