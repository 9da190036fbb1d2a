//! System calls: most go to the kernel as they are; those that concern what the engine virtualises
//! (memory, signals, threads, programs, tracked files) are handled here.

use crate::asm::{Outcome, program_syscall};
use crate::context::ThreadContext;
use crate::dispatch::ENGINE;
use crate::maps::CodeRange;
use crate::signal;
use crate::sys::{self, nr};
use crate::{layout, pm, process, redirects};

/// A `syscall` instruction at `ctx.rip`.
pub fn handle(ctx: &mut ThreadContext) {
    let g = &ctx.gpr;
    let number = g[0] as u32 as u64;
    let args = [g[7], g[6], g[2], g[10], g[8], g[9]];
    // `None`: a signal comes first, and the program will make the call again afterwards.
    if let Some(result) = perform(ctx, number, args) {
        ctx.gpr[0] = result as u64;
        ctx.gpr[1] = ctx.rip + 2;
        ctx.gpr[11] = ctx.rflags;
        ctx.rip += 2;
    }
    crate::dispatch::resume_at_rip(ctx);
}

fn perform(ctx: &mut ThreadContext, number: u64, a: [u64; 6]) -> Option<i64> {
    crate::session::before_syscall(ctx, number, &a);
    let result = match number {
        nr::RT_SIGACTION => pm::answered(ctx, number, &a, |ctx| signal::sigaction(ctx, &a)),
        nr::RT_SIGPROCMASK => pm::answered(ctx, number, &a, |ctx| signal::sigprocmask(ctx, &a)),
        nr::SIGALTSTACK => pm::answered(ctx, number, &a, |ctx| signal::sigaltstack(ctx, &a)),
        nr::RT_SIGRETURN => signal::sigreturn(ctx),
        nr::CLONE => {
            let (flags, stack, ptid, ctid, tls) = process::clone_arguments(&a);
            if [ptid, ctid]
                .iter()
                .any(|&at| at != 0 && pm::readable_alias(at) != at)
            {
                crate::fatal_unsupported(
                    "the program has the kernel write a thread's number to persistent memory (clone)",
                );
            }
            shown(process::clone(ctx, flags, stack, ptid, ctid, tls))
        }
        nr::FORK => shown(process::plain_fork(ctx)),
        nr::VFORK => shown(process::vfork(ctx)),
        // glibc falls back to clone; structures that grow with the kernel are not worth following.
        nr::CLONE3 => -sys::ENOSYS,
        // Restartable sequences name code ranges by address; glibc works without.
        nr::RSEQ => -sys::ENOSYS,
        // Shared rings would let the kernel write to tracked memory unseen; programs fall back.
        nr::IO_URING_SETUP => -sys::ENOSYS,
        nr::EXECVE | nr::EXECVEAT => {
            return pm::with_prepared(ctx, number, &a, process::exec);
        }
        nr::EXIT => process::exit_thread(ctx, a[0]),
        nr::EXIT_GROUP => return process::exit_group(ctx, a[0]),
        nr::GETPPID if !crate::mode().deterministic => process::parent(),
        nr::UNSHARE => {
            process::may_enter_namespace(a[0]);
            return pass(ctx, number, &a);
        }
        nr::SETNS => {
            // Which kind of namespace it is only the descriptor says.
            process::may_enter_namespace(u64::MAX);
            return pass(ctx, number, &a);
        }
        nr::ARCH_PRCTL if a[0] == 0x1001 => crate::fatal_unsupported(
            "the program sets the GS register, which this tool uses itself",
        ),
        nr::ARCH_PRCTL if a[0] == 0x1004 => {
            if signal::write_value(a[1], &0u64) {
                0
            } else {
                -sys::EFAULT
            }
        }
        nr::MMAP => return mmap(ctx, a),
        nr::MUNMAP
        | nr::MPROTECT
        | nr::PKEY_MPROTECT
        | nr::MREMAP
        | nr::MADVISE
        | nr::MSYNC
        | nr::BRK => return memory(ctx, number, a),
        nr::SHMAT if a[1] != 0 && shmat_overlaps_engine(&a) => -sys::EINVAL,
        nr::SHMAT => return layout::shmat(&a),
        nr::RT_SIGSUSPEND => return with_mask(ctx, number, a, 0, 1),
        RT_SIGTIMEDWAIT => match signal::sigtimedwait(ctx, &a) {
            Some(result) => result,
            None => return pass(ctx, number, &a),
        },
        RT_SIGQUEUEINFO | nr::RT_TGSIGQUEUEINFO => {
            let mut b = a;
            crate::deterministic::real_pids(number, &mut b);
            match signal::queue_own(ctx, number, &b) {
                Some(result) => result,
                None => return pass(ctx, number, &a),
            }
        }
        nr::RT_SIGPENDING => pm::answered(ctx, number, &a, |ctx| signal::sigpending(ctx, &a)),
        nr::PSELECT6 => return pselect(ctx, a),
        nr::PPOLL => return with_mask(ctx, number, a, 3, 4),
        nr::EPOLL_PWAIT | nr::EPOLL_PWAIT2 => return with_mask(ctx, number, a, 4, 5),
        _ => return pass(ctx, number, &a),
    };
    Some(result)
}

