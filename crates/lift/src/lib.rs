//! What an x86-64 instruction computes, over any algebra of bit vectors.
//!
//! ```text
//!  decoded  ──lift──► `Machine`: gpr, flag, load… ──► add, extract, ite… ──► set_gpr, store…
//!  iced insn   └────► Next: falls through, branches on a bit, jumps, goes to a computed address
//! ```
//!
//! The values are whatever the [`Machine`] says they are: numbers, so that instructions are
//! emulated; expressions, so that a run is followed symbolically. This crate never looks into a
//! value, it only knows how wide it is: what it calls depends on the instruction alone, not on the
//! state.
//!
//! # Guarantee
//!
//! After [`lift`] has returned `Ok`, the general registers, vector registers, memory and the flags
//! of [`Flag`] are what the processor leaves, if the operations of the algebra are what [`Algebra`]
//! says. A form that is not described is [`Unsupported`], never guessed, and nothing is changed
//! then. All values that are passed to an operation have the widths that [`Algebra`] asks for.
//!
//! `tests/differential.rs` executes instructions of every supported opcode on the processor, with
//! random operands and states, and compares everything that they leave with what is described here:
//! 1,286 opcodes, on 10,000 states each with `BROWNOUT_LIFT_STATES=10000` (two to four minutes).
//! `tests/suites/lifted.rs` of the workspace does so with every instruction of whole runs.
//!
//! # Source
//!
//! Intel SDM volumes 1 and 2, AMD APM volumes 1, 3 and 4.
//!
//! # Deviations
//!
//! 1. Whether an instruction faults is not described: what is lifted is what has been executed.
//!    Divisors are not zero and quotients fit, operands that must be aligned are.
//! 2. A flag that manuals leave undefined is the business of [`Machine::undefine_flag`]. Where that
//!    depends on a count in a register, the flag is undefined first and then set to a choice
//!    between what [`Machine::flag`] says and what is defined.
//! 3. `bsf` and `bsr` of zero leave their destination as it is, all 64 bits of it. That is what AMD
//!    documents, and what Intel's processors do but for old ones, which clear the upper half with
//!    operands of 32 bits.
//! 4. The result of `shld` and `shrd` of 16 bits by more than 16 is undefined, and not what the
//!    processor leaves. If the count is an immediate, the form is unsupported.
//! 5. A store that writes back what was there (`cmpxchg` that fails) is a store.
//! 6. That memory is accessed atomically, in an order, or past the caches is not described. Fences,
//!    prefetches and write-backs of lines do nothing.
//!
//! # What is left out
//!
//! Floating-point arithmetic and conversions, x87, MMX, AVX-512, AES and SHA, masked moves,
//! gathers, `pushf` and `popf`, `enter`, far branches, whatever concerns the system (`cpuid`,
//! `syscall`, `rdtsc`…), `bswap` of 16 bits (undefined), and `cmpxchg` of 32-bit registers:
//! processors differ in whether one that fails clears the destination's upper half.
//!
//! Of the instructions of Debian's bash and libpmemobj, 99.9 % are described, of its memcached and
//! redis 99.5 % or more; the rest is floating point.
//!
//! # Cost
//!
//! [`is_supported`] takes 0.1 µs, and [`lift`] that much more than its calls of the machine.
//!
//! # Example
//!
//! ```
//! use iced_x86::{Decoder, DecoderOptions};
//!
//! let decode = |bytes: &[u8]| Decoder::new(64, bytes, DecoderOptions::NONE).decode();
//! assert!(brownout_lift::is_supported(&decode(&[0x48, 0x01, 0xD8]))); // add rax, rbx
//! assert!(!brownout_lift::is_supported(&decode(&[0x0F, 0xA2]))); // cpuid
//! ```

#![no_std]

mod algebra;
mod answer;
mod arithmetic;
mod bits;
mod control;
mod dispatch;
mod elements;
mod flags;
mod operands;
mod shifts;
mod strings;
mod text;
mod vector;
mod widths;

pub use algebra::{Algebra, Flag, Machine};
pub use answer::{Next, Unsupported};

use iced_x86::Instruction;
use operands::Lifter;
use widths::Widths;

/// Carries an instruction out on a machine, and tells where control goes.
///
/// A string instruction is described if it has no `rep`; otherwise see [`lift_string_iteration`].
pub fn lift<M: Machine>(
    instruction: &Instruction,
    machine: &mut M,
) -> Result<Next<M::Value>, Unsupported> {
    if !is_supported(instruction) {
        return Err(Unsupported);
    }
    Lifter::new(instruction, machine).run()
}

/// Whether [`lift`] knows it, without running it.
#[must_use]
pub fn is_supported(instruction: &Instruction) -> bool {
    // The same rules on a machine that only knows widths: the two cannot disagree.
    Lifter::new(instruction, &mut Widths).run().is_ok()
}

/// Carries out one iteration of a string instruction: one element is moved, stored, loaded or
/// compared, `rsi` and `rdi` are moved on, and `rcx` is decremented if there is a `rep`.
///
/// How many iterations there are is for the caller to say: none if `rcx` is zero.
pub fn lift_string_iteration<M: Machine>(
    instruction: &Instruction,
    machine: &mut M,
) -> Result<(), Unsupported> {
    Lifter::new(instruction, &mut Widths).string_iteration()?;
    Lifter::new(instruction, machine).string_iteration()
}
