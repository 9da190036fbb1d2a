//! Calls about signals. What the program believes about them and what the kernel knows are not the
//! same (`signal.rs`).

use crate::context::ThreadContext;
use crate::sigdata::SYNC_MASK;
use crate::sys::{self, nr};
use crate::values::read_value;
use crate::{pm, signal};
use brownout_syscalls::pipeline::{Call, Rest, Stage};

const RT_SIGTIMEDWAIT: u64 = 128;
const RT_SIGQUEUEINFO: u64 = 129;

pub const STAGE: Stage<ThreadContext> = Stage {
    name: "signals",
    takes: |number| {
        matches!(
            number,
            nr::RT_SIGACTION
                | nr::RT_SIGPROCMASK
                | nr::RT_SIGRETURN
                | nr::SIGALTSTACK
                | nr::RT_SIGPENDING
                | nr::RT_SIGSUSPEND
                | RT_SIGTIMEDWAIT
                | RT_SIGQUEUEINFO
                | nr::RT_TGSIGQUEUEINFO
                | nr::PSELECT6
                | nr::PPOLL
                | nr::EPOLL_PWAIT
                | nr::EPOLL_PWAIT2
        )
    },
    pass,
};

fn pass(ctx: &mut ThreadContext, call: &Call, rest: Rest<ThreadContext>) -> Option<i64> {
    let (number, a) = (call.number, &call.args);
    match number {
        nr::RT_SIGACTION => Some(pm::answered(ctx, number, a, |ctx| {
            signal::sigaction(ctx, a)
        })),
        nr::RT_SIGPROCMASK => Some(pm::answered(ctx, number, a, |ctx| {
            signal::sigprocmask(ctx, a)
        })),
        nr::SIGALTSTACK => Some(pm::answered(ctx, number, a, |ctx| {
            signal::sigaltstack(ctx, a)
        })),
        nr::RT_SIGPENDING => Some(pm::answered(ctx, number, a, |ctx| {
            signal::sigpending(ctx, a)
        })),
        nr::RT_SIGRETURN => signal::sigreturn(ctx),
        RT_SIGTIMEDWAIT => signal::sigtimedwait(ctx, a).or_else(|| rest.make(ctx, call)),
        RT_SIGQUEUEINFO | nr::RT_TGSIGQUEUEINFO => {
            signal::queue_own(ctx, number, a).or_else(|| rest.make(ctx, call))
        }
        nr::RT_SIGSUSPEND => with_mask(ctx, call, rest, 0, 1),
        nr::PSELECT6 => pselect(ctx, call, rest),
        nr::PPOLL => with_mask(ctx, call, rest, 3, 4),
        nr::EPOLL_PWAIT | nr::EPOLL_PWAIT2 => with_mask(ctx, call, rest, 4, 5),
        _ => rest.make(ctx, call),
    }
}

/// Calls that install a mask for their duration: SIGSEGV and its kin stay unblocked.
fn with_mask(
    ctx: &mut ThreadContext,
    call: &Call,
    rest: Rest<ThreadContext>,
    mask_arg: usize,
    size_arg: usize,
) -> Option<i64> {
    let a = call.args;
    let mut mask = 0u64;
    let mut b = a;
    if a[mask_arg] != 0 && a[size_arg] == 8 && read_value(a[mask_arg], &mut mask) {
        if signal::would_end_wait(ctx, mask) {
            return end_wait(ctx, call, rest, mask_arg, mask);
        }
        ctx.set_suspend_mask(Some(mask));
        mask &= !SYNC_MASK;
        b[mask_arg] = &mask as *const u64 as u64;
    }
    let result = rest.make(ctx, &call.with(b));
    ctx.set_suspend_mask(None);
    result
}

/// A wait that a held signal ends at once, if there is nothing else that does.
fn end_wait(
    ctx: &mut ThreadContext,
    call: &Call,
    rest: Rest<ThreadContext>,
    mask_arg: usize,
    mask: u64,
) -> Option<i64> {
    let mut a = call.args;
    let nothing = [0u64; 2];
    let zero = nothing.as_ptr() as u64;
    let timeout = match call.number {
        nr::PPOLL => Some((2, zero)),
        nr::PSELECT6 => Some((4, zero)),
        nr::EPOLL_PWAIT => Some((3, 0)),
        nr::EPOLL_PWAIT2 => Some((3, zero)),
        _ => None,
    };
    if let Some((argument, value)) = timeout {
        a[argument] = value;
        a[mask_arg] = 0;
        let ready = rest.make(ctx, &call.with(a))?;
        if ready != 0 {
            return Some(ready);
        }
    }
    signal::end_wait(ctx, mask);
    Some(-sys::EINTR)
}

/// `pselect6` has its mask behind one more pointer.
fn pselect(ctx: &mut ThreadContext, call: &Call, rest: Rest<ThreadContext>) -> Option<i64> {
    let a = call.args;
    let (mut pair, mut mask) = ([0u64; 2], 0u64);
    let mut b = a;
    if a[5] != 0 && read_value(a[5], &mut pair) && pair[0] != 0 && read_value(pair[0], &mut mask) {
        if signal::would_end_wait(ctx, mask) {
            return end_wait(ctx, call, rest, 5, mask);
        }
        ctx.set_suspend_mask(Some(mask));
        mask &= !SYNC_MASK;
        pair[0] = &mask as *const u64 as u64;
        b[5] = pair.as_ptr() as u64;
    }
    let result = rest.make(ctx, &call.with(b));
    ctx.set_suspend_mask(None);
    result
}