/// A new process's or thread's number as the program knows it.
fn shown(result: i64) -> i64 {
    if result > 0 {
        crate::deterministic::shown_pid(result as u32) as i64
    } else {
        result
    }
}

/// The call as it is, tracked pointers rewritten.
pub fn pass(ctx: &mut ThreadContext, number: u64, a: &[u64; 6]) -> Option<i64> {
    let mut a = *a;
    crate::deterministic::real_pids(number, &mut a);
    let redirected = redirects::apply(number, &mut a);
    let result = if pm::is_plain_syscall(number) {
        as_it_is(number, &a)
    } else {
        pm::syscall(ctx, number, &a)
    }?;
    for path in redirected {
        pm::looked_up(ctx, number, result, &path);
    }
    Some(result)
}

/// Makes the call with these arguments.
pub fn as_it_is(number: u64, a: &[u64; 6]) -> Option<i64> {
    let call = [number, a[0], a[1], a[2], a[3], a[4], a[5]];
    // SAFETY: none of these arguments names memory of the engine by accident; a program that does so by
    // intent breaks itself, as it could natively.
    let mut outcome = unsafe { program_syscall(&call) };
    if matches!(outcome, Outcome::Done(r) if r == -sys::EFAULT) && ENGINE.lock().unprotect_all() {
        // The kernel may have met a code page that only we have write-protected.
        // SAFETY: as above.
        outcome = unsafe { program_syscall(&call) };
    }
    match outcome {
        Outcome::Done(r) => Some(r),
        Outcome::Interrupted => None,
    }
}

/// Calls that install a mask for their duration: SIGSEGV and its kin stay unblocked.
fn with_mask(
    ctx: &mut ThreadContext,
    number: u64,
    a: [u64; 6],
    mask_arg: usize,
    size_arg: usize,
) -> Option<i64> {
    let mut mask = 0u64;
    let mut b = a;
    if a[mask_arg] != 0 && a[size_arg] == 8 && signal::read_value(a[mask_arg], &mut mask) {
        if signal::would_end_wait(ctx, mask) {
            return end_wait(ctx, number, b, mask_arg, mask);
        }
        ctx.set_suspend_mask(Some(mask));
        mask &= !signal::SYNC_MASK;
        b[mask_arg] = &mask as *const u64 as u64;
    }
    let result = pass(ctx, number, &b);
    ctx.set_suspend_mask(None);
    result
}

/// A wait that a held signal ends at once, if there is nothing else that does.
fn end_wait(
    ctx: &mut ThreadContext,
    number: u64,
    mut a: [u64; 6],
    mask_arg: usize,
    mask: u64,
) -> Option<i64> {
    let nothing = [0u64; 2];
    let zero = nothing.as_ptr() as u64;
    let timeout = match number {
        nr::PPOLL => Some((2, zero)),
        nr::PSELECT6 => Some((4, zero)),
        nr::EPOLL_PWAIT => Some((3, 0)),
        nr::EPOLL_PWAIT2 => Some((3, zero)),
        _ => None,
    };
    if let Some((argument, value)) = timeout {
        a[argument] = value;
        a[mask_arg] = 0;
        let ready = pass(ctx, number, &a)?;
        if ready != 0 {
            return Some(ready);
        }
    }
    signal::end_wait(ctx, mask);
    Some(-sys::EINTR)
}

const RT_SIGTIMEDWAIT: u64 = 128;
const RT_SIGQUEUEINFO: u64 = 129;

/// `pselect6` has its mask behind one more pointer.
fn pselect(ctx: &mut ThreadContext, a: [u64; 6]) -> Option<i64> {
    let (mut pair, mut mask) = ([0u64; 2], 0u64);
    let mut b = a;
    if a[5] != 0
        && signal::read_value(a[5], &mut pair)
        && pair[0] != 0
        && signal::read_value(pair[0], &mut mask)
    {
        if signal::would_end_wait(ctx, mask) {
            return end_wait(ctx, nr::PSELECT6, b, 5, mask);
        }
        ctx.set_suspend_mask(Some(mask));
        mask &= !signal::SYNC_MASK;
        pair[0] = &mask as *const u64 as u64;
        b[5] = pair.as_ptr() as u64;
    }
    let result = pass(ctx, nr::PSELECT6, &b);
    ctx.set_suspend_mask(None);
    result
}

