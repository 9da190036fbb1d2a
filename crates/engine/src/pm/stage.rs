//! The stage of system calls that concern tracked memory and files.

use super::kernel::{syncs_all, tracked};
use super::mappings::{memory, mmap};
use super::{files, names, regions, remote};
use crate::context::ThreadContext;
use crate::sys::nr;
use brownout_syscalls::pipeline::{Call, Rest, Stage};

/// Leads the kernel to tracked memory, and tells of what a call does to it and to tracked files.
pub const STAGE: Stage<ThreadContext> = Stage {
    name: "pm",
    takes: |_| crate::mode().record,
    pass,
};

fn pass(ctx: &mut ThreadContext, call: &Call, rest: Rest<ThreadContext>) -> Option<i64> {
    match call.number {
        nr::MMAP => return mmap(ctx, call, rest),
        nr::MUNMAP
        | nr::MPROTECT
        | nr::PKEY_MPROTECT
        | nr::MREMAP
        | nr::MADVISE
        | nr::MSYNC
        | nr::BRK => return memory(ctx, call, rest),
        nr::SHMAT => {
            refuse_attached_over(&call.args);
            return rest.make(ctx, call);
        }
        _ => {}
    }
    let by_name = names::concerns(call.number);
    if !by_name && !any_tracked() && !syncs_all(call.number) {
        return rest.make(ctx, call);
    }
    if let Some(answer) = remote::pass(ctx, call, rest) {
        return answer;
    }
    if !by_name {
        return tracked(ctx, call, rest, |_, _| {});
    }
    let (number, a) = (call.number, &call.args);
    let before = names::before(ctx, number, a);
    // A file may be tracked only now.
    let result = tracked(ctx, call, rest, |ctx, result| {
        names::made(ctx, &before, result);
    })?;
    names::after(ctx, number, a, before, result);
    Some(result)
}

/// Whether anything is tracked, mapped or not.
fn any_tracked() -> bool {
    regions::any() || files::any()
}

fn refuse_attached_over(a: &[u64; 6]) {
    const SHM_REMAP: u64 = 0o40000;
    if a[2] & SHM_REMAP != 0 && regions::is_tracked(a[1]) {
        crate::fatal_unsupported("the program attaches shared memory over persistent memory");
    }
}
