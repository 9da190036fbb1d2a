//! The engine: a dynamic binary translator that lives in the target's address space.
//!
//! ```text
//!   exec ─▶ launcher maps this image ─▶ start() ─▶ translate ─▶ run in the cache ─┐
//!                                        ▲                                        │
//!                                        └── dispatch: link, look up, syscall, ◀──┘
//!                                            tracked access, signal
//! ```
//!
//! Rules for all code in this crate (it is a guest in a foreign process):
//! - no libc, no FS/TLS, no program stack: own stacks, own heap, direct system calls;
//! - GS points at the thread's [`context::ThreadContext`], FS and everything else is the program's;
//! - baseline x86-64 only: vector registers wider than xmm are never touched, so they need no
//!   saving;
//! - file descriptors are opened only for the length of one function;
//! - an error is the user's ([`fatal_unsupported`]), or ours ([`fatal_bug`]); neither is ever
//!   silent.
//!
//! Modules form layers, from the bottom to the top; nothing names what lies above it (`cargo xtask
//! graph` sees to that):
//!
//! ```text
//!  plain data            address, block, clock, context, exit, hash, lookup, mode, requests, sigdata, pm::under_way
//!  the kernel, the tool  runtime, sys, copy, sync, heap, maps, paths, control, service, fatal, learned
//!  memory and cache      cache, emit, insn, machine, values, faults, dispositions,
//!                        and of pm: regions, frames, ring, site, stacks, hooks, record; follow
//!  routines              asm
//!  translation           translate, blocks
//!  persistent memory     the rest of pm
//!  the program's world   deterministic, layout, redirects
//!  signals, threads      signal, process, session
//!  ways into the engine  syscall, emulate, leave
//! ```
//! The hand-written routines are entered from below, by emitted code and by the kernel, and lead to
//! the top: [`asm::Upcalls`] is the one table of what they call, and it is filled here.
#![cfg_attr(not(test), no_std)]
#![cfg_attr(not(test), no_main)]

extern crate alloc;

mod address;
mod asm;
mod block;
mod blocks;
mod bulk;
mod cache;
mod clock;
mod context;
mod control;
mod copy;
mod deterministic;
mod dispositions;
mod emit;
mod emulate;
mod exit;
mod fatal;
mod faults;
mod follow;
mod hash;
mod heap;
mod insn;
mod layout;
mod learned;
mod leave;
mod lookup;
mod machine;
mod maps;
mod mode;
mod own_pages;
mod paths;
mod pm;
mod process;
mod redirects;
mod requests;
#[cfg(not(test))]
mod runtime;
mod schedule;
mod service;
mod session;
mod sigdata;
mod signal;
mod sync;
mod sys;
mod syscall;
mod translate;
mod values;

use brownout_abi as abi;
pub use fatal::{fatal_bug, fatal_unsupported};
pub use mode::mode;

#[cfg(not(test))]
core::arch::global_asm!(
    // First instruction of the image. rsp points at a Launch. (A test has a start of its own.)
    ".global _start",
    "_start:",
    "mov rdi, rsp",
    "xor ebp, ebp",
    "and rsp, -64",
    "call {start}",
    "ud2",
    start = sym start,
);

/// First Rust code, called by `_start` with what the launcher left on the stack.
pub extern "C" fn start(launch: &abi::Launch) -> ! {
    let control = control::control();
    if control.magic != abi::MAGIC || control.version != abi::VERSION {
        // SAFETY: ends the process; nothing else can be trusted.
        unsafe { sys::sc!(sys::nr::EXIT_GROUP, 70) };
    }
    mode::init(control);
    translate::passes::choose(&mode());
    asm::install(asm::Upcalls {
        dispatch: leave::engine_dispatch,
        thread_start: process::thread_start,
        signal: signal::signal_handler,
    });
    protect_image();
    session::init(launch.previous_process == 0);
    redirects::init();
    syscall::init();
    pm::init_files();
    control::refresh_pid();
    let launch = &layout::arrange(launch);
    let ctx = &mut *process::new_context();
    ctx.gpr = launch.gpr;
    ctx.rflags = launch.rflags;
    ctx.rip = address::ProgramAddr::new(launch.rip);
    process::adopt(ctx);
    signal::init_process(ctx, launch);
    {
        let mut engine = blocks::ENGINE.lock();

        engine.refresh_code();
        engine.grow_lookup();
    }
    deterministic::init(ctx, launch.shown_pid as u32);
    pm::init_process(ctx, launch.previous_process);
    schedule::turn::begin(ctx);
    blocks::resume_at_rip(ctx);
    // SAFETY: the context is complete.
    unsafe { asm::bo_enter() }
}

/// Takes write access from the engine's code and constants, which nothing changes from here on: a
/// wild pointer of the program's faults there as it would without us. What the engine writes to
/// cannot be protected, because it is the same thread that writes.
fn protect_image() {
    const PT_LOAD: u32 = 1;
    const PT_GNU_RELRO: u32 = 0x6474_e552;
    const PF_X: u32 = 1;
    const PF_W: u32 = 2;
    // SAFETY: the image begins with its own ELF header, and is mapped whole.
    let word = |at: u64| unsafe { *((abi::ENGINE_BASE + at) as *const u64) };
    let headers = word(0x20);
    let count = word(0x38) & 0xffff;
    for i in 0..count {
        let header = headers + 56 * i;
        let (kind, flags) = (word(header) as u32, (word(header) >> 32) as u32);
        let mut prot = sys::PROT_READ;
        match kind {
            PT_LOAD if flags & PF_X != 0 => prot |= sys::PROT_EXEC,
            PT_LOAD if flags & PF_W != 0 => prot |= sys::PROT_WRITE,
            // Behind the segment of which it is a part.
            PT_LOAD | PT_GNU_RELRO => {}
            _ => continue,
        }
        let start = (abi::ENGINE_BASE + word(header + 0x10)) & !4095;
        let end = sys::page_up(abi::ENGINE_BASE + word(header + 0x10) + word(header + 0x28));
        // SAFETY: as the linker has it, which gives segments pages of their own. Relocations have
        // been made.
        unsafe { sys::sc!(sys::nr::MPROTECT, start, end - start, prot) };
    }
}

#[cfg(not(test))]
#[panic_handler]
fn panic(info: &core::panic::PanicInfo) -> ! {
    fatal_bug(&alloc::format!("{info}"))
}
