//! What the program has asked for at signals, and which ones are let through: questions that more
//! than `signal.rs` asks.

use crate::context::ThreadContext;
use crate::sigdata::{ALL_ASYNC, SIGSTOP, SYNC_MASK, SigAction, SignalHandlers, bit};
use crate::sys::{nr, sc};

pub const SIG_DFL: u64 = 0;

/// Sets the real mask, returns the old one.
pub fn set_mask(mask: u64) -> u64 {
    let mut old = 0u64;
    // SAFETY: both pointers are ours.
    unsafe {
        sc!(
            nr::RT_SIGPROCMASK,
            2,
            &mask as *const u64,
            &mut old as *mut u64,
            8
        )
    };
    old
}

/// Blocks every asynchronous signal.
pub fn block_all() -> u64 {
    set_mask(ALL_ASYNC)
}

/// Signals whose default action ends nothing: SIGCHLD, SIGCONT, SIGSTOP, SIGTSTP, SIGTTIN, SIGTTOU,
/// SIGURG, SIGWINCH.
const HARMLESS: u64 =
    bit(17) | bit(18) | bit(SIGSTOP) | bit(20) | bit(21) | bit(22) | bit(23) | bit(28);

/// Whether a signal would end the program if it came now and were not blocked.
pub fn kills(ctx: &ThreadContext, sig: i32) -> bool {
    (1..=64).contains(&sig) && HARMLESS & bit(sig) == 0 && action(ctx, sig).handler == SIG_DFL
}

/// Whether the program blocks a signal. Only where none is pending, which has all blocked.
pub fn is_blocked(ctx: &ThreadContext, sig: i32) -> bool {
    let mut mask = 0u64;
    // SAFETY: query only.
    unsafe { sc!(nr::RT_SIGPROCMASK, 0, 0, &mut mask as *mut u64, 8) };
    (mask & !SYNC_MASK | ctx.blocked_sync) & bit(sig) != 0
}

/// What the program has asked for at a signal.
pub fn action(ctx: &ThreadContext, sig: i32) -> SigAction {
    action_in(ctx.handlers, sig)
}

/// As [`action`], by a thread's table of them.
pub fn action_in(handlers: *const SignalHandlers, sig: i32) -> SigAction {
    // SAFETY: set at start, lives as long as a thread uses it.
    let handlers = unsafe { &*handlers };
    let mut action = handlers.actions[sig as usize];
    if handlers.ours & 1 << sig == 0 {
        // SAFETY: query only.
        unsafe { sc!(nr::RT_SIGACTION, sig, 0, &mut action as *mut _, 8) };
    }
    action
}
