//! Faults that engine code finds on the program's behalf: they wait in the context, and are
//! delivered on the way back (`signal.rs`).

use crate::address::ProgramAddr;
use crate::context::ThreadContext;
use crate::sigdata::{Fault, SIGBUS, SIGSEGV, SigInfo};

/// Code of signals for what the processor does not say the address of.
const SI_KERNEL: i32 = 128;
const STACK_FAULT: u64 = 12;
const GENERAL_PROTECTION: u64 = 13;

/// Page-fault error code: by a user's instruction fetch.
const FETCH: u64 = 0x14;
/// Page-fault error code: by a user's access.
const ACCESS: u64 = 0x04;
/// Page-fault error code: by a store.
const WRITE: u64 = 0x02;
/// Page-fault error code: the page is there, but not for this.
pub const PRESENT: u64 = 0x01;
pub const PAGE_FAULT: u64 = 14;
const KERNEL_HALF: u64 = 0x7fff_ffff_f000;

/// The fault of an instruction fetch from `addr`: SEGV_ACCERR if something is mapped there, else
/// SEGV_MAPERR.
pub fn fetch_fault(addr: ProgramAddr) -> Fault {
    let addr = addr.get();
    let mapped = crate::maps::read()
        .iter()
        .any(|m| m.start <= addr && addr < m.end);
    Fault {
        trap: PAGE_FAULT,
        info: SigInfo::fault(SIGSEGV, if mapped { 2 } else { 1 }, addr),
        // The kernel does not tell what is in its own half.
        error: FETCH
            | if mapped || addr >= KERNEL_HALF {
                PRESENT
            } else {
                0
            },
    }
}

/// Engine code found that the program may not execute at `addr`, which the instruction at `ctx.rip`
/// begins or runs into.
pub fn raise_fetch_fault(ctx: &mut ThreadContext, addr: ProgramAddr) {
    raise(ctx, fetch_fault(addr));
}

/// Engine code that made an access for the instruction at `ctx.rip` found that the program cannot:
/// raises what the processor would have. `on_stack`: the operand is relative to the stack or frame
/// pointer.
pub fn raise_access_fault(ctx: &mut ThreadContext, addr: u64, is_write: bool, on_stack: bool) {
    let is_canonical = (addr as i64) << 16 >> 16 == addr as i64;
    if !is_canonical {
        let (sig, trap) = match on_stack {
            true => (SIGBUS, STACK_FAULT),
            false => (SIGSEGV, GENERAL_PROTECTION),
        };
        let info = SigInfo::fault(sig, SI_KERNEL, 0);
        return raise(
            ctx,
            Fault {
                info,
                trap,
                error: 0,
            },
        );
    }
    // SEGV_MAPERR, SEGV_ACCERR; or behind the end of a file: BUS_ADRERR.
    let (sig, code) = match crate::pm::is_allowed(addr, is_write) {
        None => (SIGSEGV, 1),
        Some(false) => (SIGSEGV, 2),
        Some(true) => (SIGBUS, 2),
    };
    let present = (sig, code) == (SIGSEGV, 2) || addr >= KERNEL_HALF;
    let fault = Fault {
        info: SigInfo::fault(sig, code, addr),
        trap: PAGE_FAULT,
        error: ACCESS | if is_write { WRITE } else { 0 } | if present { PRESENT } else { 0 },
    };
    raise(ctx, fault);
}

fn raise(ctx: &mut ThreadContext, fault: Fault) {
    ctx.pending.fault = Some(fault);
    ctx.pending_flag = 1;
    ctx.resume_is_boundary = true;
}