fn mmap(ctx: &mut ThreadContext, a: [u64; 6]) -> Option<i64> {
    let [addr, len, prot, flags, _, _] = a;
    let fixed = flags & sys::MAP_FIXED != 0;
    if fixed && overlaps_engine(addr, len) {
        return Some(-sys::ENOMEM);
    }
    if fixed {
        forget_code(addr, addr.wrapping_add(len), pm::code_unmapped);
    }
    let result = pm::mmap(ctx, &a)?;
    if result > -4096 && result < 0 {
        return Some(result);
    }
    if prot & sys::PROT_EXEC != 0 {
        let shared = flags & sys::MAP_TYPE != sys::MAP_PRIVATE;
        ENGINE.lock().code.insert(CodeRange {
            start: result as u64,
            end: result as u64 + page_up(len),
            writable: prot & sys::PROT_WRITE != 0 || shared,
            shared,
        });
        pm::code_mapped(ctx, result as u64, page_up(len), &a);
    }
    Some(result)
}

fn memory(ctx: &mut ThreadContext, number: u64, a: [u64; 6]) -> Option<i64> {
    let (start, len) = (a[0], page_up(a[1]));
    match number {
        nr::MUNMAP | nr::MREMAP if overlaps_engine(start, len) => return Some(-sys::EINVAL),
        nr::MREMAP if a[3] & sys::MREMAP_FIXED != 0 && overlaps_engine(a[4], page_up(a[2])) => {
            return Some(-sys::EINVAL);
        }
        // As if nothing were there: it could be emptied otherwise.
        nr::MADVISE if overlaps_engine(start, len) => return Some(-sys::ENOMEM),
        nr::MUNMAP => forget_code(start, start.wrapping_add(len), pm::code_unmapped),
        nr::MREMAP => {
            forget_code(start, start.wrapping_add(len), pm::code_unmapped);
            if a[3] & sys::MREMAP_FIXED != 0 {
                let end = a[4].wrapping_add(page_up(a[2]));
                forget_code(a[4], end, pm::code_unmapped);
            }
        }
        nr::MPROTECT | nr::PKEY_MPROTECT => {
            if overlaps_engine(start, len) {
                return Some(-sys::ENOMEM);
            }
            // Whatever the new protection: what was translated may be about to change, and
            // write protection of ours is about to be replaced.
            forget_code(start, start.wrapping_add(len), pm::code_changed);
        }
        _ => {}
    }
    let result = pm::memory(ctx, number, &a)?;
    if (number == nr::MPROTECT || number == nr::PKEY_MPROTECT)
        && result == 0
        && a[2] & sys::PROT_EXEC != 0
    {
        let shared = a[2] & sys::PROT_WRITE == 0
            && crate::maps::read()
                .iter()
                .any(|m| m.start <= start && start < m.end && m.shared);
        ENGINE.lock().code.insert(CodeRange {
            start,
            end: start + len,
            writable: a[2] & sys::PROT_WRITE != 0 || shared,
            shared,
        });
    }
    Some(result)
}

/// `tell` says what becomes of it.
fn forget_code(start: u64, end: u64, tell: fn(u64, u64)) {
    if end <= start {
        return;
    }
    let mut e = ENGINE.lock();
    if e.code.remove(start, end) {
        e.invalidate(start, end);
        let pages: alloc::vec::Vec<u64> = e
            .protected
            .range(start >> 12..(end + 4095) >> 12)
            .copied()
            .collect();
        for p in pages {
            e.protected.remove(&p);
        }
        drop(e);
        tell(start, end);
    }
}

fn overlaps_engine(start: u64, len: u64) -> bool {
    let end = start.saturating_add(len);
    start < brownout_abi::ENGINE_LIMIT && end > brownout_abi::ENGINE_BASE
        || ENGINE
            .lock()
            .arenas
            .list
            .iter()
            .any(|x| start < x.end() && end > x.base)
        || pm::overlaps_alias(start, end)
}

/// Whether shared memory that may replace what is there would be attached over the engine's.
fn shmat_overlaps_engine(a: &[u64; 6]) -> bool {
    const SHM_REMAP: u64 = 0o40000;
    a[2] & SHM_REMAP != 0 && layout::segment_len(a[0]).is_some_and(|len| overlaps_engine(a[1], len))
}

pub fn page_up(n: u64) -> u64 {
    n.wrapping_add(4095) & !4095
}
