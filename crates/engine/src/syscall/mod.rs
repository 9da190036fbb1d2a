//! System calls of the program.
//!
//! ```text
//!  follow       what leaves the process, and what the kernel writes to it    where data is followed
//!  session      the process that is kept for later runs stops before a call that tells runs apart
//!  redirects    a path leads to another file
//!  determinism  time, randomness, process numbers, stamps of files
//!  signals      what the program believes about signals
//!  processes    threads, processes, programs
//!  memory       the engine's own memory, and what is code
//!  code         what changes code without a store
//!  boundaries   what the program takes from the world and gives to it       while recording, if asked for
//!  pm           tracked memory and files                                    while recording
//!  layout       where mappings lie                                          in deterministic mode
//!  turns        who goes on                                                  where threads take turns
//!  kernel       the call itself
//! ```
//! Each is a [`Stage`] in a module of its own; [`PIPELINE`] is their order. A call goes down this
//! list and its result comes back up. `brownout_syscalls::pipeline` says what a stage is, and what
//! it may rely on.
//!
//! What a stage gets to see follows from where it stands. Behind `determinism` numbers of processes
//! are the kernel's, before it those that the program knows. Behind `redirects` a path is the one
//! that the kernel will be told. Only `pm` and what is behind it knows of aliases. The scheduler of
//! threads makes some calls several times, so it stands behind all that records or changes them.

mod code;
mod follow;
mod kernel;
mod memory;
mod processes;
mod signals;

use crate::context::ThreadContext;
use crate::{deterministic, layout, pm, redirects, schedule, session};
use brownout_syscalls::pipeline::{Call, Pipeline};

/// The stages, in the order in which a call goes through them.
static PIPELINE: Pipeline<ThreadContext> = Pipeline::new(&[
    follow::STAGE,
    session::STAGE,
    redirects::STAGE,
    deterministic::STAGE,
    signals::STAGE,
    processes::STAGE,
    memory::STAGE,
    code::STAGE,
    pm::BOUNDARIES,
    pm::STAGE,
    layout::STAGE,
    schedule::calls::STAGE,
    kernel::STAGE,
]);

/// Finds out which stages take part. Called once, when what was asked for is known.
pub fn init() {
    PIPELINE.prepare();
}

/// A `syscall` instruction at `ctx.rip`.
pub fn handle(ctx: &mut ThreadContext) {
    let g = &ctx.gpr;
    let call = Call {
        number: g[0] as u32 as u64,
        args: [g[7], g[6], g[2], g[10], g[8], g[9]],
    };
    // `None`: a signal comes first, and the program will make the call again afterwards.
    if let Some(result) = PIPELINE.make(ctx, &call) {
        ctx.gpr[0] = result as u64;
        ctx.gpr[1] = (ctx.rip + 2).get();
        ctx.gpr[11] = ctx.rflags;
        ctx.rip += 2;
    }
    crate::blocks::resume_at_rip(ctx);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::nr;

    /// As under `run`: nothing is recorded, kept or deterministic.
    #[test]
    fn an_ordinary_call_goes_straight_to_the_kernel() {
        init();
        let way = |number: u64| PIPELINE.way(number).collect::<Vec<_>>();
        assert_eq!(way(nr::GETTID), ["kernel"]);
        assert_eq!(way(nr::READLINK), ["redirects", "kernel"]);
        assert_eq!(way(nr::MMAP), ["memory", "kernel"]);
        assert_eq!(way(nr::PPOLL), ["signals", "kernel"]);
        assert_eq!(way(nr::CLONE), ["processes", "kernel"]);
        assert_eq!(way(100_000), ["kernel"]);
    }
}
