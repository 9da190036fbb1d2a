//! Calls that make, replace and end threads and processes, and what the engine has no room for.

use crate::context::ThreadContext;
use crate::sys::{self, nr};
use crate::{pm, process};
use brownout_syscalls::pipeline::{Call, Rest, Stage};

const PR_SET_SYSCALL_USER_DISPATCH: u64 = 59;
const ARCH_SET_GS: u64 = 0x1001;
const ARCH_GET_GS: u64 = 0x1004;

pub const STAGE: Stage<ThreadContext> = Stage {
    name: "processes",
    takes: |number| {
        matches!(
            number,
            nr::CLONE
                | nr::FORK
                | nr::VFORK
                | nr::CLONE3
                | nr::RSEQ
                | nr::IO_URING_SETUP
                | nr::EXECVE
                | nr::EXECVEAT
                | nr::EXIT
                | nr::EXIT_GROUP
                | nr::GETPPID
                | nr::UNSHARE
                | nr::SETNS
                | nr::PRCTL
                | nr::ARCH_PRCTL
        )
    },
    pass,
};

fn pass(ctx: &mut ThreadContext, call: &Call, rest: Rest<ThreadContext>) -> Option<i64> {
    let (number, a) = (call.number, &call.args);
    match number {
        nr::CLONE => {
            let (flags, stack, ptid, ctid, tls) = process::clone_arguments(a);
            if [ptid, ctid].iter().any(|&at| at != 0 && pm::is_tracked(at)) {
                crate::fatal_unsupported(
                    "the program has the kernel write a thread's number to persistent memory (clone)",
                );
            }
            Some(process::clone(ctx, flags, stack, ptid, ctid, tls))
        }
        nr::FORK => Some(process::plain_fork(ctx)),
        nr::VFORK => Some(process::vfork(ctx)),
        // glibc falls back to clone; structures that grow with the kernel are not worth following.
        nr::CLONE3 => Some(-sys::ENOSYS),
        // Restartable sequences name code ranges by address; glibc works without.
        nr::RSEQ => Some(-sys::ENOSYS),
        // Shared rings would let the kernel write to tracked memory unseen; programs fall back.
        nr::IO_URING_SETUP => Some(-sys::ENOSYS),
        nr::EXECVE | nr::EXECVEAT => pm::with_prepared(ctx, number, a, process::exec),
        nr::EXIT => process::exit_thread(ctx, a[0]),
        nr::EXIT_GROUP => process::exit_group(ctx, a[0]),
        nr::GETPPID => Some(process::parent()),
        nr::UNSHARE => {
            process::may_enter_namespace(a[0]);
            rest.make(ctx, call)
        }
        nr::SETNS => {
            // Which kind of namespace it is only the descriptor says.
            process::may_enter_namespace(u64::MAX);
            rest.make(ctx, call)
        }
        // As a kernel without Syscall User Dispatch: where a call comes from is not what it sees.
        nr::PRCTL if a[0] == PR_SET_SYSCALL_USER_DISPATCH => Some(-sys::EINVAL),
        // What the program finds there anyway.
        nr::ARCH_PRCTL if a[0] == ARCH_SET_GS && a[1] == 0 => Some(0),
        nr::ARCH_PRCTL if a[0] == ARCH_SET_GS => crate::fatal_unsupported(
            "the program sets the GS register, which this tool uses itself",
        ),
        nr::ARCH_PRCTL if a[0] == ARCH_GET_GS => match crate::values::write_value(ctx, a[1], &0u64)
        {
            true => Some(0),
            false => Some(-sys::EFAULT),
        },
        _ => rest.make(ctx, call),
    }
}
