//! Which output bytes of an x86-64 instruction depend on which input bytes.
//!
//! ```text
//!  decoded  ──analyze──► Flow ─┬─ ops      copy, union, fold, fill… of labels   (kept with the block)
//!  iced insn                   ├─ memory   operands, and what their addresses depend on
//!                              └─ summary  registers read and written, as bit sets
//!                                   │
//!                              apply / run  over a `Shadow` that holds the labels  (at run time)
//! ```
//!
//! A label stands for a set of sources, whatever those are to the caller. The analysis of an
//! instruction is made once; its result is plain data that is applied each time the instruction
//! is executed. What an *address* depends on is told apart from content: the caller decides whether
//! a value that was loaded by a labelled pointer has that label ([`Flow::address_label`]).
//!
//! # Guarantee
//!
//! Never too little: if a change of an input byte can change an output byte, the output's label
//! contains the input's, by content or (for what is loaded and stored) by address. An instruction
//! that this crate does not know is [`Unknown`], never guessed. It may be too much: where bytes are
//! mixed in ways that are not worth telling apart, every output byte depends on every input byte.
//!
//! `tests/differential.rs` executes instructions of every opcode on the processor, flips input
//! bits and compares what changed with what was declared; the same for sequences of instructions.
//! It also measures how much is declared in vain.
//!
//! # Source
//!
//! Intel SDM volumes 1 and 2, AMD APM volumes 1, 3, 4 and 5, and iced's description of operands
//! for what is not worth a rule of its own.
//!
//! # Deviations
//!
//! 1. A flag that manuals leave undefined may depend on all inputs of the instruction and on its
//!    old value, except the auxiliary carry of logical instructions, which all processors clear.
//! 2. Where a branch goes is content of [`Place::CONTROL`], which nothing reads: labels do not
//!    spread to what is executed because of a branch.
//! 3. Whether an instruction faults is no output.
//! 4. What the processor or the kernel supplies (time, random numbers, selectors, what a system
//!    call returns) has no label. The caller labels what system calls write.
//! 5. Pointers to the last x87 instruction and its operand, which `fnstenv` and its like store,
//!    have no label.
//! 6. Nor has the header of an area that processor state is saved to (see [`transfer_state`]).
//!
//! # Cost
//!
//! 0.2 µs to analyse an instruction, three operations each, and 50 ns to apply them to a plain
//! array, on average over the code of bash, libc and libpmemobj.
//!
//! # Rules
//!
//! `no_std`, and no global state but iced's tables, because it runs inside the program under test.
//! Only [`Analyzer`] allocates, when it is created.
//!
//! # Example
//!
//! ```
//! use brownout_flow::{Analyzer, Flow, Labels, Place, Shadow};
//! use iced_x86::{Decoder, DecoderOptions};
//!
//! // movzx eax, byte [rbx]
//! let insn = Decoder::new(64, &[0x0F, 0xB6, 0x03], DecoderOptions::NONE).decode();
//! let mut flow = Flow::new();
//! Analyzer::new().analyze(&insn, &mut flow).unwrap();
//!
//! let mut labels = Labels::new();
//! labels.set_register(Place::gpr(0).plus(5), 1); // something in the upper half of rax
//! labels.memory[0][0] = 2; // what is loaded
//! labels.set_register(Place::gpr(3), 4); // the pointer
//! flow.apply(&mut labels);
//! assert_eq!(labels.register(Place::gpr(0)), 2);
//! assert_eq!(labels.register(Place::gpr(0).plus(5)), 0);
//! assert_eq!(flow.address_label(0, &mut labels), 4);
//! assert_eq!(flow.summary().gprs_written, 1);
//! ```

#![no_std]

extern crate alloc;

mod build;
mod flow;
mod integer;
mod labels;
mod op;
mod place;
mod state;
mod table;
mod vector;
mod x87;

pub use flow::{At, Flow, MEMORY_OPERANDS_MAX, MemoryOperand, OPS_MAX, Summary};
pub use labels::Labels;
pub use op::{Kind, Op, Shadow, run};
pub use place::{Flag, Place, PlaceKind, REGISTER_PLACES, Span, TEMPORARIES};
pub use state::{StateFacts, transfer_state};
pub use table::Analyzer;

/// Why the data flow of an instruction is not known. The caller has to give up on whatever it
/// writes, and to say so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unknown(pub &'static str);
