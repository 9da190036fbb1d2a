//! An irregular access that a thread has begun: plain data of its context. `irregular.rs` says what
//! is done with it.

use alloc::vec::Vec;
use brownout_insn::Access;

/// An irregular access under way in a thread.
#[derive(Default)]
pub struct State {
    /// What it accesses, known before execution (strings: until it is known how far they got).
    pub accesses: Vec<Access>,
    /// (register, distance) to take off again.
    pub shifts: [(u8, u64); 3],
    /// The scratch register's own content.
    pub scratch: Option<u64>,
    pub rcx: u64,
    pub rsi: u64,
    pub rdi: u64,
    /// Iterations of a string instruction that are left for another round.
    pub rest: u64,
    pub bounce: Option<alloc::boxed::Box<Bounce>>,
    pub active: bool,
}

/// The operand of an access that is partly tracked and partly not.
#[repr(align(64))]
pub struct Bounce {
    pub bytes: [u8; 64],
    pub addr: u64,
    pub len: usize,
}
