//! The last stage: the call itself.

use crate::asm::{Outcome, program_syscall};
use crate::blocks::ENGINE;
use crate::context::ThreadContext;
use crate::sys::{self, nr};
use brownout_syscalls::pipeline::{Call, Rest, Stage};

/// Takes what nobody has answered.
pub const STAGE: Stage<ThreadContext> = Stage {
    name: "kernel",
    takes: |_| true,
    pass,
};

fn pass(_: &mut ThreadContext, call: &Call, _: Rest<ThreadContext>) -> Option<i64> {
    let [a, b, c, d, e, f] = call.args;
    let words = [call.number, a, b, c, d, e, f];
    // SAFETY: none of these arguments names memory of the engine by accident; a program that does
    // so by intent breaks itself, as it could natively.
    let mut outcome = unsafe { program_syscall(&words) };
    if matches!(outcome, Outcome::Done(r) if r == -sys::EFAULT)
        // It says EFAULT where nothing is mapped.
        && call.number != nr::MREMAP
        && ENGINE.lock().unprotect_all()
    {
        // The kernel may have met a code page that only we have write-protected.
        // SAFETY: as above.
        outcome = unsafe { program_syscall(&words) };
    }
    match outcome {
        Outcome::Done(r) => Some(r),
        Outcome::Interrupted => None,
    }
}
