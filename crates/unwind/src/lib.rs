//! Call stacks from call-frame information, inside the process that is being looked at.
//!
//! **Purpose.** The engine wants the chain of return addresses at every event, fast, and without
//! keeping a shadow stack. Compilers already say, for each program counter, where the caller's
//! frame lies (`.eh_frame`). This crate compiles that saying, once for each distinct program
//! counter, into a 16-byte [`FrameRule`]; the engine caches the rules, and a step from a frame to
//! its caller is then one addition and two reads of the stack.
//!
//! ```text
//!  image in memory ──module_from_image──▶ Module ──rule_for(LookupPc)──▶ FrameRule   (cached by caller)
//!                                                                            │
//!  registers at the event ──▶ Cursor ──────────────step(rule, memory)────────┴──▶ Step, Step, … Stop
//! ```
//!
//! **Guarantee.** Errs towards stopping: a rule that cannot be expressed exactly is
//! [`FrameRule::Unknown`], a saved `rbp` that cannot be found makes the cursor forget `rbp`, and
//! [`step`] then stops with the reason instead of guessing. Only [`rule_from_code`] and
//! [`step_by_frame_pointer`], for code without tables, are heuristics, and they have their own
//! names so that nobody calls them by accident. Where the linker has made no index (`gcc -static`),
//! the tables are recognised by what compilers write ([`Tables::find_in`]), and whoever can
//! allocate makes one ([`Module::with_index`]). Corrupt tables give `Unknown` or a wrong rule,
//! never a panic, an endless loop or a read outside of the segments that hold them. Nothing here
//! allocates, locks or uses thread-local state.
//!
//! **Source.** DWARF 5 section 6.4 (call-frame information), the System V x86-64 psABI section 3.7
//! (register numbers, `.eh_frame`), LSB 5.0 core section 10.6 (`.eh_frame_hdr`), and the kernel's
//! `struct rt_sigframe` for signal frames. gimli decodes entries and instructions; the rows are
//! executed here, because only three of their columns matter (CFA, `rbp`, return address), and
//! gimli's own execution serves as the oracle of the tests.
//!
//! **Deviations.**
//! 1. Only `rsp` and `rbp` are carried from frame to frame. A canonical frame address (CFA) in
//!    terms of another register is understood where the caller knows that register
//!    ([`step_with_registers`]): in practice the innermost frame. Deeper ones (glibc's
//!    `_dl_runtime_resolve`) end the stack.
//! 2. The return address must be saved at `CFA - 8`, where `call` puts it. The few instructions in
//!    `vfork`, `longjmp` and `setcontext` during which it lives elsewhere are `Unknown`.
//! 3. DWARF expressions are evaluated symbolically when the rule is made, with the program counter
//!    as a constant. Whatever does not end as `register + n` or `*(register + n) + m` is `Unknown`.
//!
//! # Which address to look up
//!
//! A return address is the address *after* the call, which may already belong to the next function
//! (after a call that never returns) or to a row with other rules. So a return address is looked up
//! at `pc - 1`. The innermost frame, and a frame that a signal interrupted, are looked up at `pc`
//! itself. [`PcKind`] says which of the two a program counter is, [`Cursor`] keeps it up to date,
//! and [`LookupPc`] can only be made by saying it.
//!
//! # Example
//!
//! ```
//! use brownout_unwind::{Cursor, FrameRule, Memory, PcKind, RbpRule, step};
//!
//! struct Stack(u64, [u64; 3]);
//! impl Memory for Stack {
//!     fn read_u64(&self, addr: u64) -> Option<u64> {
//!         self.1.get((addr.checked_sub(self.0)? / 8) as usize).copied()
//!     }
//! }
//!
//! // `push rbp; sub rsp, 8` has run: one local, the caller's rbp, the return address.
//! let memory = Stack(0x7000, [0, 0x7040, 0x40_1234]);
//! let rule = FrameRule::Rsp { cfa_offset: 24, rbp: RbpRule::AtCfa(-16) };
//! let mut cursor = Cursor::innermost(0x40_5000, 0x7000, 0);
//! let caller = step(rule, &mut cursor, &memory).unwrap();
//! assert_eq!((caller.return_addr, caller.slot), (0x40_1234, 0x7010));
//! assert_eq!((cursor.pc, cursor.rsp, cursor.rbp), (0x40_1234, 0x7018, Some(0x7040)));
//! assert_eq!(cursor.kind, PcKind::ReturnAddress);
//! ```
#![no_std]

mod expression;
mod image;
mod rule;
mod table;
mod walk;

pub use image::{CodeMapping, Module, module_from_image, rule_for};
pub use rule::{FrameRule, LookupPc, PcKind, RbpRule, Register};
pub use table::{Tables, encode_index, index_bytes};
pub use walk::{
    Cursor, FRAME_BYTES_MAX, Memory, RULE_CODE_BYTES_MAX, Step, Stop, rule_from_code, step,
    step_by_frame_pointer, step_with_registers,
};
