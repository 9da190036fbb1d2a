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
//! - baseline x86-64 only: vector registers wider than xmm are never touched, so they need no saving;
//! - file descriptors are opened only for the length of one function;
//! - an error is the user's ([`fatal_unsupported`]), or ours ([`fatal_bug`]); neither is ever silent.
#![no_std]
#![no_main]

extern crate alloc;

mod asm;
mod cache;
mod context;
mod deterministic;
mod dispatch;
mod emit;
mod emulate;
mod heap;
mod insn;
mod layout;
mod maps;
mod pm;
mod process;
mod redirects;
mod requests;
mod runtime;
mod service;
mod session;
mod signal;
mod sync;
mod sys;
mod syscall;
mod translate;

use brownout_abi as abi;
use context::ThreadContext;

#[global_allocator]
static HEAP: heap::Heap = heap::Heap::new();

/// What was asked for.
#[derive(Clone, Copy)]
pub struct Mode {
    /// [`abi::MODE_RECORD`].
    pub record: bool,
    /// [`abi::MODE_LOADS`].
    pub loads: bool,
    /// [`abi::MODE_VALUES`].
    pub values: bool,
    /// [`abi::MODE_DETERMINISTIC`].
    pub deterministic: bool,
    /// [`abi::MODE_EXECUTE_FLUSHES`].
    pub execute_flushes: bool,
    /// [`abi::MODE_LEAN`].
    pub lean: bool,
    /// [`abi::MODE_BOUNDARIES`].
    pub boundaries: bool,
    /// [`abi::MODE_LINE_INPUT`].
    pub line_input: bool,
    /// [`abi::MODE_NAMES`].
    pub names: bool,
    /// What the program must not see of the processor.
    pub hidden: abi::cpu::Features,
    /// What it cannot use: hidden, or lacking.
    pub missing: abi::cpu::Features,
}

static mut MODE: Mode = Mode {
    record: false,
    loads: false,
    values: false,
    deterministic: false,
    execute_flushes: false,
    lean: false,
    boundaries: false,
    line_input: false,
    names: false,
    hidden: abi::cpu::Features::NONE,
    missing: abi::cpu::Features::NONE,
};

/// What was asked for.
#[inline(always)]
pub fn mode() -> Mode {
    // SAFETY: written once in `start`, before any other thread exists.
    unsafe { MODE }
}

/// First Rust code, called by `_start` with what the launcher left on the stack.
pub extern "C" fn start(launch: &abi::Launch) -> ! {
    let control = service::control();
    if control.magic != abi::MAGIC || control.version != abi::VERSION {
        // SAFETY: ends the process; nothing else can be trusted.
        unsafe { sys::sc!(sys::nr::EXIT_GROUP, 70) };
    }
    let has = |bit| control.mode & bit != 0;
    // SAFETY: the only thread.
    unsafe {
        MODE = Mode {
            record: has(abi::MODE_RECORD),
            loads: has(abi::MODE_LOADS),
            values: has(abi::MODE_VALUES),
            deterministic: has(abi::MODE_DETERMINISTIC),
            execute_flushes: has(abi::MODE_EXECUTE_FLUSHES),
            lean: has(abi::MODE_LEAN),
            boundaries: has(abi::MODE_BOUNDARIES),
            line_input: has(abi::MODE_LINE_INPUT),
            names: has(abi::MODE_NAMES),
            hidden: abi::cpu::Features(control.cpu_hidden),
            missing: abi::cpu::Features(control.cpu_hidden | control.cpu_lacking),
        };
    }
    session::init(launch.previous_process == 0);
    redirects::init();
    syscall::init();
    pm::init_files();
    process::refresh_pid();
    let launch = &layout::arrange(launch);
    let ctx = ThreadContext::allocate();
    ctx.gpr = launch.gpr;
    ctx.rflags = launch.rflags;
    ctx.rip = launch.rip;
    process::adopt(ctx);
    signal::init_process(ctx, launch);
    {
        let mut engine = dispatch::ENGINE.lock();

        engine.refresh_code();
        engine.grow_lookup();
    }
    deterministic::init(ctx, launch.shown_pid as u32);
    pm::init_process(ctx, launch.previous_process);
    dispatch::resume_at_rip(ctx);
    // SAFETY: the context is complete.
    unsafe { asm::bo_enter() }
}

/// The program does something that is documented as unsupported.
pub fn fatal_unsupported(text: &str) -> ! {
    service::fatal(abi::FatalKind::Unsupported, text.as_bytes())
}

/// A bug of this engine.
#[cold]
pub fn fatal_bug(text: &str) -> ! {
    service::fatal(abi::FatalKind::Bug, text.as_bytes())
}

/// A fault in engine code.
#[cold]
fn engine_fault(sig: i32, rip: u64, addr: u64, uc: &signal::UContext) -> ! {
    use core::fmt::Write;
    let mut text = alloc::string::String::new();
    let _ = write!(
        text,
        "signal {sig} in engine code at image offset {:#x} (pc {rip:#x}), address {addr:#x}, rsp {:#x}, return addresses:",
        rip.wrapping_sub(abi::ENGINE_BASE),
        uc.m.rsp
    );
    let mut sp = uc.m.rsp;
    for _ in 0..400 {
        let mut v = 0u64;
        if !sys::read_memory(sp, unsafe_bytes(&mut v)) {
            break;
        }
        if (abi::ENGINE_BASE..abi::ENGINE_IMAGE_LIMIT).contains(&v) {
            let _ = write!(text, " {:#x}", v - abi::ENGINE_BASE);
        }
        sp += 8;
    }
    fatal_bug(&text)
}

fn unsafe_bytes(v: &mut u64) -> &mut [u8] {
    // SAFETY: the bytes of an integer.
    unsafe { core::slice::from_raw_parts_mut(v as *mut u64 as *mut u8, 8) }
}

#[panic_handler]
fn panic(info: &core::panic::PanicInfo) -> ! {
    fatal_bug(&alloc::format!("{info}"))
}
