//! Everything the engine knows about which memory an x86-64 instruction touches.
//!
//! ```text
//!            ┌─ classify ──────────► MemoryForm: kind of access, bytes        (at translation)
//!  decoded   ├─ fence, Usage ──────► ordering; registers and flags used
//!  iced      ├─ redirect(_bytes) ──► the same instruction on [scratch]
//!  insn      │
//!            ├─ element_accesses ──► the exact bytes, given the registers     (at run time)
//!            └─ emulate ───────────► executes it on a register image and a `Memory`
//! ```
//!
//! # Guarantee
//!
//! Nothing that can reach a file mapping is taken for harmless: an opcode that the table does not
//! know is [`MemoryForm::Unsupported`]. Emulation and the answers about masked operands are those
//! of the CPU. Each module says how it is tested; the oracles are iced's own instruction
//! information, a second implementation, and the CPU that the tests run on.
//!
//! # Source
//!
//! Intel SDM volumes 1 and 2, AMD APM volumes 3 and 4.
//!
//! # Deviations
//!
//! Only 64-bit mode. AMX tiles, `enqcmd`, far transfers through memory, shadow stacks and PadLock
//! are recognised and refused.
//!
//! # Rules
//!
//! `no_std`, and no global state but iced's tables: the crate runs inside the program under test.
//! Only [`UsageAnalyzer`] and [`Encode`] allocate, when created.
//!
//! # Example
//!
//! ```
//! use brownout_insn::{MemoryForm, SegmentBases, classify, effective_address, redirect_bytes};
//! use iced_x86::{Decoder, DecoderOptions, Register};
//!
//! let bytes = [0x48, 0x89, 0x44, 0xCB, 0x10]; // mov [rbx+rcx*8+16], rax
//! let insn = Decoder::with_ip(64, &bytes, 0x1000, DecoderOptions::NONE).decode();
//! let MemoryForm::Explicit { effect } = classify(&insn) else { panic!() };
//! assert!(effect.write && !effect.read && effect.size == 8);
//!
//! let mut gpr = [0; 16];
//! gpr[3] = 0x7000; // rbx
//! gpr[1] = 2; // rcx
//! assert_eq!(effective_address(&insn, &gpr, SegmentBases::default()), 0x7020);
//!
//! let mut code = [0; 15];
//! let length = redirect_bytes(&insn, &bytes, Register::R9, &mut code).unwrap();
//! assert_eq!(&code[..length], [0x49, 0x89, 0x01]); // mov [r9], rax
//! ```

#![no_std]

mod access;
mod cpu;
mod emulate;
mod forms;
mod redirect;
mod state;
mod usage;

pub use access::{
    Access, bit_string_address, effective_address, element_accesses, string_accesses,
};
pub use cpu::feature_of;
pub use emulate::{EmulateError, Memory, emulate};
pub use forms::{
    BitString, ByteMasked, Effect, FenceKind, FlushKind, LaneShape, Mask, Masked, MemoryForm,
    Repeat, StateArea, StateTransfer, StringOperation, VectorIndexed, classify, fence,
    is_fence_like, memory_operand,
};
pub use redirect::{
    Encode, EncodeError, INSTRUCTION_BYTES_MAX, encode, redirect, redirect_bytes, redirect_linear,
};
pub use state::{RegisterState, SegmentBases, XSAVE_HEADER_END, XsaveComponent, XsaveLayout};
pub use usage::{
    GprSet, Usage, UsageAnalyzer, flags_killed, flags_read, flags_written, read_gprs, used_gprs,
    written_gprs,
};
