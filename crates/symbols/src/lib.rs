//! Turns addresses of a target program into functions, source files and lines.
//!
//! **Purpose.** Every event of a recording carries a program counter and a chain of return
//! addresses. This crate says what they mean: one or more [`Frame`]s per address, innermost first,
//! inlined calls included, C++ and Rust names demangled.
//!
//! ```text
//!  pc ─▶ module (path, file offset) ─▶ ELF segment (address in the file) ─┬▶ DWARF: frames, file:line:column
//!                                                                         ├▶ symbol tables: function+offset
//!                                                                         └▶ module+offset
//! ```
//!
//! It also says what an instruction stores to, as the programmer calls it (`root->count`), where
//! debug information makes that certain; and to which program and which test of a run a stack
//! belongs ([`Programs`]).
//!
//! **Guarantee.** A look-up never fails: what cannot be named falls back one step at a time, down
//! to `module+offset` and the bare address. Files are opened on the first look-up that needs them,
//! memory-mapped, and parsed as far as needed; damaged or truncated files lose names, they cause no
//! error. What was asked about keeps its name when its code goes away and other code comes to its
//! addresses (`dlclose`, `execve`). It may be *wrong* (never unsafe) if a file was replaced since
//! the recording, because a module is known by its path only. A file that another process truncates
//! *while* it is being read ends this process with SIGBUS, as with every reader that maps files.
//!
//! **Source.** Where separate debug files live follows the GDB manual, "Debugging Information in
//! Separate Files" and "MiniDebugInfo"; DWARF reading is gimli's and addr2line's.
//!
//! **Deviations.** Nothing is downloaded: of debuginfod only the local cache is used. Split DWARF
//! is looked for in `MODULE.dwp`, where the compiler left it (`.dwo`), and beside the module; where
//! it is missing, units have lines but no inlined frames.
//!
//! ```
//! use brownout_symbols::{CodeAddr, Options, Symbolizer};
//! use brownout_trace::event::{ProcessId, TargetAddr};
//!
//! let mut symbolizer = Symbolizer::new(Options::default());
//! let process = ProcessId(1);
//! symbolizer.add_module(process, TargetAddr(0x40_0000), 0x1000, 0, b"/no/such/program".as_slice());
//! let frames = symbolizer.frames(process, CodeAddr::Pc(TargetAddr(0x40_0010)));
//! assert_eq!(frames[0].to_string(), "program+0x10");
//! ```

mod callers;
mod demangle;
mod elf;
mod frame;
mod image;
mod locate;
mod modules;
mod origins;
mod persisting;
mod shape;
mod stacks;
mod symbolizer;
mod symtab;
mod touches;

pub use demangle::demangle;
pub use frame::{Frame, Location};
pub use locate::{C_LIBRARY, Options};
pub use modules::{CodeAddr, CodePlace};
pub use origins::Programs;
pub use shape::Accessed;
pub use stacks::Stacks;
pub use symbolizer::Symbolizer;
pub use touches::{Counting, Part, Touches};
